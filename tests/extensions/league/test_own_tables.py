"""Tables of one's own."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab import metrics
from raglab.extensions.league.own_files import own_table
from raglab.extensions.league.own_tables import _answer_table, _parts, own_rows
from raglab.store.files import InputError


def own_frame(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Three groups, a signal that is surer upwards, one surer downwards, a decision to beat."""
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
    """CSV, JSON lines and Parquet; the price of a row is the mean cost.

    The text is no signal, which is said.
    """
    frame = own_frame()
    frame.to_csv(tmp_path / "own.csv", index=False)
    frame.to_json(tmp_path / "own.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "own.parquet")
    results = [own_rows(tmp_path / f"own.{suffix}") for suffix in ("csv", "jsonl", "parquet")]
    assert len({repr(rows) for rows, _ in results}) == 1
    rows, notes = results[0]
    assert [row.cell for row in rows] == ["0", "0", "1", "1", "2", "2", "all", "all"]
    assert {(row.table, row.calls, row.reference) for row in rows} == {
        ("own", 3.0, "the baseline of the table")
    }
    group = frame[frame["group"] == 1]
    assert rows[2].reproduced == pytest.approx(metrics.auroc(group["correct"], group["baseline"]))
    # Both signals help, also the one that ranks against the labels.
    assert rows[2].raglab > metrics.auroc(group["correct"], group["sure"])
    assert notes == [
        "Columns that are not of numbers, or have one value, are no signals: 1 (text).",
        "Signals: sure, length.",
        "300 questions, 300 answers; no question is in several of 3 groups.",
    ]
    assert rows[2].fitted_on.startswith(
        "the other groups, without the judged questions; signals used: 2 ("
    )
    assert re.search(r"length \d\d% turned round", rows[2].fitted_on)


def test_without_groups_and_baseline(tmp_path: Path) -> None:
    """Folds of questions, against the best single signal.

    Rows of one question are in one fold, and one cluster.
    """
    frame = own_frame().drop(columns=["group", "baseline"]).assign(id=np.arange(300) // 2)
    frame.loc[:3, "correct"] = np.nan
    vote = frame["sure"].gt(0).astype(object)
    vote[::9] = None
    frame.assign(vote=vote).to_json(tmp_path / "own.jsonl", orient="records", lines=True)
    (row,), notes = own_rows(tmp_path / "own.jsonl")
    assert (row.n, row.clusters, row.cell) == (296, 148, "all questions")
    assert "Signals: sure, length, vote." in notes  # truth values with blanks are a signal
    assert "vote is blank in 33 of 296 answers: it takes the median of the others there." in notes
    assert notes[-1] == "148 questions, 296 answers."
    assert row.difference == pytest.approx(row.raglab - row.free)
    assert row.fitted_on.startswith("the other 4 of 5 folds of questions; signals used: ")
    assert np.isnan(row.reproduced)
    assert "Rows without a verdict, left out: 4." in notes


def test_groups_that_share_their_questions(tmp_path: Path) -> None:
    """Are judged in folds.

    Neither the group nor a judged question is fitted on, and AUROC is the mean over folds.
    """
    frame = own_frame().assign(id=lambda frame: frame.index // 3)
    frame.to_csv(tmp_path / "own.csv", index=False)
    rows, notes = own_rows(tmp_path / "own.csv")
    assert "not judged" not in {row.verdict for row in rows}
    assert notes[-1].startswith("All groups share their questions")
    for row in (row for row in rows if row.metric == "AUROC"):
        assert row.difference == pytest.approx(row.raglab - row.reproduced)
    table = _answer_table(own_table(tmp_path / "own.csv"))
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
    frame.assign(baseline=frame["baseline"].where(frame["group"] > 0)).to_csv(
        tmp_path / "own.csv", index=False
    )
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
        (
            lambda frame: frame.assign(correct=2),
            "correct must be 0 or 1, .* got 2 in row 1, and 299 more",
        ),
        (lambda frame: frame.assign(correct=np.nan), "got no verdict; fill id and correct"),
        (
            lambda frame: frame.drop(columns=["sure", "length"]),
            "must have a column of numbers that varies .* but text",
        ),
        (lambda frame: frame[:1], "got 1 row with a verdict, of 40 at least; add rows"),
        (
            lambda frame: frame.assign(baseline="high"),
            r"baseline .*\(300 of 300 cells are not\), got 'high' in row 1",
        ),
        (
            lambda frame: frame.assign(cost=-1),
            "cost must be 0 or more, and finite, got -1 in 300 rows",
        ),
        (lambda frame: frame.assign(cost="dear"), "cost must be a column of numbers"),
        (
            lambda frame: frame.assign(sure=[*frame["sure"][:3], "error", *frame["sure"][4:]]),
            (
                r"sure must be a column of numbers \(1 of 300 cells is not\), got 'error' in row "
                r"4; "
                r"correct it"
            ),
        ),
        (
            lambda frame: frame.assign(sure=frame["sure"].astype(str) + "%"),
            "%' in row 1; write 88% as 88",
        ),
        (
            lambda frame: frame.rename(columns={"id": "ID", "correct": "Correct"}),
            "rename ID to id and Correct to corr",
        ),
    ],
)
def test_a_table_that_cannot_be_judged(tmp_path: Path, change: object, message: str) -> None:
    """Says what is missing."""
    change(own_frame()).to_csv(tmp_path / "own.csv", index=False)  # type: ignore[operator]
    with pytest.raises(InputError, match=message):
        own_rows(tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "", "a.jsonl: a table must hold rows, got none"),
        ("a.jsonl", '[{"id": 1}]', "a.jsonl: .*write one JSON object a line"),
        ("a.parquet", "no table", "a.parquet: a Parquet file must be whole"),
    ],
)
def test_a_file_that_is_no_table(tmp_path: Path, name: str, text: str, message: str) -> None:
    """Is named."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        own_rows(tmp_path / name)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_blanks_by_chance_cost_little(share: float) -> None:
    """The fused decision stays near that of the whole table, and ahead of its best signal.

    Each is counted.
    """
    frame = own_frame(900).drop(columns=["baseline", "text"])
    (*_, whole), _ = own_rows(frame)
    rng = np.random.default_rng(1)
    for name in ("sure", "length"):
        frame[name] = frame[name].where(rng.random(900) >= share)
    (*_, row), notes = own_rows(frame)
    assert row.raglab > whole.raglab - share / 4
    assert (row.verdict, row.n) == (
        "ahead",
        900 - int(frame[["sure", "length"]].isna().all(axis=1).sum()),
    )
    n = int((frame["sure"].isna() & frame["length"].notna()).sum())
    assert (
        f"sure is blank in {n} of {row.n} answers: it takes the median of the others there."
        in notes
    )


def test_a_row_without_signals_is_left_out_alone() -> None:
    """Its group is judged, and the row of all counts what is judged."""
    frame = own_frame(600)
    frame.loc[0, ["sure", "length"]] = np.nan
    rows, notes = own_rows(frame)
    assert "Rows without any signal, left out: 1." in notes
    assert [row.n for row in rows if row.metric == "AUROC"] == [199, 200, 200, 599]
    assert "not judged" not in {row.verdict for row in rows}


@pytest.mark.parametrize("decides", [True, False])
# a parameter
def test_a_baseline_the_wrong_way_round_is_not_compared_with(decides: bool) -> None:
    """A decision or a score; direction and remedy stand in a note."""
    frame = own_frame()
    frame["baseline"] = 1 - frame["baseline"] if decides else frame["length"]
    rows, notes = own_rows(frame)
    assert {row.verdict for row in rows} == {"not judged"}
    assert all(np.isnan(row.difference) and "the wrong way round" in row.note for row in rows)
    assert re.search(
        r"wrong way round \(AUROC 0\.\d+, mean over groups\): it must be 1 for accept", notes[-1]
    )


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_the_direction_of_a_baseline_is_that_within_groups(direction: float) -> None:
    """Groups of other ranges, which follow or oppose their right-answer shares, change nothing."""
    frame = own_frame(600)
    share = np.array([0.85, 0.5, 0.15])[frame["group"]]
    order = frame.groupby("group")["sure"].rank(pct=True)
    frame["correct"] = (order > 1.0 - share).astype(int)
    offset = -direction * 10.0 * share  # what all answers together rank by
    frame["baseline"] = direction * order + offset
    pooled = metrics.auroc(frame["correct"] == 1, frame["baseline"])
    assert (pooled > 0.5) != (direction > 0.0)
    rows, _ = own_rows(frame.drop(columns="sure"))
    assert all(
        (row.verdict == "not judged") == (direction < 0.0) for row in rows if row.metric == "AUROC"
    )


def test_a_baseline_of_other_values_is_a_score() -> None:
    """Two values that are not 0 and 1 have no accuracy, which is said."""
    frame = own_frame()
    rows, notes = own_rows(frame.assign(baseline=frame["baseline"] + 1))
    assert {row.metric for row in rows} == {"AUROC"}
    assert any(
        note.startswith("baseline has the values 1 and 2, and is read as a score") for note in notes
    )


def test_groups_in_other_ranges_keep_their_order() -> None:
    """One signal with an offset in each group is fused to itself."""
    frame = own_frame(600)[["id", "group", "correct", "sure"]]
    frame["sure"] += frame["group"].map({0: 0.0, 1: 20.0, 2: -20.0})
    for row in own_rows(frame)[0]:
        assert row.difference == pytest.approx(0.0, abs=0.02)


def test_costs_are_no_calls() -> None:
    """Without costs calls are not known; blank ones are counted, and the mean is of the others."""
    frame = own_frame()
    assert all(np.isnan(row.calls) for row in own_rows(frame.drop(columns="cost"))[0])
    frame["cost"] = np.where(frame.index < 200, np.nan, 2.0)
    rows, notes = own_rows(frame)
    assert {(row.calls, str(row.reference_calls)) for row in rows} == {(2.0, "nan")}
    assert "cost is blank in 200 of 300 answers: the mean is of the others." in notes


def test_groups_that_are_blank_or_named_as_the_row_of_all() -> None:
    """The ones have no part; the others are renamed."""
    frame = own_frame(600)
    names = frame["group"].map({0: "all", 1: "b", 2: "c"}).where(frame.index >= 30)
    rows, notes = own_rows(frame.assign(group=names))
    assert "Rows without a group, left out: 30." in notes
    assert "The group all is shown as group all: all is the row of all cells." in notes
    assert {row.cell for row in rows} == {"b", "c", "group all", "all"}
    (row, *_), notes = own_rows(frame.assign(group=np.nan))
    assert (row.cell, notes[0]) == ("all questions", "The column group is blank and is ignored.")


@pytest.mark.parametrize(
    ("first", "second", "n"),
    [("7", "7.0", 1), ("q7", " q7 ", 1), ("7", "0007", 2), ("1.1", "1.0", 2), ("q7", "Q7", 2)],
)
def test_ids_of_one_question(first: str, second: str, n: int) -> None:
    """Blanks around and the decimals of a whole number tell no questions apart.

    Texts that differ do.
    """
    frame = pd.concat([own_frame(60), own_frame(60).assign(group=3)]).astype({"id": str})
    frame["id"] = "x" + frame["id"]
    frame.iloc[[0, 60], 0] = [first, second]
    _, notes = own_rows(frame)
    assert any(
        note.startswith(f"{59 + n} questions, 120 answers; {60 - n + 1} are in") for note in notes
    )


def test_rows_that_repeat_or_contradict() -> None:
    """Are counted; so are infinite cells, verdict words, and columns nearly named as a field."""
    frame = own_frame()
    _, notes = own_rows(
        pd.concat([frame, frame[:50], frame[:7].assign(correct=1 - frame["correct"][:7])])
    )
    assert "Rows that repeat another one: 50; they are answers to one question." in notes
    assert "Ids with right and wrong answers in one group: 7." in notes
    frame["sure"] = frame["sure"].where(frame.index != 5, np.inf)
    frame = frame.rename(columns={"baseline": "Baseline"}).assign(
        correct=frame["correct"].map({0: "No", 1: "yes"})
    )
    rows, notes = own_rows(frame)
    assert "sure is infinite in 1 answer, and is read as blank there." in notes
    assert "correct is read from words: no as 0, yes as 1." in notes
    assert "Baseline is read as any other column: did you mean baseline?" in notes
    assert rows[0].n == 100


@given(st.integers(0, 20), st.sampled_from(["sure", "length", "coarse"]))
@settings(max_examples=15)
def test_the_sign_of_a_signal_changes_nothing(seed: int, name: str) -> None:
    """Not the figures, nor the verdicts, with blanks and ties."""
    frame = own_frame(120, seed).drop(columns=["baseline", "text"])
    frame["coarse"] = frame["sure"].round().where(frame.index % 5 > 0)
    before, after = own_rows(frame)[0], own_rows(frame.assign(**{name: -frame[name]}))[0]
    names = {"hindsight_name": "", "free_name": "", "fitted_on": ""}
    assert [repr(row._replace(**names)) for row in before] == [
        repr(row._replace(**names)) for row in after
    ]


def test_columns_of_one_name_are_refused() -> None:
    """As a merge of frames may leave them."""
    frame = own_frame()
    with pytest.raises(InputError, match="a column must have a name of its own"):
        own_rows(pd.concat([frame, frame[["sure"]]], axis=1))
