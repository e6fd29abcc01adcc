"""Arms of retrieval (shore): strategies and measured hits (S1.2 to S1.4, S2.9, S4.1).

The hits of each strategy are measured against the question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extension_points import extension, installed
from raglab.policy_parts.arms import ARMS, LIVE_ARMS
from raglab.retrieval.dense import cosines, distances
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
    rerank_with_rows,
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
    call = f"build_index(…, arms={(*there, wanted)!r})"
    msg = (
        f"arm must be one of the index's {', '.join(there)}, got {wanted}; make the index with "
        f"it, by {call}."
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
    check_strategy(strategy)
    # one for all depths, which find much the same chunks
    if strategy.reranker is None and _rerank_width(strategy):
        strategy = strategy._replace(reranker=late_interaction(strategy.indexes, question))
    text, ms = question.texts[0], {} if question.ms is None else {"embed": question.ms[0]}
    base = _ranked_lists(strategy, text, question.vectors, scope, ms)
    own = _search_own_index(strategy, text, scope, ms)
    first = base if own is None else [*base, (own.chunk, 1.0)]
    step, lists = 0, first
    while True:
        # within a depth, so that depth 0 already knows what the first hits say
        if ARMS[strategy.arm].rewrites:
            step += 1
            best = _order_hits(strategy, question, _fuse_lists(strategy, lists, ms), own, ms)
            again = _rewritten(strategy, question, best, step, ms)
            if again != text:
                lists = [
                    *lists,
                    *_ranked_lists(strategy, again, _vector(strategy, again, ms), scope, ms),
                ]
        ordered = _order_hits(strategy, question, _fuse_lists(strategy, lists, ms), own, ms)
        with _time_stage(ms, "measure"):
            hits = measure_hits(strategy.indexes, question, ordered)
        yield DepthHits(text, hits, ms)
        step, ms = step + 1, {}
        text = _rewritten(strategy, question, ordered, step, ms)
        more = (
            []
            if text == question.texts[0]
            else _ranked_lists(strategy, text, _vector(strategy, text, ms), scope, ms)
        )
        lists = [*first, *more]


def depths(
    strategy: Strategy, question: Queries, n: int, scope: NDArray[np.integer] | None = None
) -> list[DepthHits]:
    """The first n depths of a question."""
    return list(islice(walk(strategy, question, scope), n))


def check_strategy(strategy: Strategy) -> None:
    """Stop at an arm that is not known, or that lacks what it works with."""
    arm, indexes = strategy.arm, strategy.indexes
    if arm not in ARMS:
        msg = f"arm must be one of {', '.join(ARMS)}, got {arm!r}; choose one of them."
        raise ValueError(msg)
    lacks_index = arm not in indexes.arm_indexes and arm_row(arm) is not None
    if lacks_index or (ARMS[arm].rewrites and strategy.rewriter is None):
        msg = (
            f"arm {arm} needs its {'index' if lacks_index else 'rewriter'}, got none; build it "
            "with the arm."
        )
        raise ValueError(msg)


@contextmanager
def _time_stage(ms: Milliseconds, stage: str) -> Iterator[None]:
    start = perf_counter()
    try:
        yield
    finally:
        ms[stage] = ms.get(stage, 0.0) + 1e3 * (perf_counter() - start)


def _ranked_lists(
    strategy: Strategy,
    text: str,
    vector: NDArray[np.float32],
    scope: NDArray[np.integer] | None,
    ms: Milliseconds,
) -> Lists:
    """Ranked lists of an arm for one text."""
    arm, indexes, k = ARMS[strategy.arm], strategy.indexes, strategy.sizes.fetch_k
    lists: Lists = []
    if arm.keyword:
        with _time_stage(ms, "keyword"):
            lists.append((indexes.bm25.search([text], k, [scope])[1], 1.0))
    if arm.dense:
        with _time_stage(ms, "dense"):
            lists.append((indexes.nearest(vector, k, scope), strategy.sizes.dense_weight))
    return lists


def _search_own_index(
    strategy: Strategy, text: str, scope: NDArray[np.integer] | None, ms: Milliseconds
) -> ArmHits | None:
    """What the arm's own index finds for the question itself; None where it has none."""
    index = strategy.indexes.arm_indexes.get(strategy.arm)
    if index is None:
        return None
    with _time_stage(ms, strategy.arm):
        return index.search(text, strategy.sizes.fetch_k, scope, strategy.indexes.bm25)


