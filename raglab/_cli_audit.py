"""Commands about the audit log: how an answer came about, what was asked and learned, and what is to be forgotten."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raglab._cli import AsJson, records, refusals, show

if TYPE_CHECKING:
    from raglab.lab.audit_log import AuditLog

Log = Annotated[
    str | None,
    typer.Option("--log", "-l", help="Index, or its audit log: a file or a URL; RAGLAB_AUDIT_LOG where not given."),
]


def explain(
    request: Annotated[str, typer.Argument(help="Id of the request, as the response named it.")],
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    """How an answer came about, rebuilt from the audit log alone; exit code 1 where the log does not add up."""
    from raglab.lab.explained import explain as explained

    with refusals():
        said = explained(request, _opened(log))
        typer.echo(said.json() if as_json else str(said))
    if not said.rebuilt:
        raise typer.Exit(1)


def audit(
    log: Log = None,
    export: Annotated[Path | None, typer.Option(help="Folder for the tables as Parquet.")] = None,
    forget: Annotated[
        str | None,
        typer.Option(
            help="Blank questions and answers before a day such as 2026-01-31; `old`: before RAGLAB_AUDIT_KEEP_DAYS. "
            "Decisions and votes stay."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What was asked, filled in and learned: counts by day, and the default table."""
    from raglab.lab.audit_tables import days, defaults

    with refusals():
        opened = _opened(log)
        told: dict[str, Any] = {}
        if forget is not None:
            told["forgotten"] = opened.forget(before=None if forget == "old" else _day(forget))
        if export is not None:
            told["files"] = [str(path) for path in opened.export(export)]
        by_day, rows = days(opened), defaults(opened)
        if as_json:
            show(told | {"days": records(by_day), "defaults": records(rows)}, as_json=True)
            return
        for name, value in told.items():
            typer.echo(f"{name}: {value if isinstance(value, int) else ' '.join(value)}")
        typer.echo(by_day.to_string(index=False) if len(by_day) else "no request so far")
        typer.echo(f"\ndefaults\n{rows.round(3).to_string(index=False)}" if len(rows) else "\nno default so far")


def _opened(log: str | None) -> AuditLog:
    """Audit log that is there, under the settings of the environment."""
    from raglab.lab.clarify_settings import opened

    return opened(log)


def _day(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        msg = f"--forget must be a day such as 2026-01-31, or old, got {text!r:.80}; the day is in UTC."
        raise ValueError(msg) from None


COMMANDS = (
    (explain, "raglab explain 4f0c2d --log out/index"),
    (audit, "raglab audit --log out/index --export out/audit"),
)
