from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import raglab
from commands import CASES, run, traced_folder
from raglab.replay import decide, flips
from raglab.store.policies import Policy
from raglab.store.traces import Trace


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with three documents, eight cases in two splits, and their trace."""
    return traced_folder(tmp_path_factory.mktemp("cli"))


def test_the_version_and_the_module():
    """`raglab --version`."""
    assert run("--version").stdout == f"raglab {version('raglab-toolkit')}\n"


def test_tables_are_read_by_their_columns(tmp_path):
    """`trace` takes CSV and TSV with `field=column`.

    A wrong cell is named with its own column before any retrieval.
    """
    chunks, cases = tmp_path / "chunks.tsv", tmp_path / "cases.csv"
    chunks.write_text("key\tbody\n1\tGlass is covered.\n", encoding="utf-8")
    cases.write_text("question,gold\nIs glass covered?,yes\n", encoding="utf-8")
    command = [
        "trace",
        chunks,
        "--cases",
        cases,
        "--out",
        tmp_path / "t.parquet",
        "--quiet",
    ]
    whole = [
        "--corpus-columns",
        "id=key",
        "--corpus-columns",
        "text=body",
        "--columns",
        "expect_status=gold",
    ]
    done = run(*command, *whole)
    assert done.exit_code == 1
    assert "cases.csv, row 0 (line 2), column gold: expect_status" in done.output
    for more, told in (
        ([], "must have columns text"),
        ([*whole, "--columns", "gold"], "must be field=column"),
    ):
        done = run(*command, *more)
        assert done.exit_code == 1
        assert told in done.output


def test_questions_are_dealt_splits(tmp_path, monkeypatch):
    """`trace --split` deals as `raglab.split` does.

    Wrong shares are refused.
    """
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "cache"))
    folder, cases, out = tmp_path / "docs", tmp_path / "cases.csv", tmp_path / "t.parquet"
    folder.mkdir()
    (folder / "a.md").write_text("Glass is covered.", encoding="utf-8")
    rows = [(f"glass word{n} term{n}?", ("ok", "refuse")[n % 2]) for n in range(12)]
    pd.DataFrame(rows, columns=["query", "label"]).to_csv(cases, index=False)
    command = [
        "trace",
        folder,
        "--cases",
        cases,
        "--out",
        out,
        "--quiet",
        "--arm",
        "bm25",
    ]
    for shares, told in (
        ("0.5,0.5", "--split must be"),
        ("0.5,0.5,0.5", "sum to 1"),
    ):
        done = run(*command, "--split", shares)
        assert (done.exit_code, told in done.output) == (1, True), done.output
    done = run(*command, "--split", "0.5,0.5,0")
    assert done.exit_code == 0, done.output
    dealt = raglab.split(raglab.load_cases(cases), tune=0.5, certify=0.5, report=0)
    assert [case.split for case in Trace.load(out).cases] == [case.split for case in dealt]


def test_encodings_of_documents_and_labels(tmp_path, monkeypatch):
    """`trace` takes that of the documents, of a folder for what is not UTF-8.

    Labels have theirs.
    """
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "cache"))
    folder, cases = tmp_path / "docs", tmp_path / "cases.csv"
    folder.mkdir()
    (folder / "a.md").write_text("Öl ist gedeckt.", encoding="utf-8")
    for path, text in (
        (folder / "b.md", "Glas für 5 €."),
        (cases, "query,label\nÖl?,refuse\n"),
    ):
        path.write_bytes(text.encode("cp1252"))
    out = tmp_path / "t.parquet"
    trace = [
        "trace",
        folder,
        "--cases",
        cases,
        "--out",
        out,
        "--quiet",
        "--encoding",
        "cp1252",
    ]
    done = run(*trace)
    assert (done.exit_code, "(--cases-encoding)" in done.output) == (1, True)
    done = run(*trace, "--cases-encoding", "cp1252")
    assert done.exit_code == 0, done.output
    assert "a.md: read as UTF-8" in done.output
    traced = Trace.load(out)
    assert {chunk.text for chunk in traced.chunks} == {"Öl ist gedeckt.", "Glas für 5 €."}
    assert [case.query for case in traced.cases] == ["Öl?"]


def test_what_is_refused_is_one_line_and_exit_code_1(tmp_path):
    """No stack for a user's mistake."""
    bad = tmp_path / "p.yaml"
    bad.write_text("similarity: {min_similarity: 70}\n", encoding="utf-8")
    for call in (["policy", "-p", str(bad)], ["decide", str(tmp_path / "none.parquet")]):
        done = run(*call)
        assert done.exit_code == 1
        assert done.stderr.startswith("raglab: ")
        assert done.stderr.count("\n") == 1
    assert "min_similarity" in run("policy", "-p", bad).stderr


