"""Sentences, list items and table rows of a passage (raglab.words.text)."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.words.answer_terms import (
    answer_recall,
    content_terms,
    exact_match,
    normalise_answer,
    token_f1,
)
from raglab.words.canonical import decimals
from raglab.words.text import Piece, pieces, sentence_ends, sentences

LAWFUL = settings(deadline=None, derandomize=True, max_examples=200)
PASSAGE = """Acme Home — Schedule > Limits and excesses
The sums below apply per loss. Art. 12
of the wording stays in force.

| Peril | Excess |
|:---|---:|
| Storm | £400 |
| Flood \\| surge | |

- Keys: up to
  £600
- Locks: up to £250
1. Ring us on 01632 960 100.
"""


def test_a_passage_of_every_kind():
    """Heading, prose over a line's end, table with a head, list items.

    Each is one, marks are gone.
    """
    assert sentences(PASSAGE) == [
        "Acme Home — Schedule > Limits and excesses",
        "The sums below apply per loss.",
        "Art. 12 of the wording stays in force.",
        "Peril; Excess",
        "Storm; £400",
        "Flood | surge",
        "Keys: up to £600",
        "Locks: up to £250",
        "Ring us on 01632 960 100.",
    ]


def test_lines_that_begin_with_bold_labels_are_pieces():
    """One after another; a line that happens to begin so goes on."""
    assert sentences("**Item** T2-610/S\n**Made by** Kestrel BV") == [
        "Item T2-610/S",
        "Made by Kestrel BV",
    ]
    wrapped = "We have never paid for what the storm left\n**Ever** do so."
    assert sentences(wrapped) == ["We have never paid for what the storm left Ever do so."]


def test_a_table_without_a_head_has_rows_alone():
    """Nothing is taken for a head where no line of dashes follows.

    A second table does not get the first one's.
    """
    cut = pieces("| A | 1 |\n| B | 2 |\n\n| X | Y |\n|---|---|\n| C | 3 |\n\n| D | 4 |")
    assert [(piece.kind, piece.heads) for piece in cut] == [
        ("row", ()),
        ("row", ()),
        ("head", ()),
        ("row", ("X", "Y")),
        ("row", ()),
    ]


def test_a_row_with_other_cells_than_its_head_has_no_heads():
    """Which cell would stand under which head cannot be known."""
    assert pieces("| X | Y |\n|---|---|\n| one | two | three |")[1].heads == ()


@pytest.mark.parametrize(
    "whole",
    [
        "Mr. Smith and Dr. Jones met at No. 5 St. James Street.",
        "It was founded c. 1450 by J. R. Smith Jr. of Bath.",
        "The U.S. Senate sat until 3 p.m. Monday.",
        "Tools, e.g. Hammers, cost approx. 30 pounds.",
        "Voir art. 12, al. 2 du contrat de M. Durand et Mme. Petit.",
        "Trinity-St. Paul's Church is old.",
        "Version 2.1 costs £3.50 per day.",
        "Filtre, Réf. OR-310, ou Cat. No. 12-B, voir Art. 5.",
    ],
)
def test_full_stops_inside_a_sentence_do_not_end_it(whole):
    """Abbreviations, initials and decimals go on."""
    assert sentences(whole) == [whole]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("It is hard for C. This means much.", "It is hard for C."),
        ("Use it at 5 to 40 °C. Moisture is less.", "Use it at 5 to 40 °C."),
        ("It draws 40 W. Charge it.", "It draws 40 W."),
        ("Pet the cat. Twelve Oaks is old.", "Pet the cat."),
        ("He wrote on art. The museum shows it.", "He wrote on art."),
        ("They won.[citation needed] Nobody knew.", "They won.[citation needed]"),
        ('"Stop!" She left.', '"Stop!"'),
        ("La prime est due. À défaut, rien.", "La prime est due."),
        ("Elle dit : « Non ! » Œuvres exclues.", "Elle dit : « Non ! »"),
        ("Łódź fell. Święto came.", "Łódź fell."),
        ("Ring us. £400 is due.", "Ring us."),
        ("Each is lined. (b) Each is checked.", "Each is lined."),
        ("**Keys.** Locks are paid.", "Keys."),
        ("**Insured:** you pay. *Lessor*: the owner.", "Insured: you pay."),
    ],
)
def test_sentences_end_where_they_end(text, first):
    """Before capitals of any alphabet, sums and lettered items.

    After notes, quotes and doubtful full stops.
    """
    cut = sentences(text)
    assert cut[0] == first
    assert len(cut) == 2


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("the wing stalls . it is thin .", ["it is thin ."]),
        ("the flow of dr . smith is shown . see fig . 3 of it .\n", ["see fig . 3 of it .\n"]),
        ("tested at mach 2.5 , e.g. here . 12 wings were made .", ["12 wings were made ."]),
        ("le vent souffle . il tombe .\nla fin .", ["il tombe .\nla fin .", "la fin ."]),
        ("wait . . . it stops . it is over .", ["it is over ."]),
        # this text writes no stop apart from its word
        ("Run pip install . in it. Then stop.", ["Then stop."]),
        ("`git add . && git commit` does it.", []),
    ],
)
def test_a_full_stop_between_blanks_ends_a_sentence_of_a_parted_text(text, starts):
    """Whatever follows, where the text ends with such a stop too.

    Abbreviations go on as elsewhere.
    """
    assert [text[start:] for _, start in sentence_ends(text)] == starts


def test_a_short_first_line_is_a_heading_and_a_wrapped_one_is_not():
    """A title stops well short of the lines below it; a line broken for want of room does not."""
    body = "The excess is four hundred pounds for every loss by storm, and it is due at once."
    assert sentences(f"Home Policy\n{body}") == ["Home Policy", body]
    wrapped = "The excess is four hundred pounds in the\nNorth Sea and nowhere else."
    assert sentences(wrapped) == [wrapped.replace("\n", " ")]


def test_a_path_is_a_heading_however_long():
    """The first line of a Markdown chunk is the path of its headings, numbered ones among them."""
    text = "Cargo Schedule > 9. Special conditions of this contract\nNone."
    assert sentences(text) == ["Cargo Schedule > 9. Special conditions of this contract", "None."]


@pytest.mark.parametrize(
    "below",
    [
        "A nest is safe.",
        "`take` returns an egg.",
        "- at most 3",
        "| a | b |",
        "```\nls\n```",
        "---\n\nIt is so.",
    ],
)
def test_a_short_first_line_is_not_glued_to_what_follows(below):
    """A sentence by itself, code, a list, a table or a line below it.

    The heading is not glued to any of them.
    """
    assert pieces(f"Safety of a nest\n{below}")[0] == Piece("Safety of a nest", "heading")


def test_code_is_one_piece_letter_by_letter():
    """Emphasis, headings, tables, lists and comments inside of it are code.

    Those outside are not.
    """
    code = "```python\n# no heading\ndef f(*a, **k):\n\n    | x | <!-- y -->\n- **z**\n```"
    assert [
        (piece.kind, piece.text)
        for piece in pieces(f"**Run** it:\n{code}\nThen <!-- not --> rest.")
    ] == [
        ("prose", "Run it:"),
        ("code", code),
        ("prose", "Then  rest."),
    ]


def test_what_stands_in_a_comment_is_left_out():
    """On one line, on several, with code in it, and where it is never closed."""
    assert sentences("It is so. <!-- Not so. -->\n<!--\nNor so.\n```\nls\n```\n-->\nNow.") == [
        "It is so.",
        "Now.",
    ]
    assert sentences("It is so.\n\n<!-- never closed\n\nNot so.") == ["It is so."]


def test_an_underlined_line_is_a_heading_and_a_rule_is_none():
    """Of equals signs or dashes, below a line that is its own paragraph and no whole sentence."""
    assert [
        piece.kind
        for piece in pieces("It is so. It was.\n\nNext\n----\n\nMore.\n\nLast\n====\nEnd.")
    ] == [
        "prose",
        "prose",
        "heading",
        "prose",
        "heading",
        "prose",
    ]
    assert "heading" not in {
        piece.kind for piece in pieces("It is so.\n---\nMore.\n\nOne\ntwo\n---\nThree.")
    }


@LAWFUL
@given(st.text('Ab1 .!?\n|#*->(é£[]"', max_size=80))
def test_no_sentence_is_empty_and_none_is_invented(text):
    """Each sentence always has something in it, and its letters are the passage's, in order."""
    cut = sentences(text)
    assert all(sentence.strip() for sentence in cut)
    letters = [c for c in text if c.isalnum()]
    assert [c for sentence in cut for c in sentence if c.isalnum()] in (
        letters,
        _without_list_numbers(text),
    )


