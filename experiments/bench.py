"""Speed of this tree and of the last version, in alternating turns of one run.

Each row with the ratio of the two.

Every program `bench_*.py` of `PROGRAMS` is run in a process of its own, with the package of one
tree or of the other on its path: this, last, last, this, … A row is the best of its turns, so that
what else runs on the machine counts least; a ratio above 1 is faster (or smaller) than the last
version, and beside it stands its range over the turns. Times are processor time of one thread where
no wall is named. What a tree cannot do is "-", and why stands below the table.

    python experiments/bench.py --base REF             REF: a commit or tag of git, or a folder that
                                                       holds raglab/
    python experiments/bench.py --only bandit audit    some programs
    python experiments/bench.py --quick                the same path on little, in a minute; the
                                                       figures mean nothing
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for name in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
):
    os.environ[name] = "1"

import argparse
import contextlib
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("ask", "audit", "bandit", "calibration", "replay", "study")
TURNS = 3  # of each tree
THIS, LAST = "this version", "the last version"
LEAST_RATIO = 0.95  # below it a row is flagged
LARGER_IS_BETTER = ("/s", "x")  # ends of units; of all other units less is better
BESIDE = "x"  # unit of a row that compares within one tree, such as with a peer: it has no ratio


class Row(NamedTuple):
    """One figure of a program.

    What, how much, and of which unit (s, ms, MB, kB, M/s, …; `x` is times).
    """

    name: str
    value: float
    unit: str


class Options(NamedTuple):
    """How much a program measures.

    quick: little work, whose figures mean nothing. first: whether it is the tree's first turn, in
    which what takes long is measured once. peers: whether rows that compare within one tree are
    measured. folder: kept between the turns.
    """

    quick: bool
    first: bool
    peers: bool
    folder: Path


Rows = Iterator[Row]
Clock = Callable[[], float]


class Turn(NamedTuple):
    """What one run of a program gave: rows, and bench -> why it ended early."""

    rows: dict[str, Row]
    failed: dict[str, str]


def seconds(run: Callable[[], Any], repeats: int, clock: Clock = time.process_time) -> float:
    """Least seconds of some runs, after one that is not timed."""
    run()
    taken = []
    for _ in range(repeats):
        start = clock()
        run()
        taken.append(clock() - start)
    return min(taken)


def module(name: str, package: str = "") -> ModuleType:
    """A module of raglab by the last part of its name, anywhere in the tree, even an extension.

    Args:
      package: that it lies in, where several modules have the name.

    Raises:
      ModuleNotFoundError: there is none of this name.
    """
    import raglab

    root = Path(raglab.__file__).parent
    paths = sorted(
        path for path in root.rglob(f"{name}.py") if not package or path.parent.name == package
    )
    if not paths:
        msg = f"raglab has no module {name}"
        raise ModuleNotFoundError(msg)
    return importlib.import_module(
        ".".join(paths[0].relative_to(root.parent).with_suffix("").parts)
    )


def measure(program: str, options: Options) -> Turn:
    """Rows of a program for the tree on the path.

    What the tree cannot do ends one bench of it, not the others.
    """
    turn = Turn({}, {})
    for bench in importlib.import_module(f"bench_{program}").BENCHES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for row in bench(options):
                    turn.rows[row.name] = row
        except Exception as error:  # noqa: BLE001 - another tree may fail in any way
            why = (str(error).strip() or "no message").splitlines()[0]
            turn.failed[bench.__name__] = f"{type(error).__name__}: {why}"
    return turn


def measured(program: str, tree: Path, options: Options) -> Turn:
    """What `measure` gives of a tree, from a process of its own."""
    words = [name for name in ("quick", "first", "peers") if getattr(options, name)]
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", program, *words]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "RAGLAB_PROGRESS": "0",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=options.folder, env=environment
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        return Turn({}, {f"bench_{program}.py": why})
    rows, failed = json.loads(lines[-1])
    return Turn({row[0]: Row(*row) for row in rows}, failed)


@contextlib.contextmanager
def last_version(base: str | None) -> Iterator[tuple[Path | None, str]]:
    """Folder with the package of the last version, and what it is; None, and why there is none.

    A commit or tag is checked out in a worktree under `out/`, which is taken away at the end.
    """
    if not base:
        yield None, "no last version: none was named, see --base"
    elif (Path(base) / "raglab").is_dir():
        yield Path(base).resolve(), f"last version: {base}"
    elif (git := shutil.which("git")) is None:
        yield None, f"no last version: git is not here to read {base}"
    else:
        (ROOT / "out").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="last-", dir=ROOT / "out") as place:
            trees = [git, "-C", str(ROOT), "worktree"]
            folder = Path(place) / "tree"
            added = subprocess.run(
                [*trees, "add", "--detach", str(folder), base],
                capture_output=True,
                text=True,
                check=False,
            )
            if added.returncode or not (folder / "raglab").is_dir():
                why = (added.stderr.strip().splitlines() or ["no message"])[-1]
                yield None, f"no last version: git has no raglab/ at {base} ({why})"
                return
            try:
                yield folder, f"last version: {base}"
            finally:
                subprocess.run(
                    [*trees, "remove", "--force", str(folder)], capture_output=True, check=False
                )


def ratio(this: Row, last: Row) -> float:
    """How many times faster, or smaller, this is than the last."""
    more = this.unit.endswith(LARGER_IS_BETTER)
    return this.value / last.value if more else last.value / this.value


def best(name: str, turns: Sequence[Turn]) -> Row | None:
    """Best of the turns of a row; None where no turn has it."""
    rows = [turn.rows[name] for turn in turns if name in turn.rows]
    if not rows:
        return None
    pick = max if rows[0].unit.endswith(LARGER_IS_BETTER) else min
    return pick(rows, key=lambda row: row.value)


def figure(row: Row | None) -> str:
    """Three digits of a figure, or that there is none."""
    if row is None:
        return "-"
    return f"{row.value:,.0f}" if row.value >= 100.0 else f"{row.value:.3g}"


def comparison(name: str, this: Sequence[Turn], last: Sequence[Turn]) -> tuple[str, float | None]:
    """Line of the table and its ratio.

    None where only one tree has the row, or the row is a ratio itself.
    """
    this_row, last_row = best(name, this), best(name, last)
    row = this_row or last_row
    assert row is not None  # noqa: S101 - the name is of one of the turns
    start = f"  {f'{name}, {row.unit}':<62}{figure(this_row):>9}{figure(last_row):>9}"
    if (
        this_row is None
        or last_row is None
        or row.unit == BESIDE
        or not this_row.value * last_row.value > 0.0
    ):
        return start, None
    pairs = [
        ratio(this_turn.rows[name], last_turn.rows[name])
        for this_turn, last_turn in zip(this, last, strict=True)
        if name in this_turn.rows and name in last_turn.rows
    ]
    value = ratio(this_row, last_row)
    mark = f"  below {LEAST_RATIO}" if value < LEAST_RATIO else ""
    return f"{start}{value:>8.2f}  {min(pairs):.2f} to {max(pairs):.2f}{mark}", value


class Findings(NamedTuple):
    """What is said below the table.

    Rows below the least ratio, rows by the only tree that has them, and failures.
    """

    slower: list[str]
    alone: list[str]
    failed: dict[str, None]


def in_turns(
    program: str, trees: Mapping[str, Path], place: Path, *, quick: bool
) -> dict[str, list[Turn]]:
    """Turns of each tree.

    Their order alternates, so that what slows the machine more and more strikes both.
    """
    turns: dict[str, list[Turn]] = {THIS: [], LAST: []}
    for number in range(1 if quick else TURNS):
        for who in list(trees) if number % 2 == 0 else list(trees)[::-1]:
            first = number == 0
            options = Options(
                quick, first, first and who == THIS, place / who.replace(" ", "-") / program
            )
            turns[who].append(measured(program, trees[who], options))
    return turns


def print_rows(program: str, turns: Mapping[str, Sequence[Turn]], findings: Findings) -> None:
    """Print the rows of a program, and note what is said below the table."""
    print(f"bench_{program}.py")
    for name in dict.fromkeys(
        name for of_tree in turns.values() for turn in of_tree for name in turn.rows
    ):
        line, value = comparison(name, turns[THIS], turns[LAST])
        print(line, flush=True)
        if value is not None and value < LEAST_RATIO:
            of_turns = line.partition("  below")[0].rpartition("  ")[2]
            findings.slower.append(f"{name} {value:.2f} ({of_turns})")
        holders = {
            who: row for who, of_tree in turns.items() if (row := best(name, of_tree)) is not None
        }
        if (
            turns[LAST]
            and len(holders) == 1
            and all(row.unit != BESIDE for row in holders.values())
        ):
            findings.alone.append(f"only in {next(iter(holders))}: {name}")
    for who, of_tree in turns.items():
        for turn in of_tree:
            findings.failed.update(
                {f"{who}, {program}, {bench}: {why}": None for bench, why in turn.failed.items()}
            )


def compare(base: str | None, programs: Sequence[str], *, quick: bool) -> None:
    """Measure both trees in turns and print the table."""
    begun, findings = time.monotonic(), Findings([], [], {})
    with last_version(base) as (tree, what), tempfile.TemporaryDirectory() as place:
        trees = {THIS: ROOT} | ({} if tree is None else {LAST: tree})
        print(
            f"{what}; each figure the best of {1 if quick else TURNS} turns, processor time where "
            "no wall is named"
        )
        print(
            "a ratio above 1 is better than the last version; its range over the turns stands "
            "beside it\n"
        )
        print(f"{'':<64}{'this':>9}{'last':>9}{'ratio':>8}  of the turns", flush=True)
        for program in programs:
            print_rows(program, in_turns(program, trees, Path(place), quick=quick), findings)
    print(f"\nbelow {LEAST_RATIO}: {'; '.join(findings.slower) or 'none'}")
    for line in (*findings.alone, *findings.failed):
        print(f"- {line}")
    print(f"{(time.monotonic() - begun) / 60.0:.1f} minutes")


def main() -> None:
    """Measure one program in this process, or all in processes of their own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--base", help="the last version: a commit or tag, or a folder that holds raglab/"
    )
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, help="programs; all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--measure", nargs="+", help="print the rows of a program as JSON, for this script"
    )
    args = parser.parse_args()
    if args.measure:
        program, *words = args.measure
        options = Options(*(word in words for word in ("quick", "first", "peers")), Path.cwd())
        with contextlib.redirect_stdout(sys.stderr):
            turn = measure(program, options)
        print(json.dumps([list(turn.rows.values()), turn.failed]))
        return
    compare(args.base, args.only or PROGRAMS, quick=args.quick)


if __name__ == "__main__":
    main()
