"""Documents of tests, read without the cache."""

from __future__ import annotations

import atexit
import json

from raglab.policy import PolicyData
from raglab.store.document_reading import DOCUMENT_LIMITS, BlockReader
from raglab.store.encodings import decode_text, page_encoding
from raglab.store.files import Where

READER = BlockReader(is_cached=False)
atexit.register(READER.__exit__)


def document(name, raw, file="a.x", limits=DOCUMENT_LIMITS):
    """A document as the reader of its format gives it; one worker reads those of all tests."""
    content = raw.encode() if isinstance(raw, str) else raw
    return READER.blocks(name, content, file, limits)


def texts(name, raw):
    """Kind, level and text of the blocks of a document."""
    return [(block.kind, block.level, block.text) for block in document(name, raw).blocks]


def word_document():
    """An empty Word document without styles of tables, which are most of one and slow to read."""
    from docx import Document
    from docx.enum.style import WD_STYLE_TYPE

    made = Document()
    for style in list(made.styles):
        if style.type == WD_STYLE_TYPE.TABLE:
            style.delete()
    return made


def decode_page(raw, notes=None):
    """Text of a page of HTML, in the encoding that it states."""
    encoding = page_encoding(raw, [] if notes is None else notes)
    return decode_text(raw, Where("a.html", 1), encoding)


def write_file(path, content):
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


ANSWERS = PolicyData.from_mapping(
    {"confidence": {"enabled": False}, "similarity": {"min_similarity": 0.5}}
)
TEXTS = {
    "readme.md": "# Start\nThis folder holds the policies.",
    "home/readme.md": "# Home\nThe home excess is £250.",
    "motor/readme.md": "# Motor\nThe motor excess is £400.",
    "motor/fleet/faq.md": "# Fleet\nEvery fleet driver is insured from 25.",
}
FIRST_HIT = ANSWERS.replace(
    "chosen.final_k", 1, "l2.enabled", False, "gap.enabled", False, "similarity.enabled", False
)


def same_names(folder):
    """Fill a folder with four documents, three of the same name, and cases beside them."""
    for path, text in TEXTS.items():
        write_file(folder / "documents" / path, f"{text}\n")
    rows = [
        ("home", "What is the home excess?", ["home/readme.md"]),
        ("motor", "What is the motor excess?", ["motor/readme.md#1"]),
        ("fleet", "Who is a fleet driver?", ["faq.md"]),
        ("start", "What does the folder hold?", ["readme.md"]),
        ("wrong", "What is the home excess now?", ["readme.md"]),
    ]
    cases = [
        {"id": name, "query": query, "expect_status": "ok", "expect_sources": to}
        for name, query, to in rows
    ]
    write_file(folder / "cases.jsonl", "".join(f"{json.dumps(case)}\n" for case in cases))
    return folder
