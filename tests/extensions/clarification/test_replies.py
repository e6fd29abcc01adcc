"""Replies: what a user's reply names of what was asked (S5.4)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from raglab.extensions.clarification.protocol_calls import checked_reply
from raglab.extensions.clarification.replies import read_reply
from raglab.live.clarifier import GapReading, Reply, ReplyRequest
from raglab.values import Chunk
from reply_crowd import SCENES
from reply_requests import (
    COLUMNS,
    DEPOSITS,
    HIRE,
    LOCATION,
    MANAGERS,
    RENTS,
    REQUESTS,
    asked,
)

PAGES = ReplyRequest(
    "Who is the insurer?",
    "page_scope",
    "insurer_name",
    (GapReading("1"), GapReading("toc"), GapReading("document")),
    "1",
    tuple(Chunk(f"a#{n}", f"Page\nText {n} of Acme.", "a.md", n) for n in range(1, 6)),
)
FRENCH = ReplyRequest(
    "Quelle est la caution ?",
    "field_type",
    "caution",
    (GapReading("Caution pour animal"), GapReading("Caution locative")),
    "Caution pour animal",
    language="fr",
)


KILN = tuple(
    GapReading(name, f"{name}; {told}")
    for name, told in (("Firing fee", "£14"), ("Glaze fee", "£6"), ("Late collection fee", "£200"))
)
GUILD = tuple(
    GapReading(role, f"{role}; {name}")
    for role, name in (
        ("Keeper of the kiln", "Ines Crow"),
        ("Clay sales", "Tom Bell"),
        ("Trésorier", "Olu Saïd"),
    )
)


KIT = """Kit
| Kit | Rent a day | Bond | New price |
|---|---|---|---|
| Crampons | £8 | £40 | £130 |
| Axe | £5 | £25 | £90 |"""
BOATS = """Boats
| Fee | Amount | Note |
|---|---|---|
| Sailing | £9 | an hour |
| Rented boat | £30 | a day |
| Long boat | £60 | oars included |
| Team boat | £55 | a day |
| Sealing | £40 | each spring |"""
NAMED = {
    "boats": asked(
        "Which fee?",
        "field_type",
        "fee",
        BOATS,
        ("Sailing", "Sailing; £9; an hour"),
        ("Rented boat", "Rented boat; £30; a day"),
        ("Long boat", "Long boat; £60; oars included"),
        ("Team boat", "Team boat; £55; a day"),
    ),
    "deposits": DEPOSITS,
    "pages": PAGES,
    "french": FRENCH,
    "columns": COLUMNS,
    "hire": HIRE,
    "managers": MANAGERS,
    "location": LOCATION,
    "rents": RENTS,
    "fee": asked("Which one is it?", "field_type", "fee", "", *KILN),
    "contact": asked("Which one is it?", "implicit_entity", "contact", "", *GUILD),
    "docks": asked("Which dock?", "field_type", "dock", "", ("Dock no. 2",), ("Dock no. 1",)),
    "kit": asked(
        "What is the bond?",
        "field_type",
        "bond",
        KIT,
        ("Crampons", "Crampons; £8; £40; £130"),
        ("Axe", "Axe; £5; £25; £90"),
    ),
    "buttons": asked(
        "Which?", "field_type", "deposit", "", ("No deposit",), ("Yes",), ("Not sure",)
    ),
    **{f"{name} scene": scene.asked for name, scene in SCENES.items()},
}
ROWS = yaml.safe_load(
    (Path(__file__).parents[2] / "data" / "reply_rows.yaml").read_text(encoding="utf-8")
)


def read(text, request):
    """A reply as the loop takes it."""
    return checked_reply(read_reply(text, request), request)


def said(text, request):
    """What a reply says, as the table of rows puts it."""
    reply = read(text, request)
    if reply.value:
        return ", not ".join((reply.value, *reply.declined)) + ", in doubt" * reply.doubted
    return f"-{'; '.join(reply.declined)}" if reply.declined else "?"


@pytest.mark.parametrize("name", sorted({*ROWS} - {"any"}))
def test_rows(name):
    """By name, number, place, figure or own words; what is set aside, and what is neither."""
    heard = [
        (text, told, said(text, NAMED[name]))
        for told in ROWS[name]
        for text in ROWS[name][told].split(" | ")
    ]
    assert [row for row in heard if row[1] != row[2]] == []


@pytest.mark.parametrize("told", ROWS["any"])
def test_rows_of_any_request(told):
    """Yes and no in other words; ordinals and values with what the rules cannot resolve."""
    for text in ROWS["any"][told].split(" | "):
        for request in REQUESTS:
            assert said(text, request) == told.replace("proposed", str(request.proposed)), text


def test_a_cell_of_a_column_that_is_asked_for():
    """If the question names no column, any of a row's values names it."""
    kit = NAMED["kit"]._replace(question="Which one?", field="kit")
    assert read("£130", kit).value == "Crampons"
    assert read("£6", HIRE) == Reply("own_value", "Long rope", "Long rope; £6; the next day")


