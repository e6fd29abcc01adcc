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
from raglab.retrieval.index_checks import CodeCells, LinkedCodes, check_cells, check_graph
from raglab.store.blobs import Blobs, cache_folder
from raglab.words.canonical import digest

if TYPE_CHECKING:
    import faiss

Kind = Literal["flat", "hnsw", "ivf"]
StoredKind = Literal["hnsw-sq8", "ivfpq"]
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
    """Rows of vectors, [N, dim], that an array holds or a file.

    Gathered by position or cut by a slice.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, dim]."""

    def __len__(self) -> int:
        """Count the rows."""

    def __getitem__(self, at: NDArray[np.integer] | slice, /) -> Vectors:
        """Rows by position, float32 [*at.shape, dim]; or those of a slice."""


class StoredRows(VectorRows, Protocol):
    """Rows of vectors on disk, which are read a block at a time."""

    def blocks(self, n: int | None = None) -> Iterator[Vectors]:
        """The first n rows, some thousands at a time; all where not given."""


@dataclass(frozen=True, slots=True)
class DenseIndex:
    """An index over unit vectors.

    vectors: [N, dim], and what stands behind them in shards. index: the FAISS index over the first
    N; `flat` is exact, all others are not. widen: candidates that it is asked for by every hit;
    their distances are exact of the vectors. most: candidates a query that ties may take; None is
    all. check: raises before a search where a file that the index is mapped from is not as it was;
    None of an index in memory.
    """

    vectors: Vectors | StoredRows = field(repr=False)
    index: faiss.Index = field(repr=False)
    widen: int = 1
    most: int | None = None
    check: Callable[[], None] | None = field(default=None, repr=False)

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
        if self.check is not None:
            self.check()
        scopes = [None] * len(queries) if allowed is None else list(allowed)
        l2, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        every = np.array([i for i, scope in enumerate(scopes) if scope is None], np.int64)
        for block in _blocks(len(every), ASKED_AT_ONCE // self._candidates(k)):
            free = every[block]
            l2[free], ids[free] = self._nearest(queries[free], k)
        for i, scope in enumerate(scopes):
            if scope is not None:
                within = np.unique(scope).astype(np.int64)[None, :]
                candidate_l2, _ = distances(queries[i : i + 1], self.vectors, within)
                l2[i : i + 1], ids[i : i + 1] = _sort_by_distance(candidate_l2, within, k)
        return l2, ids

    def _candidates(self, k: int) -> int:
        """Candidates a query that k hits may take where many tie, at least 1."""
        n = self.index.ntotal
        return max(1, n if self.most is None else min(n, max(self.most, self.widen * k + SLACK)))

    def _nearest(self, queries: Vectors, k: int) -> tuple[Values, Ids]:
        """Ask for more than k until k-th and last differ, so that ties fall by id, not chance."""
        n, most = self.index.ntotal, self._candidates(k)
        width = min(n, self.widen * k + SLACK)
        l2, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        open_ = np.arange(len(queries)) if n else np.arange(0)
        while len(open_):
            _, candidates = self.index.search(np.ascontiguousarray(queries[open_]), width)
            candidate_l2, _ = distances(queries[open_], self.vectors, candidates)
            l2[open_], ids[open_] = _sort_by_distance(candidate_l2, candidates, k)
            complete = (
                (width == most)
                | (candidates[:, -1] < 0)
                | (candidate_l2[:, -1] > l2[open_, -1] + TIE)
            )
            open_, width = open_[~complete], min(most, 2 * width)
        few = np.count_nonzero(ids >= 0, axis=1) < min(k, n)
        if self.most is not None and few.any():
            l2[few], ids[few] = self._completed(np.ascontiguousarray(queries[few]), k)
        return l2, ids

    def _completed(self, queries: Vectors, k: int) -> tuple[Values, Ids]:
        """The k nearest where a stored index gave fewer than it holds.

        Searched ever wider, at last exactly.

        Cells that are searched may hold too few vectors, and a graph may have parts that no link
        leads to.
        """
        import faiss

        n, most = self.index.ntotal, self._candidates(k)
        width = min(n, self.widen * k + SLACK)
        l2, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        open_ = np.arange(len(queries))
        searches: Any = faiss  # its stub lacks the parameters of a search
        if isinstance(self.index, faiss.IndexIVFPQ):
            cells = _doubled(2 * self.index.nprobe, self.index.nlist)
            wider = [searches.SearchParametersIVF(nprobe=n_cells) for n_cells in cells]
        else:
            looked_at = _doubled(2 * width, min(n, most))
            wider = [searches.SearchParametersHNSW(efSearch=list_size) for list_size in looked_at]
        for parameters in wider:
            _, candidates = self.index.search(queries[open_], width, params=parameters)
            enough = np.count_nonzero(candidates >= 0, axis=1) >= min(k, n)
            done, candidates = open_[enough], candidates[enough]
            candidate_l2, _ = distances(queries[done], self.vectors, candidates)
            l2[done], ids[done] = _sort_by_distance(candidate_l2, candidates, k)
            open_ = open_[~enough]
            if not len(open_):
                return l2, ids
        l2[open_], ids[open_] = _exact(queries[open_], self.vectors, n, k)
        return l2, ids


NEIGHBOURS = 32  # that a node of the graph keeps
LOOKED_AT = {"build": 200, "search": 128}  # candidates of the graph
CELLS_SEARCHED = 16  # of the k-means
SEED = 0  # of the k-means


def dense_index(vectors: Vectors, kind: Kind = "flat") -> DenseIndex:
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


SHORT_LISTS = 4096  # candidates a query of a stored index that ties may take
RECALL_AT = 50  # hits of which a stored index must find LEAST_RECALL
LEAST_RECALL = 0.95
# of the graph that is stored: links of a node, candidates as it grows
STORED_NEIGHBOURS, STORED_LOOKED_AT = 32, 80
LEAST_CODED = 256  # vectors that product quantisation learns its 256 centres from
PQ_BYTES = 4  # dimensions that one byte of a product-quantised vector stands for
CELLS_BY_ROOT = 2  # cells of k-means: so many times the root of the number of vectors
TRAINED_BY_CELL, ROUNDS = 64, 10  # vectors a cell that k-means learns from, and its rounds


class StoredSearch(NamedTuple):
    """How wide a stored index is searched, and what that finds.

    width: `efSearch` of the graph, `nprobe` of the cells. widen: candidates by every hit. recall:
    share of the exact 50 nearest that are found. n_queries: how many it was measured on.
    """

    width: int
    widen: int
    recall: float
    n_queries: int


def index_bytes(kind: StoredKind, n: int, dim: int) -> int:
    """Bytes in memory of a stored index over n vectors, its file's length within a few hundredths.

    Example:
      >>> (
      ...     round(index_bytes("hnsw-sq8", 1_000_000, 384) / 1e6),
      ...     round(index_bytes("ivfpq", 1_000_000, 384) / 1e6),
      ... )
      (664, 107)
    """
    # a byte a dimension, links of 4 bytes (twice as many on the ground), offset and level
    if kind == "hnsw-sq8":
        return n * (dim + 8 * STORED_NEIGHBOURS + 24)
    # a code and its number; centres of cells and bytes
    return n * (dim // PQ_BYTES + 8) + 4 * dim * (_cells(n) + 256)


def stored_kind(n: int, dim: int, memory_mb: float) -> StoredKind:
    """The kind of a stored index that fits a budget.

    The graph where it does, else cells of product-quantised vectors.

    Args:
      n: vectors.
      dim: of them.
      memory_mb: megabytes (1e6 bytes) that the index may take; the float16 vectors that candidates
        are measured by stay on disk, and the system keeps of them what it has room for.

    Raises:
      ValueError: neither fits.
    """
    for kind in get_args(StoredKind):
        if index_bytes(kind, n, dim) <= memory_mb * 1e6:
            return kind
    least = index_bytes("ivfpq", n, dim) / 1e6
    msg = (
        f"index_mb must be at least {least:.0f} for {n} vectors of {dim} dimensions, got "
        f"{memory_mb:g}; raise it."
    )
    raise ValueError(msg)


def index_parameters(kind: StoredKind) -> dict[str, int | float]:
    """What a stored index is built with, by name: another value is another index."""
    shared = {"least_recall": LEAST_RECALL, "seed": SEED}
    if kind == "hnsw-sq8":
        return shared | {"neighbours": STORED_NEIGHBOURS, "looked_at": STORED_LOOKED_AT}
    return shared | {
        "pq_bytes": PQ_BYTES,
        "cells_by_root": CELLS_BY_ROOT,
        "trained_by_cell": TRAINED_BY_CELL,
        "rounds": ROUNDS,
    }


def _cells(n: int) -> int:
    return max(1, round(CELLS_BY_ROOT * n**0.5))


def train_index(vectors: StoredRows, n: int, kind: StoredKind) -> faiss.Index:
    """Index of a kind that is stored, over the first n vectors.

    Built on one thread, the same bytes each time.

    Raises:
      ValueError: product quantisation needs dimensions by fours and 256 vectors.
    """
    import faiss

    dim = vectors.shape[1]
    index: faiss.Index
    with _single_thread():
        if kind == "hnsw-sq8":
            bits: Any = faiss.ScalarQuantizer.QT_8bit  # an int, whatever its stub says
            index = faiss.IndexHNSWSQ(dim, bits, STORED_NEIGHBOURS)
            index.hnsw.efConstruction = STORED_LOOKED_AT
        else:
            if dim % PQ_BYTES or n < LEAST_CODED:
                rule = f"ivfpq must have dimensions by {PQ_BYTES} and {LEAST_CODED} vectors or more"
                msg = f"{rule}, got {dim} and {n}; take hnsw-sq8."
                raise ValueError(msg)
            index = faiss.IndexIVFPQ(faiss.IndexFlatL2(dim), dim, _cells(n), dim // PQ_BYTES, 8)
            for clusters in (index.cp, index.pq.cp):
                clusters.seed, clusters.niter, clusters.min_points_per_centroid = SEED, ROUNDS, 1
                clusters.max_points_per_centroid = TRAINED_BY_CELL
            index.pq.cp.max_points_per_centroid = 256
        # A seeded sample, in the order of the file.
        most = max(65_536, TRAINED_BY_CELL * _cells(n))
        index.train(vectors[np.sort(np.random.default_rng(SEED).permutation(n)[:most])])
        for block in progress(vectors.blocks(n), "index", "block"):
            index.add(block)
    return index


def write_faiss(index: faiss.Index, path: Path) -> None:
    """Write an index of FAISS to a file.

    Raises:
      OSError: the file cannot be written, or the disk is full.
    """
    import faiss

    # By a file of Python, which tells of the last bytes too that a full disk has no room for.
    writer: Any = faiss  # its stub lacks it
    with path.open("wb") as file:
        try:
            faiss.write_index(index, writer.PyCallbackIOWriter(file.write))
        except RuntimeError as error:
            file.flush()  # what the system said, where it says it again
            msg = f"FAISS could not write it: {str(error).splitlines()[-1][-200:]}"
            raise OSError(msg) from error


def stored_index(
    path: Path, vectors: StoredRows, n: int, kind: StoredKind, *, check: Callable[[], None]
) -> DenseIndex:
    """Index of a file, memory-mapped.

    Codes, lists and links stay on disk, shared by all processes that map it.

    Args:
      path: of the file.
      vectors: whose first n it holds.
      check: raises before a search where the file is not as it was: reading past the end of one
        that was shortened would end the process.

    Raises:
      ValueError: the file is no index of this kind over n vectors.
    """
    import faiss

    wanted = faiss.IndexHNSWSQ if kind == "hnsw-sq8" else faiss.IndexIVFPQ
    try:
        index = faiss.read_index(
            str(path), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
        )
    except RuntimeError as error:
        msg = (
            f"a stored index must be a file of FAISS, got {str(error).splitlines()[0][-200:]}; "
            "make it again."
        )
        raise ValueError(msg) from None
    if not isinstance(index, wanted) or (index.ntotal, index.d) != (n, vectors.shape[1]):
        value = f"{type(index).__name__} over {index.ntotal} of {index.d}"
        msg = (
            f"a stored index must be {kind} over {n} vectors of {vectors.shape[1]}, got {value}; "
            "make it again."
        )
        raise ValueError(msg)
    _check_stored(index, n, vectors.shape[1])
    return DenseIndex(vectors, index, 1, SHORT_LISTS, check)


# FAISS types what it derives as its base
def _check_stored(index: Any, n: int, dim: int) -> None:  # noqa: ANN401
    """Stop at an index that leads out of itself: FAISS would follow it.

    Raises:
      ValueError: rule, value and remedy.
    """
    import faiss

    if index.metric_type != faiss.METRIC_L2 or not index.is_trained:
        msg = (
            "a stored index must be trained, of squared L2 distances, got metric "
            f"{index.metric_type}; make it again."
        )
        raise ValueError(msg)
    if isinstance(index, faiss.IndexIVFPQ):
        ivf_index: Any = index
        lists, codes, centres = (
            ivf_index.invlists,
            ivf_index.pq,
            faiss.downcast_index(ivf_index.quantizer),
        )
        if index.polysemous_ht or not index.direct_map.no():
            msg = (
                "a stored index must be searched as it was made, got another search; make it again."
            )
            raise ValueError(msg)
        of_cells = (type(centres).__name__, centres.ntotal, centres.d, lists.nlist, lists.code_size)
        of_codes = (*of_cells, codes.d, codes.nbits, codes.M, codes.centroids.size())
        ids = (_numbers(lists.get_ids(cell), lists.list_size(cell)) for cell in range(lists.nlist))
        centroids = _numbers(codes.centroids.data(), codes.centroids.size())
        rows = (
            centres.reconstruct_n(0, centres.ntotal)
            if isinstance(centres, faiss.IndexFlatL2)
            else centroids
        )
        check_cells(CodeCells(of_codes, ids, centroids, rows), n, dim, index.nlist)
        return
    storage: Any = faiss.downcast_index(index.storage)
    graph = index.hnsw
    sizes = (
        type(storage).__name__,
        storage.ntotal,
        storage.d,
        storage.code_size,
        storage.codes.size(),
    )
    trained = (
        storage.sq.trained if isinstance(storage, faiss.IndexScalarQuantizer) else graph.levels
    )
    vectors = (trained, graph.levels, graph.offsets, graph.neighbors, graph.cum_nneighbor_per_level)
    codes_of, levels, starts, links, steps = (
        _numbers(vector.data(), vector.size()) for vector in vectors
    )
    check_graph(
        LinkedCodes(
            sizes, codes_of, levels, starts, links, steps, graph.entry_point, graph.max_level
        ),
        n,
        dim,
    )


def _numbers(start: Any, size: int) -> NDArray[Any]:  # noqa: ANN401 - a pointer of FAISS
    """Numbers of a vector of FAISS, without a copy."""
    import faiss

    return faiss.rev_swig_ptr(start, size) if size else np.empty(0, np.int64)


def with_search(dense: DenseIndex, search: StoredSearch) -> DenseIndex:
    """The index, searched so wide."""
    import faiss

    if isinstance(dense.index, faiss.IndexIVFPQ):
        dense.index.nprobe = search.width
    elif isinstance(dense.index, faiss.IndexHNSWSQ):
        dense.index.hnsw.efSearch = search.width
    return replace(dense, widen=search.widen)


def tuned_search(
    dense: DenseIndex, queries: Vectors, least: float = LEAST_RECALL
) -> tuple[DenseIndex, StoredSearch]:
    """A stored index searched wide enough to find enough of the exact 50 nearest, and its finds.

    A hit counts that is as near as the exact 50th, so that of vectors alike any may be found. Two
    standard errors over the questions are held back, so that other questions than these find as
    much.

    Args:
      queries: unit vectors of questions, [Q, dim].
      least: share that must be found.

    Raises:
      ValueError: the widest search finds less.
    """
    import faiss

    k = min(RECALL_AT, dense.index.ntotal)
    exact = _exact(queries, dense.vectors, dense.index.ntotal, k)[0][:, -1:]
    if isinstance(dense.index, faiss.IndexIVFPQ):
        # Cells lose hits by the code, which more candidates mend, and by the cell; both grow
        # together.
        steps = [(width, 4 if width < 64 else 8) for width in _doubled(16, dense.index.nlist)]
    else:
        steps = [(width, 1) for width in _doubled(64, 2048)]
    for width, widen in steps:
        searched = with_search(dense, StoredSearch(width, widen, 0.0, 0))
        l2, _ = searched.search(queries, k)
        shares = np.mean(l2 <= exact + TIE, axis=1)
        recall = float(shares.mean())
        if recall - 2.0 * float(shares.std()) / len(shares) ** 0.5 >= least:
            return searched, StoredSearch(width, widen, round(recall, 6), len(queries))
    rule = f"a stored index must find {least:g} of the {k} nearest by two standard errors"
    cells = isinstance(dense.index, faiss.IndexIVFPQ)
    remedy = (
        "take index='hnsw-sq8' (auto does with more index_mb) or 'flat'"
        if cells
        else "take index='flat'"
    )
    msg = f"{rule}, got {recall:.3f} at its widest; {remedy}."
    raise ValueError(msg)


def _doubled(start: int, most: int) -> list[int]:
    """Start, its doubles below most, and most."""
    widths = [min(start, most)]
    while widths[-1] < most:
        widths.append(min(2 * widths[-1], most))
    return widths


def _exact(queries: Vectors, vectors: Vectors | StoredRows, n: int, k: int) -> tuple[Values, Ids]:
    """The k nearest of the first n, (l2, ids), each [Q, k], by (l2, id).

    A block of vectors at a time.
    """
    import faiss

    width = min(n, k + SLACK)
    best = np.empty((len(queries), 0), np.float32)
    ids = np.empty((len(queries), 0), np.int64)
    start = 0
    for block in iter([vectors[:n]]) if isinstance(vectors, np.ndarray) else vectors.blocks(n):
        l2, at = faiss.knn(queries, block, min(width, len(block)))
        best, ids = np.concatenate([best, l2], axis=1), np.concatenate([ids, at + start], axis=1)
        order = np.argsort(best, axis=1, kind="stable")[:, :width]
        best, ids = np.take_along_axis(best, order, 1), np.take_along_axis(ids, order, 1)
        start += len(block)
    return _sort_by_distance(distances(queries, vectors, ids)[0], ids, k)


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
    if not len(vectors):
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
