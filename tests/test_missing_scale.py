"""What asks for the room `scale` where it is not installed says which folder is missing."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from labelled import free_policy, labelled
from raglab import extension_points
from raglab.cli import app
from raglab.extension_points import MissingExtensionError
from raglab.live.retriever import RetrievalSettings
from raglab.store.traces import Trace, load_view
from raglab.values import Chunk, Corpus

CORPUS = Corpus("c", (Chunk("a#1", "It is a nest.", "a.md", 1),))
MISSING = "is in raglab/extensions/scale, which is not installed"


@pytest.fixture(autouse=True)
def _no_rooms(monkeypatch):
    monkeypatch.setattr(extension_points, "installed", tuple)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (Trace.open, "a trace of shards"),
        (load_view, "a trace of shards"),
        (lambda _: RetrievalSettings(index="sqfp16").sized(CORPUS), "an index of kind sqfp16"),
    ],
)
def test_what_is_missing_is_named(call, what, tmp_path):
    """With its folder."""
    with pytest.raises(MissingExtensionError, match=f"{what}.* {MISSING}"):
        call(tmp_path)


def test_what_needs_no_room_goes_on(tmp_path):
    """An exact index, and a trace of one file."""
    assert RetrievalSettings().sized(CORPUS).index == "flat"
    trace = labelled(0, {"": 10})
    trace.save(tmp_path / "t.parquet")
    assert load_view(tmp_path / "t.parquet").fingerprint == trace.fingerprint


def test_a_command_ends_with_the_message(tmp_path):
    """For a folder of shards."""
    free_policy().save(tmp_path / "p.yaml")
    (tmp_path / "shards").mkdir()
    call = ("report", str(tmp_path / "shards"), "-p", str(tmp_path / "p.yaml"))
    done = CliRunner().invoke(app, [*call, "-o", str(tmp_path / "r.html")])
    assert (done.exit_code, MISSING in done.output) == (1, True), done.output
