"""Columns of hits (shore): which a frame of hits may have, their contents, which one is meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, Literal, get_args
from uuid import UUID

from raglab.decision.answer_text import ANSWERS, ANSWERS_REMEDY, ANSWERS_RULE, listed_answers
from raglab.signals import Unit
from raglab.store.case_frames import (
    AS_TEXT,
    CASE_COLUMNS,
    CHUNK_COLUMNS,
    LOGGED_COLUMNS,
    OWN_TAG,
    column_names,
)
from raglab.store.case_labels import OTHER_NAMES, near_names
from raglab.store.cells import (
    Cells,
    ColumnRule,
    cell_text,
    column_places,
    field_names,
    filled_text,
    integer_from,
    measurement,
    whole_number,
)
from raglab.store.files import Where, input_error, shown_value
from raglab.values import TAG_KEYS

Score = Literal["unstated", "cosine", "l2", "probability"]
# scale of a score that is read as a cosine because it lies in its range
UNSTATED: Final = "unstated"

_NORMALISE = "give the squared distance of unit vectors (normalise them first)"


_OWN = (
    'declare it: score=None, signals={"own": {"column": "{column}", "higher": "surer", "unit": '
    '"number"}}'
)
MOST_L2, MOST_PERCENT, MOST_LOGIT = 4.0, 100.0, 30.0
_A_LITTLE = 0.01  # beyond a range: more than rounding in single precision, less than another scale
_CLIP = "it is rounding? keep it in its range: frame[column].clip({low}, {high})"


def _cosine_remedy(values: Sequence[float]) -> str:
    """What numbers that are no cosines may be."""
    low, high = min(values), max(values)
    if max(abs(low), abs(high)) <= 1.0 + _A_LITTLE:
        return _CLIP.format(low=-1, high=1)
    if low < -MOST_LOGIT:
        logit = "it is a logit or log-probability? put it into s_raw"
        return f"{logit}; it is an inner product or a negative distance? {_OWN}"
    if low < -1.0 and high <= MOST_LOGIT:
        return f"it is a logit? put it into s_raw, and its sigmoid into s_rerank; or {_OWN}"
    if low < -1.0 or high > MOST_PERCENT:
        return f"it is an inner product or BM25? {_OWN}"
    if high <= MOST_L2:
        return 'it is a distance? use score="l2"'
    return f"it is a percentage? divide it by 100; it is an inner product or BM25? {_OWN}"


def _probability_remedy(values: Sequence[float]) -> str:
    """What numbers that are no probabilities may be."""
    low, high = min(values), max(values)
    logit = "put a raw logit into s_raw, and its sigmoid here"
    if low >= -_A_LITTLE and high <= 1.0 + _A_LITTLE:
        return _CLIP.format(low=0, high=1)
    if low < -MOST_LOGIT or high > MOST_PERCENT:
        return f"it is an inner product or BM25? {_OWN}"
    if low < 0.0:
        return f"it is a logit? {logit}"
    return f"it is a percentage? divide it by 100{f'; {logit}' if high <= MOST_LOGIT else ''}"


def signal_remedy(unit: Unit) -> Callable[[Sequence[float]], str]:
    """What numbers beyond the range of a signal's unit may be, by these numbers."""

    def remedy(values: Sequence[float]) -> str:
        is_share = unit.low == 0.0 and unit.high == 1.0
        if is_share and min(values) >= 0.0 and 1.0 + _A_LITTLE < max(values) <= MOST_PERCENT:
            return f"it is a percentage? divide it by 100; {EMPTY_REMEDY}"
        return EMPTY_REMEDY

    return remedy


def _distance_remedy(values: Sequence[float]) -> str:
    """What numbers that are no squared distances of unit vectors may be."""
    low, high = min(values), max(values)
    if low >= -_A_LITTLE and high <= MOST_L2 + _A_LITTLE:
        return _CLIP.format(low=0, high=4)
    if low < 0.0:
        return (
            'a distance is never negative: of a cosine write score="cosine", of a negated '
            "distance its negative"
        )
    return _NORMALISE


