"""Word and Excel (shore): blocks of .docx files, by mammoth as HTML, and of .xlsx by openpyxl."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from io import BytesIO
from typing import Any
from xml.etree import ElementTree as ET
from xml.parsers import expat
from zipfile import ZipFile

from raglab.store.blocks import Block, DocumentBlocks, escaped, table_block
from raglab.store.files import UNNAMED, input_error
from raglab.store.html import html_document, names

MAX_UNPACKED_BYTES = 256 * 2**20
_MAX_PARTS = 10_000
_MAX_CELLS = 5_000_000  # of a sheet, empty ones between others included
_STYLES = "\n".join(
    [
        "p[style-name='Title'] => h1:fresh",
        *(
            f"p[style-name^='{name}'] => pre:separator('\\n')"
            for name in names(
                "Code,Source Code,HTML Preformatted,Preformatted,Listing,Verbatim,Console"
            )
        ),
    ]
)
_LEVELS = names("0,1,2,3,4,5")  # of outlines, which are headings
_BESIDE = re.compile(r"word/(header|footer|comment)s?\d*\.xml")
_NOTES = ("footnote", "endnote")
_TEXT = ("t", "p", "br", "tab")
_READ = ("document", "footnotes", "endnotes")  # parts that are text
_WITHIN = ("altChunk", "subDoc")
_WRAPPERS = ("fldSimple", "dir", "bdo", "ruby")  # whose runs mammoth does not read
_HIDDEN = ("vanish", "strike", "dstrike")
_OFF = ("false", "0", "off")
# a cell with a formula whose value no program has stored
_BARE_FORMULA = re.compile(
    rb"<c\b[^>]*>\s*<f\b(?:[^>]*/>|[^>]*>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>"
)


def _parts(raw: bytes) -> dict[str, bytes]:
    """XML of an archive by its names; the other parts are never read.

    Raises:
      InputError: it would take too much room, or states a document type, whose entities can grow
        without end.
    """

    def refuse(*_: object) -> None:
        raise input_error(
            UNNAMED,
            "an office file must state no document type",
            "save it again",
            "one that does",
        )

    with ZipFile(BytesIO(raw)) as archive:
        sizes = [part.file_size for part in archive.infolist()]
        if len(sizes) > _MAX_PARTS or sum(sizes) > MAX_UNPACKED_BYTES:
            raise input_error(
                UNNAMED,
                f"an office file must unpack to {_MAX_PARTS} parts, {MAX_UNPACKED_BYTES} bytes",
                "split it, or save it as text",
                f"{len(sizes)} parts, {sum(sizes)} bytes",
            )
        names = [name for name in archive.namelist() if name.endswith((".xml", ".rels"))]
        parts = {name: archive.read(name) for name in names}
    for content in parts.values():
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = refuse
        parser.Parse(content, True)
    return parts


def _archive(parts: Mapping[str, bytes]) -> BytesIO:
    archive = BytesIO()
    with ZipFile(archive, "w") as target:
        for name, content in parts.items():
            target.writestr(name, content)
    return archive


def _left_out(counts: Counter[str]) -> tuple[str, ...]:
    """Note that counts what of a document is left out, by kind."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()) if count)
    return (f"left out of the document: {kinds}",) if kinds else ()


# Names of Word have the namespace of the transitional or of the strict form.
def _stated(element: ET.Element | None, name: str = "val") -> str:
    """Attribute of an element, whatever its namespace."""
    attributes = {} if element is None else element.attrib
    return next((text for key, text in attributes.items() if key.endswith(f"}}{name}")), "")


def _name(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: ET.Element) -> str:
    """Words of a part; paragraphs, breaks and tabs part them."""
    parts = [part for part in element.iter() if _name(part) in _TEXT]
    texts = ((part.text or "") if _name(part) == "t" else " " for part in parts)
    return " ".join("".join(texts).split())


