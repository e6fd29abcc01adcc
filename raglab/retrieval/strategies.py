"""The arms: how a question becomes hits, measured all alike whichever way they were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.models import Tokens
from raglab.retrieval.bm25 import Bm25Index
from raglab.retrieval.dense import DenseIndex, Kind, cosines, dense_index, distances
from raglab.retrieval.embed import EmbeddingCache, TextEncoder, embed
from raglab.retrieval.fuse import reciprocal_rank_fusion
from raglab.retrieval.rerank import MaxSim, Reranker
from raglab.values import Hits

ARMS = ("hybrid", "dense", "bm25")
ANCHOR = 800

Ids = NDArray[np.int64]
Values = NDArray[np.float64]
Vectors = NDArray[np.float32]
Allowed = Sequence[NDArray[np.integer] | None]


class Queries(NamedTuple):
    """Questions and their embeddings.

    texts: Q. vectors: [Q, dim], L2-normalised. tokens: one [n_tokens, dim] a question; None where nothing needs them.
    """

    texts: Sequence[str]
    vectors: Vectors
    tokens: Sequence[Tokens] | None = None


class Signatures(NamedTuple):
    """Rendered signatures of a corpus (rule S3.1).

    of_chunk: position in `vectors` of each chunk's signature, [N]; -1 where it has none. vectors: [S, dim].
    """

    of_chunk: NDArray[np.integer]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Indexes:
    """All that retrieval needs of a corpus, built once.

    texts: N chunks in corpus order. tokens: token embeddings by text, empty where nothing needs them. anchors:
    embeddings of the first 800 characters, [N, dim]. signatures, strict_signatures: loose and strict.
    """

    texts: tuple[str, ...] = field(repr=False)
    tokens: Mapping[str, Tokens] = field(repr=False)
    anchors: Vectors = field(repr=False)
    dense: DenseIndex
    bm25: Bm25Index
    signatures: Signatures
    strict_signatures: Signatures


class _Ordered(NamedTuple):
    """Hits of an arm in fused order, [Q, K]; rank is their place in the arm's final order."""

    chunk: Ids
    rank: Ids
    s_hybrid: Values
    s_rerank: Values
    s_raw: Values


def build_indexes(
    texts: Sequence[str],
    encoder: TextEncoder,
    cache: EmbeddingCache | None,
    signatures: Signatures,
    strict_signatures: Signatures,
    *,
    kind: Kind = "flat",
    tokens: bool = True,
    progress: bool = False,
) -> Indexes:
    """Embed and index the chunks of a corpus.

    Args:
      texts: N chunks in corpus order.
      encoder: of the chunks; the queries must come from the same.
      cache: of embeddings; None keeps nothing.
      signatures: (domain, doc_type, product), rendered and embedded.
      strict_signatures: with vendor and version.
      kind: of the dense index.
      tokens: whether token embeddings are kept, as late interaction needs them.
      progress: whether bars count the texts that are encoded.

    Raises:
      ValueError: there must be chunks, and one signature place for each.
    """
    for name, one in (("signatures", signatures), ("strict_signatures", strict_signatures)):
        if one.of_chunk.shape != (len(texts),):
            msg = f"{name}.of_chunk must have shape [{len(texts)}], got {list(one.of_chunk.shape)}; -1 marks none."
            raise ValueError(msg)
    bm25 = Bm25Index(texts)
    whole = embed(encoder, texts, cache, tokens=tokens, progress=progress)
    long = [i for i, text in enumerate(texts) if len(text) > ANCHOR]
    anchors = whole.vectors.copy()
    anchors[long] = embed(encoder, [texts[i][:ANCHOR] for i in long], cache, progress=progress).vectors
    by_text = dict(zip(texts, whole.tokens, strict=True)) if whole.tokens is not None else {}
    dense = dense_index(whole.vectors, kind)
    return Indexes(tuple(texts), by_text, anchors, dense, bm25, signatures, strict_signatures)


def embed_queries(
    texts: Sequence[str],
    encoder: TextEncoder,
    cache: EmbeddingCache | None,
    *,
    tokens: bool = True,
    progress: bool = False,
) -> Queries:
    """Questions with their embeddings."""
    whole = embed(encoder, texts, cache, tokens=tokens, progress=progress)
    return Queries(tuple(texts), whole.vectors, whole.tokens)


