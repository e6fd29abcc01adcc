"""Traces of MLflow, on a store of SQLite with spans that MLflow's tracing logged."""

from __future__ import annotations

import shutil
import sqlite3
import warnings
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from processes import at_once
from raglab.extensions.imports.mlflow_traces import trace_from_mlflow
from raglab.store.files import InputError

EXPERIMENT = "help desk"
QUESTIONS = {"what is the excess?": 0.9, "who won the cup?": 0.2, "is water covered?": 0.6}


def log_traces(uri, experiment):
    """Log traces of an application: MLflow has one store a process, which other tests set too."""
    import mlflow
    from mlflow.entities import AssessmentSource

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(experiment)
    names = []
    for question, score in QUESTIONS.items():
        with mlflow.start_span(name="answer", span_type="CHAIN") as root:
            root.set_inputs({"question": question})
            mlflow.update_current_trace(tags={"tenant": "north" if score > 0.5 else "south"})
            with mlflow.start_span(name="search", span_type="RETRIEVER") as search:
                search.set_inputs({"query": question})
                metadata = {"score": score, "doc_uri": "policy.md", "page": 2}
                hit = {"page_content": "The excess is £250.", "metadata": metadata, "id": "p2"}
                search.set_outputs([hit])
            root.set_outputs({"answer": "£250"})
        names.append(root.trace_id)
    with mlflow.start_span(name="ping"):
        pass
    with mlflow.start_span(name="answer", span_type="CHAIN") as root:
        root.set_inputs({"question": "is hail covered?"})
        with (
            suppress(TimeoutError),
            mlflow.start_span(name="search", span_type="RETRIEVER") as search,
        ):
            search.set_inputs({"query": "is hail covered?"})
            raise TimeoutError
    mlflow.flush_trace_async_logging()
    person = AssessmentSource(source_type="HUMAN", source_id="ann")
    judge = AssessmentSource(source_type="LLM_JUDGE", source_id="small")
    mlflow.log_feedback(trace_id=names[0], name="thumb", value=True, source=person)
    mlflow.log_feedback(trace_id=names[1], name="grounded", value="no", source=judge)
    for name in names[1:]:
        mlflow.log_expectation(trace_id=name, name="expected_answer", value="yes", source=person)


@pytest.fixture(scope="module")
def store(tmp_path_factory, empty_runs):
    """Address of a store with three requests, feedback on two, and a trace without retriever."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{shutil.copy(empty_runs, folder / 'mlflow.db')}"
    assert at_once([partial(log_traces, uri, EXPERIMENT)]) == [0]
    return uri


DAMAGES = {
    "of another kind": lambda file: file.write_bytes(b"no database " * 999),
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:40_000]),
    "emptied": lambda file: file.write_bytes(file.read_bytes()[:8_192] + bytes(400_000)),
    "without spans": lambda file: _changed(file, "DROP TABLE spans"),
    "spans of no JSON": lambda file: _changed(file, "UPDATE spans SET content = '{oops'"),
    "spans of nothing": lambda file: _changed(file, "UPDATE spans SET content = '{}'"),
}


def _changed(file, statement):
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_named(store, damage, tmp_path):
    """With what was said and what helps, not by an error of a library."""
    file = tmp_path / "store.db"
    file.write_bytes(Path(store.removeprefix("sqlite:///")).read_bytes())
    DAMAGES[damage](file)
    with pytest.raises(InputError, match=r"the store must be whole, got .*; restore a copy"):
        trace_from_mlflow(EXPERIMENT, tracking_uri=f"sqlite:///{file}")


def imported(experiment, **options):
    """Trace, with all that the import warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = trace_from_mlflow(experiment, **options)
    return trace, "\n".join(str(warning.message) for warning in caught)


class TestStore:
    """An experiment by its name."""

    def test_requests_with_scores_feedback_and_groups(self, store):
        """In the order of their time; the trace without a retriever is counted."""
        trace, text = imported(EXPERIMENT, tracking_uri=store, groups=("tenant",))
        assert [case.query for case in trace.cases] == list(QUESTIONS)
        assert trace.signal("retriever_score").tolist() == pytest.approx(list(QUESTIONS.values()))
        assert [case.expect_status for case in trace.cases] == ["ok", "refuse", None]
        assert [case.notes for case in trace.cases[:2]] == [
            "feedback thumb=True (human)",
            "feedback grounded=no (llm_judge)",
        ]
        assert [case.extra["groups"] for case in trace.cases] == [
            {"tenant": name} for name in ("north", "south", "north")
        ]
        assert {case.extra["logged_answer"] for case in trace.cases} == {"£250"}
        assert [(chunk.chunk_id, chunk.source, chunk.page) for chunk in trace.chunks] == [
            ("p2", "policy.md", 2)
        ]
        assert "1 traces have no retriever's span" in text
        assert "1 traces have a retriever that failed" in text

    def test_the_same_of_what_a_search_gives(self, store):
        """A frame or a list of `mlflow.search_traces`, in any order."""
        from mlflow import MlflowClient

        whole, _ = imported(EXPERIMENT, tracking_uri=store)
        client = MlflowClient(tracking_uri=store)
        known = client.get_experiment_by_name(EXPERIMENT)
        rows = list(client.search_traces(locations=[known.experiment_id]))
        for searched in (
            rows,
            rows[::-1],
            pd.DataFrame({"trace": [row.to_json() for row in rows]}),
        ):
            trace, _ = imported(searched)
            assert trace.cases == whole.cases
            assert trace.meta["fingerprint"] == whole.meta["fingerprint"]

    def test_labels_of_one_name(self, store):
        """A judge's labels are its own."""
        trace, _ = imported(EXPERIMENT, tracking_uri=store, feedback=("grounded",))
        assert [case.expect_status for case in trace.cases] == [None, "refuse", None]

    def test_an_experiment_that_is_not_there(self, store):
        """The message names those that are."""
        with pytest.raises(InputError, match=EXPERIMENT):
            imported("helpdesk", tracking_uri=store)


@pytest.mark.parametrize("value", [5, None, pd.DataFrame({"question": ["one?"]})])
def test_what_is_no_experiment(value):
    """A number, and a frame without the column `trace`."""
    with pytest.raises((TypeError, KeyError)):
        imported(value)


def test_no_file_is_made_for_a_store_that_is_not_there(tmp_path):
    """A path of SQLite that is wrong is an error, not a new store."""
    with pytest.raises(InputError, match="a store of MLflow must be there"):
        imported(EXPERIMENT, tracking_uri=f"sqlite:///{tmp_path / 'none.db'}")
    assert list(tmp_path.iterdir()) == []
