"""Labelled questions from files: our JSON lines, SQuAD 2.0, BEIR, CLINC150, MT-RAG.

Ours is one object a line with the fields of `Case` (rule S6.1); `question` may stand for `query`; a key that is no
field is kept in `extra`::

    {"id": "w1-001", "query": "…", "expect_status": "ok", "expect_sources": ["a.md#2"], "split": "tune", "lang": "en"}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from raglab.store._beir import beir_cases
from raglab.store._clinc import clinc_cases, is_clinc
from raglab.store._errors import Where, input_error, shown
from raglab.store._fields import Record, optional_text, text_of, texts_of, whole_of
from raglab.store._files import MAX_FILE_BYTES, MAX_LINE_BYTES, Line, dumped, json_lines, read_json, write_lines
from raglab.store._mtrag import is_mtrag, mtrag_cases, mtrag_file
from raglab.store._squad import is_squad, squad_cases
from raglab.values import Case, Status

_LINES = (".jsonl", ".ndjson")
_FIELDS = tuple(name for name in Case._fields if name != "extra")
_KNOWN = frozenset((*_FIELDS, "question"))
_STATUSES = tuple(status.name for status in Status)


def load_cases(
    path: str | Path, *, max_line_bytes: int = MAX_LINE_BYTES, max_file_bytes: int = MAX_FILE_BYTES
) -> tuple[Case, ...]:
    """Cases of a labelled set, in the order of the file, by what the path is.

    A folder: `cases.jsonl` (ours), `queries.jsonl` with `qrels/` (BEIR), `data_full.json` (CLINC150), or
    `reference*.jsonl` (MT-RAG), whichever is there first. A file: JSON lines are MT-RAG by the keys of the first, else
    ours; JSON is SQuAD 2.0 or CLINC150 by its keys. How the foreign sets are labelled and split stands at the head of
    `_squad`, `_beir`, `_clinc` and `_mtrag`.

    Args:
      path: folder or file.
      max_line_bytes: longest line of JSON lines; no more of it is read.
      max_file_bytes: longest file that is read as a whole.

    Raises:
      InputError: something breaks a rule; the message names file, line, id, rule and remedy.

    Source: rule S6.1.
    """
    place = Path(path)
    if (place / "cases.jsonl").is_file():
        place /= "cases.jsonl"
    elif (place / "queries.jsonl").is_file():
        return _unique(beir_cases(place, max_line_bytes, max_file_bytes), str(place))
    elif (place / "data_full.json").is_file():
        place /= "data_full.json"
    elif (tasks := mtrag_file(place, max_line_bytes)) is not None:
        place = tasks
    if place.suffix.lower() in _LINES:
        return _unique(_from_lines(place, max_line_bytes), str(place))
    if place.suffix.lower() == ".json":
        return _unique(_from_json(place, max_file_bytes), str(place))
    known = "cases.jsonl, queries.jsonl, data_full.json or reference*.jsonl"
    rule = f"cases must be a .jsonl or .json file, or a folder with {known}"
    came = shown(place.name) if place.exists() else "a path that does not exist"
    raise input_error(Where(str(place)), rule, "check the path", came)


def save_cases(cases: Iterable[Case], path: str | Path) -> None:
    """Write cases as JSON lines, whole or not at all; `load_cases` gives equal ones.

    Fields at their defaults are left out; `extra` is written beside the fields.

    Raises:
      InputError: a case would not load again, or the folder cannot be written.
    """
    records = [_record(case, Where(str(path), n, case.id)) for n, case in enumerate(cases, 1)]
    _unique((_case(Line(Where(str(path), n), record)) for n, record in enumerate(records, 1)), str(path))
    write_lines(records, Path(path))


def hash_cases(cases: Iterable[Case]) -> str:
    """SHA-256, 64 hex digits, over the canonical JSON of all fields of the cases in their order."""
    digest = sha256()
    for case in cases:
        fields = {**case._asdict(), "extra": dict(case.extra)}
        digest.update(dumped(fields, Where("cases", id=case.id)).encode() + b"\n")
    return digest.hexdigest()


def record_of(case: Case) -> dict[str, Any]:
    """Record of a case as `save_cases` writes it."""
    return _record(case, Where("case", id=case.id))


def case_of(record: Record, file: str = "record") -> Case:
    """Case of a record as `load_cases` reads it.

    Raises:
      InputError: a field breaks a rule.
    """
    return _case(Line(Where(file), record))[1]


def _from_lines(path: Path, max_line_bytes: int) -> Iterator[tuple[Where, Case]]:
    lines = json_lines(path, max_line_bytes)
    first = next(lines)
    records = chain([first], lines)
    return mtrag_cases(records) if is_mtrag(first.record) else map(_case, records)


def _from_json(path: Path, max_file_bytes: int) -> Iterator[tuple[Where, Case]]:
    document = read_json(path, max_file_bytes)
    if is_squad(document):
        return squad_cases(document, str(path))
    if is_clinc(document):
        return clinc_cases(document, path, max_file_bytes)
    rule = "JSON cases must be SQuAD 2.0 (key data) or CLINC150 (keys train, val, test, oos_train, oos_val, oos_test)"
    raise input_error(Where(str(path)), rule, "write other cases to a .jsonl file", shown(document))


def _case(line: Line) -> tuple[Where, Case]:
    case_id = text_of(line.record, "id", line.where)
    where, record = line.where._replace(id=case_id), line.record
    status = text_of(record, "expect_status", where)
    if status not in _STATUSES:
        rule = f"expect_status must be one of {', '.join(_STATUSES)}"
        raise input_error(where, rule, "correct the label", shown(status))
    if "query" in record and "question" in record:
        raise input_error(where, "a case must have query or question", "take one away", "both")
    return where, Case(
        id=case_id,
        query=text_of(record, "question" if "question" in record else "query", where, blank=True),
        expect_status=status,
        expect_sources=_sources(record, "expect_sources", where),
        expect_sources_any=_sources(record, "expect_sources_any", where),
        min_sources=whole_of(record, "min_sources", where, 0) or 0,
        selected_sources=_sources(record, "selected_sources", where),
        expect_option=whole_of(record, "expect_option", where, 1),
        answer=optional_text(record, "answer", where),
        intent=optional_text(record, "intent", where),
        doctype=optional_text(record, "doctype", where),
        split=optional_text(record, "split", where),
        notes=optional_text(record, "notes", where),
        extra={key: value for key, value in record.items() if key not in _KNOWN},
    )


def _sources(record: Record, key: str, where: Where) -> tuple[str, ...]:
    sources = texts_of(record, key, where)
    for source in sources:
        file, mark, page = source.rpartition("#")
        if mark and not (file and page.isascii() and page.isdigit() and int(page) > 0):
            remedy = "give the page's number from 1, not its printed label"
            raise input_error(where, f"{key} must be file or file#page, page an integer", remedy, shown(source))
        if "/" in source or "\\" in source:
            remedy = "leave the folder out"
            raise input_error(where, f"{key} must be file names without folder", remedy, shown(source))
    return sources


def _record(case: Case, where: Where) -> dict[str, Any]:
    clash = sorted(_KNOWN & case.extra.keys())
    if clash:
        raise input_error(where, "extra must not hold the name of a field", "rename the key", shown(clash[0]))
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in case._asdict().items()}
    always = ("id", "query", "expect_status")
    return {key: fields[key] for key in _FIELDS if key in always or fields[key] not in (None, [], 0)} | dict(case.extra)


def _unique(placed: Iterable[tuple[Where, Case]], file: str) -> tuple[Case, ...]:
    seen: dict[str, Where] = {}
    cases = []
    for where, case in placed:
        if case.id in seen:
            first = seen[case.id]
            came = f"{shown(case.id)} again (first on line {first.line})" if first.line else f"{shown(case.id)} again"
            raise input_error(where, "a case's id must be unique", "rename or remove one", came)
        seen[case.id] = where
        cases.append(case)
    if not cases:
        raise input_error(Where(file), "a labelled set must have at least one case", "add cases", "none")
    return tuple(cases)
