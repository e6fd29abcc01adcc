"""Word, Excel, notebooks and reStructuredText.

Their blocks, what is left out, and hostile or missing ones.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
import time
import zipfile
from contextlib import suppress
from functools import cache
from io import BytesIO
from itertools import chain
from pathlib import Path

import pytest

from document_samples import document as read
from document_samples import texts, word_document
from raglab.store import office
from raglab.store.document_reading import DOCUMENT_LIMITS, answered
from raglab.store.files import InputError
from raglab.store.loaders import load_corpus
from raglab.store.rst import rst_blocks

pytest.importorskip("docx")
openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("mammoth")
pytest.importorskip("docutils")

RST = """\
Guide
=====

.. include:: /etc/passwd

.. raw:: html

   <b>raw</b>

The ``excess`` of *storms*, see :ref:`terms <home-terms>` and :func:`~pkg.price`. |unknown|

.. note:: Take care.

.. versionadded:: 2.0
   A remark.

.. code-block:: python

   print(1)

Storms
------

1. one

   - inner

term
   what it means

===== =====
peril price
===== =====
wind  100
===== =====

.. a comment

.. toctree::
   :maxdepth: 2

   other
"""


@cache
def word_base():
    """A Word document with one paragraph of each kind."""
    document = word_document()
    document.core_properties.title = "Terms"
    document.add_heading("Cover", 1)
    document.add_paragraph("Hail is covered.").add_run(" SECRET").font.hidden = True
    document.add_heading("Storms", 2)
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Number 2")
    table = document.add_table(2, 2)
    for cell, text in zip(table._cells, ("peril", "a|b", "wind", "100"), strict=True):
        cell.text = text
    code = document.styles.add_style("Source Code", 1)
    for line in ("def f():", "    return 1"):
        document.add_paragraph(line, style=code)
    document.add_paragraph("# not a heading")
    return saved(document)


def word_file(**parts):
    """The document of `word_base`; parts replace those of the archive."""
    return changed(word_base(), **parts)


def changed(raw, more=None, **parts):
    """An archive with other or further files, and with the ends of some parts' names changed."""
    target, files = BytesIO(), more or {}
    with (
        zipfile.ZipFile(BytesIO(raw)) as source,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in source.namelist():
            if name not in files:
                stem = Path(name).stem if name.endswith(".xml") else ""
                archive.writestr(name, parts.get(stem, source.read(name)))
        for name, text in files.items():
            archive.writestr(name, text)
    return target.getvalue()


def saved(document):
    """A document of Word or a workbook as a file."""
    raw = BytesIO()
    document.save(raw)
    return raw.getvalue()


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
NAMES = (
    f'xmlns:w="{W}" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:v="urn:schemas-microsoft-com:vml" xmlns:wps="urn:wps" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture"'
)


def word_body(body, *, more=None, w=W):
    """A Word document of the XML of its body, and of further parts."""
    xml = f"<w:document {NAMES}><w:body>{body}</w:body></w:document>"
    files = {"word/document.xml": xml} | (more or {})
    return changed(word_base(), {name: text.replace(W, w) for name, text in files.items()})


def run(text):
    """A paragraph of one run."""
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def workbook(rows, *, hidden=False):
    """A workbook with a sheet of rows, and a second one that is hidden where that is asked for."""
    book = openpyxl.Workbook()
    book.active.title = "Prices 2025"
    for row in rows:
        book.active.append(row)
    if hidden:
        sheet = book.create_sheet("Notes")
        sheet["A1"] = "SECRET"
        sheet.sheet_state = "hidden"
    return saved(book)


def notebook(*cells, language="python"):
    """A notebook of cells."""
    body = [
        {"cell_type": kind, "metadata": {}, "source": source}
        | (
            {
                "outputs": [{"output_type": "stream", "name": "stdout", "text": "OUTPUT"}],
                "execution_count": 1,
            }
            if kind == "code"
            else {}
        )
        for kind, source in cells
    ]
    return json.dumps(
        {
            "nbformat": 4,
            "nbformat_minor": 4,
            "metadata": {"language_info": {"name": language}},
            "cells": body,
        }
    ).encode()


def test_word():
    """Headings by styles, items, tables, code by its style; hidden text is left out."""
    document = read("Word", word_file())
    assert (document.title, document.tags) == ("Terms", {"title": "Terms"})
    assert "1 hidden" in document.notes[0]
    assert [(block.kind, block.level, block.text) for block in document.blocks] == [
        ("heading", 1, "Cover"),
        ("text", 0, "Hail is covered."),
        ("heading", 2, "Storms"),
        ("item", 1, "- one"),
        ("item", 1, "1. two"),
        ("table", 0, "| peril | a\\|b |\n|---|---|\n| wind | 100 |"),
        ("code", 0, "```\ndef f():\n    return 1\n```"),
        ("text", 0, "\\# not a heading"),
    ]


def test_word_headings_of_other_styles_insertions_and_controls():
    """A style of a publisher with an outline level is a heading.

    Inserted words are read, deleted ones are not; a control of a template is read in its place.
    """
    control = f"<w:sdt><w:sdtContent>{run('Within.')}</w:sdtContent></w:sdt>"
    body = (
        '<w:p><w:pPr><w:pStyle w:val="Heading2"/></w:pPr><w:r><w:t>Two</w:t></w:r></w:p>'
        f"<w:sdt><w:sdtContent>{control}</w:sdtContent></w:sdt>"
        '<w:p><w:r><w:t xml:space="preserve">It is </w:t></w:r><w:ins><w:r><w:t>not '
        "</w:t></w:r></w:ins><w:del><w:r>"
        "<w:delText>GONE</w:delText></w:r></w:del><w:r><w:t>covered.</w:t></w:r></w:p>"
    )
    assert texts("Word", word_body(body)) == [
        ("heading", 2, "Two"),
        ("text", 0, "Within."),
        ("text", 0, "It is not covered."),
    ]


def test_excel():
    """A sheet is a table below its name.

    Blank rows and columns go, a day has no midnight, hidden sheets go.
    """
    day = dt.datetime(2025, 3, 1)  # noqa: DTZ001 - cells of Excel have no zone
    raw = workbook(
        [["peril", None, "price", "since"], ["wind", None, 1.5, day], [], ["hail", None, 2, None]],
        hidden=True,
    )
    assert "1 hidden sheets" in read("Excel", raw).notes[0]
    blocks = texts("Excel", raw)
    assert blocks == [
        ("heading", 2, "Prices 2025"),
        (
            "table",
            0,
            (
                "| peril | price | since |\n|---|---|---|\n| wind | 1.5 | 2025-03-01 |\n| hail | "
                "2 |  "
                "|"
            ),
        ),
    ]


HEADS = "| peril | price |\n|---|---|\n"


@pytest.mark.parametrize(
    ("rows", "blocks"),
    [
        (
            [[None, "Prices"], ["# in pounds"], ["peril", "price"], ["wind", 1], ["since May"]],
            [
                ("text", "Prices"),
                ("text", "\\# in pounds"),
                ("table", f"{HEADS}| wind | 1 |\n| since May |  |"),
            ],
        ),
        (
            [
                ["Prices"],
                [],
                ["peril", "price"],
                ["wind", 1],
                [],
                [],
                ["city", "zone"],
                ["Leeds", 2],
                [],
                ["A note."],
            ],
            [
                ("text", "Prices"),
                ("table", f"{HEADS}| wind | 1 |"),
                ("table", "| city | zone |\n|---|---|\n| Leeds | 2 |"),
                ("text", "A note."),
            ],
        ),
        ([["peril"], ["wind"], ["hail"]], [("table", "| peril |\n|---|\n| wind |\n| hail |")]),
    ],
)
def test_captions_and_tables_of_a_sheet(rows, blocks):
    """A row of one cell above a wider one is a caption.

    An empty row parts tables, each with its head.
    """
    assert [(kind, text) for kind, _, text in texts("Excel", workbook(rows))[1:]] == blocks


def test_formulas_without_a_value_are_counted():
    """A formula with its value is read."""
    raw = workbook([["n", "sum"], [1, "=A2+1"], [2, "=A3+1"]])
    bare = read("Excel", raw)
    assert "2 formulas" in bare.notes[0]
    assert bare.blocks[1].text.splitlines()[-1] == "| 2 |  |"
    sheet = zipfile.ZipFile(BytesIO(raw)).read("xl/worksheets/sheet1.xml")
    sheet = re.sub(rb"<v ?/>|<v></v>", b"<v>7</v>", sheet)
    stored = read("Excel", changed(raw, sheet1=sheet.decode()))
    assert stored.notes == ()
    assert stored.blocks[1].text.splitlines()[-1] == "| 2 | 7 |"


@pytest.mark.parametrize("rows", [60, 25])
def test_long_tables_fill_their_chunks_and_repeat_their_head(tmp_path, rows):
    """Once at the beginning of each.

    As many rows as fit in each but the last, none twice, no blank line.
    """
    table = [
        ["tariff", "price", "remark"],
        *([f"T{n:02}", "1.50", "until the end of the year"] for n in range(rows)),
    ]
    (tmp_path / "a.xlsx").write_bytes(workbook(table))
    chunks = [chunk.text.split("\n") for chunk in load_corpus(tmp_path, max_tokens=128).chunks]
    head = ["| tariff | price | remark |", "|---|---|---|"]
    assert all(lines[:2] == head for lines in chunks)
    names = [row.split()[1] for lines in chunks for row in lines[2:]]
    assert names == [f"T{n:02}" for n in range(rows)]
    counts = [len(lines) for lines in chunks]
    assert len(counts) > 1
    assert max(counts) - min(counts[:-1]) <= 1  # names differ in tokens


def test_notebook():
    """Markdown as Markdown, code as code of its language, raw cells as text.

    Outputs are left out.
    """
    raw = notebook(
        ("markdown", ["# T\n", "a **b**"]),
        ("code", "x = 1\n"),
        ("raw", "r"),
        ("code", ""),
        language="julia",
    )
    assert texts("notebook", raw) == [
        ("heading", 1, "T"),
        ("text", 0, "a b"),
        ("code", 0, "```julia\nx = 1\n```"),
        ("text", 0, "r"),
    ]


def test_restructuredtext():
    """Structure, code, tables; text of directives and roles that only Sphinx knows.

    No other file, no raw HTML.
    """
    assert texts("reStructuredText", RST.encode()) == [
        ("heading", 1, "Guide"),
        ("text", 0, "The `excess` of storms, see `terms` and `pkg.price`. |unknown|"),
        ("text", 0, "Note"),
        ("text", 0, "Take care."),
        ("text", 0, "New in version 2.0 A remark."),
        ("code", 0, "```python\nprint(1)\n```"),
        ("heading", 2, "Storms"),
        ("item", 1, "1. one"),
        ("item", 2, "  - inner"),
        ("text", 0, "term: what it means"),
        ("table", 0, "| peril | price |\n|---|---|\n| wind | 100 |"),
    ]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (".. only:: html and not x\n\n   a", ["a"]),
        (".. image:: x.png\n   :zoom: 3\n   :alt: A\n      plan", ["A plan"]),
        (
            ".. code-block:: c\n   :caption: C\n   :emphasize-lines: 1\n\n   :x: 1\n     y",
            ["```c\n:x: 1\n  y\n```"],
        ),
        (".. tab-item:: One\n   :sync: 1\n\n   :func:`x` is", ["One", "`x` is"]),
        (":variable:`CMAKE_CXX … <CMAKE_<LANG>_<X>>`", ["`CMAKE_CXX …`"]),
        (":ref:`A<b>` :std:doc:`C\n<d>` :ref:`<e>`", ["`A` `C` `<e>`"]),
        (".. contents:: In it\n\nA\n=\n\nx", ["A", "x"]),
    ],
)
def test_restructuredtext_of_sphinx(text, blocks):
    """Arguments that are paths and conditions are no text, nor are options.

    Roles give their titles.
    """
    assert [block for _, _, block in texts("reStructuredText", f"s\n\n{text}\n\ne".encode())] == [
        "s",
        *blocks,
        "e",
    ]


