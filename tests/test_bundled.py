from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decided import by_cost
from laws_of_cost import check_case
from raglab.decision.chain import STAGES
from raglab.decision.decisions import GATE_OF
from raglab.decision.measurement import measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import Measured
from raglab.gating.expected_cost import COST_PATHS
from raglab.lab.search_space import full_space, set_values
from raglab.replay import decide, steps, sweep, tally
from raglab.replaying.breakpoints import SWEPT, breakpoints, threshold_values
from raglab.signals import NAMES
from raglab.store.policies import Policy
from raglab.values import Status, map_fields
from trades import BROKER

NUDGE = 1e-5  # what another processor changes a measurement by, relative to it


@pytest.fixture(scope="module")
def start():
    """The policy that comes with the set."""
    return Policy.load(BROKER / "policy.yaml")


@pytest.fixture(scope="module")
def trace(bundled_trace):
    """The trace of the bundled set."""
    return bundled_trace


@pytest.fixture(scope="module")
def policies(trace, start):
    """200 random policies over all thresholds and switches."""
    rng = np.random.default_rng(0)

    def drawn(extent):
        if extent.is_switch:
            return bool(rng.random() < 0.5)
        value = float(rng.uniform(extent.low, extent.high))
        return round(value) if extent.whole else value

    space = full_space(trace, start)
    return [
        set_values(start, {path: drawn(extent) for path, extent in space.items()})
        for _ in range(200)
    ]


def _explained(said, row):
    """Gate that refuses, by the explanation alone."""
    rows = said.explain(said.trace.cases[row].id)
    failed = [
        one.gate
        for one in rows
        if not one.passes and one.gate not in {"gap", "resolver", "sufficiency"}
    ]
    return failed[0] if failed else None


def test_sweep_decision_and_explanation_agree_on_every_case(trace, policies):
    """Of random policies the sweep counts the decisions; the gate of a refusal explains it."""
    held = Measured(trace)
    swept, counts = sweep(held, policies, engine="numpy"), tally(held, policies).counts
    for number, policy in enumerate(policies[:40]):
        said = decide(held, policy)
        label = said.tables.evidence.label
        refused = said.status == Status.refuse
        assert (
            swept["false_refusal_rate_k"][number]
            == (refused & (label == Status.ok)).sum()
            == counts[number, 0]
        )
        assert swept["coverage_k"][number] == (said.status == Status.ok).sum() == counts[number, 4]
        assert swept["pass_rate_k"][number] == said.right.sum() == counts[number, 5]
        for row in range(number % 16, len(trace), 16):
            stage = said.stage(row)
            assert _explained(said, row) == (GATE_OF.get(stage, stage) if refused[row] else None)


def test_the_published_cosine_refuses_most_answerable_questions(trace, start):
    """What the set is for.

    A threshold typed in elsewhere refuses more than half of what could be answered.
    """
    curve = steps(trace, start, path="similarity.min_similarity")
    here = curve[(curve["low"] < 0.70) & (curve["high"] >= 0.70)].iloc[0]
    assert here["false_refusal_rate"] > 0.5
    assert here["false_refusal_rate"] == sweep(trace, [start])["false_refusal_rate"][0]


def nudged(trace, seed):
    """The trace as another processor might have measured it.

    Every number off by up to `NUDGE` of itself.

    What was equal stays equal, as the same text on the same machine does; hits stay in the order of
    their l2.
    """
    rng = np.random.default_rng(seed)

    def off(values):
        if values.dtype.kind != "f":
            return values
        distinct, place = np.unique(values, return_inverse=True)
        return (distinct * (1.0 + NUDGE * rng.uniform(-1.0, 1.0, distinct.shape)))[place].reshape(
            values.shape
        )

    hits = map_fields(trace.hits, off)
    order = np.lexsort((hits.chunk, hits.l2), axis=-1)
    by_l2 = map_fields(
        hits,
        lambda field: np.take_along_axis(field, order, -1) if field.ndim == order.ndim else field,
    )
    answers = trace.answers
    if answers is not None:
        answers = answers._replace(confidence=off(answers.confidence), support=off(answers.support))
    return replace(trace, hits=by_l2, answers=answers)


def threshold_number(policy, path):
    """A threshold of a policy; NaN where it is not set, which nothing is near to."""
    value = policy.value(path)
    return float("nan") if value is None else float(value)


