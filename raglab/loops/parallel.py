"""Workers of loops over shards or blocks (shore): threads, processes of joblib or Dask.

No result depends on them.

A loop names a function of a module, its items and what all of them share; whoever runs it, the
results come back in the order of the items. Of shards, items are references such as paths and
results are counts or rows of a manifest: neither grows with what a shard holds. Of blocks of
replications, items are their numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar

from raglab.arguments.plain_arrays import refuse
from raglab.progress import progress, silence

Result = TypeVar("Result")
WORKER_KINDS = ("threads", "joblib")
BLOCK_ITEMS = (
    4  # of items a process is sent with what they share, so that this is not sent once an item
)
ITEMS_AHEAD = 2  # items a thread that are under way or done before the first of them is taken


class Client(Protocol):
    """Protocol of the methods of `dask.distributed.Client` that are called."""

    # Dask's
    def submit(self, function: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Future of a call."""

    def map(self, function: Any, *items: Any, **options: Any) -> Any:  # noqa: ANN401 - Dask's
        """Futures of calls."""

    def scheduler_info(self) -> Any:  # noqa: ANN401 - Dask's
        """Workers and their tasks."""


class Workers(NamedTuple):
    """Who runs loops over shards: kind, and how many, or a cluster that knows that itself."""

    kind: str
    n: int
    client: Any = None

    def __repr__(self) -> str:
        return (
            f"Workers({self.kind}, {self.n})" if self.client is None else f"Workers({self.client})"
        )


_current: ContextVar[Workers | None] = ContextVar("workers", default=None)


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def parallel_workers(kind: str | Client = "threads", n: int | None = None) -> Iterator[Workers]:
    """Workers of all loops over shards inside the block.

    Without it they run one shard after the other.

    Shards are replayed and built by them, simulations of bandits are played by block of
    replications, and the resamples of an off-policy bootstrap are drawn by block of rounds. The
    results are the same to the bit for any kind and number. Own gates are those that the workers'
    processes registered; threads share those of this one. A shard whose worker was killed is done
    again.

    Args:
      kind: `threads`; `joblib`, processes on this machine; or a `dask.distributed.Client`, whose
        workers must reach the files of the shards under the same paths (extra
        `raglab-toolkit[dask]`).
      n: number of workers; a client's number is its own.

    Raises:
      ValueError: another kind, or n below 1.

    Example:
      >>> with parallel_workers("threads", n=2) as running:
      ...     running
      Workers(threads, 2)
    """
    worker_pool = _checked(kind, n)
    reset_token = _current.set(worker_pool)
    try:
        yield worker_pool
    finally:
        _current.reset(reset_token)


@contextmanager
def jobs(n_jobs: int | None) -> Iterator[None]:
    """Loops inside the block by so many processes, as joblib counts them; 1 leaves them as is."""
    if n_jobs == 0:
        refuse(
            "n_jobs must be processes, or below 0 as joblib counts", 0, "1 is this process alone"
        )
    if n_jobs is None or n_jobs == 1:
        yield
    else:
        n = n_jobs if n_jobs > 0 else max(1, processors() + 1 + n_jobs)
        with parallel_workers("joblib", n):
            yield


def _checked(kind: Any, n: int | None) -> Workers:  # noqa: ANN401 - a name or a client
    if n is not None and (type(n) is not int or n < 1):
        refuse(
            "n must be a whole number of at least 1", repr(n), "leave it out for one a processor"
        )
    if kind in WORKER_KINDS:
        return Workers(kind, n or processors())
    if not hasattr(kind, "scheduler_info"):
        refuse(
            f"workers must be {', '.join(WORKER_KINDS)} or a dask.distributed.Client",
            repr(str(kind)[:80]),
            "see raglab.lab.parallel_workers",
        )
    if n is not None:
        refuse("n must be left out of a cluster", n, "state it where the cluster is made")
    return Workers("dask", len(kind.scheduler_info()["workers"]), kind)


def current_workers() -> Workers | None:
    """Workers of the block, where there are any that would run a loop."""
    worker_pool = _current.get()
    return (
        None
        if worker_pool is None or (worker_pool.n == 1 and worker_pool.client is None)
        else worker_pool
    )


