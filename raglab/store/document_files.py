"""Files of documents (shore): each format as blocks, and blocks as chunks."""

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
from raglab.store.pictures import SUFFIXES, picture_chunk
from raglab.store.tables import holds_labels
from raglab.values import Chunk

MAX_ROWS = 25  # of a table of a CSV file


def token_limit(
    encoder: str | None, max_tokens: int | None, overlap: int | None
) -> Callable[[], TokenLimit]:
    """Limit of a chunk, checked now and read from the encoder's files where a document is cut."""
    if max_tokens is not None and max_tokens < LEAST_TOKENS:
        msg = f"max_tokens must be at least {LEAST_TOKENS}, or None, got {max_tokens}."
        raise ValueError(msg)
    most = (max_tokens or MAX_TOKENS) // 2
    if overlap is not None and not 0 <= overlap <= most:
        msg = f"overlap must be in [0, {most}] tokens, half of a chunk, got {overlap}."
        raise ValueError(msg)

    def read() -> TokenLimit:
        tokens = encoder_tokens(encoder)
        size = max_tokens or max(min(tokens.max_tokens or MAX_TOKENS, MAX_TOKENS), LEAST_TOKENS)
        return TokenLimit(
            tokens.count, size, min(OVERLAP if overlap is None else overlap, size // 2)
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
DOCUMENTS: dict[str, tuple[str, ...]] = {
    "Markdown": (".md", ".markdown"),
    "HTML": (".html", ".htm", ".xhtml"),
    "text": (".txt", ".text"),
    "PDF": (".pdf",),
    "CSV": (".csv",),
    "reStructuredText": (".rst",),
    "notebook": (".ipynb",),
    "Word": (".docx",),
    "Excel": (".xlsx",),
    "picture": SUFFIXES,
}
_TEXTS = frozenset({"Markdown", "HTML", "text", "CSV", "reStructuredText"})


def read_document(name: str, source: str, path: Path, limits: Limits) -> PlacedChunks:
    """Chunks of a document.

    Args:
      name: of its format, a key of `DOCUMENTS`.
      source: its name in the corpus.
      path: of its file.
      limits: of reading.

    Raises:
      InputError: it cannot be read, has no text, or is a table of labels where none may be.
    """
    where = Where(str(path))
    follow, most = limits.follow_links, limits.max_file_bytes
    if name == "picture":
        return [
            (
                where,
                picture_chunk(source, path, most, follow_links=follow, encoding=limits.encoding),
            )
        ]
    raw = read_bytes(path, most, follow_links=follow, keep_mark=True)
    if name in _TEXTS:
        document = _text_blocks(name, raw, path, limits)
    else:
        document = limits.reader.blocks(
            name, raw, str(path), limits.pdf if name == "PDF" else DOCUMENT_LIMITS
        )
    if limits.without_labels and name in {"CSV", "Excel"}:
        lines = {block.text.partition("\n")[0] for block in document.blocks}
        if any(holds_labels(map(str.strip, line.strip("|").split(" | "))) for line in lines):
            table = repr(path.name) if name == "CSV" else f"pd.read_excel({path.name!r})"
            raise input_error(
                where,
                "a document must hold no labelled questions",
                f"use load_cases({table})",
                "heads of labels",
                LabelsError,
            )
    return document_chunks(source, document, where, limits)


def _text_blocks(name: str, raw: bytes, path: Path, limits: Limits) -> DocumentBlocks:
    """Blocks of a document in text."""
    encoding = limits.encoding
    if name == "HTML" and encoding is None:
        encoding = page_encoding(raw, limits.reader.notes)
    text = decode_text(raw, Where(str(path), 1), encoding)
    if len(text) > limits.max_line_bytes:
        raise input_error(
            path,
            f"a document must be at most {limits.max_line_bytes} characters",
            "split it, or raise max_line_bytes",
            str(len(text)),
        )
    if name == "CSV":
        return csv_blocks(text, path)
    if name == "text":
        pages = text.split("\f")
        if len(pages) > limits.pdf.pages:
            raise over_limit(path, limits.pdf, "pages", len(pages))
        return DocumentBlocks(
            "", text_blocks(Page(n, None, page) for n, page in enumerate(pages, 1))
        )
    return limits.reader.blocks(name, text.encode(), str(path))


def csv_blocks(text: str, path: Path) -> DocumentBlocks:
    r"""Tables of at most 25 rows each below the file's name; the n-th table is page n.

    The first record holds the heads, which each table repeats. How the table is read:
    `raglab.store.csv_tables`. A line break inside a cell becomes a blank.

    Args:
      text: of the file.
      path: names the table, and the file in messages.

    Raises:
      InputError: the file is no CSV, a row has not as many cells as there are heads, or there is no
        row.

    Example:
      >>> csv_blocks("cause;excess\nstorm;1,50\n", Path("home_excesses.csv")).blocks[0].text
      '| cause | excess |\n|---|---|\n| storm | 1,50 |'
    """
    heads, *rows = csv_records(text, path)
    name = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    size = sum(map(len, heads.cells)) * len(rows) // MAX_ROWS
    if size > PDF_LIMITS.characters:
        raise input_error(
            path,
            f"heads of a table must take at most {PDF_LIMITS.characters} characters, repeated",
            "shorten them, or split the file",
            str(size),
        )
    blocks = []
    for start in range(0, len(rows), MAX_ROWS):
        table = table_block(heads.cells, [cells for _, cells in rows[start : start + MAX_ROWS]])
        blocks.append(table._replace(page=start // MAX_ROWS + 1))
    return DocumentBlocks(name, tuple(blocks))


def document_chunks(
    source: str, document: DocumentBlocks, where: Where, limits: Limits
) -> PlacedChunks:
    """Chunks of a document; one without text is refused."""
    chunks = chunk_blocks(document, source, limit=limits.tokens())
    if not chunks:
        raise input_error(
            where,
            "a document must have text",
            "fill it or take it away",
            "; ".join(document.notes) or "none besides headings",
            BlankError,
        )
    return ((where, chunk) for chunk in chunks)
