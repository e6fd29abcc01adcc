"""Workers of loops over shards.

The same bytes for any kind and number, and one shard held at a time.
"""

from __future__ import annotations

import gc
import weakref

import pandas as pd
import pytest

from raglab.extensions.scale.sharded_traces import save_shards
from raglab.loops.parallel import parallel_workers
from raglab.replay import steps, sweep
from raglab.store.traces import Trace
from stored_traces import stored
from worlds import random_policies, random_trace


def whole():
    """Trace of five cases."""
    return stored(random_trace(4, n_cases=5))


@pytest.fixture
def sharded(tmp_path):
    """Return the trace in shards of two."""
    return save_shards([whole()], tmp_path / "t", shard=2)


def written(trace):
    """Sweep and steps of some policies as bytes."""
    policies = random_policies(4, 3)
    frames = [
        sweep(trace, policies),
        steps(trace, policies[0]),
        steps(trace, policies[1], path="l2.max_l2"),
    ]
    assert all(isinstance(frame, pd.DataFrame) for frame in frames)
    return b"".join(frame.to_csv(float_format="%.17g").encode() for frame in frames)


def test_threads_count_as_one_process(sharded):
    """Sweep and steps of 1 and 2 threads equal those of no workers and of the whole trace."""
    expected = written(whole())
    assert written(sharded) == expected
    for n in (1, 2):
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
    assert len(most) == 9
    assert max(most) == 0
    assert not any(one() is not None for one in alive)


def test_processes_count_as_one(sharded):
    """Sweep and steps of two processes of joblib are those of no workers."""
    expected = written(sharded)
    with parallel_workers("joblib", n=2):
        assert written(sharded) == expected
