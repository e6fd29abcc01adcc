"""Document worker (shore): PDF pages by pypdf, other formats' blocks, in a killable process.

`raglab.store.workers` runs this file as a script and reads what it prints, one JSON value; nothing
else imports it. For a PDF it imports nothing of raglab, so that a worker starts as fast as pypdf
does.
"""

from __future__ import annotations

import json
import math
import sys
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pypdf import PdfReader

_MOST_BOOKMARKS = 10_000
_TITLE_LENGTH = 1_000  # characters that are looked at


def _spend_at_most(seconds: float, memory_bytes: int) -> None:
    """Have the system end this process after its seconds, and grant no more memory or files.

    It grants no further process either.

    Where the system has no such limits, the one who waits for this process ends it.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, most in (("AS", memory_bytes), ("FSIZE", 0), ("CORE", 0), ("NPROC", 0)):
        # macOS knows some of them by name alone
        with suppress(AttributeError, OSError, ValueError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    cpu = math.ceil(seconds)
    # at the first the signal that says why, then the end
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))


def _read(raw: bytes, limits: dict[str, Any]) -> dict[str, Any]:
    """What a document holds, by the name of its reader."""
    if "reader" not in limits:
        return _pdf_pages(raw, limits)
    from raglab.store.bounded_readers import blocks_record

    return blocks_record(limits["reader"], raw, limits["file"])


def _pdf_pages(raw: bytes, limits: dict[str, Any]) -> dict[str, Any]:
    """Label and text of each page, or the limit that the file passes."""
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(raw))
    # Many files may be opened by anyone, and have a password only against changes.
    if reader.is_encrypted and not reader.decrypt(""):
        return {"encrypted": True}
    objects = sum(map(len, reader.xref.values())) + len(reader.xref_objStm)
    if objects > limits["objects"]:
        return {"limit": "objects", "came": objects}
    if len(reader.pages) > limits["pages"]:
        return {"limit": "pages", "came": len(reader.pages)}
    labels = (
        reader.page_labels if "/PageLabels" in reader.root_object else [None] * len(reader.pages)
    )
    pages, size = [], 0
    for page, label in zip(reader.pages, labels, strict=True):
        text = page.extract_text().replace("\r\n", "\n").replace("\r", "\n")
        size += len(text) + len(label or "")
        if size > limits["characters"]:
            return {"limit": "characters", "came": size}
        pages.append([label or None, text])
    return {"pages": pages, "bookmarks": _bookmarks(reader)}


def _bookmarks(reader: PdfReader) -> list[tuple[int, str, int]]:
    """Depth, title and page, from 1, of each bookmark in its order; none where they are broken."""
    bookmarks: list[tuple[int, str, int]] = []
    try:
        open_lists: list[Iterator[Any]] = [iter(reader.outline)]
        while open_lists and len(bookmarks) < _MOST_BOOKMARKS:
            entry = next(open_lists[-1], None)
            if entry is None:
                open_lists.pop()
            elif isinstance(entry, list):
                open_lists.append(iter(entry))
            elif (page := reader.get_destination_page_number(entry)) is not None and page >= 0:
                bookmarks.append((len(open_lists), str(entry.title)[:_TITLE_LENGTH], page + 1))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the pages can be read all the same
        return []
    return bookmarks


def _answer(raw: bytes, limits: dict[str, Any]) -> str:
    """JSON of what is read, or of what stood in the way."""
    try:
        return json.dumps(_read(raw, limits))
    except MemoryError:
        return json.dumps({"limit": "memory_bytes"})
    # libraries raise KeyError, TypeError, RecursionError and more on broken files
    except Exception as error:  # noqa: BLE001
        return json.dumps({"unreadable": f"{type(error).__name__}: {error}"[:500]})


def _main() -> None:
    limits = json.loads(sys.argv[1])
    _spend_at_most(limits["seconds"], limits["memory_bytes"])
    sys.stdout.write(_answer(sys.stdin.buffer.read(), limits))


if __name__ == "__main__":
    _main()
