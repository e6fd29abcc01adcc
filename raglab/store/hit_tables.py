"""Tables of hits (shore): their cases, passages, arms and depths, and the numbers of every row.

A row is a hit of a case, or says that its case found nothing. Rows of one case agree in what they
say of it, rows of one passage likewise: the first states it. Further columns stay with the case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, create_model

from raglab.arguments.plain_arrays import ROUNDING, within_range
from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import ANSWER_RIGHT, ANSWERS, JUDGE_RIGHT
from raglab.signals import DECLARED, Signal, own_signal
from raglab.store.case_labels import labelled_set
from raglab.store.cells import json_value, number, utc_text
from raglab.store.files import Where, input_error, shown_value
from raglab.store.records import (
    CASE_FIELDS,
    CASE_NAMES,
    CaseFields,
    Faults,
    Name,
    PassageFields,
    Tags,
    Text,
    flat_name,
    read_record,
)
from raglab.store.tables import (
    LOOSE_NAMES,
    NEAR_NAMES,
    Places,
    Table,
    near_fields,
    place_columns,
    read_table,
    table_lines,
)
from raglab.store.trace_checks import MOST_DEPTHS
from raglab.values import TAG_KEYS, Case, Chunk

if TYPE_CHECKING:
    import pandas as pd

Score = Literal["unstated", "cosine", "l2", "probability"]
# scale of a score that is read as a cosine because it lies in its range
UNSTATED: Final = "unstated"
MEASURE_OF_SCORE = {UNSTATED: "cosine", "cosine": "cosine", "l2": "l2", "probability": "s_rerank"}
_DECLARE = "declare it: score=None, signals={\"own\": {\"column\": …, \"higher\": \"surer\", …}}"
_COSINE = f'a distance? write score="l2"; a percentage? divide it by 100; else {_DECLARE}'
_SHARE = f"a percentage? divide it by 100; a logit? put it into s_raw; else {_DECLARE}"
_DISTANCE = "give the squared distance of unit vectors; a cosine? write score=\"cosine\""
_EMPTY = "leave the cell empty where it is not known"
# Range of each measurement, and what numbers beyond it may be.
MEASURES: Mapping[str, tuple[float, float, str]] = {
    "cosine": (-1.0, 1.0, _COSINE),
    "l2": (0.0, 4.0, _DISTANCE),
    "s_rerank": (0.0, 1.0, _SHARE),
    "s_hybrid": (0.0, 1.0, "divide a fused score by its possible maximum"),
    "s_raw": (-1e308, 1e308, _EMPTY),
    "anchor_similarity": (-1.0, 1.0, _EMPTY),
    "signature_similarity": (-1.0, 1.0, _EMPTY),
}
# of a case, the same in each of its rows
OF_CASE = (
    *(field for field in CASE_FIELDS if field not in {"query", "expect_status"}),
    ANSWERS,
)
_LOGGED = ("at", "groups", ANSWER_RIGHT, JUDGE_RIGHT)
_PASSAGE = ("text", "source", "page", "page_label", *TAG_KEYS, "entities", "section")
_PLACES = ("case_id", "hit_id", "arm", "depth", "rank", "score")
HIT_NAMES = {name: field for name, field in CASE_NAMES.items() if field != "id"} | {
    name: name for name in (ANSWERS, *_LOGGED, *_PASSAGE, *_PLACES, *MEASURES)
}
# What other systems call the columns of hits, before what they call fields of cases.
_NEAR_NAMES: Mapping[str, tuple[str, ...]] = {
    **{name: fields for name, fields in NEAR_NAMES.items() if name not in LOOSE_NAMES},
    **{name: LOOSE_NAMES[name] for name in ("prompt", "utterance", "input", "status", "sources")},
    **dict.fromkeys(("path", "file_path", "url", "uri", "file", "filename"), ("source",)),
    **dict.fromkeys(("document", "document_id", "doc", "doc_id"), ("source",)),
    **dict.fromkeys(("chunk", "chunk_id", "passage_id", "node_id", "hit"), ("hit_id",)),
    **dict.fromkeys(("passage", "content", "chunk_text", "page_content", "context"), ("text",)),
    **dict.fromkeys(("query_id", "question_id", "qid"), ("case_id",)),
    **dict.fromkeys(("timestamp", "time", "created_at"), ("at",)),
    **dict.fromkeys(("similarity", "cosine_similarity", "relevance"), ("score",)),
    "distance": ("score", "l2"),
    "id": ("case_id", "hit_id"),
}
_NAME, _COLUMNS_SHOWN = 40, 200  # characters of a column's name, and of all names, in a message
Number = Annotated[float | None, BeforeValidator(number)]
Json = Annotated[Any, BeforeValidator(json_value)]


class HitRecord(CaseFields, PassageFields):
    """A row of a table of hits, beside its numbers and groups."""

    case_id: Name | None = None
    hit_id: Name | None = None
    text: Text | None = None
    domain: Text | None = None
    doc_type: Text | None = None
    product: Text | None = None
    vendor: Text | None = None
    version: Text | None = None
    arm: Name | None = None
    depth: Annotated[int | None, Field(ge=0, lt=MOST_DEPTHS)] = None
    rank: Annotated[int | None, Field(ge=0, description="number hits of a case from 0")] = None
    at: Annotated[str | None, BeforeValidator(lambda at: at and utc_text(at))] = None
    groups: Tags = None
    answer_right: Json = None
    judge_right: Json = None


class SignalColumn(NamedTuple):
    """A signal of a frame: what it is, and its column."""

    signal: Signal
    column: str


class HitRows(NamedTuple):
    """Rows of a table of hits.

    heads: columns by field; of the n-th signal `signal_n`. cases, chunks, arms: in the order of
    their first rows. case, chunk, arm, depth: of each row, [rows]; the chunk is -1 where nothing
    was found. numbers: measurements, ranks and signals by field, NaN where missing, [rows].
    """

    table: Table
    heads: Mapping[str, str]
    cases: tuple[Case, ...]
    chunks: tuple[Chunk, ...]
    arms: tuple[str, ...]
    case: NDArray[np.int64]
    chunk: NDArray[np.int64]
    arm: NDArray[np.int64]
    depth: NDArray[np.int64]
    numbers: Mapping[str, NDArray[np.float64]]

    def number(self, field: str) -> NDArray[np.float64]:
        """Numbers of a field, all NaN where the table has no such column."""
        return self.numbers.get(field, np.full(self.table.size, np.nan))

    def check(
        self,
        wrong: NDArray[np.bool_],
        field: str,
        rule: str,
        remedy: str,
        value: Callable[[int], str],
    ) -> None:
        """Stop at the first of some rows, and count them.

        Raises:
          InputError: a row is wrong.
        """
        faults = Faults()
        for row in map(int, np.flatnonzero(wrong)):
            faults.add(self.table.where(row, self.heads[field]), rule, remedy, value(row))
        faults.stop()


class _Layout(NamedTuple):
    """What the columns of a table of hits are.

    heads: columns by field. further: other columns, kept with the case. ranges: of numbers by
    field. by: the field that tells cases apart. measured: the field that a score is of.
    """

    table: Table
    places: Places
    ranges: Mapping[str, tuple[float, float, str]]
    by: str
    of_case: Sequence[str]
    of_hit: Sequence[str]
    groups: Mapping[str, str]

    @property
    def model(self) -> type[HitRecord]:
        """Model of a row, with its columns of numbers and groups."""
        fields: dict[str, Any] = {
            field: (Number, Field(None, ge=low - ROUNDING, le=high + ROUNDING, description=remedy))
            for field, (low, high, remedy) in self.ranges.items()
        }
        fields |= dict.fromkeys(self.groups, (Any, None))
        for field in {self.by, "arm", "depth"}.intersection(self.places.heads):
            kind = HitRecord.model_fields[field].annotation
            fields[field] = (Annotated[kind, AfterValidator(_there)], ...)
        return create_model("HitRow", __base__=HitRecord, **fields)


class _Group:
    """Rows of a case or passage, which agree with the first of them in some fields."""

    def __init__(self, what: str, fields: Iterable[str], layout: _Layout, faults: Faults) -> None:
        """Take the fields, of which those without a column are passed over."""
        self.heads, self.table = layout.places.heads, layout.table
        self.fields = [field for field in fields if field in self.heads]
        self.what, self.faults = what, faults
        self.numbers: dict[str, int] = {}
        self.first: list[tuple[int, Any]] = []

    def number(self, row: int, name: str, record: HitRecord) -> int:
        """Number of a row's case or passage."""
        known = self.numbers.setdefault(name, len(self.first))
        if known == len(self.first):
            self.first.append((row, record))
            return known
        start, first = self.first[known]
        for field in self.fields:
            value, before = getattr(record, field), getattr(first, field)
            if value != before:
                rule = f"{self.what} must have one {field}"
                shown = f"{shown_value(value)} after {shown_value(before)} in row {start}"
                where = self.table.where(row, self.heads[field])
                self.faults.add(where, rule, "correct it, or tell them apart by their ids", shown)
        return known


