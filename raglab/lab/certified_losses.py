"""Losses of candidates (shore): errors and costs, their p-values and bounds, what is likely to be certified (S6.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import certify, metrics
from raglab.certify import MAX_OVER_ASK
from raglab.decision.answer_text import Basis, MissingAnswers
from raglab.decision.outcome_codes import Tally
from raglab.lab.decision_fitting import held_out_cells
from raglab.lab.looks import trace_hash
from raglab.lab.report.blocks import percent
from raglab.lab.search_space import always_answer
from raglab.metrics import binomial_p, clopper_pearson, upper_bound
from raglab.policy import PolicyData
from raglab.policy_sections import EXPECTED_COST
from raglab.replay import Shards, tally
from raglab.store.policies import Policy
from raglab.store.sharded_traces import ShardedTrace
from raglab.values import Status, TraceData

COST, RISK = "expected_cost", "hallucination_rate"
LIKELY = 0.8  # probability of a certificate from which on its target is hinted at
EVEN = 0.5  # and from which on a signal is said to reach one
ALPHAS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50)


class RateCounts(NamedTuple):
    """Losses k and cases n of each target, [N, T], and what policies do beside.

    k: errors; of the expected cost the sum of the costs over the highest one. gain: right answers, [N]. coverage,
    over_ask: shares, [N]. scale: what a loss of 1 stands for, the highest cost or 1, [T]. graded: whether losses lie
    between 0 and 1 too, [T]. missing: see `Tally.missing`, [N, 2]: an answer that is missing counts as not correct.
    basis: on which the cases are judged.
    """

    k: NDArray[np.float64]
    n: NDArray[np.int64]
    gain: NDArray[np.float64]
    coverage: NDArray[np.float64]
    over_ask: NDArray[np.float64]
    scale: NDArray[np.float64]
    graded: NDArray[np.bool_]
    missing: NDArray[np.int64]
    basis: Basis

    @property
    def missing_answers(self) -> list[MissingAnswers]:
        """Recorded answers that each policy lacks."""
        return [MissingAnswers(*pair) for pair in self.missing.tolist()]

    @property
    def compared(self) -> NDArray[np.bool_]:
        """Whether each policy has the recorded answers to be compared, [N] (rule S6.3)."""
        return np.array([one.is_compared for one in self.missing_answers], dtype=bool)

    def subset(self, places: NDArray[np.int64]) -> RateCounts:
        """Counts of some policies, in the order given."""
        mine = {name: getattr(self, name)[places] for name in ("k", "n", "gain", "coverage", "over_ask", "missing")}
        return self._replace(**mine)

    def p(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """p-value that a policy breaks a target, [N, T]: exact of errors, Hoeffding and Bentkus' of graded losses.

        It is 1 of a policy that is not compared, so that it is never certified.
        """
        out = np.empty(self.k.shape)
        for place, alpha in enumerate(targets / self.scale):
            k, n = self.k[:, place], self.n[:, place]
            if self.graded[place]:
                out[:, place] = certify.hoeffding_bentkus(k, n, float(alpha))
            else:
                out[:, place] = binomial_p(k.astype(np.int64), n, float(alpha))
        out[~self.compared] = 1.0
        return out

    def bound(self, row: int, place: int, delta: float) -> float:
        """Upper bound of a target's rate or cost for one policy, in its own units."""
        k, n = float(self.k[row, place]), int(self.n[row, place])
        found = certify.graded_bound(k, n, delta) if self.graded[place] else float(upper_bound(int(k), n, delta))
        return found * float(self.scale[place])

    def total(self, row: int, place: int) -> float | int:
        """Errors of one policy, or the sum of its costs."""
        value = float(self.k[row, place] * self.scale[place])
        return int(value) if value.is_integer() else value


def count_rates(
    trace: TraceData | Shards,
    policies: Sequence[PolicyData],
    names: Sequence[str],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
) -> RateCounts:
    """Losses and cases of some rates, or of the expected cost, for each policy, and its right answers."""
    return tally_losses(tally(trace, policies, arm), names, costs)


