"""Explanation of a request (shore): rebuilt from the log alone, compared with the record (S5.8).

Nothing is retrieved and no policy file is read: the log holds the policy's body, the learner's
settings, every check and every change of the default table. What is recorded is held against what
follows from them; an edit of the log that contradicts the rest stands among the differences.
Replies, proposals, answers, sources and moments follow from nothing: an edit of these is not
noticed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import gates
from raglab.audit.default_table import ReplayedDefault, ReplayedUses, default_table
from raglab.audit.log import GROUP, check_from_json, json_value, recorded_learner, request_groups
from raglab.audit.request_events import RequestEvents
from raglab.decision.checks import ASK_RULES, SIGNAL_RULES, WARN_RULES, Check
from raglab.decision.decisions import COST_RULES
from raglab.decision.threshold_arrays import Thresholds, policy_thresholds
from raglab.gating.signal_gates import SIGNALS, firing_of
from raglab.policy import PolicyData
from raglab.resolver import RULES
from raglab.signals import BUILT_IN_SET, NAMES, own_signal
from raglab.store.log_rows import Entries, as_written
from raglab.store.log_tables import (
    APPLICATIONS,
    CHANGES,
    CLARIFICATIONS,
    DECISIONS,
    EVIDENCE_TABLE,
    POLICIES,
    REPLIES,
    parsed_fields,
    request_row,
)
from raglab.words.canonical import decimals, digest
from raglab.words.characters import visible
from raglab.words.html_display import display
from raglab.words.languages import TEXTS

if TYPE_CHECKING:
    import pandas as pd

    from raglab.audit.log import AuditLog


# Gates that refuse nothing by themselves: those that warn or ask, and the rules they hand over to.
WARNS = frozenset({"resolver", *(gate.name for gate in gates.GATES if gate.firing != "refuse")})
_GATES = {gate.name: gate for gate in gates.GATES}
# Of a gate of several measurements a check records one; the others are taken as ones that let it
# decide alone.
_OTHERS: Mapping[str, Any] = {
    "words": 1.0,
    "denied": 0.0,
    "allowed": 1.0,
    "needs_allowed": True,
    "n_hits": 1.0,
    "best_l2": 0.0,
    "n_relevant": 2.0,
    "agree": False,
}
_RULES = {f"S3.3 {rule.name}": rule.thresholds for rule in RULES if rule.thresholds}


class CheckDecision(NamedTuple):
    """What checks decide: status, the gate or rule that did, and its words."""

    status: str
    gate: str
    text: str

    @property
    def verdict(self) -> str:
        """Status, and the gate that gave it."""
        return f"{self.status} by {self.gate}" if self.gate else self.status


def decide_by_checks(checks: Sequence[Check]) -> CheckDecision | None:
    """Decision of checks in the order of the chain: the first that fails and decides refuses.

    None without checks.

    A gap that is too small hands over to the resolver's rules, of which the first that passes
    decides; where none does, or the question is an overview, the user is asked, unless one option
    was left and the chain went on. A gate on a signal refuses, asks back or warns, and so do
    expected costs, as the rule of their check says.

    Source: rules S2.12, S2.15, S2.17, S3.3.
    """
    if not checks:
        return None
    for check in checks:
        if check.gate not in WARNS and not check.passes and check.rule not in WARN_RULES:
            status = "ambiguous" if check.rule in {*ASK_RULES, COST_RULES["ask"]} else "refuse"
            return CheckDecision(status, check.gate, check.text)
    if checks[-1].gate == "resolver":
        passed = (check for check in checks if check.gate == "resolver" and check.passes)
        rule = next(passed, None)
        if rule is None or rule.rule.endswith("overview"):
            text = "no rule picks a group" if rule is None else rule.text
            return CheckDecision("ambiguous", "resolver", text)
    return CheckDecision("ok", "", "")


class RebuiltCheck(NamedTuple):
    """What a policy gives for a recorded check.

    margin: from its value; None where the value alone does not tell: a rule over two measurements
    of which one is recorded, two hits that agree whatever their gap, a gate that is not of the
    policy. thresholds: that it may have met, none where the policy has none.
    """

    margin: float | None
    thresholds: tuple[float, ...]


def margins(checks: Sequence[Check], thresholds: Thresholds) -> list[float | None]:
    """Margin of each check anew, by the gates under a policy's thresholds; see `RebuiltCheck`."""
    return [
        _rebuild_check(check, checks[:place], thresholds).margin
        for place, check in enumerate(checks)
    ]


