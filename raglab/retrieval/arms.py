"""Arms of retrieval (shore): strategies and measured hits (S1.2 to S1.4, S2.9, S4.1).

The hits of each strategy are measured against the question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np

from raglab.extension_points import extension, installed
from raglab.policy_parts.arms import ARMS, LIVE_ARMS
from raglab.retrieval.dense import distances
from raglab.retrieval.indexes import ArmHits, ArmIndex, Indexes, Queries, Signatures
from raglab.retrieval.rank_fusion import reciprocal_rank_fusion
from raglab.retrieval.reranking import (
    BestTableRows,
    RankedHits,
    Reranker,
    fuse_orders,
    late_interaction,
    ranks_in,
    rerank_chunks,
)
from raglab.retrieval.rewriting import Rewriter
from raglab.values import AnyArray, Chunk, FloatArray, Hits, IntArray, VectorArray, WholeArray
from raglab.words.packs import Pack

ARM_STAGES = ("embed", "rewrite", "keyword", "dense", "graph", "table", "fuse", "rerank", "measure")
FEEDBACK_HITS = 20  # hits whose texts a rewriter may read

Lists = list[
    tuple[IntArray, float]
]  # ids [1, k] of a ranked list, and what it counts in the fusion
Milliseconds = dict[str, float]


class ArmRow(NamedTuple):
    """The row that a room registers for an arm at the point `arm.<name>`.

    build: makes the arm's own index of the chunks of a corpus, of the position of its first row
    among all passages, and of the pack of the corpus's trade. rows: passages that the index adds
    behind the chunks, without building it.
    """

    build: Callable[[Sequence[Chunk], int, Pack], ArmIndex]
    rows: Callable[[Sequence[Chunk]], tuple[Chunk, ...]]


def arm_row(arm: str) -> ArmRow | None:
    """What the room of an arm registers for it.

    None of an arm that has no index of its own, or that is not known.

    Raises:
      MissingExtensionError: the room is not installed.
    """
    arm_room = ARMS[arm].room if arm in ARMS else ""
    row: ArmRow | None = extension(f"arm.{arm}", arm_room, f"arm {arm}") if arm_room else None
    return row


def check_arm(requested_arm: str, index_arms: Collection[str]) -> None:
    """Refuse an arm that an index does not hold.

    The router and the bandit take those that it holds.

    Args:
      requested_arm: arm, router or bandit.
      index_arms: arms of the index.

    Raises:
      ValueError: the index lacks the arm.
      MissingExtensionError: the room of the arm is not installed.
    """
    if requested_arm in {"router", "bandit"} or requested_arm in index_arms:
        return
    arm_row(requested_arm)  # an arm whose room is not installed can be in no index
    message = (
        f"arm must be one of the index's {', '.join(index_arms)}, got {requested_arm}; make it by "
        f"build_index(…, arms={(*index_arms, requested_arm)!r})."
    )
    raise ValueError(message)


def live_arms() -> tuple[str, ...]:
    """Arms that may answer live and whose room is installed."""
    return tuple(
        arm_name
        for arm_name in LIVE_ARMS
        if not ARMS[arm_name].room or ARMS[arm_name].room in installed()
    )


def arm_rows(arms: Sequence[str], chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Passages that some arms' own indexes add behind a corpus's chunks, in arm order."""
    registered_rows = filter(None, map(arm_row, arms))
    return tuple(
        passage for registered_row in registered_rows for passage in registered_row.rows(chunks)
    )


def build_arm_indexes(
    arms: Sequence[str], chunks: Sequence[Chunk], pack: Pack
) -> dict[str, ArmIndex]:
    """Own indexes of some arms over the chunks of a corpus, by arm."""
    indexes_by_arm: dict[str, ArmIndex] = {}
    first_position = len(chunks)
    for arm in arms:
        registered_row = arm_row(arm)
        if registered_row is not None:
            indexes_by_arm[arm] = registered_row.build(chunks, first_position, pack)
            first_position += len(indexes_by_arm[arm].rows)
    return indexes_by_arm


class Sizes(NamedTuple):
    """Sizes of retrieval.

    fetch_k: hits a list and in the end. rerank_k: hits that are reranked. rrf_k: constant of the
    fusion. dense_weight: what the list of the embeddings counts in it, where every other list
    counts 1.
    """

    fetch_k: int = 50
    rerank_k: int = 20
    rrf_k: int = 60
    dense_weight: float = 1.0


class DepthHits(NamedTuple):
    """One depth of one arm: what was searched, its hits [1, 1, 1, K], milliseconds by stage."""

    query: str
    hits: Hits
    ms: Milliseconds


