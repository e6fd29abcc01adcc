"""Records (shore): what a case, a chunk, a document and a hit may hold, and their faults (S6.1).

Every form of a table ends here: a line of JSON, a row of CSV, Parquet or a DataFrame is a record
with our names, and a model says what its fields may hold. A model's field has its remedy as
description. `Faults` gathers what is wrong, and stops a table once, with all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from raglab.decision.answer_text import ANSWERS_REMEDY, listed_answers
from raglab.store.files import (
    InputError,
    JsonLine,
    Where,
    canonical_text,
    input_error,
    shown_value,
)
from raglab.values import LONGEST_QUESTION, Case, Chunk, document_path
from raglab.words.characters import is_unicode, visible

MAX_NAME = 1000  # characters of an id, a source, a label, an entity, or the name of a tag
MAX_INTEGER = 2**31 - 1  # pages and options become 32-bit numbers
_KINDS = 100  # of faults that are told apart
_KINDS_SHOWN = 8  # of faults, in a message
_VALUES_SHOWN = 3  # of each kind
_NAMES_SHOWN = 10

Item = TypeVar("Item")
Model = TypeVar("Model", bound=BaseModel)


def shown_names(names: Iterable[str]) -> str:
    """Names as a message lists them, the first ten; further ones are counted."""
    first = [*names]
    more = f" and {len(first) - _NAMES_SHOWN} more" if len(first) > _NAMES_SHOWN else ""
    return ", ".join(first[:_NAMES_SHOWN]) + more


class Faults:
    """What is wrong with one input, which stops it once, with all of it."""

    def __init__(self, what: str = "rows") -> None:
        """Name what has faults, in the plural, for the message."""
        self._what = what
        self._kinds: dict[str, tuple[Where, str, dict[str, None]]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, where: Where, rule: str, remedy: str, value: str | None = None) -> None:
        """Note a fault; of the same rule the first place, some values and the count are shown."""
        rule = rule if rule in self._kinds or len(self._kinds) < _KINDS else "further rules"
        values = self._kinds.setdefault(rule, (where, remedy, {}))[2]
        self._counts[rule] += 1
        if value is not None and len(values) < _VALUES_SHOWN:
            values.setdefault(value)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._kinds)

    def stop(self) -> None:
        """Stop if there are any.

        Raises:
          InputError: the first whole, further kinds by place, rule and value; all are counted.
        """
        if not self:
            return
        texts = []
        for rule, (where, remedy, values) in [*self._kinds.items()][:_KINDS_SHOWN]:
            count = self._counts[rule]
            shown = ", ".join(values) + (f" ({count:,} {self._what})" if count > 1 else "")
            texts.append(str(input_error(where, rule, remedy, shown if values else None)))
        name = next(iter(self._kinds.values()))[0].file.partition(", row ")[0]
        more = [text.removeprefix(f"{name}, ").rpartition("; ")[0] for text in texts[1:]]
        if len(self._kinds) > _KINDS_SHOWN:
            more.append(f"{len(self._kinds) - _KINDS_SHOWN} more kinds of faults")
        raise InputError(visible("; also ".join([texts[0][:-1], *more]) + "."))

    def checked(self, value: Item | None) -> Item:
        """What was read without a fault.

        Raises:
          InputError: there are faults.
        """
        self.stop()
        return cast("Item", value)


def _must(holds: Callable[[Any], object], rule: str) -> AfterValidator:
    """Validator of a value that must hold a rule, which says so."""

    def check(value: Any) -> Any:  # noqa: ANN401 - of any field
        if holds(value):
            return value
        raise ValueError(rule)

    return AfterValidator(check)


def _is_source(source: str) -> object:
    path, mark, page = document_path(source).rpartition("#")
    is_page = path and page.isascii() and page.isdigit() and page.strip("0")
    return is_page or not mark or "/" in page


_UNICODE = _must(is_unicode, "must hold no half of a surrogate pair")
_FILLED = _must(str.strip, "must not be blank")
_SOURCE = _must(
    _is_source, "must be path or path#page, page an integer from 1, not its printed label"
)
_ANSWERS = _must(
    lambda value: value is None or listed_answers(value) is not None,
    "must be a text, a list of texts, or an object with text",
)
Text = Annotated[str, _UNICODE]
OptionalText = Text | None
FilledText = Annotated[Text, _FILLED]
Name = Annotated[str, Field(max_length=MAX_NAME), _UNICODE, _FILLED]
Question = Annotated[str, Field(max_length=LONGEST_QUESTION), _UNICODE]
Sources = Annotated[
    list[Annotated[Name, _SOURCE]] | None,
    Field(description="write a list, or a.md;b.md#2 with semicolons"),
]
Names = Annotated[list[Name] | None, Field(description="write a list, or Acme;Leeds")]
Tags = Annotated[dict[Text, Text] | None, Field(description='write {"domain": "home"}')]
From0 = Annotated[int | None, Field(ge=0, le=MAX_INTEGER)]
From1 = Annotated[int | None, Field(ge=1, le=MAX_INTEGER)]


_LABELS = "write ok, refuse or ambiguous; topics go into intent"


class Fields(BaseModel):
    """Fields of a record, strictly of their types."""

    model_config = ConfigDict(strict=True, extra="forbid")

    def stated(self, names: Iterable[str]) -> dict[str, Any]:
        """Those of some fields that are stated, lists as tuples."""
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name in names
            if (value := getattr(self, name)) is not None
        }


class CaseFields(Fields):
    """Fields of a question with its label."""

    query: Question
    expect_status: Annotated[
        Literal["ok", "refuse", "ambiguous"] | None,
        Field(description=_LABELS),
    ] = None
    expect_sources: Sources = None
    expect_sources_any: Sources = None
    min_sources: From0 = None
    selected_sources: Sources = None
    expect_option: From1 = None
    answer: OptionalText = None
    intent: OptionalText = None
    doctype: OptionalText = None
    split: OptionalText = None
    notes: OptionalText = None
    answers: Annotated[Any, _ANSWERS, Field(description=ANSWERS_REMEDY)] = None


class CaseRecord(CaseFields):
    """A labelled question; whatever else a record holds is kept in `extra`."""

    model_config = ConfigDict(extra="allow")
    id: Name


class LabelledRecord(CaseRecord):
    """A case of a labelled set."""

    expect_status: Annotated[Literal["ok", "refuse", "ambiguous"], Field(description=_LABELS)]


class PassageFields(Fields):
    """Fields of a passage beside its name and text."""

    source: Name | None = None
    page: Annotated[From1, Field(description="write a printed label into page_label")] = None
    page_label: OptionalText = None
    entities: Names = None
    section: Names = None


class ChunkRecord(PassageFields):
    """A passage of a corpus."""

    id: Name
    text: Annotated[FilledText, Field(description="fill it, or drop the row")]
    title: OptionalText = None
    tags: Tags = None


class PageRecord(Fields):
    """A page of a document."""

    page: Annotated[int, Field(ge=1, le=MAX_INTEGER)]
    label: OptionalText = None
    text: Text


class DocumentRecord(Fields):
    """A document by its pages."""

    source: Name
    title: OptionalText = None
    tags: Tags = None
    entities: Names = None
    pages: list[PageRecord]


Heads = Mapping[str, str]  # columns of a table by field
Columns = Heads | None  # our names -> those of a table, as its owner states them
CASE_FIELDS = tuple(name for name in Case._fields if name not in {"id", "extra"})
LINE_NAMES = {name: name for name in ("id", *CASE_FIELDS)}  # of a case as a line of JSON
CASE_NAMES = LINE_NAMES | {"case_id": "id", "question": "query", "label": "expect_status"}
CHUNK_NAMES = {name: name for name in ChunkRecord.model_fields if name != "title"}
CHUNK_NAMES |= {"chunk_id": "id", "hit_id": "id"}


def read_record(
    line: JsonLine, model: type[Model], faults: Faults, heads: Heads | None = None
) -> Model | None:
    """Fields of a record; None where they break a rule, which is noted.

    Args:
      line: a record with our names.
      heads: columns of a table by field, for messages.
    """
    try:
        return model.model_validate(line.record)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            faults.add(*_broken_rule(detail, model, line, heads))
    return None


def _broken_rule(
    detail: Mapping[str, Any], model: type[BaseModel], line: JsonLine, heads: Heads | None
) -> tuple[Where, str, str, str]:
    """Place, rule, remedy and value of what pydantic says of a field."""
    names, value = [*map(str, detail["loc"])] or ["the record"], detail["input"]
    info, where = model.model_fields.get(names[0]), line.where
    rule = re.sub(r"^\w+ should\b", "must", detail["msg"].removeprefix("Value error, "))
    remedy = (info and info.description) or "correct it, or leave it out"
    is_missing = detail["type"] == "missing"
    if heads is not None:
        where = Where(f"{where.file}, column {heads.get(names[0], names[-1])}")
    if detail["type"] == "extra_forbidden":
        rule, remedy = "is no field of it", "take it out, or put it under tags"
    elif value is None or (is_missing and heads is not None):
        rule, remedy, value = "must not be missing", "fill it, or drop the row", None
    elif is_missing:
        rule, remedy, value = "is required", f"add {names[-1]}", ", ".join(map(str, value))
    return where, f"{'.'.join(names)} {rule}", remedy, shown_value(value)


def read_case(
    line: JsonLine,
    faults: Faults,
    heads: Heads | None = None,
    model: type[CaseRecord] = CaseRecord,
) -> tuple[Where, Case] | None:
    """Case of a record with its place; None where it breaks a rule, which is noted.

    Args:
      line: a record with our names.
      heads: columns of a table by field, for messages.
    """
    line = _named(line, "id")
    record = read_record(line, model, faults, heads)
    if record is None:
        return None
    return line.where, Case(
        record.id,
        **record.stated(CASE_FIELDS),
        extra={key: value for key, value in line.record.items() if key not in LINE_NAMES},
    )


def read_chunk(
    line: JsonLine, faults: Faults, heads: Heads | None = None
) -> tuple[Where, Chunk] | None:
    """Chunk of a record with its place; without a source it is a document of its own."""
    line = _named(line, "id")
    record = read_record(line, ChunkRecord, faults, heads)
    if record is None:
        return None
    fields = {"source": flat_name(record.id)} | record.stated(PassageFields.model_fields)
    return line.where, Chunk(record.id, record.text, tags=titled_tags(record), **fields)


def read_document_line(line: JsonLine) -> tuple[Where, DocumentRecord, dict[str, str]]:
    """Document of a line with its place and tags.

    Raises:
      InputError: it breaks a rule.
    """
    faults = Faults()
    line = _named(line, "source")
    record = read_record(line, DocumentRecord, faults)
    tags = {} if record is None else titled_tags(record)
    return line.where, faults.checked(record), tags


def titled_tags(record: ChunkRecord | DocumentRecord) -> dict[str, str]:
    """Tags of a record, its title among them; one that the tags state too is theirs."""
    titled = {} if record.title is None else {"title": record.title}
    return titled | (record.tags or {})


def _named(line: JsonLine, key: str) -> JsonLine:
    """A record with its name in its place."""
    name = line.record.get(key)
    return line._replace(where=line.where._replace(id=name)) if isinstance(name, str) else line


def parse_case(record: Mapping[str, Any], file: str = "record") -> Case:
    """Case of a record, with or without a label.

    Raises:
      InputError: a field breaks a rule.
    """
    faults = Faults()
    return faults.checked(read_case(JsonLine(Where(file), record), faults))[1]


def case_record(case: Case, where: Where | None = None) -> dict[str, Any]:
    """Record of a case as `save_cases` writes it, without fields at their defaults.

    Raises:
      InputError: a key of `extra` has the name of a field.
    """
    if clash := sorted(LINE_NAMES.keys() & case.extra.keys()):
        raise input_error(
            where or Where("case", id=case.id),
            "extra must not hold the name of a field",
            "rename the key",
            shown_value(clash[0]),
        )
    fields = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in case._asdict().items()
        if key == "expect_status" or value != Case._field_defaults.get(key)
    }
    fields.pop("extra", None)
    return fields | dict(case.extra)


def hash_cases(cases: Iterable[Case]) -> str:
    """SHA-256, 64 hex digits, over the canonical JSON of all fields of the cases in their order."""
    digest = sha256()
    for case in cases:
        fields = {**case._asdict(), "extra": dict(case.extra)}
        digest.update(canonical_text(fields, Where("cases", id=case.id)).encode() + b"\n")
    return digest.hexdigest()


def flat_name(name: str) -> str:
    """A title or id that can stand as a file name in `file#page`: slashes and `#` percent-encoded.

    Example:
      >>> flat_name("AC/DC")
      'AC%2FDC'
    """
    return name.replace("/", "%2F").replace("\\", "%5C").replace("#", "%23")
