"""Files of the package, their syntax and their layers."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import raglab

ROOT = Path(raglab.__file__).parent
# the lazy facade names all
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
# Layers from the ground up. A room, or a module of the root, imports lower layers and itself.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"arguments", "signals", "progress", "extension_points"}),
    frozenset({"words", "loops"}),
    frozenset({"values"}),
    frozenset({"metrics", "reward"}),
    frozenset({"gating", "bandit", "calibration", "certify"}),
    frozenset({"gates", "default_learner", "off_policy"}),
    frozenset({"policy_parts"}),
    frozenset({"policy", "resolver"}),
    frozenset({"decision"}),
    frozenset({"replaying"}),
    frozenset({"replay"}),
    frozenset({"models"}),
    frozenset({"store"}),
    frozenset({"retrieval", "answering"}),
    frozenset({"audit"}),
    frozenset({"live"}),
    frozenset({"displays"}),
    frozenset({"lab"}),
    frozenset({"extensions"}),
    frozenset({"cli", "io", "sklearn"}),
    frozenset({"__main__"}),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
# A bar on the screen and who runs a loop are of the world; nothing computed hangs on them.
OF_THE_WORLD = {
    "progress.py",
    "extension_points.py",
    "loops/parallel.py",
    "arguments/user_warnings.py",
    "extensions/budgets/cascades.py",  # looks are in a file
}
ALGEBRA = frozenset().union(*LAYERS[: LAYER["models"]])


def part(path):
    """Package, or module at the top, that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def tree(path):
    """Syntax of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def place(path):
    """Path of a file below the package."""
    return path.relative_to(ROOT).as_posix()


ALGEBRA_FILES = [
    path
    for path in FILES
    if part(path) in ALGEBRA or place(path).startswith("extensions/budgets/")
    if place(path) not in OF_THE_WORLD
]
