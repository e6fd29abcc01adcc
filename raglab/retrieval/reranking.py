"""Reranking (shore): MaxSim or a cross-encoder, rows of tables first, orders fused (S1.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from raglab.models.loaders import CrossEncoder, Tokens
from raglab.retrieval.indexes import Indexes, Queries, TokensByText

Values = NDArray[np.float64]
IdArray = NDArray[np.integer]

HALF_TO_SINGLE_SHIFT = 13
HALF_TO_SINGLE_MASK = np.int32(-0x70002000)
HALF_TO_SINGLE_SCALE = np.float32(2.0**112)


class RerankScores(NamedTuple):
    """Scores of the candidates, [Q, R], rounded to float32; NaN where the id is -1.

    raw: as the model gives them. s_rerank: in [0, 1].
    """

    raw: Values
    s_rerank: Values


class Reranker(Protocol):
    """What scores candidates closely."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints."""

    def scores(
        self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: IdArray
    ) -> RerankScores:
        """Scores of each query's candidates.

        Args:
          query_texts: Q queries.
          doc_texts: N documents.
          candidates: positions in `doc_texts`, [Q, R]; -1 where there is none.
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
        self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: IdArray
    ) -> RerankScores:
        """Scores of each query's candidates, raw and clipped to [0, 1]."""
        raw = np.full(candidates.shape, np.nan)
        with _threads().limit(limits=1, user_api="blas"):
            for row, query in enumerate(query_texts):
                query_tokens = _widen_float16(self.query_tokens[query]).T
                for column in np.flatnonzero(candidates[row] >= 0).tolist():
                    pair = query, doc_texts[candidates[row, column]]
                    if pair not in self.known:
                        document = _widen_float16(self.doc_tokens[pair[1]])
                        self.known[pair] = (
                            float((document @ query_tokens).max(axis=0).mean())
                            if query_tokens.size and document.size
                            else np.nan
                        )
                    raw[row, column] = self.known[pair]
        rounded = _round_scores(raw)
        return RerankScores(rounded, rounded.clip(0.0, 1.0))


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
        self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: IdArray
    ) -> RerankScores:
        """Scores of each query's candidates, raw logits and their sigmoid."""
        raw = np.full(candidates.shape, np.nan)
        rows, columns = np.nonzero(candidates >= 0)
        positions = candidates[rows, columns].tolist()
        pairs = [
            (query_texts[i], doc_texts[p]) for i, p in zip(rows.tolist(), positions, strict=True)
        ]
        raw[rows, columns] = _round_scores(self.model.logits(pairs))
        return RerankScores(raw, _round_scores(0.5 * (1.0 + np.tanh(0.5 * raw))))


@cache
def _threads() -> ThreadpoolController:
    """What holds matrix products to one thread.

    Products so small only wait for each other on several.
    """
    return ThreadpoolController()


def _widen_float16(half: Tokens) -> NDArray[np.float32]:
    """Convert finite float16 to float32 exactly and faster than `astype`.

    It is five times faster where numpy has no instruction for it.

    The exponent and mantissa bits move into place; the product with a power of two corrects the
    exponent's bias.
    """
    bits = half.view(np.int16).astype(np.int32)
    bits <<= HALF_TO_SINGLE_SHIFT
    bits &= HALF_TO_SINGLE_MASK
    single = bits.view(np.float32)
    single *= HALF_TO_SINGLE_SCALE
    return single


def _round_scores(values: Values) -> Values:
    """Values rounded to float32, as float64."""
    return values.astype(np.float32).astype(np.float64)


ROW_SHARE = 0.2  # chosen on the bundled tune split, where 0.15 to 0.25 do alike

Ids = NDArray[np.int64]


class RankedHits(NamedTuple):
    """Hits of an arm in fused order, [Q, K]; rank is their place in the arm's final order.

    The first were reranked.
    """

    chunk: Ids
    rank: Ids
    s_hybrid: Values
    s_rerank: Values
    s_raw: Values
    n_reranked: int


