"""Evidence (algebra): measurements of an arm's cases, sets of hits (S0.6, S2.4, S3.6).

A slot numbers the sets of hits that a decision may rest on: 0 … K for "the first n hits are
relevant", then one for each way the resolver can pick. Whatever is asked of the chosen hits (are
the entities covered, is the expected source among them) is answered once per slot and looked up
ever after.

A set of hits is a row of places, -1 at the end. All prefixes of the hits, every group and every
option are laid out so, before anything is asked of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates, resolver
from raglab.arguments.plain_arrays import holds_read_only
from raglab.signals import SignalSet
from raglab.values import (
    AnyArray,
    BitArray,
    BoolArray,
    Case,
    Chunk,
    CodeArray,
    FloatArray,
    Hits,
    IntArray,
    PatternHits,
    WholeArray,
    check_labelled,
)

WINNERS = (
    "first_of_all",
    "signature_of_all",
    "anchor_of_all",
    "entities",
    "first_of_tied",
    "signature_of_tied",
    "anchor_of_tied",
    "options_of_all",
    "options_of_tied",
)


# slots of the options among all groups, and among the tied ones: the last of `WINNERS`
OPTION_SLOTS = (-2, -1)


@holds_read_only
class Evidence(NamedTuple):
    """Measurements that gates and resolver meet, by group.

    None of them depends on a threshold (rule S3.6).

    Q cases, D depths, K hits, k = `final_k` first hits, S slots. A float is NaN where there is
    nothing to measure. Flat, because chain and compiled kernel read every field by its name, and
    parts of it are cut out field by field.

    Question, [Q]:
      words: white-space separated words. denied, allowed: deny and allow patterns that match.
      needs_allowed: one bool, whether the policy has allow patterns. overview: a generic pattern
      matches and no facet pattern. names_entity: the resolver sees an entity in it. explicit: the
      user named documents. label_code: the expected `Status`, `UNLABELLED` where a case has none.

    Hits in the order of `l2`:
      l2 [D, K, Q]: squared L2 distances, ascending. n_hits [D, Q]: hits at all. best_l2 [D, Q]:
      squared L2 of the first. top1 [D, Q]: cosine of the first. gap [D, Q]: squared L2 between the
      first two. agree [D, Q]: the first two are of one document and near pages, or of one signature
      with a tag.

    Scores of the first k hits in the arm's order, in [0, 1]:
      degenerate [D, Q]: the reranker says nothing. top_rerank, top_hybrid [k, D, Q]; where it says
      nothing, the latter is what stands in for it. signals [signals, D, Q]: units as known: names,
      units and directions of the signals, in their order. fused [D, Q]: probability of being right,
      NaN where the structure has no model. probability [4, D, Q]: of the classes of the decision by
      expected cost, NaN without a model. asked_right [Q]: chance that the options of a case
      to be asked hold what it expects, of that model.

    Resolver, [D, Q]:
      n_groups: groups of hits with one signature. has_winner: rule `entities` decides.
      skips_entities: no group carries an entity of the question. full_entities: the best group
      carries all of them. all, tied: contest among all groups, and among those tied on entities,
      every field [D, Q]. n_options_all, n_options_tied: options of either contest.

    Slots, [D, S, Q]: a number of relevant hits, then each of `WINNERS`:
      missing: entities to be covered that the slot's hits lack. right: they hold the expected
      sources and, where text is judged, the recorded answer is the expected one. share: of the
      question's content words, in [0, 1].

    Recorded answers, [D, S, Q], with S = 0 where the trace holds none:
      answered: one bool, whether it holds any. generation, support: confidence and least support of
      the slot's answer, in [0, 1]. unfit: hygiene leaves nothing of it. by_text, [Q]: the case is
      judged by its answer (`judged_cases`). unrecorded: it is, or it is labelled refuse, and the
      slot has no recorded answer. undecided: nobody can tell whether the slot's answer is right: 1
      where it is the first such answer of the case, 2 where it is another one, else 0.
      sources_right: the hits hold the expected sources.

    Structure:
      off: gates that are off whatever a policy says, since nobody measured what they compare
      (`gates_off`). rank_order: whether the chosen hits go by the arm's final order, else by l2.
      final_k: hits of an answer.
    """

    words: IntArray
    denied: IntArray
    allowed: IntArray
    needs_allowed: bool
    overview: BoolArray
    names_entity: BoolArray
    explicit: BoolArray
    label_code: CodeArray

    l2: FloatArray
    n_hits: IntArray
    best_l2: FloatArray
    top1: FloatArray
    gap: FloatArray
    agree: BoolArray

    degenerate: BoolArray
    top_rerank: FloatArray
    top_hybrid: FloatArray
    signals: FloatArray
    known: SignalSet
    fused: FloatArray
    probability: FloatArray
    asked_right: FloatArray

    n_groups: IntArray
    has_winner: BoolArray
    skips_entities: BoolArray
    full_entities: BoolArray
    all: resolver.Contest
    tied: resolver.Contest
    n_options_all: IntArray
    n_options_tied: IntArray

    missing: NDArray[np.unsignedinteger[Any]]
    right: BoolArray
    share: FloatArray

    answered: bool
    generation: FloatArray
    support: FloatArray
    unfit: BoolArray
    by_text: BoolArray
    unrecorded: BoolArray
    undecided: CodeArray
    sources_right: BoolArray

    off: frozenset[str]
    rank_order: bool
    final_k: int

    @property
    def label(self) -> CodeArray:
        """The expected `Status` of every case, [Q].

        Raises:
          ValueError: some case has no label.
        """
        return check_labelled(self.label_code)

    @property
    def n_slots_relevant(self) -> int:
        """Slots that stand for a number of relevant hits, K + 1."""
        return self.l2.shape[1] + 1


@holds_read_only
class ChosenHits(NamedTuple):
    """Places of the chosen hits by slot, [D·Q, S, k], -1 where there are fewer; options.

    Sources by number.

    pages: document and page by the numbers of options' sources. sources: path and page; source_of:
    number of each chunk's, [C].
    """

    places: IntArray
    options_all: list[tuple[resolver.Option, ...]]
    options_tied: list[tuple[resolver.Option, ...]]
    pages: list[tuple[str, str]]
    sources: list[tuple[str, str]]
    source_of: IntArray


class Tables(NamedTuple):
    """Evidence of an arm under a structure, the chosen hits behind it, and what patterns hit."""

    arm: str
    evidence: Evidence
    chosen: ChosenHits
    pattern_hits: PatternHits


class CaseBatch(NamedTuple):
    """Hits of one arm as B = D·Q rows: row d·Q + q is case q at depth d.

    shape: (D, Q). cases: of the rows. hits: fields [B, K]. keys: of the hits. by_arm: places of the
    hits in the arm's final order, [B, K]; order: in the order that the structure chooses by.
    """

    shape: tuple[int, int]
    cases: list[Case]
    hits: Hits
    keys: Keys
    by_arm: IntArray
    order: IntArray

    def by_case(self, row_values: AnyArray) -> AnyArray:
        """Values of the rows [..., B] as [..., D, Q]."""
        return row_values.reshape(*row_values.shape[:-1], *self.shape)


class Entities(NamedTuple):
    """Entities of the questions, a bit each in W planes.

    In the question [W, B], and carried by its hits [W, B, K].

    must_cover: those that the chosen hits must carry (rule S2.5). resolved, resolved_carried: those
    that the resolver uses, zero where the structure switches its extractor off.
    """

    carried: BitArray
    must_cover: BitArray
    resolved: BitArray
    resolved_carried: BitArray


class Contests(NamedTuple):
    """What the resolver's rules would say of every row.

    entities: rule `entities`. all, tied: the contest among all groups, and among those tied on
    entities.
    """

    groups: resolver.Groups
    entities: resolver.EntityRule
    all: resolver.Contest
    tied: resolver.Contest


PATH_IDENTITY = "path"  # of `resolver.document_identity`


class Keys(NamedTuple):
    """Numbers of what each hit is of, [B, K], -1 without a hit.

    hit: chunk. file: document, as the policy identifies it. page: (document, page), numbered in the
    order of `pages`. page_only: page. core, sign: signature, without and (where asked for) with
    vendor and version. tagged: whether it has a tag, bool. text: text. pages: document, as the
    policy identifies it, and page by number. sources: path and page by number, the same list where
    the policy identifies documents by path; source_of: number of each chunk's, [C].
    """

    hit: IntArray
    file: IntArray
    page: IntArray
    page_only: IntArray
    core: IntArray
    sign: IntArray
    tagged: BoolArray
    text: IntArray
    pages: list[tuple[str, str]]
    sources: list[tuple[str, str]]
    source_of: IntArray

    @property
    def source(self) -> IntArray:
        """Number of each hit's path and page, [B, K], -1 without a hit."""
        return np.append(self.source_of, -1)[self.hit]


