"""Arms (algebra): the table of retrieval strategies, what each needs, which answer live (S4.1)."""

from __future__ import annotations

from typing import NamedTuple


class Arm(NamedTuple):
    """An arm, an entry of `ARMS`.

    what: it does, and cost: what that costs besides one search of its lists, in words. keyword,
    dense: whether it fuses the list of BM25, that of the embeddings. reranked: whether its hits are
    reranked. rewrites: whether it searches a second time within a depth, for the question as its
    first hits rewrite it. room: of `raglab.extensions` that makes an index of its own for it, at
    the point `arm.<name>`; empty: it has none. intent: the flag of a question that makes it
    available (rule S4.1), empty: every question. live: whether it may answer live, and a bandit
    choose it; the others only compare.
    """

    what: str
    cost: str
    keyword: bool = True
    dense: bool = True
    reranked: bool = True
    rewrites: bool = False
    room: str = ""
    intent: str = ""
    live: bool = True


ARMS: dict[str, Arm] = {
    "hybrid": Arm("BM25 and dense, fused and reranked", "reranking"),
    "iterative": Arm(
        "hybrid, then again for the rewritten question", "two searches", rewrites=True
    ),
    "graph": Arm(
        "hybrid and a walk over entities",
        "reranking and a walk",
        room="graph_table",
        intent="graph",
    ),
    "table": Arm(
        "hybrid and rows of tables",
        "reranking and a search of rows",
        room="graph_table",
        intent="table",
    ),
    "dense": Arm("embeddings alone", "nothing", keyword=False, reranked=False, live=False),
    "bm25": Arm("keywords alone", "nothing", dense=False, reranked=False, live=False),
}
LIVE_ARMS = tuple(name for name, arm in ARMS.items() if arm.live)
CHOOSERS = ("router", "bandit")  # what a policy may name in the place of an arm: they choose one
