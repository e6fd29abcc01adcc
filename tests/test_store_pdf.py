"""PDFs: what hostile ones cost, and what the process that reads them is believed."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfWriter

from raglab.store import workers
from raglab.store.files import InputError
from raglab.store.loaders import load_corpus
from raglab.store.pdf import PDF_LIMITS, PdfLimits, pdf_blocks, pdf_pages
from test_store_documents import pdf_bytes

TEXT = b"BT /F1 12 Tf 20 200 Td (x) Tj ET\n"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
ROOM = b"/MediaBox [0 0 300 300] /Resources << /Font << /F1 3 0 R >> >>"


def document(objects: dict[int, bytes]) -> bytes:
    """PDF of numbered objects; 1 is its root."""
    out, places = b"%PDF-1.7\n", {}
    for number, body in sorted(objects.items()):
        places[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start, size = len(out), max(objects) + 1
    rows = [
        b"%010d 00000 n \n" % places[n] if n in places else b"0000000000 65535 f \n"
        for n in range(size)
    ]
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (size, start)
    return out + b"xref\n0 %d\n" % size + b"".join(rows) + end


def stream(data: bytes, more: bytes = b"") -> bytes:
    """Stream object."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), more, data)


def with_content(content: bytes, pages: int = 1, **more: bytes) -> bytes:
    """PDF whose pages all show one content; `o5` and the like are further objects."""
    kids = b" ".join(b"%d 0 R" % (10 + n) for n in range(pages))
    objects = {
        1: CATALOG,
        2: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, pages),
        3: FONT,
        4: content,
    }
    page = b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R %s >>" % ROOM
    objects |= dict.fromkeys(range(10, 10 + pages), page)
    return document(objects | {int(name[1:]): body for name, body in more.items()})


def refusal(raw: bytes, limits: PdfLimits = PDF_LIMITS) -> str:
    """Message with which a PDF is refused."""
    with pytest.raises(InputError) as caught:
        pdf_pages(raw, "a.pdf", limits)
    message = str(caught.value)
    assert message.startswith("a.pdf: ")
    assert "\n" not in message
    return message


def test_a_page_is_read() -> None:
    """The PDF that the hostile ones are made from is a good one."""
    (page,) = pdf_pages(with_content(stream(TEXT)), "a.pdf", PDF_LIMITS)
    assert page == (1, None, "x")


def deflated(data: bytes, times: int = 1) -> bytes:
    """Data packed several times over."""
    for _ in range(times):
        data = zlib.compress(data, 9)
    return data


PACKED = b"/Filter /FlateDecode"
TWICE = b"/Filter [/FlateDecode /FlateDecode]"
TREE = {
    n: b"<< /Type /Pages /Kids [%d 0 R %d 0 R] /Count 9 >>" % (n + 1, n + 1) for n in range(2, 30)
}
LEAF = b"<< /Type /Page /MediaBox [0 0 9 9] >>"
GOOD = with_content(stream(TEXT))
HOSTILE = {
    "a flate bomb": with_content(stream(deflated(bytes(100_000_000)), PACKED)),
    "a bomb in a bomb": with_content(stream(deflated(bytes(100_000_000), 2), TWICE)),
    "runs of one byte": with_content(
        stream(deflated(b"\x81x" * 900_000), b"/Filter [/FlateDecode /RunLengthDecode]")
    ),
    "codes of LZW": with_content(
        stream(deflated(bytes(100_000)), b"/Filter [/FlateDecode /LZWDecode]")
    ),
    "a page tree that is its own child": document(
        {1: CATALOG, 2: b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 4 >>"}
    ),
    "a page tree of 2**28 leaves": document({1: CATALOG, **TREE, 30: LEAF}),
    "a count of two billion": document(
        {1: CATALOG, 2: b"<< /Type /Pages /Kids [10 0 R] /Count 2000000000 >>", 10: LEAF}
    ),
    "deep nesting": with_content(stream(b"[" * 100_000 + b"]" * 100_000 + b" TJ")),
    "a cross-reference table of 10**9": GOOD.replace(b"xref\n0 11\n", b"xref\n0 1000000000\n"),
    "filters without end": with_content(
        stream(deflated(TEXT), b"/Filter [" + b"/FlateDecode " * 20_000 + b"]")
    ),
    "a length that is itself": with_content(b"<< /Length 4 0 R >>\nstream\nx\nendstream"),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_pdf_is_refused(raw: bytes) -> None:
    """However it asks for time or memory, it gets one line, and within what a PDF may cost."""
    refusal(raw)


def test_a_table_that_comes_before_itself_ends() -> None:
    """`/Prev` that points at its own table is read once."""
    at = int(GOOD[GOOD.rindex(b"startxref") + 9 :].split()[0])
    looped = GOOD.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev %d" % at)
    assert [page.text for page in pdf_pages(looped, "a.pdf", PDF_LIMITS)] == ["x"]


SLOW = with_content(stream(deflated(b"q 1 0 0 1 0 0 cm " * 500_000 + TEXT), PACKED))  # 20 kB


def test_a_slow_pdf_is_ended_at_its_seconds() -> None:
    """20 kB that take many seconds of computing are given one.

    The message says so and how to give more.
    """
    before = time.monotonic()
    message = refusal(SLOW, PdfLimits(seconds=1))
    assert "must be read within 1 s for each MiB" in message
    assert "PdfLimits(seconds=…)" in message
    # a second of computing, four of waiting, the start, and some
    assert time.monotonic() - before < 1 + 4 * 1 + 5 + 5


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (PdfLimits(pages=2), "must have at most 2 pages, got 3"),
        (PdfLimits(objects=6), "must have at most 6 objects, got 7"),
        (PdfLimits(characters=2), "text must be at most 2 characters, got 3"),
    ],
)
def test_each_limit_is_named(limits: PdfLimits, rule: str) -> None:
    """Three pages, seven objects, three characters.

    One more than allowed is refused, as many as allowed are read.
    """
    raw = with_content(stream(TEXT), pages=3)
    message = refusal(raw, limits)
    assert rule in message
    (name,) = (
        name for name in limits._fields if getattr(limits, name) != getattr(PDF_LIMITS, name)
    )
    assert f"raise {name} in load_corpus(…, pdf=PdfLimits({name}=…))" in message
    assert len(pdf_pages(raw, "a.pdf", PdfLimits(pages=3, objects=7, characters=3))) == 3


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems may not bound a process's memory"
)
def test_memory_is_bounded() -> None:
    """70 MB of content do not fit where only 128 MiB may be taken."""
    raw = with_content(stream(deflated(b" " * 70_000_000 + TEXT), PACKED))
    assert "at most 134217728 bytes of memory" in refusal(raw, PdfLimits(memory_bytes=2**27))


