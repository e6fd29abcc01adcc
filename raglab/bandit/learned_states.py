"""What history teaches (algebra): first states, pseudo-counts, a warm start (S4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.environments import Table
from raglab.bandit.learner import (
    CHOSEN,
    REWARDED,
    Bandit,
    State,
    Stats,
    Steps,
    check_bandit,
    check_reward,
    fold,
    init,
    reward_outcome,
)
from raglab.bandit.simulation import follow_costs, run
from raglab.values import FloatArray, IntArray, refuse

if TYPE_CHECKING:
    import pandas as pd

PROPENSITY_COLUMN_PREFIX = (
    "p_"  # of a log's columns of propensities, which name the arms in their order
)


def learned_state(
    source: Table | pd.DataFrame,
    bandit: Bandit,
    *,
    policy: ArrayLike | None = None,
    rounds: int | None = None,
    seed: int = 0,
    arms: Sequence[str] | None = None,
    features: ArrayLike | Sequence[str] | None = None,
    weight: float = 1.0,
) -> State:
    """State of a learner after history, the start of `run`, `log` or a live bandit.

    The history of a table is what a fixed policy would have logged on it, the history of a log is
    its rows in order. A round without a reward counts as chosen and teaches nothing.

    Args:
      source: a table; or a log with the columns `action` (number of the arm) or `arm`, and
        `reward`.
      bandit: the learner that continues, with the settings it will have then: a linear learner's
        sums depend on prior_mean.
      policy: of a table: probabilities that stay fixed, [A] or [Q, A]; uniform over the available
        arms where not given.
      rounds: of a table: how many are played; as many as it has rows where not given.
      seed: of a table: of the rows and arms that are drawn.
      arms: of a log: names in the order of the learner's; the columns `p_<arm>` where not given.
      features: of a log, for a linear learner: contexts [N, F], or the names of their columns, in
        the order of the table or setup in which the learner continues, the intercept among them.
      weight: of a round of history against a new one; it multiplies all sums.

    Raises:
      ValueError: a policy, a log or sizes that break a rule; a learner that cannot follow the
        table's costs.

    Source: rules S4.5, S4.7.

    Example:
      >>> import pandas as pd
      >>> past = pd.DataFrame({"arm": ["a", "b", "b"], "reward": [0.25, 1.0, 0.5]})
      >>> state = learned_state(past, Bandit("thompson_nig"), arms=["a", "b"])
      >>> state.n.tolist(), state.total.tolist()
      ([1.0, 2.0], [0.25, 1.5])
    """
    if not isinstance(bandit, Bandit):
        refuse("a history is learned by a Bandit", f"{bandit!r:.80}", "write Bandit('ucb1')")
    if not 0.0 < weight < np.inf or (bandit.window and weight != 1.0):
        refuse(
            "weight must be above 0, and 1 beside a window",
            weight,
            "1 counts history as new rounds",
        )
    if isinstance(source, Table):
        n_learner_arms = source.n_arms
        arms_chosen, rewards, contexts = _played_rounds(source, bandit, policy, rounds, seed)
    else:
        n_learner_arms, arms_chosen, rewards = _logged_rounds(source, arms)
        contexts = (
            logged_contexts(source, features) if bandit.linear else np.zeros((len(source), 0))
        )
    contexts = contexts if bandit.linear else contexts[:, :0]
    # Each round is CHOSEN and, where its reward is known, REWARDED before the next round.
    has_reward = ~np.isnan(rewards)
    round_of_step = np.repeat(np.arange(len(arms_chosen)), np.where(has_reward, 2, 1))
    step_kinds = np.where(np.diff(round_of_step, prepend=-1) > 0, CHOSEN, REWARDED)
    no_old_rewards = np.zeros(len(round_of_step))
    rewards = np.where(has_reward, rewards, 0.0)[round_of_step]
    steps = Steps(
        step_kinds,
        arms_chosen[round_of_step],
        no_old_rewards,
        rewards,
        no_old_rewards.astype(np.int64),
        contexts[round_of_step],
    )
    empty_state = init(n_learner_arms, bandit=bandit, n_features=contexts.shape[1])
    empty_state = fold(empty_state, steps, bandit)
    sum_names = ("n", "total", "square", "gram", "moment")
    return empty_state._replace(
        **{sum_name: weight * getattr(empty_state, sum_name) for sum_name in sum_names}
    )


def _played_rounds(
    table: Table, bandit: Bandit, policy: ArrayLike | None, rounds: int | None, seed: int
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Arms and rewards that a fixed policy would have logged, [N], and contexts [N, F]."""
    n_rounds = len(table.mask) if rounds is None else rounds
    _, cost_note = follow_costs(bandit, table)
    if cost_note:
        refuse(
            "the learner of a history must follow the table's costs", cost_note, "name that learner"
        )
    probabilities = table.mask / table.mask.sum(axis=1, keepdims=True) if policy is None else policy
    played_run = run(probabilities, table, rounds=n_rounds, replications=1, seed=seed)
    rows = np.asarray(played_run.case)[0]
    chosen_arms = played_run.arm[0].astype(np.int64)
    return chosen_arms, table.reward[rows, chosen_arms], table.features[rows]


