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

GAP = "gap"
# gates, or what they read of the hits
ON_CHOSEN = frozenset({"coverage", "sufficiency", "missing", "share"})


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
        return frozenset(name for step in (*self.before, *self.after) for name in step.names or ())


def _ends(gate: Gate) -> bool:
    """Whether a gate stands before or behind those on hits."""
    return gate.judges in {"query", "answer"}


def _place(
    rows: Sequence[tuple[Gate, tuple[str, ...] | None]], *, published: bool, off: Iterable[str] = ()
) -> Order:
    """Order of gates with their ranks."""
    steps: list[Step] = []
    decides: list[str] = []
    for gate, names in rows:
        steps.append(Step(gate, names, len(decides)))
        decides += gate.decides if gate.firing == "refuse" else ()
    query = [step for step in steps if step.gate.judges == "query"]
    answer = [step for step in steps if step.gate.judges == "answer"]
    rest = [step for step in steps if not _ends(step.gate)]
    gap = [step.gate.name for step in rest].index(GAP)
    return Order(
        tuple(query),
        tuple(rest[:gap]),
        tuple(rest[gap + 1 :]),
        tuple(answer),
        tuple(decides),
        published,
        frozenset(off),
    )


PUBLISHED_ORDER = _place([(gate, None) for gate in gates.GATES], published=True)


def policy_order(stated: tuple[str, ...], user: tuple[str, ...]) -> Order:
    """Order of a policy: the gates that it names, in their order; a gate left out is off.

    An empty query, an empty retrieval and an answer that is not fit to leave are refused all the
    same.

    Args:
      stated: names of gates; `signals.<name>` and `gates.<name>` are one gate on a signal and one
        of the user, `signals` all of them that are not named.
      user: gates on signals and of the user that policies have, so named.

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
    check_order(stated)
    table = {gate.name: gate for gate in gates.GATES}
    off = [gate.name for gate in gates.GATES if gate.switch and gate.name not in stated]
    middle = [name for name in stated if name not in table or not _ends(table[name])]
    # What is off decides nothing wherever it stands, but that nothing was retrieved is found first,
    # and without a gap gate every question is answered.
    first = [name for name in ("l2", GAP) if name in off]
    rest = [name for name in off if name not in first and not _ends(table[name])]
    answer = [name for name in stated if name in table and table[name].judges == "answer"]
    answer += [gate.name for gate in gates.judging_gates("answer") if gate.name not in answer]
    alone = {name for name in stated if "." in name}
    group = tuple(name for name in user if name not in alone)
    rows: list[tuple[Gate, tuple[str, ...] | None]] = [
        (gate, None) for gate in gates.judging_gates("query")
    ]
    for name in (*first, *middle, *rest):
        if "." in name:
            rows += [(table[SIGNALS], (name,))] if name in user else []
        else:
            rows.append((table[name], group if name == SIGNALS else None))
    return _place([*rows, *((table[name], None) for name in answer)], published=False, off=off)


def check_order(stated: Sequence[str]) -> None:
    """Stop at an order that no chain can have.

    Raises:
      ValueError: a name that is no gate or stands twice, a gate on the query that is not first, one
        on the answer that is not last, or one on the chosen hits before the gap gate, whose
        resolver chooses them.
    """
    if not stated:
        refuse("an order must name a gate", "none", "null is the published order")
    judges = {gate.name: gate.judges for gate in gates.GATES}
    for name in stated:
        # Gates on signals and of the user are in no table here: only the form of their names can be
        # checked.
        section, _, own = name.partition(".")
        if name not in judges and not (section in {SIGNALS, USER_GATES_SECTION} and is_name(own)):
            known = f"{', '.join(judges)}, signals.<name> or gates.<name>"
            refuse(f"an order must name gates ({known})", repr(name[:80]), "correct the name")
        if stated.count(name) > 1:
            refuse("an order must name each gate once", f"{name!r} twice", "take one away")
    # what judges a query needs no hits, and what judges an answer needs all that comes before
    stages = [{"query": 0, "answer": 2}.get(judges.get(name, ""), 1) for name in stated]
    for name, before, stage in zip(stated[1:], stages, stages[1:], strict=False):
        if stage < before:
            rule = "an order must have gates on the query first and those on the answer last"
            refuse(rule, f"{name!r} behind others", "move it")
    # the resolver chooses hits behind the gap gate; before it there are no chosen hits to judge
    for name in stated[: stated.index(GAP)] if GAP in stated else ():
        if name in ON_CHOSEN:
            rule = f"it judges the hits that {GAP} chooses"
            refuse(f"an order must have {GAP} before {name}", "it behind", rule)


def user_names(signals: Iterable[str], own: Mapping[str, object]) -> tuple[str, ...]:
    """Names of the gates on signals and of the user, as an order has them."""
    return (
        *(f"{SIGNALS}.{name}" for name in signals),
        *(f"{USER_GATES_SECTION}.{name}" for name in own),
    )
