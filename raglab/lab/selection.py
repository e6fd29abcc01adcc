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
from raglab.lab.candidates import FIXED_POLICIES, Candidate, Cases
from raglab.lab.goals import Goal
from raglab.lab.line_search import flat_range
from raglab.lab.search_space import SWITCHES
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import evidence_with_model, tally
from raglab.store.policies import Policy
from raglab.values import BoolArray, CodeArray, FloatArray, IntArray, Status

if TYPE_CHECKING:
    import pandas as pd

STANDARD_ERRORS = 0.5  # of the mean saving, which it must exceed
NESTED_RESAMPLES = 500  # of the cases, for the nested estimate
ROUNDING_COST = 1e-9  # costs and savings nearer than this are rounding


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
        weights = goal.case_weights(self.label, counts)
        if self.weight is not None:
            weights = self.weight * (counts.sum() / (counts @ self.weight))
        return np.ones(len(counts)) if weights is None else weights


def largest_cost(actions: frozenset[Status], goal: Goal) -> float:
    """Largest cost over labels and outcomes of some actions.

    Example: refusing costs at most 1 by default, and answering 10 where a wrong answer may cost
      that.
      >>> goal = Goal(costs={"refuse": {"answered_wrong": 10}})
      >>> largest_cost(frozenset({Status.refuse}), goal), largest_cost(frozenset({Status.ok}), goal)
      (1.0, 10.0)
    """
    cell_prices = metrics.cell_costs(goal.matrix)
    return float(
        cell_prices[np.isin(metrics.STATUS_OF_CELL, [int(action) for action in actions])].max()
    )


