"""Tables of contents: the forms in which they are printed, the pages they name, page scopes."""

from __future__ import annotations

import importlib.util
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.extensions.clarification.contents import (
    Entry,
    contents,
    contents_pages,
    page_features,
    page_kind,
    scope,
)
from raglab.store.loaders import load_corpus
from raglab.values import Chunk
from raglab.words.packs import GENERIC
from trades import INSURANCE

BROKER = Path(__file__).resolve().parents[3] / "datasets" / "broker"
WITHOUT = 11  # documents that print no table of contents
TITLES = (
    "Parties",
    "What is covered",
    "Limits and excesses",
    "Ce qui n'est pas assuré",
    "Claims",
    "Cancellation",
)
FORMS = {
    "table": lambda rows: (
        "| Part | Printed page |\n|---|---|\n" + "\n".join(f"| {t} | {p} |" for t, p in rows)
    ),
    "dashes": lambda rows: "Contents\n\n" + "\n".join(f"- {t} — page {p}" for t, p in rows),
    "colons": lambda rows: (
        "Table des articles :\n\n" + "\n".join(f"- {t} : page {p}" for t, p in rows)
    ),
    "dots": lambda rows: "Contents: " + " · ".join(f"{t} {p}" for t, p in rows) + ".",
    "dots first": lambda rows: " · ".join(f"{p} {t}" for t, p in rows),
    "run in": lambda rows: "Where to look: " + " ".join(f"{t}, page {p}." for t, p in rows),
    "brackets": lambda rows: "Sommaire : " + ", ".join(f"{t} (p. {p})" for t, p in rows) + ".",
    "bare brackets": lambda rows: (
        "Contents: " + ", ".join(f"{t} ({p})" for t, p in rows) + ". And more text."
    ),
}


@cache
def documents():
    """Chunks of each bundled document."""
    return {
        doc: tuple(group)
        for doc, group in groupby(load_corpus(BROKER).chunks, lambda chunk: chunk.source)
    }


def paged(text, pages, *, cover=False):
    """A document whose first page is the text.

    With a cover sheet the labels lag behind the positions.
    """
    rest = [
        Chunk(f"a#{n}", "Text.", "a.md", n, str(n - 1) if cover else str(n))
        for n in range(2, pages + 2)
    ]
    return [Chunk("a#1", text, "a.md", 1, "i" if cover else "1"), *rest]


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, derandomize=True, max_examples=20)
@given(
    titles=st.lists(st.sampled_from(TITLES), min_size=3, max_size=6, unique=True),
    steps=st.lists(st.integers(0, 2), min_size=6, max_size=6),
    cover=st.booleans(),
)
def test_what_is_printed_is_read(
    form,
    titles,
    steps,
    cover,
):
    """Each form gives back titles and labels, a label's position one more behind a cover sheet."""
    labels = [1 + sum(steps[:n]) for n in range(len(titles))]
    chunks = paged(
        "Policy > Cover sheet\n" + FORMS[form](list(zip(titles, labels, strict=True))),
        14,
        cover=cover,
    )
    expected = [
        Entry(t, str(p), p + 1 if cover else p) for t, p in zip(titles, labels, strict=True)
    ]
    assert list(contents(chunks)) == expected


def test_a_range_of_pages_is_an_entry_a_page():
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
        "A > B\nContents cover: jewellery (1), bicycles (2).",
        "A > B\nContents: Parties 1 · Cover 2",
        "A > B\n| Item | Limit |\n|---|---|\n| Money | 250 |\n| Bicycle | 500 |\n| Garden | 900 |",
        "A > B\nContents are insured up to £50,000 (1), valuables (2), and money (3).",
    ],
)
def test_what_is_no_table_of_contents_is_none(text):
    """Cross-references, labels that go down, tables of amounts, contents of a home, two numbers."""
    assert contents(paged(text, 12)) == ()


PRINTED = (("Leave", 2), ("Notice period", 3), ("Expenses and travel", 5), ("Who to call", 7))


