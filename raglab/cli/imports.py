"""Command line (shore): import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raglab.cli.common import AsJson, Quiet, keep_inputs, show
from raglab.extension_points import extension


def import_spans(
    source: Annotated[
        list[Path],
        typer.Argument(help="Spans in OTLP JSON or JSON lines, maybe gzipped; files or a folder."),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Trace to write: .parquet, or a folder of shards."),
    ],
    cases: Annotated[
        Path | None,
        typer.Option("--cases", "-c", help="Labelled questions."),
    ] = None,
    feedback: Annotated[
        list[str] | None,
        typer.Option(help="Judgement that becomes a label, or none. Repeatable. Default: all."),
    ] = None,
    higher: Annotated[
        list[str] | None,
        typer.Option(help="Direction of a score: retriever_score=ask of a distance. Repeatable."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Attribute of groups, such as tenant.id. Repeatable."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the collection.")] = "spans",
    workers: Annotated[int, typer.Option(min=1, help="Processes that read the files.")] = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make a trace of requests that an app logged as OpenTelemetry or OpenInference spans."""
    from raglab.loops.parallel import parallel_workers
    from raglab.store.loaders import load_cases

    del quiet  # its callback has read it
    is_file = out.suffix == ".parquet"
    keep_inputs(out, cases, *source, folder=not is_file)
    trace_from_spans = extension("trace_from_spans", "imports", "raglab import")
    directions = dict(direction_text.partition("=")[::2] for direction_text in higher or ())
    with parallel_workers("joblib", workers):
        imported_trace = trace_from_spans(
            source,
            None if cases is None else load_cases(cases),
            feedback=None if feedback == ["none"] else tuple(feedback or ()),
            higher=directions,
            groups=tuple(group or ()),
            name=name,
            out=None if is_file else out,
        )
    if is_file:
        imported_trace.save(out)
    import_facts = {
        "trace": str(out),
        "cases": len(imported_trace),
        "signals": ", ".join(imported_trace.meta.get("signals", {})) or "none",
    }
    show(import_facts, as_json=as_json)


import_spans.__name__ = "import"
COMMANDS = (
    (
        import_spans,
        "raglab import spans.jsonl --out out/traffic.parquet --group tenant.id",
    ),
)
