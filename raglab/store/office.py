"""Word and Excel (shore): blocks of .docx and .xlsx files, unpacked size bounded before parsing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from io import BytesIO
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

from raglab.arguments.user_warnings import warn_user
from raglab.store.blocks import Block, DocumentBlocks
from raglab.store.documents import table_block
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.html import MAX_DEPTH, escaped, fenced
from raglab.store.optional_libraries import library
from raglab.words.characters import visible

if TYPE_CHECKING:
    from docx.table import Table
    from docx.text.paragraph import Paragraph

MAX_UNPACKED_BYTES = 256 * 2**20
_MAX_PARTS = 10_000
_LIGHT_BYTES = 2 * 2**20
_CHUNK_BYTES = 2**16
_MAX_CELLS = 10_000_000  # of a workbook, empty ones between others included
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_CODE = re.compile(r"code|preformatted|listing|verbatim|console", re.IGNORECASE)
_COPIES = 10  # of a cell, for each cell that is written
_PERCENT = re.compile(r"\s?%")  # in a format of numbers
_LITERAL = re.compile(r'"[^"]*"|\\.')  # shown as it stands, there
_MAX_STYLES = 20  # made from one another
_LISTED = re.compile(r"list (?:bullet|number)", re.IGNORECASE)


def is_light_archive(raw: bytes) -> bool:
    """Whether a file is small when it is unpacked, so that it is read at once."""
    try:
        with ZipFile(BytesIO(raw)) as archive:
            return len(raw) + sum(part.file_size for part in archive.infolist()) <= _LIGHT_BYTES
    except (BadZipFile, ValueError, OSError):
        return True  # it is refused as soon as it is opened


def docx_blocks(raw: bytes, file: str) -> DocumentBlocks:
    """Blocks of a Word document.

    Headings by their styles, paragraphs, list items and tables in their order.

    Headers, footers, text boxes, comments, deletions and hidden text are left out.

    Args:
      raw: content of the file.
      file: for messages.

    Raises:
      InputError: it is no such file, too large when it is unpacked, or python-docx is not
        installed.
    """
    docx = library("docx", file)
    _check_archive(raw, file, "word/document.xml")
    blocks: list[Block] = []
    try:
        document = docx.Document(BytesIO(raw))
        title = (document.core_properties.title or "").strip()
        for is_code, parts in groupby(_body_parts(document), key=_is_code):
            if is_code:
                blocks.append(
                    Block("code", fenced("\n".join("".join(_shown(part)) for part in parts)))
                )
            else:
                blocks += [block for part in parts for block in _docx_block(part)]
    except Exception as error:
        raise _unreadable(file, error) from error
    return DocumentBlocks(title, tuple(blocks), {"title": title} if title else {})


def _body_parts(document: Any) -> Iterator[Any]:  # noqa: ANN401 - python-docx is optional
    """Paragraphs and tables in order, with those in content controls, as templates have them."""
    from docx.oxml.ns import qn
    from docx.table import Table
    from docx.text.paragraph import Paragraph

    inside = "ancestor::w:sdt and not(ancestor::w:p or ancestor::w:tbl)"
    for element in document.element.body.xpath(
        f"w:p | w:tbl | .//w:p[{inside}] | .//w:tbl[{inside}]"
    ):
        yield (
            Table(element, document) if element.tag == qn("w:tbl") else Paragraph(element, document)
        )


def _is_code(part: Paragraph | Table) -> bool:
    """Whether a paragraph is a line of code by its style, as Pandoc and publishers name them."""
    style = getattr(part.style, "name", None) if hasattr(part, "runs") else None
    return style is not None and _CODE.search(style) is not None


# python-docx is optional, and so are its types
def _heading_level(style: Any) -> int:  # noqa: ANN401
    """Level of a heading by its style or one that it is made from; 0 of what is no heading."""
    for _ in range(_MAX_STYLES):
        if style is None:
            break
        name = _HEADING.fullmatch(style.name or "")
        if name or style.name == "Title":
            return min(int(name[1]), 6) if name else 1
        stated = style.element.xpath("w:pPr/w:outlineLvl/@w:val")
        if stated and stated[0].isdecimal() and int(stated[0]) < 9:
            return min(int(stated[0]) + 1, 6)
        style = style.base_style
    return 0


def _docx_block(part: Paragraph | Table) -> Iterator[Block]:
    if hasattr(part, "rows"):
        rows = _table_rows(_word_rows(part))
        if rows:
            yield table_block(rows[0], rows[1:])
        return
    text = "".join(_shown(part)).strip()
    if not text:
        return
    style = part.style.name if part.style is not None else ""
    line = " ".join(text.split())
    level = _heading_level(part.style)
    # it has no public name
    numbering: Any = part._p.pPr.numPr if part._p.pPr is not None else None  # noqa: SLF001
    if (
        numbering is not None and numbering.numId is not None and numbering.numId.val == 0
    ):  # a style's number, taken away
        numbering = None
    if level:
        yield Block("heading", line, level)
    elif numbering is not None or _LISTED.match(style or ""):
        depth = numbering.ilvl.val if numbering is not None and numbering.ilvl is not None else 0
        depth = min(max(int(depth), 0) + 1, MAX_DEPTH)
        yield Block("item", f"{'  ' * (depth - 1)}- {line}", depth)
    else:
        yield Block("text", escaped(text))


def _word_rows(table: Any) -> Iterator[list[str]]:  # noqa: ANN401 - python-docx is optional
    """Rows of a table of Word: a cell over several columns or rows stands in each.

    Deleted rows are left out.

    What a cell says that it spans is not believed: all copies are at most ten times the cells that
    are written.
    """
    above: dict[int, str] = {}
    room = _COPIES
    for row in table._tbl.tr_lst:  # noqa: SLF001 - it has no public name
        if row.xpath("w:trPr/w:del"):
            continue
        cells = [""] * min(_stated(row, "w:trPr/w:gridBefore"), room)
        for cell in row.xpath("w:tc | w:sdt/w:sdtContent/w:tc"):
            goes_on = cell.xpath("w:tcPr/w:vMerge[not(@w:val='restart')]")
            text = above.get(len(cells), "") if goes_on else _cell_text(cell)
            room += _COPIES
            span = max(1, min(_stated(cell, "w:tcPr/w:gridSpan"), room))
            room -= span
            above |= dict.fromkeys(range(len(cells), len(cells) + span), text)
            cells += [text] * span
        yield cells


# an element of XML without a public type
def _stated(element: Any, path: str) -> int:  # noqa: ANN401
    """Number that the element of a path states; 0 where it states none."""
    values = element.xpath(f"{path}/@w:val")
    return (
        int(values[0]) if values and str(values[0]).isdecimal() and len(str(values[0])) < 9 else 0
    )


def _cell_text(cell: Any) -> str:  # noqa: ANN401 - an element of XML without a public type
    """Text of a table's cell, tables within it included."""
    from docx.oxml.ns import qn
    from docx.text.paragraph import Paragraph

    return " ".join("".join(_shown(Paragraph(part, cell))) for part in cell.iter(qn("w:p")))


