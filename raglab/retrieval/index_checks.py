"""Checks of keyword indexes that come from files (shore): all numbers, before any search.

A digest tells damage, not whoever computes it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1 << 22  # numbers looked at together


def check_keyword_lists(
    data: NDArray[Any], texts: NDArray[Any], ends: NDArray[Any], n: int
) -> None:
    """Stop at lists of a keyword index that no texts have.

    Of another type, out of order, or with scores that are none.

    Args:
      data: score of each text in each list, float32.
      texts: its position, ascending in a list, int32.
      ends: where each list begins, and the end of the last, int64.
      n: texts of the index.

    Raises:
      ValueError: rule and remedy.
    """
    if not _are_lists(data, texts, ends, n):
        msg = (
            f"lists of a keyword index must name texts from 0 to {n - 1}, each once and in order, "
            "with finite scores of at least 0; make it again."
        )
        raise ValueError(msg)


def _are_lists(data: NDArray[Any], texts: NDArray[Any], ends: NDArray[Any], n: int) -> bool:
    types = [(array.dtype.str, array.ndim) for array in (data, texts, ends)]
    if types != [("<f4", 1), ("<i4", 1), ("<i8", 1)]:
        return False
    lengths = np.diff(ends)
    stand_in_order = len(ends) and ends[0] == 0 and (lengths >= 0).all()
    if not stand_in_order or not len(data) == len(texts) == ends[-1]:
        return False
    begins = np.zeros(len(texts), np.bool_)
    begins[ends[:-1][lengths > 0]] = True
    # Each block begins with the last number of the one before, so that every step is looked at.
    for start in range(0, len(texts), _AT_ONCE):
        block = slice(max(0, start - 1), start + _AT_ONCE)
        places, scores = texts[block], data[block]
        ascend = (np.diff(places) > 0) | begins[block][1:]
        are_sound = (places >= 0) & (places < n) & (scores >= 0.0) & np.isfinite(scores)
        if not (ascend.all() and are_sound.all()):
            return False
    return True
