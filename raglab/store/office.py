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
_MAX_ARCHIVE_PARTS = 10_000
_MAX_SHEET_CELLS = 5_000_000  # of a sheet, empty ones between others included
_STYLE_MAP = "\n".join(
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
_OUTLINE_LEVELS = names("0,1,2,3,4,5")  # of outlines, which are headings
_MARGIN_PARTS = re.compile(r"word/(header|footer|comment)s?\d*\.xml")
_NOTE_KINDS = ("footnote", "endnote")
_TEXT_TAGS = ("t", "p", "br", "tab")
_TEXT_PARTS = ("document", "footnotes", "endnotes")  # parts that are text
_EMBEDDED_TAGS = ("altChunk", "subDoc")
_WRAPPER_TAGS = ("fldSimple", "dir", "bdo", "ruby")  # whose runs mammoth does not read
_HIDDEN_MARKS = ("vanish", "strike", "dstrike")
_OFF_VALUES = ("false", "0", "off")
# a cell with a formula whose value no program has stored
_BARE_FORMULA = re.compile(
    rb"<c\b[^>]*>\s*<f\b(?:[^>]*/>|[^>]*>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>"
)


def _parts(raw_bytes: bytes) -> dict[str, bytes]:
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

    with ZipFile(BytesIO(raw_bytes)) as archive:
        part_sizes = [archive_part.file_size for archive_part in archive.infolist()]
        if len(part_sizes) > _MAX_ARCHIVE_PARTS or sum(part_sizes) > MAX_UNPACKED_BYTES:
            raise input_error(
                UNNAMED,
                f"an office file must unpack to {_MAX_ARCHIVE_PARTS} parts, "
                f"{MAX_UNPACKED_BYTES} bytes",
                "split it, or save it as text",
                f"{len(part_sizes)} parts, {sum(part_sizes)} bytes",
            )
        part_names = [
            part_name for part_name in archive.namelist() if part_name.endswith((".xml", ".rels"))
        ]
        xml_parts = {part_name: archive.read(part_name) for part_name in part_names}
    for part_content in xml_parts.values():
        xml_parser = expat.ParserCreate()
        xml_parser.StartDoctypeDeclHandler = refuse
        xml_parser.Parse(part_content, True)
    return xml_parts


def _archive(xml_parts: Mapping[str, bytes]) -> BytesIO:
    archive = BytesIO()
    with ZipFile(archive, "w") as zip_target:
        for part_name, part_content in xml_parts.items():
            zip_target.writestr(part_name, part_content)
    return archive


def _left_out(counts_by_kind: Counter[str]) -> tuple[str, ...]:
    """Note that counts what of a document is left out, by kind."""
    shown_kinds = ", ".join(
        f"{n_left_out:,} {kind}"
        for kind, n_left_out in sorted(counts_by_kind.items())
        if n_left_out
    )
    return (f"left out of the document: {shown_kinds}",) if shown_kinds else ()


# Names of Word have the namespace of the transitional or of the strict form.
def _stated(xml_element: ET.Element | None, attribute_name: str = "val") -> str:
    """Attribute of an element, whatever its namespace."""
    attributes = {} if xml_element is None else xml_element.attrib
    return next(
        (
            text
            for qualified_name, text in attributes.items()
            if qualified_name.endswith(f"}}{attribute_name}")
        ),
        "",
    )


def _name(xml_element: ET.Element) -> str:
    return xml_element.tag.rpartition("}")[2]


def _text(xml_element: ET.Element) -> str:
    """Words of a part; paragraphs, breaks and tabs part them."""
    text_elements = [
        text_element for text_element in xml_element.iter() if _name(text_element) in _TEXT_TAGS
    ]
    texts = (
        (text_element.text or "") if _name(text_element) == "t" else " "
        for text_element in text_elements
    )
    return " ".join("".join(texts).split())


def word_blocks(raw_bytes: bytes) -> DocumentBlocks:
    """Blocks of a Word document: headings by their styles, paragraphs, items, tables, text boxes.

    A footnote stands in its place, between brackets. Headers, footers, comments, hidden and struck
    text are left out, and a note counts them; deletions are left out too.

    Args:
      raw_bytes: content of the file.

    Raises:
      InputError: it is too large when it is unpacked, or states a document type.
    """
    import mammoth

    xml_parts = _parts(raw_bytes)
    trees_by_name = {
        part_name: ET.fromstring(xml_part)  # noqa: S314
        for part_name, xml_part in xml_parts.items()
    }
    counts_by_kind: Counter[str] = Counter()
    for part_name, xml_tree in trees_by_name.items():
        if (part_match := _MARGIN_PARTS.fullmatch(part_name)) and _text(xml_tree):
            counts_by_kind[f"{part_match[1]}s"] += (
                len(xml_tree) if part_match[1] == "comment" else 1
            )
    document_body = trees_by_name["word/document.xml"]
    # a text box stands as a drawing, and once more as a picture for older programs, which is read
    box_counts = [
        len(document_body.findall(f".//{{*}}{part_match}//{{*}}txbxContent"))
        for part_match in ("drawing", "pict")
    ]
    counts_by_kind["text boxes"] = max(0, box_counts[0] - box_counts[1])
    counts_by_kind["documents in it"] = sum(
        _name(xml_part) in _EMBEDDED_TAGS for xml_part in document_body.iter()
    )
    style_elements = [*trees_by_name.get("word/styles.xml", ())]
    for xml_tree in trees_by_name.values():
        if _name(xml_tree) in _TEXT_PARTS:
            _unwrap(xml_tree)
            _take_out_hidden(xml_tree, style_elements, counts_by_kind)
    _mark_headings(document_body, style_elements)
    _put_notes(document_body, trees_by_name)
    xml_parts = {
        part_name: xml_part
        for part_name, xml_part in xml_parts.items()
        if not _MARGIN_PARTS.fullmatch(part_name)
    }
    xml_parts["word/document.xml"] = ET.tostring(document_body)
    html_page = mammoth.convert_to_html(
        _archive(xml_parts),
        style_map=_STYLE_MAP,
        include_embedded_style_map=False,
        convert_image=mammoth.images.img_element(lambda _image: {}),
    )
    document_title = (
        trees_by_name.get("docProps/core.xml", document_body).findtext("{*}title") or ""
    ).strip()
    # the first row of a table is its head
    document_blocks = html_document(
        html_page.value.replace("<table><tr>", "<table><thead><tr>"), is_whole=False
    ).blocks
    return DocumentBlocks(
        document_title,
        document_blocks,
        {"title": document_title} if document_title else {},
        (),
        _left_out(counts_by_kind),
    )


def _mark_headings(document_body: ET.Element, style_elements: list[ET.Element]) -> None:
    """Give paragraphs whose style, or one that it is based on, has an outline level its heading."""
    levels_by_style: dict[str, str] = {}
    for style_element in style_elements * 2:  # one may stand before the one that it is based on
        base_level = levels_by_style.get(_stated(style_element.find("{*}basedOn")), "")
        levels_by_style[_stated(style_element, "styleId")] = (
            _stated(style_element.find("{*}pPr/{*}outlineLvl")) or base_level
        )
    for style_mark in document_body.findall(".//{*}pStyle"):
        outline_level = levels_by_style.get(_stated(style_mark))
        if outline_level in _OUTLINE_LEVELS:
            style_mark.set(next(iter(style_mark.attrib)), f"Heading{int(outline_level) + 1}")


def _unwrap(xml_tree: ET.Element) -> None:
    """Put runs in place of what holds them: fields, turned text, the base of ruby, formulas."""
    for parent_element in reversed(list(xml_tree.iter())):
        for child_element in list(parent_element):
            child_name = _name(child_element)
            child_index = (
                list(parent_element).index(child_element)
                if child_name in (*_WRAPPER_TAGS, "oMath")
                else 0
            )
            if child_name in _WRAPPER_TAGS:
                parent_element[child_index : child_index + 1] = child_element.findall(
                    "{*}rubyBase//{*}t"
                ) or list(child_element)
            elif child_name == "oMath":
                text_run = ET.Element(f"{xml_tree.tag.rpartition('}')[0]}}}r")
                ET.SubElement(text_run, f"{text_run.tag[:-1]}t").text = _text(child_element)
                parent_element[child_index] = text_run


def _take_out_hidden(
    xml_tree: ET.Element, style_elements: list[ET.Element], counts_by_kind: Counter[str]
) -> None:
    """Take out runs that are hidden or struck, by themselves or by their style, and hidden rows."""

    def hides(style_marks: ET.Element | None) -> bool:
        present_marks = (
            ()
            if style_marks is None
            else [style_marks.find(f"{{*}}{mark_name}") for mark_name in _HIDDEN_MARKS]
        )
        return any(
            style_mark is not None and _stated(style_mark) not in _OFF_VALUES
            for style_mark in present_marks
        )

    hidden_styles = {
        _stated(style_name, "styleId")
        for style_name in style_elements
        if hides(style_name.find("{*}rPr"))
    } - {""}
    for parent_element in list(xml_tree.iter()):
        is_hidden = _stated(parent_element.find("{*}pPr/{*}pStyle")) in hidden_styles
        for child_element in list(parent_element):
            style_name = _stated(child_element.find("{*}rPr/{*}rStyle"))
            is_gone = (
                is_hidden or style_name in hidden_styles or hides(child_element.find("{*}rPr"))
            )
            if (is_gone and _name(child_element) == "r") or child_element.find(
                "{*}trPr/{*}hidden"
            ) is not None:
                counts_by_kind["hidden or struck texts"] += bool(_text(child_element))
                parent_element.remove(child_element)


def _put_notes(document_body: ET.Element, trees_by_name: Mapping[str, ET.Element]) -> None:
    """Put footnotes and endnotes into the text."""
    note_texts = {
        (f"{note_kind}Reference", _stated(note_text, "id")): _text(note_text)
        for note_kind in _NOTE_KINDS
        for note_text in trees_by_name.get(f"word/{note_kind}s.xml", ())
    }
    for text_run in [*document_body.iter(f"{document_body.tag.rpartition('}')[0]}}}r")]:
        for note_mark in text_run.findall("*"):
            if _name(note_mark).removesuffix("Reference") in _NOTE_KINDS:
                note_text = note_texts.get((_name(note_mark), _stated(note_mark, "id")))
                note_mark.tag, note_mark.text = (
                    f"{text_run.tag[:-1]}t",
                    f" ({note_text})" if note_text else "",
                )
                for run_style in text_run.findall("{*}rPr"):
                    text_run.remove(run_style)


def excel_blocks(raw_bytes: bytes) -> DocumentBlocks:
    """Sheets of a workbook as tables below their names; an empty row parts two tables.

    The first row of a table is its head, and a row of one cell above that its caption. Formulas
    stand as the values that the file holds; nothing is computed. Hidden sheets, rows (those that a
    filter hides too) and columns are left out, and a note counts them.

    Args:
      raw_bytes: content of the file.

    Raises:
      InputError: it is too large, or states a document type.
    """
    import openpyxl

    xml_parts = _parts(raw_bytes)
    workbook = openpyxl.load_workbook(_archive(xml_parts), data_only=True, keep_links=False)
    counts_by_kind: Counter[str] = Counter()
    document_blocks: list[Block] = []
    for worksheet in workbook.worksheets:
        if worksheet.sheet_state != "visible":
            counts_by_kind["hidden sheets"] += 1
            continue
        if worksheet.max_row * worksheet.max_column > _MAX_SHEET_CELLS:
            raise input_error(
                UNNAMED,
                f"a sheet must have at most {_MAX_SHEET_CELLS} cells",
                "split it, or save it as a .csv file",
                "more",
            )
        sheet_tables = [*_sheet_tables(worksheet, counts_by_kind)]
        if sheet_tables:
            document_blocks += [
                Block("heading", " ".join(worksheet.title.split()) or "Sheet", 2),
                *sheet_tables,
            ]
    counts_by_kind["formulas without a stored value"] = sum(
        len(_BARE_FORMULA.findall(sheet_part))
        for part_name, sheet_part in xml_parts.items()
        if part_name.startswith("xl/worksheets/")
    )
    return DocumentBlocks("", tuple(document_blocks), notes=_left_out(counts_by_kind))


def _sheet_tables(worksheet: Any, counts_by_kind: Counter[str]) -> Iterator[Block]:  # noqa: ANN401
    """Tables of a sheet, and rows of one cell above them as texts.

    Numbers below an empty row are no head, so that the table above goes on with them.
    """
    hidden_columns = {
        column_number
        for column_range in worksheet.column_dimensions.values()
        if column_range.hidden
        for column_number in range(
            column_range.min, min(column_range.max, worksheet.max_column) + 1
        )
    }
    # a cell over several rows stands in each of them
    merged_texts = {
        (row_number, merged_range.min_col): _cell_text(
            worksheet.cell(merged_range.min_row, merged_range.min_col)
        )
        for merged_range in worksheet.merged_cells.ranges
        for row_number in range(
            merged_range.min_row + 1, min(merged_range.max_row, worksheet.max_row) + 1
        )
    }
    sheet_tables: list[list[list[str]]] = []
    is_parted = True
    for sheet_row in worksheet.iter_rows():
        is_hidden = worksheet.row_dimensions[sheet_row[0].row].hidden
        visible_cells = (
            []
            if is_hidden
            else [sheet_cell for sheet_cell in sheet_row if sheet_cell.column not in hidden_columns]
        )
        counts_by_kind["hidden cells"] += sum(
            sheet_cell.value is not None for sheet_cell in {*sheet_row}.difference(visible_cells)
        )
        # A row that is hidden as a whole does not part two tables, an empty one does.
        if not visible_cells:
            continue
        cell_texts = [
            merged_texts.get((sheet_cell.row, sheet_cell.column)) or _cell_text(sheet_cell)
            for sheet_cell in visible_cells
        ]
        if any(cell_texts):
            is_head = all(isinstance(sheet_cell.value, str | None) for sheet_cell in visible_cells)
            if not sheet_tables or (is_parted and is_head):
                sheet_tables.append([])
            sheet_tables[-1].append(cell_texts)
        is_parted = not any(cell_texts)
    # Leading rows of a single cell are captions: the head is the first wider row.
    for table_rows in sheet_tables:
        row_widths = [sum(map(bool, sheet_row)) for sheet_row in table_rows]
        n_captions = next(
            (row_index for row_index, row_width in enumerate(row_widths) if row_width > 1),
            len(table_rows) == 1,
        )
        yield from (
            Block("text", escaped("".join(sheet_row))) for sheet_row in table_rows[:n_captions]
        )
        filled_columns = [
            cell_texts
            for cell_texts in zip(*table_rows[n_captions:], strict=True)
            if any(cell_texts)
        ]
        if filled_columns:
            head_cells, *body_rows = zip(*filled_columns, strict=True)
            yield table_block(head_cells, body_rows)


def _cell_text(sheet_cell: Any) -> str:  # noqa: ANN401 - openpyxl has no types
    """Value of a cell as the file holds it, of a day without its midnight."""
    value = "" if sheet_cell.value is None else sheet_cell.value
    if isinstance(value, datetime) and not (value.hour or value.minute or value.second):
        value = value.date()
    return str(value).strip()
