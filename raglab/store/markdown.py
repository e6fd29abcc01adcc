"""Markdown (shore): the blocks of CommonMark with tables, read by markdown-it-py.

Pages by marks, front matter as tags.

Markdown becomes HTML, and the walk of `store.html` makes the blocks, so that HTML inside it is read
as a page is. What MyST adds is read on the tokens of markdown-it-py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.store.blocks import Block, DocumentBlocks
from raglab.store.files import Where, input_error
from raglab.store.front_matter import front_matter
from raglab.store.html import PAGE_MARK, html_document
from raglab.store.rst import VERSIONS, role_title
from raglab.words.characters import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

MAX_NESTING = 100
# of links, pictures and emphasis; deeper marks are text, and each open bracket costs so much
_INLINE_NESTING = 20
LIGHT_CHARACTERS = 100_000
_LIGHT_LINES = 200_000  # below quotes, counted for each quote that they may continue
_MOST_LINES = 1_000_000  # likewise, which take some 5 seconds
_MARKS = re.compile(r"[ \t>*+\d.)-]*")  # of quotes and lists at the beginning of a line
_TAG = re.compile(r"</?([A-Za-z][^\s/>]*)")
_INLINE_ELEMENTS = (
    "a abbr acronym annotation area audio b bdi bdo big br button canvas cite code data datalist "
    "del dfn em embed "
    "font "
    "i img input ins kbd label map mark math meter mfrac mi mmultiscripts mn mo mover mpadded "
    "mphantom mroot mrow "
    "mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover nobr noscript "
    "object output "
    "picture pre progress q rb rp rt ruby s samp script select semantics slot small source span "
    "strike strong style "
    "sub sup svg template textarea time tt u var video wbr"
)
# Of MyST: directives in fences, targets, attributes and roles.
_DEEPEST = 8  # of directives in one another; deeper ones are read as text
_DIRECTIVE = re.compile(r"\{([A-Za-z][\w:+-]*)\}[ \t]*(.*)", re.DOTALL)
_COLONS = re.compile(r"(:{3,})[ \t]*(\{.*)")
_OPTION = re.compile(r":[\w-]+:(?:\s|$)")
_TARGET = re.compile(r"\([^()\s][^()]*\)=\s*")
_ATTRIBUTE = re.compile(r"(?:[.#][\w:-]+)+|[\w-]+=(?:\"[^\"]*\"|'[^']*'|[\w./:%-]+)")
_ROLE = re.compile(r"\{([A-Za-z][\w:.+-]*)\}")
_SILENT = frozenset(
    {
        "bibliography",
        "contents",
        "currentmodule",
        "image",
        "include",
        "index",
        "literalinclude",
        "module",
        "raw",
    }
    | {"tableofcontents", "toctree"}
)
_VERBATIM = frozenset({"eval-rst", "math", "mermaid"})  # code to any reader but their own
_CODE = frozenset({"code", "code-block", "code-cell", "sourcecode"})
_KINDS = {  # that stand above what they hold
    **{
        name: name.capitalize()
        for name in (
            "attention",
            "caution",
            "danger",
            "error",
            "hint",
            "important",
            "note",
            "tip",
            "todo",
            "warning",
        )
    },
    "seealso": "See also",
}
_TITLED = frozenset(
    {
        "admonition",
        "card",
        "dropdown",
        "epigraph",
        "glossary",
        "grid-item-card",
        "list-table",
        "margin",
        "rubric",
    }
    | {"sidebar", "tab-item", "tab-set", "table", "topic"}
)
# what stands behind the name is no text
_UNTITLED = frozenset({"div", "figure", "grid", "grid-item", "only"})


class Page(NamedTuple):
    """One page of a document: number from 1, label as printed, text."""

    number: int
    label: str | None
    text: str


def markdown_blocks(text: str, file: str) -> DocumentBlocks:
    """Blocks of a Markdown file, with the tags and entities of its front matter.

    Comments `<!-- page N label="L" -->` begin pages; the label may be left out. Other comments, and
    what HTML hides, are left out. Tags that HTML does not know are text.

    Of MyST, fences that name a directive are text with Markdown in it: versions and admonitions
    with their kind or title, the caption of a figure; code of `code-block` is code. Their options,
    lists of contents, files to include and pictures are left out, as are targets `(name)=`,
    attributes `{#name}` and the names of roles before code.

    Args:
      file: for messages.

    Raises:
      InputError: the front matter is not valid, the numbers of pages do not go up, or quotes and
        lists are too deep.

    Warns:
      UserWarning: a code fence, or front matter, does not end.
    """
    matter = front_matter(text, file)
    page, marks = _rendered(matter.body, file, matter.line)
    ascending((number, where) for number, _, where in marks)
    first = marks[0][:2] if marks and marks[0][0] == 1 else (1, None)
    blocks = html_document(page, file, marks=True, first=first, source=text, is_whole=False).blocks
    return DocumentBlocks(matter.tags.get("title", ""), blocks, matter.tags, matter.entities)


def is_light_markdown(text: str) -> bool:
    """Whether a text, however it is put together, is read within about a second."""
    return len(text) <= LIGHT_CHARACTERS and _continuing_lines(text) <= _LIGHT_LINES


def _continuing_lines(text: str) -> int:
    """Lines that may continue quotes above, counted per quote, as the parser tries them in each."""
    count = depth = 0
    for line in text.split("\n"):
        marks = _MARKS.match(line)
        own = min(marks[0].count(">"), MAX_NESTING // 2) if marks else 0
        depth = max(depth, own) if line.strip() else 0
        count += depth - own
    return count


def page_blocks(pages: Sequence[Page], file: str, line: int | None) -> tuple[Block, ...]:
    """Blocks of pages of Markdown that stand apart, each read for itself."""
    blocks: list[Block] = []
    for page in pages:
        text, _ = _rendered(page.text, file, line)
        blocks += html_document(text, file, first=(page.number, page.label), is_whole=False).blocks
    return tuple(blocks)


def ascending(pages: Iterator[tuple[int, Where]]) -> None:
    """Stop where a page's number is not above the one before it."""
    last = 0
    for number, where in pages:
        if number <= last:
            remedy = "number the pages 1, 2, 3, … in the order of the file"
            raise input_error(where, "page numbers must go up", remedy, f"{number} after {last}")
        last = number


