"""From a trace to the evidence that thresholds meet: chosen hits, what they cover, who would win (layer 2).

A slot numbers the sets of hits that a decision may rest on: 0 … K for "the first n hits are relevant",
then one for each way the resolver can pick. Whatever is asked of the chosen hits (are the entities
covered, is the expected source among them) is answered once per slot and looked up ever after.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import evidence as measure
from raglab import fusion, resolver
from raglab._judge import judged
from raglab._places import agree, by_rank, chosen_by_count, keys_of, options_of, order_of_arm, shown_places, stacked
from raglab._recorded import places_of, recorded
from raglab.policy import Structure
from raglab.values import Hits, PatternHits, Status, Trace, each

WINNERS = (
    "first_of_all",
    "signature_of_all",
    "anchor_of_all",
    "entities",
    "first_of_tied",
    "signature_of_tied",
    "anchor_of_tied",
    "options_of_all",
    "options_of_tied",
)


class Evidence(NamedTuple):
    """Measurements that gates and resolver meet, [D, Q] unless stated; K hits, S slots.

    words [Q], denied [Q], allowed [Q]: counts. needs_allowed: whether there are allow patterns. generic,
    facet, explicit, names_entity [Q]: bools. full_entities: the best group carries all entities.
    all, tied: the contest among all groups, and among those tied on entities. l2 [D, K, Q].
    top_rerank, top_hybrid [k, D, Q]: scores of the first hits in the arm's order. signals [S, D, Q]: in the order of
    `fusion.SIGNALS`. fused: probability of the structure's model, NaN without one. missing, right, share
    [D, S, Q]: entities not covered, expected sources found, keyword share, by slot. answered: whether the trace holds
    answers. generation, support, unfit [D, S, Q]: of the answer recorded for a slot, no slots where there are none.
    """

    words: NDArray[np.int64]
    denied: NDArray[np.int64]
    allowed: NDArray[np.int64]
    needs_allowed: bool
    overview: NDArray[np.bool_]
    names_entity: NDArray[np.bool_]
    explicit: NDArray[np.bool_]
    label: NDArray[np.int8]
    l2: NDArray[np.float64]
    n_hits: NDArray[np.int64]
    best_l2: NDArray[np.float64]
    top1: NDArray[np.float64]
    gap: NDArray[np.float64]
    agree: NDArray[np.bool_]
    degenerate: NDArray[np.bool_]
    top_rerank: NDArray[np.float64]
    top_hybrid: NDArray[np.float64]
    signals: NDArray[np.float64]
    fused: NDArray[np.float64]
    n_groups: NDArray[np.int64]
    has_winner: NDArray[np.bool_]
    skips_entities: NDArray[np.bool_]
    full_entities: NDArray[np.bool_]
    all: resolver.Contest
    tied: resolver.Contest
    n_options_all: NDArray[np.int64]
    n_options_tied: NDArray[np.int64]
    missing: NDArray[np.uint8]
    right: NDArray[np.bool_]
    share: NDArray[np.float64]
    answered: bool
    generation: NDArray[np.float64]
    support: NDArray[np.float64]
    unfit: NDArray[np.bool_]
    rank_order: bool
    final_k: int

    @property
    def n_slots_relevant(self) -> int:
        """Slots that stand for a number of relevant hits, K + 1."""
        return self.l2.shape[1] + 1


class ChosenHits(NamedTuple):
    """Places of the chosen hits by slot, [D·Q, S, k], -1 where there are fewer; options; sources by number."""

    places: NDArray[np.int64]
    options_all: list[tuple[resolver.Option, ...]]
    options_tied: list[tuple[resolver.Option, ...]]
    sources: list[tuple[str, str]]


class Tables(NamedTuple):
    """Evidence of one arm under one structure, the chosen hits behind it, and what the patterns hit."""

    arm: str
    evidence: Evidence
    chosen: ChosenHits
    pattern_hits: PatternHits


def tables(trace: Trace, arm: str, hits_of: PatternHits, structure: Structure, *, needs_allowed: bool) -> Tables:
    """Measure what one arm's hits offer under a structure; free of thresholds (rule S3.6)."""
    at = trace.arm(arm)
    hits = each(trace.hits, lambda field: np.moveaxis(field[:, at], 1, 0))
    depths, n_cases, width = hits.chunk.shape
    flat = each(hits, lambda field: field.reshape(depths * n_cases, *field.shape[2:]))
    chunks, cases = trace.chunks, trace.cases
    tiled = [case for _ in range(depths) for case in cases]
    keys = keys_of(chunks, flat.chunk, strict=structure.strict)
    hit = keys.hit
    place_of = measure.positions(hits_of.chunk_entities)
    entity_mask = measure.bit_masks([hits_of.query_entities[q % n_cases] for q in range(len(tiled))], place_of, hit)
    n_entities = np.array([len(names_) for names_ in hits_of.query_entities] * depths, dtype=np.int64)
    wanted = _all_bits(n_entities)
    seen_mask = entity_mask if structure.entity_extractor else np.zeros_like(entity_mask)
    seen = wanted if structure.entity_extractor else np.zeros_like(wanted)

    groups = resolver.group_hits(keys.sign)
    best_l2 = resolver.at_anchors(flat.l2, groups, np.inf)
    winner, tied, tied_order, best = resolver.resolve_entities(seen_mask, groups, best_l2)
    sig_sim = resolver.at_anchors(flat.sig_sim_strict if structure.strict else flat.sig_sim, groups, np.nan)
    anchor_sim = resolver.at_anchors(flat.anchor_sim, groups, np.nan)
    everyone = groups.anchor >= 0
    of_all = resolver.contest(everyone, best_l2, sig_sim, anchor_sim)
    of_tied = resolver.contest(tied, best_l2, sig_sim, anchor_sim, tied_order)

    of_arm = order_of_arm(flat.rank, hit)
    order = of_arm if structure.order == "rank" else np.broadcast_to(np.arange(width), hit.shape)
    k = structure.final_k
    picked = {
        "first_of_all": of_all.first,
        "signature_of_all": of_all.by_signature,
        "anchor_of_all": of_all.by_anchor,
        "entities": winner,
        "first_of_tied": of_tied.first,
        "signature_of_tied": of_tied.by_signature,
        "anchor_of_tied": of_tied.by_anchor,
    }
    distinct = {group.tobytes(): group for group in picked.values()}  # of a single case the rules mostly pick alike
    filled = {
        key: resolver.fill_entities(
            resolver.first_k((groups.group == group[:, None]) & (group >= 0)[:, None], order, k),
            seen_mask,
            seen,
            keys.page,
        )
        for key, group in distinct.items()
    }
    by_winner = [filled[group.tobytes()] for group in picked.values()]
    in_number = np.broadcast_to(np.arange(tied.shape[1]), tied.shape)
    size = (structure.max_options, k)
    options_all = options_of(groups, everyone, in_number, keys, flat.l2, size)
    options_tied = options_of(groups, tied, tied_order, keys, flat.l2, size, options_all)
    shown = (options_all, options_tied)
    places = stacked([chosen_by_count(order, hit, k), *by_winner, *map(shown_places, shown)])
    must_cover = np.where(_needs_coverage(hits_of, n_entities, depths), wanted, 0)
    missing, right, share = judged(places, entity_mask, must_cover, tiled, trace, hit, keys.page, shown)
    shape = (depths, n_cases)
    reranked = (flat.rank >= 0) & (flat.rank < flat.n_reranked[:, None])
    counts = hits_of.counts.astype(np.int64)
    degenerate = measure.degenerate_scores(flat.s_rerank, flat.s_raw, keys.text, reranked)
    top_rerank, top_hybrid = by_rank(flat.s_rerank, of_arm, k), by_rank(flat.s_hybrid, of_arm, k)
    gap = np.abs(flat.l2[:, 1] - flat.l2[:, 0]) if width >= 2 else np.full(len(hit), np.nan)
    signals = _signals(flat, of_arm, (top_rerank, top_hybrid, degenerate), gap, of_all, share[:, width])
    signals = signals.reshape(-1, *shape)

    def by_slot(table: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(table.reshape(depths, n_cases, table.shape[1]).transpose(0, 2, 1))

    found_evidence = Evidence(
        words=np.array([len(case.query.split()) for case in cases], dtype=np.int64),
        denied=counts[:, 0],
        allowed=counts[:, 1],
        needs_allowed=needs_allowed,
        overview=(counts[:, 2] > 0) & (counts[:, 3] == 0),
        names_entity=(seen > 0)[:n_cases],
        explicit=np.array([bool(case.selected_sources) for case in cases]),
        label=np.array([Status[case.expect_status] for case in cases], dtype=np.int8),
        l2=np.ascontiguousarray(np.where(hits.chunk >= 0, hits.l2, np.nan).transpose(0, 2, 1)),
        n_hits=(hits.chunk >= 0).sum(axis=2),
        best_l2=np.where(hits.chunk[..., 0] >= 0, hits.l2[..., 0], np.nan),
        top1=np.where(hits.chunk[..., 0] >= 0, hits.cosine[..., 0], np.nan),
        gap=gap.reshape(shape),
        agree=agree(keys, chunks).reshape(shape),
        degenerate=degenerate.reshape(shape),
        top_rerank=top_rerank.reshape(-1, *shape),
        top_hybrid=top_hybrid.reshape(-1, *shape),
        signals=signals,
        fused=np.full(shape, np.nan) if structure.fused is None else fusion.fused(signals, structure.fused),
        n_groups=groups.n.reshape(shape),
        has_winner=(winner >= 0).reshape(shape),
        skips_entities=(best == 0).reshape(shape),
        full_entities=(best >= np.bitwise_count(seen)).reshape(shape),
        all=resolver.shaped(of_all, shape),
        tied=resolver.shaped(of_tied, shape),
        n_options_all=np.array([len(found) for found in options_all]).reshape(shape),
        n_options_tied=np.array([len(found) for found in options_tied]).reshape(shape),
        missing=by_slot(missing),
        right=by_slot(right),
        share=by_slot(share),
        answered=False,
        generation=np.empty((depths, 0, n_cases)),
        support=np.empty((depths, 0, n_cases)),
        unfit=np.empty((depths, 0, n_cases), dtype=bool),
        rank_order=structure.order == "rank",
        final_k=k,
    )
    chosen = ChosenHits(places, options_all, options_tied, keys.sources)
    return with_answers(Tables(arm, found_evidence, chosen, hits_of), trace, structure)


def with_answers(measured: Tables, trace: Trace, structure: Structure) -> Tables:
    """Tables with what the trace's answers say of every slot; as they are where it holds none."""
    if trace.answers is None:
        return measured
    at, places, found = trace.arm(measured.arm), measured.chosen.places, measured.evidence
    depths, n_cases = found.n_hits.shape
    hit = np.moveaxis(trace.hits.chunk[:, at], 1, 0).reshape(depths * n_cases, -1)
    said = recorded(trace.answers, places_of(trace.answers), at, places, hit, n_cases, structure.calibration)

    def by_slot(table: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(table.reshape(depths, n_cases, -1).transpose(0, 2, 1))

    told = [by_slot(table) for table in said]
    generation, support, unfit = told
    return measured._replace(
        evidence=found._replace(answered=True, generation=generation, support=support, unfit=unfit)
    )


def _signals(
    flat: Hits,
    of_arm: NDArray[np.int64],
    scores: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]],
    gap: NDArray[np.float64],
    groups: resolver.Contest,
    share: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Signals of the fused gate, [S, B], higher is surer; none where nothing was retrieved.

    Args:
      scores: of the first hits in the arm's order, reranked and hybrid [k, B], and whether the first say nothing [B].
      share: keyword share of the first hits when all are relevant, [B].
    """
    rerank, hybrid, degenerate = scores
    first = by_rank(flat.cosine, of_arm, len(rerank))
    n = (~np.isnan(first)).sum(axis=0)
    found = {
        "confidence": measure.confidence(rerank, hybrid, degenerate, 1.0),
        "top1_cosine": flat.cosine[:, 0],
        "mean_cosine": np.nansum(first, axis=0) / np.maximum(n, 1),
        "gap": gap,
        "hybrid": np.fmax.reduce(hybrid, axis=0),
        "rerank_margin": rerank[0] - rerank[1] if len(rerank) >= 2 else np.full(len(gap), np.nan),
        "keyword_share": share,
        "anchor_similarity": groups.best_anchor,
        "signature_similarity": groups.best_signature,
    }
    return np.where(flat.chunk[:, 0] >= 0, fusion.stacked(found), np.nan)


def _all_bits(count: NDArray[np.int64]) -> NDArray[np.uint64]:
    return np.array([(1 << int(n)) - 1 for n in count], dtype=np.uint64)


def _needs_coverage(hits_of: PatternHits, n_entities: NDArray[np.int64], depths: int) -> NDArray[np.bool_]:
    compares, generic = (np.tile(hits_of.counts[:, column] > 0, depths) for column in (4, 5))
    return (compares & (n_entities >= 2)) | (generic & (n_entities >= 1))
