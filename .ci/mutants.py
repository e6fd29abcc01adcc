"""Mutants: what the tests notice when the code of twenty modules is changed in one place.

    python .ci/mutants.py reach [TEST ...]   which test enters which function (a run of `make test`)
    python .ci/mutants.py draw [--seed 0]    ten places a module into tests/mutants.csv
    python .ci/mutants.py run [MODULE ...]   each place changed in turn; writes what is caught

A mutant changes one comparison, operator, number, truth value, condition or statement. It runs in a
copy of the tree in `out/mutants`, against the tests that enter its function, the shortest first and
a file after the other, until one fails. `caught` is the test, `survived`, or `slow` where the limit
ends it. The column `note` names why a place that survives is equivalent; it stays when the table is
written again.
"""

# ruff: noqa: ANN401, INP001, S603, T201 - a script that starts programs and prints

from __future__ import annotations

import ast
import copy
import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "out" / "mutants"
TABLE = ROOT / "tests" / "mutants.csv"
HEADS = ("module", "function", "place", "before", "after", "caught", "note")
MODULES = (
    "answering/openai_client",
    "audit/log",
    "bandit/learners",
    "bandit/propensity",
    "certify",
    "decision/chain",
    "decision/kernel",
    "default_learner/default_updates",
    "extensions/clarification/replies",
    "gates",
    "gating/expected_cost",
    "lab/candidates",
    "lab/looks",
    "lab/selection",
    "metrics/decision_rates",
    "metrics/mixes",
    "off_policy/estimators",
    "resolver",
    "store/trace_files",
    "words/answer_match",
)
PER_MODULE, PER_FUNCTION = 10, 4
WORKERS, MOST_TESTS = 2, 400
MISSED = ("", "survived", "slow", "gone")
LIMIT_SECONDS = 240  # of a mutant
RECORDED_SECONDS = 100.0  # of the tests that a mutant is run against, as they took in `reach`
OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Continue: ast.Break,
    ast.Break: ast.Continue,
}
PLUGIN = '''"""Notes which functions a test enters, and how long it takes."""
import json, os, uuid
import pytest
HITS, ROWS = set(), {}
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    HITS.clear()
    yield
    ROWS.setdefault(item.nodeid, {"seconds": 0.0})["functions"] = sorted(HITS)
def pytest_runtest_logreport(report):
    row = ROWS.setdefault(report.nodeid, {"seconds": 0.0})
    row["seconds"] += report.duration
    row["failed"] = row.get("failed", False) or report.failed
def pytest_sessionfinish(session):
    rows = {name: row for name, row in ROWS.items() if row.get("functions")}
    with open(os.path.join(os.environ["MUTANTS"], uuid.uuid4().hex + ".json"), "w") as file:
        json.dump(rows, file)
'''


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions of a module by qualified name, without those inside functions."""

    def walk(node: ast.AST, path: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield ".".join((*path, child.name)), child
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, (*path, child.name))

    return walk(tree, ())


class Site(NamedTuple):
    """A place of a module, its mutant, and the words that find it again."""

    function: str
    before: str
    after: str
    node: Any
    mutant: ast.AST


def sites(tree: ast.Module) -> list[Site]:
    """Places in functions by position; what raises, is a text, or annotates is left out."""
    places = []
    for name, function in functions(tree):
        defaults = [*function.args.defaults, *function.args.kw_defaults]
        waiting: list[Any] = [*function.body, *filter(None, defaults)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Raise | ast.JoinedStr):
                continue
            places += [
                Site(name, ast.unparse(node), ast.unparse(mutant), node, mutant)
                for mutant in mutants(node)
            ]
            inside = [node.value] if isinstance(node, ast.AnnAssign) else ast.iter_child_nodes(node)
            waiting += filter(None, inside)
    return sorted(places, key=lambda site: (site.node.lineno, site.node.col_offset, site.after))


def mutants(node: ast.AST) -> Iterator[ast.AST]:
    """A node changed in one way; nothing for most nodes."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in OPPOSITES:
        new.ops[0] = OPPOSITES[type(new.ops[0])]()  # type: ignore[call-overload]
        yield new
    elif isinstance(new, ast.BoolOp | ast.BinOp) and type(new.op) in OPPOSITES:
        texts = any(isinstance(part, ast.JoinedStr) for part in ast.walk(new))
        if not (isinstance(new.op, ast.Add) and texts):
            new.op = OPPOSITES[type(new.op)]()
            yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        yield new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        yield ast.copy_location(ast.Constant(value=not new.value), node)
    elif isinstance(new, ast.Constant) and isinstance(new.value, int | float):
        yield ast.copy_location(ast.Constant(value=new.value + 1), node)
    elif isinstance(new, ast.IfExp):
        new.body, new.orelse = new.orelse, new.body
        yield new
    elif isinstance(new, ast.Continue | ast.Break):
        yield OPPOSITES[type(new)]()
    elif isinstance(new, ast.Expr) and isinstance(new.value, ast.Call):
        yield ast.Pass()


