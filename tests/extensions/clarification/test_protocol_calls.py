"""The four protocols: one's own in fifteen lines each, plugged in, raising, returning nonsense, timing out (S5.1)."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_documents import COVER, ENGLISH, START, WHO
from raglab.audit.log import AuditLog
from raglab.extensions.clarification.protocol_calls import EXAMPLE, EXAMPLE_QUESTION, EXAMPLE_REQUEST, ProtocolCalls
from raglab.extensions.clarification.question_parsing import parse_question
from raglab.extensions.clarification.replies import read_reply
from raglab.live.ask import ask, reply
from raglab.live.clarifier import FieldValue, GapReading, ParsedQuestion, QuestionGap, Reply, ReplyRequest, Slot
from raglab.live.response import Response
from raglab.live.system import Lab
from raglab.store.log_tables import DECISIONS
from raglab.values import Chunk

EXCESS = "What is the excess?"


def my_parser(question: str, documents: Sequence[Chunk]) -> ParsedQuestion:
    """Ask for the last word of a question."""
    del documents
    word = question.strip(" ?.!").split()[-1].lower() if question.strip(" ?.!") else "nothing"
    return ParsedQuestion(target_field=Slot(word, 0.9), intent=Slot("lookup", 0.9), question=question)


def my_gap_finder(parsed: ParsedQuestion, documents: Sequence[Chunk], hits: Sequence[Chunk]) -> list[QuestionGap]:
    """Offer the first two lines that hold a price."""
    del hits
    lines = [line.strip("| ") for chunk in documents for line in chunk.text.splitlines() if "£" in line]
    readings = tuple(GapReading(line.split("|")[0].strip()[:80], line) for line in lines[:2])
    return [QuestionGap("field_type", parsed.target_field.value or "price", readings)] if len(readings) > 1 else []


def my_reply_reader(text: str, request: ReplyRequest) -> Reply:
    """Take the value whose first letter is typed."""
    for reading in request.readings:
        if text.strip().lower() == reading.value[0].lower():
            return Reply("chosen", reading.value)
    return Reply("declined") if text.strip().lower() == "n" else Reply("not_understood")


def my_field_reader(field: str, chunks: Sequence[Chunk]) -> FieldValue | None:
    """Read the first line that names a field, up to its end."""
    for chunk in chunks:
        for line in chunk.text.splitlines():
            name, colon, value = line.partition(":")
            if colon and field.split(maxsplit=1)[0].lower() in name.lower() and value.strip():
                return FieldValue(value.strip(), line.strip())
    return None


MOST_LINES = 15
OWN: dict[str, Callable[..., Any]] = {
    "parser": my_parser,
    "gap_finder": my_gap_finder,
    "reply_reader": my_reply_reader,
    "field_reader": my_field_reader,
}


def called(calls: ProtocolCalls, role: str) -> object:
    """What a role gives for the example."""
    parsed = parse_question(EXAMPLE_QUESTION, (EXAMPLE,))
    return {
        "parser": lambda: calls.parse(EXAMPLE_QUESTION, (EXAMPLE,)),
        "gap_finder": lambda: calls.gaps(parsed, (EXAMPLE,), (EXAMPLE,)),
        "reply_reader": lambda: calls.reply("key", EXAMPLE_REQUEST),
        "field_reader": lambda: calls.value("pet deposit", (EXAMPLE,)),
    }[role]()


def test_ones_own_is_short() -> None:
    """Fifteen lines each, with head and docstring."""
    assert all(len(inspect.getsource(call).splitlines()) <= MOST_LINES for call in OWN.values())


@pytest.mark.parametrize("role", OWN)
def test_ones_own_is_called(role: str) -> None:
    """What it gives is taken."""
    calls = ProtocolCalls(**{role: OWN[role]})
    calls.check()
    assert called(calls, role) != called(ProtocolCalls(), role) or role == "field_reader"
    assert calls.fallbacks == []
    assert calls.names()[role] == OWN[role].__name__


def _raises(*_: object) -> object:
    msg = "the server burns"
    raise RuntimeError(msg)


def _nonsense(*_: object) -> object:
    return {"value": ["a", 7]}


def _sleeps(*_: object) -> object:
    time.sleep(5.0)
    return None


@pytest.mark.parametrize("role", OWN)
@pytest.mark.parametrize(
    "broken", [_raises, _sleeps, lambda *_: 7, lambda *_: "yes", lambda *_: [1], lambda *_: {"value": 1}, lambda: None]
)
def test_what_fails_gives_way_to_the_default(role: str, broken: Callable[..., object]) -> None:
    """It is said once, with the reason, and the default answers."""
    calls = ProtocolCalls(**{role: broken, "timeout_s": 0.2})
    with pytest.warns(UserWarning, match=f"{role} .*the default stands in"):
        first = called(calls, role)
    assert first == called(ProtocolCalls(), role)
    assert [one.role for one in calls.fallbacks] == [role]
    called(calls, role)  # a second time without a word, which pytest would make an error of
    assert len(calls.fallbacks) == 2


@pytest.mark.parametrize(
    ("role", "value"),
    [
        (
            "gap_finder",
            [QuestionGap("field_type", "deposit", (GapReading("a", "not there"), GapReading("b", "nor there")))],
        ),
        ("field_reader", FieldValue("£999", "Pet deposit: £999")),
        ("field_reader", FieldValue("£25", "Pet deposit: £250")),
        ("reply_reader", Reply("own_value", "Boat", "The boat is £7.")),
        ("reply_reader", Reply("chosen", "Boat")),
    ],
)
def test_what_the_documents_do_not_hold_is_not_taken(role: str, value: object) -> None:
    """A quote must stand in the text, a chosen value be on offer."""
    calls = ProtocolCalls(**{role: lambda *_: value})
    with pytest.warns(UserWarning, match="stands in") if role == "field_reader" else _quiet():
        found = called(calls, role)
    assert found in ((), Reply("not_understood")) or found == called(ProtocolCalls(), role)


class _quiet:  # noqa: N801 - a context
    def __enter__(self) -> None:
        """Nothing is expected."""

    def __exit__(self, *_: object) -> None:
        """Nothing is checked."""


@pytest.mark.parametrize("role", OWN)
def test_opening_tries_an_example(role: str) -> None:
    """What is no callable, or fails on the example, is refused with what it must give."""
    with pytest.raises(ValueError, match=f"{role} must be a callable"):
        ProtocolCalls(**{role: _raises}).check()
    with pytest.raises(ValueError, match=f"{role} must be a callable"):
        ProtocolCalls(**{role: "text"}).check()


@pytest.mark.slow
def test_all_four_live(opened: Callable[..., Lab]) -> None:
    """A system with all four asks by the finder, takes the reader's reply, and logs who did what."""
    lab = opened(**OWN)
    asked = ask(EXCESS, lab=lab, documents=[COVER], request_id="q", now=START)
    values = asked["clarification"]["candidate_values"]
    assert (asked["status"], len(values)) == ("ambiguous", 2)
    assert asked["clarification"]["audit"]["protocols"] == {role: call.__name__ for role, call in OWN.items()}
    assert asked["clarification"]["target_field"] == "excess"
    said = reply("q", values[1][0], lab=lab, now=START)
    assert said["status"] == "ok"
    assert values[1].split(",")[0] in said["answer"]


