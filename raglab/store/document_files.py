"""Files of documents (shore): each format as blocks, and blocks as chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.models.tokens import encoder_tokens
from raglab.store.blocks import DocumentBlocks
from raglab.store.bounded_readers import bounded_blocks
from raglab.store.chunking import LEAST_TOKENS, MAX_TOKENS, OVERLAP, TokenLimit, chunk_blocks
from raglab.store.csv_tables import csv_records, table_text
from raglab.store.documents import csv_blocks, text_blocks
from raglab.store.encodings import Encoding, decode_page, decode_text
from raglab.store.files import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    BlankError,
    InputError,
    LabelsError,
    Where,
    input_error,
    read_bytes,
)
from raglab.store.markdown import Page
from raglab.store.pdf import PDF_LIMITS, PdfLimits, pdf_blocks
from raglab.store.pictures import SUFFIXES, picture_chunk
from raglab.store.tables import holds_labels
from raglab.values import Chunk
from raglab.words.characters import visible


def token_limit(
    encoder: str | None, max_tokens: int | None, overlap: int | None
) -> Callable[[], TokenLimit]:
    """Limit of a chunk, checked now and read from the encoder's files where a document is cut."""
    if max_tokens is not None and max_tokens < LEAST_TOKENS:
        msg = (
            f"max_tokens must be at least {LEAST_TOKENS}, got {max_tokens}; leave it out for what "
            "the encoder reads."
        )
        raise ValueError(msg)
    most = (max_tokens or MAX_TOKENS) // 2
    if overlap is not None and not 0 <= overlap <= most:
        msg = (
            f"overlap must be in [0, {most}], half of a chunk, got {overlap}; it is a number of "
            "tokens."
        )
        raise ValueError(msg)

    def read() -> TokenLimit:
        tokens = encoder_tokens(encoder)
        size = max_tokens or max(min(tokens.max_tokens or MAX_TOKENS, MAX_TOKENS), LEAST_TOKENS)
        return TokenLimit(
            tokens.count, size, min(OVERLAP if overlap is None else overlap, size // 2)
        )

    return cache(read)


def _bundled_limit() -> TokenLimit:
    return token_limit(None, None, None)()


def _warn_of_encoding(path: Path, label: str) -> None:
    warn_user(
        visible(
            f"{path}: the page states the encoding {label}, but is UTF-8, and is read as UTF-8."
        )
    )


class Limits(NamedTuple):
    """What loading may read at most.

    tokens: of a chunk, read from the encoder's files where a document is cut. max_line_bytes: of a
    line of JSON lines and of a document in text. max_file_bytes: of a file that is read whole. pdf:
    of a PDF. follow_links: whether a path may be a link. without_labels: whether a table of
    labelled questions is refused, as in a folder, whose questions it would answer. encoding: of
    texts without a byte-order mark, as the caller knows it, or of some in a folder; None for UTF-8,
    or what a page states. note_encoding: takes the path of a page that is UTF-8, and the other
    encoding that it states.
    """

    tokens: Callable[[], TokenLimit] = _bundled_limit
    max_line_bytes: int = MAX_LINE_BYTES
    max_file_bytes: int = MAX_FILE_BYTES
    pdf: PdfLimits = PDF_LIMITS
    follow_links: bool = False
    without_labels: bool = False
    encoding: Encoding = None
    note_encoding: Callable[[Path, str], None] = _warn_of_encoding


PlacedChunks = Iterable[tuple[Where, Chunk]]


def _document_text(path: Path, limits: Limits) -> str:
    """Text of a document, which is as long as one in a line of JSON lines at most."""
    raw = read_bytes(path, limits.max_file_bytes, follow_links=limits.follow_links, keep_mark=True)
    return _checked_length(decode_text(raw, Where(str(path), 1), limits.encoding), path, limits)


def _checked_length(text: str, path: Path, limits: Limits) -> str:
    if len(text) > limits.max_line_bytes:
        rule = f"a document must be at most {limits.max_line_bytes} characters"
        raise input_error(
            Where(str(path)), rule, "split it, or raise max_line_bytes", str(len(text))
        )
    return text


def _markup(reader: str) -> Callable[[Any, Path, Limits], PlacedChunks]:
    """Reader of documents in text, by the name of what reads it."""
    return _read_by(
        lambda path, limits: bounded_blocks(
            reader, _document_text(path, limits).encode(), str(path)
        )
    )


def _archive(reader: str) -> Callable[[Any, Path, Limits], PlacedChunks]:
    """Reader of documents in bytes, by the name of what reads it."""
    return _read_by(_archive_blocks(reader))


def _archive_blocks(reader: str) -> Callable[[Path, Limits], DocumentBlocks]:
    """Blocks of documents in bytes, by the name of what reads them."""

    def read(path: Path, limits: Limits) -> DocumentBlocks:
        return bounded_blocks(
            reader,
            read_bytes(path, limits.max_file_bytes, follow_links=limits.follow_links),
            str(path),
        )

    return read


def _page(path: Path, limits: Limits) -> DocumentBlocks:
    raw = read_bytes(path, limits.max_file_bytes, follow_links=limits.follow_links, keep_mark=True)
    note = partial(limits.note_encoding, path)
    text = _checked_length(
        decode_page(raw, Where(str(path), 1), limits.encoding, note), path, limits
    )
    return bounded_blocks("HTML", text.encode(), str(path))


def _plain_text(path: Path, limits: Limits) -> DocumentBlocks:
    texts = _document_text(path, limits).split("\f")
    return DocumentBlocks("", text_blocks(Page(n, None, text) for n, text in enumerate(texts, 1)))


def _pdf(path: Path, limits: Limits) -> DocumentBlocks:
    raw = read_bytes(path, limits.max_file_bytes, follow_links=limits.follow_links)
    return DocumentBlocks("", pdf_blocks(raw, str(path), limits.pdf))


def _table(path: Path, limits: Limits) -> DocumentBlocks:
    text = table_text(
        path, limits.max_file_bytes, follow_links=limits.follow_links, encoding=limits.encoding
    )
    return csv_blocks(_checked_length(text, path, limits), path)


def _read_by(
    reader: Callable[[Path, Limits], DocumentBlocks],
) -> Callable[[Any, Path, Limits], PlacedChunks]:
    """Reader of the chunks of a format whose files become blocks."""
    return lambda source, path, limits: document_chunks(
        source, reader(path, limits), Where(str(path)), limits
    )


def _read_table_by(
    reader: Callable[[Path, Limits], DocumentBlocks],
) -> Callable[[Any, Path, Limits], PlacedChunks]:
    """Reader of the chunks of a format whose files are tables, and may be labels."""

    def read(path: Path, limits: Limits) -> DocumentBlocks:
        document = reader(path, limits)
        if limits.without_labels:
            heads = (
                block.text.partition("\n")[0] for block in document.blocks if block.kind == "table"
            )
            if any(
                holds_labels(map(str.strip, head.strip("|").split(" | "))) for head in set(heads)
            ):
                raise labels_error(path)
        return document

    return _read_by(read)


def is_label_file(path: Path, limits: Limits) -> bool:
    """Whether a file that is no document is a TSV table of labels.

    One that cannot be read is none.
    """
    if path.suffix.lower() != ".tsv":
        return False
    try:
        text = table_text(
            path, limits.max_file_bytes, follow_links=limits.follow_links, encoding=limits.encoding
        )
        return holds_labels(csv_records(text, path)[0].cells)
    except InputError:
        return False


def labels_error(path: Path) -> LabelsError:
    """Error of a table of labels among documents, with the way to load it."""
    call = (
        f"load_cases(pd.read_excel({path.name!r}))"
        if path.suffix.lower() == ".xlsx"
        else f"load_cases({path.name!r})"
    )
    rule, remedy = "a document must not be a table of labelled questions", f"load it by {call}"
    return LabelsError(
        str(input_error(Where(str(path)), rule, remedy, "heads of questions and labels"))
    )


def _picture(source: str, path: Path, limits: Limits) -> PlacedChunks:
    follow, most = limits.follow_links, limits.max_file_bytes
    return [
        (
            Where(str(path)),
            picture_chunk(source, path, most, follow_links=follow, encoding=limits.encoding),
        )
    ]


def document_chunks(
    source: str, document: DocumentBlocks, where: Where, limits: Limits
) -> PlacedChunks:
    """Chunks of a document; one without text is refused."""
    chunks = chunk_blocks(document, source, limit=limits.tokens())
    if not chunks:
        rule, remedy = "a document must have text", "fill it or take it away"
        raise BlankError(str(input_error(where, rule, remedy, "none besides headings")))
    return ((where, chunk) for chunk in chunks)


# Files of each format, which are one document of a corpus, by their endings; the reader takes a
# document's name in that corpus, its path, and the limits.
DOCUMENTS: dict[str, tuple[tuple[str, ...], Callable[[Any, Path, Limits], PlacedChunks]]] = {
    "Markdown": ((".md", ".markdown"), _markup("Markdown")),
    "HTML": ((".html", ".htm", ".xhtml"), _read_by(_page)),
    "text": ((".txt", ".text"), _read_by(_plain_text)),
    "PDF": ((".pdf",), _read_by(_pdf)),
    "CSV": ((".csv",), _read_table_by(_table)),
    "reStructuredText": ((".rst",), _markup("reStructuredText")),
    "notebooks": ((".ipynb",), _archive("notebook")),
    "Word": ((".docx",), _archive("Word")),
    "Excel": ((".xlsx",), _read_table_by(_archive_blocks("Excel"))),
    "pictures": (SUFFIXES, _picture),
}
