"""Tables of contents and page kinds (shore): which pages a question points to, and what a page is.

Printed labels are not positions: a wording with a cover sheet prints `1` on its second page. What a
table of contents names is a label, and the chunks say which page carries it.

What page 1 is (`page_kind`) a logistic regression tells by a handful of features of its text. Its
coefficients are data of the pack, trained by `experiments/page_kind.py`; nothing but numpy is
needed to read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.clarification.contents_layouts import (
    LEAST_ENTRIES,
    Layout,
    Listed,
    bare_title,
    heading_page,
    layouts,
    plain_line,
    single_labels,
)
from raglab.extensions.clarification.language_words import plain
from raglab.values import Chunk, refuse
from raglab.words.packs import GENERIC, Pack, compile_expression
from raglab.words.text import content_words, pieces
from raglab.words.tokeniser import split_words


class Entry(NamedTuple):
    """One line of a table of contents.

    Title, printed label, and the page's position, None where none carries it.
    """

    title: str
    label: str
    page: int | None


def contents(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> tuple[Entry, ...]:
    r"""Entries of a document's first table of contents in their order; none where there is none.

    Read are the layouts of `contents_layouts`, in English and French. A range of pages makes an
    entry a page; where no page is printed, the heading of that title tells it. Fewer than three
    entries, or labels that go down, are no table of contents, nor is what has neither a title over
    it, nor the word page, nor the document's headings as titles.

    Args:
      chunks: chunks of one document, in its order.
      pack: words that lead up to a table of contents.

    Raises:
      ValueError: chunks of several documents.

    Source: rule S5.10.

    Example:
      >>> chunk = Chunk("a#1", "A\nContents: Parties 1 · Cover 2 · Claims 3", "a.md", 1, "1")
      >>> contents([chunk])[0]
      Entry(title='Parties', label='1', page=1)
    """
    sources = {chunk.source for chunk in chunks}
    if len(sources) > 1:
        refuse(
            "contents reads one document", f"chunks of {len(sources)}", "pass those of one source"
        )
    where, headings = _positions(chunks), _headings(chunks)
    for chunk in chunks:
        titled = _is_titled(chunk, pack)
        for layout in layouts(chunk.full_text, compile_expression(pack.contents_intro)):
            entries = _entries(layout, where, headings, is_titled=titled or layout.is_led)
            if entries:
                return entries
    return ()


def _entries(
    layout: Layout, where: Mapping[str, int], headings: Mapping[str, int], *, is_titled: bool
) -> tuple[Entry, ...]:
    """Entries of a layout that is a table of contents; none of one that is not.

    What does not say itself that it names pages needs a title over it, or titles that are the
    document's headings. Of two entries, both need pages, and a title over them.
    """
    listed = layout.entries
    if len(listed) < layout.least:
        return ()
    known = [heading_page(entry, headings) for entry in listed]
    if not any(entry.labels for entry in listed):
        entries = [_unlabelled(*each, where) for each in zip(listed, known, strict=True)]
        reached = sum(entry.page is not None for entry in entries)
        is_said = is_titled or all(entry.anchor for entry in listed)
        enough = max(LEAST_ENTRIES, _HEADED * len(listed))
        return tuple(entries) if is_said and reached >= enough else ()
    entries = [
        Entry(entry.title, label, where.get(label.lower()))
        for entry in listed
        for label in single_labels(entry.labels, where)
    ]
    numbers = [int(entry.label) for entry in entries if entry.label.isdecimal()]
    pages = [entry.page for entry in entries if entry.page is not None]
    is_headed = sum(page is not None for page in known) >= _HEADED * len(listed)
    if len(listed) < LEAST_ENTRIES:
        is_one = is_titled and len(set(pages)) == len(entries)
    else:
        is_on_pages = len(where) < LEAST_ENTRIES or len(pages) >= _HEADED * len(entries)
        is_one = layout.is_sure or (is_on_pages and (is_titled or is_headed))
    # the pages of a table of contents never go down
    return tuple(entries) if is_one and numbers == sorted(numbers) else ()


_HEADED = 0.6  # share of the titles that must be headings, or of the labels that must be pages


_ANCHORED_PAGE = re.compile(r"^(?:page|pg|p|seite)[-_]?(\d{1,3})$")


def _unlabelled(entry: Listed, page: int | None, where: Mapping[str, int]) -> Entry:
    """Entry of a title without a label.

    By the page that its link names, as `#page-3` does, else by the heading.
    """
    named = _ANCHORED_PAGE.match(entry.anchor.lower())
    if named:
        return Entry(entry.title, named[1], where.get(named[1]))
    label = next((label for label, at in where.items() if at == page), "")
    return Entry(entry.title, label, page)


def _is_titled(chunk: Chunk, pack: Pack) -> bool:
    """Whether a heading or a line of its own says that a table of contents follows."""
    title = compile_expression(rf"^\W*(?:{pack.contents_title})\W*$")
    heads = [
        part
        for piece in pieces(chunk.full_text)
        if piece.kind == "heading"
        for part in piece.text.split(" > ")
    ]
    lines = [
        line for line in chunk.full_text.splitlines()[:_TITLE_LINES] if len(line) <= _TITLE_LENGTH
    ]
    return any(title.search(plain(plain_line(text))) for text in (*heads, *lines))


_TITLE_LINES, _TITLE_LENGTH = 6, 80  # lines that are looked at for a title, and its characters


def _headings(chunks: Sequence[Chunk]) -> dict[str, int]:
    """First page of each heading but those of the table of contents itself, by its bare title."""
    pages: dict[str, int] = {}
    for chunk in chunks:
        if chunk.page is None:
            continue
        parts = pieces(chunk.full_text)
        first = parts[0].text.split(" > ")[1:] if parts and parts[0].kind == "heading" else []
        later = [plain_line(piece.text) for piece in parts[1:] if piece.kind == "heading"]
        for text in (*first, *later):
            pages.setdefault(bare_title(text), chunk.page)
    return pages


def contents_pages(
    field: str, chunks: Sequence[Chunk], about: str = "", *, pack: Pack = GENERIC
) -> tuple[int, ...]:
    """Positions of the pages that the table of contents names for a field, best first.

    None where none fits.

    A title fits by the field's lists of terms, strong ones first; a word of `about` in a title
    counts as much as a strong term. Ties keep the order of the table of contents.

    Args:
      field: a field of the pack; of another only `about` can name a page.
      chunks: chunks of one document.
      about: words of the question that narrow it.
      pack: titles that lead to the field.

    Raises:
      ValueError: chunks of several documents.

    Source: rule S5.9, case 12.
    """
    wanted = set(content_words(about))
    scored: dict[int, float] = {}
    for entry in contents(chunks, pack=pack):
        words = len(wanted.intersection(content_words(entry.title)))
        score = _title_strength(entry.title, field, pack) + words
        if entry.page is not None and score > 0:
            scored[entry.page] = max(score, scored.get(entry.page, 0.0))
    return tuple(sorted(scored, key=lambda page: -scored[page]))


def scope(
    chunks: Sequence[Chunk], value: str, *, field: str = "", about: str = "", pack: Pack = GENERIC
) -> tuple[Chunk, ...]:
    """Chunks within a page scope, in the order in which they should be read.

    None where the scope holds none.

    Args:
      chunks: of one document or, but for `toc`, of several.
      value: `document`, `toc` (the pages of `contents_pages`, best first), or a page's position,
        `1`, `2`, ….
      field, about, pack: as in `contents_pages`; `toc` needs a field or words.

    Raises:
      ValueError: a value that is no scope, or `toc` with neither field nor about.

    Source: rule S5.10.
    """
    if value == "document":
        return tuple(chunks)
    if value == "toc":
        if not field and not about:
            msg = (
                "the scope toc needs a field to look up; pass field= or about=, or take "
                "contents_pages."
            )
            raise ValueError(msg)
        pages = contents_pages(field, chunks, about, pack=pack)
        return tuple(chunk for page in pages for chunk in chunks if chunk.page == page)
    if not value.isdecimal() or int(value) < 1:
        refuse(
            "a page scope must be document, toc or a page from 1", repr(value), "name one of these"
        )
    return tuple(chunk for chunk in chunks if chunk.page == int(value))


def _title_strength(title: str, field: str, pack: Pack) -> float:
    """Strength of a title for a field.

    2 for a strong term, 1 for a weak one, half a point where it stands first.
    """
    known = pack.fields.get(field)
    if known is None or known.titles is None:
        return 0.0
    for strength, terms in ((2.0, known.titles.strong), (1.0, known.titles.weak)):
        match = compile_expression(rf"\b(?:{terms})").search(title)
        if match:
            return strength + (0.5 if match.start() < 4 else 0.0)
    return 0.0


def _positions(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Page by printed label, its first where two carry one.

    Without any labels a label is the position.
    """
    paged = [
        ((chunk.page_label or "").lower(), chunk.page) for chunk in chunks if chunk.page is not None
    ]
    pages = [(label, page) for label, page in paged if label] or [
        (str(page), page) for _, page in paged
    ]
    return dict(reversed(pages))


