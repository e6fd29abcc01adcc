"""Cases and chunks from tables.

Worked examples first, then what wrong columns and cells are told.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import refusals
from raglab.store.files import InputError
from raglab.store.loaders import load_cases, load_corpus, save_cases, save_corpus
from raglab.values import Case, Chunk

NAN = float("nan")
CASES = pd.DataFrame(
    {
        "id": ["w1", "w2", "w3"],
        "question": ["Who pays?", "Who won?", "Which one?"],
        "label": ["ok", "refuse", "ambiguous"],
        "expect_sources": [["a.md", "b.md#2"], None, "c.md ; d.md#10;"],
        "min_sources": [2, NAN, 0],
        "expect_option": [NAN, NAN, 1.0],
        "split": ["tune", " ", None],
        "lang": ["en", "fr", NAN],
        "weight": [1, 2, 3],
    }
)
WANTED = (
    Case(
        "w1",
        "Who pays?",
        "ok",
        ("a.md", "b.md#2"),
        min_sources=2,
        split="tune",
        extra={"lang": "en", "weight": 1},
    ),
    Case("w2", "Who won?", "refuse", extra={"lang": "fr", "weight": 2}),
    Case(
        "w3", "Which one?", "ambiguous", ("c.md", "d.md#10"), expect_option=1, extra={"weight": 3}
    ),
)
CHUNKS = pd.DataFrame(
    {
        "id": [1, 2],
        "body": ["Glass is covered.", "Theft is not."],
        "source": ["d/a.md", None],
        "page": [1, NAN],
        "entities": ["Acme;Leeds", NAN],
        "product": ["Home", None],
        "year": [2020, NAN],
    }
)


def told(call: Any, *parts: str) -> str:
    """Message with which a table is refused; it holds all parts."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    refusals.told(message, *parts)
    return message


def test_a_frame_of_cases() -> None:
    """A row a case.

    Lists as lists or with semicolons, NaN and blanks absent, other columns in `extra`.
    """
    assert load_cases(CASES) == WANTED


def test_a_map_names_the_columns() -> None:
    """Ours first, then theirs; without ids the cases are numbered."""
    frame = pd.DataFrame({"q": ["Who pays?"], "gold": ["ok"], "query_id": ["7"]})
    found = load_cases(frame, columns={"query": "q", "expect_status": "gold"})
    assert found == (Case("q1", "Who pays?", "ok", extra={"query_id": "7"}),)
    assert (
        load_cases(frame, columns={"query": "q", "label": "gold", "case_id": "query_id"})[0].id
        == "7"
    )


