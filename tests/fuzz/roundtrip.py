"""What is wrong with a trace that a door made."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.mutation import shown
from raglab.replay import decide
from raglab.store.loaders import load_cases, load_corpus, save_cases, save_corpus
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace
from raglab.values import Corpus
from worlds import policy


def trace_problem(trace, folder):
    """What is wrong with a trace that was made.

    Another one from disk, no distance, another decision.
    """
    path = folder / "t.parquet"
    trace.save(path)
    again = Trace.load(path)
    if content_hash(again) != content_hash(trace):
        return "another one when saved and read again"
    if (
        np.isinf(trace.hits.l2).any()
        or (trace.hits.l2 < 0).any()
        or (np.abs(trace.hits.cosine) > 1).any()
    ):
        return "a distance that is none"
    chosen = policy(l2={"enabled": True, "max_l2": 0.6})
    one, other = (decide(held, chosen).frame()["status"].tolist() for held in (trace, again))
    return "" if one == other else "another decision when saved and read again"


def loaded_problem(folder, value):
    """What is wrong with what was loaded.

    It is another one when saved and read again, or a chunk breaks a rule.
    """
    path = folder / "again.jsonl"
    if isinstance(value, Corpus):
        save_corpus(value, path)
        again: Any = load_corpus(path)
        if any(
            not chunk.text.strip() or (chunk.page is not None and chunk.page < 1)
            for chunk in value.chunks
        ):
            return "a chunk without text, or a page below 1"
    else:
        save_cases(value, path)
        again = load_cases(path)
    return (
        ""
        if again == value
        else f"another one when saved and read again: {shown(again)} for {shown(value)}"
    )
