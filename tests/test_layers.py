"""The architecture.

Packages import down, the algebra touches no world, a heavy library stands in one module.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from package_files import ALGEBRA_FILES, FILES, LAYER, ROOT, part, place, tree

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
GENERATORS = {"default_rng", "SeedSequence"}
PURE_PATH = "pathlib.PurePosixPath"  # reads no disk
BITS = {"Generator", "PCG64", "PCG64DXSM"}  # built over bits of a seed
CHANCE = {"seed", "rng"}


def module(path):
    """Dotted name of a file."""
    return ".".join(("raglab", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


@cache
def imported(path):
    """Dotted names of what a file imports, inside functions and for types as well."""
    return tuple(_imported(path))


def _imported(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def cycles(edges):
    """Cycles of a graph, as what is left when all that imports nothing more is taken away."""
    waiting = {name: set(targets) - {name} for name, targets in edges.items()}
    while True:
        done = {name for name, targets in waiting.items() if not targets & waiting.keys()}
        if not done:
            return [sorted(waiting)] if waiting else []
        waiting = {name: targets - done for name, targets in waiting.items() if name not in done}


def test_imports_point_down():
    """A room imports lower layers and itself, and of the package its modules alone."""
    parts = {part(path) for path in FILES}
    assert parts == set(LAYER), "each room and module of the root has a layer"
    rising, whole = [], []
    for path in FILES:
        names = imported(path)
        whole += [place(path)] * ("raglab" in names)
        theirs = {name.split(".")[1] for name in names if name.startswith("raglab.")}
        above = {name for name in theirs - {part(path)} if LAYER[name] >= LAYER[part(path)]}
        rising += [f"{place(path)} imports {name}" for name in sorted(above)]
    assert rising == []
    assert whole == [], "import the module, not the package"


def test_nothing_imports_an_extension():
    """Neither the core nor another room: each room can be deleted, and everything else goes on."""
    strangers = {}
    for path in FILES:
        file = path.relative_to(ROOT)
        room = file.parts[1] if file.parts[0] == "extensions" else ""
        rooms = {
            name.split(".")[2] for name in imported(path) if name.startswith("raglab.extensions.")
        }
        strangers[place(path)] = rooms - {room}
    assert {file: rooms for file, rooms in strangers.items() if rooms} == {}


def test_nothing_imports_in_a_circle():
    """Neither modules nor folders, whether they import at the top, in a function or for types."""
    known = {module(path): path for path in FILES}
    edges: dict[str, set[str]] = {name: set() for name in known}
    folders: dict[str, set[str]] = {}
    for path in FILES:
        for name in imported(path):
            target = name if name in known else name.rpartition(".")[0]
            if target in known:
                edges[module(path)].add(target)
                folders.setdefault(folder(path), set()).add(folder(known[target]))
    assert cycles(edges) == []
    assert cycles(folders) == []


def folder(path):
    """Folder of a file below the package; a module of the root is one of its own."""
    inner = path.relative_to(ROOT)
    return inner.stem if len(inner.parts) == 1 else inner.parent.as_posix()


def test_the_algebra_touches_no_world():
    """It opens nothing, knows no path, clock, environment or global generator.

    A generator needs `seed` or `rng` among the arguments.
    """
    assert [fault for path in ALGEBRA_FILES for fault in worldly(path)] == []


def worldly(path):
    """What a file takes of the world."""
    names = {name.split(".")[0] for name in imported(path)} & WORLD
    names |= {name for name in imported(path) if name.startswith("pathlib")} - {PURE_PATH}
    yield from (f"{place(path)} imports {name}" for name in sorted(names))
    for node, arguments in _with_arguments(tree(path), frozenset()):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        is_attribute = isinstance(called, ast.Attribute)
        name = called.attr if is_attribute else getattr(called, "id", "")
        owner = called.value if is_attribute else None
        faults = {
            "opens a file": name == "open" and not is_attribute,
            "reads a clock": name in CLOCK,
            "makes a generator of its own": name in GENERATORS and not arguments & CHANCE,
            "draws from a global generator": isinstance(owner, ast.Attribute)
            and owner.attr == "random"
            and name not in {*GENERATORS, *BITS},
        }
        yield from (
            f"{place(path)}:{node.lineno} {what}" for what, is_so in faults.items() if is_so
        )


def test_no_clock_reaches_the_algebra_as_a_value():
    """Not as a default, a field's factory or a callback: `datetime.now` uncalled is a clock too."""
    clocks = [
        f"{place(path)}:{node.lineno} {node.value.id}.{node.attr}"
        for path in ALGEBRA_FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in {"datetime", "date", "time"} and node.attr in CLOCK
    ]
    assert clocks == []


def _with_arguments(node, arguments):
    """Every node with the names of the arguments of the functions around it."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        held = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        arguments |= {argument.arg for argument in held}
    yield node, arguments
    for child in ast.iter_child_nodes(node):
        yield from _with_arguments(child, arguments)


def test_a_heavy_library_stands_in_one_file():
    """Replacing it is one file's work."""
    users: dict[str, set[str]] = {}
    for path in FILES:
        for library in {name.split(".")[0] for name in imported(path)}:
            users.setdefault(library, set()).add(place(path))
    # A log's database and the rows within a transaction are two subjects of one layer over
    # SQLAlchemy; the runs of studies, the model of a policy and the traces of an application are
    # three subjects of MLflow; an index in memory and its folder on disk are two of FAISS.
    several = {
        "faiss": {"retrieval/dense.py", "extensions/scale/large_index.py"},
        "sqlalchemy": {"store/database.py", "store/log_rows.py"},
        "mlflow": {
            "lab/tracking.py",
            "lab/tracked_model.py",
            "extensions/imports/mlflow_traces.py",
        },
    }
    spread = {
        library: users[library]
        for library in (*HEAVY, "unicodedata")  # accents are folded in one place
        if len(users.get(library, ())) > 1 and not users[library] <= several.get(library, set())
    }
    assert spread == {}


def test_the_package_imports_lightly():
    """A fresh process loads nothing slow, and few modules."""
    code = (
        "import sys; before = set(sys.modules); import raglab; print(*(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(SLOW) & set(loaded) == set()
    assert len(loaded) < 100


def test_no_test_file_imports_another():
    """What tests share stands in modules of its own, also for programs that tests run."""
    tests = Path(__file__).parent
    imports = re.compile(r"^\s*(?:from|import) (?:[\w.]*\.)?test_\w+", re.MULTILINE)
    assert not [path for path in tests.rglob("*.py") if imports.search(path.read_text("utf-8"))]
