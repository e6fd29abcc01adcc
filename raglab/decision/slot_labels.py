"""Slot labels (algebra): words, entities and sources in a slot's hits (S2.5, S2.7, S6.1).

What a question names are its items. Which of them a hit has is a mask, a number of 64 bits. A
question with more items has a second number, and so on: planes. A batch has as many planes as its
longest question needs, and a plane after the first holds only the rows that reach it, so that one
long list costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import resolver
from raglab.decision.document_names import (
    check_clear,
    chunk_sources,
    known_documents,
    source_meanings,
)
from raglab.decision.evidence import OPTION_SLOTS, CaseBatch, ChosenHits, Entities
from raglab.policy import Structure
from raglab.values import (
    AnyArray,
    BitArray,
    BoolArray,
    FloatArray,
    IntArray,
    PatternHits,
    PlaceArray,
    TraceData,
    WholeArray,
    refuse,
)
from raglab.words.text import MASK_BITS, content_words, word_set


class Plane(NamedTuple):
    """At most 64 items of every row that has so many.

    rows: of the batch; all of them in the first plane. items: of each of these rows.
    """

    rows: PlaceArray | slice
    items: Sequence[Sequence[str]]


def item_planes(row_items_all: Sequence[Sequence[str]]) -> Iterator[Plane]:
    """Items of every row, 64 at a time; the first plane is there whatever the rows hold.

    Example:
      >>> [
      ...     (plane.rows, len(plane.items[-1]))
      ...     for plane in item_planes([("a",), tuple(map(str, range(70)))])
      ... ]
      [(slice(None, None, None), 64), (array([1]), 6)]
    """
    item_counts = np.fromiter(map(len, row_items_all), dtype=np.int64, count=len(row_items_all))
    max_items = int(item_counts.max(initial=0))
    yield Plane(
        slice(None),
        row_items_all
        if max_items <= MASK_BITS
        else [row_items[:MASK_BITS] for row_items in row_items_all],
    )
    for plane_start in range(MASK_BITS, max_items, MASK_BITS):
        longer_rows = np.flatnonzero(item_counts > plane_start)
        yield Plane(
            longer_rows,
            [
                row_items_all[int(row_items)][plane_start : plane_start + MASK_BITS]
                for row_items in longer_rows
            ],
        )


def item_masks(
    items: Sequence[Sequence[str]],
    holders: Mapping[str, PlaceArray],
    hit_chunks: WholeArray,
) -> BitArray:
    """Bit i of plane w of a hit is set where its chunk has the query's item 64·w + i.

    Args:
      items: per query, different ones.
      holders: item -> positions of the chunks that have it.
      hit_chunks: [B, K] chunk of each hit, -1 for none.

    Returns: uint64 [W, B, K] with as many planes as the longest list needs, one at least.
    """
    plane_masks = []
    for plane in item_planes(items):
        plane_mask = np.zeros(hit_chunks.shape, dtype=np.uint64)
        plane_mask[plane.rows] = bit_masks(plane.items, holders, hit_chunks[plane.rows])
        plane_masks.append(plane_mask)
    return np.stack(plane_masks)


def full_masks(item_counts: WholeArray, n_planes: int) -> BitArray:
    """Bits of that many items, uint64 [W, B].

    Example:
      >>> full_masks(np.array([2, 65]), 2).tolist()
      [[3, 18446744073709551615], [0, 1]]
    """
    plane_counts = np.clip(
        item_counts[None] - MASK_BITS * np.arange(n_planes)[:, None], 0, MASK_BITS
    )
    return np.array(
        [[(1 << int(n_items)) - 1 for n_items in row] for row in plane_counts],
        dtype=np.uint64,
    )


def bit_masks(
    items: Sequence[Sequence[str]],
    holders: Mapping[str, PlaceArray],
    hit_chunks: WholeArray,
) -> BitArray:
    """Bit i of a hit is set where its chunk has the query's i-th item.

    Args:
      items: per query, at most 64 different items.
      holders: item -> positions of the chunks that have it.
      hit_chunks: [Q, K] chunk of each hit, -1 for none.

    Returns: uint64 [Q, K].

    Raises:
      ValueError: a query has more than 64 items.
    """
    hit_masks = np.zeros(hit_chunks.shape, dtype=np.uint64)
    n_chunks = int(hit_chunks.max(initial=-1)) + 1
    bits_by_item: dict[str, list[tuple[int, int]]] = {}
    for query_index, query_items in enumerate(items):
        if len(query_items) > MASK_BITS:
            refuse(
                f"a query may name at most {MASK_BITS} entities, words or sources in one plane",
                len(query_items),
                "take item_masks",
            )
        for bit_index, item in enumerate(query_items):
            if item in holders:
                bits_by_item.setdefault(item, []).append((query_index, bit_index))
    is_member = np.zeros(n_chunks + 1, dtype=np.uint64)  # the last one stands for "no hit"
    for item, query_bits in bits_by_item.items():
        query_rows, item_bits = np.array(query_bits).T
        holder_chunks = holders[item]
        holder_chunks = holder_chunks[holder_chunks < n_chunks]
        is_member[holder_chunks] = 1
        hit_masks[query_rows] |= (
            is_member[hit_chunks[query_rows]] << item_bits.astype(np.uint64)[:, None]
        )
        is_member[holder_chunks] = 0
    return hit_masks


def positions(item_sets: Sequence[Sequence[str]]) -> dict[str, PlaceArray]:
    """Item -> positions of the sets that hold it."""
    positions_of_item: dict[str, list[int]] = {}
    for set_index, set_members in enumerate(item_sets):
        for item in dict.fromkeys(set_members):
            positions_of_item.setdefault(item, []).append(set_index)
    return {
        item: np.array(item_positions, dtype=np.intp)
        for item, item_positions in positions_of_item.items()
    }


def entity_requirements(
    pattern_counts: PatternHits, case_batch: CaseBatch, structure: Structure
) -> Entities:
    """Entities each question names, which hits carry them, and which the chosen hits must cover.

    Source: rule S2.5.
    """
    n_depths, _ = case_batch.shape
    entity_names = list(pattern_counts.query_entities) * n_depths
    carried_masks = item_masks(
        entity_names, positions(pattern_counts.chunk_entities), case_batch.keys.hit
    )
    n_entities = np.array([len(query_entities) for query_entities in entity_names], dtype=np.int64)
    named_masks = full_masks(n_entities, len(carried_masks))
    # a question that compares two, or a generic one that names one
    compares_entities, is_generic = (
        np.tile(pattern_counts.counts[:, pattern_column] > 0, n_depths) for pattern_column in (4, 5)
    )
    needs_coverage = (compares_entities & (n_entities >= 2)) | (is_generic & (n_entities >= 1))
    must_cover = np.where(needs_coverage, named_masks, 0)
    # Coverage is asked of every question; the extractor of the resolver is a switch of its own.
    if structure.entity_extractor:
        return Entities(carried_masks, must_cover, named_masks, carried_masks)
    return Entities(
        carried_masks, must_cover, np.zeros_like(named_masks), np.zeros_like(carried_masks)
    )


HITS_AT_ONCE = 1 << 16  # hits of sets looked up at once


def _bits(
    wanted_sources: Sequence[Collection[str]],
    plane_rows: PlaceArray | slice,
    row_sources: Sequence[Sequence[str]],
) -> BitArray:
    """Bits of the wanted sources of some rows among their own in a plane."""
    row_numbers = (
        range(len(wanted_sources))[plane_rows] if isinstance(plane_rows, slice) else plane_rows
    )
    wanted_sets = (frozenset(wanted_sources[row_number]) for row_number in row_numbers)
    wanted_and_row = zip(wanted_sets, row_sources, strict=True)
    return np.array(
        [
            sum(
                1 << bit_index
                for bit_index, source in enumerate(listed_sources)
                if source in wanted_set
            )
            for wanted_set, listed_sources in wanted_and_row
        ],
        np.uint64,
    )


class SlotLabels(NamedTuple):
    """What the hits of every slot carry, [B, S] each, or [D, S, Q] by `by_slot`.

    missing: entities to be covered that are not. right: whether the expected sources are there.
    share: of the question's content words, in [0, 1]; 1 where it has none.
    """

    missing: NDArray[np.unsignedinteger[Any]]
    right: BoolArray
    share: FloatArray


def slot_labels(
    chosen_hits: ChosenHits,
    case_batch: CaseBatch,
    entities: Entities,
    trace: TraceData,
    min_hits: int,
) -> SlotLabels:
    """Entities missing, expected sources found and keyword share of every slot.

    Args:
      min_hits: of a slot, that must hold an entity.
    """
    entity_planes = zip(entities.must_cover, entities.carried, strict=True)
    missing_counts = [
        np.bitwise_count(
            required_bits[:, None] & ~_unions(carried_bits, chosen_hits.places, min_hits)
        )
        for required_bits, carried_bits in entity_planes
    ]
    # as narrow as the number can be: the compiled kernel reads this table most
    max_missing = MASK_BITS * len(missing_counts)
    return SlotLabels(
        missing=np.add.reduce(missing_counts, dtype=np.min_scalar_type(max_missing))
        if len(missing_counts) > 1
        else missing_counts[0],
        right=_right(chosen_hits, case_batch, trace),
        share=_keyword_share(chosen_hits.places, case_batch, trace),
    )


def _right(chosen_hits: ChosenHits, case_batch: CaseBatch, trace: TraceData) -> BoolArray:
    """Whether a slot's hits hold what the case expects.

    All of some sources, one of others, and enough of them.
    """
    batch_cases = case_batch.cases
    hit_places = chosen_hits.places
    is_right = np.ones(hit_places.shape[:2], dtype=bool)
    expected_sources = [
        tuple(dict.fromkeys((*case.expect_sources, *case.expect_sources_any)))
        for case in batch_cases
    ]
    if not any(expected_sources) and not any(
        case.min_sources or case.expect_option is not None for case in batch_cases
    ):
        return is_right  # as of a question asked live
    all_sources = {source for case_sources in expected_sources for source in case_sources}
    meaning_of_source = source_meanings(all_sources, known_documents(trace)) if all_sources else {}
    check_clear(trace.cases, meaning_of_source)
    chunk_names = chunk_sources(trace.chunks, meaning_of_source)
    # Either step costs a pass over all sets of hits; a trace whose cases expect nothing of the kind
    # goes without.
    if all_sources:
        _expect_sources(is_right, hit_places, case_batch, expected_sources, positions(chunk_names))
    min_sources = np.array([case.min_sources for case in batch_cases])
    if min_sources.any():
        is_right &= _distinct_counts(case_batch.keys.source, hit_places) >= min_sources[:, None]
    _expect_option(
        is_right, (chosen_hits.options_all, chosen_hits.options_tied), case_batch, chunk_names
    )
    return is_right


def _expect_sources(
    is_right: BoolArray,
    hit_places: IntArray,
    case_batch: CaseBatch,
    expected_sources: Sequence[Sequence[str]],
    holders: Mapping[str, PlaceArray],
) -> None:
    """A slot that lacks a required source, or all of those of which one will do, is not right.

    Args:
      expected_sources: sources of each case.
      holders: source -> positions of its chunks.
    """
    accepts_any = np.array([bool(case.expect_sources_any) for case in case_batch.cases])
    has_any = np.zeros_like(is_right)
    required_sources, accepted_sources = (
        [getattr(case, field_name) for case in case_batch.cases]
        for field_name in ("expect_sources", "expect_sources_any")
    )
    for plane_rows, plane_sources in item_planes(expected_sources):
        held_bits = _unions(
            bit_masks(plane_sources, holders, case_batch.keys.hit[plane_rows]),
            hit_places[plane_rows],
        )
        required_bits = _bits(required_sources, plane_rows, plane_sources)[:, None]
        is_right[plane_rows] &= (held_bits & required_bits) == required_bits
        has_any[plane_rows] |= (
            held_bits & _bits(accepted_sources, plane_rows, plane_sources)[:, None]
        ) != 0
    is_right &= ~accepts_any[:, None] | has_any


def _keyword_share(hit_places: IntArray, case_batch: CaseBatch, trace: TraceData) -> FloatArray:
    """Share of the question's content words that stand in a slot's hits, [B, S].

    1 where it has none (rule S2.7).
    """
    query_words = [content_words(case.query, max_words=None) for case in case_batch.cases]
    # only words that are asked for become bits
    vocabulary = {content_word for words_of_query in query_words for content_word in words_of_query}
    chunk_words = [sorted(word_set(chunk.full_text) & vocabulary) for chunk in trace.chunks]
    holders = positions(chunk_words)
    n_found = np.zeros(hit_places.shape[:2], dtype=np.int64)
    for plane_rows, plane_words in item_planes(query_words):
        n_found[plane_rows] += np.bitwise_count(
            _unions(
                bit_masks(plane_words, holders, case_batch.keys.hit[plane_rows]),
                hit_places[plane_rows],
            )
        )
    n_words = np.array([len(words_of_query) for words_of_query in query_words], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        word_shares = n_found / n_words[:, None]
    word_shares[n_words == 0] = 1.0
    return word_shares


def _cache_blocks(hit_places: IntArray) -> list[slice]:
    """Parts of the batch whose sets of hits fit the cache of one core."""
    block_size = max(1, HITS_AT_ONCE // max(1, hit_places.shape[1] * hit_places.shape[2]))
    return [
        slice(block_start, block_start + block_size)
        for block_start in range(0, len(hit_places), block_size)
    ]


# a number
def _values_at(
    hit_values: AnyArray,
    hit_places: IntArray,
    missing_value: Any,  # noqa: ANN401
) -> AnyArray:
    """Values [b, K] at places [b, S, k]; `missing_value` if none."""
    taken_values = hit_values[np.arange(len(hit_values))[:, None, None], np.maximum(hit_places, 0)]
    return np.where(hit_places >= 0, taken_values, missing_value)


def _unions(hit_bits: BitArray, hit_places: IntArray, min_hits: int = 1) -> BitArray:
    """Bits that at least so many of every slot's hits have, [B, S]: their union for one.

    Example:
      >>> hit_bits = np.array([[0b011, 0b010, 0b110]], dtype=np.uint64)
      >>> slots = np.array([[[0, 1, 2], [0, 2, -1]]])
      >>> [_unions(hit_bits, slots, n)[0].tolist() for n in (1, 2)]
      [[7, 7], [2, 2]]
    """
    slot_bits = np.zeros(hit_places.shape[:2], dtype=np.uint64)
    for rows in _cache_blocks(hit_places):
        block_bits = _values_at(hit_bits[rows], hit_places[rows], np.uint64(0))
        if min_hits == 1:
            slot_bits[rows] = np.bitwise_or.reduce(block_bits, axis=2)
            continue
        # held[n]: bits of at least n of the hits so far.
        held_bits = [
            np.full_like(slot_bits[rows], ~np.uint64(0)),
            *(np.zeros_like(slot_bits[rows]) for _ in range(min_hits)),
        ]
        for bits_of_hit in np.moveaxis(block_bits, 2, 0):
            for n_holders in range(min_hits, 0, -1):
                held_bits[n_holders] |= held_bits[n_holders - 1] & bits_of_hit
        slot_bits[rows] = held_bits[min_hits]
    return slot_bits


def _distinct_counts(hit_keys: IntArray, hit_places: IntArray) -> IntArray:
    """How many different keys every slot's hits have, [B, S]."""
    counts = np.zeros(hit_places.shape[:2], dtype=np.int64)
    for rows in _cache_blocks(hit_places):
        sorted_keys = np.sort(_values_at(hit_keys[rows], hit_places[rows], -1), axis=2)
        counts[rows] = (np.diff(sorted_keys, axis=2, prepend=-1) != 0).sum(axis=2)
    return counts


def _expect_option(
    is_right: BoolArray,
    slot_options: Sequence[list[tuple[resolver.Option, ...]]],
    case_batch: CaseBatch,
    chunk_names: Sequence[Sequence[str]],
) -> None:
    """If a case says which option is right, that one must exist and hold the expected sources."""
    for row_index, case in enumerate(case_batch.cases):
        if case.expect_option is None:
            continue
        for slot, options_by_row in zip(OPTION_SLOTS, slot_options, strict=True):
            row_options = options_by_row[row_index]
            option_places = (
                row_options[case.expect_option - 1].places
                if 0 < case.expect_option <= len(row_options)
                else ()
            )
            option_sources = {
                source_name
                for hit_place in option_places
                for source_name in chunk_names[case_batch.keys.hit[row_index, hit_place]]
            }
            is_right[row_index, slot] &= bool(option_places) and option_sources.issuperset(
                case.expect_sources
            )
