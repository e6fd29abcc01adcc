"""Traces of MLflow (shore): what an application logged by MLflow tracing, as a raglab trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from raglab.extensions.imports.span_traces import Feedback, import_settings, trace_of_spans
from raglab.extensions.imports.spans import LoggedSpan, time_of
from raglab.lab.artifact_places import check_database
from raglab.lab.store_errors import (
    DAMAGED_STORE,
    OTHER_FAULT,
    check_server,
    fault_of,
    sqlite_files,
    store_error,
)
from raglab.store.files import InputError, Where, input_error
from raglab.values import Case

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 100  # traces that are asked for at once


def trace_from_mlflow(
    experiment: Any,  # noqa: ANN401 - a name, a frame, or traces
    cases: Sequence[Case] | None = None,
    *,
    tracking_uri: str | None = None,
    feedback: Feedback = (),
    higher: Mapping[str, str] | None = None,
    groups: Sequence[str] = (),
    name: str = "mlflow",
    out: str | Path | None = None,
) -> Any:  # noqa: ANN401 - a trace, or one of shards
    """Trace of the requests that an application logged by MLflow's tracing.

    A request is a trace with a span of type RETRIEVER; assessments of a trace are its feedback.
    Tags and metadata of a trace are attributes of its first span, so that `groups` may name them.

    Args:
      experiment: name of an experiment, or what `mlflow.search_traces` gives: a frame or a list of
        traces.
      cases: as `trace_from_spans`.
      tracking_uri: of the store; MLflow's own where None.
      feedback: assessments that become labels, as `trace_from_spans`.
      higher: as `trace_from_spans`.
      groups: as `trace_from_spans`.
      name: of the collection and of the arm.
      out: folder of shards.

    Raises:
      TypeError: an experiment that is none of these.
      KeyError: a frame without the column `trace`.
      InputError: no such store or experiment, a server that does not answer, or no request.
    """
    from mlflow import get_tracking_uri

    settings = import_settings(cases, feedback, higher, groups, name, out)
    if isinstance(experiment, str):
        spans = _stored(experiment, tracking_uri or get_tracking_uri())
    else:
        spans = chain.from_iterable(map(_spans, _listed(experiment)))
    return trace_of_spans(spans, settings)


def _stored(experiment: str, uri: str) -> Iterator[LoggedSpan]:
    """Spans of an experiment, a page of traces at a time."""
    try:
        yield from _store_spans(experiment, uri)
    except InputError:
        raise
    except Exception as error:
        fault = fault_of(error)
        raise store_error(uri, error, DAMAGED_STORE if fault is OTHER_FAULT else fault) from error


def _store_spans(experiment: str, uri: str) -> Iterator[LoggedSpan]:
    from mlflow import MlflowClient

    for file in sqlite_files(uri):
        if not file.is_file():  # MLflow would make a new store
            raise input_error(
                Where(uri),
                "a store of MLflow must be there",
                "correct tracking_uri",
                "no such file",
            )
    check_database(uri)
    if uri.startswith("http"):
        check_server(uri)
    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(experiment)
    if known is None:
        names = ", ".join(sorted(row.name for row in client.search_experiments())[:10])
        raise input_error(
            Where(experiment),
            "an experiment of MLflow must be there",
            "name one, or pass tracking_uri",
            f"none; there are {names}",
        )
    token: str | None = ""
    while token is not None:
        page = client.search_traces(
            locations=[known.experiment_id], max_results=PAGE, page_token=token or None
        )
        yield from chain.from_iterable(map(_spans, page))
        token = page.token or None


def _listed(traces: Any) -> Iterable[Any]:  # noqa: ANN401 - a frame or a list
    """Traces of a frame of `mlflow.search_traces`, which holds each as JSON, or of a list."""
    from mlflow.entities import Trace

    rows = traces["trace"] if hasattr(traces, "columns") else traces
    return (Trace.from_json(row) if isinstance(row, str) else row for row in rows)


def _spans(trace: Any) -> Iterator[LoggedSpan]:  # noqa: ANN401 - MLflow's
    """Spans of a trace of MLflow; the first holds the tags and the assessments of the trace."""
    info = trace.info
    attributes: dict[str, Any] = {**(info.trace_metadata or {}), **(info.tags or {})}
    evaluations = tuple(
        _assessment(row)
        for row in info.assessments or ()
        # an expectation is a gold value, and says nothing of the answer
        if getattr(row, "feedback", None) is not None and row.value is not None
    )
    for span in trace.data.spans:
        yield LoggedSpan(
            info.trace_id,
            span.span_id,
            span.parent_id or "",
            time_of(span.start_time_ns)[0],
            {**attributes, **(span.attributes or {})},
            evaluations,
            is_failed=span.status.status_code == "ERROR",
        )
        attributes = {}
        evaluations = ()


def _assessment(row: Any) -> dict[str, Any]:  # noqa: ANN401 - MLflow's
    source = getattr(row, "source", None)
    return {
        "gen_ai.evaluation.name": row.name,
        "gen_ai.evaluation.score.label": str(row.value),
        "gen_ai.evaluation.source": str(getattr(source, "source_type", "")).lower(),
    }
