"""Indexes of a large corpus on disk (shore): float16 shards, FAISS and BM25, memory-mapped; manifest with recall.

A folder beside the cache of embeddings, named by what it is made of: texts, encoder, kind and parameters. Its manifest
is written last and names every file with its SHA-256, so that a build that was killed goes on at the shard where it
stopped, and what was damaged is told and never searched.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raglab.canonical import canonical_json, digest
from raglab.models import Tokens
from raglab.progress import progress
from raglab.retrieval.dense import (
    DenseIndex,
    EmbeddingCache,
    Kind,
    StoredKind,
    StoredSearch,
    TextEncoder,
    embed,
    index_parameters,
    stored_index,
    stored_kind,
    train_index,
    tuned_search,
    with_search,
    write_faiss,
)
from raglab.retrieval.entity_graph import EntityGraph
from raglab.retrieval.indexes import (
    ANCHOR,
    BM25_FILES,
    Bm25Index,
    Indexes,
    PictureVectors,
    Signatures,
    write_bm25,
)
from raglab.retrieval.tables import TableIndex
from raglab.retrieval.vector_shards import Remapped, VectorShards
from raglab.store.files import InputError, Where, input_error, locked, make_folder, read_json, replacing, write_text

FLAT_UP_TO = 100_000  # chunks of which an exact index answers in about 16 ms
INDEX_MB = 1_000  # megabytes that a stored index may take where nobody says
STORED_KINDS = get_args(StoredKind)
ROWS_OF_SHARD = 65_536
MANIFEST, DONE, FAISS, LOCK = "manifest.json", "shards.json", "dense.faiss", "lock"
ASKED, WORDS_ASKED, SEED = 200, 12, 0  # questions that the recall is measured on: first words of seeded passages
_VERSION = 1
_MAX_BYTES = 2**24


def check_kind(kind: str, memory_mb: float) -> None:
    """Stop at a kind of index or a budget that is none.

    Raises:
      ValueError: an unknown kind, or a budget that is no number above 0.
    """
    known = ("auto", *get_args(Kind), *STORED_KINDS)
    if kind not in known:
        msg = f"index must be one of {', '.join(known)}, got {kind!r}; auto is exact up to {FLAT_UP_TO:,} chunks."
        raise ValueError(msg)
    if not 0.0 < memory_mb < float("inf"):
        msg = f"index_mb must be above 0, got {memory_mb}; it is megabytes, {INDEX_MB} where not given."
        raise ValueError(msg)


def sized_kind(kind: str, n: int, dim: Callable[[], int], memory_mb: float) -> Any:  # noqa: ANN401 - a literal
    """Kind of index that n chunks get: what is named; of `auto` the exact one up to 100,000, then what fits the memory.

    Args:
      dim: dimensions of the encoder, asked for past that number. memory_mb: see `raglab.retrieval.dense.stored_kind`.

    Raises:
      ValueError: no index fits the memory.

    Example:
      >>> sized_kind("auto", 100_000, lambda: 384, 1_000), sized_kind("auto", 1_000_000, lambda: 384, 1_000)
      ('flat', 'hnsw-sq8')
      >>> sized_kind("auto", 1_000_000, lambda: 384, 500)
      'ivfpq'
    """
    if kind != "auto":
        return kind
    return "flat" if n <= FLAT_UP_TO else stored_kind(n, dim(), memory_mb)


class _File(BaseModel):
    """A file of the folder."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str = Field(pattern=r"^[a-z0-9.-]+$")
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class IndexManifest(BaseModel):
    """Content of manifest.json.

    n_chunks: that are searched. n_rows: of all shards: the chunks, rows of tables, beginnings of long texts. rows: of a
    shard. parameters: that the index was built with. width, widen: how it is searched, see `StoredSearch`.
    recall_at_50: share of the exact 50 nearest that it finds, by questions asked. files: with their hashes, shards
    first.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: int
    key: str
    kind: str
    n_chunks: int
    n_rows: int
    dim: int
    rows: int
    parameters: dict[str, Any]
    width: int
    widen: int
    recall_at_50: float
    asked: int
    files: list[_File]

    @property
    def search(self) -> StoredSearch:
        """How wide the index is searched."""
        return StoredSearch(self.width, self.widen, self.recall_at_50, self.asked)


class LargeIndex(NamedTuple):
    """What of a folder answers questions; see `Indexes`."""

    vectors: VectorShards
    dense: DenseIndex
    bm25: Bm25Index
    manifest: IndexManifest


class StoredTokens(Mapping[str, Tokens]):
    """Token embeddings by text, read from a cache where they are asked for, and encoded where it has none.

    A passage has 60 kB of them: of a million they would fill 60 GB, so they are kept of passages that were reranked.
    """

    def __init__(self, encoder: TextEncoder, cache: EmbeddingCache, texts: Sequence[str]) -> None:
        self._encoder, self._cache, self._texts = encoder, cache, texts

    def __getitem__(self, text: str) -> Tokens:
        found = embed(self._encoder, [text], self._cache, tokens=True).tokens
        if found is None:
            raise KeyError(text)
        return found[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


class LargeSize(NamedTuple):
    """Sizes of a large index: chunks that are searched; all rows of its shards; dimensions. rows: of a shard."""

    n_chunks: int
    n_rows: int
    dim: int
    rows: int = ROWS_OF_SHARD


def large_indexes(
    texts: Sequence[str],
    encoder: TextEncoder,
    cache: EmbeddingCache | None,
    signatures: Signatures,
    strict_signatures: Signatures,
    *,
    kind: StoredKind,
    tokens: bool,
    graph: EntityGraph | None = None,
    tables: TableIndex | None = None,
    pictures: PictureVectors | None = None,
) -> Indexes:
    """Indexes as `build_indexes` makes them, from a folder beside the cache, which is made where it is not there.

    Raises:
      ValueError: no cache, beside which the folder stands; pictures; a recall that no search reaches.
      InputError: a folder that cannot be written, or a damaged one.
    """
    if pictures is not None:
        msg = f"an index of kind {kind} holds texts alone, got {len(pictures.at)} pictures; take index='flat'."
        raise ValueError(msg)
    if cache is None:
        msg = f"an index of kind {kind} is kept beside the cache of embeddings, got none; give a cache."
        raise ValueError(msg)
    n_chunks = len(texts) - (0 if tables is None else len(tables.rows))
    long = [i for i, text in enumerate(texts) if len(text) > ANCHOR]
    rows = [*texts, *(texts[i][:ANCHOR] for i in long)]

    def encoded(some: slice) -> NDArray[np.float32]:
        return embed(encoder, rows[some], cache).vectors

    def questions() -> NDArray[np.float32]:
        asked = [" ".join(texts[i].split()[:WORDS_ASKED]) for i in sampled(n_chunks)]
        return np.concatenate([encoder.sentences([text], query=True) for text in asked if text])

    key = index_key(rows, encoder.name, kind, n_chunks)
    folder = cache.path.parent / f"large-{key}"
    size = LargeSize(n_chunks, len(rows), encoder.dim)
    if not (folder / MANIFEST).is_file():
        build_large(folder, texts[:n_chunks], size, encoded, questions, kind=kind, key=key)
    made = open_large(folder, key)
    place = np.arange(len(texts))
    place[long] = len(texts) + np.arange(len(long))
    by_text = StoredTokens(encoder, cache, texts) if tokens else {}
    named = (signatures, strict_signatures, graph, tables)
    return Indexes(tuple(texts), made.vectors, by_text, Remapped(made.vectors, place), made.dense, made.bm25, *named)


def index_key(rows: Sequence[str], encoder: str, kind: StoredKind, n_chunks: int) -> str:
    """Sixteen digits that name a large index by what it is made of."""
    texts = hashlib.sha256()
    for text in rows:
        texts.update(digest(text).encode())
    stated = [_VERSION, encoder, kind, n_chunks, len(rows), texts.hexdigest(), index_parameters(kind)]
    return digest(canonical_json(stated, ensure_ascii=True), 16)


def sampled(n: int) -> NDArray[np.int64]:
    """Positions of the passages whose first words are asked to measure the recall, seeded, ascending."""
    return np.sort(np.random.default_rng(SEED).permutation(n)[:ASKED])


def build_large(
    folder: Path,
    texts: Sequence[str],
    size: LargeSize,
    encoded: Callable[[slice], NDArray[np.float32]],
    questions: Callable[[], NDArray[np.float32]],
    *,
    kind: StoredKind,
    key: str,
) -> IndexManifest:
    """Make the folder of a large index; where a build was killed, from the shard where it stopped.

    One process builds, others wait for it. Whatever stops it, there is no manifest, and so no index, until all stands.

    Args:
      texts: the chunks. encoded: unit vectors of some rows. questions: unit vectors that the recall is measured on,
        [Q, dim]. key: see `index_key`.

    Raises:
      ValueError: a recall that no search reaches.
      InputError: the folder cannot be written.
    """
    with locked(make_folder(folder) / LOCK, wait_s=_WAIT_S):
        if (folder / MANIFEST).is_file():  # another process made it meanwhile
            return _manifest(folder, key)
        shards = _write_shards(folder, size, encoded)
        vectors = VectorShards([folder / one.name for one in shards], size.rows, size.dim)
        with replacing(folder / FAISS) as path:
            write_faiss(train_index(vectors, size.n_chunks, kind), path)
        dense = stored_index(folder / FAISS, vectors, size.n_chunks, kind)
        _, search = tuned_search(dense, questions())
        write_bm25(texts, lambda name: replacing(folder / name))
        files = [*shards, *(_file(folder / name) for name in (FAISS, *BM25_FILES))]
        made = IndexManifest(
            version=_VERSION,
            key=key,
            kind=kind,
            **size._asdict(),
            parameters=index_parameters(kind),
            width=search.width,
            widen=search.widen,
            recall_at_50=search.recall,
            asked=search.asked,
            files=files,
        )
        write_text(made.model_dump_json(indent=2) + "\n", folder / MANIFEST)
        (folder / DONE).unlink(missing_ok=True)
    return made


def open_large(folder: Path, key: str, *, verify: bool = True) -> LargeIndex:
    """Large index of a folder, memory-mapped.

    Args:
      key: that it must have. verify: whether every file is read once and its hash compared, about a second a gigabyte;
        else its length alone.

    Raises:
      InputError: a file that is missing, damaged or of another index.
    """
    manifest = _manifest(folder, key)
    for one in progress(manifest.files, "check", "file"):
        path = folder / one.name
        there = path.is_file() and path.stat().st_size == one.size
        if not there or (verify and _file(path) != one):
            came = "damaged or of another length" if path.is_file() else "missing"
            raise _damaged(folder, f"{one.name} must be as raglab wrote it", came)
    # The folder names its kind, the key proves it.
    kind: Any = manifest.kind
    shards = [folder / one.name for one in manifest.files if one.name.startswith(_SHARD)]
    try:
        vectors = VectorShards(shards, manifest.rows, manifest.dim)
        dense = stored_index(folder / FAISS, vectors, manifest.n_chunks, kind)
        bm25 = Bm25Index.open(folder, manifest.n_chunks)
    except (ValueError, OSError) as error:
        raise _damaged(folder, "its files must be those of an index", str(error).rstrip(".")) from None
    return LargeIndex(vectors, with_search(dense, manifest.search), bm25, manifest)


def drop_older(place: Path, kept: Path | None) -> None:
    """Delete the large indexes of a folder that was indexed anew, but for one, and the one that was made before it.

    Whoever read the folder's index.json before it changed may be about to open the earlier one. What is open already
    is mapped, and stays readable without a name. The manifest goes first: from then on there is no index, whatever
    stops the rest. A folder that another process is building is left alone.

    Args:
      kept: folder of the index that is asked from now on; None where that is no large one.
    """
    others = [one for one in place.glob("large-*") if one.is_dir() and one != kept]
    others.sort(key=_made_at)
    earlier = others[-1:] if others and _made_at(others[-1]) else []
    for folder in others[: len(others) - len(earlier)]:
        with suppress(OSError, InputError):
            with locked(folder / LOCK, wait_s=0.0):
                (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder)


def _made_at(folder: Path) -> int:
    """When a large index was finished, in nanoseconds; 0 where it is not."""
    manifest = folder / MANIFEST
    return manifest.stat().st_mtime_ns if manifest.is_file() else 0


_SHARD = "vectors-"
_WAIT_S = 24 * 3600.0


def _write_shards(folder: Path, size: LargeSize, encoded: Callable[[slice], NDArray[np.float32]]) -> list[_File]:
    """Embeddings as files of float16; those that stand there whole from an earlier build are kept."""
    done = _done(folder)
    shards: list[_File] = []
    starts = range(0, size.n_rows, size.rows)
    for number, start in enumerate(progress(starts, "embed", "shard")):
        path = folder / f"{_SHARD}{number:05d}.npy"
        known = done.get(path.name)
        if known is None or not path.is_file() or _file(path) != known:
            vectors = encoded(slice(start, min(start + size.rows, size.n_rows))).astype("<f2")
            with replacing(path) as partial, partial.open("xb") as file:
                np.save(file, vectors)
            known = _file(path)
        shards.append(known)
        # After every shard, so that a kill costs one.
        write_text(json.dumps([one.model_dump() for one in shards]) + "\n", folder / DONE)
    return shards


def _done(folder: Path) -> dict[str, _File]:
    """Shards of a build that was stopped, by name; none where their list cannot be read."""
    with suppress(ValueError, TypeError):
        if (folder / DONE).is_file():
            rows = read_json(folder / DONE, _MAX_BYTES)
            return {one.name: one for one in map(_File.model_validate, rows)}
    return {}


def _file(path: Path) -> _File:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return _File(name=path.name, size=path.stat().st_size, sha256=sha256)


def _manifest(folder: Path, key: str) -> IndexManifest:
    """Manifest of a folder, of the index that is asked for."""
    try:
        made = IndexManifest.model_validate(read_json(folder / MANIFEST, _MAX_BYTES))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _damaged(folder, "manifest.json must be as raglab wrote it", str(first["msg"])) from None
    if (made.version, made.key) != (_VERSION, key):
        raise _damaged(folder, f"it must be the index {key} of version {_VERSION}", f"{made.key}, {made.version}")
    return made


def _damaged(folder: Path, rule: str, came: str) -> InputError:
    return input_error(Where(str(folder)), rule, "delete the folder: it is made again from the corpus", came)
