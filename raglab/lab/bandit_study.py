"""Bandit study (shore): a learner's settings tuned by Optuna on a trace or a table (S4.7, S4.8).

A trace becomes a table of every arm of every case, whose reward weights are searched as well. Of a
table the price is searched that the learner is charged for a unit of cost.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.budget import START, Budget, check_budget
from raglab.bandit.environments import Table, check_world, table_costs
from raglab.bandit.fixed_plans import FIXED, MIXTURE, ORACLE, PRICED, baselines, best_fixed_arm
from raglab.bandit.learner import LEARNERS, Bandit, check_bandit, check_count, stored_settings
from raglab.bandit.simulation import Run, follow_costs, run
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.extension_points import extension
from raglab.lab.fresh_tables import REPLICATIONS
from raglab.lab.learner_comparison import compare_learners, mean_ms, run_earnings
from raglab.lab.reward_audit import ArmTables, arm_tables
from raglab.lab.search_space import DIGITS, SearchRange, round_value
from raglab.lab.trial_search import AGAIN, TrialOutcome, finalists, maximise
from raglab.policy import PolicyData
from raglab.reward import BUDGET_MS, COMPONENT_TABLE, COMPONENTS, PUBLISHED, RewardWeights
from raglab.store.case_labels import check_split_names
from raglab.values import NONE, refuse
from raglab.words.canonical import digest
from raglab.words.results import Result, Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import TrackedRun

Array = NDArray[np.float64]
WEIGHTS = tuple(COMPONENT_TABLE[name].weight for name in COMPONENTS)  # w1 … w5
TUNED, PUBLISHED_WEIGHTS, UNTUNED = "tuned", "published weights", "settings as they were"
WITHIN = "oracle within the budget"
UNKNOWN = 1e9  # excess of a latency that nobody measured, in ms
ROUNDS = 1000  # of each simulation, where none are stated
LEAST_ROWS = 4  # of a table that is split: two to tune on, two to judge
KEPT = 1.02  # of a budget that a trial may spend: a pacer ends near it, on either side
PRICES_OF_BUDGET = (1e-3, 10.0)  # prices that are tried under a budget, times 1 / per_question
STEPS = SearchRange(0.002, 0.2, log=True)  # of the pacer: how fast the price follows the spend
PRICES_OF_TABLE = (0.125, 8.0)  # prices that are tried where a table charges costs, times its own
END_NAMES = ("", "_low", "_high")
SEARCHED = {  # settings of a learner that are tried, where it reads them, in this order
    "epsilon": SearchRange(0.001, 0.5, log=True),
    "exploration": SearchRange(0.05, 5.0, log=True),
    "prior_strength": SearchRange(0.1, 100.0, log=True),
    "threshold": SearchRange(0.0, 1.0),
}
QUANTILE = "threshold_quantile"  # rewards lie close together, so their quantile is tried
MEASURES = ("right", "value", "reward", "spend", "regret", "ms")  # that a tracker is given


@dataclass(frozen=True, repr=False)
class BanditStudy(Result):
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

    TABLE = "comparison"

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
        sizes = [f"{self.settings[key]} {key}" for key in self.settings if key in _SIZES]
        facts = [
            ("learner", self.bandit.algorithm),
            ("threshold", value_text(self.bandit.threshold)),
            *([("price", value_text(self.price))] if self.price else []),
            *([("budget", value_text(self.budget.per_question))] if self.budget else []),
            ("trials", f"{len(self.trials):,}"),
            ("cases", ", ".join(sizes).replace("_", " ")),
        ]
        tables = {"comparison": self.comparison, "trials": self.trials}
        return Summary(facts, tables, self.notes)

    def env(self) -> str:
        """Lines for a `.env` that put what was found to work online.

        Of a table weights, price and budget are not among them.
        """
        of_reward, of_trace = {}, {}
        if self.weights is not None:
            of_reward = {
                COMPONENT_TABLE[name].variable: getattr(self.weights, COMPONENT_TABLE[name].weight)
                for name in COMPONENTS
            } | {"LAMBDA": self.weights.lambda_}
            of_trace = {"BUDGET_MS": self.settings["budget_ms"]}
        names = ("threshold", "exploration", "epsilon", "prior_strength", "floor")
        of_learner = {name.upper(): getattr(self.bandit, name) for name in names}
        rows = {"POLICY": self.bandit.algorithm} | of_reward | of_learner | of_trace
        return "".join(f"RAGLAB_BANDIT_{name}={value}\n" for name, value in rows.items())

    def track(self, folder: str | Path | None = None) -> TrackedRun:
        """Log the study as one MLflow run.

        Settings and values found, metrics, tables of trials and comparison.

        Args:
          folder: as for `raglab.track`.
        """
        from raglab.lab.tracking import TrackedData, search_metrics, track_run

        values = stored_settings(self.bandit) | {"price": self.price}
        values |= {} if self.weights is None else self.weights._asdict()
        tuned = {f"tuned.{name}": value for name, value in values.items() if name != "history"}
        kind = "table" if self.weights is None else "trace"
        source, tag = str(self.settings[kind]), "table_digest"
        tags = {}
        if self.weights is not None:
            tag, tags = "trace_fingerprint", {"policy_id": str(self.settings["policy_id"])}
        splits = {
            key.partition("_")[0]: self.settings[key] for key in _SIZES & self.settings.keys()
        }
        measures = [name for name in map(str, self.comparison) if name.split("_")[0] in MEASURES]
        return track_run(
            f"{self.bandit.algorithm}: {len(self.trials)} trials: {digest(self.env(), 12)}",
            "bandit",
            {**self.settings, **tuned},
            search_metrics(self.trials, self.comparison, measures),
            {"trials": self.trials, "comparison": self.comparison},
            folder,
            tags={tag: source, **tags},
            texts={"bandit.env": self.env(), "notes.txt": "\n".join(self.notes) + "\n"},
            data=TrackedData(kind, source, splits),
        )


_SIZES = {"tune_cases", "report_cases", "tune_rows", "judge_rows"}


class Play(NamedTuple):
    """What is played: a learner, on a reward of some weights, at a price, within a budget."""

    learner: Bandit
    weights: RewardWeights = PUBLISHED
    price: float = 0.0
    budget: Budget | None = None


class Rivals(NamedTuple):
    """Policies that learn nothing, [Q, A] of the rows that judge, and the fixed arm among them."""

    plans: dict[str, Array]
    fixed: str | None

    @property
    def left_out(self) -> dict[str, str]:
        """Plans under a budget that could not be made, as a setting; {} where none is missing."""
        within = (MIXTURE, PRICED) if WITHIN in self.plans else ()
        names = ", ".join(name for name in within if name not in self.plans)
        return {"left_out": names} if names else {}


@dataclass(frozen=True)
class TraceProblem:
    """Study of a trace: the cases that tune and judge, first settings, the highest mean latency."""

    tune: ArmTables
    judge: ArmTables
    base: Bandit
    rounds: int
    most_ms: float

    before: ClassVar[str] = PUBLISHED_WEIGHTS
    measure: ClassVar[str] = "right"
    budget: ClassVar[None] = None

    @property
    def limit(self) -> str:
        """What a feasible trial keeps."""
        return f"the mean latency within {self.most_ms:g} ms"

    @property
    def space(self) -> dict[str, SearchRange]:
        """What is tried, by name."""
        weights = {name: SearchRange(0.0, 1.0) for name in WEIGHTS}
        return {**weights, "lambda_": SearchRange(0.25, 16.0, log=True), **learner_space(self.base)}

    @property
    def start(self) -> Play:
        """The published weights and the learner as it is."""
        return Play(self.base)

    def first(self) -> dict[str, float]:
        """Values of the start, for the first trial."""
        weights = {name: float(getattr(PUBLISHED, name)) for name in (*WEIGHTS, "lambda_")}
        return weights | first_values(self.base, self._rewards(PUBLISHED), self.space)

    def _rewards(self, weights: RewardWeights) -> Array:
        return self.tune.rewards(weights)[self.tune.world.mask]

    def play(self, params: Mapping[str, Any]) -> Play:
        """Settings of the values of a trial, to so many digits that a `.env` says the same."""
        total = sum(params[name] for name in WEIGHTS) or 1.0
        shares = {name: round(params[name] / total, DIGITS) for name in WEIGHTS}
        weights = PUBLISHED._replace(**shares, lambda_=round_value(params["lambda_"]))
        return Play(tuned_learner(params, self.base, self._rewards(weights)), weights)

    def met(self, part: ArmTables, play: Play) -> Table:
        """Table that a learner meets: its reward is what the learner sees."""
        return part.world._replace(reward=part.rewards(play.weights))

    def outcome(self, done: Run, play: Play) -> TrialOutcome:
        """What a simulation on the cases tuned on came to."""
        ms = mean_ms(run_earnings(done, self.tune.world))
        over = UNKNOWN if np.isnan(ms) else ms - self.most_ms  # missing never passes
        measures = {"ms": ms, "threshold": play.learner.threshold}
        return TrialOutcome(_mean_value(done, self.rounds), {"mean_ms": over}, measures)

    def rivals(self) -> Rivals:
        """The best fixed arm is chosen on the cases tuned on, as the bandit is."""
        fixed = None if self.tune is self.judge else best_fixed_arm(self.tune.world)
        return Rivals(baselines(self.judge.world, self.judge.router, fixed=fixed), fixed)

    @property
    def judged(self) -> Table:
        """Table of the cases that judge."""
        return self.judge.world

    @property
    def measures(self) -> dict[str, Array]:
        """Further measures of the comparison."""
        return {}


@dataclass(frozen=True)
class TableProblem:
    """Study of a table.

    tune, judge: tables of the same scale of rewards, at a price of 0. base: settings to start from.
    budget: None without one. price: that the value is net of; under a budget the one to start from.
    charges: whether the price that the learner is charged is searched. rounds: of each simulation.
    """

    tune: Table
    judge: Table
    base: Bandit
    rounds: int
    budget: Budget | None
    price: float
    charges: bool

    before: ClassVar[str] = UNTUNED

    @property
    def measure(self) -> str:
        """Name of what the comparison judges by."""
        return "value" if self.budget is None else "reward"

    @property
    def limit(self) -> str:
        """What a feasible trial keeps."""
        limit = 0.0 if self.budget is None else self.budget.per_question
        return f"{KEPT:g} of the budget of {limit:.4g}"

    @property
    def space(self) -> dict[str, SearchRange]:
        """What is tried, by name."""
        space = learner_space(self.base)
        if not self.charges:
            return space
        unit, reach, steps = self.price, PRICES_OF_TABLE, {}
        if self.budget is not None:
            unit, reach, steps = 1.0 / self.budget.per_question, PRICES_OF_BUDGET, {"step": STEPS}
        return space | {"price": SearchRange(unit * reach[0], unit * reach[1], log=True)} | steps

    @property
    def start(self) -> Play:
        """Settings as they were."""
        price = self.price if self.charges else 0.0
        budget = None if self.budget is None else self.budget._replace(price=price)
        return Play(self.base, price=price, budget=budget)

    def first(self) -> dict[str, float]:
        """Values of the start, for the first trial."""
        price = self.price if self.budget is None else 0.0
        own = first_values(self.base, self._rewards(price), self.space)
        own |= {"price": self.price} if self.charges else {}
        return own | ({} if self.budget is None else {"step": self.budget.step})

    def _rewards(self, price: float) -> Array:
        return self.tune.priced(price).reward[self.tune.mask]

    def play(self, params: Mapping[str, Any]) -> Play:
        """Settings of the values of a trial."""
        price, budget = round_value(params["price"]) if self.charges else 0.0, self.budget
        if budget is not None:
            budget = budget._replace(price=price, step=round_value(params["step"]))
        rewards = self._rewards(0.0 if budget is not None else price)
        return Play(tuned_learner(params, self.base, rewards), price=price, budget=budget)

    def met(self, part: Table, play: Play) -> Table:
        """Table that a learner meets: charged its price, judged net of the table's own.

        Under a budget a pacer charges it, and it is judged before costs.
        """
        own = self.price if self.budget is None and self.charges else 0.0
        table = part._replace(value=part.gross - own * table_costs(part))
        return (
            table
            if play.budget is not None
            else table._replace(reward=table.priced(play.price).reward)
        )

    def outcome(self, done: Run, play: Play) -> TrialOutcome:
        """What a simulation on the rows tuned on came to."""
        spend = 0.0 if done.spend is None else float(done.spend[:, -1].mean()) / self.rounds
        budget = self.budget
        excess = {} if budget is None else {"spend": spend - KEPT * budget.per_question}
        measures = {"spend": spend, "threshold": play.learner.threshold}
        return TrialOutcome(_mean_value(done, self.rounds), excess, measures)

    def rivals(self) -> Rivals:
        """Policies that learn nothing, chosen on the rows tuned on."""
        tune, judge = self.met(self.tune, self.start), self.judged
        # A fixed arm must be there in every row of both tables, and cost no more than the budget.
        usable = judge.mask.all(axis=0)
        if self.budget is not None:
            with np.errstate(invalid="ignore"):
                usable = usable & (table_costs(tune).mean(axis=0) <= self.budget.per_question)
        fixed = best_fixed_arm(tune._replace(mask=tune.mask & usable))
        plans = baselines(judge, fixed=fixed)
        if fixed is None:
            plans.pop(FIXED, None)
        if self.budget is None:
            return Rivals(plans, fixed)
        # Under a budget the best of every row is not to be had: the best within it is. A plan that
        # cannot be made of these rows is left out, and named in the settings.
        del plans[ORACLE]
        plans |= extension("study_plans", "budgets", "a budget")(tune, judge, self.budget)
        plan_within = extension("plan_within", "budgets", "a budget")
        plans[WITHIN] = plan_within(judge.value, judge, self.budget)
        return Rivals(plans, fixed)

    @property
    def judged(self) -> Table:
        """Table of the rows that judge."""
        return self.met(self.judge, self.start)

    @property
    def measures(self) -> dict[str, Array]:
        """Further measures of the comparison: spend and reward apart."""
        if not self.judge.has_costs:
            return {}
        is_net = self.budget is None and self.charges
        return {"spend": table_costs(self.judge)} | ({"reward": self.judge.gross} if is_net else {})


Problem: TypeAlias = TraceProblem | TableProblem


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
    base = Bandit(bandit) if isinstance(bandit, str) else bandit
    check_bandit(base)
    sizes: dict[str, Any] = {"replications": replications, "seed": seed, "engine": engine}
    settings: dict[str, Any] = {"trials": trials, "replications": replications, "sampler": sampler}
    settings |= {"seed": seed, "level": level, "n_boot": n_boot}
    problem: Problem
    if isinstance(trace, Table):
        of_trace = {
            "policy": policy,
            "budget_ms": budget_ms,
            "latency_budget_ms": latency_budget_ms,
        }
        _refuse_arguments(of_trace, "a trace")
        problem, notes = _table_problem(trace, base, judge, budget, rounds, seed)
        settings |= {
            "budget": None if problem.budget is None else problem.budget.per_question,
            "price": problem.price,
            "order": trace.order,
            "split": "two tables" if judge else "order" if trace.order == "given" else "random",
            "table": _fingerprint(trace),
            "tune_rows": len(problem.tune.mask),
            "judge_rows": len(problem.judge.mask),
        }
    else:
        _refuse_arguments({"judge": judge, "budget": budget}, "a table")
        if policy is None:
            refuse("tune_bandit takes a trace with a policy", "a trace alone", "give the policy")
        of_question = BUDGET_MS if budget_ms is None else budget_ms
        most_ms = of_question if latency_budget_ms is None else latency_budget_ms
        problem = _trace_problem(
            trace, policy, base, ROUNDS if rounds is None else rounds, of_question, most_ms
        )
        same = "No splits tune and report: judged on the cases tuned on, rates flatter."
        notes = [same] if problem.tune is problem.judge else []
        settings |= {
            "budget_ms": of_question,
            "latency_budget_ms": most_ms,
            "policy_id": policy.policy_id,
            "trace": trace.meta.get("fingerprint"),
            "tune_cases": len(problem.tune.world.mask),
            "report_cases": len(problem.judge.world.mask),
        }

    def judged(params: Mapping[str, Any]) -> TrialOutcome:
        return _simulate(problem.play(params), problem, sizes)

    # The settings as they are make a trial too, so that what is found earns no less here.
    first = {
        name: float(np.clip(value, problem.space[name].low, problem.space[name].high))
        for name, value in problem.first().items()
    }
    study, tried = maximise(
        judged, problem.space, trials=trials, sampler=sampler, seed=seed, first=[first]
    )
    # The best of many short simulations is partly lucky: finalists meet other chance, and more of
    # it.
    again = {**sizes, "seed": seed + 1, "replications": AGAIN * replications}
    best = _best_finalist(tried, problem, again)
    rivals = problem.rivals()
    settings |= rivals.left_out
    table, compared = _compare(problem, best, rivals, {**again, "level": level, "n_boot": n_boot})
    notes += [*_study_notes(table, tried, rivals, problem), *compared]
    return BanditStudy(
        bandit=best.learner,
        weights=best.weights if isinstance(problem, TraceProblem) else None,
        price=best.price,
        budget=best.budget,
        trials=tried,
        comparison=table,
        notes=tuple(notes),
        study=study,
        settings={"bandit": base.algorithm, "rounds": problem.rounds, **settings},
    )


def _refuse_arguments(values: Mapping[str, object], kind: str) -> None:
    """Refuse arguments that the other kind of source takes."""
    stated = [name for name, value in values.items() if value is not None]
    if stated:
        msg = f"{', '.join(stated)} of tune_bandit must be left out without {kind}, got a value."
        raise ValueError(msg)


def _trace_problem(
    trace: TraceView,
    policy: PolicyData,
    base: Bandit,
    rounds: int,
    budget_ms: float,
    most_ms: float,
) -> TraceProblem:
    """Tables of the splits `tune` and `report`; of all cases for both without them."""
    splits = trace.counted().keys()
    check_split_names(splits - {NONE})
    of_splits: Any = trace
    is_split = {"tune", "report"} <= splits
    parts = [of_splits.split(name) for name in ("tune", "report")] if is_split else [trace]
    tables = [arm_tables(part, policy, budget_ms=budget_ms) for part in parts]
    return TraceProblem(tables[0], tables[-1], base, rounds, most_ms)


def _table_problem(
    table: Table,
    base: Bandit,
    judge: Table | None,
    budget: Budget | float | None,
    rounds: int | None,
    seed: int,
) -> tuple[TableProblem, list[str]]:
    """Tables to tune on and to judge, the learner that is played, and a note if it was switched.

    Raises:
      ValueError: too few rows, another table's arms or features, a budget without costs or one that
        nothing keeps.
    """
    checked = None if budget is None else check_budget(budget)
    if checked is not None and not table.has_costs:
        refuse("a budget needs a table with costs", "none", "state costs= in Table.from_frame")
    tune, judged = _split_rows(table, seed) if judge is None else _two_tables(table, judge)
    # A learner that cannot follow costs is switched before anything is searched.
    learner, switched = follow_costs(base, table, charged=checked is not None)
    if switched:
        warn_user(switched)
    price = table.price
    if checked is not None:
        # some learners cannot keep one
        extension("check_budgeted", "budgets", "a budget")(learner, tune)
        # what nothing can keep is refused with the least spend that there is
        for part in (tune, judged):
            extension("plan_within", "budgets", "a budget")(part.gross, part, checked)
        price = START / checked.per_question if checked.price is None else checked.price
    n_rounds = check_count("rounds", ROUNDS if rounds is None else rounds, 1, "simulate one")
    if table.order != "replacement":  # each row is played once
        n_rounds = min(n_rounds, len(tune.mask), len(judged.mask))
    charges = checked is not None or table.is_charged
    parts = tune.priced(0.0), judged.priced(0.0)
    problem = TableProblem(*parts, learner, n_rounds, checked, price, charges)
    return problem, [switched] if switched else []


def _split_rows(table: Table, seed: int) -> tuple[Table, Table]:
    """Halves of a table's rows: by their order where it is given, else at random."""
    n_rows = len(table.mask)
    if n_rows < LEAST_ROWS:
        rule = f"a table that is split must have at least {LEAST_ROWS} rows"
        refuse(rule, n_rows, "give judge=")
    rows = np.arange(n_rows)
    if table.order != "given":
        rows = np.random.default_rng(seed).permutation(n_rows)
    # Both halves keep the whole table's scale of costs: a reward means the same in each.
    whole = _checked(table)
    if whole.has_costs:
        whole = whole._replace(cost_range=_cost_range(whole))
    half = n_rows // 2
    return table_rows(whole, np.sort(rows[:half])), table_rows(whole, np.sort(rows[half:]))


