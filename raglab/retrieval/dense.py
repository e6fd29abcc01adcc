"""Dense retrieval (shore): embeddings, their cache, FAISS (S1.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from raglab.models.loaders import Encoding, Tokens
from raglab.progress import progress
from raglab.retrieval.rank_fusion import rank_by_score
from raglab.store.blobs import Blobs, cache_folder
from raglab.words.canonical import digest

Kind = Literal["flat", "hnsw", "ivf"]
Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Values = NDArray[np.float64]

BLOCK = 256
PAIRS = 2**14  # of a query and a vector, in float64, that are in memory at a time
SLACK = 16
TIE = 1e-5


class VectorRows(Protocol):
    """Rows of vectors, [N, dim], that an array holds or a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, dim]."""

    def __getitem__(self, at: NDArray[np.integer], /) -> Vectors:
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
        self, queries: Vectors, k: int, allowed: Sequence[NDArray[np.integer] | None] | None = None
    ) -> tuple[Values, Ids]:
        """Return the k nearest vectors, (l2, ids), each [Q, k], by (l2, id).

        NaN and -1 where there are fewer.

        Args:
          queries: [Q, dim].
          k: hits a query.
          allowed: for each query the positions it may find, searched exactly; None is all of them.

        Raises:
          InputError: a file of a mapped index was changed since it was opened.
        """
        l2, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        for row in range(len(queries)):
            query, scope = queries[row : row + 1], None if allowed is None else allowed[row]
            if scope is None:
                best_l2, best_ids = self._nearest(query, k)
            else:
                within = np.unique(scope).astype(np.int64)[None]
                candidate_l2, _ = distances(query, self.vectors, within)
                best_l2, best_ids = rank_by_score(-candidate_l2, within, k)
            l2[row], ids[row] = -best_l2[0], best_ids[0]
        return l2, ids

    def _nearest(self, query: Vectors, k: int) -> tuple[Values, Ids]:
        """Ask for more than k until k-th and last differ, so that ties fall by id, not chance.

        Returns:
          The nearest as `rank_by_score` gives them, each [1, k], their scores −l2.
        """
        n = self.index.ntotal
        width = min(n, k + SLACK)
        while True:
            _, candidates = self.index.search(np.ascontiguousarray(query), width)
            l2, _ = distances(query, self.vectors, candidates)
            best = rank_by_score(-l2, candidates, k)
            if width == n or candidates[0, -1] < 0 or l2[0, -1] + best[0][0, -1] > TIE:
                return best
            width = min(n, 2 * width)


NEIGHBOURS = 32  # that a node of the graph keeps
LOOKED_AT = {"build": 200, "search": 128}  # candidates of the graph
CELLS_SEARCHED = 16  # of the k-means
SEED = 0  # of the k-means


def dense_index(vectors: Vectors, kind: str = "flat") -> DenseIndex:
    """Build an index over unit vectors.

    Args:
      vectors: [N, dim].
      kind: `flat` is exact; `hnsw` (a graph) and `ivf` (cells of k-means) trade recall for speed
        past 100,000 vectors.
    """
    import faiss

    rows = np.ascontiguousarray(vectors, np.float32)
    n, dim = rows.shape
    forms = {"flat": "Flat", "hnsw": f"HNSW{NEIGHBOURS}", "ivf": f"IVF{max(1, round(n**0.5))},Flat"}
    index: Any = faiss.index_factory(dim, forms[kind])
    # candidates are looked at both while the graph grows and when it is searched
    if kind == "hnsw":
        index.hnsw.efConstruction, index.hnsw.efSearch = LOOKED_AT["build"], LOOKED_AT["search"]
    # A corpus of any size may be cut into cells: faiss would warn of fewer than 39 points a cell.
    if kind == "ivf":
        index.nprobe, index.cp.seed, index.cp.min_points_per_centroid = CELLS_SEARCHED, SEED, 1
    # Several threads would cluster and link in the order in which they happen to finish.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        index.train(rows)
        index.add(rows)
    finally:
        faiss.omp_set_num_threads(threads)
    return DenseIndex(rows, index)


def distances(
    queries: Vectors, vectors: VectorRows, ids: NDArray[np.integer]
) -> tuple[Values, Values]:
    """Squared L2 distance and cosine of each query and its hits, (l2, cosine), each [Q, k].

    NaN where the id is -1.

    Summed in float64 and rounded to float32, so that a value is the same whatever is measured
    beside it.

    Args:
      queries: unit vectors, [Q, dim].
      vectors: unit vectors, [N, dim].
      ids: positions in `vectors`, [Q, k]; -1 where there is no hit.

    Source: rule S1.1.

    Example:
      >>> unit = np.array([[1, 0], [0, 1]], np.float32)
      >>> distances(unit[:1], unit, np.array([[0, 1, -1]]))
      (array([[ 0.,  2., nan]]), array([[ 1.,  0., nan]]))
    """
    l2, cosine = np.empty(ids.shape), np.empty(ids.shape)
    size = max(1, min(BLOCK, PAIRS // max(1, ids.shape[1])))
    for start in range(0, len(ids), size):
        at = slice(start, start + size)
        # Without vectors every id is -1.
        rows = vectors[ids[at].clip(0)] if vectors.shape[0] else np.zeros((1, 1, vectors.shape[1]))
        hits, questions = rows.astype(np.float64), queries[at].astype(np.float64)[:, None]
        l2[at] = ((hits - questions) ** 2).sum(axis=-1)
        cosine[at] = (hits * questions).sum(axis=-1)
    both = np.where(ids >= 0, (l2, cosine.clip(-1.0, 1.0)), np.nan)
    l2, cosine = both.astype(np.float32).astype(np.float64)
    return l2, cosine


CHUNK = 256
SENTENCE, TOKENS, PICTURE = "sentence", "tokens", "picture"
DTYPES = {SENTENCE: "<f4", TOKENS: "<f2", PICTURE: "<f4"}  # of what is kept
PICTURES = 8  # decoded at a time: the largest that the store reads has 200 MB
UNIT = {"<f4": 1e-3, "<f2": 1e-2}  # by which the length of a kept row may differ from 1


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

    def sentences(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Sentence embeddings of passages, or of questions, [N, dim]."""

    def both(self, texts: Sequence[str], *, query: bool = False) -> Encoding:
        """Sentence and token embeddings from one forward pass."""


