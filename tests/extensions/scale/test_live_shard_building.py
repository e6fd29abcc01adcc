"""Shards that other processes build.

The bytes of one process, a killed worker and a lost scheduler included.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import raglab
from extensions.scale.shard_builds import OPTIONS, inputs, workers_read_words
from live_worlds import CASES, CORPUS, SMALL
from raglab.extensions.scale import shard_building
from raglab.extensions.scale.shard_building import (
    WORK_FOLDER,
    WORK_MARK,
    build_shards,
)
from raglab.live import trace_building
from raglab.retrieval.dense import EmbeddingCache
from raglab.store.files import InputError
from raglab.store.traces import Trace
from worlds import random_policies

TESTS = Path(__file__).parents[2]
BUILD = """
import signal, sys
from distributed import Client, LocalCluster
sys.path.insert(0, sys.argv[1])
import raglab
from extensions.scale.shard_builds import OPTIONS, inputs, read_words, workers_read_words
if __name__ == "__main__":
    options = {"n_workers": 1, "processes": False, "dashboard_address": None, \
"local_directory": sys.argv[3]}
    read_words()
    with LocalCluster(**options) as cluster, Client(cluster) as client, \
raglab.lab.parallel_workers(client):
        workers_read_words(client, signal.pause)
        raglab.io.build_shards(*inputs(), sys.argv[2], **OPTIONS)
"""


def written(folder):
    """Bytes of the shards and of the manifest; times that were measured are not among them."""
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")} | {
        "manifest.json": (folder / "manifest.json").read_bytes()
    }


def kill_once(mark):
    """Kill this process, unless another was."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def alone(tmp_path, encoder):
    """Shards as one process builds them that reads by the encoder of words."""
    del encoder
    build_shards(*inputs(), tmp_path / "alone", **OPTIONS)
    return written(tmp_path / "alone")


class Sent:
    """Stands in for `run_each`.

    What a process of this machine would be sent, done by this one instead.
    """

    def __init__(self, before=bool):
        self.before = before  # the first shard is begun
        self.items: list[tuple[int, str]] = []
        self.work: Any = None

    def __call__(self, function, items, work, *, what):
        """Results of the function."""
        del what
        self.items, self.work = items, work
        self.before()
        return [function(item, work) for item in items]


def killed(*_):
    """Stop as a kill would: nothing after it is done."""
    raise KeyboardInterrupt


def build_apart(
    patch,
    folder,
    cases,
    before=bool,
    **options,
):
    """Build by the code of another process, in this one; a build that is killed ends there."""
    sent = Sent(before)
    with (
        patch.context() as inside,
        raglab.lab.parallel_workers("joblib", n=2),
        suppress(KeyboardInterrupt),
    ):
        inside.setattr(shard_building, "run_each", sent)
        cache = EmbeddingCache(folder / "e.sqlite")
        build_shards(inputs()[0], cases, folder, **(OPTIONS | {"cache": cache} | options))
    return sent


@pytest.mark.usefixtures("encoder")
@pytest.mark.parametrize("ends", [True, False])
def test_a_worker_that_was_left_over_refuses(tmp_path, monkeypatch, *, ends):
    """It waits for a shard's lock while another build ends, or has its shards but no manifest.

    They stay as they are.

    The other is of other cases, then of the same cases by other settings.
    """
    corpus, cases = inputs()
    sent = build_apart(monkeypatch, tmp_path, cases[:4], killed)
    lock = shard_building.locked
    stood: dict[str, bytes] = {}

    @contextmanager
    def waiting(path, wait_s=60.0):
        del wait_s
        path.touch()  # open before the other build ends, and free once it has
        monkeypatch.setattr(shard_building, "locked", lock)
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            if not ends:
                patch.setattr(shard_building, "replace_shards", killed)
            settings: dict[str, Any] = {} if ends else {"fetch_k": 6, "rerank_k": 4}
            build_shards(corpus, cases[4:8] if ends else cases[:4], tmp_path, **OPTIONS, **settings)
        stood.update({path.name: path.read_bytes() for path in tmp_path.glob("v1-*.parquet")})
        yield

    monkeypatch.setattr(shard_building, "locked", waiting)
    for item in sent.items:
        with pytest.raises(InputError, match="must be those that it wrote for its workers"):
            shard_building._build_in_process(item, sent.work)
    assert len(stood) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.glob("v1-*.parquet")} == stood
    assert (tmp_path / "manifest.json").exists() is ends


@pytest.mark.usefixtures("encoder")
def test_a_worker_refuses_where_another_write_has_made_its_version(tmp_path, monkeypatch):
    """`save_shards` knows no work: its folder still names the build that was killed."""
    corpus, cases = inputs()
    sent = build_apart(monkeypatch, tmp_path / "t", cases[:4], killed)
    raglab.io.save_shards(
        [build_shards(corpus, cases[4:8], tmp_path / "other", **OPTIONS)], tmp_path / "t"
    )
    with pytest.raises(InputError, match="must be those that it wrote for its workers"):
        shard_building._build_in_process(sent.items[0], sent.work)
    assert [len(shard) for shard in Trace.open(tmp_path / "t").shards()] == [2, 2]


