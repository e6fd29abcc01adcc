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
from raglab.cli.experiments import EXIT_OPEN
from raglab.values import BoolArray

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


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
    is_live = "://" in log or Path(log).is_dir() or Path(log).suffix == ".sqlite"
    logged_rounds = _live(log) if is_live else _read_table(Path(log))
    # A URL is no file that --out could write over.
    keep_inputs(out, None if "://" in log else log, target)
    estimator_names = tuple(
        estimator_name.strip()
        for estimator_part in estimators or ()
        for estimator_name in estimator_part.split(",")
    )
    target_policy = _target_frame(target, logged_rounds, arm)
    # Caught, so that warnings follow the table that they are about, and stand in the JSON.
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        estimate_table = estimate(
            logged_rounds,
            target_policy,
            estimator_names or ESTIMATORS,
            seed,
            level=level,
            interval=interval,
            clip=clip,
            switch=switch,
            session=session,
        )
    log_overlap = overlap(logged_rounds, target_policy, level=level, session=session)
    warning_texts = [str(warning.message) for warning in caught_warnings]
    write_csv(estimate_table, out)
    estimator_notes = {
        estimator_name: estimator_note
        for estimator_name, estimator_note in estimate_table.attrs["notes"].items()
        if estimator_note
    }
    if as_json:
        evaluation_record = {
            "estimates": json_records(estimate_table),
            "overlap": json_record(log_overlap._asdict()),
            "notes": estimator_notes,
            "warnings": warning_texts,
        }
        say_json(evaluation_record, indent=2)
    else:
        say(table_text(estimate_table) + "\n")
        show(log_overlap._asdict(), as_json=False)
        say_notes(
            f"{estimator_name}: {estimator_note}"
            for estimator_name, estimator_note in estimator_notes.items()
        )
        say_notes((f"warning: {warning_text}" for warning_text in warning_texts), err=True)
    # Only where no estimator could say anything: one number is an answer.
    if (estimate_table["status"] == "none").all():
        raise typer.Exit(EXIT_OPEN)


def _read_table(path: Path) -> pd.DataFrame:
    """Table of a CSV, TSV or Parquet file."""
    from raglab.store.csv_tables import csv_frame
    from raglab.store.trace_files import parquet_frame

    return parquet_frame(path) if path.suffix == ".parquet" else csv_frame(path)


def _live(log_place: str) -> pd.DataFrame:
    """Rounds of a bandit at work whose reward has come."""
    from raglab.live.settings import open_online

    online_frame = open_online(log_place).frame()
    rewarded_rounds = online_frame.dropna(subset=["reward"]).reset_index(drop=True)
    if len(rewarded_rounds) < len(online_frame):
        n_missing = len(online_frame) - len(rewarded_rounds)
        say(
            f"{n_missing} of {len(online_frame)} rounds have no reward yet and are left out",
            err=True,
        )
    return rewarded_rounds


def _target_frame(
    target_text: str, rounds: pd.DataFrame, stated_arms: list[str] | None
) -> pd.DataFrame:
    """Target with the arms as columns, [T, A]."""
    import numpy as np
    import pandas as pd

    if target_text != "uniform" and not target_text.startswith("best:"):
        target_table = _read_table(Path(target_text))
        target_table.columns = pd.Index(
            _whole_numbers([str(column_name) for column_name in target_table.columns])
        )
        return (
            target_table
            if len(target_table) != 1
            else target_table.loc[target_table.index.repeat(len(rounds))]
        )
    arm_names = _whole_numbers(stated_arms) if stated_arms else _logged_arms(rounds)
    is_available = _available_arms(rounds, arm_names)
    arm_shares = is_available / is_available.sum(axis=1, keepdims=True)
    if target_text != "uniform":
        wanted_arm = target_text.removeprefix("best:")
        is_wanted = np.array([str(arm) == wanted_arm for arm in arm_names])
        n_closed = int((~is_available[:, is_wanted]).sum())
        if n_closed or not is_wanted.any():
            arm_text = f"{wanted_arm!r}" + f", closed in {n_closed} of {len(rounds)} rounds" * bool(
                n_closed
            )
            message = f"best:ARM must be of {arm_names} and open in every round, got {arm_text}."
            raise ValueError(message)
        arm_shares = np.broadcast_to(is_wanted, is_available.shape).astype(np.float64)
    return pd.DataFrame(arm_shares, columns=arm_names)


