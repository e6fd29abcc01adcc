"""Tables as records.

What cells state, which rows a question finds, what is answered from them and what is not.
"""

from __future__ import annotations

import datetime as dt
import json
from functools import cache
from itertools import pairwise
from math import inf, isnan

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.extensions.graph_table.quantities import (
    cell_quantity,
    format_like,
    head_period,
    quantities_in,
)
from raglab.extensions.graph_table.table_records import (
    distinct_terms,
    markdown_tables,
    table_question,
)
from raglab.extensions.graph_table.tables import table_index
from raglab.store.loaders import load_corpus
from raglab.values import Chunk
from trades import BROKER

EXCESSES = """Acme Premier schedule 2024 > Excesses
| Cause of loss | Excess | Waiting |
|---|---|---|
| Storm | £250 | 2 days |
| Flood | £1,500 | 3 days |
| Theft | £400 | – |
| Fire | Nil | 1 day |"""
FRANCHISES = """Vauban avenant 2025 > Franchises
| Garantie | Jusqu'au 31 mars 2025 | Depuis le 1er avril 2025 |
|---|---|---|
| Dégâts des eaux | 1 200,50 € | 1 500,25 € |
| Bris de glace | 75,00 € | 60,00 € |"""
ITEMS = """Acme fleet > Specified items
| No. | Article | Value |
|---|---|---|
| 1 | Cello | £18,500.00 |
| 2 | Ring | £6,200.50 |
| 3 | Bicycle | Not selected |"""
PREMIUM = """Northmark > Premium
| Component | Amount |
|---|---|
| Buildings | £300 |
| Contents | £200 |
| of which valuables | £50 |
| Net premium | £500 |
| Tax | £60 |
| Total payable | £560 |"""
LIMITS = """Mixed > Limits
| Cover | Limit |
|---|---|
| Goods | £5,000 |
| Tools | 3 000 € |
| Keys | market value |"""
INSPECTION = """Procedure > Inspection
| Estimate | Inspector |
|---|---|
| Up to £2,000 | Video call |
| £2,001 to £5,000 | In-house surveyor |
| Above £5,000 | Loss adjuster |"""
TEXTS = (EXCESSES, "No table here.", FRANCHISES, ITEMS, PREMIUM, LIMITS, INSPECTION)


def chunks_of(*texts):
    """One chunk a text, each a document of its own."""
    return tuple(Chunk(f"{n}.md#1-1", text, f"{n}.md", 1) for n, text in enumerate(texts))


@cache
def index():
    """Index of the six tables above and one text without."""
    return table_index(chunks_of(*TEXTS))


@cache
def broker():
    """Index of the bundled set."""
    return table_index(load_corpus(BROKER).chunks)


def answer(question):
    """Answer to a question that has one."""
    found = index().answer(question)
    assert found is not None, question
    return found


def day(year, month, number):
    """Ordinal of a date."""
    return float(dt.date(year, month, number).toordinal())


@pytest.mark.parametrize(
    ("cell", "kind", "low", "high", "unit"),
    [
        ("£640,000", "money", 640000, 640000, "GBP"),
        ("1\u202f200,50\u00a0€", "money", 1200.5, 1200.5, "EUR"),
        ("$5m", "money", 5e6, 5e6, "USD"),
        ("3,5 millions d'euros", "money", 3.5e6, 3.5e6, "EUR"),
        ("900 k€", "money", 9e5, 9e5, "EUR"),
        ("−£3,827.25", "money", -3827.25, -3827.25, "GBP"),
        ("€1.200", "money", 1200, 1200, "EUR"),
        ("1'234.50 CHF", "money", 1234.5, 1234.5, "CHF"),
        ("Up to £2,000", "money", -inf, 2000, "GBP"),
        ("£2,001 to £5,000", "money", 2001, 5000, "GBP"),
        ("5 001 € à 50 000 €", "money", 5001, 50000, "EUR"),
        ("Above £50,000", "money", 50000, inf, "GBP"),
        ("0,5 %", "percent", 0.5, 0.5, "%"),
        ("4 per cent", "percent", 4, 4, "%"),
        ("3 working days", "number", 3, 3, "working days"),
        ("10 jours ouvrés", "number", 10, 10, "working days"),
        ("entre 5 et 10 jours", "number", 5, 10, "days"),
        ("1,5", "number", 1.5, 1.5, ""),
        ("1.234", "number", 1.234, 1.234, ""),
        ("Nil", "number", 0, 0, ""),
        ("sans limite", "number", inf, inf, ""),
        ("1 April 2025", "date", day(2025, 4, 1), day(2025, 4, 1), "date"),
        ("1er avril 2025", "date", day(2025, 4, 1), day(2025, 4, 1), "date"),
        ("01/04/2025", "date", day(2025, 4, 1), day(2025, 4, 1), "date"),
        ("2025-04-01", "date", day(2025, 4, 1), day(2025, 4, 1), "date"),
        ("June 2023", "date", day(2023, 6, 1), day(2023, 6, 30), "date"),
    ],
)
def test_a_cell_states_what_its_words_say(cell, kind, low, high, unit):
    """Money, shares, numbers with units, dates and bands of them, in English and French form."""
    assert cell_quantity(cell)[:4] == (kind, low, high, unit)


