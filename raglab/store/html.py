"""Web pages (shore): the blocks of HTML, and of what Markdown and reStructuredText become in HTML.

selectolax parses as browsers do; one walk over its tree, without recursion, makes the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from raglab.store.blocks import Block, BlockKind
from raglab.store.files import Where, input_error

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

PAGE_MARK = re.compile(r'<!-- page ([0-9]{1,9})(?: label="([^"]*)")? -->')
MAX_DEPTH = 6  # of lists, as they are indented
_LIGHT = 1.0  # second
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?![A-Za-z])")
_BLANKS = re.compile(r"\s+")
# Misnested formatting elements make a parser of HTML5 copy them again and again. Under names that
# it does not know they are plain elements.
_FORMATTING = re.compile(
    r"<(/?)(a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE
)
# A browser that runs scripts reads it as a text that it does not show, whatever is open in it.
_NOSCRIPT = re.compile(r"<(/?)noscript(?=[\s/>])", re.IGNORECASE)
_RENAMED = re.compile(r"<(/?)x-(?=[a-z]+[\s/>])", re.IGNORECASE)
# Elements that run to the end of a page where they are not closed.
_HIDING = (
    "script",
    "style",
    "template",
    "noscript",
    "textarea",
    "iframe",
    "noembed",
    "noframes",
    "title",
    "xmp",
)
_INVISIBLE = frozenset(
    {
        *_HIDING,
        "svg",
        "mphantom",
        "head",
        "audio",
        "video",
        "canvas",
        "datalist",
        "annotation",
        "annotation-xml",
        "-comment",
    }
    # struck text is no longer said
    | {"nav", "select", "option", "input", "del", "x-s", "x-strike"}
)
# What a page has around its content, whatever the element.
_FURNITURE_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "search", "dialog", "menu", "menubar", "toolbar"}
)
# whose headers and footers are not those of the page
_CONTENT = frozenset({"article", "main", "section"})
# What follows them does not stand below their headings. Those beside the text stand below the
# heading above them.
_BESIDE = frozenset({"aside", "blockquote", "details", "dialog", "fieldset", "figure"})
_OWN_HEADINGS = frozenset({"article", "main", *_BESIDE})
_NO_LEVEL = 7  # of a heading
_HIDDEN_STYLE = re.compile(
    r"(?:^|;)\s*(?:(display)\s*:\s*none|visibility\s*:\s*hidden)\s*(?:!\s*important\s*)?(?=;|$)",
    re.IGNORECASE,
)
_LISTS = frozenset({"ul", "ol", "menu", "dir"})
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    {
        *_LISTS,
        *_HEADINGS,
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "dd",
        "details",
    }
    | {
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hr",
        "html",
    }
    | {
        "legend",
        "li",
        "main",
        "nav",
        "option",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
    }
    | {"th", "thead", "tr"}
)
# a table that holds one of them lays out the page
_LAYOUT = frozenset({*_HEADINGS, "table", "pre"})
_RAISED = {"sup": "^", "sub": "_"}  # 10<sup>2</sup> must not become 102
# What stands before the second and third part of a formula in MathML: 1 over 2 must not become 12.
_JOINTS = {
    "mfrac": "/",
    "msup": "^",
    "mover": "^",
    "mroot": "^",
    "msub": "_",
    "munder": "_",
} | dict.fromkeys(("msubsup", "munderover", "mmultiscripts"), "_^")
# of matrices, whose cells are numbers of their own
_PARTED = frozenset({"mtr", "mlabeledtr", "mtd", "mspace"})
# What would be read as another kind of block at the beginning of a line.
_OTHER_KIND = re.compile(r"[ \t]*(?:#{1,6}(?:\s|$)|```|~~~|\|)")
_CODE_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language-|lang-|highlight-(?:source-)?)([\w+#.-]+)|^code (\w+) literal-block"
)
_SPAN = 1000  # columns or rows that a cell may take at most
_COPIES = 10  # of a table's cells that spans may make, for each cell that is written


class HtmlDocument(NamedTuple):
    """A page: its title and language, empty where it states none, and its blocks."""

    title: str
    language: str
    blocks: tuple[Block, ...]


def html_document(
    text: str,
    file: str,
    *,
    marks: bool = False,
    first: tuple[int, str | None] = (1, None),
    source: str = "",
    is_whole: bool = True,
) -> HtmlDocument:
    r"""Title, language and blocks of a page.

    A cell over several columns or rows stands in each; one that is hidden is an empty one in its
    place. What a browser does not show as text (comments, scripts, styles, drawings, what is
    hidden) is left out, as are the targets of links. A table that holds headings, code or tables
    lays out the page: its cells are blocks.

    What stands around the content is left out too: `nav`, forms' buttons and choices (a button that
    is all of a heading stays), elements with a role such as `navigation` or `banner`, and on a
    whole page the `header` and `footer` outside `article`, `main` and `section`. Where a page has
    one `main` element, or one of that role, with text, that alone is read. Text behind an
    `article`, a `main`, or what stands beside the text (an `aside`, a quote, details, a figure)
    does not stand below the headings in it; the headings of the latter stand below the one above
    it.

    Of formulas in MathML parts keep apart: 1/2 for a fraction, x^2 for a power, between brackets
    where a part is long.

    Args:
      text: of the page.
      file: for messages.
      marks: whether comments like `<!-- page 2 label="i" -->` begin pages.
      first: number and label of the page before the first mark.
      source: what the page was made of, whose lines messages name; empty: the page.
      is_whole: whether it is a page with a header, a footer and a main part, and no text with HTML
        in it.

    Raises:
      InputError: a comment, or an element whose content is not shown, does not end.

    Example:
      >>> page = html_document(
      ...     "<title>Hail</title><h1>Cover</h1><p>Glass is <b>covered</b>.<ul><li>Cars", "a.html"
      ... )
      >>> [(block.kind, block.text) for block in page.blocks]
      [('heading', 'Cover'), ('text', 'Glass is covered.'), ('item', '- Cars')]
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(_NOSCRIPT.sub(r"<\1template", _FORMATTING.sub(r"<\1x-\2", text)))
    root = tree.root
    if root is None:
        return HtmlDocument("", "", ())
    _check_end((root, tree.head), source or text, file)
    title = tree.css_first("head > title")
    stated = _LANGUAGE.match(root.attributes.get("lang") or root.attributes.get("xml:lang") or "")
    walk = _PageWalk(first, marks=marks)
    main = _only_main(root) if is_whole and tree.css_first("main, [role]") is not None else None
    if main is not None:
        walk.read(main)
    if all(block.kind == "heading" for block in walk.blocks):
        walk = _PageWalk(first, marks=marks)
        walk.read(root, is_whole=is_whole)
    return HtmlDocument(
        title="" if title is None else " ".join(_RENAMED.sub(r"<\1", title.text()).split()),
        language="" if stated is None else stated[0].lower(),
        blocks=tuple(walk.blocks),
    )


