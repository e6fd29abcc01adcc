"""Thresholds of policies as gates and resolver take them: arrays over policies (layer 2)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.gates import (
    ConfidenceThresholds,
    DensityThresholds,
    FusedThresholds,
    GapThresholds,
    GenerationThresholds,
    IntentThresholds,
    L2Thresholds,
    RefineThresholds,
    SimilarityThresholds,
    SufficiencyThresholds,
    SupportThresholds,
)
from raglab.resolver import RuleThresholds
from raglab.values import Bools, Floats

if TYPE_CHECKING:
    from raglab.policy import Policy


class Thresholds(NamedTuple):
    """Thresholds of one policy (scalars) or many ([P, 1]), as gates and resolver take them."""

    domain: Bools
    l2: L2Thresholds
    density: DensityThresholds
    gap: GapThresholds
    coverage: Bools
    similarity: SimilarityThresholds
    sufficiency: SufficiencyThresholds
    confidence: ConfidenceThresholds
    fused: FusedThresholds
    blend: Floats
    overview: Bools
    overview_entities_lift: Bools
    entities: Bools
    require_full: Bools
    rules: RuleThresholds
    refine: RefineThresholds
    generation: GenerationThresholds
    support: SupportThresholds


def thresholds(policies: Sequence[Policy]) -> Thresholds:
    """Thresholds of many policies, each field [P, 1]."""

    def of(path: str, unset: float = np.nan) -> Any:  # noqa: ANN401 - an array of bools or floats
        values = list(map(attrgetter(path), policies))
        kind = np.bool_ if isinstance(values[0], bool) else np.float64
        return np.array([unset if value is None else value for value in values], dtype=kind)[:, None]

    def rule(on: str, path: str) -> Any:  # noqa: ANN401 - an array of floats
        return np.where(of(on), of(path, -np.inf), np.nan)

    min_gap = of("gap.min_gap")
    return Thresholds(
        domain=of("domain.enabled"),
        l2=L2Thresholds(of("l2.max_l2"), of("l2.soft_max_l2"), of("l2.enabled")),
        density=DensityThresholds(of("density.min_keep"), of("density.enabled")),
        gap=GapThresholds(min_gap, of("gap.enabled") & ~np.isnan(min_gap)),
        coverage=of("coverage.enabled"),
        similarity=SimilarityThresholds(of("similarity.min_similarity"), of("similarity.enabled")),
        sufficiency=SufficiencyThresholds(of("sufficiency.min_keyword_share"), of("sufficiency.enabled")),
        confidence=ConfidenceThresholds(
            of("confidence.tau_default"), of("confidence.tau_explicit"), of("confidence.enabled")
        ),
        fused=FusedThresholds(of("fused.min_fused"), of("fused.enabled")),
        blend=of("confidence.blend"),
        overview=of("resolver.overview"),
        overview_entities_lift=of("resolver.overview_entities_lift"),
        entities=of("resolver.entities"),
        require_full=of("resolver.require_full_entity_coverage"),
        rules=RuleThresholds(
            of("resolver.min_group_gap"),
            rule("resolver.signature", "resolver.min_sig_sim"),
            rule("resolver.signature", "resolver.min_sig_sim_gap"),
            rule("resolver.anchor", "resolver.min_anchor_sim"),
            rule("resolver.anchor", "resolver.min_anchor_sim_gap"),
        ),
        refine=RefineThresholds(of("refine.max_depth"), of("refine.epsilon"), of("refine.refine_on_refusal")),
        generation=GenerationThresholds(of("generation.min_generation_confidence"), of("generation.enabled")),
        support=SupportThresholds(of("support.min_support"), of("support.enabled")),
    )


def intent_thresholds(policy: Policy) -> IntentThresholds:
    """What makes an arm available to a question under a policy (rule S4.1)."""
    rows = policy.strategy
    return IntentThresholds(rows.min_graph, rows.min_table, rows.min_complexity)
