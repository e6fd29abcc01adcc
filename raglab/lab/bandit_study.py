"""Bandit study (shore): reward weights, threshold and exploration tuned by Optuna, beside three baselines (S4.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.environments import Bernoulli, Table
from raglab.bandit.learner import LEARNERS, Bandit, check_bandit
from raglab.bandit.simulation import Run, follow_costs, run
from raglab.canonical import digest
from raglab.decision.trace_view import TraceView
from raglab.lab import reward_audit as audit
from raglab.lab.half_samples import (
    REPLICATIONS,
    Account,
    HalfSamples,
    best_arm_values,
    difference_interval,
    draw_half_samples,
    half_sample_means,
    half_sample_values,
)
from raglab.lab.reward_audit import ArmTables
from raglab.lab.search_space import DIGITS, SearchRange, round_value
from raglab.lab.trial_search import TrialOutcome, maximise
from raglab.metrics.intervals import mean_interval
from raglab.misuse import takes
from raglab.policy import PolicyData
from raglab.progress import progress
from raglab.reward import BUDGET_MS, COMPONENT_TABLE, COMPONENTS, PUBLISHED, RewardWeights
from raglab.store.case_labels import check_split_names
from raglab.values import NONE

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import TrackedRun

Array = NDArray[np.float64]
FIXED, UNIFORM, ORACLE, ROUTER = "best fixed arm", "uniform", "oracle", "router"
MS_KNOWN = 1e-12


class LearnerComparison(NamedTuple):
    """Learners and baselines that met the same cases in the same order.

    table: a row a policy, as `compare_learners` describes it. runs: name -> run, of the learners. reference: what
    `difference` is taken against. notes: what the intervals mean, what flatters, and which learner was played as
    another.
    """

    table: pd.DataFrame
    runs: Mapping[str, Run]
    reference: str
    notes: tuple[str, ...] = ()


class Earnings(NamedTuple):
    """What a policy came to in each replication and case, [R, Q]; pulls [A], of all rounds of all replications."""

    value: Array
    n: Array  # rounds of the case
    ms: Array
    timed: Array  # rounds whose milliseconds are known
    pulls: Array


def baselines(world: Table, router: Array | None = None, *, fixed: str | None = None) -> dict[str, Array]:
    """Policies that learn nothing, as probabilities [Q, A]: the best fixed arm, uniform, the router, the oracle.

    A fixed arm is available in every case; where there is none, it is left out. The oracle takes the best available arm
    of each case, ties shared.

    Args:
      router: of the source. fixed: name of the arm that was best on other cases; on these ones where not given.

    Raises:
      ValueError: the fixed arm is unknown, or not available in every case.
    """
    mask = world.mask
    arm = best_fixed_arm(world) if fixed is None else fixed
    plans: dict[str, Array] = {}
    if arm is not None:
        if arm not in world.arms or not mask[:, world.arms.index(arm)].all():
            msg = f"fixed must be an arm that is available in every case, got {arm!r} of {', '.join(world.arms)}."
            raise ValueError(msg)
        plans[FIXED] = np.broadcast_to(np.eye(len(world.arms))[world.arms.index(arm)], mask.shape)
    plans[UNIFORM] = mask / mask.sum(axis=1, keepdims=True)
    if router is not None:
        plans[ROUTER] = router
    return plans | {ORACLE: audit.greedy_arms(world.value, mask)}


def best_fixed_arm(world: Table) -> str | None:
    """Arm of most value among those that are available in every case; the first of equals, None if there is none."""
    always = np.flatnonzero(world.mask.all(axis=0))
    return None if not len(always) else world.arms[always[int(np.argmax(world.value[:, always].sum(axis=0)))]]


def compare_learners(
    world: Table,
    learners: Mapping[str, Bandit | tuple[Bandit, Array]],
    plans: Mapping[str, Array],
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    reference: str = FIXED,
    level: float = 0.95,
    n_boot: int = REPLICATIONS,
    engine: str = "auto",
    n_jobs: int = 1,
    fixed: str | None = None,
) -> LearnerComparison:
    """Learners beside policies that learn nothing, on the same cases in the same order.

    Intervals are of the expectation over fresh tables of as many cases from the same population, and over fresh chance:
    what the learner earns there in so many rounds, minus what the reference earns on the same tables. Learners are
    trained again on halves of the cases (see `half_samples`). The best fixed arm is chosen on the table that it is
    judged on, so that its value flatters; it is chosen again in each half, and the notes say by how much. A difference
    against it is one against that flattered value.

    Args:
      learners: name -> settings, or settings and rewards [Q, A] in the place of the world's.
      plans: name -> probabilities [Q, A]; their expected value is taken, so that they add no chance.
      reference: what `difference` is taken against; the first policy where it is not there.
      level: of the intervals.
      n_boot: replications on half samples, in which every learner is trained again; four make a pair of halves.
      fixed: arm of the plan `best fixed arm`, where it was chosen on other cases; as for `baselines`.

    Returns: `table`, a row a policy: `policy`, `right` (mean value a round, with `_low`, `_high`), `regret` (value
      lost in all rounds against the best available arm of each case, likewise), `difference` (`right` minus that of the
      reference, paired, likewise), `ms` (mean of the known), and `pulls_<arm>` (share of the rounds).

    Source: rule S4.7.
    """
    import pandas as pd

    runs: dict[str, Run] = {}
    trained: dict[str, tuple[Bandit, Table]] = {}
    for name, settings in learners.items():
        bandit, reward = (settings, world.reward) if isinstance(settings, Bandit) else settings
        trained[name] = bandit, world._replace(reward=reward)
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed}
    for name, (bandit, met) in progress(trained.items(), "simulate", "learner"):
        runs[name] = run(bandit, met, **sizes, engine=engine, n_jobs=n_jobs)
    cases = _drawn_cases(next(iter(runs.values())) if runs else run(plans[next(iter(plans))], world, **sizes))
    drawn = _per_case(cases, len(world.mask))
    # The same cases for all: what chance the draws leave is the same on both sides of a difference.
    each = {name: run_earnings(played, world) for name, played in runs.items()}
    each |= {name: expected_earnings(plan, drawn, world) for name, plan in plans.items()}
    best_arms = audit.greedy_arms(world.value, world.mask)
    best = expected_earnings(best_arms, drawn, world)
    against = reference if reference in each else next(iter(each))
    # Intervals: every learner is trained again on halves of the cases, the same halves for all.
    ordered = world.order == "given"
    halves = draw_half_samples(len(world.mask), rounds, n_boot, seed, ordered=ordered) if len(world.mask) > 1 else None
    chosen = FIXED in plans and fixed is None
    accounts = {name: _plan_account(plan, each[name], world, halves) for name, plan in plans.items()}
    accounts[""] = _plan_account(best_arms, best, world, halves)
    work: dict[str, Any] = {
        "seed": seed,
        "engine": engine,
        "work": float(rounds * (replications + n_boot) * max(1, len(trained))),
    }
    for name, (bandit, met) in trained.items():
        learner, _ = follow_costs(bandit, met)
        half = None if halves is None else half_sample_values(learner, met, halves, **work)
        nothing = np.zeros(len(world.mask))  # what a learner does in a case is not the same on every table
        mean = each[name].value.sum(axis=1) / rounds
        accounts[name] = Account(mean, nothing, np.zeros((0, 2, 2)) if half is None else half, fixed=False)
    notes = [_interval_note(len(world.mask), halves)]
    if chosen and halves is not None:
        accounts[FIXED], flattery = _chosen_account(accounts[FIXED], world, halves)
        notes.append(flattery)
    rows = _comparison_rows(each, best, accounts, against, rounds, level)
    shares = [
        {f"pulls_{arm}": share for arm, share in zip(world.arms, _pull_shares(earnings.pulls), strict=True)}
        for earnings in each.values()
    ]
    table = pd.DataFrame([row | share for row, share in zip(rows, shares, strict=True)])
    notes += [f"{name}: {note}" for name in runs for note in runs[name].notes]
    return LearnerComparison(table, runs, against, tuple(notes))


def _plan_account(plan: Array, earnings: Earnings, world: Table, halves: HalfSamples | None) -> Account:
    """Account of a policy that does the same on every table."""
    by_case = (plan * np.where(world.mask, world.value, 0.0)).sum(axis=1)
    half = np.zeros((0, 2, 2)) if halves is None else half_sample_means(by_case, halves)
    return Account(earnings.value.sum(axis=1) / earnings.n.sum(axis=1), by_case, half, fixed=True)


def _chosen_account(account: Account, world: Table, halves: HalfSamples) -> tuple[Account, str]:
    """Account of the fixed arm that each table chooses for itself, and how much choosing flatters it."""
    arms = np.flatnonzero(world.mask.all(axis=0))
    half, elsewhere = best_arm_values(np.asarray(world.value, dtype=np.float64), arms, halves)
    note = (
        f"{FIXED} was chosen on the {len(world.mask)} cases that it is judged on, which flatters it: chosen on half of "
        f"them it earns {half.mean():.4g} a round there and {elsewhere.mean():.4g} on the other half. Whether it is "
        "better than a learner, only an arm chosen on other cases can show (fixed=)."
    )
    return account._replace(half=half, fixed=False), note


def _interval_note(n_cases: int, halves: HalfSamples | None) -> str:
    """What the intervals are of."""
    if halves is None:
        return "One case says nothing of others, so there are no intervals."
    pairs, n = len(halves.member), halves.case.shape[1]
    return (
        f"Intervals are over fresh tables of {n_cases} cases and fresh chance; learners were trained again on both "
        f"halves of {pairs} splits of the cases, {n} replications."
    )


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

    Returns: `table`, a row a policy: `policy`, `reward` (expected, a round), `regret` (expected reward lost in all
      rounds against the best arm, mean over replications, `_low` and `_high` a t interval of it), and `pulls_<arm>`
      (share of the rounds).
    """  # fmt: skip
    import pandas as pd

    world = Bernoulli(np.asarray(means, dtype=np.float64))
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed, "n_jobs": n_jobs}
    given = progress(learners.items(), "simulate", "learner")
    runs = {name: run(bandit, world, engine=engine, **sizes) for name, bandit in given}
    runs[UNIFORM] = run(np.full(world.n_arms, 1.0 / world.n_arms), world, **sizes)
    rows = []
    for name, one in runs.items():
        last = one.regret[:, -1]
        low, high = mean_interval(last[:, None], level)
        row = {"policy": name, "reward": float(one.value[:, -1].mean()) / rounds, "regret": float(last.mean())}
        shares = {
            f"pulls_arm {arm}": share
            for arm, share in enumerate(_pull_shares(one.pulls.sum(axis=0).astype(np.float64)))
        }
        rows.append(row | {"regret_low": float(low[0]), "regret_high": float(high[0])} | shares)
    return LearnerComparison(pd.DataFrame(rows), runs, UNIFORM)


