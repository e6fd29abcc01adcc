"""Cases and chunks from tables.

Worked examples first, then what wrong columns and cells are told.
"""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import refusals
from raglab.store.files import InputError
from raglab.store.frames import trace_from_frame
from raglab.store.loaders import load_cases, load_corpus
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


def refusal(call, *parts):
    """Message with which a table is refused; it holds all parts."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    refusals.told(message, *parts)
    return message


def test_a_frame_of_cases():
    """A row a case.

    Lists as lists or with semicolons, NaN and blanks absent, other columns in `extra`.
    """
    assert load_cases(CASES) == WANTED


def test_a_map_names_the_columns():
    """Ours first, then theirs; without ids the cases are numbered."""
    frame = pd.DataFrame({"q": ["Who pays?"], "gold": ["ok"], "query_id": ["7"]})
    cases = load_cases(frame, columns={"query": "q", "expect_status": "gold"})
    assert cases == (Case("q1", "Who pays?", "ok", extra={"query_id": "7"}),)
    assert (
        load_cases(frame, columns={"query": "q", "label": "gold", "case_id": "query_id"})[0].id
        == "7"
    )


@pytest.mark.parametrize(("ending", "sep"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_a_file_of_cases(tmp_path, ending, sep):
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


def test_a_frame_of_chunks():
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
    tagged = load_corpus(CHUNKS.rename(columns={"body": "text"}).assign(tags=tags))
    assert [dict(chunk.tags) for chunk in tagged.chunks] == [
        {"domain": "x", "product": "Home", "year": "2020"},
        {"year": "2021"},
    ]


def test_a_csv_is_chunks_or_a_document(tmp_path):
    """By its heads or a map; any other CSV is one document, as in a folder."""
    path, frame = tmp_path / "mine.csv", CHUNKS.drop(columns="year")
    chunks = load_corpus(frame, columns={"text": "body"}).chunks
    frame.to_csv(path, index=False)
    assert load_corpus(path).chunks[0].full_text.startswith("mine\n| id | body |")
    assert load_corpus(path, columns={"text": "body"}).chunks == chunks
    frame.rename(columns={"body": "text"}).to_csv(path, index=False)
    assert load_corpus(path).name == "mine"
    assert load_corpus(path).chunks == chunks


@pytest.mark.parametrize(
    ("column", "cells", "parts"),
    [
        ("label", ["ok", "yes", "no"], "expect_status … 'yes'"),
        ("label", ["ok", None, "refuse"], "column label … expect_status … missing"),
        ("question", ["a", " ", "c"], "column question … query … missing"),
        ("question", ["a", "x" * 20_001, "c"], "query … 20000"),
        ("id", ["a", None, "c"], "column id … missing"),
        ("expect_sources", [None, "d/a.md#x", None], "expect_sources … path#page … 'd/a.md#x'"),
        ("expect_sources", [None, "['a.md']", None], "got \"['a.md']\""),
        ("expect_sources", [None, ["a.md", NAN], None], "expect_sources"),
        ("min_sources", [None, 1.5, None], "min_sources … integer … 1.5"),
        ("min_sources", [None, 2**31, None], "min_sources … 2147483647"),
        ("expect_option", [None, 0, None], "expect_option … got 0"),
        ("split", ["tune", 1, None], "split … got 1"),
        ("lang", ["en", pd.Timestamp("2020-01-01"), None], "lang … JSON"),
        ("split", ["tune", "\ud800", None], "surrogate"),
    ],
)
def test_a_wrong_cell_is_told(column, cells, parts):
    """Row, column, rule and value; of a row with a label of its own, that too."""
    frame = CASES.assign(**{column: pd.Series(cells, dtype=object)})
    refusal(lambda: load_cases(frame), f"frame, row 1, column {column}", parts)
    refusal(lambda: load_cases(frame.set_axis(["x", "y", "z"])), "row 1 (index 'y')")


@pytest.mark.parametrize(
    ("column", "cell", "parts"),
    [
        ("body", " ", "text … missing"),
        ("body", 3, "text … got 3"),
        ("page", 0, "page … got 0; write a printed label into page_label"),
        ("year", ["a"], "year … tag"),
        ("entities", 3, "entities … got 3"),
        ("tags", "x", "tags … 'x'"),
    ],
)
def test_a_wrong_cell_of_a_chunk_is_told(column, cell, parts):
    """The same for chunks."""
    cells = [CHUNKS[column][0] if column in CHUNKS else None, cell]
    frame = CHUNKS.assign(**{column: pd.Series(cells, dtype=object)})
    refusal(
        lambda: load_corpus(frame, columns={"text": "body"}),
        f"frame, row 1, column {column}",
        parts,
    )
    refusal(lambda: load_corpus(CHUNKS.assign(id=1), columns={"text": "body"}), "id … unique … '1'")


def test_all_faults_are_told_at_once(tmp_path):
    """Of columns, cells, ids, splits and labels; each kind is counted, and none is loaded."""
    rows = [
        ("a", "Who?", "ok", "tune", None, 1),
        ("b", None, "yes", None, None, 2),
        ("c", "Why?", "no", None, None, "one"),
        ("d", "When?", "refuse", "holdout", "a.md", 0),
        ("e", "How?", "ok", None, "b.md#x", 0),
        ("a", "Where?", "refuse", None, None, 0),
    ]
    heads = ["id", "query", "label", "split", "expect_sources", "min_sources"]
    frame = pd.DataFrame(rows, columns=heads)
    frame.to_csv(tmp_path / "c.csv", index=False)
    kinds = (
        "query … missing",
        "expect_status … 'yes', 'no' (2 rows)",
        "min_sources … 'one'",
        "b.md#x",
        "id must be unique … 'a'",
        "split … 'holdout'",
        "expect_sources … refuse",
    )
    for source in (frame, tmp_path / "c.csv"):
        refusal(lambda source=source: load_cases(source), *kinds)
    many = pd.DataFrame({"query": ["a"] * 1000, "label": ["no"] * 999 + ["ok"]})
    assert len(refusal(lambda: load_cases(many), "(999 rows)")) < 500
    odd = pd.DataFrame({"query": ["a"], "label": ["ok"]} | {f"x{n}": [{1}] for n in range(300)})
    assert len(refusal(lambda: load_cases(odd), "x0")) < 3_000


def test_a_file_names_its_line(tmp_path):
    """The row from 0 and the line of the file, which a break inside a cell moves."""
    path = tmp_path / "mine.csv"
    path.write_text('query,label\n"two\nlines",ok\nx,yes\n', encoding="utf-8")
    refusal(lambda: load_cases(path), "mine.csv, row 1 (line 4), column label")
    path.write_text("query,label\na,ok,b\n", encoding="utf-8")
    refusal(lambda: load_cases(path), "mine.csv, line 2: … 3 instead of 2")


def test_a_map_that_can_be_copied_guesses_nothing():
    """A name that may be several fields is left out, two names of a field are both in it."""
    columns = ["question", "expected", "gold", "chunk", "file", "path", "tfidf"]
    frame = pd.DataFrame([["a"] * 6 + [0.5]], columns=columns)
    message = refusal(lambda: trace_from_frame(frame, score="cosine"), "file or path")
    assert json.loads(message[message.index("{") : message.index("}") + 1]) == {
        "hit_id": "chunk",
        "source": "file or path",
        "score": "…",
    }
    mapped = {"query": "question", "score": "tf_idf"}
    refusal(
        lambda: trace_from_frame(frame, columns=mapped), json.dumps(mapped | {"score": "tfidf"})
    )
    alike = frame.assign(label_a="ok", label_b="refuse")
    message = refusal(lambda: trace_from_frame(alike, columns={"label": "label"}), "label_a")
    assert "label_b" not in message.split("; write")[1]


def test_wrong_columns_are_told_together(tmp_path):
    """Missing ones all at once, with what came and how to map them; a map that fits no table."""
    columns = 'columns={"query": "…", "expect_status": "…"}'
    refusal(lambda: load_cases(CASES[["id", "lang"]]), "query, expect_status", "'lang'", columns)
    refusal(lambda: load_corpus(CASES), "text … columns=")
    for wrong in (
        {"questions": "question"},
        {"query": "q", "id": "uid"},
        {"question": "query", "label": "expect_status"},
        {"query": 3},
    ):
        refusal(lambda wrong=wrong: load_cases(CASES, columns=wrong), "columns must map our names")
    refusal(lambda: load_cases(CASES.assign(query="x")), "query must be one column … question")
    refusal(lambda: load_cases(pd.concat([CASES, CASES], axis=1)), "different names")
    refusal(lambda: load_cases(CASES.iloc[:0]), "at least one row")
    path = tmp_path / "data_full.json"
    path.write_text(json.dumps({"train": [["a", "b"]]}), encoding="utf-8")
    refusal(lambda: load_cases(path, columns={"query": "question"}), "columns must come with")
    refusal(lambda: load_cases(tmp_path / "none.csv"), "does not exist")


def test_one_warning_names_odd_columns(tmp_path):
    """An index that was written with the table is left out; a slip of the pen is an error.

    Our names are silent.
    """
    path = tmp_path / "mine.csv"
    CASES[["question", "label"]].to_csv(path)
    with pytest.warns(UserWarning, match="left out: ''") as all_:
        load_cases(path)
    assert len(all_) == 1
    assert all_[0].filename == __file__
    CASES[["question", "label"]].assign(expect_source="a.md").to_csv(path)
    refusal(lambda: load_cases(path), "'expect_source' … expect_sources")
    with pytest.warns(UserWarning, match="left out: 'id'"):
        assert load_cases(CASES.assign(uid=["x", "y", "z"]), columns={"id": "uid"})[0].id == "x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_cases(CASES.drop(columns="weight"))


@pytest.mark.parametrize("kind", ["csv", "tsv", "frame", "parquet"])
def test_words_for_no_value_are_missing(kind, tmp_path):
    """A16: `nan` and `None` were gold answers; one warning counts them."""
    frame = pd.DataFrame(
        {
            "question": ["Who?", "Why?", "When?", "How?"],
            "label": ["ok"] * 4,
            "answer": ["nan", "None", "12", "none of these"],
            "split": ["tune", "<NA>", "N/A", "tune"],
        }
    )
    source = frame
    if kind == "parquet":
        frame.to_parquet(source := tmp_path / "c.parquet")
    elif kind != "frame":
        sep = "," if kind == "csv" else "\t"
        frame.to_csv(source := tmp_path / f"c.{kind}", index=False, sep=sep)
    with pytest.warns(UserWarning, match=r"missing: 'answer' \(2\), 'split' \(2\)") as all_:
        cases = load_cases(source)
    assert len(all_) == 1
    assert [case.answer for case in cases] == [None, None, "12", "none of these"]
    assert [case.split for case in cases] == ["tune", None, None, "tune"]


@pytest.mark.parametrize("sep", [",", ";", "\t"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_line_above_the_heads_is_told(sep, padded, tmp_path):
    """A20: it was read as the heads, of one column; of labels, chunks and documents."""
    title = f"Excess table of 2026{sep * padded}"
    for heads, door in (
        (["question", "label"], load_cases),
        (["id", "text"], load_corpus),
        (["cause", "excess"], load_corpus),
    ):
        path = tmp_path / "t.csv"
        rows = "".join(sep.join(row) + "\n" for row in (heads, ["a", "ok"], ["b", "ok"]))
        path.write_text(f"{title}\n{rows}", encoding="utf-8")
        refusal(
            lambda door=door, path=path: door(path), "line 1: … heads, got 'Excess table of 2026'"
        )
    path.write_text("note\nHello, world\nBye\n", encoding="utf-8")
    assert "Hello, world" in load_corpus(path).chunks[0].text


def test_sources_outside_a_corpus_are_named(tmp_path):
    """A21: absolute, upwards, of Windows; a path with backslashes inside is one."""
    sources = ["/home/me/a.md", r"C:\docs\a.md", "../b.md#2", r"sub\c.md", "https://a.b/c"]
    frame = pd.DataFrame({"query": [*"abcde"], "label": ["ok"] * 5, "expect_sources": sources})
    frame.to_csv(tmp_path / "c.csv", index=False)
    for source in (frame, tmp_path / "c.csv"):
        with pytest.warns(UserWarning, match=r"3 of 5 cases .*outside .*'/home/me/a.md' in 'q1'"):
            load_cases(source)
    hits = frame.assign(hit_id="x", score=0.5, source="sub/c.md").drop(columns="label")
    with pytest.warns(UserWarning, match="3 of 5 sources of cases are paths outside a corpus"):
        trace_from_frame(hits)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace_from_frame(hits[hits.expect_sources == sources[0]].assign(source=sources[0]))
    assert not any("outside" in str(warning.message) for warning in caught)


def test_a_parquet_file_of_chunks_and_a_damaged_one(tmp_path):
    """Read as its frame is; a damaged one ends in one line."""
    frame = CHUNKS.rename(columns={"body": "text"})
    path = tmp_path / "c.parquet"
    frame.to_parquet(path)
    assert load_corpus(path).chunks == load_corpus(frame).chunks
    raw = path.read_bytes()
    for damaged in (raw[:-30] + b"x" * 30, raw[:40], raw[:4] + b"\0" * 60 + raw[64:]):
        path.write_bytes(damaged)
        refusal(lambda: load_corpus(path), "c.parquet")


def test_arrays_and_nullable_columns_are_read():
    """NumPy arrays in cells, pandas' own integers and strings with NA."""
    frame = CASES.assign(
        expect_sources=[np.array(["a.md", "b.md#2"]), np.array([]), ("c.md", "d.md#10")],
        min_sources=pd.array([2, None, 0], dtype="Int64"),
        split=pd.array(["tune", None, None], dtype="string"),
    )
    assert load_cases(frame) == WANTED