def _rendered(
    text: str, file: str, line: int | None
) -> tuple[str, list[tuple[int, str | None, Where]]]:
    """HTML of a text, in which tags that HTML does not know are text, and its page marks.

    Args:
      line: of the file on which the text begins; None where the place is no line.
    """
    from markdown_it import MarkdownIt
    from markdown_it.common.html_blocks import block_names

    known = {*block_names, *_INLINE_ELEMENTS.split()}

    def known_tag(match: re.Match[str]) -> str:
        return match[0] if match[1].lower() in known else f"&lt;{match[0][1:]}"

    def place(token: Token) -> Where:
        return Where(file, None if line is None or token.map is None else line + token.map[0])

    parser = MarkdownIt(
        "commonmark", {"html": True, "maxNesting": MAX_NESTING, "breaks": True}
    ).enable(["table", "strikethrough"])
    if _continuing_lines(text) > _MOST_LINES:
        rule = f"lines that continue quotes, counted for each quote, must be at most {_MOST_LINES}"
        raise input_error(
            Where(file, line), rule, "begin them with >, or put a blank line before them", "more"
        )
    parser.core.ruler.before("inline", "inline_nesting", partial(_nest, _INLINE_NESTING))
    parser.core.ruler.after("inline", "block_nesting", partial(_nest, MAX_NESTING))
    _read_myst(parser)
    env: dict[str, Any] = {}
    tokens = _without_myst(parser.parse(text, env), parser, env)
    marks: list[tuple[int, str | None, Where]] = []
    lines = text.split("\n")
    for token in tokens:
        if token.nesting == 1 and token.level >= MAX_NESTING - 1:  # what is in it was left out
            rule = f"quotes and lists must be nested at most {MAX_NESTING // 2} deep"
            raise input_error(place(token), rule, "make them flat", "more")
        if (
            token.type in {"fence", "directive"}
            and token.map is not None
            and not _is_closed(token, lines)
        ):
            # How far it reaches is a matter of what it stands in; the reader of the text sees where
            # it begins.
            start = file if line is None else f"{file}, line {line + token.map[0]}"
            kind, reading = (
                ("code fence", "as code")
                if token.type == "fence"
                else ("directive", "as a part of it")
            )
            warn_user(
                visible(
                    f"{start}: a {kind} is not closed: what follows is read {reading}; close it."
                )
            )
        for part in (token, *(token.children or ())):
            if part.type in {"html_block", "html_inline"}:
                part.content = _TAG.sub(known_tag, part.content)
                for mark in PAGE_MARK.finditer(part.content):
                    where = place(token)
                    after = part.content.count("\n", 0, mark.start())
                    where = where if where.line is None else where._replace(line=where.line + after)
                    marks.append((int(mark[1]), mark[2] or None, where))
    return parser.renderer.render(tokens, parser.options, env), marks


