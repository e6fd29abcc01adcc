"""reStructuredText (shore): read by docutils into HTML, whose blocks are those of a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from raglab.store.blocks import DocumentBlocks
from raglab.store.html import html_document, names
from raglab.store.markdown import LABELS

# roles whose title may touch its target
_TITLED = names("any,doc,download,numref,ref,term")
# Directives that hold no text for readers, by their names without a domain.
_SILENT = names(
    "codeauthor,currentmodule,default-domain,highlight,include,index,literalinclude,meta,module,"
    "program,raw,sectionauthor,tabularcolumns,testcleanup,testsetup,toctree"
)
_CODE = names("code,code-block,sourcecode")
# what stands behind the name is no text
_UNTITLED = names("cssclass,figure,ifconfig,only,rst-class")
_SETTINGS = {
    "file_insertion_enabled": False,  # `include` reads no other file
    "raw_enabled": False,
    "_disable_config": True,  # nor a docutils.conf
    "report_level": 3,  # errors stay in the tree, with what could not be read
    "halt_level": 5,
    "warning_stream": False,
    "traceback": True,
    "input_encoding": "unicode",
    "output_encoding": "unicode",
    "embed_stylesheet": False,
    "stylesheet_path": "",
    "syntax_highlight": "none",
    "math_output": "latex",
    "initial_header_level": "1",
    "doctitle_xform": False,
    "line_length_limit": 1_000_000,
}


def rst_blocks(raw: bytes) -> DocumentBlocks:
    """Blocks of reStructuredText.

    No other file is read and no HTML taken over. Of a directive or a role that docutils does not
    know, such as those of Sphinx, the text stays. A substitution by the day on which the text is
    read, `.. |d| date::`, stays as it is written: the same text gives the same blocks.

    Args:
      raw: text as UTF-8.
    """
    from docutils import core, nodes

    with _sphinx_names():
        tree = core.publish_doctree(raw.decode(), settings_overrides=_SETTINGS)
    tree.transform_messages = []
    for message in [*tree.findall(nodes.system_message)]:
        text = message.next_node(nodes.literal_block)  # what could not be read
        message.parent.replace(message, [] if text is None else [text])
    for problem in [*tree.findall(nodes.problematic)]:
        problem.parent.replace(problem, nodes.Text(problem.astext()))
    page = core.publish_from_doctree(tree, writer="html5", settings_overrides=_SETTINGS)
    return DocumentBlocks("", html_document(page).blocks)


@contextmanager
def _sphinx_names() -> Iterator[None]:
    """Let docutils read directives and roles of any name, no picture's file, and no clock."""
    from docutils import nodes
    from docutils.parsers.rst import directives, roles

    def title(name: str, _raw: str, text: str, *_: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
        text = " ".join(text.split()).lstrip("~!")
        mark = "<" if name.rpartition(":")[2] in _TITLED else " <"  # before the target
        shown = text.partition(mark)[0].rstrip() if text.endswith(">") else text
        return [nodes.literal(text, shown or text)], []

    known_directive, known_role = directives.directive, roles.role
    own = frozenset({"date", "image", "figure", *_CODE, *_SILENT})
    directives.directive = _with_default(known_directive, _content_directive(), own)
    roles.role = _with_default(known_role, title)
    try:
        yield
    finally:
        directives.directive, roles.role = known_directive, known_role
        roles._roles.clear()  # noqa: SLF001 - a text must not name roles for the next


def _with_default(known: Any, default: Any, own: frozenset[str] = frozenset()) -> Any:  # noqa: ANN401
    """Look-up of docutils with a default for names that it does not know, and for own ones."""

    def lookup(name: str, *more: Any) -> tuple[Any, list[Any]]:  # noqa: ANN401
        result = (None, []) if name.lower() in own else known(name, *more)
        return result if result[0] else (default, [])

    return lookup


def _content_directive() -> Any:  # noqa: ANN401 - docutils has no types
    """Class of directives of any name and options, which are their text."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    def option(text: str | None) -> str:
        return text or ""

    class Content(Directive):  # type: ignore[misc]
        has_content, final_argument_whitespace, optional_arguments = True, True, 1
        option_spec = defaultdict(lambda: option, alt=option)  # noqa: RUF012 - of any name

        def run(self) -> list[Any]:
            name = self.name.rpartition(":")[2].lower()
            argument = " ".join(self.arguments)
            if name in _SILENT or name.startswith("auto"):
                return []
            if name == "date":
                return [nodes.Text(f"|{self.state.parent['names'][0]}|")]
            if name == "image":
                return [nodes.inline("", self.options.get("alt", ""))]
            if name in _CODE:
                code = "\n".join(self.content)
                return [nodes.literal_block(code, code, classes=["code", *argument.split()[:1]])]
            container = nodes.container()
            title = "" if name in _UNTITLED else f"{LABELS.get(name, '')} {argument}".strip()
            if title:
                texts, _ = self.state.inline_text(title, self.lineno)
                container += nodes.paragraph(title, "", *texts)
            self.state.nested_parse(self.content, self.content_offset, container)
            return [container]

    return Content
