"""`raglab import`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import raglab
from raglab.cli import app
from raglab.extension_points import installed
from span_samples import request, write_lines

ROWS = [
    *request("a", "one?", ("x", 0.25), ("y", 0.75), feedback="up", tenant="north"),
    *request("b", "two?", ("x", 0.5), second=1),
]


def called(*arguments):
    """Exit code, and what is printed."""
    done = CliRunner().invoke(app, ["import", *arguments, "--quiet"])
    return done.exit_code, done.output


def test_a_file_becomes_a_trace(tmp_path):
    """With labels, groups and the direction that the options state."""
    spans = write_lines(tmp_path / "spans.jsonl", ROWS)
    out = tmp_path / "trace.parquet"
    code, text = called(
        str(spans), "-o", str(out), "--group", "tenant", "--higher", "retriever_score=ask", "--json"
    )
    assert code == 0
    assert json.loads(text[text.index("{\n") : text.rindex("}") + 1]) == {
        "trace": str(out),
        "cases": 2,
        "signals": "retriever_score",
    }
    trace = raglab.Trace.load(out)
    assert trace.cases[0].extra["groups"] == {"tenant": "north"}
    assert [case.expect_status for case in trace.cases] == ["ok", None]
    assert trace.meta["signals"]["retriever_score"]["higher"] == "ask"


def test_no_feedback_and_own_cases(tmp_path):
    """Labels of a file; those of users are left out."""
    spans = write_lines(tmp_path / "spans.jsonl", ROWS)
    cases = tmp_path / "cases.csv"
    cases.write_text("id,query,expect_status\nb,two?,refuse\n", encoding="utf-8")
    out = tmp_path / "trace.parquet"
    code, _ = called(str(spans), "-o", str(out), "--feedback", "none", "--cases", str(cases))
    assert code == 0
    assert [case.expect_status for case in raglab.Trace.load(out).cases] == [None, "refuse"]


@pytest.mark.skipif("scale" not in installed(), reason="needs shards")
def test_a_folder_is_of_shards(tmp_path):
    """Where the name is not that of a Parquet file."""
    spans = write_lines(tmp_path / "spans.jsonl", ROWS)
    code, _ = called(str(spans), "-o", str(tmp_path / "shards"), "--workers", "2")
    assert code == 0
    assert len(raglab.Trace.open(tmp_path / "shards")) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--higher", "retriever_score"), "higher must name"),
        (("--cases", "none.csv"), "none.csv"),
        (("--out", "SPANS"), "--out"),
    ],
)
def test_what_is_refused_is_one_line(tmp_path, options, message):
    """Before anything is written."""
    spans = write_lines(tmp_path / "spans.jsonl", ROWS)
    more = [str(spans) if option == "SPANS" else option for option in options]
    out = [] if "--out" in options else ["--out", str(tmp_path / "trace.parquet")]
    code, text = called(str(spans), *out, *more)
    assert code == 1
    assert message in text
    assert [path.name for path in tmp_path.iterdir()] == ["spans.jsonl"]
