"""Resolver (algebra): hits grouped by signature, six rules in order, options to ask back (S3).

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
    """Places of the first k members in a given order, [B, k], -1 for missing ones.

    Args:
      member: whether each hit belongs to the group, [B, K].
      order: places in the order wanted, a permutation, [B, K].
      k: members at most.

    Example:
      >>> first_members(np.array([[False, True, True]]), np.array([[2, 0, 1]]), 2)
      array([[2, 1]])
    """
    is_member = np.take_along_axis(member, order, axis=1)
    leading_places = np.argsort(~is_member, axis=1, kind="stable")[:, :k]
    first_places = np.where(
        np.take_along_axis(is_member, leading_places, axis=1),
        np.take_along_axis(order, leading_places, axis=1),
        -1,
    )
    return (
        np.pad(first_places, ((0, 0), (0, k - first_places.shape[1])), constant_values=-1)
        if first_places.shape[1] < k
        else first_places
    )


def union_over(mask: BitArray, chosen: NDArray[np.integer[Any]]) -> BitArray:
    """Union of the chosen hits' bits, [..., B].

    Args:
      mask: bits of each hit, [..., B, K].
      chosen: places, [B, k], -1 at the end.
    """
    chosen_bits = mask[..., np.arange(len(chosen))[:, None], np.maximum(chosen, 0)]
    return np.bitwise_or.reduce(np.where(chosen >= 0, chosen_bits, np.uint64(0)), axis=-1)


def _planes(hit_bits: BitArray, n_axes: int) -> BitArray:
    """Bits as planes, [W, ...]: those of one plane may come without its axis.

    n_axes: of a plane.
    """
    return hit_bits[None] if hit_bits.ndim == n_axes else hit_bits


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
      page_key: number of each hit's (document, page), [B, K], -1 for no hit.

    Source: rule S3.4.

    Example: two hits hold entity 1 alone; the second makes room for the one that holds entity 2.
      >>> fill_entities(
      ...     np.array([[0, 1]]), np.uint64([[1, 1, 2]]), np.uint64([3]), np.array([[0, 1, 2]])
      ... )
      array([[0, 2]])
    """
    n_chosen = chosen.shape[1]
    chosen = chosen.copy()
    hit_planes, wanted_planes = _planes(mask, 2), _planes(wanted, 1)
    # Only queries with an answer that lacks an entity change; for the others no work is done.
    n_lacking = _bits_set(wanted_planes & ~union_over(hit_planes, chosen))
    query_rows = np.nonzero((n_lacking > 0) & (chosen[:, 0] >= 0))[0]
    if not len(query_rows):
        return chosen
    # The nearest hits stay; the last ones give way, one for each missing entity.
    is_full = chosen[query_rows, n_chosen - 1] >= 0
    n_kept = np.where(
        is_full,
        np.maximum(1, n_chosen - np.minimum(n_chosen - 1, np.maximum(1, n_lacking[query_rows]))),
        n_chosen,
    )
    kept_places = np.where(np.arange(n_chosen) < n_kept[:, None], chosen[query_rows], -1)
    row_planes, row_pages = hit_planes[:, query_rows], page_key[query_rows]
    n_filled = (kept_places >= 0).sum(axis=1)
    missing_bits = wanted_planes[:, query_rows] & ~union_over(row_planes, kept_places)
    taken_pages = np.where(
        kept_places >= 0, np.take_along_axis(row_pages, np.maximum(kept_places, 0), axis=1), -1
    )
    # Hits in the order of l2: each that brings a missing entity from a new page fills a gap.
    for hit_place in range(page_key.shape[1]):
        if not missing_bits.any():
            break
        hit_page, brings_missing = (
            row_pages[:, hit_place],
            ((row_planes[:, :, hit_place] & missing_bits) != 0).any(axis=0),
        )
        is_added = (
            (n_filled < n_chosen)
            & (hit_page >= 0)
            & brings_missing
            & (taken_pages != hit_page[:, None]).all(axis=1)
        )
        added_rows = np.nonzero(is_added)[0]
        (
            kept_places[added_rows, n_filled[added_rows]],
            taken_pages[added_rows, n_filled[added_rows]],
        ) = hit_place, hit_page[added_rows]
        n_filled[added_rows] += 1
        missing_bits[:, added_rows] &= ~row_planes[:, added_rows, hit_place]
    chosen[query_rows] = kept_places
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
    distinct_options: list[Option] = []
    known_sources: set[tuple[int, ...]] = set()
    for group_places in members:
        picked_places = _distinct_pages(group_places, file_key, page_key, page_only, final_k)
        sources = tuple(sorted({page_key[hit_place] for hit_place in picked_places}))
        if sources in known_sources:
            continue
        known_sources.add(sources)
        distinct_options.append(
            Option(len(distinct_options) + 1, tuple(picked_places), sources, l2[picked_places[0]])
        )
    return tuple(distinct_options)


