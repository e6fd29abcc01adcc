"""Names and identifiers in texts: worked examples."""

from __future__ import annotations

import time

import pytest

from effort import lines_run
from raglab.retrieval.entity_names import (
    Spot,
    codes_in,
    lexicon,
    longest,
    names_in,
    plain_words,
    spot_names,
)


class TestMentions:
    """Names and identifiers in a text."""

    def test_names_are_runs_of_capitals_with_particles(self):
        """English and French particles join a name, `&` too.

        A title and an article stand before it.
        """
        text = (
            "We told the Bank of the West, Mme Claire Vasseur, Pell & Marsh Ltd and the Crédit "
            "des Alpes of it."
        )
        assert names_in([text]) == [
            # all four in one is too long
            ["bank of the west", "claire vasseur", "pell marsh ltd", "crédit des alpes"],
        ]

    def test_an_initial_stands_inside_or_before_a_name(self):
        """The stop of an initial or a title ends no sentence; an initial alone is no name."""
        assert names_in(["We met Mrs E. Whitcombe and J. R. Hale."]) == [
            ["whitcombe and j r hale", "whitcombe", "hale"]
        ]

    def test_and_joins_two_names_or_the_words_of_one(self):
        """Both readings are kept."""
        assert names_in(["We sail to Bristol and Lyon."]) == [
            ["bristol and lyon", "bristol", "lyon"]
        ]

    def test_a_sentence_begins_with_a_capital_whatever_its_word(self):
        """`Hail` is written small elsewhere, so it is no name at the beginning.

        `Meridian` is written so throughout.
        """
        texts = ["Hail is insured. Meridian pays.", "If hail falls, Meridian pays."]
        assert names_in(texts) == [["meridian"], ["meridian"]]

    def test_a_headline_is_no_name(self):
        """More than six words in capitals are a title."""
        assert names_in(["The Terms Of All Our Policies With Their Schedules Here"]) == [[]]

    def test_codes_have_figures_and_are_no_date_amount_or_count(self):
        """Policy numbers, forms and accounts are.

        Spans of years, dates, amounts and compounds are not.
        """
        assert codes_in("APH-2207-4418, AFS/24/7715, FC2, 70-4418") == [
            "APH-2207-4418",
            "AFS/24/7715",
            "FC2",
            "70-4418",
        ]
        assert (
            codes_in(
                "2024/25, 2024-2025, 01/04/2025, 2025-04-01, £7,500, 24-hour, 2.5 t, 3-4, five-week"
            )
            == []
        )

    def test_a_name_is_found_spelt_with_blanks_or_without(self):
        """`fleet guard`, `FleetGuard` and a number typed without its hyphens are what was meant."""
        known = lexicon(["fleetguard", "nm fg 4417", "pl"])
        assert spot_names(plain_words("Fleet Guard"), known) == [Spot(0, 2, 0)]
        assert spot_names(plain_words("fleetguard NMFG4417 pl"), known) == [
            Spot(0, 1, 0),
            Spot(1, 1, 1),
            Spot(2, 1, 2),
        ]

    def test_the_longest_name_covers_the_shorter(self):
        """Of `acme premier home` and `home` the first is meant."""
        words = plain_words("the Acme Premier Home excess")
        assert longest(spot_names(words, lexicon(["home", "acme premier home"]))) == [Spot(1, 3, 1)]

    def test_composed_and_decomposed_accents_are_one(self):
        """NFC."""
        assert plain_words("Cre\u0301dit") == plain_words("Crédit") == ["crédit"]

    @pytest.mark.parametrize("unit", ["A", "Aa ", "a-", "1 000 ", "Aa and "])
    def test_long_lines_take_linear_time(self, unit):
        """Four times the capitals or hyphens take four times the work, and a second at most.

        A square takes minutes.
        """

        def work(units):
            return lines_run(lambda: (names_in([unit * units]), codes_in(unit * units)))

        start = time.process_time()
        assert work(8_000) < 6 * work(2_000)
        assert time.process_time() - start < 25.0
