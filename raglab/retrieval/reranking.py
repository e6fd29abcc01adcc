"""Reranking (shore): MaxSim or a cross-encoder, rows of tables first, orders fused (S1.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from raglab.models.loaders import CrossEncoder, Tokens
from raglab.retrieval.indexes import Indexes, Queries, TokensByText
from raglab.values import FloatArray, IntArray, VectorArray, WholeArray

HALF_TO_SINGLE_SHIFT = 13
HALF_TO_SINGLE_MASK = np.int32(-0x70002000)
HALF_TO_SINGLE_SCALE = np.float32(2.0**112)


class RerankScores(NamedTuple):
    """Scores of the candidates, [Q, R], rounded to float32; NaN where the id is -1.

    raw: as the model gives them. s_rerank: in [0, 1].
    """

    raw: FloatArray
    s_rerank: FloatArray


class Reranker(Protocol):
    """What scores candidates closely."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints."""

    def scores(
        self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: WholeArray
    ) -> RerankScores:
        """Scores of each query's candidates.

        Args:
          query_texts: Q queries.
          doc_texts: N documents.
          candidates: positions in `doc_texts`, [Q, R]; -1 for none.
        """


@dataclass(frozen=True, slots=True)
class MaxSim:
    """The mean over the query's tokens of the best cosine with any token of the document.

    A rank-only score until it is calibrated (rule S1.4). A pair's score does not depend on its
    neighbours in the batch; a text without tokens has none (NaN).

    query_tokens, doc_tokens: token embeddings [n_tokens, dim] by text, as `embed` gives them.
    known: score by texts of query and document, filled as pairs are scored: the depths of a
    question ask for much the same documents.
    """

    query_tokens: Mapping[str, Tokens] = field(repr=False)
    doc_tokens: TokensByText = field(repr=False)
    name: str = "maxsim"
    known: dict[tuple[str, str], float] = field(default_factory=dict, repr=False, compare=False)

    def scores(
        self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: WholeArray
    ) -> RerankScores:
        """Scores of each query's candidates, raw and clipped to [0, 1]."""
        raw_scores = np.full(candidates.shape, np.nan)
        with _threads().limit(limits=1, user_api="blas"):
            for query_index, query in enumerate(query_texts):
                query_tokens = _widen_float16(self.query_tokens[query]).T
                for candidate_index in np.flatnonzero(candidates[query_index] >= 0).tolist():
                    text_pair = query, doc_texts[candidates[query_index, candidate_index]]
                    if text_pair not in self.known:
                        document_tokens = _widen_float16(self.doc_tokens[text_pair[1]])
                        self.known[text_pair] = (
                            float((document_tokens @ query_tokens).max(axis=0).mean())
                            if query_tokens.size and document_tokens.size
                            else np.nan
                        )
                    raw_scores[query_index, candidate_index] = self.known[text_pair]
        rounded_scores = _round_scores(raw_scores)
        return RerankScores(rounded_scores, rounded_scores.clip(0.0, 1.0))


@dataclass(frozen=True, slots=True)
class CrossEncoderReranker:
    """The sigmoid of a cross-encoder's logit.

    model: reads query and document together.
    """

    model: CrossEncoder

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def scores(
        self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: WholeArray
    ) -> RerankScores:
        """Scores of each query's candidates, raw logits and their sigmoid."""
        raw_scores = np.full(candidates.shape, np.nan)
        query_indices, candidate_indices = np.nonzero(candidates >= 0)
        positions = candidates[query_indices, candidate_indices].tolist()
        text_pairs = [
            (query_texts[query_index], doc_texts[document_index])
            for query_index, document_index in zip(query_indices.tolist(), positions, strict=True)
        ]
        raw_scores[query_indices, candidate_indices] = _round_scores(self.model.logits(text_pairs))
        return RerankScores(raw_scores, _round_scores(0.5 * (1.0 + np.tanh(0.5 * raw_scores))))


@cache
def _threads() -> ThreadpoolController:
    """What holds matrix products to one thread.

    Products so small only wait for each other on several.
    """
    return ThreadpoolController()


def _widen_float16(half_values: Tokens) -> VectorArray:
    """Convert finite float16 to float32 exactly and faster than `astype`.

    It is five times faster where numpy has no instruction for it.

    The exponent and mantissa bits move into place; the product with a power of two corrects the
    exponent's bias.
    """
    float_bits = half_values.view(np.int16).astype(np.int32)
    float_bits <<= HALF_TO_SINGLE_SHIFT
    float_bits &= HALF_TO_SINGLE_MASK
    single_values = float_bits.view(np.float32)
    single_values *= HALF_TO_SINGLE_SCALE
    return single_values


def _round_scores(unrounded_scores: FloatArray) -> FloatArray:
    """Values rounded to float32, as float64."""
    return unrounded_scores.astype(np.float32).astype(np.float64)


ROW_SHARE = 0.2  # chosen on the bundled tune split, where 0.15 to 0.25 do alike


class RankedHits(NamedTuple):
    """Hits of an arm in fused order, [Q, K]; rank is their place in the arm's final order.

    The first were reranked.
    """

    chunk: IntArray
    rank: IntArray
    s_hybrid: FloatArray
    s_rerank: FloatArray
    s_raw: FloatArray
    n_reranked: int


