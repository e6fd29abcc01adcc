"""Chosen hits of a group, entity fill, and the options shown when no rule decides (rules S3.4, S3.5, S3.7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


def first_k(member: NDArray[np.bool_], order: NDArray[np.integer[Any]], k: int) -> NDArray[np.int64]:
    """Places of the first k members in a given order, [B, k], -1 where there are fewer.

    Args:
      member: [B, K]. order: places in the order wanted, a permutation, [B, K].
    """
    inside = np.take_along_axis(member, order, axis=1)
    lead = np.argsort(~inside, axis=1, kind="stable")[:, :k]
    chosen = np.where(np.take_along_axis(inside, lead, axis=1), np.take_along_axis(order, lead, axis=1), -1)
    return np.pad(chosen, ((0, 0), (0, k - chosen.shape[1])), constant_values=-1) if chosen.shape[1] < k else chosen


def union_over(mask: NDArray[np.uint64], chosen: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Union of the chosen hits' bits, [B]; mask [B, K], chosen [B, k] places or -1."""
    taken = np.take_along_axis(mask, np.maximum(chosen, 0), axis=1)
    return np.bitwise_or.reduce(np.where(chosen >= 0, taken, np.uint64(0)), axis=1)


def fill_entities(
    chosen: NDArray[np.int64],
    mask: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    page_key: NDArray[np.integer[Any]],
) -> NDArray[np.int64]:
    """Make room among the chosen hits for entities of the query that they lack, and look for them by l2.

    Args:
      chosen: places, [B, k], -1 at the end. mask: query's entities of each hit, [B, K]. wanted: bits of all the
        query's entities, [B]. page_key: number of each hit's (file name, page), [B, K], -1 where there is no hit.

    Source: rule S3.4.
    """
    k = chosen.shape[1]
    chosen = chosen.copy()
    lack = np.bitwise_count(wanted & ~union_over(mask, chosen)).astype(np.int64)
    rows = np.nonzero((lack > 0) & (chosen[:, 0] >= 0))[0]
    if not len(rows):
        return chosen
    full = chosen[rows, k - 1] >= 0
    keep = np.where(full, np.maximum(1, k - np.minimum(k - 1, np.maximum(1, lack[rows]))), k)
    part = np.where(np.arange(k) < keep[:, None], chosen[rows], -1)
    bits, pages = mask[rows], page_key[rows]
    count = (part >= 0).sum(axis=1)
    missing = wanted[rows] & ~union_over(bits, part)
    taken = np.where(part >= 0, np.take_along_axis(pages, np.maximum(part, 0), axis=1), -1)
    for place in range(mask.shape[1]):
        if not missing.any():
            break
        page = pages[:, place]
        adds = (count < k) & (page >= 0) & ((bits[:, place] & missing) != 0) & (taken != page[:, None]).all(axis=1)
        at = np.nonzero(adds)[0]
        part[at, count[at]], taken[at, count[at]] = place, page[at]
        count[at] += 1
        missing[at] &= ~bits[at, place]
    chosen[rows] = part
    return chosen


class Option(NamedTuple):
    """One answer to "which did you mean?": chosen places among the hits, and where they come from."""

    option_id: int
    places: tuple[int, ...]
    sources: tuple[int, ...]
    best_l2: float


def options(
    members: Sequence[Sequence[int]],
    file_key: Sequence[int],
    page_key: Sequence[int],
    page_only: Sequence[int],
    l2: Sequence[float],
    final_k: int,
) -> tuple[Option, ...]:
    """Options of one query, one a group; options with the same sources are one.

    Args:
      members: places of each candidate group's hits in l2 order, the first `max_options` groups.
      file_key, page_key, page_only: numbers of each hit's file name, (file name, page) and page, [K].

    Returns: options whose `sources` are sorted page keys.

    Source: rule S3.5.
    """
    found: list[Option] = []
    seen: set[tuple[int, ...]] = set()
    for places in members:
        picked = _distinct(places, file_key, page_key, page_only, final_k)
        sources = tuple(sorted({page_key[place] for place in picked}))
        if sources in seen:
            continue
        seen.add(sources)
        found.append(Option(len(found) + 1, tuple(picked), sources, l2[picked[0]]))
    return tuple(found)


def _distinct(
    places: Sequence[int], file_key: Sequence[int], page_key: Sequence[int], page_only: Sequence[int], final_k: int
) -> list[int]:
    anchor = places[0]
    pool = sorted(places[1:], key=lambda place: file_key[place] != file_key[anchor])
    picked, pages, files, sources = [anchor], {page_only[anchor]}, {file_key[anchor]}, {page_key[anchor]}
    new_in_pass: tuple[Callable[[int], bool], ...] = (
        lambda p: page_only[p] not in pages,
        lambda p: file_key[p] not in files,
        lambda _: True,
    )
    for is_new in new_in_pass:
        for place in pool:
            if len(picked) >= final_k:
                return picked
            if page_key[place] not in sources and is_new(place):
                picked.append(place)
                pages.add(page_only[place])
                files.add(file_key[place])
                sources.add(page_key[place])
    return picked


def select(found: Sequence[Option], selected_option: int) -> Option:
    """The option that the user chose.

    Raises:
      KeyError: `Invalid selection: <id>`, the reason of the refusal (rule S3.7).
    """
    for option in found:
        if option.option_id == selected_option:
            return option
    msg = f"Invalid selection: {selected_option}"
    raise KeyError(msg)
