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
_MAX_LIST_DEPTH = 6  # of lists, as they are indented
_LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}(?![A-Za-z])")
_BLANK_RUN = re.compile(r"\s+")
# Misnested formatting elements make a parser of HTML5 copy them again and again. Under names that
# it does not know they are plain elements.
_FORMATTING_TAG = re.compile(
    r"<(/?)(a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE
)


def names(listed_names: str) -> tuple[str, ...]:
    """Names in a text, with commas between them."""
    return tuple(listed_names.split(","))


# Elements that run to the end of a page where they are not closed.
_ENDLESS_TAGS = names("script,style,template,noscript,textarea,iframe,noembed,noframes,title,xmp")
_HIDDEN_SELECTOR = "[hidden]:not([hidden=until-found i])"
# What a browser does not show as text, controls of forms, struck text, which holds no more, and
# what a page has around its content.
_UNSHOWN_SELECTOR = ",".join(
    [
        _HIDDEN_SELECTOR,
        *_ENDLESS_TAGS,
        "svg,mphantom,head,audio,video,canvas,datalist,annotation,annotation-xml,nav,select",
        "option,input,del,x-s,x-strike,button,dialog:not([open]),[aria-hidden=true i]",
        "[role~=navigation i],[role~=banner i],[role~=contentinfo i],[role~=search i]",
        "[role~=dialog i],[role~=menu i],[role~=menubar i],[role~=toolbar i]",
    ]
)
_MAIN_SELECTOR = "main,[role~=main i]"
_HIDDEN_STYLE = re.compile(
    r"(?:^|;)\s*(?:(display)\s*:\s*none|visibility\s*:\s*hidden)\s*(?:!\s*important\s*)?(?=;|$)",
    re.IGNORECASE,
)
# Elements whose headers and footers are not those of the page.
_CONTENT_TAGS = names("article,main,section")
# What stands beside the text has headings below the one above it; text behind does not stand
# below them.
_SEPARATE_TAGS = names("article,main,aside,blockquote,details,dialog,fieldset,figure")
_LIST_TAGS = names("ul,ol,menu,dir")
_HEADING_TAGS = names("h1,h2,h3,h4,h5,h6")
_BLOCK_TAGS = frozenset(
    names(
        "address,body,caption,center,dd,div,dl,dt,figcaption,footer,form,header,hr,html,legend,li,"
        "nav,option,p,pre,section,summary,table,tbody,td,tfoot,th,thead,tr"
    )
).union(_LIST_TAGS, _HEADING_TAGS, _SEPARATE_TAGS)
# A table that holds one of them lays out the page.
_LAYOUT_SELECTOR = ",".join([*_HEADING_TAGS, "table,pre"])
# What an element puts before its text: 10<sup>2</sup> is no 102, and 1 over 2 no 12.
_TAG_PREFIXES = {"br": "\n", "sup": "^", "sub": "_"} | dict.fromkeys(
    ("mn", "mi", "mtd", "mspace"), " "
)
_CODE_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language-|lang-|highlight-(?:source-)?)([\w+#.-]+)|^code (\w+) literal-block"
)
_WHOLE_NUMBER = re.compile(r"\s*[0-9]{1,6}\s*")
_MAX_SPAN = 1000  # columns that a cell may take at most
_COPIES_A_CELL = 10  # of a table's cells that spans may make, for each cell that is written


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

    What surrounds the content is left out too: `nav`, controls of forms (a button that is all
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

    parsed_page = LexborHTMLParser(_FORMATTING_TAG.sub(r"<\1x-\2", text), scripting=True)
    root_node = parsed_page.root
    if root_node is None:
        return DocumentBlocks("", ())
    _check_end(parsed_page, text)
    title_node = parsed_page.css_first("head > title")
    page_title = "" if title_node is None else " ".join(title_node.text().split())
    _take_out_unshown(parsed_page)
    main_nodes = parsed_page.css(_MAIN_SELECTOR) if is_whole else []
    page_blocks = (
        _PageWalk(first, marks=marks).blocks_of(main_nodes[0]) if len(main_nodes) == 1 else []
    )
    if all(block.kind == "heading" for block in page_blocks):
        page_blocks = _PageWalk(first, marks=marks, is_whole=is_whole).blocks_of(root_node)
    language_match = _LANGUAGE_CODE.match(
        root_node.attributes.get("lang") or root_node.attributes.get("xml:lang") or ""
    )
    page_tags = {
        "title": page_title,
        "lang": "" if language_match is None else language_match[0].lower(),
    }
    return DocumentBlocks(
        page_title,
        tuple(page_blocks),
        {tag_name: tag_value for tag_name, tag_value in page_tags.items() if tag_value},
    )


def _check_end(parsed_page: LexborHTMLParser, page_text: str) -> None:
    """Stop if a comment or a hidden element is not closed and so hides the rest of the page."""
    open_tags = set()  # nodes that reach to the end
    for root_node in (parsed_page.root, parsed_page.head):
        deepest_node = root_node
        while deepest_node is not None:
            open_tags.add((deepest_node.tag or "").lstrip("-"))
            deepest_node = deepest_node.last_child
    lower_text = page_text.lower()
    for tag_name in open_tags.intersection(("comment", *_ENDLESS_TAGS)):
        opening_tag, closing_tag = (
            ("<!--", "-->") if tag_name == "comment" else (f"<{tag_name}", f"</{tag_name}")
        )
        last_opening = lower_text.rfind(opening_tag)
        if last_opening >= 0 and lower_text.find(closing_tag, last_opening) < 0:
            raise input_error(
                UNNAMED,
                f"a {tag_name} must end with {closing_tag}",
                "close it",
                shown_value(page_text[last_opening : last_opening + 60]),
            )


def _take_out_unshown(parsed_page: LexborHTMLParser) -> None:
    """Take out of a page what is not shown; as in browsers, a hidden cell keeps its place."""
    for node in parsed_page.css("[style]"):
        plain_style = re.sub(r"/\*.*?\*/", "", node.attributes["style"] or "")
        if hidden_style := _HIDDEN_STYLE.search(plain_style):
            node.attrs["hidden" if hidden_style[1] else "aria-hidden"] = "true"
    # a button that is all of a heading opens and closes what follows
    for node in parsed_page.css(":is(h1,h2,h3,h4,h5,h6)>button:only-child"):
        if node.parent is not None and node.text(strip=True) == node.parent.text(strip=True):
            node.unwrap()
    # the sign beside a heading by which others can link to it
    for node in parsed_page.css("x-a[href^='#']:not(:has(*))"):
        if not any(map(str.isalnum, node.text())):
            node.decompose()
    # inner nodes first: what is taken out is freed with all it holds
    for node in reversed(parsed_page.css(_UNSHOWN_SELECTOR)):
        if node.tag in {"td", "th"} and not node.css_matches(_HIDDEN_SELECTOR):
            node.inner_html = ""
        elif node.tag != "html":
            node.decompose()


def _number(node: LexborNode, attribute: str, default: int) -> int:
    """Whole number of an attribute."""
    number_match = _WHOLE_NUMBER.fullmatch(node.attributes.get(attribute) or "")
    return default if number_match is None else int(number_match[0])


def _content(node: LexborNode, gap: str) -> str:
    """Text below a node, with a gap, a blank or a line feed, where blocks begin and end."""
    page_walk = _PageWalk((1, None), gap=gap)
    page_walk.read(node)
    return "".join(page_walk.text)


def _table_text(table_node: LexborNode) -> str:
    """Lines of a table, its head first where it has one; empty rows are left out."""
    table_lines: list[str] = []
    free_copies = _MAX_SPAN  # copies that spans may still make
    # no cell reaches beyond its group of rows
    for _, row_group in groupby(
        table_node.css("tr"), lambda row_node: row_node.parent and row_node.parent.mem_id
    ):
        group_rows = list(row_group)
        cell_grid: list[dict[int, str]] = [{} for _ in group_rows]
        for row_index, row_node in enumerate(group_rows):
            row_cells = [
                cell_node for cell_node in row_node.iter() if cell_node.tag in {"td", "th"}
            ]
            column_index = 0
            for cell_node in row_cells:
                while column_index in cell_grid[row_index]:
                    column_index += 1
                cell_text = " ".join(_content(cell_node, " ").replace("|", r"\|").split())
                n_columns = min(max(_number(cell_node, "colspan", 1), 1), _MAX_SPAN)
                n_rows = _number(cell_node, "rowspan", 1) or len(group_rows)
                free_copies += _COPIES_A_CELL
                covered_cells = product(
                    range(row_index, min(row_index + n_rows, len(group_rows))),
                    range(column_index, column_index + n_columns),
                )
                for covered_row, covered_column in covered_cells:
                    # a copy below widens its row up to its place
                    free_copies -= 1 if covered_row == row_index else covered_column + 1
                    if free_copies < 0:
                        break
                    cell_grid[covered_row][covered_column] = cell_text
            if any(cell_grid[row_index].values()):
                row_width = max(cell_grid[row_index]) + 1
                row_texts = (
                    cell_grid[row_index].get(covered_column, "")
                    for covered_column in range(row_width)
                )
                table_lines.append(f"| {' | '.join(row_texts)} |")
                is_head_row = row_node.css_matches("thead > tr")
                if len(table_lines) == 1 and (
                    is_head_row or all(cell_node.tag == "th" for cell_node in row_cells)
                ):
                    table_lines.append(f"|{'---|' * row_width}")
    return "\n".join(table_lines)


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

    def blocks_of(self, root_node: LexborNode) -> list[Block]:
        """Blocks of what is below a node."""
        self.read(root_node)
        self._flush()
        return self._blocks

    def read(self, root_node: LexborNode) -> None:
        """Read what is below a node."""
        node = root_node.child
        depth = 1
        while node is not None:
            if self._enter(node) and node.child is not None:
                node = node.child
                depth = depth + 1
                continue
            self._leave(node)
            while node.next is None:
                node = node.parent
                depth = depth - 1
                if node is None or not depth:
                    return
                self._leave(node)
            node = node.next

    def _enter(self, node: LexborNode) -> bool:
        """Begin a node; whether what it holds is read next."""
        tag_name = node.tag or ""
        if tag_name == "-text":
            node_text = node.text_content or ""
            self.text.append(node_text if self._gap == "\n" else _BLANK_RUN.sub(" ", node_text))
        elif tag_name == "-comment":
            if self._marks and (page_mark := PAGE_MARK.fullmatch(node.html or "")):
                self._flush()
                self._page = (int(page_mark[1]), page_mark[2] or None)
        elif tag_name == "img":
            self.text.append(f" {(node.attributes.get('alt') or '').strip()} ")
        elif tag_name in _TAG_PREFIXES:
            self.text.append(_TAG_PREFIXES[tag_name])
        elif tag_name in _BLOCK_TAGS:
            return self._enter_block(tag_name, node)
        elif self._gap != "\n" and _is_code(node):
            self._code.append(len(self.text))
        return True

    def _enter_block(self, tag_name: str, node: LexborNode) -> bool:
        if self._gap:
            self._part()
            return True
        if tag_name in {"header", "footer"} and not self._inside:
            return False
        self._inside += tag_name in _CONTENT_TAGS
        if not (self._is_term and tag_name in {"dd", "dt", "div", "p"}):
            self._flush()
        if tag_name == "table" and not any(
            table_part.css_first(_LAYOUT_SELECTOR) for table_part in node.iter()
        ):
            for caption in node.css("caption"):
                self.text.append(_content(caption, " "))
                self._flush()
            self._add("table", _table_text(node))
            return False
        if tag_name == "pre":
            code_lines = [code_line.rstrip() for code_line in _content(node, "\n").split("\n")]
            if code_text := "\n".join(code_lines).strip("\n"):
                self._add("code", fenced(code_text, _code_language(node)))
            return False
        self._begin(tag_name, node)
        return True

    def _begin(self, tag_name: str, node: LexborNode) -> None:
        if tag_name in _LIST_TAGS:
            item_numbers = count(_number(node, "start", 1))
            is_numbered = tag_name == "ol"
            self._lists.append(
                (f"{item_number}. " for item_number in item_numbers)
                if is_numbered
                else repeat("- ")
            )
        elif tag_name == "li":
            self._mark = next(self._lists[-1]) if self._lists else "- "
        elif tag_name in _HEADING_TAGS:
            self._heading = int(tag_name[1])
        elif tag_name in _SEPARATE_TAGS:
            self._parts.append((self._above, None))

    def _leave(self, node: LexborNode) -> None:
        tag_name = node.tag or ""
        if self._code and _is_code(node):
            code_start = self._code.pop()
            if not self._code:
                self.text[code_start:] = [_code_span("".join(self.text[code_start:]))]
        elif tag_name not in _BLOCK_TAGS:
            pass
        elif self._gap:
            self._part()
        elif tag_name == "dt":
            term_text = "".join(self.text).rstrip(" :")
            self.text[:] = [f"{term_text}: "] if term_text.strip() else []
            self._is_term = bool(self.text)
        else:
            self._flush()
            self._end(tag_name)

    def _end(self, tag_name: str) -> None:
        self._inside -= tag_name in _CONTENT_TAGS
        if tag_name in _LIST_TAGS:
            self._lists.pop()
            self._mark = ""
        elif tag_name == "li":
            self._mark = ""
        elif tag_name in _HEADING_TAGS:
            self._heading = 0
        elif tag_name in _SEPARATE_TAGS:
            self._above, level_shift = self._parts.pop()
            if level_shift is not None:  # what follows does not stand below its headings
                self._blocks.append(Block("heading", "", self._above + 1, *self._page))

    def _part(self) -> None:
        """End a line or a word where a block begins or ends within text."""
        if self.text and not self.text[-1].endswith(self._gap):
            self.text.append(self._gap)

    def _flush(self) -> None:
        """End the text that is open: a heading, an item, a term or its definition, a paragraph."""
        text_lines = [" ".join(text_line.split()) for text_line in "".join(self.text).split("\n")]
        text_lines = [text_line for text_line in text_lines if text_line]
        self.text.clear()
        self._code.clear()
        self._is_term = False
        text_line = " ".join(text_lines)
        if self._heading and text_line:
            block_level = self._heading
            if self._parts:
                outer_level, level_shift = self._parts[-1]
                level_shift = (
                    max(0, outer_level + 1 - block_level) if level_shift is None else level_shift
                )
                self._parts[-1] = outer_level, level_shift
                block_level = min(
                    max(block_level + level_shift, outer_level + 1), len(_HEADING_TAGS)
                )
            self._above = block_level
            self._add("heading", text_line, block_level)
        elif text_line and (self._mark or self._lists):
            block_level = min(max(len(self._lists), 1), _MAX_LIST_DEPTH)
            self._add(
                "item", f"{'  ' * (block_level - 1)}{self._mark or '  '}{text_line}", block_level
            )
            self._mark = ""
        else:
            self._add("text", escaped("\n".join(text_lines)))

    def _add(self, block_kind: BlockKind, block_text: str, block_level: int = 0) -> None:
        """Add a block, if it has text."""
        if block_text:
            self._blocks.append(Block(block_kind, block_text, block_level, *self._page))


def _code_span(text: str) -> str:
    """Text between backticks, more than any run of them in it."""
    code_text = text.strip()
    backticks = max(re.findall("`*", code_text), key=len) + "`"
    padding = " " * ("`" in (code_text[:1], code_text[-1:]))
    return (
        text.replace(code_text, f"{backticks}{padding}{code_text}{padding}{backticks}", 1)
        if code_text
        else text
    )


def _code_language(code_node: LexborNode) -> str:
    """Language of code that a class states, as pages of Markdown, Sphinx and docutils write it."""
    class_nodes = [
        code_node,
        code_node.parent,
        code_node.parent and code_node.parent.parent,
        *code_node.css("x-code"),
    ]
    class_names = (node.attributes.get("class") or "" for node in class_nodes if node)
    language_match = next(filter(None, map(_CODE_LANGUAGE.search, class_names)), None)
    return "" if language_match is None else language_match[1] or language_match[2]


def _is_code(node: LexborNode) -> bool:
    """Whether an element is code within a line, also as docutils writes it."""
    return node.tag == "x-code" or node.attributes.get("class") == "docutils literal"
