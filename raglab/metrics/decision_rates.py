"""Rates of decisions (algebra): false refusals, hallucinations, over-asking, coverage; cost.

Ranking measures (S6.2).

A rate is never bare: k, n, and the exact binomial interval travel with it. 0 of 0 is NaN and meets
no target (rule S6.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import check_present, plain_array
from raglab.metrics.costs import (
    LABEL_OF_CELL,
    N_CELLS,
    PLAIN_CELLS,
    RIGHT_CELL,
    WRONG_CELL,
    CellCounts,
    Cells,
    cell_table,
    hull,
    settled_cells,
    settled_pairs,
)
from raglab.metrics.intervals import FloatArray, IntArray, Interval, clopper_pearson
from raglab.values import Status

SHAPE = (len(Status), len(Status))


def outcome_table(label: ArrayLike, status: ArrayLike) -> IntArray:
    """Cases by label (rows) and decision (columns), [3, 3], both in the order of `Status`.

    No cases are all zeros.

    An answer from the wrong sources is counted at its decision, (ok, ok): whether it is right
    depends on its evidence, not on its outcome.

    Args:
      label: codes of `Status`, [Q].
      status: codes of `Status`, [Q].

    Raises:
      ValueError: shapes that differ, or a code that is none of `Status`.

    Source: rule S0.1.

    Example:
      >>> outcome_table(
      ...     [Status.ok, Status.ok, Status.refuse], [Status.ok, Status.refuse, Status.refuse]
      ... )
      array([[1, 1, 0],
             [0, 1, 0],
             [0, 0, 0]])
    """
    rows, columns = _codes("label", label), _codes("status", status)
    if rows.shape != columns.shape:
        msg = f"label and status must be [Q] each, got shapes {rows.shape} and {columns.shape}."
        raise ValueError(msg)
    return np.bincount(rows * len(Status) + columns, minlength=len(Status) ** 2).reshape(SHAPE)


def _codes(name: str, codes: ArrayLike) -> IntArray:
    array = plain_array(codes, name)
    is_code = array.dtype.kind in "iu" and bool(((array >= 0) & (array < len(Status))).all())
    if array.ndim != 1 or not (is_code or not array.size):
        shown = list(dict.fromkeys(array.ravel().tolist()))[:5]
        msg = f"{name} must be codes of Status, 0 to 2, [Q], got {shown}; Status[name] gives one."
        raise ValueError(msg)
    return array.astype(np.int64)


def outcome_intervals(counts: IntArray, level: float = 0.95) -> Interval:
    """Exact interval of each cell's share of its row, [..., 3, 3]; NaN in a row without cases.

    Args:
      counts: of `outcome_table`, [..., 3, 3].
      level: in (0, 1), of each cell by itself.

    Raises:
      ValueError: level outside (0, 1), or counts of another shape.

    Source: Clopper and Pearson 1934.

    Example:
      >>> outcome_intervals(np.array([[8, 2, 0], [0, 5, 0], [0, 0, 0]])).high[0].round(2)
      array([0.97, 0.56, 0.31])
    """
    table = np.asarray(counts)
    if table.shape[-2:] != SHAPE:
        msg = f"counts must be [..., 3, 3], see outcome_table, got shape {table.shape}."
        raise ValueError(msg)
    return clopper_pearson(table, table.sum(axis=-1, keepdims=True), level)


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of decisions, an entry of `RATE_TABLE`: k of n cases.

    Attributes:
      count: name of k among `COUNTS`.
      counts: function of (decision, label, whether the expected sources were chosen), each of codes
        of `Status` or bool, broadcast, that gives whether a decision adds to k.
      of: function of (counts by name, cases by label [..., 3]) that gives n.
      better: whether a low or a high one is wanted; what is wanted low is an error that a
        certificate may promise.
      share_of: name of the cases that n counts, in a word.
      label: of legends.
      target: highest value wanted by default; None: none.
    """

    count: str
    counts: Callable[[Any, Any, Any], Any]
    of: Callable[[Mapping[str, IntArray], IntArray], Any]
    better: Literal["low", "high"]
    share_of: str
    label: str
    target: float | None = None


