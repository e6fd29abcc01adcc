"""A language model that fails decides nothing: it raises, is missing, or is counted apart (rules S0.1, S2.10)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import raglab
from generators import Fixed, Weighed
from judge_server import KEY, Reply, completion
from llama_server import GONE, SILENCE, LlamaServer, cut_off, llama_server
from raglab.answering.model_server import json_object
from raglab.answering.required_confidence import confidence_switch
from raglab.answering.server import OpenAIGenerator
from raglab.audit.label_samples import draw_sample
from raglab.audit.live_rates import live_rates
from raglab.audit.log_summary import days
from raglab.cli import app
from raglab.live.ask import ask
from raglab.live.response import MissingAnswersWarning, OwnAnswers, record_answers
from raglab.live.system import Lab, build_index
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.retrieval.indexes import ArmHits
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Case, Chunk, Generation, ModelUnavailableError
from test_live_ask import OPEN
from test_live_trace_building import CORPUS, SMALL, WordEncoder, encoder  # noqa: F401 - a fixture
from worlds import Hit, policy, trace_of

pytest.importorskip("openai")

QUESTION = "What is the motor excess?"
FREE = OPEN | {"confidence": {"enabled": False}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaServer]:
    """Return a server of its own for each test, and a key in the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with llama_server() as running:
        yield running


@pytest.fixture
def index(tmp_path: Path, encoder: WordEncoder) -> Path:  # noqa: F811 - the fixture
    """Return the folder of an index over the small corpus."""
    del encoder
    build_index(CORPUS, tmp_path / "index", cache=None, **SMALL)
    return tmp_path / "index"


def generator(server: LlamaServer, **more: Any) -> OpenAIGenerator:
    """Generator that asks the server, for at most a second, once."""
    return OpenAIGenerator("tiny", server.base_url, **{"timeout": 1.0, "max_retries": 0, **more})


@pytest.fixture
def opened(index: Path, server: LlamaServer) -> Callable[..., Lab]:
    """Return what opens a system whose answers the server writes."""

    def make(stated: dict[str, Any] | None = None, **more: Any) -> Lab:
        chosen = Policy.from_mapping(FREE | (stated or {}))
        return Lab.open(index, **{"policy": chosen, "generator": generator(server), "cache": False, **more})

    return make


class Mine:
    """A generator of the user's own."""

    name = "mine"

    def __init__(self, confidence: float, error: Exception | None = None) -> None:
        self.confidence, self.error, self.n_answers = confidence, error, 0

    def answer(self, question: str, passages: Any) -> Generation:
        """One answer with one confidence, or the error."""
        del question, passages
        self.n_answers += 1
        if self.error is not None:
            raise self.error
        return Generation("The motor excess is 250 pounds.", self.confidence, (0,))


