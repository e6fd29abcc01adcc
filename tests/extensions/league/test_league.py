"""The league: what lies in a folder, its rows, page and command."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from league_files import dba_folder, nomiracl_folder, write_records
from raglab.cli import app
from raglab.extensions.league.league import MANY, League, layout_folders, league_table, line_text
from raglab.extensions.league.pages import HEAD, league_page
from raglab.extensions.league.rows import RATES, LeagueRow
from raglab.store.files import InputError

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "league"
has_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the published tables are not on this machine"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two tables, one of them below others."""
    dba_folder(tmp_path / "data" / "dba")
    nomiracl_folder(tmp_path / "data" / "clone" / "results" / "baselines")
    return tmp_path / "data"


def called(*arguments: object) -> tuple[int, str]:
    """Exit code, and what is printed."""
    done = CliRunner().invoke(app, ["league", *map(str, arguments)])
    return done.exit_code, done.output


def test_tables_in_a_folder_and_by_themselves(data: Path) -> None:
    """At any depth, in the order of the layouts; and where the path is one.

    Hidden folders are passed over.
    """
    shutil.copytree(data / "dba", data / ".git" / "dba")
    result = league_table(data)
    assert [*dict.fromkeys(row.table for row in result.rows)] == ["dba", "nomiracl"]
    single = [league_table(data / "dba"), league_table(data / "clone" / "results" / "baselines")]
    assert repr(result.rows) == repr((*single[0].rows, *single[1].rows))
    assert result.notes == (*single[0].notes, *single[1].notes)
    assert repr(league_table(data, table="dba").rows) == repr(single[0].rows)


def test_layouts_of_arms(tmp_path: Path) -> None:
    """Known by `arms` in a first record, and by folders of predictions."""
    write_records(tmp_path / "p" / "val_x.jsonl", [{"prompt": "a", "arms": {}}])
    for part in ("dev_5", "test"):
        place = tmp_path / "a" / part / f"nor_qa_model_set__{part}"
        place.mkdir(parents=True)
        (place / "prediction__set.json").write_text("{}")
    assert [(layout.name, folder.name) for layout, folder in layout_folders(tmp_path)] == [
        ("paretobandit", "p"),
        ("adarague", "a"),
    ]


def test_two_copies_are_kept_apart(data: Path) -> None:
    """The folder is part of the cell's name, and rows of all cells stay rows of all."""
    shutil.copytree(data / "dba", data / "old")
    result = league_table(data, table="dba")
    assert {row.cell for row in result.rows} > {
        "first / a in dba",
        "first / a in old",
        "all in dba",
    }
    assert sum(result.verdict_counts()["dba"].values()) == 2 * 2 * 6


def test_nothing_there(tmp_path: Path) -> None:
    """Is refused with all that was looked for."""
    with pytest.raises(
        InputError, match=r"dba \(.*nomiracl \(.*paretobandit \(.*adarague \(.*got none"
    ) as caught:
        league_table(tmp_path)
    assert ".parquet" in str(caught.value)
    with pytest.raises(InputError, match="no such folder"):
        league_table(tmp_path / "nothing")
    with pytest.raises(InputError, match="table must be one of dba, nomiracl"):
        league_table(tmp_path, table="dbb")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=r"must be a file \.csv"):
        league_table(tmp_path / "a.txt")


def test_the_result(data: Path) -> None:
    """Frame, short form, display and page hold every row; the hash tells other contents."""
    result = league_table(data)
    assert tuple(result.frame().columns) == LeagueRow._fields
    assert len(result.frame()) == len(result.rows) == 14 + 16
    assert repr(result).startswith("League(rows=30)\n  dba: ")
    assert result._repr_html_().count("<details") == 3
    page = league_page(result)
    assert MANY in page.partition("## dba")[0]
    assert page.count("\n| ") == len(result.rows) + 2 * 2
    assert page.count(" | ".join(HEAD)) == 2
    before = result.notes[0]
    path = next((data / "dba").glob("*/*/*.jsonl"))
    path.write_text(path.read_text() + "\n")
    assert league_table(data).notes[0] != before


def test_losses_stay() -> None:
    """A row behind is shown as such."""
    row = LeagueRow(
        "t",
        "c",
        "",
        "AUROC",
        higher_is_better=True,
        n=9,
        difference=-0.1,
        low=-0.2,
        high=-0.05,
        verdict="behind",
    )
    result = League((row,), ())
    assert "1 behind" in repr(result)
    assert "| behind |" in league_page(result)
    assert "behind" in result._repr_html_()


