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
_OPEN_FENCES = "open fences"
_MAX_DIRECTIVE_DEPTH = 8  # of directives in one another; deeper ones are read as text
_HTML_TAG = re.compile(r"</?([A-Za-z][^\s/>]*)")
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
_DIRECTIVE_FENCE = re.compile(r"\{([A-Za-z][\w:+-]*)\}[ \t]*(.*)|\{.*")
_DIRECTIVE_OPTIONS = re.compile(r"---\n[\s\S]*?\n---(?:\n|$)|(?::[\w-]+:(?:[ \t][^\n]*)?(?:\n|$))+")
# Of MyST in HTML: names of roles, targets, attributes of headings.
_MYST_MARKUP = re.compile(
    r"\{[A-Za-z][\w:.+-]*\}(?=<code>)"
    r"|<p>(?:\([^()<]+\)=(?:<br />\n)?)+</p>"
    r"|\s*\{:?[.#][^{}<]*\}(?=</h[1-6]>)"
)
_SILENT_DIRECTIVES = names(
    "bibliography,contents,currentmodule,image,include,index,literalinclude,module,raw,"
    "tableofcontents,toctree"
)
# code to any reader, the last three to any but their own
_CODE_DIRECTIVES = names("code,code-block,code-cell,sourcecode,eval-rst,math,mermaid")
# whose names are no languages of code
_UNTITLED_DIRECTIVES = names("figure,grid,grid-item,only")
_TITLED_DIRECTIVES = names(
    "admonition,card,dropdown,epigraph,glossary,grid-item-card,list-table,margin,rubric,sidebar,"
    "tab-item,tab-set,table,topic"
)
DIRECTIVE_LABELS = {
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "seealso": "See also",
}
_NOTE_DIRECTIVES = names("attention,caution,danger,error,hint,important,note,tip,todo,warning")
_KNOWN_DIRECTIVES = frozenset(
    [
        *_SILENT_DIRECTIVES,
        *_CODE_DIRECTIVES,
        *_UNTITLED_DIRECTIVES,
        *_TITLED_DIRECTIVES,
        *DIRECTIVE_LABELS,
        *_NOTE_DIRECTIVES,
    ]
)


def markdown_blocks(raw_bytes: bytes) -> DocumentBlocks:
    """Blocks of a Markdown file, with the tags and entities of its front matter.

    Comments `<!-- page N label="L" -->` begin pages; the label may be left out. Other comments, and
    what HTML hides, are left out. Tags that HTML does not know are text. Of MyST, fences that name
    a directive are text with Markdown in it below their kind or title; their options, lists of
    contents, files to include and pictures are left out.

    Args:
      raw_bytes: text as UTF-8.

    Raises:
      InputError: the front matter is not valid, the numbers of pages do not go up, or quotes and
        lists are too deep.
    """
    matter = front_matter(raw_bytes.decode())
    html_page, notes = _rendered(matter.body)
    page_marks = [
        (int(mark_match[1]), mark_match[2] or None) for mark_match in PAGE_MARK.finditer(html_page)
    ]
    ascending((page_number, Where("")) for page_number, _ in page_marks)
    first_page = page_marks[0] if page_marks and page_marks[0][0] == 1 else (1, None)
    page_blocks = html_document(html_page, marks=True, first=first_page, is_whole=False).blocks
    document_title = matter.tags.get("title", "")
    return DocumentBlocks(
        document_title, page_blocks, matter.tags, matter.entities, (*matter.notes, *notes)
    )


def markdown_page(raw_bytes: bytes) -> DocumentBlocks:
    """Blocks of a single page of Markdown, without front matter and marks of pages.

    Args:
      raw_bytes: text as UTF-8.
    """
    html_page, notes = _rendered(raw_bytes.decode())
    return html_document(html_page, is_whole=False)._replace(tags={}, title="", notes=notes)


def ascending(pages: Iterable[tuple[int, Where]]) -> None:
    """Stop where a page's number is not above the one before it."""
    last_number = 0
    for page_number, location in pages:
        if page_number <= last_number:
            raise input_error(
                location,
                "page numbers must go up",
                "number the pages 1, 2, 3, …",
                f"{page_number} after {last_number}",
            )
        last_number = page_number


