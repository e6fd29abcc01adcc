"""PDF (shore): limits of a PDF, checks of it, and the pages `document_worker` reads as blocks."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.store.blocks import Block
from raglab.store.documents import text_blocks
from raglab.store.files import BlankError, InputError, Where, input_error, shown_value
from raglab.store.markdown import Page
from raglab.store.workers import worker_answer
from raglab.words.characters import is_unicode, visible

_MIB = 2**20
_RANGES_SHOWN = 10
_DEEPEST = 6  # level of headings
_TITLE_LINES = 3
_TITLE_LENGTH = 500  # characters


class PdfLimits(NamedTuple):
    """What one PDF may have and cost at most.

    pages, objects: of the file. seconds: of computing for each MiB that the file has, the last one
    begun counts whole. characters: of text on all pages. memory_bytes: of the process that reads
    it.
    """

    pages: int = 10_000
    objects: int = 1_000_000
    seconds: float = 8.0
    characters: int = 16 * _MIB
    memory_bytes: int = 2**31


PDF_LIMITS = PdfLimits()


def pdf_pages(raw: bytes, file: str, limits: PdfLimits) -> tuple[Page, ...]:
    """Pages of a PDF with their text; labels where the PDF states some, else None.

    A process of its own reads them and is ended at the limits, so that a hostile file costs no more
    than they say.

    Args:
      raw: content of the file.
      file: for messages.

    Raises:
      InputError: the PDF cannot be read, opens with a password alone, or passes a limit, which is
        named.
      BlankError: no page has text.

    Warns:
      UserWarning: some pages have no text.
    """
    return _pages(_answer(raw, limits), file, limits)


def pdf_blocks(raw: bytes, file: str, limits: PdfLimits) -> tuple[Block, ...]:
    """Blocks of a PDF.

    The paragraphs of its pages, and its bookmarks as headings where they stand in a page's text.

    Args:
      raw: content of the file.
      file: for messages.
      limits: what it may have and cost at most.

    Raises:
      InputError: as of `pdf_pages`.

    Warns:
      UserWarning: some pages have no text, or some bookmarks do not stand in the text of their
        pages.
    """
    answer = _answer(raw, limits)
    pages = _pages(answer, file, limits)
    titles: dict[int, list[tuple[int, str]]] = {}
    for row in answer.get("bookmarks", ()):
        match row:
            case [int() as depth, str() as title, int() as number] if is_unicode(title) and _key(
                title
            ):
                titles.setdefault(number, []).append(
                    (min(depth, _DEEPEST), " ".join(title.split()))
                )
    blocks = [block for page in pages for block in _page_blocks(page, titles.get(page.number, ()))]
    count = len(answer.get("bookmarks", ()))
    missing = count - sum(block.kind == "heading" for block in blocks)
    if missing:
        rule = f"{missing} of {count} bookmarks do not stand in the text of their pages"
        warn_user(visible(f"{file}: {rule}: they are no headings."))
    return tuple(blocks)


def _page_blocks(page: Page, titles: Sequence[tuple[int, str]]) -> Iterator[Block]:
    """Blocks of a page, with those titles as headings that are lines of it, in their order."""
    lines = page.text.split("\n")
    places: dict[str, list[tuple[int, int]]] = {}
    if titles:
        # A title may run over several lines; its number may stand in the bookmark alone, or in the
        # text alone.
        for start in range(len(lines)):
            for end in range(start + 1, min(start + _TITLE_LINES, len(lines)) + 1):
                if sum(map(len, lines[start:end])) > _TITLE_LENGTH or not _key(lines[end - 1]):
                    break
                places.setdefault(_key(" ".join(lines[start:end])), []).append((start, end))
    begin = 0
    for level, title in titles:
        runs = places.get(_key(title), [])
        at = bisect_left(runs, (begin, 0))
        if at < len(runs):
            start, end = runs[at]
            yield from text_blocks([page._replace(text="\n".join(lines[begin:start]))])
            yield Block("heading", title, level, page.number, page.label)
            begin = end
    yield from text_blocks([page._replace(text="\n".join(lines[begin:]))])


def _key(title: str) -> str:
    """Letters and digits of a title behind its number."""
    return "".join(filter(str.isalnum, title.casefold())).lstrip("0123456789")


def _answer(raw: bytes, limits: PdfLimits) -> dict[str, Any]:
    allowed = limits._replace(seconds=limits.seconds * max(1, math.ceil(len(raw) / _MIB)))
    return worker_answer(raw, allowed._asdict())


def _pages(answer: Mapping[str, Any], file: str, limits: PdfLimits) -> tuple[Page, ...]:
    """Pages of a worker's answer, which is checked."""
    where = Where(file)
    if answer.get("encrypted"):
        raise input_error(
            where, "a PDF must open without a password", "save it without one", "an encrypted one"
        )
    if "limit" in answer:
        value = answer.get("came")
        raise _over_limit(
            where, str(answer["limit"]), limits, shown_value(value) if value else "more"
        )
    rows = answer.get("pages")
    if not isinstance(rows, list):
        raise _unreadable(where, shown_value(str(answer.get("unreadable", "no answer"))))
    pages = tuple(_page(number, row, where) for number, row in enumerate(rows, 1))
    blank = [page.number for page in pages if not page.text.strip()]
    if len(blank) == len(pages):
        value = f"no text on {len(pages)} pages"
        rule, remedy = "a PDF must have text", "it needs OCR, or its pages as .png or .jpg files"
        raise BlankError(str(input_error(where, rule, remedy, value)))
    if blank:
        rule = f"{len(blank)} of {len(pages)} pages have no text ({number_ranges(blank)})"
        warn_user(
            visible(
                f"{file}: {rule}; scanned ones need OCR, or stand as .png or .jpg files beside it."
            )
        )
    return pages


