"""The compiled kernel, the sweep and one case at a time agree on every cell, ties and gaps too."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from kernel_twin import check_twins
from raglab.decision.chain import ANSWER_STAGES, STAGES, decide_cases, narrow_evidence
from raglab.decision.measurement import measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.loops.parallel import parallel_workers
from raglab.replay import tally
from raglab.replaying import case_codes
from worlds import random_policies, random_trace, with_signals

kernel = pytest.importorskip("raglab.decision.kernel", reason="numba is not installed")

N_CASES, N_POLICIES = 40, 24
SEEDS = range(12)
# of the other rule: test_expected_cost_laws
OF_COST = ("least_cost_refuse", "least_cost_ask", "least_cost_answer")


@cache
def world(seed):
    """A trace of one to six hits, and policies of one structure, all but one with signals."""
    structure = {
        "chosen__final_k": 1 + seed % 4,
        "chosen__order": ("rank", "l2")[seed % 2],
        "resolver__strict": seed % 3 == 0,
        "resolver__entity_extractor": seed % 5 > 0,
        "resolver__max_options": 1 + seed % 3,
    }
    allow = ("excess", "fleet") if seed % 4 == 0 else ()
    first, *rest = (
        chosen.replace("patterns.allow", allow)
        for chosen in random_policies(seed, N_POLICIES, **structure)
    )
    trace = random_trace(seed, N_CASES, width=1 + seed % 6)
    return trace, [*with_signals(rest, seed), first]


def measured(seed):
    """Evidence and thresholds of a world."""
    trace, policies = world(seed)
    return measured_tables(trace, policies[0]).evidence, policy_thresholds(policies)


@pytest.mark.parametrize("seed", SEEDS)
def test_kernel_and_chain_agree_in_every_cell(seed):
    """With signal bounds of all three firings too, some missing."""
    trace, policies = world(seed)
    check_twins(measured_tables(trace, policies[0]).evidence, policies)


@pytest.mark.parametrize("tile", [1, 7, N_POLICIES - 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_tiles_of_policies_and_their_threads_change_no_count(tile, threads, monkeypatch):
    """Policies that pass cases in parts, by one or two threads, are counted as all at once."""
    found, limits = measured(4)
    expected = kernel.tallied(found, limits, N_POLICIES)  # in one tile
    monkeypatch.setattr(kernel, "TILE_POLICIES", tile)
    with parallel_workers("threads", threads):
        np.testing.assert_array_equal(kernel.tallied(found, limits, N_POLICIES), expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_narrow_distances_decide_as_wide_ones(seed, scale):
    """Distances in float32 change no cell; where one would lose a digit they stay as they are."""
    trace, policies = world(seed)
    trace = trace.__class__(
        trace.cases, trace.chunks, trace.arms, trace.hits._replace(l2=scale * trace.hits.l2)
    )
    found, limits = measured_tables(trace, policies[0]).evidence, policy_thresholds(policies)
    less, bounds = narrow_evidence(found, limits)
    exact = np.array_equal(found.l2, found.l2.astype(np.float32), equal_nan=True)
    assert less.l2.dtype == (np.float32 if exact else np.float64)
    shape = (N_POLICIES, N_CASES)
    for wide, narrow in zip(
        decide_cases(found, limits, shape), decide_cases(less, bounds, shape), strict=True
    ):
        np.testing.assert_array_equal(wide, narrow)


@pytest.mark.parametrize("seed", SEEDS)
def test_engines_count_the_same(seed):
    """Counts and stages are equal between engines, and every policy's stages sum to the cases."""
    plain, compiled = (tally(*world(seed), engine=engine) for engine in ("numpy", "numba"))
    for first, second in zip(plain[:3], compiled[:3], strict=True):
        np.testing.assert_array_equal(first, second)
    assert (plain.stages.sum(axis=1) == N_CASES).all()


def test_the_random_worlds_reach_every_stage():
    """The comparison leaves out only answer stages of the chain, which the twin does not know."""
    reached = sum(tally(*world(seed), engine="numba").stages.sum(axis=0) for seed in SEEDS)
    assert {name for (name, _), n in zip(STAGES, reached, strict=True) if n == 0} == {
        *ANSWER_STAGES,
        *OF_COST,
    }


@pytest.mark.parametrize("block", [7, 64, 1_000])
def test_a_sweep_in_parts_counts_the_whole(block, monkeypatch):
    """Parts of the cases and of the policies add up, also where a size is no multiple of theirs."""
    whole = tally(*world(4), engine="numba")
    monkeypatch.setattr(case_codes, "CASES_AT_ONCE", block)
    monkeypatch.setattr(case_codes, "DECISIONS_AT_ONCE", 3 * block)
    for first, second in zip(tally(*world(4), engine="numpy")[:3], whole[:3], strict=True):
        np.testing.assert_array_equal(first, second)
