"""Logged rounds (algebra): a log checked and weighed, arms, masks and propensities (S4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import float_array, plain_array, within_range
from raglab.loops.compiled import kernel_of
from raglab.values import refuse
from raglab.words.html_display import Fold, display, short

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
COLUMNS = ("action", "reward", "propensity")
PAYS = 200_000  # rounds from which on compiled loops are loaded
CHUNK = 2**14  # rows worked on at once: small enough for the cache
SUM_TOLERANCE = 1e-6  # of a target's row: what single precision leaves
SURELY = 0.999  # share of it within which a sum is, in whatever order it was taken


class Log(NamedTuple):
    """A checked log of T rounds over A arms.

    arm: [T], 0..A-1. reward, propensity: [T]. model: A arrays [T] of a reward model from outside,
    or none. names: of the arms. session: [T], 0..G-1, or None. sessions: G, or T without sessions.
    """

    arm: NDArray[np.int64]
    reward: Floats
    propensity: Floats
    model: tuple[Floats, ...]
    names: tuple[str, ...]
    session: NDArray[np.int64] | None
    sessions: int

    def __repr__(self) -> str:
        sessions = "" if self.session is None else f" in {self.sessions:,} sessions"
        rewards = (
            f"mean reward {self.reward.mean():.4g}, least propensity {self.propensity.min():.3g}"
        )
        arms = f"{len(self.names)} arms: {short(', '.join(self.names))}"
        return f"Log({len(self.arm):,} rounds{sessions}, {arms}; {rewards})"

    def _repr_html_(self) -> str:
        """Display for a notebook: rounds, mean reward and least propensity of every arm."""
        n = np.bincount(self.arm, minlength=len(self.names))
        summed = np.bincount(self.arm, weights=self.reward, minlength=len(self.names))
        least = np.full(len(self.names), np.inf)
        np.minimum.at(least, self.arm, self.propensity)
        rows = (
            (name, f"{k:,}", f"{total / k:.4g}" if k else "none", f"{low:.3g}" if k else "none")
            for name, k, total, low in zip(
                self.names, n.tolist(), summed.tolist(), least.tolist(), strict=True
            )
        )
        facts = [
            ("rounds", f"{len(self.arm):,}"),
            ("sessions", "not stated" if self.session is None else f"{self.sessions:,}"),
            ("mean reward", f"{self.reward.mean():.4g}"),
            ("reward model", "from outside" if self.model else "none"),
        ]
        arms = Fold(
            "arms",
            rows,
            len(self.names),
            ("arm", "rounds", "mean reward", "least propensity"),
            open=True,
        )
        return display("Log of rounds", facts, [arms])


class EvaluationRows(NamedTuple):
    """What every estimator reads of a log and one target policy.

    weight: target probability of the logged arm over its propensity, [T]. predicted: the model's
    reward of the logged arm, [T]. expected: the model's reward of the target policy, [T]. mass:
    mean target probability of each arm, [A]. pulls: rounds of each arm, [A]. fitted: whether the
    model is the mean reward by arm of this log.
    """

    log: Log
    target: Floats
    weight: Floats
    predicted: Floats
    expected: Floats
    mass: Floats
    pulls: NDArray[np.int64]
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
    probabilities = plain_array(
        target.to_numpy() if hasattr(target, "to_numpy") else target, "target"
    )
    if probabilities.dtype.kind not in "fiub":
        refuse(
            "target must be numbers",
            probabilities.dtype,
            "give the probability of every arm in every round",
        )
    if probabilities.ndim == 1:
        probabilities = np.broadcast_to(probabilities, (rounds, len(probabilities)))
    if probabilities.ndim != 2 or len(probabilities) != rounds or probabilities.shape[1] == 0:
        refuse(
            f"target must be [T, A] with T = {rounds}, or [A]",
            f"shape {np.shape(target)}",
            "give the probability of every arm in every round",
        )
    return probabilities


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
        plain = {
            "_".join(str(name).casefold().replace("-", " ").split()): str(name)
            for name in log.columns
        }
        near = {
            plain[known]: name
            for name in missing
            for known in _NAMES_OF_OTHERS.get(name, ())
            if known in plain
        }
        remedy = f"; log.rename(columns={near}) names what looks like them" if near else ""
        heads = list(map(str, log.columns))
        shown = (
            f"{heads[:_HEADS_SHOWN]} and {len(heads) - _HEADS_SHOWN} more"
            if len(heads) > _HEADS_SHOWN
            else heads
        )
        refuse(f"a log must have the columns {columns}", shown, f"{missing} is missing{remedy}")
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
    # One sum or extremum a column finds whether anything is wrong; only then is the first wrong row
    # looked for.
    outcome = float_column(log[reward], reward)
    if not np.isfinite(outcome.sum()):
        _raise_first_violation(
            ~np.isfinite(outcome),
            outcome,
            f"{reward} must be finite",
            f"leave out rounds without a {reward}",
        )
    _check_size(outcome, reward)
    # A weight divides by the propensity: one of 0 says that the round cannot have happened.
    propensity = float_column(log["propensity"], "propensity")
    if propensity.max() > 1.0:
        propensity = within_range(propensity, 0.0, 1.0, "propensity")
    if not (propensity.min() > 0.0 and propensity.max() <= 1.0):
        bad = ~((propensity > 0.0) & (propensity <= 1.0))
        remedy = "log the probability with which the logged arm was chosen, before the choice"
        _raise_first_violation(bad, propensity, "propensity must be in (0, 1]", remedy)
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


def outcome_columns(
    log: pd.DataFrame, reward: str | Sequence[str] | None
) -> tuple[tuple[str, ...], str]:
    """Columns that are estimated, and what must be said of the choice.

    The reward of a log with costs is what its learner saw: the net value moved and scaled into [0,
    1]. Where no column is stated, such a log is estimated in the user's unit, by its column
    `value`.

    Raises:
      ValueError: no column, one twice, or a model of one outcome beside several of them.
    """
    if reward is None:
        if not {"cost", "value"} <= set(log.columns) or not (log["cost"].to_numpy() != 0.0).any():
            return ("reward",), ""
        note = (
            "this log has costs: estimated is `value`, net of cost, in your unit; state "
            "reward='value', ('value', 'cost') for the spend besides, or 'reward' for what the "
            "learner saw."
        )
        return ("value",), note
    names = (reward,) if isinstance(reward, str) else tuple(reward)
    if not names or len(set(names)) < len(names):
        refuse("reward must name columns of the log, each once", list(names), "'reward' is usual")
    if len(names) > 1 and (models := [name for name in log.columns if str(name).startswith("q_")]):
        refuse(
            "q_<arm> must be the model of one outcome",
            f"{models[:5]} beside {list(names)}",
            "estimate one by one",
        )
    return names, ""


def float_column(column: Any, name: str) -> Floats:  # noqa: ANN401 - a series
    """Column as float64, NaN where a value is missing, without a copy where it is that already.

    Raises:
      ValueError: a value is no number; names it and its row.
    """
    return float_array(column.to_numpy(), name)


_HEADS_SHOWN = 12  # in a message
# What other systems call the columns of a log, by plain name.
_NAMES_OF_OTHERS = {
    "action": ("arm", "item_id", "item", "treatment", "choice", "chosen_arm"),
    "reward": ("click", "clicked", "outcome", "payoff", "utility", "conversion"),
    "propensity": (
        "propensity_score",
        "pscore",
        "prob",
        "probability",
        "logging_prob",
        "action_prob",
    ),
}
_LARGEST = 1e100  # of a reward: squares and sums of it stay finite


def _check_size(values: Floats, name: str) -> None:
    """Refuse values whose squares are no numbers; NaN is let pass."""
    if max(float(np.fmax.reduce(values)), -float(np.fmin.reduce(values))) > _LARGEST:
        bad = np.abs(values) > _LARGEST
        _raise_first_violation(
            bad, values, f"{name} must be at most {_LARGEST:g} in size", "correct or rescale it"
        )


# any column
def _raise_first_violation(
    bad: NDArray[np.bool_],
    values: Any,  # noqa: ANN401
    rule: str,
    remedy: str,
) -> None:
    if bad.any():
        row = int(bad.argmax())
        refuse(rule, f"{values[row]} in row {row} ({int(bad.sum())} such rows)", remedy)


# a series
def action_positions(
    action: Any,  # noqa: ANN401
    n_arms: int,
    arms: Sequence[Any] | None,
) -> NDArray[np.int64]:
    """Position of each logged arm, [T].

    An action is a position, unless the arms have names and it is one of them.
    """
    values = (action.infer_objects() if action.dtype == object else action).to_numpy()
    absent = action.isna().to_numpy()
    _raise_first_violation(
        absent, values, "action must not be missing", "leave out rounds without an action"
    )
    whole = np.issubdtype(values.dtype, np.integer)
    if whole and (arms is None or all(isinstance(arm, str) for arm in arms)):
        number = values.astype(np.int64, copy=False)
    elif arms is None and np.issubdtype(values.dtype, np.floating):
        exact = values == np.floor(values)
        number = np.where(exact & np.isfinite(values), values, -1.0).astype(np.int64)
    elif arms is None:
        refuse(
            f"action must be 0..{n_arms - 1} where arms have no names",
            f"{values[0]!r} in row 0",
            "name them by arms= or by the columns of target",
        )
    else:
        import pandas as pd

        number = pd.Index(list(arms)).get_indexer(pd.Index(values)).astype(np.int64)
    if number.min() < 0 or number.max() >= n_arms:
        known = f"0..{n_arms - 1}" if arms is None else f"{list(arms)}"
        remedy = "give target a column for every arm that was logged"
        _raise_first_violation(
            (number < 0) | (number >= n_arms), values, f"action must be one of {known}", remedy
        )
    return number


def _reward_columns(log: pd.DataFrame, names: tuple[str, ...]) -> tuple[Floats, ...]:
    """Columns q_<arm> in the order of the arms, by name or by position.

    Empty where the log has none.
    """
    wanted = [f"q_{name}" for name in names]
    if not any(name in log.columns for name in wanted):
        wanted = [f"q_{place}" for place in range(len(names))]
    if missing := [name for name in wanted if name not in log.columns]:
        if len(missing) == len(wanted):
            return ()
        msg = (
            f"a reward model must have a column for every arm, {wanted}; {missing} is missing; "
            "add it or drop all."
        )
        raise ValueError(msg)
    columns = tuple(float_column(log[name], name) for name in wanted)
    for name, column in zip(wanted, columns, strict=True):
        _check_size(column, name)
    return columns


def _sessions(
    log: pd.DataFrame, session: str | ArrayLike | None
) -> tuple[NDArray[np.int64] | None, int]:
    if session is None:
        return None, len(log)
    if isinstance(session, str):
        if session not in log.columns:
            refuse(
                "session must be a column of the log",
                repr(session),
                f"there is {list(log.columns)}",
            )
        values: Any = log[session].to_numpy()
    else:
        values = np.asarray(session)
    if np.shape(values) != (len(log),):
        refuse(
            f"session must be [T] with T = {len(log)}",
            f"shape {np.shape(values)}",
            "one session for each round",
        )
    import pandas as pd

    try:
        ids, labels = pd.factorize(values)
    except TypeError:
        msg = (
            "session must be names or numbers, got lists or sets among them; convert the column "
            "with .astype(str)."
        )
        raise ValueError(msg) from None
    _raise_first_violation(
        ids < 0, values, "session must not be missing", "give a lone round a session of its own"
    )
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
    # without a model from outside the mean by arm stands in, and an arm never logged has the log's
    # mean
    pulls = np.bincount(log.arm, minlength=size)
    available = None if mask is None else _available(mask, (n, size))
    model = _RewardModel(log, size, pulls)
    compiled = kernel_of(engine or ("auto" if n >= PAYS else "numpy"), _weighing_kernel)
    weight, expected, predicted = np.empty(n), np.empty(n), np.empty(n)
    mass, offset = np.zeros(size), np.arange(CHUNK, dtype=np.int64) * size
    # In chunks, because a target of many arms over many rounds would be copied whole to be made
    # float64.
    for start in range(0, n, CHUNK):
        rows = slice(start, min(n, start + CHUNK))
        part = np.ascontiguousarray(target[rows], dtype=np.float64)
        finite = False
        if compiled is not None:
            of_rows = (
                log.arm[rows],
                log.propensity[rows],
                weight[rows],
                expected[rows],
                predicted[rows],
            )
            sure, finite = compiled(
                part, model.by_round(rows), *of_rows, mass, SURELY * SUM_TOLERANCE
            )
            right = sure or _is_distribution(part)  # near the bound the order of a sum decides
        else:
            right = _is_distribution(part)
        if not right:
            _refuse_target(part, start)
        if available is not None and (gone := (part > 0.0) & ~available[rows]).any():
            _refuse_mass(part, gone, log.names, start)
        if not finite:
            place = offset[: len(part)] + log.arm[rows]  # of the logged arm in the flattened chunk
            model.read(part, place, rows, expected, predicted)
            if compiled is None:
                np.divide(part.ravel().take(place), log.propensity[rows], out=weight[rows])
                mass += np.einsum("ra->a", part)
    # The target may leave an arm alone that was not available; the log may not have chosen it.
    if available is not None:
        gone_rows = ~available[np.arange(n), log.arm]
        _raise_first_violation(
            gone_rows,
            log.arm,
            "action must be an arm that was available",
            "mend the mask, or the log",
        )
    return EvaluationRows(
        log=log,
        target=target,
        weight=weight,
        predicted=predicted,
        expected=expected,
        mass=mass / n,
        pulls=pulls,
        fitted=model.fitted,
    )


def _is_distribution(part: Floats) -> bool:
    """Whether every row of a target is a distribution, [R, A]."""
    return bool(part.min() >= 0.0 and np.abs(np.einsum("ra->r", part) - 1.0).max() <= SUM_TOLERANCE)


def _weighing_kernel() -> Any:  # noqa: ANN401 - a function
    from raglab.off_policy.kernel import weigh_rows

    return weigh_rows


class _RewardModel:
    """Reward model of a log: its columns, or where it has none the mean reward by arm."""

    def __init__(self, log: Log, size: int, pulls: NDArray[np.int64]) -> None:
        self.log, self.fitted = log, not log.model
        self.means = np.zeros(size)
        if self.fitted:
            # An arm never logged has the log's mean: the least that can be said of it.
            self.means[:] = log.reward.mean()
            totals = np.bincount(log.arm, weights=log.reward, minlength=size)
            np.divide(totals, pulls, out=self.means, where=pulls > 0)
        # the model's columns side by side, one buffer for all chunks
        self.side = np.empty((CHUNK, size))

    def by_round(self, rows: slice) -> Floats:
        """Model of each arm, [1, A], or of a round chunk, [R, A], overwritten by the next call."""
        if self.fitted:
            return self.means[None]
        model = self.side[: rows.stop - rows.start]
        for number, column in enumerate(self.log.model):
            model[:, number] = column[rows]
        return model

    def read(
        self,
        part: Floats,
        place: NDArray[np.int64],
        rows: slice,
        expected: Floats,
        predicted: Floats,
    ) -> None:
        """Write the target's expected, the logged arm's predicted reward for a chunk of rounds.

        Args:
          part: target of the chunk, [R, A].
          place: of the logged arm in it, flattened, [R].
          rows: of the log.
          expected, predicted: of all rounds, [T]; the chunk's are written.
        """
        if self.fitted:
            np.einsum("ra,a->r", part, self.means, out=expected[rows])
            np.take(self.means, self.log.arm[rows], out=predicted[rows])
            return
        model = self.by_round(rows)
        predicted[rows] = model.ravel().take(place)
        np.einsum("ra,ra->r", model, part, out=expected[rows])
        # One sum finds any gap in the chunk; only then is it worth looking whether the gap carries
        # mass.
        if not np.isfinite(expected[rows].sum() + predicted[rows].sum()):
            model[part == 0.0] = 0.0  # an arm without mass may have no prediction
            np.einsum("ra,ra->r", model, part, out=expected[rows])
            _refuse_model(expected[rows] + predicted[rows], rows.start)


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


def _refuse_mass(part: Floats, gone: NDArray[np.bool_], names: tuple[str, ...], start: int) -> None:
    row, arm = map(int, np.argwhere(gone)[0])
    refuse(
        "target must have no mass on an arm that was not available",
        f"{part[row, arm]:g} on arm {names[arm]} in row {start + row}",
        "spread it over the others",
    )


def _refuse_model(values: Floats, start: int) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        refuse(
            "q_<arm> must be finite for the logged arm and wherever target has mass",
            f"NaN or infinity in row {start + int(bad.argmax())}",
            "fill it, or drop all q_ columns",
        )


def _refuse_target(part: Floats, start: int) -> None:
    bad = ~((part >= 0.0).all(axis=1) & (np.abs(part.sum(axis=1) - 1.0) <= SUM_TOLERANCE))
    row = int(bad.argmax())
    refuse(
        "a row of target must be probabilities that sum to 1",
        f"{part[row].round(6).tolist()[:8]} with sum {part[row].sum():g} in row {start + row}",
        "divide it by its sum",
    )
