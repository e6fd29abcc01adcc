"""Web pages (shore): the blocks of HTML, and of what Markdown, reStructuredText and Word become.

selectolax parses as browsers do; one walk over its tree, without recursion, makes the blocks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from raglab.store.blocks import Block, BlockKind, DocumentBlocks, escaped, fenced
from raglab.store.files import Where, input_error, shown_value

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

PAGE_MARK = re.compile(r'<!-- page ([0-9]{1,9})(?: label="([^"]*)")? -->')
_MAX_DEPTH = 6  # of lists, as they are indented
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?![A-Za-z])")
_BLANKS = re.compile(r"\s+")
# Misnested formatting elements make a parser of HTML5 copy them again and again. Under names that
# it does not know they are plain elements.
_FORMATTING = re.compile(
    r"<(/?)(a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE
)
# A browser that runs scripts reads it as a text that it does not show, whatever is open in it.
_NOSCRIPT = re.compile(r"<(/?)noscript(?=[\s/>])", re.IGNORECASE)


def names(text: str) -> tuple[str, ...]:
    """Names in a text, with commas between them."""
    return tuple(text.split(","))


# Elements that run to the end of a page where they are not closed.
_ENDLESS = names("script,style,template,noscript,textarea,iframe,noembed,noframes,title,xmp")
# What a page has around its content, whatever the element.
_ROLES = names("navigation,banner,contentinfo,search,dialog,menu,menubar,toolbar")
# What a browser does not show as text, controls of forms, and struck text, which holds no more.
_UNSHOWN = ",".join(
    [
        *_ENDLESS,
        "svg,mphantom,head,audio,video,canvas,datalist,annotation,annotation-xml,nav,select",
        "option,input,del,x-s,x-strike,button,dialog:not([open]),[aria-hidden=true i]",
        *(f"[role={role} i],[role^='{role} ' i]" for role in _ROLES),
    ]
)
_GONE = "[hidden]:not([hidden=until-found i])"
_MAIN = "main,[role=main i],[role^='main ' i]"
_HIDDEN_STYLE = re.compile(
    r"(?:^|;)\s*(?:(display)\s*:\s*none|visibility\s*:\s*hidden)\s*(?:!\s*important\s*)?(?=;|$)",
    re.IGNORECASE,
)
# Elements whose headers and footers are not those of the page.
_CONTENT = frozenset({"article", "main", "section"})
# What stands beside the text has headings below the one above it; text behind does not stand
# below them.
_BESIDE = frozenset({"aside", "blockquote", "details", "dialog", "fieldset", "figure"})
_OWN_HEADINGS = frozenset({"article", "main", *_BESIDE})
_LISTS = frozenset({"ul", "ol", "menu", "dir"})
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    names(
        "address,body,caption,center,dd,div,dl,dt,figcaption,footer,form,header,hr,html,legend,li,"
        "nav,option,p,pre,section,summary,table,tbody,td,tfoot,th,thead,tr"
    )
).union(_LISTS, _HEADINGS, _OWN_HEADINGS)
# A table that holds one of them lays out the page.
_LAYOUT = frozenset({*_HEADINGS, "table", "pre"})
# What an element puts before its text: 10<sup>2</sup> is no 102, and 1 over 2 no 12.
_BEFORE = {"br": "\n", "sup": "^", "sub": "_"} | dict.fromkeys(("mn", "mi", "mtd", "mspace"), " ")
_CODE_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language-|lang-|highlight-(?:source-)?)([\w+#.-]+)|^code (\w+) literal-block"
)
_SPAN = 1000  # columns or rows that a cell may take at most
_COPIES = 10  # of a table's cells that spans may make, for each cell that is written


def html_document(
    text: str,
    *,
    marks: bool = False,
    first: tuple[int, str | None] = (1, None),
    is_whole: bool = True,
) -> DocumentBlocks:
    r"""Blocks of a page, with its title and language as tags.

    A cell over several columns or rows stands in each; one that is hidden is an empty one in its
    place. What a browser does not show as text (comments, scripts, styles, drawings, what is
    hidden) is left out, as are the targets of links. A table that holds headings, code or tables
    lays out the page: its cells are blocks.

    What stands around the content is left out too: `nav`, controls of forms (a button that is all
    of a heading stays), elements with a role such as `navigation`, and on a whole page the `header`
    and `footer` outside `article`, `main` and `section`. Where a page has one `main` with text,
    that alone is read. Text behind an `article`, a `main`, or what stands beside the text (an
    `aside`, a quote, details, a figure) does not stand below the headings in it.

    Args:
      text: of the page.
      marks: whether comments like `<!-- page 2 label="i" -->` begin pages.
      first: number and label of the page before the first mark.
      is_whole: whether it is a page with a header, a footer and a main part, and no text with HTML
        in it.

    Raises:
      InputError: a comment, or an element whose content is not shown, does not end.

    Example:
      >>> page = html_document("<h1>Cover</h1><p>Glass is <b>covered</b>.<ul><li>Cars")
      >>> [(block.kind, block.text) for block in page.blocks]
      [('heading', 'Cover'), ('text', 'Glass is covered.'), ('item', '- Cars')]
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(_NOSCRIPT.sub(r"<\1template", _FORMATTING.sub(r"<\1x-\2", text)))
    root = tree.root
    if root is None:
        return DocumentBlocks("", ())
    _check_end(tree, text)
    shown = _Shown(tree)
    mains = [node for node in tree.css(_MAIN) if is_whole and shown.holds(node)]
    blocks = _Walk(first, shown, marks=marks).read(mains[0]) if len(mains) == 1 else []
    if all(block.kind == "heading" for block in blocks):
        blocks = _Walk(first, shown, marks=marks).read(root, is_whole=is_whole)
    title = tree.css_first("head > title")
    name = "" if title is None else " ".join(title.text().split())
    stated = _LANGUAGE.match(root.attributes.get("lang") or root.attributes.get("xml:lang") or "")
    tags = {"title": name, "lang": "" if stated is None else stated[0].lower()}
    return DocumentBlocks(name, tuple(blocks), {key: value for key, value in tags.items() if value})


