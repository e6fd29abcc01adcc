"""Languages are data.

What a file must be, the union, and a third language without a line of code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from raglab.answering.extractive import Kind
from raglab.decision.signal_values import intent_rules
from raglab.words.languages import LANGUAGES, Language, expression, parse_language, union
from raglab.words.numerals import CURRENCY_CODES, plain_number
from third_language import run_with_german

DATA = Path(__file__).parent / "data"
GERMAN = parse_language((DATA / "de.yaml").read_text(encoding="utf-8"), "de.yaml")
EVERY = union([LANGUAGES, GERMAN])


def test_a_union_has_the_words_of_all_those_of_earlier_ones_first():
    """Months by their place, numerals by value, lists in order and each once."""
    assert EVERY.months[0] == ("january", "janvier", "januar")
    assert EVERY.months[4] == ("may", "mai")
    assert EVERY.numerals.numbers[12] == ("twelve", "douze", "zwölf")
    assert EVERY.words.stop[: len(LANGUAGES.words.stop)] == LANGUAGES.words.stop
    assert EVERY.opposites["cover"].negative[-1] == "ausgeschlossen-"
    assert EVERY.name == "English and French and German"


def test_keys_of_earlier_versions_are_refused():
    """Each by its name, like any that was never a key."""
    old = "{name: A, words: {stop: a, before: [until]}, replies: {agreeing: ja}}"
    with pytest.raises(
        ValueError,
        match=r"words\.before: unknown key.* replies: unknown key|"
        r"replies: unknown key.* words\.before: unknown key",
    ):
        parse_language(old, "a.yaml")


def test_a_third_language_is_one_file_in_the_folder(tmp_path):
    """The file beside the others is all.

    Words, claims, answers and intent then read the language.
    """
    program = """
import raglab.words.languages, sys
from raglab.words.claim_words import claim_words
from raglab.answering.extractive import expected_kind
from raglab.answering.hygiene import insufficiency
from raglab.answering.support import support_scores
from raglab.decision.signal_values import intent
from raglab.words.answer_terms import content_terms
from raglab.words.numerals import dates_in, number_word_value
from raglab.words.text import content_words, sentences

assert raglab.words.languages.LANGUAGES.name == "German and English and French"
assert content_words("Wie hoch ist die Prämie der Flotte?") == ("prämie", "flotte")
assert content_terms("zwölf Tage") == ("12", "tage")
assert [date[:3] for date in dates_in("am 3. März 2025")] == [(2025, 3, 3)]
assert number_word_value(["zwei", "hundert", "tage"]) == (200, 2)
assert number_word_value(["two", "hundred", "tage"]) == (200, 2)
assert sentences("Es gilt für Glas bzw. Spiegel. Sturm ist versichert.") == [
    "Es gilt für Glas bzw. Spiegel.", "Sturm ist versichert."]
assert [word.key for word in claim_words("am 3 Dezember, zwei hundert")][1:] == ["3", "m12", "", \
"200"]
assert expected_kind("Wann beginnt der Schutz?") == "date"
assert insufficiency("Das kann ich leider nicht beantworten.")
assert intent("Wieviele Tage?").reasons["table"] == ("how much",)
held, turned = support_scores(["Flut ist versichert."] * 2, [["Flut ist versichert."], ["Flut ist \
nicht versichert."]])
assert held > 0.9 > 0.6 > turned
"""
    run_with_german(program, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: x, months: [a]}", "de.yaml: months: .* 12"),
        ("{name: x, words: {stop: [no]}}", "words.stop: words must be a text .* quotes"),
        ("{name: x, wrds: 1}", "wrds: unknown key; write one of en.yaml's keys"),
        ("{name: x, xyzxyz: 1}", "xyzxyz: unknown key; write one of en.yaml's keys"),
        ("{name: x, tables: {wrds: 1}}", "tables.*wrds"),
        ("{name: x, tables: {later: '('}}", "tables.later: an expression must be a regular one"),
        (
            "{name: x, opposites: {a: b}}",
            "opposites.a: opposites must be words on either side of one `/`",
        ),
        ("{name: x, numerals: {numbers: {a: b}}}", "numerals.numbers"),
        ("a: [", "de.yaml: a language must be YAML"),
        ("[]", "de.yaml: "),
    ],
)
def test_a_file_that_is_no_language_is_refused_by_its_place(text, message):
    """With the rule, the value and what to do."""
    with pytest.raises(ValueError, match=message):
        parse_language(text, "de.yaml")


def test_all_problems_of_a_file_are_named_at_once():
    """A translator mends them together."""
    with pytest.raises(
        ValueError, match=r"^x: words\.stop: .* months: .* tables\.wrds: unknown key"
    ) as caught:
        parse_language("{name: x, words: {stop: [no]}, months: [a], tables: {wrds: 1}}", "x")
    assert "numerals" not in str(caught.value)


def test_a_language_is_not_changed():
    """What a reader made of it once holds for good."""
    with pytest.raises(AttributeError, match="must not be changed, got another stop"):
        LANGUAGES.words.stop = ()


def test_names_in_capitals_stand_for_expressions_in_any_order():
    """Those of all languages together, also inside one another."""
    assert (
        expression(["A THE B", "c"], {"THE": "(?:the|ONE)", "ONE": r"\w"})
        == r"(?:A (?:the|\w) B|c)"
    )
    languages = (parse_language(f"{{name: {n}, answers: {{words: {{X: {n}}}}}}}", n) for n in "ab")
    assert union(languages).answers.words == {"X": "(?:a|b)"}


def test_every_expression_of_the_bundled_languages_compiles_with_its_names():
    """No name is left in capitals, and none stands for itself."""
    for part in ("no_answer", "answers", "intent", "tables"):
        words = getattr(LANGUAGES, part).words
        for name in words:
            whole = expression([name], words)
            re.compile(whole)
            assert not re.search(r"(?<![A-Z\\\[])[A-Z]{2,}(?![A-Z])", whole), whole


def test_expressions_stand_under_names_that_are_read():
    """A misspelt name would read nothing, and say nothing."""
    with pytest.raises(
        ValueError, match=r"intent\.rules of x must be rules of intent, got how mch"
    ):
        intent_rules(parse_language("{name: x, intent: {rules: {how mch: '.'}}}", "x.yaml"))
    assert LANGUAGES.answers.asked.keys() <= {*get_args(Kind), "code"}
    assert LANGUAGES.quantities.currencies.keys() <= set(CURRENCY_CODES)


def test_all_languages_share_the_names_of_their_months_and_of_one_to_ten():
    """A file that leaves them out would read less than it seems."""
    assert all(LANGUAGES.months)
    assert {*range(11)} <= LANGUAGES.numerals.numbers.keys()
    assert isinstance(LANGUAGES, Language)


def test_numbers_need_no_language():
    """Marks of thousands and decimals are told apart by where they stand."""
    assert {
        plain_number(text) for text in ("1,000", "1 000", "1'000", "1\u202f000,00", "1.000,00")
    } == {"1000"}
