"""Ranking measures of every arm of a trace: where the expected sources stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab._places import order_of_arm
from raglab.values import Trace

if TYPE_CHECKING:
    import pandas as pd

DEPTHS_OF_LIST = (1, 5, 20)
NDCG_AT = 10
FINAL, FUSED = "final", "fused (s_hybrid)"
MEASURES = (*(f"hit@{k}" for k in DEPTHS_OF_LIST), f"nDCG@{NDCG_AT}")


def ranking(trace: Trace) -> pd.DataFrame:
    """hit@1, hit@5, hit@20 and nDCG@10 of every arm, over the cases that expect a source, before any refinement.

    Relevant is the first hit of each expected source, which is any of `expect_sources` or
    `expect_sources_any`, `file` or `file#page`; further hits of a source gain nothing. An arm that reranks has a
    second row: the order of the fused score, before reranking.

    Returns: a row an arm and order: `arm`, `order`, `n` (cases), `hit@1`, `hit@5`, `hit@20`, `nDCG@10`; NaN
      where no case expects a source.

    Source: rules S1.3, S6.1; Järvelin and Kekäläinen 2002.
    """
    import pandas as pd

    asked, number, found = _relevant(trace)
    rows = []
    for name, order, relevant in found:
        hits = [metrics.hit_rate(relevant, k) for k in DEPTHS_OF_LIST]
        rows.append((name, order, len(asked), *hits, metrics.ndcg(relevant, number, NDCG_AT)))
    return pd.DataFrame(rows, columns=["arm", "order", "n", *MEASURES])


def ndcg_by_case(trace: Trace) -> NDArray[np.float64]:
    """nDCG@10 of every case under every arm in its final order, [Q, A]; NaN where a case expects no source."""
    asked, number, found = _relevant(trace)
    values = np.full((len(trace), len(trace.arms)), np.nan)
    for name, order, relevant in found:
        if order == FINAL:
            each = (metrics.ndcg(relevant[[at]], number[[at]], NDCG_AT) for at in range(len(asked)))
            values[asked, trace.arm(name)] = list(each)
    return values


def _relevant(trace: Trace) -> tuple[list[int], NDArray[np.int64], list[tuple[str, str, NDArray[np.bool_]]]]:
    """Cases that expect a source, how many, and by arm and order which hits are the first of one, [q, K]."""
    expected = [dict.fromkeys((*case.expect_sources, *case.expect_sources_any)) for case in trace.cases]
    asked = [row for row, sources in enumerate(expected) if sources]
    number = np.array([len(expected[row]) for row in asked], dtype=np.int64)
    tables = []
    for name, order, places in _orders(trace):
        found = np.array([_first_hits(trace, name, row, places[row], list(expected[row])) for row in asked], dtype=bool)
        tables.append((name, order, found.reshape(len(asked), trace.hits.chunk.shape[3])))
    return asked, number, tables


def _orders(trace: Trace) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """Arm, order, and places of its hits in that order, [Q, K]; ties by position in the corpus (rule S0.4)."""
    for at, name in enumerate(trace.arms):
        chunk = trace.hits.chunk[:, at, 0]
        hit = chunk.astype(np.int64)
        yield name, FINAL, order_of_arm(trace.hits.rank[:, at, 0], hit)
        if (trace.hits.n_reranked[:, at, 0] > 0).any():
            fused = np.where(
                (chunk >= 0) & ~np.isnan(trace.hits.s_hybrid[:, at, 0]), -trace.hits.s_hybrid[:, at, 0], np.inf
            )
            yield name, FUSED, np.lexsort((chunk, fused))


def _first_hits(trace: Trace, arm: str, row: int, places: NDArray[np.int64], expected: list[str]) -> list[bool]:
    """Which hits, in order, are the first of an expected source."""
    left = set(expected)
    out = []
    for number in trace.hits.chunk[row, trace.arm(arm), 0][places]:
        names = set()
        if number >= 0:
            chunk = trace.chunks[number]
            names = {chunk.file_name, chunk.shown} & left
        left -= names
        out.append(bool(names))
    return out
