"""Deals and tables of `experiments/upgrades.py`."""

from __future__ import annotations

import json

import pandas as pd

import raglab
from experiments.upgrade_tables import AS_THEY_WERE, BASE, tables
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


def lines_of_a_deal():
    """One promise of at most 20 %, on the base and on one upgrade.

    It holds, is broken, is certified, is refused.
    """
    known = {"set": "drawn", "deal": 0, "decides": "confidence", "alpha": 0.2, "pair": "other"}
    return [
        {**known, "pair": "", "method": BASE, "k": 1, "n": 10, "coverage": 0.5, "verdict": "open"},
        {**known, "method": AS_THEY_WERE, "k": 9, "n": 10, "coverage": 0.5, "verdict": "broken"},
        {
            **known,
            "method": "quantile",
            "k": 3,
            "n": 10,
            "coverage": 0.4,
            "verdict": "open",
            "again": True,
            "again_reused": False,
            "unmapped": False,
        },
        {**known, "method": "refit", "refused": "too few cases, got 1"},
    ]


def test_tables_count_each_line_once(tmp_path, capsys):
    """A policy that answers nothing keeps no promise, and what is refused is counted apart."""
    folder = tmp_path / "drawn"
    folder.mkdir()
    rows = [{"levels": {"confidence": 0.2}}, *lines_of_a_deal()]
    (folder / "judged.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    tables(tmp_path)
    printed = capsys.readouterr().out
    assert (
        "| drawn | confidence | ≤ 0.2 | 1.00 (1/1) | 1.00 (1/1) | 0, 1, 0 | 0.50 → 0.50 |"
        in printed
    )
    assert "| other | as they were | 1, 0 | 0.00 (0/1) | 0, 0, 1 |" in printed
    quantile = "| other | quantile | 1, 0 | 0.00 (0/1) | 0, 1, 0 | 1.00 (1/1) |"
    assert f"{quantile} 1.00 (1/1), 0 | 0.00 (0/1) | 0 | 0.50 → 0.40 |" in printed
    assert "too few cases    1" in printed
