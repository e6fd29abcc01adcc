"""Exact steps of all thresholds at once, and the values at which a decision may change."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decided import random_costs, random_model, with_columns
from generators import Drawn, Weighed
from raglab.decision.measurement import measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.live.answer_recording import record_answers
from raglab.policy_parts.own_gates import REGISTERED_GATES, register_gate
from raglab.replay import all_step_cells, decide, flips, step_cells, steps, tally
from raglab.replaying import step_functions
from raglab.replaying.breakpoints import (
    acting_paths,
    breakpoints,
    swept_threshold,
)
from raglab.values import Status
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of, with_signals

LAWFUL = settings(deadline=None, derandomize=True, max_examples=4)
SEEDS = st.integers(0, 100_000)
PLAIN: dict[str, Any] = {"gap": {"enabled": False}, "sufficiency": {"enabled": False}}
OWN = {"near": {"least": 0.5}, "covered": {"least": 0.25}, "short": {}}


@pytest.fixture(autouse=True)
def own_gates():
    """Gates on a signal, on question parts in chosen hits, with two thresholds, and asking back."""
    cosine = {"least": {"side": "floor", "default": 0.5, "unit": "cosine"}}
    register_gate("near", thresholds=cosine, reads=["signals.top1_cosine"])(
        lambda read, limits: read("signals.top1_cosine") - limits.least
    )
    both = {
        "least": {"side": "floor", "default": 0.5, "unit": "share"},
        "bonus": {"side": "ceiling", "default": 0.25, "unit": "share"},
    }
    register_gate("covered", thresholds=both, reads=["share", "missing"])(
        lambda read, limits: read("share") + limits.bonus**3 - 0.5 * read("missing") - limits.least
    )
    most = {"most": {"side": "ceiling", "default": 2.0, "unit": "count"}}
    register_gate("short", thresholds=most, reads=["words"], on_fire="ask")(
        lambda read, limits: limits.most - read("words")
    )
    yield
    REGISTERED_GATES.clear()


def _tried(trace, chosen, path):
    """Every value that a case can meet, the floats beside it, and values between, within range."""
    found, limits = measured_tables(trace, chosen).evidence, policy_thresholds([chosen])
    swept = swept_threshold(found.known, limits, path)
    met = breakpoints(found, limits, path)
    met = np.unique(met[~np.isnan(met)])
    if swept.whole:
        return [*range(int(swept.low), int(met.max(initial=1.0)) + 2)]
    ends = np.concatenate([[swept.low], met, [swept.high]])
    near = [np.nextafter(met, -np.inf), np.nextafter(met, np.inf), 0.5 * (ends[1:] + ends[:-1])]
    every = np.unique(np.concatenate([ends, *near]))
    return [float(one) for one in every if swept.low <= one <= swept.high]


def _row_at(curve, values, side):
    if side == "ceiling":
        return np.minimum(np.searchsorted(curve.low, values, side="right") - 1, len(curve.low) - 1)
    return np.searchsorted(curve.high, values, side="left")


def _status(trace, case_id, chosen):
    said = decide(trace, chosen)
    return Status(int(said.status[said.row_of(case_id)])).name


def _check_steps(trace, chosen):
    """All steps at once are those of each threshold alone and what policies with that value count.

    How many steps.
    """
    found = measured_tables(trace, chosen).evidence
    curves = all_step_cells(found, chosen)
    assert list(curves) == acting_paths(found, chosen)
    for path, curve in curves.items():
        for one, other in zip(curve, step_cells(found, chosen, path), strict=True):
            np.testing.assert_array_equal(one, other)
        assert (curve.low[1:] == curve.high[:-1]).all()
        assert (curve.cells[1:] != curve.cells[:-1]).any(axis=1).all(), (
            "each step begins where something changes"
        )
        values = _tried(trace, chosen, path)
        counted = tally(trace, [chosen.replace(path, value) for value in values], engine="numpy")
        side = swept_threshold(found.known, policy_thresholds([chosen]), path).side
        np.testing.assert_array_equal(
            curve.cells[_row_at(curve, values, side)], counted.cells, path
        )
    return sum(len(curve.low) for curve in curves.values())


# one case by head


def test_steps_of_all_thresholds_are_those_of_each():
    """Cosines 0.875 and 0.75 at l2 0.25 and 0.5: three steps of either bound.

    The gates that are off have none.
    """
    trace = trace_of((ask(), [[Hit(0.25)]]), (ask(), [[Hit(0.5)]]))
    chosen = policy(
        **PLAIN, l2={"soft_max_l2": None}, similarity={"enabled": True, "min_similarity": 0.1}
    )
    table = steps(trace, chosen)
    assert list(table)[:3] == ["path", "low", "high"]
    of_bound = table[table["path"] == "similarity.min_similarity"][["low", "high", "coverage_k"]]
    assert of_bound.to_numpy().tolist() == [[-1.0, 0.75, 2], [0.75, 0.875, 1], [0.875, 1.0, 0]]
    assert table[table["path"] == "l2.max_l2"][
        ["low", "high", "coverage_k"]
    ].to_numpy().tolist() == [
        [0.0, 0.25, 0],
        [0.25, 0.5, 1],
        [0.5, 4.0, 2],
    ]


def test_a_trace_of_no_thresholds_has_no_steps():
    """Gates and rules all off: a frame with the columns and no rows."""
    trace = trace_of((ask(), [[Hit(0.25)]]))
    off = {
        name: {"enabled": False} for name in ("l2", "density", "gap", "similarity", "confidence")
    }
    rules = dict.fromkeys(
        ("min_group_gap", "min_sig_sim", "min_sig_sim_gap", "min_anchor_sim", "min_anchor_sim_gap")
    )
    table = steps(trace, policy(**off, resolver=rules))
    assert len(table) == 0
    assert {"path", "low", "high", "coverage", "coverage_low", "expected_cost"} <= set(table)


# laws


@LAWFUL
@given(seed=SEEDS)
def test_all_steps_are_what_each_value_counts(seed):
    """Of gates, rules, signal bounds and own gates, on coarse tied grids, of one or two depths."""
    trace = random_trace(seed, n_cases=6, depths=1 + seed % 2)
    (chosen,) = with_signals(random_policies(seed, 1), seed)
    share = (0.0, 0.3, 0.6, 1.0)[seed % 4]  # none, some or all decided apart
    with mock.patch.object(step_functions, "MANY_PIECES_SHARE", share):
        _check_steps(trace, chosen.replace("gates", OWN) if seed % 3 else chosen)


@LAWFUL
@given(seed=SEEDS)
def test_steps_of_recorded_answers_are_what_each_value_counts(seed):
    """With recorded answers the gates on them act, and a hit tells where it changes the answer."""
    (chosen,) = random_policies(seed, 1, support__enabled=True, generation__enabled=seed % 2 == 0)
    trace = record_answers(
        random_trace(seed, n_cases=6, depths=1 + seed % 2), chosen, Drawn(), Weighed()
    )
    _check_steps(trace, chosen)


@LAWFUL
@given(seed=SEEDS)
def test_steps_of_costs_are_what_each_value_counts(seed):
    """Under expected cost the costs have steps, and what the user adds.

    The gates that do not act have none.
    """
    rng = np.random.default_rng(seed)
    chosen = random_costs(rng, random_model(rng, random_policies(seed, 1)[0]))
    chosen = chosen.replace("gates", {"near": {}}) if seed % 2 else chosen
    trace = with_columns(random_trace(seed, n_cases=6, depths=1), seed)
    _check_steps(trace, chosen)
    found = measured_tables(trace, chosen).evidence
    assert not {"l2.max_l2", "resolver.min_sig_sim"} & set(acting_paths(found, chosen))


@LAWFUL
@given(seed=SEEDS)
def test_flips_are_where_the_steps_of_one_case_change_its_status(seed):
    """A flip turns its case to what it says, and the threshold halfway to it does not."""
    trace = random_trace(seed, n_cases=3, depths=1 + seed % 2)
    (chosen,) = with_signals(random_policies(seed, 1), seed)
    for case in trace.cases:
        for flip in flips(trace, chosen, case.id).itertuples():
            at = int(flip.flips_at) if flip.path == "density.min_keep" else flip.flips_at
            assert (
                _status(trace, case.id, chosen.replace(flip.path, at))
                == flip.becomes
                != flip.status
            )
            if flip.path != "density.min_keep":
                halfway = 0.5 * (flip.current + flip.flips_at)
                if halfway not in (flip.current, flip.flips_at):
                    assert (
                        _status(trace, case.id, chosen.replace(flip.path, halfway)) == flip.status
                    )