def changed(text: str, node: Any, mutant: ast.AST) -> str:
    """Text of a module with a node written as its mutant."""
    data, starts = text.encode(), [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    written = ast.unparse(mutant)
    if isinstance(mutant, ast.expr):
        written = f"({written})"
    return (data[:begin] + written.encode() + data[end:]).decode()


def rows() -> list[dict[str, str]]:
    """Rows of the committed table."""
    if not TABLE.exists():
        return []
    with TABLE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(table: list[dict[str, str]]) -> None:
    """Write the table."""
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEADS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def draw(seed: int) -> None:
    """Draw the places of each module anew, at most four in a function; notes of the table stay."""
    notes = {tuple(row[head] for head in HEADS[:5]): row["note"] for row in rows()}
    table = []
    for module in MODULES:
        places = sites(ast.parse((ROOT / f"raglab/{module}.py").read_text(encoding="utf-8")))
        numbers = Counter[tuple[str, ...]]()
        keys = []
        for site in places:
            numbers[site[:3]] += 1
            keys.append((module, site.function, str(numbers[site[:3]]), site.before, site.after))
        order = random.Random(f"{seed} {module}").sample(range(len(places)), len(places))  # noqa: S311
        chosen: list[int] = []
        for number in order:
            inside = sum(places[each].function == places[number].function for each in chosen)
            if inside < PER_FUNCTION and len(chosen) < PER_MODULE:
                chosen.append(number)
        table += [
            dict(zip(HEADS, (*key, "", notes.get(key, "")), strict=True))
            for key in (keys[number] for number in sorted(chosen))
        ]
    write(table)
    print(f"{len(table)} places in {len(MODULES)} modules: {TABLE.relative_to(ROOT)}")


def copied(name: str) -> Path:
    """A fresh copy of the tree, without what is built."""
    place = PLACE / name
    shutil.rmtree(place, ignore_errors=True)
    ignored = shutil.ignore_patterns("out", ".venv", ".git", "mlruns", "__pycache__", "site")
    shutil.copytree(ROOT, place, ignore=ignored)
    (place / ".venv").symlink_to(ROOT / ".venv")
    return place


def environment(place: Path, **more: str) -> dict[str, str]:
    """Environment of a run in a copy."""
    path = f"{place}{os.pathsep}{PLACE / 'plugin'}"
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def reach(chosen: list[str]) -> None:
    """Run the tests of `make test` on a copy whose functions say that they are entered."""
    place = copied("reach")
    for module in MODULES:
        path = place / f"raglab/{module}.py"
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        for name, function in reversed(list(functions(ast.parse(text)))):
            if any("compile_kernel" in ast.unparse(each) for each in function.decorator_list):
                continue
            body = function.body
            described = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
            first = body[1] if described and len(body) > 1 else body[0]
            hit = f"__import__('mutants_reached').HITS.add('{module}:{name}')\n"
            heads = [first, *getattr(first, "decorator_list", ())]
            start = min(each.lineno for each in heads)
            lines.insert(start - 1, " " * first.col_offset + hit)
        path.write_text("".join(lines), encoding="utf-8")
    plugin, hits_folder = PLACE / "plugin", PLACE / "hits"
    shutil.rmtree(hits_folder, ignore_errors=True)
    for folder in (plugin, hits_folder):
        folder.mkdir(parents=True, exist_ok=True)
    (plugin / "mutants_reached.py").write_text(PLUGIN, encoding="utf-8")
    words = ("-n", "2", "--dist", "worksteal", "-m", "not full and not weekly")
    subprocess.run(
        (ROOT / ".venv/bin/pytest", "-p", "mutants_reached", *words, *chosen),
        cwd=place,
        env=environment(place, MUTANTS=str(hits_folder)),
        check=False,
    )
    tests = {}
    for part in hits_folder.glob("*.json"):
        tests |= json.loads(part.read_text(encoding="utf-8"))
    failed = sorted(name for name, row in tests.items() if row["failed"])
    tests = {name: row for name, row in tests.items() if not row["failed"]}
    (PLACE / "reach.json").write_text(json.dumps(tests, indent=0), encoding="utf-8")
    print(f"{len(tests)} tests enter the functions; not used, since they fail: {failed}")


def tests_of(module: str, function: str, reached: dict[str, dict[str, Any]]) -> list[str]:
    """Tests that enter a function, else its module: the shortest of each file, then the next."""
    own = f"{module}:{function}"
    near = {name: row for name, row in reached.items() if own in row["functions"]}
    if not near:
        near = {
            name: row
            for name, row in reached.items()
            if any(each.startswith(f"{module}:") for each in row["functions"])
        }
    files: dict[str, list[str]] = {}
    for name in sorted(near, key=lambda name: (near[name]["seconds"], name)):
        files.setdefault(name.split("::")[0], []).append(name)
    ordered = [name for turn in zip_longest(*files.values()) for name in turn if name]
    chosen, seconds = [], 0.0
    for name in ordered:
        seconds += near[name]["seconds"]
        if seconds <= RECORDED_SECONDS and len(chosen) < MOST_TESTS:
            chosen.append(name)
    return chosen


def outcome(row: dict[str, str], place: Path, reached: dict[str, dict[str, Any]]) -> str:
    """Test that catches a mutant, `survived`, `slow`, or `gone` where its place is no more."""
    path = place / f"raglab/{row['module']}.py"
    text = (ROOT / f"raglab/{row['module']}.py").read_text(encoding="utf-8")
    key = (row["function"], row["before"], row["after"])
    same = [site for site in sites(ast.parse(text)) if site[:3] == key]
    if len(same) < int(row["place"]):
        return "gone"
    chosen = tests_of(row["module"], row["function"], reached)
    if not chosen:
        return "survived"
    site = same[int(row["place"]) - 1]
    path.write_text(changed(text, site.node, site.mutant), encoding="utf-8")
    listed = place / "tests.txt"
    listed.write_text("\n".join(chosen), encoding="utf-8")
    words = ("-x", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore", "--tb=no", "-rfE")
    try:
        run = subprocess.run(
            (place / ".venv/bin/pytest", *words, f"@{listed}"),
            cwd=place,
            env=environment(place),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "slow"
    finally:
        path.write_text(text, encoding="utf-8")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    if failed:
        return failed[1]
    return "survived" if run.returncode == 0 else f"stopped: {run.returncode}"


def run(modules: list[str]) -> None:
    """Try each place of the table, two at a time, and write what is caught after each."""
    reached = json.loads((PLACE / "reach.json").read_text(encoding="utf-8"))
    table, places = rows(), Queue[Path]()
    for number in range(WORKERS):
        places.put(copied(f"copy{number}"))
    before = {id(row): row["caught"] for row in table}

    def attempt(row: dict[str, str]) -> None:
        place = places.get()
        start = time.monotonic()
        row["caught"] = outcome(row, place, reached)
        places.put(place)
        seconds = time.monotonic() - start
        line = f"{row['caught'][:70]:70s} {seconds:4.0f} s"
        print(f"{line}  {row['module']} {row['before'][:60]!r}", flush=True)
        write(table)

    chosen = [row for row in table if not modules or row["module"] in modules]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(attempt, chosen))
    caught = [row for row in table if row["caught"] not in MISSED]
    fewer = [row for row in table if row not in caught and before[id(row)] not in MISSED]
    named = sum(bool(row["note"]) for row in table if row not in caught)
    print(f"{len(caught)} of {len(table)} caught, {named} more equivalent, {len(fewer)} fewer now")


def main(words: list[str]) -> int:
    """See the head of the file."""
    match words:
        case ["reach", *tests]:
            reach(tests)
        case ["draw", *rest]:
            draw(int(rest[-1]) if rest else 0)
        case ["run", *modules]:
            run(modules)
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