def _rendered(markdown_text: str) -> tuple[str, tuple[str, ...]]:
    """HTML of a text, in which tags that HTML does not know are text, and notes on it."""
    from markdown_it import MarkdownIt

    markdown_parser = MarkdownIt(
        "commonmark", {"html": True, "maxNesting": MAX_NESTING, "breaks": True}
    ).enable(["table", "strikethrough"])
    markdown_parser.block.ruler.at("reference", _reference)
    markdown_parser.core.ruler.before("inline", "inline_nesting", partial(_nest, _INLINE_NESTING))
    markdown_parser.core.ruler.after("inline", "block_nesting", partial(_nest, MAX_NESTING))
    environment: dict[str, Any] = {}
    html_page = markdown_parser.renderer.render(
        [*_tokens(markdown_text, markdown_parser, environment)],
        markdown_parser.options,
        environment,
    )
    fence_note = f"{environment.get(_OPEN_FENCES)} fences are not closed and hold the rest"
    return _MYST_MARKUP.sub("", html_page), (fence_note,) if _OPEN_FENCES in environment else ()


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - a rule
    """Rule of markdown-it: a definition of a link; that of a footnote is text."""
    from markdown_it.rules_block import reference

    definition_start = state.bMarks[start] + state.tShift[start]
    return not state.src.startswith("[^", definition_start) and reference(state, start, end, silent)


def _nest(depth: int, state: StateCore) -> None:
    """Rule of markdown-it: what is parsed next is nested at most so deep."""
    state.md.options["maxNesting"] = depth


def _tokens(
    markdown_text: str,
    markdown_parser: MarkdownIt,
    environment: dict[str, Any],
    directive_depth: int = 0,
) -> Iterator[Token]:
    """Tokens of a text with the content of directives in its place.

    Args:
      markdown_text: to be parsed.
      markdown_parser: of it.
      environment: of the whole text, with the targets of links; counts fences that are not closed.
      directive_depth: directives that the text stands in.
    """
    from markdown_it.common.html_blocks import block_names

    def known_tag(tag_match: re.Match[str]) -> str:
        is_known = tag_match[1].lower() in _INLINE_ELEMENTS or tag_match[1].lower() in block_names
        return tag_match[0] if is_known else f"&lt;{tag_match[0][1:]}"

    for token in markdown_parser.parse(markdown_text, environment):
        if token.nesting == 1 and token.level >= MAX_NESTING - 1:  # what is in it was left out
            raise input_error(
                UNNAMED,
                f"quotes and lists must be nested at most {MAX_NESTING // 2} deep",
                "make them flat",
                "more",
            )
        for inner_token in (token, *(token.children or ())):
            if inner_token.type in {"html_block", "html_inline"}:
                inner_token.content = _HTML_TAG.sub(known_tag, inner_token.content)
        if token.type != "fence":
            yield token
            continue
        n_lines = token.content.count("\n") + (token.content[-1:] not in {"", "\n"})
        is_closed = token.map is not None and token.map[1] - token.map[0] == n_lines + 2
        if not is_closed:
            environment[_OPEN_FENCES] = environment.get(_OPEN_FENCES, 0) + 1
        directive_text = _directive_text(token, is_closed=is_closed)
        if directive_text is None:
            yield token
        elif directive_depth == _MAX_DIRECTIVE_DEPTH:
            yield from markdown_parser.parse(
                re.sub(r"(?m)^[ >]*[`~]{3,}", "", directive_text), environment
            )
        else:
            yield from _tokens(directive_text, markdown_parser, environment, directive_depth + 1)


def _directive_text(token: Token, *, is_closed: bool) -> str | None:
    """Markdown that a fence holds; None of code, whose token says then that it is plain code."""
    directive_match = _DIRECTIVE_FENCE.fullmatch(token.info.strip())
    directive_name = directive_match[1] or "" if directive_match else ""
    if directive_match is None or directive_name not in _KNOWN_DIRECTIVES:
        return None
    option_lines = _DIRECTIVE_OPTIONS.match(token.content)
    directive_content = token.content[option_lines.end() :] if option_lines else token.content
    if directive_name in _CODE_DIRECTIVES:
        token.info, token.content = directive_match[2] or "", directive_content
        return None
    if directive_name in _SILENT_DIRECTIVES and is_closed:
        return ""
    kind_label = (
        directive_name.capitalize()
        if directive_name in _NOTE_DIRECTIVES
        else DIRECTIVE_LABELS.get(directive_name, "")
    )
    directive_title = "" if directive_name in _UNTITLED_DIRECTIVES else directive_match[2] or ""
    return f"{kind_label} {directive_title}\n\n{directive_content}"
