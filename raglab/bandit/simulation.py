"""Bandit simulation (algebra): replications of a learner in an environment; the log a live one would write (S4.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab._numba import check_engine, kernel_of
from raglab.bandit.environments import (
    POLICY,
    Accounts,
    Arms,
    Array,
    Bernoulli,
    Feed,
    Table,
    World,
    check_delay,
    check_world,
    feed,
    play_accounts,
    replication_blocks,
    stream,
)
from raglab.bandit.learner import (
    LEARNERS,
    Bandit,
    check_count,
    choose_arm,
    init,
    record_pull,
    record_rewards,
    refuse,
    update,
)
from raglab.bandit.propensity import propensities, sample
from raglab.html_display import Fold, display
from raglab.parallel import run_each
from raglab.progress import progress

if TYPE_CHECKING:
    import pandas as pd

SEED = "the same seed gives the same bits"


class Simulation(NamedTuple):
    """Cumulative expected regret and pulls of each replication."""

    regret: Array  # [R, T]
    pulls: NDArray[np.int64]  # [R, A]

    def __repr__(self) -> str:
        return f"Simulation({_size_text(self.regret, self.pulls)}; {_end_text(self.regret)})"

    def _repr_html_(self) -> str:
        """Display for a notebook: regret at the end and the share of pulls of every arm."""
        return _played("Simulation", self.regret, self.pulls)


def _size_text(regret: Array, pulls: NDArray[np.int64]) -> str:
    replications, rounds = regret.shape
    return f"{replications:,} replications of {rounds:,} rounds on {pulls.shape[1]} arms"


def _end_text(regret: Array) -> str:
    """Regret at the end, over the replications."""
    low, middle, high = np.quantile(regret[:, -1], (0.05, 0.5, 0.95)).tolist()
    return f"regret at the end {middle:.4g}, 5 % to 95 % of replications {low:.4g} to {high:.4g}"


def _played(title: str, regret: Array, pulls: NDArray[np.int64]) -> str:
    """Display of what was played."""
    share = pulls.sum(axis=0) / max(1, int(pulls.sum()))
    rows = ((str(arm), f"{one:.1%}") for arm, one in enumerate(share.tolist()))
    facts = [("size", _size_text(regret, pulls)), ("regret", _end_text(regret))]
    return display(title, facts, [Fold("share of pulls", rows, len(share), ("arm", "pulls"), open=True)])


def stepwise_arms(met: Feed, bandit: Bandit, rng: np.random.Generator) -> Arms:
    """Arms [T, R] of any learner, by `choose` and `update`: the reference of the compiled loops."""
    n_features = met.features.shape[1] if bandit.linear else 0
    state = init(met.n_arms, bandit=bandit, n_features=n_features, batch=(met.size,))
    arms = np.empty((met.rounds, met.size), np.int8)
    order, first = _arrivals(met)
    none = np.zeros((met.size, 0))
    for t in range(met.rounds):
        context = met.features[met.row(t)] if bandit.linear else none
        state, choice = choose_arm(state, bandit, rng, met.open(t), context)
        arms[t] = choice.arm
        when, who = np.divmod(order[first[t] : first[t + 1]], met.size)
        arm = arms[when, who].astype(np.int64)
        reward = met.rewards(when, who, arm)
        there = ~np.isnan(reward)
        when, who, arm, reward = when[there], who[there], arm[there], reward[there]
        seen = met.features[met.case[when, who]] if bandit.linear and met.case is not None else none[who]
        state = record_rewards(state, who, arm, reward, t - when, seen, bandit)
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
      ValueError: numba is asked for, and a learner has no compiled loop.
      ImportError: numba is asked for, and is not installed.
    """
    entry = LEARNERS[bandit.policy]
    if engine == "numpy" or (engine == "auto" and (entry.compiled is None or work < entry.pays)):
        return None
    if entry.compiled is None:
        there = [name for name, other in LEARNERS.items() if other.compiled is not None]
        refuse(f"engine numba plays {', '.join(there)}", bandit.policy, "use engine='auto'")
    return kernel_of(engine, _kernel)


def _kernel() -> Any:  # noqa: ANN401 - a module
    from raglab.bandit import kernel

    return kernel


