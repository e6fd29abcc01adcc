"""Command line (shore): explain, audit, audit sample, audit label, audit mix."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raglab.cli.common import (
    AsJson,
    RequestId,
    Seed,
    json_records,
    keep_inputs,
    say,
    say_json,
    show,
    table_text,
)

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog

AuditLogPlace = Annotated[
    str | None,
    typer.Option("--log", "-l", help="Index or audit log: file or URL. Default: RAGLAB_AUDIT_LOG."),
]


def explain(
    request: RequestId,
    log: AuditLogPlace = None,
    as_json: AsJson = False,
) -> None:
    """Explain an answer from the audit log alone. Exit code 1: the log is inconsistent."""
    from raglab.audit.explanation import explain_request as explained

    if log is None and Path(request).is_dir():
        message = f"REQUEST must be an id, got the folder {request}; write ID --log {request}."
        raise ValueError(message)
    request_explanation = explained(request, _open_audit_log(log))
    say_json(json.loads(request_explanation.json()), indent=2) if as_json else say(
        str(request_explanation)
    )
    if not request_explanation.rebuilt:
        raise typer.Exit(1)


def audit(
    ctx: typer.Context,
    log: AuditLogPlace = None,
    export: Annotated[Path | None, typer.Option(help="Folder for the tables as Parquet.")] = None,
    forget: Annotated[
        str | None,
        typer.Option(
            help="Blank texts before a day such as 2026-01-31; old: RAGLAB_AUDIT_KEEP_DAYS."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print counts by day and the default table of an audit log.

    `--forget` blanks questions and answers; decisions and votes stay.

    `sample` draws requests to be labelled, `label` reads the labels back, `mix` prints the traffic
    mix that they tell.
    """
    from raglab.audit.log_summary import days, defaults

    # `audit sample` and its like pass through here first; they open the log themselves.
    if ctx.invoked_subcommand is not None:
        return
    audit_log = _open_audit_log(log)
    audit_report: dict[str, Any] = {}
    # Forget before the export, so that no exported table holds what was to be blanked.
    if forget is not None:
        audit_report["forgotten"] = audit_log.forget(
            before=None if forget == "old" else _day(forget)
        )
    if export is not None:
        audit_report["files"] = [str(exported_file) for exported_file in audit_log.export(export)]
    day_table = days(audit_log)
    default_rows = defaults(audit_log)
    if as_json:
        show(
            audit_report
            | {"days": json_records(day_table), "defaults": json_records(default_rows)},
            as_json=True,
        )
        return
    for report_name, report_value in audit_report.items():
        say(
            f"{report_name}: "
            f"{report_value if isinstance(report_value, int) else ' '.join(report_value)}"
        )
    say(table_text(day_table) if len(day_table) else "no request yet")
    say(f"\ndefaults\n{table_text(default_rows)}" if len(default_rows) else "\nno default yet")


def _open_audit_log(log: str | None) -> AuditLog:
    """Audit log that is there, under the settings of the environment."""
    from raglab.live.settings import open_audit

    return open_audit(log)


def _day(day_text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(day_text), time(), UTC)
    except ValueError:
        message = f"--forget must be a day such as 2026-01-31 (UTC), or old, got {day_text!r:.80}."
        raise ValueError(message) from None


def sample(
    ctx: typer.Context,
    out: Annotated[Path, typer.Argument(help="File to label: CSV or .jsonl.")],
    n: Annotated[
        int, typer.Option("--n", "-n", min=1, max=1_000_000, help="Requests to draw.")
    ] = 100,
    last: Annotated[
        int | None, typer.Option(min=1, help="Only from so many latest requests.")
    ] = None,
    days: Annotated[
        float | None, typer.Option(min=0.0, help="Only from so many latest days.")
    ] = None,
    seed: Seed = 0,
    log: AuditLogPlace = None,
    as_json: AsJson = False,
) -> None:
    """Draw requests to label, evenly over decisions and their gates, without replacement.

    Each row has the request, its stratum, the probability with which it was drawn, question, answer
    and reason as far as the log keeps them, and empty columns: in `label` write ok, refuse or
    ambiguous, whatever the request should have got, in `question_label` what the question should
    get, whatever the answer, or leave them empty. The draw is kept in the log, so that `raglab
    audit label` knows whom it stands for; `raglab audit mix` reads `question_label`.
    """
    from raglab.audit.label_samples import draw_sample, write_sample

    keep_inputs(out, log)
    drawn_sample = draw_sample(
        _open_audit_log(_place(ctx, log)), n, seed=seed, last=last, days=days
    )
    write_sample(drawn_sample, out)
    stratum_table = drawn_sample.groupby("stratum", as_index=False).agg(
        drawn=("request_id", "size"), inclusion_probability=("inclusion_probability", "first")
    )
    show(stratum_table, as_json=as_json)
    say(f"wrote {out}; fill in labels, then `raglab audit label {out}`", err=True)


def label(
    ctx: typer.Context,
    labelled: Annotated[Path, typer.Argument(help="File of `raglab audit sample`, with labels.")],
    last: Annotated[int, typer.Option(min=1, help="Latest requests for the rates.")] = 1000,
    log: AuditLogPlace = None,
    as_json: AsJson = False,
) -> None:
    """Read labels into the log, and print false refusals and needless questions with intervals.

    All labels of a file are kept or none; those that are there already add nothing, another label
    for the same request counts from now on. Rows without a label widen the intervals, whichever
    they are.
    """
    from raglab.audit.label_samples import record_labels
    from raglab.audit.live_rates import live_rates

    audit_log = _open_audit_log(_place(ctx, log))
    label_counts = record_labels(audit_log, labelled)
    rate_table = live_rates(audit_log, last=last)
    if as_json:
        show(
            {
                "labels": label_counts._asdict(),
                "rates": json_records(rate_table.astype({"until": str, "since": str})),
            },
            as_json=True,
        )
        return
    show(label_counts._asdict(), as_json=False)
    say(table_text(rate_table.drop(columns=["until", "since", "level"])))


def mix(
    sheet: Annotated[Path, typer.Argument(help="Labelled sheet, CSV or JSON lines.")],
    as_json: AsJson = False,
) -> None:
    """Print the traffic mix that the column question_label of a drawn sheet tells."""
    from raglab.lab.sampled_mix import traffic_mix

    sampled_mix = traffic_mix(sheet)
    show(sampled_mix.rows, as_json=True) if as_json else say(str(sampled_mix))


def _place(ctx: typer.Context, log: str | None) -> str | None:
    """Log of a command, or the one that stands before its name."""
    parent_log = ctx.parent.params.get("log") if ctx.parent is not None else None
    return parent_log if log is None else log


AUDIT_APP = typer.Typer(invoke_without_command=True)
AUDIT_APP.callback(epilog="Example: raglab audit --log out/index")(audit)
AUDIT_APP.command(
    epilog="Example: raglab audit sample out/sample.csv -n 200 --last 5000 --log out/index"
)(sample)
AUDIT_APP.command(epilog="Example: raglab audit label out/sample.csv --log out/index")(label)
AUDIT_APP.command(epilog="Example: raglab audit mix out/sample.csv")(mix)
COMMANDS = ((explain, "raglab explain 4f0c2d --log out/index"),)