def _cost_range(table: Table) -> tuple[float, float]:
    return table.cost_range or (float(np.nanmin(table.cost)), float(np.nanmax(table.cost)))


def _two_tables(table: Table, judge: Table) -> tuple[Table, Table]:
    """Table that is tuned on and another that judges, on one scale of costs.

    Raises:
      ValueError: other arms, features, price or order.
    """
    for name in ("arms", "feature_names", "price", "order"):
        left, right = getattr(table, name), getattr(judge, name)
        if left != right:
            msg = f"judge must have the table's {name}, {left}, got {right}."
            raise ValueError(msg)
    tune, judged = (_checked(part).priced(0.0) for part in (table, judge))
    if tune.has_costs or judged.has_costs:
        (low, high), (least, most) = _cost_range(tune), _cost_range(judged)
        shared = min(low, least), max(high, most)
        tune, judged = (
            part._replace(cost_range=shared).priced(table.price) for part in (tune, judged)
        )
    return tune, judged


def _checked(table: Table) -> Table:
    """Table with arrays of its shape; its costs too, where one 0 stands for all."""
    return cast("Table", check_world(table, 1))


def table_rows(table: Table, rows: NDArray[np.intp]) -> Table:
    """Some rows of a table, in the order of their numbers."""
    names = ["value", "reward", "mask", "features", "ms"]
    names += ["cost"] if len(table.cost) == len(table.mask) else []
    names += [] if table.delay is None else ["delay"]
    return table._replace(**{name: getattr(table, name)[rows] for name in names})


