"""Text of a page cut into passages of about a paragraph, and passages numbered as chunks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from raglab.store._errors import Where, input_error
from raglab.values import Chunk

_PIECE_END = re.compile(r"(?<=[.!?])\s+|\n(?=[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t])")
_FENCES = ("```", "~~~")


class Page(NamedTuple):
    """One page of a document: number from 1, label as printed, text."""

    number: int
    label: str | None
    text: str


class Passage(NamedTuple):
    """A text that becomes one chunk, and the page it stands on."""

    page: int
    label: str | None
    text: str


def words(text: str) -> int:
    """Number of words: runs without white space that hold a letter or a digit.

    Example:
      >>> words("| Wind | 1,000 |")
      2
    """
    return sum(any(map(str.isalnum, run)) for run in text.split())


def plain_passages(pages: Iterable[Page], max_words: int) -> tuple[Passage, ...]:
    """Paragraphs of each page, merged up to `max_words`; never across a page's end."""
    return tuple(
        Passage(page.number, page.label, text)
        for page in pages
        for text in merged(paragraphs(page.text.split("\n")), max_words)
    )


def paragraphs(lines: Sequence[str], fenced: Sequence[bool] | None = None) -> tuple[str, ...]:
    """Runs of lines between blank lines; a blank line inside a code fence ends none."""
    inside = fenced or [False] * len(lines)
    runs: list[list[str]] = [[]]
    for line, code in zip(lines, inside, strict=True):
        if line.strip() or code:
            runs[-1].append(line)
        elif runs[-1]:
            runs.append([])
    return tuple("\n".join(run) for run in runs if run)


def merged(blocks: Iterable[str], max_words: int) -> tuple[str, ...]:
    """Paragraphs joined in their order as long as they have at most `max_words` together.

    A paragraph that is longer by itself is cut at sentence ends and list items, and a sentence that is longer
    by itself at a word's end. A table or a fenced code block is never cut, however long. What has no word (a lone
    `---`) is no passage.
    """
    units: list[str] = []
    for block in blocks:
        units.extend([block] if words(block) <= max_words or _is_whole(block) else _cut(block, max_words))
    return tuple(text.strip("\n") for text in _filled(units, "\n\n", max_words) if words(text))


def fences(lines: Sequence[str], place: Callable[[int], Where]) -> tuple[bool, ...]:
    """Whether each line belongs to a fenced code block, its fences included.

    Args:
      lines: of a document or a page.
      place: where the n-th of the lines stands, n from 0.

    Raises:
      InputError: a fence is opened and never closed; all that follows would be code.
    """
    mark, opened = "", 0
    inside = []
    for number, line in enumerate(lines):
        bare = line.strip()
        run = bare[: len(bare) - len(bare.lstrip(bare[0]))] if bare.startswith(_FENCES) else ""
        if not mark and run and "`" not in bare[len(run) :]:
            mark, opened = run, number
            inside.append(True)
            continue
        inside.append(bool(mark))
        if mark and bare == run and run.startswith(mark):
            mark = ""
    if mark:
        remedy = f"add a line {mark} after the code"
        raise input_error(place(opened), "a code fence must be closed", remedy, "none to the end")
    return tuple(inside)


def ascending(pages: Iterable[tuple[int, Where]]) -> None:
    """Stop where a page's number is not above the one before it."""
    last = 0
    for number, where in pages:
        if number <= last:
            remedy = "number the pages 1, 2, 3, … in the order of the file"
            raise input_error(where, "page numbers must go up", remedy, f"{number} after {last}")
        last = number


def as_chunks(
    source: str, passages: Iterable[Passage], tags: Mapping[str, str], entities: tuple[str, ...]
) -> Iterator[Chunk]:
    """Chunks of one document, named `source#page-k` with k from 1 within the document."""
    for k, (page, label, text) in enumerate(passages, 1):
        yield Chunk(f"{source}#{page}-{k}", text, source, page, label, tags, entities)


def _is_whole(block: str) -> bool:
    return any(line.lstrip().startswith(("|", *_FENCES)) for line in block.split("\n"))


def _cut(block: str, max_words: int) -> tuple[str, ...]:
    ends = [0, *(match.end() for match in _PIECE_END.finditer(block)), len(block)]
    pieces = [part for start, end in pairwise(ends) for part in _by_words(block[start:end], max_words)]
    return tuple(text.strip() for text in _filled(pieces, "", max_words))


def _by_words(piece: str, max_words: int) -> tuple[str, ...]:
    starts = [match.start() for match in re.finditer(r"\S+", piece)]
    ends = [0, *starts[max_words::max_words], len(piece)]
    return tuple(piece[start:end] for start, end in pairwise(ends))


def _filled(units: Iterable[str], glue: str, max_words: int) -> Iterator[str]:
    held: list[str] = []
    total = 0
    for unit in units:
        count = words(unit)
        if held and total + count > max_words:
            yield glue.join(held)
            held, total = [], 0
        held.append(unit)
        total += count
    if held:
        yield glue.join(held)
