"""Embeddings of a large corpus (shore): float16 rows in memory-mapped files, read as one array.

The files have equal length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from raglab.extensions.scale.mapped_files import check_mapped, mapped_file
from raglab.words.characters import visible

Vectors = NDArray[np.float32]
_UNIT_LENGTH = 1e-2  # by which rounding to float16 may change a length, ten times over


class VectorShards:
    """Unit vectors as `.npy` files of float16 that stand on disk.

    Only the rows that are asked for come into memory.

    Takes the place of an array [N, dim] of float32 wherever rows are gathered by position or cut by
    a slice: what comes back is float32. Rounding to float16 moves a component above 6e-5 by at most
    1/2048 of itself, a smaller one by at most 3e-8, so that the squared distance of a row to a unit
    vector that is not rounded, such as a question's, moves by less than 0.002; every distance that
    is measured over shards is exact of the rounded rows.
    """

    __slots__ = ("_files", "_maps", "_size", "shape")

    def __init__(self, paths: Sequence[Path], size: int, dim: int) -> None:
        """Map the files.

        Args:
          paths: one a shard, in the order of their rows.
          size: rows of every shard but the last.
          dim: columns.

        Raises:
          ValueError: a file that is no array of float16 with so many columns and rows.
          OSError: a file that is not there.
        """
        self._files = [mapped_file(path) for path in paths]
        self._maps = [_mapped(path, dim) for path in paths]
        self._size = size
        for path, rows in zip(paths[:-1], self._maps[:-1], strict=True):
            if len(rows) != size:
                msg = (
                    f"a shard but the last must have {size} rows, got {len(rows)} in "
                    f"{visible(str(path))}; make it"
                )
                raise ValueError(msg + " again.")
        self.shape = (sum(map(len, self._maps)), dim)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: NDArray[np.integer] | slice) -> Vectors:
        """Rows by position, float32 [*at.shape, dim]; or those of a slice.

        Raises:
          InputError: a file was changed since it was mapped.
        """
        if isinstance(at, slice):
            at = np.arange(len(self))[at]
        flat = np.asarray(at, np.int64).ravel()
        rows = np.empty((len(flat), self.shape[1]), np.float32)
        shard = flat // self._size
        numbers = np.unique(shard).tolist()
        check_mapped(self._files[number] for number in numbers)
        for number in numbers:
            of_shard = np.flatnonzero(shard == number)
            # Positions in ascending order are read in the order of the file.
            of_shard = of_shard[np.argsort(flat[of_shard], kind="stable")]
            rows[of_shard] = self._maps[number][flat[of_shard] - number * self._size]
        return rows.reshape(*np.shape(at), self.shape[1])

    # NumPy's
    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> NDArray[Any]:
        """All rows in memory."""
        del copy
        return np.concatenate(list(self.blocks())).astype(np.float32 if dtype is None else dtype)

    def check(self) -> None:
        """Read all rows once.

        Raises:
          ValueError: a row that is neither of unit length nor zero, such as one with NaN.
        """
        first = 0
        for block in self.blocks():
            lengths = np.sqrt(np.einsum("nd,nd->n", block, block, dtype=np.float64))
            wrong = ~((np.abs(lengths - 1.0) <= _UNIT_LENGTH) | (lengths == 0.0))
            if wrong.any():
                place = int(np.argmax(wrong))
                msg = (
                    f"rows of shards must be of unit length, got {lengths[place]:.6g} in row "
                    f"{first + place}; make it"
                )
                raise ValueError(msg + " again.")
            first += len(block)

    def blocks(self, n: int | None = None, rows: int = 8192) -> Iterator[Vectors]:
        """The first n rows in float32, some thousands at a time.

        Raises:
          InputError: a file was changed since it was mapped.
        """
        remaining = len(self) if n is None else n
        for file, vectors in zip(self._files, self._maps, strict=True):
            for start in range(0, min(len(vectors), remaining), rows):
                check_mapped([file])
                yield vectors[start : min(start + rows, remaining)].astype(np.float32)
            remaining -= min(len(vectors), remaining)


class Remapped:
    """Rows of other vectors by a table of positions.

    An array [N, dim] that holds nothing of its own.

    vectors: [M, dim]. rows: position in them of each row of this one, [N].
    """

    __slots__ = ("rows", "shape", "vectors")

    def __init__(self, vectors: VectorShards, rows: NDArray[np.int64]) -> None:
        self.vectors, self.rows, self.shape = vectors, rows, (len(rows), vectors.shape[1])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: NDArray[np.integer] | slice) -> Vectors:
        """Rows by position, float32 [*at.shape, dim]; or those of a slice."""
        return self.vectors[self.rows[at]]


def _mapped(path: Path, dim: int) -> NDArray[np.float16]:
    rows: NDArray[np.float16] = np.load(path, mmap_mode="r", allow_pickle=False)
    if rows.dtype != np.dtype("<f2") or rows.ndim != 2 or rows.shape[1] != dim:
        layout = f"{rows.dtype} {list(rows.shape)} in {visible(str(path))}"
        msg = f"a shard must be float16 with {dim} columns, got {layout}; make it again."
        raise ValueError(msg)
    return rows
