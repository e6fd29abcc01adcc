"""Costs (algebra): what each outcome of a case costs by its label, mean decision cost (S6.7)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import is_number
from raglab.metrics.intervals import Interval, check_level, clopper_pearson, t_quantile
from raglab.values import AnyArray, FloatArray, Floats, Status, WholeArray

OUTCOMES = ("answered_right", "answered_wrong", "refused", "asked_right", "asked_wrong")
ASKED = "asked"  # short for both outcomes of asking
OUTCOME_PLACES = {outcome: [place] for place, outcome in enumerate(OUTCOMES)} | {ASKED: [3, 4]}
LABELS = tuple(status.name for status in Status)
PLAIN_CELLS = len(Status) * len(Status) * 2  # decision, label, whether the contract is met
# Answered where the label is ok, and nobody can tell whether the answer is right: with the first
# such answer of the case, so that two policies share it, and with another one.
UNDECIDED_CELLS = (PLAIN_CELLS, PLAIN_CELLS + 1)
N_CELLS = PLAIN_CELLS + len(UNDECIDED_CELLS)
WRONG_CELL, RIGHT_CELL = 0, 1  # of which an undecided one is one

COST_ROUNDING = 1e-9  # spreads below this share of the highest cost are rounding

Costs = Mapping[str, Mapping[str, float]]
Cells = WholeArray  # cell of each case, or its label
CellCounts = AnyArray  # cases by cell or by label, whole numbers or weights


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
_EVERY_CELL = np.arange(N_CELLS)
DISTINCT_CELL = np.where(
    np.isin(OUTCOME_OF_CELL[_EVERY_CELL | 1], (0, 3)) | (_EVERY_CELL >= PLAIN_CELLS),
    _EVERY_CELL,
    _EVERY_CELL & ~1,
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
    label_costs = {} if costs is None else costs
    if not isinstance(label_costs, Mapping):
        # one kind of error for what a goal may not be
        raise ValueError(_misplaced("costs", costs))  # noqa: TRY004
    for label, outcome_costs in label_costs.items():
        if label not in (*LABELS, *OUTCOME_PLACES):
            msg = f"a label of costs must be one of {', '.join(LABELS)}, got {label!r}."
            raise ValueError(msg)
        if label in OUTCOME_PLACES or not isinstance(outcome_costs, Mapping):
            raise ValueError(_misplaced(f"costs[{label!r}]", outcome_costs))
        # `asked` comes first, so that a cost stated for one of its two outcomes holds whatever the
        # order.
        for outcome, cost in sorted(
            outcome_costs.items(), key=lambda cost_item: cost_item[0] != ASKED
        ):
            if outcome not in OUTCOME_PLACES:
                outcome_names = ", ".join(OUTCOMES)
                msg = (
                    f"an outcome of costs must be one of {outcome_names} or {ASKED}, got "
                    f"{outcome!r}."
                )
                raise ValueError(msg)
            if not is_number(cost) or not 0.0 <= cost < inf:
                msg = (
                    f"a cost must be a finite number of at least 0, got {label}.{outcome}={cost!r}."
                )
                raise ValueError(msg)
            matrix[LABELS.index(label), OUTCOME_PLACES[outcome]] = cost
    return matrix


def _misplaced(cost_path: str, misplaced_value: object) -> str:
    return (
        f"costs must map label -> outcome -> cost, got {misplaced_value!r} at {cost_path}; write "
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
    changed_costs: dict[str, dict[str, float]] = {}
    for label_index, outcome_index in np.argwhere(matrix != DEFAULT_COSTS):
        changed_costs.setdefault(LABELS[label_index], {})[OUTCOMES[outcome_index]] = float(
            matrix[label_index, outcome_index]
        )
    return changed_costs


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
    counts = cell_table(cells)
    # What is saved against a cost of 1 everywhere: with the default costs a sum of whole numbers,
    # so that nothing is rounded before 1 - pass_rate is.
    saved = counts @ (1.0 - cell_costs(costs))
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1.0 - saved / counts.sum(axis=-1)


def cell_table(cells: CellCounts) -> CellCounts:
    """Counts of cells as [..., 20].

    Args:
      cells: of one of the shapes of `expected_cost`.
    """
    cell_counts = np.asarray(cells)
    if cell_counts.shape[-3:] == (len(Status), len(Status), 2):
        cell_counts = cell_counts.reshape(*cell_counts.shape[:-3], PLAIN_CELLS)
    if cell_counts.shape[-1:] == (PLAIN_CELLS,):
        cell_counts = np.concatenate([cell_counts, np.zeros_like(cell_counts[..., :2])], axis=-1)
    if cell_counts.shape[-1:] != (N_CELLS,):
        msg = (
            f"cells must be [..., 3, 3, 2], [..., 18] or [..., {N_CELLS}], got shape "
            f"{cell_counts.shape}."
        )
        raise ValueError(msg)
    return cell_counts


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
    lower_ends, upper_ends = map(np.array, zip(*intervals, strict=True))
    return Interval(np.fmin.reduce(lower_ends), np.fmax.reduce(upper_ends))


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
    counts = cell_table(cells)
    cell_prices = cell_costs(costs)
    settled_tables = (
        settled_cells(counts, settled_cell) for settled_cell in (RIGHT_CELL, WRONG_CELL)
    )
    return hull(
        *(_cost_interval(settled_table, cell_prices, level) for settled_table in settled_tables)
    )


def _cost_interval(cell_counts: CellCounts, cell_prices: FloatArray, level: float) -> Interval:
    """Interval of the cost of cases none of which is undecided."""
    from scipy.special import stdtrit

    tail_mass = (1.0 - check_level(level)) / 2.0
    n_cases = cell_counts.sum(axis=-1)
    highest_cost = float(cell_prices.max())
    lowest_cost = float(cell_prices.min())
    if not ((cell_prices > 0.0) & (cell_prices < highest_cost)).any():
        lower_bound, upper_bound = clopper_pearson(
            cell_counts @ (cell_prices > 0.0).astype(np.int64), n_cases, level
        )
        return Interval(lower_bound * highest_cost, upper_bound * highest_cost)
    sample_size = np.where(n_cases > 0, n_cases, np.nan).astype(np.float64)
    mean_cost = cell_counts @ cell_prices / sample_size
    standard_error = np.sqrt(
        np.maximum(cell_counts @ cell_prices**2 / sample_size - mean_cost**2, 0.0)
        / np.maximum(sample_size - 1.0, 1.0)
    )
    half_width = stdtrit(np.maximum(sample_size - 1.0, 1.0), 1.0 - tail_mass) * standard_error
    # share up to which what no case showed may be there
    unseen_share = 1.0 - tail_mass ** (1.0 / sample_size)
    has_no_spread = standard_error <= COST_ROUNDING * highest_cost
    lower_bound = np.where(
        has_no_spread,
        mean_cost - (mean_cost - lowest_cost) * unseen_share,
        np.maximum(mean_cost - half_width, lowest_cost),
    )
    upper_bound = np.where(
        has_no_spread,
        mean_cost + (highest_cost - mean_cost) * unseen_share,
        np.minimum(mean_cost + half_width, highest_cost),
    )
    return Interval(lower_bound, upper_bound)


def _student_bound(sample_values: FloatArray, end_sign: float, level: float) -> float:
    """Lower (-1) or upper (1) end of Student's t interval of a mean."""
    distance = end_sign * t_quantile(len(sample_values) - 1, level) * sample_values.std(ddof=1)
    return float(sample_values.mean() + distance / np.sqrt(len(sample_values)))