def _check_end(tree: LexborHTMLParser, text: str) -> None:
    """Stop if a comment or a hidden element is not closed and so hides the rest of the page."""
    last = {"noscript"}  # elements that reach to the end
    for root in (tree.root, tree.head):
        node = root
        while node is not None:
            last.add(node.tag or "")
            node = node.last_child
    small = text.lower()
    for name in ("-comment", *_ENDLESS):
        begin, end = ("<!--", "-->") if name == "-comment" else (f"<{name}", f"</{name}")
        start = small.rfind(begin) if name in last else -1
        if start >= 0 and small.find(end, start) < 0:
            kind = "a comment" if name == "-comment" else f"an element {name}"
            end = f"{end.rstrip('>')}>"
            value = shown_value(text[start : start + 60])
            raise input_error(Where(""), f"{kind} must end with {end}", "close it", value)


def _number(node: LexborNode, name: str, default: int) -> int:
    """Whole number of an attribute."""
    value = (node.attributes.get(name) or "").strip()
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 7 else default


class _Shown:
    """What of a page is shown: the nodes that are not, by their ids."""

    def __init__(self, tree: LexborHTMLParser) -> None:
        self._gone = {node.mem_id for node in tree.css(_GONE)}  # take no place either
        self._hidden = {node.mem_id for node in tree.css(_UNSHOWN)}
        for node in tree.css("[style]"):
            style = re.sub(r"/\*.*?\*/", "", node.attributes.get("style") or "")
            if hides := _HIDDEN_STYLE.search(style):
                (self._gone if hides[1] else self._hidden).add(node.mem_id)
        # a button that is all of a heading opens and closes what follows
        for node in tree.css(":is(h1,h2,h3,h4,h5,h6)>button:only-child"):
            if node.parent is not None and node.text(strip=True) == node.parent.text(strip=True):
                self._hidden.discard(node.mem_id)
        # the sign beside a heading by which others can link to it
        for link in tree.css("x-a[href^='#']"):
            child = link.child
            is_text = child is not None and child.next is None and child.tag == "-text"
            if is_text and not any(map(str.isalnum, link.text())):
                self._hidden.add(link.mem_id)

    def holds(self, node: LexborNode) -> bool:
        """Whether a node is shown where what it stands in is."""
        return node.mem_id not in self._gone and node.mem_id not in self._hidden

    def steps(
        self, root: LexborNode, *, is_whole: bool = False
    ) -> Iterator[tuple[LexborNode, bool]]:
        """Shown nodes below a node, and comments, in their order.

        With True, and with False behind what they hold. Of a whole page, headers and footers
        outside its content are left out.
        """
        node, depth = root.child, 1
        content = 0 if is_whole else 1  # open elements of content
        while node is not None:
            is_shown = self.holds(node) and (content or node.tag not in {"header", "footer"})
            # as in browsers, a hidden cell keeps its place
            if is_shown or (node.tag in {"td", "th"} and node.mem_id not in self._gone):
                yield node, True
                if node.child is not None and is_shown:
                    content += node.tag in _CONTENT
                    node, depth = node.child, depth + 1
                    continue
                yield node, False
            while node.next is None:
                node, depth = node.parent, depth - 1
                if depth == 0 or node is None:
                    return
                content -= node.tag in _CONTENT
                yield node, False
            node = node.next