class SplitCounts(NamedTuple):
    """What candidates, and a policy without a threshold, do on the cases of a split.

    losses: of the candidates, [N]. answering: cases by cell of always-answer, [18]. labels: cases by label, [3].
    """

    losses: RateCounts
    answering: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def free_rate(self) -> float:
        """Hallucination rate of always-answer; 1 where it answers nothing."""
        free = counted_losses(self.answering[None], [RISK], None)
        return float(free.k[0, 0] / free.n[0, 0]) if free.n[0, 0] else 1.0


def count_split(
    trace: TraceData | Shards,
    candidates: Sequence[Policy],
    start: Policy,
    names: Sequence[str],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
) -> SplitCounts:
    """Losses of candidates and of always-answer, in one pass over the cases, or over the shards of a trace.

    Args:
      start: policy that always-answer is made of.
    """
    seen = tally(trace, [*candidates, always_answer(start)], arm)
    of_candidates = seen._replace(cells=seen.cells[:-1], stages=seen.stages[:-1], missing=seen.missing[:-1])
    return SplitCounts(tally_losses(of_candidates, names, costs), seen.cells[-1], seen.labels)


def tally_losses(counted: Tally, names: Sequence[str], costs: metrics.Costs | None) -> RateCounts:
    """Losses of policies whose decisions are counted, with the answers that they lack."""
    losses = counted_losses(counted.cells, names, costs)
    return losses._replace(missing=counted.missing, basis=counted.basis)


def counted_losses(cells: NDArray[np.int64], names: Sequence[str], costs: metrics.Costs | None) -> RateCounts:
    """Losses of policies whose cells are counted.

    Args:
      cells: [N, 18]. names: rates of `metrics.RATES`, or `expected_cost`. costs: of the latter.
    """
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
    answered, wrong = (every[:, metrics.COUNTS.index(name)] for name in ("answered", "wrong"))
    idle = metrics.RATES.index("over_ask_rate")
    is_cost = np.array([name == COST for name in names], dtype=bool)
    return RateCounts(
        k=k,
        n=n,
        gain=(answered - wrong).astype(np.float64),
        coverage=answered / np.maximum(1, size),
        over_ask=every[:, idle] / np.maximum(1, of_rate[:, idle]),
        scale=np.where(is_cost, most, 1.0),
        graded=is_cost & bool(((matrix > 0.0) & (matrix < most)).any()),
        missing=np.zeros((len(cells), 2), dtype=np.int64),
        basis=Basis(0, int(labels[:1, Status.ok].sum())),
    )


def unseen_counts(
    pilot: TraceData | ShardedTrace[Any] | None,
    offered: Sequence[Policy],
    seen: RateCounts | None,
    names: Sequence[str],
    costs: metrics.Costs | None = None,
    arm: str | None = None,
) -> RateCounts | None:
    """What candidates did on the pilot, by models that never saw the case where theirs was fitted there.

    Args:
      seen: what they did there themselves, taken where that is honest, or where the cases are too few to leave any out.

    Source: rule S6.9: a hint from cases that a model was fitted on would flatter.
    """
    model = offered[0].decision.model
    by_one = all(one.decision.rule == EXPECTED_COST and one.decision.model == model for one in offered)
    if pilot is None or model is None or not by_one or model.fitted_on != trace_hash(pilot):
        return seen
    try:
        cells = held_out_cells(pilot, offered, arm)
    except ValueError:
        return seen
    return counted_losses(cells, names, costs)


def lower_bound(counts: RateCounts, place: int, delta: float) -> float:
    """Lower bound of a target's rate or cost for the first policy at confidence 1 − delta."""
    k, n = float(counts.k[0, place]), int(counts.n[0, place])
    scale = float(counts.scale[place])
    if counts.graded[place]:  # what is not lost is a loss in [0, 1] too
        return (1.0 - certify.graded_bound(n - k, n, delta)) * scale
    return float(clopper_pearson(int(k), n, 1.0 - 2.0 * delta).low) * scale