def test_the_limits_of_a_corpus_are_those_of_its_pdfs(tmp_path: Path) -> None:
    """`load_corpus` hands them on."""
    (tmp_path / "a.pdf").write_bytes(with_content(stream(TEXT), pages=3))
    assert len(load_corpus(tmp_path).chunks) == 3
    with pytest.raises(InputError, match=r"a\.pdf: a PDF must have at most 2 pages"):
        load_corpus(tmp_path, pdf=PdfLimits(pages=2))


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the worker, as one is that a PDF has taken over."""
    monkeypatch.setattr(workers, "_WORKER", tmp_path / "worker.py")
    return tmp_path / "worker.py"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "7",
        "[" * 10_000,
        "\x80\x04K\x01.",  # a pickle
        '{"pages": 7}',
        '{"pages": [7]}',
        '{"pages": [[1, "x"]]}',
        '{"pages": [[null, "x", "y"]]}',
        json.dumps({"pages": [[None, "\ud800"]]}),
        '{"limit": "no such"}',
        '{"limit": ["pages"], "came": {}}',
        '{"unreadable": ["x", "\\u001b[2J\\n"]}',
        '{"pages": []}',
    ],
)
def test_a_worker_is_believed_no_more_than_a_file(worker: Path, said: str) -> None:
    """Whatever it prints is checked.

    One line says what is wrong, and no escape sequence comes through.
    """
    worker.write_text(f"import sys; sys.stdout.buffer.write({said.encode('latin-1')!r})")
    message = refusal(b"%PDF")
    assert message.isprintable()


def test_a_worker_may_not_fill_the_memory(worker: Path) -> None:
    """What it prints is read up to the limit of the text."""
    worker.write_text("import sys\nwhile True: sys.stdout.write('x' * 10**6)")
    assert "text must be at most 1000 characters" in refusal(b"%PDF", PdfLimits(characters=1000))


def test_a_worker_knows_no_key(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment it has what it needs to start."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    code = "import json, os; print(json.dumps({'pages': [[None, ' '.join(os.environ)]]}))"
    worker.write_text(code)
    (page,) = pdf_pages(b"%PDF", "a.pdf", PDF_LIMITS)
    assert "PYTHONPATH" in page.text
    assert "OPENAI_API_KEY" not in page.text


def test_no_worker_outlives_its_pdf(worker: Path, tmp_path: Path) -> None:
    """One that has answered and stays is ended."""
    code = f"""