class Strategy(NamedTuple):
    """An arm with what it works with; `walk` follows it depth by depth.

    embed: text -> unit vector [1, dim], for rewritten questions. rewriter: None where nothing is
    rewritten. reranker: None is late interaction over the token embeddings.
    """

    arm: str
    indexes: Indexes
    sizes: Sizes = Sizes()
    embed: Callable[[str], VectorArray] | None = None
    rewriter: Rewriter | None = None
    reranker: Reranker | None = None


def walk(
    strategy: Strategy, question: Queries, scope: WholeArray | None = None
) -> Iterator[DepthHits]:
    """Hits of one question at depth 0, 1, 2 …, each made when it is asked for; endless.

    Depth d searches for the question as it was rewritten from the hits of depth d − 1. Nothing here
    knows a threshold: a trace holds what a live question would find, and any tau is
    replayed.

    Args:
      question: of length one.
      scope: positions that it may find (the user named documents); None is all of them.

    Raises:
      ValueError: the arm must be known and what it needs be there.

    Source: rules S1.2 to S1.4, S2.9, S4.1.
    """
    _check_strategy(strategy)
    arm_traits, indexes, retrieval_sizes = ARMS[strategy.arm], strategy.indexes, strategy.sizes
    n_reranked = (
        min(retrieval_sizes.rerank_k, retrieval_sizes.fetch_k) if arm_traits.reranked else 0
    )
    reranker = strategy.reranker
    if reranker is None and n_reranked:  # one for all depths, which find much the same chunks
        reranker = late_interaction(indexes, question)
    stage_times = {} if question.ms is None else {"embed": question.ms[0]}
    arm_walk = _ArmWalk(strategy, question, scope, reranker, n_reranked, stage_times)
    search_text = original_question = question.texts[0]
    first_lists = arm_walk.search(original_question)
    if (own_index := indexes.arm_indexes.get(strategy.arm)) is not None:
        with arm_walk.timed(strategy.arm):
            arm_walk.own = own_index.search(
                original_question, retrieval_sizes.fetch_k, scope, indexes.bm25
            )
        first_lists = [*first_lists, (arm_walk.own.chunk, 1.0)]
    rewrite_step = 0
    ranked_lists = first_lists
    while True:
        # within a depth, so that depth 0 already knows what the first hits say
        if arm_traits.rewrites:
            rewrite_step += 1
            rewritten_text = arm_walk.rewrite(arm_walk.order(ranked_lists), rewrite_step)
            if rewritten_text != search_text:
                ranked_lists = [*ranked_lists, *arm_walk.search(rewritten_text)]
        ranked_hits = arm_walk.order(ranked_lists)
        with arm_walk.timed("measure"):
            measured_hits = measure_hits(indexes, question, ranked_hits)
        yield DepthHits(search_text, measured_hits, arm_walk.ms)
        rewrite_step, arm_walk.ms = rewrite_step + 1, {}
        search_text = arm_walk.rewrite(ranked_hits, rewrite_step)
        ranked_lists = (
            first_lists
            if search_text == original_question
            else [*first_lists, *arm_walk.search(search_text)]
        )


def _check_strategy(strategy: Strategy) -> None:
    """Stop at an arm that is not known, or that lacks what it works with."""
    arm = strategy.arm
    if arm not in ARMS:
        message = f"arm must be one of {', '.join(ARMS)}, got {arm!r}."
        raise ValueError(message)
    lacks_index = arm not in strategy.indexes.arm_indexes and arm_row(arm) is not None
    if lacks_index or (ARMS[arm].rewrites and strategy.rewriter is None):
        missing_part = "index" if lacks_index else "rewriter"
        message = f"arm {arm} needs its {missing_part}, got none; build it with the arm."
        raise ValueError(message)


