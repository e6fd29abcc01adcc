"""Notices of the cockpit: what a message lacks, in words of the message."""

from __future__ import annotations

import pytest

from labelled import labelled
from raglab import cockpit

pytest.importorskip("anywidget")


def test_a_missing_field_is_named_without_the_object_that_took_the_message():
    """No address of the kernel stands on the page."""
    widget = cockpit(labelled(0, {"tune": 20})).widget
    widget.take({"do": "set"})
    assert "'path'" in widget.page["notice"]["text"]
    assert " at 0x" not in widget.page["notice"]["text"]