def is_light_html(text: str) -> bool:
    """Whether a page, however it is built, is parsed within about a second.

    A parser of HTML5 looks through all open elements at each tag, and through all attributes of a
    tag at each one.
    """
    tags = text.count("<") ** 2 * 4e-9
    return tags + sum(len(part) ** 2 for part in text.split(">")) * 1e-10 < _LIGHT


def _check_end(roots: Iterable[LexborNode | None], text: str, file: str) -> None:
    """Stop if a comment or a hidden element is not closed and so hides the rest of the page."""
    names = {"noscript"}
    for root in roots:
        node = root
        while node is not None:
            names.add(node.tag or "")
            node = node.last_child
    small = text.lower()
    for name in sorted(name for name in names if name == "-comment" or name in _HIDING):
        opening, closing = ("<!--", "-->") if name == "-comment" else (f"<{name}", f"</{name}")
        start = small.rfind(opening)
        if (
            start >= 0
            and small.find(closing, start) < 0
            and not small.startswith(("<!-->", "<!--->"), start)
        ):
            where = Where(file, text.count("\n", 0, start) + 1)
            kind = "a comment" if name == "-comment" else f"an element {name}"
            raise input_error(
                where, f"{kind} must end with {closing.rstrip('>')}>", "close it", "none to the end"
            )


def _only_main(root: LexborNode) -> LexborNode | None:
    """The main part of a page that has one; those within it are part of it."""
    mains: list[LexborNode] = []
    depth = 0
    for node, enters in _steps(root, is_whole=True):
        if node.tag == "main" or _role(node) == "main":
            if enters and not depth:
                mains.append(node)
            depth += 1 if enters else -1
    return mains[0] if len(mains) == 1 else None


def _role(node: LexborNode) -> str:
    """First role that an element states."""
    return next(iter((node.attributes.get("role") or "").lower().split()), "")


