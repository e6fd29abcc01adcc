"""Study on a table (shore): learner settings and price, tuned on some rows, judged on others.

The price is what the learner is charged.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.budget import START, Budget, check_budget, choose_price, frontier, table_costs
from raglab.bandit.environments import Table, check_world
from raglab.bandit.fixed_plans import FIXED, ORACLE, baselines, best_fixed_arm
from raglab.bandit.learner import Bandit, check_count, stored_settings
from raglab.bandit.ledgers import check_budgeted
from raglab.bandit.plans import MIXTURE
from raglab.bandit.priced_policy import fit_priced_policy
from raglab.bandit.simulation import follow_costs, run
from raglab.lab.learner_comparison import compare_learners
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
from raglab.lab.search_space import SearchRange, round_value
from raglab.lab.trial_search import TrialOutcome, maximise
from raglab.words.canonical import digest

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import TrackedRun

Array = NDArray[np.float64]
UNTUNED = "settings as they were"
WITHIN = "oracle within the budget"
PRICED = "ridge with a price"
ROUNDS = 1000  # of each simulation, where none are stated and rows are drawn with replacement
LEAST_ROWS = 4  # of a table that is split: two to tune on, two to judge
KEPT = 1.02  # of a budget that a trial may spend: a pacer ends near it, on either side
PRICES_OF_BUDGET = (1e-3, 10.0)  # prices that are tried under a budget, times 1 / per_question
STEPS = SearchRange(0.002, 0.2, log=True)  # of the pacer: how fast the price follows the spend
PRICES_OF_TABLE = (0.125, 8.0)  # prices that are tried where a table charges costs, times its own
END_NAMES = ("", "_low", "_high")


@dataclass(frozen=True)
class TableStudy:
    """Outcome of a study of a learner on a table.

    bandit: settings that were found. price: value lost a unit of cost that the learner is charged,
    under a budget the one that the pacer starts from; 0 where nothing costs. budget: with that
    price and the pacer's step, for `bandit.run(budget=)`; None without one. trials: a row a trial:
    `value` a round, `feasible`, `spend`, `threshold`, and the values tried. comparison: a row a
    policy on the rows that judge: `policy`, `value` a round (under a budget `reward`, before
    costs), with costs `reward` and `spend` apart, `of_budget`, `difference` (policy minus tuned)
    and without a budget `regret`, each with `_low`, `_high`, and `pulls_<arm>`. notes: what a
    reader must know. study: Optuna's own.
    """

    bandit: Bandit
    price: float
    budget: Budget | None
    trials: pd.DataFrame
    comparison: pd.DataFrame
    notes: tuple[str, ...]
    study: Any
    settings: Mapping[str, Any]

    def frame(self) -> pd.DataFrame:
        """The tuned bandit beside the others, a row each."""
        return self.comparison.copy()

    def env(self) -> str:
        """Lines for a `.env` that put the settings to work online.

        Weights, price and budget are not among them.
        """
        stored = stored_settings(self.bandit)
        names = ("policy", "threshold", "exploration", "epsilon", "prior_strength", "floor")
        return settings_lines({name.upper(): stored[name] for name in names})

    def track(self, folder: str | Path | None = None) -> TrackedRun:
        """Log the study as one MLflow run.

        Settings and values found, metrics, tables of trials and comparison.

        Args:
          folder: as for `raglab.track`.
        """
        from raglab.lab.tracking import TrackedData

        values = {
            f"tuned.{name}": value
            for name, value in stored_settings(self.bandit).items()
            if name != "history"
        }
        splits = {name: int(self.settings[f"{name}_rows"]) for name in ("tune", "judge")}
        measures = [
            name
            for name in self.comparison.columns
            if name.split("_")[0] in {"value", "reward", "spend"}
        ]
        return track_search(
            f"{self.bandit.algorithm}: {self.settings['trials']} trials: {digest(self.env(), 12)}",
            {**self.settings, **values, "tuned.price": self.price},
            self.trials,
            self.comparison,
            {"bandit.env": self.env(), "notes.txt": "\n".join(self.notes) + "\n"},
            folder,
            measures=measures,
            tags={"table_digest": str(self.settings["table"])},
            data=TrackedData("table", str(self.settings["table"]), splits),
        )


class TableProblem(NamedTuple):
    """What is searched and on what.

    tune, judge: tables of the same scale of rewards, at a price of 0. base: settings to start from.
    budget: None without one. price: that the value is net of; under a budget the one to start from.
    charges: whether the price that the learner is charged is searched. rounds: of each simulation.
    """

    tune: Table
    judge: Table
    base: Bandit
    budget: Budget | None
    price: float
    charges: bool
    rounds: int


def tune_on_table(
    table: Table,
    base: Bandit,
    *,
    judge: Table | None,
    budget: Budget | float | None,
    trials: int,
    rounds: int | None,
    replications: int,
    sampler: str,
    seed: int,
    level: float,
    n_boot: int,
    engine: str,
) -> TableStudy:
    """Study of a learner's settings, and of the price that it is charged, on a table.

    See `raglab.tune_bandit`.
    """
    problem, notes = _problem(table, base, judge, budget, rounds, seed)
    space = _space(problem)
    played: dict[str, Any] = {"replications": replications, "engine": engine}

    def judged(params: Mapping[str, Any]) -> TrialOutcome:
        settings = _trial_settings(params, problem)
        value, spend = _simulate_trial(settings, problem, seed=seed, **played)
        limit = (
            {} if problem.budget is None else {"spend": spend - KEPT * problem.budget.per_question}
        )
        return TrialOutcome(value, limit, {"spend": spend, "threshold": settings.learner.threshold})

    # The settings as they are make a trial too, so that what is found earns no less on these rows.
    known = problem.tune.reward[problem.tune.mask]
    if problem.budget is None:
        known = _learner_view(problem.tune, problem.price).reward[problem.tune.mask]
    first = first_values(problem.base, known, space) | (
        {"price": problem.price} if problem.charges else {}
    )
    first |= {} if problem.budget is None else {"step": problem.budget.step}
    study, trial_table = maximise(
        judged,
        space,
        trials=trials,
        sampler=sampler,
        seed=seed,
        first=[clipped_values(first, space)],
    )
    # The best of many short simulations is partly lucky: finalists meet other chance, and more of
    # it.
    again = {**played, "seed": seed + 1, "replications": AGAIN * replications}
    best = _best_finalist(trial_table, space, problem, again)
    shown, fixed, judge_notes = _judge(problem, best, {**again, "level": level, "n_boot": n_boot})
    notes += [
        *_search_notes(trial_table, problem, best),
        *_verdict_notes(shown, fixed, problem),
        *judge_notes,
    ]
    settings = {
        "bandit": base.algorithm,
        "trials": trials,
        "rounds": problem.rounds,
        "replications": replications,
        "budget": None if problem.budget is None else problem.budget.per_question,
        "price": problem.price,
        "sampler": sampler,
        "seed": seed,
        "level": level,
        "n_boot": n_boot,
        "order": problem.tune.order,
        "table": _fingerprint(table),
        "tune_rows": len(problem.tune.mask),
        "judge_rows": len(problem.judge.mask),
    }
    return TableStudy(
        bandit=best.learner,
        price=best.price,
        budget=best.budget,
        trials=trial_table,
        comparison=shown,
        notes=tuple(notes),
        study=study,
        settings=settings,
    )


def _problem(
    table: Table,
    base: Bandit,
    judge: Table | None,
    budget: Budget | float | None,
    rounds: int | None,
    seed: int,
) -> tuple[TableProblem, list[str]]:
    """Tables to tune on and to judge, the learner that is played, and what must be said of them.

    Raises:
      ValueError: too few rows, another table's arms or features, a budget without costs or one that
        nothing keeps.
    """
    checked = None if budget is None else check_budget(budget)
    if checked is not None and not table.has_costs:
        msg = "a budget needs a table with costs, got none; state costs= in Table.from_frame."
        raise ValueError(msg)
    tune, judged, how = _split_rows(table, seed) if judge is None else _two_tables(table, judge)
    notes = [how]
    # A learner that cannot follow costs is switched before anything is searched.
    learner, switched = follow_costs(base, table, charged=checked is not None)
    if switched:
        warn_user(switched)
        notes.append(switched)
    if checked is not None:
        check_budgeted(learner, tune)  # some learners cannot keep one
        # what nothing can keep is refused with the least spend that there is
        for part in (tune, judged):
            _plan_within(part.gross, part, checked)
    price = table.price
    if checked is not None:
        price = START / checked.per_question if checked.price is None else checked.price
    elif table.has_costs and not table.is_charged:
        notes.append(
            "Costs are counted and not charged (price 0), so no price was searched; state a "
            "budget or a price."
        )
    # Where each row is played once, there are no more rounds than rows.
    most = min(len(tune.mask), len(judged.mask))
    n_rounds = check_count(
        "rounds", ROUNDS if rounds is None else rounds, 1, "simulate at least one"
    )
    if table.order != "replacement" and n_rounds > most:
        notes.append(f"Each row is played once ({table.order}): {most} rounds, not {n_rounds}.")
        n_rounds = most
    charges = checked is not None or table.is_charged
    return TableProblem(
        tune.priced(0.0), judged.priced(0.0), learner, checked, price, charges, n_rounds
    ), notes


def _split_rows(table: Table, seed: int) -> tuple[Table, Table, str]:
    """Halves of a table's rows: by their order where it is given, else at random."""
    n_rows = len(table.mask)
    if n_rows < LEAST_ROWS:
        msg = (
            f"a table that is split must have at least {LEAST_ROWS} rows, got {n_rows}; give "
            "judge=, another table."
        )
        raise ValueError(msg)
    rows, half = np.arange(n_rows), n_rows // 2
    if table.order == "given":
        how = f"Tuned on the first {half} rows in their order, judged on the last {n_rows - half}."
    else:
        rows = np.random.default_rng(seed).permutation(n_rows)
        how = (
            f"Tuned on {half} rows drawn at random (seed {seed}), judged on the other "
            f"{n_rows - half}."
        )
    # Both halves keep the whole table's scale of costs: a reward means the same in each.
    whole = _checked(table)
    if whole.has_costs and whole.cost_range is None:
        whole = whole._replace(
            cost_range=(float(np.nanmin(whole.cost)), float(np.nanmax(whole.cost)))
        )
    return table_rows(whole, np.sort(rows[:half])), table_rows(whole, np.sort(rows[half:])), how


