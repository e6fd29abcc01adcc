"""Dense retrieval (shore): embeddings, their cache, FAISS (S1.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from raglab.models.loaders import Encoding, Tokens
from raglab.progress import progress
from raglab.retrieval.rank_fusion import rank_by_score
from raglab.store.blobs import Blobs, cache_folder
from raglab.values import AnyArray, FloatArray, IntArray, VectorArray, WholeArray
from raglab.words.canonical import digest

Kind = Literal["flat", "hnsw", "ivf"]

BLOCK_QUERIES = 256
PAIRS_IN_MEMORY = 2**14  # of a query and a vector, in float64, that are in memory at a time
EXTRA_CANDIDATES = 16
TIE_TOLERANCE = 1e-5


class VectorRows(Protocol):
    """Rows of vectors, [N, dim], that an array holds or a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, dim]."""

    def __getitem__(self, at: WholeArray, /) -> VectorArray:
        """Rows by position, float32 [*at.shape, dim]."""


@dataclass(frozen=True, slots=True)
class DenseIndex:
    """An index over unit vectors.

    vectors: [N, dim], and more rows behind them in an index on disk. index: of FAISS, or what is
    searched as one, over the first N; `flat` and an index on disk are exact.
    """

    vectors: VectorRows = field(repr=False)
    index: Any = field(repr=False)

    def search(
        self, queries: VectorArray, k: int, allowed: Sequence[WholeArray | None] | None = None
    ) -> tuple[FloatArray, IntArray]:
        """Return the k nearest vectors, (l2, ids), each [Q, k], by (l2, id).

        NaN and -1 where there are fewer.

        Args:
          queries: [Q, dim].
          k: hits a query.
          allowed: for each query the positions it may find, searched exactly; None is all of them.

        Raises:
          InputError: a file of a mapped index was changed since it was opened.
        """
        hit_distances = np.full((len(queries), k), np.nan)
        hit_ids = np.full((len(queries), k), -1, np.int64)
        for query_index in range(len(queries)):
            query_vector = queries[query_index : query_index + 1]
            query_scope = None if allowed is None else allowed[query_index]
            if query_scope is None:
                best_scores, best_ids = self._nearest(query_vector, k)
            else:
                allowed_ids = np.unique(query_scope).astype(np.int64)[None]
                candidate_l2, _ = distances(query_vector, self.vectors, allowed_ids)
                best_scores, best_ids = rank_by_score(-candidate_l2, allowed_ids, k)
            hit_distances[query_index], hit_ids[query_index] = -best_scores[0], best_ids[0]
        return hit_distances, hit_ids

    def _nearest(self, query_vector: VectorArray, n_hits: int) -> tuple[FloatArray, IntArray]:
        """Ask for more than k until k-th and last differ, so that ties fall by id, not chance.

        Returns:
          The nearest as `rank_by_score` gives them, each [1, k], their scores −l2.
        """
        n_vectors = self.index.ntotal
        n_candidates = min(n_vectors, n_hits + EXTRA_CANDIDATES)
        while True:
            _, candidate_ids = self.index.search(np.ascontiguousarray(query_vector), n_candidates)
            hit_distances, _ = distances(query_vector, self.vectors, candidate_ids)
            best_hits = rank_by_score(-hit_distances, candidate_ids, n_hits)
            if (
                n_candidates == n_vectors
                or candidate_ids[0, -1] < 0
                or hit_distances[0, -1] + best_hits[0][0, -1] > TIE_TOLERANCE
            ):
                return best_hits
            n_candidates = min(n_vectors, 2 * n_candidates)


NEIGHBOURS = 32  # that a node of the graph keeps
GRAPH_CANDIDATES = {"build": 200, "search": 128}  # candidates of the graph
CELLS_SEARCHED = 16  # of the k-means
KMEANS_SEED = 0  # of the k-means


def dense_index(vectors: VectorArray, kind: str = "flat") -> DenseIndex:
    """Build an index over unit vectors.

    Args:
      vectors: [N, dim].
      kind: `flat` is exact; `hnsw` (a graph) and `ivf` (cells of k-means) trade recall for speed
        past 100,000 vectors.
    """
    import faiss

    unit_vectors = np.ascontiguousarray(vectors, np.float32)
    n_vectors, dimension = unit_vectors.shape
    factory_strings = {
        "flat": "Flat",
        "hnsw": f"HNSW{NEIGHBOURS}",
        "ivf": f"IVF{max(1, round(n_vectors**0.5))},Flat",
    }
    faiss_index: Any = faiss.index_factory(dimension, factory_strings[kind])
    # candidates are looked at both while the graph grows and when it is searched
    if kind == "hnsw":
        faiss_index.hnsw.efConstruction, faiss_index.hnsw.efSearch = (
            GRAPH_CANDIDATES["build"],
            GRAPH_CANDIDATES["search"],
        )
    # A corpus of any size may be cut into cells: faiss would warn of fewer than 39 points a cell.
    if kind == "ivf":
        faiss_index.nprobe, faiss_index.cp.seed, faiss_index.cp.min_points_per_centroid = (
            CELLS_SEARCHED,
            KMEANS_SEED,
            1,
        )
    # Several threads would cluster and link in the order in which they happen to finish.
    n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        faiss_index.train(unit_vectors)
        faiss_index.add(unit_vectors)
    finally:
        faiss.omp_set_num_threads(n_threads)
    return DenseIndex(unit_vectors, faiss_index)


def distances(
    queries: VectorArray, vectors: VectorRows, ids: WholeArray
) -> tuple[FloatArray, FloatArray]:
    """Squared L2 distance and cosine of each query and its hits, (l2, cosine), each [Q, k].

    NaN where the id is -1.

    Summed in float64 and rounded to float32: a value does not depend on what else is measured.

    Args:
      queries: unit vectors, [Q, dim].
      vectors: unit vectors, [N, dim].
      ids: positions in `vectors`, [Q, k]; -1 for no hit.

    Source: rule S1.1.

    Example:
      >>> unit = np.array([[1, 0], [0, 1]], np.float32)
      >>> distances(unit[:1], unit, np.array([[0, 1, -1]]))
      (array([[ 0.,  2., nan]]), array([[ 1.,  0., nan]]))
    """
    l2 = np.empty(ids.shape)
    cosine = np.empty(ids.shape)
    block_queries = max(1, min(BLOCK_QUERIES, PAIRS_IN_MEMORY // max(1, ids.shape[1])))
    for block_start in range(0, len(ids), block_queries):
        block_slice = slice(block_start, block_start + block_queries)
        # Without vectors every id is -1.
        hit_vectors = (
            vectors[ids[block_slice].clip(0)]
            if vectors.shape[0]
            else np.zeros((1, 1, vectors.shape[1]))
        )
        wide_hits = hit_vectors.astype(np.float64)
        wide_queries = queries[block_slice].astype(np.float64)[:, None]
        l2[block_slice] = ((wide_hits - wide_queries) ** 2).sum(axis=-1)
        cosine[block_slice] = (wide_hits * wide_queries).sum(axis=-1)
    masked_measures = np.where(ids >= 0, (l2, cosine.clip(-1.0, 1.0)), np.nan)
    l2, cosine = masked_measures.astype(np.float32).astype(np.float64)
    return l2, cosine


TEXTS_A_CHUNK = 256
SENTENCE_KIND, TOKENS_KIND, PICTURE_KIND = "sentence", "tokens", "picture"
STORED_DTYPES = {SENTENCE_KIND: "<f4", TOKENS_KIND: "<f2", PICTURE_KIND: "<f4"}  # of what is kept
PICTURES_AT_ONCE = 8  # decoded at a time: the largest that the store reads has 200 MB
UNIT_TOLERANCES = {"<f4": 1e-3, "<f2": 1e-2}  # by which the length of a kept row may differ from 1


class CachedEncoder(Protocol):
    """What the cache asks of an encoder: its name, its width."""

    @property
    def name(self) -> str:
        """Stable identifier; part of every cache key."""

    @property
    def dim(self) -> int:
        """Width of its embeddings."""


class TextEncoder(CachedEncoder, Protocol):
    """What embedding asks of an encoder of texts: its forward passes, too."""

    def sentences(self, texts: Sequence[str], *, query: bool = False) -> VectorArray:
        """Sentence embeddings of passages, or of questions, [N, dim]."""

    def both(self, texts: Sequence[str], *, query: bool = False) -> Encoding:
        """Sentence and token embeddings from one forward pass."""


class PictureEncoder(CachedEncoder, Protocol):
    """What embedding asks of an encoder of pictures."""

    def pictures(self, pictures: Sequence[Any]) -> VectorArray:
        """Embeddings of images of Pillow, [N, dim]."""


class TextEmbeddings(NamedTuple):
    """Embeddings of N texts in their order.

    vectors: [N, dim], L2-normalised. tokens: one [n_tokens, dim] a text, or None where not asked
    for.
    """

    vectors: VectorArray
    tokens: list[Tokens] | None


@dataclass(frozen=True, slots=True)
class EmbeddingCache:
    """Embeddings by content, in one file that several processes may share.

    See `raglab.store.blobs`.

    What comes back are rows of length 1 in one of two types, as they were stored: whatever else the
    file holds, a row of zeros among it, is dropped and encoded again.

    path: the file; its folder is made on the first write. behind: another cache, asked for what
    this one lacks; what it has is copied. blobs: the file, open for a reader of many single texts;
    None opens and closes it for each use.
    """

    path: Path
    behind: EmbeddingCache | None = None
    blobs: Blobs | None = field(default=None, repr=False, compare=False)

    def waiting(self, patience_s: float) -> EmbeddingCache:
        """The same cache, its file held open.

        Where another process holds it longer, it is done without for a while.
        """
        return replace(self, blobs=Blobs(self.path, patience_s=patience_s))

    def _opened(self) -> AbstractContextManager[Blobs]:
        return closing(Blobs(self.path)) if self.blobs is None else nullcontext(self.blobs)

    def get(self, keys: Sequence[str]) -> dict[str, AnyArray]:
        """Arrays [rows, columns] of those keys that are in the cache."""
        with self._opened() as blobs:
            stored_arrays = blobs.get(keys)
            decoded_arrays = {
                text_key: _decode_array(stored_array)
                for text_key, stored_array in stored_arrays.items()
            }
            blobs.drop(
                [text_key for text_key, embedding in decoded_arrays.items() if embedding is None]
            )
        cached_arrays = {
            text_key: embedding
            for text_key, embedding in decoded_arrays.items()
            if embedding is not None
        }
        missing_keys = [text_key for text_key in keys if text_key not in cached_arrays]
        if self.behind is not None and missing_keys:
            copied_arrays = self.behind.get(missing_keys)
            self.put(copied_arrays)
            cached_arrays |= copied_arrays
        return cached_arrays

    def put(self, arrays: Mapping[str, AnyArray]) -> None:
        """Store arrays [rows, columns] in one transaction."""
        stored_arrays = {}  # bytes of each, after a line with its type and shape
        for key, embedding in arrays.items():
            stored_embedding = embedding.astype(embedding.dtype.newbyteorder("<"), copy=False)
            stored_arrays[key] = (
                f"{stored_embedding.dtype.str} {len(stored_embedding)} "
                f"{stored_embedding.shape[1]}\n"
            ).encode() + stored_embedding.tobytes()
        with self._opened() as blobs:
            blobs.put(stored_arrays)

    def drop(self, keys: Sequence[str]) -> None:
        """Take out arrays."""
        with self._opened() as blobs:
            blobs.drop(keys)


_SHAPE_LINE = re.compile(rb"(<f4|<f2) (0|[1-9]\d{0,8}) ([1-9]\d{0,5})\n")


def _decode_array(stored_array: bytes) -> AnyArray | None:
    """Array of bytes; None where they are none, or a row is not of length 1."""
    shape_match = _SHAPE_LINE.match(stored_array)
    if shape_match is None:
        return None
    dtype, n_rows, n_columns = shape_match[1].decode(), int(shape_match[2]), int(shape_match[3])
    if len(stored_array) - shape_match.end() != n_rows * n_columns * int(dtype[-1]):
        return None
    embedding = np.frombuffer(stored_array, dtype=dtype, offset=shape_match.end()).reshape(
        n_rows, n_columns
    )
    with np.errstate(invalid="ignore", over="ignore"):
        row_lengths = np.sqrt(np.einsum("rc,rc->r", embedding, embedding, dtype=np.float32))
    # NaN is above every bound
    return embedding if bool(np.all(np.abs(row_lengths - 1.0) <= UNIT_TOLERANCES[dtype])) else None


def default_cache() -> EmbeddingCache:
    """Return the user's cache.

    `embeddings-2.sqlite` in the folder RAGLAB_CACHE, or in ~/.cache/raglab.
    """
    return EmbeddingCache(cache_folder() / "embeddings-2.sqlite")


def cache_key(encoder_name: str, embedding_kind: str, text: str) -> str:
    """SHA-256 of what an embedding depends on.

    Encoder, kind (`sentence`, `tokens`, `picture`) and text.

    The text of a picture is the SHA-256 of its file.
    """
    return digest(f"{encoder_name}\0{embedding_kind}\0{text}")


def embed(
    encoder: TextEncoder,
    texts: Sequence[str],
    cache: EmbeddingCache | None,
    *,
    tokens: bool = False,
) -> TextEmbeddings:
    """Embeddings of passages, from the cache where they are there.

    Each distinct text is encoded once. What is encoded goes into the cache a few hundred texts at a
    time: a run that was killed goes on where it stopped.

    Args:
      encoder: what encodes the rest.
      texts: N texts; the same text may occur several times.
      cache: None encodes everything and keeps nothing.
      tokens: whether token embeddings are wanted too.
    """

    def encode(text_block: Sequence[str]) -> list[Mapping[str, AnyArray]]:
        if not tokens:
            return [dict(zip(text_block, encoder.sentences(text_block)[:, None], strict=True))]
        block_encoding = encoder.both(text_block)
        return [
            dict(zip(text_block, block_encoding.sentences[:, None], strict=True)),
            dict(zip(text_block, block_encoding.tokens, strict=True)),
        ]

    embedding_kinds = (SENTENCE_KIND, TOKENS_KIND) if tokens else (SENTENCE_KIND,)
    arrays_by_kind = _encoded(encoder, embedding_kinds, texts, cache, encode, TEXTS_A_CHUNK)
    no_vectors = np.empty((0, encoder.dim), np.float32)
    sentence_vectors = np.concatenate(
        [no_vectors, *(arrays_by_kind[SENTENCE_KIND][text] for text in texts)]
    )
    return TextEmbeddings(
        sentence_vectors, [arrays_by_kind[TOKENS_KIND][text] for text in texts] if tokens else None
    )


def embed_pictures(
    encoder: PictureEncoder,
    digests: Sequence[str],
    read_picture: Callable[[str], Any],
    cache: EmbeddingCache | None,
) -> VectorArray:
    """Embeddings of pictures, [N, dim], L2-normalised, from the cache where they are there.

    See `embed`.

    Args:
      encoder: what encodes the rest.
      digests: SHA-256 of the N files.
      read_picture: image of Pillow of a file, by its digest; called for what is encoded alone.
      cache: None encodes everything and keeps nothing.
    """

    def encode(digest_block: Sequence[str]) -> list[Mapping[str, AnyArray]]:
        picture_images = [read_picture(file_digest) for file_digest in digest_block]
        return [dict(zip(digest_block, encoder.pictures(picture_images)[:, None], strict=True))]

    vectors_by_digest = _encoded(
        encoder, (PICTURE_KIND,), digests, cache, encode, PICTURES_AT_ONCE
    )[PICTURE_KIND]
    no_vectors = np.empty((0, encoder.dim), np.float32)
    return np.concatenate(
        [no_vectors, *(vectors_by_digest[file_digest] for file_digest in digests)]
    )


def _encoded(
    encoder: CachedEncoder,
    embedding_kinds: Sequence[str],
    texts: Sequence[str],
    cache: EmbeddingCache | None,
    encode_block: Callable[[Sequence[str]], Sequence[Mapping[str, AnyArray]]],
    block_texts: int,
) -> dict[str, dict[str, AnyArray]]:
    """Arrays by text of each kind, from the cache or encoded `block_texts` texts at a time.

    Args:
      encode_block: arrays by text, for each of the kinds.
    """
    distinct_texts = list(dict.fromkeys(texts))
    arrays_by_kind = {
        embedding_kind: _read_cached(encoder, embedding_kind, distinct_texts, cache)
        for embedding_kind in embedding_kinds
    }
    # Alike in length, so that little of a batch is padding.
    missing_texts = sorted(
        {
            text
            for text in distinct_texts
            for arrays_by_text in arrays_by_kind.values()
            if text not in arrays_by_text
        },
        key=lambda text: (len(text), text),
    )
    text_blocks = (
        missing_texts[block_start : block_start + block_texts]
        for block_start in range(0, len(missing_texts), block_texts)
    )
    progress_unit = "picture" if PICTURE_KIND in embedding_kinds else "text"
    for text_block in progress(
        text_blocks, "embed", progress_unit, size=len, total=len(missing_texts)
    ):
        new_arrays = dict(zip(embedding_kinds, encode_block(text_block), strict=True))
        if cache is not None:
            cache.put(
                {
                    cache_key(encoder.name, embedding_kind, text): embedding
                    for embedding_kind, arrays_by_text in new_arrays.items()
                    for text, embedding in arrays_by_text.items()
                }
            )
        # What the cache held stays: a text encoded again for its tokens keeps its vector to the
        # last bit.
        for embedding_kind, arrays_by_text in new_arrays.items():
            for text, embedding in arrays_by_text.items():
                arrays_by_kind[embedding_kind].setdefault(text, embedding)
    return arrays_by_kind


def _read_cached(
    encoder: CachedEncoder,
    embedding_kind: str,
    texts: Sequence[str],
    cache: EmbeddingCache | None,
) -> dict[str, AnyArray]:
    """Arrays by text, of those texts in the cache in the form that the encoder gives them."""
    if cache is None:
        return {}
    text_by_key = {cache_key(encoder.name, embedding_kind, text): text for text in texts}
    arrays_by_text: dict[str, AnyArray] = {}
    unfit_keys = []
    for text_key, embedding in cache.get(list(text_by_key)).items():
        has_rows = embedding_kind == TOKENS_KIND or len(embedding) == 1
        if has_rows and (embedding.shape[1], embedding.dtype.str) == (
            encoder.dim,
            STORED_DTYPES[embedding_kind],
        ):
            arrays_by_text[text_by_key[text_key]] = embedding
        else:
            unfit_keys.append(text_key)
    if unfit_keys:
        cache.drop(unfit_keys)
    return arrays_by_text
