"""What history teaches (algebra): first states, pseudo-counts, a warm start (S4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.environments import Array, Table
from raglab.bandit.learner import (
    CHOSEN,
    REWARDED,
    Bandit,
    Ints,
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
from raglab.values import refuse

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "p_"  # of a log's columns of propensities, which name the arms in their order


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
        remedy = "1 counts history as new rounds"
        refuse("weight must be above 0, and 1 beside a window", weight, remedy)
    if isinstance(source, Table):
        n_arms = source.n_arms
        arm, reward, context = _played_rounds(source, bandit, policy, rounds, seed)
    else:
        n_arms, arm, reward = _logged_rounds(source, arms)
        context = logged_contexts(source, features) if bandit.linear else np.zeros((len(source), 0))
    context = context if bandit.linear else context[:, :0]
    # Each round is CHOSEN and, where its reward is known, REWARDED before the next round.
    is_known = ~np.isnan(reward)
    at = np.repeat(np.arange(len(arm)), np.where(is_known, 2, 1))
    kind = np.where(np.diff(at, prepend=-1) > 0, CHOSEN, REWARDED)
    none, reward = np.zeros(len(at)), np.where(is_known, reward, 0.0)[at]
    steps = Steps(kind, arm[at], none, reward, none.astype(np.int64), context[at])
    state = init(n_arms, bandit=bandit, n_features=context.shape[1])
    state = fold(state, steps, bandit)
    sums = ("n", "total", "square", "gram", "moment")
    return state._replace(**{name: weight * getattr(state, name) for name in sums})


def _played_rounds(
    table: Table, bandit: Bandit, policy: ArrayLike | None, rounds: int | None, seed: int
) -> tuple[Ints, Array, Array]:
    """Arms and rewards that a fixed policy would have logged, [N], and contexts [N, F]."""
    n_rounds = len(table.mask) if rounds is None else rounds
    _, note = follow_costs(bandit, table)
    if note:
        refuse("the learner of a history must follow the table's costs", note, "name that learner")
    probabilities = table.mask / table.mask.sum(axis=1, keepdims=True) if policy is None else policy
    done = run(probabilities, table, rounds=n_rounds, replications=1, seed=seed)
    case, arm = np.asarray(done.case)[0], done.arm[0].astype(np.int64)
    return arm, table.reward[case, arm], table.features[case]


def _logged_rounds(log: pd.DataFrame, arms: Sequence[Any] | None) -> tuple[int, Ints, Array]:
    """Number of arms of a log, its arms and its rewards, [N]; NaN where none came."""
    if not hasattr(log, "columns"):
        remedy = "give a DataFrame"
        refuse("a history must be a Table or a log", type(log).__name__, remedy)
    heads = [str(head) for head in log.columns]
    names = [head.removeprefix(PREFIX) for head in heads if head.startswith(PREFIX)]
    names = names if arms is None else list(arms)
    column = "action" if "action" in heads else "arm"
    if not names or not {column, "reward"} <= set(heads):
        rule = "a log must have the columns action or arm, and reward, and name its arms"
        refuse(rule, ", ".join(heads)[:200], "rename them, or give arms")
    keys = range(len(names)) if column == "action" else names
    places = {key: place for place, key in enumerate(keys)}
    unknown = [cell for cell in log[column].unique().tolist() if cell not in places]
    if unknown:
        rule = f"{column} must be one of {', '.join(map(str, places))[:200]}"
        refuse(rule, repr(unknown[0]), "name all arms")
    arm = np.array([places[cell] for cell in log[column].tolist()], dtype=np.int64)
    return len(names), arm, log["reward"].to_numpy(dtype=np.float64, na_value=np.nan)


def logged_contexts(log: pd.DataFrame, features: ArrayLike | Sequence[str] | None) -> Array:
    """Contexts [N, F] of a log's rounds, as an array or by the names of their columns.

    Raises:
      ValueError: no features, one that is no column or no number, or a row too few or too many.

    Example:
      >>> import pandas as pd
      >>> logged_contexts(pd.DataFrame({"x": [1.0, 2.0]}), ["x"]).tolist()
      [[1.0], [2.0]]
    """
    stated: Any = features
    if stated is None or (isinstance(stated, str | list | tuple) and not stated):
        refuse("a linear learner needs a context", "no features", "name their columns")
    is_named = isinstance(stated, list | tuple) and np.ndim(stated) == 1
    missing = [name for name in stated if name not in log.columns] if is_named else []
    if missing or isinstance(stated, str):
        rule = f"features must be a list of columns among {', '.join(map(str, log.columns))[:300]}"
        refuse(rule, (", ".join(map(str, missing)) or stated)[:80], "write a list of these names")
    if is_named:
        return np.column_stack([float_array(log[name], f"the feature {name}") for name in stated])
    context = np.asarray(stated, np.float64)
    if context.ndim != 2 or len(context) != len(log):
        rule = f"features must be [N, F] of {len(log)} rounds"
        refuse(rule, context.shape, "give a row a round")
    return context


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
    ordered = log.sort_values("time", kind="stable") if "time" in log.columns else log
    _, arm, reward = _logged_rounds(ordered.drop(columns="action", errors="ignore"), arms)
    outcome = reward_outcome(check_reward(reward), bandit)
    age = np.arange(len(arm))[::-1]
    weight = np.where(age < bandit.window, 1.0, 0.0) if bandit.window else bandit.discount**age
    return Stats(
        *(
            np.bincount(arm, weight * value, len(arms)).astype(np.float64)
            for value in (np.ones(len(arm)), outcome, outcome * outcome)
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
    n = np.asarray(history.n, dtype=np.float64)
    pseudo_n = np.minimum(discount * n, most)
    scale = pseudo_n / np.where(n > 0.0, n, 1.0)
    return Stats(pseudo_n, history.total * scale, history.square * scale)
