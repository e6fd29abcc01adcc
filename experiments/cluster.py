"""A trace built and swept by a cluster of Dask, threads or processes.

The same bytes as by one process.

By itself it starts a cluster of two processes on this machine, on 127.0.0.1. A cluster of other
machines is given by its scheduler's address; its workers must reach the folders under the same
paths, and have raglab installed:

    dask.distributed.SSHCluster(["localhost", "host1", "host2"]).scheduler_address     over SSH
    dask_kubernetes.operator.KubeCluster(name="raglab").scheduler_address              on Kubernetes

    # the bundled documents, 370 cases in shards of 50
    python experiments/cluster.py
    python experiments/cluster.py --quick                             20 cases of a part of them
    python experiments/cluster.py --data out/clinc --shard 500 --kinds threads:2 joblib:2 dask:2
      dask:4
    python experiments/cluster.py --scheduler tcp://10.0.0.5:8786 --folder /shared/trace
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

import raglab

DATA = Path(__file__).parents[1] / "datasets" / "broker"
ONE = "one process"
KINDS = ("dask:2",)
SHARD = 50


@contextmanager
def cluster_of(scheduler: str | None, n: int, folder: Path) -> Iterator[Client]:
    """Client of a scheduler, or of a cluster of so many processes on this machine."""
    if scheduler is not None:
        with Client(scheduler) as client:
            yield client
        return
    options: dict[str, Any] = {"n_workers": n, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options, local_directory=str(folder)) as cluster, Client(cluster) as client:
        yield client


@contextmanager
def workers_of(kind: str, scheduler: str | None, folder: Path) -> Iterator[None]:
    """Workers such as `threads:2`, or none."""
    name, _, n = kind.partition(":")
    if name == ONE:
        yield
    elif name == "dask":
        with cluster_of(scheduler, int(n), folder) as client, raglab.lab.parallel_workers(client):
            yield
    else:
        with raglab.lab.parallel_workers(name, n=int(n)):
            yield


def folder_hash(folder: Path) -> str:
    """SHA-256 of the bytes of a trace's shards and manifest, in the order of their names."""
    total = hashlib.sha256()
    for path in sorted([*folder.glob("*.parquet"), folder / "manifest.json"]):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def build_and_sweep(args: argparse.Namespace, folder: Path) -> tuple[str, str]:
    """Hash of the shards, and of a sweep over them."""
    corpus, cases = raglab.load_corpus(args.data), raglab.load_cases(args.data)
    if args.quick:
        corpus, cases = (
            corpus._replace(chunks=corpus.chunks[::8]),
            [case for case in cases if not case.expect_sources],
        )
        cases = [
            case for case in cases if not case.selected_sources and not case.expect_sources_any
        ][:20]
    trace = raglab.io.build_shards(
        corpus, cases, folder, shard=5 if args.quick else args.shard, cache=None
    )
    base = raglab.Policy.load(DATA / "policy.yaml")
    policies = [base.replace("l2.max_l2", 0.5 + number / 100) for number in range(100)]
    table = raglab.sweep(trace, policies)
    return folder_hash(folder), hashlib.sha256(
        table.to_csv(float_format="%.17g").encode()
    ).hexdigest()[:16]


def main() -> None:
    """Build and sweep by one process, then by the workers; print times and hashes.

    Exit code 1 where bytes differ.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of documents and questions; the bundled one"
    )
    parser.add_argument("--shard", type=int, default=SHARD, help="cases of a shard")
    parser.add_argument(
        "--kinds", nargs="+", default=KINDS, help="such as threads:2, joblib:2 or dask:2"
    )
    parser.add_argument(
        "--scheduler", help="address of a cluster; processes of this machine where not given"
    )
    parser.add_argument(
        "--folder", type=Path, help="that all workers reach; a temporary one where not given"
    )
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # that some chunks are longer than the encoder reads
    with tempfile.TemporaryDirectory() as directory:
        place, hashes = args.folder or Path(directory), []
        for kind in (ONE, *args.kinds):
            with workers_of(kind, args.scheduler, Path(directory) / "dask"):
                begun = time.perf_counter()
                hashes.append(
                    build_and_sweep(args, place / kind.replace(" ", "-").replace(":", "-"))
                )
                seconds = time.perf_counter() - begun
            print(
                f"{kind:12}{seconds:8.1f} s  shards {hashes[-1][0]}  sweep {hashes[-1][1]}",
                flush=True,
            )
    if len(set(hashes)) > 1:
        print("NOT THE SAME BYTES")
        raise SystemExit(1)
    print("the same bytes")


if __name__ == "__main__":
    main()