def test_lines_of_text() -> None:
    """Calls stand where they differ, the note always, figures where there is a verdict.

    Costs are no calls.
    """
    row = LeagueRow(
        "t", "c", "", "AUROC", higher_is_better=True, n=9, raglab=0.5, difference=0.1, reference="x"
    )
    row = row._replace(verdict="level", low=-0.1, high=0.3, calls=1.0, reference_calls=1.0)
    head = "t | c | AUROC: level; raglab 0.500, +0.100 [-0.100, +0.300] against x"
    unknown = float("nan")
    texts = {
        head: row,
        f"{head}; dropped: 3": row._replace(note="dropped: 3"),
        f"{head}; free policy 0.400; calls 4.25 against 1": row._replace(calls=4.25, free=0.4),
        f"{head}; calls ? against 1": row._replace(calls=unknown),
        f"{head}; cost 0.00274 an answer": row._replace(calls=0.00274, reference_calls=unknown),
        f"{head};": row._replace(calls=unknown, reference_calls=unknown, note=" "),
        "t | c | AUROC: not judged; few": row._replace(verdict="not judged", note="few"),
    }
    assert [line_text(row).rstrip() for row in texts.values()] == list(texts)


def test_rows_that_are_not_judged_share_a_line() -> None:
    """Those of one reason, however many; without a verdict nothing stands on verdicts by chance."""
    rows = [
        LeagueRow(
            "t",
            f"c{n}",
            "",
            "AUROC",
            higher_is_better=True,
            n=1,
            note="all 1 answers are right" * (n > 0),
        )
        for n in range(300)
    ]
    result = League(tuple(rows), ())
    first, second, *rest = result.text().splitlines()
    assert first == "t | c0 | AUROC: not judged"
    assert (
        second == "t | c1, c2, c3, c4, c5 and 294 more | AUROC: not judged; all 1 answers are right"
    )
    assert rest == ["League(rows=300)", "  t: 300 not judged"]
    assert MANY not in league_page(result)


def test_two_rates_are_counted_as_one() -> None:
    """Each row keeps the verdict of its own interval; the tally has that of both."""
    rows = [
        LeagueRow("t", cell, "", metric, higher_is_better=False, n=1, verdict=verdict)
        for cell, verdicts in (
            ("a", ("ahead", "behind")),
            ("b", ("level", "behind")),
            ("all", ("ahead", "level")),
        )
        for metric, verdict in zip(RATES, verdicts, strict=True)
    ]
    result = League(tuple(rows), ())
    assert result.frame()["verdict"].tolist() == [
        "ahead",
        "behind",
        "level",
        "behind",
        "ahead",
        "level",
    ]
    assert result.tally() == [("t", "1 trade, 1 behind; all cells together: 1 ahead")]


def test_what_the_page_names() -> None:
    """The free policy in its cell; the cells of a text that is not that of all rows."""
    row = LeagueRow(
        "t",
        "c",
        "judge",
        "AUROC",
        higher_is_better=True,
        n=9,
        free=0.5,
        free_name="sure",
        verdict="level",
    )
    rows = (row, row._replace(cell="d", published_source="a paper"))
    page = league_page(League(rows, ()))
    assert "| 0.500 sure |" in page
    assert "- Task: judge." in page
    assert "- Published: a paper (d)." in page


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    """From a frame as from a file; it takes no name of a published table, and no seed below 0."""
    rows = [{"id": row, "correct": row % 2, "sure": row % 2 + row % 3} for row in range(200)]
    write_records(tmp_path / "own.jsonl", rows)
    by_file, by_frame = league_table(tmp_path / "own.jsonl"), league_table(pd.DataFrame(rows))
    assert repr(by_file.rows) == repr(by_frame.rows)
    assert by_file.notes[1:] == by_frame.notes
    with pytest.raises(
        InputError, match=r"own.jsonl: .*without the name of a published table, got 'dba'"
    ):
        league_table(tmp_path / "own.jsonl", table="dba")
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        league_table(tmp_path / "own.jsonl", seed=-1)
    with pytest.raises(InputError, match=r"lost.csv: .* got no such file"):
        league_table(tmp_path / "lost.csv")
    narrow, wide = (
        json.loads(called(tmp_path / "own.jsonl", "--json", "--level", of)[1]) for of in (0.5, 0.99)
    )
    assert narrow["rows"][0]["low"] > wide["rows"][0]["low"]


def test_a_table_that_is_too_small(tmp_path: Path) -> None:
    """Is told by the exit code."""
    write_records(
        tmp_path / "own.jsonl",
        [{"id": row, "correct": row % 2, "sure": row} for row in (3, 1, 2, 8, 9)],
    )
    code, text = called(tmp_path / "own.jsonl")
    assert code == 4
    assert "20 of each are needed" in text
    assert MANY not in text


