"""Votes of models on their answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from league_files import dba_folder, dba_records, write_records
from raglab import metrics
from raglab.extensions.league.dba import dba_rows, is_dba
from raglab.extensions.league.rows import LeagueRow


def by_cell(rows: list[LeagueRow]) -> dict[tuple[str, str], LeagueRow]:
    """Rows by cell and metric."""
    return {(row.cell, row.metric): row for row in rows}


def test_rows_of_a_miniature(tmp_path: Path) -> None:
    """Two rows a cell and of all; published figures are those of the stored votes.

    The fused votes are ahead.
    """
    rows = by_cell(dba_rows(dba_folder(tmp_path)))
    assert len(rows) == 2 * (2 * 3 + 1)
    records = dba_records(11, idk="ic_idk")
    votes = [record["baselines"]["pairwise_assistive"] for record in records]
    correct, accepted = (np.array([vote[key] for vote in votes]) for key in ("correct", "accepted"))
    row = rows["second / b", "AUROC"]
    assert row.reproduced == pytest.approx(metrics.auroc(correct, accepted))
    assert row.difference == pytest.approx(row.raglab - row.reproduced)
    assert (row.n, row.clusters, row.calls, row.reference_calls) == (70, 70, 4.0, 1.0)
    assert row.fitted_on == "the other models on the other question sets"
    coverage = rows["second / b", "accuracy at the reference's coverage"]
    assert coverage.reproduced == pytest.approx(correct[accepted].mean())
    assert coverage.free == pytest.approx(correct.mean())
    whole = rows["all", "AUROC"]
    cells = [row for (cell, metric), row in rows.items() if metric == "AUROC" and cell != "all"]
    assert whole.difference == pytest.approx(np.mean([row.difference for row in cells]))
    assert (whole.verdict, whole.clusters) == ("ahead", 140)
    assert whole.low > 0.0


def test_what_is_judged_is_not_fitted_on(tmp_path: Path) -> None:
    """Other verdicts of the same model or the same set change no score of a cell.

    Of neither, they do.
    """
    before = by_cell(dba_rows(dba_folder(tmp_path)))["first / a", "AUROC"]
    for place in ("first/b", "first/c", "second/a"):
        folder = tmp_path / place
        (path,) = folder.iterdir()
        write_records(path, dba_records(99))
    same = by_cell(dba_rows(tmp_path))["first / a", "AUROC"]
    assert (same.raglab, same.difference) == (before.raglab, before.difference)
    records = dba_records(98)
    for record in records:
        for name, vote in record["baselines"].items():
            vote["accepted"] ^= name == "ays"  # a vote that tells the opposite
    write_records(tmp_path / "second" / "b" / "second_baselines_full.jsonl", records)
    assert by_cell(dba_rows(tmp_path))["first / a", "AUROC"].raglab != before.raglab


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    """Verdicts of -1, lines without the published vote, broken and repeated ones.

    A missing vote is missing.
    """
    dba_folder(tmp_path)
    records = dba_records(0)
    for vote in records[0]["baselines"].values():
        vote["correct"] = -1
    for vote in records[4]["baselines"].values():
        vote["correct"] = [1]
    del records[1]["baselines"]["pairwise_assistive"]
    del records[2]["baselines"]["ays"]
    records[3]["baselines"]["idk"]["correct"] ^= 1
    path = tmp_path / "first" / "a" / "first_baselines_full.jsonl"
    write_records(path, [*records, records[5], {"id": "x"}, "{\n"])
    row = by_cell(dba_rows(tmp_path))["first / a", "AUROC"]
    assert row.n == 67
    for text in (
        "no JSON object, dropped: 1",
        "without id or votes, dropped: 1",
        "without an assistive vote, dropped: 1",
        "other than 0 and 1, dropped: 2",
        "second answers to a question, dropped: 1",
        "lack a vote, which is missing: 1",
        "unequal verdicts, judged by the assistive vote's: 1",
    ):
        assert text in row.note


def test_gzip_and_order_change_nothing(tmp_path: Path) -> None:
    """Nor other files beside the lines."""
    plain = dba_rows(dba_folder(tmp_path / "plain"))
    zipped = dba_folder(tmp_path / "zipped", suffix=".gz")
    for path in zipped.glob("*/*/*.gz"):
        (path.parent / "README.md").write_text("x")
    assert repr(dba_rows(zipped)) == repr(plain)


def test_one_question_set_or_one_cell(tmp_path: Path) -> None:
    """What is left out is said.

    A cell without others has nothing to be fitted on, and is not judged.
    """
    rows = by_cell(dba_rows(dba_folder(tmp_path / "a", sets=("first",))))
    assert (
        rows["first / a", "AUROC"].fitted_on
        == "other models on the same question set (no other set is there)"
    )
    (row,) = dba_rows(dba_folder(tmp_path / "b", sets=("first",), models=("a",)))
    assert (row.verdict, np.isnan(row.raglab)) == ("not judged", True)
    assert "nothing to fit" in row.note


def test_the_layout_is_known_by_its_records(tmp_path: Path) -> None:
    """By `baselines` two folders down.

    Without a published vote nothing is judged, which is said.
    """
    assert is_dba(dba_folder(tmp_path / "a"))
    assert not is_dba(tmp_path / "a" / "first")
    write_records(tmp_path / "b" / "set" / "model" / "x.jsonl", [{"id": 1, "baselines": {}}])
    assert is_dba(tmp_path / "b")
    (row,) = dba_rows(tmp_path / "b")
    assert (row.verdict, row.n) == ("not judged", 0)


def test_a_cell_without_answers_is_shown(tmp_path: Path) -> None:
    """With its counts, or why it cannot be read; the others are judged as if it were not there."""
    dba_folder(tmp_path)
    before = by_cell(dba_rows(tmp_path))
    full = tmp_path / "second" / "c" / "second_baselines_full.jsonl"
    records = [
        record
        | {
            "baselines": {
                name: vote | {"correct": -1} for name, vote in record["baselines"].items()
            }
        }
        for record in dba_records(1)
    ]
    write_records(full.parents[1] / "unjudged" / "a.jsonl", records)
    write_records(full.parents[1] / "empty" / "a.jsonl", [])
    write_records(full.parents[1] / "whole" / "b.jsonl.gz", dba_records(2))
    cut = full.parents[1] / "whole" / "b.jsonl.gz"
    cut.write_bytes(cut.read_bytes()[:-10])
    write_records(full.parents[1] / "whole" / "a.jsonl", dba_records(3))
    (full.parents[1] / "link").mkdir()
    (full.parents[1] / "link" / "a.jsonl").symlink_to(tmp_path / "nothing")
    (full.parents[1] / "again").symlink_to(full.parent)  # the same folder, which is one cell
    rows = by_cell(dba_rows(tmp_path))
    shown = {
        cell: row
        for (cell, _), row in rows.items()
        if cell.partition(" / ")[2] not in {"", "a", "b", "again"}
    }
    assert {
        cell: row.verdict for cell, row in shown.items() if cell.startswith("second")
    } == dict.fromkeys(
        ("second / empty", "second / link", "second / unjudged", "second / whole"), "not judged"
    )
    assert "other than 0 and 1, dropped: 70" in shown["second / unjudged"].note
    assert "no line holds" in shown["second / empty"].note
    assert "EOFError" in shown["second / whole"].note
    assert "FileNotFoundError" in shown["second / link"].note
    assert repr(rows["first / a", "AUROC"]) == repr(before["first / a", "AUROC"])
    assert [row.cell for row in dba_rows(tmp_path)][-2:] == ["all", "all"]


def test_verdicts_of_other_numbers_and_votes_that_are_not_there(tmp_path: Path) -> None:
    """1.0 is 1; a vote that no answer of a cell has is named."""
    before = by_cell(dba_rows(dba_folder(tmp_path)))["first / a", "AUROC"]
    path = tmp_path / "first" / "a" / "first_baselines_full.jsonl"
    text = path.read_text()
    path.write_text(
        text.replace('"correct": 1', '"correct": 1.0').replace('"correct": 0', '"correct": 0.0')
    )
    assert repr(by_cell(dba_rows(tmp_path))["first / a", "AUROC"]) == repr(before)
    path.write_text(text.replace('"ays"', '"sya"'))
    assert (
        "votes that only other cells have: ays"
        in by_cell(dba_rows(tmp_path))["first / a", "AUROC"].note
    )


def test_a_cell_of_right_answers_alone(tmp_path: Path) -> None:
    """Is one row that is not judged, and no part of the mean."""
    dba_folder(tmp_path)
    path = tmp_path / "first" / "a" / "first_baselines_full.jsonl"
    path.write_text(path.read_text().replace('"correct": 0', '"correct": 1'))
    rows = by_cell(dba_rows(tmp_path))
    row = rows["first / a", "AUROC"]
    assert (row.verdict, row.note) == ("not judged", "all 70 answers are right")
    assert ("first / a", "accuracy at the reference's coverage") not in rows
    whole = rows["all", "AUROC"]
    assert whole.hindsight_name in {"ays", "idk", "pairwise_assistive", "pairwise_incremental"}
    assert 0.5 < whole.hindsight < 1.0