def check_simulation(bandit: Bandit, world: Bernoulli | Table, rounds: int, replications: int, engine: str) -> None:
    """Refuse what cannot be simulated.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    check_count("rounds", rounds, 1, "simulate at least one")
    check_count("replications", replications, 1, "simulate at least one")
    check_engine(engine)
    if world.n_arms > np.iinfo(np.int8).max:
        refuse("a world has at most 127 arms", world.n_arms, "leave some out")
    n_features = len(world.feature_names) if isinstance(world, Table) else 0
    init(world.n_arms, bandit=bandit, n_features=n_features)


def is_plain(bandit: Bandit, met: Feed) -> bool:
    """Whether a compiled loop says what the learner would: nothing forgotten, delayed, missing or floored."""
    settings = bandit.discount == 1.0 and bandit.window == 0 and bandit.floor == 0.0 and bandit.ties == "lowest"
    there = met.case is None or not np.isnan(met.reward if met.mask is None else met.reward[met.mask]).any()
    never_late = isinstance(met.delay, int) and met.delay == 0 and met.lost is None
    return settings and bandit.history is None and never_late and bool(there)


def play_block(
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
    plain = is_plain(bandit, met)
    if engine == "numba" and not plain:
        came = "a learner that forgets or has a floor, or rewards that are late or missing"
        refuse("engine numba plays plain learners whose rewards are there at once", came, "use engine='auto'")
    twin = kernel(bandit, work, engine) if plain else None
    if twin is not None:
        done: Accounts = twin.accounts(met, twin.played(met, bandit, rng))
        return done
    return play_accounts(met, stepwise_arms(met, bandit, rng))


def simulate(
    policy: str, means: ArrayLike, *, rounds: int, replications: int, seed: int, mask: ArrayLike | None = None
) -> Simulation:
    """Cumulative expected regret of a policy on Bernoulli arms: the summed gaps of the arms it pulled.

    Inside `raglab.workers` its blocks of 200 replications are played by the workers, to the same bits.

    Args:
      policy: one of `LEARNERS` that needs no context; its settings are those of `Bandit`.
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
    check_count("rounds", rounds, 1, "simulate at least one")
    check_count("seed", seed, 0, SEED)
    world = check_world(Bernoulli(np.asarray(means), None if mask is None else np.asarray(mask)), rounds)
    check_simulation(bandit, world, rounds, replications, "auto")
    work = float(rounds * replications)
    blocks = list(enumerate(replication_blocks(replications)))
    done = list(
        run_each(_numbered_block, blocks, bandit, world, rounds, seed, {"work": work}, what="simulate", unit="block")
    )
    return Simulation(np.concatenate([each.regret for each in done]), np.concatenate([each.pulls for each in done]))


def _numbered_block(
    block: tuple[int, int],
    policy: Bandit | Array,
    world: Bernoulli | Table,
    rounds: int,
    seed: int,
    settings: Mapping[str, Any],
) -> Accounts:
    """One block of replications, (number, size), of a learner or of probabilities [1, A] or [N, A]."""
    number, size = block
    if isinstance(policy, Bandit):
        return play_block(policy, world, rounds, size, seed, number, **settings)
    return _stationary(policy, world, rounds, size, seed, number)


