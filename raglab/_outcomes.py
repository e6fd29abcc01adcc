"""Three-way outcomes: label by decision in counts, with intervals, priced by a cost matrix, and cost by threshold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab._binomial import Interval, clopper_pearson
from raglab._selective import levels
from raglab.values import Floats, Ints, Status

SHAPE = (len(Status), len(Status))


def outcome_table(label: ArrayLike, status: ArrayLike) -> NDArray[np.int64]:
    """Cases by label (rows) and decision (columns), [3, 3], both in the order of `Status`; no cases are all zeros.

    An answer from the wrong sources is counted where its decision stands, at (ok, ok): whether it is right is a
    matter of its evidence, not of its outcome. `expected_cost` takes how many there are.

    Args:
      label, status: codes of `Status`, [Q] each.

    Raises:
      ValueError: shapes that differ, or a code that is none of `Status`.

    Source: rule S0.1.

    Example:
      >>> outcome_table([Status.ok, Status.ok, Status.refuse], [Status.ok, Status.refuse, Status.refuse])
      array([[1, 1, 0],
             [0, 1, 0],
             [0, 0, 0]])
    """
    rows, columns = _codes("label", label), _codes("status", status)
    if rows.shape != columns.shape:
        msg = f"label and status must be [Q] each, got shapes {rows.shape} and {columns.shape}; give one each a case."
        raise ValueError(msg)
    return np.bincount(rows * len(Status) + columns, minlength=len(Status) ** 2).reshape(SHAPE)


def _codes(name: str, codes: ArrayLike) -> NDArray[np.int64]:
    found = np.asarray(codes)
    if not found.size and found.ndim == 1:
        return found.astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= len(Status):
        msg = f"{name} must be codes of Status, 0 to 2, [Q], got {np.unique(found)[:5]}; Status[name] gives a code."
        raise ValueError(msg)
    return found.astype(np.int64)


def outcome_intervals(counts: NDArray[np.int64], level: float = 0.95) -> Interval:
    """Exact interval of each cell's share of its row, [..., 3, 3]; NaN in a row without cases.

    Args:
      counts: of `outcome_table`, [..., 3, 3]. level: in (0, 1), of each cell by itself.

    Raises:
      ValueError: level outside (0, 1), or counts of another shape.

    Source: Clopper and Pearson 1934.

    Example:
      >>> outcome_intervals(np.array([[8, 2, 0], [0, 5, 0], [0, 0, 0]])).high[0].round(2)
      array([0.97, 0.56, 0.31])
    """
    table = _table("counts", counts)
    return clopper_pearson(table, table.sum(axis=-1, keepdims=True), level)


def expected_cost(counts: NDArray[np.int64], cost: ArrayLike, wrong: Ints = 0) -> Floats:
    """Mean cost of a case, in the unit of `cost`, [...]; NaN where there are no cases.

    Args:
      counts: of `outcome_table`, [..., 3, 3]. cost: by label (rows) and decision (columns), [3, 3].
      wrong: how many of the answers at (ok, ok) rest on the wrong sources, [...]. Each costs as much as an answer to a
        question that should be refused, `cost[1, 0]`: whoever reads it is misled alike.

    Raises:
      ValueError: counts or cost of another shape, a cost that is not finite, or more wrong than answered.

    Example: a wrong answer costs 1, refusing an answerable question 0.2, an idle question back 0.05.
      >>> cost = [[0.0, 0.2, 0.05], [1.0, 0.0, 0.05], [1.0, 0.2, 0.0]]
      >>> counts = np.array([[6, 1, 0], [1, 2, 0], [0, 0, 0]])
      >>> round(float(expected_cost(counts, cost)), 3), round(float(expected_cost(counts, cost, wrong=2)), 3)
      (0.12, 0.32)
    """
    table, price = _table("counts", counts), _table("cost", cost)
    if price.ndim != 2 or not np.isfinite(price).all():
        msg = f"cost must be a [3, 3] matrix of finite numbers, got {price.tolist()}; rows are labels."
        raise ValueError(msg)
    misled = np.asarray(wrong)
    if np.any((misled < 0) | (misled > table[..., 0, 0])):
        msg = (
            "wrong must be between 0 and the answers at (ok, ok); other wrong answers stand in the rows below already."
        )
        raise ValueError(msg)
    paid = (table * price).sum(axis=(-2, -1)) + misled * (price[Status.refuse, Status.ok] - price[0, 0])
    with np.errstate(invalid="ignore", divide="ignore"):
        return paid / table.sum(axis=(-2, -1))


def _table(name: str, found: ArrayLike) -> NDArray[Any]:
    table = np.asarray(found)
    if table.shape[-2:] != SHAPE:
        msg = f"{name} must be [..., 3, 3], label by decision, got shape {table.shape}; see outcome_table."
        raise ValueError(msg)
    return table


class CostCurve(NamedTuple):
    """Lowest expected cost of a case at each cost ratio, beside answering all and refusing all, [N] each.

    ratio: cost of refusing a case that would be answered right, in wrong answers. cost: lowest over the thresholds.
    at: its threshold, infinite where it is to refuse all; coverage: share it answers. answer_all: cost of answering
    whatever has a confidence; refuse_all: of refusing everything.
    """

    ratio: NDArray[np.float64]
    cost: NDArray[np.float64]
    at: NDArray[np.float64]
    coverage: NDArray[np.float64]
    answer_all: NDArray[np.float64]
    refuse_all: NDArray[np.float64]


def cost_curve(correct: ArrayLike, confidence: ArrayLike, ratios: ArrayLike) -> CostCurve:
    """Expected-cost curve: a wrong answer costs 1, refusing a case that would be right costs `ratio`, all else 0.

    Of thresholds that cost the same the highest is taken, which answers least. A NaN is refused by every threshold.
    The cost is that of the threshold chosen on these very cases, so it flatters.

    Args:
      correct: boolean or 0 and 1, [Q]. confidence: [Q]. ratios: each in (0, 1), [N].

    Raises:
      ValueError: a ratio outside (0, 1), or as for `risk_coverage`.

    Source: Chow 1970; Drummond and Holte 2006.

    Example:
      >>> found = cost_curve([True, True, False], [0.9, 0.6, 0.3], [0.5])
      >>> found.cost, found.at, found.answer_all.round(2), found.refuse_all.round(2)
      (array([0.]), array([0.6]), array([0.33]), array([0.33]))
    """
    ratio = np.asarray(ratios, dtype=np.float64)
    if ratio.ndim != 1 or not ((ratio > 0.0) & (ratio < 1.0)).all():
        msg = f"ratios must be in (0, 1), [N], got {ratio.tolist()}; 0.2 weighs 5 false refusals as 1 wrong answer."
        raise ValueError(msg)
    at, size, wrong = levels(correct, confidence)
    total = int(size.sum())
    answered = np.append(0, size[:-1].cumsum())
    errors = np.append(0, wrong[:-1].cumsum())
    missed = total - int(wrong.sum()) - (answered - errors)
    best = np.array([int(np.argmin(errors + one * missed)) for one in ratio], dtype=np.int64)
    return CostCurve(
        ratio,
        (errors[best] + ratio * missed[best]) / total,
        np.append(np.inf, at[:-1])[best],
        answered[best] / total,
        (errors[-1] + ratio * missed[-1]) / total,
        ratio * missed[0] / total,
    )
