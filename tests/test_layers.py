"""The architecture.

Packages import down, the algebra touches no world, a heavy library stands in one module.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import raglab

ROOT = Path(raglab.__file__).parent
# the lazy facade names all
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
# Layers from the ground up. A package imports lower layers and itself; inside a layer, imports form
# no cycle.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "field_rules",
            "values",
            "canonical",
            "documents",
            "characters",
            "decimals",
            "code_blocks",
            "languages",
            "numerals",
            "plain_arrays",
            "text",
            "words",
            "arms",
            "case_groups",
            "_numba",
            "rules",
            "html_display",
            "user_warnings",
            "progress",
            "parallel",
            "extension_points",
        }
    ),
    frozenset(
        {
            "packs",
            "patterns",
            "case_groups",
            "signals",
            "signal_gates",
            "expected_cost",
            "gates",
            "gate_order",
            "own_gates",
            "fusion",
            "resolver",
            "resolver_rules",
            "reward",
            "bandit",
            "default_learner",
            "calibration",
            "certify",
            "robustness",
            "metrics",
            "off_policy",
        }
    ),
    frozenset({"policy_sections", "policy", "thresholds", "decision", "misuse"}),
    frozenset({"breakpoints", "case_codes", "step_functions", "replay"}),
    frozenset({"blobs", "model_files"}),
    frozenset({"model_tokens"}),
    frozenset({"models", "store", "retrieval", "answering"}),
    frozenset({"live", "audit", "signal_models"}),
    frozenset({"displays"}),
    frozenset({"lab"}),
    frozenset({"extensions"}),
    frozenset({"cli", "io", "sklearn", "testing"}),
    frozenset({"__main__"}),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
# A bar on the screen, who runs a loop and where RULES.md stands are of the world; nothing computed
# hangs on them.
ALGEBRA = frozenset().union(*LAYERS[:4]) - {
    "progress",
    "rules",
    "parallel",
    "user_warnings",
    "extension_points",
}
SHORE_PEERS = {
    ("retrieval", "models"),
    ("answering", "models"),
    ("store", "models"),
    ("parallel", "progress"),
}  # the only ones of their layer
HEAVY = (
    "faiss",
    "torch",
    "PIL",
    "sentence_transformers",
    "bm25s",
    "mlflow",
    "optuna",
    "matplotlib",
    "pyarrow",
    "re2",
    "numba",
    "pypdf",
    "selectolax",
    "markdown_it",
    "docx",
    "openpyxl",
    "nbformat",
    "docutils",
    "duckdb",
    "ipywidgets",
    "openai",
    "langgraph",
    "langchain_core",
    "sqlalchemy",
    "pydantic_settings",
    "prometheus_client",
    "tqdm",
    "dask",
    "distributed",
)
SLOW = (*HEAVY, "pandas", "scipy", "sklearn")
# none in the algebra
WORLD = {"time", "os", "random", "tempfile", "secrets", "uuid", "socket", "subprocess", "shutil"}
CLOCK = {"now", "today", "utcnow", "time", "perf_counter", "monotonic"}
HASHES = {"digest", "sha256", "canonical_json"}
MOMENTS = {"now", "today", "utcnow"}  # what tells durations alone may stand beside a hash
GENERATORS = {"default_rng", "SeedSequence"}
BITS = {"Generator", "PCG64", "PCG64DXSM"}  # built over bits of a seed
CHANCE = {"seed", "rng"}


def part(path: Path) -> str:
    """Package, or module at the top, that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def module(path: Path) -> str:
    """Dotted name of a file."""
    return ".".join(("raglab", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


@cache
def tree(path: Path) -> ast.Module:
    """Syntax of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Dotted names of what a file imports, inside functions and for types as well."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Cycles of a graph, as what is left when all that imports nothing more is taken away."""
    left = {name: set(there) - {name} for name, there in edges.items()}
    while True:
        done = {name for name, there in left.items() if not there & left.keys()}
        if not done:
            return [sorted(left)] if left else []
        left = {name: there - done for name, there in left.items() if name not in done}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    """A package imports lower layers and itself.

    Beside itself only inside the algebra, or what `SHORE_PEERS` names.
    """
    here = part(path)
    assert here in LAYER, f"{here} has no layer: give it one"
    names = imported(path)
    assert "raglab" not in names, "import the module, not the package"
    for there in {name.split(".")[1] for name in names if name.startswith("raglab.")} - {here}:
        assert there in LAYER, f"{there} has no layer: give it one"
        peers = LAYER[here] == LAYER[there] and (here in ALGEBRA or LAYER[here] == LAYER["live"])
        assert LAYER[there] < LAYER[here] or peers or (here, there) in SHORE_PEERS, (
            f"{here} imports {there}"
        )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_an_extension(path: Path) -> None:
    """Neither the core nor another room.

    A room's folder can be deleted, and everything else goes on.
    """
    file = path.relative_to(ROOT)
    own = file.parts[1] if file.parts[0] == "extensions" else ""
    rooms = {name.split(".")[2] for name in imported(path) if name.startswith("raglab.extensions.")}
    assert rooms <= {own}


def test_nothing_imports_in_a_circle() -> None:
    """Neither modules nor packages, whether they import at the top, in a function or for types."""
    known = {module(path) for path in FILES}
    edges: dict[str, set[str]] = {name: set() for name in known}
    packages: dict[str, set[str]] = {}
    for path in FILES:
        for name in imported(path):
            target = name if name in known else name.rpartition(".")[0]
            if target in known:
                edges[module(path)].add(target)
            if name.startswith("raglab."):
                packages.setdefault(part(path), set()).add(name.split(".")[1])
    assert cycles(edges) == []
    assert cycles(packages) == []


@pytest.mark.parametrize("path", [path for path in FILES if part(path) in ALGEBRA], ids=module)
def test_the_algebra_touches_no_world(path: Path) -> None:
    """It opens nothing, knows no path, clock, environment or global generator.

    A generator needs `seed` or `rng`.
    """
    names = {name.split(".")[0] for name in imported(path)}
    assert names & WORLD == set()
    # reads no disk
    assert {name for name in imported(path) if name.startswith("pathlib")} <= {
        "pathlib.PurePosixPath"
    }
    for node, arguments in _with_arguments(tree(path), frozenset()):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = (
            called.attr
            if isinstance(called, ast.Attribute)
            else called.id
            if isinstance(called, ast.Name)
            else ""
        )
        assert name != "open" or isinstance(called, ast.Attribute), (
            f"line {node.lineno} opens a file"
        )
        assert name not in CLOCK, f"line {node.lineno} reads a clock"
        assert name not in GENERATORS or arguments & CHANCE, (
            f"line {node.lineno} makes a generator of its own"
        )
        owner = called.value if isinstance(called, ast.Attribute) else None
        if isinstance(owner, ast.Attribute) and owner.attr == "random":
            assert name in {*GENERATORS, *BITS}, f"line {node.lineno} draws from a global generator"


@pytest.mark.parametrize("path", [path for path in FILES if part(path) in ALGEBRA], ids=module)
def test_no_clock_reaches_the_algebra_as_a_value(path: Path) -> None:
    """Not as a default argument, a field's factory or a callback.

    `datetime.now` without a call is a clock too.
    """
    clocks = [
        f"line {node.lineno}: {node.value.id}.{node.attr}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in {"datetime", "date", "time"} and node.attr in CLOCK
    ]
    assert clocks == []


@pytest.mark.parametrize("path", FILES, ids=module)
def test_no_hash_hangs_on_a_clock(path: Path) -> None:
    """A function that hashes reads no clock: ids and digests are those of the content."""
    for function in (node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)):
        calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        names = {
            call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
            for call in calls
        }
        assert not (names & HASHES and names & MOMENTS), f"{function.name} hashes and reads a clock"


def _with_arguments(
    node: ast.AST, arguments: frozenset[str]
) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Every node with the names of the arguments of the functions around it."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        held = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        arguments |= {one.arg for one in held}
    yield node, arguments
    for child in ast.iter_child_nodes(node):
        yield from _with_arguments(child, arguments)


@pytest.mark.parametrize("library", [*HEAVY, "unicodedata"])  # accents are folded in one place
def test_a_heavy_library_stands_in_one_file(library: str) -> None:
    """Replacing it is one file's work."""
    users = {
        str(path.relative_to(ROOT))
        for path in FILES
        if any(name.split(".")[0] == library for name in imported(path))
    }
    # A log's database and the rows within a transaction are two subjects of one layer over
    # SQLAlchemy; the runs of studies, the model of a policy and the traces of an application are
    # three subjects of MLflow.
    several = {
        "sqlalchemy": {"store/database.py", "store/log_entries.py"},
        "mlflow": {
            "lab/tracking.py",
            "lab/tracked_model.py",
            "extensions/imports/mlflow_traces.py",
        },
    }
    assert len(users) <= 1 or users <= several.get(library, set())


def test_the_package_imports_lightly() -> None:
    """A fresh process loads nothing slow, and few modules."""
    code = (
        "import sys; before = set(sys.modules); import raglab; print(*(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(SLOW) & set(loaded) == set()
    assert len(loaded) < 100
