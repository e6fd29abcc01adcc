"""The search space of a study: which thresholds and switches, over which range of observed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raglab._steps import breakpoints
from raglab.policy import thresholds
from raglab.replay import SWEPT, tables_of
from raglab.store.policies import Policy
from raglab.values import Trace

SWITCHES = (
    "coverage.enabled",
    "similarity.enabled",
    "confidence.enabled",
    "resolver.overview",
    "resolver.overview_entities_lift",
    "resolver.entities",
    "resolver.require_full_entity_coverage",
    "resolver.signature",
    "resolver.anchor",
)
ALL_GATES = (
    "domain",
    "l2",
    "density",
    "gap",
    "coverage",
    "similarity",
    "sufficiency",
    "confidence",
    "fused",
    "generation",
    "support",
)
KEEP_AT_MOST = 8  # relevant hits asked for


class Range(NamedTuple):
    """Values that a study may try: numbers from low to high, or the two of a switch (low and high NaN)."""

    low: float
    high: float
    whole: bool = False
    log: bool = False

    @property
    def is_switch(self) -> bool:
        """Whether it is a switch."""
        return bool(np.isnan(self.low))


def full_space(trace: Trace, policy: Policy, arm: str | None = None) -> dict[str, Range]:
    """Every threshold over the values observed in a trace, and every switch.

    A threshold that no case can meet in the trace is left out.
    """
    found = tables_of(trace, policy, arm).evidence
    space: dict[str, Range] = {}
    for path, swept in SWEPT.items():
        values = breakpoints(found, thresholds([policy]), path)
        values = values[~np.isnan(values)]
        if swept.whole:
            space[path] = Range(1, min(KEEP_AT_MOST, found.l2.shape[1]), whole=True)
        elif len(values) and values.max() > values.min():
            gap = path.endswith("gap")
            low = max(float(values.min()), swept.low)
            high = min(float(values.max()) + 1e-6, swept.high)
            least = float(np.quantile(values[values > 0], 0.01)) if gap and (values > 0).any() else low
            space[path] = Range(least if gap else low, high, log=gap and 0 < least < high)
    return space | {path: Range(np.nan, np.nan) for path in SWITCHES}


def within(policy: Policy, trace: Trace) -> Policy:
    """Policy that refines no further than a trace measured: what is tuned or promised on it must not do more live."""
    deepest = trace.hits.chunk.shape[2] - 1
    if policy.refine.max_depth <= deepest:
        return policy
    return policy.replace("refine.max_depth", deepest, "certificate", policy.certificate)


def changed(policy: Policy, values: Mapping[str, Any]) -> Policy:
    """Policy with the values of a trial."""
    return policy.replace(*(item for pair in values.items() for item in pair))


def trial_of(policy: Policy, space: Mapping[str, Range]) -> dict[str, Any]:
    """A policy's own values, moved into the space where they lie outside: the trial a study begins with."""
    own: dict[str, Any] = {}
    for path, extent in space.items():
        value = policy.value(path)
        if extent.is_switch:
            own[path] = bool(value)
        else:
            number = float(np.clip(extent.low if value is None else value, extent.low, extent.high))
            own[path] = int(number) if extent.whole else number
    return own


def always_answer(policy: Policy) -> Policy:
    """Policy with every gate off: it answers whenever there is a hit."""
    return policy.replace(*(item for gate in ALL_GATES for item in (f"{gate}.enabled", False)))


def always_refuse(policy: Policy) -> Policy:
    """Policy that refuses every question: what no answer at all costs."""
    return policy.replace("domain.enabled", True, "patterns.deny", ["(?s).*"])


LOOSER = {  # rule S6.4: what one step down does; a step up does the opposite
    "similarity.min_similarity": -0.05,
    "confidence.tau_default": -5.0,
    "confidence.tau_explicit": -5.0,
    "l2.max_l2": 0.05,
    "l2.soft_max_l2": 0.05,
}


def stepped_by_hand(policy: Policy, direction: int) -> Policy:
    """Policy with all thresholds of the source one step looser (1) or tighter (-1), within their ranges.

    Source: rule S6.4, the source's manual loop.
    """
    changes: list[Any] = []
    for path, step in LOOSER.items():
        value = policy.value(path)
        if value is None:
            continue
        swept = SWEPT[path]
        changes += [path, float(np.clip(round(value + direction * step, 10), max(swept.low, 0.0), swept.high))]
    return policy.replace(*changes)


def published(policy: Policy) -> Policy:
    """Published thresholds with a policy's own patterns: what a study has to beat."""
    base = Policy.load()
    return base.replace("patterns", policy.patterns.model_dump(), "refusal_message", policy.refusal_message)
