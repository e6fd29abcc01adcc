"""Off-policy evaluation: seconds and memory over a million rounds, and how often the intervals hold.

python experiments/bench_off_policy.py
"""

from __future__ import annotations

import contextlib
import ctypes
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from raglab.off_policy import estimate, lower_bound

N, ARMS, REPEATS = 1_000_000, 4, 7
SECONDS, MEGABYTES = 0.02, 150.0  # asked of SNIPS + DR with delta-method intervals
COVER, LOGS, ROUNDS = (0.93, 0.97), 2000, 2000
MEANS = np.array([0.72, 0.78, 0.83, 0.88])
LOGGING = np.array([0.45, 0.30, 0.15, 0.10])
TARGET = np.array([0.10, 0.20, 0.30, 0.40])


def million() -> tuple[pd.DataFrame, np.ndarray]:
    """Log of a million rounds with a reward model, and a target that changes from round to round."""
    rng = np.random.default_rng(0)
    target, logging = rng.dirichlet(np.ones(ARMS), N), 0.1 / ARMS + 0.9 * rng.dirichlet(np.ones(ARMS), N)
    action = (rng.random(N)[:, None] > logging.cumsum(axis=1)[:, :-1]).sum(axis=1)
    model = {f"q_{arm}": MEANS[arm] + 0.1 * rng.standard_normal(N) for arm in range(ARMS)}
    reward = (rng.random(N) < MEANS[action]).astype(float)
    return pd.DataFrame(
        {"action": action, "reward": reward, "propensity": logging[np.arange(N), action], **model}
    ), target


def seconds(run: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """Least and median time."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken), float(np.median(taken))


def megabytes(run: Callable[[], object]) -> tuple[float, float]:
    """Peak that a run adds: of allocations, and of the resident set where the system tells (Linux), else NaN.

    What was freed before goes back to the system first, so that it is not used again unseen.
    """
    resident = float("nan")
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = _status("VmRSS")
        run()
        resident = _status("VmHWM") - before
    tracemalloc.start()
    run()
    traced = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return traced, resident


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(key))


def mark(kept: bool) -> str:  # noqa: FBT001 - a verdict
    """Whether what was asked is there."""
    return "met" if kept else "MISSED"


def main() -> None:
    """Print both tables."""
    log, target = million()
    bare = log[["action", "reward", "propensity"]]
    session = np.arange(N) // 5
    size = (log.memory_usage().sum() + target.nbytes) / 1e6
    print(f"{N:,} rounds, {ARMS} arms, inputs {size:.0f} MB; least of {REPEATS} runs, median beside it\n")
    asked = ("snips", "dr")
    estimate(log.iloc[:10_000], target[:10_000], asked)  # imports
    traced, resident = megabytes(lambda: estimate(log, target, asked))
    least, median = seconds(lambda: estimate(log, target, asked))
    asked_for = f"asked < {SECONDS:g} s: {mark(median < SECONDS)}"
    print(f"{'snips + dr, delta method':<44}{least:8.3f} s  ({median:.3f})   {asked_for}")
    for name, peak in (("allocations", traced), ("the resident set", resident)):
        asked_for = f"asked < {MEGABYTES:g} MB: {mark(peak < MEGABYTES) if np.isfinite(peak) else 'not told here'}"
        print(f"{f'  peak of {name} over the inputs':<44}{peak:8.1f} MB           {asked_for}")
    for name, run, repeats in (
        ("  the model fitted to the log", lambda: estimate(bare, target, asked), REPEATS),
        ("  by session, five rounds each", lambda: estimate(log, target, asked, session=session), REPEATS),
        ("all seven, delta method", lambda: estimate(log, target), REPEATS),
        ("lower bound, clip chosen", lambda: lower_bound(log, target), REPEATS),
        ("snips + dr, 200 bootstrap draws", lambda: estimate(log, target, asked, interval="bootstrap", n_boot=200), 1),
    ):
        least, median = seconds(run, repeats)
        print(f"{name:<44}{least:8.3f} s  ({median:.3f})")
    traced, _ = megabytes(lambda: estimate(log, target, asked, interval="bootstrap", n_boot=200))
    print(f"{'  peak of allocations over the inputs':<44}{traced:8.1f} MB")
    covers()


def covers() -> None:
    """Print the share of logs whose 95 % interval holds the truth, and its width against the error's spread."""
    rng, truth = np.random.default_rng(1), float(TARGET @ MEANS)
    tables = []
    for number in range(LOGS):
        action = rng.choice(ARMS, ROUNDS, p=LOGGING)
        reward = (rng.random(ROUNDS) < MEANS[action]).astype(float)
        log = pd.DataFrame({"action": action, "reward": reward, "propensity": LOGGING[action]})
        tables.append(estimate(log, TARGET, seed=number))
    table = pd.concat(tables)
    table["held"] = (table["low"] <= truth) & (truth <= table["high"])
    table["width"] = table["high"] - table["low"]
    print(f"\n{LOGS:,} logs of {ROUNDS:,} rounds, rewards near 0.8 (truth {truth:.3f}), nominal 95 %, delta method\n")
    print(f"{'':<14}{'held':>8}{'mean width':>13}{'3.92 sd':>10}{'bias':>10}")
    for name, rows in table.groupby("estimator", sort=False):
        held, spread = rows["held"].mean(), 3.92 * rows["value"].std()
        asked = f"   asked 93 to 97 %: {mark(COVER[0] <= held <= COVER[1])}" if name in {"snips", "dr"} else ""
        width, bias = rows["width"].mean(), rows["value"].mean() - truth
        print(f"{name:<14}{held:8.1%}{width:13.4f}{spread:10.4f}{bias:+10.4f}{asked}")


if __name__ == "__main__":
    main()
