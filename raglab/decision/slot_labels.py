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
    BitArray,
    BoolArray,
    FloatArray,
    IntArray,
    PatternHits,
    PlaceArray,
    TraceData,
    refuse,
)
from raglab.words.text import MASK_BITS, content_words, word_set


class Plane(NamedTuple):
    """At most 64 items of every row that has so many.

    rows: of the batch; all of them in the first plane. items: of each of these rows.
    """

    rows: PlaceArray | slice
    items: Sequence[Sequence[str]]


def item_planes(items: Sequence[Sequence[str]]) -> Iterator[Plane]:
    """Items of every row, 64 at a time; the first plane is there whatever the rows hold.

    Example:
      >>> [
      ...     (plane.rows, len(plane.items[-1]))
      ...     for plane in item_planes([("a",), tuple(map(str, range(70)))])
      ... ]
      [(slice(None, None, None), 64), (array([1]), 6)]
    """
    lengths = np.fromiter(map(len, items), dtype=np.int64, count=len(items))
    longest = int(lengths.max(initial=0))
    yield Plane(slice(None), items if longest <= MASK_BITS else [row[:MASK_BITS] for row in items])
    for start in range(MASK_BITS, longest, MASK_BITS):
        rows = np.flatnonzero(lengths > start)
        yield Plane(rows, [items[int(row)][start : start + MASK_BITS] for row in rows])


def item_masks(
    items: Sequence[Sequence[str]],
    holders: Mapping[str, PlaceArray],
    chunk: NDArray[np.integer[Any]],
) -> BitArray:
    """Bit i of plane w of a hit is set where its chunk has the query's item 64·w + i.

    Args:
      items: per query, different ones.
      holders: item -> positions of the chunks that have it.
      chunk: [B, K] chunk of each hit, -1 for none.

    Returns: uint64 [W, B, K] with as many planes as the longest list needs, one at least.
    """
    masks = []
    for plane in item_planes(items):
        mask = np.zeros(chunk.shape, dtype=np.uint64)
        mask[plane.rows] = bit_masks(plane.items, holders, chunk[plane.rows])
        masks.append(mask)
    return np.stack(masks)


def full_masks(count: NDArray[np.integer[Any]], n_planes: int) -> BitArray:
    """Bits of that many items, uint64 [W, B].

    Example:
      >>> full_masks(np.array([2, 65]), 2).tolist()
      [[3, 18446744073709551615], [0, 1]]
    """
    parts = np.clip(count[None] - MASK_BITS * np.arange(n_planes)[:, None], 0, MASK_BITS)
    return np.array([[(1 << int(n)) - 1 for n in row] for row in parts], dtype=np.uint64)


def bit_masks(
    items: Sequence[Sequence[str]],
    holders: Mapping[str, PlaceArray],
    chunk: NDArray[np.integer[Any]],
) -> BitArray:
    """Bit i of a hit is set where its chunk has the query's i-th item.

    Args:
      items: per query, at most 64 different items.
      holders: item -> positions of the chunks that have it.
      chunk: [Q, K] chunk of each hit, -1 for none.

    Returns: uint64 [Q, K].

    Raises:
      ValueError: a query has more than 64 items.
    """
    masks = np.zeros(chunk.shape, dtype=np.uint64)
    n_chunks = int(chunk.max(initial=-1)) + 1
    bits_by_item: dict[str, list[tuple[int, int]]] = {}
    for query, row in enumerate(items):
        if len(row) > MASK_BITS:
            rule = f"a query may name at most {MASK_BITS} entities, words or sources in one plane"
            refuse(rule, len(row), "take item_masks")
        for bit, item in enumerate(row):
            if item in holders:
                bits_by_item.setdefault(item, []).append((query, bit))
    member = np.zeros(n_chunks + 1, dtype=np.uint64)  # the last one stands for "no hit"
    for item, pairs in bits_by_item.items():
        rows, bits = np.array(pairs).T
        where = holders[item]
        where = where[where < n_chunks]
        member[where] = 1
        masks[rows] |= member[chunk[rows]] << bits.astype(np.uint64)[:, None]
        member[where] = 0
    return masks


