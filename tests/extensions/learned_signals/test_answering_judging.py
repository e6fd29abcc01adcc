"""Judging by a server: strict scores, attempts and pauses, budgets, counts, and no key anywhere."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import time
import warnings
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest

from judge_server import KEY, JudgeServer, Reply, completion, graded, judge_server, true_score
from raglab.answering.model_server import ServerError, TokenCount
from raglab.answering.server import OpenAIGenerator
from raglab.extensions.learned_signals import judging
from raglab.extensions.learned_signals.judging import (
    IN_A_ROW,
    RUBRICS,
    Budget,
    ServerScorer,
    judge_scorer,
    likelihood_scorer,
    parse_likelihood,
    parse_score,
)

PASSAGES = ["The excess is £250.", "Storm damage is covered."]
NO_BUDGET = Budget()


@pytest.mark.parametrize(("text", "score"), [('{"score": 0.5}', 0.5), ('{"score":1}', 1.0), (' {"score" : 0}\n', 0.0)])
def test_exactly_a_score_is_one(text: str, score: float) -> None:
    """White space of JSON is free."""
    assert parse_score(text) == score


@pytest.mark.parametrize(
    "text",
    [
        *("", "0.5", '"0.5"', "[0.5]", '[["score", 0.5]]', "{}", "null", "true", "score: 0.5", "{'score': 0.5}"),
        *('{"score": "0.5"}', '{"score": true}', '{"score": null}', '{"score": [0.5]}', '{"score": {"score": 0.5}}'),
        *('{"score": 1.01}', '{"score": -0.1}', '{"score": NaN}', '{"score": Infinity}', '{"score": 1e400}'),
        *('{"score": 0.5, "why": "so"}', '{"Score": 0.5}', '{"score": 0.1, "score": 0.9}', '{"score": 0.5} yes'),
        *('```json\n{"score": 0.5}\n```', "[" * 100_000, '{"score": 1' + "0" * 5000 + "}"),
    ],
    ids=lambda text: text[:30],
)
def test_anything_else_is_no_score(text: str) -> None:
    """Nothing is mended, and none of it stands in the message."""
    with pytest.raises(ServerError, match="is not exactly") as caught:
        parse_score(text)
    assert caught.value.__context__ is None or "Expecting" not in str(caught.value)


def echoed(offsets: Any, values: Any) -> bytes:
    """A completion that echoes its prompt."""
    return json.dumps({"choices": [{"logprobs": {"text_offset": offsets, "token_logprobs": values}}]}).encode()


def test_a_likelihood_is_the_geometric_mean_of_the_answers_tokens() -> None:
    """Of tokens at 0, 4, 8 and 12, the answer's characters 4 to 12 hold two: of 0.5 and 0.125, the root of 1/16."""
    reply = echoed([0, 4, 8, 12], [None, math.log(0.5), math.log(0.125), -9.0])
    assert parse_likelihood(reply, 4, 12) == pytest.approx(0.25)


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b"[]", b'{"choices": []}', b'{"choices": [{"logprobs": null}]}', echoed([0, 4], [None, 0.1])),
        *(echoed([], []), echoed([0, 4], [-1, None]), echoed([0, 4], [-1, "x"]), echoed(None, None)),
        *(echoed([0], [-1]), echoed([0, "4"], [-1, -1]), echoed([0, 4], [-1, -math.inf])),
    ],
    ids=repr,
)
def test_what_is_not_measured_is_no_likelihood(body: bytes) -> None:
    """A server that does not echo, or gives no log-probabilities, gives NaN."""
    assert math.isnan(parse_likelihood(body, 4, 12))


def test_a_budget_knows_its_price_and_refuses_what_means_nothing() -> None:
    """4,000 tokens read at 0.5 a thousand and 500 written at 2 a thousand cost 3."""
    assert Budget(price_prompt=0.5, price_completion=2.0).price(TokenCount(4000, 500)) == 3.0
    for wrong, message in (
        ({"tokens": -1}, "tokens of a budget must be 0 or more, got -1"),
        ({"tokens": math.nan}, "got nan"),
        ({"price_prompt": math.inf}, "price_prompt"),
        ({"cost": 1.0}, "must have prices, got cost 1 and none"),
    ):
        with pytest.raises(ValueError, match=message):
            Budget(**wrong)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeServer]:
    """A judge's server, and its key in the environment."""
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with judge_server() as running:
        yield running


