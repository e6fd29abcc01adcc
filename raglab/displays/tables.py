"""Tables (shore): number columns with counts and intervals, alike in displays and the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import metrics
from raglab.words.canonical import percent
from raglab.words.html_display import Cell
from raglab.words.results import DASH, cell
from raglab.words.results import value_text as number_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DASH", "cell", "number_text"]
LONGEST_TEXT = 300


class ReportTable(NamedTuple):
    """Rows of cells under a head, with a caption above."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kind: str = "table"


def column_table(caption: str, columns: Mapping[str, Any]) -> ReportTable:
    """Table of columns, all of one length.

    Args:
      columns: head -> cells, numbers or texts.
    """
    cells = [
        [cell(cut_text(value) if isinstance(value, str) else value) for value in values]
        for values in columns.values()
    ]
    return ReportTable(caption, list(columns), list(zip(*cells, strict=True)))


def cut_text(text: str) -> str:
    """Text in one line, cut where it is long; controls shown as blanks."""
    line = "".join(sign if sign.isprintable() else " " for sign in text)
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"


def interval(low: float, high: float) -> str:
    """Interval of a share in percent."""
    return DASH if np.isnan(low) else f"{100 * low:.1f} % to {100 * high:.1f} %"


def number_cell(text: str, small: str = "") -> Cell:
    """Number that is already text."""
    return Cell(text, small, "number")


def percent_cells(shares: Iterable[float]) -> list[Cell]:
    """Shares in percent."""
    return [number_cell(percent(share)) for share in shares]


def share_cell(k: int, n: int) -> Cell:
    """Rate of k in n with its counts and 95 % interval."""
    low, high = metrics.clopper_pearson(k, n)
    return number_cell(
        percent(k / n if n else float("nan")), f"{k}/{n}; {interval(float(low), float(high))}"
    )


def rate_cells(frame: pd.DataFrame, rate: str = "rate", prefix: str = "") -> list[Cell]:
    """Rates of a frame, with their counts and intervals.

    Args:
      prefix: of the columns `k`, `n`, `low` and `high`.
    """
    columns = (frame[rate], *(frame[f"{prefix}{end}"] for end in ("k", "n", "low", "high")))
    return [
        number_cell(percent(value), f"{k}/{n}; {interval(low, high)}")
        for value, k, n, low, high in zip(*columns, strict=True)
    ]


def estimate_cell(value: float, low: float, high: float, sign: str = "") -> Cell:
    """Number with its interval, to three decimals; a dash where there is none."""
    if np.isnan(value):
        return number_cell(DASH)
    return number_cell(
        f"{value:{sign}.3f}", DASH if np.isnan(low) else f"{low:{sign}.3f} to {high:{sign}.3f}"
    )


def estimate_cells(frame: pd.DataFrame, name: str, prefix: str = "", sign: str = "") -> list[Cell]:
    """Numbers of a frame with their intervals.

    Args:
      prefix: of the columns `low` and `high`.
    """
    rows = frame[[name, f"{prefix}low", f"{prefix}high"]].to_numpy(dtype=np.float64)
    return [estimate_cell(value, low, high, sign) for value, low, high in rows]


def interval_cells(frame: pd.DataFrame, name: str) -> list[Cell]:
    """Shares of a frame in percent, with their columns `low` and `high`."""
    rows = frame[[name, "low", "high"]].to_numpy(dtype=np.float64)
    return [number_cell(percent(value), interval(low, high)) for value, low, high in rows]


def frame_table(caption: str, frame: pd.DataFrame) -> ReportTable:
    """Any frame as it is."""
    return column_table(caption, {cut_text(str(name)): frame[name] for name in frame})
