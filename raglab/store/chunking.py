"""Chunking (shore): a document's blocks as chunks an encoder reads whole, by structure (S1.8).

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
_ITEM_START = re.compile(r"\n(?=[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t])")
_LINE_END = re.compile(r"\n")
_BLANK_RUN = re.compile(r"\s+")
_CODE_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")


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
    """What frames every run of pieces of a block: head of a table, fences of code.

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

    def sizes(self, passages: Sequence[str]) -> list[int]:
        """Tokens of pieces of text without those that frame a passage.

        A wide text counts by its characters.
        """
        token_counts = self.limit.count(passages) if passages else ()
        return [
            max(token_count - self.frame, -(-len(passage) // _WIDE))
            for passage, token_count in zip(passages, token_counts, strict=True)
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
    token_measure = _measure(limit)
    document_tags = dict(document.tags)  # which can be pickled
    chunks = [
        Chunk(
            "",
            passage,
            source,
            section.page,
            section.label,
            document_tags,
            document.entities,
            section.path,
        )
        for section in _sections(document, token_measure)
        for passage in _section_texts(section.path, section.blocks, token_measure)
    ]
    return tuple(
        chunk._replace(chunk_id=f"{source}#{chunk.page}-{chunk_number}")
        for chunk_number, chunk in enumerate(chunks, 1)
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
    token_measure = _measure(limit)
    for position, (chunk, n_tokens) in enumerate(
        zip(chunks, limit.count([chunk.full_text for chunk in chunks]), strict=True)
    ):
        if n_tokens <= limit.max_tokens and len(chunk.full_text) <= _WIDE * limit.max_tokens:
            yield position, chunk
            continue
        id_prefix = f"{chunk.chunk_id}-" if "#" in chunk.chunk_id else f"{chunk.chunk_id}#1-"
        text_blocks = [Block("text", paragraph) for paragraph in plain_paragraphs(chunk.text)]
        ((heading_path, text_blocks),) = _fitted([(chunk.section, text_blocks)], token_measure)
        passages = _section_texts(heading_path, text_blocks, token_measure)
        yield from (
            (
                position,
                chunk._replace(
                    chunk_id=f"{id_prefix}{chunk_number}", text=paragraph, section=heading_path
                ),
            )
            for chunk_number, paragraph in enumerate(passages, 1)
        )


def _measure(limit: TokenLimit) -> _Measure:
    return _Measure(limit, limit.count([""])[0])


def _sections(document: DocumentBlocks, token_measure: _Measure) -> Iterator[_ChunkSection]:
    """Runs of blocks below the same headings of a page; headings alone are none."""
    heading_levels = [
        (block.level, block.text)
        for block in document.blocks
        if block.kind == "heading" and block.text
    ]
    # The only heading of level 1 is the title where no heading stands before it: a late one is of
    # an appendix.
    is_titled = (
        bool(heading_levels)
        and [heading_level for heading_level, _ in heading_levels].count(1)
        == 1
        == heading_levels[0][0]
    )
    document_title = document.title or (heading_levels[0][1] if is_titled else "")
    open_headings: list[Block] = []
    sections: list[_ChunkSection] = []
    is_new_section = True
    for block in document.blocks:
        if block.kind == "heading" and (block.level <= DEEPEST or not block.text):
            open_headings = [
                *(
                    outer_heading
                    for outer_heading in open_headings
                    if outer_heading.level < block.level
                ),
                block,
            ]
            is_new_section = True
            continue
        if is_new_section or (sections[-1].page, sections[-1].label) != (block.page, block.label):
            path_headings = (
                open_headings[1:]
                if open_headings and open_headings[0].text == document_title
                else open_headings
            )
            heading_path = (document_title, *(heading.text for heading in path_headings))
            sections.append(
                _ChunkSection(tuple(filter(None, heading_path)), block.page, block.label, [])
            )
            is_new_section = False
        sections[-1].blocks.append(block)
    fitted_sections = _fitted(
        [(section.path, section.blocks) for section in sections], token_measure
    )
    for section, (heading_path, section_blocks) in zip(sections, fitted_sections, strict=True):
        yield section._replace(path=heading_path, blocks=section_blocks)


def _fitted(
    sections: Sequence[tuple[tuple[str, ...], list[Block]]], token_measure: _Measure
) -> Iterator[tuple[tuple[str, ...], list[Block]]]:
    """Sections whose headings leave room for text.

    Outer headings of a long path go, and stand in the text once.
    """
    path_limit = token_measure.room // _PATH_SHARE
    heading_paths = list(dict.fromkeys(heading_path for heading_path, _ in sections))
    tokens_by_path = dict(
        zip(
            heading_paths,
            token_measure.sizes(
                [SECTION_JOINT.join(heading_path) for heading_path in heading_paths]
            ),
            strict=True,
        )
    )
    moved_headings: set[str] = set()
    for heading_path, section_blocks in sections:
        fitting_headings = heading_path
        while fitting_headings and tokens_by_path[fitting_headings] > path_limit:
            fitting_headings = fitting_headings[1:]
            tokens_by_path.setdefault(
                fitting_headings, token_measure.sizes([SECTION_JOINT.join(fitting_headings)])[0]
            )
        dropped_headings = [
            heading
            for heading in heading_path[: len(heading_path) - len(fitting_headings)]
            if heading not in moved_headings
        ]
        moved_headings.update(dropped_headings)
        yield (
            fitting_headings,
            [*(Block("text", heading) for heading in dropped_headings), *section_blocks],
        )


def _section_texts(
    heading_path: tuple[str, ...], section_blocks: Sequence[Block], token_measure: _Measure
) -> list[str]:
    """Texts of the chunks of a section."""
    path_tokens = token_measure.sizes([SECTION_JOINT.join(heading_path)])[0] if heading_path else 0
    text_tokens = token_measure.room - path_tokens
    section_blocks = [
        block_piece
        for block in section_blocks
        for block_piece in _short_rows(block, text_tokens, token_measure)
    ]
    chunk_parts, frames_by_block = _parts(section_blocks, text_tokens, token_measure)
    section = _Pieces(section_blocks, frames_by_block, text_tokens)
    drafts = list(_filled(section, chunk_parts, token_measure))
    # Sizes add up where a tokenizer parts words at white space; of any other, what is too long
    # after all is halved.
    while True:
        chunk_texts = [_text(section, draft) for draft in drafts]
        headings_text = SECTION_JOINT.join(heading_path) + "\n" if heading_path else ""
        token_counts = token_measure.limit.count(
            [headings_text + chunk_text for chunk_text in chunk_texts]
        )
        are_fitting = [
            token_count <= token_measure.limit.max_tokens for token_count in token_counts
        ]
        if all(are_fitting):
            return [chunk_text for chunk_text in chunk_texts if any(map(str.isalnum, chunk_text))]
        drafts = [
            half_draft
            for draft, is_fitting in zip(drafts, are_fitting, strict=True)
            for half_draft in ([draft] if is_fitting else _halved(draft))
        ]


class _Pieces(NamedTuple):
    """Blocks of a section, what frames the pieces of cut ones, and tokens of a chunk's text."""

    blocks: Sequence[Block]
    frames: dict[int, _Frame]
    room: int

    def cost(self, part: _ChunkPart, before: _ChunkPart | None) -> int:
        """Tokens that a part adds behind another one, the frame of its block included."""
        is_first_part = before is None or before.block != part.block
        return part.size + (
            self.frames[part.block].size if is_first_part and part.block in self.frames else 0
        )


def _parts(
    section_blocks: Sequence[Block], text_tokens: int, token_measure: _Measure
) -> tuple[list[_ChunkPart], dict[int, _Frame]]:
    """Blocks that fit, pieces of the others, and what frames these."""
    chunk_parts: list[_ChunkPart] = []
    frames_by_block: dict[int, _Frame] = {}
    for block_index, (block, n_tokens) in enumerate(
        zip(
            section_blocks,
            token_measure.sizes([block.text for block in section_blocks]),
            strict=True,
        )
    ):
        if n_tokens <= text_tokens:
            chunk_parts.append(_ChunkPart(block.text, n_tokens, block_index))
            continue
        block_frame, block_texts = _framed(block, text_tokens, token_measure)
        frames_by_block[block_index] = block_frame
        cut_functions = (
            (_blanks,) if block.kind in {"table", "code"} else (_sentences, _line_ends, _blanks)
        )
        chunk_parts += [
            _ChunkPart(*sized_piece, block_index)
            for sized_piece in _cut(
                block_texts, cut_functions, text_tokens - block_frame.size, token_measure
            )
        ]
    return chunk_parts, frames_by_block


def _short_rows(block: Block, text_tokens: int, token_measure: _Measure) -> list[Block]:
    """A block as it is; a table of which a row does not fit below its head as several."""
    if block.kind != "table" or token_measure.sizes([block.text])[0] <= text_tokens:
        return [block]
    return split_long_rows(block, text_tokens, token_measure.sizes)


def _framed(block: Block, text_tokens: int, token_measure: _Measure) -> tuple[_Frame, list[str]]:
    """What is repeated around a block's pieces, and its text without it, in lines if so framed."""
    first_line, *further_lines = block.text.split("\n")
    fence_match = _CODE_FENCE.match(first_line) if block.kind == "code" else None
    if fence_match:
        is_closed = bool(further_lines) and further_lines[-1].strip().startswith(fence_match[1])
        block_frame, body_lines = (
            _Frame(first_line, fence_match[1]),
            further_lines[:-1] if is_closed else further_lines,
        )
    elif (
        block.kind == "table"
        and len(further_lines) > 1
        and TABLE_RULE.fullmatch(further_lines[0].strip())
    ):
        block_frame, body_lines = _Frame(f"{first_line}\n{further_lines[0]}"), further_lines[1:]
    else:
        block_frame, body_lines = _Frame(), [first_line, *further_lines]
    frame_tokens = (
        token_measure.sizes([f"{block_frame.before}\n{block_frame.after}"])[0]
        if block_frame.before
        else 0
    )
    if frame_tokens > text_tokens // _FRAME_SHARE:  # too long to be repeated
        block_frame, body_lines, frame_tokens = _Frame(), [first_line, *further_lines], 0
    if block.kind in {"table", "code"}:
        return block_frame._replace(size=frame_tokens), [
            f"{body_line}\n" for body_line in body_lines
        ]
    return block_frame, [block.text]


_Cut = Callable[[str], Iterable[int]]


def _sentences(passage: str) -> Iterable[int]:
    """Beginnings of sentences and list items."""
    return sorted(
        {
            *(sentence_start for _, sentence_start in sentence_ends(passage)),
            *(item_match.end() for item_match in _ITEM_START.finditer(passage)),
        }
    )


def _line_ends(passage: str) -> Iterable[int]:
    return (line_end.end() for line_end in _LINE_END.finditer(passage))


def _blanks(passage: str) -> Iterable[int]:
    """Beginnings of every sixteenth word."""
    return [blank_match.end() for blank_match in _BLANK_RUN.finditer(passage.rstrip())][
        _WORDS - 1 :: _WORDS
    ]


def _middle(passage: str) -> Iterable[int]:
    return (len(passage) // 2,)


def _cut(
    passages: Sequence[str],
    cut_functions: Sequence[_Cut],
    text_tokens: int,
    token_measure: _Measure,
) -> list[tuple[str, int]]:
    """Pieces that fit, with their tokens.

    What is too long is cut in one way after the other, at last in halves.
    """
    pieces = list(zip(passages, token_measure.sizes(passages), strict=True))
    next_cuts = iter(cut_functions)
    while any(n_tokens > text_tokens and len(piece_text) > 1 for piece_text, n_tokens in pieces):
        cut_function = next(next_cuts, _middle)
        shorter_pieces: list[tuple[str, int]] = []
        for piece_text, n_tokens in pieces:
            if n_tokens <= text_tokens:
                shorter_pieces.append((piece_text, n_tokens))
                continue
            cut_positions = [0, *cut_function(piece_text), len(piece_text)]
            cut_texts = [
                piece_text[piece_start:piece_end]
                for piece_start, piece_end in pairwise(cut_positions)
                if piece_start < piece_end
            ]
            shorter_pieces += zip(cut_texts, token_measure.sizes(cut_texts), strict=True)
        pieces = shorter_pieces
    return pieces


def _filled(
    section: _Pieces, chunk_parts: Sequence[_ChunkPart], token_measure: _Measure
) -> Iterator[list[_ChunkPart]]:
    """Parts of each chunk of a section, in their order, as many as fit.

    The last sentences begin the next chunk too.
    """
    draft_parts: list[_ChunkPart] = []
    draft_tokens = 0
    for chunk_part in chunk_parts:
        added_tokens = section.cost(chunk_part, draft_parts[-1] if draft_parts else None)
        if draft_parts and draft_tokens + added_tokens > section.room:
            # A heading of a deeper level belongs to what follows it.
            moved_headings = (
                [draft_parts.pop()]
                if len(draft_parts) > 1 and section.blocks[draft_parts[-1].block].kind == "heading"
                else []
            )
            next_parts = [*moved_headings, chunk_part]
            if _total(section, next_parts) > section.room:
                draft_parts, next_parts = [*draft_parts, *moved_headings], [chunk_part]
            yield draft_parts
            overlap_tokens = min(
                token_measure.limit.overlap, section.room - _total(section, next_parts)
            )
            draft_parts = [
                *_repeated(section, draft_parts, next_parts[0], overlap_tokens, token_measure),
                *next_parts,
            ]
            draft_tokens = _total(section, draft_parts)
            continue
        draft_parts.append(chunk_part)
        draft_tokens += added_tokens
    if draft_parts:
        yield draft_parts


def _total(section: _Pieces, draft_parts: Sequence[_ChunkPart]) -> int:
    return sum(
        section.cost(chunk_part, previous_part)
        for previous_part, chunk_part in zip((None, *draft_parts), draft_parts, strict=False)
    )


def _repeated(
    section: _Pieces,
    draft_parts: Sequence[_ChunkPart],
    next_part: _ChunkPart,
    overlap_tokens: int,
    token_measure: _Measure,
) -> list[_ChunkPart]:
    """Last whole sentences of a chunk, up to `overlap_tokens` but never all, for the next one."""
    last_block = draft_parts[-1].block
    if overlap_tokens < 1 or section.blocks[last_block].kind not in {"text", "item"}:
        return []
    block_text = "".join(
        chunk_part.text for chunk_part in draft_parts if chunk_part.block == last_block
    )
    sentence_starts = _sentences(
        block_text + next_part.text if next_part.block == last_block else block_text
    )
    if next_part.block == last_block and len(block_text) not in sentence_starts:
        return []  # the chunk ends within a sentence
    own_starts = [
        0,
        *(sentence_start for sentence_start in sentence_starts if sentence_start < len(block_text)),
    ]
    if draft_parts[0].block == last_block:
        own_starts = own_starts[1:]  # the first sentence would make the whole chunk
    sentences = [
        block_text[sentence_start:sentence_end]
        for sentence_start, sentence_end in pairwise([*own_starts, len(block_text)])
    ]
    overlap_start, n_tokens = len(block_text), 0
    for sentence_start, sentence_tokens in zip(
        reversed(own_starts), reversed(token_measure.sizes(sentences)), strict=True
    ):
        if n_tokens + sentence_tokens > overlap_tokens:
            break
        overlap_start, n_tokens = sentence_start, n_tokens + sentence_tokens
    return [_ChunkPart(block_text[overlap_start:], n_tokens, last_block)] if n_tokens else []


def _text(section: _Pieces, draft_parts: Sequence[_ChunkPart]) -> str:
    """Text of a chunk: its parts in their frames, blocks apart."""
    written_texts: list[str] = []
    previous_kind = ""
    for block_index, block_parts in groupby(draft_parts, key=lambda chunk_part: chunk_part.block):
        block_frame = section.frames.get(block_index, _Frame())
        block_text = "".join(chunk_part.text for chunk_part in block_parts).strip("\n").rstrip()
        block_kind = section.blocks[block_index].kind
        written_texts += (
            ["\n" if block_kind == previous_kind == "item" else "\n\n"] if written_texts else []
        )
        written_texts += [
            "\n".join(filter(None, (block_frame.before, block_text, block_frame.after)))
        ]
        previous_kind = block_kind
    return "".join(written_texts)


def _halved(draft_parts: list[_ChunkPart]) -> list[list[_ChunkPart]]:
    """A draft as two; of a single part its words."""
    if len(draft_parts) > 1:
        return [draft_parts[: len(draft_parts) // 2], draft_parts[len(draft_parts) // 2 :]]
    ((part_text, n_tokens, block_index),) = draft_parts
    middle_position = len(part_text) // 2
    middle_blank = _BLANK_RUN.search(part_text, middle_position, len(part_text.rstrip()))
    cut_position = middle_blank.end() if middle_blank else middle_position
    return [
        [_ChunkPart(half_text, n_tokens // 2, block_index)]
        for half_text in (part_text[:cut_position], part_text[cut_position:])
        if half_text
    ]
