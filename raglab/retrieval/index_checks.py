"""Checks of indexes that come from files (shore): all numbers and positions, before any search.

A digest tells damage, not whoever computes it again, and FAISS follows a link of a graph wherever
it points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1 << 22  # numbers looked at together
_BITS = 8  # of a code of product quantisation


def _refuse(rule: str, value: object) -> NoReturn:
    msg = f"{rule}, got {value}; make it again."
    raise ValueError(msg)


def _parts(size: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, size, _AT_ONCE))


def check_keyword_lists(
    data: NDArray[Any], texts: NDArray[Any], ends: NDArray[Any], n: int
) -> None:
    """Stop at lists of a keyword index that no texts have.

    Of another type, out of order, or with scores that are none.

    Args:
      data: score of each text in each list.
      texts: its position, ascending in a list.
      ends: where each list begins, and the end of the last.
      n: texts of the index.

    Raises:
      ValueError: rule, value and remedy.
    """
    kinds = {"data": (data, "<f4"), "indices": (texts, "<i4"), "indptr": (ends, "<i8")}
    for name, (array, kind) in kinds.items():
        if array.dtype != np.dtype(kind) or array.ndim != 1:
            _refuse(
                f"{name} of a keyword index must be {kind} of one axis",
                f"{array.dtype} {array.shape}",
            )
    if not len(ends):
        _refuse("indptr of a keyword index must hold the end of each list", "nothing")
    lengths = np.diff(ends)
    if ends[0] != 0 or (lengths < 0).any() or not len(data) == len(texts) == ends[-1]:
        _refuse("lists of a keyword index must stand one behind the other", f"{len(texts)} texts")
    for part in _parts(len(texts)):
        if not ((texts[part] >= 0) & (texts[part] < n)).all():
            _refuse(f"lists of a keyword index must name texts from 0 to {n - 1}", "another")
        if not ((data[part] >= 0.0) & (data[part] < np.inf)).all():
            _refuse("scores of a keyword index must be finite and at least 0", "another")
    # Within a list each text once, in order; where a list begins the order starts again.
    begins = np.zeros(len(texts), bool)
    begins[ends[:-1][lengths > 0]] = True
    for start in range(0, len(texts) - 1, _AT_ONCE):
        block = slice(start, min(start + _AT_ONCE + 1, len(texts)))
        if not ((np.diff(texts[block]) > 0) | begins[block][1:]).all():
            _refuse("a list of a keyword index must name each text once, in order", "another order")


class LinkedCodes(NamedTuple):
    """What a graph over codes of vectors is made of.

    sizes: name of the storage, vectors, dimensions, bytes of a code, bytes of all. trained: ranges
    of the codes. levels: of each vector, from 1. starts: where the links of each begin, and the end
    of the last. links: positions, -1 for none. steps: where the links of a level begin within those
    of a vector. entry, highest: where a search begins, and its level from 0.
    """

    sizes: tuple[Any, ...]
    trained: NDArray[Any]
    levels: NDArray[Any]
    starts: NDArray[Any]
    links: NDArray[Any]
    steps: NDArray[Any]
    entry: int
    highest: int


class CodeCells(NamedTuple):
    """What cells of quantised vectors are made of.

    sizes: name of the centres' index, centres, their dimensions, cells, bytes of a code in them,
    dimensions, bits and bytes of a code, numbers of its centroids. ids: positions in each cell.
    centroids, centres: numbers.
    """

    sizes: tuple[Any, ...]
    ids: Iterator[NDArray[Any]]
    centroids: NDArray[Any]
    centres: NDArray[Any]


def check_graph(graph: LinkedCodes, n: int, dim: int) -> None:
    """Stop at a graph with a link to a vector that is not on its level, or at codes that are none.

    Args:
      n, dim: of its vectors.

    Raises:
      ValueError: rule, value and remedy.
    """
    if (
        graph.sizes != ("IndexScalarQuantizer", n, dim, dim, n * dim)
        or not np.isfinite(graph.trained).all()
    ):
        _refuse(
            f"codes of a stored index must be a byte for each of {n} x {dim}, of finite ranges",
            graph.sizes,
        )
    # FAISS checks lengths, and that each link leads to a vector; on a higher level it would read
    # links that are not.
    levels, starts, links, steps = (
        graph.levels,
        graph.starts,
        graph.links,
        graph.steps.astype(np.int64),
    )
    for level in range(1, int(levels.max(initial=1))):
        there = np.flatnonzero(levels > level)
        width = np.arange(steps[level], steps[level + 1])
        linked = links[starts[there].astype(np.int64)[:, None] + width]
        if not (levels[linked[linked >= 0]] > level).all():
            _refuse(f"links of level {level} must lead to vectors of that level", "another")
    entry, most = graph.entry, graph.highest
    if n and most != levels[entry] - 1:
        _refuse(
            "a graph must be entered at a vector of its highest level", f"{entry} of level {most}"
        )


def check_cells(cells: CodeCells, n: int, dim: int, n_cells: int) -> None:
    """Stop at cells that do not hold each vector once, or at a code that is none.

    Args:
      n, dim: of the vectors.

    Raises:
      ValueError: rule, value and remedy.
    """
    code = cells.sizes[7]
    wanted = ("IndexFlatL2", n_cells, dim, n_cells, code, dim, _BITS, code, dim * 2**_BITS)
    if cells.sizes != wanted or not 1 <= code <= dim or dim % code:
        _refuse(f"cells of a stored index must be {wanted}", cells.sizes)
    known = np.zeros(n, bool)
    for ids in cells.ids:
        if not ((ids >= 0) & (ids < n)).all() or known[ids].any() or len(np.unique(ids)) < len(ids):
            _refuse(f"cells must hold vectors from 0 to {n - 1}, each once", "another")
        known[ids] = True
    if not known.all():
        _refuse(f"cells must hold all of {n} vectors", f"{int(known.sum())}")
    if not (np.isfinite(cells.centroids).all() and np.isfinite(cells.centres).all()):
        _refuse("centres of cells must be finite", "another")
