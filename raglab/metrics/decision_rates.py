"""Rates of decisions (algebra): false refusals, over-asking, cost; ranking measures (S6.2).

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

OUTCOME_TABLE_SHAPE = (len(Status), len(Status))


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
    label_codes, status_codes = _checked_codes("label", label), _checked_codes("status", status)
    if label_codes.shape != status_codes.shape:
        msg = (
            f"label and status must be [Q] each, got shapes {label_codes.shape} and "
            f"{status_codes.shape}."
        )
        raise ValueError(msg)
    return np.bincount(
        label_codes * len(Status) + status_codes, minlength=len(Status) ** 2
    ).reshape(OUTCOME_TABLE_SHAPE)


def _checked_codes(argument_name: str, codes: ArrayLike) -> IntArray:
    code_array = plain_array(codes, argument_name)
    is_code = code_array.dtype.kind in "iu" and bool(
        ((code_array >= 0) & (code_array < len(Status))).all()
    )
    if code_array.ndim != 1 or not (is_code or not code_array.size):
        shown_codes = list(dict.fromkeys(code_array.ravel().tolist()))[:5]
        msg = (
            f"{argument_name} must be codes of Status, 0 to 2, [Q], got {shown_codes}; "
            "Status[name] gives one."
        )
        raise ValueError(msg)
    return code_array.astype(np.int64)


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
    count_table = np.asarray(counts)
    if count_table.shape[-2:] != OUTCOME_TABLE_SHAPE:
        msg = f"counts must be [..., 3, 3], see outcome_table, got shape {count_table.shape}."
        raise ValueError(msg)
    return clopper_pearson(count_table, count_table.sum(axis=-1, keepdims=True), level)


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


WITHIN_LABEL_SHARES = ("answerable", "ambiguous")  # `share_of` of rates of the cases of one label


class RateNames(Sequence[str]):
    """Names in the table as it stands now, in its order.

    A rate that is added later is among them.
    """

    def __init__(self, name_of: Callable[[str, Rate], str]) -> None:
        self._name_of = name_of

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a name, or some
        return tuple(self._name_of(rate_name, rate) for rate_name, rate in RATE_TABLE.items())[
            place
        ]

    def __len__(self) -> int:
        return len(RATE_TABLE)

    def __repr__(self) -> str:
        return repr(self[:])


RATES = RateNames(lambda name, _: name)
COUNTS = RateNames(lambda _, rate: rate.count)
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
    outcome_codes = status[:, None, None], np.arange(3)[:, None], np.array([False, True])
    contribution_shape = len(status), 3, 2
    rate_rows = [
        np.broadcast_to(rate.counts(*outcome_codes), contribution_shape)
        for rate in RATE_TABLE.values()
    ]
    return np.stack(rate_rows, axis=-1).astype(np.int64)


def rate_counts(cells: CellCounts) -> CellCounts:
    """Counts of each of `RATES`, [..., rates].

    Args:
      cells: cases by decision, label and whether the expected sources were found, [..., 20].
    """
    statuses = np.array(list(Status), dtype=np.int8)
    plain_contributions = contributions(statuses).reshape(-1, len(RATE_TABLE))
    cell_contributions = np.concatenate(
        [plain_contributions, plain_contributions[[WRONG_CELL] * (N_CELLS - PLAIN_CELLS)]]
    )
    return np.asarray(cells @ cell_contributions[: cells.shape[-1]])


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
    counts_by_name = {
        rate.count: counts[..., rate_index] for rate_index, rate in enumerate(RATE_TABLE.values())
    }
    rate_sizes = np.empty_like(counts)
    for rate_index, rate in enumerate(RATE_TABLE.values()):
        rate_sizes[..., rate_index] = rate.of(counts_by_name, labels)
    return rate_sizes


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
    relevance = _relevance_table(relevant, "relevant")
    return float((relevance[:, :k] > 0).any(axis=1).mean()) if len(relevance) else float("nan")


def _relevance_table(relevance: ArrayLike, argument_name: str) -> CellCounts:
    """Relevance of hits, [Q, K], once none is missing."""
    relevance_array = plain_array(relevance, argument_name)
    if relevance_array.dtype.kind == "f":
        check_present(
            relevance_array, argument_name, "write 0 or False for a hit that is not relevant"
        )
    return relevance_array


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
    relevant, n_relevant = _relevance_table(relevant, "relevant"), np.asarray(n_relevant)
    if (relevant.sum(axis=1) > n_relevant).any():
        msg = "relevant must not hold more hits than n_relevant; count a document once."
        raise ValueError(msg)
    n_ranks = min(k, relevant.shape[1])
    rank_discounts = 1.0 / np.log2(np.arange(2, k + 2))
    gains = (relevant[:, :n_ranks] * rank_discounts[:n_ranks]).sum(axis=1)
    ideal_gains = np.cumsum(rank_discounts)[np.clip(n_relevant, 1, k) - 1]
    has_relevant = n_relevant > 0
    return float((gains / ideal_gains)[has_relevant].mean()) if has_relevant.any() else float("nan")


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
    top_grades, best_grades = (
        _relevance_table(grades, "grades")[:, :k],
        _relevance_table(ideal, "ideal")[:, :k],
    )
    rank_discounts = 1.0 / np.log2(np.arange(2, max(top_grades.shape[1], best_grades.shape[1]) + 2))
    reached_gains, reachable_gains = (
        (grade_rows * rank_discounts[: grade_rows.shape[1]]).sum(axis=1)
        for grade_rows in (top_grades, best_grades)
    )
    if (reached_gains > reachable_gains * (1.0 + 1e-9)).any():
        msg = "hits must not have more grades than the documents there are; count a document once."
        raise ValueError(msg)
    with np.errstate(invalid="ignore"):
        return np.where(reachable_gains > 0.0, reached_gains / reachable_gains, np.nan)


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
    settled_rates = [
        _paired_rates(*cell_pair, level, weights) for cell_pair in settled_pairs(first, second)
    ]
    first_cells, second_cells = (
        np.where(cells >= PLAIN_CELLS, WRONG_CELL, cells) for cells in (first, second)
    )
    return _paired_rates(first_cells, second_cells, level, weights)._replace(
        low=np.fmin.reduce([side_rates.low for side_rates in settled_rates]),
        high=np.fmax.reduce([side_rates.high for side_rates in settled_rates]),
    )


def _paired_rates(
    first: Cells,
    second: Cells,
    level: float,
    weights: FloatArray | None,
) -> PairedRates:
    """`paired_rates` of cases none of which is undecided."""
    each_cell = np.eye(N_CELLS, dtype=np.int64)
    counted = rate_counts(each_cell)  # of a case of each cell
    in_denominator = denominators(counted, label_counts(each_cell))
    pair_counts, pair_weights, rate_sums, rate_sizes = _paired_counts(
        first, second, weights, counted, in_denominator
    )
    policy_weights = np.stack([pair_weights.sum(axis=1), pair_weights.sum(axis=0)])
    policy_counts = np.stack([pair_counts.sum(axis=1), pair_counts.sum(axis=0)])
    with np.errstate(invalid="ignore", divide="ignore"):
        policy_rates = rate_sums / rate_sizes
        # what a case of each cell moves its policy's rate by: (counted - rate) where it is in the
        # denominator
        rate_moves = (counted - policy_rates[:, None] * in_denominator) / rate_sizes[:, None]
        spreads = np.sqrt(np.einsum("pc,pcr->pr", policy_weights, rate_moves**2))
        covariance = np.einsum("ab,ar,br->r", pair_weights, rate_moves[0], rate_moves[1])
        correlation = np.nan_to_num(covariance / (spreads[0] * spreads[1]))
    # MOVER: the arms of the two exact intervals are added like correlated standard errors
    lower_bounds, upper_bounds = (
        np.asarray(interval_end) for interval_end in clopper_pearson(rate_sums, rate_sizes, level)
    )
    difference = policy_rates[1] - policy_rates[0]

    def reach(first_reach: FloatArray, second_reach: FloatArray) -> FloatArray:
        return np.sqrt(
            np.maximum(
                first_reach**2 + second_reach**2 - 2.0 * correlation * first_reach * second_reach,
                0.0,
            )
        )

    reach_below = reach(policy_rates[1] - lower_bounds[1], upper_bounds[0] - policy_rates[0])
    reach_above = reach(upper_bounds[1] - policy_rates[1], policy_rates[0] - lower_bounds[0])
    count_differences = counted[:, None] - counted
    is_always_same = (
        np.einsum(
            "ab,abr->r",
            pair_weights,
            (count_differences != 0) | (in_denominator[:, None] != in_denominator),
        )
        == 0
    )
    # Where no case tells the policies apart the arms would be 0: then they are as wide as the share
    # of such cases that may exist without being among these.
    unseen_share = 1.0 - ((1.0 - level) / 2.0) ** (1.0 / np.maximum(rate_sizes.min(axis=0), 1))
    reach_below, reach_above = (
        np.where(is_always_same & ~np.isnan(difference), unseen_share, reach_width)
        for reach_width in (reach_below, reach_above)
    )
    return PairedRates(
        k=policy_counts @ counted,
        n=policy_counts @ in_denominator,
        difference=difference,
        low=np.maximum(difference - reach_below, -1.0),
        high=np.minimum(difference + reach_above, 1.0),
        only_first=np.einsum("ab,abr->r", pair_counts, count_differences > 0),
        only_second=np.einsum("ab,abr->r", pair_counts, count_differences < 0),
        rate=policy_rates,
    )


def _paired_counts(
    first: Cells,
    second: Cells,
    weights: FloatArray | None,
    counted: IntArray,
    in_denominator: IntArray,
) -> tuple[CellCounts, CellCounts, CellCounts, CellCounts]:
    """Cases by pair of cells, and by squared weight, [20, 20]; count and size of each rate.

    Counts and sizes, [2, rates] each, are those of as many independent cases as a rate is worth.
    """
    pair_codes = first.astype(np.int64) * N_CELLS + second
    pair_counts, squared_weights, weight_sums = (
        np.bincount(pair_codes, pair_weights, minlength=N_CELLS**2).reshape(N_CELLS, N_CELLS)
        for pair_weights in (None, None if weights is None else weights**2, weights)
    )
    rate_sums, rate_sizes, squared_sizes = (
        np.stack([pair_table.sum(axis=1), pair_table.sum(axis=0)]) @ cell_table
        for pair_table, cell_table in (
            (weight_sums, counted),
            (weight_sums, in_denominator),
            (squared_weights, in_denominator),
        )
    )
    if weights is not None:
        effective_share = np.divide(
            rate_sizes, squared_sizes, out=np.ones_like(rate_sizes), where=squared_sizes > 0.0
        )
        rate_sums, rate_sizes = rate_sums * effective_share, rate_sizes * effective_share
    return pair_counts, squared_weights, rate_sums, rate_sizes


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
        return Weighed(*(settled_cells(cell_counts, cell) for cell_counts in self))


def effective_counts(weighed: Weighed) -> tuple[FloatArray, FloatArray]:
    """Count and cases of each rate, [..., rates] each, of as many independent cases as it is worth.

    Of weights that are all 1 these are the counts themselves.

    Args:
      weighed: cases by cell with weights, [..., 20] each.

    Source: effective number of cases, Kish 1965.
    """
    weighed_counts = rate_counts(weighed.weights)
    weighed_sizes = denominators(weighed_counts, label_counts(weighed.weights))
    squared_sizes = denominators(rate_counts(weighed.squares), label_counts(weighed.squares))
    effective_share = np.divide(
        weighed_sizes, squared_sizes, out=np.ones_like(weighed_sizes), where=squared_sizes > 0.0
    )
    return weighed_counts * effective_share, weighed_sizes * effective_share


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
    counted, labels = rate_counts(cells), label_counts(cells)
    rate_values, rate_sizes = rates(counted, labels), denominators(counted, labels)
    settled_tables = [
        settled_cells(cells, settled_cell) for settled_cell in (RIGHT_CELL, WRONG_CELL)
    ]
    interval_counts = [(rate_counts(column_values), rate_sizes) for column_values in settled_tables]
    if weighed:
        mix_rates = rates(rate_counts(weighed[0].weights), label_counts(weighed[0].weights))
        # a rate within one label is the same in every mix, also where the label has no share
        is_within_label = np.array(
            [rate.share_of in WITHIN_LABEL_SHARES for rate in RATE_TABLE.values()]
        )
        is_unchanged = is_within_label & np.isnan(mix_rates)
        rate_values = np.where(is_unchanged, rate_values, mix_rates)
        interval_counts = [
            (
                np.where(is_unchanged, counted, effective_counted),
                np.where(is_unchanged, rate_sizes, effective_sizes),
            )
            for weighed_cells in weighed
            for settled_cell in (RIGHT_CELL, WRONG_CELL)
            for effective_counted, effective_sizes in (
                effective_counts(weighed_cells.settled(settled_cell)),
            )
        ]
    columns: dict[str, Any] = {"undecided": cells[..., PLAIN_CELLS:].sum(axis=-1)}
    for rate_index, rate_name in enumerate(RATES):
        for suffix, column_values in (("", rate_values), ("_k", counted), ("_n", rate_sizes)):
            columns[rate_name + suffix] = column_values[..., rate_index]
        if level is not None:
            interval_ends = [
                clopper_pearson(
                    effective_counted[..., rate_index], effective_sizes[..., rate_index], level
                )
                for effective_counted, effective_sizes in interval_counts
            ]
            columns[f"{rate_name}_low"], columns[f"{rate_name}_high"] = hull(*interval_ends)
    return columns
