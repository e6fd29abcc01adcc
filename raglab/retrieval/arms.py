"""Arms of retrieval (shore): strategies and measured hits (S1.2 to S1.4, S2.9, S4.1).

The hits of each strategy are measured against the question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extension_points import extension, installed
from raglab.policy_parts.arms import ARMS, LIVE_ARMS
from raglab.retrieval.dense import distances
from raglab.retrieval.indexes import ArmHits, ArmIndex, Indexes, Queries, Signatures
from raglab.retrieval.rank_fusion import reciprocal_rank_fusion
from raglab.retrieval.reranking import (
    BestTableRows,
    RankedHits,
    Reranker,
    Values,
    fuse_orders,
    late_interaction,
    ranks_in,
    rerank_chunks,
)
from raglab.retrieval.rewriting import Rewriter
from raglab.values import Chunk, Hits
from raglab.words.packs import Pack

STAGES = ("embed", "rewrite", "keyword", "dense", "graph", "table", "fuse", "rerank", "measure")
FEEDBACK = 20  # hits whose texts a rewriter may read

Ids = NDArray[np.int64]
Lists = list[tuple[Ids, float]]  # ids [1, k] of a ranked list, and what it counts in the fusion
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
    room = ARMS[arm].room if arm in ARMS else ""
    row: ArmRow | None = extension(f"arm.{arm}", room, f"arm {arm}") if room else None
    return row


def check_arm(wanted: str, there: Collection[str]) -> None:
    """Refuse an arm that an index does not hold.

    The router and the bandit take those that it holds.

    Args:
      wanted: arm, router or bandit.
      there: arms of the index.

    Raises:
      ValueError: the index lacks the arm.
      MissingExtensionError: the room of the arm is not installed.
    """
    if wanted in {"router", "bandit"} or wanted in there:
        return
    arm_row(wanted)  # an arm whose room is not installed can be in no index
    msg = (
        f"arm must be one of the index's {', '.join(there)}, got {wanted}; make it by "
        f"build_index(…, arms={(*there, wanted)!r})."
    )
    raise ValueError(msg)


def live_arms() -> tuple[str, ...]:
    """Arms that may answer live and whose room is installed."""
    return tuple(arm for arm in LIVE_ARMS if not ARMS[arm].room or ARMS[arm].room in installed())


def arm_rows(arms: Sequence[str], chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Passages that some arms' own indexes add behind a corpus's chunks, in arm order."""
    rows = filter(None, map(arm_row, arms))
    return tuple(passage for row in rows for passage in row.rows(chunks))


def build_arm_indexes(
    arms: Sequence[str], chunks: Sequence[Chunk], pack: Pack
) -> dict[str, ArmIndex]:
    """Own indexes of some arms over the chunks of a corpus, by arm."""
    built: dict[str, ArmIndex] = {}
    first = len(chunks)
    for arm in arms:
        row = arm_row(arm)
        if row is not None:
            built[arm] = row.build(chunks, first, pack)
            first += len(built[arm].rows)
    return built


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
    embed: Callable[[str], NDArray[np.float32]] | None = None
    rewriter: Rewriter | None = None
    reranker: Reranker | None = None


def walk(
    strategy: Strategy, question: Queries, scope: NDArray[np.integer] | None = None
) -> Iterator[DepthHits]:
    """Hits of one question at depth 0, 1, 2 …, each made when it is asked for; endless.

    Depth d searches for the question as it was rewritten from the hits of depth d − 1. Nothing here
    knows a threshold, so that a trace holds what a live question would find, and any tau is
    replayed.

    Args:
      question: of length one.
      scope: positions that it may find (the user named documents); None is all of them.

    Raises:
      ValueError: the arm must be known and what it needs be there.

    Source: rules S1.2 to S1.4, S2.9, S4.1.
    """
    _check_strategy(strategy)
    arm, indexes, sizes = ARMS[strategy.arm], strategy.indexes, strategy.sizes
    width = min(sizes.rerank_k, sizes.fetch_k) if arm.reranked else 0
    reranker = strategy.reranker
    if reranker is None and width:  # one for all depths, which find much the same chunks
        reranker = late_interaction(indexes, question)
    ms = {} if question.ms is None else {"embed": question.ms[0]}
    way = _ArmWalk(strategy, question, scope, reranker, width, ms)
    text = original = question.texts[0]
    first = way.search(original)
    if (own_index := indexes.arm_indexes.get(strategy.arm)) is not None:
        with way.timed(strategy.arm):
            way.own = own_index.search(original, sizes.fetch_k, scope, indexes.bm25)
        first = [*first, (way.own.chunk, 1.0)]
    step, lists = 0, first
    while True:
        # within a depth, so that depth 0 already knows what the first hits say
        if arm.rewrites:
            step += 1
            again = way.rewrite(way.order(lists), step)
            if again != text:
                lists = [*lists, *way.search(again)]
        ordered = way.order(lists)
        with way.timed("measure"):
            hits = measure_hits(indexes, question, ordered)
        yield DepthHits(text, hits, way.ms)
        step, way.ms = step + 1, {}
        text = way.rewrite(ordered, step)
        lists = first if text == original else [*first, *way.search(text)]


