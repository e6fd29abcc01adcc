"""A table row longer than a chunk goes on below the heads of its own columns (rule S1.8)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import lines_run
from raglab.store.blocks import Block, DocumentBlocks
from raglab.store.chunking import TokenLimit, chunk_blocks
from raglab.store.loaders import load_corpus
from raglab.words.text import pieces


def words(texts):
    """Words and bars of each text and two tokens around it."""
    return [len(text.split()) + 2 for text in texts]


def bytes_of(texts):
    """Tokens of a tokenizer whose counts do not add up: bytes by four, white space among them."""
    return [-(-len(text.encode()) // 4) + 2 for text in texts]


def table(heads, rows):
    """A table of Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def texts_of(text, most=40, count=words):
    """Texts of the chunks of one table, each of which fits."""
    limit = TokenLimit(count, most, 8)
    chunks = chunk_blocks(DocumentBlocks("", (Block("table", text),)), "a.md", limit=limit)
    assert max(count([chunk.full_text for chunk in chunks])) <= most
    return [chunk.text for chunk in chunks]


def cells_of(texts):
    """Head, first cell of the row, and cell, of every cell of every row of some chunks."""
    rows = [piece for text in texts for piece in pieces(text, titled=False) if piece.kind == "row"]
    assert all(len(row.heads) == len(row.cells) for row in rows)
    return [
        (head, row.cells[0], cell)
        for row in rows
        for head, cell in zip(row.heads, row.cells, strict=True)
        if cell
    ]


# Worked examples.

LONG = " ".join(f"w{n}" for n in range(40))


def test_the_end_of_a_long_row_stands_below_its_own_head():
    """The words of Text and Note, which stood below Peril, stand below Text and Note."""
    texts = texts_of(
        table(
            ("Peril", "Excess", "Text", "Note"),
            (
                ("Fire", "£1", "short", "n"),
                ("Storm", "£400", LONG, "end"),
                ("Flood", "£2", "s", "m"),
            ),
        )
    )
    assert texts[0] == table(("Peril", "Excess", "Text", "Note"), (("Fire", "£1", "short", "n"),))
    assert texts[-1].endswith(
        table(("Peril", "Excess", "Text", "Note"), (("Flood", "£2", "s", "m"),))
    )
    cells = cells_of(texts)
    assert " ".join(cell for head, _, cell in cells if head == "Text") == f"short {LONG} s"
    assert {(head, first) for head, first, cell in cells if "end" in cell.split()} == {
        ("Note", "Storm")
    }
    assert {first for head, first, _ in cells if head == "Text"} == {"Fire", "Storm", "Flood"}


def test_a_long_cell_is_cut_between_sentences():
    """Whole sentences stand in each piece where they fit."""
    text = " ".join(f"It is covered on day {n} of the year." for n in range(12))
    cells = cells_of(texts_of(table(("Peril", "Text"), (("Storm", text),))))
    parts = [cell for head, _, cell in cells if head == "Text"]
    assert len(parts) > 2
    assert all(part.startswith("It is") and part.endswith("year.") for part in parts)


def test_a_table_too_wide_to_repeat_its_head_is_parted_by_columns():
    """Each piece has the heads of its own columns alone, behind the first."""
    heads = ("Id", *(f"Head {n} of all" for n in range(20)))
    rows = [(f"r{row}", *(f"v{row}-{n}" for n in range(20))) for row in range(3)]
    cells = cells_of(texts_of(table(heads, rows)))
    for row in rows:
        for head, value in zip(heads[1:], row[1:], strict=True):
            assert [(h, first) for h, first, cell in cells if cell == value] == [(head, row[0])]


def test_a_head_of_a_paragraph_is_repeated_in_part():
    """It stands whole once, and its beginning above each piece."""
    head = " ".join(f"head{n}" for n in range(30))
    texts = texts_of(table(("Id", head), (("a", LONG), ("b", "short"))))
    assert set(head.split()) <= set(" ".join(texts[:2]).split())
    cells = cells_of(texts)
    assert (
        " ".join(cell for name, _, cell in cells if name.startswith("head0 head1"))
        == f"{LONG} short"
    )


