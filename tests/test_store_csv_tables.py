"""CSV tables: one reader of every dialect wherever a table is taken (kind H of `outside.md`)."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from raglab.audit.label_samples import read_labels
from raglab.cli.logs import _read_table
from raglab.store.csv_tables import csv_frame, csv_records, table_text
from raglab.store.files import InputError

# Delimiter, decimal mark, lead and encoding of a table, as programs write it.
DIALECTS = {
    "plain": (",", ".", "", "utf-8"),
    "with a mark": (",", ".", "", "utf-8-sig"),
    "sep line": (";", ".", "sep=;\n", "utf-8"),
    "German Excel": (";", ",", "", "utf-8-sig"),
    "German Excel with sep": (";", ",", "sep=;\r\n", "cp1252"),  # its umlauts are none here
    "Unicode text of Excel": ("\t", ",", "", "utf-16"),
    "big-endian": ("\t", ".", "", "utf-16-be"),
    "bars": ("|", ",", "sep=|\n", "utf-8"),
}
QUESTIONS = ("Who pays?", "Is hail covered, too; at all?")


def table(path, dialect, rows):
    """File of a table in a dialect; numbers have its decimal mark."""
    delimiter, decimal, lead, encoding = DIALECTS[dialect]

    def cell(value):
        text = str(value).replace(".", decimal) if isinstance(value, float) else str(value)
        return f'"{text}"' if any(mark in text for mark in ",;|\t\n") else text

    text = lead + "".join(delimiter.join(map(cell, row)) + "\r\n" for row in rows)
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path.write_bytes(mark + text.encode(encoding))
    return path


def quiet(function, *arguments, **more):
    """What a function returns, with the warning of decimal commas unheard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **more)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_door_reads_every_dialect_alike(tmp_path, dialect):
    """Cases, chunks, rounds, signals, labels and documents are those of the plain file."""
    labels = [
        ["question", "label", "expect_sources"],
        [QUESTIONS[0], "ok", "a.md"],
        [QUESTIONS[1], "refuse", ""],
    ]
    cases = raglab.load_cases(table(tmp_path / "cases.csv", dialect, labels))
    assert [(case.query, case.expect_status, case.expect_sources) for case in cases] == [
        (QUESTIONS[0], "ok", ("a.md",)),
        (QUESTIONS[1], "refuse", ()),
    ]
    texts = [["id", "text"], ["a", QUESTIONS[1]], ["b", "Glass."]]
    chunks = raglab.load_corpus(table(tmp_path / "corpus.csv", dialect, texts)).chunks
    assert [(chunk.chunk_id, chunk.text) for chunk in chunks] == [
        ("a", QUESTIONS[1]),
        ("b", "Glass."),
    ]
    hits = pd.DataFrame([(f"q{n}", query, "a", 0.9, "ok") for n, query in enumerate(QUESTIONS, 1)])
    trace = raglab.trace_from_frame(
        hits.set_axis(["case_id", "query", "hit_id", "score", "label"], axis=1)
    )
    values = table(tmp_path / "v.csv", dialect, [["case_id", "judge"], ["q2", 0.25], ["q1", 0.5]])
    judged = quiet(trace.with_signal, "judge", values, higher="surer", unit="probability")
    assert judged.columns["judge"].ravel().tolist() == [0.5, 0.25]  # type: ignore[attr-defined]
    rounds = table(
        tmp_path / "l.csv",
        dialect,
        [["action", "reward", "propensity"], [0, 1.0, 0.5], [1, 0.25, 0.5]],
    )
    frame = quiet(_read_table, rounds)
    assert frame.to_dict("list") == {
        "action": [0, 1],
        "reward": [1.0, 0.25],
        "propensity": [0.5, 0.5],
    }
    drawn = table(
        tmp_path / "d.csv", dialect, [["sample", "request_id", "label"], ["s", "r1", "ok"]]
    )
    assert [row.request_id for row in read_labels(drawn)] == ["r1"]
    document = table(tmp_path / "doc.csv", dialect, [["cause", "excess"], ["storm", "150"]])
    assert "| storm | 150 |" in raglab.load_corpus(document).chunks[0].text


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (["0,5", "", "1"], [0.5, None, 1.0]),
        (["1,234", "0,5"], [1.234, 0.5]),  # 0,5 is none of thousands, so the first is none either
        (["1,5e-3", "-2,0"], [0.0015, -2.0]),
        (["nan", "0,5"], [None, 0.5]),
    ],
)
def test_decimal_commas_are_read_and_named(tmp_path, cells, wanted):
    """With a count of columns."""
    path = tmp_path / "t.csv"
    path.write_text("x;y\n" + "".join(f"a;{cell}\n" for cell in cells))
    with pytest.warns(UserWarning, match="decimal points in 1 of 2 columns: 'y'"):
        column = csv_frame(path)["y"]
    assert [None if np.isnan(value) else value for value in column] == wanted


