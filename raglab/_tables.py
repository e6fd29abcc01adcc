"""From a trace to the evidence that thresholds meet: chosen hits, what they cover, who would win (layer 2).

A slot numbers the sets of hits that a decision may rest on: 0 … K for "the first n hits are relevant",
then one for each way the resolver can pick. Whatever is asked of the chosen hits (are the entities
covered, is the expected source among them) is answered once per slot and looked up ever after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import evidence as measure
from raglab import resolver
from raglab._judge import judged
from raglab.policy import Structure
from raglab.values import Chunk, PatternHits, Status, Trace, each

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
NEAR_PAGES = 2  # rule S2.4: pages at most this far apart agree


class Evidence(NamedTuple):
    """Measurements that gates and resolver meet, [D, Q] unless stated; K hits, S slots.

    words [Q], denied [Q], allowed [Q]: counts. needs_allowed: whether there are allow patterns. generic,
    facet, explicit, names_entity [Q]: bools. full_entities: the best group carries all entities.
    all, tied: the contest among all groups, and among those tied on entities. l2 [D, K, Q].
    top_rerank, top_hybrid [k, D, Q]: scores of the first hits in the arm's order. missing, right, share
    [D, S, Q]: entities not covered, expected sources found, keyword share, by slot.
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
    rank_order: bool
    final_k: int

    @property
    def n_slots_relevant(self) -> int:
        """Slots that stand for a number of relevant hits, K + 1."""
        return self.l2.shape[1] + 1


class ChosenHits(NamedTuple):
    """Places of the chosen hits by slot, [D·Q, S, k], -1 where there are fewer, and what groups them."""

    places: NDArray[np.int64]
    groups: resolver.Groups
    tied: NDArray[np.bool_]
    options_all: list[tuple[resolver.Option, ...]]
    options_tied: list[tuple[resolver.Option, ...]]
    sources: list[tuple[str, str]]


class Tables(NamedTuple):
    """Evidence of one arm under one structure, the chosen hits behind it, and what the patterns hit."""

    arm: str
    evidence: Evidence
    chosen: ChosenHits
    pattern_hits: PatternHits