@pytest.mark.parametrize(
    ("sums", "lower"),
    [
        (("£1,780.50", "£900"), 1),
        (("1 780,50 €", "2 650,00 €"), 0),
        (("0.125 kg", "0.5 kg"), 0),
        (("1,095 W", "310 W"), 1),
        (("£250", "250 €"), None),
        (("£250", "180 €"), None),
        (("30 days", "two months"), None),
        (("£5", "£5"), None),
    ],
)
def test_the_lower_of_some_values(sums, lower):
    """By their figures, of one unit; what is not comparable, or is the same, is none."""
    readings = tuple(
        GapReading(f"Item {name}", f"Item {name}: {value}")
        for name, value in zip("xy", sums, strict=True)
    )
    documents = (Chunk("a", "\n".join(reading.quote for reading in readings), "a.md", 1),)
    asked = ReplyRequest(
        "How much is it?", "field_type", "item", readings, readings[0].value, documents
    )
    expected = ("", "") if lower is None else (readings[lower].value, readings[1 - lower].value)
    assert (
        read_reply("the lower one", asked).value,
        read_reply("the highest", asked).value,
    ) == expected


def test_a_page_names_what_stands_on_it_alone():
    """One of two numbers is on page 2, both on page 3."""
    documents = tuple(
        Chunk(f"a#{page}", text, "a.md", page)
        for page, text in enumerate(
            ("Cover", "Desk: 01632 960 100", "Yard: 01632 960 101\n\nDesk: 01632 960 100"), 1
        )
    )
    readings = (
        GapReading("Desk", "Desk: 01632 960 100"),
        GapReading("Yard", "Yard: 01632 960 101"),
    )
    asked = ReplyRequest("Which number?", "field_type", "phone", readings, "Desk", documents)
    assert read_reply("the one on page 2", asked).value == "Desk"
    for reply in (
        "the one on page 3",
        "page 1",
        "page 9",
        "pages 2 and 3",
        "page 2 of the other contract",
    ):
        assert read_reply(reply, asked).kind == "not_understood", reply


@pytest.mark.parametrize(
    "join",
    [
        *(
            "{} or {}",
            "{} and {}",
            "either {} or {}",
            "{}, {}",
            "{} / {}",
            "{} & {}",
            "{} plus {}",
            "{}\n{}",
            "{} {}",
        ),
        *(
            "{} along with {}",
            "{} together with {}",
            "{} then {}",
            "{}? {}?",
            "{} vs {}",
            "{} with {}",
            "{} ({})",
        ),
        *(
            "could be {}, could be {}",
            "not sure whether {} or {}",
            "{} but also {}",
            "{} if not {}",
            "{} unless {}",
        ),
        *(
            "{} otherwise {}",
            "{} failing that {}",
            "{} not only {}",
            "compare {} with {}",
            "one of {}, {}",
        ),
        *(
            "{} for {}",
            "{} even {}",
            "{} including {}",
            "{} in addition to {}",
            "yes, {} and {}",
            "no, {} or {}",
        ),
    ],
)
def test_two_candidates_joined_in_any_way(join):
    """Of two that are named none is chosen, and none is turned down."""
    names = (
        ("the pet deposit", "pet", "1", "the first", "£250"),
        ("security", "2", "the second", "£900", "the key one"),
    )
    for one in names[0]:
        for other in names[1]:
            for pair in ((one, other), (other, one)):
                reply = join.format(*pair)
                assert read_reply(reply, DEPOSITS).kind == "not_understood", reply


def test_a_name_that_begins_with_no():
    """The no is the name's."""
    held = (("No smoking fee", "No smoking fee; £9"), ("Dog fee", "Dog fee; £8"))
    fees = asked("Fee?", "field_type", "fee", "", *held)._replace(proposed=None)
    assert said("no smoking fee", fees) == "No smoking fee"
    assert said("yes", fees) == "?"
    assert checked_reply(Reply("yes"), fees).kind == "not_understood"


def test_a_long_reply_is_not_understood():
    """It would take seconds to read, and says no more than a short one."""
    for text in ("pet deposit ", "no. ", "not "):
        assert read_reply(text * 5_000, DEPOSITS).kind == "not_understood"
    assert read_reply("pet deposit " * 9, DEPOSITS).value == "Pet deposit"