EMPTY_REMEDY = "leave the cell empty where it is not known"
MEASURES: Mapping[str, ColumnRule] = {
    "cosine": measurement(-1.0, 1.0, "a cosine", _cosine_remedy),
    "l2": measurement(0.0, MOST_L2, "a squared L2 distance of unit vectors", _distance_remedy),
    "s_rerank": measurement(0.0, 1.0, "a probability", _probability_remedy),
    "s_hybrid": measurement(
        0.0, 1.0, "a fused score over its possible maximum", "divide it by that maximum"
    ),
    "s_raw": measurement(-1e308, 1e308, "a finite number", "leave the cell empty"),
    "anchor_similarity": measurement(-1.0, 1.0, "a cosine", EMPTY_REMEDY),
    "signature_similarity": measurement(-1.0, 1.0, "a cosine", EMPTY_REMEDY),
}
MEASURE_OF_SCORE = {UNSTATED: "cosine", "cosine": "cosine", "l2": "l2", "probability": "s_rerank"}
_ID = ColumnRule(
    lambda cell: str(cell) if isinstance(cell, UUID) else filled_text(cell) or whole_number(cell),
    "a string that is not blank, an integer or a UUID",
    "give each one a name",
)
# Of a case, the same in each of its rows, as of a passage.
_CASE: Mapping[str, ColumnRule] = {
    **{
        field: column
        for field, column in CASE_COLUMNS.items()
        if field not in {"id", "query", "expect_status"}
    },
    ANSWERS: ColumnRule(
        listed_answers, ANSWERS_RULE.removeprefix(f"{ANSWERS} must be "), ANSWERS_REMEDY
    ),
}
PASSAGE_COLUMNS: Mapping[str, ColumnRule] = {
    "text": ColumnRule(cell_text, "a text", AS_TEXT),
    **{field: CHUNK_COLUMNS[field] for field in ("source", "page", "page_label")},
    **dict.fromkeys(TAG_KEYS, OWN_TAG),
    "entities": CHUNK_COLUMNS["entities"],
    "section": CHUNK_COLUMNS["section"],
}
HIT_COLUMNS: Mapping[str, ColumnRule] = {
    "case_id": _ID._replace(filled=True),
    "query": CASE_COLUMNS["query"],
    "expect_status": CASE_COLUMNS["expect_status"]._replace(required=False, filled=False),
    **_CASE,
    **LOGGED_COLUMNS,
    "hit_id": _ID._replace(required=True),
    **PASSAGE_COLUMNS,
    "arm": _ID._replace(filled=True),
    "depth": ColumnRule(
        integer_from(0),
        "an integer from 0, of 31 bits",
        "number the refinements 0, 1, 2",
        filled=True,
    ),
    "rank": ColumnRule(
        integer_from(0),
        "an integer from 0, of 31 bits",
        "number the hits of a case from 0, or drop the column",
    ),
    **MEASURES,
    "score": MEASURES["cosine"],
}
OF_CASE = tuple(_CASE)
OF_HIT = ("score", "rank", *MEASURES, *PASSAGE_COLUMNS)
# What other systems call the columns of hits, by plain name, before what they call fields of cases.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    **OTHER_NAMES,
    **{name: (field,) for name, field in field_names(HIT_COLUMNS).items()},
    **dict.fromkeys(
        (
            *(
                "path",
                "file_path",
                "filepath",
                "url",
                "uri",
                "source_path",
                "source_id",
                "source_document",
            ),
            *(
                f"{noun}{end}"
                for noun in ("doc", "document", "file")
                for end in ("", "name", "_name", "_id", "id")
            ),
        ),
        ("source",),
    ),
    **dict.fromkeys(("chunk", "chunk_id", "passage_id", "hit", "node_id"), ("hit_id",)),
    **dict.fromkeys(
        ("passage", "content", "contents", "chunk_text", "page_content", "context"), ("text",)
    ),
    **dict.fromkeys(("query_id", "question_id", "qid"), ("case_id",)),
    **dict.fromkeys(("timestamp", "time", "start_time", "created_at"), ("at",)),
    **dict.fromkeys(("similarity", "cosine_similarity", "cos_sim", "relevance"), ("score",)),
    "distance": ("score", "l2"),
    "id": ("case_id", "hit_id"),
}
_SLIP = 0.75  # of difflib, above which a name of a column is a slip of another
_NAMES, _NAME = 30, 40  # columns that a message lists, and characters of each
_UNKNOWN = 8  # unknown columns that a message lists