def run_earnings(found: Run, world: Table) -> Earnings:
    """What a run came to by replication and case."""
    case, n_cases = _drawn_cases(found), len(world.mask)
    arm = found.arm.astype(np.intp)
    ms = world.ms[case, arm]
    return Earnings(
        value=_per_case(case, n_cases, world.value[case, arm]),
        n=_per_case(case, n_cases),
        ms=_per_case(case, n_cases, np.nan_to_num(ms)),
        timed=_per_case(case, n_cases, ~np.isnan(ms)),
        pulls=found.pulls.sum(axis=0).astype(np.float64),
    )


def expected_earnings(plan: Array, drawn: Array, world: Table) -> Earnings:
    """What fixed probabilities [Q, A] are expected to come to, given how often each case was drawn, [R, Q]."""
    value = (plan * np.where(world.mask, world.value, 0.0)).sum(axis=1)
    known = world.mask & ~np.isnan(world.ms)
    ms = (plan * np.where(known, world.ms, 0.0)).sum(axis=1)
    timed = (plan * known).sum(axis=1)
    return Earnings(value=drawn * value, n=drawn, ms=drawn * ms, timed=drawn * timed, pulls=drawn.sum(axis=0) @ plan)


def mean_ms(one: Earnings) -> float:
    """Mean milliseconds a round, of the rounds where they are known; NaN where none are."""
    total = float(one.timed.sum())
    return float(one.ms.sum()) / total if total > MS_KNOWN else float("nan")


