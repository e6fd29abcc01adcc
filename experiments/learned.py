r"""What a signal learned from labels is worth: AUROC answerable against not, on cases that it has not seen.

    raglab trace DATA/squad2-dev-cs224n/dev-v2.0.json --out out/squad.parquet
    raglab trace DATA/mtrag-un-govt-fiqa --out out/mtrag.parquet
    raglab demo --out out/broker
    python experiments/learned.py squad=out/squad.parquet:1 mtrag=out/mtrag.parquet:20 \
        broker=out/broker/trace.parquet:20 --tune 200

A set is name=trace:halves. One half: articles (or conversations, else cases) in the order of the SHA-256 of their
names, those at even places to learn from, the others judged. Several: groups drawn by seed, label by label. The
features were chosen on the learning half of SQuAD alone. Intervals of one half are DeLong's, and those of 2,000
resamples of whole articles; of several halves the table has mean and standard error, which is too small for another
set of questions, since halves share cases.

"Best stored" is the built-in signal that ranks best on the learning half. Coverage: the share of all judged cases that
is answered where the threshold is the lowest whose hallucination on the learning half (cross-fitted) is at most the
level; beside it the hallucination that it comes to, and the coverage of the best threshold in hindsight.
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tuners import SeenCases, seen_cases, with_splits

import raglab
from raglab import metrics
from raglab.canonical import digest
from raglab.extensions.learned_signals.evidence_features import FEATURES, GROUPS
from raglab.extensions.learned_signals.learned_signal import (
    FOLDS,
    GROUP_KEYS,
    RECIPES,
    case_features,
    case_groups,
    cross_fit,
    labelled_rows,
    signal_report,
)
from raglab.extensions.learned_signals.score_models import (
    STRENGTHS,
    Recipe,
    choose_recipe,
    fit_score_model,
    grouped_folds,
)
from raglab.lab.search_space import limit_depth
from raglab.metrics.intervals import percentile_interval
from raglab.signals import NAMES, signal
from raglab.store.policies import Policy
from raglab.store.traces import Trace

RISKS = (0.3, 0.4)
DRAWS = 2_000
TEXT = tuple(name for name in GROUPS if name != "retrieval")
Floats = NDArray[np.float64]


class Set(NamedTuple):
    """A set: trace, name, halves; by case features, label, group and its name, signals [S, R], right if answered."""

    trace: Trace
    name: str
    halves: int
    x: Floats
    y: NDArray[np.bool_]
    group: NDArray[np.int64]
    names: list[str]
    signals: Floats
    right: NDArray[np.bool_]


def read_set(text: str) -> Set:
    """Set of an argument."""
    name, _, rest = text.partition("=")
    path, _, halves = rest.rpartition(":")
    trace = Trace.load(path)
    rows, y = labelled_rows(trace, "answerable")
    seen: SeenCases = seen_cases(trace, Policy.load())
    keys = [
        next((str(trace.cases[row].extra[key]) for key in GROUP_KEYS if key in trace.cases[row].extra), "")
        for row in rows
    ]
    return Set(
        trace,
        name,
        int(halves),
        case_features(trace, rows),
        y,
        case_groups(trace, rows, None),
        keys,
        seen.signals[:, rows],
        seen.right[rows],
    )


def learning_half(one: Set, number: int, seed: int) -> NDArray[np.bool_]:
    """Cases of the learning half."""
    if one.halves > 1:
        rng = np.random.default_rng([seed, number])
        found: NDArray[np.bool_] = grouped_folds(one.y, one.group, 2, rng) == rng.integers(2)
        return found
    return np.isin(one.names, sorted({*one.names}, key=digest)[::2])


def surer(row: int, values: Floats) -> Floats:
    """Values of a built-in signal, more of it the surer; a missing one is the least."""
    sign = -1.0 if signal(NAMES[row]).direction == "ask" else 1.0
    return np.nan_to_num(sign * values, nan=-1e9)


def best_stored(one: Set, seen: NDArray[np.bool_]) -> int:
    """Built-in signal that ranks best on some cases."""
    return int(
        np.argmax([metrics.auroc(one.y[seen], surer(row, values[seen])) for row, values in enumerate(one.signals)])
    )


def learned(one: Set, seen: NDArray[np.bool_], recipes: Sequence[Recipe], seed: int, x: Floats | None = None) -> Floats:
    """Probability of all cases of x (of the set where not given) by a model of the seen ones, recipe chosen inside."""
    number = np.unique(one.group[seen], return_inverse=True)[1]
    fold = grouped_folds(one.y[seen], number, FOLDS, np.random.default_rng(seed))
    recipe = choose_recipe(one.x[seen], one.y[seen], FEATURES, GROUPS, recipes, fold)
    model = fit_score_model(one.x[seen], one.y[seen], FEATURES, GROUPS, recipe)
    return model.probabilities(one.x if x is None else x, FEATURES)


def logistics(groups: Sequence[str]) -> list[Recipe]:
    """Logistic of every strength on some groups."""
    return [Recipe(tuple(groups), "logistic", strength) for strength in STRENGTHS]


def ways() -> Iterator[tuple[str, Sequence[Recipe]]]:
    """What is fitted, by name: all recipes, and those of fewer features."""
    yield "learned, recipe chosen", RECIPES
    yield "logistic, all features", logistics(tuple(GROUPS))
    yield "trees, all features", [recipe for recipe in RECIPES if recipe.family == "trees"]
    yield "logistic, text alone", logistics(TEXT)
    for name in GROUPS:
        yield f"logistic, {name} alone", logistics((name,))
    for name in TEXT:
        yield f"logistic, text without {name}", logistics([other for other in TEXT if other != name])


def article_interval(y: NDArray[np.bool_], values: Floats, group: NDArray[np.int64], seed: int) -> str:
    """Interval of the AUROC over resamples of whole groups."""
    rng, members = np.random.default_rng(seed), [np.flatnonzero(group == one) for one in np.unique(group)]
    draws = []
    for _ in range(DRAWS):
        rows = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        draws.append(metrics.auroc(y[rows], values[rows]))
    low, high = percentile_interval(np.array(draws), 0.95)
    return f"{float(low):.3f}–{float(high):.3f}"


def print_one_half(one: Set, seed: int) -> None:
    """AUROC on the judged half with its intervals, and coverage at two levels of hallucination."""
    seen = learning_half(one, 0, seed)
    judged = ~seen
    print(f"\n### {one.name}: learned from {seen.sum()} cases, judged on {judged.sum()} ({one.y[judged].sum()} ok)\n")
    print("| signal | AUROC | DeLong | articles |\n|---|---|---|---|")
    y, group = one.y[judged], one.group[judged]
    stored = best_stored(one, seen)
    columns = {f"best stored ({NAMES[stored]})": surer(stored, one.signals[stored])}
    columns |= {name: learned(one, seen, recipes, seed) for name, recipes in ways()}
    for name, values in columns.items():
        told = signal_report(y, values[judged])
        print(
            f"| {name} | {told.auroc:.3f} | {told.low:.3f}–{told.high:.3f} |"
            f" {article_interval(y, values[judged], group, seed)} |"
        )
    number = np.unique(one.group[seen], return_inverse=True)[1]
    begin = time.perf_counter()
    fit = cross_fit(one.x[seen], one.y[seen], number, seed=seed)
    print(
        f"\nCross-fitted in {time.perf_counter() - begin:.0f} s: {fit.model.recipe.described}; of the learning half ",
        end="",
    )
    print(f"AUROC {metrics.auroc(one.y[seen], fit.held_out):.3f}, by models that did not see the case.\n")
    print("| signal | level | coverage, hallucination | in hindsight |\n|---|---|---|---|")
    right = fit_right(one, seen, seed)
    whole = fit.model.probabilities(one.x, FEATURES)
    name = next(iter(columns))
    for title, own, values in (
        (name, columns[name][seen], columns[name][judged]),
        ("learned, answerable", fit.held_out, whole[judged]),
        ("learned, right if answered", right[0], right[1][judged]),
    ):
        for risk in RISKS:
            print(f"| {title} | {risk:g} | {coverage(one, seen, own, values, risk)} |")


def fit_right(one: Set, seen: NDArray[np.bool_], seed: int) -> tuple[Floats, Floats]:
    """Signal of the target `right`: cross-fitted on the learning half, and of all cases."""
    number = np.unique(one.group[seen], return_inverse=True)[1]
    fit = cross_fit(one.x[seen], one.right[seen], number, seed=seed)
    return fit.held_out, fit.model.probabilities(one.x, FEATURES)


def coverage(one: Set, seen: NDArray[np.bool_], own: Floats, values: Floats, risk: float) -> str:
    """Coverage and hallucination of the judged half, and the coverage of the best threshold in hindsight."""
    right, judged = one.right[seen], ~seen
    order = np.argsort(-own, kind="stable")
    wrong = np.cumsum(~right[order]) / np.arange(1, len(order) + 1)
    ends = np.append(np.diff(own[order]) != 0.0, True)  # a threshold parts no ties
    held = np.flatnonzero((wrong <= risk) & ends)
    answered = values >= own[order][held[-1]] if len(held) else np.zeros(judged.sum(), dtype=bool)
    n, k = int(answered.sum()), int((answered & ~one.right[judged]).sum())
    best = metrics.coverage_at_risk(one.right[judged], values, risk)
    return f"{n / judged.sum():.3f}, {k}/{n} = {k / max(n, 1):.3f} | {best:.3f}"


def print_tuned(one: Set, seed: int, trials: int) -> None:
    """What `raglab.tune` on the learning half comes to on the judged half, without and with the column."""
    learned_names = {one.names[row] for row in np.flatnonzero(learning_half(one, 0, seed))}
    rows, _ = labelled_rows(one.trace, "answerable")
    whole = one.trace.subset(rows)
    plain = with_splits(whole, ["tune" if name in learned_names else "report" for name in one.names])
    signal_column = raglab.learn_signal(plain, seed=seed).with_signal(plain)
    print("\n| tuned | pass | hallucination | false refusal | coverage |\n|---|---|---|---|---|")
    for title, trace in (("without the learned signal", plain), ("with it", signal_column)):
        found = raglab.tune(trace, policy=limit_depth(Policy.load(), trace), trials=trials, seed=seed)
        row = raglab.sweep(trace.split("report"), [found.policy]).iloc[0]
        names = ("pass_rate", "hallucination_rate", "false_refusal_rate", "coverage")
        print(f"| {title} | {' | '.join(f'{row[name]:.3f}' for name in names)} |")


def print_halves(one: Set, seed: int) -> None:
    """Mean AUROC over halves, with the standard error."""
    print(f"\n### {one.name}: {len(one.y)} cases ({one.y.sum()} ok), {one.halves} halves\n")
    print("| signal | AUROC (standard error) | less best stored |\n|---|---|---|")
    found: dict[str, list[float]] = {}
    for number in range(one.halves):
        seen = learning_half(one, number, seed)
        y, stored = one.y[~seen], best_stored(one, seen)
        found.setdefault("best stored", []).append(metrics.auroc(y, surer(stored, one.signals[stored])[~seen]))
        for name, recipes in ways():
            found.setdefault(name, []).append(metrics.auroc(y, learned(one, seen, recipes, seed)[~seen]))
    first = np.array(found["best stored"])
    for name, drawn in found.items():
        values = np.array(drawn)
        cells = [
            f"{part.mean():.3f} ({part.std(ddof=1) / np.sqrt(len(part)):.3f})" for part in (values, values - first)
        ]
        print(f"| {name} | {cells[0]} | {cells[1]} |")


def print_other_domains(sets: Sequence[Set], seed: int) -> None:
    """AUROC of signals learned on one set and judged on all cases of another."""
    print(
        "\n### Out of domain\n\n| learned on | judged on | best stored there | learned | text alone |\n"
        + "|---" * 5
        + "|"
    )
    for one in sets:
        seen = learning_half(one, 0, seed) if one.halves == 1 else np.ones(len(one.y), dtype=bool)
        for other in sets:
            if other is not one:
                row = best_stored(other, np.ones(len(other.y), dtype=bool))
                cells = []
                for values in (
                    surer(row, other.signals[row]),
                    learned(one, seen, RECIPES, seed, other.x),
                    learned(one, seen, logistics(TEXT), seed, other.x),
                ):
                    told = signal_report(other.y, values)
                    cells.append(f"{told.auroc:.3f} ({told.low:.3f}–{told.high:.3f})")
                print(f"| {one.name} | {other.name} | {' | '.join(cells)} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="name=trace:halves")
    parser.add_argument("--seed", type=int, default=0, help="of halves, folds and resamples (0)")
    parser.add_argument("--tune", type=int, default=0, metavar="TRIALS", help="tune sets of one half too (no)")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = [read_set(text) for text in given.sets]
    for one in sets:
        (print_one_half if one.halves == 1 else print_halves)(one, given.seed)
        if one.halves == 1 and given.tune:
            print_tuned(one, given.seed, given.tune)
    if len(sets) > 1:
        print_other_domains(sets, given.seed)


if __name__ == "__main__":
    main()
