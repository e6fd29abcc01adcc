"""Spans of an application as a trace.

What is read, in which order, and what is said of the rest.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import time
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from raglab.extensions.imports import span_traces
from raglab.extensions.imports import spans as span_files
from raglab.extensions.imports.import_counts import ImportCounts
from raglab.extensions.imports.span_traces import trace_from_spans
from raglab.live import telemetry
from raglab.loops.parallel import parallel_workers
from raglab.retrieval.arms import walk
from raglab.store.files import InputError
from span_samples import evaluation, request, reranker, retriever, span, write_lines
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
        """The gates on distances are off, and a policy still decides."""
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
        """In the order of their time; a document counts once, a distance rises in each of them."""
        rows = [
            span("t", 2, retriever("rewritten", ("b", 0.1), ("c", 0.7))),
            span("t", 1, retriever("q", ("a", 0.8), ("b", 0.9))),
        ]
        trace, text = of(tmp_path, *rows)
        assert hits(trace) == {"t": ["a", "b", "c"]}
        assert trace.cases[0].query == "q"
        assert trace.meta["signals"]["retriever_score"]["higher"] == "ask"
        assert "1 traces have several retrievers' spans" in text
        assert "1 documents occur twice" in text

    def test_the_conventions_of_opentelemetry(self, tmp_path: Path) -> None:
        """Documents are a list of objects, or its JSON; messages have parts."""
        listed = [{"id": "a", "score": 0.5, "content": "Text."}, {"id": "b", "score": 0.25}]
        root = {"gen_ai.operation.name": "chat"}
        for name, role, content in (("input", "user", "excess?"), ("output", "assistant", "£250.")):
            message = {"role": role, "parts": [{"type": "text", "content": content}]}
            root[f"gen_ai.{name}.messages"] = json.dumps([message])
        search = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.retrieval.documents": json.dumps(listed),
        }
        trace, _ = of(tmp_path, span("t", 0, root), span("t", 1, search, parent="t-0"))
        assert trace.cases[0].query == "excess?"
        assert trace.cases[0].extra["logged_answer"] == "£250."
        assert hits(trace) == {"t": ["a", "b"]}

    @pytest.mark.parametrize(
        "question",
        [
            {"args": [], "kwargs": {"query": "excess?"}},
            {"args": ["excess?", 5], "kwargs": {}},
            {"inputs": {"question": "excess?", "id": "c4"}},
            {"messages": [{"role": "user", "content": "excess?"}, {"role": "system"}]},
        ],
    )
    def test_where_a_question_lies(self, tmp_path: Path, question: Any) -> None:
        """In the arguments of a call, in its inputs, or in messages."""
        trace, _ = of(tmp_path, span("t", 0, retriever(json.dumps(question), ("a", 0.5))))
        assert trace.cases[0].query == "excess?"

    @pytest.mark.parametrize("text", ["N/A", "n/a", " ", "None", "null", "nan"])
    def test_what_is_no_question(self, tmp_path: Path, text: str) -> None:
        """The retriever's counts; without one the trace is counted."""
        root = span("t", 0, {"input.value": text})
        search = span("t", 1, retriever("excess?", ("a", 0.5)), parent="t-0")
        bare = span("u", 0, retriever(text, ("a", 0.5)))
        trace, words = of(tmp_path, root, search, bare)
        assert [case.query for case in trace.cases] == ["excess?"]
        assert "1 traces have no question" in words