def options_of(candidates: Sequence[Candidate], cases: Cases) -> Options:
    """Options of candidates that compete.

    Args:
      candidates: the free policies and the default policy among them.
      cases: that they decided, with goal.
    """
    goal = cases.goal
    cell_prices = metrics.cell_costs(goal.matrix)
    family_sizes = [len(candidate.policies) for candidate in candidates]
    option_candidates = np.repeat(np.arange(len(candidates)), family_sizes)
    option_cells = [cell_rows for candidate in candidates for cell_rows in candidate.cells]
    cell_shares = None
    if goal.targets:
        all_cells = np.arange(metrics.N_CELLS)
        cell_shares = np.stack(
            [(cell_rows[..., None] == all_cells).mean(axis=0) for cell_rows in option_cells], axis=1
        )
    worst_costs = [largest_cost(candidate.actions, goal) for candidate in candidates]
    return Options(
        candidate=option_candidates,
        value=np.concatenate([np.arange(family_size) for family_size in family_sizes]),
        fixed=np.array([candidate.name in FIXED_POLICIES for candidate in candidates])[
            option_candidates
        ],
        loss=np.stack([cell_prices[cell_rows].mean(axis=0) for cell_rows in option_cells]),
        cells=cell_shares,
        worst=np.array(worst_costs)[option_candidates],
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
        return self.mean > STANDARD_ERRORS * self.error + ROUNDING_COST


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
    case_counts = np.ones(len(gain)) if weights is None else weights
    n_counted = float(case_counts.sum()) + 1.0
    mean_saving = float(case_counts @ gain + pseudo) / n_counted
    squares = float(case_counts @ (gain - mean_saving) ** 2 + (pseudo - mean_saving) ** 2)
    return Saving(mean_saving, float(np.sqrt(squares / max(n_counted - 1.0, 1.0) / n_counted)))


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
    n_cases = options.loss.shape[1]
    case_counts = np.ones(n_cases) if weights is None else weights
    case_weights = options.weights(goal, case_counts)
    mean_costs = np.round(options.loss @ (case_counts * case_weights) / case_counts.sum(), 9)
    target_misses = np.zeros(len(mean_costs))
    if options.cells is not None:
        # the goal itself weighs by its mix
        drawn_weights = case_counts if options.weight is None else case_counts * case_weights
        weighed_cells = (drawn_weights @ options.cells.reshape(n_cases, -1)).reshape(
            len(mean_costs), -1
        )
        target_misses = np.round(goal.violation(weighed_cells), 9)
    cost_order = np.lexsort(
        (np.arange(len(mean_costs)), mean_costs, target_misses)
    )  # the best first
    ranked_options = [int(option) for option in cost_order if allowed[option]]
    # Where no fixed policy keeps the targets, the cheapest has to be beaten, not the one that
    # misses them by least.
    fixed_options = [option for option in ranked_options if options.fixed[option]]
    incumbent = min(
        fixed_options, key=lambda option: (target_misses[option] > 0.0, mean_costs[option])
    )
    shown_options: dict[int, int] = {}
    for option in ranked_options:
        shown_options.setdefault(int(options.candidate[option]), option)
    chosen_option = incumbent
    best_key = (target_misses[incumbent], 0.0)
    for option in shown_options.values():
        if options.fixed[option] or target_misses[option] > best_key[0]:
            continue
        pseudo_gain = float(options.worst[incumbent] - options.worst[option])
        case_gains = case_weights * (options.loss[incumbent] - options.loss[option])
        saving = paired_saving(case_gains, pseudo_gain * float(case_weights.max()), case_counts)
        is_nearer = target_misses[option] < target_misses[incumbent]
        if (is_nearer or saving.replaces) and (target_misses[option], -saving.mean) < best_key:
            chosen_option = option
            best_key = (target_misses[option], -saving.mean)
    return OptionChoice(chosen_option, incumbent, shown_options)


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
    n_questions = int(questions.max()) + 1
    rng = np.random.default_rng([seed, n_questions, 1])
    resample_costs = []
    label_costs = []

    def judge(draw_counts: FloatArray, held_out_counts: FloatArray) -> None:
        case_losses = options.loss[choose(options, goal, allowed, draw_counts).chosen]
        is_held_out = held_out_counts > 0.0
        resample_costs.append(
            float(
                (
                    options.weights(goal, held_out_counts)[is_held_out] * case_losses[is_held_out]
                ).mean()
            )
        )
        label_costs.append(_label_costs(options, case_losses, held_out_counts))

    for _ in range(NESTED_RESAMPLES):
        draw_counts = rng.multinomial(n_questions, np.full(n_questions, 1.0 / n_questions))[
            questions
        ].astype(np.float64)
        if not draw_counts.all():
            judge(draw_counts, (draw_counts == 0.0).astype(np.float64))
    if not resample_costs:
        judge(np.ones(len(questions)), np.ones(len(questions)))
    return NestedCosts(np.array(resample_costs), np.array(label_costs))


def _label_costs(options: Options, loss: FloatArray, counts: FloatArray) -> FloatArray:
    """Mean cost of the cases of each label, [3]; NaN of a label without any."""
    weights = counts if options.weight is None else counts * options.weight
    label_sums, label_counts = (
        np.bincount(options.label, values, len(Status)) for values in (weights * loss, weights)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return label_sums / label_counts


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
    candidate_names = tuple(candidate.name for candidate in candidates)
    is_competing = np.array([name in competing for name in candidate_names])
    options = options_of(candidates, cases)
    candidate_tally = tally(
        cases.held, [candidate.policies[0] for candidate in candidates], cases.arm
    )
    # always-refuse is
    is_compared = np.array([shortfall.is_compared for shortfall in candidate_tally.missing_answers])
    is_allowed = (is_competing & is_compared)[options.candidate]
    choice = choose(options, goal, is_allowed)
    # What does not compete is shown at its best value too.
    shown_options = {
        **choose(options, goal, is_compared[options.candidate] | options.fixed).shown,
        **choice.shown,
    }
    first_options = np.searchsorted(options.candidate, np.arange(len(candidate_names)))
    option_rows = [
        shown_options.get(candidate_index, int(first_option))
        for candidate_index, first_option in enumerate(first_options)
    ]
    shown_values = list(zip(candidates, options.value[option_rows].tolist(), strict=True))
    policies = {
        candidate.name: candidate.policies[family_index] for candidate, family_index in shown_values
    }
    held_out_cells = np.stack(
        [
            cases.counted(candidate.cells[family_index]).mean(axis=0)
            for candidate, family_index in shown_values
        ]
    )
    case_weights = options.weights(goal, np.ones(len(cases.label)))
    losses = options.loss[option_rows]
    case_gains = case_weights * (options.loss[choice.incumbent] - losses)
    pseudo_gains = float(case_weights.max()) * (
        options.worst[choice.incumbent] - options.worst[option_rows]
    )
    savings = [
        paired_saving(*gain_and_pseudo)
        for gain_and_pseudo in zip(case_gains, pseudo_gains.tolist(), strict=True)
    ]
    cost_table = _cost_table(policies, held_out_cells, savings, cases)
    cost_table.insert(0, "competes", is_competing)
    if candidate_tally.basis.text:
        cost_table = cost_table.assign(
            missing_answers_k=candidate_tally.missing[:, 0],
            missing_answers_n=candidate_tally.missing[:, 1],
            compared=is_compared,
        )
    chosen_candidate = int(options.candidate[choice.chosen])
    nested = nested_costs(options, goal, is_allowed, cases.groups, cases.seed)
    chosen_losses = options.loss[choice.chosen]
    losses[chosen_candidate] = (
        chosen_losses + _optimism(options, chosen_losses, nested)[cases.label]
    )
    return Selection(
        selected=candidate_names[chosen_candidate],
        incumbent=candidate_names[options.candidate[choice.incumbent]],
        policies=policies,
        costs=cost_table,
        # Resamples may choose what is cheaper where the choice is unsteady; that must not flatter
        # what is chosen.
        held_out_estimate=max(
            float(nested.mean.mean()), float((case_weights * chosen_losses).mean())
        ),
        gains=dict(zip(candidate_names, case_gains, strict=True)),
        losses=dict(zip(candidate_names, losses, strict=True)),
        misses=float(goal.violation(held_out_cells[chosen_candidate])),
    )


def _optimism(options: Options, chosen_losses: FloatArray, nested: NestedCosts) -> FloatArray:
    """How much dearer the choice is in each label when it is nested, at least 0, [3].

    Args:
      chosen_losses: cost of each case under what is chosen, [Q].
    """
    has_cases = ~np.isnan(nested.by_label)
    with np.errstate(invalid="ignore"):
        nested_means = np.nansum(nested.by_label, axis=0) / has_cases.sum(axis=0)
    excess_costs = nested_means - _label_costs(options, chosen_losses, np.ones(len(chosen_losses)))
    return np.maximum(np.nan_to_num(excess_costs), 0.0)


def _cost_table(
    policies: Mapping[str, Policy],
    held_out_cells: FloatArray,
    savings: Sequence[Saving],
    cases: Cases,
) -> pd.DataFrame:
    """Costs and rates of the candidates, each at one of its values.

    Args:
      held_out_cells: cases by cell, the mean over repeats, [candidates, 20].
    """
    import pandas as pd

    goal = cases.goal
    in_sample_cells = cases.counted(np.stack([cases.cells(policy) for policy in policies.values()]))
    traffic_cells = goal.in_traffic(held_out_cells)
    candidate_rates = metrics.rates(
        metrics.rate_counts(traffic_cells), metrics.label_counts(traffic_cells)
    )
    return pd.DataFrame(
        {
            "in_sample": goal.cost(in_sample_cells),
            "cross_validated": goal.cost(held_out_cells),
            "gain": [saving.mean for saving in savings],
            "std_error": [saving.error for saving in savings],
            "coverage": candidate_rates[:, metrics.RATES.index("coverage")],
            "over_ask": candidate_rates[:, metrics.RATES.index("over_ask_rate")],
            "meets_targets": goal.violation(held_out_cells) <= 0.0,
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
        signal_paths = [
            f"signals.{signal_name}.{side}"
            for signal_name in policy.signals
            for side in ("min", "max")
        ]
        paths = [path for path in signal_paths if policy.value(path) is not None]
    evidence = evidence_with_model(cases.evidence, policy, cases.trace.cases)
    score = cases.goal.score
    weight = cases.weight
    ranges = [flat_range(evidence, policy, path, score, case_weights=weight) for path in paths]
    range_rows = [(*path_range, path_range.high - path_range.low) for path_range in ranges]
    return pd.DataFrame(range_rows, columns=["path", "value", "low", "high", "width"])