def _two_tables(table: Table, judge: Table) -> tuple[Table, Table, str]:
    """Table that is tuned on and another that judges, on one scale of costs.

    Raises:
      ValueError: other arms, features, price or order.
    """
    for name in ("arms", "feature_names", "price", "order"):
        left, right = getattr(table, name), getattr(judge, name)
        if left != right:
            msg = (
                f"judge must have the table's {name}, {left}, got {right}; make both in the same "
                "way."
            )
            raise ValueError(msg)
    how = (
        f"Tuned on {len(table.mask)} rows of one table, judged on {len(judge.mask)} rows of "
        "another."
    )
    parts = [_checked(part).priced(0.0) for part in (table, judge)]
    if not any(part.has_costs for part in parts):
        return parts[0], parts[1], how
    ends = [
        part.cost_range or (float(np.nanmin(part.cost)), float(np.nanmax(part.cost)))
        for part in parts
    ]
    shared = (min(low for low, _ in ends), max(high for _, high in ends))
    tune, judged = (part._replace(cost_range=shared).priced(table.price) for part in parts)
    return tune, judged, how


def _checked(table: Table) -> Table:
    """Table with arrays of its shape; its costs too, where one 0 stands for all."""
    checked = check_world(table, 1)
    # for the type checker: check_world gives a table back for a table
    if not isinstance(checked, Table):
        raise TypeError
    return checked