def _distinct_pages(
    group_places: Sequence[int],
    file_key: Sequence[int],
    page_key: Sequence[int],
    page_only: Sequence[int],
    final_k: int,
) -> list[int]:
    anchor_place = group_places[0]
    other_places = sorted(
        group_places[1:], key=lambda hit_place: file_key[hit_place] != file_key[anchor_place]
    )
    picked_places, picked_pages, picked_files, picked_sources = (
        [anchor_place],
        {page_only[anchor_place]},
        {file_key[anchor_place]},
        {page_key[anchor_place]},
    )
    novelty_tests: tuple[Callable[[int], bool], ...] = (
        lambda candidate: page_only[candidate] not in picked_pages,
        lambda candidate: file_key[candidate] not in picked_files,
        lambda _: True,
    )
    for is_new in novelty_tests:
        for hit_place in other_places:
            if len(picked_places) >= final_k:
                return picked_places
            if page_key[hit_place] not in picked_sources and is_new(hit_place):
                picked_places.append(hit_place)
                picked_pages.add(page_only[hit_place])
                picked_files.add(file_key[hit_place])
                picked_sources.add(page_key[hit_place])
    return picked_places


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
    message = f"Invalid selection: {selected_option}"
    raise KeyError(message)


Signature = tuple[tuple[str, str], ...]

CORE_TAG_KEYS = TAG_KEYS[:3]
FALLBACK_PREFIX = "__file__:"


def signature(tags: Mapping[str, Any], document: str, *, strict: bool) -> Signature:
    """(key, value) pairs that tell a topic cluster from another.

    The document if there is no tag.

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
    tag_keys = TAG_KEYS if strict else CORE_TAG_KEYS
    tag_values = [str(tags.get(tag_key) or "").strip().lower() for tag_key in tag_keys]
    if any(tag_values):
        return tuple(zip(tag_keys, tag_values, strict=True))
    return (
        ("domain", f"{FALLBACK_PREFIX}{document}"),
        *((tag_key, "") for tag_key in tag_keys[1:]),
    )


def is_fallback(sign: Signature) -> bool:
    """Whether a signature is the fallback of a file without a tag.

    Args:
      sign: signature.
    """
    return sign[0][1].startswith(FALLBACK_PREFIX)


def rendered(sign: Signature) -> str:
    """Text of a signature, as it is embedded.

    Args:
      sign: signature.

    Source: rule S3.3.

    Example:
      >>> rendered((("domain", "travel"), ("doc_type", ""), ("product", "basic")))
      'domain: travel; product: basic'
    """
    return "; ".join(f"{tag_key}: {tag_value}" for tag_key, tag_value in sign if tag_value)


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
      sign: number of each hit's signature, [B, K] in l2 order, -1 for no hit.

    Source: rule S3.2.

    Example:
      >>> group_hits(np.array([[7, 3, 7, -1]])).group
      array([[ 0,  1,  0, -1]])
    """
    n_queries, n_places = sign.shape
    first_equal = np.empty((n_queries, n_places), dtype=np.int64)
    for block_start in range(0, n_queries, 512):
        sign_block = sign[block_start : block_start + 512]
        first_equal[block_start : block_start + 512] = (
            sign_block[:, :, None] == sign_block[:, None, :]
        ).argmax(axis=2)
    exists = sign >= 0
    opens_group = exists & (first_equal == np.arange(n_places))
    group_numbers = opens_group.cumsum(axis=1) - 1
    hit_groups = np.where(exists, np.take_along_axis(group_numbers, first_equal, axis=1), -1)
    n_groups = opens_group.sum(axis=1)
    anchor_places = np.full((n_queries, max(1, int(n_groups.max(initial=0)))), -1, dtype=np.int64)
    query_row, hit_place = np.nonzero(opens_group)
    anchor_places[query_row, group_numbers[query_row, hit_place]] = hit_place
    return Groups(hit_groups, anchor_places, n_groups)


