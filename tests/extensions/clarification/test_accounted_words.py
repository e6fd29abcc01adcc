"""A statement answers in silence where it accounts for every word of the question.

Papers of a marina, of a school.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_documents import system_over
from raglab.extensions.clarification.field_values import read_value
from raglab.extensions.clarification.gap_candidates import clear_statement, outdated
from raglab.extensions.clarification.gaps import find_gaps
from raglab.extensions.clarification.question_parsing import parse_question, wanted_kinds
from raglab.extensions.clarification.value_readings import quoted_reading
from raglab.live.ask import ask, reply
from raglab.live.clarifier import GapReading
from raglab.values import Chunk

GYM = """## Fees and limits
| Item | Amount |
|---|---|
| Locker deposit | £15 |
| Limit for theft | £500 |
| Shoe hire | £4 |

The limit for damage to hire shoes is £60. The induction fee is £12.

Head coach: Rosa Whitlock
"""
MARINA = """## Berths
| Berth | 2024 | 2025 |
|---|---|---|
| Pontoon berth | £1,200 | £1,340 |

## Cover
| Boat | Limit | Excess |
|---|---|---|
| Dinghy | £5,000 | £100 |
| Yacht | £40,000 | £750 |

## Deposits
| Deposit | Amount |
|---|---|
| Holding deposit | £200 |
| Winter deposit | £350 |

The harbour master, Ewan Craig, may be called at any hour.
"""
DANSE = """## Tarifs
| Poste | Montant |
|---|---|
| Caution du casier | 20 € |
| Plafond en cas de vol | 300 € |
| Location du costume | 35 € |