def test_what_lies_beside_the_data(data: Path) -> None:
    """Links to nothing, in a loop or to a table, folders named as files, files that are cut.

    No row changes.
    """
    before = league_table(data)
    other = data / "other" / "x"
    for name in ("relevant", "non_relevant", "a/b", "dev_1/nor_qa_m_s", "test/nor_qa_m_s"):
        (other / name / "prediction__a.json").mkdir(parents=True)
        (other / name / "val_a.jsonl").mkdir()
        (other / name / "val_b.jsonl").symlink_to(data / "nothing")
        (other / name / "val_c.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
        (other / name / "prediction__b.json").touch()
        (other / name / "prediction__c.json").symlink_to(data / "nothing")
    (other / "test_a.jsonl").symlink_to(other / "test_a.jsonl")
    (other / "again").symlink_to(data)
    (data / "z").symlink_to(data / "dba")
    assert repr(league_table(data, table="dba").rows) == repr(
        tuple(row for row in before.rows if row.table == "dba")
    )
    after = league_table(data)
    assert repr(tuple(row for row in after.rows if row.table != "adarague")) == repr(before.rows)
    assert {row.verdict for row in after.rows if row.table == "adarague"} <= {"not judged"}
    (data / "dba" / "lost.json").symlink_to(data / "nothing")
    assert "7 files, of which 1 cannot be read, SHA-256" in league_table(data, table="dba").notes[0]


def test_a_table_in_the_folder_of_another(tmp_path: Path) -> None:
    """Is there too, and its files are not counted for the one around it."""
    nomiracl_folder(tmp_path)
    dba_folder(tmp_path / "dba")
    dba_folder(tmp_path)
    # in a folder of a table's own no other is looked for
    dba_folder(tmp_path / "first" / "a" / "within")
    places = [
        (layout.name, folder.relative_to(tmp_path).as_posix())
        for layout, folder in layout_folders(tmp_path)
    ]
    assert places == [("dba", "."), ("dba", "dba"), ("nomiracl", ".")]
    (tmp_path / "val_k.jsonl").write_text('{"prompt": "a", "arms": {}}\n')
    assert ("paretobandit", tmp_path) in [
        (layout.name, folder) for layout, folder in layout_folders(tmp_path)
    ]
    result = league_table(tmp_path, table="nomiracl")
    assert len(result.rows) == 16
    assert result.notes[0].startswith(f"nomiracl: {6 + 6 + 6 + 1} files,")


def test_the_command(data: Path, tmp_path: Path) -> None:
    """Prints a line a row, writes a page or CSV with equal bytes, and JSON for programs."""
    code, text = called(data, "--out", tmp_path / "a.md")
    assert code == 0
    assert text.count(" | ") >= 2 * 30
    assert re.search(
        r" against the published assistive vote; free policy 0\.\d+ \([a-z_ ]+\); calls 4 against "
        r"1\n",
        text,
    )
    first, second, many = text.partition("League(rows=30)\n")[2].splitlines()[:3]
    assert first.startswith("  dba: ")
    assert first.endswith("; all cells together: 2 ahead")
    assert second.startswith("  nomiracl: ")
    assert many == f"  {MANY}"
    assert "dba | all | AUROC: ahead; raglab 0." in text
    assert "note: dba: 6 files, SHA-256" in text
    called(data, "--out", tmp_path / "b.md")
    assert (tmp_path / "a.md").read_bytes() == (tmp_path / "b.md").read_bytes()
    code, text = called(data, "--table", "nomiracl", "--json", "--out", tmp_path / "a.csv")
    assert len(json.loads(text)["rows"]) == 16
    assert len((tmp_path / "a.csv").read_text("utf-8").splitlines()) == 17
    assert called(data, "--out", tmp_path / "a.html")[0] != 0
    assert called(tmp_path / "empty")[0] != 0


@has_data
def test_published_tables() -> None:
    """What the league must show.

    The gain of the fused votes, and rates beside those of the replies.
    """
    rows = {(row.table, row.cell, row.metric): row for row in league_table(DATA / "dba").rows}
    gain = rows["dba", "all", "AUROC"]
    assert gain.difference >= 0.06
    assert gain.low > 0.0
    result = league_table(DATA / "nomiracl")
    published = {row.cell: row for row in result.rows if row.metric == "hallucination rate"}["all"]
    assert published.reproduced == pytest.approx(published.published, abs=0.05)
