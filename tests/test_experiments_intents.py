"""`experiments/intents.py`.

Precision and recall of the intents, with and without the open-domain questions.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raglab

ROOT = Path(raglab.__file__).parents[1]


@pytest.fixture
def intents(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the experiment."""
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    yield importlib.import_module("intents")
    sys.modules.pop("intents")


def test_rates_by_head(intents: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two that need a graph one opens, and one that needs none.

    Precision and recall one half each.
    """
    needs = {"graph": [True, True, False], "table": [False] * 3}
    group = intents.Labelled("mine", ["ties", "none", "ties to nothing"], needs)
    intents.quality_rows(
        [group], lambda question: {"graph": "ties" in question, "table": False}, misses=True
    )
    printed = capsys.readouterr().out
    assert "| mine | graph | 2 of 3 | 2 | 0.500 (1/2; " in printed
    assert "| mine | table | 0 of 3 | 0 | - (0/0) | - (0/0) |" in printed
    assert "mine, graph, shut: none" in printed
    assert "mine, graph, opened: ties to nothing" in printed


def test_without_the_open_domain_questions_it_says_so(
    intents: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Own and bundled questions are measured all the same, the other part is named and left out."""
    monkeypatch.setattr(
        sys,
        "argv",
        ["intents.py", str(tmp_path), "--language", str(ROOT / "tests" / "data" / "de.yaml")],
    )
    intents.main()
    printed = capsys.readouterr().out
    assert "No open-domain questions: " in printed
    assert "| own, judged, de | table | 4 of 12 |" in printed
    assert "| broker, by hand | graph | 17 of 279 |" in printed


def test_open_domain_questions_are_counted(
    intents: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of three questions one asks to sort.

    A list of questions about tables is counted beside them.
    """
    questions = ["Sort the towns by size", "Who is the mayor?", "What is the highest hill?"]
    path = tmp_path / intents.AMBIGNQ
    path.parent.mkdir()
    path.write_text(
        json.dumps([{"question": question} for question in questions] * 400), encoding="utf-8"
    )
    tables = tmp_path / "tables.tsv"
    tables.write_text(
        "id\tutterance\nq0\tWhich town has the most hills?\nq1\tWho?\n", encoding="utf-8"
    )
    monkeypatch.setattr(sys, "argv", ["intents.py", str(tmp_path), "--tables", str(tables)])
    intents.main()
    printed = capsys.readouterr().out
    assert "| AmbigNQ, first 1,000 | 1000 | 0.000 (0/1000; " in printed
    assert "(334/1000; " in printed
    assert "| written about a table | 2 | 0.000 (0/2; " in printed
