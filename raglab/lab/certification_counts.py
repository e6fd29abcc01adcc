"""Counts of certifications (shore): cases, losses, p-values, bounds, pilot (S6.4, S6.9, S6.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raglab import certify, metrics
from raglab.decision.answer_text import Basis, MissingAnswers
from raglab.decision.inclusion import PROBABILITY_KEY
from raglab.decision.learned_cases import (
    IN_SAMPLE,
    Queries,
    check_unlearned,
    hash_queries,
    learned_cases,
    trace_learned,
    trace_queries,
)
from raglab.decision.outcome_codes import UNEARNED_CELL, Tally
from raglab.decision.trace_view import TraceView, failed_count
from raglab.lab.decision_fitting import held_out_cells
from raglab.lab.looks import Reuse, trace_hash
from raglab.lab.untuned_policies import always_answer
from raglab.metrics import binomial_p, clopper_pearson
from raglab.metrics.mix_tests import MixTest
from raglab.metrics.mixes import SAMPLE, Mix, TrafficMix, checked_mix, weighed_by_mix
from raglab.policy import PolicyData
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import cases_by_shard, each_shard, join_columns, shard_cells, tally
from raglab.store.case_labels import check_split_names, counted_questions
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.values import AnyArray, BoolArray, FloatArray, IntArray, Status, refuse

COST = "expected_cost"
RISK = "hallucination_rate"
PILOT_AND_CERTIFY = ("tune", "certify")
# fields of `RateCounts` with a row a policy
POLICY_FIELDS = ("cells", "k", "n", "cost", "coverage", "over_ask", "missing", "undecided")
DECISION_MODEL_PART = "model of the decision"  # of what a policy learned, see `learning_parts`


class CertificationSettings(NamedTuple):
    """Targets, costs, arm, delta and file of looks of a certification.

    targets: rate -> highest value. costs: see `metrics.cost_matrix`. delta: error. arm: None for
    the first. again, looks: see `certify_policy`. reuse: what an upgrade knows of earlier looks;
    delta is divided then by the number of this look, which is set under the lock of the file.
    divisor: of delta, at whose quotient the policy is tested, as one of so many that these cases
    may have chosen. budget: error from which delta was divided, for the next division; None where
    it was not. mix: that the targets are of, as it is stated; None of the sample's own.
    """

    targets: Mapping[str, float]
    costs: metrics.Costs | None = None
    delta: float = 0.1
    arm: str | None = None
    again: bool = False
    looks: Path | None = None
    reuse: Reuse | None = None
    divisor: int = 1
    budget: float | None = None
    mix: TrafficMix | None = None

    @property
    def alphas(self) -> FloatArray:
        """Highest values, [T]."""
        return np.array(list(self.targets.values()))

    @property
    def traffic(self) -> TrafficMix | None:
        """The mix; an estimate takes half of the error unless its own is stated (rule S6.15)."""
        if self.mix is None or self.mix.is_fixed:
            return self.mix
        return self.mix.at(self.delta / self.divisor / 2.0)

    @property
    def level(self) -> float:
        """Level of the tests, what the mix leaves of it.

        Raises:
          ValueError: it leaves nothing.
        """
        whole_delta = self.delta / self.divisor
        mix_delta = self.traffic.delta if self.traffic else 0.0
        if mix_delta >= whole_delta:
            refuse(
                "delta must be above the error of the mix",
                f"{whole_delta:.3g} and {mix_delta:.3g}",
                "estimate it at a smaller",
            )
        return whole_delta - mix_delta


def checked_settings(
    targets: Mapping[str, float] | None,
    costs: metrics.Costs | None,
    delta: float,
    arm: str | None = None,
    *,
    again: bool = True,
    looks: str | Path | None = None,
    mix: Mix = SAMPLE,
) -> CertificationSettings:
    """Check the settings of a certification.

    Raises:
      ValueError: no target or no mapping, one of another name or out of its range, a wrong delta or
        mix.
    """
    remedy = "write targets={'hallucination_rate': 0.1}"
    if not isinstance(targets, Mapping | None):
        refuse("targets must map rate -> highest value", f"{targets!r:.80}", remedy)
    target_rates = dict(targets or {})
    if not target_rates:
        refuse("targets must name at least one rate", "none", remedy)
    highest_values = {COST: float(metrics.cost_matrix(costs).max())} | dict.fromkeys(
        metrics.OBJECTIVES, 1.0
    )
    for target_name, target_rate in target_rates.items():
        if target_name not in highest_values:
            remedy = f"name one of {', '.join(highest_values)}"
            refuse("targets must be rates of errors or a cost", repr(target_name), remedy)
        if not 0.0 < target_rate < highest_values[target_name]:
            refuse(
                f"the target of {target_name} must be in (0, {highest_values[target_name]:g})",
                target_rate,
                "0.1 is 10 %",
            )
    metrics.check_delta(delta)
    looks_path = None if looks is None else Path(looks)
    settings = CertificationSettings(
        target_rates, costs, delta, arm, again, looks_path, mix=checked_mix(mix)
    )
    _ = settings.level  # which a mix may leave nothing of
    return settings


class CertifyCases(NamedTuple):
    """Cases that an order is learned on, None without any, and those to certify on.

    tested: split of the latter, None without splits. by_split: questions of all cases.
    numbers: number of the question of each case to certify on, from 0, [Q].
    """

    pilot: StudyTrace | None
    held_out: StudyTrace
    tested: str | None
    by_split: Queries
    numbers: IntArray

    @property
    def learned_on(self) -> StudyTrace:
        """Cases that an order is learned on, without a pilot those to certify on."""
        return self.held_out if self.pilot is None else self.pilot

    @property
    def queries(self) -> Sequence[str]:
        """Questions of the cases to certify on."""
        return self.by_split[self.tested]

    @property
    def hash(self) -> str:
        """Fingerprint of the cases to certify on."""
        return hash_queries(self.queries)

    @property
    def n_questions(self) -> int:
        """Distinct questions to certify on, the n of the certificate."""
        return int(self.numbers.max()) + 1


def certify_splits(trace: StudyTrace) -> CertifyCases:
    """Split `certify` of a trace with split `tune`, or all cases of one without splits.

    Raises:
      ValueError: splits without `certify`, no case, or cases drawn with several probabilities.
    """
    queries_by_split = trace_queries(trace)
    check_split_names(queries_by_split)
    pilot_split, tested_split = PILOT_AND_CERTIFY
    pilot_trace = None
    held_out = trace
    if tested_split in queries_by_split:
        pilot_trace = trace.split(pilot_split) if pilot_split in queries_by_split else None
        held_out = trace.split(tested_split)
    elif queries_by_split.keys() - {None}:
        split_names = ", ".join(sorted(map(str, queries_by_split)))
        refuse(
            "cases must have a split certify to certify on",
            split_names,
            "label one certify, or .replace({'test': 'certify'}) before loading",
        )
    elif not len(trace):
        refuse("a certificate needs at least one case", "none", "check the split")
    cases = list(chain.from_iterable(cases_by_shard(held_out)))
    # A certificate counts each question once, so none may stand for more requests than another.
    probabilities = {case.extra.get(PROBABILITY_KEY) for case in cases}
    if len(probabilities) > 1:
        probability_texts = ", ".join(sorted(map(str, probabilities))[:4])
        refuse(
            "cases to certify on must be drawn with one inclusion probability",
            f"{len(probabilities)}: {probability_texts}",
            "draw evenly, or weigh them by raglab.review",
        )
    certify_split = tested_split if tested_split in queries_by_split else None
    return CertifyCases(
        pilot_trace, held_out, certify_split, queries_by_split, counted_questions(cases)
    )


def distinct_candidates(
    candidates: Iterable[Policy], cases: CertifyCases
) -> tuple[list[Policy], tuple[str, ...]]:
    """Candidates, each policy once, and notes on those that may have learned from these cases.

    Raises:
      ValueError: one that has learned from the cases to certify on, alone or with others.
    """
    policy_by_id: dict[str, Policy] = {}
    for policy in candidates:  # of equal ones that which remembers a look
        if policy.certificate is not None or policy.policy_id not in policy_by_id:
            policy_by_id[policy.policy_id] = policy
    policies = list(policy_by_id.values())
    learned_rows = learned_cases(policies, cases.by_split, (cases.tested,))
    for learned_row in learned_rows:
        check_unlearned(learned_row)
    doubt_texts = [learned_row.doubt for learned_row in learned_rows if learned_row.doubt]
    doubt_lead = (
        f"Of {len(doubt_texts):,} of {len(policies):,} candidates: " if len(policies) > 1 else ""
    )
    return policies, tuple(f"{doubt_lead}{doubt_text}" for doubt_text in doubt_texts[:1])


class RateCounts(NamedTuple):
    """Losses k and cases n of each target, [N, T], with other measures of the policies.

    names, costs: of the targets. cells: cases by cell, [N, 20]. k: errors; of the expected cost the
    sum of the costs over the highest one. cost: expected cost of a case, [N]. coverage, over_ask:
    shares, [N]. scale: what a loss of 1 stands for, the highest cost or 1, [T]. graded: whether
    losses lie between 0 and 1 too, [T]. missing: see `Tally.missing`, [N, 2]: an answer that is
    missing counts as not correct. undecided: answers that count as wrong since nobody can tell,
    [N]. basis: on which the cases are judged. mix: the losses by cell where the targets are those
    of a traffic mix, as cost, coverage and over_ask are then.
    """

    names: tuple[str, ...]
    costs: metrics.Costs | None
    cells: AnyArray
    k: FloatArray
    n: IntArray
    cost: FloatArray
    coverage: FloatArray
    over_ask: FloatArray
    scale: FloatArray
    graded: BoolArray
    missing: IntArray
    undecided: IntArray
    basis: Basis
    mix: MixTest | None = None

    @property
    def missing_answers(self) -> list[MissingAnswers]:
        """Recorded answers that each policy lacks."""
        return [MissingAnswers(*counts) for counts in self.missing.tolist()]

    def subset(self, places: IntArray) -> RateCounts:
        """Counts of some policies, in the order given."""
        mix_test = self.mix and self.mix._replace(cells=self.mix.cells[places])
        return self._replace(
            mix=mix_test,
            **{name: getattr(self, name)[places] for name in POLICY_FIELDS},
        )

    def at_best(self, size_ratio: float) -> RateCounts:
        """Counts to expect on so many times the cases, of which none is lost.

        Args:
          size_ratio: cases to come, over these.
        """
        mix_test = self.mix and self.mix._replace(
            cells=self.mix.cells * size_ratio, loss=0.0 * self.mix.loss
        )
        expected_cases = np.floor(self.n * size_ratio).astype(np.int64)
        return self._replace(
            k=0.0 * self.k, n=expected_cases, missing=0 * self.missing, mix=mix_test
        )

    def mixed(self, place: int) -> MixTest | None:
        """Losses by cell of a target that moves with a stated mix; None of any other."""
        return self.mix if self.mix is not None and self.mix.moved[place] else None

    def p(self, targets: FloatArray) -> FloatArray:
        """p-value that a policy breaks a target, [N, T].

        Exact of errors, Hoeffding and Bentkus' of graded losses, of what moves with a stated mix
        that of `MixTest`.

        It is 1 of a policy that lacks too many answers, so that it is never certified.
        """
        p_values = np.empty(self.k.shape)
        for target_place, target_rate in enumerate((targets / self.scale).tolist()):
            k = self.k[:, target_place]
            n = self.n[:, target_place]
            mix_test = self.mixed(target_place)
            if mix_test is not None:
                p_values[:, target_place] = mix_test.p(target_place, target_rate)
            elif self.graded[target_place]:
                p_values[:, target_place] = certify.hoeffding_bentkus(k, n, target_rate)
            else:
                p_values[:, target_place] = binomial_p(k.astype(np.int64), n, target_rate)
        p_values[[not missing_answers.is_compared for missing_answers in self.missing_answers]] = (
            1.0
        )
        return p_values

    def bounds(
        self, target_place: int, delta: float, alpha: float, *, lower: bool = False
    ) -> FloatArray:
        """Upper or lower bounds of a target's rate or cost at confidence 1 − delta, [N].

        Args:
          alpha: the target, in whose units the bounds are.
        """
        k = self.k[:, target_place]
        n = self.n[:, target_place]
        loss_scale = float(self.scale[target_place])
        if mix_test := self.mixed(target_place):
            return mix_test.bound(target_place, delta, alpha / loss_scale, lower=lower) * loss_scale
        if not self.graded[target_place]:
            interval = clopper_pearson(k.astype(np.int64), n, 1.0 - 2.0 * delta)
            return np.asarray(interval.low if lower else interval.high) * loss_scale
        # what is not lost is a loss in [0, 1] too
        losses_and_sizes = zip((n - k if lower else k).tolist(), n.tolist(), strict=True)
        upper_bounds = np.array(
            [
                certify.graded_bound(loss_total, n_cases, delta)
                for loss_total, n_cases in losses_and_sizes
            ]
        )
        return (1.0 - upper_bounds if lower else upper_bounds) * loss_scale

    def total(self, policy_row: int, target_place: int) -> float | int:
        """Errors of one policy, or the sum of its costs."""
        loss_total = float(self.k[policy_row, target_place] * self.scale[target_place])
        return int(loss_total) if loss_total.is_integer() else loss_total

    def of_cell(self, undecided: int) -> RateCounts:
        """What one case of each cell loses and counts, [20]; undecided: the cell they count as."""
        cells = metrics.settled_cells(np.eye(metrics.N_CELLS, dtype=np.int64), undecided)
        return counted_losses(cells, self.names, self.costs)


def counted_losses(
    cells: AnyArray, target_names: Sequence[str], costs: metrics.Costs | None
) -> RateCounts:
    """Losses of policies whose cells are counted.

    Args:
      cells: [N, 20].
      target_names: rates of `metrics.RATES`, or `expected_cost`.
      costs: of the latter, and of `cost`.
    """
    cells = metrics.cell_table(cells)
    cost_table = metrics.cost_matrix(costs)
    rate_counts = metrics.rate_counts(cells)
    label_counts = metrics.label_counts(cells)
    rate_sizes = metrics.denominators(rate_counts, label_counts)
    highest_cost = float(cost_table.max()) or 1.0
    n_cases = label_counts.sum(axis=-1)
    target_columns = [(*metrics.RATES, COST).index(target_name) for target_name in target_names]
    answered_column = metrics.COUNTS.index("answered")
    over_ask_column = metrics.RATES.index("over_ask_rate")
    is_cost = np.array([target_name == COST for target_name in target_names], dtype=bool)
    return RateCounts(
        names=tuple(target_names),
        costs=costs,
        cells=cells,
        k=np.column_stack([rate_counts, cells @ (metrics.cell_costs(cost_table) / highest_cost)])[
            :, target_columns
        ],
        n=np.column_stack([rate_sizes, n_cases])[:, target_columns],
        cost=np.asarray(metrics.expected_cost(cells, cost_table), dtype=np.float64),
        coverage=rate_counts[:, answered_column] / np.maximum(1, n_cases),
        over_ask=rate_counts[:, over_ask_column] / np.maximum(1, rate_sizes[:, over_ask_column]),
        scale=np.where(is_cost, highest_cost, 1.0),
        graded=is_cost & bool(((cost_table > 0.0) & (cost_table < highest_cost)).any()),
        missing=np.zeros((len(cells), 2), dtype=np.int64),
        undecided=cells[:, metrics.PLAIN_CELLS :].sum(axis=1),
        basis=Basis(0, int(label_counts[:1, Status.ok].sum())),
    )


def tally_losses(
    decision_tally: Tally, target_names: Sequence[str], costs: metrics.Costs | None
) -> RateCounts:
    """Losses of policies whose decisions are counted, with the answers that they lack."""
    rate_losses = counted_losses(decision_tally.cells, target_names, costs)
    return rate_losses._replace(missing=decision_tally.missing, basis=decision_tally.basis)


def certified_tally(trace: TraceView, policies: Sequence[PolicyData], arm: str | None) -> Tally:
    """Counted decisions in which cases whose calls failed are answers never recorded (S6.3).

    Each is a wrong answer, and one of those of which 5 % may be missing.
    """
    decision_tally = tally(trace, policies, arm)
    n_failed = failed_count(trace)
    if not n_failed:
        return decision_tally
    cells = decision_tally.cells + n_failed * (np.arange(metrics.N_CELLS) == UNEARNED_CELL)
    n_answered = metrics.rate_counts(cells)[:, metrics.COUNTS.index("answered")]
    missing_counts = np.stack([decision_tally.missing[:, 0] + n_failed, n_answered], axis=1)
    return decision_tally._replace(cells=cells, missing=missing_counts)


class Repeats(NamedTuple):
    """Cases of questions that several cases ask.

    cells: of every policy, by question, [N, R]. starts: where each question begins.
    """

    cells: IntArray
    starts: IntArray


def repeated_cases(
    trace: TraceView,
    policies: Sequence[PolicyData],
    question_numbers: IntArray,
    arm: str | None,
) -> Repeats:
    """Cells of cases whose question is asked again.

    Args:
      question_numbers: number of each case's question, from 0, [Q].
    """
    case_order = np.argsort(question_numbers, kind="stable")
    case_order = case_order[(np.bincount(question_numbers) > 1)[question_numbers[case_order]]]
    question_starts = np.flatnonzero(np.diff(question_numbers[case_order], prepend=-1))
    if not len(case_order):
        return Repeats(np.zeros((len(policies), 0), dtype=np.int64), question_starts)
    cells_by_case = join_columns(each_shard(shard_cells, trace, list(policies), arm, what="replay"))
    return Repeats(cells_by_case[:, case_order], question_starts)


def question_losses(
    losses: RateCounts, repeats: Repeats, undecided: int = metrics.WRONG_CELL
) -> RateCounts:
    """Losses of which each question counts once, with the largest loss of its cases.

    Cases of one question are no independent draws.

    Args:
      losses: of the cases, see `tally_losses`.
      repeats: of them, see `repeated_cases`.
      undecided: cell of these answers, `metrics.WRONG_CELL` or `metrics.RIGHT_CELL`.

    Source: rule S6.4.
    """
    loss_of_cell, k, n = losses.of_cell(undecided), losses.k.copy(), losses.n.copy()
    for policy_row, policy_cells in enumerate(repeats.cells if len(repeats.starts) else ()):
        for target_totals, cell_losses in ((k, loss_of_cell.k), (n, loss_of_cell.n)):
            worst_losses = np.maximum.reduceat(cell_losses[policy_cells], repeats.starts)
            target_totals[policy_row] += worst_losses.sum(axis=0) - cell_losses[policy_cells].sum(
                axis=0
            )
    return losses._replace(k=k, n=n)


def unit_cells(
    losses: RateCounts, repeats: Repeats, undecided: int = metrics.WRONG_CELL, n_failed: int = 0
) -> IntArray:
    """Questions by cell, each the case of it that loses most, of every policy and target.

    Cells are [N, T, 20]. A failed call may be of any label: it is what loses most of each.

    Args:
      losses, repeats, undecided: see `question_losses`.
      n_failed: calls that the counts hold in `UNEARNED_CELL`.

    Raises:
      ValueError: the cases of a question have several labels.

    Source: rules S6.4, S6.15.
    """
    policies_cells = losses.cells.copy()
    loss_of_cell = losses.of_cell(undecided)
    n_targets = len(losses.names)
    policies_cells[:, UNEARNED_CELL] -= n_failed
    question_cells = np.repeat(policies_cells[:, None], n_targets, axis=1)
    cell_rank = 2.0 * loss_of_cell.k + loss_of_cell.n
    for label_index in range(len(metrics.LABELS)):
        label_rank = np.where(metrics.LABEL_OF_CELL[:, None] == label_index, cell_rank, -1.0)
        question_cells[:, range(n_targets), label_rank.argmax(axis=0)] += n_failed
    if len(repeats.starts):
        case_labels = metrics.LABEL_OF_CELL[repeats.cells[0]]
        lowest_labels, highest_labels = (
            extreme.reduceat(case_labels, repeats.starts) for extreme in (np.minimum, np.maximum)
        )
        if n_mixed := int((lowest_labels < highest_labels).sum()):
            n_questions = int(losses.cells[0].sum()) - len(case_labels) + len(repeats.starts)
            refuse(
                "under a mix each question must have one label",
                f"several for {n_mixed:,} of {n_questions:,}",
                "leave mix out",
            )
        ranked_cells = np.argsort(cell_rank, axis=0, kind="stable")
        for policy_row, policy_cells in enumerate(repeats.cells):
            worst_ranks = np.maximum.reduceat(
                np.argsort(ranked_cells, axis=0)[policy_cells], repeats.starts
            )
            for target_place, cell_ranks in enumerate(worst_ranks.T):
                question_cells[policy_row, target_place] += np.bincount(
                    ranked_cells[cell_ranks, target_place], minlength=metrics.N_CELLS
                )
            question_cells[policy_row] -= np.bincount(policy_cells, minlength=metrics.N_CELLS)
    return metrics.settled_cells(question_cells, undecided)


def in_mix(
    losses: RateCounts,
    corners: FloatArray,
    level: float,
    question_cells: IntArray | None = None,
) -> RateCounts:
    """Losses tested in a traffic mix, with cost, coverage and over-ask of the mean of its corners.

    Args:
      losses: of policies, [N].
      corners: outermost mixes, [V, 3].
      level: error of a test.
      question_cells: see `unit_cells`; None where each case is one.
    """
    mean_cells = weighed_by_mix(losses.cells, corners.mean(axis=0)).weights
    mean_losses = counted_losses(mean_cells, losses.names, losses.costs)
    loss_of_cell = losses.of_cell(metrics.WRONG_CELL)
    if question_cells is None:
        question_cells = np.repeat(losses.cells[:, None], len(losses.names), axis=1)
    counted_by_cell = loss_of_cell.n.T.astype(np.float64)
    mix_test = MixTest(
        question_cells.astype(np.float64), loss_of_cell.k.T, counted_by_cell, corners, level
    )
    return losses._replace(
        cost=mean_losses.cost,
        coverage=mean_losses.coverage,
        over_ask=mean_losses.over_ask,
        mix=mix_test,
    )


class SplitCounts(NamedTuple):
    """What candidates, and a policy without a threshold, do on the cases of a split.

    losses: of the candidates, [N]. answering: cases by cell of always-answer, [20]. counted: the
    decisions of the candidates.
    """

    losses: RateCounts
    answering: IntArray
    counted: Tally


def count_split(
    trace: TraceView,
    candidates: Sequence[Policy],
    start_policy: Policy,
    settings: CertificationSettings,
) -> SplitCounts:
    """Losses of candidates and always-answer, in one pass over the cases or a trace's shards.

    Args:
      start_policy: policy that always-answer is made of.
    """
    split_tally = certified_tally(trace, [*candidates, always_answer(start_policy)], settings.arm)
    candidate_tally = split_tally._replace(
        cells=split_tally.cells[:-1], missing=split_tally.missing[:-1]
    )
    candidate_losses = tally_losses(candidate_tally, list(settings.targets), settings.costs)
    return SplitCounts(candidate_losses, split_tally.cells[-1], candidate_tally)


class PilotCounts(NamedTuple):
    """Candidates on the cases that their order is learned on.

    losses: of the candidates, [N]; of one whose decision model was fitted on the pilot by models
    that never saw the case. free_rate: hallucination rate of always-answer, 1 where it answers
    nothing. notes: of which candidates the figures are in sample. cases, hash: how many cases the
    pilot has, and their fingerprint.
    """

    losses: RateCounts
    free_rate: float
    notes: tuple[str, ...]
    cases: int
    hash: str


def pilot_counts(
    pilot: TraceView, candidates: Sequence[Policy], settings: CertificationSettings
) -> PilotCounts:
    """Losses and costs of candidates on the pilot, cross-fitted where their model was fitted there.

    Args:
      candidates: candidates of any kind; those that share a model are cross-fitted together.

    Source: rules S6.9, S6.10: cases that a model was fitted on flatter it, in the order, the choice
      and the hint.
    """
    split_counts = count_split(pilot, candidates, candidates[0], settings)
    pilot_hash = trace_hash(pilot)
    # places of candidates that decide by a model fitted on these cases, by measures and model
    places_by_model: dict[Any, list[int]] = {}
    for candidate_place, policy in enumerate(candidates):
        decision_model = policy.decision.model
        if (
            policy.decision.rule == EXPECTED_COST
            and decision_model
            and decision_model.fitted_on == pilot_hash
        ):
            places_by_model.setdefault(policy.structure, []).append(candidate_place)
    pilot_cells = split_counts.counted.cells.copy()
    cross_fitted = set[int]()
    for candidate_places in places_by_model.values():
        try:
            blind_cells = held_out_cells(
                pilot,
                [candidates[candidate_place] for candidate_place in candidate_places],
                settings.arm,
            )
        except ValueError:  # too few cases of a kind for a fit without a fold
            continue
        cross_fitted.update(candidate_places)
        pilot_cells[candidate_places] = blind_cells
    pilot_tally = split_counts.counted._replace(cells=pilot_cells)
    pilot_losses = tally_losses(pilot_tally, list(settings.targets), settings.costs)
    if settings.traffic is not None:
        mix_corners = settings.traffic.vertices(metrics.label_counts(pilot_cells[0]))
        pilot_losses = in_mix(pilot_losses, mix_corners, settings.level)
    # What a policy keeps of its cases tells of others, whose pilot figures flatter as well.
    n_in_sample = sum(
        bool(
            set(learned_row.parts)
            - ({DECISION_MODEL_PART} if candidate_place in cross_fitted else set())
        )
        for candidate_place, learned_row in enumerate(trace_learned(candidates, pilot))
    )
    in_sample_note = (
        f"Pilot figures of {n_in_sample:,} of {len(candidates):,} candidates are {IN_SAMPLE}: "
        "order and "
        "pilot cost flatter them, the test does not."
    )
    free_counts = counted_losses(split_counts.answering[None], [RISK], None)
    free_rate = float(free_counts.k[0, 0] / free_counts.n[0, 0]) if free_counts.n[0, 0] else 1.0
    return PilotCounts(
        pilot_losses, free_rate, (in_sample_note,) if n_in_sample else (), len(pilot), pilot_hash
    )


def free_policies(
    split_counts: SplitCounts,
    settings: CertificationSettings,
    mix_corners: FloatArray | None = None,
) -> tuple[str, ...]:
    """Policies with no threshold that pass the same test of each target on the certified cases.

    Args:
      split_counts: of these cases.
      mix_corners: of the stated mix, [V, 3].
    """
    free_cells = np.zeros((3, len(Status), len(Status), 2), dtype=np.int64)
    free_cells[0] = split_counts.answering[: metrics.PLAIN_CELLS].reshape(free_cells.shape[1:])
    # undecided answers count as wrong
    free_cells[0, Status.ok, Status.ok, 0] += split_counts.answering[metrics.PLAIN_CELLS :].sum()
    free_cells[1, Status.refuse, :, 0] = split_counts.counted.labels
    # at its best: the options are right wherever it should ask
    free_cells[2, Status.ambiguous, :, 1] = split_counts.counted.labels
    free_losses = counted_losses(free_cells, list(settings.targets), settings.costs)
    if mix_corners is not None:
        free_losses = in_mix(free_losses, mix_corners, settings.level)
    joint_p = free_losses.p(settings.alphas).max(axis=1)
    policy_names = ("always-answer", "always-refuse", "always-ask")
    return tuple(
        policy_name
        for policy_name, policy_p in zip(policy_names, joint_p, strict=True)
        if policy_p <= settings.level
    )
