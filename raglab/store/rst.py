"""reStructuredText (shore): read by docutils into HTML, whose blocks are those of a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from raglab.store.blocks import DocumentBlocks
from raglab.store.html import html_document, names
from raglab.store.markdown import DIRECTIVE_LABELS

# roles whose title may touch its target
_TITLED_ROLES = names("any,doc,download,numref,ref,term")
# Directives that hold no text for readers, by their names without a domain.
_SILENT_DIRECTIVES = names(
    "codeauthor,currentmodule,default-domain,highlight,include,index,literalinclude,meta,module,"
    "program,raw,sectionauthor,tabularcolumns,testcleanup,testsetup,toctree"
)
_CODE_DIRECTIVES = names("code,code-block,sourcecode")
# what stands behind the name is no text
_UNTITLED_DIRECTIVES = names("cssclass,figure,ifconfig,only,rst-class")
_DOCUTILS_SETTINGS = {
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


def rst_blocks(raw_bytes: bytes) -> DocumentBlocks:
    """Blocks of reStructuredText.

    No other file is read and no HTML taken over. Of a directive or a role that docutils does not
    know, such as those of Sphinx, the text stays. A substitution by the day on which the text is
    read, `.. |d| date::`, stays as it is written: the same text gives the same blocks.

    Args:
      raw_bytes: text as UTF-8.
    """
    from docutils import core, nodes

    with _sphinx_names():
        document_tree = core.publish_doctree(
            raw_bytes.decode(), settings_overrides=_DOCUTILS_SETTINGS
        )
    document_tree.transform_messages = []
    for message in [*document_tree.findall(nodes.system_message)]:
        unread_text = message.next_node(nodes.literal_block)  # what could not be read
        message.parent.replace(message, [] if unread_text is None else [unread_text])
    for problem in [*document_tree.findall(nodes.problematic)]:
        problem.parent.replace(problem, nodes.Text(problem.astext()))
    html_page = core.publish_from_doctree(
        document_tree, writer="html5", settings_overrides=_DOCUTILS_SETTINGS
    )
    return DocumentBlocks("", html_document(html_page).blocks)


@contextmanager
def _sphinx_names() -> Iterator[None]:
    """Let docutils read directives and roles of any name, no picture's file, and no clock."""
    from docutils import nodes
    from docutils.parsers.rst import directives, roles

    def title(role_name: str, _raw: str, role_text: str, *_: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
        role_text = " ".join(role_text.split()).lstrip("~!")
        # what precedes the target
        target_mark = "<" if role_name.rpartition(":")[2] in _TITLED_ROLES else " <"
        shown_title = (
            role_text.partition(target_mark)[0].rstrip() if role_text.endswith(">") else role_text
        )
        return [nodes.literal(role_text, shown_title or role_text)], []

    known_directive = directives.directive
    known_role = roles.role
    own_directives = frozenset({"date", "image", "figure", *_CODE_DIRECTIVES, *_SILENT_DIRECTIVES})
    directives.directive = _with_default(known_directive, _content_directive(), own_directives)
    roles.role = _with_default(known_role, title)
    try:
        yield
    finally:
        directives.directive, roles.role = known_directive, known_role
        roles._roles.clear()  # noqa: SLF001 - a text must not name roles for the next


def _with_default(
    known_lookup: Any,  # noqa: ANN401
    default_entry: Any,  # noqa: ANN401
    own_names: frozenset[str] = frozenset(),
) -> Any:  # noqa: ANN401
    """Look-up of docutils with a default for names that it does not know, and for own ones."""

    def lookup(directive_name: str, *lookup_arguments: Any) -> tuple[Any, list[Any]]:  # noqa: ANN401
        looked_up = (
            (None, [])
            if directive_name.lower() in own_names
            else known_lookup(directive_name, *lookup_arguments)
        )
        return looked_up if looked_up[0] else (default_entry, [])

    return lookup


def _content_directive() -> Any:  # noqa: ANN401 - docutils has no types
    """Class of directives of any name and options, which are their text."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    def option(option_text: str | None) -> str:
        return option_text or ""

    class Content(Directive):  # type: ignore[misc]
        has_content, final_argument_whitespace, optional_arguments = True, True, 1
        option_spec = defaultdict(lambda: option, alt=option)  # noqa: RUF012 - of any name

        def run(self) -> list[Any]:
            directive_name = self.name.rpartition(":")[2].lower()
            directive_argument = " ".join(self.arguments)
            if directive_name in _SILENT_DIRECTIVES or directive_name.startswith("auto"):
                return []
            if directive_name == "date":
                return [nodes.Text(f"|{self.state.parent['names'][0]}|")]
            if directive_name == "image":
                return [nodes.inline("", self.options.get("alt", ""))]
            if directive_name in _CODE_DIRECTIVES:
                code_text = "\n".join(self.content)
                return [
                    nodes.literal_block(
                        code_text, code_text, classes=["code", *directive_argument.split()[:1]]
                    )
                ]
            container = nodes.container()
            directive_title = (
                ""
                if directive_name in _UNTITLED_DIRECTIVES
                else f"{DIRECTIVE_LABELS.get(directive_name, '')} {directive_argument}".strip()
            )
            if directive_title:
                title_nodes, _ = self.state.inline_text(directive_title, self.lineno)
                container += nodes.paragraph(directive_title, "", *title_nodes)
            self.state.nested_parse(self.content, self.content_offset, container)
            return [container]

    return Content