def anchor_values(values: NDArray[Any], groups: Groups, missing: float) -> NDArray[Any]:
    """Value of each group's anchor, [B, G]; `missing` for no group.

    Args:
      values: of each hit, [B, K].
      groups: of the hits.
      missing: value for no group.
    """
    values_at_anchor = np.take_along_axis(values, np.maximum(groups.anchor, 0), axis=1)
    return np.where(groups.anchor >= 0, values_at_anchor, missing)


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
      hits: entities among all hits of the group, -1 for no group.
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
    n_queries, n_groups = groups.anchor.shape
    hit_planes = _planes(mask, 2)
    group_union = np.zeros((len(hit_planes), n_queries, n_groups + 1), dtype=np.uint64)
    member_counts = np.zeros((n_queries, n_groups + 1), dtype=np.int64)
    group_index = (np.arange(n_queries)[:, None], groups.group)
    for plane_union, hit_plane in zip(group_union, hit_planes, strict=True):
        np.bitwise_or.at(plane_union, group_index, hit_plane)
    np.add.at(member_counts, group_index, hit_planes.any(axis=0))
    group_exists = groups.anchor >= 0
    anchor_planes = hit_planes[:, np.arange(n_queries)[:, None], np.maximum(groups.anchor, 0)]
    return EntityCounts(
        hits=np.where(group_exists, _bits_set(group_union[:, :, :-1]), -1),
        anchors=_bits_set(np.where(group_exists, anchor_planes, np.uint64(0))),
        members=member_counts[:, :-1],
    )


