"""Requests to language models.

When an answer is asked for again, what names a model, one model for several threads.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from answered_traces import LONG, UNGATED, asking_once, extension, long_world
from generators import Weighed
from judge_server import completion
from llama_server import (
    cut_off,
    server,  # noqa: F401
)
from raglab.answering import prompts
from raglab.answering.client import Completion, estimate_tokens, one_deadline
from raglab.answering.generation import ModelGenerator
from raglab.answering.local_model import LocalModel
from raglab.answering.metered_client import RequestBudget
from raglab.answering.openai_client import OpenAIClient
from raglab.answering.prompts import ANSWER_PROMPT, SHORTENING_VERSION, data_prompt, fit_passages
from raglab.answering.thoughts import without_thoughts
from raglab.live.answer_recording import MissingAnswersWarning, record_answers
from raglab.store.trace_merging import ANSWER_REQUESTS
from raglab.values import ModelUnavailableError
from raglab.words.canonical import digest
from tiny_models import save_causal
from worlds import policy

pytest.importorskip("openai")


def answered(server, **more):
    """Trace with the answers of the server."""
    return record_answers(long_world(), policy(), asking_once(server), Weighed(), **more)


class TestShortening:
    """Other messages are another request, whatever made them other."""

    def test_answers_to_other_messages_are_asked_again(self, server, monkeypatch):
        """Where passages are shortened otherwise, no answer to the old prompt is served.

        Where not, all are.
        """
        answered(server)
        server.asked.clear()
        answered(server)
        assert server.questions == []
        monkeypatch.setattr(prompts, "estimate_tokens", lambda text: 2 * estimate_tokens(text))
        made = answered(server)
        assert len(server.questions) == 3
        assert made.meta[ANSWER_REQUESTS]["from_cache"] == 0

    def test_the_version_of_shortening_is_in_the_name(self, server, monkeypatch):
        """So that answers in a trace are not taken for those of another version."""
        before = asking_once(server).name
        made = answered(server)
        monkeypatch.setattr(prompts, "SHORTENING_VERSION", SHORTENING_VERSION + 1)
        assert asking_once(server).name != before
        server.asked.clear()
        record_answers(made, policy(), asking_once(server), Weighed())
        assert len(server.questions) == 3

    def test_the_version_stands_for_these_prompts(self):
        """A change of `estimate_tokens`, `fit_passages` or `data_prompt` changes the version.

        Then this hash changes too.
        """
        texts = [
            LONG,
            "Le plafond est de 148 600 €.\n\n| a | b |\n|---|---|\n| 1 | 2 |",
            "保険金は五月に支払われます。" * 60,
        ]
        fitted = [fit_passages(texts, tokens) for tokens in range(20, 1400, 60)]
        shown = [data_prompt("How much?", one, ("Attempt", "1")) for one in fitted]
        assert (SHORTENING_VERSION, digest("\0".join(shown), 12)) == (1, "7eda858385d7")


class TestCutOff:
    """A reply that was cut off is cut off again, and paid again: it is kept as missing."""

    @pytest.mark.parametrize("at_once", [1, 4])
    def test_the_same_request_is_not_asked_again(self, server, at_once):
        """It stays missing with its reason and is counted; more tokens ask for it."""
        server.failing = {"question 1": cut_off()}
        with pytest.warns(MissingAnswersWarning, match=r"1 cut off \(q1\).* at max_tokens 512"):
            first = answered(server, at_once=at_once)
        assert first.meta[ANSWER_REQUESTS]["missing"] == {"cut off": 1}
        server.asked.clear()
        with pytest.warns(MissingAnswersWarning, match="in an earlier run"):
            again = answered(server, at_once=at_once)
        assert server.questions == []
        counts = again.meta[ANSWER_REQUESTS]
        assert (counts["requests"], counts["from_cache"], counts["missing_from_cache"]) == (0, 2, 1)
        server.failing = {}
        whole = record_answers(
            long_world(), policy(), asking_once(server, max_tokens=600), Weighed()
        )
        assert len(server.questions) == 3
        assert whole.meta[ANSWER_REQUESTS]["missing"] == {}

    def test_another_prompt_asks_again(self, server):
        """And so does another length of the prompt."""
        server.failing = {f"question {n}": cut_off() for n in range(3)}
        for settings in (
            {},
            {"max_prompt_tokens": 700},
            {"prompt": ANSWER_PROMPT._replace(text="Answer.")},
        ):
            server.asked.clear()
            with pytest.warns(MissingAnswersWarning):
                record_answers(long_world(), policy(), asking_once(server, **settings), Weighed())
            assert len(server.questions) == 3

    def test_a_generator_of_ones_own_is_asked_again(self, tmp_path):
        """Its name need not say how long its answers may be."""

        class Brief:
            """Cut off each time."""

            name, calls = "brief", 0

            def answer(self, question, passages):
                """No answer."""
                del question, passages
                self.calls += 1
                msg = "cut off"
                raise ModelUnavailableError(msg, kind="cut off")

        brief = Brief()
        for n in (1, 2):
            with pytest.warns(MissingAnswersWarning):
                record_answers(
                    long_world(), policy(), brief, Weighed(), cache=tmp_path / "a.sqlite"
                )
            assert brief.calls == 3 * n


class TestOddInput:
    """What no user means, and what a user may well do."""

    def test_no_case_at_all(self, server):
        """It is said, and nothing is asked."""
        with pytest.raises(ValueError, match="needs a trace with cases"):
            record_answers(long_world().subset([]), policy(), asking_once(server), Weighed())
        assert server.bodies == []

    def test_a_folder_is_no_cache(self, server, tmp_path):
        """It was put aside as a damaged file is, with all that a user has in it."""
        (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
        with pytest.raises(ValueError, match="cache must be a file, got the folder"):
            record_answers(long_world(), UNGATED, asking_once(server), Weighed(), cache=tmp_path)
        assert (tmp_path / "notes.txt").is_file()

    @pytest.mark.parametrize("at_once", [0, "2"])
    def test_requests_at_a_time(self, server, at_once):
        """A whole number from 1."""
        with pytest.raises(ValueError, match="at_once must be at least 1"):
            record_answers(long_world(), UNGATED, asking_once(server), Weighed(), at_once=at_once)

    def test_what_is_no_generator_or_client(self, server):
        """Each is told from the others."""
        with pytest.raises(TypeError, match=r"got OpenAIClient; a client goes into ModelGenerator"):
            record_answers(long_world(), UNGATED, asking_once(server).client, Weighed())
        judge = extension("learned_signals.signal_models:judge")
        with pytest.raises(TypeError, match=r"client must be raglab\.OpenAIClient .* got ModelGen"):
            judge(asking_once(server))

    @pytest.mark.parametrize(
        ("reply", "text"),
        [
            (
                "<think>The passage\nsays 250.</think>\n\nIt is 250 pounds [1].",
                "It is 250 pounds [1].",
            ),
            ("It is <think>250</think> pounds.", "It is <think>250</think> pounds."),
        ],
    )
    def test_thoughts_of_a_model_are_no_answer(self, reply, text):
        """Models that reason write them first where a server does not take them out."""
        assert without_thoughts(Completion(reply)).text == text

    def test_a_reply_of_marks_alone_is_malformed(self, server):
        """It is no answer, and no refusal (rule S0.1)."""
        server.failing = {"question 0": completion("Passage 1:")}
        with pytest.raises(ModelUnavailableError) as caught:
            asking_once(server).answer("question 0", long_world().chunks)
        assert caught.value.kind == "malformed reply"


class Brief:
    """A client that says yes."""

    name = "brief"

    def complete(self, messages, **_):
        """One word."""
        del messages
        return Completion("yes")


class TestMeter:
    """A budget is of tokens."""

    def test_a_budget_of_nothing_sends_nothing(self, server):
        """Nor does a gate that needs a confidence probe the server.

        The rest is missing as not asked.
        """
        with pytest.warns(MissingAnswersWarning, match="budget spent"):
            made = record_answers(
                long_world(),
                policy(),
                asking_once(server),
                Weighed(),
                budget=RequestBudget(calls=0),
            )
        assert made.meta[ANSWER_REQUESTS]["missing"] == {"budget spent": 3}
        assert server.bodies == []

    def test_threads_wait_for_one_probe(self, server):
        """Four at once ask what the server can do once."""
        client = OpenAIClient("tiny", server.base_url, timeout=20.0, max_retries=0)
        with ThreadPoolExecutor(4) as pool:
            known = list(pool.map(lambda _: client.capabilities(), range(4)))
        assert len(set(known)) == 1
        assert server.probes == 1


WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "what",
    "does",
    "the",
    "policy",
    "cover",
    "water",
    "fire",
    ".",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a causal model of one layer with random weights."""
    return save_causal(tmp_path_factory.mktemp("models") / "causal", WORDS)