def cut_name(column: str) -> str:
    """Name of a column, cut for a message."""
    return column if len(column) <= _NAME else f"{column[:_NAME]}..."


def hit_places(
    cells: Cells, columns: Mapping[str, str] | None, score: Score | None, of_signals: Sequence[str]
) -> dict[str, str]:
    """Frame column for each of our names that it has, once none is missing, unknown or double.

    Args:
      of_signals: further columns, of signals and groups of the user.
    """
    where = Where(cells.name)
    if score not in (*get_args(Score), None):
        rule = f"score must be one of {', '.join(get_args(Score)[1:])}, or None"
        declared = _OWN.replace("{column}", cut_name((columns or {}).get("score", "score")))
        remedy = (
            "leave score out where it lies from -1 to 1 and its scale is not known; of any other "
            f"scale {declared}"
        )
        raise input_error(where, rule, remedy, shown_value(score))
    places, names = column_names(cells, HIT_COLUMNS, columns), field_names(HIT_COLUMNS)
    _check_rivals(cells, columns or {}, places)
    used = {*names, *of_signals, *places.values()}
    unknown = [column for column in cells.columns if column not in used]
    required = [field for field, column in HIT_COLUMNS.items() if column.required] + (
        ["score"] if score else []
    )
    # Missing before unknown: where an unknown column looks like a missing one, the remedy is to
    # rename it.
    for column in (*required, *of_signals):
        if column not in places and not (column in of_signals and cells.has(column)):
            like = next(
                (cut_name(name) for name in unknown if column in meant_columns(name, cells)), ""
            )
            remedy = f"rename {like} to {column}" if like else f"add or rename to {column}"
            if column in HIT_COLUMNS:
                pair = f'"{column}": "{like or "…"}"'
                stated = "".join(
                    f'"{field}": "{name}", ' for field, name in (columns or {}).items()
                )
                remedy += f", or pass columns={{{stated}{pair}}}"
            if column == "score":
                remedy += ", or pass score=None and name your scores by signals={…}"
            there = ", ".join(map(cut_name, list(cells.columns)[:_NAMES]))
            raise input_error(
                where, f"the column {cut_name(column)} is required", remedy, f"only {there}"
            )
    # Without a stated scale a column `score` is read by nobody, unless it is a signal of the user's
    # own.
    if score is None and "score" in places:
        if "score" not in of_signals:
            remedy = "say what it holds by score or signals, or drop it"
            raise input_error(where, "score=None says that there is no column score", remedy, "one")
        del places["score"]
    # Unknown columns are refused, not passed over: one may be a measure whose name is misspelt.
    if unknown:
        shown, remedy = _unknown_parts(unknown, cells, columns or {}, places)
        raise input_error(where, f"columns must be among {', '.join(names)}", remedy, shown)
    # The score stands for one of the measures; with that column too, two numbers would claim one
    # place.
    twice = MEASURE_OF_SCORE[score] if score else ""
    if twice in places:
        rule = f"score={score!r} is the {twice}, which must be given once"
        raise input_error(
            where,
            rule,
            f"drop the column {twice}, or say what the score is",
            f"a column {twice} too",
        )
    return places


