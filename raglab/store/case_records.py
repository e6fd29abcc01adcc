"""Records of cases (shore): a case as JSON-lines object, read and written, a set's hash (S6.1)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from raglab.store.case_frames import source_rule
from raglab.store.files import JsonLine, Where, canonical_text, input_error, shown_value
from raglab.store.record_fields import (
    Record,
    optional_integer,
    optional_text,
    optional_texts,
    required_text,
)
from raglab.values import LONGEST_QUESTION, STATUS_NAMES, Case

_FIELDS = tuple(name for name in Case._fields if name != "extra")
# key -> field
CASE_KEYS = {name: "query" if name == "question" else name for name in (*_FIELDS, "question")}


def parse_case(record: Record, file: str = "record", *, labelled: bool = True) -> Case:
    """Case of a record as `load_cases` reads it.

    Args:
      labelled: whether it must have a label; a trace may hold cases without, a set of cases may
        not.

    Raises:
      InputError: a field breaks a rule.
    """
    return read_case(JsonLine(Where(file), record), labelled=labelled)[1]


def read_case(line: JsonLine, *, labelled: bool = True) -> tuple[Where, Case]:
    """Case of a line, with its place; see `parse_case`."""
    # The id first: every later message names the case by it, beside its line.
    case_id = required_text(line.record, "id", line.where)
    where, record = line.where._replace(id=case_id), line.record
    status = (required_text if labelled else optional_text)(record, "expect_status", where)
    if status not in STATUS_NAMES and (labelled or status is not None):
        rule = f"expect_status must be one of {', '.join(STATUS_NAMES)}"
        raise input_error(where, rule, "correct the label", shown_value(status))
    # Two names of one field: which of two texts is meant, only the author can say.
    if "query" in record and "question" in record:
        raise input_error(where, "a case must have query or question", "take one away", "both")
    query = required_text(
        record, "question" if "question" in record else "query", where, blank=True
    )
    # A live system refuses a longer one, so that a case of it would measure what nobody can ask.
    if len(query) > LONGEST_QUESTION:
        rule = f"query must have at most {LONGEST_QUESTION} characters"
        raise input_error(where, rule, "a document is no question: shorten it", f"{len(query)}")
    return where, Case(
        id=case_id,
        query=query,
        expect_status=status,
        expect_sources=_case_sources(record, "expect_sources", where),
        expect_sources_any=_case_sources(record, "expect_sources_any", where),
        min_sources=optional_integer(record, "min_sources", where, 0) or 0,
        selected_sources=_case_sources(record, "selected_sources", where),
        expect_option=optional_integer(record, "expect_option", where, 1),
        answer=optional_text(record, "answer", where),
        intent=optional_text(record, "intent", where),
        doctype=optional_text(record, "doctype", where),
        split=optional_text(record, "split", where),
        notes=optional_text(record, "notes", where),
        extra={key: value for key, value in record.items() if key not in CASE_KEYS},
    )


def _case_sources(record: Record, key: str, where: Where) -> tuple[str, ...]:
    sources = optional_texts(record, key, where)
    for source in sources:
        broken = source_rule(source)
        if broken is not None:
            raise input_error(where, f"{key} must be {broken[0]}", broken[1], shown_value(source))
    return sources


def case_record(case: Case, where: Where | None = None) -> dict[str, Any]:
    """Record of a case as `save_cases` writes it.

    Raises:
      InputError: a key of `extra` has the name of a field; it names the place, the case's id where
        none is given.
    """
    clash = sorted(CASE_KEYS.keys() & case.extra.keys())
    if clash:
        where = Where("case", id=case.id) if where is None else where
        raise input_error(
            where,
            "extra must not hold the name of a field",
            "rename the key",
            shown_value(clash[0]),
        )
    fields = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in case._asdict().items()
    }
    always = ("id", "query", "expect_status")
    return {
        key: fields[key] for key in _FIELDS if key in always or fields[key] not in (None, [], 0)
    } | dict(case.extra)


def hash_cases(cases: Iterable[Case]) -> str:
    """SHA-256, 64 hex digits, over the canonical JSON of all fields of the cases in their order."""
    digest = sha256()
    for case in cases:
        fields = {**case._asdict(), "extra": dict(case.extra)}
        digest.update(canonical_text(fields, Where("cases", id=case.id)).encode() + b"\n")
    return digest.hexdigest()
