"""Resolver (algebra): ambiguity as an outcome.

Groups by signature, six rules in order, options (S3).

`resolve` decides groups that are given as arrays, by the rules of `resolver_rules`, which the chain
calls too. Everything but the rules' margins is free of thresholds: it is measured once for a trace,
and every threshold is replayed over it (rule S3.6). Hits stand in ascending L2 order on axis K.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import ROUNDING_TOLERANCE, float_array
from raglab.policy_parts.resolver_rules import (
    ONE_OPTION,
    OUTCOMES,
    RULES,
    RULES_ON,
    Contest,
    Rule,
    RuleEvidence,
    RuleMargins,
    RuleSwitches,
    RuleThresholds,
    contest,
    decide_rules,
    decides,
    entities_rule_applies,
    is_overview,
    reshape_contest,
    rule_margins,
    ties_on_entities,
)
from raglab.signals import COSINE, Unit
from raglab.values import TAG_KEYS, BitArray, BoolArray, FloatArray, IntArray, Status, refuse

__all__ = [
    "ONE_OPTION",
    "OUTCOMES",
    "RULES",
    "Contest",
    "EntityCounts",
    "EntityRule",
    "Groups",
    "Option",
    "Resolution",
    "Rule",
    "RuleEvidence",
    "RuleMargins",
    "RuleSwitches",
    "RuleThresholds",
    "anchor_values",
    "contest",
    "decide_rules",
    "decides",
    "entities_rule_applies",
    "entity_counts",
    "fill_entities",
    "first_members",
    "group_hits",
    "is_fallback",
    "is_overview",
    "options",
    "rank_entities",
    "rendered",
    "reshape_contest",
    "resolve",
    "resolve_entities",
    "rule_margins",
    "select",
    "signature",
    "ties_on_entities",
    "union_over",
]


def first_members(member: BoolArray, order: NDArray[np.integer[Any]], k: int) -> IntArray:
    """Places of the first k members in a given order, [B, k], -1 where there are fewer.

    Args:
      member: whether each hit belongs to the group, [B, K].
      order: places in the order wanted, a permutation, [B, K].
      k: members at most.
    """
    inside = np.take_along_axis(member, order, axis=1)
    lead = np.argsort(~inside, axis=1, kind="stable")[:, :k]
    chosen = np.where(
        np.take_along_axis(inside, lead, axis=1), np.take_along_axis(order, lead, axis=1), -1
    )
    return (
        np.pad(chosen, ((0, 0), (0, k - chosen.shape[1])), constant_values=-1)
        if chosen.shape[1] < k
        else chosen
    )


def union_over(mask: BitArray, chosen: NDArray[np.integer[Any]]) -> BitArray:
    """Union of the chosen hits' bits, [..., B].

    Args:
      mask: bits of each hit, [..., B, K].
      chosen: places, [B, k], -1 at the end.
    """
    taken = mask[..., np.arange(len(chosen))[:, None], np.maximum(chosen, 0)]
    return np.bitwise_or.reduce(np.where(chosen >= 0, taken, np.uint64(0)), axis=-1)


def _planes(bits: BitArray, n_axes: int) -> BitArray:
    """Bits as planes, [W, ...]: those of one plane may come without its axis.

    n_axes: of a plane.
    """
    return bits[None] if bits.ndim == n_axes else bits


def _bits_set(planes: BitArray) -> IntArray:
    """Bits set over all planes, [...] of [W, ...]."""
    return np.bitwise_count(planes).sum(axis=0, dtype=np.int64)


def fill_entities(
    chosen: IntArray,
    mask: BitArray,
    wanted: BitArray,
    page_key: NDArray[np.integer[Any]],
) -> IntArray:
    """Make room among chosen hits for query entities they lack, and look for those by l2.

    Args:
      chosen: places, [B, k], -1 at the end.
      mask: query's entities of each hit, [B, K], or [W, B, K] in W planes.
      wanted: bits of all the query's entities, [B] or [W, B].
      page_key: number of each hit's (document, page), [B, K], -1 where there is no hit.

    Source: rule S3.4.
    """
    k = chosen.shape[1]
    chosen = chosen.copy()
    planes, wanted_planes = _planes(mask, 2), _planes(wanted, 1)
    lack = _bits_set(wanted_planes & ~union_over(planes, chosen))
    rows = np.nonzero((lack > 0) & (chosen[:, 0] >= 0))[0]
    if not len(rows):
        return chosen
    full = chosen[rows, k - 1] >= 0
    keep = np.where(full, np.maximum(1, k - np.minimum(k - 1, np.maximum(1, lack[rows]))), k)
    part = np.where(np.arange(k) < keep[:, None], chosen[rows], -1)
    bits, pages = planes[:, rows], page_key[rows]
    count = (part >= 0).sum(axis=1)
    missing = wanted_planes[:, rows] & ~union_over(bits, part)
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
    """One answer to "which did you mean?": chosen places among the hits, and their sources.

    Attributes:
      option_id: from 1.
      places: positions of its hits, the nearest first.
      sources: page keys of these hits, sorted.
      best_l2: squared L2 of the nearest of them.
    """

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
      file_key: number of each hit's document, [K].
      page_key: number of each hit's (document, page), [K].
      page_only: number of each hit's page, [K].
      l2: squared L2 of each hit, [K], ascending.
      final_k: hits of an option at most.

    Returns:
      Options whose `sources` are sorted page keys.

    Source: rule S3.5.
    """
    distinct: list[Option] = []
    known_sources: set[tuple[int, ...]] = set()
    for places in members:
        picked = _distinct_pages(places, file_key, page_key, page_only, final_k)
        sources = tuple(sorted({page_key[place] for place in picked}))
        if sources in known_sources:
            continue
        known_sources.add(sources)
        distinct.append(Option(len(distinct) + 1, tuple(picked), sources, l2[picked[0]]))
    return tuple(distinct)


