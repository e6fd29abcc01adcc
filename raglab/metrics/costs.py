"""Costs (algebra): what each outcome of a case costs by its label, mean decision cost (S6.7)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.plain_arrays import is_number
from raglab.metrics.intervals import FloatArray, Interval, check_level, clopper_pearson, t_quantile
from raglab.values import Floats, Status

OUTCOMES = ("answered_right", "answered_wrong", "refused", "asked_right", "asked_wrong")
ASKED = "asked"  # short for both outcomes of asking
PLACES = {outcome: [place] for place, outcome in enumerate(OUTCOMES)} | {ASKED: [3, 4]}
LABELS = tuple(status.name for status in Status)
PLAIN_CELLS = len(Status) * len(Status) * 2  # decision, label, whether the contract is met
# Answered where the label is ok, and nobody can tell whether the answer is right: with the first
# such answer of the case, so that two policies share it, and with another one.
UNDECIDED_CELLS = (PLAIN_CELLS, PLAIN_CELLS + 1)
N_CELLS = PLAIN_CELLS + len(UNDECIDED_CELLS)
WRONG_CELL, RIGHT_CELL = 0, 1  # of which an undecided one is one

SAME = 1e-9  # spreads below this share of the highest cost are rounding

Costs = Mapping[str, Mapping[str, float]]
Cells = NDArray[np.integer[Any]]  # cell of each case, or its label
CellCounts = NDArray[Any]  # cases by cell or by label, whole numbers or weights


# Decision and label of each cell, [20], and whether the expected sources are there; what is
# undecided costs what a wrong one does.
STATUS_OF_CELL, LABEL_OF_CELL, _FOUND_OF_CELL = np.array(
    [*product(Status, Status, (False, True)), *[(Status.ok, Status.ok, False)] * 2]
).T.copy()
# Outcome of each cell, [20]; right is what passes its contract (rule S6.3).
OUTCOME_OF_CELL = np.where(
    Status.refuse == STATUS_OF_CELL,
    OUTCOMES.index("refused"),
    np.where(Status.ok == STATUS_OF_CELL, 0, OUTCOMES.index("asked_right"))
    + ~((STATUS_OF_CELL == LABEL_OF_CELL) & (_FOUND_OF_CELL == 1)),
)
DEFAULT_COSTS = np.ones((len(LABELS), len(OUTCOMES)))
DEFAULT_COSTS[[Status.ok, Status.refuse, Status.ambiguous], [0, 2, 3]] = 0.0
DEFAULT_COSTS.flags.writeable = False
# Whether the expected sources are there says something of a right answer or question only: one cell
# for the rest.
_EVERY = np.arange(N_CELLS)
DISTINCT_CELL = np.where(
    np.isin(OUTCOME_OF_CELL[_EVERY | 1], (0, 3)) | (_EVERY >= PLAIN_CELLS), _EVERY, _EVERY & ~1
)


def cost_matrix(costs: Costs | None = None) -> FloatArray:
    """Cost of a case by label (rows, as `Status`) and outcome (columns, as `OUTCOMES`), [3, 5].

    Args:
      costs: label -> outcome -> cost; `asked` sets both outcomes of asking. What is left out keeps
        the default: 0 where the contract of the case holds, else 1.

    Raises:
      ValueError: an unknown label or outcome, an outcome where a label belongs, or a cost that is
        negative or not finite.

    Source: rule S6.7.

    Example: a wrong answer to what should be refused is worth ten failures.
      >>> cost_matrix({"refuse": {"answered_wrong": 10}})[1].tolist()
      [1.0, 10.0, 0.0, 1.0, 1.0]
    """
    matrix = DEFAULT_COSTS.copy()
    rows = {} if costs is None else costs
    if not isinstance(rows, Mapping):
        # one kind of error for what a goal may not be
        raise ValueError(_misplaced("costs", costs))  # noqa: TRY004
    for label, row in rows.items():
        if label not in (*LABELS, *PLACES):
            msg = f"a label of costs must be one of {', '.join(LABELS)}, got {label!r}."
            raise ValueError(msg)
        if label in PLACES or not isinstance(row, Mapping):
            raise ValueError(_misplaced(f"costs[{label!r}]", row))
        # `asked` comes first, so that a cost stated for one of its two outcomes holds whatever the
        # order.
        for outcome, cost in sorted(row.items(), key=lambda pair: pair[0] != ASKED):
            if outcome not in PLACES:
                every = ", ".join(OUTCOMES)
                msg = f"an outcome of costs must be one of {every} or {ASKED}, got {outcome!r}."
                raise ValueError(msg)
            if not is_number(cost) or not 0.0 <= cost < inf:
                msg = (
                    f"a cost must be a finite number of at least 0, got {label}.{outcome}={cost!r}."
                )
                raise ValueError(msg)
            matrix[LABELS.index(label), PLACES[outcome]] = cost
    return matrix


def _misplaced(where: str, value: object) -> str:
    return (
        f"costs must map label -> outcome -> cost, got {value!r} at {where}; write "
        f"costs={{label: {{'answered_wrong': 5}} for label in {LABELS}}}, or some of the labels."
    )


def stated_costs(matrix: FloatArray) -> dict[str, dict[str, float]]:
    """Entries of a cost matrix that differ from the default: label -> outcome -> cost.

    Args:
      matrix: by label and outcome, [3, 5].

    Example:
      >>> stated_costs(cost_matrix({"refuse": {"answered_wrong": 10}}))
      {'refuse': {'answered_wrong': 10.0}}
    """
    stated: dict[str, dict[str, float]] = {}
    for row, column in np.argwhere(matrix != DEFAULT_COSTS):
        stated.setdefault(LABELS[row], {})[OUTCOMES[column]] = float(matrix[row, column])
    return stated


def cell_costs(costs: Costs | FloatArray | None = None) -> FloatArray:
    """Cost of each cell, [20]: decision, label, expected sources found; then the undecided.

    Args:
      costs: see `cost_matrix`.
    """
    matrix = costs if isinstance(costs, np.ndarray) else cost_matrix(costs)
    return np.asarray(matrix[LABEL_OF_CELL, OUTCOME_OF_CELL])


def expected_cost(cells: CellCounts, costs: Costs | FloatArray | None = None) -> Floats:
    """Mean cost of a case, [...]; NaN where there are no cases.

    Args:
      cells: cases by decision, label (both in the order of `Status`) and whether the expected
        sources were found, [..., 3, 3, 2] or [..., 18], or with the undecided ones [..., 20], as
        `replay.tally` counts them; the undecided count as wrong.
      costs: see `cost_matrix`.

    Raises:
      ValueError: cells of another shape, or as for `cost_matrix`.

    Source: rule S6.7. With the default costs it is 1 - `pass_rate`, to the bit.

    Example: of ten questions, one is refused that should be answered.
      >>> cells = np.zeros((3, 3, 2), dtype=int)
      >>> cells[0, 0, 1], cells[1, 0, 1] = 9, 1
      >>> (
      ...     round(float(expected_cost(cells)), 3),
      ...     round(float(expected_cost(cells, {"ok": {"refused": 0.5}})), 3),
      ... )
      (0.1, 0.05)
    """
    table = cell_table(cells)
    # What is saved against a cost of 1 everywhere: with the default costs a sum of whole numbers,
    # so that nothing is rounded before 1 - pass_rate is.
    saved = table @ (1.0 - cell_costs(costs))
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1.0 - saved / table.sum(axis=-1)


def cell_table(cells: CellCounts) -> CellCounts:
    """Counts of cells as [..., 20].

    Args:
      cells: of one of the shapes of `expected_cost`.
    """
    table = np.asarray(cells)
    if table.shape[-3:] == (len(Status), len(Status), 2):
        table = table.reshape(*table.shape[:-3], PLAIN_CELLS)
    if table.shape[-1:] == (PLAIN_CELLS,):
        table = np.concatenate([table, np.zeros_like(table[..., :2])], axis=-1)
    if table.shape[-1:] != (N_CELLS,):
        msg = (
            f"cells must be [..., 3, 3, 2], [..., 18] or [..., {N_CELLS}], got shape {table.shape}."
        )
        raise ValueError(msg)
    return table


def settled_cells(cells: CellCounts, cell: int) -> CellCounts:
    """Counts in which the undecided answers are all right, or all wrong, [..., 20].

    Args:
      cells: cases by cell, [..., 20].
      cell: `RIGHT_CELL` or `WRONG_CELL`.

    Source: rule S6.3.
    """
    counts = cells.copy()
    counts[..., cell] += counts[..., PLAIN_CELLS:].sum(axis=-1)
    counts[..., PLAIN_CELLS:] = 0
    return counts


def hull(*intervals: Interval) -> Interval:
    """The interval from the least to the largest end of several."""
    lows, highs = map(np.array, zip(*intervals, strict=True))
    return Interval(np.fmin.reduce(lows), np.fmax.reduce(highs))


def cost_interval(
    cells: CellCounts, costs: Costs | FloatArray | None = None, level: float = 0.95
) -> Interval:
    """Confidence interval of the expected cost of a case, [...]; NaN where there are no cases.

    It reaches from where all undecided answers are right to where all are wrong.

    Exact (Clopper and Pearson) where every cost is nothing or one price, as by default; else
    Student's t of the mean, within the lowest and the highest cost, which is a large-sample one.
    Where all cases cost the same, that interval would have no width; it is then as wide as a cost
    that no case had may be frequent.

    Args:
      cells: as for `expected_cost`.
      costs: as for `expected_cost`.
      level: in (0, 1).

    Raises:
      ValueError: level outside (0, 1), or as for `expected_cost`.

    Source: rule S6.7; Clopper and Pearson 1934; Student 1908.

    Example: one failed contract of ten.
      >>> cells = np.zeros((3, 3, 2), dtype=int)
      >>> cells[0, 0, 1], cells[1, 0, 1] = 9, 1
      >>> [round(float(end), 3) for end in cost_interval(cells)]
      [0.003, 0.445]
    """
    table, price = cell_table(cells), cell_costs(costs)
    sides = (settled_cells(table, cell) for cell in (RIGHT_CELL, WRONG_CELL))
    return hull(*(_cost_interval(side, price, level) for side in sides))


def _cost_interval(table: CellCounts, price: FloatArray, level: float) -> Interval:
    """Interval of the cost of cases none of which is undecided."""
    from scipy.special import stdtrit

    tail, n = (1.0 - check_level(level)) / 2.0, table.sum(axis=-1)
    most, least = float(price.max()), float(price.min())
    if not ((price > 0.0) & (price < most)).any():
        low, high = clopper_pearson(table @ (price > 0.0).astype(np.int64), n, level)
        return Interval(low * most, high * most)
    size = np.where(n > 0, n, np.nan).astype(np.float64)
    mean = table @ price / size
    spread = np.sqrt(
        np.maximum(table @ price**2 / size - mean**2, 0.0) / np.maximum(size - 1.0, 1.0)
    )
    reach = stdtrit(np.maximum(size - 1.0, 1.0), 1.0 - tail) * spread
    unseen = 1.0 - tail ** (1.0 / size)  # share up to which what no case showed may be there
    flat = spread <= SAME * most
    low = np.where(flat, mean - (mean - least) * unseen, np.maximum(mean - reach, least))
    high = np.where(flat, mean + (most - mean) * unseen, np.minimum(mean + reach, most))
    return Interval(low, high)


def _t_end(values: FloatArray, sign: float, level: float) -> float:
    """Lower (-1) or upper (1) end of Student's t interval of a mean."""
    reach = sign * t_quantile(len(values) - 1, level) * values.std(ddof=1)
    return float(values.mean() + reach / np.sqrt(len(values)))


