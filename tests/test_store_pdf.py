"""PDFs: what hostile ones cost, and what the process that reads them is believed."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from io import BytesIO

import pytest
from pypdf import PdfWriter

import document_samples
from document_samples import document as read
from pdf_samples import (
    CATALOG,
    GOOD,
    PACKED,
    SLOW,
    TEXT,
    TWICE,
    deflated,
    pdf_bytes,
    pdf_of,
    stream,
    with_content,
)
from raglab.store import workers
from raglab.store.blocks import Block
from raglab.store.document_reading import BlockReader
from raglab.store.files import InputError
from raglab.store.loaders import load_corpus
from raglab.store.pdf import PDF_LIMITS, PdfLimits


def pages(raw, limits=PDF_LIMITS):
    """Texts of the pages of a PDF that have one."""
    return [block.text for block in read("PDF", raw, "a.pdf", limits).blocks]


def refusal(raw, limits=PDF_LIMITS):
    """Message with which a PDF is refused."""
    with pytest.raises(InputError) as caught:
        read("PDF", raw, "a.pdf", limits)
    message = str(caught.value)
    assert message.startswith("a.pdf")
    assert "\n" not in message
    return message


def test_a_page_is_read():
    """The PDF that the hostile ones are made from is a good one."""
    assert read("PDF", with_content(stream(TEXT))).blocks == (Block("text", "x"),)


TREE = {
    n: b"<< /Type /Pages /Kids [%d 0 R %d 0 R] /Count 9 >>" % (n + 1, n + 1) for n in range(2, 30)
}
LEAF = b"<< /Type /Page /MediaBox [0 0 9 9] >>"
HOSTILE = {
    "a flate bomb": with_content(stream(deflated(bytes(40_000_000)), PACKED)),
    "a bomb in a bomb": with_content(stream(deflated(bytes(40_000_000), 2), TWICE)),
    "runs of one byte": with_content(
        stream(deflated(b"\x81x" * 900_000), b"/Filter [/FlateDecode /RunLengthDecode]")
    ),
    "codes of LZW": with_content(
        stream(deflated(bytes(100_000)), b"/Filter [/FlateDecode /LZWDecode]")
    ),
    "a page tree that is its own child": pdf_of(
        {1: CATALOG, 2: b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 4 >>"}
    ),
    "a page tree of 2**28 leaves": pdf_of({1: CATALOG, **TREE, 30: LEAF}),
    "a count of two billion": pdf_of(
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
def test_a_hostile_pdf_is_refused(raw):
    """However it asks for time or memory: one line, or no text, within what a PDF may cost."""
    with suppress(InputError):
        assert pages(raw) == []


def test_a_table_that_comes_before_itself_ends():
    """`/Prev` that points at its own table is read once."""
    at = int(GOOD[GOOD.rindex(b"startxref") + 9 :].split()[0])
    looped = GOOD.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev %d" % at)
    assert pages(looped) == ["x"]


def test_a_slow_pdf_is_ended_at_its_seconds():
    """20 kB that take many seconds of computing are given one.

    The message says so and how to give more.
    """
    before = time.monotonic()
    message = refusal(SLOW, PdfLimits(seconds=1))
    assert "at most 1 seconds for each MiB" in message
    assert "PdfLimits(seconds=…)" in message
    # a second of computing, eight of waiting, the start
    assert time.monotonic() - before < 1 + 8 * 1 + 30


def test_after_a_document_that_was_ended_the_next_is_read():
    """By a new process; and one that a used process cannot read is given to a fresh one."""
    limits = PdfLimits(seconds=1)
    with BlockReader(is_cached=False) as reader:
        assert reader.blocks("PDF", GOOD, "a.pdf").blocks[0].text == "x"
        with pytest.raises(InputError, match="seconds"):
            reader.blocks("PDF", SLOW, "b.pdf", limits)
        assert reader.blocks("PDF", GOOD, "c.pdf").blocks[0].text == "x"
        first = reader._worker._process
        reader.blocks("PDF", GOOD, "d.pdf")
        assert reader._worker._process is first is not None
        first.kill()
        assert reader.blocks("PDF", GOOD, "e.pdf").blocks[0].text == "x"
    assert reader._worker._process is None


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (PdfLimits(pages=2), "at most 2 pages, got 3"),
        (PdfLimits(objects=6), "at most 6 objects, got 7"),
        (PdfLimits(characters=2), "at most 2 characters, got more"),
    ],
)
def test_each_limit_is_named(limits, rule):
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
    assert len(pages(raw, PdfLimits(pages=3, objects=7, characters=3))) == 3


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems may not bound a process's memory"
)
def test_memory_is_bounded():
    """70 MB of content do not fit where only 128 MiB may be taken."""
    raw = with_content(stream(deflated(b" " * 70_000_000 + TEXT), PACKED))
    assert "at most 134217728 memory bytes" in refusal(raw, PdfLimits(memory_bytes=2**27))


def test_the_limits_of_a_corpus_are_those_of_its_pdfs(tmp_path):
    """`load_corpus` hands them on."""
    (tmp_path / "a.pdf").write_bytes(with_content(stream(TEXT), pages=3))
    assert len(load_corpus(tmp_path).chunks) == 3
    with pytest.raises(InputError, match=r"a\.pdf: .*at most 2 pages"):
        load_corpus(tmp_path, pdf=PdfLimits(pages=2))


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A stand-in for the worker, as one is that a PDF has taken over."""
    monkeypatch.setattr(workers, "_WORKER_SCRIPT", tmp_path / "worker.py")
    with BlockReader(is_cached=False) as reader:
        monkeypatch.setattr(document_samples, "READER", reader)
        yield tmp_path / "worker.py"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "7",
        "document",
        "document " + "[" * 10_000,
        "document \x80\x04K\x01.",  # a pickle
        'document {"pages": 7}',
        'document ["", [["text", "x", 0, 0, null]], {}, [], []]',
        'document ["", [["text", "x", 9, 1, null]], {}, [], []]',
        'document ["", [["script", "x", 0, 1, null]], {}, [], []]',
        'document ["", [["text", 7, 0, 1, null]], {}, [], []]',
        'document ["", [["text", "\\ud800", 0, 1, null]], {}, [], []]',
        'document ["", [], {"a": 1}, [], []]',
        "limit none",
        "limit _fields",
        "unreadable \x1b[2J",
        "refused \x1b[2J",
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_worker_is_believed_no_more_than_a_file(worker, answer, end):
    """Whatever it prints is checked.

    One line says what is wrong, and no escape sequence comes through.
    """
    content = (answer + end).encode("latin-1")
    worker.write_text(f"import sys; sys.stdout.buffer.write({content!r})")
    assert refusal(b"%PDF").isprintable()