class TestConfidence:
    """Rule S2.10: a gate on the generator's confidence needs one."""

    def test_a_server_that_gives_log_probabilities_only_where_alternatives_are_asked_for(
        self, opened: Callable[..., Lab]
    ) -> None:
        """As llama.cpp's does. The gate passes the answer, which it refused before."""
        response = ask(QUESTION, lab=opened())
        assert (response["status"], response["answer"]) == ("ok", "The motor excess is 250 pounds [1].")

    def test_a_server_without_log_probabilities_is_found_before_the_first_answer(
        self, opened: Callable[..., Lab], server: LlamaServer
    ) -> None:
        """By `check` and by `ask`, with the remedy; no question is sent and none refused."""
        server.logprobs = False
        lab = opened()
        for call in (lab.check, lambda: ask(QUESTION, lab=lab), lambda: ask(QUESTION, lab=lab, on_error="refuse")):
            with pytest.raises(ValueError, match=r'openai:tiny@.*policy\.replace\("generation\.enabled", False\)'):
                call()
        assert (server.questions, server.probes) == ([], 3)
        with pytest.raises(ValueError, match="the gate generation needs"):
            record_answers(world(), Policy.from_mapping(FREE), generator(server), Weighed())
        assert server.questions == []

    def test_the_remedy_holds(self, opened: Callable[..., Lab], server: LlamaServer) -> None:
        """With the gate off the same server answers, and is not probed."""
        server.logprobs = False
        lab = opened()
        free = lab.replace(lab.policy.replace("generation.enabled", False))
        assert ask(QUESTION, lab=free)["status"] == "ok"
        assert server.probes == 0
        assert free.check() is free
        assert server.probes == 1

    def test_the_server_is_probed_once(self, opened: Callable[..., Lab], server: LlamaServer) -> None:
        """A system remembers it, also under another policy; a few tokens are asked for."""
        lab = opened()
        for _ in range(2):
            ask(QUESTION, lab=lab)
        ask(QUESTION, lab=lab.replace(lab.policy.replace("generation.min_generation_confidence", 0.5)))
        assert (server.probes, len(server.questions)) == (1, 3)
        assert server.bodies[0]["max_tokens"] <= 8
        assert opened().check().policy.generation.enabled
        assert server.probes == 2

    def test_what_retrieval_refuses_asks_no_server(self, opened: Callable[..., Lab], server: LlamaServer) -> None:
        """Neither for an answer nor by a probe, so that it needs none."""
        lab = opened({"similarity": {"enabled": True, "min_similarity": 1.0}})
        assert ask(QUESTION, lab=lab)["status"] == "refuse"
        assert server.asked == []

    def test_a_first_answer_without_a_confidence_is_the_same_error(
        self, opened: Callable[..., Lab], server: LlamaServer
    ) -> None:
        """Of a server whose reply to the probe had one, or showed no text; later ones are missing one by one."""
        server.failing = {QUESTION: completion("The motor excess is 250 pounds.")}
        lab = opened()
        with pytest.raises(ValueError, match="the gate generation needs"):
            ask(QUESTION, lab=lab)
        assert (server.probes, server.questions) == (1, [QUESTION])
        assert ask("Is a courtesy car provided?", lab=lab)["status"] == "ok"
        later = ask(QUESTION, lab=lab)
        assert later["refusal_reason"].startswith("generation confidence is missing")
        server.failing |= {"": completion("")}
        with pytest.raises(ValueError, match="the gate generation needs"):
            ask(QUESTION, lab=opened())

    def test_a_generator_of_ones_own(self, opened: Callable[..., Lab]) -> None:
        """It is found by its first answer, and before it where it states that it gives none."""
        mine = Mine(float("nan"))
        with pytest.raises(ValueError, match="got mine"):
            ask(QUESTION, lab=opened(generator=mine))
        assert mine.n_answers == 1
        mine.gives_confidence = False  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="got mine"):
            opened(generator=mine).check()
        with pytest.raises(ValueError, match="got mine"):
            ask(QUESTION, lab=opened(generator=mine))
        assert mine.n_answers == 1
        mine.gives_confidence = True  # type: ignore[attr-defined]
        assert ask(QUESTION, lab=opened(generator=mine).check())["status"] == "refuse"
        assert ask(QUESTION, lab=opened(generator=Mine(0.9)))["status"] == "ok"
        assert ask(QUESTION, lab=opened(generator=None).check())["status"] in {"ok", "refuse"}

    def test_rows_of_a_table_hide_no_generator(self, server: LlamaServer) -> None:
        """What answers behind them is checked, though their own answers have a confidence."""

        class Rows:
            """The index of an arm whose rows answer no question of the test."""

            rows, answers = (Chunk("c", "Cause: Storm; Excess: £400", "t.md", 1),), True

            def search(self, *_: object) -> ArmHits:
                """No hit."""
                return ArmHits(np.full((1, 1), -1, np.int64))

            def answer(self, *_: object) -> None:
                """No answer."""

        server.logprobs = False
        with pytest.raises(ValueError, match="the gate generation needs"):
            record_answers(world(), policy(), OwnAnswers("table", Rows(), generator(server)), Weighed())

    @pytest.mark.parametrize(
        ("sections", "switch"),
        [
            ({}, "generation.enabled"),
            ({"generation": {"enabled": False}}, None),
            ({"decision": {"order": ["domain", "l2", "density", "gap", "support"]}}, None),
            ({"generation": {"enabled": False}, "signals": {"generation": {"min": 0.5}}}, "signals.generation.enabled"),
            ({"generation": {"enabled": False}, "signals": {"generation": {"min": 0.5, "on_fire": "warn"}}}, None),
            ({"generation": {"enabled": False}, "signals": {"generation": {"min": 0.5, "enabled": False}}}, None),
        ],
    )
    def test_which_policies_need_a_confidence(self, sections: dict[str, Any], switch: str | None) -> None:
        """The gate itself, or one on the signal; neither where it is off, left out or only warns."""
        chosen = PolicyData.from_mapping(sections)
        assert confidence_switch(chosen) == switch
        assert switch is None or confidence_switch(chosen.replace(switch, False)) is None