class _Table:
    """A table as far as it was read: the texts of its rows by their columns."""

    def __init__(self) -> None:
        self._rows: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._row = self._cells = self._heads = 0
        self._has_head = False
        self._room = _SPAN  # copies that spans may still make

    def add(self, text: str, node: LexborNode) -> None:
        """End a cell with its text."""
        cells = self._rows[self._row]
        column = next(place for place in range(len(cells) + 1) if place not in cells)
        columns, rows = _number(node, "colspan", 1), _number(node, "rowspan", 1) or _SPAN
        self._room += _COPIES
        self._cells += 1
        self._heads += node.tag == "th"
        for row in range(self._row, self._row + min(rows, _SPAN)):
            for place in range(column, column + min(max(columns, 1), _SPAN)):
                if self._room <= 0:
                    return
                self._rows[row][place] = text
                self._room -= 1

    def end_row(self, *, in_head: bool) -> None:
        """End a row; the first is the head where all its cells are heads."""
        if not any(self._rows[self._row].values()):
            self._rows[self._row] = {}
        elif not any(any(self._rows[row].values()) for row in range(self._row)):
            self._has_head = in_head or self._heads == self._cells
        self._row, self._cells, self._heads = self._row + 1, 0, 0

    def end_group(self) -> None:
        """End a group of rows, which no cell reaches beyond."""
        for row in [row for row in self._rows if row >= self._row]:
            del self._rows[row]

    def text(self) -> str:
        """Lines of the table, its head first where it has one."""
        self.end_group()
        rows = [cells for _, cells in sorted(self._rows.items()) if any(cells.values())]
        lines = [
            f"| {' | '.join(cells.get(n, '') for n in range(max(cells) + 1))} |" for cells in rows
        ]
        rule = [f"|{'---|' * (max(rows[0]) + 1)}"] if self._has_head and rows else []
        return "\n".join([*lines[:1], *rule, *lines[1:]])


