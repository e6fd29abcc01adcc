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
    "epsilon_greedy means plain": "0cd99bd338651469",
    "epsilon_greedy means plain late": "8c1ae7ee31c7e126",
    "epsilon_greedy means discount": "dd7d99ff8ab2e7d3",
    "epsilon_greedy means window": "94e9bd657857d9cc",
    "epsilon_greedy means window late": "6f7d5c68c94c41d5",
    "epsilon_greedy means floor": "c91bbba4c2ef57e6",
    "epsilon_greedy means wide": "0cd99bd338651469",
    "epsilon_greedy means compiled": "52e4c7663e6531e9",
    "epsilon_greedy means log": "193dd36663064da7",
    "epsilon_greedy drift plain": "26ed987ccfd21494",
    "epsilon_greedy drift plain late": "294ebab043ce08cf",
    "epsilon_greedy drift discount": "a3b9f322473e996b",
    "epsilon_greedy drift window": "1701e9bbe1935bba",
    "epsilon_greedy drift window late": "53880f68deace038",
    "epsilon_greedy drift floor": "449649ca9d493afb",
    "epsilon_greedy drift wide": "26ed987ccfd21494",
    "epsilon_greedy drift compiled": "e8981d416094a64d",
    "epsilon_greedy drift log": "6c260c80306b402d",
    "epsilon_greedy table plain": "b70bc3a5f0178f57",
    "epsilon_greedy table plain late": "a2ec9e0b89f9b1a4",
    "epsilon_greedy table discount": "e88dd2abdc320848",
    "epsilon_greedy table window": "76997328c853525f",
    "epsilon_greedy table window late": "ad69c3d8bc92f37c",
    "epsilon_greedy table floor": "6f5c6c71739edd84",
    "epsilon_greedy table wide": "b70bc3a5f0178f57",
    "epsilon_greedy table compiled": "d4ea968673998cb9",
    "epsilon_greedy table log": "087b6ebd8ed5ea5d",
    "epsilon_greedy masked plain": "d8ce7bc29980cb5a",
    "epsilon_greedy masked plain late": "0a8d319e63b98dd4",
    "epsilon_greedy masked discount": "6601e14cfe22a422",
    "epsilon_greedy masked window": "a31f6d09cb1eece4",
    "epsilon_greedy masked window late": "76250f9e4cd83405",
    "epsilon_greedy masked floor": "0c69a5536dc9e61b",
    "epsilon_greedy masked wide": "d8ce7bc29980cb5a",
    "epsilon_greedy masked log": "f1320a691287aeb2",
    "ucb1 means plain": "380f1a4f085d6d9d",
    "ucb1 means plain late": "5fcf5b6c9acbc186",
    "ucb1 means discount": "646c9223b319c526",
    "ucb1 means window": "e77621fe31247e0e",
    "ucb1 means window late": "85b01fe9f32e673d",
    "ucb1 means floor": "8d4fc19df17caadd",
    "ucb1 means wide": "c7e4671759bd1743",
    "ucb1 means compiled": "c9c566249d6349ef",
    "ucb1 means log": "0066e005345c1b7a",
    "ucb1 drift plain": "37626db80f02d38d",
    "ucb1 drift plain late": "68bfd9cfd6b8d404",
    "ucb1 drift discount": "2ae49446a3ef5244",
    "ucb1 drift window": "ef20e07af2589c95",
    "ucb1 drift window late": "f5aa7459e1c8ac8d",
    "ucb1 drift floor": "277c0620264567d5",
    "ucb1 drift wide": "64571a541cdffe11",
    "ucb1 drift compiled": "fbcff92d0eeb4458",
    "ucb1 drift log": "da99a5b9548bab18",
    "ucb1 table plain": "b129a64567c09593",
    "ucb1 table plain late": "0891622045698a6c",
    "ucb1 table discount": "aeffaa90d126dede",
    "ucb1 table window": "f088e723f2095d91",
    "ucb1 table window late": "07820996d310892c",
    "ucb1 table floor": "d17cd79935ba7dcc",
    "ucb1 table wide": "b1022c7ce18ed1d4",
    "ucb1 table compiled": "b938c23b75e9a3d7",
    "ucb1 table log": "6ce6faf1067748f8",
    "ucb1 masked plain": "fd28b21ca37e2b74",
    "ucb1 masked plain late": "131eb0fe4d1ff5b8",
    "ucb1 masked discount": "fcca4671c6a53b43",
    "ucb1 masked window": "91f0caae606f0c38",
    "ucb1 masked window late": "0792ef6f60ce7ce4",
    "ucb1 masked floor": "d7f5628da47b90d1",
    "ucb1 masked wide": "cf69c0b631e1485e",
    "ucb1 masked log": "6dc0678eeb76d57b",
    "kl_ucb means plain": "75a68ca34299464b",
    "kl_ucb means plain late": "a407f207e92ebcc0",
    "kl_ucb means discount": "86f17ae2a402ba5b",
    "kl_ucb means window": "87406ca7f07a9117",
    "kl_ucb means window late": "daebda1e25c89947",
    "kl_ucb means floor": "8b37cbfb156c6032",
    "kl_ucb means wide": "00ec5fd80a7998d2",
    "kl_ucb means log": "a82dc5e9793058c7",
    "kl_ucb drift plain": "6cf2fbbcf7539316",
    "kl_ucb drift plain late": "e90201622dec2605",
    "kl_ucb drift discount": "8736f84c83d422fd",
    "kl_ucb drift window": "9276bd862e9542b2",
    "kl_ucb drift window late": "f07dc013a5668212",
    "kl_ucb drift floor": "02aaa8c63ccbcebe",
    "kl_ucb drift wide": "9c60bd3b2a9408eb",
    "kl_ucb drift log": "2b9e361c5df6b738",
    "kl_ucb table plain": "61cc282ebb5e3d54",
    "kl_ucb table plain late": "27b72b5ad3ec5850",
    "kl_ucb table discount": "7c62e10cac9aa92e",
    "kl_ucb table window": "dd94334ec19c2e0e",
    "kl_ucb table window late": "aec2b37a0d498a7a",
    "kl_ucb table floor": "a118af58daf64dcf",
    "kl_ucb table wide": "873a7bf8c73e06b8",
    "kl_ucb table log": "1f1b87834787368c",
    "kl_ucb masked plain": "0a56b07669e6cba4",
    "kl_ucb masked plain late": "76340802f468b844",
    "kl_ucb masked discount": "20b7583bda5f0ddd",
    "kl_ucb masked window": "97771e98c2b84538",
    "kl_ucb masked window late": "bf61e38927a1ddf8",
    "kl_ucb masked floor": "a9a71642272d67ae",
    "kl_ucb masked wide": "1005afd5a0829e13",
    "kl_ucb masked log": "f7c43beba5df7aa8",
    "thompson_beta means plain": "c3b7974ef24011a0",
    "thompson_beta means plain late": "99375ba722c005b0",
    "thompson_beta means discount": "8332774384b80653",
    "thompson_beta means window": "a3ef2496a20f8182",
    "thompson_beta means window late": "254d04223a6aa8dc",
    "thompson_beta means floor": "1e052bce53f2b403",
    "thompson_beta means wide": "946dd0a27880545c",
    "thompson_beta means compiled": "9249efeca25e7116",
    "thompson_beta means log": "115e08cf12f6e2f9",
    "thompson_beta drift plain": "49bd957617b760e0",
    "thompson_beta drift plain late": "98dea6969065258f",
    "thompson_beta drift discount": "6b7405b612bcd591",
    "thompson_beta drift window": "1522225342e9eb51",
    "thompson_beta drift window late": "f64d167a0468ea1d",
    "thompson_beta drift floor": "73653ab715a83704",
    "thompson_beta drift wide": "903b5b9fff85e101",
    "thompson_beta drift compiled": "8e97969508235fba",
    "thompson_beta drift log": "77b56c7ddc99c15c",
    "thompson_beta table plain": "3923056b694ade37",
    "thompson_beta table plain late": "d1b2e4795b74837b",
    "thompson_beta table discount": "c603e00142ec24d7",
    "thompson_beta table window": "4d29113dba034565",
    "thompson_beta table window late": "ff29211fc177d0e2",
    "thompson_beta table floor": "1d7c9dd51d91b5c0",
    "thompson_beta table wide": "390544df50932ec2",
    "thompson_beta table compiled": "6cd0f909a74d8d04",
    "thompson_beta table log": "63624fd977cfd5c0",
    "thompson_beta masked plain": "74c4e0961684ca64",
    "thompson_beta masked plain late": "e8900a562af0f763",
    "thompson_beta masked discount": "0a87af3920651444",
    "thompson_beta masked window": "626b8e1410553b86",
    "thompson_beta masked window late": "964be99125eb940c",
    "thompson_beta masked floor": "4f15d0ca58bae68e",
    "thompson_beta masked wide": "750ca6a0501d426c",
    "thompson_beta masked log": "90d69b59b6f587aa",
    "thompson_nig means plain": "e1c7894b093a097d",
    "thompson_nig means plain late": "a946e26e91357eac",
    "thompson_nig means discount": "ebe32fb4b0cd9c1f",
    "thompson_nig means window": "a5834416df683002",
    "thompson_nig means window late": "d1e59a896909a735",
    "thompson_nig means floor": "32678e8a9f385a28",
    "thompson_nig means wide": "2907063915e919c6",
    "thompson_nig means compiled": "4c43bb228d47fd93",
    "thompson_nig means log": "afaabd5c3a9e9867",
    "thompson_nig drift plain": "b1615c203e8f5dd2",
    "thompson_nig drift plain late": "e3bfa7c5643cce32",
    "thompson_nig drift discount": "ccfbe4849da03d6c",
    "thompson_nig drift window": "b656e90ebf8a40ea",
    "thompson_nig drift window late": "f65ac5b831542feb",
    "thompson_nig drift floor": "7e2637a0e926e38e",
    "thompson_nig drift wide": "120cfae07af26835",
    "thompson_nig drift compiled": "6a6f75570c850d9f",
    "thompson_nig drift log": "bec5ce0f5bf7b185",
    "thompson_nig table plain": "e909dfdf486d9844",
    "thompson_nig table plain late": "a20308aae82eb87b",
    "thompson_nig table discount": "4bf47c1e3700d8c4",
    "thompson_nig table window": "148c29b78c8ae336",
    "thompson_nig table window late": "6695782593ad5454",
    "thompson_nig table floor": "53dec25232fbddc0",
    "thompson_nig table wide": "0a00da7f27bdfeee",
    "thompson_nig table compiled": "cf1166e537803901",
    "thompson_nig table log": "94e6f51ad19ba29d",
    "thompson_nig masked plain": "cf2c856c216ae14f",
    "thompson_nig masked plain late": "c441d284d4506f93",
    "thompson_nig masked discount": "c876b6086c0ae95f",
    "thompson_nig masked window": "1f09d354f3218824",
    "thompson_nig masked window late": "726753679e787b25",
    "thompson_nig masked floor": "acd72183229c120e",
    "thompson_nig masked wide": "4304c95a6dc7b2bc",
    "thompson_nig masked log": "e75c0367ca5ee741",
    "lin_ucb table plain": "4704e36b08538abb",
    "lin_ucb table plain late": "b09a0625d7fd32f7",
    "lin_ucb table discount": "17a55d190b0dcb4c",
    "lin_ucb table window": "aa2b254309e19401",
    "lin_ucb table window late": "22c6155405ca6f11",
    "lin_ucb table floor": "3a82d3fb18e3ebf6",
    "lin_ucb table wide": "ffd6a164008cb9a6",
    "lin_ucb table compiled": "b5adc3d4b6ccb884",
    "lin_ucb table log": "eb9bae68cb9c819e",
    "lin_ucb masked plain": "a55a9a5ab786b8eb",
    "lin_ucb masked plain late": "c50042ca3af418ab",
    "lin_ucb masked discount": "189d606fb1664cdf",
    "lin_ucb masked window": "dc7c3383fa58683b",
    "lin_ucb masked window late": "9de964214d68a56f",
    "lin_ucb masked floor": "2c429959bccb5cc2",
    "lin_ucb masked wide": "fb6a7b275a1a101b",
    "lin_ucb masked log": "f1b46093fd598111",
    "lin_thompson table plain": "bed11663a9f64ce4",
    "lin_thompson table plain late": "8cca5f1eeab93d05",
    "lin_thompson table discount": "124f7b51ea2552d8",
    "lin_thompson table window": "c470692ee8d0f04a",
    "lin_thompson table window late": "1dcdb77cce3edcc9",
    "lin_thompson table floor": "903c0b04f4f37409",
    "lin_thompson table wide": "2a27d2a66ded9db0",
    "lin_thompson table compiled": "8d7ca3cf9fd17518",
    "lin_thompson table log": "28d5d7688c896812",
    "lin_thompson masked plain": "1bf659673081c566",
    "lin_thompson masked plain late": "802f38483a99d82e",
    "lin_thompson masked discount": "c3acf89fd70d003a",
    "lin_thompson masked window": "7ea2d12856705399",
    "lin_thompson masked window late": "eacdf868899ec93d",
    "lin_thompson masked floor": "9bd00a1d5b6f4bd0",
    "lin_thompson masked wide": "e47276dfeea29939",
    "lin_thompson masked log": "8e48e3e374afbf77",
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


def _names(world):
    return (
        world.arms if isinstance(world, Table) else tuple(str(arm) for arm in range(world.n_arms))
    )


@pytest.mark.parametrize("policy", LEARNER_NAMES)
def test_arms_and_accounts_are_those_of_before(policy):
    """In every world and setting, by both engines; and the propensities of a log."""
    pytest.importorskip("numba")
    expected = {name: value for name, value in GOLDEN.items() if name.split()[0] == policy}
    assert digests(policy) == expected


if __name__ == "__main__":
    for learner in LEARNER_NAMES:
        for key, value in digests(learner).items():
            sys.stdout.write(f'    "{key}": "{value}",\n')