def _nest(depth: int, state: StateCore) -> None:
    """Rule of markdown-it: what is parsed next is nested at most so deep."""
    state.md.options["maxNesting"] = depth


def _is_closed(token: Token, lines: Sequence[str]) -> bool:
    """Whether a fence has a line of its own kind at its end."""
    start, end = token.map or (0, 0)
    last = lines[end - 1].lstrip(" >\t").rstrip() if end - 1 > start else ""
    return bool(last) and last.startswith(token.markup) and not last.strip(token.markup[0])


def _read_myst(parser: MarkdownIt) -> None:
    """Let a parser know fences of colons, and leave out targets and attributes alone on a line."""
    ends: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("fence", "colon_fence", _colon_fence, ends)
    parser.block.ruler.before("fence", "myst_target", _target)
    parser.block.ruler.before("fence", "attributes", _attributes, ends)


def _without_myst(
    tokens: Sequence[Token], parser: MarkdownIt, env: dict[str, Any], depth: int = 0
) -> list[Token]:
    """Tokens with directive content in its place, without role names and heading attributes.

    Args:
      tokens: of a text.
      parser: that read it, after `_read_myst`.
      env: of that reading, which holds the targets of links.
      depth: directives that the text stands in.
    """
    read: list[Token] = []
    for at, token in enumerate(tokens):
        if token.type == "inline":
            _read_roles(token)
            if at and tokens[at - 1].type == "heading_open":
                _leave_attributes(token)
        body = _directive(token, parser, env, depth) if token.type == "fence" else None
        read += [token] if body is None else body
    return read


def _directive(
    token: Token, parser: MarkdownIt, env: dict[str, Any], depth: int
) -> list[Token] | None:
    """What a directive says; None for a fence that is none, whose content is code."""
    stated = _DIRECTIVE.fullmatch(token.info.strip())
    name, argument = ("div", "") if stated is None else (stated[1], stated[2].strip())
    if name in _VERBATIM or not (
        token.markup.startswith(":") or (stated is not None and _is_known(name))
    ):
        return None
    lines = token.content.split("\n")
    options = _count_options(lines)
    content = "\n".join(lines[options:])
    if name in _CODE:
        token.info, token.content = argument, content
        return [token]
    # The walk over the tokens names one that is not closed; such a one must not hide the rest of
    # the text.
    parts = [replace(token, type="directive", tag="", content="", hidden=True)]
    if name in _SILENT and _is_ended(token):
        return parts
    if depth == _DEEPEST:
        return [*parts, *_paragraph(f"{token.info}\n{token.content}", token, parser, env)]
    parts += _paragraph("" if name in _UNTITLED else _title(name, argument), token, parser, env)
    if name in _KINDS:  # its text may begin behind the name
        parts += _paragraph(argument, token, parser, env)
    # Places count from the beginning of what is parsed.
    shift = options + 1 + (token.map[0] if token.map else 0)
    body = parser.parse(content, env)
    for part in body:
        part.map = None if part.map is None else [part.map[0] + shift, part.map[1] + shift]
    return [*parts, *_without_myst(body, parser, env, depth + 1)]


def _is_known(name: str) -> bool:
    """Whether a directive is no language of code, whose fences look alike."""
    return name in _SILENT | _CODE | _TITLED | _UNTITLED or name in _KINDS or name in VERSIONS


