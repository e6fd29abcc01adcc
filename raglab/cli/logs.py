"""Command line (shore): evaluate-log, metrics, feedback."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raglab.cli.common import (
    AsJson,
    Seed,
    json_record,
    json_records,
    keep_inputs,
    say,
    say_json,
    show,
    table_text,
    write_csv,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from raglab.off_policy import Overlap

OPEN = 4


def evaluate_log(
    log: Annotated[
        str,
        typer.Argument(
            help="CSV or Parquet, a row a round: action, reward, propensity, optional q_<arm>, "
            "optional p_<arm> (the "
            "probability of every arm); or an index whose questions a bandit answered, or its "
            "log: a .sqlite or a URL."
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            help="uniform, over the arms that a round could take where p_<arm> tells; best:ARM, "
            "always that arm; or a "
            "CSV or Parquet with a column of probabilities for each arm and a row a round, or one "
            "row for all.",
        ),
    ] = "uniform",
    estimators: Annotated[
        list[str] | None,
        typer.Option(
            "--estimators",
            "-e",
            help="replay, ips, clipped_ips, snips, dm, dr or switch_dr. Repeat it, or write "
            "commas. Default: all.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            help="Column of sessions. The rounds of a session count together in the intervals."
        ),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            help="Arm, in the order of action 0, 1, …. Repeatable. Default: the arms of the log."
        ),
    ] = None,
    interval: Annotated[
        Literal["delta", "bootstrap"], typer.Option(help="Method of the intervals.")
    ] = "delta",
    level: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Largest weight of clipped_ips. Default: the root of the number of rounds."
        ),
    ] = None,
    switch: Annotated[
        float | None,
        typer.Option(
            help="Largest weight of switch_dr. Default: the root of the number of rounds."
        ),
    ] = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the value of another policy from this one's log, and say if the log suffices."""
    from raglab.off_policy import ESTIMATORS, estimate, overlap

    # A bandit's log is a URL, an index or a database; any other file is a table of rounds.
    live = "://" in log or Path(log).is_dir() or Path(log).suffix == ".sqlite"
    rounds = _live(log) if live else _read_table(Path(log))
    # A URL is no file that --out could write over.
    keep_inputs(out, None if "://" in log else log, target)
    names = (
        tuple(name.strip() for part in estimators or () for name in part.split(",")) or ESTIMATORS
    )
    aim = _target_frame(target, rounds, arm)
    # Caught, so that warnings follow the table that they are about, and stand in the JSON.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = estimate(
            rounds,
            aim,
            names,
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
        say("\n".join(_estimate_lines(table, support, notes, level)))
        for text in messages:
            say(f"warning: {text}", err=True)
    # Only where no estimator could say anything: one number is an answer.
    if (table["status"] == "none").all():
        raise typer.Exit(OPEN)


def _estimate_lines(
    table: pd.DataFrame, overlap: Overlap, notes: dict[str, str], level: float
) -> list[str]:
    """Table, overlap and reasons, for people."""
    held = (
        f"overlap: {overlap.status} · {overlap.n} rounds worth {overlap.ess:.1f} · "
        f"largest weight {overlap.max_weight:.3g} · "
        f"mean weight {overlap.mean_weight:.3f} ({level:.0%} interval "
        f"{overlap.mean_weight_low:.3f} to "
        f"{overlap.mean_weight_high:.3f}; 1 is expected)"
    )
    lines = [table_text(table.round(4)), "", held]
    for note in dict.fromkeys(notes.values()):
        lines += [f"{', '.join(name for name in notes if notes[name] == note)}: {note}"]
    return lines


