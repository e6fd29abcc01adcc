"""The four protocols.

one's own in fifteen lines each, plugged in, raising, returning nonsense, timing out (S5.1).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker_documents import COVER, ENGLISH, START, WHO
from raglab.audit.log import AuditLog
from raglab.extensions.clarification.protocol_calls import (
    EXAMPLE_CHUNK,
    EXAMPLE_QUESTION,
    EXAMPLE_REQUEST,
    ProtocolCalls,
)
from raglab.extensions.clarification.question_parsing import parse_question
from raglab.live.ask import ask, reply
from raglab.live.clarifier import (
    FieldValue,
    GapReading,
    ParsedQuestion,
    QuestionGap,
    Reply,
    Slot,
)
from raglab.store.log_tables import DECISIONS

EXCESS = "What is the excess?"


def my_parser(question, documents):
    """Ask for the last word of a question."""
    del documents
    word = question.strip(" ?.!").split()[-1].lower() if question.strip(" ?.!") else "nothing"
    return ParsedQuestion(
        target_field=Slot(word, 0.9), intent=Slot("lookup", 0.9), question=question
    )


def my_gap_finder(parsed, documents, hits):
    """Offer the first two lines that hold a price."""
    del hits
    lines = [
        line.strip("| ") for chunk in documents for line in chunk.text.splitlines() if "£" in line
    ]
    readings = tuple(GapReading(line.split("|")[0].strip()[:80], line) for line in lines[:2])
    return (
        [QuestionGap("field_type", parsed.target_field.value or "price", readings)]
        if len(readings) > 1
        else []
    )


def my_reply_reader(text, request):
    """Take the value whose first letter is typed."""
    for reading in request.readings:
        if text.strip().lower() == reading.value[0].lower():
            return Reply("chosen", reading.value)
    return Reply("declined") if text.strip().lower() == "n" else Reply("not_understood")


def my_field_reader(field, chunks):
    """Read the first line that names a field, up to its end."""
    for chunk in chunks:
        for line in chunk.text.splitlines():
            name, colon, value = line.partition(":")
            if colon and field.split(maxsplit=1)[0].lower() in name.lower() and value.strip():
                return FieldValue(value.strip(), line.strip())
    return None


OWN: dict[str, Callable[..., Any]] = {
    "parser": my_parser,
    "gap_finder": my_gap_finder,
    "reply_reader": my_reply_reader,
    "field_reader": my_field_reader,
}


def called(calls, role):
    """What a role gives for the example."""
    parsed = parse_question(EXAMPLE_QUESTION, (EXAMPLE_CHUNK,))
    return {
        "parser": lambda: calls.parse(EXAMPLE_QUESTION, (EXAMPLE_CHUNK,)),
        "gap_finder": lambda: calls.gaps(parsed, (EXAMPLE_CHUNK,), (EXAMPLE_CHUNK,)),
        "reply_reader": lambda: calls.reply("key", EXAMPLE_REQUEST),
        "field_reader": lambda: calls.value("pet deposit", (EXAMPLE_CHUNK,)),
    }[role]()


def gives_way(role, own):
    """Calls of which one role fails, so that the default answers; said once, kept twice."""
    calls, default = ProtocolCalls(**{role: own, "timeout_s": 0.1}), called(ProtocolCalls(), role)
    with pytest.warns(UserWarning, match=f"{role} .*the default stands in"):
        assert called(calls, role) == default
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert called(calls, role) == default
    assert [fallback.role for fallback in calls.fallbacks] == [role] * 2
    return calls


@pytest.mark.parametrize("role", OWN)
def test_ones_own_is_called(role):
    """What it gives is taken."""
    calls = ProtocolCalls(**{role: OWN[role]})
    calls.check()
    assert called(calls, role) != called(ProtocolCalls(), role) or role == "field_reader"
    assert calls.fallbacks == []
    assert calls.names()[role] == OWN[role].__name__


def _raises(*_):
    msg = "the server burns"
    raise RuntimeError(msg)


def _nonsense(*_):
    return {"value": ["a", 7]}


def _sleeps(*_):
    time.sleep(5.0)


@pytest.mark.parametrize("role", OWN)
def test_opening_tries_an_example(role):
    """What can never work is refused with what it must be; what fails this once is said."""

    async def later(*_): ...

    model = type("ModelReader", (), {"read": lambda *_: None})()
    for never in (model, lambda: None, lambda *_, must: must, later):
        with pytest.raises(ValueError, match=f"{role} must be a callable") as error:
            ProtocolCalls(**{role: never}).check()
        assert ("ModelCalls" in str(error.value)) == (never is model)
    with pytest.warns(UserWarning, match=f"{role} _raises failed .*the default stands in"):
        ProtocolCalls(**{role: _raises}).check()


class Odd(str):
    """A text that cannot be compared, hashed or shown."""

    __slots__ = ()

    def _refuse(self, *_):
        msg = "no"
        raise SystemExit(msg)

    __eq__ = __hash__ = __str__ = __len__ = strip = casefold = encode = _refuse


class Stop(BaseException):
    """An error whose text ends the process."""

    def __str__(self):
        raise SystemExit(3)


class Versions:
    """A callable that cannot say what it is."""

    @property
    def version(self):
        """Fail."""
        raise SystemExit(2)

    prompt_version = "\ud800\0"

    def __call__(self, *_):
        """Nothing of any protocol."""
        return {}


async def _later(*_):
    """Give a coroutine."""


def raising(error):
    """A callable that raises an error."""

    def call(*_):
        raise error

    return call


def _endless(*_):
    while True:
        yield 1


def _itself(*_):
    parts: list[object] = []
    parts.append(parts)
    return parts


def _writes(*given):
    passages = next(
        part
        for part in (*given, *given[-1])
        if isinstance(part, tuple) and part[0] == EXAMPLE_CHUNK
    )
    passages[0].tags["title"] = "mine"


@pytest.mark.parametrize("role", OWN)
@pytest.mark.parametrize(
    "broken",
    [
        _raises,
        _sleeps,
        raising(SystemExit(1)),
        raising(KeyboardInterrupt()),
        raising(Stop()),
        _endless,
        _later,
        _itself,
        _writes,
        Versions(),
        lambda: None,
        lambda *_: 7,
        lambda *_: [1],
        lambda *_: {"value": 1},
        lambda *_: [1] * 10**6,
        lambda *_: "x" * 10**6,
        lambda *_: [Odd("a")],
        lambda *_: Reply("chosen", "\ud800"),
        lambda *_: ParsedQuestion.model_construct(target_field=Slot("x", math.nan)),
        lambda *_: ("Pet deposit", "Pet deposit"),
    ],
)
def test_what_fails_gives_way_to_the_default(role, broken):
    """Whatever it raises or gives: reasons are kept that any log takes, nothing is changed."""
    calls = gives_way(role, broken)
    assert all(fallback.reason.encode().isascii() for fallback in calls.fallbacks)
    assert calls.names()[role]
    assert EXAMPLE_CHUNK.tags == {}


PET, KEY = (
    GapReading("Pet deposit", "Pet deposit: £250"),
    GapReading("Key deposit", "Key deposit: £50"),
)
TWO = QuestionGap("field_type", "deposit", (PET, KEY))


def gap(*readings):
    """What a finder gives."""
    return [TWO._replace(readings=readings)]


@pytest.mark.parametrize(
    ("role", "value"),
    [
        ("gap_finder", gap(PET, KEY, GapReading("Boat", "Boat: £7"))),
        ("gap_finder", gap(PET)),
        ("gap_finder", gap(PET, PET)),
        ("gap_finder", gap(PET, KEY._replace(text="Gold £999"))),
        ("gap_finder", gap(PET, KEY._replace(quote="KEY DEPOSIT: £50"))),
        ("gap_finder", gap(*(GapReading(f"Pet {number}", PET.quote) for number in range(99)))),
        ("gap_finder", [TWO._replace(reason="\0")]),
        ("gap_finder", [TWO._replace(kind="page_scope", readings=tuple(map(GapReading, "19")))]),
        ("parser", ParsedQuestion(documents=("another.md",))),
        ("parser", ParsedQuestion(entity=Slot("x" * 201, 0.9))),
        ("field_reader", FieldValue("£999", "Pet deposit: £999")),
        ("field_reader", FieldValue("£25", "Pet deposit: £250")),
        ("reply_reader", Reply("own_value", "Boat", "The boat is £7.")),
        ("reply_reader", Reply("chosen", "Boat")),
        ("reply_reader", Reply("chosen", "Key deposit", declined=("Boat",))),
        ("reply_reader", Reply("page", "99")),
    ],
)
def test_what_the_documents_do_not_hold_is_not_taken(role, value):
    """One part that is not on offer, or not there letter for letter: the whole gives way."""
    gives_way(role, lambda *_: value)


class Noted(ParsedQuestion):
    """A question with a field more."""

    note: str = ""


PARSED = ParsedQuestion(documents=(EXAMPLE_CHUNK.document,), question=EXAMPLE_QUESTION)


@pytest.mark.parametrize(
    ("role", "value", "expected"),
    [
        ("gap_finder", [TWO], (TWO,)),
        ("parser", Noted(documents=PARSED.documents, note="mine"), PARSED),
        ("reply_reader", Reply("chosen", KEY.value, "for keys"), Reply("chosen", KEY.value)),
        ("reply_reader", Reply("yes", doubted=True), Reply("chosen", PET.value, doubted=True)),
    ],
)
def test_what_is_taken(role, value, expected):
    """Parts that the documents hold, and the user's own words beside a value on offer."""
    calls = ProtocolCalls(**{role: lambda *_: value})
    taken = called(calls, role)
    assert (taken, type(taken)) == (expected, type(expected))
    assert not calls.fallbacks


