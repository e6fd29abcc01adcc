"""How often a promise is broken where fit, cross-validation and choice happen anew in every repeat: Markdown tables.

A world is a table of what a system may measure of a question (four signals on grids, whether there are two options),
how likely each row is, and the chances of the four classes there, which no logistic fits exactly; so the true
hallucination rate of any policy is a sum over its rows. In every repeat as many cases are drawn to tune on as to
certify on. On the first a decision by expected cost is fitted (penalty and calibration by its own folds), every recipe
is judged by cross-validation, one is chosen by rule S6.8, and its family is ordered; on the second it is certified.

    python experiments/selection_validity.py --repeats 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from math import sqrt
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raglab import metrics
from raglab.certify import fixed_sequence
from raglab.expected_cost import CLASSES, action_costs, expected_costs, least_cost
from raglab.lab.certified_losses import RISK, RateCounts, counted_losses, pilot_order
from raglab.lab.decision_fitting import DecisionCases, fit_model, stratified_folds
from raglab.metrics.costs import DISTINCT_CELL
from raglab.signals import NAMES, signal
from raglab.values import Status

Floats = NDArray[np.float64]
DELTA = 0.1
FOLDS = 5  # of the choice among recipes; once, where a study has 10 folds five times
STRENGTHS = (0.1, 1.0)  # of the penalty; half of those of a fit
LABEL_OF_CLASS = np.array([Status.ok, Status.ok, Status.refuse, Status.ambiguous], dtype=np.int64)
COSTS = metrics.cost_matrix()
OPTIONS_RIGHT = 0.85  # chance that the options of an ambiguous case hold what it expects


# Worlds ---------------------------------------------------------------------------------------------------------------


class World(NamedTuple):
    """Where cases come from: rows of what may be measured.

    signals: in the order of `signals.NAMES`, [S, R]. can_ask: whether there are two options, [R]. chance: how likely
    each row is, [R]. classes: chance of each class there, [4, R].
    """

    signals: Floats
    can_ask: NDArray[np.bool_]
    chance: Floats
    classes: Floats


def world(right: Callable[..., Floats], refuse: Callable[..., Floats], ambiguous: Callable[..., Floats]) -> World:
    """World by the chance that a case is right, and odds of refusing and asking among the others.

    Args:
      right, refuse, ambiguous: of confidence and cosine, in [0, 1], gaps, 0 to 3, and words, 3 to 15; [R].
    """
    grids = {
        "confidence": np.linspace(0.0, 100.0, 21),
        "top1_cosine": np.linspace(0.0, 1.0, 11),
        "gaps": np.arange(4.0),
        "words": np.arange(3.0, 16.0, 3.0),
    }
    rows = np.array(list(product(*grids.values(), (0.0, 1.0)))).T
    confidence, cosine, gaps, words, can_ask = rows[0] / 100.0, *rows[1:]
    # Both scores rise together; the gaps are few and hang on neither.
    likely = np.exp(-((confidence - 0.5) ** 2) / 0.12 - (cosine - confidence) ** 2 / 0.08)
    likely *= np.array([0.5, 0.25, 0.15, 0.1])[gaps.astype(np.int64)] * np.where(can_ask > 0.0, 0.8, 0.2)
    signals = np.full((len(NAMES), rows.shape[1]), np.nan)
    signals[[NAMES.index(name) for name in grids]] = rows[:4]
    known = (confidence, cosine, gaps, words)
    p, to_refuse, to_ask = right(*known), refuse(*known), ambiguous(*known)
    others = np.stack([np.ones(len(p)), to_refuse, to_ask])
    classes = np.concatenate([p[None], (1.0 - p) * others / others.sum(axis=0)])
    return World(signals, can_ask > 0.0, likely / likely.sum(), classes)


def _told(confidence: Floats, cosine: Floats, gaps: Floats, words: Floats) -> Floats:
    """Both scores count, one only where nothing is left out: no logistic has that product."""
    return expit(6.0 * (confidence - 0.3) + 3.0 * (cosine - 0.5) * (gaps == 0) - 2.0 * gaps + 0.05 * (words - 9.0))


def _faint(confidence: Floats, cosine: Floats, gaps: Floats, words: Floats) -> Floats:
    return expit(0.75 + 1.5 * (confidence - 0.5) + 0.5 * (cosine - 0.5) - 0.4 * gaps + 0.0 * words)


def _constant(value: float, confidence: Floats, *_: Floats) -> Floats:
    return np.full(confidence.shape, value)


class Setting(NamedTuple):
    """World, target, and how many cases are tuned on, and certified on."""

    of: World
    alpha: float
    n: int


def settings() -> dict[str, Setting]:
    """What is simulated, by title."""
    odds = (lambda *known: 2.0 - known[0], lambda *known: 0.2 + 4.0 * known[2])
    told, faint = world(_told, *odds), world(_faint, *odds)
    return {
        "30 %, 150 + 150": Setting(told, 0.30, 150),
        "20 %, 300 + 300": Setting(told, 0.20, 300),
        "faint signals: 40 %, 150 + 150": Setting(faint, 0.40, 150),
        "flat risk of 31 %: 30 %, 150 + 150": Setting(world(partial(_constant, 0.69), *odds), 0.30, 150),
    }


def drawn(of: World, n: int, rng: np.random.Generator) -> DecisionCases:
    """Cases of a world."""
    row = rng.choice(of.chance.size, n, p=of.chance)
    classes = (rng.random(n) > of.classes[:, row].cumsum(axis=0)).sum(axis=0)
    classes = np.minimum(classes, len(CLASSES) - 1)  # a sum of chances may end just below 1
    return DecisionCases(of.signals[:, row], classes, of.can_ask[row], rng.random(n) < OPTIONS_RIGHT)


def true_risk(of: World, status: NDArray[np.int8]) -> tuple[float, float]:
    """Hallucination rate and coverage of what is decided so on each row, exactly."""
    answered = np.where(status == Status.ok, of.chance, 0.0)
    coverage = float(answered.sum())
    return (float(answered @ (1.0 - of.classes[0])) / coverage if coverage else 0.0), coverage


# Recipes --------------------------------------------------------------------------------------------------------------


class Family(NamedTuple):
    """Policies that differ in one number, made on some cases.

    values: that number, [C]. tuned: the one that the recipe takes. decide: status of cases, [C, Q], of their signals,
    of whether there are two options, and of the numbers. complexity: of any of them (rule S6.8).
    """

    values: Floats
    tuned: float
    decide: Callable[[Floats, NDArray[np.bool_], Floats], NDArray[np.int8]]
    complexity: int


Recipe = Callable[[DecisionCases], Family]


def counted(cases: DecisionCases, status: NDArray[np.int8]) -> NDArray[np.int64]:
    """Cell of every case, [C, Q], where it is decided so, [C, Q]."""
    found = np.where(status == Status.ok, cases.classes == CLASSES.index("right"), cases.options_right)
    return DISTINCT_CELL[status.astype(np.int64) * metrics.CELLS + LABEL_OF_CLASS[cases.classes] * 2 + found]


def rates(cases: DecisionCases, family: Family, values: Floats) -> RateCounts:
    """Answers and wrong ones of a family's policies, as certificates count them."""
    cell = counted(cases, family.decide(cases.signals, cases.can_ask, values))
    cells = np.stack([np.bincount(row, minlength=metrics.N_CELLS) for row in cell])
    return counted_losses(cells, [RISK], None)


