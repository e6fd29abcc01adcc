"""Which of several values a question may mean.

Times of a sentence, its neighbour, documents, other words.
"""

from __future__ import annotations

import pytest

from raglab.extensions.clarification.field_values import is_quoted
from raglab.extensions.clarification.gap_candidates import clear_statement, unmet
from raglab.extensions.clarification.gaps import find_gaps
from raglab.extensions.clarification.language_words import plain
from raglab.extensions.clarification.question_parsing import (
    parse_question,
    topic_words,
    wanted_kinds,
)
from raglab.extensions.clarification.statements import statements
from raglab.values import Chunk

HIRE = """## Hire charges

A tower costs £40 a day until 31 May 2026 and £46 a day from 1 June 2026.

The delivery fee is £25. Until April 2026 it was £20.

## Cleaning the mixer

1. Unplug it.
2. Rinse the drum.

## Folding the tower

1. Lock the wheels.
2. Lift off the deck.
"""


def gaps(question, text):
    """Gaps of a question to a document."""
    chunks = [Chunk("a", text, "a.md", 1)] if isinstance(text, str) else list(text)
    return find_gaps(parse_question(question, chunks), chunks)


def sections(text):
    """A passage for each section."""
    parts = [part for part in text.split("## ") if part.strip()]
    return [
        Chunk(str(at), part, "a.md", 1, section=(part.splitlines()[0],))
        for at, part in enumerate(parts)
    ]


class TestTimes:
    """Values of one thing at several times."""

    @pytest.mark.parametrize(
        ("question", "values"),
        [("How much does a tower cost?", 2), ("What is the delivery fee?", 2)],
    )
    def test_several_times_are_asked_about(self, question, values):
        """In one sentence, and in the sentence behind that names hardly more than its time."""
        (gap,) = gaps(question, HIRE)
        assert (gap.kind, len(gap.readings)) == ("date_scope", values)

    @pytest.mark.parametrize(
        "question",
        ["What is the delivery fee in 2027?", "How much did the delivery cost in January 2026?"],
    )
    def test_no_gap_where_one_thing_has_one_value(self, question):
        """A value that stands alone is no choice."""
        assert gaps(question, "The delivery fee is £25. The tower is £40.") == ()

    def test_the_neighbour_of_another_matter_is_no_other_time(self):
        """A clause that names more than its time goes on about something else."""
        assert (
            gaps(
                "What is the delivery fee?",
                "The delivery fee is £25. Until May a spare key was £9.",
            )
            == ()
        )


class TestSentences:
    """Values of one sentence go by what is said behind them."""

    def test_label_and_words_behind(self):
        """The label of the first holds for the next."""
        (first, second) = statements(
            [Chunk("a", "Calibration: £54 for jobs of 2025, £58 for jobs of 2026.", "a.md")]
        )[::2]
        assert (first.label, first.head) == ("Calibration", "for jobs of 2025")
        assert (second.label, second.head) == ("Calibration", "for jobs of 2026")

    def test_a_value_that_the_question_names(self):
        """Words behind one of them say which is meant."""
        text = "Court days: £250 a day for a partner, £125 a day for other staff."
        assert gaps("How much a day for a partner?", text) == ()

    @pytest.mark.parametrize(
        "line", ["- décès du conjoint : 6 jours", "Opening\t09:30", "**Deposit:** £40"]
    )
    def test_every_statement_can_be_quoted(self, line):
        """Blanks before a colon, tabs and emphasis as printed."""
        chunk = Chunk("a", line, "a.md")
        made = statements([chunk])
        assert made
        assert all(is_quoted(one.text, [chunk]) is chunk for one in made)


class TestDocuments:
    """Which of several documents."""

    LETTERS = (
        Chunk(
            "a",
            "Your employment begins on 3 May 2025.",
            "a.md",
            1,
            tags={"vendor": "Acorn Vets", "doc_type": "letter"},
        ),
        Chunk(
            "b",
            "Your employment begins on 9 June 2025.",
            "b.md",
            1,
            tags={"vendor": "Birch Council", "doc_type": "letter"},
        ),
    )

    def test_documents_of_two_makers(self):
        """Each has a date for it."""
        gap = gaps("When does the employment begin?", self.LETTERS)[0]
        assert gap.kind == "document"
        assert [reading.value for reading in gap.readings] == [
            "vendor Acorn Vets",
            "vendor Birch Council",
        ]

    def test_a_matter_of_one_of_them(self):
        """Only one speaks of it: nothing is missing."""
        own = (self.LETTERS[0], self.LETTERS[1]._replace(text="Your leave begins on 9 June 2025."))
        assert gaps("When does the employment begin?", own) == ()

    def test_complementary_documents_are_no_choice(self):
        """A contract and a schedule of one maker."""
        made = [
            chunk._replace(tags={"vendor": "Acorn", "doc_type": kind})
            for chunk, kind in zip(self.LETTERS, ("contract", "schedule"), strict=True)
        ]
        assert all(
            gap.kind != "document" or "version" in gap.field
            for gap in gaps("When does the lunch begin?", made)
        )


class TestParsing:
    """Words that mean two things."""

    @pytest.mark.parametrize(
        ("text", "kinds"),
        [
            ("how long am i paid when i'm sick?", {"duration"}),
            ("when does it start?", {"date"}),
            ("how far in advance must i ask?", {"duration"}),
            ("combien d'heures par semaine ?", {"duration"}),
        ],
    )
    def test_kinds(self, text, kinds):
        """`when` that opens a clause asks for no date."""
        assert kinds <= wanted_kinds(text)
        assert ("date" in kinds) == ("date" in wanted_kinds(text))

    def test_notice(self):
        """A paper, or a time."""
        assert topic_words("what notice applies?") == ("notice",)
        assert topic_words("que dit la notice ?") == ()


