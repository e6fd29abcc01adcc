"""Cases scored by status alone: how many stands in the headline of every result (S6.1, S6.3)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import pytest

import raglab
from commands import run
from labelled import free_policy, labelled, status_alone, status_alone_sentence
from parts import in_parts
from raglab.decision.scoring import status_only, status_only_sentence, trace_status_only
from raglab.lab.certification_words import certificate_lines
from raglab.values import Case
from refusals import noted

POLICY = free_policy()
STATED = [
    Case("a", "?", "ok", expect_sources=("a.md",)),
    Case("b", "?", "ok", expect_sources_any=("a.md",)),
    Case("c", "?", "ok", min_sources=1),
    Case("d", "?", "refuse"),
    Case("e", "?", "ambiguous"),
    Case("f", "?"),
]


def test_what_is_scored_by_status_alone():
    """A case labelled ok that states neither sources nor their number.

    Whatever else is labelled is not.
    """
    assert (
        status_only([*STATED, Case("g", "?", "ok"), Case("h", "?", "ok", answer="7")]).tolist()
        == [False] * 6 + [True] * 2
    )
    assert status_only_sentence(41, 60) == "41 of 60 cases are scored by status alone"
    assert status_only_sentence(1, 60) == "1 of 60 cases is scored by status alone"
    assert status_only_sentence(0, 60) == ""
    assert status_only([]).tolist() == []


def test_decisions_in_memory_and_over_parts():
    """Their repr and display say it, and are silent if all cases labelled ok state sources."""
    trace = status_alone({"tune": 40, "report": 20})
    parts: Any = in_parts(trace, 40)
    assert trace_status_only(trace).sum() == trace_status_only(parts).sum() > 0
    for decisions in (raglab.decide(trace, POLICY), raglab.decide(parts, POLICY)):
        assert status_alone_sentence(trace) in repr(decisions)
        assert status_alone_sentence(trace) in decisions._repr_html_()
    assert "status alone" not in repr(raglab.decide(labelled(0, {"tune": 40}), POLICY))


def test_tables_of_rates():
    """`sweep` and `steps` warn at their caller, and hold it in `attrs`; over parts alike."""
    trace, whole = status_alone({"": 60}), labelled(0, {"": 60})
    parts: Any = in_parts(trace, 40)
    for given in (trace, parts):
        for call in (
            lambda given=given: raglab.sweep(given, [POLICY]),
            lambda given=given: raglab.steps(given, POLICY, path="similarity.min_similarity"),
            lambda given=given: raglab.steps(given, POLICY),
        ):
            table, notes = noted(call)
            assert len(notes) == 1
            assert notes[0] == table.attrs["headline"]
            assert notes[0].startswith(f"{status_alone_sentence(trace)}: ")
    table, notes = noted(lambda: raglab.sweep(whole, [POLICY]))
    assert (table.attrs["headline"], notes) == ("", [])


def test_a_comparison():
    """Two policies on the same cases."""
    trace = status_alone({"": 60})
    found = raglab.compare(trace, POLICY, POLICY.replace("similarity.min_similarity", 0.9))
    assert f"scored by status {status_alone_sentence(trace).split()[0]}" in repr(found)
    assert "scored by status" in found._repr_html_()
    assert "by status" not in repr(raglab.compare(labelled(0, {"": 60}), POLICY, POLICY))


@pytest.fixture(scope="module")
def tuned():
    """A short study."""
    return raglab.tune(status_alone({"tune": 60, "report": 40}), policy=POLICY, trials=20)


def test_a_study(tuned, tmp_path):
    """Result, its display, its counts of both splits, and the first screen of its report."""
    told = status_alone_sentence(tuned.judged_on)
    for name, trace in (("judged", tuned.judged_on), ("tuned", tuned.tuned_on)):
        assert tuned.counts[f"{name}_status_only"] == int(status_alone_sentence(trace).split()[0])
    assert "judged_status_only" in repr(tuned)
    assert "judged_status_only" in tuned._repr_html_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = raglab.write_report(
            tuned.judged_on, tuned.policies, out=tmp_path / "r.html"
        ).read_text(encoding="utf-8")
    assert told in page.partition("<nav")[0]


def test_a_certificate_and_its_check():
    """Count, reason and lines; a policy file holds the reason."""
    trace = status_alone({"tune": 150, "certify": 150, "report": 60})
    told = status_alone_sentence(trace.split("certify"))
    found = raglab.certify_policy(trace, POLICY, targets={"hallucination_rate": 0.5})
    assert found.policy is not None
    assert found.certificate.reason.endswith(f"; {told}")
    assert found.status_only > 0
    assert told in str(found)
    assert told in certificate_lines(found)[0]
    failed = raglab.certify_policy(trace, POLICY, targets={"hallucination_rate": 0.001}, again=True)
    assert failed.certificate.reason.endswith(f"; {told}")
    check = raglab.check_policy(trace.split("report"), found.policy)
    assert check.notes[0].startswith(status_alone_sentence(trace.split("report")))
    whole = raglab.certify_policy(
        labelled(0, {"tune": 150, "certify": 150}), POLICY, targets={"hallucination_rate": 0.5}
    )
    assert not any(
        "status alone" in text for text in (repr(whole), whole.certificate.reason, *whole.notes)
    )


def test_the_count_is_of_all_parts():
    """Anything that has parts is counted."""

    class Parts:
        """Two parts, in memory."""

        parts = (status_alone({"": 40}), status_alone({"": 20}))
        meta: ClassVar[dict[str, Any]] = {}

    counts = [trace_status_only(part).sum() for part in Parts.parts]
    assert trace_status_only(Parts()).sum() == sum(counts)
    assert np.issubdtype(status_only(status_alone({"": 4}).cases).dtype, np.bool_)


@pytest.mark.usefixtures("quick_study")
def test_the_command_line(tmp_path):
    """Every command that judges says it; `trace` in place of "cases expect none"."""
    trace = status_alone({"tune": 40, "certify": 40, "report": 20})
    trace.save(tmp_path / "t.parquet")
    POLICY.save(tmp_path / "p.yaml")
    path, policy = str(tmp_path / "t.parquet"), ("-p", str(tmp_path / "p.yaml"))
    certify = (
        "certify",
        path,
        *policy,
        "-t",
        "hallucination_rate=0.5",
        "--looks",
        str(tmp_path / "looks.jsonl"),
    )
    for command, judged in (
        (("decide", path, *policy), trace),
        (("sweep", path, *policy, "--path", "similarity.min_similarity"), trace),
        (certify, trace.split("certify")),
        (
            (
                "tune",
                path,
                *policy,
                "--trials",
                "2",
                "--out",
                str(tmp_path / "out"),
                "--no-track",
                "-q",
            ),
            trace.split("report"),
        ),
    ):
        done = run(*list(command))
        assert status_alone_sentence(judged) in done.output, command
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.md").write_text("# Glass\n\nBroken glass is covered.\n", encoding="utf-8")
    (tmp_path / "c" / "b.md").write_text("# Theft\n\nTheft from a car is not.\n", encoding="utf-8")
    (tmp_path / "q.csv").write_text(
        "query,label\nis glass covered,ok\nwho won,refuse\n", encoding="utf-8"
    )
    done = run(
        "trace", tmp_path / "c", "-c", tmp_path / "q.csv", "-o", tmp_path / "u.parquet", "-q"
    )
    assert "1 of 2 cases is scored by status alone" in done.output, done.output
    assert "expect none" not in done.output
