"""Workers of loops over shards: the same bytes for any kind and number, and for one that was killed."""

from __future__ import annotations

import gc
import os
import signal
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import raglab
from raglab.extensions.scale.sharded_traces import ShardedTrace, save_shards
from raglab.parallel import processors, run_each, workers
from raglab.replay import steps, sweep
from raglab.store.traces import Trace
from test_store_traces import stored
from worlds import random_policies, random_trace


def whole() -> Trace:
    """Trace of eleven cases."""
    return stored(random_trace(4, n_cases=11))


@pytest.fixture
def sharded(tmp_path: Path) -> ShardedTrace[Trace]:
    """Return the trace in shards of two."""
    return save_shards([whole()], tmp_path / "t", shard=2)


def written(trace: Any) -> bytes:
    """Sweep and steps of some policies as bytes."""
    policies = random_policies(4, 6)
    frames = [sweep(trace, policies), steps(trace, policies[0]), steps(trace, policies[1], "l2.max_l2")]
    assert all(isinstance(frame, pd.DataFrame) for frame in frames)
    return b"".join(frame.to_csv(float_format="%.17g").encode() for frame in frames)


def slow_product(item: int, factor: int) -> int:
    """Product, later of the first items than of the last."""
    time.sleep(0.02 * (5 - item))
    return item * factor


def killed_once(item: int, folder: str, at: int) -> int:
    """Square of an item; the process that first has item `at` is killed."""
    mark = Path(folder) / "killed"
    if item == at and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


def always_killed(item: int) -> int:
    """Nothing, of a process that is killed."""
    del item
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def failing(item: int) -> int:
    """Item, or an error of the third."""
    if item == 2:
        msg = f"item must not be 2, got {item}; leave it out."
        raise ValueError(msg)
    return item


def test_results_come_in_the_order_of_the_items() -> None:
    """By head: five products, whatever is done first."""
    for n in (1, 2, 4):
        with workers("threads", n=n):
            assert list(run_each(slow_product, range(5), 3, what="multiply")) == [0, 3, 6, 9, 12]
    assert list(run_each(slow_product, iter(range(5)), 3, what="multiply")) == [0, 3, 6, 9, 12]


def test_an_error_of_an_item_is_the_error_of_the_loop() -> None:
    """Its rule, value and remedy come through, and those before it."""
    with workers("threads", n=2):
        done: Iterator[int] = run_each(failing, range(9), what="try")
        assert [next(done), next(done)] == [0, 1]
        with pytest.raises(ValueError, match=r"item must not be 2, got 2; leave it out\."):
            next(done)


def test_the_workers_are_those_of_the_block() -> None:
    """Nested, the inner ones; behind the block none again; one a processor where no number is given."""
    with workers() as outer:
        assert outer.n == processors()
        with raglab.workers("joblib", n=3) as inner:
            assert repr(inner) == "Workers(joblib, 3)"
    assert callable(raglab.workers)


@pytest.mark.parametrize(
    ("kind", "n", "rule"),
    [
        ("cluster", None, "workers must be threads, joblib or a dask.distributed.Client, got 'cluster'"),
        (None, None, "workers must be threads, joblib or a dask.distributed.Client, got 'None'"),
        ("threads", 0, "n must be a whole number of at least 1, got 0"),
        ("joblib", 1.5, "n must be a whole number of at least 1, got 1.5"),
        ("joblib", True, "n must be a whole number of at least 1, got True"),
    ],
)
def test_workers_that_are_none(kind: Any, n: Any, rule: str) -> None:
    """Another kind or number is told before anything runs."""
    with pytest.raises(ValueError, match=rule), workers(kind, n=n):
        pass


def test_threads_count_as_one_process(sharded: ShardedTrace[Trace]) -> None:
    """Sweep and steps of 1, 2 and 4 threads are those of no workers and of the trace in one piece."""
    expected = written(whole())
    assert written(sharded) == expected
    for n in (1, 2, 4):
        with workers("threads", n=n):
            assert written(sharded) == expected


def test_one_shard_is_held_at_a_time(sharded: ShardedTrace[Trace], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a shard is loaded the one before it is gone, and nothing stays when the counts are there."""
    alive: list[weakref.ref[Trace]] = []
    most: list[int] = []
    load = Trace.load.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Trace], path: str) -> Trace:
        gc.collect()
        most.append(sum(one() is not None for one in alive))
        made: Trace = load(cls, path)
        alive.append(weakref.ref(made))
        return made

    monkeypatch.setattr(Trace, "load", classmethod(counted))
    written(sharded)
    gc.collect()
    assert len(most) == 18
    assert max(most) == 0
    assert not any(one() is not None for one in alive)


@pytest.mark.slow
def test_processes_count_as_one(sharded: ShardedTrace[Trace]) -> None:
    """Sweep and steps of 1, 2 and 4 processes of joblib are those of no workers."""
    expected = written(sharded)
    for n in (1, 2, 4):
        with workers("joblib", n=n):
            assert written(sharded) == expected


@pytest.mark.slow
def test_a_block_of_a_killed_process_is_done_again(tmp_path: Path) -> None:
    """Once, with every result in its place; a process that is killed at each try is told."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with workers("joblib", n=2):
        done = list(run_each(killed_once, range(12), str(tmp_path), 7, what="square"))
        assert done == [item * item for item in range(12)]
        assert (tmp_path / "killed").exists()
        with pytest.raises(TerminatedWorkerError):
            list(run_each(always_killed, range(3), what="try"))


@pytest.mark.slow
def test_a_cluster_counts_as_one_process(sharded: ShardedTrace[Trace], tmp_path: Path) -> None:
    """Two processes of a local cluster of Dask: the same bytes, one killed in between included."""
    distributed = pytest.importorskip("distributed", reason="raglab-toolkit[dask] is not installed")
    expected = written(sharded)
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, local_directory=str(tmp_path / "dask")) as cluster,
        distributed.Client(cluster) as client,
        workers(client) as running,
    ):
        assert running.n == 2
        assert written(sharded) == expected
        done = list(run_each(killed_once, range(12), str(tmp_path), 7, what="square"))
        assert done == [item * item for item in range(12)]
        assert (tmp_path / "killed").exists()
        assert written(sharded) == expected
        with pytest.raises(ValueError, match="n must be left out of a cluster, got 2"), workers(client, n=2):
            pass
