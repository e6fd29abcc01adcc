"""Selection (shore): if a candidate replaces the best free policy, its cost on new cases (S6.8).

The losses of single cases are cross-fitted (`raglab.lab.candidates`). The incumbent is the best of
always-answer, always-refuse and the default policy. A candidate replaces it where its mean saving,
with one pseudo-case for what the cases may not have shown, exceeds half its standard error. The
nested estimate makes that choice again on resampled cases and judges it on the cases that were not
drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raglab import metrics
from raglab.lab.arrays import BoolArray, CodeArray, FloatArray, IntArray
from raglab.lab.candidates import FIXED_POLICIES, Candidate, Cases
from raglab.lab.goals import Goal
from raglab.lab.line_search import flat_range
from raglab.lab.search_space import SWITCHES
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import evidence_with_model, tally
from raglab.store.policies import Policy
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

STANDARD_ERRORS = 0.5  # of the mean saving, which it must exceed
RESAMPLES = 500  # of the cases, for the nested estimate
SAME = 1e-9  # costs and savings nearer than this are rounding


class Options(NamedTuple):
    """What the rule compares: every value of every candidate that competes.

    candidate: place of the candidate of each option, [O]. value: its place in the family of its
    candidate, [O]. fixed: whether an option is always-answer, always-refuse or the default policy,
    [O]. loss: cost of every case, the mean over repeats, [O, Q]. cells: share of the repeats in
    which a case is in a cell, [Q, O, 20]; None without targets, which alone need it. worst: largest
    cost over labels and the actions of the candidate, [O]. label: of each case, [Q]. weight: of
    each case, where they were drawn with several probabilities, [Q].
    """

    candidate: IntArray
    value: IntArray
    fixed: BoolArray
    loss: FloatArray
    cells: FloatArray | None
    worst: FloatArray
    label: CodeArray
    weight: FloatArray | None = None

    def weights(self, goal: Goal, counts: FloatArray) -> FloatArray:
        """Weight of each case in what the goal values, mean 1 over cases that count so often, [Q].

        Args:
          goal: its mix.
          counts: how often each case counts, [Q].

        Source: rule S6.15.
        """
        by = goal.case_weights(self.label, counts)
        if self.weight is not None:
            by = self.weight * (counts.sum() / (counts @ self.weight))
        return np.ones(len(counts)) if by is None else by


def largest_cost(actions: frozenset[Status], goal: Goal) -> float:
    """Largest cost over labels and outcomes of some actions.

    Example: refusing costs at most 1 by default, and answering 10 where a wrong answer may cost
      that.
      >>> goal = Goal(costs={"refuse": {"answered_wrong": 10}})
      >>> largest_cost(frozenset({Status.refuse}), goal), largest_cost(frozenset({Status.ok}), goal)
      (1.0, 10.0)
    """
    price = metrics.cell_costs(goal.matrix)
    return float(price[np.isin(metrics.STATUS_OF_CELL, [int(action) for action in actions])].max())


def options_of(candidates: Sequence[Candidate], cases: Cases) -> Options:
    """Options of candidates that compete.

    Args:
      candidates: the free policies and the default policy among them.
      cases: that they decided, with goal.
    """
    goal = cases.goal
    price = metrics.cell_costs(goal.matrix)
    sizes = [len(candidate.policies) for candidate in candidates]
    of_option = np.repeat(np.arange(len(candidates)), sizes)
    cells = [rows for candidate in candidates for rows in candidate.cells]
    shares = None
    if goal.targets:
        every = np.arange(metrics.N_CELLS)
        shares = np.stack([(rows[..., None] == every).mean(axis=0) for rows in cells], axis=1)
    worst = [largest_cost(candidate.actions, goal) for candidate in candidates]
    return Options(
        candidate=of_option,
        value=np.concatenate([np.arange(size) for size in sizes]),
        fixed=np.array([candidate.name in FIXED_POLICIES for candidate in candidates])[of_option],
        loss=np.stack([price[rows].mean(axis=0) for rows in cells]),
        cells=shares,
        worst=np.array(worst)[of_option],
        label=cases.label,
        weight=cases.weight,
    )


class Saving(NamedTuple):
    """Saving over the incumbent, the pseudo-case included.

    mean: of n + 1 cases.
    error: standard error of that mean.
    """

    mean: float
    error: float

    @property
    def replaces(self) -> bool:
        """Whether it is enough to replace the incumbent (rule S6.8)."""
        return self.mean > STANDARD_ERRORS * self.error + SAME


def paired_saving(gain: FloatArray, pseudo: float, weights: FloatArray | None = None) -> Saving:
    """Mean saving over n cases and one pseudo-case, with its standard error.

    Args:
      gain: loss of the incumbent less loss of the candidate, by case, [Q].
      pseudo: gain of the pseudo-case.
      weights: how often each case counts, [Q]; once where not given.

    Source: rule S6.8.

    Example: one saved failure of ten, and a pseudo-case in which nothing is gained.
      >>> saving = paired_saving(np.array([1.0] + [0.0] * 9), 0.0)
      >>> round(saving.mean, 3), round(saving.error, 3), saving.replaces
      (0.091, 0.091, True)
    """
    counts = np.ones(len(gain)) if weights is None else weights
    n = float(counts.sum()) + 1.0
    mean = float(counts @ gain + pseudo) / n
    squares = float(counts @ (gain - mean) ** 2 + (pseudo - mean) ** 2)
    return Saving(mean, float(np.sqrt(squares / max(n - 1.0, 1.0) / n)))


class OptionChoice(NamedTuple):
    """What the rule chooses.

    chosen: place of the option that is selected.
    incumbent: place of the best fixed option.
    shown: place of the option that stands for each candidate, by candidate.
    """

    chosen: int
    incumbent: int
    shown: Mapping[int, int]


def choose(
    options: Options,
    goal: Goal,
    allowed: BoolArray,
    weights: FloatArray | None = None,
) -> OptionChoice:
    """Selection among options, over cases that count as often as their weights say.

    Where the goal has targets, what misses them by less in sum comes first, each rate taken one
    standard error worse; what misses none is compared by cost alone.

    Args:
      options: of the candidates.
      goal: costs and targets.
      allowed: whether an option is compared: enough of its recorded answers are there, [O] (rule
        S6.3).
      weights: how often each case counts, [Q]; once where not given.
    """
    size = options.loss.shape[1]
    counts = np.ones(size) if weights is None else weights
    by = options.weights(goal, counts)
    cost = np.round(options.loss @ (counts * by) / counts.sum(), 9)
    missed = np.zeros(len(cost))
    if options.cells is not None:
        # the goal itself weighs by its mix
        drawn = counts if options.weight is None else counts * by
        cells = (drawn @ options.cells.reshape(size, -1)).reshape(len(cost), -1)
        missed = np.round(goal.violation(cells), 9)
    order = np.lexsort((np.arange(len(cost)), cost, missed))  # the best first
    ranked = [int(place) for place in order if allowed[place]]
    # Where no fixed policy keeps the targets, the cheapest has to be beaten, not the one that
    # misses them by least.
    fixed = [place for place in ranked if options.fixed[place]]
    incumbent = min(fixed, key=lambda place: (missed[place] > 0.0, cost[place]))
    shown: dict[int, int] = {}
    for place in ranked:
        shown.setdefault(int(options.candidate[place]), place)
    chosen, best = incumbent, (missed[incumbent], 0.0)
    for place in shown.values():
        if options.fixed[place] or missed[place] > best[0]:
            continue
        pseudo = float(options.worst[incumbent] - options.worst[place])
        gain = by * (options.loss[incumbent] - options.loss[place])
        saving = paired_saving(gain, pseudo * float(by.max()), counts)
        nearer = missed[place] < missed[incumbent]
        if (nearer or saving.replaces) and (missed[place], -saving.mean) < best:
            chosen, best = place, (missed[place], -saving.mean)
    return OptionChoice(chosen, incumbent, shown)


class NestedCosts(NamedTuple):
    """Cost of the choice on cases that did not make it, a row a resample.

    mean: of a case, [N]. by_label: of a case of each label, NaN where none was left, [N, 3].
    """

    mean: FloatArray
    by_label: FloatArray


def nested_costs(
    options: Options,
    goal: Goal,
    allowed: BoolArray,
    questions: IntArray,
    seed: int,
) -> NestedCosts:
    """Cost, on new cases, of what this selection selects.

    Each resample draws questions. The selection is made again on those that are drawn, and judged
    on those that are not: no question judges a choice that it helped to make. Near-duplicates of a
    question make it too low.

    Args:
      options: of the candidates.
      goal: costs and targets.
      allowed: whether an option is compared, [O].
      questions: number of each case's question, from 0, [Q].
      seed: of the resamples.

    Source: bootstrap bias-corrected cross-validation (Tsamardinos, Greasidou and Borboudakis 2018).
    """
    size = int(questions.max()) + 1
    rng = np.random.default_rng([seed, size, 1])
    costs, by_label = [], []

    def judge(weights: FloatArray, held: FloatArray) -> None:
        loss = options.loss[choose(options, goal, allowed, weights).chosen]
        there = held > 0.0
        costs.append(float((options.weights(goal, held)[there] * loss[there]).mean()))
        by_label.append(_label_costs(options, loss, held))

    for _ in range(RESAMPLES):
        weights = rng.multinomial(size, np.full(size, 1.0 / size))[questions].astype(np.float64)
        if not weights.all():
            judge(weights, (weights == 0.0).astype(np.float64))
    if not costs:
        judge(np.ones(len(questions)), np.ones(len(questions)))
    return NestedCosts(np.array(costs), np.array(by_label))


def _label_costs(options: Options, loss: FloatArray, counts: FloatArray) -> FloatArray:
    """Mean cost of the cases of each label, [3]; NaN of a label without any."""
    by = counts if options.weight is None else counts * options.weight
    paid, n = (np.bincount(options.label, each, len(Status)) for each in (by * loss, by))
    with np.errstate(invalid="ignore", divide="ignore"):
        return paid / n


class Selection(NamedTuple):
    """What was selected among candidates, and what each came to.

    selected: name of the candidate. incumbent: name of the best of always-answer, always-refuse and
    the default policy. policies: of every candidate, made of all cases, by name. costs: a row a
    candidate, see `TuneResult`. held_out_estimate: nested estimate of the expected cost on new
    cases; at least the cross-fitted cost of what is selected. gains: loss of the incumbent less
    loss of the candidate on each case, cross-fitted, times the weight of the case, [Q] by name.
    misses: by how much the selected candidate misses the targets in sum, each rate one standard
    error worse. losses: cost of each case under each candidate, cross-fitted; of what is selected
    so much higher in each label as the nested estimate is there, [Q] by name.
    """

    selected: str
    incumbent: str
    policies: Mapping[str, Policy]
    costs: pd.DataFrame
    held_out_estimate: float
    gains: Mapping[str, FloatArray]
    misses: float
    losses: Mapping[str, FloatArray]


def select_candidate(
    candidates: Sequence[Candidate], competing: Sequence[str], cases: Cases
) -> Selection:
    """Selection by rule S6.8, and the costs of all candidates estimated the same way.

    Args:
      candidates: those that compete and those that are shown beside them; the three fixed ones
        among them.
      competing: names of those that compete.
      cases: measured cases, with goal and seed.

    Source: rules S6.3, S6.8, S6.9.
    """
    goal = cases.goal
    names = tuple(candidate.name for candidate in candidates)
    competes = np.array([name in competing for name in names])
    every = options_of(candidates, cases)
    counts = tally(cases.held, [candidate.policies[0] for candidate in candidates], cases.arm)
    # always-refuse is
    compared = np.array([shortfall.is_compared for shortfall in counts.missing_answers])
    allowed = (competes & compared)[every.candidate]
    choice = choose(every, goal, allowed)
    # What does not compete is shown at its best value too.
    shown = {**choose(every, goal, compared[every.candidate] | every.fixed).shown, **choice.shown}
    first = np.searchsorted(every.candidate, np.arange(len(names)))
    rows = [shown.get(place, int(row)) for place, row in enumerate(first)]
    values = list(zip(candidates, every.value[rows].tolist(), strict=True))
    policies = {candidate.name: candidate.policies[value] for candidate, value in values}
    held_out = np.stack(
        [cases.counted(candidate.cells[value]).mean(axis=0) for candidate, value in values]
    )
    by = every.weights(goal, np.ones(len(cases.label)))
    losses = every.loss[rows]
    gains = by * (every.loss[choice.incumbent] - losses)
    pseudo = float(by.max()) * (every.worst[choice.incumbent] - every.worst[rows])
    savings = [paired_saving(*pair) for pair in zip(gains, pseudo.tolist(), strict=True)]
    table = _cost_table(policies, held_out, savings, cases)
    table.insert(0, "competes", competes)
    if counts.basis.text:
        table = table.assign(
            missing_answers_k=counts.missing[:, 0],
            missing_answers_n=counts.missing[:, 1],
            compared=compared,
        )
    chosen = int(every.candidate[choice.chosen])
    nested = nested_costs(every, goal, allowed, cases.groups, cases.seed)
    own = every.loss[choice.chosen]
    losses[chosen] = own + _optimism(every, own, nested)[cases.label]
    return Selection(
        selected=names[chosen],
        incumbent=names[every.candidate[choice.incumbent]],
        policies=policies,
        costs=table,
        # Resamples may choose what is cheaper where the choice is unsteady; that must not flatter
        # what is chosen.
        held_out_estimate=max(float(nested.mean.mean()), float((by * own).mean())),
        gains=dict(zip(names, gains, strict=True)),
        losses=dict(zip(names, losses, strict=True)),
        misses=float(goal.violation(held_out[chosen])),
    )


def _optimism(options: Options, own: FloatArray, nested: NestedCosts) -> FloatArray:
    """How much dearer the choice is in each label when it is nested, at least 0, [3].

    Args:
      own: cost of each case under what is chosen, [Q].
    """
    known = ~np.isnan(nested.by_label)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(nested.by_label, axis=0) / known.sum(axis=0)
    worse = mean - _label_costs(options, own, np.ones(len(own)))
    return np.maximum(np.nan_to_num(worse), 0.0)


def _cost_table(
    policies: Mapping[str, Policy],
    held_out: FloatArray,
    savings: Sequence[Saving],
    cases: Cases,
) -> pd.DataFrame:
    """Costs and rates of the candidates, each at one of its values.

    Args:
      held_out: cases by cell, the mean over repeats, [candidates, 20].
    """
    import pandas as pd

    goal = cases.goal
    in_sample = cases.counted(np.stack([cases.cells(policy) for policy in policies.values()]))
    counts = goal.in_traffic(held_out)
    rates = metrics.rates(metrics.rate_counts(counts), metrics.label_counts(counts))
    return pd.DataFrame(
        {
            "in_sample": goal.cost(in_sample),
            "cross_validated": goal.cost(held_out),
            "gain": [saving.mean for saving in savings],
            "std_error": [saving.error for saving in savings],
            "coverage": rates[:, metrics.RATES.index("coverage")],
            "over_ask": rates[:, metrics.RATES.index("over_ask_rate")],
            "meets_targets": goal.violation(held_out) <= 0.0,
            "policy_id": [policy.policy_id for policy in policies.values()],
        },
        index=pd.Index(list(policies), name="candidate"),
    )


def policy_flat_ranges(cases: Cases, policy: Policy) -> pd.DataFrame:
    """How far each threshold that a policy decides by may move at no cost.

    `path`, `value`, `low`, `high`, `width`.
    """
    import pandas as pd

    paths = [
        path for path in cases.space if path not in SWITCHES and policy.value(path) is not None
    ]
    if policy.decision.rule == EXPECTED_COST:
        paths = ["decision.ratio"]
    elif policy.signals:
        ends = [f"signals.{name}.{end}" for name in policy.signals for end in ("min", "max")]
        paths = [path for path in ends if policy.value(path) is not None]
    evidence = evidence_with_model(cases.evidence, policy, cases.trace.cases)
    score, weight = cases.goal.score, cases.weight
    runs = [flat_range(evidence, policy, path, score, case_weights=weight) for path in paths]
    rows = [(*run, run.high - run.low) for run in runs]
    return pd.DataFrame(rows, columns=["path", "value", "low", "high", "width"])