def _numbered(values: Sequence[Any]) -> NDArray[np.int64]:
    known: dict[Any, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


def tables(trace: Trace, arm: str, hits_of: PatternHits, structure: Structure, *, needs_allowed: bool) -> Tables:
    """Measure what one arm's hits offer under a structure; free of thresholds (rule S3.6)."""
    at = trace.arm(arm)
    hits = each(trace.hits, lambda field: np.moveaxis(field[:, at], 1, 0))
    depths, n_cases, width = hits.chunk.shape
    flat = each(hits, lambda field: field.reshape(depths * n_cases, *field.shape[2:]))
    chunks, cases = trace.chunks, trace.cases
    tiled = [case for _ in range(depths) for case in cases]
    hit = np.where(flat.chunk >= 0, flat.chunk, -1).astype(np.int64)

    def by_hit(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(hit >= 0, np.append(values, -1)[hit], -1)

    names = [chunk.file_name for chunk in chunks]
    keys = [(name, chunk.page_shown) for name, chunk in zip(names, chunks, strict=True)]
    ordered = sorted(set(keys), key=lambda key: (key[0], key[1]))
    numbers = {key: number for number, key in enumerate(ordered)}
    page_key = by_hit(np.array([numbers[key] for key in keys], dtype=np.int64))
    file_key, page_only = by_hit(_numbered(names)), by_hit(_numbered([key[1] for key in keys]))
    core = by_hit(_numbered([resolver.signature(c.tags, c.file_name, strict=False) for c in chunks]))
    if structure.strict:
        sign = by_hit(_numbered([resolver.signature(c.tags, c.file_name, strict=True) for c in chunks]))
    else:
        sign = core
    place_of = measure.positions(hits_of.chunk_entities)
    entity_mask = measure.bit_masks([hits_of.query_entities[q % n_cases] for q in range(len(tiled))], place_of, hit)
    n_entities = np.array([len(names_) for names_ in hits_of.query_entities] * depths, dtype=np.int64)
    wanted = _all_bits(n_entities)
    seen_mask = entity_mask if structure.entity_extractor else np.zeros_like(entity_mask)
    seen = wanted if structure.entity_extractor else np.zeros_like(wanted)

    groups = resolver.group_hits(sign)
    best_l2 = resolver.at_anchors(flat.l2, groups, np.inf)
    winner, tied, tied_order, best = resolver.resolve_entities(seen_mask, groups, best_l2)
    sig_sim = resolver.at_anchors(flat.sig_sim_strict if structure.strict else flat.sig_sim, groups, np.nan)
    anchor_sim = resolver.at_anchors(flat.anchor_sim, groups, np.nan)
    everyone = groups.anchor >= 0
    of_all = resolver.contest(everyone, best_l2, sig_sim, anchor_sim)
    of_tied = resolver.contest(tied, best_l2, sig_sim, anchor_sim, tied_order)

    order = _order(flat.rank, hit, by_rank=structure.order == "rank")
    k = structure.final_k
    relevant = _chosen_by_count(order, hit, k)
    picked = {
        "first_of_all": of_all.first,
        "signature_of_all": of_all.by_signature,
        "anchor_of_all": of_all.by_anchor,
        "entities": winner,
        "first_of_tied": of_tied.first,
        "signature_of_tied": of_tied.by_signature,
        "anchor_of_tied": of_tied.by_anchor,
    }
    by_winner = [
        resolver.fill_entities(
            resolver.first_k((groups.group == group[:, None]) & (group >= 0)[:, None], order, k),
            seen_mask,
            seen,
            page_key,
        )
        for group in picked.values()
    ]
    in_number = np.broadcast_to(np.arange(tied.shape[1]), tied.shape)
    options_all = _options(groups, everyone, in_number, file_key, page_key, page_only, flat.l2, structure)
    same = (tied == everyone).all(axis=1) & (tied_order == in_number).all(axis=1)
    options_tied = _options(
        groups, tied, tied_order, file_key, page_key, page_only, flat.l2, structure, known=options_all, same=same
    )
    shown = [_padded(found, max(k, k * structure.max_options) if found else k) for found in (options_all, options_tied)]
    wide = max(k, *(places.shape[1] for places in shown))
    places = np.stack([_widened(p, wide) for p in (*relevant, *by_winner, *shown)], axis=1)

    needs = _needs_coverage(hits_of, n_entities, depths)
    missing, right, share = judged(
        places, entity_mask, np.where(needs, wanted, 0), tiled, trace, hit, page_key, (options_all, options_tied)
    )
    shape = (depths, n_cases)
    slots = (depths, n_cases, places.shape[1])
    top_scores = [_by_rank(values, order_of_arm(flat.rank, hit), k) for values in (flat.s_rerank, flat.s_hybrid)]
    reranked = (flat.rank >= 0) & (flat.rank < flat.n_reranked[:, None])
    text = by_hit(_numbered([chunk.text for chunk in chunks]))
    counts = hits_of.counts.astype(np.int64)
    two = width >= 2
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
        gap=np.abs(hits.l2[..., 1] - hits.l2[..., 0]) if two else np.full(shape, np.nan),
        agree=_agree(hit, chunks, core).reshape(shape) if two else np.zeros(shape, dtype=bool),
        degenerate=measure.degenerate_scores(flat.s_rerank, flat.s_raw, text, reranked).reshape(shape),
        top_rerank=top_scores[0].reshape(-1, *shape),
        top_hybrid=top_scores[1].reshape(-1, *shape),
        n_groups=groups.n.reshape(shape),
        has_winner=(winner >= 0).reshape(shape),
        skips_entities=(best == 0).reshape(shape),
        full_entities=(best >= np.bitwise_count(seen)).reshape(shape),
        all=resolver.Contest(*[np.reshape(field, shape) for field in of_all]),
        tied=resolver.Contest(*[np.reshape(field, shape) for field in of_tied]),
        n_options_all=np.array([len(found) for found in options_all]).reshape(shape),
        n_options_tied=np.array([len(found) for found in options_tied]).reshape(shape),
        missing=np.ascontiguousarray(missing.reshape(slots).transpose(0, 2, 1)),
        right=np.ascontiguousarray(right.reshape(slots).transpose(0, 2, 1)),
        share=np.ascontiguousarray(share.reshape(slots).transpose(0, 2, 1)),
        rank_order=structure.order == "rank",
        final_k=k,
    )
    return Tables(arm, found_evidence, ChosenHits(places, groups, tied, options_all, options_tied, ordered), hits_of)


def _all_bits(count: NDArray[np.int64]) -> NDArray[np.uint64]:
    return np.array([(1 << int(n)) - 1 for n in count], dtype=np.uint64)


def order_of_arm(rank: NDArray[np.int32], hit: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of the hits in the arm's final order, hits without a rank last."""
    return np.argsort(np.where((hit >= 0) & (rank >= 0), rank, np.iinfo(np.int32).max), axis=1, kind="stable")


def _order(rank: NDArray[np.int32], hit: NDArray[np.int64], *, by_rank: bool) -> NDArray[np.int64]:
    return order_of_arm(rank, hit) if by_rank else np.broadcast_to(np.arange(hit.shape[1]), hit.shape)


def _by_rank(values: NDArray[np.float64], order: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    return np.ascontiguousarray(np.take_along_axis(values, order[:, :k], axis=1).T)


def _chosen_by_count(order: NDArray[np.int64], hit: NDArray[np.int64], k: int) -> list[NDArray[np.int64]]:
    """First k in the order wanted among the n nearest hits, for n = 0 … K."""
    width = hit.shape[1]
    position = np.empty_like(order)
    np.put_along_axis(position, np.ascontiguousarray(order), np.broadcast_to(np.arange(width), order.shape), axis=1)
    best = np.full((len(hit), k), width, dtype=np.int64)
    out = [np.full((len(hit), k), -1, dtype=np.int64)]
    padded = np.append(order, np.full((len(hit), 1), -1), axis=1)
    for n in range(width):
        entry = np.where(hit[:, n] >= 0, position[:, n], width)
        best = np.sort(np.append(best, entry[:, None], axis=1), axis=1)[:, :k]
        out.append(np.take_along_axis(padded, best, axis=1))
    return out


def _agree(hit: NDArray[np.int64], chunks: Sequence[Chunk], core: NDArray[np.int64]) -> NDArray[np.bool_]:
    source = np.append(_numbered([chunk.source for chunk in chunks]), -1)
    page = np.array([np.nan if chunk.page is None else float(chunk.page) for chunk in chunks] + [np.nan])
    tagged = np.array(
        [not resolver.is_fallback(resolver.signature(c.tags, c.file_name, strict=False)) for c in chunks] + [False]
    )
    first, second = hit[:, 0], hit[:, 1]
    both = (first >= 0) & (second >= 0)
    near = (source[first] == source[second]) & (np.abs(page[first] - page[second]) <= NEAR_PAGES)
    return both & (near | ((core[:, 0] == core[:, 1]) & tagged[first]))


def _needs_coverage(hits_of: PatternHits, n_entities: NDArray[np.int64], depths: int) -> NDArray[np.bool_]:
    compares, generic = (np.tile(hits_of.counts[:, column] > 0, depths) for column in (4, 5))
    return (compares & (n_entities >= 2)) | (generic & (n_entities >= 1))


def _options(
    groups: resolver.Groups,
    candidates: NDArray[np.bool_],
    order: NDArray[np.int64],
    file_key: NDArray[np.int64],
    page_key: NDArray[np.int64],
    page_only: NDArray[np.int64],
    l2: NDArray[np.float64],
    structure: Structure,
    known: list[tuple[resolver.Option, ...]] | None = None,
    same: NDArray[np.bool_] | None = None,
) -> list[tuple[resolver.Option, ...]]:
    found = []
    for row in range(len(candidates)):
        if known is not None and same is not None and same[row]:
            found.append(known[row])
            continue
        leaders = [group for group in order[row] if candidates[row, group]][: structure.max_options]
        group = groups.group[row]
        members = [np.nonzero(group == leader)[0].tolist() for leader in leaders]
        found.append(
            resolver.options(
                members,
                file_key[row].tolist(),
                page_key[row].tolist(),
                page_only[row].tolist(),
                l2[row].tolist(),
                structure.final_k,
            )
        )
    return found


def _padded(found: list[tuple[resolver.Option, ...]], width: int) -> NDArray[np.int64]:
    places = np.full((len(found), width), -1, dtype=np.int64)
    for row, shown in enumerate(found):
        every = [place for option in shown for place in option.places]
        places[row, : len(every)] = every
    return places


def _widened(places: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    return np.pad(places, ((0, 0), (0, width - places.shape[1])), constant_values=-1)
