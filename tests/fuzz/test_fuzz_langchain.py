"""Documents, scores and metadata of a LangChain store that are not what they should be.

A trace, or one line.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from fuzz.mutation import WORDS, hostile_value, mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.roundtrip import trace_problem
from fuzz.scored_store import CASES as ASKED
from fuzz.scored_store import DOCUMENTS, Scored
from raglab.lab.langchain import trace_from_langchain

documents = pytest.importorskip("langchain_core.documents")

DISTANCES = ("cosine", "cosine_distance", "l2", "euclidean", None, "other")
HOSTILE = (
    float("nan"),
    float("inf"),
    -1.0,
    2.0,
    "0.5",
    None,
    True,
    10**400,
    np.float32(0.5),
    [0.5],
    1 + 2j,
)


def store(rng):
    """A store with one or two things wrong in what it gives back; and what was changed."""
    scores: list[Any] = [0.9, 0.6, 0.1]
    held = [(one.id, one.page_content, one.metadata) for one in DOCUMENTS]
    told = []
    for _ in range(int(rng.integers(1, 3))):
        place, kind = int(rng.integers(3)), int(rng.integers(4))
        id_, text, metadata = held[place]
        if kind == 0:
            scores[place] = pick(rng, HOSTILE)
            told.append(f"score {shown(scores[place], 60)}")
        elif kind == 1:
            id_ = str(pick(rng, WORDS))
            told.append(f"id {shown(id_, 60)}")
        elif kind == 2:
            text = str(pick(rng, WORDS))
            told.append(f"text {shown(text, 60)}")
        else:
            changed = mutated_value(rng, metadata)
            metadata = changed if isinstance(changed, dict) else {"source": hostile_value(rng)}
            told.append(f"metadata {shown(metadata, 200)}")
        held[place] = (id_, text, metadata)
    made = [
        documents.Document(id=id_, page_content=text, metadata=metadata)
        for id_, text, metadata in held
    ]
    return Scored(scores, made), "; ".join(told)


def test_a_store_that_gives_other_things_is_a_trace_or_is_told(tmp_path):
    """Scores, ids, texts and metadata that no store should give."""

    def draw(rng):
        source, what = store(rng)
        distance = pick(rng, DISTANCES) if rng.random() < 0.3 else "cosine"
        call = partial(trace_from_langchain, source, ASKED, distance=distance, k=3)
        return Trial(f"{distance}: {what}", call, lambda made: trace_problem(made, tmp_path))

    failures = fuzz("langchain", draw, tmp_path, -(-CASES // 10))
    assert not failures, report(failures)
