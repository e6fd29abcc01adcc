r"""What `raglab.tune` selects on some cases, judged on all others, beside simple-rule policies.

    raglab trace DATA/squad2-dev-cs224n/dev-v2.0.json --out out/squad.parquet raglab trace
    DATA/mtrag-un-govt-fiqa --out out/mtrag.parquet python experiments/sets.py DATA/clinc150-oos
    out/clinc && raglab trace out/clinc --out out/clinc.parquet
    SETS="broker=out/broker/trace.parquet:datasets/broker/policy.yaml mtrag=out/mtrag.parquet \
        hint3=DATA/hint3-sofmattress squad=out/squad.parquet clinc=out/clinc.parquet"
    python experiments/holdout.py $SETS --out out/holdout
    python experiments/holdout.py $SETS --sizes 30 60 100 --draws 10 --out out/holdout
    python experiments/holdout.py $SETS --deals 5x4 5x1 5x2 10x2 10x5 --out out/holdout
    git worktree add out/old 2843b80
    PYTHONPATH=out/old python experiments/holdout.py $SETS --rules old --out out/holdout

A set is name=trace, name=trace:policy, or name=folder of HINT3, where name=folder:platform takes
another platform than bert. A draw of size 0 is half of the cases; draw number n has the seed n and
goes label by label. A rule sees the drawn cases and no other; the cost is that of all other cases.
Every result is a line of results.jsonl in --out, written at once, so that a run that is killed goes
on where it was.

Rules: `new`, the selection of `raglab.tune` without its search of the chain, which does not
compete; `chain`, `raglab.tune(rule="chain")`; `old`, `raglab.tune` as of commit 2843b80, whose
package must come first in PYTHONPATH.

Brackets hold the standard error over draws. Draws share cases, so it is too small for what another
set of questions would give, and right for what another draw would.
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import fcntl
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
from tuners import ALWAYS, FREE, TUNED, Draw, Outcome, labels_of, limit_depth, selected, tuned

import raglab
from raglab import metrics

VERSION = 1  # of what is measured here: lines of another are measured again
COSTS: dict[str, metrics.Costs | None] = {
    "default": None,
    "refuse10": {"refuse": {"answered_wrong": 10}},
    "refusal3": {"ok": {"refused": 3}},
}
DEAL = "5x4"  # folds and repeats of `raglab.tune` by default
RULES = ("new", "chain", "old")


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
    """One line of the log: a rule on a draw of a set under one cost matrix.

    rule: `old`, `chain`, or `new` with folds and repeats.
    trials: of the chain's search; 0 where there is none.
    """

    case_set: CaseSet
    draw: Draw
    matrix: str
    rule: str
    trials: int

    @property
    def key(self) -> str:
        """Everything that changes the figures of a line."""
        trace, _ = load_set(self.case_set)
        settings = [self.draw.size, self.draw.number, self.matrix, self.rule, self.trials]
        return json.dumps([VERSION, self.case_set.name, trace.fingerprint, *settings])


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
    with path.open("a+b") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.seek(0)
        log.truncate(log.read().rfind(b"\n") + 1)
        log.write((json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n").encode())


def line_of(unit: Unit, outcome: Outcome, seconds: float) -> Line:
    """Line of a unit."""
    names = {"set": unit.case_set.name, "size": unit.draw.size, "number": unit.draw.number}
    about = {**names, "matrix": unit.matrix, "rule": unit.rule, "seconds": round(seconds, 2)}
    return {"key": unit.key, **about, **outcome._asdict()}


def measure(units: Sequence[Unit]) -> Iterator[Line]:
    """Lines of units of one draw of a set.

    Those of rule `new` together, since they share their models.
    """
    (trace, policy), draw = load_set(units[0].case_set), units[0].draw
    new = {(unit.matrix, unit.rule): unit for unit in units if unit.rule.startswith("new")}
    start = time.perf_counter()
    if new:
        matrices = {unit.matrix: COSTS[unit.matrix] for unit in new.values()}
        deals = list(dict.fromkeys(deal_of(unit.rule.split()[1]) for unit in new.values()))
        selections = list(selected(trace, policy, draw, matrices, deals))
        seconds = (time.perf_counter() - start) / len(selections)
        for matrix, (folds, repeats), outcome in selections:
            yield line_of(new[matrix, f"new {folds}x{repeats}"], outcome, seconds)
    for unit in units:
        if unit.rule in {"chain", "old"}:
            start = time.perf_counter()
            more = {"rule": "chain"} if unit.rule == "chain" else {}
            outcome = tuned(trace, policy, draw, COSTS[unit.matrix], trials=unit.trials, **more)
            yield line_of(unit, outcome, time.perf_counter() - start)


def measure_all(units: Sequence[Unit], path: Path) -> list[str]:
    """Measure what the log lacks, draw by draw, and write it there; what failed, and why."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before, failed = read_log(path), []
    by_draw: dict[tuple[CaseSet, Draw], list[Unit]] = {}
    for unit in units:
        if unit.key not in before:
            by_draw.setdefault((unit.case_set, unit.draw), []).append(unit)
    warnings.simplefilter("ignore")
    for (case_set, draw), group in by_draw.items():
        try:
            for line in measure(group):
                append_line(path, line)
        except Exception:  # noqa: BLE001 - printed at the end, with its place
            failed.append(f"{case_set.name}, {draw}:\n{traceback.format_exc()}")
    return failed


