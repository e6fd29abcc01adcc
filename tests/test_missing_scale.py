"""What asks for the room `scale` where it is not installed says which folder is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from labelled import free_policy, labelled
from raglab import extension_points
from raglab.cli import app
from raglab.extension_points import MissingExtensionError
from raglab.lab import study_storage
from raglab.live.trace_building import RetrievalSettings
from raglab.retrieval.index_kinds import index_builder
from raglab.retrieval.indexes import build_indexes
from raglab.store.traces import Trace, load_view
from raglab.values import Chunk, Corpus

CORPUS = Corpus("c", (Chunk("a#1", "It is a nest.", "a.md", 1),))
MISSING = "is in raglab/extensions/scale, which is not installed"


@pytest.fixture(autouse=True)
def _no_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension_points, "installed", tuple)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (Trace.open, "a trace of shards"),
        (load_view, "a trace of shards"),
        (lambda _: index_builder("ivfpq"), "an index of kind ivfpq"),
        (lambda _: RetrievalSettings(index="hnsw-sq8").sized(CORPUS), "an index of kind hnsw-sq8"),
    ],
)
def test_what_is_missing_is_named(
    call: Callable[[Path], object], what: str, tmp_path: Path
) -> None:
    """With its folder."""
    with pytest.raises(MissingExtensionError, match=f"{what}.* {MISSING}"):
        call(tmp_path)


def test_what_needs_no_room_goes_on(tmp_path: Path) -> None:
    """An exact index, and a trace of one file."""
    assert index_builder("flat") is build_indexes
    trace = labelled(0, {"": 10})
    trace.save(tmp_path / "t.parquet")
    assert load_view(tmp_path / "t.parquet").fingerprint == trace.fingerprint


def test_a_study_that_workers_share_is_not_finished_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that none was at is left as it is."""
    problem = SimpleNamespace(name="study", settings={})
    for shared in (False, True):
        monkeypatch.setattr(
            study_storage,
            "stored_study",
            lambda *_, shared=shared: SimpleNamespace(is_shared=shared),
        )
        if shared:
            with pytest.raises(
                MissingExtensionError, match=f"a study that workers share {MISSING}"
            ):
                study_storage.finish_shared_study(problem, "postgresql://host/name", None)
        else:
            study_storage.finish_shared_study(problem, "postgresql://host/name", None)


def test_the_commands_end_with_the_message(tmp_path: Path) -> None:
    """`raglab tune --worker`, and a folder of shards."""
    labelled(0, {"tune": 40, "report": 20}).save(tmp_path / "t.parquet")
    free_policy().save(tmp_path / "p.yaml")
    (tmp_path / "shards").mkdir()
    policy = ("-p", str(tmp_path / "p.yaml"))
    worker = ("--worker", "--storage", "postgresql://host/name", "--out", str(tmp_path / "out"))
    for command in (
        ("tune", str(tmp_path / "t.parquet"), *policy, *worker),
        ("report", str(tmp_path / "shards"), *policy, "-o", str(tmp_path / "r.html")),
    ):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, MISSING in done.output) == (1, True), done.output
