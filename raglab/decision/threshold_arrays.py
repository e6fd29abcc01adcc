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
    CHOSEN_READERS,
    PUBLISHED_ORDER,
    Order,
    policy_order,
    user_names,
)
from raglab.policy_parts.own_gates import own_gate, own_thresholds
from raglab.policy_parts.sections import EXPECTED_COST, UNGATED_SIGNAL, in_order
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

    def user(self, gate_names: Sequence[str] | None) -> UserThresholds:
        """Thresholds of the gates on signals and of those of the user.

        Args:
          gate_names: `signals.<name>` and `gates.<name>` of those wanted; None for all.
        """
        if gate_names is None:
            return UserThresholds(self.signals, self.own)
        return UserThresholds(
            _named(self.signals, SIGNALS, gate_names),
            _named(self.own, USER_GATES_SECTION, gate_names),
        )

    def without(self, off_gates: Collection[str]) -> Thresholds:
        """The same with some gates switched off."""
        switched_gates = {
            gate_name: self.gates[gate_name]._replace(on=np.zeros_like(self.gates[gate_name].on))
            for gate_name in off_gates
        }
        return self._replace(gates={**self.gates, **switched_gates}) if off_gates else self

    def with_value(self, threshold_path: str, new_values: Floats) -> Thresholds:
        """The same with the values at a path of a gate or rule replaced."""
        section, _, threshold_key = threshold_path.partition(".")
        if section == "resolver":
            return self._replace(rules=self.rules._replace(**{threshold_key: new_values}))
        if section == "decision":
            gate_name = (
                "ratio"
                if threshold_key == "ratio"
                else COST_FIELDS[threshold_key.removeprefix("costs.")]
            )
            return self._replace(
                costs=self.costs and self.costs._replace(**{gate_name: new_values})
            )
        gate_name, _, bound_name = threshold_key.partition(".")
        if section == SIGNALS:  # one that no policy gates moves as if the policy gated it
            signal_gate = self.signals.get(
                gate_name,
                SignalThresholds(UNSET_BOUND, UNSET_BOUND, SWITCHED_ON, ~SWITCHED_ON, SWITCHED_ON),
            )
            bound_change: dict[str, Any] = {bound_name: new_values}
            return self._replace(
                signals={**self.signals, gate_name: signal_gate._replace(**bound_change)}
            )
        if section == USER_GATES_SECTION:
            user_gate = self.own[gate_name]
            moved_gate = replace(
                user_gate, values=user_gate.values._replace(**{bound_name: new_values})
            )
            return self._replace(own={**self.own, gate_name: moved_gate})
        moved_thresholds = self.gates[section]._replace(**{threshold_key: new_values})
        return self._replace(gates={**self.gates, section: moved_thresholds})


# thresholds, a part of them, or an array
def stacked(policy_values: Sequence[Any], n_policies: int) -> Any:  # noqa: ANN401
    """Thresholds of n policies each, [n, 1] or [1, 1], one below the other.

    What all share as one object stays so.
    """
    first_value = policy_values[0]
    if all(policy_value is first_value for policy_value in policy_values):
        return first_value
    if isinstance(first_value, OwnThresholds):
        stacked_parts = {
            field_name: stacked(
                [getattr(policy_value, field_name) for policy_value in policy_values], n_policies
            )
            for field_name in ("values", "on")
        }
        return replace(first_value, **stacked_parts)
    if isinstance(first_value, dict):
        return {
            field_name: stacked(
                [policy_value[field_name] for policy_value in policy_values], n_policies
            )
            for field_name in first_value
        }
    if isinstance(first_value, tuple):
        return type(first_value)(
            *(
                stacked(field_values, n_policies)
                for field_values in zip(*policy_values, strict=True)
            )
        )
    return np.concatenate(
        [np.broadcast_to(policy_value, (n_policies, 1)) for policy_value in policy_values]
    )


UNSET_BOUND, SWITCHED_ON = (
    np.full((1, 1), np.nan),
    np.full((1, 1), fill_value=True),
)  # of one policy