def word_blocks(raw: bytes) -> DocumentBlocks:
    """Blocks of a Word document: headings by their styles, paragraphs, items, tables, text boxes.

    A footnote stands in its place, between brackets. Headers, footers, comments, hidden and struck
    text are left out, and a note counts them; deletions are left out too.

    Args:
      raw: content of the file.

    Raises:
      InputError: it is too large when it is unpacked, or states a document type.
    """
    import mammoth

    parts = _parts(raw)
    trees = {name: ET.fromstring(part) for name, part in parts.items()}  # noqa: S314
    counts: Counter[str] = Counter()
    for name, tree in trees.items():
        if (kind := _BESIDE.fullmatch(name)) and _text(tree):
            counts[f"{kind[1]}s"] += len(tree) if kind[1] == "comment" else 1
    body = trees["word/document.xml"]
    # a text box stands as a drawing, and once more as a picture for older programs, which is read
    boxes = [len(body.findall(f".//{{*}}{kind}//{{*}}txbxContent")) for kind in ("drawing", "pict")]
    counts["text boxes"] = max(0, boxes[0] - boxes[1])
    counts["documents in it"] = sum(_name(part) in _WITHIN for part in body.iter())
    styles = [*trees.get("word/styles.xml", ())]
    for tree in trees.values():
        if _name(tree) in _READ:
            _unwrap(tree)
            _take_out_hidden(tree, styles, counts)
    _mark_headings(body, styles)
    _put_notes(body, trees)
    parts = {name: part for name, part in parts.items() if not _BESIDE.fullmatch(name)}
    parts["word/document.xml"] = ET.tostring(body)
    page = mammoth.convert_to_html(
        _archive(parts),
        style_map=_STYLES,
        include_embedded_style_map=False,
        convert_image=mammoth.images.img_element(lambda _image: {}),
    )
    title = (trees.get("docProps/core.xml", body).findtext("{*}title") or "").strip()
    # the first row of a table is its head
    blocks = html_document(
        page.value.replace("<table><tr>", "<table><thead><tr>"), is_whole=False
    ).blocks
    return DocumentBlocks(title, blocks, {"title": title} if title else {}, (), _left_out(counts))


def _mark_headings(body: ET.Element, styles: list[ET.Element]) -> None:
    """Give paragraphs whose style, or one that it is based on, has an outline level its heading."""
    levels: dict[str, str] = {}
    for style in styles * 2:  # one may stand before the one that it is based on
        base = levels.get(_stated(style.find("{*}basedOn")), "")
        levels[_stated(style, "styleId")] = _stated(style.find("{*}pPr/{*}outlineLvl")) or base
    for mark in body.findall(".//{*}pStyle"):
        level = levels.get(_stated(mark))
        if level in _LEVELS:
            mark.set(next(iter(mark.attrib)), f"Heading{int(level) + 1}")


def _unwrap(tree: ET.Element) -> None:
    """Put runs in place of what holds them: fields, turned text, the base of ruby, formulas."""
    for parent in reversed(list(tree.iter())):
        for child in list(parent):
            name = _name(child)
            place = list(parent).index(child) if name in (*_WRAPPERS, "oMath") else 0
            if name in _WRAPPERS:
                parent[place : place + 1] = child.findall("{*}rubyBase//{*}t") or list(child)
            elif name == "oMath":
                run = ET.Element(f"{tree.tag.rpartition('}')[0]}}}r")
                ET.SubElement(run, f"{run.tag[:-1]}t").text = _text(child)
                parent[place] = run


def _take_out_hidden(tree: ET.Element, styles: list[ET.Element], counts: Counter[str]) -> None:
    """Take out runs that are hidden or struck, by themselves or by their style, and hidden rows."""

    def hides(marks: ET.Element | None) -> bool:
        stated = () if marks is None else [marks.find(f"{{*}}{name}") for name in _HIDDEN]
        return any(mark is not None and _stated(mark) not in _OFF for mark in stated)

    hidden = {_stated(style, "styleId") for style in styles if hides(style.find("{*}rPr"))} - {""}
    for parent in list(tree.iter()):
        is_hidden = _stated(parent.find("{*}pPr/{*}pStyle")) in hidden
        for part in list(parent):
            style = _stated(part.find("{*}rPr/{*}rStyle"))
            is_gone = is_hidden or style in hidden or hides(part.find("{*}rPr"))
            if (is_gone and _name(part) == "r") or part.find("{*}trPr/{*}hidden") is not None:
                counts["hidden or struck texts"] += bool(_text(part))
                parent.remove(part)


