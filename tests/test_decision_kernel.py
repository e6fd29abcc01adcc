"""The compiled kernel, the sweep and one case at a time agree on every cell, ties and gaps too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raglab.decision.chain import ON_ANSWER, STAGES, decide_cases, narrow_evidence
from raglab.decision.measurement import measured_tables
from raglab.decision.outcome_codes import CELL_OF_CODE, outcome_codes
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.loops.parallel import parallel_workers
from raglab.metrics import CELLS
from raglab.policy import PolicyData
from raglab.replay import tally
from raglab.replaying import case_codes
from raglab.values import Case, Chunk, Hits, Status, TraceData
from worlds import with_signals

kernel = pytest.importorskip("raglab.decision.kernel", reason="numba is not installed")

GRID = (0.0, 0.1, 0.25, 0.3, 0.5, 0.7)  # 0.1, 0.3 and 0.7 lose digits in float32, the others do not
COARSE = (0.0, 0.25, 0.5, 0.75)
TIGHT = (0.25, 0.5)  # groups tie on everything now and then
PATTERNS = {
    "deny": ["forbidden"],
    "allow": ["the"],
    "generic": ["overview"],
    "facet": ["section"],
    "compare": ["compare"],
    "coverage_generic": ["explain"],
    "entities": {"Alba": ["Alba"], "Borea": ["Borea"], "Cirrus": ["Cirrus"]},
}
# chunks from here on are of one file, untagged and far apart: a group that does not agree
ALONE = 24
N_CASES = 40
N_POLICIES = 60
# of the other rule: test_expected_cost_laws
OF_COST = ("least_cost_refuse", "least_cost_ask", "least_cost_answer")


def random_trace(rng, width, grid):
    """Cases whose measurements all lie on a coarse grid, some missing."""
    names = tuple(PATTERNS["entities"])
    chunks = tuple(
        Chunk(
            chunk_id=str(i),
            text=f"the text {i % 5}",
            source="d/9.md" if i >= ALONE else f"d/{i % 4}.md",
            page=None if i % 7 == 0 else 4 * i if i >= ALONE else i % 6 + 1,
            tags={}
            if i % 5 == 0 or i >= ALONE
            else {"domain": f"d{i % 3}", "product": f"p{i % 2}"},
            entities=tuple(name for name in names if rng.random() < 0.3),
        )
        for i in range(30)
    )
    shape = (N_CASES, 1, 1, width)
    n_hits = rng.integers(0, width + 1, N_CASES)
    n_hits[rng.random(N_CASES) < 0.6] = width
    absent = (np.arange(width) >= n_hits[:, None]).reshape(shape)

    def drawn(missing):
        values = rng.choice(grid, shape)
        return np.where(absent | (rng.random(shape) < missing), np.nan, values)

    chunk = np.stack(
        [
            rng.permutation(np.arange(0 if rng.random() < 0.8 else ALONE, len(chunks)))[:width]
            for _ in range(N_CASES)
        ]
    ).reshape(shape)
    rank = rng.permuted(np.tile(np.arange(width), (N_CASES, 1)), axis=1).reshape(shape)
    rank = np.where(absent, width, rank).argsort(axis=-1).argsort(axis=-1)
    n_reranked = rng.integers(0, width + 1, (N_CASES, 1, 1))
    s_rerank = np.where(rank < n_reranked[..., None], drawn(0.05), np.nan)
    hits = Hits(
        chunk=np.where(absent, -1, chunk).astype(np.int32),
        rank=np.where(absent, -1, rank).astype(np.int32),
        l2=np.sort(drawn(0.02), axis=-1),
        cosine=drawn(0.1),
        s_hybrid=drawn(0.1),
        s_rerank=s_rerank,
        s_raw=s_rerank * 2.0,
        anchor_sim=drawn(0.1),
        sig_sim=drawn(0.1),
        sig_sim_strict=drawn(0.1),
        n_reranked=n_reranked.astype(np.int32),
    )
    leads = (
        "the",
        "the overview",
        "the overview section",
        "compare the",
        "explain the",
        "forbidden the",
        "a",
    )
    cases = tuple(
        Case(
            id=str(q),
            query=""
            if q == 0
            else " ".join(
                [str(rng.choice(leads)), *(name for name in names if rng.random() < 0.4)]
            ),
            expect_status=Status(q % 3).name,
            expect_sources=(f"{rng.integers(4)}.md",) if rng.random() < 0.5 else (),
            selected_sources=("d/1.md",) if rng.random() < 0.3 else (),
        )
        for q in range(N_CASES)
    )
    return TraceData(cases, chunks, ("hybrid",), hits, meta={"fingerprint": "random"})


def random_policies(rng, grid, order):
    """Policies of one structure with thresholds on the grid, switched off or unset now and then."""
    base = PolicyData.from_mapping(
        {
            "chosen": {"final_k": int(rng.integers(1, 5)), "order": order},
            "confidence": {"fallback": "hybrid" if order == "l2" else "cosine"},
            "resolver": {
                "strict": bool(rng.random() < 0.5),
                "max_options": int(rng.integers(1, 4)),
            },
            "fused": {
                "bias": 0.5,
                "parts": {
                    "gap": {"x": [0.0, 0.25, 0.5], "y": [-1.0, 0.0, 1.0]},
                    "top1_cosine": {"x": [0.25], "y": [0.5]},
                    "confidence": {"x": [10.0, 70.0], "y": [-1.0, 0.5]},
                },
            },
            "patterns": PATTERNS,
        }
    )
    bounds = ("l2.max_l2", "similarity.min_similarity", "fused.min_fused")
    cosines = (
        f"resolver.min_{of}" for of in ("sig_sim", "sig_sim_gap", "anchor_sim", "anchor_sim_gap")
    )
    unset = ("l2.soft_max_l2", "gap.min_gap", "resolver.min_group_gap", *cosines)
    gates = ("domain", "l2", "density", "gap", "coverage", "similarity", "confidence", "fused")
    rules = ("signature", "anchor", "overview", "entities")
    switches = (*(f"{gate}.enabled" for gate in gates), *(f"resolver.{rule}" for rule in rules))
    halves = ("resolver.overview_entities_lift", "resolver.require_full_entity_coverage")

    def changes():
        found: dict[str, Any] = {path: float(rng.choice(grid)) for path in bounds}
        found |= {path: None if rng.random() < 0.2 else float(rng.choice(grid)) for path in unset}
        found |= {path: bool(rng.random() < 0.8) for path in switches} | {
            path: bool(rng.random() < 0.5) for path in halves
        }
        found |= {
            path: 100.0 * float(rng.choice(grid))
            for path in ("confidence.tau_default", "confidence.tau_explicit")
        }
        found["confidence.blend"] = float(rng.choice([0.0, 0.25, 0.3, 1.0]))
        found["density.min_keep"] = int(rng.integers(1, 8))
        return [part for pair in found.items() for part in pair]

    return [base.replace(*changes()) for _ in range(N_POLICIES)]


def gated_policies(rng, grid, order):
    """Random policies, all but one with gates on some signals."""
    names = (
        "gap",
        "top1_cosine",
        "hybrid",
        "rerank_margin",
        "keyword_share",
        "anchor_similarity",
        "groups",
    )
    first, *others = random_policies(rng, grid, order)
    bounds = {str(name): grid for name in rng.choice(names, 4, replace=False)}
    return [*with_signals(others, int(rng.integers(100)), bounds), first]


WORLDS = [
    (order, width, grid)
    for order in ("rank", "l2")
    for width, grid in ((1, GRID), (2, TIGHT), (4, COARSE), (5, GRID), (6, TIGHT))
]


def case_of(part, row):
    """Evidence of one case, or a part of it."""
    if isinstance(part, tuple):
        return type(part)(*(case_of(field, row) for field in part))
    return part[..., row : row + 1] if isinstance(part, np.ndarray) else part


def check_twins(found, policies):
    """The compiled twin says of each case alone what the chain says of all at once.

    Its stage, and its cell, which holds whether the chosen hits are right.
    """
    limits, size = policy_thresholds(policies), len(found.label_code)
    plain = outcome_codes(found, decide_cases(found, limits, (len(policies), size)))
    alone = [kernel.tallied(case_of(found, row), limits, len(policies)) for row in range(size)]
    compiled = np.stack([counts.argmax(axis=1) for counts in alone], axis=1)
    np.testing.assert_array_equal(compiled // CELLS, plain // CELLS)
    np.testing.assert_array_equal(CELL_OF_CODE[compiled], CELL_OF_CODE[plain])
    together = kernel.tallied(found, limits, len(policies))
    np.testing.assert_array_equal(together, np.sum(alone, axis=0))


@pytest.mark.parametrize(("order", "width", "grid"), WORLDS)
def test_kernel_and_chain_agree_in_every_cell(order, width, grid):
    """With signal bounds of all three firings too, some missing."""
    rng = np.random.default_rng([width, len(grid), order == "l2"])
    trace, policies = random_trace(rng, width, grid), gated_policies(rng, grid, order)
    check_twins(measured_tables(trace, policies[0]).evidence, policies)


@pytest.mark.parametrize("tile", [1, 7, N_POLICIES - 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_tiles_of_policies_and_their_threads_change_no_count(tile, threads, monkeypatch):
    """Policies that pass cases in parts, by one or two threads, are counted as all at once."""
    rng = np.random.default_rng(tile)
    trace, policies = random_trace(rng, 5, GRID), gated_policies(rng, GRID, "rank")
    found, limits = measured_tables(trace, policies[0]).evidence, policy_thresholds(policies)
    expected = kernel.tallied(found, limits, N_POLICIES)  # in one tile
    monkeypatch.setattr(kernel, "TILE", tile)
    with parallel_workers("threads", threads):
        np.testing.assert_array_equal(kernel.tallied(found, limits, N_POLICIES), expected)


@pytest.mark.parametrize(("order", "width", "grid"), WORLDS)
def test_narrow_distances_decide_as_wide_ones(order, width, grid):
    """Distances in float32 change no cell; where one would lose a digit they stay as they are."""
    rng = np.random.default_rng([width, len(grid), order == "l2"])
    trace, policies = random_trace(rng, width, grid), random_policies(rng, GRID, order)
    found, limits = measured_tables(trace, policies[0]).evidence, policy_thresholds(policies)
    less, bounds = narrow_evidence(found, limits)
    exact = np.array_equal(found.l2, found.l2.astype(np.float32), equal_nan=True)
    assert less.l2.dtype == (np.float32 if exact else np.float64)
    shape = (N_POLICIES, N_CASES)
    for wide, narrow in zip(
        decide_cases(found, limits, shape), decide_cases(less, bounds, shape), strict=True
    ):
        np.testing.assert_array_equal(wide, narrow)


@pytest.mark.parametrize(("order", "width", "grid"), WORLDS)
def test_engines_count_the_same(order, width, grid):
    """Counts and stages are equal between engines, and every policy's stages sum to the cases."""
    rng = np.random.default_rng([width, len(grid), order == "l2"])
    trace, policies = random_trace(rng, width, grid), random_policies(rng, grid, order)
    plain, compiled = (tally(trace, policies, engine=engine) for engine in ("numpy", "numba"))
    for first, second in zip(plain[:3], compiled[:3], strict=True):
        np.testing.assert_array_equal(first, second)
    assert (plain.stages.sum(axis=1) == N_CASES).all()