def late_interaction(indexes: Indexes, queries: Queries) -> MaxSim:
    """Return the reranker over the token embeddings that came with indexes and queries.

    A pair is scored once.

    Raises:
      ValueError: both must have token embeddings.
    """
    if queries.tokens is None or not indexes.tokens:
        lacking = "queries" if queries.tokens is None else "indexes"
        msg = f"late interaction needs token embeddings, got none with {lacking}; pass a reranker."
        raise ValueError(msg)
    return MaxSim(dict(zip(queries.texts, queries.tokens, strict=True)), indexes.tokens)


class BestTableRows(NamedTuple):
    """The best row of a table in each fused chunk.

    Its place among `Indexes.texts` and its search score, [Q, K].

    -1 and 0 where a chunk has none.
    """

    place: Ids
    share: Values


def rerank_chunks(
    indexes: Indexes,
    queries: Queries,
    fused: tuple[Values, Ids],
    reranker: Reranker | None,
    width: int,
    rows: BestTableRows | None = None,
) -> RankedHits:
    """Fused hits with the reranker's scores of the first `width`.

    Those go first, by (s_rerank, s_hybrid, position).

    Args:
      rows: the best rows of tables in the chunks. A row stands for its chunk where it is nearer to
        the question, and s_rerank = (the better of chunk and row + ROW_SHARE · search score of the
        row) / (1 + ROW_SHARE), in [0, 1]; None has no rows.
    """
    s_hybrid, chunk = fused
    s_rerank, s_raw = np.full(chunk.shape, np.nan), np.full(chunk.shape, np.nan)
    place = np.broadcast_to(np.arange(chunk.shape[1]), chunk.shape).copy()
    shown = chunk.copy()
    if reranker is not None and width:
        head = chunk[:, :width]
        raw, scores = reranker.scores(queries.texts, indexes.texts, head)
        if rows is not None:
            row = rows.place[:, :width]
            raw_row, of_row = reranker.scores(queries.texts, indexes.texts, row)
            with np.errstate(invalid="ignore"):
                nearer = of_row > scores
            shown[:, :width], raw = np.where(nearer, row, head), np.where(nearer, raw_row, raw)
            best = np.fmax(scores, of_row) + ROW_SHARE * rows.share[:, :width]
            scores = _round_scores(best / (1.0 + ROW_SHARE))
        s_rerank[:, :width], s_raw[:, :width] = scores, raw
        order = np.lexsort((head, -s_hybrid[:, :width], -scores), axis=-1)
        np.put_along_axis(place, order, np.broadcast_to(np.arange(width), order.shape), axis=-1)
    return RankedHits(shown, np.where(chunk >= 0, place, -1), s_hybrid, s_rerank, s_raw, width)


def ranks_in(ids: Ids, head: Ids) -> NDArray[np.int64]:
    """Rank from 0 of each id of the head among those that a list holds of it, [R].

    -1 where the list lacks it.

    Example:
      >>> ranks_in(np.array([7, 3, 9]), np.array([9, 7, 1]))
      array([ 1,  0, -1])
    """
    among = {number for number in head.tolist() if number >= 0}
    common_ids = [number for number in ids.tolist() if number in among]
    place = {number: rank for rank, number in enumerate(common_ids)}
    return np.array([place.get(number, -1) for number in head.tolist()], dtype=np.int64)


def fuse_orders(
    ordered: RankedHits, second_ranks: NDArray[np.int64], *, weight: float = 1.0, k: int = 60
) -> RankedHits:
    """Order of one question's reranked hits fused by reciprocal rank with another order of them.

    Scores stay.

    Args:
      second_ranks: ranks from 0 of the first hits as they stand, [R]; -1 where it lacks one.
      weight: of the reranked order.
      k: constant of the fusion.
    """
    head, own = (field[0, : ordered.n_reranked] for field in (ordered.chunk, ordered.rank))
    total = weight / (k + 1.0 + own) + np.where(
        second_ranks >= 0, 1.0 / (k + 1.0 + second_ranks), 0.0
    )
    order = np.lexsort((head, own, -total, head < 0))
    rank = ordered.rank.copy()
    rank[0, order] = np.arange(len(order))
    return ordered._replace(rank=np.where(ordered.chunk >= 0, rank, -1))
