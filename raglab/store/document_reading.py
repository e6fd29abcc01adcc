"""Document reading (shore): a process that reads within time and memory; blocks kept (S1.9).

Small and plain text is read at once. All else is read by one process for all documents of a
folder. Blocks are kept by the bytes of their file in the user's own cache.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from errno import ENOMEM
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from raglab.store.blobs import CACHE_PATIENCE_S, Blobs, cache_folder, own_secret
from raglab.store.blocks import DocumentBlocks
from raglab.store.files import UNNAMED, InputError, input_error, shown_value
from raglab.store.html import html_document
from raglab.store.markdown import MAX_NESTING, markdown_blocks, markdown_page
from raglab.store.notebooks import notebook_blocks
from raglab.store.office import excel_blocks, word_blocks
from raglab.store.pdf import PDF_LIMITS, PdfLimits, over_limit, pdf_blocks
from raglab.store.rst import rst_blocks
from raglab.store.workers import DocumentWorker
from raglab.words.characters import visible

_MIB = 2**20
LIGHT_CHARACTERS = 100_000
_LIGHT_TAGS = 15_000  # each looks through all that are open
_LIGHT_LINES = 200_000  # counted for each quote that they may continue
_CACHE_BYTES = 2**28
_READING_LIBRARIES = ("docutils", "mammoth", "markdown-it-py", "openpyxl", "pypdf", "selectolax")
_READABLE_RULE, _READABLE_REMEDY = (
    "a document must be readable",
    "save it again without a password, or as text",
)
DOCUMENT_LIMITS = PDF_LIMITS._replace(characters=64 * _MIB)
BLOCK_READERS: dict[str, Callable[[bytes], DocumentBlocks]] = {
    "Markdown": markdown_blocks,
    "Markdown page": markdown_page,
    "HTML": lambda raw: html_document(raw.decode()),
    "reStructuredText": rst_blocks,
    "notebook": notebook_blocks,
    "Word": word_blocks,
    "Excel": excel_blocks,
}
_LIGHT_FORMATS = ("Markdown", "Markdown page", "HTML")  # read at once where they are small


def is_light(text: str) -> bool:
    """Whether a text, however it is put together, is read within about a second."""
    text_lines = text.split("\n")
    max_quotes = min(max(text_line.count(">") for text_line in text_lines), MAX_NESTING // 2)
    return (
        len(text) <= LIGHT_CHARACTERS
        and not text.startswith("+++")  # TOML, whose keys of many parts take long
        and text.count("<") <= _LIGHT_TAGS
        and max_quotes * len(text_lines) <= _LIGHT_LINES
    )


class BlockReader:
    """Reads documents; a worker is started where it needs one, and ended with the block.

    notes: what of the documents is left out, or read by a guess, each with its file.
    """

    def __init__(self, *, is_cached: bool = True) -> None:
        self.notes: list[str] = []
        self._blobs = _cache() if is_cached else None
        self._worker = DocumentWorker()

    def __enter__(self) -> Self:
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
          reader: a key of `BLOCK_READERS`, or PDF.
          raw: content of the file, of a format in text as UTF-8.
          file: for messages.
          limits: what it may have and cost at most.

        Raises:
          InputError: the document breaks a rule, or passes a limit.
        """
        cache_key = sha256(f"{_made_by()}\0{reader}\0{tuple(limits)}\0".encode() + raw).hexdigest()
        stored_content = (
            self._blobs.get([cache_key]).get(cache_key) if self._blobs is not None else None
        )
        document = None if stored_content is None else _document(stored_content)
        if document is None:
            stored_content, document = self._read(reader, raw, file, limits)
            if self._blobs is not None:
                self._blobs.put({cache_key: stored_content})
        self.notes += [f"{file}: {note}" for note in document.notes]
        return document

    def _read(
        self, reader: str, raw_bytes: bytes, file: str, limits: PdfLimits
    ) -> tuple[bytes, DocumentBlocks]:
        """JSON of a document, and the document."""
        if reader in _LIGHT_FORMATS and is_light(raw_bytes.decode()):
            answer_kind, answer = answered(reader, raw_bytes, limits)
        else:
            limit_s = limits.seconds * max(1, math.ceil(len(raw_bytes) / _MIB))
            worker_request = {
                **limits._asdict(),
                "seconds": limit_s,
                "reader": reader,
                "limits": limits,
            }
            answer_kind, answer = self._worker.answer(raw_bytes, worker_request)
        document = _document(answer) if answer_kind == "document" else None
        if document is not None:
            return answer, document
        answer_text = answer.decode("utf-8", "replace").strip()
        if answer_kind == "refused":
            raise InputError(
                str(input_error(file, "", "")).removesuffix(": ; .") + visible(answer_text)
            )  # which begins behind the file's name
        if answer_kind == "limit" and answer_text in limits._fields:
            raise over_limit(file, limits, answer_text)
        raise input_error(
            file,
            _READABLE_RULE,
            _READABLE_REMEDY,
            shown_value(answer_text if answer_kind == "unreadable" else "no answer"),
        )


