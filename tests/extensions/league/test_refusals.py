"""The rule that reads refusals."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.extensions.league.refusals import answer_vote

REFUSES = (
    "I don't know",
    "I don’t know.",
    '"I don\'t know" (the passages are about birds)',
    "No",
    "No, answer is not present.",
    "No, answer is present",
    "Yes, I don't know.",
    "The contexts do not provide information about the size of the town.",
    "None of the contexts directly answers the question.",
    "Based on the passages, it is not clear where the town is.",
    "Which town is it? I don't know.",
    "There is no information about the town.",
    "¿Cuándo nació? Respuesta: No hay información en los contextos.",
    "Je ne sais pas.",
    "Saya tidak tahu.",
    "En tiedä.",
    "لا أعرف",
    "نمی‌دانم",
    "मुझे पता नहीं",
    "わかりません",
    "Я не знаю",
    "1. No, answer is not present. 2. No, answer is not present.",
    "I",
)
ANSWERS = (
    "Yes, answer is present",
    "Yes, answer is present in [1]. No, answer is not present in [2], [3].",
    "1. No, answer is not present. 2. Yes, answer is present.",
    "1969",
    "The answer is Paris. I don't know more.",
    "No, the first Russian there was not the pilot.",
    'Respond with "Yes, answer is present" or "I don\'t know".',
    'Which town? Please answer with either "Yes, answer is present" or "I don\'t know".',
    "If none of the contexts answers the question, say so.",
    "Please select one of the contexts.",
    "نعم، الإجابة موجودة.",
    "Oui, le fleuve est long.",
)


@pytest.mark.parametrize("reply", REFUSES)
def test_refusals(reply: str) -> None:
    """Of the prompt's words, of others, in other languages, and behind the question."""
    assert answer_vote(reply) == 0.0


@pytest.mark.parametrize("reply", ANSWERS)
def test_answers(reply: str) -> None:
    """With the prompt's words or without.

    And replies that only repeat the prompt, which refuse nothing.
    """
    assert answer_vote(reply) == 1.0


@pytest.mark.parametrize("reply", ["", " \n", '""', "Unable to generate response."])
def test_missing_replies(reply: str) -> None:
    """No text, and what a server writes that failed."""
    assert isnan(answer_vote(reply))


@given(
    st.sampled_from([*REFUSES, *ANSWERS]),
    st.sampled_from(["", " ", "\n", "* ", '"']),
    st.sampled_from(["", " ", "\n\n"]),
    st.booleans(),
)
def test_case_blanks_and_marks_change_nothing(
    reply: str,
    before: str,
    after: str,
    upper: bool,
) -> None:
    """Nor line ends between words."""
    text = reply.replace(" ", "\n") if after else reply
    assert answer_vote(before + (text.upper() if upper else text) + after) == answer_vote(reply)
