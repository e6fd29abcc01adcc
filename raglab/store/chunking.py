"""Chunking (shore): a document's blocks as chunks an encoder reads whole, cut by structure.

A heading of level 1 to 3 and the end of a page begin a chunk; deeper headings are lines of the
text. What is longer than the encoder reads is cut at the ends of blocks; a block at the ends of its
sentences, its lines, its words, in this order; a table between rows, its head repeated; a row that
is too long below the heads of its own columns; code between lines, its fence repeated. A chunk that
goes on in the middle of a section begins with the last sentences of the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from raglab.store.blocks import Block, DocumentBlocks, plain_paragraphs
from raglab.store.table_rows import TABLE_RULE, split_long_rows
from raglab.values import SECTION_JOINT, Chunk
from raglab.words.text import sentence_ends

DEEPEST = 3  # level of headings that begin a section
MAX_TOKENS = 512  # of a chunk, where its encoder reads more: a longer one would be about too much
LEAST_TOKENS = 32
OVERLAP = 32
# characters of a token at most: an encoder may read a word of any length as one unknown token
_WIDE = 20
_WORDS = 16  # of a piece of a sentence that is too long
_PATH_SHARE = 2  # the headings of a chunk take at most the limit over this
_FRAME_SHARE = 2  # likewise the head of a table and the fences of code that are repeated
_ITEM = re.compile(r"\n(?=[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t])")
_LINE = re.compile(r"\n")
_BLANKS = re.compile(r"\s+")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class TokenLimit:
    """How long a chunk may be.

    count: tokens of each of some passages as the encoder counts them, its prompt and the tokens
    that frame it included. max_tokens: of a chunk with its headings. overlap: tokens of whole
    sentences, at most, that consecutive chunks of a section share.
    """

    count: Callable[[Sequence[str]], Sequence[int]]
    max_tokens: int
    overlap: int


class _ChunkPart(NamedTuple):
    """A block or a piece of one.

    Its text with the blanks behind it, its tokens, and its block's place.
    """

    text: str
    size: int
    block: int


class _Frame(NamedTuple):
    """What stands around every run of pieces of a block: head of a table, fences of code.

    And its tokens.
    """

    before: str = ""
    after: str = ""
    size: int = 0


class _Measure(NamedTuple):
    """A limit, and the tokens that frame a passage."""

    limit: TokenLimit
    frame: int

    @property
    def room(self) -> int:
        """Tokens that headings and text may have."""
        return self.limit.max_tokens - self.frame

    def sizes(self, texts: Sequence[str]) -> list[int]:
        """Tokens of pieces of text without those that frame a passage.

        A wide text counts by its characters.
        """
        counts = self.limit.count(texts) if texts else ()
        return [
            max(count - self.frame, -(-len(text) // _WIDE))
            for text, count in zip(texts, counts, strict=True)
        ]


class _ChunkSection(NamedTuple):
    """Blocks that stand below the same headings on the same page."""

    path: tuple[str, ...]
    page: int
    label: str | None
    blocks: list[Block]


def chunk_blocks(document: DocumentBlocks, source: str, *, limit: TokenLimit) -> tuple[Chunk, ...]:
    """Chunks of one document, named `source#page-k` with k from 1 within the document.

    The document's only heading of level 1 is its title where it states none. A heading without text
    below makes no chunk.

    Args:
      document: its blocks in their order.
      source: path of the document.
      limit: of a chunk.

    Example:
      >>> blocks = (Block("heading", "Excess", 1), Block("text", "It is £250."))
      >>> words = TokenLimit(lambda texts: [len(text.split()) for text in texts], 32, 0)
      >>> (chunk,) = chunk_blocks(DocumentBlocks("", blocks), "a.md", limit=words)
      >>> chunk.chunk_id, chunk.section, chunk.text
      ('a.md#1-1', ('Excess',), 'It is £250.')
    """
    measure = _measure(limit)
    tags = dict(document.tags)  # which can be pickled
    chunks = [
        Chunk(
            "",
            text,
            source,
            section.page,
            section.label,
            tags,
            document.entities,
            section.path,
        )
        for section in _sections(document, measure)
        for text in _section_texts(section.path, section.blocks, measure)
    ]
    return tuple(
        chunk._replace(chunk_id=f"{source}#{chunk.page}-{k}") for k, chunk in enumerate(chunks, 1)
    )


def cut_long_chunks(chunks: Sequence[Chunk], limit: TokenLimit) -> Iterator[tuple[int, Chunk]]:
    """Chunks of a collection whose documents come as one text each.

    Those that are too long are cut at paragraphs.

    A chunk that fits stays as it is. Pieces keep source, page and tags, so that labels mean them
    too, and are named after the chunk: `id#1-1` and so on, or `id-1` where the id names a page.

    Args:
      chunks: to be cut.
      limit: of a chunk.

    Returns:
      Each chunk with the position of the one that it is, or is cut from.
    """
    measure = _measure(limit)
    for at, (chunk, size) in enumerate(
        zip(chunks, limit.count([chunk.full_text for chunk in chunks]), strict=True)
    ):
        if size <= limit.max_tokens and len(chunk.full_text) <= _WIDE * limit.max_tokens:
            yield at, chunk
            continue
        stem = f"{chunk.chunk_id}-" if "#" in chunk.chunk_id else f"{chunk.chunk_id}#1-"
        blocks = [Block("text", text) for text in plain_paragraphs(chunk.text)]
        ((path, blocks),) = _fitted([(chunk.section, blocks)], measure)
        texts = _section_texts(path, blocks, measure)
        yield from (
            (at, chunk._replace(chunk_id=f"{stem}{k}", text=text, section=path))
            for k, text in enumerate(texts, 1)
        )


def _measure(limit: TokenLimit) -> _Measure:
    return _Measure(limit, limit.count([""])[0])


def _sections(document: DocumentBlocks, measure: _Measure) -> Iterator[_ChunkSection]:
    """Runs of blocks below the same headings of a page; headings alone are none."""
    levels = [
        (block.level, block.text)
        for block in document.blocks
        if block.kind == "heading" and block.text
    ]
    # The only heading of level 1 is the title where no heading stands before it: a late one is of
    # an appendix.
    is_titled = bool(levels) and [level for level, _ in levels].count(1) == 1 == levels[0][0]
    title = document.title or (levels[0][1] if is_titled else "")
    heads: list[Block] = []
    sections: list[_ChunkSection] = []
    begins = True
    for block in document.blocks:
        if block.kind == "heading" and (block.level <= DEEPEST or not block.text):
            heads = [*(above for above in heads if above.level < block.level), block]
            begins = True
            continue
        if begins or (sections[-1].page, sections[-1].label) != (block.page, block.label):
            below = heads[1:] if heads and heads[0].text == title else heads
            path = (title, *(head.text for head in below))
            sections.append(_ChunkSection(tuple(filter(None, path)), block.page, block.label, []))
            begins = False
        sections[-1].blocks.append(block)
    fitted = _fitted([(section.path, section.blocks) for section in sections], measure)
    for section, (path, blocks) in zip(sections, fitted, strict=True):
        yield section._replace(path=path, blocks=blocks)


def _fitted(
    sections: Sequence[tuple[tuple[str, ...], list[Block]]], measure: _Measure
) -> Iterator[tuple[tuple[str, ...], list[Block]]]:
    """Sections whose headings leave room for text.

    Outer headings of a long path go, and stand in the text once.
    """
    most = measure.room // _PATH_SHARE
    paths = list(dict.fromkeys(path for path, _ in sections))
    size_of = dict(
        zip(paths, measure.sizes([SECTION_JOINT.join(path) for path in paths]), strict=True)
    )
    moved: set[str] = set()
    for path, blocks in sections:
        heads = path
        while heads and size_of[heads] > most:
            heads = heads[1:]
            size_of.setdefault(heads, measure.sizes([SECTION_JOINT.join(heads)])[0])
        gone = [head for head in path[: len(path) - len(heads)] if head not in moved]
        moved.update(gone)
        yield heads, [*(Block("text", head) for head in gone), *blocks]


def _section_texts(path: tuple[str, ...], blocks: Sequence[Block], measure: _Measure) -> list[str]:
    """Texts of the chunks of a section."""
    head = measure.sizes([SECTION_JOINT.join(path)])[0] if path else 0
    room = measure.room - head
    blocks = [piece for block in blocks for piece in _short_rows(block, room, measure)]
    parts, frames = _parts(blocks, room, measure)
    section = _Pieces(blocks, frames, room)
    drafts = list(_filled(section, parts, measure))
    # Sizes add up where a tokenizer parts words at white space; of any other, what is too long
    # after all is halved.
    while True:
        texts = [_text(section, draft) for draft in drafts]
        above = SECTION_JOINT.join(path) + "\n" if path else ""
        counts = measure.limit.count([above + text for text in texts])
        fits = [count <= measure.limit.max_tokens for count in counts]
        if all(fits):
            return [text for text in texts if any(map(str.isalnum, text))]
        drafts = [
            half
            for draft, fit in zip(drafts, fits, strict=True)
            for half in ([draft] if fit else _halved(draft))
        ]


class _Pieces(NamedTuple):
    """Blocks of a section, what frames the pieces of cut ones, and tokens of a chunk's text."""

    blocks: Sequence[Block]
    frames: dict[int, _Frame]
    room: int

    def cost(self, part: _ChunkPart, before: _ChunkPart | None) -> int:
        """Tokens that a part adds behind another one, the frame of its block included."""
        begins = before is None or before.block != part.block
        return part.size + (
            self.frames[part.block].size if begins and part.block in self.frames else 0
        )


