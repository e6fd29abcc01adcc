"""Monitoring: whether a promise is kept on labelled traffic, at any time.

Rates from a judge and a few people.
"""

POINTS: dict[str, str] = {
    "monitor": "raglab.extensions.monitoring.monitoring:monitor",
    "is_drawn": "raglab.extensions.monitoring.steps:is_drawn",
    "judged_rates": "raglab.extensions.monitoring.judge_intervals:judged_rates",
}
