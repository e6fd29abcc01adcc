"""Score tables (shore): finished MLflow, Ragas, DeepEval results by case, as signals of a trace."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from raglab.arguments.user_warnings import warn_user
from raglab.decision.answered_traces import answered_traces
from raglab.signals import NAMES
from raglab.store.cells import Cells, frame_cells
from raglab.store.csv_tables import MISSING_WORDS, csv_frame
from raglab.store.files import (
    MAX_FILE_BYTES,
    Where,
    decode_utf8,
    input_error,
    parse_json,
    read_bytes,
    shown_value,
)
from raglab.values import TraceData
from raglab.words.characters import plain_question, visible

if TYPE_CHECKING:
    import pandas as pd

Tool = Literal["mlflow", "ragas", "deepeval"]
Record = Mapping[str, Any]

# Columns that say which case a row is: names of a case, then what holds the question.
_IDS = ("case_id", "client_request_id", "name")
_QUESTIONS = ("user_input", "question", "query", "input", "inputs", "request")
_OF_RAGAS = frozenset(  # columns that are no metric, whatever they hold
    {
        *("user_input", "question", "query", "index", "Unnamed: 0", "case_id"),
        *("response", "answer", "reference", "ground_truth", "ground_truths"),
        *("retrieved_contexts", "reference_contexts", "contexts"),
    }
)
_WORDS = {
    "yes": 1.0,
    "no": 0.0,
    "true": 1.0,
    "false": 0.0,
    "pass": 1.0,
    "fail": 0.0,
    "unknown": math.nan,
}
_VERSION = re.compile(r"/v\d+$")
_LONGEST = 64  # characters of a signal's name
_HEADS_SHOWN = 20  # columns that a message names
_SHOWN = 5  # rows that a message names


class ScoreRow(NamedTuple):
    """A row of a score table.

    What names its case, and its scores by metric, NaN where one failed.
    """

    ids: tuple[str, ...]
    questions: tuple[str, ...]
    scores: Mapping[str, float]


@answered_traces("trace")
def score_table(
    trace: TraceData, source: str | Path | pd.DataFrame | Record, *, tool: Tool | None = None
) -> dict[str, pd.Series[float]]:
    """Scores of a finished evaluation, one Series a metric, for `Trace.with_signal`.

    A row belongs to the case whose id is in its column `case_id` (MLflow also `client_request_id`,
    DeepEval the test case's `name`), else to the one case that asks its question. Verdicts in words
    count as 1 and 0: yes and no, true and false, pass and fail; unknown, an error, an empty cell
    and `nan` are missing. Columns of other texts, and metrics without any score, are left out; a
    warning names the latter, and columns that have both numbers and texts. A CSV or TSV file is
    read as `raglab.store.csv_tables` describes; an index named as one of these columns is one.

    - MLflow: `result_df` of `mlflow.genai.evaluate`, a frame of `mlflow.search_traces`, or
      `eval_results_table` of `mlflow.evaluate`, as a frame or as its file; `faithfulness/v1/score`
      is named faithfulness.
    - Ragas: `result.to_pandas()`, or that as CSV, JSON or JSON lines; every column of numbers is a
      metric.
    - DeepEval: the JSON file of a test run, or `result.model_dump()`.

    Args:
      trace: the trace whose cases get the scores.
      source: a path, a DataFrame, or a mapping as a JSON file would hold it.
      tool: name of the tool; None recognises it by the columns.

    Returns:
      By signal name, values by case id in the trace's order, NaN for a case without a row. Metrics
        are named in small letters, digits and underscores; one that is the name of a built-in
        signal has the tool's name before it.

    Raises:
      InputError: it is none of these tables; a row fits no case or several, or two rows one case;
        names the rows.

    Example:
      >>> import pandas as pd
      >>> from raglab.store.frames import trace_from_frame
      >>> hits = pd.DataFrame(
      ...     [("q1", "Who pays?", "a", 0.9, "ok")],
      ...     columns="case_id query hit_id score label".split(),
      ... )
      >>> ragas = pd.DataFrame(
      ...     {"user_input": ["Who pays?"], "response": ["She."], "faithfulness": [0.5]}
      ... )
      >>> score_table(trace_from_frame(hits), ragas)["faithfulness"].to_dict()
      {'q1': 0.5}
    """
    import pandas as pd

    name = str(source) if isinstance(source, str | Path) else "scores"
    content = _content(Path(source), name) if isinstance(source, str | Path) else source
    source_tool = _tool(content, name) if tool is None else tool
    if source_tool not in get_args(Tool):
        raise input_error(
            Where(name),
            f"tool must be one of {', '.join(get_args(Tool))}",
            "leave it out",
            shown_value(tool),
        )
    rows = list(_rows(content, source_tool, name))
    metrics = list(
        dict.fromkeys(
            name for row in rows for name, score in row.scores.items() if not math.isnan(score)
        )
    )
    if not metrics:
        raise input_error(
            Where(name),
            f"a table of {source_tool} must hold scores",
            "give its finished results",
            "none",
        )
    cases = _cases(trace, rows, name)
    out = {}
    for metric, signal in _signal_names(metrics, source_tool, name).items():
        values = {
            case: row.scores.get(metric, math.nan) for case, row in zip(cases, rows, strict=True)
        }
        ordered = {case.id: values.get(case.id, math.nan) for case in trace.cases}
        out[signal] = pd.Series(ordered, dtype="float64", name=signal).rename_axis("case_id")
    return out


def _content(path: Path, name: str) -> pd.DataFrame | Record:
    """What a file holds: a table as a frame, or an object of JSON as it is."""
    suffix = path.suffix.lower()
    if suffix in {".csv", ".tsv"}:
        return csv_frame(path, texts=(*_IDS, *_QUESTIONS))
    if suffix not in {".json", ".jsonl"}:
        remedy = "give its DataFrame, or write it as one of these"
        raise input_error(
            Where(name),
            "a score table must be .csv, .tsv, .json or .jsonl",
            remedy,
            shown_value(path.suffix),
        )
    text = decode_utf8(read_bytes(path, MAX_FILE_BYTES), Where(name, 1))
    if suffix == ".jsonl":
        lines = enumerate(text.splitlines(), 1)
        value = [parse_json(line, Where(name, number)) for number, line in lines if line.strip()]
    else:
        value = parse_json(text, Where(name))
    # as mlflow.log_table writes it
    if isinstance(value, dict) and {"columns", "data"} <= value.keys():
        return _frame(value["data"], value["columns"], name)
    return value if isinstance(value, dict) else _frame(value, None, name)


def _frame(rows: object, columns: object, name: str) -> pd.DataFrame:
    import pandas as pd

    kinds = list if columns is not None else dict
    if (
        isinstance(rows, list)
        and isinstance(columns, list | None)
        and all(isinstance(row, kinds) for row in rows)
    ):
        try:
            return pd.DataFrame(rows, columns=columns, dtype=object)
        except ValueError as error:
            raise input_error(
                Where(name), "rows must be as long as the columns", "write it anew", str(error)
            ) from error
    rule = "a JSON file must hold a list of objects, or columns and data"
    raise input_error(
        Where(name), rule, "write it with to_json(orient='records')", shown_value(rows)
    )


def _tool(content: pd.DataFrame | Record, name: str) -> Tool:
    """Tool whose table this is, by its columns."""
    import pandas as pd

    if isinstance(content, Mapping):
        return "deepeval"
    if isinstance(content, pd.DataFrame):
        columns = [str(column) for column in content.columns]
        if "assessments" in columns or any(
            column.endswith(("/score", "/value")) for column in columns
        ):
            return "mlflow"
        if "user_input" in columns or "question" in columns:
            return "ragas"
        value = f"columns {', '.join(columns)}"[:200]
    else:
        value = type(content).__name__
    rule = (
        "a score table must have columns such as faithfulness/v1/score (MLflow) or user_input "
        "(Ragas)"
    )
    raise input_error(Where(name), rule, "say whose it is with tool=", value)


def _rows(content: pd.DataFrame | Record, tool: Tool, name: str) -> Iterator[ScoreRow]:
    if tool == "deepeval":
        yield from _deepeval_rows(content, name)
        return
    if isinstance(content, Mapping):
        rule, value = (
            f"a table of {tool} must be a DataFrame, or a list of rows in its file",
            "one object",
        )
        raise input_error(Where(name), rule, "give result_df or to_pandas()", value)
    cells = frame_cells(content, name, index=(*_IDS, *_QUESTIONS))
    names = (*_IDS, *_QUESTIONS)
    if not any(map(cells.has, names)):
        rule = (
            f"a score table must have one of the columns {', '.join(names)}, which say of which "
            "case a row is"
        )
        value = ", ".join(map(shown_value, list(cells.columns)[:_HEADS_SHOWN]))
        raise input_error(
            Where(name), rule, "rename what holds the case's id or its question", f"only {value}"
        )
    columns = _mlflow_columns(cells.columns) if tool == "mlflow" else {}
    if tool == "ragas":
        columns = {name: name for name in cells.columns if name not in _OF_RAGAS}
    scored = {
        metric: _scores(cells, column, words=tool == "mlflow") for column, metric in columns.items()
    }
    _warn_of_no_scores(cells, {column: scored[metric] for column, metric in columns.items()})
    assessed = cells.of("assessments") if tool == "mlflow" and not columns else [None] * cells.size
    for row in range(cells.size):
        record = {column: values[row] for column, values in cells.columns.items()}
        scores = {metric: values[row] for metric, values in scored.items() if values} | _assessed(
            assessed[row]
        )
        yield ScoreRow(_texts(record, _IDS), _texts(record, _QUESTIONS), scores)


def _mlflow_columns(columns: Mapping[str, Any]) -> dict[str, str]:
    """Metric of each column of scores; its version is kept where it has several."""
    named = {
        column: column.rpartition("/")[0]
        for column in columns
        if column.endswith(("/score", "/value"))
    }
    bare = [_VERSION.sub("", metric) for metric in named.values()]
    return {
        column: short if bare.count(short) == 1 else metric
        for (column, metric), short in zip(named.items(), bare, strict=True)
    }


def _assessed(assessments: object) -> dict[str, float]:
    """Scores of the feedback in a trace of MLflow.

    The last of several by one name holds, as in its page.
    """
    scores = {}
    for assessment in assessments if isinstance(assessments, list | tuple) else ():
        feedback = assessment.get("feedback") if isinstance(assessment, Mapping) else None
        value = _score(feedback.get("value"), words=True) if isinstance(feedback, Mapping) else None
        if value is not None and assessment.get("valid") is not False:
            scores[str(assessment.get("assessment_name"))] = value
    return scores


def _deepeval_rows(content: object, name: str) -> Iterator[ScoreRow]:
    """Rows of a test run.

    Its keys are those of Python or of JSON, the run itself may stand under `testRunData`.
    """
    run = content.get("testRunData", content) if isinstance(content, Mapping) else {}
    keys = ("testCases", "test_cases", "test_results")
    cases = next((run[key] for key in keys if isinstance(run, Mapping) and key in run), None)
    if not isinstance(cases, Sequence) or not all(isinstance(case, Mapping) for case in cases):
        rule = "a test run of DeepEval must hold its cases under testCases or test_results"
        raise input_error(
            Where(name),
            rule,
            "give the JSON file of its run, or result.model_dump()",
            _keys(content),
        )
    for case in cases:
        measured = case.get("metricsData", case.get("metrics_data")) or ()
        scores = {}
        for metric in measured if isinstance(measured, Sequence) else ():
            score = (
                _score(metric.get("score"), words=False) if isinstance(metric, Mapping) else None
            )
            if score is not None and isinstance(metric.get("name"), str):
                scores[metric["name"]] = score
        yield ScoreRow(_texts(case, _IDS), _texts(case, _QUESTIONS), scores)


def _keys(content: object) -> str:
    return (
        f"keys {', '.join(map(str, content))}"[:200]
        if isinstance(content, Mapping)
        else type(content).__name__
    )


def _scores(cells: Cells, column: str, *, words: bool) -> list[float]:
    """Numbers of a column, NaN where a cell is missing; none where one of its cells is no score.

    Warns:
      UserWarning: a column is left out, since some of its cells are numbers and others are none; or
        numbers stand in it as texts.
    """
    values = cells.columns[column]
    scores = [_score(value, words=words) for value in values]
    wrong = [row for row, score in enumerate(scores) if score is None]
    n_numbers = sum(score is not None and not math.isnan(score) for score in scores)
    # A column of texts, one of which is a number, is none of scores.
    if wrong and (
        n_numbers > len(wrong) or any(isinstance(value, int | float) for value in values)
    ):
        cell = f"the first {shown_value(values[wrong[0]])} in row {wrong[0]}"
        count = f"{len(wrong)} of {cells.size} cells are no numbers"
        warn_user(visible(f"{cells.name}: column {column} is left out: {count}, {cell}."))
    n_texts = sum(isinstance(value, str) and _is_number(value) for value in values)
    if n_texts and not wrong:
        count = f"{n_texts} of {cells.size} cells of column {column} are numbers as texts"
        warn_user(visible(f"{cells.name}: {count}, and are read as numbers."))
    return [] if wrong else [score for score in scores if score is not None]


def _warn_of_no_scores(cells: Cells, scored: Mapping[str, Sequence[float]]) -> None:
    """Name columns of scores that hold none, since no signal comes of them."""
    empty = [column for column, scores in scored.items() if scores and all(map(math.isnan, scores))]
    if empty:
        names = ", ".join(map(shown_value, empty[:_SHOWN]))
        more = f" and {len(empty) - _SHOWN} more" if len(empty) > _SHOWN else ""
        count = f"{len(empty)} of {len(scored)} columns"
        warn_user(
            visible(
                f"{cells.name}: {count} hold no score in any row and are left out: {names}{more}."
            )
        )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _score(value: object, *, words: bool) -> float | None:
    """Number of a cell, NaN for a missing one, None for what is no score."""
    if value is None:
        return math.nan
    if isinstance(value, bool | int | float):
        try:
            return float(value) if math.isfinite(value) else math.nan
        except OverflowError:
            return None
    text = value.strip().lower() if isinstance(value, str) else None
    if text is None or text in MISSING_WORDS:
        return None if text is None else math.nan
    if _is_number(text):
        return float(text)
    return _WORDS.get(text) if words else None


def _texts(record: Record, keys: Sequence[str]) -> tuple[str, ...]:
    """Texts under the keys; of an object, or of one as JSON, those of its values."""
    all_texts: list[str] = []
    for value in (record.get(key) for key in keys):
        held = value
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                held = json.loads(value)
            except (ValueError, RecursionError):
                held = value
        texts = held.values() if isinstance(held, Mapping) else [held]
        all_texts += [text for text in texts if isinstance(text, str) and text.strip()]
        all_texts += [str(text) for text in texts if type(text) is int]
    return tuple(all_texts)


def _cases(trace: TraceData, rows: Sequence[ScoreRow], name: str) -> list[str]:
    """Id of each row's case."""
    ids = {case.id for case in trace.cases}
    asking: dict[str, list[str]] = {}
    for case in trace.cases:
        asking.setdefault(plain_question(case.query), []).append(case.id)
    matches: list[list[str]] = []
    for row in rows:
        named = [case_id for case_id in row.ids if case_id in ids][:1]
        plain_texts = map(plain_question, row.questions)
        question_matches = [asking[text] for text in plain_texts if text in asking]
        matches.append(named or (question_matches[0] if question_matches else []))
    remedy = "add a column case_id, give the DataFrame itself, or take the row away"
    for fits, rule, value in (
        (
            [not match for match in matches],
            "a row must be of a case of the trace",
            "no case of that id or question",
        ),
        (
            [len(match) > 1 for match in matches],
            "a row must be of one case",
            "a question that several cases ask",
        ),
    ):
        if any(fits):
            raise input_error(Where(name), rule, remedy, f"{value} in {_rows_shown(rows, fits)}")
    cases = [match[0] for match in matches]
    twice = [cases.index(case) != place for place, case in enumerate(cases)]
    if any(twice):
        value = f"a case that an earlier row has in {_rows_shown(rows, twice)}"
        raise input_error(Where(name), "a case must have one row", remedy, value)
    return cases


def _rows_shown(rows: Sequence[ScoreRow], wrong: Sequence[bool]) -> str:
    """Rows by number, from 0, with what they ask; the first few, and how many there are."""
    numbers = [number for number, is_wrong in enumerate(wrong) if is_wrong]
    shown = [
        f"{number} ({shown_value(next(iter(rows[number].questions), ''))[:60]})"
        for number in numbers[:_SHOWN]
    ]
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"{'rows' if len(numbers) > 1 else 'row'} {', '.join(shown)}{more}"


def _signal_names(metrics: Sequence[str], tool: Tool, name: str) -> dict[str, str]:
    """Signal name of each metric."""
    signals: dict[str, str] = {}
    for metric in metrics:
        plain = re.sub(r"[^a-z0-9]+", "_", metric.lower()).strip("_")
        bare = plain if re.match("[a-z]", plain) and plain not in NAMES else f"{tool}_{plain}"
        signal = bare[:_LONGEST].rstrip("_")
        if signal in signals.values():
            earlier_metric = next(key for key in signals if signals[key] == signal)
            value = f"{shown_value(metric)} and {shown_value(earlier_metric)}, both {signal}"
            raise input_error(
                Where(name), "metrics must have different names as signals", "rename one", value
            )
        signals[metric] = signal
    return signals
