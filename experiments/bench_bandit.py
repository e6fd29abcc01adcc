"""How fast bandits are simulated: choices a second on one core, both engines, side by side with the peers.

A round is one choice of one replication, learned from at once: 4 arms, Thompson sampling from Beta(1, 1), UCB1, and
LinUCB with 8 features. Ours play 10,000 rounds of 200 replications; the peers fewer, which their rates do not hang on
much. Each figure is the best of several runs in processor time; the first one, which compiles, is left out.

    python experiments/bench_bandit.py            everything that is installed
    python experiments/bench_bandit.py --quick    the same path with few rounds, in seconds
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from raglab.bandit import Bandit, Bernoulli, Table
from raglab.bandit.simulation import run

MEANS = (0.7, 0.6, 0.5, 0.4)
FEATURES = 8
ASKED = {
    ("numpy", "thompson_beta"): 1.5e6,
    ("numpy", "ucb1"): 4e6,
    ("numpy", "lin_ucb"): 0.5e6,
    ("numba", "thompson_beta"): 9e6,
    ("numba", "ucb1"): 100e6,
    ("numba", "lin_ucb"): 2e6,
}
POLICIES = ("thompson_beta", "ucb1", "lin_ucb")


class Sizes(NamedTuple):
    """Rounds and replications of ours, rounds of a peer in Python, replications of the one in Rust, repeats."""

    rounds: int
    replications: int
    peer: int
    native: int
    repeats: int


FULL, QUICK = Sizes(10_000, 200, 2_000, 20, 5), Sizes(500, 200, 100, 2, 2)


class Row(NamedTuple):
    """One line of the table."""

    who: str
    policy: str
    rate: float  # choices a second
    asked: float | None


def best(play: Callable[[], None], choices: int, repeats: int) -> float:
    """Choices a second, the best of so many runs after one that is not timed."""
    play()
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        play()
        seconds.append(time.process_time() - start)
    return choices / min(seconds)


def world(policy: str) -> Bernoulli | Table:
    """Four arms with known means; for LinUCB 500 cases whose arms' rewards are linear in 8 features."""
    if policy != "lin_ucb":
        return Bernoulli(np.array(MEANS))
    rng = np.random.default_rng(0)
    features = rng.standard_normal((500, FEATURES))
    value = np.clip(0.5 + 0.15 * features @ rng.standard_normal((FEATURES, 4)), 0.0, 1.0)
    names = tuple(f"x{number}" for number in range(FEATURES))
    return Table(("a", "b", "c", "d"), value, value, np.ones((500, 4), np.bool_), features, names, value * np.nan)


def ours(engine: str, policy: str, sizes: Sizes) -> float:
    """Choices a second of `run`, with the regret of every round."""

    def play() -> None:
        run(Bandit(policy), world(policy), rounds=sizes.rounds, replications=sizes.replications, seed=0, engine=engine)

    return best(play, sizes.rounds * sizes.replications, sizes.repeats)


def river(policy: str, rounds: int) -> None:
    """One replication with river."""
    from river import bandit, proba

    learners = {
        "thompson_beta": lambda: bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=0),
        "ucb1": lambda: bandit.UCB(delta=1, seed=0),
        "lin_ucb": lambda: bandit.LinUCBDisjoint(seed=0),
    }
    learner, arms, chance = learners[policy](), list(range(4)), random.Random(0)  # noqa: S311 - no secret
    met = world(policy)
    if isinstance(met, Table):
        contexts = [dict(zip(met.feature_names, x, strict=True)) for x in met.features.tolist()]
        for t in range(rounds):
            x = contexts[t % 500]
            arm = learner.pull(arms, context=x)
            learner.update(arm, x, float(met.reward[t % 500, arm]))
        return
    for _ in range(rounds):
        arm = learner.pull(arms)
        learner.update(arm, chance.random() < MEANS[arm])


