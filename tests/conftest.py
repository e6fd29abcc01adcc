"""What the suite needs as a whole.

An order that keeps two workers busy, and little time spent on garbage.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from databases import Places, Server, server, why_not
from fuzz import table

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog
    from raglab.store.traces import Trace

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
NOTEBOOKS = "test_notebooks.py"


# An example of a property test that takes long says something of the machine.
settings.register_profile("raglab", deadline=None)
settings.load_profile("raglab")


def pytest_configure(config: pytest.Config) -> None:
    """Have the counts of fuzzed inputs printed at the end."""
    config.pluginmanager.register(table)


class NotebookScheduling(LoadScopeScheduling):
    """A module or class stays on one worker; each notebook that is executed is a scope of its own.

    xdist's `loadgroup` would say the same, but xdist 3.8 cannot mark the node ids of pytest 9.2,
    and groups nothing.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Scope of a test."""
        executed = f"/{NOTEBOOKS}::test_a_fresh_execution" in nodeid
        return nodeid.rpartition("[")[2] if executed else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> NotebookScheduling | None:
    """Return the scheduler of `--dist loadscope`."""
    return NotebookScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the notebooks first, which take longest.

    All else stays in its order, which is the same in every worker.
    """
    items.sort(key=lambda item: item.path.name != NOTEBOOKS)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """Return a server of PostgreSQL, one for a worker of the suite."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with server() as made:
        yield made


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the trace file of bundled questions, as notebooks build it, once for all workers.

    It takes half a minute. Its fingerprint has it built again wherever a call of `build_trace`
    differs.
    """
    from raglab.live.trace_building import build_trace
    from raglab.store.loaders import load_cases, load_corpus
    from raglab.store.policies import Policy

    own = tmp_path_factory.getbasetemp()
    file = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "trace.parquet"
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            place = tmp_path_factory.mktemp("bundled") / file.name
            policy = Policy.load(BROKER / "policy.yaml")
            build_trace(load_corpus(BROKER), load_cases(BROKER), policy=policy, out=place)
            place.replace(file)
    return file


@pytest.fixture(scope="session")
def bundled_trace(built: Path) -> Trace:
    """Return the trace of the bundled questions, as the notebooks build it."""
    from raglab.store.traces import Trace

    return Trace.load(built)


@pytest.fixture(scope="session")
def empty_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database of MLflow without a run, whose tables take seconds to make."""
    import mlflow

    database = tmp_path_factory.mktemp("runs") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}").search_experiments()
    return database


@pytest.fixture
def quick_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-fit a study's candidates once in three folds.

    For tests that are not about which of them is chosen.

    It is most of the time of a small study (`test_lab_selection` tests it whole).
    """
    from raglab.lab.study import tune

    for name, number in (("repeats", 1), ("folds", 3)):
        monkeypatch.setitem(tune.__wrapped__.__kwdefaults__, name, number)
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
    return Places(
        tmp_path, None if request.param == "sqlite" else request.getfixturevalue("postgresql")
    )


@pytest.fixture
def audit_logs(places: Places) -> Iterator[Callable[..., AuditLog]]:
    """Logs on either database, whose clock stands still, closed at the end of the test."""
    from raglab.audit.log import AuditLog

    logs: list[AuditLog] = []

    def make(name: str = "audit.sqlite", **more: Any) -> AuditLog:
        logs.append(
            AuditLog(places(name), clock=lambda: datetime(2026, 3, 2, 9, 0, tzinfo=UTC), **more)
        )
        return logs[-1]

    yield make
    for log in logs:
        log.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line that nothing was tried on PostgreSQL."""
    if (reason := why_not()) is not None:
        terminalreporter.write_line(f"PostgreSQL: skipped, {reason}")


def pytest_collection_finish() -> None:
    """Take what was collected, which lives to the end, out of every later search for garbage.

    A sixth of the time.
    """
    gc.collect()
    gc.freeze()
