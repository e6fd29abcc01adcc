"""Learners through time: `run` plays a policy in a world, in fixed blocks of replications."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab._feed import POLICY, Accounts, Arms, Array, accounts, blocks, check_delay, feed, stream
from raglab._learner import Bandit, check_whole, refuse
from raglab._simulate import SEED, block_of, check_simulation
from raglab._worlds import Table, World, check_world


class Run(NamedTuple):
    """What a policy came to in a world, replication by replication."""

    regret: Array  # [R, T] cumulative, against the best available arm
    value: Array  # [R, T] cumulative: the mean of the arm, or the value of the case
    pulls: NDArray[np.int64]  # [R, A]
    arm: Arms  # [R, T]
    case: NDArray[np.int32] | None  # [R, T] which case of a table


def run(
    policy: Bandit | ArrayLike,
    world: World,
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    delay: int | tuple[int, int] = 0,
    missing: float = 0.0,
    engine: str = "auto",
    n_jobs: int = 1,
) -> Run:
    """Play a policy in a world: cases in random order with replacement, or arms with known means.

    What the world does hangs on the seed and the block, not on the policy: two policies under one seed meet the
    same cases, the same chance and the same delays, so that their differences may be taken pair by pair.

    Args:
      policy: a learner, or probabilities that stay as they are: [A], or a row a case [Q, A] (a round where means
        drift).
      delay: rounds until a reward is there, or the least and the greatest of them, drawn uniformly.
      missing: probability that a reward never arrives.
      engine: `numpy`, `numba` (the compiled twin, where there is one), or `auto`: numba where it pays.
      n_jobs: processes, as joblib counts them; the same bits for any number.

    Raises:
      ValueError: a world, a policy or sizes that break a rule; probability on an arm that is not available.

    Source: rule S4.7.

    Example:
      >>> from raglab._worlds import Bernoulli
      >>> world = Bernoulli(np.array([0.5, 0.6]))
      >>> run(Bandit("ucb1"), world, rounds=4, replications=2).arm[:, :2]
      array([[0, 1],
             [0, 1]], dtype=int8)
    """
    check_whole("rounds", rounds, 1, "simulate at least one")
    check_whole("seed", seed, 0, SEED)
    if isinstance(policy, str):
        refuse("a policy must be a Bandit or probabilities", repr(policy), f"write Bandit({policy!r})")
    met = check_world(world, rounds)
    late = check_delay(delay, missing)
    learner = policy if isinstance(policy, Bandit) else Bandit("ucb1")
    check_simulation(learner, met, rounds, replications, engine)
    fixed = None if isinstance(policy, Bandit) else _check_probabilities(policy, met, rounds)

    def one(number: int, size: int) -> Accounts:
        if fixed is not None:
            return _stationary(fixed, met, rounds, size, seed, number)
        work = float(rounds * replications)
        return block_of(learner, met, rounds, size, seed, number, engine=engine, work=work, delay=late, missing=missing)

    work = list(enumerate(blocks(replications)))
    if n_jobs == 1 or len(work) == 1:
        done = [one(number, size) for number, size in work]
    else:
        from joblib import Parallel, delayed  # type: ignore[import-untyped] # it has no types

        done = Parallel(n_jobs=n_jobs)(delayed(one)(number, size) for number, size in work)
    return Run(*done[0]) if len(done) == 1 else Run(*(_joined(part) for part in zip(*done, strict=True)))


def _joined(parts: tuple[Any, ...]) -> Any:  # noqa: ANN401 - arrays, or none
    return None if parts[0] is None else np.concatenate(parts)


def _check_probabilities(policy: ArrayLike, world: World, rounds: int) -> Array:
    """Probabilities as float64, [1, A] or [N, A]."""
    given = np.asarray(policy, dtype=np.float64)
    met = feed(world, 1, 1, 0, 0) if isinstance(world, Table) else feed(world, rounds, 1, 0, 0)
    if given.shape not in {(met.n_arms,), met.worth.shape}:
        came = given.shape
        refuse(f"a policy must be a Bandit, [{met.n_arms}], or {met.worth.shape}", came, "give a number an arm")
    rows = np.atleast_2d(given)
    wrong = ~((rows >= 0.0).all(axis=-1) & (np.abs(rows.sum(axis=-1) - 1.0) <= 1e-9))
    if wrong.any():
        refuse("a policy's rows must be >= 0 and sum to 1", rows[wrong][0].tolist(), "they are probabilities")
    if met.mask is not None and (np.broadcast_to(rows, met.mask.shape)[~met.mask] > 0.0).any():
        refuse("a policy may give nothing to an arm that is not available", "some", "give a row a case")
    return rows


def _stationary(policy: Array, world: World, rounds: int, size: int, seed: int, number: int) -> Accounts:
    """One block of a policy that learns nothing: the arm by the inverse of its distribution."""
    met = feed(world, rounds, size, seed, number)
    last = policy.shape[-1] - 1 - np.argmax(policy[:, ::-1] > 0.0, axis=-1)
    upper = np.where(np.arange(policy.shape[-1]) >= last[:, None], np.inf, np.cumsum(policy, axis=-1))
    chance = stream(seed, number, POLICY).random((rounds, size))
    rows = met.case if met.case is not None else np.arange(rounds)[:, None]
    arm = np.zeros((rounds, size), np.int8)
    for edge in upper.T[:-1]:
        arm += chance >= (edge[rows] if len(upper) > 1 else edge[0])
    return accounts(met, arm)
