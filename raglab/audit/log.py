"""Audit log (shore): requests, decisions, clarifications, votes as rows; redaction, expiry (S5.8).

The log is the truth and the default table a fold over it: if a process is killed in the middle of a
question, the log rebuilds the rows that there were, to the byte. Every time is UTC; `now` is the
log's clock where it is not given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from raglab.audit.default_table import (
    Application,
    DefaultTable,
    DefaultUse,
    Key,
    Pending,
    default_table,
)
from raglab.audit.log_export import export_tables
from raglab.audit.sessions import SilenceRule, close_previous
from raglab.decision.checks import Check
from raglab.default_learner import (
    ClarificationDefault,
    ClarificationRequest,
    DefaultLearner,
    gate,
    stored_learner,
)
from raglab.extension_points import extensions
from raglab.policy import PolicyData
from raglab.store.database import Database, check_no_folder
from raglab.store.files import InputError
from raglab.store.log_rows import COPY_REMEDY, Entries, as_written
from raglab.store.log_tables import (
    AUDIT_LOG,
    CHOICE_TABLES,
    CLARIFICATIONS,
    DECISIONS,
    EVENTS,
    EVIDENCE_TABLE,
    FORGOTTEN,
    LEARNERS,
    OPEN,
    POLICIES,
    QUESTION_GATES,
    REPLIES,
    REQUEST_TABLES,
    REQUESTS,
    check_id,
    evidence_without_text,
    request_row,
    without_quotations,
    without_values,
)
from raglab.values import Status, refuse
from raglab.words.canonical import canonical_json, digest, utc_text
from raglab.words.html_display import display, short


def record_policy(entries: Entries, policy: PolicyData, event_time: str) -> None:
    """Keep a policy's body where it is new.

    Its pack by the hash, not by its folder, and no cases it learned from.
    """
    if entries.row(POLICIES, policy_id=policy.policy_id) is None:
        policy_body = policy.model_dump(
            mode="json", exclude={"pack", "tuned_on", "tuned_scores", "learned_cases"}
        )
        entries.add(
            POLICIES, {"at": event_time, "policy_id": policy.policy_id, "body": policy_body}
        )


def digest_of(learner: DefaultLearner) -> str:
    """Digest under which a log keeps the settings of a learner."""
    return digest(canonical_json(learner._asdict()), 16)


def record_learner(entries: Entries, learner: DefaultLearner, event_time: str) -> str:
    """Note a learner's settings where they are new, and give their digest."""
    learner_digest = digest_of(learner)
    if entries.row(LEARNERS, digest=learner_digest) is None:
        entries.add(
            LEARNERS, {"at": event_time, "digest": learner_digest, "body": learner._asdict()}
        )
    return learner_digest


def learner_of(
    entries: Entries, learner_digest: str, known_learners: dict[str, DefaultLearner]
) -> DefaultLearner:
    """Learner settings of a digest, as they were kept."""
    if learner_digest not in known_learners:
        known_learners[learner_digest] = stored_learner(_learner_body(entries, learner_digest))
    return known_learners[learner_digest]


def _learner_body(entries: Entries, learner_digest: str) -> Mapping[str, Any]:
    learner_row = entries.row(LEARNERS, digest=learner_digest)
    if learner_row is None:
        refuse(
            "a log must hold the learner settings that it names", repr(learner_digest), COPY_REMEDY
        )
    learner_body: Mapping[str, Any] = learner_row["body"]
    return learner_body


def recorded_learner(entries: Entries, learner_digest: str) -> tuple[DefaultLearner, list[str]]:
    """Settings of a learner as a log keeps them, and what is wrong with them.

    The published ones where unreadable.
    """
    try:
        learner_body = _learner_body(entries, learner_digest)
        learner = stored_learner(learner_body)
    except (ValueError, TypeError) as error:
        return DefaultLearner(), [f"learner {learner_digest} cannot be read: {error}"]
    actual_digest = digest(
        canonical_json(learner_body), 16
    )  # of what the log keeps, written by any version
    return learner, [] if actual_digest == learner_digest else [
        f"learner {learner_digest} is recorded, its settings have the digest {actual_digest}"
    ]


def row_gate(default_row: ClarificationDefault, learner: DefaultLearner) -> str:
    """Verdict of a row's gate under the settings of a learner."""
    return gate(default_row, ask_below=learner.ask_below, apply_above=learner.apply_above)


