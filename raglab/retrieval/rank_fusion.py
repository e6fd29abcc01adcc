"""Rank fusion (shore): reciprocal ranks of several lists in one score (S1.4)."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

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
      ranked: one array of ids [Q, any] a list, best first, at least one; -1 where there is no hit.
      n: hits that are kept.
      k: how much the first places are flattened.
      weights: what each list counts, above 0; 1 each where not given.

    Raises:
      ValueError: an id twice in the same row of a list; fewer or more weights than lists.

    Source: Cormack, Clarke and Buettcher 2009, SIGIR; scale by rule S1.4.

    Example:
      >>> reciprocal_rank_fusion([np.array([[7, 3]]), np.array([[7, 5]])], n=1)
      (array([[1.]]), array([[7]]))
    """
    each = weights or [1.0] * len(ranked)
    n_queries = len(ranked[0])
    score, best = np.full((n_queries, n), np.nan), np.full((n_queries, n), -1, np.int64)
    for query in range(n_queries):
        gains: dict[int, list[float]] = {}
        for weight, ranking in zip(each, ranked, strict=True):
            hits = [(rank, hit) for rank, hit in enumerate(ranking[query].tolist(), 1) if hit >= 0]
            if len({hit for _, hit in hits}) < len(hits):
                msg = "an id must occur once in a ranked list."
                raise ValueError(msg)
            for rank, hit in hits:
                gains.setdefault(hit, []).append(weight / (k + rank))
        # A sum of floats depends on their order; an exact one does not, nor on that of the lists.
        top = fsum(weight / (k + 1) for weight in each)
        total = np.array([[fsum(terms) / top for terms in gains.values()]])
        ids = np.array([list(gains)], dtype=np.int64)
        fused = rank_by_score(total.astype(np.float32).astype(np.float64), ids, n)
        score[query], best[query] = fused[0][0], fused[1][0]
    return score, best


def rank_by_score(score: Values, ids: NDArray[np.integer], n: int) -> tuple[Values, Ids]:
    """Sort rows by score descending, ties by id, NaN last.

    Cut or pad to n, with -1 where the score is NaN.
    """
    order = np.lexsort((ids, -score), axis=-1)[:, :n]
    best, best_ids = np.full((len(order), n), np.nan), np.full((len(order), n), -1, np.int64)
    best[:, : order.shape[1]] = np.take_along_axis(score, order, -1)
    best_ids[:, : order.shape[1]] = np.take_along_axis(ids, order, -1)
    return best, np.where(np.isnan(best), -1, best_ids)
