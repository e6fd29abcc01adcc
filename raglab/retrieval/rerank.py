"""A second, closer look at the first hits: late interaction over token embeddings, or a cross-encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from raglab.models import CrossEncoder, Tokens

Values = NDArray[np.float64]
Ids = NDArray[np.integer]

BLOCK = 2048
HALF_TO_SINGLE_SHIFT = 13
HALF_TO_SINGLE_MASK = np.int32(-0x70002000)
HALF_TO_SINGLE_SCALE = np.float32(2.0**112)


class Reranked(NamedTuple):
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

    def scores(self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: Ids) -> Reranked:
        """Scores of each query's candidates.

        Args:
          query_texts: Q queries.
          doc_texts: N documents.
          candidates: positions in `doc_texts`, [Q, R]; -1 where there is none.
        """


@dataclass(frozen=True, slots=True)
class MaxSim:
    """The mean over the query's tokens of the best cosine with any token of the document.

    A rank-only score until it is calibrated (rule S1.4). A pair's score does not depend on its neighbours in the batch;
    a text without tokens has none (NaN).

    query_tokens, doc_tokens: token embeddings [n_tokens, dim] by text, as `embed` gives them.
    """

    query_tokens: Mapping[str, Tokens] = field(repr=False)
    doc_tokens: Mapping[str, Tokens] = field(repr=False)
    name: str = "maxsim"

    def scores(self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: Ids) -> Reranked:
        """Scores of each query's candidates, raw and clipped to [0, 1]."""
        raw = np.full(candidates.shape, np.nan)
        with _threads().limit(limits=1, user_api="blas"):
            for start in range(0, len(candidates), BLOCK):
                block = candidates[start : start + BLOCK]
                queries = [_widened(self.query_tokens[text]).T for text in query_texts[start : start + BLOCK]]
                for position, rows, columns in _by_document(block):
                    document = _widened(self.doc_tokens[doc_texts[position]])
                    raw[start + rows, columns] = [_best_cosine(queries[row], document) for row in rows]
        rounded = _rounded(raw)
        return Reranked(rounded, rounded.clip(0.0, 1.0))


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

    def scores(self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: Ids) -> Reranked:
        """Scores of each query's candidates, raw logits and their sigmoid."""
        raw = np.full(candidates.shape, np.nan)
        rows, columns = np.nonzero(candidates >= 0)
        positions = candidates[rows, columns].tolist()
        pairs = [(query_texts[i], doc_texts[p]) for i, p in zip(rows.tolist(), positions, strict=True)]
        raw[rows, columns] = _rounded(self.model.logits(pairs))
        return Reranked(raw, _rounded(0.5 * (1.0 + np.tanh(0.5 * raw))))


@cache
def _threads() -> ThreadpoolController:
    """What holds matrix products to one thread: products so small only wait for each other on several."""
    return ThreadpoolController()


def _by_document(candidates: Ids) -> Iterator[tuple[int, Ids, Ids]]:
    """Each document among the candidates, with the rows and columns where it stands."""
    rows, columns = np.nonzero(candidates >= 0)
    positions = candidates[rows, columns]
    order = np.argsort(positions, kind="stable")
    documents, starts = np.unique(positions[order], return_index=True)
    for document, at in zip(documents.tolist(), np.split(order, starts[1:]), strict=False):
        yield document, rows[at], columns[at]


def _best_cosine(query: NDArray[np.float32], document: NDArray[np.float32]) -> float:
    """Mean over query tokens [dim, q] of the best product with document tokens [d, dim]; NaN where either is empty."""
    if not query.shape[1] or not len(document):
        return float("nan")
    return float((document @ query).max(axis=0).mean())


def _widened(half: Tokens) -> NDArray[np.float32]:
    """Convert finite float16 to float32 exactly, five times faster than `astype` where numpy has no instruction for it.

    The exponent and mantissa bits move into place; the product with a power of two corrects the exponent's bias.
    """
    bits = half.view(np.int16).astype(np.int32)
    bits <<= HALF_TO_SINGLE_SHIFT
    bits &= HALF_TO_SINGLE_MASK
    single = bits.view(np.float32)
    single *= HALF_TO_SINGLE_SCALE
    return single


def _rounded(values: Values) -> Values:
    """Values rounded to float32, as float64."""
    return values.astype(np.float32).astype(np.float64)