def hit_keys(
    chunks: Sequence[Chunk], hit_chunk: WholeArray, *, strict: bool, identity: str
) -> Keys:
    """Keys of hits.

    Args:
      hit_chunk: of each hit, [B, K], -1 if none.
      strict: whether vendor and version tell groups apart.
      identity: what one document is, `path` or `file_name` (`resolver.document_identity`).

    Source: rules S3.1, S3.4, S3.5.
    """
    hit_chunks = np.where(hit_chunk >= 0, hit_chunk, -1).astype(np.int64)

    def by_hit(chunk_values: Sequence[Any] | IntArray) -> IntArray:
        return np.append(np.asarray(chunk_values), -1)[hit_chunks]

    # Keys are numbers, so that hits compare as arrays and not text by text. Documents have the
    # names by which the resolver tells them apart (rules S3.1, S3.4, S3.5).
    document_names = [
        chunk.document if identity == PATH_IDENTITY else chunk.file_name for chunk in chunks
    ]
    page_texts = [chunk.page_shown for chunk in chunks]
    pages, page_numbers = _sorted_numbers(list(zip(document_names, page_texts, strict=True)))
    # An answer names its sources by path and scoring counts them so, whatever the resolver takes
    # for one document.
    sources = pages
    source_of = page_numbers
    if identity != PATH_IDENTITY:
        documents = (chunk.document for chunk in chunks)
        sources, source_of = _sorted_numbers(list(zip(documents, page_texts, strict=True)))

    def signatures(*, strict: bool) -> list[resolver.Signature]:
        named_chunks = zip(chunks, document_names, strict=True)
        return [
            resolver.signature(chunk.tags, document_name, strict=strict)
            for chunk, document_name in named_chunks
        ]

    # Vendor and version part groups only where strict; the core leaves them out in any case (rule
    # S3.1).
    core_signatures = signatures(strict=False)
    core_numbers = by_hit(_value_numbers(core_signatures))
    return Keys(
        hit=hit_chunks,
        file=by_hit(_value_numbers(document_names)),
        page=by_hit(page_numbers),
        page_only=by_hit(_value_numbers(page_texts)),
        core=core_numbers,
        sign=by_hit(_value_numbers(signatures(strict=True))) if strict else core_numbers,
        tagged=np.array(
            [
                *(not resolver.is_fallback(chunk_signature) for chunk_signature in core_signatures),
                False,
            ]
        )[hit_chunks],
        text=by_hit(_value_numbers([chunk.full_text for chunk in chunks])),
        pages=pages,
        sources=sources,
        source_of=source_of,
    )


