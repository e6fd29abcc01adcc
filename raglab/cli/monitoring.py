"""Command line (shore): monitor."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from raglab.cli.common import (
    Arm,
    AsJson,
    json_records,
    keep_inputs,
    load_policy,
    open_trace,
    say,
    say_json,
)
from raglab.cli.experiments import NOT_KEPT, OPEN
from raglab.extension_points import extension


def monitor(
    policy: Annotated[Path, typer.Argument(help="Policy YAML that holds a certificate.")],
    labels: Annotated[
        Path,
        typer.Argument(
            help="Labelled requests: CSV or JSON lines with decision and label, or a trace "
            "(.parquet)."
        ),
    ],
    state: Annotated[
        Path | None,
        typer.Option(help="File to go on from where it is there, and to write the state to."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(min=0, help="Labelled rows after which another process begins; 0 for none."),
    ] = None,
    min_probability: Annotated[
        float | None,
        typer.Option(help="Least inclusion probability of the design, where rows have several."),
    ] = None,
    arm: Arm = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File of metrics for Prometheus.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch the promises of a certificate on labelled requests, as they come."""
    from raglab.store.files import locked, write_text
    from raglab.store.traces import MANIFEST

    keep_inputs(out, policy, labels, state)
    keep_inputs(state, policy, labels, option="--state")
    watch = extension("monitor", "monitoring", "raglab monitor")
    is_trace = labels.suffix == ".parquet" or (labels / MANIFEST).is_file()
    certified, rows = load_policy(policy), open_trace(labels) if is_trace else labels
    # From reading to writing: of two at once the second goes on from what the first has written.
    with nullcontext() if state is None else locked(state.with_name(f"{state.name}.lock")):
        is_new = state is None or not state.exists()
        if state is not None and is_new:
            say(
                f"{state} is not there: this monitor begins with these rows and writes it.",
                err=True,
            )
        result = watch(
            certified,
            rows,
            min_probability=min_probability,
            window=window,
            arm=arm,
            after=None if is_new else state,
        )
        if out is not None:
            write_text(result.metrics_text(), out)
        if state is not None:
            result.state.save(state)
    _print_monitor(result, as_json=as_json)
    if result.verdict != "held":
        raise typer.Exit(NOT_KEPT if result.verdict == "alarm" else OPEN)


def _print_monitor(result: Any, *, as_json: bool) -> None:  # noqa: ANN401 - of an extension
    """Print a line a promise, the verdict and the notes."""
    if as_json:
        say_json(
            {
                "verdict": result.verdict,
                "promises": json_records(result.table),
                "notes": result.notes,
            },
            indent=2,
        )
        return
    for row in result.table.itertuples():
        since = f" since step {row.since_step:,}" if row.since_step else ""
        if row.alarm_by:
            where = (
                f"steps {row.alarm_from_step:,} to {row.since_step:,}, rate {row.alarm_rate:.4g}"
            )
            since += f" (by {row.alarm_by}{', ' * bool(row.alarm_at)}{row.alarm_at}; {where})"
            since += (
                f"; on average since the start {'held' if row.is_held else 'not said to be held'}"
            )
        rate = f"rate {row.estimate:.4g}" if row.n else "no rate yet"
        say(
            f"{row.promise} <= {row.alpha:g}: {row.verdict}{since}; {rate} of n = {row.n:,} since "
            "the start"
        )
    say("\n".join([f"verdict: {result.verdict}", *(f"note: {note}" for note in result.notes)]))


COMMANDS = (
    (
        monitor,
        "raglab monitor out/c.yaml labels.csv --state out/monitor.json --out out/promises.prom",
    ),
)