def _there(value: object) -> object:
    if value is None:
        msg = "must not be missing"
        raise ValueError(msg)
    return value


def signal_columns(signals: Mapping[str, Mapping[str, str]], name: str) -> tuple[SignalColumn, ...]:
    """Signals of a frame as they are stated.

    Raises:
      InputError: a signal does not state what it is.
    """
    if not isinstance(signals, Mapping):
        rule = "signals must state each signal by its name"
        remedy = 'write {"my_score": {"higher": …, "unit": …}}'
        raise input_error(Where(name), rule, remedy, shown_value(signals))
    columns = []
    for signal, stated in signals.items():
        where, needed = Where(name, id=f"signal {signal}"), {"higher", "unit"}
        keys = stated.keys() if isinstance(stated, Mapping) else set()
        if not needed <= keys <= {"column", *DECLARED}:
            optional = ", ".join(sorted({"column", *DECLARED} - needed))
            rule = f"a signal must state higher and unit, and may state {optional}"
            remedy = 'write {"column": "my_score", "higher": "surer", "unit": "probability"}'
            raise input_error(where, rule, remedy, shown_value(", ".join(map(str, keys))))
        column = stated.get("column", signal)
        if not isinstance(column, str):
            rule = "column must name a column"
            raise input_error(where, rule, "correct it", shown_value(column))
        declared: dict[str, Any] = {key: stated[key] for key in DECLARED & keys}
        columns.append(SignalColumn(own_signal(signal, **declared), column))
    return tuple(columns)