def rank_entities(counts: EntityCounts, best_l2: FloatArray) -> EntityRule:
    """Group that the query's entities point at.

    Args:
      counts: of the groups, [B, G].
      best_l2: squared L2 of each group's nearest hit, [B, G].

    Source: rule S3.3, `entities`.
    """
    group_exists = counts.hits >= 0
    best_count = counts.hits.max(axis=1, initial=0)
    is_tied = group_exists & (counts.hits == best_count[:, None]) & (best_count[:, None] > 0)
    tie_key = np.where(
        is_tied, counts.anchors * (counts.members.max(initial=0) + 1) + counts.members, -1
    )
    top_key = tie_key.max(axis=1, initial=-1)
    is_leader = is_tied & (tie_key == top_key[:, None])
    # a distance not known is the farthest
    leader_l2 = np.where(is_leader & ~np.isnan(best_l2), best_l2, np.inf)
    is_leader &= leader_l2 == leader_l2.min(axis=1, initial=np.inf)[:, None]
    has_one_leader = is_leader.sum(axis=1) == 1
    winning_group = np.where(has_one_leader & (best_count > 0), is_leader.argmax(axis=1), -1)
    is_candidate = np.where(
        ((best_count > 0) & (winning_group < 0))[:, None], is_tied, group_exists
    )
    tie_rank = np.where(is_candidate & is_tied, -tie_key, 0)
    group_order = np.lexsort((tie_rank, np.where(is_candidate, best_l2, np.inf)), axis=1)
    return EntityRule(winning_group, is_candidate, group_order, best_count)


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
        for no group, +inf where a group's distance is not known.
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
    groups_shape = float_array(best_l2, "best_l2").shape
    if not groups_shape:
        refuse(
            "best_l2 must hold a number a group",
            repr(best_l2),
            f"write [{best_l2!r}] for one group",
        )
    if not groups_shape[-1]:  # no group of any query
        no_group_l2 = np.full((*groups_shape[:-1], 1), np.nan)
        return resolve(
            no_group_l2, thresholds, n_entities=n_entities, overview=overview, switches=switches
        )
    # Arguments are checked one by one, so that an error names the argument.
    rule_thresholds = _check_rule_thresholds(thresholds)
    rules_on = RuleSwitches(
        *(
            _flags(f"switches.{rule_name}", switch_flag)
            for rule_name, switch_flag in switches._asdict().items()
        )
    )
    n_named = _query_counts("n_entities", n_entities, groups_shape[:-1])
    overview_flags = _query_column("overview", _flags("overview", overview), groups_shape[:-1])
    candidate_groups = _CandidateGroups(
        _group_column("best_l2", best_l2, groups_shape, DISTANCE_UNIT),
        _group_column("sig_sim", sig_sim, groups_shape, COSINE),
        _group_column("anchor_sim", anchor_sim, groups_shape, COSINE),
        _group_counts("entity_hits", entity_hits, groups_shape),
        _group_counts("anchor_hits", anchor_hits, groups_shape),
        _group_counts("member_hits", member_hits, groups_shape),
        _group_column("sources", sources, groups_shape, SOURCES_UNIT),
    )
    if (is_above := candidate_groups.entity_hits > n_named.reshape(-1, 1)).any():
        highest_hits = candidate_groups.entity_hits[is_above][0]
        refuse("entity_hits must be at most n_entities", highest_hits, "correct either")
    rule_evidence, winning_groups, offered_groups = _measure_groups(
        candidate_groups, n_named, overview_flags, max_options
    )
    outcome_index, is_tied_pool = decide_rules(
        rule_evidence,
        rules_on,
        rule_thresholds,
        np.broadcast_shapes(n_named.shape, *map(np.shape, (*rule_thresholds, *rules_on))),
    )
    # Winner and options are those of the pool of groups that the rule chose from, of each query.
    pool_index, query_index = (
        is_tied_pool.astype(np.int64),
        np.arange(n_named.size).reshape(n_named.shape),
    )
    chosen_group, option_groups = (
        winning_groups[pool_index, outcome_index, query_index],
        offered_groups[pool_index, np.broadcast_to(query_index, outcome_index.shape)],
    )
    status_codes = np.array([status_codes for _, status_codes in OUTCOMES], dtype=np.int8)[
        outcome_index
    ]
    asks_back = status_codes == Status.ambiguous
    # Asking back without an option to offer asks nothing, so it refuses.
    status_codes = np.where(
        asks_back & (option_groups < 0).all(axis=-1), np.int8(Status.refuse), status_codes
    )
    option_groups = np.where((status_codes == Status.ambiguous)[..., None], option_groups, -1)
    rule_names = np.array([rule_name for rule_name, _ in OUTCOMES])[outcome_index]
    if outcome_index.ndim:
        return Resolution(status_codes, rule_names, chosen_group, option_groups)
    return Resolution(
        Status(int(status_codes)),
        str(rule_names),
        int(chosen_group),
        tuple(option_groups[option_groups >= 0].tolist()),
    )


MAX_GROUP_COUNT = 2**31 - 1  # of a count
DISTANCE_UNIT, COUNT_UNIT = (
    Unit("squared L2 distance", 0.0, np.inf),
    Unit("count", 0.0, MAX_GROUP_COUNT, whole=True),
)
# above that two numbers are one as floats
SOURCES_UNIT = Unit("number of a set of sources", 0.0, 2.0**53, whole=True)


def _flags(argument_name: str, flag_values: ArrayLike) -> BoolArray:
    """Booleans, [...]."""
    flag_array = np.asarray(flag_values)
    if flag_array.dtype != np.bool_:
        for switch_flag in flag_array.flat:
            if not isinstance(switch_flag, bool | np.bool_):
                remedy = "write count > 0 for a number"
                refuse(f"{argument_name} must be True or False", f"{switch_flag!r:.60}", remedy)
    return flag_array.astype(np.bool_)


