"""Web pages (shore): the text of HTML as Markdown, with its headings, paragraphs, lists, tables, title and language.

One pass over the page finds its tags, in time linear in the page whatever it holds: the parser of Python 3.11 takes
49 s for 80 kB of `<a `.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from raglab.store.documents import MAX_ROWS
from raglab.store.files import Where, decode_utf8, input_error, shown_value

_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*+)((?:=\s*+\"[^\"]*+\"|=\s*+'[^']*+'|[^>])*+)>")
_BEGINS = re.compile(r"</?[A-Za-z]")
_CHARSET = re.compile(rb"<meta[^>]*?charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
_LATIN = re.compile(
    r"(?:iso-?8859-?1|latin-?1|us-ascii|ascii)", re.IGNORECASE
)  # read as Windows has it, as browsers do
_BYTES = re.compile(r"(?:iso-?8859-?\d{1,2}|windows-?125\d)", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?![A-Za-z])")
_UNREAD = re.compile("script|style|template|iframe|noembed|noframes|svg|textarea")
_LISTS = re.compile("ul|ol|menu|dir")
_BLOCKS = re.compile(
    "address|article|aside|blockquote|body|center|d[dlt]|details|dialog|dir|div|fieldset|figcaption|figure|footer|form"
    "|h[1-6r]|header|html|legend|li|main|menu|nav|ol|option|p|pre|section|summary|tbody|tfoot|thead|ul"
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_RAISED = {"sup": "^", "sub": "_"}  # 10<sup>2</sup> must not become 102
_MARKDOWN = ("#", "```", "~~~", "|")  # what would be read as something else at the beginning of a line
_SPAN = 1000  # columns or rows that a cell may take at most
_COPIES = 10  # of a table's cells that spans may make, for each cell that is written
_DEEPEST = 6  # of lists


class HtmlDocument(NamedTuple):
    """A page: what it says of itself, empty where it says nothing, and its text as Markdown."""

    title: str
    language: str
    text: str


class _Tag(NamedTuple):
    """A tag, its name in small letters."""

    name: str
    closes: bool
    attributes: str

    def attribute(self, name: str) -> str:
        """Value of an attribute, '' where it has none."""
        stated = rf"(?<![^\s\"'/]){name}\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>\"']+))"
        match = re.search(stated, self.attributes, re.IGNORECASE)
        return "" if match is None else html.unescape(next(filter(None, match.groups()), "")).strip()


def decode_html(raw: bytes, where: Where) -> str:
    """Text of a page: UTF-8, or the encoding of one byte a character that it states.

    Raises:
      InputError: it is neither.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        stated = _CHARSET.search(raw[:4096])
        name = "" if stated is None else stated[1].decode("ascii", "replace")
        if not _BYTES.fullmatch(name) and not _LATIN.fullmatch(name):
            return decode_utf8(raw, where)
        try:
            text = raw.decode("windows-1252" if _LATIN.fullmatch(name) else name)
        except (UnicodeDecodeError, LookupError) as error:
            rule = "a page must be in the encoding that it states"
            raise input_error(where, rule, "save it as UTF-8", shown_value(name)) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def html_document(text: str, file: str) -> HtmlDocument:
    r"""Title, language and text of a page.

    Headings, lists and tables stand as Markdown writes them; a cell over several columns or rows stands in each. What
    a browser does not show as text (scripts, styles, drawings) is left out, as are the targets of links. A table that
    holds headings or tables lays out the page: its cells are paragraphs.

    Args:
      file: for messages.

    Raises:
      InputError: a comment, or an element whose content is no text, does not end.

    Example:
      >>> html_document("<title>Hail</title><h1>Cover</h1><p>Glass is <b>covered</b>.<ul><li>Cars", "a.html").text
      '# Cover\n\nGlass is covered.\n\n- Cars'
    """
    page = _HtmlPage()
    title = language = ""
    inside = False  # of the title
    for part in _parts(text, file):
        if isinstance(part, str):
            if inside:
                title = title or " ".join(html.unescape(part).split())
            else:
                page.words(html.unescape(part))
            continue
        if part.name == "title":
            inside = not part.closes
        elif part.name == "html" and not part.closes:
            stated = _LANGUAGE.match(part.attribute("lang") or part.attribute("xml:lang"))
            language = language or ("" if stated is None else stated[0].lower())
        page.tag(part)
    page.end()
    return HtmlDocument(title, language, "\n\n".join(page.blocks))


