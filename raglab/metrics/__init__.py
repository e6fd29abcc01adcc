"""Rates of decisions against labels, each with its counts and an interval; ranking measures; paired tests.

A rate is never bare: k, n, and the exact binomial interval travel with it. 0 of 0 is NaN and meets no
target (rule S6.2).
"""

from __future__ import annotations

from raglab.metrics.decision_rates import (
    COUNTS,
    OBJECTIVES,
    RATE_TABLE,
    RATES,
    TARGETS,
    CostCurve,
    Rate,
    contributions,
    cost_curve,
    denominators,
    expected_cost,
    hit_rate,
    ndcg,
    outcome_intervals,
    outcome_table,
    rate_columns,
    rates,
)
from raglab.metrics.intervals import (
    Interval,
    Paired,
    binomial_p,
    check_delta,
    clopper_pearson,
    mcnemar,
    paired,
    upper_bound,
)
from raglab.metrics.selective import (
    Difference,
    augrc,
    aurc,
    aurc_difference,
    auroc,
    auroc_interval,
    coverage_at_risk,
    eaurc,
    risk_at_coverage,
    risk_band,
    risk_coverage,
)
from raglab.text import answer_recall, exact_match, token_f1

__all__ = [
    "COUNTS",
    "OBJECTIVES",
    "RATES",
    "RATE_TABLE",
    "TARGETS",
    "CostCurve",
    "Difference",
    "Interval",
    "Paired",
    "Rate",
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
