"""What replay of many cases takes, in shards and in one piece.

Wall time, peak resident memory, and the same bytes.

Writes synthetic shards, or shards with the distributions of stored traces, then measures each task
in a process of its own, on one core. Prints a plain table: what `experiments/scale.md` reports.

    python experiments/bench_large.py                    100,000 cases, in shards of 10,000 and in
                                                         one piece
    python experiments/bench_large.py --cases 1000000    a million, in shards alone
    # cases drawn from these in turn
    python experiments/bench_large.py --like out/broker.parquet out/squad.parquet
    python experiments/bench_large.py --kinds shards threads:2 joblib:2 dask:2      the same bytes
    python experiments/bench_large.py --quick            the same path on 400 cases, in seconds
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from synthetic import (
    FULL,
    PATTERNS,
    random_policies,
    synthetic_cases,
    synthetic_chunks,
    synthetic_hits,
)

import raglab
from raglab.policy import PolicyData
from raglab.values import Hits, map_fields

# threshold that every hit of a case can be met by: the one with most breakpoints
AXIS = "l2.max_l2"
WHOLE_UP_TO = 200_000  # cases that are measured in one piece too
TASKS = ("sweep", "steps of one", "steps of all", "steps of all, coarse", "certificate", "tune")
COARSE = 2_000  # steps of a threshold where a resolution is asked for
TRIALS = 1_000  # of the study
SPLITS = ("tune", "certify", "report")  # of the cases in turn


class Size(NamedTuple):
    """How much to measure: cases, cases of a shard, policies of the sweep."""

    cases: int
    shard: int
    policies: int


QUICK = Size(400, 100, 20)


def synthetic_shards(size: Size, seed: int = 7) -> Iterator[raglab.Trace]:
    """Traces of so many cases each, over the same chunks, with hits of their own."""
    chunks = synthetic_chunks(FULL.chunks, np.random.default_rng(seed))
    for number, start in enumerate(range(0, size.cases, size.shard)):
        rng = np.random.default_rng([seed, number])
        hits = synthetic_hits(FULL._replace(cases=min(size.shard, size.cases - start)), rng)
        cases = tuple(
            case._replace(
                id=f"{number}-{case.id}",
                split=SPLITS[row % len(SPLITS)],
                selected_sources=tuple(
                    source.rpartition("/")[2] for source in case.selected_sources
                ),
            )
            for row, case in enumerate(synthetic_cases(hits, chunks, rng))
        )
        yield raglab.Trace(
            cases, chunks, ("hybrid",), hits, meta={"fingerprint": f"synthetic-{seed}-{number}"}
        )


def drawn_shards(size: Size, paths: Sequence[Path], seed: int = 7) -> Iterator[raglab.Trace]:
    """Traces of so many cases each, drawn from stored traces in turn, with replacement.

    Distances and scores of a case are scaled by factors of its own, so that all cases differ;
    labels, groups, sources and the order of its hits stay.
    """
    cases, chunks, hits, first = joined_traces(paths)
    for number, start in enumerate(range(0, size.cases, size.shard)):
        rng = np.random.default_rng([seed, number])
        n = min(size.shard, size.cases - start)
        turn = np.arange(n) % (len(first) - 1)
        rows = rng.integers(first[turn], first[turn + 1])
        near, score, similarity = rng.uniform(0.95, 1.05, (3, n, 1, 1, 1))
        # bound to this shard
        own = map_fields(hits, lambda field, rows=rows: field[rows])  # type: ignore[misc]
        l2 = own.l2 * near
        changed = {
            "l2": l2,
            "cosine": 1.0 - l2 / 2.0,
            "s_hybrid": own.s_hybrid**score,
            "s_rerank": own.s_rerank**score,
            **{
                name: np.minimum(getattr(own, name) * similarity, 1.0)
                for name in ("anchor_sim", "sig_sim")
            },
        }
        changed["sig_sim_strict"] = changed["sig_sim"]
        own = own._replace(
            **{
                name: values.astype(np.float32).astype(np.float64)
                for name, values in changed.items()
            }
        )
        drawn = tuple(
            cases[row]._replace(id=f"{number}-{place}", split=SPLITS[place % len(SPLITS)])
            for place, row in enumerate(rows.tolist())
        )
        yield raglab.Trace(
            drawn, chunks, ("hybrid",), own, meta={"fingerprint": f"drawn-{seed}-{number}"}
        )


def joined_traces(
    paths: Sequence[Path],
) -> tuple[list[raglab.Case], tuple[raglab.Chunk, ...], Hits, NDArray[np.int64]]:
    """Cases, chunks and hits of the first arm and depth of stored traces, one behind the other.

    The first case of each.

    Returns: the last has one number more than there are traces, that of all cases.
    """
    traces = [raglab.Trace.load(path) for path in paths]
    width = max(trace.hits.chunk.shape[3] for trace in traces)
    chunks: list[raglab.Chunk] = []
    parts = []
    for number, trace in enumerate(traces):
        own = map_fields(trace.hits, lambda field: field[:, :1, :1])
        own = own._replace(
            chunk=np.where(own.chunk >= 0, own.chunk + len(chunks), -1).astype(np.int32)
        )
        parts.append(map_fields(own, lambda field: padded(field, width)))
        chunks += [chunk._replace(chunk_id=f"{number}/{chunk.chunk_id}") for chunk in trace.chunks]
    hits = Hits(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))
    first = np.cumsum([0, *(len(trace) for trace in traces)])
    return [case for trace in traces for case in trace.cases], tuple(chunks), hits, first


def padded(field: NDArray[Any], width: int) -> NDArray[Any]:
    """A field of hits, [..., K], with as many of no hit behind as make it that wide.

    One that is of no hit as it is.
    """
    if field.ndim < 4:
        return field
    nothing = -1 if field.dtype.kind == "i" else np.nan
    return np.pad(field, [(0, 0)] * 3 + [(0, width - field.shape[3])], constant_values=nothing)


def table_hash(frame: pd.DataFrame) -> str:
    """SHA-256 of the bytes of a table's columns."""
    total = hashlib.sha256()
    for column in frame:
        values = frame[column].to_numpy()
        total.update(
            values.tobytes() if values.dtype.kind in "fiu" else "\n".join(map(str, values)).encode()
        )
    return total.hexdigest()[:16]


