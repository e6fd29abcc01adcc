"""What `experiments/bench.py` prints of this tree and of another, on little."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import raglab

ROOT = Path(raglab.__file__).parents[1]
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
PROGRAM = """
from bench import Row
def first(options):
    yield Row("sweep", 2.0, "M decisions/s")
def second(options):
    yield Row("steps", 3.0, "ms")
    raise KeyError("gone")
def third(options):
    yield Row("beside a peer", 7.0, "x")
BENCHES = (first, second, third)
"""


@pytest.fixture(scope="module")
def script():
    """Return the script as a module; the threads that it asks for are its alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in THREADS:
            patch.setenv(name, "1")
        patch.setattr(sys, "path", [*sys.path, str(ROOT / "experiments")])
        yield importlib.import_module("bench")


def test_one_bench_that_fails_ends_no_other(script, tmp_path, monkeypatch):
    """Rows before the error and of the other benches stay."""
    (tmp_path / "bench_toy.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    result = script.measure(
        "toy", script.Options(quick=True, first=True, peers=True, folder=tmp_path)
    )
    assert list(result.rows) == ["sweep", "steps", "beside a peer"]
    assert result.failed == {"second": "KeyError: 'gone'"}


@pytest.mark.parametrize("program", ["bandit", "calibration", "replay", "study"])
def test_a_program_gives_its_rows(script, tmp_path, program):
    """The quick size gives every row as a number, and nothing fails.

    A slope between few trials may be below 0.
    """
    result = script.measure(
        program, script.Options(quick=True, first=False, peers=False, folder=tmp_path)
    )
    assert result.failed == {}
    assert result.rows
    assert all(
        row.value > 0.0 for row in result.rows.values() if not row.name.startswith("each further")
    )
    assert all(np.isfinite(row.value) for row in result.rows.values())
