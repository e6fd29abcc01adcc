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
from functools import partial
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from effort import lines_run
from raglab.extensions.imports import span_traces
from raglab.extensions.imports import spans as span_files
from raglab.extensions.imports.import_counts import ImportCounts
from raglab.extensions.imports.span_traces import trace_from_spans
from raglab.live import telemetry
from raglab.loops.parallel import parallel_workers
from raglab.retrieval.arms import walk
from raglab.store.files import InputError
from span_samples import evaluation, request, reranker, retriever, span, write_lines


def imported(path, **options):
    """Trace of files, with all that the import warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = trace_from_spans(path, **options)
    return trace, "\n".join(str(warning.message) for warning in caught)


def of(tmp_path, *rows, **options):
    """Trace of lines."""
    return imported(write_lines(tmp_path / "spans.jsonl", rows), **options)


def hits(trace):
    """Ids of the hits of each case."""
    names = [chunk.chunk_id for chunk in trace.chunks]
    return {
        case.id: [names[place] for place in trace.hits.chunk[row, 0, 0] if place >= 0]
        for row, case in enumerate(trace.cases)
    }


def spans_of(text):
    """Spans of lines `trace-number<parent kind question | document score text | … ; key=value; …`.

    A key behind `!` is a judgement; `null` is no id, `-` no text.
    """
    rows = []
    for line in text.splitlines():
        head, *pairs = line.split(" ; ")
        start, *cells = head.split(" | ")
        place, kind, *question = start.strip().split(" ", 2)
        place, _, parent = place.partition("<")
        trace, number = place.split("-")
        documents = []
        for cell in cells:
            name, score, *words = cell.split(" ", 2)
            own = [word.strip("-") for word in words]
            documents.append((None if name == "null" else name, json.loads(score), *own))
        search = reranker if kind == "RERANKER" else partial(retriever, *question or [""])
        about = {**search(*documents), "openinference.span.kind": kind}
        events = []
        for key, _, value in (pair.partition("=") for pair in pairs):
            if key[0] == "!":
                events.append(evaluation(key[1:], value))
            else:
                about[key] = value
        parent = parent and f"{trace}-{parent}"
        rows.append(span(trace, int(number), about, parent=parent, events=events))
    return rows


def shown(trace):
    """A line a case: id, question, hits with texts of their own, answer, label and scores."""
    texts = {chunk.chunk_id: chunk.text for chunk in trace.chunks}
    rows = []
    for case in trace.cases:
        names = [
            name if texts[name] == f"Text of {name}." else f"{name}:{texts[name]}"
            for name in hits(trace)[case.id]
        ]
        row = [case.id, case.query, f"[{' '.join(names)}]", case.extra.get("logged_answer")]
        row += [case.expect_status]
        for name, about in sorted(trace.meta.get("signals", {}).items()):
            row.append(f"{name} {trace.signal(name)[case.id]:g} {about['higher']}")
        rows.append(" ".join(filter(None, row)))
    return "\n".join(rows)


# spans, cases, and what is said of them
TRACES = {
    "the last reranker orders, and the rest of the retriever follows": (
        (
            "t-0 RETRIEVER q | a 0.9 | b 0.8 | c 0.7\n"
            "t-1 RERANKER | b 4 | a 1\n"
            "t-2 RERANKER | c 9 | b -1"
        ),
        "t q [c b a] reranker_score 9 surer retriever_score 0.7 surer",
        "1 traces have several rerankers' spans",
    ),
    "retrievers are joined in the order of their time": (
        "t-2 RETRIEVER rewritten | b 0.1 | c 0.7\nt-1 RETRIEVER q | a 0.8 | b 0.9",
        "t q [a b c] retriever_score 0.8 ask",
        "1 traces have several retrievers' spans\n1 documents occur twice\na lower retriever_score",
    ),
    "scores that fall": (
        "t-0 RETRIEVER q | a 0.9 | b 0.1\nu-0 RETRIEVER q | a 0.5",
        "t q [a b] retriever_score 0.9 surer\nu q [a] retriever_score 0.5 surer",
        "a higher retriever_score is taken as surer: it falls down the ranking of 1 requests",
    ),
    "turns below a span without a question, whose judgement is of none": (
        (
            "t-9 AGENT ; !user=up\n"
            "t-10<9 CHAIN turn 1? ; output.value=R1 ; !user=up\n"
            "t-11<10 RETRIEVER rewritten 1 | x 0.5\n"
            "t-20<9 CHAIN turn 2? ; output.value=R2 ; !user=down\n"
            "t-21<20 RETRIEVER rewritten 2 | y 0.5"
        ),
        (
            "t/1 turn 1? [x] R1 ok retriever_score 0.5 surer\n"
            "t/2 turn 2? [y] R2 refuse retriever_score 0.5 surer"
        ),
        "1 traces have several turns\n1 judgements are of several turns as a whole",
    ),
    "steps of one question, as the user asked it": (
        (
            "t-0 AGENT the question?\n"
            "t-1<0 TOOL step 1\n"
            "t-2<1 RETRIEVER words | x 0.5\n"
            "t-3<0 TOOL step 3\n"
            "t-4<3 RETRIEVER words | y 0.5"
        ),
        "t the question? [x y] retriever_score 0.5 surer",
        "1 traces have several retrievers' spans",
    ),
    "the user's question goes before a rewritten one": (
        (
            "t-0 - ; http.route=/ask\n"
            "t-1<0 CHAIN And for that?\n"
            "t-2<1 RETRIEVER excess for theft | x 0.5"
        ),
        "t And for that? [x] retriever_score 0.5 surer",
        "",
    ),
    "parents in a circle": (
        (
            "t-0<1 RETRIEVER q | d0 0.5\n"
            "t-1<2 RETRIEVER q | d1 0.5\n"
            "t-2<0 RETRIEVER q | d2 0.5\n"
            "u-0<0 RETRIEVER q | x 0.5"
        ),
        "t q [d0 d1 d2] retriever_score 0.5 surer\nu q [x] retriever_score 0.5 surer",
        "",
    ),
    "texts that are no question": (
        "\n".join(
            f"{number}-0 CHAIN {text}\n{number}-1<0 RETRIEVER excess? | x 0.5"
            for number, text in enumerate(("N/A", "n/a", "", "None", "null", "nan"))
        )
        + "\nu-0 RETRIEVER N/A | x 0.5",
        "\n".join(f"{number} excess? [x] retriever_score 0.5 surer" for number in range(6)),
        "1 traces have no question",
    ),
    "requests that cannot be decided": (
        (
            "b-0 CHAIN no retrieval?\n"
            "c-0 RETRIEVER | x 0.9\n"
            f"d-0 RETRIEVER {'x' * 20_001} | x 0.9\n"
            "e-0 RETRIEVER nothing?\n"
            f"{'f' * 1_001}-0 RETRIEVER long? | x 0.9"
        ),
        "e nothing? []",
        (
            "1 traces have no retriever's span\n"
            "1 traces have no question\n"
            "1 traces have a question of more than 20,000 characters\n"
            "1 traces have an id of more than 1,000 characters\n"
            "1 requests retrieved no document"
        ),
    ),
    "of spans that stand twice the last counts, of texts of a document the first": (
        (
            "a-0 RETRIEVER one? | x 0.9\na-0 RETRIEVER another? | y 0.5 Old.\n"
            "b-1 RETRIEVER two? | y 0.9 New."
        ),
        "a another? [y:Old.] retriever_score 0.5 surer\nb two? [y:Old.] retriever_score 0.9 surer",
        (
            "1 spans have the id of a later one of their trace\n"
            "1 documents have several texts or sources"
        ),
    ),
    "documents without an id are named by their text": (
        f"a-0 RETRIEVER q | null 0.9 A text. | null 0.8 - | x 0.7 | {'i' * 1_001} 0.6 B.",
        "a q [text-3b6444e203f18aca:A text. x text-be651d5a8e97690f:B.] retriever_score 0.9 surer",
        (
            "2 documents without an id are named by a hash\n"
            "1 documents without an id or a text are left out"
        ),
    ),
    "documents that are no objects": (
        't-0 RETRIEVER q ; gen_ai.retrieval.documents=[1, null, ["x"], {"id": "a"}]',
        "t q [text-6b86b273ff34fce1:1 a:]",
        "2 documents without an id or a text are left out",
    ),
    "scores that are none": (
        (
            'a-0 RETRIEVER q | a NaN | b Infinity | c 1e13 | d "high" | e true | f null\n'
            "b-1 RETRIEVER q | y -1e12"
        ),
        "a q [a b c d e f] retriever_score nan surer\nb q [y] retriever_score -1e+12 surer",
        "6 hits have no score",
    ),
    "messages and documents of OpenTelemetry": (
        (
            "t-0 - ; gen_ai.operation.name=chat ; gen_ai.input.messages="
            '[{"role": "user", "parts": [{"type": "text", "content": "excess?"}]}]'
            " ; gen_ai.output.messages="
            '[{"role": "assistant", "parts": [{"type": "text", "content": "£250."}]}]\n'
            "t-1<0 - ; gen_ai.operation.name=retrieval ; gen_ai.retrieval.documents="
            '[{"id": "a", "score": 0.5, "content": "Text."}, {"id": "b", "score": 0.25}]'
        ),
        "t excess? [a:Text. b:] £250. retriever_score 0.5 surer",
        "",
    ),
    "control characters of an id": (
        "\x1b[31m-0 CHAIN q\nt-0 RETRIEVER q | a 0.5",
        "t q [a] retriever_score 0.5 surer",
        "(the first: trace \\x1b[31m)",
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_spans_become_cases(tmp_path, name):
    """With the counts that are said."""
    rows, expected, counts = TRACES[name]
    trace, text = of(tmp_path, *spans_of(rows))
    assert shown(trace) == expected
    for count in counts.split("\n"):
        assert count in text


class TestRequest:
    """Worked examples of one request."""

    def test_question_answer_hits_and_score(self, tmp_path):
        """The gates on distances are off, and a policy still decides."""
        rows = request("t", "what is the excess?", ("a", 0.75), ("b", 0.5), second=3)
        trace, text = of(tmp_path, *rows, span("u", 0, retriever("nothing?"), second=4))
        case, _ = trace.cases
        assert (case.id, case.query, case.expect_status) == ("t", "what is the excess?", None)
        assert case.extra["logged_answer"] == "Answer to what is the excess?"
        assert case.extra["at"] == "2025-11-24T16:00:03+00:00"
        assert hits(trace) == {"t": ["a", "b"], "u": []}
        assert trace.signal("retriever_score")["t"] == 0.75
        assert [chunk.text for chunk in trace.chunks] == ["Text of a.", "Text of b."]
        assert "similarity" in text
        gate = "signals.retriever_score.min"
        policy = raglab.Policy.load()
        statuses = [
            raglab.decide(trace, policy.replace(gate, low)).frame()["status"].tolist()
            for low in (0.75, 0.76)
        ]
        assert statuses == [["ok", "refuse"], ["refuse", "refuse"]]

    @pytest.mark.parametrize(
        "question",
        [
            '{"args": [], "kwargs": {"query": "excess?"}}',
            '{"args": ["excess?", 5], "kwargs": {}}',
            '{"inputs": {"question": "excess?", "id": "c4"}}',
            '{"messages": [{"role": "user", "content": "excess?"}, {"role": "system"}]}',
            '{"messages": [{"type": "human", "content": "excess?"}, {"type": "ai"}]}',
        ],
    )
    def test_where_a_question_lies(self, tmp_path, question):
        """In the arguments of a call, in its inputs, or in messages; as JSON, or as JSON of it."""
        for text in (question, json.dumps(question)):
            trace, _ = of(tmp_path, span("t", 0, retriever(text, ("a", 0.5))))
            assert trace.cases[0].query == "excess?"


FEEDBACK = """
!user=thumbs-up            | []                      | ok     | feedback user=thumbs-up (human)
!user=thumbs-up            | []                      | ok     | 1 labels are ok by `user`
!user=False                | []                      | refuse | no sample
!user=so-so                | []                      | None   | 1 judgements `user` are no label
http.route=/               | []                      | None   |
!user=yes ; !judge=no      | []                      | None   | 1 requests have feedback that contra
!user=yes ; !judge=no      | ["judge"]               | refuse | 1 judgements `user` are no label
!user=yes                  | null                    | None   |
!stars=1                   | []                      | None   | 1 judgements `stars` are no label
!toxicity=true ; !stars=1  | {"toxicity": "refuse"}  | refuse | 1 judgements `stars` are no label
!toxicity=true ; !stars=1  | {"toxicity": "ok"}      | ok     |
!toxicity=true ; !thumb=0  | ["thumb"]               | refuse |
!stars=1 ; !thumb=0        | "stars"                 | ok     |
!user=up ; raglab.decision=ok        | []            | ok     |
!user=down ; raglab.decision=ok      | []            | refuse |
!user=up ; raglab.decision=refuse    | []            | refuse | a good refusal is refuse
!user=down ; raglab.decision=refuse  | []            | ok     | 1 labels are of requests that were r
!user=up ; raglab.decision=ambiguous | []            | None   | 1 judgements `user` are no label
"""


class TestLabels:
    """Feedback and cases."""

    @pytest.mark.parametrize("row", FEEDBACK.strip().splitlines())
    def test_feedback_is_a_label_with_its_source(self, tmp_path, row):
        """Judgements, argument, label, and what is said."""
        judgements, feedback, label, words = (cell.strip() for cell in row.split("|"))
        rows = f"a-0 CHAIN one? ; {judgements}\na-1<0 RETRIEVER one? | x 0.9"
        trace, text = of(tmp_path, *spans_of(rows), feedback=json.loads(feedback))
        (case,) = trace.cases
        assert str(case.expect_status) == label
        assert words in f"{text} {case.notes}"

    def test_cases_by_trace_or_question(self, tmp_path):
        """They go before feedback; an id is no question, and a question no id."""
        cases = [
            raglab.Case("a", "whatever", "refuse"),
            raglab.Case("own", "TWO  ?", "ok", expect_sources=("x.md",)),
            raglab.Case("three?", "nobody asked", "ok"),
            raglab.Case("fourth", "d", "refuse"),
        ]
        rows = (
            "a-0 RETRIEVER one? | x 0.9\nb-1 RETRIEVER two ? | x 0.9\n"
            "c-2 RETRIEVER three? | x 0.9\nd-3 RETRIEVER four? | x 0.9\n"
            "a-4<0 CHAIN one? ; !user=yes"
        )
        trace, text = of(tmp_path, *spans_of(rows), cases=cases)
        assert [case.expect_status for case in trace.cases] == ["refuse", "ok", None, None]
        assert trace.cases[1].expect_sources == ("x.md",)
        assert "2 of 4 cases are of no request" in text
        assert "1 requests have the label of a case with the same question" in text

    def test_the_outermost_span_and_the_resource_name_the_group(self, tmp_path):
        """A span goes before its resource; what no request states is counted."""
        rows = spans_of(
            "a-2<1 - ; tenant=db\n"
            "a-1<0 RETRIEVER one? | x 0.9 ; tenant=inner\n"
            "a-0 CHAIN one? ; tenant=outer\n"
            "b-3 RETRIEVER two? | x 0.9"
        )
        resource = {"attributes": [{"key": "tenant", "value": {"stringValue": "of the resource"}}]}
        batch = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": rows}]}]}
        trace, text = of(tmp_path, batch, groups=("tenant", "office"))
        assert [case.extra["groups"] for case in trace.cases] == [
            {"tenant": "outer"},
            {"tenant": "of the resource"},
        ]
        assert "2 spans name another group than the outermost span" in text
        assert "2 requests state no group office" in text


def test_arguments_that_are_refused(tmp_path):
    """With the names that there are; what is stated rightly is not guessed."""
    rows = request("a", "one?", ("x", 0.9), ("y", 0.1))
    for name, value in (
        ("higher", {"score": "surer"}),
        ("higher", {"retriever_score": "lower"}),
        ("feedback", {"thumb": "bad"}),
    ):
        with pytest.raises(ValueError, match=r"higher must name|what a yes means"):
            of(tmp_path, *rows, **{name: value})
    trace, text = of(tmp_path, *rows, higher={"retriever_score": "ask"})
    assert trace.meta["signals"]["retriever_score"]["higher"] == "ask"
    assert "is taken as" not in text


class TestCounts:
    """What is left out or merged is said with a count and the place of the first."""

    def test_what_is_no_span(self, tmp_path):
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

    def test_a_retriever_that_failed_is_no_refusal(self, tmp_path):
        """Its request is left out; where another has hits it counts."""
        failed = {**span("a", 0, retriever("one?")), "status": {"code": 2}}
        half = {**span("b", 0, retriever("two?")), "status": {"code": "STATUS_CODE_ERROR"}}
        row = {**span("c", 0, retriever("three?")), "status_code": "ERROR"}
        trace, text = of(tmp_path, failed, half, row, span("b", 1, retriever("two?", ("x", 0.9))))
        assert hits(trace) == {"b": ["x"]}
        assert "2 traces have a retriever that failed" in text

    def test_a_file_that_is_cut_off(self, tmp_path):
        """What was written before is read."""
        rows = spans_of("\n".join(f"t{n}-0 RETRIEVER {n}? | x 0.{n}" for n in range(400)))
        raw = gzip.compress(lines(rows).encode())
        path = tmp_path / "spans.jsonl.gz"
        path.write_bytes(raw[:-2_000])
        trace, text = imported(path)
        assert 0 < len(trace) < 400
        assert "1 gzipped files are cut off or damaged" in text
        path.write_bytes(raw[:12])
        with pytest.raises(InputError, match="1 gzipped files are cut off"):
            imported(path)

    def test_files_of_a_folder(self, tmp_path):
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

    @pytest.mark.parametrize("source", [None, 5, "", [{"traceId": "a"}], "none.jsonl", "empty"])
    def test_sources_that_are_none(self, tmp_path, monkeypatch, source):
        """Not the folder one happens to be in, nor a folder or a file without spans."""
        write_lines(tmp_path / "spans.jsonl", request("a", "one?", ("x", 0.9)))
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError if isinstance(source, str) else TypeError):
            imported(source)
        with pytest.raises(InputError, match="at least one request"):
            of(tmp_path)

    def test_texts_that_no_file_holds(self, tmp_path):
        """Lone surrogates and bytes that are no UTF-8 are replaced; the trace can be saved."""
        rows = [span("a", 0, retriever("half \ud800?", ("i\ud800", 0.5, "t\udfff\x00")))]
        path = write_lines(tmp_path / "spans.jsonl", [*rows, *request("b", "caf#?", ("x", 0.5))])
        path.write_bytes(path.read_bytes().replace(b"#", b"\xe9"))
        trace, text = imported(path)
        assert [case.query for case in trace.cases] == ["half ??", "caf??"]
        assert "halves of characters" in text
        trace.save(tmp_path / "trace.parquet")
        assert raglab.Trace.load(tmp_path / "trace.parquet").cases == trace.cases


# --- the same content in other brackets

NORTH = {"attributes": {"tenant": "north"}}
ROWS = [
    row
    for name in "abc"
    for row in request(name, f"{name}?", ("x", 0.9), (name, 0.5), second=3, feedback="up")
]


def attributes(rows):
    """Attributes of OTLP as an object."""
    return {row["key"]: next(iter(row["value"].values())) for row in rows}


def sdk(row, **more):
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


def phoenix(row):
    """A row of Phoenix's API: the kind stands beside the attributes."""
    fields = sdk(row, status_code="OK", start_time=1_764_000_003_000)
    values = {**fields["attributes"], "tenant": "north"}
    kind = values.pop("openinference.span.kind")
    return {**fields, "span_kind": kind, "attributes": values, "resource": None}


