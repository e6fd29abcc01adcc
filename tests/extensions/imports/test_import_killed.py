"""Imports and runs that are killed in the middle: where their texts lie, and who clears them."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from functools import partial

import pandas as pd
import pytest

from raglab.extensions.imports import span_traces
from raglab.extensions.imports.span_traces import trace_from_spans
from raglab.lab import tracking
from span_samples import request, write_lines

SCRATCH = ".scratch"
SECRET = b"Where does Mrs Okonkwo live"


def holding(folder):
    """Files of a folder that are not empty, as locks are."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(folder)) for path in files if path.stat().st_size)


def killed(work, module, name, temporary):
    """Do some work in a fork that ends by SIGKILL where a function of a module is called."""
    child = os.fork()
    if child == 0:  # pragma: no cover - of another process
        import tempfile

        tempfile.tempdir = str(temporary)
        setattr(module, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        with suppress(BaseException):
            work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.fixture
def spans(tmp_path):
    """Forty requests of one customer."""
    rows = [
        row
        for number in range(40)
        for row in request(f"t{number}", f"{SECRET.decode()} ({number})?", (f"d{number}", 0.5))
    ]
    return write_lines(tmp_path / "spans.jsonl", rows)


@pytest.mark.parametrize("step", ["_shared_meta", "trace_of_files", "_warn"])
@pytest.mark.parametrize("sharded", [True, False])
def test_an_import_leaves_no_text_elsewhere(tmp_path, spans, step, *, sharded):
    """Nothing in the temporary folder; in that of `out` one folder, which the next run clears."""
    temporary, out = tmp_path / "tmp", tmp_path / "out"
    temporary.mkdir()
    work = partial(trace_from_spans, spans, out=out if sharded else None)
    killed(work, span_traces, step, temporary)
    assert holding(temporary) == []
    if not sharded:
        assert not out.exists()
        return
    left = holding(out / SCRATCH)
    assert left
    assert SECRET in b"".join((out / SCRATCH / name).read_bytes() for name in left)
    with pytest.warns(UserWarning, match="no distance"):
        assert len(trace_from_spans(spans, out=out)) == 40
    assert not (out / SCRATCH).exists()
    assert temporary.is_dir()


@pytest.mark.parametrize("stored", [True, False])
def test_a_run_that_is_tracked(tmp_path, empty_runs, monkeypatch, *, stored):
    """Its tables lie in the folder of the store, or in `mlruns` where the store is none of ours."""
    temporary, folder = tmp_path / "tmp", tmp_path / "mlruns"
    temporary.mkdir()
    (tmp_path / "mlruns").mkdir()
    shutil.copy(empty_runs, folder / "mlflow.db" if stored else tmp_path / "own.db")
    monkeypatch.chdir(tmp_path)
    if not stored:
        monkeypatch.setenv(tracking.STORE_VARIABLE, f"sqlite:///{tmp_path}/own.db")
    monkeypatch.setenv("RAGLAB_ARTIFACTS", str(tmp_path))
    tables = {"answers": pd.DataFrame({"question": [SECRET.decode()]})}
    texts = {"note.txt": SECRET.decode()}
    work = partial(
        tracking.track_run, "r", "e", {}, [], tables, folder if stored else None, texts=texts
    )
    killed(work, tracking._OpenRun, "log_folder", temporary)
    assert holding(temporary) == []
    assert holding(folder / SCRATCH) == ["answers.parquet", "note.txt"]
    work()
    assert not (folder / SCRATCH).exists()