MISSING = ["", "-", "–", "—", "Not selected", "n/a", "sans objet", "non souscrit"]
TEXTS_OF_CELLS = [
    "£1,000, £5,000 aggregate",
    "£10 / £85",
    "Yes, excess £350",
    "27 vans at £1,890",
    "market value",
    "01632 960 211",
    "7714-0263",
    "31/02/2025",
    "5 % de l'indemnité, maximum 2 500 €",
    "12v",
    "9" * 30,
    "x" * 5000,
]


def test_a_cell_that_states_nothing_or_two_things_has_no_number():
    """A dash, `Not selected` and their like are missing.

    What states two figures, a phone number, no real date or too much for one cell is text.
    """
    for kind, cells in {"missing": MISSING, "text": TEXTS_OF_CELLS}.items():
        for cell in cells:
            quantity = cell_quantity(cell)
            assert quantity.kind == kind, cell
            assert isnan(quantity.low)


def test_what_stands_behind_a_figure_is_its_note():
    """`per claim` does not change the £400, and is kept."""
    assert cell_quantity("£400 per claim")[1:] == (400.0, 400.0, "GBP", "per claim")


def test_quantities_are_found_in_a_question():
    """A sum, a number of days and a date; a policy number's digits are only numbers."""
    found = [one.quantity for one in quantities_in("£1,000 or 12 days on 2 Feb 2025 under HC-69")]
    assert [(q.kind, q.low) for q in found] == [
        ("money", 1000.0),
        ("number", 12.0),
        ("date", day(2025, 2, 2)),
        ("number", 69.0),
    ]


def test_heads_speak_of_times():
    """Until and from a day, a year, a year of insurance by its first.

    `Excess (GBP)` speaks of none.
    """
    heads = (
        "Until 31 March 2025",
        "Depuis le 1er avril 2025",
        "2024 schedule",
        "2024/25",
        "Excess (GBP)",
    )
    times = [head_period(head) for head in heads]
    assert [time and (time.low, time.high) for time in times] == [
        (-inf, day(2025, 3, 31)),
        (day(2025, 4, 1), inf),
        (day(2024, 1, 1), day(2024, 12, 31)),
        (day(2024, 1, 1), day(2024, 12, 31)),
        None,
    ]


@pytest.mark.parametrize(
    ("value", "like", "unit", "written"),
    [
        (7.5e6, "GBP 8,000,000", "GBP", "GBP 7,500,000"),
        (36.3, "412,60 €", "EUR", "36,30 €"),
        (1234567.0, "3 000 €", "EUR", "1\u00a0234\u00a0567 €"),
        (5000.0, "10,000", "GBP", "5,000 GBP"),
        (-10.5, "£20", "GBP", "-£10.50"),
        (5e5, "£1.5m", "GBP", "£0.5m"),
        (9.0, "no figure", "GBP", "9 GBP"),
    ],
)
def test_a_figure_is_written_as_its_cells_are(value, like, unit, written):
    """Currency, marks and decimals are those of the cell.

    A unit that the cell leaves to its head stands behind.
    """
    assert format_like(value, like, unit) == written


def test_a_table_is_named_by_its_heading_path():
    """Section first, title in brackets; without a heading the line above, the title, the file."""
    table = "| a | b |\n|---|---|\n| c | d |"
    above = f"This is prose, and it ends so.\nCauses and amounts:\n\n{table}"
    named = [
        Chunk("1", f"Home > 6. Excesses\nProse.\n\n{table}", "x.md"),
        Chunk("2", above, "x.md"),
        Chunk("3", table, "x.md", tags={"title": "Fees"}),
        Chunk("4", table, "d/x.md"),
    ]
    assert [found.name for found in markdown_tables(named)] == [
        "6. Excesses (Home)",
        "Causes and amounts",
        "Fees",
        "x.md",
    ]


