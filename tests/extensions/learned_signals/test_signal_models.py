"""Signals by models and servers.

Worked examples, what a version holds, and a judge that is killed and goes on.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import raglab
from judge_server import (
    KEY,
    Reply,
    completion,
    graded,
    server,  # noqa: F401
    true_score,
)
from raglab.answering.client import Capabilities
from raglab.answering.metered_client import RequestBudget
from raglab.answering.openai_client import OpenAIClient, _Known
from raglab.extensions.learned_signals.readers import Span
from raglab.lab import signal_models
from raglab.live.measured_signals import MissingSignalsWarning, add_signals
from raglab.live.signal_functions import SignalFunction
from raglab.store.frames import trace_from_frame
from raglab.store.traces import Trace
from raglab.values import ModelUnavailableError
from sample_traces import sample_trace
from signal_checks import check_signal
from tiny_models import save_bert

ROWS = pd.DataFrame(
    {
        "query": ["Who pays?", "When?", "Why?"],
        "hits.text": [("The insurer pays.", "Nobody."), ("Within 30 days.",), ()],
        "answer.text": ["The insurer pays. Bees pay.", "Within 30 days.", "Because."],
    }
)


class Reads:
    """A reader that finds no answer in short passages."""

    name = "reads@1"

    def read(self, pairs):
        """The first word, the less sure the shorter the passage."""
        return [Span(passage.split()[0], 0, 1.0, 4.0 / len(passage)) for _, passage in pairs]


class Sorts:
    """A classifier of pairs: the share of the first text's words that the second has."""

    name, label = "sorts@1", 1

    def probability(self, pairs):
        """One number a pair."""
        sets = [(set(a.lower().split()), set(b.lower().split())) for a, b in pairs]
        return np.array([len(first & second) / max(1, len(first)) for first, second in sets])


class Entails(NamedTuple):
    """A model of entailment: what is stated word by word is entailed."""

    name: str = "entails@1"

    def entailment(self, pairs):
        """One number a pair."""
        return np.array([0.9 if hypothesis in premise else 0.2 for premise, hypothesis in pairs])


def test_a_reader_gives_the_best_hit_that_answers():
    """Passages of 17 and 7 characters leave 1 - 4/17 and 1 - 4/7: the first counts.

    No passage is missing.
    """
    made = signal_models.reader(Reads())  # type: ignore[arg-type]
    assert made(ROWS)[:2] == pytest.approx([1 - 4 / 17, 1 - 4 / 15])
    assert math.isnan(made(ROWS)[2])


def test_nli_is_that_of_the_least_entailed_claim():
    """`The insurer pays.` stands in a hit, `Bees pay.` in none.

    A claim without evidence is not entailed at all.
    """
    made = signal_models.nli(Entails())  # type: ignore[arg-type]
    assert made(ROWS) == [0.2, 0.9, 0.0]
    assert (made.stage, made.needs) == ("answer", ("hits.text", "answer.text"))


def test_a_classifier_reads_all_passages_as_one_or_each_by_itself():
    """Of `who pays?`, `pays?` stands in no passage.

    Of the answer's words the passages hold three of five.
    """
    words = pd.DataFrame(
        {
            "query": ["insurer nobody"],
            "hits.text": [("insurer", "nobody")],
            "answer.text": ["nobody"],
        }
    )
    for made, other, wanted in (
        (
            signal_models.sufficient(Sorts()),
            signal_models.sufficient(Sorts(), passages="each"),
            [1.0, 0.5],
        ),
        (
            signal_models.grounded(Sorts()),
            signal_models.grounded(Sorts(), passages="each"),
            [0.5, 1.0],
        ),
    ):
        assert [*made(words), *other(words)] == wanted
        assert made.version != other.version
    with pytest.raises(ValueError, match="passages must be all or each, got 'some'"):
        signal_models.sufficient(Sorts(), passages="some")(words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "made",
    [
        signal_models.reader(Reads()),  # type: ignore[arg-type]
        signal_models.nli(Entails()),  # type: ignore[arg-type]
        signal_models.sufficient(Sorts()),  # type: ignore[arg-type]
        signal_models.grounded(Sorts()),  # type: ignore[arg-type]
    ],
    ids=lambda made: made.name,
)
def test_a_model_measures_each_row_by_itself(made, tmp_path):
    """As `check_signal` wants it, and over a trace."""
    assert check_signal(made, sample_trace()).rows >= 5
    trace = add_signals(sample_trace(), made, cache=tmp_path / "cache")
    assert trace.signal(made.name).notna().sum() >= 4