def late_interaction(indexes: Indexes, queries: Queries) -> MaxSim:
    """Return the reranker over the token embeddings that came with indexes and queries.

    A pair is scored once.

    Raises:
      ValueError: both must have token embeddings.
    """
    if queries.tokens is None or not indexes.tokens:
        part = "queries" if queries.tokens is None else "indexes"
        message = f"late interaction needs token embeddings, got none with {part}; pass a reranker."
        raise ValueError(message)
    return MaxSim(dict(zip(queries.texts, queries.tokens, strict=True)), indexes.tokens)


class BestTableRows(NamedTuple):
    """The best row of a table in each fused chunk.

    Its place among `Indexes.texts` and its search score, [Q, K].

    -1 and 0 where a chunk has none.
    """

    place: IntArray
    share: FloatArray


def rerank_chunks(
    indexes: Indexes,
    queries: Queries,
    fused: tuple[FloatArray, IntArray],
    reranker: Reranker | None,
    n_reranked: int,
    table_rows: BestTableRows | None = None,
) -> RankedHits:
    """Fused hits with the reranker's scores of the first `n_reranked`.

    Those go first, by (s_rerank, s_hybrid, position).

    Args:
      table_rows: the best rows of tables in the chunks. A row replaces its chunk if it is nearer to
        the question, and s_rerank = (the better of chunk and row + ROW_SHARE · search score of the
        row) / (1 + ROW_SHARE), in [0, 1]; None has no rows.
    """
    s_hybrid, chunk_ids = fused
    s_rerank = np.full(chunk_ids.shape, np.nan)
    s_raw = np.full(chunk_ids.shape, np.nan)
    final_ranks = np.broadcast_to(np.arange(chunk_ids.shape[1]), chunk_ids.shape).copy()
    shown_ids = chunk_ids.copy()
    if reranker is not None and n_reranked:
        reranked_ids = chunk_ids[:, :n_reranked]
        raw_scores, hit_scores = reranker.scores(queries.texts, indexes.texts, reranked_ids)
        if table_rows is not None:
            row_ids = table_rows.place[:, :n_reranked]
            raw_row_scores, row_scores = reranker.scores(queries.texts, indexes.texts, row_ids)
            with np.errstate(invalid="ignore"):
                is_row_nearer = row_scores > hit_scores
            shown_ids[:, :n_reranked], raw_scores = (
                np.where(is_row_nearer, row_ids, reranked_ids),
                np.where(is_row_nearer, raw_row_scores, raw_scores),
            )
            best_scores = (
                np.fmax(hit_scores, row_scores) + ROW_SHARE * table_rows.share[:, :n_reranked]
            )
            hit_scores = _round_scores(best_scores / (1.0 + ROW_SHARE))
        s_rerank[:, :n_reranked], s_raw[:, :n_reranked] = hit_scores, raw_scores
        score_order = np.lexsort((reranked_ids, -s_hybrid[:, :n_reranked], -hit_scores), axis=-1)
        np.put_along_axis(
            final_ranks,
            score_order,
            np.broadcast_to(np.arange(n_reranked), score_order.shape),
            axis=-1,
        )
    return RankedHits(
        shown_ids, np.where(chunk_ids >= 0, final_ranks, -1), s_hybrid, s_rerank, s_raw, n_reranked
    )


def ranks_in(ids: IntArray, head: IntArray) -> IntArray:
    """Rank from 0 of each id of the head among those that a list holds of it, [R].

    -1 where the list lacks it.

    Example:
      >>> ranks_in(np.array([7, 3, 9]), np.array([9, 7, 1]))
      array([ 1,  0, -1])
    """
    head_set = {hit_id for hit_id in head.tolist() if hit_id >= 0}
    common_ids = [hit_id for hit_id in ids.tolist() if hit_id in head_set]
    rank_by_id = {hit_id: rank for rank, hit_id in enumerate(common_ids)}
    return np.array([rank_by_id.get(hit_id, -1) for hit_id in head.tolist()], dtype=np.int64)


def fuse_orders(
    ordered: RankedHits, second_ranks: IntArray, *, weight: float = 1.0, k: int = 60
) -> RankedHits:
    """Order of one question's reranked hits fused by reciprocal rank with another order of them.

    Scores stay.

    Args:
      second_ranks: ranks from 0 of the first hits as they stand, [R]; -1 where it lacks one.
      weight: of the reranked order.
      k: constant of the fusion.
    """
    reranked_ids, own_ranks = (
        hit_field[0, : ordered.n_reranked] for hit_field in (ordered.chunk, ordered.rank)
    )
    fused_scores = weight / (k + 1.0 + own_ranks) + np.where(
        second_ranks >= 0, 1.0 / (k + 1.0 + second_ranks), 0.0
    )
    fused_order = np.lexsort((reranked_ids, own_ranks, -fused_scores, reranked_ids < 0))
    final_ranks = ordered.rank.copy()
    final_ranks[0, fused_order] = np.arange(len(fused_order))
    return ordered._replace(rank=np.where(ordered.chunk >= 0, final_ranks, -1))
