"""Every display: axes given are used, a notebook shows it once, nothing leaves its figure."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from drawings import (
    AUDITED,
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
    return Table.from_frame(frame, costs={"small": 1.0, "large": 3.0}, order="given")


def made():
    """Every kind of display."""
    more: dict[str, Any] = {"name": "<b>mine</b>"}
    return {
        **gate_displays(**more),
        **bandit_displays(**more),
        "boundary": boundary_display(**more),
        "frontier": FrontierDisplay.from_table(priced_table(), **more),
        "monitor": MonitorDisplay.from_monitor(monitored(), **more),
        "signals": SignalAuditDisplay.from_audit(AUDITED, **more),
        "traffic": ReviewDisplay.from_review(reviewed_traffic(), **more),
        "upgrade": TraceComparisonDisplay.from_comparison(upgraded(), **more),
    }


for room in ("budgets", "monitoring"):  # where their displays come from
    pytest.importorskip(f"raglab.extensions.{room}")
DRAWN, AGAIN = made(), gate_displays(name="<b>mine</b>")
KINDS = {type(shown): name for name, shown in DRAWN.items()}
every_display = pytest.mark.parametrize("name", KINDS.values())


@every_display
def test_axes_given_are_axes_used(name):
    """`ax` is drawn on, or its place taken; no figure is pyplot's; a pickle draws the same."""
    shown = pickle.loads(pickle.dumps(DRAWN[name]))
    on = canvas.empty_figure(12, 5).subplots()
    assert shown.plot(ax=on) is shown
    assert shown.figure_ is on.figure
    assert (shown.ax_ is on) == (len(shown.axes_) == 1)
    assert shown.plot().figure_ is not on.figure
    assert shown.figure_.canvas.manager is None
    assert shown.frame().equals(DRAWN[name].frame())


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


@every_display
def test_a_notebook_sees_figure_and_table_once(name):
    """One image, then tables, escaped, no bare nan; the same bytes again."""
    page = DRAWN[name]._repr_html_()
    assert (
        page.count("<img ") == page.count("data:image/png;base64,") == 1 <= page.count("<details")
    )
    assert page.partition("<details")[2].count("<tr><td")
    assert page.index("<img ") < page.index("<table")
    assert "<b>mine" not in page
    assert not re.search(r"\bnan\b|\binf\b", re.sub(r"base64,[^\"]+", "", page))
    check_layout(DRAWN[name])
    if name in AGAIN:
        assert page == AGAIN[name]._repr_html_()


@every_display
def test_nothing_drawn_leaves_its_figure(name):
    """Of a column of a paper."""
    check_layout(pickle.loads(pickle.dumps(DRAWN[name])).plot(width=3.4))