def _without_list_numbers(text):
    import re

    return [
        c
        for line in text.splitlines()
        for c in re.sub(r"^\s*\d{1,2}[.)]\s+", "", line)
        if c.isalnum()
    ]


@pytest.mark.parametrize("unit", ["A. ", "**a", '"', ". [", "| ", "(a) ", "- a\n", "\n\n", "Mr. "])
def test_time_is_linear_in_the_text(unit):
    """Fifty thousand of anything are cut within two seconds."""
    start = time.process_time()
    sentences(unit * 50_000)
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("value", "beside", "words"),
    [
        (0.662547, None, "0.6625"),
        (100 * 0.27, 40.0, "27"),  # 27.000000000000004
        (78.00304, 40.0, "78.0030"),  # a zero that says that more follows
        (0.69996, 0.7, "0.69996"),
        (0.7, 0.7, "0.7"),
        (float(np.nextafter(0.7, 0.0)), 0.7, "0.6999999999999998"),
        (-1e-9, None, "0.0000"),
        (float("nan"), 0.7, "missing"),
        (float("-inf"), None, "−∞"),
    ],
)
def test_a_measurement_in_words(value, beside, words):
    """Four decimals, more if it would read like what it is compared with.

    No digit of arithmetic.
    """
    assert decimals(value, beside) == words


