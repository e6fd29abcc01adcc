"""Spans of an application as a trace.

What is read, in which order, and what is said of the rest.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from raglab.extensions.imports import spans as span_files
from raglab.extensions.imports.span_traces import trace_from_spans
from raglab.live import telemetry
from raglab.loops.parallel import parallel_workers
from raglab.retrieval.arms import walk
from raglab.store.files import InputError
from span_samples import documents, evaluation, request, reranker, retriever, span, write_lines
from test_live_telemetry import ANSWERS, Opened, Spans, opened, spans  # noqa: F401
from test_live_trace_building import encoder  # noqa: F401


def imported(path: Path | list[Path], **options: Any) -> tuple[Any, str]:
    """Trace of files, with all that the import warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = trace_from_spans(path, **options)
    return trace, "\n".join(str(warning.message) for warning in caught)


def of(tmp_path: Path, *rows: Any, **options: Any) -> tuple[Any, str]:
    """Trace of lines."""
    return imported(write_lines(tmp_path / "spans.jsonl", rows), **options)


def hits(trace: Any) -> dict[str, list[str]]:
    """Ids of the hits of each case."""
    names = [chunk.chunk_id for chunk in trace.chunks]
    return {
        case.id: [names[place] for place in trace.hits.chunk[row, 0, 0] if place >= 0]
        for row, case in enumerate(trace.cases)
    }


class TestRequest:
    """Worked examples of one request."""

    def test_question_answer_hits_and_score(self, tmp_path: Path) -> None:
        """Of the root and the retriever.

        The gates on distances are off, and a policy still decides.
        """
        rows = request("t", "what is the excess?", ("a", 0.75), ("b", 0.5), second=3)
        trace, text = of(tmp_path, *rows)
        (case,) = trace.cases
        assert (case.id, case.query, case.expect_status) == ("t", "what is the excess?", None)
        assert case.extra["logged_answer"] == "Answer to what is the excess?"
        assert case.extra["at"] == "2025-11-24T16:00:03+00:00"
        assert hits(trace) == {"t": ["a", "b"]}
        assert trace.signal("retriever_score").tolist() == [0.75]
        assert [chunk.text for chunk in trace.chunks] == ["Text of a.", "Text of b."]
        assert "similarity" in text
        assert "are off" in text
        gate = "signals.retriever_score.min"
        policy = raglab.Policy.load()
        statuses = [
            raglab.decide(trace, policy.replace(gate, low)).frame()["status"][0]
            for low in (0.75, 0.76)
        ]
        assert statuses == ["ok", "refuse"]

    def test_the_reranker_orders_and_the_rest_follows(self, tmp_path: Path) -> None:
        """The last reranker's order, then the retriever's; each score is a signal of its own."""
        rows = [
            span("t", 0, retriever("q", ("a", 0.9), ("b", 0.8), ("c", 0.7))),
            span("t", 1, reranker(("b", 4.0), ("a", 1.0))),
            span("t", 2, reranker(("c", 9.0), ("b", -1.0))),
        ]
        trace, text = of(tmp_path, *rows)
        assert hits(trace) == {"t": ["c", "b", "a"]}
        assert trace.signal("reranker_score").tolist() == [9.0]
        assert trace.signal("retriever_score").tolist() == pytest.approx([0.7])
        assert "1 traces have several rerankers' spans" in text

    def test_several_retrievers_are_joined(self, tmp_path: Path) -> None:
        """In the order of their time; a document counts once."""
        rows = [
            span("t", 2, retriever("other words", ("b", 0.9), ("c", 0.7))),
            span("t", 1, retriever("q", ("a", 0.9), ("b", 0.8))),
        ]
        trace, text = of(tmp_path, *rows)
        assert hits(trace) == {"t": ["a", "b", "c"]}
        assert trace.cases[0].query == "q"
        assert "1 traces have several retrievers' spans" in text
        assert "1 documents occur twice" in text

    def test_the_conventions_of_opentelemetry(self, tmp_path: Path) -> None:
        """Documents are a list of objects, or its JSON; messages have parts."""
        listed = [{"id": "a", "score": 0.5, "content": "Text."}, {"id": "b", "score": 0.25}]
        question = [{"role": "user", "parts": [{"type": "text", "content": "what is the excess?"}]}]
        answer = [{"role": "assistant", "parts": [{"type": "text", "content": "£250."}]}]
        root = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(question)}
        rows = [
            span("t", 0, {**root, "gen_ai.output.messages": json.dumps(answer)}),
            span(
                "t",
                1,
                {
                    "gen_ai.operation.name": "retrieval",
                    "gen_ai.retrieval.documents": json.dumps(listed),
                },
                parent="t-0",
            ),
        ]
        trace, _ = of(tmp_path, *rows)
        assert trace.cases[0].query == "what is the excess?"
        assert trace.cases[0].extra["logged_answer"] == "£250."
        assert hits(trace) == {"t": ["a", "b"]}

    def test_the_lines_of_an_sdk(self, tmp_path: Path) -> None:
        """`to_json` of the Python SDK: ids in a context, ISO times, attributes as an object."""
        row = {
            "name": "search",
            "context": {"trace_id": "0xab", "span_id": "0x01", "trace_state": "[]"},
            "parent_id": None,
            "start_time": "2025-11-24T16:00:00.500000Z",
            "attributes": retriever("q", ("a", 0.9)),
            "events": [],
        }
        trace, _ = of(tmp_path, row)
        assert trace.cases[0].id == "ab"
        assert trace.cases[0].extra["at"] == "2025-11-24T16:00:00+00:00"

    def test_source_and_page_are_of_the_metadata(self, tmp_path: Path) -> None:
        """As loaders of documents state them."""
        metadata = json.dumps({"source": "policy.pdf", "page": 3})
        more = {"retrieval.documents.0.document.metadata": metadata}
        trace, _ = of(tmp_path, span("t", 0, retriever("q", ("a", 0.9), **more)))
        assert (trace.chunks[0].source, trace.chunks[0].page) == ("policy.pdf", 3)