def _talk(lab: Lab, log: Path) -> list[Response]:
    """Two questions, each asked back and replied to, which call all four; with a log of its own."""
    own = replace(lab, audit=AuditLog(log))
    responses = []
    for request, question, document, answer in (("q", EXCESS, COVER, "storm and wind"), ("p", WHO, ENGLISH, "yes")):
        responses.append(ask(question, lab=own, documents=[document], request_id=request, now=START))
        responses.append(reply(request, answer, lab=own, now=START))
    return responses


@pytest.mark.slow
@pytest.mark.parametrize("role", OWN)
@pytest.mark.parametrize("failure", [_raises, _nonsense, _sleeps])
def test_a_failure_live_is_said_once_and_logged(
    opened: Callable[..., Lab], tmp_path: Path, role: str, failure: Callable[..., object]
) -> None:
    """Questions and answers are the default's; one warning for all of them, and each response and its log say why."""
    state = {"works": True}

    def fragile(*values: Any) -> object:
        return (OWN[role] if state["works"] else failure)(*values)

    lab, plain = opened(**{role: fragile}, reader_timeout_s=0.3), opened()
    expected = _talk(plain, tmp_path / "plain.sqlite")
    assert [response["status"] for response in expected] == ["ambiguous", "ok"] * 2
    state["works"] = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        responses = _talk(lab, tmp_path / "own.sqlite")
    assert [str(one.message).split(" (")[0] for one in caught] == [f"{role} fragile failed"]
    same = ("status", "answer", "sources", "options", "default_applied")
    assert [[one[key] for key in same] for one in responses] == [[one[key] for key in same] for one in expected]
    named = [any(f"{role} failed" in text for text in response["warnings"]) for response in responses]
    assert any(named)
    with AuditLog(tmp_path / "own.sqlite").log.reading() as log:
        logged = [any(f"{role} failed" in text for text in row["warnings"]) for row in log.rows(DECISIONS)]
    assert logged == named


@pytest.mark.slow
@pytest.mark.parametrize("role", OWN)
def test_without_clarification_it_is_said_that_nothing_is_called(opened: Callable[..., Lab], role: str) -> None:
    """What the user gave is not dropped in silence."""
    with pytest.warns(UserWarning, match=f"{role}: .*clarify=True"):
        opened(clarify=False, **{role: OWN[role]})


def test_a_class_of_an_earlier_version_is_refused_with_the_remedy() -> None:
    """An object with `.parse` or `.read` is no callable; the message names what takes its place."""
    old = type("ModelReader", (), {"read": lambda *_: None})()
    with pytest.raises(ValueError, match=r"earlier version.*ModelCalls"):
        ProtocolCalls(field_reader=old).check()


def test_a_reader_of_replies_keeps_what_the_user_named() -> None:
    """The default reads what the example's reader would."""
    assert read_reply("the key one", EXAMPLE_REQUEST).value == "Key deposit"
