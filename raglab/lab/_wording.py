"""Numbers of a report in words: cells, tables, blocks and sentences; a missing number is a dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raglab import metrics
from raglab.lab import _findings as findings
from raglab.lab._findings import Reach, Verdict
from raglab.store.policies import Policy

if TYPE_CHECKING:
    import pandas as pd

DASH = "–"
LONGEST_TEXT = 300


class Cell(NamedTuple):
    """Cell of a table: its text, smaller text below it, and how it is set off."""

    text: str
    small: str = ""
    mark: Literal["", "good", "bad", "number"] = ""


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


def certifiable_sentences(
    n_ok: int, wrong: int, n_answered: int, best: tuple[Reach, float], targets: Mapping[str, float]
) -> list[str]:
    """What a set of this size could certify at all, at confidence 1 − delta."""
    target = targets["hallucination_rate"]
    sure = f"{100 * (1 - findings.DELTA):g} %"
    size = (
        f"A hallucination rate of {100 * target:g} % needs {findings.cases_needed(target)} answered cases without an "
        f"error to be certified at {sure} confidence; "
        f"10 % needs {findings.cases_needed(0.10)}. You have {n_answered} answered"
    )
    if n_answered:
        size += (
            f": even without an error they would certify about {percent(findings.least_certifiable(n_answered))}; with "
            f"{wrong} wrong the exact upper bound is {percent(findings.upper_bound(wrong, n_answered))}"
        )
    size += "."
    if not n_ok:
        return [size, "No case here is labelled ok, so nothing can be certified."]
    reach, bound = best
    at_most = (
        f"The set holds {n_ok} answerable cases: were they all answered rightly and nothing else answered, the best "
        "target certifiable here would be about "
        f"{percent(findings.least_certifiable(n_ok))}."
    )
    if np.isnan(bound):
        return [size, at_most]
    with_signals = (
        f"With these signals it is about {percent(bound)} at best: {reach.signal} at or above "
        f"{number(reach.threshold)} answers {reach.answered} cases, "
        f"{reach.wrong} wrongly (the threshold is chosen on these cases, so the bound flatters)."
    )
    return [size, f"{at_most} {with_signals}"]


@cache
def unit_of(path: str) -> str:
    """Unit of a threshold, as its policy field describes it."""
    section, key = path.split(".")
    schema = Policy.model_json_schema()
    field = schema["$defs"][schema["properties"][section]["$ref"].rsplit("/", 1)[1]]["properties"][key]
    described = [field, *field.get("anyOf", ())]
    text = str(next((one["description"] for one in described if "description" in one), "count"))
    return text.split(",", maxsplit=1)[0].removeprefix("a ")