class Waits(list[float]):
    """Seconds that were waited, without waiting."""

    def __call__(self, seconds: float) -> None:
        """Note them."""
        self.append(seconds)


def judge(
    server: JudgeServer, *, budget: Budget = NO_BUDGET, sleep: Any = None, rubric: str = "", **changes: Any
) -> ServerScorer:
    """A judge of that server that does not wait between attempts."""
    asked = OpenAIGenerator("tiny", server.base_url, **{"timeout": 10.0, "max_tokens": 24, **changes})
    return judge_scorer(asked, budget, rubric or RUBRICS["sufficient"], sleep=Waits() if sleep is None else sleep)


def test_a_case_gets_its_score(server: JudgeServer) -> None:
    """One request with question, passages and rubric; what it took is counted as the server reports it."""
    made = judge(server, budget=Budget(price_prompt=1.0, price_completion=2.0))
    assert made.score("Who pays?", PASSAGES) == true_score("Who pays?")
    assert made.counts == judging.JudgeCounts(1, 1, prompt_tokens=40, completion_tokens=10, cost=0.06)
    system, user = (message["content"] for message in server.bodies[0]["messages"])
    assert RUBRICS["sufficient"] in system
    assert all(text in user for text in PASSAGES)
    assert "<answer>" not in user
    made.score("Who pays?", PASSAGES, "The insurer </answer> pays.")
    assert server.bodies[1]["messages"][1]["content"].endswith("<answer>\nThe insurer &lt;/answer> pays.\n</answer>")


def test_nothing_to_be_judged_is_not_asked(server: JudgeServer) -> None:
    """Without passages, or with an empty answer."""
    made = judge(server)
    assert math.isnan(made.score("Who pays?", []))
    assert math.isnan(made.score("Who pays?", PASSAGES, " "))
    assert server.asked == []
    assert made.counts == judging.JudgeCounts()


def test_what_may_pass_is_tried_again_after_growing_pauses(server: JudgeServer) -> None:
    """A 500 and a 429 without a Retry-After: after 0.5 and 1 s the third attempt has the score; refusals are free."""
    replies = [Reply(500), Reply(429, b'{"error": {"message": "slow down"}}')]
    server.behave = lambda question, place: replies[place - 1] if place <= len(replies) else graded(question)
    waits = Waits()
    made = judge(server, sleep=waits)
    assert made.score("Who pays?", PASSAGES) == true_score("Who pays?")
    assert waits == [0.5, 1.0]
    assert (made.counts.requests, made.counts.scored, made.counts.prompt_tokens) == (3, 1, 40)


def test_a_retry_after_is_honoured(server: JudgeServer) -> None:
    """In seconds or as a date; one that asks for more than two minutes ends the case."""
    after = {1: "7", 2: formatdate(time.time() + 60, usegmt=True), 3: "3600"}
    body = b'{"error": {"message": "request 7f1 of org-3 is over its limit"}}'
    server.behave = lambda _, place: Reply(429, body, headers=(("retry-after", after[place]),))
    waits = Waits()
    made = judge(server, sleep=waits, max_retries=5)
    assert math.isnan(made.score("Who pays?", PASSAGES))
    assert waits[0] == 7.0
    assert 40.0 < waits[1] <= 60.0
    assert len(waits) == 2
    assert made.counts.missing == {f"127.0.0.1:{server.server_port} answered 429": 1}


@pytest.mark.parametrize("header", ["", "soon", "-3", "nan", "inf", "1e999", "0", "Mon, 01 Jan 1990 00:00:00 GMT"])
def test_a_retry_after_that_says_nothing_leaves_the_pause(server: JudgeServer, header: str) -> None:
    """The first pause is half a second."""
    server.behave = lambda question, place: (
        Reply(503, headers=(("retry-after", header),)) if place == 1 else graded(question)
    )
    waits = Waits()
    assert judge(server, sleep=waits).score("Who pays?", PASSAGES) == true_score("Who pays?")
    assert waits == [0.5]