def interval_guard(costs: Costs | FloatArray | None = None) -> float:
    """Difference of the one case more of `paired_cost`.

    The largest of two costs where failures have several prices.

    Args:
      costs: see `cost_matrix`.

    Example:
      >>> interval_guard(), interval_guard({"refuse": {"answered_wrong": 10}})
      (0.0, 10.0)
    """
    price = cell_costs(costs)
    graded = bool(((price > 0.0) & (price < price.max())).any())
    return float(price.max() - price.min()) if graded else 0.0


class PairedCost(NamedTuple):
    """Expected-cost difference per case of two policies, second less first, interval, p-value.

    Attributes:
      difference: second less first.
      low: lower end of the interval.
      high: upper end of the interval.
      p: two-sided, of the test that the interval inverts: at level 0.95 it is below 0.05 where the
        interval excludes 0.
    """

    difference: float
    low: float
    high: float
    p: float


def paired_cost(
    first: Cells,
    second: Cells,
    costs: Costs | FloatArray | None = None,
    level: float = 0.95,
    *,
    weights: FloatArray | None = None,
) -> PairedCost:
    """Difference of the expected cost on the same cases, by the difference of each (Student's t).

    Where failures have several prices, a rare and dear one may be missing among the cases. The
    lower end is then taken with one case more in which the difference is the worst that costs
    allow, the upper end with one in which it is the best, and p on the side of the estimate.

    An undecided answer counts against a difference on either side: the interval reaches from where
    those of the first policy are wrong and those of the second right to the reverse, and p is the
    larger one.

    Where every case has the same difference there is no spread for a t interval. The interval then
    covers how often cases with another difference may occur: a share of up to 1 - tail^(1/n), each
    at worst the largest difference of two costs. Where costs are 0 and 1 and every case differs,
    that is the exact binomial interval, and p that of the sign test.

    Args:
      first: cell of each case under the first policy, [Q].
      second: cell of each case under the second policy, [Q].
      costs: see `cost_matrix`.
      level: in (0, 1).
      weights: of each case, mean 1, [Q], in a traffic mix (rule S6.15); 1 where not given.

    Raises:
      ValueError: cells of other cases, none at all, or a level outside (0, 1).

    Source: rules S6.7, S6.11; Student 1908; Clopper and Pearson 1934.

    Example: of ten cases, one more fails.
      >>> found = paired_cost(np.full(10, 1), np.array([1] * 9 + [6]))
      >>> [round(value, 3) for value in found]
      [0.1, -0.126, 0.326, 0.343]
    """
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        shapes = f"{first.shape} and {second.shape}"
        msg = f"first and second must be the cells of the same cases, [Q] each, got {shapes}."
        raise ValueError(msg)
    price, guard = cell_costs(costs), interval_guard(costs)
    by = np.ones(len(first)) if weights is None else weights
    sides = [_paired_cost(*pair, price, guard, level, by) for pair in settled_pairs(first, second)]
    low, high = min(side.low for side in sides), max(side.high for side in sides)
    difference = float((by * (price[second] - price[first])).mean())
    p = [side.p for side in sides]
    return PairedCost(difference, low, high, max(p) if low <= 0.0 <= high else min(p))


