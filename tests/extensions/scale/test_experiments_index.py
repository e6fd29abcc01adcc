"""What `experiments/bench_index.py` says of what it measured."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import raglab

ROOT = Path(raglab.__file__).parents[1]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@pytest.fixture
def script(monkeypatch):
    """Return what imports a script; the threads that it asks for are its alone."""
    for name in THREADS:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "experiments")])
    return importlib.import_module


def test_an_index_is_built_and_asked(script, tmp_path):
    """By the exact neighbours, and none is found where another index answers."""
    bench = script("bench_index")
    assert bench.run_step("build", 120, tmp_path)["disk_mb"] > 0.0
    assert bench.run_step("ask", 120, tmp_path)["recall"] > 0.9
    queries = bench.random_units(-1, 3)
    near = queries @ bench.random_units(0, 120).T
    assert [set(row) for row in bench.exact(queries, 120).tolist()] == [
        set(np.argsort(-row)[: bench.K].tolist()) for row in near
    ]
