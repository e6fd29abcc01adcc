r"""Which way of tuning holds on cases it has not seen: random halves, tuned on one, judged on the other.

    raglab trace DATA/squad2-dev-cs224n/dev-v2.0.json --out out/squad.parquet
    raglab trace DATA/mtrag-un-govt-fiqa --out out/mtrag.parquet
    python experiments/sets.py DATA/clinc150-oos out/clinc && raglab trace out/clinc --out out/clinc.parquet
    python experiments/holdout.py broker=out/broker/trace.parquet:datasets/broker/policy.yaml \
        mtrag=out/mtrag.parquet squad=out/squad.parquet clinc=out/clinc.parquet hint3=DATA/hint3-sofmattress \
        --set-halves squad=5 clinc=5 hint3=5 --jobs 2 --out out/holdout

A set is name=trace, name=trace:policy, or name=folder of HINT3, where name=folder:platform takes another platform than
bert. Half number n is drawn with seed n, label by label; a tuner sees the cases of its training half and no other.
Every result is a line of results.jsonl in --out, written as soon as it is known: a run that is killed goes on where it
was when started again. `--again tune chain` measures these once more, `--print-only` measures nothing.

Brackets hold the standard error over halves. Halves share cases, so it is too small for what another set of questions
would give, and right for what another draw of halves would.

Costs are those of rule S6.7: `default` (a failed contract costs 1), and `wrong10`, where a wrong answer costs 10.
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import json
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sets import hint3_trace
from tuners import FOLDS, FREE, TASKS, Half, Result, draw_half, labels_of, ten_folds

from raglab import metrics
from raglab.lab.search_space import limit_depth
from raglab.metrics.costs import LABEL_OF_CELL, LABELS
from raglab.parallel import run_each, workers
from raglab.store.files import locked_lines, make_folder
from raglab.store.policies import Policy
from raglab.store.traces import Trace

VERSION = 1  # of what the tuners here do: lines of another are measured again
COSTS: dict[str, metrics.Costs | None] = {
    "default": None,
    "wrong10": {label: {"answered_wrong": 10.0} for label in LABELS},
}


class Given(NamedTuple):
    """One set: its name, where its trace lies, and the policy (of HINT3: the platform) behind the colon."""

    name: str
    path: str
    more: str | None


@lru_cache
def load_set(given: Given) -> tuple[Trace, Policy]:
    """Trace and policy of a set; its policy refines no further than the trace measured."""
    if Path(given.path).is_dir():
        trace = hint3_trace(Path(given.path), *([given.more] if given.more else []))
        return trace, limit_depth(Policy.load(), trace)
    trace = Trace.load(given.path)
    return trace, limit_depth(Policy.load(given.more), trace)


# The log --------------------------------------------------------------------------------------------------------------

Line = dict[str, Any]


class Unit(NamedTuple):
    """What is measured in one go: a task (or `folds`) on a half of a set under one cost matrix."""

    given: Given
    half: int
    task: str
    matrix: str
    trials: int


def unit_key(unit: Unit) -> str:
    """What a line of the log is found by: everything that changes its figures."""
    trace, policy = load_set(unit.given)
    settings = {"version": VERSION} | (
        {"trials": unit.trials} if unit.task in TASKS and TASKS[unit.task].trials else {}
    )
    return json.dumps([trace.fingerprint, policy.policy_id, unit.half, unit.task, unit.matrix, settings])


def read_log(path: Path) -> dict[str, Line]:
    """Last line of every key; a line that was cut off when the run was killed is skipped."""
    lines: dict[str, Line] = {}
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            lines[line["key"]] = line
    return lines


def append_line(path: Path, line: Line) -> None:
    """Add a line under the log's lock; one that a kill cut off goes first."""
    with locked_lines(path, '{"key": ') as log:
        log.append(line)


@lru_cache(maxsize=1)
def drawn_half(given: Given, number: int, trials: int) -> Half:
    """Half of a set, kept for the next task on it."""
    return draw_half(*load_set(given), number, trials)


def measure(unit: Unit) -> Line:
    """Line of a unit."""
    start = time.perf_counter()
    results: dict[str, Any]
    if unit.task == "folds":
        results = ten_folds(*load_set(unit.given), unit.half)
    else:
        half = drawn_half(unit.given, unit.half, unit.trials)
        found = TASKS[unit.task].run(half, COSTS[unit.matrix])
        results = {name: result_record(result) for name, result in found.items()}
    seconds = round(time.perf_counter() - start, 3)
    names = {"set": unit.given.name, "half": unit.half, "task": unit.task, "matrix": unit.matrix}
    return {"key": unit_key(unit), **names, "seconds": seconds, "results": results}


