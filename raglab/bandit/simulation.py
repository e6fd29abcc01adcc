"""Bandit simulation (algebra): replications of a learner in an environment.

The log a live one would write (S4.7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.budget import Budget, check_budget, check_keepable, table_costs, unkept_note
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
    State,
    check_count,
    choose_arm,
    init,
    record_pull,
    record_rewards,
    update,
)
from raglab.bandit.ledgers import (
    Ledger,
    budgeted_arms,
    check_budgeted,
    net_state,
    record_choice,
    record_paid,
    start_ledger,
)
from raglab.bandit.persistence import check_state
from raglab.bandit.propensity import propensities, sample
from raglab.loops.compiled import check_engine, kernel_of
from raglab.loops.parallel import run_each
from raglab.progress import progress
from raglab.values import refuse
from raglab.words.html_display import Fold
from raglab.words.results import Result, Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

SEED = "state a seed"
# played where costs are charged, in the place of a learner of successes (rule S4.5)
COST_FOLLOWER = "thompson_nig"


class Regrets(NamedTuple):
    """Cumulative expected regret and pulls of each replication.

    Attributes:
      regret: cumulative, in expectation, [R, T].
      pulls: rounds that chose the arm, [R, A].
    """

    regret: Array
    pulls: NDArray[np.int64]


class Simulation(Result, Regrets):
    """Regret and pulls of each replication, shown by their size and the regret at the end."""

    def frame(self) -> pd.DataFrame:
        """A row a replication: regret at the end, rounds that chose each arm."""
        import pandas as pd

        pulls = {f"pulls_{arm}": rounds for arm, rounds in enumerate(self.pulls.T)}
        return pd.DataFrame({"regret": self.regret[:, -1], **pulls})

    def _summary(self) -> Summary:
        return _size(self.regret, self.pulls)


def _size(regret: Array, pulls: NDArray[np.int64]) -> Summary:
    """What replications show: how many, regret at the end over them, and the share of pulls."""
    low, middle, high = map(value_text, np.quantile(regret[:, -1], (0.05, 0.5, 0.95)).tolist())
    facts = [
        ("replications", f"{len(regret):,}"),
        ("rounds", f"{regret.shape[1]:,}"),
        ("arms", f"{pulls.shape[1]}"),
        ("regret at the end", middle, f"5 % to 95 %: {low} to {high}"),
    ]
    share = pulls.sum(axis=0) / max(1, int(pulls.sum()))
    rows = ((str(arm), f"{arm_share:.1%}") for arm, arm_share in enumerate(share.tolist()))
    fold = Fold("share of pulls", rows, len(share), ("arm", "pulls"), open=True)
    return Summary(facts, {"pulls": fold})


def follow_costs(bandit: Bandit, world: World, *, charged: bool = False) -> tuple[Bandit, str]:
    """Learner that is played in a world, and a note where it is not the one that was named.

    A learner of successes counts rewards above a threshold, so a cost that leaves a reward on its
    side of it changes nothing. In a table that charges costs `thompson_nig` is played instead,
    which follows mean rewards, with the same prior_mean, prior_strength, exploration and all other
    settings.

    Args:
      charged: whether costs are charged beside the table's own price, as a budget does.

    Raises:
      ValueError: the learner has a history, whose sums are successes.

    Source: rule S4.5.
    """
    entry = LEARNERS.get(bandit.algorithm)
    if (
        entry is None
        or not entry.successes
        or not isinstance(world, Table)
        or not (charged or world.is_charged)
    ):
        return bandit, ""
    if bandit.history is not None:
        rule = f"a history of {bandit.algorithm} counts successes, which cannot follow costs"
        refuse(rule, "one beside costs", f"make it with history_of for {COST_FOLLOWER}")
    note = (
        f"{bandit.algorithm} counts rewards above {bandit.threshold:g} and cannot follow costs; "
        f"{COST_FOLLOWER} is played instead (rule S4.5)."
    )
    return bandit._replace(algorithm=COST_FOLLOWER), note


def check_initial(
    initial: State | Ledger | None,
    bandit: Bandit,
    world: World,
    budget: Budget | float | None = None,
) -> None:
    """Refuse a first state the learner cannot go on from here, or a budget that it cannot keep.

    Raises:
      ValueError: a batch of states, other arms, features or window than the learner's; a state
        without costs beside a budget, or a ledger without one.
    """
    if budget is not None:
        check_budgeted(bandit, world)
    if initial is None:
        return
    if isinstance(initial, Ledger) != (budget is not None):
        rule = "initial must be a Ledger with a budget, and a State without one"
        refuse(rule, type(initial).__name__, "see learned_ledger")
    if not isinstance(initial, State | Ledger):
        refuse(
            "initial must be a State or a Ledger",
            type(initial).__name__,
            "make it with learned_state",
        )
    state = initial.state if isinstance(initial, Ledger) else initial
    check_state(state, bandit)
    n_features = len(world.feature_names) if bandit.linear and isinstance(world, Table) else 0
    shape = (*state.t.shape, state.n.shape[-1], state.moment.shape[-1])
    if shape != (world.n_arms, n_features):
        rule = (
            f"initial must be the state of one learner of {world.n_arms} arms and {n_features} "
            "features"
        )
        refuse(rule, shape, "make it with learned_state")


def first_ledger(
    initial: State | Ledger | None, bandit: Bandit, world: World, budget: Budget | float | None
) -> State | Ledger | None:
    """What a learner begins with.

    Under a budget a ledger, with the budget that it is to keep now.
    """
    if budget is None:
        return initial
    checked = check_budget(budget)
    n_features = len(world.feature_names) if bandit.linear and isinstance(world, Table) else 0
    opened = start_ledger(world.n_arms, bandit, checked, n_features=n_features)
    return initial._replace(pacer=opened.pacer) if isinstance(initial, Ledger) else opened


def repeated_state(initial: State, size: int) -> State:
    """State of each of so many replications that begin alike, [R, ...]."""
    return State._make(np.broadcast_to(field, (size, *field.shape)).copy() for field in initial)


def stepwise_arms(
    met: Feed, bandit: Bandit, rng: np.random.Generator, initial: State | None = None
) -> Arms:
    """Arms [T, R] of any learner, by `choose` and `update`: the reference of the compiled loops.

    Args:
      initial: state of one learner that every replication begins with.
    """
    n_features = met.features.shape[1] if bandit.linear else 0
    state = init(met.n_arms, bandit=bandit, n_features=n_features, batch=(met.size,))
    if initial is not None:
        state = repeated_state(initial, met.size)
    arms = np.empty((met.rounds, met.size), np.int8)
    arrivals = _arrivals(met)
    none = np.zeros((met.size, 0))
    for t in range(met.rounds):
        context = met.features[met.row(t)] if bandit.linear else none
        state, choice = choose_arm(state, bandit, rng, met.open(t), context)
        arms[t] = choice.arm
        when, who = np.divmod(arrivals(t, choice.arm), met.size)
        arm = arms[when, who].astype(np.int64)
        reward = met.rewards(when, who, arm)
        there = ~np.isnan(reward)
        when, who, arm, reward = when[there], who[there], arm[there], reward[there]
        reward_context = (
            met.features[met.case[when, who]]
            if bandit.linear and met.case is not None
            else none[who]
        )
        state = record_rewards(state, who, arm, reward, t - when, reward_context, bandit)
    return arms


def _arrivals(met: Feed) -> Callable[[int, NDArray[np.int64]], NDArray[np.int64]]:
    """From a round and its arms [R] to choices (round * R + replication) rewarded in it."""
    if met.arm_delay is not None and met.case is not None:
        return _arrivals_by_arm(met, met.arm_delay, met.case)
    due = (met.delay + np.arange(met.rounds)[:, None] + np.zeros((1, met.size), np.int64)).ravel()
    there = np.arange(due.size) if met.lost is None else np.flatnonzero(~met.lost.ravel())
    order = there[np.argsort(due[there], kind="stable")]
    first = np.searchsorted(due[order], np.arange(met.rounds + 1))
    return lambda t, _: order[first[t] : first[t + 1]]


def _arrivals_by_arm(
    met: Feed, arm_delay: NDArray[np.int64], case: NDArray[np.int32]
) -> Callable[[int, NDArray[np.int64]], NDArray[np.int64]]:
    """Arrivals where a delay hangs on the arm, so that it is known only when that is chosen."""
    waiting: dict[int, list[NDArray[np.int64]]] = {}

    def arrive(t: int, arm: NDArray[np.int64]) -> NDArray[np.int64]:
        late, choices = arm_delay[case[t], arm], t * met.size + np.arange(met.size)
        if met.lost is not None:
            late, choices = late[~met.lost[t]], choices[~met.lost[t]]
        for rounds in np.unique(late).tolist():
            waiting.setdefault(t + rounds, []).append(choices[late == rounds])
        return np.concatenate(waiting.pop(t, [choices[:0]]))

    return arrive


def kernel(bandit: Bandit, work: float, engine: str) -> Any:  # noqa: ANN401 - a module
    """The compiled twins; none where NumPy is to do the work, so many choices.

    Raises:
      ValueError: numba is asked for, and a learner has no compiled loop.
      ImportError: numba is asked for, and is not installed.
    """
    entry = LEARNERS[bandit.algorithm]
    if engine == "numpy" or (engine == "auto" and (entry.compiled is None or work < entry.pays)):
        return None
    if entry.compiled is None:
        there = [name for name, learner in LEARNERS.items() if learner.compiled is not None]
        refuse(f"engine numba plays {', '.join(there)}", bandit.algorithm, "use engine='auto'")
    return kernel_of(engine, _kernel)


def _kernel() -> Any:  # noqa: ANN401 - a module
    from raglab.bandit import kernel

    return kernel


def check_simulation(
    bandit: Bandit, world: Bernoulli | Table, rounds: int, replications: int, engine: str
) -> None:
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
    """Whether a compiled loop says what the learner would.

    Nothing delayed, missing or floored, nor forgotten.

    A linear learner may forget: its loop knows how.
    """
    remembers = (bandit.discount == 1.0 and bandit.window == 0) or bandit.linear
    settings = remembers and bandit.floor == 0.0 and bandit.ties == "lowest"
    there = (
        met.case is None
        or not np.isnan(met.reward if met.mask is None else met.reward[met.mask]).any()
    )
    never_late = (
        isinstance(met.delay, int) and met.delay == 0 and met.lost is None and met.arm_delay is None
    )
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
    initial: State | Ledger | None = None,
) -> Accounts:
    """One block of replications; the same bits wherever it runs.

    Args:
      work: choices that the whole simulation makes.
      initial: state of one learner that every replication begins with; a ledger where it keeps a
        budget.
    """
    met = feed(world, rounds, size, seed, number, delay=delay, missing=missing)
    rng = stream(seed, number, POLICY)
    # a first state of a window holds rounds of its own, which the loop does not know; nor does it
    # know a ledger
    is_looped = initial is None or (
        isinstance(initial, State) and bandit.linear and bandit.window == 0
    )
    plain = is_plain(bandit, met) and is_looped
    if engine == "numba" and not plain:
        value = "one that forgets, or a floor, a budget, a first state or late rewards"
        refuse("engine numba plays plain learners", value, "use engine='auto'")
    twin = kernel(bandit, work, engine) if plain else None
    if twin is not None:
        done: Accounts = twin.accounts(met, twin.played(met, bandit, rng, initial))
        return done
    if isinstance(initial, Ledger) and isinstance(world, Table):
        arms = ledger_arms(met, world, bandit, rng, initial)
    else:
        arms = stepwise_arms(met, bandit, rng, None if isinstance(initial, Ledger) else initial)
    return play_accounts(met, arms)


def ledger_arms(
    met: Feed, world: Table, bandit: Bandit, rng: np.random.Generator, initial: Ledger
) -> Arms:
    """Arms [T, R] of a learner that keeps a budget.

    A ledger charges costs itself, at its own price.
    """
    free = met._replace(reward=world.priced(0.0).reward)
    return budgeted_arms(free, table_costs(world), bandit, rng, initial, _arrivals(met))


def simulate(
    policy: str,
    means: ArrayLike,
    *,
    rounds: int,
    replications: int,
    seed: int,
    mask: ArrayLike | None = None,
) -> Simulation:
    """Cumulative expected regret of a policy on Bernoulli arms.

    The summed gaps of the arms it pulled.

    Inside `raglab.lab.parallel_workers` the workers play its blocks of 200 replications, to the
    same bits.

    Args:
      policy: one of `LEARNERS` that needs no context; its settings are those of `Bandit`.
      means: [A], or [T, A] where they drift.
      rounds: of each replication, T.
      replications: independent plays, R.
      seed: of all draws.
      mask: arms available, [A] or [T, A]; the gap is that to the best of them.

    Returns:
      Regret [R, T] and pulls [R, A].

    Raises:
      ValueError: means outside [0, 1], a round without an arm, an unknown policy, or rounds below
        1.

    Example:
      >>> simulate("ucb1", [0.5, 0.6], rounds=3, replications=2, seed=0).regret.shape
      (2, 3)
    """
    bandit = Bandit(policy)
    check_count("rounds", rounds, 1, "simulate at least one")
    check_count("seed", seed, 0, SEED)
    world = check_world(
        Bernoulli(np.asarray(means), None if mask is None else np.asarray(mask)), rounds
    )
    check_simulation(bandit, world, rounds, replications, "auto")
    work = float(rounds * replications)
    blocks = list(enumerate(replication_blocks(replications)))
    done = list(
        run_each(
            _numbered_block,
            blocks,
            bandit,
            world,
            rounds,
            seed,
            {"work": work},
            what="simulate",
            unit="block",
        )
    )
    return Simulation(
        np.concatenate([each.regret for each in done]),
        np.concatenate([each.pulls for each in done]),
    )


def _numbered_block(
    block: tuple[int, int],
    policy: Bandit | Array,
    world: Bernoulli | Table,
    rounds: int,
    seed: int,
    settings: Mapping[str, Any],
) -> Accounts:
    """One block of replications, (number, size), of a learner or probabilities [1, A] or [N, A]."""
    number, size = block
    if isinstance(policy, Bandit):
        return play_block(policy, world, rounds, size, seed, number, **settings)
    return _stationary(policy, world, rounds, size, seed, number)


class RunArrays(NamedTuple):
    """Outcome of a policy in a world, replication by replication.

    Attributes:
      regret: cumulative, against the best available arm, [R, T].
      value: cumulative, the mean of the arm or the value of the case, [R, T].
      pulls: rounds that chose the arm, [R, A].
      arm: number of the chosen arm, [R, T].
      case: row of the table, [R, T]; None where there is no table.
      spend: cumulative cost in the user's unit, [R, T]; None where nothing costs.
      price: value lost a unit of cost: value is net of price * spend.
      arm_value: value of each arm, [T, A], NaN where not available; None unless all replications
        meet the same rounds.
      notes: settings that were replaced or ignored.
    """

    regret: Array
    value: Array
    pulls: NDArray[np.int64]
    arm: Arms
    case: NDArray[np.int32] | None
    spend: Array | None = None
    price: float = 0.0
    arm_value: Array | None = None
    notes: tuple[str, ...] = ()


class Run(Result, RunArrays):
    """Outcome of a policy in a world; its fields are those of `RunArrays`."""

    def frame(self) -> pd.DataFrame:
        """A row a replication.

        Value and regret at the end, spend where choices cost, rounds that chose each arm.
        """
        import pandas as pd

        spend = {} if self.spend is None else {"spend": self.spend[:, -1]}
        pulls = {f"pulls_{arm}": rounds for arm, rounds in enumerate(self.pulls.T)}
        return pd.DataFrame(
            {"value": self.value[:, -1], "regret": self.regret[:, -1], **spend, **pulls}
        )

    @property
    def gross(self) -> Array:
        """Cumulative value before costs, [R, T]."""
        return self.value if self.spend is None else self.value + self.price * self.spend

    def _summary(self) -> Summary:
        summary = _size(self.regret, self.pulls)
        spend = []
        if self.spend is not None:
            spend = [("mean spend at the end", value_text(self.spend[:, -1].mean()))]
        return summary._replace(facts=[*summary.facts, *spend], notes=self.notes)


def run(
    policy: Bandit | ArrayLike,
    world: World,
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    delay: int | tuple[int, int] = 0,
    missing: float = 0.0,
    initial: State | Ledger | None = None,
    budget: Budget | float | None = None,
    engine: str = "auto",
    n_jobs: int = 1,
) -> Run:
    """Play a policy in a world.

    Cases in the order that their table states, or arms with known means.

    The seed and the block decide the chance of the world, the policy does not: two policies under
    one seed meet the same cases, the same chance and the same delays, so that their differences may
    be taken pair by pair.

    Args:
      policy: a learner, or fixed probabilities: [A], or a row a case [Q, A] (a round where means
        drift).
      world: table, or arms with known means.
      rounds: of each replication, T.
      replications: independent plays, R.
      seed: of the world and of the policy.
      delay: rounds until a reward is there, or the least and the greatest of them, drawn uniformly;
        of a world that states no delays of its own.
      missing: probability that a reward never arrives.
      initial: state of one learner that every replication begins with, such as `learned_state`
        makes; with a budget a ledger, such as `learned_ledger` makes.
      budget: mean cost of a round that the learner keeps, by a price that follows each
        replication's spend (`pace`). What it learns is reward before costs, and each arm's cost;
        value and regret are at the table's own price.
      engine: `numpy`, `numba` (the compiled twin, where there is one), or `auto`: numba where it
        pays.
      n_jobs: processes, as joblib counts them; the same bits for any number. 1 leaves the blocks to
        the workers of `raglab.lab.parallel_workers`, where there are any.

    Raises:
      ValueError: a world, a policy or sizes that break a rule; probability on an arm that is not
        available; a budget below what the cheapest arm of each question costs.

    Warns:
      UserWarning: another learner is played (rule S4.5), or the mean spend is over the budget (rule
        S4.8); it is in `notes` too.

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
    if isinstance(policy, Bernoulli | Table) and not isinstance(world, Bernoulli | Table):
        refuse("run takes a policy and a world in this order", "a world first", "swap them")
    if isinstance(policy, str):
        refuse(
            "a policy must be a Bandit or probabilities", repr(policy), f"write Bandit({policy!r})"
        )
    met = check_world(world, rounds)
    late = _check_lateness(delay, missing, met)
    charged, learner, note = budget is not None, Bandit("ucb1"), ""
    if isinstance(policy, Bandit):
        learner, note = follow_costs(policy, met, charged=charged)
    elif charged:
        refuse(
            "a budget needs a learner",
            "probabilities",
            "see fit_priced_policy and play_paced",
        )
    check_simulation(learner, met, rounds, replications, engine)
    check_initial(initial, learner, met, budget)
    if budget is not None and isinstance(met, Table):
        check_keepable(met, budget, rounds)
    fixed = None if isinstance(policy, Bandit) else _check_probabilities(policy, met, rounds)
    if initial is not None and (note or fixed is not None):
        refuse(
            "an initial state must be of the learner that is played",
            note or "a fixed policy",
            "leave it out",
        )
    if note:
        warn_user(note)
    blocks = list(enumerate(replication_blocks(replications)))
    settings: dict[str, Any] = {
        "engine": engine,
        "work": float(rounds * replications),
        "delay": late,
    }
    settings |= {"missing": missing, "initial": first_ledger(initial, learner, met, budget)}
    shared = (learner if fixed is None else fixed, met, rounds, seed, settings)
    if n_jobs == 1 or len(blocks) == 1:
        done = list(run_each(_numbered_block, blocks, *shared, what="simulate", unit="block"))
    else:
        from joblib import Parallel, delayed  # type: ignore[import-untyped] # it has no types

        calls = (delayed(_numbered_block)(block, *shared) for block in blocks)
        played = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
        done = list(progress(played, "simulate", "block", total=len(blocks)))
    whole = (
        Run(*done[0])
        if len(done) == 1
        else Run(*(_join_blocks(part) for part in zip(*done, strict=True)))
    )
    price = met.price if isinstance(met, Table) else 0.0
    over = _warn_unkept(
        budget, None if whole.spend is None else float(whole.spend[:, -1].mean()), rounds
    )
    notes = tuple(filter(None, (note, over)))
    return whole._replace(price=price, arm_value=_arm_values(met, rounds), notes=notes)


