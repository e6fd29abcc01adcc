"""Indexes of a large corpus on disk (shore): float16 shards, FAISS and BM25, memory-mapped.

Manifest with recall.

A folder beside the cache of embeddings, named by what it is made of: texts, encoder, kind and
parameters. Its manifest is written last and names every file with its SHA-256, so that a build that
was killed goes on at the shard where it stopped, and what was damaged is told and never searched.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raglab.extensions.scale.mapped_files import mapping_check
from raglab.extensions.scale.vector_shards import Remapped, VectorShards
from raglab.models.loaders import Tokens
from raglab.progress import progress
from raglab.retrieval.dense import (
    DenseIndex,
    EmbeddingCache,
    StoredKind,
    StoredSearch,
    TextEncoder,
    embed,
    index_parameters,
    stored_index,
    train_index,
    tuned_search,
    with_search,
    write_faiss,
)
from raglab.retrieval.index_kinds import storage_error
from raglab.retrieval.indexes import (
    ANCHOR,
    BM25_FILES,
    BM25_MAPPED,
    ArmIndex,
    Bm25Index,
    Indexes,
    PictureVectors,
    Signatures,
    check_texts,
    rows_of_corpus,
    write_bm25,
)
from raglab.store.blobs import CACHE_PATIENCE_S
from raglab.store.files import (
    InputError,
    Where,
    input_error,
    locked,
    make_folder,
    read_json,
    replacing,
    shown_value,
    write_text,
)
from raglab.words.canonical import canonical_json, digest
from raglab.words.tokeniser import is_plain

ROWS_OF_SHARD = 65_536
MOST_ROWS = 2**31 - 1  # positions are of 32 bits
MANIFEST, DONE, FAISS, LOCK = "manifest.json", "shards.json", "dense.faiss", "lock"
# questions that the recall is measured on: first words of seeded passages
ASKED, WORDS_ASKED, SEED = 200, 12, 0
TOKENS_KEPT = 512  # passages whose token embeddings stay in memory, of about 60 kB each
# what a kill leaves of a file, or of a folder that was to go
LEFTOVER = re.compile(r"\.[0-9a-f]{16}\.tmp")
_NAME = re.compile(r"large-[0-9a-f]{16}")
_VERSION = 2
_MOST_SHARDS = 100_000
_MAX_BYTES = 2**24


class _File(BaseModel):
    """A file of the folder."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str = Field(pattern=r"^[a-z0-9.-]+$")
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class IndexManifest(BaseModel):
    """Content of manifest.json.

    n_chunks: that are searched. n_rows: of all shards: the chunks, rows of tables, beginnings of
    long texts. rows: of a shard. parameters: that the index was built with. width, widen: how it is
    searched, see `StoredSearch`. recall_at_50: share of the exact 50 nearest that it finds, by
    questions asked. files: with their hashes, shards first. digest: SHA-256 of the canonical JSON
    of all other fields.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: int
    key: str
    kind: StoredKind
    n_chunks: int = Field(ge=1, le=MOST_ROWS)
    n_rows: int = Field(ge=1, le=MOST_ROWS)
    dim: int = Field(ge=1, le=2**16)
    rows: int = Field(ge=1, le=MOST_ROWS)
    parameters: dict[str, Any]
    width: int = Field(ge=1, le=2**16)
    widen: int = Field(ge=1, le=2**8)
    recall_at_50: float = Field(ge=0.0, le=1.0)
    asked: int = Field(ge=1, le=MOST_ROWS)
    files: list[_File]
    digest: str

    @property
    def n_shards(self) -> int:
        """Shards that so many rows take."""
        return -(-self.n_rows // self.rows)

    @property
    def shards(self) -> list[str]:
        """Names of the shards."""
        return [_shard(number) for number in range(self.n_shards)]

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


class StoredTokens:
    """Token embeddings by text, from a cache if asked for, and encoded where it has none.

    A passage has 60 kB of them: of a million they would fill 60 GB, so they are kept of passages
    that were reranked, and of the last of those in memory too, as a cache in a folder for reading
    alone keeps none.
    """

    __slots__ = ("_read",)

    def __init__(self, encoder: TextEncoder, cache: EmbeddingCache | None) -> None:
        held = None if cache is None else cache.waiting(CACHE_PATIENCE_S)

        @lru_cache(maxsize=TOKENS_KEPT)
        def read(text: str) -> Tokens:
            return (embed(encoder, [text], held, tokens=True).tokens or [])[0]

        self._read = read

    def __getitem__(self, text: str, /) -> Tokens:
        return self._read(text)


class LargeSize(NamedTuple):
    """Sizes of a large index: chunks that are searched; all rows of its shards; dimensions.

    Rows: of a shard.
    """

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
    arm_indexes: Mapping[str, ArmIndex] | None = None,
    pictures: PictureVectors | None = None,
) -> Indexes:
    """Indexes as `build_indexes` makes them, from a folder beside the cache, made if missing.

    Raises:
      ValueError: no cache, beside which the folder stands; pictures; no text with a word; a recall
        that no search reaches; one signature place for each text must be given.
      InputError: a folder that cannot be written, or a damaged one.
    """
    # Where this cannot be, it is refused before anything is read: shards hold texts alone, beside a
    # cache.
    if pictures is not None or cache is None:
        raise storage_error(kind, 0 if pictures is None else len(pictures.at))
    n_chunks, _, long = rows_of_corpus(texts, signatures, strict_signatures, arm_indexes or {})
    check_texts(texts[:n_chunks])
    # The beginning of a long text is a row of its own, so that one set of shards has all
    # embeddings.
    rows = [*texts, *(texts[i][:ANCHOR] for i in long)]

    # Functions, not arrays: an index that is there already is opened without the encoder.
    def encoded(some: slice) -> NDArray[np.float32]:
        return embed(encoder, rows[some], cache).vectors

    def questions() -> NDArray[np.float32]:
        sample = sampled_questions(texts[:n_chunks])
        return np.concatenate([encoder.sentences([text], query=True) for text in sample])

    key = index_key(rows, encoder.name, kind, n_chunks)
    folder = cache.path.parent / f"large-{key}"
    size = LargeSize(n_chunks, len(rows), encoder.dim)
    if not (folder / MANIFEST).is_file():
        build_large(folder, texts[:n_chunks], size, encoded, questions, kind=kind, key=key)
    index = open_large(folder, key)
    # The anchor of a long text is the row of its beginning, of a short text its own row.
    place = np.arange(len(texts))
    place[long] = len(texts) + np.arange(len(long))
    return Indexes(
        texts=tuple(texts),
        vectors=index.vectors,
        tokens=StoredTokens(encoder, cache) if tokens else {},
        anchors=Remapped(index.vectors, place),
        dense=index.dense,
        bm25=index.bm25,
        signatures=signatures,
        strict_signatures=strict_signatures,
        arm_indexes=arm_indexes or {},
        folder=folder,
    )


def index_key(rows: Sequence[str], encoder: str, kind: StoredKind, n_chunks: int) -> str:
    """Sixteen digits that name a large index by what it is made of."""
    texts = hashlib.sha256()
    for text in rows:
        texts.update(digest(text).encode())
    stated = [
        _VERSION,
        encoder,
        kind,
        n_chunks,
        len(rows),
        texts.hexdigest(),
        index_parameters(kind),
    ]
    if any(map(has_new_words, rows)):
        # an earlier keyword index holds other words of such rows, which no question finds
        stated.append("words-2")
    return digest(canonical_json(stated, ensure_ascii=True), 16)


def has_new_words(text: str) -> bool:
    """Whether rule S1.6 splits a text into other words than keyword indexes before it did.

    Example:
      >>> has_new_words("L'été"), has_new_words("水漏れ"), has_new_words("5 µm")
      (False, True, True)
    """
    return not text.isascii() and (text.lower() != text.casefold() or not is_plain(text))


def sampled_questions(texts: Sequence[str]) -> list[str]:
    """Queries that measure the recall: first words of seeded passages, in their order.

    None of an empty passage.

    Example:
      >>> sampled_questions(["", "Fences are not covered.", " "])
      ['Fences are not covered.']
    """
    filled = [i for i, text in enumerate(texts) if text.strip()]
    at = np.sort(np.random.default_rng(SEED).permutation(len(filled))[:ASKED])
    return [" ".join(texts[filled[place]].split()[:WORDS_ASKED]) for place in at.tolist()]


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

    One process builds, others wait for it. Whatever stops it, there is no manifest, and so no
    index, until all stands.

    Args:
      texts: the chunks.
      encoded: unit vectors of some rows.
      questions: unit vectors that the recall is measured on, [Q, dim].
      key: see `index_key`.

    Raises:
      ValueError: a recall that no search reaches.
      InputError: the folder cannot be written.
    """
    with _held(folder), _written(folder):
        if (folder / MANIFEST).is_file():  # another process made it meanwhile
            return _manifest(folder, key)
        # Shards first: they take nearly all of the time, and a build that was killed goes on from
        # them.
        shards = _write_shards(folder, size, encoded)
        vectors = VectorShards([folder / shard.name for shard in shards], size.rows, size.dim)
        with replacing(folder / FAISS) as path:
            write_faiss(train_index(vectors, size.n_chunks, kind), path)
        # Opened from disk again: the recall is to be that of the files that answer.
        dense = stored_index(
            folder / FAISS, vectors, size.n_chunks, kind, check=mapping_check([folder / FAISS])
        )
        _, search = tuned_search(dense, questions())
        write_bm25(texts, lambda name: replacing(folder / name))
        files = [*shards, *(_file(folder / name) for name in (FAISS, *BM25_FILES))]
        stated: dict[str, Any] = {
            "version": _VERSION,
            "key": key,
            "kind": kind,
            **size._asdict(),
            "parameters": index_parameters(kind),
            "width": search.width,
            "widen": search.widen,
            "recall_at_50": search.recall,
            "asked": search.n_queries,
            "files": [file.model_dump() for file in files],
        }
        stated["digest"] = manifest_digest(stated)
        # The manifest makes it an index; only with it may the list go from which a killed build
        # goes on.
        write_text(json.dumps(stated, indent=2) + "\n", folder / MANIFEST)
        (folder / DONE).unlink(missing_ok=True)
    return IndexManifest.model_validate(stated)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """The lock of a folder that is built, made with the folder.

    It is taken again where `drop_older` took the folder away while this process waited for it: the
    lock that it got then stands at that path no more.
    """
    path = folder / LOCK
    while True:
        make_folder(folder)
        with ExitStack() as held:
            try:
                # Open from before, so that its number is no other file's: if it is at the path
                # still, it was locked.
                file = held.enter_context(path.open("ab"))
                held.enter_context(locked(path, wait_s=_WAIT_S))
                same = os.path.samestat(os.fstat(file.fileno()), path.stat())
            except FileNotFoundError:
                continue
            except InputError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    continue
                raise
            except OSError as error:
                raise _unwritable(folder, error) from error
            if same:
                yield
                return


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """A block that writes a folder, whose leftovers of a build that was killed go before it.

    Raises:
      InputError: whatever the system refuses.
    """
    try:
        for path in folder.iterdir():
            if LEFTOVER.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                path.unlink()
        yield
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> InputError:
    rule, remedy = (
        "the folder of an index must be writable",
        "make room, give the right, or choose another",
    )
    return input_error(Where(str(folder)), rule, remedy, error.strerror or str(error))


