"""Logged rounds (algebra): a log checked and weighed, arms, masks and propensities (S4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import float_array, plain_array, within_range
from raglab.arguments.user_warnings import warn_user
from raglab.loops.compiled import kernel_of
from raglab.metrics.intervals import FloatArray, IntArray
from raglab.values import refuse

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("action", "reward", "propensity")
PAYS = 200_000  # rounds from which on compiled loops are loaded
CHUNK = 2**14  # rows worked on at once: small enough for the cache
SUM_TOLERANCE = 1e-6  # of a target's row: what single precision leaves
SURELY = 0.999  # share of it within which a sum is, in whatever order it was taken
HEADS = 12  # columns that a message shows
LARGEST = 1e100  # reward: squares and sums of it stay finite


class Log(NamedTuple):
    """A checked log of T rounds over A arms.

    arm: [T], 0..A-1. reward, propensity: [T]. model: A arrays [T] of a reward model from outside,
    or none. names: of the arms. session: [T], 0..G-1, or None. sessions: G, or T without sessions.
    """

    arm: IntArray
    reward: FloatArray
    propensity: FloatArray
    model: tuple[FloatArray, ...]
    names: tuple[str, ...]
    session: IntArray | None
    sessions: int


class EvaluationRows(NamedTuple):
    """What every estimator reads of a log and one target policy.

    weight: target probability of the logged arm over its propensity, [T]. predicted: the model's
    reward of the logged arm, [T]. expected: the model's reward of the target policy, [T]. mass:
    mean target probability of each arm, [A]. pulls: rounds of each arm, [A]. fitted: whether the
    model is the mean reward by arm of this log.
    """

    log: Log
    target: FloatArray
    weight: FloatArray
    predicted: FloatArray
    expected: FloatArray
    mass: FloatArray
    pulls: IntArray
    fitted: bool

    @property
    def unsupported(self) -> float:
        """Share of the target's choices that fall on arms never logged."""
        return float(self.mass[self.pulls == 0].sum())


# array or frame
def target_arms(target: Any, arms: Sequence[Any] | None) -> tuple[Any, ...] | None:  # noqa: ANN401
    """Arms as stated, as the columns of the target, or None: positions."""
    columns = getattr(target, "columns", None)
    if arms is not None and columns is not None and list(arms) != list(columns):
        refuse(
            "arms must be the columns of target in order",
            f"{list(arms)} and {list(columns)}",
            "leave arms out",
        )
    named = arms if arms is not None else columns
    return None if named is None else tuple(named)


def target_array(target: Any, rounds: int) -> NDArray[Any]:  # noqa: ANN401 - array or frame
    """Target as an array [T, A], where [A] stands for the same choice in every round.

    Checked in `weigh`.
    """
    plain = plain_array(target.to_numpy() if hasattr(target, "to_numpy") else target, "target")
    shape = plain.shape
    if plain.ndim == 1:
        plain = np.broadcast_to(plain, (rounds, len(plain)))
    is_table = plain.ndim == 2 and len(plain) == rounds and plain.shape[1] > 0
    if not is_table or plain.dtype.kind not in "fiub":
        refuse(
            f"target must be numbers [T, A] with T = {rounds}, or [A]",
            f"{plain.dtype} of shape {shape}",
            "give the probability of every arm in every round",
        )
    return plain


