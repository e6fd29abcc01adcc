"""Document reading (shore): each format as blocks, bounded in time and memory, each file once.

Small and plain text is read at once. All else is read by one process for all documents of a
folder. Blocks are kept by the bytes of their file in the user's own cache.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args

from raglab.store.blobs import CACHE_PATIENCE_S, Blobs, cache_folder, own_secret
from raglab.store.blocks import Block, BlockKind, DocumentBlocks
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.html import html_document
from raglab.store.markdown import MAX_NESTING, markdown_blocks, markdown_page
from raglab.store.notebooks import notebook_blocks
from raglab.store.office import excel_blocks, word_blocks
from raglab.store.pdf import PDF_LIMITS, PdfLimits, over_limit, pdf_blocks
from raglab.store.rst import rst_blocks
from raglab.store.workers import DocumentWorker
from raglab.words.characters import is_unicode, visible

_MIB = 2**20
LIGHT_CHARACTERS = 100_000
_LIGHT_TAGS = 15_000  # each looks through all that are open
_LIGHT_LINES = 200_000  # counted for each quote that they may continue
_KEPT_BYTES = 2**28
_LIBRARIES = ("docutils", "mammoth", "markdown-it-py", "openpyxl", "pypdf", "selectolax")
DOCUMENT_LIMITS = PDF_LIMITS._replace(characters=64 * _MIB)
READERS: dict[str, Callable[[bytes], DocumentBlocks]] = {
    "Markdown": markdown_blocks,
    "Markdown page": markdown_page,
    "HTML": lambda raw: html_document(raw.decode()),
    "reStructuredText": rst_blocks,
    "notebook": notebook_blocks,
    "Word": word_blocks,
    "Excel": excel_blocks,
}
_LIGHT = ("Markdown", "Markdown page", "HTML")  # read at once where they are small


def is_light(text: str) -> bool:
    """Whether a text, however it is put together, is read within about a second."""
    lines = text.split("\n")
    quotes = min(max(line.count(">") for line in lines), MAX_NESTING // 2)
    return (
        len(text) <= LIGHT_CHARACTERS
        and text.count("<") <= _LIGHT_TAGS
        and quotes * len(lines) <= _LIGHT_LINES
    )


class DocumentReader:
    """Reads documents; a worker is started where it needs one, and ended with the block.

    notes: what of the documents is left out, or read by a guess, each with its file.
    """

    def __init__(self, *, is_cached: bool = True) -> None:
        self.notes: list[str] = []
        folder = cache_folder() / "documents"
        if is_cached:
            with suppress(OSError):  # texts of the user's are for no one else
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._blobs = (
            Blobs(
                folder / "blocks.sqlite",
                most_bytes=_KEPT_BYTES,
                secret=own_secret(),
                patience_s=CACHE_PATIENCE_S,
            )
            if is_cached
            else None
        )
        self._worker = DocumentWorker()

    def __enter__(self) -> DocumentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.end()
        if self._blobs is not None:
            self._blobs.close()

    def blocks(
        self, reader: str, raw: bytes, file: str, limits: PdfLimits = DOCUMENT_LIMITS
    ) -> DocumentBlocks:
        """Blocks of a document.

        Args:
          reader: a key of `READERS`, or PDF.
          raw: content of the file, of a format in text as UTF-8.
          file: for messages.
          limits: what it may have and cost at most.

        Raises:
          InputError: the document breaks a rule, or passes a limit.
        """
        key = sha256(f"{_made_by()}\0{reader}\0{tuple(limits)}\0".encode() + raw).hexdigest()
        values = self._blobs.get([key]) if self._blobs is not None else {}
        record = json.loads(values[key]) if key in values else self._record(reader, raw, limits)
        document = _document(record)
        if document is None:
            raise _refusal(reader, record, file, limits)
        if self._blobs is not None and key not in values:
            self._blobs.put({key: json.dumps(record).encode()})
        self.notes += [f"{file}: {note}" for note in document.notes]
        return document

    def _record(self, reader: str, raw: bytes, limits: PdfLimits) -> dict[str, Any]:
        if reader in _LIGHT and is_light(raw.decode()):
            return blocks_record(reader, raw, limits)
        seconds = limits.seconds * max(1, math.ceil(len(raw) / _MIB))
        request = {**limits._asdict(), "seconds": seconds, "reader": reader, "limits": limits}
        return self._worker.answer(raw, request)


@cache
def _made_by() -> str:
    """What blocks depend on besides the file: the code that reads it, and its libraries."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}".encode())
    return digest.hexdigest()


def blocks_record(reader: str, raw: bytes, limits: tuple[Any, ...]) -> dict[str, Any]:
    """Blocks of a document as a worker prints them, or the message with which it is refused."""
    allowed = PdfLimits(*limits)
    try:
        document = pdf_blocks(raw, allowed) if reader == "PDF" else READERS[reader](raw)
        size = sum(len(block.text) for block in document.blocks)
        if size > allowed.characters:
            return {"limit": "characters"}
    except MemoryError:
        raise
    except InputError as error:
        return {"refused": str(error)}
    except ImportError as error:
        rule = "its library must be installed"
        remedy = "pip install 'raglab-toolkit[documents]', or take such files away"
        return {"refused": str(input_error(Where(""), rule, remedy, f"no {error.name}"))}
    # libraries fail in as many ways as files are broken
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return {"unreadable": f"{type(error).__name__}: {error}"[:500]}
    return {**document._asdict(), "tags": dict(document.tags)}


def _document(record: dict[str, Any]) -> DocumentBlocks | None:
    """Document of a record, which is checked: what a file made of a worker is not known."""
    match record:
        case {
            "title": str(title),
            "blocks": list() | tuple() as rows,
            "tags": dict(tags),
            "entities": list() | tuple() as entities,
            "notes": list() | tuple() as notes,
        }:
            blocks = tuple(map(_block, rows))
            texts = (title, *tags, *tags.values(), *entities, *notes)
            if None not in blocks and all(isinstance(text, str) for text in texts):
                if is_unicode("".join(texts)):
                    shown = tuple(filter(None, blocks))
                    return DocumentBlocks(title, shown, tags, tuple(entities), tuple(notes))
    return None


def _block(row: object) -> Block | None:
    match row:
        case [str() as kind, str() as text, int() as level, int() as page, str() | None as label]:
            is_known = kind in get_args(BlockKind) and 0 <= level <= 6 and page > 0
            if is_known and is_unicode(text + (label or "")):
                return Block(kind, text, level, page, label)  # type: ignore[arg-type]
    return None


def _refusal(reader: str, record: dict[str, Any], file: str, limits: PdfLimits) -> InputError:
    """Error of a record that holds no document."""
    match record:
        case {"refused": str(message)}:
            place = str(input_error(Where(file), "", "")).removesuffix(": ; .")
            return InputError(f"{place}{visible(message)}")
        case {"limit": ("seconds" | "characters" | "memory_bytes") as limit}:
            return over_limit(file, limits, limit, is_pdf=reader == "PDF")
    rule, remedy = "a document must be readable", "open and save it again, or save it as text"
    reason = shown_value(str(record.get("unreadable", "no answer")))
    return input_error(Where(file), rule, remedy, reason)
