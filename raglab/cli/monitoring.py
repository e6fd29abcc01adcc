"""Command line (shore): monitor."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from raglab.cli.common import (
    Arm,
    AsJson,
    keep_inputs,
    load_policy,
    open_trace,
    say,
    show_result,
)
from raglab.cli.experiments import EXIT_NOT_KEPT, EXIT_OPEN
from raglab.extension_points import extension


def monitor(
    policy: Annotated[Path, typer.Argument(help="Policy YAML that holds a certificate.")],
    labels: Annotated[
        Path,
        typer.Argument(help="Labelled requests: CSV, JSON lines or a trace (.parquet)."),
    ],
    state: Annotated[
        Path | None,
        typer.Option(help="File of the state, to go on from and to write."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(min=0, help="Labelled rows between restarts; 0 for none."),
    ] = None,
    min_probability: Annotated[
        float | None,
        typer.Option(help="Least inclusion probability, where rows have several."),
    ] = None,
    arm: Arm = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File of metrics for Prometheus.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch the promises of a certificate on labelled requests, as they come."""
    from raglab.store.files import locked, write_text
    from raglab.store.traces import MANIFEST_NAME

    keep_inputs(out, policy, labels, state)
    keep_inputs(state, policy, labels, option="--state")
    watch_promises = extension("monitor", "monitoring", "raglab monitor")
    is_trace = labels.suffix == ".parquet" or (labels / MANIFEST_NAME).is_file()
    certified_policy = load_policy(policy)
    labelled_rows = open_trace(labels) if is_trace else labels
    # From reading to writing: of two at once the second goes on from what the first has written.
    with nullcontext() if state is None else locked(state.with_name(f"{state.name}.lock")):
        is_new = state is None or not state.exists()
        if state is not None and is_new:
            say(f"{state} is not there: a new monitor begins.", err=True)
        monitoring = watch_promises(
            certified_policy,
            labelled_rows,
            min_probability=min_probability,
            window=window,
            arm=arm,
            after=None if is_new else state,
        )
        if out is not None:
            write_text(monitoring.metrics_text(), out)
        if state is not None:
            monitoring.state.save(state)
    shown_columns = [
        "promise",
        "alpha",
        "verdict",
        "since_step",
        "n",
        "estimate",
        "alarm_by",
        "alarm_rate",
    ]
    show_result(
        {"verdict": monitoring.verdict},
        {"promises": monitoring.table},
        monitoring.notes,
        as_json=as_json,
        columns=shown_columns,
    )
    if monitoring.verdict != "held":
        raise typer.Exit(EXIT_NOT_KEPT if monitoring.verdict == "alarm" else EXIT_OPEN)


COMMANDS = (
    (
        monitor,
        "raglab monitor out/c.yaml labels.csv --state out/monitor.json --out out/promises.prom",
    ),
)
