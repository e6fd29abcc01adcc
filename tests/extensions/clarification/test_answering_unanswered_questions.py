"""Questions that the gates refuse and that say too little: what is asked back, and what stays refused."""

import pytest

from raglab.extensions.clarification.question_parsing import parse
from raglab.extensions.clarification.question_vocabulary import Failure, build_vocabulary
from raglab.extensions.clarification.unanswered_questions import is_likely_stated, unanswered_gap
from raglab.packs import GENERIC
from raglab.values import Chunk

PAGES = (
    Chunk("a#1", "Loom > Threading\nPass the warp through each eye. Then tie it to the bar.", "a.md", 1),
    Chunk("a#2", "Loom > Oiling\nOil the shafts twice a year.", "a.md", 2),
    Chunk("a#3", "Loom > People\nRepairs: Ada Brook, 01632 960 111.\n\nOrders: Tom Hale, 01632 960 222.", "a.md", 3),
)


def gap(question: str, *, documents: tuple[str, ...] = ("a.md",), pages: tuple[Chunk, ...] = PAGES) -> Failure | None:
    """What a refused question leaves out, without an encoder."""
    parsed = parse(question, build_vocabulary(PAGES), documents=documents)
    return unanswered_gap(parsed, question, pages, 0.6, GENERIC)


@pytest.mark.parametrize(
    "question",
    [
        "Give me the steps on the page.",
        "Sum up this page for me",
        "Which lengths are in that section?",
        "Tu peux me résumer la page ?",
        "Quelles durées donne cette page ?",
    ],
)
def test_a_part_that_is_pointed_at_is_asked_for(question: str) -> None:
    """A page or section without a name may be any of several."""
    found = gap(question)
    assert found is not None
    assert (found.kind, found.candidates) == ("page_scope", ("Threading", "Oiling", "People", "document"))
    assert "Threading" in found.question_to_user


@pytest.mark.parametrize(
    "question",
    ["Sum up page 2", "What does the page on oiling say?", "Résume la page 2", "Résume la page sur la trame"],
)
def test_a_part_that_is_named_is_not_asked_for(question: str) -> None:
    """A number or a subject says which page is meant."""
    assert gap(question) is None


def test_a_page_that_is_pinned_or_alone_leaves_nothing_open() -> None:
    """A pinned page, a single one, and no document at all leave no choice."""
    assert gap("Sum up this page for me", documents=("a.md#2",)) is None
    assert gap("Sum up this page for me", pages=PAGES[:1]) is None
    assert gap("Sum up this page for me", documents=()) is None


@pytest.mark.parametrize("question", ["Who should I ask for?", "Je cherche le numéro de téléphone."])
def test_whom_to_turn_to_is_asked_back_where_contacts_are_stated(question: str) -> None:
    """One unknown word may be the verb of asking; without a contact nothing is asked."""
    found = gap(question)
    assert found is not None
    assert found.candidates == ("People", "document")
    assert gap(question, pages=PAGES[:2]) is None  # nobody is named


@pytest.mark.parametrize(
    "question",
    [
        "Who won the chess tournament in Norway?",  # of another matter
        "Who repairs the Jacquard attachment?",  # the documents have no such thing
        "How much is the loom?",  # no contact
    ],
)
def test_what_the_documents_do_not_have_stays_refused(question: str) -> None:
    """Another matter is refused, whatever contacts are stated."""
    assert gap(question) is None


def test_a_field_is_likely_stated_where_a_line_has_its_value() -> None:
    """A field that readers abstain on is worth asking about only where a line may state it."""
    assert is_likely_stated("phone", "Repairs: which number do I ring for repairs?", PAGES, GENERIC)
    assert not is_likely_stated("phone", "Repairs: which number do I ring for repairs?", PAGES[:2], GENERIC)
    assert not is_likely_stated("phone", "Which number do I ring?", (), GENERIC)
