"""Tables of contents and page kinds (shore): which pages a question points to, and what a page is.

Printed labels are not positions: a wording with a cover sheet prints `1` on its second page. What a
table of contents names is a label, and the chunks say which page carries it.

What page 1 is (`page_kind`) a logistic regression tells by a handful of features of its text. Its
coefficients are data of the pack, trained by `experiments/page_kind.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from raglab.extensions.clarification.contents_layouts import (
    LED_UP,
    SURE,
    WEAK,
    Layout,
    layouts,
    plain_line,
    single_labels,
)
from raglab.extensions.clarification.language_words import plain
from raglab.extensions.clarification.statements import heading_of
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
    entry a page. No table of contents are: labels that go down; lines without a title over them,
    the word page, or headings of those pages; and two entries, but under a title.

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
    where = _positions(chunks)
    headings = {(chunk.page, word) for chunk in chunks for word in content_words(heading_of(chunk))}
    for chunk in chunks:
        is_titled = _is_titled(chunk, pack)
        for layout in layouts(chunk.full_text, compile_expression(pack.contents_intro)):
            entries = _entries(layout, where, headings, is_titled=is_titled)
            if entries:
                return entries
    return ()


def _entries(
    layout: Layout,
    where: Mapping[str, int],
    headings: Collection[tuple[int | None, str]],
    *,
    is_titled: bool,
) -> tuple[Entry, ...]:
    """Entries of a layout that is a table of contents; none of one that is not.

    What does not say itself that it names pages needs a title over it, or headings of those pages
    with words of its titles. Two entries need a title over them.
    """
    entries = [
        Entry(entry.title, label, where.get(label.lower()))
        for entry in layout.entries
        for label in single_labels(entry.labels, where)
    ]
    numbers = [int(entry.label) for entry in entries if entry.label.isdecimal()]
    pages = [entry.page for entry in entries if entry.page is not None]
    headed = sum(
        any((entry.page, word) in headings for word in content_words(entry.title))
        for entry in entries
    )
    is_titled = is_titled or layout.strength >= LED_UP
    if len(layout.entries) < LEAST_ENTRIES:
        is_pair = len(layout.entries) > 1 and len(set(pages)) == len(entries)
        is_one = is_pair and is_titled and layout.strength > WEAK
    else:
        is_on_pages = len(where) < LEAST_ENTRIES or len(pages) >= _REACHED * len(entries)
        is_named = is_titled or headed >= _REACHED * len(entries)
        is_one = layout.strength >= SURE or (is_on_pages and is_named)
    # the pages of a table of contents never go down
    return tuple(entries) if is_one and numbers == sorted(numbers) else ()


LEAST_ENTRIES = 3  # fewer need a title over them
_REACHED = 0.6  # share of the labels that must be pages, or of the titles that must be headings


def _is_titled(chunk: Chunk, pack: Pack) -> bool:
    """Whether a heading or a line of its own says that a table of contents follows."""
    title = compile_expression(rf"^\W*(?:{pack.contents_title})\W*$")
    parts = (part for line in chunk.full_text.splitlines() for part in line.split(" > "))
    return any(title.search(plain(plain_line(part))) for part in parts if len(part) <= _LONGEST)


_LONGEST = 80  # characters of a line that may be a title


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
            return strength + (match.start() < 4) / 2
    return 0.0


def scope(
    chunks: Sequence[Chunk], value: str, *, field: str = "", about: str = "", pack: Pack = GENERIC
) -> tuple[Chunk, ...]:
    """Chunks within a page scope, in the order in which they should be read.

    None where the scope holds none.

    Args:
      chunks: of one document or, but for `toc`, of several.
      value: `document`, `toc` (the pages of `contents_pages`, best first), or a page's position,
        `1`, `2`, ….
      field, about, pack: as in `contents_pages`.

    Raises:
      ValueError: a value that is no scope.

    Source: rule S5.10.
    """
    if value == "document":
        return tuple(chunks)
    pages = contents_pages(field, chunks, about, pack=pack) if value == "toc" else (int(value),)
    return tuple(chunk for page in pages for chunk in chunks if chunk.page == page)


def _positions(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Page by printed label, its first where two carry one.

    Without any labels a label is the position.
    """
    paged = [(chunk.page_label or "", chunk.page) for chunk in chunks if chunk.page is not None]
    has_labels = any(label for label, _ in paged)
    return {(label if has_labels else str(page)).lower(): page for label, page in reversed(paged)}


_REFERENCE = re.compile(
    r"\b(?:reference|référence|form|edition|édition|printing|document)\b[^.]{0,12}\s[A-Z\d]",
    re.IGNORECASE,
)


def page_features(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> dict[str, float]:
    """What is measured on page 1, by name.

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
    listed = " ".join(f"{entry.title} {entry.label}" for entry in contents(chunks, pack=pack))
    terms = compile_expression(rf"\b(?:{pack.page_kind.terms})\b").findall(text)
    return {
        "log_words": math.log1p(count),
        "sections": len({piece.text for piece in read if piece.kind == "heading"}),
        "contents_share": min(1.0, len(split_words(listed)) / max(count, 1)),
        "words_a_sentence": count / max(len(parts), 1),
        "reference": float(bool(_REFERENCE.search(text))),
        "terms": 100.0 * len(terms) / max(count, 1),
    }


def page_kind(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> Literal["body", "coversheet"]:
    """Kind of page 1, as the classifier tells it.

    A page that lists no contents and is mostly sentences is a body, however short it is: a cover
    has a title, parties, a date, and hardly a sentence.

    Args:
      chunks: chunks of one document's page 1, in its order; tags and labels are not read.
      pack: the classifier.

    Raises:
      ValueError: no chunk.

    Source: rule S5.6.
    """
    if not chunks:
        refuse("page_kind needs at least one chunk of page 1", "none", "pass those with page == 1")
    parts = [piece for chunk in chunks for piece in pieces(chunk.full_text)]
    lines = [piece.text for piece in parts if piece.kind != "heading"]
    sentences = [line for line in lines if line.endswith((".", "!", "?"))]
    is_text = len(sentences) > 1 and 2 * len("".join(sentences)) > len("".join(lines))
    if is_text and not contents(chunks, pack=pack):
        return "body"
    model, features = pack.page_kind.model, page_features(chunks, pack=pack)
    margin = model.intercept + sum(
        row.weight * (features[name] - row.mean) / row.scale for name, row in model.features.items()
    )
    return "coversheet" if margin > 0.0 else "body"
