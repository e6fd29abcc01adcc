"""Simulations and bootstraps by the workers of a block: the bits of one process, a killed worker included."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from raglab.bandit import Bandit, Bernoulli, simulate
from raglab.bandit.simulation import run
from raglab.off_policy import difference, estimate
from raglab.parallel import run_each

MEANS = (0.5, 0.6, 0.4)


def played() -> bytes:
    """Three blocks of a learner, of a policy that stays, and of late rewards."""
    world = Bernoulli(np.array(MEANS))
    runs = [
        simulate("thompson_beta", MEANS, rounds=30, replications=500, seed=3),
        run(Bandit("ucb1"), world, rounds=20, replications=401, seed=4),
        run([0.2, 0.3, 0.5], world, rounds=20, replications=401, seed=4),
        run(Bandit("ucb1"), world, rounds=20, replications=401, seed=4, delay=(0, 3), missing=0.1),
    ]
    return b"".join(part.tobytes() for one in runs for part in one if part is not None)


def resampled() -> bytes:
    """Intervals by bootstrap: several blocks of rounds, also of sessions, with blocks of an odd number of counts."""
    rng = np.random.default_rng(5)
    n = 2_500
    log = pd.DataFrame({"action": rng.integers(0, 3, n), "reward": rng.random(n), "propensity": 1 / 3})
    log["session"] = rng.integers(0, 1_500, n)
    target = [0.2, 0.3, 0.5]
    frames = [
        estimate(log, target, interval="bootstrap", n_boot=3000),
        estimate(log, target, ("snips", "dr"), interval="bootstrap", n_boot=4097),
        estimate(log, target, interval="bootstrap", n_boot=4097, session="session"),
    ]
    gain = difference(log, target, [1.0, 0.0, 0.0], interval="bootstrap", n_boot=4097)
    return b"".join(frame.to_csv(float_format="%.17g").encode() for frame in frames) + repr(gain).encode()


class Killing(float):
    """A number that, the first time it comes to another process, kills it."""

    folder: str
    own: int

    def __reduce__(self) -> tuple[Any, ...]:
        """What it is made of again, and where the mark of a kill stands."""
        return (killing_once, (self.folder, self.own, float(self)))


def killing_once(folder: str, own: int, number: float) -> float:
    """A number as it was; the first process that makes one, and is not the one it came from, is killed."""
    mark = Path(folder) / "killed"
    if os.getpid() != own and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    made = Killing(number)  # a scheduler unpacks it, and sends it on
    made.folder, made.own = folder, own
    return made


def first_number(item: int, shared: Any) -> int:
    """First number of what all items share."""
    return int(shared[item])


def test_threads_play_and_resample_as_one() -> None:
    """1, 2 and 4 threads give the bits of no workers."""
    expected = played(), resampled()
    for n in (1, 2, 4):
        with raglab.workers("threads", n=n):
            assert (played(), resampled()) == expected


@pytest.mark.slow
def test_processes_play_and_resample_as_one() -> None:
    """So do 2 processes of joblib."""
    expected = played(), resampled()
    with raglab.workers("joblib", n=2):
        assert (played(), resampled()) == expected


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_simulation(tmp_path: Path) -> None:
    """A process of a Dask cluster, killed by SIGKILL with a block of a simulation in hand: the same bits."""
    distributed = pytest.importorskip("distributed", reason="raglab[dask] is not installed")
    world = Bernoulli(np.array(MEANS))
    sizes: dict[str, Any] = {"rounds": 20, "replications": 801, "seed": 4}
    expected, bootstrap = run(Bandit("thompson_beta"), world, **sizes), resampled()
    killing = killing_once(str(tmp_path), os.getpid(), 0.1)
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, local_directory=str(tmp_path / "dask")) as cluster,
        distributed.Client(cluster) as client,
        raglab.workers(client),
    ):
        found = run(Bandit("thompson_beta", epsilon=killing), world, **sizes)
        assert (tmp_path / "killed").exists()
        assert [found.regret.tobytes(), found.arm.tobytes()] == [expected.regret.tobytes(), expected.arm.tobytes()]
        assert resampled() == bootstrap
        first, second = (run_each(first_number, range(4), np.full(50_000, n), what="read") for n in (1, 2))
        both = list(zip(first, second, strict=True))
        assert both == [(1, 2)] * 4, "each loop has what it shares itself, however large"