def _warn_unkept(budget: Budget | float | None, spend: float | None, rounds: int) -> str:
    """Note of a budget that was not kept, which is warned of too.

    Nothing where it was, or where there is none.

    Args:
      spend: in all rounds.
    """
    note = "" if budget is None or spend is None else unkept_note(budget, spend / rounds, rounds)
    if note:
        warn_user(note)
    return note


def _check_lateness(delay: int | tuple[int, int], missing: float, world: World) -> tuple[int, int]:
    """Least and greatest delay that is drawn in a world.

    Raises:
      ValueError: as `check_delay`; or the table states delays of its own.
    """
    late = check_delay(delay, missing)
    if late != (0, 0) and isinstance(world, Table) and world.delay is not None:
        refuse(
            "delay must be stated once", f"{delay} beside the table's own", "leave one of them out"
        )
    return late


def _arm_values(world: World, rounds: int) -> Array | None:
    """Value of each arm a round, [T, A], if all replications meet the same rounds, which differ."""
    if isinstance(world, Table):
        value, mask = world.value[:rounds], world.mask[:rounds]
        return np.where(mask, value, np.nan) if world.order == "given" else None
    if world.means.ndim == 1:
        return None
    return world.means if world.mask is None else np.where(world.mask, world.means, np.nan)


