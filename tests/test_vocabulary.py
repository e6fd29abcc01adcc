"""Names are nouns of the field.

No participle and no pronoun names a variable, a field or a function.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = frozenset(
    [
        "said",
        "found",
        "told",
        "seen",
        "came",
        "asked",
        "kept",
        "made",
        "given",
        "one",
        "two",
        "other",
        "others",
        "ours",
        "theirs",
        "anew",
        "then",
    ]
)
# Names that stay, by file: why.
EXCEPTIONS: dict[tuple[str, str], str] = {
    (
        "raglab/words/packs.py",
        "asked",
    ): "key of a pack's files, and of the tables that pack authors write",
}


def sources():
    """Every module of raglab and of experiments, and every notebook."""
    folders = (ROOT / "raglab", ROOT / "experiments")
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [*files, *sorted((ROOT / "notebooks").glob("*.ipynb"))]


def source(path):
    """Its code; the code cells of a notebook, one after the other."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    return "\n".join(line for line in lines if not line.startswith("%"))  # magics of IPython


def names(tree):
    """Names that the code gives to something, with their line.

    Of variables, arguments, fields, functions, classes.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def scopes(tree):
    """Each function, class and the module, with the names given inside."""
    for node in (tree, *ast.walk(tree)):
        if isinstance(
            node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
        ):
            yield node, {name for name, _ in names(node)}


def faults(code, file):
    """Lines of names that are on the list.

    `left` counts where no `right` is named in the same scope.
    """
    tree = ast.parse(code)
    lines = [
        f"{file}:{line}: {name}"
        for name, line in names(tree)
        if name.strip("_") in WORDS and (file, name) not in EXCEPTIONS
    ]
    inner = [
        (node, given)
        for node, given in (scopes(tree) if "left" in code else ())
        if not isinstance(node, ast.Module) and "left" in given and "right" not in given
    ]
    return sorted(
        {*lines, *(f"{file}:{getattr(node, 'lineno', 1)}: left without right" for node, _ in inner)}
    )


def test_names_are_nouns():
    """Of variables, arguments, fields, functions, classes and imports.

    What is excepted says why.
    """
    lines = [
        line for path in sources() for line in faults(source(path), str(path.relative_to(ROOT)))
    ]
    assert lines == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("def found(): pass", 1),
        ("def f(*, told=None): pass", 1),
        ("(lambda given: given)(1)", 1),
        ("def f():\n    left = 1", 1),
        ("row.one", 0),
    ],
)
def test_the_test_finds_names(code, count):
    """Whole identifiers, wherever they are given; attributes of others are theirs."""
    assert len(faults(code, "a.py")) == count
