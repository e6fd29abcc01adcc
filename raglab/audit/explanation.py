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
from raglab.audit.log import (
    GROUP_PREFIX,
    check_from_json,
    json_value,
    recorded_learner,
    request_groups,
)
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
NON_REFUSING_GATES = frozenset(
    {"resolver", *(gate.name for gate in gates.GATES if gate.firing != "refuse")}
)
_GATE_BY_NAME = {gate.name: gate for gate in gates.GATES}
# Of a gate of several measurements a check records one; the others are taken as ones that let it
# decide alone.
_ASSUMED_MEASUREMENTS: Mapping[str, Any] = {
    "words": 1.0,
    "denied": 0.0,
    "allowed": 1.0,
    "needs_allowed": True,
    "n_hits": 1.0,
    "best_l2": 0.0,
    "n_relevant": 2.0,
    "agree": False,
}
_THRESHOLDS_BY_RULE = {f"S3.3 {rule.name}": rule.thresholds for rule in RULES if rule.thresholds}


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
        if (
            check.gate not in NON_REFUSING_GATES
            and not check.passes
            and check.rule not in WARN_RULES
        ):
            status = "ambiguous" if check.rule in {*ASK_RULES, COST_RULES["ask"]} else "refuse"
            return CheckDecision(status, check.gate, check.text)
    if checks[-1].gate == "resolver":
        passed_rules = (check for check in checks if check.gate == "resolver" and check.passes)
        deciding_rule = next(passed_rules, None)
        if deciding_rule is None or deciding_rule.rule.endswith("overview"):
            rule_text = "no rule picks a group" if deciding_rule is None else deciding_rule.text
            return CheckDecision("ambiguous", "resolver", rule_text)
    return CheckDecision("ok", "", "")


class RebuiltCheck(NamedTuple):
    """What a policy gives for a recorded check.

    margin: from its value; None where the value alone does not tell: a rule over two measurements
    of which one is recorded, two hits that agree with any gap, a gate that is not of the
    policy. thresholds: that it may have met, none where the policy has none.
    """

    margin: float | None
    thresholds: tuple[float, ...]


def margins(checks: Sequence[Check], thresholds: Thresholds) -> list[float | None]:
    """Margin of each check anew, by the gates under a policy's thresholds; see `RebuiltCheck`."""
    return [
        _rebuild_check(check, checks[:check_index], thresholds).margin
        for check_index, check in enumerate(checks)
    ]


def _rebuild_check(
    check: Check, earlier_checks: Sequence[Check], thresholds: Thresholds
) -> RebuiltCheck:
    if check.gate == "resolver":
        threshold_keys = [threshold.key for threshold in _THRESHOLDS_BY_RULE.get(check.rule, ())]
        policy_values = tuple(
            _scalar(getattr(thresholds.rules, threshold_key))
            for threshold_key in threshold_keys[:1]
        )
        return RebuiltCheck(
            None if len(threshold_keys) > 1 else check.value - check.threshold, policy_values
        )
    gate = _GATE_BY_NAME.get(check.gate)
    gate_bounds = thresholds.gates.get(check.gate)
    section_name, _, signal_name = check.gate.partition(".")
    is_signal = section_name == SIGNALS and bool(signal_name)
    if is_signal:
        gate_bounds = thresholds.signals.get(signal_name)
        # Unit and direction of a user's own stand in the trace; its margin is formed without them.
        known_signal = (
            BUILT_IN_SET.signal(signal_name)
            if signal_name in NAMES
            else own_signal(signal_name, higher="surer", unit="number")
        )
        gate = None if gate_bounds is None else gates.signal_gate(known_signal)
    if gate is None:
        return RebuiltCheck(None, ())
    check_rank = sum(earlier_check.gate == check.gate for earlier_check in earlier_checks)
    bound_values = (
        ()
        if gate_bounds is None
        else tuple(_scalar(getattr(gate_bounds, threshold.key)) for threshold in gate.thresholds)
    )
    # The first check of distances is whether there is a hit at all.
    policy_values = (1.0,) if check.gate == "l2" and not check_rank else bound_values
    # What a missing signal means, its trace knows; two hits that agree pass with any gap.
    if (
        (gate.thresholds and gate_bounds is None)
        or (check.gate == "gap" and math.isinf(check.margin))
        or (is_signal and math.isnan(check.value))
    ):
        return RebuiltCheck(None, policy_values)
    check_rank = min(check_rank, len(gate.measurements) - 1)
    measurements = {**_ASSUMED_MEASUREMENTS, gate.measurements[check_rank]: check.value}
    # which of them the case met is told by the number that is recorded
    for threshold, bound_value in zip(gate.thresholds[1:], bound_values[1:], strict=True):
        if threshold.where:
            measurements[threshold.where] = check.threshold == bound_value
    try:
        rebuilt_margin = _scalar(
            gates.margins_of(gate, measurements.__getitem__, gate_bounds)[check_rank]
        )
    except KeyError:  # it reads more than is known here
        rebuilt_margin = None
    return RebuiltCheck(rebuilt_margin, policy_values)


