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
from numpy.typing import NDArray

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
from raglab.lab.fresh_tables import REPLICATIONS
from raglab.lab.learner_comparison import compare_learners, run_earnings
from raglab.lab.reward_audit import ArmTables, arm_tables
from raglab.lab.search_space import DIGITS, SearchRange, round_value
from raglab.lab.search_studies import SearchStudy, env_lines
from raglab.lab.trial_search import AGAIN, TrialOutcome, finalists, maximise
from raglab.policy import PolicyData
from raglab.reward import BUDGET_MS, COMPONENT_TABLE, COMPONENTS, PUBLISHED, RewardWeights
from raglab.store.case_labels import check_split_names
from raglab.values import NONE, refuse
from raglab.words.canonical import digest
from raglab.words.results import Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import TrackedData

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
        rows: dict[str, Any] = {"POLICY": self.bandit.algorithm}
        for name in COMPONENTS if self.weights is not None else ():
            component = COMPONENT_TABLE[name]
            rows[component.variable] = getattr(self.weights, component.weight)
        rows |= {} if self.weights is None else {"LAMBDA": self.weights.lambda_}
        names = ("threshold", "exploration", "epsilon", "prior_strength", "floor")
        rows |= {name: getattr(self.bandit, name) for name in names}
        rows |= {} if self.weights is None else {"BUDGET_MS": self.settings["budget_ms"]}
        return env_lines("RAGLAB_BANDIT", rows)

    def _run_name(self) -> str:
        return f"{self.bandit.algorithm}: {len(self.trials)} trials"

    def _tuned(self) -> Mapping[str, Any]:
        values = stored_settings(self.bandit) | {"price": self.price}
        values.pop("history", None)
        return values if self.weights is None else values | self.weights._asdict()

    def _source(self) -> tuple[dict[str, str], TrackedData | None]:
        from raglab.lab.tracking import TrackedData

        kind, tag = ("table", "table_digest")
        if self.weights is not None:
            kind, tag = ("trace", "trace_fingerprint")
        source = str(self.settings[kind])
        policy = {key: str(self.settings[key]) for key in ("policy_id",) if key in self.settings}
        splits = {key.split("_")[0]: self.settings[key] for key in _SIZES & self.settings.keys()}
        return {tag: source, **policy}, TrackedData(kind, source, splits)


_SIZES = {"tune_cases", "report_cases", "tune_rows", "judge_rows"}