def read_log(
    log: pd.DataFrame,
    n_arms: int,
    *,
    arms: Sequence[Any] | None = None,
    session: str | ArrayLike | None = None,
    reward: str = "reward",
) -> Log:
    """Log of A arms, checked.

    Args:
      log: columns action, reward, propensity, optional q_<arm>.
      arms: names, [A]; positions where None.
      session: a column of the log, or [T].
      reward: the column that takes the place of `reward`.

    Raises:
      ValueError: a column is missing; a value is missing, out of range or unknown: says which, in
        which row.
    """
    # The form first: a check of values would fail on a missing column with words of its own.
    columns = [reward if name == "reward" else name for name in COLUMNS]
    if missing := [name for name in columns if name not in log.columns]:
        shown = list(map(str, log.columns[:HEADS]))
        refuse(
            f"a log must have the columns {columns}",
            shown,
            f"{missing} is missing: write log.rename(columns={{yours: ours}})",
        )
    if not log.columns.is_unique:
        twice = log.columns[log.columns.duplicated()][0]
        refuse(
            "columns of a log must have different names", f"{twice!r} twice", "rename or drop one"
        )
    if not len(log):
        refuse("a log must hold at least one round", "none", "check the filter that made it")
    if arms is not None and (len(arms) != n_arms or len(set(arms)) != n_arms):
        msg = f"arms must name each of the {n_arms} columns of target once, got {list(arms)}."
        raise ValueError(msg)
    outcome = float_array(log[reward], reward)
    refuse_rows(
        ~(np.abs(outcome) <= LARGEST),
        outcome,
        f"{reward} must be finite, at most {LARGEST:g} in size",
        f"leave out rounds without a {reward}",
    )
    # A weight divides by the propensity: one of 0 says that the round cannot have happened.
    propensity = within_range(float_array(log["propensity"], "propensity"), 0.0, 1.0, "propensity")
    refuse_rows(
        ~((propensity > 0.0) & (propensity <= 1.0)),
        propensity,
        "propensity must be in (0, 1]",
        "log the probability with which the logged arm was chosen, before the choice",
    )
    names = tuple(map(str, range(n_arms) if arms is None else arms))
    ids, count = _sessions(log, session)
    return Log(
        arm=action_positions(log["action"], n_arms, arms),
        reward=outcome,
        propensity=propensity,
        model=_reward_columns(log, names),
        names=names,
        session=ids,
        sessions=count,
    )


def outcome_columns(log: pd.DataFrame, reward: str | Sequence[str] | None) -> tuple[str, ...]:
    """Columns that are estimated.

    The reward of a log with costs is what its learner saw: the net value moved and scaled into [0,
    1]. Where no column is stated, such a log is estimated in the user's unit, by its column
    `value`.

    Raises:
      ValueError: no column, one twice, or a model of one outcome beside several of them.

    Warns:
      UserWarning: what was chosen for the user.
    """
    if reward is None:
        if not {"cost", "value"} <= set(log.columns) or not (log["cost"].to_numpy() != 0.0).any():
            return ("reward",)
        warn_user(
            "this log has costs: estimated is `value`, net of cost, in your unit; state "
            "reward='value', ('value', 'cost') for the spend besides, or 'reward' for what the "
            "learner saw."
        )
        return ("value",)
    names = (reward,) if isinstance(reward, str) else tuple(reward)
    if not names or len(set(names)) < len(names):
        refuse("reward must name columns of the log, each once", list(names), "'reward' is usual")
    if len(names) > 1 and (models := [name for name in log.columns if str(name).startswith("q_")]):
        refuse(
            "q_<arm> must be the model of one outcome",
            f"{models[:5]} beside {list(names)}",
            "estimate one by one",
        )
    return names


def refuse_rows(
    bad: NDArray[np.bool_],
    values: Any,  # noqa: ANN401 - any column
    rule: str,
    remedy: str,
) -> None:
    """Stop at rounds that break a rule, with the first of them.

    Args:
      bad: whether a round does, [T].
      values: that break it, [T].
      rule: in words.
      remedy: in words.
    """
    if bad.any():
        row = int(bad.argmax())
        refuse(rule, f"{values[row]} in row {row} ({int(bad.sum())} such rows)", remedy)


