"""Thresholds moved from one embedder to another (`rescale_thresholds`) and re-tested (`retest`)."""

from __future__ import annotations

import numpy as np
import pytest

from raglab.lab.certificate_checks import retest
from raglab.lab.gate_fitting import rescale_thresholds
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.values import TraceData
from worlds import Hit, ask, random_policies, random_trace, trace_of

GATES = {"gap": {"enabled": False}, "confidence": {"enabled": False}, "similarity": {"min_similarity": 0.75}}


def stretched(trace: TraceData) -> TraceData:
    """The same questions, seen by an embedder whose distances are half as far: the order is the same."""
    hits = trace.hits
    return TraceData(
        trace.cases, trace.chunks, trace.arms,
        hits._replace(l2=hits.l2 / 2.0, cosine=1.0 - hits.l2 / 4.0), meta={"fingerprint": "other"},
    )  # fmt: skip


def four() -> TraceData:
    """Four questions with their nearest hit at l2 0.25, 0.5, 0.75 and 1."""
    return trace_of(*((ask(query=f"question {l2}"), [[Hit(l2)]]) for l2 in (0.25, 0.5, 0.75, 1.0)))


def reranked(*scores: float) -> TraceData:
    """A question a score of the reranker, NaN of none, with the nearest hit at l2 0.25 and more."""
    return trace_of(
        *(
            (ask(query=f"question {n}"), [[Hit(0.25 * (n + 1), s_rerank=score, s_raw=score)]])
            for n, score in enumerate(scores)
        )
    )


def test_the_same_share_passes() -> None:
    """Cosine 0.75 is the second of four, the other embedder's is 0.875; l2 0.8 passes three, its third is 0.375."""
    source = four()
    policy = PolicyData.from_mapping(GATES)
    moved = rescale_thresholds(source, policy, to=stretched(source))
    rows = moved.table.set_index("path")
    assert moved.policy.similarity.min_similarity == 0.875
    assert moved.policy.l2.max_l2 == 0.375
    assert rows.loc["similarity.min_similarity", ["passes_from", "passes_to"]].tolist() == [0.5, 0.5]
    assert decide(stretched(source), moved.policy).status.tolist() == decide(source, policy).status.tolist()


def test_an_embedder_to_itself_changes_no_decision() -> None:
    """Thresholds move to observed values that pass as many; the decisions of one-hit cases stay."""
    source = four()
    policy = PolicyData.from_mapping(GATES)
    moved = rescale_thresholds(source, policy, to=source).policy
    assert decide(source, moved).status.tolist() == decide(source, policy).status.tolist()


def test_an_embedder_to_itself_moves_no_threshold() -> None:
    """Equal scores keep every threshold, between observed values too."""
    for seed in range(4):
        source = random_trace(seed, n_cases=12)
        for policy in random_policies(seed, 2, fused__enabled=False):
            moved = rescale_thresholds(source, policy, to=source)
            assert moved.table["from"].tolist() == moved.table["to"].tolist()
            assert moved.policy == policy
    policy = PolicyData.from_mapping(GATES)
    assert rescale_thresholds(four(), policy, to=four()).policy == policy


def test_a_signal_that_is_missing_or_constant_keeps_its_threshold() -> None:
    """Hits of one confidence, or of none, do not move the taus; the table says that they were not measured."""
    policy = PolicyData.from_mapping(GATES | {"confidence": {"enabled": True}})
    for to in (reranked(np.nan, np.nan), reranked(0.4, 0.4)):
        for first, second in ((reranked(0.2, 0.9), to), (to, reranked(0.2, 0.9)), (to, to)):
            moved = rescale_thresholds(first, policy, to=second)
            rows = moved.table.set_index("path")
            for path in ("confidence.tau_default", "confidence.tau_explicit"):
                assert moved.policy.value(path) == policy.value(path) == rows.loc[path, "to"]
                assert rows.loc[path, "note"].startswith("not measured")
            assert rows.loc["l2.max_l2", "note"] == ""


def test_the_certificate_is_left_behind() -> None:
    """It was earned with other hits."""
    source = four()
    policy = PolicyData.from_mapping(GATES).replace("certificate", {"delta": 0.1})
    assert rescale_thresholds(source, policy, to=source).policy.certificate is None


def test_shares_are_kept_as_near_as_ties_allow() -> None:
    """On coarse grids every threshold stays finite and within its range, and no share flips from none to all."""
    for seed in range(6):
        source, target = random_trace(seed, n_cases=12), random_trace(seed + 100, n_cases=12)
        target = TraceData(source.cases, target.chunks, target.arms, target.hits, meta=target.meta)
        for policy in random_policies(seed, 2, fused__enabled=False):
            table = rescale_thresholds(source, policy, to=target).table
            measured = table[table["note"] == ""]
            assert ((measured["passes_from"] - measured["passes_to"]).abs() < 1.0).all()
            assert np.isfinite(table["to"]).all()


def test_other_questions_and_fused_gates_are_refused() -> None:
    """Rule, value, remedy."""
    source = four()
    with pytest.raises(ValueError, match="must hold the same questions"):
        rescale_thresholds(source, PolicyData.from_mapping(GATES), to=trace_of((ask(), [[Hit(0.5)]])))
    parts = {"confidence": {"x": [0.0], "y": [0.0]}}
    fused = PolicyData.from_mapping(GATES | {"fused": {"enabled": True, "parts": parts}})
    with pytest.raises(ValueError, match="can not be moved"):
        rescale_thresholds(source, fused, to=source)


def test_a_retest_upholds_breaks_or_leaves_open() -> None:
    """Of forty answers four are wrong: at most 50 % is upheld, 2 % broken, 10 % open, by exact one-sided bounds."""
    rows = [(ask("q", "refuse" if n < 4 else "ok"), [[Hit(0.25)]]) for n in range(40)]
    policy = PolicyData.from_mapping({"similarity": {"enabled": False}, "confidence": {"enabled": False}})
    said = {
        alpha: retest(policy, trace_of(*rows), {"hallucination_rate": alpha}, delta=0.1).verdict
        for alpha in (0.5, 0.02, 0.1)
    }
    assert said == {0.5: "upheld", 0.02: "broken", 0.1: "open"}
