"""Spans of requests: what a tracer gets of a question, and that nothing else changes."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import raglab
from generators import Drawn, Fixed, Weighed
from raglab.answering.extractive import Extractive
from raglab.live import telemetry
from raglab.live.ask import ask, reply
from raglab.retrieval.arms import walk
from refusals import refused
from span_samples import values

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")


QUESTION = "What is the motor excess?"
REFUSES = {"similarity": {"min_similarity": 1.0}}
ANSWERS = {"confidence": {"enabled": False}}
ASKS = {"signals": {"top1_cosine": {"min": 1.0, "on_fire": "ask"}}, **ANSWERS}
ROOT = Path(__file__).parents[1]


class Failing(NamedTuple):
    """A generator whose model fails."""

    kind: type[Exception]
    name: str = "failing"

    def answer(self, question, _):
        """An error that quotes the question."""
        msg = f"no answer to {question}"
        raise self.kind(msg)


def documents(span):
    """Documents of a retriever's span."""
    return list(json.loads(span.attributes["gen_ai.retrieval.documents"]))


class TestRequests:
    """What the spans of a request hold."""

    def test_an_answer(self, opened, spans):
        """A root with the decision.

        Under it a retriever with its hits, and a model.
        """
        system = opened(ANSWERS)
        response = ask(QUESTION, system=system, request_id="r1", session="s1")
        root, retrieval, model = map(spans.one, ("invoke_workflow", "retrieval", "chat"))
        assert root.parent is None
        assert retrieval.parent.span_id == model.parent.span_id == root.context.span_id
        names = ["invoke_workflow raglab", "retrieval hybrid", "chat fixed"]
        assert [span.name for span in (root, retrieval, model)] == names
        expected = {
            "raglab.request_id": "r1",
            "gen_ai.conversation.id": "s1",
            "raglab.operation": "ask",
            "raglab.decision": "ok",
            "raglab.gate": "answered",
            "raglab.arm": "hybrid",
            "raglab.policy_id": system.policy.policy_id,
            "raglab.answer_cache_hit": False,
        }
        assert expected.items() <= dict(root.attributes).items()
        checks = json.loads(root.attributes["raglab.checks"])
        assert [row["gate"] for row in checks] == [check.gate for check in response.record.checks]
        assert all(span.status.is_unset for span in spans.all)

    def test_documents_are_the_hits(self, opened, spans):
        """Ids and cosines in the final order."""
        system = opened(ANSWERS)
        ask(QUESTION, system=system)
        ready = system.retriever
        (depth,) = islice(walk(ready.strategies["hybrid"], ready.question(QUESTION)), 1)
        hits = depth.hits
        order = [place for place in np.argsort(hits.rank.ravel()) if hits.chunk.ravel()[place] >= 0]
        chunks = [ready.chunks[place] for place in hits.chunk.ravel()[order]]
        assert [(row["id"], row["source"]) for row in documents(spans.one("retrieval"))] == [
            (chunk.chunk_id, chunk.source) for chunk in chunks
        ]
        scores = [row["score"] for row in documents(spans.one("retrieval"))]
        assert scores == hits.cosine.ravel()[order].tolist()

    @pytest.mark.parametrize(
        ("policy", "decision", "gate"),
        [(REFUSES, "refuse", "similarity"), (ASKS, "ambiguous", "signals.top1_cosine")],
    )
    def test_a_gate_decides(
        self,
        opened,
        spans,
        policy,
        decision,
        gate,
    ):
        """Its name and numbers are those of its check, and of `explain`; no model is asked."""
        system = opened(policy)
        response = ask("Is a courtesy car provided?", system=system, request_id="r")
        attributes = spans.one("invoke_workflow").attributes
        assert (attributes["raglab.decision"], attributes["raglab.gate"]) == (decision, gate)
        (check,) = (
            check for check in response.record.checks if check.gate == gate and not check.passes
        )
        for name in ("rule", "value", "threshold", "margin"):
            assert attributes[f"raglab.gate_{name}"] == getattr(check, name)
        derived = raglab.explain("r", system=system).decisions[-1].derived
        assert (derived.status, derived.gate) == (decision, gate)
        assert spans.of("chat") == []

    @pytest.mark.parametrize("on_error", ["raise", "refuse"])
    def test_a_model_fails(self, opened, spans, on_error):
        """Root and model have the error, its kind alone.

        The gate that decided is none of the policy's.
        """
        system = opened(ANSWERS, generator=Failing(TimeoutError), on_error=on_error)
        if on_error == "raise":
            with pytest.raises(raglab.ModelUnavailableError):
                ask(QUESTION, system=system)
        else:
            assert ask(QUESTION, system=system)["error"]
            assert spans.one("invoke_workflow").attributes["raglab.decision"] == "refuse"
        root, model = spans.one("invoke_workflow"), spans.one("chat")
        assert root.attributes["error.type"] == "ModelUnavailableError"
        assert model.attributes["error.type"] == "TimeoutError"
        for span in (root, model):
            assert span.status.status_code == trace.StatusCode.ERROR
            (event,) = span.events
            assert (event.name, *event.attributes) == ("exception", "exception.type")
        assert all(span.status.is_unset for span in spans.of("retrieval"))

    def test_a_reply(self, opened, spans):
        """It has a root of its own, under the id of the request."""
        system = opened(ANSWERS)
        answered = ask(QUESTION, system=system)
        spans.exporter.clear()

        class Clarifier:
            def reply(self, *_, **__):
                return answered

        reply("r", "yes", system=replace(system, clarifier=Clarifier()))
        attributes = spans.one("invoke_workflow").attributes
        assert (attributes["raglab.operation"], attributes["raglab.request_id"]) == ("reply", "r")