RATE_TABLE: dict[str, Rate] = {  # rules S6.2, S6.3; by name, in the order of columns
    "false_refusal_rate": Rate(
        "refused_ok",
        lambda status, label, _: (status == Status.refuse) & (label == Status.ok),
        lambda _, labels: labels[..., Status.ok],
        better="low",
        share_of="answerable",
        label="false refusal",
        target=0.10,
    ),
    "hallucination_rate": Rate(
        "wrong",
        lambda status, label, right: (status == Status.ok) & ((label != Status.ok) | ~right),
        lambda counts, _: counts["answered"],
        better="low",
        share_of="answered",
        label="hallucination",
        target=0.01,
    ),
    "missed_ambiguity_rate": Rate(
        "missed_ambiguity",
        lambda status, label, _: (status != Status.ambiguous) & (label == Status.ambiguous),
        lambda _, labels: labels[..., Status.ambiguous],
        better="low",
        share_of="ambiguous",
        label="missed ambiguity",
    ),
    "over_ask_rate": Rate(
        "over_ask",
        lambda status, label, _: (status == Status.ambiguous) & (label != Status.ambiguous),
        lambda _, labels: labels.sum(axis=-1) - labels[..., Status.ambiguous],
        better="low",
        share_of="unambiguous",
        label="over ask",
    ),
    "coverage": Rate(
        "answered",
        lambda status, *_: status == Status.ok,
        lambda _, labels: labels.sum(axis=-1),
        better="high",
        share_of="all",
        label="coverage",
    ),
    "pass_rate": Rate(
        "passed",
        lambda status, label, right: (status == label) & (right | (label == Status.refuse)),
        lambda _, labels: labels.sum(axis=-1),
        better="high",
        share_of="all",
        label="pass",
    ),
}


WITHIN_LABEL = ("answerable", "ambiguous")  # `share_of` of rates of the cases of one label


class Names(Sequence[str]):
    """Names in the table as it stands now, in its order.

    A rate that is added later is among them.
    """

    def __init__(self, name_of: Callable[[str, Rate], str]) -> None:
        self._name_of = name_of

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a name, or some
        return tuple(self._name_of(name, rate) for name, rate in RATE_TABLE.items())[place]

    def __len__(self) -> int:
        return len(RATE_TABLE)

    def __repr__(self) -> str:
        return repr(self[:])


RATES = Names(lambda name, _: name)
COUNTS = Names(lambda _, rate: rate.count)
OBJECTIVES = tuple(name for name, rate in RATE_TABLE.items() if rate.better == "low")
TARGETS: Mapping[str, float] = {
    name: rate.target for name, rate in RATE_TABLE.items() if rate.target is not None
}
# of one outcome: label, and whether the expected sources were found; cell = 2 · label + found
CELLS = len(Status) * 2


def contributions(status: NDArray[np.int8]) -> IntArray:
    """What one decision adds to each of `COUNTS`, by outcome, label and expected sources found.

    Args:
      status: of each outcome, [O].

    Returns:
      int [O, 3, 2, rates].

    Source: rules S6.2, S6.3.

    Example:
      >>> table = contributions(np.array([Status.ok]))
      >>> dict(zip(COUNTS, table[0, Status.refuse, 1].tolist()))["wrong"]
      1
    """
    codes = status[:, None, None], np.arange(3)[:, None], np.array([False, True])
    shape = len(status), 3, 2
    rows = [np.broadcast_to(rate.counts(*codes), shape) for rate in RATE_TABLE.values()]
    return np.stack(rows, axis=-1).astype(np.int64)


def rate_counts(cells: CellCounts) -> CellCounts:
    """Counts of each of `RATES`, [..., rates].

    Args:
      cells: cases by decision, label and whether the expected sources were found, [..., 20].
    """
    statuses = np.array(list(Status), dtype=np.int8)
    plain = contributions(statuses).reshape(-1, len(RATE_TABLE))
    adds = np.concatenate([plain, plain[[WRONG_CELL] * (N_CELLS - PLAIN_CELLS)]])
    return np.asarray(cells @ adds[: cells.shape[-1]])


_LABELS_OF_CELLS = np.eye(len(Status), dtype=np.int64)[LABEL_OF_CELL]


def label_counts(cells: CellCounts) -> CellCounts:
    """Cases by label, [..., 3], of cells [..., 20].

    Args:
      cells: cases by cell, [..., 20].
    """
    # ten times as fast as a sum over two axes
    return np.asarray(cells @ _LABELS_OF_CELLS[: cells.shape[-1]])