def frame_row(row):
    """A row of Phoenix's data frame, with a column an attribute."""
    fields = phoenix(row)
    for name in ("context", "attributes"):
        fields |= {f"{name}.{key}": value for key, value in fields.pop(name).items()}
    return {**fields, "attributes.llm.model_name": None}


def nested(row, *, numbered=False):
    """Attributes within attributes: documents as a list, or by their numbers."""
    tree = {}
    for name, value in sdk(row)["attributes"].items():
        *parts, last = name.split(".")
        branch = tree
        for part in parts:
            branch = branch.setdefault(part, {})
        branch[last] = value
    if "retrieval" in tree and not numbered:
        tree["retrieval"]["documents"] = list(tree["retrieval"]["documents"].values())
    return sdk(row, attributes=tree)


def snake(value):
    """Names of OTLP in snake case."""
    if isinstance(value, list):
        return [snake(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in key): snake(field)
        for key, field in value.items()
    }


def batches(name, scopes, rows=ROWS):
    """Spans in two batches."""
    resource = {"attributes": [{"key": "tenant", "value": {"stringValue": "north"}}]}
    return {
        name: [{"resource": resource, scopes: [{"spans": rows[:4]}, {"spans": rows[4:]}]}],
    }


def lines(values, indent=None):
    """JSON values one after the other."""
    return "".join(f"{json.dumps(value, indent=indent)}\n" for value in values)


