"""Workers of loops over shards.

The same bytes for any kind and number, and for one that was killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

import raglab
from processes import killed_once
from raglab.loops.parallel import _current, jobs, parallel_workers, processors, run_each


def slow_product(item, factor):
    """Product, later of the first items than of the last."""
    time.sleep(0.02 * (5 - item))
    return item * factor


def always_killed(item):
    """Nothing, of a process that is killed."""
    del item
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def failing(item):
    """Item, or an error of the third."""
    if item == 2:
        msg = f"item must not be 2, got {item}; leave it out."
        raise ValueError(msg)
    return item


def test_results_come_in_the_order_of_the_items():
    """By head: five products, whatever is done first."""
    for n in (1, 2, 4):
        with parallel_workers("threads", n=n):
            assert list(run_each(slow_product, range(5), 3, what="multiply")) == [0, 3, 6, 9, 12]
    assert list(run_each(slow_product, iter(range(5)), 3, what="multiply")) == [0, 3, 6, 9, 12]


def test_an_error_of_an_item_is_the_error_of_the_loop():
    """Its rule, value and remedy come through, and those before it."""
    with parallel_workers("threads", n=2):
        done: Iterator[int] = run_each(failing, range(9), what="try")
        assert [next(done), next(done)] == [0, 1]
        with pytest.raises(ValueError, match=r"item must not be 2, got 2; leave it out\."):
            next(done)


def test_the_workers_are_those_of_the_block():
    """Nested, the inner ones; behind the block none again.

    One a processor where no number is given.
    """
    with parallel_workers() as outer:
        assert outer.n == processors()
        with raglab.lab.parallel_workers("joblib", n=3) as inner:
            assert repr(inner) == "Workers(joblib, 3)"
    assert callable(raglab.lab.parallel_workers)


@pytest.mark.parametrize(
    ("kind", "n", "rule"),
    [
        (
            "cluster",
            None,
            "workers must be threads, joblib or a dask.distributed.Client, got 'cluster'",
        ),
        ("threads", 0, "n must be a whole number of at least 1, got 0"),
        ("joblib", True, "n must be a whole number of at least 1, got True"),
    ],
)
def test_workers_that_are_none(kind, n, rule):
    """Another kind or number is told before anything runs."""
    with pytest.raises(ValueError, match=rule), parallel_workers(kind, n=n):
        pass


def test_jobs_are_counted_as_joblib_does():
    """None and 1 are in place, below 0 from all processors, at least one; 0 is refused."""
    for n_jobs, n in ((None, None), (1, None), (3, 3), (-1, processors()), (-999, 1)):
        with jobs(n_jobs):
            assert getattr(_current.get(), "n", None) == n
    rule = "n_jobs must be processes, or below 0 as joblib counts, got 0; 1 is this process alone"
    with pytest.raises(ValueError, match=rule), jobs(0):
        pass


def test_a_block_of_a_killed_process_is_done_again(tmp_path):
    """Once, with every result in its place; a process that is killed at each try is told."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with parallel_workers("joblib", n=2):
        done = list(run_each(killed_once, range(12), str(tmp_path), 7, what="square"))
        assert done == [item * item for item in range(12)]
        assert (tmp_path / "killed").exists()
        with pytest.raises(TerminatedWorkerError):
            list(run_each(always_killed, range(3), what="try"))
