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

    @property
    def stated(self) -> str:
        """The thresholds in words."""
        return " and ".join(f"{key} is {decimals(value)}" for key, value in self.thresholds.items())


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
    refusals = Counter(decisions.decided_by[refused].tolist())
    for name in (*UNSWITCHED, EXPECTED_COST):  # they have no threshold to move
        refusals.pop(name, None)
    total = sum(refusals.values())
    if total <= MOST_REFUSED * n_ok:
        return ""
    ordered = sorted(refusals, key=lambda name: (-refusals[name], name))
    gate = ordered[0]
    if refusals[gate] <= MOST_REFUSED * n_ok:
        named = ", ".join(f"{name} {refusals[name]:,}" for name in ordered)
        return f"gates together refuse {total:,} of {n_ok:,} cases labelled ok ({named}){remedy}."
    text = f"gate {gate} refuses {refusals[gate]:,} of {n_ok:,} cases labelled ok"
    bound = _bound(next(_parts(decisions)), gate)
    if bound is None:
        return f'{text}; see decisions.frame(reasons=True)["reason"].'
    stated = f"{bound.stated}, " if bound.thresholds else ""
    extent = " to ".join(map(decimals, _ends(decisions, bound.measured, gate))) or "missing"
    return f"{text}: {stated}{bound.label} of these is {extent}{remedy}."


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
        path = f"{SIGNALS}.{name}"
        bound = _bound(first, path) if decisions.policy.value(f"{path}.enabled") else None
        ends = _ends(decisions, bound.measured) if bound is not None and bound.thresholds else ()
        if bound is None or not ends:
            continue
        unit, aside = first.tables.evidence.known.signal(name).unit, FAR * (ends[1] - ends[0])
        far = {
            "min": unit.low < bound.thresholds.get("min", ends[0]) < ends[0] - aside,
            "max": unit.high > bound.thresholds.get("max", ends[1]) > ends[1] + aside,
        }
        if all(far[key] for key in bound.thresholds):
            extent = " to ".join(map(decimals, ends))
            return (
                f"gate {path} fires on none of {n:,} cases, and no other gate does: "
                f"{bound.stated}, {bound.label} is {extent}{remedy}."
            )
    return ""


def _ends(decisions: CaseVerdicts, measured: str, gate: str = "") -> tuple[float, ...]:
    """Least and greatest value of a measurement; () where no case has one.

    Args:
      gate: of the cases labelled ok that it refuses; of all where not given.
    """
    ends: list[float] = []
    for part in _parts(decisions):
        every = np.asarray(part.measurements(measured), dtype=np.float64)
        values = np.broadcast_to(every, (1, len(part)))[0]
        if gate:
            values = values[(part.label_code == Status.ok) & (part.decided_by == gate)]
        values = values[np.isfinite(values)]
        ends += [float(values.min()), float(values.max())] if values.size else []
    return (min(ends), max(ends)) if ends else ()


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
    thresholds, known = decisions.thresholds, decisions.tables.evidence.known
    in_force: Any
    if section == USER_GATES_SECTION and own:
        user = own_gate(own)
        label = read = user.reads[0]
        rows, in_force = user.thresholds, thresholds.own[own].values
    else:
        gate = gates.signal_gate(known.signal(own)) if own else gates.gate_by_name(name)
        if not gate.thresholds:
            return None
        label, read, rows = str(measured(gate)), gate.measurements[-1], gate.thresholds
        in_force = thresholds.signals[own] if own else thresholds.gates[name]
    values = {
        row.key: scalar_value(getattr(in_force, row.key))
        for row in rows
        if not row.where or np.any(decisions.measurements(row.where))
    }
    return Bound(label, read, {key: value for key, value in values.items() if np.isfinite(value)})
