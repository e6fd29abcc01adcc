"""Thresholds (algebra): those of one policy or many as arrays, as gates and resolver take them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from raglab import gates
from raglab.gates import IntentThresholds, RefineThresholds
from raglab.gating.expected_cost import PATHS, ActionCosts
from raglab.gating.own_margins import OWN, OwnThresholds
from raglab.gating.signal_gates import SIGNALS, SignalThresholds, UserThresholds
from raglab.policy import PolicyData
from raglab.policy_parts.acting import check_order_names
from raglab.policy_parts.gate_order import (
    ON_CHOSEN,
    PUBLISHED_ORDER,
    Order,
    policy_order,
    user_names,
)
from raglab.policy_parts.own_gates import own_gate, own_thresholds
from raglab.policy_parts.sections import EXPECTED_COST, UNSTATED, SignalSection, in_order
from raglab.resolver import RuleSwitches, RuleThresholds
from raglab.values import Floats, refuse

# of `ActionCosts`, by path in `decision.costs`
COST_FIELDS = {path: name for name, path in PATHS.items()}


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
        return UserThresholds(_named(self.signals, SIGNALS, names), _named(self.own, OWN, names))

    def without(self, off: Collection[str]) -> Thresholds:
        """The same with some gates switched off."""
        switched = {
            name: self.gates[name]._replace(on=np.zeros_like(self.gates[name].on)) for name in off
        }
        return self._replace(gates={**self.gates, **switched}) if off else self

    def with_value(self, path: str, values: Floats) -> Thresholds:
        """The same with the values at a path of a gate or rule replaced."""
        section, _, key = path.partition(".")
        if section == "signals":
            name, _, bound = key.partition(".")
            # as if the policy gated it
            gate = self.signals.get(name, SignalThresholds(UNSET, UNSET, ON, ~ON, ON))
            moved = gate._replace(min=values) if bound == "min" else gate._replace(max=values)
            return self._replace(signals={**self.signals, name: moved})
        if section == OWN:
            name, _, own = key.partition(".")
            gate_of_user = self.own[name]
            moved_own = replace(gate_of_user, values=gate_of_user.values._replace(**{own: values}))
            return self._replace(own={**self.own, name: moved_own})
        if section == "decision":
            name = "ratio" if key == "ratio" else COST_FIELDS[key.removeprefix("costs.")]
            costs = self.costs and self.costs._replace(**{name: values})
            return self._replace(costs=costs)
        if section == "resolver":
            return self._replace(rules=self.rules._replace(**{key: values}))
        return self._replace(
            gates={**self.gates, section: self.gates[section]._replace(**{key: values})}
        )


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
        return np.array([unset if value is None else value for value in values], dtype=kind)[
            :, None
        ]

    def rule(on: str, path: str) -> Any:  # noqa: ANN401 - an array of floats
        return np.where(of(on), of(path, -np.inf), np.nan)

    order = gates_order(policies)
    signals, own = _signal_thresholds(policies), _own_thresholds(policies)
    of_gates = {gate.name: gates.gate_thresholds(gate, of) for gate in gates.GATES if gate.switch}
    return Thresholds(
        gates=of_gates
        | {
            name: of_gates[name]._replace(on=np.zeros_like(of_gates[name].on)) for name in order.off
        },
        blend=of("confidence.blend"),
        switches=RuleSwitches(*(of(f"resolver.{name}") for name in RuleSwitches._fields)),
        rules=RuleThresholds(
            of("resolver.min_group_gap"),
            rule("resolver.signature", "resolver.min_sig_sim"),
            rule("resolver.signature", "resolver.min_sig_sim_gap"),
            rule("resolver.anchor", "resolver.min_anchor_sim"),
            rule("resolver.anchor", "resolver.min_anchor_sim_gap"),
        ),
        refine=RefineThresholds(
            of("refine.max_depth"), of("refine.epsilon"), of("refine.refine_on_refusal")
        ),
        signals=signals if order.published else _named(signals, SIGNALS, order.user),
        costs=_action_costs(of)
        if policies and policies[0].decision.rule == EXPECTED_COST
        else None,
        own=own if order.published else _named(own, OWN, order.user),
        order=order,
    )


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
        if section == OWN and (read := ON_CHOSEN.intersection(own_gate(name).reads)):
            rule = f"it reads {', '.join(sorted(read))} of the hits that gap chooses"
            refuse(f"an order must have {path} behind gap", "it before", rule)
    return order


def _action_costs(of: Callable[[str], Any]) -> ActionCosts:
    """Costs of the actions of policies that decide by them, [P, 1] each."""
    costs = {name: of(f"decision.costs.{path}") for name, path in PATHS.items()}
    return ActionCosts(**costs, ratio=of("decision.ratio"))


def _signal_thresholds(policies: Sequence[PolicyData]) -> dict[str, SignalThresholds]:
    """Bounds of the signals that some policy gates, by name, built-in ones first, [P, 1] each."""
    stated = {name for policy in policies for name in policy.signals}
    if not stated:  # as of nearly every policy
        return {}

    # an array
    def column(
        name: str,
        of: Callable[[SignalSection], Any],
        kind: type[np.generic],
    ) -> Any:  # noqa: ANN401
        return np.array(
            [of(policy.signals.get(name, UNSTATED)) for policy in policies], dtype=kind
        )[:, None]

    def bound(key: str) -> Callable[[SignalSection], float]:
        return lambda row: np.nan if (value := getattr(row, key)) is None else value

    return {
        name: SignalThresholds(
            min=column(name, bound("min"), np.float64),
            max=column(name, bound("max"), np.float64),
            refuses=column(name, lambda row: row.on_fire == "refuse", np.bool_),
            asks=column(name, lambda row: row.on_fire == "ask", np.bool_),
            on=column(name, lambda row: row.enabled, np.bool_),
        )
        for name in in_order(stated)
    }


def intent_thresholds(policy: PolicyData) -> IntentThresholds:
    """What makes an arm available to a question under a policy (rule S4.1)."""
    rows = policy.strategy
    return IntentThresholds(rows.min_graph, rows.min_table, rows.min_complexity)
