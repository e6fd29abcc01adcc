"""Gates on evidence: measurements and thresholds in, signed headroom ("margins") out (rules S2.1 to S2.11).

A margin is >= 0 where the gate passes. The verdict of a sweep and the explanation of one case read
the same margins, so they cannot disagree. Thresholds are scalars, or arrays that broadcast against
the measurements (`[P, 1]` against `[Q]`); `on` false switches a gate off, its margin is then +inf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._answer_gates import (
    ConfidenceMargins,
    ConfidenceThresholds,
    FusedMargins,
    FusedThresholds,
    GenerationMargins,
    GenerationThresholds,
    IntentMargins,
    IntentThresholds,
    RefineMargins,
    RefineThresholds,
    SupportMargins,
    SupportThresholds,
    confidence_margins,
    fused_margins,
    generation_margins,
    intent_margins,
    reaches,
    refine_margins,
    support_margins,
)
from raglab._margins import Margins, Verdict, explain, fires, headroom
from raglab.values import Bools, Floats, Ints

__all__ = [
    "ConfidenceMargins",
    "ConfidenceThresholds",
    "CoverageMargins",
    "DensityMargins",
    "DensityThresholds",
    "DomainMargins",
    "FusedMargins",
    "FusedThresholds",
    "GapMargins",
    "GapThresholds",
    "GenerationMargins",
    "GenerationThresholds",
    "IntentMargins",
    "IntentThresholds",
    "L2Margins",
    "L2Thresholds",
    "Margins",
    "RefineMargins",
    "RefineThresholds",
    "SimilarityMargins",
    "SimilarityThresholds",
    "SufficiencyMargins",
    "SufficiencyThresholds",
    "SupportMargins",
    "SupportThresholds",
    "Verdict",
    "confidence_margins",
    "coverage_margins",
    "density_margins",
    "domain_margins",
    "explain",
    "fires",
    "fused_margins",
    "gap_margins",
    "generation_margins",
    "intent_margins",
    "l2_cut",
    "l2_margins",
    "n_relevant",
    "reaches",
    "refine_margins",
    "similarity_margins",
    "sufficiency_margins",
    "support_margins",
]

AT_ONCE = 1 << 19  # comparisons of a distance and a cut made at once


class DomainMargins(NamedTuple):
    """Headroom of rule S2.1, counts."""

    query: Floats
    deny: Floats
    allow: Floats


class L2Thresholds(NamedTuple):
    """max_l2, soft_max_l2: squared L2 distance, upper bounds; soft NaN where it is not set."""

    max_l2: Floats
    soft_max_l2: Floats
    on: Bools = True


class L2Margins(NamedTuple):
    """Headroom of rule S2.2, squared L2: the better of the hard and the soft one."""

    l2: Floats


class DensityThresholds(NamedTuple):
    """min_keep: least count of relevant hits."""

    min_keep: Ints
    on: Bools = True


class DensityMargins(NamedTuple):
    """Headroom of rule S2.3, count of hits."""

    density: Floats


class GapThresholds(NamedTuple):
    """min_gap: least distance between the first two relevant hits, squared L2."""

    min_gap: Floats
    on: Bools = True


class GapMargins(NamedTuple):
    """Headroom of rule S2.4, squared L2; +inf where there is no second hit or the two agree."""

    gap: Floats


class CoverageMargins(NamedTuple):
    """Headroom of rule S2.5: minus the number of named entities that the chosen hits lack."""

    coverage: Floats


class SimilarityThresholds(NamedTuple):
    """min_similarity: refuse below this top-1 cosine, in [-1, 1]."""

    min_similarity: Floats
    on: Bools = True


class SimilarityMargins(NamedTuple):
    """Headroom of rule S2.6, cosine."""

    similarity: Floats


class SufficiencyThresholds(NamedTuple):
    """min_keyword_share: warn below this share of the query's content words, in [0, 1]."""

    min_keyword_share: Floats
    on: Bools = True


class SufficiencyMargins(NamedTuple):
    """Headroom of rule S2.7, share of words."""

    sufficiency: Floats


def domain_margins(
    n_words: Ints, n_denied: Ints, n_allowed: Ints, needs_allowed: Bools, on: Bools = True
) -> DomainMargins:
    """Headroom of the query's text: words in it, no deny pattern, an allow pattern where there are any.

    Args:
      n_words: words of the query, [...]. n_denied, n_allowed: patterns that match it, [...].
      needs_allowed: whether the policy lists allow patterns.
      on: false switches the patterns off; an empty query is refused all the same.

    Source: rule S2.1.

    Example:
      >>> explain(domain_margins(4, 1, 0, False))
      Verdict(fired=True, check='deny', margin=-1.0)
    """
    return DomainMargins(
        query=np.subtract(n_words, 1.0),
        deny=headroom(0.0, np.asarray(n_denied, dtype=np.float64), on),
        allow=headroom(n_allowed, np.where(needs_allowed, 1.0, 0.0), on),
    )