def number_ranges(numbers: Sequence[int]) -> str:
    """Numbers that go up, those that follow one another as a range.

    Example:
      >>> number_ranges([1, 3, 4, 5, 9])
      '1, 3-5, 9'
    """
    gaps = [place for place, (low, high) in enumerate(pairwise(numbers), 1) if high > low + 1]
    ranges = [numbers[start:end] for start, end in pairwise([0, *gaps, len(numbers)])]
    shown = [
        str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges[:_RANGES_SHOWN]
    ]
    return ", ".join(shown) + (
        f" and {len(ranges) - _RANGES_SHOWN} more ranges" if len(ranges) > _RANGES_SHOWN else ""
    )


def _page(number: int, row: object, where: Where) -> Page:
    """Page of a worker's row, which is checked: what a PDF made of the worker is not known."""
    match row:
        case [str() | None as label, str() as text] if is_unicode(text + (label or "")):
            return Page(number, label, text)
    value = f"half a surrogate pair on page {number}"
    raise input_error(where, "a PDF's text must be Unicode", "give its text as a .txt file", value)


def _unreadable(where: Where, value: str) -> InputError:
    return input_error(
        where, "a PDF must be readable", "open and save it anew, or give its text", value
    )


def _over_limit(where: Where, limit: str, limits: PdfLimits, value: str) -> InputError:
    """A limit that a PDF has passed, and how to raise it."""
    rules = {
        "pages": f"a PDF must have at most {limits.pages} pages",
        "objects": f"a PDF must have at most {limits.objects} objects",
        "seconds": f"a PDF must be read within {limits.seconds:g} s for each MiB",
        "characters": f"a PDF's text must be at most {limits.characters} characters",
        "memory_bytes": f"a PDF must be read in at most {limits.memory_bytes} bytes of memory",
    }
    if limit not in rules:
        return _unreadable(where, shown_value(limit))
    remedy = (
        f"give its text as a .txt file, or raise {limit} in load_corpus(…, "
        f"pdf=PdfLimits({limit}=…))"
    )
    return input_error(where, rules[limit], remedy, value)