def test_what_is_taken_is_a_copy_in_plain_types():
    """What a callable changes later, or overrides, is not ours."""
    shared = [PET, KEY._replace(value=Odd("Key deposit"))]
    calls = ProtocolCalls(gap_finder=lambda *_: [TWO._replace(readings=shared)])
    (own,) = calls.gaps(PARSED, (EXAMPLE_CHUNK,), ())
    shared.clear()
    assert own.readings == (PET, KEY)
    assert type(own.readings[1].value) is str


def test_a_call_that_hangs_is_not_repeated_in_its_request():
    """Nor is one begun within itself."""
    counts = {"hanging": 0, "nested": 0}

    def hanging(*_):
        counts["hanging"] += 1
        time.sleep(0.3)

    def nested(*_):
        counts["nested"] += 1
        return inner.value("boat", (EXAMPLE_CHUNK,))

    calls = ProtocolCalls(field_reader=hanging, timeout_s=0.05).for_request()
    inner = ProtocolCalls(field_reader=nested)
    with pytest.warns(UserWarning, match="the default stands in"):
        calls.value("pet deposit", (EXAMPLE_CHUNK,))
    calls.value("pet deposit", (EXAMPLE_CHUNK,))
    with pytest.warns(UserWarning, match="within itself"):
        assert inner.value("boat", (EXAMPLE_CHUNK,)) is None
    assert counts == {"hanging": 1, "nested": 1}


