"""The compressor: by hand first, then what holds for every passage."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.answering.compression import compress, cut_passage, join_pieces, words_as_tokens
from raglab.values import Chunk
from raglab.words.text import sentences

STORM = "Storm and flood are covered. The storm excess is £400. Ask your broker."
TABLE = (
    "# Excesses\n\nAll amounts are in GBP.\n\n| Peril | Excess |\n|---|---|\n| Storm | 400 |\n| "
    "Theft | 250 |"
)


def chunk(number, text):
    """Passage with everything that must come through."""
    return Chunk(
        f"a.md#{number}",
        text,
        "docs/a.md",
        number + 1,
        str(number + 1),
        {"domain": "home"},
        ("fleet",),
    )


def texts(question, *passages, **more):
    """Texts that are left of passages."""
    found = compress(question, [chunk(n, text) for n, text in enumerate(passages, 1)], **more)
    return [one.text for one in found.passages]


class TestByHand:
    """Worked examples."""

    def test_the_sentence_that_answers(self):
        """Five words are seven tokens.

        The one sentence that fits is the one with both words and a sum.
        """
        found = compress("How much is the storm excess?", [chunk(1, STORM)], budget=7)
        assert found.passages == (chunk(1, "The storm excess is £400."),)
        assert found.positions == ((1,),)
        assert found.tokens == words_as_tokens("The storm excess is £400.") == 7

    def test_what_carries_nothing_goes(self):
        """Though there is room, a sentence far from the question's words is left out."""
        text = (
            "The storm excess is £400. It rose in May. Our office has a garden. Dogs are welcome. "
            "Tea is served."
        )
        assert texts("storm excess", text) == ["The storm excess is £400. It rose in May."]

    def test_a_table_keeps_its_head_and_its_heading(self):
        """A row alone would not say what 400 is."""
        assert texts("What is the storm excess?", TABLE, budget=20) == [
            "# Excesses\n\n| Peril | Excess |\n|---|---|\n| Storm | 400 |"
        ]

    def test_a_list_item_keeps_the_line_that_turns_it(self):
        """`Not covered:` turns what follows it."""
        text = "Covered:\n- theft\n- fire\n\nNot covered:\n- flood by the sea\n- war"
        assert texts("Is flood covered?", text, budget=8) == ["Not covered:\n\nflood by the sea"]

    def test_an_answer_of_one_word_keeps_its_question(self):
        """A line that leads on is not kept for its own sake."""
        text = (
            "Is flood by the sea covered?\n\nNo.\n\nIs the theft of tools insured?\n\nYes, if "
            "they are locked up."
        )
        assert texts("Is flood covered?", text, budget=10) == [
            "Is flood by the sea covered?\n\nNo."
        ]

    def test_another_language(self):
        """A passage that shares no word with the question was chosen for its meaning.

        Its sentences count, last.
        """
        french = "La franchise est de 400 euros. Elle a augmenté."
        assert texts("storm excess", french) == [french]
        assert texts("storm excess", french, "The storm excess is £400.", budget=7) == [
            "The storm excess is £400."
        ]


class TestCited:
    """A cited passage never goes."""

    def test_its_best_sentence_stays_beyond_the_budget(self):
        """Two cited passages at a budget of one token leave a sentence each; the third is gone."""
        other = "The garden is large. Its excess is nil."
        found = compress(
            "storm excess",
            [chunk(1, STORM), chunk(2, other), chunk(3, "The storm.")],
            budget=1,
            keep=(0, 1),
        )
        assert [one.text for one in found.passages] == [
            "The storm excess is £400.",
            "Its excess is nil.",
        ]
        assert found.positions == ((1,), (1,), ())
        assert found.tokens == 7 + 6

    def test_an_empty_passage(self):
        """It has no sentence to leave; cited it stays, else it goes."""
        assert texts("storm", "", "Storm.", keep=(0,)) == ["", "Storm."]
        assert texts("storm", "", "Storm.") == ["Storm."]
        assert compress("storm", []) == ((), (), 0)

    @pytest.mark.parametrize("keep", [(2,), (-1,)])
    def test_a_position_there_is_none_of(self, keep):
        """Says how many there are."""
        with pytest.raises(ValueError, match="positions of the 2 passages"):
            compress("storm", [chunk(1, STORM), chunk(2, STORM)], keep=keep)


