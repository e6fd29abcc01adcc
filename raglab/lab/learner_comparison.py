"""Comparison of learners (shore): with policies that learn nothing, over fresh tables (S4.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.budget import Budget
from raglab.bandit.environments import Bernoulli, Table
from raglab.bandit.fixed_plans import FIXED_PLAN, ORACLE_PLAN, UNIFORM_PLAN, greedy_arms
from raglab.bandit.learner import Bandit
from raglab.bandit.simulation import Run, follow_costs, run
from raglab.lab.fresh_tables import (
    REPLICATIONS,
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
from raglab.values import refuse
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
MS_KNOWN = 1e-12


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

    value: Array
    ms: float
    pulls: Array


def compare_learners(
    world: Table,
    learners: Mapping[str, Bandit | tuple[Bandit, Array]],
    plans: Mapping[str, Array],
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    reference: str = FIXED_PLAN,
    level: float = 0.95,
    n_boot: int = REPLICATIONS,
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
      learners: name -> settings, or settings and rewards [Q, A] in the place of the world's.
      plans: name -> probabilities [Q, A]; their expected value is taken, so that they add no
        chance.
      rounds: of each replication.
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

    trained = _checked_players(world, learners, plans)
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed}
    budget_by_learner: Mapping[str, Budget] = budgets or {}
    how: dict[str, Any] = {"engine": engine, "n_jobs": n_jobs}
    runs = {
        name: run(bandit, met, **sizes, **how, budget=budget_by_learner.get(name))
        for name, (bandit, met) in progress(trained.items(), "simulate", "learner")
    }
    played = next(iter(runs.values())) if runs else run(next(iter(plans.values())), world, **sizes)
    drawn = _per_case(cast("NDArray[np.int32]", played.case), len(world.mask))
    # The same cases for all: what chance the draws leave is the same on both sides of a difference.
    each = {name: run_earnings(done, world) for name, done in runs.items()}
    each |= {name: expected_earnings(plan, drawn, world) for name, plan in plans.items()}
    best_arms = greedy_arms(world.value, world.mask)
    best = expected_earnings(best_arms, drawn, world)
    if reference not in each and reference != FIXED_PLAN:
        refuse(
            "reference must name a learner or a plan", repr(reference), f"write one of {list(each)}"
        )
    against = reference if reference in each else next(iter(each))
    # Intervals: every learner is trained again on tables drawn from the cases, the same tables for
    # all.
    fresh, copies = draw_fresh_tables(world, rounds, n_boot, seed), by_turns(world)
    accounts = _plan_accounts(plans, each, best, copies, fresh)
    work = float(rounds * (replications + n_boot) * len(trained))
    again: dict[str, Any] = {"seed": seed, "engine": engine, "work": work}
    for name, (bandit, met) in trained.items():
        learner, _ = follow_costs(bandit, met, charged=name in budget_by_learner)
        values = learner_values(learner, met, fresh, budget=budget_by_learner.get(name), **again)
        mean = each[name].value.sum(axis=1) / rounds
        # What a learner does in a case is not the same on every table.
        accounts[name] = Account(mean, np.zeros(len(world.mask)), *values, fixed=False)
    notes = []
    if FIXED_PLAN in plans and fixed is None and len(world.mask) > 1:
        accounts[FIXED_PLAN], note = _chosen_arm_account(accounts[FIXED_PLAN], copies, fresh)
        notes.append(note)
    rows = _comparison_rows(each, best, accounts, against, rounds, level)
    shares = [_pull_shares(earnings.pulls, world.arms) for earnings in each.values()]
    table = pd.DataFrame([row | share for row, share in zip(rows, shares, strict=True)])
    notes += [f"{name}: {note}" for name in runs for note in runs[name].notes]
    return LearnerComparison(table, runs, against, tuple(notes))


def _checked_players(
    world: Table,
    learners: Mapping[str, Bandit | tuple[Bandit, Array]],
    plans: Mapping[str, Array],
) -> dict[str, tuple[Bandit, Table]]:
    """Learners with the tables that they are trained on; plans are checked by their shape."""
    if not learners and not plans:
        refuse("there must be a learner or a plan", "none", "write plans=bandit.baselines(table)")
    trained: dict[str, tuple[Bandit, Table]] = {}
    for name, settings in learners.items():
        bandit, reward = settings if isinstance(settings, tuple) else (settings, world.reward)
        if not isinstance(bandit, Bandit):
            rule = f"learner {name!r} must be a Bandit, or a Bandit and rewards"
            refuse(rule, f"{bandit!r:.80}", "write Bandit('ucb1')")
        trained[name] = bandit, world._replace(reward=reward)
    for name, plan in plans.items():
        shape = np.shape(plan)
        if shape != world.mask.shape:
            rule = f"plan {name!r} must be [Q, A], {list(world.mask.shape)}"
            value = f"shape {list(shape)}" if shape else f"{plan!r:.80}"
            refuse(rule, value, "give a row a case, a column an arm")
    return trained


def _chosen_arm_account(account: Account, copies: Table, fresh: FreshTables) -> tuple[Account, str]:
    """Account of the fixed arm that each table chooses for itself, and how choosing flatters it."""
    arms, value = np.flatnonzero(copies.mask.all(axis=0)), np.asarray(copies.value, np.float64)
    earned, expected, everywhere = best_arm_values(value, arms, fresh)
    note = (
        f"{FIXED_PLAN} was chosen on the cases that judge it, which flatters it: chosen on as many "
        f"drawn from them it earns {expected[1].mean():.4g} a round there, {everywhere:.4g} on "
        "all (fixed= takes one chosen on others)."
    )
    return account._replace(fresh=earned, expected=expected, fixed=False), note


def _plan_accounts(
    plans: Mapping[str, Array],
    each: Mapping[str, Earnings],
    best: Earnings,
    copies: Table,
    fresh: FreshTables,
) -> dict[str, Account]:
    """Accounts of policies that do the same on every table.

    The oracle's is under the name "" too.
    """
    whole = {name: np.tile(plan, (copies.n_arms, 1)) for name, plan in plans.items()}
    whole |= dict.fromkeys(
        ("", *plans.keys() & {ORACLE_PLAN}), greedy_arms(copies.value, copies.mask)
    )
    value, accounts = np.where(copies.mask, copies.value, 0.0), {}
    for name, plan in whole.items():
        by_row, earnings = (plan * value).sum(axis=1), each.get(name, best)
        mean, n_cases = earnings.value.sum(axis=1) / len(fresh.case), earnings.value.shape[1]
        values = plan_values(by_row, fresh)
        accounts[name] = Account(mean, by_row[:n_cases], *values, fixed=True)
    return accounts


def compare_on_arms(
    means: Array,
    learners: Mapping[str, Bandit],
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    level: float = 0.95,
    engine: str = "auto",
    n_jobs: int = 1,
) -> LearnerComparison:
    """Learners beside a uniform choice on Bernoulli arms of known means, on the same chance.

    Returns: `table`, a row a policy: `policy`, `reward` (expected, a round), `regret` (expected
      reward lost in all rounds against the best arm, mean over replications, `_low` and `_high` a t
      interval of it), and `pulls_<arm>` (share of the rounds).
    """  # fmt: skip
    import pandas as pd

    world = Bernoulli(np.asarray(means, dtype=np.float64))
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed}
    sizes |= {"n_jobs": n_jobs}
    named_learners = progress(learners.items(), "simulate", "learner")
    runs = {name: run(bandit, world, engine=engine, **sizes) for name, bandit in named_learners}
    runs[UNIFORM_PLAN] = run(np.full(world.n_arms, 1.0 / world.n_arms), world, **sizes)
    arms = tuple(f"arm {arm}" for arm in range(world.n_arms))
    rows = []
    for name, simulation in runs.items():
        last = simulation.regret[:, -1]
        low, high = mean_interval(last[:, None], level)
        reward = float(simulation.value[:, -1].mean()) / rounds
        row = {"policy": name, "reward": reward}
        row |= _with_ends("regret", float(last.mean()), (float(low[0]), float(high[0])))
        rows.append(row | _pull_shares(simulation.pulls.sum(axis=0), arms))
    return LearnerComparison(pd.DataFrame(rows), runs, UNIFORM_PLAN)


def run_earnings(simulation: Run, world: Table) -> Earnings:
    """What a run came to by replication and case."""
    case, n_cases = cast("NDArray[np.int32]", simulation.case), len(world.mask)
    arm = simulation.arm.astype(np.intp)
    ms, value = world.ms[case, arm], _per_case(case, n_cases, world.value[case, arm])
    timed = _per_case(case, n_cases, ~np.isnan(ms))
    mean = _mean_ms(_per_case(case, n_cases, np.nan_to_num(ms)), timed)
    return Earnings(value, mean, simulation.pulls.sum(axis=0).astype(np.float64))


def expected_earnings(plan: Array, drawn: Array, world: Table) -> Earnings:
    """What fixed probabilities [Q, A] should come to, given how often each case came, [R, Q]."""
    known = world.mask & ~np.isnan(world.ms)
    value, ms = np.where(world.mask, world.value, 0.0), np.where(known, world.ms, 0.0)
    value, ms, timed = (drawn * (plan * cells).sum(axis=1) for cells in (value, ms, known))
    return Earnings(value, _mean_ms(ms, timed), drawn.sum(axis=0) @ plan)


def _mean_ms(ms: Array, timed: Array) -> float:
    total = float(timed.sum())
    return float(ms.sum()) / total if total > MS_KNOWN else float("nan")


def _per_case(cases: NDArray[np.int32], n_cases: int, weight: NDArray[Any] | None = None) -> Array:
    """Sum of weights, or count, of each case in each replication, [R, Q]."""
    at = cases + n_cases * np.arange(len(cases))[:, None]
    flat = None if weight is None else np.asarray(weight, dtype=np.float64).ravel()
    return (
        np.bincount(at.ravel(), flat, n_cases * len(cases))
        .reshape(len(cases), n_cases)
        .astype(np.float64)
    )


def _comparison_rows(
    each: Mapping[str, Earnings],
    best: Earnings,
    accounts: Mapping[str, Account],
    against: str,
    rounds: int,
    level: float,
) -> list[dict[str, Any]]:
    """Right decisions, regret and difference of each policy, with their intervals.

    The account "" is the oracle's.
    """
    replications, n_cases = best.value.shape
    played = float(rounds * replications)
    highest, reference = best.value.sum() / played, each[against].value.sum() / played
    oracle = accounts[""]
    none = np.zeros_like(oracle.fresh)
    means = np.zeros_like(oracle.mean), np.zeros_like(oracle.by_case)
    nothing = Account(*means, none, none, fixed=True)
    # Cases that all agree leave no variance; the exact binomial gives the width that they leave
    # open.
    never = float(clopper_pearson(0, n_cases, level).high)
    rows: list[dict[str, Any]] = []
    for name, earnings in each.items():
        value = earnings.value.sum() / played
        # These move with the level of a table more than with what arms differ by: the cases as they
        # are alone.
        alone = _fixed_account(accounts[name])
        right = difference_interval(alone, nothing, level)
        low, high = difference_interval(_fixed_account(oracle), alone, level)
        regret, gap = (max(low, 0.0), high), (0.0, 0.0)  # nothing earns more than the best arm
        if name == ORACLE_PLAN:
            regret = 0.0, 0.0
        elif not (earnings.value - best.value).any():
            regret = 0.0, never  # never apart on these cases is no proof
        if name != against:
            gap = difference_interval(accounts[name], accounts[against], level)
            if not (earnings.value - each[against].value).any():
                gap = -never, never
        lost = rounds * regret[0], rounds * regret[1]
        row: dict[str, Any] = {"policy": name, **_with_ends("right", value, right)}
        row |= _with_ends("regret", rounds * (highest - value), lost)
        row |= _with_ends("difference", value - reference, gap)
        rows.append(row | {"ms": earnings.ms})
    return rows


def _fixed_account(account: Account) -> Account:
    """Account of the cases as they are, without resampling."""
    expected = None if account.expected is None else account.expected[[1, 1]]
    return account._replace(fresh=account.fresh[[1, 1]], expected=expected)


def _with_ends(measure: str, value: float, ends: tuple[float, float]) -> dict[str, float]:
    """Columns of a measure and its interval."""
    return {measure: value, f"{measure}_low": ends[0], f"{measure}_high": ends[1]}


def _pull_shares(pulls: NDArray[Any], arms: tuple[str, ...]) -> dict[str, float]:
    return {
        f"pulls_{arm}": share
        for arm, share in zip(arms, (pulls / pulls.sum()).tolist(), strict=True)
    }
