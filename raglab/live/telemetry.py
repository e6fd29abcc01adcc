"""Telemetry (shore): requests as OpenTelemetry spans, if a tracer provider is set (S0.3, S5.8).

The application sets it.

What fails here is logged and changes no response. `span_attributes` has what the spans hold.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple

from raglab.answering.extractive import Extractive
from raglab.answering.generation import ModelGenerator
from raglab.answering.required_confidence import RequiredConfidence
from raglab.live.response import Response, with_model
from raglab.live.span_attributes import (
    Attributes,
    error_attributes,
    response_attributes,
    retrieval_attributes,
    text_attributes,
)
from raglab.live.system import System
from raglab.retrieval.arms import DepthHits
from raglab.values import Chunk, Generation, Generator

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# values of it that ask for texts in spans
_CAPTURE_VALUES = frozenset({"true", "1", "span_only", "span_and_event"})


class Tracing(NamedTuple):
    """The application's tracer, whether its spans may hold texts, and `opentelemetry.trace`.

    That last is its module.
    """

    tracer: Any
    has_texts: bool
    api: Any


# of the request that is being answered
request_tracing: ContextVar[Tracing | None] = ContextVar("tracing", default=None)


def answer_in_span(
    request_id: str,
    request_text: str,
    system: System,
    make_response: Callable[[System], Response],
    *,
    operation: str,
    session: str,
) -> Response:
    """The response of `make_response`, within a root span of the request.

    Without one where the application does not trace.

    Nothing is imported and no span is made unless the application has imported
    `opentelemetry.trace` and set a provider. Its open span becomes the parent. Questions, answers,
    passages and the words of errors are written only where the environment has
    `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` as `true`, `span_only` or `span_and_event`,
    and the audit log keeps questions as text. Else spans hold ids, scores and decisions alone.

    Args:
      request_id: as the audit log has it.
      request_text: of the user.
      system: that answers.
      make_response: function of a system, whose models write spans.
      operation: `ask` or `reply`.
      session: of the request, '' if none.

    Source: rules S0.3, S5.8; semantic conventions of OpenTelemetry for generative AI.
    """
    request_spans = _tracing_of(system)
    if request_spans is None:
        return make_response(system)
    span_attributes = {
        "gen_ai.workflow.name": "raglab",
        "raglab.operation": operation,
        "raglab.request_id": request_id,
    }
    span_attributes |= {"gen_ai.conversation.id": session} if session else {}
    span_attributes |= text_attributes(has_texts=request_spans.has_texts, input=request_text)
    context_token = request_tracing.set(request_spans)
    try:
        with _span(request_spans, "invoke_workflow raglab", span_attributes) as write_attributes:
            response = make_response(
                replace(
                    system,
                    generator=with_model(
                        system.generator,
                        lambda generator_model: _with_model_spans(generator_model, request_spans),
                    ),
                )
            )
            write_attributes(
                partial(response_attributes, response, has_texts=request_spans.has_texts)
            )
            return response
    finally:
        request_tracing.reset(context_token)


def depths_in_spans(
    depths: Iterator[DepthHits],
    request_spans: Tracing,
    arm_name: str,
    system: System,
    n_stored: int,
) -> Iterator[DepthHits]:
    """The depths of an endless retrieval, each made within a span. Some the cache has."""
    chunks = system.retriever.chunks
    for depth_number in count():
        span_attributes = {
            "raglab.arm": arm_name,
            "raglab.depth": depth_number,
            "raglab.strategy_cache_hit": depth_number < n_stored,
            "gen_ai.data_source.id": system.fingerprint,
        }
        with _span(request_spans, f"retrieval {arm_name}", span_attributes) as write_attributes:
            depth = next(depths)
            write_attributes(
                partial(retrieval_attributes, depth, chunks, has_texts=request_spans.has_texts)
            )
        yield depth  # with no span open: whoever takes it may open others


def write_stored_depths(
    read_depths: Callable[[], Sequence[DepthHits]],
    request_spans: Tracing,
    arm_name: str,
    system: System,
) -> None:
    """Spans of the retrieval that an answer of the cache came from, which `read_depths` reads."""
    with _harmless():
        depths = read_depths()
        traced_depths = depths_in_spans(iter(depths), request_spans, arm_name, system, len(depths))
        list(islice(traced_depths, len(depths)))


@dataclass(frozen=True, slots=True, eq=False)
class _TracedGenerator:
    """A generator whose answers are spans; all else is its base's."""

    base: Generator
    tracing: Tracing

    @property
    def name(self) -> str:
        return self.base.name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the generator has
        return getattr(self.base, name)

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        base_generator = self.base
        make_attributes = partial(text_attributes, has_texts=self.tracing.has_texts)
        name = (
            base_generator.client.name
            if isinstance(base_generator, ModelGenerator)
            else base_generator.name
        )
        span_attributes = {"gen_ai.request.model": name, "gen_ai.provider.name": "raglab"}
        with _span(
            self.tracing, f"chat {name}", span_attributes | make_attributes(input=question)
        ) as write_attributes:
            generation = base_generator.answer(question, passages)
            write_attributes(lambda: make_attributes(output=generation.text))
            return generation