def interval_guard(costs: Costs | FloatArray | None = None) -> float:
    """Difference of the one case more of `paired_cost`.

    The largest of two costs where failures have several prices.

    Args:
      costs: see `cost_matrix`.

    Example:
      >>> interval_guard(), interval_guard({"refuse": {"answered_wrong": 10}})
      (0.0, 10.0)
    """
    cell_prices = cell_costs(costs)
    has_several_prices = bool(((cell_prices > 0.0) & (cell_prices < cell_prices.max())).any())
    return float(cell_prices.max() - cell_prices.min()) if has_several_prices else 0.0


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
        shapes_text = f"{first.shape} and {second.shape}"
        msg = f"first and second must be the cells of the same cases, [Q] each, got {shapes_text}."
        raise ValueError(msg)
    cell_prices = cell_costs(costs)
    guard = interval_guard(costs)
    case_weights = np.ones(len(first)) if weights is None else weights
    settled_costs = [
        _paired_cost(*cell_pair, cell_prices, guard, level, case_weights)
        for cell_pair in settled_pairs(first, second)
    ]
    lower_bound = min(side_cost.low for side_cost in settled_costs)
    upper_bound = max(side_cost.high for side_cost in settled_costs)
    difference = float((case_weights * (cell_prices[second] - cell_prices[first])).mean())
    p_values = [side_cost.p for side_cost in settled_costs]
    return PairedCost(
        difference,
        lower_bound,
        upper_bound,
        max(p_values) if lower_bound <= 0.0 <= upper_bound else min(p_values),
    )