def _is_invisible(node: LexborNode) -> bool:
    """Whether a browser shows nothing of a node, or it is page furniture wherever it stands."""
    if node.tag in _INVISIBLE or (node.tag == "button" and not _is_all_of_a_heading(node)):
        return True
    attributes = node.attributes
    if not attributes:
        return node.tag == "dialog"
    return (
        ("hidden" in attributes and attributes["hidden"] != "until-found")
        or (attributes.get("aria-hidden") or "").strip().lower() == "true"
        or _hidden_style(attributes) is not None
        or (node.tag == "dialog" and "open" not in attributes)
        or _role(node) in _FURNITURE_ROLES
        or (node.tag == "x-a" and _is_link_to_itself(node, attributes))
    )


def _hidden_style(attributes: dict[str, str | None]) -> re.Match[str] | None:
    """What of a style hides an element; its group stands where that takes no place either."""
    style = attributes.get("style")
    return None if style is None else _HIDDEN_STYLE.search(re.sub(r"/\*.*?\*/", "", style))


def _keeps_its_place(node: LexborNode) -> bool:
    """Whether an invisible node is a cell whose place the next ones do not take, as in browsers."""
    if node.tag not in {"td", "th"} or "hidden" in node.attributes:
        return False
    style = _hidden_style(node.attributes)
    return style is None or not style[1]


def _is_all_of_a_heading(node: LexborNode) -> bool:
    """Whether a node holds all text of a heading, as when it opens and closes what follows."""
    heading, before, after = node.parent, node.prev, node.next
    if heading is None or heading.tag not in _HEADINGS:
        return False
    return (before is None or (before.prev is None and _is_blank(before))) and (
        after is None or (after.next is None and _is_blank(after))
    )


def _is_blank(node: LexborNode) -> bool:
    return node.tag == "-text" and not (node.text_content or "").strip()


def _is_link_to_itself(node: LexborNode, attributes: dict[str, str | None]) -> bool:
    """Whether a link is the sign beside a heading by which others can link to it."""
    child = node.child
    if (
        not (attributes.get("href") or "").startswith("#")
        or child is None
        or child.next is not None
    ):
        return False
    return child.tag == "-text" and not any(map(str.isalnum, child.text_content or ""))


def _steps(root: LexborNode, *, is_whole: bool = False) -> Iterator[tuple[LexborNode, bool]]:
    """Visible nodes below one, and comments, in their order.

    With True, and with False behind what they hold.

    Of a whole page, headers and footers outside its content are left out.
    """
    node, depth = root.child, 1
    content = 0 if is_whole else 1  # open elements of content
    while node is not None:
        is_outside = not content and node.tag in {"header", "footer"}
        if node.tag == "-comment" or not (is_outside or _is_invisible(node)):
            yield node, True
            if node.child is not None:
                content += node.tag in _CONTENT
                node, depth = node.child, depth + 1
                continue
            yield node, False
        elif _keeps_its_place(node):
            yield node, True
            yield node, False
        while node.next is None:
            node, depth = node.parent, depth - 1
            if depth == 0 or node is None:
                return
            content -= node.tag in _CONTENT
            yield node, False
        node = node.next


def _lays_out(table: LexborNode) -> bool:
    """Whether a table holds what is a block of the page."""
    return any(node.tag in _LAYOUT for node, _ in _steps(table))


class _Table:
    """A table as far as it was read.

    Spans: text and rows to come of cells over several rows, by column.
    """

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.row: list[str] = []
        self.has_head = False
        self._cells = 0  # written in the open row
        self._heads = 0  # of these
        self._spans: dict[int, tuple[str, int]] = {}
        self._room = _SPAN  # copies that spans may still make

    def add(self, text: str, node: LexborNode) -> None:
        """End a cell with its text."""
        self._fill()
        columns, rows = (
            _span(node, "colspan"),
            _span(node, "rowspan") if _number(node, "rowspan", 1) else _SPAN,
        )
        self._room += _COPIES
        self._cells += 1
        self._heads += node.tag == "th"
        for _ in range(min(columns, self._room)):
            if rows > 1:
                self._spans[len(self.row)] = (text, rows - 1)
            self.row.append(text)
            self._room -= 1

    def _fill(self) -> None:
        """Cells of earlier rows that reach down to the next place of this one."""
        while len(self.row) in self._spans and self._room > 0:
            text, rows = self._spans.pop(len(self.row))
            if rows > 1:
                self._spans[len(self.row)] = (text, rows - 1)
            self.row.append(text)
            self._room -= 1

    def end_row(self, *, in_head: bool) -> None:
        """End a row; the first one is the head where all its cells are heads."""
        self._fill()
        if any(self.row):
            if not self.rows:
                self.has_head = in_head or self._heads == self._cells
            self.rows.append(self.row)
        self.row, self._cells, self._heads = [], 0, 0

    def end_group(self) -> None:
        """End a group of rows, which no cell reaches beyond.

        One of `rowspan="0"` reaches so far.
        """
        self._spans.clear()