def open_large(folder: Path, key: str) -> LargeIndex:
    """Large index of a folder, memory-mapped.

    Every file is read once, about a second a gigabyte, for its hash.

    Args:
      key: that it must have.

    Raises:
      InputError: a file that is missing, damaged or of another index.
    """
    manifest = _manifest(folder, key)
    hashed = mapping_check(
        [folder / file.name for file in manifest.files if (folder / file.name).is_file()]
    )
    for file in progress(manifest.files, "check", "file"):
        path = folder / file.name
        there = path.is_file()
        if not there or _file(path) != file:
            fault = "damaged or of another length" if there else "missing"
            raise _damaged(folder, f"{file.name} must be as raglab wrote it", fault)
    try:
        vectors = VectorShards(
            [folder / name for name in manifest.shards], manifest.rows, manifest.dim
        )
        if len(vectors) != manifest.n_rows:
            raise _damaged(
                folder, f"its shards must have {manifest.n_rows} rows", str(len(vectors))
            )
        vectors.check()
        dense = stored_index(
            folder / FAISS,
            vectors,
            manifest.n_chunks,
            manifest.kind,
            check=mapping_check([folder / FAISS]),
        )
        bm25 = Bm25Index.open(
            folder, manifest.n_chunks, check=mapping_check([folder / name for name in BM25_MAPPED])
        )
        hashed()  # what was changed after its hash was read is not what is mapped
    except InputError:
        raise
    except (ValueError, OSError) as error:
        raise _damaged(
            folder, "its files must be those of an index", str(error).rstrip(".")
        ) from None
    return LargeIndex(vectors, with_search(dense, manifest.search), bm25, manifest)