class TestLabels:
    """Feedback and cases."""

    def test_feedback_is_a_label_with_its_source(self, tmp_path: Path) -> None:
        """A good answer is ok, a bad one refuse; contradictions and unknown words are none."""
        rows = [
            *request("a", "one?", ("x", 0.9), feedback="thumbs-up"),
            *request("b", "two?", ("x", 0.9), feedback="False"),
            *request("c", "three?", ("x", 0.9), feedback="so-so"),
            *request("d", "four?", ("x", 0.9)),
        ]
        events = (evaluation("user", "yes"), evaluation("judge", "no", "llm"))
        rows.append(span("d", 9, {}, parent="d-0", events=events))

        def labels(**options: Any) -> list[str | None]:
            return [case.expect_status for case in of(tmp_path, *rows, **options)[0].cases]

        trace, text = of(tmp_path, *rows)
        assert labels() == ["ok", "refuse", None, None]
        assert trace.cases[0].notes == "feedback user=thumbs-up (human)"
        for count in ("1 labels are ok by `user`", "1 labels are refuse by `user`", "no sample"):
            assert count in text
        assert "1 requests have feedback that contradicts itself" in text
        assert "1 judgements `user` are no label" in text
        assert labels(feedback=("judge",)) == [None, None, None, "refuse"]
        assert labels(feedback=None) == [None] * 4

    def test_a_name_that_says_something_bad_is_not_guessed(self, tmp_path: Path) -> None:
        """Nor a number without a name that is stated; a mapping says what a yes means."""
        values = {"toxicity": "true", "stars": "1", "thumb": "0"}
        row = span("a", 0, retriever("one?", ("x", 0.9)))
        events = [evaluation(name, value) for name, value in values.items()]
        rows = [row, span("a", 1, {"input.value": "one?"}, events=events)]
        trace, text = of(tmp_path, *rows)
        assert trace.cases[0].expect_status is None
        assert all(f"1 judgements `{name}` are no label" in text for name in values)
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
        assert of(tmp_path, *rows)[0].cases[0].expect_status == label

    def test_many_names_of_judgements(self, tmp_path: Path) -> None:
        """A message names some of them."""
        events = [evaluation(f"name {number}", "so-so") for number in range(2_000)]
        row = span("a", 1, {"input.value": "one?"}, events=events)
        assert len(of(tmp_path, span("a", 0, retriever("one?", ("x", 0.9))), row)[1]) < 10_000

    def test_cases_by_trace_or_question(self, tmp_path: Path) -> None:
        """They go before feedback; an id is no question, and a question no id."""
        cases = [
            raglab.Case("a", "whatever", "refuse"),
            raglab.Case("own", "TWO  ?", "ok", expect_sources=("x.md",)),
            raglab.Case("three?", "nobody asked", "ok"),
            raglab.Case("fourth", "d", "refuse"),
        ]
        rows = [
            *request("a", "one?", ("x", 0.9), feedback="yes"),
            *request("b", "two ?", ("x", 0.9)),
            *request("c", "three?", ("x", 0.9)),
            *request("d", "four?", ("x", 0.9)),
        ]
        trace, text = of(tmp_path, *rows, cases=cases)
        assert [case.expect_status for case in trace.cases] == ["refuse", "ok", None, None]
        assert trace.cases[1].expect_sources == ("x.md",)
        assert "2 of 4 cases are of no request" in text
        assert "1 requests have the label of a case with the same question" in text

    def test_the_outermost_span_and_the_resource_name_the_group(self, tmp_path: Path) -> None:
        """A span goes before its resource; what no request states is counted."""
        rows = [
            span("a", 2, {"tenant": "db"}, parent="a-1"),
            span("a", 1, retriever("one?", ("x", 0.9), tenant="inner"), parent="a-0"),
            span("a", 0, {"input.value": "one?", "tenant": "outer"}),
            span("b", 0, retriever("two?", ("x", 0.9))),
        ]
        resource = {"attributes": [{"key": "tenant", "value": {"stringValue": "of the resource"}}]}
        batch = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": rows}]}]}
        trace, text = of(tmp_path, batch, groups=("tenant", "office"))
        assert [case.extra["groups"] for case in trace.cases] == [
            {"tenant": "outer"},
            {"tenant": "of the resource"},
        ]
        assert "2 spans name another group than the outermost span" in text
        assert "2 requests state no group office" in text