def certificate(trace: Any) -> pd.DataFrame:  # noqa: ANN401 - in memory or of shards
    """Certificate candidates over a third of the cases, learned on another, and the cases' hash."""
    # a few candidates are tested, one is certified
    targets = {"hallucination_rate": 0.75, "false_refusal_rate": 0.6}
    result = raglab.certify_best(
        trace, raglab.Policy.from_mapping({"patterns": PATTERNS}), targets=targets
    )
    return result.table.assign(cases_hash=result.certificate.cases_hash)


def study(trace: Any, trials: int) -> pd.DataFrame:  # noqa: ANN401 - in memory or of shards
    """Trials of a study over one third of the cases, judged on another, and the selected policy."""
    result = raglab.tune(
        trace, policy=raglab.Policy.from_mapping({"patterns": PATTERNS}), trials=trials
    )
    return result.trials.assign(selected=result.policy.policy_id)


@contextmanager
def running(kind: str, n: int, folder: Path) -> Iterator[None]:
    """Workers of a task.

    None, threads, processes of joblib, or a cluster of Dask on this machine.
    """
    if kind in {"whole", "shards"}:
        yield
    elif kind == "dask":
        from distributed import Client, LocalCluster

        options: dict[str, Any] = {
            "n_workers": n,
            "threads_per_worker": 1,
            "dashboard_address": None,
        }
        place = LocalCluster(**options, local_directory=str(folder))
        with place as cluster, Client(cluster) as client, raglab.lab.parallel_workers(client):
            yield
    else:
        with raglab.lab.parallel_workers(kind, n=n):
            yield


