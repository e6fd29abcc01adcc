from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raglab.decision.decisions import GATE_OF, Decisions
from raglab.decision.measurement import measured_tables
from raglab.lab.search_space import SearchRange, full_space, set_values
from raglab.live.trace_building import build_trace
from raglab.policy import policy_thresholds
from raglab.replay import SWEPT, breakpoints, decide, steps, sweep, tally, threshold_values
from raglab.store.loaders import Policy, load_cases, load_corpus
from raglab.store.traces import Trace
from raglab.values import Status, map_fields

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
NUDGE = 1e-5  # what another processor changes a measurement by, relative to it
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def start() -> Policy:
    """The policy that comes with the set."""
    return Policy.load(BROKER / "policy.yaml")


@pytest.fixture(scope="module")
def trace(start: Policy) -> Trace:
    """The trace of the bundled set."""
    return build_trace(load_corpus(BROKER), load_cases(BROKER), policy=start)


@pytest.fixture(scope="module")
def policies(trace: Trace, start: Policy) -> list[Policy]:
    """200 random policies over all thresholds and switches."""
    rng = np.random.default_rng(0)

    def drawn(extent: SearchRange) -> bool | int | float:
        if extent.is_switch:
            return bool(rng.random() < 0.5)
        value = float(rng.uniform(extent.low, extent.high))
        return round(value) if extent.whole else value

    space = full_space(trace, start)
    return [set_values(start, {path: drawn(extent) for path, extent in space.items()}) for _ in range(200)]


def _explained(said: Decisions, row: int) -> str | None:
    """Gate that refuses, by the explanation alone."""
    rows = said.explain(said.trace.cases[row].id)
    failed = [one.gate for one in rows if not one.passes and one.gate not in {"gap", "resolver", "sufficiency"}]
    return failed[0] if failed else None


def test_sweep_decision_and_explanation_agree_on_every_case(trace: Trace, policies: list[Policy]) -> None:
    """200 random policies: the sweep counts the decisions, and each refusal is explained by its gate."""
    swept, counts = sweep(trace, policies, engine="numpy"), tally(trace, policies).counts
    for number, policy in enumerate(policies):
        said = decide(trace, policy)
        label = said.tables.evidence.label
        refused = said.status == Status.refuse
        assert swept["false_refusal_rate_k"][number] == (refused & (label == Status.ok)).sum() == counts[number, 0]
        assert swept["coverage_k"][number] == (said.status == Status.ok).sum() == counts[number, 4]
        assert swept["pass_rate_k"][number] == said.right.sum() == counts[number, 5]
        for row in range(len(trace)):
            stage = said.stage(row)
            assert _explained(said, row) == (GATE_OF.get(stage, stage) if refused[row] else None)


def test_the_published_cosine_refuses_most_answerable_questions(trace: Trace, start: Policy) -> None:
    """What the set is for: a threshold typed in elsewhere refuses more than half of what could be answered."""
    curve = steps(trace, start, "similarity.min_similarity")
    here = curve[(curve["low"] < 0.70) & (curve["high"] >= 0.70)].iloc[0]
    assert here["false_refusal_rate"] > 0.5
    assert here["false_refusal_rate"] == sweep(trace, [start])["false_refusal_rate"][0]


def nudged(trace: Trace, seed: int) -> Trace:
    """The trace as another processor might have measured it: every number off by up to `NUDGE` of itself.

    What was equal stays equal, as the same text on the same machine does; hits stay in the order of their l2.
    """
    rng = np.random.default_rng(seed)

    def off(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if values.dtype.kind != "f":
            return values
        distinct, place = np.unique(values, return_inverse=True)
        return (distinct * (1.0 + NUDGE * rng.uniform(-1.0, 1.0, distinct.shape)))[place].reshape(values.shape)

    hits = map_fields(trace.hits, off)
    order = np.lexsort((hits.chunk, hits.l2), axis=-1)
    by_l2 = map_fields(hits, lambda field: np.take_along_axis(field, order, -1) if field.ndim == order.ndim else field)
    answers = trace.answers
    if answers is not None:
        answers = answers._replace(confidence=off(answers.confidence), support=off(answers.support))
    return replace(trace, hits=by_l2, answers=answers)


def threshold_number(policy: Policy, path: str) -> float:
    """A threshold of a policy; NaN where it is not set, which nothing is near to."""
    value = policy.value(path)
    return float("nan") if value is None else float(value)


def near_a_threshold(trace: Trace, policy: Policy) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Cases of which some measurement lies so near to the threshold it meets that a nudge may carry it across, [Q]."""
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


def outcome(said: Decisions, row: int) -> tuple[object, ...]:
    """What a decision says of a case, without its numbers."""
    return int(said.status[row]), said.stage(row), int(said.outcome.depth[row]), set(said.chosen(row))


def test_last_digits_change_no_decision_away_from_a_threshold(
    trace: Trace, policies: list[Policy], start: Policy
) -> None:
    """Rule S0.7: with every measurement off by 1e-5 of itself, a case decided otherwise has one next to a threshold.

    Besides the published and the random policies, some stand exactly on a measurement, where nudges do decide.
    """
    rng = np.random.default_rng(1)
    lenient = start.replace("similarity.enabled", False)  # the published cosine refuses before the others are met
    found, limits = measured_tables(trace, lenient).evidence, policy_thresholds([lenient])
    pointed = []
    for path in SWEPT:
        values = breakpoints(found, limits, path)
        known = values[~np.isnan(values)]
        # a signal may be a ratio or a spread, which moves by more than what it is made of
        if len(known) and not SWEPT[path].whole and not SWEPT[path].signal:
            base = start if path == "similarity.min_similarity" else lenient
            pointed += [base.replace(path, float(value)) for value in rng.choice(known, 10)]
    n_turned = 0
    for other in (nudged(trace, seed) for seed in range(2)):
        for policy in [start, *policies[:30], *pointed]:
            here, there = decide(trace, policy), decide(other, policy)
            turned = np.array([outcome(here, row) != outcome(there, row) for row in range(len(trace))])
            assert not (turned & ~near_a_threshold(trace, policy)).any()
            n_turned += int(turned.sum())
    assert n_turned > 0, "policies on a measurement are turned by its last digits"