def _span(node: LexborNode, name: str) -> int:
    """Columns or rows of a cell, from 1."""
    return min(max(_number(node, name, 1), 1), _SPAN)


def _number(node: LexborNode, name: str, default: int) -> int:
    """Whole number of an attribute."""
    stated = (node.attributes.get(name) or "").strip()
    return int(stated) if stated.isascii() and stated.isdecimal() and len(stated) < 7 else default


class _Shift:
    """How far headings of a part beside the text move to stand below the heading above it."""

    def __init__(self, above: int) -> None:
        self._above = above
        self._shift: int | None = None  # as the first of them needs it

    def level_below(self, level: int) -> int:
        """Level of a heading in the part."""
        if self._shift is None:
            self._shift = max(0, self._above + 1 - level)
        return min(max(level + self._shift, self._above + 1), len(_HEADINGS))


class _PageWalk:
    """The blocks of a page as they are read."""

    def __init__(self, first: tuple[int, str | None], *, marks: bool) -> None:
        self.blocks: list[Block] = []
        self._page = first
        self._marks = marks
        self._text: list[str] = []
        self._code = 0  # open elements of code within a line
        self._code_start = 0  # where the outermost of them begins in the text
        self._tables: list[_Table | None] = []  # None for one that lays out the page
        # number of the last item of each open list; -1 where they have none
        self._lists: list[int] = []
        self._mark = ""  # of an item whose text follows
        self._heading = 0
        self._levels: list[int] = []  # highest heading of each open part that has its own
        # levels of the headings that the next text stands below
        self._open_headings: list[int] = []
        self._shifts: list[_Shift] = []  # of each open part beside the text
        self._ended = _NO_LEVEL  # highest heading that the next text does not stand below
        self._term: str | None = None  # that a definition is awaited for
        self._in_term = False
        self._pre = 0  # open elements of preformatted text
        self._formulas = 0  # open elements of MathML
        self._language = ""  # of code

    def read(self, root: LexborNode, *, is_whole: bool = False) -> None:
        """Make the blocks of what is below a node, which is a whole page or content."""
        for node, enters in _steps(root, is_whole=is_whole):
            tag = node.tag or ""
            if tag == "-text":
                if enters and not (self._formulas and _is_between_parts(node)):
                    text = node.text_content or ""
                    self._text.append(text if self._pre else _BLANKS.sub(" ", text))
            elif tag == "-comment":
                if enters and self._marks and (mark := PAGE_MARK.fullmatch(node.html or "")):
                    self._flush()
                    self._page = (int(mark[1]), mark[2] or None)
            elif enters:
                self._enter(tag, node)
            else:
                self._leave(tag, node)
        self._flush()
        self._end_term()

    def _enter(self, tag: str, node: LexborNode) -> None:
        self._formulas += tag == "math"
        if self._formulas:
            self._text += _before_part(tag, node)
        if tag in {"br", "img"} or tag in _RAISED:
            shown = (node.attributes.get("alt") or "").strip() if tag == "img" else ""
            self._text.append(
                "\n" if tag == "br" else f" {shown} " if tag == "img" else _RAISED[tag]
            )
        elif self._pre:
            self._pre += tag == "pre"
            self._language = self._language or _code_language(node)
        elif tag == "x-code" or _is_code(tag, node):
            self._code += 1
            self._code_start = len(self._text) if self._code == 1 else self._code_start
        elif self._tables and self._tables[-1] is not None:
            if tag in _BLOCKS:  # what is in a cell stays in it
                self._text.append(" ")
        elif tag in _BLOCKS:
            self._flush()
            self._enter_block(tag, node)

    def _enter_block(self, tag: str, node: LexborNode) -> None:
        if tag == "table":
            self._tables.append(None if _lays_out(node) else _Table())
        elif tag == "pre":
            self._pre = 1
            self._language = next(
                (name for above in _above(node) if (name := _code_language(above))), ""
            )
        elif tag in _LISTS:
            self._end_term()
            self._lists.append(_number(node, "start", 1) - 1 if tag == "ol" else -1)
        elif tag == "li":
            if self._lists and self._lists[-1] >= 0:
                self._lists[-1] = _number(node, "value", self._lists[-1] + 1)
            number = self._lists[-1] if self._lists else -1
            self._mark = f"{number}. " if number >= 0 else "- "
        elif tag == "dt":
            self._in_term = True
        elif tag in _HEADINGS:
            self._end_term()
            self._heading = _HEADINGS[tag]
        elif tag in _OWN_HEADINGS:
            self._end_term()
            self._levels.append(_NO_LEVEL)
            if tag in _BESIDE:
                self._shifts.append(_Shift(self._open_headings[-1] if self._open_headings else 0))

    def _leave(self, tag: str, node: LexborNode) -> None:
        if self._formulas and _is_bracketed(node):
            self._text.append(")")
        self._formulas -= tag == "math"
        if self._pre:
            self._leave_pre(tag)
        elif tag == "x-code" or _is_code(tag, node):
            self._code -= 1
            if not self._code:
                self._text[self._code_start :] = [
                    _code_span("".join(self._text[self._code_start :]))
                ]
        elif self._tables and (table := self._tables[-1]) is not None:
            self._leave_in_table(table, tag, node)
        elif tag in _BLOCKS:
            self._flush()
            self._leave_block(tag)

    def _leave_block(self, tag: str) -> None:
        if tag == "table":
            self._tables.pop()
        elif tag in _LISTS:
            self._lists.pop()
            self._mark = ""
        elif tag == "li":
            self._mark = ""
        elif tag == "dt":
            self._in_term = False
        elif tag == "dl":
            self._end_term()
        elif tag in _HEADINGS:
            self._heading = 0
        elif tag in _OWN_HEADINGS:
            self._end_term()
            level = self._levels.pop()
            if tag in _BESIDE:
                self._shifts.pop()
            self._ended = min(self._ended, level)
            if self._levels:
                self._levels[-1] = min(self._levels[-1], level)

    def _leave_in_table(self, table: _Table, tag: str, node: LexborNode) -> None:
        if tag in {"td", "th"}:
            text = " ".join("".join(self._text).replace("|", r"\|").split())
            self._text, self._code_start = [], 0
            table.add(text, node)
        elif tag == "tr":
            parent = node.parent
            table.end_row(in_head=parent is not None and parent.tag == "thead")
        elif tag in {"thead", "tbody", "tfoot"}:
            table.end_group()
        elif tag == "caption":
            self._flush()
        elif tag == "table":
            self._tables.pop()
            self._text, self._code_start = [], 0
            lines = [f"| {' | '.join(row)} |" for row in table.rows]
            if table.has_head and lines:
                lines.insert(1, f"|{'---|' * len(table.rows[0])}")
            if lines:
                self._end_term()
                self._add("table", "\n".join(lines))
        elif tag in _BLOCKS:
            self._text.append(" ")

    def _leave_pre(self, tag: str) -> None:
        if tag != "pre":
            if tag in _BLOCKS and self._text and not self._text[-1].endswith("\n"):
                self._text.append("\n")
            return
        self._pre -= 1
        if self._pre:
            return
        code = "\n".join(line.rstrip() for line in "".join(self._text).split("\n")).strip("\n")
        self._text, self._code_start = [], 0
        if code.strip():
            self._end_term()
            self._add("code", fenced(code, self._language))

    def _flush(self) -> None:
        """End the text that is open: a heading, an item, a term or its definition, a paragraph."""
        lines = [" ".join(line.split()) for line in "".join(self._text).split("\n")]
        self._text, self._code_start = [], 0
        text = "\n".join(filter(None, lines))
        line = " ".join(filter(None, lines))
        if not text:
            return
        if self._heading:
            self._add("heading", line, self._heading)
        elif self._in_term:
            self._term = line if self._term is None else f"{self._term}, {line}"
        else:
            if self._term is not None:
                term, self._term = self._term.rstrip(" :"), None
                text, line = f"{term}: {text}", f"{term}: {line}"
            if self._mark or self._lists:
                level = min(max(len(self._lists), 1), MAX_DEPTH)
                self._add("item", f"{'  ' * (level - 1)}{self._mark or '  '}{line}", level)
                self._mark = ""
            else:
                self._add("text", escaped(text))

    def _end_term(self) -> None:
        """A term without a definition in words is a text of its own."""
        if self._term is not None and not self._in_term:
            term, self._term = self._term, None
            self._add("text", escaped(term))

    def _add(self, kind: BlockKind, text: str, level: int = 0) -> None:
        number, label = self._page
        if kind == "heading":
            for shift in self._shifts:
                level = shift.level_below(level)
        if self._ended < _NO_LEVEL and (kind != "heading" or level > self._ended):
            self._open_headings = [above for above in self._open_headings if above < self._ended]
            self.blocks.append(Block("heading", "", self._ended, number, label))
        self._ended = _NO_LEVEL
        if kind == "heading":
            self._open_headings = [
                *(above for above in self._open_headings if above < level),
                level,
            ]
            if self._levels:
                self._levels[-1] = min(self._levels[-1], level)
        self.blocks.append(Block(kind, text, level, number, label))


