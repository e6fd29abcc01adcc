"""Signal functions over a trace and over a question.

The same rows, each once, and nothing that is half there.
"""

from __future__ import annotations

import os
import re
import signal as signals_of_the_system
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import raglab
from generators import Drawn, Weighed
from live_worlds import CASES, CORPUS, SMALL, opener
from raglab.lab.signal_calibration import calibrate_signal
from raglab.live import guarded_calls, signal_functions
from raglab.live.answer_recording import record_answers
from raglab.live.arm_choice import retrieval_ms
from raglab.live.ask import ask
from raglab.live.measured_signals import add_signals, check_values, signal_rows
from raglab.live.pipeline import case_trace
from raglab.live.signal_functions import ROW_COLUMNS, SignalFunction, register_signal
from raglab.live.trace_building import build_trace
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.retrieval.arms import walk
from raglab.store.frames import trace_from_frame
from raglab.store.policies import Policy
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace
from raglab.values import Latency, Status
from sample_traces import sample_trace
from signal_checks import Counted, counted

ROOT = Path(raglab.__file__).parents[1]
NAN = float("nan")
STRUCTURE = PolicyData.from_mapping().structure
OPEN = {
    name: {"enabled": False}
    for name in ("l2", "similarity", "gap", "support", "confidence", "generation")
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """Leave registry and the user's cache as they were."""
    monkeypatch.setattr(signal_functions, "_REGISTERED_SIGNALS", {})
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "cache"))


def shown(trace, needs=ROW_COLUMNS, structure=STRUCTURE, **more):
    """Rows of a trace that a function with some needs is shown."""
    function = SignalFunction("judge", len, needs, **more)
    answers = trace.answers if more else None
    return signal_rows(trace, function, [0], structure, answers)


@pytest.fixture
def stored(encoder):
    """Return the trace of the cases that name no document, at two depths."""
    del encoder
    cases = tuple(case for case in CASES if case.query and not case.selected_sources)
    return build_trace(CORPUS, cases, cache=None, **SMALL, max_depth=1)


class TestRows:
    """What a function is shown."""

    def test_by_hand(self):
        """The first hits in the arm's final order, with what the trace holds of them.

        The answer to all hits.
        """
        trace = sample_trace()
        signal_rows_of_it = shown(trace, stage="answer", n_hits=2)
        rows = [
            dict(zip(ROW_COLUMNS, cells, strict=True)) for cells in signal_rows_of_it.cells.values()
        ]
        assert [*signal_rows_of_it.places.values()] == [[(row, 0, 0)] for row in (0, 1, 2, 3, 5)]
        assert np.isnan(rows[2].pop("answer.confidence"))
        assert rows[2] == {
            "query": "books",
            "documents": ("hours.md",),
            "hits.text": tuple(trace.chunks[n].text for n in (2, 3)),
            "hits.source": ("other.md", "other.md"),
            "hits.cosine": (0.9, 0.775),
            "hits.l2": (0.19999999999999996, 0.44999999999999996),
            "hits.s_rerank": (0.75, 0.5),
            "answer.text": "It is 252.",
        }
        assert rows[3]["hits.s_rerank"] == (0.75,)

    def test_the_final_order_is_the_arms(self):
        """Not that of l2, in which the trace holds its hits."""
        trace = sample_trace()
        rank = np.where(trace.hits.rank >= 0, 9 - trace.hits.rank, -1)
        turned = replace(trace, hits=trace.hits._replace(rank=rank))
        (first, *_) = shown(turned, ("hits.text",)).cells.values()
        assert first == (tuple(chunk.full_text for chunk in trace.chunks[:0:-1]),)

    def test_a_question_reads_as_it_is_asked_live(self):
        """Without runs of blanks, its characters composed."""
        trace = sample_trace()
        case = trace.cases[0]._replace(query="  e\u0301t\u00e9 \n ?")
        (first, *_) = shown(
            replace(trace, cases=(case, *trace.cases[1:])), ("query",)
        ).cells.values()
        assert first == ("\u00e9t\u00e9 ?",)

    def test_no_label_reaches_a_function(self):
        """Other labels, the same rows."""
        trace = sample_trace()
        labels = {"expect_status": "refuse", "expect_sources": ("x",), "answer": "42"}
        cases = tuple(case._replace(**labels, split="tune", notes="n") for case in trace.cases)
        first, second = (shown(t, stage="answer") for t in (trace, replace(trace, cases=cases)))
        assert repr(first) == repr(second)

    def test_a_set_of_hits_without_an_answer_has_no_row(self):
        """The answer to all hits is that of this policy's final_k."""
        trace = sample_trace()
        few = PolicyData.from_mapping({"chosen": {"final_k": 1}}).structure
        # one question has one hit
        assert len(shown(trace, ("answer.text",), few, stage="answer").cells) == 1
        blank = replace(trace, answers=trace.answers._replace(text=(" ",) * 5))
        assert not shown(blank, ("answer.text",), stage="answer").cells