def row_columns(
    default_row: ClarificationDefault,
    question_kind: str,
    conditions: Mapping[str, str],
    learner: DefaultLearner,
) -> dict[str, Any]:
    """Columns of a row of the default table as it is now."""
    return {
        "row_id": default_row.row_id,
        "version": default_row.version,
        "confidence": default_row.confidence,
        "gate": row_gate(default_row, learner),
        "votes": dict(default_row.candidate_votes),
        "kind": question_kind,
        "conditions": dict(conditions),
    }


def decision_row(
    request: Mapping[str, Any],
    response: Mapping[str, Any],
    checks: Sequence[Check],
    ms: Mapping[str, float] | float | None,
) -> dict[str, Any]:
    """Columns of a decision.

    What was answered, by which checks, under what the request was opened with.

    Args:
      request: row of the request.

    Raises:
      ValueError: an unknown status (rule S0.1).
    """
    if response.get("status") not in Status.__members__:
        rule = f"status must be one of {', '.join(Status.__members__)}"
        refuse(rule, f"{response.get('status')!r:.80}", "correct it")
    ms_by_stage = ms if isinstance(ms, Mapping) else {} if ms is None else {"total": ms}
    value_columns = ("status", "answer", "route", "arm", "default_applied")
    list_columns = ("sources", "options", "warnings")
    request_columns = ("request_id", "policy_id", "fingerprint", "models", "prompt_version")
    return {
        **{column_name: json_value(response.get(column_name)) for column_name in value_columns},
        **{
            column_name: json_value(list(response.get(column_name) or ()))
            for column_name in list_columns
        },
        **{column_name: request[column_name] for column_name in request_columns},
        "reason": response.get("refusal_reason"),
        "confidence": finite_or_none(response.get("confidence")),
        "clarified": int(response.get("clarification") is not None),
        "checks": [check_to_json(check) for check in checks],
        "ms": {
            column_name: finite_or_none(milliseconds)
            for column_name, milliseconds in ms_by_stage.items()
        },
    }


_CHECK_NUMBERS = ("value", "threshold", "margin")  # of a check


def check_to_json(check: Check) -> dict[str, Any]:
    """Check as JSON values: null for NaN, a text for an infinity."""
    check_row = check._asdict() | {"passes": bool(check.passes)}
    for number_name in _CHECK_NUMBERS:
        check_number = float(check_row[number_name])
        check_row[number_name] = (
            None
            if math.isnan(check_number)
            else str(check_number)
            if math.isinf(check_number)
            else check_number
        )
    return check_row


def check_from_json(check_row: Mapping[str, Any]) -> Check:
    """Check of JSON values."""
    check_numbers = {
        number_name: math.nan if check_row[number_name] is None else float(check_row[number_name])
        for number_name in _CHECK_NUMBERS
    }
    return Check(**{**check_row, **check_numbers})


def finite_or_none(number: object) -> float | None:
    """A finite number, None for another."""
    return float(number) if isinstance(number, int | float) and math.isfinite(number) else None