def _parts(
    blocks: Sequence[Block], room: int, measure: _Measure
) -> tuple[list[_ChunkPart], dict[int, _Frame]]:
    """Blocks that fit, pieces of the others, and what frames these."""
    parts: list[_ChunkPart] = []
    frames: dict[int, _Frame] = {}
    for at, (block, size) in enumerate(
        zip(blocks, measure.sizes([block.text for block in blocks]), strict=True)
    ):
        if size <= room:
            parts.append(_ChunkPart(block.text, size, at))
            continue
        frame, texts = _framed(block, room, measure)
        frames[at] = frame
        cuts = (_blanks,) if block.kind in {"table", "code"} else (_sentences, _line_ends, _blanks)
        parts += [_ChunkPart(*piece, at) for piece in _cut(texts, cuts, room - frame.size, measure)]
    return parts, frames


def _short_rows(block: Block, room: int, measure: _Measure) -> list[Block]:
    """A block as it is; a table of which a row does not fit below its head as several."""
    if block.kind != "table" or measure.sizes([block.text])[0] <= room:
        return [block]
    return split_long_rows(block, room, measure.sizes)


def _framed(block: Block, room: int, measure: _Measure) -> tuple[_Frame, list[str]]:
    """What is repeated around a block's pieces, and its text without it, in lines if so framed."""
    first, *lines = block.text.split("\n")
    fence = _FENCE.match(first) if block.kind == "code" else None
    if fence:
        closed = bool(lines) and lines[-1].strip().startswith(fence[1])
        frame, body = _Frame(first, fence[1]), lines[:-1] if closed else lines
    elif block.kind == "table" and len(lines) > 1 and TABLE_RULE.fullmatch(lines[0].strip()):
        frame, body = _Frame(f"{first}\n{lines[0]}"), lines[1:]
    else:
        frame, body = _Frame(), [first, *lines]
    size = measure.sizes([f"{frame.before}\n{frame.after}"])[0] if frame.before else 0
    if size > room // _FRAME_SHARE:  # too long to be repeated
        frame, body, size = _Frame(), [first, *lines], 0
    if block.kind in {"table", "code"}:
        return frame._replace(size=size), [f"{line}\n" for line in body]
    return frame, [block.text]