def policy_thresholds(policies: Sequence[PolicyData]) -> Thresholds:
    """Thresholds of many policies, each field [P, 1]."""

    def threshold_column(threshold_path: str, unset_value: float = np.nan) -> Any:  # noqa: ANN401 - an array of bools or floats
        policy_values = list(map(attrgetter(threshold_path), policies))
        value_type = np.bool_ if isinstance(policy_values[0], bool) else np.float64
        return _column(
            [
                unset_value if policy_value is None else policy_value
                for policy_value in policy_values
            ],
            value_type,
        )

    gate_order = gates_order(policies)
    signals = _signal_thresholds(policies)
    user_gates = _own_thresholds(policies)
    if not gate_order.published:
        signals = _named(signals, SIGNALS, gate_order.user)
        user_gates = _named(user_gates, USER_GATES_SECTION, gate_order.user)
    decides_by_cost = policies and policies[0].decision.rule == EXPECTED_COST
    cost_columns = {
        field_name: threshold_column(f"decision.costs.{threshold_path}")
        for field_name, threshold_path in COST_PATHS.items()
        if decides_by_cost
    }
    rule_columns = {
        threshold.key: np.where(
            threshold_column(RULE_SWITCHES[rule.name]),
            threshold_column(threshold.path, -np.inf),
            np.nan,
        )
        if rule.name in RULE_SWITCHES
        else threshold_column(threshold.path)
        for rule in RULES
        for threshold in rule.thresholds
    }
    thresholds = Thresholds(
        gates={
            gate.name: gates.gate_thresholds(gate, threshold_column)
            for gate in gates.GATES
            if gate.switch
        },
        blend=threshold_column("confidence.blend"),
        switches=RuleSwitches(
            *(threshold_column(f"resolver.{field_name}") for field_name in RuleSwitches._fields)
        ),
        rules=RuleThresholds(**rule_columns),
        refine=RefineThresholds(
            threshold_column("refine.max_depth"),
            threshold_column("refine.epsilon"),
            threshold_column("refine.refine_on_refusal"),
        ),
        signals=signals,
        costs=ActionCosts(**cost_columns, ratio=threshold_column("decision.ratio"))
        if decides_by_cost
        else None,
        own=user_gates,
        order=gate_order,
    )
    return thresholds.without(gate_order.off)


def _column(policy_values: Sequence[Any], value_type: type[np.generic]) -> Any:  # noqa: ANN401 - an array
    """A value a policy, [P, 1]; None is NaN among floats."""
    return np.array(policy_values, dtype=value_type)[:, None]


def _named(
    thresholds: Mapping[str, Any], section_name: str, gate_names: Collection[str]
) -> dict[str, Any]:
    """Thresholds of the gates of a section whose `<section>.<name>` is among some names."""
    return {
        gate_name: gate_thresholds
        for gate_name, gate_thresholds in thresholds.items()
        if f"{section_name}.{gate_name}" in gate_names
    }


def _own_thresholds(policies: Sequence[PolicyData]) -> dict[str, OwnThresholds]:
    """Thresholds of the gates of the user that some policy has, by name."""
    gate_names = sorted(
        {gate_name for policy in policies if policy.gates for gate_name in policy.gates}
    )
    return {
        gate_name: own_thresholds(gate_name, [policy.gates.get(gate_name) for policy in policies])
        for gate_name in gate_names
    }


def gates_order(policies: Sequence[PolicyData]) -> Order:
    """Order of the gates of policies that state the same one (rule S2.12)."""
    stated_order = policies[0].decision.order if policies else None
    # replay groups them by it
    assert all(policy.decision.order == stated_order for policy in policies)  # noqa: S101
    if stated_order is None:
        return PUBLISHED_ORDER
    for policy in policies:
        check_order_names(policy)
    signal_names = in_order({gate_name for policy in policies for gate_name in policy.signals})
    gate_names = sorted({gate_name for policy in policies for gate_name in policy.gates})
    gate_order = policy_order(stated_order, user_names(signal_names, dict.fromkeys(gate_names)))
    for gate_path in (
        gate_name for order_step in gate_order.before for gate_name in order_step.names or ()
    ):
        section_name, _, gate_name = gate_path.partition(".")
        if section_name == USER_GATES_SECTION and (
            chosen_reads := CHOSEN_READERS.intersection(own_gate(gate_name).reads)
        ):
            refuse(
                f"an order must have {gate_path} behind gap",
                "it before",
                f"it reads {', '.join(sorted(chosen_reads))} of the hits that gap chooses",
            )
    return gate_order


def _signal_thresholds(policies: Sequence[PolicyData]) -> dict[str, SignalThresholds]:
    """Bounds of the signals that some policy gates, by name, built-in ones first, [P, 1] each."""
    signal_names = {signal_name for policy in policies for signal_name in policy.signals}
    signal_sections = {
        signal_name: [policy.signals.get(signal_name, UNGATED_SIGNAL) for policy in policies]
        for signal_name in (
            in_order(signal_names) if signal_names else ()
        )  # none of nearly every policy
    }
    return {
        signal_name: SignalThresholds(
            min=_column([signal_section.min for signal_section in policy_sections], np.float64),
            max=_column([signal_section.max for signal_section in policy_sections], np.float64),
            refuses=_column(
                [signal_section.on_fire == "refuse" for signal_section in policy_sections], np.bool_
            ),
            asks=_column(
                [signal_section.on_fire == "ask" for signal_section in policy_sections], np.bool_
            ),
            on=_column([signal_section.enabled for signal_section in policy_sections], np.bool_),
        )
        for signal_name, policy_sections in signal_sections.items()
    }


def intent_thresholds(policy: PolicyData) -> IntentThresholds:
    """What makes an arm available to a question under a policy (rule S4.1)."""
    strategy_section = policy.strategy
    return IntentThresholds(
        strategy_section.min_graph, strategy_section.min_table, strategy_section.min_complexity
    )