def run_each(
    function: Callable[..., Result],
    items: Iterable[Any],
    *shared: Any,  # noqa: ANN401 - whatever the function takes
    what: str,
    unit: str = "shard",
) -> Iterator[Result]:
    """Results of a function of each item and what all share, in item order, by the block's workers.

    Args:
      function: of a module, so that another process finds it; pure, so that it may be run again.
      what: is done, unit: of items; both for the bar of `progress`.

    Example:
      >>> list(run_each(divmod, [7, 9], 4, what="divide"))
      [(1, 3), (2, 1)]
    """
    current_pool = current_workers()
    if current_pool is None:
        return (function(item, *shared) for item in progress(items, what, unit))
    item_sequence = items if isinstance(items, Sequence) else list(items)
    runners_by_kind = {"threads": _by_threads, "joblib": _by_processes, "dask": _by_cluster}
    results = runners_by_kind[current_pool.kind](current_pool, function, item_sequence, shared)
    return progress(results, what, unit, total=len(item_sequence))


# as in `run_each`
def _by_threads(
    worker_pool: Workers,
    function: Any,  # noqa: ANN401
    items: Sequence[Any],
    shared: tuple[Any, ...],
) -> Iterator[Any]:
    """Results by threads of this process, few of them waiting to be taken."""
    waiting: list[Future[Any]] = []
    with ThreadPoolExecutor(worker_pool.n) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(run_silently, function, item, *shared))
                if len(waiting) >= ITEMS_AHEAD * worker_pool.n:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def by_threads(function: Callable[[Any], Result], items: Iterable[Any]) -> list[Result]:
    """Results of a function of each item, in their order.

    By the block's threads where it has some, else in turn.

    For compiled code on arrays in memory, which no other process has; the threads share them.
    """
    current = _current.get()
    if current is None or current.kind != "threads" or current.n == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(current.n) as pool:
        return list(pool.map(function, items))


# as in `run_each`
def run_silently(
    function: Callable[..., Result],
    item: Any,  # noqa: ANN401
    *shared: Any,  # noqa: ANN401
) -> Result:
    """Result of one item, without a bar: the loop over all of them has one."""
    with silence():
        return function(item, *shared)


def run_block(
    function: Callable[..., Result], items: Sequence[Any], shared: tuple[Any, ...]
) -> list[Result]:
    """Results of some items, one after the other."""
    return [run_silently(function, item, *shared) for item in items]


# as in `run_each`
def _by_processes(
    worker_pool: Workers,
    function: Any,  # noqa: ANN401
    items: Sequence[Any],
    shared: tuple[Any, ...],
) -> Iterator[Any]:
    """Results by processes of joblib; a block whose worker was killed is done again, once."""
    from joblib import Parallel, delayed  # type: ignore[import-untyped] # it has no types
    from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped]
        TerminatedWorkerError,
    )

    size = max(1, -(-len(items) // (BLOCK_ITEMS * worker_pool.n)))
    blocks = [items[start : start + size] for start in range(0, len(items), size)]
    done = 0
    failed_at = -1
    while done < len(blocks):
        calls = (delayed(run_block)(function, block, shared) for block in blocks[done:])
        try:
            for results in Parallel(n_jobs=worker_pool.n, return_as="generator")(calls):
                done += 1
                yield from results
        except TerminatedWorkerError:
            if done == failed_at:
                raise
            failed_at = done


# as in `run_each`
def _by_cluster(
    worker_pool: Workers,
    function: Any,  # noqa: ANN401
    items: Sequence[Any],
    shared: tuple[Any, ...],
) -> Iterator[Any]:
    """Results by the workers of a cluster, which runs an item of a killed worker on another."""
    # What all items share is a task's result, and so once in the graph and once on a worker; where
    # the only worker that has it is killed, it is sent again. As an argument of `map` it would fail
    # above 100 kB: Dask gives it no priority.
    shared_future = worker_pool.client.submit(hold_on_cluster, shared, pure=False)
    futures = worker_pool.client.map(
        run_on_cluster, list(items), pure=False, function=function, shared=shared_future
    )
    try:
        while futures:
            yield futures[0].result()
            futures.pop(0).release()
    finally:
        for future in (*futures, shared_future):
            future.cancel()


def hold_on_cluster(shared: tuple[Any, ...]) -> tuple[Any, ...]:
    """What all items share, on a worker of a cluster."""
    return shared


# as in `run_each`
def run_on_cluster(
    item: Any,  # noqa: ANN401
    function: Callable[..., Result],
    shared: tuple[Any, ...],
) -> Result:
    """Result of one item on a worker of a cluster."""
    return run_silently(function, item, *shared)