def _put_notes(body: ET.Element, trees: Mapping[str, ET.Element]) -> None:
    """Put footnotes and endnotes into the text."""
    notes = {
        (f"{kind}Reference", _stated(note, "id")): _text(note)
        for kind in _NOTES
        for note in trees.get(f"word/{kind}s.xml", ())
    }
    for run in [*body.iter(f"{body.tag.rpartition('}')[0]}}}r")]:
        for mark in run.findall("*"):
            if _name(mark).removesuffix("Reference") in _NOTES:
                note = notes.get((_name(mark), _stated(mark, "id")))
                mark.tag, mark.text = f"{run.tag[:-1]}t", f" ({note})" if note else ""
                for raised in run.findall("{*}rPr"):
                    run.remove(raised)


def excel_blocks(raw: bytes) -> DocumentBlocks:
    """Sheets of a workbook as tables below their names; an empty row parts two tables.

    The first row of a table is its head, and a row of one cell above that its caption. Formulas
    stand as the values that the file holds; nothing is computed. Hidden sheets, rows (those that a
    filter hides too) and columns are left out, and a note counts them.

    Args:
      raw: content of the file.

    Raises:
      InputError: it is too large, or states a document type.
    """
    import openpyxl

    parts = _parts(raw)
    book = openpyxl.load_workbook(_archive(parts), data_only=True, keep_links=False)
    counts: Counter[str] = Counter()
    blocks: list[Block] = []
    for sheet in book.worksheets:
        if sheet.sheet_state != "visible":
            counts["hidden sheets"] += 1
            continue
        if sheet.max_row * sheet.max_column > _MAX_CELLS:
            raise input_error(
                UNNAMED,
                f"a sheet must have at most {_MAX_CELLS} cells",
                "split it, or save it as a .csv file",
                "more",
            )
        tables = [*_sheet_tables(sheet, counts)]
        if tables:
            blocks += [Block("heading", " ".join(sheet.title.split()) or "Sheet", 2), *tables]
    counts["formulas without a stored value"] = sum(
        len(_BARE_FORMULA.findall(part))
        for name, part in parts.items()
        if name.startswith("xl/worksheets/")
    )
    return DocumentBlocks("", tuple(blocks), notes=_left_out(counts))


def _sheet_tables(sheet: Any, counts: Counter[str]) -> Iterator[Block]:  # noqa: ANN401
    """Tables of a sheet, and rows of one cell above them as texts.

    Numbers below an empty row are no head, so that the table above goes on with them.
    """
    hidden = {
        number
        for columns in sheet.column_dimensions.values()
        if columns.hidden
        for number in range(columns.min, min(columns.max, sheet.max_column) + 1)
    }
    # a cell over several rows stands in each of them
    merged = {
        (row, span.min_col): _cell_text(sheet.cell(span.min_row, span.min_col))
        for span in sheet.merged_cells.ranges
        for row in range(span.min_row + 1, min(span.max_row, sheet.max_row) + 1)
    }
    tables: list[list[list[str]]] = []
    is_parted = True
    for row in sheet.iter_rows():
        is_hidden = sheet.row_dimensions[row[0].row].hidden
        cells = [] if is_hidden else [cell for cell in row if cell.column not in hidden]
        counts["hidden cells"] += sum(cell.value is not None for cell in {*row}.difference(cells))
        if not cells:
            continue
        texts = [merged.get((cell.row, cell.column)) or _cell_text(cell) for cell in cells]
        if any(texts):
            is_head = all(isinstance(cell.value, str | None) for cell in cells)
            if not tables or (is_parted and is_head):
                tables.append([])
            tables[-1].append(texts)
        is_parted = not any(texts)
    for table in tables:
        widths = [sum(map(bool, row)) for row in table]
        wide = next((n for n, width in enumerate(widths) if width > 1), len(table) == 1)
        yield from (Block("text", escaped("".join(row))) for row in table[:wide])
        parts = [texts for texts in zip(*table[wide:], strict=True) if any(texts)]
        if parts:
            head, *body = zip(*parts, strict=True)
            yield table_block(head, body)


def _cell_text(cell: Any) -> str:  # noqa: ANN401 - openpyxl has no types
    """Value of a cell as the file holds it, of a day without its midnight."""
    value = "" if cell.value is None else cell.value
    if isinstance(value, datetime) and not (value.hour or value.minute or value.second):
        value = value.date()
    return str(value).strip()