def _drawn_cases(found: Run) -> NDArray[np.int32]:
    if found.case is None:
        msg = "a run must be one over a table of cases, got one over arms of known means; see compare_on_arms."
        raise ValueError(msg)
    return found.case


def _per_case(cases: NDArray[np.int32], n_cases: int, weight: NDArray[Any] | None = None) -> Array:
    """Sum of weights, or count, of each case in each replication, [R, Q]."""
    at = cases + n_cases * np.arange(len(cases))[:, None]
    flat = None if weight is None else np.asarray(weight, dtype=np.float64).ravel()
    size = n_cases * len(cases)
    return np.bincount(at.ravel(), flat, size).reshape(len(cases), n_cases).astype(np.float64)


def _comparison_rows(
    each: Mapping[str, Earnings],
    best: Earnings,
    accounts: Mapping[str, Account],
    against: str,
    rounds: int,
    level: float,
) -> list[dict[str, Any]]:
    """Right decisions, regret and difference of each policy, with their intervals; the account "" is the oracle's."""
    values = {name: earnings.value.sum() / best.n.sum() for name, earnings in each.items()}
    highest = best.value.sum() / best.n.sum()
    mean, by_case, half = (np.zeros_like(part) for part in (accounts[""].mean, accounts[""].by_case, accounts[""].half))
    nothing = Account(mean, by_case, half, fixed=True)
    # Cases that all agree leave no variance; the exact binomial gives the width that they leave open.
    n_cases = best.n.shape[1]
    unseen = audit.unseen(n_cases, level) / n_cases
    rows: list[dict[str, Any]] = []
    for name, earnings in each.items():
        account = accounts[name]
        right = difference_interval(account, nothing, level)
        low, high = difference_interval(accounts[""], account, level)
        regret = (0.0, 0.0) if name == ORACLE else (max(low, 0.0), high)  # nothing earns more than the best arm
        gap = (0.0, 0.0) if name == against else difference_interval(account, accounts[against], level)
        if name != ORACLE and not (earnings.value - best.value).any():
            regret = 0.0, unseen  # never apart on these cases is no proof
        if name != against and not (earnings.value - each[against].value).any():
            gap = -unseen, unseen
        row: dict[str, Any] = {"policy": name}
        row |= _with_ends("right", values[name], right)
        row |= _with_ends("regret", rounds * (highest - values[name]), (rounds * regret[0], rounds * regret[1]))
        row |= _with_ends("difference", values[name] - values[against], gap)
        rows.append(row | {"ms": mean_ms(earnings)})
    return rows


