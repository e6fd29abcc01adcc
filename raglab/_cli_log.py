"""The command about another policy's value: `evaluate-log`."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raglab._cli import AsJson, records, refusals, written

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from raglab.off_policy import Overlap

OPEN = 4


def evaluate_log(
    log: Annotated[
        Path,
        typer.Argument(
            help="CSV or Parquet, a row a round: action, reward, propensity, optional q_<arm>, optional p_<arm> (the "
            "probability of every arm); or an index whose questions a bandit answered, or its log, a .sqlite."
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
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """What another policy would have earned, from the log of this one, and whether the log can say so."""
    from raglab.off_policy import ESTIMATORS, estimate, overlap

    with refusals():
        rounds = _live(log) if log.is_dir() or log.suffix == ".sqlite" else _read(log)
        names = tuple(name.strip() for part in estimators or () for name in part.split(",")) or ESTIMATORS
        aim = _target(target, rounds, arm)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table = estimate(
                rounds, aim, names, seed, level=level, interval=interval, clip=clip, switch=switch, session=session
            )
        seen = overlap(rounds, aim, level=level, session=session)
        said = [str(one.message) for one in caught]
        written(table, out)
        notes = {name: note for name, note in table.attrs["notes"].items() if note}
        if as_json:
            parts = {
                "estimates": records(table),
                "overlap": _finite(seen._asdict()),
                "notes": notes,
                "warnings": said,
            }
            typer.echo(json.dumps(parts, ensure_ascii=False, indent=2))
        else:
            typer.echo("\n".join(_lines(table, seen, notes, level)))
            for text in said:
                typer.echo(f"warning: {text}", err=True)
    if (table["status"] == "none").all():
        raise typer.Exit(OPEN)


def _lines(table: pd.DataFrame, seen: Overlap, notes: dict[str, str], level: float) -> list[str]:
    """Table, overlap and reasons, for people."""
    held = (
        f"overlap: {seen.status} · {seen.n} rounds worth {seen.ess:.1f} · largest weight {seen.max_weight:.3g} · "
        f"mean weight {seen.mean_weight:.3f} ({level:.0%} interval {seen.mean_weight_low:.3f} to "
        f"{seen.mean_weight_high:.3f}; 1 is expected)"
    )
    lines = [table.round(4).to_string(index=False), "", held]
    for note in dict.fromkeys(notes.values()):
        lines += [f"{', '.join(name for name in notes if notes[name] == note)}: {note}"]
    return lines


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(item, float) and not math.isfinite(item) else item for key, item in row.items()}


def _read(path: Path) -> pd.DataFrame:
    """Table of a CSV or Parquet file."""
    import pandas as pd

    if not path.is_file():
        msg = f"{path} must be a CSV or Parquet file, got none there; check the path."
        raise ValueError(msg)
    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (ValueError, OSError) as error:
        msg = f"{path} must be a whole CSV or Parquet file, got {' '.join(str(error).split())}; write it again."
        raise ValueError(msg) from None


def _live(place: Path) -> pd.DataFrame:
    """Rounds of a bandit at work whose reward has come."""
    from raglab.lab.settings import opened

    frame = opened(place).frame()
    came = frame.dropna(subset=["reward"]).reset_index(drop=True)
    if len(came) < len(frame):
        typer.echo(f"{len(frame) - len(came)} of {len(frame)} rounds have no reward yet and are left out", err=True)
    return came


def _target(stated: str, rounds: pd.DataFrame, stated_arms: list[str] | None) -> pd.DataFrame:
    """Target with the arms as columns, [T, A]."""
    import numpy as np
    import pandas as pd

    if stated != "uniform" and not stated.startswith("best:"):
        given = _read(Path(stated))
        given.columns = pd.Index(_whole([str(name) for name in given.columns]))
        return given if len(given) != 1 else given.loc[given.index.repeat(len(rounds))]
    arms = _whole(stated_arms) if stated_arms else _arms(rounds)
    there = _open(rounds, arms)
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


def _open(rounds: pd.DataFrame, arms: list[Any]) -> NDArray[np.bool_]:
    """Arms that each round could take, [T, A]: all, unless p_<arm> tells and the log is not of a fixed choice."""
    import numpy as np

    if _known(rounds) != [str(arm) for arm in arms]:
        return np.ones((len(rounds), len(arms)), dtype=np.bool_)
    share = rounds[[f"p_{arm}" for arm in arms]].to_numpy(np.float64)
    return share > 0.0 if (share < 1.0).all(axis=1).any() else np.ones(share.shape, dtype=np.bool_)


def _known(rounds: pd.DataFrame) -> list[str]:
    """Arms of the columns p_<arm>, where these are the probabilities of all of them; else none."""
    import numpy as np

    names = [str(name) for name in rounds.columns if str(name).startswith("p_")]
    share = rounds[names]
    if not names or not all(kind.kind in "fi" for kind in share.dtypes):
        return []
    sums = share.to_numpy(np.float64).sum(axis=1)
    return [name.removeprefix("p_") for name in names] if bool((np.abs(sums - 1.0) <= 1e-6).all()) else []


def _arms(rounds: pd.DataFrame) -> list[Any]:
    """Arms of a log: of p_<arm>, else of its reward model, else 0 to the largest action, else the names, sorted."""
    if known := _known(rounds):
        return _whole(known)
    if modelled := [str(name).removeprefix("q_") for name in rounds.columns if str(name).startswith("q_")]:
        return _whole(modelled)
    if "action" not in rounds.columns:
        msg = f"a log must have a column action, got {list(rounds.columns)}."
        raise ValueError(msg)
    seen = rounds["action"].dropna().unique().tolist()
    numbers = all(isinstance(one, int | float) for one in seen)
    return list(range(int(max(seen)) + 1)) if numbers and seen else sorted(map(str, seen))


def _whole(names: list[str]) -> list[Any]:
    """Names as whole numbers where all are, as a log in a file has them."""
    return [int(name) for name in names] if all(name.isdecimal() for name in names) else names


COMMANDS = ((evaluate_log, "raglab evaluate-log log.csv --target uniform --estimators snips,dr"),)