def _cache() -> Blobs:
    """Blocks by the bytes of their files, in a folder of the user's alone."""
    folder = cache_folder() / "documents"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Blobs(
        folder / "blocks.sqlite",
        most_bytes=_CACHE_BYTES,
        secret=own_secret(),
        patience_s=CACHE_PATIENCE_S,
    )


@cache
def _made_by() -> str:
    """What blocks depend on besides the file: the code that reads it, and its libraries."""
    code_digest = sha256()
    for module_path in sorted(Path(__file__).parent.glob("*.py")):
        code_digest.update(module_path.read_bytes())
    for library in _READING_LIBRARIES:
        with suppress(PackageNotFoundError):
            code_digest.update(f"{library} {version(library)}".encode())
    return code_digest.hexdigest()


def answered(reader: str, raw: bytes, limits: tuple[Any, ...]) -> tuple[str, bytes]:
    """Kind of an answer and its JSON: a document, a limit, or why it is refused.

    What a refusal says begins behind the name of the file.
    """
    pdf_limits = PdfLimits(*limits)
    try:
        document = pdf_blocks(raw, pdf_limits) if reader == "PDF" else BLOCK_READERS[reader](raw)
        if sum(len(block.text) for block in document.blocks) > pdf_limits.characters:
            return "limit", b"characters"
        return "document", json.dumps(document, default=dict).encode()
    except MemoryError:
        return "limit", b"memory_bytes"
    except InputError as error:
        refusal_error = error
    except ImportError as error:
        library_rule, extra_name = (
            "the format's library must be installed",
            "raglab-toolkit[documents]",
        )
        refusal_error = input_error(
            UNNAMED, library_rule, f"pip install '{extra_name}'", f"no {error.name}"
        )
    # libraries fail in as many ways as files are broken
    except (Exception, SystemExit) as error:  # noqa: BLE001
        if getattr(error, "errno", None) == ENOMEM:
            return "limit", b"memory_bytes"
        refusal_error = input_error(
            UNNAMED,
            _READABLE_RULE,
            _READABLE_REMEDY,
            shown_value(f"{type(error).__name__}: {error}"),
        )
    return "refused", str(refusal_error).encode("utf-8", "backslashreplace")


_DOCUMENT_ADAPTER = TypeAdapter(DocumentBlocks)


def _document(content: bytes) -> DocumentBlocks | None:
    """Document of its JSON, which is checked: what a file made of a worker is not known."""
    with suppress(ValueError, RecursionError, TypeError):
        document = _DOCUMENT_ADAPTER.validate_json(content, strict=True)
        if all(0 <= block.level <= 6 and block.page > 0 for block in document.blocks):
            return document
    return None
