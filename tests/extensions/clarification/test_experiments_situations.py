"""What `experiments/situations.py` counts, by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import raglab
from raglab.live.response import Response, ResponseFields, ResponseRecord
from raglab.values import Status

ROOT = Path(raglab.__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    """Return the script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT / "experiments")])
        yield importlib.import_module("situations")
    del sys.modules["situations"]


def asking(*texts):
    """Return a response that offers these readings, valued by their numbers in letters."""
    values = ["one", "two", "three"][: len(texts)]
    options = [
        {"id": n, "value": v, "text": t}
        for n, (v, t) in enumerate(zip(values, texts, strict=True), 1)
    ]
    answer = ResponseFields(
        status=Status.ambiguous, options=tuple(options), clarification={"proposed": "one"}
    )
    return Response(answer, ResponseRecord({}, answer_cache_hit=False, strategy_cache_hit=False))


@pytest.mark.parametrize(
    ("text", "wanted", "held"),
    [
        ("The excess is £250.", "£250", True),
        ("The limit is £250,000.", "£250", False),
        ("9\u202f000\u00a0€ par an", "9 000 €", True),
        ("109 000 € par an", "9 000 €", False),
        ("1 500 € par an", "500 €", False),
        ("Mr TOM  Aldridge", "Tom Aldridge", True),
        ("21 days’ notice", "21 days' notice", True),
    ],
)
def test_an_answer_is_held_whole_whatever_its_blanks_and_case(script, text, wanted, *, held):
    """Thin blanks, case and apostrophes do not matter; a part of another figure is no figure."""
    assert script.holds(text, wanted) is held


@pytest.mark.parametrize(
    ("wanted", "offered"),
    [
        ("page 1", True),
        ("page 7", False),
        ("table of contents", True),
        ("sommaire", False),
        ("Table des matières", True),
    ],
)
def test_a_reading_is_offered_by_its_own_words(script, wanted, *, offered):
    """A page is its number; the words that every option has tell nothing.

    Accents and case do not matter.
    """
    assert (
        script.offers(asking("page 1", "the table of contents", "la table des matieres"), wanted)
        is offered
    )


def test_words_that_all_options_share_tell_no_reading(script):
    """`The excess for storm` is not what a user wants who wants the excess for flood."""
    assert script.offers(asking("the excess for storm", "the excess for flood"), "excess for flood")
    assert not script.offers(
        asking("the excess for storm", "the excess for fire"), "excess for flood"
    )
