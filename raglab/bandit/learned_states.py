"""First states from history (algebra): what a log or fixed policy on a table teaches (S4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.bandit.environments import Array, Table, check_world
from raglab.bandit.learner import CHOSEN, REWARDED, Bandit, State, Steps, check_count, fold, init
from raglab.bandit.simulation import follow_costs, run
from raglab.values import refuse

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "p_"  # of a log's columns of propensities, which name the arms in their order


class History(NamedTuple):
    """Rounds that were played, [N]; reward NaN where none came."""

    n_arms: int
    arm: NDArray[np.int64]
    reward: Array
    context: Array  # [N, F]; F is 0 without features


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
        refuse("a history is learned by a Bandit", repr(bandit), f"write Bandit({bandit!r})")
    if (
        isinstance(weight, bool | str)
        or not 0.0 < weight < np.inf
        or (bandit.window and weight != 1.0)
    ):
        refuse(
            "weight must be above 0, and 1 beside a window",
            weight,
            "1 counts history as new rounds",
        )
    if isinstance(source, Table):
        past = _played_history(source, bandit, policy, rounds, seed)
    else:
        past = _logged_history(source, bandit, arms, features)
    state = init(past.n_arms, bandit=bandit, n_features=past.context.shape[1])
    state = fold(state, _steps(past, past.context.shape[1] if bandit.linear else 0), bandit)
    if weight == 1.0:
        return state
    return state._replace(
        **{
            name: weight * getattr(state, name)
            for name in ("n", "total", "square", "gram", "moment")
        }
    )


def _steps(past: History, width: int) -> Steps:
    """Each round as CHOSEN and, where its reward is known, REWARDED before the next round.

    Args:
      width: number of features that the learner reads.
    """
    n_events = np.where(np.isnan(past.reward), 1, 2)
    at = np.repeat(np.arange(len(past.arm)), n_events)
    is_chosen = np.diff(at, prepend=-1) > 0
    reward = np.where(np.isnan(past.reward), 0.0, past.reward)[at]
    kind, none = np.where(is_chosen, CHOSEN, REWARDED), np.zeros(len(at))
    return Steps(kind, past.arm[at], none, reward, none.astype(np.int64), past.context[at, :width])


def _played_history(
    table: Table, bandit: Bandit, policy: ArrayLike | None, rounds: int | None, seed: int
) -> History:
    """What a fixed policy would have logged."""
    n_rounds = (
        len(table.mask) if rounds is None else check_count("rounds", rounds, 1, "play at least one")
    )
    world = check_world(table, n_rounds)
    _, note = follow_costs(bandit, world)
    if note:
        refuse("the learner of a history must follow the table's costs", note, "name that learner")
    # for the type checker: check_world gives a table back for a table
    if not isinstance(world, Table):
        raise TypeError
    probabilities = world.mask / world.mask.sum(axis=1, keepdims=True) if policy is None else policy
    done = run(probabilities, world, rounds=n_rounds, replications=1, seed=seed)
    case, arm = np.asarray(done.case)[0], done.arm[0].astype(np.int64)
    return History(world.n_arms, arm, world.reward[case, arm], world.features[case])


def _logged_history(
    log: pd.DataFrame,
    bandit: Bandit,
    arms: Sequence[str] | None,
    features: ArrayLike | Sequence[str] | None,
) -> History:
    """Rounds of a log."""
    import pandas as pd

    if not isinstance(log, pd.DataFrame):
        refuse(
            "a history must be a Table or a log",
            type(log).__name__,
            "give a DataFrame",
        )
    names = [str(head).removeprefix(PREFIX) for head in log.columns if str(head).startswith(PREFIX)]
    names = names if arms is None else list(arms)
    column = "action" if "action" in log.columns else "arm"
    if not names or column not in log.columns or "reward" not in log.columns:
        rule = "a log must have the columns action or arm, and reward, and name its arms"
        refuse(rule, ", ".join(map(str, log.columns))[:200], "rename them, or give arms")
    cells = log[column].tolist()
    keys = range(len(names)) if column == "action" else names
    places = {key: place for place, key in enumerate(keys)}
    unknown = [cell for cell in cells if cell not in places]
    if unknown:
        refuse(
            f"{column} must be one of {', '.join(map(str, places))[:200]}",
            repr(unknown[0]),
            "name all arms",
        )
    arm = np.array([places[cell] for cell in cells], dtype=np.int64)
    reward = log["reward"].to_numpy(dtype=np.float64, na_value=np.nan)
    context = np.zeros((len(log), 0))
    if bandit.linear:
        if features is None:
            refuse(
                f"{bandit.algorithm} learns from a context",
                "no features",
                "name their columns, or give them [N, F]",
            )
        stated = features if isinstance(features, list | tuple) else ()
        strings = [name for name in stated if isinstance(name, str)]
        columns = bool(stated) and len(strings) == len(stated)
        missing = [name for name in strings if name not in log.columns] if columns else []
        if missing or isinstance(features, str):
            rule = (
                f"features must be a list of columns among {', '.join(map(str, log.columns))[:300]}"
            )
            refuse(
                rule,
                features if isinstance(features, str) else ", ".join(missing)[:80],
                "name each in a list",
            )
        source = log[list(features)] if columns else features  # type: ignore[arg-type]
        context = np.asarray(source, dtype=np.float64)
        if context.ndim != 2 or len(context) != len(log):
            refuse(
                f"features must be [N, F] of {len(log)} rounds", context.shape, "give a row a round"
            )
    return History(len(names), arm, reward, context)
