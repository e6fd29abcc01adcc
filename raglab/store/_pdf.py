"""PDF documents, page by page; the one module that knows pypdf."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from raglab.store._errors import InputError, Where, input_error, shown
from raglab.store._files import read_bytes
from raglab.store._passages import Page


def pdf_pages(path: Path, max_file_bytes: int) -> tuple[Page, ...]:
    """Pages of a PDF with their text; labels where the PDF states some, else None.

    Raises:
      InputError: the PDF cannot be read, is encrypted, or has no text on any page.
    """
    raw = read_bytes(path, max_file_bytes)
    where = Where(str(path))
    try:
        pages = _pages(raw, where)
    except InputError:
        raise
    except Exception as error:  # pypdf raises KeyError, TypeError, RecursionError and more on broken files
        came = shown(f"{type(error).__name__}: {error}")
        raise input_error(where, "a PDF must be readable", "open and save it anew, or give its text", came) from error
    if not any(page.text.strip() for page in pages):
        came = f"no text on {len(pages)} pages"
        raise input_error(where, "a PDF must have text", "it needs OCR: run one and give the result", came)
    return pages


def _pages(raw: bytes, where: Where) -> tuple[Page, ...]:
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(raw))
    if reader.is_encrypted:
        raise input_error(where, "a PDF must not be encrypted", "save it without a password", "an encrypted one")
    labelled = "/PageLabels" in reader.root_object
    labels = reader.page_labels if labelled else [None] * len(reader.pages)
    pages = []
    for number, (page, label) in enumerate(zip(reader.pages, labels, strict=True), 1):
        text = page.extract_text().replace("\r\n", "\n").replace("\r", "\n")
        if not _is_unicode(text):
            came = f"half a surrogate pair on page {number}"
            raise input_error(where, "a PDF's text must be Unicode", "give its text as a .txt file", came)
        pages.append(Page(number, label or None, text))
    return tuple(pages)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