def test_all_four_live(opened):
    """A system with all four asks by the finder, takes the reader's reply and logs who did what."""
    system = opened(**OWN)
    asked = ask(EXCESS, system=system, documents=[COVER], request_id="q", now=START)
    values = asked["clarification"]["candidate_values"]
    assert asked["clarification"]["audit"]["protocols"] == {
        role: call.__name__ for role, call in OWN.items()
    }
    response = reply("q", values[1][0], system=system, now=START)
    assert response["status"] == "ok"
    assert values[1].split(",")[0] in response["answer"]


def _talk(system, log):
    """Two questions, each asked back and replied to, which call all four; with a log of its own."""
    own = replace(system, audit=AuditLog(log))
    return [
        ask(EXCESS, system=own, documents=[COVER], request_id="q", now=START),
        reply("q", "storm and wind", system=own, now=START),
        ask(WHO, system=own, documents=[ENGLISH], request_id="p", now=START),
        reply("p", "yes", system=own, now=START),
    ]


def test_the_four_share_the_time_of_a_question():
    """What one used up is gone for the others; the next question has it anew."""

    def slow(*_):
        time.sleep(0.3)

    roles = dict.fromkeys(OWN, slow)
    calls = ProtocolCalls(timeout_s=0.4, **roles)  # type: ignore[arg-type]
    for _ in range(2):
        question = calls.for_request()
        begin = time.perf_counter()
        question.parse("What is the fee?", ())
        question.gaps(parse_question("What is the fee?", ()), (), ())
        question.value("fee", ())
        assert time.perf_counter() - begin < 0.6
        late = [fallback.reason for fallback in question.fallbacks[1:]]
        assert [text.partition(":")[0] for text in late] == ["TimeoutError"] * 2


@pytest.mark.parametrize(
    ("role", "failure"),
    [
        ("parser", _raises),
        ("gap_finder", _nonsense),
        ("reply_reader", _sleeps),
        ("field_reader", _raises),
    ],
)
def test_a_failure_live_is_said_once_and_logged(opened, tmp_path, role, failure):
    """Questions and answers are the default's.

    One warning for all of them, and each response and its log say why.
    """
    state = {"works": True}

    def fragile(*values):
        return (OWN[role] if state["works"] else failure)(*values)

    system, plain = opened(**{role: fragile}, reader_timeout_s=0.2), opened()
    expected = _talk(plain, tmp_path / "plain.sqlite")
    assert [response["status"] for response in expected] == ["ambiguous", "ok"] * 2
    state["works"] = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        responses = _talk(system, tmp_path / "own.sqlite")
    assert [str(one.message).split(" (")[0] for one in caught] == [f"{role} fragile failed"]
    same = ("status", "answer", "sources", "options", "default_applied")
    assert [[one[key] for key in same] for one in responses] == [
        [one[key] for key in same] for one in expected
    ]
    named = [response["warnings"] for response in responses]
    assert f"{role} failed" in str(named)
    with AuditLog(tmp_path / "own.sqlite").log.reading() as log:
        assert [list(row["warnings"]) for row in log.rows(DECISIONS)] == named


def test_without_clarification_it_is_said_that_nothing_is_called(opened):
    """What the user gave is not dropped in silence."""
    with pytest.warns(UserWarning, match=r"parser: .*clarify=True"):
        opened(clarify=False, parser=my_parser)
