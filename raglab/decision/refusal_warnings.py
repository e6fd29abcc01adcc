"""Refusal warnings (algebra): a gate refuses nearly all answerable cases, with numbers (S2.19)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates
from raglab.arguments.user_warnings import warn_user
from raglab.decision.case_verdicts import CaseVerdicts
from raglab.decision.checks import scalar_value
from raglab.decision.decisions import UNSWITCHED, Decisions
from raglab.gating.own_margins import OWN
from raglab.gating.signal_gates import SIGNALS
from raglab.policy import PolicyData
from raglab.policy_parts.own_gates import own_gate
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.values import Status
from raglab.words.canonical import decimals

LEAST_OK = 10  # cases labelled ok, below which nothing is warned of
MOST_REFUSED = 0.9  # share of them that one gate may refuse without a warning
FAR = 0.1  # of the range of a signal's values: a bound further beyond them is of another scale
# what a message proposes
REMEDY = "; raglab.tune(trace) moves it, raglab.lab.always_answer(policy) has no gate on"
SCALE = "; write the bound on the scale of these values, or let raglab.tune(trace) move it"
REFUSES_ALL = "(?s).*"  # deny pattern of a policy that is meant to refuse every question


class Bound(NamedTuple):
    """What a gate compares.

    Label of its measurement, the measurement's name, thresholds by key in force.
    """

    label: str
    measured: str
    thresholds: dict[str, float]


def refusal_text(decisions: CaseVerdicts, *, remedy: str = REMEDY) -> str:
    """That gates refuse nearly all cases labelled ok.

    One, with its thresholds and the range of what it measures.

    Where only several together do, each is named with its count. Empty where fewer are refused,
    where fewer than `LEAST_OK` cases are labelled ok, and for a policy that denies every query.

    Args:
      decisions: in memory, or of shards, whose hits are then read once more where there is
        something to say.
      remedy: end of the sentence.

    Source: rule S2.19.
    """
    ok = decisions.label_code == Status.ok
    refused = ok & (decisions.status == Status.refuse)
    n_ok = int(ok.sum())
    if n_ok < LEAST_OK or refused.sum() <= MOST_REFUSED * n_ok or is_refusal(decisions.policy):
        return ""
    names, counts = np.unique(decisions.decided_by[refused].astype(str), return_counts=True)
    gate, count = str(names[np.argmax(counts)]), int(counts.max())
    if count <= MOST_REFUSED * n_ok:
        return _joint_text(dict(zip(names.tolist(), counts.tolist(), strict=True)), n_ok, remedy)
    if gate in {*UNSWITCHED, EXPECTED_COST}:
        return ""
    text = f"gate {gate} refuses {count:,} of {n_ok:,} cases labelled ok"
    bound = _bound(next(_parts(decisions)), gate)
    if bound is None:
        return f'{text}; see decisions.frame(reasons=True)["reason"].'
    stated = " and ".join(f"{key} is {decimals(value)}" for key, value in bound.thresholds.items())
    extent = f"{bound.label} of these is {_range(decisions, gate, bound.measured)}"
    return f"{text}: {stated + ', ' if stated else ''}{extent}{remedy}."


def idle_text(decisions: CaseVerdicts, *, remedy: str = SCALE) -> str:
    """That all cases are answered and a signal's bound lies far beyond its values, with both.

    Far is more than a tenth of their range beyond its end, and short of the end of the unit's
    range, which is stated to gate nothing. Empty where a case is not answered, where fewer than
    `LEAST_OK` are there or all are labelled ok.

    Args:
      decisions: in memory, or of shards.
      remedy: end of the sentence.

    Source: rule S2.19.
    """
    n, ok = len(decisions.status), Status.ok
    if n < LEAST_OK or (decisions.status != ok).any() or (decisions.label_code == ok).all():
        return ""
    first = next(_parts(decisions))
    for name in decisions.policy.signals:
        bound = (
            _bound(first, f"{SIGNALS}.{name}")
            if decisions.policy.value(f"{SIGNALS}.{name}.enabled")
            else None
        )
        ends = _ends(decisions, bound.measured) if bound is not None and bound.thresholds else None
        if bound is None or ends is None:
            continue
        unit, aside = first.tables.evidence.known.signal(name).unit, FAR * (ends[1] - ends[0])
        far = {"min": unit.low < bound.thresholds.get("min", ends[0]) < ends[0] - aside}
        far["max"] = unit.high > bound.thresholds.get("max", ends[1]) > ends[1] + aside
        if all(far[key] for key in bound.thresholds):
            stated = " and ".join(
                f"{key} is {decimals(value)}" for key, value in bound.thresholds.items()
            )
            extent = f"{bound.label} is {decimals(ends[0])} to {decimals(ends[1])}"
            return (
                f"gate {SIGNALS}.{name} fires on none of {n:,} cases, and no other gate does: "
                f"{stated}, {extent}{remedy}."
            )
    return ""


def _ends(decisions: CaseVerdicts, measured: str) -> tuple[float, float] | None:
    """Least and greatest value of a measurement among all cases; None where no case has one."""
    ends: list[float] = []
    for part in _parts(decisions):
        values = np.asarray(part.measurements(measured), dtype=np.float64)
        values = values[np.isfinite(values)]
        ends += [float(values.min()), float(values.max())] if values.size else []
    return (min(ends), max(ends)) if ends else None


def _joint_text(refusals: dict[str, int], n_ok: int, remedy: str) -> str:
    """That several gates together refuse nearly all cases labelled ok.

    Empty where only what has no switch does.
    """
    gates_only = {
        name: n for name, n in refusals.items() if name not in {*UNSWITCHED, EXPECTED_COST}
    }
    if sum(gates_only.values()) <= MOST_REFUSED * n_ok:
        return ""
    named = ", ".join(
        f"{name} {n:,}"
        for name, n in sorted(gates_only.items(), key=lambda item: (-item[1], item[0]))
    )
    return (
        f"gates together refuse {sum(gates_only.values()):,} of {n_ok:,} cases labelled ok "
        f"({named}){remedy}."
    )


def warn_of_refusals(decisions: CaseVerdicts) -> None:
    """Warn where gates refuse nearly all cases labelled ok, or a bound gates none.

    `refusal_text`, `idle_text`.
    """
    text = refusal_text(decisions) or idle_text(decisions)
    if text:
        warn_user(f"policy {decisions.policy.policy_id}: {text}")


def is_refusal(policy: PolicyData) -> bool:
    """Whether a policy is meant to refuse every question."""
    return policy.domain.enabled and REFUSES_ALL in policy.patterns.deny


# decisions in memory or of shards
def _parts(decisions: Any) -> Iterator[Decisions]:  # noqa: ANN401
    """Decisions in memory, or those of each shard."""
    return iter([decisions]) if isinstance(decisions, Decisions) else decisions.shards()


def _bound(decisions: Decisions, name: str) -> Bound | None:
    """What a gate compares in these cases; None where it compares with no number."""
    section, _, own = name.partition(".")
    thresholds = decisions.thresholds
    gate_thresholds: Any
    if section == OWN and own:
        gate = own_gate(own)
        keys = {
            threshold.key: scalar_value(getattr(thresholds.own[own].values, threshold.key))
            for threshold in gate.thresholds
        }
        return Bound(gate.reads[0], gate.reads[0], keys)
    if section == SIGNALS and own:
        row, gate_thresholds = (
            gates.signal_gate(decisions.tables.evidence.known.signal(own)),
            thresholds.signals[own],
        )
    else:
        row = gates.gate_by_name(name)
        gate_thresholds = thresholds.gates[name] if row.thresholds else None
    if gate_thresholds is None or not row.thresholds:
        return None
    there = (
        threshold
        for threshold in row.thresholds
        if not threshold.where or np.any(decisions.measurements(threshold.where))
    )
    values = {
        threshold.key: scalar_value(getattr(gate_thresholds, threshold.key)) for threshold in there
    }
    return Bound(
        row.label,
        row.measurements[-1],
        {key: value for key, value in values.items() if np.isfinite(value)},
    )


def _range(decisions: CaseVerdicts, gate: str, measured: str) -> str:
    """Least and greatest measurement of the cases labelled ok that a gate refuses, in words."""
    ends: list[float] = []
    for part in _parts(decisions):
        values = _refused_values(part, gate, measured)
        ends += [float(values.min()), float(values.max())] if len(values) else []
    return f"{decimals(min(ends))} to {decimals(max(ends))}" if ends else "missing"


def _refused_values(decisions: Decisions, gate: str, measured: str) -> NDArray[np.float64]:
    """Measurements of the cases labelled ok that a gate refuses, those that are there."""
    rows = (decisions.label_code == Status.ok) & (decisions.decided_by == gate)
    every = np.asarray(decisions.measurements(measured), dtype=np.float64)
    values: NDArray[np.float64] = np.broadcast_to(every, (1, len(decisions)))[0][rows]
    return values[np.isfinite(values)]
