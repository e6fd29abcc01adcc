"""Fused hits of one question → reranked and measured hits, the same whichever way they were found."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.retrieval.dense import cosines, distances
from raglab.retrieval.indexes import Indexes, Queries, Signatures
from raglab.retrieval.rerank import MaxSim, Reranker
from raglab.values import Hits

ROW_SHARE = 0.2  # chosen on the bundled tune split, where 0.15 to 0.25 do alike

Ids = NDArray[np.int64]
Values = NDArray[np.float64]


class Ordered(NamedTuple):
    """Hits of an arm in fused order, [Q, K]; rank is their place in the arm's final order; the first were reranked."""

    chunk: Ids
    rank: Ids
    s_hybrid: Values
    s_rerank: Values
    s_raw: Values
    n_reranked: int


def late_interaction(indexes: Indexes, queries: Queries) -> MaxSim:
    """Return the reranker over the token embeddings that came with indexes and queries.

    Raises:
      ValueError: both must have token embeddings.
    """
    if queries.tokens is None or not indexes.tokens:
        lacking = "the queries" if queries.tokens is None else "the indexes"
        msg = f"late interaction needs token embeddings, got none with {lacking}; embed tokens or pass a reranker."
        raise ValueError(msg)
    return MaxSim(dict(zip(queries.texts, queries.tokens, strict=True)), indexes.tokens)


def reranked(
    indexes: Indexes, queries: Queries, fused: tuple[Values, Ids], reranker: Reranker | None, width: int
) -> Ordered:
    """Fused hits with the reranker's scores of the first `width`; those go first, by (s_rerank, s_hybrid, position)."""
    s_hybrid, chunk = fused
    s_rerank, s_raw = np.full(chunk.shape, np.nan), np.full(chunk.shape, np.nan)
    place = np.broadcast_to(np.arange(chunk.shape[1]), chunk.shape).copy()
    if reranker is not None and width:
        head = chunk[:, :width]
        s_raw[:, :width], s_rerank[:, :width] = reranker.scores(queries.texts, indexes.texts, head)
        order = np.lexsort((head, -s_hybrid[:, :width], -s_rerank[:, :width]), axis=-1)
        np.put_along_axis(place, order, np.broadcast_to(np.arange(width), order.shape), axis=-1)
    return Ordered(chunk, np.where(chunk >= 0, place, -1), s_hybrid, s_rerank, s_raw, width)


class Rows(NamedTuple):
    """The best row of a table in each fused chunk: its place among `Indexes.texts` and its search score, [Q, K].

    -1 and 0 where a chunk has none.
    """

    place: Ids
    share: Values


def rows_reranked(
    indexes: Indexes, queries: Queries, fused: tuple[Values, Ids], reranker: Reranker, width: int, rows: Rows
) -> Ordered:
    """Fused chunks reranked with their best rows; a row stands for its chunk where it is nearer to the question.

    s_rerank = (the better of chunk and row + ROW_SHARE · search score of the row) / (1 + ROW_SHARE), in [0, 1].
    """
    s_hybrid, chunk = fused
    head, row = chunk[:, :width], rows.place[:, :width]
    raw_chunk, of_chunk = reranker.scores(queries.texts, indexes.texts, head)
    raw_row, of_row = reranker.scores(queries.texts, indexes.texts, row)
    best = np.fmax(of_chunk, of_row)
    mixed = ((best + ROW_SHARE * rows.share[:, :width]) / (1.0 + ROW_SHARE)).astype(np.float32).astype(np.float64)
    with np.errstate(invalid="ignore"):
        nearer = of_row > of_chunk
    shown = chunk.copy()
    shown[:, :width] = np.where(nearer, row, head)
    s_rerank, s_raw = np.full(chunk.shape, np.nan), np.full(chunk.shape, np.nan)
    s_rerank[:, :width], s_raw[:, :width] = mixed, np.where(nearer, raw_row, raw_chunk)
    place = np.broadcast_to(np.arange(chunk.shape[1]), chunk.shape).copy()
    order = np.lexsort((head, -s_hybrid[:, :width], -mixed), axis=-1)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(width), order.shape), axis=-1)
    return Ordered(shown, np.where(chunk >= 0, place, -1), s_hybrid, s_rerank, s_raw, width)


def ranks_in(ids: Ids, head: Ids) -> NDArray[np.int64]:
    """Rank from 0 of each id of the head among those that a list holds of it, [R]; -1 where the list lacks it.

    Example:
      >>> ranks_in(np.array([7, 3, 9]), np.array([9, 7, 1]))
      array([ 1,  0, -1])
    """
    kept = [number for number in ids.tolist() if number in set(head[head >= 0].tolist())]
    place = {number: rank for rank, number in enumerate(kept)}
    return np.array([place.get(number, -1) for number in head.tolist()], dtype=np.int64)


def reordered(ordered: Ordered, other: NDArray[np.int64], *, weight: float = 1.0, k: int = 60) -> Ordered:
    """Order of one question's reranked hits fused by reciprocal rank with another order of them; scores stay.

    Args:
      other: ranks from 0 of the first hits as they stand, [R]; -1 where it lacks one. weight: of the reranked order.
      k: constant of the fusion.
    """
    head, own = (field[0, : ordered.n_reranked] for field in (ordered.chunk, ordered.rank))
    total = weight / (k + 1.0 + own) + np.where(other >= 0, 1.0 / (k + 1.0 + other), 0.0)
    order = np.lexsort((head, own, -total, head < 0))
    rank = ordered.rank.copy()
    rank[0, order] = np.arange(len(order))
    return ordered._replace(rank=np.where(ordered.chunk >= 0, rank, -1))


def measured(indexes: Indexes, queries: Queries, ordered: Ordered) -> Hits:
    """Measure every hit against the original question and put the hits in the order of (l2, position), [Q, 1, 1, K].

    Source: rule S1.3.
    """
    chunk = ordered.chunk
    l2, cosine = distances(queries.vectors, indexes.vectors, chunk)
    order = np.lexsort((chunk, l2), axis=-1)

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
        anchor_sim=laid(cosines(queries.vectors, indexes.anchors, chunk)),
        sig_sim=similarity(indexes.signatures),
        sig_sim_strict=similarity(indexes.strict_signatures),
        n_reranked=(chunk[:, : ordered.n_reranked] >= 0).sum(axis=1).astype(np.int32)[:, None, None],
    )
