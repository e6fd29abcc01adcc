"""Index on disk (shore): a flat index of FAISS over float16 vectors and BM25, memory-mapped.

A folder beside the cache of embeddings, named by what it is made of. Its manifest is written last
and has the SHA-256 of every file: a build that was killed leaves no index, and a file that was
changed is never searched.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from os.path import getmtime
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from raglab.extensions.scale.shard_manifests import file_hash
from raglab.retrieval.dense import DenseIndex, EmbeddingCache, TextEncoder, embed
from raglab.retrieval.indexes import BM25_FILES, Bm25Index, StoredIndex, write_bm25
from raglab.store.files import (
    InputError,
    Where,
    input_error,
    locked,
    make_folder,
    read_text,
    replacing,
    write_parts,
    write_text,
)
from raglab.values import VectorArray, WholeArray
from raglab.words.canonical import digest

FAISS_FILE, MANIFEST, LOCK = "dense.faiss", "manifest.txt", "lock"
INDEX_FILES = (FAISS_FILE, *BM25_FILES)
VECTORS_PER_BLOCK = 16_384  # vectors in float32 at a time
_LENGTH_TOLERANCE = 1e-2  # of a length in float16, ten times over


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """Vectors of a mapped index of FAISS: gathered by position, and the first of them searched.

    Rounding to float16 moves a squared distance to a question by less than 0.002; every distance is
    exact of the rounded vectors.

    index: flat, in float16. shape: [N, dim]. ntotal: vectors that are searched. check: raises where
    a mapped file was changed.
    """

    index: Any
    shape: tuple[int, int]
    ntotal: int
    check: Callable[[], None]

    def __getitem__(self, at: WholeArray, /) -> VectorArray:
        """Vectors by position, [*at.shape, dim]."""
        self.check()
        return self.index.reconstruct_batch(at.ravel()).reshape(*at.shape, -1)

    def search(self, queries: VectorArray, k: int) -> Any:  # noqa: ANN401
        """The k nearest, as FAISS returns them."""
        self.check()
        return self.index.search(
            queries,
            k,
            params=faiss.SearchParameters(sel=faiss.IDSelectorRange(0, self.ntotal)),  # type: ignore[call-arg]
        )


def stored_index(
    rows: Sequence[str], n_chunks: int, encoder: TextEncoder, cache: EmbeddingCache
) -> StoredIndex:
    """Index of texts, opened from its folder beside the cache, which is made where it is missing.

    One process makes it, others wait. Every file is read once when it is opened, for its hash.

    Args:
      rows: texts that have a vector.
      n_chunks: how many of them are searched, the first ones.

    Raises:
      InputError: the folder cannot be written, or a file is missing, damaged or of another index.
    """
    content_hash = sha256(f"3 {n_chunks} {encoder.name}".encode())  # 3: of this format
    for row_text in rows:
        content_hash.update(digest(row_text).encode())
    folder = cache.path.parent / f"large-{content_hash.hexdigest()[:16]}"
    vector_shape = (len(rows), encoder.dim)
    if not (folder / MANIFEST).is_file():
        with locked(make_folder(folder) / LOCK, wait_s=86_400.0):
            # Another process may have made it meanwhile, or dropped it.
            if not (make_folder(folder) / MANIFEST).is_file():
                for leftover in folder.glob(".*.tmp"):  # of a build that was killed
                    leftover.unlink()
                vector_parts = (
                    embed(encoder, rows[first_row : first_row + VECTORS_PER_BLOCK], cache)
                    .vectors.astype("<f2")
                    .tobytes()
                    for first_row in range(0, len(rows), VECTORS_PER_BLOCK)
                )
                write_parts(chain([_faiss_head(vector_shape)], vector_parts), folder / FAISS_FILE)
                write_bm25(rows[:n_chunks], lambda name: replacing(folder / name))
                write_text(_manifest(folder), folder / MANIFEST)
    try:
        check_mapping = mapping_check(folder)
        if read_text(folder / MANIFEST, 65_536) != _manifest(folder):
            raise _damaged(folder, "others than its manifest names")
        vectors = StoredVectors(
            _mapped_index(folder / FAISS_FILE, vector_shape), vector_shape, n_chunks, check_mapping
        )
        bm25 = Bm25Index.open(folder, n_chunks, check=check_mapping)
    except InputError:
        raise
    except (ValueError, OSError, RuntimeError) as error:
        raise _damaged(folder, str(error)) from None
    check_mapping()  # what was changed after its hash was read is not what is mapped
    return StoredIndex(folder, vectors, DenseIndex(vectors, vectors), bm25)


def _faiss_head(shape: tuple[int, int]) -> bytes:
    """What FAISS writes before the rows of a flat index in float16: their form and number."""
    index = faiss.index_factory(shape[1], "SQfp16")
    index.ntotal = shape[0]
    # Without rows it ends with their length in bytes, which is 0.
    header_bytes = bytes(faiss.serialize_index(index)[:-8])
    return header_bytes + (index.ntotal * index.sa_code_size()).to_bytes(8, "little")


def _mapped_index(path: Path, shape: tuple[int, int]) -> Any:  # noqa: ANN401 - of FAISS_FILE
    """Flat index over unit vectors in float16, mapped from a file, whatever its hash.

    Raises:
      InputError: it is none, or a vector is not of length 1 or 0.
    """
    header_bytes = _faiss_head(shape)
    if np.fromfile(path, np.uint8, len(header_bytes)).tobytes() != header_bytes:
        raise _damaged(path, "another form of index")
    index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    for first_vector in range(0, shape[0], VECTORS_PER_BLOCK):
        block_vectors = index.reconstruct_n(
            first_vector, min(VECTORS_PER_BLOCK, shape[0] - first_vector)
        )
        vector_lengths = np.linalg.norm(block_vectors, axis=1)
        if not (np.abs(vector_lengths * (vector_lengths - 1)) <= _LENGTH_TOLERANCE).all():
            raise _damaged(path, "vectors of another length")
    return index


def mapping_check(folder: Path) -> Callable[[], None]:
    """Function that stops where a file was written since, as reading a cut one ends the process.

    Where one was deleted, all stay mapped as they were.
    """

    def times() -> list[float]:
        return [getmtime(folder / name) for name in INDEX_FILES]  # noqa: PTH204 - twice as fast

    opening_times = times()

    def check() -> None:
        with suppress(FileNotFoundError):
            if times() != opening_times:
                raise _damaged(folder, "one that was written since it was opened")

    return check


def drop_older(index_parent: Path, current: Path | None) -> None:
    """Delete old large indexes of a folder; the current one and the one before it stay.

    Whoever read the folder's index.json before it changed may be about to open the earlier one.
    What is open already is mapped, and stays readable without a name. What another process builds
    is left alone, and so is all that raglab did not make.

    Args:
      current: folder of the index that is asked from now on; None where that is no large one.
    """
    older_locks = [
        path
        for path in index_parent.glob(f"large-{'[0-9a-f]' * 16}/{LOCK}")
        if path.parent != current and not path.parent.is_symlink()
    ]
    for path in sorted(older_locks, key=getmtime)[:-1]:
        with suppress(OSError, InputError), locked(path, wait_s=0.0):
            (path.parent / MANIFEST).unlink(missing_ok=True)  # first: the rest is no index
            shutil.rmtree(path.parent)


def _manifest(folder: Path) -> str:
    """Content of manifest.txt: the name of the folder, and the hash and name of each file."""
    return "\n".join(
        [folder.name, *(f"{file_hash(folder / name)}  {name}" for name in INDEX_FILES)]
    )


def _damaged(path: Path, value: str) -> InputError:
    return input_error(
        Where(str(path)),
        "files of an index on disk must be as raglab wrote them",
        "delete its folder: it is made again from the corpus",
        value,
    )