def _with_ends(measure: str, value: float, ends: tuple[float, float]) -> dict[str, float]:
    """Columns of a measure and its interval."""
    return {measure: value, f"{measure}_low": ends[0], f"{measure}_high": ends[1]}


def _pull_shares(pulls: Array) -> list[float]:
    return (pulls / pulls.sum()).tolist()


WEIGHTS = tuple(COMPONENT_TABLE[name].weight for name in COMPONENTS)  # w1 … w5
TUNED, PUBLISHED_WEIGHTS = "tuned", "published weights"
FINALISTS, AGAIN = 20, 5  # best trials that are judged once more, on so many times the replications
SEARCHED = {  # settings of a learner that are tried, where it reads them, in this order
    "epsilon": SearchRange(0.001, 0.5, log=True),
    "exploration": SearchRange(0.05, 5.0, log=True),
    "prior_strength": SearchRange(0.1, 100.0, log=True),
    "threshold": SearchRange(0.0, 1.0),
}
QUANTILE = {"threshold": "threshold_quantile"}  # rewards lie close together, so their quantile is tried
UNKNOWN = 1e9  # excess of a latency that nobody measured, in ms


@dataclass(frozen=True)
class BanditStudy:
    """Outcome of a study of a bandit.

    weights, bandit: what was found. trials: a row a trial: `value` (share of right decisions), `feasible`, `ms`,
    `threshold`, and the values tried. comparison: policies on the cases that the study did not see, as
    `compare_learners` describes them, `difference` against the tuned one. notes: what a reader must know.
    study: Optuna's own.
    """

    weights: RewardWeights
    bandit: Bandit
    trials: pd.DataFrame
    comparison: pd.DataFrame
    notes: tuple[str, ...]
    study: Any
    settings: Mapping[str, Any]

    def env(self) -> str:
        """Lines for a `.env` that put what was found to work online."""
        found = self.weights
        rows: dict[str, Any] = {"POLICY": self.bandit.policy}
        rows |= {COMPONENT_TABLE[name].variable: getattr(found, COMPONENT_TABLE[name].weight) for name in COMPONENTS}
        rows |= {
            "LAMBDA": found.lambda_,
            "THRESHOLD": self.bandit.threshold,
            "EXPLORATION": self.bandit.exploration,
            "EPSILON": self.bandit.epsilon,
            "PRIOR_STRENGTH": self.bandit.prior_strength,
            "FLOOR": self.bandit.floor,
            "BUDGET_MS": self.settings["budget_ms"],
        }
        return "".join(f"RAGLAB_BANDIT_{name}={value}\n" for name, value in rows.items())

    def track(self, folder: str | Path | None = None) -> TrackedRun:
        """Log the study as one MLflow run: settings and values found, metrics, tables of trials and comparison.

        Args:
          folder: as for `raglab.track`.
        """
        from raglab.lab.tracking import TrackedData, track_run

        rows = self.comparison.to_dict("records")
        names = ("right", "right_low", "right_high", "regret", "ms")
        series = [(f"{_metric_key(row['policy'])}.{name}", float(row[name]), 0) for row in rows for name in names]
        best = self.trials["value"].where(self.trials["feasible"]).cummax()
        series += [("best_value", float(value), int(number)) for number, value in enumerate(best)]
        found = {f"tuned.{name}": value for name, value in self.weights._asdict().items()}
        found |= {f"tuned.{name}": value for name, value in self.bandit._asdict().items() if name != "history"}
        splits = {name: int(self.settings[f"{name}_cases"]) for name in ("tune", "report")}
        return track_run(
            f"{self.settings['bandit']}: {self.settings['trials']} trials: {digest(self.env(), 12)}",
            "bandit",
            {**self.settings, **found},
            series,
            {"trials": self.trials, "comparison": self.comparison},
            folder,
            tags={"trace_fingerprint": str(self.settings["trace"]), "policy_id": str(self.settings["policy_id"])},
            texts={"bandit.env": self.env(), "notes.txt": "\n".join(self.notes) + "\n"},
            data=TrackedData("trace", str(self.settings["trace"]), splits),
        )


