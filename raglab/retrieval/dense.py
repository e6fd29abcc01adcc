"""Dense retrieval (shore): embeddings, their cache, FAISS (S1.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from raglab.models.loaders import Encoding, Tokens
from raglab.progress import progress
from raglab.store.blobs import Blobs, cache_folder
from raglab.words.canonical import digest

if TYPE_CHECKING:
    import faiss

Kind = Literal["flat", "hnsw", "ivf"]
Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Values = NDArray[np.float64]

BLOCK = 256
PAIRS = 2**14  # of a query and a vector, in float64, that are in memory at a time
# pairs of a query and the number of a candidate that FAISS is asked for at a time
ASKED_AT_ONCE = 2**22
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
        scopes = [None] * len(queries) if allowed is None else list(allowed)
        l2, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        every = np.array([i for i, scope in enumerate(scopes) if scope is None], np.int64)
        for block in _blocks(len(every), ASKED_AT_ONCE // max(1, self.index.ntotal)):
            free = every[block]
            l2[free], ids[free] = self._nearest(queries[free], k)
        for i, scope in enumerate(scopes):
            if scope is not None:
                within = np.unique(scope).astype(np.int64)[None, :]
                candidate_l2, _ = distances(queries[i : i + 1], self.vectors, within)
                l2[i : i + 1], ids[i : i + 1] = _sort_by_distance(candidate_l2, within, k)
        return l2, ids

    def _nearest(self, queries: Vectors, k: int) -> tuple[Values, Ids]:
        """Ask for more than k until k-th and last differ, so that ties fall by id, not chance."""
        n = self.index.ntotal
        width = min(n, k + SLACK)
        l2, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        open_ = np.arange(len(queries)) if n else np.arange(0)
        while len(open_):
            _, candidates = self.index.search(np.ascontiguousarray(queries[open_]), width)
            candidate_l2, _ = distances(queries[open_], self.vectors, candidates)
            l2[open_], ids[open_] = _sort_by_distance(candidate_l2, candidates, k)
            complete = (
                (width == n) | (candidates[:, -1] < 0) | (candidate_l2[:, -1] > l2[open_, -1] + TIE)
            )
            open_, width = open_[~complete], min(n, 2 * width)
        return l2, ids


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

    Raises:
      ValueError: the kind must be known, the vectors 2-dimensional.
    """
    import faiss

    if vectors.ndim != 2:
        msg = f"vectors must have shape [N, dim], got {list(vectors.shape)}; stack one row a text."
        raise ValueError(msg)
    rows = np.ascontiguousarray(vectors, np.float32)
    n, dim = rows.shape
    index: faiss.Index
    if kind == "flat":
        index = faiss.IndexFlatL2(dim)
    # candidates are looked at both while the graph grows and when it is searched
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, NEIGHBOURS)
        index.hnsw.efConstruction, index.hnsw.efSearch = LOOKED_AT["build"], LOOKED_AT["search"]
    elif kind == "ivf":
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, max(1, round(n**0.5)))
        # A corpus of any size may be cut into cells: faiss would warn of fewer than 39 points a
        # cell.
        index.nprobe, index.cp.seed, index.cp.min_points_per_centroid = CELLS_SEARCHED, SEED, 1
    else:
        msg = (
            f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}; flat is exact and "
            "fine up to 100,000."
        )
        raise ValueError(msg)
    # several would cluster and link in the order in which they happen to finish
    with _single_thread():
        index.train(rows)
        index.add(rows)
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
    for at in _blocks(len(ids), min(BLOCK, PAIRS // max(1, ids.shape[1]))):
        hits, query_block = (
            _gather_vectors(vectors, ids[at]),
            queries[at].astype(np.float64)[:, None, :],
        )
        l2[at] = ((hits - query_block) ** 2).sum(axis=-1)
        cosine[at] = (hits * query_block).sum(axis=-1)
    return _round_distances(l2, ids), _round_distances(cosine.clip(-1.0, 1.0), ids)


def cosines(queries: Vectors, vectors: VectorRows, ids: NDArray[np.integer]) -> Values:
    """Cosine of each query and the unit vectors it is paired with, [Q, k].

    NaN where the id is -1.
    """
    cosine = np.empty(ids.shape)
    for at in _blocks(len(ids), min(BLOCK, PAIRS // max(1, ids.shape[1]))):
        cosine[at] = (
            _gather_vectors(vectors, ids[at]) * queries[at].astype(np.float64)[:, None, :]
        ).sum(axis=-1)
    return _round_distances(cosine.clip(-1.0, 1.0), ids)


def _blocks(n: int, size: int) -> Iterator[slice]:
    """Slices of n rows, of a size each, of one row where that is below 1."""
    return (slice(start, start + max(1, size)) for start in range(0, n, max(1, size)))


def _gather_vectors(vectors: VectorRows, ids: NDArray[np.integer]) -> Values:
    """Vectors of hits, float64 [Q, k, dim]; zeros where the id is -1."""
    if not vectors.shape[0]:
        return np.zeros((*ids.shape, vectors.shape[1]))
    hits: Values = vectors[ids.clip(0)].astype(np.float64)
    return hits


def _round_distances(values: Values, ids: NDArray[np.integer]) -> Values:
    """Values rounded to float32 as float64; NaN where the id is -1."""
    return np.where(ids >= 0, values.astype(np.float32).astype(np.float64), np.nan)


def _sort_by_distance(l2: Values, ids: NDArray[np.integer], k: int) -> tuple[Values, Ids]:
    """Sort hits by (l2, id), NaN last, and cut or pad them to k."""
    order = np.lexsort((ids, l2), axis=-1)[:, :k]
    pad = ((0, 0), (0, k - order.shape[1]))
    sorted_l2 = np.pad(np.take_along_axis(l2, order, -1), pad, constant_values=np.nan)
    sorted_ids = np.pad(
        np.take_along_axis(ids, order, -1).astype(np.int64), pad, constant_values=-1
    )
    return sorted_l2, sorted_ids


@contextmanager
def _single_thread() -> Iterator[None]:
    """Build on one thread, so that a graph's edges do not depend on the number of cores."""
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


CHUNK = 256
SENTENCE, TOKENS, PICTURE = "sentence", "tokens", "picture"
DTYPES = {SENTENCE: "<f4", TOKENS: "<f2", PICTURE: "<f4"}  # of what is kept
PICTURES = 8  # decoded at a time: the largest that the store reads has 200 MB
UNIT = {"<f4": 1e-3, "<f2": 1e-2}  # by which the length of a kept row may differ from 1


class TextEncoder(Protocol):
    """What embedding asks of an encoder: its name, its width, its forward passes."""

    @property
    def name(self) -> str:
        """Stable identifier; part of every cache key."""

    @property
    def dim(self) -> int:
        """Width of its embeddings."""

    def sentences(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Sentence embeddings of passages, or of questions, [N, dim]."""

    def both(self, texts: Sequence[str], *, query: bool = False) -> Encoding:
        """Sentence and token embeddings from one forward pass."""


class PictureEncoder(Protocol):
    """What embedding asks of an encoder of pictures."""

    @property
    def name(self) -> str:
        """Stable identifier; part of every cache key."""

    @property
    def dim(self) -> int:
        """Width of its embeddings."""

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
        with self._opened() as blobs:
            blobs.put({key: _encode_array(array) for key, array in arrays.items()})

    def drop(self, keys: Sequence[str]) -> None:
        """Take out arrays."""
        with self._opened() as blobs:
            blobs.drop(keys)


def _encode_array(array: NDArray[Any]) -> bytes:
    """Array [rows, columns] as bytes, after a line with its type and shape."""
    small = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return f"{small.dtype.str} {small.shape[0]} {small.shape[1]}\n".encode() + small.tobytes()


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
    distinct = list(dict.fromkeys(texts))
    vectors = _read_cached(encoder, SENTENCE, distinct, cache)
    by_token = _read_cached(encoder, TOKENS, distinct, cache) if tokens else {}
    missing = [
        text for text in distinct if text not in vectors or (tokens and text not in by_token)
    ]
    # alike in length, so that little of a batch is padding
    missing.sort(key=lambda text: (len(text), text))
    for some in progress(_chunks(missing, CHUNK), "embed", "text", size=len, total=len(missing)):
        new_vectors, new_tokens = _encode_texts(encoder, some, tokens=tokens)
        if cache is not None:
            cache.put(
                _cache_keys(encoder.name, SENTENCE, new_vectors)
                | _cache_keys(encoder.name, TOKENS, new_tokens)
            )
        # What the cache held before stays: a text encoded anew for its tokens keeps its vector to
        # the last bit.
        for known, new in ((vectors, new_vectors), (by_token, new_tokens)):
            known.update((text, array) for text, array in new.items() if text not in known)
    stacked = (
        np.concatenate([vectors[text] for text in texts])
        if texts
        else np.empty((0, encoder.dim), np.float32)
    )
    return TextEmbeddings(stacked, [by_token[text] for text in texts] if tokens else None)


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
    distinct = list(dict.fromkeys(digests))
    vectors = _read_cached(encoder, PICTURE, distinct, cache)
    missing = [digest for digest in distinct if digest not in vectors]
    for some in progress(
        _chunks(missing, PICTURES), "embed", "picture", size=len, total=len(missing)
    ):
        new = dict(
            zip(some, encoder.pictures([read(digest) for digest in some])[:, None, :], strict=True)
        )
        if cache is not None:
            cache.put(_cache_keys(encoder.name, PICTURE, new))
        vectors |= new
    return np.concatenate(
        [np.empty((0, encoder.dim), np.float32), *(vectors[digest] for digest in digests)]
    )


def _encode_texts(
    encoder: TextEncoder, texts: Sequence[str], *, tokens: bool
) -> tuple[dict[str, NDArray[np.float32]], dict[str, Tokens]]:
    """Sentence embeddings [1, dim] by text, and token embeddings by text where wanted."""
    if not tokens:
        return dict(zip(texts, encoder.sentences(texts)[:, None, :], strict=True)), {}
    both = encoder.both(texts)
    return dict(zip(texts, both.sentences[:, None, :], strict=True)), dict(
        zip(texts, both.tokens, strict=True)
    )


def _read_cached(
    encoder: TextEncoder | PictureEncoder,
    kind: str,
    texts: Sequence[str],
    cache: EmbeddingCache | None,
) -> dict[str, NDArray[Any]]:
    """Arrays by text, of those texts in the cache in the form that the encoder gives them."""
    if cache is None:
        return {}
    text_of = {cache_key(encoder.name, kind, text): text for text in texts}
    arrays = cache.get(list(text_of))
    foreign = [key for key, array in arrays.items() if not _has_form(array, kind, encoder.dim)]
    if foreign:
        cache.drop(foreign)
    return {text_of[key]: array for key, array in arrays.items() if key not in set(foreign)}


def _has_form(array: NDArray[Any], kind: str, dim: int) -> bool:
    rows = kind == TOKENS or len(array) == 1
    return rows and array.shape[1] == dim and array.dtype.str == DTYPES[kind]


def _cache_keys(
    name: str, kind: str, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Arrays by cache key instead of by text."""
    return {cache_key(name, kind, text): array for text, array in arrays.items()}


def _chunks(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    """Slices of `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))
