"""Foreign sets.

Problems named together with counts, what cannot matter left out (kinds G and I of `outside.md`).
"""

from __future__ import annotations

import json
import re

import pytest

from raglab.store.files import InputError
from raglab.store.loaders import load_cases, load_corpus
from refusals import told

QUERIES = ("a", "b", "c", "d")


def lines(path, *records):
    """Write one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def beir(folder, rows, queries=QUERIES):
    """BEIR folder with one file of qrels as it stands."""
    lines(folder / "queries.jsonl", *({"_id": name, "text": f"query {name}"} for name in queries))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_bytes(rows.encode() if isinstance(rows, str) else rows)
    return folder


def squad(path, *questions, context="The cat sat."):
    """SQuAD file: a paragraph with the questions, and one with its own answer."""
    last = {"id": "last", "question": "What stood?", "answers": [{"text": "dog"}]}
    paragraphs = [
        {"context": context, "qas": list(questions)},
        {"context": "A dog stood.", "qas": [last]},
    ]
    path.write_text(json.dumps({"data": [{"title": "A", "paragraphs": paragraphs}]}))
    return path


def task(name, answerability, *texts):
    """Task of MT-RAG with passages."""
    return {
        "conversation_id": name,
        "task_id": name,
        "contexts": [{"document_id": f"{name}-{n}", "text": text} for n, text in enumerate(texts)],
        "input": [{"speaker": "user", "text": f"query {name}"}],
        "answerability": [answerability],
    }


def sources(cases):
    """Expected sources by case."""
    return {case.id: case.expect_sources_any for case in cases}


def answered(name, *texts):
    """Question of SQuAD with answers."""
    return {"id": name, "question": f"query {name}", "answers": [{"text": text} for text in texts]}


# Kind G: what cannot matter is left out and counted.
LEFT_OUT = {
    "a judged query without text": (
        lambda folder: beir(folder, "a\tD1\t1\nz\tD2\t1\nb\tD2\t1\n"),
        "1 judged queries without a text: 'z'",
        2,
    ),
    "a blank answer": (
        lambda folder: squad(
            folder / "s.json", answered("1", "", "cat"), answered("2", "cat", " ", "")
        ),
        "3 blank answers: '1'; '2'; '2'",
        3,
    ),
    "a blank passage": (
        lambda folder: lines(
            folder / "reference.jsonl", task("1", "ANSWERABLE", "", "x"), task("2", "UNANSWERABLE")
        ),
        "1 blank passages: '1-0'",
        2,
    ),
    "talk": (
        lambda folder: lines(
            folder / "reference.jsonl", task("1", "ANSWERABLE", "x"), task("2", "CONVERSATIONAL")
        ),
        "1 tasks of no question (CONVERSATIONAL): '2'",
        1,
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_cannot_matter_is_left_out_and_counted(tmp_path, name):
    """One warning names it; the other cases stay."""
    write, text, n_cases = LEFT_OUT[name]
    with pytest.warns(UserWarning, match=re.escape(text)):
        assert len(load_cases(write(tmp_path))) == n_cases


def test_values_stay_right_where_something_is_left_out(tmp_path):
    """Answers, sources and chunks are those of what stays."""
    with pytest.warns(UserWarning, match="1 blank answers"):
        assert [
            case.answer for case in load_cases(squad(tmp_path / "s.json", answered("1", "", "cat")))
        ] == [
            "cat",
            "dog",
        ]
    path = lines(
        tmp_path / "reference.jsonl",
        task("1", "ANSWERABLE", "", "x"),
        task("2", "PARTIAL", "y", ""),
    )
    with pytest.warns(UserWarning, match="2 blank passages"):
        assert sources(load_cases(path)) == {"1": ("1-1",), "2": ("2-0",)}
    with pytest.warns(UserWarning, match="2 blank passages"):
        assert [chunk.text for chunk in load_corpus(path).chunks] == ["x", "y"]
    blank = squad(
        tmp_path / "t.json",
        {"id": "1", "question": "q?", "is_impossible": True, "answers": []},
        context=" ",
    )
    with pytest.warns(UserWarning, match="1 blank paragraphs"):
        assert [chunk.chunk_id for chunk in load_corpus(blank).chunks] == ["A#2-2"]


# Kind G: what could matter stops, all of it in one message.
STOPS = {
    "two scores": (
        lambda folder: beir(folder, "a\tD1\t1\na\tD1\t0\nb\tD1\t2\nb\tD1\t1\n"),
        ("report 0 after report 1 for 'D1', report 1 after report 2 for 'D1' (2 rows)",),
    ),
    "rows": (
        lambda folder: beir(folder, "a\tD1\thigh\nb\tD1\nc\tD2\t1\n"),
        ("line 1, id a … score … 'a D1 high', 'b D1' (2 rows)",),
    ),
    "queries": (
        lambda folder: (
            lines(
                beir(folder, "a\tD1\t1\n") / "queries.jsonl",
                {"_id": "a"},
                {"text": "b"},
                {"_id": "c"},
            ).parent
        ),
        (
            "line 1: text is required … (2 queries)",
            "line 2: _id is required",
        ),
    ),
    "blank answers alone": (
        lambda folder: squad(
            folder / "s.json", answered("1", "", " "), answered("2"), answered("3", "cat")
        ),
        ("qas[0]: … must have an answer … (2 questions)",),
    ),
    "passages of an answer": (
        lambda folder: lines(
            folder / "reference.jsonl",
            task("1", "ANSWERABLE", " "),
            task("2", "PARTIAL"),
            task("3", "UNANSWERABLE"),
        ),
        ("line 1, id 1: … must have contexts … (2 tasks)",),
    ),
    "labels of MT-RAG": (
        lambda folder: lines(
            folder / "reference.jsonl",
            task("1", "MAYBE"),
            task("2", "ANSWERBLE", "x"),
            task("3", "UNANSWERABLE"),
        ),
        ("got 'MAYBE', 'ANSWERBLE' (2 tasks)",),
    ),
    "pairs of CLINC": (
        lambda folder: write_clinc(
            folder, [["hi", "greet"], ["hi"], [1, "greet"], "hi", ["yo", "greet"]]
        ),
        ("train.1 must", "train.2.0", "train.3"),
    ),
    "cases of our form": (
        lambda folder: lines(
            folder / "cases.jsonl",
            *({"id": str(n), "query": "q", "expect_status": "yes"} for n in range(9)),
        ),
        ("line 1, id 0: expect_status … 'yes' (9 cases)",),
    ),
}


def write_clinc(folder, pairs):
    """CLINC150's file with one part."""
    path = folder / "data_full.json"
    path.write_text(json.dumps({"train": pairs}))
    return path


