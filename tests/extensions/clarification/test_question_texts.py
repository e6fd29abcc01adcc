"""Texts for users.

What is offered and why, in the language of the question, and quotes with French colons (S5.2).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_documents import COVER, START
from raglab.extensions.clarification import language_words
from raglab.extensions.clarification.field_values import is_quoted
from raglab.extensions.clarification.question_texts import field_text, question_text
from raglab.extensions.clarification.statements import statements
from raglab.live.ask import ask, reply
from raglab.live.clarifier import GapReading, QuestionGap
from raglab.store.strict_yaml import load_yaml
from raglab.values import Chunk

KEYS = (GapReading("Caution pour les clés"), GapReading("Caution pour dommages"))


@pytest.mark.parametrize("language", ["en", "fr"])
def test_a_question_that_names_nobody_shows_no_key(language):
    """`person` is a key of the log, no word of a user."""
    text = question_text(
        QuestionGap("implicit_entity", "person:role", KEYS), language, proposed=KEYS[0].value
    )
    assert "person" not in text.replace("personnes", "")
    assert all(reading.value in text for reading in KEYS)


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
