"""What `experiments/bench_index.py` and `experiments/cluster.py` say of what they measured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import raglab

ROOT = Path(raglab.__file__).parents[1]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return what imports a script; the threads that it asks for are its alone."""
    for name in THREADS:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "experiments")])
    return importlib.import_module


def test_other_texts_are_other_material(script: Callable[[str], Any], tmp_path: Path) -> None:
    """The folder of embeddings is named by sentences and questions."""
    name = script("bench_index").material_folder
    folders = {
        name(tmp_path, ["a"], ["b"]),
        name(tmp_path, ["a", "b"], []),
        name(tmp_path, ["a"], ["c"]),
    }
    assert len(folders) == 3
    assert name(tmp_path, ["a"], ["b"]) in folders


def test_an_index_is_built_afresh(
    script: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in its folder from another run gives no number of this one."""
    bench = script("bench_index")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(90, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    words = [f"sentence {number}" for number in range(50)]
    monkeypatch.setattr(bench, "chosen_texts", lambda *_: (words, words[:40]))
    np.savez(tmp_path / "material.npz", vectors=rows[:50], asked=rows[50:])
    first = bench.build(tmp_path / "hnsw-sq8-300", 300, 50, "hnsw-sq8", tmp_path)
    built = []
    monkeypatch.setattr(
        bench, "build_large", lambda *given, **named: built.append(given) or build(*given, **named)
    )
    build = importlib.import_module("raglab.extensions.scale.large_index").build_large
    (tmp_path / "hnsw-sq8-300" / "old").write_text("of another run", encoding="utf-8")
    again = bench.build(tmp_path / "hnsw-sq8-300", 300, 50, "hnsw-sq8", tmp_path)
    assert again["mb"] == first["mb"]
    assert len(built) == 1
    assert not (tmp_path / "hnsw-sq8-300" / "old").exists()


@pytest.mark.parametrize(("hashes", "code"), [(("a", "a"), None), (("a", "b"), 1)])
def test_other_bytes_end_with_an_exit_code(
    script: Callable[[str], Any],
    hashes: tuple[str, str],
    code: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1, so that whatever runs it stops."""
    pytest.importorskip("distributed")
    cluster, told = script("cluster"), iter(hashes)
    monkeypatch.setattr(cluster, "build_and_sweep", lambda *_: (next(told), "swept"))
    monkeypatch.setattr(sys, "argv", ["cluster.py", "--kinds", "threads:2"])
    if code is None:
        cluster.main()
    else:
        with pytest.raises(SystemExit) as ended:
            cluster.main()
        assert ended.value.code == code
    assert capsys.readouterr().out.endswith(
        "the same bytes\n" if code is None else "NOT THE SAME BYTES\n"
    )