def _in_unit(argument_name: str, numbers: FloatArray, allowed_unit: Unit) -> FloatArray:
    """Numbers within their unit; NaN passes."""
    is_outside = (numbers < allowed_unit.low - ROUNDING_TOLERANCE) | (
        numbers > allowed_unit.high + ROUNDING_TOLERANCE
    )
    if allowed_unit.whole:
        is_outside |= numbers != np.rint(numbers)
    is_outside &= ~np.isnan(numbers)
    if is_outside.any():
        range_kind = "whole and in" if allowed_unit.whole else "in"
        range_text = f"[{allowed_unit.low:g}, {allowed_unit.high:.10g}]"
        refuse(
            f"{argument_name} must be {range_kind} {range_text}",
            f"{numbers[is_outside].flat[0]:.10g}",
            f"it is {allowed_unit.described}",
        )
    return numbers


def _group_column(
    argument_name: str, group_values: ArrayLike | None, groups_shape: tuple[int, ...], unit: Unit
) -> FloatArray:
    """Numbers of groups, [B, G]; NaN where they are not given."""
    if group_values is None:
        return np.full(groups_shape, np.nan).reshape(-1, groups_shape[-1])
    numbers = float_array(group_values, argument_name)
    if numbers.shape != groups_shape:
        refuse(
            f"{argument_name} must have the shape of best_l2, {groups_shape}",
            numbers.shape,
            "NaN is none",
        )
    return _in_unit(argument_name, numbers, unit).reshape(-1, groups_shape[-1])


def _query_column(
    argument_name: str, query_values: NDArray[Any], queries_shape: tuple[int, ...]
) -> NDArray[Any]:
    """A value a query, [...]."""
    if query_values.shape not in {(), queries_shape}:
        refuse(
            f"{argument_name} must be one value or one a query, {queries_shape}",
            query_values.shape,
            "correct it",
        )
    return np.broadcast_to(query_values, queries_shape)


def _query_counts(
    argument_name: str, query_values: ArrayLike, queries_shape: tuple[int, ...]
) -> IntArray:
    """A count a query, [...]."""
    query_counts = _in_unit(
        argument_name,
        _query_column(argument_name, float_array(query_values, argument_name), queries_shape),
        COUNT_UNIT,
    )
    if np.isnan(query_counts).any():
        refuse(
            f"{argument_name} must be given of every query", "NaN", "write 0 where nothing is named"
        )
    return query_counts.astype(np.int64)


def _check_rule_thresholds(thresholds: RuleThresholds) -> RuleThresholds:
    for threshold_name, threshold in thresholds._asdict().items():
        if threshold is None:
            refuse(f"{threshold_name} must be a number", "None", "leave it out, or write -inf")
    checked_thresholds = RuleThresholds(*map(float_array, thresholds, thresholds._fields))
    for threshold_name in ("min_sig_sim", "min_anchor_sim"):
        gap_threshold = getattr(checked_thresholds, f"{threshold_name}_gap")
        if np.any(
            np.isnan(getattr(checked_thresholds, threshold_name)) & np.isfinite(gap_threshold)
        ):
            remedy = f"state {threshold_name} too, or -inf"
            refuse(
                f"{threshold_name}_gap must come with {threshold_name}",
                f"{gap_threshold.max():g} alone",
                remedy,
            )
    return checked_thresholds


def _offered(
    is_candidate: BoolArray, group_order: IntArray, group_sources: FloatArray, max_offered: int
) -> IntArray:
    """Groups to offer, [B, most], -1 at the end; of those with the same sources the first.

    Source: rule S3.5.
    """
    first_groups = first_members(is_candidate, group_order, max_offered)
    source_numbers = np.where(
        first_groups >= 0,
        np.take_along_axis(group_sources, np.maximum(first_groups, 0), axis=1),
        np.nan,
    )
    is_repeated = np.tril(source_numbers[:, :, None] == source_numbers[:, None, :], k=-1).any(
        axis=2
    )
    distinct_places = first_members(
        (first_groups >= 0) & ~is_repeated,
        np.broadcast_to(np.arange(max_offered), first_groups.shape),
        max_offered,
    )
    return np.where(
        distinct_places >= 0,
        np.take_along_axis(first_groups, np.maximum(distinct_places, 0), axis=1),
        -1,
    )