class TestLabels:
    """Feedback and cases."""

    def test_feedback_is_a_label_with_its_source(self, tmp_path: Path) -> None:
        """A good answer is ok, a bad one refuse.

        What contradicts itself, or is no known word, is none.
        """
        rows = [
            *request("a", "one?", ("x", 0.9), feedback="thumbs_up"),
            *request("b", "two?", ("x", 0.9), feedback="False"),
            *request("c", "three?", ("x", 0.9), feedback="so-so"),
            *request("d", "four?", ("x", 0.9)),
            span(
                "d",
                9,
                {},
                parent="d-0",
                events=(evaluation("user", "yes"), evaluation("judge", "no", "llm")),
            ),
        ]
        trace, text = of(tmp_path, *rows)
        assert {case.id: case.expect_status for case in trace.cases} == {
            "a": "ok",
            "b": "refuse",
            "c": None,
            "d": None,
        }
        assert trace.cases[0].notes == "feedback user=thumbs_up (human)"
        assert "labels of feedback: user=False is refuse (1), user=thumbs_up is ok (1)" in text
        assert "no sample" in text
        assert "feedback of 1 requests contradicts itself" in text
        assert "judgements that are no label, by their value or their name: user=so-so (1)" in text
        judged, _ = of(tmp_path, *rows, feedback=("judge",))
        assert [case.expect_status for case in judged.cases] == [None, None, None, "refuse"]
        bare, text = of(tmp_path, *rows, feedback=None)
        assert {case.expect_status for case in bare.cases} == {None}
        assert "feedback" not in text

    def test_a_name_that_says_something_bad_is_not_guessed(self, tmp_path: Path) -> None:
        """Nor a number without a name that is stated; a mapping says what a yes means."""
        events = [
            evaluation("toxicity", "true", "judge"),
            evaluation("stars", "1"),
            evaluation("thumb", "0"),
        ]
        row = span("a", 0, retriever("one?", ("x", 0.9)))
        rows = [row, span("a", 1, {"input.value": "one?"}, events=events)]
        trace, text = of(tmp_path, *rows)
        assert trace.cases[0].expect_status is None
        assert "stars=1 (1), thumb=0 (1), toxicity=true (1)" in text
        for senses, label in (
            ({"toxicity": "refuse"}, "refuse"),
            ({"toxicity": "ok"}, "ok"),
            (("thumb",), "refuse"),
            ("stars", "ok"),
        ):
            assert of(tmp_path, *rows, feedback=senses)[0].cases[0].expect_status == label
        with pytest.raises(ValueError, match="what a yes means"):
            of(tmp_path, *rows, feedback={"thumb": "bad"})

    @pytest.mark.parametrize(
        ("decision", "thumb", "label"),
        [
            ("ok", "up", "ok"),
            ("ok", "down", "refuse"),
            ("refuse", "up", "refuse"),
            ("refuse", "down", "ok"),
            ("ambiguous", "up", None),
        ],
    )
    def test_feedback_on_a_logged_decision(
        self, tmp_path: Path, decision: str, thumb: str, label: str | None
    ) -> None:
        """A refusal that is praised was right."""
        rows = request("a", "one?", ("x", 0.9), feedback=thumb, **{"raglab.decision": decision})
        trace, _ = of(tmp_path, *rows)
        assert trace.cases[0].expect_status == label

    def test_cases_by_trace_or_question(self, tmp_path: Path) -> None:
        """They go before feedback; those of no request are counted."""
        cases = [
            raglab.Case("a", "whatever", "refuse"),
            raglab.Case("own", "TWO  ?", "ok", expect_sources=("x.md",)),
            raglab.Case("gone", "nobody asked", "ok"),
        ]
        rows = [
            *request("a", "one?", ("x", 0.9), feedback="yes"),
            *request("b", "two ?", ("x", 0.9)),
        ]
        trace, text = of(tmp_path, *rows, cases=cases)
        assert [(case.id, case.expect_status) for case in trace.cases] == [
            ("a", "refuse"),
            ("b", "ok"),
        ]
        assert trace.cases[1].expect_sources == ("x.md",)
        assert "1 of 3 cases are of no request" in text
        assert "1 requests have the label of a case with the same question" in text

    def test_groups_stay_with_the_case(self, tmp_path: Path) -> None:
        """Of any span of the request."""
        rows = [
            *request("a", "one?", ("x", 0.9), **{"tenant.id": "acme"}),
            *request("b", "two?", ("x", 0.9)),
        ]
        trace, _ = of(tmp_path, *rows, groups=("tenant.id",))
        assert [case.extra.get("groups") for case in trace.cases] == [{"tenant.id": "acme"}, None]

    def test_the_outermost_span_and_the_resource_name_the_group(self, tmp_path: Path) -> None:
        """A span goes before its resource; what no request states is counted."""
        spans = [
            span("a", 2, {"tenant": "db"}, parent="a-1"),
            span("a", 1, retriever("one?", ("x", 0.9), tenant="inner"), parent="a-0"),
            span("a", 0, {"input.value": "one?", "tenant": "outer"}),
            span("b", 0, retriever("two?", ("x", 0.9))),
        ]
        resource = {"attributes": [{"key": "tenant", "value": {"stringValue": "of the resource"}}]}
        batch = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
        trace, text = of(tmp_path, batch, groups=("tenant", "office"))
        assert [case.extra["groups"]["tenant"] for case in trace.cases] == [
            "outer",
            "of the resource",
        ]
        assert "2 spans name another group than the outermost span" in text
        assert "2 requests state no group office" in text