@pytest.mark.parametrize(
    "unit", [":x:`<", ":x:`a <", ".. only:: a\n\n", ".. figure:: x\n   :y: z\n", ":x:`<a>` ", "<"]
)
def test_time_of_restructuredtext_is_bounded(unit):
    """What a process may read at once is read in seconds, or refused."""
    began = time.process_time()
    with suppress(InputError):
        rst_blocks((unit * (4_000 // len(unit))).encode())
    assert time.process_time() - began < 10


DIRECTIVES = (
    ".. include:: {}",
    ".. literalinclude:: {}",
    ".. csv-table:: T\n   :file: {}",
    ".. raw:: html\n   :file: {}",
    ".. code-block:: text\n   :include: {}",
    ".. include:: {}\n   :literal:",
    ".. seealso::\n\n   .. include:: {}",
    ".. image:: {}?.svg\n   :loading: embed",
    ".. tab::\n\n   .. figure:: {}#.svg\n      :loading: embed",
)


def test_restructuredtext_reads_no_other_file(tmp_path, monkeypatch):
    """Neither by its name nor within what is not known; a file of settings is not read either."""
    outside, folder = tmp_path / "other.txt", tmp_path / "texts"
    folder.mkdir()
    outside.write_text("SECRET,x\n")
    for place in (tmp_path, folder):
        (place / "docutils.conf").write_text(
            "[general]\nfile_insertion_enabled: yes\nraw_enabled: yes\n"
        )
    for number, directive in enumerate(DIRECTIVES):
        text = f"before\n\n{directive.format(outside)}\n\nafter\n"
        (folder / f"{number}.rst").write_text(text)
    monkeypatch.chdir(folder)
    with pytest.warns(UserWarning, match=r"1 \.conf"):
        chunks = load_corpus(folder).chunks
    assert len(chunks) == len(DIRECTIVES)
    for chunk in chunks:
        assert "SECRET" not in chunk.text
        assert "before" in chunk.text
        assert "after" in chunk.text


BOMB = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;'>]><x>&b;</x>"
# Behind blanks, comments and instructions of any length, and in another encoding.
FAR_TYPES = (
    "\n" * 200_000 + BOMB,
    f"<!-- {'x' * 70_000} -->{BOMB}",
    f"<?{'x ' * 40_000}?>{BOMB}",
    f"<?xml version='1.0' encoding='utf-16'?>{' ' * 9_000}{BOMB}".encode("utf-16"),
)
OUTSIDE = "<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><x>&a;</x>"


@pytest.mark.parametrize(
    ("reader", "raw", "rule"),
    [
        ("Word", b"", "must be readable"),
        ("Word", b"\xd0\xcf\x11\xe0" * 100, "not a zip file.*without a password"),
        ("Word", workbook([["a"]]), "must be readable"),
        ("Word", word_file(styles=OUTSIDE), "must state no document type"),
        *((("Word", word_file(document=raw), "must state no document type")) for raw in FAR_TYPES),
        (
            "Word",
            word_file(
                document=BOMB.replace(
                    "<!DOCTYPE", "<?xml version='1.0' encoding='cp1047'?><!DOCTYPE"
                )
            ),
            "must be",
        ),
        ("Excel", changed(workbook([["a"]]), styles=FAR_TYPES[0]), "must state no document type"),
        ("Word", word_file(document="<x"), "must be readable"),
        ("Excel", changed(workbook([["a"]]), sheet1=BOMB), "must state no document type"),
        ("notebook", b"[]", "a notebook must have"),
        (
            "notebook",
            b'{"cells": 7, "nbformat": 4, "nbformat_minor": 0, "metadata": {}}',
            "a notebook must have",
        ),
        ("notebook", b"[" * 100_000, "must be valid JSON"),
    ],
)
def test_what_is_broken_is_refused(reader, raw, rule):
    """In one line that names the file."""
    with pytest.raises(InputError, match=rule) as caught:
        read(reader, raw)
    assert str(caught.value).startswith("a.x")
    assert str(caught.value).isprintable()


def test_an_archive_that_unpacks_to_much_is_refused_unread(monkeypatch):
    """By the sizes that it states, which no part can pass when it is read.

    So are parts without number.
    """
    monkeypatch.setattr(office, "MAX_UNPACKED_BYTES", 1_000_000)
    with pytest.raises(InputError, match=r"unpack to .* 1000000 bytes, got "):
        office.word_blocks(word_file(document=" " * 1_500_000))
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for number in range(10_001):
            archive.writestr(f"word/{number}.xml", "")
    with pytest.raises(InputError, match=r"unpack to 10000 parts.*got 10001"):
        office.word_blocks(target.getvalue())


def test_a_cell_that_spans_a_billion_columns_costs_nothing():
    """What a cell says of its width is not believed."""
    width = '<w:tcPr><w:gridSpan w:val="1000000000"/></w:tcPr>'
    body = f"<w:tbl><w:tr><w:tc>{width}{run('x')}</w:tc></w:tr></w:tbl>"
    assert texts("Word", word_body(body)) == [("table", 0, "| x |\n|---|")]


def test_a_sheet_of_a_billion_cells_costs_little():
    """Rows and columns between two cells count, and no size that a sheet states is believed."""
    s = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"

    def sheet(size):
        rows = range(1, size + 1)
        cells = "".join(f'<row r="{n}"><c r="XFD{n}"><v>1</v></c></row>' for n in rows)
        stated = '<dimension ref="A1:XFD1048576"/>'
        xml = f'<worksheet xmlns="{s}">{stated}<sheetData>{cells}</sheetData></worksheet>'
        return changed(workbook([["a"]]), sheet1=xml)

    with pytest.raises(InputError, match="a sheet must have at most 5000000 cells"):
        read("Excel", sheet(2_000))
    assert texts("Excel", sheet(1))[1] == ("text", 0, "1")


@pytest.mark.parametrize(
    ("reader", "module", "raw"),
    [
        ("Word", "mammoth", word_file()),
        ("Excel", "openpyxl", workbook([["a"]])),
        ("reStructuredText", "docutils", b"x"),
    ],
)
def test_without_its_library_a_file_names_the_extra(reader, module, raw, monkeypatch):
    """And how it is installed."""
    monkeypatch.setitem(sys.modules, module, None)
    kind, text = answered(reader, raw, DOCUMENT_LIMITS)
    assert kind == "refused"
    assert re.search(rf"no {module}; .*raglab-toolkit\[documents\]", text.decode())


def test_cells_of_word_stand_under_their_heads():
    """One over two columns or rows stands in each; struck text is left out.

    A raised figure keeps its mark.
    """
    document = word_document()
    table = document.add_table(rows=4, cols=4)
    rows = (("Peril", "Min", "Max", "Note"), ("Storm", "", "", "n1"))
    rows += (("", "5", "6", "n2"), ("", "7", "8", "n3"))
    for cell, text in zip(table._cells, chain(*rows), strict=True):
        cell.text = text
    table.cell(1, 1).merge(table.cell(1, 2)).text = "150"
    table.cell(2, 0).merge(table.cell(3, 0)).text = "Flood"
    paragraph = document.add_paragraph("It costs ")
    paragraph.add_run("100").font.strike = True
    paragraph.add_run("250 of 10")
    paragraph.add_run("6").font.superscript = True
    lines = ("| Peril | Min | Max | Note |", "|---|---|---|---|", "| Storm | 150 | 150 | n1 |")
    lines += ("| Flood | 5 | 6 | n2 |", "| Flood | 7 | 8 | n3 |")
    assert [text for _, _, text in texts("Word", saved(document))] == [
        "\n".join(lines),
        "It costs 250 of 10^6",
    ]


def test_no_day_stands_in_rst():
    """The same text gives the same blocks at any time."""
    page = rst_blocks(
        b"At |t| on |e|.\n\n.. |t| Date:: %H:%M\n.. |d| date::\n.. |e| replace:: |d|\n"
    )
    assert [block.text for block in page.blocks] == ["At |t| on |d|."]


def test_a_text_names_no_roles_for_the_next():
    """One process reads many; what docutils keeps of a text ends with it."""
    page = rst_blocks(b".. role:: own(emphasis)\n\n:own:`~a`")
    assert [block.text for block in page.blocks] == ["~a"]
    assert [block.text for block in rst_blocks(b":own:`~a`").blocks] == ["`a`"]


HIDDEN_LINES = {
    "rows and a column": (
        [2, 3],
        {"B": "B"},
        "8 hidden cells",
        ["c1 c3", "r4c1 r4c3"],
    ),
    "columns to the end": (
        [],
        {"C": "XFD"},
        "4 hidden cells",
        ["c1 c2", "r2c1 r2c2", "r3c1 r3c2", "r4c1 r4c2"],
    ),
    "the head": ([1], {}, "3 hidden cells", ["r2c1 r2c2 r2c3", "r3c1 r3c2 r3c3", "r4c1 r4c2 r4c3"]),
}


@pytest.mark.parametrize(
    ("rows", "columns", "counts", "wanted"), HIDDEN_LINES.values(), ids=HIDDEN_LINES.keys()
)
def test_hidden_rows_and_columns_are_left_out(rows, columns, counts, wanted):
    """Those that hold something are counted."""
    book = openpyxl.Workbook()
    for row in ("", "r2", "r3", "r4"):
        book.active.append([f"{row}c{column}" for column in (1, 2, 3)])
    for number in (*rows, 9):
        book.active.row_dimensions[number].hidden = True
    for first, last in columns.items():
        book.active.column_dimensions.group(first, last, hidden=True)
    page = read("Excel", saved(book))
    assert page.notes[0].endswith(f": {counts}")
    (table,) = [block.text for block in page.blocks if block.kind == "table"]
    lines = [" ".join(line.strip("| ").split(" | ")) for line in table.split("\n")]
    assert lines[:1] + lines[2:] == wanted


@pytest.mark.parametrize("w", [W, "http://purl.oclc.org/ooxml/wordprocessingml/main"])
@pytest.mark.parametrize("kind", ["footnote", "endnote"])
def test_notes_of_word_stand_in_their_place(kind, w):
    """A note says when the sentence does not hold: "except flood, where ..."."""
    note = f'<w:{kind} w:id="2">{run("except flood, where it is 900")}</w:{kind}>'
    body = (
        "<w:p><w:r><w:t>The excess is 100</w:t></w:r><w:r><w:rPr><w:vertAlign "
        f'w:val="superscript"/></w:rPr><w:{kind}Reference w:id="2"/></w:r><w:r><w:t>.</w:t></w:r>'
        "</w:p>"
    )
    part = f'<w:{kind}s {NAMES}><w:{kind} w:id="0">{run("")}</w:{kind}>{note}</w:{kind}s>'
    raw = word_body(body, more={f"word/{kind}s.xml": part}, w=w)
    assert texts("Word", raw) == [("text", 0, "The excess is 100 (except flood, where it is 900).")]


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ("<w:fldSimple>{}</w:fldSimple>", "It is 9."),
        ('<w:dir w:val="rtl"><w:bdo w:val="rtl">{}</w:bdo></w:dir>', "It is 9."),
        (
            "<w:r><w:ruby><w:rt><w:t>S</w:t></w:rt><w:rubyBase>{}</w:rubyBase></w:ruby></w:r>",
            "It is 9.",
        ),
        ('<m:oMath xmlns:m="urn:m"><m:r><m:t>x+5</m:t></m:r></m:oMath>', "It is x+5."),
    ],
)
def test_runs_within_others_are_read(runs, text):
    """Fields, turned text, the base of ruby, formulas."""
    inner = runs.replace("{}", "<w:r><w:t>9</w:t></w:r>")
    first, last = '<w:r><w:t xml:space="preserve">It is </w:t></w:r>', "<w:r><w:t>.</w:t></w:r>"
    body = f"<w:p>{first}{inner}{last}</w:p>"
    assert texts("Word", word_body(body)) == [("text", 0, text)]


@pytest.mark.parametrize("mark", ["vanish", "strike"])
def test_what_a_style_hides_is_left_out(mark):
    """Of a run and of a paragraph; in a footnote too, and a hidden row."""
    style = f'<w:style w:type="character" w:styleId="Gone"><w:rPr><w:{mark}/></w:rPr></w:style>'
    word = "<w:t>SECRET</w:t>"
    by_run = f'<w:r><w:rPr><w:rStyle w:val="Gone"/></w:rPr>{word}</w:r>'
    note = f'<w:footnote w:id="2"><w:p><w:r><w:t>Note</w:t></w:r>{by_run}</w:p></w:footnote>'
    body = (
        f'<w:p><w:r><w:t>Text</w:t></w:r>{by_run}<w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
        f'<w:p><w:pPr><w:pStyle w:val="Gone"/></w:pPr><w:r>{word}</w:r></w:p>'
        f"<w:tbl><w:tr><w:tc>{run('Cell')}</w:tc></w:tr><w:tr><w:trPr><w:hidden/></w:trPr>"
        f"<w:tc>{run('SECRET')}</w:tc></w:tr></w:tbl>"
    )
    more = {
        "word/styles.xml": f"<w:styles {NAMES}>{style}</w:styles>",
        "word/footnotes.xml": f"<w:footnotes {NAMES}>{note}</w:footnotes>",
    }
    page = read("Word", word_body(body, more=more))
    assert [block.text.split()[:2] for block in page.blocks] == [["Text", "(Note)"], ["|", "Cell"]]
    assert "4 hidden" in page.notes[0]


def test_a_merged_cell_stands_in_each_of_its_rows():
    """As in HTML and Word."""
    book = openpyxl.Workbook()
    for row in (["peril", "price"], ["wind", 1], [None, 2]):
        book.active.append(row)
    book.active.merge_cells("A2:A3")
    assert texts("Excel", saved(book))[-1][2].split("\n")[2:] == ["| wind | 1 |", "| wind | 2 |"]


def test_what_word_shows_beside_the_text_is_counted():
    """Headers, footers, comments, text boxes that newer programs alone show; others are read."""
    box = f"<w:txbxContent>{run('In a box.')}</w:txbxContent>"
    choice = (
        f'<mc:Choice Requires="wps"><w:drawing><wps:txbx>{box}</wps:txbx></w:drawing></mc:Choice>'
    )
    fallback = f"<mc:Fallback><w:pict><v:textbox>{box}</v:textbox></w:pict></mc:Fallback>"
    boxes = "".join(
        f"<w:p><w:r><mc:AlternateContent>{form}</mc:AlternateContent></w:r></w:p>"
        for form in (choice + fallback, choice)
    )
    more = {
        f"word/{name}1.xml": f"<w:hdr {NAMES}>{run('SECRET')}</w:hdr>"
        for name in ("header", "footer")
    }
    more["word/header2.xml"] = f"<w:hdr {NAMES}>{run('')}</w:hdr>"
    more["word/comments.xml"] = (
        f"<w:comments {NAMES}><w:comment>{run('SECRET')}</w:comment><w:comment/></w:comments>"
    )
    page = read("Word", word_body(run("Text.") + boxes, more=more))
    assert [block.text for block in page.blocks] == ["Text.", "In a box."]
    counts = sorted(page.notes[0].partition(": ")[2].split(", "))
    assert counts == ["1 footers", "1 headers", "1 text boxes", "2 comments"]


def test_a_word_document_reads_no_other_file_and_no_styles_of_its_own(tmp_path, monkeypatch):
    """Neither the picture that it links to, nor mammoth's map of styles within it."""
    opened = []
    monkeypatch.setattr("mammoth.docx.files.urlopen", opened.append)
    (tmp_path / "secret.svg").write_text("<svg>SECRET</svg>")
    blip = '<pic:pic><pic:blipFill><a:blip r:link="p"/></pic:blipFill></pic:pic>'
    graphic = f"<a:graphic><a:graphicData>{blip}</a:graphicData></a:graphic>"
    inline = f'<wp:inline><wp:docPr descr="A plan"/>{graphic}</wp:inline>'
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    more = {
        "mammoth/style-map": "p => script",
        "word/_rels/document.xml.rels": (
            f'<Relationships xmlns="{relations}"><Relationship Id="p" Type="image" '
            f'Target="{(tmp_path / "secret.svg").as_uri()}"/></Relationships>'
        ),
    }
    body = f"{run('Text.')}<w:p><w:r><w:drawing>{inline}</w:drawing></w:r></w:p>"
    blocks = office.word_blocks(word_body(body, more=more)).blocks
    assert [block.text for block in blocks] == ["Text.", "A plan"]
    assert opened == []