def learner_space(base: Bandit) -> dict[str, SearchRange]:
    """Settings that a learner reads and that are tried, by name."""
    read = LEARNERS[base.algorithm].settings
    names = {"threshold": QUANTILE}
    return {names.get(name, name): span for name, span in SEARCHED.items() if name in read}


def tuned_learner(params: Mapping[str, Any], base: Bandit, rewards: Array) -> Bandit:
    """Learner with the values of a trial, to so many digits that a `.env` says the same.

    Args:
      rewards: that the learner may see, of which the threshold is a quantile: the share
        `threshold_quantile` of the rewards do not exceed it, of n + 1 such shares; 0 for none of
        them. NaN is left out.
    """
    known: dict[str, Any] = {name: round_value(params[name]) for name in SEARCHED if name in params}
    if QUANTILE in params:
        there = np.sort(rewards[~np.isnan(rewards)])
        place = min(int(params[QUANTILE] * (len(there) + 1)), len(there))
        known["threshold"] = float(np.ceil(there[place - 1] * 1e6) / 1e6) if place else 0.0
    return base._replace(**known)


def first_values(
    base: Bandit, rewards: Array, space: Mapping[str, SearchRange]
) -> dict[str, float]:
    """Values of a learner's settings as they are, for the first trial; not clipped."""
    own = {name: float(getattr(base, name)) for name in SEARCHED if name in space}
    if QUANTILE in space:
        there = rewards[~np.isnan(rewards)]
        own[QUANTILE] = (int((there <= base.threshold).sum()) + 0.5) / (len(there) + 1)
    return own