def _distinct_pages(
    places: Sequence[int],
    file_key: Sequence[int],
    page_key: Sequence[int],
    page_only: Sequence[int],
    final_k: int,
) -> list[int]:
    anchor = places[0]
    pool = sorted(places[1:], key=lambda place: file_key[place] != file_key[anchor])
    picked, pages, files, sources = (
        [anchor],
        {page_only[anchor]},
        {file_key[anchor]},
        {page_key[anchor]},
    )
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


def select(choices: Sequence[Option], selected_option: int) -> Option:
    """The option that the user chose.

    Args:
      choices: options that were offered.
      selected_option: number that the user chose, from 1.

    Raises:
      KeyError: `Invalid selection: <id>`, the reason of the refusal (rule S3.7).
    """
    for option in choices:
        if option.option_id == selected_option:
            return option
    msg = f"Invalid selection: {selected_option}"
    raise KeyError(msg)


Signature = tuple[tuple[str, str], ...]

CORE_KEYS = TAG_KEYS[:3]
FALLBACK = "__file__:"


def signature(tags: Mapping[str, Any], document: str, *, strict: bool) -> Signature:
    """(key, value) pairs that tell a topic cluster from another.

    The document where there is no tag.

    Args:
      tags: of a chunk.
      document: its path or file name, by `resolver.document_identity`.
      strict: whether vendor and version count.

    Source: rule S3.1.

    Example:
      >>> signature({"domain": " Travel ", "product": ""}, "guide.md", strict=False)
      (('domain', 'travel'), ('doc_type', ''), ('product', ''))
      >>> signature({}, "guide.md", strict=True)[0]
      ('domain', '__file__:guide.md')
    """
    keys = TAG_KEYS if strict else CORE_KEYS
    values = [str(tags.get(key) or "").strip().lower() for key in keys]
    if any(values):
        return tuple(zip(keys, values, strict=True))
    return (("domain", f"{FALLBACK}{document}"), *((key, "") for key in keys[1:]))


def is_fallback(sign: Signature) -> bool:
    """Whether a signature is the fallback of a file without a tag.

    Args:
      sign: signature.
    """
    return sign[0][1].startswith(FALLBACK)


def rendered(sign: Signature) -> str:
    """Text of a signature, as it is embedded.

    Args:
      sign: signature.

    Source: rule S3.3.

    Example:
      >>> rendered((("domain", "travel"), ("doc_type", ""), ("product", "basic")))
      'domain: travel; product: basic'
    """
    return "; ".join(f"{key}: {value}" for key, value in sign if value)


