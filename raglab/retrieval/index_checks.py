"""Checks of keyword indexes that come from files (shore): all numbers, before any search.

A digest tells damage, not whoever computes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1 << 22  # numbers looked at together


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
