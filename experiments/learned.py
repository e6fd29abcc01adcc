r"""What a signal learned from labels is worth.

AUROC answerable against not, on cases that it has not seen.

    raglab trace DATA/squad2-dev-cs224n/dev-v2.0.json --out out/squad.parquet
    raglab trace DATA/mtrag-un-govt-fiqa --out out/mtrag.parquet
    raglab demo --out out/broker
    python experiments/learned.py squad=out/squad.parquet:1 mtrag=out/mtrag.parquet:20 \
        broker=out/broker/trace.parquet:20 --tune 200

A set is name=trace:halves. One half: articles (or conversations, else cases) in the order of the
SHA-256 of their names, those at even places to learn from, the others judged. Several: groups drawn
by seed, label by label. The features were chosen on the learning half of SQuAD alone. Intervals of
one half are DeLong's, and those of 2,000 resamples of whole articles; of several halves the table
has mean and standard error, which is too small for another set of questions, since halves share
cases.

"Best stored" is the built-in signal that ranks best on the learning half. Coverage: the share of
all judged cases that is answered where the threshold is the lowest whose hallucination on the
learning half (cross-fitted) is at most the level; beside it the hallucination that it comes to, and
the coverage of the best threshold in hindsight.
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
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tuners import SeenCases, limit_depth, seen_cases, with_splits

import raglab
from raglab import metrics
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
)
from raglab.lab.held_out_groups import grouped_folds
from raglab.metrics.intervals import percentile_interval
from raglab.signals import NAMES, signal

RISKS = (0.3, 0.4)
DRAWS = 2_000
TEXT = tuple(name for name in GROUPS if name != "retrieval")
Floats = NDArray[np.float64]


class Set(NamedTuple):
    """A set: trace, name, halves.

    By case features, label, group and its name, signals [S, R], right if answered.
    """

    trace: raglab.Trace
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
    trace = raglab.Trace.load(path)
    rows, y = labelled_rows(trace, "answerable")
    case_signals: SeenCases = seen_cases(trace, raglab.Policy.load())
    keys = [
        next(
            (
                str(trace.cases[row].extra[key])
                for key in GROUP_KEYS
                if key in trace.cases[row].extra
            ),
            "",
        )
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
        case_signals.signals[:, rows],
        case_signals.right[rows],
    )


def learning_half(case_set: Set, number: int, seed: int) -> NDArray[np.bool_]:
    """Cases of the learning half."""
    if case_set.halves > 1:
        rng = np.random.default_rng([seed, number])
        is_learning: NDArray[np.bool_] = grouped_folds(
            case_set.y, case_set.group, 2, rng
        ) == rng.integers(2)
        return is_learning
    return np.isin(
        case_set.names,
        sorted({*case_set.names}, key=lambda name: sha256(name.encode()).hexdigest())[::2],
    )


def surer(row: int, values: Floats) -> Floats:
    """Values of a built-in signal, more of it the surer; a missing one is the least."""
    sign = -1.0 if signal(NAMES[row]).direction == "ask" else 1.0
    return np.nan_to_num(sign * values, nan=-1e9)


def best_stored(case_set: Set, is_learning: NDArray[np.bool_]) -> int:
    """Built-in signal that ranks best on some cases."""
    return int(
        np.argmax(
            [
                metrics.auroc(case_set.y[is_learning], surer(row, values[is_learning]))
                for row, values in enumerate(case_set.signals)
            ]
        )
    )


def learned(
    case_set: Set,
    is_learning: NDArray[np.bool_],
    recipes: Sequence[Recipe],
    seed: int,
    x: Floats | None = None,
) -> Floats:
    """Probability of all cases of x by a model of the seen ones, with the recipe chosen inside.

    If x is not given, they are the cases of the set.
    """
    number = np.unique(case_set.group[is_learning], return_inverse=True)[1]
    fold = grouped_folds(case_set.y[is_learning], number, FOLDS, np.random.default_rng(seed))
    recipe = choose_recipe(
        case_set.x[is_learning], case_set.y[is_learning], FEATURES, GROUPS, recipes, fold
    )
    model = fit_score_model(
        case_set.x[is_learning], case_set.y[is_learning], FEATURES, GROUPS, recipe
    )
    return model.probabilities(case_set.x if x is None else x, FEATURES)


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
        yield (
            f"logistic, text without {name}",
            logistics([group for group in TEXT if group != name]),
        )


def article_interval(
    y: NDArray[np.bool_], values: Floats, group: NDArray[np.int64], seed: int
) -> str:
    """Interval of the AUROC over resamples of whole groups."""
    rng, members = (
        np.random.default_rng(seed),
        [np.flatnonzero(group == article) for article in np.unique(group)],
    )
    draws = []
    for _ in range(DRAWS):
        rows = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        draws.append(metrics.auroc(y[rows], values[rows]))
    low, high = percentile_interval(np.array(draws), 0.95)
    return f"{float(low):.3f}–{float(high):.3f}"


def print_one_half(case_set: Set, seed: int) -> None:
    """AUROC on the judged half with its intervals, and coverage at two levels of hallucination."""
    is_learning = learning_half(case_set, 0, seed)
    judged = ~is_learning
    print(
        f"\n### {case_set.name}: learned from {is_learning.sum()} cases, "
        f"judged on {judged.sum()} ({case_set.y[judged].sum()} ok)\n"
    )
    print("| signal | AUROC | DeLong | articles |\n|---|---|---|---|")
    y, group = case_set.y[judged], case_set.group[judged]
    stored = best_stored(case_set, is_learning)
    columns = {f"best stored ({NAMES[stored]})": surer(stored, case_set.signals[stored])}
    columns |= {name: learned(case_set, is_learning, recipes, seed) for name, recipes in ways()}
    for name, values in columns.items():
        report = signal_report(y, values[judged])
        print(
            f"| {name} | {report.auroc:.3f} | {report.low:.3f}–{report.high:.3f} |"
            f" {article_interval(y, values[judged], group, seed)} |"
        )
    number = np.unique(case_set.group[is_learning], return_inverse=True)[1]
    begin = time.perf_counter()
    fit = cross_fit(case_set.x[is_learning], case_set.y[is_learning], number, seed=seed)
    print(
        f"\nCross-fitted in {time.perf_counter() - begin:.0f} s: {fit.model.recipe.described}; of "
        "the learning half ",
        end="",
    )
    print(
        f"AUROC {metrics.auroc(case_set.y[is_learning], fit.held_out):.3f}, by models that did "
        "not see the case.\n"
    )
    print("| signal | level | coverage, hallucination | in hindsight |\n|---|---|---|---|")
    right = fit_right(case_set, is_learning, seed)
    whole = fit.model.probabilities(case_set.x, FEATURES)
    name = next(iter(columns))
    for title, own, values in (
        (name, columns[name][is_learning], columns[name][judged]),
        ("learned, answerable", fit.held_out, whole[judged]),
        ("learned, right if answered", right[0], right[1][judged]),
    ):
        for risk in RISKS:
            print(f"| {title} | {risk:g} | {coverage(case_set, is_learning, own, values, risk)} |")


def fit_right(case_set: Set, is_learning: NDArray[np.bool_], seed: int) -> tuple[Floats, Floats]:
    """Signal of the target `right`: cross-fitted on the learning half, and of all cases."""
    number = np.unique(case_set.group[is_learning], return_inverse=True)[1]
    fit = cross_fit(case_set.x[is_learning], case_set.right[is_learning], number, seed=seed)
    return fit.held_out, fit.model.probabilities(case_set.x, FEATURES)


def coverage(
    case_set: Set, is_learning: NDArray[np.bool_], own: Floats, values: Floats, risk: float
) -> str:
    """The judged half's coverage and hallucination, and the best hindsight threshold's coverage."""
    right, judged = case_set.right[is_learning], ~is_learning
    order = np.argsort(-own, kind="stable")
    wrong = np.cumsum(~right[order]) / np.arange(1, len(order) + 1)
    ends = np.append(np.diff(own[order]) != 0.0, True)  # a threshold parts no ties
    held = np.flatnonzero((wrong <= risk) & ends)
    answered = values >= own[order][held[-1]] if len(held) else np.zeros(judged.sum(), dtype=bool)
    n, k = int(answered.sum()), int((answered & ~case_set.right[judged]).sum())
    best = metrics.coverage_at_risk(case_set.right[judged], values, risk)
    return f"{n / judged.sum():.3f}, {k}/{n} = {k / max(n, 1):.3f} | {best:.3f}"


def print_tuned(case_set: Set, seed: int, trials: int) -> None:
    """Result of `raglab.tune` (learning half) on the judged half, without and with the column."""
    learned_names = {
        case_set.names[row] for row in np.flatnonzero(learning_half(case_set, 0, seed))
    }
    rows, _ = labelled_rows(case_set.trace, "answerable")
    whole = case_set.trace.subset(rows)
    plain = with_splits(
        whole, ["tune" if name in learned_names else "report" for name in case_set.names]
    )
    signal_column = raglab.fit_signal(plain, seed=seed).with_signal(plain)
    print("\n| tuned | pass | hallucination | false refusal | coverage |\n|---|---|---|---|---|")
    for title, trace in (("without the learned signal", plain), ("with it", signal_column)):
        study = raglab.tune(
            trace, policy=limit_depth(raglab.Policy.load(), trace), trials=trials, seed=seed
        )
        row = raglab.sweep(trace.split("report"), [study.policy]).iloc[0]
        names = ("pass_rate", "hallucination_rate", "false_refusal_rate", "coverage")
        print(f"| {title} | {' | '.join(f'{row[name]:.3f}' for name in names)} |")


def print_halves(case_set: Set, seed: int) -> None:
    """Mean AUROC over halves, with the standard error."""
    print(
        f"\n### {case_set.name}: {len(case_set.y)} cases ({case_set.y.sum()} ok), "
        f"{case_set.halves} halves\n"
    )
    print("| signal | AUROC (standard error) | less best stored |\n|---|---|---|")
    aurocs: dict[str, list[float]] = {}
    for number in range(case_set.halves):
        is_learning = learning_half(case_set, number, seed)
        y, stored = case_set.y[~is_learning], best_stored(case_set, is_learning)
        aurocs.setdefault("best stored", []).append(
            metrics.auroc(y, surer(stored, case_set.signals[stored])[~is_learning])
        )
        for name, recipes in ways():
            aurocs.setdefault(name, []).append(
                metrics.auroc(y, learned(case_set, is_learning, recipes, seed)[~is_learning])
            )
    first = np.array(aurocs["best stored"])
    for name, drawn in aurocs.items():
        values = np.array(drawn)
        cells = [
            f"{part.mean():.3f} ({part.std(ddof=1) / np.sqrt(len(part)):.3f})"
            for part in (values, values - first)
        ]
        print(f"| {name} | {cells[0]} | {cells[1]} |")


def print_other_domains(sets: Sequence[Set], seed: int) -> None:
    """AUROC of signals learned on one set and judged on all cases of another."""
    print(
        "\n### Out of domain\n\n| learned on | judged on | best stored there | learned | text "
        "alone |\n" + "|---" * 5 + "|"
    )
    for learning_set in sets:
        is_learning = (
            learning_half(learning_set, 0, seed)
            if learning_set.halves == 1
            else np.ones(len(learning_set.y), dtype=bool)
        )
        for judged_set in sets:
            if judged_set is not learning_set:
                row = best_stored(judged_set, np.ones(len(judged_set.y), dtype=bool))
                cells = []
                for values in (
                    surer(row, judged_set.signals[row]),
                    learned(learning_set, is_learning, RECIPES, seed, judged_set.x),
                    learned(learning_set, is_learning, logistics(TEXT), seed, judged_set.x),
                ):
                    report = signal_report(judged_set.y, values)
                    cells.append(f"{report.auroc:.3f} ({report.low:.3f}–{report.high:.3f})")
                print(f"| {learning_set.name} | {judged_set.name} | {' | '.join(cells)} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", help="name=trace:halves")
    parser.add_argument("--seed", type=int, default=0, help="of halves, folds and resamples (0)")
    parser.add_argument(
        "--tune", type=int, default=0, metavar="TRIALS", help="tune sets of one half too (no)"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = [read_set(text) for text in args.sets]
    for case_set in sets:
        (print_one_half if case_set.halves == 1 else print_halves)(case_set, args.seed)
        if case_set.halves == 1 and args.tune:
            print_tuned(case_set, args.seed, args.tune)
    if len(sets) > 1:
        print_other_domains(sets, args.seed)


if __name__ == "__main__":
    main()