@pytest.mark.parametrize("cells", [["1,234", "5,678"], ["1,5", "2.5"], ["1.234,5", "2,5"]])
def test_commas_that_may_mean_thousands_are_refused_or_stay_texts(tmp_path, cells):
    """1,234 is either number, so that neither is taken."""
    path = tmp_path / "t.csv"
    path.write_text("x;y\n" + "".join(f"a;{cell}\n" for cell in cells))
    try:
        column = csv_frame(path)["y"].tolist()
    except InputError as error:
        assert "decimal or between thousands" in str(error)  # noqa: PT017 - either way is right
    else:
        assert column == cells


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("x;y\nö;1\n".encode("cp1252"), "text must be UTF-8"),
        (b"\xff\xfex\x00;", "must be in the stated encoding utf-16-le"),
        ("x,y\n1,2\n".encode("utf-16-le"), "looks binary"),
        (b"x,x\n1,2\n", "columns must have different names"),
        (b"x,y\n1,2,3\n1\n", "3 instead of 2 in 2 of them"),
        (b"sep=;\nx;y\n", "a table must have heads and a row"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, rule):
    """By rule."""
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rule):
        csv_frame(path)


def test_types_of_columns(tmp_path):
    """Names with a leading zero stay, booleans and integers are such, a blank head is an index."""
    path = tmp_path / "t.csv"
    path.write_text(",id,n,flag,word,gap\n0,007,1,True,NA,\n1,008,2,False,x,3\n")
    frame = csv_frame(path)
    assert frame["id"].tolist() == ["007", "008"]
    assert [str(frame[name].dtype) for name in ("Unnamed: 0", "n", "flag", "gap")] == [
        "int64",
        "int64",
        "bool",
        "float64",
    ]
    assert frame["word"].tolist() == ["NA", "x"]


@pytest.mark.parametrize("text", ["query;hit_id;score\nq;a;0,5\n", "query\thit_id\nq\ta\n"])
def test_a_frame_that_pandas_read_by_another_delimiter_is_told_so(tmp_path, text):
    """By the columns that are missing, and the one that came."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    for door in (raglab.trace_from_frame, raglab.load_cases):
        with pytest.raises(InputError, match="query"):
            door(pd.read_csv(path))


def test_lines_are_those_of_the_file(tmp_path):
    """A line that states the delimiter counts."""
    path = tmp_path / "cases.csv"
    path.write_text("sep=;\nquestion;label\nWho?;ok\nWhat?;maybe\n")
    with pytest.raises(InputError, match=r"row 1 \(line 4\)"):
        raglab.load_cases(path)


CELLS = st.text(alphabet="ab ,;|\t\"'1.0é", max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=5),
    delimiter=st.sampled_from(",;|\t"),
    encoding=st.sampled_from(["utf-8", "utf-16"]),
)
def test_what_is_written_is_read(
    tmp_path_factory,
    rows,
    delimiter,
    encoding,
):
    """Any cells, by any stated delimiter, in UTF-8 or UTF-16."""
    path = tmp_path_factory.mktemp("t") / "t.csv"
    frame = pd.DataFrame(
        [row for row in rows if any(map(str.strip, row))] or [("a", "b", "c")],
        columns=["x", "y", "z"],
    )
    text = f"sep={delimiter}\n" + frame.to_csv(sep=delimiter, index=False, lineterminator="\n")
    path.write_bytes(text.encode(encoding))
    assert [
        record.cells for record in csv_records(table_text(path), path)[1:]
    ] == frame.to_numpy().tolist()


@pytest.mark.parametrize(("sep", "warned"), [(",", False), (";", True), ("\t", True)])
def test_points_that_may_be_thousands_are_named(tmp_path, sep, warned):
    """A16: 1.200 beside semicolons was 1.2 without a word; 1_0 was ten."""
    path = tmp_path / "t.csv"
    path.write_text(f"x{sep}y{sep}z\na{sep}1.200{sep}1_0\nb{sep}3.400{sep}2\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = csv_frame(path)
    assert frame["y"].tolist() == [1.2, 3.4]
    assert frame["z"].tolist() == ["1_0", "2"]
    assert ["'y'" in str(one.message) for one in caught] == [True] * warned


def test_points_beside_decimal_commas_are_not_guessed(tmp_path):
    """1.234 is 1,234 where 0,5 is a half: such a column is refused.

    One of plain decimals is not.
    """
    path = tmp_path / "log.csv"
    path.write_text("propensity;reward\n0,5;1.234\n0,25;12.000\n")
    with pytest.raises(InputError, match="points and commas must not both"):
        csv_frame(path)
    path.write_text("propensity;reward\n0,5;1.5\n0,25;12.000\n")
    with pytest.warns(UserWarning, match="commas are read as decimal"):
        assert csv_frame(path)["reward"].tolist() == [1.5, 12.0]
