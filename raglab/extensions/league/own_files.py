"""Own files (shore): a person's table of answers, read and checked.

What is dropped, mapped or blank is counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.league.rows import LeagueRow, is_pooled
from raglab.extensions.league.stored_lines import SUFFIXES, stored_lines
from raglab.metrics import auroc
from raglab.store.csv_tables import MISSING_WORDS, csv_frame
from raglab.store.files import Where, input_error, shown_value
from raglab.store.trace_files import parquet_frame

if TYPE_CHECKING:
    import pandas as pd

FIELDS = ("id", "correct", "group", "cost", "baseline")
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", *SUFFIXES)
SUSPECT = 0.98  # AUROC of one signal, which few honest ones reach
LEAST_ROWS = 40  # 20 right and 20 wrong answers to fit on
VERDICTS = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
SHOWN_NAMES = 200  # characters of names in a note
_NUMBER = re.compile(r"[+-]?((0|[1-9]\d*)\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_CODE = re.compile(r"0\d+")  # a whole number with a leading zero is a name
_POINT = re.compile(r"-?(?<!\d)\d+\.\d+")

Numbers = NDArray[np.float64]


class OwnTable(NamedTuple):
    """Answers of a person's table that can be judged, a row an answer.

    Attributes:
      name: of the file.
      question: id of each answer's question, [N].
      group: of each answer, [N]; None without groups.
      correct: [N].
      signals: by name, NaN where blank, [N] each.
      baseline: decision or score of the method to beat, NaN where blank, [N]; None where there is
        none.
      cost: of each answer, NaN where blank, [N]; None where there is none.
      notes: what was dropped, mapped, blank or no signal, with counts.
    """

    name: str
    question: NDArray[np.str_]
    group: NDArray[np.str_] | None
    correct: NDArray[np.bool_]
    signals: dict[str, Numbers]
    baseline: Numbers | None
    cost: Numbers | None
    notes: tuple[str, ...]


def own_table(source: Path | pd.DataFrame) -> OwnTable:
    """Table of a file or data frame, of the rows that have an id, a verdict, a group and a signal.

    Raises:
      InputError: no table, no `id` or `correct`, a verdict other than 0 and 1, texts among numbers,
        a negative cost, or no column of numbers that varies.
    """
    where, name, frame, notes = _frame(source)
    if not len(frame):
        raise input_error(
            where, "a table must hold rows", "add them: one object a line in JSON lines", "none"
        )
    frame = frame.set_axis([str(head) for head in frame], axis=1).reset_index(drop=True)
    if repeated := sorted(set(frame.columns[frame.columns.duplicated()])):
        rule, value = (
            "a column must have a name of its own",
            f"several of {', '.join(repeated)[:SHOWN_NAMES]}",
        )
        raise input_error(where, rule, "rename or drop them", value)
    notes += _head_notes(frame, where)
    texts = {"id", "correct", "group"}
    heads = [str(head) for head in frame]
    numbers = {head: _numbers(frame[head], head, where) for head in heads if head not in texts}
    if "group" in frame and not _filled(frame["group"]).any():
        notes.append("The column group is blank and is ignored.")
        frame = frame.drop(columns="group")
    verdicts, text = _verdicts(frame["correct"], where)
    notes += text
    keep, text = _judged_rows(frame, verdicts, where)
    notes += text
    numbered = [
        head for head, values in numbers.items() if head not in FIELDS and _is_count(head, values)
    ]
    columns = {head: values for head, values in numbers.items() if head not in {*FIELDS, *numbered}}
    columns = {head: None if values is None else values[keep] for head, values in columns.items()}
    signals, text = _named_signals(columns, verdicts[keep] > 0.0, numbered, where)
    notes += text
    # A row without any signal is told apart by none, and is neither fitted nor judged.
    has_signal = np.any([np.isfinite(values) for values in signals.values()], axis=0)
    if lacking := int((~has_signal).sum()):
        notes.append(f"Rows without any signal, left out: {lacking:,}.")
    rows, right = frame[keep][has_signal], verdicts[keep][has_signal] > 0.0
    question, group = _texts(rows["id"]), _texts(rows["group"]) if "group" in rows else None
    notes += _row_notes(rows, question, group, right)
    if group is not None:
        group, text = _group_names(group)
        notes += text
    optional = {head: numbers.get(head) for head in ("baseline", "cost")}
    baseline, cost = (
        None if values is None else values[keep][has_signal] for values in optional.values()
    )
    signals = {head: values[has_signal] for head, values in signals.items()}
    notes += _infinite_notes(signals | ({} if baseline is None else {"baseline": baseline}))
    signals = {head: _finite(values) for head, values in signals.items()}
    baseline = None if baseline is None else _finite(baseline)
    notes += [*_blank_notes(signals, group), *_baseline_notes(baseline), *_cost_notes(cost, where)]
    notes.append(_question_note(question, group))
    return OwnTable(name, question, group, right, signals, baseline, cost, tuple(notes))


def _judged_rows(
    frame: pd.DataFrame, verdicts: Numbers, where: Where
) -> tuple[NDArray[np.bool_], list[str]]:
    """Whether each row has an id, a verdict and, where there are groups, a group.

    And sentences on those without.

    Raises:
      InputError: none has.
    """
    notes = []
    keep = np.ones(len(frame), dtype=bool)
    checks = {"an id": _filled(frame["id"]), "a verdict": ~np.isnan(verdicts)}
    checks |= {"a group": _filled(frame["group"])} if "group" in frame else {}
    for what, has in checks.items():
        if lacking := int((keep & ~has).sum()):
            notes.append(f"Rows without {what}, left out: {lacking:,}.")
        keep &= has
    if not keep.any():
        what = "no verdict" if np.isnan(verdicts).all() else "no such row"
        raise input_error(
            where, "a table must hold rows with an id and a verdict", "fill id and correct", what
        )
    return keep, notes


def _filled(column: pd.Series[Any]) -> NDArray[np.bool_]:
    return column.notna().to_numpy() & (column.astype(str).str.strip() != "").to_numpy()


def _frame(source: Path | pd.DataFrame) -> tuple[Where, str, pd.DataFrame, list[str]]:
    """Place, name, rows and notes of a table."""
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return Where("the table"), "own", source, []
    where, name = Where(str(source)), source.name.removesuffix(".gz").rpartition(".")[0]
    if source.suffix in {".csv", ".tsv"}:
        return where, name, csv_frame(source, texts=("id", "group")), []
    if source.suffix == ".parquet":
        try:
            return where, name, parquet_frame(source), []
        except (ValueError, OSError) as error:
            rule, remedy = "a Parquet file must be whole", "write it again"
            raise input_error(where, rule, remedy, f"{type(error).__name__}") from error
    lines = stored_lines(source)
    if lines.unread and not lines.records:
        rule, remedy = (
            "a file of JSON lines must hold an object a line",
            "write one JSON object a line, and no list",
        )
        raise input_error(where, rule, remedy, f"{lines.unread:,} other lines")
    notes = [f"Lines that are no JSON object, dropped: {lines.unread:,}."] if lines.unread else []
    return where, name, pd.DataFrame.from_records([dict(record) for record in lines.records]), notes


def _head_notes(frame: pd.DataFrame, where: Where) -> list[str]:
    """Sentences on columns that are nearly named as a field, which is not there.

    Raises:
      InputError: `id` or `correct` is not there.
    """
    heads = [str(head) for head in frame]
    near = {
        field: head
        for field in FIELDS
        for head in heads
        if field not in heads and head.strip().casefold().removesuffix("s") == field
    }
    if absent := [field for field in FIELDS[:2] if field not in heads]:
        renames = [
            f"{near[field]} to {field}" if field in near else f"a column to {field}"
            for field in absent
        ]
        shown = ", ".join(heads)[:80]
        rule = "a table must have the columns id and correct"
        raise input_error(where, rule, f"rename {' and '.join(renames)}", f"columns {shown}")
    return [
        f"{head} is read as any other column: did you mean {field}?" for field, head in near.items()
    ]


def _numbers(column: pd.Series[Any], name: str, where: Where) -> Numbers | None:
    """Values of a column of numbers, NaN where blank; None where it is one of texts.

    Raises:
      InputError: texts in a column that is mostly of numbers, or is one of numbers by its name.
    """
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(column):
        return np.asarray(
            column.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64
        )
    cells: list[Any] = [None if _is_blank(cell) else cell for cell in column.tolist()]
    values = [np.nan if cell is None else _number(cell) for cell in cells]
    filled = [row for row, cell in enumerate(cells) if cell is not None]
    texts = [row for row in filled if values[row] is None]
    n_numbers = len(filled) - len(texts)
    percent = [
        row
        for row in texts
        if isinstance(cells[row], str) and _number(cells[row].rstrip("% ")) is not None
    ]
    is_code = any(
        isinstance(cells[row], str) and _CODE.fullmatch(cells[row].strip()) for row in filled
    )
    if texts and (
        name in {"cost", "baseline"} or (n_numbers + len(percent) > len(filled) / 2 and not is_code)
    ):
        first = texts[0]
        count = f"{len(texts):,} of {len(filled):,} cells {'is' if len(texts) == 1 else 'are'} not"
        remedy = (
            "write 88% as 88"
            if first in percent
            else "correct it, blank it, or leave the column out"
        )
        rule = f"{name} must be a column of numbers ({count})"
        raise input_error(where, rule, remedy, f"{shown_value(cells[first])} in row {first + 1}")
    if texts or is_code or not filled:
        return None if filled else np.full(len(cells), np.nan)
    return np.array(values, dtype=np.float64)


def _is_blank(cell: Any) -> bool:  # noqa: ANN401 - any cell
    if isinstance(cell, str):
        return cell.strip().casefold() in MISSING_WORDS
    return (
        cell is None
        or (isinstance(cell, float) and bool(np.isnan(cell)))
        or type(cell).__name__ == "NAType"
    )


def _number(cell: Any) -> float | None:  # noqa: ANN401 - any cell
    """Number of a cell, also of a truth value; None where it holds none."""
    if isinstance(cell, bool | int | float | np.bool_ | np.number):
        return float(cell)
    if not isinstance(cell, str):
        return None
    text = cell.strip().casefold()
    if text in {"true", "false"}:
        return float(text == "true")
    return float(text) if _NUMBER.fullmatch(text) else None


def _verdicts(column: pd.Series[Any], where: Where) -> tuple[Numbers, list[str]]:
    """1 or 0 of each row, NaN where blank, and a sentence on words that are read as such.

    Raises:
      InputError: another value.
    """
    cells = column.tolist()
    words = [cell.strip().casefold() if isinstance(cell, str) else cell for cell in cells]
    verdicts = np.full(len(cells), np.nan)
    wrong = []
    for row, word in enumerate(words):
        known = VERDICTS.get(word) if isinstance(word, str) else None
        if isinstance(word, bool | int | float | np.bool_ | np.number) and word in {0, 1}:
            known = bool(word)
        if known is not None:
            verdicts[row] = float(known)
        elif not _is_blank(word):
            wrong.append(row)
    if wrong:
        count = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        value = f"{shown_value(cells[wrong[0]])} in row {wrong[0] + 1}{count}"
        remedy = (
            "write right answers as 1, wrong ones as 0, and leave the cell blank where there is "
            "no verdict"
        )
        raise input_error(where, "correct must be 0 or 1, no or yes, false or true", remedy, value)
    texts = sorted(
        {word for word in words if isinstance(word, str) and word in VERDICTS} - {"0", "1"}
    )
    shown = ", ".join(f"{word} as {int(VERDICTS[word])}" for word in texts)
    return verdicts, [f"correct is read from words: {shown}."] if texts else []


def _is_count(name: str, values: Numbers | None) -> bool:
    """Whether a column numbers rows from 0 or 1, or has no head, as pandas writes for its index."""
    is_count = (
        values is not None
        and len(values) > 1
        and values[0] in {0, 1}
        and bool((np.diff(values) == 1).all())
    )
    return is_count or name == "Unnamed: 0"


def _named_signals(
    columns: dict[str, Numbers | None],
    right: NDArray[np.bool_],
    numbered: Sequence[str],
    where: Where,
) -> tuple[dict[str, Numbers], list[str]]:
    """Columns of varying numbers, and notes on them, what is left out and what ranks too well.

    Raises:
      InputError: there is none.
    """
    signals = {
        name: values
        for name, values in columns.items()
        if values is not None and len(np.unique(values[np.isfinite(values)])) > 1
    }
    ignored = [name for name in columns if name not in signals]
    leaks = [name for name, values in signals.items() if _is_verdict(values, right)]
    signals = {name: values for name, values in signals.items() if name not in leaks}
    left_out = {
        "Columns that number the rows, left out": numbered,
        "Columns that equal correct or its opposite, left out": leaks,
        "Columns that are not of numbers, or have one value, are no signals": ignored,
    }
    notes = [
        f"{text}: {len(names)} ({', '.join(names)[:SHOWN_NAMES]})."
        for text, names in left_out.items()
        if names
    ]
    if not signals:
        rule = (
            "a table must have a column of numbers that varies beside id, correct, group, cost "
            "and baseline"
        )
        few = f"{len(right)} row{'s' * (len(right) != 1)} with a verdict, of {LEAST_ROWS} at least"
        value = (
            few
            if len(right) < LEAST_ROWS
            else "none" + f", but {', '.join(ignored)[:80]}" * bool(ignored)
        )
        raise input_error(
            where, rule, "add rows" if len(right) < LEAST_ROWS else "add a signal", value
        )
    notes.append(f"Signals: {', '.join(signals)}.")
    for name, values in signals.items():
        known = np.isfinite(values)
        area = auroc(right[known], values[known])
        area = max(area, 1.0 - area)
        if area >= SUSPECT and known.sum() >= LEAST_ROWS:
            notes.append(
                f"{name} alone ranks with an AUROC of {area:.4f}: check that it is no verdict."
            )
    return signals, notes


def _is_verdict(values: Numbers, right: NDArray[np.bool_]) -> bool:
    """Whether a column is the verdict, or its opposite, wherever it has a value."""
    known = np.isfinite(values)
    return any(np.array_equal(values[known], kind[known].astype(float)) for kind in (right, ~right))


def _infinite_notes(columns: Mapping[str, Numbers]) -> list[str]:
    """Sentences on infinite cells."""
    counts = {name: int(np.isinf(values).sum()) for name, values in columns.items()}
    return [
        f"{name} is infinite in {n:,} answer{'s' * (n != 1)}, and is read as blank there."
        for name, n in counts.items()
        if n
    ]


def _blank_notes(signals: Mapping[str, Numbers], group: NDArray[np.str_] | None) -> list[str]:
    """Sentences on signals that are blank in some answers, or in all of a group."""
    notes = []
    for name, values in signals.items():
        blank = np.isnan(values)
        bare = (
            []
            if group is None
            else [of for of in np.unique(group).tolist() if blank[group == of].all()]
        )
        if group is not None and bare:
            notes.append(
                f"{name} is blank in all answers of {', '.join(bare)[:SHOWN_NAMES]}, and is not "
                "used there."
            )
            blank &= ~np.isin(group, bare)
        if n := int(blank.sum()):
            text = "it takes the median of the others there"
            notes.append(f"{name} is blank in {n:,} of {len(values):,} answers: {text}.")
    return notes


def _baseline_notes(baseline: Numbers | None) -> list[str]:
    """Sentence on a baseline that decides in other numbers than 0 and 1."""
    levels = [] if baseline is None else np.unique(baseline[~np.isnan(baseline)]).tolist()
    if len(levels) != 2 or levels == [0.0, 1.0]:
        return []
    text = "write 1 for accept and 0 for refuse to have its accuracy judged too"
    return [
        f"baseline has the values {levels[0]:g} and {levels[1]:g}, and is read as a score: {text}."
    ]


def _cost_notes(cost: Numbers | None, where: Where) -> list[str]:
    """Sentence on blank costs.

    Raises:
      InputError: a negative or infinite cost.
    """
    if cost is None:
        return []
    wrong = np.flatnonzero((cost < 0.0) | np.isinf(cost))
    if len(wrong):
        value = f"{cost[wrong[0]]:g} in {len(wrong):,} row{'s' * (len(wrong) != 1)}"
        raise input_error(
            where, "cost must be 0 or more, and finite", "correct it, or leave it blank", value
        )
    n = int(np.isnan(cost).sum())
    return (
        [f"cost is blank in {n:,} of {len(cost):,} answers: the mean is of the others."]
        if n
        else []
    )


def _row_notes(
    rows: pd.DataFrame,
    question: NDArray[np.str_],
    group: NDArray[np.str_] | None,
    right: NDArray[np.bool_],
) -> list[str]:
    """Sentences on rows that repeat others, and ids that have both verdicts in a group."""
    notes = []
    if n := int(rows.astype(str).duplicated().sum()):
        notes.append(f"Rows that repeat another one: {n:,}; they are answers to one question.")
    places = list(
        zip(
            question.tolist(),
            [""] * len(question) if group is None else group.tolist(),
            strict=True,
        )
    )
    both = {place for place, kind in zip(places, right, strict=True) if kind}
    both &= {place for place, kind in zip(places, right, strict=True) if not kind}
    if both:
        notes.append(
            f"Ids with right and wrong answers{' in one group' * (group is not None)}: "
            f"{len(both):,}."
        )
    return notes


def _texts(column: pd.Series[Any]) -> NDArray[np.str_]:
    """Cells as texts without blanks around them; 7.0 is 7 where no cell has a fraction."""
    texts = [str(cell).strip() for cell in column]
    points = [text for text in texts if _POINT.fullmatch(text)]
    if points and all(not text.partition(".")[2].strip("0") for text in points):
        texts = [text.partition(".")[0] if _POINT.fullmatch(text) else text for text in texts]
    return np.array(texts, dtype=str)


def _group_names(group: NDArray[np.str_]) -> tuple[NDArray[np.str_], list[str]]:
    """Groups, those named like the row of all cells renamed, and sentences on these."""
    names = {name: name for name in sorted(set(group.tolist()))}
    notes = []
    for name in [
        name for name in names if is_pooled(LeagueRow("", name, "", "", higher_is_better=True, n=0))
    ]:
        names[name] = f"group {name}"
        notes.append(f"The group {name} is shown as group {name}: {name} is the row of all cells.")
    return np.array([names[name] for name in group.tolist()], dtype=str), notes


def _question_note(question: NDArray[np.str_], group: NDArray[np.str_] | None) -> str:
    n = len(set(question.tolist()))
    text = f"{n:,} question{'s' * (n != 1)}, {len(question):,} answer{'s' * (len(question) != 1)}"
    if group is None:
        return f"{text}."
    pairs = set(zip(question.tolist(), group.tolist(), strict=True))
    shared = len(pairs) - n and sum(
        count > 1 for count in np.unique([id_ for id_, _ in pairs], return_counts=True)[1]
    )
    return (
        f"{text}; {'no question is' if not shared else f'{shared:,} are'} in several of "
        f"{len(set(group))} groups."
    )


def _finite(values: Numbers) -> Numbers:
    return np.where(np.isfinite(values), values, np.nan)
