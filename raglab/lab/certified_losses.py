"""Losses of candidates (shore): errors, costs, p-values, bounds, pilot order (S6.9, S6.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import certify, metrics
from raglab.certify import MAX_OVER_ASK
from raglab.decision.answer_text import Basis, MissingAnswers
from raglab.decision.learned_cases import IN_SAMPLE, trace_learned
from raglab.decision.outcome_codes import UNEARNED_CELL, Tally
from raglab.decision.trace_view import TraceView, failed_count
from raglab.lab.decision_fitting import held_out_cells
from raglab.lab.looks import trace_hash
from raglab.lab.search_space import always_answer
from raglab.metrics import binomial_p, clopper_pearson
from raglab.metrics.mix_tests import MixTest
from raglab.metrics.mixes import TrafficMix, weighed_by_mix
from raglab.policy import PolicyData
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import each_shard, join_columns, shard_cells, tally
from raglab.store.policies import Policy
from raglab.values import Status, refuse
from raglab.words.canonical import percent

COST, RISK = "expected_cost", "hallucination_rate"
# fields of `RateCounts` with a row a policy
OF_POLICY = ("k", "n", "cost", "coverage", "over_ask", "missing", "undecided")
MODEL_PART = "model of the decision"  # of what a policy learned, see `learning_parts`
LIKELY = 0.8  # probability of a certificate from which on its target is hinted at
EVEN = 0.5  # and from which on a signal is said to reach one
ALPHAS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50)


class RateCounts(NamedTuple):
    """Losses k and cases n of each target, [N, T], with other measures of the policies.

    k: errors; of the expected cost the sum of the costs over the highest one. cost: expected cost
    of a case, [N]. coverage, over_ask: shares, [N]. scale: what a loss of 1 stands for, the highest
    cost or 1, [T]. graded: whether losses lie between 0 and 1 too, [T]. missing: see
    `Tally.missing`, [N, 2]: an answer that is missing counts as not correct. undecided: answers
    that count as wrong since nobody can tell, [N]. basis: on which the cases are judged. mix:
    the losses by cell where the targets are those of a traffic mix, as cost, coverage and over_ask
    are then.
    """

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

    @property
    def compared(self) -> NDArray[np.bool_]:
        """Whether each policy has the recorded answers to be compared, [N] (rule S6.3)."""
        return np.array([shortfall.is_compared for shortfall in self.missing_answers], dtype=bool)

    def subset(self, places: NDArray[np.int64]) -> RateCounts:
        """Counts of some policies, in the order given."""
        mix = self.mix and self.mix._replace(cells=self.mix.cells[places])
        return self._replace(mix=mix, **{name: getattr(self, name)[places] for name in OF_POLICY})

    def mixed(self, place: int) -> MixTest | None:
        """Losses by cell of a target that moves with a stated mix; None of any other."""
        return self.mix if self.mix is not None and self.mix.moved[place] else None

    def p(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """p-value that a policy breaks a target, [N, T].

        Exact of errors, Hoeffding and Bentkus' of graded losses, of what moves with a stated mix
        that of `MixTest`.

        It is 1 of a policy that is not compared, so that it is never certified.
        """
        out = np.empty(self.k.shape)
        for place, alpha in enumerate(targets / self.scale):
            k, n, mix = self.k[:, place], self.n[:, place], self.mixed(place)
            if mix is not None:
                out[:, place] = mix.p(place, float(alpha))
            elif self.graded[place]:
                out[:, place] = certify.hoeffding_bentkus(k, n, float(alpha))
            else:
                out[:, place] = binomial_p(k.astype(np.int64), n, float(alpha))
        out[~self.compared] = 1.0
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


class Repeats(NamedTuple):
    """Cases of questions that several cases ask.

    cells: of every policy, by question, [N, R]. starts: where each question begins.
    """

    cells: NDArray[np.int64]
    starts: NDArray[np.int64]


def _repeats(
    trace: TraceView,
    policies: Sequence[PolicyData],
    questions: NDArray[np.int64],
    arm: str | None,
) -> Repeats | None:
    """Cells of cases whose question is asked again; None where each is asked once."""
    order = np.argsort(questions, kind="stable")
    order = order[(np.bincount(questions) > 1)[questions[order]]]
    if not len(order):
        return None
    cells = join_columns(each_shard(shard_cells, trace, list(policies), arm, what="replay"))
    starts = np.flatnonzero(np.diff(questions[order], prepend=-1))
    return Repeats(cells[:, order], starts)


def _cell_losses(names: Sequence[str], costs: metrics.Costs | None, cell: int) -> RateCounts:
    """What one case of each cell loses and counts, [20]; `cell`: of the undecided."""
    every = metrics.settled_cells(np.eye(metrics.N_CELLS, dtype=np.int64), cell)
    return counted_losses(every, names, costs)


def question_losses(
    losses: RateCounts,
    trace: TraceView,
    policies: Sequence[PolicyData],
    questions: NDArray[np.int64],
    names: Sequence[str],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    cell: int = metrics.WRONG_CELL,
) -> RateCounts:
    """Losses of which each question counts once, with the largest loss of its cases.

    Cases of one question are no independent draws.

    Args:
      losses: of the cases, see `tally_losses`.
      trace, policies, names, arm, costs: that they are of.
      questions: number of each case's question, from 0, [Q].
      cell: of the undecided answers, `metrics.WRONG_CELL` or `metrics.RIGHT_CELL`.

    Source: rule S6.4.
    """
    repeats = _repeats(trace, policies, questions, arm)
    if repeats is None:
        return losses
    of_cell = _cell_losses(names, costs, cell)
    k, n = losses.k.copy(), losses.n.copy()
    for row, of_policy in enumerate(repeats.cells):
        for total, by_cell in ((k, of_cell.k), (n, of_cell.n)):
            of_case = by_cell[of_policy]
            worst = np.maximum.reduceat(of_case, repeats.starts)
            total[row] += worst.sum(axis=0) - of_case.sum(axis=0)
    return losses._replace(k=k, n=n)


def unit_cells(
    counted: Tally,
    trace: TraceView,
    policies: Sequence[PolicyData],
    questions: NDArray[np.int64],
    names: Sequence[str],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    cell: int = metrics.WRONG_CELL,
    failed: int = 0,
) -> NDArray[np.int64]:
    """Questions by cell, each the case of it that loses most, of every policy and target.

    Cells are [N, T, 20]. A failed call may be of any label: it is what loses most of each.

    Args:
      counted: the cases, as `certified_tally` counts them.
      trace, policies, names, arm, costs: that they are of.
      questions: number of each case's question, from 0, [Q].
      cell: of the undecided answers, `metrics.WRONG_CELL` or `metrics.RIGHT_CELL`.
      failed: calls that the counts hold in `UNEARNED_CELL`.

    Raises:
      ValueError: the cases of a question have several labels.

    Source: rules S6.4, S6.15.
    """
    cells = counted.cells.copy()
    cells[:, UNEARNED_CELL] -= failed
    units = np.repeat(cells[:, None], len(names), axis=1)
    of_cell = _cell_losses(names, costs, cell)
    rank = 2.0 * of_cell.k + of_cell.n
    for label in range(len(metrics.LABELS)):
        of_label = np.where(metrics.LABEL_OF_CELL[:, None] == label, rank, -1.0)
        units[:, range(len(names)), of_label.argmax(axis=0)] += failed
    if repeats := _repeats(trace, policies, questions, arm):
        ranked = np.argsort(rank, axis=0, kind="stable")
        labels = metrics.LABEL_OF_CELL[repeats.cells[0]]
        least, most = (end.reduceat(labels, repeats.starts) for end in (np.minimum, np.maximum))
        if several := int((least < most).sum()):
            value = f"several for {several:,} of {int(questions.max()) + 1:,}"
            refuse("under a mix each question must have one label", value, "leave mix out")
        for row, of_policy in enumerate(repeats.cells):
            worst = np.maximum.reduceat(np.argsort(ranked, axis=0)[of_policy], repeats.starts)
            for place, at in enumerate(worst.T):
                units[row, place] += np.bincount(ranked[at, place], minlength=metrics.N_CELLS)
            units[row] -= np.bincount(of_policy, minlength=metrics.N_CELLS)
    return metrics.settled_cells(units, cell)


def in_mix(
    losses: RateCounts,
    cells: NDArray[np.int64],
    units: NDArray[np.int64] | None,
    names: Sequence[str],
    costs: metrics.Costs | None,
    corners: NDArray[np.float64],
    level: float,
) -> RateCounts:
    """Losses tested in a traffic mix, with cost, coverage and over-ask of the mean of its corners.

    Args:
      losses: of policies, [N].
      cells: their cases by cell, [N, 20].
      units: see `unit_cells`; None where each case is one.
      names, costs: of the targets.
      corners: outermost mixes, [V, 3].
      level: error of a test.
    """
    weighed = weighed_by_mix(cells, corners.mean(axis=0)).weights
    of_mix = counted_losses(weighed, names, costs)
    of_cell = counted_losses(np.eye(metrics.N_CELLS, dtype=np.int64), names, costs)
    if units is None:
        units = np.repeat(cells[:, None], len(names), axis=1)
    counted = of_cell.n.T.astype(np.float64)
    test = MixTest(units.astype(np.float64), of_cell.k.T, counted, corners, level)
    return losses._replace(
        cost=of_mix.cost, coverage=of_mix.coverage, over_ask=of_mix.over_ask, mix=test
    )


class SplitCounts(NamedTuple):
    """What candidates, and a policy without a threshold, do on the cases of a split.

    losses: of the candidates, [N]. answering: cases by cell of always-answer, [20]. counted:
    the decisions of the candidates.
    """

    losses: RateCounts
    answering: NDArray[np.int64]
    counted: Tally

    @property
    def free_rate(self) -> float:
        """Hallucination rate of always-answer; 1 where it answers nothing."""
        free = counted_losses(self.answering[None], [RISK], None)
        return float(free.k[0, 0] / free.n[0, 0]) if free.n[0, 0] else 1.0


def count_split(
    trace: TraceView,
    candidates: Sequence[Policy],
    start: Policy,
    names: Sequence[str],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
) -> SplitCounts:
    """Losses of candidates and always-answer, in one pass over the cases or a trace's shards.

    Args:
      start: policy that always-answer is made of.
    """
    counts = certified_tally(trace, [*candidates, always_answer(start)], arm)
    of_candidates = counts._replace(
        cells=counts.cells[:-1], stages=counts.stages[:-1], missing=counts.missing[:-1]
    )
    losses = tally_losses(of_candidates, names, costs)
    return SplitCounts(losses, counts.cells[-1], of_candidates)


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


def tally_losses(counted: Tally, names: Sequence[str], costs: metrics.Costs | None) -> RateCounts:
    """Losses of policies whose decisions are counted, with the answers that they lack."""
    losses = counted_losses(counted.cells, names, costs)
    return losses._replace(missing=counted.missing, basis=counted.basis)


def counted_losses(
    cells: NDArray[Any], names: Sequence[str], costs: metrics.Costs | None
) -> RateCounts:
    """Losses of policies whose cells are counted.

    Args:
      cells: [N, 20].
      names: rates of `metrics.RATES`, or `expected_cost`.
      costs: of the latter, and of `cost`.
    """
    cells = metrics.cell_table(cells)
    every, labels = metrics.rate_counts(cells), metrics.label_counts(cells)
    of_rate, size = metrics.denominators(every, labels), labels.sum(axis=-1)
    matrix = metrics.cost_matrix(costs)
    most = float(matrix.max()) or 1.0
    k, n = np.zeros((len(cells), len(names))), np.zeros((len(cells), len(names)), dtype=np.int64)
    for place, name in enumerate(names):
        if name == COST:
            k[:, place], n[:, place] = cells @ (metrics.cell_costs(matrix) / most), size
        else:
            at = metrics.RATES.index(name)
            k[:, place], n[:, place] = every[:, at], of_rate[:, at]
    answered = every[:, metrics.COUNTS.index("answered")]
    idle = metrics.RATES.index("over_ask_rate")
    is_cost = np.array([name == COST for name in names], dtype=bool)
    return RateCounts(
        k=k,
        n=n,
        cost=np.asarray(metrics.expected_cost(cells, matrix), dtype=np.float64),
        coverage=answered / np.maximum(1, size),
        over_ask=every[:, idle] / np.maximum(1, of_rate[:, idle]),
        scale=np.where(is_cost, most, 1.0),
        graded=is_cost & bool(((matrix > 0.0) & (matrix < most)).any()),
        missing=np.zeros((len(cells), 2), dtype=np.int64),
        undecided=cells[:, metrics.PLAIN_CELLS :].sum(axis=1),
        basis=Basis(0, int(labels[:1, Status.ok].sum())),
    )


class PilotCounts(NamedTuple):
    """Candidates on the cases that their order is learned on.

    losses: of the candidates, [N]; of one whose decision model was fitted on the pilot by models
    that never saw the case. free_rate: hallucination rate of always-answer. notes: of which
    candidates the figures are in sample.
    """

    losses: RateCounts
    free_rate: float
    notes: tuple[str, ...]


def pilot_counts(
    pilot: TraceView,
    offered: Sequence[Policy],
    names: Sequence[str],
    costs: metrics.Costs | None = None,
    arm: str | None = None,
    mix: TrafficMix | None = None,
    level: float = 0.1,
) -> PilotCounts:
    """Losses and costs of candidates on the pilot, cross-fitted where their model was fitted there.

    Args:
      offered: candidates of any kind; those that share a model are cross-fitted together.
      mix: that the targets are of; None of the sample's own.
      level: error of a test under the mix.

    Source: rules S6.9, S6.10: cases that a model was fitted on flatter it, in the order, the choice
      and the hint.
    """
    split = count_split(pilot, offered, offered[0], names, arm, costs)
    pilot_hash = trace_hash(pilot)
    every, cross_fitted = split.counted.cells.copy(), set[int]()
    for places in _fitted_groups(offered, pilot_hash):
        try:
            cells = held_out_cells(pilot, [offered[place] for place in places], arm)
        except ValueError:  # too few cases of a kind for a fit without a fold
            continue
        cross_fitted.update(places)
        every[places] = cells
    losses = tally_losses(split.counted._replace(cells=every), names, costs)
    if mix is not None:
        corners = mix.vertices(metrics.label_counts(every[0]))
        losses = in_mix(losses, every, None, names, costs, corners, level)
    # What a policy keeps of its cases tells of others, whose pilot figures flatter as well.
    in_sample = sum(
        bool(set(learned.parts) - ({MODEL_PART} if place in cross_fitted else set()))
        for place, learned in enumerate(trace_learned(offered, pilot))
    )
    note = (
        f"Pilot figures of {in_sample:,} of {len(offered):,} candidates are {IN_SAMPLE}: order and "
        "pilot cost flatter them, the test does not."
    )
    return PilotCounts(losses, split.free_rate, (note,) if in_sample else ())


def _fitted_groups(offered: Sequence[Policy], cases: str) -> list[list[int]]:
    """Places of candidates that decide by a model fitted on these cases, by measures and model."""
    groups: dict[Any, list[int]] = {}
    for place, policy in enumerate(offered):
        model = policy.decision.model
        if policy.decision.rule == EXPECTED_COST and model and model.fitted_on == cases:
            groups.setdefault(policy.structure, []).append(place)
    return list(groups.values())


def pilot_order(
    counts: RateCounts, alphas: NDArray[np.float64], delta: float, size: float
) -> NDArray[np.int64]:
    """Candidates worth testing, learned on a pilot split: from the safest to the cheapest.

    Left out are those that another one beats in p-value and cost, and those that would answer too
    few cases to be certified at all, while any others are there.

    Args:
      counts: candidates on the pilot.
      size: cases to be certified on, over those of the pilot.

    Source: rule S6.10; Pareto testing (Laufer-Goldshtein and others 2023).
    """
    needed = np.array(
        [certify.cases_needed(float(alpha), delta) for alpha in alphas / counts.scale]
    )
    enough = (counts.n * size >= needed).all(axis=1)
    enough |= counts.mix is not None  # what a mix needs is of each label, and in the p-value
    rows = np.flatnonzero(enough) if enough.any() else np.arange(len(counts.k))
    return rows[certify.pareto_order(counts.subset(rows).p(alphas).max(axis=1), -counts.cost[rows])]


class Nearest(NamedTuple):
    """Lowest hallucination target that is likely to be certified, and how likely.

    Both NaN where there is none.
    """

    alpha: float
    chance: float


def nearest_target(
    counts: RateCounts, targets: Mapping[str, float], delta: float, *, size: float, free_rate: float
) -> Nearest:
    """Lowest hallucination target that some candidate is likely to certify, by the pilot alone.

    Args:
      counts: candidates on the pilot.
      size: cases to certify on, over those of the pilot.
      free_rate: hallucination rate of always-answer there; a target that it reaches is no hint.

    Source: rule S6.9.
    """
    none = Nearest(float("nan"), float("nan"))
    if RISK not in targets or counts.mix is not None:
        return none
    # Candidates that lost alike are one: there are far fewer of them.
    alike = np.unique(np.concatenate([counts.k, counts.n], axis=1), axis=0)
    k, n = alike[:, : len(targets)], alike[:, len(targets) :]

    def chance(place: int, alpha: float) -> NDArray[np.float64]:
        return certify.certification_chance(
            k[:, place], n[:, place], n[:, place] * size, alpha, delta
        )

    likely = np.ones(len(k))
    for place, (name, alpha) in enumerate(targets.items()):
        if name != RISK:
            likely = likely * chance(place, float(alpha / counts.scale[place]))
    at = list(targets).index(RISK)
    for alpha in ALPHAS:
        best = float((likely * chance(at, alpha)).max(initial=0.0)) if alpha < free_rate else 0.0
        if best >= LIKELY:
            return Nearest(alpha, best)
    return none


def free_policies(
    counts: SplitCounts,
    targets: Mapping[str, float],
    costs: metrics.Costs | None,
    delta: float,
    corners: NDArray[np.float64] | None = None,
) -> tuple[str, ...]:
    """Policies with no threshold that pass the same test of each target on the certified cases.

    Args:
      counts: of these cases.
      targets, costs: that are tested.
      delta: error of a test.
      corners: of the stated mix, [V, 3].
    """
    cells = np.zeros((3, len(Status), len(Status), 2), dtype=np.int64)
    cells[0] = counts.answering[: metrics.PLAIN_CELLS].reshape(cells.shape[1:])
    # whatever is undecided counts as wrong
    cells[0, Status.ok, Status.ok, 0] += counts.answering[metrics.PLAIN_CELLS :].sum()
    cells[1, Status.refuse, :, 0] = counts.counted.labels
    # at its best: the options are right wherever it should ask
    cells[2, Status.ambiguous, :, 1] = counts.counted.labels
    flat = metrics.cell_table(cells)
    losses = counted_losses(flat, list(targets), costs)
    if corners is not None:
        losses = in_mix(losses, flat, None, list(targets), costs, corners, delta)
    p = losses.p(np.array(list(targets.values())))
    names = ("always-answer", "always-refuse", "always-ask")
    return tuple(name for name, joint in zip(names, p.max(axis=1), strict=True) if joint <= delta)


def asking_note(over_ask: float, free: Sequence[str]) -> str:
    """That the targets are met only by asking back or refusing; empty where they are not."""
    idle = [name for name in free if name != "always-answer"]
    why = [f"{percent(over_ask)} of the unambiguous are asked"] if over_ask > MAX_OVER_ASK else []
    why += [f"{' and '.join(idle)} keeps every target too"] if idle else []
    return f"Rests on asking back or refusing: {'; '.join(why)}." if why else ""