@pytest.mark.usefixtures("encoder")
def test_a_folder_of_others_is_never_deleted(tmp_path):
    """A build refuses to write into it; a folder of its own goes."""
    corpus, cases = inputs()
    (tmp_path / WORK_FOLDER).mkdir()
    (tmp_path / WORK_FOLDER / "notes").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"build.parts: .* must be one that a build wrote"):
        build_shards(corpus, cases[:2], tmp_path, **OPTIONS)
    assert (tmp_path / WORK_FOLDER / "notes").read_text(encoding="utf-8") == "mine"
    (tmp_path / WORK_FOLDER / WORK_MARK).touch()
    build_shards(corpus, cases[:2], tmp_path, **OPTIONS)
    assert not (tmp_path / WORK_FOLDER).exists()


@pytest.mark.usefixtures("encoder")
def test_a_mapped_index_gives_the_bytes_of_one_process(tmp_path, monkeypatch):
    """The code of another process searches the index on disk, which was made once."""
    corpus, cases = inputs()
    alone, apart = tmp_path / "alone", tmp_path / "apart"
    cache = EmbeddingCache(alone / "e.sqlite")
    build_shards(corpus, cases, alone, **OPTIONS | {"cache": cache, "index": "sqfp16"})
    assert len(build_apart(monkeypatch, apart, cases, index="sqfp16").items) == 4
    assert written(alone) == written(apart)
    for folder in (alone, apart):
        assert len(list(folder.glob("large-*/manifest.txt"))) == 1
        assert not (folder / WORK_FOLDER).exists()


def test_a_killed_worker_of_a_cluster(alone, tmp_path):
    """One of two processes is killed with a shard in hand: it is built again, to the same bytes.

    The cluster counts over the shards as one process does.
    """
    distributed = pytest.importorskip("distributed", reason="raglab-toolkit[dask] is not installed")
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, local_directory=str(tmp_path / "dask")) as cluster,
        distributed.Client(cluster) as client,
        raglab.lab.parallel_workers(client),
    ):
        workers_read_words(client, partial(kill_once, tmp_path / "killed"))
        trace = build_shards(*inputs(), tmp_path / "t", **OPTIONS)
        counts = raglab.sweep(trace, random_policies(4, 3))
    assert (tmp_path / "killed").exists()
    assert written(tmp_path / "t") == alone
    pd.testing.assert_frame_equal(counts, raglab.sweep(trace, random_policies(4, 3)))


def test_a_lost_scheduler(alone, tmp_path):
    """Cluster and client are killed with the last shard in hand.

    The next build leaves the first as it is.
    """
    pytest.importorskip("distributed", reason="raglab-toolkit[dask] is not installed")
    script, folder = tmp_path / "build.py", tmp_path / "t"
    script.write_text(BUILD, encoding="utf-8")
    command = [sys.executable, str(script), str(TESTS), str(folder), str(tmp_path / "dask")]
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
    assert written(folder) == alone


class TestShards:
    """Traces that are built shard by shard."""

    def test_the_shards_are_the_traces_of_their_cases(
        self,
        made,
        tmp_path,
    ):
        """By head: seven cases in shards of three.

        Each file has the bytes of a trace of those cases alone.
        """
        cache = EmbeddingCache(tmp_path / "other.sqlite")
        sharded = build_shards(
            CORPUS, CASES, tmp_path / "t", shard=3, cache=cache, batch_size=2, **SMALL
        )
        assert ([len(part) for part in sharded.shards()], sharded.version) == ([3, 3, 1], 1)
        for number, start in enumerate((0, 3, 6)):
            whole = tmp_path / f"{number}.parquet"
            made(CASES[start : start + 3], out=whole)
            shard = tmp_path / "t" / f"v1-0000{number}.parquet"
            assert shard.read_bytes() == whole.read_bytes()

    def test_a_killed_build_goes_on_at_its_shard(
        self,
        encoder,
        tmp_path,
        monkeypatch,
    ):
        """Stopped within the second of three shards.

        The first is not asked again, and the bytes are the same.
        """
        queries: list[str] = []
        batch = trace_building._batch

        def counted(*values):
            queries.extend(values[2])
            if len(queries) == 5 and stopped:
                stopped.clear()
                raise KeyboardInterrupt
            return batch(*values)

        monkeypatch.setattr(trace_building, "_batch", counted)
        options: dict[str, Any] = {"shard": 3, "batch_size": 1, "cache": None, **SMALL}
        stopped: list[bool] = []
        build_shards(CORPUS, CASES, tmp_path / "whole", **options)
        expected = written(tmp_path / "whole")
        queries.clear()
        stopped.append(True)
        with pytest.raises(KeyboardInterrupt):
            build_shards(CORPUS, CASES, tmp_path / "t", **options)
        assert (tmp_path / "t" / "v1-00000.parquet").exists()
        assert not (tmp_path / "t" / "manifest.json").exists()
        assert len(build_shards(CORPUS, CASES, tmp_path / "t", **options)) == 7
        assert written(tmp_path / "t") == expected
        assert queries == [case.query for case in (*CASES[:5], *CASES[4:])]
        encoder.seen.clear()
        # A trace that is opened asks and encodes nothing.
        assert build_shards(CORPUS, CASES, tmp_path / "t", **options).version == 1
        assert (encoder.seen, len(queries)) == ([], 8)