OTLP = batches("resourceSpans", "scopeSpans")
FORMS = {
    "a batch a line": lines([OTLP]),
    "blank lines": f"\n\n {lines([OTLP])}\n\n",
    "a mark and other line ends": f"\ufeff{lines([OTLP])}".replace("\n", "\r\n"),
    "whole": lines([OTLP], 2),
    "a list of lines": "[\n" + ",\n".join(json.dumps(sdk(row)) for row in ROWS) + "\n]",
    "lines of an SDK": lines(map(sdk, ROWS)),
    "one behind the other": lines(map(sdk, ROWS)).replace("\n", ""),
    "Tempo": lines([batches("batches", "scopeSpans")]),
    "Tempo's older name": lines([batches("batches", "instrumentationLibrarySpans")], 1),
    "Tempo's second version": lines([{"trace": OTLP}]),
    "Phoenix": lines([{"data": list(map(phoenix, ROWS)), "next_cursor": None}]),
    "rows of Phoenix": lines(map(frame_row, ROWS)),
    "Jaeger's third version": lines([{"result": OTLP}], 0),
    "nested documents": lines(map(nested, ROWS)),
    "numbered documents": lines(nested(row, numbered=True) for row in ROWS),
    "snake case": lines([snake(OTLP)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_in_other_brackets(tmp_path, form):
    """Cases, chunks and hits are equal, plain and gzipped."""
    expected, _ = of(tmp_path, OTLP, groups=("tenant",))
    assert expected.cases[0].extra["groups"] == {"tenant": "north"}
    content = FORMS[form].encode()
    for name, packed in (("form.json", content), ("form.json.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(packed)
        trace, text = imported(tmp_path / name, groups=("tenant",))
        assert trace.cases == expected.cases
        assert trace.meta["fingerprint"] == expected.meta["fingerprint"]
        assert "are left out" not in text


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ('{"name": {"0": "s"}, "context.trace_id": {"0": "ab"}}', "data frame"),
        ('{"columns": ["name"], "index": [0], "data": [["s"]]}', "data frame"),
        (
            '{"data": [{"traceID": "a", "spans": [{"traceID": "a", "operationName": "s"}]}]}',
            "Jaeger",
        ),
        ('[{"traceId": "a", "id": "b", "localEndpoint": {}, "tags": {}}]', "Zipkin"),
        ('[{"traceId": "a", "parentObservationId": null, "type": "RETRIEVER"}]', "Langfuse"),
        ('[{"trace_id": "a", "run_type": "retriever", "inputs": {}}]', "LangSmith"),
        ('{"info": {"trace_id": "a"}, "data": {"spans": [{"traceId": "a"}]}}', "trace_from_mlflow"),
        ('{"resourceLogs": [{"scopeLogs": []}]}', "logs"),
    ],
)
def test_another_form_is_named(tmp_path, value, form):
    """With the way in."""
    with pytest.raises(InputError, match=form):
        of(tmp_path, value)


METADATA = '{"source": "s.pdf", "page": 3, "score": 0.5}'
DOCUMENT = f'{{"page_content": "T", "metadata": {METADATA}}}'


@pytest.mark.parametrize(
    "output",
    [
        f"[{DOCUMENT}]",
        f'{{"documents": [{DOCUMENT}]}}',
        f'{{"nodes": [{{"node": {{"text": "T", "metadata": {METADATA}}}}}]}}',
        f'[{{"lc": 1, "id": ["langchain", "Document"], "kwargs": {DOCUMENT}}}]',
        f'[{{"content": "T", "meta": {METADATA}}}]',
        f'[{{"document": {json.dumps(DOCUMENT)}, "metadata": "{{}}"}}]',
    ],
)
def test_documents_of_an_output(tmp_path, output):
    """As LangChain, LlamaIndex and Haystack write them; source, page and score of the metadata."""
    trace, _ = of(tmp_path, *spans_of(f"t-0 RETRIEVER q ; output.value={output}"))
    (chunk,) = trace.chunks
    assert (chunk.text, chunk.source, chunk.page) == ("T", "s.pdf", 3)
    assert trace.signal("retriever_score").tolist() == [0.5]


# --- bounds


def turns(n, above):
    """Questions, each with its search; `<{}` puts a question below the search before it."""
    rows = (
        f"t-{k}{above.format(k - 1)} CHAIN q\nt-{k + 1}<{k} RETRIEVER q | a 0.5"
        for k in range(0, n // 20, 2)
    )
    return lines(spans_of("\n".join(rows)))


# a text, and how often it stands there where the size is one
INPUTS = {
    "blank lines": ("\n", 600),
    "lines of junk": ("x\n", 1),
    "brackets": ("[", 1),
    "brackets on lines": ("[\n", 1),
    "braces on lines": ("{\n", 1),
    "open lists": ("[1,\n", 1),
    "padded lists": (f'["{"x" * 500}",\n', 1 / 50),
    "values of a line": ("{}", 1),
    "a chain": ("<{}", 0),
    "turns": ("", 0),
}


def test_times(tmp_path):
    """In every unit and by every name; what is guessed, or cannot be read, is counted."""
    late = "9999-12-31T23:59:59-01:00"  # the year 10000 in UTC
    for key, value, count in (
        ("startTimeUnixNano", "1.764000003e18", ""),
        ("startTimeUnixNano", 1_764_000_003_000_000_000, ""),
        ("start_time", "2025-11-24T16:00:03.123456789Z", ""),
        ("start_time", "2025-11-24T18:00:03+02:00", ""),
        ("start_time_unix_nano", 1_764_000_003_000_000, "1 times are in"),
        ("start_time", "1764000003000", "1 times are in"),
        ("start_time", 1_764_000_003.5, "1 times are in"),
        *(
            ("start_time", odd, "1 spans have no time")
            for odd in (5, -1, True, None, "soon", [1], math.nan, 10**30, late)
        ),
    ):
        row = span("t", 0, retriever("q", ("x", 0.5)))
        del row["startTimeUnixNano"]
        trace, text = of(tmp_path, {**row, key: value})
        at = None if "no time" in count else "2025-11-24T16:00:03+00:00"
        assert trace.cases[0].extra.get("at") == at
        assert count in text
        assert bool(count) == ("times are in" in text or "no time" in text)


@pytest.mark.parametrize("name", INPUTS)
def test_work_is_linear_in_the_input(tmp_path, name):
    """In one, two and four times of it, gzipped: what can be packed small is not read for long."""
    path, rows = tmp_path / "rows.jsonl.gz", lines(request("a", "one?", ("x", 0.9)))

    text, count = INPUTS[name]

    def write(n):
        middle = text * int(n * count) if count else turns(n, text)
        path.write_bytes(gzip.compress(f"{rows}{middle}\n{rows}".encode(), 1))

    work = []
    for times in (0, 1, 2, 4):  # the first fills what is imported and compiled
        write(2_500 * times)
        work.append(lines_run(lambda: imported(path)))
    assert work[3] - work[2] < 2.2 * (work[2] - work[1]) + 1_000
    write(40_000)
    start = time.process_time()
    imported(path)
    assert time.process_time() - start < 10  # where the work is that of C


def test_long_lines_are_never_in_memory(tmp_path, monkeypatch):
    """They are counted, and the next line is read; a document is refused."""
    monkeypatch.setattr(span_files, "MAX_LINE_LENGTH", 2 << 20)
    monkeypatch.setattr(span_files, "MAX_VALUE_LENGTH", 3 << 20)
    sizes = []
    more = span_files._more

    def counted(blocks, size):
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
    monkeypatch.setattr(span_files, "MAX_BRACKETS", 1_000)
    path.write_bytes(gzip.compress(lines([[[]] * 1_000], 1).encode()))
    with pytest.raises(InputError, match="4 million brackets"):
        imported(path)


def test_a_long_ranking_does_not_widen_all(tmp_path, monkeypatch):
    """A trace is a table of requests by hits: of many requests fewer hits are kept, counted."""
    monkeypatch.setattr(span_traces, "MAX_HIT_CELLS", 5)
    rows = "a-0 RETRIEVER q | x 0.9\nb-1 RETRIEVER q | x 0.9 | y 0.8 | z 0.7"
    trace, text = of(tmp_path, *spans_of(rows))
    assert hits(trace) == {"a": ["x"], "b": ["x", "y"]}
    assert "1 hits beyond the first 2 of a trace are left out" in text


class TestParts:
    """Pieces, parts, workers and shards change nothing."""

    @pytest.fixture
    def traffic(self, tmp_path):
        """A file of 40 requests whose spans are mixed, with two broken lines."""
        chance = random.Random(0)  # noqa: S311 - of a test
        rows = []
        for number in range(40):
            first, second = chance.sample("abcdefgh", 2)
            hits_of = (first, chance.uniform(0.5, 1)), (second, 0.25)
            rows += request(f"t{number:02}", f"question {number}?", *hits_of, second=number % 7)
        chance.shuffle(rows)
        rows[10:10] = ["{", "not json"]
        return write_lines(tmp_path / "traffic.jsonl", rows)

    def test_small_pieces_and_parts(self, traffic, monkeypatch):
        """Line numbers stay those of the file."""
        whole, text = imported(traffic)
        monkeypatch.setattr(span_files, "BYTES_PER_PIECE", 1_000)
        monkeypatch.setattr(span_traces, "BYTES_PER_PART", 3_000)
        monkeypatch.setattr(span_traces, "MAX_SPANS_AHEAD", 2)
        assert len(span_files.pieces(traffic, ImportCounts())) > 10
        trace, again = imported(traffic)
        assert trace.meta["fingerprint"] == whole.meta["fingerprint"]
        assert again == text
        assert "2 lines are no JSON and are left out (the first: traffic.jsonl, line 11)" in text

    @pytest.mark.skipif("scale" not in raglab.extension_points.installed(), reason="needs shards")
    def test_shards_decide_as_the_whole(self, traffic, tmp_path, monkeypatch):
        """And two processes write the same bytes as one."""
        whole, _ = imported(traffic)
        monkeypatch.setattr(span_traces, "BYTES_PER_PART", 8_000)
        contents = []
        for kind in ("threads", "joblib"):
            with parallel_workers(kind, 2):
                shards, _ = imported(traffic, out=tmp_path / kind)
            files = (tmp_path / kind).glob("*.parquet")
            contents.append({path.name: path.read_bytes() for path in files})
        assert contents[0] == contents[1]
        assert len(contents[0]) > 1
        policy = raglab.Policy.load().replace("signals.retriever_score.min", 0.6)
        first, second = (
            raglab.decide(trace, policy).frame().set_index("case_id").sort_index()["status"]
            for trace in (whole, shards)
        )
        assert first.equals(second)
        assert set(first) == {"ok", "refuse"}


SCORES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, -1.0, math.nan])
RANKINGS = st.lists(st.tuples(st.sampled_from("abcd"), SCORES), max_size=5)


@settings(max_examples=20)
@given(
    requests=st.lists(st.tuples(RANKINGS, RANKINGS), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_hits_are_the_rerankers_then_the_retrievers(tmp_path_factory, requests, order):
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


def test_spans_of_a_system_are_read_back(opened, spans, tmp_path, monkeypatch):
    """Questions, answers, hits in their final order, cosines, texts and the decision."""
    monkeypatch.setenv(telemetry.CAPTURE_VARIABLE, "span_only")
    system = opened({"confidence": {"enabled": False}})
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
        ids = hits(trace)[case.id]
        assert ids[0] == ready.chunks[fields["chunk"][first]].chunk_id
        assert len(ids) == (fields["chunk"] >= 0).sum()
        assert trace.signal("retriever_score")[case.id] == fields["cosine"][first]
    assert {chunk.chunk_id: chunk.text for chunk in trace.chunks}.items() <= texts.items()
