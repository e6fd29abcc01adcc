"""A language model that fails decides nothing.

It raises, is missing, or is counted apart (rules S0.1, S2.10).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import raglab
from answered_traces import asked_world
from commands import run
from generators import Weighed
from judge_server import KEY, Reply, completion
from live_worlds import CORPUS, OPEN, SMALL
from llama_server import (
    GONE,
    SILENCE,
    SURE,
    cut_off,
    server,  # noqa: F401
)
from raglab.answering.client import call_deadline, json_object
from raglab.answering.generation import ModelGenerator
from raglab.answering.metered_client import TEMPLATE_OVERHEAD, RequestBudget
from raglab.answering.openai_client import OpenAIClient
from raglab.answering.required_confidence import NO_CONFIDENCE, confidence_switch
from raglab.audit.label_samples import draw_sample
from raglab.audit.live_rates import live_rates
from raglab.audit.log_summary import days
from raglab.live import answer_recording
from raglab.live.answer_recording import MissingAnswersWarning, record_answers
from raglab.live.ask import ask
from raglab.live.response import OwnAnswers, check_answer
from raglab.live.system import System, build_index
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.retrieval.indexes import ArmHits
from raglab.store.policies import Policy
from raglab.store.trace_merging import ANSWER_REQUESTS
from raglab.store.traces import Trace
from raglab.values import Chunk, Generation, ModelUnavailableError
from worlds import policy

pytest.importorskip("openai")

QUESTION = "What is the motor excess?"
FREE = OPEN | {"confidence": {"enabled": False}}


@pytest.fixture
def index(tmp_path, encoder):
    """Return the folder of an index over the small corpus."""
    del encoder
    build_index(CORPUS, tmp_path / "index", cache=None, **SMALL)
    return tmp_path / "index"


def generator(server, max_tokens=512, **more):
    """Generator that asks the server once.

    For a second where it is silent, else longer than a busy machine needs.
    """
    seconds = 1.0 if SILENCE in server.failing.values() else 20.0
    client = OpenAIClient("tiny", server.base_url, **{"timeout": seconds, "max_retries": 0, **more})
    return ModelGenerator(client, max_tokens=max_tokens)


@pytest.fixture
def opened(index, server):
    """Return what opens a system whose answers the server writes."""

    def make(stated=None, **more):
        chosen = Policy.from_mapping(FREE | (stated or {}))
        return System.open(
            index, **{"policy": chosen, "generator": generator(server), "cache": False, **more}
        )

    return make


class Mine:
    """A generator of the user's own."""

    name = "mine"

    def __init__(self, confidence, error=None):
        self.confidence, self.error, self.n_answers = confidence, error, 0

    def answer(self, question, passages):
        """One answer with one confidence, or the error."""
        del question, passages
        self.n_answers += 1
        if self.error is not None:
            raise self.error
        return Generation("The motor excess is 250 pounds.", self.confidence, (0,))


class Rows:
    """The index of an arm whose rows answer the first question."""

    rows, answers = (Chunk("c", "Cause: Storm; Excess: £400", "t.md", 1),), True

    def search(self, *_):
        """No hit."""
        return ArmHits(np.full((1, 1), -1, np.int64))

    def answer(self, question, _):
        """Of the first question."""
        return Generation("£400", 1.0, (0,)) if question == "question 0" else None


def lacking():
    """What catches the refusal of a generator without the confidence that a gate reads."""
    return pytest.raises(ValueError, match="the gate generation needs")