def _sorted_numbers(
    source_pages: Sequence[tuple[str, str]],
) -> tuple[list[tuple[str, str]], IntArray]:
    """Different values, sorted, and the number of each among them."""
    distinct_values = sorted(set(source_pages))
    number_of_value = {source_page: number for number, source_page in enumerate(distinct_values)}
    return distinct_values, np.array(
        [number_of_value[source_page] for source_page in source_pages], dtype=np.int64
    )


def _value_numbers(chunk_values: Sequence[Any]) -> IntArray:
    number_of_value: dict[Any, int] = {}
    return np.array(
        [
            number_of_value.setdefault(chunk_value, len(number_of_value))
            for chunk_value in chunk_values
        ],
        dtype=np.int64,
    )


def first_k_by_count(hit_order: IntArray, hit_chunks: IntArray, n_first: int) -> IntArray:
    """First k in the order wanted among the n nearest hits, for n = 0 … K: places [B, K + 1, k].

    The k least positions of every prefix at once: what a prefix's least displaces competes for its
    second, and so on.

    Example:
      >>> # three hits, nearest first; the order prefers the third, then the first
      >>> first_k_by_count(np.array([[2, 0, 1]]), np.array([[7, 8, 9]]), 2)[0].tolist()
      [[-1, -1], [0, -1], [0, 1], [2, 0]]
    """
    n_rows, n_hits = hit_chunks.shape
    order_positions = np.empty_like(hit_order)
    np.put_along_axis(
        order_positions,
        np.ascontiguousarray(hit_order),
        np.broadcast_to(np.arange(n_hits), hit_order.shape),
        axis=1,
    )
    open_positions = np.where(hit_chunks >= 0, order_positions, n_hits)
    best_positions = np.full((n_rows, n_hits + 1, n_first), n_hits, dtype=np.int64)
    for order_level in range(min(n_first, n_hits)):
        least_positions = np.minimum.accumulate(open_positions, axis=1)
        best_positions[:, 1:, order_level] = least_positions
        earlier_least = np.concatenate(
            [np.full((n_rows, 1), n_hits), least_positions[:, :-1]], axis=1
        )
        open_positions = np.maximum(open_positions, earlier_least)
    padded_order = np.append(hit_order, np.full((n_rows, 1), -1), axis=1)
    return np.take_along_axis(
        padded_order, best_positions.reshape(n_rows, (n_hits + 1) * n_first), axis=1
    ).reshape(best_positions.shape)