def _rebuild_check(check: Check, before: Sequence[Check], thresholds: Thresholds) -> RebuiltCheck:
    if check.gate == "resolver":
        keys = [threshold.key for threshold in _RULES.get(check.rule, ())]
        stated = tuple(_scalar(getattr(thresholds.rules, key)) for key in keys[:1])
        return RebuiltCheck(None if len(keys) > 1 else check.value - check.threshold, stated)
    gate, bounds = _GATES.get(check.gate), thresholds.gates.get(check.gate)
    section, _, signal = check.gate.partition(".")
    is_signal = section == SIGNALS and bool(signal)
    if is_signal:
        bounds = thresholds.signals.get(signal)
        # Unit and direction of a user's own stand in the trace; its margin is formed without them.
        known_signal = (
            BUILT_IN_SET.signal(signal)
            if signal in NAMES
            else own_signal(signal, higher="surer", unit="number")
        )
        gate = None if bounds is None else gates.signal_gate(known_signal)
    if gate is None:
        return RebuiltCheck(None, ())
    rank = sum(earlier.gate == check.gate for earlier in before)
    met = (
        ()
        if bounds is None
        else tuple(_scalar(getattr(bounds, threshold.key)) for threshold in gate.thresholds)
    )
    # The first check of distances is whether there is a hit at all.
    stated = (1.0,) if check.gate == "l2" and not rank else met
    # What a missing signal means, its trace knows; two hits that agree pass whatever their gap.
    if (
        (gate.thresholds and bounds is None)
        or (check.gate == "gap" and math.isinf(check.margin))
        or (is_signal and math.isnan(check.value))
    ):
        return RebuiltCheck(None, stated)
    rank = min(rank, len(gate.measurements) - 1)
    known = {**_OTHERS, gate.measurements[rank]: check.value}
    # which of them the case met is told by the number that is recorded
    for threshold, value in zip(gate.thresholds[1:], met[1:], strict=True):
        if threshold.where:
            known[threshold.where] = check.threshold == value
    try:
        margin = _scalar(gates.margins_of(gate, known.__getitem__, bounds)[rank])
    except KeyError:  # it reads more than is known here
        margin = None
    return RebuiltCheck(margin, stated)


def check_differences(checks: Sequence[Check], thresholds: Thresholds) -> list[str]:
    """Contradictions within checks, in words.

    Margins, verdicts, thresholds that the policy does not have.
    """
    differences = []
    for place, check in enumerate(checks):
        named = f"check {check.gate} ({check.rule})"
        margin, stated = _rebuild_check(check, checks[:place], thresholds)
        if margin is not None and not _same(margin, check.margin):
            differences.append(
                f"{named}: margin {decimals(check.margin, margin)} is recorded, value and "
                f"threshold give {decimals(margin, check.margin)}"
            )
        if bool(check.passes) == bool(gates.fires((check.margin,))):
            verdict = "passes" if check.passes else "fails"
            differences.append(
                f"{named}: {verdict} is recorded, margin {decimals(check.margin)} says the opposite"
            )
        section, _, signal = check.gate.partition(".")
        if section == SIGNALS and signal not in thresholds.signals:
            differences.append(f"{named}: the policy gates no signal {signal}")
        elif section == SIGNALS:
            act = firing_of(thresholds.signals[signal])
            # one that asks in vain refuses
            rules = {SIGNAL_RULES[act], SIGNAL_RULES["refuse" if act == "ask" else act]}
            if check.rule not in rules:
                differences.append(
                    f"{named}: what it does is recorded as {check.rule}, the policy has on_fire "
                    f"{act}"
                )
        if stated and not any(_same(check.threshold, value) for value in stated):
            alternatives = " or ".join(decimals(value, check.threshold) for value in stated)
            differences.append(
                f"{named}: threshold {decimals(check.threshold, stated[0])} is recorded, the "
                f"policy has {alternatives}"
            )
    return differences


def _same(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))


def _scalar(value: Any) -> float:  # noqa: ANN401 - scalar or array of one
    return float(np.squeeze(value))


# gates whose reason may be said in other words than the check's
_PLAIN = frozenset({"domain", "l2"})
# what a decision says of the default that it rests on, and the row of its application too
_OF_DEFAULT = ("value", "row_id", "version", "confidence", "gate")


