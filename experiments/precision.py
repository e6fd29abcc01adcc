"""The encoder in bfloat16 beside float32.

Seconds of a trace, where expected sources stand, rates of a policy, paired.

Both traces are built without a cache, in turns, each in a process of its own with one thread:
processor time, models loaded within. Differences are bfloat16 minus float32 over the same
questions, with a 95 % interval of 10,000 bootstrap samples; beside them how many decisions change.

    python -m experiments.precision
    python -m experiments.precision --data FOLDER --policy FILE
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import raglab
from experiments.encoders import difference
from raglab.metrics import RATE_TABLE

PRECISIONS = ("float32", "bfloat16")
TURNS = 2
BUILD = """
import sys, time, raglab
data, policy, precision, out = sys.argv[1:]
corpus, cases = raglab.load_corpus(data), raglab.load_cases(data)
start = time.process_time()
raglab.build_trace(corpus, cases, out=out, policy=raglab.Policy.load(policy), cache=None, \
precision=precision)
print(time.process_time() - start)
"""


def build(data: Path, policy: Path, precision: str, out: Path) -> float:
    """Seconds of processor time that building a trace takes."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        BUILD,
        str(data),
        str(policy),
        precision,
        str(out),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return float(done.stdout.split()[-1])


def ranks(trace: raglab.Trace) -> dict[str, NDArray[np.float64]]:
    """hit@1, hit@5 and hit@20 of the final order, of each question that expects a source."""
    sourced_rows = [
        row
        for row, case in enumerate(trace.cases)
        if case.expect_sources or case.expect_sources_any
    ]
    tables = [
        raglab.lab.ranking(trace.subset([row])).set_index("order").loc["final"]
        for row in sourced_rows
    ]
    names = [name for name in tables[0].index if name.startswith(("hit@", "nDCG@10"))]
    return {name: np.array([float(table[name]) for table in tables]) for name in names}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("datasets/broker"),
        help="folder that `raglab trace` takes",
    )
    parser.add_argument("--policy", type=Path, default=Path("datasets/broker/policy.yaml"))
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in PRECISIONS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for name in PRECISIONS:
                place = Path(folder) / f"{name}-{turn}.parquet"
                seconds[name].append(build(args.data, args.policy, name, place))
        plain_trace, half_trace = (
            raglab.Trace.load(Path(folder) / f"{name}-0.parquet") for name in PRECISIONS
        )
    plain, half = (min(seconds[name]) for name in PRECISIONS)
    print(
        f"trace of {len(plain_trace)} cases, least of {TURNS} turns: {plain:.1f} s and {half:.1f} "
        "s, "
        f"{plain / half:.2f} x\n"
    )
    print("| | float32 | bfloat16 | difference |\n|---|---:|---:|---:|")
    before, after = ranks(plain_trace), ranks(half_trace)
    for name, values in before.items():
        print(
            f"| {name} | {values.mean():.3f} | {after[name].mean():.3f} | "
            f"{difference(after[name], values)} |"
        )
    policy = raglab.Policy.load(args.policy)
    for named, chosen in (("published", policy), ("answers all", raglab.lab.always_answer(policy))):
        left, right = (raglab.sweep(trace, [chosen]).iloc[0] for trace in (plain_trace, half_trace))
        for rate in RATE_TABLE:
            k, n = (f"{rate}_k", f"{rate}_n")
            print(
                f"| {rate}, {named} | {left[k]}/{left[n]} | {right[k]}/{right[n]} | "
                f"{right[rate] - left[rate]:+.3f} |"
            )
        changed = raglab.decide(plain_trace, chosen).changed_rows(raglab.decide(half_trace, chosen))
        print(f"| decisions that change, {named} | | | {len(changed)} of {len(plain_trace)} |")


if __name__ == "__main__":
    main()
