"""Tables of contents: the forms in which they are printed, the pages they name, page scopes."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.answering.contents import Entry, contents, contents_pages, scope
from raglab.store.loaders import load_corpus
from raglab.values import Chunk
from trades import INSURANCE

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
WITHOUT = 11  # documents that print no table of contents
TITLES = ("Parties", "What is covered", "Limits and excesses", "Ce qui n'est pas assuré", "Claims", "Cancellation")
FORMS = {
    "table": lambda rows: "| Part | Printed page |\n|---|---|\n" + "\n".join(f"| {t} | {p} |" for t, p in rows),
    "dashes": lambda rows: "Contents\n\n" + "\n".join(f"- {t} — page {p}" for t, p in rows),
    "colons": lambda rows: "Table des articles :\n\n" + "\n".join(f"- {t} : page {p}" for t, p in rows),
    "dots": lambda rows: "Contents: " + " · ".join(f"{t} {p}" for t, p in rows) + ".",
    "dots first": lambda rows: " · ".join(f"{p} {t}" for t, p in rows),
    "run in": lambda rows: "Where to look: " + " ".join(f"{t}, page {p}." for t, p in rows),
    "brackets": lambda rows: "Sommaire : " + ", ".join(f"{t} (p. {p})" for t, p in rows) + ".",
    "bare brackets": lambda rows: "Contents: " + ", ".join(f"{t} ({p})" for t, p in rows) + ". And more text.",
}


@cache
def documents() -> dict[str, tuple[Chunk, ...]]:
    """Chunks of each bundled document."""
    return {doc: tuple(group) for doc, group in groupby(load_corpus(BROKER).chunks, lambda chunk: chunk.source)}


def paged(text: str, pages: int, *, cover: bool = False) -> list[Chunk]:
    """A document whose first page is the text; with a cover sheet the labels lag behind the positions."""
    rest = [Chunk(f"a#{n}", "Text.", "a.md", n, str(n - 1) if cover else str(n)) for n in range(2, pages + 2)]
    return [Chunk("a#1", text, "a.md", 1, "i" if cover else "1"), *rest]


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, derandomize=True, max_examples=20)
@given(
    titles=st.lists(st.sampled_from(TITLES), min_size=3, max_size=6, unique=True),
    steps=st.lists(st.integers(0, 2), min_size=6, max_size=6),
    cover=st.booleans(),
)
def test_what_is_printed_is_read(form: str, titles: list[str], steps: list[int], cover: bool) -> None:  # noqa: FBT001
    """Every form gives back titles and labels, and a label's position is one more behind a cover sheet."""
    labels = [1 + sum(steps[:n]) for n in range(len(titles))]
    chunks = paged("Policy > Cover sheet\n" + FORMS[form](list(zip(titles, labels, strict=True))), 14, cover=cover)
    expected = [Entry(t, str(p), p + 1 if cover else p) for t, p in zip(titles, labels, strict=True)]
    assert list(contents(chunks)) == expected


def test_a_range_of_pages_is_an_entry_a_page() -> None:
    """`6-7` names both; a label that no page carries has no position."""
    text = "A > B\n| Clause | Page |\n|---|---|\n| Parties | 1 |\n| Cover | 2–3 |\n| Law | 99 |"
    found = contents(paged(text, 5, cover=True))
    assert [(entry.title, entry.label, entry.page) for entry in found] == [
        ("Parties", "1", 2),
        ("Cover", "2", 3),
        ("Cover", "3", 4),
        ("Law", "99", None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "A > B\nThe figures of page 2 and page 3 apply; see page 4 as well.",
        "A > B\nContents: buildings (page 9), money (page 3), garden (page 1).",
        "A > B\nContents: parties (page 1), cover (page 2).",
        "A > B\n| Item | Limit |\n|---|---|\n| Money | 250 |\n| Bicycle | 500 |\n| Garden | 900 |",
        "A > B\nContents are insured up to £50,000 (1), valuables (2), and money (3).",
    ],
)
def test_what_is_no_table_of_contents_is_none(text: str) -> None:
    """Cross-references, labels that go down, two entries, tables of amounts, contents of a home."""
    assert contents(paged(text, 12)) == ()


def test_labels_fall_back_to_positions_without_any() -> None:
    """Where no page carries a label, page 2 is the second."""
    chunks = [
        Chunk(f"a#{n}", "Contents: Parties 1 · Cover 2 · Law 3" if n == 1 else "Text.", "a.md", n) for n in (1, 2)
    ]
    assert [entry.page for entry in contents(chunks)] == [1, 2, None]


def test_the_bundled_tables_of_contents() -> None:
    """25 of 36 documents print one; every entry has a position, and they begin where the documents say."""
    found = {doc: contents(chunks) for doc, chunks in documents().items()}
    assert sum(not entries for entries in found.values()) == WITHOUT
    assert all(entry.page is not None for entries in found.values() for entry in entries)
    assert all(found[doc] for doc, chunks in documents().items() if chunks[0].tags["page_1_kind"] == "coversheet")
    assert found["vauban-habitation-contrat-2025.md"][0] == Entry("L'assureur et les mots du contrat", "1", 2)
    assert found["northmark-homeplus-contract-2025.md"][-1] == Entry("F. Conditions, claims, cancellation", "7", 8)
    assert len(found["vauban-flotte-contrat-2025.md"]) == 7
    assert found["vauban-procedure-sinistre.md"][0] == Entry("les premiers gestes", "2", 2)


def test_the_pages_for_a_field_come_best_first() -> None:
    """Parties before definitions for the insurer; a word of the question lifts its title; no title, no page."""
    chunks = paged("A > B\nContents: Definitions 1 · Limits 2 · Parties 3 · Premium 4 · Storm 5", 8)
    assert contents_pages("insurer_name", chunks, pack=INSURANCE) == (3, 1)
    assert contents_pages("premium", chunks, pack=INSURANCE) == (4,)
    assert contents_pages("deductible", chunks, "storm", pack=INSURANCE) == (2, 5)
    assert contents_pages("claims_phone", chunks, pack=INSURANCE) == ()
    assert contents_pages("insurer_name", [chunks[1]], pack=INSURANCE) == ()


def test_scopes() -> None:
    """A page, the document, the contents in their ranking; another value is refused, and toc wants a field."""
    chunks = paged("A > B\nContents: Definitions 1 · Limits 2 · Parties 3", 5)
    assert scope(chunks, "document") == tuple(chunks)
    assert [chunk.page for chunk in scope(chunks, "3")] == [3]
    assert [chunk.page for chunk in scope(chunks, "toc", field="insurer_name", pack=INSURANCE)] == [3, 1]
    assert scope(chunks, "77") == ()
    for value in ("0", "-1", "page 2", "", "²"):
        with pytest.raises(ValueError, match="must be document, toc or a page"):
            scope(chunks, value)
    with pytest.raises(ValueError, match="toc needs a field"):
        scope(chunks, "toc")


def test_several_documents_are_refused() -> None:
    """A table of contents speaks of one document."""
    with pytest.raises(ValueError, match="one document, got chunks of 2"):
        contents([Chunk("a#1", "Text.", "a.md", 1), Chunk("b#1", "Text.", "b.md", 1)])
