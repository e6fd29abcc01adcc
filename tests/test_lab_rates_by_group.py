"""Rates of groups.

Counted by hand, exact intervals, and what a promise for a group alone would need (S2.20, S6.9).
"""

from __future__ import annotations

import numpy as np
import pytest

from labelled import free_policy, labelled, with_tenants
from raglab.certify import cases_needed
from raglab.lab.certification import certify_policy
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.rates_by_group import COMMON, group_rates
from raglab.lab.report.page import write_report
from raglab.metrics import clopper_pearson
from raglab.replay import sweep

TARGETS = {"hallucination_rate": 0.2, "false_refusal_rate": 0.1}


@pytest.fixture(scope="module")
def trace():
    """200 cases of two tenants and some without."""
    return with_tenants(labelled(4, {"": 200}), {"acme": 120, "zeta": 70, "": 10}, ("zeta",), 0.4)


@pytest.fixture(scope="module")
def policy():
    """Answers what is similar."""
    return free_policy(similarity={"min_similarity": 0.4}, confidence={"enabled": False})


def test_each_group_is_a_trace_of_its_own(trace, policy):
    """Its counts are those of a sweep of its cases alone; the groups together are all cases."""
    frame = group_rates(trace, policy, "tenant", targets=TARGETS)
    assert frame["group"].tolist() == ["", "", "acme", "acme", "zeta", "zeta"]
    assert frame["cases"].tolist() == [10, 10, 120, 120, 70, 70]
    names = np.array([case.extra.get("groups", {}).get("tenant", "") for case in trace.cases])
    for row in frame.to_dict("records"):
        alone = sweep(trace.subset(np.flatnonzero(names == row["group"])), [policy]).iloc[0]
        assert (row["k"], row["n"]) == (alone[f"{row['rate']}_k"], alone[f"{row['rate']}_n"])
        low, high = clopper_pearson(row["k"], row["n"])
        assert (row["low"], row["high"]) == (float(low), float(high))
        assert row["value"] == row["k"] / row["n"]
        assert row["target"] == TARGETS[row["rate"]]
    whole = sweep(trace, [policy]).iloc[0]
    for rate in TARGETS:
        assert frame.loc[frame["rate"] == rate, "k"].sum() == whole[f"{rate}_k"]
    assert frame.attrs["note"] == COMMON


def test_what_a_promise_would_need(trace, policy):
    """Twelve answered cases without an error for 20 %, at most 10 % error: 0.8 ** 11 = 0.086."""
    frame = group_rates(trace, policy, "tenant", targets={"hallucination_rate": 0.2})
    assert set(frame["needed"]) == {11} == {cases_needed(0.2)}


def test_targets_are_those_of_the_certificate(trace, policy):
    """And the certificate is as it was: one promise for all."""
    certified = certify_policy(
        trace, policy, targets={"hallucination_rate": 0.45, "expected_cost": 0.9}
    )
    assert certified.policy is not None
    frame = group_rates(trace, certified.policy, "tenant")
    assert set(frame["rate"]) == {"hallucination_rate"}
    assert set(frame["target"]) == {0.45}


@pytest.mark.parametrize("targets", [None, {"coverage": 0.5}])
def test_without_targets_there_is_no_table(trace, policy, targets):
    """The message names the rates."""
    with pytest.raises(ValueError, match=r"highest values of .*hallucination_rate.*write targets="):
        group_rates(trace, policy, "tenant", targets=targets)


def test_cases_without_the_attribute_are_one_group(trace, policy):
    """Named ''."""
    frame = group_rates(trace, policy, "language", targets={"hallucination_rate": 0.2})
    assert frame[["group", "cases"]].values.tolist() == [["", 200]]


@pytest.mark.filterwarnings("ignore")
def test_the_report_shows_groups_beside_the_certificate(trace, tmp_path, monkeypatch):
    """Of a policy with biases of groups, with the sentence that none is promised anything.

    Of others nothing.
    """
    monkeypatch.setattr("raglab.lab.report.blocks.png", lambda *_: b"")
    fitted = fit_decision(trace, free_policy(), group="tenant")
    fresh = with_tenants(labelled(9, {"": 200}), {"acme": 120, "zeta": 70, "": 10}, ("zeta",), 0.4)
    pages = []
    for policy in (fitted, fitted.replace("decision.model.groups", None)):
        out, targets = tmp_path / f"{policy.policy_id}.html", {"hallucination_rate": 0.2}
        page = write_report(fresh, {"fitted": policy}, out=out, incumbent="fitted", targets=targets)
        pages.append(page.read_text(encoding="utf-8"))
    assert COMMON in pages[0]
    assert "zeta" in pages[0]
    assert "Rates by tenant on " in pages[0]
    assert COMMON not in pages[1]
