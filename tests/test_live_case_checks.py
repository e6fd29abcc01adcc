"""Expected sources that the corpus lacks.

The warning proposes the nearest name, or the pages that there are.
"""

from __future__ import annotations

import warnings

import pytest

from raglab.live.case_checks import check_expected_sources
from raglab.values import Case, Chunk

CHUNKS = [
    Chunk(f"docs/{name}#{page}-{page}", "x", f"docs/{name}", page)
    for name, pages in (("motor_terms.md", 3), ("home.md", 1), ("c#.md", 1))
    for page in range(1, pages + 1)
]
RIGHT = Case("right", "q", "ok", expect_sources=("home.md",))


def warned(*cases):
    """Warnings of some cases beside a right one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_expected_sources(CHUNKS, [RIGHT, *cases])
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("motor_term.md", "near 'docs/motor_terms.md'"),
        ("docs/motor-terms.md#2", "near 'docs/motor_terms.md'"),
        ("old/hmoe.md", "near 'docs/home.md'"),
        ("zebra.pdf", "correct the name, or load"),
        ("motor_terms.md#9", "of 3 in 'docs/motor_terms.md'"),
        (r"docs\home.md#2", "of 1 in 'docs/home.md'"),
        ("c#.md#2", "of 1 in 'docs/c#.md'"),
    ],
)
def test_a_source_that_the_corpus_lacks_is_told_with_what_is_near(source, remedy):
    """Of names the nearest document, of a page how many there are.

    Also where one of several is enough.
    """
    (all_needed,) = warned(Case("w", "q", "ok", expect_sources=(source,)))
    (enough,) = warned(Case("w", "q", "ok", expect_sources_any=("home.md", source)))
    assert remedy in all_needed
    assert remedy.removesuffix(", or load") in enough


def test_where_no_case_is_right_the_error_proposes_too():
    """The corpus may be another one, or every name is wrong in the same way."""
    with pytest.raises(ValueError, match=r"near .docs/home\.md., or load their corpus"):
        check_expected_sources(CHUNKS, [Case("w", "q", "ok", expect_sources=("home.txt",))])


@pytest.mark.parametrize("source", [r"docs\home.md", r".\docs\home.md", r"docs\motor_terms.md#2"])
def test_backslashes_are_read_as_slashes(source):
    """As Windows writes paths."""
    assert warned(Case("w", "q", "ok", expect_sources=(source,))) == []


def test_pages_by_their_labels_are_listed():
    """A document without numbers of pages has labels."""
    chunks = [Chunk(label, "x", "a.pdf", None, label) for label in ("i", "ii")]
    with pytest.raises(ValueError, match="correct the page, of 2 in"):
        check_expected_sources(chunks, [Case("w", "q", "ok", expect_sources=("a.pdf#1",))])
