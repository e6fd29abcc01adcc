"""PDF (shore): what a document may cost to read, and the pages of a PDF by pypdf as blocks."""

from __future__ import annotations

from io import BytesIO
from typing import NamedTuple

from raglab.store.blocks import DocumentBlocks, Page, text_blocks
from raglab.store.files import UNNAMED, InputError, Place, input_error

_MIB = 2**20
_PAGES_SHOWN = 20


class PdfLimits(NamedTuple):
    """What one PDF may have and cost at most.

    pages, objects: of the file. seconds: of computing for each MiB that the file has, the last one
    begun counts whole. characters: of text on all pages. memory_bytes: of the process that reads
    it.
    """

    pages: int = 10_000
    objects: int = 1_000_000
    seconds: float = 8.0
    characters: int = 16 * _MIB
    memory_bytes: int = 2**31


PDF_LIMITS = PdfLimits()


def pdf_blocks(raw_bytes: bytes, limits: PdfLimits) -> DocumentBlocks:
    """Paragraphs of the pages of a PDF, with labels where it states some; bookmarks are not read.

    Args:
      raw_bytes: content of the file.
      limits: of its pages and objects; who starts the process sees to the others.

    Raises:
      InputError: the PDF opens with a password alone, or passes a limit.
    """
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(raw_bytes))
    # Many files may be opened by anyone, and have a password only against changes.
    if reader.is_encrypted and not reader.decrypt(""):
        raise input_error(
            UNNAMED,
            "a PDF must open without a password",
            "save it without one",
            "an encrypted one",
        )
    n_objects = sum(map(len, reader.xref.values())) + len(reader.xref_objStm)
    if n_objects > limits.objects:
        raise over_limit(UNNAMED, limits, "objects", n_objects)
    if len(reader.pages) > limits.pages:
        raise over_limit(UNNAMED, limits, "pages", len(reader.pages))
    page_labels = reader.page_labels if "/PageLabels" in reader.root_object else [""] * limits.pages
    numbered_pages = enumerate(zip(reader.pages, page_labels, strict=False), 1)
    pages = [
        Page(page_number, page_label or None, page.extract_text())
        for page_number, (page, page_label) in numbered_pages
    ]
    blank_pages = [str(page.number) for page in pages if not page.text.strip()]
    shown_pages = ", ".join(blank_pages[:_PAGES_SHOWN]) + ", …" * (len(blank_pages) > _PAGES_SHOWN)
    blank_note = (
        f"{len(blank_pages)} of {len(pages)} pages have no text ({shown_pages}); scanned ones need "
        "OCR, or stand as .png or .jpg files"
    )
    return DocumentBlocks("", text_blocks(pages), notes=(blank_note,) if blank_pages else ())


def over_limit(
    location: Place, limits: PdfLimits, limit_name: str, measured_value: int | None = None
) -> InputError:
    """A limit that a document has passed, and how to raise it."""
    limit_rule = (
        f"a document must take at most {getattr(limits, limit_name):.15g} "
        f"{limit_name.replace('_', ' ')}"
    )
    limit_rule += " for each MiB" if limit_name == "seconds" else ""
    return input_error(
        location,
        limit_rule,
        "split it, or save it as .txt; for a PDF, raise "
        f"{limit_name} in load_corpus(…, pdf=PdfLimits({limit_name}=…))",
        "more" if measured_value is None else str(measured_value),
    )
