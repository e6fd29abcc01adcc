"""Rows, gates and decisions as they were then, each rebuilt and held against what the log records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from raglab._explain import Check
from raglab.default_learner import ClarificationDefault, Learner, asks, gate
from raglab.lab._anew import Anew
from raglab.lab._audited import body_of, fresh, learner_of
from raglab.lab._derived import Decided, decided, margins, problems
from raglab.lab._learning import digest_of
from raglab.lab._pending import key_of_row
from raglab.lab._written import read
from raglab.policy import Policy, Thresholds, thresholds
from raglab.store.audit import Entries
from raglab.store.requests import (
    APPLICATIONS,
    CHANGES,
    CLARIFICATIONS,
    DECISIONS,
    POLICIES,
    VERSIONS,
    of_request,
)

_PLAIN = frozenset({"domain", "l2"})  # gates whose reason may be said in other words than the check's


class DefaultThen(NamedTuple):
    """A row of the default table as it was when it was used.

    used: asked or applied. value: that was applied, or proposed. confidence, votes, gate: rebuilt from the changes
    before. requests: that had come to the row by then, this one among them; asks: whether gate and schedule ask.
    """

    used: str
    kind: str
    value: str | None
    target_field: str
    doctype: str
    sub_conditions: Mapping[str, str]
    row_id: str
    version: int
    confidence: float
    sample_size: int
    votes: Mapping[str, float]
    gate: str
    requests: int
    asks: bool
    thresholds: tuple[float, float]
    every: int

    @property
    def told(self) -> str:
        """In words."""
        where = "".join(f", {name} {value}" for name, value in sorted(self.sub_conditions.items()))
        votes = ", ".join(f"{name} {count:g}" for name, count in self.votes.items()) or "none"
        verdict = self.gate
        if verdict == "ask_occasionally":
            verdict += (
                f" (request {self.requests} of the row, every {self.every}th asks: {'yes' if self.asks else 'no'})"
            )
        low, high = self.thresholds
        return (
            f"{self.used} {self.value or 'nothing'} for {self.target_field} on {self.doctype}{where}: "
            f"row {self.row_id} version {self.version}, confidence {self.confidence:.4g} from {self.sample_size} "
            f"(votes {votes}), gate {verdict} (asks below {low:g}, applies above {high:g})"
        )


class DecisionThen(NamedTuple):
    """A decision as it is recorded, and as it follows from its checks.

    derived: None where no checks are recorded. margins: anew, one a check; None where value and threshold do not tell.
    """

    status: str
    reason: str | None
    answer: str | None
    sources: tuple[str, ...]
    confidence: float | None
    arm: str | None
    default_applied: Any
    checks: tuple[Check, ...]
    margins: tuple[float | None, ...]
    derived: Decided | None


def policy_of(log: Entries, request: Mapping[str, Any]) -> tuple[Thresholds | None, list[str]]:
    """Thresholds of the policy that a request was decided under; and what is wrong with its body."""
    named = request["policy_id"]
    row = log.one(POLICIES, policy_id=named)
    if row is None:
        return None, [f"policy {named} is not in the log"]
    try:
        policy = Policy.from_mapping(row["body"])
    except ValueError as error:
        return None, [f"policy {named} cannot be read: {error}"]
    if policy.policy_id != named:
        return thresholds([policy]), [f"policy {named} is recorded, its body has the id {policy.policy_id}"]
    return thresholds([policy]), []


def _learner(log: Entries, named: str) -> tuple[Learner, list[str]]:
    try:
        found = learner_of(log, named, {})
    except (ValueError, TypeError) as error:
        return Learner(), [f"learner {named} cannot be read: {error}"]
    digest = digest_of(found)
    return found, [] if digest == named else [f"learner {named} is recorded, its settings have the digest {digest}"]


def defaults_of(log: Entries, request: Mapping[str, Any], anew: Anew) -> tuple[tuple[DefaultThen, ...], list[str]]:
    """Rows that a request used, rebuilt from the changes before it; and what differs from what is recorded."""
    request_id = request["request_id"]
    learner, differences = _learner(log, request["learner"])
    found = []
    for used, table in (("applied", APPLICATIONS), ("asked", CLARIFICATIONS)):
        for row in of_request(log, table, request_id):
            then, wrong = _row_then(log, row, anew)
            differences += wrong
            one = _default_then(log, row, then, learner, used)
            told = f"{used} {one.value or 'nothing'}, row {one.row_id} version {one.version}"
            pairs = (("confidence", one.confidence), ("gate", one.gate), ("votes", dict(one.votes)))
            differences += [
                f"{told}: {name} {row[name]} is recorded, the changes before it give {value}"
                for name, value in pairs
                if row[name] != value
            ]
            found.append((int(row["seq"]), one))
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0])), differences


def _row_then(log: Entries, row: Mapping[str, Any], anew: Anew) -> tuple[ClarificationDefault, list[str]]:
    """Row of the version that is recorded, folded from the changes up to the one that made it."""
    of, version = row["row_id"], row["version"]
    kept = log.one(VERSIONS, of=f"{of}.{version}")
    if kept is None:
        empty = fresh(key_of_row(log, of), datetime.fromisoformat(row["at"]))
        return empty, [] if version == empty.version else [f"row {of} has no version {version} in the log"]
    then, wrong = anew.row(of, version, int(kept["cause"]))
    if then is not None and body_of(then) == kept["body"]:
        return then, wrong
    wrong = wrong or [f"row {of} version {version}: its body differs from what the changes give"]
    return then or fresh(key_of_row(log, of), datetime.fromisoformat(row["at"])), wrong


def _default_then(
    log: Entries, row: Mapping[str, Any], then: ClarificationDefault, stated: Learner, used: str
) -> DefaultThen:
    learner = stated if stated.ask_below <= stated.apply_above else Learner()  # edited: among the differences already
    verdict = gate(then, ask_below=learner.ask_below, apply_above=learner.apply_above)
    requests = then.requests if _counted(log, row) else then.requests + 1
    before = then.model_copy(update={"requests": requests - 1})
    return DefaultThen(
        used,
        row["kind"],
        row["value"] if used == "applied" else row["proposed"],
        then.target_field,
        then.doctype,
        dict(then.sub_conditions),
        then.row_id,
        then.version,
        then.confidence,
        then.sample_size,
        dict(then.candidate_votes),
        verdict,
        requests,
        asks(before, learner),
        (learner.ask_below, learner.apply_above),
        learner.every,
    )


def _counted(log: Entries, row: Mapping[str, Any]) -> bool:
    """Whether the version that is recorded counts this request already."""
    for change in of_request(log, CHANGES, row["request_id"]):
        if change["kind"] == "met" and change["row_id"] == row["row_id"]:
            made = log.one(VERSIONS, cause=change["seq"], row_id=row["row_id"])
            return made is not None and bool(made["version"] <= row["version"])
    return False


def signals_of(log: Entries, request: Mapping[str, Any], anew: Anew) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """Changes that a request made, each with the version that followed; and what differs when they are folded anew."""
    found, differences = [], []
    for change in of_request(log, CHANGES, request["request_id"]):
        made = list(log.rows(VERSIONS, cause=int(change["seq"])))
        for kept in made:
            then, wrong = anew.row(kept["row_id"], kept["version"], int(change["seq"]))
            if not wrong and (then is None or body_of(then) != kept["body"]):
                by = f"{change['kind']} {change['signal']}".rstrip()
                told = f"row {kept['row_id']} version {kept['version']} after {by}"
                wrong = [f"{told}: its body differs from what the changes give"]
            differences += [one for one in (*wrong, *_columns(kept)) if one not in differences]
            if kept["row_id"] == change["row_id"]:
                told_by = {name: change[name] for name in ("at", "kind", "signal", "value", "corrected_to", "row_id")}
                found.append(told_by | {"version": kept["version"], "confidence": kept["confidence"]})
        if not made:
            differences.append(f"change {change['seq']} ({change['kind']}) has no version of its row")
    return tuple(found), differences


def _columns(kept: Mapping[str, Any]) -> Iterator[str]:
    """Columns of a version that are not those of its body."""
    for name in ("target_field", "doctype", "confidence", "sample_size"):
        if isinstance(kept["body"], Mapping) and kept[name] != kept["body"].get(name):
            yield f"row {kept['row_id']} version {kept['version']}: {name} {kept[name]!r} is recorded beside its body"


def decisions_of(
    log: Entries, request: Mapping[str, Any], limits: Thresholds | None, *, clarified: bool
) -> tuple[tuple[DecisionThen, ...], list[str]]:
    """Decisions of a request, each anew from its checks; and what differs."""
    found, differences = [], []
    rows, applied = (of_request(log, table, request["request_id"]) for table in (DECISIONS, APPLICATIONS))
    for row in rows:
        checks = tuple(read(one) for one in row["checks"])
        derived = _derived(row, checks, clarified=clarified)
        anew: Sequence[float | None] = [None] * len(checks) if limits is None else margins(checks, limits)
        one = DecisionThen(
            row["status"],
            row["reason"],
            row["answer"],
            tuple(row["sources"]),
            row["confidence"],
            row["arm"],
            row["default_applied"],
            checks,
            tuple(anew),
            derived,
        )
        found.append(one)
        differences += [] if limits is None else problems(checks, limits)
        differences += _differs(row, one, request)
        named = one.default_applied
        if named is not None and not any(_names(named, each) for each in applied):
            differences.append(f"default_applied {named} is recorded with the decision, no such default was applied")
    return tuple(found), differences if rows else [*differences, "no decision is recorded"]


def _names(named: Mapping[str, Any], applied: Mapping[str, Any]) -> bool:
    return all(named.get(name) == applied[name] for name in ("value", "row_id", "version", "confidence", "gate"))


def _derived(row: Mapping[str, Any], checks: Sequence[Check], *, clarified: bool) -> Decided | None:
    if row["clarified"]:
        return Decided("ambiguous", "clarification", "") if clarified else None
    if row["reason"] and row["reason"].startswith("Invalid selection"):
        return Decided("refuse", "selection", row["reason"])
    return decided(checks)


def _differs(row: Mapping[str, Any], one: DecisionThen, request: Mapping[str, Any]) -> Iterator[str]:
    derived = one.derived
    if derived is None:
        yield "no checks are recorded, so that the decision cannot be derived anew"
        return
    if derived.status != one.status:
        by = f" by {derived.gate}" if derived.gate else ""
        yield f"status {one.status} is recorded, the checks give {derived.status}{by}"
    reason = one.reason or ""
    if derived.status == "refuse" and derived.gate not in _PLAIN and not reason.startswith(derived.text):
        yield f"reason {reason!r} is recorded, the check that decides says {derived.text!r}"
    if bool(row["status"] == "refuse") != (one.reason is not None):
        yield f"status {one.status} is recorded with reason {one.reason!r}; a refusal has one, and nothing else has"
    for name in ("policy_id", "fingerprint", "models", "prompt_version"):
        if row[name] != request[name]:
            yield f"{name} {row[name]!r} is recorded with the decision, {request[name]!r} with the request"


def slots(parsed: object) -> Iterator[tuple[str, str | None, float]]:
    """Fields of a parsed question with value and confidence, those that have both."""
    if not isinstance(parsed, Mapping):
        return
    for name, slot in parsed.items():
        pair = (slot.get("value"), slot.get("confidence")) if isinstance(slot, Mapping) else slot
        if (
            isinstance(pair, Sequence)
            and not isinstance(pair, str)
            and len(pair) == 2
            and isinstance(pair[1], int | float)
        ):
            yield name, None if pair[0] is None else str(pair[0]), float(pair[1])
