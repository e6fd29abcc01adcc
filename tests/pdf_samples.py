"""PDFs, written by a library and by hand."""

from __future__ import annotations

import zlib
from io import BytesIO

from pypdf import PdfWriter
from pypdf.constants import PageLabelStyle
from pypdf.generic import DictionaryObject, NameObject, StreamObject

TEXT = b"BT /F1 12 Tf 20 200 Td (x) Tj ET\n"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
ROOM = b"/MediaBox [0 0 300 300] /Resources << /Font << /F1 3 0 R >> >>"


def pdf_of(objects):
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


def stream(data, more=b""):
    """Stream object."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), more, data)


def with_content(content, pages=1, **more):
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
    return pdf_of(objects | {int(name[1:]): body for name, body in more.items()})


def deflated(data, times=1):
    """Data packed several times over."""
    for _ in range(times):
        data = zlib.compress(data, 9)
    return data


PACKED = b"/Filter /FlateDecode"
TWICE = b"/Filter [/FlateDecode /FlateDecode]"
GOOD = with_content(stream(TEXT))
SLOW = with_content(stream(deflated(b"q 1 0 0 1 0 0 cm " * 500_000 + TEXT), PACKED))  # 20 kB


def pdf_bytes(*texts, labelled=False, locked=False):
    """PDF with one line of text a page; an empty text makes an empty page."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject(f"/{k}"): NameObject(f"/{v}")
            for k, v in (("Type", "Font"), ("Subtype", "Type1"), ("BaseFont", "Helvetica"))
        }
    )
    for text in texts:
        page = writer.add_blank_page(width=300, height=300)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): writer._add_object(font)})}
        )
        stream = StreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode() if text else b"")
        page[NameObject("/Contents")] = writer._add_object(stream)
    if labelled:
        writer.set_page_label(0, 0, style=PageLabelStyle.LOWERCASE_ROMAN)
        writer.set_page_label(1, len(texts) - 1, style=PageLabelStyle.DECIMAL)
    if locked:
        writer.encrypt("p", algorithm="RC4-128")
    target = BytesIO()
    writer.write(target)
    return target.getvalue()