def settled_pairs(first: Cells, second: Cells) -> list[tuple[CellCounts, CellCounts]]:
    """Cells of two policies where the undecided answers of one are right and the other's wrong.

    An undecided answer that both give is the same under both. One pair where none is undecided.
    """
    is_shared_undecided = (first == second) & (first == PLAIN_CELLS)
    first, second = (
        np.where(is_shared_undecided, WRONG_CELL, policy_cells) for policy_cells in (first, second)
    )
    undecided = [policy_cells >= PLAIN_CELLS for policy_cells in (first, second)]
    if not (undecided[0] | undecided[1]).any():
        return [(first, second)]
    return [
        (np.where(undecided[0], first_cell, first), np.where(undecided[1], second_cell, second))
        for first_cell, second_cell in ((RIGHT_CELL, WRONG_CELL), (WRONG_CELL, RIGHT_CELL))
    ]


def _paired_cost(
    first: Cells,
    second: Cells,
    cell_prices: FloatArray,
    guard: float,
    level: float,
    weights: FloatArray,
) -> PairedCost:
    """`paired_cost` of cases none of which is undecided."""
    from scipy.special import stdtr

    tail_mass = (1.0 - check_level(level)) / 2.0
    n_cases = len(first)
    gains = weights * (cell_prices[second] - cell_prices[first])
    largest_weight = float(weights.max())
    mean_gain, largest_difference, guard = (
        float(gains.mean()),
        largest_weight * float(cell_prices.max() - cell_prices.min()),
        largest_weight * guard,
    )
    standard_error = float(gains.std(ddof=1) / np.sqrt(n_cases)) if n_cases > 1 else 0.0
    if standard_error > COST_ROUNDING * largest_difference:
        # Where failures have several prices, one case more stands for a dear one that these cases
        # may not have shown.
        gains_below, gains_above = (
            np.append(gains, extra_gain) if guard else gains for extra_gain in (-guard, guard)
        )
        lower_bound = _student_bound(gains_below, -1.0, level)
        upper_bound = _student_bound(gains_above, 1.0, level)
        adverse_gains = gains_below if mean_gain > 0.0 else -gains_above
        t_statistic = float(
            adverse_gains.mean() / (adverse_gains.std(ddof=1) / np.sqrt(len(adverse_gains)))
        )
        p_value = min(1.0, float(2.0 * stdtr(len(adverse_gains) - 1, -t_statistic)))
        return PairedCost(
            mean_gain, min(lower_bound, mean_gain), max(upper_bound, mean_gain), p_value
        )
    # share up to which cases that differ otherwise may be there
    unseen_share = 1.0 - tail_mass ** (1.0 / n_cases)
    p_value = (
        min(1.0, 2.0 * (largest_difference / (abs(mean_gain) + largest_difference)) ** n_cases)
        if largest_difference
        else 1.0
    )
    return PairedCost(
        mean_gain,
        mean_gain - (largest_difference + mean_gain) * unseen_share,
        mean_gain + (largest_difference - mean_gain) * unseen_share,
        p_value,
    )
