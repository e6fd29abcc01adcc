"""Tables of hits (shore): columns that a frame of hits may have, and what its rows are of.

A row is a hit of a case, or says that its case found nothing. Rows of one case agree in what they
say of it, rows of one passage likewise: the first states it. Further columns stay with the case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, ConfigDict

from raglab.arguments.plain_arrays import ROUNDING_TOLERANCE, within_range
from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import ANSWER_RIGHT, ANSWERS_KEY, JUDGE_RIGHT
from raglab.store.case_labels import labelled_set
from raglab.store.cells import json_value, utc_text
from raglab.store.files import JsonLine, Where, input_error, shown_value
from raglab.store.records import (
    CASE_FIELDS,
    CASE_NAMES,
    CaseFields,
    Columns,
    Faults,
    OptionalText,
    PassageFields,
    Tags,
    flat_name,
    read_record,
)
from raglab.store.tables import (
    NEAR_NAMES,
    NearNames,
    Places,
    SourceTable,
    place_columns,
    read_cells,
    read_table,
)
from raglab.store.trace_checks import MOST_DEPTHS
from raglab.values import TAG_KEYS, Case, Chunk
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

Score = Literal["unstated", "cosine", "l2", "probability"]
# scale of a score that is read as a cosine because it lies in its range
UNSTATED: Final = "unstated"
MEASURE_OF_SCORE = {UNSTATED: "cosine", "cosine": "cosine", "l2": "l2", "probability": "s_rerank"}
_DECLARE = "declare another scale by score=None and signals={…}"
EMPTY = "leave the cell empty"
SHARE = "a percentage? divide by 100"
_NUMBER = "write a number, 0.92 for 92 %; labels go into expect_sources_any"
# Range of each measurement, and what numbers beyond it may be.
MEASURES: Mapping[str, tuple[float, float, str]] = {
    "cosine": (-1.0, 1.0, f'a distance? score="l2"; a percentage? divide by 100; or {_DECLARE}'),
    "l2": (0.0, 4.0, 'square the distance of unit vectors; a cosine? score="cosine"'),
    "s_rerank": (0.0, 1.0, f"{SHARE}; a logit? use s_raw; or {_DECLARE}"),
    "s_hybrid": (0.0, 1.0, "divide it by its maximum"),
    "s_raw": (-1e308, 1e308, EMPTY),
    "anchor_similarity": (-1.0, 1.0, EMPTY),
    "signature_similarity": (-1.0, 1.0, EMPTY),
}
# of a case, the same in each of its rows
OF_CASE = (
    *(field for field in CASE_FIELDS if field not in {"query", "expect_status"}),
    ANSWERS_KEY,
)
_LOGGED = ("at", "groups", ANSWER_RIGHT, JUDGE_RIGHT)
_PASSAGE = ("text", "source", "page", "page_label", *TAG_KEYS, "entities", "section")
_OF_HIT = (*_PASSAGE, "rank", "score", *MEASURES)
HIT_NAMES = {name: field for name, field in CASE_NAMES.items() if field != "id"} | {
    name: name for name in (ANSWERS_KEY, *_LOGGED, *_OF_HIT, "case_id", "hit_id", "arm", "depth")
}
_OF_HITS: NearNames = {
    "source": ("path", "file_path", "url", "file", "document", "doc_id"),
    "hit_id": ("chunk", "chunk_id", "passage_id", "node_id", "id"),
    "text": ("passage", "content", "page_content", "context"),
    "case_id": ("query_id", "question_id", "qid", "id"),
    "score": ("similarity", "relevance", "distance"),
    "l2": ("distance",),
    "at": ("timestamp",),
}
# What other systems call the columns of hits, before what they call fields of cases.
_NEAR_NAMES: NearNames = {
    **_OF_HITS,
    **{
        field: [name for name in names if name not in {*HIT_NAMES}.union(*_OF_HITS.values())]
        for field, names in NEAR_NAMES.items()
    },
}
Numbers = NDArray[np.float64]
Positions = NDArray[np.int64]
_NAME = 40  # characters of a column in a message
Json = Annotated[Any, BeforeValidator(json_value)]


class _CaseRow(CaseFields):
    """What a row of hits says of its case."""

    at: Annotated[str | None, BeforeValidator(lambda at: at and utc_text(at))] = None
    groups: Tags = None
    answer_right: Json = None
    judge_right: Json = None


class _PassageRow(PassageFields):
    """What a row of hits says of its passage; all else are tags."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, OptionalText]
    text: OptionalText = None


class Numbering(NamedTuple):
    """Distinct names in the order of their first rows.

    Number of each row's, -1 where it is missing; first rows.
    """

    names: tuple[str, ...]
    of_row: Positions
    first: Positions


