"""Log tables (shore): the columns of the bandit's log and of the audit's.

What changes a row of the default table is one event of `CHANGES`, whatever it is, so that the rows
are a fold over that table alone. `CURRENT` and `OPEN` are its shortcuts: the latest version of each
row, and the defaults applied silently whose outcome is not known yet. What a person wrote stands in
the columns that `forget` blanks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge
from typing import Any, NamedTuple

from raglab.store.log_rows import Column, Entries, EventTable

LONGEST_REQUEST_ID = 200
# files of the logs in the folder of an index
BANDIT_LOG = "bandit.sqlite"
AUDIT_LOG = "audit.sqlite"


def check_id(request_id: object) -> None:
    """Refuse what is no id of a request."""
    if not isinstance(request_id, str) or not 0 < len(request_id) <= LONGEST_REQUEST_ID:
        message = (
            f"request_id must be a text of 1 to {LONGEST_REQUEST_ID} characters, got "
            f"{request_id!r:.80}; shorten it."
        )
        raise ValueError(message)


# columns of several tables
_REQUEST_COLUMN = Column("request_id", "name", unique=True)
_REQUEST_REFERENCE = Column("request_id", "name", listed=True)
_ROW_REFERENCE = Column("row_id", "name", listed=True)
_ONCE_COLUMN = Column("once", "name", unique=True)
SETUPS, CHOICES, REWARDS, THUMBS, SNAPSHOTS = (
    f"bandit_{name}" for name in ("setups", "choices", "rewards", "thumbs", "snapshots")
)
CHOICE_TABLES = (
    EventTable(SETUPS, (Column("digest", "name", unique=True), Column("body", "json"))),
    EventTable(
        CHOICES,
        (
            _REQUEST_COLUMN,
            Column("round", "whole", unique=True),
            Column("policy_id", "name"),
            Column("fingerprint", "name"),
            Column("question", "name", listed=True),
            Column("setup", "name"),
            Column("arm", "name"),
            Column("arms", "json"),
            Column("mask", "json"),
            Column("propensity", "number"),
            Column("propensities", "json"),
            Column("features", "json"),
            Column("state_seq", "whole"),
            Column("state_hash", "name"),
            Column("seed", "whole"),
        ),
    ),
    EventTable(
        REWARDS,
        (
            _REQUEST_COLUMN,
            Column("arm", "name", listed=True),
            Column("age", "whole"),
            Column("components", "json"),
            Column("thumb", "whole", missing=True),
            Column("reward", "number"),
            Column("ms", "number"),
            Column("measured", "json"),
        ),
    ),
    EventTable(
        THUMBS,
        (
            _REQUEST_REFERENCE,
            Column("age", "whole"),
            Column("before", "whole", missing=True),
            Column("up", "whole"),
        ),
    ),
    EventTable(
        SNAPSHOTS,
        (
            Column("setup", "name"),
            Column("seq", "whole"),
            Column("state", "text"),
            Column("sums", "text"),
        ),
        key="setup",
    ),
)


class Event(NamedTuple):
    """What changes a learner's state, with all that the change depends on.

    seq: its number. kind: choice, reward or thumb. arm, features: of the choice. age: choices since
    it. components: raw, of the reward; None for a choice, and for a thumb that came before its
    reward. before, thumb: 1 up, 0 down, None is none; before this event, and from it on.
    """

    seq: int
    kind: str
    request_id: str
    arm: str
    features: Mapping[str, float | None]
    age: int = 0
    components: Mapping[str, float | None] | None = None
    before: int | None = None
    thumb: int | None = None


_STATE_COLUMNS = {  # columns that an event has
    CHOICES: ("seq", "request_id", "arm", "features"),
    REWARDS: ("seq", "request_id", "age", "components", "thumb"),
    THUMBS: ("seq", "request_id", "age", "before", "up"),
}


def events(log_entries: Entries, after: int = 0) -> Iterator[Event]:
    """What happened after a number, in order."""
    event_streams = (
        log_entries.rows(table_name, columns=event_columns, after=after)
        for table_name, event_columns in _STATE_COLUMNS.items()
    )
    choice_rows: dict[str, dict[str, Any]] = {}
    reward_rows: dict[str, dict[str, Any]] = {}
    for event_row in merge(*event_streams, key=lambda event: event["seq"]):
        event_number = event_row["seq"]
        request_id = event_row["request_id"]
        if "features" in event_row:
            choice_rows[request_id] = event_row
            yield Event(event_number, "choice", request_id, event_row["arm"], event_row["features"])
            continue
        choice_row = (
            choice_rows.get(request_id) or log_entries.row(CHOICES, request_id=request_id) or {}
        )
        event_facts = (request_id, choice_row["arm"], choice_row["features"], event_row["age"])
        if "components" in event_row:
            reward_rows[request_id] = event_row
            yield Event(
                event_number,
                "reward",
                *event_facts,
                event_row["components"],
                None,
                event_row["thumb"],
            )
            continue
        reward_row = (
            reward_rows.get(request_id)
            or log_entries.row(REWARDS, request_id=request_id)
            or event_row
        )
        components = reward_row["components"] if reward_row["seq"] < event_number else None
        yield Event(
            event_number, "thumb", *event_facts, components, event_row["before"], event_row["up"]
        )


def rounds(log: Entries) -> int:
    """Choices so far."""
    last_choice = log.row(CHOICES, columns=("round",))
    return 0 if last_choice is None else int(last_choice["round"])


QUESTION_GATES = frozenset({"coverage"})  # gates whose words may quote the question
QUOTING_GATES = QUESTION_GATES | {"support", "hygiene"}  # or the answer
_SLOT_LENGTH = 2


def parsed_fields(parsed: Mapping[str, Any]) -> Iterator[tuple[str, Any, float]]:
    """Fields of a parsed question with value and confidence; those without one are left out."""
    for field_name, slot_value in parsed.items():
        field_value = None
        confidence = None
        if isinstance(slot_value, Mapping):
            field_value = slot_value.get("value")
            confidence = slot_value.get("confidence")
        elif (
            isinstance(slot_value, Sequence)
            and not isinstance(slot_value, str)
            and len(slot_value) == _SLOT_LENGTH
        ):
            field_value, confidence = slot_value
        if isinstance(confidence, int | float) and not isinstance(confidence, bool):
            yield field_name, field_value, float(confidence)


def without_values(parsed: object) -> dict[str, Any] | None:
    """Parsed fields with their confidences alone."""
    if not isinstance(parsed, Mapping):
        return None
    return {field_name: [None, confidence] for field_name, _, confidence in parsed_fields(parsed)}


def _decision_without_texts(decision_row: Mapping[str, Any]) -> dict[str, Any]:
    """A decision without answer, previews, warnings and quotations; its numbers stay."""
    return {
        "answer": None,
        "options": [
            {key: value for key, value in option.items() if key != "text"}
            for option in decision_row["options"]
        ],
        "warnings": [],
        **without_quotations(decision_row, QUOTING_GATES),
    }


def without_quotations(
    decision_row: Mapping[str, Any], gate_names: Collection[str]
) -> dict[str, Any]:
    """Reason and checks of a decision without the words of these gates."""
    quoted_texts = {
        check["text"]
        for check in decision_row["checks"]
        if check["gate"] in gate_names and check["text"]
    }
    reason = (
        ""
        if any(
            (decision_row["reason"] or "").startswith(quoted_text) for quoted_text in quoted_texts
        )
        else decision_row["reason"]
    )
    return {
        "reason": reason,
        "checks": [
            check | {"text": ""} if check["gate"] in gate_names else check
            for check in decision_row["checks"]
        ],
    }


def evidence_without_text(evidence_row: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence without the question's words and the answer's; its hits and numbers stay."""
    return {
        "query": None,
        "depths": [depth | {"query": ""} for depth in evidence_row["depths"]],
        "answer": evidence_row["answer"]
        and evidence_row["answer"] | {"text": "", "claim": "", "refused": ""},
    }