@dataclass(slots=True)
class _ArmWalk:
    """A question on its way through the depths of an arm.

    ms: milliseconds by stage of the depth at hand. own: what the arm's own index has for the
    question. The other fields are those of `walk` and `rerank_chunks`.
    """

    strategy: Strategy
    question: Queries
    scope: WholeArray | None
    reranker: Reranker | None
    width: int
    ms: Milliseconds
    own: ArmHits | None = None

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        start_time = perf_counter()
        try:
            yield
        finally:
            self.ms[stage] = self.ms.get(stage, 0.0) + 1e3 * (perf_counter() - start_time)

    def search(self, text: str) -> Lists:
        """Ranked lists of the arm for a text."""
        arm_traits, indexes, retrieval_sizes = (
            ARMS[self.strategy.arm],
            self.strategy.indexes,
            self.strategy.sizes,
        )
        question_vector = self.question.vectors
        if text != self.question.texts[0]:
            if self.strategy.embed is None:
                message = f"arm {self.strategy.arm} searches for rewritten questions; pass embed."
                raise ValueError(message)
            with self.timed("embed"):
                question_vector = self.strategy.embed(text)
        ranked_lists: Lists = []
        if arm_traits.keyword:
            with self.timed("keyword"):
                ranked_lists.append(
                    (indexes.bm25.search([text], retrieval_sizes.fetch_k, [self.scope])[1], 1.0)
                )
        if arm_traits.dense:
            with self.timed("dense"):
                nearest_ids = indexes.nearest(question_vector, retrieval_sizes.fetch_k, self.scope)
                ranked_lists.append((nearest_ids, retrieval_sizes.dense_weight))
        return ranked_lists

    def order(self, ranked_lists: Lists) -> RankedHits:
        """Lists as one, reranked by the original question, in the arm's final order.

        `iterative` fuses the fused order once and the reranked one twice, `graph` that of its own
        index and the reranked one: what the reranker cannot see from the question's words alone
        keeps a say.
        """
        retrieval_sizes, own_hits, table_rows = self.strategy.sizes, self.own, None
        with self.timed("fuse"):
            list_ids, list_weights = zip(*ranked_lists, strict=True)
            fused_hits = reciprocal_rank_fusion(
                list_ids, retrieval_sizes.fetch_k, retrieval_sizes.rrf_k, list_weights
            )
        with self.timed("rerank"):
            if own_hits is not None and own_hits.rows is not None:
                best_rows = [
                    own_hits.rows.get(chunk_place, (-1, 0.0))
                    for chunk_place in fused_hits[1][0].tolist()
                ]
                row_places, row_scores = zip(*best_rows, strict=True)
                table_rows = BestTableRows(np.array([row_places]), np.array([row_scores]))
            indexes, reranker, n_reranked = self.strategy.indexes, self.reranker, self.width
            ranked_hits = rerank_chunks(
                indexes, self.question, fused_hits, reranker, n_reranked, table_rows
            )
            if ARMS[self.strategy.arm].rewrites:
                return fuse_orders(
                    ranked_hits, np.arange(n_reranked), weight=2.0, k=retrieval_sizes.rrf_k
                )
            if own_hits is not None and own_hits.keeps_order:
                own_ranks = ranks_in(own_hits.chunk[0], ranked_hits.chunk[0, :n_reranked])
                return fuse_orders(ranked_hits, own_ranks, k=retrieval_sizes.rrf_k)
            return ranked_hits

    def rewrite(self, ranked_hits: RankedHits, step: int) -> str:
        """What to search after a try; the question itself where nothing rewrites it."""
        original_question = self.question.texts[0]
        rewriter = self.strategy.rewriter
        if rewriter is None:
            return original_question
        with self.timed("rewrite"):
            hit_ranks = np.where(
                ranked_hits.rank[0] >= 0, ranked_hits.rank[0], np.iinfo(np.int32).max
            )
            chunk_places = ranked_hits.chunk[
                0, np.argsort(hit_ranks, kind="stable")[:FEEDBACK_HITS]
            ]
            passage_texts = [
                self.strategy.indexes.texts[chunk_place]
                for chunk_place in chunk_places
                if chunk_place >= 0
            ]
            return rewriter.rewrite(original_question, passage_texts, step)


def measure_hits(indexes: Indexes, queries: Queries, ordered: RankedHits) -> Hits:
    """Measure each hit against the original question and sort by (l2, position), [Q, 1, 1, K].

    Source: rule S1.3.
    """
    chunk_ids = ordered.chunk
    squared_distances, cosines = distances(queries.vectors, indexes.vectors, chunk_ids)
    distance_order = np.lexsort((chunk_ids, squared_distances), axis=-1)

    anchor_ids = np.where(chunk_ids >= 0, indexes.anchors[chunk_ids], -1)

    def laid(hit_values: AnyArray) -> AnyArray:
        return np.take_along_axis(hit_values, distance_order, -1)[:, None, None, :]

    def similarity(signatures: Signatures) -> FloatArray:
        signature_ids = np.where(chunk_ids >= 0, signatures.of_chunk[chunk_ids], -1)
        return laid(distances(queries.vectors, signatures.vectors, signature_ids)[1])

    return Hits(
        chunk=laid(chunk_ids).astype(np.int32),
        rank=laid(ordered.rank).astype(np.int32),
        l2=laid(squared_distances),
        cosine=laid(cosines),
        s_hybrid=laid(ordered.s_hybrid),
        s_rerank=laid(ordered.s_rerank),
        s_raw=laid(ordered.s_raw),
        anchor_sim=laid(distances(queries.vectors, indexes.vectors, anchor_ids)[1]),
        sig_sim=similarity(indexes.signatures),
        sig_sim_strict=similarity(indexes.strict_signatures),
        n_reranked=(chunk_ids[:, : ordered.n_reranked] >= 0)
        .sum(axis=1)
        .astype(np.int32)[:, None, None],
    )
