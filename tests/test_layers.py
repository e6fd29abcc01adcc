"""The architecture: imports point down, heavy libraries stand in one file each, modules stay short."""

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
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")  # the lazy facade may name all
LAYERS = (
    {"values", "_compiled"},
    {
        "evidence",
        "gates",
        "_margins",
        "_answer_gates",
        "sentences",
        "_answers",
        "intent",
        "resolver",
        "_options",
        "metrics",
        "fusion",
        "_binomial",
        "_selective",
        "_bands",
        "_outcomes",
        "calibration",
        "_calibrators",
        "_levels",
        "_binned",
        "_smooth",
        "certify",
        "_testing",
        "robustness",
        "reward",
        "_largest",
        "_propensity",
        "_saved",
        "_history",
        "bandit",
        "_bandit_kernel",
        "_choosing",
        "_counting",
        "_feed",
        "_indices",
        "_learner",
        "_loops",
        "_simulate",
        "_worlds",
        "default_learner",
        "_defaults",
        "_votes",
        "_strata",
        "_worth",
        "_users",
        "_asked_rows",
        "_asked_sim",
        "_asked_table",
        "off_policy",
        "_asked",
        "_estimators",
        "_intervals",
        "_logged",
        "_overlap",
    },
    {"policy", "_limits", "_recorded", "_sections", "_tables", "_judge", "_places", "chain", "decisions", "_explain"},
    {"replay", "_kernel", "_logs", "_run", "_steps", "_tally"},
    {"models", "retrieval", "answering", "store"},
    {"lab"},
    {
        "cli",
        "_cli",
        "_cli_ask",
        "_cli_promises",
        "_cli_online",
        "_cli_log",
        "_cli_bandit",
        "_cli_clarify",
        "_cli_audit",
    },
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
PEERS = {2, 3}  # layers that are one subject: their modules may import each other
FAMILIES = (
    {
        "bandit",
        "_bandit_kernel",
        "_choosing",
        "_counting",
        "_feed",
        "_history",
        "_indices",
        "_largest",
        "_learner",
        "_loops",
        "_propensity",
        "_saved",
        "_simulate",
        "_worlds",
    },
    {"off_policy", "_asked", "_estimators", "_intervals", "_logged", "_overlap"},
    {
        "default_learner",
        "_asked_rows",
        "_asked_sim",
        "_asked_table",
        "_defaults",
        "_strata",
        "_users",
        "_votes",
        "_worth",
    },
    {
        "cli",
        "_cli",
        "_cli_ask",
        "_cli_audit",
        "_cli_bandit",
        "_cli_clarify",
        "_cli_log",
        "_cli_online",
        "_cli_promises",
    },
)  # one subject in several modules: they may import each other
SIBLINGS = {
    ("resolver", "_options"),
    ("_answers", "evidence"),
    ("metrics", "_answers"),
    ("gates", "_margins"),
    ("gates", "_answer_gates"),
    ("_answer_gates", "_margins"),
    ("metrics", "_binomial"),
    ("metrics", "_selective"),
    ("metrics", "_bands"),
    ("metrics", "_outcomes"),
    ("_bands", "_binomial"),
    ("_bands", "_selective"),
    ("_outcomes", "_binomial"),
    ("_outcomes", "_selective"),
    ("calibration", "_calibrators"),
    ("calibration", "_smooth"),
    ("calibration", "_levels"),
    ("calibration", "_binned"),
    ("_binned", "_levels"),
    ("_calibrators", "_levels"),
    ("_smooth", "_levels"),
    ("certify", "metrics"),
    ("certify", "_testing"),
    ("_testing", "metrics"),
    ("robustness", "metrics"),
    ("default_learner", "_learner"),  # its `refuse`
    ("_defaults", "_learner"),
    ("_votes", "_learner"),
    ("_strata", "_learner"),
    ("_worth", "_learner"),
    ("_users", "_learner"),
    ("_users", "_feed"),
    ("_asked_sim", "_learner"),
    ("_asked_table", "_learner"),
    ("_asked_table", "_binomial"),
    ("retrieval", "models"),
    ("answering", "models"),
    ("store", "models"),
}  # may import beside itself
HEAVY = (
    "faiss",
    "torch",
    "sentence_transformers",
    "bm25s",
    "mlflow",
    "optuna",
    "matplotlib",
    "pyarrow",
    "re2",
    "numba",
    "pypdf",
    "duckdb",
    "diskcache",
    "ipywidgets",
    "openai",
    "langgraph",
    "langchain_core",
    "sqlalchemy",
    "pydantic_settings",
    "prometheus_client",
)
SLOW = (*HEAVY, "pandas", "scipy", "sklearn")


def part(path: Path) -> str:
    """Module or folder of the package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Dotted names of what a file imports, inside functions and for types as well."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    """A module imports lower layers; its own layer only inside one folder, in one subject, or for `models`."""
    here = part(path)
    assert here in LAYER, f"{here} has no layer: give it one"
    names = list(imported(path))
    assert "raglab" not in names, "import the module, not the package"
    for there in {name.split(".")[1] for name in names if name.startswith("raglab.")} - {here}:
        peers = LAYER[here] in PEERS or (here, there) in SIBLINGS or any({here, there} <= one for one in FAMILIES)
        assert there in LAYER, f"{there} has no layer: give it one"
        assert LAYER[there] < LAYER[here] or (peers and LAYER[there] == LAYER[here]), f"{here} imports {there}"
    assert here != "models" or not any(name.startswith("raglab") for name in names)


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_stands_in_one_file(library: str) -> None:
    """Replacing it is one file's work."""
    users = {
        str(path.relative_to(ROOT)) for path in FILES if any(name.split(".")[0] == library for name in imported(path))
    }
    assert len(users) <= 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_one_subject(path: Path) -> None:
    """Past 300 lines it has two."""
    assert path.read_text(encoding="utf-8").count("\n") <= 300


def test_the_package_imports_lightly() -> None:
    """A fresh process loads nothing slow and takes under 0.3 s, the best of five."""
    code = "import sys, time; t = time.perf_counter(); import raglab; print(time.perf_counter() - t, *sys.modules)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(5)
    ]
    assert set(SLOW) & set(runs[0]) == set()
    assert min(float(run[0]) for run in runs) < 0.3