def test_a_reply_that_is_no_score_is_asked_for_again_with_a_reminder(server: JudgeServer) -> None:
    """And is paid for; when it never comes, the case is missing, with its reason counted."""
    server.behave = lambda question, place: completion("Certainly! 0.7") if place == 1 else graded(question)
    made = judge(server)
    assert made.score("Who pays?", PASSAGES) == true_score("Who pays?")
    first, second = (body["messages"][1]["content"] for body in server.bodies)
    assert second == first + judging.REMINDER
    assert made.counts.prompt_tokens == 80
    server.behave = lambda *_: completion('```json\n{"score": 0.5}\n```')
    assert math.isnan(made.score("Who else?", PASSAGES))
    (reason,) = made.counts.missing
    assert "gave no score" in reason
    assert made.counts.scored == 1
    assert len(server.asked) == 2 + 3


def test_a_late_reply_is_tried_again_and_charged_in_full(server: JudgeServer) -> None:
    """The server may have read and billed what it never answered: every byte of the prompt could be a token."""
    server.behave = lambda question, place: Reply(0) if place == 1 else graded(question)
    made = judge(server, timeout=0.3)
    assert made.score("Who pays?", PASSAGES) == true_score("Who pays?")
    texts = [message["content"] for message in server.bodies[0]["messages"]]
    most = sum(len(text.encode()) for text in texts) + judging.OVERHEAD
    assert made.counts.prompt_tokens == most + 40
    assert made.counts.completion_tokens == 24 + 10


def test_a_budget_ends_before_it_is_exceeded(server: JudgeServer) -> None:
    """A request is charged with the most that it can take until its reply says less: 3 of 9 cases fit, once warned."""
    made = judge(server)
    made.score("Case 0?", PASSAGES)
    most = sum(len(message["content"].encode()) for message in server.bodies[0]["messages"]) + judging.OVERHEAD + 24
    for budget in (Budget(tokens=100 + most), Budget(cost=0.1 + most / 1000, price_prompt=1.0, price_completion=1.0)):
        made = judge(server, budget=budget)
        with pytest.warns(UserWarning, match="the budget of tiny must bear the next request, got 150 tokens") as told:
            scores = [made.score(f"Case {n}?", PASSAGES) for n in range(9)]
        assert len(told) == 1
        assert [math.isnan(score) for score in scores] == [False] * 3 + [True] * 6
        assert (made.counts.scored, made.counts.left, made.counts.missing.total()) == (3, 6, 0)
        assert made.counts.prompt_tokens + made.counts.completion_tokens <= budget.tokens
        assert made.counts.cost <= budget.cost


def test_without_a_report_of_tokens_the_most_is_charged(server: JudgeServer) -> None:
    """Also where the report cannot be true."""
    for usage in (None, {}, {"prompt_tokens": -5, "completion_tokens": 1}, {"prompt_tokens": True}, [1], "x"):
        server.behave = lambda _, __, usage=usage: completion('{"score": 1}', usage)
        made = judge(server)
        assert made.score("Who pays?", PASSAGES) == 1.0
        assert made.counts.prompt_tokens > 500
        assert made.counts.completion_tokens == 24


@pytest.mark.parametrize("status", [401, 403, 404, 307])
def test_wrong_settings_are_an_error_at_the_first_case(server: JudgeServer, status: int) -> None:
    """A key, model or address that is wrong is wrong for every case; the message shows no key."""
    server.behave = lambda *_: Reply(status, json.dumps({"error": {"message": f"no access for Bearer {KEY}"}}).encode())
    with pytest.raises(ServerError, match=rf"^127.0.0.1:\d+ answered {status}") as caught:
        judge(server).score("Who pays?", PASSAGES)
    assert KEY not in str(caught.value)
    assert len(server.asked) == 1


def test_a_case_that_the_server_refuses_is_missing_and_the_next_is_asked(server: JudgeServer) -> None:
    """A prompt that is too long says nothing of other cases: many in a row are no broken server."""
    server.behave = lambda question, _: Reply(400, b"too long") if "long" in question else graded(question)
    made = judge(server)
    questions = ("b", *["a long one"] * (IN_A_ROW + 1), "c")
    assert [math.isnan(made.score(question, PASSAGES)) for question in questions] == [False, *[True] * 6, False]
    assert made.counts.missing.total() == IN_A_ROW + 1
    assert made.counts.requests == len(questions)


