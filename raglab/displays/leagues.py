"""Display of the league (shore): one table's paired difference per cell, interval and verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from raglab.displays import canvas
from raglab.displays.display import FrameDisplay, Shown
from raglab.displays.tables import estimate_cells

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

NEEDED = (
    "table",
    "cell",
    "metric",
    "higher_is_better",
    "n",
    "reference",
    "difference",
    "low",
    "high",
    "verdict",
)
# how cells of the pooled rows begin, as `is_pooled` of the league has them
POOLED = r"all(?:$|, | in )"
MARKS: dict[str, Style] = {
    "ahead": {"marker": ">", "color": canvas.BLUE},
    "level": {"marker": "o", "color": canvas.GREY, "markerfacecolor": "white"},
    "behind": {"marker": "<", "color": canvas.VERMILLION},
}
# that can be bought with each other, as the league has them
RATES = ("hallucination rate", "error rate")
NONE_JUDGED = "No cell is judged: the notes of the rows say why."
MOST_DRAWN = 60  # cells of the figure, without pooled rows
MOST_SHOWN = 120  # rows of the table below the figure
LONGEST = 52  # characters of a cell or a reference
RIGHT = 1.12  # where numbers of answers end, in widths of a panel


class PanelCells(Protocol):
    """What `league_table` returns, as far as it is drawn."""

    def frame(self) -> pd.DataFrame:
        """Rows of cells and metrics."""


@dataclass(eq=False, repr=False)
class LeagueDisplay(FrameDisplay):
    """Differences of the cells of one table, a panel a metric.

    Right of 0 is better for raglab, whatever the metric.

    Every row that has an interval is drawn, in the colour of its own verdict. A cell of which a
    rate is ahead and the other behind is called a trade. Of more than 60 cells those of most
    answers are drawn, which the axis says.

    Attributes:
      rows: of `League.frame`, pooled rows last; `gain` with its ends is the difference, turned
        where lower is better.
    """

    @classmethod
    def from_league(
        cls,
        league: PanelCells | pd.DataFrame,
        *,
        table: str | None = None,
        name: str | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        **style: Any,  # noqa: ANN401 - of the marks
    ) -> Self:
        """Display of one table of a league.

        Args:
          league: of `league_table`, or its frame.
          table: which; not needed where there is one.
          name: drawn in place of that of the table.
          ax: an axis a metric, or one whose place they take.
          **style: of the marks, in matplotlib's words.

        Raises:
          ValueError: a missing column, no such table, or several and none is named.

        Example: `LeagueDisplay.from_league(league_table("data/league"), table="dba")`.
        """
        import pandas as pd

        rows = league if isinstance(league, pd.DataFrame) else league.frame()
        if absent := [column for column in NEEDED if column not in rows]:
            msg = (
                f"league must have rows of {', '.join(NEEDED)}, got no {', '.join(absent)}; use "
                "league_table's."
            )
            raise ValueError(msg)
        tables = list(dict.fromkeys(rows["table"]))
        table = tables[0] if table is None and len(tables) == 1 else table
        if table not in tables:
            msg = (
                f"table must be one of {', '.join(tables) or 'none, for there is no row'}, got "
                f"{table!r}; name it."
            )
            raise ValueError(msg)
        rows = rows[rows["table"] == table]
        rows = rows.assign(is_pooled=rows["cell"].str.match(POOLED)).sort_values(
            "is_pooled", kind="stable"
        )
        sign = np.where(rows["higher_is_better"], 1.0, -1.0)
        low, high = np.sort([sign * rows["low"], sign * rows["high"]], axis=0)
        rows = rows.assign(gain=sign * rows["difference"], gain_low=low, gain_high=high)
        return cls(rows.reset_index(drop=True), name=name).plot(ax, **style)

    def _axes(self, ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
        n = self.rows["metric"].nunique()
        return canvas.panels(
            ax, 1, n, (3.6 + 3.3 * n, 1.6 + 0.21 * self._drawn()["cell"].nunique())
        )

    def _drawn(self) -> pd.DataFrame:
        """Rows of the pooled cells, and of the cells of most answers, in their order."""
        cells = self.rows[~self.rows["is_pooled"]].groupby("cell", sort=False)["n"].max()
        drawn = cells.sort_values(ascending=False, kind="stable").index[:MOST_DRAWN]
        return self.rows[self.rows["is_pooled"] | self.rows["cell"].isin(drawn)]

    def _draw(self, style: Style) -> list[Any]:
        drawn = self._drawn()
        cells = drawn.drop_duplicates("cell")
        trades = _trades(drawn)
        names = [
            f"{canvas.literal_text(str(cell), LONGEST)}{' (trade)' * (cell in trades)}"
            for cell in cells["cell"]
        ]
        for on, (metric, rows) in zip(self.axes_, drawn.groupby("metric", sort=False), strict=True):
            self._draw_marks(
                on, rows, -rows["cell"].map(list(cells["cell"]).index).to_numpy(np.float64), style
            )
            canvas.name_rows(on, names if on is self.ax_ else [""] * len(names))
            canvas.limit_ticks(on)
            # an axis of differences without one would mislead
            if not rows["verdict"].isin(list(MARKS)).any():
                on.set_xticks([])
                on.text(
                    0.5,
                    0.5,
                    NONE_JUDGED,
                    transform=on.transAxes,
                    ha="center",
                    va="center",
                    fontsize=8,
                )
            on.axvline(0.0, **canvas.TARGET)
            if cells["is_pooled"].any():
                on.axhline(
                    0.5 - float((~cells["is_pooled"]).sum()), color=canvas.SILVER, linewidth=0.8
                )
            named = " or ".join(filter(None, rows["reference"].unique())) or "the reference"
            reference = canvas.literal_text(named, LONGEST)
            left, right = (
                ("raglab", reference) if rows["higher_is_better"].all() else (reference, "raglab")
            )
            on.set_xlabel(
                f"{metric} of {left}\nless that of {right}\n(right is better)", fontsize=8
            )
            on.set_title(canvas.literal_text(str(metric), LONGEST), fontsize=9, loc="left")
        for text in np.array(self.ax_.get_yticklabels())[cells["is_pooled"]]:
            text.set_fontweight("bold")
        self.ax_.set_ylabel(self._cell_label(), fontsize=9)
        marks = [marks for on in self.axes_ for marks in on.containers]
        entries = {str(mark.get_label()): mark for mark in marks}
        if entries:
            canvas.legend_over(self.figure_, list(entries.values()), list(entries), len(MARKS))
        return marks

    def _cell_label(self) -> str:
        """What the rows of the figure are, with the number of those that are not drawn."""
        label = canvas.literal_text(f"cell of {self.name_ or self.rows['table'][0]}", LONGEST)
        n = int(self.rows.loc[~self.rows["is_pooled"], "cell"].nunique())
        return (
            label
            if n <= MOST_DRAWN
            else f"{label}\n({MOST_DRAWN} of {n:,} cells, those of most answers)"
        )

    def _draw_marks(
        self, on: Axes, rows: pd.DataFrame, height: np.ndarray[Any, Any], style: Style
    ) -> None:
        """Marks of one metric by verdict, and the numbers of answers at the right."""
        for verdict, mark in MARKS.items():
            if (of := (rows["verdict"] == verdict).to_numpy()).any():
                value, low, high = (
                    rows.loc[of, ["gain", "gain_low", "gain_high"]].to_numpy(np.float64).T
                )
                canvas.draw_marks(
                    on, value, low, high, height[of], **{"label": verdict} | mark | style
                )
        look: Style = {"transform": on.get_yaxis_transform(), "fontsize": 7, "va": "center"}
        on.text(RIGHT, 0.9, "n", ha="right", style="italic", **look)
        for at, n, verdict in zip(height, rows["n"], rows["verdict"], strict=True):
            on.text(RIGHT, at, f"{n:,}", ha="right", **look)
            on.text(0.02, at, "" if verdict in MARKS else str(verdict), color=canvas.GREY, **look)

    def _shown(self) -> Shown:
        rows = self.rows
        gains = {
            "better by": estimate_cells(rows, "gain", "gain_", "+"),
            "than": rows["reference"].tolist(),
        }
        columns = {name: rows[name].tolist() for name in ("cell", "metric", "n")} | gains
        caption = (
            f"{self.name or rows['table'][0]}: raglab beside the reference, a row a cell and metric"
        )
        columns["verdict"] = rows["verdict"].tolist()
        return Shown(caption, columns, "the interval of the difference", MOST_SHOWN)


def _trades(rows: pd.DataFrame) -> set[str]:
    """Cells of which a rate is ahead, and the other behind."""
    rates = rows[rows["metric"].isin(RATES)]
    return {
        str(cell) for cell, of in rates.groupby("cell")["verdict"] if {"ahead", "behind"} <= set(of)
    }
