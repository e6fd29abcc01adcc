"""Texts → embeddings, each text encoded once and for all: a cache by content in one SQLite file."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from raglab.models import Encoding, Tokens

CHUNK = 256
LOOKUP = 500
TIMEOUT = 60.0
SENTENCE, TOKENS = "sentence", "tokens"

SCHEMA = """
CREATE TABLE IF NOT EXISTS embeddings (
    key TEXT PRIMARY KEY, dtype TEXT NOT NULL, n_rows INTEGER NOT NULL, n_columns INTEGER NOT NULL, value BLOB NOT NULL
)
"""


class TextEncoder(Protocol):
    """What embedding asks of an encoder: its name, its width, its forward passes."""

    @property
    def name(self) -> str:
        """Stable identifier; part of every cache key."""

    @property
    def dim(self) -> int:
        """Width of its embeddings."""

    def sentences(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Sentence embeddings, [N, dim]."""

    def both(self, texts: Sequence[str]) -> Encoding:
        """Sentence and token embeddings from one forward pass."""


class Embedded(NamedTuple):
    """Embeddings of N texts in their order.

    vectors: [N, dim], L2-normalised. tokens: one [n_tokens, dim] a text, or None where not asked for.
    """

    vectors: NDArray[np.float32]
    tokens: list[Tokens] | None


@dataclass(frozen=True, slots=True)
class EmbeddingCache:
    """Embeddings by content, in one SQLite file that several processes may share.

    Every write is one transaction, so a process killed in the middle loses at most its last one.

    path: the file; its folder is made on the first write. behind: another cache, asked for what this one lacks; what it
    has is copied.
    """

    path: Path
    behind: EmbeddingCache | None = None

    def get(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Arrays of those keys that are in the cache."""
        found = self._own(keys)
        missing = [key for key in keys if key not in found]
        if self.behind is not None and missing:
            copied = self.behind.get(missing)
            self.put(copied)
            found |= copied
        return found

    def _own(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        if not self.path.exists():
            return {}
        found: dict[str, NDArray[Any]] = {}
        with self._open() as connection:
            for some in _chunks(keys, LOOKUP):
                marks = ",".join("?" * len(some))
                query = f"SELECT key, dtype, n_rows, n_columns, value FROM embeddings WHERE key IN ({marks})"  # noqa: S608
                for key, dtype, n_rows, n_columns, value in connection.execute(query, some):
                    found[key] = np.frombuffer(value, dtype=dtype).reshape(n_rows, n_columns)
        return found

    def put(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store arrays [rows, columns] in one transaction; a key that is there already keeps its array."""
        rows = [(key, array.dtype.str, *array.shape, array.tobytes()) for key, array in arrays.items()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?, ?, ?, ?)", rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open a connection of this process and thread alone, and close it."""
        with closing(sqlite3.connect(self.path, timeout=TIMEOUT)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(SCHEMA)
            yield connection


def default_cache() -> EmbeddingCache:
    """Return the user's cache: `embeddings.sqlite` in the folder RAGLAB_CACHE, or in ~/.cache/raglab."""
    folder = os.environ.get("RAGLAB_CACHE")
    return EmbeddingCache((Path(folder) if folder else Path.home() / ".cache" / "raglab") / "embeddings.sqlite")


def cache_key(encoder_name: str, kind: str, text: str) -> str:
    """SHA-256 of what an embedding depends on: encoder, kind (`sentence` or `tokens`) and text."""
    return hashlib.sha256(f"{encoder_name}\0{kind}\0{text}".encode()).hexdigest()


def embed(
    encoder: TextEncoder,
    texts: Sequence[str],
    cache: EmbeddingCache | None,
    *,
    tokens: bool = False,
    progress: bool = False,
) -> Embedded:
    """Embeddings of texts, from the cache where they are there.

    Each distinct text is encoded once. What is encoded goes into the cache a few hundred texts at a time, so that a
    run that was killed goes on where it stopped.

    Args:
      encoder: what encodes the rest.
      texts: N texts; the same text may occur several times.
      cache: None encodes everything and keeps nothing.
      tokens: whether token embeddings are wanted too.
      progress: whether a bar counts the texts that are encoded.
    """
    distinct = list(dict.fromkeys(texts))
    vectors = _cached(encoder.name, SENTENCE, distinct, cache)
    by_token = _cached(encoder.name, TOKENS, distinct, cache) if tokens else {}
    missing = [text for text in distinct if text not in vectors or (tokens and text not in by_token)]
    missing.sort(key=lambda text: (len(text), text))
    with tqdm(total=len(missing), desc="embed", unit="text", disable=not progress) as bar:
        for some in _chunks(missing, CHUNK):
            new_vectors, new_tokens = _encoded(encoder, some, tokens=tokens)
            if cache is not None:
                cache.put(_keyed(encoder.name, SENTENCE, new_vectors) | _keyed(encoder.name, TOKENS, new_tokens))
            for known, new in ((vectors, new_vectors), (by_token, new_tokens)):
                known.update((text, array) for text, array in new.items() if text not in known)
            bar.update(len(some))
    stacked = np.concatenate([vectors[text] for text in texts]) if texts else np.empty((0, encoder.dim), np.float32)
    return Embedded(stacked, [by_token[text] for text in texts] if tokens else None)


def _encoded(
    encoder: TextEncoder, texts: Sequence[str], *, tokens: bool
) -> tuple[dict[str, NDArray[np.float32]], dict[str, Tokens]]:
    """Sentence embeddings [1, dim] by text, and token embeddings by text where wanted."""
    if not tokens:
        return dict(zip(texts, encoder.sentences(texts)[:, None, :], strict=True)), {}
    both = encoder.both(texts)
    return dict(zip(texts, both.sentences[:, None, :], strict=True)), dict(zip(texts, both.tokens, strict=True))


def _cached(name: str, kind: str, texts: Sequence[str], cache: EmbeddingCache | None) -> dict[str, NDArray[Any]]:
    """Arrays by text, of those texts that are in the cache."""
    if cache is None:
        return {}
    text_of = {cache_key(name, kind, text): text for text in texts}
    return {text_of[key]: array for key, array in cache.get(list(text_of)).items()}


def _keyed(name: str, kind: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays by cache key instead of by text."""
    return {cache_key(name, kind, text): array for text, array in arrays.items()}


def _chunks(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    """Slices of `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))
