"""The table of what waits for CI or for the week names tests that there are, each once."""

from __future__ import annotations

import ast
import importlib.util
import re
from datetime import date
from pathlib import Path

import pytest

from levels import LEVELS, level_of

TESTS = Path(__file__).parent


def script(name):
    """A script of `.ci` as a module."""
    spec = importlib.util.spec_from_file_location(name, TESTS.parent / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_in(path):
    """Tests, classes and methods of a module, and `*`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    kinds = ast.FunctionDef | ast.ClassDef
    tops = [node for node in body if isinstance(node, kinds)]
    methods = {
        f"{node.name}.{method.name}"
        for node in tops
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, kinds)
    }
    return {node.name for node in tops} | methods | {"*"}


@pytest.mark.parametrize("level", LEVELS)
def test_the_table_names_tests(level):
    """But for those of rooms that are not installed."""
    unknown = {}
    for module, names in LEVELS[level].items():
        path = TESTS / module
        if path.is_file() or path.parent.is_dir():
            plain = {re.sub(r"\[.*", "", name) for name in names}
            unknown[module] = plain - (names_in(path) if path.is_file() else set())
    assert {module: names for module, names in unknown.items() if names} == {}


def test_a_test_has_the_level_of_its_name_class_or_module():
    """What no row names is of `make test`."""
    assert level_of("tests/test_levels.py::test_the_table_names_tests") == ""
    for level, rows in LEVELS.items():
        module, names = next(iter(rows.items()))
        assert level_of(f"tests/{module}::{names[0].replace('.', '::')}") == level


@pytest.mark.parametrize(
    ("today", "due"),
    [(date(2026, 11, 28), False), (date(2026, 12, 5), False), (date(2026, 12, 6), True)],
)
def test_the_week_is_due_after_seven_days(today, *, due):
    """By the dated line of the last pass; no line, or two, is an error."""
    weekly = script("weekly")
    line = "Last pass of `make test-weekly`: 2026-11-28.\n"
    assert weekly.is_due(f"# Experiments\n\n{line}", today) == due
    for page in ("", line * 2):
        with pytest.raises(ValueError, match="one line"):
            weekly.is_due(page, today)


def test_a_change_takes_out_the_rooms_that_it_touches():
    """By their code or their tests; a table of the core takes out all."""
    removal = script("removal")
    assert removal.touched_rooms(["raglab/store/files.py", "tests/test_gates.py"]) == []
    for room in removal.ROOMS:
        assert removal.touched_rooms([f"raglab/extensions/{room}/x.py"]) == [room]
        assert removal.touched_rooms([f"tests/extensions/{room}/x.py"]) == [room]
    for table in removal.TABLES:
        assert (TESTS.parent / table).is_file()
        assert removal.touched_rooms([table]) == removal.ROOMS


def test_each_promise_names_tests_that_there_are():
    """The table of tests/README.md; a room that is not installed has none."""
    text = (TESTS / "README.md").read_text(encoding="utf-8").partition("| promise | tests |")[2]
    rows = [line.rpartition("| `")[2] for line in text.partition("\n\n")[0].splitlines()[2:]]
    names = {name for row in rows for name in re.findall(r"\w+", row)}
    known = {path.stem.removeprefix("test_") for path in TESTS.rglob("test_*.py")}
    rooms = {path.name for path in (TESTS.parent / "raglab" / "extensions").glob("[a-z]*")}
    assert len(rows) == 10
    assert len(rooms) < 8 or names - known == set()
