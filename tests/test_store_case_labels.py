"""Labels of a set of cases.

Names of columns, splits, repeated questions and contradictions (S6.1, S6.5).
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

import raglab
from raglab.decision.answer_text import gold_answers, may_be_judged
from raglab.lab.study_cases import study_splits
from raglab.store.files import InputError
from raglab.store.frames import trace_from_frame
from raglab.store.loaders import load_cases, save_cases
from raglab.values import Case
from refusals import refused, told

QUESTIONS = [
    "Who pays for broken glass?",
    "How do I cancel a journey?",
    "Which sensor is cold?",
    "Who won the cup?",
]
LABELS = ["ok", "ok", "ambiguous", "refuse"]


def table(**columns):
    """Four labelled questions, with further columns."""
    return pd.DataFrame({"question": QUESTIONS, "label": LABELS} | columns)


def lines(path, *records):
    """File of JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def refusal(call, *parts):
    """Check that a call stops with a message that holds all parts."""
    with pytest.raises(InputError) as caught:
        call()
    told(str(caught.value), *parts)


def noted(call):
    """What a call gives, and its warnings, each at the caller's line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    assert {warning.filename for warning in caught} <= {__file__}
    return result, [str(warning.message) for warning in caught]


class TestNames:
    """A column or key that looks like a field the set lacks is an error proposing the field."""

    def test_a_csv_with_sources_for_expect_sources(self, tmp_path):
        """Of issue 27: no case would have sources, and every answer would count as correct."""
        path = tmp_path / "gold.csv"
        table(sources=["glass.md", "journeys.md#2", None, None]).to_csv(path, index=False)
        refusal(
            lambda: load_cases(path),
            (
                "gold.csv … 'sources' … expect_sources … "
                'columns={"expect_sources": "sources"} … map a name to itself'
            ),
        )
        cases = load_cases(path, columns={"expect_sources": "sources"})
        assert cases[1].expect_sources == ("journeys.md#2",)
        cases_as_named, notes = noted(lambda: load_cases(path, columns={"sources": "sources"}))
        assert (cases_as_named[0].expect_sources, cases_as_named[0].extra, notes) == (
            (),
            {"sources": "glass.md"},
            [],
        )

    @pytest.mark.parametrize(
        ("name", "field"),
        [
            ("expected source", "expect_sources"),
            ("doc_id", "expect_sources"),
            ("gold-documents", "expect_sources"),
            ("sourcs", "expect_sources"),
            ("Split", "split"),
            ("fold", "split"),
        ],
    )
    def test_other_names(self, name, field):
        """Known other names, and slips of the pen, whatever the case, blanks and hyphens."""
        refusal(
            lambda: load_cases(table(**{name: ["a.md", None, None, None]})),
            repr(name),
            field,
        )

    def test_other_labels_are_named(self):
        """Of the newcomer: `OK` and `Refuse` are other labels, counted in their column."""
        labels = ["OK", "ok", "Refuse", "refuse"]
        message = "column {} … 'OK', 'Refuse' (2 rows) … ok, refuse or ambiguous"
        frame = table(verdict=labels).drop(columns="label")
        refusal(
            lambda: load_cases(frame, columns={"expect_status": "verdict"}),
            message.format("verdict"),
        )
        refusal(lambda: trace_from_frame(hits(label=labels)), message.format("label"))

    def test_json_lines(self, tmp_path):
        """Keys likewise, where no line has the field."""
        first = {"id": "a", "query": "Who pays?", "expect_status": "ok"}
        path = lines(
            tmp_path / "c.jsonl",
            first,
            first | {"id": "b", "query": "Why?", "gold_sources": ["a.md"]},
        )
        refusal(
            lambda: load_cases(path),
            "c.jsonl … 'gold_sources', which looks like expect_sources",
        )
        cases = load_cases(path, columns={"expect_sources": "gold_sources"})
        assert cases[1].expect_sources == ("a.md",)
        more = first | {"id": "c", "query": "When?", "expect_sources": ["b.md"]}
        lines(path, first | {"gold_sources": ["a.md"]}, more)
        cases, notes = noted(lambda: load_cases(path))
        assert cases[0].extra == {"gold_sources": ["a.md"]}
        told(*notes, "'gold_sources' (1)")
        (case,) = load_cases(lines(path, {"id": "a", "question": "Who?", "label": "ok"}))
        assert case.expect_status == "ok"

    def test_one_warning_names_further_columns(self):
        """Those that raglab reads, or its own sets hold, are silent.

        All others are counted in one line.
        """
        frame = table(lang=["en"] * 4, priority=[1, 2, 3, None], team=["x"] * 4)
        cases, notes = noted(lambda: load_cases(frame))
        assert dict(cases[0].extra) == {"lang": "en", "priority": 1, "team": "x"}
        told(*notes, "frame: … 'priority' (3), 'team' (4)")


PAIR = ("Ann", "Anna")
FORMS = [
    ("Ann", ("Ann",)),
    (list(PAIR), PAIR),
    ([], ()),
    (np.array(PAIR, dtype=object), PAIR),
    ({"text": np.array(PAIR, dtype=object), "answer_start": np.array([5, 5])}, PAIR),
    ('["Ann", "Anna"]', PAIR),
    ('{"text": ["Ann", "Anna"], "answer_start": [5, 5]}', PAIR),
    ("[1] says so", ("[1] says so",)),
]
NO_ANSWERS = [
    *(0, [7], {"answer": ["a"]}, {"text": {"text": ["a"]}}, "['Ann']", '["Ann"'),
    [{"text": "Ann", "answer_start": 5}],
]


class TestGoldAnswers:
    """`answers` are read in every form that says texts, and refused in all others.

    None vanishes.
    """

    @staticmethod
    def by_load(answers):
        """Cases of a table and of a frame of hits, whose second has these gold answers."""
        cells = pd.Series([None, answers, None, None], dtype=object)
        return [
            lambda: load_cases(table().assign(answers=cells)),
            lambda: trace_from_frame(hits().assign(answers=cells)).cases,
        ]

    @pytest.mark.parametrize(("answers", "texts"), FORMS, ids=repr)
    def test_forms(self, answers, texts, tmp_path):
        """Hugging Face's form of SQuAD, a text, a list, and JSON of these.

        Saved and loaded they are the same.
        """
        for load in self.by_load(answers):
            cases = load()
            assert list(map(gold_answers, cases)) == [(), texts, (), ()]
            save_cases(cases, tmp_path / "c.jsonl")
            assert list(map(gold_answers, load_cases(tmp_path / "c.jsonl"))) == [(), texts, (), ()]

    @pytest.mark.parametrize("answers", NO_ANSWERS, ids=repr)
    def test_all_else_is_refused(self, answers, tmp_path):
        """Rule, value, remedy, and the rows."""
        for load in self.by_load(answers):
            refusal(
                load,
                'row 1 … answers … ["Ann"',
            )
        record = {"id": "a", "query": "Who?", "expect_status": "ok", "answers": answers}
        path = lines(tmp_path / "c.jsonl", record)
        refusal(lambda: load_cases(path), "line 1, id a: answers")

    def test_a_case_made_in_python(self):
        """Where it is judged, with its id."""
        refused(
            r"answers must be a text, .*got '7' in case 'a'",
            gold_answers,
            Case("a", "Who?", "ok", extra={"answers": 7}),
        )

    def test_the_case_is_judged_by_text(self):
        """Of the hostile tester: with Hugging Face's form it was judged by its sources."""
        answers = {"text": ["GBP 50"], "answer_start": [0]}
        judged = may_be_judged(load_cases(table(answers=[answers, None, None, None])))
        assert judged.tolist() == [True, False, False, False]


