"""Nearest neighbours by squared L2 distance, and the exact distances of given hits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

Kind = Literal["flat", "hnsw", "ivf"]
Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Values = NDArray[np.float64]

BLOCK = 256
SLACK = 16
TIE = 1e-5


@dataclass(frozen=True, slots=True)
class DenseIndex:
    """An index over unit vectors.

    vectors: [N, dim]. index: the FAISS index over them; `flat` is exact, `hnsw` and `ivf` are not.
    """

    vectors: Vectors = field(repr=False)
    index: faiss.Index = field(repr=False)

    def search(
        self, queries: Vectors, k: int, allowed: Sequence[NDArray[np.integer] | None] | None = None
    ) -> tuple[Values, Ids]:
        """Return the k nearest vectors, (l2, ids), each [Q, k], by (l2, id); NaN and -1 where there are fewer.

        Args:
          queries: [Q, dim].
          k: hits a query.
          allowed: for each query the positions it may find, searched exactly; None is all of them.
        """
        scopes = [None] * len(queries) if allowed is None else list(allowed)
        l2, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        free = np.array([i for i, scope in enumerate(scopes) if scope is None], np.int64)
        l2[free], ids[free] = self._nearest(queries[free], k)
        for i, scope in enumerate(scopes):
            if scope is not None:
                within = np.unique(scope).astype(np.int64)[None, :]
                found, _ = distances(queries[i : i + 1], self.vectors, within)
                l2[i : i + 1], ids[i : i + 1] = _by_distance(found, within, k)
        return l2, ids

    def _nearest(self, queries: Vectors, k: int) -> tuple[Values, Ids]:
        """Ask for more than k until the k-th is told apart from the last, so that ties fall by id, not by chance."""
        n = len(self.vectors)
        width = min(n, k + SLACK)
        l2, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        open_ = np.arange(len(queries)) if n else np.arange(0)
        while len(open_):
            _, candidates = self.index.search(np.ascontiguousarray(queries[open_]), width)
            found, _ = distances(queries[open_], self.vectors, candidates)
            l2[open_], ids[open_] = _by_distance(found, candidates, k)
            complete = (width == n) | (candidates[:, -1] < 0) | (found[:, -1] > l2[open_, -1] + TIE)
            open_, width = open_[~complete], min(n, 2 * width)
        return l2, ids


def dense_index(
    vectors: Vectors,
    kind: Kind = "flat",
    *,
    hnsw_m: int = 32,
    ef_construction: int = 200,
    ef_search: int = 128,
    n_lists: int | None = None,
    n_probe: int = 16,
    seed: int = 0,
) -> DenseIndex:
    """Build an index over unit vectors.

    Args:
      vectors: [N, dim].
      kind: `flat` is exact; `hnsw` (a graph) and `ivf` (cells of k-means) trade recall for speed past 100,000 vectors.
      hnsw_m: neighbours a node of the graph keeps.
      ef_construction: candidates looked at while the graph is built.
      ef_search: candidates looked at in a search.
      n_lists: cells; None is the square root of N.
      n_probe: cells looked at in a search.
      seed: of the k-means.

    Raises:
      ValueError: the kind must be known, the vectors 2-dimensional.
    """
    if vectors.ndim != 2:
        msg = f"vectors must have shape [N, dim], got {list(vectors.shape)}; stack one row a text."
        raise ValueError(msg)
    rows = np.ascontiguousarray(vectors, np.float32)
    n, dim = rows.shape
    index: faiss.Index
    if kind == "flat":
        index = faiss.IndexFlatL2(dim)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, hnsw_m)
        index.hnsw.efConstruction, index.hnsw.efSearch = ef_construction, ef_search
    elif kind == "ivf":
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, n_lists or max(1, round(n**0.5)))
        index.nprobe, index.cp.seed, index.cp.min_points_per_centroid = n_probe, seed, 1
    else:
        msg = f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}; flat is exact and fine up to 100,000."
        raise ValueError(msg)
    with _one_thread():
        index.train(rows)
        index.add(rows)
    return DenseIndex(rows, index)


def distances(queries: Vectors, vectors: Vectors, ids: NDArray[np.integer]) -> tuple[Values, Values]:
    """Squared L2 distance and cosine of each query and its hits, (l2, cosine), each [Q, k]; NaN where the id is -1.

    Summed in float64 and rounded to float32, so that a value is the same whatever is measured beside it.

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
    for start in range(0, len(ids), BLOCK):
        at = slice(start, start + BLOCK)
        hits, asked = _gathered(vectors, ids[at]), queries[at].astype(np.float64)[:, None, :]
        l2[at] = ((hits - asked) ** 2).sum(axis=-1)
        cosine[at] = (hits * asked).sum(axis=-1)
    return _rounded(l2, ids), _rounded(cosine.clip(-1.0, 1.0), ids)


def cosines(queries: Vectors, vectors: Vectors, ids: NDArray[np.integer]) -> Values:
    """Cosine of each query and the unit vectors it is paired with, [Q, k]; NaN where the id is -1."""
    cosine = np.empty(ids.shape)
    for start in range(0, len(ids), BLOCK):
        at = slice(start, start + BLOCK)
        cosine[at] = (_gathered(vectors, ids[at]) * queries[at].astype(np.float64)[:, None, :]).sum(axis=-1)
    return _rounded(cosine.clip(-1.0, 1.0), ids)


def _gathered(vectors: Vectors, ids: NDArray[np.integer]) -> Values:
    """Vectors of hits, float64 [Q, k, dim]; zeros where the id is -1."""
    if not len(vectors):
        return np.zeros((*ids.shape, vectors.shape[1]))
    hits: Values = vectors[ids.clip(0)].astype(np.float64)
    return hits


def _rounded(values: Values, ids: NDArray[np.integer]) -> Values:
    """Values rounded to float32 as float64; NaN where the id is -1."""
    return np.where(ids >= 0, values.astype(np.float32).astype(np.float64), np.nan)


def _by_distance(l2: Values, ids: NDArray[np.integer], k: int) -> tuple[Values, Ids]:
    """Sort hits by (l2, id), NaN last, and cut or pad them to k."""
    order = np.lexsort((ids, l2), axis=-1)[:, :k]
    pad = ((0, 0), (0, k - order.shape[1]))
    sorted_l2 = np.pad(np.take_along_axis(l2, order, -1), pad, constant_values=np.nan)
    sorted_ids = np.pad(np.take_along_axis(ids, order, -1).astype(np.int64), pad, constant_values=-1)
    return sorted_l2, sorted_ids


@contextmanager
def _one_thread() -> Iterator[None]:
    """Build on one thread, so that a graph's edges do not depend on the number of cores."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