class TestParents:
    """Whose child a span is."""

    def test_the_applications_span(self, opened, spans):
        """The open span is the parent, and is open again afterwards, also after an error."""
        system = opened(ANSWERS)
        with spans.provider.get_tracer("app").start_as_current_span("request") as own:
            ask(QUESTION, system=system)
            assert trace.get_current_span() is own
            refused("must name documents", ask, QUESTION, system=system, documents=["boat.md"])
            assert trace.get_current_span() is own
        roots = spans.of("invoke_workflow")
        assert [root.parent.span_id for root in roots] == [own.get_span_context().span_id] * 2
        assert values(roots, "error.type") == [None, "ValueError"]

    def test_threads(self, opened, spans):
        """Requests at the same time are traces of their own, each with its spans."""
        system, names = opened(ANSWERS), "abcdefghijkl"
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: ask(QUESTION, system=system, request_id=name), names))
        roots = spans.of("invoke_workflow")
        assert sorted(values(roots, "raglab.request_id")) == [*names]
        assert len({root.context.trace_id for root in roots}) == 12
        for root in roots:
            own = [span for span in spans.all if span.context.trace_id == root.context.trace_id]
            operations = sorted(values(own, "gen_ai.operation.name"))
            assert operations == ["chat", "invoke_workflow", "retrieval"]


class TestTexts:
    """Texts are in spans where the application asks for them and the log keeps them."""

    WORDS = re.compile(r"motor excess|250 pounds|£250|cannot be verified|courtesy", re.IGNORECASE)

    def shown(self, spans):
        """All that leaves, as JSON."""
        return "\n".join(span.to_json() for span in spans.all)

    @pytest.mark.parametrize(
        ("value", "policy"),
        [
            (None, ANSWERS),
            ("event_only", REFUSES),
            ("yes please", ASKS),
        ],
    )
    def test_none_unless_asked_for(self, opened, spans, monkeypatch, value, policy):
        """Not of the question, the passages, the answer or the reason."""
        if value is not None:
            monkeypatch.setenv(telemetry.CAPTURE_VARIABLE, value)
        ask(QUESTION, system=opened(policy))
        assert spans.of("retrieval")
        assert self.WORDS.findall(self.shown(spans)) == []

    @pytest.mark.parametrize("value", ["TRUE", "span_only", "SPAN_AND_EVENT"])
    def test_asked_for(
        self,
        opened,
        spans,
        monkeypatch,
        value,
    ):
        """Question, answer and passages."""
        monkeypatch.setenv(telemetry.CAPTURE_VARIABLE, value)
        system = opened(ANSWERS)
        ask(f" {QUESTION}  ", system=system)
        for span in (spans.one("invoke_workflow"), spans.one("chat")):
            for side, role, text in (
                ("input", "user", QUESTION),
                ("output", "assistant", "The excess is £250."),
            ):
                (message,) = json.loads(span.attributes[f"gen_ai.{side}.messages"])
                assert (message["role"], message["parts"][0]["content"]) == (role, text)
        retrieval = spans.one("retrieval")
        assert retrieval.attributes["gen_ai.retrieval.query.text"] == QUESTION
        texts = {chunk.chunk_id: chunk.full_text for chunk in system.retriever.chunks}
        for row in documents(retrieval):
            assert row["content"] == texts[row["id"]]

    @pytest.mark.parametrize("query", ["hash", "none"])
    @pytest.mark.parametrize("audit", [True, False])
    def test_what_the_log_blanks(
        self,
        opened,
        spans,
        monkeypatch,
        query,
        audit,
    ):
        """It is in no span, although the application asks for texts.

        Nor where the log cannot be written.
        """
        monkeypatch.setenv(telemetry.CAPTURE_VARIABLE, "true")
        monkeypatch.setenv("RAGLAB_AUDIT_QUERY", query)
        ask(QUESTION, system=opened(ANSWERS, audit=audit))
        assert spans.of("retrieval")
        assert self.WORDS.findall(self.shown(spans)) == []

    @pytest.mark.parametrize("value", ["false", "true"])
    def test_words_of_an_error(
        self,
        opened,
        spans,
        monkeypatch,
        value,
    ):
        """They may quote the question, and go with it."""
        monkeypatch.setenv(telemetry.CAPTURE_VARIABLE, value)

        with pytest.raises(raglab.ModelUnavailableError):
            ask(QUESTION, system=opened(ANSWERS, generator=Failing(raglab.ModelUnavailableError)))
        assert bool(self.WORDS.search(self.shown(spans))) == (value == "true")
        events = [event for span in spans.all for event in span.events]
        messages = values(events, "exception.message")
        assert messages == [f"no answer to {QUESTION}" if value == "true" else None] * 2