@pytest.mark.parametrize("name", STOPS)
def test_what_could_matter_stops_with_all_that_is_wrong(tmp_path, name):
    """The first is named whole, the next few by place and value, all are counted."""
    write, parts = STOPS[name]
    with pytest.raises(InputError) as caught:
        load_cases(write(tmp_path))
    told(str(caught.value), *parts)


def test_a_blank_paragraph_with_an_answer_stops(tmp_path):
    """Its case could never be answered."""
    path = squad(tmp_path / "s.json", answered("1", "cat"), context="  ")
    with pytest.raises(
        InputError, match=r"paragraphs\[0\]: context of an answer must not be blank"
    ):
        load_corpus(path)


# Kind I: three columns of BEIR or four of TREC, by white space.
QRELS = {
    "blanks after a tab": "a\t0 d7\t1\nb\t0 d8\t2\n",
    "blanks": "a 0 d7 1\nb 0 d8 2\n",
    "tabs": "a\t0\td7\t1\nb\t0\td8\t2\n",
    "mixed white space and CRLF": "a  Q0\t d7   1\r\n\r\n b\tQ0 d8 2 \r\n",
    "BEIR": "query-id\tcorpus-id\tscore\na\td7\t1\nb\td8\t2\n",
    "BEIR by blanks, CRLF": "query-id corpus-id score\r\na d7 1\r\nb d8 2\r\n",
    "floats": "a\td7\t1.0\nb\td8\t2.0\n",
    "other heads": "qid\titer\tdocno\trel\na\t0\td7\t1\nb\t0\td8\t2\n",
    "mark": b"\xef\xbb\xbfa\t0\td7\t1\nb\t0\td8\t2\n",
    "Excel": "a\t0\td7\t1\r\nb\t0\td8\t2\r\n".encode("utf-16"),
}


@pytest.mark.parametrize("name", QRELS)
@pytest.mark.filterwarnings("ignore:.*in no file of qrels")
def test_qrels_are_split_on_white_space(tmp_path, name):
    """All forms are one."""
    cases = load_cases(beir(tmp_path, QRELS[name]))
    assert sources(cases) == {"a": ("d7",), "b": ("d8",)}
    assert [case.extra for case in cases] == [{}, {"source_grades": {"d8": 2}}]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("a 0 d7 1\nb d8 1\n", "line 2, id b … 'b d8 1'"),
        (
            "a\tdoc 7\t1\n",
            "'a doc 7 1' … ids hold no blanks",
        ),
        ("a\tthe doc 7\t1\n", "'a the doc 7 1'"),
        ("a 0 d7 1 x\nb 0 d8 1 y\n", "'a 0 d7 1 x', 'b 0 d8 1 y' (2 rows)"),
        ("a 0 d7 0.5\n", "whole score … 'a 0 d7 0.5'"),
        ("a 0 d7 9999999999\n", "whole score"),
    ],
)
def test_other_columns_are_refused(tmp_path, rows, said):
    """By line, with what a row must be."""
    with pytest.raises(InputError) as caught:
        load_cases(beir(tmp_path, rows))
    told(str(caught.value), said)


def test_a_file_of_another_name_is_named(tmp_path):
    """TREC's own name has another ending."""
    folder = beir(tmp_path, "a 0 d7 1\n")
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "test.qrels")
    with pytest.raises(InputError, match=r"got 'test\.qrels'"):
        load_cases(folder)