class Run(NamedTuple):
    """What a policy came to in a world, replication by replication."""

    regret: Array  # [R, T] cumulative, against the best available arm
    value: Array  # [R, T] cumulative: the mean of the arm, or the value of the case
    pulls: NDArray[np.int64]  # [R, A]
    arm: Arms  # [R, T]
    case: NDArray[np.int32] | None  # [R, T] which case of a table

    def __repr__(self) -> str:
        return f"Run({_size_text(self.regret, self.pulls)}; {_end_text(self.regret)})"

    def _repr_html_(self) -> str:
        """Display for a notebook: regret at the end and the share of pulls of every arm."""
        return _played("Run", self.regret, self.pulls)


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
      n_jobs: processes, as joblib counts them; the same bits for any number. 1 leaves the blocks to the workers of
        `raglab.workers`, where there are any.

    Raises:
      ValueError: a world, a policy or sizes that break a rule; probability on an arm that is not available.

    Source: rule S4.7.

    Example:
      >>> from raglab.bandit.environments import Bernoulli
      >>> world = Bernoulli(np.array([0.5, 0.6]))
      >>> run(Bandit("ucb1"), world, rounds=4, replications=2).arm[:, :2]
      array([[0, 1],
             [0, 1]], dtype=int8)
    """
    check_count("rounds", rounds, 1, "simulate at least one")
    check_count("seed", seed, 0, SEED)
    if isinstance(policy, str):
        refuse("a policy must be a Bandit or probabilities", repr(policy), f"write Bandit({policy!r})")
    met = check_world(world, rounds)
    late = check_delay(delay, missing)
    learner = policy if isinstance(policy, Bandit) else Bandit("ucb1")
    check_simulation(learner, met, rounds, replications, engine)
    fixed = None if isinstance(policy, Bandit) else _check_probabilities(policy, met, rounds)

    blocks = list(enumerate(replication_blocks(replications)))
    settings = {"engine": engine, "work": float(rounds * replications), "delay": late, "missing": missing}
    shared = (learner if fixed is None else fixed, met, rounds, seed, settings)
    if n_jobs == 1 or len(blocks) == 1:
        done = list(run_each(_numbered_block, blocks, *shared, what="simulate", unit="block"))
    else:
        from joblib import Parallel, delayed  # type: ignore[import-untyped] # it has no types

        calls = (delayed(_numbered_block)(block, *shared) for block in blocks)
        played = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
        done = list(progress(played, "simulate", "block", total=len(blocks)))
    return Run(*done[0]) if len(done) == 1 else Run(*(_join_blocks(part) for part in zip(*done, strict=True)))


def _join_blocks(parts: tuple[Any, ...]) -> Any:  # noqa: ANN401 - arrays, or none
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
    return play_accounts(met, arm)


def log(bandit: Bandit, world: World, *, rounds: int, seed: int = 0) -> pd.DataFrame:
    """One learner's rounds in a world, each chosen by its exact propensities; what a live system would have logged.

    Args:
      rounds: a millisecond each for Thompson sampling, whose propensities are integrals.

    Returns: a row a round: `action` (number of the arm), `arm` (its name, or number), `reward`, `propensity` of that
      arm, `case` (row of a table; -1 where there is none), `value` of the choice, and `p_<arm>` of every arm.

    Raises:
      ValueError: a world, settings or sizes that break a rule.

    Source: rules S4.6, S4.7.

    Example:
      >>> from raglab.bandit.environments import Bernoulli
      >>> seen = log(Bandit("epsilon_greedy", epsilon=0.5), Bernoulli(np.array([0.2, 0.8])), rounds=3)
      >>> seen[["p_0", "p_1"]].sum(axis=1).tolist()
      [1.0, 1.0, 1.0]
    """
    import pandas as pd

    check_count("rounds", rounds, 1, "log at least one")
    met = feed(check_world(world, rounds), rounds, 1, seed, 0)
    names = world.arms if isinstance(world, Table) else tuple(str(arm) for arm in range(met.n_arms))
    # one replication; the uniforms come from the policy's own stream, as everywhere
    state = init(met.n_arms, bandit=bandit, n_features=met.features.shape[1] if bandit.linear else 0)
    chance = stream(seed, 0, POLICY).random(rounds)
    share, actions, rewards = np.empty((rounds, met.n_arms)), np.empty(rounds, np.int64), np.empty(rounds)
    for t in progress(range(rounds), "log", "round"):
        # row of the tables: the case that came, or the round where means drift
        row = int(np.ravel(met.row(t))[0])
        context = met.features[row] if bandit.linear else None
        mask = None if met.mask is None else met.mask[row]
        # propensities are read before the round is counted, and the arm is drawn by them: so they are exact
        share[t] = propensities(state, bandit, mask=mask, context=context)
        arm = sample(share[t], chance[t])
        state = record_pull(state, arm, bandit)
        (rewards[t],) = met.rewards(np.array([t]), np.array([0]), np.array([arm], dtype=np.int8))
        actions[t] = arm
        # a reward that never arrives teaches nothing
        if not np.isnan(rewards[t]):
            state = update(state, arm, rewards[t], bandit, context=context)
    case = np.full(rounds, -1) if met.case is None else met.case[:, 0].astype(np.int64)
    rows = case if met.case is not None else np.arange(rounds) % len(met.worth)
    return pd.DataFrame(
        {
            "action": actions,
            "arm": [names[arm] for arm in actions],
            "reward": rewards,
            "propensity": share[np.arange(rounds), actions],
            "case": case,
            "value": met.worth[rows, actions],
            **{f"p_{name}": share[:, number] for number, name in enumerate(names)},
        }
    )
