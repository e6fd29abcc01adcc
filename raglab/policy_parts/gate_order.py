"""Order of the gates (algebra): the published one, or that of a policy.

What stands before the gap gate (S2.12).

The gap gate hands over to the resolver, so that its place says what a gate judges: one before it
judges whatever the hits are, also what would be asked back; one behind it judges only what would be
answered. Gates on the query come first and those on the answer last, since their inputs are there
then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from raglab import gates
from raglab.gates import Gate
from raglab.gating.own_margins import USER_GATES_SECTION
from raglab.gating.signal_gates import SIGNALS
from raglab.signals import is_name
from raglab.values import refuse

GAP_NAME = "gap"
# gates, or what they read of the hits
CHOSEN_READERS = frozenset({"coverage", "sufficiency", "missing", "share"})


class Step(NamedTuple):
    """A place in the order.

    gate: row of the table. names: of the gates on signals and of the user that are judged here,
    `signals.<name>` and `gates.<name>`; of another gate None. rank: number of the first outcome
    that it decides, least first.
    """

    gate: Gate
    names: tuple[str, ...] | None
    rank: int


@dataclass(frozen=True)
class Order:
    """Gates in the order in which they decide.

    before, after: those before and behind the gap gate. answer: those on the answer. decides:
    outcome of each rank, by its name. published: whether it is that of the table, with every rank
    the number of its outcome. off: gates that it leaves out, which are off.
    """

    query: tuple[Step, ...]
    before: tuple[Step, ...]
    after: tuple[Step, ...]
    answer: tuple[Step, ...]
    decides: tuple[str, ...]
    published: bool
    off: frozenset[str] = frozenset()

    @property
    def user(self) -> frozenset[str]:
        """Gates on signals and of the user that it holds, `signals.<name>` and `gates.<name>`."""
        return frozenset(
            gate_name for step in (*self.before, *self.after) for gate_name in step.names or ()
        )


def _ends(table_gate: Gate) -> bool:
    """Whether a gate stands before or behind those on hits."""
    return table_gate.judges in {"query", "answer"}


def _place(
    ordered_gates: Sequence[tuple[Gate, tuple[str, ...] | None]],
    *,
    is_published: bool,
    off_gates: Iterable[str] = (),
) -> Order:
    """Order of gates with their ranks."""
    ordered_steps: list[Step] = []
    deciding_names: list[str] = []
    for gate, gate_names in ordered_gates:
        ordered_steps.append(Step(gate, gate_names, len(deciding_names)))
        deciding_names += gate.decides if gate.firing == "refuse" else ()
    query_steps = [order_step for order_step in ordered_steps if order_step.gate.judges == "query"]
    answer_steps = [
        order_step for order_step in ordered_steps if order_step.gate.judges == "answer"
    ]
    hit_steps = [order_step for order_step in ordered_steps if not _ends(order_step.gate)]
    gap_index = [order_step.gate.name for order_step in hit_steps].index(GAP_NAME)
    return Order(
        tuple(query_steps),
        tuple(hit_steps[:gap_index]),
        tuple(hit_steps[gap_index + 1 :]),
        tuple(answer_steps),
        tuple(deciding_names),
        is_published,
        frozenset(off_gates),
    )


PUBLISHED_ORDER = _place([(gate, None) for gate in gates.GATES], is_published=True)


def policy_order(gate_names: tuple[str, ...], user_gates: tuple[str, ...]) -> Order:
    """Order of a policy: the gates that it names, in their order; a gate left out is off.

    An empty query, an empty retrieval and an answer that is not fit to leave are refused all the
    same.

    Args:
      gate_names: names of gates; `signals.<name>` and `gates.<name>` are one gate on a signal and
        one of the user, `signals` all of them that are not named.
      user_gates: gates on signals and of the user that policies have, so named.

    Raises:
      ValueError: see `check_order`.

    Source: rules S2.12, S2.16.

    Example:
      >>> order = policy_order(("similarity", "l2", "gap", "confidence"), ())
      >>> [step.gate.name for step in order.before]
      ['similarity', 'l2']
      >>> sorted(order.off)[:3]
      ['coverage', 'density', 'domain']
    """
    check_order(gate_names)
    gate_by_name = {gate.name: gate for gate in gates.GATES}
    off_gates = [gate.name for gate in gates.GATES if gate.switch and gate.name not in gate_names]
    hit_gates = [
        gate_name
        for gate_name in gate_names
        if gate_name not in gate_by_name or not _ends(gate_by_name[gate_name])
    ]
    # What is off decides nothing wherever it stands, but that nothing was retrieved is found first,
    # and without a gap gate every question is answered.
    first_gates = [gate_name for gate_name in ("l2", GAP_NAME) if gate_name in off_gates]
    remaining_gates = [
        gate_name
        for gate_name in off_gates
        if gate_name not in first_gates and not _ends(gate_by_name[gate_name])
    ]
    answer_gates = [
        gate_name
        for gate_name in gate_names
        if gate_name in gate_by_name and gate_by_name[gate_name].judges == "answer"
    ]
    answer_gates += [
        gate.name for gate in gates.judging_gates("answer") if gate.name not in answer_gates
    ]
    single_gates = {gate_name for gate_name in gate_names if "." in gate_name}
    grouped_gates = tuple(gate_name for gate_name in user_gates if gate_name not in single_gates)
    ordered_gates: list[tuple[Gate, tuple[str, ...] | None]] = [
        (gate, None) for gate in gates.judging_gates("query")
    ]
    for gate_name in (*first_gates, *hit_gates, *remaining_gates):
        if "." in gate_name:
            ordered_gates += (
                [(gate_by_name[SIGNALS], (gate_name,))] if gate_name in user_gates else []
            )
        else:
            ordered_gates.append(
                (gate_by_name[gate_name], grouped_gates if gate_name == SIGNALS else None)
            )
    return _place(
        [*ordered_gates, *((gate_by_name[gate_name], None) for gate_name in answer_gates)],
        is_published=False,
        off_gates=off_gates,
    )


def check_order(gate_names: Sequence[str]) -> None:
    """Stop at an order that no chain can have.

    Raises:
      ValueError: a name that is no gate or stands twice, a gate on the query that is not first, one
        on the answer that is not last, or one on the chosen hits before the gap gate, whose
        resolver chooses them.
    """
    if not gate_names:
        refuse("an order must name a gate", "none", "null is the published order")
    judged_by_gate = {gate.name: gate.judges for gate in gates.GATES}
    for gate_name in gate_names:
        # Gates on signals and of the user are in no table here: only the form of their names can be
        # checked.
        section_name, _, user_name = gate_name.partition(".")
        if gate_name not in judged_by_gate and not (
            section_name in {SIGNALS, USER_GATES_SECTION} and is_name(user_name)
        ):
            known_names = f"{', '.join(judged_by_gate)}, signals.<name> or gates.<name>"
            refuse(
                f"an order must name gates ({known_names})",
                repr(gate_name[:80]),
                "correct the name",
            )
        if gate_names.count(gate_name) > 1:
            refuse("an order must name each gate once", f"{gate_name!r} twice", "take one away")
    # what judges a query needs no hits, and what judges an answer needs all that comes before
    order_stages = [
        {"query": 0, "answer": 2}.get(judged_by_gate.get(gate_name, ""), 1)
        for gate_name in gate_names
    ]
    for gate_name, earlier_stage, gate_stage in zip(
        gate_names[1:], order_stages, order_stages[1:], strict=False
    ):
        if gate_stage < earlier_stage:
            refuse(
                "an order must have gates on the query first and those on the answer last",
                f"{gate_name!r} behind others",
                "move it",
            )
    # the resolver chooses hits behind the gap gate; before it there are no chosen hits to judge
    for gate_name in gate_names[: gate_names.index(GAP_NAME)] if GAP_NAME in gate_names else ():
        if gate_name in CHOSEN_READERS:
            refuse(
                f"an order must have {GAP_NAME} before {gate_name}",
                "it behind",
                f"it judges the hits that {GAP_NAME} chooses",
            )


def user_names(signal_names: Iterable[str], user_gates: Mapping[str, object]) -> tuple[str, ...]:
    """Names of the gates on signals and of the user, as an order has them."""
    return (
        *(f"{SIGNALS}.{gate_name}" for gate_name in signal_names),
        *(f"{USER_GATES_SECTION}.{gate_name}" for gate_name in user_gates),
    )
