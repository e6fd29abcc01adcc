"""Commands about the bandit at work: its metrics, and feedback on an answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raglab._cli import AsJson, refusals, show

if TYPE_CHECKING:
    from raglab.lab.online import Online

Log = Annotated[str, typer.Argument(help="Index whose questions a bandit answered, or its log: a file or a URL.")]


def metrics(
    log: Log,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write them for Prometheus as a text file.")] = None,
    serve: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve them to this machine on a port until interrupted; 0: any."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pulls, win rate, reward and latency of each arm that a bandit chooses from."""
    from raglab.lab import prometheus

    with refusals():
        online = _online(log)
        table = online.arms_frame()
        show(table if as_json else table.round(4), as_json=as_json)
        if out is not None:
            prometheus.write_metrics(table, out)
            typer.echo(f"wrote {out}", err=True)
        if serve is not None:
            served = prometheus.serve(online.arms_frame, serve)
            typer.echo(f"http://{prometheus.LOCALHOST}:{served.port}/metrics; end with Ctrl-C", err=True)
            try:
                _until_interrupted()
            finally:
                served.close()


def feedback(
    log: Log,
    request: Annotated[str, typer.Argument(help="Id of the request, as the response named it.")],
    up: Annotated[bool, typer.Option("--up/--down", help="Whether the answer was good.")],
    as_json: AsJson = False,
) -> None:
    """Thumb up or down for an answer, now or later; of several the last counts."""
    with refusals():
        online = _online(log)
        online.thumbs(request, up)
        if not online.setup.weights.thumbs:
            typer.echo("kept in the log; RAGLAB_BANDIT_W_THUMBS is 0, so it changes no reward", err=True)
        show({"request": request, "thumb": "up" if up else "down"}, as_json=as_json)


def _online(log: str) -> Online:
    """Bandit over a log that is there, under the settings of the environment."""
    from raglab.lab.settings import opened

    return opened(log)


def _until_interrupted() -> None:
    from threading import Event

    Event().wait()


COMMANDS = (
    (metrics, "raglab metrics out/index --out out/raglab.prom"),
    (feedback, "raglab feedback out/index 4f0c2d --up"),
)
