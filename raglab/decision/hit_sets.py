"""Hit sets (algebra): numbers of what hits are of, place sets of decisions (S2.4, S3.5).

A decision may rest on such a set of places.

A set of hits is a row of places, -1 at the end. All prefixes of the hits, every group and every
option are laid out so, before anything is asked of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates, resolver
from raglab.values import Chunk


class Keys(NamedTuple):
    """Numbers of what each hit is of, [B, K], -1 where there is no hit.

    hit: chunk. file: document, as the policy identifies it. page: (document, page), numbered in the
    order of `pages`. page_only: page. core, sign: signature, without and (where asked for) with
    vendor and version. tagged: whether it has a tag, bool. text: text. pages: document, as the
    policy identifies it, and page by number. sources: path and page by number, the same list where
    the policy identifies documents by path; source_of: number of each chunk's, [C].
    """

    hit: NDArray[np.int64]
    file: NDArray[np.int64]
    page: NDArray[np.int64]
    page_only: NDArray[np.int64]
    core: NDArray[np.int64]
    sign: NDArray[np.int64]
    tagged: NDArray[np.bool_]
    text: NDArray[np.int64]
    pages: list[tuple[str, str]]
    sources: list[tuple[str, str]]
    source_of: NDArray[np.int64]

    @property
    def source(self) -> NDArray[np.int64]:
        """Number of each hit's path and page, [B, K], -1 where there is no hit."""
        return np.append(self.source_of, -1)[self.hit]


