"""Fields beside their labels.

What is read of a trade of its own, and what is left alone (S5.10).
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.extensions.clarification.field_values import read_value
from raglab.values import Chunk
from raglab.words.packs import pack_of

# A marina: berths, a harbour office, a boatyard; written for this test.
MARINA = pack_of(
    {
        "name": "marina",
        "fields": {
            "berth_fee": {
                "asked": ["berth fees?"],
                "reading": {
                    "kind": "amount",
                    "labels": ["(?:annual )?berth(?:ing)? fee", "redevance(?: annuelle)?"],
                },
            },
            "notice": {
                "asked": ["notice"],
                "reading": {
                    "kind": "duration",
                    "labels": ["notice(?: period)?", "préavis"],
                    "prose": [
                        {
                            "match": r"(?P<value>\d+ (?:days|weeks))[’'] warning",
                            "unasked": "harbour",
                        },
                        {"match": r"we give you (?P<value>\d+ (?:days|weeks))", "asked": "harbour"},
                    ],
                },
            },
            "harbour_master": {
                "asked": ["harbour master"],
                "names": True,
                "reading": {
                    "kind": "person",
                    "labels": ["harbour ?master", "capitaine du port"],
                    "role": "^harbour",
                },
            },
            "office_phone": {
                "asked": ["office"],
                "reading": {"kind": "phone", "labels": ["(?:harbour )?office(?: telephone)?"]},
            },
            "water_depth": {
                "asked": ["depth"],
                "reading": {"kind": "quantity", "labels": ["depth(?: at low water)?"]},
            },
            "agreement_ref": {
                "asked": ["reference"],
                "reading": {
                    "kind": "reference",
                    "labels": ["agreement(?: reference| no)?", "référence"],
                },
            },
        },
    }
)


def value(field, *texts, about=""):
    """What is read of passages under one heading."""
    chunks = [
        Chunk(f"m#{n}", f"Marina > Terms\n{text}", "m.md", n) for n, text in enumerate(texts, 1)
    ]
    read = read_value(field, chunks, pack=MARINA, about=about)
    assert read is None or any(
        read.value in chunk.full_text or "|" in chunk.full_text for chunk in chunks
    )
    return None if read is None else read.value


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        # Rows, lines, sentences, roles.
        (
            "berth_fee",
            "| Item | Sum |\n|---|---|\n| Berth fee | £2,150 |\n| Winter storage | £640 |",
            "£2,150",
        ),
        ("berth_fee", "Annual berth fee: £2,150 (VAT included)", "£2,150"),
        ("berth_fee", "For a pontoon in the inner basin the annual berth fee is £2,150.", "£2,150"),
        ("berth_fee", "Redevance annuelle : 1 890 €", "1 890 €"),
        (
            "harbour_master",
            "| Sally Trethewey | Harbour master | Berths and moorings |",
            "Sally Trethewey",
        ),
        (
            "harbour_master",
            "Harbour master: Sally Trethewey (from the north quay)",
            "Sally Trethewey",
        ),
        (
            "office_phone",
            "| Harbour office | weekdays | 01632 960 118, office@marina.example |",
            "01632 960 118",
        ),
        ("office_phone", "Harbour office: 01632 960 118 ext. 4", "01632 960 118 ext. 4"),
        ("water_depth", "Depth at low water: 1.8 m to 2.4 m", "1.8 m to 2.4 m"),
        ("agreement_ref", "Référence : PM-25/118", "PM-25/118"),
        # A value under another label is not this field's.
        ("berth_fee", "Visitor berth fee: £38", None),
        ("berth_fee", "The berth fee was worked out on a sum insured of £90,000.", None),
        ("berth_fee", "The berth fee is refunded less £75 for administration.", None),
        ("agreement_ref", "Insurance agreement: IN-77/2", None),
        ("office_phone", "Coastguard: 01632 960 999", None),
        ("office_phone", "Harbour office: room 2.17", None),
        # What held once, or holds from a day, is left alone; so are values that differ.
        ("berth_fee", "The berth fee was £1,980 until March.", None),
        ("berth_fee", "From 1 April 2025 the berth fee is £2,150.", None),
        ("berth_fee", "Berth fee: £2,150\nBerth fee: £2,250", None),
        ("harbour_master", "Harbour master: Head of Moorings Services", None),
        # A number is whole, or no value.
        ("notice", "Give us 28 days' warning.", "28 days"),
        ("notice", "Give us 28 days' warning.\nNotice period: six weeks", None),
    ],
)
def test_a_field_is_read_beside_its_label(field, text, expected):
    """In rows, labelled lines, sentences and roles; wrong is worse than none."""
    assert value(field, text) == expected


def test_the_words_of_a_question_choose_among_patterns():
    """A pattern for some words is not read without them, and one against them is read."""
    text = "Give us 28 days' warning; we give you 90 days."
    assert value("notice", text) == "28 days"
    assert value("notice", text, about="how much notice does the harbour give?") == "90 days"


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        ("deposit", "Deposit: £500\nPet deposit: £250", "£500"),
        ("deposit", "Pet deposit: £250", None),
        ("pet deposit", "Deposit: £500\nPet deposit: £250", "£250"),
        (
            "winter storage fee",
            "| Item | Fee | Term |\n|---|---|---|\n| Winter storage | £640 | six months |",
            "£640",
        ),
        ("notice period", "The notice period was 14 days.", None),
    ],
)
def test_a_field_that_no_pack_has_is_read_by_its_own_words(field, text, expected):
    """All of them, and a label that says more is another's."""
    assert value(field, text) == expected


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["£120", "£1,950", "2 150 €"]),
    st.sampled_from(["", "visitor ", "winter ", "owner's ", "early "]),
    st.sampled_from(["{label}: {sum}", "| {label} | {sum} |", "The {label} is {sum}."]),
)
def test_a_word_before_the_label_makes_it_anothers(amount, word, form):
    """Whatever it is, and in whatever form."""
    text = form.format(label=f"{word}berth fee", sum=amount)
    assert value("berth_fee", text) == (None if word else amount)