def with_template(place, template):
    """Folder of a causal model with another template of chats."""
    made = save_causal(place, WORDS)
    (made / "chat_template.jinja").write_text(template, encoding="utf-8")
    return made


NO_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('System role not "
    "supported') }}{% endif %}"
    "{{ m['content'] }} [SEP] {% endfor %}"
)


class TestDoor:
    """What cannot be meant is refused where it is stated."""

    @pytest.mark.parametrize(
        "url", ["http://u:secret@host:80/v1", "http://[::1]:8000/v1", "HTTP://HOST/deep/path/v1/"]
    )
    def test_an_address_that_is_one(self, url):
        """With a path, a port, a user."""
        made = OpenAIClient("tiny", url)
        assert "secret" not in f"{made!r} {made.name}"

    @pytest.mark.parametrize(
        "settings",
        [
            {"max_tokens": 0},
            {"max_prompt_tokens": float("nan")},
        ],
    )
    def test_sizes(self, settings):
        """Whole numbers from 1."""
        with pytest.raises(ValueError, match="must be a whole number from 1"):
            ModelGenerator(Brief(), **settings)

    def test_a_prompt_is_no_text(self):
        """The remedy is a `Prompt` of it."""
        with pytest.raises(TypeError, match=r"write raglab\.live\.Prompt\('mine', 1"):
            ModelGenerator(Brief(), prompt="Answer.")  # type: ignore[arg-type]

    @pytest.mark.parametrize("wrong", ["3", -1])
    def test_a_budget_is_of_numbers(self, wrong):
        """Those of NumPy among them."""
        with pytest.raises(ValueError, match="calls: Input should be "):
            RequestBudget(calls=wrong)
        assert RequestBudget(calls=np.int64(3), tokens=np.float32(5)).calls == 3


