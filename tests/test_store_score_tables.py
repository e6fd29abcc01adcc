"""Finished MLflow, Ragas and DeepEval scores as columns by case, in shapes they write."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.store.files import InputError
from raglab.store.frames import trace_from_frame
from raglab.store.score_tables import score_table
from raglab.store.traces import Trace

QUESTIONS = ["Who pays?", "When?", "What is the\nexcess?"]


def trace_of(questions: list[str]) -> Trace:
    """Trace with one hit a question; cases are q1, q2 and so on."""
    rows = [(f"q{n}", query, "p", 0.9, "ok") for n, query in enumerate(questions, 1)]
    return trace_from_frame(
        pd.DataFrame(rows, columns=["case_id", "query", "hit_id", "score", "label"])
    )


TRACE = trace_of(QUESTIONS)


def assessment(name: str, value: Any, kind: str = "feedback", **more: Any) -> dict[str, Any]:
    """An assessment as `mlflow.entities.Assessment.to_dictionary` has it in 3.17."""
    return {
        "assessment_id": "a",
        "assessment_name": name,
        "trace_id": "tr",
        kind: {"value": value},
        "valid": True,
        **more,
    }


def test_the_result_of_mlflow_genai_evaluate() -> None:
    """`result_df`: verdicts in words and booleans are 1 and 0.

    A failed scorer and expectations give no column.
    """
    frame = pd.DataFrame(
        {
            "trace_id": ["t1", "t2"],
            "length/value": [0.8, 0.1],
            "polite/value": ["yes", "no"],
            "ok/value": [True, False],
            "partly/value": ["yes", None],
            "broken/value": [None, None],
            "broken/error_message": ["x", "x"],
            "expected_response/value": ["She.", np.nan],
            "client_request_id": [None, None],
            "request": [{"question": "When?"}, {"messages": [], "question": "Who  pays? "}],
            "response": ["please b", "d"],
            "execution_duration": [3, 4],
        }
    )
    found = score_table(TRACE, frame)
    assert [*found] == ["length", "polite", "ok", "partly"]
    assert found["length"].to_dict() == pytest.approx(
        {"q1": 0.1, "q2": 0.8, "q3": math.nan}, nan_ok=True
    )
    assert found["polite"].tolist()[:2] == found["ok"].tolist()[:2] == [0.0, 1.0]
    assert found["partly"].isna().tolist() == [True, False, True]
    assert found["length"].name == "length"
    assert found["length"].index.name == "case_id"


def test_a_frame_of_mlflow_search_traces() -> None:
    """The feedback among the assessments, by case id where the trace has one.

    Not what is expected or overridden.
    """
    frame = pd.DataFrame(
        {
            "client_request_id": ["q3", None],
            "request": ['{"question": "something else"}', '{"question": "When?"}'],
            "assessments": [
                [assessment("Guidelines", "yes"), assessment("expected", "x", "expectation")],
                [
                    assessment("Guidelines", "yes", valid=False),
                    assessment("safe", 0.5),
                    assessment("why", "text"),
                ],
            ],
        }
    )
    found = score_table(TRACE, frame)
    assert {name: column.dropna().to_dict() for name, column in found.items()} == {
        "guidelines": {"q3": 1.0},
        "safe": {"q2": 0.5},
    }


def test_the_table_that_mlflow_evaluate_logs(tmp_path: Path) -> None:
    """`eval_results_table.json`: columns and data.

    The version of a metric is kept where it has two.
    """
    columns = [
        "inputs",
        "outputs",
        "faithfulness/v1/score",
        "faithfulness/v1/justification",
        "f1/v1/score",
        "f1/v2/score",
    ]
    data = [["Who pays?", "b", 0.5, "a", 1, 2], ["When?", "d", None, "b", 3, 4]]
    path = tmp_path / "eval_results_table.json"
    path.write_text(json.dumps({"columns": columns, "data": data}))
    found = score_table(TRACE, path)
    assert {name: column.dropna().tolist() for name, column in found.items()} == {
        "faithfulness": [0.5],
        "f1_v1": [1.0, 3.0],
        "f1_v2": [2.0, 4.0],
    }


RAGAS = pd.DataFrame(
    {
        "user_input": [QUESTIONS[2], "Who pays?"],
        "retrieved_contexts": [["a"], ["b", "c"]],
        "response": ["no", "yes"],
        "reference": ["x", "y"],
        "faithfulness": [1.0, np.nan],
        "factual_correctness(mode=f1)": [0.25, 0.5],
        "support": [0.0, 1.0],
    }
)


def test_the_frame_of_ragas(tmp_path: Path) -> None:
    """Every column of numbers, under a name that a signal may have.

    Answers that say yes are no score.
    """
    wanted = {
        "faithfulness": [1.0],
        "factual_correctness_mode_f1": [0.5, 0.25],
        "ragas_support": [1.0, 0.0],
    }
    csv, lines, records = (tmp_path / f"ragas.{kind}" for kind in ("csv", "jsonl", "json"))
    RAGAS.to_csv(csv)
    RAGAS.to_json(lines, orient="records", lines=True)
    RAGAS.to_json(records, orient="records")
    for source in (RAGAS, csv, lines, str(records)):
        found = score_table(TRACE, source)
        assert {name: column.dropna().tolist() for name, column in found.items()} == wanted
    older = RAGAS.rename(columns={"user_input": "question", "response": "answer"})
    assert [*score_table(TRACE, older)] == [*wanted]


def metric(name: str, score: float | None, **more: Any) -> dict[str, Any]:
    """A metric of DeepEval as 4.3 writes it."""
    return {
        "name": name,
        "threshold": 0.5,
        "success": True,
        "score": score,
        "strictMode": False,
        "flaky": False,
        **more,
    }


def test_the_test_run_of_deepeval(tmp_path: Path) -> None:
    """Under `testCases` in its file, `test_results` in Python.

    By the name of the case, else by its input.
    """
    scored = [metric("Answer Relevancy", 0.75), metric("Correctness [GEval]", 0.5)]
    failed = [metric("Answer Relevancy", None, error="no reply")]
    run = {
        "testCases": [
            {
                "name": "test_case_0",
                "input": "When?",
                "actualOutput": "b",
                "metricsData": scored,
                "order": 0,
            },
            {
                "name": "q1",
                "input": "paraphrased",
                "actualOutput": "d",
                "metricsData": failed,
                "order": 1,
            },
        ],
        "conversationalTestCases": [],
        "metricsScores": [
            {"metric": "Answer Relevancy", "scores": [0.75], "passes": 1, "fails": 0, "errors": 0}
        ],
        "testPassed": 1,
    }
    path = tmp_path / ".latest_run_full.json"
    path.write_text(json.dumps(run))
    python = [
        {
            "name": case["name"],
            "input": case["input"],
            "metrics_data": case["metricsData"],
            "success": True,
        }
        for case in run["testCases"]  # type: ignore[attr-defined]
    ]
    for source in (path, {"testRunData": run}, {"test_results": python, "confident_link": None}):
        found = score_table(TRACE, source)
        assert {name: column.dropna().to_dict() for name, column in found.items()} == {
            "answer_relevancy": {"q2": 0.75},
            "correctness_geval": {"q2": 0.5},
        }


def test_a_column_of_case_ids_goes_before_the_question() -> None:
    """Also for questions that are asked twice, and for ids that are numbers."""
    twice = trace_of(["Who pays?", "Who pays?"])
    frame = pd.DataFrame(
        {"case_id": ["q2", "q1"], "user_input": ["Who pays?"] * 2, "faithfulness": [0.25, 0.75]}
    )
    assert score_table(twice, frame)["faithfulness"].tolist() == [0.75, 0.25]
    assert score_table(twice, frame.iloc[:1])["faithfulness"].isna().tolist() == [True, False]


FRAME = pd.DataFrame({"user_input": ["Who pays?", "When?"], "faithfulness": [0.25, 0.75]})


@pytest.mark.parametrize(
    ("questions", "source", "message"),
    [
        (
            QUESTIONS,
            FRAME.assign(user_input=["Who?", "When?"]),
            r"of a case of the trace, got .* in row 0 \('Who\?'\)",
        ),
        (
            QUESTIONS,
            FRAME.assign(user_input=["Who?", "Why?"]),
            r"in rows 0 \('Who\?'\), 1 \('Why\?'\); add a column",
        ),
        (
            QUESTIONS,
            FRAME.assign(user_input="When?"),
            r"a case must have one row, got .* in row 1 \('When\?'\)",
        ),
        (
            ["When?", "Who pays?", "When?"],
            FRAME,
            r"a row must be of one case, got .* in row 1 \('When\?'\)",
        ),
        (
            QUESTIONS,
            FRAME.assign(case_id=["q1", "q9"]).drop(columns="user_input"),
            "columns such as faithfulness/v1",
        ),
        (
            QUESTIONS,
            FRAME.drop(columns="faithfulness"),
            "a table of ragas must hold scores, got none",
        ),
        (QUESTIONS, FRAME.assign(Faithfulness=1.0), "both faithfulness; rename one"),
        (QUESTIONS, FRAME.iloc[:0], "at least one row"),
        (QUESTIONS, {"a": 1}, "must hold its cases under testCases or test_results, got keys a"),
        (QUESTIONS, {"testCases": [1]}, "must hold its cases"),
        (QUESTIONS, {"testCases": []}, "a table of deepeval must hold scores"),
        (QUESTIONS, {"testRunData": [1]}, "must hold its cases"),
        (QUESTIONS, [1, 2], "a score table must have columns .* got list"),
        (QUESTIONS, pd.DataFrame({"x": [1]}), "got columns x; say whose it is with tool="),
    ],
)
def test_what_fits_no_case_is_named(questions: list[str], source: Any, message: str) -> None:
    """With the rows, and nothing is left out in silence."""
    with pytest.raises(InputError, match=message):
        score_table(trace_of(questions), source)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "[1, 2]", "a JSON file must hold a list of objects, or columns and data"),
        (
            "run.json",
            '{"columns": ["a", "b"], "data": [[1]]}',
            "rows must be as long as the columns",
        ),
        ("run.json", '{"columns": "a", "data": [[1]]}', "a list of objects"),
        ("run.json", "{", "text must be valid JSON"),
        ("run.jsonl", '{"user_input": "When?"}\n{', "line 2"),
        ("run.csv", 'a,b\n1\n"', "must be valid CSV"),
        ("run.csv", "", "must not be empty"),
        ("run.xlsx", "x", r"must be .csv, .tsv, .json or .jsonl, got '.xlsx'"),
        ("run.pkl", "x", "must be .csv"),
    ],
)
def test_a_file_that_is_no_table_is_an_error_with_its_name(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    """Rule, what came and remedy in one line."""
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        score_table(TRACE, tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tool_that_is_unknown_or_wrong_is_refused() -> None:
    """One can be stated where the columns do not tell it."""
    with pytest.raises(InputError, match="tool must be one of mlflow, ragas, deepeval"):
        score_table(TRACE, FRAME, tool="langsmith")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must hold its cases"):
        score_table(TRACE, FRAME, tool="deepeval")
    with pytest.raises(InputError, match="a table of ragas must be a DataFrame"):
        score_table(TRACE, {"testCases": []}, tool="ragas")
    assert [*score_table(TRACE, FRAME.rename(columns={"user_input": "query"}), tool="ragas")] == [
        "faithfulness"
    ]


def test_the_columns_become_signals() -> None:
    """As `Trace.with_signal` takes them."""
    found = score_table(TRACE, RAGAS)["factual_correctness_mode_f1"]
    trace = TRACE.with_signal("factual", found, higher="surer", unit="probability", source="Ragas")
    assert trace.signal("factual").to_dict() == pytest.approx(
        {"q1": 0.5, "q2": math.nan, "q3": 0.25}, nan_ok=True
    )


def test_a_missing_score_written_as_text() -> None:
    """A cell `nan` is missing, its column stays.

    One with other texts is left out with a warning.
    """
    frame = pd.DataFrame(
        {"user_input": QUESTIONS, "faithfulness": pd.Series([0.5, "nan", 1.0], dtype=object)},
    )
    assert score_table(TRACE, frame, tool="ragas")["faithfulness"].isna().tolist() == [
        False,
        True,
        False,
    ]
    mixed = frame.assign(graded=pd.Series([1.0, "high", 0.0], dtype=object))
    with pytest.warns(
        UserWarning,
        match=r"column graded is left out: 1 of 3 cells are no numbers, the first 'high'",
    ):
        found = score_table(TRACE, mixed, tool="ragas")
    assert list(found) == ["faithfulness"]
