"""Extension of Sphinx.

Rule numbers as links to the rules, plain members of classes, and `llms.txt`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pages
from docutils import nodes
from rules import NUMBER, rule_sentences

RULES_PAGE = "explanation/rules"
NO_LINK = (
    nodes.literal,
    nodes.reference,
    nodes.title,
    nodes.literal_block,
    nodes.raw,
    nodes.strong,
)
_ARRAY = r"(?:~?numpy\.)?ndarray\[tuple\[(?:~?typing\.)?Any, \.\.\.\], (?:~?numpy\.)?dtype\[{}\]\]"
ARRAYS = [  # array types as autodoc expands them, and their names in the source
    (re.compile(_ARRAY.format(r"(?:~?numpy\.)?float64") + r" \| float"), "Floats"),
    (
        re.compile(_ARRAY.format(r"(?:~?numpy\.)?integer\[(?:~?typing\.)?Any\]") + r" \| int"),
        "Ints",
    ),
    (re.compile(_ARRAY.format(r"(?:~?numpy\.)?bool") + r" \| bool"), "Bools"),
    (re.compile(_ARRAY.format(r"(?:~?numpy\.)?((?:[^\[\]]|\[[^\[\]]*\])+)")), r"NDArray[\1]"),
]
ALIAS = re.compile(r"Alias for field number \d+")


def name_rules(app: Any, doctree: nodes.document) -> None:  # noqa: ANN401 - of Sphinx
    """Give each rule of the page of rules its number as an anchor: `rules.html#S2.3`."""
    if app.env.docname != RULES_PAGE:
        return
    numbers = set()
    for item in doctree.findall(nodes.list_item):
        first = next(iter(item.findall(nodes.strong)), None)
        number = NUMBER.match(first.astext()) if first is not None else None
        if number is not None and number[1] not in numbers and first.parent.parent is item:
            item["ids"].append(number[1])
            numbers.add(number[1])


def link_rules(app: Any, doctree: nodes.document, docname: str) -> None:  # noqa: ANN401 - of Sphinx
    """Make each rule number in a text a link to the rule, whose first sentence is the tooltip."""
    base = app.builder.get_relative_uri(docname, RULES_PAGE)
    sentences = rule_sentences()
    for text in list(doctree.findall(nodes.Text)):
        if is_bare(text) and NUMBER.search(text.astext()):
            text.parent.replace(text, parts(text.astext(), base, sentences))


def is_bare(text: nodes.Text) -> bool:
    """Whether a text is neither code, nor a heading, nor a link."""
    node = text.parent
    while node is not None:
        if isinstance(node, NO_LINK) or "sig" in node.attributes.get("classes", ()):
            return False
        node = node.parent
    return True


def parts(text: str, base: str, sentences: dict[str, str]) -> list[nodes.Node]:
    """A text cut at its rule numbers, each of them a link."""
    pieces: list[nodes.Node] = []
    for index, piece in enumerate(NUMBER.split(text)):
        if index % 2 and piece in sentences:
            address = f"{base}#{piece}"
            pieces.append(
                nodes.reference(
                    piece, piece, internal=True, refuri=address, reftitle=sentences[piece]
                )
            )
        elif piece:
            pieces.append(nodes.Text(piece))
    return pieces


# of Sphinx
def skip_aliases(
    _app: Any,  # noqa: ANN401
    _what: str,
    name: str,
    value: object,
    _skip: bool,  # noqa: FBT001
    _options: Any,  # noqa: ANN401
) -> bool | None:
    """Leave out what scikit-learn adds, and named-tuple fields, which their class lists anyway."""
    is_alias = ALIAS.fullmatch(str(getattr(value, "__doc__", "") or "")) is not None
    is_alias = is_alias or name == "model_config"
    return (
        True if is_alias or str(getattr(value, "__module__", "")).startswith("sklearn.") else None
    )


def name_types(*event: Any) -> tuple[str | None, str | None]:  # noqa: ANN401 - of Sphinx
    """Signature and type of a function with the names of array types as the source has them."""
    (what, value), (signature, returned) = (event[1], event[3]), event[-2:]
    # a policy: its sections are on the page of the policy file
    if what == "class" and hasattr(value, "model_fields"):
        return "(**sections)", None
    return tuple(None if text is None else named_types(text) for text in (signature, returned))


def named_types(text: str) -> str:
    """Annotations with `Floats`, `Ints`, `Bools`, `NDArray[…]` in place of what they stand for."""
    for long, short in ARRAYS:
        text = long.sub(short, text)
    return text


def write_llms(app: Any, error: Exception | None) -> None:  # noqa: ANN401 - of Sphinx
    """Write `llms.txt`: every page with its title and first sentence."""
    if error is not None or app.builder.format != "html":
        return
    lines = [
        "# raglab",
        "",
        "> " + pages.described(Path(app.srcdir, "index.md").read_text(encoding="utf-8")),
        "",
    ]
    folders: dict[str, list[str]] = {}
    for name in sorted(app.env.found_docs):
        line = f"- [{app.env.titles[name].astext()}]({app.builder.get_target_uri(name)})"
        sentence = page_sentence(Path(app.env.doc2path(name)))
        folders.setdefault(name.rpartition("/")[0], []).append(
            f"{line}: {sentence}" if sentence else line
        )
    for folder, rows in folders.items():
        lines += [f"## {folder or 'raglab'}", "", *rows, ""]
    Path(app.outdir, "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def page_sentence(file: Path) -> str:
    """First sentence of a page of Markdown or of a notebook; of any other file nothing."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells[:2])
    return pages.described(text) if file.suffix in {".md", ".ipynb"} else ""


def setup(app: Any) -> dict[str, Any]:  # noqa: ANN401 - of Sphinx
    """What Sphinx calls."""
    app.connect("doctree-read", name_rules)
    app.connect("doctree-resolved", link_rules)
    app.connect("autodoc-skip-member", skip_aliases)
    app.connect("autodoc-process-signature", name_types)
    app.connect("build-finished", write_llms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