def pilot_order(seen: RateCounts, alphas: NDArray[np.float64], delta: float, size: float) -> NDArray[np.int64]:
    """Candidates worth testing, safest first, learned on a pilot split.

    Left out are those that would answer too few cases to be certified at all, while any others are there.

    Args:
      size: cases to be certified on, over those of the pilot.
    """
    needed = np.array([certify.cases_needed(float(alpha), delta) for alpha in alphas / seen.scale])
    enough = (seen.n * size >= needed).all(axis=1)
    rows = np.flatnonzero(enough) if enough.any() else np.arange(len(seen.k))
    return rows[certify.pareto_order(seen.subset(rows).p(alphas).max(axis=1), seen.gain[rows])]


class Nearest(NamedTuple):
    """Lowest hallucination target that is likely to be certified, and how likely; both NaN where there is none."""

    alpha: float
    chance: float


def nearest_target(
    seen: RateCounts, targets: Mapping[str, float], delta: float, *, size: float, free_rate: float
) -> Nearest:
    """Lowest hallucination target that some candidate is likely to certify, by the pilot alone.

    Args:
      seen: candidates on the pilot. size: cases to certify on, over those of the pilot. free_rate: hallucination rate
        of always-answer there; a target that it reaches is no hint.

    Source: rule S6.9.
    """
    none = Nearest(float("nan"), float("nan"))
    if RISK not in targets:
        return none
    # Candidates that lost alike are one: there are far fewer of them.
    alike = np.unique(np.concatenate([seen.k, seen.n], axis=1), axis=0)
    k, n = alike[:, : len(targets)], alike[:, len(targets) :]
    scaled = {name: float(alpha / seen.scale[place]) for place, (name, alpha) in enumerate(targets.items())}

    def chance(place: int, alpha: float) -> NDArray[np.float64]:
        return certify.certification_chance(k[:, place], n[:, place], n[:, place] * size, alpha, delta)

    at = list(targets).index(RISK)
    others = np.prod([np.ones(len(k)), *(chance(t, scaled[name]) for t, name in enumerate(targets) if t != at)], axis=0)
    low, high = 0, sum(alpha < free_rate for alpha in ALPHAS)
    best = Nearest(float("nan"), float("nan"))
    while low < high:  # a higher target is no less likely
        middle = (low + high) // 2
        likely = float((others * chance(at, ALPHAS[middle])).max(initial=0.0))
        if likely >= LIKELY:
            best, high = Nearest(ALPHAS[middle], likely), middle
        else:
            low = middle + 1
    return best


def free_policies(
    seen: SplitCounts, targets: Mapping[str, float], costs: metrics.Costs | None, delta: float
) -> tuple[str, ...]:
    """Policies without a threshold that keep every target on the certified cases too, by the same certify."""
    cells = np.zeros((3, len(Status), len(Status), 2), dtype=np.int64)
    cells[0] = seen.answering.reshape(cells.shape[1:])
    cells[1, Status.refuse, :, 0] = seen.labels
    cells[2, Status.ambiguous, :, 1] = seen.labels  # at its best: the options are right wherever it should ask
    p = counted_losses(cells.reshape(3, -1), list(targets), costs).p(np.array(list(targets.values())))
    names = ("always-answer", "always-refuse", "always-ask")
    return tuple(name for name, joint in zip(names, p.max(axis=1), strict=True) if joint <= delta)


def asking_note(over_ask: float, free: Sequence[str]) -> str:
    """That what is kept is bought by asking back or refusing, and why one says so; empty where it is not."""
    idle = [name for name in free if name != "always-answer"]
    why = [f"{percent(over_ask)} of the unambiguous are asked back"] if over_ask > MAX_OVER_ASK else []
    why += [f"{' and '.join(idle)} would keep every target too"] if idle else []
    return f"It rests on asking back or refusing: {'; '.join(why)}." if why else ""
