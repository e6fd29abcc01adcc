"""Documents of tests, read without the cache."""

from __future__ import annotations

from raglab.store.document_reading import DOCUMENT_LIMITS, BlockReader
from raglab.store.encodings import decode_text, page_encoding
from raglab.store.files import Where


def document(name, raw, file="a.x", limits=DOCUMENT_LIMITS):
    """A document as the reader of its format gives it."""
    content = raw.encode() if isinstance(raw, str) else raw
    with BlockReader(is_cached=False) as reader:
        return reader.blocks(name, content, file, limits)


def texts(name, raw):
    """Kind, level and text of the blocks of a document."""
    return [(block.kind, block.level, block.text) for block in document(name, raw).blocks]


def decode_page(raw, notes=None):
    """Text of a page of HTML, in the encoding that it states."""
    encoding = page_encoding(raw, [] if notes is None else notes)
    return decode_text(raw, Where("a.html", 1), encoding)
