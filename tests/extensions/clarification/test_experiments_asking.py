"""What `experiments/asking.py` counts, by hand and on a small set."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

import raglab
from live_worlds import SMALL, PairEncoder, WordEncoder
from raglab.live import retriever

ROOT = Path(raglab.__file__).parents[1]
FEES = """# Fees

| Item | Charge |
|---|---|
| Pet deposit | £250 |
| Key deposit | £50 |
"""
QUESTIONS = """id,group,language,documents,question,expected,options,reply,answer,source
va1,vague,en,fees.md,What is the deposit?,ask,Pet deposit | Key deposit,the key one,£50,fees.md#Fees
c1,clear,en,fees.md,What is the key deposit?,answer,,,£50,fees.md#Fees
f1,foreign,en,fees.md,Who won the match?,refuse,,,,
"""
REPLIES = """id,kind,question_id,reply,names_candidate,picks
r1,noise,va1,banana,no,
r2,decline,va1,"none of these, cancel",no,
r3,fair_control,va1,Key deposit,yes,Key deposit
r4,noise,c1,banana,no,
r5,noise,va1,\\u200b,no,
"""
OPEN = {name: {"enabled": False} for name in ("l2", "similarity", "gap", "confidence")}


@pytest.fixture(scope="module")
def script():
    """Return the script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT)])
        yield importlib.import_module("experiments.asking")


def test_measures_by_hand(script):
    """Asked rightly 1 of 2, needlessly 1 of 4.

    A situation and a clear question are the answers that may be wrong.
    """
    row = script.QuestionOutcome
    rows = [
        row("s", "case", "a", "a", "", "ask", asks=True, right=True),
        row("s", "case", "b", "b", "", "ask"),
        row("s", "case", "c", "c", "", "answer", asks=True),
        row("s", "case", "d", "d", "", "answer", right=True),
        row("s", "case", "e", "e", "", "refuse", wrong=True),
        row("s", "case", "f", "f", "", "refuse", right=True),
        row("s", "situation", "a", "a", "", "answer", right=True),
        row("s", "field", "g", "g", "", "null", wrong=True),
        row("s", "reply", "r", "a", "noise", "no vote", votes=True, wrong=True),
        row("s", "reply", "t", "a", "decline", "no vote"),
    ]
    table = [line.strip("| ").split(" | ") for line in script.comparison(rows, None, seed=0)]
    values = {cells[0]: cells[2] for cells in table[2:]}
    assert values["balanced accuracy of asking"] == "0.625"
    assert values["asked rightly"] == "1/2 = 0.500"
    assert values["needless questions"] == "1/4 = 0.250"
    assert values["ended in the wanted answer"] == "1/1 = 1.000"
    assert values["clear questions answered rightly"] == "1/2 = 0.500"
    assert values["wrong answers"] == "1/7 = 0.143"
    assert values["wrong field values"] == "1/1 = 1.000"
    assert values["votes from replies that name nothing"] == "1/2 = 0.500"
    assert values["declined values returned"] == "0/1 = 0.000"
    assert "a week later: right" not in values  # nothing to count


def test_a_set_of_tables_end_to_end(script, tmp_path, monkeypatch):
    """Questions and replies of one's own: asked, chosen, declined.

    The file holds no text of them.
    """
    words = WordEncoder()
    monkeypatch.setattr(retriever, "load_encoder", lambda _, **__: words)
    monkeypatch.setattr(retriever, "load_cross_encoder", lambda _: PairEncoder())
    monkeypatch.setattr(retriever, "identifier_of", lambda name: "words" if name is None else name)
    monkeypatch.setattr(raglab, "build_index", _with_small_settings(raglab.build_index))
    folder = tmp_path / "fees"
    (folder / "documents").mkdir(parents=True)
    for name, text in (
        ("documents/fees.md", FEES),
        ("questions.csv", QUESTIONS),
        ("replies.csv", REPLIES),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "policy.yaml").write_text(json.dumps(OPEN), encoding="utf-8")
    outcomes = {
        (row.part, row.id): row for row in script.run_set(str(folder), None, None, list_all=False)
    }
    assert list(outcomes) == [
        ("case", "va1"),
        ("situation", "va1"),
        ("case", "c1"),
        ("case", "f1"),
        ("reply", "r1"),
        ("reply", "r2"),
        ("reply", "r3"),
        ("reply", "r5"),
    ]
    assert outcomes["case", "va1"].asks
    assert outcomes["situation", "va1"].right
    assert not outcomes["case", "c1"].asks
    assert [outcomes["reply", name].votes for name in ("r1", "r2", "r3", "r5")] == [
        False,
        False,
        True,
        False,
    ]
    assert not any(row.wrong for row in outcomes.values() if row.part == "reply")
    script.write_outcomes(outcomes.values(), tmp_path / "run.jsonl")
    assert script.read_outcomes(tmp_path / "run.jsonl") == list(outcomes.values())
    assert "deposit" not in (tmp_path / "run.jsonl").read_text(encoding="utf-8")


def _with_small_settings(build):
    def small(corpus, folder, **more):
        return str(build(corpus, folder, arms=("hybrid",), cache=None, **SMALL, **more))

    return small
