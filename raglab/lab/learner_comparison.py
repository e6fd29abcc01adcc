"""Comparison of learners (shore): with policies that learn nothing, over fresh tables (S4.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.budget import Budget
from raglab.bandit.environments import Bernoulli, Table
from raglab.bandit.fixed_plans import FIXED_PLAN, ORACLE_PLAN, UNIFORM_PLAN, baselines, greedy_arms
from raglab.bandit.learner import Bandit
from raglab.bandit.simulation import Run, follow_costs, run
from raglab.lab.fresh_tables import (
    FRESH_REPLICATIONS,
    Account,
    FreshTables,
    best_arm_values,
    by_turns,
    difference_interval,
    draw_fresh_tables,
    learner_values,
    plan_values,
)
from raglab.metrics import clopper_pearson
from raglab.metrics.intervals import mean_interval
from raglab.progress import progress
from raglab.values import AnyArray, FloatArray, NumberArray, refuse
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

MIN_TIMED_ROUNDS = 1e-12


@dataclass(frozen=True, repr=False)
class LearnerComparison(Result):
    """Learners and baselines that met the same cases in the same order.

    table: a row a policy, as `compare_learners` describes it. runs: name -> run, of the learners.
    reference: what `difference` is taken against. notes: what flatters, and which learner was
    played as another.
    """

    table: pd.DataFrame
    runs: Mapping[str, Run]
    reference: str
    notes: tuple[str, ...] = ()

    def _summary(self) -> Summary:
        facts = [("policies", ", ".join(self.table["policy"])), ("reference", self.reference)]
        return Summary(facts, {"policies": self.table}, self.notes)


class Earnings(NamedTuple):
    """What a policy came to: value of each replication and case, [R, Q].

    ms: mean of a round, of the rounds where it is known; NaN where none are. pulls: of all rounds
    of all replications, [A].
    """

    value: FloatArray
    ms: float
    pulls: FloatArray


def compare_learners(
    world: Table,
    learners: Mapping[str, Bandit | tuple[Bandit, FloatArray]] | None = None,
    plans: Mapping[str, FloatArray] | None = None,
    *,
    rounds: int | None = None,
    replications: int = 20,
    seed: int = 0,
    reference: str = FIXED_PLAN,
    level: float = 0.95,
    n_boot: int = FRESH_REPLICATIONS,
    engine: str = "auto",
    n_jobs: int = 1,
    fixed: str | None = None,
    budgets: Mapping[str, Budget] | None = None,
) -> LearnerComparison:
    """Learners and policies that learn nothing, on the same cases in the same order.

    Intervals are of the expectation over fresh tables of as many cases from the same population,
    and over fresh chance: what the learner earns there in `rounds` rounds, minus what the reference
    earns on the same tables. Learners are trained again on tables drawn from the cases, and on
    tables in which arms do not differ (see `fresh_tables`); one case has no intervals. The best
    fixed arm is chosen on the table that it is judged on, so that its value flatters; it is chosen
    again on each table drawn, and the notes state by how much. A difference against it is one
    against that flattered value: whether it is better than a learner, only an arm chosen on other
    cases can show (`fixed`).

    Args:
      world: table of all arms of every case.
      learners: name -> settings, or settings and rewards [Q, A] in the place of the world's; ucb1
        and thompson_nig where None, and lin_ucb if the table has features.
      plans: name -> probabilities [Q, A], `baselines` where None; their expected value is taken,
        so that they add no chance.
      rounds: of each replication; as many as cases where None.
      replications: on the table itself.
      seed: of the world and of the learners.
      reference: name of the policy that `difference` compares with; the first policy where it is
        missing.
      level: of the intervals.
      n_boot: replications on tables drawn from the cases, in which every learner is trained again;
        at least 8.
      engine: as for `bandit.run`.
      n_jobs: processes, as joblib counts them.
      fixed: arm of the plan `best fixed arm`, where it was chosen on other cases; as for
        `baselines`.
      budgets: name of a learner -> budget that it keeps, as for `bandit.run`.

    Returns:
      `table`, a row a policy: `policy`, `right` (mean value a round, with `_low`, `_high`),
        `regret` (value lost in all rounds against the best available arm of each case, likewise),
        `difference` (`right` minus that of the reference, paired, likewise), `ms` (mean of the
        known), and `pulls_<arm>` (share of the rounds).

    Raises:
      ValueError: neither learners nor plans; a learner that is no `Bandit`, or a plan of another
        shape than [Q, A].

    Source: rule S4.7.
    """
    import pandas as pd

    players, plans = _players(world, learners, plans)
    rounds = len(world.mask) if rounds is None else rounds
    trained_learners = _checked_players(world, players, plans)
    run_sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed}
    budget_by_learner: Mapping[str, Budget] = budgets or {}
    engine_settings: dict[str, Any] = {"engine": engine, "n_jobs": n_jobs}
    runs = {
        policy_name: run(
            learner_settings,
            learner_table,
            **run_sizes,
            **engine_settings,
            budget=budget_by_learner.get(policy_name),
        )
        for policy_name, (learner_settings, learner_table) in progress(
            trained_learners.items(), "simulate", "learner"
        )
    }
    played_run = (
        next(iter(runs.values())) if runs else run(next(iter(plans.values())), world, **run_sizes)
    )
    case_draws = _per_case(cast("NDArray[np.int32]", played_run.case), len(world.mask))
    # The same cases for all: what chance the draws leave is the same on both sides of a difference.
    earnings_by_policy = {
        policy_name: run_earnings(learner_run, world) for policy_name, learner_run in runs.items()
    }
    earnings_by_policy |= {
        policy_name: expected_earnings(fixed_plan, case_draws, world)
        for policy_name, fixed_plan in plans.items()
    }
    best_arms = greedy_arms(world.value, world.mask)
    best_earnings = expected_earnings(best_arms, case_draws, world)
    reference_name = _checked_reference(reference, list(earnings_by_policy))
    # Intervals: every learner is trained again on tables drawn from the cases, the same tables for
    # all.
    fresh_tables = draw_fresh_tables(world, rounds, n_boot, seed)
    turned_tables = by_turns(world)
    accounts = _plan_accounts(plans, earnings_by_policy, best_earnings, turned_tables, fresh_tables)
    total_choices = float(rounds * (replications + n_boot) * len(trained_learners))
    rerun_settings: dict[str, Any] = {
        "seed": seed,
        "engine": engine,
        "total_choices": total_choices,
    }
    for policy_name, (learner_settings, learner_table) in trained_learners.items():
        learner, _ = follow_costs(
            learner_settings, learner_table, charged=policy_name in budget_by_learner
        )
        fresh_values = learner_values(
            learner,
            learner_table,
            fresh_tables,
            budget=budget_by_learner.get(policy_name),
            **rerun_settings,
        )
        mean_values = earnings_by_policy[policy_name].value.sum(axis=1) / rounds
        # What a learner does in a case is not the same on every table.
        accounts[policy_name] = Account(
            mean_values, np.zeros(len(world.mask)), *fresh_values, fixed=False
        )
    comparison_notes = []
    if FIXED_PLAN in plans and fixed is None and len(world.mask) > 1:
        accounts[FIXED_PLAN], flattery_note = _chosen_arm_account(
            accounts[FIXED_PLAN], turned_tables, fresh_tables
        )
        comparison_notes.append(flattery_note)
    policy_rows = _comparison_rows(
        earnings_by_policy, best_earnings, accounts, reference_name, rounds, level
    )
    pull_shares = [
        _pull_shares(earnings.pulls, world.arms) for earnings in earnings_by_policy.values()
    ]
    comparison_table = pd.DataFrame(
        [
            policy_row | pull_columns
            for policy_row, pull_columns in zip(policy_rows, pull_shares, strict=True)
        ]
    )
    comparison_notes += [
        f"{policy_name}: {flattery_note}"
        for policy_name in runs
        for flattery_note in runs[policy_name].notes
    ]
    return LearnerComparison(comparison_table, runs, reference_name, tuple(comparison_notes))


def _checked_reference(reference: str, policy_names: Sequence[str]) -> str:
    """Name of the policy that `difference` compares with: the first if the default is missing."""
    if reference not in policy_names and reference != FIXED_PLAN:
        refuse(
            "reference must name a learner or a plan",
            repr(reference),
            f"write one of {policy_names}",
        )
    return reference if reference in policy_names else policy_names[0]


def _players(
    world: Table,
    learners: Mapping[str, Bandit | tuple[Bandit, FloatArray]] | None,
    plans: Mapping[str, FloatArray] | None,
) -> tuple[Mapping[str, Bandit | tuple[Bandit, FloatArray]], Mapping[str, FloatArray]]:
    """Learners and plans; where none are stated a linear one too, if the table has features."""
    linear = ["lin_ucb"] if world.features.shape[1] > 1 else []
    algorithms = ["ucb1", "thompson_nig", *linear]
    return (
        {name: Bandit(name) for name in algorithms} if learners is None else learners,
        baselines(world) if plans is None else plans,
    )


def _checked_players(
    world: Table,
    learners: Mapping[str, Bandit | tuple[Bandit, FloatArray]],
    plans: Mapping[str, FloatArray],
) -> dict[str, tuple[Bandit, Table]]:
    """Learners with the tables that they are trained on; plans are checked by their shape."""
    if not learners and not plans:
        refuse("there must be a learner or a plan", "none", "write plans=bandit.baselines(table)")
    trained_learners: dict[str, tuple[Bandit, Table]] = {}
    for policy_name, player_settings in learners.items():
        learner_settings, seen_reward = (
            player_settings
            if isinstance(player_settings, tuple)
            else (player_settings, world.reward)
        )
        if not isinstance(learner_settings, Bandit):
            player_rule = f"learner {policy_name!r} must be a Bandit, or a Bandit and rewards"
            refuse(player_rule, f"{learner_settings!r:.80}", "write Bandit('ucb1')")
        trained_learners[policy_name] = learner_settings, world._replace(reward=seen_reward)
    for policy_name, fixed_plan in plans.items():
        plan_shape = np.shape(fixed_plan)
        if plan_shape != world.mask.shape:
            player_rule = f"plan {policy_name!r} must be [Q, A], {list(world.mask.shape)}"
            wrong_value = f"shape {list(plan_shape)}" if plan_shape else f"{fixed_plan!r:.80}"
            refuse(player_rule, wrong_value, "give a row a case, a column an arm")
    return trained_learners


def _chosen_arm_account(
    account: Account, turned_tables: Table, fresh_tables: FreshTables
) -> tuple[Account, str]:
    """Account of the fixed arm that each table chooses for itself, and how choosing flatters it."""
    open_arms = np.flatnonzero(turned_tables.mask.all(axis=0))
    arm_values = np.asarray(turned_tables.value, np.float64)
    earned_values, expected_values, chosen_everywhere = best_arm_values(
        arm_values, open_arms, fresh_tables
    )
    flattery_note = (
        f"{FIXED_PLAN} was chosen on the cases that judge it, which flatters it: chosen on as many "
        f"drawn from them it earns {expected_values[1].mean():.4g} a round there, "
        f"{chosen_everywhere:.4g} on "
        "all (fixed= takes one chosen on others)."
    )
    return account._replace(
        fresh=earned_values, expected=expected_values, fixed=False
    ), flattery_note


def _plan_accounts(
    plans: Mapping[str, FloatArray],
    earnings_by_policy: Mapping[str, Earnings],
    best_earnings: Earnings,
    turned_tables: Table,
    fresh_tables: FreshTables,
) -> dict[str, Account]:
    """Accounts of policies that do the same on every table.

    The oracle's is under the name "" too.
    """
    whole_plans = {
        policy_name: np.tile(whole_plan, (turned_tables.n_arms, 1))
        for policy_name, whole_plan in plans.items()
    }
    whole_plans |= dict.fromkeys(
        ("", *plans.keys() & {ORACLE_PLAN}), greedy_arms(turned_tables.value, turned_tables.mask)
    )
    arm_values = np.where(turned_tables.mask, turned_tables.value, 0.0)
    accounts = {}
    for policy_name, whole_plan in whole_plans.items():
        row_values = (whole_plan * arm_values).sum(axis=1)
        plan_earnings = earnings_by_policy.get(policy_name, best_earnings)
        mean_values = plan_earnings.value.sum(axis=1) / len(fresh_tables.case)
        n_cases = plan_earnings.value.shape[1]
        fresh_values = plan_values(row_values, fresh_tables)
        accounts[policy_name] = Account(
            mean_values, row_values[:n_cases], *fresh_values, fixed=True
        )
    return accounts


def compare_on_arms(
    means: FloatArray,
    learners: Mapping[str, Bandit],
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    level: float = 0.95,
    engine: str = "auto",
    n_jobs: int = 1,
) -> LearnerComparison:
    """Learners and a uniform choice on Bernoulli arms of known means, on the same chance.

    Returns: `table`, a row a policy: `policy`, `reward` (expected, a round), `regret` (expected
      reward lost in all rounds against the best arm, mean over replications, `_low` and `_high` a t
      interval of it), and `pulls_<arm>` (share of the rounds).
    """  # fmt: skip
    import pandas as pd

    world = Bernoulli(np.asarray(means, dtype=np.float64))
    run_sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed}
    run_sizes |= {"n_jobs": n_jobs}
    named_learners = progress(learners.items(), "simulate", "learner")
    run_by_name = {
        learner_name: run(learner_settings, world, engine=engine, **run_sizes)
        for learner_name, learner_settings in named_learners
    }
    run_by_name[UNIFORM_PLAN] = run(np.full(world.n_arms, 1.0 / world.n_arms), world, **run_sizes)
    arm_names = tuple(f"arm {arm_number}" for arm_number in range(world.n_arms))
    learner_rows = []
    for learner_name, simulation in run_by_name.items():
        final_regret = simulation.regret[:, -1]
        lower_bound, upper_bound = mean_interval(final_regret[:, None], level)
        mean_reward = float(simulation.value[:, -1].mean()) / rounds
        learner_row = {"policy": learner_name, "reward": mean_reward}
        learner_row |= _with_ends(
            "regret", float(final_regret.mean()), (float(lower_bound[0]), float(upper_bound[0]))
        )
        learner_rows.append(learner_row | _pull_shares(simulation.pulls.sum(axis=0), arm_names))
    return LearnerComparison(pd.DataFrame(learner_rows), run_by_name, UNIFORM_PLAN)


def run_earnings(simulation: Run, world: Table) -> Earnings:
    """What a run came to by replication and case."""
    case_indices = cast("NDArray[np.int32]", simulation.case)
    n_cases = len(world.mask)
    chosen_arms = simulation.arm.astype(np.intp)
    round_ms = world.ms[case_indices, chosen_arms]
    values = _per_case(case_indices, n_cases, world.value[case_indices, chosen_arms])
    counts = _per_case(case_indices, n_cases, ~np.isnan(round_ms))
    mean_ms = _mean_ms(_per_case(case_indices, n_cases, np.nan_to_num(round_ms)), counts)
    return Earnings(values, mean_ms, simulation.pulls.sum(axis=0).astype(np.float64))


def expected_earnings(fixed_plan: FloatArray, case_draws: FloatArray, world: Table) -> Earnings:
    """Expected earnings of fixed probabilities [Q, A], given how often each case came, [R, Q]."""
    has_ms = world.mask & ~np.isnan(world.ms)
    case_values = np.where(world.mask, world.value, 0.0)
    total_ms = np.where(has_ms, world.ms, 0.0)
    case_values, total_ms, counts = (
        case_draws * (fixed_plan * arm_values).sum(axis=1)
        for arm_values in (case_values, total_ms, has_ms)
    )
    return Earnings(case_values, _mean_ms(total_ms, counts), case_draws.sum(axis=0) @ fixed_plan)


def _mean_ms(total_ms: FloatArray, timed_counts: FloatArray) -> float:
    n_timed = float(timed_counts.sum())
    return float(total_ms.sum()) / n_timed if n_timed > MIN_TIMED_ROUNDS else float("nan")


def _per_case(
    case_indices: NumberArray, n_cases: int, round_weights: AnyArray | None = None
) -> FloatArray:
    """Sum of weights, or count, of each case in each replication, [R, Q].

    Example: two replications of three rounds, two cases.
      >>> _per_case(np.array([[0, 0, 1], [1, 1, 1]], dtype=np.int32), 2).tolist()
      [[2.0, 1.0], [0.0, 3.0]]
    """
    flat_positions = case_indices + n_cases * np.arange(len(case_indices))[:, None]
    flat_weights = (
        None if round_weights is None else np.asarray(round_weights, dtype=np.float64).ravel()
    )
    return (
        np.bincount(flat_positions.ravel(), flat_weights, n_cases * len(case_indices))
        .reshape(len(case_indices), n_cases)
        .astype(np.float64)
    )


def _comparison_rows(
    earnings_by_policy: Mapping[str, Earnings],
    best_earnings: Earnings,
    accounts: Mapping[str, Account],
    reference_name: str,
    rounds: int,
    level: float,
) -> list[dict[str, Any]]:
    """Right decisions, regret and difference of each policy, with their intervals.

    The account "" is the oracle's.
    """
    replications, n_cases = best_earnings.value.shape
    n_choices = float(rounds * replications)
    best_mean = best_earnings.value.sum() / n_choices
    reference_mean = earnings_by_policy[reference_name].value.sum() / n_choices
    oracle_account = accounts[""]
    zero_values = np.zeros_like(oracle_account.fresh)
    zero_means = np.zeros_like(oracle_account.mean), np.zeros_like(oracle_account.by_case)
    zero_account = Account(*zero_means, zero_values, zero_values, fixed=True)
    # Cases that all agree leave no variance; the exact binomial gives the width that they leave
    # open.
    never_bound = float(clopper_pearson(0, n_cases, level).high)
    policy_rows: list[dict[str, Any]] = []
    for policy_name, earnings in earnings_by_policy.items():
        mean_value = earnings.value.sum() / n_choices
        # These move with the level of a table more than with what arms differ by: the cases as they
        # are alone.
        fixed_account = _fixed_account(accounts[policy_name])
        right_ends = difference_interval(fixed_account, zero_account, level)
        regret_low, regret_high = difference_interval(
            _fixed_account(oracle_account), fixed_account, level
        )
        # Nothing earns more than the best arm.
        regret_a_round = max(regret_low, 0.0), regret_high
        difference_ends = 0.0, 0.0
        if policy_name == ORACLE_PLAN:
            regret_a_round = 0.0, 0.0
        elif not (earnings.value - best_earnings.value).any():
            regret_a_round = 0.0, never_bound  # never apart on these cases is no proof
        if policy_name != reference_name:
            difference_ends = difference_interval(
                accounts[policy_name], accounts[reference_name], level
            )
            if not (earnings.value - earnings_by_policy[reference_name].value).any():
                difference_ends = -never_bound, never_bound
        regret_ends = rounds * regret_a_round[0], rounds * regret_a_round[1]
        policy_row: dict[str, Any] = {
            "policy": policy_name,
            **_with_ends("right", mean_value, right_ends),
        }
        policy_row |= _with_ends("regret", rounds * (best_mean - mean_value), regret_ends)
        policy_row |= _with_ends("difference", mean_value - reference_mean, difference_ends)
        policy_rows.append(policy_row | {"ms": earnings.ms})
    return policy_rows


def _fixed_account(account: Account) -> Account:
    """Account of the cases as they are, without resampling."""
    expected_values = None if account.expected is None else account.expected[[1, 1]]
    return account._replace(fresh=account.fresh[[1, 1]], expected=expected_values)


def _with_ends(
    measure: str, estimate: float, interval_ends: tuple[float, float]
) -> dict[str, float]:
    """Columns of a measure and its interval."""
    return {
        measure: estimate,
        f"{measure}_low": interval_ends[0],
        f"{measure}_high": interval_ends[1],
    }


def _pull_shares(pulls: AnyArray, arms: tuple[str, ...]) -> dict[str, float]:
    return {
        f"pulls_{arm}": pull_share
        for arm, pull_share in zip(arms, (pulls / pulls.sum()).tolist(), strict=True)
    }