def check_differences(checks: Sequence[Check], thresholds: Thresholds) -> list[str]:
    """Contradictions within checks, in words.

    Margins, verdicts, thresholds that the policy does not have.
    """
    differences = []
    for check_index, check in enumerate(checks):
        check_name = f"check {check.gate} ({check.rule})"
        rebuilt_margin, policy_values = _rebuild_check(check, checks[:check_index], thresholds)
        if rebuilt_margin is not None and not _same(rebuilt_margin, check.margin):
            differences.append(
                f"{check_name}: margin {decimals(check.margin, rebuilt_margin)} "
                "is recorded, value and "
                f"threshold give {decimals(rebuilt_margin, check.margin)}"
            )
        if bool(check.passes) == bool(gates.fires((check.margin,))):
            recorded_verdict = "passes" if check.passes else "fails"
            differences.append(
                f"{check_name}: {recorded_verdict} is recorded, margin "
                f"{decimals(check.margin)} says the opposite"
            )
        section_name, _, signal_name = check.gate.partition(".")
        if section_name == SIGNALS and signal_name not in thresholds.signals:
            differences.append(f"{check_name}: the policy gates no signal {signal_name}")
        elif section_name == SIGNALS:
            on_fire = firing_of(thresholds.signals[signal_name])
            # one that asks in vain refuses
            expected_rules = {
                SIGNAL_RULES[on_fire],
                SIGNAL_RULES["refuse" if on_fire == "ask" else on_fire],
            }
            if check.rule not in expected_rules:
                differences.append(
                    f"{check_name}: what it does is recorded as "
                    f"{check.rule}, the policy has on_fire "
                    f"{on_fire}"
                )
        if policy_values and not any(
            _same(check.threshold, policy_value) for policy_value in policy_values
        ):
            alternatives = " or ".join(
                decimals(policy_value, check.threshold) for policy_value in policy_values
            )
            differences.append(
                f"{check_name}: threshold {decimals(check.threshold, policy_values[0])} "
                "is recorded, the "
                f"policy has {alternatives}"
            )
    return differences


def _same(recorded: float, rebuilt: float) -> bool:
    return recorded == rebuilt or (math.isnan(recorded) and math.isnan(rebuilt))


def _scalar(measurement: Any) -> float:  # noqa: ANN401 - scalar or array of one
    return float(np.squeeze(measurement))


# gates whose reason may be said in other words than the check's
_REWORDED_GATES = frozenset({"domain", "l2"})
# what a decision says of the default that it rests on, and the row of its application too
_DEFAULT_FIELDS = ("value", "row_id", "version", "confidence", "gate")


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
    entries: Entries, request: Mapping[str, Any]
) -> tuple[Thresholds | None, list[str]]:
    """Thresholds of the policy that a request was decided under.

    And what is wrong with its body.
    """
    recorded_id = request["policy_id"]
    policy_row = entries.row(POLICIES, policy_id=recorded_id)
    if policy_row is None:
        return None, [f"policy {recorded_id} is not in the log"]
    try:
        body_id, thresholds = _read_policy(json.dumps(policy_row["body"]))
    except ValueError as error:
        return None, [f"policy {recorded_id} cannot be read: {error}"]
    if body_id != recorded_id:
        return thresholds, [f"policy {recorded_id} is recorded, its body has the id {body_id}"]
    return thresholds, []


@lru_cache(maxsize=16)
def _read_policy(policy_body: str) -> tuple[str, Thresholds]:
    """Id and thresholds of a policy's body: a log has few policies and many requests."""
    policy = PolicyData.from_mapping(json.loads(policy_body))
    return policy.policy_id, policy_thresholds([policy])


