"""Web pages (shore): the blocks of HTML, and of what Markdown, reStructuredText and Word become.

selectolax parses as browsers do. What is not shown is taken out of its tree, and one walk, without
recursion, makes the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count, groupby, product, repeat
from typing import TYPE_CHECKING

from raglab.store.blocks import Block, BlockKind, DocumentBlocks, escaped, fenced
from raglab.store.files import UNNAMED, input_error, shown_value

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


def names(text: str) -> tuple[str, ...]:
    """Names in a text, with commas between them."""
    return tuple(text.split(","))


# Elements that run to the end of a page where they are not closed.
_ENDLESS = names("script,style,template,noscript,textarea,iframe,noembed,noframes,title,xmp")
_GONE = "[hidden]:not([hidden=until-found i])"
# What a browser does not show as text, controls of forms, struck text, which holds no more, and
# what a page has around its content.
_UNSHOWN = ",".join(
    [
        _GONE,
        *_ENDLESS,
        "svg,mphantom,head,audio,video,canvas,datalist,annotation,annotation-xml,nav,select",
        "option,input,del,x-s,x-strike,button,dialog:not([open]),[aria-hidden=true i]",
        "[role~=navigation i],[role~=banner i],[role~=contentinfo i],[role~=search i]",
        "[role~=dialog i],[role~=menu i],[role~=menubar i],[role~=toolbar i]",
    ]
)
_MAIN = "main,[role~=main i]"
_HIDDEN_STYLE = re.compile(
    r"(?:^|;)\s*(?:(display)\s*:\s*none|visibility\s*:\s*hidden)\s*(?:!\s*important\s*)?(?=;|$)",
    re.IGNORECASE,
)
# Elements whose headers and footers are not those of the page.
_CONTENT = names("article,main,section")
# What stands beside the text has headings below the one above it; text behind does not stand
# below them.
_OWN_HEADINGS = names("article,main,aside,blockquote,details,dialog,fieldset,figure")
_LISTS = names("ul,ol,menu,dir")
_HEADINGS = names("h1,h2,h3,h4,h5,h6")
_BLOCKS = frozenset(
    names(
        "address,body,caption,center,dd,div,dl,dt,figcaption,footer,form,header,hr,html,legend,li,"
        "nav,option,p,pre,section,summary,table,tbody,td,tfoot,th,thead,tr"
    )
).union(_LISTS, _HEADINGS, _OWN_HEADINGS)
# A table that holds one of them lays out the page.
_LAYOUT = ",".join([*_HEADINGS, "table,pre"])
# What an element puts before its text: 10<sup>2</sup> is no 102, and 1 over 2 no 12.
_BEFORE = {"br": "\n", "sup": "^", "sub": "_"} | dict.fromkeys(("mn", "mi", "mtd", "mspace"), " ")
_CODE_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language-|lang-|highlight-(?:source-)?)([\w+#.-]+)|^code (\w+) literal-block"
)
_WHOLE = re.compile(r"\s*[0-9]{1,6}\s*")
_SPAN = 1000  # columns that a cell may take at most
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

    tree = LexborHTMLParser(_FORMATTING.sub(r"<\1x-\2", text), scripting=True)
    root = tree.root
    if root is None:
        return DocumentBlocks("", ())
    _check_end(tree, text)
    title = tree.css_first("head > title")
    name = "" if title is None else " ".join(title.text().split())
    _take_out_unshown(tree)
    mains = tree.css(_MAIN) if is_whole else []
    blocks = _PageWalk(first, marks=marks).blocks_of(mains[0]) if len(mains) == 1 else []
    if all(block.kind == "heading" for block in blocks):
        blocks = _PageWalk(first, marks=marks, is_whole=is_whole).blocks_of(root)
    stated = _LANGUAGE.match(root.attributes.get("lang") or root.attributes.get("xml:lang") or "")
    tags = {"title": name, "lang": "" if stated is None else stated[0].lower()}
    return DocumentBlocks(name, tuple(blocks), {key: value for key, value in tags.items() if value})


def _check_end(tree: LexborHTMLParser, text: str) -> None:
    """Stop if a comment or a hidden element is not closed and so hides the rest of the page."""
    last = set()  # nodes that reach to the end
    for root in (tree.root, tree.head):
        node = root
        while node is not None:
            last.add((node.tag or "").lstrip("-"))
            node = node.last_child
    small = text.lower()
    for name in last.intersection(("comment", *_ENDLESS)):
        begin, end = ("<!--", "-->") if name == "comment" else (f"<{name}", f"</{name}")
        start = small.rfind(begin)
        if start >= 0 and small.find(end, start) < 0:
            raise input_error(
                UNNAMED,
                f"a {name} must end with {end}",
                "close it",
                shown_value(text[start : start + 60]),
            )


def _take_out_unshown(tree: LexborHTMLParser) -> None:
    """Take out of a page what is not shown; as in browsers, a hidden cell keeps its place."""
    for node in tree.css("[style]"):
        style = re.sub(r"/\*.*?\*/", "", node.attributes["style"] or "")
        if hides := _HIDDEN_STYLE.search(style):
            node.attrs["hidden" if hides[1] else "aria-hidden"] = "true"
    # a button that is all of a heading opens and closes what follows
    for node in tree.css(":is(h1,h2,h3,h4,h5,h6)>button:only-child"):
        if node.parent is not None and node.text(strip=True) == node.parent.text(strip=True):
            node.unwrap()
    # the sign beside a heading by which others can link to it
    for node in tree.css("x-a[href^='#']:not(:has(*))"):
        if not any(map(str.isalnum, node.text())):
            node.decompose()
    # inner nodes first: what is taken out is freed with all it holds
    for node in reversed(tree.css(_UNSHOWN)):
        if node.tag in {"td", "th"} and not node.css_matches(_GONE):
            node.inner_html = ""
        elif node.tag != "html":
            node.decompose()


def _number(node: LexborNode, name: str, default: int) -> int:
    """Whole number of an attribute."""
    number = _WHOLE.fullmatch(node.attributes.get(name) or "")
    return default if number is None else int(number[0])


def _content(node: LexborNode, gap: str) -> str:
    """Text below a node, with a gap, a blank or a line feed, where blocks begin and end."""
    walk = _PageWalk((1, None), gap=gap)
    walk.read(node)
    return "".join(walk.text)


def _table_text(table: LexborNode) -> str:
    """Lines of a table, its head first where it has one; empty rows are left out."""
    lines: list[str] = []
    room = _SPAN  # copies that spans may still make
    # no cell reaches beyond its group of rows
    for _, group in groupby(table.css("tr"), lambda row: row.parent and row.parent.mem_id):
        rows = list(group)
        grid: list[dict[int, str]] = [{} for _ in rows]
        for start, row in enumerate(rows):
            cells = [cell for cell in row.iter() if cell.tag in {"td", "th"}]
            column = 0
            for cell in cells:
                while column in grid[start]:
                    column += 1
                text = " ".join(_content(cell, " ").replace("|", r"\|").split())
                wide = min(max(_number(cell, "colspan", 1), 1), _SPAN)
                deep = _number(cell, "rowspan", 1) or len(rows)
                room += _COPIES
                places = product(
                    range(start, min(start + deep, len(rows))), range(column, column + wide)
                )
                for line, place in places:
                    # a copy below widens its row up to its place
                    room -= 1 if line == start else place + 1
                    if room < 0:
                        break
                    grid[line][place] = text
            if any(grid[start].values()):
                width = max(grid[start]) + 1
                texts = (grid[start].get(place, "") for place in range(width))
                lines.append(f"| {' | '.join(texts)} |")
                in_head = row.css_matches("thead > tr")
                if len(lines) == 1 and (in_head or all(cell.tag == "th" for cell in cells)):
                    lines.append(f"|{'---|' * width}")
    return "\n".join(lines)


class _PageWalk:
    """The blocks of a page as they are read, or with a gap the text of a part as it is."""

    def __init__(
        self,
        first: tuple[int, str | None],
        *,
        marks: bool = False,
        gap: str = "",
        is_whole: bool = False,
    ) -> None:
        self.text: list[str] = []  # that is open
        self._blocks: list[Block] = []
        self._page, self._marks, self._gap = first, marks, gap
        self._inside = 0 if is_whole else 1  # open elements of content
        self._code: list[int] = []  # where open elements of code begin in the text
        self._lists: list[Iterator[str]] = []  # marks of the next items of each
        self._mark = ""  # of an item whose text follows
        self._heading = 0
        self._above = 0  # level of the heading that the next text stands below
        # Of each open part with headings of its own the level above it, and how far they move to
        # stand below that, as the first of them needs it.
        self._parts: list[tuple[int, int | None]] = []
        self._is_term = False  # whether a definition may follow the text

    def blocks_of(self, root: LexborNode) -> list[Block]:
        """Blocks of what is below a node."""
        self.read(root)
        self._flush()
        return self._blocks

    def read(self, root: LexborNode) -> None:
        """Read what is below a node."""
        node, depth = root.child, 1
        while node is not None:
            if self._enter(node) and node.child is not None:
                node, depth = node.child, depth + 1
                continue
            self._leave(node)
            while node.next is None:
                node, depth = node.parent, depth - 1
                if node is None or not depth:
                    return
                self._leave(node)
            node = node.next

    def _enter(self, node: LexborNode) -> bool:
        """Begin a node; whether what it holds is read next."""
        tag = node.tag or ""
        if tag == "-text":
            text = node.text_content or ""
            self.text.append(text if self._gap == "\n" else _BLANKS.sub(" ", text))
        elif tag == "-comment":
            if self._marks and (mark := PAGE_MARK.fullmatch(node.html or "")):
                self._flush()
                self._page = (int(mark[1]), mark[2] or None)
        elif tag == "img":
            self.text.append(f" {(node.attributes.get('alt') or '').strip()} ")
        elif tag in _BEFORE:
            self.text.append(_BEFORE[tag])
        elif tag in _BLOCKS:
            return self._enter_block(tag, node)
        elif self._gap != "\n" and _is_code(node):
            self._code.append(len(self.text))
        return True

    def _enter_block(self, tag: str, node: LexborNode) -> bool:
        if self._gap:
            self._part()
            return True
        if tag in {"header", "footer"} and not self._inside:
            return False
        self._inside += tag in _CONTENT
        if not (self._is_term and tag in {"dd", "dt", "div", "p"}):
            self._flush()
        if tag == "table" and not any(part.css_first(_LAYOUT) for part in node.iter()):
            for caption in node.css("caption"):
                self.text.append(_content(caption, " "))
                self._flush()
            self._add("table", _table_text(node))
            return False
        if tag == "pre":
            lines = [line.rstrip() for line in _content(node, "\n").split("\n")]
            if code := "\n".join(lines).strip("\n"):
                self._add("code", fenced(code, _code_language(node)))
            return False
        self._begin(tag, node)
        return True

    def _begin(self, tag: str, node: LexborNode) -> None:
        if tag in _LISTS:
            numbers = count(_number(node, "start", 1))
            is_numbered = tag == "ol"
            self._lists.append((f"{n}. " for n in numbers) if is_numbered else repeat("- "))
        elif tag == "li":
            self._mark = next(self._lists[-1]) if self._lists else "- "
        elif tag in _HEADINGS:
            self._heading = int(tag[1])
        elif tag in _OWN_HEADINGS:
            self._parts.append((self._above, None))

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if self._code and _is_code(node):
            start = self._code.pop()
            if not self._code:
                self.text[start:] = [_code_span("".join(self.text[start:]))]
        elif tag not in _BLOCKS:
            pass
        elif self._gap:
            self._part()
        elif tag == "dt":
            term = "".join(self.text).rstrip(" :")
            self.text[:] = [f"{term}: "] if term.strip() else []
            self._is_term = bool(self.text)
        else:
            self._flush()
            self._end(tag)

    def _end(self, tag: str) -> None:
        self._inside -= tag in _CONTENT
        if tag in _LISTS:
            self._lists.pop()
            self._mark = ""
        elif tag == "li":
            self._mark = ""
        elif tag in _HEADINGS:
            self._heading = 0
        elif tag in _OWN_HEADINGS:
            self._above, shift = self._parts.pop()
            if shift is not None:  # what follows does not stand below its headings
                self._blocks.append(Block("heading", "", self._above + 1, *self._page))

    def _part(self) -> None:
        """End a line or a word where a block begins or ends within text."""
        if self.text and not self.text[-1].endswith(self._gap):
            self.text.append(self._gap)

    def _flush(self) -> None:
        """End the text that is open: a heading, an item, a term or its definition, a paragraph."""
        lines = [" ".join(line.split()) for line in "".join(self.text).split("\n")]
        lines = [line for line in lines if line]
        self.text.clear()
        self._code.clear()
        self._is_term = False
        line = " ".join(lines)
        if self._heading and line:
            level = self._heading
            if self._parts:
                above, shift = self._parts[-1]
                shift = max(0, above + 1 - level) if shift is None else shift
                self._parts[-1] = above, shift
                level = min(max(level + shift, above + 1), len(_HEADINGS))
            self._above = level
            self._add("heading", line, level)
        elif line and (self._mark or self._lists):
            level = min(max(len(self._lists), 1), _MAX_DEPTH)
            self._add("item", f"{'  ' * (level - 1)}{self._mark or '  '}{line}", level)
            self._mark = ""
        else:
            self._add("text", escaped("\n".join(lines)))

    def _add(self, kind: BlockKind, text: str, level: int = 0) -> None:
        """Add a block, if it has text."""
        if text:
            self._blocks.append(Block(kind, text, level, *self._page))


def _code_span(text: str) -> str:
    """Text between backticks, more than any run of them in it."""
    code = text.strip()
    ticks = max(re.findall("`*", code), key=len) + "`"
    room = " " * ("`" in (code[:1], code[-1:]))
    return text.replace(code, f"{ticks}{room}{code}{room}{ticks}", 1) if code else text


def _code_language(pre: LexborNode) -> str:
    """Language of code that a class states, as pages of Markdown, Sphinx and docutils write it."""
    nodes = [pre, pre.parent, pre.parent and pre.parent.parent, *pre.css("x-code")]
    classes = (node.attributes.get("class") or "" for node in nodes if node)
    name = next(filter(None, map(_CODE_LANGUAGE.search, classes)), None)
    return "" if name is None else name[1] or name[2]


def _is_code(node: LexborNode) -> bool:
    """Whether an element is code within a line, also as docutils writes it."""
    return node.tag == "x-code" or node.attributes.get("class") == "docutils literal"
