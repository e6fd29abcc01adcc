"""Workers of loops over shards.

The same bytes for any kind and number, and one shard held at a time.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pandas as pd
import pytest

from processes import killed_once
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.loops.parallel import parallel_workers, run_each
from raglab.replay import steps, sweep
from raglab.store.traces import Trace
from stored_traces import stored
from worlds import random_policies, random_trace


def whole():
    """Trace of eleven cases."""
    return stored(random_trace(4, n_cases=11))


@pytest.fixture
def sharded(tmp_path):
    """Return the trace in shards of two."""
    return save_shards([whole()], tmp_path / "t", shard=2)


def written(trace):
    """Sweep and steps of some policies as bytes."""
    policies = random_policies(4, 6)
    frames = [
        sweep(trace, policies),
        steps(trace, policies[0]),
        steps(trace, policies[1], path="l2.max_l2"),
    ]
    assert all(isinstance(frame, pd.DataFrame) for frame in frames)
    return b"".join(frame.to_csv(float_format="%.17g").encode() for frame in frames)


def test_threads_count_as_one_process(sharded):
    """Sweep and steps of 1, 2 and 4 threads equal those of no workers and of the whole trace."""
    expected = written(whole())
    assert written(sharded) == expected
    for n in (1, 2, 4):
        with parallel_workers("threads", n=n):
            assert written(sharded) == expected


def test_one_shard_is_held_at_a_time(sharded, monkeypatch):
    """Before a shard is loaded the one before is gone, and nothing stays when counts are there."""
    alive: list[weakref.ref[Trace]] = []
    most: list[int] = []
    load = Trace.load.__func__  # type: ignore[attr-defined]

    def counted(cls, path):
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


def test_processes_count_as_one(sharded):
    """Sweep and steps of 1, 2 and 4 processes of joblib are those of no workers."""
    expected = written(sharded)
    for n in (1, 2, 4):
        with parallel_workers("joblib", n=n):
            assert written(sharded) == expected


def test_a_cluster_counts_as_one_process(sharded, tmp_path):
    """Two processes of a local cluster of Dask: the same bytes, one killed in between included."""
    distributed = pytest.importorskip("distributed", reason="raglab-toolkit[dask] is not installed")
    expected = written(sharded)
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, local_directory=str(tmp_path / "dask")) as cluster,
        distributed.Client(cluster) as client,
        parallel_workers(client) as running,
    ):
        assert running.n == 2
        assert written(sharded) == expected
        done = list(run_each(killed_once, range(12), str(tmp_path), 7, what="square"))
        assert done == [item * item for item in range(12)]
        assert (tmp_path / "killed").exists()
        assert written(sharded) == expected
        with (
            pytest.raises(ValueError, match="n must be left out of a cluster, got 2"),
            parallel_workers(client, n=2),
        ):
            pass