def positions(sets: Sequence[Sequence[str]]) -> dict[str, PlaceArray]:
    """Item -> positions of the sets that hold it."""
    lists: dict[str, list[int]] = {}
    for place, members in enumerate(sets):
        for item in dict.fromkeys(members):
            lists.setdefault(item, []).append(place)
    return {item: np.array(places, dtype=np.intp) for item, places in lists.items()}


def entity_requirements(hits_of: PatternHits, batch: CaseBatch, structure: Structure) -> Entities:
    """Entities each question names, which hits carry them, and which the chosen hits must cover.

    Source: rule S2.5.
    """
    depths, _ = batch.shape
    named = list(hits_of.query_entities) * depths
    carried = item_masks(named, positions(hits_of.chunk_entities), batch.keys.hit)
    n_entities = np.array([len(names) for names in named], dtype=np.int64)
    wanted = full_masks(n_entities, len(carried))
    # a question that compares two, or a generic one that names one
    compares, generic = (np.tile(hits_of.counts[:, column] > 0, depths) for column in (4, 5))
    needs_coverage = (compares & (n_entities >= 2)) | (generic & (n_entities >= 1))
    must_cover = np.where(needs_coverage, wanted, 0)
    # Coverage is asked of every question; the extractor of the resolver is a switch of its own.
    if structure.entity_extractor:
        return Entities(carried, must_cover, wanted, carried)
    return Entities(carried, must_cover, np.zeros_like(wanted), np.zeros_like(carried))


AT_ONCE = 1 << 16  # hits of sets looked up at once


def _bits(
    wanted: Sequence[Collection[str]],
    rows: PlaceArray | slice,
    specs: Sequence[Sequence[str]],
) -> BitArray:
    """Bits of the wanted sources of some rows among their own in a plane."""
    numbers = range(len(wanted))[rows] if isinstance(rows, slice) else rows
    sets = (frozenset(wanted[number]) for number in numbers)
    pairs = zip(sets, specs, strict=True)
    return np.array(
        [sum(1 << bit for bit, source in enumerate(spec) if source in own) for own, spec in pairs],
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
    chosen: ChosenHits, batch: CaseBatch, entities: Entities, trace: TraceData, min_hits: int
) -> SlotLabels:
    """Entities missing, expected sources found and keyword share of every slot.

    Args:
      min_hits: of a slot, that must hold an entity.
    """
    planes = zip(entities.must_cover, entities.carried, strict=True)
    lacking = [
        np.bitwise_count(must[:, None] & ~_unions(mask, chosen.places, min_hits))
        for must, mask in planes
    ]
    # as narrow as the number can be: the compiled kernel reads this table most
    most = MASK_BITS * len(lacking)
    return SlotLabels(
        missing=np.add.reduce(lacking, dtype=np.min_scalar_type(most))
        if len(lacking) > 1
        else lacking[0],
        right=_right(chosen, batch, trace),
        share=_keyword_share(chosen.places, batch, trace),
    )


def _right(chosen: ChosenHits, batch: CaseBatch, trace: TraceData) -> BoolArray:
    """Whether a slot's hits hold what the case expects.

    All of some sources, one of others, and enough of them.
    """
    cases, places = batch.cases, chosen.places
    right = np.ones(places.shape[:2], dtype=bool)
    specs = [
        tuple(dict.fromkeys((*case.expect_sources, *case.expect_sources_any))) for case in cases
    ]
    if not any(specs) and not any(
        case.min_sources or case.expect_option is not None for case in cases
    ):
        return right  # as of a question asked live
    sought = {source for spec in specs for source in spec}
    meanings = source_meanings(sought, known_documents(trace)) if sought else {}
    check_clear(trace.cases, meanings)
    named = chunk_sources(trace.chunks, meanings)
    # Either step costs a pass over all sets of hits; a trace whose cases expect nothing of the kind
    # goes without.
    if sought:
        _expect_sources(right, places, batch, specs, positions(named))
    least = np.array([case.min_sources for case in cases])
    if least.any():
        right &= _distinct_counts(batch.keys.source, places) >= least[:, None]
    _expect_option(right, (chosen.options_all, chosen.options_tied), batch, named)
    return right