def _logged_rounds(
    log: pd.DataFrame, stated_arms: Sequence[Any] | None
) -> tuple[int, IntArray, FloatArray]:
    """Number of arms of a log, its arms and its rewards, [N]; NaN where none came."""
    if not hasattr(log, "columns"):
        refuse("a history must be a Table or a log", type(log).__name__, "give a DataFrame")
    column_names = [str(column_name) for column_name in log.columns]
    arm_names = [
        column_name.removeprefix(PROPENSITY_COLUMN_PREFIX)
        for column_name in column_names
        if column_name.startswith(PROPENSITY_COLUMN_PREFIX)
    ]
    arm_names = arm_names if stated_arms is None else list(stated_arms)
    arm_column = "action" if "action" in column_names else "arm"
    if not arm_names or not {arm_column, "reward"} <= set(column_names):
        refuse(
            "a log must have the columns action or arm, and reward, and name its arms",
            ", ".join(column_names)[:200],
            "rename them, or give arms",
        )
    arm_keys = range(len(arm_names)) if arm_column == "action" else arm_names
    arm_places = {arm_key: arm_place for arm_place, arm_key in enumerate(arm_keys)}
    unknown_arms = [
        logged_arm
        for logged_arm in log[arm_column].unique().tolist()
        if logged_arm not in arm_places
    ]
    if unknown_arms:
        refuse(
            f"{arm_column} must be one of {', '.join(map(str, arm_places))[:200]}",
            repr(unknown_arms[0]),
            "name all arms",
        )
    arm_numbers = np.array(
        [arm_places[logged_arm] for logged_arm in log[arm_column].tolist()], dtype=np.int64
    )
    return len(arm_names), arm_numbers, log["reward"].to_numpy(dtype=np.float64, na_value=np.nan)


def logged_contexts(log: pd.DataFrame, features: ArrayLike | Sequence[str] | None) -> FloatArray:
    """Contexts [N, F] of a log's rounds, as an array or by the names of their columns.

    Raises:
      ValueError: no features, one that is no column or no number, or a row too few or too many.

    Example:
      >>> import pandas as pd
      >>> logged_contexts(pd.DataFrame({"x": [1.0, 2.0]}), ["x"]).tolist()
      [[1.0], [2.0]]
    """
    stated_features: Any = features
    if stated_features is None or (
        isinstance(stated_features, str | list | tuple) and not stated_features
    ):
        refuse("a linear learner needs a context", "no features", "name their columns")
    names_columns = isinstance(stated_features, list | tuple) and np.ndim(stated_features) == 1
    missing_columns = (
        [feature_name for feature_name in stated_features if feature_name not in log.columns]
        if names_columns
        else []
    )
    if missing_columns or isinstance(stated_features, str):
        refuse(
            f"features must be a list of columns among {', '.join(map(str, log.columns))[:300]}",
            (", ".join(map(str, missing_columns)) or stated_features)[:80],
            "write a list of these names",
        )
    if names_columns:
        return np.column_stack(
            [
                float_array(log[feature_name], f"the feature {feature_name}")
                for feature_name in stated_features
            ]
        )
    contexts = np.asarray(stated_features, np.float64)
    if contexts.ndim != 2 or len(contexts) != len(log):
        refuse(
            f"features must be [N, F] of {len(log)} rounds", contexts.shape, "give a row a round"
        )
    return contexts


