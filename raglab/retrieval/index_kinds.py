"""Kinds of index (shore): which one a corpus gets; that on disk is of the room `scale` (S1.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from raglab.retrieval.dense import Kind

FLAT_UP_TO = 100_000  # chunks of which an exact index in memory answers in about 16 ms
STORED = "sqfp16"  # as FAISS names it: vectors in float16, every one of them compared


def check_kind(kind: str) -> None:
    """Stop at a kind of index that is none.

    Raises:
      ValueError: an unknown kind.
    """
    known = ("auto", *get_args(Kind), STORED)
    if kind not in known:
        msg = (
            f"index must be one of {', '.join(known)}, got {kind!r}; auto is in memory up to "
            f"{FLAT_UP_TO:,} chunks."
        )
        raise ValueError(msg)


def storage_error(n_pictures: int) -> ValueError:
    """Error of an index on disk where there can be none.

    For its pictures, else for want of a cache.
    """
    if n_pictures:
        msg = (
            f"an index of kind {STORED} holds texts alone, got {n_pictures} pictures; take "
            "index='flat' or 'auto'."
        )
        return ValueError(msg)
    rule = f"an index of kind {STORED} is kept beside the cache of embeddings"
    msg = f"{rule}, got none; give a cache, or take index='auto', which needs none."
    return ValueError(msg)


def sized_kind(
    kind: str, n: int, n_pictures: Callable[[], int] = lambda: 0, *, cached: bool = True
) -> Any:  # noqa: ANN401 - a literal
    """Kind of index that n chunks get: what is named; of `auto` that on disk above 100,000.

    Args:
      n_pictures: chunks that are embedded as pictures, asked for where the index would be on disk.
      cached: whether embeddings are kept in a cache. An index on disk holds texts alone and stands
        beside a cache: else `auto` is in memory.

    Raises:
      ValueError: a kind on disk is named where there can be none.

    Example:
      >>> sized_kind("auto", 100_000), sized_kind("auto", 100_001)
      ('flat', 'sqfp16')
    """
    if kind == STORED and ((count := n_pictures()) or not cached):
        raise storage_error(count)
    if kind != "auto":
        return kind
    return "flat" if n <= FLAT_UP_TO or not cached or n_pictures() else STORED
