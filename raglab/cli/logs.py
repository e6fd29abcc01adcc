"""Command line (shore): evaluate-log, metrics, feedback."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raglab.cli.common import (
    AsJson,
    RequestId,
    Seed,
    TableOut,
    json_record,
    json_records,
    keep_inputs,
    say,
    say_json,
    say_notes,
    show,
    table_text,
    write_csv,
)
from raglab.cli.experiments import OPEN

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray


def evaluate_log(
    log: Annotated[
        str,
        typer.Argument(
            help="CSV or Parquet, a row a round; or an index whose questions a bandit answered, or "
            "its log."
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            help="uniform; best:ARM; or a CSV or Parquet with a column of probabilities an arm.",
        ),
    ] = "uniform",
    estimators: Annotated[
        list[str] | None,
        typer.Option(
            "--estimators",
            "-e",
            help="replay, ips, clipped_ips, snips, dm, dr, switch_dr. Default: all.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(help="Column of sessions, which count together in the intervals."),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="Arm of action 0, 1, …. Repeatable. Default: those of the log."),
    ] = None,
    interval: Annotated[
        Literal["delta", "bootstrap"], typer.Option(help="Method of the intervals.")
    ] = "delta",
    level: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    clip: Annotated[
        float | None,
        typer.Option(help="Largest weight of clipped_ips. Default: root of the rounds."),
    ] = None,
    switch: Annotated[
        float | None,
        typer.Option(help="Largest weight of switch_dr. Default: root of the rounds."),
    ] = None,
    seed: Seed = 0,
    out: TableOut = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the value of another policy from this one's log, and say if the log suffices.

    A round has `action`, `reward` and `propensity`; it may have the probability of every arm as
    `p_<arm>` and a model of its reward as `q_<arm>`. `uniform` is over the arms that a round could
    take, as far as `p_<arm>` tells. A target of a file has a row a round, or one row for all.
    """
    from raglab.off_policy import ESTIMATORS, estimate, overlap

    # A bandit's log is a URL, an index or a database; any other file is a table of rounds.
    live = "://" in log or Path(log).is_dir() or Path(log).suffix == ".sqlite"
    rounds = _live(log) if live else _read_table(Path(log))
    # A URL is no file that --out could write over.
    keep_inputs(out, None if "://" in log else log, target)
    names = tuple(name.strip() for part in estimators or () for name in part.split(","))
    aim = _target_frame(target, rounds, arm)
    # Caught, so that warnings follow the table that they are about, and stand in the JSON.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = estimate(
            rounds,
            aim,
            names or ESTIMATORS,
            seed,
            level=level,
            interval=interval,
            clip=clip,
            switch=switch,
            session=session,
        )
    support = overlap(rounds, aim, level=level, session=session)
    messages = [str(warning.message) for warning in caught]
    write_csv(table, out)
    notes = {name: note for name, note in table.attrs["notes"].items() if note}
    if as_json:
        parts = {
            "estimates": json_records(table),
            "overlap": json_record(support._asdict()),
            "notes": notes,
            "warnings": messages,
        }
        say_json(parts, indent=2)
    else:
        say(table_text(table) + "\n")
        show(support._asdict(), as_json=False)
        say_notes(f"{name}: {note}" for name, note in notes.items())
        say_notes((f"warning: {text}" for text in messages), err=True)
    # Only where no estimator could say anything: one number is an answer.
    if (table["status"] == "none").all():
        raise typer.Exit(OPEN)


def _read_table(path: Path) -> pd.DataFrame:
    """Table of a CSV, TSV or Parquet file."""
    from raglab.store.csv_tables import csv_frame
    from raglab.store.trace_files import parquet_frame

    return parquet_frame(path) if path.suffix == ".parquet" else csv_frame(path)


def _live(place: str) -> pd.DataFrame:
    """Rounds of a bandit at work whose reward has come."""
    from raglab.live.settings import open_online

    frame = open_online(place).frame()
    rounds = frame.dropna(subset=["reward"]).reset_index(drop=True)
    if len(rounds) < len(frame):
        missing = len(frame) - len(rounds)
        say(f"{missing} of {len(frame)} rounds have no reward yet and are left out", err=True)
    return rounds


def _target_frame(stated: str, rounds: pd.DataFrame, stated_arms: list[str] | None) -> pd.DataFrame:
    """Target with the arms as columns, [T, A]."""
    import numpy as np
    import pandas as pd

    if stated != "uniform" and not stated.startswith("best:"):
        target = _read_table(Path(stated))
        target.columns = pd.Index(_whole_numbers([str(name) for name in target.columns]))
        return target if len(target) != 1 else target.loc[target.index.repeat(len(rounds))]
    arms = _whole_numbers(stated_arms) if stated_arms else _logged_arms(rounds)
    there = _available_arms(rounds, arms)
    share = there / there.sum(axis=1, keepdims=True)
    if stated != "uniform":
        wanted = stated.removeprefix("best:")
        only = np.array([str(arm) == wanted for arm in arms])
        closed = int((~there[:, only]).sum())
        if closed or not only.any():
            value = f"{wanted!r}" + f", closed in {closed} of {len(rounds)} rounds" * bool(closed)
            msg = f"best:ARM must be of {arms} and open in every round, got {value}."
            raise ValueError(msg)
        share = np.broadcast_to(only, there.shape).astype(np.float64)
    return pd.DataFrame(share, columns=arms)


