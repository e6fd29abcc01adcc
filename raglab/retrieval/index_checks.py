"""Checks of keyword indexes that come from files (shore): all numbers, before any search.

A digest tells damage, not whoever computes it again.
"""

from __future__ import annotations

import numpy as np

from raglab.values import AnyArray

_NUMBERS_AT_ONCE = 1 << 22  # numbers looked at together


def check_keyword_lists(
    list_scores: AnyArray, list_texts: AnyArray, list_ends: AnyArray, n_texts: int
) -> None:
    """Stop at lists of a keyword index that no texts have.

    Of another type, out of order, or with scores that are none.

    Args:
      list_scores: score of each text in each list, float32.
      list_texts: its position, ascending in a list, int32.
      list_ends: where each list begins, and the end of the last, int64.
      n_texts: texts of the index.

    Raises:
      ValueError: rule and remedy.
    """
    if not _are_lists(list_scores, list_texts, list_ends, n_texts):
        message = (
            f"lists of a keyword index must name texts from 0 to {n_texts - 1}, each once and in "
            "order, with finite scores of at least 0; make it again."
        )
        raise ValueError(message)


def _are_lists(
    list_scores: AnyArray, list_texts: AnyArray, list_ends: AnyArray, n_texts: int
) -> bool:
    array_types = [
        (list_array.dtype.str, list_array.ndim)
        for list_array in (list_scores, list_texts, list_ends)
    ]
    if array_types != [("<f4", 1), ("<i4", 1), ("<i8", 1)]:
        return False
    list_lengths = np.diff(list_ends)
    are_ends_ordered = len(list_ends) and list_ends[0] == 0 and (list_lengths >= 0).all()
    if not are_ends_ordered or not len(list_scores) == len(list_texts) == list_ends[-1]:
        return False
    is_list_start = np.zeros(len(list_texts), np.bool_)
    is_list_start[list_ends[:-1][list_lengths > 0]] = True
    # Each block begins with the last number of the one before, so that every step is looked at.
    for block_start in range(0, len(list_texts), _NUMBERS_AT_ONCE):
        block_slice = slice(max(0, block_start - 1), block_start + _NUMBERS_AT_ONCE)
        block_texts = list_texts[block_slice]
        block_scores = list_scores[block_slice]
        is_ascending = (np.diff(block_texts) > 0) | is_list_start[block_slice][1:]
        are_sound = (
            (block_texts >= 0)
            & (block_texts < n_texts)
            & (block_scores >= 0.0)
            & np.isfinite(block_scores)
        )
        if not (is_ascending.all() and are_sound.all()):
            return False
    return True