class TestTurns:
    """A conversation in one trace is a case a turn; a search of several steps is one case."""

    def test_turns_below_a_span_without_a_question(self, tmp_path: Path) -> None:
        """Each with its own hits, answer and feedback; that of the whole is no label."""
        kind = "openinference.span.kind"
        rows = [span("t", 9, {kind: "AGENT"}, events=[evaluation("user", "up")])]
        for turn, name, thumb in ((1, "x", "up"), (2, "y", "down")):
            about = {kind: "CHAIN", "input.value": f"turn {turn}?", "output.value": f"R{turn}"}
            search = retriever(f"rewritten {turn}", (name, 0.5))
            events = [evaluation("user", thumb)]
            rows += [
                span("t", 10 * turn, about, parent="t-9", events=events, second=turn),
                span("t", 10 * turn + 1, search, parent=f"t-{turn}0", second=turn),
            ]
        trace, text = of(tmp_path, *rows)
        assert hits(trace) == {"t/1": ["x"], "t/2": ["y"]}
        assert [case.query for case in trace.cases] == ["turn 1?", "turn 2?"]
        assert [case.extra["logged_answer"] for case in trace.cases] == ["R1", "R2"]
        assert [case.expect_status for case in trace.cases] == ["ok", "refuse"]
        assert "1 traces have several turns" in text
        assert "1 judgements are of several turns as a whole" in text

    def test_steps_of_one_question(self, tmp_path: Path) -> None:
        """Tools that search below a question are of that question, as the user asked it."""
        kind = "openinference.span.kind"
        rows = [span("t", 0, {kind: "AGENT", "input.value": "the question?"})]
        for number, name in ((1, "x"), (3, "y")):
            tool = {kind: "TOOL", "input.value": f"step {number}"}
            rows.append(span("t", number, tool, parent="t-0"))
            rows.append(
                span("t", number + 1, retriever("words", (name, 0.5)), parent=f"t-{number}")
            )
        trace, _ = of(tmp_path, *rows)
        assert hits(trace) == {"t": ["x", "y"]}
        assert trace.cases[0].query == "the question?"

    def test_the_question_of_the_user_goes_before_a_rewritten_one(self, tmp_path: Path) -> None:
        """Where the first span has none."""
        about = {"openinference.span.kind": "CHAIN", "input.value": "And for that?"}
        rows = [
            span("t", 0, {"http.route": "/ask"}),
            span("t", 1, about, parent="t-0"),
            span("t", 2, retriever("excess for theft", ("x", 0.5)), parent="t-1"),
        ]
        assert of(tmp_path, *rows)[0].cases[0].query == "And for that?"

    def test_parents_in_a_circle(self, tmp_path: Path) -> None:
        """They end, and the request is read."""
        rows = [
            span("t", number, retriever("q", (f"d{number}", 0.5)), parent=f"t-{(number + 1) % 3}")
            for number in range(3)
        ]
        rows.append(span("u", 0, retriever("q", ("x", 0.5)), parent="u-0"))
        trace, _ = of(tmp_path, *rows)
        assert hits(trace) == {"u": ["x"], "t": ["d0", "d1", "d2"]}


