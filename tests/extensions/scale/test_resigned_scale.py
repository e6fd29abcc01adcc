"""Manifests of shards and large indexes whose hashes were made right again.

Refused, or the same decisions and hits.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from extensions.scale.test_live_large_index import ASKED, WORDS, make
from extensions.scale.test_store_sharded_traces import world
from fuzz.resigned import Change, array_changes, json_hash, resigned_documents
from raglab.extensions.scale.large_index import FAISS, MANIFEST, _file, manifest_digest, open_large
from raglab.extensions.scale.shard_manifests import Manifest, ShardRow, file_hash, read_manifest
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.replay import decide
from raglab.store.files import InputError
from raglab.store.trace_files import content_hash, trace_head, trace_table, write
from raglab.store.traces import Trace, TraceError
from test_resigned import policies, walk

KEY = "0123456789abcdef"


def shard_decisions(trace: Any) -> list[Any]:
    """Decisions over shards by the first arm and by each, and the cases of a split."""
    found = [decide(trace, one).frame().to_dict("records") for one in policies()[:2]]
    return [found, [case.id for case in trace.split("tune").cases]]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven cases in shards of three."""
    folder = tmp_path_factory.mktemp("shards")
    save_shards([world()], folder, shard=3)
    return folder


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The manifest of a folder with a change, and the sums and hashes that belong to it then."""
    path = folder / MANIFEST
    rows = json.loads(path.read_text())
    change(rows)
    shards = tuple(ShardRow(**row) for row in rows["shards"])
    path.write_text(
        json.dumps(Manifest(rows["version"], rows["before"], rows["shared"], shards).rows)
    )


def test_the_manifest_of_shards(shards: Path, tmp_path: Path) -> None:
    """Every place of a manifest with each change."""
    folder = tmp_path / "t"
    shutil.copytree(shards, folder)
    whole = json.loads((shards / MANIFEST).read_text())

    def read(document: Any) -> Any:
        (folder / MANIFEST).write_text(json.dumps(whole if document is None else document))
        return Trace.open(folder)

    changes = resigned_documents(whole, "content", json_hash)
    counts = walk(
        (change for number, change in enumerate(changes) if number % 3 == 0), read, shard_decisions
    )
    assert counts["refused"] > 100
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
def test_a_manifest_that_says_what_its_shards_do_not(
    shards: Path, tmp_path: Path, change: Any
) -> None:
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


def test_a_shard_of_other_decisions(shards: Path, tmp_path: Path) -> None:
    """A shard with a measurement that is none, under hashes that fit: the shard is refused."""
    folder = tmp_path / "t"
    shutil.copytree(shards, folder)
    row = read_manifest(folder).shards[1]
    trace = Trace.load(folder / row.file)
    bad = dataclasses.replace(trace, hits=trace.hits._replace(rank=trace.hits.rank * 2))
    write(trace_table(bad, trace_head(bad, content_hash(bad))), folder / row.file)
    rewritten(folder, lambda rows: rows["shards"][1].update(sha256=file_hash(folder / row.file)))
    with pytest.raises(TraceError, match="rank must be as retrieval measures it"):
        shard_decisions(Trace.open(folder))


def signed(folder: Path, name: str) -> None:
    """The manifest of a large index with the hash that a file of it has now."""
    path = folder / MANIFEST
    stated = json.loads(path.read_text())
    new = _file(folder / name).model_dump()
    stated["files"] = [new if one["name"] == name else one for one in stated["files"]]
    stated["digest"] = manifest_digest(stated)
    path.write_text(json.dumps(stated))


def answers(index: Any) -> list[Any]:
    """Hits of every question by vectors and by words."""
    l2, near = index.dense.search(ASKED, 5)
    scores, texts = index.bm25.search([" ".join(WORDS), "fence flood", "of the"], 5)
    return [array.tolist() for array in (l2, near, scores, texts)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A large index of the graph."""
    folder = tmp_path_factory.mktemp("large") / "i"
    make(folder, "hnsw-sq8")
    return folder


def test_every_array_of_a_large_index(large: Path, tmp_path: Path) -> None:
    """Shards of vectors and lists of words, each with each change."""
    folder = tmp_path / "i"
    shutil.copytree(large, folder)

    def changes() -> Iterator[Change]:
        for path in sorted(large.glob("*.npy")):
            array = np.load(path)
            for change in array_changes(array):
                np.save(folder / path.name, change.content)
                signed(folder, path.name)
                yield Change(f"{path.name}: {change.what}", change.malformed, folder)
            shutil.copy(path, folder / path.name)
            signed(folder, path.name)

    counts = walk(changes(), lambda place: open_large(place or large, KEY), answers)
    assert counts["refused"] > 60