class TestConfidence:
    """Rule S2.10: a gate on the generator's confidence needs one."""

    def test_a_server_without_log_probabilities_is_found_before_the_first_answer(
        self, opened, server
    ):
        """With the remedy, under which it answers unprobed; no question is sent or refused.

        Rows of a table hide no generator, though their own answers have a confidence.
        """
        server.logprobs = False
        system = opened()
        for call in (
            system.check,
            lambda: ask(QUESTION, system=system),
            lambda: ask(QUESTION, system=system, on_error="refuse"),
        ):
            with pytest.raises(
                ValueError, match=r'tiny@.*policy\.replace\("generation\.enabled", False\)'
            ):
                call()
        for source in (generator(server), OwnAnswers("table", Rows(), generator(server))):
            with lacking():
                record_answers(asked_world(), Policy.from_mapping(FREE), source, Weighed())
        assert (server.questions, server.probes >= 3) == ([], True)
        probes = server.probes
        free = system.replace(system.policy.replace("generation.enabled", False))
        assert ask(QUESTION, system=free)["status"] == "ok"
        assert server.probes == probes

    def test_the_server_is_probed_once(self, opened, server):
        """A system remembers it, also under another policy; a few tokens are asked for."""
        system = opened()
        lower = system.policy.replace("generation.min_generation_confidence", 0.5)
        for each in (system, system, system.replace(lower)):
            ask(QUESTION, system=each)
        assert (server.probes, len(server.questions)) == (1, 3)
        assert opened().check().policy.generation.enabled
        assert server.probes == 2  # a check asks again: a server may have been started otherwise

    def test_what_retrieval_refuses_asks_no_server(self, opened, server):
        """Neither for an answer nor by a probe, so that it needs none."""
        system = opened({"similarity": {"enabled": True, "min_similarity": 1.0}})
        assert ask(QUESTION, system=system)["status"] == "refuse"
        assert server.asked == []

    def test_a_first_answer_without_a_confidence_is_the_same_error(self, opened, server):
        """Of a server whose reply to the probe had one.

        A later one is a failure of the model, once; then the server is checked as before its first.
        """
        server.failing = {QUESTION: completion("The motor excess is 250 pounds.")}
        system = opened()
        with lacking():
            ask(QUESTION, system=system)
        assert (server.probes, server.questions) == (1, [QUESTION])
        assert ask("Is a courtesy car provided?", system=system)["status"] == "ok"
        with pytest.raises(ModelUnavailableError) as caught:
            ask(QUESTION, system=system)
        assert caught.value.kind == NO_CONFIDENCE
        with lacking():
            ask(QUESTION, system=system)

    def test_which_policies_need_a_confidence(self):
        """One with a gate on the signal, unless that is off, only warns or is left out."""
        off = PolicyData.from_mapping({"generation": {"enabled": False}})
        gated = off.replace("signals.generation.min", 0.5)
        assert confidence_switch(gated) == "signals.generation.enabled"
        for path, value in (
            ("signals.generation.on_fire", "warn"),
            ("signals.generation.enabled", False),
            ("decision.order", ("l2", "gap")),
        ):
            assert confidence_switch(gated.replace(path, value)) is None

    def test_a_generator_of_ones_own(self, opened):
        """It is found by its first answer, and before it where it states that it gives none."""
        mine = Mine(float("nan"))
        with pytest.raises(ValueError, match="got mine"):
            ask(QUESTION, system=opened(generator=mine))
        assert mine.n_answers == 1
        mine.gives_confidence = False
        for call in (System.check, lambda system: ask(QUESTION, system=system)):
            with pytest.raises(ValueError, match="got mine"):
                call(opened(generator=mine))
        assert mine.n_answers == 1
        assert ask(QUESTION, system=opened(generator=Mine(0.9)))["status"] == "ok"


def test_all_calls_of_a_question_share_one_deadline(opened):
    """Each counts its time from the first call of its question; the next question begins anew."""

    class Timed:
        """When the time of each of its two calls a question began."""

        name, gives_confidence = "timed", True

        def __init__(self):
            self.begins = []

        def answer(self, question, passages):
            """One answer, for which two calls are needed."""
            del question, passages
            self.begins.append(call_deadline(0.0))
            time.sleep(0.01)
            self.begins.append(call_deadline(0.0))
            return Generation("The motor excess is 250 pounds.", 0.9, (0,))

    timed = Timed()
    system = opened(generator=timed)
    for _ in range(2):
        ask(QUESTION, system=system)
    first, second, third, fourth = timed.begins
    assert first == second < third == fourth