def replay_decisions(
    events: RequestEvents, thresholds: Thresholds | None, *, clarified: bool
) -> tuple[tuple[ReplayedDecision, ...], list[str]]:
    """Decisions of a request, each anew from its checks; and what differs."""
    decision_rows = events.of(DECISIONS)
    if not decision_rows:
        return (), ["no decision is recorded"]
    decisions = []
    differences = []
    # A default is logged twice, with the decision and by itself, so it is compared both ways.
    applied_defaults = [
        {field_name: event_row[field_name] for field_name in _DEFAULT_FIELDS}
        for event_row in events.of(APPLICATIONS)
    ]
    named_defaults = []
    for event_row in decision_rows:
        checks = tuple(map(check_from_json, event_row["checks"]))
        # Without a readable policy there are no margins, but the checks alone still derive the
        # decision.
        rebuilt_margins: Sequence[float | None] = [None] * len(checks)
        if thresholds is not None:
            rebuilt_margins = margins(checks, thresholds)
            differences += check_differences(checks, thresholds)
        # The fields are those of the log, even wrong ones: an explanation shows a difference and
        # corrects nothing.
        copied_fields = ("status", "reason", "answer", "confidence", "arm", "default_applied")
        decision = ReplayedDecision(
            **{field_name: event_row[field_name] for field_name in copied_fields},
            sources=tuple(event_row["sources"]),
            checks=checks,
            margins=tuple(rebuilt_margins),
            derived=_derive_decision(event_row, checks, clarified=clarified),
            warnings=tuple(map(str, event_row["warnings"] or ())),
        )
        decisions.append(decision)
        differences += _differs(event_row, decision, events.request)
        named_default = decision.default_applied
        if named_default is not None:
            named_defaults.append(
                {field_name: named_default.get(field_name) for field_name in _DEFAULT_FIELDS}
            )
            if named_defaults[-1] not in applied_defaults:
                differences.append(f"default_applied {named_default}: no such default was applied")
    differences += [
        f"default {applied_default['value']} of row {applied_default['row_id']} "
        "was applied, no decision names it"
        for applied_default in applied_defaults
        if applied_default not in named_defaults
    ]
    return tuple(decisions), differences


# in any language
_INVALID_SELECTIONS = tuple(
    texts["invalid_selection"].format(option="") for texts in TEXTS.values()
)


def _derive_decision(
    decision_row: Mapping[str, Any], checks: Sequence[Check], *, clarified: bool
) -> CheckDecision | None:
    if decision_row["clarified"]:
        return CheckDecision("ambiguous", "clarification", "") if clarified else None
    if (decision_row["reason"] or "").startswith(_INVALID_SELECTIONS):
        return CheckDecision("refuse", "selection", decision_row["reason"])
    return decide_by_checks(checks)


def _differs(
    decision_row: Mapping[str, Any], decision: ReplayedDecision, request: Mapping[str, Any]
) -> Iterator[str]:
    derived_decision, recorded_status, recorded_reason = (
        decision.derived,
        decision.status,
        decision.reason,
    )
    if derived_decision is None:
        yield "no checks are recorded that derive the decision"
        return
    if derived_decision.status != recorded_status:
        yield f"status {recorded_status} is recorded, the checks give {derived_decision.verdict}"
    quotes_check = (
        derived_decision.status == "refuse" and derived_decision.gate not in _REWORDED_GATES
    )
    if quotes_check and not (recorded_reason or "").startswith(derived_decision.text):
        yield (
            f"reason {recorded_reason!r} is recorded, the check that "
            f"decides says {derived_decision.text!r}"
        )
    if (recorded_status == "refuse") != (recorded_reason is not None):
        yield (
            f"status {recorded_status} is recorded with reason "
            f"{recorded_reason!r}; a refusal alone has one"
        )
    for column_name in ("policy_id", "fingerprint", "models", "prompt_version"):
        if decision_row[column_name] != request[column_name]:
            yield (
                f"{column_name} {decision_row[column_name]!r} is recorded, "
                f"the request has {request[column_name]!r}"
            )


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
        learned_signals = (signal for signal in self.signals if signal["kind"] == "signal")
        clarification = self.clarification
        return [
            *_request_lines(self.request),
            *(("default", default.text) for default in self.defaults),
            *(
                [("clarification", "none")]
                if clarification is None
                else _clarification_lines(clarification)
            ),
            *(("signal", _signal_words(signal)) for signal in learned_signals),
            *(
                event_line
                for evidence_row in self.became
                for event_line in _narrowed_lines(evidence_row)
            ),
            *(
                event_line
                for decision in self.decisions
                for event_line in _decision_lines(decision)
            ),
            ("rebuilt", "yes: everything follows from the log" if self.rebuilt else "NO"),
            *(("difference", difference) for difference in self.differences),
        ]

    def __str__(self) -> str:
        return "\n".join(
            f"{line_head:<14}{visible(text, lines=True)}" for line_head, text in self.lines()
        )

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