_Cut = Callable[[str], Iterable[int]]


def _sentences(text: str) -> Iterable[int]:
    """Beginnings of sentences and list items."""
    return sorted(
        {
            *(start for _, start in sentence_ends(text)),
            *(match.end() for match in _ITEM.finditer(text)),
        }
    )


def _line_ends(text: str) -> Iterable[int]:
    return (match.end() for match in _LINE.finditer(text))


def _blanks(text: str) -> Iterable[int]:
    """Beginnings of every sixteenth word."""
    return [match.end() for match in _BLANKS.finditer(text.rstrip())][_WORDS - 1 :: _WORDS]


def _middle(text: str) -> Iterable[int]:
    return (len(text) // 2,)


def _cut(
    texts: Sequence[str], cuts: Sequence[_Cut], room: int, measure: _Measure
) -> list[tuple[str, int]]:
    """Pieces that fit, with their tokens.

    What is too long is cut in one way after the other, at last in halves.
    """
    pieces = list(zip(texts, measure.sizes(texts), strict=True))
    steps = iter(cuts)
    while any(size > room and len(text) > 1 for text, size in pieces):
        cut = next(steps, _middle)
        shorter: list[tuple[str, int]] = []
        for text, size in pieces:
            if size <= room:
                shorter.append((text, size))
                continue
            ends = [0, *cut(text), len(text)]
            own = [text[start:end] for start, end in pairwise(ends) if start < end]
            shorter += zip(own, measure.sizes(own), strict=True)
        pieces = shorter
    return pieces


def _filled(
    section: _Pieces, parts: Sequence[_ChunkPart], measure: _Measure
) -> Iterator[list[_ChunkPart]]:
    """Parts of each chunk of a section, in their order, as many as fit.

    The last sentences begin the next chunk too.
    """
    held: list[_ChunkPart] = []
    total = 0
    for part in parts:
        more = section.cost(part, held[-1] if held else None)
        if held and total + more > section.room:
            # A heading of a deeper level belongs to what follows it.
            moved = (
                [held.pop()]
                if len(held) > 1 and section.blocks[held[-1].block].kind == "heading"
                else []
            )
            begun = [*moved, part]
            if _total(section, begun) > section.room:
                held, begun = [*held, *moved], [part]
            yield held
            spare = min(measure.limit.overlap, section.room - _total(section, begun))
            held = [*_repeated(section, held, begun[0], spare, measure), *begun]
            total = _total(section, held)
            continue
        held.append(part)
        total += more
    if held:
        yield held


def _total(section: _Pieces, held: Sequence[_ChunkPart]) -> int:
    return sum(
        section.cost(part, before) for before, part in zip((None, *held), held, strict=False)
    )


def _repeated(
    section: _Pieces,
    held: Sequence[_ChunkPart],
    following: _ChunkPart,
    spare: int,
    measure: _Measure,
) -> list[_ChunkPart]:
    """Last whole sentences of a chunk, up to `spare` tokens, never all, as part of the next one."""
    last = held[-1].block
    if spare < 1 or section.blocks[last].kind not in {"text", "item"}:
        return []
    run = "".join(part.text for part in held if part.block == last)
    starts = _sentences(run + following.text if following.block == last else run)
    if following.block == last and len(run) not in starts:
        return []  # the chunk ends within a sentence
    own = [0, *(start for start in starts if start < len(run))]
    if held[0].block == last:
        own = own[1:]  # the first sentence would make the whole chunk
    texts = [run[start:end] for start, end in pairwise([*own, len(run)])]
    taken, size = len(run), 0
    for start, more in zip(reversed(own), reversed(measure.sizes(texts)), strict=True):
        if size + more > spare:
            break
        taken, size = start, size + more
    return [_ChunkPart(run[taken:], size, last)] if size else []


def _text(section: _Pieces, held: Sequence[_ChunkPart]) -> str:
    """Text of a chunk: its parts in their frames, blocks apart."""
    written: list[str] = []
    before = ""
    for block, run in groupby(held, key=lambda part: part.block):
        frame = section.frames.get(block, _Frame())
        text = "".join(part.text for part in run).strip("\n").rstrip()
        kind = section.blocks[block].kind
        written += ["\n" if kind == before == "item" else "\n\n"] if written else []
        written += ["\n".join(filter(None, (frame.before, text, frame.after)))]
        before = kind
    return "".join(written)


def _halved(held: list[_ChunkPart]) -> list[list[_ChunkPart]]:
    """A draft as two; of a single part its words."""
    if len(held) > 1:
        return [held[: len(held) // 2], held[len(held) // 2 :]]
    ((text, size, block),) = held
    middle = len(text) // 2
    blank = _BLANKS.search(text, middle, len(text.rstrip()))
    at = blank.end() if blank else middle
    return [[_ChunkPart(piece, size // 2, block)] for piece in (text[:at], text[at:]) if piece]