REQUESTS, CLARIFICATIONS, REPLIES, APPLICATIONS, DECISIONS = (
    "query_log",
    "clarifications",
    "replies",
    "default_applications",
    "decisions",
)
EVIDENCE_TABLE = "evidence"
CHANGES, VERSIONS, CURRENT = "default_changes", "default_versions", "defaults"
SETTLEMENTS, OPEN, FORGOTTEN = "settlements", "open_applications", "forgotten"
POLICIES = "policies"
LEARNERS = "learners"
SAMPLES = "samples"
LABELS = "labels"
_SYSTEM_COLUMNS = (  # what decides: its policy, index, models and prompts
    Column("policy_id", "name"),
    Column("fingerprint", "name"),
    Column("models", "json"),
    Column("prompt_version", "name"),
)
_PAST_ROW_COLUMNS = (  # a row of the default table as it was when it was used
    _ROW_REFERENCE,
    Column("version", "whole"),
    Column("confidence", "number"),
    Column("votes", "json"),
    Column("gate", "name"),
    Column("kind", "name"),
    Column("conditions", "json"),
)
REQUEST_TABLES = (
    EventTable(POLICIES, (Column("policy_id", "name", unique=True), Column("body", "json"))),
    EventTable(LEARNERS, (Column("digest", "name", unique=True), Column("body", "json"))),
    EventTable(
        REQUESTS,
        (
            _REQUEST_COLUMN,
            Column("session", "text", listed=True),
            Column("question", "text", missing=True),
            Column("question_hash", "name"),
            Column("rephrases", "name"),
            Column("documents", "json"),
            Column("parsed", "json"),
            *_SYSTEM_COLUMNS,
            Column("learner", "name"),
        ),
        without=lambda row: {
            "question": None,
            "question_hash": "",
            "parsed": without_values(row["parsed"]),
        },
    ),
    EventTable(
        CLARIFICATIONS,
        (
            _REQUEST_COLUMN,
            Column("target_field", "name"),
            Column("question_to_user", "text", missing=True),
            Column("candidates", "json"),
            Column("proposed", "text", missing=True),
            Column("proposed_reason", "text", missing=True),
            Column("audit", "json"),
            *_PAST_ROW_COLUMNS,
            Column("why", "text"),
            Column("gain", "number", missing=True),
            Column("cost", "number", missing=True),
            Column("tried", "json"),
        ),
        without=lambda _: {"question_to_user": None, "proposed_reason": None, "audit": {}},
    ),
    EventTable(
        REPLIES,
        (_REQUEST_REFERENCE, Column("reply", "text", missing=True)),
        without=lambda _: {"reply": None},
    ),
    EventTable(
        APPLICATIONS,
        (
            _REQUEST_REFERENCE,
            *_PAST_ROW_COLUMNS,
            Column("value", "text"),
            _ONCE_COLUMN,
        ),
    ),
    EventTable(
        DECISIONS,
        (
            _REQUEST_REFERENCE,
            Column("status", "name"),
            Column("reason", "text", missing=True),
            Column("answer", "text", missing=True),
            Column("sources", "json"),
            Column("options", "json"),
            Column("warnings", "json"),
            Column("confidence", "number", missing=True),
            Column("route", "name", missing=True),
            Column("arm", "name", missing=True),
            Column("clarified", "whole"),
            Column("default_applied", "json"),
            Column("checks", "json"),
            Column("ms", "json"),
            *_SYSTEM_COLUMNS,
        ),
        without=_decision_without_texts,
    ),
    EventTable(
        EVIDENCE_TABLE,
        (
            _REQUEST_REFERENCE,
            Column("query", "text", missing=True),
            Column("documents", "json"),
            Column("task", "name"),
            Column("arm", "name"),
            Column("depths", "json"),
            Column("answer", "json"),
        ),
        without=evidence_without_text,
        since=3,
    ),
    EventTable(
        CHANGES,
        (
            Column("kind", "name"),  # met, signal, look
            _REQUEST_REFERENCE,
            _ROW_REFERENCE,
            Column("key", "json"),
            Column("value", "text"),
            Column("signal", "name"),
            Column("corrected_to", "text", missing=True),
            Column("conditions", "json"),
            Column("learner", "name"),
            Column("found", "json"),
            _ONCE_COLUMN,
        ),
    ),
    EventTable(
        VERSIONS,
        (
            _ROW_REFERENCE,
            Column("version", "whole"),
            Column("of", "name", unique=True),
            Column("cause", "whole", listed=True),  # number of the change that made it
            Column("target_field", "name"),
            Column("doctype", "name"),
            Column("confidence", "number"),
            Column("sample_size", "whole"),
            Column("body", "json"),
        ),
    ),
    EventTable(
        CURRENT,
        (
            Column("row_id", "name"),
            Column("target_field", "name"),
            Column("doctype", "name"),
            Column("body", "json"),
        ),
        key="row_id",
    ),
    EventTable(
        SETTLEMENTS,
        (
            _REQUEST_REFERENCE,
            Column("row_id", "name"),
            Column("outcome", "name"),
            _ONCE_COLUMN,
        ),
    ),
    EventTable(
        OPEN,
        (
            Column("once", "name"),
            Column("at", "name"),
            Column("request_id", "name"),
            Column("session", "text"),
            Column("application", "whole"),
            Column("closed", "whole"),
            Column("rephrased", "whole"),
        ),
        key="once",
    ),
    EventTable(FORGOTTEN, (Column("before", "name"), Column("requests", "whole"))),
    EventTable(  # requests drawn to be labelled, with the population of each stratum
        SAMPLES,
        (
            Column("sample", "name", unique=True),
            Column("seed", "whole"),
            # numbers of the first and the last request that could be drawn
            Column("first", "whole"),
            Column("last", "whole"),
            Column("sizes", "json"),
            Column("drawn", "json"),
        ),
        since=3,
    ),
    EventTable(  # what a person says that a request should have got
        LABELS,
        (
            _REQUEST_REFERENCE,
            Column("sample", "name", listed=True),
            Column("label", "name"),
        ),
        since=3,
    ),
)
EVENTS = tuple(table for table in REQUEST_TABLES if table.key is None)


def request_row(
    log: Entries, request_id: str, table_name: str = REQUESTS, request_kind: str = "request"
) -> dict[str, Any]:
    """Row of a request in the table of requests, or in that of choices.

    Raises:
      ValueError: no such request.
    """
    row = log.row(table_name, request_id=request_id)
    if row is None:
        message = (
            f"request_id must be that of a {request_kind} in the log, got {request_id!r:.80}; the "
            "response names it."
        )
        raise ValueError(message)
    return row
