"""Counts of certifications (shore): cases, losses, p-values, bounds, pilot (S6.4, S6.9, S6.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
from raglab.values import Status, refuse

COST, RISK = "expected_cost", "hallucination_rate"
SPLITS = ("tune", "certify")
# fields of `RateCounts` with a row a policy
OF_POLICY = ("cells", "k", "n", "cost", "coverage", "over_ask", "missing", "undecided")
MODEL_PART = "model of the decision"  # of what a policy learned, see `learning_parts`


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
    def alphas(self) -> NDArray[np.float64]:
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
        whole, spent = self.delta / self.divisor, self.traffic.delta if self.traffic else 0.0
        if spent >= whole:
            rule, remedy = "delta must be above the error of the mix", "estimate it at a smaller"
            refuse(rule, f"{whole:.3g} and {spent:.3g}", remedy)
        return whole - spent


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
    stated = dict(targets or {})
    if not stated:
        refuse("targets must name at least one rate", "none", remedy)
    most = {COST: float(metrics.cost_matrix(costs).max())} | dict.fromkeys(metrics.OBJECTIVES, 1.0)
    for name, alpha in stated.items():
        if name not in most:
            remedy = f"name one of {', '.join(most)}"
            refuse("targets must be rates of errors or a cost", repr(name), remedy)
        if not 0.0 < alpha < most[name]:
            refuse(f"the target of {name} must be in (0, {most[name]:g})", alpha, "0.1 is 10 %")
    metrics.check_delta(delta)
    path = None if looks is None else Path(looks)
    terms = CertificationSettings(stated, costs, delta, arm, again, path, mix=checked_mix(mix))
    _ = terms.level  # which a mix may leave nothing of
    return terms


class CertifyCases(NamedTuple):
    """Cases that an order is learned on, None without any, and those to certify on.

    tested: split of the latter, None where there is none. by_split: questions of all cases.
    numbers: number of the question of each case to certify on, from 0, [Q].
    """

    pilot: StudyTrace | None
    held_out: StudyTrace
    tested: str | None
    by_split: Queries
    numbers: NDArray[np.int64]

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
    by_split = trace_queries(trace)
    check_split_names(by_split)
    learned_on, tested = SPLITS
    pilot, held_out = None, trace
    if tested in by_split:
        pilot = trace.split(learned_on) if learned_on in by_split else None
        held_out = trace.split(tested)
    elif by_split.keys() - {None}:
        remedy = "label one certify, or .replace({'test': 'certify'}) before loading"
        names = ", ".join(sorted(map(str, by_split)))
        refuse("cases must have a split certify to certify on", names, remedy)
    elif not len(trace):
        refuse("a certificate needs at least one case", "none", "check the split")
    cases = list(chain.from_iterable(cases_by_shard(held_out)))
    # A certificate counts each question once, so none may stand for more requests than another.
    drawn = {case.extra.get(PROBABILITY_KEY) for case in cases}
    if len(drawn) > 1:
        rule = "cases to certify on must be drawn with one inclusion probability"
        shown = ", ".join(sorted(map(str, drawn))[:4])
        refuse(rule, f"{len(drawn)}: {shown}", "draw evenly, or weigh them by raglab.review")
    split = tested if tested in by_split else None
    return CertifyCases(pilot, held_out, split, by_split, counted_questions(cases))


def distinct_candidates(
    candidates: Iterable[Policy], cases: CertifyCases
) -> tuple[list[Policy], tuple[str, ...]]:
    """Candidates, each policy once, and notes on those that may have learned from these cases.

    Raises:
      ValueError: one that has learned from the cases to certify on, alone or with others.
    """
    by_id: dict[str, Policy] = {}
    for policy in candidates:  # of equal ones that which remembers a look
        if policy.certificate is not None or policy.policy_id not in by_id:
            by_id[policy.policy_id] = policy
    policies = list(by_id.values())
    rows = learned_cases(policies, cases.by_split, (cases.tested,))
    for learned in rows:
        check_unlearned(learned)
    doubts = [learned.doubt for learned in rows if learned.doubt]
    lead = f"Of {len(doubts):,} of {len(policies):,} candidates: " if len(policies) > 1 else ""
    return policies, tuple(f"{lead}{doubt}" for doubt in doubts[:1])


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
    cells: NDArray[Any]
    k: NDArray[np.float64]
    n: NDArray[np.int64]
    cost: NDArray[np.float64]
    coverage: NDArray[np.float64]
    over_ask: NDArray[np.float64]
    scale: NDArray[np.float64]
    graded: NDArray[np.bool_]
    missing: NDArray[np.int64]
    undecided: NDArray[np.int64]
    basis: Basis
    mix: MixTest | None = None

    @property
    def missing_answers(self) -> list[MissingAnswers]:
        """Recorded answers that each policy lacks."""
        return [MissingAnswers(*pair) for pair in self.missing.tolist()]

    def subset(self, places: NDArray[np.int64]) -> RateCounts:
        """Counts of some policies, in the order given."""
        mix = self.mix and self.mix._replace(cells=self.mix.cells[places])
        return self._replace(mix=mix, **{name: getattr(self, name)[places] for name in OF_POLICY})

    def at_best(self, size: float) -> RateCounts:
        """Counts to expect on so many times the cases, of which none is lost.

        Args:
          size: cases to come, over these.
        """
        mix = self.mix and self.mix._replace(cells=self.mix.cells * size, loss=0.0 * self.mix.loss)
        n = np.floor(self.n * size).astype(np.int64)
        return self._replace(k=0.0 * self.k, n=n, missing=0 * self.missing, mix=mix)

    def mixed(self, place: int) -> MixTest | None:
        """Losses by cell of a target that moves with a stated mix; None of any other."""
        return self.mix if self.mix is not None and self.mix.moved[place] else None

    def p(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """p-value that a policy breaks a target, [N, T].

        Exact of errors, Hoeffding and Bentkus' of graded losses, of what moves with a stated mix
        that of `MixTest`.

        It is 1 of a policy that lacks too many answers, so that it is never certified.
        """
        out = np.empty(self.k.shape)
        for place, alpha in enumerate((targets / self.scale).tolist()):
            k, n, mix = self.k[:, place], self.n[:, place], self.mixed(place)
            if mix is not None:
                out[:, place] = mix.p(place, alpha)
            elif self.graded[place]:
                out[:, place] = certify.hoeffding_bentkus(k, n, alpha)
            else:
                out[:, place] = binomial_p(k.astype(np.int64), n, alpha)
        out[[not answers.is_compared for answers in self.missing_answers]] = 1.0
        return out

    def bounds(
        self, place: int, delta: float, alpha: float, *, lower: bool = False
    ) -> NDArray[np.float64]:
        """Upper or lower bounds of a target's rate or cost at confidence 1 − delta, [N].

        Args:
          alpha: the target, in whose units the bounds are.
        """
        k, n, scale = self.k[:, place], self.n[:, place], float(self.scale[place])
        if mix := self.mixed(place):
            return mix.bound(place, delta, alpha / scale, lower=lower) * scale
        if not self.graded[place]:
            interval = clopper_pearson(k.astype(np.int64), n, 1.0 - 2.0 * delta)
            return np.asarray(interval.low if lower else interval.high) * scale
        # what is not lost is a loss in [0, 1] too
        pairs = zip((n - k if lower else k).tolist(), n.tolist(), strict=True)
        bounds = np.array([certify.graded_bound(total, size, delta) for total, size in pairs])
        return (1.0 - bounds if lower else bounds) * scale

    def total(self, row: int, place: int) -> float | int:
        """Errors of one policy, or the sum of its costs."""
        value = float(self.k[row, place] * self.scale[place])
        return int(value) if value.is_integer() else value

    def of_cell(self, undecided: int) -> RateCounts:
        """What one case of each cell loses and counts, [20]; undecided: the cell they count as."""
        cells = metrics.settled_cells(np.eye(metrics.N_CELLS, dtype=np.int64), undecided)
        return counted_losses(cells, self.names, self.costs)


def counted_losses(
    cells: NDArray[Any], names: Sequence[str], costs: metrics.Costs | None
) -> RateCounts:
    """Losses of policies whose cells are counted.

    Args:
      cells: [N, 20].
      names: rates of `metrics.RATES`, or `expected_cost`.
      costs: of the latter, and of `cost`.
    """
    cells, matrix = metrics.cell_table(cells), metrics.cost_matrix(costs)
    counts, labels = metrics.rate_counts(cells), metrics.label_counts(cells)
    sizes, most = metrics.denominators(counts, labels), float(matrix.max()) or 1.0
    n_cases = labels.sum(axis=-1)
    at = [(*metrics.RATES, COST).index(name) for name in names]
    answered, idle = metrics.COUNTS.index("answered"), metrics.RATES.index("over_ask_rate")
    is_cost = np.array([name == COST for name in names], dtype=bool)
    return RateCounts(
        names=tuple(names),
        costs=costs,
        cells=cells,
        k=np.column_stack([counts, cells @ (metrics.cell_costs(matrix) / most)])[:, at],
        n=np.column_stack([sizes, n_cases])[:, at],
        cost=np.asarray(metrics.expected_cost(cells, matrix), dtype=np.float64),
        coverage=counts[:, answered] / np.maximum(1, n_cases),
        over_ask=counts[:, idle] / np.maximum(1, sizes[:, idle]),
        scale=np.where(is_cost, most, 1.0),
        graded=is_cost & bool(((matrix > 0.0) & (matrix < most)).any()),
        missing=np.zeros((len(cells), 2), dtype=np.int64),
        undecided=cells[:, metrics.PLAIN_CELLS :].sum(axis=1),
        basis=Basis(0, int(labels[:1, Status.ok].sum())),
    )


def tally_losses(counted: Tally, names: Sequence[str], costs: metrics.Costs | None) -> RateCounts:
    """Losses of policies whose decisions are counted, with the answers that they lack."""
    losses = counted_losses(counted.cells, names, costs)
    return losses._replace(missing=counted.missing, basis=counted.basis)


def certified_tally(trace: TraceView, policies: Sequence[PolicyData], arm: str | None) -> Tally:
    """Counted decisions in which cases whose calls failed are answers never recorded (S6.3).

    Each is a wrong answer, and one of those of which 5 % may be missing.
    """
    counted, failed = tally(trace, policies, arm), failed_count(trace)
    if not failed:
        return counted
    cells = counted.cells + failed * (np.arange(metrics.N_CELLS) == UNEARNED_CELL)
    answered = metrics.rate_counts(cells)[:, metrics.COUNTS.index("answered")]
    missing = np.stack([counted.missing[:, 0] + failed, answered], axis=1)
    return counted._replace(cells=cells, missing=missing)


class Repeats(NamedTuple):
    """Cases of questions that several cases ask.

    cells: of every policy, by question, [N, R]. starts: where each question begins.
    """

    cells: NDArray[np.int64]
    starts: NDArray[np.int64]


def repeated_cases(
    trace: TraceView, policies: Sequence[PolicyData], numbers: NDArray[np.int64], arm: str | None
) -> Repeats:
    """Cells of cases whose question is asked again.

    Args:
      numbers: number of each case's question, from 0, [Q].
    """
    order = np.argsort(numbers, kind="stable")
    order = order[(np.bincount(numbers) > 1)[numbers[order]]]
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    if not len(order):
        return Repeats(np.zeros((len(policies), 0), dtype=np.int64), starts)
    cells = join_columns(each_shard(shard_cells, trace, list(policies), arm, what="replay"))
    return Repeats(cells[:, order], starts)


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
    of_cell, k, n = losses.of_cell(undecided), losses.k.copy(), losses.n.copy()
    for row, cells in enumerate(repeats.cells if len(repeats.starts) else ()):
        for total, by_cell in ((k, of_cell.k), (n, of_cell.n)):
            worst = np.maximum.reduceat(by_cell[cells], repeats.starts)
            total[row] += worst.sum(axis=0) - by_cell[cells].sum(axis=0)
    return losses._replace(k=k, n=n)


def unit_cells(
    losses: RateCounts, repeats: Repeats, undecided: int = metrics.WRONG_CELL, failed: int = 0
) -> NDArray[np.int64]:
    """Questions by cell, each the case of it that loses most, of every policy and target.

    Cells are [N, T, 20]. A failed call may be of any label: it is what loses most of each.

    Args:
      losses, repeats, undecided: see `question_losses`.
      failed: calls that the counts hold in `UNEARNED_CELL`.

    Raises:
      ValueError: the cases of a question have several labels.

    Source: rules S6.4, S6.15.
    """
    cells, of_cell, n_targets = losses.cells.copy(), losses.of_cell(undecided), len(losses.names)
    cells[:, UNEARNED_CELL] -= failed
    units = np.repeat(cells[:, None], n_targets, axis=1)
    rank = 2.0 * of_cell.k + of_cell.n
    for label in range(len(metrics.LABELS)):
        of_label = np.where(metrics.LABEL_OF_CELL[:, None] == label, rank, -1.0)
        units[:, range(n_targets), of_label.argmax(axis=0)] += failed
    if len(repeats.starts):
        labels = metrics.LABEL_OF_CELL[repeats.cells[0]]
        least, most = (end.reduceat(labels, repeats.starts) for end in (np.minimum, np.maximum))
        if several := int((least < most).sum()):
            n = int(losses.cells[0].sum()) - len(labels) + len(repeats.starts)
            rule = "under a mix each question must have one label"
            refuse(rule, f"several for {several:,} of {n:,}", "leave mix out")
        ranked = np.argsort(rank, axis=0, kind="stable")
        for row, of_policy in enumerate(repeats.cells):
            worst = np.maximum.reduceat(np.argsort(ranked, axis=0)[of_policy], repeats.starts)
            for place, at in enumerate(worst.T):
                units[row, place] += np.bincount(ranked[at, place], minlength=metrics.N_CELLS)
            units[row] -= np.bincount(of_policy, minlength=metrics.N_CELLS)
    return metrics.settled_cells(units, undecided)


def in_mix(
    losses: RateCounts,
    corners: NDArray[np.float64],
    level: float,
    units: NDArray[np.int64] | None = None,
) -> RateCounts:
    """Losses tested in a traffic mix, with cost, coverage and over-ask of the mean of its corners.

    Args:
      losses: of policies, [N].
      corners: outermost mixes, [V, 3].
      level: error of a test.
      units: see `unit_cells`; None where each case is one.
    """
    weighed = weighed_by_mix(losses.cells, corners.mean(axis=0)).weights
    of_mix = counted_losses(weighed, losses.names, losses.costs)
    of_cell = losses.of_cell(metrics.WRONG_CELL)
    if units is None:
        units = np.repeat(losses.cells[:, None], len(losses.names), axis=1)
    counted = of_cell.n.T.astype(np.float64)
    test = MixTest(units.astype(np.float64), of_cell.k.T, counted, corners, level)
    return losses._replace(
        cost=of_mix.cost, coverage=of_mix.coverage, over_ask=of_mix.over_ask, mix=test
    )


class SplitCounts(NamedTuple):
    """What candidates, and a policy without a threshold, do on the cases of a split.

    losses: of the candidates, [N]. answering: cases by cell of always-answer, [20]. counted: the
    decisions of the candidates.
    """

    losses: RateCounts
    answering: NDArray[np.int64]
    counted: Tally


def count_split(
    trace: TraceView, candidates: Sequence[Policy], start: Policy, terms: CertificationSettings
) -> SplitCounts:
    """Losses of candidates and always-answer, in one pass over the cases or a trace's shards.

    Args:
      start: policy that always-answer is made of.
    """
    counts = certified_tally(trace, [*candidates, always_answer(start)], terms.arm)
    counted = counts._replace(cells=counts.cells[:-1], missing=counts.missing[:-1])
    losses = tally_losses(counted, list(terms.targets), terms.costs)
    return SplitCounts(losses, counts.cells[-1], counted)


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
    pilot: TraceView, offered: Sequence[Policy], terms: CertificationSettings
) -> PilotCounts:
    """Losses and costs of candidates on the pilot, cross-fitted where their model was fitted there.

    Args:
      offered: candidates of any kind; those that share a model are cross-fitted together.

    Source: rules S6.9, S6.10: cases that a model was fitted on flatter it, in the order, the choice
      and the hint.
    """
    split, hashed = count_split(pilot, offered, offered[0], terms), trace_hash(pilot)
    # places of candidates that decide by a model fitted on these cases, by measures and model
    groups: dict[Any, list[int]] = {}
    for place, policy in enumerate(offered):
        model = policy.decision.model
        if policy.decision.rule == EXPECTED_COST and model and model.fitted_on == hashed:
            groups.setdefault(policy.structure, []).append(place)
    every, cross_fitted = split.counted.cells.copy(), set[int]()
    for places in groups.values():
        try:
            cells = held_out_cells(pilot, [offered[place] for place in places], terms.arm)
        except ValueError:  # too few cases of a kind for a fit without a fold
            continue
        cross_fitted.update(places)
        every[places] = cells
    counted = split.counted._replace(cells=every)
    losses = tally_losses(counted, list(terms.targets), terms.costs)
    if terms.traffic is not None:
        corners = terms.traffic.vertices(metrics.label_counts(every[0]))
        losses = in_mix(losses, corners, terms.level)
    # What a policy keeps of its cases tells of others, whose pilot figures flatter as well.
    in_sample = sum(
        bool(set(learned.parts) - ({MODEL_PART} if place in cross_fitted else set()))
        for place, learned in enumerate(trace_learned(offered, pilot))
    )
    note = (
        f"Pilot figures of {in_sample:,} of {len(offered):,} candidates are {IN_SAMPLE}: order and "
        "pilot cost flatter them, the test does not."
    )
    free = counted_losses(split.answering[None], [RISK], None)
    free_rate = float(free.k[0, 0] / free.n[0, 0]) if free.n[0, 0] else 1.0
    return PilotCounts(losses, free_rate, (note,) if in_sample else (), len(pilot), hashed)


def free_policies(
    counts: SplitCounts,
    terms: CertificationSettings,
    corners: NDArray[np.float64] | None = None,
) -> tuple[str, ...]:
    """Policies with no threshold that pass the same test of each target on the certified cases.

    Args:
      counts: of these cases.
      corners: of the stated mix, [V, 3].
    """
    cells = np.zeros((3, len(Status), len(Status), 2), dtype=np.int64)
    cells[0] = counts.answering[: metrics.PLAIN_CELLS].reshape(cells.shape[1:])
    # whatever is undecided counts as wrong
    cells[0, Status.ok, Status.ok, 0] += counts.answering[metrics.PLAIN_CELLS :].sum()
    cells[1, Status.refuse, :, 0] = counts.counted.labels
    # at its best: the options are right wherever it should ask
    cells[2, Status.ambiguous, :, 1] = counts.counted.labels
    losses = counted_losses(cells, list(terms.targets), terms.costs)
    if corners is not None:
        losses = in_mix(losses, corners, terms.level)
    joint = losses.p(terms.alphas).max(axis=1)
    names = ("always-answer", "always-refuse", "always-ask")
    return tuple(name for name, p in zip(names, joint, strict=True) if p <= terms.level)
