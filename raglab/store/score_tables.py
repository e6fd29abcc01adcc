"""Score tables (shore): finished results of MLflow, Ragas and DeepEval as columns by case, to be signals of a trace."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from raglab.misuse import takes
from raglab.signals import NAMES
from raglab.store.cells import Cells, frame_cells
from raglab.store.files import MAX_FILE_BYTES, Where, decode_utf8, input_error, parse_json, read_bytes, shown_value
from raglab.user_warnings import warn_user
from raglab.values import TraceData

if TYPE_CHECKING:
    import pandas as pd

Tool = Literal["mlflow", "ragas", "deepeval"]
Record = Mapping[str, Any]

# Columns that say which case a row is: names of a case, then what holds the question.
_IDS = ("case_id", "client_request_id", "name")
_QUESTIONS = ("user_input", "question", "query", "input", "inputs", "request")
_OF_RAGAS = frozenset(
    {"user_input", "question", "query", "index", "Unnamed: 0", "case_id"}
)  # numbers that are no score
_WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0, "pass": 1.0, "fail": 0.0, "unknown": math.nan}
_MISSING = frozenset({"", "nan", "none", "null", "na", "n/a"})  # texts that other tools write for no score
_VERSION = re.compile(r"/v\d+$")
_LONGEST = 64  # characters of a signal's name
_SHOWN = 5  # rows that a message names


class ScoreRow(NamedTuple):
    """A row of a score table: what names its case, and its scores by metric, NaN where one failed."""

    ids: tuple[str, ...]
    questions: tuple[str, ...]
    scores: Mapping[str, float]


@takes(trace="trace")
def score_table(
    trace: TraceData, source: str | Path | pd.DataFrame | Record, *, tool: Tool | None = None
) -> dict[str, pd.Series[float]]:
    """Scores of a finished evaluation, one Series a metric, for `Trace.with_signal`.

    A row belongs to the case whose id stands in its column `case_id` (MLflow also `client_request_id`, DeepEval the
    test case's `name`), else to the one case that asks its question. Verdicts in words count as 1 and 0: yes and no,
    true and false, pass and fail; unknown, an error, an empty cell and `nan` are missing. Columns of other texts, and
    metrics without any score, are left out; where a column has numbers beside them a warning says so.

    - MLflow: `result_df` of `mlflow.genai.evaluate`, a frame of `mlflow.search_traces`, or `eval_results_table` of
      `mlflow.evaluate`, as a frame or as its file; `faithfulness/v1/score` is named faithfulness.
    - Ragas: `result.to_pandas()`, or that as CSV, JSON or JSON lines; every column of numbers is a metric.
    - DeepEval: the JSON file of a test run, or `result.model_dump()`.

    Args:
      source: a path, a DataFrame, or a mapping as a JSON file would hold it. tool: None tells it by the columns.

    Returns: by signal name, values by case id in the trace's order, NaN for a case without a row. Metrics are named in
      small letters, digits and underscores; one that is the name of a built-in signal has the tool's name before it.

    Raises:
      InputError: it is none of these tables; a row fits no case or several, or two rows one case; names the rows.

    Example:
      >>> import pandas as pd
      >>> from raglab.store.frames import trace_from_frame
      >>> hits = pd.DataFrame([("q1", "Who pays?", "a", 0.9, "ok")], columns="case_id query hit_id score label".split())
      >>> ragas = pd.DataFrame({"user_input": ["Who pays?"], "response": ["She."], "faithfulness": [0.5]})
      >>> score_table(trace_from_frame(hits), ragas)["faithfulness"].to_dict()
      {'q1': 0.5}
    """
    import pandas as pd

    name = str(source) if isinstance(source, str | Path) else "scores"
    content = _content(Path(source), name) if isinstance(source, str | Path) else source
    found = _tool(content, name) if tool is None else tool
    if found not in get_args(Tool):
        raise input_error(
            Where(name), f"tool must be one of {', '.join(get_args(Tool))}", "leave it out", shown_value(tool)
        )
    rows = list(_rows(content, found, name))
    metrics = list(dict.fromkeys(name for row in rows for name, score in row.scores.items() if not math.isnan(score)))
    if not metrics:
        raise input_error(Where(name), f"a table of {found} must hold scores", "give its finished results", "none")
    cases = _cases(trace, rows, name)
    out = {}
    for metric, signal in _signal_names(metrics, found, name).items():
        values = {case: row.scores.get(metric, math.nan) for case, row in zip(cases, rows, strict=True)}
        ordered = {case.id: values.get(case.id, math.nan) for case in trace.cases}
        out[signal] = pd.Series(ordered, dtype="float64", name=signal).rename_axis("case_id")
    return out


def _content(path: Path, name: str) -> pd.DataFrame | Record:
    """What a file holds: a table as a frame, or an object of JSON as it is."""
    import pandas as pd

    text = decode_utf8(read_bytes(path, MAX_FILE_BYTES), Where(name, 1))
    suffix = path.suffix.lower()
    if suffix == ".csv":
        try:
            return pd.read_csv(StringIO(text), dtype_backend="numpy_nullable")
        except ValueError as error:  # of pandas' parser too
            came = str(error).splitlines()[0]
            raise input_error(Where(name), "a CSV must be a table", "write it with to_csv", came) from error
    if suffix not in {".json", ".jsonl"}:
        remedy = "give its DataFrame, or write it as one of these"
        raise input_error(Where(name), "a score table must be .csv, .json or .jsonl", remedy, shown_value(path.suffix))
    if suffix == ".jsonl":
        lines = enumerate(text.splitlines(), 1)
        value = [parse_json(line, Where(name, number)) for number, line in lines if line.strip()]
    else:
        value = parse_json(text, Where(name))
    if isinstance(value, dict) and {"columns", "data"} <= value.keys():  # as mlflow.log_table writes it
        return _frame(value["data"], value["columns"], name)
    return value if isinstance(value, dict) else _frame(value, None, name)


def _frame(rows: object, columns: object, name: str) -> pd.DataFrame:
    import pandas as pd

    kinds = list if columns is not None else dict
    if isinstance(rows, list) and isinstance(columns, list | None) and all(isinstance(row, kinds) for row in rows):
        try:
            return pd.DataFrame(rows, columns=columns, dtype=object)
        except ValueError as error:
            raise input_error(
                Where(name), "rows must be as long as the columns", "write it anew", str(error)
            ) from error
    rule = "a JSON file must hold a list of objects, or columns and data"
    raise input_error(Where(name), rule, "write it with to_json(orient='records')", shown_value(rows))


def _tool(content: pd.DataFrame | Record, name: str) -> Tool:
    """Tool whose table this is, by its columns."""
    import pandas as pd

    if isinstance(content, Mapping):
        return "deepeval"
    if isinstance(content, pd.DataFrame):
        columns = [str(column) for column in content.columns]
        if "assessments" in columns or any(column.endswith(("/score", "/value")) for column in columns):
            return "mlflow"
        if "user_input" in columns or "question" in columns:
            return "ragas"
        came = f"columns {', '.join(columns)}"[:200]
    else:
        came = type(content).__name__
    rule = "a score table must have columns such as faithfulness/v1/score (MLflow) or user_input (Ragas)"
    raise input_error(Where(name), rule, "say whose it is with tool=", came)


def _rows(content: pd.DataFrame | Record, tool: Tool, name: str) -> Iterator[ScoreRow]:
    if tool == "deepeval":
        yield from _deepeval_rows(content, name)
        return
    if isinstance(content, Mapping):
        rule, came = f"a table of {tool} must be a DataFrame, or a list of rows in its file", "one object"
        raise input_error(Where(name), rule, "give result_df or to_pandas()", came)
    cells = frame_cells(content, name)
    columns = _mlflow_columns(cells.columns) if tool == "mlflow" else {}
    if tool == "ragas":
        columns = {name: name for name in cells.columns if name not in _OF_RAGAS}
    scored = {metric: _scores(cells, column, words=tool == "mlflow") for column, metric in columns.items()}
    assessed = cells.of("assessments") if tool == "mlflow" and not columns else [None] * cells.size
    for row in range(cells.size):
        record = {column: values[row] for column, values in cells.columns.items()}
        scores = {metric: values[row] for metric, values in scored.items() if values} | _assessed(assessed[row])
        yield ScoreRow(_texts(record, _IDS), _texts(record, _QUESTIONS), scores)


def _mlflow_columns(columns: Mapping[str, Any]) -> dict[str, str]:
    """Metric of each column of scores; its version is kept where it has several."""
    named = {one: one.rpartition("/")[0] for one in columns if one.endswith(("/score", "/value"))}
    bare = [_VERSION.sub("", metric) for metric in named.values()]
    return {
        column: short if bare.count(short) == 1 else metric
        for (column, metric), short in zip(named.items(), bare, strict=True)
    }


def _assessed(assessments: object) -> dict[str, float]:
    """Scores of the feedback in a trace of MLflow; the last of several by one name holds, as in its page."""
    found = {}
    for one in assessments if isinstance(assessments, list | tuple) else ():
        feedback = one.get("feedback") if isinstance(one, Mapping) else None
        value = _score(feedback.get("value"), words=True) if isinstance(feedback, Mapping) else None
        if value is not None and one.get("valid") is not False:
            found[str(one.get("assessment_name"))] = value
    return found


def _deepeval_rows(content: object, name: str) -> Iterator[ScoreRow]:
    """Rows of a test run: its keys are those of Python or of JSON, the run itself may stand under `testRunData`."""
    run = content.get("testRunData", content) if isinstance(content, Mapping) else {}
    keys = ("testCases", "test_cases", "test_results")
    cases = next((run[key] for key in keys if isinstance(run, Mapping) and key in run), None)
    if not isinstance(cases, Sequence) or not all(isinstance(case, Mapping) for case in cases):
        rule = "a test run of DeepEval must hold its cases under testCases or test_results"
        raise input_error(Where(name), rule, "give the JSON file of its run, or result.model_dump()", _keys(content))
    for case in cases:
        measured = case.get("metricsData", case.get("metrics_data")) or ()
        scores = {}
        for one in measured if isinstance(measured, Sequence) else ():
            score = _score(one.get("score"), words=False) if isinstance(one, Mapping) else None
            if score is not None and isinstance(one.get("name"), str):
                scores[one["name"]] = score
        yield ScoreRow(_texts(case, _IDS), _texts(case, _QUESTIONS), scores)


def _keys(content: object) -> str:
    return f"keys {', '.join(map(str, content))}"[:200] if isinstance(content, Mapping) else type(content).__name__


def _scores(cells: Cells, column: str, *, words: bool) -> list[float]:
    """Numbers of a column, NaN where a cell is missing; none where one of its cells is no score, or all are missing.

    A warning says which columns of numbers are left out, since some of their cells are texts.
    """
    values = cells.columns[column]
    scores = [_score(value, words=words) for value in values]
    wrong = [row for row, score in enumerate(scores) if score is None]
    if wrong and any(isinstance(value, int | float) for value in values):
        cell = f"the first {shown_value(values[wrong[0]])} in row {wrong[0]}"
        warn_user(
            f"{cells.name}: column {column} is left out: {len(wrong)} of {cells.size} cells are no numbers, {cell}."
        )
    all_missing = all(value is None for value in values)
    return [] if wrong or all_missing else [score for score in scores if score is not None]


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
    if text in _MISSING:
        return math.nan
    return _WORDS.get(text) if words and text is not None else None


def _texts(record: Record, keys: Sequence[str]) -> tuple[str, ...]:
    """Texts under the keys; of an object, or of one as JSON, those of its values."""
    found: list[str] = []
    for value in (record.get(key) for key in keys):
        held = value
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                held = json.loads(value)
            except (ValueError, RecursionError):
                held = value
        texts = held.values() if isinstance(held, Mapping) else [held]
        found += [text for text in texts if isinstance(text, str) and text.strip()]
        found += [str(text) for text in texts if type(text) is int]
    return tuple(found)


def _cases(trace: TraceData, rows: Sequence[ScoreRow], name: str) -> list[str]:
    """Id of each row's case."""
    ids = {case.id for case in trace.cases}
    asking: dict[str, list[str]] = {}
    for case in trace.cases:
        asking.setdefault(_bare(case.query), []).append(case.id)
    matches: list[list[str]] = []
    for row in rows:
        named = [one for one in row.ids if one in ids][:1]
        asked = [asking[_bare(text)] for text in row.questions if _bare(text) in asking]
        matches.append(named or (asked[0] if asked else []))
    remedy = "add a column case_id, give the DataFrame itself, or take the row away"
    for fits, rule, came in (
        ([not match for match in matches], "a row must be of a case of the trace", "no case of that id or question"),
        ([len(match) > 1 for match in matches], "a row must be of one case", "a question that several cases ask"),
    ):
        if any(fits):
            raise input_error(Where(name), rule, remedy, f"{came} in {_rows_shown(rows, fits)}")
    cases = [match[0] for match in matches]
    twice = [cases.index(case) != place for place, case in enumerate(cases)]
    if any(twice):
        came = f"a case that an earlier row has in {_rows_shown(rows, twice)}"
        raise input_error(Where(name), "a case must have one row", remedy, came)
    return cases


def _bare(text: str) -> str:
    """Text without the white space around it and what is double."""
    return " ".join(text.split())


def _rows_shown(rows: Sequence[ScoreRow], wrong: Sequence[bool]) -> str:
    """Rows by number, from 0, with what they ask; the first few, and how many there are."""
    numbers = [number for number, is_wrong in enumerate(wrong) if is_wrong]
    shown = [f"{number} ({shown_value(next(iter(rows[number].questions), ''))[:60]})" for number in numbers[:_SHOWN]]
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"{'rows' if len(numbers) > 1 else 'row'} {', '.join(shown)}{more}"


def _signal_names(metrics: Sequence[str], tool: Tool, name: str) -> dict[str, str]:
    """Signal name of each metric."""
    found: dict[str, str] = {}
    for metric in metrics:
        plain = re.sub(r"[^a-z0-9]+", "_", metric.lower()).strip("_")
        bare = plain if re.match("[a-z]", plain) and plain not in NAMES else f"{tool}_{plain}"
        signal = bare[:_LONGEST].rstrip("_")
        if signal in found.values():
            other = next(one for one in found if found[one] == signal)
            came = f"{shown_value(metric)} and {shown_value(other)}, both {signal}"
            raise input_error(Where(name), "metrics must have different names as signals", "rename one", came)
        found[metric] = signal
    return found