FAILURES = {
    "timeout": (SILENCE, "timeout"),
    "gateway": (GONE, "HTTP 502"),
    "cut off": (cut_off(), "cut off"),
    "not json": (Reply(body=b"<html>Welcome</html>"), "malformed reply"),
    "empty": (completion(""), "malformed reply"),
    "unknown model": (Reply(404, b'{"error": {"message": "no such model"}}'), "HTTP 404"),
}


@pytest.fixture(params=FAILURES)
def kind(request, server):
    """Return the kind of a failure that the question meets."""
    reply, name = FAILURES[request.param]
    server.failing = {QUESTION: reply}
    return name


class TestAsk:
    """Rule S0.1: what fails raises, or is a refusal no rate counts if the service must answer."""

    def test_a_failure_raises(self, opened, kind, server):
        """Not a refusal, with kind, server and remedy.

        The question may be asked again under its id.
        """
        system = opened()
        with pytest.raises(raglab.ModelUnavailableError, match=kind) as caught:
            ask(QUESTION, system=system, request_id="r")
        assert caught.value.kind == kind
        assert server.host in str(caught.value)
        assert KEY not in str(caught.value)
        server.failing.clear()
        assert ask(QUESTION, system=system, request_id="r")["status"] == "ok"

    def test_a_service_that_must_answer(self, opened, server, monkeypatch):
        """By argument, by the system or by the environment.

        `error` says what failed, and no document is blamed.
        """
        server.failing = {QUESTION: GONE}
        system = opened(cache=True)
        response = ask(QUESTION, system=system, on_error="refuse")
        assert (response["status"], response["sources"]) == ("refuse", [])
        assert "HTTP 502" in response["error"]
        assert "documents" not in response["answer"]
        assert ask(QUESTION, system=opened(on_error="refuse"))["error"] is not None
        monkeypatch.setenv("RAGLAB_ANSWER_ON_ERROR", "refuse")
        assert ask(QUESTION, system=opened())["error"] is not None
        with pytest.raises(ModelUnavailableError):
            ask(QUESTION, system=opened(on_error="raise"))
        server.failing.clear()
        again = ask(QUESTION, system=system)
        assert (again["status"], again["error"]) == ("ok", None)  # no cache keeps a failure

    @pytest.mark.parametrize(
        "error", [TimeoutError("late"), ConnectionRefusedError("no")], ids=repr
    )
    def test_a_generator_of_ones_own_that_fails(self, opened, error):
        """Its timeouts and broken connections count as model failures."""
        with pytest.raises(ModelUnavailableError, match="mine raised"):
            ask(QUESTION, system=opened(generator=Mine(0.9, error)))

    def test_the_log_counts_it_apart(self, opened, server):
        """It is in no rate, no sample and no daily count of refusals, and adds up."""
        brief = generator(server, timeout=1.0)
        system = opened(
            {"generation": {"min_generation_confidence": 0.99}}, on_error="refuse", generator=brief
        )
        now = datetime(2026, 11, 2, 9, tzinfo=UTC)
        ask("Is a courtesy car provided?", system=system, request_id="refused", now=now)
        server.failing = {QUESTION: SILENCE}
        ask(QUESTION, system=system, request_id="failed", now=now)
        log = system.audit
        assert log is not None
        table = live_rates(log)
        assert set(table["requests"]) == {1}
        assert set(table["errors"]) == {1}
        assert days(log).loc[0, ["requests", "ok", "refuse", "errors"]].tolist() == [2, 0, 1, 1]
        assert draw_sample(log, 9, seed=0)["request_id"].tolist() == ["refused"]
        assert not raglab.explain("failed", system=system).differences

    def test_the_command_line(self, index, server, tmp_path):
        """Exit code 69 and one line on the standard error; 1 where the policy is wrong."""
        file = tmp_path / "p.yaml"
        Policy.from_mapping(FREE).save(file)
        command = ["ask", index, QUESTION, "-p", file, "--no-cache", "--model", "tiny"]
        command += ["--base-url", server.base_url]
        assert run(*command).exit_code == 0
        server.failing = {QUESTION: cut_off()}
        failed = run(*command)
        assert (failed.exit_code, failed.stdout) == (69, "")
        assert failed.stderr.count("\n") == 1
        server.failing, server.logprobs = {}, False
        assert run(*command).exit_code == 1