def _read_table(path: Path) -> pd.DataFrame:
    """Table of a CSV, TSV or Parquet file."""
    from raglab.store.csv_tables import csv_frame
    from raglab.store.files import InputError
    from raglab.store.trace_files import parquet_frame

    if not path.is_file():
        msg = f"{path} must be a CSV or Parquet file, got none there; check the path."
        raise ValueError(msg)
    try:
        return parquet_frame(path) if path.suffix == ".parquet" else csv_frame(path)
    except InputError:  # it names the line
        raise
    except (ValueError, OSError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        msg = f"{path} must be a whole CSV or Parquet file, got {reason}; write it again."
        raise ValueError(msg) from None


def _live(place: str) -> pd.DataFrame:
    """Rounds of a bandit at work whose reward has come."""
    from raglab.live.settings import open_online

    frame = open_online(place).frame()
    rounds = frame.dropna(subset=["reward"]).reset_index(drop=True)
    if len(rounds) < len(frame):
        say(
            f"{len(frame) - len(rounds)} of {len(frame)} rounds have no reward yet and are left "
            "out",
            err=True,
        )
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
        if not only.any():
            msg = (
                f"best:ARM must name an arm, got {wanted!r}; there is {arms}; name others with "
                "--arm."
            )
            raise ValueError(msg)
        closed = int((~there[:, only]).sum())
        if closed:
            msg = (
                f"best:ARM must be an arm that every round could take, got {wanted!r}, whose "
                "probability is 0 in "
                f"{closed} of {len(rounds)} rounds; keep the other rounds, or give the target as "
                "a file."
            )
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
    share = rounds[names]
    if not names or not all(kind.kind in "fi" for kind in share.dtypes):
        return []
    sums = share.to_numpy(np.float64).sum(axis=1)
    return (
        [name.removeprefix("p_") for name in names]
        if bool((np.abs(sums - 1.0) <= 1e-6).all())
        else []
    )


def _logged_arms(rounds: pd.DataFrame) -> list[Any]:
    """Arms of a log.

    Of p_<arm>, else of its reward model, else 0 to the largest action, else the names, sorted.
    """
    if known := _probability_arms(rounds):
        return _whole_numbers(known)
    if modelled := [
        str(name).removeprefix("q_") for name in rounds.columns if str(name).startswith("q_")
    ]:
        return _whole_numbers(modelled)
    if "action" not in rounds.columns:
        msg = f"a log must have a column action, got {list(rounds.columns)}."
        raise ValueError(msg)
    actions = rounds["action"].dropna().unique().tolist()
    numbers = all(isinstance(action, int | float) for action in actions)
    return list(range(int(max(actions)) + 1)) if numbers and actions else sorted(map(str, actions))


def _whole_numbers(names: list[str]) -> list[Any]:
    """Names as whole numbers where all are, as a log in a file has them."""
    return [int(name) for name in names] if all(name.isdecimal() for name in names) else names


BanditLogPlace = Annotated[
    str,
    typer.Argument(help="Index whose questions a bandit answered, or its log: a file or a URL."),
]
MetricsPlace = Annotated[
    str, typer.Argument(help="Index, or the log of its bandit or its audit: a file or a URL.")
]


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
            help="Serve the metrics to this machine on a port until interrupted. 0: any port.",
        ),
    ] = None,
    last: Annotated[
        int, typer.Option(min=1, help="Number of latest requests for the live rates.")
    ] = 1000,
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
        say(table_text(table.round(4)))
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
    request: Annotated[str, typer.Argument(help="Id of the request, as its response names it.")],
    up: Annotated[bool, typer.Option("--up/--down", help="Whether the answer was good.")],
    as_json: AsJson = False,
) -> None:
    """Log a thumb up or down for an answer, now or later. Of several the last counts."""
    from raglab.live.settings import open_online

    online = open_online(log)
    online.thumbs(request, up)
    if not online.setup.weights.thumbs:
        say("The thumb is logged. RAGLAB_BANDIT_W_THUMBS is 0, so no reward changes.", err=True)
    show({"request": request, "thumb": "up" if up else "down"}, as_json=as_json)


def _until_interrupted() -> None:
    from threading import Event

    Event().wait()


COMMANDS = (
    (evaluate_log, "raglab evaluate-log log.csv --target uniform --estimators snips,dr"),
    (metrics, "raglab metrics out/index --out out/raglab.prom"),
    (feedback, "raglab feedback out/index 4f0c2d --up"),
)
