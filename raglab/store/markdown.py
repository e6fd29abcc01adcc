"""Markdown (shore): CommonMark with tables, which markdown-it-py makes HTML, as blocks.

Comments begin pages, front matter gives tags. HTML inside it is read as a page is, and the content
of MyST's directives as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from raglab.store.blocks import DocumentBlocks
from raglab.store.files import UNNAMED, Where, input_error
from raglab.store.front_matter import front_matter
from raglab.store.html import PAGE_MARK, html_document, names

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

MAX_NESTING = 100
# of links, pictures and emphasis; deeper marks are text, and each open bracket costs so much
_INLINE_NESTING = 20
_OPEN = "open fences"
_DEEPEST = 8  # of directives in one another; deeper ones are read as text
_TAG = re.compile(r"</?([A-Za-z][^\s/>]*)")
_INLINE_ELEMENTS = frozenset(
    names(
        "a,abbr,acronym,annotation,area,audio,b,bdi,bdo,big,br,button,canvas,cite,code,data,"
        "datalist,del,dfn,em,embed,font,i,img,input,ins,kbd,label,map,mark,math,meter,mfrac,mi,"
        "mmultiscripts,mn,mo,mover,mpadded,mphantom,mroot,mrow,mspace,msqrt,mstyle,msub,msubsup,"
        "msup,mtable,mtd,mtext,mtr,munder,munderover,nobr,noscript,object,output,picture,pre,"
        "progress,q,rb,rp,rt,ruby,s,samp,script,select,semantics,slot,small,source,span,strike,"
        "strong,style,sub,sup,svg,template,textarea,time,tt,u,var,video,wbr"
    )
)
# Directives of MyST in fences.
_DIRECTIVE = re.compile(r"\{([A-Za-z][\w:+-]*)\}[ \t]*(.*)|\{.*")
_OPTIONS = re.compile(r"---\n[\s\S]*?\n---(?:\n|$)|(?::[\w-]+:(?:[ \t][^\n]*)?(?:\n|$))+")
# Of MyST in HTML: names of roles, targets, attributes of headings.
_MYST = re.compile(
    r"\{[A-Za-z][\w:.+-]*\}(?=<code>)"
    r"|<p>(?:\([^()<]+\)=(?:<br />\n)?)+</p>"
    r"|\s*\{:?[.#][^{}<]*\}(?=</h[1-6]>)"
)
_SILENT = names(
    "bibliography,contents,currentmodule,image,include,index,literalinclude,module,raw,"
    "tableofcontents,toctree"
)
# code to any reader, the last three to any but their own
_CODE = names("code,code-block,code-cell,sourcecode,eval-rst,math,mermaid")
# whose names are no languages of code
_UNTITLED = names("figure,grid,grid-item,only")
_TITLED = names(
    "admonition,card,dropdown,epigraph,glossary,grid-item-card,list-table,margin,rubric,sidebar,"
    "tab-item,tab-set,table,topic"
)
LABELS = {
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "seealso": "See also",
}
_NOTES = names("attention,caution,danger,error,hint,important,note,tip,todo,warning")
_KNOWN = frozenset([*_SILENT, *_CODE, *_UNTITLED, *_TITLED, *LABELS, *_NOTES])


def markdown_blocks(raw: bytes) -> DocumentBlocks:
    """Blocks of a Markdown file, with the tags and entities of its front matter.

    Comments `<!-- page N label="L" -->` begin pages; the label may be left out. Other comments, and
    what HTML hides, are left out. Tags that HTML does not know are text. Of MyST, fences that name
    a directive are text with Markdown in it below their kind or title; their options, lists of
    contents, files to include and pictures are left out.

    Args:
      raw: text as UTF-8.

    Raises:
      InputError: the front matter is not valid, the numbers of pages do not go up, or quotes and
        lists are too deep.
    """
    matter = front_matter(raw.decode())
    page, notes = _rendered(matter.body)
    marks = [(int(mark[1]), mark[2] or None) for mark in PAGE_MARK.finditer(page)]
    ascending((number, Where("")) for number, _ in marks)
    first = marks[0] if marks and marks[0][0] == 1 else (1, None)
    blocks = html_document(page, marks=True, first=first, is_whole=False).blocks
    title = matter.tags.get("title", "")
    return DocumentBlocks(title, blocks, matter.tags, matter.entities, (*matter.notes, *notes))


def markdown_page(raw: bytes) -> DocumentBlocks:
    """Blocks of a page of Markdown that stands apart, without front matter and marks of pages.

    Args:
      raw: text as UTF-8.
    """
    page, notes = _rendered(raw.decode())
    return html_document(page, is_whole=False)._replace(tags={}, title="", notes=notes)


def ascending(pages: Iterable[tuple[int, Where]]) -> None:
    """Stop where a page's number is not above the one before it."""
    last = 0
    for number, where in pages:
        if number <= last:
            raise input_error(
                where,
                "page numbers must go up",
                "number the pages 1, 2, 3, …",
                f"{number} after {last}",
            )
        last = number


