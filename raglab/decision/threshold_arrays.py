"""Thresholds (algebra): those of one policy or many as arrays, as gates and resolver take them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from raglab import gates
from raglab.gates import IntentThresholds, RefineThresholds
from raglab.gating.expected_cost import COST_PATHS, ActionCosts
from raglab.gating.own_margins import USER_GATES_SECTION, OwnThresholds
from raglab.gating.signal_gates import SIGNALS, SignalThresholds, UserThresholds
from raglab.policy import PolicyData
from raglab.policy_parts.acting import RULE_SWITCHES, check_order_names
from raglab.policy_parts.gate_order import (
    ON_CHOSEN,
    PUBLISHED_ORDER,
    Order,
    policy_order,
    user_names,
)
from raglab.policy_parts.own_gates import own_gate, own_thresholds
from raglab.policy_parts.sections import EXPECTED_COST, UNSTATED, in_order
from raglab.resolver import RULES, RuleSwitches, RuleThresholds
from raglab.values import Floats, refuse

# of `ActionCosts`, by path in `decision.costs`
COST_FIELDS = {path: name for name, path in COST_PATHS.items()}


class Thresholds(NamedTuple):
    """Thresholds of one policy (scalars) or many ([P, 1]), as gates and resolver take them.

    gates: by name, each in its form (`gates.Gate.form`), of the gates that have a switch. switches,
    rules: of the resolver. signals: by name, of the signals that some policy gates. costs: of the
    actions, None under the rule `chain`. own: by name, of the gates of the user that some policy
    has. order: of the gates, the same for all policies.
    """

    gates: Mapping[str, Any]
    blend: Floats
    switches: RuleSwitches
    rules: RuleThresholds
    refine: RefineThresholds
    signals: Mapping[str, SignalThresholds]
    costs: ActionCosts | None
    own: Mapping[str, OwnThresholds]
    order: Order

    def user(self, names: Sequence[str] | None) -> UserThresholds:
        """Thresholds of the gates on signals and of those of the user.

        Args:
          names: `signals.<name>` and `gates.<name>` of those wanted; None for all.
        """
        if names is None:
            return UserThresholds(self.signals, self.own)
        return UserThresholds(
            _named(self.signals, SIGNALS, names), _named(self.own, USER_GATES_SECTION, names)
        )

    def without(self, off: Collection[str]) -> Thresholds:
        """The same with some gates switched off."""
        switched = {
            name: self.gates[name]._replace(on=np.zeros_like(self.gates[name].on)) for name in off
        }
        return self._replace(gates={**self.gates, **switched}) if off else self

    def with_value(self, path: str, values: Floats) -> Thresholds:
        """The same with the values at a path of a gate or rule replaced."""
        section, _, key = path.partition(".")
        if section == "resolver":
            return self._replace(rules=self.rules._replace(**{key: values}))
        if section == "decision":
            name = "ratio" if key == "ratio" else COST_FIELDS[key.removeprefix("costs.")]
            return self._replace(costs=self.costs and self.costs._replace(**{name: values}))
        name, _, bound = key.partition(".")
        if section == SIGNALS:  # one that no policy gates moves as if the policy gated it
            gate = self.signals.get(name, SignalThresholds(UNSET, UNSET, ON, ~ON, ON))
            of_bound: dict[str, Any] = {bound: values}
            return self._replace(signals={**self.signals, name: gate._replace(**of_bound)})
        if section == USER_GATES_SECTION:
            own = self.own[name]
            moved = replace(own, values=own.values._replace(**{bound: values}))
            return self._replace(own={**self.own, name: moved})
        of_gate = self.gates[section]._replace(**{key: values})
        return self._replace(gates={**self.gates, section: of_gate})


# thresholds, a part of them, or an array
def stacked(thresholds: Sequence[Any], n: int) -> Any:  # noqa: ANN401
    """Thresholds of n policies each, [n, 1] or [1, 1], one below the other.

    What all share as one object stays so.
    """
    first = thresholds[0]
    if all(row is first for row in thresholds):
        return first
    if isinstance(first, OwnThresholds):
        parts = {
            name: stacked([getattr(row, name) for row in thresholds], n)
            for name in ("values", "on")
        }
        return replace(first, **parts)
    if isinstance(first, dict):
        return {name: stacked([row[name] for row in thresholds], n) for name in first}
    if isinstance(first, tuple):
        return type(first)(*(stacked(fields, n) for fields in zip(*thresholds, strict=True)))
    return np.concatenate([np.broadcast_to(row, (n, 1)) for row in thresholds])


UNSET, ON = np.full((1, 1), np.nan), np.full((1, 1), fill_value=True)  # of one policy


def policy_thresholds(policies: Sequence[PolicyData]) -> Thresholds:
    """Thresholds of many policies, each field [P, 1]."""

    def of(path: str, unset: float = np.nan) -> Any:  # noqa: ANN401 - an array of bools or floats
        values = list(map(attrgetter(path), policies))
        kind = np.bool_ if isinstance(values[0], bool) else np.float64
        return _column([unset if value is None else value for value in values], kind)

    order = gates_order(policies)
    signals, own = _signal_thresholds(policies), _own_thresholds(policies)
    if not order.published:
        signals, own = (
            _named(signals, SIGNALS, order.user),
            _named(own, USER_GATES_SECTION, order.user),
        )
    by_cost = policies and policies[0].decision.rule == EXPECTED_COST
    costs = {name: of(f"decision.costs.{path}") for name, path in COST_PATHS.items() if by_cost}
    rules = {
        threshold.key: np.where(of(RULE_SWITCHES[rule.name]), of(threshold.path, -np.inf), np.nan)
        if rule.name in RULE_SWITCHES
        else of(threshold.path)
        for rule in RULES
        for threshold in rule.thresholds
    }
    thresholds = Thresholds(
        gates={gate.name: gates.gate_thresholds(gate, of) for gate in gates.GATES if gate.switch},
        blend=of("confidence.blend"),
        switches=RuleSwitches(*(of(f"resolver.{name}") for name in RuleSwitches._fields)),
        rules=RuleThresholds(**rules),
        refine=RefineThresholds(
            of("refine.max_depth"), of("refine.epsilon"), of("refine.refine_on_refusal")
        ),
        signals=signals,
        costs=ActionCosts(**costs, ratio=of("decision.ratio")) if by_cost else None,
        own=own,
        order=order,
    )
    return thresholds.without(order.off)


def _column(values: Sequence[Any], kind: type[np.generic]) -> Any:  # noqa: ANN401 - an array
    """A value a policy, [P, 1]; None is NaN among floats."""
    return np.array(values, dtype=kind)[:, None]


def _named(thresholds: Mapping[str, Any], section: str, names: Collection[str]) -> dict[str, Any]:
    """Thresholds of the gates of a section whose `<section>.<name>` is among some names."""
    return {
        name: gate_thresholds
        for name, gate_thresholds in thresholds.items()
        if f"{section}.{name}" in names
    }


def _own_thresholds(policies: Sequence[PolicyData]) -> dict[str, OwnThresholds]:
    """Thresholds of the gates of the user that some policy has, by name."""
    names = sorted({name for policy in policies if policy.gates for name in policy.gates})
    return {
        name: own_thresholds(name, [policy.gates.get(name) for policy in policies])
        for name in names
    }


def gates_order(policies: Sequence[PolicyData]) -> Order:
    """Order of the gates of policies that state the same one (rule S2.12)."""
    stated = policies[0].decision.order if policies else None
    # replay groups them by it
    assert all(policy.decision.order == stated for policy in policies)  # noqa: S101
    if stated is None:
        return PUBLISHED_ORDER
    for policy in policies:
        check_order_names(policy)
    signals = in_order({name for policy in policies for name in policy.signals})
    own = sorted({name for policy in policies for name in policy.gates})
    order = policy_order(stated, user_names(signals, dict.fromkeys(own)))
    for path in (name for step in order.before for name in step.names or ()):
        section, _, name = path.partition(".")
        if section == USER_GATES_SECTION and (read := ON_CHOSEN.intersection(own_gate(name).reads)):
            rule = f"it reads {', '.join(sorted(read))} of the hits that gap chooses"
            refuse(f"an order must have {path} behind gap", "it before", rule)
    return order


def _signal_thresholds(policies: Sequence[PolicyData]) -> dict[str, SignalThresholds]:
    """Bounds of the signals that some policy gates, by name, built-in ones first, [P, 1] each."""
    stated = {name for policy in policies for name in policy.signals}
    rows = {
        name: [policy.signals.get(name, UNSTATED) for policy in policies]
        for name in (in_order(stated) if stated else ())  # none of nearly every policy
    }
    return {
        name: SignalThresholds(
            min=_column([row.min for row in sections], np.float64),
            max=_column([row.max for row in sections], np.float64),
            refuses=_column([row.on_fire == "refuse" for row in sections], np.bool_),
            asks=_column([row.on_fire == "ask" for row in sections], np.bool_),
            on=_column([row.enabled for row in sections], np.bool_),
        )
        for name, sections in rows.items()
    }


def intent_thresholds(policy: PolicyData) -> IntentThresholds:
    """What makes an arm available to a question under a policy (rule S4.1)."""
    rows = policy.strategy
    return IntentThresholds(rows.min_graph, rows.min_table, rows.min_complexity)