def test_the_random_worlds_reach_every_stage():
    """The comparison leaves out only answer stages of the chain, which the twin does not know."""
    seen = np.zeros(len(STAGES), dtype=np.int64)
    for order, width, grid in WORLDS:
        rng = np.random.default_rng([width, len(grid), order == "l2"])
        trace, policies = random_trace(rng, width, grid), gated_policies(rng, grid, order)
        seen += tally(trace, policies, engine="numba").stages.sum(axis=0)
    assert {name for (name, _), n in zip(STAGES, seen, strict=True) if n == 0} == {
        *ON_ANSWER,
        *OF_COST,
    }


@pytest.mark.parametrize("block", [7, 64, 1_000])
def test_a_sweep_in_parts_counts_the_whole(block, monkeypatch):
    """Parts of the cases and of the policies add up, also where a size is no multiple of theirs."""
    rng = np.random.default_rng(3)
    trace, policies = random_trace(rng, 5, COARSE), random_policies(rng, COARSE, "rank")
    whole = tally(trace, policies, engine="numba")
    monkeypatch.setattr(case_codes, "CASES", block)
    monkeypatch.setattr(case_codes, "BLOCK", 3 * block)
    for first, second in zip(tally(trace, policies, engine="numpy")[:3], whole[:3], strict=True):
        np.testing.assert_array_equal(first, second)
