"""The pages on clarification and on pinned documents.

Their blocks run in order, and the numbers they print hold.
"""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from raglab.store.loaders import load_corpus

ROOT = Path(__file__).parents[3]
FILES = {"acme-premier-home-schedule-2024.md", "northmark-fleetguard-schedule-2024.md"}
MOST_LINES = 15  # of a parser of one's own


def blocks(page):
    """Code of a page."""
    return re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL
    )


def run(page, root, monkeypatch):
    """What a page's blocks define, run in turn in a copy of the project with an index."""
    from raglab.live.system import build_index

    shutil.copytree(ROOT / "datasets" / "broker", root / "datasets" / "broker")
    monkeypatch.chdir(root)
    corpus = load_corpus("datasets/broker")
    build_index(
        corpus._replace(chunks=tuple(chunk for chunk in corpus.chunks if chunk.file_name in FILES)),
        root / "index",
    )
    defined: dict[str, Any] = {"index": root / "index"}
    for block in blocks(page):
        exec(compile(block, page, "exec"), defined)  # noqa: S102 - the project's own page
    return defined


def test_a_parser_of_ones_own_takes_fifteen_lines():
    """In the guide."""
    (own,) = (block for block in blocks("docs/clarification.md") if "def customer_words" in block)
    assert len([line for line in own.splitlines() if line.strip()]) <= MOST_LINES


def test_the_page_on_clarification_runs(tmp_path, monkeypatch):
    """A vague question is asked about; noise is no vote.

    A parser of one's own answers what the default refuses.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        names = run("docs/clarification.md", tmp_path, monkeypatch)
    assert names["asked"]["status"] == "ambiguous"
    assert names["answered"]["answer"] == names["silent"]["answer"]
    assert names["silent"]["default_applied"]["value"] == "Theft"
    assert (names["noise"]["status"], names["ended"]["status"]) == ("ambiguous", "refuse")
    assert names["rows"]["excess", "schedule"]["Theft"] == 1.0
    assert sum(vote for vote in names["rows"]["limit", "schedule"].values() if vote > 0) == 0.0
    assert {"request_id", "model", "prompt_version"} <= names["audit"].keys()
    assert (names["without"]["status"], names["read"]["status"]) == ("refuse", "ok")
    assert "£350" in names["read"]["answer"]
    assert set(names["arguments"]) == {"parser", "gap_finder", "reply_reader", "field_reader"}


def test_the_page_on_pinned_documents_runs(built, tmp_path, monkeypatch):
    """Its tables are what it prints, and the second system answers a question the first refuses."""
    (tmp_path / "out" / "broker").mkdir(parents=True)
    shutil.copyfile(built, tmp_path / "out" / "broker" / "trace.parquet")
    with pytest.warns(UserWarning, match="gates together refuse"):
        names = run("docs/pinned_documents.md", tmp_path, monkeypatch)
    page = (ROOT / "docs" / "pinned_documents.md").read_text(encoding="utf-8")
    refused, swept = names["refused_by"], names["swept"]
    for label in ("ok", "ambiguous", "refuse"):
        assert (
            f"| labelled `{label}` | {refused.loc[label, 'l2']} | "
            f"{refused.loc[label, 'similarity']} |" in page
        )
    for policy, row in swept.iterrows():
        name = re.sub(r"tau_explicit", "`tau_explicit`", str(policy))
        counts = " | ".join(
            f"{row[column]:.0f}"
            for column in ("coverage_k", "false_refusal_rate_k", "hallucination_rate_k")
        )
        assert f"| {name} | {counts} | {row['expected_cost']:.3f} |" in page
    assert names["tau"] == pytest.approx(60.2, abs=0.3)
    assert [
        int(names["judged"].loc["chosen", column])
        for column in ("coverage_k", "hallucination_rate_k")
    ] == [3, 0]
    assert [names[name]["status"] for name in ("before", "answered", "vague")] == [
        "refuse",
        "ok",
        "ambiguous",
    ]