class ReplayedDecision(NamedTuple):
    """A decision as it is recorded, and as it follows from its checks.

    derived: None where no checks are recorded. margins: anew, one a check; None where value and
    threshold do not tell. warnings: what the user was told beside the answer, a default that stood
    in for a callable among it.
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
    derived: CheckDecision | None
    warnings: tuple[str, ...] = ()


def recorded_policy(
    log: Entries, request: Mapping[str, Any]
) -> tuple[Thresholds | None, list[str]]:
    """Thresholds of the policy that a request was decided under.

    And what is wrong with its body.
    """
    named = request["policy_id"]
    row = log.row(POLICIES, policy_id=named)
    if row is None:
        return None, [f"policy {named} is not in the log"]
    try:
        policy_id, thresholds = _read_policy(json.dumps(row["body"]))
    except ValueError as error:
        return None, [f"policy {named} cannot be read: {error}"]
    if policy_id != named:
        return thresholds, [f"policy {named} is recorded, its body has the id {policy_id}"]
    return thresholds, []


@lru_cache(maxsize=16)
def _read_policy(body: str) -> tuple[str, Thresholds]:
    """Id and thresholds of a policy's body: a log has few policies and many requests."""
    policy = PolicyData.from_mapping(json.loads(body))
    return policy.policy_id, policy_thresholds([policy])


def replay_decisions(
    events: RequestEvents, thresholds: Thresholds | None, *, clarified: bool
) -> tuple[tuple[ReplayedDecision, ...], list[str]]:
    """Decisions of a request, each anew from its checks; and what differs."""
    rows = events.of(DECISIONS)
    if not rows:
        return (), ["no decision is recorded"]
    decisions, differences = [], []
    # A default is logged twice, with the decision and by itself, so it is compared both ways.
    applied = [{name: row[name] for name in _OF_DEFAULT} for row in events.of(APPLICATIONS)]
    stated = []
    for row in rows:
        checks = tuple(map(check_from_json, row["checks"]))
        # Without a readable policy there are no margins, but the checks alone still derive the
        # decision.
        rebuilt: Sequence[float | None] = [None] * len(checks)
        if thresholds is not None:
            rebuilt = margins(checks, thresholds)
            differences += check_differences(checks, thresholds)
        # The fields are those of the log, even wrong ones: an explanation shows a difference and
        # corrects nothing.
        named = ("status", "reason", "answer", "confidence", "arm", "default_applied")
        decision = ReplayedDecision(
            **{name: row[name] for name in named},
            sources=tuple(row["sources"]),
            checks=checks,
            margins=tuple(rebuilt),
            derived=_derive_decision(row, checks, clarified=clarified),
            warnings=tuple(map(str, row["warnings"] or ())),
        )
        decisions.append(decision)
        differences += _differs(row, decision, events.request)
        default = decision.default_applied
        if default is not None:
            stated.append({name: default.get(name) for name in _OF_DEFAULT})
            if stated[-1] not in applied:
                differences.append(f"default_applied {default}: no such default was applied")
    differences += [
        f"default {use['value']} of row {use['row_id']} was applied, no decision names it"
        for use in applied
        if use not in stated
    ]
    return tuple(decisions), differences


# in any language
_INVALID = tuple(texts["invalid_selection"].format(option="") for texts in TEXTS.values())


def _derive_decision(
    row: Mapping[str, Any], checks: Sequence[Check], *, clarified: bool
) -> CheckDecision | None:
    if row["clarified"]:
        return CheckDecision("ambiguous", "clarification", "") if clarified else None
    if (row["reason"] or "").startswith(_INVALID):
        return CheckDecision("refuse", "selection", row["reason"])
    return decide_by_checks(checks)


