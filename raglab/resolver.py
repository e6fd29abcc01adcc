"""Resolver (algebra): ambiguity as an outcome; groups by signature, six rules in order, options (S3).

Everything but the rules' margins is free of thresholds: it is measured once for a trace, and every
threshold is replayed over it (rule S3.6). Hits stand in ascending L2 order on axis K.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.gates import Threshold
from raglab.signals import COSINE, LEAD, SQUARED_L2
from raglab.values import TAG_KEYS, Bools, Floats, Status


class Rule(NamedTuple):
    """One rule of the resolver: what it decides where it does, and the thresholds that it must reach, all of them.

    thresholds: each meets a field of `Contest`.
    """

    name: str
    status: Status
    thresholds: tuple[Threshold, ...] = ()


def _rule_threshold(key: str, *, meets: str, lead: bool = False) -> Threshold:
    unit = SQUARED_L2 if key == "min_group_gap" else LEAD if lead else COSINE
    return Threshold(f"resolver.{key}", "floor", unit, meets, nullable=True, log=lead)


RULES: tuple[Rule, ...] = (  # in their order: the first that decides wins (rule S3.3)
    Rule("single_group", Status.ok),
    Rule("overview", Status.ambiguous),
    Rule("entities", Status.ok),
    Rule("group_gap", Status.ok, (_rule_threshold("min_group_gap", meets="group_gap", lead=True),)),
    Rule(
        "signature_similarity",
        Status.ok,
        (
            _rule_threshold("min_sig_sim", meets="best_signature"),
            _rule_threshold("min_sig_sim_gap", meets="gap_signature", lead=True),
        ),
    ),
    Rule(
        "anchor_similarity",
        Status.ok,
        (
            _rule_threshold("min_anchor_sim", meets="best_anchor"),
            _rule_threshold("min_anchor_sim_gap", meets="gap_anchor", lead=True),
        ),
    ),
    Rule("options", Status.ambiguous),
)
INVALID_SELECTION = "Invalid selection: {option}"  # rule S3.7
ONE_OPTION = "single_option"  # what asking becomes where one option is left (rule S3.5)


def first_members(member: NDArray[np.bool_], order: NDArray[np.integer[Any]], k: int) -> NDArray[np.int64]:
    """Places of the first k members in a given order, [B, k], -1 where there are fewer.

    Args:
      member: [B, K]. order: places in the order wanted, a permutation, [B, K].
    """
    inside = np.take_along_axis(member, order, axis=1)
    lead = np.argsort(~inside, axis=1, kind="stable")[:, :k]
    chosen = np.where(np.take_along_axis(inside, lead, axis=1), np.take_along_axis(order, lead, axis=1), -1)
    return np.pad(chosen, ((0, 0), (0, k - chosen.shape[1])), constant_values=-1) if chosen.shape[1] < k else chosen


def union_over(mask: NDArray[np.uint64], chosen: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Union of the chosen hits' bits, [..., B]; mask [..., B, K], chosen [B, k] places or -1."""
    taken = mask[..., np.arange(len(chosen))[:, None], np.maximum(chosen, 0)]
    return np.bitwise_or.reduce(np.where(chosen >= 0, taken, np.uint64(0)), axis=-1)


