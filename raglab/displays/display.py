"""Base class of displays (shore): data to draw, shown in notebooks as a figure with its table.

In scikit-learn's manner `from_…` computes or takes values and draws them, `plot` draws them again
on any axes, and `frame` gives every number that is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from raglab.displays import canvas
from raglab.displays.tables import column_table
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Figure, Style

MOST_ROWS = 20  # of a shown table
_ENDLESS = re.compile(r"-?\binf\b")


class Shown(NamedTuple):
    """Table below the figure of a display.

    caption: also read out instead of the figure. columns: head -> numbers, texts or cells.
    intervals: what the intervals of the cells are. most: rows at most.
    """

    caption: str
    columns: Mapping[str, Any]
    intervals: str = "none"
    most: int = MOST_ROWS


@dataclass(eq=False, repr=False, kw_only=True)
class Display:
    """Data, how it is drawn (`_draw`), each number drawn (`frame`), notebook view (`_shown`).

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
        **style: Any,  # noqa: ANN401
    ) -> Self:
        """Draw on axes, or on those of a new figure.

        Args:
          ax: as many axes as there are panels, or one of a grid, whose place they take.
          name: drawn instead of that of the display.
          style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: another number of axes.
        """
        self.axes_ = self._axes(ax)
        self.ax_ = self.axes_[0]
        self.figure_ = canvas.whole_figure(self.ax_)
        self.name_ = name or self.name
        self.lines_ = self._draw(style)
        return self

    def _axes(self, ax: Axes | Sequence[Axes] | None) -> Sequence[Axes]:
        """Axes of all panels."""
        return canvas.panels(ax, *self.PANELS, size=self.SIZE)

    def _draw(self, style: Style) -> list[Any]:
        """Draw on `axes_`; returns what the style went to."""
        raise NotImplementedError

    def frame(self) -> pd.DataFrame:
        """Every number that is drawn."""
        raise NotImplementedError

    def _shown(self) -> Shown:
        """Table below the figure."""
        raise NotImplementedError

    def __repr__(self) -> str:
        rows = self.frame().round(4).to_string(max_rows=10)
        return f"{type(self).__name__}\n{_ENDLESS.sub(_endless, visible(rows, lines=True))}"

    def _repr_html_(self) -> str:
        if not hasattr(self, "figure_"):  # made of its data, and never drawn
            self.plot()
        shown = self._shown()
        return canvas.html(
            self.figure_, column_table(shown.caption, shown.columns), shown.intervals, shown.most
        )


@dataclass(eq=False, repr=False)
class FrameDisplay(Display):
    """Display whose data are rows of a frame, all of which are drawn.

    Attributes:
      rows: frame of the numbers that are drawn.
    """

    rows: pd.DataFrame

    def frame(self) -> pd.DataFrame:
        """Return the rows."""
        return self.rows.copy()


def _endless(match: re.Match[str]) -> str:
    """An infinite number as wide as pandas writes it."""
    return ("−∞" if match[0].startswith("-") else "∞").rjust(len(match[0]))