class TestLocalModel:
    """A model in this process."""

    def test_its_name_is_read_from_its_files(self, folder, monkeypatch):
        """Nothing is loaded for it, and the loaded model has the same."""
        loaded = LocalModel(str(folder))
        loaded.load()

        def load(*_, **__):
            raise AssertionError

        monkeypatch.setattr("raglab.answering.local_model.load_causal_model", load)
        assert LocalModel(str(folder)).name == loaded.name == f"local:{loaded.load().name}"

    def test_a_file_in_gguf_is_named_by_its_content(self, tmp_path):
        """Whether it can be loaded or not."""
        names = []
        for content in (b"GGUF one", b"GGUF two"):
            (tmp_path / "small.gguf").write_bytes(content)
            names.append(LocalModel(str(tmp_path / "small.gguf")).name)
        assert names[0] != names[1]
        assert names[0].startswith("local:small@")

    def test_files_that_change_before_it_is_loaded_are_an_error(self, tmp_path):
        """What is kept under the old name would be of another model."""
        changed = save_causal(tmp_path / "causal", WORDS)
        model = LocalModel(str(changed))
        assert model.name
        (changed / "extra.json").write_text("{}", encoding="utf-8")
        with pytest.raises(ValueError, match="files of a model must stay"):
            model.load()

    def test_a_template_without_a_system_gets_its_instructions_from_the_user(self, tmp_path):
        """As Gemma's and Mistral's do; the prompt is that of one message."""
        model = LocalModel(str(with_template(tmp_path / "causal", NO_SYSTEM)))
        asked = [{"role": "system", "content": "the policy"}, {"role": "user", "content": "water"}]
        one = [{"role": "user", "content": "the policy\n\nwater"}]
        assert model.load().prompt_ids(asked) == model.load().prompt_ids(one)
        assert model.complete(asked, max_tokens=2).completion_tokens

    def test_a_template_that_takes_nothing_is_a_reason(self, tmp_path):
        """When the model is loaded, with the remedy."""
        with pytest.raises(ValueError, match="template of chats takes no instructions"):
            LocalModel(str(with_template(tmp_path / "causal", "{% for"))).load()

    def test_what_only_ends_in_gguf_is_a_reason(self, tmp_path):
        """It is named, and loaded it is an error."""
        pytest.importorskip("gguf")
        (tmp_path / "a.gguf").write_bytes(b"no model")
        model = LocalModel(str(tmp_path / "a.gguf"))
        assert model.name.startswith("local:")
        with pytest.raises(ValueError, match="must hold a causal language model"):
            model.load()

    def test_half_a_letter_is_read(self, folder):
        """A lone surrogate in a question or an answer ends nothing."""
        model = LocalModel(str(folder))
        asked = [{"role": "user", "content": "water \ud800"}]
        assert model.complete(asked, max_tokens=2).text

    @pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"seed": -1}])
    def test_numbers_that_mean_nothing_are_refused_at_once(self, folder, wrong):
        """No token fewer than one ended a reply, which went on until its time was up."""
        with pytest.raises(ValueError, match="max_tokens must be 1 or more and seed 0 or more"):
            LocalModel(str(folder), timeout=2.0).complete(
                [{"role": "user", "content": "water"}], **wrong
            )

    def test_a_reply_past_its_time_ends(self, folder):
        """At the next token."""
        with pytest.raises(ModelUnavailableError, match="0 tokens were written"):
            LocalModel(str(folder), timeout=1e-9).complete(
                [{"role": "user", "content": "water"}], max_tokens=2
            )

    def test_threads_share_it(self, folder):
        """Four requests at once get what each gets alone."""
        asked = [
            [{"role": "user", "content": " ".join([*WORDS[5 : 5 + n], "."])}] for n in range(1, 9)
        ]
        alone = [
            LocalModel(str(folder)).complete(one, max_tokens=6)._replace(ms=0.0) for one in asked
        ]
        shared = LocalModel(str(folder))
        with ThreadPoolExecutor(4) as pool:
            several = list(
                pool.map(lambda one: shared.complete(one, max_tokens=6)._replace(ms=0.0), asked)
            )
        assert several == alone

    def test_waiting_for_a_turn_is_no_time_of_a_call(self, folder):
        """Behind another reply a call has its whole time.

        Of a question asked live it is part of the request.
        """
        model = LocalModel(str(folder), timeout=1.0)
        message = [{"role": "user", "content": "what does the policy cover"}]
        model.complete(message, max_tokens=2)  # the first one imports

        def ask(*, live):
            if not live:
                with one_deadline():  # as a recorded answer
                    return model.complete(message, max_tokens=2).finish
            with one_deadline(waits=True), pytest.raises(ModelUnavailableError) as caught:
                model.complete(message, max_tokens=2)
            return caught.value.kind

        for live, expected in ((False, {"stop", "length"}), (True, {"timeout"})):
            with ThreadPoolExecutor(1) as pool:
                with model._lock:
                    waiting = pool.submit(ask, live=live)
                    time.sleep(1.2)
                assert waiting.result() in expected