def test_a_version_names_model_label_and_what_is_read():
    """A long name has its hash at the end."""
    assert signal_models.reader(Reads()).version == "reader-1:reads@1"  # type: ignore[arg-type]
    assert signal_models.sufficient(Sorts()).version == "sufficient-1:sorts@1:1:all"
    versions = {signal_models.nli(Entails("e" * 300 + end)).version for end in "ab"}
    assert len(versions) == 2
    assert max(map(len, versions)) <= 200


def test_models_by_folder_are_loaded(tmp_path):
    """Tiny ones with random weights.

    What they say is a probability, the same for one row as for many.
    """
    pairs = save_bert(tmp_path / "pairs", "BertForSequenceClassification", num_labels=2)
    config = json.loads((pairs / "config.json").read_text())
    config |= {"id2label": {"0": "NO", "1": "Entailment"}, "label2id": {"NO": 0, "Entailment": 1}}
    (pairs / "config.json").write_text(json.dumps(config))
    reading = save_bert(tmp_path / "reading", "BertForQuestionAnswering")
    for made in (
        signal_models.reader(str(reading)),
        signal_models.nli(str(pairs)),
        signal_models.sufficient(str(pairs), "entailment"),
        signal_models.grounded(str(pairs), 1, passages="each"),
    ):
        assert check_signal(made, sample_trace()).rows >= 5
        assert "@" in made.version


def client(server, **settings):
    """Client of that server that knows what the server can do."""
    made = OpenAIClient("tiny", server.base_url, **settings)
    made._state.known = _Known(Capabilities(True, 5, "json_object"))
    return made


def made_trace(n):
    """Trace of n cases with two hits each, all of them different."""
    rows = [
        (f"q{case}", f"What is {case}?", f"p{case}-{hit}", 0.9 - hit / 10)
        for case in range(n)
        for hit in range(2)
    ]
    frame = pd.DataFrame(rows, columns=["case_id", "query", "hit_id", "score"])
    return trace_from_frame(frame.assign(text=[f"Passage {row[2]}." for row in rows], label="ok"))


def questions(server):
    """Questions that were asked, without the probe of what the server can do."""
    return [question for question in server.asked if question]


def test_a_judge_fills_a_column(server, tmp_path):
    """Each row is asked once; another rubric asks again, the same one does not.

    The trace names the judge.
    """
    trace = made_trace(4)
    made = signal_models.judge(client(server))
    filled = add_signals(trace, made, cache=tmp_path / "cache")
    assert filled.signal("judge").to_dict() == {
        f"q{n}": true_score(f"What is {n}?") for n in range(4)
    }
    add_signals(trace, signal_models.judge(client(server, timeout=5.0)), cache=tmp_path / "cache")
    assert len(questions(server)) == 4
    add_signals(
        trace, signal_models.judge(client(server), rubric="Score 1."), cache=tmp_path / "cache"
    )
    assert len(questions(server)) == 8
    assert made.version.startswith("judge:tiny@127.0.0.1:")
    assert made.fn.counts.scored == 4
    assert filled.fingerprint != trace.fingerprint


def test_several_requests_at_a_time_give_the_same(server, tmp_path):
    """In the order of the rows."""
    filled = add_signals(
        made_trace(9), signal_models.judge(client(server), at_once=4), cache=tmp_path / "cache"
    )
    assert filled.signal("judge").tolist() == [true_score(f"What is {n}?") for n in range(9)]
    assert sorted(questions(server)) == [f"What is {n}?" for n in range(9)]


def test_a_spent_budget_leaves_the_rest_to_the_next_run(server, tmp_path):
    """Missing is not kept: with a larger budget only those cases are asked."""
    usage = {"prompt_tokens": 2000, "completion_tokens": 10}
    server.behave = lambda question, _: completion(
        json.dumps({"score": true_score(question)}), usage
    )
    trace, cache, budget = made_trace(6), tmp_path / "cache", RequestBudget(tokens=8000)
    with pytest.warns(UserWarning, match="the tokens of the budget"):
        first = add_signals(trace, signal_models.judge(client(server), budget=budget), cache=cache)
    n_asked = len(questions(server))
    assert 0 < n_asked < 6
    assert first.signal("judge").notna().sum() == n_asked
    full = add_signals(trace, signal_models.judge(client(server)), cache=cache)
    assert full.signal("judge").notna().all()
    assert len(questions(server)) == 6


