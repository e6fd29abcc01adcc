"""Tables of contents and page kinds (shore): which pages a question points to, and what a page is.

Printed labels are not positions: a wording with a cover sheet prints `1` on its second page. What a table of contents
names is a label, and the chunks say which page carries it.

What page 1 is (`page_kind`) a logistic regression tells by a handful of features of its text. Its coefficients are
data of the pack, trained by `experiments/page_kind.py`; nothing but numpy is needed to read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.packs import GENERIC, Pack, compile_expression
from raglab.text import content_words, pieces
from raglab.values import Chunk

LEAST_ENTRIES = 3
_LABEL = r"(?:\d{1,3}|[ivxl]{1,5})"
_LABELS = rf"{_LABEL}(?:\s?[–-]\s?{_LABEL})?"
_RANGE = re.compile(rf"^({_LABEL})(?:\s?[–-]\s?({_LABEL}))?$", re.IGNORECASE)
_PAGE_HEAD = re.compile(r"\b(?:printed )?pages?\b", re.IGNORECASE)
_ITEM = re.compile(
    rf"^(?P<title>\S.{{0,120}}?)[\s,.:—–…-]*\s(?:pages?|p\.)\s*(?P<labels>{_LABELS})\s*[.;]?$", re.IGNORECASE
)
_RUN_IN = re.compile(
    rf"(?P<title>[^·]{{1,89}}?(?:[^·\s]|(?<=\S)\s))\s*(?:\((?:pages?|p\.)?\s*(?P<a>{_LABELS})\)|,\s*(?:pages?|p\.)\s*(?P<b>{_LABELS}))"
    r"[\s.,;:—–]*(?:(?:and|et)\s)?",
    re.IGNORECASE,
)
_DOTTED_LAST = re.compile(rf"^(?P<title>.{{2,90}}?)\s(?P<labels>{_LABELS})\b\.?", re.IGNORECASE)
_DOTTED_FIRST = re.compile(rf"^(?P<labels>{_LABELS})\s(?P<title>\D.{{1,90}}?)\.?$", re.IGNORECASE)


class Entry(NamedTuple):
    """One line of a table of contents: title, printed label, and the page's position, None where none carries it."""

    title: str
    label: str
    page: int | None