def read_hits(
    frame: pd.DataFrame,
    columns: Mapping[str, str] | None,
    score: Score | None,
    signals: Sequence[SignalColumn],
    groups: Sequence[str],
    name: str,
) -> HitRows:
    """Rows of a table of hits, see `raglab.store.frames.trace_from_frame`.

    Raises:
      InputError: it is no table of hits; all faults of its cells at once.

    Warns:
      UserWarning: columns are kept in `extra` of the cases, or left out.
    """
    where, faults = Where(name), Faults()
    if score not in (*get_args(Score), None):
        rule = f"score must be one of {', '.join(get_args(Score)[1:])}, or None"
        raise input_error(where, rule, f"leave it out, or {_DECLARE}", shown_value(score))
    mapped = columns.values() if isinstance(columns, Mapping) else ()
    table = read_table(frame, {*HIT_NAMES, *map(str, mapped)}, name=name)
    _warn_of_index(frame, table)
    places = place_columns(
        table,
        HIT_NAMES,
        columns,
        faults,
        required=("query", "hit_id", *(["score"] if score else [])),
        stated=[*(signal.column for signal in signals), *groups],
        near_names=_NEAR_NAMES,
    )
    layout = _layout(table, places, score, signals, groups, faults)
    faults.stop()
    return _read_rows(layout, faults)


