"""Groups of requests.

What is asked live for a group is decided, explained and logged as the replay says (S2.20).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pandas as pd
import pytest

import raglab
from decided import by_cost
from live_worlds import CASES, CORPUS, OPEN, SMALL
from raglab.audit.explanation import explain_request
from raglab.live.ask import ask
from raglab.live.decided_frames import decide_frame
from raglab.live.trace_building import build_trace
from raglab.replay import decide
from raglab.store.frames import trace_from_frame
from raglab.store.policies import Policy
from raglab.values import Status

GROUPS = (
    None,
    *({"tenant": name} for name in ("strict", "asks", "new")),
    {"language": "strict"},
)
TABLE = {"strict": (0.0, 0.0, 3.0, 0.0), "asks": (0.0, 0.0, 0.0, 4.0)}


def grouped_policy():
    """Answers what is near, by a coarse model; one tenant is refused more, one asked back."""
    part = {"center": 0.5, "scale": 0.5, "missing": 0.0, "weights": (1.0, 0.0, -1.0, 0.0)}
    policy = by_cost(
        Policy.from_mapping(OPEN), (1.0, 0.0, 0.0, 0.0), {"top1_cosine": part}, asked_right=1.0
    )
    return policy.replace("decision.model.groups", {"attribute": "tenant", "bias": TABLE})


@pytest.fixture
def system(opened):
    """System of that policy, with its log."""
    return opened().replace(grouped_policy())


def test_every_case_of_every_group_live_as_replayed(
    system,
    encoder,
):
    """Status, reason and checks.

    A group that is unknown, or of another attribute, is decided as none.
    """
    del encoder
    trace = build_trace(CORPUS, CASES, cache=None, arms=("hybrid",), **SMALL)
    statuses = {}
    for groups in GROUPS:
        cases = tuple(case._replace(extra={"groups": groups or {}}) for case in trace.cases)
        decisions = decide(replace(trace, cases=cases), system.policy)
        for row, case in enumerate(cases):
            response = ask(
                case.query, system=system, documents=list(case.selected_sources), groups=groups
            )
            status = Status(int(decisions.status[row])).name
            assert response["status"] == status
            assert response["refusal_reason"] == (
                decisions.reason(row) if status == "refuse" else None
            )
            texts = [
                check.text for check in decisions.explain(case.id) if check.rule.startswith("S2.17")
            ]
            assert [
                check.text for check in response.record.checks if check.rule.startswith("S2.17")
            ] == texts
            statuses.setdefault(str(groups), []).append(status)
    assert (
        statuses["None"]
        == statuses[str({"tenant": "new"})]
        == statuses[str({"language": "strict"})]
    )
    assert len({tuple(row) for row in statuses.values()}) == 3


def test_the_log_keeps_the_group_and_explains_it(system):
    """From the log alone.

    The group, its share of the logits, and a decision that its checks lead to.
    """
    ask(
        "What is the motor excess?",
        system=system,
        request_id="r1",
        groups={"tenant": "strict", "language": "en"},
    )
    ask("What is the motor excess?", system=system, request_id="r2", groups={"tenant": "new"})
    ask("What is the motor excess?", system=system, request_id="r3")
    for name in ("r1", "r2", "r3"):
        explanation = explain_request(name, system.audit)
        assert explanation.differences == ()


def test_no_group_has_the_cached_answer_of_another(
    opened,
):
    """The answer hangs on the group by which the policy decides, and on no other attribute."""
    system = opened(cache=True).replace(grouped_policy())
    question = "What is the motor excess?"
    first = [ask(question, system=system, groups=groups) for groups in GROUPS]
    assert [response.record.answer_cache_hit for response in first] == [
        False,
        False,
        False,
        False,
        True,
    ]
    again = [ask(question, system=system, groups=groups) for groups in GROUPS]
    assert all(response.record.answer_cache_hit for response in again)
    assert [response["status"] for response in again] == [response["status"] for response in first]


@pytest.mark.parametrize(
    ("groups", "rule"),
    [
        ("acme", "groups must map at most 20 attributes to texts"),
        ({"tenant": 7}, "must be a Unicode text of 1 to 200 characters, got 7"),
        ({"tenant": ""}, "must be a Unicode text of 1 to 200 characters"),
        ({"tenant": "a" * 201}, "must be a Unicode text of 1 to 200 characters"),
        ({"tenant": "\ud800"}, "must be a Unicode text of 1 to 200 characters"),
        ({str(number): "a" for number in range(21)}, "at most 20 attributes"),
    ],
)
def test_what_is_no_group_stops_at_the_door(system, groups, rule):
    """Rule, value and remedy."""
    with pytest.raises(ValueError, match=rule):
        ask("What is the motor excess?", system=system, groups=groups)


def test_a_graph_decides_as_ask(system):
    """LangGraph takes the groups that `ask` takes."""
    pytest.importorskip("langgraph")
    from raglab.live.langgraph_chain import build_graph

    graph = build_graph(system)
    for groups, case in product(GROUPS, CASES[:3]):
        response = graph.invoke({"question": case.query, **({"groups": groups} if groups else {})})[
            "response"
        ]
        live = ask(case.query, system=system, groups=groups)
        assert {name: response[name] for name in response if name != "request_id"} == {
            name: live[name] for name in live if name != "request_id"
        }


def _frame(n=12):
    """Two hits a question, and a tenant a question on the way."""
    rows = [
        (
            f"question {case}",
            f"h{case}{hit}",
            0.9 - 0.05 * case - 0.1 * hit,
            ("strict", "asks", "new", None)[case % 4],
        )
        for case in range(n)
        for hit in range(2)
    ]
    return pd.DataFrame(rows, columns=["query", "hit_id", "score", "tenant"])


def test_a_frame_is_decided_by_its_column():
    """As a trace with these groups; what follows the common policy is counted, once."""
    frame, policy = _frame(), grouped_policy().replace("decision.model.structure", _structure())
    with pytest.warns(UserWarning, match="6 of 12 cases are of no tenant with a bias of its own"):
        decided = decide_frame(frame, policy)
    trace = trace_from_frame(frame, groups=["tenant"])
    assert decided["status"].tolist() == [
        Status(int(code)).name for code in decide(trace, policy).status
    ]
    with pytest.warns(UserWarning, match="12 of 12 cases are of no tenant"):
        common = decide_frame(frame.drop(columns="tenant"), policy)
    plain = decide_frame(
        frame.drop(columns="tenant"), policy.replace("decision.model.groups", None)
    )
    assert common["status"].tolist() == plain["status"].tolist()
    assert common["status"].tolist() != decided["status"].tolist()


def _structure():
    """Hash of the hits of a frame under the policy."""
    from raglab.decision.measurement import structure_hash

    return structure_hash(grouped_policy().structure, "frame")


def test_groups_of_a_frame_are_one_a_case():
    """And of a column that is there."""
    frame = _frame()
    with pytest.raises(raglab.InputError, match="the column tenat is required"):
        trace_from_frame(frame, groups=["tenat"])
    frame.loc[1, "tenant"] = "asks"
    with pytest.raises(raglab.InputError, match="a case must have one tenant"):
        trace_from_frame(frame, groups=["tenant"])