@settings(deadline=None, derandomize=True)
@given(st.floats(-100.0, 100.0), st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 3e-5, 0.2, 1.0]))
def test_two_numbers_read_apart_and_in_order(value, apart):
    """Whatever is below a threshold reads as below it: never "0.7000 is below 0.7000"."""
    above = value + apart
    low, high = decimals(value, above), decimals(above, value)
    assert (float(low) < float(high)) == (value < above)
    assert abs(float(low) - value) <= 5.01e-5


LAWFUL_ANSWERS = settings(deadline=None, derandomize=True, max_examples=200)
TEXTS = st.text("aA thé£1,.0\u00a0-'", max_size=30)


def test_normalising_is_squads():
    """Lower case, ASCII punctuation gone with no blank, whole-word articles gone, single blanks."""
    assert normalise_answer("  The U.S.A.'s  an-archist, A theatre!") == "usas anarchist theatre"
    assert normalise_answer("« l'été » – 5 %") == "« lété » – 5"


def test_exact_match_is_with_any_gold():
    """`10th century` is the second gold, `10th` is none."""
    golds = ["in the 10th century", "10th century"]
    assert exact_match("The 10th century.", golds)
    assert not exact_match("10th", golds)


def test_without_golds_only_no_answer_matches():
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
def test_f1_of_tokens(answer, golds, f1):
    """Tokens are shared with their repeats; the best gold counts."""
    assert token_f1(answer, golds) == pytest.approx(f1)


@LAWFUL_ANSWERS
@given(TEXTS, TEXTS)
def test_f1_is_symmetric_and_one_exactly_for_the_same_tokens(a, b):
    """With one gold, which of the two is the answer makes no difference; an exact match has 1."""
    assert token_f1(a, [b]) == token_f1(b, [a])
    assert 0.0 <= token_f1(a, [b]) <= 1.0
    if exact_match(a, [b]):
        assert token_f1(a, [b]) == 1.0


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("£640,000", "640000"),
        ("187 300 €", "187300"),
        ("187\u202f300", "187300"),
        ("7,400,000.50", "7400000.5"),
        ("1 200,50", "1200.5"),
        ("0.210%", "0.21"),
        ("0,210", "0.21"),
        ("14,00", "14"),
        ("£75k", "75000"),
        ("1st", "1"),
        ("1er", "1"),
        ("10th", "10"),
        ("ten", "10"),
        ("quinze", "15"),
        ("01632", "01632"),
    ],
)
def test_a_number_has_one_spelling(text, term):
    """Marks of thousands, nought decimals, ordinals and words for numbers say nothing."""
    assert content_terms(text) == (term,)


def test_numbers_side_by_side_stay_apart():
    """A list of years, a phone number, a range: no marks of thousands."""
    assert content_terms("2024, 2025") == ("2024", "2025")
    assert content_terms("01632 960533") == ("01632", "960533")
    assert content_terms("2,500 and 15,000") == ("2500", "15000")


def test_words_lose_case_accents_and_function_words():
    """`dès` and `été` fold into function words of French, as they are typed by many."""
    assert content_terms("La Déclaration of the CLAIM") == ("declaration", "claim")


def test_recall_counts_what_the_gold_says():
    """Of excess, 1200, per, loss the answer has two; what it says besides does not matter."""
    assert answer_recall("Storm excess: GBP 1 200, from April.", "excess £1,200 per loss") == 0.5
    assert answer_recall("A B C", "c b a a") == 1.0
    assert answer_recall("", "excess") == 0.0


def test_recall_of_a_gold_without_content_is_missing():
    """Nothing asked is not everything found."""
    assert np.isnan(answer_recall("yes", "it is"))


@LAWFUL_ANSWERS
@given(TEXTS, TEXTS)
def test_saying_more_never_lowers_recall(gold, more):
    """An answer that holds the gold and something else has all of it."""
    cut = answer_recall(f"{gold} ; {more}", gold)
    assert np.isnan(cut) or cut == 1.0