def drop_older(place: Path, current: Path | None) -> None:
    """Delete old large indexes of a folder; the current one and the one before it stay.

    Whoever read the folder's index.json before it changed may be about to open the earlier one.
    What is open already is mapped, and stays readable without a name. An index goes under its lock,
    its manifest first, and by one renaming, so that a build that begins meanwhile begins in a
    folder of its own. A folder that another process is building is left alone, and so is all that
    raglab did not make: what has another name, a link, a folder without a file of an index.

    Args:
      current: folder of the index that is asked from now on; None where that is no large one.
    """
    indexes = [
        folder
        for folder in place.iterdir()
        if _NAME.fullmatch(folder.name) and folder != current and _is_index(folder)
    ]
    indexes.sort(key=_finished_at)
    stays = indexes[-1:] if indexes and _finished_at(indexes[-1]) else []
    for folder in indexes[: len(indexes) - len(stays)]:
        with suppress(OSError, InputError), locked(folder / LOCK, wait_s=0.0):
            (folder / MANIFEST).unlink(missing_ok=True)
            folder.rename(place / f".{secrets.token_hex(8)}.tmp")
    # Those that were renamed now, and by a process that was killed before it deleted them.
    for gone in place.iterdir():
        if LEFTOVER.fullmatch(gone.name) and _is_index(gone):
            with suppress(OSError):
                # all else before the lock, by which the next one knows it
                for path in gone.iterdir():
                    if path.name != LOCK and path.is_file():
                        path.unlink()
                shutil.rmtree(gone)