def _shown(paragraph: Paragraph) -> Iterator[str]:
    """Texts of a paragraph's runs that are not hidden or struck.

    In links and insertions too, not in text boxes.

    A raised figure has its mark, since 10 to the 6 is no 106.
    """
    from docx.text.run import Run

    where = "count(ancestor::w:p) = 1 and not(ancestor::w:moveFrom)"
    # it has no public name
    for element in paragraph._p.xpath(f"descendant::w:r[{where}]"):  # noqa: SLF001
        run = Run(element, paragraph)
        font = run.font
        if font.hidden or font.strike or font.double_strike:
            continue
        mark = "^" if font.superscript else "_" if font.subscript else ""
        yield mark + run.text if mark and run.text.strip() else run.text


class _SheetRow(NamedTuple):
    """A row of a sheet.

    Its number from 1, the texts of its cells, none of an empty row, and whether all are words.

    A number or a day is none.
    """

    number: int
    texts: list[str]
    is_words: bool


_BARE_FORMULAS = "formulas without a stored value"


class _HiddenLines(NamedTuple):
    """Rows of a sheet that are hidden, numbered from 1, and ranges of columns."""

    rows: set[int]
    columns: list[range]


def xlsx_blocks(raw: bytes, file: str) -> DocumentBlocks:
    """Sheets of a workbook as tables below their names; an empty row parts two tables.

    Hidden sheets, rows (those that a filter hides too) and columns are left out.

    The first row of a table is its head, and a row of one cell above that its caption. Formulas
    stand as the values that the file holds; nothing is computed.

    Args:
      raw: content of the file.
      file: for messages.

    Raises:
      InputError: it is no such file, too large, or openpyxl is not installed.

    Warns:
      UserWarning: counts hidden sheets, rows and columns, and formulas without a stored value.
    """
    openpyxl = library("openpyxl", file)
    _check_archive(raw, file, "xl/workbook.xml")
    blocks: list[Block] = []
    cells = 0
    left_out: Counter[str] = Counter()
    try:
        book = openpyxl.load_workbook(
            BytesIO(raw), read_only=True, data_only=True, keep_links=False
        )
        shown = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
        for sheet in shown:
            rows = [*_sheet_rows(sheet, _MAX_CELLS - cells, file)]
            cells += sum(len(row.texts) for row in rows)
            # Hidden lines count for the limit above, since they are read, but part no table and
            # stand in none.
            rows = _shown_rows(rows, _hidden_lines(raw, sheet), left_out)
            if tables := [*_sheet_tables(rows)]:
                blocks.append(Block("heading", " ".join(str(sheet.title).split()) or "Sheet", 2))
                blocks += tables
        left_out["hidden sheets"] = len(book.worksheets) - len(shown)
        left_out[_BARE_FORMULAS] = _count_bare_formulas(raw, shown, file)
    except InputError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error
    if counts := ", ".join(f"{count:,} {kind}" for kind, count in left_out.items() if count):
        hidden = any(count for kind, count in left_out.items() if kind != _BARE_FORMULAS)
        remedies = ["show what is hidden"] if hidden else []
        if left_out[_BARE_FORMULAS]:
            remedies.append(
                "save the file in Excel or LibreOffice, which stores the values of formulas"
            )
        warn_user(
            visible(f"{file}: left out of the document: {counts}; {', and '.join(remedies)}.")
        )
    return DocumentBlocks("", tuple(blocks))