def _available_arms(rounds: pd.DataFrame, arm_names: list[Any]) -> BoolArray:
    """Arms that each round could take, [T, A].

    All, unless p_<arm> tells and the log is not of a fixed choice.
    """
    import numpy as np

    if _probability_arms(rounds) != [str(arm) for arm in arm_names]:
        return np.ones((len(rounds), len(arm_names)), dtype=np.bool_)
    arm_probabilities = rounds[[f"p_{arm}" for arm in arm_names]].to_numpy(np.float64)
    return (
        arm_probabilities > 0.0
        if (arm_probabilities < 1.0).all(axis=1).any()
        else np.ones(arm_probabilities.shape, dtype=np.bool_)
    )


def _probability_arms(rounds: pd.DataFrame) -> list[str]:
    """Arms of the columns p_<arm>, where these are the probabilities of all of them; else none."""
    import numpy as np

    columns = [str(name) for name in rounds.columns if str(name).startswith("p_")]
    try:
        probability_sums = rounds[columns].to_numpy(np.float64).sum(axis=1)
    except ValueError:  # texts
        return []
    is_complete = bool(columns) and bool((np.abs(probability_sums - 1.0) <= 1e-6).all())
    return [name.removeprefix("p_") for name in columns] if is_complete else []


def _logged_arms(rounds: pd.DataFrame) -> list[Any]:
    """Arms of a log.

    Of p_<arm>, else of its reward model, else 0 to the largest action, else the names, sorted.
    """
    modelled_arms = [
        str(column_name)[2:] for column_name in rounds.columns if str(column_name).startswith("q_")
    ]
    if known_arms := _probability_arms(rounds) or modelled_arms:
        return _whole_numbers(known_arms)
    if "action" not in rounds.columns:
        message = f"a log must have a column action, got {list(rounds.columns)}."
        raise ValueError(message)
    logged_actions = rounds["action"].dropna().unique().tolist()
    are_numbers = all(isinstance(action, int | float) for action in logged_actions)
    return (
        list(range(int(max(logged_actions)) + 1))
        if are_numbers and logged_actions
        else sorted(map(str, logged_actions))
    )


def _whole_numbers(arm_names: list[str]) -> list[Any]:
    """Names as whole numbers where all are, as a log in a file has them."""
    return (
        [int(arm_name) for arm_name in arm_names]
        if all(arm_name.isdecimal() for arm_name in arm_names)
        else arm_names
    )


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
    measure_arms, measure_rates = _measured(log, last)
    metric_tables = {
        table_name: measure_table()
        for table_name, measure_table in (("arms", measure_arms), ("rates", measure_rates))
        if measure_table is not None
    }
    if as_json:
        single_table = next(iter(metric_tables.values())) if len(metric_tables) == 1 else None
        records = {
            table_name: json_records(table.astype(object))
            for table_name, table in metric_tables.items()
        }
        show(
            single_table if single_table is not None and measure_arms is not None else records,
            as_json=True,
        )
    for table in () if as_json else metric_tables.values():
        say(table_text(table))
    if out is not None:
        prometheus.write_metrics(metric_tables.get("arms"), out, rates=metric_tables.get("rates"))
        say(f"wrote {out}", err=True)
    if serve is not None:
        metrics_server = prometheus.serve(measure_arms, serve, rates=measure_rates)
        say(
            f"http://{prometheus.LOCALHOST}:{metrics_server.port}/metrics; end with Ctrl-C",
            err=True,
        )
        try:
            _until_interrupted()
        finally:
            metrics_server.close()


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

    measure_arms = None
    open_error = None
    try:
        measure_arms = open_online(log).arms_frame
    except InputError as error:
        open_error = error
    try:
        audit_log = open_audit(log)
        audit_log.pack()  # opens it
    except InputError:
        if open_error is not None:
            raise open_error from None
        return measure_arms, None
    return measure_arms, lambda: live_rates(audit_log, last=last)


def feedback(
    log: BanditLogPlace,
    request: RequestId,
    up: Annotated[bool, typer.Option("--up/--down", help="Whether the answer was good.")],
    as_json: AsJson = False,
) -> None:
    """Log a thumb up or down for an answer, now or later. Of several the last counts."""
    from raglab.live.settings import open_online

    online_bandit = open_online(log)
    online_bandit.thumbs(request, up)
    if not online_bandit.setup.weights.thumbs:
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
