"""Target policies (algebra): arrays, functions, learners as arm probabilities per round (S4.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.learned_states import logged_contexts
from raglab.bandit.learner import (
    Bandit,
    Rewards,
    State,
    check_bandit,
    check_reward,
    init,
    record_pull,
    record_rewards,
    restore_batch,
)
from raglab.bandit.propensity import propensities
from raglab.off_policy.logs import action_positions, refuse_rows
from raglab.values import refuse

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "p_"  # of columns that hold the logged probability of every arm
ROUNDS_AT_ONCE = 1024  # whose states are held side by side


def target_probabilities(
    target: Any,  # noqa: ANN401 - array, frame, function or learner
    log: pd.DataFrame,
    arms: Sequence[Any] | None,
    mask: ArrayLike | None,
    features: Sequence[str],
) -> Any:  # noqa: ANN401 - array or frame
    """Target as probabilities.

    An array or frame as it is, a function's value on the log, a learner's propensities.

    Raises:
      ValueError: a learner needs what the log does not have: arms, features, rewards in [0, 1].
    """
    if not hasattr(log, "columns"):
        refuse("log must be a frame, a row a round", type(log).__name__, "make a pandas.DataFrame")
    if isinstance(target, Bandit):
        return learner_probabilities(target, log, arms, mask, features)
    if isinstance(target, type | str):
        refuse(
            "target must be probabilities, a function of the log, or a Bandit",
            f"the class {target.__name__}" if isinstance(target, type) else repr(target),
            "write Bandit(...)",
        )
    if not callable(target):
        return target
    try:
        return target(log.copy(deep=False))  # a column that it writes is not the log's
    except Exception as error:
        error.add_note(
            "target is called once with the whole log and must return [T, A] or [A]; for a rule "
            "of one row write lambda log: [rule(row) for row in log.to_dict('records')]."
        )
        raise


def learner_probabilities(
    bandit: Bandit,
    log: pd.DataFrame,
    arms: Sequence[Any] | None,
    mask: ArrayLike | None,
    features: Sequence[str],
) -> Any:  # noqa: ANN401 - array, or frame where the actions are names
    """A learner's propensities each round, after learning from all earlier log rounds, [T, A].

    It learns from what was logged, not from arms of its own choice: round t's probabilities depend
    on rounds before t alone, so that weights stay right, and the target is one that moves from
    round to round. A fresh learner starts.

    Args:
      bandit: its settings.
      log: columns action, reward in [0, 1] (a missing one teaches nothing), and the features.
      arms: names, [A]; those of the columns p_<arm> of the log where None.
      mask: arms that were available, [A] or [T, A].
      features: columns that are the context of a linear learner, in order.

    Raises:
      ValueError: arms are not named anywhere, a feature is missing, or a setting or reward breaks
        its rule.

    Example:
      >>> import pandas as pd
      >>> log = pd.DataFrame({"action": [0, 1, 1], "reward": [1.0, 0.0, 1.0]})
      >>> learner_probabilities(
      ...     Bandit("epsilon_greedy", epsilon=0.5), log, [0, 1], None, ()
      ... ).tolist()
      [[0.75, 0.25], [0.25, 0.75], [0.75, 0.25]]
    """
    names = (
        list(arms)
        if arms is not None
        else [str(name)[2:] for name in log.columns if str(name).startswith(PREFIX)]
    )
    if not names:
        rule = "a learner as target needs the arms"
        refuse(rule, "a log without columns p_<arm>", "name them (arms=…)")
    check_bandit(bandit, len(names))
    missing = [name for name in ("action", "reward") if name not in log.columns]
    if missing or not len(log):
        value = f"{missing} missing" if missing else "no rounds"
        refuse("a learner as target learns from the columns action and reward", value, "add them")
    arm = action_positions(log["action"], len(names), names)
    reward = float_array(log["reward"], "reward")
    context = logged_contexts(log, features) if bandit.linear else np.zeros((len(log), 0))
    bad = np.asarray(~np.isfinite(context).all(axis=1))
    refuse_rows(bad, context, "features must be finite", "fill or drop it")
    known = ~np.isnan(reward)
    check_reward(reward[known])
    open_ = np.broadcast_to(True if mask is None else np.asarray(mask), (len(log), len(names)))
    # State by state: before round t the learner knows the rounds before it, and the rules of
    # forgetting apply.
    first = np.zeros(1, np.int64)
    state = init(len(names), bandit=bandit, n_features=context.shape[1])
    out, waiting = np.empty((len(log), len(names))), []
    for t in range(len(log)):
        waiting.append(state)
        state = record_pull(state, arm[t], bandit)
        if known[t]:
            at = slice(t, t + 1)
            rewards = Rewards(first, arm[at], reward[at], first, context[at])
            state = restore_batch(record_rewards(state, rewards, bandit), ())
        # Many states at once: Thompson sampling integrates equal posteriors once, and others side
        # by side.
        if len(waiting) == ROUNDS_AT_ONCE or t == len(log) - 1:
            rows = slice(t + 1 - len(waiting), t + 1)
            states = State._make(np.stack(parts) for parts in zip(*waiting, strict=True))
            out[rows] = propensities(states, bandit, mask=open_[rows], context=context[rows])
            waiting = []
    # Where actions are names, a frame names the arms; else they are positions, as in other targets.
    if np.issubdtype(log["action"].to_numpy().dtype, np.number):
        return out
    import pandas as pd

    return pd.DataFrame(out, columns=list(names))