class TestDirection:
    """What a score means is stated, or guessed from the rankings, and said."""

    @pytest.mark.parametrize(
        ("scores", "higher"), [((0.9, 0.1), "surer"), ((0.1, 0.9), "ask"), ((0.5, 0.5), "surer")]
    )
    def test_it_is_what_the_rankings_show(
        self, tmp_path: Path, scores: tuple[float, float], higher: str
    ) -> None:
        """A distance rises down the ranking; what is stated is not guessed."""
        rows = [
            row
            for name in "abc"
            for row in request(name, f"{name}?", ("x", scores[0]), ("y", scores[1]))
        ]
        trace, text = of(tmp_path, *rows)
        assert trace.meta["signals"]["retriever_score"]["higher"] == higher
        assert "retriever_score is taken as surer" in text
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
        """Broken lines, and JSON that is none; the lines behind them are read."""
        rows = [
            *request("a", "one?", ("x", 0.9)),
            "{broken",
            "",
            "42",
            '{"traceId": ""}',
            "[" * 5_000,
            f'{{"a": {"1" * 5_000}}}',
            '{"a": [1,',
            "",
            *request("b", "two?", ("x", 0.9)),
        ]
        trace, text = of(tmp_path, *rows)
        assert list(hits(trace)) == ["a", "b"]
        assert "lines are no JSON and are left out (the first: spans.jsonl, line 4)" in text
        assert "2 values are no spans with a trace id" in text
        assert "(the first: spans.jsonl, line 6)" in text

    def test_requests_that_cannot_be_decided(self, tmp_path: Path) -> None:
        """No retriever, no question, a question that is too long; one without hits is refused."""
        rows = [
            *request("a", "one?", ("x", 0.9)),
            span("b", 0, {"input.value": "no retrieval?"}),
            span("c", 0, retriever("", ("x", 0.9))),
            span("d", 0, retriever("x" * 20_001, ("x", 0.9))),
            span("e", 0, retriever("nothing?")),
            span("f" * 1_001, 0, retriever("long?", ("x", 0.9))),
        ]
        trace, text = of(tmp_path, *rows)
        for reason in (
            "1 traces have no retriever's span",
            "1 traces have no question",
            "1 traces have a question of more than 20,000 characters",
            "1 traces have an id of more than 1,000 characters",
            "1 requests retrieved no document",
        ):
            assert reason in text
        frame = raglab.decide(trace, raglab.Policy.load()).frame()
        assert dict(zip(frame["case_id"], frame["status"], strict=True)) == {
            "a": "ok",
            "e": "refuse",
        }

    def test_a_retriever_that_failed_is_no_refusal(self, tmp_path: Path) -> None:
        """Its request is left out; where another has hits it counts."""
        failed = {**span("a", 0, retriever("one?")), "status": {"code": 2}}
        half = {**span("b", 0, retriever("two?")), "status": {"code": "STATUS_CODE_ERROR"}}
        row = {**span("c", 0, retriever("three?")), "status_code": "ERROR"}
        trace, text = of(tmp_path, failed, half, row, span("b", 1, retriever("two?", ("x", 0.9))))
        assert hits(trace) == {"b": ["x"]}
        assert "2 traces have a retriever that failed" in text

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
        path.write_bytes(gzip.compress(raw)[:12])
        with pytest.raises(InputError, match="1 gzipped files are cut off"):
            imported(path)

    def test_files_of_a_folder(self, tmp_path: Path) -> None:
        """Folders within it are read; other endings are counted; a request may lie in several."""
        folder = tmp_path / "logs"
        (folder / "day=1").mkdir(parents=True)
        first, second, third = request("a", "one?", ("x", 0.9))
        write_lines(folder / "day=1" / "spans.JSONL", [first, third])
        write_lines(folder / "spans.jsonl", [second])
        write_lines(folder / "spans.json.1", request("c", "three?", ("x", 0.9)))
        trace, text = imported(folder)
        assert (
            trace.meta["fingerprint"] == of(tmp_path, first, second, third)[0].meta["fingerprint"]
        )
        assert "1 files of a folder have another ending" in text
        assert "(the first: spans.json.1)" in text

    @pytest.mark.parametrize("source", [None, 5, "", [{"traceId": "a"}], "none.jsonl"])
    def test_sources_that_are_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any
    ) -> None:
        """Not the folder one happens to be in."""
        write_lines(tmp_path / "spans.jsonl", request("a", "one?", ("x", 0.9)))
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError if isinstance(source, str) else TypeError):
            imported(source)

    def test_spans_that_stand_twice(self, tmp_path: Path) -> None:
        """The last counts: an exporter may send a span before it has ended, and again."""
        once, twice = request("a", "one?", ("x", 0.9)), request("a", "another?", ("y", 0.5))
        trace, text = of(tmp_path, *once, *twice)
        assert hits(trace) == {"a": ["y"]}
        assert "3 spans have the id of a later one of their trace" in text

    def test_documents_without_an_id(self, tmp_path: Path) -> None:
        """Their text names them; without a text they are left out, as is an id that is too long."""
        rows = ((None, 0.9, "A text."), (None, 0.8, ""), ("x", 0.7), ("i" * 1_001, 0.6, "More."))
        trace, text = of(tmp_path, span("a", 0, retriever("q", *rows)))
        first, second, third = hits(trace)["a"]
        assert (first[:5], second, third[:5]) == ("text-", "x", "text-")
        assert "2 documents without an id are named by a hash" in text
        assert "1 documents without an id or a text are left out" in text

    def test_documents_that_change(self, tmp_path: Path) -> None:
        """The first text counts."""
        rows = [
            *request("a", "one?", ("x", 0.9, "Old."), second=1),
            *request("b", "two?", ("x", 0.9, "New."), second=2),
        ]
        trace, text = of(tmp_path, *rows)
        assert trace.chunks[0].text == "Old."
        assert "1 documents have several texts or sources" in text

    @pytest.mark.parametrize("score", [math.nan, math.inf, 1e13, "high", True, None])
    def test_scores_that_are_none(self, tmp_path: Path, score: Any) -> None:
        """They are missing; the hit stays."""
        rows = [*request("a", "one?", ("x", score)), *request("b", "two?", ("y", -1e12))]
        trace, text = of(tmp_path, *rows)
        values = trace.signal("retriever_score")
        assert np.isnan(values["a"])
        assert values["b"] == -1e12
        assert "1 hits have no score" in text

    def test_texts_that_no_file_holds(self, tmp_path: Path) -> None:
        """Lone surrogates and bytes that are no UTF-8 are replaced; the trace can be saved."""
        rows = [span("a", 0, retriever("half \ud800?", ("i\ud800", 0.5, "t\udfff\x00")))]
        path = write_lines(tmp_path / "spans.jsonl", [*rows, *request("b", "caf#?", ("x", 0.5))])
        path.write_bytes(path.read_bytes().replace(b"#", b"\xe9"))
        trace, text = imported(path)
        assert [case.query for case in trace.cases] == ["half ??", "caf??"]
        assert "halves of characters" in text
        trace.save(tmp_path / "trace.parquet")
        assert raglab.Trace.load(tmp_path / "trace.parquet").cases == trace.cases

    def test_attributes_without_a_name(self, tmp_path: Path) -> None:
        """They are counted."""
        row = span("a", 0, retriever("q", ("x", 0.5)))
        row["attributes"] += [{"value": {}}, "text", {"key": "top_k"}, {"key": "top_k"}]
        assert "3 attributes have no name" in of(tmp_path, row)[1]

    def test_nothing_to_import(self, tmp_path: Path) -> None:
        """An empty file, and a folder without one."""
        with pytest.raises(InputError, match="at least one request"):
            of(tmp_path)
        (tmp_path / "empty").mkdir()
        with pytest.raises(InputError, match="source must be a file of spans"):
            imported(tmp_path / "empty")