def agree(keys: Keys, chunks: Sequence[Chunk], near_pages: int) -> BoolArray:
    """Whether the first two hits agree by `raglab.gates.hits_agree`, [B].

    False where there are fewer than two.

    One document is one path, whatever the resolver's identity: so the conformance cases have it.

    Source: rule S2.4.
    """
    first_chunks = keys.hit[:, :2]
    if first_chunks.shape[1] < 2:
        return np.zeros(len(first_chunks), dtype=bool)
    chunk_pages = np.array(
        [np.nan if chunk.page is None else float(chunk.page) for chunk in chunks] + [np.nan]
    )
    document_numbers = np.append(_value_numbers([chunk.document for chunk in chunks]), -1)
    return gates.hits_agree(
        document_numbers[first_chunks],
        chunk_pages[first_chunks],
        keys.core[:, :2],
        keys.tagged[:, 0],
        near_pages,
    )


def row_options(
    groups: resolver.Groups,
    candidates: BoolArray,
    group_order: IntArray,
    hit_numbers: Keys,
    hit_distances: FloatArray,
    option_size: tuple[int, int],
    known_options: list[tuple[resolver.Option, ...]] | None = None,
) -> list[tuple[resolver.Option, ...]]:
    """Options of every row.

    Args:
      candidates: groups that go on, [B, G].
      group_order: of them, a permutation, [B, G].
      hit_distances: [B, K].
      option_size: max_options and final_k.
      known_options: options of all groups, taken where all go on in their order.

    Source: rule S3.5.
    """
    max_options, final_k = option_size
    in_order = group_order == np.arange(group_order.shape[1])
    is_same = (in_order & (candidates == (groups.anchor >= 0))).all(axis=1)
    options_by_row = []
    for row_index, hit_groups in enumerate(groups.group):
        if known_options is not None and is_same[row_index]:
            options_by_row.append(known_options[row_index])
            continue
        leading_hits = [
            leading_hit
            for leading_hit in group_order[row_index]
            if candidates[row_index, leading_hit]
        ][:max_options]
        group_members = [
            np.nonzero(hit_groups == leading_hit)[0].tolist() for leading_hit in leading_hits
        ]
        file_numbers, page_numbers, page_labels, distances = (
            key_table[row_index].tolist()
            for key_table in (
                hit_numbers.file,
                hit_numbers.page,
                hit_numbers.page_only,
                hit_distances,
            )
        )
        options_by_row.append(
            resolver.options(
                group_members, file_numbers, page_numbers, page_labels, distances, final_k
            )
        )
    return options_by_row


def option_places(options: list[tuple[resolver.Option, ...]]) -> IntArray:
    """Places of all hits of a row's options, [B, most], -1 at the end."""
    places_by_row = [
        [hit_place for option in options_of_row for hit_place in option.places]
        for options_of_row in options
    ]
    padded_places = np.full(
        (len(places_by_row), max(map(len, places_by_row), default=0)), -1, dtype=np.int64
    )
    for row_index, row_places in enumerate(places_by_row):
        padded_places[row_index, : len(row_places)] = row_places
    return padded_places


def pad_sets(set_tables: Sequence[IntArray]) -> IntArray:
    """Sets of places of different widths as one array, [B, S, most], -1 at the end.

    Args:
      set_tables: [B, s, width] or, of one set, [B, width].
    """
    full_tables = [
        set_table if set_table.ndim == 3 else set_table[:, None] for set_table in set_tables
    ]
    max_width = max(set_table.shape[2] for set_table in full_tables)
    padded_tables = [
        np.pad(set_table, ((0, 0), (0, 0), (0, max_width - set_table.shape[2])), constant_values=-1)
        for set_table in full_tables
    ]
    return np.concatenate(padded_tables, axis=1)