class PictureEncoder(CachedEncoder, Protocol):
    """What embedding asks of an encoder of pictures."""

    def pictures(self, pictures: Sequence[Any]) -> NDArray[np.float32]:
        """Embeddings of images of Pillow, [N, dim]."""


class TextEmbeddings(NamedTuple):
    """Embeddings of N texts in their order.

    vectors: [N, dim], L2-normalised. tokens: one [n_tokens, dim] a text, or None where not asked
    for.
    """

    vectors: NDArray[np.float32]
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

    def get(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Arrays [rows, columns] of those keys that are in the cache."""
        with self._opened() as blobs:
            stored = blobs.get(keys)
            arrays = {key: _decode_array(value) for key, value in stored.items()}
            blobs.drop([key for key, array in arrays.items() if array is None])
        entries = {key: array for key, array in arrays.items() if array is not None}
        missing = [key for key in keys if key not in entries]
        if self.behind is not None and missing:
            copied = self.behind.get(missing)
            self.put(copied)
            entries |= copied
        return entries

    def put(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store arrays [rows, columns] in one transaction."""
        stored = {}  # bytes of each, after a line with its type and shape
        for key, array in arrays.items():
            small = array.astype(array.dtype.newbyteorder("<"), copy=False)
            head = f"{small.dtype.str} {len(small)} {small.shape[1]}\n"
            stored[key] = head.encode() + small.tobytes()
        with self._opened() as blobs:
            blobs.put(stored)

    def drop(self, keys: Sequence[str]) -> None:
        """Take out arrays."""
        with self._opened() as blobs:
            blobs.drop(keys)


_HEAD = re.compile(rb"(<f4|<f2) (0|[1-9]\d{0,8}) ([1-9]\d{0,5})\n")


def _decode_array(value: bytes) -> NDArray[Any] | None:
    """Array of bytes; None where they are none, or a row is not of length 1."""
    head = _HEAD.match(value)
    if head is None:
        return None
    dtype, n_rows, n_columns = head[1].decode(), int(head[2]), int(head[3])
    if len(value) - head.end() != n_rows * n_columns * int(dtype[-1]):
        return None
    array = np.frombuffer(value, dtype=dtype, offset=head.end()).reshape(n_rows, n_columns)
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.sqrt(np.einsum("rc,rc->r", array, array, dtype=np.float32))
    # NaN is above every bound
    return array if bool(np.all(np.abs(lengths - 1.0) <= UNIT[dtype])) else None


def default_cache() -> EmbeddingCache:
    """Return the user's cache.

    `embeddings-2.sqlite` in the folder RAGLAB_CACHE, or in ~/.cache/raglab.
    """
    return EmbeddingCache(cache_folder() / "embeddings-2.sqlite")


def cache_key(encoder_name: str, kind: str, text: str) -> str:
    """SHA-256 of what an embedding depends on.

    Encoder, kind (`sentence`, `tokens`, `picture`) and text.

    The text of a picture is the SHA-256 of its file.
    """
    return digest(f"{encoder_name}\0{kind}\0{text}")


def embed(
    encoder: TextEncoder,
    texts: Sequence[str],
    cache: EmbeddingCache | None,
    *,
    tokens: bool = False,
) -> TextEmbeddings:
    """Embeddings of passages, from the cache where they are there.

    Each distinct text is encoded once. What is encoded goes into the cache a few hundred texts at a
    time, so that a run that was killed goes on where it stopped.

    Args:
      encoder: what encodes the rest.
      texts: N texts; the same text may occur several times.
      cache: None encodes everything and keeps nothing.
      tokens: whether token embeddings are wanted too.
    """

    def encode(some: Sequence[str]) -> list[Mapping[str, NDArray[Any]]]:
        if not tokens:
            return [dict(zip(some, encoder.sentences(some)[:, None], strict=True))]
        both = encoder.both(some)
        return [
            dict(zip(some, both.sentences[:, None], strict=True)),
            dict(zip(some, both.tokens, strict=True)),
        ]

    kinds = (SENTENCE, TOKENS) if tokens else (SENTENCE,)
    by_kind = _encoded(encoder, kinds, texts, cache, encode, CHUNK)
    vectors = np.empty((0, encoder.dim), np.float32)
    stacked = np.concatenate([vectors, *(by_kind[SENTENCE][text] for text in texts)])
    return TextEmbeddings(stacked, [by_kind[TOKENS][text] for text in texts] if tokens else None)


def embed_pictures(
    encoder: PictureEncoder,
    digests: Sequence[str],
    read: Callable[[str], Any],
    cache: EmbeddingCache | None,
) -> NDArray[np.float32]:
    """Embeddings of pictures, [N, dim], L2-normalised, from the cache where they are there.

    See `embed`.

    Args:
      encoder: what encodes the rest.
      digests: SHA-256 of the N files.
      read: image of Pillow of a file, by its digest; asked for those alone that are encoded.
      cache: None encodes everything and keeps nothing.
    """

    def encode(some: Sequence[str]) -> list[Mapping[str, NDArray[Any]]]:
        images = [read(file_digest) for file_digest in some]
        return [dict(zip(some, encoder.pictures(images)[:, None], strict=True))]

    vectors = _encoded(encoder, (PICTURE,), digests, cache, encode, PICTURES)[PICTURE]
    none = np.empty((0, encoder.dim), np.float32)
    return np.concatenate([none, *(vectors[file_digest] for file_digest in digests)])


def _encoded(
    encoder: CachedEncoder,
    kinds: Sequence[str],
    texts: Sequence[str],
    cache: EmbeddingCache | None,
    encode: Callable[[Sequence[str]], Sequence[Mapping[str, NDArray[Any]]]],
    size: int,
) -> dict[str, dict[str, NDArray[Any]]]:
    """Arrays by text of each kind, from the cache and of what is encoded, `size` texts at a time.

    Args:
      encode: arrays by text, for each of the kinds.
    """
    distinct = list(dict.fromkeys(texts))
    by_kind = {kind: _read_cached(encoder, kind, distinct, cache) for kind in kinds}
    # Alike in length, so that little of a batch is padding.
    missing = sorted(
        {text for text in distinct for arrays in by_kind.values() if text not in arrays},
        key=lambda text: (len(text), text),
    )
    blocks = (missing[start : start + size] for start in range(0, len(missing), size))
    unit = "picture" if PICTURE in kinds else "text"
    for block in progress(blocks, "embed", unit, size=len, total=len(missing)):
        new = dict(zip(kinds, encode(block), strict=True))
        if cache is not None:
            cache.put(
                {
                    cache_key(encoder.name, kind, text): array
                    for kind, arrays in new.items()
                    for text, array in arrays.items()
                }
            )
        # What the cache held stays: a text encoded again for its tokens keeps its vector to the
        # last bit.
        for kind, arrays in new.items():
            for text, array in arrays.items():
                by_kind[kind].setdefault(text, array)
    return by_kind


def _read_cached(
    encoder: CachedEncoder,
    kind: str,
    texts: Sequence[str],
    cache: EmbeddingCache | None,
) -> dict[str, NDArray[Any]]:
    """Arrays by text, of those texts in the cache in the form that the encoder gives them."""
    if cache is None:
        return {}
    text_of = {cache_key(encoder.name, kind, text): text for text in texts}
    arrays: dict[str, NDArray[Any]] = {}
    foreign = []
    for key, array in cache.get(list(text_of)).items():
        has_rows = kind == TOKENS or len(array) == 1
        if has_rows and (array.shape[1], array.dtype.str) == (encoder.dim, DTYPES[kind]):
            arrays[text_of[key]] = array
        else:
            foreign.append(key)
    if foreign:
        cache.drop(foreign)
    return arrays