def measure(task: str, folder: Path, policies: int, kind: str, n: int) -> dict[str, Any]:
    """Seconds, peak memory and hash of one task over a folder of shards; of `whole` in one piece.

    Processor time, of everything from the start of the process, is what a busy machine leaves as it
    is.
    """
    begun = time.perf_counter()
    trace: Any = raglab.Trace.open(folder)
    if kind == "whole":
        first, *rest = trace.shards()
        trace = first.merge(*rest)
        del first, rest
    policy = PolicyData.from_mapping({"patterns": PATTERNS})
    tasks = {
        "sweep": lambda: raglab.sweep(trace, random_policies(policies)),
        "steps of one": lambda: raglab.steps(trace, policy, path=AXIS),
        "steps of all": lambda: raglab.steps(trace, policy),
        "steps of all, coarse": lambda: raglab.steps(trace, policy, resolution=COARSE),
        "certificate": lambda: certificate(trace),
        "tune": lambda: study(trace, min(TRIALS, policies)),
    }
    with running(kind, n, folder):
        loaded = time.perf_counter()
        frame = tasks[task]()
        done = time.perf_counter()
    peak = (
        max(
            resource.getrusage(who).ru_maxrss
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        / 1024
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    times = {
        "load_s": loaded - begun,
        "task_s": done - loaded,
        "cpu_s": used.ru_utime + used.ru_stime,
    }
    return {**times, "peak_mb": peak, "rows": len(frame), "hash": table_hash(frame)}


def measured(task: str, folder: Path, size: Size, kind: str, n: int) -> dict[str, Any]:
    """What `measure` tells, from a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--measure",
        task,
        "--folder",
        str(folder),
        "--kind",
        kind,
        "--n",
        str(n),
    ]
    command += ["--policies", str(size.policies)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1:] or [f"code {done.returncode}"]}
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Write the shards, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--shard", type=int, default=10_000)
    parser.add_argument("--policies", type=int, default=1_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument(
        "--like", nargs="*", type=Path, help="stored traces that cases are drawn from"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kinds", nargs="*", help="such as threads:2, joblib:2 or dask:2")
    parser.add_argument("--tasks", nargs="*", help="of those that are measured; all")
    parser.add_argument("--measure")
    parser.add_argument("--kind", default="shards")
    parser.add_argument("--n", type=int, default=1)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.folder, args.policies, args.kind, args.n)))
        return
    size = QUICK if args.quick else Size(args.cases, args.shard, args.policies)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch) / "shards"
        if not (folder / "manifest.json").exists():
            begun = time.perf_counter()
            shards = drawn_shards(size, args.like) if args.like else synthetic_shards(size)
            raglab.io.save_shards(shards, folder, shard=size.shard)
            print(f"wrote {size.cases:,} cases in {time.perf_counter() - begun:.1f} s", flush=True)
        stored = sum(path.stat().st_size for path in folder.glob("*.parquet"))
        print(
            f"{size.cases:,} cases, shards of {size.shard:,}, {stored / 2**20:,.0f} MB, "
            f"{size.policies:,} policies"
        )
        kinds = args.kinds or ["shards:1", *(["whole:1"] if size.cases <= WHOLE_UP_TO else [])]
        for task in args.tasks or TASKS:
            for kind, _, n in (text.partition(":") for text in kinds):
                row = measured(task, folder, size, kind, int(n or 1))
                if "failed" in row:
                    print(f"{task:22} {kind}:{n}  failed: {row['failed']}", flush=True)
                    continue
                line = (
                    f"load {row['load_s']:6.1f} s  task {row['task_s']:6.1f} s  cpu "
                    f"{row['cpu_s']:6.1f} s"
                )
                line += f"  peak {row['peak_mb']:6,.0f} MB"
                print(
                    f"{task:22} {kind}:{n or 1}  {line}  {row['rows']:9,} rows  {row['hash']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
