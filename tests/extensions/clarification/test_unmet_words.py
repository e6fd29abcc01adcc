"""A statement that is set against a question is no answer to it.

Papers of a climbing hall, a pottery, a ferry.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_documents import system_over
from raglab.extensions.clarification.field_values import read_value
from raglab.extensions.clarification.gap_candidates import clear_statement, unmet
from raglab.extensions.clarification.gaps import find_gaps
from raglab.extensions.clarification.language_words import plain
from raglab.extensions.clarification.question_parsing import parse_question
from raglab.extensions.clarification.statements import statements
from raglab.live.ask import ask, reply
from raglab.values import Chunk

HALL = """## Entry
| Ticket | Adult | Child under 14 | Time allowed |
|---|---|---|---|
| Day ticket | £17 | £11 | 6 hours |
| Lead course | £85 | not offered | 3 hours |
| Night session | – | £9 | 2 hours |

Maximum rope length: 60 m
Locker key fee: £6
Course begins: 3 March 2025
Course ends: 12 May 2025

Children may climb for up to 90 minutes. A lost shoe is charged at £30 after 7 days.
"""
FERRY = """## Passage
| Vehicle | Up to 6 m | 6 m to 9 m | Over 9 m |
|---|---|---|---|
| Single crossing | £44 | £61 | £95 |
| Return crossing | £80 | £110 | £170 |
"""
POTERIE = """## Ateliers
| Séance | Adultes | Enfants de 6 à 12 ans | Durée |
|---|---|---|---|
| Tour | 38 € | 24 € | 2 heures |
| Émaillage | 30 € | non proposé | 1 heure |

Poids minimal d'une commande : 5 kg
Début du stage : 7 avril 2025
"""
NOW = datetime(2025, 9, 1, 9, tzinfo=UTC)
PEOPLE = """## Rota
| Duty | Weekdays | Weekend |
|---|---|---|
| Route setter | Ida Brandt | none |
| Floor lead | Cem Aydin | Mo Farrell |
"""


def chunk(text):
    """A document of 2025."""
    return Chunk("a", text, "a.md", 1, tags={"version": "2025"})


def clear(question, text):
    """Value of the only statement that a question means and that meets it."""
    chunks = [chunk(text)]
    candidate = clear_statement(parse_question(question, chunks), chunks, chunks)
    if candidate is None or unmet(plain(question), candidate.statement, chunks):
        return None
    return candidate.statement.value


class TestCellsWithoutAValue:
    """What a column says in words instead of a value is what it says."""

    @pytest.mark.parametrize(
        ("question", "text", "value"),
        [
            ("How much is the lead course for a child?", HALL, "not offered"),
            ("How much is the lead course for an adult?", HALL, "£85"),
            ("How much is the night session for an adult?", HALL, "–"),
            ("Combien coûte l'émaillage pour les enfants ?", POTERIE, "non proposé"),
            ("Combien coûte l'émaillage pour les adultes ?", POTERIE, "30 €"),
            ("Who is the route setter at the weekend?", PEOPLE, "none"),
            ("Who is the route setter on weekdays?", PEOPLE, "Ida Brandt"),
        ],
    )
    def test_the_column_that_is_named_is_read(self, question, text, value):
        """No other column's value stands in."""
        assert clear(question, text) == value

    def test_who_holds_a_post_in_one_of_two_columns(self):
        """Nobody at the weekend is an answer too."""
        (gap,) = find_gaps(parse_question("Who is the route setter?"), [chunk(PEOPLE)])
        assert [reading.value for reading in gap.readings] == ["Weekdays", "Weekend"]

    def test_a_row_of_a_column_of_several_kinds_has_its_own(self):
        """What a cell says instead of a value is of the kind of its row."""
        text = (
            "| Cover | Each | All |\n|---|---|---|\n| Fire | not covered | £9,000 |\n"
            "| Theft | 2 days | 4 days |\n| Flood | £50 | £70 |"
        )
        kinds = {fact.value: fact.kind for fact in statements([chunk(text)])}
        assert kinds["not covered"] == "amount"

    def test_words_of_a_column_of_words_have_no_kind(self):
        """One typed cell among several notes makes no column of values."""
        text = "| Kit | Price | Note |\n|---|---|---|\n" + "".join(
            f"| {name} | £{at} | {note} |\n"
            for at, (name, note) in enumerate(
                [("Rope", "2 hours"), ("Axe", "ask us"), ("Tent", "dry it"), ("Mat", "wash it")]
            )
        )
        assert {fact.kind for fact in statements([chunk(text)]) if fact.head == "Note"} == {
            "duration",
            "text",
        }