class TestValues:
    """What a function may return."""

    @pytest.mark.parametrize(
        ("returned", "rule"),
        [
            ([0.5], "got shape \\(1,\\) for 2 rows"),
            ([[0.5], [0.5, 0.5]], "got list, which is no array"),
            ((0.5 for _ in range(2)), "got generator"),
            ([0.5, "0.5"], "got '0.5' for case 'b'"),
            ([0.5, np.inf], "got inf for case 'b'"),
            ([10**400, 0.5], "for case 'a'"),
            ([0.5, 1.5], "in \\[0, 1\\] .* got 1.5 for case 'b'"),
            (pd.Series([0.5, 0.5], index=[1, 0]), "got a Series of another length or order"),
        ],
    )
    def test_what_is_none(self, returned, rule):
        """The message names signal, case and value."""
        with pytest.raises(ValueError, match=f"the signal judge must.*{rule}"):
            check_values(SignalFunction("judge", len), returned, ["case 'a'", "case 'b'"])

    @pytest.mark.parametrize(
        "returned",
        [
            [0.5, None],
            (0.5, NAN),
            np.array([0.5, np.nan], np.float32),
            pd.Series([0.5, pd.NA]),
            pd.Series([0.5, None]),
        ],
    )
    def test_what_is_missing(self, returned):
        """However it is written, it is NaN."""
        values = check_values(SignalFunction("judge", len), returned, ["a", "b"])
        assert (values.dtype, values[0]) == (np.float64, 0.5)
        assert np.isnan(values[1])