def _available_arms(rounds: pd.DataFrame, arms: list[Any]) -> NDArray[np.bool_]:
    """Arms that each round could take, [T, A].

    All, unless p_<arm> tells and the log is not of a fixed choice.
    """
    import numpy as np

    if _probability_arms(rounds) != [str(arm) for arm in arms]:
        return np.ones((len(rounds), len(arms)), dtype=np.bool_)
    share = rounds[[f"p_{arm}" for arm in arms]].to_numpy(np.float64)
    return share > 0.0 if (share < 1.0).all(axis=1).any() else np.ones(share.shape, dtype=np.bool_)


def _probability_arms(rounds: pd.DataFrame) -> list[str]:
    """Arms of the columns p_<arm>, where these are the probabilities of all of them; else none."""
    import numpy as np

    names = [str(name) for name in rounds.columns if str(name).startswith("p_")]
    try:
        sums = rounds[names].to_numpy(np.float64).sum(axis=1)
    except ValueError:  # texts
        return []
    is_whole = bool(names) and bool((np.abs(sums - 1.0) <= 1e-6).all())
    return [name.removeprefix("p_") for name in names] if is_whole else []


def _logged_arms(rounds: pd.DataFrame) -> list[Any]:
    """Arms of a log.

    Of p_<arm>, else of its reward model, else 0 to the largest action, else the names, sorted.
    """
    modelled = [str(name)[2:] for name in rounds.columns if str(name).startswith("q_")]
    if known := _probability_arms(rounds) or modelled:
        return _whole_numbers(known)
    if "action" not in rounds.columns:
        msg = f"a log must have a column action, got {list(rounds.columns)}."
        raise ValueError(msg)
    actions = rounds["action"].dropna().unique().tolist()
    numbers = all(isinstance(action, int | float) for action in actions)
    return list(range(int(max(actions)) + 1)) if numbers and actions else sorted(map(str, actions))


def _whole_numbers(names: list[str]) -> list[Any]:
    """Names as whole numbers where all are, as a log in a file has them."""
    return [int(name) for name in names] if all(name.isdecimal() for name in names) else names


BanditLogPlace = Annotated[str, typer.Argument(help="Index of a bandit, or its log: file or URL.")]
MetricsPlace = Annotated[str, typer.Argument(help="Index, or one of its logs: file or URL.")]


def metrics(
    log: MetricsPlace,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a text file for Prometheus.")
    ] = None,
    serve: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve to this machine on a port until interrupted. 0: any port.",
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="Latest requests for the live rates.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Print pulls, reward, latency by arm, live rates of false refusals and needless questions."""
    from raglab.live import prometheus

    keep_inputs(out, log)
    arms, rates = _measured(log, last)
    tables = {
        name: measured()
        for name, measured in (("arms", arms), ("rates", rates))
        if measured is not None
    }
    if as_json:
        only = next(iter(tables.values())) if len(tables) == 1 else None
        records = {name: json_records(table.astype(object)) for name, table in tables.items()}
        show(only if only is not None and arms is not None else records, as_json=True)
    for table in () if as_json else tables.values():
        say(table_text(table))
    if out is not None:
        prometheus.write_metrics(tables.get("arms"), out, rates=tables.get("rates"))
        say(f"wrote {out}", err=True)
    if serve is not None:
        served = prometheus.serve(arms, serve, rates=rates)
        say(f"http://{prometheus.LOCALHOST}:{served.port}/metrics; end with Ctrl-C", err=True)
        try:
            _until_interrupted()
        finally:
            served.close()


def _measured(
    log: str, last: int
) -> tuple[Callable[[], pd.DataFrame] | None, Callable[[], pd.DataFrame] | None]:
    """What measures arms and live rates anew, each None where the place holds no such log.

    Raises:
      InputError: it holds neither.
    """
    from raglab.audit.live_rates import live_rates
    from raglab.live.settings import open_audit, open_online
    from raglab.store.files import InputError

    arms, refused = None, None
    try:
        arms = open_online(log).arms_frame
    except InputError as error:
        refused = error
    try:
        audit = open_audit(log)
        audit.pack()  # opens it
    except InputError:
        if refused is not None:
            raise refused from None
        return arms, None
    return arms, lambda: live_rates(audit, last=last)


def feedback(
    log: BanditLogPlace,
    request: RequestId,
    up: Annotated[bool, typer.Option("--up/--down", help="Whether the answer was good.")],
    as_json: AsJson = False,
) -> None:
    """Log a thumb up or down for an answer, now or later. Of several the last counts."""
    from raglab.live.settings import open_online

    online = open_online(log)
    online.thumbs(request, up)
    if not online.setup.weights.thumbs:
        say("RAGLAB_BANDIT_W_THUMBS is 0, so no reward changes.", err=True)
    show({"request": request, "thumb": "up" if up else "down"}, as_json=as_json)


def _until_interrupted() -> None:
    from threading import Event

    Event().wait()


COMMANDS = (
    (evaluate_log, "raglab evaluate-log log.csv --target uniform --estimators snips,dr"),
    (metrics, "raglab metrics out/index --out out/raglab.prom"),
    (feedback, "raglab feedback out/index 4f0c2d --up"),
)
