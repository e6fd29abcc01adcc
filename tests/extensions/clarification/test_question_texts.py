"""Texts for users.

What is offered and why, in the language of the question, and quotes with French colons (S5.2).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_documents import COVER, START
from raglab.extensions.clarification import language_words
from raglab.extensions.clarification.field_values import is_quoted
from raglab.extensions.clarification.question_texts import field_text, option_rows, question_text
from raglab.extensions.clarification.statements import statements
from raglab.live.ask import ask, reply
from raglab.live.clarifier import GapReading, QuestionGap
from raglab.store.strict_yaml import load_yaml
from raglab.values import Chunk

KEYS = (GapReading("Caution pour les clés"), GapReading("Caution pour dommages"))


@pytest.mark.parametrize(("language", "words"), [("en", "“caution”"), ("fr", "« caution »")])
@pytest.mark.parametrize(
    "kind", ["field_type", "implicit_entity", "date_scope", "document", "intent"]
)
def test_words_of_a_question_are_quoted(kind, language, words):
    """A field that no pack words is shown as a quotation, so that it reads in any sentence."""
    assert words in question_text(
        QuestionGap(kind, "caution", KEYS), language, proposed=KEYS[0].value
    )


@pytest.mark.parametrize("language", ["en", "fr"])
def test_a_question_that_names_nobody_shows_no_key(language):
    """`person` is a key of the log, no word of a user."""
    text = question_text(
        QuestionGap("implicit_entity", "person:role", KEYS), language, proposed=KEYS[0].value
    )
    assert "person" not in text.replace("personnes", "")
    assert all(reading.value in text for reading in KEYS)


def test_a_proposal_gives_a_reason_that_holds():
    """Where candidates are equally good, that it comes first.

    Of earlier replies, that these meant it.
    """
    gap = QuestionGap("field_type", "deposit", KEYS, "first")
    first, learned = (
        question_text(gap, "en", proposed=KEYS[0].value, learned=flag) for flag in (False, True)
    )
    assert "the first of these" in first
    assert "meant before" in learned


def test_a_field_is_shown_in_the_words_of_the_question():
    """With their accents, where they are the key's words.

    A key of other words is shown as it is.
    """
    gap, question = (
        QuestionGap("field_type", "tarif resident", KEYS),
        "Quel est le tarif pour un Résident ?",
    )
    assert "« tarif Résident »" in question_text(
        gap, "fr", proposed=KEYS[0].value, question=question
    )
    assert "« tarif resident »" in question_text(
        gap, "fr", proposed=KEYS[0].value, question="Quel tarif ?"
    )


def test_an_option_that_is_a_sentence_ends_with_one_full_stop():
    """The list has a full stop of its own."""
    readings = (GapReading("Notice is one month."), GapReading("Notice is two weeks."))
    text = question_text(
        QuestionGap("field_type", "notice", readings), "en", proposed=readings[0].value
    )
    assert "one month, Notice is two weeks. I will take Notice is one month" in text
    assert ".." not in text


def test_another_page_is_offered_beside_pages_alone():
    """Headings are no pages."""
    pages, parts = (
        (GapReading("1"), GapReading("toc")),
        (GapReading("Deposits"), GapReading("Prices")),
    )
    last = [option_rows(readings, "page_scope", "en")[-1]["text"] for readings in (pages, parts)]
    assert "page" in last[0]
    assert "page" not in last[1]


def test_a_statement_with_a_french_colon_is_quoted():
    """French sets a blank before the colon.

    What is read from such a line must be found in it again.
    """
    chunks = [
        Chunk(
            "a#1", "Caution pour les clés : 20 €\n\nCaution pour dommages\u00a0: 180 €", "a.md", 1
        )
    ]
    read = statements(chunks)
    assert [one.value for one in read] == ["20 €", "180 €"]
    # as it is printed, which is what an answer shows
    assert read[0].text == "Caution pour les clés : 20 €"
    assert all(is_quoted(one.text, chunks) is not None for one in read)


def test_what_yes_takes_after_a_no_is_shown(opened):
    """The question's text is the first one's.

    The new proposal is said beside it, and is what a yes takes.
    """
    system = opened()
    asked = ask("What is the excess?", system=system, documents=[COVER], request_id="q", now=START)
    values = asked["clarification"]["candidate_values"]
    again = reply("q", "no", system=system, now=START)
    assert again["clarification"]["proposed_default"] == values[1]
    assert any(values[1] in text and "yes" in text for text in again["warnings"])
    answered = reply("q", "yes", system=system, now=START)
    assert (answered["status"], values[1] in answered["answer"]) == ("ok", True)


def test_the_words_of_languages_state_every_key_once():
    """A second list under a key would replace the first in silence."""
    text = Path(language_words.__file__).with_name("words.yaml").read_text(encoding="utf-8")
    assert load_yaml(text, "words.yaml", "a list of words") == language_words.language_parts()


@pytest.mark.parametrize(("language", "text"), [("en", "the person"), ("fr", "la personne")])
def test_a_default_shows_no_key(language, text):
    """Whom to turn to is a person, and what a field is split by is not shown."""
    assert field_text("person:role", language) == text
    assert field_text("deposit:date:not", language) == "deposit"
