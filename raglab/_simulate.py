"""Simulation of a block of replications, on the general path or a fast one, and `simulate` for Bernoulli arms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab import _loops
from raglab._choosing import chosen, init
from raglab._counting import learned
from raglab._feed import POLICY, Accounts, Arms, Array, Feed, accounts, blocks, feed, stream
from raglab._learner import Bandit, check_whole, refuse
from raglab._worlds import Bernoulli, Table, check_world

ENGINES = ("auto", "numpy", "numba")
SEED = "the same seed gives the same bits"
PAYS = {  # policies with a compiled twin, and the choices from which it makes up for loading it
    "epsilon_greedy": 8e6,
    "ucb1": 8e6,
    "thompson_beta": 3e6,
    "thompson_nig": 2e6,
    "lin_ucb": 1e6,
    "lin_thompson": 1e6,
}


class Simulation(NamedTuple):
    """Cumulative expected regret and pulls of each replication."""

    regret: Array  # [R, T]
    pulls: NDArray[np.int64]  # [R, A]


def step_by_step(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Arms:
    """Arms [T, R] of any learner, by `choose` and `update`."""
    n_features = met.features.shape[1] if bandit.linear else 0
    state = init(met.n_arms, bandit=bandit, n_features=n_features, batch=(met.size,))
    arms = np.empty((met.rounds, met.size), np.int8)
    order, first = _arrivals(met)
    none = np.zeros((met.size, 0))
    for t in range(met.rounds):
        context = met.features[met.row(t)] if bandit.linear else none
        state, choice = chosen(state, bandit, rng, met.open(t), context)
        arms[t] = choice.arm
        when, who = np.divmod(order[first[t] : first[t + 1]], met.size)
        arm = arms[when, who].astype(np.int64)
        reward = met.rewards(when, who, arm)
        there = ~np.isnan(reward)
        when, who, arm, reward = when[there], who[there], arm[there], reward[there]
        seen = met.features[met.case[when, who]] if bandit.linear and met.case is not None else none[who]
        state = learned(state, who, arm, reward, t - when, seen, bandit)
    return arms


def _arrivals(met: Feed) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choices (round * R + replication) in the order in which their rewards arrive, and where each round's begin."""
    due = (met.delay + np.arange(met.rounds)[:, None] + np.zeros((1, met.size), np.int64)).ravel()
    there = np.arange(due.size) if met.lost is None else np.flatnonzero(~met.lost.ravel())
    order = there[np.argsort(due[there], kind="stable")]
    return order, np.searchsorted(due[order], np.arange(met.rounds + 1))


def kernel(bandit: Bandit, work: float, engine: str) -> Any:  # noqa: ANN401 - a module
    """The compiled twins; none where NumPy is to do the work, so many choices.

    Raises:
      ValueError: numba is asked for, and a policy has no compiled twin.
      ImportError: numba is asked for, and is not installed.
    """
    if engine == "numpy" or (engine == "auto" and work < PAYS.get(bandit.policy, np.inf)):
        return None
    if bandit.policy not in PAYS:
        refuse(f"engine numba plays {', '.join(PAYS)}", bandit.policy, "use engine='auto'")
    try:
        from raglab import _bandit_kernel
    except ImportError:
        if engine == "numba":
            msg = "engine numba needs the package numba; install raglab[fast], or use engine='numpy'."
            raise ImportError(msg) from None
        return None
    return _bandit_kernel


def check_simulation(bandit: Bandit, world: Bernoulli | Table, rounds: int, replications: int, engine: str) -> None:
    """Refuse what cannot be simulated.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    check_whole("rounds", rounds, 1, "simulate at least one")
    check_whole("replications", replications, 1, "simulate at least one")
    if engine not in ENGINES:
        refuse("engine must be auto, numpy or numba", repr(engine), "choose one of them")
    if world.n_arms > np.iinfo(np.int8).max:
        refuse("a world has at most 127 arms", world.n_arms, "leave some out")
    n_features = len(world.feature_names) if isinstance(world, Table) else 0
    init(world.n_arms, bandit=bandit, n_features=n_features)


def block_of(
    bandit: Bandit,
    world: Bernoulli | Table,
    rounds: int,
    size: int,
    seed: int,
    number: int,
    *,
    engine: str = "auto",
    work: float = 0.0,
    delay: tuple[int, int] = (0, 0),
    missing: float = 0.0,
) -> Accounts:
    """One block of replications; the same bits wherever it runs.

    Args:
      work: choices that the whole simulation makes.
    """
    met = feed(world, rounds, size, seed, number, delay=delay, missing=missing)
    rng = stream(seed, number, POLICY)
    plain = _loops.is_plain(bandit, met)
    if engine == "numba" and not plain:
        came = "a learner that forgets or has a floor, or rewards that are late or missing"
        refuse("engine numba plays plain learners whose rewards are there at once", came, "use engine='auto'")
    twin = kernel(bandit, work, engine) if plain else None
    if twin is not None:
        done: Accounts = twin.accounts(met, twin.played(met, bandit, rng))
        return done
    return accounts(met, _loops.played(met, bandit, rng) if plain else step_by_step(met, bandit, rng))


def simulate(
    policy: str, means: ArrayLike, *, rounds: int, replications: int, seed: int, mask: ArrayLike | None = None
) -> Simulation:
    """Cumulative expected regret of a policy on Bernoulli arms: the summed gaps of the arms it pulled.

    Args:
      policy: one of `POLICIES` that needs no context; its settings are those of `Bandit`.
      means: [A], or [T, A] where they drift. mask: arms available, [A] or [T, A]; the gap is that to the best of them.

    Returns:
      Simulation: regret [R, T] and pulls [R, A].

    Raises:
      ValueError: means outside [0, 1], a round without an arm, an unknown policy, or rounds below 1.

    Example:
      >>> simulate("ucb1", [0.5, 0.6], rounds=3, replications=2, seed=0).regret.shape
      (2, 3)
    """
    bandit = Bandit(policy)
    check_whole("rounds", rounds, 1, "simulate at least one")
    check_whole("seed", seed, 0, SEED)
    world = check_world(Bernoulli(np.asarray(means), None if mask is None else np.asarray(mask)), rounds)
    check_simulation(bandit, world, rounds, replications, "auto")
    work = float(rounds * replications)
    sizes = enumerate(blocks(replications))
    done = [block_of(bandit, world, rounds, size, seed, number, work=work) for number, size in sizes]
    return Simulation(np.concatenate([each.regret for each in done]), np.concatenate([each.pulls for each in done]))
