r"""What `raglab.tune` selects on some cases, judged on all others, beside simple-rule policies.

    raglab trace DATA/squad2-dev-cs224n/dev-v2.0.json --out out/squad.parquet
    raglab trace DATA/mtrag-un-govt-fiqa --out out/mtrag.parquet
    python experiments/sets.py DATA/clinc150-oos out/clinc
    raglab trace out/clinc --out out/clinc.parquet
    SETS="broker=out/broker/trace.parquet:datasets/broker/policy.yaml mtrag=out/mtrag.parquet \
        hint3=DATA/hint3-sofmattress squad=out/squad.parquet clinc=out/clinc.parquet"
    python experiments/holdout.py $SETS --out out/holdout
    python experiments/holdout.py $SETS --sizes 30 60 100 --draws 10 --out out/holdout

A set is name=trace, name=trace:policy, or name=folder of HINT3, where name=folder:platform takes
another platform than bert. A draw of size 0 is half of the cases; draw number n has the seed n and
goes label by label. The rule sees the drawn cases and no other; the cost is that of all other
cases. It is the selection of `raglab.tune` without its search of the chain, which does not compete.
Every result is a line of results.jsonl in --out, written at once, so that a run that is killed goes
on where it was.

Brackets hold the standard error over draws. Draws share cases, so it is too small for what another
set of questions would give, and right for what another draw would.
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import json
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sets import hint3_trace
from tuners import ALWAYS, FREE, TUNED, Draw, limit_depth, selected

import raglab
from raglab import metrics

VERSION = 2  # of what is measured here: lines of another are measured again
COSTS: dict[str, metrics.Costs | None] = {
    "default": None,
    "refuse10": {"refuse": {"answered_wrong": 10}},
    "refusal3": {"ok": {"refused": 3}},
}


class CaseSet(NamedTuple):
    """One set: its name, its trace's path, and the policy (HINT3: the platform) after the colon."""

    name: str
    path: str
    more: str | None


@lru_cache
def load_set(case_set: CaseSet) -> tuple[raglab.Trace, raglab.Policy]:
    """Trace and policy of a set; its policy refines no further than the trace measured."""
    if Path(case_set.path).is_dir():
        trace = hint3_trace(Path(case_set.path), *([case_set.more] if case_set.more else []))
        return trace, limit_depth(raglab.Policy.load(), trace)
    trace = raglab.Trace.load(case_set.path)
    return trace, limit_depth(raglab.Policy.load(case_set.more), trace)


# The log
# ----------------------------------------------------------------------------------------------

Line = dict[str, Any]


class Unit(NamedTuple):
    """A draw of a set, whose lines of the log are measured together: they share their models."""

    case_set: CaseSet
    draw: Draw

    @property
    def key(self) -> str:
        """Everything that changes the figures of its lines."""
        trace, _ = load_set(self.case_set)
        return json.dumps([VERSION, self.case_set.name, trace.fingerprint, *self.draw])


def read_log(path: Path) -> dict[str, Line]:
    """Last line of every key; a line that was cut off when the run was killed is skipped."""
    lines: dict[str, Line] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        lines[line["key"]] = line
    return lines


def measure(unit: Unit, **deals: int) -> Line:
    """Line of a draw: by cost matrix what is selected, its estimate, and the judged cells."""
    trace, policy = load_set(unit.case_set)
    outcomes = {
        matrix: {"selected": of.selected, "expected": of.expected, "cells": of.cells}
        for matrix, of in selected(trace, policy, unit.draw, COSTS, **deals)
    }
    return {"key": unit.key, "number": unit.draw.number, **outcomes}


def measure_all(units: Sequence[Unit], path: Path, **deals: int) -> list[str]:
    """Measure what the log lacks, draw by draw, and write it there; what failed, and why."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before, failed = read_log(path), []
    warnings.simplefilter("ignore")
    for unit in units:
        if unit.key in before:
            continue
        try:
            text = json.dumps(measure(unit, **deals), ensure_ascii=False, allow_nan=False)
            with path.open("a", encoding="utf-8") as log:
                log.write(f"\n{text}\n")  # after what a kill cut off
        except Exception:  # noqa: BLE001 - printed at the end, with its place
            failed.append(f"{unit.case_set.name}, {unit.draw}:\n{traceback.format_exc()}")
    return failed


# Tables
# ----------------------------------------------------------------------------------------------

NAN = float("nan")
SAME = 1e-9  # where one draw alone differs, its mean is its standard error
Row = dict[str, float]  # cost on the judged cases by column
Rows = Mapping[int, Row]  # by number of the draw
Places = Mapping[str, Sequence[Line]]


class Mean(NamedTuple):
    """Mean over draws and its standard error."""

    value: float
    error: float

    def text(self, sign: str = "") -> str:
        """Mean with its standard error, where there are several draws."""
        if not np.isfinite(self.value):
            return "–"
        error = f" ({self.error:.3f})" if np.isfinite(self.error) else ""
        return f"{self.value:{sign}.3f}{error}"

    @property
    def signed(self) -> str:
        """With a sign, in bold where it is above 0 by more than its standard error."""
        return f"**{self.text('+')}**" if self.value > self.error + SAME else self.text("+")


def mean(values: Sequence[float]) -> Mean:
    """Mean and standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else NAN
    return Mean(float(np.mean(values)) if len(values) else NAN, float(error))


