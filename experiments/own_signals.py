r"""What a signal of one's own is worth.

One that tells right from wrong with AUROC 0.95, and one that tells nothing.

    raglab demo
    python experiments/own_signals.py out/broker/trace.parquet:datasets/broker/policy.yaml --out
      out/own_signals

Both signals are added to the trace as a Series by `Trace.with_signal`. The first is a normal draw a
case, sqrt(2) times the 0.95 quantile higher where the case would be right if answered: two unit
normals so far apart have AUROC 0.95. The second is the same draw without that. Half number n tunes
and judges with signals drawn with seed n and without, by `raglab.tune`; the certificates are on the
trace's own splits.

A line of results.jsonl in --out is written as soon as a half is known; a run that is killed goes on
where it was. Brackets hold the standard error over halves; differences are paired.
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from holdout import CaseSet, Mean, append_line, figures, given_set, load_set, mean, read_log
from numpy.typing import NDArray
from scipy.stats import norm
from tqdm import tqdm
from tuners import TUNED, Draw, seen_cases, tuned, with_splits

import raglab

VERSION = 2  # of what is measured here: lines of another are measured again
AUROC = 0.95
NAME = "judge"
KINDS = {"none": "without", "signal": f"with AUROC {AUROC:g}", "noise": "with noise"}
LEVELS = (0.4, 0.3, 0.2, 0.1)  # hallucination rates to certify
DELTA = 0.1


def drawn_signal(
    trace: raglab.Trace, right: NDArray[np.bool_], seed: int, *, noise: bool = False
) -> raglab.Trace:
    """Trace with a signal of its own that tells right-if-answered from wrong, or nothing.

    Args:
      right: whether each case would be right if answered, [Q].
    """
    apart = 0.0 if noise else math.sqrt(2.0) * float(norm.ppf(AUROC))
    values = np.random.default_rng([seed, 14]).standard_normal(len(trace)) + apart * right
    series = pd.Series(values, index=[case.id for case in trace.cases])
    return trace.with_signal(
        NAME, series, higher="surer", unit="number", source="drawn", version=str(seed)
    )


@lru_cache
def right_cases(case_set: CaseSet) -> NDArray[np.bool_]:
    """Whether each case of a set would be right if answered, [Q]."""
    return seen_cases(*load_set(case_set)).right


def signal_trace(case_set: CaseSet, kind: str, seed: int) -> raglab.Trace:
    """Trace of a set with a signal of a kind."""
    trace, _ = load_set(case_set)
    return (
        trace
        if kind == "none"
        else drawn_signal(trace, right_cases(case_set), seed, noise=kind == "noise")
    )


# Halves
# ----------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """One study: of a set with a signal of a kind, on a half."""

    case_set: CaseSet
    half: int
    kind: str
    trials: int


def unit_key(unit: Unit) -> str:
    """What a line of the log is found by: everything that changes its figures."""
    trace, policy = load_set(unit.case_set)
    return json.dumps(
        [VERSION, trace.fingerprint, policy.policy_id, unit.half, unit.kind, unit.trials]
    )


def measure(unit: Unit) -> dict[str, Any]:
    """Line of a study."""
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    trace, policy = signal_trace(unit.case_set, unit.kind, unit.half), load_set(unit.case_set)[1]
    outcome = tuned(trace, policy, Draw(0, unit.half), None, trials=unit.trials)
    seconds = round(time.perf_counter() - start, 1)
    about = {"half": unit.half, "kind": unit.kind, "seconds": seconds}
    return {"key": unit_key(unit), **about, **outcome._asdict()}


def measure_all(units: Sequence[Unit], path: Path, jobs: int) -> None:
    """Measure what the log lacks and write it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = read_log(path)
    lacking = [unit for unit in units if unit_key(unit) not in known]
    with (
        ProcessPoolExecutor(jobs) as pool,
        tqdm(total=len(lacking), unit="study", disable=not lacking) as bar,
    ):
        for done in as_completed([pool.submit(measure, unit) for unit in lacking]):
            append_line(path, done.result())
            bar.update()


Table = Mapping[str, Sequence[Mapping[str, float]]]  # kind -> figures by half


def paired_difference(table: Table, kind: str, figure: str) -> Mean:
    """Mean difference of a figure to the studies without the signal, half by half."""
    pairs = zip(table[kind], table["none"], strict=True)
    return mean([row[figure] - plain_row[figure] for row, plain_row in pairs])