def test_a_row_without_heads_keeps_the_places_of_its_cells():
    """Empty cells stand where the words of other pieces are; scripts without spaces are cut too."""
    long = "東京は首都です。" * 12
    texts = texts_of(f"| a | {long} | c |\n| d | e | f |", most=48, count=bytes_of)
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for text in texts
        for line in text.split("\n")
        if line
    ]
    assert {len(row) for row in rows} == {3}
    assert "".join(row[1] for row in rows) == f"{long}e"
    assert {row[0] for row in rows} == {"a", "d"}


@pytest.mark.parametrize("n_rows", [0, 2])
def test_heads_without_a_cell_below_them_are_not_lost(n_rows):
    """A long head alone, and heads of empty columns, stand before the table."""
    heads = [f"Head {n} of all" for n in range(20)]
    texts = texts_of(table(heads, [("x", *[""] * 18, f"y{row}") for row in range(n_rows)]))
    assert set(" ".join(heads).split()) <= set(" ".join(texts).replace(";", "").split())
    assert [cell for cell in cells_of(texts) if cell[0] == heads[-1]] == [
        (heads[-1], "x", f"y{n}") for n in range(n_rows)
    ]


def test_an_escaped_bar_is_not_cut_apart():
    """Wherever a long word of them is cut, its bars stay in their column."""
    cells = cells_of(
        texts_of(table(("Id", "Text"), (("a", r"\|" * 400),)), count=bytes_of, most=64)
    )
    assert "".join(cell for head, _, cell in cells if head == "Text") == "|" * 400


# Laws.

CELLS = st.integers(0, 60)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(0, 3).flatmap(
        lambda width: st.lists(
            st.tuples(st.integers(1, 60), *[CELLS] * width), min_size=1, max_size=5
        )
    ),
    st.sampled_from([40, 64]),
    st.sampled_from([1, 5, 100]),
)
def test_all_words_of_a_row_stand_below_their_own_heads(rows, most, sentence):
    """Each word once, except in repeated first cells, below its head and beside its row's words."""

    def cell(row, column, n):
        return " ".join(
            f"R{row}c{column}w{i}" + ("." if i % sentence == 0 else "") for i in range(n)
        )

    named = [
        [cell(row, column, n) for column, n in enumerate(numbers)]
        for row, numbers in enumerate(rows)
    ]
    heads = [f"h{column}" for column in range(len(rows[0]))]
    cells = cells_of(texts_of(table(heads, named), most=most))
    counts = Counter()
    for head, first, text in cells:
        for word in text.split():
            row, column = word[1:].split("w")[0].split("c")
            assert head == f"h{column}"
            assert first.startswith(f"R{row}c")
            counts[word] += 1
    expected = [word for row in named for text in row for word in text.split()]
    assert counts.keys() == set(expected)
    assert all(n == 1 or "c0" in word for word, n in counts.items())


# End to end.


def test_a_document_with_a_long_row(tmp_path):
    """By the bundled encoder's tokens: every piece of the row says column and row."""
    text = " ".join(f"Clause {n} says that the tenant pays for it." for n in range(60))
    heads, rows = (
        ("Nr", "Title", "Text", "Source"),
        (("17", "Rent", text, "Act"), ("18", "Heating", "None.", "Act")),
    )
    (tmp_path / "a.md").write_text(f"# Lease\n\n{table(heads, rows)}\n")
    chunks = load_corpus(tmp_path).chunks
    assert len(chunks) > 2
    assert {chunk.section for chunk in chunks} == {("Lease",)}
    cells = cells_of([chunk.text for chunk in chunks])
    assert " ".join(cell for head, _, cell in cells if head == "Text") == f"{text} None."
    assert {first for head, first, cell in cells if head == "Text" and "Clause" in cell} == {"17"}
    assert ("Source", "17", "Act") in cells


def test_parting_is_linear_in_the_length():
    """Four times the row, or the columns, takes about four times the work.

    A square would take 16 times.
    """

    def work(row):
        return lines_run(lambda: texts_of(f"| a | b |\n|---|---|\n{row}", most=100))

    for row in ("| x | " + "some words here. " * 500 + "|", "| x " * 250 + "|"):
        cells = row.strip("|").split("|")
        longer = f"|{'|'.join(cells * 4 if len(cells) > 2 else [cells[0], cells[1] * 4])}|"
        assert work(longer) < 6 * work(row)
