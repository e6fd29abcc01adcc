"""How one answer came about, from the audit log alone: `explain` (rule S5.8).

Nothing is retrieved and no policy file is read: the log holds the policy's body, the learner's settings, every check
and every change of the default table. What is recorded is held against what follows from them; an edit of the log that
contradicts the rest stands among the differences. Replies, proposals, answers, sources and moments follow from nothing:
whether these were edited, nothing tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from raglab.lab._anew import Anew
from raglab.lab._audited import hashed
from raglab.lab._then import DecisionThen, DefaultThen, decisions_of, defaults_of, policy_of, signals_of, slots
from raglab.lab._written import number
from raglab.store.requests import CLARIFICATIONS, REPLIES, of_request, request_of

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.audit_log import AuditLog
    from raglab.store.audit import Entries


@dataclass(frozen=True, eq=False, repr=False)
class Explained:
    """What happened to a request, rebuilt; see `explain`.

    request: its row of the log: question or hash, parsed fields, policy, models. clarification: what the user was
    asked, why, and what was replied; None where nothing was. defaults: rows of the default table that were used, as
    of then. signals: what was learned from it, in order. decisions: in order, one a turn; the last is the outcome.
    differences: what the log records against what follows from it, in words.
    """

    request: Mapping[str, Any]
    clarification: Mapping[str, Any] | None
    defaults: tuple[DefaultThen, ...]
    signals: tuple[Mapping[str, Any], ...]
    decisions: tuple[DecisionThen, ...]
    differences: tuple[str, ...]

    @property
    def request_id(self) -> str:
        """Id of the request."""
        return str(self.request["request_id"])

    @property
    def rebuilt(self) -> bool:
        """Whether everything that is recorded follows from the log, and a decision does."""
        return not self.differences and all(one.derived is not None for one in self.decisions)

    def frame(self) -> pd.DataFrame:
        """Checks of the last decision, a row each: gate, rule, value, threshold, margin, passes, text; margin anew."""
        import pandas as pd

        names = ["gate", "rule", "value", "threshold", "margin", "passes", "text", "margin_anew"]
        last = self.decisions[-1] if self.decisions else None
        rows = [] if last is None else [(*one, anew) for one, anew in zip(last.checks, last.margins, strict=True)]
        return pd.DataFrame(rows, columns=names)

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values; a number that is not finite is null."""
        whole = {
            "request_id": self.request_id,
            "rebuilt": self.rebuilt,
            "differences": list(self.differences),
            "request": dict(self.request),
            "clarification": None if self.clarification is None else dict(self.clarification),
            "defaults": [one._asdict() for one in self.defaults],
            "signals": [dict(one) for one in self.signals],
            "decisions": [
                one._asdict()
                | {
                    "derived": None if one.derived is None else one.derived._asdict(),
                    "checks": [check._asdict() for check in one.checks],
                }
                for one in self.decisions
            ],
        }
        return _finite(whole)

    def json(self) -> str:
        """Everything as JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=2)

    def lines(self) -> list[tuple[str, str]]:
        """What happened, a line a thing: a head and its words."""
        asked = self.request
        told = [
            (
                "request",
                f"{self.request_id} at {asked['at']}" + (f", session {asked['session']}" if asked["session"] else ""),
            ),
            (
                "question",
                asked["question"]
                or (f"not kept; SHA-256 {asked['question_hash'][:16]}…" if asked["question_hash"] else "not kept"),
            ),
        ]
        if asked["documents"]:
            told.append(("documents", ", ".join(asked["documents"])))
        told += [("parsed", f"{name}: {value or 'none'} ({sure:.2f})") for name, value, sure in slots(asked["parsed"])]
        made_by = ", ".join(f"{name} {value}" for name, value in asked["models"].items())
        told.append(
            (
                "system",
                f"policy {asked['policy_id']}, index {asked['fingerprint']}" + (f", {made_by}" if made_by else ""),
            )
        )
        told += [("default", one.told) for one in self.defaults]
        if self.clarification is None:
            told.append(("clarification", "none"))
        else:
            told += _asked(self.clarification)
        told += [
            (
                "signal",
                f"{one['signal']} for {one['value']}"
                + (f", corrected to {one['corrected_to']}" if one["corrected_to"] else "")
                + f": version {one['version']}, confidence {one['confidence']:.4g}",
            )
            for one in self.signals
            if one["kind"] == "signal"
        ]
        for one in self.decisions:
            told += _decision(one)
        told.append(("rebuilt", "yes: everything recorded follows from the log" if self.rebuilt else "NO"))
        return told + [("difference", one) for one in self.differences]

    def __str__(self) -> str:
        return "\n".join(f"{head:<14}{words}" for head, words in self.lines())

    def __repr__(self) -> str:
        return f"Explained({self.request_id!r}, rebuilt={self.rebuilt}, differences={list(self.differences)!r})"

    def _repr_html_(self) -> str:
        """Table for a notebook; whatever came from people, documents or models is escaped."""
        left = "text-align: left; vertical-align: top"
        text = f"{left}; white-space: pre-wrap"
        rows = "".join(
            f'<tr><th style="{left}">{escape(head)}</th><td style="{text}">{escape(words)}</td></tr>'
            for head, words in self.lines()
        )
        return f"<table>{rows}</table>"


def explain(request_id: str, log: AuditLog) -> Explained:
    """How a request came to its answer, rebuilt from the log alone.

    Rows of the default table are folded anew from the changes before it, their gate is asked again under the settings
    that are kept, margins are taken again from values and thresholds, and the decision from the checks.

    Raises:
      ValueError: the log has no such request, or rows of it that were altered beyond reading.

    Source: rule S5.8.
    """
    with log.log.reading() as entries:
        request = request_of(entries, request_id)
        try:
            return _explained(entries, request)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            came = f"{type(error).__name__}: {str(error).rstrip('.')}"
            msg = f"rows of a log must be as they were written, got {came}; its tables were altered."
            raise ValueError(msg) from error


def _explained(log: Entries, request: Mapping[str, Any]) -> Explained:
    request_id = request["request_id"]
    limits, differences = policy_of(log, request)
    if request["question"] is not None and request["question_hash"] not in {"", hashed(request["question"])}:
        differences.append(f"question {request['question']!r:.80} is recorded, its hash is that of another")
    anew = Anew(log, request)
    clarification = _clarification(log.one(CLARIFICATIONS, request_id=request_id), of_request(log, REPLIES, request_id))
    defaults, found = defaults_of(log, request, anew)
    differences += found
    signals, found = signals_of(log, request, anew)
    differences += found
    decisions, found = decisions_of(log, request, limits, clarified=clarification is not None)
    made = Explained(request, clarification, defaults, signals, decisions, tuple(differences + found))
    made.lines()  # which reads what was not read yet
    return made


def _clarification(row: Mapping[str, Any] | None, replies: list[dict[str, Any]]) -> dict[str, Any] | None:
    if row is None:
        return None
    return dict(row) | {"replies": [one["reply"] for one in replies if one["seq"] > row["seq"]]}


def _asked(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    worth = "" if row["gain"] is None else f"; expected gain {row['gain']:.4g}, cost {row['cost'] or 0.0:.4g}"
    proposed = f"; proposed {row['proposed']}" if row["proposed"] else ""
    told = [
        ("clarification", f"{row['kind']}: {row['question_to_user'] or 'text not kept'}"),
        ("", f"one of {', '.join(row['candidates'])}{proposed}"),
        ("", f"because {row['why']}{worth}"),
    ]
    if row["tried"]:
        told.append(("", f"after {', '.join(row['tried'])} failed"))
    return told + [("reply", one if one is not None else "not kept") for one in row["replies"]]


def _decision(one: DecisionThen) -> list[tuple[str, str]]:
    confidence = "" if one.confidence is None else f", confidence {one.confidence:.4g}"
    reason = f": {one.reason}" if one.reason else ""
    told = [("decision", f"{one.status}{confidence}{reason}")]
    if one.answer is not None:
        told.append(("answer", one.answer))
    if one.sources:
        told.append(("sources", ", ".join(one.sources)))
    told += [
        (
            "check",
            f"{'passes' if check.passes else 'FAILS '}  {check.gate:<12} margin {check.margin:+.4g}  {check.text}",
        )
        for check in one.checks
    ]
    derived = one.derived
    anew = (
        "no checks are recorded"
        if derived is None
        else derived.status + (f" by {derived.gate}" if derived.gate else "")
    )
    return [*told, ("decided anew", anew)]


def _finite(value: Any) -> Any:  # noqa: ANN401 - JSON values
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return number(value) if isinstance(value, float) else value