def _join_blocks(parts: tuple[Any, ...]) -> Any:  # noqa: ANN401 - arrays, or none
    return None if parts[0] is None else np.concatenate(parts)


def _check_probabilities(policy: ArrayLike, world: World, rounds: int) -> Array:
    """Probabilities as float64, [1, A] or [N, A]."""
    probabilities = np.asarray(policy, dtype=np.float64)
    met = feed(world, 1, 1, 0, 0) if isinstance(world, Table) else feed(world, rounds, 1, 0, 0)
    if probabilities.shape not in {(met.n_arms,), met.worth.shape}:
        shape = probabilities.shape
        refuse(
            f"a policy must be a Bandit, [{met.n_arms}], or {met.worth.shape}",
            shape,
            "give a number an arm",
        )
    rows = np.atleast_2d(probabilities)
    wrong = ~((rows >= 0.0).all(axis=-1) & (np.abs(rows.sum(axis=-1) - 1.0) <= 1e-9))
    if wrong.any():
        refuse(
            "a policy's rows must be >= 0 and sum to 1",
            rows[wrong][0].tolist(),
            "they are probabilities",
        )
    if met.mask is not None and (np.broadcast_to(rows, met.mask.shape)[~met.mask] > 0.0).any():
        refuse("a policy may give nothing to an unavailable arm", "some", "give a row a case")
    return rows


