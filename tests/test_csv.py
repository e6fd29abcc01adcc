"""CSV files become chunks that hold a Markdown table of some rows each."""

from __future__ import annotations

from pathlib import Path

import pytest

from raglab.retrieval.table_records import markdown_tables
from raglab.store.documents import MAX_ROWS
from raglab.store.files import InputError
from raglab.store.loaders import load_corpus, save_corpus


def write(path: Path, content: str | bytes) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    """Message with which a path is refused."""
    with pytest.raises(InputError) as caught:
        load_corpus(path)
    return str(caught.value)


def test_a_file_is_a_table_under_its_name(tmp_path: Path) -> None:
    """Two rows are one chunk, page 1, without tags; blanks inside a cell are single, a quoted comma stays."""
    path = write(tmp_path / "home_excesses-2025.csv", 'Cause,Excess\n"Storm,  hail",£250\nFlood,"£1,500"\n')
    (chunk,) = load_corpus(path).chunks
    assert chunk.text == "home excesses 2025\n| Cause | Excess |\n|---|---|\n| Storm, hail | £250 |\n| Flood | £1,500 |"
    assert (chunk.chunk_id, chunk.source, chunk.page, chunk.tags) == (f"{path.name}#1-1", path.name, 1, {})


def test_a_folder_may_hold_csv_among_other_documents(tmp_path: Path) -> None:
    """They stand in the order of their relative paths, and come back from JSON lines as they are."""
    write(tmp_path / "set" / "b.csv", "a,b\n1,2\n")
    write(tmp_path / "set" / "a.md", "One.")
    write(tmp_path / "set" / "sub" / "c.CSV", "a,b\n1,2\n")
    corpus = load_corpus(tmp_path / "set")
    assert [chunk.source for chunk in corpus.chunks] == ["a.md", "b.csv", "sub/c.CSV"]
    save_corpus(corpus, tmp_path / "c.jsonl")
    assert load_corpus(tmp_path / "c.jsonl") == corpus


def test_the_head_is_repeated_after_25_rows(tmp_path: Path) -> None:
    """60 rows make tables of 25, 25 and 10 on pages 1, 2 and 3, and no row is lost."""
    path = write(tmp_path / "n.csv", "n,m\n" + "".join(f"{n},{n}\n" for n in range(60)))
    chunks = load_corpus(path).chunks
    assert [(chunk.page, chunk.text.count("\n") - 2) for chunk in chunks] == [(1, MAX_ROWS), (2, MAX_ROWS), (3, 10)]
    assert all(chunk.text.startswith("n\n| n | m |\n|---|---|\n| ") for chunk in chunks)
    assert [row[0].text for table in markdown_tables(chunks) for row in table.rows] == [str(n) for n in range(60)]


def test_wide_rows_make_shorter_tables(tmp_path: Path) -> None:
    """With at most 10 words, two of the head leave room for two rows of four; a row of 12 stands alone."""
    rows = ["a b c,d", "e f g,h", "i j k,l", " ".join("mnopqrstuvw") + ",x", "y,z"]
    chunks = load_corpus(write(tmp_path / "w.csv", "one,two\n" + "\n".join(rows)), max_words=10).chunks
    assert [chunk.text.count("\n") - 2 for chunk in chunks] == [2, 1, 1, 1]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_what_parts_the_heads(tmp_path: Path, delimiter: str) -> None:
    """A French decimal comma parts nothing where semicolons part the heads; byte-order mark and CRLF are taken away."""
    lines = [delimiter.join(cells) for cells in (("Poste", "Montant"), ("Tempête", '"1,50 €"'))]
    (chunk,) = load_corpus(write(tmp_path / "f.csv", "\ufeff" + "\r\n".join(lines))).chunks
    assert chunk.text == "f\n| Poste | Montant |\n|---|---|\n| Tempête | 1,50 € |"


def test_bars_and_line_breaks_in_cells_break_no_table(tmp_path: Path) -> None:
    """A bar is escaped, a line break is a blank, blank lines are no rows, and cells come back as written."""
    (chunk,) = load_corpus(write(tmp_path / "x.csv", '\na,b\n\n"1|2","3\n4"\n,\n-,""\n')).chunks
    assert chunk.text.split("\n")[3:] == ["| 1\\|2 | 3 4 |", "| - |  |"]
    (table,) = markdown_tables([chunk])
    assert [cell.text for cell in table.rows[0]] == ["1|2", "3 4"]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ("a file must not be empty",)),
        ("a,b\n", ("a table must have heads and a row, got heads alone", "add them")),
        (",\n,,\n", ("a table must have heads and a row, got none",)),
        (
            "a,b\n1,2\n\n1,2,3\n",
            (", line 4: a row must have as many cells as there are heads, got 3 instead of 2", "quote"),
        ),
        ("a,b\n1\n", (", line 2: ", "got 1 instead of 2")),
        ('a,b\n1,"2\n3,4\n', ("a .csv file must be valid CSV", "close each quote")),
        ('a,b\n1,"2"3\n', ("line 2: a .csv file must be valid CSV",)),
        ("a,b\n1," + "x" * 200_000, ("a .csv file must be valid CSV, got field larger than field limit",)),
        (b"a,b\n1,\xe9\n", ("line 2: text must be UTF-8",)),
    ],
)
def test_a_broken_file_is_told_so(tmp_path: Path, content: str | bytes, parts: tuple[str, ...]) -> None:
    """The message has file, line, rule, what came and a remedy."""
    path = write(tmp_path / "c.csv", content)
    message = refusal(path)
    assert [part for part in (str(path), *parts) if part not in message] == []
