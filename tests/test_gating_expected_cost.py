"""The decision by expected cost by head.

Probabilities, costs, ties, what comes before it, what it belongs to.
"""

from __future__ import annotations

import numpy as np
import pytest

from decided import by_cost
from generators import Fixed, Weighed
from raglab import metrics
from raglab.gating.expected_cost import (
    DecisionModel,
    SignalPart,
    action_costs,
    class_probabilities,
    expected_costs,
    least_cost,
)
from raglab.live.answer_recording import record_answers
from raglab.policy import PolicyData
from raglab.replay import decide, flips, steps
from raglab.signals import NAMES
from raglab.store.policies import Policy
from raglab.values import Status
from worlds import PATTERNS, Hit, ask, policy, random_policies, random_trace, trace_of

GROUPS = DecisionModel(
    (SignalPart("groups", 1.0, 0.5, 2.0, (0.0, 0.0, 0.0, 1.0)),), (0.0,) * 4, 0.5, ""
)
CHANCES = np.array([0.4, 0.2, 0.3, 0.1])  # right, miss, refuse, ambiguous
HOME, FLEET = {"domain": "home"}, {"domain": "fleet"}
TWO = [Hit(0.25, "a.md", 1, HOME), Hit(0.5, "b.md", 1, FLEET)]  # two groups, so two options
SURE, MISS, REFUSE, ASK = (
    (2.0, 0.0, 0.0, 0.0),
    (0.0, 2.0, 0.0, 0.0),
    (0.0, 0.0, 2.0, 0.0),
    (0.0, 0.0, 0.0, 2.0),
)


def _signals(**values):
    """Signals of one case, NaN where not given, [S, 1]."""
    column = np.full((len(NAMES), 1), np.nan)
    for name, value in values.items():
        column[NAMES.index(name)] = value
    return column


def _status(trace, chosen):
    return [Status(int(code)).name for code in decide(trace, chosen).status]


def test_the_probabilities_of_a_tiny_model():
    """One signal half a unit of log 3 above its centre of 1 triples the odds of being asked.

    1/6, 1/6, 1/6, 1/2.
    """
    found = class_probabilities(_signals(groups=1.0 + 0.5 * np.log(3.0)), GROUPS)[:, 0]
    assert found.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])


def test_expected_costs_under_own_costs():
    """A wrong answer to what should be refused costs 10, a question 0.2.

    3.3, 0.7 and .2 * .9 + .1 * (.5 * 0 + .5).
    """
    matrix = metrics.cost_matrix(
        {"refuse": {"answered_wrong": 10, "asked": 0.2}, "ok": {"asked": 0.2}}
    )
    costs = expected_costs(CHANCES, 0.5, action_costs(matrix))
    assert [float(cost) for cost in costs] == pytest.approx([3.3, 0.7, 0.23])
    doubled = expected_costs(CHANCES, 0.5, action_costs(matrix, 2.0))
    assert [float(cost) for cost in doubled] == pytest.approx([6.6, 0.7, 0.23])


@pytest.mark.parametrize(
    ("answer", "refused", "asked", "can_ask", "status"),
    [
        (0.5, 0.5, 0.5, True, "refuse"),
        (0.4, 0.5, 0.4, True, "ambiguous"),
        (0.5, 0.4, 0.4, True, "refuse"),
        (0.3, 0.5, 0.4, True, "ok"),
        (0.5, 0.5, 0.1, False, "refuse"),
    ],
)
def test_ties_go_to_refuse_then_to_asking(
    answer,
    refused,
    asked,
    can_ask,
    status,
):
    """The cheapest action decides; without two options asking is none of them."""
    assert Status(int(least_cost(answer, refused, asked, can_ask))).name == status


@pytest.mark.parametrize(
    ("query", "hits", "stage"),
    [("", TWO, "empty_query"), ("the weather today", TWO, "deny"), ("excess", [], "no_hits")],
)
def test_hard_gates_come_first(query, hits, stage):
    """An empty query, a deny pattern and no hits refuse whatever an answer costs."""
    chosen = by_cost(policy(patterns=PATTERNS), SURE)
    said = decide(trace_of((ask(query), [hits])), chosen)
    assert (said.stage(0), said.status[0]) == (stage, Status.refuse)
    assert all(check.gate != "expected_cost" for check in said.explain("q"))


def test_an_unfit_answer_is_asked_back_where_answering_costs_more_than_asking():
    """A ratio's steps know the case whose answer would be refused."""
    chosen = by_cost(policy(), (1.0, 0.0, 0.0, 1.0), asked_right=1.0)
    trace = record_answers(
        trace_of((ask(expect_status="ambiguous"), [TWO])), chosen, Fixed(text=""), Weighed()
    )
    moved = [chosen.replace("decision.ratio", ratio) for ratio in (0.0, 5.0)]
    assert [_status(trace, one) for one in moved] == [["refuse"], ["ambiguous"]]
    curve = steps(trace, chosen, path="decision.ratio")
    assert curve["missed_ambiguity_rate_k"].tolist() == [1, 0]


@pytest.mark.parametrize(("path", "value"), [("chosen.final_k", 3), ("chosen.order", "rank")])
def test_a_model_of_other_hits_is_refused(path, value):
    """Rule S2.17: nothing is rescored in silence."""
    chosen = by_cost(policy(), SURE)
    with pytest.raises(
        ValueError,
        match=r"used on the hits it was fitted on.*fit it again with raglab.fit_decision",
    ):
        decide(trace_of((ask(), [TWO])), chosen.replace(path, value))


def test_a_policy_with_a_model_comes_back_from_yaml(tmp_path):
    """Same id, same numbers."""
    part = {"center": 0.1, "scale": 1.0 / 3.0, "missing": 0.25, "weights": (0.1, -0.2, 0.3, 1e-7)}
    stated = by_cost(Policy.load(), (0.1, 0.2, -30.0, 0.0), {"groups": part, "gap": part})
    stated = stated.replace("decision.ratio", 2.5, "decision.costs.refuse.answered_wrong", 10.0)
    stated.save(tmp_path / "policy.yaml")
    again = Policy.load(tmp_path / "policy.yaml")
    assert again.policy_id == stated.policy_id
    assert again.decision == stated.decision


def test_a_decision_at_its_default_changes_no_id():
    """Rule S0.8: stated or left out, the default is the same policy.

    A model or a cost is another.
    """
    plain = PolicyData.from_mapping()
    assert (
        PolicyData.from_mapping({"decision": {"rule": "chain", "ratio": 1.0}}).policy_id
        == plain.policy_id
    )
    assert plain.replace("decision.costs.ok.refused", 1.0).policy_id == plain.policy_id
    assert plain.replace("decision.costs.ok.refused", 2.0).policy_id != plain.policy_id
    assert by_cost(plain, SURE).policy_id != plain.policy_id


def test_a_model_beside_the_rule_chain_decides_nothing():
    """Every random policy decides the same cases alike with a model stored, even of other hits."""
    for seed in range(2):
        trace = random_trace(seed, n_cases=6)
        for chosen in random_policies(seed, 3):
            stored = by_cost(chosen, ASK).replace(
                "decision.rule", "chain", "decision.ratio", 3.0, "chosen.final_k", 2
            )
            plain = chosen.replace("chosen.final_k", 2)
            for one, other in zip(
                decide(trace, plain).outcome, decide(trace, stored).outcome, strict=True
            ):
                np.testing.assert_array_equal(one, other)
            assert not any("decision" in path for path in flips(trace, stored, "q0")["path"])