# --- the same content in other brackets

NORTH = {"attributes": {"tenant": "north"}}
ROWS = [
    row
    for name in "abc"
    for row in request(name, f"{name}?", ("x", 0.9), (name, 0.5), second=3, feedback="up")
]


def attributes(rows: list[Any]) -> dict[str, Any]:
    """Attributes of OTLP as an object."""
    return {row["key"]: next(iter(row["value"].values())) for row in rows}


def sdk(row: Any, **more: Any) -> dict[str, Any]:
    """A span as the Python SDK writes it."""
    return {
        "name": row["name"],
        "context": {"trace_id": f"0x{row['traceId']}", "span_id": f"0x{row['spanId']}"},
        "parent_id": row["parentSpanId"] and f"0x{row['parentSpanId']}",
        "start_time": "2025-11-24T16:00:03.000000Z",
        "status": {"status_code": "UNSET"},
        "attributes": attributes(row["attributes"]),
        "events": [
            {**event, "attributes": attributes(event["attributes"])} for event in row["events"]
        ],
        "resource": NORTH,
        **more,
    }


def phoenix(row: Any) -> dict[str, Any]:
    """A row of Phoenix's API: the kind stands beside the attributes."""
    fields = sdk(row, status_code="OK", start_time=1_764_000_003_000)
    values = {**fields["attributes"], "tenant": "north"}
    kind = values.pop("openinference.span.kind")
    return {**fields, "span_kind": kind, "attributes": values, "resource": None}


