"""Item masks (algebra): which question words, entities or sources a hit has (S2.5, S2.7, S6.1).

A mask is a number of 64 bits. A question with more items has a second number, and so on: planes. A
batch has as many planes as its longest question needs, and a plane after the first holds only the
rows that reach it, so that one long list costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.words.text import BITS


class Plane(NamedTuple):
    """At most 64 items of every row that has so many.

    rows: of the batch; all of them in the first plane. items: of each of these rows.
    """

    rows: NDArray[np.intp] | slice
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
    yield Plane(slice(None), items if longest <= BITS else [row[:BITS] for row in items])
    for start in range(BITS, longest, BITS):
        rows = np.flatnonzero(lengths > start)
        yield Plane(rows, [items[int(row)][start : start + BITS] for row in rows])


def item_masks(
    items: Sequence[Sequence[str]],
    holders: Mapping[str, NDArray[np.intp]],
    chunk: NDArray[np.integer[Any]],
) -> NDArray[np.uint64]:
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


def full_masks(count: NDArray[np.integer[Any]], n_planes: int) -> NDArray[np.uint64]:
    """Bits of that many items, uint64 [W, B].

    Example:
      >>> full_masks(np.array([2, 65]), 2).tolist()
      [[3, 18446744073709551615], [0, 1]]
    """
    parts = np.clip(count[None] - BITS * np.arange(n_planes)[:, None], 0, BITS)
    return np.array([[(1 << int(n)) - 1 for n in row] for row in parts], dtype=np.uint64)


def bit_masks(
    items: Sequence[Sequence[str]],
    holders: Mapping[str, NDArray[np.intp]],
    chunk: NDArray[np.integer[Any]],
) -> NDArray[np.uint64]:
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
        if len(row) > BITS:
            msg = (
                f"a query may name at most {BITS} entities, words or sources in one plane, got "
                f"{len(row)}; "
            )
            msg += "take item_masks."
            raise ValueError(msg)
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


def positions(sets: Sequence[Sequence[str]]) -> dict[str, NDArray[np.intp]]:
    """Item -> positions of the sets that hold it."""
    lists: dict[str, list[int]] = {}
    for place, members in enumerate(sets):
        for item in dict.fromkeys(members):
            lists.setdefault(item, []).append(place)
    return {item: np.array(places, dtype=np.intp) for item, places in lists.items()}
