"""What the suite needs as a whole: an order that keeps two workers busy, and little time spent on garbage."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from databases import Places, Server, server, why_not
from fuzz import table

if TYPE_CHECKING:
    from raglab.store.traces import Trace

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
LONGEST = "test_notebooks.py"  # one notebook after the other: half of what a worker has to do


def pytest_configure(config: pytest.Config) -> None:
    """Have the counts of fuzzed inputs printed at the end."""
    config.pluginmanager.register(table)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest module first; all else stays in its order, which is the same in every worker."""
    items.sort(key=lambda item: item.path.name != LONGEST)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """Return a server of PostgreSQL, one for a worker of the suite."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with server() as made:
        yield made


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the trace of the bundled questions is kept once a notebook has built it, for all workers of the suite.

    Most of them build that trace by the same call, half a minute each; its fingerprint has it built anew wherever a
    call differs.
    """
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "trace.parquet"


@pytest.fixture(scope="session")
def bundled_trace(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the trace of the bundled questions, as the notebooks build it."""
    from raglab.live.trace_building import build_trace
    from raglab.store.loaders import load_cases, load_corpus
    from raglab.store.policies import Policy

    place = tmp_path_factory.mktemp("bundled") / built.name
    if built.exists():
        shutil.copyfile(built, place)
    policy = Policy.load(BROKER / "policy.yaml")
    trace = build_trace(load_corpus(BROKER), load_cases(BROKER), policy=policy, out=place)
    if not built.exists():
        copy = place.with_name("copy.parquet")
        shutil.copyfile(place, copy)
        copy.replace(built)  # whole or not at all: another worker may look
    return trace


@pytest.fixture(scope="session")
def empty_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database of MLflow without a run, whose tables take seconds to make."""
    import mlflow

    database = tmp_path_factory.mktemp("runs") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}").search_experiments()
    return database


@pytest.fixture
def quick_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-fit a study's candidates once in three folds: for tests that are not about which of them is chosen.

    It is most of the time of a small study (`test_lab_selection` tests it whole).
    """
    from raglab.lab.study import tune

    for name, number in (("repeats", 1), ("folds", 3)):
        monkeypatch.setitem(tune.__wrapped__.__kwdefaults__, name, number)  # type: ignore[attr-defined]
    monkeypatch.setattr("raglab.lab.candidates.ROUNDS", 1)


@pytest.fixture
def mlruns(tmp_path: Path, empty_runs: Path) -> Path:
    """Return a folder for runs of this test alone."""
    folder = tmp_path / "mlruns"
    folder.mkdir()
    shutil.copy(empty_runs, folder)
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """Return places for logs on either database."""
    return Places(tmp_path, None if request.param == "sqlite" else request.getfixturevalue("postgresql"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line that nothing was tried on PostgreSQL."""
    if (reason := why_not()) is not None:
        terminalreporter.write_line(f"PostgreSQL: skipped, {reason}")


def pytest_collection_finish() -> None:
    """Take what was collected, which lives to the end, out of every later search for garbage: a sixth of the time."""
    gc.collect()
    gc.freeze()