def _differs(
    row: Mapping[str, Any], decision: ReplayedDecision, request: Mapping[str, Any]
) -> Iterator[str]:
    derived, status, reason = decision.derived, decision.status, decision.reason
    if derived is None:
        yield "no checks are recorded that derive the decision"
        return
    if derived.status != status:
        yield f"status {status} is recorded, the checks give {derived.verdict}"
    quotes = derived.status == "refuse" and derived.gate not in _PLAIN
    if quotes and not (reason or "").startswith(derived.text):
        yield f"reason {reason!r} is recorded, the check that decides says {derived.text!r}"
    if (status == "refuse") != (reason is not None):
        yield f"status {status} is recorded with reason {reason!r}; a refusal alone has one"
    for name in ("policy_id", "fingerprint", "models", "prompt_version"):
        if row[name] != request[name]:
            yield f"{name} {row[name]!r} is recorded, the request has {request[name]!r}"


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What happened to a request, rebuilt; see `explain_request`.

    request: its row of the log: question or hash, parsed fields, policy, models. clarification:
    what the user was asked, why, and what was replied; None where nothing was. defaults: rows of
    the default table that were used, as of then. signals: what was learned from it, in order.
    became: what a clarified request was retrieved as: query, documents, task and arm, one a turn.
    decisions: in order, one a turn; the last is the outcome. differences: what the log records
    against what follows from it, in words.
    """

    request: Mapping[str, Any]
    clarification: Mapping[str, Any] | None
    defaults: tuple[ReplayedDefault, ...]
    signals: tuple[Mapping[str, Any], ...]
    became: tuple[Mapping[str, Any], ...]
    decisions: tuple[ReplayedDecision, ...]
    differences: tuple[str, ...]

    @property
    def request_id(self) -> str:
        """Id of the request."""
        return str(self.request["request_id"])

    @property
    def default_applied(self) -> Mapping[str, Any] | None:
        """The default that the last decision rests on, as its response named it.

        None where it rests on none.
        """
        return self.decisions[-1].default_applied if self.decisions else None

    @property
    def rebuilt(self) -> bool:
        """Whether everything that is recorded follows from the log, and a decision does."""
        return not self.differences and all(
            decision.derived is not None for decision in self.decisions
        )

    def frame(self) -> pd.DataFrame:
        """Checks of the last decision, a row each.

        Gate, rule, value, threshold, margin, passes, text; margin anew.
        """
        import pandas as pd

        rows = [
            (*check, margin)
            for decision in self.decisions[-1:]
            for check, margin in zip(decision.checks, decision.margins, strict=True)
        ]
        return pd.DataFrame(rows, columns=[*Check._fields, "margin_anew"])

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values; a number that is not finite is null."""
        return json_value(
            {
                "request_id": self.request_id,
                "rebuilt": self.rebuilt,
                "differences": self.differences,
                **vars(self),
                "defaults": [default._asdict() for default in self.defaults],
                "decisions": [
                    decision._asdict()
                    | {
                        "derived": decision.derived and decision.derived._asdict(),
                        "checks": [check._asdict() for check in decision.checks],
                    }
                    for decision in self.decisions
                ],
            }
        )

    def json(self) -> str:
        """Everything as JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=2)

    def lines(self) -> list[tuple[str, str]]:
        """What happened, a line a thing: a head and its words."""
        signals = (signal for signal in self.signals if signal["kind"] == "signal")
        clarification = self.clarification
        return [
            *_request_lines(self.request),
            *(("default", default.text) for default in self.defaults),
            *(
                [("clarification", "none")]
                if clarification is None
                else _clarification_lines(clarification)
            ),
            *(("signal", _signal_words(signal)) for signal in signals),
            *(line for row in self.became for line in _narrowed_lines(row)),
            *(line for decision in self.decisions for line in _decision_lines(decision)),
            ("rebuilt", "yes: everything follows from the log" if self.rebuilt else "NO"),
            *(("difference", difference) for difference in self.differences),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{head:<14}{visible(words, lines=True)}" for head, words in self.lines())

    def __repr__(self) -> str:
        return (
            f"Explained({self.request_id!r}, rebuilt={self.rebuilt}, "
            f"differences={list(self.differences)!r})"
        )

    def _repr_html_(self) -> str:
        """Table for a notebook; whatever came from people, documents or models is escaped."""
        return display(f"Request {self.request_id}", self.lines())


def explain_request(request_id: str, log: AuditLog) -> Explanation:
    """How a request came to its answer, rebuilt from the log alone.

    Rows of the default table are folded anew from the changes before it, their gate is asked again
    under the settings that are kept, margins are taken again from values and thresholds, and the
    decision from the checks.

    Raises:
      ValueError: the log has no such request, or rows of it that were altered beyond reading.

    Source: rule S5.8.
    """
    with log.log.reading() as entries:
        request = request_row(entries, request_id)
        with as_written():
            explanation = _replay_request(entries, request)
            # reads what was not read yet, so that a row altered beyond reading stops here
            explanation.lines()
            return explanation


def _replay_request(log: Entries, request: Mapping[str, Any]) -> Explanation:
    thresholds, differences = recorded_policy(log, request)
    if request["question"] is not None and request["question_hash"] not in {
        "",
        digest(request["question"]),
    }:
        differences.append(f"question {request['question']!r:.80} is recorded, its hash differs")
    events = RequestEvents(log, request)
    learner, mismatches = recorded_learner(log, request["learner"])
    differences += mismatches
    clarification = None
    for row in events.of(CLARIFICATIONS)[-1:]:
        replies = [each["reply"] for each in events.of(REPLIES) if each["seq"] > row["seq"]]
        clarification = {**row, "replies": replies}
    uses = ReplayedUses()
    if any(events.of(table) for table in (APPLICATIONS, CLARIFICATIONS, CHANGES)):
        uses = default_table().replay(events, learner)
    differences += uses.differences
    decisions, mismatches = replay_decisions(
        events, thresholds, clarified=clarification is not None
    )
    return Explanation(
        request=request,
        clarification=clarification,
        defaults=uses.defaults,
        signals=uses.signals,
        became=tuple({name: row[name] for name in _BECAME} for row in events.of(EVIDENCE_TABLE)),
        decisions=decisions,
        differences=tuple(differences + mismatches),
    )


def _request_lines(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who asked what, as it was read, and the system that answered."""
    session = f", session {request['session']}" if request["session"] else ""
    question, hashed = request["question"], request["question_hash"]
    parsed = request["parsed"] if isinstance(request["parsed"], Mapping) else {}
    parts = {"policy": request["policy_id"], "index": request["fingerprint"], **request["models"]}
    return [
        ("request", f"{request['request_id']} at {request['at']}{session}"),
        ("question", question or (f"not kept; SHA-256 {hashed[:16]}…" if hashed else "not kept")),
        *(("document", name) for name in request["documents"]),
        *(
            ("parsed", f"{name}: {value or 'none'} ({confidence:.2f})")
            for name, value, confidence in parsed_fields(parsed)
        ),
        *(("group", f"{name} {value}") for name, value in request_groups(request)),
        (
            "system",
            ", ".join(
                f"{name} {value}" for name, value in parts.items() if not name.startswith(GROUP)
            ),
        ),
    ]