# its type differs by mode
def _sheet_rows(sheet: Any, most: int, file: str) -> Iterator[_SheetRow]:  # noqa: ANN401
    """Rows of a sheet of at most so many cells; of empty rows that follow each other the first."""
    sheet.reset_dimensions()  # what a file states of them need not be so
    cells = 0
    is_empty = False
    for number, row in enumerate(sheet.iter_rows(), 1):
        cells += len(row) + 1
        if cells > most:
            rule = f"a workbook must have at most {_MAX_CELLS} cells"
            raise input_error(Where(file), rule, "split it, or save sheets as .csv files", "more")
        texts = [_cell_value(cell) for cell in row]
        if any(text.strip() for text in texts):
            yield _SheetRow(
                number,
                texts,
                all(cell.value is None or isinstance(cell.value, str) for cell in row),
            )
            is_empty = False
        elif not is_empty:
            yield _SheetRow(number, [], is_words=False)
            is_empty = True


def _hidden_lines(raw: bytes, sheet: Any) -> _HiddenLines:  # noqa: ANN401
    """Hidden sheet rows and columns, which openpyxl does not give where it reads as it goes."""
    hidden = _HiddenLines(set(), [])
    with ZipFile(BytesIO(raw)) as archive:
        part = archive.read(sheet._worksheet_path)  # noqa: SLF001 - it has no public name
    if b"hidden" not in part:  # most have none, and are not parsed again
        return hidden
    number = 0

    def enter(name: str, attributes: dict[str, str]) -> None:
        nonlocal number
        name = name.rpartition(":")[2]
        is_hidden = attributes.get("hidden") in {"1", "true"}
        if name == "row":
            number = int(attributes.get("r", number + 1))
            if is_hidden:
                hidden.rows.add(number)
        elif name == "col" and is_hidden:
            hidden.columns.append(range(int(attributes["min"]) - 1, int(attributes["max"])))

    parser = expat.ParserCreate()
    parser.StartElementHandler = enter
    parser.Parse(part, True)
    return hidden