class TestAdded:
    """Columns of a stored trace."""

    def test_columns_and_latency(self, tmp_path):
        """Saved and loaded they are the same; times enter no hash; equal rows are asked once.

        No call has more rows than the function takes, and none is empty.
        """
        trace = sample_trace()
        function, calls = counted(batch=2)
        added = add_signals(trace.subset([*range(6), 0, 0]), [function])
        values = added.columns["share_of_words"][:, 0, 0]
        assert values.round(2).tolist() == pytest.approx(
            [0.2, 0.4, 0.0, 0.0, NAN, 0.0, 0.2, 0.2], nan_ok=True
        )
        assert calls.sizes == [2, 2, 1]
        stages, ms = added.latency
        assert stages == ("signal_share_of_words",)
        assert (np.isnan(ms[:, 0, 0, 0]) == np.isnan(values)).all()
        slower = replace(added, latency=Latency(stages, ms + 1.0))
        assert content_hash(slower) == content_hash(added)
        once = add_signals(trace, [function])
        once.save(tmp_path / "t.parquet")
        loaded = Trace.load(tmp_path / "t.parquet")
        assert (loaded.fingerprint, content_hash(loaded)) == (once.fingerprint, content_hash(once))
        assert loaded.latency.stages == stages

    def test_the_time_of_a_signal_is_none_of_retrieval(self):
        """The reward's latency is what it was."""
        trace = replace(
            sample_trace(), latency=Latency(("embed", "search"), np.full((6, 1, 1, 2), 2.0))
        )
        again = add_signals(add_signals(trace, counted()[0]), counted()[0])
        assert again.latency.stages == ("embed", "search", "signal_share_of_words")
        policy = PolicyData.from_mapping()
        assert retrieval_ms(again, decide(again, policy), "hybrid").tolist() == [4.0] * 6
        alone = add_signals(sample_trace(), counted()[0])
        assert np.isnan(retrieval_ms(alone, decide(alone, policy), "hybrid")).all()

    def test_a_run_that_stops_goes_on(self):
        """What is finished is not asked again.

        Not after an error, not by another trace of the same rows.
        """
        trace = sample_trace()
        broken, first = counted(Counted(stop_after=2), batch=2)
        with pytest.raises(ValueError, match=r"share_of_words .* OSError: .* case 'sample-5'"):
            add_signals(trace, broken)
        function, second = counted(batch=2)
        whole = add_signals(trace, function)
        assert len(first.rows) == 4
        assert second.rows == [("? " * 400).strip()]
        third, none = counted(batch=64)
        part = add_signals(trace.subset([2, 0]), third)
        assert none.sizes == []
        first, second = (each.columns["share_of_words"] for each in (part, whole.subset([2, 0])))
        assert first.tolist() == second.tolist()
        assert not np.isnan(part.latency.ms).any()  # what the batch took that measured it

    def test_another_version_asks_again(self):
        """So do other rows: more hits, another unit."""
        trace = sample_trace()
        for fields in ({}, {"version": "2"}, {"n_hits": 1}, {"unit": "share"}):
            function, calls = counted(**fields)
            add_signals(trace, function)
            assert len(calls.rows) == 5

    def test_what_is_wrong_stops_before_any_row_is_asked(self):
        """A name there is none of, a name twice, an answer that is not there."""
        function, calls = counted()
        trace = sample_trace()
        bare, part = replace(trace, answers=None), trace.subset([0, 1])
        answered = SignalFunction("grounded", len, ("answer.text",), stage="answer")
        few = {"policy": Policy.from_mapping({"chosen": {"final_k": 2}})}
        for holder, functions, more, rule in (
            (trace, [function, "judge"], {}, "must be registered"),
            (trace, [function, function], {}, "share_of_words twice"),
            (bare, [function, answered], {}, r"grounded needs .* answers .*record_answers"),
            (part, [answered], few, "needs recorded answers to all hits .* policy="),
        ):
            with pytest.raises(ValueError, match=rule):
                add_signals(holder, functions, **more)
        assert calls.sizes == []

    def test_a_value_that_is_none_leaves_the_trace(self):
        """It is in no cache either: mended, the function is asked again."""
        trace = sample_trace()
        values = iter([2.0, 0.5])
        judge = SignalFunction("judge", lambda rows: [next(values)] * len(rows))
        with pytest.raises(
            ValueError, match=r"judge must .* in \[0, 1\] .* got 2.0 for case 'sample-0'"
        ):
            add_signals(trace, judge)
        assert trace.columns == {}
        assert add_signals(trace, judge).signals == ("judge",)


KILLED = """
import os, sys, time
from raglab.live.measured_signals import add_signals
from raglab.live.signal_functions import SignalFunction
from sample_traces import sample_trace

def slow(rows):
    for text in rows["query"]:
        with open(sys.argv[1], "a") as log:
            log.write(f"{text[:20]}\\n")
        if len(open(sys.argv[1]).readlines()) == int(sys.argv[2]):
            print("now", flush=True)
            time.sleep(60)
    return [0.5] * len(rows)

made = add_signals(sample_trace(), SignalFunction("slow", slow, ("query",), stage="query", batch=1))
print(made.fingerprint)
"""


def test_killed_in_the_middle_and_started_again(tmp_path):
    """No row that was finished is asked twice.

    Of six, the killed run finishes three and is at the fourth.
    """
    log, paths = tmp_path / "log", f"{ROOT}:{ROOT / 'tests'}"
    place = {**os.environ, "PYTHONPATH": paths, "RAGLAB_CACHE": str(tmp_path)}
    (tmp_path / "run.py").write_text(KILLED)
    command = [sys.executable, str(tmp_path / "run.py"), str(log)]
    with subprocess.Popen([*command, "4"], stdout=subprocess.PIPE, env=place, text=True) as run:
        assert run.stdout.readline() == "now\n"
        run.send_signal(signals_of_the_system.SIGKILL)
    done = subprocess.run([*command, "0"], capture_output=True, check=True, env=place, text=True)
    questions = log.read_text().splitlines()
    assert len(questions) == 7  # six questions, and the one in hand when the run was killed
    assert questions[3] == questions[4]
    assert len({*questions}) == 6

    def slow(rows):
        return [0.5] * len(rows)

    slow.__qualname__ = "slow"
    whole = add_signals(sample_trace(), SignalFunction("slow", slow, ("query",), stage="query"))
    assert done.stdout.strip() == whole.fingerprint