def _before_part(tag: str, node: LexborNode) -> Iterator[str]:
    """What stands before a part of a MathML formula so that it does not merge with the last one."""
    parent, before = node.parent, _element_before(node)
    joints = "" if parent is None else _JOINTS.get(parent.tag or "", "")
    if joints and before is not None:
        yield joints[0] if _element_before(before) is None else joints[-1]
    # 3 1/2 is no 31/2
    elif tag in _PARTED or (tag == "mfrac" and before is not None and before.tag == "mn"):
        yield " "
    if tag == "msqrt":
        yield "√"
    if _is_bracketed(node):
        yield "(1/" if parent is not None and parent.tag == "mroot" and before is not None else "("


def _is_bracketed(node: LexborNode) -> bool:
    """Whether brackets keep a part of a formula together: a root, or what has parts itself."""
    parent = node.parent
    if node.tag == "msqrt" or parent is None or parent.tag not in _JOINTS:
        return node.tag == "msqrt"
    if parent.tag == "mroot" and _element_before(node) is not None:  # its degree
        return True
    leaf: LexborNode | None = node
    while leaf is not None and leaf.tag in {"mrow", "mstyle", "mpadded"}:
        children = [*leaf.iter(include_text=False)]
        if len(children) != 1:
            return bool(children)
        leaf = children[0]
    return leaf is not None and leaf.tag in _JOINTS


