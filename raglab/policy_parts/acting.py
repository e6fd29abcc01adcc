"""What acts (algebra): gates and thresholds that may decide under a policy (S2.12, S2.16, S2.17).

On a trace the same is asked of its cases, see `raglab.replaying.step_functions.idle_thresholds`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raglab import gates
from raglab.gating.own_margins import USER_GATES_SECTION
from raglab.gating.signal_gates import SIGNALS
from raglab.policy_parts.gate_order import GAP, user_names
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
_GATES = {gate.name: gate for gate in gates.GATES if gate.switch}
# thresholds of gates, not of signals
NUMBERS = {threshold.path: threshold for threshold in gates.swept_thresholds(())}


class Need(NamedTuple):
    """A setting that must change before a gate or a threshold can act.

    Attributes:
      path: of the setting.
      value: that makes it act, or a text that describes it.
    """

    path: str
    value: Any


# of a policy, which is made of this room
def gate_need(policy: Any, name: str) -> Need | None:  # noqa: ANN401
    """Setting that keeps a gate from deciding, None where it may fire.

    A decision by expected cost reads domain and the gates on signals and of the user alone (rule
    S2.17).

    Args:
      policy: the policy that holds the gate.
      name: section of the gate.
    """
    order = policy.decision.order
    by_cost = policy.decision.rule == EXPECTED_COST
    if by_cost and name in _GATES and _GATES[name].judges != "query":
        return Need("decision.rule", "chain")
    if order is not None and name not in order and not ("." in name and SIGNALS in order):
        return Need("decision.order", f"one with {name}")
    return None if policy.value(f"{name}.enabled") else Need(f"{name}.enabled", value=True)


def threshold_need(policy: Any, path: str) -> Need | None:  # noqa: ANN401 - as above
    """Setting that keeps a threshold from acting on any trace.

    None where it may act, is not set, or the path is of no threshold.
    """
    section, _, key = path.rpartition(".")
    if path == "decision.ratio" or section.startswith("decision.costs"):
        by_cost = policy.decision.rule == EXPECTED_COST
        return None if by_cost else Need("decision.rule", EXPECTED_COST)
    user = section.startswith((f"{SIGNALS}.", f"{USER_GATES_SECTION}.")) and key not in {
        "enabled",
        "on_fire",
    }
    if not (user or path in _SWITCH_OF or path in NUMBERS) or policy.value(path) is None:
        return None
    need = gate_need(policy, GAP if path in _SWITCH_OF else section)
    value, switch = policy.value(path), _SWITCH_OF.get(path)
    if need is None and switch and not policy.value(switch):
        return Need(switch, value=True)
    if need is None and section == "confidence" and 0.0 < value < 1.0:
        return Need(path, f"{100.0 * value:g} of 100 points")
    if need is None and path == "l2.soft_max_l2" and value <= policy.l2.max_l2:
        return Need("l2.max_l2", f"less than {value}")
    return need


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
    names = (name for name in policy.gates_in_order() if name in _GATES or "." in name)
    return tuple(name for name in names if gate_need(policy, name) is None)


def check_order_names(policy: Any, where: str = "") -> None:  # noqa: ANN401 - as above
    """Stop at an order that names a gate on a signal or of the user that the policy has not.

    Args:
      policy: the policy that states the order.
      where: begins the message.

    Raises:
      ValueError: it has none of that name.
    """
    known = user_names(policy.signals, policy.gates)
    for name in policy.decision.order or ():
        if "." in name and name not in known:
            rule = f"{where}decision.order must name gates of the policy"
            remedy = f"state that gate, or name one of {', '.join(known) or 'others'}"
            refuse(rule, repr(name[:80]), remedy)
