"""Numbers and dates as written.

One rule for marks, number words as num2words writes them, dates of every reader.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from num2words import num2words

from raglab.words.answer_terms import content_terms
from raglab.words.characters import unaccented
from raglab.words.claim_words import claim_words
from raglab.words.numerals import (
    calendar_date,
    comma_thousands,
    dates_in,
    number_word_value,
    plain_number,
)
from raglab.words.text import fold_case

MARKS = ("{:,}", "{:,}.5", "{:,}.25")


@pytest.mark.parametrize(
    ("digits", "plain", "money", "scaled"),
    [
        ("1,000", "1000", "1000", "1"),
        ("1.000", "1", "1000", "1"),
        ("1.250", "1.25", "1250", "1.25"),
        ("1.000.000", "1000000", "1000000", "1000000"),
        ("1 000,50", "1000.5", "1000.5", "1000.5"),
        ("1.234,56", "1234.56", "1234.56", "1234.56"),
        ("1,234.56", "1234.56", "1234.56", "1234.56"),
        ("0,500", "0.5", "0.5", "0.5"),
        ("2,5", "2.5", "2.5", "2.5"),
        ("007", "007", "007", "007"),
        ("1.2.3", None, None, None),
        ("127.0.0.1", None, None, None),
    ],
)
def test_one_rule_for_marks(digits, plain, money, scaled):
    """What a comma and a point mean alone, beside a currency and before a word like `million`."""
    assert plain_number(digits) == plain
    assert plain_number(digits, money=True) == money
    assert plain_number(digits, scaled=True) == scaled


@given(
    st.integers(1, 10**9),
    st.sampled_from(MARKS),
    st.sampled_from([",.", " ,", "\u202f,", "'.", ".,"]),
)
def test_a_number_has_one_value_however_its_thousands_are_parted(value, form, marks):
    """English, French, Swiss and German marks.

    A point parts thousands where more than one mark says so, or money.
    """
    written = form.format(value).translate(str.maketrans(",.", marks))
    expected = (
        form.replace(",", "").format(value).rstrip("0").rstrip(".") if "." in form else str(value)
    )
    assert plain_number(written, money=True) == expected


@pytest.mark.parametrize("text", ["1.200 €", "€1.200", "EUR 1.200", "1.200 euros"])
def test_every_reader_reads_a_sum_alike(text):
    """Answers and claims took 1.200 € for 1.2 before the one rule, which table cells follow too."""
    assert content_terms(text)[:1] in {("1200",), ("eur",)}
    assert "1200" in content_terms(text)
    assert "1200" in [word.key for word in claim_words(text)]


def test_a_point_is_of_the_decimals_where_no_money_is():
    """And before a word that scales."""
    assert (
        comma_thousands("1.250 m, £2.500 million, 3.125 kg") == "1.250 m, £2.500 million, 3.125 kg"
    )


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("0,500", ["0.5"]),  # was 500
        ("1.234,56", ["1234.56"]),  # was 1.23456
        ("1.2.3", ["1.2.3"]),  # was 1.23, the same as 1.23
        ("50 cents", ["50", "cent"]),  # was 5000
        ("dix-sept", ["17"]),  # was 10 and 7
        ("one thousand and one", ["1001"]),  # was 1000, `and`, 1
        ("vingt et une", ["21"]),  # was 20, `et`, `une`
        ("2 janv", ["2", "m1"]),  # was no month
    ],
)
def test_claims_read_what_they_misread(text, keys):
    """Defects that one reader of numbers mended."""
    assert [word.key for word in claim_words(text)] == keys


def test_a_range_of_thousands_reads_as_num2words_writes_it():
    """Hundreds with and without `and`; 70s and 90s in French of France, Belgium, Switzerland."""
    for words, value in {
        "three thousand four hundred and twelve": 3412,
        "two million and five": 2_000_005,
        "soixante et onze": 71,
        "quatre vingt dix sept": 97,
        "deux cents": 200,
        "trois mille deux cent quatre vingts": 3280,
        "septante huit": 78,
        "nonante neuf": 99,
    }.items():
        assert number_word_value(words.split()) == (value, len(words.split()))


def test_numbers_in_words_are_those_of_num2words():
    """Every number below ten thousand, in English and three kinds of French."""
    for lang in ("en", "fr", "fr_BE", "fr_CH"):
        for value in range(2, 10_000, 7):
            words = re.findall(r"[^\W\d_]+", num2words(value, lang=lang).lower())
            assert number_word_value(words) == (value, len(words))


@pytest.mark.parametrize(
    "text",
    [
        "2025-04-01",
        "1/4/2025",
        "01.04.2025",
        "1 April 2025",
        "1st of April 2025",
        "April 1, 2025",
        "1er avril 2025",
    ],
)
def test_a_day_is_one_day_however_it_is_written(text):
    """In digits the day comes first where either may."""
    assert [date[:3] for date in dates_in(f"du {text} au")] == [(2025, 4, 1)]


def test_a_month_alone_and_what_is_no_date():
    """Day 0 without a day.

    Words that only begin as a month does are none (`marché 2024` was March 2024).
    """
    # no accents
    assert [date[:3] for date in dates_in("1 Aout 2024, fevr. 2025")] == [
        (2024, 8, 1),
        (2025, 2, 0),
    ]
    assert [
        date[:3] for date in dates_in("Sept. 2024, févr. 2025, marché 2024, maison 2025, Dec 2023")
    ] == [
        (2024, 9, 0),
        (2025, 2, 0),
        (2023, 12, 0),
    ]
    assert calendar_date("4/30/2025") == (2025, 4, 30)


@given(st.text(max_size=60))
def test_folding_is_idempotent_and_keeps_ascii(text):
    """Twice is once, case apart."""
    assert fold_case(fold_case(text)) == fold_case(text)
    assert unaccented(unaccented(text)) == unaccented(text)