def costs_of(lines: Sequence[Line], matrix: str) -> Rows:
    """Cost on the judged cases, by number of the draw and column.

    Args:
      lines: of one set and size.
      matrix: name of the costs.
    """
    return {
        line["number"]: {
            name: float(metrics.expected_cost(np.asarray(cells), COSTS[matrix]))
            for name, cells in line[matrix]["cells"].items()
        }
        | {"estimate": line[matrix]["expected"]}
        for line in sorted(lines, key=lambda line: int(line["number"]))
    }


def column(rows: Rows, name: str, less: str | None = None) -> Mean:
    """Mean of a column over draws; less: minus another, draw by draw."""
    return mean([row[name] - (row[less] if less else 0.0) for row in rows.values()])


def best_free(rows: Rows) -> str:
    """Free policy of least mean cost on the judged cases: the best in hindsight."""
    return min(FREE, key=lambda name: column(rows, name).value)


def cost_table(by_place: Places) -> Iterator[str]:
    """Cost of every policy on every set and size, and the rule's extra cost over two others."""
    names = (TUNED, ALWAYS, "defaults")
    head = ["set", "costs", "draws", *names, "best free", "tuned − best free", f"tuned − {ALWAYS}"]
    yield "| " + " | ".join([*head, "selected"]) + " |\n" + "|---" * (len(head) + 1) + "|"
    for place, lines in by_place.items():
        for matrix in COSTS if lines else ():
            rows = costs_of(lines, matrix)
            free = best_free(rows)
            chosen = Counter(line[matrix]["selected"] for line in lines).most_common()
            cells = [place, matrix, str(len(rows)), *(column(rows, name).text() for name in names)]
            cells += [f"{free} {column(rows, free).text()}"]
            cells += [column(rows, TUNED, name).signed for name in (free, ALWAYS)]
            cells += [", ".join(f"{name} {count}" for name, count in chosen)]
            yield f"| {' | '.join(cells)} |"


def estimate_table(by_place: Places) -> Iterator[str]:
    """The nested estimate of what is selected less its cost on the judged cases."""
    yield "\n| set | " + " | ".join(COSTS) + " |\n" + "|---" * (len(COSTS) + 1) + "|"
    for place, lines in by_place.items():
        cells = [column(costs_of(lines, matrix), "estimate", TUNED).signed for matrix in COSTS]
        yield f"| {place} | {' | '.join(cells)} |"


# The command
# ----------------------------------------------------------------------------------------------


def given_set(text: str) -> CaseSet:
    """Set of an argument."""
    name, equals, rest = text.partition("=")
    path, _, more = rest.partition(":")
    if not (name and equals and path):
        msg = f"a set must be name=trace, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return CaseSet(name, path, more or None)


def main() -> None:
    """Measure what is missing, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", type=given_set)
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps results.jsonl")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[0], help="cases to draw; 0 for half (0)"
    )
    parser.add_argument("--draws", type=int, default=20, help="draws of a set and size (20)")
    args = parser.parse_args()
    path, units = args.out / "results.jsonl", {}
    for size in args.sizes:
        for case_set in args.sets:
            place = f"{case_set.name}, {size}" if size else case_set.name
            units[place] = [Unit(case_set, Draw(size, number)) for number in range(args.draws)]
    # a draw of each place in turn, so that a run cut short has some of each
    failed = measure_all(
        [unit for turn in zip(*units.values(), strict=True) for unit in turn], path
    )
    log = read_log(path)
    by_place = {
        place: [log[unit.key] for unit in of_place if unit.key in log]
        for place, of_place in units.items()
    }
    for line in (*cost_table(by_place), *estimate_table(by_place)):
        print(line)
    if failed:
        sys.exit("\n".join(("Failed:", *failed)))


if __name__ == "__main__":
    main()
