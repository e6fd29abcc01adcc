"""The selected policy beside what it must beat (shore): rates, cost, paired tests (S6.8).

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
from raglab.lab.arrays import CodeArray, FloatArray
from raglab.lab.candidates import DEFAULTS, FREE
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
from raglab.values import Status, counted
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd


# role of a candidate that did not compete: no reason against what was selected
BESIDE = "shown beside"
SIDES = ("a", "b")  # of a comparison of two policies


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
        changes = dict.fromkeys(("gained", "lost", "other"), 0)
        changes |= self.changed["change"].value_counts()
        counts = {
            "failed": self.failed,
            "scored by status": self.status_only,
            "missing in a": self.missing[0].k,
            "missing in b": self.missing[1].k,
        }
        *cost, p = self.table.loc[0, ["difference", "low", "high", "p"]]
        text = f"{difference_text(*cost)}, p = {p:.3g}"
        if self.in_sample:
            text = f"{cost[0]:+.3f}, {self.in_sample}"
        facts = [
            ("a", self.a),
            ("b", self.b),
            ("cost of b less a", text),
            ("changed", f"{len(self.changed):,} of {self.cases:,} cases, {counted(changes)}"),
            ("basis", self.basis),
            ("mix", self.mix),
            *((name, f"{n:,}") for name, n in counts.items() if n),
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
    first, second = decide_policies(trace, [a, b], arm)
    missing = (first.missing_answers, second.missing_answers)
    check_compared(dict(zip((a.policy_id, b.policy_id), missing, strict=True)))
    in_sample = learned_text(("Policy a", "Policy b"), SIDES, trace_learned([a, b], trace))
    traffic, weights = Goal(mix=mix), inclusion_weights(trace)
    if traffic.traffic is not None:
        check_alone(traffic.traffic, weights)
        labels = np.bincount(first.label_code, minlength=len(Status))
        weights = traffic.at_labels(labels).case_weights(first.label_code)
    table = paired_table(
        first.cells, second.cells, SIDES, costs, weights, in_sample=bool(in_sample)
    )
    return Comparison(
        a=a.policy_id,
        b=b.policy_id,
        cases=len(first),
        table=table,
        changed=first.changed(second),
        basis=first.basis.described,
        missing=missing,
        status_only=int(first.status_only.sum()),
        in_sample=in_sample,
        failed=failed_count(trace),
        mix=str(traffic.traffic or (metrics.SAMPLE if weights is None else PROBABILITY_KEY)),
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
    roles = {incumbent: "incumbent"} | dict.fromkeys(FREE, "free policy")
    roles |= {DEFAULTS: "default policy", incumbent: "incumbent"}
    for name, competes in costs["competes"].items():
        if name != selected:
            roles.setdefault(str(name), "candidate" if competes else BESIDE)
    return roles


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
    tuned = policies[TUNED]
    there = {name: role for name, role in roles.items() if name in policies}
    codes = trace_codes(trace, [tuned, *(policies[name] for name in there)], arm)
    cells, *references = CELL_OF_CODE[codes]
    compares, *compared = (shortfall.is_compared for shortfall in codes_missing(codes))
    weights = inclusion_weights(trace)
    if weights is None:
        weights = Goal(mix=mix).case_weights(metrics.LABEL_OF_CELL[cells])
    return [
        _contest(
            name,
            role,
            cells,
            reference,
            costs,
            weights,
            same=policies[name].policy_id == tuned.policy_id,
        )
        for (name, role), reference, is_compared in zip(
            there.items(), references, compared, strict=True
        )
        if compares and is_compared
    ]


def _contest(
    name: str,
    role: str,
    tuned: CodeArray,
    reference: CodeArray,
    costs: metrics.Costs | None,
    weights: FloatArray | None,
    *,
    same: bool,
) -> PolicyContest:
    right, price = metrics.cell_costs() == 0.0, metrics.cell_costs(costs)
    gain = paired_advantage(tuned, reference, costs, name, weights)
    gains = price[reference] - price[tuned]
    gains = gains if weights is None else weights * gains
    scale: dict[str, Any] = {
        "price": float(price.max()) or 1.0,
        "guard": metrics.interval_guard(costs),
    }
    verdict: Verdict | Literal["same"] = "same" if same else gain.verdict
    return PolicyContest(
        name,
        role,
        gain,
        only_tuned=int((right[tuned] & ~right[reference]).sum()),
        only_reference=int((right[reference] & ~right[tuned]).sum()),
        verdict=verdict,
        sizes=None if same else metrics.paired_sizes(gains, **scale),
    )


def contest_record(contest: PolicyContest) -> dict[str, Any]:
    """One contest as JSON has it."""
    gain = contest.gain
    return {
        "other": contest.reference,
        "role": contest.role,
        "only_tuned_right": contest.only_tuned,
        "only_other_right": contest.only_reference,
        "saved_cost": gain.estimate,
        "saved_cost_low": gain.low,
        "saved_cost_high": gain.high,
        "p": gain.p,
        "verdict": contest.verdict,
        "detectable": None if contest.sizes is None else contest.sizes.smallest.estimate,
    }
