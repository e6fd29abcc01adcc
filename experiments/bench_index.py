"""What an index on disk takes: seconds to build, memory, recall at 50, time a question.

Passages are seeded random unit vectors, the hardest case for a search that is not exhaustive, with
the digits of their number as words. Building and asking are processes of their own, each on one
core. Recall is measured against the exact neighbours of the vectors before they are rounded.

    python experiments/bench_index.py                       100,000 passages
    python experiments/bench_index.py --passages 1000000    a million
    python experiments/bench_index.py --quick               2,000, in seconds
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from raglab.extensions.scale.large_index import VECTORS_PER_BLOCK, stored_index
from raglab.retrieval.dense import EmbeddingCache

DIM, K, QUESTIONS, SEED = 384, 50, 200, 0


def random_units(part: int, n: int) -> NDArray[np.float32]:
    """Unit vectors of a part of the passages, or of the questions, part -1; [n, DIM]."""
    rows = np.random.default_rng([SEED, part + 1]).standard_normal((n, DIM), np.float32)
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


class RandomEncoder:
    """An encoder of passages that are named by the digits of their number."""

    name, dim = "random", DIM

    def __init__(self) -> None:
        self.part, self.vectors = -1, np.empty((0, DIM), np.float32)

    def sentences(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Vectors of passages of one block."""
        del query
        numbers = np.array([int(text.replace(" ", "")) for text in texts])
        if numbers[0] // VECTORS_PER_BLOCK != self.part:
            self.part = int(numbers[0] // VECTORS_PER_BLOCK)
            self.vectors = random_units(self.part, VECTORS_PER_BLOCK)
        return self.vectors[numbers % VECTORS_PER_BLOCK]


class NoCache(EmbeddingCache):
    """A cache that keeps nothing: what it takes is not measured."""

    def get(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Nothing."""
        del keys
        return {}

    def put(self, arrays: Any) -> None:  # noqa: ANN401
        """Nothing."""


def peak_mb() -> float:
    """Largest resident memory of this process so far, in 1e6 bytes, mapped pages among it."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024 / 1e6


def run_step(step: str, n: int, folder: Path) -> dict[str, float]:
    """Build or ask the index in this process."""
    rows = [" ".join(f"{number:07d}") for number in range(n)]
    start, used = time.perf_counter(), time.process_time()
    index: Any = stored_index(rows, n, RandomEncoder(), NoCache(folder / "cache"))  # type: ignore[arg-type]
    seconds = {"s": time.perf_counter() - start, "core_s": time.process_time() - used}
    if step == "build":
        size = sum(path.stat().st_size for path in index.folder.iterdir())
        return {**seconds, "peak_mb": peak_mb(), "disk_mb": size / 1e6}
    questions, ms, nearest = random_units(-1, QUESTIONS), [], []
    for number in range(QUESTIONS):
        start = time.perf_counter()
        nearest.append(index.dense.search(questions[number : number + 1], K)[1][0])
        ms.append(1e3 * (time.perf_counter() - start))
    peak = peak_mb()
    recall = np.mean(
        [np.isin(*pair).mean() for pair in zip(exact(questions, n), nearest, strict=True)]
    )
    quantiles = dict(zip(("p50_ms", "p95_ms"), np.percentile(ms, [50, 95]).tolist(), strict=True))
    return {**seconds, "peak_mb": peak, **quantiles, "recall": float(recall)}


def exact(questions: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """The K nearest passages of each question, by the vectors as they were drawn."""
    l2, ids = np.empty((len(questions), 0)), np.empty((len(questions), 0), np.int64)
    for start in range(0, n, VECTORS_PER_BLOCK):
        block = random_units(start // VECTORS_PER_BLOCK, VECTORS_PER_BLOCK)[: n - start]
        block_l2, at = faiss.knn(questions, block, min(K, len(block)))
        l2, ids = np.hstack([l2, block_l2]), np.hstack([ids, at + start])
        order = np.argsort(l2, axis=1, kind="stable")[:, :K]
        l2, ids = np.take_along_axis(l2, order, 1), np.take_along_axis(ids, order, 1)
    return ids


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, help="Where the index stays. Default: nowhere.")
    parser.add_argument("--step", choices=("build", "ask"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    n = 2_000 if args.quick else args.passages
    if args.step:
        print(json.dumps(run_step(args.step, n, args.folder)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        for step in ("build", "ask"):
            words = ["--step", step, "--passages", str(n), "--folder", str(args.folder or scratch)]
            done = subprocess.run(
                [sys.executable, __file__, *words], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            measures = json.loads(done.stdout.strip().splitlines()[-1])
            print(step, *(f"{name} {value:,.3f}" for name, value in measures.items()), sep="  ")


if __name__ == "__main__":
    main()
