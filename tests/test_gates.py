"""Margins of the gates (raglab.gates)."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.decision.chain import COST_REFUSES, STAGES
from raglab.gates import (
    GATES,
    ConfidenceThresholds,
    DensityThresholds,
    GapThresholds,
    L2Thresholds,
    SimilarityThresholds,
    SufficiencyThresholds,
    confidence_margins,
    coverage_margins,
    density_margins,
    domain_margins,
    explain,
    fires,
    gap_margins,
    hits_agree,
    l2_cut,
    l2_margins,
    similarity_margins,
    sufficiency_margins,
)
from raglab.policy import PolicyData
from raglab.values import Status

NAN = np.nan
LAWFUL = settings(deadline=None, derandomize=True, max_examples=150)


@pytest.mark.parametrize(
    ("n_words", "denied", "allowed", "needs", "on", "fired", "check"),
    [
        (4, 0, 0, False, True, False, "deny"),
        (0, 0, 0, False, True, True, "query"),
        (4, 1, 0, False, True, True, "deny"),
        (4, 0, 0, True, True, True, "allow"),
        (4, 2, 0, True, False, False, "query"),
        (0, 0, 0, False, False, True, "query"),
    ],
)
def test_domain(*, n_words, denied, allowed, needs, on, fired, check):
    """Rule S2.1: deny, then allow; the switch leaves the empty query refused."""
    verdict = explain(domain_margins(n_words, denied, allowed, needs, on))
    assert (verdict.fired, verdict.check) == (fired, check)


def test_l2_off_passes_and_cuts_nothing():
    """Where the gate is off every hit is relevant."""
    off = L2Thresholds(0.1, NAN, np.array(False))
    assert not fires(l2_margins(3.9, off))
    assert float(l2_cut(3.9, off)) == np.inf


@pytest.mark.parametrize(
    ("best", "hard", "soft", "cut", "fired"),
    [
        (0.75, 0.75, NAN, 0.75, False),
        (0.8, 0.75, NAN, -np.inf, True),
        (1.0, 0.75, 1.0, 1.0, False),
        (1.1, 0.75, 1.0, -np.inf, True),
        (0.5, 0.75, 0.25, 0.75, False),
        (NAN, 0.75, 1.0, -np.inf, True),
    ],
)
def test_l2(*, best, hard, soft, cut, fired):
    """Rule S2.2: hard, else soft where it is set, else refuse; at the bound passes.

    Nothing retrieved refuses.
    """
    thresholds = L2Thresholds(hard, soft)
    assert float(l2_cut(best, thresholds)) == cut
    assert bool(fires(l2_margins(best, thresholds))) is fired


@pytest.mark.parametrize(
    ("gap", "n_relevant", "agree", "fired"),
    [
        (0.25, 2, False, False),
        (0.125, 2, False, True),
        (0.125, 1, False, False),
        (0.125, 2, True, False),
        (NAN, 2, False, True),
    ],
)
def test_gap(*, gap, n_relevant, agree, fired):
    """Rule S2.4 at min_gap 0.25: a lone hit and two that agree are confident.

    An unknown gap is not.
    """
    assert bool(fires(gap_margins(gap, n_relevant, agree, GapThresholds(0.25)))) is fired


def test_margins_of_counts_are_counts():
    """Rules S2.3, S2.5: minus the entities or hits that are missing."""
    assert explain(coverage_margins([0, 2])).margin.tolist() == [0.0, -2.0]
    assert explain(density_margins([2, 1], DensityThresholds(2))).margin.tolist() == [0.0, -1.0]


def test_the_tightest_check_explains():
    """Of several margins the smallest is told, and a missing one before all others."""
    assert explain(domain_margins(3, 5, 0, True)).check == "deny"
    margins = domain_margins(3, 1, 0, False)._replace(allow=NAN)
    verdict = explain(margins)
    assert verdict.fired
    assert verdict.check == "allow"
    assert np.isnan(verdict.margin)


VALUES = st.sampled_from([-0.25, 0.0, 0.25, 0.35, 0.5, 0.7, 0.75, 1.0, NAN])
BOUNDS = st.sampled_from([-0.25, 0.0, 0.25, 0.35, 0.5, 0.7, 0.75, 1.0])


@LAWFUL
@given(value=VALUES, bound=BOUNDS, on=st.booleans())
def test_a_lower_threshold_is_a_comparison(*, value, bound, on):
    """Headroom >= 0 is `value >= threshold`, a missing value fails, and a disabled gate passes."""
    for margins in (
        similarity_margins(value, SimilarityThresholds(bound, on)),
        sufficiency_margins(value, SufficiencyThresholds(bound, on)),
        confidence_margins(value, False, ConfidenceThresholds(bound, 9.0, on)),
        density_margins(value, DensityThresholds(bound, on)),
    ):
        assert bool(fires(margins)) is (on and not value >= bound)


@LAWFUL
@given(best=VALUES, hard=BOUNDS, soft=VALUES)
def test_the_l2_gate_passes_where_there_is_a_cut(best, hard, soft):
    """The gate and the cut agree: it passes exactly where the best hit is itself within the cut."""
    thresholds = L2Thresholds(hard, soft)
    assert bool(fires(l2_margins(best, thresholds))) is not bool(best <= l2_cut(best, thresholds))


@LAWFUL
@given(rows=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=4))
def test_fires_unless_every_margin_is_headroom(rows):
    """A gate of several checks fires where any of them is negative or missing."""
    stacked = tuple(np.array(rows).T)
    assert fires(stacked).tolist() == [not all(margin >= 0.0 for margin in row) for row in rows]


def test_the_order_of_the_table_is_the_published_one():
    """Rule S2.12, and every refusal is numbered in it."""
    published = [
        "domain",
        "l2",
        "density",
        "gap",
        "coverage",
        "similarity",
        "signals",
        "fused",
        "sufficiency",
        "confidence",
        "generation",
        "support",
        "hygiene",
    ]
    # a gate of your own may stand between them
    assert [gate.name for gate in GATES if gate.name in published] == published
    refusals = [name for name, status in STAGES if status == Status.refuse or name == "signals_ask"]
    assert refusals == [
        *(name for gate in GATES if gate.firing == "refuse" for name in gate.decides),
        COST_REFUSES,
    ]


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_a_row_agrees_with_itself(gate):
    """A margin a stage, a policy section by name, a published value in each threshold's range."""
    policy = PolicyData.from_mapping()
    assert len(gate.measurements) == (len(gate.decides) or 1)
    assert hasattr(getattr(policy, gate.name, None), "enabled") == gate.switch
    for one in gate.thresholds:
        assert one.section == gate.name
        value = policy.value(one.path)
        assert one.nullable if value is None else one.low <= value <= one.high


def test_a_gate_out_of_place_is_refused():
    """What judges the query stands before what judges its hits."""
    code = "from raglab import gates\ngates.GATES = gates.GATES[::-1]\nimport raglab.decision.chain"
    moved = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "gates must stand in the order query, hits, chosen, answer" in moved.stderr


def test_hits_of_the_first_document_agree():
    """A document is a number from 0; -1 is no hit."""
    document, page = np.array([[0, 0], [0, 1], [-1, -1]]), np.array([[1.0, 2.0]] * 3)
    agree = hits_agree(document, page, np.array([[1, 2]] * 3), np.array([False] * 3), 1)
    assert agree.tolist() == [True, False, False]
