"""Kinds of index (shore): which one a corpus gets; that on disk is of the room `scale` (S1.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from raglab.retrieval.dense import Kind

FLAT_UP_TO = 100_000  # chunks of which an exact index in memory answers in about 16 ms
STORED_KIND = "sqfp16"  # as FAISS names it: vectors in float16, every one of them compared


def check_kind(index_kind: str) -> None:
    """Stop at an unknown kind of index.

    Raises:
      ValueError: an unknown kind.
    """
    known_kinds = ("auto", *get_args(Kind), STORED_KIND)
    if index_kind not in known_kinds:
        message = f"index must be one of {', '.join(known_kinds)}, got {index_kind!r}."
        raise ValueError(message)


def sized_kind(
    index_kind: str,
    n_chunks: int,
    n_pictures: Callable[[], int] = lambda: 0,
    *,
    cached: bool = True,
) -> Any:  # noqa: ANN401 - a literal
    """Kind of index that n chunks get: what is named; of `auto` that on disk above 100,000.

    Args:
      n_pictures: chunks that are embedded as pictures, asked for where the index would be on disk.
      cached: whether embeddings are kept in a cache. An index on disk holds texts alone and needs
        a cache: else `auto` is in memory.

    Raises:
      ValueError: a kind on disk is named where there can be none.

    Example:
      >>> sized_kind("auto", 100_000), sized_kind("auto", 100_001)
      ('flat', 'sqfp16')
    """
    if index_kind == STORED_KIND and ((picture_count := n_pictures()) or not cached):
        message = (
            f"index={STORED_KIND!r} holds texts alone, beside a cache of embeddings, got "
            f"{f'{picture_count} pictures' if picture_count else 'no cache'}; take index='auto'."
        )
        raise ValueError(message)
    if index_kind != "auto":
        return index_kind
    return "flat" if n_chunks <= FLAT_UP_TO or not cached or n_pictures() else STORED_KIND
