"""Rank fusion (shore): reciprocal ranks of several lists in one score (S1.4)."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import numpy as np

from raglab.values import FloatArray, IntArray, WholeArray


def reciprocal_rank_fusion(
    ranked: Sequence[WholeArray],
    n_kept: int,
    rank_constant: int = 60,
    weights: Sequence[float] | None = None,
) -> tuple[FloatArray, IntArray]:
    """Fuse ranked lists into (s_hybrid, ids), each [Q, n], best first, ties by id.

    NaN and -1 where there are fewer.

    An id's score is the sum of `weight / (k + rank)` over the lists that hold it, ranks from 1,
    divided by what the first place in every list gives, in (0, 1], rounded to float32. Places that
    hold -1 count for nothing.

    Args:
      ranked: one array of ids [Q, any] a list, best first, at least one; -1 for no hit.
      n_kept: hits that are kept.
      rank_constant: how much the first places are flattened.
      weights: what each list counts, above 0; 1 each where not given.

    Raises:
      ValueError: an id twice in the same row of a list; fewer or more weights than lists.

    Source: Cormack, Clarke and Buettcher 2009, SIGIR; scale by rule S1.4.

    Example:
      >>> reciprocal_rank_fusion([np.array([[7, 3]]), np.array([[7, 5]])], n_kept=1)
      (array([[1.]]), array([[7]]))
    """
    list_weights = weights or [1.0] * len(ranked)
    n_queries = len(ranked[0])
    fused_scores = np.full((n_queries, n_kept), np.nan)
    fused_ids = np.full((n_queries, n_kept), -1, np.int64)
    for query_index in range(n_queries):
        gains_by_id: dict[int, list[float]] = {}
        for weight, ranking in zip(list_weights, ranked, strict=True):
            ranked_hits = [
                (rank, hit) for rank, hit in enumerate(ranking[query_index].tolist(), 1) if hit >= 0
            ]
            if len({hit for _, hit in ranked_hits}) < len(ranked_hits):
                message = "an id must occur once in a ranked list."
                raise ValueError(message)
            for rank, hit in ranked_hits:
                gains_by_id.setdefault(hit, []).append(weight / (rank_constant + rank))
        # A sum of floats depends on their order; an exact one does not, nor on that of the lists.
        top_score = fsum(weight / (rank_constant + 1) for weight in list_weights)
        id_scores = np.array([[fsum(id_gains) / top_score for id_gains in gains_by_id.values()]])
        listed_ids = np.array([list(gains_by_id)], dtype=np.int64)
        query_hits = rank_by_score(
            id_scores.astype(np.float32).astype(np.float64), listed_ids, n_kept
        )
        fused_scores[query_index], fused_ids[query_index] = query_hits[0][0], query_hits[1][0]
    return fused_scores, fused_ids


def rank_by_score(scores: FloatArray, ids: WholeArray, n_kept: int) -> tuple[FloatArray, IntArray]:
    """Sort rows by score descending, ties by id, NaN last.

    Cut or pad to n, with -1 where the score is NaN.
    """
    score_order = np.lexsort((ids, -scores), axis=-1)[:, :n_kept]
    best_scores = np.full((len(score_order), n_kept), np.nan)
    best_ids = np.full((len(score_order), n_kept), -1, np.int64)
    best_scores[:, : score_order.shape[1]] = np.take_along_axis(scores, score_order, -1)
    best_ids[:, : score_order.shape[1]] = np.take_along_axis(ids, score_order, -1)
    return best_scores, np.where(np.isnan(best_scores), -1, best_ids)
