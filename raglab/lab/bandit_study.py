"""Bandit study (shore): a learner's settings tuned by Optuna on a trace or a table (S4.7, S4.8).

A trace becomes a table of every arm of every case, whose reward weights are searched as well. Of a
table the price is searched that the learner is charged for a unit of cost.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.budget import STARTING_PRICE_BUDGETS, Budget, check_budget
from raglab.bandit.environments import Table, check_world, table_costs
from raglab.bandit.fixed_plans import (
    FIXED_PLAN,
    MIXTURE_PLAN,
    ORACLE_PLAN,
    PRICED_PLAN,
    baselines,
    best_fixed_arm,
)
from raglab.bandit.learner import LEARNERS, Bandit, check_bandit, check_count, stored_settings
from raglab.bandit.simulation import follow_costs, run
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.extension_points import extension
from raglab.lab.fresh_tables import FRESH_REPLICATIONS
from raglab.lab.learner_comparison import compare_learners, run_earnings
from raglab.lab.reward_audit import ArmTables, arm_tables
from raglab.lab.search_space import SETTING_DIGITS, SearchRange, round_value
from raglab.lab.search_studies import SearchStudy, env_lines
from raglab.lab.trial_search import FINALIST_REPEATS, TrialOutcome, finalists, maximise
from raglab.policy import PolicyData
from raglab.reward import (
    COMPONENT_BY_NAME,
    COMPONENTS,
    PUBLISHED_REWARD_WEIGHTS,
    REWARD_BUDGET_MS,
    RewardWeights,
)
from raglab.store.case_labels import check_split_names
from raglab.values import NO_LABEL, FloatArray, PlaceArray, refuse
from raglab.words.canonical import digest
from raglab.words.results import Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import TrackedData

WEIGHT_NAMES = tuple(COMPONENT_BY_NAME[name].weight for name in COMPONENTS)  # w1 … w5
TUNED, PUBLISHED_WEIGHTS, UNTUNED = "tuned", "published weights", "settings as they were"
ORACLE_WITHIN_BUDGET = "oracle within the budget"
UNKNOWN_LATENCY_EXCESS = 1e9  # excess of a latency that nobody measured, in ms
DEFAULT_ROUNDS = 1000  # of each simulation, where none are stated
MIN_SPLIT_ROWS = 4  # of a table that is split: two to tune on, two to judge
BUDGET_TOLERANCE = 1.02  # of a budget that a trial may spend: a pacer ends near it, on either side
PRICES_OF_BUDGET = (1e-3, 10.0)  # prices that are tried under a budget, times 1 / per_question
# how fast the price of the pacer follows the spend
PACER_STEPS = SearchRange(0.002, 0.2, log=True)
PRICES_OF_TABLE = (0.125, 8.0)  # prices that are tried where a table charges costs, times its own
INTERVAL_SUFFIXES = ("", "_low", "_high")
SEARCHED_SETTINGS = {  # settings of a learner that are tried, where it reads them, in this order
    "epsilon": SearchRange(0.001, 0.5, log=True),
    "exploration": SearchRange(0.05, 5.0, log=True),
    "prior_strength": SearchRange(0.1, 100.0, log=True),
    "threshold": SearchRange(0.0, 1.0),
}
THRESHOLD_QUANTILE = "threshold_quantile"  # rewards lie close together, so their quantile is tried


@dataclass(frozen=True, repr=False)
class BanditStudy(SearchStudy):
    """Outcome of a study of a bandit.

    Attributes:
      bandit: settings that were found.
      weights: of the reward of a trace; None of a table.
      price: value lost a unit of cost that the learner is charged, under a budget the one that the
        pacer starts from; 0 where nothing costs.
      budget: with that price and the pacer's step, for `bandit.run(budget=)`; None without one.
      trials: a row a trial: `value` a round (of a trace the share of right decisions), `feasible`,
        `ms` of a trace, `spend` of a table, `threshold`, and the values tried.
      comparison: a row a policy on the cases that judge, as `compare_learners` describes it,
        `difference` (policy minus tuned). Of a table `right` is named `value` (under a budget
        `reward`, before costs, and without `regret`); with costs `reward` and `spend` apart, and
        `of_budget`.
      notes: what the tuned learner beats, and what it must not be used for.
      study: Optuna's own.
      settings: of the study. `split` of a table says which rows tune: the first half in their
        order, a half at random, or all of it where another table judges.
    """

    KIND = "bandit"
    MEASURES = ("right", "value", "reward", "spend", "regret", "ms")

    bandit: Bandit
    trials: pd.DataFrame
    comparison: pd.DataFrame
    notes: tuple[str, ...]
    study: Any
    settings: Mapping[str, Any]
    weights: RewardWeights | None = None
    price: float = 0.0
    budget: Budget | None = None

    def _summary(self) -> Summary:
        size_texts = [
            f"{self.settings[setting_name]} {setting_name}"
            for setting_name in self.settings
            if setting_name in _SIZE_SETTINGS
        ]
        facts = [
            ("learner", self.bandit.algorithm),
            ("threshold", value_text(self.bandit.threshold)),
            *([("price", value_text(self.price))] if self.price else []),
            *([("budget", value_text(self.budget.per_question))] if self.budget else []),
            ("trials", f"{len(self.trials):,}"),
            ("cases", ", ".join(size_texts).replace("_", " ")),
        ]
        tables = {"comparison": self.comparison, "trials": self.trials}
        return Summary(facts, tables, self.notes)

    def env(self) -> str:
        """Lines for a `.env` that put what was found to work online.

        Of a table weights, price and budget are not among them.
        """
        env_values: dict[str, Any] = {"POLICY": self.bandit.algorithm}
        for component_name in COMPONENTS if self.weights is not None else ():
            component = COMPONENT_BY_NAME[component_name]
            env_values[component.variable] = getattr(self.weights, component.weight)
        env_values |= {} if self.weights is None else {"LAMBDA": self.weights.lambda_}
        setting_names = ("threshold", "exploration", "epsilon", "prior_strength", "floor")
        env_values |= {
            setting_name: getattr(self.bandit, setting_name) for setting_name in setting_names
        }
        env_values |= {} if self.weights is None else {"BUDGET_MS": self.settings["budget_ms"]}
        return env_lines("RAGLAB_BANDIT", env_values)

    def _run_name(self) -> str:
        return f"{self.bandit.algorithm}: {len(self.trials)} trials"

    def _tuned(self) -> Mapping[str, Any]:
        tuned_values = stored_settings(self.bandit) | {"price": self.price}
        tuned_values.pop("history", None)
        return tuned_values if self.weights is None else tuned_values | self.weights._asdict()

    def _source(self) -> tuple[dict[str, str], TrackedData | None]:
        from raglab.lab.tracking import TrackedData

        source_kind = "table"
        source_tag = "table_digest"
        if self.weights is not None:
            source_kind = "trace"
            source_tag = "trace_fingerprint"
        source_id = str(self.settings[source_kind])
        policy_tags = {
            setting_name: str(self.settings[setting_name])
            for setting_name in ("policy_id",)
            if setting_name in self.settings
        }
        split_sizes = {
            setting_name.split("_")[0]: self.settings[setting_name]
            for setting_name in _SIZE_SETTINGS & self.settings.keys()
        }
        return {source_tag: source_id, **policy_tags}, TrackedData(
            source_kind, source_id, split_sizes
        )


_SIZE_SETTINGS = {"tune_cases", "report_cases", "tune_rows", "judge_rows"}


class Play(NamedTuple):
    """What is played: a learner, on a reward of some weights, at a price, within a budget."""

    learner: Bandit
    weights: RewardWeights = PUBLISHED_REWARD_WEIGHTS
    price: float = 0.0
    budget: Budget | None = None


@dataclass(frozen=True)
class BanditProblem:
    """What is searched: settings of a learner, and either reward weights or a price.

    tune, judge: tables that trials are played on and that the result is judged on, of the same
    scale of rewards, at a price of 0; one table for both where a trace has no splits. base:
    settings to start from. rounds: of each simulation. arms: of a trace, how its two tables are
    scored by other weights; none of a table. most_ms: highest mean latency, of a trace. budget:
    None without one. price: that the value is net of; under a budget the one to start from.
    charges: whether the price that the learner is charged is searched.
    """

    tune: Table
    judge: Table
    base: Bandit
    rounds: int
    arms: tuple[ArmTables, ...] = ()
    most_ms: float = 0.0
    budget: Budget | None = None
    price: float = 0.0
    charges: bool = False

    @property
    def untuned(self) -> str:
        """Name of the settings that the search began with."""
        return PUBLISHED_WEIGHTS if self.arms else UNTUNED

    @property
    def measure(self) -> str:
        """Name of what the comparison judges by."""
        return "right" if self.arms else "reward" if self.budget is not None else "value"

    @property
    def space(self) -> dict[str, SearchRange]:
        """What is tried, by name."""
        learner_ranges = learner_space(self.base)
        if self.arms:
            weight_ranges = {weight_name: SearchRange(0.0, 1.0) for weight_name in WEIGHT_NAMES}
            return {**weight_ranges, "lambda_": SearchRange(0.25, 16.0, log=True), **learner_ranges}
        if not self.charges:
            return learner_ranges
        price_unit, price_range, step_ranges = self.price, PRICES_OF_TABLE, {}
        if self.budget is not None:
            price_unit = 1.0 / self.budget.per_question
            price_range = PRICES_OF_BUDGET
            step_ranges = {"step": PACER_STEPS}
        return (
            learner_ranges
            | {
                "price": SearchRange(
                    price_unit * price_range[0], price_unit * price_range[1], log=True
                )
            }
            | step_ranges
        )

    @property
    def start(self) -> Play:
        """The published weights, and the learner and its price as they are."""
        start_price = self.price if self.charges else 0.0
        start_budget = None if self.budget is None else self.budget._replace(price=start_price)
        return Play(self.base, price=start_price, budget=start_budget)

    def first(self) -> dict[str, float]:
        """Values of the start, within what is tried, for the first trial."""
        search_space = self.space
        start_play = self.start
        start_values = {
            setting_name: float(getattr(PUBLISHED_REWARD_WEIGHTS, setting_name))
            for setting_name in (*WEIGHT_NAMES, "lambda_")
        }
        start_values |= {"price": self.price, "step": self.budget.step if self.budget else 0.0}
        start_values |= first_values(self.base, self._rewards(start_play), search_space)
        return {
            setting_name: float(
                np.clip(start_values[setting_name], search_range.low, search_range.high)
            )
            for setting_name, search_range in search_space.items()
        }

    def play(self, trial_values: Mapping[str, Any]) -> Play:
        """Settings of the values of a trial, to so many digits that a `.env` says the same."""
        trial_play = Play(self.base, budget=self.budget)
        if self.arms:
            weight_total = sum(trial_values[weight_name] for weight_name in WEIGHT_NAMES) or 1.0
            weight_shares = {
                weight_name: round(trial_values[weight_name] / weight_total, SETTING_DIGITS)
                for weight_name in WEIGHT_NAMES
            }
            reward_weights = PUBLISHED_REWARD_WEIGHTS._replace(
                **weight_shares, lambda_=round_value(trial_values["lambda_"])
            )
            trial_play = trial_play._replace(weights=reward_weights)
        if self.charges:
            trial_play = trial_play._replace(price=round_value(trial_values["price"]))
        if self.budget is not None:
            pacer_step = round_value(trial_values["step"])
            trial_play = trial_play._replace(
                budget=self.budget._replace(price=trial_play.price, step=pacer_step)
            )
        return trial_play._replace(
            learner=tuned_learner(trial_values, self.base, self._rewards(trial_play))
        )

    def _rewards(self, trial_play: Play) -> FloatArray:
        """Rewards of the rows tuned on, of which a threshold is a quantile."""
        return self.met(self.tune, trial_play).reward[self.tune.mask]

    def met(self, base_table: Table, play: Play) -> Table:
        """Table that a learner meets: charged its price, judged net of the table's own.

        Under a budget a pacer charges it, and it is judged before costs.
        """
        charged_price = self.price if self.budget is None and self.charges else 0.0
        net_table = base_table._replace(
            value=base_table.gross - charged_price * table_costs(base_table)
        )
        if self.arms:
            split_arms = self.arms[-1 if base_table is self.judge else 0]
            return net_table._replace(reward=split_arms.rewards(play.weights))
        if play.budget is not None:
            return net_table
        return net_table._replace(reward=net_table.priced(play.price).reward)

    def simulate(self, play: Play, run_settings: Mapping[str, Any]) -> TrialOutcome:
        """Outcome of a play on the rows tuned on; a pacer keeps the budget."""
        with warnings.catch_warnings():  # a trial over the budget is infeasible, its row says so
            warnings.filterwarnings("ignore", message="The mean spend of ")
            learner_table = self.met(self.tune, play)
            played_run = run(
                play.learner, learner_table, budget=play.budget, rounds=self.rounds, **run_settings
            )
        if self.arms:
            measured_use = {"ms": run_earnings(played_run, self.tune).ms}
            # missing never passes
            limit_excess = {
                "mean_ms": UNKNOWN_LATENCY_EXCESS
                if np.isnan(measured_use["ms"])
                else measured_use["ms"] - self.most_ms
            }
        else:
            mean_spend = (
                0.0
                if played_run.spend is None
                else float(played_run.spend[:, -1].mean()) / self.rounds
            )
            measured_use = {"spend": mean_spend}
            limit_excess = {}
            if self.budget is not None:
                limit_excess = {"spend": mean_spend - BUDGET_TOLERANCE * self.budget.per_question}
        mean_value = float(played_run.value[:, -1].mean()) / self.rounds
        return TrialOutcome(
            mean_value, limit_excess, measured_use | {"threshold": play.learner.threshold}
        )

    def rivals(self) -> tuple[dict[str, FloatArray], str | None]:
        """Policies that learn nothing, [Q, A] of the rows that judge, and the fixed arm among them.

        They are chosen on the rows tuned on, as the learner is; the fixed arm is None where it is
        chosen on the rows that judge.
        """
        tune_table, judge_table = (
            self.met(split_table, self.start) for split_table in (self.tune, self.judge)
        )
        # A fixed arm must be there in every row of both tables, and cost no more than the budget.
        usable_arms = judge_table.mask.all(axis=0)
        if self.budget is not None:
            with np.errstate(invalid="ignore"):
                usable_arms = usable_arms & (
                    table_costs(tune_table).mean(axis=0) <= self.budget.per_question
                )
        is_held_out = self.tune is not self.judge
        fixed_arm = (
            best_fixed_arm(tune_table._replace(mask=tune_table.mask & usable_arms))
            if is_held_out
            else None
        )
        router_plan = self.arms[-1].router if self.arms else None
        rival_plans = baselines(judge_table, router_plan, fixed=fixed_arm)
        if is_held_out and fixed_arm is None:
            rival_plans.pop(FIXED_PLAN, None)
        if self.budget is not None:
            # The best of every row is not to be had under a budget: the best within it is.
            del rival_plans[ORACLE_PLAN]
            rival_plans |= _budget_extension("study_plans")(tune_table, judge_table, self.budget)
            rival_plans[ORACLE_WITHIN_BUDGET] = _budget_extension("plan_within")(
                judge_table.value, judge_table, self.budget
            )
        return rival_plans, fixed_arm


def _budget_extension(point: str) -> Any:  # noqa: ANN401 - a function of the room
    return extension(point, "budgets", "a budget")


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
    n_boot: int = FRESH_REPLICATIONS,
    engine: str = "auto",
) -> BanditStudy:
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
        order where that is given, else at random.
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
    base_bandit = Bandit(bandit) if isinstance(bandit, str) else bandit
    check_bandit(base_bandit)
    run_settings: dict[str, Any] = {"replications": replications, "seed": seed, "engine": engine}
    study_settings: dict[str, Any] = {
        "trials": trials,
        "replications": replications,
        "sampler": sampler,
    }
    study_settings |= {"seed": seed, "level": level, "n_boot": n_boot}
    trace_arguments = {
        "policy": policy,
        "budget_ms": budget_ms,
        "latency_budget_ms": latency_budget_ms,
    }
    is_table = isinstance(trace, Table)
    study_notes: list[str] = []
    # An argument that the source cannot use would be ignored in silence, so it is refused.
    foreign_arguments = trace_arguments if is_table else {"judge": judge, "budget": budget}
    if foreign_names := [
        argument_name
        for argument_name, argument in foreign_arguments.items()
        if argument is not None
    ]:
        source_kind = "a trace" if is_table else "a table"
        message = (
            f"{', '.join(foreign_names)} of tune_bandit must be left out without {source_kind}, "
            "got a value."
        )
        raise ValueError(message)
    # From here on both sources are one problem; the settings say which cases tuned and judged.
    if isinstance(trace, Table):
        problem, switch_note = _table_problem(trace, base_bandit, judge, budget, rounds, seed)
        study_notes += filter(None, [switch_note])
        split_kind = "two tables" if judge else "order" if trace.order == "given" else "random"
        study_settings |= {"split": split_kind, **_table_settings(problem, trace)}
    else:
        if policy is None:
            refuse("tune_bandit takes a trace with a policy", "a trace alone", "give the policy")
        question_budget_ms = REWARD_BUDGET_MS if budget_ms is None else budget_ms
        problem = _trace_problem(
            trace, base_bandit, policy, question_budget_ms, latency_budget_ms, rounds
        )
        if len(problem.arms) < 2:
            study_notes.append(
                "No splits tune and report: judged on the cases tuned on, rates flatter."
            )
        study_settings |= {
            "budget_ms": question_budget_ms,
            "latency_budget_ms": problem.most_ms,
            "policy_id": policy.policy_id,
            "trace": trace.meta.get("fingerprint"),
            "tune_cases": len(problem.tune.mask),
            "report_cases": len(problem.judge.mask),
        }

    def judged(trial_values: Mapping[str, Any]) -> TrialOutcome:
        return problem.simulate(problem.play(trial_values), run_settings)

    # The settings as they are make a trial too, so that what is found earns no less here.
    study, trial_table = maximise(
        judged, problem.space, trials=trials, sampler=sampler, seed=seed, first=[problem.first()]
    )
    # The best of many trials is partly lucky: the finalists are played again on other chance.
    rerun_settings = {
        **run_settings,
        "seed": seed + 1,
        "replications": FINALIST_REPEATS * replications,
    }
    best_play = _best_play(problem, trial_table, rerun_settings)
    rival_plans, fixed_arm = problem.rivals()
    # A reader must not take a plan that could not be made for one that was beaten.
    if problem.budget is not None and not {MIXTURE_PLAN, PRICED_PLAN} <= rival_plans.keys():
        missing_plans = [
            plan_name for plan_name in (MIXTURE_PLAN, PRICED_PLAN) if plan_name not in rival_plans
        ]
        study_settings["left_out"] = ", ".join(missing_plans)
    comparison_settings = {**rerun_settings, "level": level, "n_boot": n_boot, "fixed": fixed_arm}
    comparison_table, comparison_notes = _compare(
        problem, best_play, rival_plans, comparison_settings
    )
    study_notes += [
        *_study_notes(comparison_table, trial_table, fixed_arm, problem),
        *comparison_notes,
    ]
    return BanditStudy(
        bandit=best_play.learner,
        weights=best_play.weights if problem.arms else None,
        price=best_play.price,
        budget=best_play.budget,
        trials=trial_table,
        comparison=comparison_table,
        notes=tuple(study_notes),
        study=study,
        settings={"bandit": base_bandit.algorithm, "rounds": problem.rounds, **study_settings},
    )


def _table_settings(problem: BanditProblem, table: Table) -> dict[str, Any]:
    """Settings of a study of a table, which identify it."""
    return {
        "budget": None if problem.budget is None else problem.budget.per_question,
        "price": problem.price,
        "order": table.order,
        "table": _fingerprint(table),
        "tune_rows": len(problem.tune.mask),
        "judge_rows": len(problem.judge.mask),
    }


def _best_play(
    problem: BanditProblem, trial_table: pd.DataFrame, run_settings: Mapping[str, Any]
) -> Play:
    """Best of the finalists, which meet other chance, and more of it: a short one may be lucky.

    Under a budget the best of those that keep it there, else the one that spends least.
    """
    ranked_plays = []
    for row in finalists(trial_table):
        trial_play = problem.play(
            {setting_name: row[setting_name] for setting_name in problem.space}
        )
        trial_outcome = problem.simulate(trial_play, run_settings)
        budget_excess = max(0.0, trial_outcome.excess.get("spend", 0.0))
        ranked_plays.append(((-budget_excess, trial_outcome.value), trial_play))
    return max(ranked_plays, key=lambda ranked_play: ranked_play[0])[1]


def _trace_problem(
    trace: TraceView,
    base_bandit: Bandit,
    policy: PolicyData,
    budget_ms: float,
    latency_budget_ms: float | None,
    rounds: int | None,
) -> BanditProblem:
    """Tables of the splits `tune` and `report` of a trace, or of all its cases."""
    split_names = trace.counted().keys()
    check_split_names(split_names - {NO_LABEL})
    whole_trace: Any = trace
    is_split = {"tune", "report"} <= split_names
    split_traces = (
        [whole_trace.split(split_name) for split_name in ("tune", "report")]
        if is_split
        else [whole_trace]
    )
    tables_by_split = tuple(
        arm_tables(split_trace, policy, budget_ms=budget_ms) for split_trace in split_traces
    )
    max_latency_ms = budget_ms if latency_budget_ms is None else latency_budget_ms
    rounds = DEFAULT_ROUNDS if rounds is None else rounds
    return BanditProblem(
        tables_by_split[0].world,
        tables_by_split[-1].world,
        base_bandit,
        rounds,
        tables_by_split,
        max_latency_ms,
    )


def _table_problem(
    table: Table,
    base_bandit: Bandit,
    judge: Table | None,
    budget: Budget | float | None,
    rounds: int | None,
    seed: int,
) -> tuple[BanditProblem, str]:
    """Tables to tune on and to judge, the learner that is played, and a note if it was switched.

    Raises:
      ValueError: too few rows, another table's arms or features, a budget without costs or one that
        nothing keeps.
    """
    checked_budget = None if budget is None else check_budget(budget)
    if checked_budget is not None and not table.has_costs:
        refuse("a budget needs a table with costs", "none", "state costs= in Table.from_frame")
    tune_table, judge_table = _tune_and_judge(table, judge, seed)
    # A learner that cannot follow costs is switched before anything is searched.
    learner, switch_note = follow_costs(base_bandit, table, charged=checked_budget is not None)
    if switch_note:
        warn_user(switch_note)
    start_price = table.price
    if checked_budget is not None:
        _budget_extension("check_budgeted")(learner, tune_table)  # some learners cannot keep one
        # what nothing can keep is refused with the least spend that there is
        for split_table in (tune_table, judge_table):
            _budget_extension("plan_within")(split_table.gross, split_table, checked_budget)
        start_price = (
            STARTING_PRICE_BUDGETS / checked_budget.per_question
            if checked_budget.price is None
            else checked_budget.price
        )
    n_rounds = check_count(
        "rounds", DEFAULT_ROUNDS if rounds is None else rounds, 1, "simulate one"
    )
    if table.order != "replacement":  # each row is played once
        n_rounds = min(n_rounds, len(tune_table.mask), len(judge_table.mask))
    is_charged = checked_budget is not None or table.is_charged
    problem = BanditProblem(
        tune_table,
        judge_table,
        learner,
        n_rounds,
        budget=checked_budget,
        price=start_price,
        charges=is_charged,
    )
    return problem, switch_note


def _tune_and_judge(table: Table, judge: Table | None, seed: int) -> list[Table]:
    """A table and the one that judges, or its halves, on one scale of costs, at a price of 0.

    The halves go by the order of the rows where it is given, else they are drawn.

    Raises:
      ValueError: too few rows; a judge of other arms, features, price or order.
    """
    n_rows = len(table.mask)
    if judge is None:
        if n_rows < MIN_SPLIT_ROWS:
            refuse(
                f"a table that is split must have at least {MIN_SPLIT_ROWS} rows",
                n_rows,
                "give judge=",
            )
        row_order = np.arange(n_rows)
        if table.order != "given":
            row_order = np.random.default_rng(seed).permutation(n_rows)
        halves = np.split(row_order, [n_rows // 2])
        split_tables = [table_rows(_checked(table), np.sort(half_rows)) for half_rows in halves]
    else:
        for field_name in ("arms", "feature_names", "price", "order"):
            table_value = getattr(table, field_name)
            judge_value = getattr(judge, field_name)
            if table_value != judge_value:
                message = (
                    f"judge must have the table's {field_name}, {table_value}, got {judge_value}."
                )
                raise ValueError(message)
        split_tables = [_checked(table), _checked(judge)]
    if not any(split_table.has_costs for split_table in split_tables):
        return split_tables
    # A reward means the same in both: they share the scale of the costs, halves that of the whole.
    ranged_tables = [table] if judge is None else split_tables
    cost_ranges = [
        ranged_table.cost_range or (np.nanmin(ranged_table.cost), np.nanmax(ranged_table.cost))
        for ranged_table in ranged_tables
    ]
    lowest_costs, highest_costs = zip(*cost_ranges, strict=True)
    shared_range = (float(min(lowest_costs)), float(max(highest_costs)))
    if judge is None:
        return [
            split_table._replace(cost_range=shared_range).priced(0.0)
            for split_table in split_tables
        ]
    free_tables = [
        split_table.priced(0.0)._replace(cost_range=shared_range) for split_table in split_tables
    ]
    return [
        split_table.priced(table.price).priced(0.0) for split_table in free_tables
    ]  # the same bits as ever


def _checked(table: Table) -> Table:
    """Table with arrays of its shape; its costs too, where one 0 stands for all."""
    checked_table: Any = check_world(table, 1)
    return checked_table


def table_rows(table: Table, row_numbers: PlaceArray) -> Table:
    """Some rows of a table, in the order of their numbers."""
    column_names = ["value", "reward", "mask", "features", "ms"]
    column_names += ["cost"] if len(table.cost) == len(table.mask) else []
    column_names += [] if table.delay is None else ["delay"]
    return table._replace(
        **{column_name: getattr(table, column_name)[row_numbers] for column_name in column_names}
    )


def learner_space(base_bandit: Bandit) -> dict[str, SearchRange]:
    """Settings that a learner reads and that are tried, by name."""
    read_settings = LEARNERS[base_bandit.algorithm].settings
    search_names = {"threshold": THRESHOLD_QUANTILE}
    return {
        search_names.get(setting_name, setting_name): search_range
        for setting_name, search_range in SEARCHED_SETTINGS.items()
        if setting_name in read_settings
    }


def tuned_learner(
    trial_values: Mapping[str, Any], base_bandit: Bandit, rewards: FloatArray
) -> Bandit:
    """Learner with the values of a trial, to so many digits that a `.env` says the same.

    Args:
      rewards: that the learner may see, of which the threshold is a quantile: the share
        `threshold_quantile` of the rewards do not exceed it, of n + 1 such shares; 0 for none of
        them. NaN is left out.
    """
    tuned_settings: dict[str, Any] = {
        setting_name: round_value(trial_values[setting_name])
        for setting_name in SEARCHED_SETTINGS
        if setting_name in trial_values
    }
    if THRESHOLD_QUANTILE in trial_values:
        present_rewards = np.sort(rewards[~np.isnan(rewards)])
        quantile_rank = min(
            int(trial_values[THRESHOLD_QUANTILE] * (len(present_rewards) + 1)), len(present_rewards)
        )
        tuned_settings["threshold"] = (
            float(np.ceil(present_rewards[quantile_rank - 1] * 1e6) / 1e6) if quantile_rank else 0.0
        )
    return base_bandit._replace(**tuned_settings)


def first_values(
    base_bandit: Bandit, rewards: FloatArray, search_space: Mapping[str, SearchRange]
) -> dict[str, float]:
    """Values of a learner's settings as they are, for the first trial; not clipped."""
    first_settings = {
        setting_name: float(getattr(base_bandit, setting_name))
        for setting_name in SEARCHED_SETTINGS
        if setting_name in search_space
    }
    if THRESHOLD_QUANTILE in search_space:
        present_rewards = rewards[~np.isnan(rewards)]
        first_settings[THRESHOLD_QUANTILE] = (
            int((present_rewards <= base_bandit.threshold).sum()) + 0.5
        ) / (len(present_rewards) + 1)
    return first_settings