def denominators(counts: CellCounts, labels: CellCounts) -> CellCounts:
    """Of how many each of `RATES` is a share, [..., rates].

    Args:
      counts: [..., rates].
      labels: cases labelled ok, refuse, ambiguous, [3] or [..., 3].
    """
    named = {rate.count: counts[..., place] for place, rate in enumerate(RATE_TABLE.values())}
    n = np.empty_like(counts)
    for place, rate in enumerate(RATE_TABLE.values()):
        n[..., place] = rate.of(named, labels)
    return n


def rates(counts: CellCounts, labels: CellCounts) -> FloatArray:
    """`RATES` of tallied decisions, [..., rates]; NaN where there is nothing to be a share of.

    Args:
      counts: as `rate_counts` gives them, [..., rates].
      labels: cases labelled ok, refuse, ambiguous, [3] or [..., 3].

    Source: rule S6.2.

    Example:
      >>> rates(np.array([1, 0, 0, 0, 0, 0]), np.array([4, 0, 0]))[:2]
      array([0.25,  nan])
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return counts / denominators(counts, labels)


def hit_rate(relevant: NDArray[np.bool_], k: int) -> float:
    """hit@k: share of queries with a relevant hit among the first k.

    Args:
      relevant: whether each hit is relevant, in ranked order, [Q, K].
      k: ranks that count.
    """
    known = _relevance(relevant, "relevant")
    return float((known[:, :k] > 0).any(axis=1).mean()) if len(known) else float("nan")


def _relevance(values: ArrayLike, name: str) -> CellCounts:
    """Relevance of hits, [Q, K], once none is missing."""
    table = plain_array(values, name)
    if table.dtype.kind == "f":
        check_present(table, name, "write 0 or False for a hit that is not relevant")
    return table


def ndcg(relevant: NDArray[np.bool_], n_relevant: IntArray, k: int = 10) -> float:
    """nDCG@k with binary gains, mean over queries that have a relevant document.

    Args:
      relevant: whether each hit is relevant, in ranked order, [Q, K].
      n_relevant: relevant documents there are, [Q].
      k: ranks that count.

    Source: Järvelin and Kekäläinen 2002.

    Example:
      >>> ndcg(np.array([[False, True]]), np.array([1]))
      0.6309297535714575
    """
    relevant, n_relevant = _relevance(relevant, "relevant"), np.asarray(n_relevant)
    if (relevant.sum(axis=1) > n_relevant).any():
        msg = "relevant must not hold more hits than n_relevant; count a document once."
        raise ValueError(msg)
    width = min(k, relevant.shape[1])
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    gain = (relevant[:, :width] * discount[:width]).sum(axis=1)
    ideal = np.cumsum(discount)[np.clip(n_relevant, 1, k) - 1]
    judged = n_relevant > 0
    return float((gain / ideal)[judged].mean()) if judged.any() else float("nan")


def graded_ndcg(grades: FloatArray, ideal: FloatArray, k: int = 10) -> FloatArray:
    """nDCG@k of every query with linear gains, as trec_eval counts, [Q].

    NaN where no document is relevant.

    A gain is the grade itself, not 2 to its power: of a set with grades 2 and 1 the two differ.

    Args:
      grades: of the hits in ranked order, [Q, K], 0 for one that is not relevant.
      ideal: of the relevant documents there are, descending, [Q, R], 0 behind the last.
      k: ranks that count.

    Source: Järvelin and Kekäläinen 2002; trec_eval, `ndcg_cut`.

    Example:
      >>> graded_ndcg(np.array([[1.0, 2.0]]), np.array([[2.0, 1.0]]))
      array([0.8597187])
    """
    top, best = _relevance(grades, "grades")[:, :k], _relevance(ideal, "ideal")[:, :k]
    discount = 1.0 / np.log2(np.arange(2, max(top.shape[1], best.shape[1]) + 2))
    reached, reachable = ((gains * discount[: gains.shape[1]]).sum(axis=1) for gains in (top, best))
    if (reached > reachable * (1.0 + 1e-9)).any():
        msg = "hits must not have more grades than the documents there are; count a document once."
        raise ValueError(msg)
    with np.errstate(invalid="ignore"):
        return np.where(reachable > 0.0, reached / reachable, np.nan)


class PairedRates(NamedTuple):
    """Rates of two policies on the same cases, [rates] each, in the order of `RATES`.

    Attributes:
      k: count of each policy, [2, rates].
      n: cases of each policy's rate, [2, rates].
      difference: second less first.
      low: lower end of the difference's interval.
      high: upper end of the difference's interval.
      only_first: cases that count in k of the first policy alone. There is no p-value: the interval
        is of no test.
      only_second: cases that count in k of the second policy alone.
      rate: of each policy, k / n, or in a traffic mix, [2, rates].
    """

    k: IntArray
    n: IntArray
    difference: FloatArray
    low: FloatArray
    high: FloatArray
    only_first: IntArray
    only_second: IntArray
    rate: FloatArray


def paired_rates(
    first: Cells,
    second: Cells,
    level: float = 0.95,
    *,
    weights: FloatArray | None = None,
) -> PairedRates:
    """Differences of all rates on the same cases, second less first, NaN where one is of no case.

    The two exact intervals are put together by the correlation that the cases show, so that what
    both policies count alike does not blur the difference; an undecided answer that only one of
    them gives counts against a difference on either side; a rate whose n depends on the policy
    (hallucinations, of what is answered) is taken by its linear part. Where no case tells the
    policies apart, the interval is as wide as such cases may be frequent.

    Args:
      first: cell of each case under the first policy, 0 to 17, [Q].
      second: cell of each case under the second policy, 0 to 17, [Q].
      level: in (0, 1).
      weights: of each case, mean 1, [Q], in a traffic mix (rule S6.15); 1 where not given.

    Source: Zou and Donner 2008 (MOVER); Newcombe 1998 for proportions of the same cases.

    Example: of four questions labelled ok the first policy refuses all, the second answers one
      rightly.
      >>> refused, answered = len(Status) * 2 + 1, 1
      >>> found = paired_rates(np.full(4, refused), np.array([answered, refused, refused, refused]))
      >>> float(found.difference[0]), found.k[:, 0].tolist(), int(found.only_first[0])
      (-0.25, [4, 3], 1)
    """
    sides = [_paired_rates(*pair, level, weights) for pair in settled_pairs(first, second)]
    before, after = (np.where(cells >= PLAIN_CELLS, WRONG_CELL, cells) for cells in (first, second))
    return _paired_rates(before, after, level, weights)._replace(
        low=np.fmin.reduce([side.low for side in sides]),
        high=np.fmax.reduce([side.high for side in sides]),
    )


def _paired_rates(
    first: Cells,
    second: Cells,
    level: float,
    weights: FloatArray | None,
) -> PairedRates:
    """`paired_rates` of cases none of which is undecided."""
    every = np.eye(N_CELLS, dtype=np.int64)
    k = rate_counts(every)  # of a case of each cell
    of = denominators(k, label_counts(every))
    counts, joint, sums, sizes = _paired_counts(first, second, weights, k, of)
    alone = np.stack([joint.sum(axis=1), joint.sum(axis=0)])
    plain = np.stack([counts.sum(axis=1), counts.sum(axis=0)])
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = sums / sizes
        # what a case of each cell moves its policy's rate by: (counted - rate) where it is in the
        # denominator
        moves = (k - rate[:, None] * of) / sizes[:, None]
        spread = np.sqrt(np.einsum("pc,pcr->pr", alone, moves**2))
        both = np.einsum("ab,ar,br->r", joint, moves[0], moves[1])
        together = np.nan_to_num(both / (spread[0] * spread[1]))
    low, high = (np.asarray(end) for end in clopper_pearson(sums, sizes, level))
    difference = rate[1] - rate[0]

    def reach(left: FloatArray, right: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(left**2 + right**2 - 2.0 * together * left * right, 0.0))

    below = reach(rate[1] - low[1], high[0] - rate[0])
    above = reach(high[1] - rate[1], rate[0] - low[0])
    apart = k[:, None] - k
    same = np.einsum("ab,abr->r", joint, (apart != 0) | (of[:, None] != of)) == 0
    unseen = 1.0 - ((1.0 - level) / 2.0) ** (1.0 / np.maximum(sizes.min(axis=0), 1))
    below, above = (
        np.where(same & ~np.isnan(difference), unseen, width) for width in (below, above)
    )
    return PairedRates(
        k=plain @ k,
        n=plain @ of,
        difference=difference,
        low=np.maximum(difference - below, -1.0),
        high=np.minimum(difference + above, 1.0),
        only_first=np.einsum("ab,abr->r", counts, apart > 0),
        only_second=np.einsum("ab,abr->r", counts, apart < 0),
        rate=rate,
    )


def _paired_counts(
    first: Cells,
    second: Cells,
    weights: FloatArray | None,
    k: IntArray,
    of: IntArray,
) -> tuple[CellCounts, CellCounts, CellCounts, CellCounts]:
    """Cases by pair of cells, and by squared weight, [20, 20]; count and size of each rate.

    Counts and sizes, [2, rates] each, are those of as many independent cases as a rate is worth.
    """
    pair = first.astype(np.int64) * N_CELLS + second
    counts, joint, drawn = (
        np.bincount(pair, by, minlength=N_CELLS**2).reshape(N_CELLS, N_CELLS)
        for by in (None, None if weights is None else weights**2, weights)
    )
    sums, sizes, squares = (
        np.stack([table.sum(axis=1), table.sum(axis=0)]) @ each
        for table, each in ((drawn, k), (drawn, of), (joint, of))
    )
    if weights is not None:
        worth = np.divide(sizes, squares, out=np.ones_like(sizes), where=squares > 0.0)
        sums, sizes = sums * worth, sizes * worth
    return counts, joint, sums, sizes


class Weighed(NamedTuple):
    """Cases by cell and their weights, of mean 1 over the cases.

    Attributes:
      counts: cases by cell, [..., 20].
      weights: sums of their weights, [..., 20].
      squares: sums of the squares of the weights, [..., 20].
    """

    counts: IntArray
    weights: FloatArray
    squares: FloatArray

    def settled(self, cell: int) -> Weighed:
        """The same where the undecided answers are all right, or all wrong, see `settled_cells`.

        Args:
          cell: `RIGHT_CELL` or `WRONG_CELL`.
        """
        return Weighed(*(settled_cells(cells, cell) for cells in self))


def effective_counts(weighed: Weighed) -> tuple[FloatArray, FloatArray]:
    """Count and cases of each rate, [..., rates] each, of as many independent cases as it is worth.

    Of weights that are all 1 these are the counts themselves.

    Args:
      weighed: cases by cell with weights, [..., 20] each.

    Source: effective number of cases, Kish 1965.
    """
    counts = rate_counts(weighed.weights)
    of = denominators(counts, label_counts(weighed.weights))
    squares = denominators(rate_counts(weighed.squares), label_counts(weighed.squares))
    worth = np.divide(of, squares, out=np.ones_like(of), where=squares > 0.0)
    return counts * worth, of * worth


def rate_columns(
    cells: IntArray, level: float | None = 0.95, weighed: Sequence[Weighed] = ()
) -> dict[str, Any]:
    """Columns of a table of rates.

    Value, `_k`, `_n`, `_low` and `_high` of each of `RATES`, [P] each, and `undecided`: answers of
    which nobody can tell whether they are right. They count as wrong; an interval reaches from
    where all of them are right to where all are wrong.

    Args:
      cells: cases by cell, [P, 20].
      level: of the intervals, `_low` and `_high`; None leaves them out.
      weighed: the same cells in a traffic mix, the values' first, then those that intervals reach
        over; where not given, the cells as they are. `_k` and `_n` are always of these.

    Source: rules S6.2, S6.3, S6.15.
    """
    cells = cell_table(cells)
    counts, labels = rate_counts(cells), label_counts(cells)
    value, n = rates(counts, labels), denominators(counts, labels)
    settled = [settled_cells(cells, cell) for cell in (RIGHT_CELL, WRONG_CELL)]
    sides = [(rate_counts(table), n) for table in settled]
    if weighed:
        there = rates(rate_counts(weighed[0].weights), label_counts(weighed[0].weights))
        # a rate within one label is the same in every mix, also where the label has no share
        within = np.array([rate.share_of in WITHIN_LABEL for rate in RATE_TABLE.values()])
        same = within & np.isnan(there)
        value = np.where(same, value, there)
        sides = [
            (np.where(same, counts, k), np.where(same, n, of))
            for each in weighed
            for cell in (RIGHT_CELL, WRONG_CELL)
            for k, of in (effective_counts(each.settled(cell)),)
        ]
    columns: dict[str, Any] = {"undecided": cells[..., PLAIN_CELLS:].sum(axis=-1)}
    for place, name in enumerate(RATES):
        for ending, table in (("", value), ("_k", counts), ("_n", n)):
            columns[name + ending] = table[..., place]
        if level is not None:
            ends = [clopper_pearson(k[..., place], of[..., place], level) for k, of in sides]
            columns[f"{name}_low"], columns[f"{name}_high"] = hull(*ends)
    return columns