def test_wrong_usage_is_exit_code_2():
    """As everywhere."""
    assert run("decide").exit_code == 2


def test_decide_prints_every_case(world):
    """A row a case in JSON, as a table, and as CSV."""
    out = world / "decisions.csv"
    call = ["decide", world / "t.parquet", "--out", out]
    rows = json.loads(run(*call, "--json").stdout)
    assert [row["case_id"] for row in rows] == [
        f"{s}-{c['id']}" for s in ("tune", "report") for c in CASES
    ]
    table = run(*call).stdout
    assert "confidence" in table
    assert len(out.read_text(encoding="utf-8").splitlines()) == 9


def test_strict_counts_contracts_and_fails_on_one(world):
    """All right is exit code 0; one wrong case is 1, with counts by label."""
    call = ["decide", str(world / "t.parquet"), "--strict"]
    trace, policy = Trace.load(world / "t.parquet"), Policy.load()
    right = decide(trace, policy).right
    assert not right.all()
    done = run(*call)
    assert done.exit_code == 1
    refused = [
        bool(one)
        for one, case in zip(right, trace.cases, strict=True)
        if case.expect_status == "refuse"
    ]
    told = done.stdout.splitlines()[-1]
    assert told.startswith(f"passed {right.sum()} of {len(right)} contracts (S6.3): ok ")
    assert f", refuse {sum(refused)} of {len(refused)}" in told
    kept = world / "right.parquet"
    trace.subset(np.flatnonzero(right)).save(kept)
    assert run("decide", kept, "--strict").exit_code == 0
    assert run(*call[:-1]).exit_code == 0


def test_one_case_is_explained_with_what_would_flip_it(world):
    """Gate by gate, and the smallest change of one threshold."""
    call = ["decide", world / "t.parquet", "--case", "tune-q1"]
    shown = json.loads(run(*call, "--json").stdout, parse_constant=pytest.fail)
    assert shown["checks"][0]["gate"] == "domain"
    first = shown["flips"][0]
    near = flips(Trace.load(world / "t.parquet"), Policy.load(), "tune-q1")
    assert (first["path"], first["flips_at"]) == (near["path"][0], near["flips_at"][0])
    none = run("decide", world / "t.parquet", "--case", "q1")
    assert (none.exit_code, "did you mean tune-q1 or report-q1?" in none.stderr) == (1, True)


def test_sweep_takes_policies_or_one_threshold(world):
    """Neither and both are refused."""
    trace = str(world / "t.parquet")
    steps = json.loads(run("sweep", trace, "--path", "similarity.min_similarity", "--json").stdout)
    assert (steps[0]["low"], steps[-1]["high"]) == (-1.0, 1.0)
    (world / "p.yaml").write_text("similarity: {enabled: false}\n", encoding="utf-8")
    rows = json.loads(run("sweep", trace, world / "p.yaml", "--json").stdout)
    assert rows[0]["false_refusal_rate_n"] == 4
    assert run("sweep", trace).exit_code == 1


@pytest.mark.usefixtures("quick_study")
def test_tune_and_report_write_what_they_name(world, monkeypatch):
    """Policy, report and what was selected; the policy loads and is reported again.

    People read the winner first.
    """
    monkeypatch.setattr("raglab.lab.report.blocks.png", lambda *_: b"")
    trace, out = str(world / "t.parquet"), world / "tuned"
    done = run("tune", trace, "--trials", "6", "--no-track", "--quiet", "--out", out, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout, parse_constant=pytest.fail)
    assert {row["policy"] for row in told["comparison"]} >= {
        "defaults",
        "tuned",
        "always-answer",
        "always-refuse",
    }
    assert Path(told["report"]).is_file()
    assert told["selected"] in {row["candidate"] for row in told["costs"]}
    assert told["against"][0]["role"] == "incumbent"
    assert told["against"][0]["other"] == told["incumbent"]
    assert told["unseen"] is True
    assert {row["verdict"] for row in told["against"]} <= {"better", "worse", "same", "open"}
    # Runs that cannot be tracked cost nothing of the study: all is written and printed, and the
    # last line says so.
    call = ["tune", trace, "--trials", "6", "--mlruns", trace, "--quiet", "--out", out]
    done = run(*call)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith("choose another.")
    assert "the folder must be writable, got File exists" in done.stderr
    assert "Traceback" not in done.stderr
    page = world / "again.html"
    done = run("report", trace, "-p", told["policy"], "--split", "report", "-o", page)
    assert done.exit_code == 0, done.output
    assert page.is_file()