def test_a_number_has_the_unit_of_its_head_its_row_or_the_prose():
    """`Limit (GBP)`, `Ransom (EUR)` and `amounts are in GBP` give 5,000 a currency.

    `12 hours` keeps its own.
    """
    head = "| Item | Limit (GBP) |\n|---|---|\n| L1 cover | 5,000 |"
    row = (
        "| Item | Core |\n|---|---|\n| Ransom (EUR) | 5,000 |\n| Waiting | 12 hours |\n| Vans | 7 |"
    )
    prose = "Plans\nAll amounts are in GBP.\n\n| Item | Core |\n|---|---|\n| Data | 5,000 |"
    units = [
        [r[1].quantity.unit for r in table.rows]
        for table in markdown_tables(chunks_of(head, row, prose))
    ]
    assert units == [["GBP"], ["EUR", "hours", ""], ["GBP"]]


def test_rows_that_do_not_fit_their_heads_stay_whole():
    """Cells that lack are missing, surplus ones stand in the last.

    Escaped bars and equal heads do no harm.
    """
    text = (
        "| a | a | |\n|:--|--:|---|\n| 1 |\n| 2 | 3 | 4 | 5 |\n| x \\| y | | z |\n| | – | "
        "|\n|---|---|---|"
    )
    (table,) = markdown_tables(chunks_of(text))
    assert table.columns == ("a", "a", "")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["1", "", ""],
        ["2", "3", "4 | 5"],
        ["x | y", "", "z"],
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a | b\n---|---\n1 | 2\n\nno | table", 1),
        ("| a | b |\n|---|---|", 0),
        ("||\n|-|\n||", 0),
        ("```\n| a |\n|---|\n| b |\n```", 0),
        ("| rows | alone |\n| without | heads |", 2),
        ("one | two and no rule", 0),
        ("", 0),
    ],
)
def test_what_is_a_table(text, rows):
    """A head with its rule, or lines that begin with a bar; never code, never a bar in prose."""
    assert sum(len(table.rows) for table in markdown_tables(chunks_of(text))) == rows


def test_each_row_is_a_chunk_of_its_page():
    """Id, text, and source, page, label, tags and entities of the chunk it stands in.

    Numbered within that.
    """
    parent = Chunk(
        "a#2-1",
        f"{EXCESSES}\n\nText.\n\n| x |\n|---|\n| y |",
        "d/a.md",
        2,
        "ii",
        {"domain": "home"},
        ("Acme",),
    )
    found = table_index([Chunk("b", "No table.", "b.md"), parent])
    assert found.rows[0] == parent._replace(
        chunk_id="a#2-1#row1",
        text="Excesses (Acme Premier schedule 2024) - Cause of loss: Storm; Excess: £250; Waiting: "
        "2 days",
    )
    assert [row.chunk_id for row in found.rows] == [f"a#2-1#row{n}" for n in range(1, 6)]
    assert found.rows[2].text.endswith("Cause of loss: Theft; Excess: £400")
    assert found.parents.tolist() == [1] * 5


def rows_of(question, k=20, scope=None):
    """Rows that a question finds, the best first."""
    return [match.row for match in index().search(question, k, scope)]


def test_search_finds_the_row_that_shares_most():
    """Storm's row, all of `Acme storm`, before its table's others; `zebra` finds none.

    Scores are falling shares.
    """
    matches = index().search("Acme storm", 3)
    assert [rows_of(asked, 1) for asked in ("zebra", "Quelle franchise bris de glace ?")] == [
        [],
        [5],
    ]
    assert (len(matches), matches[0].row, matches[0].score) == (3, 0, 1.0)
    assert all(first.score >= second.score > 0.0 for first, second in pairwise(matches))


def test_an_ending_hides_no_word_an_accent_neither_and_a_sum_finds_its_band():
    """The singular finds `Franchises` by its first five letters, and `degats` finds `Dégâts`.

    £3,200 lies between £2,001 and £5,000.
    """
    assert rows_of("franchise degats", 1) == [4]
    (band,) = rows_of("who inspects a loss of £3,200?", 1)
    assert (
        index().rows[band].text.endswith("Estimate: £2,001 to £5,000; Inspector: In-house surveyor")
    )