def _check_strategy(strategy: Strategy) -> None:
    """Stop at an arm that is not known, or that lacks what it works with."""
    arm = strategy.arm
    if arm not in ARMS:
        msg = f"arm must be one of {', '.join(ARMS)}, got {arm!r}."
        raise ValueError(msg)
    lacks_index = arm not in strategy.indexes.arm_indexes and arm_row(arm) is not None
    if lacks_index or (ARMS[arm].rewrites and strategy.rewriter is None):
        lacking = "index" if lacks_index else "rewriter"
        msg = f"arm {arm} needs its {lacking}, got none; build it with the arm."
        raise ValueError(msg)


@dataclass(slots=True)
class _ArmWalk:
    """A question on its way through the depths of an arm.

    ms: milliseconds by stage of the depth at hand. own: what the arm's own index has for the
    question. The other fields are those of `walk` and `rerank_chunks`.
    """

    strategy: Strategy
    question: Queries
    scope: NDArray[np.integer] | None
    reranker: Reranker | None
    width: int
    ms: Milliseconds
    own: ArmHits | None = None

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        start = perf_counter()
        try:
            yield
        finally:
            self.ms[stage] = self.ms.get(stage, 0.0) + 1e3 * (perf_counter() - start)

    def search(self, text: str) -> Lists:
        """Ranked lists of the arm for a text."""
        arm, indexes, sizes = ARMS[self.strategy.arm], self.strategy.indexes, self.strategy.sizes
        vector = self.question.vectors
        if text != self.question.texts[0]:
            if self.strategy.embed is None:
                msg = f"arm {self.strategy.arm} searches for rewritten questions; pass embed."
                raise ValueError(msg)
            with self.timed("embed"):
                vector = self.strategy.embed(text)
        lists: Lists = []
        if arm.keyword:
            with self.timed("keyword"):
                lists.append((indexes.bm25.search([text], sizes.fetch_k, [self.scope])[1], 1.0))
        if arm.dense:
            with self.timed("dense"):
                nearest = indexes.nearest(vector, sizes.fetch_k, self.scope)
                lists.append((nearest, sizes.dense_weight))
        return lists

    def order(self, lists: Lists) -> RankedHits:
        """Lists as one, reranked by the original question, in the arm's final order.

        `iterative` fuses the fused order once and the reranked one twice, `graph` that of its own
        index and the reranked one: what the reranker cannot see from the question's words alone
        keeps a say.
        """
        sizes, own, rows = self.strategy.sizes, self.own, None
        with self.timed("fuse"):
            ids, weights = zip(*lists, strict=True)
            fused = reciprocal_rank_fusion(ids, sizes.fetch_k, sizes.rrf_k, weights)
        with self.timed("rerank"):
            if own is not None and own.rows is not None:
                pairs = [own.rows.get(place, (-1, 0.0)) for place in fused[1][0].tolist()]
                places, shares = zip(*pairs, strict=True)
                rows = BestTableRows(np.array([places]), np.array([shares]))
            indexes, reranker, width = self.strategy.indexes, self.reranker, self.width
            ordered = rerank_chunks(indexes, self.question, fused, reranker, width, rows)
            if ARMS[self.strategy.arm].rewrites:
                return fuse_orders(ordered, np.arange(width), weight=2.0, k=sizes.rrf_k)
            if own is not None and own.keeps_order:
                ranks = ranks_in(own.chunk[0], ordered.chunk[0, :width])
                return fuse_orders(ordered, ranks, k=sizes.rrf_k)
            return ordered

    def rewrite(self, best: RankedHits, step: int) -> str:
        """What to search after a try; the question itself where nothing rewrites it."""
        original, rewriter = self.question.texts[0], self.strategy.rewriter
        if rewriter is None:
            return original
        with self.timed("rewrite"):
            rank = np.where(best.rank[0] >= 0, best.rank[0], np.iinfo(np.int32).max)
            places = best.chunk[0, np.argsort(rank, kind="stable")[:FEEDBACK]]
            texts = [self.strategy.indexes.texts[place] for place in places if place >= 0]
            return rewriter.rewrite(original, texts, step)


def measure_hits(indexes: Indexes, queries: Queries, ordered: RankedHits) -> Hits:
    """Measure each hit against the original question and sort by (l2, position), [Q, 1, 1, K].

    Source: rule S1.3.
    """
    chunk = ordered.chunk
    l2, cosine = distances(queries.vectors, indexes.vectors, chunk)
    order = np.lexsort((chunk, l2), axis=-1)

    anchors = np.where(chunk >= 0, indexes.anchors[chunk], -1)

    def laid(values: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(values, order, -1)[:, None, None, :]

    def similarity(signatures: Signatures) -> Values:
        ids = np.where(chunk >= 0, signatures.of_chunk[chunk], -1)
        return laid(distances(queries.vectors, signatures.vectors, ids)[1])

    return Hits(
        chunk=laid(chunk).astype(np.int32),
        rank=laid(ordered.rank).astype(np.int32),
        l2=laid(l2),
        cosine=laid(cosine),
        s_hybrid=laid(ordered.s_hybrid),
        s_rerank=laid(ordered.s_rerank),
        s_raw=laid(ordered.s_raw),
        anchor_sim=laid(distances(queries.vectors, indexes.vectors, anchors)[1]),
        sig_sim=similarity(indexes.signatures),
        sig_sim_strict=similarity(indexes.strict_signatures),
        n_reranked=(chunk[:, : ordered.n_reranked] >= 0)
        .sum(axis=1)
        .astype(np.int32)[:, None, None],
    )