def _with_model_spans(generator: Generator, request_spans: Tracing) -> Generator:
    """The generator whose model writes spans; an extractive answer is of no model."""
    if isinstance(generator, RequiredConfidence):
        return replace(generator, base=_with_model_spans(generator.base, request_spans))
    return (
        generator
        if isinstance(generator, Extractive)
        else _TracedGenerator(generator, request_spans)
    )


def _tracing_of(system: System) -> Tracing | None:
    """How the spans of a request are written; None where the application does not trace."""
    trace_api = sys.modules.get("opentelemetry.trace")
    if trace_api is not None:
        with _harmless():
            tracer_provider = trace_api.get_tracer_provider()
            if not isinstance(
                tracer_provider, trace_api.ProxyTracerProvider | trace_api.NoOpTracerProvider
            ):
                return Tracing(
                    tracer_provider.get_tracer("raglab"), _may_hold_texts(system), trace_api
                )
    return None


def _may_hold_texts(system: System) -> bool:
    """Whether the application wants texts, and the audit log does not blank them.

    Or would not, where it is off.
    """
    if os.environ.get(CAPTURE_VARIABLE, "").strip().lower() not in _CAPTURE_VALUES:
        return False
    from raglab.live.settings import Settings

    with _harmless():
        logged_query = Settings.read().audit_query if system.audit is None else system.audit.query
        return logged_query == "text"
    return False


@contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever a tracer raises, the question is answered
        with suppress(Exception):
            logging.getLogger(__name__).warning("a span is incomplete: %s", type(error).__name__)


@contextmanager
def _span(
    request_spans: Tracing, span_name: str, span_fields: Attributes
) -> Iterator[Callable[[Callable[[], Attributes]], None]]:
    """A span, the current one within the block, whose error marks it; gives what writes attributes.

    Args:
      span_name: the operation first.
      span_fields: attributes of its start.
    """
    span, exit_stack, trace_api = None, ExitStack(), request_spans.api
    with _harmless():
        span_fields = {"gen_ai.operation.name": span_name.partition(" ")[0], **span_fields}
        span = request_spans.tracer.start_span(span_name, attributes=span_fields)
        # Left to itself the API writes an error with its words.
        exit_stack.enter_context(
            trace_api.use_span(span, record_exception=False, set_status_on_exception=False)
        )

    def write_attributes(make_attributes: Callable[[], Attributes]) -> None:
        with _harmless():
            if span is not None and span.is_recording():  # what nobody records is not computed
                read_attributes = make_attributes()
                span.set_attributes(read_attributes)
                if "error.type" in read_attributes:
                    error = {
                        attribute_name.replace("error", "exception"): read_attributes[
                            attribute_name
                        ]
                        for attribute_name in read_attributes
                        if attribute_name.startswith("error.")
                    }
                    span.add_event("exception", error)
                    span.set_status(
                        trace_api.StatusCode.ERROR,
                        read_attributes.get("error.message", read_attributes["error.type"]),
                    )

    try:
        yield write_attributes
    except BaseException as error:
        write_attributes(
            partial(error_attributes, type(error), error, has_texts=request_spans.has_texts)
        )
        raise
    finally:
        with _harmless():
            exit_stack.close()
        with _harmless():
            if span is not None:
                span.end()
