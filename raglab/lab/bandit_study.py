"""Bandit study (shore): reward weights and learner settings tuned by Optuna (S4.7, S4.8).

It runs on a trace or on a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.budget import Budget
from raglab.bandit.environments import Table
from raglab.bandit.fixed_plans import FIXED, ORACLE, baselines, best_fixed_arm
from raglab.bandit.learner import Bandit, check_bandit, stored_settings
from raglab.bandit.simulation import run
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.lab.fresh_tables import REPLICATIONS
from raglab.lab.learner_comparison import compare_learners, mean_ms, run_earnings
from raglab.lab.learner_search import (
    AGAIN,
    TUNED,
    clipped_values,
    finalists,
    first_values,
    learner_space,
    settings_lines,
    track_search,
    tuned_learner,
)
from raglab.lab.reward_audit import ArmTables, arm_tables
from raglab.lab.search_space import DIGITS, SearchRange, round_value
from raglab.lab.table_study import TableStudy, tune_on_table
from raglab.lab.trial_search import TrialOutcome, maximise
from raglab.policy import PolicyData
from raglab.reward import BUDGET_MS, COMPONENT_TABLE, COMPONENTS, PUBLISHED, RewardWeights
from raglab.store.case_labels import check_split_names
from raglab.values import NONE
from raglab.words.canonical import digest

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import TrackedRun

Array = NDArray[np.float64]
WEIGHTS = tuple(COMPONENT_TABLE[name].weight for name in COMPONENTS)  # w1 … w5
PUBLISHED_WEIGHTS = "published weights"
UNKNOWN = 1e9  # excess of a latency that nobody measured, in ms
ROUNDS = 1000  # of each simulation, where none are stated


@dataclass(frozen=True)
class BanditStudy:
    """Outcome of a study of a bandit.

    weights, bandit: what was found. trials: a row a trial: `value` (share of right decisions),
    `feasible`, `ms`, `threshold`, and the values tried. comparison: policies on the cases that the
    study did not see, as `compare_learners` describes them, `difference` against the tuned one.
    notes: what a reader must know. study: Optuna's own.
    """

    weights: RewardWeights
    bandit: Bandit
    trials: pd.DataFrame
    comparison: pd.DataFrame
    notes: tuple[str, ...]
    study: Any
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        cases = ", ".join(
            f"{self.settings[f'{name}_cases']:,} {name}" for name in ("tune", "report")
        )
        sizes = f"{len(self.trials):,} trials, {cases} cases; {len(self.notes)} notes"
        return (
            f"{type(self).__name__}({self.bandit.algorithm!r}, threshold "
            f"{self.bandit.threshold:.3g}; {sizes})"
        )

    def env(self) -> str:
        """Lines for a `.env` that put what was found to work online."""
        weights = self.weights
        rows: dict[str, Any] = {"POLICY": self.bandit.algorithm}
        rows |= {
            COMPONENT_TABLE[name].variable: getattr(weights, COMPONENT_TABLE[name].weight)
            for name in COMPONENTS
        }
        rows |= {
            "LAMBDA": weights.lambda_,
            "THRESHOLD": self.bandit.threshold,
            "EXPLORATION": self.bandit.exploration,
            "EPSILON": self.bandit.epsilon,
            "PRIOR_STRENGTH": self.bandit.prior_strength,
            "FLOOR": self.bandit.floor,
            "BUDGET_MS": self.settings["budget_ms"],
        }
        return settings_lines(rows)

    def track(self, folder: str | Path | None = None) -> TrackedRun:
        """Log the study as one MLflow run.

        Settings and values found, metrics, tables of trials and comparison.

        Args:
          folder: as for `raglab.track`.
        """
        from raglab.lab.tracking import TrackedData

        values = {f"tuned.{name}": value for name, value in self.weights._asdict().items()}
        values |= {
            f"tuned.{name}": value
            for name, value in stored_settings(self.bandit).items()
            if name != "history"
        }
        splits = {name: int(self.settings[f"{name}_cases"]) for name in ("tune", "report")}
        return track_search(
            f"{self.settings['bandit']}: {self.settings['trials']} trials: "
            f"{digest(self.env(), 12)}",
            {**self.settings, **values},
            self.trials,
            self.comparison,
            {"bandit.env": self.env(), "notes.txt": "\n".join(self.notes) + "\n"},
            folder,
            measures=("right", "right_low", "right_high", "regret", "ms"),
            tags={
                "trace_fingerprint": str(self.settings["trace"]),
                "policy_id": str(self.settings["policy_id"]),
            },
            data=TrackedData("trace", str(self.settings["trace"]), splits),
        )


@overload
def tune_bandit(
    trace: TraceView,
    policy: PolicyData,
    *,
    bandit: str | Bandit = ...,
    trials: int = ...,
    rounds: int | None = ...,
    replications: int = ...,
    budget_ms: float | None = ...,
    latency_budget_ms: float | None = ...,
    sampler: str = ...,
    seed: int = ...,
    level: float = ...,
    n_boot: int = ...,
    engine: str = ...,
) -> BanditStudy: ...
@overload
def tune_bandit(
    trace: Table,
    *,
    bandit: str | Bandit = ...,
    judge: Table | None = ...,
    budget: Budget | float | None = ...,
    trials: int = ...,
    rounds: int | None = ...,
    replications: int = ...,
    sampler: str = ...,
    seed: int = ...,
    level: float = ...,
    n_boot: int = ...,
    engine: str = ...,
) -> TableStudy: ...
@answered_traces("trace")
def tune_bandit(
    trace: TraceView | Table,
    policy: PolicyData | None = None,
    *,
    bandit: str | Bandit = "thompson_beta",
    judge: Table | None = None,
    budget: Budget | float | None = None,
    trials: int = 200,
    rounds: int | None = None,
    replications: int = 50,
    budget_ms: float | None = None,
    latency_budget_ms: float | None = None,
    sampler: str = "tpe",
    seed: int = 0,
    level: float = 0.95,
    n_boot: int = REPLICATIONS,
    engine: str = "auto",
) -> BanditStudy | TableStudy:
    """Search settings of a bandit on some cases, and judge the result on others.

    Of a trace, reward weights are searched as well; split `tune` is searched on, split `report`
    judges. The value of a trial is the share of right decisions of the simulated bandit, which sees
    rewards alone. Of a table, whose rewards are taken as they are, the value is the table's, or
    under a budget the reward before costs. The price that the learner is charged for a unit of cost
    is searched too, where costs are charged. Under a budget a pacer keeps it, whose first price and
    step are searched.

    All trials meet the same cases in the same order. The first trial is the published one, or the
    settings given; it and the best are judged once more on other chance and more replications: a
    learner that soon stays with one arm may owe that to luck, and with few replications a search
    finds the settings that were lucky.

    Searched settings of the bandit are those that its policy reads: exploration (epsilon of
    epsilon_greedy), prior strength, and the reward threshold of thompson_beta as a quantile of the
    rewards, which lie close together; of a trace w1 … w5 and lambda too. Only the product of lambda
    and w3 matters, and scaling w1 … w5 changes nothing: the weights of the result sum to 1.

    Args:
      trace: in memory, or of shards, one of which is in memory at a time; without splits all cases
        serve for both, and the notes state that the rates flatter. Or a `bandit.Table`.
      policy: of a trace; left out with a table.
      bandit: name of a policy, or settings to start from. Learners of successes cannot follow
        costs; see rule S4.5.
      judge: of a table, another one that judges. Without it the rows are split in halves: by their
        order where that is given, else at random; the notes name the way.
      budget: of a table with costs, the mean cost of a question that the learner keeps; a trial
        that spends more than 1.02 of it is infeasible.
      trials: settings that are tried, at least 1.
      rounds: of each simulation; 1,000 rounds, or as many as there are rows where each is played
        once.
      replications: of each simulation.
      budget_ms: of a trace, milliseconds of a question, in the reward; 8,000 where not given.
      latency_budget_ms: highest mean latency that a trial may have; the same where not given.
      sampler: of Optuna, by name.
      seed: of the search and of the simulations.
      level: of the intervals.
      n_boot: replications on fresh tables, as for `compare_learners`.
      engine: as for `bandit.run`.

    Raises:
      ValueError: unknown policy or sampler, trials below 1, a trace without vectors or latencies,
        arguments of a trace with a table or of a table with a trace, a budget that nothing can
        keep.

    Source: rules S4.4, S4.5, S4.7, S4.8, S6.5.

    Example: `print(tune_bandit(trace, policy).env())`,
      `print(*tune_bandit(table, bandit="lin_ucb").notes)`.
    """
    base = Bandit(bandit) if isinstance(bandit, str) else bandit
    check_bandit(base)
    sizes: dict[str, Any] = {
        "trials": trials,
        "replications": replications,
        "sampler": sampler,
        "seed": seed,
    }
    sizes |= {"level": level, "n_boot": n_boot, "engine": engine}
    if isinstance(trace, Table):
        of_trace = {
            "policy": policy,
            "budget_ms": budget_ms,
            "latency_budget_ms": latency_budget_ms,
        }
        _refuse_arguments(of_trace, "a trace", "a table states rewards and costs itself")
        return tune_on_table(trace, base, judge=judge, budget=budget, rounds=rounds, **sizes)
    _refuse_arguments(
        {"judge": judge, "budget": budget}, "a table", "a trace has splits, and latency_budget_ms"
    )
    if policy is None:
        msg = (
            "tune_bandit takes a trace with a policy, or a bandit.Table alone, got a trace alone; "
            "give the policy."
        )
        raise ValueError(msg)
    budget_ms = BUDGET_MS if budget_ms is None else budget_ms
    sizes |= {"rounds": ROUNDS if rounds is None else rounds}
    return _tune_on_trace(trace, policy, base, budget_ms, latency_budget_ms, **sizes)


def _refuse_arguments(values: Mapping[str, object], kind: str, why: str) -> None:
    """Refuse arguments that the other kind of source takes."""
    stated = [name for name, value in values.items() if value is not None]
    if stated:
        msg = (
            f"{', '.join(stated)} of tune_bandit must be left out without {kind}, got them; {why}."
        )
        raise ValueError(msg)


def _tune_on_trace(
    trace: TraceView,
    policy: PolicyData,
    base: Bandit,
    budget_ms: float,
    latency_budget_ms: float | None,
    *,
    trials: int,
    rounds: int,
    replications: int,
    sampler: str,
    seed: int,
    level: float,
    n_boot: int,
    engine: str,
) -> BanditStudy:
    """Study of weights and settings on a trace; see `tune_bandit`."""
    tune, judge, notes = _split_tables(trace, policy, budget_ms)
    most_ms = budget_ms if latency_budget_ms is None else latency_budget_ms
    space = _space(base)
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "engine": engine}

    def judged(params: Mapping[str, Any]) -> TrialOutcome:
        _, learner, rewards = _trial_bandit(params, base, tune)
        right, ms = _simulate_trial(
            learner, tune.world._replace(reward=rewards), seed=seed, **sizes
        )
        over = UNKNOWN if np.isnan(ms) else ms - most_ms  # missing never passes
        return TrialOutcome(right, {"mean_ms": over}, {"ms": ms, "threshold": learner.threshold})

    # The published setting is a trial too, so that what is found earns no less on these cases.
    first = [_published_values(base, tune, space)]
    study, trial_table = maximise(
        judged, space, trials=trials, sampler=sampler, seed=seed, first=first
    )
    # The best of many short simulations is partly lucky: finalists meet other chance, and more of
    # it.
    weights, learner = _best_finalist(trial_table, space, base, tune, seed, sizes)
    names = {
        TUNED: (learner, judge.rewards(weights)),
        PUBLISHED_WEIGHTS: (base, judge.rewards(PUBLISHED)),
    }
    # The best fixed arm is chosen on the cases tuned on, as the bandit is: neither has seen those
    # it is judged on.
    fixed = None if tune is judge else best_fixed_arm(tune.world)
    plans = baselines(judge.world, judge.router, fixed=fixed)
    shown = compare_learners(
        judge.world,
        names,
        plans,
        rounds=rounds,
        replications=AGAIN * replications,
        seed=seed + 1,
        reference=TUNED,
        level=level,
        n_boot=n_boot,
        engine=engine,
        fixed=fixed,
    )
    notes += [
        *_comparison_notes(shown.table, trial_table, most_ms, fixed, apart=tune is not judge),
        *shown.notes,
    ]
    # No trial can judge the weight of a component that never varies.
    if not tune.measured["cache_hit"].any():
        notes.append("No answer came from a cache here, so w4 decides nothing; set it by hand.")
    settings = {
        "bandit": base.algorithm,
        "trials": trials,
        "rounds": rounds,
        "replications": replications,
        "budget_ms": budget_ms,
        "latency_budget_ms": most_ms,
        "sampler": sampler,
        "seed": seed,
        "level": level,
        "n_boot": n_boot,
        "policy_id": policy.policy_id,
        "trace": trace.meta.get("fingerprint"),
        "tune_cases": len(tune.world.mask),
        "report_cases": len(judge.world.mask),
    }
    return BanditStudy(
        weights=weights,
        bandit=learner,
        trials=trial_table,
        comparison=shown.table,
        notes=tuple(notes),
        study=study,
        settings=settings,
    )


def _split_tables(
    trace: TraceView, policy: PolicyData, budget_ms: float
) -> tuple[ArmTables, ArmTables, list[str]]:
    """Split that is tuned on and split that is judged on."""
    splits = trace.counted().keys()
    check_split_names(splits - {NONE})
    if {"tune", "report"} <= splits:
        of_splits: Any = trace
        parts = (of_splits.split(name) for name in ("tune", "report"))
        tune, judge = (arm_tables(part, policy, budget_ms=budget_ms) for part in parts)
        return tune, judge, []
    every = arm_tables(trace, policy, budget_ms=budget_ms)
    note = (
        "The cases have no splits tune and report: tuned and judged on the same cases, so the "
        "rates flatter (S6.5)."
    )
    return every, every, [note]


def _space(base: Bandit) -> dict[str, SearchRange]:
    """What is tried, by name."""
    space = {name: SearchRange(0.0, 1.0) for name in WEIGHTS} | {
        "lambda_": SearchRange(0.25, 16.0, log=True)
    }
    return space | learner_space(base)


def _trial_bandit(
    params: Mapping[str, Any], base: Bandit, part: ArmTables
) -> tuple[RewardWeights, Bandit, Array]:
    """Weights, bandit and rewards of the values of a trial.

    To so many digits, so that a `.env` says the same.
    """
    total = sum(params[name] for name in WEIGHTS) or 1.0
    shares = {name: round(params[name] / total, DIGITS) for name in WEIGHTS}
    weights = PUBLISHED._replace(**shares, lambda_=round_value(params["lambda_"]))
    rewards = part.rewards(weights)
    return weights, tuned_learner(params, base, rewards[part.world.mask]), rewards


def _published_values(
    base: Bandit, part: ArmTables, space: Mapping[str, SearchRange]
) -> dict[str, float]:
    """Values of the published reward and of the bandit as it is, for the first trial."""
    own: dict[str, float] = {
        name: float(getattr(PUBLISHED, name)) for name in (*WEIGHTS, "lambda_")
    }
    own |= first_values(base, part.rewards(PUBLISHED)[part.world.mask], space)
    return clipped_values(own, space)


def _simulate_trial(
    learner: Bandit, world: Table, *, seed: int, rounds: int, replications: int, engine: str
) -> tuple[float, float]:
    """Share of right decisions and mean milliseconds of a simulated bandit."""
    simulation = run(
        learner, world, rounds=rounds, replications=replications, seed=seed, engine=engine
    )
    return float(simulation.value[:, -1].mean()) / rounds, mean_ms(run_earnings(simulation, world))


def _best_finalist(
    trial_table: pd.DataFrame,
    space: Mapping[str, SearchRange],
    base: Bandit,
    part: ArmTables,
    seed: int,
    sizes: Mapping[str, Any],
) -> tuple[RewardWeights, Bandit]:
    """Best of the finalists on other chance.

    The first of equals, so that the published one stays unless beaten.
    """
    again = {**sizes, "replications": AGAIN * int(sizes["replications"])}
    scored = []
    for row in finalists(trial_table):
        weights, learner, rewards = _trial_bandit({name: row[name] for name in space}, base, part)
        scored.append(
            (
                _simulate_trial(
                    learner, part.world._replace(reward=rewards), seed=seed + 1, **again
                )[0],
                weights,
                learner,
            )
        )
    _, weights, learner = max(scored, key=lambda entry: entry[0])
    return weights, learner


def _comparison_notes(
    shown: pd.DataFrame,
    trial_table: pd.DataFrame,
    most_ms: float,
    fixed: str | None,
    *,
    apart: bool,
) -> list[str]:
    """What the comparison says, in plain words.

    Args:
      fixed: arm that was best on the cases tuned on; None where they are judged on too, or there is
        none.
      apart: whether the cases judged on are not those tuned on; what is chosen and judged on the
        same is never called better.
    """
    rows = {str(row["policy"]): row for row in shown.to_dict("records")}
    eligible_rows = trial_table["feasible"] if trial_table["feasible"].any() else slice(None)
    best, first = (
        f"{100 * share:.2f} %"
        for share in (trial_table.loc[eligible_rows, "value"].max(), trial_table["value"].iloc[0])
    )
    flatters = (
        f"the best of {len(trial_table)} flatters. What follows is on the cases that it is judged "
        "on."
    )
    notes = [
        (
            f"On the cases it was tuned on, the best trial is right in {best}, the published one "
            "in "
            f"{first}; {flatters}"
        )
    ]
    for name, row in rows.items():
        if name in {TUNED, ORACLE}:
            continue
        gain, low, high = (
            -row[part] for part in ("difference", "difference_high", "difference_low")
        )
        verdict = "better than" if gain > 0.0 else "worse than"
        if not apart:
            verdict = (
                "ahead, on the cases that it was tuned on, of" if gain > 0.0 else "no better than"
            )
        if low <= 0.0 <= high:
            verdict = "not told apart from"
        notes.append(
            f"Tuned is {verdict} {name}: {100 * gain + 0.0:+.2f} points of right decisions "
            f"({100 * low + 0.0:+.2f} to {100 * high + 0.0:+.2f})."
        )
        if name == FIXED and fixed is not None and low <= 0.0:
            notes.append(
                f"So it does not beat taking {fixed} always, the best arm of the cases tuned on."
            )
    room = rows[ORACLE]["right"] - rows[PUBLISHED_WEIGHTS]["right"]
    notes.append(
        f"The best arm of every case would be {100 * room:.2f} points above the published weights."
    )
    if not trial_table["feasible"].any():
        notes.append(
            f"No trial keeps the mean latency within {most_ms:g} ms; the winner is the best of "
            "all trials."
        )
    return notes