def history_of(log: pd.DataFrame, arms: Sequence[Any], bandit: Bandit) -> Stats:
    """Statistics of a log as the learner itself would hold them at its end, [A].

    Args:
      log: a row a round, with arm and reward, and time where the rows are not in order. A bandit
        that discounts or has a window forgets the older of them.
      arms: as the column names them, in the order of the learner's.
      bandit: settings of the learner.

    Raises:
      ValueError: a column is missing, an arm is unknown, a reward is NaN or outside [0, 1], or the
        policy is linear, whose statistics need contexts.

    Example:
      >>> import pandas as pd
      >>> log = pd.DataFrame({"arm": ["graph", "hybrid", "graph"], "reward": [0.9, 0.4, 0.2]})
      >>> history_of(log, ["hybrid", "graph"], Bandit("thompson_beta"))
      Stats(n=array([1., 2.]), total=array([0., 1.]), square=array([0., 1.]))
    """
    check_bandit(bandit)
    if bandit.linear:
        refuse("a history has no contexts", f"the policy {bandit.algorithm}", "leave it out")
    ordered_log = log.sort_values("time", kind="stable") if "time" in log.columns else log
    _, arm_numbers, rewards = _logged_rounds(
        ordered_log.drop(columns="action", errors="ignore"), arms
    )
    outcomes = reward_outcome(check_reward(rewards), bandit)
    reward_ages = np.arange(len(arm_numbers))[::-1]
    reward_weights = (
        np.where(reward_ages < bandit.window, 1.0, 0.0)
        if bandit.window
        else bandit.discount**reward_ages
    )
    return Stats(
        *(
            np.bincount(arm_numbers, reward_weights * weighted_values, len(arms)).astype(np.float64)
            for weighted_values in (np.ones(len(arm_numbers)), outcomes, outcomes * outcomes)
        )
    )


def warm_start(history: Stats, *, discount: float, most: float) -> Stats:
    """History scaled by discount, with arms above `most` pseudo-observations cut to these; [A].

    Put it into `Bandit.history`. It does not fade: under a bandit that discounts, `most` should
    stay well below the 1 / (1 − discount) rounds that such a bandit remembers.

    Args:
      history: statistics of a log, such as `history_of` gives.
      discount: factor of all statistics, in [0, 1].
      most: pseudo-observations of an arm at most, at least 0.

    Raises:
      ValueError: discount outside [0, 1], or most negative or NaN.

    Source: rule S4.5.

    Example:
      >>> history = Stats(np.array([10.0, 100.0]), np.array([5.0, 80.0]), np.array([5.0, 80.0]))
      >>> warm_start(history, discount=0.5, most=20)
      Stats(n=array([ 5., 20.]), total=array([ 2.5, 16. ]), square=array([ 2.5, 16. ]))
    """
    if not 0.0 <= discount <= 1.0:
        refuse("discount must be in [0, 1]", f"{discount:g}", "it is the weight of an old reward")
    if not most >= 0.0:
        refuse("most must be at least 0", f"{most:g}", "it caps pseudo-observations")
    reward_counts = np.asarray(history.n, dtype=np.float64)
    pseudo_counts = np.minimum(discount * reward_counts, most)
    count_scale = pseudo_counts / np.where(reward_counts > 0.0, reward_counts, 1.0)
    return Stats(pseudo_counts, history.total * count_scale, history.square * count_scale)
