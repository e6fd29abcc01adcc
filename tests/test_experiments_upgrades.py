"""Deals of `experiments/upgrades.py`."""

from __future__ import annotations

import pandas as pd

import raglab
from experiments.upgrades import Deal


def drawn_trace(score):
    """Forty questions with a hit each."""
    words = [f"w{number} v{number} u{number}" for number in range(40)]
    rows = pd.DataFrame(
        {"query": words, "label": ["ok", "refuse"] * 20, "hit_id": "a", "source": "a.md"}
    )
    return raglab.trace_from_frame(
        rows.assign(expect_sources=["a.md", ""] * 20, score=score), score="cosine", name="drawn"
    )


def test_a_deal_has_four_parts_that_are_the_same_of_each_trace():
    """No case the base is certified on is among the fresh; tune and report are those of both."""
    deal, second = Deal.of(drawn_trace(0.5), 3), Deal.of(drawn_trace(0.9), 3)
    queries = {
        (name, split): {case.query for case in getattr(deal, name).split(split).cases}
        for name in Deal._fields
        for split in ("tune", "certify", "report")
    }
    assert queries["old", "tune"] == queries["fresh", "tune"]
    assert queries["old", "report"] == queries["fresh", "report"]
    parts = [
        queries["old", "tune"],
        queries["old", "certify"],
        queries["fresh", "certify"],
        queries["old", "report"],
    ]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 40
    assert [case.query for case in second.fresh.cases] == [case.query for case in deal.fresh.cases]
