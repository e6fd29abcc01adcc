"""What acts (algebra): gates and thresholds that may decide under a policy (S2.12, S2.16, S2.17).

On a trace the same is asked of its cases, see `raglab.replaying.step_functions.idle_thresholds`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raglab import gates
from raglab.gating.own_margins import USER_GATES_SECTION
from raglab.gating.signal_gates import SIGNALS
from raglab.policy_parts.gate_order import GAP_NAME, user_names
from raglab.policy_parts.resolver_rules import RULES
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.values import refuse

# Switch of each rule of the resolver that has one.
RULE_SWITCHES = {
    "overview": "resolver.overview",
    "entities": "resolver.entities",
    "signature_similarity": "resolver.signature",
    "anchor_similarity": "resolver.anchor",
}
_SWITCH_OF = {  # of the rule that reads a threshold
    threshold.path: RULE_SWITCHES.get(rule.name) for rule in RULES for threshold in rule.thresholds
}
_SWITCHED_GATES = {gate.name: gate for gate in gates.GATES if gate.switch}
# thresholds of gates, not of signals
GATE_THRESHOLDS = {threshold.path: threshold for threshold in gates.swept_thresholds(())}


class Need(NamedTuple):
    """A setting that must change before a gate or a threshold can act.

    Attributes:
      path: of the setting.
      value: that makes it act, or a text that describes it.
    """

    path: str
    value: Any


# of a policy, which is made of this room
def gate_need(policy: Any, gate_path: str) -> Need | None:  # noqa: ANN401
    """Setting that keeps a gate from deciding, None where it may fire.

    A decision by expected cost reads domain and the gates on signals and of the user alone (rule
    S2.17).

    Args:
      policy: the policy that holds the gate.
      gate_path: section of the gate.
    """
    gate_order = policy.decision.order
    decides_by_cost = policy.decision.rule == EXPECTED_COST
    if (
        decides_by_cost
        and gate_path in _SWITCHED_GATES
        and _SWITCHED_GATES[gate_path].judges != "query"
    ):
        return Need("decision.rule", "chain")
    if (
        gate_order is not None
        and gate_path not in gate_order
        and not ("." in gate_path and SIGNALS in gate_order)
    ):
        return Need("decision.order", f"one with {gate_path}")
    return (
        None if policy.value(f"{gate_path}.enabled") else Need(f"{gate_path}.enabled", value=True)
    )


def threshold_need(policy: Any, threshold_path: str) -> Need | None:  # noqa: ANN401 - as above
    """Setting that keeps a threshold from acting on any trace.

    None where it may act, is not set, or the path is of no threshold.
    """
    section_path, _, threshold_key = threshold_path.rpartition(".")
    if threshold_path == "decision.ratio" or section_path.startswith("decision.costs"):
        decides_by_cost = policy.decision.rule == EXPECTED_COST
        return None if decides_by_cost else Need("decision.rule", EXPECTED_COST)
    is_user_bound = section_path.startswith(
        (f"{SIGNALS}.", f"{USER_GATES_SECTION}.")
    ) and threshold_key not in {
        "enabled",
        "on_fire",
    }
    if (
        not (is_user_bound or threshold_path in _SWITCH_OF or threshold_path in GATE_THRESHOLDS)
        or policy.value(threshold_path) is None
    ):
        return None
    required_setting = gate_need(policy, GAP_NAME if threshold_path in _SWITCH_OF else section_path)
    threshold_value = policy.value(threshold_path)
    rule_switch = _SWITCH_OF.get(threshold_path)
    if required_setting is None and rule_switch and not policy.value(rule_switch):
        return Need(rule_switch, value=True)
    if required_setting is None and section_path == "confidence" and 0.0 < threshold_value < 1.0:
        return Need(threshold_path, f"{100.0 * threshold_value:g} of 100 points")
    if (
        required_setting is None
        and threshold_path == "l2.soft_max_l2"
        and threshold_value <= policy.l2.max_l2
    ):
        return Need("l2.max_l2", f"less than {threshold_value}")
    return required_setting


def acting_gates(policy: Any) -> tuple[str, ...]:  # noqa: ANN401 - as above
    """Names of the gates that may fire under a policy, in its order.

    Without hygiene, which always may.

    Example:
      >>> from raglab.policy import PolicyData
      >>> acting_gates(
      ...     PolicyData.from_mapping().without_gates().replace("signals.confidence.min", 60)
      ... )
      ('signals.confidence',)
    """
    gate_names = (
        gate_name
        for gate_name in policy.gates_in_order()
        if gate_name in _SWITCHED_GATES or "." in gate_name
    )
    return tuple(gate_name for gate_name in gate_names if gate_need(policy, gate_name) is None)


def check_order_names(policy: Any, place_text: str = "") -> None:  # noqa: ANN401 - as above
    """Stop at an order that names a gate on a signal or of the user that the policy has not.

    Args:
      policy: the policy that states the order.
      place_text: begins the message.

    Raises:
      ValueError: it has none of that name.
    """
    known_names = user_names(policy.signals, policy.gates)
    for gate_name in policy.decision.order or ():
        if "." in gate_name and gate_name not in known_names:
            requirement = f"{place_text}decision.order must name gates of the policy"
            remedy = f"state that gate, or name one of {', '.join(known_names) or 'others'}"
            refuse(requirement, repr(gate_name[:80]), remedy)