def _is_index(folder: Path) -> bool:
    """Whether a folder, not a link, holds a file all large indexes have from their start or end."""
    there = folder.is_dir() and not folder.is_symlink()
    return there and any((folder / name).is_file() for name in (MANIFEST, DONE, LOCK))


def _finished_at(folder: Path) -> int:
    """When a large index was finished, in nanoseconds; 0 where it is not."""
    manifest = folder / MANIFEST
    return manifest.stat().st_mtime_ns if manifest.is_file() else 0


_SHARD = "vectors-"
_WAIT_S = 24 * 3600.0


def _write_shards(
    folder: Path, size: LargeSize, encoded: Callable[[slice], NDArray[np.float32]]
) -> list[_File]:
    """Write embeddings as files of float16; complete files of an earlier build are reused."""
    done = _done(folder, size.rows)
    starts = range(0, size.n_rows, size.rows)
    names = [_shard(number) for number in range(len(starts))]
    for path in folder.glob(f"{_SHARD}*.npy"):  # of a build with shards of another length
        if path.name not in done or path.name not in names:
            path.unlink()
    shards: list[_File] = []
    for name, start in zip(names, progress(starts, "embed", "shard"), strict=True):
        path = folder / name
        known = done.get(name)
        if known is None or not path.is_file() or _file(path) != known:
            vectors = encoded(slice(start, min(start + size.rows, size.n_rows))).astype("<f2")
            with replacing(path) as partial, partial.open("xb") as file:
                np.save(file, vectors)
            known = _file(path)
        shards.append(known)
        # After every shard, so that a kill costs one.
        stated = {"rows": size.rows, "files": [shard.model_dump() for shard in shards]}
        write_text(json.dumps(stated) + "\n", folder / DONE)
    return shards