def result_record(result: Result) -> dict[str, Any]:
    """Result as JSON holds it; a NaN is null."""
    cells = {name: getattr(result, name) for name in ("in_sample", "held_out")}
    return {
        "chosen": result.chosen,
        **{name: None if found is None else found.tolist() for name, found in cells.items()},
        "figures": {name: value if np.isfinite(value) else None for name, value in result.figures.items()},
    }


def measure_all(units: Sequence[Unit], path: Path, jobs: int) -> list[str]:
    """Measure what the log lacks and write it there, half by half in so many processes; what failed, and why.

    A result is the same in any process; lines stand in the order in which they were known.
    """
    make_folder(path.parent)
    by_half: dict[tuple[Given, int], list[Unit]] = {}
    for unit in units:
        by_half.setdefault((unit.given, unit.half), []).append(unit)
    with workers("joblib", n=jobs):
        told = run_each(measure_group, list(by_half.values()), path, what="measure", unit="half")
        return [failure for failures in told for failure in failures]


def measure_group(units: Sequence[Unit], path: Path) -> list[str]:
    """Measure the units of one half, one after the other; one that fails keeps no other from being measured."""
    failed = []
    warnings.simplefilter("ignore")
    for unit in units:
        try:
            append_line(path, measure(unit))
        except Exception:  # noqa: BLE001 - told at the end, with its place
            failed.append(f"{unit.given.name}, half {unit.half}, {unit.task}, {unit.matrix}:\n{traceback.format_exc()}")
    return failed


# Tables ---------------------------------------------------------------------------------------------------------------

RATES = ("false_refusal_rate", "hallucination_rate", "missed_ambiguity_rate", "over_ask_rate", "coverage")
COLUMNS = {
    "pass_rate": "pass (S6.3)",
    "status_rate": "status only",
    "held_out": "cost",
    **{name: name.removesuffix("_rate").replace("_", " ") for name in RATES},
    "optimism": "held-out − in-sample",
    "error": "held-out − cross-validated",
    "regret": "to the best in hindsight",
}
NAN = float("nan")


def figures(record: Mapping[str, Any], costs: metrics.Costs | None) -> dict[str, float]:
    """Figures of one result, NaN where it tells none."""
    told = {name: NAN if value is None else float(value) for name, value in record["figures"].items()}
    row = dict.fromkeys(("in_sample", "cross_validated", "pass_rate", "status_rate", *RATES), NAN) | told
    if record["held_out"] is not None:
        cells, train = np.array(record["held_out"]), np.array(record["in_sample"])
        rates = metrics.rates(metrics.rate_counts(cells), metrics.label_counts(cells))
        row |= dict(zip(metrics.RATES, rates.tolist(), strict=True))
        decision = np.arange(metrics.N_CELLS) // metrics.CELLS
        row["status_rate"] = float(cells[decision == LABEL_OF_CELL].sum() / cells.sum())
        row["held_out"] = float(metrics.expected_cost(cells, costs))
        row["in_sample"] = float(metrics.expected_cost(train, costs))
    elif costs is None:
        row["pass_rate"] = 1.0 - row["held_out"]
    return row | {
        "optimism": row["held_out"] - row["in_sample"],
        "error": row["held_out"] - row["cross_validated"],
    }


Table = dict[str, dict[int, dict[str, float]]]  # tuner -> half -> figures