class Groups(NamedTuple):
    """Hits by signature.

    Attributes:
      group: number of each hit's group in order of best l2, [B, K], -1 for no hit.
      anchor: place of each group's best hit, [B, G], -1 for no group.
      n: groups, [B].
    """

    group: IntArray
    anchor: IntArray
    n: IntArray


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
    """Value of each group's anchor, [B, G]; `missing` where there is no group.

    Args:
      values: of each hit, [B, K].
      groups: of the hits.
      missing: value where there is no group.
    """
    taken = np.take_along_axis(values, np.maximum(groups.anchor, 0), axis=1)
    return np.where(groups.anchor >= 0, taken, missing)


class EntityRule(NamedTuple):
    """Result of rule `entities`.

    Attributes:
      winner: number of the group, [B], -1 for none.
      candidates: groups that remain, [B, G].
      order: of the groups by best l2, ties by their place, a permutation, [B, G].
      best: highest hit count, [B].
    """

    winner: IntArray
    candidates: BoolArray
    order: IntArray
    best: IntArray


class EntityCounts(NamedTuple):
    """Entities of the query in each group, [B, G].

    Attributes:
      hits: entities among all hits of the group, -1 where there is no group.
      anchors: entities in the group's anchor.
      members: hits of the group that carry an entity.
    """

    hits: IntArray
    anchors: IntArray
    members: IntArray


def entity_counts(mask: BitArray, groups: Groups) -> EntityCounts:
    """Count the query's entities in every group.

    Args:
      mask: query's entities that each hit carries, bits [B, K], or [W, B, K] in W planes.
      groups: of the hits.

    Source: rule S3.3, `entities`.
    """
    size, n_groups = groups.anchor.shape
    planes = _planes(mask, 2)
    union = np.zeros((len(planes), size, n_groups + 1), dtype=np.uint64)
    members = np.zeros((size, n_groups + 1), dtype=np.int64)
    at = (np.arange(size)[:, None], groups.group)
    for union_of_plane, plane in zip(union, planes, strict=True):
        np.bitwise_or.at(union_of_plane, at, plane)
    np.add.at(members, at, planes.any(axis=0))
    exists = groups.anchor >= 0
    anchor_mask = planes[:, np.arange(size)[:, None], np.maximum(groups.anchor, 0)]
    return EntityCounts(
        hits=np.where(exists, _bits_set(union[:, :, :-1]), -1),
        anchors=_bits_set(np.where(exists, anchor_mask, np.uint64(0))),
        members=members[:, :-1],
    )


def rank_entities(counts: EntityCounts, best_l2: FloatArray) -> EntityRule:
    """Group that the query's entities point at.

    Args:
      counts: of the groups, [B, G].
      best_l2: squared L2 of each group's nearest hit, [B, G].

    Source: rule S3.3, `entities`.
    """
    exists = counts.hits >= 0
    best = counts.hits.max(axis=1, initial=0)
    tied = exists & (counts.hits == best[:, None]) & (best[:, None] > 0)
    key = np.where(tied, counts.anchors * (counts.members.max(initial=0) + 1) + counts.members, -1)
    top = key.max(axis=1, initial=-1)
    leaders = tied & (key == top[:, None])
    # a distance not known is the farthest
    nearest = np.where(leaders & ~np.isnan(best_l2), best_l2, np.inf)
    leaders &= nearest == nearest.min(axis=1, initial=np.inf)[:, None]
    strict = leaders.sum(axis=1) == 1
    winner = np.where(strict & (best > 0), leaders.argmax(axis=1), -1)
    candidates = np.where(((best > 0) & (winner < 0))[:, None], tied, exists)
    standing = np.where(candidates & tied, -key, 0)
    order = np.lexsort((standing, np.where(candidates, best_l2, np.inf)), axis=1)
    return EntityRule(winner, candidates, order, best)


def resolve_entities(mask: BitArray, groups: Groups, best_l2: FloatArray) -> EntityRule:
    """Group that the query's entities point at, by the entities that each hit carries.

    Args:
      mask: query's entities that each hit carries, bits [B, K], or [W, B, K] in W planes.
      groups: of the hits.
      best_l2: squared L2 of each group's nearest hit, [B, G].

    Source: rule S3.3, `entities`.
    """
    return rank_entities(entity_counts(mask, groups), best_l2)


