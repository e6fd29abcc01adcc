"""Tables of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raglab import metrics
from raglab.extensions.league.own_tables import _answer_table, _parts, own_rows
from raglab.store.files import InputError


def own_frame(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Three groups, a signal that is surer upwards, one that is so downwards, and a decision to beat."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(size=rows)
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "group": np.arange(rows) % 3,
            "correct": (skill + rng.normal(size=rows) > 0).astype(int),
            "sure": (skill + rng.normal(size=rows)).round(2),
            "length": (-skill + rng.normal(size=rows)).round(2),
            "text": "x",
            "cost": 3,
            "baseline": (skill > 0.5).astype(int),
        }
    )


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    """CSV, JSON lines and Parquet; the price of a row is the mean cost; the text is no signal, which is said."""
    frame = own_frame()
    frame.to_csv(tmp_path / "own.csv", index=False)
    frame.to_json(tmp_path / "own.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "own.parquet")
    results = [own_rows(tmp_path / f"own.{suffix}") for suffix in ("csv", "jsonl", "parquet")]
    assert len({repr(rows) for rows, _ in results}) == 1
    rows, notes = results[0]
    assert [row.cell for row in rows] == ["0", "0", "1", "1", "2", "2", "all", "all"]
    assert {(row.table, row.calls, row.reference) for row in rows} == {("own", 3.0, "the baseline of the table")}
    group = frame[frame["group"] == 1]
    assert rows[2].reproduced == pytest.approx(metrics.auroc(group["correct"], group["baseline"]))
    # Both signals help, also the one that ranks against the labels.
    assert rows[2].raglab > metrics.auroc(group["correct"], group["sure"])
    assert notes == [
        "Columns that are not of numbers, or have one value, are no signals: 1 (text).",
        "Signals: sure, length.",
    ]


def test_without_groups_and_baseline(tmp_path: Path) -> None:
    """Folds of questions, against the best single signal; rows of one question are in one fold, and one cluster."""
    frame = own_frame().drop(columns=["group", "baseline"]).assign(id=np.arange(300) // 2)
    frame.loc[:3, "correct"] = np.nan
    vote = frame["sure"].gt(0).astype(object)
    vote[::9] = None
    frame.assign(vote=vote).to_json(tmp_path / "own.jsonl", orient="records", lines=True)
    (row,), notes = own_rows(tmp_path / "own.jsonl")
    assert (row.n, row.clusters, row.cell) == (296, 148, "all questions")
    assert notes[-1] == "Signals: sure, length, vote."  # truth values with blanks are a signal
    assert row.difference == pytest.approx(row.raglab - row.free)
    assert row.fitted_on == "the other 4 of 5 folds of questions"
    assert np.isnan(row.reproduced)
    assert "Rows without a verdict, dropped: 4." in notes


def test_groups_that_share_their_questions(tmp_path: Path) -> None:
    """Are judged in folds: neither the group nor a judged question is fitted on, and AUROC is the mean over folds."""
    frame = own_frame().assign(id=lambda frame: frame.index // 3)
    frame.to_csv(tmp_path / "own.csv", index=False)
    rows, notes = own_rows(tmp_path / "own.csv")
    assert "not judged" not in {row.verdict for row in rows}
    assert notes[-1].startswith("All groups share their questions")
    for row in (row for row in rows if row.metric == "AUROC"):
        assert row.difference == pytest.approx(row.raglab - row.reproduced)
    table = _answer_table(
        tmp_path / "own.csv", frame, frame["correct"].to_numpy(bool), {"sure": frame["sure"].to_numpy()}
    )
    parts, _ = _parts(table, 0)
    assert sum(part.judged.sum() for part in parts) == len(frame)
    for part in parts:
        assert part.fit.any()
        assert not {*table.question[part.judged]} & {*table.question[part.fit]}
        assert not {*table.cell[part.judged]} & {*table.cell[part.fit]}


def test_answers_without_a_baseline_are_not_compared(tmp_path: Path) -> None:
    """The rows are those of a table in which they have none to judge; a decision still decides."""
    frame = own_frame(600)
    frame["baseline"] = frame["baseline"].where(frame.index % 7 > 0)
    frame.to_csv(tmp_path / "own.csv", index=False)
    rows, _ = own_rows(tmp_path / "own.csv")
    first = frame[(frame["group"] == 0) & frame["baseline"].notna()]
    assert (rows[0].n, rows[1].n) == (len(first), len(first))
    assert rows[0].reproduced == pytest.approx(metrics.auroc(first["correct"], first["baseline"]))
    assert "answers without the baseline of the table, left out: 29" in rows[0].note
    assert rows[1].metric == "accuracy at the reference's coverage"
    frame.assign(baseline=frame["baseline"].where(frame["group"] > 0)).to_csv(tmp_path / "own.csv", index=False)
    rows, _ = own_rows(tmp_path / "own.csv")
    assert (rows[0].verdict, rows[0].n) == ("not judged", 0)
    frame.assign(baseline=np.nan).to_csv(tmp_path / "own.csv", index=False)
    rows, notes = own_rows(tmp_path / "own.csv")
    assert rows[0].reference == "the best single signal where it was fitted"
    assert "The column baseline has no number and is ignored." in notes


def test_columns_that_are_no_signals(tmp_path: Path) -> None:
    """Row numbers and the verdict itself are left out; what ranks almost like it is flagged."""
    frame = own_frame().assign(label=lambda frame: 1 - frame["correct"], turn=np.arange(1, 301))
    frame["near"] = frame["correct"] * 10 + frame["sure"] / 100
    frame.to_csv(tmp_path / "own.csv")  # with pandas' index
    rows, notes = own_rows(tmp_path / "own.csv")
    assert "Columns that number the rows, left out: 2 (Unnamed: 0, turn)." in notes
    assert "Columns that equal correct or its opposite, left out: 1 (label)." in notes
    assert "Signals: sure, length, near." in notes
    assert "near alone ranks with an AUROC of 1.0000: check that it is no verdict." in notes
    assert {row.hindsight_name for row in rows if row.metric == "AUROC"} == {"near"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="correct"), "must have the columns id and correct"),
        (lambda frame: frame.assign(correct=2), "correct must be 0 or 1, got 2"),
        (lambda frame: frame.drop(columns=["sure", "length"]), "must have a column of numbers beside id"),
        (lambda frame: frame.assign(baseline="high"), "baseline must be a column of numbers"),
    ],
)
def test_a_table_that_cannot_be_judged(tmp_path: Path, change: object, message: str) -> None:
    """Says what is missing."""
    change(own_frame()).to_csv(tmp_path / "own.csv", index=False)  # type: ignore[operator]
    with pytest.raises(InputError, match=message):
        own_rows(tmp_path / "own.csv")
