"""Replies that answer or refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from league_files import MODELS, REPLIES, nomiracl_folder, write_records
from raglab.extensions.league.league import League
from raglab.extensions.league.nomiracl import (
    ERROR,
    HALLUCINATION,
    is_nomiracl,
    nomiracl_rows,
    refusal_threshold,
)
from raglab.extensions.league.rows import LeagueRow, is_pooled
from raglab.extensions.league.stored_lines import stored_lines


def by_cell(folder: Path) -> dict[tuple[str, str], LeagueRow]:
    """Rows by cell and metric."""
    return {(row.cell, row.metric): row for row in nomiracl_rows(folder)}


def test_rows_of_a_miniature(tmp_path: Path) -> None:
    """Four rows a language and of all; rates of the reference model are those of its replies."""
    rows = by_cell(nomiracl_folder(tmp_path))
    assert len(rows) == 4 * (3 + 1)
    refused = {
        name: np.mean(
            [
                record["results"]["gpt-4-azure"] == REPLIES[0]
                for record in stored_lines(path).records
            ]
        )
        for name in ("relevant", "non_relevant")
        for path in [tmp_path / name / "bb.test.vanilla_prompt.jsonl.gz"]
    }
    row = rows["language bb", HALLUCINATION]
    assert row.reproduced == pytest.approx(1.0 - refused["non_relevant"])
    assert rows["language bb", ERROR].reproduced == pytest.approx(refused["relevant"])
    assert row.free == pytest.approx(1.0 - refused["relevant"])
    assert row.difference == pytest.approx(row.raglab - row.reproduced)
    assert (row.n, row.calls, rows["language bb, open models alone", ERROR].calls) == (60, 4.0, 2.0)
    whole = rows["all", HALLUCINATION]
    assert (whole.published, whole.n, whole.verdict) == (0.332, 180, "ahead")
    assert np.isnan(row.published)


def test_more_answers_are_a_trade(tmp_path: Path) -> None:
    """In one language the other models answer everything.

    Fewer errors, more hallucinations, one verdict.
    """
    nomiracl_folder(tmp_path)
    for name in ("relevant", "non_relevant"):
        path = tmp_path / name / "aa.test.vanilla_prompt.jsonl.gz"
        answers = dict.fromkeys(MODELS[1:], REPLIES[1])
        lines = [
            dict(line) | {"results": dict(line["results"]) | answers}
            for line in stored_lines(path).records
        ]
        write_records(path, lines)
    rows = by_cell(tmp_path)
    hallucination, error = rows["language aa", HALLUCINATION], rows["language aa", ERROR]
    assert error.high < 0.0 < hallucination.low
    assert {hallucination.verdict, error.verdict} == {"ahead", "behind"}
    for row, sibling in ((hallucination, error), (error, hallucination)):
        assert row.note.endswith(f"the {sibling.metric} is {sibling.verdict}, both together: trade")
    counts = League(tuple(rows.values()), ()).verdict_counts()["nomiracl"]
    assert sum(counts.values()) == 2 * 3
    assert counts["trade"] >= 1


def test_a_judged_language_is_not_fitted_on(tmp_path: Path) -> None:
    """With its folders exchanged the same questions are answered.

    Each rate is one less the other.
    """
    before = by_cell(nomiracl_folder(tmp_path))
    name = "aa.test.vanilla_prompt.jsonl.gz"
    lines = {
        folder: (tmp_path / folder / name).read_bytes() for folder in ("relevant", "non_relevant")
    }
    (tmp_path / "relevant" / name).write_bytes(lines["non_relevant"])
    (tmp_path / "non_relevant" / name).write_bytes(lines["relevant"])
    after = by_cell(tmp_path)
    for metric, opposite in ((HALLUCINATION, ERROR), (ERROR, HALLUCINATION)):
        assert after["language aa", metric].raglab == pytest.approx(
            1.0 - before["language aa", opposite].raglab
        )
    assert after["language bb", HALLUCINATION].raglab != before["language bb", HALLUCINATION].raglab


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 12))
def test_the_threshold_is_the_highest_allowed(chances: list[int], allowed: int) -> None:
    """No more is refused than is allowed; the next level would refuse more."""
    values, share = np.array(chances) / 4, allowed / 12
    threshold = refusal_threshold(values, share)
    assert (values < threshold).mean() <= share
    higher = values[values > threshold]
    assert not len(higher) or (values < higher.min()).mean() > share


def test_missing_replies_and_models(tmp_path: Path) -> None:
    """A question without a reply of the reference is not judged; a repeated one counts once.

    Both are said.
    """
    nomiracl_folder(tmp_path)
    path = tmp_path / "relevant" / "aa.test.vanilla_prompt.jsonl.gz"
    records = [dict(record) for record in stored_lines(path).records]
    records[0] = records[0] | {
        "results": {"gpt-4-azure": "Unable to generate response.", "orca": REPLIES[1]}
    }
    write_records(path, [*records, records[1], "{\n"])
    row = by_cell(tmp_path)["language aa", ERROR]
    assert row.n == 59
    for text in (
        "not judged: 1",
        "already there, dropped: 1",
        "no JSON object, dropped: 1",
        "replies that are missing: 3",
    ):
        assert text in row.note


def test_one_language_or_no_reference(tmp_path: Path) -> None:
    """Nothing to choose on, nothing to compare with: rows that are not judged."""
    rows = nomiracl_rows(nomiracl_folder(tmp_path / "a", languages=("aa",)))
    assert {row.verdict for row in rows} == {"not judged"}
    for row in rows:
        assert "not judged, for other languages hold no 10 of a kind" in row.note
        assert "nan" not in row.note
    folder = tmp_path / "b"
    for name in ("relevant", "non_relevant"):
        write_records(
            folder / name / "aa.test.x.jsonl", [{"query_id": 1, "results": {MODELS[2]: "Yes"}}]
        )
    assert is_nomiracl(folder)
    (row,) = nomiracl_rows(folder)
    assert (row.verdict, "gpt-4" in row.note) == ("not judged", True)


def test_an_error_rate_that_no_other_language_has(tmp_path: Path) -> None:
    """The reference lacks the answerable questions of `bb`.

    They set no threshold for `aa`, and are not judged.
    """
    nomiracl_folder(tmp_path, languages=("aa", "bb"))
    path = tmp_path / "relevant" / "bb.test.vanilla_prompt.jsonl.gz"
    records = [dict(record) for record in stored_lines(path).records]
    for record in records:
        record["results"] = {
            name: text for name, text in record["results"].items() if not name.startswith("gpt-4")
        }
    write_records(path, records)
    for (cell, _), row in by_cell(tmp_path).items():
        assert row.verdict == "not judged", cell
        assert "not judged" in row.note, cell


def test_runs_are_cells_of_their_own(tmp_path: Path) -> None:
    """Of another split or template.

    They change nothing in the published run, and have no published figure.
    """
    before = by_cell(nomiracl_folder(tmp_path))
    for name in ("relevant", "non_relevant"):
        for language in ("aa", "bb", "cc"):
            path = tmp_path / name / f"{language}.test.vanilla_prompt.jsonl.gz"
            # by name before the published one
            for run in ("dev.vanilla_prompt", "test.explanation_prompt"):
                records = [dict(record) for record in stored_lines(path).records]
                if run.startswith("test"):
                    records = [
                        record | {"results": dict.fromkeys(MODELS, REPLIES[0])}
                        for record in records
                    ]
                write_records(path.with_name(f"{language}.{run}.jsonl"), records)
    after = by_cell(tmp_path)
    assert {key: repr(row) for key, row in after.items() if key in before} == {
        key: repr(row) for key, row in before.items()
    }
    assert len(after) == 3 * len(before)
    development = after["language aa, dev.vanilla_prompt, open models alone", ERROR]
    assert development.difference == before["language aa, open models alone", ERROR].difference
    whole = after["all, dev.vanilla_prompt", HALLUCINATION]
    assert (np.isnan(whole.published), is_pooled(whole)) == (True, True)
    # by all models, which tells nothing
    refused = after["language aa, test.explanation_prompt", ERROR]
    assert (refused.verdict, refused.published_source) == (
        "not judged",
        "the paper's figures are of test.vanilla_prompt",
    )


def test_the_reference_in_capitals(tmp_path: Path) -> None:
    """Its name begins with gpt-4; one that holds it elsewhere is no reference, and none is said."""
    nomiracl_folder(tmp_path)
    before = by_cell(tmp_path)["language aa", ERROR]
    paths = sorted(tmp_path.glob("*/*.gz"))
    plain = [[dict(record) for record in stored_lines(path).records] for path in paths]
    for name in ("GPT-4-azure", "a-gpt-4-distill"):
        for path, records in zip(paths, plain, strict=True):
            changed = [
                record
                | {
                    "results": {
                        name if of == "gpt-4-azure" else of: text
                        for of, text in record["results"].items()
                    }
                }
                for record in records
            ]
            write_records(path, changed)
        rows = nomiracl_rows(tmp_path)
        if name.startswith("GPT"):
            row = by_cell(tmp_path)["language aa", ERROR]
            assert (row.reference, row.difference) == (
                "the reply of GPT-4-azure",
                before.difference,
            )
        else:
            assert [(row.cell, row.verdict, row.n) for row in rows] == [
                (f"language {language}", "not judged", 120) for language in ("aa", "bb", "cc")
            ]
            assert "no model's name begins with gpt-4" in rows[0].note
            assert "here: a-gpt-4-distill, gpt-3.5-turbo" in rows[0].note


def test_a_language_that_cannot_be_read(tmp_path: Path) -> None:
    """Is shown, and the others are judged as if it were not there.

    So is one without a line of replies.
    """
    before = by_cell(nomiracl_folder(tmp_path))
    for name in ("relevant", "non_relevant"):
        write_records(
            tmp_path / name / "dd.test.vanilla_prompt.jsonl",
            [{"query_id": 1, "results": {MODELS[0]: "x"}}],
        )
        write_records(tmp_path / name / "ee.test.vanilla_prompt.jsonl", ["{\n", {"query_id": 1}])
    write_records(tmp_path / "relevant" / "dd.test.vanilla_prompt.jsonl.gz", [{}])
    (tmp_path / "relevant" / "dd.test.vanilla_prompt.jsonl").unlink()
    (tmp_path / "relevant" / "dd.test.vanilla_prompt.jsonl.gz").write_bytes(
        b"\x1f\x8b\x08\x00broken"
    )
    after = by_cell(tmp_path)
    for language, text in (("dd", "must be readable"), ("ee", "no JSON object, dropped: 2")):
        row = after.pop((f"language {language}", HALLUCINATION))
        assert (row.verdict, row.n, text in row.note) == ("not judged", 0, True)
    assert {key: repr(row) for key, row in after.items()} == {
        key: repr(row) for key, row in before.items()
    }
    for path in tmp_path.glob("*/??.*"):
        if path.name[:2] != "ee":
            path.unlink()
    (row,) = nomiracl_rows(tmp_path)
    assert "no line holds a reply" in row.note