def _is_between_parts(node: LexborNode) -> bool:
    """Whether a text is blank between the parts of a formula, which means nothing there."""
    return node.parent is not None and node.parent.tag in _JOINTS and _is_blank(node)


def _element_before(node: LexborNode) -> LexborNode | None:
    """Nearest element before a node in the same one."""
    before = node.prev
    while before is not None and before.tag in {"-text", "-comment"}:
        before = before.prev
    return before


def escaped(text: str) -> str:
    r"""Text with a backslash before what would begin another kind of block.

    Example:
      >>> print(escaped("# not a heading"))
      \# not a heading
    """
    return "\n".join(
        f"\\{line.lstrip()}" if _OTHER_KIND.match(line) else line for line in text.split("\n")
    )


def fenced(code: str, language: str = "") -> str:
    """Code between fences that are longer than any in it."""
    runs = re.findall(r"^[ \t]*(`{3,})", code, re.MULTILINE)
    fence = "`" * (max(map(len, runs), default=2) + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def _code_span(text: str) -> str:
    """Text between backticks, one more than any run of them in it."""
    code = " ".join(text.split())
    if not code:
        return text
    ticks = "`" * (max(map(len, re.findall(r"`+", code)), default=0) + 1)
    room = " " if code.startswith("`") or code.endswith("`") else ""
    before, after = " " * text[:1].isspace(), " " * text[-1:].isspace()
    return f"{before}{ticks}{room}{code}{room}{ticks}{after}"


def _above(node: LexborNode) -> Iterator[LexborNode]:
    """A node and the two that it stands in."""
    above: LexborNode | None = node
    for _ in range(3):
        if above is not None:
            yield above
            above = above.parent


def _code_language(node: LexborNode) -> str:
    """Language of code that a class states, as pages of Markdown, Sphinx and docutils write it."""
    name = _CODE_LANGUAGE.search(node.attributes.get("class") or "")
    return "" if name is None else name[1] or name[2]


def _is_code(tag: str, node: LexborNode) -> bool:
    """Whether an element is code within a line as docutils writes it."""
    return tag == "span" and node.attributes.get("class") == "docutils literal"