# Tables
# ----------------------------------------------------------------------------------------------

NAN = float("nan")
SAME = 1e-9  # where one draw alone differs, its mean is its standard error


def figures(cells: Sequence[int], costs: metrics.Costs | None) -> dict[str, float]:
    """Rates, cost (`held_out`) and share of right statuses of judged cases.

    Args:
      cells: cases by cell, [18].
      costs: of the cost.
    """
    counts = np.asarray(cells)
    rates = metrics.rates(metrics.rate_counts(counts), metrics.label_counts(counts))
    # [2], decided as labelled
    right = counts.reshape(len(metrics.LABELS), len(metrics.LABELS), 2).trace()
    return {
        **dict(zip(metrics.RATES, rates.tolist(), strict=True)),
        "status_rate": float(right.sum() / counts.sum()),
        "held_out": float(metrics.expected_cost(counts, costs)),
    }


class Mean(NamedTuple):
    """Mean over draws and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        if not np.isfinite(self.value):
            return "–"
        return (
            f"{self.value:.3f} ({self.error:.3f})"
            if np.isfinite(self.error)
            else f"{self.value:.3f}"
        )

    @property
    def signed(self) -> str:
        """With a sign, in bold where it is above 0 by more than its standard error."""
        if not np.isfinite(self.value):
            return "–"
        text = (
            f"{self.value:+.3f} ({self.error:.3f})"
            if np.isfinite(self.error)
            else f"{self.value:+.3f}"
        )
        return f"**{text}**" if self.value > self.error + SAME else text


def mean(values: Sequence[float]) -> Mean:
    """Mean and standard error; NaN left out."""
    known = np.array([value for value in values if np.isfinite(value)])
    if not len(known):
        return Mean(NAN, NAN)
    return Mean(
        float(known.mean()),
        float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else NAN,
    )


Row = dict[str, Any]  # cost on the judged cases by column, by number of the draw
LOWEST = "lowest cross-validated"


def costs_of(lines: Sequence[Line], matrix: str, rule: str) -> dict[int, dict[str, float]]:
    """Cost on the judged cases, by number of the draw and column.

    Args:
      lines: of one set and size.
      matrix: name of the costs.
      rule: `new` with folds and repeats.
    """
    rows: dict[int, dict[str, float]] = {}
    for line in lines:
        if line["matrix"] != matrix:
            continue
        cost = {
            name: figures(cells, COSTS[matrix])["held_out"] for name, cells in line["cells"].items()
        }
        row = rows.setdefault(line["number"], {})
        if line["rule"] == rule:
            row |= {
                "new": cost[TUNED],
                **{name: cost[name] for name in (ALWAYS, "defaults", *FREE) if name in cost},
            }
            row["estimate"] = line["expected"]
        elif line["rule"] == "old":
            validated = line["cross_validated"]
            row |= {"old": cost[TUNED], LOWEST: cost[min(validated, key=validated.__getitem__)]}
        elif line["rule"] == "chain":
            row["chain"] = cost[TUNED]
    return {number: row for number, row in sorted(rows.items()) if "new" in row}


def column(rows: Mapping[int, Mapping[str, float]], name: str, less: str | None = None) -> Mean:
    """Mean of a column over draws; less: minus another, draw by draw."""
    pairs = [(row.get(name, NAN), row.get(less, NAN) if less else 0.0) for row in rows.values()]
    return mean([value - baseline for value, baseline in pairs])


def best_free(rows: Mapping[int, Mapping[str, float]]) -> str:
    """Free policy of least mean cost on the judged cases: the best in hindsight."""
    return min(FREE, key=lambda name: column(rows, name).value)


def counts_text(lines: Sequence[Line], matrix: str, rule: str) -> str:
    """What a rule selected, and how often."""
    chosen = Counter(
        line["selected"] for line in lines if (line["matrix"], line["rule"]) == (matrix, rule)
    )
    return ", ".join(f"{name} {count}" for name, count in chosen.most_common())


def place_text(name: str, size: int) -> str:
    """Set and number of drawn cases, of halves the set alone."""
    return f"{name}, {size}" if size else name


def print_costs(by_place: Mapping[tuple[str, int], Sequence[Line]], rule: str) -> None:
    """Print every rule's cost on every set and size, and the new rule's extra cost over others."""
    shown, against = (
        ("old", "new", ALWAYS, LOWEST, "defaults"),
        ("best free", ALWAYS, LOWEST, "old"),
    )
    print(f"\n| set | costs | draws (old) | {' | '.join(shown)} | best free | ", end="")
    print(" | ".join(f"new − {name}" for name in against) + " | selected |")
    print("|---" * (len(shown) + len(against) + 5) + "|")
    for (place, size), lines in by_place.items():
        for matrix in COSTS:
            rows = costs_of(lines, matrix, rule)
            if not rows:
                continue
            free, olds = best_free(rows), sum("old" in row for row in rows.values())
            costs = [str(column(rows, name)) for name in shown]
            more = [
                column(rows, "new", free if name == "best free" else name).signed
                for name in against
            ]
            first = [place_text(place, size), matrix, f"{len(rows)} ({olds})"]
            cells = [
                *first,
                *costs,
                f"{free} {column(rows, free)}",
                *more,
                counts_text(lines, matrix, rule),
            ]
            print(f"| {' | '.join(cells)} |")


def print_chain(by_place: Mapping[tuple[str, int], Sequence[Line]], rule: str) -> None:
    """Print what the mode chain costs beside the default mode, on the draws that both have."""
    print(
        "\n| set | costs | draws | chain | new | defaults | best free | chain − best free | chain "
        "− new | selected |"
    )
    print("|---" * 10 + "|")
    for (place, size), lines in by_place.items():
        for matrix in COSTS:
            rows = {
                number: row
                for number, row in costs_of(lines, matrix, rule).items()
                if "chain" in row
            }
            if rows:
                free = best_free(rows)
                costs = [str(column(rows, name)) for name in ("chain", "new", "defaults")]
                more = [column(rows, "chain", name).signed for name in (free, "new")]
                first = [place_text(place, size), matrix, str(len(rows))]
                cells = [
                    *first,
                    *costs,
                    f"{free} {column(rows, free)}",
                    *more,
                    counts_text(lines, matrix, "chain"),
                ]
                print(f"| {' | '.join(cells)} |")


def print_deals(by_place: Mapping[tuple[str, int], Sequence[Line]], deals: Sequence[str]) -> None:
    """Print what fewer folds and repeats cost against the last deal, on the draws both have."""
    print(
        "\n| set | costs | draws | "
        + " | ".join(f"{deal} − {deals[-1]}" for deal in deals[:-1])
        + " |"
    )
    print("|---" * (len(deals) + 2) + "|")
    for (name, size), lines in by_place.items():
        for matrix in COSTS:
            by_deal = [costs_of(lines, matrix, f"new {deal}") for deal in deals]
            numbers = sorted(set.intersection(*(set(rows) for rows in by_deal)))
            if numbers:
                last = by_deal[-1]
                more = [
                    mean([rows[n]["new"] - last[n]["new"] for n in numbers]).signed
                    for rows in by_deal[:-1]
                ]
                print(
                    f"| {' | '.join([place_text(name, size), matrix, str(len(numbers)), *more])} |"
                )


def print_estimates(by_place: Mapping[tuple[str, int], Sequence[Line]], rule: str) -> None:
    """Print the nested estimate of what is selected less its cost on the judged cases."""
    print("\n| set | " + " | ".join(COSTS) + " |\n" + "|---" * (len(COSTS) + 1) + "|")
    for (name, size), lines in by_place.items():
        cells = [
            column(costs_of(lines, matrix, rule), "estimate", "new").signed for matrix in COSTS
        ]
        print(f"| {place_text(name, size)} | {' | '.join(cells)} |")


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


def deal_of(text: str) -> tuple[int, int]:
    """Folds and repeats of an argument of --deals."""
    folds, _, repeats = text.partition("x")
    return int(folds), int(repeats)


def draws_of(text: str) -> tuple[str, int]:
    """Name and number of an argument of --set-draws."""
    name, _, number = text.partition("=")
    return name, int(number)


def arguments() -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets",
        nargs="+",
        type=given_set,
        help="name=trace, name=trace:policy or name=folder:platform",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps results.jsonl")
    parser.add_argument(
        "--rules", nargs="+", choices=RULES, default=["new"], help="what to measure (new)"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[0], help="cases to draw; 0 for half (0)"
    )
    parser.add_argument("--draws", type=int, default=20, help="draws of a set and size (20)")
    parser.add_argument(
        "--set-draws", nargs="+", type=draws_of, default=[], metavar="NAME=N", help="of one set"
    )
    parser.add_argument(
        "--deals",
        nargs="+",
        default=[DEAL],
        metavar="FxR",
        help=f"folds x repeats of `new` ({DEAL})",
    )
    parser.add_argument(
        "--matrices", nargs="+", choices=COSTS, default=list(COSTS), help="cost matrices"
    )
    parser.add_argument("--trials", type=int, default=1000, help="of the chain's search (1000)")
    parser.add_argument(
        "--print-only", action="store_true", help="measure nothing, print what the log holds"
    )
    return parser.parse_args()


def units_of(args: argparse.Namespace) -> list[Unit]:
    """All that is asked for, draw by draw over all sets, so a run cut short has some of each."""
    own, known = dict(args.set_draws), {case_set.name for case_set in args.sets}
    if set(own) - known:
        msg = (
            f"--set-draws must name sets among {', '.join(sorted(known))}, got "
            f"{min(set(own) - known)!r}"
        )
        raise SystemExit(msg)
    rules = [(f"new {deal}", 0) for deal in args.deals if "new" in args.rules]
    rules += [(rule, args.trials) for rule in args.rules if rule != "new"]
    return [
        Unit(case_set, Draw(size, number), matrix, rule, trials)
        for number in range(max([args.draws, *own.values()]))
        for size in args.sizes
        for case_set in args.sets
        if number < own.get(case_set.name, args.draws)
        for matrix in args.matrices
        for rule, trials in rules
    ]


def main() -> None:
    """Measure what is missing, and print."""
    start, args = time.perf_counter(), arguments()
    if "old" in args.rules and hasattr(raglab, "certify_best"):
        sys.exit(
            f"rule old must be that of commit 2843b80, got {raglab.__file__}; put its folder "
            "first in PYTHONPATH."
        )
    path = args.out / "results.jsonl"
    failed = [] if args.print_only else measure_all(units_of(args), path)
    fingerprints = {case_set.name: load_set(case_set)[0].fingerprint for case_set in args.sets}
    by_place: dict[tuple[str, int], list[Line]] = {}
    for size in args.sizes:
        for name, fingerprint in fingerprints.items():
            of_place = [VERSION, name, fingerprint, size]
            lines = [
                line for line in read_log(path).values() if json.loads(line["key"])[:4] == of_place
            ]
            by_place.setdefault((name, size), lines)
    for case_set in args.sets:
        trace, _ = load_set(case_set)
        totals = np.bincount(labels_of(trace))
        counts = ", ".join(f"{n} {name}" for name, n in zip(metrics.LABELS, totals, strict=False))
        print(f"- {case_set.name}: {len(trace)} cases ({counts})")
    print_costs(by_place, f"new {args.deals[0]}")
    print_chain(by_place, f"new {args.deals[0]}")
    print_estimates(by_place, f"new {args.deals[0]}")
    if len(args.deals) > 1:
        print_deals(by_place, args.deals)
    for rule in sorted({line["rule"] for lines in by_place.values() for line in lines}):
        spent = {
            place: [row["seconds"] for row in rows if row["rule"] == rule]
            for place, rows in by_place.items()
        }
        texts = [
            f"{name} {size or 'half'} {mean(values).value:.1f}"
            for (name, size), values in spent.items()
            if values
        ]
        print(f"\nSeconds of {rule}, one matrix: {', '.join(texts)}.")
    print(f"\nThis run: {time.perf_counter() - start:.0f} s.")
    if failed:
        sys.exit("\n".join(("Failed:", *failed)))


if __name__ == "__main__":
    main()