class TestSeveralFiles:
    """A cell of sources that looks like several files with another separator is no source."""

    @pytest.mark.parametrize(
        "cell", ["a.md|b.md", "d/a.md#2 ,b.md", "a.md;b.md, c.md", "a.PDF | b"]
    )
    def test_commas_and_bars(self, cell, tmp_path):
        """In a CSV and a frame of hits, with the remedy."""
        path = tmp_path / "c.csv"
        for field in ("expect_sources", "expect_sources_any", "selected_sources"):
            cells = {field: [cell, None, None, None]}
            table(**cells).to_csv(path, index=False)
            refusal(partial(load_cases, path), f"{field} … semicolons")
            refusal(partial(trace_from_frame, hits(**cells)), f"{field} … {cell!r}")

    @pytest.mark.parametrize(
        ("cell", "sources"),
        [
            ("v1.2, final.pdf", ("v1.2, final.pdf",)),
            (["a.md, b.md"], ("a.md, b.md",)),
            ('["Dr.No, Bond.pdf"]', ("Dr.No, Bond.pdf",)),
            ("a.md,", ("a.md,",)),
            ("a.md; b.md#2", ("a.md", "b.md#2")),
        ],
    )
    def test_a_comma_in_a_name(self, cell, sources):
        """Before the ending it is a part of the name, and in a list whatever it is."""
        cases = load_cases(table(expect_sources=[cell, None, None, None]))
        assert cases[0].expect_sources == sources


