"""Answers and retrievals kept on disk: the one file that knows the cache library."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raglab.retrieval.strategies import Found
from raglab.values import FLOAT_FIELDS, Hits

SIZE = 2**30  # bytes; the least recently stored go first


class Key(NamedTuple):
    """What an answer hangs on: policy_id and fingerprint name thresholds, patterns, documents and models."""

    policy_id: str
    fingerprint: str
    arm: str
    question: str
    documents: tuple[str, ...]

    def digest(self, *more: object) -> str:
        """SHA-256 over the key and what else the value hangs on."""
        text = json.dumps([*self._replace(documents=tuple(sorted(self.documents))), *more], ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def normalised(question: str) -> str:
    """A question without what tells no two apart: form of its characters and runs of blanks.

    Case stays: the encoder and the patterns may read it.

    Example:
      >>> normalised("  What is   the excess? ")
      'What is the excess?'
    """
    return " ".join(unicodedata.normalize("NFC", question).split())


class Caches:
    """The answer cache and the strategy cache of a folder, shared by processes; values are JSON, never pickles.

    answers: whole responses. strategies: the arm taken and what it retrieved, depth by depth.
    """

    __slots__ = ("answers", "strategies")

    def __init__(self, folder: str | Path) -> None:
        """Open both caches, making the folder on the way."""
        from diskcache import Cache, JSONDisk

        self.answers: Any = Cache(str(Path(folder) / "answers"), disk=JSONDisk, size_limit=SIZE)
        self.strategies: Any = Cache(str(Path(folder) / "strategies"), disk=JSONDisk, size_limit=SIZE)

    def clear(self) -> None:
        """Empty both."""
        self.answers.clear()
        self.strategies.clear()

    def close(self) -> None:
        """Let go of the files."""
        self.answers.close()
        self.strategies.close()


def packed(found: Sequence[Found]) -> list[dict[str, Any]]:
    """Depths of a retrieval as JSON holds them; floats keep every bit, NaN is null."""

    def plain(name: str, field: Any) -> Any:  # noqa: ANN401 - an array or a list
        values = field.ravel().tolist()
        return [None if value != value else value for value in values] if name in FLOAT_FIELDS else values  # noqa: PLR0124

    return [
        {"query": one.query, "hits": {name: plain(name, field) for name, field in one.hits._asdict().items()}}
        for one in found
    ]


def unpacked(rows: Sequence[Mapping[str, Any]]) -> list[Found]:
    """Depths of a retrieval from JSON; they took no time."""

    def field(name: str, values: Sequence[Any]) -> Any:  # noqa: ANN401 - an array
        if name in FLOAT_FIELDS:
            return np.array([np.nan if value is None else value for value in values], dtype=np.float64)[
                None, None, None
            ]
        whole = np.array(values, dtype=np.int32)
        return whole.reshape(1, 1, 1) if name == "n_reranked" else whole[None, None, None]

    return [
        Found(row["query"], Hits(**{name: field(name, row["hits"][name]) for name in Hits._fields}), {}) for row in rows
    ]