def _shown_rows(
    rows: Sequence[_SheetRow], hidden: _HiddenLines, left_out: Counter[str]
) -> list[_SheetRow]:
    """Rows without what is hidden, which is counted where it holds something."""
    shown = [row for row in rows if row.number not in hidden.rows]
    left_out["hidden rows"] += sum(bool(row.texts) for row in rows) - sum(
        bool(row.texts) for row in shown
    )
    width = max((len(row.texts) for row in shown), default=0)
    columns: set[int] = set()
    end = 0
    # each column once, however often it is named
    for part in sorted(hidden.columns, key=lambda part: part.start):
        columns.update(range(max(part.start, end), min(part.stop, width)))
        end = max(end, part.stop)
    if columns:
        filled = {n for row in shown for n, text in enumerate(row.texts) if text.strip()}
        left_out["hidden columns"] += len(filled & columns)
        blanked = ([text for n, text in enumerate(row.texts) if n not in columns] for row in shown)
        shown = [
            row._replace(texts=texts if any(text.strip() for text in texts) else [])
            for row, texts in zip(shown, blanked, strict=True)
        ]
    return shown


def _cell_value(cell: Any) -> str:  # noqa: ANN401 - openpyxl is optional, and so are its types
    """Value of a cell.

    Of a day without its midnight, of a share in per cent where its format says so.
    """
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, datetime) and not (value.hour or value.minute or value.second):
        value = value.date()
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        sign = _PERCENT.search(_LITERAL.sub("", cell.number_format or ""))
        return f"{value * 100:.12g}{sign[0]}" if sign else str(value)
    return str(value)


def _sheet_tables(rows: Iterable[_SheetRow]) -> Iterator[Block]:
    """Tables of a sheet.

    Numbers below an empty row are no head, so that the table above goes on with them.
    """
    tables: list[list[list[str]]] = []
    is_parted = True
    for row in rows:
        if not row.texts:
            is_parted = True
            continue
        if not tables or (is_parted and row.is_words):
            tables.append([])
        is_parted = False
        tables[-1].append(row.texts)
    for table in tables:
        yield from _table_with_caption(table)


def _table_with_caption(rows: list[list[str]]) -> Iterator[Block]:
    """Rows of one cell above a wider one as texts, and the rows from there as a table."""
    filled = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    captions = next(
        (n for n, cells in enumerate(filled) if len(cells) > 1), 1 if len(rows) == 1 else 0
    )
    yield from (Block("text", escaped(cells[0])) for cells in filled[:captions])
    if body := _table_rows(rows[captions:]):
        yield table_block(body[0], body[1:])


def _count_bare_formulas(raw: bytes, sheets: Sequence[Any], file: str) -> int:
    """Cells of some sheets that are formulas whose values no program has stored."""
    with ZipFile(BytesIO(raw)) as archive:
        parts = [
            part
            for part in archive.namelist()
            if part.startswith("xl/worksheets/") and part.endswith(".xml")
        ]
        # most have none, and are not read again
        if not any(b"<f" in archive.read(part) for part in parts):
            return 0
    book = library("openpyxl", file).load_workbook(BytesIO(raw), read_only=True, keep_links=False)
    count = 0
    for sheet in sheets:
        formulas = book[sheet.title]
        formulas.reset_dimensions()
        for row, values in zip(
            formulas.iter_rows(), sheet.iter_rows(values_only=True), strict=False
        ):
            count += sum(
                cell.data_type == "f" and value is None
                for cell, value in zip(row, values, strict=False)
            )
    return count