class TestTurns:
    """A conversation in one trace is a case a turn; a search of several steps is one case."""

    def test_turns_below_a_span_without_a_question(self, tmp_path: Path) -> None:
        """Each with its own hits, answer and feedback."""
        rows = [span("t", 9, {"openinference.span.kind": "AGENT"})]
        for turn, name, thumb in ((1, "x", "up"), (2, "y", "down")):
            about = {
                "openinference.span.kind": "CHAIN",
                "input.value": f"turn {turn}?",
                "output.value": f"R{turn}",
            }
            rows += [
                span(
                    "t",
                    10 * turn,
                    about,
                    parent="t-9",
                    events=[evaluation("user", thumb)],
                    second=turn,
                ),
                span(
                    "t",
                    10 * turn + 1,
                    retriever(f"rewritten {turn}", (name, 0.5)),
                    parent=f"t-{turn}0",
                    second=turn,
                ),
            ]
        trace, text = of(tmp_path, *rows)
        assert hits(trace) == {"t/1": ["x"], "t/2": ["y"]}
        assert [case.query for case in trace.cases] == ["turn 1?", "turn 2?"]
        assert [case.extra["logged_answer"] for case in trace.cases] == ["R1", "R2"]
        assert [case.expect_status for case in trace.cases] == ["ok", "refuse"]
        assert "1 traces have several turns" in text

    def test_steps_of_one_question(self, tmp_path: Path) -> None:
        """Tools that search below a question are of that question, as the user asked it."""
        rows = [
            span("t", 0, {"openinference.span.kind": "AGENT", "input.value": "the question?"}),
            span(
                "t", 1, {"openinference.span.kind": "TOOL", "input.value": "step 1"}, parent="t-0"
            ),
            span("t", 2, retriever("words 1", ("x", 0.5)), parent="t-1"),
            span(
                "t", 3, {"openinference.span.kind": "TOOL", "input.value": "step 2"}, parent="t-0"
            ),
            span("t", 4, retriever("words 2", ("y", 0.5)), parent="t-3"),
        ]
        trace, _ = of(tmp_path, *rows)
        assert hits(trace) == {"t": ["x", "y"]}
        assert trace.cases[0].query == "the question?"

    def test_the_question_of_the_user_goes_before_a_rewritten_one(self, tmp_path: Path) -> None:
        """Where the first span has none."""
        rows = [
            span("t", 0, {"http.route": "/ask"}),
            span(
                "t",
                1,
                {"openinference.span.kind": "CHAIN", "input.value": "And for that?"},
                parent="t-0",
            ),
            span("t", 2, retriever("excess for theft", ("x", 0.5)), parent="t-1"),
        ]
        assert of(tmp_path, *rows)[0].cases[0].query == "And for that?"


