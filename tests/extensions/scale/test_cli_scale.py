"""Commands over what the room `scale` makes: indexes on disk and folders of shards."""

from __future__ import annotations

from typer.testing import CliRunner

from commands import certified, traced_folder
from labelled import free_policy, labelled
from raglab.cli import app
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.retrieval import index_kinds
from raglab.store.traces import Trace


def test_an_index_on_disk_of_a_trace(tmp_path, monkeypatch):
    """It is made where its kind is named, or `auto` chooses it."""
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "world").mkdir()
    world = traced_folder(tmp_path / "world")

    def traced(*options):
        out = str(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
        done = CliRunner().invoke(app, ["trace", str(world), "--out", out, "--quiet", *options])
        return done.exit_code, done.output if done.exit_code else Trace.load(out).meta[
            "parameters"
        ]["index"]

    assert traced("--index", "sqfp16") == (0, "sqfp16")
    monkeypatch.setattr(index_kinds, "FLAT_UP_TO", 2)
    assert traced() == (0, "sqfp16")


def test_a_certificate_of_the_folder_one_is_in(tmp_path, monkeypatch):
    """Its looks stand beside the folder, as if it had been given by its name."""
    save_shards([labelled(0, {"tune": 40, "certify": 60})], tmp_path / "shards", shard=30)
    free_policy().save(tmp_path / "p.yaml")
    monkeypatch.chdir(tmp_path / "shards")
    told = certified(".", "-p", "../p.yaml", "-t", "hallucination_rate=0.001")
    assert "on split tune, 40 of 40" in told
    assert len((tmp_path / "looks.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    monkeypatch.chdir(tmp_path)
    assert certified("shards", "-p", "p.yaml", "-t", "hallucination_rate=0.001") == told
    assert len((tmp_path / "looks.jsonl").read_text(encoding="utf-8").splitlines()) == 1
