"""reStructuredText (shore): read by docutils into HTML, whose blocks are those of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent, indent
from typing import Any

from raglab.arguments.user_warnings import warn_user
from raglab.store.blocks import DocumentBlocks
from raglab.store.files import Where, input_error, shown_value
from raglab.store.html import html_document
from raglab.store.optional_libraries import library
from raglab.words.characters import visible

_ROLE = re.compile(r":([\w:.+-]+):`~?!?([^`]*)`")
_OPTION = re.compile(r":[\w -]+:(?!`)")
# roles whose title may touch its target
_TITLED = frozenset({"any", "doc", "download", "numref", "ref", "term"})
# Directives that hold no text for readers, by their names without a domain. An image is here where
# it cannot be read.
_SILENT = frozenset(
    {"autoattribute", "autoclass", "autodata", "autodecorator", "autoexception", "autofunction"}
    | {
        "automethod",
        "automodule",
        "codeauthor",
        "currentmodule",
        "default-domain",
        "highlight",
        "image",
    }
    | {"include", "index", "literalinclude", "meta", "module", "program", "raw", "sectionauthor"}
    | {"tabularcolumns", "testcleanup", "testsetup", "toctree"}
)
# what stands behind the name is no text
_UNTITLED = frozenset({"cssclass", "figure", "ifconfig", "only", "rst-class"})
_CODE = frozenset({"code", "code-block", "sourcecode"})
VERSIONS = {
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
}
_DEEPEST = 8  # of unknown directives in one another
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
    "smart_quotes": False,
    "math_output": "latex",
    "initial_header_level": "1",
    "doctitle_xform": False,
    "sectsubtitle_xform": False,
    "line_length_limit": 1_000_000,
    "datestamp": None,
    "generator": None,
}


def rst_blocks(text: str, file: str) -> DocumentBlocks:
    """Blocks of reStructuredText.

    No other file is read and no HTML taken over. Of a directive or a role that docutils does not
    know, such as those of Sphinx, the text stays.

    A substitution by the day on which the text is read, `.. |d| date::`, stays as it is written:
    the same text gives the same blocks.

    Args:
      file: for messages.

    Raises:
      InputError: docutils cannot read it, or is not installed.

    Warns:
      UserWarning: counts substitutions by the day.
    """
    core = library("docutils.core", file)
    try:
        tree = _tree(text, file)
        if dates := sum(_is_date(definition) for definition in _definitions(tree)):
            rule = f"{dates} substitutions stand for the day on which the text is read"
            warn_user(visible(f"{file}: {rule}: they stay as they are written; write the date."))
        page = core.publish_from_doctree(tree, writer="html5", settings_overrides=_SETTINGS)
    # its parser fails in as many ways as texts can be broken
    except (Exception, SystemExit) as error:
        reason = shown_value(f"{type(error).__name__}: {error}")
        raise input_error(
            Where(file), "a text must be valid reStructuredText", "correct it", reason
        ) from error
    return DocumentBlocks("", html_document(page, file, source=text).blocks)


# docutils is optional, and so are its types
def _tree(text: str, file: str, depth: int = 0) -> Any:  # noqa: ANN401
    """Tree of a text, with unknown directives' and roles' text where messages on them stand."""
    from docutils import nodes

    core = library("docutils.core", file)
    tree = core.publish_doctree(text, reader=_dateless_reader(), settings_overrides=_SETTINGS)
    # a transform would gather them at the end
    tree.transform_messages, tree.parse_messages = [], []
    for message in [*tree.findall(nodes.system_message)]:
        source = next(message.findall(nodes.literal_block), None)
        parts = [] if source is None or depth == _DEEPEST else _directive_parts(source.astext())
        message.parent.replace(
            message, [part for text in parts for part in _tree(text, file, depth + 1).children]
        )
    for problem in [*tree.findall(nodes.problematic)]:
        role = _ROLE.fullmatch(problem.astext())
        title = "" if role is None else role_title(role[1], " ".join(role[2].split()))
        text = nodes.literal(title, title) if title else nodes.Text(problem.astext())
        problem.parent.replace(problem, text)
    for image in [*tree.findall(nodes.image)]:
        image.attributes.pop("loading", None)  # `embed` would take over the file that it names
    return tree


def _dateless_reader() -> Any:  # noqa: ANN401
    """Reader of docutils that knows no clock: names stand where `date` would put the day."""
    from docutils import nodes
    from docutils.readers import standalone
    from docutils.transforms import Transform

    class Dateless(Transform):  # type: ignore[misc]
        default_priority = 210  # just before substitutions, at 220

        def apply(self) -> None:
            for definition in _definitions(self.document):
                if _is_date(definition):
                    definition.clear()
                    definition.append(nodes.Text(f"|{definition['names'][0]}|"))

    class DatelessReader(standalone.Reader):  # type: ignore[misc]
        def get_transforms(self) -> list[type[Transform]]:
            return [*super().get_transforms(), Dateless]

    return DatelessReader()


def _definitions(tree: Any) -> list[Any]:  # noqa: ANN401
    """Definitions of substitutions in a tree."""
    from docutils import nodes

    return [*tree.findall(nodes.substitution_definition)]


def _is_date(definition: Any) -> bool:  # noqa: ANN401
    """Whether a definition of a substitution calls `date`, behind its name."""
    name = r"\s+".join(map(re.escape, definition["names"][0].split()))
    return re.search(rf"\|{name}\|\s+date\s*::", definition.rawsource, re.IGNORECASE) is not None


def _directive_parts(source: str) -> list[str]:
    """Texts of a directive: what stands behind its name, and its content without options."""
    first, *lines = source.split("\n")
    stated, _, argument = first.lstrip(". ").partition("::")
    name = stated.rpartition(":")[2].strip()
    if name in _SILENT:
        return []
    options = _count_options(lines)
    content = dedent("\n".join(lines[options:])).strip("\n")
    if name in _CODE and options:  # those of Sphinx; without them it can be read
        return [f".. code-block::{argument}\n\n{indent(content, '   ')}"] if content.strip() else []
    title = "" if name in _UNTITLED else f"{VERSIONS.get(name, '')} {argument}".strip()
    return [part for part in (title, content) if part.strip()]


def _count_options(lines: Sequence[str]) -> int:
    """Lines of options at the start of a directive, with what continues them below, further in."""
    depth = _depth(lines[0]) if lines else 0
    for count, line in enumerate(lines):
        continues = count > 0 and line.strip() and _depth(line) > depth
        if not (continues or _OPTION.match(line.strip())):
            return count
    return len(lines)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def role_title(role: str, text: str) -> str:
    """What a reader sees of a role.

    Its text without the target in angle brackets, which may hold others.
    """
    target = text.find(" <")
    if target < 0 and role.rpartition(":")[2] in _TITLED:
        target = text.find("<")
    return text[:target].rstrip() if target > 0 and text.endswith(">") else text
