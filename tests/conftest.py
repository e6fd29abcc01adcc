"""What the suite needs as a whole.

An order that keeps two workers busy, and little time spent on garbage.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from hypothesis import settings

from databases import Places, server, why_not
from fuzz import table
from levels import level_of

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
# First those that compile the loops, so that no process compiles them again; then the longest.
FIRST = ("test_decision_kernel.py", "test_bandit_kernel.py", "test_notebooks.py")


# An example of a property test that takes long says something of the machine.
settings.register_profile("raglab", deadline=None)
settings.load_profile("raglab")


def pytest_configure(config):
    """Have the counts of fuzzed inputs printed at the end."""
    config.pluginmanager.register(table)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what waits for CI or for the week, and put the modules of `FIRST` first.

    All else stays in its order, which is the same in every worker.
    """
    for item in items:
        if level := level_of(item.nodeid):
            item.add_marker(level)
    places = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(FIRST)))


@pytest.fixture(scope="session", autouse=True)
def _one_tokenizer():
    """Read the bundled tokenizer once a process; each loading of a corpus asks for it again."""
    from raglab.models import tokens
    from raglab.models.files import bundled_model

    read, bundled = tokens._tokenizer, bundled_model()[1]
    once = cache(read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tokens,
            "_tokenizer",
            lambda inner, folder: (once if folder == bundled else read)(inner, folder),
        )
        yield


@pytest.fixture(scope="session")
def postgresql():
    """Return a server of PostgreSQL, one for a worker of the suite."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with server() as made:
        yield made


@pytest.fixture(scope="session")
def built(tmp_path_factory):
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
def bundled_trace(built):
    """Return the trace of the bundled questions, as the notebooks build it."""
    from raglab.store.traces import Trace

    return Trace.load(built)


@pytest.fixture(scope="session")
def empty_runs(tmp_path_factory):
    """Return a database of MLflow without a run, whose tables take seconds to make."""
    import mlflow

    database = tmp_path_factory.mktemp("runs") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}").search_experiments()
    return database


@pytest.fixture
def quick_study(monkeypatch):
    """Cross-fit a study's candidates once in three folds.

    For tests that are not about which of them is chosen.

    It is most of the time of a small study (`test_lab_selection` tests it whole).
    """
    from raglab.lab.study import tune

    for name, number in (("repeats", 1), ("folds", 3)):
        monkeypatch.setitem(tune.__wrapped__.__kwdefaults__, name, number)
    monkeypatch.setattr("raglab.lab.candidates.FOLD_SEARCH_ROUNDS", 1)


@pytest.fixture
def mlruns(tmp_path, empty_runs):
    """Return a folder for runs of this test alone."""
    folder = tmp_path / "mlruns"
    folder.mkdir()
    shutil.copy(empty_runs, folder)
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request, tmp_path):
    """Return places for logs on either database."""
    return Places(
        tmp_path, None if request.param == "sqlite" else request.getfixturevalue("postgresql")
    )


@pytest.fixture
def audit_logs(places):
    """Logs on either database, whose clock stands still, closed at the end of the test."""
    from raglab.audit.log import AuditLog

    logs: list[AuditLog] = []

    def make(name="audit.sqlite", **more):
        logs.append(
            AuditLog(places(name), clock=lambda: datetime(2026, 3, 2, 9, 0, tzinfo=UTC), **more)
        )
        return logs[-1]

    yield make
    for log in logs:
        log.close()


@pytest.fixture
def encoder(monkeypatch):
    """Return the encoder of words, which stands in for the bundled one."""
    from live_worlds import WordEncoder, stand_ins
    from raglab.live import retriever

    words = WordEncoder()
    for name, value in stand_ins(words).items():
        monkeypatch.setattr(retriever, name, value)
    return words


@pytest.fixture
def opened(tmp_path, encoder):
    """Return what opens a system over the small corpus, with an index of its own."""
    from live_worlds import OPEN, opener

    del encoder
    return opener(tmp_path / "index", OPEN)


@pytest.fixture
def made(tmp_path, encoder):
    """Return a builder of traces of the small corpus with a cache of its own."""
    from live_worlds import CASES, CORPUS, SMALL
    from raglab.live.trace_building import build_trace
    from raglab.retrieval.dense import EmbeddingCache

    del encoder
    cache = EmbeddingCache(tmp_path / "cache" / "embeddings.sqlite")
    return lambda cases=CASES, **more: build_trace(
        CORPUS, cases, **{"cache": cache, **SMALL, **more}
    )


@pytest.fixture
def calls(monkeypatch):
    """Return the count of what is retrieved for traces."""
    from live_worlds import Calls
    from raglab.live import trace_building

    seen, batch = Calls(), trace_building._batch

    def counted(ready, wanted, texts, scopes):
        if len(seen.sizes) == seen.stop_after:
            raise KeyboardInterrupt
        seen.sizes.append(len(texts))
        return batch(ready, wanted, texts, scopes)

    monkeypatch.setattr(trace_building, "_batch", counted)
    return seen


@pytest.fixture
def spans(monkeypatch):
    """Return the spans of a provider that stands in for the global one, which can be set once."""
    from raglab.live import telemetry
    from span_samples import Spans

    trace = pytest.importorskip("opentelemetry.trace")
    monkeypatch.delenv(telemetry.CAPTURE_VARIABLE, raising=False)
    recorded = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: recorded.provider)
    return recorded


@pytest.fixture
def disk(tmp_path, encoder):
    """Return a disk of 2 MB with an index of the small corpus in the folder `i`."""
    from hostile import small_disk
    from live_worlds import CORPUS, SMALL
    from raglab.live.system import build_index

    del encoder
    with small_disk(tmp_path / "disk", "2m") as place:
        build_index(CORPUS, place / "i", cache=None, **SMALL)
        yield place


@pytest.fixture(scope="module")
def app():
    """Return the example of a service as a module."""
    from local_server import APP

    pytest.importorskip("fastapi")
    spec = spec_from_file_location("service_app", APP)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def pytest_terminal_summary(terminalreporter):
    """Say in one line that nothing was tried on PostgreSQL."""
    if (reason := why_not()) is not None:
        terminalreporter.write_line(f"PostgreSQL: skipped, {reason}")


def pytest_collection_finish():
    """Search for garbage less often, and not in what was collected, which lives to the end.

    A third of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
