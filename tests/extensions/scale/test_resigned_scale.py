"""Manifests of shards whose hashes were made right again: refused, or the same decisions."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from extensions.scale.shard_builds import split_world
from fuzz.resigned import json_hash, reading_policies, resigned_documents, walk
from raglab.extensions.scale.shard_manifests import (
    MANIFEST_NAME,
    Manifest,
    ShardRow,
    file_hash,
    read_manifest,
)
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.replay import decide
from raglab.store.trace_files import content_hash, trace_head, trace_table, write
from raglab.store.traces import Trace, TraceError


def shard_decisions(trace):
    """Decisions over shards by the first arm and by each, and the cases of a split."""
    found = [decide(trace, one).frame().to_dict("records") for one in reading_policies()[:2]]
    return [found, [case.id for case in trace.split("tune").cases]]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Seven cases in shards of three."""
    folder = tmp_path_factory.mktemp("shards")
    save_shards([split_world()], folder, shard=3)
    return folder


def rewritten(folder, change):
    """The manifest of a folder with a change, and the sums and hashes that belong to it then."""
    path = folder / MANIFEST_NAME
    rows = json.loads(path.read_text())
    change(rows)
    shards = tuple(ShardRow(**row) for row in rows["shards"])
    path.write_text(
        json.dumps(Manifest(rows["version"], rows["before"], rows["shared"], shards).rows)
    )


def test_the_manifest_of_shards(shards, tmp_path):
    """Every ninth of the changes of each place of a manifest."""
    folder = tmp_path / "t"
    shutil.copytree(shards, folder)
    whole = json.loads((shards / MANIFEST_NAME).read_text())

    def read(document):
        (folder / MANIFEST_NAME).write_text(json.dumps(whole if document is None else document))
        return Trace.open(folder)

    changes = resigned_documents(whole, "content", json_hash)
    counts = walk(
        (change for number, change in enumerate(changes) if number % 9 == 0), read, shard_decisions
    )
    assert counts["refused"] > 33
    assert not counts["another"]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows["shards"].append(rows["shards"][0]),
        lambda rows: rows["shards"].append({**rows["shards"][0], "file": "copy.parquet"}),
        lambda rows: rows["shards"][0].update(
            counts={"report": {"ok": rows["shards"][0]["cases"]}}
        ),
        lambda rows: rows["shared"].update(arms=rows["shared"]["arms"][::-1]),
        lambda rows: rows["shared"].update(depths=1),
        lambda rows: rows["shared"].update({"gates_off in their meta": ["l2"]}),
        lambda rows: rows["shards"][0].update(fingerprint="another"),
        lambda rows: rows["shards"][0].update(sha256=rows["shards"][1]["sha256"]),
    ],
    ids=["twice", "copied", "counts", "arms", "depths", "gates off", "fingerprint", "hash"],
)
def test_a_manifest_that_says_what_its_shards_do_not(shards, tmp_path, change):
    """Repeated shards at once.

    What a shard does not hold where it is loaded, or where its cases are.
    """
    folder = tmp_path / "t"
    shutil.copytree(shards, folder)
    first = read_manifest(folder).shards[0].file
    shutil.copy(folder / first, folder / "copy.parquet")
    rewritten(folder, change)
    with pytest.raises(TraceError, match="must"):
        shard_decisions(Trace.open(folder))


def test_a_shard_of_other_decisions(shards, tmp_path):
    """A shard with a measurement that is none, under hashes that fit: the shard is refused."""
    folder = tmp_path / "t"
    shutil.copytree(shards, folder)
    row = read_manifest(folder).shards[1]
    trace = Trace.load(folder / row.file)
    bad = dataclasses.replace(trace, hits=trace.hits._replace(rank=trace.hits.rank * 2))
    write(trace_table(bad, trace_head(bad, content_hash(bad))), folder / row.file)
    rewritten(folder, lambda rows: rows["shards"][1].update(sha256=file_hash(folder / row.file)))
    with pytest.raises(TraceError, match="rank must count 0, 1, 2"):
        shard_decisions(Trace.open(folder))