class TestDirection:
    """What a score means is stated, or guessed from the rankings, and said."""

    @pytest.mark.parametrize(
        ("scores", "higher"), [((0.9, 0.1), "surer"), ((0.1, 0.9), "ask"), ((0.5, 0.5), "surer")]
    )
    def test_it_is_what_the_rankings_show(
        self, tmp_path: Path, scores: tuple[float, float], higher: str
    ) -> None:
        """A distance rises down the ranking."""
        rows = [
            row
            for name in "abc"
            for row in request(name, f"{name}?", ("x", scores[0]), ("y", scores[1]))
        ]
        trace, text = of(tmp_path, *rows)
        assert trace.meta["signals"]["retriever_score"]["higher"] == higher
        assert "is taken as surer" in text

    def test_two_retrievers_are_looked_at_apart(self, tmp_path: Path) -> None:
        """Distances of two indexes rise in each of them."""
        rows = [
            span("t", 0, retriever("q", ("a", 0.5), ("b", 0.6))),
            span("t", 1, retriever("q", ("c", 0.1), ("d", 0.2))),
        ]
        assert of(tmp_path, *rows)[0].meta["signals"]["retriever_score"]["higher"] == "ask"

    def test_what_nothing_tells_is_said(self, tmp_path: Path) -> None:
        """One hit has no ranking."""
        assert "though nothing tells so" in of(tmp_path, *request("a", "one?", ("x", 0.9)))[1]

    def test_it_can_be_stated(self, tmp_path: Path) -> None:
        """Then nothing is guessed."""
        rows = request("a", "one?", ("x", 0.9), ("y", 0.1))
        trace, text = of(tmp_path, *rows, higher={"retriever_score": "ask"})
        assert trace.meta["signals"]["retriever_score"]["higher"] == "ask"
        assert "is taken as" not in text

    @pytest.mark.parametrize("higher", [{"score": "surer"}, {"retriever_score": "lower"}])
    def test_another_is_refused(self, tmp_path: Path, higher: dict[str, str]) -> None:
        """With the names that there are."""
        with pytest.raises(ValueError, match="higher must name"):
            of(tmp_path, *request("a", "one?", ("x", 0.9)), higher=higher)