def frame_row(row: Any) -> dict[str, Any]:
    """A row of Phoenix's data frame, with a column an attribute."""
    fields = phoenix(row)
    for name in ("context", "attributes"):
        fields |= {f"{name}.{key}": value for key, value in fields.pop(name).items()}
    return {**fields, "attributes.llm.model_name": None}


def nested(row: Any, *, numbered: bool = False) -> dict[str, Any]:
    """Attributes within attributes: documents as a list, or by their numbers."""
    tree: dict[str, Any] = {}
    for name, value in sdk(row)["attributes"].items():
        *parts, last = name.split(".")
        branch = tree
        for part in parts:
            branch = branch.setdefault(part, {})
        branch[last] = value
    if "retrieval" in tree and not numbered:
        tree["retrieval"]["documents"] = list(tree["retrieval"]["documents"].values())
    return sdk(row, attributes=tree)


def snake(value: Any) -> Any:
    """Names of OTLP in snake case."""
    if isinstance(value, list):
        return [snake(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in key): snake(field)
        for key, field in value.items()
    }


def batches(name: str, scopes: str, rows: list[Any] = ROWS) -> dict[str, Any]:
    """Spans in two batches."""
    resource = {"attributes": [{"key": "tenant", "value": {"stringValue": "north"}}]}
    return {
        name: [{"resource": resource, scopes: [{"spans": rows[:4]}, {"spans": rows[4:]}]}],
    }


def lines(values: Any, indent: int | None = None) -> str:
    """JSON values one after the other."""
    return "".join(f"{json.dumps(value, indent=indent)}\n" for value in values)


OTLP = batches("resourceSpans", "scopeSpans")
FORMS: dict[str, str] = {
    "a batch a line": lines([OTLP]),
    "blank lines": f"\n\n {lines([OTLP])}\n\n",
    "a mark and other line ends": f"\ufeff{lines([OTLP])}".replace("\n", "\r\n"),
    "whole": lines([OTLP], 2),
    "without indent": lines([OTLP], 0),
    "a list of lines": "[\n" + ",\n".join(json.dumps(sdk(row)) for row in ROWS) + "\n]",
    "lines of an SDK": lines(map(sdk, ROWS)),
    "an SDK's indent": lines(map(sdk, ROWS), 4),
    "one behind the other": lines(map(sdk, ROWS)).replace("\n", ""),
    "Tempo": lines([batches("batches", "scopeSpans")]),
    "Tempo's older name": lines([batches("batches", "instrumentationLibrarySpans")], 1),
    "Tempo's second version": lines([{"trace": OTLP}]),
    "Phoenix": lines([{"data": list(map(phoenix, ROWS)), "next_cursor": None}]),
    "rows of Phoenix": lines(map(frame_row, ROWS)),
    "nested documents": lines(map(nested, ROWS)),
    "numbered documents": lines(nested(row, numbered=True) for row in ROWS),
    "snake case": lines([snake(OTLP)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_in_other_brackets(tmp_path: Path, form: str) -> None:
    """Cases, chunks and hits are equal, plain and gzipped."""
    expected, _ = of(tmp_path, OTLP, groups=("tenant",))
    assert expected.cases[0].extra["groups"] == {"tenant": "north"}
    path, packed = tmp_path / "form.json", tmp_path / "form.json.gz"
    path.write_text(FORMS[form], encoding="utf-8", newline="")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        trace, text = imported(file, groups=("tenant",))
        assert trace.cases == expected.cases
        assert trace.chunks == expected.chunks
        assert trace.meta["fingerprint"] == expected.meta["fingerprint"]
        assert "are left out" not in text


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"name": {"0": "s"}, "context.trace_id": {"0": "ab"}}, "data frame"),
        ({"columns": ["name"], "index": [0], "data": [["s"]]}, "data frame"),
        ({"data": [{"traceID": "a", "spans": [{"traceID": "a", "operationName": "s"}]}]}, "Jaeger"),
        ([{"traceId": "a", "id": "b", "localEndpoint": {}, "tags": {}}], "Zipkin"),
        ([{"traceId": "a", "parentObservationId": None, "type": "RETRIEVER"}], "Langfuse"),
        ([{"trace_id": "a", "run_type": "retriever", "inputs": {}}], "LangSmith"),
        ({"info": {"trace_id": "a"}, "data": {"spans": [ROWS[0]]}}, "trace_from_mlflow"),
        ({"resourceLogs": [{"scopeLogs": []}]}, "logs"),
    ],
)
def test_another_form_is_named(tmp_path: Path, value: Any, form: str) -> None:
    """With the way in."""
    with pytest.raises(InputError, match=form):
        of(tmp_path, value)