def _mean_value(done: Run, rounds: int) -> float:
    return float(done.value[:, -1].mean()) / rounds


def _simulate(play: Play, problem: Problem, sizes: Mapping[str, Any]) -> TrialOutcome:
    """What a play comes to on the cases tuned on; a budget is kept by a pacer from its price on."""
    tune: Any = problem.tune
    with warnings.catch_warnings():  # a trial over the budget is infeasible, which its row says
        warnings.filterwarnings("ignore", message="The mean spend of ")
        met = problem.met(tune, play)
        done = run(play.learner, met, budget=play.budget, rounds=problem.rounds, **sizes)
    return problem.outcome(done, play)


def _best_finalist(tried: pd.DataFrame, problem: Problem, sizes: Mapping[str, Any]) -> Play:
    """Best of the finalists on other chance, the first of equals.

    Under a budget the best of those that keep it there; where none keeps it, the one that spends
    least.
    """
    scored = []
    for row in finalists(tried):
        play = problem.play({name: row[name] for name in problem.space})
        outcome = _simulate(play, problem, sizes)
        over = max(0.0, outcome.excess.get("spend", 0.0))
        scored.append(((-over, outcome.value), play))
    return max(scored, key=lambda entry: entry[0])[1]


def _compare(
    problem: Problem, tuned: Play, rivals: Rivals, sizes: Mapping[str, Any]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Tuned learner beside its old settings and policies that learn nothing, on judging rows.

    With the notes of the comparison.
    """
    plays = {TUNED: tuned, problem.before: problem.start}
    part: Any = problem.judge
    names = {name: (play.learner, problem.met(part, play).reward) for name, play in plays.items()}
    settings: dict[str, Any] = {
        "rounds": problem.rounds,
        "reference": TUNED,
        "fixed": rivals.fixed,
        "budgets": {name: play.budget for name, play in plays.items() if play.budget is not None},
        **sizes,
    }
    with warnings.catch_warnings():  # the table says what was spent
        warnings.filterwarnings("ignore", message="The mean spend of ")
        shown = compare_learners(problem.judged, names, rivals.plans, **settings)
        # The same plays judged by another measure: what they see, and so what they choose, does
        # not hang on it.
        apart = {
            measure: compare_learners(
                problem.judged._replace(value=values), names, rivals.plans, **settings
            ).table
            for measure, values in problem.measures.items()
        }
    table = shown.table.rename(
        columns={f"right{end}": f"{problem.measure}{end}" for end in END_NAMES}
    )
    for measure, measured in apart.items():
        for end in END_NAMES:
            table[f"{measure}{end}"] = measured[f"right{end}"]
    drop = ["ms"] if table["ms"].isna().all() else []
    if problem.budget is not None:
        table["of_budget"] = table["spend"] / problem.budget.per_question
        drop += [f"regret{end}" for end in END_NAMES]
    shares = [name for name in table.columns if name.startswith("pulls_")]
    columns = [name for name in table.columns if name not in {*drop, *shares}]
    return table[[*columns, *shares]], shown.notes


def _study_notes(
    table: pd.DataFrame, tried: pd.DataFrame, rivals: Rivals, problem: Problem
) -> list[str]:
    """What tuned beats on the rows that judge, and whether it keeps its limit.

    Two policies are named: the settings as they were, and the best that needs no learning online
    and keeps the budget.
    """
    rows = {str(row["policy"]): row for row in table.to_dict("records")}
    simple = [name for name in rows if name not in {TUNED, problem.before, ORACLE, WITHIN}]
    if problem.budget is not None:
        simple = [name for name in simple if rows[name]["spend_low"] <= problem.budget.per_question]
    best = max(simple, key=lambda name: rows[name][problem.measure], default=None)
    # What was chosen on the cases that judge it is never called better (rule S4.7).
    apart = problem.tune is not problem.judge
    ahead = "beats" if apart else "is ahead, on the cases tuned on, of"
    notes = []
    for name in filter(None, (best, problem.before)):
        gain, low, high = (
            -float(rows[name][f"difference{end}"]) + 0.0 for end in ("", "_high", "_low")
        )
        verb = ahead if low > 0.0 else "is worse than" if high < 0.0 and apart else "does not beat"
        shown = f"{name}, {rivals.fixed}" if name == FIXED and rivals.fixed else name
        simpler = "; that needs no learning online" if name == best and low <= 0.0 else ""
        size = f"{gain:+.4g} a round ({low:+.4g} to {high:+.4g})"
        notes.append(f"Tuned {verb} {shown}: {size}{simpler}.")
    if not tried["feasible"].any():
        notes.append(f"No trial keeps {problem.limit}; the nearest is judged.")
    if problem.budget is not None and rows[TUNED]["spend_low"] > problem.budget.per_question:
        notes.append(f"Tuned spends {rows[TUNED]['of_budget']:.3g} times the budget.")
    # No trial can judge the weight of a component that never varies.
    if isinstance(problem, TraceProblem) and not problem.tune.measured["cache_hit"].any():
        notes.append("No answer came from a cache, so w4 decides nothing; set it by hand.")
    return notes


def _fingerprint(table: Table) -> str:
    """Digest of a table's numbers."""
    parts = (table.value, table.reward, table.mask, table.features, table_costs(table))
    return digest(
        "|".join([*table.arms, *(np.ascontiguousarray(part).tobytes().hex() for part in parts)]), 16
    )
