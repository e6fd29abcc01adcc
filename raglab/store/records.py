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

MAX_NAME_CHARACTERS = (
    1000  # characters of an id, a source, a label, an entity, or the name of a tag
)
MAX_INTEGER = 2**31 - 1  # pages and options become 32-bit numbers
_MAX_FAULT_KINDS = 100  # of faults that are told apart
_SHOWN_FAULT_KINDS = 8  # of faults, in a message
_SHOWN_FAULT_VALUES = 3  # of each kind
_SHOWN_NAMES = 10

Item = TypeVar("Item")
Model = TypeVar("Model", bound=BaseModel)


def shown_names(names: Iterable[str]) -> str:
    """Names as a message lists them, the first ten; further ones are counted."""
    listed_names = [*names]
    further_count = (
        f" and {len(listed_names) - _SHOWN_NAMES} more" if len(listed_names) > _SHOWN_NAMES else ""
    )
    return ", ".join(listed_names[:_SHOWN_NAMES]) + further_count


class Faults:
    """What is wrong with one input, which stops it once, with all of it."""

    def __init__(self, what: str = "rows") -> None:
        """Name what has faults, in the plural, for the message."""
        self._what = what
        self._kinds: dict[str, tuple[Where, str, dict[str, None]]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, location: Where, rule: str, remedy: str, example: str | None = None) -> None:
        """Note a fault; of the same rule the first place, some values and the count are shown."""
        rule = (
            rule if rule in self._kinds or len(self._kinds) < _MAX_FAULT_KINDS else "further rules"
        )
        values = self._kinds.setdefault(rule, (location, remedy, {}))[2]
        self._counts[rule] += 1
        if example is not None and len(values) < _SHOWN_FAULT_VALUES:
            values.setdefault(example)

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
        fault_texts = []
        for rule, (location, remedy, example_values) in [*self._kinds.items()][:_SHOWN_FAULT_KINDS]:
            n_faults = self._counts[rule]
            shown_examples = ", ".join(example_values) + (
                f" ({n_faults:,} {self._what})" if n_faults > 1 else ""
            )
            fault_texts.append(
                str(input_error(location, rule, remedy, shown_examples if example_values else None))
            )
        source_name = next(iter(self._kinds.values()))[0].file.partition(", row ")[0]
        further_texts = [
            fault_text.removeprefix(f"{source_name}, ").rpartition("; ")[0]
            for fault_text in fault_texts[1:]
        ]
        if len(self._kinds) > _SHOWN_FAULT_KINDS:
            further_texts.append(f"{len(self._kinds) - _SHOWN_FAULT_KINDS} more kinds of faults")
        raise InputError(visible("; also ".join([fault_texts[0][:-1], *further_texts]) + "."))

    def checked(self, checked_value: Item | None) -> Item:
        """What was read without a fault.

        Raises:
          InputError: there are faults.
        """
        self.stop()
        return cast("Item", checked_value)


def _must(holds_rule: Callable[[Any], object], rule: str) -> AfterValidator:
    """Validator of a value that must hold a rule, which says so."""

    def check(field_value: Any) -> Any:  # noqa: ANN401 - of any field
        if holds_rule(field_value):
            return field_value
        raise ValueError(rule)

    return AfterValidator(check)


def _is_source(source: str) -> object:
    path, separator, page = document_path(source).rpartition("#")
    is_page = path and page.isascii() and page.isdigit() and page.strip("0")
    return is_page or not separator or "/" in page


_UNICODE_RULE = _must(is_unicode, "must hold no half of a surrogate pair")
_FILLED_RULE = _must(str.strip, "must not be blank")
_SOURCE_RULE = _must(
    _is_source, "must be path or path#page, page an integer from 1, not its printed label"
)
_ANSWERS = _must(
    lambda value: value is None or listed_answers(value) is not None,
    "must be a text, a list of texts, or an object with text",
)
Text = Annotated[str, _UNICODE_RULE]
OptionalText = Text | None
FilledText = Annotated[Text, _FILLED_RULE]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS), _UNICODE_RULE, _FILLED_RULE]
Question = Annotated[str, Field(max_length=LONGEST_QUESTION), _UNICODE_RULE]
Sources = Annotated[
    list[Annotated[Name, _SOURCE_RULE]] | None,
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
            field_name: tuple(value) if isinstance(value, list) else value
            for field_name in names
            if (value := getattr(self, field_name)) is not None
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
    record_line: JsonLine,
    record_model: type[Model],
    faults: Faults,
    heads_by_field: Heads | None = None,
) -> Model | None:
    """Fields of a record; None where they break a rule, which is noted.

    Args:
      record_line: a record with our names.
      heads_by_field: columns of a table by field, for messages.
    """
    try:
        return record_model.model_validate(record_line.record)
    except ValidationError as error:
        for validation_error in error.errors(include_url=False):
            faults.add(*_broken_rule(validation_error, record_model, record_line, heads_by_field))
    return None


