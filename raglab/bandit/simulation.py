"""Bandit simulation (algebra): replications of a learner in an environment.

The log a live one would write (S4.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.budget import Budget
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
from raglab.bandit.fixed_plans import check_plan
from raglab.bandit.learner import (
    LEARNERS,
    Bandit,
    Ints,
    Rewards,
    State,
    check_count,
    init,
    pick_arm,
)
from raglab.bandit.persistence import check_state
from raglab.bandit.propensity import propensities, sample
from raglab.extension_points import extension
from raglab.loops.compiled import check_engine, kernel_of
from raglab.loops.parallel import jobs, run_each
from raglab.progress import progress
from raglab.values import refuse
from raglab.words.html_display import Fold
from raglab.words.results import Result, Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

# played where costs are charged, in the place of a learner of successes (rule S4.5)
COST_FOLLOWER = "thompson_nig"


class Sums(Protocol):
    """What a learner knows in R replications: a `State`, or one beside the costs of a budget."""

    @property
    def net(self) -> State:
        """What a choice reads."""

    @property
    def price(self) -> Array:
        """Value lost a unit of cost at the next choice; NaN where nothing is charged."""

    def after_choice(self, arm: Ints, cost: Array, bandit: Bandit) -> Self:
        """After a round that chose these arms [R] and paid these costs [R]."""

    def after_rewards(self, rewards: Rewards, bandit: Bandit) -> Self:
        """After rewards of these replications, and what their arms cost."""


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


def first_ledger(
    initial: Sums | None,
    bandit: Bandit,
    world: World,
    budget: Budget | float | None,
    rounds: int = 0,
) -> Sums | None:
    """What a learner begins with: under a budget a ledger, with the budget that it is to keep now.

    Args:
      rounds: that are played; above 0 a budget below what they cost at least is refused.

    Raises:
      ValueError: a first state that the learner cannot go on from here, or a budget that it cannot
        keep.
    """
    if budget is not None:
        open_ledger = extension("open_ledger", "budgets", "a budget")
        ledger: Sums = open_ledger(initial, bandit, world, budget, rounds)
        return ledger
    if initial is None:
        return None
    if not isinstance(initial, State):
        rule = "initial must be a State, or with a budget a Ledger"
        refuse(rule, type(initial).__name__, "make it with learned_state")
    check_first_state(initial, bandit, world)
    return initial


def check_first_state(state: State, bandit: Bandit, world: World) -> None:
    """Refuse a first state the learner cannot go on from here.

    Raises:
      ValueError: a batch of states, other arms, features or window than the learner's.
    """
    check_state(state, bandit)
    n_features = len(world.feature_names) if bandit.linear and isinstance(world, Table) else 0
    shape = (*state.t.shape, state.n.shape[-1], state.moment.shape[-1])
    if shape != (world.n_arms, n_features):
        rule = (
            f"initial must be the state of one learner of {world.n_arms} arms and {n_features} "
            "features"
        )
        refuse(rule, shape, "make it with learned_state")


def repeated(value: Any, size: int) -> Any:  # noqa: ANN401 - arrays, or tuples of them
    """Value of each of so many replications that begin alike: arrays [R, ...], in tuples too."""
    if isinstance(value, np.ndarray):
        return np.broadcast_to(value, (size, *value.shape)).copy()
    if isinstance(value, tuple):
        return type(value)(*(repeated(part, size) for part in value))
    return value


def stepwise_arms(
    met: Feed,
    bandit: Bandit,
    rng: np.random.Generator,
    initial: Sums | None = None,
    *,
    decide: Callable[[int, Sums, NDArray[np.bool_] | None, Array], Ints] | None = None,
    turns: Iterable[int] | None = None,
) -> Arms:
    """Arms [T, R] of any learner, choice by choice: the reference of the compiled loops.

    Args:
      initial: sums of one learner that every replication begins with.
      decide: (round, sums, mask, context) to the arms [R]; by `choose` where None.
      turns: the rounds in order, where a bar shows them.
    """
    width = met.features.shape[1] if bandit.linear else 0
    begun = init(met.n_arms, bandit=bandit, n_features=width) if initial is None else initial
    sums: Sums = repeated(begun, met.size)
    arms = np.empty((met.rounds, met.size), np.int8)
    arrivals, everyone = _arrivals(met), np.arange(met.size)
    none = np.zeros((met.size, 0))
    for t in range(met.rounds) if turns is None else turns:
        context = met.features[met.row(t)] if bandit.linear else none
        if decide is None:
            arm = pick_arm(sums.net, bandit, rng, met.open(t), context).arm
        else:
            arm = decide(t, sums, met.open(t), context)
        arms[t] = arm
        # What a choice costs is known at once; what it is worth may come later, and is learned
        # beside its cost then.
        sums = sums.after_choice(arm, met.costs(t, everyone, arm), bandit)
        when, who = np.divmod(arrivals(t, arm), met.size)
        chosen = arms[when, who].astype(np.int64)
        reward = met.rewards(when, who, chosen)
        there = ~np.isnan(reward)  # a reward that never arrives teaches nothing
        when, who, chosen, reward = when[there], who[there], chosen[there], reward[there]
        x = none[who]
        if bandit.linear and met.case is not None:
            x = met.features[met.case[when, who]]
        cost = met.costs(when, who, chosen)
        sums = sums.after_rewards(Rewards(who, chosen, reward, t - when, x, cost), bandit)
    return arms


def _arrivals(met: Feed) -> Callable[[int, NDArray[np.int64]], NDArray[np.int64]]:
    """From a round and its arms [R] to choices (round * R + replication) rewarded in it.

    A delay may hang on the arm, so that it is known only when that is chosen.
    """
    waiting: dict[int, list[NDArray[np.int64]]] = {}
    delay = np.broadcast_to(met.delay, (met.rounds, met.size))

    def arrive(t: int, arm: NDArray[np.int64]) -> NDArray[np.int64]:
        late, choices = delay[t], t * met.size + np.arange(met.size)
        if met.arm_delay is not None and met.case is not None:
            late = met.arm_delay[met.case[t], arm]
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
    bandit: Bandit, world: World, rounds: int, replications: int, engine: str
) -> None:
    """Refuse what cannot be simulated.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    for name, count in (("rounds", rounds), ("replications", replications)):
        check_count(name, count, 1, "simulate at least one")
    check_engine(engine)
    if world.n_arms > np.iinfo(np.int8).max:
        refuse("a world has at most 127 arms", world.n_arms, "leave some out")
    n_features = len(world.feature_names) if isinstance(world, Table) else 0
    init(world.n_arms, bandit=bandit, n_features=n_features)