def _winners(rule_contest: Contest, entity_winners: IntArray, offered_groups: IntArray) -> IntArray:
    """Group that answers by each of `OUTCOMES`, -1 where it asks, [outcomes, B]."""
    winner_by_rule = {
        "single_group": offered_groups[:, 0],
        "entities": entity_winners,
        "group_gap": rule_contest.first,
        "signature_similarity": rule_contest.by_signature,
        "anchor_similarity": rule_contest.by_anchor,
        ONE_OPTION: offered_groups[:, 0],
    }
    no_winner = np.full(len(entity_winners), -1, dtype=np.int64)
    return np.stack([winner_by_rule.get(rule_name, no_winner) for rule_name, _ in OUTCOMES])


class _CandidateGroups(NamedTuple):
    """Groups of some queries, [B, G]; see `resolve`."""

    best_l2: FloatArray
    sig_sim: FloatArray
    anchor_sim: FloatArray
    entity_hits: IntArray
    anchor_hits: IntArray
    member_hits: IntArray
    sources: FloatArray


def _group_counts(
    argument_name: str, group_values: ArrayLike | None, groups_shape: tuple[int, ...]
) -> IntArray:
    """Counts of groups, [B, G]; 0 where they are missing."""
    return np.nan_to_num(
        _group_column(argument_name, group_values, groups_shape, COUNT_UNIT)
    ).astype(np.int64)


def _measure_groups(
    groups: _CandidateGroups,
    n_entities: IntArray,
    overview: BoolArray,
    max_options: int | None,
) -> tuple[RuleEvidence, IntArray, IntArray]:
    """What the rules read of groups, [...].

    Groups that win [2, outcomes, B] and are offered [2, B, M].

    The first of the two is of all groups, the second of those that tie on entities: which of them
    the rules choose from depends on switches.
    """
    group_exists, group_l2 = (
        ~np.isnan(groups.best_l2),
        np.where(np.isnan(groups.best_l2), np.inf, groups.best_l2),
    )
    group_counts = EntityCounts(
        np.where(group_exists, groups.entity_hits, -1), groups.anchor_hits, groups.member_hits
    )
    entity_ranking = rank_entities(group_counts, group_l2)
    group_pools = (
        (group_exists, np.argsort(group_l2, axis=1, kind="stable")),
        (entity_ranking.candidates, entity_ranking.order),
    )
    pool_contests = [
        contest(pool_members, group_l2, groups.sig_sim, groups.anchor_sim, pool_order)
        for pool_members, pool_order in group_pools
    ]
    max_offered = max_options or group_l2.shape[1]
    offered_groups = [
        _offered(pool_members, pool_order, groups.sources, max_offered)
        for pool_members, pool_order in group_pools
    ]
    queries_shape = n_entities.shape
    rule_evidence = RuleEvidence(
        n_groups=group_exists.sum(axis=1).reshape(queries_shape),
        overview=overview,
        names_entity=n_entities > 0,
        skips_entities=entity_ranking.best.reshape(queries_shape) == 0,
        full_entities=entity_ranking.best.reshape(queries_shape) >= n_entities,
        has_winner=entity_ranking.winner.reshape(queries_shape) >= 0,
        all=reshape_contest(pool_contests[0], queries_shape),
        tied=reshape_contest(pool_contests[1], queries_shape),
        n_options_all=(offered_groups[0] >= 0).sum(axis=1).reshape(queries_shape),
        n_options_tied=(offered_groups[1] >= 0).sum(axis=1).reshape(queries_shape),
    )
    winning_groups = [
        _winners(pool_contest, entity_ranking.winner, pool_offered)
        for pool_contest, pool_offered in zip(pool_contests, offered_groups, strict=True)
    ]
    return rule_evidence, np.stack(winning_groups), np.stack(offered_groups)