def test_a_worker_may_not_fill_the_memory(worker):
    """What it prints is read up to the limit of the text."""
    worker.write_text("import sys\nwhile True: sys.stdout.write('x' * 10**6)")
    assert "at most 1000 characters" in refusal(b"%PDF", PdfLimits(characters=1000))


def test_a_worker_that_takes_nothing_is_not_waited_for_without_end(worker, monkeypatch):
    """Neither while it is written to, nor while it sleeps."""
    monkeypatch.setattr(workers, "_START_S", 0.5)
    worker.write_text("import time; time.sleep(600)")
    assert "seconds" in refusal(b"%PDF" * 10**5, PdfLimits(seconds=0.1))


def answering(worker, text, more=""):
    """Let the worker answer with a document of a text, an expression of its code."""
    document = f'["", [["text", {text}, 0, 1, None]], {{}}, [], []]'
    worker.write_text(
        f"import json, os, sys, time\nprint('document', json.dumps({document}), flush=True)\n{more}"
    )


def test_a_worker_knows_no_key(worker, monkeypatch):
    """Of the environment it has what it needs to start."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    answering(worker, "' '.join(os.environ)")
    (page,) = pages(b"%PDF")
    assert "PYTHONPATH" in page
    assert "OPENAI_API_KEY" not in page


def test_no_worker_outlives_its_reader(worker):
    """One that has answered and stays is ended."""
    answering(worker, "str(os.getpid())", "time.sleep(600)")
    with BlockReader(is_cached=False) as reader:
        (process,) = (block.text for block in reader.blocks("PDF", b"%PDF", "a.pdf").blocks)
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


def encrypted(*texts, user="", algorithm="AES-256"):
    """PDF that an owner's password protects, and a user's where it is not empty."""
    writer = PdfWriter(BytesIO(with_content(stream(TEXT), pages=len(texts))))
    writer.encrypt(user, "owner", algorithm=algorithm)
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


@pytest.mark.parametrize("algorithm", ["RC4-40", "AES-256"])
def test_a_pdf_with_an_owners_password_opens_without_it(algorithm):
    """As it does for every reader; one with a user's password is refused."""
    assert pages(encrypted("x", "x", algorithm=algorithm)) == ["x", "x"]
    message = refusal(encrypted("x", user="secret", algorithm=algorithm))
    assert (
        "a PDF must open without a password, got an encrypted one; save it without one" in message
    )


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["x", *[""] * 3], "3 of 4 pages have no text (2, 3, 4)"),
        (["", "x", "x"], "1 of 3 pages have no text (1)"),
        (["x", ""] * 25, ", 38, 40, …)"),
    ],
)
def test_pages_without_text_are_named(texts, named):
    """With a count; the others are read."""
    page = read("PDF", pdf_bytes(*texts))
    assert named in page.notes[0]
    assert [block.text for block in page.blocks] == list(filter(None, texts))


def test_a_pdf_without_any_text_is_refused(tmp_path):
    """Each page is a picture of a scanner."""
    (tmp_path / "a.pdf").write_bytes(pdf_bytes("", "", ""))
    with pytest.raises(InputError, match=r"must have text.* 3 of 3 pages .* OCR"):
        load_corpus(tmp_path)


def test_a_broken_outline_costs_no_page():
    """One that comes back to itself, one of nonsense; the text is read all the same."""
    for item in (
        b"<< /Title (x) /Next 5 0 R /Dest [10 0 R /Fit] >>",
        b"<< /First 5 0 R >>",
        b"[ ]",
        b"7",
    ):
        root = b"<< /Type /Catalog /Pages 2 0 R /Outlines 5 0 R >>"
        raw = with_content(stream(TEXT), o1=root, o5=b"<< /First 6 0 R /Last 6 0 R >>", o6=item)
        assert pages(raw) == ["x"]
