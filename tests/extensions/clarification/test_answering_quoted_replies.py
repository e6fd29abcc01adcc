"""Replies in natural words: what they agree to, mean and set aside, and the statements that they lead to."""

from __future__ import annotations

import pytest

from raglab.extensions.clarification.clarification_requests import interpret_reply
from raglab.extensions.clarification.question_vocabulary import plain_terms
from raglab.extensions.clarification.quoted_replies import quote_reply
from raglab.extensions.clarification.reply_words import (
    NamedPages,
    is_agreement,
    is_refusal,
    last_date,
    named_pages,
    ordinal_meant,
    reply_topic,
    size_meant,
    time_meant,
)
from raglab.values import Chunk

HIRE = [
    Chunk(
        "h#1",
        "Boats > Boat hire\nContents\nPrices ........ 2\nReturns ....... 3\nPeople ........ 4",
        "h.md",
        1,
    ),
    Chunk(
        "h#2",
        "Boats > Prices\n| Boat | Until 30 April 2025 | Since 1 May 2025 |\n|---|---|---|\n"
        "| Canoe, a day | £30 | £35 |\n| Skiff, a day | £45 | £48 |",
        "h.md",
        2,
    ),
    Chunk(
        "h#3",
        "Boats > Returns\nBring the boat back by noon. A hull that is not rinsed costs £12. Never drag it over stones.",
        "h.md",
        3,
    ),
    Chunk("h#4", "Boats > People\n- Bookings: 01632 960 111\n- Damage and repairs: 01632 960 222", "h.md", 4),
]


@pytest.mark.parametrize(
    "text",
    [
        "yes, right",
        "yes please",
        "Yes.",
        "yep, go ahead",
        "yep, that's where it should be",
        "exactly",
        "that's it",
        "go ahead",
        "sure",
        "ok, do that",
        "oui, c'est bien ça",
        "oui, vas-y",
        "oui, exactement",
        "c'est ça",
        "tout à fait",
        "d'accord",
        "oui merci",
        "oui s'il vous plaît",
    ],
)
def test_agreement(text: str) -> None:
    """A yes in words proposes what was proposed."""
    assert is_agreement(plain_terms(text).strip(" .!"))
    assert interpret_reply(text, ("1", "toc"), "1", "page_scope").value == "1"


@pytest.mark.parametrize("text", ["no", "nope", "no thanks", "non merci", "no, that's wrong", "non, ce n'est pas ça"])
def test_refusal(text: str) -> None:
    """A no that names nothing."""
    assert is_refusal(plain_terms(text))
    assert not is_agreement(plain_terms(text))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("the latest", "new"),
        ("le plus récent", "new"),
        ("la nouvelle règle", "new"),
        ("what I'd pay now", "new"),
        ("celui d'aujourd'hui, pas l'ancien", "new"),
        ("ce qui vaut maintenant", "new"),
        ("the one that is in force", "new"),
        ("the old one", "old"),
        ("I went before the new rates came in", "old"),
        ("the figure before it was changed", "old"),
        ("avant le changement", "old"),
        ("what I'd get at the beginning", "old"),
        ("page 3", ""),
        ("yes", ""),
    ],
)
def test_time(text: str, time: str) -> None:
    """Older and newer, whatever the words."""
    assert time_meant(plain_terms(text)) == time


@pytest.mark.parametrize(
    ("text", "named", "denied"),
    [
        ("no, page 3", {3}, set()),
        ("the page after the cover", {2}, set()),
        ("the next page", {2}, set()),
        ("la dernière page", {4}, set()),
        ("la page suivante", {2}, set()),
        ("celle pour l'été, page 4", {4}, set()),
        ("page 1 is only the cover, try the table of contents", set(), {1}),
        ("c'est la couverture, regarde plutôt le sommaire", set(), {1}),
        ("not page 1, look on the last page", {4}, {1}),
        ("the skiff", set(), set()),
    ],
)
def test_pages(text: str, named: set[int], denied: set[int]) -> None:
    """Pages by number and in words, and those that are set aside."""
    assert named_pages(plain_terms(text), (1, 2, 3, 4)) == NamedPages(frozenset(named), frozenset(denied))


def test_what_is_set_aside() -> None:
    """`Not the charger` names no charger."""
    topic = reply_topic("l'appareil lui-même, pas le chargeur")
    assert ("appar" in topic.meant, "charg" in topic.meant, "charg" in topic.denied) == (True, False, True)
    assert reply_topic("what I must not do").forbids
    named = interpret_reply("l'appareil lui-même, pas le chargeur", ("Appareil", "Chargeur"), "Chargeur", "field_type")
    assert named.value == "Appareil"
    assert interpret_reply("the old one, not the new", ("old", "new"), None, "field_type").value == "old"


def test_readings_by_time_place_and_size() -> None:
    """Readings that are named by other words are ordered by their dates, or by how they were offered."""
    dated = ("built since March 2025", "built up to February 2025")
    assert interpret_reply("the newer kind", dated, None, "field_type").value == dated[0]
    assert interpret_reply("le plus ancien", dated, None, "field_type").value == dated[1]
    assert interpret_reply("the second one", ("dinner", "lunch"), None, "field_type").value == "lunch"
    assert (ordinal_meant("la deuxieme"), ordinal_meant("the first page")) == (1, None)
    assert (size_meant("the smaller one"), size_meant("le plus grand"), size_meant("the red one")) == (
        "small",
        "large",
        "",
    )
    assert last_date("from 1 July 2025") > last_date("1 July 2024 to 30 June 2025")
    assert last_date("for 2022/23 and January 5, 2023") == (2023, 1, 5)
    assert last_date("jusqu'au 3 fevrier 2025") == (2025, 2, 3)


@pytest.mark.parametrize(
    ("question", "reply", "wanted"),
    [
        ("What does a day cost?", "the skiff", "£48"),
        ("What does a day cost?", "canoe, the old price", "£30"),
        ("What must I pay?", "if I do not rinse it", "£12"),
        ("Which number do I ring?", "the one for repairs", "01632 960 222"),
        ("Which number do I ring?", "for bookings, not for damage", "01632 960 111"),
        ("Which number do I ring?", "repairs, on the last page", "01632 960 222"),
    ],
)
def test_a_statement_by_the_words_of_the_reply(question: str, reply: str, wanted: str) -> None:
    """Rows, sentences and labelled lines are found by their own words; the contents are none."""
    told = quote_reply(question, reply, HIRE)
    assert told is not None
    assert wanted in told.lines[0]
    assert 0.0 < told.confidence <= 1.0


def test_a_part_is_told_in_its_order() -> None:
    """Of a part several lines are quoted, and what is not to be done is among them."""
    told = quote_reply("Returns", "what I must not do", HIRE, part=True)
    assert told is not None
    assert any("Never drag" in line for line in told.lines)
    assert set(told.passages) == {2}


def test_nothing_to_quote() -> None:
    """No lines, no quotation."""
    assert quote_reply("What?", "the skiff", []) is None
    assert quote_reply("What?", "page 1", HIRE[:1]) is None