class HitTable(NamedTuple):
    """Rows of hits: the table, its columns by field, the cells of these, and its faults."""

    table: SourceTable
    places: Places
    cells: Mapping[str, Sequence[Any]]
    faults: Faults

    def add(self, row: int, field: str, rule: str, remedy: str, value: str | None = None) -> None:
        """Note a fault of a cell, which is the value unless another is given."""
        head = self.places.heads.get(field, field)
        self.faults.add(
            self.table.where(row, head),
            rule,
            remedy,
            shown_value(self.table.columns[head][row]) if value is None else value,
        )

    def check(self, wrong: NDArray[np.bool_], field: str, rule: str, remedy: str) -> None:
        """Note cells of some rows."""
        for row in map(int, np.flatnonzero(wrong)):
            self.add(row, field, rule, remedy)

    def numbered(self, field: str) -> Numbering:
        """Names of a column, numbered."""
        numbers: dict[str, int] = {}
        first: list[int] = []
        of_row = []
        for row, name in enumerate(self.cells[field]):
            if name is None:
                of_row.append(-1)
                continue
            if not (isinstance(name, str) or field == "query"):
                self.add(row, field, f"{field} must be a string or integer", "convert the column")
            if numbers.setdefault(str(name), len(first)) == len(first):
                first.append(row)
            of_row.append(numbers[str(name)])
        return Numbering(tuple(numbers), np.array(of_row), np.array(first, dtype=np.int64))

    def check_same(
        self, columns: Mapping[str, Sequence[Any]], numbering: Numbering, what: str
    ) -> None:
        """Note rows that differ in a column from the first row of their case or passage."""
        starts = [
            numbering.first[number] if number >= 0 else row
            for row, number in enumerate(numbering.of_row)
        ]
        for field, cells in columns.items():
            for row, start in enumerate(starts):
                if cells[row] != cells[start]:
                    shown = " after ".join(map(shown_value, (cells[row], cells[start])))
                    self.add(
                        row,
                        field,
                        f"{what} must have one {self.places.heads.get(field, field)}",
                        "correct it, or tell them apart by id",
                        f"{shown} in row {start}",
                    )

    def some(self, fields: Iterable[str]) -> dict[str, Sequence[Any]]:
        """Cells of those fields that the table has."""
        return {field: self.cells[field] for field in fields if field in self.cells}

    def numbers(
        self,
        field: str,
        cells: Sequence[Any] | None,
        bounds: tuple[float, float, str],
        kinds: Any = int | float | Decimal,  # noqa: ANN401 - a union of types
    ) -> Numbers:
        """Numbers of a column, NaN where a cell is missing or there is no such column.

        Args:
          bounds: least and greatest number, and the remedy of another.
        """
        low, high, remedy = bounds
        numbers = np.full(self.table.size, np.nan)
        for row, cell in enumerate(cells or ()):
            if cell is None or (isinstance(cell, Decimal) and cell.is_nan()):
                continue
            is_number = isinstance(cell, kinds) and not isinstance(cell, bool)
            if is_number and low - ROUNDING_TOLERANCE <= cell <= high + ROUNDING_TOLERANCE:
                numbers[row] = cell
                continue
            self.add(
                row,
                field,
                f"{field} must be a number from {low:g} to {high:g}",
                remedy if is_number else _NUMBER,
            )
        return within_range(numbers, low, high, f"{field} of {self.table.name}")

    def record(self, row: int, columns: Mapping[str, Sequence[Any]]) -> JsonLine:
        """Cells of a row by field."""
        return JsonLine(self.table.where(row), {name: of[row] for name, of in columns.items()})


def read_hits(
    frame: pd.DataFrame,
    columns: Columns,
    score: Score | None,
    stated: Sequence[str],
    name: str,
) -> HitTable:
    """Rows of a table of hits, see `raglab.store.frames.trace_from_frame`.

    Args:
      stated: columns of signals and groups.

    Raises:
      InputError: it is no table of hits.

    Warns:
      UserWarning: columns are left out, or read as missing.
    """
    where, faults, measure = Where(name), Faults(), MEASURE_OF_SCORE.get(score or "")
    if score not in (*get_args(Score), None):
        raise input_error(
            where,
            f"score must be one of {', '.join(get_args(Score)[1:])}, or None",
            f"leave it out, or {_DECLARE}",
            shown_value(score),
        )
    table = read_table(frame, HIT_NAMES, columns, name=name)
    # without a stated scale a column `score` is read by nobody, unless it is a signal
    names = {name: field for name, field in HIT_NAMES.items() if score or field != "score"}
    places = place_columns(
        name,
        table.columns,
        names,
        columns,
        faults,
        required=("query", "hit_id", *(["score"] if score else [])),
        stated=stated,
        near_names=_NEAR_NAMES,
    )
    for column in stated:
        if column not in table.columns:
            faults.add(where, f"the column {cut_name(column)} is required", "correct the name")
    if measure in places.heads:
        faults.add(
            where,
            f"score={score!r} is the {measure}, which must be given once",
            "say what the score is, or drop a column",
            "both",
        )
    faults.stop()
    cells = read_cells(table, places, faults, json_value, blank=("query", "text"))
    if places.further:
        shown = shown_value(", ".join(places.further))
        warn_user(visible(f"{name}: kept in extra of the cases, read by no gate: {shown}."))
    return HitTable(table, places, cells, faults)


