"""Reward components of every arm of a trace: what an unsupervised reward sees of a question, next to what was right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raglab.decisions import Decisions
from raglab.policy import Policy
from raglab.replay import decide
from raglab.reward import consistency_of, diversity_of, margin_of
from raglab.values import Status, Trace

if TYPE_CHECKING:
    import pandas as pd

BUDGET_MS = 8000.0


def components(trace: Trace, policy: Policy, *, budget_ms: float = BUDGET_MS) -> pd.DataFrame:
    """Reward components and outcome of every case under every arm, at the depth where the policy decided.

    `cache_hit` is 0 throughout: a trace retrieves once and caches nothing. The components do not depend on whether the
    gates answered or refused, only on what was retrieved.

    Args:
      trace: with the embeddings of its chunks and its latencies, as `build_trace` makes it.
      budget_ms: of a question; `latency_ratio` is in units of it.

    Returns: a row a case and arm, cases outside, arms inside: `case_id`, `split`, `arm`, `depth`, `margin`,
      `diversity`, `latency_ratio`, `cache_hit`, `consistency`, `ms`, `status`, `right` (the contract of rule S6.3).

    Raises:
      ValueError: the trace lacks embeddings or latencies, or the budget is not above 0.

    Source: rules S1.3, S4.3.
    """
    import pandas as pd

    if not budget_ms > 0.0:
        msg = f"budget_ms must be above 0, got {budget_ms:g}; the source's is 8000."
        raise ValueError(msg)
    parts = []
    for arm in trace.arms:
        said = decide(trace, policy, arm)
        ms = spent(trace, said, arm)
        seen = measures(trace, said, arm)
        parts.append(
            pd.DataFrame(
                {
                    "row": np.arange(len(trace)),
                    "case_id": [case.id for case in trace.cases],
                    "split": [case.split for case in trace.cases],
                    "arm": arm,
                    "depth": said.outcome.depth,
                    "margin": seen[:, 0],
                    "diversity": seen[:, 1],
                    "latency_ratio": ms / budget_ms,
                    "cache_hit": 0.0,
                    "consistency": seen[:, 2],
                    "ms": ms,
                    "status": [Status(int(code)).name for code in said.status],
                    "right": said.right,
                }
            )
        )
    table = pd.concat(parts).sort_values("row", kind="stable", ignore_index=True)
    return table.drop(columns="row")


def measures(trace: Trace, said: Decisions, arm: str) -> NDArray[np.float64]:
    """Margin, diversity and consistency of one arm at the depth that decided, [Q, 3].

    Margin is between the two best scores of all hits that were reranked; diversity is of the first `final_k` hits in
    the arm's order; consistency compares the fused order with the reranked one over the hits that were reranked.

    Raises:
      ValueError: the trace lacks the embeddings of its chunks.

    Source: rule S4.3.
    """
    if trace.vectors is None:
        msg = "reward components need the embeddings of the chunks, this trace has none; build it again."
        raise ValueError(msg)
    cases, number = np.arange(len(trace)), trace.arm(arm)
    hits = type(trace.hits)(*[field[cases, number, said.outcome.depth] for field in trace.hits])
    order = np.argsort(np.where(hits.rank >= 0, hits.rank, np.iinfo(np.int32).max), axis=1, kind="stable")
    place = np.arange(order.shape[1])
    by_rank = (hits.chunk, hits.s_hybrid, hits.s_rerank)
    chunk, fused, score = (np.take_along_axis(field, order, axis=1) for field in by_rank)
    there: NDArray[np.bool_] = np.asarray(chunk) >= 0
    none = hits.n_reranked[:, None] == 0  # then margin and consistency are missing
    reranked = there & (none | (place < hits.n_reranked[:, None]))
    best = there & (place < said.policy.chosen.final_k)
    k = int(best.sum(axis=1).max(initial=0))
    second = np.where(none, np.nan, -1.0 * place)
    return np.stack(
        [
            margin_of(score, reranked),
            diversity_of(trace.vectors[chunk[:, :k]], best[:, :k]),
            consistency_of(fused, np.broadcast_to(second, fused.shape), reranked),
        ],
        axis=1,
    )


def spent(trace: Trace, said: Decisions, arm: str) -> NDArray[np.float64]:
    """Milliseconds of retrieval down to the depth that decided, [Q]; NaN where a depth has none.

    Raises:
      ValueError: the trace lacks latencies.
    """
    if trace.latency is None:
        msg = (
            "latency_ratio needs the latencies of retrieval, this trace has none; keep the file beside it, or rebuild."
        )
        raise ValueError(msg)
    ms = trace.latency.ms[:, trace.arm(arm)]
    by_depth = np.where(np.isnan(ms).all(axis=2), np.nan, np.nansum(ms, axis=2))  # not measured is not free
    down_to = np.cumsum(by_depth, axis=1)
    total: NDArray[np.float64] = down_to[np.arange(len(trace)), said.outcome.depth]
    return total