class Play(NamedTuple):
    """What is played: a learner, on a reward of some weights, at a price, within a budget."""

    learner: Bandit
    weights: RewardWeights = PUBLISHED
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
        space = learner_space(self.base)
        if self.arms:
            weights = {name: SearchRange(0.0, 1.0) for name in WEIGHTS}
            return {**weights, "lambda_": SearchRange(0.25, 16.0, log=True), **space}
        if not self.charges:
            return space
        unit, reach, steps = self.price, PRICES_OF_TABLE, {}
        if self.budget is not None:
            unit, reach, steps = 1.0 / self.budget.per_question, PRICES_OF_BUDGET, {"step": STEPS}
        return space | {"price": SearchRange(unit * reach[0], unit * reach[1], log=True)} | steps

    @property
    def start(self) -> Play:
        """The published weights, and the learner and its price as they are."""
        price = self.price if self.charges else 0.0
        budget = None if self.budget is None else self.budget._replace(price=price)
        return Play(self.base, price=price, budget=budget)

    def first(self) -> dict[str, float]:
        """Values of the start, within what is tried, for the first trial."""
        space, start = self.space, self.start
        values = {name: float(getattr(PUBLISHED, name)) for name in (*WEIGHTS, "lambda_")}
        values |= {"price": self.price, "step": self.budget.step if self.budget else 0.0}
        values |= first_values(self.base, self._rewards(start), space)
        return {
            name: float(np.clip(values[name], tried.low, tried.high))
            for name, tried in space.items()
        }

    def play(self, params: Mapping[str, Any]) -> Play:
        """Settings of the values of a trial, to so many digits that a `.env` says the same."""
        play = Play(self.base, budget=self.budget)
        if self.arms:
            total = sum(params[name] for name in WEIGHTS) or 1.0
            shares = {name: round(params[name] / total, DIGITS) for name in WEIGHTS}
            weights = PUBLISHED._replace(**shares, lambda_=round_value(params["lambda_"]))
            play = play._replace(weights=weights)
        if self.charges:
            play = play._replace(price=round_value(params["price"]))
        if self.budget is not None:
            step = round_value(params["step"])
            play = play._replace(budget=self.budget._replace(price=play.price, step=step))
        return play._replace(learner=tuned_learner(params, self.base, self._rewards(play)))

    def _rewards(self, play: Play) -> Array:
        """Rewards of the rows tuned on, of which a threshold is a quantile."""
        return self.met(self.tune, play).reward[self.tune.mask]

    def met(self, part: Table, play: Play) -> Table:
        """Table that a learner meets: charged its price, judged net of the table's own.

        Under a budget a pacer charges it, and it is judged before costs.
        """
        own = self.price if self.budget is None and self.charges else 0.0
        table = part._replace(value=part.gross - own * table_costs(part))
        if self.arms:
            arms = self.arms[-1 if part is self.judge else 0]
            return table._replace(reward=arms.rewards(play.weights))
        if play.budget is not None:
            return table
        return table._replace(reward=table.priced(play.price).reward)

    def simulate(self, play: Play, sizes: Mapping[str, Any]) -> TrialOutcome:
        """What a play comes to on the rows tuned on; a budget is kept by a pacer."""
        with warnings.catch_warnings():  # a trial over the budget is infeasible, its row says so
            warnings.filterwarnings("ignore", message="The mean spend of ")
            met = self.met(self.tune, play)
            done = run(play.learner, met, budget=play.budget, rounds=self.rounds, **sizes)
        if self.arms:
            used = {"ms": run_earnings(done, self.tune).ms}
            # missing never passes
            excess = {"mean_ms": UNKNOWN if np.isnan(used["ms"]) else used["ms"] - self.most_ms}
        else:
            spend = 0.0 if done.spend is None else float(done.spend[:, -1].mean()) / self.rounds
            used, excess = {"spend": spend}, {}
            if self.budget is not None:
                excess = {"spend": spend - KEPT * self.budget.per_question}
        value = float(done.value[:, -1].mean()) / self.rounds
        return TrialOutcome(value, excess, used | {"threshold": play.learner.threshold})

    def rivals(self) -> tuple[dict[str, Array], str | None]:
        """Policies that learn nothing, [Q, A] of the rows that judge, and the fixed arm among them.

        They are chosen on the rows tuned on, as the learner is; the fixed arm is None where it is
        chosen on the rows that judge.
        """
        tune, judge = (self.met(part, self.start) for part in (self.tune, self.judge))
        # A fixed arm must be there in every row of both tables, and cost no more than the budget.
        usable = judge.mask.all(axis=0)
        if self.budget is not None:
            with np.errstate(invalid="ignore"):
                usable = usable & (table_costs(tune).mean(axis=0) <= self.budget.per_question)
        is_apart = self.tune is not self.judge
        fixed = best_fixed_arm(tune._replace(mask=tune.mask & usable)) if is_apart else None
        router = self.arms[-1].router if self.arms else None
        plans = baselines(judge, router, fixed=fixed)
        if is_apart and fixed is None:
            plans.pop(FIXED_PLAN, None)
        if self.budget is not None:
            # The best of every row is not to be had under a budget: the best within it is.
            del plans[ORACLE_PLAN]
            plans |= _of_budgets("study_plans")(tune, judge, self.budget)
            plans[WITHIN] = _of_budgets("plan_within")(judge.value, judge, self.budget)
        return plans, fixed