def listed(form):
    """The entries, a line each.

    `{t}` is the title, `{p}` the page, `{n}` its number.
    """
    return "\n".join(
        form.format(t=t, p=p, n=n, r=("I", "II", "III", "IV")[n - 1])
        for n, (t, p) in enumerate(PRINTED, 1)
    )


LAYOUTS = {
    "dot leaders": listed("{t} ........ {p}"),
    "spaced dots": listed("{t} . . . . . {p}"),
    "ellipses": listed("{t} … {p}"),
    "tabs": listed("{t}\t{p}"),
    "aligned columns": listed("{t:30}{p}"),
    "numbers and leaders": listed("{n}. {t} ..... {p}"),
    "numbers of two levels": listed("1.{n} {t}\t{p}"),
    "articles": listed("Article {n} — {t} ..... {p}"),
    "chapters": listed("Chapitre {r} {t} ..... p. {p}"),
    "a table without a head": listed("| {t} | {p} |"),
    "a table with another head": "| Part | No. |\n|---|---|\n" + listed("| {t} | {p} |"),
    "pages first": "| Page | Part |\n|---|---|\n" + listed("| {p} | {t} |"),
    "links to pages": listed("- [{t}](#page-{p})"),
    "two a line": (
        "Leave .... 2   Notice period .... 3\nExpenses and travel .... 5   Who to call .... 7"
    ),
    "single blanks": listed("- {t} {p}"),
    "brackets": listed("- {t} ({p})"),
    "commas": listed("{t}, p. {p}"),
    "colons": listed("{t} : page {p}"),
    "bold": listed("**{t}** ........ {p}"),
    "hard breaks": listed("{t} ....... {p}\\"),
}
NO_CONTENTS = {
    "prices": "Tea .... 2\nCoffee .... 3\nCake .... 4",
    "a table of prices": "| Item | Price |\n|---|---|\n| Tea | 2 |\n| Coffee | 3 |\n| Cake | 4 |",
    "sums": "Tea .... £2.00\nCoffee .... £3.00\nCake .... £4.50",
    "steps": "1. Open the lid\n2. Fill the tank\n3. Close the lid",
    "clauses": "- Fire\n- Flood\n- Theft",
    "rooms": "Room 2\nRoom 3\nRoom 4",
    "links elsewhere": "- [Tea](#tea)\n- [Coffee](#coffee)\n- [Cake](#cake)",
}


def handbook(text, head):
    """A document whose first page is the text under a heading, with the headings of `PRINTED`.

    Its pages have these headings.
    """
    heads = {page: title for title, page in PRINTED}
    rest = [
        Chunk(f"a#{n}", f"Book > {heads.get(n, f'More {n}')}\nText.", "a.md", n, str(n))
        for n in range(2, 9)
    ]
    return [Chunk("a#1", f"Book > {head}\n{text}", "a.md", 1, "1"), *rest]