def hit_keys(
    chunks: Sequence[Chunk], hit_chunk: NDArray[np.integer[Any]], *, strict: bool, identity: str
) -> Keys:
    """Keys of hits.

    Args:
      hit_chunk: of each hit, [B, K], -1 where there is none.
      strict: whether vendor and version tell groups apart.
      identity: what one document is, `path` or `file_name` (`resolver.document_identity`).

    Source: rules S3.1, S3.4, S3.5.
    """
    hit = np.where(hit_chunk >= 0, hit_chunk, -1).astype(np.int64)

    def by_hit(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(hit >= 0, np.append(values, -1)[hit], -1)

    # Keys are numbers, so that hits compare as arrays and not text by text.
    names = [document_name(chunk, identity) for chunk in chunks]
    pages, page_of = _sorted_numbers(
        [(name, chunk.page_shown) for name, chunk in zip(names, chunks, strict=True)]
    )
    # An answer names its sources by path and scoring counts them so, whatever the resolver takes
    # for one document.
    sources, source_of = pages, page_of
    if identity != PATH:
        sources, source_of = _sorted_numbers(
            [(chunk.document, chunk.page_shown) for chunk in chunks]
        )
    # Vendor and version part groups only where strict; the core leaves them out in any case (rule
    # S3.1).
    signatures = [
        resolver.signature(chunk.tags, name, strict=False)
        for name, chunk in zip(names, chunks, strict=True)
    ]
    core = by_hit(_value_numbers(signatures))
    tagged = np.array([not resolver.is_fallback(signature) for signature in signatures] + [False])[
        hit
    ]
    sign = core
    if strict:
        strictly = (
            resolver.signature(chunk.tags, name, strict=True)
            for name, chunk in zip(names, chunks, strict=True)
        )
        sign = by_hit(_value_numbers(list(strictly)))
    return Keys(
        hit=hit,
        file=by_hit(_value_numbers(names)),
        page=by_hit(page_of),
        page_only=by_hit(_value_numbers([chunk.page_shown for chunk in chunks])),
        core=core,
        sign=sign,
        tagged=tagged,
        text=by_hit(_value_numbers([chunk.full_text for chunk in chunks])),
        pages=pages,
        sources=sources,
        source_of=source_of,
    )


PATH = "path"  # of `resolver.document_identity`


def document_name(chunk: Chunk, identity: str) -> str:
    """What tells a chunk's document from others in the resolver (rules S3.1, S3.4, S3.5)."""
    return chunk.document if identity == PATH else chunk.file_name


def _sorted_numbers(
    values: Sequence[tuple[str, str]],
) -> tuple[list[tuple[str, str]], NDArray[np.int64]]:
    """Different values, sorted, and the number of each among them."""
    different = sorted(set(values))
    place = {value: number for number, value in enumerate(different)}
    return different, np.array([place[value] for value in values], dtype=np.int64)


def _value_numbers(values: Sequence[Any]) -> NDArray[np.int64]:
    known: dict[Any, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


def first_k_by_count(order: NDArray[np.int64], hit: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """First k in the order wanted among the n nearest hits, for n = 0 … K: places [B, K + 1, k].

    The k least positions of every prefix at once: what a prefix's least displaces competes for its
    second, and so on.
    """
    size, width = hit.shape
    position = np.empty_like(order)
    np.put_along_axis(
        position,
        np.ascontiguousarray(order),
        np.broadcast_to(np.arange(width), order.shape),
        axis=1,
    )
    entry = np.where(hit >= 0, position, width)
    best = np.full((size, width + 1, k), width, dtype=np.int64)
    for level in range(min(k, width)):
        least = np.minimum.accumulate(entry, axis=1)
        best[:, 1:, level] = least
        before = np.concatenate([np.full((size, 1), width), least[:, :-1]], axis=1)
        entry = np.maximum(entry, before)
    padded = np.append(order, np.full((size, 1), -1), axis=1)
    return np.take_along_axis(padded, best.reshape(size, (width + 1) * k), axis=1).reshape(
        best.shape
    )


def agree(keys: Keys, chunks: Sequence[Chunk], near_pages: int) -> NDArray[np.bool_]:
    """Whether the first two hits agree by `raglab.gates.hits_agree`, [B].

    False where there are fewer than two.

    One document is one path, whatever the resolver's identity: so the conformance cases have it.

    Source: rule S2.4.
    """
    hit = keys.hit[:, :2]
    if hit.shape[1] < 2:
        return np.zeros(len(hit), dtype=bool)
    page = np.array(
        [np.nan if chunk.page is None else float(chunk.page) for chunk in chunks] + [np.nan]
    )
    document = np.append(_value_numbers([chunk.document for chunk in chunks]), -1)
    return gates.hits_agree(
        document[hit], page[hit], keys.core[:, :2], keys.tagged[:, 0], near_pages
    )


def row_options(
    groups: resolver.Groups,
    candidates: NDArray[np.bool_],
    order: NDArray[np.int64],
    keys: Keys,
    l2: NDArray[np.float64],
    size: tuple[int, int],
    known: list[tuple[resolver.Option, ...]] | None = None,
) -> list[tuple[resolver.Option, ...]]:
    """Options of every row.

    Args:
      candidates: groups that go on, [B, G].
      order: of them, a permutation, [B, G].
      l2: [B, K].
      size: max_options and final_k.
      known: options of all groups, taken where all go on in their order.

    Source: rule S3.5.
    """
    most, final_k = size
    in_order = order == np.arange(order.shape[1])
    same = (in_order & (candidates == (groups.anchor >= 0))).all(axis=1)
    options = []
    for row in range(len(candidates)):
        if known is not None and same[row]:
            options.append(known[row])
            continue
        group = groups.group[row]
        leaders = [leader for leader in order[row] if candidates[row, leader]][:most]
        members = [np.nonzero(group == leader)[0].tolist() for leader in leaders]
        numbers = (
            keys.file[row].tolist(),
            keys.page[row].tolist(),
            keys.page_only[row].tolist(),
            l2[row].tolist(),
        )
        options.append(resolver.options(members, *numbers, final_k))
    return options


def option_places(options: list[tuple[resolver.Option, ...]]) -> NDArray[np.int64]:
    """Places of all hits of a row's options, [B, most], -1 at the end."""
    rows = [[place for option in of_row for place in option.places] for of_row in options]
    places = np.full((len(rows), max(map(len, rows), default=0)), -1, dtype=np.int64)
    for row, every in enumerate(rows):
        places[row, : len(every)] = every
    return places


def pad_sets(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Sets of places of different widths as one array, [B, S, most], -1 at the end.

    Args:
      parts: [B, s, width] or, of one set, [B, width].
    """
    whole = [part if part.ndim == 3 else part[:, None] for part in parts]
    sizes = [part.shape[1] for part in whole]
    out = np.full(
        (len(whole[0]), sum(sizes), max(part.shape[2] for part in whole)), -1, dtype=np.int64
    )
    start = 0
    for part, size in zip(whole, sizes, strict=True):
        out[:, start : start + size, : part.shape[2]] = part
        start += size
    return out