def _bits_set(planes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Bits set over all planes, [...] of [W, ...]."""
    return np.bitwise_count(planes).sum(axis=0, dtype=np.int64)


def fill_entities(
    chosen: NDArray[np.int64],
    mask: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    page_key: NDArray[np.integer[Any]],
) -> NDArray[np.int64]:
    """Make room among the chosen hits for entities of the query that they lack, and look for them by l2.

    Args:
      chosen: places, [B, k], -1 at the end. mask: query's entities of each hit, [B, K], or [W, B, K] in W planes.
        wanted: bits of all the query's entities, [B] or [W, B]. page_key: number of each hit's (document, page),
        [B, K], -1 where there is no hit.

    Source: rule S3.4.
    """
    k = chosen.shape[1]
    chosen = chosen.copy()
    planes, asked = mask.reshape(-1, *page_key.shape), wanted.reshape(-1, len(page_key))
    lack = _bits_set(asked & ~union_over(planes, chosen))
    rows = np.nonzero((lack > 0) & (chosen[:, 0] >= 0))[0]
    if not len(rows):
        return chosen
    full = chosen[rows, k - 1] >= 0
    keep = np.where(full, np.maximum(1, k - np.minimum(k - 1, np.maximum(1, lack[rows]))), k)
    part = np.where(np.arange(k) < keep[:, None], chosen[rows], -1)
    bits, pages = planes[:, rows], page_key[rows]
    count = (part >= 0).sum(axis=1)
    missing = asked[:, rows] & ~union_over(bits, part)
    taken = np.where(part >= 0, np.take_along_axis(pages, np.maximum(part, 0), axis=1), -1)
    for place in range(page_key.shape[1]):
        if not missing.any():
            break
        page, new = pages[:, place], ((bits[:, :, place] & missing) != 0).any(axis=0)
        adds = (count < k) & (page >= 0) & new & (taken != page[:, None]).all(axis=1)
        at = np.nonzero(adds)[0]
        part[at, count[at]], taken[at, count[at]] = place, page[at]
        count[at] += 1
        missing[:, at] &= ~bits[:, at, place]
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
      file_key, page_key, page_only: numbers of each hit's document, (document, page) and page, [K].

    Returns: options whose `sources` are sorted page keys.

    Source: rule S3.5.
    """
    found: list[Option] = []
    seen: set[tuple[int, ...]] = set()
    for places in members:
        picked = _distinct_pages(places, file_key, page_key, page_only, final_k)
        sources = tuple(sorted({page_key[place] for place in picked}))
        if sources in seen:
            continue
        seen.add(sources)
        found.append(Option(len(found) + 1, tuple(picked), sources, l2[picked[0]]))
    return tuple(found)


def _distinct_pages(
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
    msg = INVALID_SELECTION.format(option=selected_option)
    raise KeyError(msg)


Signature = tuple[tuple[str, str], ...]

CORE_KEYS = TAG_KEYS[:3]
FALLBACK = "__file__:"


def signature(tags: Mapping[str, Any], document: str, *, strict: bool) -> Signature:
    """(key, value) pairs that tell a topic cluster from another; the document where there is no tag.

    Args:
      tags: of a chunk. document: its path or file name, by `resolver.document_identity`. strict: whether vendor and
        version count.

    Source: rule S3.1.

    Example:
      >>> signature({"domain": " Travel ", "product": ""}, "guide.md", strict=False)
      (('domain', 'travel'), ('doc_type', ''), ('product', ''))
      >>> signature({}, "guide.md", strict=True)[0]
      ('domain', '__file__:guide.md')
    """
    keys = TAG_KEYS if strict else CORE_KEYS
    return _signature(keys, tuple(str(tags.get(key) or "") for key in keys), document)


@lru_cache(maxsize=1 << 16)
def _signature(keys: tuple[str, ...], values: tuple[str, ...], document: str) -> Signature:
    """Signature of some values; kept, since a corpus has few, and every hit of every question asks for one."""
    found = tuple((key, value.strip().lower()) for key, value in zip(keys, values, strict=True))
    if any(value for _, value in found):
        return found
    return (("domain", f"{FALLBACK}{document}"), *((key, "") for key in keys[1:]))


def is_fallback(sign: Signature) -> bool:
    """Whether a signature stands for a file that has no tag."""
    return sign[0][1].startswith(FALLBACK)


def rendered(sign: Signature) -> str:
    """Text of a signature, as it is embedded.

    Source: rule S3.3.

    Example:
      >>> rendered((("domain", "travel"), ("doc_type", ""), ("product", "basic")))
      'domain: travel; product: basic'
    """
    return "; ".join(f"{key}: {value}" for key, value in sign if value)


class Groups(NamedTuple):
    """Hits by signature.

    group: number of each hit's group in order of best l2, [B, K], -1 for no hit. anchor: place of each group's best
    hit, [B, G], -1 for no group. n: groups, [B].
    """

    group: NDArray[np.int64]
    anchor: NDArray[np.int64]
    n: NDArray[np.int64]


def group_hits(sign: NDArray[np.integer[Any]]) -> Groups:
    """Group hits that share a signature.

    Args:
      sign: number of each hit's signature, [B, K] in l2 order, -1 where there is no hit.

    Source: rule S3.2.

    Example:
      >>> group_hits(np.array([[7, 3, 7, -1]])).group
      array([[ 0,  1,  0, -1]])
    """
    size, width = sign.shape
    first = np.empty((size, width), dtype=np.int64)
    for start in range(0, size, 512):
        block = sign[start : start + 512]
        first[start : start + 512] = (block[:, :, None] == block[:, None, :]).argmax(axis=2)
    valid = sign >= 0
    opens = valid & (first == np.arange(width))
    number = opens.cumsum(axis=1) - 1
    group = np.where(valid, np.take_along_axis(number, first, axis=1), -1)
    n = opens.sum(axis=1)
    anchor = np.full((size, max(1, int(n.max(initial=0)))), -1, dtype=np.int64)
    row, place = np.nonzero(opens)
    anchor[row, number[row, place]] = place
    return Groups(group, anchor, n)


def anchor_values(values: NDArray[Any], groups: Groups, missing: float) -> NDArray[Any]:
    """Value of each group's anchor, [B, G]; `missing` where there is no group."""
    taken = np.take_along_axis(values, np.maximum(groups.anchor, 0), axis=1)
    return np.where(groups.anchor >= 0, taken, missing)


class EntityRule(NamedTuple):
    """What rule `entities` says.

    winner: group, [B], -1 for none. candidates: groups that go on, [B, G]. order: of the groups by best l2, ties by
    their standing, a permutation, [B, G]. best: highest hit count, [B].
    """

    winner: NDArray[np.int64]
    candidates: NDArray[np.bool_]
    order: NDArray[np.int64]
    best: NDArray[np.int64]


def resolve_entities(mask: NDArray[np.uint64], groups: Groups, best_l2: NDArray[np.float64]) -> EntityRule:
    """Which group the query's entities point at.

    Args:
      mask: query's entities that each hit carries, bits [B, K], or [W, B, K] in W planes. best_l2: of the groups,
        [B, G].

    Source: rule S3.3, `entities`.
    """
    size, n_groups = groups.anchor.shape
    planes = mask.reshape(-1, *groups.group.shape)
    union = np.zeros((len(planes), size, n_groups + 1), dtype=np.uint64)
    members = np.zeros((size, n_groups + 1), dtype=np.int64)
    at = (np.arange(size)[:, None], groups.group)
    for of_plane, plane in zip(union, planes, strict=True):
        np.bitwise_or.at(of_plane, at, plane)
    np.add.at(members, at, planes.any(axis=0))
    exists = groups.anchor >= 0
    hits = np.where(exists, _bits_set(union[:, :, :-1]), -1)
    best = hits.max(axis=1, initial=0)
    tied = exists & (hits == best[:, None]) & (best[:, None] > 0)
    anchor_mask = planes[:, np.arange(size)[:, None], np.maximum(groups.anchor, 0)]
    anchors = _bits_set(np.where(exists, anchor_mask, np.uint64(0)))
    key = np.where(tied, anchors * (planes.shape[2] + 1) + members[:, :-1], -1)
    top = key.max(axis=1, initial=-1)
    leaders = tied & (key == top[:, None])
    nearest = np.where(leaders, best_l2, np.inf)
    leaders &= nearest == nearest.min(axis=1, initial=np.inf)[:, None]
    strict = leaders.sum(axis=1) == 1
    winner = np.where(strict & (best > 0), leaders.argmax(axis=1), -1)
    candidates = np.where(((best > 0) & (winner < 0))[:, None], tied, exists)
    standing = np.where(candidates & tied, -key, 0)
    order = np.lexsort((standing, np.where(candidates, best_l2, np.inf)), axis=1)
    return EntityRule(winner, candidates, order, best)


class Contest(NamedTuple):
    """The candidate groups' two best by distance, signature and anchor, [B] each.

    first, by_signature, by_anchor: group that would win (-1: none). group_gap: best_l2[1] - best_l2[0].
    best_* and gap_*: highest cosine and its lead; NaN where there is no second.
    """

    first: NDArray[np.int64]
    group_gap: NDArray[np.float64]
    by_signature: NDArray[np.int64]
    best_signature: NDArray[np.float64]
    gap_signature: NDArray[np.float64]
    by_anchor: NDArray[np.int64]
    best_anchor: NDArray[np.float64]
    gap_anchor: NDArray[np.float64]


def reshape_contest(seen: Contest, shape: tuple[int, ...]) -> Contest:
    """Contest with every field in another shape."""
    fields: list[Any] = [field.reshape(shape) for field in seen]
    return Contest(*fields)


def _best_two(
    values: NDArray[np.float64], order: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    filled = np.where(np.isnan(values), -np.inf, values)
    rows = np.arange(len(values))
    if order is None:
        winner = filled.argmax(axis=1)
    else:
        winner = order[rows, np.take_along_axis(filled, order, axis=1).argmax(axis=1)]
    best = filled[rows, winner]
    filled[rows, winner] = -np.inf
    second = filled.max(axis=1)
    known = np.isfinite(best)
    with np.errstate(invalid="ignore"):
        lead = np.where(np.isfinite(second), best - second, np.nan)
    return np.where(known, winner, -1), np.where(known, best, np.nan), lead


def contest(
    candidates: NDArray[np.bool_],
    best_l2: NDArray[np.float64],
    sig_sim: NDArray[np.float64],
    anchor_sim: NDArray[np.float64],
    order: NDArray[np.int64] | None = None,
) -> Contest:
    """Who would win by each of the rules that have a threshold.

    Args:
      candidates: groups that go on, [B, G].
      best_l2, sig_sim, anchor_sim: of the groups, [B, G].
      order: of the groups, a permutation, where it is not their number.

    Source: rule S3.3, `group_gap`, `signature_similarity`, `anchor_similarity`.
    """
    nearest, _, gap = _best_two(np.where(candidates, -best_l2, -np.inf), order)
    signature_, anchor_ = (_best_two(np.where(candidates, sim, -np.inf), order) for sim in (sig_sim, anchor_sim))
    return Contest(nearest, gap, *signature_, *anchor_)


class RuleThresholds(NamedTuple):
    """Thresholds of the rules; NaN where a rule never decides, -inf where a comparison is not asked for.

    min_group_gap: squared L2. min_sig_sim, min_anchor_sim: cosine. min_*_gap: lead in cosine.
    """

    min_group_gap: Floats
    min_sig_sim: Floats
    min_sig_sim_gap: Floats
    min_anchor_sim: Floats
    min_anchor_sim_gap: Floats


class RuleMargins(NamedTuple):
    """Headroom of the rules that have a threshold; the first that is >= 0 picks its group."""

    group_gap: Floats
    signature_similarity: Floats
    anchor_similarity: Floats


def rule_margins(seen: Contest, thresholds: RuleThresholds) -> RuleMargins:
    """Headroom of `group_gap`, `signature_similarity` and `anchor_similarity`.

    Source: rule S3.3.
    """
    return RuleMargins(
        group_gap=np.subtract(seen.group_gap, thresholds.min_group_gap),
        signature_similarity=np.minimum(
            np.subtract(seen.best_signature, thresholds.min_sig_sim),
            np.subtract(seen.gap_signature, thresholds.min_sig_sim_gap),
        ),
        anchor_similarity=np.minimum(
            np.subtract(seen.best_anchor, thresholds.min_anchor_sim),
            np.subtract(seen.gap_anchor, thresholds.min_anchor_sim_gap),
        ),
    )


def decides(margin: Floats) -> Bools:
    """Whether a rule picks its group, bool [...]; a missing measurement (NaN) decides nothing."""
    return np.greater_equal(margin, 0.0)
