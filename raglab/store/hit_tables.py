"""Tables of hits (shore): columns that a frame of hits may have, and what its rows are of.

A row is a hit of a case, or says that its case found nothing. Rows of one case agree in what they
say of it, rows of one passage likewise: the first states it. Further columns stay with the case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args

import numpy as np
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
from raglab.store.trace_checks import MAX_DEPTHS
from raglab.values import TAG_KEYS, BoolArray, Case, Chunk, FloatArray, IntArray
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

Score = Literal["unstated", "cosine", "l2", "probability"]
# scale of a score that is read as a cosine because it lies in its range
UNSTATED: Final = "unstated"
MEASURE_OF_SCORE = {UNSTATED: "cosine", "cosine": "cosine", "l2": "l2", "probability": "s_rerank"}
_DECLARE_REMEDY = "declare another scale by score=None and signals={…}"
EMPTY_REMEDY = "leave the cell empty"
SHARE_REMEDY = "a percentage? divide by 100"
_NUMBER_REMEDY = "write a number, 0.92 for 92 %; labels go into expect_sources_any"
# Range of each measurement, and what numbers beyond it may be.
MEASURE_RANGES: Mapping[str, tuple[float, float, str]] = {
    "cosine": (
        -1.0,
        1.0,
        f'a distance? score="l2"; a percentage? divide by 100; or {_DECLARE_REMEDY}',
    ),
    "l2": (0.0, 4.0, 'square the distance of unit vectors; a cosine? score="cosine"'),
    "s_rerank": (0.0, 1.0, f"{SHARE_REMEDY}; a logit? use s_raw; or {_DECLARE_REMEDY}"),
    "s_hybrid": (0.0, 1.0, "divide it by its maximum"),
    "s_raw": (-1e308, 1e308, EMPTY_REMEDY),
    "anchor_similarity": (-1.0, 1.0, EMPTY_REMEDY),
    "signature_similarity": (-1.0, 1.0, EMPTY_REMEDY),
}
# of a case, the same in each of its rows
CASE_COLUMNS = (
    *(field for field in CASE_FIELDS if field not in {"query", "expect_status"}),
    ANSWERS_KEY,
)
_LOGGED_FIELDS = ("at", "groups", ANSWER_RIGHT, JUDGE_RIGHT)
_PASSAGE_COLUMNS = ("text", "source", "page", "page_label", *TAG_KEYS, "entities", "section")
_HIT_COLUMNS = (*_PASSAGE_COLUMNS, "rank", "score", *MEASURE_RANGES)
HIT_NAMES = {name: field for name, field in CASE_NAMES.items() if field != "id"} | {
    name: name
    for name in (ANSWERS_KEY, *_LOGGED_FIELDS, *_HIT_COLUMNS, "case_id", "hit_id", "arm", "depth")
}
_NEAR_HIT_NAMES: NearNames = {
    "source": ("path", "file_path", "url", "file", "document", "doc_id"),
    "hit_id": ("chunk", "chunk_id", "passage_id", "node_id", "id"),
    "text": ("passage", "content", "page_content", "context"),
    "case_id": ("query_id", "question_id", "qid", "id"),
    "score": ("similarity", "relevance", "distance"),
    "l2": ("distance",),
    "at": ("timestamp",),
}
# What other systems call the columns of hits, before what they call fields of cases.
_NEAR_TABLE_NAMES: NearNames = {
    **_NEAR_HIT_NAMES,
    **{
        field: [name for name in names if name not in {*HIT_NAMES}.union(*_NEAR_HIT_NAMES.values())]
        for field, names in NEAR_NAMES.items()
    },
}
_MAX_COLUMN_CHARACTERS = 40  # characters of a column in a message
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
    of_row: IntArray
    first: IntArray


class HitTable(NamedTuple):
    """Rows of hits: the table, its columns by field, the cells of these, and its faults."""

    table: SourceTable
    places: Places
    cells: Mapping[str, Sequence[Any]]
    faults: Faults

    def add(self, row: int, field: str, rule: str, remedy: str, value: str | None = None) -> None:
        """Note a fault of a cell, which is the value unless another is given."""
        column_name = self.places.heads.get(field, field)
        self.faults.add(
            self.table.where(row, column_name),
            rule,
            remedy,
            shown_value(self.table.columns[column_name][row]) if value is None else value,
        )

    def check(self, is_wrong: BoolArray, field: str, rule: str, remedy: str) -> None:
        """Note cells of some rows."""
        for row in map(int, np.flatnonzero(is_wrong)):
            self.add(row, field, rule, remedy)

    def numbered(self, field: str) -> Numbering:
        """Names of a column, numbered."""
        numbers_by_name: dict[str, int] = {}
        first_rows: list[int] = []
        row_numbers = []
        for row_index, cell_name in enumerate(self.cells[field]):
            if cell_name is None:
                row_numbers.append(-1)
                continue
            if not (isinstance(cell_name, str) or field == "query"):
                self.add(
                    row_index, field, f"{field} must be a string or integer", "convert the column"
                )
            if numbers_by_name.setdefault(str(cell_name), len(first_rows)) == len(first_rows):
                first_rows.append(row_index)
            row_numbers.append(numbers_by_name[str(cell_name)])
        return Numbering(
            tuple(numbers_by_name), np.array(row_numbers), np.array(first_rows, dtype=np.int64)
        )

    def check_same(
        self, columns: Mapping[str, Sequence[Any]], numbering: Numbering, group_noun: str
    ) -> None:
        """Note rows that differ in a column from the first row of their case or passage."""
        group_starts = [
            numbering.first[group_number] if group_number >= 0 else row_index
            for row_index, group_number in enumerate(numbering.of_row)
        ]
        for field_name, field_cells in columns.items():
            for row_index, start_row in enumerate(group_starts):
                if field_cells[row_index] != field_cells[start_row]:
                    shown_cells = " after ".join(
                        map(shown_value, (field_cells[row_index], field_cells[start_row]))
                    )
                    self.add(
                        row_index,
                        field_name,
                        f"{group_noun} must have one "
                        f"{self.places.heads.get(field_name, field_name)}",
                        "correct it, or tell them apart by id",
                        f"{shown_cells} in row {start_row}",
                    )

    def some(self, fields: Iterable[str]) -> dict[str, Sequence[Any]]:
        """Cells of those fields that the table has."""
        return {
            field_name: self.cells[field_name] for field_name in fields if field_name in self.cells
        }

    def numbers(
        self,
        field: str,
        cells: Sequence[Any] | None,
        bounds: tuple[float, float, str],
        kinds: Any = int | float | Decimal,  # noqa: ANN401 - a union of types
    ) -> FloatArray:
        """Numbers of a column, NaN where a cell is missing or there is no such column.

        Args:
          bounds: least and greatest number, and the remedy of another.
        """
        lower_bound, upper_bound, remedy = bounds
        numbers = np.full(self.table.size, np.nan)
        for row_index, cell in enumerate(cells or ()):
            if cell is None or (isinstance(cell, Decimal) and cell.is_nan()):
                continue
            is_number = isinstance(cell, kinds) and not isinstance(cell, bool)
            if (
                is_number
                and lower_bound - ROUNDING_TOLERANCE <= cell <= upper_bound + ROUNDING_TOLERANCE
            ):
                numbers[row_index] = cell
                continue
            self.add(
                row_index,
                field,
                f"{field} must be a number from {lower_bound:g} to {upper_bound:g}",
                remedy if is_number else _NUMBER_REMEDY,
            )
        return within_range(numbers, lower_bound, upper_bound, f"{field} of {self.table.name}")

    def record(self, row: int, columns: Mapping[str, Sequence[Any]]) -> JsonLine:
        """Cells of a row by field."""
        return JsonLine(
            self.table.where(row),
            {field_name: cells[row] for field_name, cells in columns.items()},
        )


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
    location, faults, score_measure = Where(name), Faults(), MEASURE_OF_SCORE.get(score or "")
    if score not in (*get_args(Score), None):
        raise input_error(
            location,
            f"score must be one of {', '.join(get_args(Score)[1:])}, or None",
            f"leave it out, or {_DECLARE_REMEDY}",
            shown_value(score),
        )
    source_table = read_table(frame, HIT_NAMES, columns, name=name)
    # without a stated scale a column `score` is read by nobody, unless it is a signal
    fields_by_name = {
        name: field_name for name, field_name in HIT_NAMES.items() if score or field_name != "score"
    }
    placed_columns = place_columns(
        name,
        source_table.columns,
        fields_by_name,
        columns,
        faults,
        required=("query", "hit_id", *(["score"] if score else [])),
        stated=stated,
        near_names=_NEAR_TABLE_NAMES,
    )
    for column_name in stated:
        if column_name not in source_table.columns:
            faults.add(
                location, f"the column {cut_name(column_name)} is required", "correct the name"
            )
    if score_measure in placed_columns.heads:
        faults.add(
            location,
            f"score={score!r} is the {score_measure}, which must be given once",
            "say what the score is, or drop a column",
            "both",
        )
    faults.stop()
    cells_by_field = read_cells(
        source_table, placed_columns, faults, json_value, blank=("query", "text")
    )
    if placed_columns.further:
        shown_columns = shown_value(", ".join(placed_columns.further))
        warn_user(visible(f"{name}: kept in extra of the cases, read by no gate: {shown_columns}."))
    return HitTable(source_table, placed_columns, cells_by_field, faults)


def hit_cases(
    hits: HitTable, groups: Sequence[str], queries: Sequence[str]
) -> tuple[tuple[Case, ...], Numbering]:
    """Cases in the order of their first rows, and their numbers.

    Two cases of one question may have different labels, since hits are given for each.

    Args:
      groups: columns whose values group the cases, see `raglab.gating.case_groups.group_value`.
      queries: columns of signals of the query.
    """
    # Without ids a question is a case, as most exports of hits have no other name for it.
    case_field = "case_id" if "case_id" in hits.cells else "query"
    numbering = hits.numbered(case_field)
    hits.check(
        numbering.of_row < 0,
        case_field,
        f"{case_field} must not be missing",
        "fill it, or drop the row",
    )
    case_columns = hits.some(("query", "expect_status", *CASE_COLUMNS, *_LOGGED_FIELDS))
    raw_columns = hits.table.columns
    # What is said of a case must be the same in each of its rows, or hits would be mixed up.
    cells_by_group = {group_name: raw_columns[group_name] for group_name in groups}
    hits.check_same(
        case_columns
        | cells_by_group
        | {column_name: raw_columns[column_name] for column_name in queries},
        numbering,
        "a case",
    )
    rows_by_case: list[list[int]] = [[] for _ in numbering.names]
    for row_index, case_number in enumerate(numbering.of_row if hits.places.further else ()):
        rows_by_case[case_number].append(row_index)
    placed_cases = []
    for case_number, (case_name, row_index) in enumerate(
        zip(numbering.names, numbering.first, strict=True)
    ):
        case_line = hits.record(row_index, case_columns)
        case_fields = read_record(case_line, _CaseRow, hits.faults, hits.places.heads)
        if case_fields is None:
            continue
        # Questions are too long for ids, so cases named by their question are numbered.
        case_id = case_name if case_field == "case_id" else f"q{case_number + 1}"
        extra_fields = {
            field_name: getattr(case_fields, field_name)
            for field_name in (*_LOGGED_FIELDS, ANSWERS_KEY)
        }
        by_group = {
            group_name: str(column_cells[row_index])
            for group_name, column_cells in cells_by_group.items()
            if column_cells[row_index] is not None
        }
        extra_fields |= {"groups": {**(case_fields.groups or {}), **by_group}} if by_group else {}
        for (
            further_column
        ) in hits.places.further:  # one value where the rows agree, else one of each row
            column_cells = [
                hits.cells[further_column][case_row] for case_row in rows_by_case[case_number]
            ]
            if any(cell is not None for cell in column_cells):
                extra_fields[further_column] = (
                    column_cells[0]
                    if all(cell == column_cells[0] for cell in column_cells)
                    else column_cells
                )
        placed_cases.append(
            (
                case_line.where._replace(id=case_id),
                Case(
                    case_id,
                    **case_fields.stated(CASE_FIELDS),
                    extra={
                        extra_key: extra_value
                        for extra_key, extra_value in extra_fields.items()
                        if extra_value is not None
                    },
                ),
            )
        )
    return labelled_set(placed_cases, hits.table.name, faults=hits.faults), numbering


def hit_chunks(
    hits: HitTable, signal_columns: Iterable[str]
) -> tuple[tuple[Chunk, ...], Numbering]:
    """Passages in the order of their first rows, and each row's, -1 where nothing was found.

    Args:
      signal_columns: columns of signals of the hits.
    """
    numbering = hits.numbered("hit_id")
    passage_columns = hits.some(_PASSAGE_COLUMNS)
    hits.check_same(passage_columns, numbering, "a hit_id")
    cells_by_field = hits.some(_HIT_COLUMNS) | {
        column_name: hits.table.columns[column_name] for column_name in signal_columns
    }
    for field_name, column_cells in cells_by_field.items():
        hits.check(
            (numbering.of_row < 0) & np.array([cell is not None for cell in column_cells]),
            field_name,
            f"a row without hit_id must have no {field_name}",
            "fill hit_id, or empty the cell",
        )
    chunks = []
    for hit_name, first_row in zip(numbering.names, numbering.first, strict=True):
        passage_fields = read_record(
            hits.record(first_row, passage_columns), _PassageRow, hits.faults, hits.places.heads
        )
        if passage_fields is not None:
            stated_tags = (passage_fields.model_extra or {}).items()
            chunk_fields = {"source": flat_name(hit_name)} | passage_fields.stated(
                PassageFields.model_fields
            )
            chunks.append(
                Chunk(
                    hit_name,
                    passage_fields.text or "",
                    tags={
                        tag_name: tag_value
                        for tag_name, tag_value in stated_tags
                        if tag_value is not None
                    },
                    **chunk_fields,
                )
            )
    return tuple(chunks), numbering


def hit_places(hits: HitTable) -> tuple[Numbering, IntArray]:
    """Arms and depths of the rows."""
    zero_rows = np.zeros(hits.table.size, dtype=np.int64)
    arm_numbers = Numbering((hits.table.name,), zero_rows, zero_rows[:1])
    if "arm" in hits.cells:
        arm_numbers = hits.numbered("arm")
    depth_bounds = (0, MAX_DEPTHS - 1, "number the refinements from 0")
    depths = hits.numbers("depth", hits.cells.get("depth"), depth_bounds, int)
    for field_name, field_cells in hits.some(("arm", "depth")).items():
        hits.check(
            np.array([cell is None for cell in field_cells]),
            field_name,
            f"{field_name} must not be missing",
            "fill it",
        )
    return arm_numbers, np.nan_to_num(depths).astype(np.int64)


def cut_name(column_name: str) -> str:
    """Name of a column, cut for a message."""
    return (
        column_name
        if len(column_name) <= _MAX_COLUMN_CHARACTERS
        else f"{column_name[:_MAX_COLUMN_CHARACTERS]}..."
    )