def _rendered(text: str) -> tuple[str, tuple[str, ...]]:
    """HTML of a text, in which tags that HTML does not know are text, and notes on it."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt(
        "commonmark", {"html": True, "maxNesting": MAX_NESTING, "breaks": True}
    ).enable(["table", "strikethrough"])
    parser.block.ruler.at("reference", _reference)
    parser.core.ruler.before("inline", "inline_nesting", partial(_nest, _INLINE_NESTING))
    parser.core.ruler.after("inline", "block_nesting", partial(_nest, MAX_NESTING))
    env: dict[str, Any] = {}
    page = parser.renderer.render([*_tokens(text, parser, env)], parser.options, env)
    note = f"{env.get(_OPEN)} fences are not closed and hold the rest"
    return _MYST.sub("", page), (note,) if _OPEN in env else ()


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - a rule
    """Rule of markdown-it: a definition of a link; that of a footnote is text."""
    from markdown_it.rules_block import reference

    begin = state.bMarks[start] + state.tShift[start]
    return not state.src.startswith("[^", begin) and reference(state, start, end, silent)


def _nest(depth: int, state: StateCore) -> None:
    """Rule of markdown-it: what is parsed next is nested at most so deep."""
    state.md.options["maxNesting"] = depth


def _tokens(text: str, parser: MarkdownIt, env: dict[str, Any], depth: int = 0) -> Iterator[Token]:
    """Tokens of a text with the content of directives in its place.

    Args:
      text: to be parsed.
      parser: of it.
      env: of the whole text, with the targets of links; counts fences that are not closed.
      depth: directives that the text stands in.
    """
    from markdown_it.common.html_blocks import block_names

    def known_tag(match: re.Match[str]) -> str:
        is_known = match[1].lower() in _INLINE_ELEMENTS or match[1].lower() in block_names
        return match[0] if is_known else f"&lt;{match[0][1:]}"

    for token in parser.parse(text, env):
        if token.nesting == 1 and token.level >= MAX_NESTING - 1:  # what is in it was left out
            raise input_error(
                UNNAMED,
                f"quotes and lists must be nested at most {MAX_NESTING // 2} deep",
                "make them flat",
                "more",
            )
        for part in (token, *(token.children or ())):
            if part.type in {"html_block", "html_inline"}:
                part.content = _TAG.sub(known_tag, part.content)
        if token.type != "fence":
            yield token
            continue
        lines = token.content.count("\n") + (token.content[-1:] not in {"", "\n"})
        is_closed = token.map is not None and token.map[1] - token.map[0] == lines + 2
        if not is_closed:
            env[_OPEN] = env.get(_OPEN, 0) + 1
        inner = _directive_text(token, is_closed=is_closed)
        if inner is None:
            yield token
        elif depth == _DEEPEST:
            yield from parser.parse(re.sub(r"(?m)^[ >]*[`~]{3,}", "", inner), env)
        else:
            yield from _tokens(inner, parser, env, depth + 1)


def _directive_text(token: Token, *, is_closed: bool) -> str | None:
    """Markdown that a fence holds; None of code, whose token says then that it is plain code."""
    directive = _DIRECTIVE.fullmatch(token.info.strip())
    name = directive[1] or "" if directive else ""
    if directive is None or name not in _KNOWN:
        return None
    options = _OPTIONS.match(token.content)
    content = token.content[options.end() :] if options else token.content
    if name in _CODE:
        token.info, token.content = directive[2] or "", content
        return None
    if name in _SILENT and is_closed:
        return ""
    label = name.capitalize() if name in _NOTES else LABELS.get(name, "")
    title = "" if name in _UNTITLED else directive[2] or ""
    return f"{label} {title}\n\n{content}"
