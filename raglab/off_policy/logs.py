"""Logged rounds (algebra): a log checked and weighed, arms, masks and propensities (S4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array, plain_array, within_range
from raglab.arguments.user_warnings import warn_user
from raglab.loops.compiled import kernel_of
from raglab.values import AnyArray, BoolArray, FloatArray, IntArray, refuse

if TYPE_CHECKING:
    import pandas as pd

LOG_COLUMNS = ("action", "reward", "propensity")
COMPILED_ROUNDS = 200_000  # rounds from which on compiled loops are loaded
CHUNK_ROUNDS = 2**14  # rows worked on at once: small enough for the cache
SUM_TOLERANCE = 1e-6  # of a target's row: what single precision leaves
SURE_SHARE = 0.999  # share of it within which a sum is, in whatever order it was taken
SHOWN_COLUMNS = 12  # columns that a message shows
LARGEST_REWARD = 1e100  # reward: squares and sums of it stay finite


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
    arm_names = arms if arms is not None else columns
    return None if arm_names is None else tuple(arm_names)


def target_array(target: Any, rounds: int) -> AnyArray:  # noqa: ANN401 - array or frame
    """Target as an array [T, A], where [A] stands for the same choice in every round.

    Checked in `weigh`.
    """
    target_values = plain_array(
        target.to_numpy() if hasattr(target, "to_numpy") else target, "target"
    )
    target_shape = target_values.shape
    if target_values.ndim == 1:
        target_values = np.broadcast_to(target_values, (rounds, len(target_values)))
    is_table = (
        target_values.ndim == 2 and len(target_values) == rounds and target_values.shape[1] > 0
    )
    if not is_table or target_values.dtype.kind not in "fiub":
        refuse(
            f"target must be numbers [T, A] with T = {rounds}, or [A]",
            f"{target_values.dtype} of shape {target_shape}",
            "give the probability of every arm in every round",
        )
    return target_values


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
    needed_columns = [reward if column == "reward" else column for column in LOG_COLUMNS]
    if missing_columns := [column for column in needed_columns if column not in log.columns]:
        shown_columns = list(map(str, log.columns[:SHOWN_COLUMNS]))
        refuse(
            f"a log must have the columns {needed_columns}",
            shown_columns,
            f"{missing_columns} is missing: write log.rename(columns={{yours: ours}})",
        )
    if not log.columns.is_unique:
        repeated_column = log.columns[log.columns.duplicated()][0]
        refuse(
            "columns of a log must have different names",
            f"{repeated_column!r} twice",
            "rename or drop one",
        )
    if not len(log):
        refuse("a log must hold at least one round", "none", "check the filter that made it")
    if arms is not None and (len(arms) != n_arms or len(set(arms)) != n_arms):
        msg = f"arms must name each of the {n_arms} columns of target once, got {list(arms)}."
        raise ValueError(msg)
    rewards = float_array(log[reward], reward)
    refuse_rows(
        ~(np.abs(rewards) <= LARGEST_REWARD),
        rewards,
        f"{reward} must be finite, at most {LARGEST_REWARD:g} in size",
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
    arm_names = tuple(map(str, range(n_arms) if arms is None else arms))
    session_ids, n_sessions = _sessions(log, session)
    return Log(
        arm=action_positions(log["action"], n_arms, arms),
        reward=rewards,
        propensity=propensity,
        model=_reward_columns(log, arm_names),
        names=arm_names,
        session=session_ids,
        sessions=n_sessions,
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
    outcome_names = (reward,) if isinstance(reward, str) else tuple(reward)
    if not outcome_names or len(set(outcome_names)) < len(outcome_names):
        refuse(
            "reward must name columns of the log, each once",
            list(outcome_names),
            "'reward' is usual",
        )
    if len(outcome_names) > 1 and (
        model_columns := [column for column in log.columns if str(column).startswith("q_")]
    ):
        refuse(
            "q_<arm> must be the model of one outcome",
            f"{model_columns[:5]} beside {list(outcome_names)}",
            "estimate one by one",
        )
    return outcome_names


def refuse_rows(
    is_bad: BoolArray,
    values: Any,  # noqa: ANN401 - any column
    rule: str,
    remedy: str,
) -> None:
    """Stop at rounds that break a rule, with the first of them.

    Args:
      is_bad: whether a round does, [T].
      values: that break it, [T].
      rule: in words.
      remedy: in words.
    """
    if is_bad.any():
        first_row = int(is_bad.argmax())
        refuse(
            rule, f"{values[first_row]} in row {first_row} ({int(is_bad.sum())} such rows)", remedy
        )


# a series
def action_positions(
    action: Any,  # noqa: ANN401
    n_arms: int,
    arms: Sequence[Any] | None,
) -> IntArray:
    """Position of each logged arm, [T].

    An action is a position, unless the arms have names and it is one of them.
    """
    actions = (action.infer_objects() if action.dtype == object else action).to_numpy()
    is_missing = action.isna().to_numpy()
    refuse_rows(
        is_missing, actions, "action must not be missing", "leave out rounds without an action"
    )
    is_integer = np.issubdtype(actions.dtype, np.integer)
    if is_integer and (arms is None or all(isinstance(arm, str) for arm in arms)):
        positions = actions.astype(np.int64, copy=False)
    elif arms is None and np.issubdtype(actions.dtype, np.floating):
        positions = np.where(np.isin(actions, range(n_arms)), actions, -1.0).astype(np.int64)
    elif arms is None:
        refuse(
            f"action must be 0..{n_arms - 1} where arms have no names",
            f"{actions[0]!r} in row 0",
            "name them by arms= or by the columns of target",
        )
    else:
        import pandas as pd

        positions = pd.Index(list(arms)).get_indexer(pd.Index(actions)).astype(np.int64)
    refuse_rows(
        (positions < 0) | (positions >= n_arms),
        actions,
        f"action must be one of {f'0..{n_arms - 1}' if arms is None else list(arms)}",
        "give target a column for every arm that was logged",
    )
    return positions


def _reward_columns(log: pd.DataFrame, arm_names: tuple[str, ...]) -> tuple[FloatArray, ...]:
    """Columns q_<arm> in the order of the arms, by name or by position.

    Empty where the log has none.
    """
    model_columns = [f"q_{column_name}" for column_name in arm_names]
    if not any(column_name in log.columns for column_name in model_columns):
        model_columns = [f"q_{arm_index}" for arm_index in range(len(arm_names))]
    missing_columns = [
        column_name for column_name in model_columns if column_name not in log.columns
    ]
    if len(missing_columns) == len(model_columns):
        return ()
    if missing_columns:
        refuse(
            f"a reward model must have a column for every arm, {model_columns}",
            f"{missing_columns} is missing",
            "add it, or drop all",
        )
    model_rewards = tuple(
        float_array(log[column_name], column_name) for column_name in model_columns
    )
    for column_name, arm_rewards in zip(model_columns, model_rewards, strict=True):
        refuse_rows(
            np.abs(arm_rewards) > LARGEST_REWARD,
            arm_rewards,
            f"{column_name} must be at most {LARGEST_REWARD:g} in size",
            "correct or rescale it",
        )
    return model_rewards


def _sessions(log: pd.DataFrame, session: str | ArrayLike | None) -> tuple[IntArray | None, int]:
    if session is None:
        return None, len(log)
    if isinstance(session, str) and session not in log.columns:
        column_hint = f"there is {list(log.columns)}"
        refuse("session must be a column of the log", repr(session), column_hint)
    session_values = np.asarray(log[session] if isinstance(session, str) else session)
    if session_values.shape != (len(log),):
        refuse(
            f"session must be [T] with T = {len(log)}",
            f"shape {session_values.shape}",
            "one session for each round",
        )
    import pandas as pd

    try:
        session_ids, session_labels = pd.factorize(session_values)
    except TypeError as error:  # a list or a set
        refuse("session must be text or numbers", str(error), "join what it holds into one text")
    refuse_rows(
        session_ids < 0,
        session_values,
        "session must not be missing",
        "give a lone round a session of its own",
    )
    return session_ids.astype(np.int64), len(session_labels)


def weigh(
    log: Log, target: AnyArray, mask: ArrayLike | None = None, *, engine: str | None = None
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
    n_rounds, n_arms = target.shape
    pulls = np.bincount(log.arm, minlength=n_arms)
    # An arm never logged has the log's mean: the least that can be said of it.
    arm_means = np.full(n_arms, log.reward.mean())
    reward_sums = np.bincount(log.arm, weights=log.reward, minlength=n_arms)
    np.divide(reward_sums, pulls, out=arm_means, where=pulls > 0)
    is_available = None if mask is None else _available(mask, (n_rounds, n_arms))
    compiled_kernel = kernel_of(
        engine or ("auto" if n_rounds >= COMPILED_ROUNDS else "numpy"), _weighing_kernel
    )
    weight, expected, predicted = np.empty((3, n_rounds))
    mass = np.zeros(n_arms)
    # In chunks, because a target of many arms over many rounds would be copied whole to be made
    # float64.
    for chunk_start in range(0, n_rounds, CHUNK_ROUNDS):
        chunk_rows = slice(chunk_start, min(n_rounds, chunk_start + CHUNK_ROUNDS))
        chunk_target = np.ascontiguousarray(target[chunk_rows], dtype=np.float64)
        logged_arms = log.arm[chunk_rows]
        propensity = log.propensity[chunk_rows]
        model_columns = [model_column[chunk_rows] for model_column in log.model]
        chunk_model = np.column_stack(model_columns) if model_columns else arm_means[None]
        sums_are_sure = is_finite = False
        if compiled_kernel is not None:
            output_views = weight[chunk_rows], expected[chunk_rows], predicted[chunk_rows]
            sums_are_sure, is_finite = compiled_kernel(
                chunk_target,
                chunk_model,
                logged_arms,
                propensity,
                *output_views,
                mass,
                SURE_SHARE * SUM_TOLERANCE,
            )
        if not sums_are_sure:  # near the bound the order of a sum decides
            _check_distribution(chunk_target, chunk_start)
        if (
            is_available is not None
            and (is_unavailable := (chunk_target > 0.0) & ~is_available[chunk_rows]).any()
        ):
            chunk_row, closed_arm = map(int, np.argwhere(is_unavailable)[0])
            refuse(
                "target must have no mass on an arm that was not available",
                f"{chunk_target[chunk_row, closed_arm]:g} on arm {log.names[closed_arm]} in row "
                f"{chunk_start + chunk_row}",
                "spread it over the others",
            )
        if not is_finite:
            expected[chunk_rows], predicted[chunk_rows] = _modelled(
                chunk_target, chunk_model, logged_arms, chunk_start
            )
        if compiled_kernel is None:
            weight[chunk_rows] = (
                chunk_target[np.arange(len(chunk_target)), logged_arms] / propensity
            )
            mass += np.einsum("ra->a", chunk_target)
    # The target may leave an arm alone that was not available; the log may not have chosen it.
    if is_available is not None:
        closed_rows = ~is_available[np.arange(n_rounds), log.arm]
        refuse_rows(
            closed_rows,
            log.arm,
            "action must be an arm that was available",
            "mend the mask, or the log",
        )
    return EvaluationRows(
        log, target, weight, predicted, expected, mass / n_rounds, pulls, fitted=not log.model
    )


def _weighing_kernel() -> Any:  # noqa: ANN401 - a function
    from raglab.off_policy.kernel import weigh_rows

    return weigh_rows


def _check_distribution(chunk_target: FloatArray, chunk_start: int) -> None:
    """Stop at a row of a target, [R, A], that is no distribution."""
    row_sums = np.einsum("ra->r", chunk_target)
    is_bad = ~((chunk_target.min(axis=1) >= 0.0) & (np.abs(row_sums - 1.0) <= SUM_TOLERANCE))
    if is_bad.any():
        first_bad = int(is_bad.argmax())
        refuse(
            "a row of target must be probabilities that sum to 1",
            f"{chunk_target[first_bad].round(6).tolist()[:8]} with sum {row_sums[first_bad]:g} "
            f"in row {chunk_start + first_bad}",
            "divide it by its sum",
        )


def _modelled(
    chunk_target: FloatArray, chunk_model: FloatArray, logged_arms: IntArray, chunk_start: int
) -> tuple[FloatArray, FloatArray]:
    """Expected reward of a target and predicted one of the logged arms, [R] each.

    Args:
      chunk_target: target, [R, A].
      chunk_model: reward of each arm, [R, A], or [1, A] where it is the same in all rounds.
      logged_arms: logged, [R].
      chunk_start: number of the first round.
    """
    round_model = np.broadcast_to(chunk_model, chunk_target.shape)
    expected = np.einsum("ra,ra->r", round_model, chunk_target)
    predicted = round_model[np.arange(len(logged_arms)), logged_arms]
    # One sum finds any gap; only then is it worth looking whether the gap carries mass.
    if not np.isfinite(expected.sum() + predicted.sum()):
        expected = np.einsum(
            "ra,ra->r", np.where(chunk_target == 0.0, 0.0, round_model), chunk_target
        )
        is_bad = ~np.isfinite(expected + predicted)
        if is_bad.any():
            refuse(
                "q_<arm> must be finite for the logged arm and wherever target has mass",
                f"NaN or infinity in row {chunk_start + int(is_bad.argmax())}",
                "fill it, or drop all q_ columns",
            )
    return expected, predicted


def _available(mask: ArrayLike, shape: tuple[int, int]) -> BoolArray:
    """Mask as bool [T, A]."""
    values = np.asarray(mask)
    if values.dtype != np.bool_ or values.shape not in {shape, shape[1:]}:
        refuse(
            f"mask must be booleans [A] or [T, A], {shape}",
            f"{values.dtype} {values.shape}",
            "True where available",
        )
    return np.broadcast_to(values, shape)
