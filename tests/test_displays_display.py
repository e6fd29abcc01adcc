"""The base class of displays.

A display of one's own is its data, its drawing, its frame and its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from raglab import displays
from raglab.displays import canvas, tables
from raglab.displays.display import Display, FrameDisplay, spaced_rows
from raglab.words.results import Summary
from refusals import refused


@dataclass(eq=False, repr=False)
class Levels(FrameDisplay):
    """Two panels of a column `level`."""

    PANELS: ClassVar = (1, 2)

    def _draw(self, style):
        for on in self.axes_:
            on.set_xlabel(self.name_ or "")
        return [line for on in self.axes_ for line in on.plot(self.rows["level"], **style)]

    def _summary(self):
        cells = tables.estimate_cells(self.rows, "level")
        rows = spaced_rows({"row": self.rows.index, "level": cells})
        return Summary([("interval", "95 %")], rows, title=self.name or "levels")


ROWS = pd.DataFrame(
    {"level": [0.5, np.inf, np.nan], "low": [0.4, 0.0, 0.0], "high": [0.6, 1.0, 1.0]}
)


def test_a_display_is_its_data_and_its_drawing():
    """Axes are new or given, the style reaches the lines, the frame is a copy of the rows."""
    shown = Levels(ROWS, name="mine").plot(linewidth=4)
    assert [line.get_linewidth() for line in shown.lines_] == [4, 4]
    assert (shown.ax_, len(shown.axes_), shown.ax_.get_xlabel()) == (shown.axes_[0], 2, "mine")
    assert shown.figure_.canvas.manager is None
    pair = list(canvas.empty_figure().subplots(1, 2))
    assert shown.plot(pair, name="other").axes_ == pair
    assert (shown.ax_.get_xlabel(), shown.name) == ("other", "mine")
    frame = shown.frame()
    frame["level"] = 0.0
    assert shown.frame().equals(ROWS)


def test_a_display_that_was_not_drawn_shows_itself():
    """A notebook draws it first."""
    assert "<img" in Levels(ROWS)._repr_html_()


def test_another_number_of_axes_is_refused():
    """With what to do."""
    three = list(canvas.empty_figure().subplots(1, 3))
    refused(r"ax must be 2 axes, or one of a grid, got 3; make them", Levels(ROWS).plot, three)


@pytest.mark.parametrize("name", [name for name in dir(displays) if name.endswith("Display")])
def test_every_public_display_has_the_base_class(name):
    """None draws or shows itself in a way of its own."""
    kind = getattr(displays, name)
    assert issubclass(kind, Display)
    assert not {"plot", "__repr__", "__str__", "_repr_html_"} & vars(kind).keys()
    assert any(member.startswith("from_") for member in vars(kind))