def json_value(value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Value as JSON can hold it; models by their fields, NaN as null.

    Example:
      >>> json_value({"page_scope": ("1", float("nan"))})
      {'page_scope': ['1', None]}
    """
    if hasattr(value, "model_dump"):
        return json_value(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(entry_key): json_value(member) for entry_key, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [json_value(member) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if hasattr(value, "item") else value


Redaction = Literal["text", "hash", "none"]


_WITH_TEXTS = tuple(table.name for table in EVENTS if table.without is not None)


def check_texts(**texts: object) -> None:
    """Refuse what is no text, by name."""
    for argument_name, argument in texts.items():
        if not isinstance(argument, str):
            refuse(f"{argument_name} must be a text", type(argument).__name__, "pass a str")


def blank_texts(entries: Entries, cutoff_time: str) -> int:
    """Take texts out of rows older than a moment; requests that had any."""
    blanked_requests = {
        event_row["request_id"]
        for table_name in _WITH_TEXTS
        for event_row in list(entries.rows(table_name, before=cutoff_time))
        if entries.blank(table_name, event_row)
    }
    return len(blanked_requests)


UTC_NOW = partial(datetime.now, UTC)
# of `AuditLog.together`
_JOINT_TRANSACTION: ContextVar[tuple[Database, Entries] | None] = ContextVar("_JOINT", default=None)


GROUP_PREFIX = "group."  # before the attribute of a group, among the names of models of a request


def request_groups(request: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Attribute and value of each group of a logged request.

    Example:
      >>> request_groups({"models": {"generator": "extractive", "group.tenant": "acme"}})
      (('tenant', 'acme'),)
    """
    model_items = request["models"].items()
    return tuple(
        sorted(
            (model_key.removeprefix(GROUP_PREFIX), model_value)
            for model_key, model_value in model_items
            if model_key.startswith(GROUP_PREFIX)
        )
    )


class AuditLog:
    """An audit log in a file or a database; see the module. Several processes may share one.

    A method that names a request which the log does not hold raises a ValueError.
    """

    def __init__(
        self,
        log: str | Path,
        *,
        learner: DefaultLearner = DefaultLearner(),  # noqa: B008 - a value
        query: Redaction = "text",
        keep_days: float = 0.0,
        silence: SilenceRule = SilenceRule(),  # noqa: B008 - a value
        create: bool = True,
        clock: Callable[[], datetime] = UTC_NOW,
        patience_s: float | None = None,
    ) -> None:
        """Name the log; it is opened on first use.

        Args:
          log: a file, or a URL with `://`.
          learner: settings that signals are learned under; each signal is stored with the settings
            that it was learned under.
          query: whether a question is stored as its text, as a hash (a short one can be guessed),
            or not at all; values and quotations of it go with its text, replies and answers do not.
          keep_days: `forget` without a moment blanks what is older, in days; 0 is never.
          silence: when silence confirms a default that was applied silently.
          create: whether the log is made where it does not exist.
          clock: current time with a time zone, where a method gets no `now`.
          patience_s: seconds to wait for a turn to write, see `Database`.

        Raises:
          InputError: the log is a folder, such as that of an index, which keeps its log in
            `audit.sqlite`.
          ValueError: query is none of the three, keep_days below 0, a rule of silence that could
            confirm nothing.
        """
        check_no_folder(log, AUDIT_LOG)
        redactions = get_args(Redaction)
        silence_hours, same_question = silence.hours, silence.near_same
        argument_rules = (
            (query in redactions, f"query must be one of {', '.join(redactions)}", query),
            (0.0 <= keep_days < math.inf, "keep_days must be at least 0", keep_days),
            (0.0 < silence_hours < math.inf, "silence.hours must be above 0", silence_hours),
            (0.0 <= same_question <= 1.0, "silence.near_same must be in [0, 1]", same_question),
        )
        for is_valid, rule, argument in argument_rules:
            if not is_valid:
                refuse(rule, f"{argument!r:.80}", "correct it")
        self.learner, self.query, self.keep_days = learner, query, float(keep_days)
        self.silence = silence
        self.log = Database(
            log, REQUEST_TABLES, beside=CHOICE_TABLES, create=create, patience_s=patience_s
        )
        self._clock = clock
        self._last_questions: dict[str, tuple[str, frozenset[str]]] = {}

    @property
    def digest(self) -> str:
        """Digest of the learner's settings, under which the log keeps them."""
        return digest_of(self.learner)

    def opened(
        self,
        request_id: str,
        question: str,
        *,
        session: str = "",
        documents: Sequence[str] = (),
        groups: Iterable[tuple[str, str]] = (),
        parsed: object = None,
        policy: PolicyData,
        fingerprint: str,
        models: Mapping[str, str],
        now: datetime | None = None,
    ) -> bool:
        """Log a request before anything is done for it.

        True where it continues one that was stopped.

        A request without decision or clarification, as of a process that was killed, may be opened
        again by the same question to the same system: it keeps its row.

        Args:
          request_id: of the request, unique in the log.
          question: the user's text.
          session: the session whose requests follow one another; '' is a request alone, whose
            silence ends by the clock only.
          documents: files that the user named.
          groups: attribute and value of each group of the request; kept with the names of the
            models, see `request_groups`.
          parsed: a `ParsedQuestion` or a mapping of its fields.
          policy: the policy that decides it.
          fingerprint: of the system.
          models: name by part; `prompt_version` among them.
          now: with a time zone; the log's clock where not given.

        Raises:
          ValueError: the id is no text or had its decision or another question, question or session
            is none, `now` has no time zone.
        """
        check_id(request_id)
        check_texts(question=question, session=session)
        event_time = self._at(now)
        parsed_fields, keeps_text = json_value(parsed), self.query == "text"
        request_columns = {
            "session": session,
            "documents": list(documents),
            "question": question if keeps_text else None,
            "question_hash": "" if self.query == "none" else digest(question),
            "parsed": parsed_fields if keeps_text else without_values(parsed_fields),
            "policy_id": policy.policy_id,
            "fingerprint": fingerprint,
            "models": dict(models)
            | {
                f"{GROUP_PREFIX}{attribute}": attribute_value
                for attribute, attribute_value in groups
            },
            "prompt_version": models.get("prompt_version", ""),
            "learner": self.digest,
        }
        with self.log.writing() as entries:
            stopped_request = entries.row(REQUESTS, request_id=request_id)
            if stopped_request is not None:
                has_ended = any(
                    entries.row(table_name, request_id=request_id)
                    for table_name in (DECISIONS, CLARIFICATIONS)
                )
                if has_ended or not request_columns.items() <= stopped_request.items():
                    refuse("request_id must be new", repr(request_id), "give another or none")
                return True
            rephrased_request = session and close_previous(
                entries,
                self._last_questions,
                request_id,
                session,
                question,
                documents,
                event_time,
                self.silence,
            )
            record_policy(entries, policy, event_time)
            record_learner(entries, self.learner, event_time)
            start_columns = {
                "at": event_time,
                "request_id": request_id,
                "rephrases": rephrased_request,
            }
            entries.add(REQUESTS, start_columns | request_columns)
        return False

    @contextmanager
    def together(self) -> Iterator[Entries]:
        """Log all that this thread logs within in one transaction: whole or not at all.

        Yields: the entries as of its turn to write, which no other writer changes before its end.
        """
        with self.log.writing() as entries:
            context_token = _JOINT_TRANSACTION.set((self.log, entries))
            try:
                yield entries
            finally:
                _JOINT_TRANSACTION.reset(context_token)

    @contextmanager
    def _writing(self) -> Iterator[Entries]:
        """Entries to add to, in a transaction of their own or in that of `together`."""
        joint_transaction = _JOINT_TRANSACTION.get()
        if joint_transaction is not None and joint_transaction[0] is self.log:
            yield joint_transaction[1]
            return
        with self.log.writing() as entries:
            yield entries

    def pack(self) -> str | None:
        """Hash of the pack under which the last request was read.

        None without a request or a pack.
        """
        with self.log.reading() as entries, as_written():
            latest_request = entries.row(REQUESTS)
            return None if latest_request is None else latest_request["models"].get("pack")

    def rows(
        self, target_field: str | None = None, doctype: str | None = None
    ) -> tuple[ClarificationDefault, ...]:
        """Latest versions of the default table's rows, of a field or doctype where given.

        Args:
          target_field: only rows of this field.
          doctype: only rows of this doctype.
        """
        column_filters = {"target_field": target_field, "doctype": doctype}
        with self.log.reading() as entries, as_written():
            return default_table().rows(
                entries,
                **{
                    column_name: filter_value
                    for column_name, filter_value in column_filters.items()
                    if filter_value is not None
                },
            )

    def met(
        self, request_id: str, key: Key, *, now: datetime | None = None
    ) -> ClarificationDefault:
        """Count a request for a row of the default table, once.

        Return the row, new where it did not exist.

        Args:
          request_id: of the request.
          key: target field, doctype, sub-conditions.
          now: with a time zone; the log's clock where not given.
        """
        event_time = datetime.fromisoformat(self._at(now))
        with self._writing() as entries:
            request_row(entries, request_id)
            return default_table().meet(entries, request_id, key, self.learner, event_time)

    def clarified(
        self,
        request_id: str,
        request: ClarificationRequest,
        *,
        row: ClarificationDefault,
        kind: str,
        why: str,
        gain: float | None = None,
        cost: float | None = None,
        conditions: Mapping[str, str],
        tried: Sequence[str] = (),
        now: datetime | None = None,
    ) -> None:
        """Log a question to the user, once a request (rule S5.2), with the row as it is now.

        Args:
          request_id: of the request.
          request: the question to the user.
          row: of the default table that the values belong to.
          kind: of the question.
          why: gate, schedule or value of information, in words.
          gain: expected gain of asking, in the unit of the error's cost.
          cost: cost of asking, in the unit of the error's cost.
          conditions: of the request, by column.
          tried: values that failed in this request.
          now: with a time zone; the log's clock where not given.

        Raises:
          ValueError: request or row is not in the log, or the request was asked about already.
        """
        with self._writing() as entries:
            clarification_columns = {
                "at": self._at(now),
                "request_id": request_id,
                "why": why,
                "gain": gain,
                "cost": cost,
                "tried": list(tried),
                **row_columns(row, kind, conditions, self.learner),
            }
            default_table().clarify(entries, clarification_columns, request)

    def applied(
        self,
        request_id: str,
        *,
        row: ClarificationDefault,
        value: str,
        gate: str | None = None,
        conditions: Mapping[str, str],
        kind: str,
        now: datetime | None = None,
    ) -> None:
        """Log that a row's value was applied silently, with the row as it is now.

        Once a request and row.

        Args:
          request_id: of the request.
          row: the row whose value was applied.
          value: the value that was applied, and that silence can confirm.
          gate: verdict of the row's gate; None reads it from the row.
          conditions: of the request, by column, under which silence can confirm the value.
          kind: of the question that was not asked.
          now: with a time zone; the log's clock where not given.
        """
        gate_verdict = row_gate(row, self.learner) if gate is None else gate
        default_use = DefaultUse(row, value, gate_verdict, kind, conditions)
        with self._writing() as entries:
            self._fill_in(entries, request_row(entries, request_id), default_use, now)

    def _fill_in(
        self,
        entries: Entries,
        request: Mapping[str, Any],
        default_use: DefaultUse,
        moment: datetime | None,
    ) -> None:
        default_columns = row_columns(
            default_use.row, default_use.kind, default_use.conditions, self.learner
        ) | {"gate": default_use.gate}
        default_table().fill_in(
            entries, request, {"at": self._at(moment), "value": default_use.value} | default_columns
        )

    def replied(self, request_id: str, reply: str, *, now: datetime | None = None) -> None:
        """Log the user's reply to a clarification or comment on an answer.

        Args:
          request_id: of the request.
          reply: the user's text, to a clarification or about an answer.
          now: with a time zone; the log's clock where not given.
        """
        check_texts(reply=reply)
        with self._writing() as entries:
            request_row(entries, request_id)
            entries.add(REPLIES, {"at": self._at(now), "request_id": request_id, "reply": reply})

    def signal(
        self,
        request_id: str,
        row_key: Key,
        value: str,
        signal: str,
        corrected_to: str | None = None,
        *,
        conditions: Mapping[str, str],
        now: datetime | None = None,
    ) -> tuple[ClarificationDefault, ...]:
        """Learn from a signal.

        The row's new versions, and those of rows that a split makes, in one transaction.

        A request gives a row each kind of signal once; a second one changes nothing and gives (). A
        signal after silence was settled is one more: the half vote of `implicit_ok` stays, since
        rows are never undone.

        Args:
          request_id: of the request.
          row_key: target field, doctype and sub-conditions of the row.
          value: the value that the signal is about.
          signal: one of `default_learner.SIGNALS`.
          corrected_to: value that the user named when rejecting.
          conditions: of the request, by column, for a split.
          now: with a time zone; the log's clock where not given.

        Raises:
          ValueError: the request is not in the log; an unknown signal, a value that is empty or too
            long.

        Source: rules S5.4, S5.6.
        """
        event_time = datetime.fromisoformat(self._at(now))
        with self._writing() as entries:
            request_row(entries, request_id)
            signal_fields = (value, signal, corrected_to)
            return default_table().learn(
                entries, request_id, row_key, signal_fields, conditions, self.learner, event_time
            )

    def decided(
        self,
        request_id: str,
        response: Mapping[str, Any],
        checks: Sequence[Check] = (),
        ms: Mapping[str, float] | float | None = None,
        *,
        applied: DefaultUse | None = None,
        now: datetime | None = None,
    ) -> None:
        """Log the decision of a request, with every check; of several, one a turn, the last counts.

        Args:
          request_id: of the request.
          response: with the keys of rule S0.3.
          checks: every check of the decision.
          ms: milliseconds, by stage or in all.
          applied: the default that the decision rests on and the response names; both are logged,
            or neither.
          now: with a time zone; the log's clock where not given.
        """
        with self._writing() as entries:
            logged_request = request_row(entries, request_id)
            if applied is not None:
                self._fill_in(entries, logged_request, applied, now)
            decision_columns = decision_row(logged_request, response, checks, ms)
            if self.query != "text":
                decision_columns |= without_quotations(decision_columns, QUESTION_GATES)
            entries.add(DECISIONS, {"at": self._at(now), **decision_columns})

    def evidence(
        self, request_id: str, evidence: Mapping[str, Any], *, now: datetime | None = None
    ) -> None:
        """Log the query, retrieval and answer of a clarified request.

        Args:
          request_id: of the request.
          evidence: query, documents, task, arm, depths and answer, as JSON values.
          now: with a time zone; the log's clock where not given.
        """
        with self._writing() as entries:
            request_row(entries, request_id)
            evidence_columns = {
                "at": self._at(now),
                "request_id": request_id,
                **json_value(evidence),
            }
            entries.add(
                EVIDENCE_TABLE,
                evidence_columns
                if self.query == "text"
                else evidence_columns | evidence_without_text(evidence_columns),
            )

    def pending(self, request_id: str) -> Pending | None:
        """Clarification of a request that nobody has replied to, or None.

        Args:
          request_id: of the request.
        """
        with self.log.reading() as entries:
            request_row(entries, request_id)
            with as_written():
                return default_table().pending(entries, request_id)

    def application(self, request_id: str) -> Application | None:
        """Default that was last applied silently to a request, None where none was.

        Args:
          request_id: of the request.
        """
        with self.log.reading() as entries:
            request_row(entries, request_id)
            with as_written():
                return default_table().application(entries, request_id)

    def settle(self, *, now: datetime | None = None, session: str | None = None) -> int:
        """Settle the defaults that were applied silently, where that is possible.

        The number that silence confirms.

        Silence is `implicit_ok` where the answer is ok, the field was filled, and the user neither
        corrected nor rephrased before the session's next request or 24 hours (rule S5.4). Each is
        settled once.

        Args:
          now: with a time zone; the log's clock where not given.
          session: only requests of it; None settles all.
        """
        event_time = datetime.fromisoformat(self._at(now))
        with self.log.reading() as entries:
            if entries.row(OPEN) is None:
                return 0
        audit_tables: Iterable[DefaultTable] = extensions("audit_table").values()
        with self.log.writing() as entries, as_written():
            n_settled = 0  # a loop, so that what a table raises leaves it as it is
            for audit_table in audit_tables:
                n_settled += audit_table.settle(
                    entries, event_time, session, self.learner, self.silence
                )
            return n_settled

    def rebuild(self) -> tuple[ClarificationDefault, ...]:
        """Rows of the default table from their changes alone: to the byte what `rows` has."""
        with self.log.reading() as entries, as_written():
            return default_table().rebuild(entries)

    def export(self, folder: str | Path) -> list[Path]:
        """Write every table of events, and the rows, as Parquet; see `export_tables`.

        Args:
          folder: for the Parquet files; made where it does not exist.
        """
        with self.log.reading() as entries, as_written():
            return export_tables(entries, Path(folder))

    def forget(self, *, before: datetime | None = None) -> int:
        """Blank what people wrote and were answered in older rows; how many requests.

        Decisions and votes stay.

        Args:
          before: the moment; `keep_days` ago where not given.

        Raises:
          ValueError: neither a moment nor keep_days; the moment has no time zone.
          InputError: another process reads the log meanwhile, so that the files still hold what was
            blanked.
        """
        if before is None and not self.keep_days:
            refuse("forget needs a moment", "none and keep_days 0", "give one")
        forgotten_at = self._at(None)
        if before is None:
            before = datetime.fromisoformat(forgotten_at) - timedelta(days=self.keep_days)
        cutoff_time = self._at(before)
        with self.log.writing() as entries:
            with as_written():
                n_blanked = blank_texts(entries, cutoff_time)
            if n_blanked:
                entries.add(
                    FORGOTTEN, {"at": forgotten_at, "before": cutoff_time, "requests": n_blanked}
                )
        self._last_questions.clear()
        self.log.erase(vacuum=n_blanked > 0)
        return n_blanked

    def close(self) -> None:
        """Close the log's files."""
        self.log.close()

    def __repr__(self) -> str:
        return f"AuditLog({short(self.log.shown)}, query={self.query!r})"

    def _repr_html_(self) -> str:
        """Display for a notebook: how far the log goes, and what it keeps.

        A log that is not there is not made.
        """
        try:
            with self.log.reading() as entries:
                last_event = f"{entries.last:,}" if entries.last else "none yet"
        except InputError as error:
            last_event = f"cannot be read: {error}"
        log_facts = [
            ("log", self.log.shown),
            ("events", last_event),
            ("questions are kept as", self.query),
            ("texts are kept for", f"{self.keep_days:g} days" if self.keep_days else "ever"),
            ("learner", self.digest),
        ]
        learner_settings = self.learner._asdict() | self.silence._asdict()
        log_facts += [
            (setting_name, str(setting_value))
            for setting_name, setting_value in learner_settings.items()
        ]
        return display("Audit log", log_facts)

    def _at(self, moment: datetime | None) -> str:
        return utc_text(self._clock() if moment is None else moment)