def _expect_sources(
    right: BoolArray,
    places: IntArray,
    batch: CaseBatch,
    specs: Sequence[Sequence[str]],
    holders: Mapping[str, PlaceArray],
) -> None:
    """A slot that lacks a required source, or all of those of which one will do, is not right.

    Args:
      specs: sources of each case.
      holders: source -> positions of its chunks.
    """
    one_will_do = np.array([bool(case.expect_sources_any) for case in batch.cases])
    some = np.zeros_like(right)
    every, any_of = (
        [getattr(case, name) for case in batch.cases]
        for name in ("expect_sources", "expect_sources_any")
    )
    for rows, spec in item_planes(specs):
        sources = _unions(bit_masks(spec, holders, batch.keys.hit[rows]), places[rows])
        wanted = _bits(every, rows, spec)[:, None]
        right[rows] &= (sources & wanted) == wanted
        some[rows] |= (sources & _bits(any_of, rows, spec)[:, None]) != 0
    right &= ~one_will_do[:, None] | some


def _keyword_share(places: IntArray, batch: CaseBatch, trace: TraceData) -> FloatArray:
    """Share of the question's content words that stand in a slot's hits, [B, S].

    1 where it has none (rule S2.7).
    """
    words = [content_words(case.query, max_words=None) for case in batch.cases]
    # only words that are asked for become bits
    vocabulary = {word for row in words for word in row}
    texts = [sorted(word_set(chunk.full_text) & vocabulary) for chunk in trace.chunks]
    holders = positions(texts)
    n_found = np.zeros(places.shape[:2], dtype=np.int64)
    for rows, spec in item_planes(words):
        n_found[rows] += np.bitwise_count(
            _unions(bit_masks(spec, holders, batch.keys.hit[rows]), places[rows])
        )
    n_words = np.array([len(row) for row in words], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        share = n_found / n_words[:, None]
    share[n_words == 0] = 1.0
    return share


def _cache_blocks(places: IntArray) -> list[slice]:
    """Parts of the batch whose sets of hits fit the cache of one core."""
    step = max(1, AT_ONCE // max(1, places.shape[1] * places.shape[2]))
    return [slice(start, start + step) for start in range(0, len(places), step)]


# a number
def _values_at(
    values: NDArray[Any],
    places: IntArray,
    nothing: Any,  # noqa: ANN401
) -> NDArray[Any]:
    """Values [b, K] at places [b, S, k]; `nothing` where there is none."""
    taken = values[np.arange(len(values))[:, None, None], np.maximum(places, 0)]
    return np.where(places >= 0, taken, nothing)


def _unions(mask: BitArray, places: IntArray, least: int = 1) -> BitArray:
    """Bits that at least so many of every slot's hits have, [B, S]: their union where it is one."""
    out = np.zeros(places.shape[:2], dtype=np.uint64)
    for rows in _cache_blocks(places):
        bits = _values_at(mask[rows], places[rows], np.uint64(0))
        if least == 1:
            out[rows] = np.bitwise_or.reduce(bits, axis=2)
            continue
        # held[n]: bits of at least n of the hits so far.
        held = [
            np.full_like(out[rows], ~np.uint64(0)),
            *(np.zeros_like(out[rows]) for _ in range(least)),
        ]
        for hit in np.moveaxis(bits, 2, 0):
            for count in range(least, 0, -1):
                held[count] |= held[count - 1] & hit
        out[rows] = held[least]
    return out


def _distinct_counts(key: IntArray, places: IntArray) -> IntArray:
    """How many different keys every slot's hits have, [B, S]."""
    out = np.zeros(places.shape[:2], dtype=np.int64)
    for rows in _cache_blocks(places):
        ordered = np.sort(_values_at(key[rows], places[rows], -1), axis=2)
        out[rows] = (np.diff(ordered, axis=2, prepend=-1) != 0).sum(axis=2)
    return out


def _expect_option(
    right: BoolArray,
    options: Sequence[list[tuple[resolver.Option, ...]]],
    batch: CaseBatch,
    named: Sequence[Sequence[str]],
) -> None:
    """If a case says which option is right, that one must exist and hold the expected sources."""
    for row, case in enumerate(batch.cases):
        if case.expect_option is None:
            continue
        for slot, of_slot in zip(OPTION_SLOTS, options, strict=True):
            shown = of_slot[row]
            places = (
                shown[case.expect_option - 1].places if 0 < case.expect_option <= len(shown) else ()
            )
            there = {name for place in places for name in named[batch.keys.hit[row, place]]}
            right[row, slot] &= bool(places) and there.issuperset(case.expect_sources)