def table_rows(table: Table, rows: NDArray[np.intp]) -> Table:
    """Some rows of a table, in the order of their numbers."""
    parts = {
        name: getattr(table, name)[rows] for name in ("value", "reward", "mask", "features", "ms")
    }
    cost = table.cost[rows] if len(table.cost) == len(table.mask) else table.cost
    return table._replace(
        **parts, cost=cost, delay=None if table.delay is None else table.delay[rows]
    )


def _learner_view(table: Table, price: float) -> Table:
    """Table in which the learner is charged a price and the value is as it was.

    Costs are still counted.

    Args:
      table: at a price of 0.
    """
    return table._replace(reward=table.priced(price).reward)


def _objective(table: Table, problem: TableProblem) -> Table:
    """Table whose value is what a trial is judged by.

    Net of the table's own price, or before costs under a budget.
    """
    price = problem.price if problem.budget is None and problem.charges else 0.0
    return table._replace(value=table.gross - price * table_costs(table))


def _space(problem: TableProblem) -> dict[str, SearchRange]:
    """What is tried, by name."""
    space = learner_space(problem.base)
    if not problem.charges:
        return space
    unit, reach = problem.price, PRICES_OF_TABLE
    if problem.budget is not None:
        unit, reach = 1.0 / problem.budget.per_question, PRICES_OF_BUDGET
    steps = {} if problem.budget is None else {"step": STEPS}
    return space | {"price": SearchRange(unit * reach[0], unit * reach[1], log=True)} | steps