def test_the_manifest_of_a_large_index(large: Path, tmp_path: Path) -> None:
    """Every place of its manifest with each change."""
    folder = tmp_path / "i"
    shutil.copytree(large, folder)
    whole = json.loads((large / MANIFEST).read_text())

    def read(document: Any) -> Any:
        (folder / MANIFEST).write_text(json.dumps(whole if document is None else document))
        return open_large(folder, KEY)

    counts = walk(resigned_documents(whole, "digest", manifest_digest), read, answers)
    assert counts["refused"] > 300


def _edit(name: str, places: slice, value: Any) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        vector = getattr(index.hnsw, name)
        array = faiss.vector_to_array(vector)
        array[places] = value
        faiss.copy_array_to_vector(array, vector)

    return change


def _to_the_ground(index: Any) -> None:
    """A link of level 1 to a vector that has none of that level."""
    graph = index.hnsw
    links, levels = faiss.vector_to_array(graph.neighbors), faiss.vector_to_array(graph.levels)
    start = faiss.vector_to_array(graph.offsets)[np.flatnonzero(levels > 1)[0]]
    links[int(start) + int(graph.cum_nneighbor_per_level.at(1))] = np.flatnonzero(levels == 1)[0]
    faiss.copy_array_to_vector(links, graph.neighbors)


def _low_entry(index: Any) -> None:
    index.hnsw.entry_point = int(np.flatnonzero(faiss.vector_to_array(index.hnsw.levels) == 1)[0])


def _endless_range(index: Any) -> None:
    trained = faiss.downcast_index(index.storage).sq.trained
    array = faiss.vector_to_array(trained)
    array[0] = np.nan
    faiss.copy_array_to_vector(array, trained)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (_edit("neighbors", slice(0, 1), 10**6), "out of range"),
        (_edit("levels", slice(0, 1), 100), "out of range"),
        (_edit("offsets", slice(3, 4), 2**40), "offsets"),
        (_to_the_ground, "links of level 1 must lead to vectors of that level"),
        (_low_entry, "a graph must be entered at a vector of its highest level"),
        (_endless_range, "of finite ranges"),
    ],
)
def test_a_graph_that_leads_out_of_itself(
    large: Path, tmp_path: Path, change: Any, rule: str
) -> None:
    """FAISS refuses the first three; the others it would follow."""
    folder = tmp_path / "i"
    shutil.copytree(large, folder)
    index = faiss.read_index(str(folder / FAISS))
    change(index)
    faiss.write_index(index, str(folder / FAISS))
    signed(folder, FAISS)
    with pytest.raises(InputError, match=f"its files must be those of an index.*{rule}"):
        open_large(folder, KEY)


def test_cells_that_hold_a_vector_twice(tmp_path: Path) -> None:
    """Or none, or one that there is not; and centres that are no numbers."""
    folder = tmp_path / "i"
    make(folder, "ivfpq")
    whole = (folder / FAISS).read_bytes()

    def refused(change: Callable[[Any], None], rule: str) -> None:
        (folder / FAISS).write_bytes(whole)
        index = faiss.read_index(str(folder / FAISS))
        change(index)
        faiss.write_index(index, str(folder / FAISS))
        signed(folder, FAISS)
        with pytest.raises(InputError, match=rule):
            open_large(folder, KEY)

    def ids(value: int) -> Callable[[Any], None]:
        def change(index: Any) -> None:
            cell = next(cell for cell in range(index.nlist) if index.invlists.list_size(cell) > 1)
            faiss.rev_swig_ptr(index.invlists.get_ids(cell), index.invlists.list_size(cell))[0] = (
                value
            )

        return change

    def centroids(index: Any) -> None:
        array = faiss.vector_to_array(index.pq.centroids)
        array[3] = np.nan
        faiss.copy_array_to_vector(array, index.pq.centroids)

    refused(ids(10**6), "cells must hold vectors from 0 to")
    refused(ids(-1), "cells must hold vectors from 0 to")
    (folder / FAISS).write_bytes(whole)
    index = faiss.read_index(str(folder / FAISS))  # its lists live as long as it does
    lists = index.invlists
    last = next(cell for cell in reversed(range(lists.nlist)) if lists.list_size(cell))
    refused(ids(int(faiss.rev_swig_ptr(lists.get_ids(last), 1)[0])), "each once")
    refused(centroids, "centres of cells must be finite")
