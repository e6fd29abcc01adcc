"""Rates of decisions against labels, each with its counts and an interval; ranking measures; paired tests.

A rate is never bare: k, n, and the exact binomial interval travel with it. 0 of 0 is NaN and meets no
target (rule S6.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab._answers import answer_recall, exact_match, token_f1
from raglab._bands import Difference, aurc_difference, auroc_interval, risk_band
from raglab._binomial import (
    Interval,
    Paired,
    binomial_p,
    check_delta,
    clopper_pearson,
    mcnemar,
    paired,
    upper_bound,
)
from raglab._outcomes import CostCurve, cost_curve, expected_cost, outcome_intervals, outcome_table
from raglab._selective import (
    augrc,
    aurc,
    auroc,
    coverage_at_risk,
    eaurc,
    risk_at_coverage,
    risk_coverage,
)
from raglab.values import Status

__all__ = [
    "COUNTS",
    "OBJECTIVES",
    "RATES",
    "TARGETS",
    "CostCurve",
    "Difference",
    "Interval",
    "Paired",
    "answer_recall",
    "augrc",
    "aurc",
    "aurc_difference",
    "auroc",
    "auroc_interval",
    "binomial_p",
    "check_delta",
    "clopper_pearson",
    "contributions",
    "cost_curve",
    "coverage_at_risk",
    "denominators",
    "eaurc",
    "exact_match",
    "expected_cost",
    "hit_rate",
    "mcnemar",
    "ndcg",
    "outcome_intervals",
    "outcome_table",
    "paired",
    "rate_columns",
    "rates",
    "risk_at_coverage",
    "risk_band",
    "risk_coverage",
    "token_f1",
    "upper_bound",
]

RATES = ("false_refusal_rate", "hallucination_rate", "missed_ambiguity_rate", "over_ask_rate", "coverage", "pass_rate")
OBJECTIVES = RATES[:4]
TARGETS: Mapping[str, float] = {"false_refusal_rate": 0.10, "hallucination_rate": 0.01}
COUNTS = ("refused_ok", "wrong", "missed_ambiguity", "over_ask", "answered", "passed")


def contributions(status: NDArray[np.int8]) -> NDArray[np.int64]:
    """What one decision adds to each of `COUNTS`, by outcome, label and whether the expected sources were found.

    Args:
      status: of each outcome, [O].

    Returns: int [O, 3, 2, 6].

    Source: rules S6.2, S6.3.

    Example:
      >>> table = contributions(np.array([Status.ok]))
      >>> dict(zip(COUNTS, table[0, Status.refuse, 1].tolist()))["wrong"]
      1
    """
    said = status[:, None, None]
    label = np.arange(3)[None, :, None]
    right = np.array([False, True])[None, None, :]
    ok, refuse, ambiguous = Status.ok, Status.refuse, Status.ambiguous
    rows = (
        (said == refuse) & (label == ok),
        (said == ok) & ((label != ok) | ~right),
        (said != ambiguous) & (label == ambiguous),
        (said == ambiguous) & (label != ambiguous),
        said == ok,
        (said == label) & (right | (label == refuse)),
    )
    shape = np.broadcast_shapes(*(np.shape(row) for row in rows))
    return np.stack([np.broadcast_to(row, shape) for row in rows], axis=-1).astype(np.int64)


def denominators(counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of how many each of `RATES` is a share, [..., 6].

    Args:
      counts: [..., 6]. labels: cases labelled ok, refuse, ambiguous, [3].
    """
    total = labels.sum()
    n = np.empty_like(counts)
    n[..., 0] = labels[Status.ok]
    n[..., 1] = counts[..., 4]
    n[..., 2] = labels[Status.ambiguous]
    n[..., 3] = total - labels[Status.ambiguous]
    n[..., 4] = total
    n[..., 5] = total
    return n


def rates(counts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """`RATES` of tallied decisions, [..., 6]; NaN where there is nothing to be a share of.

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
      relevant: hits in ranked order, [Q, K].
    """
    return float(relevant[:, :k].any(axis=1).mean()) if len(relevant) else float("nan")


def ndcg(relevant: NDArray[np.bool_], n_relevant: NDArray[np.int64], k: int = 10) -> float:
    """nDCG@k with binary gains, mean over queries that have a relevant document.

    Args:
      relevant: hits in ranked order, [Q, K]. n_relevant: relevant documents there are, [Q].

    Source: Järvelin and Kekäläinen 2002.

    Example:
      >>> ndcg(np.array([[False, True]]), np.array([1]))
      0.6309297535714575
    """
    if (relevant.sum(axis=1) > n_relevant).any():
        msg = "relevant must not hold more hits than n_relevant documents; count a document once, at its first hit."
        raise ValueError(msg)
    width = min(k, relevant.shape[1])
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    gain = (relevant[:, :width] * discount[:width]).sum(axis=1)
    ideal = np.cumsum(discount)[np.clip(n_relevant, 1, k) - 1]
    judged = n_relevant > 0
    return float((gain / ideal)[judged].mean()) if judged.any() else float("nan")


def rate_columns(counts: NDArray[np.int64], labels: NDArray[np.int64], level: float = 0.95) -> dict[str, Any]:
    """Columns of a table of rates: value, `_k`, `_n`, `_low` and `_high` of each of `RATES`, [P] each."""
    value, n = rates(counts, labels), denominators(counts, labels)
    columns: dict[str, Any] = {}
    for place, name in enumerate(RATES):
        low, high = clopper_pearson(counts[..., place], n[..., place], level)
        columns |= {
            name: value[..., place],
            f"{name}_k": counts[..., place],
            f"{name}_n": n[..., place],
            f"{name}_low": low,
            f"{name}_high": high,
        }
    return columns