import os, pathlib, sys, time
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
os.write(1, b'{{"pages": [[null, "x"]]}}')
os.close(1)
time.sleep(600)
"""
    worker.write_text(code)
    assert pdf_pages(b"%PDF", "a.pdf", PDF_LIMITS)[0].text == "x"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def encrypted(*texts: str, user: str = "", algorithm: str = "AES-256") -> bytes:
    """PDF that an owner's password protects, and a user's where it is not empty."""
    writer = PdfWriter(BytesIO(with_content(stream(TEXT), pages=len(texts))))
    writer.encrypt(user, "owner", algorithm=algorithm)
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-128", "AES-256"])
def test_a_pdf_with_an_owners_password_opens_without_it(algorithm: str) -> None:
    """As it does for every reader; one with a user's password is refused."""
    pages = pdf_pages(encrypted("x", "x", algorithm=algorithm), "a.pdf", PDF_LIMITS)
    assert [page.text for page in pages] == ["x", "x"]
    message = refusal(encrypted("x", user="secret", algorithm=algorithm))
    assert (
        "a PDF must open without a password, got an encrypted one; save it without one" in message
    )


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["x", *[""] * 9], r"9 of 10 pages have no text \(2-10\)"),
        (["", "x", "x"], r"1 of 3 pages have no text \(1\)"),
        (["x", "", "x", "", "", "x", "x", ""], r"4 of 8 pages have no text \(2, 4-5, 8\)"),
        (["x", ""] * 12, r"\(2, 4, 6, 8, 10, 12, 14, 16, 18, 20 and 2 more ranges\)"),
    ],
)
def test_pages_without_text_are_named(texts: list[str], named: str) -> None:
    """With a count, in a warning; the others are read."""
    with pytest.warns(UserWarning, match=rf"^a\.pdf: .*{named}"):
        pages = pdf_pages(pdf_bytes(*texts), "a.pdf", PDF_LIMITS)
    assert [page.text for page in pages] == texts


def test_a_pdf_without_any_text_is_refused() -> None:
    """Each page is a picture of a scanner."""
    assert "a PDF must have text, got no text on 3 pages; it needs OCR" in refusal(
        pdf_bytes("", "", "")
    )


def outlined(pages: list[list[str]], bookmarks: list[tuple[str, int, int]]) -> bytes:
    """PDF of pages of lines, with bookmarks: title, page from 0, depth from 1."""
    writer = PdfWriter(BytesIO(pdf_bytes(*(") Tj 0 -20 Td (".join(lines) for lines in pages))))
    above: list[Any] = []
    for title, page, depth in bookmarks:
        above[depth - 1 :] = [
            writer.add_outline_item(
                title=title, page_number=page, parent=above[depth - 2] if depth > 1 else None
            )
        ]
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


PAGES = [
    ["Policy", "Intro text.", "1. Cover", "Glass is covered.", "2. Excess"],
    ["It is 250.", "Claims and", "Appeals", "Write to us."],
]


def test_bookmarks_are_headings(tmp_path: Path) -> None:
    """Where a title is a line of its page: with its number or without, over two lines.

    Sections go on over pages.
    """
    marks = [("Policy", 0, 1), ("Cover", 0, 2), ("2 Excess", 0, 2), ("Claims and Appeals", 1, 1)]
    (tmp_path / "a.pdf").write_bytes(outlined(PAGES, marks))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chunks = load_corpus(tmp_path).chunks
    assert [(chunk.page, chunk.section, chunk.text) for chunk in chunks] == [
        (1, ("Policy",), "Intro text."),
        (1, ("Policy", "Cover"), "Glass is covered."),
        (2, ("Policy", "2 Excess"), "It is 250."),
        (2, ("Claims and Appeals",), "Write to us."),
    ]


@pytest.mark.parametrize(
    ("marks", "count"),
    [
        ([("Scan 1", 0, 1), ("Scan 2", 1, 1)], "2 of 2"),
        ([("Cover", 1, 1), ("Excess", 0, 1)], "1 of 2"),
        ([("Excess", 0, 1), ("Cover", 0, 1)], "1 of 2"),
        ([("12", 0, 1)], "1 of 1"),
    ],
)
def test_bookmarks_that_are_no_lines_are_counted(
    marks: list[tuple[str, int, int]], count: str
) -> None:
    """Of another page, in another order, of scans, of numbers alone.

    No word of the text is lost.
    """
    with pytest.warns(
        UserWarning, match=f"a.pdf: {count} bookmarks do not stand in the text of their pages"
    ):
        blocks = pdf_blocks(outlined(PAGES, marks), "a.pdf", PDF_LIMITS)
    words = [word.strip("0123456789. ") for block in blocks for word in block.text.split()]
    wanted = [
        word.strip("0123456789. ") for page in PAGES for line in page for word in line.split()
    ]
    assert list(filter(None, words)) == list(filter(None, wanted))


def test_a_broken_outline_costs_no_page() -> None:
    """One that comes back to itself, one of nonsense; the text is read all the same."""
    for item in (
        b"<< /Title (x) /Next 5 0 R /Dest [10 0 R /Fit] >>",
        b"<< /First 5 0 R >>",
        b"[ ]",
        b"7",
    ):
        root = b"<< /Type /Catalog /Pages 2 0 R /Outlines 5 0 R >>"
        raw = with_content(stream(TEXT), o1=root, o5=b"<< /First 6 0 R /Last 6 0 R >>", o6=item)
        assert [block.text for block in pdf_blocks(raw, "a.pdf", PDF_LIMITS) if block.text] == ["x"]
