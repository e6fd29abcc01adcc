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

ARM_COLUMN_PREFIX = "p_"  # of columns that hold the logged probability of every arm
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
    arm_names = (
        list(arms)
        if arms is not None
        else [
            str(column)[2:] for column in log.columns if str(column).startswith(ARM_COLUMN_PREFIX)
        ]
    )
    if not arm_names:
        refuse(
            "a learner as target needs the arms",
            "a log without columns p_<arm>",
            "name them (arms=…)",
        )
    check_bandit(bandit, len(arm_names))
    missing_columns = [column for column in ("action", "reward") if column not in log.columns]
    if missing_columns or not len(log):
        missing_text = f"{missing_columns} missing" if missing_columns else "no rounds"
        refuse(
            "a learner as target learns from the columns action and reward",
            missing_text,
            "add them",
        )
    logged_arms = action_positions(log["action"], len(arm_names), arm_names)
    round_rewards = float_array(log["reward"], "reward")
    round_contexts = logged_contexts(log, features) if bandit.linear else np.zeros((len(log), 0))
    is_bad = np.asarray(~np.isfinite(round_contexts).all(axis=1))
    refuse_rows(is_bad, round_contexts, "features must be finite", "fill or drop it")
    has_reward = ~np.isnan(round_rewards)
    check_reward(round_rewards[has_reward])
    is_available = np.broadcast_to(
        True if mask is None else np.asarray(mask), (len(log), len(arm_names))
    )
    # State by state: before round t the learner knows the rounds before it, and the rules of
    # forgetting apply.
    single_index = np.zeros(1, np.int64)
    state = init(len(arm_names), bandit=bandit, n_features=round_contexts.shape[1])
    probabilities = np.empty((len(log), len(arm_names)))
    waiting_states = []
    for round_index in range(len(log)):
        waiting_states.append(state)
        state = record_pull(state, logged_arms[round_index], bandit)
        if has_reward[round_index]:
            round_slice = slice(round_index, round_index + 1)
            rewards = Rewards(
                single_index,
                logged_arms[round_slice],
                round_rewards[round_slice],
                single_index,
                round_contexts[round_slice],
            )
            state = restore_batch(record_rewards(state, rewards, bandit), ())
        # Many states at once: Thompson sampling integrates equal posteriors once, and others side
        # by side.
        if len(waiting_states) == ROUNDS_AT_ONCE or round_index == len(log) - 1:
            round_rows = slice(round_index + 1 - len(waiting_states), round_index + 1)
            states = State._make(
                np.stack(state_parts) for state_parts in zip(*waiting_states, strict=True)
            )
            probabilities[round_rows] = propensities(
                states, bandit, mask=is_available[round_rows], context=round_contexts[round_rows]
            )
            waiting_states = []
    # Where actions are names, a frame names the arms; else they are positions, as in other targets.
    if np.issubdtype(log["action"].to_numpy().dtype, np.number):
        return probabilities
    import pandas as pd

    return pd.DataFrame(probabilities, columns=list(arm_names))