def retrieve(
    indexes: Indexes,
    queries: Queries,
    arm: str,
    *,
    fetch_k: int = 50,
    rerank_k: int = 20,
    rrf_k: int = 60,
    reranker: Reranker | None = None,
    allowed: Allowed | None = None,
) -> Hits:
    """Hits of one arm, [Q, 1, 1, fetch_k], by (l2, position); chunks are positions in the corpus.

    `hybrid` fuses keyword and dense search and reranks the first of the fused list; the others are one list each.

    Args:
      indexes: of the corpus.
      queries: Q questions.
      arm: one of ARMS.
      fetch_k: hits a query, from each list and in the end.
      rerank_k: hits that are reranked.
      rrf_k: constant of the fusion.
      reranker: None is late interaction over the token embeddings.
      allowed: for each query the positions it may find (the user named documents); None is all of them.

    Raises:
      ValueError: the arm must be known, scopes one a query and inside the corpus.

    Source: rules S1.2 to S1.4.
    """
    if arm not in ARMS:
        msg = f"arm must be one of {', '.join(ARMS)}, got {arm!r}; choose one of them."
        raise ValueError(msg)
    _check_scopes(allowed, len(queries.texts), len(indexes.texts))
    lists = []
    if arm in {"hybrid", "bm25"}:
        lists.append(indexes.bm25.search(queries.texts, fetch_k, allowed)[1])
    if arm in {"hybrid", "dense"}:
        lists.append(indexes.dense.search(queries.vectors, fetch_k, allowed)[1])
    fused = reciprocal_rank_fusion(lists, fetch_k, rrf_k)
    width = min(rerank_k, fetch_k) if arm == "hybrid" else 0
    if width and reranker is None:
        reranker = late_interaction(indexes, queries)
    ordered = _reranked(indexes, queries, fused, reranker, width)
    return _measured(indexes, queries, ordered, width)


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


def _reranked(
    indexes: Indexes, queries: Queries, fused: tuple[Values, Ids], reranker: Reranker | None, width: int
) -> _Ordered:
    """Fused hits with the reranker's scores of the first `width`; those go first, by (s_rerank, s_hybrid, position)."""
    s_hybrid, chunk = fused
    s_rerank, s_raw = np.full(chunk.shape, np.nan), np.full(chunk.shape, np.nan)
    place = np.broadcast_to(np.arange(chunk.shape[1]), chunk.shape).copy()
    if reranker is not None and width:
        head = chunk[:, :width]
        s_raw[:, :width], s_rerank[:, :width] = reranker.scores(queries.texts, indexes.texts, head)
        order = np.lexsort((head, -s_hybrid[:, :width], -s_rerank[:, :width]), axis=-1)
        np.put_along_axis(place, order, np.broadcast_to(np.arange(width), order.shape), axis=-1)
    return _Ordered(chunk, np.where(chunk >= 0, place, -1), s_hybrid, s_rerank, s_raw)


def _measured(indexes: Indexes, queries: Queries, ordered: _Ordered, width: int) -> Hits:
    """Measure every hit against the original query (rule S1.3) and put the hits in the order of (l2, position)."""
    chunk = ordered.chunk
    l2, cosine = distances(queries.vectors, indexes.dense.vectors, chunk)
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
        n_reranked=(chunk[:, :width] >= 0).sum(axis=1).astype(np.int32)[:, None, None],
    )


def _check_scopes(allowed: Allowed | None, n_queries: int, n_chunks: int) -> None:
    """Stop at scopes that are not one a query, or that leave the corpus."""
    if allowed is None:
        return
    if len(allowed) != n_queries:
        msg = f"allowed must have one entry a query, got {len(allowed)} for {n_queries}; None is the whole corpus."
        raise ValueError(msg)
    for scope in allowed:
        if scope is not None and scope.size and not (scope.min() >= 0 and scope.max() < n_chunks):
            msg = (
                f"allowed positions must be in [0, {n_chunks - 1}], got {scope.min()} to {scope.max()}; "
                "they are places in the corpus."
            )
            raise ValueError(msg)