class _Walk:
    """The blocks of a page as they are read."""

    def __init__(self, first: tuple[int, str | None], shown: _Shown, *, marks: bool) -> None:
        self._blocks: list[Block] = []
        self._page, self._shown, self._marks = first, shown, marks
        self._text: list[str] = []
        self._code: list[int] = []  # where open elements of code begin in the text
        self._tables: list[_Table | None] = []  # None for one that lays out the page
        self._lists: list[int] = []  # number of the last item of each; -1 where they have none
        self._mark = ""  # of an item whose text follows
        self._heading = 0
        self._above: list[int] = []  # levels of the headings that the next text stands below
        # Of each open part with headings of its own the level above it, and how far they move to
        # stand below that, as the first of them needs it.
        self._parts: list[tuple[int, int | None]] = []
        self._is_term = False  # whether a definition may follow the text
        self._pre = 0  # open elements of preformatted text
        self._language = ""  # of code

    def read(self, root: LexborNode, *, is_whole: bool = False) -> list[Block]:
        """Blocks of what is below a node, which is a whole page or content."""
        for node, enters in self._shown.steps(root, is_whole=is_whole):
            tag = node.tag or ""
            if tag == "-text":
                text = node.text_content or "" if enters else ""
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
        return self._blocks

    def _enter(self, tag: str, node: LexborNode) -> None:
        if tag in _BEFORE:
            self._text.append(_BEFORE[tag])
        elif tag == "img":
            self._text.append(f" {(node.attributes.get('alt') or '').strip()} ")
        elif self._pre:
            self._pre += tag == "pre"
            self._language = self._language or _code_language(node)
        elif _is_code(tag, node):
            self._code.append(len(self._text))
        elif self._tables and self._tables[-1] is not None:
            if tag in _BLOCKS:  # what is in a cell stays in it
                self._text.append(" ")
        elif tag in _BLOCKS:
            if not (self._is_term and tag in {"dd", "dt", "div", "p"}):
                self._flush()
            self._enter_block(tag, node)

    def _enter_block(self, tag: str, node: LexborNode) -> None:
        if tag == "table":
            lays_out = any(inner.tag in _LAYOUT for inner, _ in self._shown.steps(node))
            self._tables.append(None if lays_out else _Table())
        elif tag == "pre":
            self._pre = 1
            above = (node, node.parent, node.parent and node.parent.parent)
            self._language = next(filter(None, map(_code_language, filter(None, above))), "")
        elif tag in _LISTS:
            self._lists.append(_number(node, "start", 1) - 1 if tag == "ol" else -1)
        elif tag == "li":
            number = self._lists.pop() if self._lists else -1
            number = _number(node, "value", number + 1) if number >= 0 else -1
            self._lists.append(number)
            self._mark = f"{number}. " if number >= 0 else "- "
        elif tag in _HEADINGS:
            self._heading = _HEADINGS[tag]
        elif tag in _OWN_HEADINGS:
            self._parts.append((max(self._above, default=0), None))

    def _leave(self, tag: str, node: LexborNode) -> None:
        if self._pre:
            self._leave_pre(tag)
        elif self._code and _is_code(tag, node):
            start = self._code.pop()
            if not self._code:
                self._text[start:] = [_code_span("".join(self._text[start:]))]
        elif self._tables and (table := self._tables[-1]) is not None:
            self._leave_in_table(table, tag, node)
        elif tag == "dt":
            term = "".join(self._text).rstrip(" :")
            self._text[:] = [f"{term}: "] if term.strip() else []
            self._is_term = bool(self._text)
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
        elif tag in _HEADINGS:
            self._heading = 0
        elif tag in _OWN_HEADINGS:
            above, shift = self._parts.pop()
            if shift is not None:  # what follows does not stand below its headings
                self._end_headings(above + 1)
                self._add("heading", "", above + 1)

    def _leave_in_table(self, table: _Table, tag: str, node: LexborNode) -> None:
        if tag in {"td", "th"}:
            table.add(" ".join("".join(self._text).replace("|", r"\|").split()), node)
            self._text.clear()
        elif tag == "tr":
            table.end_row(in_head=node.parent is not None and node.parent.tag == "thead")
        elif tag in {"thead", "tbody", "tfoot"}:
            table.end_group()
        elif tag == "caption":
            self._flush()
        elif tag == "table":
            self._tables.pop()
            self._text.clear()
            if text := table.text():
                self._add("table", text)
        elif tag in _BLOCKS:
            self._text.append(" ")

    def _leave_pre(self, tag: str) -> None:
        if tag != "pre":
            if tag in _BLOCKS and self._text and not self._text[-1].endswith("\n"):
                self._text.append("\n")
            return
        self._pre -= 1
        code = "\n".join(line.rstrip() for line in "".join(self._text).split("\n")).strip("\n")
        if not self._pre:
            self._text.clear()
            if code.strip():
                self._add("code", fenced(code, self._language))

    def _flush(self) -> None:
        """End the text that is open: a heading, an item, a term or its definition, a paragraph."""
        lines = [" ".join(line.split()) for line in "".join(self._text).split("\n")]
        lines = [line for line in lines if line]
        self._text.clear()
        self._code.clear()
        self._is_term = False
        line = " ".join(lines)
        if not line:
            return
        if self._heading:
            level = self._heading
            for place, (above, shift) in enumerate(self._parts):
                down = max(0, above + 1 - level) if shift is None else shift
                self._parts[place] = above, down
                level = min(max(level + down, above + 1), len(_HEADINGS))
            self._end_headings(level)
            self._above.append(level)
            self._add("heading", line, level)
        elif self._mark or self._lists:
            level = min(max(len(self._lists), 1), _MAX_DEPTH)
            self._add("item", f"{'  ' * (level - 1)}{self._mark or '  '}{line}", level)
            self._mark = ""
        else:
            self._add("text", escaped("\n".join(lines)))

    def _end_headings(self, level: int) -> None:
        """What follows stands below no heading of this level or a lower one."""
        self._above = [above for above in self._above if above < level]

    def _add(self, kind: BlockKind, text: str, level: int = 0) -> None:
        self._blocks.append(Block(kind, text, level, *self._page))


def _code_span(text: str) -> str:
    """Text between backticks, more than any run of them in it."""
    code = text.strip()
    ticks = "`" * (max(map(len, re.findall(r"`+", code)), default=0) + 1)
    room = " " * ("`" in (code[:1], code[-1:]))
    return text.replace(code, f"{ticks}{room}{code}{room}{ticks}", 1) if code else text


def _code_language(node: LexborNode) -> str:
    """Language of code that a class states, as pages of Markdown, Sphinx and docutils write it."""
    name = _CODE_LANGUAGE.search(node.attributes.get("class") or "")
    return "" if name is None else name[1] or name[2]


def _is_code(tag: str, node: LexborNode) -> bool:
    """Whether an element is code within a line, also as docutils writes it."""
    return tag == "x-code" or (tag == "span" and node.attributes.get("class") == "docutils literal")
