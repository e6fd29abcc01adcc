from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raglab.decision.decisions import GATE_OF, Decisions
from raglab.lab.search_space import Range, changed, full_space
from raglab.live.trace_building import build_trace
from raglab.replay import decide, steps, sweep, tally
from raglab.store.loaders import Policy, load_cases, load_corpus
from raglab.store.traces import Trace
from raglab.values import Status

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
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

    def drawn(extent: Range) -> bool | int | float:
        if extent.is_switch:
            return bool(rng.random() < 0.5)
        value = float(rng.uniform(extent.low, extent.high))
        return round(value) if extent.whole else value

    space = full_space(trace, start)
    return [changed(start, {path: drawn(extent) for path, extent in space.items()}) for _ in range(200)]


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