def dated(year, text, at):
    """A passage of a version of one product."""
    return Chunk(
        at, text, f"{at}.md", 1, tags={"product": "Hire", "vendor": "Lintop", "version": year}
    )


class TestNoMoreThanIsOpen:
    """What a question settles is not asked about, and what it leaves open is not answered."""

    def test_a_title_states_nothing(self):
        """`France` in a title is no answer that a choice among documents could lead to."""
        texts = (
            "The deposit is £90. Capital letters are read.",
            "The deposit is £60. Capital letters are read.",
        )
        chunks = [
            Chunk(
                name,
                text,
                f"{name}.md",
                1,
                section=(f"Hire in France by {name}",),
                tags={"vendor": name},
            )
            for name, text in zip(("Lintop", "Marwell"), texts, strict=True)
        ]
        assert gaps("What is the capital of France?", chunks) == ()
        assert gaps("What is the deposit?", chunks)[0].kind == "document"

    def test_a_title_is_no_part(self):
        """Parts are those below the title."""
        title = Chunk(
            "t",
            "Welcome.",
            "a.md",
            1,
            section=("Hire guide",),
            tags={"title": "Lintop: Hire guide"},
        )
        parts = [title, *sections(HIRE)]
        (gap,) = gaps("What does it say?", parts)
        assert "Hire guide" not in [reading.value for reading in gap.readings]

    def test_versions_are_asked_about_but_for_another_year(self):
        """Two versions state a value under labels that differ; a year before both has neither."""
        chunks = [
            dated(
                "2024",
                "## Hired things\n\n| Item | Sum |\n|---|---|\n| Mixer, any size | £45 |",
                "a",
            ),
            dated("2025", "| Item | Sum |\n|---|---|\n| Mixer | £52 |", "b"),
        ]
        (gap,) = gaps("How much is a hired mixer?", chunks)
        assert (gap.kind, [reading.value for reading in gap.readings]) == (
            "date_scope",
            ["newest", "oldest"],
        )
        assert gaps("How much was the mixer in 2021?", chunks) == ()
        question = parse_question("How much was the mixer in 2024?", chunks)
        other = clear_statement(question, chunks[1:], ())
        assert other is not None  # its price of 2025 is no answer, and there is none
        assert unmet(plain(question.question), other.statement, chunks[1:]) == {"2024"}

    def test_the_column_that_is_named_is_read(self):
        """Not left unasked and unread."""
        table = "| Data | Lintop Duo | Lintop Max |\n|---|---|---|\n| Weight | 14 kg | 19 kg |"
        chunks = [Chunk("a", table, "a.md", 1)]
        question = parse_question("What does the Lintop Max weigh?", chunks)
        clear = clear_statement(question, chunks, ())
        assert clear is not None
        assert clear.statement.value == "19 kg"

    def test_a_word_does_not_tell_values_of_a_sentence_apart(self):
        """A sentence with two amounts answers no question that names one word of it."""
        text = (
            "A quotation may put repair costs in the limit, which for a £1,000 cover may leave "
            "only £650 for hire."
        )
        chunks = [Chunk("a", text, "a.md", 1)]
        assert (
            clear_statement(parse_question("How much are repair costs?", chunks), chunks, ())
            is None
        )

    def test_after_an_event_is_not_during_it(self):
        """Each side has its own answer."""
        text = "During the trial hire the deposit is £20. After the trial hire the deposit is £70."
        chunks = [Chunk("a", text, "a.md", 1)]
        for question, value in (("during", "£20"), ("after", "£70")):
            clear = clear_statement(
                parse_question(f"What is the deposit {question} the trial hire?"), chunks, ()
            )
            assert clear is not None
            assert clear.statement.value == value

    def test_roles_of_either_gender_are_meant(self):
        """`assuré` means the `assurée` too."""
        text = (
            "| Nom | Rôle |\n|---|---|\n| Claire Vasseur | Assurée |\n| Jules Vasseur | Assuré "
            "additionnel |"
        )
        gap = gaps("Qui est l'assuré ?", text.replace("Assurée |", "Souscriptrice et assurée |"))[0]
        assert [reading.value for reading in gap.readings] == [
            "Souscriptrice et assurée",
            "Assuré additionnel",
        ]

    @pytest.mark.parametrize(
        "question", ["Do I get paid when I'm ill?", "Is theft covered?", "Am I insured?"]
    )
    def test_whether_is_read(self, question):
        """Of English as of French."""
        assert parse_question(question).intent.value == "check"

    @pytest.mark.parametrize(
        "question", ["Can you tell me the deposit?", "Do you know how much it is?"]
    )
    def test_politeness_asks_for_the_value(self, question):
        """`can you` alone asks for no yes or no."""
        assert parse_question(question).intent.value == "lookup"

    def test_how_long_asks_for_a_time(self):
        """Whatever thing it names."""
        assert wanted_kinds("how long are phone calls kept?") == {"duration"}

    def test_an_overview_of_no_document_may_be_of_several_parts(self):
        """The parts that speak of its topic are on offer; a document that is named is summed up."""
        chunks = sections("## Hire\n\nA tower is lent.\n\n## Care\n\nA tower is cleaned.\n")
        (gap,) = gaps("Give me an overview of towers", chunks)
        assert (gap.kind, [reading.value for reading in gap.readings]) == (
            "page_scope",
            ["Hire", "Care"],
        )
        named = parse_question("Give me an overview of towers", chunks).model_copy(
            update={"documents": ("a.md",)}
        )
        assert find_gaps(named, chunks) == ()