def _broken_rule(
    validation_error: Mapping[str, Any],
    record_model: type[BaseModel],
    record_line: JsonLine,
    heads_by_field: Heads | None,
) -> tuple[Where, str, str, str]:
    """Place, rule, remedy and value of what pydantic says of a field."""
    field_path = [*map(str, validation_error["loc"])] or ["the record"]
    offending_value = validation_error["input"]
    field_info = record_model.model_fields.get(field_path[0])
    location = record_line.where
    rule = re.sub(r"^\w+ should\b", "must", validation_error["msg"].removeprefix("Value error, "))
    remedy = (field_info and field_info.description) or "correct it, or leave it out"
    is_missing = validation_error["type"] == "missing"
    if heads_by_field is not None:
        location = Where(
            f"{location.file}, column {heads_by_field.get(field_path[0], field_path[-1])}"
        )
    if validation_error["type"] == "extra_forbidden":
        rule = "is no field of it"
        remedy = "take it out, or put it under tags"
    elif offending_value is None or (is_missing and heads_by_field is not None):
        rule, remedy, offending_value = "must not be missing", "fill it, or drop the row", None
    elif is_missing:
        rule, remedy, offending_value = (
            "is required",
            f"add {field_path[-1]}",
            ", ".join(map(str, offending_value)),
        )
    return location, f"{'.'.join(field_path)} {rule}", remedy, shown_value(offending_value)


def read_case(
    record_line: JsonLine,
    faults: Faults,
    heads_by_field: Heads | None = None,
    record_model: type[CaseRecord] = CaseRecord,
) -> tuple[Where, Case] | None:
    """Case of a record with its place; None where it breaks a rule, which is noted.

    Args:
      record_line: a record with our names.
      heads_by_field: columns of a table by field, for messages.
    """
    record_line = _named(record_line, "id")
    case_fields = read_record(record_line, record_model, faults, heads_by_field)
    if case_fields is None:
        return None
    return record_line.where, Case(
        case_fields.id,
        **case_fields.stated(CASE_FIELDS),
        extra={
            field_name: value
            for field_name, value in record_line.record.items()
            if field_name not in LINE_NAMES
        },
    )


def read_chunk(
    record_line: JsonLine, faults: Faults, heads_by_field: Heads | None = None
) -> tuple[Where, Chunk] | None:
    """Chunk of a record with its place; without a source it is a document of its own."""
    record_line = _named(record_line, "id")
    chunk_fields = read_record(record_line, ChunkRecord, faults, heads_by_field)
    if chunk_fields is None:
        return None
    passage_fields = {"source": flat_name(chunk_fields.id)} | chunk_fields.stated(
        PassageFields.model_fields
    )
    return record_line.where, Chunk(
        chunk_fields.id, chunk_fields.text, tags=titled_tags(chunk_fields), **passage_fields
    )


def read_document_line(record_line: JsonLine) -> tuple[Where, DocumentRecord, dict[str, str]]:
    """Document of a line with its place and tags.

    Raises:
      InputError: it breaks a rule.
    """
    faults = Faults()
    record_line = _named(record_line, "source")
    document_record = read_record(record_line, DocumentRecord, faults)
    document_tags = {} if document_record is None else titled_tags(document_record)
    return record_line.where, faults.checked(document_record), document_tags


def titled_tags(record: ChunkRecord | DocumentRecord) -> dict[str, str]:
    """Tags of a record, its title among them; one that the tags state too is theirs."""
    title_tag = {} if record.title is None else {"title": record.title}
    return title_tag | (record.tags or {})


def _named(record_line: JsonLine, name_field: str) -> JsonLine:
    """A record with its name in its place."""
    record_name = record_line.record.get(name_field)
    return (
        record_line._replace(where=record_line.where._replace(id=record_name))
        if isinstance(record_name, str)
        else record_line
    )


def parse_case(record: Mapping[str, Any], file_name: str = "record") -> Case:
    """Case of a record, with or without a label.

    Raises:
      InputError: a field breaks a rule.
    """
    faults = Faults()
    return faults.checked(read_case(JsonLine(Where(file_name), record), faults))[1]


def case_record(case: Case, location: Where | None = None) -> dict[str, Any]:
    """Record of a case as `save_cases` writes it, without fields at their defaults.

    Raises:
      InputError: a key of `extra` has the name of a field.
    """
    if clashing_keys := sorted(LINE_NAMES.keys() & case.extra.keys()):
        raise input_error(
            location or Where("case", id=case.id),
            "extra must not hold the name of a field",
            "rename the key",
            shown_value(clashing_keys[0]),
        )
    case_fields = {
        field_name: list(field_value) if isinstance(field_value, tuple) else field_value
        for field_name, field_value in case._asdict().items()
        if field_name == "expect_status" or field_value != Case._field_defaults.get(field_name)
    }
    case_fields.pop("extra", None)
    return case_fields | dict(case.extra)


def hash_cases(cases: Iterable[Case]) -> str:
    """SHA-256, 64 hex digits, over the canonical JSON of all fields of the cases in their order."""
    cases_digest = sha256()
    for case in cases:
        case_fields = {**case._asdict(), "extra": dict(case.extra)}
        cases_digest.update(
            canonical_text(case_fields, Where("cases", id=case.id)).encode() + b"\n"
        )
    return cases_digest.hexdigest()


def flat_name(title: str) -> str:
    """A title or id that can stand as a file name in `file#page`: slashes and `#` percent-encoded.

    Example:
      >>> flat_name("AC/DC")
      'AC%2FDC'
    """
    return title.replace("/", "%2F").replace("\\", "%5C").replace("#", "%23")
