"""Gates on the way to the answer and on the answer itself (rules S2.8 to S2.11, S2.14, S4.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raglab._margins import headroom
from raglab.values import Bools, Floats, Ints


class ConfidenceThresholds(NamedTuple):
    """tau_default, tau_explicit: least confidence, 0 to 100, without and with documents named by the user."""

    tau_default: Floats
    tau_explicit: Floats
    on: Bools = True


class ConfidenceMargins(NamedTuple):
    """Headroom of rule S2.8, confidence points."""

    confidence: Floats


class FusedThresholds(NamedTuple):
    """min_fused: least probability of being right, in [0, 1]."""

    min_fused: Floats
    on: Bools = True


class FusedMargins(NamedTuple):
    """Headroom of rule S2.14, probability."""

    fused: Floats


class RefineThresholds(NamedTuple):
    """max_depth: most refinements. epsilon: least change of the confidence that is worth another, in points.

    on_refusal: whether a refusal before confidence counts as too little of it.
    """

    max_depth: Floats
    epsilon: Floats
    on_refusal: Bools = True


class RefineMargins(NamedTuple):
    """Headroom of rule S2.9: refinements left, and change of the confidence above epsilon; below 0 the loop ends."""

    depth: Floats
    change: Floats


class GenerationThresholds(NamedTuple):
    """min_generation_confidence: refuse below it, in [0, 1]."""

    min_generation_confidence: Floats
    on: Bools = True


class GenerationMargins(NamedTuple):
    """Headroom of rule S2.10, in [0, 1]."""

    generation: Floats


class SupportThresholds(NamedTuple):
    """min_support: refuse where a claim has less, in [0, 1]."""

    min_support: Floats
    on: Bools = True


class SupportMargins(NamedTuple):
    """Headroom of rule S2.11, in [0, 1]."""

    support: Floats


class IntentThresholds(NamedTuple):
    """min_graph, min_table: score at which an arm is available. min_complexity: at which a question is complex."""

    min_graph: Floats
    min_table: Floats
    min_complexity: Floats


class IntentMargins(NamedTuple):
    """Headroom of rule S4.1, scores in [0, 1]; >= 0 where the arm is available, or the question complex."""

    graph: Floats
    table: Floats
    complexity: Floats


def confidence_margins(confidence: Floats, explicit: Bools, thresholds: ConfidenceThresholds) -> ConfidenceMargins:
    """Headroom of the retrieval confidence above tau.

    Args:
      confidence: 0 to 100, [...]. explicit: whether the user named documents, [...].

    Source: confidence heuristics, section 5 (rule S2.8).

    Example:
      >>> confidence_margins(34.0, True, ConfidenceThresholds(40.0, 30.0))
      ConfidenceMargins(confidence=np.float64(4.0))
    """
    tau = np.where(explicit, thresholds.tau_explicit, thresholds.tau_default)
    return ConfidenceMargins(confidence=headroom(confidence, tau, thresholds.on))


def fused_margins(probability: Floats, thresholds: FusedThresholds) -> FusedMargins:
    """Headroom of the fused probability of being right.

    Source: rule S2.14.
    """
    return FusedMargins(fused=headroom(probability, thresholds.min_fused, thresholds.on))


def refine_margins(step: Ints, change: Floats, thresholds: RefineThresholds) -> RefineMargins:
    """Headroom of another refinement, which would be the `step`-th.

    Args:
      step: from 1. change: of the confidence over the last two depths, without sign, [...]; +inf where there is one.

    Source: rule S2.9.

    Example:
      >>> refine_margins(2, 0.5, RefineThresholds(3.0, 1.0))
      RefineMargins(depth=np.float64(1.0), change=np.float64(-0.5))
    """
    return RefineMargins(depth=headroom(thresholds.max_depth, step), change=headroom(change, thresholds.epsilon))


def generation_margins(confidence: Floats, thresholds: GenerationThresholds) -> GenerationMargins:
    """Headroom of the generator's confidence.

    Args:
      confidence: in [0, 1], [...]; NaN where the generator gave none.

    Source: ADR-004, gate 3 (rule S2.10).
    """
    return GenerationMargins(generation=headroom(confidence, thresholds.min_generation_confidence, thresholds.on))


def support_margins(support: Floats, thresholds: SupportThresholds) -> SupportMargins:
    """Headroom of the least supported claim of an answer.

    Args:
      support: in [0, 1], [...]; NaN where the answer claims nothing.

    Source: ADR-004, gate 4 (rule S2.11).
    """
    return SupportMargins(support=headroom(support, thresholds.min_support, thresholds.on))


def intent_margins(graph: Floats, table: Floats, complexity: Floats, thresholds: IntentThresholds) -> IntentMargins:
    """Headroom of a question's intents, [...].

    Source: rule S4.1.
    """
    return IntentMargins(
        headroom(graph, thresholds.min_graph),
        headroom(table, thresholds.min_table),
        headroom(complexity, thresholds.min_complexity),
    )


def reaches(margin: Any) -> Any:  # noqa: ANN401 - bool or array
    """Whether a margin is 0 or more, bool [...]; a missing one is not."""
    return np.greater_equal(margin, 0.0)