def _table_rows(rows: Iterable[list[str]]) -> list[list[str]]:
    """Rows and columns that hold something."""
    filled = [row for row in rows if any(cell.strip() for cell in row)]
    width = max(map(len, filled), default=0)
    used = [n for n in range(width) if any(n < len(row) and row[n].strip() for row in filled)]
    return [[row[n] if n < len(row) else "" for n in used] for row in filled]


def _check_archive(raw: bytes, file: str, main: str) -> None:
    """Stop at what is no archive of the kind, or would take too much room when it is unpacked."""
    where = Where(file)
    sizes = _part_sizes(raw, file)
    if len(sizes) > _MAX_PARTS:
        rule = f"an office file must have at most {_MAX_PARTS} parts"
        raise input_error(where, rule, "save it again, or save it as text", str(len(sizes)))
    if sum(sizes.values()) > MAX_UNPACKED_BYTES:
        rule = f"an office file must be at most {MAX_UNPACKED_BYTES} bytes when it is unpacked"
        raise input_error(where, rule, "split it, or save it as text", str(sum(sizes.values())))
    if main not in sizes:
        rule = f"a .{file.rpartition('.')[2].lower()} file must hold {main}"
        raise input_error(where, rule, "save it from Word, Excel or LibreOffice", "none")
    # Neither program writes a document type; entities, which are what it is good for, can grow
    # without end.
    if _states_type(raw, file, sizes):
        raise input_error(
            where, "an office file must state no document type", "save it again", "one that does"
        )


def _part_sizes(raw: bytes, file: str) -> dict[str, int]:
    """Unpacked sizes of the parts of an archive, which none of them can pass when it is read."""
    try:
        with ZipFile(BytesIO(raw)) as archive:
            return {part.filename: part.file_size for part in archive.infolist()}
    except Exception as error:
        raise _unreadable(file, error) from error


def _states_type(raw: bytes, file: str, names: Iterable[str]) -> bool:
    """Whether a part states a document type, in any encoding and however far from its beginning."""
    try:
        with ZipFile(BytesIO(raw)) as archive:
            return any(
                _has_type(archive.open(name), is_xml=name.endswith((".xml", ".rels")))
                for name in names
            )
    except Exception as error:
        raise _unreadable(file, error) from error


def _has_type(part: IO[bytes], *, is_xml: bool) -> bool:
    """Whether a document type stands before the first element, which is as far as it is read.

    Raises:
      ExpatError: it is no XML, and has to be, or is in an encoding that this parser does not know,
        though others may.
    """

    def stop_at_type(*_: object) -> None:
        raise _PrologEndError(is_type=True)

    def stop_at_element(*_: object) -> None:
        raise _PrologEndError(is_type=False)

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = stop_at_type
    parser.StartElementHandler = stop_at_element
    try:
        while chunk := part.read(_CHUNK_BYTES):
            parser.Parse(chunk)
    except _PrologEndError as end:
        return end.is_type
    except expat.ExpatError as error:
        if is_xml or error.code == expat.errors.codes[expat.errors.XML_ERROR_UNKNOWN_ENCODING]:
            raise
    return False


class _PrologEndError(Exception):
    """Where what stands before the first element ends; is_type: at a document type."""

    def __init__(self, *, is_type: bool) -> None:
        super().__init__()
        self.is_type = is_type


def _unreadable(file: str, error: Exception) -> InputError:
    reason = f"{type(error).__name__}: {error}"
    value = (
        "one with a password, or of another kind"
        if isinstance(error, BadZipFile)
        else shown_value(reason)
    )
    return input_error(
        Where(file), "an office file must be readable", "save it again, without a password", value
    )
