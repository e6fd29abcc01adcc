"""The table of tests/README.md names every test that `make test` leaves to `make test-all`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| [^|]+ \| `(?P<module>[\w/]+\.py)` \| (?P<names>.+) \|$", re.MULTILINE)


def marked(path: Path) -> Iterator[str]:
    """Names of what a module marks `full`: `*`, functions, classes, methods."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and "pytestmark" in ast.unparse(node)
            and "mark.full" in ast.unparse(node)
        ):
            yield "*"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{method.name}" for method in node.body if is_full(method))
    yield from (
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and is_full(node)
    )


def is_full(node: ast.stmt) -> bool:
    """Whether a function or class carries the mark."""
    return any("mark.full" in ast.unparse(mark) for mark in getattr(node, "decorator_list", ()))


def test_the_table_names_what_is_marked() -> None:
    """No more and no less, but for the rooms that are not installed."""
    modules = {
        path.relative_to(TESTS).as_posix(): set(marked(path)) for path in TESTS.rglob("test_*.py")
    }
    rows = ROW.finditer((TESTS / "README.md").read_text(encoding="utf-8"))
    listed: dict[str, set[str]] = {}
    for row in rows:
        listed.setdefault(row["module"], set()).update(re.findall(r"`([\w.*]+)`", row["names"]))
    rooms = {
        f"extensions/{path.name}/" for path in (TESTS / "extensions").glob("*") if path.is_dir()
    }
    there = {
        name: names
        for name, names in listed.items()
        if not name.startswith("extensions/") or name.startswith(tuple(rooms))
    }
    assert there == {name: names for name, names in modules.items() if names}