COURTESY = "Is a courtesy car provided?"
GATED = {"signals": {"share_of_words": {"min": 0.4}}}
JUDGED = {"signals": {"judge": {"min": 0.5}}, "refine": {"max_depth": 0}}
SURE = SignalFunction("judge", lambda rows: [0.75] * len(rows))


@pytest.fixture
# the fixture
def opened(tmp_path, encoder):
    """Return what opens a system over the small corpus, with an index of its own."""
    del encoder
    return opener(tmp_path / "index", OPEN, Drawn(), max_depth=1)


def assert_replayed(system, stored, cases, name):
    """What is asked live has the values and the outcome of the stored trace."""
    decided = decide(stored, system.policy)
    for row, case in enumerate(cases):
        ready = system.retriever
        walked = walk(ready.strategies["hybrid"], ready.question(case.query), None)
        live = case_trace(case, "hybrid", [*islice(walked, stored.hits.chunk.shape[2])], system)
        values = live.columns[name][0], stored.columns[name][row]
        assert np.array_equal(*values, equal_nan=True), case.id
        response = ask(case.query, system=system)
        assert response["status"] == Status(int(decided.status[row])).name, case.id


class TestLive:
    """The same function answers."""

    def test_live_is_replay(
        self,
        opened,
        stored,
    ):
        """To the last bit, at every depth, and so is what is decided.

        Refused and answered cases are among them.
        """
        function, calls = counted()
        system, cases = opened(GATED, signals=[function]), stored.cases
        stored = record_answers(add_signals(stored, function), system.policy, Drawn(), Weighed())
        assert {0, 1} <= {*decide(stored, system.policy).status.tolist()}
        assert_replayed(replace(system, scorer=Weighed()), stored, cases, "share_of_words")
        assert len(calls.rows) > len(cases)

    def test_the_answer_is_read_before_the_gates(
        self,
        opened,
        stored,
    ):
        """As the trace has it recorded; it is written once."""
        function = SignalFunction(
            "said",
            lambda rows: [len(text) / 64 for text in rows["answer.text"]],
            ("answer.text",),
            stage="answer",
        )
        system = opened({"signals": {"said": {"min": 0.29}}}, signals=[function], scorer=Weighed())
        signal_trace = add_signals(
            record_answers(stored, system.policy, Drawn(), Weighed()), function
        )
        assert np.isfinite(signal_trace.columns["said"]).any()
        assert_replayed(system, signal_trace, stored.cases, "said")

    def test_a_depth_is_measured_once(self, opened):
        """A further depth does not ask for those before it, nor for a row that is the same."""
        function, calls = counted()
        policy = {"signals": {"share_of_words": {"min": 1.0}}, "refine": {"epsilon": 0.0}}
        response = ask("What is the motor excess?", system=opened(policy, signals=[function]))
        assert 1 < len(response.record.queries) >= len(calls.rows)
        assert calls.sizes == [1] * len(calls.rows)

    def test_what_the_machine_does_not_have(self, opened):
        """The system is not opened; registered, it is.

        Another policy is asked for its signals as well.
        """
        gate = {"signals": {"judge": {"min": 0.5}}}
        rule = "signal judge needs its function"
        system, policy = opened(), Policy.from_mapping(OPEN | gate)
        with pytest.raises(ValueError, match=rule):
            system.replace(policy)
        with pytest.raises(ValueError, match=rule):
            opened(gate)
        register_signal(SURE)
        assert ask(COURTESY, system=system.replace(policy))["status"] == "ok"
        off = {"signals": {"other": {"min": 0.5, "enabled": False}}}
        assert opened(off).signals.functions == ()

    def test_a_calibrated_signal_answers_live(self, opened):
        """By the function that wraps the measured one; the object that holds it is none."""
        labels = ["ok", "refuse"] * 20
        names = [str(n) for n in range(40)]
        frame = pd.DataFrame({"case_id": names, "query": [f"What is {n}?" for n in names]})
        frame = frame.assign(hit_id=names, score=0.9, text="T.", label=labels)

        def numbers(rows):
            return [0.2 if re.search(r"[13579]\b", text) else 0.25 for text in rows["query"]]

        judge = SignalFunction("judge", numbers, ("query",), stage="query")
        calibrated = calibrate_signal(add_signals(trace_from_frame(frame), judge), "judge")
        gate = {"signals": {"judge_probability": {"min": 0.5}}}
        with pytest.raises(TypeError, match="SignalCalibration"):
            opened(gate, signals=[judge, calibrated])
        system = opened(gate, signals=[calibrated.signal_function(judge)])
        assert ask(COURTESY, system=system)["status"] == "ok"
        assert "judge_probability" in ask(f"{COURTESY} 1 day?", system=system)["refusal_reason"]

    @pytest.mark.parametrize(
        ("returned", "cause", "missing"),
        [
            (OSError("key sk-123"), "OSError", "fires"),
            (SystemExit(3), "SystemExit", "passes"),
            ([7.0], "no value of its unit", "fires"),
        ],
    )
    def test_a_function_that_fails(self, opened, returned, cause, missing):
        """Its signal is missing, a response says so without error words, and no cache keeps it."""
        failing = [True]

        def judge(rows):
            if failing and isinstance(returned, BaseException):
                raise returned
            return returned if failing else [0.75] * len(rows)

        function = SignalFunction("judge", judge, missing=missing)
        system = opened(JUDGED, signals=[function], cache=True)
        # what the operator sees has the words
        with pytest.warns(UserWarning, match="the signal judge must "):
            response = ask(COURTESY, system=system)
        assert response["status"] == ("refuse" if missing == "fires" else "ok")
        assert any(f"judge could not be measured ({cause}" in text for text in response["warnings"])
        assert "sk-123" not in response.json()
        failing.clear()
        again = ask(COURTESY, system=system)
        assert (again["status"], again["warnings"]) == ("ok", [])
        assert ask(COURTESY, system=system).record.answer_cache_hit

    def test_a_function_that_takes_too_long(self, opened, monkeypatch):
        """The question is decided without it.

        The call is left behind, and not one more of them than is allowed.
        """
        monkeypatch.setattr(guarded_calls, "MAX_LATE_CALLS", 1)
        done, started = threading.Event(), []

        def judge(rows):
            started.append(1)
            done.wait(30.0)
            return [0.75] * len(rows)

        system = opened(JUDGED, signals=[SignalFunction("judge", judge)], signal_timeout_s=0.05)
        for rule in ("than the 0.05 s of a question", "1 earlier calls still run"):
            with pytest.warns(UserWarning, match=rule):
                assert ask(COURTESY, system=system)["status"] == "refuse"
        assert len(started) == 1
        done.set()

    def test_one_deadline_of_a_question(self, opened):
        """Functions share it over all depths, and a later question has it anew."""
        started = []

        def slow(name):
            def measure(rows):
                started.append(name)
                time.sleep(0.3)
                return [0.75] * len(rows)

            return SignalFunction(name, measure, batch=1)

        names = [f"slow_{number}" for number in range(4)]
        policy = {"signals": {name: {"min": 0.5} for name in names}, "refine": {"max_depth": 0}}
        system = opened(policy, signals=[*map(slow, names)], signal_timeout_s=0.5)
        for _ in range(2):
            started.clear()
            begin = time.perf_counter()
            with pytest.warns(UserWarning, match=r"than the 0\.5 s of a question"):
                response = ask(COURTESY, system=system)
            assert time.perf_counter() - begin < 4 * 0.3
            assert started == names[:2]
            assert len(response["warnings"]) == len(names[1:])

    def test_another_version_is_another_answer(self, opened):
        """The answer cache hangs on the function as well."""
        values = iter([0.75, 0.25])
        for version, status in (("1", "ok"), ("2", "refuse")):
            function = SignalFunction(
                "judge", lambda rows: [next(values)] * len(rows), version=version
            )
            system = opened(JUDGED, signals=[function], cache=True)
            assert ask(COURTESY, system=system)["status"] == status