def _parts(text: str, file: str) -> Iterator[_Tag | str]:
    """Tags and the texts between them; what is no tag is text."""
    at = 0
    while at < len(text):
        start = text.find("<", at)
        if start != at:
            yield text[at : start if start >= 0 else len(text)]
        if start < 0:
            return
        if text.startswith(("<!", "<?"), start):
            at = _end_of_comment(text, start, file)
            continue
        tag = _TAG.match(text, start)
        if tag is None:
            # A tag that never ends: so does none after it, and looking for their ends would take a square of time.
            end = len(text) if _BEGINS.match(text, start) else start + 1
            yield text[start:end]
            at = end
            continue
        found = _Tag(tag[2].lower(), bool(tag[1]), tag[3])
        at = tag.end()
        if _UNREAD.fullmatch(found.name) and not found.closes and not found.attributes.endswith("/"):
            at = _end_of_unread(text, at, found.name, file)
        else:
            yield found


def _end_of_comment(text: str, start: int, file: str) -> int:
    """Place behind a comment, a doctype or an instruction."""
    if not text.startswith("<!--", start):
        end = text.find(">", start)
        return len(text) if end < 0 else end + 1
    if text.startswith((">", "->"), start + 4):
        return text.index(">", start) + 1
    end = text.find("-->", start)
    if end < 0:
        raise input_error(_line(text, start, file), "a comment must end with -->", "close it", "none to the end")
    return end + 3


def _end_of_unread(text: str, at: int, name: str, file: str) -> int:
    """Place behind an element whose content is no text of the page."""
    closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, at)
    end = -1 if closing is None else text.find(">", closing.end())
    if end < 0:
        rule, remedy = f"an element {name} must end with </{name}>", "close it"
        raise input_error(_line(text, at, file), rule, remedy, "none to the end")
    return end + 1


def _line(text: str, at: int, file: str) -> Where:
    return Where(file, text.count("\n", 0, at) + 1)