def answered(server, trace=None, **more):
    """Trace with the answers of a server, of six questions where none is given."""
    bare = asked_world() if trace is None else trace
    return record_answers(bare, policy(), generator(server), Weighed(), **more)


def questions(n):
    """Texts of the first questions."""
    return [f"question {number}" for number in range(n)]


def recorded(trace, server, **more):
    """Trace with answers, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace_with_answers = record_answers(trace, policy(), generator(server, **more), Weighed())
    assert all(issubclass(warning.category, MissingAnswersWarning) for warning in caught)
    return trace_with_answers, [str(warning.message) for warning in caught]


class Stopping:
    """Checks some answers, and is interrupted."""

    def __init__(self, n):
        self.left = n

    def __call__(self, *of):
        """As `check_answer`."""
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return check_answer(*of)


class TestRecordAnswers:
    """Rules S0.1, S2.12: what fails is missing, counted, and asked again."""

    def test_what_failed_is_missing_and_asked_again(self, server, tmp_path):
        """It is not recorded as a refusal; the next run, also of a stored trace, asks for it alone.

        But for what was cut off, which the same request would be again.
        """
        server.failing = {"question 1": SILENCE, "question 3": cut_off(), "question 4": SILENCE}
        part, (message,) = recorded(asked_world(), server, timeout=1.0)
        assert "3 of 6 answers are missing: 2 timeout (q1, q4), 1 cut off (q3)" in message
        assert part.answers.row.tolist() == [0, 2, 5]
        assert not any(part.answers.refused)
        assert decide(part, policy()).ids() == ["q0", "q2", "q5"]
        part.save(tmp_path / "t.parquet")
        server.failing, server.asked = {}, []
        whole, _ = recorded(Trace.load(tmp_path / "t.parquet"), server)
        assert server.questions == ["question 1", "question 4"]
        assert whole.answers.row.tolist() == [0, 1, 2, 4, 5]
        at_once, _ = recorded(asked_world(), server)
        assert at_once.answers is not None
        for field, expected in zip(whole.answers, at_once.answers, strict=True):
            assert (
                np.array_equal(field, expected)
                if isinstance(field, np.ndarray)
                else field == expected
            )
        assert len({asked_world().fingerprint, part.fingerprint, whole.fingerprint}) == 3

    def test_a_run_with_nothing_to_ask_makes_no_other_trace(self, server):
        """Nor does one in which everything fails again; another generator asks for all."""
        server.failing = {"question 1": GONE}
        part, _ = recorded(asked_world(), server)
        again, _ = recorded(part, server)
        assert again is part
        server.failing.clear()
        whole, _ = recorded(part, server)
        assert recorded(whole, server)[0] is whole
        server.asked.clear()
        recorded(whole, server, max_tokens=99)
        assert len(server.questions) == 6

    def test_every_answer_is_kept_as_soon_as_it_is_there(self, server, tmp_path):
        """Another run with the same cache asks for none of them again, and says so.

        A failure is asked again.
        """
        server.failing = {"question 4": GONE}
        with pytest.warns(MissingAnswersWarning):
            first = answered(server, cache=tmp_path / "a.sqlite")
        assert first.meta[ANSWER_REQUESTS]["missing"] == {"HTTP 502": 1}
        assert first.meta[ANSWER_REQUESTS]["requests"] == len(server.questions) == 6
        server.failing, server.asked = {}, []
        again = answered(server, cache=tmp_path / "a.sqlite")
        assert server.questions == ["question 4"]
        assert again.meta[ANSWER_REQUESTS]["from_cache"] == 5
        brief = generator(server, max_tokens=9)
        shorter = record_answers(
            asked_world(), policy(), brief, Weighed(), cache=tmp_path / "a.sqlite"
        )
        assert len(server.questions) == 7
        assert shorter.meta[ANSWER_REQUESTS]["from_cache"] == 0

    @pytest.mark.parametrize("at_once", [1, 2])
    def test_a_run_that_is_interrupted_says_what_is_kept(
        self, server, tmp_path, monkeypatch, at_once
    ):
        """And where; the next run goes on there."""
        monkeypatch.setattr(answer_recording, "check_answer", Stopping(4))
        cache = tmp_path / "a.sqlite"
        with (
            pytest.warns(UserWarning, match=r"4 of 6 answers .*a\.sqlite"),
            pytest.raises(KeyboardInterrupt),
        ):
            answered(server, at_once=at_once, cache=cache)
        monkeypatch.setattr(answer_recording, "check_answer", check_answer)
        whole = answered(server, cache=cache)
        assert whole.meta[ANSWER_REQUESTS]["from_cache"] == 4

    @pytest.mark.parametrize("limit", ["calls", "tokens", "cost"])
    @pytest.mark.parametrize("at_once", [1, 4])
    def test_a_budget_is_never_exceeded_and_the_next_run_asks_for_the_rest(
        self, server, tmp_path, limit, at_once
    ):
        """Whatever it limits; a request that is under way counts as the most that it can take."""
        brief = generator(server, 64)
        record_answers(asked_world(1), policy(), brief, Weighed(), cache=tmp_path / "b.sqlite")
        sent = server.bodies[-1]["messages"]
        most = sum(len(message["content"].encode()) for message in sent) + TEMPLATE_OVERHEAD + 64
        server.asked.clear()
        budget = {
            "calls": RequestBudget(calls=3),
            "tokens": RequestBudget(tokens=100 + most),
            "cost": RequestBudget(cost=0.1 + most / 1000, price_prompt=1.0, price_completion=1.0),
        }[limit]
        more = {"cache": tmp_path / "a.sqlite", "at_once": at_once}
        with pytest.warns(
            MissingAnswersWarning, match=rf"budget spent .*the {limit} of the budget do not bear"
        ):
            part = record_answers(asked_world(), policy(), brief, Weighed(), budget=budget, **more)
        counts = part.meta[ANSWER_REQUESTS]
        assert 0 < counts["requests"] == 6 - counts["missing"]["budget spent"] <= budget.calls
        assert counts["prompt_tokens"] + counts["completion_tokens"] <= budget.tokens
        assert counts["cost"] <= budget.cost
        whole = record_answers(part, policy(), brief, Weighed(), **more)
        assert sorted(server.questions) == questions(6)
        assert len(whole.answers.row) == 6
        assert whole.meta[ANSWER_REQUESTS]["missing"] == {}

    def test_a_budget_of_seconds_ends_a_run(self, server, tmp_path):
        """From its first request on; what was answered by then stays."""
        reply = server.behave

        def slow(question, place):
            server.released.wait(0.2 if question else 0.0)
            return reply(question, place)

        server.behave = slow
        more = {"cache": tmp_path / "a.sqlite"}
        with pytest.warns(MissingAnswersWarning, match="the seconds of the budget"):
            answered(server, asked_world(9), budget=RequestBudget(seconds=0.5), **more)
        assert 1 <= len(server.questions) <= 3
        answered(server, asked_world(9), **more)
        assert sorted(server.questions) == questions(9)


class RecordingProcesses:
    """Processes that record answers over one server and one cache."""

    def __init__(self, server, folder):
        self.arguments = [server.base_url, str(folder / "t.parquet"), str(folder / "a.sqlite")]
        self.running = []
        asked_world(20).save(folder / "t.parquet")

    def start(self, at_once=1):
        """Start one; it prints how many answers its trace has."""
        code = (
            "import sys, raglab\n"
            "from raglab.answering.generation import ModelGenerator\n"
            "trace = raglab.Trace.load(sys.argv[2])\n"
            "client = raglab.OpenAIClient('tiny', sys.argv[1], timeout=60.0)\n"
            "policy = raglab.Policy.from_mapping({'generation': {'enabled': False}})\n"
            "how = {'cache': sys.argv[3], 'at_once': int(sys.argv[4])}\n"
            "made = raglab.record_answers(trace, policy, ModelGenerator(client), **how)\n"
            "print(len(made.answers.row))"
        )
        paths = os.pathsep.join(
            [str(Path(raglab.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        )
        command = [sys.executable, "-c", code, *self.arguments, str(at_once)]
        environment = {**os.environ, "PYTHONPATH": paths}
        self.running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
        return self.running[-1]

    def answers_here(self):
        """Answers of a run of this process over the same trace and cache."""
        url, trace, cache = self.arguments
        asked = ModelGenerator(OpenAIClient("tiny", url, timeout=60.0))
        stated = Policy.from_mapping({"generation": {"enabled": False}})
        return len(record_answers(Trace.load(trace), stated, asked, cache=cache).answers.row)


def ended(process):
    """What a process printed, and its exit code."""
    return process.communicate(timeout=120)[0].strip(), process.returncode


class TestKilledRuns:
    """A run that is killed goes on, and runs at once lose nothing."""

    def test_a_run_that_is_killed_goes_on_and_asks_nothing_twice(self, server, tmp_path):
        """Killed while the twelfth of twenty answers is written.

        At most the batch under way is asked again.
        """
        runs = RecordingProcesses(server, tmp_path)

        def behave(question, place):
            if question == "question 11" and place == 1:
                os.kill(runs.running[0].pid, signal.SIGKILL)
                return Reply(0)
            return completion("The motor excess is 250 pounds [1].", logprobs=SURE)

        server.behave = behave
        assert ended(runs.start(at_once=4)) == (b"", -signal.SIGKILL)
        server.released.set()
        assert runs.answers_here() == 20
        counts = Counter(server.questions)
        assert set(counts) == {f"question {n}" for n in range(20)}
        again = [question for question, times in counts.items() if times > 1]
        assert "question 11" in again
        assert len(again) <= 4
        assert max(counts.values()) == 2

    def test_two_runs_at_once_of_which_one_is_killed_lose_nothing(self, server, tmp_path):
        """The run of this process has all answers, and a third run asks for none."""
        runs = RecordingProcesses(server, tmp_path)

        def behave(question, place):
            if question == "question 15" and place == 1:
                os.kill(runs.running[0].pid, signal.SIGKILL)
            server.released.wait(0.02)
            return completion(f"The answer to {question} [1].", logprobs=SURE)

        server.behave = behave
        second = runs.start()
        while not server.asked and second.poll() is None:
            time.sleep(0.01)
        assert runs.answers_here() == 20
        assert ended(second) == (b"", -signal.SIGKILL)
        server.asked.clear()
        assert runs.answers_here() == 20
        assert server.questions == []


class TestForms:
    """A server that refuses `json_schema` is asked for `json_object`, then plain text."""

    @pytest.mark.parametrize(
        ("text", "parsed"),
        [
            ('{"a": 1}', '{"a": 1}'),
            ('Sure: {"a": {"b": "}"}} and {"c": 2}', '{"a": {"b": "}"}}'),
            ("{broken", "{broken"),
            ("{" * 100_000, "{" * 100_000),
        ],
        ids=lambda text: text[:20],
    )
    def test_the_first_object_of_a_text(self, text, parsed):
        """Or the text itself, which the schema then refuses."""
        assert json_object(text) == parsed


class TestLearners:
    """A request that fails teaches nothing."""

    def test_a_bandit_gets_no_reward(self, opened, server, monkeypatch):
        """The choice stays without one, whether the failure raises or is answered."""
        from raglab.store.log_tables import CHOICES, REWARDS

        monkeypatch.setenv("RAGLAB_BANDIT_ENABLED", "1")
        system = opened()
        server.failing = {QUESTION: GONE}
        with pytest.raises(ModelUnavailableError):
            ask(QUESTION, system=system, request_id="raised")
        assert (
            ask(QUESTION, system=system, request_id="refused", on_error="refuse")["error"]
            is not None
        )
        ask("Is a courtesy car provided?", system=system, request_id="answered")
        with system.online.log.reading() as log:
            assert [row["request_id"] for row in log.rows(CHOICES)] == [
                "raised",
                "refused",
                "answered",
            ]
            assert [row["request_id"] for row in log.rows(REWARDS)] == ["answered"]