@takes(trace="trace", policy="policy")
def tune_bandit(
    trace: TraceView,
    policy: PolicyData,
    *,
    bandit: str | Bandit = "thompson_beta",
    trials: int = 200,
    rounds: int = 1000,
    replications: int = 50,
    budget_ms: float = BUDGET_MS,
    latency_budget_ms: float | None = None,
    sampler: str = "tpe",
    seed: int = 0,
    level: float = 0.95,
    n_boot: int = REPLICATIONS,
    engine: str = "auto",
) -> BanditStudy:
    """Search reward weights and settings of a bandit on split `tune`, judge what is found on split `report`.

    The value of a trial is the share of right decisions of the simulated bandit, which sees rewards alone. All trials
    meet the same cases in the same order. The first trial is the published one; it and the best are judged once more on
    other chance and more replications: a learner that soon stays with one arm may owe that to luck, and with few
    replications a search finds the settings that were lucky.

    Searched: w1 … w5, lambda, and of the bandit what its policy reads: exploration (epsilon of epsilon_greedy), prior
    strength, and the reward threshold of thompson_beta as a quantile of the rewards, which lie close together. Only
    the product of lambda and w3 matters, and scaling w1 … w5 changes nothing: found weights sum to 1.

    Args:
      trace: in memory, or of shards, one of which is in memory at a time; without splits all cases serve for both, and
        the notes say that the rates flatter.
      bandit: policy, or settings to start from.
      rounds, replications: of each simulation.
      budget_ms: of a question, in the reward. latency_budget_ms: highest mean latency that a trial may have; the same
        where not given.
      level: of the intervals. n_boot: replications on half samples, as for `compare_learners`.

    Raises:
      ValueError: unknown policy or sampler, trials below 1, or a trace without vectors or latencies.

    Source: rules S4.4, S4.5, S4.7, S6.5.

    Example: `print(tune_bandit(trace, policy).env())`.
    """
    base = Bandit(bandit) if isinstance(bandit, str) else bandit
    check_bandit(base)
    tune, judge, notes = _split_tables(trace, policy, budget_ms)
    most_ms = budget_ms if latency_budget_ms is None else latency_budget_ms
    space = _space(base)
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "engine": engine}

    def judged(params: Mapping[str, Any]) -> TrialOutcome:
        _, learner, rewards = _trial_bandit(params, base, tune)
        right, ms = _simulate_trial(learner, tune.world._replace(reward=rewards), seed=seed, **sizes)
        over = UNKNOWN if np.isnan(ms) else ms - most_ms  # missing never passes
        return TrialOutcome(right, {"mean_ms": over}, {"ms": ms, "threshold": learner.threshold})

    # The published setting is a trial too, so that what is found earns no less on these cases.
    first = [_published_values(base, tune, space)]
    study, seen = maximise(judged, space, trials=trials, sampler=sampler, seed=seed, first=first)
    # The best of many short simulations is partly lucky: finalists meet other chance, and more of it.
    weights, learner = _best_finalist(seen, space, base, tune, seed, sizes)
    names = {TUNED: (learner, judge.rewards(weights)), PUBLISHED_WEIGHTS: (base, judge.rewards(PUBLISHED))}
    # The best fixed arm is chosen on the cases tuned on, as the bandit is: neither has seen those it is judged on.
    fixed = None if tune is judge else best_fixed_arm(tune.world)
    plans = baselines(judge.world, judge.router, fixed=fixed)
    shown = compare_learners(
        judge.world, names, plans, rounds=rounds, replications=AGAIN * replications, seed=seed + 1,
        reference=TUNED, level=level, n_boot=n_boot, engine=engine, fixed=fixed,
    )  # fmt: skip
    notes += [*_comparison_notes(shown.table, seen, most_ms, apart=tune is not judge), *shown.notes]
    # No trial can judge the weight of a component that never varies.
    if not tune.measured["cache_hit"].any():
        notes.append("No answer came from a cache here, so w4 decides nothing; set it by hand.")
    settings = {
        "bandit": base.policy, "trials": trials, "rounds": rounds, "replications": replications,
        "budget_ms": budget_ms, "latency_budget_ms": most_ms, "sampler": sampler, "seed": seed, "level": level,
        "n_boot": n_boot, "policy_id": policy.policy_id, "trace": trace.meta.get("fingerprint"),
        "tune_cases": len(tune.world.mask), "report_cases": len(judge.world.mask),
    }  # fmt: skip
    return BanditStudy(
        weights=weights,
        bandit=learner,
        trials=seen,
        comparison=shown.table,
        notes=tuple(notes),
        study=study,
        settings=settings,
    )