FAILURES: dict[str, tuple[Reply, str]] = {
    "timeout": (SILENCE, "timeout"),
    "gateway": (GONE, "HTTP 502"),
    "cut off": (cut_off(), "cut off"),
    "not json": (Reply(body=b"<html>Welcome</html>"), "malformed reply"),
    "empty": (completion(""), "malformed reply"),
    "unknown model": (Reply(404, b'{"error": {"message": "no such model"}}'), "HTTP 404"),
}


@pytest.fixture(params=FAILURES)
def kind(request: pytest.FixtureRequest, server: LlamaServer) -> str:
    """Return the kind of a failure that the question meets."""
    reply, name = FAILURES[request.param]
    server.failing = {QUESTION: reply}
    return name


class TestAsk:
    """Rule S0.1: what fails raises, or is a refusal that counts in no rate where the service must answer."""

    def test_a_failure_raises(self, opened: Callable[..., Lab], kind: str, server: LlamaServer) -> None:
        """Not a refusal, with kind, server and remedy; the question may be asked again under its id."""
        lab = opened()
        with pytest.raises(raglab.ModelUnavailableError, match=kind) as caught:
            ask(QUESTION, lab=lab, request_id="r")
        assert caught.value.kind == kind
        assert server.host in str(caught.value)
        assert "; " in str(caught.value)
        assert KEY not in str(caught.value)
        server.failing.clear()
        assert ask(QUESTION, lab=lab, request_id="r")["status"] == "ok"

    @pytest.mark.full
    def test_a_service_that_must_answer(
        self, opened: Callable[..., Lab], kind: str, server: LlamaServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By argument, by the system or by the environment; `error` says what failed, and no document is blamed."""
        lab = opened(cache=True)
        response = ask(QUESTION, lab=lab, on_error="refuse")
        assert (response["status"], response["refused"], response["sources"]) == ("refuse", True, [])
        assert kind in response["error"]
        assert "documents" not in response["answer"]
        assert response["refusal_reason"].startswith("no answer was generated: ")
        assert ask("Quelle est la franchise ?", lab=opened(), on_error="refuse")["error"] is None
        assert ask(QUESTION, lab=opened(on_error="refuse"))["error"] is not None
        monkeypatch.setenv("RAGLAB_ANSWER_ON_ERROR", "refuse")
        assert ask(QUESTION, lab=opened())["error"] is not None
        with pytest.raises(ModelUnavailableError):
            ask(QUESTION, lab=opened(on_error="raise"))
        with pytest.raises(ValueError, match="on_error must be one of raise, refuse, got 'ignore'"):
            ask(QUESTION, lab=lab, on_error="ignore")  # type: ignore[arg-type]
        server.failing.clear()
        again = ask(QUESTION, lab=lab)
        assert (again["status"], again["error"]) == ("ok", None)  # no cache keeps a failure

    def test_a_server_that_is_not_there(self, opened: Callable[..., Lab]) -> None:
        """Port 9 of this machine listens to nobody."""
        gone = OpenAIGenerator("tiny", "http://127.0.0.1:9/v1", max_retries=0)
        lab = opened(generator=gone)
        for call in (lab.check, lambda: ask(QUESTION, lab=lab)):
            with pytest.raises(ModelUnavailableError, match="start the server, or correct base_url"):
                call()

    def test_a_failure_that_passes_is_none(self, opened: Callable[..., Lab], server: LlamaServer) -> None:
        """A gateway that fails once."""
        server.failing, server.times = {QUESTION: GONE}, {QUESTION: 1}
        lab = opened(generator=generator(server, timeout=20.0, max_retries=1))
        assert ask(QUESTION, lab=lab)["status"] == "ok"
        assert server.questions == [QUESTION, QUESTION]

    @pytest.mark.parametrize("error", [TimeoutError("late"), ConnectionRefusedError("no")], ids=repr)
    def test_a_generator_of_ones_own_that_fails(self, opened: Callable[..., Lab], error: Exception) -> None:
        """Its timeouts and broken connections count as failures of a model, and so does what it raises as such."""
        with pytest.raises(ModelUnavailableError, match="mine raised"):
            ask(QUESTION, lab=opened(generator=Mine(0.9, error)))
        stated = ModelUnavailableError("the model is being loaded; ask again.")
        response = ask(QUESTION, lab=opened(generator=Mine(0.9, stated)), on_error="refuse")
        assert response["error"] == "the model is being loaded; ask again."

    def test_a_model_that_declines_refuses(self, opened: Callable[..., Lab], server: LlamaServer) -> None:
        """INSUFFICIENT is what the model says of the passages, and no failure."""
        server.failing = {QUESTION: completion("INSUFFICIENT")}
        response = ask(QUESTION, lab=opened())
        assert (response["status"], response["error"]) == ("refuse", None)
        assert "do not answer the question" in response["refusal_reason"]

    def test_the_log_counts_it_apart(self, opened: Callable[..., Lab], server: LlamaServer) -> None:
        """It is in no rate, no sample and no daily count of refusals, and adds up."""
        lab = opened({"generation": {"min_generation_confidence": 0.99}}, on_error="refuse")
        now = datetime(2026, 11, 2, 9, tzinfo=UTC)
        ask("Is a courtesy car provided?", lab=lab, request_id="refused", now=now)
        server.failing = {QUESTION: SILENCE}
        ask(QUESTION, lab=lab, request_id="failed", now=now)
        log = lab.audit
        assert log is not None
        table = live_rates(log)
        assert set(table["requests"]) == {1}
        assert set(table["errors"]) == {1}
        assert days(log).loc[0, ["requests", "ok", "refuse", "errors"]].tolist() == [2, 0, 1, 1]
        assert draw_sample(log, 9, seed=0)["request_id"].tolist() == ["refused"]
        said = raglab.explain("failed", lab=lab)
        assert not said.differences
        assert "did not answer within 1 s" in str(said)
        assert not log.verify().findings

    def test_a_graph_raises(self, opened: Callable[..., Lab], server: LlamaServer) -> None:
        """As `ask` does, both for a failure and for a confidence that lacks."""
        pytest.importorskip("langgraph")
        graph = raglab.build_graph(opened(on_error="refuse"))
        server.failing = {QUESTION: SILENCE}
        with pytest.raises(ModelUnavailableError, match="timeout"):
            graph.invoke({"question": QUESTION})
        server.failing, server.logprobs = {}, False
        with pytest.raises(ValueError, match="the gate generation needs"):
            raglab.build_graph(opened()).invoke({"question": QUESTION})

    @pytest.mark.slow
    def test_the_command_line(
        self, index: Path, server: LlamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Exit code 69 and one line on the standard error; 1 where the policy is wrong; 0 where it must answer."""
        Policy.from_mapping(FREE).save(tmp_path / "p.yaml")
        command = ["ask", str(index), QUESTION, "-p", str(tmp_path / "p.yaml"), "--no-cache", "--model", "tiny"]
        command += ["--base-url", server.base_url]
        assert CliRunner().invoke(app, command).exit_code == 0
        server.failing = {QUESTION: cut_off()}
        failed = CliRunner().invoke(app, command)
        assert (failed.exit_code, failed.stdout) == (69, "")
        assert failed.stderr.startswith("raglab: a language model must answer, got cut off after ")
        assert "raise max_tokens, then ask again" in failed.stderr
        assert failed.stderr.count("\n") == 1
        monkeypatch.setenv("RAGLAB_ANSWER_ON_ERROR", "refuse")
        answered = CliRunner().invoke(app, [*command, "--json"])
        assert answered.exit_code == 0
        assert "cut off" in json.loads(answered.stdout)["error"]
        server.failing, server.logprobs = {}, False
        assert CliRunner().invoke(app, command).exit_code == 1


def world(n: int = 6) -> Trace:
    """Trace of some questions with one hit each."""
    cases = [Case("q", f"question {number}", "ok", answer="250") for number in range(n)]
    made = trace_of(*((case, [[Hit(0.25, text="The motor excess is 250 pounds.")]]) for case in cases))
    fields = (made.cases, made.chunks, made.arms, made.hits)
    return Trace(*fields, made.pattern_hits, {"fingerprint": "f" * 16, "cases_hash": "c" * 16})


def recorded(trace: Trace, server: LlamaServer, **more: Any) -> tuple[Trace, list[str]]:
    """Trace with answers, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = record_answers(trace, policy(), generator(server, **more), Weighed())
    assert all(issubclass(one.category, MissingAnswersWarning) for one in caught)
    return made, [str(one.message) for one in caught]


class TestRecordAnswers:
    """Rules S0.1, S2.12: what fails is missing, counted, and asked again."""

    def test_what_failed_is_missing_and_asked_again(self, server: LlamaServer, tmp_path: Path) -> None:
        """It is not recorded as a refusal; the next run, also of a stored trace, asks for it alone."""
        server.failing = {"question 1": SILENCE, "question 3": cut_off(), "question 4": SILENCE}
        part, (told,) = recorded(world(), server, timeout=0.3)
        assert told.startswith("3 of 6 answers are missing: 2 timeout (q1, q4), 1 cut off (q3); the first: ")
        assert part.answers is not None
        assert part.answers.row.tolist() == [0, 2, 5]
        assert not any(part.answers.refused)
        assert "no answer is recorded for these hits" in str(decide(part, policy()).reason(1))
        part.save(tmp_path / "t.parquet")
        server.failing, server.asked = {}, []
        whole, none = recorded(Trace.load(tmp_path / "t.parquet"), server)
        assert none == []
        assert server.questions == ["question 1", "question 3", "question 4"]
        assert whole.answers is not None
        assert whole.answers.row.tolist() == [0, 1, 2, 3, 4, 5]
        at_once, _ = recorded(world(), server)
        assert at_once.answers is not None
        for one, other in zip(whole.answers, at_once.answers, strict=True):
            assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
        assert len({world().fingerprint, part.fingerprint, whole.fingerprint}) == 3

    def test_a_run_with_nothing_to_ask_makes_no_other_trace(self, server: LlamaServer) -> None:
        """Nor does one in which everything fails again; another generator asks for all."""
        server.failing = {"question 1": GONE}
        part, _ = recorded(world(), server)
        again, (told,) = recorded(part, server)
        assert again is part
        assert "1 of 6 answers are missing: 1 HTTP 502 (q1)" in told
        server.failing.clear()
        whole, _ = recorded(part, server)
        assert recorded(whole, server)[0] is whole
        server.asked.clear()
        recorded(whole, server, max_tokens=99)
        assert len(server.questions) == 6

    def test_the_warning_holds_every_reason(self, server: LlamaServer) -> None:
        """With case, kind and words, also where all are missing; that trace decides nothing as a refusal of a model."""
        server.failing = {f"question {number}": GONE for number in range(6)}
        with pytest.warns(MissingAnswersWarning, match="6 of 6 answers are missing") as caught:
            made = record_answers(world(), policy(), generator(server), Weighed())
        (warning,) = (one.message for one in caught if isinstance(one.message, MissingAnswersWarning))
        assert [one.case_id for one in warning.missing] == [f"q{number}" for number in range(6)]
        assert {one.kind for one in warning.missing} == {"HTTP 502"}
        assert made.answers is not None
        assert len(made.answers.row) == 0
        server.failing.clear()
        assert len(recorded(made, server)[0].answers.row) == 6  # type: ignore[union-attr]

    def test_parts_can_be_joined(self, server: LlamaServer) -> None:
        """What is missing in one part stands in no trace's meta, so that they merge and are completed together."""
        server.failing = {"question 1": GONE}
        part, _ = recorded(world(), server)
        joined = part.subset([0, 1, 2]).merge(part.subset([3, 4, 5]))
        server.failing, server.asked = {}, []
        whole, _ = recorded(joined, server)
        assert server.questions == ["question 1"]
        assert whole.answers is not None
        assert len(whole.answers.row) == 6


class TestCalibration:
    """`calibrate_answers` says why it can fit nothing."""

    def test_no_confidence_is_finite(self, server: LlamaServer) -> None:
        """With counts, generator and remedy."""
        server.logprobs = False
        chosen = Policy.from_mapping(policy(generation={"enabled": False}).model_dump())
        made = record_answers(world(), chosen, generator(server), Weighed())
        with pytest.raises(
            ValueError, match=r"got 0 of 6 recorded answers with one: openai:tiny@.*generation\.enabled"
        ):
            raglab.calibrate_answers(made, chosen)
        with pytest.raises(ValueError, match=r"got 0 of 6 recorded answers with one: fixed"):
            raglab.calibrate_answers(record_answers(world(), chosen, Fixed(confidence=float("nan")), Weighed()), chosen)

    def test_all_answers_are_missing(self, server: LlamaServer) -> None:
        """There are none to fit on."""
        server.failing = {f"question {number}": GONE for number in range(6)}
        made, _ = recorded(world(), server)
        with pytest.raises(ValueError, match="got 0 of 0 recorded answers with one: no answer with a text"):
            raglab.calibrate_answers(made, Policy.from_mapping(policy().model_dump()))


class TestForms:
    """A server that refuses `json_schema` is asked for `json_object` with the schema, then for plain text."""

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ('{"a": 1}', '{"a": 1}'),
            ('Sure: {"a": {"b": "}"}} and {"c": 2}', '{"a": {"b": "}"}}'),
            ("none", "none"),
            ("{broken", "{broken"),
            ("", ""),
            ("{" * 100_000, "{" * 100_000),
        ],
        ids=lambda text: text[:20],
    )
    def test_the_first_object_of_a_text(self, text: str, found: str) -> None:
        """Or the text itself, which the schema then refuses."""
        assert json_object(text) == found


class TestLearners:
    """A request that fails teaches nothing."""

    def test_a_bandit_gets_no_reward(
        self, opened: Callable[..., Lab], server: LlamaServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The choice stays without one, whether the failure raises or is answered."""
        from raglab.store.log_tables import CHOICES, REWARDS

        monkeypatch.setenv("RAGLAB_BANDIT_ENABLED", "1")
        lab = opened()
        assert lab.online is not None
        server.failing = {QUESTION: GONE}
        with pytest.raises(ModelUnavailableError):
            ask(QUESTION, lab=lab, request_id="raised")
        assert ask(QUESTION, lab=lab, request_id="refused", on_error="refuse")["error"] is not None
        ask("Is a courtesy car provided?", lab=lab, request_id="answered")
        with lab.online.log.reading() as log:
            assert [row["request_id"] for row in log.rows(CHOICES)] == ["raised", "refused", "answered"]
            assert [row["request_id"] for row in log.rows(REWARDS)] == ["answered"]
