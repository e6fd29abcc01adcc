"""Every display: axes given are used, a notebook shows it once, nothing leaves its figure."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from drawings import (
    audited_signals,
    bandit_displays,
    boundary_display,
    gate_displays,
    monitored,
    reviewed_traffic,
    upgraded,
)
from raglab.bandit import Table
from raglab.displays import canvas
from raglab.displays.frontiers import FrontierDisplay
from raglab.displays.monitors import MonitorDisplay
from raglab.displays.signals import SignalAuditDisplay
from raglab.displays.traffic import ReviewDisplay
from raglab.displays.upgrades import TraceComparisonDisplay


def priced_table():
    """Two arms with costs."""
    frame = pd.DataFrame({"small": [0.5, 0.3], "large": [1.0, 0.8]})
    return Table.from_frame(frame, costs={"small": 1.0, "large": 3.0}, price=1.0, order="given")


def made():
    """Every kind of display."""
    more: dict[str, Any] = {"name": "<b>mine</b>"}
    return {
        **gate_displays(**more),
        **bandit_displays(**more),
        "boundary": boundary_display(**more),
        "frontier": FrontierDisplay.from_table(priced_table(), **more),
        "monitor": MonitorDisplay.from_monitor(monitored(), **more),
        "signals": SignalAuditDisplay.from_audit(audited_signals(), **more),
        "traffic": ReviewDisplay.from_review(reviewed_traffic(), **more),
        "upgrade": TraceComparisonDisplay.from_comparison(upgraded(), **more),
    }


for room in ("budgets", "monitoring"):  # where their displays come from
    pytest.importorskip(f"raglab.extensions.{room}")


@pytest.fixture(scope="module")
def drawn():
    """A display of each class by its name."""
    displays = made()
    last = {type(shown): name for name, shown in displays.items()}
    return {name: displays[name] for name in last.values()}


def test_axes_given_are_axes_used(drawn):
    """`ax` is drawn on, or its place taken; no figure is pyplot's; a pickle draws the same."""
    for name, display in drawn.items():
        shown = pickle.loads(pickle.dumps(display))
        on = canvas.empty_figure(12, 5).subplots()
        assert shown.plot(ax=on) is shown, name
        assert shown.figure_ is on.figure
        assert (shown.ax_ is on) == (len(shown.axes_) == 1)
        assert shown.plot().figure_ is not on.figure
        assert shown.figure_.canvas.manager is None
        assert shown.frame().equals(display.frame()), name


def check_layout(shown):
    """Labels have units; labels and legends are inside, legends off the axes, panels off others."""
    renderer = FigureCanvasAgg(shown.figure_).get_renderer()
    shown.figure_.draw_without_rendering()
    whole = shown.figure_.bbox.padded(1)
    names = []
    for on in (on for on in shown.axes_ if on.axison):
        assert not (label := on.get_xlabel()) or re.search(r"\(.+\)|, now ", label, re.DOTALL)
        names.append(on.xaxis.label.get_window_extent(renderer))
        low, high = on.get_ylim()
        ticks = [tick for tick in on.get_yticklabels() if low <= tick.get_position()[1] <= high]
        parts = [on.xaxis.label, on.yaxis.label, on.title, *on.texts, *ticks]
        if (legend := on.get_legend()) is not None:
            parts.append(legend)
            own = legend.get_window_extent(renderer)
            assert not any(own.overlaps(text.get_window_extent(renderer)) for text in on.texts)
            assert own.y0 >= on.bbox.y1 - 1 or own.x0 >= on.bbox.x1 - 1
        for part in (part for part in parts if part is legend or part.get_text()):
            box = part.get_window_extent(renderer)
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1, part  # noqa: PT018 - one box
            assert whole.y0 <= box.y0 and box.y1 <= whole.y1, part  # noqa: PT018
    for place, label in enumerate(names):
        assert not any(label.overlaps(after) for after in names[place + 1 :])


def test_a_notebook_sees_figure_and_table_once(drawn):
    """One image, then tables, escaped, no bare nan; the same bytes again."""
    again = gate_displays(name="<b>mine</b>")
    for name, display in drawn.items():
        page = display._repr_html_()
        images = page.count("data:image/png;base64,")
        assert page.count("<img ") == images == 1 <= page.count("<details"), name
        assert page.partition("<details")[2].count("<tr><td"), name
        assert page.index("<img ") < page.index("<table")
        assert "<b>mine" not in page
        assert not re.search(r"\bnan\b|\binf\b", re.sub(r"base64,[^\"]+", "", page)), name
        check_layout(display)
        assert name not in again or page == again[name]._repr_html_()


def test_nothing_drawn_leaves_its_figure(drawn):
    """Of a column of a paper."""
    for display in drawn.values():
        check_layout(pickle.loads(pickle.dumps(display)).plot(width=3.4))