def _layout(
    table: Table,
    places: Places,
    score: Score | None,
    signals: Sequence[SignalColumn],
    groups: Sequence[str],
    faults: Faults,
) -> _Layout:
    """What the columns are, once none of scores, signals and groups is missing or twice."""
    where, measure = Where(table.name), MEASURE_OF_SCORE[score] if score else ""
    # a signal or group may be of a column that is one of ours too, so it has a field of its own
    own = {f"signal_{n}": signal.column for n, signal in enumerate(signals)}
    by_group = {f"group_{n}": group for n, group in enumerate(groups)}
    heads = {**places.heads, **own, **by_group}
    for column in (*own.values(), *by_group.values()):
        if column not in table.columns:
            remedy = "correct its name in signals or groups"
            there = shown_value(", ".join(table.columns), _COLUMNS_SHOWN)
            faults.add(where, f"the column {cut_name(column)} is required", remedy, f"only {there}")
    if not score and "score" in heads and heads.pop("score") not in own.values():
        rule = "score=None says that there is no column score"
        faults.add(where, rule, "say what it holds by score or signals, or drop it", "one")
    if measure in heads:
        rule = f"score={score!r} is the {measure}, which must be given once"
        faults.add(where, rule, "say what the score is, or drop a column", f"{measure} and score")
    _check_kinds(table, heads, faults)
    ranges = {field: MEASURES[field] for field in MEASURES if field in heads}
    ranges |= {"score": MEASURES[measure]} if measure else {}
    of_query = []
    for field, (signal, _) in zip(own, signals, strict=True):
        ranges[field] = (signal.unit.low, signal.unit.high, _EMPTY)
        of_query += [field] if signal.stage == "query" else []
    of_hit = [*_PASSAGE, "rank", *(field for field in ranges if field not in of_query)]
    return _Layout(
        table,
        places._replace(heads=heads),
        ranges,
        "case_id" if "case_id" in heads else "query",
        ("query", "expect_status", *OF_CASE, *_LOGGED, *of_query, *by_group),
        [field for field in of_hit if field in heads],
        by_group,
    )


def _check_kinds(table: Table, heads: Mapping[str, str], faults: Faults) -> None:
    """Note columns of names in which a text 1 beside an integer 1 would be one name."""
    for field in {"case_id", "hit_id", "arm"}.intersection(heads):
        kinds: dict[bool, int] = {}
        for row, cell in enumerate(table.columns[heads[field]]):
            if cell is not None:
                kinds.setdefault(isinstance(cell, str | UUID), row)
        if len(kinds) > 1:
            row, rule = max(kinds.values()), f"{field} must be all strings or all integers"
            value = shown_value(table.columns[heads[field]][row])
            faults.add(table.where(row, heads[field]), rule, "convert the column", value)


def _read_rows(layout: _Layout, faults: Faults) -> HitRows:
    """Rows whose columns are known."""
    table, heads, model = layout.table, layout.places.heads, layout.model
    cases = _Group("a case", layout.of_case, layout, faults)
    passages = _Group("a hit_id", _PASSAGE, layout, faults)
    arms: dict[str, int] = {}
    places: list[tuple[int, int, int, int]] = []
    fields = [*layout.ranges, *(["rank"] if "rank" in heads else [])]
    numbers: dict[str, list[float | None]] = {field: [] for field in fields}
    further: dict[int, list[Mapping[str, Any]]] = {}
    for row, (line, others) in enumerate(table_lines(table, layout.places, faults)):
        record = read_record(line, model, faults, heads)
        if record is None:
            continue
        if record.hit_id is None:
            _check_nothing(layout, row, record, faults)
        elif "score" in layout.ranges and getattr(record, "score") is None:
            rule, remedy = "a hit must have a score", "drop the row, or empty its hit_id"
            faults.add(table.where(row, heads["score"]), rule, remedy, "a missing one")
        case = cases.number(row, getattr(record, layout.by), record)
        hit = record.hit_id
        chunk = -1 if hit is None else passages.number(row, hit, record)
        arm = arms.setdefault(record.arm or table.name, len(arms))
        places.append((case, chunk, arm, record.depth or 0))
        for field, values in numbers.items():
            values.append(getattr(record, field))
        if others:
            further.setdefault(case, []).append(others)
    built = labelled_set(_placed_cases(layout, cases, further), table.name, faults=faults)
    arrays = {field: np.array(values, dtype=np.float64) for field, values in numbers.items()}
    for field, (low, high, _) in layout.ranges.items():
        label = f"{table.name}: {heads[field]}"
        arrays[field] = within_range(arrays[field], low, high, label)
    chunks = zip(passages.numbers, passages.first, strict=True)
    return HitRows(
        table,
        heads,
        built,
        tuple(_chunk(name, record) for name, (_, record) in chunks),
        tuple(arms),
        *np.array(places, dtype=np.int64).T,
        arrays,
    )