def test_search_keeps_to_the_allowed_chunks():
    """A row is found if its chunk is allowed; none are, where no chunk is."""
    asked = "storm excess franchise"
    assert {index().parents[row] for row in rows_of(asked, scope=np.array([2]))} == {2}
    assert rows_of(asked, scope=np.array([], np.int64)) == []
    assert index().answer("What is the storm excess?", np.array([1, 2])) is None


def test_a_corpus_without_tables_has_an_empty_index():
    """No rows, no hits, no answer, and no database."""
    empty = table_index(chunks_of("No table.", ""))
    assert (empty.rows, empty.parents.shape, empty.records) == ((), (0,), None)
    assert (empty.search("storm", 2), empty.answer("What is the storm excess?")) == ([], None)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            "What is the storm excess?",
            "Excesses (Acme Premier schedule 2024) - Cause of loss: Storm; Excess: £250",
        ),
        (
            "who inspects a loss of £3,200?",
            "Inspection (Procedure) - Inspector: In-house surveyor; Estimate: £2,001 to £5,000",
        ),
        (
            "Quelle franchise dégâts des eaux en mai 2025 ?",
            (
                "Franchises (Vauban avenant 2025) - Garantie: Dégâts des eaux; Depuis le 1er avril "
                "2025: 1 500,25 €"
            ),
        ),
        (
            "Quelle était l'ancienne franchise dégâts des eaux ?",
            (
                "Franchises (Vauban avenant 2025) - Garantie: Dégâts des eaux; Jusqu'au 31 mars "
                "2025: "
                "1 200,50 €"
            ),
        ),
        (
            "Is the bicycle insured?",
            "Specified items (Acme fleet) - Article: Bicycle; Value: Not selected",
        ),
        (
            "What is the total premium at Northmark?",
            "Premium (Northmark) - Component: Total payable; Amount: £560",
        ),
    ],
)
def test_a_lookup_gives_cells_as_written(question, text):
    """The row by its words, the column by unit, time or head.

    A total that a table states is looked up.
    """
    found = answer(question)
    assert (found.text, len(found.rows)) == (text, 1)
    assert 0.0 < found.score <= 1.0


WORKED_OUT = [
    (
        "What is the difference between the flood and the theft excess?",
        "; difference: £1,100",
        (1, 2),
    ),
    (
        "De combien la franchise dégâts des eaux a-t-elle augmenté ?",
        "; difference: 299,75 €",
        (4,),
    ),
    (
        "Which excess is the highest in the Acme Premier schedule?",
        "Cause of loss: Flood; Excess: £1,500",
        (1,),
    ),
    ("Which cause of loss has the lowest excess?", "Cause of loss: Fire; Excess: Nil", (3,)),
    (
        "Which causes have an excess of at least £400?",
        "Cause of loss: Theft; Excess: £400",
        (1, 2),
    ),
    (
        "Which causes have an excess of less than £250?",
        "Cause of loss: Fire; Excess: Nil",
        (3,),
    ),
    ("What is the total value of the specified items?", "; sum of 2: £24,700.50", (6, 7, 8)),
    (
        "What is the average value of the specified items?",
        "; average of 2: £12,350.25",
        (6, 7, 8),
    ),
    ("How many specified items are there?", "; count: 3", (6, 7, 8)),
    ("sum of buildings and contents premium at Northmark", "; sum of 2: £500", (9, 10)),
]


def test_what_is_worked_out_names_its_cells():
    """Two rows, two columns, highest, lowest, all beyond a bound, itself counted by `at least`.

    Sum, mean and count over the rows named or all. What is missing counts for nothing, parts are
    not added twice.
    """
    for question, end, rows in WORKED_OUT:
        found = answer(question)
        assert (found.rows, found.text.endswith(end)) == (rows, True), question


@pytest.mark.parametrize(
    "question",
    [
        "Which limit is the highest in Mixed?",
        "sum of the goods and tools limits",
        "What is the difference between the goods and the tools limit?",
        "What is the average limit in Mixed?",
        "What is the theft waiting?",
        "What is the capital of France?",
        "What is the excess?",
        "",
    ],
)
def test_what_the_tables_do_not_say_has_no_answer(question):
    """Two currencies, text among numbers, two columns, a dash, other matters, an open question.

    It means no one row.
    """
    assert index().answer(question) is None


