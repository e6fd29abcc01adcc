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

LONGEST_ID = 200
# files of the logs in the folder of an index
BANDIT_LOG, AUDIT_LOG = "bandit.sqlite", "audit.sqlite"


def check_id(request_id: object) -> None:
    """Refuse what is no id of a request."""
    if not isinstance(request_id, str) or not 0 < len(request_id) <= LONGEST_ID:
        msg = (
            f"request_id must be a text of 1 to {LONGEST_ID} characters, got {request_id!r:.80}; "
            "shorten it."
        )
        raise ValueError(msg)


# columns of several tables
_REQUEST = Column("request_id", "name", unique=True)
_OF_REQUEST = Column("request_id", "name", listed=True)
_OF_ROW = Column("row_id", "name", listed=True)
_ONCE = Column("once", "name", unique=True)
SETUPS, CHOICES, REWARDS, THUMBS, SNAPSHOTS = (
    f"bandit_{name}" for name in ("setups", "choices", "rewards", "thumbs", "snapshots")
)
CHOICE_TABLES = (
    EventTable(SETUPS, (Column("digest", "name", unique=True), Column("body", "json"))),
    EventTable(
        CHOICES,
        (
            _REQUEST,
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
            _REQUEST,
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
            _OF_REQUEST,
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


_OF_STATE = {  # columns that an event has
    CHOICES: ("seq", "request_id", "arm", "features"),
    REWARDS: ("seq", "request_id", "age", "components", "thumb"),
    THUMBS: ("seq", "request_id", "age", "before", "up"),
}


def events(log: Entries, after: int = 0) -> Iterator[Event]:
    """What happened after a number, in order."""
    streams = (log.rows(name, columns=read, after=after) for name, read in _OF_STATE.items())
    choices: dict[str, dict[str, Any]] = {}
    rewarded: dict[str, dict[str, Any]] = {}
    for row in merge(*streams, key=lambda event: event["seq"]):
        seq, request = row["seq"], row["request_id"]
        if "features" in row:
            choices[request] = row
            yield Event(seq, "choice", request, row["arm"], row["features"])
            continue
        choice = choices.get(request) or log.row(CHOICES, request_id=request) or {}
        about = (request, choice["arm"], choice["features"], row["age"])
        if "components" in row:
            rewarded[request] = row
            yield Event(seq, "reward", *about, row["components"], None, row["thumb"])
            continue
        reward = rewarded.get(request) or log.row(REWARDS, request_id=request) or row
        components = reward["components"] if reward["seq"] < seq else None
        yield Event(seq, "thumb", *about, components, row["before"], row["up"])


def rounds(log: Entries) -> int:
    """Choices so far."""
    last = log.row(CHOICES, columns=("round",))
    return 0 if last is None else int(last["round"])


OF_QUESTION = frozenset({"coverage"})  # gates whose words may quote the question
QUOTING = OF_QUESTION | {"support", "hygiene"}  # or the answer
_SLOT = 2


def parsed_fields(parsed: Mapping[str, Any]) -> Iterator[tuple[str, Any, float]]:
    """Fields of a parsed question with value and confidence; what has no confidence is none."""
    for name, slot in parsed.items():
        value, confidence = None, None
        if isinstance(slot, Mapping):
            value, confidence = slot.get("value"), slot.get("confidence")
        elif isinstance(slot, Sequence) and not isinstance(slot, str) and len(slot) == _SLOT:
            value, confidence = slot
        if isinstance(confidence, int | float) and not isinstance(confidence, bool):
            yield name, value, float(confidence)


def without_values(parsed: object) -> dict[str, Any] | None:
    """Parsed fields with their confidences alone."""
    if not isinstance(parsed, Mapping):
        return None
    return {name: [None, confidence] for name, _, confidence in parsed_fields(parsed)}


def _decision_without_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """A decision without answer, previews, warnings and quotations; its numbers stay."""
    return {
        "answer": None,
        "options": [
            {key: item for key, item in option.items() if key != "text"}
            for option in row["options"]
        ],
        "warnings": [],
        **without_quotations(row, QUOTING),
    }


def without_quotations(row: Mapping[str, Any], gates: Collection[str]) -> dict[str, Any]:
    """Reason and checks of a decision without the words of these gates."""
    quoted = {check["text"] for check in row["checks"] if check["gate"] in gates and check["text"]}
    reason = "" if any((row["reason"] or "").startswith(text) for text in quoted) else row["reason"]
    return {
        "reason": reason,
        "checks": [
            check | {"text": ""} if check["gate"] in gates else check for check in row["checks"]
        ],
    }


def evidence_without_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence without the question's words and the answer's; its hits and numbers stay."""
    return {
        "query": None,
        "depths": [depth | {"query": ""} for depth in row["depths"]],
        "answer": row["answer"] and row["answer"] | {"text": "", "claim": "", "refused": ""},
    }


REQUESTS, CLARIFICATIONS, REPLIES, APPLICATIONS, DECISIONS = (
    "query_log",
    "clarifications",
    "replies",
    "default_applications",
    "decisions",
)
EVIDENCE = "evidence"
CHANGES, VERSIONS, CURRENT = "default_changes", "default_versions", "defaults"
SETTLEMENTS, OPEN, FORGOTTEN = "settlements", "open_applications", "forgotten"
POLICIES, LEARNERS = "policies", "learners"
SAMPLES, LABELS = "samples", "labels"
_SYSTEM = (  # what decides: its policy, index, models and prompts
    Column("policy_id", "name"),
    Column("fingerprint", "name"),
    Column("models", "json"),
    Column("prompt_version", "name"),
)
_AS_OF_THEN = (  # a row of the default table as it was when it was used
    _OF_ROW,
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
            _REQUEST,
            Column("session", "text", listed=True),
            Column("question", "text", missing=True),
            Column("question_hash", "name"),
            Column("rephrases", "name"),
            Column("documents", "json"),
            Column("parsed", "json"),
            *_SYSTEM,
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
            _REQUEST,
            Column("target_field", "name"),
            Column("question_to_user", "text", missing=True),
            Column("candidates", "json"),
            Column("proposed", "text", missing=True),
            Column("proposed_reason", "text", missing=True),
            Column("audit", "json"),
            *_AS_OF_THEN,
            Column("why", "text"),
            Column("gain", "number", missing=True),
            Column("cost", "number", missing=True),
            Column("tried", "json"),
        ),
        without=lambda _: {"question_to_user": None, "proposed_reason": None, "audit": {}},
    ),
    EventTable(
        REPLIES,
        (_OF_REQUEST, Column("reply", "text", missing=True)),
        without=lambda _: {"reply": None},
    ),
    EventTable(
        APPLICATIONS,
        (
            _OF_REQUEST,
            *_AS_OF_THEN,
            Column("value", "text"),
            _ONCE,
        ),
    ),
    EventTable(
        DECISIONS,
        (
            _OF_REQUEST,
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
            *_SYSTEM,
        ),
        without=_decision_without_texts,
    ),
    EventTable(
        EVIDENCE,
        (
            _OF_REQUEST,
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
            _OF_REQUEST,
            _OF_ROW,
            Column("key", "json"),
            Column("value", "text"),
            Column("signal", "name"),
            Column("corrected_to", "text", missing=True),
            Column("conditions", "json"),
            Column("learner", "name"),
            Column("found", "json"),
            _ONCE,
        ),
    ),
    EventTable(
        VERSIONS,
        (
            _OF_ROW,
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
            _OF_REQUEST,
            Column("row_id", "name"),
            Column("outcome", "name"),
            _ONCE,
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
            _OF_REQUEST,
            Column("sample", "name", listed=True),
            Column("label", "name"),
        ),
        since=3,
    ),
)
EVENTS = tuple(table for table in REQUEST_TABLES if table.key is None)


def request_row(
    log: Entries, request_id: str, table: str = REQUESTS, what: str = "request"
) -> dict[str, Any]:
    """Row of a request in the table of requests, or in that of choices.

    Raises:
      ValueError: there is none.
    """
    row = log.row(table, request_id=request_id)
    if row is None:
        msg = (
            f"request_id must be that of a {what} in the log, got {request_id!r:.80}; the "
            "response names it."
        )
        raise ValueError(msg)
    return row