class Resolution(NamedTuple):
    """Decision of the resolver; of one query plain values, of many arrays [...].

    Attributes:
      status: `Status`; of many int8.
      rule: name of the rule that decided, `single_option` where one option was left.
      group: the group that answers, -1 where none does.
      options: groups that are offered in their order, of one query a tuple, of many [..., M] with
        -1 at the end; empty where the status is not ambiguous.
    """

    status: Any
    rule: Any
    group: Any
    options: Any


def resolve(
    best_l2: ArrayLike,
    thresholds: RuleThresholds,
    *,
    sig_sim: ArrayLike | None = None,
    anchor_sim: ArrayLike | None = None,
    entity_hits: ArrayLike | None = None,
    anchor_hits: ArrayLike | None = None,
    member_hits: ArrayLike | None = None,
    sources: ArrayLike | None = None,
    n_entities: ArrayLike = 0,
    overview: ArrayLike = False,
    switches: RuleSwitches = RULES_ON,
    max_options: int | None = None,
) -> Resolution:
    """Decide which of some groups of hits a query means, or which of them to offer.

    Args:
      best_l2: squared L2 of each group's nearest hit, [G] of one query or [..., G] of many; NaN
        where there is no group, +inf where a group's distance is not known.
      thresholds: of the rules, scalars, or [P, 1] of policies against [Q] queries.
      sig_sim: cosine of the query with each group's rendered signature, [..., G]; missing where not
        given.
      anchor_sim: cosine of the query with each group's nearest hit, [..., G]; missing where not
        given.
      entity_hits: entities of the query among all of a group's hits, [..., G]; 0 where not given or
        missing.
      anchor_hits: entities of the query in the group's nearest hit, [..., G]; likewise. It breaks
        ties.
      member_hits: hits of the group that carry an entity of the query, [..., G]; likewise. It
        breaks ties after that.
      sources: number of each group's sources, [..., G]; groups of the same sources are one option.
      n_entities: entities that the query names, [...].
      overview: whether the query matches a generic pattern and no facet pattern, [...].
      switches: of the rules, scalars or [P, 1].
      max_options: groups that are offered at most; all where not given.

    Raises:
      ValueError: arrays of different shapes or of no real numbers, a number out of its range, a
        flag that is no bool, or a lead without its similarity.

    Source: rules S3.3, S3.5.

    Example:
      >>> rules = RuleThresholds(min_group_gap=0.05, min_sig_sim=0.30, min_sig_sim_gap=0.015)
      >>> resolve([0.40, 0.47], rules)
      Resolution(status=<Status.ok: 0>, rule='group_gap', group=0, options=())
      >>> resolve([0.40, 0.43, 0.44], rules, sig_sim=[0.52, 0.51, 0.20], max_options=2)
      Resolution(status=<Status.ambiguous: 2>, rule='options', group=-1, options=(0, 1))
      >>> resolve([[0.40, 0.47], [0.40, 0.43]], rules).rule.tolist()
      ['group_gap', 'options']
    """
    if max_options is not None and index(max_options) < 1:
        refuse("max_options must be a whole number >= 1", max_options, "leave it out for all")
    shape = float_array(best_l2, "best_l2").shape
    if not shape:
        refuse(
            "best_l2 must hold a number a group",
            repr(best_l2),
            f"write [{best_l2!r}] for one group",
        )
    if not shape[-1]:  # no group of any query
        none = np.full((*shape[:-1], 1), np.nan)
        return resolve(
            none, thresholds, n_entities=n_entities, overview=overview, switches=switches
        )
    rule_thresholds = _check_rule_thresholds(thresholds)
    on = RuleSwitches(
        *(_flags(f"switches.{name}", flag) for name, flag in switches._asdict().items())
    )
    named = _query_counts("n_entities", n_entities, shape[:-1])
    overviews = _query_column("overview", _flags("overview", overview), shape[:-1])
    groups = _CandidateGroups(
        _group_column("best_l2", best_l2, shape, DISTANCE),
        _group_column("sig_sim", sig_sim, shape, COSINE),
        _group_column("anchor_sim", anchor_sim, shape, COSINE),
        _group_counts("entity_hits", entity_hits, shape),
        _group_counts("anchor_hits", anchor_hits, shape),
        _group_counts("member_hits", member_hits, shape),
        _group_column("sources", sources, shape, SOURCES),
    )
    if (above := groups.entity_hits > named.reshape(-1, 1)).any():
        most = groups.entity_hits[above][0]
        refuse("entity_hits must be at most n_entities", most, "correct either")
    evidence, winners, offered = _measure_groups(groups, named, overviews, max_options)
    number, tied = decide_rules(
        evidence,
        on,
        rule_thresholds,
        np.broadcast_shapes(named.shape, *map(np.shape, (*rule_thresholds, *on))),
    )
    # Winner and options are those of the pool of groups that the rule chose from, of each query.
    pool, query = tied.astype(np.int64), np.arange(named.size).reshape(named.shape)
    group, options_ = (
        winners[pool, number, query],
        offered[pool, np.broadcast_to(query, number.shape)],
    )
    status = np.array([status for _, status in OUTCOMES], dtype=np.int8)[number]
    asks = status == Status.ambiguous
    # Asking back without an option to offer asks nothing, so it refuses.
    status = np.where(asks & (options_ < 0).all(axis=-1), np.int8(Status.refuse), status)
    options_ = np.where((status == Status.ambiguous)[..., None], options_, -1)
    rule = np.array([name for name, _ in OUTCOMES])[number]
    if number.ndim:
        return Resolution(status, rule, group, options_)
    return Resolution(
        Status(int(status)), str(rule), int(group), tuple(options_[options_ >= 0].tolist())
    )