DOCUMENTS = [{"page_content": "T", "metadata": {"source": "s.pdf", "page": 3, "score": 0.5}}]


@pytest.mark.parametrize(
    "output",
    [
        json.dumps(DOCUMENTS),
        json.dumps({"documents": DOCUMENTS}),
        json.dumps({"nodes": [{"node": {"text": "T", "metadata": DOCUMENTS[0]["metadata"]}}]}),
        json.dumps([{"lc": 1, "id": ["langchain", "Document"], "kwargs": DOCUMENTS[0]}]),
        json.dumps([{"content": "T", "meta": DOCUMENTS[0]["metadata"]}]),
        json.dumps([{"document": json.dumps(DOCUMENTS[0]), "metadata": "{}"}]),
    ],
)
def test_documents_of_an_output(tmp_path: Path, output: str) -> None:
    """As LangChain, LlamaIndex and Haystack write them; source, page and score of the metadata."""
    about = {"openinference.span.kind": "RETRIEVER", "input.value": "q", "output.value": output}
    trace, _ = of(tmp_path, span("t", 0, about))
    (chunk,) = trace.chunks
    assert (chunk.text, chunk.source, chunk.page) == ("T", "s.pdf", 3)
    assert trace.signal("retriever_score").tolist() == [0.5]


@pytest.mark.parametrize("key", ["startTimeUnixNano", "start_time_unix_nano", "start_time"])
@pytest.mark.parametrize(
    ("value", "count"),
    [
        (1_764_000_003_000_000_000, ""),
        (1.764000003e18, ""),
        ("1.764000003e18", ""),
        ("2025-11-24T16:00:03.123456789Z", ""),
        ("2025-11-24T18:00:03+02:00", ""),
        (1_764_000_003_000_000, "microseconds"),
        ("1764000003000", "milliseconds"),
        (1_764_000_003.5, "seconds"),
        *((odd, "no time") for odd in (5, -1, True, None, "soon", [1], math.nan, 10**30)),
    ],
)
def test_times(tmp_path: Path, key: str, value: Any, count: str) -> None:
    """In every unit; what is guessed, or cannot be read, is counted."""
    row = {**span("t", 0, retriever("q", ("x", 0.5))), key: value}
    if key != "startTimeUnixNano":
        del row["startTimeUnixNano"]
    trace, text = of(tmp_path, row)
    at = None if count == "no time" else "2025-11-24T16:00:03+00:00"
    assert trace.cases[0].extra.get("at") == at
    assert count in text
    assert ("1 times are in" in text, "1 spans have no time" in text) == (
        count.endswith("seconds"),
        count == "no time",
    )


# --- bounds


def chained(number: int, n: int) -> Any:
    """A span that lies in the one before it."""
    about = retriever("q", ("a", 0.5)) if number % 2 else {"input.value": "q"}
    return span("t", number, about, parent=f"t-{number - 1}" if number else "")


def beside(number: int, n: int) -> Any:
    """A span beside the others; every second one lies in the one before it."""
    parent = f"t-{number - 1}" if number % 2 else ""
    return {**chained(number, n), "parentSpanId": parent}


