"""A real language model, in process and served: what `make local-llm` fetched.

Skipped with a line where it is not.

At most twenty replies, with prompts of at most 300 tokens.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from raglab.answering.client import Capabilities, Completion, Message
from raglab.answering.generation import ModelGenerator
from raglab.answering.local_model import LocalModel
from raglab.answering.metered_client import MeteredClient, RequestBudget
from raglab.answering.openai_client import OpenAIClient
from raglab.live.clarifier import GapReading, ParsedQuestion, ReplyRequest
from raglab.models.loaders import CausalModel
from raglab.values import Chunk, ModelUnavailableError

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "out" / "local_llm" / "SmolLM2-135M-Instruct.Q4_1.gguf"
if not FILE.is_file():
    pytest.skip("make local-llm fetches the model", allow_module_level=True)
if find_spec("gguf") is None or find_spec("accelerate") is None:
    pytest.skip("the extra raglab-toolkit[local] is not installed", allow_module_level=True)
PASSAGES = [
    Chunk("a", "The storm excess is £400. Claims are paid within 30 days.", "home.md"),
    Chunk("b", "Glass is covered without an excess.", "home.md"),
]
ASK = [
    {
        "role": "user",
        "content": "Passage: The storm excess is £400. How much is the storm excess? One sentence.",
    }
]
BRIEF = "Answer in one short sentence from the passages."


@pytest.fixture(scope="module", autouse=True)
def lengths():
    """Tokens that the model read in each call.

    At the end of all tests at most twenty calls, each of 300 tokens.
    """
    read: list[int] = []
    steps = CausalModel.log_probabilities

    def counted_steps(model, ids):
        read.append(len(ids))
        return steps(model, ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CausalModel, "log_probabilities", counted_steps)
        yield read
    assert len(read) <= 20
    assert max(read, default=0) <= 300


@pytest.fixture(scope="module")
def model():
    """The model, loaded once."""
    made = LocalModel(str(FILE))
    shown = StringIO()
    with redirect_stderr(shown):
        made.load()
    assert shown.getvalue() == ""  # no progress bar, which would stand in every notebook
    return made


@pytest.fixture(scope="module")
def local_llm():
    """The script that serves it."""
    spec = importlib.util.spec_from_file_location(
        "local_llm", ROOT / "experiments" / "local_llm.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["local_llm"] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def served(model, local_llm):
    """Address of a server over it on this machine, which ends with the tests."""
    with local_llm.ModelServer(model) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        yield server.base_url
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def reply(model):
    """Its reply to a question that one passage answers."""
    return model.complete(ASK, max_tokens=24, top=5)


def test_it_answers_from_the_passage(reply):
    """A whole sentence with the sum, each token with its probability."""
    assert "400" in reply.text
    assert reply.finish == "stop"
    assert reply.prompt_tokens is not None
    assert reply.prompt_tokens < 300
    assert 0.0 < reply.mean_probability <= 1.0


def test_its_server_can_do_what_the_probe_finds(
    served,
    reply,
    monkeypatch,
    tmp_path,
):
    """Log-probabilities with alternatives, and no schema.

    The reply is that of the process.
    """
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path))
    client = OpenAIClient("local", served, timeout=120.0)
    found = client.capabilities(again=True)
    assert (found.logprobs, found.schema, found.top) == (True, "text", 20)
    again = client.complete(ASK, max_tokens=24, top=5)
    assert again.text == reply.text
    assert [one.logprob for one in again.tokens] == pytest.approx(
        [one.logprob for one in reply.tokens], abs=1e-6
    )


def test_it_says_yes_and_no_with_a_probability(model):
    """Of one token, within a budget that counts it."""
    models = pytest.importorskip("raglab.extensions.learned_signals.signal_models")
    made = models.yes_no(model, budget=RequestBudget(calls=1)).fn
    assert (
        0.0 < made.score("How much is the storm excess?", [chunk.text for chunk in PASSAGES]) < 1.0
    )
    assert made.client.counts.completion_tokens == 1


def test_it_answers_as_a_generator(model):
    """With a confidence, or the failure that it was cut off: never a refusal in its place."""
    metered = MeteredClient(model)
    generator = ModelGenerator(
        metered, ModelGenerator(model).prompt._replace(text=BRIEF), max_tokens=32
    )
    try:
        generation = generator.answer("How much is the storm excess?", PASSAGES)
    except ModelUnavailableError as error:
        generation = None
        kind = error.kind
    assert kind == "cut off" if generation is None else 0.0 < generation.confidence <= 1.0
    assert metered.counts.requests == 1


class Written:
    """A client that keeps what it is sent."""

    name = "written"

    def __init__(self):
        self.sent: list[tuple[Message, ...]] = []

    def complete(self, messages, **_):
        """No answer."""
        self.sent.append(tuple(messages))
        return Completion("none")

    def capabilities(self, *, again=False):  # noqa: ARG002
        """Everything."""
        return Capabilities(True, 20, "text")


def long_texts():
    """Passages of bundled documents, of number tables, and of scripts the model hardly knows."""
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "datasets").glob("*/documents/*.md"))
        if path.stat().st_size > 4000
    }
    texts |= {
        "numbers": "| 148,600.00 | 161,974.00 | 13,374.00 |\n" * 200,
        "Chinese": "保险单规定暴风雨的免赔额为四百英镑。" * 200,
        "Arabic": "قسط التأمين على العواصف هو أربعمائة جنيه " * 200,
        "Thai": "ค่าเสียหายส่วนแรกสำหรับพายุคือสี่ร้อยปอนด์" * 200,
        "Cyrillic": "Франшиза по шторму составляет четыреста фунтов. " * 200,
        "short lines": "a\nb\n" * 2000,
        "code": "for (int i=0;i<n;i++){ a[i]+=b[i]*2; }\n" * 100,
    }
    return {
        name: [text[start : start + 1500] for start in range(0, len(text), 1500)][:8]
        for name, text in texts.items()
    }


def test_every_default_prompt_has_fewer_than_1500_tokens(model):
    """As the model's own tokenizer counts them in its template, whatever the passages.

    None is far below its room.
    """
    written, longest = Written(), Counter[str]()
    adapters = [*core_adapters(written), *judges(written), *readers(written)]
    for texts in long_texts().values():
        chunks = [Chunk(str(page), text, "home.md", page) for page, text in enumerate(texts, 1)]
        for adapter in adapters:
            adapter(chunks)
        for sent in written.sent:
            task = sent[0]["content"][:60]
            longest[task] = max(longest[task], len(model.load().prompt_ids(sent)))
        written.sent.clear()
    assert len(longest) == 8, longest
    assert max(longest.values()) < 1500, longest
    with_passages = {task: count for task, count in longest.items() if "typed fields" not in task}
    assert len(with_passages) == 6, longest  # a parser is sent the titles of documents
    assert min(with_passages.values()) > 900, longest


HOW_MUCH, ANSWER = (
    "How much is the storm excess of the policy of 2025?",
    "The storm excess is £400. " * 5,
)
Adapter = Callable[[list[Chunk]], Any]


def core_adapters(client):
    """What asks a client in the core."""
    return [
        lambda chunks: ModelGenerator(client).answer(HOW_MUCH, chunks),
    ]


def judges(client):
    """Judges of passages and of answers."""
    models = pytest.importorskip("raglab.extensions.learned_signals.signal_models")
    made = [
        *(models.judge(client, rubric=rubric, answer=True).fn for rubric in models.RUBRICS),
        models.yes_no(client).fn,
        models.is_true(client).fn,
    ]

    def ask(scorer, chunks):
        cells = [HOW_MUCH, [chunk.text for chunk in chunks], ANSWER]
        scorer.score(*cells[: len(scorer.needs)])

    return [partial(ask, scorer) for scorer in made]


def readers(client):
    """The four protocols of clarification.

    Questions, gaps, replies and fields, each of which refuses the reply.
    """
    calls = pytest.importorskip("raglab.extensions.clarification.model_calls").ModelCalls(client)
    parsed = ParsedQuestion(question=HOW_MUCH)
    readings = tuple(GapReading(f"Excess of the {n} kind", f"The {n} kind: £{n}") for n in range(6))
    asked = ReplyRequest(HOW_MUCH, "field_type", "excess", readings)
    made: list[Adapter] = [
        lambda chunks: calls.parser(HOW_MUCH, chunks),
        lambda chunks: calls.gap_finder(parsed, chunks, chunks),
        lambda chunks: calls.reply_reader("the third one", asked._replace(documents=tuple(chunks))),
        lambda chunks: calls.field_reader("limit", chunks),
    ]

    def refused(adapter, chunks):
        with pytest.raises(ValueError, match="one JSON object of the schema"):
            adapter(chunks)

    return [partial(refused, adapter) for adapter in made]
