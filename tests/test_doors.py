"""What a researcher imports.

Notebooks and guides take names from the public doors and the algebra.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path

import raglab
from raglab.extension_points import PublicName, listed_names

ROOT = Path(__file__).resolve().parents[1]
ROOM = Path(raglab.__file__).parent
STUBS = {
    "raglab": "__init__.pyi",
    "raglab.displays": "displays/__init__.pyi",
    "raglab.io": "io.pyi",
    "raglab.lab": "lab/__init__.pyi",
    "raglab.live": "live/__init__.pyi",
}
DOORS: dict[str, dict[str, PublicName]] = {
    door: listed_names((ROOM / stub).read_text(encoding="utf-8")) for door, stub in STUBS.items()
}
DOORS["raglab.sklearn"] = {"PolicyClassifier": PublicName("sklearn", None)}
# Modules of the algebra: those that `raglab` lists, and those that docs/public_names.md names
# beside them.
ALGEBRA = {f"raglab.{name}" for name, place in DOORS["raglab"].items() if not place.module} - {
    *DOORS
} | {
    f"raglab.{name}"
    for name in (
        "gating.expected_cost",
        "gating.fused_gate",
        "policy",
        "replay",
        "signals",
        "values",
    )
}


def code_of(path):
    """Its code; the code cells of a notebook or the Python blocks of a page, one after another."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return text
    if path.suffix == ".md":
        return "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    return "\n".join(line for line in lines if not line.startswith("%"))  # magics of IPython


def used_names(code):
    """Module and name of what the code takes from raglab, by an import or as an attribute."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "raglab":
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                (module, name)
                for module, dot, name in (alias.name.rpartition(".") for alias in node.names)
                if module.split(".")[0] == "raglab"
            )
        elif isinstance(node, ast.Attribute):
            module = ast.unparse(node.value)
            if module in {*DOORS, *ALGEBRA}:
                yield module, node.attr


def is_public(module, name):
    """Whether a door or a module of the algebra offers a name."""
    if f"{module}.{name}" in {*DOORS, *ALGEBRA}:
        return True
    if module in DOORS:
        return name in DOORS[module] or name.startswith("__")
    if module not in ALGEBRA or name.startswith("_"):
        return False
    offered = importlib.import_module(module)
    return name in getattr(offered, "__all__", dir(offered))


def internals(code):
    """Names that the code takes from where no researcher looks."""
    return sorted(
        {f"{module}.{name}" for module, name in used_names(code) if not is_public(module, name)}
    )


PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]


def test_pages_need_the_doors_alone():
    """Without exception."""
    names = {path.name: internals(code_of(path)) for path in PAGES}
    assert {file: taken for file, taken in names.items() if taken} == {}