class TestIndex:
    """An index that has the name of a field is its column (kind M)."""

    def test_an_index_named_id(self):
        """Of `outside.md`: the ids were q1, q2 without a word."""
        frame = table(uid=[*"wxyz"])
        for name in ("id", "case_id"):
            cases, notes = noted(partial(load_cases, frame.set_index("uid").rename_axis(name)))
            assert ([case.id for case in cases], notes) == ([*"wxyz"], [])
        case = load_cases(frame.set_index(["question", "uid"]), columns={"id": "uid"})[3]
        assert (case.id, case.query) == ("z", QUESTIONS[3])

    def test_hits(self):
        """An index with the name of a column is one; one that is only like it is said."""
        cases, notes = noted(
            lambda: trace_from_frame(hits(n=[*"wxyz"]).set_index("n").rename_axis("case_id"))
        )
        assert ([case.id for case in cases.cases], notes) == ([*"wxyz"], [])
        trace, notes = noted(lambda: trace_from_frame(hits().rename_axis("qid")))
        assert trace.cases[0].id == "q1"
        told(*notes, "the index 'qid'")


class TestSplits:
    """`train`, `validation` or `dev`, `test` read as `tune`, `certify`, `report`, as said once."""

    @pytest.mark.parametrize("kind", ["jsonl", "trace"])
    def test_mapped_with_counts(self, kind, tmp_path):
        """Of issue 27: they were taken and meant nothing. A case without a split stays without."""
        splits = ["train", "Test", "dev", None]
        cases, notes = noted(lambda: self.load(kind, splits, tmp_path))
        assert [case.split for case in cases] == ["tune", "report", "certify", None]
        (note,) = [note for note in notes if "splits" in note]
        for part in ("'train' as tune", "'Test' as report", "'dev' as certify"):
            assert f"{part} (1)" in note

    @pytest.mark.parametrize("kind", ["jsonl", "trace"])
    def test_any_other_name_is_refused(self, kind, tmp_path):
        """Rule, values with counts, remedy."""
        refusal(
            lambda: self.load(kind, ["holdout", "tune", "holdout", "fold_3"], tmp_path),
            "split must be one of tune, certify, report … 'holdout', 'fold_3' (3  … raglab.split",
        )

    @pytest.mark.parametrize(
        ("names", "splits"),
        [
            (["training", "val", "valid", "testing"], ["tune", "certify", "certify", "report"]),
            (["tune", "validation", "report", " "], ["tune", "certify", "report", None]),
        ],
    )
    def test_every_name_of_a_split(self, names, splits):
        """The rest of the table, and our own names."""
        cases, notes = noted(partial(load_cases, table(split=names)))
        assert [case.split for case in cases] == splits
        assert "'tune'" not in "".join(notes)

    def test_cases_made_in_python(self, tmp_path):
        """A study, a build and a save refuse a split that means nothing, or another one."""
        trace = trace_from_frame(hits(split=["tune", "report", "tune", "report"]))
        odd = trace.cases[0]._replace(split="train")
        trace = dataclasses.replace(trace, cases=(odd, *trace.cases[1:]))
        corpus = raglab.Corpus("x", (raglab.Chunk("a", "Glass is covered.", "a.md"),))
        for door in (
            lambda: study_splits(trace, 0),
            lambda: raglab.build_trace(corpus, [odd]),
        ):
            refused(r"got 'train'; rename it", door)
        refusal(
            lambda: save_cases([odd._replace(split="holdout")], tmp_path / "c.jsonl"),
            "split must be one of",
        )

    @staticmethod
    def load(kind, splits, folder):
        """Cases of JSON lines, or a trace of a frame."""
        if kind == "trace":
            return trace_from_frame(hits(split=splits)).cases
        table(id=QUESTIONS, split=splits).to_json(folder / "c.jsonl", orient="records", lines=True)
        return load_cases(folder / "c.jsonl")


def hits(**columns):
    """One hit of each of the four questions."""
    return pd.DataFrame(
        {"query": QUESTIONS, "label": LABELS, "hit_id": list("abcd"), "score": [0.9] * 4} | columns
    )


