"""How fast bandits are simulated, side by side with the peers, and logs are evaluated off-policy.

See `bench.py`.

A round is one choice of one replication, learned from at once: 4 arms, Thompson sampling from
Beta(1, 1), UCB1, and LinUCB with 8 features. The peers play fewer rounds, which their rates do not
hang on much. A log has a million rounds.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from bench import BESIDE, Options, Row, Rows, module, seconds

from raglab.bandit import Bandit, Bernoulli, Table
from raglab.off_policy import estimate

MEANS = (0.7, 0.6, 0.5, 0.4)
FEATURES = 8
POLICIES = ("thompson_beta", "ucb1", "lin_ucb")
PEER_ROUNDS, NATIVE = 1_000, 20  # rounds of a peer; replications of the one in Rust


def world(policy: str) -> Bernoulli | Table:
    """Four arms with known means.

    For LinUCB 500 cases whose arms' rewards are linear in 8 features.
    """
    if policy != "lin_ucb":
        return Bernoulli(np.array(MEANS))
    rng = np.random.default_rng(0)
    features = rng.standard_normal((500, FEATURES))
    value = np.clip(0.5 + 0.15 * features @ rng.standard_normal((FEATURES, 4)), 0.0, 1.0)
    names = tuple(f"x{number}" for number in range(FEATURES))
    return Table(
        ("a", "b", "c", "d"),
        value,
        value,
        np.ones((500, 4), np.bool_),
        features,
        names,
        value * np.nan,
    )


def simulated(options: Options) -> Rows:
    """Rounds a second of `run` with the regret of every round, by engine and policy.

    How many times those of peers.
    """
    run = module("simulation", "bandit").run
    rounds, replications = (100, 200) if options.quick else (2_500, 200)
    rates = {}
    for engine, name, repeats in (("numpy", "NumPy", 3), ("numba", "compiled", 9)):
        for policy in POLICIES:
            bandit, met = Bandit(algorithm=policy), world(policy)
            play = partial(
                run, bandit, met, rounds=rounds, replications=replications, seed=0, engine=engine
            )
            rates[policy] = rounds * replications / seconds(play, repeats)
            yield Row(f"{policy}, {name}", rates[policy] / 1e6, "M rounds/s")
    if options.peers:
        yield from beside_peers(rates, 50 if options.quick else PEER_ROUNDS)


def beside_peers(rates: dict[str, float], rounds: int) -> Rows:
    """How many times the rounds a second of each peer that is installed."""
    peers: dict[str, tuple[Callable[[str, int], None], int]] = {
        "river": (river, rounds),
        "MABWiser": (mabwiser, rounds // 4),
        "PyMAB (Rust)": (partial(pymab, backend="rust"), rounds * NATIVE),
        "PyMAB (Python)": (partial(pymab, backend="python"), rounds),
    }
    for name, (play, choices) in peers.items():
        for policy in POLICIES:
            size = choices // NATIVE if name.endswith("(Rust)") else choices
            try:
                taken = seconds(partial(play, policy, size), 1)
            except ImportError:
                break
            yield Row(
                f"{policy}, times the rate of {name}", rates[policy] * taken / choices, BESIDE
            )


def river(policy: str, rounds: int) -> None:
    """One replication with river."""
    from river import bandit, proba

    learners = {
        "thompson_beta": lambda: bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=0),
        "ucb1": lambda: bandit.UCB(delta=1, seed=0),
        "lin_ucb": lambda: bandit.LinUCBDisjoint(seed=0),
    }
    # no secret
    learner, arms, chance = learners[policy](), list(range(4)), random.Random(0)  # noqa: S311
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
    learner, chance, met = (
        MAB(list(range(4)), kinds[policy], seed=0),
        np.random.default_rng(0),
        world(policy),
    )
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


def pymab(policy: str, rounds: int, backend: str) -> None:
    """PyMAB's own experiment loop, in Rust over some replications or in Python over one."""
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
    replications = NATIVE if backend == "rust" else 1
    # one of two
    config = ExperimentConfig(horizon=rounds, n_replicates=replications, seed=0, backend=backend)
    Experiment(environment=met, policies={policy: learners[policy]()}, config=config).run()


def million(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Log of so many rounds with a reward model, and a target that changes from round to round."""
    rng, arms, means = np.random.default_rng(0), 4, np.array([0.72, 0.78, 0.83, 0.88])
    target, logging = (
        rng.dirichlet(np.ones(arms), n),
        0.1 / arms + 0.9 * rng.dirichlet(np.ones(arms), n),
    )
    action = (rng.random(n)[:, None] > logging.cumsum(axis=1)[:, :-1]).sum(axis=1)
    model = {f"q_{arm}": means[arm] + 0.1 * rng.standard_normal(n) for arm in range(arms)}
    reward = (rng.random(n) < means[action]).astype(float)
    columns = {
        "action": action,
        "reward": reward,
        "propensity": logging[np.arange(n), action],
        **model,
    }
    return pd.DataFrame(columns), target


def evaluated(options: Options) -> Rows:
    """Off-policy estimates of a long log: delta method and bootstrap.

    Memory beside them.
    """
    n = 2_000 if options.quick else 1_000_000
    log, target = million(n)
    pair = ("snips", "dr")
    bootstrap = partial(estimate, log, target, pair, interval="bootstrap", n_boot=200)
    runs: dict[str, tuple[Callable[[], object], int]] = {
        "SNIPS + DR, delta method": (lambda: estimate(log, target, pair), 7),
        "all seven estimators, delta method": (lambda: estimate(log, target), 3),
        "SNIPS + DR, 200 bootstrap draws": (bootstrap, 1),
    }
    for name, (run, repeats) in runs.items():
        yield Row(name, 1e3 * seconds(run, repeats), "ms")
    for name in ("SNIPS + DR, delta method", "SNIPS + DR, 200 bootstrap draws"):
        tracemalloc.start()
        runs[name][0]()
        yield Row(f"peak over the inputs, {name}", tracemalloc.get_traced_memory()[1] / 1e6, "MB")
        tracemalloc.stop()


BENCHES = (simulated, evaluated)