@pytest.mark.parametrize(("ending", "sep"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_a_file_of_cases(tmp_path: Path, ending: str, sep: str) -> None:
    """CSV and TSV hold the same as the frame, lists as JSON.

    Integers may be written as pandas does, 2.0.
    """
    lists = [
        None if value is None else json.dumps(["a.md", "b.md#2"])
        for value in CASES["expect_sources"][:2]
    ]
    path = tmp_path / f"mine.{ending}"
    CASES[:2].assign(expect_sources=lists).drop(columns="weight").to_csv(path, index=False, sep=sep)
    assert load_cases(path) == tuple(
        case._replace(extra={"lang": case.extra["lang"]}) for case in WANTED[:2]
    )


def test_a_frame_of_chunks() -> None:
    """A row a chunk.

    Ids may be integers, other columns are tags, a chunk without a source is its own document.
    """
    first = Chunk(
        "1",
        "Glass is covered.",
        "d/a.md",
        1,
        None,
        {"product": "Home", "year": "2020"},
        ("Acme", "Leeds"),
    )
    corpus = load_corpus(CHUNKS, columns={"text": "body"})
    assert (corpus.name, corpus.chunks) == ("frame", (first, Chunk("2", "Theft is not.", "2")))
    tags = [{"domain": "x"}, '{"year": "2021"}']
    made = load_corpus(CHUNKS.rename(columns={"body": "text"}).assign(tags=tags))
    assert [dict(chunk.tags) for chunk in made.chunks] == [
        {"domain": "x", "product": "Home", "year": "2020"},
        {"year": "2021"},
    ]


def test_a_csv_is_chunks_or_a_document(tmp_path: Path) -> None:
    """By its heads or a map; any other CSV is one document, as in a folder."""
    path, frame = tmp_path / "mine.csv", CHUNKS.drop(columns="year")
    chunks = load_corpus(frame, columns={"text": "body"}).chunks
    frame.to_csv(path, index=False)
    assert load_corpus(path).chunks[0].full_text.startswith("mine\n| id | body |")
    assert load_corpus(path, columns={"text": "body"}).chunks == chunks
    frame.rename(columns={"body": "text"}).to_csv(path, index=False)
    assert load_corpus(path).name == "mine"
    assert load_corpus(path).chunks == chunks


def test_what_was_read_is_stored_and_read_again(tmp_path: Path) -> None:
    """A table and the JSON lines written from it give the same."""
    save_cases(load_cases(CASES), tmp_path / "cases.jsonl")
    assert load_cases(tmp_path / "cases.jsonl") == WANTED
    corpus = load_corpus(CHUNKS, columns={"text": "body"})
    save_corpus(corpus, tmp_path / "corpus.jsonl")
    assert load_corpus(tmp_path / "corpus.jsonl") == corpus


@pytest.mark.parametrize(
    ("column", "cells", "rule"),
    [
        ("label", ["ok", "yes", "no"], "got 'yes'; replace your labels by ours"),
        ("label", ["ok", "yes", "no"], ".replace({'yes': '…', 'no': '…'})"),
        ("label", ["ok", None, "refuse"], "column label: expect_status must not be missing"),
        ("question", ["a", " ", "c"], "column question: query must not be missing"),
        ("question", ["a", 3, "c"], "query must be a text of at most 20000 characters, got 3"),
        ("id", ["a", None, "c"], "column id: id must not be missing"),
        (
            "id",
            ["a", "a", "c"],
            "column id: id must be unique, got 'a' again (first in row 0); rename",
        ),
        ("id", ["1", 1, "c"], "id must be unique, got '1' again (first in row 0)"),
        (
            "expect_sources",
            [None, "d/a.md#x", None],
            "expect_sources must be texts, each path or path#page, page an",
        ),
        (
            "expect_sources",
            [None, "a.md#iv", None],
            "got 'a.md#iv'; give the page's number from 1, not its printed",
        ),
        ("expect_sources", [None, "['a.md']", None], "got \"['a.md']\"; write a list"),
        ("expect_sources", [None, ["a.md", NAN], None], "expect_sources must be texts"),
        (
            "min_sources",
            [None, 1.5, None],
            "min_sources must be an integer from 0, of 31 bits, got 1.5",
        ),
        (
            "min_sources",
            ["1", "one", None],
            "min_sources must be an integer from 0, of 31 bits, got 'one'",
        ),
        ("expect_option", [None, 0, None], "expect_option must be an integer from 1"),
        (
            "split",
            ["tune", 1, None],
            "split must be a text, got 1; convert the column with .astype(str)",
        ),
        ("lang", ["en", pd.Timestamp("2020-01-01"), None], "lang must be a JSON value"),
        ("split", ["tune", "\ud800", None], "half of a surrogate pair"),
    ],
)
def test_a_wrong_cell_is_told(column: str, cells: list[Any], rule: str) -> None:
    """Row and column, rule, what came, remedy."""
    frame = CASES.assign(**{column: pd.Series(cells, dtype=object)})
    told(lambda: load_cases(frame), "frame, row 1, column ", rule)
    labelled = told(
        lambda: load_cases(frame.set_axis(["x", "y", "z"])), "frame, row 1 (index 'y'), column "
    )
    assert "row 1 (index 'y')" in labelled


@pytest.mark.parametrize(
    ("column", "cell", "rule"),
    [
        ("body", " ", "text must not be missing"),
        ("body", 3, "text must be a text that is not blank, got 3"),
        (
            "page",
            0,
            (
                "page must be an integer from 1, of 31 bits, got 0; write a printed label into "
                "page_label"
            ),
        ),
        ("page", "iv", "page must be an integer from 1"),
        ("year", True, "year must be a text or a number, since it becomes a tag, got True"),
        ("year", ["a"], "year must be a text or a number"),
        ("entities", 3, "entities must be texts, got 3"),
        ("tags", "x", "tags must be a mapping of texts to texts, got 'x'"),
        ("id", 1, "id must be unique"),
    ],
)
def test_a_wrong_cell_of_a_chunk_is_told(column: str, cell: object, rule: str) -> None:
    """The same for chunks."""
    cells = [CHUNKS[column][0] if column in CHUNKS else None, cell]
    frame = CHUNKS.assign(**{column: pd.Series(cells, dtype=object)})
    told(
        lambda: load_corpus(frame, columns={"text": "body"}),
        f"frame, row 1, column {column}: {rule}",
    )


def test_all_bad_rows_are_counted() -> None:
    """The first is told whole, the next few by place and value, and none is loaded."""
    frame = CASES.assign(label=["yes", "ok", "no"], question=["a", None, "b"])
    message = told(lambda: load_cases(frame), "frame, row 0, column label … got 'yes'")
    assert (
        "3 of 3 rows break a rule, next row 1, column question, got none; row 2, column label, "
        "got 'no'" in message
    )
    many = pd.DataFrame({"query": ["a"] * 1000, "label": ["no"] * 999 + ["ok"]})
    assert len(told(lambda: load_cases(many), "999 of 1,000 rows break a rule")) < 500


def test_a_file_names_its_line(tmp_path: Path) -> None:
    """The row from 0 and the line of the file, which a break inside a cell moves."""
    path = tmp_path / "mine.csv"
    path.write_text('query,label\n"two\nlines",ok\nx,yes\n', encoding="utf-8")
    told(
        lambda: load_cases(path),
        "mine.csv, row 1 (line 4), column label: expect_status must be one of",
    )
    path.write_text("query,label\na,ok,b\n", encoding="utf-8")
    told(
        lambda: load_cases(path),
        "mine.csv, line 2: a row must have as many cells as there are heads",
    )


def test_wrong_columns_are_told_together(tmp_path: Path) -> None:
    """Missing ones all at once, with what came and how to map them; a map that fits no table."""
    told(
        lambda: load_cases(CASES[["id", "lang"]]),
        (
            "the columns query, expect_status are required, got only 'id', 'lang' … "
            'columns={"query": "…", "expect_status": "…"}'
        ),
    )
    told(lambda: load_corpus(CASES), "the column text is required")
    told(
        lambda: load_cases(CASES, columns={"questions": "question"}),
        "columns must map names among id, case_id, query",
    )
    told(
        lambda: load_cases(CASES, columns={"query": "q", "id": "uid"}),
        "and q, uid is none (0 of 2 mapped columns are there), got only",
    )
    for reversed_map in (
        {"question": "query", "label": "expect_status"},
        {"label": "expect_status"},
    ):
        told(lambda map_=reversed_map: load_cases(CASES, columns=map_), "swap them: columns={")
    told(lambda: load_cases(CASES, columns=["query"]), "columns must map our names")
    told(
        lambda: load_cases(CASES.assign(query="x")),
        "query must be one column … query and question",
    )
    told(lambda: load_cases(pd.concat([CASES, CASES], axis=1)), "columns must have different names")
    told(lambda: load_cases(CASES.iloc[:0]), "at least one row … one row a case")
    told(lambda: load_cases([{"query": "x"}]), "the cases must be a pandas DataFrame, got list")
    path = tmp_path / "cases.jsonl"
    save_cases(load_cases(CASES), path)
    told(
        lambda: load_cases(path, columns={"query": "question"}),
        "columns must come with a DataFrame or a file .csv",
    )
    told(lambda: load_cases(tmp_path / "none.csv"), "got a path that does not exist")


def test_one_warning_names_odd_columns(tmp_path: Path) -> None:
    """An index that was written with the table is left out; a slip of the pen is an error.

    Our names are silent.
    """
    path = tmp_path / "mine.csv"
    CASES[["question", "label"]].to_csv(path)
    with pytest.warns(UserWarning, match=r"left out: a column without a name") as all_:
        load_cases(path)
    assert len(all_) == 1
    assert all_[0].filename == __file__
    CASES[["question", "label"]].assign(expect_source="a.md").to_csv(path)
    told(lambda: load_cases(path), "'expect_source' looks like expect_sources")
    with pytest.warns(UserWarning, match="left out: 'id'"):
        assert load_cases(CASES.assign(uid=["x", "y", "z"]), columns={"id": "uid"})[0].id == "x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_cases(CASES.drop(columns="weight"))


def test_arrays_and_nullable_columns_are_read() -> None:
    """NumPy arrays in cells, pandas' own integers and strings with NA."""
    frame = CASES.assign(
        expect_sources=[np.array(["a.md", "b.md#2"]), np.array([]), ("c.md", "d.md#10")],
        min_sources=pd.array([2, None, 0], dtype="Int64"),
        split=pd.array(["tune", None, None], dtype="string"),
    )
    assert load_cases(frame) == WANTED