def _title(name: str, argument: str) -> str:
    """What stands above the body of a directive."""
    if name in VERSIONS:
        version, _, rest = argument.partition(" ")
        return f"{VERSIONS[name]} {version}{'.' if version[-1:].isalnum() else ''} {rest}".strip()
    return _KINDS.get(name, argument)


def _is_ended(token: Token) -> bool:
    """Whether a fence has an end: one that has none would hide the rest of the text."""
    lines = token.content.count("\n") + (token.content[-1:] not in {"", "\n"})
    return token.map is not None and token.map[1] - token.map[0] == lines + 2


def _count_options(lines: Sequence[str]) -> int:
    """Lines of options at the beginning of a directive.

    `:key: value`, or YAML between lines of `---`.
    """
    if lines[0].rstrip() == "---":
        return next((at + 1 for at, line in enumerate(lines) if at and line.rstrip() == "---"), 0)
    return next((at for at, line in enumerate(lines) if not _OPTION.match(line)), len(lines))


def _paragraph(text: str, near: Token, parser: MarkdownIt, env: dict[str, Any]) -> Iterator[Token]:
    """A text within a line as a paragraph."""
    from markdown_it.token import Token

    if not text.strip():
        return
    (inline,) = parser.parseInline(text.strip(), env)
    inline.map = near.map
    _read_roles(inline)
    yield Token("paragraph_open", "p", 1, map=near.map)
    yield inline
    yield Token("paragraph_close", "p", -1)


def _read_roles(token: Token) -> None:
    """Of a role the code alone stays, without its target."""
    parts = token.children or []
    for text, code in pairwise(parts):
        if text.type != "text" or code.type != "code_inline":
            continue
        start = text.content.rfind("{")
        role = _ROLE.fullmatch(text.content, start) if start >= 0 else None
        if role is not None:
            text.content = text.content[:start]
            code.content = role_title(
                role[1], code.content.strip().removeprefix("~").removeprefix("!")
            )


def _leave_attributes(heading: Token) -> None:
    """Take attributes from the end of a heading."""
    last = heading.children[-1] if heading.children else None
    if last is not None and last.type == "text":
        start = last.content.rfind("{")
        if start >= 0 and _is_attributes(last.content[start:]):
            last.content = last.content[:start].rstrip()


def _is_attributes(text: str) -> bool:
    """Whether a text is a block of attributes such as `{#guide .wide}`, with a name or a class."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return False
    words = text[1:-1].removeprefix(":").split()
    return any(word[0] in ".#" for word in words) and all(map(_ATTRIBUTE.fullmatch, words))


def _line(state: StateBlock, number: int) -> str:
    """A line without what its container puts before it; empty where it is indented as code."""
    if state.is_code_block(number):
        return ""
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


# as markdown-it calls it
def _target(state: StateBlock, start: int, _end: int, silent: bool) -> bool:  # noqa: FBT001
    return _leave_line(
        state, start, silent, left_out=_TARGET.fullmatch(_line(state, start)) is not None
    )


def _attributes(state: StateBlock, start: int, _end: int, silent: bool) -> bool:  # noqa: FBT001
    return _leave_line(state, start, silent, left_out=_is_attributes(_line(state, start)))


def _leave_line(
    state: StateBlock,
    start: int,
    silent: bool,  # noqa: FBT001
    *,
    left_out: bool,
) -> bool:
    if left_out and not silent:
        state.line = start + 1
    return left_out


def _colon_fence(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Rule of markdown-it.

    A fence of colons with a name or attributes in braces, up to as many colons or the end.
    """
    opening = _COLONS.fullmatch(_line(state, start))
    if opening is None:
        return False
    if silent:
        return True
    last, is_closed = start + 1, False
    while last < end:
        line = _line(state, last)
        if line and state.sCount[last] < state.blkIndent:
            break  # the container ends
        is_closed = line.startswith(opening[1]) and not line.rstrip().strip(":")
        if is_closed:
            break
        last += 1
    token = state.push("fence", "code", 0)
    token.info, token.markup, token.map = opening[2], opening[1], [start, last + is_closed]
    token.content = state.getLines(start + 1, last, state.sCount[start], True)
    state.line = last + is_closed
    return True
