"""The decision boundary.

Zones and labels by head first, then laws over random traces, then what is drawn.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from decided import by_cost
from drawings import ROWS, boundary_display, gated, scored_case
from raglab import metrics
from raglab.displays.boundary import (
    BOTH_THRESHOLDS,
    CASE_GROUPS,
    LOWER_THRESHOLD,
    NO_THRESHOLD,
    DecisionBoundaryDisplay,
    decision_boundary,
    zone_counts,
)
from raglab.lab.answer_signals import answer_signals
from raglab.values import Status, TraceData, map_fields
from refusals import refused
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of

CHOSEN, MISSED, REFUSE, AMBIGUOUS = range(4)


def undrawn(*taus, **more):
    """Display of the rows, computed only."""
    return DecisionBoundaryDisplay(decision_boundary(trace_of(*ROWS), gated(*taus)), **more)


def test_frame_by_head():
    """Twelve rows; at or above 40 two of two answerable are right, and a refusable one answered."""
    frame = undrawn(level=0.9).frame()
    assert frame["zone"].tolist() == ["never"] * 4 + ["if named"] * 4 + ["answered"] * 4
    assert frame["label"].tolist() == list(CASE_GROUPS) * 3
    assert frame[["begins", "ends"]].drop_duplicates().to_numpy().tolist() == [
        [0, 30],
        [30, 40],
        [40, 100],
    ]
    assert frame["n"].tolist() == [1, 0, 1, 0, 1, 0, 1, 1, 2, 1, 1, 0]
    assert frame["k"].tolist() == [0, 0, 1, 0, 1, 0, 1, 0, 2, 0, 0, 0]
    assert frame["explicit"].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert frame["answered"].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 0]
    low, high = metrics.clopper_pearson(frame["k"], frame["n"], 0.9)
    np.testing.assert_array_equal(frame[["low", "high"]], np.stack([low, high], axis=1))
    counted = frame[frame["n"] > 0]
    assert not counted.isna().any().any()
    np.testing.assert_array_equal(counted["rate"], counted["k"] / counted["n"])
    assert frame.equals(undrawn(level=0.9).frame())
    # of 5 wrong ones that 20, 35, 40 and 90 rank above, ties half
    assert dict(undrawn()._facts)["AUROC of right if answered"].startswith("0.525 (")


def test_a_higher_bar_for_named_documents():
    """With tau_explicit above tau_default, the zone between is answered if none were named."""
    higher = undrawn(60, 35)
    assert higher.boundary.names[LOWER_THRESHOLD] == "if none named"
    assert higher.zone(LOWER_THRESHOLD) == "35 to below 60: answered if none named"
    assert np.flatnonzero(higher.boundary.answered).tolist() == [2, 3, 4, 6, 7]


@pytest.mark.parametrize("seed", range(3))
def test_zones_mean_what_they_say(seed):
    """Of any trace and policy.

    None is answered below, between only where it may be, and every case counts once.
    """
    trace = random_trace(seed, n_cases=30, depths=1 + seed % 3)
    for one_policy in random_policies(seed, 8, confidence__enabled=True):
        boundary = decision_boundary(trace, one_policy)
        counts = zone_counts(boundary)
        assert counts.n.sum() == len(trace)
        assert not counts.n[[zone for zone in range(3) if zone not in boundary.zones]].any()
        assert not boundary.answered[boundary.zone == NO_THRESHOLD].any()
        may = (
            boundary.explicit
            if boundary.tau_explicit <= boundary.tau_default
            else ~boundary.explicit
        )
        assert not boundary.answered[(boundary.zone == LOWER_THRESHOLD) & ~may].any()
        assert all((table <= counts.n).all() for table in counts)
        for zone in boundary.zones:
            low, high = boundary.ends(zone)
            inside = boundary.confidence[boundary.zone == zone]
            assert ((inside >= low) & ((inside < high) | (zone == BOTH_THRESHOLDS))).all()
        labels = [
            (boundary.group <= MISSED).sum(),
            (boundary.group == REFUSE).sum(),
            (boundary.group == AMBIGUOUS).sum(),
        ]
        assert labels == [
            sum(case.expect_status == status.name for case in trace.cases) for status in Status
        ]


def test_evidence_is_that_of_the_report():
    """With one depth, evidence is chosen where `findings.answered` has the case right."""
    for seed in range(6):
        trace = random_trace(seed, n_cases=40)
        for one_policy in random_policies(seed, 4, confidence__enabled=True):
            boundary = decision_boundary(trace, one_policy)
            np.testing.assert_array_equal(
                boundary.group == CHOSEN, answer_signals(trace, one_policy).right
            )


def test_depths():
    """A depth asked for gives its confidence and its evidence.

    None gives that of the depth that decided.
    """
    first, then = Hit(0.2, source="other.md", s_rerank=0.2), Hit(0.2, s_rerank=0.8)
    trace = trace_of((ask(expect_sources=("guide.md",)), [[first], [then]]))
    refining = gated().replace("refine.max_depth", 1)
    boundaries = [decision_boundary(trace, refining, depth=depth) for depth in (0, 1, None)]
    assert [round(float(boundary.confidence[0])) for boundary in boundaries] == [20, 80, 80]
    assert [int(boundary.group[0]) for boundary in boundaries] == [MISSED, CHOSEN, CHOSEN]
    assert [int(boundary.zone[0]) for boundary in boundaries] == [
        NO_THRESHOLD,
        BOTH_THRESHOLDS,
        BOTH_THRESHOLDS,
    ]
    assert all(boundary.answered[0] for boundary in boundaries)


@pytest.mark.parametrize(
    "rows",
    [ROWS[:1], ROWS[4:5], ROWS[5:], [scored_case("refuse", 0.0)], [scored_case("ambiguous", 1.0)]],
)
def test_few_cases_and_none_to_answer(rows):
    """One case, no ok case, confidence 0 and 100.

    Each has its picture, table and words, and no nan anywhere.
    """
    small = DecisionBoundaryDisplay.from_trace(trace_of(*rows), gated())
    assert small.frame()["n"].sum() == len(rows)
    assert small.boundary.zone.tolist() == decision_boundary(trace_of(*rows), gated()).zone.tolist()
    legend = small.ax_.get_legend()
    assert legend is not None
    drawn = " ".join(text.get_text() for text in [*small.ax_.texts, *legend.get_texts()])
    page = re.sub(r"base64,[^\"]+", "", small._repr_html_())
    assert not re.search(r"\b(nan|inf|NaN)\b", f"{small.says} {drawn} {page}")


def test_doors_state_the_rule():
    """An off gate, a missing depth or arm, no case or an odd level stops with rule and remedy."""
    trace = trace_of(*ROWS)
    refused("policy must have its confidence gate on", decision_boundary, trace, policy())
    refused(
        r"must decide by its chain, .*got expected_cost",
        DecisionBoundaryDisplay.from_trace,
        trace,
        by_cost(gated()),
    )
    refused(
        "depth must be one that the trace holds, 0 to 0, got 1",
        decision_boundary,
        trace,
        gated(),
        depth=1,
    )
    refused("arm must be one of hybrid, got 'graph'", decision_boundary, trace, gated(), "graph")
    refused(
        "trace must hold at least one case",
        decision_boundary,
        TraceData((), trace.chunks, trace.arms, map_fields(trace.hits, lambda f: f[:0])),
        gated(),
    )
    refused("level must be in", boundary_display, level=1.0)
