"""Kinds of index (shore): which one a corpus gets, and what builds it.

Those on disk are of the room `scale` (S1.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from raglab.extension_points import extension
from raglab.retrieval.dense import Kind, StoredKind, stored_kind
from raglab.retrieval.indexes import Indexes, build_indexes

FLAT_UP_TO = 100_000  # chunks of which an exact index answers in about 16 ms
INDEX_MB = 1_000  # megabytes that a stored index may take where nobody says
STORED_KINDS = get_args(StoredKind)


def index_builder(kind: str) -> Callable[..., Indexes]:
    """What makes the indexes of a corpus in a kind, called as `build_indexes` is.

    Raises:
      MissingExtensionError: a kind on disk, and the room `scale` is not installed.
    """
    if kind not in STORED_KINDS:
        return build_indexes
    builder: Callable[..., Indexes] = extension(
        f"index.{kind}", "scale", f"an index of kind {kind}"
    )
    return builder


def check_kind(kind: str, memory_mb: float) -> None:
    """Stop at a kind of index or a budget that is none.

    Raises:
      ValueError: an unknown kind, or a budget that is no number above 0.
    """
    known = ("auto", *get_args(Kind), *STORED_KINDS)
    if kind not in known:
        msg = (
            f"index must be one of {', '.join(known)}, got {kind!r}; auto is exact up to "
            f"{FLAT_UP_TO:,} chunks."
        )
        raise ValueError(msg)
    if not 0.0 < memory_mb < float("inf"):
        msg = (
            f"index_mb must be above 0, got {memory_mb}; it is megabytes, {INDEX_MB} where not "
            "given."
        )
        raise ValueError(msg)


def storage_error(kind: str, n_pictures: int) -> ValueError:
    """Error of an index on disk where there can be none.

    For its pictures, else for want of a cache.
    """
    if n_pictures:
        msg = (
            f"an index of kind {kind} holds texts alone, got {n_pictures} pictures; take "
            "index='flat' or 'auto'."
        )
        return ValueError(msg)
    rule = f"an index of kind {kind} is kept beside the cache of embeddings"
    msg = f"{rule}, got none; give a cache, or take index='auto', which is exact without one."
    return ValueError(msg)


def sized_kind(
    kind: str,
    n: int,
    dim: Callable[[], int],
    memory_mb: float,
    n_pictures: Callable[[], int] = lambda: 0,
    *,
    cached: bool = True,
) -> Any:  # noqa: ANN401 - a literal
    """Kind of index that n chunks get: what is named.

    Of `auto` the exact one up to 100,000, then what fits the memory.

    Args:
      dim: dimensions of the encoder, asked for past that number.
      memory_mb: see `raglab.retrieval.dense.stored_kind`.
      n_pictures: chunks that are embedded as pictures, asked for where the index would be on disk.
      cached: whether embeddings are kept in a cache. An index on disk holds texts alone and stands
        beside a cache: else `auto` is exact.

    Raises:
      ValueError: no index fits the memory, or a kind on disk is named where there can be none.

    Example:
      >>> (
      ...     sized_kind("auto", 100_000, lambda: 384, 1_000),
      ...     sized_kind("auto", 1_000_000, lambda: 384, 1_000),
      ... )
      ('flat', 'hnsw-sq8')
      >>> sized_kind("auto", 1_000_000, lambda: 384, 500)
      'ivfpq'
    """
    if kind in STORED_KINDS and ((count := n_pictures()) or not cached):
        raise storage_error(kind, count)
    if kind != "auto":
        return kind
    exact = n <= FLAT_UP_TO or not cached or n_pictures()
    return "flat" if exact else stored_kind(n, dim(), memory_mb)
