"""Rank fusion (shore): reciprocal ranks of several lists in one score (S1.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Values = NDArray[np.float64]


def reciprocal_rank_fusion(
    ranked: Sequence[NDArray[np.integer]],
    n: int,
    k: int = 60,
    weights: Sequence[float] | None = None,
) -> tuple[Values, Ids]:
    """Fuse ranked lists into (s_hybrid, ids), each [Q, n], best first, ties by id.

    NaN and -1 where there are fewer.

    An id's score is the sum of `weight / (k + rank)` over the lists that hold it, ranks from 1,
    divided by what the first place in every list gives, in (0, 1], rounded to float32. Places that
    hold -1 count for nothing.

    Args:
      ranked: one array of ids [Q, any] a list, best first; -1 where there is no hit.
      n: hits that are kept.
      k: how much the first places are flattened.
      weights: what each list counts, above 0; 1 each where not given.

    Raises:
      ValueError: at least one list; no id twice in the same row of a list; a weight that is not
        above 0.

    Source: Cormack, Clarke and Buettcher 2009, SIGIR; scale by rule S1.4.

    Example:
      >>> reciprocal_rank_fusion([np.array([[7, 3]]), np.array([[7, 5]])], n=1)
      (array([[1.]]), array([[7]]))
    """
    if not ranked:
        msg = "fusion needs at least one ranked list, got none; pass the ids of each retriever."
        raise ValueError(msg)
    each = np.ones(len(ranked)) if weights is None else np.asarray(weights, dtype=np.float64)
    if each.shape != (len(ranked),) or not (np.isfinite(each) & (each > 0.0)).all():
        msg = (
            f"weights must be {len(ranked)} numbers above 0, one a list, got {weights}; leave a "
            "list out instead."
        )
        raise ValueError(msg)
    ids = np.concatenate(ranked, axis=1).astype(np.int64)
    gain = np.concatenate(
        [
            w / (k + np.arange(1, ranking.shape[1] + 1))
            for w, ranking in zip(each, ranked, strict=True)
        ]
    )
    gain = np.where(ids >= 0, gain, 0.0)
    order = np.lexsort((-gain, ids), axis=-1)
    ids, gain = np.take_along_axis(ids, order, -1), np.take_along_axis(gain, order, -1)
    total, first = _sum_runs(ids, gain, len(ranked))
    firsts = np.sort(each)[None, ::-1] / (k + 1)
    top = _sum_runs(np.zeros((1, len(ranked)), np.int64), firsts, len(ranked))[0]
    score = (total / top[0, 0]).astype(np.float32).astype(np.float64)
    score = np.where(first & (ids >= 0), score, np.nan)
    return rank_by_score(score, ids, n)


def rank_by_score(score: Values, ids: NDArray[np.integer], n: int) -> tuple[Values, Ids]:
    """Sort rows by score descending, ties by id, NaN last.

    Cut or pad to n, with -1 where the score is NaN.
    """
    order = np.lexsort((ids, -score), axis=-1)[:, :n]
    pad = ((0, 0), (0, n - order.shape[1]))
    best = np.pad(np.take_along_axis(score, order, -1), pad, constant_values=np.nan)
    best_ids = np.pad(np.take_along_axis(ids, order, -1).astype(np.int64), pad, constant_values=-1)
    return best, np.where(np.isnan(best), -1, best_ids)


def _sum_runs(ids: Ids, weights: Values, longest: int) -> tuple[Values, NDArray[np.bool_]]:
    """Sum the weights of each run of equal ids at its first place; and where those places are.

    Weights come in descending order inside a run, so a sum does not depend on which list gave which
    weight.
    """
    total = weights.copy()
    for ahead in range(1, longest):
        same = ids[:, ahead:] == ids[:, :-ahead]
        total[:, :-ahead] += np.where(same, weights[:, ahead:], 0.0)
    if np.any((ids[:, longest:] == ids[:, :-longest]) & (ids[:, longest:] >= 0)):
        msg = (
            f"an id must occur once in a ranked list, got one {longest + 1} times in {longest}; "
            "drop its repeats."
        )
        raise ValueError(msg)
    first = np.ones(ids.shape, np.bool_)
    first[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return total, first