def test_a_wrong_key_is_an_error_that_says_so(server, tmp_path):
    """What was scored before stays in the cache."""
    server.behave = lambda question, _: Reply(401) if question == "What is 2?" else graded(question)
    with pytest.raises(ValueError, match=r"answered 401; correct model, base_url or key") as caught:
        add_signals(made_trace(4), signal_models.judge(client(server)), cache=tmp_path / "cache")
    assert KEY not in str(caught.value)
    server.behave = lambda question, _: graded(question)
    add_signals(made_trace(4), signal_models.judge(client(server)), cache=tmp_path / "cache")
    assert [server.asked.count(f"What is {n}?") for n in range(4)] == [1, 1, 2, 1]


def test_what_a_model_gives_no_value_for_is_told(server, tmp_path):
    """With counts, the first reason, and each reason.

    What was there before counts no second time.
    """
    bad = {
        "What is 1?": completion("I cannot tell."),
        "What is 3?": Reply(500),
        "What is 4?": completion("Nor I."),
    }
    server.behave = lambda question, _: bad.get(question) or graded(question)
    made = signal_models.judge(client(server, max_retries=0))
    with pytest.warns(
        MissingSignalsWarning, match="3 of 6 values of the signal judge are missing: 2 "
    ) as caught:
        filled = add_signals(made_trace(6), made, cache=tmp_path / "cache")
    (told,) = (one.message for one in caught if isinstance(one.message, MissingSignalsWarning))
    assert (told.signal, sorted(told.missing.values())) == ("judge", [1, 2])
    assert "answered 500" in str(told)
    assert filled.signal("judge").isna().sum() == 3
    with pytest.warns(MissingSignalsWarning, match="3 of 3 values"):
        add_signals(made_trace(6), made, cache=tmp_path / "cache")
    server.behave = lambda question, _: graded(question)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            add_signals(made_trace(6), made, cache=tmp_path / "cache").signal("judge").notna().all()
        )


@pytest.mark.parametrize("n", [1, 3])
def test_a_dead_port_is_told_at_any_number_of_cases(tmp_path, n):
    """Fewer failures than stop a run; a calibrated signal counts as the one behind it."""
    pytest.importorskip("openai")
    dead = signal_models.judge(OpenAIClient("tiny", "http://127.0.0.1:9/v1", max_retries=0))
    with pytest.warns(
        MissingSignalsWarning, match=rf"{n} of {n} values of the signal judge .*{n} "
    ):
        add_signals(made_trace(n), dead, cache=tmp_path / "cache")


def test_what_has_nothing_to_measure_is_no_failure(tmp_path):
    """A function of the user's own that counts nothing says nothing."""
    none = SignalFunction("mine", lambda rows: [None] * len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            add_signals(made_trace(3), none, cache=tmp_path / "cache").signal("mine").isna().all()
        )


def test_a_model_that_stops_a_run_is_told_with_one_remedy(server, tmp_path):
    """Nothing is wrong with the function."""
    server.behave = lambda *_: Reply(404)
    for made in (signal_models.judge(client(server)), signal_models.yes_no(client(server))):
        with pytest.raises(
            ValueError, match=r"got none of its model for case 'q0': .*404"
        ) as caught:
            add_signals(made_trace(2), made, cache=tmp_path / "cache")
        assert "mend the function" not in str(caught.value)
        assert isinstance(caught.value.__cause__, ModelUnavailableError)


def test_a_run_that_is_interrupted_says_what_is_kept(server, tmp_path):
    """And where; the error is the user's own."""
    made = signal_models.judge(client(server))
    seen: list[str] = []

    def stopped(rows):
        seen.extend(rows["query"])
        if len(seen) > 2:
            raise KeyboardInterrupt
        return made(rows)

    function = SignalFunction("judge", stopped, made.needs, batch=1)
    with (
        pytest.warns(UserWarning, match=r"2 of 4 values of the signal judge are kept in .*cache"),
        pytest.raises(KeyboardInterrupt),
    ):
        add_signals(made_trace(4), function, cache=tmp_path / "cache")


