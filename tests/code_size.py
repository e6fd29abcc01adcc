"""Size of Python by rooms: nodes of the syntax tree, words of messages, bytes of other files.

Names, lines and formatting cost nothing. Nodes are counted without docstrings and without load and
store marks. Words are those of texts with a blank in them that are no docstrings: messages, notes,
captions. Other files are YAML, JavaScript, CSS, HTML and templates.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import NamedTuple

OWNERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
OTHER = (".yaml", ".yml", ".js", ".css", ".html", ".j2", ".json", ".toml")
SHORT = 10  # lines, in which 500 nodes do not fit


class Size(NamedTuple):
    """Nodes, words of messages and bytes of other files."""

    nodes: int = 0
    words: int = 0
    other: int = 0

    def plus(self, more):
        """Sum of two."""
        return Size(*(a + b for a, b in zip(self, more, strict=True)))


def counted(tree):
    """Nodes of a tree without docstrings and without load and store marks."""
    nodes, docstrings = list(ast.walk(tree)), set()
    for node in nodes:
        if isinstance(node, OWNERS) and node.body and isinstance(node.body[0], ast.Expr):
            value = node.body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docstrings |= {id(node.body[0]), id(value)}
    return [
        node
        for node in nodes
        if id(node) not in docstrings and not isinstance(node, ast.expr_context)
    ]


@cache
def parsed(path):
    """Tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def tree_size(tree):
    """Size of a module."""
    nodes = counted(tree)
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    texts = [value for value in values if isinstance(value, str) and " " in value]
    return Size(len(nodes), sum(len(text.split()) for text in texts))


def functions(tree):
    """Name and nodes of every function of ten lines or more, those inside others too."""
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and (node.end_lineno or 0) - node.lineno >= SHORT:
            yield node.name, len(counted(node))


def room_sizes(root):
    """Size of each folder below a root, each room of `extensions`, and the root's own files."""
    sizes: dict[str, Size] = {}
    for path in sorted(root.rglob("*")):
        if "__pycache__" in path.parts or not path.is_file():
            continue
        inner = path.relative_to(root).parent.parts
        room = "/".join(inner[: 2 if inner[:1] == ("extensions",) else 1]) or "."
        if path.suffix == ".py":
            size = tree_size(parsed(path))
        elif path.suffix in OTHER:
            size = Size(other=path.stat().st_size)
        else:
            continue
        sizes[room] = sizes.get(room, Size()).plus(size)
    return sizes


def total(root):
    """Size of all files below a root."""
    size = Size()
    for room in room_sizes(root).values():
        size = size.plus(room)
    return size