def near_a_threshold(trace, policy):
    """Cases where some measurement lies so near its threshold that a nudge may carry it across.

    They come as [Q].
    """
    found, limits = measured_tables(trace, policy).evidence, policy_thresholds([policy])
    near = np.zeros(len(trace), dtype=bool)
    for path, swept in SWEPT.items():
        if swept.whole:
            continue  # a count, which no nudge moves but through the cut that it counts by
        # a gap or a lead is a difference of two numbers, and moves by what both move
        moves = 2.0 * NUDGE * np.nanmax(found.l2) if "gap" in path else NUDGE
        at = threshold_number(policy, path)
        for depth in range(found.l2.shape[0]):
            values = threshold_values(found, limits, path, depth)
            near |= (np.abs(values - at) <= moves * np.maximum(1.0, np.abs(values))).any(axis=0)
    return near


def outcome(said, row):
    """What a decision says of a case, without its numbers."""
    return (
        int(said.status[row]),
        said.stage(row),
        int(said.outcome.depth[row]),
        set(said.chosen(row)),
    )


def test_last_digits_change_no_decision_away_from_a_threshold(trace, policies, start):
    """Rule S0.7: measurements off by 1e-5 of themselves change only cases next to a threshold.

    Besides the published and the random policies, some stand exactly on a measurement, where nudges
    do decide.
    """
    held = Measured(trace)
    rng = np.random.default_rng(1)
    # the published cosine refuses before the others are met
    lenient = start.replace("similarity.enabled", False)
    found, limits = measured_tables(held, lenient).evidence, policy_thresholds([lenient])
    pointed = []
    for path in SWEPT:
        values = breakpoints(found, limits, path)
        known = values[~np.isnan(values)]
        # a signal may be a ratio or a spread, which moves by more than what it is made of
        if len(known) and not SWEPT[path].whole and not SWEPT[path].signal:
            base = start if path == "similarity.min_similarity" else lenient
            pointed += [base.replace(path, float(value)) for value in rng.choice(known, 2)]
    n_turned = 0
    other = Measured(nudged(trace, seed=0))
    for policy in [start, *policies[:6], *pointed]:
        here, there = decide(held, policy), decide(other, policy)
        turned = np.array([outcome(here, row) != outcome(there, row) for row in range(len(trace))])
        assert not (turned & ~near_a_threshold(held, policy)).any()
        n_turned += int(turned.sum())
    assert n_turned > 0, "policies on a measurement are turned by its last digits"


@pytest.fixture(scope="module")
def cost_policies(trace, start):
    """200 policies that decide by expected cost.

    Random models over measured signals, random costs and ratios.
    """
    rng = np.random.default_rng(2)
    signals = measured_tables(trace, start).evidence.signals[:, 0]
    there = [
        name
        for name, row in zip(NAMES, signals, strict=True)
        if not np.isnan(row).all() and np.nanstd(row) > 0
    ]

    def drawn():
        parts = {}
        for name in rng.choice(there, size=int(rng.integers(1, 7)), replace=False):
            row = signals[NAMES.index(name)]
            numbers = {
                "center": float(np.nanmean(row)),
                "scale": float(np.nanstd(row)),
                "missing": float(row[0]),
            }
            numbers["missing"] = numbers["center"] if np.isnan(row[0]) else numbers["missing"]
            parts[str(name)] = numbers | {
                "weights": tuple(float(w) for w in rng.normal(0.0, 1.0, 4))
            }
        bias = tuple(float(b) for b in rng.normal(0.0, 0.5, 4))
        chosen = by_cost(start, bias, parts, asked_right=float(rng.random()), arm=trace.arms[0])
        if rng.random() < 0.3:
            return chosen
        paths = [*(f"decision.costs.{path}" for path in COST_PATHS.values()), "decision.ratio"]
        return chosen.replace(
            *(part for path in paths for part in (path, round(float(rng.gamma(1.0)), 3)))
        )

    return [drawn() for _ in range(200)]


def test_the_default_cost_is_what_does_not_pass(trace, policies, cost_policies):
    """Rule S6.7: under 400 policies of both rules expected cost is 1 - pass_rate, to the bit."""
    table = sweep(trace, [*policies, *cost_policies])
    np.testing.assert_array_equal(table["expected_cost"], 1.0 - table["pass_rate"])


def test_the_decision_by_cost_is_explained_on_every_case(trace, cost_policies):
    """Sweep, engines and decisions of 200 policies agree on every bundled case.

    The explanation is checked under every fourth policy.
    """
    held = Measured(trace)
    swept, counted = (
        sweep(held, cost_policies, engine="numpy"),
        tally(held, cost_policies, engine="numpy"),
    )
    for one, other in zip(counted[:3], tally(held, cost_policies)[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    for number, policy in enumerate(cost_policies):
        said = decide(held, policy)
        assert swept["pass_rate_k"][number] == said.right.sum()
        assert swept["coverage_k"][number] == (said.status == Status.ok).sum()
        assert (
            counted.stages[number].tolist()
            == np.bincount(said.outcome.stage, minlength=len(STAGES)).tolist()
        )
        for row in range(number % 4, len(trace), 4):
            check_case(said, row)
