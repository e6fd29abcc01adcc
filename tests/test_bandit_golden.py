"""Arms that learners chose before tables had costs, orders and delays: the same bits now.

The digests were computed with commit 255937d by `python tests/test_bandit_golden.py`. Linear
learners have a prior_mean of 0, which is what they had then, whatever they stated.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np
import pytest

from raglab.bandit import LEARNERS, Bandit, Bernoulli, Table
from raglab.bandit.simulation import log, run

MEANS = np.array([0.7, 0.6, 0.5, 0.4])
DRIFT = np.repeat([[0.8, 0.2, 0.5], [0.2, 0.8, 0.5]], 30, axis=0)
LEARNER_NAMES = (
    "epsilon_greedy",
    "ucb1",
    "kl_ucb",
    "thompson_beta",
    "thompson_nig",
    "lin_ucb",
    "lin_thompson",
)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "discount": {"discount": 0.9},
    "window": {"window": 7},
    "floor": {"floor": 0.1, "ties": "random"},
    "wide": {"exploration": 1.7, "prior_strength": 5.0},
}
GOLDEN: dict[str, str] = {
    "epsilon_greedy means": "8f1d8ee38516d48d",
    "epsilon_greedy drift": "6deafcf0d59d1cc6",
    "epsilon_greedy table": "059811935ffc8102",
    "epsilon_greedy masked": "b58a2caacbcb5651",
    "ucb1 means": "9e0a713a4247315e",
    "ucb1 drift": "300972efb8f9bf8f",
    "ucb1 table": "7597f8dabf0a4a49",
    "ucb1 masked": "b3296fc7b79e3bd2",
    "kl_ucb means": "89dc1f1bae5e8584",
    "kl_ucb drift": "671299bd8d8eaf46",
    "kl_ucb table": "a6e29681ffcbc0a1",
    "kl_ucb masked": "a590bc96dd96aadc",
    "thompson_beta means": "b152a6626b6fd283",
    "thompson_beta drift": "6d2fb24e86d72802",
    "thompson_beta table": "39f337671f04819a",
    "thompson_beta masked": "b265cf7dfa3839de",
    "thompson_nig means": "a312623fc5801166",
    "thompson_nig drift": "275679aebe74eef2",
    "thompson_nig table": "b542674db03141bd",
    "thompson_nig masked": "0afedd48de997a60",
    "lin_ucb table": "1c98d7a2cf99a8ac",
    "lin_ucb masked": "e937df1597a2e381",
    "lin_thompson table": "18167fece21ec2e8",
    "lin_thompson masked": "b2bcd82b19c627a7",
}


def cases(masked):
    """Forty cases of three arms, with rewards that never arrive where arms are masked too."""
    rng = np.random.default_rng(7)
    mask = rng.random((40, 3)) < 0.7 if masked else np.ones((40, 3), np.bool_)
    mask[np.arange(40), rng.integers(3, size=40)] = True
    value, reward = rng.integers(2, size=(40, 3)) * 1.0, rng.integers(9, size=(40, 3)) / 8.0
    reward[0] = np.nan if masked else 0.5
    features = np.column_stack([np.ones(40), rng.standard_normal((40, 2))])
    return Table(
        ("a", "b", "c"), value, reward, mask, features, ("one", "x", "y"), np.full((40, 3), np.nan)
    )


WORLDS: dict[str, Any] = {
    "means": Bernoulli(MEANS),
    "drift": Bernoulli(DRIFT, np.array([True, True, True])),
    "table": cases(masked=False),
    "masked": cases(masked=True),
}


def digest(done):
    """First 16 hex digits of what was played and what it came to."""
    parts = [done.arm.tobytes(), done.regret.tobytes(), done.value.tobytes(), done.pulls.tobytes()]
    parts.append(b"" if done.case is None else done.case.tobytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def digests(policy):
    """Digests of a learner in every world it can play, prompt and late rewards, and its log."""
    known = {}
    linear = LEARNERS[policy].linear
    for name, world in WORLDS.items():
        if linear and not isinstance(world, Table):
            continue
        for setting, change in SETTINGS.items():
            bandit = Bandit(policy, prior_mean=0.0 if linear else 0.5)._replace(**change)
            for late in (
                ({}, {"delay": (0, 3), "missing": 0.2}) if setting in {"plain", "window"} else ({},)
            ):
                done = run(
                    bandit, world, rounds=60, replications=5, seed=11, engine="numpy", **late
                )
                known[f"{policy} {name} {setting}{' late' if late else ''}"] = digest(done)
        # what a rewarded table or a mean is not late for has a compiled twin, whose bits are the
        # same
        bandit = Bandit(policy, prior_mean=0.0 if linear else 0.5)
        if LEARNERS[policy].compiled is not None and name != "masked":
            done = run(bandit, world, rounds=60, replications=230, seed=11, engine="numba")
            known[f"{policy} {name} compiled"] = digest(done)
        rows = log(bandit, world, rounds=60, seed=3)
        columns = [
            "action",
            "reward",
            "propensity",
            "case",
            "value",
            *(f"p_{arm}" for arm in _names(world)),
        ]
        # last digits of an integral are SciPy's
        text = (rows[columns].to_numpy(np.float64).round(9) + 0.0).tobytes()
        known[f"{policy} {name} log"] = hashlib.sha256(text).hexdigest()[:16]
    return known


def by_world(known):
    """One digest a learner and world, of all that it did there."""
    return {
        world: hashlib.sha256(
            repr(sorted(row for row in known.items() if row[0].startswith(f"{world} "))).encode()
        ).hexdigest()[:16]
        for world in {" ".join(name.split()[:2]): None for name in known}
    }


def _names(world):
    return (
        world.arms if isinstance(world, Table) else tuple(str(arm) for arm in range(world.n_arms))
    )


@pytest.mark.parametrize("policy", LEARNER_NAMES)
def test_arms_and_accounts_are_those_of_before(policy):
    """In every world and setting, by both engines; and the propensities of a log."""
    pytest.importorskip("numba")
    expected = {name: value for name, value in GOLDEN.items() if name.split()[0] == policy}
    assert by_world(digests(policy)) == expected


if __name__ == "__main__":
    for learner in LEARNER_NAMES:
        for key, value in by_world(digests(learner)).items():
            sys.stdout.write(f'    "{key}": "{value}",\n')
