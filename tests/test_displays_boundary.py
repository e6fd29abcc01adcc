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
    there = frame[frame["n"] > 0]
    assert not there.isna().any().any()
    np.testing.assert_array_equal(there["rate"], there["k"] / there["n"])
    assert frame.equals(undrawn(level=0.9).frame())
    # of 5 wrong ones that 20, 35, 40 and 90 rank above, ties half
    assert dict(undrawn()._facts)["AUROC of right if answered"].startswith("0.525 (")


def test_equal_thresholds_leave_no_zone_between():
    """At 40 and 40 two zones stand, at 0 and 0 one, at 100 and 100 the upper is only 100.

    It is a single point.
    """
    assert undrawn(40, 40).frame()["zone"].unique().tolist() == ["never", "answered"]
    assert undrawn(0, 0).frame()["zone"].unique().tolist() == ["answered"]
    assert undrawn(0, 50).frame()["zone"].unique().tolist() == ["if named", "answered"]
    display = boundary_display(100, 100)
    frame = display.frame()
    assert frame[["begins", "ends"]].drop_duplicates().to_numpy().tolist() == [[0, 100], [100, 100]]
    assert frame["n"].tolist()[4:] == [0] * 4


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
        seen = decision_boundary(trace, one_policy)
        counts = zone_counts(seen)
        assert counts.n.sum() == len(trace)
        assert not counts.n[[zone for zone in range(3) if zone not in seen.zones]].any()
        assert not seen.answered[seen.zone == NO_THRESHOLD].any()
        may = seen.explicit if seen.tau_explicit <= seen.tau_default else ~seen.explicit
        assert not seen.answered[(seen.zone == LOWER_THRESHOLD) & ~may].any()
        assert all((table <= counts.n).all() for table in counts)
        for zone in seen.zones:
            low, high = seen.ends(zone)
            inside = seen.confidence[seen.zone == zone]
            assert ((inside >= low) & ((inside < high) | (zone == BOTH_THRESHOLDS))).all()
        labels = [
            (seen.group <= MISSED).sum(),
            (seen.group == REFUSE).sum(),
            (seen.group == AMBIGUOUS).sum(),
        ]
        assert labels == [
            sum(case.expect_status == status.name for case in trace.cases) for status in Status
        ]


def test_evidence_is_that_of_the_report():
    """With one depth, evidence is chosen where `findings.answered` has the case right."""
    for seed in range(6):
        trace = random_trace(seed, n_cases=40)
        for one_policy in random_policies(seed, 4, confidence__enabled=True):
            seen = decision_boundary(trace, one_policy)
            np.testing.assert_array_equal(
                seen.group == CHOSEN, answer_signals(trace, one_policy).right
            )


def test_depths():
    """A depth asked for gives its confidence and its evidence.

    None gives that of the depth that decided.
    """
    first, then = Hit(0.2, source="other.md", s_rerank=0.2), Hit(0.2, s_rerank=0.8)
    trace = trace_of((ask(expect_sources=("guide.md",)), [[first], [then]]))
    refining = gated().replace("refine.max_depth", 1)
    seen = [decision_boundary(trace, refining, depth=depth) for depth in (0, 1, None)]
    assert [round(float(one.confidence[0])) for one in seen] == [20, 80, 80]
    assert [int(one.group[0]) for one in seen] == [MISSED, CHOSEN, CHOSEN]
    assert [int(one.zone[0]) for one in seen] == [NO_THRESHOLD, BOTH_THRESHOLDS, BOTH_THRESHOLDS]
    assert all(one.answered[0] for one in seen)


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


def test_a_case_without_hits_has_confidence_zero():
    """It is drawn at 0 with its evidence not chosen, even where it expects no source."""
    seen = decision_boundary(trace_of((ask(), [[]]), scored_case("ok", 0.9)), gated())
    assert seen.confidence[0] == 0.0
    assert (seen.group[0], seen.zone[0]) == (MISSED, NO_THRESHOLD)
    assert dict(DecisionBoundaryDisplay(seen)._facts)["AUROC of right if answered"][:5] == "1.000"


def test_thresholds_stand_at_their_values():
    """The lines are at the two values; the legend names the zones with their labelled-ok share."""
    display = boundary_display(30, 40)
    upright = {
        line.get_xdata()[0]
        for line in display.ax_.get_lines()
        if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2
    }
    assert {30.0, 40.0} <= upright


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