def test_a_table_over_several_chunks_is_one_when_it_is_added_up():
    """60 rows in chunks of 25.

    Count and highest see all of them, and so does the sum, which takes 1 to 60 to 1,830.
    """
    head = "fees\n| Service | Fee |\n|---|---|\n"
    lines = [f"| service {chr(97 + n // 26)}{chr(97 + n % 26)} | £{n + 1} |" for n in range(60)]
    parts = [
        Chunk(f"f#{n}", head + "\n".join(lines[n * 25 : n * 25 + 25]), "f.csv", n + 1)
        for n in range(3)
    ]
    found = table_index(parts)
    for question, scope, end in (
        ("sum of all fees", None, "£1,830"),
        ("Which service has the highest fee?", None, "£60"),
        ("sum of all fees", np.array([0]), "sum of 25: £325"),
    ):
        assert found.answer(question, scope).text.endswith(end)


def test_an_answer_shows_its_statement():
    """The statement is one of ours, with its parameters behind it.

    No word of the question is in it.
    """
    statement, _, parameters = answer("What is the storm excess?").sql.partition(" -- ")
    assert statement.startswith("SELECT row_id, place, text FROM cells JOIN")
    assert json.loads(parameters) == {"rows": [0], "places": [1]}


HOSTILE = (
    "'; DROP TABLE cells; --",
    "storm'); DELETE FROM terms WHERE ('1'='1",
    "$terms :k ? %s {0}",
    "storm \x00 \ud800 \u202e",
    "which " * 3000,
    "how did it move " * 500,
    "1,111" * 2000,
    "|" * 3000,
    "\\|" * 3000,
    "more than £5 " * 500,
    "9" * 5000,
    "((((" * 1000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_questions_and_cells_change_nothing(text):
    """Asked or stored they raise nothing, and the storm excess is what it was."""
    before = index().answer("What is the storm excess?")
    index().search(text, 5)
    index().answer(text)
    assert index().answer("What is the storm excess?") == before
    line = " ".join(text.split())
    hostile = table_index(
        chunks_of(EXCESSES, f"{line}\n| {line} | b |\n|---|---|\n| {line} | {line} |\n| x |")
    )
    hostile.answer(text)
    found = hostile.answer("What is the storm excess?")
    assert found is not None
    assert found.text.endswith("Cause of loss: Storm; Excess: £250")


@settings(deadline=None, derandomize=True, max_examples=10)
@given(st.lists(st.text(max_size=30), max_size=8), st.text(max_size=60))
def test_any_text_is_taken(lines, question):
    """Lines of any characters between bars make a table or none.

    Any question is answered or not.
    """
    found = table_index(
        chunks_of("T\n| a | b |\n|---|---|\n" + "\n".join(f"| {line} |" for line in lines))
    )
    found.search(question, 2)
    found.answer(question)
    assert table_question(question).operation


def test_the_database_is_closed():
    """No file is read or written, no extension loaded, no setting changed."""
    records = index().records
    assert records is not None
    for statement in (
        "SELECT * FROM read_csv('/etc/hostname')",
        "COPY (SELECT 1) TO 'out.csv'",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET threads = 2",
    ):
        with pytest.raises(duckdb.Error):
            records.run(statement, {})


def test_the_bundled_tables_answer():
    """545 rows: a limit of 2024, a change, a row of another language."""
    assert len(broker().rows) == 545
    vehicle = (
        "how much on any one hired-in vehicle on the 2024 FleetGuard schedule for Brightwater?"
    )
    ends = (
        (vehicle, "£80,000"),
        (
            "by how much did Brightwaters detached trailer limit move at renewal",
            "difference: £5,000",
        ),
        ("contenu du congélateur, c'est combien ?", "350 €"),
    )
    for question, end in ends:
        found = broker().answer(question)
        assert found is not None, question
        assert found.text.endswith(end), found.text


def test_an_english_article_is_no_french_verb():
    """`how a claim moves` was read as `comment a évolué`.

    Each language's expressions now hold its own words alone.
    """
    assert table_question("It describes how a claim moves to payment").operation == "value"
    assert table_question("How did the excess move?").operation == "change"
    assert table_question("Comment a évolué la franchise ?").operation == "change"


def test_square_metres_are_one_word_however_they_are_written():
    """Folding takes raised figures down, as it does for answers."""
    assert distinct_terms("96 m²") == distinct_terms("96 m2")
