"""What the chosen hits of every slot offer: entities covered, expected sources found, words of the query (layer 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab import evidence as measure
from raglab import resolver
from raglab.values import Case, Trace

AT_ONCE = 1 << 16  # hits of sets looked up at once


def _expected(case: Case) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*case.expect_sources, *case.expect_sources_any)))


def _bits(wanted: Sequence[Sequence[str]], specs: Sequence[Sequence[str]]) -> NDArray[np.uint64]:
    """Bits of the wanted sources among each case's own."""
    rows = zip(wanted, specs, strict=True)
    return np.array([sum(1 << spec.index(source) for source in set(row)) for row, spec in rows], dtype=np.uint64)


def judged(
    places: NDArray[np.int64],
    entity_mask: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    cases: Sequence[Case],
    trace: Trace,
    hit: NDArray[np.int64],
    page_key: NDArray[np.int64],
    shown: Sequence[list[tuple[resolver.Option, ...]]],
) -> tuple[NDArray[np.uint8], NDArray[np.bool_], NDArray[np.float64]]:
    """Entities missing, expected sources found and keyword share of every slot, [B, S] each."""
    specs = [_expected(case) for case in cases]
    sought = {source for spec in specs for source in spec}
    named = [[name for name in (chunk.file_name, chunk.shown) if name in sought] for chunk in trace.chunks]
    source_mask = measure.bit_masks(specs, measure.positions(named), hit)
    every = _bits([case.expect_sources for case in cases], specs)
    some = _bits([case.expect_sources_any for case in cases], specs)
    asked = [measure.content_words(case.query) for case in cases]
    vocabulary = {word for row in asked for word in row}
    texts = [sorted(measure.word_set(chunk.text) & vocabulary) for chunk in trace.chunks]
    word_mask = measure.bit_masks(asked, measure.positions(texts), hit)
    n_words = np.array([len(row) for row in asked], dtype=np.float64)
    least = np.array([case.min_sources for case in cases])
    missing = np.bitwise_count(wanted[:, None] & ~_unions(entity_mask, places)).astype(np.uint8)
    right = np.ones(places.shape[:2], dtype=bool)
    if sought:
        found = _unions(source_mask, places)
        right = (found & every[:, None]) == every[:, None]
        right &= (some == 0)[:, None] | ((found & some[:, None]) != 0)
    with np.errstate(invalid="ignore"):
        share = np.bitwise_count(_unions(word_mask, places)) / n_words[:, None]
    if least.any():
        right &= _distinct(page_key, places) >= least[:, None]
    share[n_words == 0] = 1.0
    _expect_option(right, shown, cases, source_mask, every)
    return missing, right, share


def _rows_at_once(places: NDArray[np.int64]) -> list[slice]:
    """Parts of the batch whose sets of hits fit the cache of one core."""
    step = max(1, AT_ONCE // max(1, places.shape[1] * places.shape[2]))
    return [slice(start, start + step) for start in range(0, len(places), step)]


def _taken(values: NDArray[Any], places: NDArray[np.int64], nothing: Any) -> NDArray[Any]:  # noqa: ANN401 - a number
    """Values [b, K] at places [b, S, k]; `nothing` where there is none."""
    taken = values[np.arange(len(values))[:, None, None], np.maximum(places, 0)]
    return np.where(places >= 0, taken, nothing)


def _unions(mask: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Union of the bits of every slot's hits, [B, S]."""
    out = np.zeros(places.shape[:2], dtype=np.uint64)
    for rows in _rows_at_once(places):
        out[rows] = np.bitwise_or.reduce(_taken(mask[rows], places[rows], np.uint64(0)), axis=2)
    return out


def _distinct(key: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many different keys every slot's hits have, [B, S]."""
    out = np.zeros(places.shape[:2], dtype=np.int64)
    for rows in _rows_at_once(places):
        ordered = np.sort(_taken(key[rows], places[rows], -1), axis=2)
        out[rows] = (np.diff(ordered, axis=2, prepend=-1) != 0).sum(axis=2)
    return out


def _expect_option(
    right: NDArray[np.bool_],
    shown: Sequence[list[tuple[resolver.Option, ...]]],
    cases: Sequence[Case],
    source_mask: NDArray[np.uint64],
    every: NDArray[np.uint64],
) -> None:
    """Where a case says which option is the right one, that option must exist and hold the expected sources."""
    for row, case in enumerate(cases):
        if case.expect_option is None:
            continue
        for slot, found in zip((-2, -1), shown, strict=True):
            places = found[row][case.expect_option - 1].places if 0 < case.expect_option <= len(found[row]) else ()
            bits = np.bitwise_or.reduce(source_mask[row, list(places)]) if places else np.uint64(0)
            right[row, slot] &= bool(places) and (bits & every[row]) == every[row]