MOST = 2**31 - 1  # of a count
DISTANCE, COUNTED = Unit("squared L2 distance", 0.0, np.inf), Unit("count", 0.0, MOST, whole=True)
# above that two numbers are one as floats
SOURCES = Unit("number of a set of sources", 0.0, 2.0**53, whole=True)


def _flags(name: str, values: ArrayLike) -> BoolArray:
    """Booleans, [...]."""
    column = np.asarray(values)
    if column.dtype != np.bool_:
        for value in column.flat:
            if not isinstance(value, bool | np.bool_):
                remedy = "write count > 0 for a number"
                refuse(f"{name} must be True or False", f"{value!r:.60}", remedy)
    return column.astype(np.bool_)


def _in_unit(name: str, column: FloatArray, unit: Unit) -> FloatArray:
    """Numbers within their unit; NaN passes."""
    wrong = (column < unit.low - ROUNDING_TOLERANCE) | (column > unit.high + ROUNDING_TOLERANCE)
    if unit.whole:
        wrong |= column != np.rint(column)
    wrong &= ~np.isnan(column)
    if wrong.any():
        kind = "whole and in" if unit.whole else "in"
        bounds = f"[{unit.low:g}, {unit.high:.10g}]"
        refuse(
            f"{name} must be {kind} {bounds}",
            f"{column[wrong].flat[0]:.10g}",
            f"it is {unit.described}",
        )
    return column


def _group_column(
    name: str, values: ArrayLike | None, shape: tuple[int, ...], unit: Unit
) -> FloatArray:
    """Numbers of groups, [B, G]; NaN where they are not given."""
    if values is None:
        return np.full(shape, np.nan).reshape(-1, shape[-1])
    column = float_array(values, name)
    if column.shape != shape:
        refuse(f"{name} must have the shape of best_l2, {shape}", column.shape, "NaN is none")
    return _in_unit(name, column, unit).reshape(-1, shape[-1])


def _query_column(name: str, column: NDArray[Any], queries: tuple[int, ...]) -> NDArray[Any]:
    """A value a query, [...]."""
    if column.shape not in {(), queries}:
        refuse(f"{name} must be one value or one a query, {queries}", column.shape, "correct it")
    return np.broadcast_to(column, queries)


def _query_counts(name: str, values: ArrayLike, queries: tuple[int, ...]) -> IntArray:
    """A count a query, [...]."""
    column = _in_unit(name, _query_column(name, float_array(values, name), queries), COUNTED)
    if np.isnan(column).any():
        refuse(f"{name} must be given of every query", "NaN", "write 0 where nothing is named")
    return column.astype(np.int64)