# a series
def action_positions(
    action: Any,  # noqa: ANN401
    n_arms: int,
    arms: Sequence[Any] | None,
) -> IntArray:
    """Position of each logged arm, [T].

    An action is a position, unless the arms have names and it is one of them.
    """
    values = (action.infer_objects() if action.dtype == object else action).to_numpy()
    absent = action.isna().to_numpy()
    refuse_rows(absent, values, "action must not be missing", "leave out rounds without an action")
    whole = np.issubdtype(values.dtype, np.integer)
    if whole and (arms is None or all(isinstance(arm, str) for arm in arms)):
        number = values.astype(np.int64, copy=False)
    elif arms is None and np.issubdtype(values.dtype, np.floating):
        number = np.where(np.isin(values, range(n_arms)), values, -1.0).astype(np.int64)
    elif arms is None:
        rule = f"action must be 0..{n_arms - 1} where arms have no names"
        remedy = "name them by arms= or by the columns of target"
        refuse(rule, f"{values[0]!r} in row 0", remedy)
    else:
        import pandas as pd

        number = pd.Index(list(arms)).get_indexer(pd.Index(values)).astype(np.int64)
    refuse_rows(
        (number < 0) | (number >= n_arms),
        values,
        f"action must be one of {f'0..{n_arms - 1}' if arms is None else list(arms)}",
        "give target a column for every arm that was logged",
    )
    return number


def _reward_columns(log: pd.DataFrame, names: tuple[str, ...]) -> tuple[FloatArray, ...]:
    """Columns q_<arm> in the order of the arms, by name or by position.

    Empty where the log has none.
    """
    wanted = [f"q_{name}" for name in names]
    if not any(name in log.columns for name in wanted):
        wanted = [f"q_{place}" for place in range(len(names))]
    missing = [name for name in wanted if name not in log.columns]
    if len(missing) == len(wanted):
        return ()
    if missing:
        rule = f"a reward model must have a column for every arm, {wanted}"
        refuse(rule, f"{missing} is missing", "add it, or drop all")
    columns = tuple(float_array(log[name], name) for name in wanted)
    for name, column in zip(wanted, columns, strict=True):
        rule = f"{name} must be at most {LARGEST:g} in size"
        refuse_rows(np.abs(column) > LARGEST, column, rule, "correct or rescale it")
    return columns


def _sessions(log: pd.DataFrame, session: str | ArrayLike | None) -> tuple[IntArray | None, int]:
    if session is None:
        return None, len(log)
    if isinstance(session, str) and session not in log.columns:
        columns = f"there is {list(log.columns)}"
        refuse("session must be a column of the log", repr(session), columns)
    values = np.asarray(log[session] if isinstance(session, str) else session)
    if values.shape != (len(log),):
        rule = f"session must be [T] with T = {len(log)}"
        refuse(rule, f"shape {values.shape}", "one session for each round")
    import pandas as pd

    try:
        ids, labels = pd.factorize(values)
    except TypeError as error:  # a list or a set
        refuse("session must be text or numbers", str(error), "join what it holds into one text")
    remedy = "give a lone round a session of its own"
    refuse_rows(ids < 0, values, "session must not be missing", remedy)
    return ids.astype(np.int64), len(labels)


