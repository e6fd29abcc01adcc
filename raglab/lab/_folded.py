"""What a log says to a bandit: one event after another folded into its state, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import bandit as bandits
from raglab.bandit import Bandit, State
from raglab.reward import RewardWeights, reward
from raglab.store.choices import Event

LINEAR = ("lin_ucb", "lin_thompson")
INTERCEPT = "intercept"
FEATURES = (
    "words",
    "entities",
    "graph",
    "table",
    "complexity",
    "documents",
    "path",
    "answer_cached",
    "strategy_cached",
)  # what is known of a question before retrieval (rule S4.2), as `traffic.context` measures it, and both caches
Features = Mapping[str, float | None]


class Setup(NamedTuple):
    """What a state hangs on beside the log: another setup folds the same log into another state.

    arms: their names in order; events of an arm that is not among them are passed over.
    """

    arms: tuple[str, ...]
    bandit: Bandit
    weights: RewardWeights

    @property
    def body(self) -> dict[str, Any]:
        """The setup as JSON holds it."""
        history = self.bandit.history
        stated = (
            None if history is None else {name: np.asarray(row).tolist() for name, row in history._asdict().items()}
        )
        return {
            "arms": list(self.arms),
            "bandit": self.bandit._asdict() | {"history": stated},
            "weights": self.weights._asdict(),
            "context": [INTERCEPT, *FEATURES, *(p95_name(arm) for arm in self.arms)],
        }

    @property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        text = json.dumps(self.body, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Folded(NamedTuple):
    """A learner's state and, for people, how many rewards of each arm have come, and their sum, [A]."""

    state: State
    n: NDArray[np.float64]
    total: NDArray[np.float64]


def p95_name(arm: str) -> str:
    """Name of the feature that is the arm's recent P95 latency over the budget."""
    return f"p95_{arm}"


def context_of(features: Features, setup: Setup) -> NDArray[np.float64] | None:
    """Context of a linear policy, [1 + F + A]; None for a policy that knows none.

    The intercept 1; each of `FEATURES`, near [0, 1]; for each arm its recent P95 over the budget. An arm that never
    answered has no P95 yet: it stands in the log as null and enters here as 0.

    Raises:
      ValueError: a feature of `FEATURES` is missing.
    """
    if setup.bandit.policy not in LINEAR:
        return None
    missing = [name for name in FEATURES if features.get(name) is None]
    if missing:
        msg = f"features of a linear policy must name {', '.join(FEATURES)}; {missing[0]} is missing: measure it."
        raise ValueError(msg)
    known = [float(features[name] or 0.0) for name in FEATURES]
    recent = [float(features.get(p95_name(arm)) or 0.0) for arm in setup.arms]
    return np.array([1.0, *known, *recent])


def fresh(setup: Setup) -> Folded:
    """State before the first event."""
    n_arms = len(setup.arms)
    width = 1 + len(FEATURES) + n_arms if setup.bandit.policy in LINEAR else 0
    none = np.zeros(n_arms)
    return Folded(bandits.init(n_arms, bandit=setup.bandit, n_features=width), none, none)


def folded(before: Folded, events: Iterable[Event], setup: Setup) -> Folded:
    """State after some events, in order."""
    for event in events:
        before = applied(before, event, setup)
    return before


def applied(before: Folded, event: Event, setup: Setup) -> Folded:
    """State after one event: a choice counts the round, a reward its arm, a thumb what the reward becomes by it."""
    if event.arm not in setup.arms:
        return before
    arm, known = setup.arms.index(event.arm), context_of(event.features, setup)
    if event.kind == "choice":
        return before._replace(state=counted(before.state, arm, setup.bandit, known))
    if event.components is None or (event.kind == "thumb" and not np.any(np.greater(setup.weights.thumbs, 0.0))):
        return before
    new = scored(event.components, event.thumb, setup.weights)
    about: dict[str, Any] = {"context": known, "age": event.age}
    if event.kind == "reward":
        state = bandits.update(before.state, arm, new, setup.bandit, **about)
        return Folded(state, _added(before.n, arm, 1.0), _added(before.total, arm, new))
    old = scored(event.components, event.before, setup.weights)
    state = bandits.revise(before.state, arm, old, new, setup.bandit, **about)
    return before._replace(state=state, total=_added(before.total, arm, new - old))


def counted(state: State, arm: int, bandit: Bandit, context: NDArray[np.float64] | None) -> State:
    """State after a round whose arm is known: `choose` where there is no other."""
    only = np.arange(state.pulls.shape[-1]) == arm
    return bandits.choose(state, bandit, np.random.default_rng(0), mask=only, context=context)[0]


def scored(components: Features, thumb: int | None, weights: RewardWeights) -> float:
    """Reward of raw components with a thumb, in [0, 1]."""
    row = {name: np.nan if value is None else value for name, value in components.items()}
    return float(reward(row | {"thumbs": np.nan if thumb is None else float(thumb)}, weights))


def packed(now: Folded, setup: Setup) -> dict[str, str]:
    """State and sums as a snapshot keeps them."""
    sums = json.dumps({"n": now.n.tolist(), "total": now.total.tolist()})
    return {"state": bandits.dumps(now.state, setup.bandit), "sums": sums}


def unpacked(row: Mapping[str, str]) -> Folded:
    """State and sums of a snapshot."""
    sums = json.loads(row["sums"])
    return Folded(bandits.loads(row["state"]).state, np.array(sums["n"]), np.array(sums["total"]))


def p95(ms: Sequence[float]) -> float:
    """P95 of milliseconds; NaN of none."""
    return float(np.percentile(ms, 95)) if len(ms) else float("nan")


def _added(sums: NDArray[np.float64], arm: int, value: float) -> NDArray[np.float64]:
    return sums + value * (np.arange(len(sums)) == arm)
