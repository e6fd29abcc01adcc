"""Imports: traces of what an application has logged.

Spans of OpenTelemetry and OpenInference, traces of MLflow.
"""

POINTS: dict[str, str] = {
    "trace_from_spans": "raglab.extensions.imports.span_traces:trace_from_spans"
}