def _fuse_lists(
    strategy: Strategy, lists: Lists, ms: Milliseconds
) -> tuple[NDArray[np.float64], Ids]:
    with _time_stage(ms, "fuse"):
        ids, weights = zip(*lists, strict=True)
        return reciprocal_rank_fusion(ids, strategy.sizes.fetch_k, strategy.sizes.rrf_k, weights)


def _rerank_width(strategy: Strategy) -> int:
    """How many of the fused hits are reranked."""
    return (
        min(strategy.sizes.rerank_k, strategy.sizes.fetch_k) if ARMS[strategy.arm].reranked else 0
    )


def _order_hits(
    strategy: Strategy,
    question: Queries,
    fused: tuple[NDArray[np.float64], Ids],
    own: ArmHits | None,
    ms: Milliseconds,
) -> RankedHits:
    """Hits reranked by the original question, in the arm's final order.

    `iterative` fuses the fused order once and the reranked one twice, `graph` that of its own index
    and the reranked one: what the reranker cannot see from the question's words alone keeps a say.
    """
    indexes, reranker, width = strategy.indexes, strategy.reranker, _rerank_width(strategy)
    with _time_stage(ms, "rerank"):
        if own is not None and own.rows is not None and reranker is not None and width:
            pairs = [own.rows.get(place, (-1, 0.0)) for place in fused[1][0].tolist()]
            best_rows = BestTableRows(*(np.array([[pair[at] for pair in pairs]]) for at in (0, 1)))
            return rerank_with_rows(indexes, question, fused, reranker, width, best_rows)
        ordered = rerank_chunks(indexes, question, fused, reranker, width)
        if ARMS[strategy.arm].rewrites:
            return fuse_orders(ordered, np.arange(width), weight=2.0, k=strategy.sizes.rrf_k)
        if own is not None and own.keeps_order:
            return fuse_orders(
                ordered, ranks_in(own.chunk[0], ordered.chunk[0, :width]), k=strategy.sizes.rrf_k
            )
        return ordered


def _rewritten(
    strategy: Strategy, question: Queries, best: RankedHits, step: int, ms: Milliseconds
) -> str:
    """What to search after a try, from its best hits.

    The question itself where nothing rewrites it.
    """
    if strategy.rewriter is None:
        return question.texts[0]
    with _time_stage(ms, "rewrite"):
        rank = np.where(best.rank[0] >= 0, best.rank[0], np.iinfo(np.int32).max)
        places = best.chunk[0, np.argsort(rank, kind="stable")[:FEEDBACK]]
        texts = [strategy.indexes.texts[place] for place in places if place >= 0]
        return strategy.rewriter.rewrite(question.texts[0], texts, step)


def _vector(strategy: Strategy, text: str, ms: Milliseconds) -> NDArray[np.float32]:
    if strategy.embed is None:
        msg = (
            f"arm {strategy.arm} rewrites questions and needs an embedding for them, got none; "
            "pass embed."
        )
        raise ValueError(msg)
    with _time_stage(ms, "embed"):
        return strategy.embed(text)


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
        return laid(cosines(queries.vectors, signatures.vectors, ids))

    return Hits(
        chunk=laid(chunk).astype(np.int32),
        rank=laid(ordered.rank).astype(np.int32),
        l2=laid(l2),
        cosine=laid(cosine),
        s_hybrid=laid(ordered.s_hybrid),
        s_rerank=laid(ordered.s_rerank),
        s_raw=laid(ordered.s_raw),
        anchor_sim=laid(cosines(queries.vectors, indexes.vectors, anchors)),
        sig_sim=similarity(indexes.signatures),
        sig_sim_strict=similarity(indexes.strict_signatures),
        n_reranked=(chunk[:, : ordered.n_reranked] >= 0)
        .sum(axis=1)
        .astype(np.int32)[:, None, None],
    )
