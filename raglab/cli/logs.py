"""Command line (shore): evaluate-log, explain, audit, metrics, feedback."""

from __future__ import annotations

import math
import warnings
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raglab.cli.common import (
    AsJson,
    Seed,
    json_records,
    keep_inputs,
    say,
    say_json,
    say_json_text,
    show,
    table_text,
    write_csv,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from raglab.audit.log import AuditLog
    from raglab.live.online_bandit import Online
    from raglab.off_policy import Overlap

OPEN, DAMAGED = 4, 5
MOST_FINDINGS = 100  # that are printed


def evaluate_log(
    log: Annotated[
        str,
        typer.Argument(
            help="CSV or Parquet, a row a round: action, reward, propensity, optional q_<arm>, optional p_<arm> (the "
            "probability of every arm); or an index whose questions a bandit answered, or its log: a .sqlite or a URL."
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            help="uniform, over the arms that a round could take where p_<arm> tells; best:ARM, always that arm; or a "
            "CSV or Parquet with a column of probabilities for each arm and a row a round, or one row for all.",
        ),
    ] = "uniform",
    estimators: Annotated[
        list[str] | None,
        typer.Option(
            "--estimators",
            "-e",
            help="Repeat, or part by commas: replay, ips, clipped_ips, snips, dm, dr, switch_dr; all where not given.",
        ),
    ] = None,
    session: Annotated[str | None, typer.Option(help="Column: its rounds count together in the intervals.")] = None,
    arm: Annotated[
        list[str] | None, typer.Option(help="Arm, in the order of action 0, 1, …; repeat. Those of the log if none.")
    ] = None,
    interval: Annotated[Literal["delta", "bootstrap"], typer.Option(help="How the intervals are made.")] = "delta",
    level: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    clip: Annotated[float | None, typer.Option(help="Largest weight of clipped_ips; the root of the rounds.")] = None,
    switch: Annotated[float | None, typer.Option(help="Largest weight of switch_dr; the root of the rounds.")] = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """What another policy would have earned, from the log of this one, and whether the log can say so."""
    from raglab.off_policy import ESTIMATORS, estimate, overlap

    live = "://" in log or Path(log).is_dir() or Path(log).suffix == ".sqlite"
    rounds = _live(log) if live else _read_table(Path(log))
    keep_inputs(out, None if "://" in log else log, target)
    names = tuple(name.strip() for part in estimators or () for name in part.split(",")) or ESTIMATORS
    aim = _target_frame(target, rounds, arm)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = estimate(
            rounds, aim, names, seed, level=level, interval=interval, clip=clip, switch=switch, session=session
        )
    seen = overlap(rounds, aim, level=level, session=session)
    said = [str(one.message) for one in caught]
    write_csv(table, out)
    notes = {name: note for name, note in table.attrs["notes"].items() if note}
    if as_json:
        parts = {
            "estimates": json_records(table),
            "overlap": _finite_row(seen._asdict()),
            "notes": notes,
            "warnings": said,
        }
        say_json(parts, indent=2)
    else:
        say("\n".join(_estimate_lines(table, seen, notes, level)))
        for text in said:
            say(f"warning: {text}", err=True)
    if (table["status"] == "none").all():
        raise typer.Exit(OPEN)


def _estimate_lines(table: pd.DataFrame, seen: Overlap, notes: dict[str, str], level: float) -> list[str]:
    """Table, overlap and reasons, for people."""
    held = (
        f"overlap: {seen.status} · {seen.n} rounds worth {seen.ess:.1f} · largest weight {seen.max_weight:.3g} · "
        f"mean weight {seen.mean_weight:.3f} ({level:.0%} interval {seen.mean_weight_low:.3f} to "
        f"{seen.mean_weight_high:.3f}; 1 is expected)"
    )
    lines = [table_text(table.round(4)), "", held]
    for note in dict.fromkeys(notes.values()):
        lines += [f"{', '.join(name for name in notes if notes[name] == note)}: {note}"]
    return lines


def _finite_row(row: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(item, float) and not math.isfinite(item) else item for key, item in row.items()}


def _read_table(path: Path) -> pd.DataFrame:
    """Table of a CSV or Parquet file."""
    import pandas as pd

    from raglab.store.parquet import OversizeError
    from raglab.store.traces import parquet_frame

    if not path.is_file():
        msg = f"{path} must be a CSV or Parquet file, got none there; check the path."
        raise ValueError(msg)
    try:
        return parquet_frame(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except OversizeError:
        raise
    except (ValueError, OSError) as error:
        came = " ".join(str(getattr(error, "strerror", None) or error).split())
        msg = f"{path} must be a whole CSV or Parquet file, got {came}; write it again."
        raise ValueError(msg) from None


def _live(place: str) -> pd.DataFrame:
    """Rounds of a bandit at work whose reward has come."""
    from raglab.live.settings import open_online

    frame = open_online(place).frame()
    came = frame.dropna(subset=["reward"]).reset_index(drop=True)
    if len(came) < len(frame):
        say(f"{len(frame) - len(came)} of {len(frame)} rounds have no reward yet and are left out", err=True)
    return came


def _target_frame(stated: str, rounds: pd.DataFrame, stated_arms: list[str] | None) -> pd.DataFrame:
    """Target with the arms as columns, [T, A]."""
    import numpy as np
    import pandas as pd

    if stated != "uniform" and not stated.startswith("best:"):
        given = _read_table(Path(stated))
        given.columns = pd.Index(_whole_numbers([str(name) for name in given.columns]))
        return given if len(given) != 1 else given.loc[given.index.repeat(len(rounds))]
    arms = _whole_numbers(stated_arms) if stated_arms else _logged_arms(rounds)
    there = _available_arms(rounds, arms)
    share = there / there.sum(axis=1, keepdims=True)
    if stated != "uniform":
        wanted = stated.removeprefix("best:")
        only = np.array([str(arm) == wanted for arm in arms])
        if not only.any():
            msg = f"best:ARM must name an arm, got {wanted!r}; there is {arms}; name others with --arm."
            raise ValueError(msg)
        closed = int((~there[:, only]).sum())
        if closed:
            msg = (
                f"best:ARM must be an arm that every round could take, got {wanted!r}, whose probability is 0 in "
                f"{closed} of {len(rounds)} rounds; keep the other rounds, or give the target as a file."
            )
            raise ValueError(msg)
        share = np.broadcast_to(only, there.shape).astype(np.float64)
    return pd.DataFrame(share, columns=arms)


def _available_arms(rounds: pd.DataFrame, arms: list[Any]) -> NDArray[np.bool_]:
    """Arms that each round could take, [T, A]: all, unless p_<arm> tells and the log is not of a fixed choice."""
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
    return [name.removeprefix("p_") for name in names] if bool((np.abs(sums - 1.0) <= 1e-6).all()) else []


def _logged_arms(rounds: pd.DataFrame) -> list[Any]:
    """Arms of a log: of p_<arm>, else of its reward model, else 0 to the largest action, else the names, sorted."""
    if known := _probability_arms(rounds):
        return _whole_numbers(known)
    if modelled := [str(name).removeprefix("q_") for name in rounds.columns if str(name).startswith("q_")]:
        return _whole_numbers(modelled)
    if "action" not in rounds.columns:
        msg = f"a log must have a column action, got {list(rounds.columns)}."
        raise ValueError(msg)
    seen = rounds["action"].dropna().unique().tolist()
    numbers = all(isinstance(one, int | float) for one in seen)
    return list(range(int(max(seen)) + 1)) if numbers and seen else sorted(map(str, seen))


def _whole_numbers(names: list[str]) -> list[Any]:
    """Names as whole numbers where all are, as a log in a file has them."""
    return [int(name) for name in names] if all(name.isdecimal() for name in names) else names


AuditLogPlace = Annotated[
    str | None,
    typer.Option("--log", "-l", help="Index, or its audit log: a file or a URL; RAGLAB_AUDIT_LOG where not given."),
]


def explain(
    request: Annotated[str, typer.Argument(help="Id of the request, as the response named it.")],
    log: AuditLogPlace = None,
    as_json: AsJson = False,
) -> None:
    """How an answer came about, rebuilt from the audit log alone; exit code 1 where the log does not add up.

    Its events are held against the log's hash chain; exit code 5 where all adds up, and they are not as written.
    """
    from raglab.audit.explanation import explain_request as explained

    said = explained(request, _open_audit_log(log))
    say_json_text(said.json()) if as_json else say(str(said))
    if said.damage:
        say("warning: the log was damaged or altered; `raglab audit --verify` names all of it", err=True)
    if not said.rebuilt or said.damage:
        raise typer.Exit(DAMAGED if said.rebuilt else 1)


def audit(
    log: AuditLogPlace = None,
    export: Annotated[Path | None, typer.Option(help="Folder for the tables as Parquet.")] = None,
    forget: Annotated[
        str | None,
        typer.Option(
            help="Blank questions and answers before a day such as 2026-01-31; `old`: before RAGLAB_AUDIT_KEEP_DAYS. "
            "Decisions and votes stay."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Hold the log, and the bandit's beside it, against the hash chain.")
    ] = False,
    head: Annotated[
        bool, typer.Option("--head", help="Print number and digest of the last event, to be kept elsewhere.")
    ] = False,
    head_was: Annotated[
        list[str] | None,
        typer.Option(help="Head that was kept, in quotes; --verify says whether a log still contains it. Repeat."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What was asked, filled in and learned: counts by day, and the default table; or whether the log is intact.

    Exit code 5 where --verify finds that a log was damaged or altered, does not contain a head, or has no chain yet.
    """
    from raglab.audit.explanation import days, defaults

    if (verify or head or head_was) and (export or forget):
        msg = "--verify, --head and --head-was must stand without --export and --forget; run them one after another."
        raise ValueError(msg)
    if verify or head_was:
        _verify_logs(log, head_was or [], as_json=as_json)
        return
    if head:
        _show_heads(log, as_json=as_json)
        return
    opened = _open_audit_log(log)
    told: dict[str, Any] = {}
    if forget is not None:
        told["forgotten"] = opened.forget(before=None if forget == "old" else _day(forget))
    if export is not None:
        told["files"] = [str(path) for path in opened.export(export)]
    by_day, rows = days(opened), defaults(opened)
    if as_json:
        show(told | {"days": json_records(by_day), "defaults": json_records(rows)}, as_json=True)
        return
    for name, value in told.items():
        say(f"{name}: {value if isinstance(value, int) else ' '.join(value)}")
    say(table_text(by_day) if len(by_day) else "no request so far")
    say(f"\ndefaults\n{table_text(rows.round(3))}" if len(rows) else "\nno default so far")


def _verify_logs(log: str | None, kept: list[str], *, as_json: bool) -> None:
    """Print what does not fit in the logs of a place.

    Raises:
      Exit: something does not.
    """
    from raglab.audit.log import AUDIT_REBUILDS
    from raglab.live.online_bandit import BANDIT_REBUILDS
    from raglab.live.settings import open_logs
    from raglab.store.log_chain import parse_head

    heads = [parse_head(text) for text in kept]
    logs = open_logs(log)
    said = [one.verify(AUDIT_REBUILDS + BANDIT_REBUILDS) for one in logs]
    where = {head: [one.shown for one in logs if one.contains(head)] for head in heads}
    if as_json:
        told = [one._asdict() | {"intact": one.intact, "head": one.head and str(one.head)} for one in said]
        records = [one | {"findings": [finding._asdict() for finding in one["findings"]]} for one in told]
        show({"logs": records, "heads": {str(head): places for head, places in where.items()}}, as_json=True)
    else:
        for one in said:
            first, *findings = str(one).splitlines()
            say("\n".join([first, *findings[:MOST_FINDINGS]]))
            if len(findings) > MOST_FINDINGS:
                say(f"and {len(findings) - MOST_FINDINGS} more")
        for head, places in where.items():
            say(f"head {head}: {f'in {places[0]}' if places else 'no log contains it'}")
    if not (all(one.intact for one in said) and all(where.values())):
        raise typer.Exit(DAMAGED)


def _show_heads(log: str | None, *, as_json: bool) -> None:
    from raglab.live.settings import open_logs

    heads = [(one.head(), one.shown) for one in open_logs(log)]
    if as_json:
        show([{"head": head and str(head), "place": place} for head, place in heads], as_json=True)
        return
    for head, place in heads:
        if head is None:
            say(f"no head yet, no event is chained: {place}", err=True)
        else:
            say(f"{head} {place}")


def _open_audit_log(log: str | None) -> AuditLog:
    """Audit log that is there, under the settings of the environment."""
    from raglab.live.settings import open_audit

    return open_audit(log)


def _day(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        msg = f"--forget must be a day such as 2026-01-31, or old, got {text!r:.80}; the day is in UTC."
        raise ValueError(msg) from None


BanditLogPlace = Annotated[
    str, typer.Argument(help="Index whose questions a bandit answered, or its log: a file or a URL.")
]


def metrics(
    log: BanditLogPlace,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write them for Prometheus as a text file.")] = None,
    serve: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve them to this machine on a port until interrupted; 0: any."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pulls, win rate, reward and latency of each arm that a bandit chooses from."""
    from raglab.live import prometheus

    keep_inputs(out, log)
    online = _online(log)
    table = online.arms_frame()
    show(table if as_json else table.round(4), as_json=as_json)
    if out is not None:
        prometheus.write_metrics(table, out)
        say(f"wrote {out}", err=True)
    if serve is not None:
        served = prometheus.serve(online.arms_frame, serve)
        say(f"http://{prometheus.LOCALHOST}:{served.port}/metrics; end with Ctrl-C", err=True)
        try:
            _until_interrupted()
        finally:
            served.close()


def feedback(
    log: BanditLogPlace,
    request: Annotated[str, typer.Argument(help="Id of the request, as the response named it.")],
    up: Annotated[bool, typer.Option("--up/--down", help="Whether the answer was good.")],
    as_json: AsJson = False,
) -> None:
    """Thumb up or down for an answer, now or later; of several the last counts."""
    online = _online(log)
    online.thumbs(request, up)
    if not online.setup.weights.thumbs:
        say("kept in the log; RAGLAB_BANDIT_W_THUMBS is 0, so it changes no reward", err=True)
    show({"request": request, "thumb": "up" if up else "down"}, as_json=as_json)


def _online(log: str) -> Online:
    """Bandit over a log that is there, under the settings of the environment."""
    from raglab.live.settings import open_online

    return open_online(log)


def _until_interrupted() -> None:
    from threading import Event

    Event().wait()


COMMANDS = (
    (evaluate_log, "raglab evaluate-log log.csv --target uniform --estimators snips,dr"),
    (explain, "raglab explain 4f0c2d --log out/index"),
    (audit, "raglab audit --log out/index --verify"),
    (metrics, "raglab metrics out/index --out out/raglab.prom"),
    (feedback, "raglab feedback out/index 4f0c2d --up"),
)