@contextmanager
def _quiet_budgets() -> Iterator[None]:
    """No warning of each play that spends more than its budget.

    Trials, comparison and notes say what was spent.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The mean spend of ")
        yield


class TrialSettings(NamedTuple):
    """What a trial plays.

    The learner, the price that it is charged or starts from, and the budget with that price.
    """

    learner: Bandit
    price: float
    budget: Budget | None


def _trial_settings(params: Mapping[str, Any], problem: TableProblem) -> TrialSettings:
    """Settings of the values of a trial."""
    price = round_value(params["price"]) if problem.charges else 0.0
    if problem.budget is not None:
        learner = tuned_learner(params, problem.base, problem.tune.reward[problem.tune.mask])
        budget = problem.budget._replace(price=price, step=round_value(params["step"]))
        return TrialSettings(learner, price, budget)
    known = _learner_view(problem.tune, price).reward[problem.tune.mask]
    return TrialSettings(tuned_learner(params, problem.base, known), price, None)


def _first_settings(problem: TableProblem) -> TrialSettings:
    """Settings as they were."""
    price = problem.price if problem.charges else 0.0
    budget = None if problem.budget is None else problem.budget._replace(price=price)
    return TrialSettings(problem.base, price, budget)


def _simulate_trial(
    settings: TrialSettings, problem: TableProblem, *, seed: int, replications: int, engine: str
) -> tuple[float, float]:
    """Value and spend a round of a learner on the rows tuned on.

    A budget is kept by a pacer from the price on.
    """
    world = _objective(problem.tune, problem)
    world = world if settings.budget is not None else _learner_view(world, settings.price)
    sizes: dict[str, Any] = {
        "rounds": problem.rounds,
        "replications": replications,
        "seed": seed,
        "engine": engine,
    }
    with _quiet_budgets():  # a trial over the budget is infeasible, which its row says
        done = run(settings.learner, world, budget=settings.budget, **sizes)
    spend = 0.0 if done.spend is None else float(done.spend[:, -1].mean()) / problem.rounds
    return float(done.value[:, -1].mean()) / problem.rounds, spend


def _best_finalist(
    trial_table: pd.DataFrame,
    space: Mapping[str, SearchRange],
    problem: TableProblem,
    again: Mapping[str, Any],
) -> TrialSettings:
    """Best of the finalists on other chance, the first of equals.

    Under a budget the best of those that keep it there.

    Where none keeps it, the one that spends least is taken.
    """
    scored = []
    for row in finalists(trial_table):
        settings = _trial_settings({name: row[name] for name in space}, problem)
        value, spend = _simulate_trial(settings, problem, **again)
        over = (
            0.0 if problem.budget is None else max(0.0, spend - KEPT * problem.budget.per_question)
        )
        scored.append(((-over, value), settings))
    return max(scored, key=lambda entry: entry[0])[1]


def _judge(
    problem: TableProblem, tuned: TrialSettings, sizes: Mapping[str, Any]
) -> tuple[pd.DataFrame, str | None, list[str]]:
    """Tuned learner beside its old settings and non-learning policies, on the judging rows.

    Returns: the comparison, the arm that was best on the rows tuned on, and notes.
    """
    judge = _objective(problem.judge, problem)
    plans, fixed, notes = _plans(problem, judge)
    more: dict[str, Any] = {
        "rounds": problem.rounds,
        "reference": TUNED,
        "fixed": fixed,
        "budgets": {},
        **sizes,
    }
    names: dict[str, Any] = {}
    for name, played in ((TUNED, tuned), (UNTUNED, _first_settings(problem))):
        names[name] = played.learner
        if played.budget is None:
            names[name] = played.learner, _learner_view(judge, played.price).reward
        else:
            more["budgets"][name] = played.budget
    with _quiet_budgets():
        shown = compare_learners(judge, names, plans, **more)
    value = "value" if problem.budget is None else "reward"
    named = {f"right{end}": f"{value}{end}" for end in END_NAMES}
    table = shown.table.set_axis([named.get(name, name) for name in shown.table.columns], axis=1)
    # The same plays judged by another measure: what they see, and so what they choose, does not
    # hang on it.
    apart = {"spend": table_costs(judge)} if judge.has_costs else {}
    if judge.has_costs and problem.budget is None and problem.charges:
        apart["reward"] = problem.judge.gross
    for measure, values in apart.items():
        with _quiet_budgets():
            measure_table = compare_learners(
                judge._replace(value=values), names, plans, **more
            ).table
        for end in END_NAMES:
            table[f"{measure}{end}"] = measure_table[f"right{end}"]
    if problem.budget is not None:
        table["of_budget"] = table["spend"] / problem.budget.per_question
    drop = [f"regret{end}" for end in END_NAMES] if problem.budget is not None else []
    drop += ["ms"] if table["ms"].isna().all() else []
    shares = [name for name in table.columns if name.startswith("pulls_")]
    columns = [name for name in table.columns if name not in {*drop, *shares}]
    return table[[*columns, *shares]], fixed, [*notes, *shown.notes]


def _plans(problem: TableProblem, judge: Table) -> tuple[dict[str, Array], str | None, list[str]]:
    """Policies that learn nothing, chosen on the tuning rows, [Q, A] of the rows that judge."""
    notes: list[str] = []
    tune = _objective(problem.tune, problem)
    cost = table_costs(tune)
    # A fixed arm must be there in every row of both tables, and cost no more than the budget.
    usable = judge.mask.all(axis=0)
    if problem.budget is not None:
        with np.errstate(invalid="ignore"):
            usable = usable & (cost.mean(axis=0) <= problem.budget.per_question)
    fixed = best_fixed_arm(tune._replace(mask=tune.mask & usable))
    plans = baselines(judge, fixed=fixed)
    if fixed is None:
        plans.pop(FIXED, None)
        notes.append(
            "No arm is available in every row" + (" within the budget." if problem.budget else ".")
        )
    if problem.budget is None:
        return plans, fixed, notes
    # Under a budget the best of every row is not to be had: the best within it is.
    del plans[ORACLE]
    try:
        mixture = frontier(tune).mixture_at(problem.budget)
    except ValueError as error:
        notes.append(f"No fixed mixture to compare with: {error}")
    else:
        if judge.mask[:, mixture > 0.0].all():
            plans[MIXTURE] = np.broadcast_to(mixture, judge.mask.shape)
        else:
            notes.append(
                "The best fixed mixture has an arm that some row that judges cannot have; it is "
                "left out."
            )
    if np.ptp(tune.features, axis=0).any():
        try:
            plans[PRICED] = fit_priced_policy(tune, problem.budget).plan(judge)
        except ValueError as error:
            notes.append(f"No regression with a price to compare with: {error}")
    plans[WITHIN] = _plan_within(judge.value, judge, problem.budget)
    return plans, fixed, notes


def _plan_within(reward: Array, table: Table, budget: Budget) -> Array:
    """Plan [Q, A] of most reward within a budget, by one who knows every reward and cost.

    Raises:
      ValueError: the budget is below the spend of the cheapest arm of each row.
    """
    known, cost = (np.where(table.mask, cells, 0.0) for cells in (reward, table_costs(table)))
    return choose_price(known, cost, budget, mask=table.mask).plan(known, cost, table.mask)


def _search_notes(
    trial_table: pd.DataFrame, problem: TableProblem, tuned: TrialSettings
) -> list[str]:
    """What the search came to on the rows that it searched on."""
    eligible_rows = trial_table["feasible"] if trial_table["feasible"].any() else slice(None)
    best, first = (
        float(trial_table.loc[eligible_rows, "value"].max()),
        float(trial_table["value"].iloc[0]),
    )
    flatters = f"the best of {len(trial_table)} flatters. What follows is on the rows that judge."
    over = "" if trial_table["feasible"].iloc[0] else ", over the budget"
    rates = f"the best trial earns {best:.4g} a round, the first settings {first:.4g}{over}"
    notes = [f"On the rows tuned on, {rates}; {flatters}"]
    if problem.charges:
        price, before = f"{tuned.price:.4g} a unit of cost", f"{problem.price:.4g}"
        line = f"The learner is charged {price}; the price of the table is {before}."
        if tuned.budget is not None:
            line = (
                f"A pacer keeps the budget: first price {price} (before: {before}), step "
                f"{tuned.budget.step:g}."
            )
        notes.append(line)
    if not trial_table["feasible"].any():
        limit = 0.0 if problem.budget is None else problem.budget.per_question
        notes.append(
            f"No trial keeps {KEPT:g} of the budget of {limit:.4g} on the rows tuned on; the "
            "nearest one is judged."
        )
    return notes


def _verdict_notes(shown: pd.DataFrame, fixed: str | None, problem: TableProblem) -> list[str]:
    """What the comparison says, in plain words; the policy to beat first."""
    rows = {str(row["policy"]): row for row in shown.to_dict("records")}
    names = {FIXED: f"the best fixed arm, {fixed} (chosen on the rows tuned on)"}
    names[MIXTURE] = "the best fixed mixture (chosen on the rows tuned on)"
    names[PRICED] = "a ridge regression with a price (fit_priced_policy on the rows tuned on)"
    order = [name for name in (MIXTURE, FIXED, PRICED) if name in rows]
    order += [name for name in rows if name not in {TUNED, ORACLE, WITHIN, *order}]
    notes = []
    for name in order:
        gain, low, high = (
            -float(rows[name][f"difference{end}"]) + 0.0 for end in ("", "_high", "_low")
        )
        size = f"{gain:+.4g} a round ({low:+.4g} to {high:+.4g})"
        target = names.get(name, name)
        if problem.budget is not None and rows[name]["spend_low"] > problem.budget.per_question:
            target += f" (which spends {rows[name]['of_budget']:.3g} times the budget)"
        if low > 0.0:
            notes.append(f"Tuned beats {target}: {size}.")
        elif name in names:
            notes.append(f"Tuned does not beat {target}: {size}. That needs no learning online.")
        else:
            word = "is below" if high < 0.0 else "is not told apart from"
            notes.append(f"Tuned {word} {target}: {size}.")
    if "spend" in rows[TUNED]:
        spend, low, high = (float(rows[TUNED][f"spend{end}"]) for end in END_NAMES)
        line = f"Tuned spends {spend:.4g} ({low:.4g} to {high:.4g}) a round"
        if problem.budget is None:
            notes.append(line + ".")
        else:
            limit = problem.budget.per_question
            state = "above" if low > limit else "below" if high < limit else "not told apart from"
            unit = f" {problem.budget.unit}" if problem.budget.unit else ""
            notes.append(f"{line}, {state} the budget of {limit:.4g}{unit}.")
    return notes


def _fingerprint(table: Table) -> str:
    """Digest of a table's numbers."""
    parts = (table.value, table.reward, table.mask, table.features, table_costs(table))
    return digest(
        "|".join([*table.arms, *(np.ascontiguousarray(part).tobytes().hex() for part in parts)]), 16
    )
