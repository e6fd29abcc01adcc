"""The work of a call, counted: a clock tells what else the machine does."""

from __future__ import annotations

import sys


def lines_run(call):
    """Lines of Python that a call runs, those of all functions below it included."""
    count = 0

    def trace(_frame, event, _value):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
