"""Refusal warnings (algebra): a gate refuses nearly all answerable cases, with numbers (S2.19)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from raglab import gates
from raglab.arguments.user_warnings import warn_user
from raglab.decision.case_verdicts import CaseVerdicts
from raglab.decision.checks import measured, scalar_value
from raglab.decision.decisions import UNSWITCHED, Decisions
from raglab.gating.own_margins import USER_GATES_SECTION
from raglab.gating.signal_gates import SIGNALS
from raglab.policy import PolicyData
from raglab.policy_parts.own_gates import own_gate
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.values import Status
from raglab.words.canonical import decimals

MIN_OK_CASES = 10  # cases labelled ok, below which nothing is warned of
MAX_REFUSED_SHARE = 0.9  # share of them that one gate may refuse without a warning
FAR_SHARE = (
    0.1  # of the range of a signal's values: a bound further beyond them is of another scale
)
# what a message proposes
REFUSAL_REMEDY = "; raglab.tune(trace) moves it, raglab.lab.always_answer(policy) has no gate on"
SCALE_REMEDY = "; write the bound on the scale of these values, or let raglab.tune(trace) move it"
REFUSE_ALL_PATTERN = "(?s).*"  # deny pattern of a policy that is meant to refuse every question


class Bound(NamedTuple):
    """What a gate compares.

    Label of its measurement, the measurement's name, thresholds by key in force.
    """

    label: str
    measured: str
    thresholds: dict[str, float]

    @property
    def stated(self) -> str:
        """The thresholds in words."""
        return " and ".join(
            f"{key} is {decimals(threshold)}" for key, threshold in self.thresholds.items()
        )


def refusal_text(decisions: CaseVerdicts, *, remedy_text: str = REFUSAL_REMEDY) -> str:
    """That gates refuse nearly all cases labelled ok.

    One, with its thresholds and the range of what it measures.

    Where only several together do, each is named with its count. Empty where fewer are refused,
    where fewer than `MIN_OK_CASES` cases are labelled ok, and for a policy that denies every query.

    Args:
      decisions: in memory, or of shards, whose hits are then read once more where there is
        something to say.
      remedy_text: end of the sentence.

    Source: rule S2.19.
    """
    is_ok = decisions.label_code == Status.ok
    is_refused = is_ok & (decisions.status == Status.refuse)
    n_ok = int(is_ok.sum())
    if (
        n_ok < MIN_OK_CASES
        or is_refused.sum() <= MAX_REFUSED_SHARE * n_ok
        or is_refusal(decisions.policy)
    ):
        return ""
    refusals = Counter(decisions.decided_by[is_refused].tolist())
    for gate_name in (*UNSWITCHED, EXPECTED_COST):  # they have no threshold to move
        refusals.pop(gate_name, None)
    n_refusals = sum(refusals.values())
    if n_refusals <= MAX_REFUSED_SHARE * n_ok:
        return ""
    gates_by_refusals = sorted(refusals, key=lambda gate_name: (-refusals[gate_name], gate_name))
    worst_gate = gates_by_refusals[0]
    if refusals[worst_gate] <= MAX_REFUSED_SHARE * n_ok:
        gate_counts = ", ".join(
            f"{gate_name} {refusals[gate_name]:,}" for gate_name in gates_by_refusals
        )
        return (
            f"gates together refuse {n_refusals:,} of {n_ok:,} cases labelled ok "
            f"({gate_counts}){remedy_text}."
        )
    gate_text = f"gate {worst_gate} refuses {refusals[worst_gate]:,} of {n_ok:,} cases labelled ok"
    gate_bound = _bound(next(_parts(decisions)), worst_gate)
    if gate_bound is None:
        return f'{gate_text}; see decisions.frame(reasons=True)["reason"].'
    bound_text = f"{gate_bound.stated}, " if gate_bound.thresholds else ""
    extent_text = (
        " to ".join(map(decimals, _ends(decisions, gate_bound.measured, worst_gate))) or "missing"
    )
    return f"{gate_text}: {bound_text}{gate_bound.label} of these is {extent_text}{remedy_text}."


def idle_text(decisions: CaseVerdicts, *, remedy_text: str = SCALE_REMEDY) -> str:
    """That all cases are answered and a signal's bound lies far beyond its values, with both.

    Far is more than a tenth of their range beyond its end, and short of the end of the unit's
    range, which is stated to gate nothing. Empty where a case is not answered, where fewer than
    `MIN_OK_CASES` are there or all are labelled ok.

    Args:
      decisions: in memory, or of shards.
      remedy_text: end of the sentence.

    Source: rule S2.19.
    """
    n_cases = len(decisions.status)
    ok_code = Status.ok
    if (
        n_cases < MIN_OK_CASES
        or (decisions.status != ok_code).any()
        or (decisions.label_code == ok_code).all()
    ):
        return ""
    first_part = next(_parts(decisions))
    for signal_name in decisions.policy.signals:
        gate_path = f"{SIGNALS}.{signal_name}"
        gate_bound = (
            _bound(first_part, gate_path)
            if decisions.policy.value(f"{gate_path}.enabled")
            else None
        )
        value_range = (
            _ends(decisions, gate_bound.measured)
            if gate_bound is not None and gate_bound.thresholds
            else ()
        )
        if gate_bound is None or not value_range:
            continue
        signal_unit = first_part.tables.evidence.known.signal(signal_name).unit
        far_distance = FAR_SHARE * (value_range[1] - value_range[0])
        is_far = {
            "min": signal_unit.low
            < gate_bound.thresholds.get("min", value_range[0])
            < value_range[0] - far_distance,
            "max": signal_unit.high
            > gate_bound.thresholds.get("max", value_range[1])
            > value_range[1] + far_distance,
        }
        if all(is_far[bound_key] for bound_key in gate_bound.thresholds):
            extent_text = " to ".join(map(decimals, value_range))
            return (
                f"gate {gate_path} fires on none of {n_cases:,} cases, and no other gate does: "
                f"{gate_bound.stated}, {gate_bound.label} is {extent_text}{remedy_text}."
            )
    return ""


def _ends(decisions: CaseVerdicts, measurement_name: str, gate_name: str = "") -> tuple[float, ...]:
    """Least and greatest value of a measurement; () where no case has one.

    Args:
      gate_name: of the cases labelled ok that it refuses; of all where not given.
    """
    part_ends: list[float] = []
    for part_decisions in _parts(decisions):
        part_values = np.asarray(part_decisions.measurements(measurement_name), dtype=np.float64)
        case_values = np.broadcast_to(part_values, (1, len(part_decisions)))[0]
        if gate_name:
            case_values = case_values[
                (part_decisions.label_code == Status.ok) & (part_decisions.decided_by == gate_name)
            ]
        case_values = case_values[np.isfinite(case_values)]
        part_ends += (
            [float(case_values.min()), float(case_values.max())] if case_values.size else []
        )
    return (min(part_ends), max(part_ends)) if part_ends else ()


def warn_of_refusals(decisions: CaseVerdicts) -> None:
    """Warn where gates refuse nearly all cases labelled ok, or a bound gates none.

    `refusal_text`, `idle_text`.
    """
    warning_text = refusal_text(decisions) or idle_text(decisions)
    if warning_text:
        warn_user(f"policy {decisions.policy.policy_id}: {warning_text}")


def is_refusal(policy: PolicyData) -> bool:
    """Whether a policy is meant to refuse every question."""
    return policy.domain.enabled and REFUSE_ALL_PATTERN in policy.patterns.deny


# decisions in memory or of shards
def _parts(decisions: Any) -> Iterator[Decisions]:  # noqa: ANN401
    """Decisions in memory, or those of each shard."""
    return iter([decisions]) if isinstance(decisions, Decisions) else decisions.shards()


def _bound(decisions: Decisions, gate_path: str) -> Bound | None:
    """What a gate compares in these cases; None where it compares with no number."""
    section, _, user_name = gate_path.partition(".")
    thresholds = decisions.thresholds
    signal_set = decisions.tables.evidence.known
    in_force: Any
    if section == USER_GATES_SECTION and user_name:
        user_gate = own_gate(user_name)
        value_label = measurement_name = user_gate.reads[0]
        gate_thresholds = user_gate.thresholds
        in_force = thresholds.own[user_name].values
    else:
        table_gate = (
            gates.signal_gate(signal_set.signal(user_name))
            if user_name
            else gates.gate_by_name(gate_path)
        )
        if not table_gate.thresholds:
            return None
        value_label, measurement_name, gate_thresholds = (
            str(measured(table_gate)),
            table_gate.measurements[-1],
            table_gate.thresholds,
        )
        in_force = thresholds.signals[user_name] if user_name else thresholds.gates[gate_path]
    bound_values = {
        gate_threshold.key: scalar_value(getattr(in_force, gate_threshold.key))
        for gate_threshold in gate_thresholds
        if not gate_threshold.where or np.any(decisions.measurements(gate_threshold.where))
    }
    return Bound(
        value_label,
        measurement_name,
        {
            threshold_key: bound_value
            for threshold_key, bound_value in bound_values.items()
            if np.isfinite(bound_value)
        },
    )
