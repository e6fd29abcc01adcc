"""A small trace for tests of signals: six questions over five passages, with answers."""

from __future__ import annotations

import numpy as np

from raglab.policy import PolicyData
from raglab.store.traces import Trace
from raglab.values import Answers, Case, Chunk, Hits

PASSAGES = (
    "The library opens at 9:30 on weekdays.",
    "Books are lent for 28 days; each day more costs 20 cents.",
    "La bibliothèque ferme à 18 h 30 le samedi.",
    "Lost cards are replaced at desk 3 within 30 minutes. " * 40,
    "",
)
QUESTIONS = (
    "When does the library open?",
    "Quand ferme la bibliothèque ?",
    "books",
    "Who won the cup in 1966?",
    "",
    "? " * 400,
)


def sample_trace():
    """Six questions, each over up to five passages, with an answer to those that have hits.

    The made one of a check.
    """
    chunks = tuple(
        Chunk(f"p{n}", text, "hours.md" if n < 2 else "other.md", n + 1)
        for n, text in enumerate(PASSAGES)
    )
    named = [("hours.md",) if text == "books" else () for text in QUESTIONS]
    pairs = enumerate(zip(QUESTIONS, named, strict=True))
    cases = tuple(
        Case(f"sample-{n}", text, "ok", selected_sources=sources) for n, (text, sources) in pairs
    )
    # Many hits, few, one and none: a policy must bear each.
    n_hits = np.array([5, 3, 2, 1, 0, 4])
    shape = (len(cases), 1, 1, len(chunks))
    place = np.broadcast_to(np.arange(len(chunks)), shape)
    there = place < n_hits[:, None, None, None]
    # Each question begins at another passage, so that cases differ by their hits.
    number = (place + np.arange(len(cases))[:, None, None, None]) % len(chunks)
    cosine = np.where(there, 0.9 - 0.125 * place, np.nan)
    # Two hits are reranked: below the depth of a reranker there is no score.
    score = np.where(there & (place < 2), 0.75 - 0.25 * place, np.nan)
    hits = Hits(
        chunk=np.where(there, number, -1).astype(np.int32),
        rank=np.where(there, place, -1).astype(np.int32),
        l2=2.0 - 2.0 * cosine,
        cosine=cosine,
        s_hybrid=cosine,
        s_rerank=score,
        s_raw=score,
        anchor_sim=cosine,
        sig_sim=cosine,
        sig_sim_strict=cosine,
        n_reranked=np.minimum(n_hits, 2).astype(np.int32)[:, None, None],
    )
    return Trace(
        cases,
        chunks,
        ("hybrid",),
        hits,
        meta={"fingerprint": "sample"},
        answers=_sample_answers(hits, n_hits),
    )


def _sample_answers(hits, n_hits):
    """One answer to all hits of each question that has any; the third has no confidence."""
    rows = np.flatnonzero(n_hits)
    width = PolicyData.from_mapping().structure.final_k
    chunks = np.full((len(rows), max(width, hits.chunk.shape[3])), -1, dtype=np.int32)
    for place, row in enumerate(rows):
        chunks[place, : min(width, n_hits[row])] = hits.chunk[row, 0, 0][: min(width, n_hits[row])]
    none, size = np.zeros(len(rows), dtype=np.int32), len(rows)
    confidence = np.where(np.arange(size) == 2, np.nan, 0.25 + 0.125 * np.arange(size))
    texts = tuple(f"It is {250 + row}." for row in rows.tolist())
    return Answers(
        generator="sample",
        scorer="sample",
        row=rows.astype(np.int32),
        arm=none,
        depth=none,
        chunks=chunks,
        text=texts,
        confidence=confidence,
        support=np.full(size, 0.5),
        claim=texts,
        cited=((),) * size,
        refused=("",) * size,
    )
