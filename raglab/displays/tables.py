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
MAX_CELL_TEXT = 300


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
        [
            cell(cut_text(cell_value) if isinstance(cell_value, str) else cell_value)
            for cell_value in column_values
        ]
        for column_values in columns.values()
    ]
    return ReportTable(caption, list(columns), list(zip(*cells, strict=True)))


def cut_text(text: str) -> str:
    """Text in one line, cut where it is long; controls shown as blanks."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= MAX_CELL_TEXT else f"{line[: MAX_CELL_TEXT - 1]}…"


def interval(low: float, high: float) -> str:
    """Interval of a share in percent."""
    return DASH if np.isnan(low) else f"{100 * low:.1f} % to {100 * high:.1f} %"


def number_cell(number_text: str, small_print: str = "") -> Cell:
    """Number that is already text."""
    return Cell(number_text, small_print, "number")


def percent_cells(shares: Iterable[float]) -> list[Cell]:
    """Shares in percent."""
    return [number_cell(percent(one_share)) for one_share in shares]


def share_cell(numerator: int, denominator: int) -> Cell:
    """Rate of k in n with its counts and 95 % interval."""
    lower_bound, upper_bound = metrics.clopper_pearson(numerator, denominator)
    return number_cell(
        percent(numerator / denominator if denominator else float("nan")),
        f"{numerator}/{denominator}; {interval(float(lower_bound), float(upper_bound))}",
    )


def rate_cells(frame: pd.DataFrame, rate: str = "rate", prefix: str = "") -> list[Cell]:
    """Rates of a frame, with their counts and intervals.

    Args:
      prefix: of the columns `k`, `n`, `low` and `high`.
    """
    columns = (
        frame[rate],
        *(frame[f"{prefix}{column_suffix}"] for column_suffix in ("k", "n", "low", "high")),
    )
    return [
        number_cell(
            percent(value), f"{numerator}/{denominator}; {interval(lower_bound, upper_bound)}"
        )
        for value, numerator, denominator, lower_bound, upper_bound in zip(*columns, strict=True)
    ]


def estimate_cell(value: float, low: float, high: float, sign: str = "") -> Cell:
    """Number with its interval, to three decimals; a dash where there is none."""
    if np.isnan(value):
        return number_cell(DASH)
    return number_cell(
        f"{value:{sign}.3f}", DASH if np.isnan(low) else f"{low:{sign}.3f} to {high:{sign}.3f}"
    )


def estimate_cells(
    frame: pd.DataFrame, column_name: str, column_prefix: str = "", sign: str = ""
) -> list[Cell]:
    """Numbers of a frame with their intervals.

    Args:
      column_prefix: of the columns `low` and `high`.
    """
    rows = frame[[column_name, f"{column_prefix}low", f"{column_prefix}high"]].to_numpy(
        dtype=np.float64
    )
    return [
        estimate_cell(estimate, lower_bound, upper_bound, sign)
        for estimate, lower_bound, upper_bound in rows
    ]


def interval_cells(frame: pd.DataFrame, column_name: str) -> list[Cell]:
    """Shares of a frame in percent, with their columns `low` and `high`."""
    rows = frame[[column_name, "low", "high"]].to_numpy(dtype=np.float64)
    return [
        number_cell(percent(share), interval(lower_bound, upper_bound))
        for share, lower_bound, upper_bound in rows
    ]


def frame_table(caption: str, frame: pd.DataFrame) -> ReportTable:
    """Any frame as it is."""
    return column_table(caption, {cut_text(str(name)): frame[name] for name in frame})