def _replay_request(entries: Entries, request: Mapping[str, Any]) -> Explanation:
    thresholds, differences = recorded_policy(entries, request)
    if request["question"] is not None and request["question_hash"] not in {
        "",
        digest(request["question"]),
    }:
        differences.append(f"question {request['question']!r:.80} is recorded, its hash differs")
    events = RequestEvents(entries, request)
    learner, mismatches = recorded_learner(entries, request["learner"])
    differences += mismatches
    clarification = None
    for event_row in events.of(CLARIFICATIONS)[-1:]:
        replies = [
            reply_row["reply"]
            for reply_row in events.of(REPLIES)
            if reply_row["seq"] > event_row["seq"]
        ]
        clarification = {**event_row, "replies": replies}
    replayed_uses = ReplayedUses()
    if any(events.of(event_table) for event_table in (APPLICATIONS, CLARIFICATIONS, CHANGES)):
        replayed_uses = default_table().replay(events, learner)
    differences += replayed_uses.differences
    decisions, mismatches = replay_decisions(
        events, thresholds, clarified=clarification is not None
    )
    return Explanation(
        request=request,
        clarification=clarification,
        defaults=replayed_uses.defaults,
        signals=replayed_uses.signals,
        became=tuple(
            {column_name: event_row[column_name] for column_name in _NARROWED_COLUMNS}
            for event_row in events.of(EVIDENCE_TABLE)
        ),
        decisions=decisions,
        differences=tuple(differences + mismatches),
    )


def _request_lines(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who asked what, as it was read, and the system that answered."""
    session_text = f", session {request['session']}" if request["session"] else ""
    question = request["question"]
    question_hash = request["question_hash"]
    parsed_question = request["parsed"] if isinstance(request["parsed"], Mapping) else {}
    system_parts = {
        "policy": request["policy_id"],
        "index": request["fingerprint"],
        **request["models"],
    }
    return [
        ("request", f"{request['request_id']} at {request['at']}{session_text}"),
        (
            "question",
            question
            or (f"not kept; SHA-256 {question_hash[:16]}…" if question_hash else "not kept"),
        ),
        *(("document", item_name) for item_name in request["documents"]),
        *(
            ("parsed", f"{item_name}: {item_value or 'none'} ({confidence:.2f})")
            for item_name, item_value, confidence in parsed_fields(parsed_question)
        ),
        *(
            ("group", f"{item_name} {item_value}")
            for item_name, item_value in request_groups(request)
        ),
        (
            "system",
            ", ".join(
                f"{item_name} {item_value}"
                for item_name, item_value in system_parts.items()
                if not item_name.startswith(GROUP_PREFIX)
            ),
        ),
    ]


def _signal_words(signal: Mapping[str, Any]) -> str:
    correction_text = f", corrected to {signal['corrected_to']}" if signal["corrected_to"] else ""
    learned_text = f"version {signal['version']}, confidence {decimals(signal['confidence'])}"
    return f"{signal['signal']} for {signal['value']}{correction_text}: {learned_text}"


def _clarification_lines(clarification: Mapping[str, Any]) -> list[tuple[str, str]]:
    expected_gain = clarification["gain"]
    details = {
        "values": ", ".join(clarification["candidates"]),
        "proposed": clarification["proposed"],
        "because": clarification["why"],
        "gain": expected_gain is not None
        and f"{decimals(expected_gain)}, cost {decimals(clarification['cost'] or 0.0)}",
        "failed before": ", ".join(clarification["tried"]),
    }
    return [
        (
            "clarification",
            f"{clarification['kind']}: {clarification['question_to_user'] or 'text not kept'}",
        ),
        *(
            ("", f"{detail_name} {detail_text}")
            for detail_name, detail_text in details.items()
            if detail_text
        ),
        *(("reply", "not kept" if reply is None else reply) for reply in clarification["replies"]),
    ]


_NARROWED_COLUMNS = ("query", "documents", "task", "arm")


def _narrowed_lines(evidence_row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Query, documents and task of the narrowed request."""
    text = f", task {evidence_row['task']}" if evidence_row["task"] else ""
    document_names = ", ".join(evidence_row["documents"]) or "all documents"
    return [
        ("became", evidence_row["query"] or "text not kept"),
        ("", f"retrieved by {evidence_row['arm']} in {document_names}{text}"),
    ]


_CHECK_FORMAT = "{0:<6}  {1:<12} margin {5:+.4g}  {7}"  # verdict, then the fields of a check


def _decision_lines(decision: ReplayedDecision) -> list[tuple[str, str]]:
    confidence_text = (
        "" if decision.confidence is None else f", confidence {decimals(decision.confidence)}"
    )
    reason_text = f": {decision.reason}" if decision.reason else ""
    details = {"answer": decision.answer, "sources": ", ".join(decision.sources)}
    derived_decision = decision.derived
    return [
        ("decision", f"{decision.status}{confidence_text}{reason_text}"),
        *(
            (detail_name, detail_text)
            for detail_name, detail_text in details.items()
            if detail_text
        ),
        *(("warning", warning) for warning in decision.warnings),
        *(
            ("check", _CHECK_FORMAT.format("passes" if check.passes else "FAILS", *check))
            for check in decision.checks
        ),
        (
            "decided anew",
            "no checks are recorded" if derived_decision is None else derived_decision.verdict,
        ),
    ]
