"""What can act under a policy alone: needs, warnings of `replace` and `load`, names in an order."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decided import by_cost
from labelled import labelled
from raglab.arguments.user_warnings import IdleThresholdWarning
from raglab.lab.study import tune
from raglab.policy import PolicyData
from raglab.policy_parts.acting import RULE_SWITCHES, threshold_need
from raglab.replaying.breakpoints import SWEPT
from raglab.store.policies import Policy

pytestmark = pytest.mark.filterwarnings(
    "ignore::raglab.arguments.user_warnings.IdleThresholdWarning"
)
PATHS = [path for path, swept in SWEPT.items() if not swept.signal and "decision" not in path]
GATES = ("l2", "density", "gap", "similarity", "confidence", "generation", "support")
SWITCHES = (*(f"{name}.enabled" for name in GATES), *RULE_SWITCHES.values())
ORDERS = (None, ("l2", "gap", "confidence"), ("domain", "density", "similarity"))


def idle_warnings(call):
    """Texts of the warnings of thresholds that cannot act."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(entry.message) for entry in caught if entry.category is IdleThresholdWarning]


@given(st.sets(st.sampled_from(SWITCHES)), st.sampled_from(ORDERS), st.booleans())
def test_what_a_threshold_needs_makes_it_act(off, order, costs):
    """Settings that keep a threshold from acting, changed one by one as named, are few and end."""
    policy = PolicyData.from_mapping()
    policy = by_cost(policy) if costs else policy
    policy = policy.replace(*(item for path in off for item in (path, False)))
    policy = policy.replace("decision.order", order)
    for path in PATHS:
        chosen, needs = policy, []
        while (need := threshold_need(chosen, path)) and need.path != "fused.enabled":
            needs.append(need.path)
            value = None if need.path == "decision.order" else need.value
            chosen = chosen.replace(need.path, value)
        assert len(needs) == len(set(needs)) <= 4, path
        assert set(needs) <= {*off, "decision.rule", "decision.order"}


@pytest.mark.parametrize(
    ("changes", "idle"),
    [
        (("density.enabled", False, "density.min_keep", 2), {"density.min_keep"}),
        (("density.min_keep", 2), set()),
        (("l2.soft_max_l2", 0.75), {"l2.soft_max_l2"}),
        (("l2.soft_max_l2", 0.75, "l2.max_l2", 0.7), set()),
        (("confidence.tau_explicit", 0.3), {"confidence.tau_explicit"}),
        (("decision.ratio", 3.0), {"decision.ratio"}),
        (("gap.enabled", False, "resolver.min_group_gap", 0.1), {"resolver.min_group_gap"}),
        (("resolver.anchor", False, "resolver.min_anchor_sim", 0.5), {"resolver.min_anchor_sim"}),
        (("decision.order", ("l2",), "support.min_support", 0.3), {"support.min_support"}),
        (("signals.gap.min", 0.1, "signals.gap.enabled", False), {"signals.gap.min"}),
        (("sufficiency.min_keyword_share", 0.1, "sufficiency.enabled", False), set()),
    ],
)
def test_replace_warns_of_what_results(changes, idle):
    """Whatever the order of the changes."""
    texts = idle_warnings(lambda: PolicyData.from_mapping().replace(*changes))
    assert len(texts) == bool(idle)
    assert all(path in texts[0] for path in idle)


def test_under_expected_cost_only_costs_act():
    """A threshold of a gate is warned of, a cost is not."""
    policy = by_cost(PolicyData.from_mapping())
    (text,) = idle_warnings(
        lambda: policy.replace("similarity.min_similarity", 0.9, "l2.max_l2", 0.5)
    )
    assert {"similarity.min_similarity", "l2.max_l2", "decision.rule"} <= set(
        text.replace(",", " ").split()
    )
    assert idle_warnings(lambda: policy.replace("decision.ratio", 3.0)) == []


def test_a_file_is_warned_of_for_its_numbers_alone(tmp_path):
    """A switch that is off says so itself; numbers against each other or their scale do not."""
    policy = Policy.load().replace("l2.enabled", False, "l2.max_l2", 0.5)
    policy.save(tmp_path / "off.yaml")
    assert idle_warnings(lambda: Policy.load(tmp_path / "off.yaml")) == []
    for path, value in (("l2.soft_max_l2", 0.5), ("confidence.tau_default", 0.55)):
        Policy.load().replace(path, value).save(tmp_path / "numbers.yaml")
        (text,) = idle_warnings(lambda: Policy.load(tmp_path / "numbers.yaml"))
        assert text.startswith(path)


def test_a_study_tries_thresholds_of_gates_that_are_off_without_a_warning():
    """Trials are the toolkit's own."""
    trace = labelled(1, {"tune": 40, "report": 40})
    assert idle_warnings(lambda: tune(trace, rule="chain", trials=4, batch_size=4)) == []


@pytest.mark.parametrize("name", ["signals.confidense", "gates.fresh"])
def test_an_order_names_gates_of_the_policy(name):
    """Refused from a mapping and in `replace`."""
    order = ("l2", "gap", name)
    policy = PolicyData.from_mapping({"signals": {"confidence": {"min": 20.0}}})
    for call in (
        lambda: PolicyData.from_mapping(
            {"decision": {"order": order}, "signals": {"confidence": {"min": 20.0}}}, "file"
        ),
        lambda: policy.replace("decision.order", order),
    ):
        with pytest.raises(ValueError, match=r"decision\.order"):
            call()


def test_the_gate_and_its_place_in_the_order_come_together():
    """Judged on the result; a policy without gates has no order."""
    order = ("l2", "gap", "signals.gap")
    policy = PolicyData.from_mapping().replace("decision.order", order, "signals.gap.min", 0.1)
    assert policy.decision.order == order
    assert policy.without_gates().decision.order is None
    with pytest.raises(ValueError, match=r"signals\.gap"):
        policy.replace("signals", {})
