"""Echoes: headings and questions that an answer repeats claim nothing (S2.11)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.answering.hygiene import text_without_echoes
from raglab.answering.support import WordSupport
from raglab.live.response import check_answer
from raglab.values import Chunk, Generation

SECTION = ("Dependency Injection", "Limit dependency concurrency")
TEXT = (
    "Use the limit argument to bound how many dependencies run at once. The hotel limit in Berlin "
    "is 150 euros."
)
CHUNK = Chunk("a#1", TEXT, "a.md", section=SECTION)
QUESTION = "What is the hotel limit in Hamburg?"


class Saying:
    """Generator that says one thing."""

    name = "saying"

    def __init__(self, text):
        self.text = text

    def answer(self, question, passages):
        """Its text, whatever is asked."""
        del question, passages
        return Generation(self.text, 0.625)


def checked(text, question=QUESTION, chunk=CHUNK):
    """An answer of one passage, checked."""
    return check_answer(question, [chunk], Saying(text), WordSupport())


@pytest.mark.parametrize(
    "text",
    [
        # SmolLM2's
        (
            "Dependency Injection > Limit dependency concurrency\n\nWhat is the hotel limit in "
            "Hamburg?"
        ),
        "Dependency Injection > Limit dependency concurrency",
        "- Dependency Injection > Limit dependency concurrency",
        "Question: what is the hotel limit in Hamburg",
        "Answer: Dependency Injection › Limit dependency concurrency",
    ],
)
def test_an_answer_of_headings_and_question_alone_has_no_support(text):
    """It claims nothing, so it does not pass; its text is that of the generator."""
    answer = checked(text)
    assert (np.isnan(answer.support), answer.claim, answer.refused) == (True, "", "")
    assert answer.text == text


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (
            (
                "Dependency Injection > Limit dependency concurrency\nThe hotel limit in Berlin is "
                "150 euros."
            ),
            "The hotel",
        ),
        (
            "What is the hotel limit in Hamburg? The hotel limit in Berlin is 150 euros.",
            "The hotel",
        ),
        # a heading alone may be the name that was asked for
        ("Limit dependency concurrency", "Limit"),
        ("- Dependency Injection\n- Limit dependency concurrency", "Dependency"),
        ("Hotels > Limit dependency concurrency", "Hotels"),  # no heading of the passages
        ("Revenue > 150 euros", "Revenue"),
    ],
)
def test_what_states_something_keeps_its_claims(text, claim):
    """Only lines that are an echo as a whole go."""
    assert checked(text).claim.startswith(claim)


def test_a_path_in_a_passage_without_sections_is_one_too():
    """Where chunks came from elsewhere the path is the first line of their text."""
    chunk = Chunk("a#1", f"Dependency Injection > Limit dependency concurrency\n{TEXT}", "a.md")
    assert np.isnan(
        checked("Dependency Injection > Limit dependency concurrency", chunk=chunk).support
    )


def test_what_the_passage_states_may_be_said_in_the_words_of_the_question():
    """A statement to be checked, and a passage that holds it as a sentence."""
    statement = "The hotel limit in Berlin is 150 euros"
    assert checked(f"{statement}.", statement).support == 1.0
    assert np.isnan(checked("Hotel limit Hamburg", "hotel limit hamburg").support)


def test_code_stays():
    """Also a line of it that repeats a heading."""
    code = (
        "```\nLimit dependency concurrency\n```\nDependency Injection > Limit dependency "
        "concurrency"
    )
    assert (
        text_without_echoes(code, QUESTION, [CHUNK]) == "```\nLimit dependency concurrency\n```\n"
    )


@given(
    st.lists(
        st.sampled_from(["The limit is 150.", "", "Ask HR.", "a > b", " x", "1. One"]), max_size=6
    )
)
def test_without_an_echo_the_answer_is_the_same(lines):
    """To the letter; and what was taken out once is not taken out twice."""
    answer = "\n".join(lines)
    assert text_without_echoes(answer, QUESTION, [CHUNK]) is answer
    less = text_without_echoes(f"{answer}\n{QUESTION}\n{' > '.join(SECTION)}", QUESTION, [CHUNK])
    assert less == f"{answer}\n\n"
    assert text_without_echoes(less, QUESTION, [CHUNK]) == less
