"""Margins and decisions anew from recorded checks: nothing is measured, and no gate is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from raglab import gates
from raglab._explain import Check
from raglab.policy import Thresholds

WARNS = frozenset({"sufficiency", "gap", "resolver"})  # gates that refuse nothing by themselves
_FIELDS = {
    "l2": ("max_l2", "soft_max_l2"),
    "density": ("min_keep",),
    "gap": ("min_gap",),
    "similarity": ("min_similarity",),
    "sufficiency": ("min_keyword_share",),
    "fused": ("min_fused",),
    "confidence": ("tau_default", "tau_explicit"),
    "generation": ("min_generation_confidence",),
    "support": ("min_support",),
}
_RULES = {
    "S3.3 group_gap": "min_group_gap",
    "S3.3 signature_similarity": "min_sig_sim",
    "S3.3 anchor_similarity": "min_anchor_sim",
}
_TWO_BOUNDS = frozenset({"S3.3 signature_similarity", "S3.3 anchor_similarity"})  # and a lead, which is not recorded


class Decided(NamedTuple):
    """What checks decide: status, the gate or rule that did, and its words."""

    status: str
    gate: str
    text: str


def decided(checks: Sequence[Check]) -> Decided | None:
    """Decision of checks in the order of the chain: the first that fails and decides refuses; None without checks.

    A gap that is too small hands over to the resolver's rules, of which the first that passes decides; where none
    does, or the question is an overview, the user is asked, unless one option was left and the chain went on.

    Source: rules S2.12, S3.3.
    """
    if not checks:
        return None
    for place, check in enumerate(checks):
        if check.gate not in WARNS and not check.passes:
            return Decided("refuse", check.gate, check.text)
        if check.gate == "resolver" and all(one.gate != "resolver" for one in checks[place + 1 :]):
            rule = next((one for one in checks if one.gate == "resolver" and one.passes), None)
            picked = rule is not None and not rule.rule.endswith("overview")
            if not picked and place + 1 == len(checks):
                return Decided("ambiguous", "resolver", rule.text if rule is not None else "no rule picks a group")
    return Decided("ok", "", "")


def margins(checks: Sequence[Check], limits: Thresholds) -> list[float | None]:
    """Margin of each check anew, from its value, by the gates under a policy's thresholds.

    None where the value alone does not tell: a rule over two measurements of which one is recorded, two hits that
    agree whatever their gap, a gate that is not of the policy.
    """
    return [_margin(check, checks[:place], limits) for place, check in enumerate(checks)]


def _margin(check: Check, before: Sequence[Check], limits: Thresholds) -> float | None:
    rank = sum(one.gate == check.gate for one in before)
    if check.gate == "domain":  # words of the query, then deny patterns, then allow patterns
        counts: list[Any] = [1.0, 0.0, 1.0]
        counts[min(rank, 2)] = check.value
        n_words, denied, allowed = counts
        return _n(gates.domain_margins(n_words, denied, allowed, True, limits.domain)[min(rank, 2)])
    if check.gate == "resolver":
        return None if check.rule in _TWO_BOUNDS else check.value - check.threshold
    if (check.gate == "gap" and math.isinf(check.margin)) or check.gate not in _MARGINS:
        return None
    if check.gate == "l2" and not rank:
        return check.value - 1.0  # hits, of which there must be one
    return _n(_MARGINS[check.gate](check, limits))


def _count(check: Check) -> Any:  # noqa: ANN401 - a whole number, as a float
    return check.value


_MARGINS: Mapping[str, Callable[[Check, Thresholds], Any]] = {
    "l2": lambda check, limits: gates.l2_margins(check.value, limits.l2).l2,
    "density": lambda check, limits: gates.density_margins(_count(check), limits.density).density,
    "gap": lambda check, limits: gates.gap_margins(check.value, 2, False, limits.gap).gap,
    "coverage": lambda check, limits: gates.coverage_margins(_count(check), limits.coverage).coverage,
    "similarity": lambda check, limits: gates.similarity_margins(check.value, limits.similarity).similarity,
    "sufficiency": lambda check, limits: gates.sufficiency_margins(check.value, limits.sufficiency).sufficiency,
    "fused": lambda check, limits: gates.fused_margins(check.value, limits.fused).fused,
    "confidence": lambda check, limits: (
        gates.confidence_margins(
            check.value, check.threshold == _n(limits.confidence.tau_explicit), limits.confidence
        ).confidence
    ),
    "generation": lambda check, limits: gates.generation_margins(check.value, limits.generation).generation,
    "support": lambda check, limits: gates.support_margins(check.value, limits.support).support,
    "hygiene": lambda check, _: -check.value,
}


def _stated(check: Check, limits: Thresholds) -> list[float]:
    """Thresholds that a policy has for a check, none where it has none."""
    if check.gate == "resolver":
        name = _RULES.get(check.rule)
        return [] if name is None else [_n(getattr(limits.rules, name))]
    if check.gate == "l2" and check.rule == "S2.2" and check.text.endswith("retrieved"):
        return [1.0]
    if check.gate not in _FIELDS:
        return []
    return [_n(getattr(getattr(limits, check.gate), name)) for name in _FIELDS[check.gate]]


def problems(checks: Sequence[Check], limits: Thresholds) -> list[str]:
    """What does not agree within checks, in words: margins, verdicts, thresholds that the policy does not have."""
    found = []
    for check, margin in zip(checks, margins(checks, limits), strict=True):
        named = f"check {check.gate} ({check.rule})"
        if margin is not None and not _same(margin, check.margin):
            found.append(f"{named}: margin {check.margin:.6g} is recorded, value and threshold give {margin:.6g}")
        if bool(check.passes) == bool(gates.fires((check.margin,))):
            verdict = "passes" if check.passes else "fails"
            found.append(f"{named}: it is recorded that it {verdict}, margin {check.margin:.6g} says the opposite")
        stated = _stated(check, limits)
        if stated and not any(_same(check.threshold, value) for value in stated):
            told = " or ".join(f"{value:g}" for value in stated)
            found.append(f"{named}: threshold {check.threshold:g} is recorded, the policy has {told}")
    return found


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _n(value: Any) -> float:  # noqa: ANN401 - scalar or array of one
    return float(np.squeeze(value))
