"""Files of documents (shore): each format as blocks, and blocks as chunks (S1.8, S1.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from raglab.models.tokens import encoder_tokens
from raglab.store.blocks import DocumentBlocks, Page, table_block, text_blocks
from raglab.store.chunking import LEAST_TOKENS, MAX_TOKENS, OVERLAP, TokenLimit, chunk_blocks
from raglab.store.csv_tables import csv_records
from raglab.store.document_reading import DOCUMENT_LIMITS, BlockReader
from raglab.store.encodings import Encoding, decode_text, page_encoding
from raglab.store.files import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    BlankError,
    LabelsError,
    Where,
    input_error,
    read_bytes,
)
from raglab.store.pdf import PDF_LIMITS, PdfLimits, over_limit
from raglab.store.pictures import PICTURE_SUFFIXES, picture_chunk
from raglab.store.tables import holds_labels
from raglab.values import Chunk

MAX_TABLE_BLOCK_ROWS = 25  # of a table of a CSV file


def token_limit(
    encoder: str | None, max_tokens: int | None, overlap: int | None
) -> Callable[[], TokenLimit]:
    """Limit of a chunk, checked now and read from the encoder's files where a document is cut."""
    if max_tokens is not None and max_tokens < LEAST_TOKENS:
        message = f"max_tokens must be at least {LEAST_TOKENS}, or None, got {max_tokens}."
        raise ValueError(message)
    max_overlap = (max_tokens or MAX_TOKENS) // 2
    if overlap is not None and not 0 <= overlap <= max_overlap:
        message = f"overlap must be in [0, {max_overlap}] tokens, half of a chunk, got {overlap}."
        raise ValueError(message)

    def read() -> TokenLimit:
        token_counter = encoder_tokens(encoder)
        chunk_tokens = max_tokens or max(
            min(token_counter.max_tokens or MAX_TOKENS, MAX_TOKENS), LEAST_TOKENS
        )
        return TokenLimit(
            token_counter.count,
            chunk_tokens,
            min(OVERLAP if overlap is None else overlap, chunk_tokens // 2),
        )

    return cache(read)


class Limits(NamedTuple):
    """What loading may read at most, and how.

    tokens: of a chunk, read from the encoder's files where a document is cut. reader: of documents.
    max_line_bytes: of a line of JSON lines and of a document in text. max_file_bytes: of a file
    that is read whole. pdf: of a PDF. follow_links: whether a path may be a link. without_labels:
    whether a table of labelled questions is refused, as in a folder, whose questions it would
    answer. encoding: of texts without a byte-order mark, as the caller knows it, or of some in a
    folder; None for UTF-8, or what a page states.
    """

    tokens: Callable[[], TokenLimit] = token_limit(None, None, None)
    reader: BlockReader = BlockReader(is_cached=False)
    max_line_bytes: int = MAX_LINE_BYTES
    max_file_bytes: int = MAX_FILE_BYTES
    pdf: PdfLimits = PDF_LIMITS
    follow_links: bool = False
    without_labels: bool = False
    encoding: Encoding = None


PlacedChunks = Iterable[tuple[Where, Chunk]]
# Formats whose files are one document of a corpus, by their endings.
DOCUMENT_ENDINGS: dict[str, tuple[str, ...]] = {
    "Markdown": (".md", ".markdown"),
    "HTML": (".html", ".htm", ".xhtml"),
    "text": (".txt", ".text"),
    "PDF": (".pdf",),
    "CSV": (".csv",),
    "reStructuredText": (".rst",),
    "notebook": (".ipynb",),
    "Word": (".docx",),
    "Excel": (".xlsx",),
    "picture": PICTURE_SUFFIXES,
}
_TEXT_FORMATS = frozenset({"Markdown", "HTML", "text", "CSV", "reStructuredText"})


def read_document(format_name: str, source: str, path: Path, limits: Limits) -> PlacedChunks:
    """Chunks of a document.

    Args:
      format_name: of its format, a key of `DOCUMENT_ENDINGS`.
      source: its name in the corpus.
      path: of its file.
      limits: of reading.

    Raises:
      InputError: it cannot be read, has no text, or is a table of labels where none may be.
    """
    location = Where(str(path))
    follow_links, max_file_bytes = limits.follow_links, limits.max_file_bytes
    if format_name == "picture":
        return [
            (
                location,
                picture_chunk(
                    source,
                    path,
                    max_file_bytes,
                    follow_links=follow_links,
                    encoding=limits.encoding,
                ),
            )
        ]
    raw_bytes = read_bytes(path, max_file_bytes, follow_links=follow_links, keep_mark=True)
    if format_name in _TEXT_FORMATS:
        document = _text_blocks(format_name, raw_bytes, path, limits)
    else:
        document = limits.reader.blocks(
            format_name,
            raw_bytes,
            str(path),
            limits.pdf if format_name == "PDF" else DOCUMENT_LIMITS,
        )
    if limits.without_labels and format_name in {"CSV", "Excel"}:
        first_lines = {block.text.partition("\n")[0] for block in document.blocks}
        if any(
            holds_labels(map(str.strip, first_line.strip("|").split(" | ")))
            for first_line in first_lines
        ):
            table_call = (
                repr(path.name) if format_name == "CSV" else f"pd.read_excel({path.name!r})"
            )
            raise input_error(
                location,
                "a document must hold no labelled questions",
                f"use load_cases({table_call})",
                "heads of labels",
                LabelsError,
            )
    return document_chunks(source, document, location, limits)


def _text_blocks(format_name: str, raw_bytes: bytes, path: Path, limits: Limits) -> DocumentBlocks:
    """Blocks of a document in text."""
    encoding = limits.encoding
    if format_name == "HTML" and encoding is None:
        encoding = page_encoding(raw_bytes, limits.reader.notes)
    document_text = decode_text(raw_bytes, Where(str(path), 1), encoding)
    if len(document_text) > limits.max_line_bytes:
        raise input_error(
            path,
            f"a document must be at most {limits.max_line_bytes} characters",
            "split it, or raise max_line_bytes",
            str(len(document_text)),
        )
    if format_name == "CSV":
        return csv_blocks(document_text, path)
    if format_name == "text":
        page_texts = document_text.split("\f")
        if len(page_texts) > limits.pdf.pages:
            raise over_limit(path, limits.pdf, "pages", len(page_texts))
        return DocumentBlocks(
            "",
            text_blocks(
                Page(page_number, None, page_text)
                for page_number, page_text in enumerate(page_texts, 1)
            ),
        )
    return limits.reader.blocks(format_name, document_text.encode(), str(path))


def csv_blocks(table_content: str, path: Path) -> DocumentBlocks:
    r"""Tables of at most 25 rows each below the file's name; the n-th table is page n.

    The first record holds the heads, which each table repeats. How the table is read:
    `raglab.store.csv_tables`. A line break inside a cell becomes a blank.

    Args:
      table_content: of the file.
      path: names the table, and the file in messages.

    Raises:
      InputError: the file is no CSV, a row has not as many cells as there are heads, or there is no
        row.

    Example:
      >>> csv_blocks("cause;excess\nstorm;1,50\n", Path("home_excesses.csv")).blocks[0].text
      '| cause | excess |\n|---|---|\n| storm | 1,50 |'
    """
    head_record, *row_records = csv_records(table_content, path)
    table_name = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    repeated_characters = (
        sum(map(len, head_record.cells)) * len(row_records) // MAX_TABLE_BLOCK_ROWS
    )
    if repeated_characters > PDF_LIMITS.characters:
        raise input_error(
            path,
            f"heads of a table must take at most {PDF_LIMITS.characters} characters, repeated",
            "shorten them, or split the file",
            str(repeated_characters),
        )
    table_blocks = []
    for first_row in range(0, len(row_records), MAX_TABLE_BLOCK_ROWS):
        page_table = table_block(
            head_record.cells,
            [
                row_cells
                for _, row_cells in row_records[first_row : first_row + MAX_TABLE_BLOCK_ROWS]
            ],
        )
        table_blocks.append(page_table._replace(page=first_row // MAX_TABLE_BLOCK_ROWS + 1))
    return DocumentBlocks(table_name, tuple(table_blocks))


def document_chunks(
    source: str, document: DocumentBlocks, location: Where, limits: Limits
) -> PlacedChunks:
    """Chunks of a document; one without text is refused."""
    cut_chunks = chunk_blocks(document, source, limit=limits.tokens())
    if not cut_chunks:
        raise input_error(
            location,
            "a document must have text",
            "fill it or take it away",
            "; ".join(document.notes) or "none besides headings",
            BlankError,
        )
    return ((location, chunk) for chunk in cut_chunks)
