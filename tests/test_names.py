"""One class per name: whoever searches for a name finds one class (house.md, section 4)."""

from __future__ import annotations

import ast
from collections import defaultdict

from package_files import FILES, ROOT, tree


def test_class_names_are_unique():
    """In the whole package, classes of a function and private ones among them."""
    where: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}