def weigh(
    log: Log, target: NDArray[Any], mask: ArrayLike | None = None, *, engine: str | None = None
) -> EvaluationRows:
    """What the estimators read: weights, and the reward model where it is needed, chunk by chunk.

    Sums go by einsum, not by BLAS, so that their bits do not depend on its threads; those of the
    compiled twin differ in the last bits. Without a model from outside, it is the mean reward by
    arm of the log; of an arm never logged, the log's mean.

    Args:
      target: probability of each arm in each round, [T, A].
      mask: arms available, [A] or [T, A].
      engine: see `raglab.loops.compiled`; None is numba from so many rounds on that it pays, where
        it is installed.

    Raises:
      ValueError: a row of target is no distribution, or has mass on an arm that was not available;
        the model is NaN where it is needed; an arm was logged that was not available.
    """
    n, size = target.shape
    pulls = np.bincount(log.arm, minlength=size)
    # An arm never logged has the log's mean: the least that can be said of it.
    means = np.full(size, log.reward.mean())
    totals = np.bincount(log.arm, weights=log.reward, minlength=size)
    np.divide(totals, pulls, out=means, where=pulls > 0)
    available = None if mask is None else _available(mask, (n, size))
    compiled = kernel_of(engine or ("auto" if n >= PAYS else "numpy"), _weighing_kernel)
    weight, expected, predicted = np.empty((3, n))
    mass = np.zeros(size)
    # In chunks, because a target of many arms over many rounds would be copied whole to be made
    # float64.
    for start in range(0, n, CHUNK):
        rows = slice(start, min(n, start + CHUNK))
        part = np.ascontiguousarray(target[rows], dtype=np.float64)
        arm, propensity = log.arm[rows], log.propensity[rows]
        columns = [column[rows] for column in log.model]
        model = np.column_stack(columns) if columns else means[None]
        sure = finite = False
        if compiled is not None:
            written = weight[rows], expected[rows], predicted[rows]
            sure, finite = compiled(
                part, model, arm, propensity, *written, mass, SURELY * SUM_TOLERANCE
            )
        if not sure:  # near the bound the order of a sum decides
            _check_distribution(part, start)
        if available is not None and (gone := (part > 0.0) & ~available[rows]).any():
            row, closed = map(int, np.argwhere(gone)[0])
            refuse(
                "target must have no mass on an arm that was not available",
                f"{part[row, closed]:g} on arm {log.names[closed]} in row {start + row}",
                "spread it over the others",
            )
        if not finite:
            expected[rows], predicted[rows] = _modelled(part, model, arm, start)
        if compiled is None:
            weight[rows] = part[np.arange(len(part)), arm] / propensity
            mass += np.einsum("ra->a", part)
    # The target may leave an arm alone that was not available; the log may not have chosen it.
    if available is not None:
        closed_rows = ~available[np.arange(n), log.arm]
        rule = "action must be an arm that was available"
        refuse_rows(closed_rows, log.arm, rule, "mend the mask, or the log")
    return EvaluationRows(
        log, target, weight, predicted, expected, mass / n, pulls, fitted=not log.model
    )


def _weighing_kernel() -> Any:  # noqa: ANN401 - a function
    from raglab.off_policy.kernel import weigh_rows

    return weigh_rows


def _check_distribution(part: FloatArray, start: int) -> None:
    """Stop at a row of a target, [R, A], that is no distribution."""
    sums = np.einsum("ra->r", part)
    bad = ~((part.min(axis=1) >= 0.0) & (np.abs(sums - 1.0) <= SUM_TOLERANCE))
    if bad.any():
        row = int(bad.argmax())
        refuse(
            "a row of target must be probabilities that sum to 1",
            f"{part[row].round(6).tolist()[:8]} with sum {sums[row]:g} in row {start + row}",
            "divide it by its sum",
        )


def _modelled(
    part: FloatArray, model: FloatArray, arm: IntArray, start: int
) -> tuple[FloatArray, FloatArray]:
    """Expected reward of a target and predicted one of the logged arms, [R] each.

    Args:
      part: target, [R, A].
      model: reward of each arm, [R, A], or [1, A] where it is the same in all rounds.
      arm: logged, [R].
      start: number of the first round.
    """
    side = np.broadcast_to(model, part.shape)
    expected, predicted = np.einsum("ra,ra->r", side, part), side[np.arange(len(arm)), arm]
    # One sum finds any gap; only then is it worth looking whether the gap carries mass.
    if not np.isfinite(expected.sum() + predicted.sum()):
        expected = np.einsum("ra,ra->r", np.where(part == 0.0, 0.0, side), part)
        bad = ~np.isfinite(expected + predicted)
        if bad.any():
            refuse(
                "q_<arm> must be finite for the logged arm and wherever target has mass",
                f"NaN or infinity in row {start + int(bad.argmax())}",
                "fill it, or drop all q_ columns",
            )
    return expected, predicted


def _available(mask: ArrayLike, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Mask as bool [T, A]."""
    values = np.asarray(mask)
    if values.dtype != np.bool_ or values.shape not in {shape, shape[1:]}:
        refuse(
            f"mask must be booleans [A] or [T, A], {shape}",
            f"{values.dtype} {values.shape}",
            "True where available",
        )
    return np.broadcast_to(values, shape)