def _signal_words(signal: Mapping[str, Any]) -> str:
    corrected = f", corrected to {signal['corrected_to']}" if signal["corrected_to"] else ""
    learned = f"version {signal['version']}, confidence {decimals(signal['confidence'])}"
    return f"{signal['signal']} for {signal['value']}{corrected}: {learned}"


def _clarification_lines(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    gain = row["gain"]
    details = {
        "values": ", ".join(row["candidates"]),
        "proposed": row["proposed"],
        "because": row["why"],
        "gain": gain is not None and f"{decimals(gain)}, cost {decimals(row['cost'] or 0.0)}",
        "failed before": ", ".join(row["tried"]),
    }
    return [
        ("clarification", f"{row['kind']}: {row['question_to_user'] or 'text not kept'}"),
        *(("", f"{name} {value}") for name, value in details.items() if value),
        *(("reply", "not kept" if reply is None else reply) for reply in row["replies"]),
    ]


_BECAME = ("query", "documents", "task", "arm")


def _narrowed_lines(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Query, documents and task of the narrowed request."""
    task = f", task {row['task']}" if row["task"] else ""
    where = ", ".join(row["documents"]) or "all documents"
    return [
        ("became", row["query"] or "text not kept"),
        ("", f"retrieved by {row['arm']} in {where}{task}"),
    ]


_CHECK = "{0:<6}  {1:<12} margin {5:+.4g}  {7}"  # verdict, then the fields of a check


def _decision_lines(decision: ReplayedDecision) -> list[tuple[str, str]]:
    sure = "" if decision.confidence is None else f", confidence {decimals(decision.confidence)}"
    reason = f": {decision.reason}" if decision.reason else ""
    details = {"answer": decision.answer, "sources": ", ".join(decision.sources)}
    derived = decision.derived
    return [
        ("decision", f"{decision.status}{sure}{reason}"),
        *((name, text) for name, text in details.items() if text),
        *(("warning", warning) for warning in decision.warnings),
        *(
            ("check", _CHECK.format("passes" if check.passes else "FAILS", *check))
            for check in decision.checks
        ),
        ("decided anew", "no checks are recorded" if derived is None else derived.verdict),
    ]