def contents(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> tuple[Entry, ...]:
    r"""Entries of a document's first table of contents in their order; none where there is none.

    Read are tables with a column of pages, lists (`Cover — page 2`), lines with middle dots (`Parties 1 · Cover 2`) and
    run-in sentences (`Parties, page 1.`, `parties (p. 1)`), in English and French. A range of pages makes an entry a
    page. Fewer than three entries, or labels that go down, are no table of contents.

    Args:
      chunks: of one document, in its order. pack: what leads up to a table of contents in its words.

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
        msg = f"contents reads one document, got chunks of {len(sources)}; pass those of one source."
        raise ValueError(msg)
    where = _positions(chunks)
    for chunk in chunks:
        for found in _contents_tables(chunk.text, compile_expression(pack.contents_intro)):
            single = [(title, label) for title, labels in found for label in _label_range(labels)]
            if len(single) >= LEAST_ENTRIES and _goes_up([label for _, label in single]):
                return tuple(Entry(title, label, where.get(label.lower())) for title, label in single)
    return ()


def contents_pages(field: str, chunks: Sequence[Chunk], about: str = "", *, pack: Pack = GENERIC) -> tuple[int, ...]:
    """Positions of the pages that the table of contents names for a field, best first; none where none fits.

    A title fits by the field's lists of terms, strong ones first; a word of `about` in a title counts as much as a
    strong term. Ties keep the order of the table of contents.

    Args:
      field: one of the pack; of another only `about` can name a page.
      chunks: of one document. about: words of the question that narrow it. pack: whose titles lead to the field.

    Raises:
      ValueError: chunks of several documents.

    Source: rule S5.9, case 12.
    """
    wanted = set(content_words(about))
    scored: dict[int, float] = {}
    for entry in contents(chunks, pack=pack):
        score = _title_strength(entry.title, field, pack) + len(wanted & set(content_words(entry.title)))
        if entry.page is not None and score > 0:
            scored[entry.page] = max(score, scored.get(entry.page, 0.0))
    return tuple(sorted(scored, key=lambda page: -scored[page]))


def scope(
    chunks: Sequence[Chunk], value: str, *, field: str = "", about: str = "", pack: Pack = GENERIC
) -> tuple[Chunk, ...]:
    """Chunks within a page scope, in the order in which they should be read; none where the scope holds none.

    Args:
      chunks: of one document or, but for `toc`, of several.
      value: `document`, `toc` (the pages of `contents_pages`, best first), or a page's position, `1`, `2`, ….
      field, about, pack: as in `contents_pages`; `toc` needs a field or words.

    Raises:
      ValueError: a value that is no scope, or `toc` with neither field nor about.

    Source: rule S5.10.
    """
    if value == "document":
        return tuple(chunks)
    if value == "toc":
        if not field and not about:
            msg = "the scope toc needs a field to look up; pass field= or about=, or take contents_pages."
            raise ValueError(msg)
        pages = contents_pages(field, chunks, about, pack=pack)
        return tuple(chunk for page in pages for chunk in chunks if chunk.page == page)
    if not value.isdecimal() or int(value) < 1:
        msg = f"a page scope must be document, toc or a page from 1, got {value!r}; name one of these."
        raise ValueError(msg)
    return tuple(chunk for chunk in chunks if chunk.page == int(value))


def _title_strength(title: str, field: str, pack: Pack) -> float:
    """Strength of a title for a field: 2 for a strong term, 1 for a weak one, half a point where it stands first."""
    known = pack.fields.get(field)
    if known is None or known.titles is None:
        return 0.0
    best = 0.0
    for strength, terms in ((2.0, known.titles.strong), (1.0, known.titles.weak)):
        match = compile_expression(rf"\b(?:{terms})").search(title)
        if match:
            best = max(best, strength + (0.5 if match.start() < 4 else 0.0))
    return best


def _positions(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Page by printed label, its first where two carry one; without any labels a label is the position."""
    paged = [chunk for chunk in chunks if chunk.page is not None]
    if not any(chunk.page_label for chunk in paged):
        return {str(chunk.page): chunk.page for chunk in paged if chunk.page is not None}
    found: dict[str, int] = {}
    for chunk in paged:
        if chunk.page_label and chunk.page is not None:
            found.setdefault(chunk.page_label.lower(), chunk.page)
    return found


def _contents_tables(text: str, lead: re.Pattern[str]) -> Iterator[list[tuple[str, str]]]:
    """Possible tables of contents of a passage as (title, labels), one for each way to write them."""
    parts = pieces(text)
    for is_row, rows in groupby(parts, lambda piece: piece.kind == "row"):
        if is_row:
            held = [(piece.cells, piece.heads) for piece in rows]
            if held[0][1] and _PAGE_HEAD.search(held[0][1][-1]):
                yield [(" ".join(filter(None, cells[:-1])), cells[-1]) for cells, _ in held if _RANGE.match(cells[-1])]
    prose = [piece.text for piece in parts if piece.kind == "prose"]
    items = [match for match in map(_ITEM.match, prose) if match]
    if not any(lead.search(line) for line in prose if _RUN_IN.search(line)):
        yield [(match["title"].strip(), match["labels"]) for match in items]
    for line in prose:
        if line.count("·") >= LEAST_ENTRIES - 1:
            yield _dot_separated_entries(line, lead)
    joined = " ".join(prose)
    intro = lead.search(joined)
    if intro:
        yield _consecutive_entries(joined[intro.end() :])


def _dot_separated_entries(line: str, lead: re.Pattern[str]) -> list[tuple[str, str]]:
    """Entries between middle dots; the labels stand all behind the titles or all before them."""
    intro = lead.search(line)
    parts = [part.strip() for part in (line[intro.end() :] if intro else line).split("·")]
    for form in (_DOTTED_FIRST, _DOTTED_LAST):
        found = [match for match in map(form.match, parts) if match]
        if len(found) == len(parts):
            return [(match["title"].strip(), match["labels"]) for match in found]
    return []


def _consecutive_entries(text: str) -> list[tuple[str, str]]:
    """Entries that follow each other without a gap from the text's start."""
    found = []
    at = 0
    while match := _RUN_IN.match(text, at):
        found.append((match["title"].strip(" ,;:—–"), match["a"] or match["b"]))
        at = match.end()
    return found


def _label_range(labels: str) -> list[str]:
    """Single labels of a range: `6–7` is 6 and 7."""
    match = _RANGE.match(labels.strip())
    if match is None:
        return []
    first, last = match[1], match[2]
    if not last or not (first.isdecimal() and last.isdecimal()) or not int(first) < int(last) <= int(first) + 20:
        return [first]
    return [str(n) for n in range(int(first), int(last) + 1)]


def _goes_up(labels: Sequence[str]) -> bool:
    numbers = [int(label) for label in labels if label.isdecimal()]
    return all(a <= b for a, b in pairwise(numbers))


FEATURES = ("log_words", "sections", "contents_share", "words_a_sentence", "reference", "terms")
_REFERENCE = re.compile(
    r"\b(?:reference|référence|form|edition|édition|printing|document)\b[^.]{0,12}\s[A-Z\d]", re.IGNORECASE
)
_WORD = re.compile(r"[^\W_]+")


class PageKind(NamedTuple):
    """What page 1 is, and the probability of that kind, in [0.5, 1]."""

    kind: Literal["body", "coversheet"]
    probability: float


def page_features(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> NDArray[np.float64]:
    """What is measured on page 1, [6], in the order of `FEATURES`.

    log_words: natural logarithm of 1 + words. sections: headings. contents_share: share of the words that are titles
    and labels of the table of contents. words_a_sentence: mean. reference: 1 where a document's reference is printed.
    terms: of the text itself rather than of its cover (must, may not, …) per 100 words. Headings are not counted.

    Args:
      chunks: of a document's page 1, in its order. pack: whose terms are counted.
    """
    parts = [piece for chunk in chunks for piece in pieces(chunk.text) if piece.kind != "heading"]
    text = "\n".join(piece.text for piece in parts)
    count = len(_WORD.findall(text))
    listed = sum(len(_WORD.findall(f"{entry.title} {entry.label}")) for entry in contents(chunks, pack=pack))
    heads = len({piece.text for chunk in chunks for piece in pieces(chunk.text) if piece.kind == "heading"})
    return np.array(
        [
            np.log1p(count),
            heads,
            min(1.0, listed / max(count, 1)),
            count / max(len(parts), 1),
            float(bool(_REFERENCE.search(text))),
            100.0 * len(compile_expression(rf"\b(?:{pack.page_kind.terms})\b").findall(text)) / max(count, 1),
        ]
    )


def page_kind(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> PageKind:
    """Kind of page 1 and its probability.

    Args:
      chunks: of one document's page 1, in its order; tags and labels are not read. pack: whose classifier judges.

    Raises:
      ValueError: no chunk.

    Source: rule S5.6.
    """
    if not chunks:
        msg = "page_kind needs at least one chunk of page 1, got none; pass those with page == 1."
        raise ValueError(msg)
    model = _page_kind_model(pack)
    margin = float((page_features(chunks, pack=pack) - model.mean) / model.scale @ model.weights + model.intercept)
    cover = float(np.exp(-np.logaddexp(0.0, -margin)))
    return PageKind("coversheet", cover) if cover > 0.5 else PageKind("body", 1.0 - cover)


class _Model(NamedTuple):
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    intercept: float


@lru_cache(maxsize=8)
def _page_kind_model(pack: Pack) -> _Model:
    stored = pack.page_kind.model
    rows = [stored.features[name] for name in FEATURES]
    mean, scale, weights = (np.array([getattr(row, key) for row in rows]) for key in ("mean", "scale", "weight"))
    return _Model(mean, scale, weights, stored.intercept)
