"""Reflection and rewriting: worked examples first, then what holds for every step."""

from __future__ import annotations

import pytest

from effort import lines_run
from raglab.retrieval.rewriting import rm3, uncovered
from raglab.store.loaders import load_corpus
from trades import BROKER

TEXTS = (
    "Hail breaks glass. Hail breaks tiles.",
    "Glass is insured against hail and theft.",
    "Theft from a van is insured overnight.",
    "The van stands in a locked yard overnight.",
    "Rain is wet.",
    "Fog is grey.",
)

QUESTION = "How long may the house be empty before theft is excluded?"


class TestUncovered:
    """What hits lack of a question."""

    def test_by_head(self):
        """Two of four content words, then one."""
        question = "Is hail on glass insured in Wales?"
        assert uncovered(question, TEXTS[:1]) == ["insured", "wales"]
        assert len(uncovered(question, TEXTS[:2])) == 1

    def test_words_are_compared_by_their_beginnings(self):
        """`insurer` is covered by `insured`."""
        assert uncovered("Which insurer?", ["All is insured."]) == []
        assert uncovered("l'assurée", ["les assurés"]) == []

    def test_a_name_is_covered_by_one_passage_or_not_at_all(self):
        """The words of a name in two passages are not the name."""
        question = "the rate of Crédit des Alpes"
        assert uncovered(question, ["Crédit à 3 %.", "Les Alpes, rate 4 %."]) == [
            "crédit des alpes"
        ]
        assert uncovered(question, ["Le taux (rate) du Crédit des Alpes"]) == []

    def test_a_code_is_one_thing(self):
        """So is an amount with its thousands grouped; the two halves of a number are not it."""
        assert uncovered("policy NM-FG-4417?", ["policy NM-FG-9000, page 4417"]) == ["nm fg 4417"]
        assert uncovered("a loss of £7,500", ["a loss above 7500"]) == []
        assert uncovered("a loss of £7,500", ["7 of 500 a loss"]) == ["7500"]

    def test_in_the_question_s_order_and_each_once(self):
        """Names stand where they are named; no hits cover nothing."""
        lacking = uncovered("Does hail or Acme Mutual, or hail, cover rain?", [])
        assert lacking == ["hail", "acme mutual", "cover", "rain"]
        assert uncovered("what is it?", []) == []


class TestRm3:
    """Pseudo-relevance feedback."""

    def test_by_head(self):
        """From the first passage: `breaks` occurs twice there and nowhere else, then what is rare.

        `tiles`, `glass`.
        """
        assert rm3(TEXTS, terms=3).rewrite("hail?", TEXTS[:1], 1) == "hail? breaks tiles glass"

    def test_a_likely_passage_is_believed_more(self):
        """Of two equally long passages, the one with the question's words gives its words first."""
        texts = ("alpha beta gamma delta", "alpha omega kappa sigma", *TEXTS)
        added = rm3(texts, terms=3).rewrite("alpha beta", texts[:2], 1).split()[2:]
        assert set(added[:2]) == {"gamma", "delta"}
        assert added[2] in {"omega", "kappa", "sigma"}

    def test_step_1_reads_the_first_passages_alone(self):
        """What stands further down does not change it."""
        rewriter = rm3(TEXTS, passages=2)
        assert rewriter.rewrite("hail", TEXTS, 1) == rewriter.rewrite("hail", TEXTS[:2], 1)

    def test_step_2_reads_what_holds_the_missing_words(self):
        """`van` is in neither of the first two passages.

        The two that hold it speak of a yard and of the night.
        """
        rewriter = rm3(TEXTS, passages=2, terms=2)
        assert "yard" not in rewriter.rewrite("theft glass van", TEXTS, 1)
        assert set(rewriter.rewrite("theft glass van", TEXTS, 2).split()[3:]) == {
            "overnight",
            "stands",
            "locked",
            "yard",
        }

    @pytest.mark.parametrize("passages", [(), ("",), ("the of and",), ("hail",), ("12 £400 3%",)])
    def test_the_question_as_it_came_where_nothing_can_be_added(self, passages):
        """Character for character: no passages, no words, no other words, figures alone."""
        for step in (1, 2, 3):
            assert rm3(TEXTS).rewrite("  Hail?\n", passages, step) == "  Hail?\n"

    def test_figures_and_function_words_are_not_added(self):
        """Another hit's amounts lead astray; function words lead nowhere."""
        text = "The excess of the policy is £400 for hail, and 25 days."
        assert rm3((text, *TEXTS)).rewrite("hail", [text], 1) == "hail days excess policy"

    def test_of_a_word_s_forms_the_most_frequent_is_added_once(self):
        """`breaks`, `breaking` and `break` are one word.

        A form of the question's own words is none.
        """
        text = "breaking ice breaks, breaks, breaks"
        assert rm3((text, *TEXTS)).rewrite("iced tiles", [text], 1) == "iced tiles breaks ice"
        assert rm3((text, *TEXTS)).rewrite("ice breakage", [text], 1) == "ice breakage"

    def test_takes_little_work(self):
        """Twenty hits of the bundled corpus: no more lines of Python than twice their letters."""
        texts = [chunk.full_text for chunk in load_corpus(BROKER).chunks]
        rewriter = rm3(texts)
        for step in (1, 2, 3):
            work = lines_run(lambda step=step: rewriter.rewrite(QUESTION, texts[:20], step))
            assert work < 2 * len("".join(texts[:20]))
