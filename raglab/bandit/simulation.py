"""Bandit simulation (algebra): replications of a learner in an environment.

The log a live one would write (S4.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.budget import Budget
from raglab.bandit.environments import (
    POLICY_STREAM,
    Accounts,
    Arms,
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
from raglab.bandit.learner import LEARNERS, Bandit, Rewards, State, check_count, init, pick_arm
from raglab.bandit.persistence import check_state
from raglab.bandit.propensity import propensities, sample
from raglab.extension_points import extension
from raglab.loops.compiled import check_engine, kernel_of
from raglab.loops.parallel import jobs, run_each
from raglab.progress import progress
from raglab.values import BoolArray, FloatArray, IntArray, NumberArray, refuse
from raglab.words.html_display import Fold
from raglab.words.results import Result, Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

# played where costs are charged, in the place of a learner of successes (rule S4.5)
COST_AWARE_ALGORITHM = "thompson_nig"


class Sums(Protocol):
    """What a learner knows in R replications: a `State`, or one beside the costs of a budget."""

    @property
    def net(self) -> State:
        """What a choice reads."""

    @property
    def price(self) -> FloatArray:
        """Value lost a unit of cost at the next choice; NaN where nothing is charged."""

    def after_choice(self, arm: IntArray, cost: FloatArray, bandit: Bandit) -> Self:
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
        refuse(
            f"a history of {bandit.algorithm} counts successes, which cannot follow costs",
            "one beside costs",
            f"make it with history_of for {COST_AWARE_ALGORITHM}",
        )
    return bandit._replace(algorithm=COST_AWARE_ALGORITHM), (
        f"{bandit.algorithm} counts rewards above {bandit.threshold:g} and cannot follow costs; "
        f"{COST_AWARE_ALGORITHM} is played instead (rule S4.5)."
    )


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
        refuse(
            "initial must be a State, or with a budget a Ledger",
            type(initial).__name__,
            "make it with learned_state",
        )
    check_first_state(initial, bandit, world)
    return initial


def check_first_state(state: State, bandit: Bandit, world: World) -> None:
    """Refuse a first state the learner cannot go on from here.

    Raises:
      ValueError: a batch of states, other arms, features or window than the learner's.
    """
    check_state(state, bandit)
    n_features = len(world.feature_names) if bandit.linear and isinstance(world, Table) else 0
    state_sizes = (*state.t.shape, state.n.shape[-1], state.moment.shape[-1])
    if state_sizes != (world.n_arms, n_features):
        refuse(
            (
                f"initial must be the state of one learner of {world.n_arms} arms and {n_features} "
                "features"
            ),
            state_sizes,
            "make it with learned_state",
        )


def repeated(initial_value: Any, n_replications: int) -> Any:  # noqa: ANN401 - arrays, or tuples of them
    """Value of each of so many replications that begin alike: arrays [R, ...], in tuples too."""
    if isinstance(initial_value, np.ndarray):
        return np.broadcast_to(initial_value, (n_replications, *initial_value.shape)).copy()
    if isinstance(initial_value, tuple):
        return type(initial_value)(*(repeated(part, n_replications) for part in initial_value))
    return initial_value


def stepwise_arms(
    block_feed: Feed,
    bandit: Bandit,
    rng: np.random.Generator,
    initial: Sums | None = None,
    *,
    decide: Callable[[int, Sums, BoolArray | None, FloatArray], IntArray] | None = None,
    round_order: Iterable[int] | None = None,
) -> Arms:
    """Arms [T, R] of any learner, choice by choice: the reference of the compiled loops.

    Args:
      initial: sums of one learner that every replication begins with.
      decide: (round, sums, mask, context) to the arms [R]; by `choose` where None.
      round_order: the rounds in order, where a bar shows them.
    """
    n_features = block_feed.features.shape[1] if bandit.linear else 0
    first_state = (
        init(block_feed.n_arms, bandit=bandit, n_features=n_features)
        if initial is None
        else initial
    )
    sums: Sums = repeated(first_state, block_feed.size)
    chosen_arms = np.empty((block_feed.rounds, block_feed.size), np.int8)
    arrivals_of_round = _arrivals(block_feed)
    all_replications = np.arange(block_feed.size)
    no_context = np.zeros((block_feed.size, 0))
    for round_index in range(block_feed.rounds) if round_order is None else round_order:
        context = block_feed.features[block_feed.row(round_index)] if bandit.linear else no_context
        if decide is None:
            round_arms = pick_arm(sums.net, bandit, rng, block_feed.open(round_index), context).arm
        else:
            round_arms = decide(round_index, sums, block_feed.open(round_index), context)
        chosen_arms[round_index] = round_arms
        # The cost of a choice is known at once; its reward may come later, and is then learned
        # together with the cost.
        sums = sums.after_choice(
            round_arms, block_feed.costs(round_index, all_replications, round_arms), bandit
        )
        choice_rounds, choice_replications = np.divmod(
            arrivals_of_round(round_index, round_arms), block_feed.size
        )
        rewarded_arms = chosen_arms[choice_rounds, choice_replications].astype(np.int64)
        rewards = block_feed.rewards(choice_rounds, choice_replications, rewarded_arms)
        is_rewarded = ~np.isnan(rewards)  # a reward that never arrives teaches nothing
        choice_rounds, choice_replications, rewarded_arms, rewards = (
            choice_rounds[is_rewarded],
            choice_replications[is_rewarded],
            rewarded_arms[is_rewarded],
            rewards[is_rewarded],
        )
        contexts = no_context[choice_replications]
        if bandit.linear and block_feed.case is not None:
            contexts = block_feed.features[block_feed.case[choice_rounds, choice_replications]]
        paid_costs = block_feed.costs(choice_rounds, choice_replications, rewarded_arms)
        sums = sums.after_rewards(
            Rewards(
                choice_replications,
                rewarded_arms,
                rewards,
                round_index - choice_rounds,
                contexts,
                paid_costs,
            ),
            bandit,
        )
    return chosen_arms


def _arrivals(block_feed: Feed) -> Callable[[int, IntArray], IntArray]:
    """From a round and its arms [R] to choices (round * R + replication) rewarded in it.

    A delay may depend on the arm, and is then known only when the arm is chosen.
    """
    waiting_choices: dict[int, list[IntArray]] = {}
    delays = np.broadcast_to(block_feed.delay, (block_feed.rounds, block_feed.size))

    def arrive(round_index: int, arm: IntArray) -> IntArray:
        round_delays = delays[round_index]
        choices = round_index * block_feed.size + np.arange(block_feed.size)
        if block_feed.arm_delay is not None and block_feed.case is not None:
            round_delays = block_feed.arm_delay[block_feed.case[round_index], arm]
        if block_feed.lost is not None:
            round_delays = round_delays[~block_feed.lost[round_index]]
            choices = choices[~block_feed.lost[round_index]]
        for waited_rounds in np.unique(round_delays).tolist():
            waiting_choices.setdefault(round_index + waited_rounds, []).append(
                choices[round_delays == waited_rounds]
            )
        return np.concatenate(waiting_choices.pop(round_index, [choices[:0]]))

    return arrive


def kernel(bandit: Bandit, n_choices: float, engine: str) -> Any:  # noqa: ANN401 - a module
    """The compiled twins; none where NumPy is to do the work, so many choices.

    Raises:
      ValueError: numba is asked for, and a learner has no compiled loop.
      ImportError: numba is asked for, and is not installed.
    """
    entry = LEARNERS[bandit.algorithm]
    if engine == "numpy" or (
        engine == "auto" and (entry.compiled is None or n_choices < entry.pays)
    ):
        return None
    if entry.compiled is None:
        compiled_names = [
            algorithm_name
            for algorithm_name, learner in LEARNERS.items()
            if learner.compiled is not None
        ]
        refuse(
            f"engine numba plays {', '.join(compiled_names)}", bandit.algorithm, "use engine='auto'"
        )
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


def is_plain(bandit: Bandit, block_feed: Feed) -> bool:
    """Whether a compiled loop says what the learner would.

    Nothing delayed, missing or floored, nor forgotten.
    """
    open_rewards = (
        block_feed.reward if block_feed.mask is None else block_feed.reward[block_feed.mask]
    )
    has_late_rewards = (
        block_feed.lost is not None or block_feed.arm_delay is not None or np.any(block_feed.delay)
    )
    forgets_nothing = bandit.discount == 1.0 and bandit.window == 0 and bandit.history is None
    takes_best_arm = bandit.floor == 0.0 and bandit.ties == "lowest"
    return bool(
        forgets_nothing
        and takes_best_arm
        and not has_late_rewards
        and not np.isnan(open_rewards).any()
    )


def block_arms(
    bandit: Bandit,
    block_feed: Feed,
    world: World,
    rng: np.random.Generator,
    *,
    n_choices: float,
    engine: str,
    initial: Sums | None = None,
) -> Arms:
    """Arms [T, R] that a learner chooses of what it meets, by its compiled loop where one knows.

    Args:
      n_choices: choices of the whole simulation, as `kernel` reads them.
      initial: as `first_ledger` gives it.

    Raises:
      ValueError: numba is asked for a learner whose loop does not know it.
    """
    # of first states the loops know those of linear learners
    is_initial_supported = initial is None or (isinstance(initial, State) and bandit.linear)
    is_compilable = is_initial_supported and is_plain(bandit, block_feed)
    if engine == "numba" and not is_compilable:
        refuse(
            "engine numba plays plain learners",
            "one that forgets, or a floor, a budget, a first state or late rewards",
            "use engine='auto'",
        )
    compiled_twin = kernel(bandit, n_choices, engine) if is_compilable else None
    if compiled_twin is not None:
        chosen_arms: Arms = compiled_twin.played(block_feed, bandit, rng, initial)
        return chosen_arms
    return stepwise_arms(_uncharged(block_feed, world, initial), bandit, rng, initial)


def _uncharged(block_feed: Feed, world: World, initial: Sums | None) -> Feed:
    """Feed whose rewards are before costs for a ledger, which charges them at its own price."""
    if initial is None or isinstance(initial, State) or not isinstance(world, Table):
        return block_feed
    return block_feed._replace(reward=world.priced(0.0).reward)


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
    policy: Bandit | FloatArray,
    world: World,
    rounds: int,
    seed: int,
    delay_settings: tuple[tuple[int, int], float],
    settings: Mapping[str, Any],
) -> Accounts:
    """One block of replications, (number, size), of a learner or probabilities [1, A] or [N, A].

    The same bits wherever it runs.
    """
    block_number, n_replications = block
    block_feed = feed(
        world,
        rounds,
        n_replications,
        seed,
        block_number,
        delay=delay_settings[0],
        missing=delay_settings[1],
    )
    rng = stream(seed, block_number, POLICY_STREAM)
    if isinstance(policy, Bandit):
        return play_accounts(block_feed, block_arms(policy, block_feed, world, rng, **settings))
    # who learns nothing takes the arm by the inverse of its distribution
    last_possible_arms = policy.shape[-1] - 1 - np.argmax(policy[:, ::-1] > 0.0, axis=-1)
    cumulative_probabilities = np.cumsum(policy, axis=-1)
    cumulative_probabilities[np.arange(policy.shape[-1]) >= last_possible_arms[:, None]] = np.inf
    uniforms = rng.random((rounds, n_replications))
    plan_rows = block_feed.case if block_feed.case is not None else np.arange(rounds)[:, None]
    chosen_arms = np.zeros((rounds, n_replications), np.int8)
    for arm_boundary in cumulative_probabilities.T[:-1]:
        chosen_arms += uniforms >= (
            arm_boundary[plan_rows] if len(cumulative_probabilities) > 1 else arm_boundary[0]
        )
    return play_accounts(block_feed, chosen_arms)


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

    regret: FloatArray
    value: FloatArray
    pulls: IntArray
    arm: Arms
    case: NumberArray | None
    spend: FloatArray | None = None
    price: float = 0.0
    arm_value: FloatArray | None = None
    notes: tuple[str, ...] = ()


class Run(Result, RunArrays):
    """Outcome of a policy in a world; its fields are those of `RunArrays`."""

    def frame(self) -> pd.DataFrame:
        """A row a replication.

        Value and regret at the end, spend where choices cost, rounds that chose each arm.
        """
        import pandas as pd

        spend_column = {} if self.spend is None else {"spend": self.spend[:, -1]}
        pull_columns = {f"pulls_{arm}": arm_pulls for arm, arm_pulls in enumerate(self.pulls.T)}
        return pd.DataFrame(
            {
                "value": self.value[:, -1],
                "regret": self.regret[:, -1],
                **spend_column,
                **pull_columns,
            }
        )

    @property
    def gross(self) -> FloatArray:
        """Cumulative value before costs, [R, T]."""
        return self.value if self.spend is None else self.value + self.price * self.spend

    def _summary(self) -> Summary:
        spend_facts = []
        if self.spend is not None:
            spend_facts = [("mean spend at the end", value_text(self.spend[:, -1].mean()))]
        low_regret, median_regret, high_regret = map(
            value_text, np.quantile(self.regret[:, -1], (0.05, 0.5, 0.95))
        )
        facts = [
            ("replications", f"{len(self.regret):,}"),
            ("rounds", f"{self.regret.shape[1]:,}"),
            ("arms", f"{self.pulls.shape[1]}"),
            ("regret at the end", median_regret, f"5 % to 95 %: {low_regret} to {high_regret}"),
            *spend_facts,
        ]
        pull_shares = self.pulls.sum(axis=0) / max(1, int(self.pulls.sum()))
        share_rows = (
            (str(arm), f"{arm_share:.1%}") for arm, arm_share in enumerate(pull_shares.tolist())
        )
        fold = Fold("share of pulls", share_rows, len(pull_shares), ("arm", "pulls"), open=True)
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
        refuse(
            "a policy must be a Bandit or probabilities", repr(policy), f"write Bandit({policy!r})"
        )
    is_learner = isinstance(policy, Bandit)
    if budget is not None and not is_learner:
        refuse("a budget needs a learner", "probabilities", "see fit_priced_policy and play_paced")
    checked_world, delay_range = _checked_world(world, rounds, seed, delay, missing)
    # fixed probabilities need a learner only for the checks below: any will do
    learner = Bandit("ucb1")
    cost_note = ""
    if isinstance(policy, Bandit):
        learner, cost_note = follow_costs(policy, checked_world, charged=budget is not None)
    check_simulation(learner, checked_world, rounds, replications, engine)
    first_state = _checked_start(
        initial, learner, checked_world, budget, rounds, cost_note, is_learner=is_learner
    )
    played_policy = (
        learner
        if isinstance(policy, Bandit)
        else _check_probabilities(policy, checked_world, rounds)
    )
    # A block has its own stream of chance, so that its bits do not depend on the process.
    replication_sizes = list(enumerate(replication_blocks(replications)))
    block_settings = {
        "engine": engine,
        "n_choices": float(rounds * replications),
        "initial": first_state,
    }
    block_arguments = (
        played_policy,
        checked_world,
        rounds,
        seed,
        (delay_range, missing),
        block_settings,
    )
    with jobs(n_jobs):
        block_accounts = list(
            run_each(
                _played_block, replication_sizes, *block_arguments, what="simulate", unit="block"
            )
        )
    run_arrays: Any = (
        None if block_arrays[0] is None else np.concatenate(block_arrays)
        for block_arrays in zip(*block_accounts, strict=True)
    )
    simulated_run = Run(*run_arrays)
    # a pacer keeps its budget in the long run only, so that a short run may be over it
    budget_note = _warn_unkept(
        budget,
        None if simulated_run.spend is None else float(simulated_run.spend[:, -1].mean()),
        rounds,
    )
    price = checked_world.price if isinstance(checked_world, Table) else 0.0
    notes = tuple(filter(None, (cost_note, budget_note)))
    return simulated_run._replace(
        price=price, arm_value=_arm_values(checked_world, rounds), notes=notes
    )


def _checked_world(
    world: World, rounds: int, seed: int, delay: int | tuple[int, int], missing: float
) -> tuple[World, tuple[int, int]]:
    """World with arrays of the right types, and the least and greatest delay drawn in it.

    Raises:
      ValueError: as `run`; or the table states delays of its own.
    """
    check_count("rounds", rounds, 1, "simulate at least one")
    check_count("seed", seed, 0, "state a seed")
    checked_world = check_world(world, rounds)
    delay_range = check_delay(delay, missing)
    if (
        delay_range != (0, 0)
        and isinstance(checked_world, Table)
        and checked_world.delay is not None
    ):
        refuse(
            "delay must be stated once", f"{delay} beside the table's own", "leave one of them out"
        )
    return checked_world, delay_range


def _checked_start(
    initial: Sums | None,
    learner: Bandit,
    world: World,
    budget: Budget | float | None,
    rounds: int,
    cost_note: str,
    *,
    is_learner: bool = True,
) -> Sums | None:
    """What a learner begins with; the note, if it is played in the place of another, is warned of.

    Raises:
      ValueError: as `first_ledger`; or a first state of another learner.
    """
    first_state = first_ledger(initial, learner, world, budget, rounds)
    if initial is not None and (cost_note or not is_learner):
        refuse(
            "an initial state must be of the learner that is played",
            cost_note or "a fixed policy",
            "leave it out",
        )
    if cost_note:
        warn_user(cost_note)
    return first_state


def _warn_unkept(budget: Budget | float | None, total_spend: float | None, rounds: int) -> str:
    """Note of a budget that was not kept, which is warned of too.

    Nothing where it was, or where there is none.

    Args:
      total_spend: in all rounds.
    """
    if budget is None or total_spend is None:
        return ""
    unkept_note = extension("unkept_note", "budgets", "a budget")
    budget_note: str = unkept_note(budget, total_spend / rounds, rounds)
    if budget_note:
        warn_user(budget_note)
    return budget_note


def _arm_values(world: World, rounds: int) -> FloatArray | None:
    """Value of each arm a round, [T, A], if all replications meet the same rounds, which differ."""
    if isinstance(world, Table):
        values = world.value[:rounds]
        mask = world.mask[:rounds]
        return np.where(mask, values, np.nan) if world.order == "given" else None
    if world.means.ndim == 1:
        return None
    return world.means if world.mask is None else np.where(world.mask, world.means, np.nan)


def _check_probabilities(policy: ArrayLike, world: World, rounds: int) -> FloatArray:
    """Probabilities as float64, [1, A] or [N, A]."""
    probabilities = np.asarray(policy, dtype=np.float64)
    world_feed = feed(world, 1 if isinstance(world, Table) else rounds, 1, 0, 0)
    if probabilities.shape not in {(world_feed.n_arms,), world_feed.worth.shape}:
        refuse(
            f"a policy must be a Bandit, [{world_feed.n_arms}], or {world_feed.worth.shape}",
            probabilities.shape,
            "give a number an arm",
        )
    probability_rows = np.atleast_2d(probabilities)
    check_plan(probability_rows, "a policy")
    if (
        world_feed.mask is not None
        and (np.broadcast_to(probability_rows, world_feed.mask.shape)[~world_feed.mask] > 0.0).any()
    ):
        refuse("a policy may give nothing to an unavailable arm", "some", "give a row a case")
    return probability_rows


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

    checked_world, delay_range = _checked_world(world, rounds, seed, delay, 0.0)
    learner, cost_note = follow_costs(bandit, checked_world, charged=budget is not None)
    first_state = _checked_start(initial, learner, checked_world, budget, rounds, cost_note)
    # one replication is the first of the simulation's block 0, with the same chance
    world_feed = feed(checked_world, rounds, 1, seed, 0, delay=delay_range)
    world_feed = _uncharged(world_feed, checked_world, first_state)
    # the uniforms come from the policy's own stream, as everywhere
    rng = stream(seed, 0, POLICY_STREAM)
    uniforms = rng.random(rounds)
    arm_probabilities = np.empty((rounds, world_feed.n_arms))
    round_prices = np.empty(rounds)

    def decide(
        round_index: int, sums: Sums, mask: BoolArray | None, context: FloatArray
    ) -> IntArray:
        # Propensities are exact because they are read before the round is counted, and the arm is
        # drawn by them.
        arm_probabilities[round_index] = propensities(
            sums.net, learner, mask=mask, context=context
        )[0]
        round_prices[round_index] = sums.price[0]
        return sample(
            arm_probabilities[round_index : round_index + 1],
            uniforms[round_index : round_index + 1],
        )

    round_order = progress(range(rounds), "log", "round")
    chosen_arms = stepwise_arms(
        world_feed, learner, rng, first_state, decide=decide, round_order=round_order
    )[:, 0]
    arm_numbers, replication_zero, round_indices = (
        chosen_arms.astype(np.int64),
        np.zeros(rounds, np.int64),
        np.arange(rounds),
    )
    case_rows = (
        np.full(rounds, -1) if world_feed.case is None else world_feed.case[:, 0].astype(np.int64)
    )
    # known means have a row a round, or one row for all rounds
    worth_rows = case_rows if world_feed.case is not None else round_indices % len(world_feed.worth)
    paid_costs = world_feed.costs(round_indices, replication_zero, arm_numbers)
    _warn_unkept(budget, float(paid_costs.sum()), rounds)
    delays = np.broadcast_to(world_feed.delay, (rounds, 1))[:, 0]
    arm_names = (
        checked_world.arms
        if isinstance(checked_world, Table)
        else [str(arm_index) for arm_index in range(world_feed.n_arms)]
    )
    return pd.DataFrame(
        {
            "action": arm_numbers,
            "arm": [arm_names[arm_number] for arm_number in arm_numbers],
            "reward": world_feed.rewards(round_indices, replication_zero, arm_numbers),
            "propensity": arm_probabilities[round_indices, arm_numbers],
            "case": case_rows,
            "value": world_feed.worth[worth_rows, arm_numbers],
            "cost": paid_costs,
            "delay": delays
            if world_feed.arm_delay is None
            else world_feed.arm_delay[worth_rows, arm_numbers],
            **({} if budget is None else {"price": round_prices}),
            **{
                f"p_{name}": arm_probabilities[:, arm_number]
                for arm_number, name in enumerate(arm_names)
            },
        }
    )