@pytest.mark.parametrize("head", ["Contents", "Sommaire"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_read(layout, head):
    """Titles and pages of every layout, under an English and a French title."""
    found = contents(handbook(LAYOUTS[layout], head))
    assert [entry.page for entry in found] == [page for _, page in PRINTED]
    assert all(
        entry.title.endswith(title) for entry, (title, _) in zip(found, PRINTED, strict=True)
    )


def test_pages_counted_by_chapter_are_no_ranges():
    """`2-1` is the first page of chapter 2 where the pages carry such labels."""
    rows = [
        ("Section 1: Device", "1-1"),
        ("Section 2: Warnings", "2-1"),
        ("Section 3: Cuff", "2-4"),
    ]
    text = "Table of Contents\n" + "\n".join(f"{title} ......... {label}" for title, label in rows)
    labels = ["i", "1-1", "2-1", "2-2", "2-3", "2-4"]
    chunks = [
        Chunk(f"a#{n}", "Text." if n > 1 else text, "a.md", n, label)
        for n, label in enumerate(labels, 1)
    ]
    assert [(entry.label, entry.page) for entry in contents(chunks)] == [
        ("1-1", 2),
        ("2-1", 3),
        ("2-4", 6),
    ]


@pytest.mark.parametrize("text", NO_CONTENTS.values(), ids=NO_CONTENTS)
def test_other_lists_are_no_contents(text):
    """Prices, steps and clauses name no pages, though they look like it."""
    assert contents(handbook(text, "Menu")) == ()


PAIRS = {
    "leaders": "Contents\nWhat is insured ..... 2\nClaims ..... 4",
    "a table": "Contents\n\n| Part | Page |\n|---|---|\n| Cover | 2 |\n| Claims | 3 |",
    "the word page": "Sommaire\n- Garanties — page 2\n- Sinistres — page 3",
    "brackets": "Contents\n- Cover (2)\n- Claims (3)",
    "middle dots": "Contents\nCover 2 · Claims 3",
    "a sentence": "Book\nContents: cover (page 2), claims (page 3).",
}
NO_PAIRS = {
    "prices": "Menu\nTea ..... 2\nCoffee ..... 3",
    "a table of prices": "Menu\n\n| Item | Price |\n|---|---|\n| Tea | 2 |\n| Cake | 3 |",
    "a page column without a title": "| Form | Page |\n|---|---|\n| A 12 | 2 |\n| B 7 | 3 |",
    "dated lines": "Contents\nFrom 1 May 2025\nUntil 3 June 2025",
    "months": "Contents\nFrom May 2\nUntil June 3",
    "two points": "Contents\n1. Cover\n2. Claims",
    "two points without a title": "1. Cover\n2. Claims",
    "two references": "Contents\nMore stands on page 3. Page 2 has the rest, as page 4.",
    "one page twice": "Contents\nChairs ..... 2\nTables ..... 2",
    "going down": "Contents\nClaims ..... 4\nCover ..... 2",
    "pages that it lacks": "Contents\nChairs ..... 2\nSpoons ..... 24",
    "sums": "Contents\nSofa ..... £2\nLamp ..... £3",
    "a single entry": "Contents\nCover ..... 2",
}


@pytest.mark.parametrize("text", PAIRS.values(), ids=PAIRS)
def test_two_entries_under_a_title_are_contents(text):
    """Or where a sentence that says so and the word page lead up to them."""
    labels = [entry.label for entry in contents(handbook(text, "Book"))]
    assert labels == (["2", "4"] if text == PAIRS["leaders"] else ["2", "3"])


@pytest.mark.parametrize("text", NO_PAIRS.values(), ids=NO_PAIRS)
def test_two_lines_are_no_contents(text):
    """Prices, dates, points, and labels that go down or are no pages of the document."""
    assert contents(handbook(text, "Book")) == ()


def test_headings_of_its_pages_stand_for_a_title():
    """A column of numbers under another head is one of pages where those pages have its titles."""
    rows = listed("| {t} | {p} |")
    assert len(contents(handbook(f"| What | Turn to |\n|---|---|\n{rows}", "Book"))) == len(PRINTED)
    shifted = "| What | Turn to |\n|---|---|\n" + "\n".join(
        f"| {t} | {p + 1} |" for t, p in PRINTED
    )
    assert contents(handbook(shifted, "Book")) == ()


def test_ranges_are_written_in_many_ways():
    """With dashes, hyphens and words."""
    found = contents(
        handbook("Leave ..... 2–3\nNotice ..... 3-4\nTravel ..... pages 5 to 6", "Contents")
    )
    assert [(entry.title, entry.page) for entry in found] == [
        ("Leave", 2),
        ("Leave", 3),
        ("Notice", 3),
        ("Notice", 4),
        ("Travel", 5),
        ("Travel", 6),
    ]


def test_labels_fall_back_to_positions_without_any():
    """Where no page carries a label, page 2 is the second."""
    chunks = [
        Chunk(f"a#{n}", "Contents: Parties 1 · Cover 2 · Law 3" if n == 1 else "Text.", "a.md", n)
        for n in (1, 2)
    ]
    assert [entry.page for entry in contents(chunks)] == [1, 2, None]


def test_the_bundled_tables_of_contents():
    """25 of 36 documents print one.

    Every entry has a position, and they begin where the documents say.
    """
    found = {doc: contents(chunks) for doc, chunks in documents().items()}
    assert sum(not entries for entries in found.values()) == WITHOUT
    assert all(entry.page is not None for entries in found.values() for entry in entries)
    assert all(
        found[doc]
        for doc, chunks in documents().items()
        if chunks[0].tags["page_1_kind"] == "coversheet"
    )
    assert found["vauban-habitation-contrat-2025.md"][0] == Entry(
        "L'assureur et les mots du contrat", "1", 2
    )
    assert found["northmark-homeplus-contract-2025.md"][-1] == Entry(
        "F. Conditions, claims, cancellation", "7", 8
    )
    assert len(found["vauban-flotte-contrat-2025.md"]) == 7
    assert found["vauban-procedure-sinistre.md"][0] == Entry("les premiers gestes", "2", 2)


def test_the_pages_for_a_field_come_best_first():
    """Parties before definitions for the insurer; a word of the question lifts its title.

    No title, no page.
    """
    chunks = paged("A > B\nContents: Definitions 1 · Limits 2 · Parties 3 · Premium 4 · Storm 5", 8)
    assert contents_pages("insurer_name", chunks, pack=INSURANCE) == (3, 1)
    assert contents_pages("premium", chunks, pack=INSURANCE) == (4,)
    assert contents_pages("deductible", chunks, "storm", pack=INSURANCE) == (2, 5)
    assert contents_pages("claims_phone", chunks, pack=INSURANCE) == ()
    assert contents_pages("insurer_name", [chunks[1]], pack=INSURANCE) == ()


def test_scopes():
    """A page, the document, the contents in their ranking; another value is refused."""
    chunks = paged("A > B\nContents: Definitions 1 · Limits 2 · Parties 3", 5)
    assert scope(chunks, "document") == tuple(chunks)
    assert [chunk.page for chunk in scope(chunks, "3")] == [3]
    assert [chunk.page for chunk in scope(chunks, "toc", field="insurer_name", pack=INSURANCE)] == [
        3,
        1,
    ]
    assert [scope(chunks, value) for value in ("77", "0", "-1", "toc")] == [()] * 4
    for value in ("page 2", "", "²"):
        with pytest.raises(ValueError, match="invalid literal"):
            scope(chunks, value)


def test_several_documents_are_refused():
    """A table of contents speaks of one document."""
    with pytest.raises(ValueError, match="one document, got chunks of 2"):
        contents([Chunk("a#1", "Text.", "a.md", 1), Chunk("b#1", "Text.", "b.md", 1)])


ROOT = Path(__file__).resolve().parents[3]
BROKER_PAGE_KIND = ROOT / "datasets" / "broker"
COVER = """Storm Cover — Policy Wording
Reference SC-W/2025. Keep this booklet with your schedule. Write to: PO Box 7, Leeds.

- Parties and definitions — page 1
- What is insured — page 2
- Exclusions — page 3
- Claims — page 4"""
BODY = (
    "Storm Cover > 1. What we insure\nThe insurer pays for loss of or damage to the home by "
    "storm, flood and fire, up "
    "to the limit in the schedule and less the excess that the policyholder has agreed to bear "
    "for each and every "
    "claim. The policyholder must tell us of a loss within thirty days, keep what was damaged "
    "until we have seen it, "
    "and may not admit liability to anybody; a claim that is made later is reduced by what the "
    "delay has cost us."
)


@cache
def experiment():
    """The experiment, loaded from its file."""
    spec = importlib.util.spec_from_file_location(
        "experiment_page_kind", ROOT / "experiments" / "page_kind.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def first_pages():
    """First pages of the bundled documents, as the experiment reads them."""
    return tuple(experiment().first_pages(BROKER_PAGE_KIND))


def stored():
    """The coefficients in the pack."""
    return INSURANCE.page_kind.model.model_dump(mode="json")


def leaves(tree):
    """Numbers of nested mappings and lists, in order."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, list):
        return [leaf for part in tree for leaf in leaves(part)]
    return [float(tree)] if isinstance(tree, (int, float)) else []


COVERS = (
    COVER,
    "Hire Agreement\n\nBetween Dale Boats Ltd and Ada Finch\n\n3 May 2025\n\nReference H-25/014",
    "Boat Cover\n\nDale Boats Ltd\n\nMay 2025\n\nPrinted in Leeds by Hale & Sons.",
    "Hire Agreement\n\nBetween Dale Boats Ltd and Ada Finch\n\n3 May 2025\n\nSigned. Sealed.",
    "Conditions générales\n\nMutuelle du Port\n\nÉdition 2025",
)
BODIES = (
    BODY,
    "The hirer returns the boat at noon with a full tank. Late boats cost a day.",
    "Boat rules\n\nLe locataire rend le bateau à midi. Le dépôt est rendu après le contrôle.",
    "Dear Ms Finch,\n\nyour boat is ready. Please collect it. Bring your licence.\n\nYours",
    "# Rules\n\n- Swim between the flags.\n- Leave no glass on the beach.\n- Dogs stay on a lead.",
)


@pytest.mark.parametrize("pack", [INSURANCE, GENERIC], ids=["insurance", "generic"])
def test_a_cover_sheet_and_a_body(pack):
    """Covers have titles, parties, dates and hardly a sentence; a body may be short."""
    kinds = [page_kind([Chunk("a", text, "a.md", 1)], pack=pack) for text in (*COVERS, *BODIES)]
    assert kinds == ["coversheet"] * len(COVERS) + ["body"] * len(BODIES)


def test_the_features_by_hand():
    """Seven words in two sentences, a heading, a reference, no contents, a contract word."""
    found = page_features(
        [Chunk("a#1", "A > B\nReference AB/1 applies. Read the claims.", "a.md", 1)], pack=INSURANCE
    )
    assert tuple(found) == experiment().FEATURES
    assert [*found.values()] == pytest.approx([np.log(8), 1.0, 0.0, 3.5, 1.0, 100.0 / 7.0])


@pytest.mark.parametrize(
    ("pack", "right"), [(INSURANCE, 34), (GENERIC, 34)], ids=["insurance", "generic"]
)
def test_retraining_gives_the_stored_coefficients(pack, right):
    """To 1e-6, with the accuracy stated beside them."""
    again = experiment().trained(first_pages(), pack)
    assert leaves(again) == pytest.approx(
        leaves(pack.page_kind.model.model_dump(mode="json")), abs=1e-6
    )
    assert (again["documents"], again["coversheets"], again["left_out_right"]) == (36, 15, right)


def test_the_package_judges_as_the_experiment():
    """The package agrees with the trained model on each document, right on at least 34 of 36."""
    right = 0
    for _, cover, chunks in first_pages():
        kind = page_kind(chunks, pack=INSURANCE)
        features = list(page_features(chunks, pack=INSURANCE).values())
        assert (kind == "coversheet") == experiment().says_cover(stored(), features)
        right += (kind == "coversheet") == cover
    assert right >= 34


def test_tags_and_labels_are_not_read():
    """Only the text decides: without tags and printed labels the answer is the same."""
    for _, _, chunks in first_pages():
        bare = [Chunk(chunk.chunk_id, chunk.full_text, chunk.source, 1) for chunk in chunks]
        assert page_kind(bare, pack=INSURANCE) == page_kind(chunks, pack=INSURANCE)


def test_no_page_is_refused():
    """Nothing to judge."""
    with pytest.raises(ValueError, match="at least one chunk"):
        page_kind([])
