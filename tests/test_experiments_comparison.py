"""What `experiments/comparison.py` prints of this tree and of another, on little."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raglab

ROOT = Path(raglab.__file__).parents[1]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """Return the script as a module; the threads that it asks for are its alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in THREADS:
            patch.setenv(name, "1")
        patch.setattr(sys, "path", [*sys.path, str(ROOT / "experiments")])
        yield importlib.import_module("comparison")


def test_every_figure_is_of_one_group(script: Any) -> None:
    """No figure is left out of the table, and none stands in it twice."""
    named = [name for _, names in script.GROUPS.values() for name in names]
    assert sorted(named) == sorted(script.FIGURES)


def test_both_trees_are_measured_by_processes(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The same tree twice gives both columns and a ratio, and no verdict on figures that mean nothing."""
    script.compare(str(ROOT), ["off-policy"], quick=True)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("SNIPS + DR with intervals, s")
    assert line.endswith(" x")
    assert " - " not in line


def test_what_the_last_version_cannot_do_is_said_once(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package without the function gives a dash, and one line that says why."""
    package = tmp_path / "raglab"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    script.compare(str(tmp_path), ["off-policy"], quick=True)
    *_, line, why = capsys.readouterr().out.splitlines()
    assert line.split()[-2:] == ["-", "-"]
    assert why == "- last version: ModuleNotFoundError: No module named 'raglab.off_policy'"


@pytest.mark.parametrize("base", [None, "no-such-commit"])
def test_without_a_last_version_a_line_says_why(script: Any, base: str | None) -> None:
    """Neither a missing name nor one that git does not know stops the bench."""
    with script.last_version(base) as (tree, what):
        assert tree is None
        assert what.startswith("no last version: ")


def test_a_ratio_above_one_is_faster(script: Any) -> None:
    """Of seconds the last by this, of rates this by the last; the best turn counts; asked beside it."""
    assert script.best("steps", [{"steps": 2.0}, {"steps": 0.5}, {"steps": "KeyError: x"}]) == 0.5
    assert script.best("ucb1", [{"ucb1": 2.0}, {"ucb1": 5.0}]) == 5.0
    assert script.best("trace", [{}]) is None
    assert script.row("steps", 0.5, 2.0, judged=True).split()[-6:] == ["1", "0.5", "2", "4.00", "x", "met"]
    assert script.row("ucb1", 50.0, 25.0, judged=True).endswith("2.00 x  NOT MET")
    assert script.row("trace", 5.0, 9.0, judged=True).endswith("1.80 x  NOT MET")


def test_cases_that_are_made_of_others_all_differ(script: Any) -> None:
    """Fractions are scaled by the case, so their order within it stays; whole numbers and NaN stay as they are."""
    part = script.Figure(np.tile([[0.25], [0.5]], 6), np.arange(6.0), np.array([np.nan] * 6))
    made = script.spread(part, np.random.default_rng(0))
    assert len(np.unique(made.label[0])) == 6
    assert np.all(made.label[0] < made.label[1])
    assert np.array_equal(made.asked, part.asked)
    assert np.array_equal(made.more, part.more, equal_nan=True)


@pytest.mark.parametrize("group", ["replay", "steps", "bandits"])
def test_a_group_gives_its_figures(script: Any, group: str) -> None:
    """The quick size gives every figure of the group as a number."""
    found = script.measure(group, script.QUICK)
    for name in script.GROUPS[group][1]:
        if name == "steps bare" and found[name] == "NotImplementedError: raglab.steps takes no level=None":
            continue
        assert isinstance(found[name], float), found[name]
