"""A monitor drawn.

Evidence less its bar and the rate, a row of panels a promise, of a frame alone.
"""

from __future__ import annotations

import numpy as np

from drawings import monitored
from raglab.displays.monitors import MAX_MONITOR_POINTS, MonitorDisplay
from refusals import refused


def test_panels_of_each_promise():
    """Both sides as they are, the bar at 0, the promise in the rate's panel."""
    rows = monitored()
    display = MonitorDisplay.from_monitor(rows)
    assert len(display.axes_) == 4
    evidence, rate = display.axes_[:2]
    assert evidence.get_title(loc="left") == "hallucination_rate ≤ 0.1: alarm"
    alarm, held, bar = evidence.lines
    assert list(np.asarray(alarm.get_ydata())) == rows["margin_alarm"][:50].tolist()
    assert list(np.asarray(held.get_ydata())) == (rows["log_wealth_held"] - 3.0)[:50].tolist()
    assert list(np.asarray(bar.get_ydata())) == [0.0, 0.0]
    assert list(np.asarray(rate.lines[1].get_ydata())) == [0.1, 0.1]
    assert display.frame().equals(rows)


def test_the_process_that_leads_is_named():
    """An alarm of a restart beside an average that is held: both are said."""
    rows = monitored().assign(
        is_held=True, alarm_by="restart 6, after 3,000 rows", leader="the start"
    )
    left = MonitorDisplay.from_monitor(rows).axes_[0]
    title = left.get_title(loc="left").replace("\n", " ")
    assert title.endswith("alarm; held since the start; alarm by restart 6, after 3,000 rows")
    quiet = MonitorDisplay.from_monitor(rows.assign(alarm_by="")).axes_[0]
    assert quiet.get_title(loc="left").endswith("of the start")


def test_a_long_stream_is_thinned():
    """Its last step is drawn."""
    display = MonitorDisplay.from_monitor(monitored(5_000))
    x = np.asarray(display.ax_.lines[0].get_xdata())
    assert len(x) == MAX_MONITOR_POINTS
    assert x[-1] == 5_000


def test_what_cannot_be_drawn():
    """No step, or a column that is missing."""
    refused("got no row", MonitorDisplay.from_monitor, monitored()[:0])
    refused("got alpha missing", MonitorDisplay.from_monitor, monitored().drop(columns="alpha"))
