"""A warning points at the call of the user, whatever wraps the function."""

from __future__ import annotations

import pandas as pd
import pytest

import raglab
from raglab.values import Case, Chunk, Corpus


def test_a_warning_points_at_the_call():
    """Of the user, not at a line of raglab."""
    frame = pd.DataFrame(
        {
            "query": ["What is it?", "Where is it?"],
            "hit_id": ["a#1", "b#1"],
            "text": ["It is a nest.", "It is here."],
            "bm25": [0.5, 0.9],
            "expect_status": ["ok", "ok"],
        }
    )
    with pytest.warns(UserWarning, match="gates") as caught:
        raglab.trace_from_frame(
            frame, score=None, signals={"bm25": {"higher": "surer", "unit": "score"}}
        )
    assert caught[0].filename == __file__
    corpus = Corpus("nests", (Chunk("a#1", "It is a nest.", "a.md", 1),))
    wrong = [Case("q1", "What is it?", "ok", expect_sources_any=("a.md", "z.md"))]
    with pytest.warns(UserWarning, match="sources must be in the corpus") as caught:
        raglab.build_trace(corpus, wrong, cache=None)
    assert __file__ in {warning.filename for warning in caught}