def print_halves(lines: Sequence[Mapping[str, Any]], trials: int) -> None:
    """Print what the studies came to."""
    table = {
        kind: [figures(line["cells"][TUNED], None) for line in lines if line["kind"] == kind]
        for kind in KINDS
    }
    seconds = mean([line["seconds"] for line in lines])
    print(
        f"\n### raglab.tune on {len(table['none'])} halves, {trials} trials, {seconds.value:.0f} "
        "s a study\n"
    )
    columns = {
        "pass_rate": "pass (S6.3)",
        "held_out": "cost",
        "false_refusal_rate": "false refusal",
        "hallucination_rate": "hallucination",
        "over_ask_rate": "over-ask",
        "coverage": "coverage",
    }
    print(f"| signal | {' | '.join(columns.values())} | pass − without | selected |")
    print("|---" * (len(columns) + 3) + "|")
    for kind, shown in KINDS.items():
        cells = [str(mean([row[name] for row in table[kind]])) for name in columns]
        chosen = {line["selected"] for line in lines if line["kind"] == kind}
        more = "–" if kind == "none" else str(paired_difference(table, kind, "pass_rate"))
        print(f"| {shown} | {' | '.join(cells)} | {more} | {', '.join(sorted(chosen))} |")
    gain, harm = (
        paired_difference(table, "signal", "pass_rate"),
        paired_difference(table, "noise", "held_out"),
    )
    print(
        f"\n- pass with the signal − without: {gain}, asked ≥ 0.08: "
        f"{'met' if gain.value >= 0.08 else '**missed**'}"
    )
    error = mean([row["held_out"] for row in table["none"]]).error
    verdict = "met" if abs(harm.value) < error else "**missed**"
    print(
        f"- cost with noise − without: {harm}, asked within ± one standard error of the cost, "
        f"{error:.3f}: {verdict}"
    )


# What it tells and certifies
# ----------------------------------------------------------------------------------------------


def print_areas(case_set: CaseSet, draws: int) -> None:
    """Print how well the signal tells right-if-answered from wrong, by `raglab.audit_signals`.

    It is measured over all cases.
    """
    policy = load_set(case_set)[1]
    areas_by_kind: dict[str, list[float]] = {kind: [] for kind in KINDS if kind != "none"}
    for seed in range(draws):
        for kind, areas in areas_by_kind.items():
            trace = signal_trace(case_set, kind, seed)
            whole = with_splits(trace, ["tune"] * len(trace))
            frame = raglab.audit_signals(whole, policy, repeats=0).frame().set_index("signal")
            areas.append(float(frame.loc[NAME, "auroc_right"]))
    best = frame.drop(NAME)["auroc_right"].astype(float)
    print(f"\n### AUROC of right if answered over {len(trace)} cases, {draws} draws\n")
    for kind, areas in areas_by_kind.items():
        print(f"- {KINDS[kind]}: {mean(areas)}, from {min(areas):.3f} to {max(areas):.3f}")
    print(f"- best built-in signal: {best.idxmax()} {best.max():.3f}")


def certified(trace: raglab.Trace, policy: raglab.Policy, alpha: float) -> str:
    """Coverage certified at a hallucination rate by expected cost, and what split report says."""
    start = raglab.fit_decision(trace, policy)
    certification = raglab.certify_best(
        trace, start, targets={"hallucination_rate": alpha}, delta=DELTA, again=True
    )
    certificate, first = certification.certificate, certification.certificate.promises[0]
    if certification.policy is None:
        return f"no ({first.k:g}/{first.n})"
    again = raglab.check_policy(trace.split("report"), certification.policy)
    k, n = (int(again.table[column].iloc[0]) for column in ("k", "n"))
    return (
        f"**{certificate.coverage:.3f}**, {first.k:g}/{first.n}; report {again.coverage:.3f}, "
        f"{k}/{n}"
    )


def print_certificates(case_set: CaseSet, draws: int) -> None:
    """Print the coverage that is certified with the signal and without, on the same cases."""
    trace, policy = load_set(case_set)
    sizes = ", ".join(f"{len(trace.split(name))} {name}" for name in ("tune", "certify", "report"))
    print(
        f"\n### Certified coverage, delta {DELTA:g}, expected cost ({sizes}); hallucinations of "
        "those answered\n"
    )
    print("| signal | " + " | ".join(f"≤ {100 * alpha:.0f} %" for alpha in LEVELS) + " |")
    print("|---" * (len(LEVELS) + 1) + "|")
    rows = [("none", 0), *(("signal", seed) for seed in range(draws)), ("noise", 0)]
    for kind, seed in rows:
        part = signal_trace(case_set, kind, seed)
        drawn = "" if kind == "none" else f", draw {seed}"
        cells = [certified(part, policy, alpha) for alpha in LEVELS]
        print(f"| {KINDS[kind]}{drawn} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Measure what is missing, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "set", type=lambda text: given_set(f"set={text}"), help="trace, or trace:policy"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps results.jsonl")
    parser.add_argument("--halves", type=int, default=20, help="random halves (20)")
    parser.add_argument(
        "--trials",
        type=int,
        default=100,
        help="configurations of the chain that a study tries (100)",
    )
    parser.add_argument(
        "--draws", type=int, default=5, help="draws of the signal to certify with (5)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    args = parser.parse_args()
    print_areas(args.set, args.halves)
    print_certificates(args.set, args.draws)
    path = args.out / "results.jsonl"
    units = [
        Unit(args.set, half, kind, args.trials) for half in range(args.halves) for kind in KINDS
    ]
    measure_all(units, path, args.jobs)
    log = read_log(path)
    print_halves([log[unit_key(unit)] for unit in units], args.trials)


if __name__ == "__main__":
    main()
