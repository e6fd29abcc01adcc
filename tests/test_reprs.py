"""Values in a notebook cell.

One short line with the sizes that matter, and HTML that any host of notebooks shows.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.formatters import DisplayFormatter

import raglab
from raglab import displays

SAMPLES = Path(__file__).parent / "data" / "formats-0.1.0"


def values(name):
    """A value that a cell may end with."""
    trace, policy = (
        raglab.Trace.load(SAMPLES / "trace.parquet"),
        raglab.Policy.load(SAMPLES / "policy.yaml"),
    )
    if name == "display":
        return displays.ReliabilityDisplay.from_predictions(
            [1, 0, 1, 0, 1], [0.9, 0.2, 0.7, 0.4, 0.6]
        )
    if name == "comparison":
        return raglab.compare(trace, policy, policy.replace("similarity.min_similarity", 0.9))
    return {
        "trace": trace,
        "policy": policy,
        "decisions": raglab.decide(trace, policy),
    }[name]


@pytest.mark.parametrize("name", ["comparison", "decisions", "display", "policy", "trace"])
def test_a_host_that_runs_no_script_shows_it_all(name):
    """VS Code, Colab, GitHub show text or script-free HTML that loads and waits for nothing."""
    data, _ = DisplayFormatter().format(values(name))
    assert {"text/plain", "text/html"} <= data.keys()
    assert not data["text/plain"].startswith("<")
    page = data["text/html"].lower()
    active = ("<script", "<link", "<iframe", "javascript:", " onclick", " onload")
    assert [word for word in active if word in page] == []
    assert 'src="http' not in page