def _compare(
    problem: BanditProblem,
    tuned_play: Play,
    rival_plans: Mapping[str, FloatArray],
    run_settings: Mapping[str, Any],
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Tuned learner against its old settings and policies that learn nothing, on judging rows.

    With the notes of the comparison.
    """
    judge_table = problem.judge
    net_table = problem.met(problem.judge, problem.start)
    plays = {TUNED: tuned_play, problem.untuned: problem.start}
    contenders = {
        policy_name: (play.learner, problem.met(judge_table, play).reward)
        for policy_name, play in plays.items()
    }
    comparison_settings: dict[str, Any] = {
        "rounds": problem.rounds,
        "reference": TUNED,
        **run_settings,
    }
    # A learner without a budget must not be paced, so only those that have one are listed.
    comparison_settings["budgets"] = {
        policy_name: play.budget for policy_name, play in plays.items() if play.budget
    }
    # The same plays judged by further measures: what they see, and so what they choose, stays.
    measured_values = {problem.measure: net_table.value}
    if judge_table.has_costs:
        measured_values["spend"] = table_costs(judge_table)
        if problem.charges and problem.budget is None:
            measured_values["reward"] = judge_table.gross
    with warnings.catch_warnings():  # the table says what was spent
        warnings.filterwarnings("ignore", message="The mean spend of ")
        comparisons = {
            measure: compare_learners(
                net_table._replace(value=judged_values),
                contenders,
                rival_plans,
                **comparison_settings,
            )
            for measure, judged_values in measured_values.items()
        }
    # One table: the first measure brings the policies, the others their columns alone.
    first_measure, *further_measures = comparisons
    comparison_table = comparisons[first_measure].table.rename(
        columns={f"right{suffix}": f"{first_measure}{suffix}" for suffix in INTERVAL_SUFFIXES}
    )
    for measure in further_measures:
        for suffix in INTERVAL_SUFFIXES:
            comparison_table[f"{measure}{suffix}"] = comparisons[measure].table[f"right{suffix}"]
    dropped_columns = ["ms"] if comparison_table["ms"].isna().all() else []
    if problem.budget is not None:
        comparison_table["of_budget"] = comparison_table["spend"] / problem.budget.per_question
        dropped_columns += [f"regret{suffix}" for suffix in INTERVAL_SUFFIXES]
    pull_columns = [column for column in comparison_table.columns if column.startswith("pulls_")]
    table_columns = [
        column
        for column in comparison_table.columns
        if column not in {*dropped_columns, *pull_columns}
    ]
    return comparison_table[[*table_columns, *pull_columns]], comparisons[first_measure].notes


def _study_notes(
    comparison_table: pd.DataFrame,
    trial_table: pd.DataFrame,
    fixed_arm: str | None,
    problem: BanditProblem,
) -> list[str]:
    """What tuned beats on the rows that judge, and whether it keeps its limit.

    Two policies are named: the settings as they were, and the best that needs no learning online
    and keeps the budget.
    """
    policy_rows = {
        str(policy_row["policy"]): policy_row for policy_row in comparison_table.to_dict("records")
    }
    budget = problem.budget
    simple_policies = [
        policy_name
        for policy_name in policy_rows
        if policy_name not in {TUNED, problem.untuned, ORACLE_PLAN, ORACLE_WITHIN_BUDGET}
    ]
    # Under a budget a policy that overspends is no rival, however much it earns.
    limit_phrase = f"the mean latency within {problem.most_ms:g} ms"
    if budget is not None:
        limit_phrase = f"{BUDGET_TOLERANCE:g} of the budget of {budget.per_question:.4g}"
        simple_policies = [
            policy_name
            for policy_name in simple_policies
            if policy_rows[policy_name]["spend_low"] <= budget.per_question
        ]
    best_policy = max(
        simple_policies,
        key=lambda policy_name: policy_rows[policy_name][problem.measure],
        default=None,
    )
    # What was chosen on the cases that judge it is never called better (rule S4.7).
    is_held_out = problem.tune is not problem.judge
    lead_phrase = "beats" if is_held_out else "is ahead, on the cases tuned on, of"
    study_notes = []
    # The table has rival minus tuned; a reader asks what tuned gains, so the signs are turned.
    for policy_name in filter(None, (best_policy, problem.untuned)):
        gain, gain_low, gain_high = (
            -float(policy_rows[policy_name][f"difference{suffix}"]) + 0.0
            for suffix in ("", "_high", "_low")
        )
        verdict_phrase = (
            lead_phrase
            if gain_low > 0.0
            else "is worse than"
            if gain_high < 0.0 and is_held_out
            else "does not beat"
        )
        policy_label = (
            f"{policy_name}, {fixed_arm}"
            if policy_name == FIXED_PLAN and fixed_arm
            else policy_name
        )
        simple_phrase = (
            "; that needs no learning online"
            if policy_name == best_policy and gain_low <= 0.0
            else ""
        )
        gain_phrase = f"{gain:+.4g} a round ({gain_low:+.4g} to {gain_high:+.4g})"
        study_notes.append(f"Tuned {verdict_phrase} {policy_label}: {gain_phrase}{simple_phrase}.")
    if not trial_table["feasible"].any():
        study_notes.append(f"No trial keeps {limit_phrase}; the nearest is judged.")
    if budget is not None and policy_rows[TUNED]["spend_low"] > budget.per_question:
        study_notes.append(f"Tuned spends {policy_rows[TUNED]['of_budget']:.3g} times the budget.")
    # No trial can judge the weight of a component that never varies.
    if problem.arms and not problem.arms[0].measured["cache_hit"].any():
        study_notes.append("No answer came from a cache, so w4 decides nothing; set it by hand.")
    return study_notes


def _fingerprint(table: Table) -> str:
    """Digest of a table's numbers."""
    table_arrays = (table.value, table.reward, table.mask, table.features, table_costs(table))
    return digest(
        "|".join(
            [
                *table.arms,
                *(
                    np.ascontiguousarray(table_array).tobytes().hex()
                    for table_array in table_arrays
                ),
            ]
        ),
        16,
    )
