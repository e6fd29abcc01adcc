"""Buttons in a notebook: what a click says is what `reply` is told."""

from __future__ import annotations

import html
import shutil

import pytest

from broker_documents import COVER, ENGLISH, FRENCH, OPEN, QUI, START, WHO
from raglab.live.ask import ask
from raglab.live.notebook_buttons import buttons
from raglab.live.response import Response
from raglab.live.system import System
from raglab.store.policies import Policy
from raglab.words.text import NO_MATH


@pytest.fixture
def system(tmp_path, indexed):
    """Return a system that clarifies."""
    shutil.copytree(indexed, tmp_path / "i")
    return System.open(tmp_path / "i", policy=Policy.from_mapping(OPEN), clarify=True, cache=False)


def parts(box):
    """Question, buttons by what they say, the field for other words, and the output."""
    head, row, other, shown = box.children
    own, send = other.children
    return head, {one.description: one for one in (*row.children, send)}, own, shown


def test_a_button_each_for_what_can_be_said(system):
    """Yes, no, every other value, and a field for the rest, in the question's language."""
    said = ask(QUI, system=system, documents=[FRENCH], now=START)
    head, row, own, _ = parts(buttons(said, system=system))
    assert (
        head.value
        == f'<span class="{NO_MATH}">{html.escape(said["clarification"]["question_to_user"])}</'
        "span>"
    )
    assert list(row) == ["Oui", "Non", "tout le document", "Autre"]
    assert own.placeholder == "avec vos mots"
    english = ask(WHO, system=system, documents=[ENGLISH], now=START)
    assert list(parts(buttons(english, system=system))[1])[:2] == ["Yes", "No"]


def test_no_leaves_the_buttons_that_are_left(system):
    """What was declined has none any more."""
    box = buttons(
        ask("What is the excess?", system=system, documents=[COVER], now=START), system=system
    )
    before = list(parts(box)[1])
    parts(box)[1]["No"].click()
    after = list(parts(box)[1])
    assert len(after) == len(before) - 1
    assert set(after) < set(before)


@pytest.mark.parametrize("label", ["No", "Yes"])
def test_the_second_click_of_two_says_nothing(system, label):
    """It comes to a button that is gone: no vote, and what the first led to stays."""
    box = buttons(
        ask("What is the excess?", system=system, documents=[COVER], now=START), system=system
    )
    button = parts(box)[1][label]
    button.click()
    assert system.audit is not None
    shown, votes = box.children[-1].outputs, system.audit.rows()[0].candidate_votes
    button.click()
    assert (box.children[-1].outputs, system.audit.rows()[0].candidate_votes) == (shown, votes)
    assert len(votes) == 1


@pytest.mark.parametrize("label", ["Oui", "tout le document"])
def test_a_click_answers(system, label):
    """The answer stands where the buttons were, and goes to whoever waits for it."""
    got: list[Response] = []
    box = buttons(
        ask(QUI, system=system, documents=[FRENCH], now=START), system=system, on_answer=got.append
    )
    _, row, _, shown = parts(box)
    row[label].click()
    assert got[0]["status"] == "ok"
    assert "Response" in shown.outputs[0]["data"]["text/plain"]
    assert "<table class=" in shown.outputs[0]["data"]["text/html"]
    assert len(box.children) == 2


def test_other_words_and_a_reply_that_is_refused(system):
    """What is no reply is said, and the buttons stay."""
    box = buttons(ask(QUI, system=system, documents=[FRENCH], now=START), system=system)
    _, row, own, shown = parts(box)
    row["Autre"].click()
    assert "1 to 200 characters" in shown.outputs[0]["text"]
    assert len(box.children) == 4
    own.value = "page 1"
    row["Autre"].click()
    assert f"{FRENCH}#1" in shown.outputs[-1]["data"]["text/html"]


def test_a_response_that_asks_nothing(system):
    """Has no buttons."""
    with pytest.raises(ValueError, match="need a response that asks"):
        buttons(ask("weather", system=system, now=START), system=system)