def is_plain(bandit: Bandit, met: Feed) -> bool:
    """Whether a compiled loop says what the learner would.

    Nothing delayed, missing or floored, nor forgotten.
    """
    reward = met.reward if met.mask is None else met.reward[met.mask]
    is_late = met.lost is not None or met.arm_delay is not None or np.any(met.delay)
    remembers = bandit.discount == 1.0 and bandit.window == 0 and bandit.history is None
    is_sure = bandit.floor == 0.0 and bandit.ties == "lowest"
    return bool(remembers and is_sure and not is_late and not np.isnan(reward).any())


def block_arms(
    bandit: Bandit,
    met: Feed,
    world: World,
    rng: np.random.Generator,
    *,
    work: float,
    engine: str,
    initial: Sums | None = None,
) -> Arms:
    """Arms [T, R] that a learner chooses of what it meets, by its compiled loop where one knows.

    Args:
      work: choices of the whole simulation, as `kernel` reads them.
      initial: as `first_ledger` gives it.

    Raises:
      ValueError: numba is asked for a learner whose loop does not know it.
    """
    # of first states the loops know those of linear learners
    is_known = initial is None or (isinstance(initial, State) and bandit.linear)
    plain = is_known and is_plain(bandit, met)
    if engine == "numba" and not plain:
        value = "one that forgets, or a floor, a budget, a first state or late rewards"
        refuse("engine numba plays plain learners", value, "use engine='auto'")
    twin = kernel(bandit, work, engine) if plain else None
    if twin is not None:
        arms: Arms = twin.played(met, bandit, rng, initial)
        return arms
    return stepwise_arms(_uncharged(met, world, initial), bandit, rng, initial)


def _uncharged(met: Feed, world: World, initial: Sums | None) -> Feed:
    """Feed whose rewards are before costs for a ledger, which charges them at its own price."""
    if initial is None or isinstance(initial, State) or not isinstance(world, Table):
        return met
    return met._replace(reward=world.priced(0.0).reward)