def test_an_answer_is_judged_where_it_is_recorded(server, tmp_path):
    """`grounded` reads it."""
    made = signal_models.judge(client(server), rubric="grounded", name="faithful")
    assert (made.stage, made.needs) == ("answer", ("query", "hits.text", "answer.text"))
    trace = sample_trace()
    filled = add_signals(trace, made, cache=tmp_path / "cache")
    assert filled.signal("faithful").notna().sum() == 5
    judged = [body for body, question in zip(server.bodies, server.asked, strict=False) if question]
    assert all("Proposed answer:" in body["messages"][1]["content"] for body in judged)


RUN = """
import logging, sys, time
from pathlib import Path
import pandas as pd
from raglab import add_signals, trace_from_frame
from raglab.lab import signal_models
from raglab.answering.openai_client import OpenAIClient, _Known
url, folder = sys.argv[1], Path(sys.argv[2])
logging.basicConfig(filename=folder / "debug.log", level=logging.DEBUG)
trace = trace_from_frame(pd.read_csv(folder / "hits.csv"))
judge = signal_models.judge(OpenAIClient("tiny", url, timeout=3.0))
trace = add_signals(trace, judge, cache=folder / "judge.sqlite")
trace.save(folder / "trace.parquet")
print(judge.fn.counts, judge.fn.client.counts)
"""


def hits_csv(folder, questions):
    """Two hits a question, as a file."""
    rows = [
        (f"q{n}", query, f"p{n}-{hit}", 0.9 - hit / 10)
        for n, query in enumerate(questions)
        for hit in range(2)
    ]
    frame = pd.DataFrame(rows, columns=["case_id", "query", "hit_id", "score"])
    frame.assign(text=[f"Passage {row[2]}." for row in rows], label="ok").to_csv(
        folder / "hits.csv", index=False
    )


def test_a_judge_that_is_killed_goes_on_and_asks_no_case_twice(server, tmp_path):
    """Forty cases; killed during the request of the 21st case, which alone is asked again.

    One case gets words in place of JSON, one a 429 and one a 500 before its score; one is never
    scored.
    """
    questions = [f"What is {n}?" for n in range(40)]
    hits_csv(tmp_path, questions)
    odd = {
        "What is 5?": completion("Surely 0.9"),
        "What is 8?": Reply(429, headers=(("retry-after", "1"),)),
        "What is 25?": Reply(500),
    }
    running: list[subprocess.Popen[str]] = []

    def behave(question, place):
        if question == "What is 20?" and place == 1:
            os.kill(running[0].pid, signal.SIGKILL)
            return Reply(0)
        if question == "What is 30?":
            return completion('{"score": "high"}')
        return odd[question] if question in odd and place == 1 else graded(question)

    server.behave = behave
    path = os.pathsep.join(
        [str(Path(raglab.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "RAGLAB_CACHE": str(tmp_path / "own"),
        "PYTHONPATH": path,
    }
    command = [sys.executable, "-c", RUN, server.base_url, str(tmp_path)]
    for code in (-signal.SIGKILL, 0):
        with (tmp_path / f"said{code}.txt").open("w") as said:
            running[:] = [
                subprocess.Popen(command, env=environment, stdout=said, stderr=said, text=True)
            ]
            assert running[0].wait(120) == code
        server.released.set()
    asked = {question: server.asked.count(question) for question in questions}
    twice = {*odd, "What is 20?"}  # by a further attempt, or killed before its reply
    assert asked == {one: 2 if one in {*twice, "What is 30?"} else 1 for one in questions}
    assert all(
        server.served[one] == 1 for one in questions if one not in {"What is 5?", "What is 30?"}
    )
    column = Trace.load(tmp_path / "trace.parquet").signal("judge")
    assert column.isna().sum() == 1
    assert column.drop("q30").tolist() == [
        true_score(one) for one in questions if one != "What is 30?"
    ]
    assert server.keys == {f"Bearer {KEY}"}
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"judge.sqlite", "trace.parquet", "debug.log"} <= {file.name for file in files}
    assert [file for file in files if KEY.encode() in file.read_bytes()] == []
