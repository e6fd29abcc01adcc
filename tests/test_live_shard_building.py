"""Shards that other processes build: the bytes of one process, a killed worker and a lost scheduler included."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import raglab
from raglab.live import trace_building
from raglab.live.shard_building import WORK, build_shards, read_cases, read_corpus, write_work
from raglab.models import Encoding
from raglab.retrieval.dense import EmbeddingCache
from raglab.store.files import InputError
from raglab.store.loaders import hash_corpus, load_cases, load_corpus
from raglab.values import Case, Corpus
from test_live_trace_building import WordEncoder, encoder, stand_ins  # noqa: F401 - a fixture

BROKER = Path(__file__).parents[1] / "datasets" / "broker"
BUILD = """
import signal, sys
from distributed import Client, LocalCluster
sys.path.insert(0, sys.argv[1])
import raglab
from test_live_shard_building import OPTIONS, inputs, read_words, workers_read_words
if __name__ == "__main__":
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "local_directory": sys.argv[3]}
    read_words()
    with LocalCluster(**options) as cluster, Client(cluster) as client, raglab.workers(client):
        workers_read_words(client, signal.pause)
        raglab.build_shards(*inputs(), sys.argv[2], **OPTIONS)
"""
OPTIONS: dict[str, Any] = {"shard": 2, "batch_size": 1, "cache": None}


def inputs() -> tuple[Corpus, list[Case]]:
    """A part of the bundled documents, and ten questions that name none of them."""
    corpus = load_corpus(BROKER / "documents")
    corpus = corpus._replace(chunks=corpus.chunks[::24])
    cases = [case for case in load_cases(BROKER / "cases.jsonl") if not case.selected_sources][::30][:10]
    return corpus, [case._replace(expect_sources=(), expect_sources_any=()) for case in cases]


def written(folder: Path) -> dict[str, bytes]:
    """Bytes of the shards and of the manifest; times that were measured are not among them."""
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")} | {
        "manifest.json": (folder / "manifest.json").read_bytes()
    }


class InterruptedEncoder(WordEncoder):
    """The encoder of words; something happens to its process when it comes to the last question."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self.happens, self.last = happens, inputs()[1][-1].query

    def both(self, texts: Sequence[str], *, query: bool = False) -> Encoding:
        """Sentence and token embeddings."""
        if query and self.last in texts:
            self.happens()
        return super().both(texts, query=query)


def read_words(happens: Callable[[], object] = bool) -> None:
    """Have this process read by an encoder of words: no worker takes ten seconds to load a model."""
    for name, value in stand_ins(InterruptedEncoder(happens)).items():
        setattr(trace_building, name, value)


def workers_read_words(client: Any, happens: Callable[[], object]) -> None:
    """Have each worker of a cluster read so, also one that takes the place of another."""
    from distributed import WorkerPlugin

    class Words(WorkerPlugin):  # type: ignore[misc]
        def setup(self, worker: Any) -> None:
            del worker
            read_words(happens)

    client.register_plugin(Words())


def kill_once(mark: Path) -> None:
    """Kill this process, unless another was."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Shards as one process builds them."""
    folder = tmp_path_factory.mktemp("alone")
    build_shards(*inputs(), folder, **OPTIONS)
    return written(folder)


@pytest.fixture
def alone_by_words(tmp_path: Path, encoder: WordEncoder) -> dict[str, bytes]:  # noqa: F811 - the fixture
    """Shards as one process builds them that reads by the encoder of words."""
    del encoder
    build_shards(*inputs(), tmp_path / "alone", **OPTIONS)
    return written(tmp_path / "alone")


def test_work_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Corpus and cases of each shard; a corpus of another hash is refused."""
    corpus, cases = inputs()
    write_work(tmp_path, corpus, [cases[:2], cases[2:5]])
    assert hash_corpus(read_corpus(tmp_path, hash_corpus(corpus))) == hash_corpus(corpus)
    assert read_cases(tmp_path, 1) == cases[2:5]
    with pytest.raises(InputError, match="those that it wrote for its workers"):
        read_corpus(tmp_path, "0" * 64)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "joblib"])
def test_workers_of_this_machine_build_the_same(kind: str, alone: dict[str, bytes], tmp_path: Path) -> None:
    """Two of either kind; nothing is left of what they read."""
    with raglab.workers(kind, n=2):
        made = build_shards(*inputs(), tmp_path / "t", **(OPTIONS | {"cache": EmbeddingCache(tmp_path / "e.sqlite")}))
    assert (written(tmp_path / "t"), len(made)) == (alone, 10)
    assert not (tmp_path / "t" / WORK).exists()


@pytest.mark.slow
def test_a_killed_worker_of_a_cluster(alone_by_words: dict[str, bytes], tmp_path: Path) -> None:
    """One of two processes is killed with a shard in hand: it is built again, to the same bytes."""
    distributed = pytest.importorskip("distributed", reason="raglab[dask] is not installed")
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, local_directory=str(tmp_path / "dask")) as cluster,
        distributed.Client(cluster) as client,
        raglab.workers(client),
    ):
        workers_read_words(client, partial(kill_once, tmp_path / "killed"))
        build_shards(*inputs(), tmp_path / "t", **OPTIONS)
    assert (tmp_path / "killed").exists()
    assert written(tmp_path / "t") == alone_by_words


@pytest.mark.slow
def test_a_lost_scheduler(alone_by_words: dict[str, bytes], tmp_path: Path) -> None:
    """Cluster and client are killed with the last shard in hand; the next build leaves the first as it is."""
    pytest.importorskip("distributed", reason="raglab[dask] is not installed")
    script, folder = tmp_path / "build.py", tmp_path / "t"
    script.write_text(BUILD, encoding="utf-8")
    command = [sys.executable, str(script), str(Path(__file__).parent), str(folder), str(tmp_path / "dask")]
    with (tmp_path / "log").open("wb") as log:
        building = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            while not (folder / "v1-00000.parquet").exists():
                assert building.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.05)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(building.pid, signal.SIGKILL)
            building.wait()
    assert not (folder / "manifest.json").exists()
    first = (folder / "v1-00000.parquet").stat()
    build_shards(*inputs(), folder, **OPTIONS)
    after = (folder / "v1-00000.parquet").stat()
    assert (after.st_mtime_ns, after.st_ino) == (first.st_mtime_ns, first.st_ino)
    assert written(folder) == alone_by_words