Le plafond pour la perte d'un costume est de 150 €.
"""
DOGS = """## Daily rates
| Dog | Rate |
|---|---|
| Large dog | £27 |
| Old terrier | £18 |
"""
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def clear(question, text):
    """Value of the only statement that a question means."""
    chunks = [Chunk("a", text, "a.md", 1)]
    found = clear_statement(parse_question(question, chunks), chunks, chunks)
    return None if found is None else found.statement.value


class TestEveryWord:
    """What is asked for must be what the statement is of."""

    @pytest.mark.parametrize(
        ("question", "text"),
        [
            ("What is the deposit for theft?", GYM),
            ("What is the fee for theft?", GYM),
            ("What is the fee for damage to hire shoes?", GYM),
            ("What is the rental limit for theft?", GYM),
            ("What is the price of the locker?", GYM),
            ("What is the name of the deposit?", MARINA),
            ("Quelle est la caution en cas de vol ?", DANSE),
            ("Quelle est la prime pour la perte d'un costume ?", DANSE),
            ("Quelle est la caution du costume ?", DANSE),
            ("What is the price for the largest dog?", DOGS),
            ("What is the locker deposit without a booking?", GYM),
        ],
    )
    def test_a_word_that_nothing_accounts_for_leaves_it_open(self, question, text):
        """A qualifier that fits is not enough."""
        assert clear(question, text) is None

    @pytest.mark.parametrize(
        ("question", "text", "value"),
        [
            ("What is the limit for theft?", GYM, "£500"),
            ("What is the locker deposit?", GYM, "£15"),
            ("What is the price of shoe hire?", GYM, "£4"),
            ("What is the fee for the induction?", GYM, "£12"),
            ("Quelle est la caution du casier ?", DANSE, "20 €"),
            ("Quel est le prix de la location du costume ?", DANSE, "35 €"),
            ("How much is a large dog?", DOGS, "£27"),
            ("Combien coûte la perte d'un costume ?", DANSE, "150 €"),
        ],
    )
    def test_all_words_accounted_for(self, question, text, value):
        """By its label, its heading, the heads of its table, or as what is paid."""
        assert clear(question, text) == value

    @given(st.text("bcdfghjklmnpqrstvwz", min_size=5, max_size=9))
    def test_a_word_that_stands_nowhere_is_never_answered(self, word):
        """Law: a strange word before the field, or behind it, leaves the question open."""
        assert clear(f"What is the q{word} locker deposit?", GYM) is None
        assert clear(f"What is the limit for theft of a q{word}?", GYM) is None


class TestColumns:
    """A row of several values is read in the column that the question names."""

    @pytest.mark.parametrize(
        ("question", "row", "value"),
        [
            ("What is the excess?", "Yacht", "£750"),
            ("What is the limit?", "Yacht", "£40,000"),
            ("What is it for a boat?", "Yacht", "Yacht; £40,000; £750"),
            ("What is the price in 2025?", "Pontoon berth", "£1,340"),
            ("What is the price?", "Pontoon berth", "Pontoon berth; £1,200; £1,340"),
        ],
    )
    def test_a_chosen_row(self, question, row, value):
        """The first column is not taken where none is named: the row is quoted whole."""
        chunks = [Chunk("a", MARINA, "a.md", 1)]
        quote = (
            next(line for line in MARINA.splitlines() if row in line).strip("| ").replace(" |", ";")
        )
        read = quoted_reading(GapReading(row, quote), chunks, parse_question(question, chunks))
        assert read.field_value is not None
        assert read.field_value.value == value

    def test_a_column_by_a_word_of_its_head(self):
        """`Limit per claim` is named by `limit`, which no other head has."""
        text = MARINA.replace("| Limit |", "| Limit per claim |")
        assert clear("What is the limit for a dinghy?", text) == "£5,000"


class TestKinds:
    """A number, a date and a name are no sums."""

    @pytest.mark.parametrize(
        "question", ["What is the locker deposit number?", "Quel est le numéro de la caution ?"]
    )
    def test_a_number_is_no_sum(self, question):
        """Whatever it is the number of."""
        assert "amount" not in wanted_kinds(question.lower().replace("é", "e"))

    def test_a_field_by_its_words_is_of_the_kind(self):
        """The day of the hire is not its price."""
        chunks = [Chunk("a", DANSE, "a.md", 1)]
        about = "Quelle est la date de la location du costume ?"
        assert read_value("location costume", chunks, about=about) is None
        assert (
            read_value("location costume", chunks, about="Combien coûte la location du costume ?")
            is not None
        )


class TestVersions:
    """What ended is not read in silence."""

    OLD = Chunk(
        "1", "Hive rental: £70\nValid until: 31 December 2024", "a.md", 1, tags={"version": "2024"}
    )
    NEW = Chunk("2", "Hive rental: £82", "b.md", 1, tags={"version": "2025", "title": "Hives 2025"})

    @pytest.mark.parametrize(
        ("text", "today", "why"),
        [
            ("Rent: £38\nValid until: 30 June 2025", "2026-01-05", "passed"),
            ("Rent: £38\nValid until: 30 June 2025", "2025-06-30", ""),
            ("This offer is valid until 30 June 2025.", "2025-07-01", "passed"),
            ("Loyer : 38 €\nValable jusqu'au : 30 juin 2025", "2026-01-05", "passed"),
            ("The voucher was sent on 30 June 2025.", "2026-01-05", ""),
        ],
    )
    def test_an_end_that_has_passed(self, text, today, why):
        """As the document itself says it."""
        chunk = Chunk("a", text, "a.md", 1)
        assert outdated(chunk, [chunk], today)[0] == why

    def test_a_later_version(self):
        """Of one product and kind; a later one that is not dated yet to come."""
        product = {"product": "Hives", "doc_type": "agreement"}
        old, new = (
            one._replace(text="Hive: £1", tags={**one.tags, **product})
            for one in (self.OLD, self.NEW)
        )
        coming = new._replace(tags={**new.tags, "date": "2027-01-01"})
        assert outdated(old, [old, new], "2026-01-05") == ("replaced", "Hives 2025")
        assert outdated(new, [old, new], "2026-01-05") == ("", "")
        assert outdated(old, [old, coming], "2026-01-05") == ("", "")

    @pytest.mark.parametrize(
        ("when", "value"), [("in 2024", "£70"), ("in 2025", "£82"), ("today", "£82")]
    )
    def test_the_version_that_is_named(self, when, value):
        """By its year, or as what holds today; the name of the product may be the label."""
        chunks = [
            one._replace(tags={**one.tags, "product": "Hive rental"})
            for one in (self.OLD, self.NEW)
        ]
        found = clear_statement(
            parse_question(f"How much is the hive rental {when}?", chunks), chunks, ()
        )
        assert found is not None
        assert found.statement.value == value


class TestKeys:
    """What was learned of less is no default for what says more."""

    @pytest.mark.parametrize(
        ("question", "key"),
        [
            ("What is the deposit?", "deposit"),
            ("What is the deposit for a second cat?", "deposit second cat"),
            ("What is not the deposit?", "deposit:not"),
        ],
    )
    def test_a_key_of_its_own(self, question, key):
        """It is asked, under all words of the question."""
        chunks = [Chunk("a", MARINA, "a.md", 1)]
        gaps = find_gaps(parse_question(question, chunks), chunks, chunks)
        assert [gap.field.replace(":date", "") for gap in gaps] == [key]

    def test_whom_not_to_call(self):
        """Is not whom to call."""
        text = (
            "Contacts\n| Role | Name |\n|---|---|\n| Harbour master | Ewan Craig |\n| Night "
            "keeper | Omar Bello |"
        )
        chunks = [Chunk("a", text, "a.md", 1)]
        roles = [
            find_gaps(parse_question(f"Who should I {form}?", chunks), chunks)
            for form in ("call", "not call")
        ]
        assert roles[0][0].field == "person:role"
        assert all(gap.field.endswith(":not") for gap in roles[1])


@pytest.fixture
def system(tmp_path):
    """Return a system over two papers."""
    tags = {"doc_type": "tariff"}
    chunks = (
        Chunk("a.md#1-0", MARINA, "a.md", 1, tags=tags),
        Chunk(
            "b.md#1-0",
            "## Offer\n\nPlot rent: £38\n\nValid until: 30 June 2025",
            "b.md",
            1,
            tags=tags,
        ),
    )
    with system_over(chunks, tmp_path / "index") as opened:
        yield opened


def test_end_to_end(system):
    """A row of two values, a default for less and for more, and a paper that ended."""
    ask("What is the excess?", system=system, documents=["a.md"], request_id="q", now=NOW)
    assert str(reply("q", "the yacht", system=system, now=NOW)["answer"]).startswith("£750")
    later = NOW + timedelta(days=7)
    silent = ask("What is the excess?", system=system, documents=["a.md"], now=later)
    assert silent["default_applied"]
    assert str(silent["answer"]).startswith("£750")
    assert not ask(
        "What is the excess for a jet ski?", system=system, documents=["a.md"], now=later
    )["default_applied"]
    ended = ask("How much is the plot rent?", system=system, documents=["b.md"], now=NOW)
    assert "£38" in ended["answer"]
    assert ended["warnings"] == ["b.md#1 says that it ends on 2025-06-30, which has passed"]