def _of_budgets(point: str) -> Any:  # noqa: ANN401 - a function of the room
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
    of_trace = {"policy": policy, "budget_ms": budget_ms, "latency_budget_ms": latency_budget_ms}
    is_table = isinstance(trace, Table)
    notes: list[str] = []
    foreign = of_trace if is_table else {"judge": judge, "budget": budget}
    if stated := [name for name, value in foreign.items() if value is not None]:
        kind = "a trace" if is_table else "a table"
        msg = f"{', '.join(stated)} of tune_bandit must be left out without {kind}, got a value."
        raise ValueError(msg)
    if isinstance(trace, Table):
        problem, switched = _table_problem(trace, base, judge, budget, rounds, seed)
        notes += filter(None, [switched])
        split = "two tables" if judge else "order" if trace.order == "given" else "random"
        settings |= {"split": split, **_table_settings(problem, trace)}
    else:
        if policy is None:
            refuse("tune_bandit takes a trace with a policy", "a trace alone", "give the policy")
        of_question = BUDGET_MS if budget_ms is None else budget_ms
        problem = _trace_problem(trace, base, policy, of_question, latency_budget_ms, rounds)
        if len(problem.arms) < 2:
            notes.append("No splits tune and report: judged on the cases tuned on, rates flatter.")
        settings |= {
            "budget_ms": of_question,
            "latency_budget_ms": problem.most_ms,
            "policy_id": policy.policy_id,
            "trace": trace.meta.get("fingerprint"),
            "tune_cases": len(problem.tune.mask),
            "report_cases": len(problem.judge.mask),
        }

    def judged(params: Mapping[str, Any]) -> TrialOutcome:
        return problem.simulate(problem.play(params), sizes)

    # The settings as they are make a trial too, so that what is found earns no less here.
    study, tried = maximise(
        judged, problem.space, trials=trials, sampler=sampler, seed=seed, first=[problem.first()]
    )
    again = {**sizes, "seed": seed + 1, "replications": AGAIN * replications}
    best = _best_play(problem, tried, again)
    plans, fixed = problem.rivals()
    if problem.budget is not None and not {MIXTURE_PLAN, PRICED_PLAN} <= plans.keys():
        left_out = [name for name in (MIXTURE_PLAN, PRICED_PLAN) if name not in plans]
        settings["left_out"] = ", ".join(left_out)
    how = {**again, "level": level, "n_boot": n_boot, "fixed": fixed}
    table, compared = _compare(problem, best, plans, how)
    notes += [*_study_notes(table, tried, fixed, problem), *compared]
    return BanditStudy(
        bandit=best.learner,
        weights=best.weights if problem.arms else None,
        price=best.price,
        budget=best.budget,
        trials=tried,
        comparison=table,
        notes=tuple(notes),
        study=study,
        settings={"bandit": base.algorithm, "rounds": problem.rounds, **settings},
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


def _best_play(problem: BanditProblem, tried: pd.DataFrame, sizes: Mapping[str, Any]) -> Play:
    """Best of the finalists, which meet other chance, and more of it: a short one may be lucky.

    Under a budget the best of those that keep it there, else the one that spends least.
    """
    scored = []
    for row in finalists(tried):
        play = problem.play({name: row[name] for name in problem.space})
        outcome = problem.simulate(play, sizes)
        over = max(0.0, outcome.excess.get("spend", 0.0))
        scored.append(((-over, outcome.value), play))
    return max(scored, key=lambda entry: entry[0])[1]


def _trace_problem(
    trace: TraceView,
    base: Bandit,
    policy: PolicyData,
    budget_ms: float,
    latency_budget_ms: float | None,
    rounds: int | None,
) -> BanditProblem:
    """Tables of the splits `tune` and `report` of a trace, or of all its cases."""
    splits = trace.counted().keys()
    check_split_names(splits - {NONE})
    whole: Any = trace
    is_split = {"tune", "report"} <= splits
    parts = [whole.split(name) for name in ("tune", "report")] if is_split else [whole]
    arms = tuple(arm_tables(part, policy, budget_ms=budget_ms) for part in parts)
    most_ms = budget_ms if latency_budget_ms is None else latency_budget_ms
    rounds = ROUNDS if rounds is None else rounds
    return BanditProblem(arms[0].world, arms[-1].world, base, rounds, arms, most_ms)


def _table_problem(
    table: Table,
    base: Bandit,
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
    checked = None if budget is None else check_budget(budget)
    if checked is not None and not table.has_costs:
        refuse("a budget needs a table with costs", "none", "state costs= in Table.from_frame")
    tune, judged = _tune_and_judge(table, judge, seed)
    # A learner that cannot follow costs is switched before anything is searched.
    learner, switched = follow_costs(base, table, charged=checked is not None)
    if switched:
        warn_user(switched)
    price = table.price
    if checked is not None:
        _of_budgets("check_budgeted")(learner, tune)  # some learners cannot keep one
        # what nothing can keep is refused with the least spend that there is
        for part in (tune, judged):
            _of_budgets("plan_within")(part.gross, part, checked)
        price = (
            STARTING_PRICE_BUDGETS / checked.per_question
            if checked.price is None
            else checked.price
        )
    n_rounds = check_count("rounds", ROUNDS if rounds is None else rounds, 1, "simulate one")
    if table.order != "replacement":  # each row is played once
        n_rounds = min(n_rounds, len(tune.mask), len(judged.mask))
    charges = checked is not None or table.is_charged
    problem = BanditProblem(
        tune, judged, learner, n_rounds, budget=checked, price=price, charges=charges
    )
    return problem, switched


def _tune_and_judge(table: Table, judge: Table | None, seed: int) -> list[Table]:
    """A table and the one that judges, or its halves, on one scale of costs, at a price of 0.

    The halves go by the order of the rows where it is given, else they are drawn.

    Raises:
      ValueError: too few rows; a judge of other arms, features, price or order.
    """
    n_rows = len(table.mask)
    if judge is None:
        if n_rows < LEAST_ROWS:
            rule = f"a table that is split must have at least {LEAST_ROWS} rows"
            refuse(rule, n_rows, "give judge=")
        rows = np.arange(n_rows)
        if table.order != "given":
            rows = np.random.default_rng(seed).permutation(n_rows)
        halves = np.split(rows, [n_rows // 2])
        parts = [table_rows(_checked(table), np.sort(half)) for half in halves]
    else:
        for name in ("arms", "feature_names", "price", "order"):
            left, right = getattr(table, name), getattr(judge, name)
            if left != right:
                msg = f"judge must have the table's {name}, {left}, got {right}."
                raise ValueError(msg)
        parts = [_checked(table), _checked(judge)]
    if not any(part.has_costs for part in parts):
        return parts
    # A reward means the same in both: they share the scale of the costs, halves that of the whole.
    wholes = [table] if judge is None else parts
    ranges = [each.cost_range or (np.nanmin(each.cost), np.nanmax(each.cost)) for each in wholes]
    lows, highs = zip(*ranges, strict=True)
    shared = (float(min(lows)), float(max(highs)))
    if judge is None:
        return [part._replace(cost_range=shared).priced(0.0) for part in parts]
    free = [part.priced(0.0)._replace(cost_range=shared) for part in parts]
    return [part.priced(table.price).priced(0.0) for part in free]  # the same bits as ever


def _checked(table: Table) -> Table:
    """Table with arrays of its shape; its costs too, where one 0 stands for all."""
    checked: Any = check_world(table, 1)
    return checked


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


def _compare(
    problem: BanditProblem, tuned: Play, plans: Mapping[str, Array], how: Mapping[str, Any]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Tuned learner beside its old settings and policies that learn nothing, on judging rows.

    With the notes of the comparison.
    """
    judge, judged = problem.judge, problem.met(problem.judge, problem.start)
    plays = {TUNED: tuned, problem.untuned: problem.start}
    names = {name: (play.learner, problem.met(judge, play).reward) for name, play in plays.items()}
    settings: dict[str, Any] = {"rounds": problem.rounds, "reference": TUNED, **how}
    settings["budgets"] = {name: play.budget for name, play in plays.items() if play.budget}
    # The same plays judged by further measures: what they see, and so what they choose, stays.
    measures = {problem.measure: judged.value}
    if judge.has_costs:
        measures["spend"] = table_costs(judge)
        if problem.charges and problem.budget is None:
            measures["reward"] = judge.gross
    with warnings.catch_warnings():  # the table says what was spent
        warnings.filterwarnings("ignore", message="The mean spend of ")
        shown = {
            measure: compare_learners(judged._replace(value=values), names, plans, **settings)
            for measure, values in measures.items()
        }
    first, *further = shown
    table = shown[first].table.rename(columns={f"right{end}": f"{first}{end}" for end in END_NAMES})
    for measure in further:
        for end in END_NAMES:
            table[f"{measure}{end}"] = shown[measure].table[f"right{end}"]
    drop = ["ms"] if table["ms"].isna().all() else []
    if problem.budget is not None:
        table["of_budget"] = table["spend"] / problem.budget.per_question
        drop += [f"regret{end}" for end in END_NAMES]
    shares = [name for name in table.columns if name.startswith("pulls_")]
    columns = [name for name in table.columns if name not in {*drop, *shares}]
    return table[[*columns, *shares]], shown[first].notes


def _study_notes(
    table: pd.DataFrame, tried: pd.DataFrame, fixed: str | None, problem: BanditProblem
) -> list[str]:
    """What tuned beats on the rows that judge, and whether it keeps its limit.

    Two policies are named: the settings as they were, and the best that needs no learning online
    and keeps the budget.
    """
    rows, budget = {str(row["policy"]): row for row in table.to_dict("records")}, problem.budget
    simple = [name for name in rows if name not in {TUNED, problem.untuned, ORACLE_PLAN, WITHIN}]
    limit = f"the mean latency within {problem.most_ms:g} ms"
    if budget is not None:
        limit = f"{KEPT:g} of the budget of {budget.per_question:.4g}"
        simple = [name for name in simple if rows[name]["spend_low"] <= budget.per_question]
    best = max(simple, key=lambda name: rows[name][problem.measure], default=None)
    # What was chosen on the cases that judge it is never called better (rule S4.7).
    apart = problem.tune is not problem.judge
    ahead = "beats" if apart else "is ahead, on the cases tuned on, of"
    notes = []
    for name in filter(None, (best, problem.untuned)):
        gain, low, high = (
            -float(rows[name][f"difference{end}"]) + 0.0 for end in ("", "_high", "_low")
        )
        verb = ahead if low > 0.0 else "is worse than" if high < 0.0 and apart else "does not beat"
        shown = f"{name}, {fixed}" if name == FIXED_PLAN and fixed else name
        simpler = "; that needs no learning online" if name == best and low <= 0.0 else ""
        size = f"{gain:+.4g} a round ({low:+.4g} to {high:+.4g})"
        notes.append(f"Tuned {verb} {shown}: {size}{simpler}.")
    if not tried["feasible"].any():
        notes.append(f"No trial keeps {limit}; the nearest is judged.")
    if budget is not None and rows[TUNED]["spend_low"] > budget.per_question:
        notes.append(f"Tuned spends {rows[TUNED]['of_budget']:.3g} times the budget.")
    # No trial can judge the weight of a component that never varies.
    if problem.arms and not problem.arms[0].measured["cache_hit"].any():
        notes.append("No answer came from a cache, so w4 decides nothing; set it by hand.")
    return notes


def _fingerprint(table: Table) -> str:
    """Digest of a table's numbers."""
    parts = (table.value, table.reward, table.mask, table.features, table_costs(table))
    return digest(
        "|".join([*table.arms, *(np.ascontiguousarray(part).tobytes().hex() for part in parts)]), 16
    )