class TestNumbers:
    """A number selects the range that holds it, and no other."""

    @pytest.mark.parametrize(
        ("question", "text", "value"),
        [
            ("How much is a single crossing for a 7 m van?", FERRY, "£61"),
            ("How much is a single crossing for a 4.5 m van?", FERRY, "£44"),
            ("How much is a return crossing over 9 m?", FERRY, "£170"),
            ("How much is a day ticket for a child of 9?", HALL, "£11"),
            ("How much is a day ticket for a child of 15?", HALL, None),
            ("How much is a day ticket for a 15 year old child?", HALL, None),
            ("How much is a lost shoe after 21 days?", HALL, None),
            ("How much is a lost shoe after 7 days?", HALL, "£30"),
            ("Combien coûte le tour pour des enfants de 8 ans ?", POTERIE, "24 €"),
            ("Combien coûte le tour pour des enfants de 14 ans ?", POTERIE, None),
            ("How much is a single crossing for a 7 m unicorn van?", FERRY, None),
        ],
    )
    def test_a_range(self, question, text, value):
        """Its ends are of it but for `under` and `over`.

        What the measure is of needs no other name.
        """
        assert clear(question, text) == value

    @given(st.integers(1, 400))
    def test_every_length_has_one_price(self, tenths):
        """Law: a length selects a column that holds it; at the bound of two, each may be meant."""
        length = tenths / 10
        value = clear(f"How much is a single crossing for a {length:g} m van?", FERRY)
        allowed = {"£44": length <= 6, "£61": 6 <= length <= 9, "£95": length > 9}
        assert length == 6 if value is None else allowed[value]


class TestLimits:
    """A unit, a bound, a figure or a year that no statement states is no answer's."""

    @pytest.mark.parametrize(
        ("question", "text", "value"),
        [
            ("What is the locker key fee per day?", HALL, None),
            ("What is the locker key fee for one person?", HALL, None),
            ("What is the minimum locker key fee?", HALL, None),
            ("What is the locker key fee for 5?", HALL, None),
            ("What is the locker key fee under 18?", HALL, None),
            ("What is the locker key fee in 2019?", HALL, None),
            ("What is the locker key fee?", HALL, "£6"),
            ("How much is the hire fee per day?", "Daily hire fee: £4", "£4"),
            ("Quel est le poids minimal d'une commande ?", POTERIE, "5 kg"),
            ("Quel est le poids d'une commande par jour ?", POTERIE, None),
            ("Where is the floor manager?", "Floor manager: Ida Brandt", None),
            ("Who is the floor manager?", "Floor manager: Ida Brandt", "Ida Brandt"),
        ],
    )
    def test_a_limit_must_be_stated(self, question, text, value):
        """An adjective states a unit; a name answers no question for a place."""
        assert clear(question, text) == value

    def test_two_columns_that_are_named_are_not_one(self):
        """Neither is read."""
        assert clear("What is a single crossing up to 6 m and over 9 m?", FERRY) is None