def _split_tables(trace: TraceView, policy: PolicyData, budget_ms: float) -> tuple[ArmTables, ArmTables, list[str]]:
    """Split that is tuned on and split that is judged on."""
    splits = trace.counted().keys()
    check_split_names(splits - {NONE})
    if {"tune", "report"} <= splits:
        of_splits: Any = trace
        parts = (of_splits.split(name) for name in ("tune", "report"))
        tune, judge = (audit.arm_tables(part, policy, budget_ms=budget_ms) for part in parts)
        return tune, judge, []
    every = audit.arm_tables(trace, policy, budget_ms=budget_ms)
    note = "The cases have no splits tune and report: tuned and judged on the same cases, so the rates flatter (S6.5)."
    return every, every, [note]


def _space(base: Bandit) -> dict[str, SearchRange]:
    """What is tried, by name."""
    space = {name: SearchRange(0.0, 1.0) for name in WEIGHTS} | {"lambda_": SearchRange(0.25, 16.0, log=True)}
    read = LEARNERS[base.policy].settings
    return space | {QUANTILE.get(name, name): span for name, span in SEARCHED.items() if name in read}


def _trial_bandit(params: Mapping[str, Any], base: Bandit, part: ArmTables) -> tuple[RewardWeights, Bandit, Array]:
    """Weights, bandit and rewards of the values of a trial; to so many digits, so that a `.env` says the same."""
    total = sum(params[name] for name in WEIGHTS) or 1.0
    shares = {name: round(params[name] / total, DIGITS) for name in WEIGHTS}
    weights = PUBLISHED._replace(**shares, lambda_=round_value(params["lambda_"]))
    rewards = part.rewards(weights)
    known: dict[str, Any] = {
        name: round_value(params[name]) for name in ("epsilon", "exploration", "prior_strength") if name in params
    }
    if "threshold_quantile" in params:
        there = rewards[part.world.mask & ~np.isnan(rewards)]
        known["threshold"] = _threshold(there, params["threshold_quantile"])
    return weights, base._replace(**known), rewards


def _threshold(rewards: Array, quantile: float) -> float:
    """Threshold that the share `quantile` of the rewards do not exceed, of n + 1 such shares; 0 for none of them."""
    place = min(int(quantile * (len(rewards) + 1)), len(rewards))
    return float(np.ceil(np.sort(rewards)[place - 1] * 1e6) / 1e6) if place else 0.0