def hit_cases(
    hits: HitTable, groups: Sequence[str], queries: Sequence[str]
) -> tuple[tuple[Case, ...], Numbering]:
    """Cases in the order of their first rows, and their numbers.

    Two cases of one question may have different labels, since hits are given for each.

    Args:
      groups: columns whose values group the cases, see `raglab.gating.case_groups.group_value`.
      queries: columns of signals of the query.
    """
    by = "case_id" if "case_id" in hits.cells else "query"
    numbering = hits.numbered(by)
    hits.check(numbering.of_row < 0, by, f"{by} must not be missing", "fill it, or drop the row")
    columns = hits.some(("query", "expect_status", *OF_CASE, *_LOGGED))
    raw = hits.table.columns
    of_groups = {group: raw[group] for group in groups}
    hits.check_same(
        columns | of_groups | {column: raw[column] for column in queries}, numbering, "a case"
    )
    rows: list[list[int]] = [[] for _ in numbering.names]
    for row, number in enumerate(numbering.of_row if hits.places.further else ()):
        rows[number].append(row)
    placed = []
    for number, (name, row) in enumerate(zip(numbering.names, numbering.first, strict=True)):
        line = hits.record(row, columns)
        record = read_record(line, _CaseRow, hits.faults, hits.places.heads)
        if record is None:
            continue
        case_id = name if by == "case_id" else f"q{number + 1}"
        extra = {field: getattr(record, field) for field in (*_LOGGED, ANSWERS_KEY)}
        by_group = {
            group: str(cells[row]) for group, cells in of_groups.items() if cells[row] is not None
        }
        extra |= {"groups": {**(record.groups or {}), **by_group}} if by_group else {}
        for head in hits.places.further:  # one value where the rows agree, else one of each row
            cells = [hits.cells[head][place] for place in rows[number]]
            if any(cell is not None for cell in cells):
                extra[head] = cells[0] if all(cell == cells[0] for cell in cells) else cells
        placed.append(
            (
                line.where._replace(id=case_id),
                Case(
                    case_id,
                    **record.stated(CASE_FIELDS),
                    extra={key: value for key, value in extra.items() if value is not None},
                ),
            )
        )
    return labelled_set(placed, hits.table.name, faults=hits.faults), numbering


def hit_chunks(hits: HitTable, of_signals: Iterable[str]) -> tuple[tuple[Chunk, ...], Numbering]:
    """Passages in the order of their first rows, and each row's, -1 where nothing was found.

    Args:
      of_signals: columns of signals of the hits.
    """
    numbering, columns = hits.numbered("hit_id"), hits.some(_PASSAGE)
    hits.check_same(columns, numbering, "a hit_id")
    of_hits = hits.some(_OF_HIT) | {column: hits.table.columns[column] for column in of_signals}
    for field, cells in of_hits.items():
        hits.check(
            (numbering.of_row < 0) & np.array([cell is not None for cell in cells]),
            field,
            f"a row without hit_id must have no {field}",
            "fill hit_id, or empty the cell",
        )
    chunks = []
    for name, row in zip(numbering.names, numbering.first, strict=True):
        record = read_record(hits.record(row, columns), _PassageRow, hits.faults, hits.places.heads)
        if record is not None:
            stated = (record.model_extra or {}).items()
            fields = {"source": flat_name(name)} | record.stated(PassageFields.model_fields)
            chunks.append(
                Chunk(
                    name,
                    record.text or "",
                    tags={key: tag for key, tag in stated if tag is not None},
                    **fields,
                )
            )
    return tuple(chunks), numbering


def hit_places(hits: HitTable) -> tuple[Numbering, Positions]:
    """Arms and depths of the rows."""
    rows = np.zeros(hits.table.size, dtype=np.int64)
    arms = Numbering((hits.table.name,), rows, rows[:1])
    if "arm" in hits.cells:
        arms = hits.numbered("arm")
    bounds = (0, MOST_DEPTHS - 1, "number the refinements from 0")
    depths = hits.numbers("depth", hits.cells.get("depth"), bounds, int)
    for field, cells in hits.some(("arm", "depth")).items():
        hits.check(
            np.array([cell is None for cell in cells]),
            field,
            f"{field} must not be missing",
            "fill it",
        )
    return arms, np.nan_to_num(depths).astype(np.int64)


def cut_name(column: str) -> str:
    """Name of a column, cut for a message."""
    return column if len(column) <= _NAME else f"{column[:_NAME]}..."