class TestNothing:
    """Where nobody traces, nothing happens."""

    @pytest.mark.parametrize("provider", ["ProxyTracerProvider", "NoOpTracerProvider", None])
    def test_no_provider(self, opened, monkeypatch, provider):
        """No span is begun, no setting is read."""
        if provider is None:
            monkeypatch.delitem(sys.modules, "opentelemetry.trace")
        else:
            monkeypatch.setattr(trace, "get_tracer_provider", getattr(trace, provider))
        for name in ("_span", "_may_hold_texts", "_with_model_spans"):
            monkeypatch.setattr(telemetry, name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ask(QUESTION, system=opened(ANSWERS))["status"] == "ok"

    def test_nothing_is_imported(self):
        """Not by what answers a request."""
        code = (
            "import sys; import raglab.live.ask; print([name for name in sys.modules if "
            "'opentelemetry' in name])"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert (ran.stdout.strip(), ran.stderr) == ("[]", "")

    @pytest.mark.parametrize(
        ("policy", "generator"),
        [
            (ANSWERS, Fixed()),
            ({"signals": {"support": {"min": 0.5}}, **ANSWERS}, Drawn()),
            (ASKS, Extractive()),
            ({}, Extractive()),
        ],
    )
    def test_the_same_answers(
        self,
        opened,
        spans,
        monkeypatch,
        policy,
        generator,
    ):
        """A response has the same bytes and record with a tracer as without one."""
        system = opened(policy, generator=generator, scorer=Weighed())
        questions = (QUESTION, "Is a courtesy car provided?", "excess", "")

        def responses():
            answers = [ask(text, system=system, request_id=f"r{len(text)}") for text in questions]
            return [
                (answer.json(), *map(repr, (record.checks, record.queries, record.retrieved)))
                for answer in answers
                for record in [answer.record]
            ]

        traced = responses()
        assert len(spans.of("invoke_workflow")) == len(questions)
        monkeypatch.setenv(telemetry.CAPTURE_VARIABLE, "true")
        assert responses() == traced
        monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
        assert responses() == traced

    @pytest.mark.usefixtures("spans")
    def test_telemetry_that_fails(self, opened, monkeypatch, caplog):
        """The request is answered as ever; the log of the process names the kind of failure."""
        system = opened(ANSWERS)
        expected = ask(QUESTION, system=system, request_id="r")

        def failing(*_, **__):
            raise OSError

        for place, where in (
            (sdk.TracerProvider, "get_tracer"),
            (sdk.Tracer, "start_span"),
            (sdk._Span, "set_attributes"),
            (export.SimpleSpanProcessor, "on_start"),
            (export.SimpleSpanProcessor, "on_end"),
            (sdk._Span, "end"),
        ):
            caplog.clear()
            with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
                patch.setattr(place, where, failing)
                response = ask(QUESTION, system=system, request_id="r")
            assert response.json() == expected.json(), where
            assert "a span is incomplete: OSError" in caplog.text, where
            assert not trace.get_current_span().get_span_context().is_valid


def test_the_page(tmp_path, monkeypatch, spans):
    """Its blocks run, and print what it shows."""
    monkeypatch.setattr(
        trace,
        "set_tracer_provider",
        lambda provider: monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider),
    )
    monkeypatch.setenv(telemetry.CAPTURE_VARIABLE, "")
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    defined = {"folder": tmp_path / "index"}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        # the project's own page
        exec(compile(block, "docs/telemetry.md", "exec"), defined)  # noqa: S102
    assert defined["decisions"] == ["ok", "refuse"]
    assert spans.all == []