def _shard(number: int) -> str:
    return f"{_SHARD}{number:05d}.npy"


def _done(folder: Path, rows: int) -> dict[str, _File]:
    """Shards of a build that was stopped, by name.

    None where their list cannot be read, or of another length.
    """
    with suppress(ValueError, TypeError, KeyError):
        if (folder / DONE).is_file():
            stated = read_json(folder / DONE, _MAX_BYTES)
            if stated["rows"] == rows:
                return {shard.name: shard for shard in map(_File.model_validate, stated["files"])}
    return {}


def _file(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return _File(name=path.name, size=path.stat().st_size, sha256=sha256)
    except OSError as error:
        reason = error.strerror or str(error)
        raise input_error(
            Where(str(path)), "the file must be readable", "check path and rights", reason
        ) from error


def manifest_digest(stated: Mapping[str, Any]) -> str:
    """SHA-256 of all fields of a manifest but the digest itself."""
    fields = {name: value for name, value in stated.items() if name != "digest"}
    return digest(canonical_json(fields, ensure_ascii=True))


def _manifest(folder: Path, key: str) -> IndexManifest:
    """Manifest of a folder, of the index that is asked for, none of its fields altered."""
    stated = read_json(folder / MANIFEST, _MAX_BYTES)
    if not isinstance(stated, dict):
        raise _damaged(folder, "manifest.json must be an object", shown_value(stated))
    if (stated.get("version"), stated.get("key")) != (_VERSION, key):
        value = f"{shown_value(stated.get('key'))}, {shown_value(stated.get('version'))}"
        raise _damaged(folder, f"it must be the index {key} of version {_VERSION}", value)
    try:
        manifest = IndexManifest.model_validate(stated)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _damaged(
            folder, "manifest.json must be as raglab wrote it", str(first["msg"])
        ) from None
    if manifest_digest(stated) != manifest.digest:
        raise _damaged(
            folder, "manifest.json must be as raglab wrote it", "fields that do not fit its digest"
        )
    if manifest.n_chunks > manifest.n_rows or manifest.n_shards > _MOST_SHARDS:
        rule = f"manifest.json must count chunks among its rows, in at most {_MOST_SHARDS} shards"
        raise _damaged(
            folder, rule, f"{manifest.n_chunks} of {manifest.n_rows} in {manifest.n_shards}"
        )
    count, names = manifest.n_shards + 1 + len(BM25_FILES), [file.name for file in manifest.files]
    if len(names) != count or names != [*manifest.shards, FAISS, *BM25_FILES]:
        rule = f"manifest.json must name the files of {manifest.n_rows} rows, {count} of them"
        raise _damaged(folder, rule, shown_value(", ".join(names)))
    if manifest.parameters != index_parameters(manifest.kind):
        raise _damaged(
            folder,
            "it must be built with the parameters of its kind",
            shown_value(manifest.parameters),
        )
    return manifest


def _damaged(folder: Path, rule: str, value: str) -> InputError:
    return input_error(
        Where(str(folder)), rule, "delete the folder: it is made again from the corpus", value
    )
