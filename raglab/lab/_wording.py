"""Numbers of a report in words: cells, tables, blocks and sentences; a missing number is a dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raglab import metrics
from raglab.lab._findings import Reach, Verdict
from raglab.store.policies import Policy

if TYPE_CHECKING:
    import pandas as pd

DASH = "–"
LONGEST_TEXT = 300
Mark = Literal["", "good", "bad", "number"]


class Cell(NamedTuple):
    """Cell of a table: its text, smaller text below it, and how it is set off."""

    text: str
    small: str = ""
    mark: Mark = ""


class Table(NamedTuple):
    """Block of a report: rows of cells under a head, with a caption above."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kind: str = "table"


class Text(NamedTuple):
    """Block of a report: a paragraph; a warning is set off."""

    text: str
    warning: bool = False
    kind: str = "text"


class Picture(NamedTuple):
    """Block of a report: a figure as PNG in base64, its caption, and its name as a file."""

    name: str
    caption: str
    png: bytes
    base64: str
    kind: str = "picture"


Block = Table | Text | Picture


class Section(NamedTuple):
    """Headed part of a report."""

    title: str
    blocks: Sequence[Block]


def percent(value: float) -> str:
    """Share as a percentage; a dash where there is none."""
    return DASH if np.isnan(value) else f"{100 * value:.1f} %"


def number(value: Any) -> str:  # noqa: ANN401 - cell of any frame
    """Value of a frame as text: numbers to four digits, a dash where there is none."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return DASH if np.isnan(value) else f"{value:.4g}"
    return DASH if value is None else cut(str(value))


def cut(text: str) -> str:
    """Text in one line, cut where it is long; controls shown as blanks."""
    line = "".join(sign if sign.isprintable() else " " for sign in text)
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"


def interval(low: float, high: float) -> str:
    """Interval of a share in percent."""
    return DASH if np.isnan(low) else f"{100 * low:.1f} % to {100 * high:.1f} %"


def share_of(k: int, n: int) -> Cell:
    """Rate of k in n with its counts and 95 % interval."""
    low, high = metrics.clopper_pearson(k, n)
    return Cell(percent(k / n if n else float("nan")), f"{k}/{n}; {interval(float(low), float(high))}", "number")


def estimate(value: float, low: float, high: float, sign: str = "") -> Cell:
    """Number with its interval, to three decimals; a dash where there is none."""
    if np.isnan(value):
        return Cell(DASH, mark="number")
    return Cell(f"{value:{sign}.3f}", DASH if np.isnan(low) else f"{low:{sign}.3f} to {high:{sign}.3f}", "number")


def rates_table(table: pd.DataFrame) -> Table:
    """Policies × rates.

    Args:
      table: of `replay.sweep`, the policies' names as index.
    """
    rows = []
    for name, row in table.iterrows():
        cells = [share_of(int(row[f"{rate}_k"]), int(row[f"{rate}_n"])) for rate in metrics.RATES]
        rows.append([Cell(cut(str(name)), str(row["policy_id"])), *cells])
    return Table(
        "Rates of every policy: value, count of cases, exact 95 % interval. A dash is 0 of 0: it meets no target.",
        ["policy", *metrics.RATES],
        rows,
    )


def frame_table(caption: str, frame: pd.DataFrame) -> Table:
    """Any frame as it is."""
    rows = [
        [Cell(number(value), mark="number" if isinstance(value, int | float | np.number) else "") for value in row]
        for row in frame.itertuples(index=False)
    ]
    return Table(caption, [cut(str(column)) for column in frame.columns], rows)


def verdict_table(found: Sequence[Verdict]) -> Table:
    """Verdict on every target."""
    rows = [
        [
            Cell(f"{one.name} ≤ {100 * one.target:g} %"),
            Cell(one.says, mark="good" if one.says == "met" else "bad"),
            share_of(one.k, one.n),
        ]
        for one in found
    ]
    return Table("Targets, on the cases of this page.", ["target", "verdict", "observed (95 % interval)"], rows)


def verdict_sentence(name: str, found: Sequence[Verdict], *, can: bool) -> str:
    """What the verdicts come to, in words."""
    missed = [one for one in found if one.says != "met"]
    lead = f"{cut(name)} meets " + (
        "every target." if not missed else f"{len(found) - len(missed)} of {len(found)} targets."
    )
    if any(one.n == 0 for one in missed):
        lead += " A rate over 0 cases meets nothing."
    if not missed:
        return f"{lead} The intervals say how far that can be trusted on so few cases."
    if can:
        return f"{lead} Both can be met together: a single signal, or a policy that was tried, does so on its cases."
    return f"{lead} No threshold on one signal and no policy that was tried keeps all targets together."


def nearest_table(pairs: Sequence[tuple[Reach, Reach]], targets: Mapping[str, float]) -> Table:
    """Nearest that one threshold on one signal comes to the targets, in either direction."""
    rows = [
        [Cell(first.signal), *_reach(first, refusal=False), *_reach(second, refusal=True)] for first, second in pairs
    ]
    refusal, wrong = (f"{100 * targets[name]:g} %" for name in ("false_refusal_rate", "hallucination_rate"))
    head = ["signal", f"lowest hallucination_rate at false refusal ≤ {refusal}", "there, false refusal", "threshold"]
    head += [f"lowest false_refusal_rate at hallucination ≤ {wrong}", "there, hallucination", "threshold"]
    caption = (
        "Nearest reachable: answer at or above one threshold on one signal, refuse below it, never ask; exact over all "
        "thresholds, chosen on these very cases."
    )
    return Table(caption, head, rows)


def _reach(one: Reach, *, refusal: bool) -> list[Cell]:
    rates = [share_of(one.wrong, one.answered), share_of(one.refused, one.n_ok)]
    if not one.answered:
        return [Cell(DASH, "no threshold"), Cell(DASH), Cell(DASH)]
    return [*(rates[::-1] if refusal else rates), Cell(number(one.threshold), mark="number")]


@cache
def unit_of(path: str) -> str:
    """Unit of a threshold, as its policy field describes it."""
    section, key = path.split(".")
    schema = Policy.model_json_schema()
    field = schema["$defs"][schema["properties"][section]["$ref"].rsplit("/", 1)[1]]["properties"][key]
    described = [field, *field.get("anyOf", ())]
    text = str(next((one["description"] for one in described if "description" in one), "count"))
    return text.split(",", maxsplit=1)[0].removeprefix("a ")
