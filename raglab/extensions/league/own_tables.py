"""Own tables (shore): a person's table of answers, judged as the published ones are.

A row an answer: `id` of the question, `correct` (0 or 1), optional `group`, `cost` and `baseline`; every other column
of numbers is a signal. Fitted is on the other groups; without groups on the other folds of questions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.league.accepted_answers import LEAST, REACH, AnswerTable, JudgedPart, answer_rows
from raglab.extensions.league.rows import LeagueRow
from raglab.extensions.league.stored_lines import SUFFIXES, stored_lines
from raglab.metrics import auroc
from raglab.store.csv_tables import csv_frame
from raglab.store.files import Where, input_error, shown_value
from raglab.store.trace_files import parquet_frame

if TYPE_CHECKING:
    import pandas as pd

FIELDS = ("id", "correct", "group", "cost", "baseline")
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", *SUFFIXES)
SUSPECT = 0.999  # AUROC of one signal
FOLDS = 5  # of questions, where there are no groups to leave out


def own_rows(path: Path, *, level: float = 0.95, seed: int = 0) -> tuple[list[LeagueRow], list[str]]:
    """Rows of each group and of all, and notes of what was ignored or dropped, with counts.

    The difference is against `baseline`, a decision (0 or 1) or a score, surer upwards; without one, against the single
    signal that is best where raglab is fitted. A signal that ranks against the labels there is turned round. Answers to
    a judged question are never fitted on, whatever their group; where that leaves a group nothing to fit on, folds of
    questions are judged, each by the other groups' answers in the other folds. AUROC is then the mean over folds.
    Answers without a baseline are left out of the comparison. A row number, and a column that equals the verdict or its
    opposite, is no signal.

    Args:
      path: CSV, TSV, JSON lines (also gzipped) or Parquet.
      level: of the intervals, in (0, 1).
      seed: of the folds, where there are no groups.

    Raises:
      InputError: no table, no `id` or `correct`, a verdict other than 0 and 1, or no column of numbers beside them.
    """
    frame, notes = _frame(path)
    numbered = _row_numbers(frame)
    where = Where(str(path))
    absent = [name for name in FIELDS[:2] if name not in frame]
    if absent:
        rule = "a table must have the columns id and correct"
        raise input_error(where, rule, f"rename a column to {absent[0]}", f"columns {', '.join(map(str, frame))[:80]}")
    for name, what in (("correct", "a verdict"), ("id", "an id")):
        known = frame[name].notna().to_numpy()
        if (~known).any():
            notes.append(f"Rows without {what}, dropped: {int((~known).sum()):,}.")
        frame = frame[known]
    verdicts = [_verdict(value) for value in frame["correct"]]
    for row in (row for row, verdict in enumerate(verdicts) if verdict is None):
        rule, remedy = "correct must be 0 or 1", "leave the cell blank where there is no verdict"
        raise input_error(where, rule, remedy, shown_value(frame["correct"].tolist()[row]))
    right = np.array(verdicts, dtype=bool)
    signals, texts = _named_signals(frame.drop(columns=numbered), right, numbered)
    if not signals:
        rule = "a table must have a column of numbers beside id, correct, group, cost and baseline"
        raise input_error(where, rule, "add a signal", "; ".join(texts)[:200] or "none")
    notes += texts
    table = _answer_table(path, frame, right, signals)
    if table.reference is not None and np.isnan(table.reference).all():
        notes.append("The column baseline has no number and is ignored.")
        table = table._replace(reference=None)
    parts, text = _parts(table, seed)
    return answer_rows(table, parts, level=level, reach=REACH), [*notes, *([text] if text else [])]


def _named_signals(
    frame: pd.DataFrame, right: NDArray[np.bool_], numbered: list[str]
) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
    """Signals by name, and sentences on what they are, what is left out, and what ranks too well."""
    signals, ignored = _signals(frame)
    leaks = [name for name, values in signals.items() if _is_verdict(values, right)]
    signals = {name: values for name, values in signals.items() if name not in leaks}
    left_out = {
        "Columns that number the rows, left out": numbered,
        "Columns that equal correct or its opposite, left out": leaks,
        "Columns that are not of numbers, or have one value, are no signals": ignored,
    }
    notes = [f"{text}: {len(names)} ({', '.join(names)[:200]})." for text, names in left_out.items() if names]
    if signals:
        notes.append(f"Signals: {', '.join(signals)}.")
    for name, values in signals.items():
        area = max(auroc(right, values), 1.0 - auroc(right, values))
        if area >= SUSPECT:
            notes.append(f"{name} alone ranks with an AUROC of {area:.4f}: check that it is no verdict.")
    return signals, notes


def _frame(path: Path) -> tuple[pd.DataFrame, list[str]]:
    import pandas as pd

    if path.suffix in {".csv", ".tsv"}:
        return csv_frame(path, texts=("id", "group")), []
    if path.suffix == ".parquet":
        return parquet_frame(path), []
    lines = stored_lines(path)
    notes = [f"Lines that are no JSON object, dropped: {lines.unread:,}."] if lines.unread else []
    return pd.DataFrame.from_records([dict(record) for record in lines.records]), notes


def _row_numbers(frame: pd.DataFrame) -> list[str]:
    """Columns that number the rows from 0 or 1, and those without a head, which pandas writes for its index."""
    names = []
    for name in (name for name in frame if name not in FIELDS):
        values = _numbers(frame[name])
        is_count = values is not None and len(values) > 1 and values[0] in {0, 1} and (np.diff(values) == 1).all()
        if is_count or str(name) == "Unnamed: 0":
            names.append(str(name))
    return names


def _is_verdict(values: NDArray[np.float64], right: NDArray[np.bool_]) -> bool:
    """Whether a column is the verdict, or its opposite, wherever it has a value."""
    known = ~np.isnan(values)
    return any(np.array_equal(values[known], kind[known].astype(float)) for kind in (right, ~right))


def _verdict(value: Any) -> bool | None:  # noqa: ANN401 - any cell
    return bool(value) if isinstance(value, bool | int | float | np.bool_ | np.number) and value in {0, 1} else None


def _signals(frame: pd.DataFrame) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
    """Columns of numbers that vary, and the names of the others."""
    signals, ignored = {}, []
    for name in frame:
        if name in FIELDS:
            continue
        column = frame[name]
        numbers = _numbers(column)
        if numbers is not None and len(np.unique(numbers[~np.isnan(numbers)])) > 1:
            signals[str(name)] = numbers
        else:
            ignored.append(str(name))
    return signals, ignored


def _numbers(column: pd.Series[Any]) -> NDArray[np.float64] | None:
    """Values of a column of numbers, NaN where missing or infinite; None where it holds anything else."""
    from pandas.api.types import is_numeric_dtype

    # A column of truth values with blanks is one of objects.
    if not is_numeric_dtype(column) and not all(isinstance(cell, bool | int | float) for cell in column.dropna()):
        return None
    values = column.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _answer_table(
    path: Path, frame: pd.DataFrame, correct: NDArray[np.bool_], signals: dict[str, NDArray[np.float64]]
) -> AnswerTable:
    numbers = {name: _numbers(frame[name]) for name in ("cost", "baseline") if name in frame}
    for name in (name for name, values in numbers.items() if values is None):
        raise input_error(Where(str(path)), f"{name} must be a column of numbers", "correct its cells", "texts")
    group = (
        frame["group"].fillna("no group").astype(str).to_numpy(dtype=str)
        if "group" in frame
        else np.full(len(frame), "all questions")
    )
    return AnswerTable(
        table=path.name.removesuffix(".gz").rpartition(".")[0],
        names=tuple(signals),
        signals=np.stack(list(signals.values())),
        correct=correct,
        cell=group,
        question=frame["id"].astype(str).to_numpy(dtype=str),
        reference=numbers.get("baseline"),
        reference_name="the baseline of the table",
        calls=numbers.get("cost"),
        reference_calls=np.nan,
        notes={},
    )


def _parts(table: AnswerTable, seed: int) -> tuple[list[JudgedPart], str]:
    """Each group, fitted on the others; without groups each fold of questions; with shared questions both.

    No judged question is fitted on. The sentence says that groups share their questions.
    """
    groups = sorted(set(table.cell.tolist()))
    names, number = np.unique(table.question, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(np.arange(len(names)) % FOLDS)[number]
    other_folds = f"the other {FOLDS - 1} of {FOLDS} folds of questions"
    if len(groups) < 2:
        return [JudgedPart(fold == of, fold != of, other_folds) for of in range(FOLDS) if (fold == of).any()], ""
    judged = [table.cell == group for group in groups]
    fits = [~np.isin(table.question, np.unique(table.question[of])) for of in judged]
    words = "the other groups, without the judged questions"
    sharing = sum(_can_fit(table, ~of) and not _can_fit(table, fit) for of, fit in zip(judged, fits, strict=True))
    if not sharing:
        return [JudgedPart(of, fit, words) for of, fit in zip(judged, fits, strict=True)], ""
    which = "All groups share" if sharing == len(groups) else f"{sharing} of {len(groups)} groups share"
    words = f"the other groups, in {other_folds}"
    parts = [
        JudgedPart(of & (fold == each), ~of & (fold != each), words)
        for of in judged
        for each in range(FOLDS)
        if (of & (fold == each)).any()
    ]
    return parts, f"{which} their questions: each group is judged in {FOLDS} folds of questions, by {words}."


def _can_fit(table: AnswerTable, fit: NDArray[np.bool_]) -> bool:
    return min(int(table.correct[fit].sum()), int((~table.correct[fit]).sum())) >= LEAST