class TestSettings:
    """Budget, count and meaning."""

    def test_meaning_finds_what_words_do_not(self):
        """A cosine lifts a sentence without a word of the question over one with it."""

        def meaning(question, said):
            assert question == "deductible for gales"
            return [1.0 if "400" in one else 0.0 for one in said]

        text = "A deductible is what you bear. For storm, it is £400."
        assert texts("deductible for gales", text, budget=8) == ["A deductible is what you bear."]
        assert texts("deductible for gales", text, budget=8, meaning=meaning) == [
            "For storm, it is £400."
        ]


LINES = st.sampled_from(
    [
        *(
            "The excess is £250.",
            "storm",
            "Mr. Bell pays. (a) He may",
            "| Storm | £400 |",
            "| a \\| b |  | c |",
            "|---|",
        ),
        *(
            "| Peril | Excess |\n|---|---|\n| Flood | £9 |",
            "# Excess",
            "## 2. Scope",
            "- flood by the sea",
            "* *never*",
        ),
        *(
            "Not covered:",
            "Is it?",
            "No.",
            "",
            "",
            "Policy > Storm",
            "1. First",
            "> a. b",
            "- 1. x",
            "- | a |",
            "e.g. vans",
        ),
        *(
            "…and so on",
            "La prime est due le 1er mai. Elle",
            "augmente.",
            "#",
            "-",
            "**",
            "| |",
            "§ 3.2 Art. 4",
        ),
    ]
)
PASSAGES = st.lists(LINES, max_size=12).map("\n".join)


class TestAlways:
    """What holds for every passage."""

    @given(text=PASSAGES, places=st.sets(st.integers(0, 20)))
    def test_what_is_put_together_has_the_sentences_that_were_kept(self, text, places):
        """Cut again, it is exactly the pieces kept with what they need, in order."""
        whole = cut_passage(text)
        kept = {at for at in places if at < len(whole.pieces)}
        kept |= {need for at in kept for need in whole.needs[at]}
        if kept < set(range(len(whole.pieces))) and not kept >= set(whole.lines):
            assert sentences(join_pieces(whole, kept)) == [
                sentences(text)[at] for at in sorted(kept)
            ]
        else:
            assert join_pieces(whole, kept) == text

    @given(
        passages=st.lists(PASSAGES, max_size=4),
        budget=st.integers(1, 60),
        keep=st.sets(st.integers(0, 3)),
    )
    @settings(deadline=None, derandomize=True, max_examples=50)
    def test_budget_order_and_citations(self, passages, budget, keep):
        """Within the budget but for what must stay; cited ones are there.

        Tokens and places are those of the texts.
        """
        given_ = [chunk(n, text) for n, text in enumerate(passages)]
        keep = {place for place in keep if place < len(passages)}
        found = compress("How much is the storm excess?", given_, budget=budget, keep=keep)
        least = compress("How much is the storm excess?", given_, budget=1, keep=keep)
        assert found.tokens == sum(words_as_tokens(one.text) for one in found.passages)
        assert found.tokens <= max(budget, least.tokens)
        assert {given_[place].chunk_id for place in keep} <= {
            one.chunk_id for one in found.passages
        }
        numbers = [int(one.chunk_id.rpartition("#")[2]) for one in found.passages]
        assert all(one < other for one, other in pairwise(numbers))
        assert (
            {n for n, kept in enumerate(found.positions) if kept}
            <= set(numbers)
            <= {n for n, kept in enumerate(found.positions) if kept or n in keep}
        )
        for number, one in zip(numbers, found.passages, strict=True):
            assert one._replace(text="") == given_[number]._replace(text="")
            assert sentences(one.text) == [
                sentences(passages[number])[at] for at in found.positions[number]
            ]

    def test_the_same_in_two_processes(self):
        """Nothing hangs on the order of hashes."""
        code = (
            "from raglab.answering.compression import compress\nfrom raglab.values import Chunk\n"
            f"text = {STORM!r} * 5\n"
            "print(compress('storm excess flood', [Chunk(str(n), text, 'a') for n in range(4)], "
            "budget=60))"
        )
        runs = {
            subprocess.run(
                [sys.executable, "-c", code],
                env={"PYTHONHASHSEED": str(seed)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in (1, 2)
        }
        assert len(runs) == 1
