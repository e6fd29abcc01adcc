"""All that retrieval needs of a corpus, built once: embeddings, keyword and dense index, signatures, graph, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.models import Tokens
from raglab.retrieval.bm25 import Bm25Index
from raglab.retrieval.dense import DenseIndex, Kind, dense_index
from raglab.retrieval.embed import EmbeddingCache, TextEncoder, embed
from raglab.retrieval.graph import EntityGraph
from raglab.retrieval.table import TableIndex

ANCHOR = 800

Vectors = NDArray[np.float32]


class Queries(NamedTuple):
    """Questions and their embeddings.

    texts: Q. vectors: [Q, dim], L2-normalised. tokens: one [n_tokens, dim] a question; None where nothing needs them.
    ms: what embedding each of them took, [Q].
    """

    texts: Sequence[str]
    vectors: Vectors
    tokens: Sequence[Tokens] | None = None
    ms: Sequence[float] | None = None


class Signatures(NamedTuple):
    """Rendered signatures of a corpus (rule S3.1).

    of_chunk: position in `vectors` of each chunk's signature, [N]; -1 where it has none. vectors: [S, dim].
    """

    of_chunk: NDArray[np.integer]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Indexes:
    """All that retrieval needs of a corpus, built once.

    texts: N chunks in corpus order, then the rows of its tables where the table arm needs them. vectors: their
    embeddings, [N + rows, dim]. tokens: token embeddings by text, empty where nothing needs them. anchors: embeddings
    of the first 800 characters. dense, bm25: over the N chunks. signatures, strict_signatures: loose and strict.
    graph, tables: None where no arm needs them.
    """

    texts: tuple[str, ...] = field(repr=False)
    vectors: Vectors = field(repr=False)
    tokens: Mapping[str, Tokens] = field(repr=False)
    anchors: Vectors = field(repr=False)
    dense: DenseIndex
    bm25: Bm25Index
    signatures: Signatures
    strict_signatures: Signatures
    graph: EntityGraph | None = field(default=None, repr=False)
    tables: TableIndex | None = field(default=None, repr=False)

    @property
    def n_chunks(self) -> int:
        """Chunks of the corpus, N; what follows them among `texts` are rows of tables."""
        return self.bm25.n


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
    graph: EntityGraph | None = None,
    tables: TableIndex | None = None,
) -> Indexes:
    """Embed and index the chunks of a corpus.

    Args:
      texts: N chunks in corpus order, and after them the rows of `tables`, where given.
      encoder: of the chunks; the queries must come from the same.
      cache: of embeddings; None keeps nothing.
      signatures: (domain, doc_type, product), rendered and embedded.
      strict_signatures: with vendor and version.
      kind: of the dense index.
      tokens: whether token embeddings are kept, as late interaction needs them.
      progress: whether bars count the texts that are encoded.
      graph: of entities and chunks.
      tables: of the chunks.

    Raises:
      ValueError: there must be chunks, and one signature place for each text.
    """
    for name, one in (("signatures", signatures), ("strict_signatures", strict_signatures)):
        if one.of_chunk.shape != (len(texts),):
            msg = f"{name}.of_chunk must have shape [{len(texts)}], got {list(one.of_chunk.shape)}; -1 marks none."
            raise ValueError(msg)
    n_chunks = len(texts) - (0 if tables is None else len(tables.rows))
    bm25 = Bm25Index(texts[:n_chunks])
    whole = embed(encoder, texts, cache, tokens=tokens, progress=progress)
    long = [i for i, text in enumerate(texts) if len(text) > ANCHOR]
    anchors = whole.vectors.copy()
    anchors[long] = embed(encoder, [texts[i][:ANCHOR] for i in long], cache, progress=progress).vectors
    by_text = dict(zip(texts, whole.tokens, strict=True)) if whole.tokens is not None else {}
    dense = dense_index(whole.vectors[:n_chunks], kind)
    named = (signatures, strict_signatures, graph, tables)
    return Indexes(tuple(texts), whole.vectors, by_text, anchors, dense, bm25, *named)


def embed_queries(texts: Sequence[str], encoder: TextEncoder, *, tokens: bool = True) -> Queries:
    """Questions with their embeddings, each encoded alone and never cached.

    What is encoded beside a text moves its last bits: alone, a question has the same embedding in a trace of thousands
    and when it is asked live.
    """
    vectors = np.empty((len(texts), encoder.dim), np.float32)
    by_question: list[Tokens] = []
    ms = []
    for row, text in enumerate(texts):
        start = perf_counter()
        if tokens:
            both = encoder.both([text])
            vectors[row] = both.sentences[0]
            by_question.append(both.tokens[0])
        else:
            vectors[row] = encoder.sentences([text])[0]
        ms.append(1e3 * (perf_counter() - start))
    return Queries(tuple(texts), vectors, by_question if tokens else None, ms)