INPUTS: dict[str, Callable[[int], str]] = {
    "blank lines": lambda n: "\n" * (600 * n),
    "lines of junk": lambda n: "x\n" * n,
    "brackets": lambda n: "[" * n,
    "brackets on lines": lambda n: "[\n" * n,
    "braces on lines": lambda n: "{\n" * n,
    "open lists": lambda n: "[1,\n" * n,
    "padded lists": lambda n: f'["{"x" * 500}",\n' * (n // 50),
    "values of a line": lambda n: "{}" * n,
    "a list that does not end": lambda n: "[\n" + "1,\n" * n,
    "a document that breaks": lambda n: "[\n" + "1,\n" * n + "x\n" * n,
    "a chain": lambda n: lines(chained(number, n) for number in range(n // 20)),
    "turns": lambda n: lines(beside(number, n) for number in range(n // 20)),
}


@pytest.mark.parametrize("name", INPUTS)
def test_time_is_linear_in_the_input(tmp_path: Path, name: str) -> None:
    """In one, two and four times of it, gzipped: what can be packed small is not read for long."""
    seconds = []
    for times in (1, 2, 4):
        path = tmp_path / f"{times}.jsonl.gz"
        rows = lines(request("a", "one?", ("x", 0.9)))
        path.write_bytes(gzip.compress(f"{rows}{INPUTS[name](10_000 * times)}\n{rows}".encode()))
        start = time.process_time()
        assert len(imported(path)[0]) >= 1
        seconds.append(time.process_time() - start)
    assert seconds[2] < 6 * seconds[0] + 0.5
    assert seconds[2] < 10


def test_long_lines_are_never_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted, and the next line is read; a document is refused."""
    monkeypatch.setattr(span_files, "LONGEST_LINE", 2 << 20)
    monkeypatch.setattr(span_files, "LONGEST_VALUE", 3 << 20)
    sizes: list[int] = []
    more = span_files._more

    def counted(blocks: Any, size: int) -> str:
        text = more(blocks, size)
        sizes.append(len(text))
        return text

    monkeypatch.setattr(span_files, "_more", counted)
    long = span("b", 0, retriever("q" * (16 << 20), ("x", 0.9)))
    rows = [long, *request("a", "one?", ("x", 0.9))]
    path = tmp_path / "spans.jsonl.gz"
    path.write_bytes(gzip.compress(lines(rows).encode()))
    trace, text = imported(path)
    assert list(hits(trace)) == ["a"]
    assert "1 lines of more than 2 MiB or 4 million brackets are left out" in text
    assert "(the first: spans.jsonl.gz, line 1)" in text
    assert max(sizes) <= 3 << 20
    path.write_bytes(gzip.compress(lines([[long["traceId"]] * (1 << 20)], 1).encode()))
    with pytest.raises(InputError, match="at most 3 MiB"):
        imported(path)


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
        monkeypatch.setattr(span_traces, "PART_BYTES", 3_000)
        monkeypatch.setattr(span_traces, "SPANS_AHEAD", 2)
        assert len(span_files.pieces(traffic, ImportCounts())) > 10
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
        monkeypatch.setattr(span_traces, "PART_BYTES", 8_000)
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
RANKINGS = st.lists(st.tuples(st.sampled_from("abcd"), SCORES), max_size=5)


@settings(max_examples=40)
@given(
    requests=st.lists(st.tuples(RANKINGS, RANKINGS), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_hits_are_the_rerankers_then_the_retrievers(
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[tuple[list[Any], list[Any]]],
    order: random.Random,
) -> None:
    """Whatever the order of the lines, and however often a document occurs."""
    rows = []
    expected = {}
    for number, (first, second) in enumerate(requests):
        rows.append(span(f"t{number}", 0, retriever(f"question {number}?", *first)))
        rows.append(span(f"t{number}", 1, reranker(*second)))
        expected[f"t{number}"] = list(dict.fromkeys(name for name, _ in (*second, *first)))
    order.shuffle(rows)
    trace, _ = of(tmp_path_factory.mktemp("spans"), *rows)
    assert hits(trace) == expected
    if "retriever_score" in trace.meta.get("signals", {}):
        values = trace.signal("retriever_score")
        for number, (first, _) in enumerate(requests):
            names = expected[f"t{number}"]
            score = dict(reversed(first)).get(names[0], math.nan) if names else math.nan
            assert values[f"t{number}"] == pytest.approx(score, nan_ok=True)


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
    trace, _ = of(tmp_path, *(each.to_json() for each in spans.all))
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