class TestCounts:
    """What is left out or merged is said with a count and the place of the first."""

    def test_what_is_no_span(self, tmp_path: Path) -> None:
        """Broken lines, and JSON that is none."""
        rows = [
            *request("a", "one?", ("x", 0.9)),
            "{broken",
            "",
            "42",
            '{"traceId": ""}',
            "[" * 5_000,
        ]
        _, text = of(tmp_path, *rows)
        assert "2 lines are no JSON and are left out (the first: spans.jsonl, line 4)" in text
        assert (
            "2 values are no spans with a trace id and are left out (the first: spans.jsonl, line "
            "6)" in text
        )

    def test_requests_that_cannot_be_decided(self, tmp_path: Path) -> None:
        """No retriever, no question, a question that is too long."""
        rows = [
            *request("a", "one?", ("x", 0.9)),
            span("b", 0, {"input.value": "no retrieval?"}),
            span("c", 0, retriever("", ("x", 0.9))),
            span("d", 0, retriever("x" * 20_001, ("x", 0.9))),
            span("e", 0, retriever("nothing?")),
        ]
        trace, text = of(tmp_path, *rows)
        assert [case.id for case in trace.cases] == ["a", "e"]
        for reason in (
            "no retriever's span",
            "no question",
            "a question of more than 20,000 characters",
        ):
            assert f"1 traces have {reason} and are left out" in text
        assert "1 requests retrieved no document" in text
        assert raglab.decide(trace, raglab.Policy.load()).frame()["status"].tolist() == [
            "ok",
            "refuse",
        ]

    def test_a_retriever_that_failed_is_no_refusal(self, tmp_path: Path) -> None:
        """Its request is left out; where another found something it counts."""
        failed = {**span("a", 0, retriever("one?")), "status": {"code": 2}}
        other = {**span("b", 0, retriever("two?")), "status": {"code": "STATUS_CODE_ERROR"}}
        trace, text = of(tmp_path, failed, other, span("b", 1, retriever("two?", ("x", 0.9))))
        assert hits(trace) == {"b": ["x"]}
        assert "1 traces have a retriever that failed" in text

    def test_a_file_that_is_cut_off(self, tmp_path: Path) -> None:
        """What was written before is read."""
        chance = random.Random(0)  # noqa: S311 - of a test
        rows = [
            row
            for n in range(400)
            for row in request(f"t{n}", f"{chance.random()}?", ("x", chance.random()))
        ]
        raw = write_lines(tmp_path / "spans.jsonl", rows).read_bytes()
        path = tmp_path / "spans.jsonl.gz"
        path.write_bytes(gzip.compress(raw)[:-2_000])
        trace, text = imported(path)
        assert 0 < len(trace) < 400
        assert "1 gzipped files are cut off or damaged" in text

    def test_other_files_of_a_folder(self, tmp_path: Path) -> None:
        """Folders within it are read; other endings are counted."""
        folder = tmp_path / "logs"
        (folder / "day=1").mkdir(parents=True)
        write_lines(folder / "day=1" / "spans.JSONL", request("a", "one?", ("x", 0.9)))
        write_lines(folder / "spans.jsonl", request("b", "two?", ("x", 0.9)))
        write_lines(folder / "spans.json.1", request("c", "three?", ("x", 0.9)))
        trace, text = imported(folder)
        assert sorted(hits(trace)) == ["a", "b"]
        assert (
            "1 files of a folder have another ending and are not read (the first: spans.json.1)"
            in text
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"groups": 5}, "groups must be"),
            ({"feedback": 5}, "feedback must be"),
            ({"higher": "ask"}, "higher must be"),
        ],
    )
    def test_arguments_of_another_type(
        self, tmp_path: Path, options: dict[str, Any], message: str
    ) -> None:
        """One line, with what is meant."""
        with pytest.raises(TypeError, match=message):
            of(tmp_path, *request("a", "one?", ("x", 0.9)), **options)

    @pytest.mark.parametrize("source", [None, 5, "", [{"traceId": "a"}]])
    def test_sources_that_are_no_path(self, source: Any) -> None:
        """Not the folder one happens to be in."""
        with pytest.raises(TypeError, match="source must be a file, a folder or a list of files"):
            imported(source)

    def test_spans_that_stand_twice(self, tmp_path: Path) -> None:
        """The last counts: an exporter may send a span before it has ended, and again."""
        once, twice = request("a", "one?", ("x", 0.9)), request("a", "another?", ("y", 0.5))
        trace, text = of(tmp_path, *once, *twice)
        assert hits(trace) == {"a": ["y"]}
        assert "3 spans have the id of a later one of their trace" in text

    def test_documents_without_an_id(self, tmp_path: Path) -> None:
        """Their text names them; without a text they are left out."""
        trace, text = of(
            tmp_path,
            span("a", 0, retriever("q", (None, 0.9, "A text."), (None, 0.8, ""), ("x", 0.7))),
        )
        first, second = hits(trace)["a"]
        assert (first[:5], second) == ("text-", "x")
        assert "1 documents without an id are named by a hash of their text" in text
        assert "1 documents without an id or a text are left out" in text

    def test_documents_that_change(self, tmp_path: Path) -> None:
        """The first text counts."""
        rows = [
            *request("a", "one?", ("x", 0.9, "Old."), second=1),
            *request("b", "two?", ("x", 0.9, "New."), second=2),
        ]
        trace, text = of(tmp_path, *rows)
        assert trace.chunks[0].text == "Old."
        assert "1 documents have several texts or sources, of which the first counts: x" in text

    @pytest.mark.parametrize("score", [math.nan, math.inf, 1e13, "high", True, None])
    def test_scores_that_are_none(self, tmp_path: Path, score: Any) -> None:
        """They are missing; the hit stays."""
        rows = [*request("a", "one?", ("x", score)), *request("b", "two?", ("y", -1e12))]
        trace, text = of(tmp_path, *rows)
        values = trace.signal("retriever_score")
        assert np.isnan(values["a"])
        assert values["b"] == -1e12
        assert "1 hits have no score" in text

    def test_long_lines_are_never_in_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are counted, and the next line is read."""
        monkeypatch.setattr(span_files, "LONGEST_LINE", 4 << 20)
        long = span("b", 0, retriever("q" * (5 << 20), ("x", 0.9)))
        _, text = of(tmp_path, long, *request("a", "one?", ("x", 0.9)))
        assert "1 lines of more than 4 MiB are left out (the first: spans.jsonl, line 1)" in text

    def test_texts_that_no_file_holds(self, tmp_path: Path) -> None:
        """Lone surrogates are replaced; the trace can be saved and opened."""
        trace, text = of(
            tmp_path, span("a", 0, retriever("half \ud800?", ("i\ud800", 0.5, "t\udfff\x00")))
        )
        assert trace.cases[0].query == "half ??"
        assert "3 texts have halves of characters" in text
        trace.save(tmp_path / "trace.parquet")
        assert raglab.Trace.load(tmp_path / "trace.parquet").cases == trace.cases

    def test_attributes_without_a_name(self, tmp_path: Path) -> None:
        """They are counted."""
        row = span("a", 0, retriever("q", ("x", 0.5)))
        row["attributes"] += [
            {"value": {"stringValue": "x"}},
            "text",
            {"key": "top_k"},
            {"key": "top_k"},
        ]
        _, text = of(tmp_path, row)
        assert "3 attributes have no name, or one that stands twice" in text

    def test_nothing_to_import(self, tmp_path: Path) -> None:
        """An empty file, a folder without one, and no file are errors."""
        with pytest.raises(InputError, match="at least one request"):
            of(tmp_path)
        with pytest.raises(InputError, match="a folder of spans must hold files"):
            imported((tmp_path / "empty").mkdir() or tmp_path / "empty")
        with pytest.raises(InputError, match="no such file"):
            imported(tmp_path / "none.jsonl")


class TestForms:
    """The same spans in every form give the same trace."""

    def test_whole_batched_listed_and_gzipped(self, tmp_path: Path) -> None:
        """Cases, chunks and hits are equal."""
        rows = [row for name in "abc" for row in request(name, f"{name}?", ("x", 0.9), (name, 0.5))]
        batch = {"resourceSpans": [{"scopeSpans": [{"spans": rows[:4]}, {"spans": rows[4:]}]}]}
        texts = {
            "lines.jsonl": "\n".join(map(json.dumps, rows)),
            "mark.jsonl": "\ufeff" + "\r\n".join(map(json.dumps, rows)),
            "batch.jsonl": json.dumps(batch) + "\n",
            "whole.json": json.dumps(batch, indent=2),
            "list.json": json.dumps(rows, indent=1),
        }
        expected, _ = of(tmp_path, *rows)
        for name, text in texts.items():
            path = tmp_path / name
            path.write_text(text, encoding="utf-8", newline="")
            packed = tmp_path / f"{name}.gz"
            packed.write_bytes(gzip.compress(path.read_bytes()))
            for file in (path, packed):
                trace, _ = imported(file)
                assert (trace.cases, trace.chunks) == (expected.cases, expected.chunks), file.name
                assert trace.meta["fingerprint"] == expected.meta["fingerprint"], file.name

    def test_a_folder_and_its_files(self, tmp_path: Path) -> None:
        """A request may lie in several."""
        rows = [row for name in "abc" for row in request(name, f"{name}?", ("x", 0.9))]
        folder = tmp_path / "files"
        folder.mkdir()
        for number in range(3):
            write_lines(folder / f"{number}.jsonl", rows[number::3])
        trace, _ = imported(folder)
        assert trace.meta["fingerprint"] == of(tmp_path, *rows)[0].meta["fingerprint"]


class TestParts:
    """Pieces, parts, workers and shards change nothing."""

    @pytest.fixture
    def traffic(self, tmp_path: Path) -> Path:
        """A file of 40 requests whose spans are mixed, with two broken lines."""
        chance = random.Random(0)  # noqa: S311 - of a test
        rows: list[Any] = []
        for number in range(40):
            names = chance.sample("abcdefgh", 3)
            scores = sorted((round(chance.random(), 2) for _ in names), reverse=True)
            rows += request(
                f"t{number:02}",
                f"question {number}?",
                *zip(names, scores, strict=True),
                second=number % 7,
            )
        chance.shuffle(rows)
        rows[10:10] = ["{", "not json"]
        return write_lines(tmp_path / "traffic.jsonl", rows)

    def test_small_pieces_and_parts(self, traffic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Line numbers stay those of the file."""
        whole, text = imported(traffic)
        monkeypatch.setattr(span_files, "PIECE_BYTES", 1_000)
        monkeypatch.setattr("raglab.extensions.imports.span_traces.PART_BYTES", 3_000)
        monkeypatch.setattr("raglab.extensions.imports.span_traces.SPANS_AHEAD", 2)
        assert len(span_files.pieces(traffic, span_files.Losses())) > 10
        trace, again = imported(traffic)
        assert trace.cases == whole.cases
        assert trace.chunks == whole.chunks
        assert np.array_equal(trace.hits.chunk, whole.hits.chunk)
        assert again == text
        assert "2 lines are no JSON and are left out (the first: traffic.jsonl, line 11)" in text

    @pytest.mark.skipif("scale" not in raglab.extension_points.installed(), reason="needs shards")
    def test_shards_decide_as_the_whole(
        self, traffic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And two processes write the same bytes as one."""
        whole, _ = imported(traffic)
        monkeypatch.setattr("raglab.extensions.imports.span_traces.PART_BYTES", 8_000)
        contents = []
        for kind in ("threads", "joblib"):
            out = tmp_path / kind
            with parallel_workers(kind, 2):
                shards, _ = imported(traffic, out=out)
            contents.append(
                {path.name: path.read_bytes() for path in sorted(out.glob("*.parquet"))}
            )
        assert contents[0] == contents[1]
        assert len(contents[0]) > 1
        policy = raglab.Policy.load().replace("signals.retriever_score.min", 0.6)
        frames = [
            raglab.decide(trace, policy).frame().set_index("case_id").sort_index()
            for trace in (whole, shards)
        ]
        assert frames[0]["status"].equals(frames[1]["status"])
        assert set(frames[0]["status"]) == {"ok", "refuse"}


SCORES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, -1.0, math.nan])
ROWS = st.lists(st.tuples(st.sampled_from("abcd"), SCORES), max_size=5)


@settings(max_examples=40)
@given(
    requests=st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_hits_are_the_rerankers_then_the_retrievers(
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[tuple[list[Any], list[Any]]],
    order: random.Random,
) -> None:
    """Whatever the order of the lines, and however often a document occurs."""
    rows = []
    for number, (first, second) in enumerate(requests):
        rows.append(span(f"t{number}", 0, retriever(f"question {number}?", *first)))
        rows.append(
            span(f"t{number}", 1, {**reranker(*second), "openinference.span.kind": "RERANKER"})
        )
    order.shuffle(rows)
    trace, _ = of(tmp_path_factory.mktemp("spans"), *rows)
    expected = {}
    for number, (first, second) in enumerate(requests):
        names = [
            *dict.fromkeys(name for name, _ in second),
            *dict.fromkeys(name for name, _ in first),
        ]
        expected[f"t{number}"] = list(dict.fromkeys(names))
    assert hits(trace) == expected
    by_request = {f"t{number}": dict(reversed(first)) for number, (first, _) in enumerate(requests)}
    if "retriever_score" in trace.meta.get("signals", {}):
        values = trace.signal("retriever_score")
        for name, order_of in expected.items():
            score = by_request[name].get(order_of[0], math.nan) if order_of else math.nan
            assert values[name] == score or (math.isnan(values[name]) and math.isnan(score))


def test_documents_are_those_of_the_prefix() -> None:
    """The sample itself: keys of OpenInference."""
    assert documents(("a", 0.5)) == {
        "retrieval.documents.0.document.id": "a",
        "retrieval.documents.0.document.score": 0.5,
        "retrieval.documents.0.document.content": "Text of a.",
    }


def test_spans_of_a_system_are_read_back(
    opened: Opened,
    spans: Spans,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Questions, answers, hits in their final order, both scores, texts and the decision."""
    monkeypatch.setenv(telemetry.CAPTURE, "span_only")
    system = opened(ANSWERS)
    questions = ("What is the motor excess?", "Is a courtesy car provided?")
    responses = {text: raglab.ask(text, system=system) for text in questions}
    trace, _ = of(tmp_path, *(each.to_json(indent=None) for each in spans.all))
    ready = system.retriever
    texts = {chunk.chunk_id: chunk.full_text for chunk in ready.chunks}
    assert sorted(case.query for case in trace.cases) == sorted(questions)
    for case in trace.cases:
        assert case.extra["logged_answer"] == responses[case.query]["answer"]
        (depth,) = islice(walk(ready.strategies["hybrid"], ready.question(case.query)), 1)
        fields = {name: values.ravel() for name, values in depth.hits._asdict().items()}
        order = np.argsort(fields["rank"], kind="stable")
        first = order[fields["rank"][order] >= 0][0]
        read = hits(trace)[case.id]
        assert read[0] == ready.chunks[fields["chunk"][first]].chunk_id
        assert len(read) == (fields["chunk"] >= 0).sum()
        assert trace.signal("reranker_score")[case.id] == fields["s_rerank"][first]
        assert trace.signal("retriever_score")[case.id] == fields["cosine"][first]
    assert {chunk.chunk_id: chunk.text for chunk in trace.chunks}.items() <= texts.items()
