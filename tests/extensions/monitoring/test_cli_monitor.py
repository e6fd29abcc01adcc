"""`raglab monitor` and the gauges."""

from __future__ import annotations

import json
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from labelled import free_policy, labelled
from labelled_streams import answers
from processes import at_once
from raglab.cli import app
from raglab.extensions.monitoring.monitoring import monitor
from raglab.extensions.monitoring.states import MonitorState
from raglab.lab.certification import certify_policy


@pytest.fixture
def certified(tmp_path):
    """File of a policy that promises at most 40 % hallucination."""
    policy = free_policy(similarity={"min_similarity": 0.6})
    result = certify_policy(
        labelled(1, {"certify": 300}), policy, targets={"hallucination_rate": 0.4}
    )
    assert result.policy is not None
    result.policy.save(tmp_path / "c.yaml")
    return tmp_path / "c.yaml"


def called(*arguments):
    """Exit code, and what is printed."""
    done = CliRunner().invoke(app, ["monitor", *map(str, arguments)])
    return done.exit_code, done.output


def test_labels_as_they_come(certified, tmp_path):
    """Too few, held, alarm: exit 4, 0, 3; the state goes on, and rows are read once."""
    state, out, labels = tmp_path / "state.json", tmp_path / "out.prom", tmp_path / "labels.csv"
    codes = []
    for number, wrong in enumerate(([False] * 3, [False] * 60, [True] * 200)):
        rows = answers(wrong, request_id=[f"{number}-{row}" for row in range(len(wrong))])
        rows.to_csv(labels, index=False)
        code, text = called(certified, labels, "--state", state, "--out", out)
        codes.append(code)
        assert "hallucination_rate" in text
        assert ("state.json is not there" in text) == (number == 0)
    assert codes == [4, 0, 3]
    assert "verdict: alarm" in text
    assert MonitorState.load(state).labelled == 263
    families = {
        family.name: family.samples
        for family in text_string_to_metric_families(out.read_text("utf-8"))
    }
    (alarm,) = families["raglab_promise_alarm"]
    assert (alarm.value, alarm.labels["promise"]) == (1.0, "hallucination_rate")
    assert families["raglab_promise_labelled"][0].value == 263.0
    code, text = called(certified, labels, "--state", state)
    assert code == 1
    assert "read before" in text


def test_json_and_a_trace(certified, tmp_path):
    """The replayed trace says what the function does."""
    trace = labelled(77, {"": 120})
    trace.save(tmp_path / "new.parquet")
    code, text = called(certified, tmp_path / "new.parquet", "--window", "50", "--json")
    shown = json.loads(text[text.index("{") :])
    from raglab.store.policies import Policy

    result = monitor(Policy.load(certified), trace, window=50)
    assert (code, shown["verdict"]) == (0, result.verdict)
    assert shown["promises"][0]["estimate"] == pytest.approx(result.table["estimate"].iloc[0])


def test_what_is_read_is_not_written_over(certified, tmp_path):
    """Neither labels nor policy."""
    labels = tmp_path / "labels.csv"
    answers([True]).to_csv(labels, index=False)
    assert called(certified, labels, "--state", labels)[0] == 1
    assert called(certified, labels, "--out", certified)[0] == 1


def test_no_label_yet(certified):
    """A rate of nothing is left out of the gauges."""
    from raglab.store.policies import Policy

    result = monitor(Policy.load(certified), answers([]))
    assert result.verdict == "cannot say yet"
    assert "No row has a label yet." in result.notes
    assert "raglab_promise_rate{" not in result.metrics_text()
    assert "raglab_promise_labelled{" in result.metrics_text()


def test_four_processes_at_one_state(certified, tmp_path):
    """Three runs of each, of one row to nine: no row is lost, and none is read twice."""
    state = tmp_path / "state.json"

    def runs(process):
        for number in range(3):
            labels = tmp_path / f"{process}-{number}.csv"
            size = 1 + (process + number) % 9
            ids = [f"{process}-{number}-{row}" for row in range(size)]
            answers([False] * size, request_id=ids).to_csv(labels, index=False)
            code, text = called(certified, labels, "--state", state)
            assert code in {0, 4}, text

    assert at_once([partial(runs, process) for process in range(4)]) == [0] * 4
    sizes = [1 + (process + number) % 9 for process in range(4) for number in range(3)]
    after = MonitorState.load(state)
    assert (after.labelled, after.steps, len(set(after.latest))) == (sum(sizes),) * 3
