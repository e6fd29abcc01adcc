"""The display of a signal audit.

Two panels of the audit's own numbers, axes given are axes used.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from drawings import audited_signals
from raglab.displays.signals import AUROC_MEASURES, WORTH_MEASURES, SignalAuditDisplay
from raglab.lab.signal_audit import DOUBLE, MISSING_EVERYWHERE


def measured(audit):
    """Rows that are drawn."""
    return audit.table[audit.table["note"] != MISSING_EVERYWHERE].reset_index(drop=True)


def test_marks_are_the_numbers_of_the_audit():
    """A mark a signal and measure, in the order of the frame; the frame is the audit's."""
    audit = audited_signals()
    shown = SignalAuditDisplay.from_audit(audit)
    rows = measured(audit)
    rows["worth_doubles"] = rows["worth_doubles"].where(rows["rank_correlation"].abs() >= DOUBLE)
    for on, names in zip(shown.axes_, (WORTH_MEASURES, AUROC_MEASURES), strict=True):
        for container, name in zip(on.containers, names, strict=True):
            drawn = np.asarray(container[0].get_xdata(), dtype=float)  # type: ignore[index]
            np.testing.assert_array_equal(drawn, rows[name])
    names = [text.get_text() for text in shown.axes_[0].get_yticklabels()]
    assert [name.split(" (")[0] for name in names] == rows["signal"].tolist()
    pd.testing.assert_frame_equal(shown.frame(), audit.table)


def test_every_measured_signal_is_a_row_of_the_table():
    """None is left out for length; text is escaped; the caption names what nobody measured."""
    audit = audited_signals()
    text = SignalAuditDisplay.from_audit(audit, name="<b>mine</b>")._repr_html_()
    assert text.rpartition("<details")[2].count("<tr><td") == len(measured(audit))
    assert "Nothing measured in any case" in text