FEATURES = ("log_words", "sections", "contents_share", "words_a_sentence", "reference", "terms")
_REFERENCE = re.compile(
    r"\b(?:reference|référence|form|edition|édition|printing|document)\b[^.]{0,12}\s[A-Z\d]",
    re.IGNORECASE,
)


class PageKind(NamedTuple):
    """What page 1 is, and the probability of that kind, in [0.5, 1]."""

    kind: Literal["body", "coversheet"]
    probability: float


def page_features(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> NDArray[np.float64]:
    """What is measured on page 1, [6], in the order of `FEATURES`.

    log_words: natural logarithm of 1 + words. sections: headings. contents_share: share of the
    words that are titles and labels of the table of contents. words_a_sentence: mean. reference: 1
    where a document's reference is printed. terms: of the text itself rather than of its cover
    (must, may not, …) per 100 words. Headings are not counted.

    Args:
      chunks: chunks of a document's page 1, in its order.
      pack: terms to count.
    """
    read = [piece for chunk in chunks for piece in pieces(chunk.full_text)]
    parts = [piece.text for piece in read if piece.kind != "heading"]
    text = "\n".join(parts)
    count = len(split_words(text))
    listed = sum(
        len(split_words(f"{entry.title} {entry.label}")) for entry in contents(chunks, pack=pack)
    )
    return np.array(
        [
            np.log1p(count),
            len({piece.text for piece in read if piece.kind == "heading"}),
            min(1.0, listed / max(count, 1)),
            count / max(len(parts), 1),
            float(bool(_REFERENCE.search(text))),
            100.0
            * len(compile_expression(rf"\b(?:{pack.page_kind.terms})\b").findall(text))
            / max(count, 1),
        ]
    )


def page_kind(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> PageKind:
    """Kind of page 1 and its probability.

    Args:
      chunks: chunks of one document's page 1, in its order; tags and labels are not read.
      pack: the classifier.

    Raises:
      ValueError: no chunk.

    Source: rule S5.6.
    """
    if not chunks:
        refuse("page_kind needs at least one chunk of page 1", "none", "pass those with page == 1")
    model = pack.page_kind.model
    rows = [model.features[name] for name in FEATURES]
    mean, scale, weights = (
        np.array([getattr(row, key) for row in rows]) for key in ("mean", "scale", "weight")
    )
    margin = float((page_features(chunks, pack=pack) - mean) / scale @ weights + model.intercept)
    cover = float(np.exp(-np.logaddexp(0.0, -margin)))
    return PageKind("coversheet", cover) if cover > 0.5 else PageKind("body", 1.0 - cover)
