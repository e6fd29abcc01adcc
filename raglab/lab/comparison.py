"""The selected policy against what it must beat (shore): rates, cost, paired tests (S6.8).

The tests are on the judged cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.answer_text import MissingAnswers
from raglab.decision.inclusion import PROBABILITY_KEY, check_alone, inclusion_weights
from raglab.decision.learned_cases import trace_learned
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.trace_view import TraceView, answered_traces, failed_count
from raglab.lab.answer_basis import check_compared
from raglab.lab.candidates import DEFAULTS, FREE_POLICIES
from raglab.lab.competition import TUNED
from raglab.lab.goals import Goal
from raglab.lab.paired_differences import (
    Advantage,
    Verdict,
    difference_text,
    learned_text,
    paired_advantage,
    paired_table,
)
from raglab.metrics.mixes import Mix
from raglab.replay import decide_policies, trace_codes
from raglab.store.policies import Policy
from raglab.values import CodeArray, FloatArray, Status, counted
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd


# role of a candidate that did not compete: no reason against what was selected
SHOWN_BESIDE = "shown beside"
POLICY_SIDES = ("a", "b")  # of a comparison of two policies


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """Two policies on the same cases.

    table: a row a measure, expected cost first: `measure`, `a`, `b`, `difference` (b less a) with
    `low`, `high` of a paired 95 % interval, of the cost the `p` of the paired t-test whose interval
    these are, then of a rate `a_k`, `a_n`, `b_k`, `b_n` and the cases that count in it under one
    policy alone, `only_a`, `only_b`; a rate has no p-value, since its interval is of no test.
    changed: cases decided otherwise, see `Decisions.changed`. a, b: their ids. basis: on which the
    cases are judged (rule S6.3). missing: answers of each that are not recorded. status_only: cases
    that are scored by status alone. in_sample: which of the two learned from how many of the cases;
    there are no intervals and no p then (rule S6.11). failed: cases left out, since a call failed
    (rule S0.1). mix: shares of the labels in traffic (rule S6.15).
    """

    a: str
    b: str
    cases: int
    table: pd.DataFrame
    changed: pd.DataFrame
    basis: str
    missing: tuple[MissingAnswers, ...]
    status_only: int
    in_sample: str
    failed: int
    mix: str

    def _summary(self) -> Summary:
        change_counts = dict.fromkeys(("gained", "lost", "other"), 0)
        change_counts |= self.changed["change"].value_counts()
        case_counts = {
            "failed": self.failed,
            "scored by status": self.status_only,
            "missing in a": self.missing[0].k,
            "missing in b": self.missing[1].k,
        }
        *cost_difference, cost_p = self.table.loc[0, ["difference", "low", "high", "p"]]
        cost_text = f"{difference_text(*cost_difference)}, p = {cost_p:.3g}"
        if self.in_sample:
            cost_text = f"{cost_difference[0]:+.3f}, {self.in_sample}"
        facts = [
            ("a", self.a),
            ("b", self.b),
            ("cost of b less a", cost_text),
            ("changed", f"{len(self.changed):,} of {self.cases:,} cases, {counted(change_counts)}"),
            ("basis", self.basis),
            ("mix", self.mix),
            *(
                (count_name, f"{n_cases:,}")
                for count_name, n_cases in case_counts.items()
                if n_cases
            ),
        ]
        return Summary(
            facts, {"b less a": self.table.drop(columns="p"), "changed cases": self.changed}
        )


@answered_traces("trace", measured=True)
def compare(
    trace: TraceView,
    a: Policy,
    b: Policy,
    *,
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    mix: Mix = metrics.SAMPLE,
) -> Comparison:
    """Changes from policy `a` to policy `b` on labelled cases.

    Rates and expected cost paired, and the cases.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.
      a: first policy.
      b: second policy; differences are `b` less `a`.
      arm: of the trace; the first where not given.
      costs: see `metrics.cost_matrix`.
      mix: shares of the labels in traffic, see `raglab.Goal` and `raglab.sweep`.

    Warns:
      UserWarning: a policy was fitted or tuned on some of the cases: the figures are in sample, not
        comparable.

    Raises:
      ValueError: a case without a label, an unknown arm, costs that mean nothing, or a policy of
        which more than 5 % of the answers are missing, of cases judged by text.

    Source: rules S6.2, S6.3, S6.7, S6.11; intervals as in `metrics.paired_rates` and
      `metrics.paired_cost`.

    Example: `raglab.compare(trace, policy, policy.replace("l2.max_l2", 0.7)).changed` names the
      cases.
    """
    first_decisions, second_decisions = decide_policies(trace, [a, b], arm)
    missing_answers = (first_decisions.missing_answers, second_decisions.missing_answers)
    check_compared(dict(zip((a.policy_id, b.policy_id), missing_answers, strict=True)))
    in_sample_text = learned_text(
        ("Policy a", "Policy b"), POLICY_SIDES, trace_learned([a, b], trace)
    )
    traffic_goal = Goal(mix=mix)
    case_weights = inclusion_weights(trace)
    if traffic_goal.traffic is not None:
        check_alone(traffic_goal.traffic, case_weights)
        label_counts = np.bincount(first_decisions.label_code, minlength=len(Status))
        case_weights = traffic_goal.at_labels(label_counts).case_weights(first_decisions.label_code)
    measure_table = paired_table(
        first_decisions.cells,
        second_decisions.cells,
        POLICY_SIDES,
        costs,
        case_weights,
        in_sample=bool(in_sample_text),
    )
    return Comparison(
        a=a.policy_id,
        b=b.policy_id,
        cases=len(first_decisions),
        table=measure_table,
        changed=first_decisions.changed(second_decisions),
        basis=first_decisions.basis.described,
        missing=missing_answers,
        status_only=int(first_decisions.status_only.sum()),
        in_sample=in_sample_text,
        failed=failed_count(trace),
        mix=str(
            traffic_goal.traffic or (metrics.SAMPLE if case_weights is None else PROBABILITY_KEY)
        ),
    )


class PolicyContest(NamedTuple):
    """The tuned policy against another one, on the same cases.

    reference: name of that policy. role: what it stands for. gain: expected cost that tuned saves
    over it. only_tuned, only_reference: cases that one of them alone has right. verdict: of tuned;
    `same` where both are one policy. sizes: how many cases cost otherwise, and the differences that
    so many can tell; None where both are one policy.
    """

    reference: str
    role: str
    gain: Advantage
    only_tuned: int
    only_reference: int
    verdict: Verdict | Literal["same"]
    sizes: metrics.PairedSizes | None = None


def reference_roles(costs: pd.DataFrame, selected: str, incumbent: str) -> dict[str, str]:
    """Role of each reference policy, by name.

    The incumbent stands first, then the free policies, the default one, candidates. The candidate
    that the study selected is the tuned policy and no reference.

    Args:
      costs: a row a candidate, see `TuneResult`.
    """
    role_of_policy = {incumbent: "incumbent"} | dict.fromkeys(FREE_POLICIES, "free policy")
    role_of_policy |= {DEFAULTS: "default policy", incumbent: "incumbent"}
    for candidate_name, is_competing in costs["competes"].items():
        if candidate_name != selected:
            role_of_policy.setdefault(
                str(candidate_name), "candidate" if is_competing else SHOWN_BESIDE
            )
    return role_of_policy


def contests(
    trace: TraceView,
    policies: Mapping[str, Policy],
    roles: Mapping[str, str],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    mix: Mix = metrics.SAMPLE,
) -> list[PolicyContest]:
    """Tuned policy against each of the references that is there, on the same cases.

    Whoever calls it sees to it that none of the policies was fitted or selected on these cases
    (rule S6.11). A policy that lacks too many recorded answers is not compared (rule S6.3); where
    tuned does, nothing is.

    Args:
      policies: by name, `tuned` among them.
      roles: of `reference_roles`.
      costs: see `metrics.cost_matrix`.
      mix: see `raglab.Goal`.

    Source: rules S6.3, S6.7, S6.8, S6.11.
    """
    tuned_policy = policies[TUNED]
    present_roles = {
        policy_name: policy_role
        for policy_name, policy_role in roles.items()
        if policy_name in policies
    }
    outcome_codes = trace_codes(
        trace, [tuned_policy, *(policies[policy_name] for policy_name in present_roles)], arm
    )
    tuned_cells, *cells_of_references = CELL_OF_CODE[outcome_codes]
    is_tuned_compared, *are_compared = (
        shortfall.is_compared for shortfall in codes_missing(outcome_codes)
    )
    case_weights = inclusion_weights(trace)
    if case_weights is None:
        case_weights = Goal(mix=mix).case_weights(metrics.LABEL_OF_CELL[tuned_cells])
    return [
        _contest(
            policy_name,
            policy_role,
            tuned_cells,
            reference_cells,
            costs,
            case_weights,
            is_same_policy=policies[policy_name].policy_id == tuned_policy.policy_id,
        )
        for (policy_name, policy_role), reference_cells, is_compared in zip(
            present_roles.items(), cells_of_references, are_compared, strict=True
        )
        if is_tuned_compared and is_compared
    ]


def _contest(
    policy_name: str,
    policy_role: str,
    tuned_cells: CodeArray,
    reference_cells: CodeArray,
    costs: metrics.Costs | None,
    case_weights: FloatArray | None,
    *,
    is_same_policy: bool,
) -> PolicyContest:
    is_right_cell = metrics.cell_costs() == 0.0
    cell_prices = metrics.cell_costs(costs)
    cost_advantage = paired_advantage(
        tuned_cells, reference_cells, costs, policy_name, case_weights
    )
    case_gains = cell_prices[reference_cells] - cell_prices[tuned_cells]
    case_gains = case_gains if case_weights is None else case_weights * case_gains
    size_settings: dict[str, Any] = {
        "price": float(cell_prices.max()) or 1.0,
        "guard": metrics.interval_guard(costs),
    }
    verdict: Verdict | Literal["same"] = "same" if is_same_policy else cost_advantage.verdict
    return PolicyContest(
        policy_name,
        policy_role,
        cost_advantage,
        only_tuned=int((is_right_cell[tuned_cells] & ~is_right_cell[reference_cells]).sum()),
        only_reference=int((is_right_cell[reference_cells] & ~is_right_cell[tuned_cells]).sum()),
        verdict=verdict,
        sizes=None if is_same_policy else metrics.paired_sizes(case_gains, **size_settings),
    )


def contest_record(contest: PolicyContest) -> dict[str, Any]:
    """One contest as JSON has it."""
    cost_advantage = contest.gain
    return {
        "other": contest.reference,
        "role": contest.role,
        "only_tuned_right": contest.only_tuned,
        "only_other_right": contest.only_reference,
        "saved_cost": cost_advantage.estimate,
        "saved_cost_low": cost_advantage.low,
        "saved_cost_high": cost_advantage.high,
        "p": cost_advantage.p,
        "verdict": contest.verdict,
        "detectable": None if contest.sizes is None else contest.sizes.smallest.estimate,
    }
