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

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# values of it that ask for texts in spans
_ON = frozenset({"true", "1", "span_only", "span_and_event"})


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
    text: str,
    system: System,
    answer: Callable[[System], Response],
    *,
    operation: str,
    session: str,
) -> Response:
    """The response of `answer`, within a root span of the request.

    Without one where the application does not trace.

    Nothing is imported and no span is made unless the application has imported
    `opentelemetry.trace` and set a provider. Its open span becomes the parent. Questions, answers,
    passages and the words of errors are written only where the environment has
    `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` as `true`, `span_only` or `span_and_event`,
    and the audit log keeps questions as text. Else spans hold ids, scores and decisions alone.

    Args:
      request_id: as the audit log has it.
      text: of the user.
      system: that answers.
      answer: function of a system, whose models write spans.
      operation: `ask` or `reply`.
      session: of the request, '' where there is none.

    Source: rules S0.3, S5.8; semantic conventions of OpenTelemetry for generative AI.
    """
    tracing = _tracing_of(system)
    if tracing is None:
        return answer(system)
    own = {
        "gen_ai.workflow.name": "raglab",
        "raglab.operation": operation,
        "raglab.request_id": request_id,
    }
    own |= {"gen_ai.conversation.id": session} if session else {}
    own |= text_attributes(has_texts=tracing.has_texts, input=text)
    token = request_tracing.set(tracing)
    try:
        with _span(tracing, "invoke_workflow raglab", own) as write:
            response = answer(
                replace(
                    system,
                    generator=with_model(
                        system.generator, lambda model: _with_model_spans(model, tracing)
                    ),
                )
            )
            write(partial(response_attributes, response, has_texts=tracing.has_texts))
            return response
    finally:
        request_tracing.reset(token)


def depths_in_spans(
    depths: Iterator[DepthHits], tracing: Tracing, arm: str, system: System, n_stored: int
) -> Iterator[DepthHits]:
    """The depths of an endless retrieval, each made within a span. Some the cache has."""
    chunks = system.retriever.chunks
    for number in count():
        own = {
            "raglab.arm": arm,
            "raglab.depth": number,
            "raglab.strategy_cache_hit": number < n_stored,
            "gen_ai.data_source.id": system.fingerprint,
        }
        with _span(tracing, f"retrieval {arm}", own) as write:
            depth = next(depths)
            write(partial(retrieval_attributes, depth, chunks, has_texts=tracing.has_texts))
        yield depth  # with no span open: whoever takes it may open others


def write_stored_depths(
    stored: Callable[[], Sequence[DepthHits]], tracing: Tracing, arm: str, system: System
) -> None:
    """Spans of the retrieval that an answer of the cache came from, which `stored` reads."""
    with _harmless():
        depths = stored()
        spans = depths_in_spans(iter(depths), tracing, arm, system, len(depths))
        list(islice(spans, len(depths)))


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
        base, texts = self.base, partial(text_attributes, has_texts=self.tracing.has_texts)
        model = base.client.name if isinstance(base, ModelGenerator) else base.name
        own = {"gen_ai.request.model": model, "gen_ai.provider.name": "raglab"}
        with _span(self.tracing, f"chat {model}", own | texts(input=question)) as write:
            generation = base.answer(question, passages)
            write(lambda: texts(output=generation.text))
            return generation


def _with_model_spans(generator: Generator, tracing: Tracing) -> Generator:
    """The generator whose model writes spans; an extractive answer is of no model."""
    if isinstance(generator, RequiredConfidence):
        return replace(generator, base=_with_model_spans(generator.base, tracing))
    return generator if isinstance(generator, Extractive) else _TracedGenerator(generator, tracing)


def _tracing_of(system: System) -> Tracing | None:
    """How the spans of a request are written; None where the application does not trace."""
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        with _harmless():
            provider = api.get_tracer_provider()
            if not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
                return Tracing(provider.get_tracer("raglab"), _may_hold_texts(system), api)
    return None


def _may_hold_texts(system: System) -> bool:
    """Whether the application wants texts, and the audit log does not blank them.

    Or would not, where it is off.
    """
    if os.environ.get(CAPTURE, "").strip().lower() not in _ON:
        return False
    from raglab.live.settings import Settings

    with _harmless():
        query = Settings.read().audit_query if system.audit is None else system.audit.query
        return query == "text"
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
    tracing: Tracing, name: str, own: Attributes
) -> Iterator[Callable[[Callable[[], Attributes]], None]]:
    """A span, the current one within the block, whose error marks it; gives what writes attributes.

    Args:
      name: the operation first.
      own: attributes of its start.
    """
    span, stack, api = None, ExitStack(), tracing.api
    with _harmless():
        own = {"gen_ai.operation.name": name.partition(" ")[0], **own}
        span = tracing.tracer.start_span(name, attributes=own)
        # Left to itself the API writes an error with its words.
        stack.enter_context(
            api.use_span(span, record_exception=False, set_status_on_exception=False)
        )

    def write(attributes: Callable[[], Attributes]) -> None:
        with _harmless():
            if span is not None and span.is_recording():  # what nobody records is not computed
                more = attributes()
                span.set_attributes(more)
                if "error.type" in more:
                    error = {
                        key.replace("error", "exception"): more[key]
                        for key in more
                        if key.startswith("error.")
                    }
                    span.add_event("exception", error)
                    span.set_status(
                        api.StatusCode.ERROR, more.get("error.message", more["error.type"])
                    )

    try:
        yield write
    except BaseException as error:
        write(partial(error_attributes, type(error), error, has_texts=tracing.has_texts))
        raise
    finally:
        with _harmless():
            stack.close()
        with _harmless():
            if span is not None:
                span.end()
