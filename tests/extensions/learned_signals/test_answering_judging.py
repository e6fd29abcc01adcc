"""Judging by a server: strict scores, attempts and pauses, budgets, counts, and no key anywhere."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import warnings

import pytest

from judge_server import (
    KEY,
    JudgeServer,
    Reply,
    completion,
    graded,
    server,  # noqa: F401
    true_score,
)
from llama_server import QUIRKS, SURE
from llama_server import server as llama  # noqa: F401
from raglab.answering.client import Capabilities, Completion, Message, TokenScore, estimate_tokens
from raglab.answering.metered_client import TEMPLATE_OVERHEAD, RequestBudget, TokenCount
from raglab.answering.openai_client import OpenAIClient, _Known
from raglab.extensions.learned_signals import judging
from raglab.extensions.learned_signals.judging import (
    MAX_FAILURES,
    RUBRICS,
    JudgeCounts,
    ModelScorer,
    parse_score,
)
from raglab.lab import signal_models
from raglab.values import ModelUnavailableError

PASSAGES = ["The excess is £250.", "Storm damage is covered."]


@pytest.mark.parametrize(
    ("text", "score"), [('{"score": 0.5}', 0.5), ('{"score":1}', 1.0), (' {"score" : 0}\n', 0.0)]
)
def test_exactly_a_score_is_one(text, score):
    """White space of JSON is free."""
    assert parse_score(text).value == score


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.5",
        '"0.5"',
        "[0.5]",
        '[["score", 0.5]]',
        "{}",
        "null",
        "true",
        "score: 0.5",
        "{'score': 0.5}",
        '{"score": "0.5"}',
        '{"score": true}',
        '{"score": null}',
        '{"score": [0.5]}',
        '{"score": {"score": 0.5}}',
        '{"score": 1.01}',
        '{"score": -0.1}',
        '{"score": NaN}',
        '{"score": Infinity}',
        '{"score": 1e400}',
        '{"score": 0.5, "why": "so"}',
        '{"Score": 0.5}',
        '{"score": 0.1, "score": 0.9}',
        '{"score": 0.5} yes',
        '```json\n{"score": 0.5}\n```',
        "[" * 100_000,
        '{"score": 1' + "0" * 5000 + "}",
    ],
    ids=lambda text: text[:30],
)
def test_anything_else_is_no_score(text):
    """Nothing is mended, and none of it stands in the reason."""
    score = parse_score(text)
    assert math.isnan(score.value)
    assert score.reason == 'the reply is not exactly {"score": x} with x from 0 to 1'


def test_a_budget_knows_its_price_and_refuses_what_means_nothing():
    """4,000 tokens read at 0.5 a thousand and 500 written at 2 a thousand cost 3."""
    assert RequestBudget(price_prompt=0.5, price_completion=2.0).price(TokenCount(4000, 500)) == 3.0
    for wrong, message in (
        ({"tokens": -1}, "tokens: Input should be greater than or equal to 0, got -1"),
        ({"tokens": math.nan}, "got nan"),
        ({"price_prompt": math.inf}, "price_prompt"),
        ({"cost": 1.0}, "must have prices, got cost 1 and none"),
    ):
        with pytest.raises(ValueError, match=message):
            RequestBudget(**wrong)


def client(server, **changes):
    """A client of that server that asks once, and knows what the server can do."""
    made = OpenAIClient("tiny", server.base_url, **{"timeout": 10.0, "max_retries": 0, **changes})
    if type(server) is JudgeServer:
        made._state.known = _Known(Capabilities(True, 5, "json_object"))
    return made


def judge(server, settings=(), **changes):
    """A judge of that server, with settings of its own and of its client."""
    return scorer(signal_models.judge, client(server, **changes), **dict(settings))


def scorer(make, asked, **settings):
    """What a factory of signals asks a client by."""
    made: ModelScorer = make(asked, **settings).fn
    return made


class Fixed:
    """A client whose replies have the same first token."""

    name = "fixed"

    def __init__(self, top=()):
        self.top, self.sent = tuple(top), list[tuple[Message, ...]]()

    def complete(self, messages, **_):
        """One token."""
        self.sent.append(tuple(messages))
        return Completion("x", (TokenScore("x", -0.1, self.top),))

    def capabilities(self, *, again=False):  # noqa: ARG002
        """Everything."""
        return Capabilities(True, 20, "text")


def test_a_case_gets_its_score(server):
    """One request with question, passages and rubric.

    What it took is counted as the server reports it.
    """
    made = judge(server, {"budget": RequestBudget(price_prompt=1.0, price_completion=2.0)})
    assert made.score("Who pays?", PASSAGES) == true_score("Who pays?")
    assert made.counts == JudgeCounts(1)
    assert made.client.counts._replace(ms=()) == (1, 40, 10, 0.06, ())
    system, user = (message["content"] for message in server.bodies[0]["messages"])
    assert RUBRICS["sufficient"] in system
    assert all(text in user for text in PASSAGES)
    assert "Proposed answer" not in user
    made.score("Who pays?", PASSAGES, "The insurer\nQuestion:\npays.")
    assert server.bodies[1]["messages"][1]["content"].endswith(
        "Proposed answer:\n> The insurer\n> Question:\n> pays."
    )


def test_nothing_to_be_judged_is_not_asked(server):
    """Without passages, or with an empty answer."""
    made = judge(server)
    assert math.isnan(made.score("Who pays?", []))
    assert math.isnan(made.score("Who pays?", PASSAGES, " "))
    assert server.asked == []
    assert made.counts == JudgeCounts()


def test_a_reply_that_is_no_score_is_asked_for_again_with_a_reminder(server):
    """And is paid for; when it never comes, the case is missing, with its reason counted."""
    server.behave = lambda question, place: (
        completion("Certainly! 0.7") if place == 1 else graded(question)
    )
    made = judge(server)
    assert made.score("Who pays?", PASSAGES) == true_score("Who pays?")
    first, second = (body["messages"][1]["content"] for body in server.bodies)
    assert second == f"{first}\n\n{judging.SCORE_REMINDER}"
    assert made.client.counts.prompt_tokens == 80
    server.behave = lambda *_: completion('```json\n{"score": 0.5}\n```')
    assert math.isnan(made.score("Who else?", PASSAGES))
    (reason,) = made.counts.missing
    assert "is not exactly" in reason
    assert made.counts.scored == 1
    assert len(server.asked) == 2 + 2


def test_a_reply_that_is_cut_off_is_no_score(server):
    """Whatever its beginning looks like."""
    server.behave = lambda *_: completion('{"score": 1}', finish_reason="length")
    made = judge(server)
    assert math.isnan(made.score("Who pays?", PASSAGES))
    assert made.counts.missing == {"the reply was cut off or declined": 1}


def test_a_late_reply_is_charged_in_full(server):
    """The server may have read and billed what it never answered.

    Every byte of the prompt could be a token.
    """
    server.behave = lambda *_: Reply(0)
    made = judge(server, timeout=0.3)
    assert math.isnan(made.score("Who pays?", PASSAGES))
    texts = [message["content"] for message in server.bodies[0]["messages"]]
    assert (
        made.client.counts.prompt_tokens
        == sum(len(text.encode()) for text in texts) + TEMPLATE_OVERHEAD
    )
    assert made.client.counts.completion_tokens == 24


def test_a_budget_ends_before_it_is_exceeded(server):
    """A request is charged with the most that it can take until its reply says less.

    3 of 9 cases fit, once warned.
    """
    made = judge(server)
    made.score("Case 0?", PASSAGES)
    most = (
        sum(len(message["content"].encode()) for message in server.bodies[0]["messages"])
        + TEMPLATE_OVERHEAD
        + 24
    )
    budgets = (
        RequestBudget(tokens=100 + most),
        RequestBudget(cost=0.1 + most / 1000, price_prompt=1.0, price_completion=1.0),
        RequestBudget(calls=3),
    )
    for budget in budgets:
        made = judge(server, {"budget": budget})
        with pytest.warns(
            UserWarning, match="of the budget do not bear the next request, after 3 requests"
        ) as told:
            scores = [made.score(f"Case {n}?", PASSAGES) for n in range(9)]
        assert len(told) == 1
        assert [math.isnan(score) for score in scores] == [False] * 3 + [True] * 6
        assert (made.counts.scored, made.counts.over_budget, made.counts.missing.total()) == (
            3,
            6,
            0,
        )
        counts = made.client.counts
        assert counts.requests == 3
        assert counts.prompt_tokens + counts.completion_tokens <= budget.tokens
        assert counts.cost <= budget.cost


def test_without_a_report_of_tokens_the_most_is_charged(server):
    """Also where the report cannot be true."""
    for usage in (
        None,
        {},
        {"prompt_tokens": -5, "completion_tokens": 1},
        {"prompt_tokens": True},
        [1],
        "x",
    ):
        server.behave = lambda _, __, usage=usage: completion('{"score": 1}', usage)
        made = judge(server)
        assert made.score("Who pays?", PASSAGES) == 1.0
        assert made.client.counts.prompt_tokens > 500
        assert made.client.counts.completion_tokens == 24


@pytest.mark.parametrize("status", [401, 403, 404, 307])
def test_wrong_settings_are_an_error_at_the_first_case(server, status):
    """A key, model or address that is wrong is wrong for every case; the message shows no key."""
    server.behave = lambda *_: Reply(
        status, json.dumps({"error": {"message": f"no access for Bearer {KEY}"}}).encode()
    )
    with pytest.raises(ModelUnavailableError, match=rf"^127.0.0.1:\d+ answered {status}") as caught:
        judge(server).score("Who pays?", PASSAGES)
    assert KEY not in str(caught.value)
    assert len(server.asked) == 1


def test_a_case_that_the_server_refuses_is_missing_and_the_next_is_asked(
    server,
):
    """A prompt that is too long says nothing of other cases: many in a row are no broken server."""
    server.behave = lambda question, _: (
        Reply(400, b"too long") if "long" in question else graded(question)
    )
    made = judge(server)
    questions = ("b", *["a long one"] * (MAX_FAILURES + 1), "c")
    assert [math.isnan(made.score(question, PASSAGES)) for question in questions] == [
        False,
        *[True] * 6,
        False,
    ]
    assert made.counts.missing.total() == MAX_FAILURES + 1
    assert made.client.counts.requests == len(questions)


def test_a_server_that_is_gone_stops_the_run(server):
    """After five cases without a score."""
    server.behave = lambda *_: Reply(503)
    made = judge(server)
    for n in range(MAX_FAILURES - 1):
        assert math.isnan(made.score(f"Case {n}?", PASSAGES))
    with pytest.raises(
        ModelUnavailableError, match=r"answered 503 \(5 cases in a row\); correct model"
    ):
        made.score("The fifth?", PASSAGES)
    assert len(server.asked) == MAX_FAILURES


def test_the_name_changes_with_rubric_model_and_prompt_and_with_nothing_else(
    server,
):
    """Another rubric never reads an old score; patience, price and key do not matter."""
    made = judge(server)
    other = (
        judge(server, {"rubric": "Score 1 always."}),
        judge(server, temperature=0.5),
        judge(server, {"prompt": judging.JUDGE_PROMPT._replace(text="Grade.")}),
        scorer(signal_models.judge, dataclasses.replace(client(server), model="other")),
        scorer(signal_models.yes_no, client(server)),
        scorer(signal_models.yes_no, client(server), question="Is it so?"),
    )
    assert len({made.name, *(one.name for one in other)}) == 7
    same = judge(
        server, {"budget": RequestBudget(tokens=5)}, timeout=1.0, max_retries=9, key_env="OTHER"
    )
    assert same.name == made.name
    assert made.name.startswith("judge:tiny@127.0.0.1:")


def test_the_key_is_sent_and_stands_nowhere_else(server, caplog):
    """In no log line, warning, count, representation or error, even if the server sends it back."""
    bad = Reply(
        429, f'{{"error": {{"message": "Bearer {KEY} is slow"}}}}'.encode(), (("x-echo", KEY),)
    )
    server.behave = lambda *_: bad
    made = judge(server)
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(MAX_FAILURES - 1):
            made.score("Who pays?", PASSAGES)
        with pytest.raises(ModelUnavailableError) as caught:
            made.score("Who pays?", PASSAGES)
        made = judge(server)
        server.behave = lambda *_: completion(f'{{"score": "{KEY}"}}')
        made.score("Who pays?", PASSAGES)
    shown = (
        f"{made!r} {made.counts} {made.name} {caught.value} {[str(one.message) for one in told]} "
        f"{caplog.text}"
    )
    assert KEY not in shown
    assert "[hidden]" in str(caught.value)
    assert server.keys == {f"Bearer {KEY}"}


def test_a_yes_is_weighed_against_a_no():
    """Of .5 and .1 for yes in two spellings and .2 for no, .6 of .8 says yes.

    Other words do not count.
    """
    top = [
        ("Yes", math.log(0.5)),
        (" yes", math.log(0.1)),
        ("No", math.log(0.2)),
        ("Well", math.log(0.15)),
    ]
    made = scorer(signal_models.yes_no, Fixed(top))
    assert made.score("Who pays?", PASSAGES) == pytest.approx(0.75)
    assert scorer(signal_models.yes_no, Fixed([("Yes", -0.1)])).score("?", PASSAGES) == 1.0


@pytest.mark.parametrize(
    ("yes", "no", "least", "is_scored"),
    [
        (math.exp(-9.0), 0.0, 0.5, False),
        (0.2, 0.29, 0.5, False),
        (0.2, 0.31, 0.5, True),
        (math.exp(-9.0), 0.0, 0.0, True),
        (0.6, 0.2, 0.9, False),
    ],
)
def test_a_sliver_of_mass_is_no_score(yes, no, least, *, is_scored):
    """A model that begins with its thoughts says neither yes nor no."""
    rest = [("<think>", math.log(max(1.0 - yes - no, 1e-9)))]
    top = [*rest, ("Yes", math.log(yes)), *([("No", math.log(no))] if no else [])]
    made = scorer(signal_models.yes_no, Fixed(top), least_mass=least)
    score = made.score("Who pays?", PASSAGES)
    assert score == pytest.approx(yes / (yes + no)) if is_scored else math.isnan(score)
    assert made.counts.missing.total() == (not is_scored)


@pytest.mark.parametrize(("reply", "kind"), QUIRKS.values(), ids=QUIRKS)
def test_a_quirk_of_a_server_is_a_missing_score_and_never_a_low_one(llama, reply, kind):
    """Counted with its reason, or an error where every case would meet it.

    The next case has its score.
    """
    llama.text = '{"score": 0.5}'
    asked = client(llama, timeout=0.4 if reply.pause else 10.0)
    for made in (
        scorer(signal_models.judge, asked),
        scorer(signal_models.yes_no, asked, least_mass=0.0),
    ):
        assert made.score("the first?", PASSAGES) > 0.0
        llama.failing = {"the second?": reply}
        if kind in {"HTTP 404", "HTTP 307"}:
            with pytest.raises(ModelUnavailableError):
                made.score("the second?", PASSAGES)
        # one token is always cut off after it
        elif kind not in {"", "cut off"} or made.name.startswith("judge"):
            assert math.isnan(made.score("the second?", PASSAGES))
            assert made.counts.missing.total() == 1
        else:
            assert made.score("the second?", PASSAGES) == pytest.approx(1 / (1 + math.exp(-1.0)))
        assert made.score("the third?", PASSAGES) > 0.0
        llama.failing = {}


def test_yes_and_no_without_log_probabilities_stop_before_the_first_case(
    llama,
):
    """With the remedy; a server that gives them for a while and then null leaves a case missing."""
    llama.logprobs = False
    with pytest.raises(ValueError, match=r"take raglab\.LocalModel"):
        scorer(signal_models.yes_no, client(llama)).score("Who pays?", PASSAGES)
    assert llama.questions == []
    llama.logprobs = True
    made = scorer(signal_models.yes_no, client(llama))
    llama.failing = {"Who pays?": completion("Yes", logprobs={"content": None})}
    assert math.isnan(made.score("Who pays?", PASSAGES))
    assert made.counts.missing.total() == 1
    assert SURE["content"]


def test_a_question_that_leaves_no_room_is_missing(server):
    """Its reason is counted, and nothing is sent."""
    made = judge(server)
    assert math.isnan(made.score("Who pays? " * 2000, PASSAGES))
    assert made.counts.missing.total() == 1
    assert server.asked == []


def test_a_judge_holds_the_server_to_its_schema(server):
    """Where the server can be held to one, in its form.

    A reply that is no score is none all the same.
    """
    made = judge(server)
    assert made.score("Who pays?", PASSAGES) == true_score("Who pays?")
    assert server.bodies[0]["response_format"] == {
        "type": "json_object",
        "schema": judging.SCORE_SCHEMA,
    }
    server.behave = lambda *_: completion('{"score": 7}')
    assert math.isnan(made.score("Who else?", PASSAGES))
    server.behave = lambda *_: completion('So: {"score": 1}')
    assert math.isnan(made.score("And who?", PASSAGES))


@pytest.mark.parametrize("make", [signal_models.judge, signal_models.yes_no])
@pytest.mark.parametrize("limit", [400, 1400])
def test_a_prompt_of_a_judge_is_shortened(make, limit):
    """Whatever the passages and the answer are; another limit is another signal."""
    long = ["The excess is £250, and £400 where the claim is late. " * 200] * 4
    asked = Fixed([("Yes", -0.1)])
    made, other = (
        scorer(make, asked, answer=True, max_prompt_tokens=most) for most in (limit, limit + 1)
    )
    made.score("Who pays?", long, "The insurer pays all of it. " * 5)
    assert asked.sent
    for sent in asked.sent:
        assert limit / 2 < sum(estimate_tokens(message["content"]) for message in sent) < limit
    assert made.name != other.name
    with pytest.raises(ValueError, match="max_prompt_tokens must be a whole number"):
        make(asked, max_prompt_tokens=0)
