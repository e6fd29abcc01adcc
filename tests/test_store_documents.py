"""Corpora: what each format becomes, and what each broken file is told."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from document_samples import write_file
from pdf_samples import pdf_bytes
from raglab.store.document_files import MAX_TABLE_BLOCK_ROWS
from raglab.store.files import InputError
from raglab.store.loaders import hash_corpus, load_corpus, save_corpus
from raglab.values import Chunk, Corpus
from refusals import told

WORDING = """\
---
title: Premier Home
domain: home
version: 1.10
date: 2025-03-01
note:
entities: [Acme, Northmark]
authors: [A, B]
---
<!-- page 1 label="i" -->
Reference PH-1.
<!-- page 2 label="1" -->
## Limits
The limits are these.

| peril | GBP |
|---|---|
| wind | 100 |

### Theft
Theft is covered.
<!-- page 3 label="2" -->
Keys too.
"""


def write_records(path, *records):
    """Write one JSON object a line."""
    return write_file(path, "".join(json.dumps(record) + "\n" for record in records))


def refusal(path, **limits):
    """Message with which a path is refused."""
    with pytest.raises(InputError) as caught:
        load_corpus(path, **limits)
    return str(caught.value)


def test_a_section_is_a_chunk_under_its_heading_path(tmp_path):
    """Title, section and subsection are on the first line, a section goes on over a page end."""
    chunks = load_corpus(write_file(tmp_path / "a.md", WORDING)).chunks
    table = "| peril | GBP |\n|---|---|\n| wind | 100 |"
    assert [(c.chunk_id, c.page, c.page_label) for c in chunks] == [
        ("a.md#1-1", 1, "i"),
        ("a.md#2-2", 2, "1"),
        ("a.md#2-3", 2, "1"),
        ("a.md#3-4", 3, "2"),
    ]
    assert [chunk.full_text for chunk in chunks] == [
        "Premier Home\nReference PH-1.",
        f"Premier Home > Limits\nThe limits are these.\n\n{table}",
        "Premier Home > Limits > Theft\nTheft is covered.",
        "Premier Home > Limits > Theft\nKeys too.",
    ]


def test_markdown_without_anything_is_page_one(tmp_path):
    """No front matter, no marks, no headings: one chunk, page 1, its text as it is."""
    chunk = load_corpus(write_file(tmp_path / "a.md", "\ufeffOne.\r\n\r\nTwo.\r\n")).chunks
    assert chunk == (Chunk("a.md#1-1", "One.\n\nTwo.", "a.md", 1),)


def test_pages_of_plain_text_break_at_form_feeds(tmp_path):
    """Paragraphs of a page are one chunk, a form feed begins another."""
    path = write_file(tmp_path / "a.txt", "one\n\ntwo\n \nthree\n\ffour\n")
    assert [(c.page, c.text) for c in load_corpus(path).chunks] == [
        (1, "one\n\ntwo\n\nthree"),
        (2, "four"),
    ]


def test_pdf_pages_carry_their_printed_labels(tmp_path):
    """Pages i, 1, 2; an empty page makes no chunk; without labels in the file there are none."""
    write_file(tmp_path / "a.pdf", pdf_bytes("Cover", "", "Flood limit 500", labelled=True))
    write_file(tmp_path / "b.pdf", pdf_bytes("Plain"))
    assert load_corpus(tmp_path).chunks == (
        Chunk("a.pdf#1-1", "Cover", "a.pdf", 1, "i"),
        Chunk("a.pdf#3-2", "Flood limit 500", "a.pdf", 3, "2"),
        Chunk("b.pdf#1-1", "Plain", "b.pdf", 1, None),
    )


def test_a_folder_is_read_in_the_order_of_relative_paths(tmp_path):
    """Files of one name in two folders stay apart; hidden and other files are passed over.

    `documents/` goes first.
    """
    for name in ("b/x.md", "a/x.MD", "z.txt", ".git/x.md", "a/.x.md", "a/x.rtf"):
        write_file(tmp_path / "set" / "documents" / name, name)
    write_file(tmp_path / "set" / "README.md", "not a document")
    with pytest.warns(UserWarning, match=r"left out of the corpus: 1 \.rtf"):
        corpus = load_corpus(tmp_path / "set")
    assert corpus.name == "set"
    assert [c.source for c in corpus.chunks] == ["a/x.MD", "b/x.md", "z.txt"]


def test_documents_as_json_lines_are_cut_like_files(tmp_path):
    """A source that ends in .md has its headings read, another does not."""
    page = {"page": 2, "label": "i", "text": "## S\nOne."}
    path = write_records(
        tmp_path / "c.jsonl",
        {
            "source": "a.md",
            "tags": {"title": "T", "domain": "home"},
            "entities": ["Acme"],
            "pages": [page],
        },
        {"source": "b.txt", "pages": [page]},
    )
    assert load_corpus(path).chunks == (
        Chunk(
            "a.md#2-1",
            "One.",
            "a.md",
            2,
            "i",
            {"title": "T", "domain": "home"},
            ("Acme",),
            ("T", "S"),
        ),
        Chunk("b.txt#2-1", "## S\nOne.", "b.txt", 2, "i"),
    )


def test_squad_paragraphs_are_chunks(tmp_path):
    """Source is the title (a slash encoded), page the paragraph number, tag domain the article."""
    paragraphs = [{"context": "One.", "qas": []}, {"context": "Two.", "qas": []}]
    path = write_file(
        tmp_path / "s.json", json.dumps({"data": [{"title": "AC/DC", "paragraphs": paragraphs}]})
    )
    assert load_corpus(path).chunks == (
        Chunk("AC%2FDC#1-1", "One.", "AC%2FDC", 1, tags={"domain": "AC%2FDC"}),
        Chunk("AC%2FDC#2-2", "Two.", "AC%2FDC", 2, tags={"domain": "AC%2FDC"}),
    )


def test_beir_documents_are_chunks(tmp_path):
    """The title heads the text; a document without a title, or without both, stays."""
    records = (
        {"_id": "7", "title": "T", "text": "X"},
        {"_id": "8", "text": "Y"},
        {"_id": "9", "title": "", "text": ""},
    )
    path = write_records(tmp_path / "corpus.jsonl", *records)
    chunks = (Chunk("7", "X", "7", section=("T",)), Chunk("8", "Y", "8"), Chunk("9", "", "9"))
    assert load_corpus(path).chunks == load_corpus(tmp_path).chunks == chunks


def test_saving_and_loading_gives_an_equal_corpus(tmp_path):
    """Every field comes back, the name too, and so does the hash."""
    corpus = Corpus(
        "häuser",
        (
            Chunk(
                "a#1-1",
                "Straße\u2028x",
                "f/a.md",
                1,
                "i",
                {"domain": "home", "version": ""},
                ("É",),
            ),
            Chunk("b", "y", "b", None, None),
        ),
    )
    save_corpus(corpus, tmp_path / "c.jsonl")
    again = load_corpus(tmp_path / "c.jsonl")
    assert again == corpus
    assert hash_corpus(again) == hash_corpus(corpus)


def test_the_hash_sees_every_field_and_no_order_of_tags():
    """Changing any field changes the hash; the order of tags does not."""
    chunk = Chunk("a", "b", "c", 1, "i", {"x": "1", "y": "2"}, ("e",))
    fields = {"chunk_id": "z", "text": "z", "source": "z", "page": 2, "page_label": None}
    fields |= {"tags": {"x": "1"}, "entities": ()}
    corpora = [Corpus("n", (chunk,)), Corpus("m", (chunk,)), Corpus("n", (chunk, chunk))]
    corpora += [Corpus("n", (chunk._replace(**{name: fields[name]}),)) for name in fields]
    hashes = [hash_corpus(corpus) for corpus in corpora]
    assert len({*hashes}) == len(corpora)
    reordered = Corpus("n", (chunk._replace(tags={"y": "2", "x": "1"}),))
    assert hash_corpus(reordered) == hashes[0]


CHUNK = {"id": "a", "source": "s", "text": "t"}
PAGED = {"source": "a.md", "pages": [{"page": 1, "text": "t"}]}


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        ({"id": "a", "source": "s"}, "line 2, id a: text is required … add text"),
        ({**CHUNK, "text": 7}, "text … got 7"),
        (
            {**CHUNK, "id": "first"},
            "id must be unique … 'first' again … rename or remove",
        ),
        (
            {**CHUNK, "page": 10**4000},
            "page … 2147483647",
        ),
        (
            {**CHUNK, "entities": ["e"] * 20_000},
            "entities … at most 1000 long, got 20000",
        ),
        (
            {**CHUNK, "tags": {"version": 2025}},
            "tags.version … got 2025",
        ),
        (
            {**CHUNK, **dict.fromkeys(map(str, range(10**4)), 0)},
            "0 is no field … more kinds of faults",
        ),
    ],
)
def test_a_wrong_chunk_line_is_told_so(tmp_path, record, rule):
    """The message has file, line, rule, what came and a remedy, and is short whatever came."""
    path = write_records(tmp_path / "c.jsonl", {**CHUNK, "id": "first"}, record)
    message = refusal(path)
    told(message, str(path), "line 2", rule)
    assert len(message) < 1500


def test_a_title_beside_the_fields_is_a_tag(tmp_path):
    """Of a chunk and of a document, whose passages a Markdown title heads.

    Stated twice alike it is one.
    """
    path = write_records(
        tmp_path / "c.jsonl",
        {**CHUNK, "title": "Glass", "tags": {"line": "home", "title": "Glass"}},
    )
    assert dict(load_corpus(path).chunks[0].tags) == {"line": "home", "title": "Glass"}
    document = {
        "source": "b.md",
        "title": "Hail",
        "pages": [{"page": 1, "text": "Glass is covered."}],
    }
    chunk = load_corpus(write_records(tmp_path / "d.jsonl", document)).chunks[0]
    assert (dict(chunk.tags), chunk.full_text) == ({"title": "Hail"}, "Hail\nGlass is covered.")


def test_further_keys_of_a_beir_document_are_named_together(tmp_path):
    """One warning a file, with their number.

    Title, text and metadata are BEIR's own.
    """
    rows = [{"_id": str(n), "text": "x", "metadata": {}, "url": "u"} for n in range(3)]
    write_records(tmp_path / "corpus.jsonl", *rows, {"_id": "3", "text": "x", "year": 1})
    with pytest.warns(UserWarning, match="left out: 2 keys of documents: 'url'; 'year'"):
        assert len(load_corpus(tmp_path).chunks) == 4


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        ({"source": "b.md", "pages": {}}, "pages … got an object of 0"),
        (
            {"source": "b.md", "pages": [{"text": "x"}]},
            "pages.0.page is required",
        ),
        (
            {"source": "b.md", "pages": [{"page": n, "text": "x"} for n in (2, 2)]},
            "must go up, got 2 after 2 … 1, 2, 3",
        ),
        ({"source": "b.md", "pages": []}, "a document must have text … fill it or take it away"),
        (PAGED, "'a.md#1-1' again … rename or remove"),
    ],
)
def test_a_wrong_document_line_is_told_so(tmp_path, record, rule):
    """The message has file, line, rule, what came and a remedy."""
    path = write_records(tmp_path / "c.jsonl", PAGED, record)
    told(refusal(path), str(path), "line", rule)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "a file must not be empty … one JSON object a line"),
        (b'{"id": "\\ud800"}', "line 1: text must be valid JSON … surrogates"),
        (b'{"id": "a"', "line 1: text must be valid JSON … at column … correct or remove it"),
        (
            b'{"id": "a", "id": "b"}',
            "line 1: text must be valid JSON, got key 'id' twice … correct or remove it",
        ),
        (
            b"[" * 100_000,
            "line 1: text must be valid JSON, got nesting too deep … correct or remove it",
        ),
        (
            b'{"id": 1e400}',
            ("line 1: text must be valid JSON, got '1e400', which is no finite number … correct"),
        ),
        (
            b'{"a": %s}' % (b"9" * 5000),
            ("line 1: text must be valid JSON, got an integer of over 4300 digits … correct"),
        ),
        (
            b'\n{"id": "\xe9"}',
            "line 2: text must be UTF-8, got byte 0xe9 … save the file as UTF-8",
        ),
        (
            b'{"query": "x"}',
            ("pages (a document), text (a chunk), _id (BEIR)"),
        ),
        (
            b'{"_id": "7", "text": ""}\n{"_id": "7", "text": ""}',
            "line 2, id 7: a chunk's id must be unique",
        ),
    ],
)
def test_wrong_json_lines_are_told_so(tmp_path, content, rule):
    """The message has file, line, rule, what came and a remedy."""
    path = write_file(tmp_path / "c.jsonl", content)
    told(refusal(path), str(path), rule)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"# Only\n## Headings\n", "a document must have text … fill it or take it away"),
        (b"x\ny\xff", "line 2: text must be UTF-8, got byte 0xff … save the file as UTF-8"),
        (
            b"---\na: 1\n\xef\xbb\xbfb: 2\n---\nx",
            "line 3: front matter must hold no byte-order mark … take it away",
        ),
        (
            b"---\na: 1\nb: !!python/object/apply:os.system [ls]\n---\nx",
            "line 3: front matter must be valid YAML … python/object/apply:os.system",
        ),
        (
            b"---\na: " + b"[" * 60_000 + b"\n---\nx",
            "front matter must be valid YAML … nesting too deep",
        ),
        (
            b"---\na: " + b"x" * 2**16 + b"\n---\nx",
            "line 2: front matter must be at most 65536 characters … move",
        ),
        (
            b"---\na: 1\na: 2\n---\nx",
            "line 3: front matter must be valid YAML … key 'a' twice",
        ),
        (
            b"---\nentities: Acme\n---\nx",
            "line 2: entities must be a list of strings, got 'Acme' … [Acme, Northmark]",
        ),
    ],
)
def test_wrong_markdown_is_told_so(tmp_path, content, rule):
    """The message has file, line, rule, what came and a remedy."""
    path = write_file(tmp_path / "a.md", content)
    told(refusal(tmp_path), str(path), rule)


def test_wrong_paths_are_told_so(tmp_path):
    """No document, no such path, an unknown ending, a JSON that is not SQuAD, a pipe's stand-in."""
    told(refusal(tmp_path), str(tmp_path), "a folder must hold documents … add some")
    for path, rule in (
        (tmp_path / "x", "a path that does not exist"),
        (Path("/dev/null/x.md"), "the file must be readable"),
        (write_file(tmp_path / "x.rtf", "a,b"), "x.rtf … corpus must be a folder … .md"),
        (write_file(tmp_path / "x.json", "{}"), "x.json … SQuAD 2.0 (key data)"),
    ):
        told(refusal(path), rule)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (
            [{"title": "T", "paragraphs": [{}]}],
            "data.0.paragraphs.0.context is required",
        ),
        (
            [{"title": "T", "paragraphs": [{"context": "x"}]}] * 2,
            "id T#1-1: a chunk's id must be unique … rename",
        ),
    ],
)
def test_wrong_squad_is_told_so(tmp_path, data, rule):
    """The message has file, the way inside the document, rule and remedy."""
    path = write_file(tmp_path / "s.json", json.dumps({"data": data}))
    told(refusal(path), str(path), rule)