def _check_nothing(layout: _Layout, row: int, record: HitRecord, faults: Faults) -> None:
    """Note what a row without a passage says of one: it says that its case found nothing."""
    for field in layout.of_hit:
        value = getattr(record, field)
        if value is not None:
            rule = f"a row without hit_id says that nothing was found, and must have no {field}"
            where = layout.table.where(row, layout.places.heads[field])
            faults.add(where, rule, "fill hit_id, or empty the cell", shown_value(value))


def _placed_cases(
    layout: _Layout, cases: _Group, further: Mapping[int, Sequence[Mapping[str, Any]]]
) -> list[tuple[Where, Case]]:
    """Cases of the first rows, with the further columns of all their rows."""
    placed = []
    for number, (name, (row, record)) in enumerate(zip(cases.numbers, cases.first, strict=True)):
        case_id = name if layout.by == "case_id" else f"q{number + 1}"
        extra = {field: getattr(record, field) for field in (*_LOGGED, ANSWERS)}
        groups = {**(record.groups or {})}
        for field, group in layout.groups.items():
            value = getattr(record, field)
            groups |= {} if value is None else {group: str(value)}
        extra["groups"] = groups if groups or record.groups is not None else None
        extra |= _further_facts(layout.places.further, further.get(number, ()))
        known = {key: value for key, value in extra.items() if value is not None}
        placed.append((layout.table.where(row)._replace(id=case_id), record.case(case_id, known)))
    return placed


def _further_facts(
    heads: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """Further columns of a case: one value where its rows agree, else one of each row."""
    for head in heads:
        values = [row[head] for row in rows]
        if any(value is not None for value in values):
            yield head, values[0] if all(value == values[0] for value in values) else values


def _chunk(name: str, record: HitRecord) -> Chunk:
    tags = {key: value for key in TAG_KEYS if (value := getattr(record, key)) is not None}
    return Chunk(
        chunk_id=name,
        text=record.text or "",
        source=record.source or flat_name(name),
        page=record.page,
        page_label=record.page_label,
        tags=tags,
        entities=tuple(record.entities or ()),
        section=tuple(record.section or ()),
    )


def cut_name(column: str) -> str:
    """Name of a column, cut for a message."""
    return column if len(column) <= _NAME else f"{column[:_NAME]}..."


def _warn_of_index(frame: pd.DataFrame, table: Table) -> None:
    """Warn of an index that looks like a column which the frame lacks; it is not read."""
    lacking = {*HIT_NAMES.values()} - {HIT_NAMES.get(head) for head in table.columns}
    for name in frame.index.names:
        if isinstance(name, str) and name not in table.columns:
            fields = near_fields(name, HIT_NAMES, lacking, _NEAR_NAMES)
            if fields:
                warn_user(
                    f"{table.name}: the index {shown_value(name)} is not read, though it looks "
                    f"like {' or '.join(fields)}; name the index so where it is."
                )