def fixed(status: Status, _: DecisionCases) -> Family:
    """One action whatever is measured."""
    return Family(np.zeros(1), 0.0, lambda signals, _, values: np.full((len(values), signals.shape[1]), status), 0)


def threshold(name: str, cases: DecisionCases) -> Family:
    """Answer where one signal is sure enough, tuned for the least cost on these cases."""
    row, sign = NAMES.index(name), 1.0 if signal(name).direction == "surer" else -1.0

    def decide(signals: Floats, _: NDArray[np.bool_], values: Floats) -> NDArray[np.int8]:
        return np.where(sign * signals[row] >= values[:, None], Status.ok, Status.refuse).astype(np.int8)

    values = np.unique(sign * cases.signals[row])
    cost = metrics.cell_costs()[counted(cases, decide(cases.signals, cases.can_ask, values))].mean(axis=1)
    return Family(values, float(values[np.argmin(cost)]), decide, 1)


def by_expected_cost(cases: DecisionCases) -> Family:
    """Least expected cost by a model fitted on these cases; the ratio at which each of them is no longer answered."""
    model = fit_model(cases, strengths=STRENGTHS)

    def actions(signals: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
        probability = model.probabilities(signals)
        found = expected_costs(probability, model.asked_right, action_costs(COSTS, values[:, None]))
        return found[0], np.broadcast_to(found[1], found[0].shape), np.broadcast_to(found[2], found[0].shape)

    def decide(signals: Floats, can_ask: NDArray[np.bool_], values: Floats) -> NDArray[np.int8]:
        return least_cost(*actions(signals, values), can_ask)

    answer, refused, asked = (part[0] for part in actions(cases.signals, np.ones(1)))
    # The cost of a right answer is 0, so that of answering is proportional to the ratio. Just below the breakpoint:
    # the last bits of a quotient are not those of the product.
    dearest = np.where(cases.can_ask, np.minimum(refused, asked), refused) / np.maximum(answer, 1e-12)
    values = np.unique(np.append(dearest * (1.0 - 1e-9), 1.0))
    return Family(values, 1.0, decide, len(model.names))


RECIPES: Mapping[str, Recipe] = {
    "always-answer": partial(fixed, Status.ok),
    "always-refuse": partial(fixed, Status.refuse),
    **{f"threshold on {name}": partial(threshold, name) for name in ("confidence", "top1_cosine", "gaps")},
    "expected cost": by_expected_cost,
}


def chosen_recipe(cases: DecisionCases, rng: np.random.Generator) -> str:
    """The simplest within one standard error of the paired difference to the best, cross-validated (rule S6.8)."""
    fold = stratified_folds(cases.classes, FOLDS, rng)
    loss = np.empty((len(RECIPES), len(fold)))
    complexity = np.zeros((len(RECIPES), FOLDS))
    for one in range(FOLDS):
        rest, held = cases.rows(fold != one), cases.rows(fold == one)
        for place, recipe in enumerate(RECIPES.values()):
            family = recipe(rest)
            status = family.decide(held.signals, held.can_ask, np.array([family.tuned]))
            loss[place, fold == one] = metrics.cell_costs()[counted(held, status)[0]]
            complexity[place, one] = family.complexity
    best = int(np.argmin(loss.mean(axis=1)))
    apart = loss - loss[best]
    error = apart.std(axis=1, ddof=1) / sqrt(len(fold))
    near = np.flatnonzero(apart.mean(axis=1) <= error + 1e-12)
    # Of equally simple ones that of least cost.
    order = np.lexsort((loss.mean(axis=1)[near], complexity.mean(axis=1)[near]))
    return list(RECIPES)[int(near[order[0]])]


# Promises -------------------------------------------------------------------------------------------------------------


def certified(family: Family, pilot: DecisionCases, held_out: DecisionCases, alpha: float) -> float | None:
    """Number that a certificate takes: ordered on one part, tested in that order on the other."""
    alphas = np.array([alpha])
    seen = rates(pilot, family, family.values)
    order = pilot_order(seen, alphas, DELTA, len(held_out.classes) / len(pilot.classes))
    passed = fixed_sequence(rates(held_out, family, family.values[order]).p(alphas)[:, 0], DELTA)
    if not passed.any():
        return None
    return float(family.values[order][passed][np.argmax(seen.gain[order][passed])])


def observed(family: Family, cases: DecisionCases, alpha: float) -> float | None:
    """Number with the most right answers whose observed risk is at most alpha."""
    seen = rates(cases, family, family.values)
    keeps = (seen.n[:, 0] > 0) & (seen.k[:, 0] <= alpha * seen.n[:, 0])
    return float(family.values[keeps][np.argmax(seen.gain[keeps])]) if keeps.any() else None


def promises(
    tune: DecisionCases, certify: DecisionCases, alpha: float, chosen: str
) -> Iterator[tuple[Family, float | None]]:
    """What each way promises: its family, and the number it takes."""
    ratio = by_expected_cost(tune)
    own = ratio if chosen == "expected cost" else RECIPES[chosen](tune)
    yield own, observed(own, tune, alpha)
    yield own, certified(own, tune, tune, alpha)
    yield own, certified(own, tune, certify, alpha)
    yield ratio, certified(ratio, tune, certify, alpha)


WAYS = (
    "chosen recipe, observed risk on tune at most alpha",
    "chosen recipe, certified on the cases it was fitted on (refused by `certify`)",
    "**chosen recipe, certified**",
    "**expected cost, one ratio, certified**",
)


class Simulated(NamedTuple):
    """Shares of the repeats by way: with a promise, with a broken one; mean true coverage. won: repeats by recipe."""

    given: Floats
    broken: Floats
    coverage: Floats
    won: Mapping[str, int]


def simulated(setting: Setting, repeats: int, seed: int) -> Simulated:
    """Repeats of one setting, each with cases of its own."""
    totals, won = np.zeros((3, len(WAYS))), dict.fromkeys(RECIPES, 0)
    for rng in np.random.default_rng(seed).spawn(repeats):
        tune, certify = (drawn(setting.of, setting.n, rng) for _ in range(2))
        chosen = chosen_recipe(tune, rng)
        won[chosen] += 1
        for way, (family, value) in enumerate(promises(tune, certify, setting.alpha, chosen)):
            if value is not None:
                status = family.decide(setting.of.signals, setting.of.can_ask, np.array([value]))[0]
                risk, coverage = true_risk(setting.of, status)
                totals[:, way] += coverage > 0.0, risk > setting.alpha, coverage
    return Simulated(*(totals / repeats), won)


def main() -> None:
    """Simulate and print, setting by setting."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=1_000)
    options.add_argument("--setting", type=int, action="append", help="number from 0; repeat; all where not given")
    given = options.parse_args()
    most = DELTA + 3.0 * sqrt(DELTA * (1.0 - DELTA) / given.repeats)
    print(f"| {given.repeats:,} repeats | promise | given | broken; ✗: above {most:.3f} | mean true coverage |")
    print("|---|---|---|---|---|")
    for seed, (title, setting) in enumerate(settings().items()):
        if given.setting and seed not in given.setting:
            continue
        start = process_time()
        found = simulated(setting, given.repeats, seed)
        for way, name in enumerate(WAYS):
            broken = f"{found.broken[way]:.3f}{' ✗' * int(found.broken[way] > most)}"
            row = (title * (way == 0), name, f"{found.given[way]:.3f}", broken, f"{found.coverage[way]:.3f}")
            print("| " + " | ".join(row) + " |")
        won = ", ".join(f"{name} {times}" for name, times in found.won.items() if times)
        took = (process_time() - start) / given.repeats
        print(f"| | chosen: {won}; {took:.2f} s a repeat | | | |", flush=True)


if __name__ == "__main__":
    main()