def _unknown_parts(
    unknown: Sequence[str], cells: Cells, columns: Mapping[str, str], places: Mapping[str, str]
) -> tuple[str, str]:
    """All columns that are none of ours, and what they or the first of them may be.

    Both in words.
    """
    remedy = _unknown_remedy(unknown[0], cells, columns, places)
    if not unknown[1:]:
        return shown_value(unknown[0]), remedy
    listed = [cut_name(column) for column in unknown[:_UNKNOWN]]
    more = f" and {len(unknown) - _UNKNOWN} more" if unknown[_UNKNOWN:] else ""
    drop_all = "" if more else f"drop all by frame.drop(columns={listed}); "
    return (
        f"{len(unknown)}: {', '.join(map(shown_value, listed))}{more}",
        f"{drop_all}the first: {remedy}",
    )


def _unknown_remedy(
    column: str, cells: Cells, columns: Mapping[str, str], places: Mapping[str, str]
) -> str:
    """What a column that is none of ours may be.

    A misspelt one, sources of cases, a label of hits, or a signal.
    """
    drop, meant = (
        f'write frame.drop(columns=["{cut_name(column)}"])',
        " or ".join(meant_columns(column, cells)),
    )
    if meant:
        return f"rename it to {meant}, or {drop}"
    values = [cell for cell in cells.of(column) if cell is not None]
    if values and all(isinstance(cell, str) for cell in values):
        # Names of documents or passages in most of its cells: what the questions expect, not what
        # was found.
        held = chain.from_iterable(
            cells.of(places[field]) for field in ("source", "hit_id") if field in places
        )
        known = {cell for cell in held if isinstance(cell, str)}
        named = sum(
            any(part in known for part in re.split(r"\s*[;,|]\s*", cell)) for cell in values
        )
        if 2 * named > len(values) and not {"expect_sources", "expect_sources_any"} & places.keys():
            stated = "".join(f'"{field}": "{name}", ' for field, name in columns.items())
            pair = f'"expect_sources": "{cut_name(column)}"'
            lead = f"in {named:,} of {len(values):,} rows it names a source or hit_id of the frame"
            either = "expect_sources_any where one of several is enough"
            return f"{lead}: pass columns={{{stated}{pair}}} ({either}), or {drop}"
    if not all(isinstance(cell, int | float) for cell in values):
        return drop
    declared = f'signals={{"{cut_name(column)}": {{"higher": "surer", "unit": "number"}}}}'
    if set(values) != {0, 1}:
        return f"declare it: {declared}, or {drop}"
    return (
        "it holds 0 and 1 alone, as a label does: is it whether the hit is right? As a signal it "
        "would feed the label "
        "back to the policy; write the right hits of each question into expect_sources_any "
        "(docs/howto/own_hits.md), "
        f"and {drop}. Only if it is known before the answer, declare it: {declared}"
    )


def _check_rivals(cells: Cells, columns: Mapping[str, str], places: Mapping[str, str]) -> None:
    """Stop where a field has a mapped column and one of its own name.

    The second would be passed over.
    """
    names = field_names(HIT_COLUMNS)
    for column, user_name in columns.items():
        field = names.get(column)
        rivals = [name for name, named in names.items() if named == field and cells.has(name)]
        if field is not None and rivals and places[field] not in rivals:
            rule, value = f"{field} must be one column", f"{user_name} and {rivals[0]}"
            raise input_error(Where(cells.name), rule, "drop or rename one of them", value)


def meant_columns(name: str, cells: Cells) -> tuple[str, ...]:
    """Columns that an unknown one may be, of those that a frame of hits lacks.

    None where it looks like none.
    """
    lacking = HIT_COLUMNS.keys() - column_places(cells, HIT_COLUMNS).keys()
    near = near_names([name], {}, lacking, other_names=_OTHER_NAMES, cutoff=_SLIP)
    return near[0].fields if near else ()