class _Table:
    """A table as far as it was read; spans: text and rows to come of cells over several rows, by column."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.heads = False  # whether all cells of the first row are heads
        self.row: list[str] | None = None
        self.cell = False  # whether one is open
        self.span = (1, 1)  # columns and rows of the open cell
        self.spans: dict[int, tuple[str, int]] = {}
        self.room = _SPAN  # copies that spans may still make
        self.lays_out = False

    def add(self, text: str) -> None:
        """End a cell with its text."""
        row = [] if self.row is None else self.row
        self._fill(row)
        columns, rows = self.span
        self.room += _COPIES
        for _ in range(min(columns, self.room)):
            if rows > 1:
                self.spans[len(row)] = (text, rows - 1)
            row.append(text)
            self.room -= 1
        self.row, self.cell = row, False

    def _fill(self, row: list[str]) -> None:
        """Cells of earlier rows that reach down to the next place of this one."""
        while len(row) in self.spans and self.room > 0:
            text, rows = self.spans.pop(len(row))
            if rows > 1:
                self.spans[len(row)] = (text, rows - 1)
            row.append(text)
            self.room -= 1

    def end_row(self) -> None:
        """End a row."""
        if self.row is not None:
            self._fill(self.row)
            if any(self.row):
                self.rows.append(self.row)
        self.row = None

    def blocks(self) -> list[str]:
        """The rows as Markdown writes them, a few at a time, each time below their heads."""
        lines = [f"| {' | '.join(row)} |" for row in self.rows]
        top = [lines.pop(0), f"|{'---|' * len(self.rows[0])}"] if self.heads and lines else []
        starts = range(0, len(lines), MAX_ROWS) if lines or not top else [0]
        return ["\n".join([*top, *lines[start : start + MAX_ROWS]]) for start in starts]


class _HtmlPage:
    """The blocks of a page as they are read."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._text: list[str] = []
        self._tables: list[_Table] = []
        self._lists: list[int] = []  # number of the last item of each open list; -1 where they have none
        self._mark = ""  # of a heading or an item whose text follows
        self._term: str | None = None  # that a definition is awaited for
        self._lines: list[str] = []  # of a list or definitions, one block
        self._pre = False

    def words(self, text: str) -> None:
        """Text of the block that is open."""
        self._text.append(text if self._pre else re.sub(r"\s+", " ", text))

    def tag(self, tag: _Tag) -> None:
        """A tag that begins or ends a block, or stands in one."""
        if tag.name == "br":
            self._text.append("\n")
        elif tag.name in _RAISED and not tag.closes:
            self._text.append(_RAISED[tag.name])
        elif tag.name == "img" and (shown := tag.attribute("alt")):
            self._text.append(f" {shown} ")
        elif tag.name in {"table", "tr", "td", "th", "caption"}:
            self._table_tag(tag)
        elif _BLOCKS.fullmatch(tag.name):
            self._block_tag(tag)
        if tag.name == "pre":
            self._pre = not tag.closes

    def end(self) -> None:
        """End of the page, and of all that is open."""
        while self._tables:
            self._end_table()
        self._flush()
        self._flush_lines()

    def _open_table(self) -> _Table | None:
        """Table that the text stands in, unless it lays out the page."""
        return self._tables[-1] if self._tables and not self._tables[-1].lays_out else None

    def _block_tag(self, tag: _Tag) -> None:
        table = self._open_table()
        if table is not None and tag.name in _HEADINGS and not tag.closes:
            self._lay_out(table)
        elif table is not None:  # what is in a cell stays in it
            self._text.append(" ")
            return
        self._flush()
        if _LISTS.fullmatch(tag.name):
            self._list_tag(tag)
        elif tag.name in {"dt", "dd", "li"}:
            self._item_tag(tag)
        elif tag.name in _HEADINGS:
            self._flush_lines()
            self._mark = "" if tag.closes else f"{'#' * _HEADINGS[tag.name]} "
        elif tag.name == "dl" or (not self._lists and self._term is None):
            self._term = None
            self._flush_lines()

    def _list_tag(self, tag: _Tag) -> None:
        if tag.closes:
            self._lists = self._lists[:-1]
        elif len(self._lists) < _DEEPEST:
            self._lists.append(0 if tag.name == "ol" else -1)
        if not self._lists:
            self._flush_lines()

    def _item_tag(self, tag: _Tag) -> None:
        if tag.name == "dt" and not tag.closes:
            self._term = ""
        elif tag.name == "li" and not tag.closes:
            if self._lists and self._lists[-1] >= 0:
                self._lists[-1] += 1
            number = self._lists[-1] if self._lists else -1
            self._mark = f"{'  ' * (len(self._lists) - 1)}{f'{number}.' if number > 0 else '-'} "

    def _flush(self) -> None:
        """End the text that is open: a heading, an item, a term or its definition, a paragraph."""
        joined = "".join(self._text)
        lines = (line.rstrip() if self._pre else " ".join(line.split()) for line in joined.split("\n"))
        text = "\n".join(f"\\{line}" if line.lstrip().startswith(_MARKDOWN) else line for line in lines)
        text, self._text = text.strip("\n"), []
        if not text.strip():
            return
        if self._mark.startswith("#"):
            self.blocks.append(self._mark + " ".join(text.split()))
        elif self._mark or self._lists:
            self._lines.append(f"{self._mark or '  ' * len(self._lists)}{' '.join(text.split())}")
        elif self._term == "":
            self._term = " ".join(text.split())
        elif self._term is not None:
            self._lines.append(f"{self._term.rstrip(' :')}: {' '.join(text.split())}")
        else:
            self._flush_lines()
            self.blocks.append(text)
        self._mark = ""

    def _flush_lines(self) -> None:
        if self._lines:
            self.blocks.append("\n".join(self._lines))
            self._lines = []

    def _table_tag(self, tag: _Tag) -> None:
        table = self._open_table()
        if tag.name == "table":
            if tag.closes:
                if self._tables:
                    self._end_table()
                return
            if table is not None:
                self._lay_out(table)
            self._flush()
            self._flush_lines()
            self._tables.append(_Table())
        elif table is None or tag.name == "caption":
            self._flush()
        elif tag.name == "tr":
            self._end_cell(table)
            table.end_row()
            table.row = None if tag.closes else []
        else:
            self._end_cell(table)
            if not tag.closes:
                first = not table.rows and not table.row
                table.heads = tag.name == "th" if first else table.heads and (bool(table.rows) or tag.name == "th")
                table.cell = True
                table.span = (_span(tag, "colspan"), _span(tag, "rowspan"))

    def _end_cell(self, table: _Table) -> None:
        """The text since the last cell is that of the open one; between cells there is none, or a paragraph."""
        if not table.cell:
            self._flush()
            return
        text = " ".join("".join(self._text).replace("|", r"\|").split())
        self._text = []
        table.add(text)

    def _end_table(self) -> None:
        table = self._tables[-1]
        if table.lays_out:
            self._flush()
        else:
            self._end_cell(table)
            table.end_row()
            self._write(table)
        self._tables.pop()

    def _write(self, table: _Table) -> None:
        self.blocks += table.blocks()
        table.rows = []

    def _lay_out(self, table: _Table) -> None:
        """Take a table for one that lays out the page: what it has so far, then its cells as paragraphs."""
        row, table.row = table.row or [], None
        self._write(table)
        self.blocks.extend(cell for cell in row if cell)
        table.lays_out = True
        self._flush()


def _span(tag: _Tag, name: str) -> int:
    """Columns or rows of a cell, from 1."""
    stated = tag.attribute(name)
    return min(max(int(stated), 1), _SPAN) if stated.isascii() and stated.isdecimal() and len(stated) < 5 else 1