def l2_margins(best: Floats, thresholds: L2Thresholds) -> L2Margins:
    """Headroom of the nearest hit below the hard or, failing that, the soft bound.

    Args:
      best: squared L2 distance of the nearest hit, [...]; NaN where nothing was retrieved.

    Source: rule S2.2.

    Example:
      >>> explain(l2_margins(0.9, L2Thresholds(0.8, np.nan)))
      Verdict(fired=True, check='l2', margin=-0.09999999999999998)
    """
    hard = np.subtract(thresholds.max_l2, best)
    soft = np.subtract(thresholds.soft_max_l2, best)
    margin = np.fmax(hard, soft)
    return L2Margins(l2=margin if np.all(thresholds.on) else np.where(thresholds.on, margin, np.inf))


def l2_cut(best: Floats, thresholds: L2Thresholds) -> Floats:
    """Bound below which a hit is relevant: hard where the best hit meets it, else soft, else -inf; +inf when off.

    Source: rules S2.2, S2.3.
    """
    soft = np.where(np.greater_equal(np.subtract(thresholds.soft_max_l2, best), 0.0), thresholds.soft_max_l2, -np.inf)
    cut = np.where(np.greater_equal(np.subtract(thresholds.max_l2, best), 0.0), thresholds.max_l2, soft)
    return cut if np.all(thresholds.on) else np.where(thresholds.on, cut, np.inf)


def n_relevant(l2: NDArray[np.floating[Any]], cut: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    """Hits within the cut.

    Args:
      l2: [K, Q], NaN where there is no hit. cut: [P, Q].

    Returns: int [P, Q].

    Source: rule S2.3.
    """
    count = np.empty(cut.shape, dtype=np.int16)
    narrow = np.uint8 if len(l2) < np.iinfo(np.uint8).max else np.uint16
    step = max(1, AT_ONCE // max(1, l2.size))
    for start in range(0, len(cut), step):
        rows = slice(start, start + step)
        count[rows] = np.add.reduce((l2[:, None] <= cut[rows]).view(np.uint8), axis=0, dtype=narrow)
    return count


def density_margins(n_relevant: Ints, thresholds: DensityThresholds) -> DensityMargins:
    """Headroom of the number of relevant hits.

    Source: rule S2.3.
    """
    return DensityMargins(density=headroom(n_relevant, thresholds.min_keep, thresholds.on))


def gap_margins(gap: Floats, n_relevant: Ints, agree: Bools, thresholds: GapThresholds) -> GapMargins:
    """Headroom of the distance between the first two relevant hits; a negative one hands over to the resolver.

    Args:
      gap: |l2[1] - l2[0]|, [...]. n_relevant: relevant hits, [...].
      agree: whether the two hits agree anyway (same source and near pages, or same signature), [...].

    Source: rule S2.4.
    """
    margin = headroom(gap, thresholds.min_gap, thresholds.on)
    return GapMargins(gap=np.where(np.less(n_relevant, 2) | agree, np.inf, margin))


def coverage_margins(n_missing: Ints, on: Bools = True) -> CoverageMargins:
    """Headroom of entities: 0 when every entity that must be covered is, else minus how many are missing.

    Source: rule S2.5.
    """
    return CoverageMargins(coverage=headroom(0.0, np.asarray(n_missing, dtype=np.float64), on))


def similarity_margins(top1: Floats, thresholds: SimilarityThresholds) -> SimilarityMargins:
    """Headroom of the best hit's cosine above the threshold.

    Args:
      top1: cosine of query and nearest hit, [...]; NaN where nothing was retrieved.

    Source: ADR-004, gate 1 (rule S2.6).

    Example:
      >>> explain(similarity_margins(0.62, SimilarityThresholds(0.70)))
      Verdict(fired=True, check='similarity', margin=-0.07999999999999996)
    """
    return SimilarityMargins(similarity=headroom(top1, thresholds.min_similarity, thresholds.on))


def sufficiency_margins(share: Floats, thresholds: SufficiencyThresholds) -> SufficiencyMargins:
    """Headroom of the share of the query's content words found in the chosen hits; below it a warning, no refusal.

    Source: ADR-004, gate 2 (rule S2.7).
    """
    return SufficiencyMargins(sufficiency=headroom(share, thresholds.min_keyword_share, thresholds.on))