def _stationary(
    policy: Array, world: World, rounds: int, size: int, seed: int, number: int
) -> Accounts:
    """One block of a policy that learns nothing: the arm by the inverse of its distribution."""
    met = feed(world, rounds, size, seed, number)
    last = policy.shape[-1] - 1 - np.argmax(policy[:, ::-1] > 0.0, axis=-1)
    upper = np.where(
        np.arange(policy.shape[-1]) >= last[:, None], np.inf, np.cumsum(policy, axis=-1)
    )
    chance = stream(seed, number, POLICY).random((rounds, size))
    rows = met.case if met.case is not None else np.arange(rounds)[:, None]
    arm = np.zeros((rounds, size), np.int8)
    for edge in upper.T[:-1]:
        arm += chance >= (edge[rows] if len(upper) > 1 else edge[0])
    return play_accounts(met, arm)


def log(
    bandit: Bandit,
    world: World,
    *,
    rounds: int,
    seed: int = 0,
    delay: int | tuple[int, int] = 0,
    initial: State | Ledger | None = None,
    budget: Budget | float | None = None,
) -> pd.DataFrame:
    """One learner's rounds in a world, by its exact propensities, as a live system logs them.

    Args:
      bandit: settings of the learner.
      world: table, or arms with known means.
      rounds: to play; Thompson sampling takes a millisecond each, since its propensities are
        integrals.
      seed: of the world and of the learner.
      delay: as for `run`; a reward that arrives after the last round is in the log too, at its own
        round.
      initial: as for `run`.
      budget: as for `run`.

    Returns:
      A row a round: `action` (number of the arm), `arm` (its name, or number), `reward` (that the
        learner gets, NaN where it never arrives), `propensity` of that arm, `case` (row of a table;
        -1 where there is none), `value` of the choice (net of price times cost), `cost` of the
        choice in the user's unit, `delay` (rounds until its reward arrived), and `p_<arm>` of every
        arm. With a budget `reward` is before costs, and `price` is the pacer's at the choice.

    Raises:
      ValueError: a world, settings or sizes that break a rule.

    Source: rules S4.6, S4.7.

    Example:
      >>> from raglab.bandit.environments import Bernoulli
      >>> seen = log(
      ...     Bandit("epsilon_greedy", epsilon=0.5), Bernoulli(np.array([0.2, 0.8])), rounds=3
      ... )
      >>> seen[["p_0", "p_1"]].sum(axis=1).tolist()
      [1.0, 1.0, 1.0]
    """
    import pandas as pd

    check_count("rounds", rounds, 1, "log at least one")
    checked = check_world(world, rounds)
    learner, note = follow_costs(bandit, checked, charged=budget is not None)
    check_initial(initial, learner, checked, budget)
    if budget is not None and isinstance(checked, Table):
        check_keepable(checked, budget, rounds)
    if note and initial is not None:
        refuse("an initial state must be of the learner that is played", note, "leave it out")
    if note:
        warn_user(note)
    met = feed(checked, rounds, 1, seed, 0, delay=_check_lateness(delay, 0.0, checked))
    names = (
        checked.arms if isinstance(checked, Table) else tuple(str(arm) for arm in range(met.n_arms))
    )
    first = first_ledger(initial, learner, checked, budget)
    if isinstance(first, Ledger) and isinstance(checked, Table):
        met = met._replace(reward=checked.priced(0.0).reward)
    played = _logged_rounds(learner, met, seed, first)
    case = np.full(rounds, -1) if met.case is None else met.case[:, 0].astype(np.int64)
    rows = case if met.case is not None else np.arange(rounds) % len(met.worth)
    cost = np.zeros(rounds) if met.cost is None else met.cost[rows, played.action]
    _warn_unkept(budget, float(cost.sum()), rounds)
    return pd.DataFrame(
        {
            "action": played.action,
            "arm": [names[arm] for arm in played.action],
            "reward": played.reward,
            "propensity": played.share[np.arange(rounds), played.action],
            "case": case,
            "value": met.worth[rows, played.action],
            "cost": cost,
            "delay": played.delay,
            **({} if played.price is None else {"price": played.price}),
            **{f"p_{name}": played.share[:, number] for number, name in enumerate(names)},
        }
    )