def simulate(
    policy: str,
    means: ArrayLike,
    *,
    rounds: int,
    replications: int,
    seed: int,
    mask: ArrayLike | None = None,
) -> Run:
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

    Raises:
      ValueError: means outside [0, 1], a round without an arm, an unknown policy, or rounds below
        1.

    Example:
      >>> simulate("ucb1", [0.5, 0.6], rounds=3, replications=2, seed=0).regret.shape
      (2, 3)
    """
    world = Bernoulli(np.asarray(means), None if mask is None else np.asarray(mask))
    return run(Bandit(policy), world, rounds=rounds, replications=replications, seed=seed)


def _played_block(
    block: tuple[int, int],
    policy: Bandit | Array,
    world: World,
    rounds: int,
    seed: int,
    late: tuple[tuple[int, int], float],
    settings: Mapping[str, Any],
) -> Accounts:
    """One block of replications, (number, size), of a learner or probabilities [1, A] or [N, A].

    The same bits wherever it runs.
    """
    number, size = block
    met = feed(world, rounds, size, seed, number, delay=late[0], missing=late[1])
    rng = stream(seed, number, POLICY)
    if isinstance(policy, Bandit):
        return play_accounts(met, block_arms(policy, met, world, rng, **settings))
    # who learns nothing takes the arm by the inverse of its distribution
    last = policy.shape[-1] - 1 - np.argmax(policy[:, ::-1] > 0.0, axis=-1)
    upper = np.cumsum(policy, axis=-1)
    upper[np.arange(policy.shape[-1]) >= last[:, None]] = np.inf
    chance = rng.random((rounds, size))
    rows = met.case if met.case is not None else np.arange(rounds)[:, None]
    arm = np.zeros((rounds, size), np.int8)
    for edge in upper.T[:-1]:
        arm += chance >= (edge[rows] if len(upper) > 1 else edge[0])
    return play_accounts(met, arm)


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
        spend = []
        if self.spend is not None:
            spend = [("mean spend at the end", value_text(self.spend[:, -1].mean()))]
        low, middle, high = map(value_text, np.quantile(self.regret[:, -1], (0.05, 0.5, 0.95)))
        facts = [
            ("replications", f"{len(self.regret):,}"),
            ("rounds", f"{self.regret.shape[1]:,}"),
            ("arms", f"{self.pulls.shape[1]}"),
            ("regret at the end", middle, f"5 % to 95 %: {low} to {high}"),
            *spend,
        ]
        share = self.pulls.sum(axis=0) / max(1, int(self.pulls.sum()))
        rows = ((str(arm), f"{arm_share:.1%}") for arm, arm_share in enumerate(share.tolist()))
        fold = Fold("share of pulls", rows, len(share), ("arm", "pulls"), open=True)
        return Summary(facts, {"pulls": fold}, self.notes)


def run(
    policy: Bandit | ArrayLike,
    world: World,
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    delay: int | tuple[int, int] = 0,
    missing: float = 0.0,
    initial: Sums | None = None,
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
    if isinstance(policy, str):
        rule = "a policy must be a Bandit or probabilities"
        refuse(rule, repr(policy), f"write Bandit({policy!r})")
    is_learner = isinstance(policy, Bandit)
    if budget is not None and not is_learner:
        remedy = "see fit_priced_policy and play_paced"
        refuse("a budget needs a learner", "probabilities", remedy)
    met, late = _checked_world(world, rounds, seed, delay, missing)
    learner, note = Bandit("ucb1"), ""
    if isinstance(policy, Bandit):
        learner, note = follow_costs(policy, met, charged=budget is not None)
    check_simulation(learner, met, rounds, replications, engine)
    first = _checked_start(initial, learner, met, budget, rounds, note, is_learner=is_learner)
    played = learner if isinstance(policy, Bandit) else _check_probabilities(policy, met, rounds)
    blocks = list(enumerate(replication_blocks(replications)))
    settings = {"engine": engine, "work": float(rounds * replications), "initial": first}
    shared = (played, met, rounds, seed, (late, missing), settings)
    with jobs(n_jobs):
        done = list(run_each(_played_block, blocks, *shared, what="simulate", unit="block"))
    parts: Any = (
        None if part[0] is None else np.concatenate(part) for part in zip(*done, strict=True)
    )
    whole = Run(*parts)
    over = _warn_unkept(
        budget, None if whole.spend is None else float(whole.spend[:, -1].mean()), rounds
    )
    price = met.price if isinstance(met, Table) else 0.0
    notes = tuple(filter(None, (note, over)))
    return whole._replace(price=price, arm_value=_arm_values(met, rounds), notes=notes)


def _checked_world(
    world: World, rounds: int, seed: int, delay: int | tuple[int, int], missing: float
) -> tuple[World, tuple[int, int]]:
    """World with arrays of the right types, and the least and greatest delay drawn in it.

    Raises:
      ValueError: as `run`; or the table states delays of its own.
    """
    check_count("rounds", rounds, 1, "simulate at least one")
    check_count("seed", seed, 0, "state a seed")
    met, late = check_world(world, rounds), check_delay(delay, missing)
    if late != (0, 0) and isinstance(met, Table) and met.delay is not None:
        value = f"{delay} beside the table's own"
        refuse("delay must be stated once", value, "leave one of them out")
    return met, late


def _checked_start(
    initial: Sums | None,
    learner: Bandit,
    world: World,
    budget: Budget | float | None,
    rounds: int,
    note: str,
    *,
    is_learner: bool = True,
) -> Sums | None:
    """What a learner begins with; the note, if it is played in the place of another, is warned of.

    Raises:
      ValueError: as `first_ledger`; or a first state of another learner.
    """
    first = first_ledger(initial, learner, world, budget, rounds)
    if initial is not None and (note or not is_learner):
        rule = "an initial state must be of the learner that is played"
        refuse(rule, note or "a fixed policy", "leave it out")
    if note:
        warn_user(note)
    return first


def _warn_unkept(budget: Budget | float | None, spend: float | None, rounds: int) -> str:
    """Note of a budget that was not kept, which is warned of too.

    Nothing where it was, or where there is none.

    Args:
      spend: in all rounds.
    """
    if budget is None or spend is None:
        return ""
    unkept_note = extension("unkept_note", "budgets", "a budget")
    note: str = unkept_note(budget, spend / rounds, rounds)
    if note:
        warn_user(note)
    return note


def _arm_values(world: World, rounds: int) -> Array | None:
    """Value of each arm a round, [T, A], if all replications meet the same rounds, which differ."""
    if isinstance(world, Table):
        value, mask = world.value[:rounds], world.mask[:rounds]
        return np.where(mask, value, np.nan) if world.order == "given" else None
    if world.means.ndim == 1:
        return None
    return world.means if world.mask is None else np.where(world.mask, world.means, np.nan)


def _check_probabilities(policy: ArrayLike, world: World, rounds: int) -> Array:
    """Probabilities as float64, [1, A] or [N, A]."""
    probabilities = np.asarray(policy, dtype=np.float64)
    met = feed(world, 1 if isinstance(world, Table) else rounds, 1, 0, 0)
    if probabilities.shape not in {(met.n_arms,), met.worth.shape}:
        rule = f"a policy must be a Bandit, [{met.n_arms}], or {met.worth.shape}"
        refuse(rule, probabilities.shape, "give a number an arm")
    rows = np.atleast_2d(probabilities)
    check_plan(rows, "a policy")
    if met.mask is not None and (np.broadcast_to(rows, met.mask.shape)[~met.mask] > 0.0).any():
        refuse("a policy may give nothing to an unavailable arm", "some", "give a row a case")
    return rows


def log(
    bandit: Bandit,
    world: World,
    *,
    rounds: int,
    seed: int = 0,
    delay: int | tuple[int, int] = 0,
    initial: Sums | None = None,
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

    checked, late = _checked_world(world, rounds, seed, delay, 0.0)
    learner, note = follow_costs(bandit, checked, charged=budget is not None)
    first = _checked_start(initial, learner, checked, budget, rounds, note)
    met = feed(checked, rounds, 1, seed, 0, delay=late)
    met = _uncharged(met, checked, first)
    # the uniforms come from the policy's own stream, as everywhere
    rng = stream(seed, 0, POLICY)
    chance = rng.random(rounds)
    share, price = np.empty((rounds, met.n_arms)), np.empty(rounds)

    def decide(t: int, sums: Sums, mask: NDArray[np.bool_] | None, context: Array) -> Ints:
        # read before the round is counted, and the arm is drawn by them: so they are exact
        share[t] = propensities(sums.net, learner, mask=mask, context=context)[0]
        price[t] = sums.price[0]
        return sample(share[t : t + 1], chance[t : t + 1])

    turns = progress(range(rounds), "log", "round")
    action = stepwise_arms(met, learner, rng, first, decide=decide, turns=turns)[:, 0]
    arm, nobody, at = action.astype(np.int64), np.zeros(rounds, np.int64), np.arange(rounds)
    case = np.full(rounds, -1) if met.case is None else met.case[:, 0].astype(np.int64)
    rows = case if met.case is not None else at % len(met.worth)
    cost = met.costs(at, nobody, arm)
    _warn_unkept(budget, float(cost.sum()), rounds)
    waited = np.broadcast_to(met.delay, (rounds, 1))[:, 0]
    names = checked.arms if isinstance(checked, Table) else [str(a) for a in range(met.n_arms)]
    return pd.DataFrame(
        {
            "action": arm,
            "arm": [names[number] for number in arm],
            "reward": met.rewards(at, nobody, arm),
            "propensity": share[at, arm],
            "case": case,
            "value": met.worth[rows, arm],
            "cost": cost,
            "delay": waited if met.arm_delay is None else met.arm_delay[rows, arm],
            **({} if budget is None else {"price": price}),
            **{f"p_{name}": share[:, number] for number, name in enumerate(names)},
        }
    )
