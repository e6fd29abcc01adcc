"""How near an answer comes to a gold answer (raglab.text)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.text import answer_recall, content_terms, exact_match, normalise_answer, token_f1

LAWFUL = settings(deadline=None, derandomize=True, max_examples=200)
TEXTS = st.text("aA thé£1,.0\u00a0-'", max_size=30)


def test_normalising_is_squads() -> None:
    """Lower case, ASCII punctuation gone without a blank, articles gone as words only, blanks one."""
    assert normalise_answer("  The U.S.A.'s  an-archist, A theatre!") == "usas anarchist theatre"
    assert normalise_answer("« l'été » – 5 %") == "« lété » – 5"


def test_exact_match_is_with_any_gold() -> None:
    """`10th century` is the second gold, `10th` is none."""
    golds = ["in the 10th century", "10th century"]
    assert exact_match("The 10th century.", golds)
    assert not exact_match("10th", golds)


def test_without_golds_only_no_answer_matches() -> None:
    """As SQuAD 2.0 scores an unanswerable question."""
    assert exact_match("", [])
    assert exact_match("the", [])
    assert not exact_match("Normandy", [])
    assert (token_f1("", []), token_f1("Normandy", [])) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "golds", "f1"),
    [
        ("dukes of Normandy", ["Normandy"], 0.5),  # precision 1/3, recall 1
        ("Normandy Normandy", ["Normandy"], 2 / 3),  # the second is not in the gold
        ("Rollo", ["Hastings", "the Rollo"], 1.0),
        ("", ["Rollo"], 0.0),
        ("Ragnar", ["Rollo"], 0.0),
    ],
)
def test_f1_of_tokens(answer: str, golds: list[str], f1: float) -> None:
    """Tokens are shared with their repeats; the best gold counts."""
    assert token_f1(answer, golds) == pytest.approx(f1)


@LAWFUL
@given(TEXTS, TEXTS)
def test_f1_is_symmetric_and_one_exactly_for_the_same_tokens(a: str, b: str) -> None:
    """With one gold, which of the two is the answer makes no difference; an exact match has 1."""
    assert token_f1(a, [b]) == token_f1(b, [a])
    assert 0.0 <= token_f1(a, [b]) <= 1.0
    if exact_match(a, [b]):
        assert token_f1(a, [b]) == 1.0


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("£640,000", "640000"), ("187 300 €", "187300"), ("187\u202f300", "187300"), ("7,400,000.50", "7400000.5"),
        ("1 200,50", "1200.5"), ("0.210%", "0.21"), ("0,210", "0.21"), ("14,00", "14"), ("£75k", "75000"),
        ("1st", "1"), ("1er", "1"), ("10th", "10"), ("ten", "10"), ("quinze", "15"), ("01632", "01632"),
    ],
)  # fmt: skip
def test_a_number_has_one_spelling(text: str, term: str) -> None:
    """Marks of thousands, nought decimals, ordinals and words for numbers say nothing."""
    assert content_terms(text) == (term,)


def test_numbers_side_by_side_stay_apart() -> None:
    """A list of years, a phone number, a range: no marks of thousands."""
    assert content_terms("2024, 2025") == ("2024", "2025")
    assert content_terms("01632 960533") == ("01632", "960533")
    assert content_terms("2,500 and 15,000") == ("2500", "15000")


def test_words_lose_case_accents_and_function_words() -> None:
    """`dès` and `été` fold into function words of French, as they are typed by many."""
    assert content_terms("La Déclaration of the CLAIM") == ("declaration", "claim")


def test_recall_counts_what_the_gold_says() -> None:
    """Of excess, 1200, per, loss the answer has two; what it says besides does not matter."""
    assert answer_recall("Storm excess: GBP 1 200, from April.", "excess £1,200 per loss") == 0.5
    assert answer_recall("A B C", "c b a a") == 1.0
    assert answer_recall("", "excess") == 0.0


def test_recall_of_a_gold_without_content_is_missing() -> None:
    """Nothing asked is not everything found."""
    assert np.isnan(answer_recall("yes", "it is"))


@LAWFUL
@given(TEXTS, TEXTS)
def test_saying_more_never_lowers_recall(gold: str, more: str) -> None:
    """An answer that holds the gold and something else has all of it."""
    found = answer_recall(f"{gold} ; {more}", gold)
    assert np.isnan(found) or found == 1.0
