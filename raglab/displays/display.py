"""Base class of displays (shore): data to draw, shown in notebooks as a figure with its table.

In scikit-learn's manner `from_…` computes or takes values and draws them, `plot` draws them again
on any axes, and `frame` gives every number that is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from raglab.displays import canvas
from raglab.words.results import Result

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Figure, Style

MAX_TABLE_ROWS = 20  # of a shown table


@dataclass(eq=False, repr=False, kw_only=True)
class Display(Result):
    """Data, how it is drawn (`_draw`), each number drawn (`frame`), its text (`_summary`).

    Attributes:
      name: drawn in the legend or title.
      ax_: axes of the first panel, after `plot`.
      axes_: axes of every panel, after `plot`.
      figure_: figure of these axes, after `plot`.
      lines_: artists that the style applies to, after `plot`.
      name_: name that is drawn, after `plot`.
    """

    SIZE: ClassVar[tuple[float, float]] = (7.2, 4.2)  # of a new figure, inches
    PANELS: ClassVar[tuple[int, int]] = (1, 1)  # rows and columns

    name: str | None = None
    ax_: Axes = field(init=False)
    axes_: Sequence[Axes] = field(init=False)
    figure_: Figure = field(init=False)
    lines_: list[Any] = field(init=False)
    name_: str | None = field(init=False)

    # a style
    def plot(
        self,
        ax: Axes | Sequence[Axes] | None = None,
        name: str | None = None,
        width: float | None = None,
        **style: Any,  # noqa: ANN401
    ) -> Self:
        """Draw on axes, or on those of a new figure; every `from_…` takes these as `**drawing`.

        Args:
          ax: as many axes as there are panels, or one of a grid, whose place they take.
          name: drawn in the legend or title; the first one is also the name of the display.
          width: of a new figure, inches: 3.4 for a column of a page, whose panels stand below each
            other and whose legends are short.
          style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: another number of axes.
        """
        self.name = self.name or name
        self.name_ = name or self.name
        n_rows, n_columns = self._grid
        self.axes_ = canvas.panels(ax, n_rows, n_columns, self._size, width)
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole_figure(self.ax_)
        self.lines_ = self._draw(style)
        for axes in self.axes_:
            canvas.fit(axes)
        return self

    @property
    def _grid(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        return self.PANELS

    @property
    def _size(self) -> tuple[float, float]:
        """Width and height of a new figure, inches."""
        return self.SIZE

    def _draw(self, style: Style) -> list[Any]:
        """Draw on `axes_`; returns what the style went to."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        if not hasattr(self, "figure_"):  # made of its data, and never drawn
            self.plot()
        return canvas.image(self.figure_, repr(self)) + super()._repr_html_()


@dataclass(eq=False, repr=False)
class FrameDisplay(Display):
    """Display whose data are rows of a frame, all of which are drawn.

    Attributes:
      rows: frame of the numbers that are drawn.
    """

    TABLE: ClassVar = "rows"

    rows: pd.DataFrame


def check(is_kept: object, rule: str, broken_value: object) -> None:
    """Refuse what breaks a rule of a display.

    Raises:
      ValueError: the rule, and the value that breaks it.
    """
    if not is_kept:
        msg = f"{rule}, got {broken_value}."
        raise ValueError(msg)


def joined_panels(panel_frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows of several panels below each other, their column `panel` first."""
    import pandas as pd

    rows = pd.concat(panel_frames, ignore_index=True)
    rows.insert(0, "panel", rows.pop("panel"))
    return rows


def check_rows(argument_name: str, frame: pd.DataFrame, needed_columns: Sequence[str] = ()) -> None:
    """Refuse a frame without rows, or without one of some columns."""
    missing_columns = [column_name for column_name in needed_columns if column_name not in frame]
    problem = f"{', '.join(missing_columns)} missing" if missing_columns else "no row"
    check(
        len(frame) and not missing_columns,
        f"{argument_name} must have rows of {', '.join(needed_columns)}",
        problem,
    )


# columns, or rows
def spaced_rows(columns: Any, max_rows: int = MAX_TABLE_ROWS) -> dict[str, pd.DataFrame]:  # noqa: ANN401
    """Table of a notebook, by its title: some rows at most, evenly spaced.

    Args:
      columns: head -> cells, numbers or texts, all of one length; or a list of rows by head.
    """
    import pandas as pd

    table_frame = pd.DataFrame(columns)
    row_numbers = canvas.spaced_places(len(table_frame), max_rows)
    return {
        f"{len(row_numbers)} of {len(table_frame):,} rows of frame()": table_frame.iloc[row_numbers]
    }
