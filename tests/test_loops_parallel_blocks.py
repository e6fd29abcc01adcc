"""Simulations and bootstraps by the workers of a block.

The bits of one process, a killed worker included.
"""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from itertools import accumulate
from math import exp, factorial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

import raglab
from raglab.bandit import Bandit, Bernoulli, simulate
from raglab.bandit.simulation import run
from raglab.off_policy import difference, estimate, estimators
from raglab.off_policy.logs import read_log, weigh

MEANS = (0.5, 0.6, 0.4)
# Poisson(1), cumulated and to 16 bits: a uniform number of 16 bits counts as often as it has values
# below it.
POISSON = (
    np.round(np.array([*accumulate(exp(-1.0) / factorial(k) for k in range(9))]) * 2**16) / 2**16
)


def played():
    """Three blocks of a learner, of a policy that stays, and of late rewards."""
    # no lock of Python's held
    world, engine = Bernoulli(np.array(MEANS)), "numba" if find_spec("numba") else "auto"
    runs = [
        simulate("thompson_beta", MEANS, rounds=30, replications=500, seed=3),
        run(Bandit("ucb1"), world, rounds=20, replications=401, seed=4, engine=engine),
        run([0.2, 0.3, 0.5], world, rounds=20, replications=401, seed=4),
        run(Bandit("ucb1"), world, rounds=20, replications=401, seed=4, delay=(0, 3), missing=0.1),
    ]
    return b"".join(part.tobytes() for one in runs for part in one if isinstance(part, np.ndarray))


def resampled():
    """Intervals by bootstrap.

    Several blocks of rounds, also of sessions, with blocks of an odd number of counts.
    """
    rng = np.random.default_rng(5)
    n = 2_500
    log = pd.DataFrame(
        {"action": rng.integers(0, 3, n), "reward": rng.random(n), "propensity": 1 / 3}
    )
    log["session"] = rng.integers(0, 1_500, n)
    target = [0.2, 0.3, 0.5]
    frames = [
        estimate(log, target, interval="bootstrap", n_boot=3000),
        estimate(log, target, ("snips", "dr"), interval="bootstrap", n_boot=4097),
        estimate(log, target, interval="bootstrap", n_boot=4097, session="session"),
    ]
    gain = difference(log, target, [1.0, 0.0, 0.0], interval="bootstrap", n_boot=4097)
    return (
        b"".join(frame.to_csv(float_format="%.17g").encode() for frame in frames)
        + repr(gain).encode()
    )


class Killing(float):
    """A number that, the first time it comes to another process, kills it."""

    folder: str
    own: int

    def __reduce__(self):
        """What it is made of again, and where the mark of a kill stands."""
        return (killing_once, (self.folder, self.own, float(self)))


def killing_once(folder, own, number):
    """A number as it was.

    The first process that makes one, and is not the one it came from, is killed.
    """
    mark = Path(folder) / "killed"
    if os.getpid() != own and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    made = Killing(number)  # a scheduler unpacks it, and sends it on
    made.folder, made.own = folder, own
    return made


@pytest.mark.parametrize("n_boot", [3000, 4097])
def test_blocks_of_rounds_draw_from_one_stream(n_boot):
    """Resampled values are those of one pass with one generator.

    An odd number of counts leaves half a draw unused.
    """
    rng = np.random.default_rng(6)
    n = 2_500
    log = pd.DataFrame(
        {"action": rng.integers(0, 3, n), "reward": rng.random(n), "propensity": 1 / 3}
    )
    rows = weigh(read_log(log, 3), np.tile([0.2, 0.3, 0.5], (n, 1)))
    seed = np.random.SeedSequence(8)
    settings = estimators.EstimatorSettings(clip=10.0, switch=10.0)
    found = estimators.bootstrap_values(rows, ["ips"], settings, n_boot=n_boot, seed=seed)
    stream, size = np.random.default_rng(seed), estimators.COUNTS_AT_ONCE // n_boot
    assert size < n, "else there is one block"
    total = np.zeros((n_boot, 2))
    for start in range(0, n, size):
        block = slice(start, start + size)
        drawn = stream.integers(0, 2**16, size=(n_boot, len(rows.weight[block])), dtype=np.uint16)
        counts = np.searchsorted(POISSON, drawn / 2**16, side="right")
        total += counts @ np.column_stack(
            [np.ones(len(rows.weight[block])), (rows.weight * rows.log.reward)[block]]
        )
    np.testing.assert_allclose(found[0], total[:, 1] / total[:, 0], rtol=1e-12)


def test_the_threads_of_blas_change_no_bit():
    """Processes of joblib have another number of them than their parent."""
    with threadpool_limits(1):
        one = resampled()
    with threadpool_limits(2):
        assert resampled() == one


@pytest.fixture(scope="module")
def expected():
    """What one process plays and resamples."""
    return played(), resampled()


def test_threads_play_and_resample_as_one(expected):
    """3 threads give the bits of no workers."""
    with raglab.lab.parallel_workers("threads", n=3):
        assert (played(), resampled()) == expected


def test_processes_play_and_resample_as_one(expected):
    """So do 2 processes of joblib."""
    with raglab.lab.parallel_workers("joblib", n=2):
        assert (played(), resampled()) == expected


def test_a_worker_that_is_killed_in_a_simulation(tmp_path):
    """A process of a Dask cluster, killed by SIGKILL with a block of a simulation in hand.

    The same bits.
    """
    distributed = pytest.importorskip("distributed", reason="raglab-toolkit[dask] is not installed")
    world = Bernoulli(np.array(MEANS))
    sizes: dict[str, Any] = {"rounds": 20, "replications": 801, "seed": 4}
    expected, bootstrap = run(Bandit("thompson_beta"), world, **sizes), resampled()
    killing = killing_once(str(tmp_path), os.getpid(), 0.1)
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, local_directory=str(tmp_path / "dask")) as cluster,
        distributed.Client(cluster) as client,
        raglab.lab.parallel_workers(client),
    ):
        found = run(Bandit("thompson_beta", epsilon=killing), world, **sizes)
        assert (tmp_path / "killed").exists()
        assert [found.regret.tobytes(), found.arm.tobytes()] == [
            expected.regret.tobytes(),
            expected.arm.tobytes(),
        ]
        assert resampled() == bootstrap