def mabwiser(policy: str, rounds: int) -> None:
    """One replication with MABWiser, which starts from one reward an arm."""
    from mabwiser.mab import MAB, LearningPolicy

    kinds = {
        "thompson_beta": LearningPolicy.ThompsonSampling(),
        "ucb1": LearningPolicy.UCB1(alpha=1),
        "lin_ucb": LearningPolicy.LinUCB(alpha=1, l2_lambda=2),
    }
    learner, chance, met = MAB(list(range(4)), kinds[policy], seed=0), np.random.default_rng(0), world(policy)
    if isinstance(met, Table):
        learner.fit([0, 1, 2, 3], met.reward[0].tolist(), met.features[[0, 0, 0, 0]])
        for t in range(rounds):
            x = met.features[[t % 500]]
            arm = learner.predict(x)
            learner.partial_fit([arm], [met.reward[t % 500, arm]], x)
        return
    learner.fit([0, 1, 2, 3], [1, 0, 1, 0])
    for _ in range(rounds):
        arm = learner.predict()
        learner.partial_fit([arm], [int(chance.random() < MEANS[arm])])


def pymab(policy: str, sizes: Sizes, backend: str) -> float:
    """Choices a second of PyMAB's own experiment loop, in Rust or in Python."""
    from pymab import BanditEnvironment, BernoulliReward, Experiment, ExperimentConfig
    from pymab.environments import GaussianContextProvider, LinearContextualEnvironment
    from pymab.policies import BernoulliThompsonSamplingPolicy, LinUCBPolicy, UCBPolicy

    learners = {
        "thompson_beta": lambda: BernoulliThompsonSamplingPolicy(n_arms=4),
        "ucb1": lambda: UCBPolicy(n_arms=4),
        "lin_ucb": lambda: LinUCBPolicy(n_arms=4, n_features=FEATURES),
    }
    if policy == "lin_ucb":
        theta = np.random.default_rng(0).standard_normal((4, FEATURES))
        met: Any = LinearContextualEnvironment(theta, GaussianContextProvider(4, FEATURES))
    else:
        met = BanditEnvironment(np.array(MEANS), BernoulliReward())
    rounds, replications = (sizes.peer, sizes.native) if backend == "rust" else (sizes.peer, 1)

    def play() -> None:
        config = ExperimentConfig(horizon=rounds, n_replicates=replications, seed=0, backend=backend)  # type: ignore[arg-type] # one of two
        Experiment(environment=met, policies={policy: learners[policy]()}, config=config).run()

    return best(play, rounds * replications, 1)


def peers(sizes: Sizes) -> dict[str, Callable[[str], float]]:
    """Rates of the peers, by name."""
    return {
        "river": lambda policy: best(partial(river, policy, sizes.peer), sizes.peer, 1),
        "MABWiser": lambda policy: best(partial(mabwiser, policy, sizes.peer // 4), sizes.peer // 4, 1),
        "PyMAB (Rust)": lambda policy: pymab(policy, sizes, "rust"),
        "PyMAB (Python)": lambda policy: pymab(policy, sizes, "python"),
    }


def measured(sizes: Sizes) -> list[Row]:
    """A row of each engine or peer and policy; of what is not installed one line says so."""
    rows = []
    for engine in ("numpy", "numba"):
        try:
            rows += [
                Row(f"raglab, {engine}", each, ours(engine, each, sizes), ASKED[engine, each]) for each in POLICIES
            ]
        except ImportError as missing:
            print(f"raglab, {engine}: left out, {missing}")
    for peer, rate in peers(sizes).items():
        try:
            rows += [Row(peer, policy, rate(policy), None) for policy in POLICIES]
        except ImportError as missing:
            print(f"{peer}: left out, {missing}; install raglab-toolkit[bench]")
    return rows


def main() -> int:
    """Print the table; 1 where an asked figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds; the figures mean nothing")
    sizes = QUICK if parser.parse_args().quick else FULL
    with threadpool_limits(1):
        rows = measured(sizes)
    print(f"{'who':<16} {'policy':<14} {'M choices/s':>12} {'asked':>6}")
    for row in rows:
        verdict = "" if row.asked is None else "met" if row.rate >= row.asked else "MISSED"
        asked = "" if row.asked is None else f"{row.asked / 1e6:.1f}"
        print(f"{row.who:<16} {row.policy:<14} {row.rate / 1e6:>12.4f} {asked:>6} {verdict}".rstrip())
    return int(any(row.asked is not None and row.rate < row.asked for row in rows))


if __name__ == "__main__":
    sys.exit(main())