class LoggedRounds(NamedTuple):
    """Rounds of one learner, [T]."""

    action: NDArray[np.int64]
    reward: Array  # NaN never arrives
    delay: NDArray[np.int64]
    share: Array  # [T, A] propensities
    price: Array | None  # value lost a unit of cost; none without a budget


def _logged_rounds(
    bandit: Bandit, met: Feed, seed: int, initial: State | Ledger | None
) -> LoggedRounds:
    """Rounds of one replication's block, each drawn by the propensities of the state before it."""
    rounds = met.rounds
    state: State | Ledger
    state = init(
        met.n_arms, bandit=bandit, n_features=met.features.shape[1] if bandit.linear else 0
    )
    state = state if initial is None else initial
    cost = (
        met.cost
        if isinstance(state, Ledger) and met.cost is not None
        else np.zeros((len(met.worth), met.n_arms))
    )
    price = np.empty(rounds)
    # the uniforms come from the policy's own stream, as everywhere
    chance = stream(seed, 0, POLICY).random(rounds)
    share, actions, rewards = (
        np.empty((rounds, met.n_arms)),
        np.empty(rounds, np.int64),
        np.empty(rounds),
    )
    late, waiting = np.zeros(rounds, np.int64), dict[int, list[int]]()
    contexts: list[Array | None] = []
    for t in progress(range(rounds), "log", "round"):
        # row of the tables: the case that came, or the round where means drift
        row = int(np.ravel(met.row(t))[0])
        contexts.append(met.features[row] if bandit.linear else None)
        mask = None if met.mask is None else met.mask[row]
        # propensities are read before the round is counted, and the arm is drawn by them: so they
        # are exact
        reads = net_state(state) if isinstance(state, Ledger) else state
        share[t] = propensities(reads, bandit, mask=mask, context=contexts[t])
        arm = sample(share[t], chance[t])
        if isinstance(state, Ledger):
            price[t] = state.pacer.price
            state = record_choice(state, arm, cost[row, arm], bandit)
        else:
            state = record_pull(state, arm, bandit)
        (rewards[t],) = met.rewards(np.array([t]), np.array([0]), np.array([arm], dtype=np.int8))
        actions[t] = arm
        late[t] = met.delay if isinstance(met.delay, int) else met.delay[t, 0]
        if met.arm_delay is not None:
            late[t] = met.arm_delay[row, arm]
        waiting.setdefault(t + int(late[t]), []).append(t)
        # a reward that never arrives teaches nothing
        for when in waiting.pop(t, []):
            if not np.isnan(rewards[when]):
                action, reward, context = int(actions[when]), float(rewards[when]), contexts[when]
                if isinstance(state, Ledger):
                    paid = cost[int(np.ravel(met.row(when))[0]), action]
                    state = record_paid(
                        state, action, reward, paid, bandit, context=context, age=t - when
                    )
                else:
                    state = update(state, action, reward, bandit, context=context, age=t - when)
    return LoggedRounds(actions, rewards, late, share, price if isinstance(state, Ledger) else None)