def table_of(lines: Sequence[Line], matrix: str) -> Table:
    """Figures of every tuner and half of a set, tuners in the order of `TASKS`."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for task, entry in TASKS.items():
        for tuner in entry.tuners:
            rows = {
                line["half"]: figures(line["results"][tuner], COSTS[matrix])
                for line in lines
                if line["task"] == task and line["matrix"] == matrix
            }
            if rows:
                found[tuner] = dict(sorted(rows.items()))
    for half in {half for rows in found.values() for half in rows}:
        there = [rows[half] for rows in found.values() if half in rows]
        least = min(row["held_out"] for row in there)
        for row in there:
            row["regret"] = row["held_out"] - least
    return found


class Mean(NamedTuple):
    """Mean over halves and its standard error, over those where the figure is one."""

    value: float
    error: float

    def __str__(self) -> str:
        if not np.isfinite(self.value):
            return "–"
        return f"{self.value:.3f} ({self.error:.3f})" if np.isfinite(self.error) else f"{self.value:.3f}"


def mean(values: Sequence[float]) -> Mean:
    """Mean and standard error; NaN left out."""
    there = np.array([value for value in values if np.isfinite(value)])
    if not len(there):
        return Mean(NAN, NAN)
    return Mean(float(there.mean()), float(there.std(ddof=1) / np.sqrt(len(there))) if len(there) > 1 else NAN)


def over_halves(table: Table, tuner: str, figure: str, less: str | None = None) -> Mean:
    """Mean of a figure of a tuner over halves; less: minus that of another tuner, half by half."""
    rows = table.get(tuner, {})
    other = table.get(less, {}) if less else rows
    shared = [half for half in rows if half in other]
    return mean([rows[half][figure] - (other[half][figure] if less else 0.0) for half in shared])


def best_free(table: Table) -> str:
    """Free policy of least mean held-out cost."""
    there = [name for name in FREE if name in table]
    return min(there, key=lambda name: over_halves(table, name, "held_out").value, default="")


def print_table(title: str, table: Table) -> None:
    """Print the table of a set under one matrix, and its best free policy."""
    halves = {half for rows in table.values() for half in rows}
    print(f"\n### {title}, {len(halves)} halves\n")
    print("| tuner | " + " | ".join(COLUMNS.values()) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for tuner in table:
        print(f"| {tuner} | " + " | ".join(str(over_halves(table, tuner, name)) for name in COLUMNS) + " |")
    free = best_free(table)
    if free:
        print(f"\nBest free policy: {free}, cost {over_halves(table, free, 'held_out')}.")


# Verdicts -------------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """A figure that is asked for. sets: names of sets it is asked of; none: every set. least: else at most."""

    sets: tuple[str, ...]
    tuner: str
    figure: str
    bound: float
    least: bool


TARGETS = (
    Target(("broker",), "expected cost", "pass_rate", 0.63, least=True),
    Target(("broker",), "expected cost", "over_ask_rate", 0.08, least=False),
    Target(("broker",), "expected cost", "hallucination_rate", 0.30, least=False),
    Target(("broker",), "tune", "pass_rate", 0.62, least=True),
    Target((), "tune", "optimism", 0.05, least=False),
)
HONEST = 0.02  # most that the held-out cost may differ from the cross-validated, either way
LOST = 0.01  # most of the pass rate that tune may lose to always-answer on MT-RAG
FOLD_TARGETS = {"AUROC": 0.87, "coverage at risk 0.2": 0.35}  # of the broker set


def verdict(what: str, found: Mean, bound: str, *, kept: bool) -> str:
    """One verdict in words."""
    word = "not measured" if not np.isfinite(found.value) else ("met" if kept else "**missed**")
    return f"{what} {found}, asked {bound}: {word}"


def verdicts(name: str, table: Table) -> Iterator[str]:
    """What is asked of a set under the default costs, and whether it is there."""
    for one in TARGETS:
        if not one.sets or name in one.sets:
            found = over_halves(table, one.tuner, one.figure)
            kept = found.value >= one.bound if one.least else found.value <= one.bound
            label = COLUMNS[one.figure]
            yield verdict(f"{one.tuner}: {label}", found, f"{'≥' if one.least else '≤'} {one.bound:g}", kept=kept)
    if name == "mtrag":
        found = over_halves(table, "tune", "pass_rate", "always-answer")
        yield verdict("tune − always-answer: pass", found, f"≥ −{LOST:g}", kept=found.value >= -LOST)
    free = best_free(table)
    found = over_halves(table, "tune", "pass_rate", free)
    error = 0.0 if np.isnan(found.error) else found.error
    yield verdict(f"tune − {free}: pass", found, "≥ −1 standard error", kept=found.value >= -error)
    found = over_halves(table, "tune", "error")
    yield verdict("tune: held-out − cross-validated", found, f"within ± {HONEST:g}", kept=abs(found.value) <= HONEST)


def print_folds(name: str, lines: Sequence[Line]) -> None:
    """Print how well P(right if answered) tells right from wrong out of fold."""
    print(f"\n### {name}: P(right if answered), {FOLDS} folds, {len(lines)} draws\n")
    columns = list(next(iter(lines[0]["results"].values())))
    print("| score | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    found = {
        score: {column: mean([line["results"][score][column] for line in lines]) for column in columns}
        for score in lines[0]["results"]
    }
    for score, row in found.items():
        print(f"| {score} | " + " | ".join(str(row[column]) for column in columns) + " |")
    if name == "broker":
        for column, bound in FOLD_TARGETS.items():
            one = found["expected cost"][column]
            print(f"\n- {verdict(column, one, f'≥ {bound:g}', kept=one.value >= bound)}")


# Command line ---------------------------------------------------------------------------------------------------------


def given_set(text: str) -> Given:
    """Set of an argument."""
    name, equals, rest = text.partition("=")
    path, _, more = rest.partition(":")
    if not (name and equals and path):
        msg = f"a set must be name=trace, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return Given(name, path, more or None)


def halves_of(text: str) -> tuple[str, int]:
    """Name and number of an argument of --set-halves."""
    name, _, number = text.partition("=")
    return name, int(number)


def arguments() -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=given_set, help="name=trace, name=trace:policy or name=folder:platform")
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps results.jsonl")
    parser.add_argument("--halves", type=int, default=20, help="random halves of a set (20)")
    parser.add_argument("--set-halves", nargs="+", type=halves_of, default=[], metavar="NAME=N", help="of one set")
    parser.add_argument("--tuners", nargs="+", choices=TASKS, default=list(TASKS), help="which to measure")
    parser.add_argument("--matrices", nargs="+", choices=COSTS, default=list(COSTS), help="cost matrices")
    parser.add_argument("--trials", type=int, default=1000, help="of a study (1000)")
    parser.add_argument(
        "--ten-fold", type=int, nargs="?", const=5, default=0, metavar="N", help="P(right if answered) too, N draws (5)"
    )
    parser.add_argument("--again", nargs="+", choices=[*TASKS, "folds"], default=[], help="measure these once more")
    parser.add_argument("--print-only", action="store_true", help="measure nothing, print what the log holds")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    return parser.parse_args()


def units_of(given: argparse.Namespace) -> list[Unit]:
    """All that is asked for, half by half."""
    own, units = dict(given.set_halves), []
    unknown = sorted(set(own) - {one.name for one in given.sets})
    if unknown:
        msg = f"--set-halves must name sets among {', '.join(one.name for one in given.sets)}, got {unknown[0]!r}"
        raise SystemExit(msg)
    for one in given.sets:
        for half in range(own.get(one.name, given.halves)):
            tasks = [(task, matrix) for task in given.tuners for matrix in given.matrices]
            units += [Unit(one, half, task, matrix, given.trials) for task, matrix in tasks]
        units += [Unit(one, number, "folds", "default", 0) for number in range(given.ten_fold)]
    return units


def choices(lines: Sequence[Line], matrix: str) -> str:
    """What `raglab.tune` selected, and in how many halves, in words."""
    studies = [line for line in lines if line["task"] == "study" and line["matrix"] == matrix]
    found = Counter(line["results"]["tune"]["chosen"] for line in studies)
    return ", ".join(f"{name} in {count}" for name, count in found.most_common())


def seconds_by_task(lines: Sequence[Line]) -> str:
    """Mean seconds that each task takes on a half of a set, in words."""
    by_task = {task: [line["seconds"] for line in lines if line["task"] == task] for task in (*TASKS, "folds")}
    return ", ".join(f"{task} {mean(seconds).value:.1f}" for task, seconds in by_task.items() if seconds) or "none"


def main() -> None:
    """Measure what is missing, and print."""
    start = time.perf_counter()
    given = arguments()
    path = given.out / "results.jsonl"
    units = units_of(given)
    keys = {unit: unit_key(unit) for unit in units}
    before = read_log(path)
    missing = [unit for unit in units if keys[unit] not in before or unit.task in given.again]
    failed = [] if given.print_only else measure_all(missing, path, given.jobs)
    log = read_log(path)
    lines = [log[keys[unit]] for unit in units if keys[unit] in log]
    for one in given.sets:
        trace, _ = load_set(one)
        counts = ", ".join(f"{n} {name}" for name, n in zip(LABELS, np.bincount(labels_of(trace)), strict=False))
        print(f"\n## {one.name}: {len(trace)} cases ({counts})")
        mine = [line for line in lines if line["set"] == one.name]
        for matrix in given.matrices:
            table = table_of(mine, matrix)
            if table:
                print_table(f"{one.name}, costs {matrix}", table)
                if "tune" in table:
                    print(f"\nOf {len(table['tune'])} halves, tune selected {choices(mine, matrix)}.")
                if matrix == "default":
                    print("\nVerdicts: " + "; ".join(verdicts(one.name, table)) + ".")
        print(f"\nSeconds of a half: {seconds_by_task(mine)}.")
        folds = [line for line in mine if line["task"] == "folds"]
        if folds:
            print_folds(one.name, folds)
    spent = sum(line["seconds"] for line in lines)
    print(
        f"\nTotal time: {time.perf_counter() - start:.0f} s this run; {spent:.0f} s of one process in all lines shown."
    )
    if failed:
        sys.exit("\n".join(("Failed:", *failed)))


if __name__ == "__main__":
    from holdout import main as imported  # so that another process finds what it is to call

    imported()