def test_a_server_that_is_gone_stops_the_run(server: JudgeServer) -> None:
    """After five cases without a score, each with its attempts; then it may be tried anew."""
    server.behave = lambda *_: Reply(503)
    made = judge(server, max_retries=1)
    for n in range(IN_A_ROW - 1):
        assert math.isnan(made.score(f"Case {n}?", PASSAGES))
    with pytest.raises(ServerError, match=r"answered 503 \(5 cases in a row\); correct model"):
        made.score("The fifth?", PASSAGES)
    assert len(server.asked) == 2 * IN_A_ROW
    server.behave = lambda question, _: graded(question)
    assert made.score("The fifth?", PASSAGES) == true_score("The fifth?")


def test_the_name_changes_with_rubric_model_and_prompt_and_with_nothing_else(server: JudgeServer) -> None:
    """Another rubric never reads an old score; patience, price and key do not matter."""
    made = judge(server)
    other = (
        judge(server, rubric="Score 1 always."),
        judge(server, temperature=0.5),
        judge(server, max_passage_chars=9),
        judge(server, seed=1),
        judge_scorer(dataclasses.replace(made.asked, model="other"), NO_BUDGET, RUBRICS["sufficient"]),
        likelihood_scorer(made.asked, NO_BUDGET),
    )
    assert len({made.name, *(one.name for one in other)}) == 7
    same = judge(server, budget=Budget(tokens=5), timeout=1.0, max_retries=9, key_env="OTHER")
    assert same.name == made.name
    assert made.name.startswith("judge-1:tiny@127.0.0.1:")


def test_the_key_is_sent_and_stands_nowhere_else(server: JudgeServer, caplog: pytest.LogCaptureFixture) -> None:
    """Not in a log line, a warning, a count, a representation or an error, even where the server sends it back."""
    bad = Reply(429, f'{{"error": {{"message": "Bearer {KEY} is slow"}}}}'.encode(), (("x-echo", KEY),))
    server.behave = lambda *_: bad
    made = judge(server, budget=Budget(tokens=30_000), max_retries=0)
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(IN_A_ROW - 1):
            made.score("Who pays?", PASSAGES)
        with pytest.raises(ServerError) as caught:
            made.score("Who pays?", PASSAGES)
        server.behave = lambda *_: completion(f'{{"score": "{KEY}"}}')
        made.score("Who pays?", PASSAGES)
    shown = f"{made!r} {made.counts} {made.name} {caught.value} {[str(one.message) for one in told]} {caplog.text}"
    assert KEY not in shown
    assert "[hidden]" in str(caught.value)
    assert server.keys == {f"Bearer {KEY}"}


def test_a_likelihood_is_read_from_an_echoed_prompt(server: JudgeServer) -> None:
    """The answer follows the passages and the question; without log-probabilities it is missing and not asked again."""

    def behave(*_: Any) -> Reply:
        prompt = server.bodies[-1]["prompt"]
        start = len(prompt) - len(" Yes, it does.")
        offsets = [0, start - 1, start, start + 5, len(prompt)]
        said = {"text": prompt, "logprobs": {"text_offset": offsets, "token_logprobs": [None, -7, -1.0, -3.0, -7]}}
        return Reply(
            body=json.dumps({"choices": [said], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}).encode()
        )

    server.behave = behave
    made = likelihood_scorer(OpenAIGenerator("tiny", server.base_url), NO_BUDGET, Waits())
    assert made.score("Who pays?", PASSAGES, "Yes, it does.") == pytest.approx(math.exp(-2))
    assert server.bodies[0]["path"] == "/v1/completions"
    assert (server.bodies[0]["echo"], server.bodies[0]["max_tokens"]) == (True, 1)
    assert server.bodies[0]["prompt"].endswith("Who pays?\n</question>\n\nAnswer: Yes, it does.")
    server.behave = lambda *_: Reply(body=b'{"choices": [{"text": "Yes", "logprobs": null}]}')
    assert math.isnan(made.score("Who pays?", PASSAGES, "Yes."))
    assert made.counts.missing == {"the reply holds no log-probabilities of the answer": 1}
    assert len(server.asked) == 2
