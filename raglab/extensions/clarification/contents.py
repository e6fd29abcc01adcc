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
    LED_UP_EVIDENCE,
    SURE_EVIDENCE,
    WEAK_EVIDENCE,
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
    page_by_label = _positions(chunks)
    page_headings = {
        (chunk.page, heading_word)
        for chunk in chunks
        for heading_word in content_words(heading_of(chunk))
    }
    for chunk in chunks:
        is_titled = _is_titled(chunk, pack)
        for contents_layout in layouts(chunk.full_text, compile_expression(pack.contents_intro)):
            layout_entries = _entries(
                contents_layout, page_by_label, page_headings, is_titled=is_titled
            )
            if layout_entries:
                return layout_entries
    return ()


def _entries(
    contents_layout: Layout,
    page_by_label: Mapping[str, int],
    page_headings: Collection[tuple[int | None, str]],
    *,
    is_titled: bool,
) -> tuple[Entry, ...]:
    """Entries of a layout that is a table of contents; none of one that is not.

    What does not say itself that it names pages needs a title over it, or headings of those pages
    with words of its titles. Two entries need a title over them.
    """
    page_entries = [
        Entry(contents_entry.title, page_label, page_by_label.get(page_label.lower()))
        for contents_entry in contents_layout.entries
        for page_label in single_labels(contents_entry.labels, page_by_label)
    ]
    label_numbers = [
        int(contents_entry.label)
        for contents_entry in page_entries
        if contents_entry.label.isdecimal()
    ]
    entry_pages = [
        contents_entry.page for contents_entry in page_entries if contents_entry.page is not None
    ]
    n_headed = sum(
        any(
            (contents_entry.page, title_word) in page_headings
            for title_word in content_words(contents_entry.title)
        )
        for contents_entry in page_entries
    )
    is_titled = is_titled or contents_layout.strength >= LED_UP_EVIDENCE
    if len(contents_layout.entries) < MIN_CONTENTS_ENTRIES:
        is_pair = len(contents_layout.entries) > 1 and len(set(entry_pages)) == len(page_entries)
        is_contents = is_pair and is_titled and contents_layout.strength > WEAK_EVIDENCE
    else:
        is_on_pages = len(page_by_label) < MIN_CONTENTS_ENTRIES or len(
            entry_pages
        ) >= _MIN_REACHED_SHARE * len(page_entries)
        is_named = is_titled or n_headed >= _MIN_REACHED_SHARE * len(page_entries)
        is_contents = contents_layout.strength >= SURE_EVIDENCE or (is_on_pages and is_named)
    # the pages of a table of contents never go down
    return tuple(page_entries) if is_contents and label_numbers == sorted(label_numbers) else ()


MIN_CONTENTS_ENTRIES = 3  # fewer need a title over them
_MIN_REACHED_SHARE = (
    0.6  # share of the labels that must be pages, or of the titles that must be headings
)


def _is_titled(chunk: Chunk, pack: Pack) -> bool:
    """Whether a heading or a line of its own says that a table of contents follows."""
    title_pattern = compile_expression(rf"^\W*(?:{pack.contents_title})\W*$")
    line_parts = (
        line_part
        for text_line in chunk.full_text.splitlines()
        for line_part in text_line.split(" > ")
    )
    return any(
        title_pattern.search(plain(plain_line(line_part)))
        for line_part in line_parts
        if len(line_part) <= _MAX_TITLE_LENGTH
    )


_MAX_TITLE_LENGTH = 80  # characters of a line that may be a title


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
    question_words = set(content_words(about))
    score_by_page: dict[int, float] = {}
    for contents_entry in contents(chunks, pack=pack):
        n_shared_words = len(question_words.intersection(content_words(contents_entry.title)))
        page_score = _title_strength(contents_entry.title, field, pack) + n_shared_words
        if contents_entry.page is not None and page_score > 0:
            score_by_page[contents_entry.page] = max(
                page_score, score_by_page.get(contents_entry.page, 0.0)
            )
    return tuple(sorted(score_by_page, key=lambda page_number: -score_by_page[page_number]))


def _title_strength(title: str, field: str, pack: Pack) -> float:
    """Strength of a title for a field.

    2 for a strong term, 1 for a weak one, half a point where it stands first.
    """
    pack_field = pack.fields.get(field)
    if pack_field is None or pack_field.titles is None:
        return 0.0
    for term_strength, title_terms in (
        (2.0, pack_field.titles.strong),
        (1.0, pack_field.titles.weak),
    ):
        title_match = compile_expression(rf"\b(?:{title_terms})").search(title)
        if title_match:
            return term_strength + (title_match.start() < 4) / 2
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
    page_numbers = (
        contents_pages(field, chunks, about, pack=pack) if value == "toc" else (int(value),)
    )
    return tuple(
        chunk for page_number in page_numbers for chunk in chunks if chunk.page == page_number
    )


def _positions(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Page by printed label, its first where two carry one.

    Without any labels a label is the position.
    """
    labelled_pages = [
        (chunk.page_label or "", chunk.page) for chunk in chunks if chunk.page is not None
    ]
    has_labels = any(page_label for page_label, _ in labelled_pages)
    return {
        (page_label if has_labels else str(page_number)).lower(): page_number
        for page_label, page_number in reversed(labelled_pages)
    }


_PRINTED_REFERENCE = re.compile(
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
    text_pieces = [text_piece for chunk in chunks for text_piece in pieces(chunk.full_text)]
    prose_parts = [text_piece.text for text_piece in text_pieces if text_piece.kind != "heading"]
    page_text = "\n".join(prose_parts)
    n_words = len(split_words(page_text))
    contents_text = " ".join(
        f"{contents_entry.title} {contents_entry.label}"
        for contents_entry in contents(chunks, pack=pack)
    )
    body_terms = compile_expression(rf"\b(?:{pack.page_kind.terms})\b").findall(page_text)
    return {
        "log_words": math.log1p(n_words),
        "sections": len(
            {text_piece.text for text_piece in text_pieces if text_piece.kind == "heading"}
        ),
        "contents_share": min(1.0, len(split_words(contents_text)) / max(n_words, 1)),
        "words_a_sentence": n_words / max(len(prose_parts), 1),
        "reference": float(bool(_PRINTED_REFERENCE.search(page_text))),
        "terms": 100.0 * len(body_terms) / max(n_words, 1),
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
    text_pieces = [text_piece for chunk in chunks for text_piece in pieces(chunk.full_text)]
    prose_lines = [text_piece.text for text_piece in text_pieces if text_piece.kind != "heading"]
    sentences = [prose_line for prose_line in prose_lines if prose_line.endswith((".", "!", "?"))]
    is_text = len(sentences) > 1 and 2 * len("".join(sentences)) > len("".join(prose_lines))
    if is_text and not contents(chunks, pack=pack):
        return "body"
    kind_model = pack.page_kind.model
    feature_values = page_features(chunks, pack=pack)
    kind_margin = kind_model.intercept + sum(
        feature_row.weight * (feature_values[feature_name] - feature_row.mean) / feature_row.scale
        for feature_name, feature_row in kind_model.features.items()
    )
    return "coversheet" if kind_margin > 0.0 else "body"
