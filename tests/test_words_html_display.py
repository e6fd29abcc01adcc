from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hostile_texts import SCRIPT, check_display
from labelled import labelled
from raglab import bandit
from raglab.audit.log import AuditLog
from raglab.certify import Certificate, Promise
from raglab.decision.checks import Check, Checks
from raglab.gating.fused_gate import Model, Part
from raglab.lab.comparison import compare
from raglab.lab.study import tune
from raglab.live.response import Response, ResponseFields, ResponseRecord
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Chunk, Corpus
from raglab.words.characters import visible
from raglab.words.html_display import MAX_FOLD_ROWS, Fold, display
from worlds import random_policies, with_signals

BIG = 1_500


def _hostile(n):
    """Trace of n cases, every text of which is a script, some of 20,000 characters."""
    plain = labelled(3, {"tune": n // 2, "report": n - n // 2})
    chunk = Chunk(SCRIPT, SCRIPT * 300, SCRIPT)
    cases = tuple(
        case._replace(id=f"{SCRIPT}{place}", query=SCRIPT * (300 if place % 2 else 1))
        for place, case in enumerate(plain.cases)
    )
    return Trace(
        cases,
        (chunk, chunk._replace(chunk_id="1")),
        (SCRIPT,),
        plain.hits,
        None,
        {"fingerprint": SCRIPT, SCRIPT: SCRIPT},
    )


def _certificate(chosen):
    promises = (
        Promise("hallucination_rate", 0.01, 0, 900, 0.0033),
        Promise(SCRIPT, 0.1, 12, 100, 0.18),
    )
    return Certificate(
        chosen,
        (chosen,) * 500 if chosen else (),
        0.9,
        promises,
        SCRIPT,
        0.1,
        "sequence",
        500,
        800,
        BIG,
        SCRIPT,
    )


def _patterned():
    names = {f"{SCRIPT}{place}": ["a", "b"] for place in range(300)}
    signals = {f"own_{place}": {"min": 0.5} for place in range(60)}
    return Policy.from_mapping(
        {"patterns": {"entities": names}, "signals": signals, "notes": SCRIPT}
    )


def _model():
    knots = tuple(float(x) for x in range(33))
    return Model(0.5, tuple(Part(f"{SCRIPT}{place}", knots, knots) for place in range(80)))


MADE: dict[str, Callable[[], Any]] = {
    "Policy": _patterned,
    "Trace": lambda: _hostile(BIG),
    "Corpus": lambda: Corpus(
        SCRIPT, tuple(Chunk(f"{place}", SCRIPT * 99, f"{SCRIPT}{place}") for place in range(BIG))
    ),
    "Decisions": lambda: decide(_hostile(200), Policy.load()),
    "Certificate": lambda: _certificate("0123456789ab"),
    "no Certificate": lambda: _certificate(None),
    "Fused": _model,
    "Run": lambda: bandit.simulate("ucb1", [0.5] * 100, rounds=300, replications=20, seed=0),
    "AuditLog": lambda: AuditLog(
        Path("no", *("deep" * 20 for _ in range(20)), f"{SCRIPT.replace('/', '')}.db")
    ),
    "Comparison": lambda: compare(
        _hostile(200), Policy.load(), Policy.load().replace("similarity.min_similarity", 0.3)
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_a_value_shows_itself_in_a_line_and_in_a_bounded_page(name):
    """Whatever its size and texts.

    At most 300 characters in a line, 20 kB of HTML, and no markup of a corpus.
    """
    check_display(MADE[name]())


def _response():
    """A response with the script in every text."""
    names = ("answer", "refusal_reason", "route", "arm", "arm_reason", "policy_id", "request_id")
    texts: dict[str, Any] = dict.fromkeys((*names, "error"), SCRIPT)
    answer = ResponseFields(**texts, sources=(SCRIPT,), warnings=(SCRIPT,))
    return Response(answer, ResponseRecord())


SHOWN: dict[str, Callable[[], str]] = {
    "checks": lambda: repr(Checks([Check("l2", "S2.3", 1.0, 1.0, 0.0, passes=True, text=SCRIPT)])),
    "response": lambda: repr(_response()),
    "part": lambda: repr(Part(SCRIPT, (0.0,), (0.0,))),
    "page of a response": lambda: _response()._repr_html_(),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_line_shows_no_unseen_character(name):
    """What turns, ends or hides a line stands as an escape."""
    text = SHOWN[name]()
    assert visible(text, lines=True) == text


@pytest.mark.usefixtures("quick_study")
def test_a_study_shows_itself():
    """Its line and page are bounded, and its comparison's few columns are among all rates' ones."""
    result = tune(_hostile(80), trials=4, batch_size=2, policy=Policy.load())
    assert len(repr(result)) <= 300
    page = result._repr_html_()
    assert len(page.encode()) <= 20_000
    assert "<script" not in page
    by_status = dataclasses.replace(result, counts={**result.counts, "judged_status_only": 7})
    assert "judged_status_only 7" in repr(by_status)
    assert result.comparison.columns.tolist() == [
        "policy",
        "judged_by",
        "expected_cost",
        "expected_cost_low",
        "expected_cost_high",
        "coverage",
        "over_ask_rate",
        "missed_ambiguity_rate",
        "pass_rate",
    ]
    pd.testing.assert_frame_equal(result.comparison, result.rates()[list(result.comparison)])
    before, two = (
        decide(result.judged_on, result.policies[name]) for name in ("defaults", "tuned")
    )
    changed = result.changed()
    pd.testing.assert_frame_equal(changed, before.changed(two))
    assert len(changed) == int(((before.status != two.status) | (before.right != two.right)).sum())
    with pytest.raises(KeyError):
        result.changed(after="best")


def test_a_page_tells_how_many_rows_it_leaves_out():
    """Of 1,000 rows 50 are shown; of rows too long for the page, as many as fit."""
    page = display(
        "numbers", [], [Fold("all", ((str(number),) for number in range(1_000)), head=("n",))]
    )
    assert page.count("<td") == MAX_FOLD_ROWS + 1
    assert "… 950 more" in page
    long = display("texts", [], [Fold("all", [("<" * 200,) * 20] * 30, head=("a",) * 20)])
    assert len(long.encode()) <= 20_000
    assert int(re.findall(r"… (\d+) more", long)[0]) == 30 - long.count("<tr><td>")


def _marked(policy):
    """Paths of the settings that a policy's page marks: those of gates stand in a gate's row."""
    page = policy._repr_html_()
    gates = re.findall(r"<th>([\w.]+)</th><td>(.*?)</td></tr>", page)
    return {
        *re.findall(r'<td>([\w.]+)</td><td class="changed">', page),
        *(
            f"{gate}.{name}"
            for gate, cells in gates
            for name in re.findall(r'<span class="changed">(\w+) ', cells)
        ),
    }


@pytest.mark.parametrize("seed", range(2))
def test_marks_are_the_differences_and_differences_are_the_id(seed):
    """What is marked is what `diff` says; it says nothing exactly where the ids are the same."""
    policies = [
        PolicyData.from_mapping(),
        *random_policies(seed, 3),
        *with_signals(random_policies(seed, 2), seed),
    ]
    for first in policies:
        assert _marked(first) == {path if "." in path else f".{path}" for path in first.diff()}
        for second in policies:
            assert (first.diff(second) == {}) == (first.policy_id == second.policy_id)
            assert first.diff(second) == {
                path: (here, second_value)
                for path, (second_value, here) in second.diff(first).items()
            }


def test_a_log_that_is_not_there_is_not_made_by_looking(tmp_path):
    """The page of an audit log reads what is there."""
    log = AuditLog(tmp_path / "audit.db")
    assert "none yet" in log._repr_html_()
    assert not (tmp_path / "audit.db").exists()


def test_a_line_and_a_page_import_nothing_slow():
    """Neither pandas nor matplotlib is needed to show a value."""
    code = (
        "import sys, raglab; policy = raglab.Policy.load(); "
        "corpus = raglab.Corpus('c', (raglab.Chunk('1', 't', 's'),)); "
        "[(repr(one), one._repr_html_()) for one in (policy, corpus)]; "
        "print({'pandas', 'matplotlib'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"