def test_a_line_over_the_limit_is_refused_unread(tmp_path):
    """A line of 1 GB (a sparse file) is refused with less than 64 MB in memory.

    At the limit a line passes.
    """
    path = tmp_path / "c.jsonl"
    with path.open("wb") as file:
        file.truncate(2**30)
    tracemalloc.start()
    message = refusal(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    told(message, str(path), "line 1: a line must be at most 16777216 bytes … raise max_line_bytes")
    assert peak < 64 * 2**20
    line = json.dumps(CHUNK)
    write_file(path, line + "\r\n")
    assert load_corpus(path, max_line_bytes=len(line)).chunks
    refusal(path, max_line_bytes=len(line) - 1)


def test_a_file_over_the_limit_is_refused(tmp_path):
    """Files that are read as a whole have a limit too."""
    path = write_file(tmp_path / "a.md", "x" * 11)
    told(refusal(path, max_file_bytes=10), "a file must be at most 10 bytes … max_file_bytes")
    told(refusal(path, max_line_bytes=10), "a document must be at most 10 characters")


def test_a_file_is_a_table_under_its_name(tmp_path):
    """Two rows are one chunk, page 1, without tags.

    Blanks inside a cell are single, a quoted comma stays.
    """
    path = write_file(
        tmp_path / "home_excesses-2025.csv", 'Cause,Excess\n"Storm,  hail",£250\nFlood,"£1,500"\n'
    )
    (chunk,) = load_corpus(path).chunks
    assert (
        chunk.full_text
        == "home excesses 2025\n| Cause | Excess |\n|---|---|\n| Storm, hail | £250 |\n| Flood | "
        "£1,500 |"
    )
    assert (chunk.chunk_id, chunk.source) == (f"{path.name}#1-1", path.name)


def test_the_head_is_repeated_after_25_rows(tmp_path):
    """60 rows make tables of 25, 25 and 10 on pages 1, 2 and 3, and no row is lost."""
    path = write_file(tmp_path / "n.csv", "n,m\n" + "".join(f"{n},{n}\n" for n in range(60)))
    chunks = load_corpus(path).chunks
    assert [(chunk.page, chunk.full_text.count("\n") - 2) for chunk in chunks] == [
        (1, MAX_TABLE_BLOCK_ROWS),
        (2, MAX_TABLE_BLOCK_ROWS),
        (3, 10),
    ]
    assert all(chunk.full_text.startswith("n\n| n | m |\n|---|---|\n| ") for chunk in chunks)
    rows = [line for chunk in chunks for line in chunk.full_text.split("\n")[3:]]
    assert rows == [f"| {n} | {n} |" for n in range(60)]


def test_bars_and_line_breaks_in_cells_break_no_table(tmp_path):
    """A bar is escaped, a line break is a blank, blank lines make no rows, cells stay."""
    (chunk,) = load_corpus(
        write_file(tmp_path / "x.csv", '\na,b\n\n"1|2","3\n4"\n,\n-,""\n')
    ).chunks
    assert chunk.full_text.split("\n")[3:] == ["| 1\\|2 | 3 4 |", "| - |  |"]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("a,b\n", "a table must have heads and a row … got 1 records"),
        (
            "a,b\n1,2\n\n1,2,3\n",
            (", line 4: … must have as many cells as there are heads, got 3 instead of 2 … quote"),
        ),
        ('a,b\n1,"2\n3,4\n', "a .csv file must be valid CSV … close each quote"),
        (
            "a,b\n1," + "x" * 200_000,
            "a .csv file must be valid CSV, got field larger than field limit",
        ),
        (
            "a," * 10_001 + "b\n1,2\n",
            "line 1: the heads of a table must be at most 20000 characters … shorten",
        ),
    ],
)
def test_a_broken_file_is_told_so(tmp_path, content, rule):
    """The message has file, line, rule, what came and a remedy."""
    path = write_file(tmp_path / "c.csv", content)
    told(refusal(path), str(path), rule)
