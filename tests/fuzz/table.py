"""Hooks that print the counts of fuzzed inputs at the end of a run, for all workers together."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from fuzz import outcomes


def pytest_sessionfinish(session):
    """Hand a worker's counts to the process that prints them."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["fuzz"] = json.dumps(outcomes.TABLE)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take a worker's counts."""
    for surface, counts in json.loads(getattr(node, "workeroutput", {}).get("fuzz", "{}")).items():
        outcomes.TABLE.setdefault(surface, Counter()).update(counts)


def pytest_terminal_summary(terminalreporter):
    """Print the table."""
    if outcomes.TABLE:
        terminalreporter.section("fuzzed inputs")
        terminalreporter.write_line(outcomes.table())
