"""What the chosen hits of every slot offer: entities covered, expected sources found, words of the query (layer 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raglab import evidence as measure
from raglab import resolver
from raglab.values import Case, Trace


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
    named = [(chunk.file_name, chunk.shown) for chunk in trace.chunks]
    specs = [_expected(case) for case in cases]
    source_mask = measure.bit_masks(specs, measure.positions(named), hit)
    every = _bits([case.expect_sources for case in cases], specs)
    some = _bits([case.expect_sources_any for case in cases], specs)
    asked = [measure.content_words(case.query) for case in cases]
    vocabulary = {word for row in asked for word in row}
    texts = [[word for word in set(measure.words(chunk.text)) if word in vocabulary] for chunk in trace.chunks]
    word_mask = measure.bit_masks(asked, measure.positions(texts), hit)
    n_words = np.array([len(row) for row in asked], dtype=np.float64)
    least = np.array([case.min_sources for case in cases])
    size, n_slots, _ = places.shape
    missing = np.zeros((size, n_slots), dtype=np.uint8)
    right = np.zeros((size, n_slots), dtype=bool)
    share = np.ones((size, n_slots))
    for slot in range(n_slots):
        chosen = places[:, slot]
        missing[:, slot] = np.bitwise_count(wanted & ~resolver.union_over(entity_mask, chosen))
        found = resolver.union_over(source_mask, chosen)
        right[:, slot] = ((found & every) == every) & ((some == 0) | ((found & some) != 0))
        with np.errstate(invalid="ignore"):
            share[:, slot] = np.bitwise_count(resolver.union_over(word_mask, chosen)) / n_words
        if least.any():
            pages = np.where(chosen >= 0, np.take_along_axis(page_key, np.maximum(chosen, 0), axis=1), -1)
            distinct = (np.diff(np.sort(pages, axis=1), axis=1, prepend=-1) != 0).sum(axis=1)
            right[:, slot] &= distinct >= least
    share[n_words == 0] = 1.0
    _expect_option(right, shown, cases, source_mask, every)
    return missing, right, share


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