def _published_values(base: Bandit, part: ArmTables, space: Mapping[str, SearchRange]) -> dict[str, float]:
    """Values of the published reward and of the bandit as given, for the first trial."""
    own: dict[str, float] = {name: float(getattr(PUBLISHED, name)) for name in (*WEIGHTS, "lambda_")}
    own |= {name: getattr(base, name) for name in ("epsilon", "exploration", "prior_strength") if name in space}
    if "threshold_quantile" in space:
        rewards = part.rewards(PUBLISHED)
        there = rewards[part.world.mask & ~np.isnan(rewards)]
        below = int((there <= base.threshold).sum())
        own["threshold_quantile"] = (below + 0.5) / (len(there) + 1)
    return {name: float(np.clip(value, space[name].low, space[name].high)) for name, value in own.items()}


def _simulate_trial(
    learner: Bandit, world: Table, *, seed: int, rounds: int, replications: int, engine: str
) -> tuple[float, float]:
    """Share of right decisions and mean milliseconds of a simulated bandit."""
    found = run(learner, world, rounds=rounds, replications=replications, seed=seed, engine=engine)
    return float(found.value[:, -1].mean()) / rounds, mean_ms(run_earnings(found, world))


def _best_finalist(
    seen: pd.DataFrame,
    space: Mapping[str, SearchRange],
    base: Bandit,
    part: ArmTables,
    seed: int,
    sizes: Mapping[str, Any],
) -> tuple[RewardWeights, Bandit]:
    """Best of the finalists on other chance; the first of equals, so that the published one stays unless beaten."""
    pool = seen[seen["feasible"]] if seen["feasible"].any() else seen
    best = pool.sort_values(["value", "number"], ascending=[False, True], kind="stable").head(FINALISTS)
    best = pool[pool["number"].isin([0, *best["number"]])]
    again = {**sizes, "replications": AGAIN * int(sizes["replications"])}
    scored = []
    for row in best.to_dict("records"):
        weights, learner, rewards = _trial_bandit({name: row[name] for name in space}, base, part)
        scored.append(
            (_simulate_trial(learner, part.world._replace(reward=rewards), seed=seed + 1, **again)[0], weights, learner)
        )
    _, weights, learner = max(scored, key=lambda one: one[0])
    return weights, learner


def _comparison_notes(shown: pd.DataFrame, seen: pd.DataFrame, most_ms: float, *, apart: bool) -> list[str]:
    """What the comparison says, in plain words.

    Args:
      apart: whether the cases judged on are not those tuned on; what is chosen and judged on the same is never called
        better.
    """
    rows = {str(row["policy"]): row for row in shown.to_dict("records")}
    kept = seen["feasible"] if seen["feasible"].any() else slice(None)
    best, first = (f"{100 * one:.2f} %" for one in (seen.loc[kept, "value"].max(), seen["value"].iloc[0]))
    flatters = f"the best of {len(seen)} flatters. What follows is on the cases that it is judged on."
    said = [
        f"On the cases it was tuned on, the best trial is right in {best}, the published one in {first}; {flatters}"
    ]
    for name, row in rows.items():
        if name in {TUNED, ORACLE}:
            continue
        gain, low, high = (-row[part] for part in ("difference", "difference_high", "difference_low"))
        verdict = "better than" if gain > 0.0 else "worse than"
        if not apart:
            verdict = "ahead, on the cases that it was tuned on, of" if gain > 0.0 else "no better than"
        if low <= 0.0 <= high:
            verdict = "not told apart from"
        said.append(
            f"Tuned is {verdict} {name}: {100 * gain + 0.0:+.2f} points of right decisions "
            f"({100 * low + 0.0:+.2f} to {100 * high + 0.0:+.2f})."
        )
    room = rows[ORACLE]["right"] - rows[PUBLISHED_WEIGHTS]["right"]
    said.append(f"The best arm of every case would be {100 * room:.2f} points above the published weights.")
    if not seen["feasible"].any():
        said.append(f"No trial keeps the mean latency within {most_ms:g} ms; the winner is the best of all trials.")
    return said


def _metric_key(name: str) -> str:
    """Name as MLflow takes it."""
    return name.replace(" ", "_")