def _check_rule_thresholds(thresholds: RuleThresholds) -> RuleThresholds:
    for name, value in thresholds._asdict().items():
        if value is None:
            refuse(f"{name} must be a number", "None", "leave it out, or write -inf")
    checked = RuleThresholds(*map(float_array, thresholds, thresholds._fields))
    for name in ("min_sig_sim", "min_anchor_sim"):
        lead = getattr(checked, f"{name}_gap")
        if np.any(np.isnan(getattr(checked, name)) & np.isfinite(lead)):
            remedy = f"state {name} too, or -inf"
            refuse(f"{name}_gap must come with {name}", f"{lead.max():g} alone", remedy)
    return checked


def _offered(candidates: BoolArray, order: IntArray, sources: FloatArray, most: int) -> IntArray:
    """Groups to offer, [B, most], -1 at the end; of those with the same sources the first.

    Source: rule S3.5.
    """
    first = first_members(candidates, order, most)
    number = np.where(first >= 0, np.take_along_axis(sources, np.maximum(first, 0), axis=1), np.nan)
    repeated = np.tril(number[:, :, None] == number[:, None, :], k=-1).any(axis=2)
    places = first_members(
        (first >= 0) & ~repeated, np.broadcast_to(np.arange(most), first.shape), most
    )
    return np.where(places >= 0, np.take_along_axis(first, np.maximum(places, 0), axis=1), -1)


def _winners(of: Contest, entities: IntArray, offered: IntArray) -> IntArray:
    """Group that answers by each of `OUTCOMES`, -1 where it asks, [outcomes, B]."""
    winner = {
        "single_group": offered[:, 0],
        "entities": entities,
        "group_gap": of.first,
        "signature_similarity": of.by_signature,
        "anchor_similarity": of.by_anchor,
        ONE_OPTION: offered[:, 0],
    }
    none = np.full(len(entities), -1, dtype=np.int64)
    return np.stack([winner.get(name, none) for name, _ in OUTCOMES])


class _CandidateGroups(NamedTuple):
    """Groups of some queries, [B, G]; see `resolve`."""

    best_l2: FloatArray
    sig_sim: FloatArray
    anchor_sim: FloatArray
    entity_hits: IntArray
    anchor_hits: IntArray
    member_hits: IntArray
    sources: FloatArray


def _group_counts(name: str, values: ArrayLike | None, shape: tuple[int, ...]) -> IntArray:
    """Counts of groups, [B, G]; 0 where they are missing."""
    return np.nan_to_num(_group_column(name, values, shape, COUNTED)).astype(np.int64)


def _measure_groups(
    groups: _CandidateGroups,
    n_entities: IntArray,
    overview: BoolArray,
    max_options: int | None,
) -> tuple[RuleEvidence, IntArray, IntArray]:
    """What the rules read of groups, [...].

    Groups that win [2, outcomes, B] and are offered [2, B, M].

    The first of the two is of all groups, the second of those that tie on entities: which of them
    the rules choose from hangs on switches.
    """
    exists, l2 = (
        ~np.isnan(groups.best_l2),
        np.where(np.isnan(groups.best_l2), np.inf, groups.best_l2),
    )
    counts = EntityCounts(
        np.where(exists, groups.entity_hits, -1), groups.anchor_hits, groups.member_hits
    )
    by_entities = rank_entities(counts, l2)
    pools = (
        (exists, np.argsort(l2, axis=1, kind="stable")),
        (by_entities.candidates, by_entities.order),
    )
    contests = [
        contest(pool, l2, groups.sig_sim, groups.anchor_sim, order) for pool, order in pools
    ]
    most = max_options or l2.shape[1]
    offered = [_offered(pool, order, groups.sources, most) for pool, order in pools]
    queries = n_entities.shape
    evidence = RuleEvidence(
        n_groups=exists.sum(axis=1).reshape(queries),
        overview=overview,
        names_entity=n_entities > 0,
        skips_entities=by_entities.best.reshape(queries) == 0,
        full_entities=by_entities.best.reshape(queries) >= n_entities,
        has_winner=by_entities.winner.reshape(queries) >= 0,
        all=reshape_contest(contests[0], queries),
        tied=reshape_contest(contests[1], queries),
        n_options_all=(offered[0] >= 0).sum(axis=1).reshape(queries),
        n_options_tied=(offered[1] >= 0).sum(axis=1).reshape(queries),
    )
    winners = [
        _winners(of, by_entities.winner, groups_)
        for of, groups_ in zip(contests, offered, strict=True)
    ]
    return evidence, np.stack(winners), np.stack(offered)
