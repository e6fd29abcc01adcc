"""Values in a notebook cell.

One short line with the sizes that matter, and HTML that any host of notebooks shows.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

import raglab
from raglab import bandit, displays
from raglab.lab.threshold_rescaling import RescaledThresholds
from raglab.live.response import ResponseRecord
from raglab.store.policies import Policy
from raglab.words.packs import BUNDLED

LONGEST = 400
SAMPLES = Path(__file__).parent / "data" / "formats-0.1.0"


def shown_classes():
    """Classes of the package that state HTML, of their own or by the mixin of results."""
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(raglab.__path__, "raglab.")
    ]
    kinds = {
        value for module in modules for value in vars(module).values() if isinstance(value, type)
    }
    return sorted(
        (
            kind
            for kind in kinds
            if kind.__module__.startswith("raglab.") and hasattr(kind, "_repr_html_")
        ),
        key=lambda kind: kind.__qualname__,
    )


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


def test_large_values_are_one_short_line():
    """No array, table or pattern is printed whole."""
    table = pd.DataFrame({"path": ["a"] * 900, "from": np.arange(900.0), "to": 0.0})
    shown = {
        "500 cases × 3 arms": bandit.Table.from_frame(
            pd.DataFrame(np.ones((500, 3)), columns=list("abc"))
        ),
        "899 of 900 thresholds": RescaledThresholds(Policy.load(), table),
        "900 queries": ResponseRecord(queries=("a long question",) * 900),
        "generic": BUNDLED["generic"],
    }
    for part, value in shown.items():
        assert part in repr(value)
        assert len(repr(value)) <= LONGEST
        assert "\n" not in repr(value)


def test_what_has_html_has_a_text_too():
    """A terminal and a page that shows no HTML have the text."""
    kinds = shown_classes()
    assert {"Display", "Result", "AuditLog"} <= {kind.__name__ for kind in kinds}
    # a base leaves the text to what inherits from it
    alone = [kind for kind in kinds if not kind.__subclasses__()]
    assert [kind.__name__ for kind in alone if kind.__repr__ is object.__repr__] == []


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