def settled_pairs(first: Cells, second: Cells) -> list[tuple[CellCounts, CellCounts]]:
    """Cells of two policies where the undecided answers of one are right and the other's wrong.

    An undecided answer that both give is the same under both. One pair where none is undecided.
    """
    is_same = (first == second) & (first == PLAIN_CELLS)
    first, second = (np.where(is_same, WRONG_CELL, cells) for cells in (first, second))
    open_cells = [cells >= PLAIN_CELLS for cells in (first, second)]
    if not (open_cells[0] | open_cells[1]).any():
        return [(first, second)]
    return [
        (np.where(open_cells[0], a, first), np.where(open_cells[1], b, second))
        for a, b in ((RIGHT_CELL, WRONG_CELL), (WRONG_CELL, RIGHT_CELL))
    ]


def _paired_cost(
    first: Cells,
    second: Cells,
    price: FloatArray,
    guard: float,
    level: float,
    weights: FloatArray,
) -> PairedCost:
    """`paired_cost` of cases none of which is undecided."""
    from scipy.special import stdtr

    tail, n = (1.0 - check_level(level)) / 2.0, len(first)
    gain, scale = weights * (price[second] - price[first]), float(weights.max())
    mean, most, guard = float(gain.mean()), scale * float(price.max() - price.min()), scale * guard
    error = float(gain.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    if error > SAME * most:
        # Where failures have several prices, one case more stands for a dear one that these cases
        # may not have shown.
        below, above = (np.append(gain, end) if guard else gain for end in (-guard, guard))
        low, high = _t_end(below, -1.0, level), _t_end(above, 1.0, level)
        against = below if mean > 0.0 else -above
        t = float(against.mean() / (against.std(ddof=1) / np.sqrt(len(against))))
        p = min(1.0, float(2.0 * stdtr(len(against) - 1, -t)))
        return PairedCost(mean, min(low, mean), max(high, mean), p)
    unseen = 1.0 - tail ** (1.0 / n)  # share up to which cases that differ otherwise may be there
    p = min(1.0, 2.0 * (most / (abs(mean) + most)) ** n) if most else 1.0
    return PairedCost(mean, mean - (most + mean) * unseen, mean + (most - mean) * unseen, p)
