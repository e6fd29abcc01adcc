"""PDFs that were altered: pages, or one line, and within seconds.

Each in a process of its own that is ended.
"""

from __future__ import annotations

import json
import time
from functools import partial

import pytest

from document_samples import document as read
from fuzz.forks import forked
from fuzz.mutation import mutated_bytes, pick
from fuzz.outcomes import CASES, Trial, fuzz, report
from pdf_samples import (
    CATALOG,
    FONT,
    GOOD,
    PACKED,
    SLOW,
    TEXT,
    TWICE,
    deflated,
    pdf_of,
    stream,
    with_content,
)
from raglab.store.files import InputError
from raglab.store.pdf import PDF_LIMITS
from raglab.store.workers import DocumentWorker

LABELS = (
    b"<< /Type /Catalog /Pages 2 0 R /PageLabels << /Nums [0 << /S /r >> 1 << /S /D /P (a) >>] >> "
    b">>"
)
SAMPLES = {
    "plain": GOOD,
    "packed": with_content(stream(deflated(TEXT * 3), PACKED)),
    "packed twice": with_content(stream(deflated(TEXT, 2), TWICE)),
    "three pages": with_content(stream(TEXT), pages=3),
    "labels": with_content(stream(TEXT), pages=2).replace(CATALOG, LABELS),
    "a font of its own": with_content(
        stream(TEXT),
        o3=b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode 5 0 R >>",
        o5=stream(b"/CIDInit begincmap 1 beginbfrange <00> <ff> <0041> endbfrange endcmap"),
    ),
}
NAMES = (
    b"/Type",
    b"/Pages",
    b"/Page",
    b"/Kids",
    b"/Count",
    b"/Parent",
    b"/Contents",
    b"/Length",
    b"/Filter",
    b"/Font",
    b"/Size",
    b"/Root",
    b"/Prev",
    b"/FlateDecode",
    b"/LZWDecode",
    b"/RunLengthDecode",
    b"/ASCII85Decode",
    b"/DCTDecode",
    b"/Encrypt",
    b"/XRefStm",
    b"/ObjStm",
    b"/ToUnicode",
    b"/Differences",
    b"/PageLabels",
    b"/Nums",
    b"/Names",
    b"/W",
    b"/DecodeParms",
)
OPERANDS = (
    b"0",
    b"-1",
    b"1",
    b"2 0 R",
    b"4 0 R",
    b"10 0 R",
    b"99999 0 R",
    b"2147483648",
    b"9" * 40,
    b"1e9",
    b"null",
    b"true",
    b"[",
    b"]",
    b"<<",
    b">>",
    b"(",
    b"<ff",
    b"[2 0 R 2 0 R]",
    b"<< /A 1 0 R >>",
    b"endobj",
    b"stream",
    b"%%EOF",
)


def mutated_pdf(rng):
    """A PDF with names, numbers, references, content or bytes changed."""
    raw = SAMPLES[str(pick(rng, sorted(SAMPLES)))]
    kind = rng.random()
    if kind < 0.25:
        return mutated_bytes(rng, raw)
    if kind < 0.4:  # content of a page, whole as a PDF
        return with_content(stream(deflated(mutated_bytes(rng, TEXT * 4)), PACKED))
    if kind < 0.5:
        objects = {
            1: CATALOG,
            2: b"<< /Type /Pages /Kids [10 0 R] /Count 1 >>",
            3: FONT,
            4: stream(TEXT),
        }
        objects[10] = b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R >>"
        objects[int(pick(rng, (1, 2, 3, 4, 10)))] = mutated_bytes(
            rng, objects[int(pick(rng, (1, 2, 3, 4, 10)))]
        )
        return pdf_of(objects)
    out = raw
    for _ in range(int(rng.integers(1, 4))):
        parts = out.split(b" ")
        at = int(rng.integers(len(parts)))
        parts[at] = pick(
            rng, (pick(rng, NAMES), pick(rng, OPERANDS), parts[int(rng.integers(len(parts)))])
        )
        out = b" ".join(parts)
    return out


def pdf(raw, limits=PDF_LIMITS):
    """A PDF as it is read."""
    return read("PDF", raw, "a.pdf", limits)


def check(document):
    """What is wrong with pages: not in their order, not Unicode."""
    numbers = [block.page for block in document.blocks]
    if numbers != sorted(numbers):
        return "pages out of order"
    json.dumps([block.text for block in document.blocks], ensure_ascii=False).encode()
    return ""


def test_an_altered_pdf_is_read_or_told(monkeypatch):
    """Its pages, or one line; a tenth of the cases, each in a fork."""
    monkeypatch.setattr(DocumentWorker, "answer", forked)
    limits = PDF_LIMITS._replace(seconds=4)

    def draw(rng):
        raw = mutated_pdf(rng)
        return Trial(f"{len(raw)} bytes: {raw[:400]!r}", partial(pdf, raw, limits), check)

    failures = fuzz("PDF", draw, None, -(-CASES // 10))
    assert not failures, report(failures)


def test_the_fork_reads_what_the_worker_reads(monkeypatch):
    """The samples, and one that takes too long, by both."""
    real = {name: pdf(raw) for name, raw in SAMPLES.items() if name in {"labels", "packed"}}
    monkeypatch.setattr(DocumentWorker, "answer", forked)
    for name, raw in SAMPLES.items():
        document = pdf(raw)
        assert document == real.get(name, document)
        assert not check(document)
    start = time.monotonic()
    with pytest.raises(InputError, match="seconds"):
        pdf(SLOW, PDF_LIMITS._replace(seconds=1))
    assert time.monotonic() - start < 10


def test_a_whole_worker_for_some(tmp_path):
    """A two-hundredth of the cases go to a worker that is started for each."""
    del tmp_path

    def draw(rng):
        raw = mutated_pdf(rng)
        return Trial(f"{len(raw)} bytes: {raw[:400]!r}", partial(pdf, raw), check)

    failures = fuzz("PDF: workers", draw, None, -(-CASES // 200))
    assert not failures, report(failures)