class TestOtherSides:
    """Least and most, begin and end, before and after."""

    @pytest.mark.parametrize(
        ("question", "text", "value"),
        [
            ("How long is the longest rope?", HALL, None),
            ("When does the course begin?", HALL, "3 March 2025"),
            ("When does the course end?", HALL, "12 May 2025"),
            ("When does the course begin in 2026?", HALL, None),
            ("When does the course end in 2023?", HALL, None),
            ("Quelle est la date de fin du stage ?", POTERIE, None),
            ("Quelle est la date de début du stage ?", POTERIE, "7 avril 2025"),
            ("How much is the locker key fee in 2025?", HALL, "£6"),
            ("How much is the locker key fee in 2031?", HALL, None),
            ("How much is the locker key fee in 2019?", HALL, None),
        ],
    )
    def test_a_side(self, question, text, value):
        """What is stated of the other side, or of another year, answers nothing."""
        assert clear(question, text) == value

    @pytest.mark.parametrize(
        ("question", "label", "is_met"),
        [
            ("What is the minimum rope length?", "Maximum rope length", False),
            ("What is the maximum rope length?", "Maximum rope length", True),
            ("Quel est le poids maximal d'une commande ?", "Poids minimal d'une commande", False),
            ("Quel est le poids minimum d'une commande ?", "Poids minimal d'une commande", True),
            ("Where is the locker key fee paid?", "Locker key fee", False),
            ("How is the locker key fee paid?", "Locker key fee", False),
            ("How much is the locker key fee?", "Locker key fee", True),
            ("How long is the rope?", "Maximum rope length", True),
        ],
    )
    def test_words(self, question, label, *, is_met):
        """A minimum under a maximum, a place or a way for a sum."""
        chunks = [chunk(HALL + POTERIE)]
        (fact,) = [fact for fact in statements(chunks) if fact.label == label]
        assert (not unmet(plain(question), fact, chunks)) is is_met

    def test_how_many_of_what(self):
        """Minutes are no children."""
        chunks = [chunk(HALL)]
        fact = next(fact for fact in statements(chunks) if fact.value == "90 minutes")
        assert unmet("how many children may climb?", fact, chunks)
        assert not unmet("how many minutes may children climb?", fact, chunks)

    def test_a_field_is_read_on_the_side_that_is_named(self):
        """Of two limits the one that the question means; without a question none."""
        chunks = [chunk("Maximum rope length: 60 m\nMinimum rope length: 30 m")]
        read = read_value("rope length", chunks, about="What is the minimum rope length?")
        assert read is not None
        assert read.value == "30 m"
        assert read_value("rope length", chunks) is None


class TestSeveral:
    """A vague question is asked about."""

    @pytest.mark.parametrize(
        ("question", "text"),
        [
            (
                "How long is the notice?",
                "Notice to leave a club is six weeks; notice to leave a course is ten days.",
            ),
            (
                "Quel est le préavis ?",
                "Le préavis est d'un mois pour les membres et de deux mois pour les moniteurs.",
            ),
        ],
    )
    def test_two_values_of_a_sentence(self, question, text):
        """Neither is taken."""
        (gap,) = find_gaps(parse_question(question), [chunk(text)])
        assert len(gap.readings) == 2

    def test_one_that_meets_it_comes_first_where_words_are_left(self):
        """It is proposed and not read."""
        text = "Minimum water depth: 2 m\nMaximum water depth: 5 m"
        (gap,) = find_gaps(parse_question("What is the maximum depth of dry water?"), [chunk(text)])
        assert gap.readings[0].value == "Maximum water depth"


@pytest.fixture
def system(tmp_path):
    """Return a system over the paper of a hall."""
    chunk = Chunk("a.md#1-0", HALL, "a.md", 1, tags={"version": "2025"})
    with system_over([chunk], tmp_path / "index") as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "status", "word"),
    [
        ("What is the locker key fee in 2031?", "refuse", "2031"),
        ("Where is the locker key fee paid?", "refuse", "where"),
        ("How much is a day ticket for a child of 15?", "refuse", "15"),
        ("How much is the locker key fee?", "ok", "£6"),
    ],
)
def test_end_to_end(system, question, status, word):
    """A refusal that says which word is not met; the answer to a clear question."""
    response = ask(question, system=system, documents=["a.md"], now=NOW)
    assert response["status"] == status
    assert word in (response["refusal_reason"] or response["answer"])


def test_a_row_is_quoted_whole_with_its_heads(system):
    """Where the question names no column of the row that the user means."""
    ask("How much is entry?", system=system, documents=["a.md"], request_id="r", now=NOW)
    answered = reply("r", "the day ticket", system=system, now=NOW)
    assert (
        answered["answer"] == "Day ticket - Adult: £17; Child under 14: £11; Time allowed: 6 hours"
    )