class TestContradictions:
    """A question has one label; what a label rules out is named."""

    def test_two_labels_of_one_question(self, tmp_path):
        """Status or sources differ: an error names both, whatever case and white space."""
        rows = [("Who pays?", "ok", "a.md"), ("Why?", "ok", "b.md"), ("who  PAYS?", "refuse", None)]
        frame = pd.DataFrame(rows, columns=["query", "label", "expect_sources"])
        refusal(
            lambda: load_cases(frame),
            (
                "frame, row 2, id q3: a question must have one label … got 'refuse' after "
                "'ok a.md' in 'q1'"
            ),
        )
        frame.loc[2] = ["who pays?", "ok", "c.md"]
        path = tmp_path / "mine.csv"
        frame.to_csv(path, index=False)
        refusal(
            lambda: load_cases(path),
            "mine.csv, row 2 (line 4), id q3: … got 'ok c.md' after 'ok a.md' in 'q1'",
        )
        path = lines(
            tmp_path / "c.jsonl",
            {"id": "a", "query": "Who pays?", "expect_status": "ok"},
            {"id": "b", "query": "Who pays?", "expect_status": "ambiguous"},
        )
        refusal(
            lambda: load_cases(path),
            "c.jsonl, line 2, id b: a question must have one label … in 'a'",
        )

    def test_the_order_of_sources_is_no_label(self):
        """The same sources in another order are the same label.

        The row is a repetition, which is counted.
        """
        frame = table(expect_sources=["a.md;b.md", "c.md", None, None])
        turned = frame.assign(expect_sources=["b.md;a.md", "c.md", None, None])
        again = pd.concat([frame, turned], ignore_index=True)
        cases, notes = noted(lambda: load_cases(again))
        assert len(cases) == 8
        told(*notes, "frame: 4 of 8 cases repeat … 'q5' after 'q1'")
        _, notes = noted(lambda: load_cases(again.assign(split=["tune"] * 4 + ["report"] * 4)))
        assert "4 of them in another split (rule S6.5)" in notes[0]

    def test_documents_that_the_user_named_tell_questions_apart(self):
        """The same words about another document are another question."""
        frame = pd.DataFrame({"query": ["What is the excess?"] * 2, "label": "ok"})
        sources = {key: ["a.md", "b.md"] for key in ("expect_sources", "selected_sources")}
        frame = frame.assign(**sources)
        cases, notes = noted(lambda: load_cases(frame))
        assert (len(cases), notes) == (2, [])

    def test_a_published_set_is_a_warning(self, tmp_path):
        """SQuAD asks the same of one paragraph twice.

        Each case is scored by its own label, and a count is said.
        """
        questions = [
            {"id": "1", "question": "Who?", "answers": [{"text": "x", "answer_start": 0}]},
            {"id": "2", "question": "Who?", "answers": [], "is_impossible": True},
        ]
        paragraphs = [
            {"context": "x is who.", "qas": questions},
            {"context": "y is who.", "qas": []},
        ]
        path = lines(tmp_path / "s.json", {"data": [{"title": "T", "paragraphs": paragraphs}]})
        cases, notes = noted(lambda: load_cases(path))
        assert len(cases) == 2
        told(notes[0], "1 cases … label … first '2' after '1'")

    def test_a_trace_of_hits_is_a_warning(self):
        """Hits are given for each case, so two cases of one question may differ."""
        frame = hits(case_id=list("abcd")).assign(
            query=["Who?", "who?", "Which?", "When?"], label=["ok", "refuse", "ok", "ok"]
        )
        _, notes = noted(lambda: trace_from_frame(frame))
        assert any("1 cases have another label" in note for note in notes)

    @pytest.mark.parametrize(
        ("label", "field", "cell"),
        [
            ("refuse", "expect_sources", "a.md"),
            ("refuse", "expect_sources_any", "a.md;b.md"),
            ("refuse", "min_sources", 1),
            ("ok", "expect_option", 1),
        ],
    )
    def test_what_a_label_rules_out(self, label, field, cell):
        """A refusal has no sources, an answer no options: the rows are named."""
        frame = pd.DataFrame({"query": ["Who?", "When?", "Why?"], "label": ["ok", label, label]})
        frame[field] = [None, cell, cell]
        refusal(
            lambda: load_cases(frame),
            f"frame, row 1, id q2: {field}",
            f"labelled {label} … (2 rows)",
        )
