"""Whether promises hold when the policy was fitted, selected, ordered and certified.

Markdown tables.

A world is a table of what a system may measure of a question (four signals on grids, whether there
are two options), how likely each row is, and the chances of the four classes there, which no
logistic fits exactly; so the true hallucination rate of any policy is a sum over its rows. In every
repeat as many cases are drawn to tune on as to certify on. On the first a decision by expected cost
is fitted (penalty and calibration by its own folds), a policy is selected by rule S6.8 from
cross-fitted losses, and the candidates are ordered by cross-fitted p-values and costs (rule S6.10);
on the second they are certified.

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
from raglab.gating.expected_cost import OUTCOME_CLASSES, action_costs, expected_costs, least_cost
from raglab.lab.certification import pilot_order
from raglab.lab.certification_counts import RISK, RateCounts, counted_losses
from raglab.lab.decision_fitting import DecisionCases, fit_model, stratified_folds
from raglab.metrics import DISTINCT_CELL
from raglab.signals import NAMES, signal
from raglab.values import Status

Floats = NDArray[np.float64]
DELTA = 0.1
FOLDS = 5  # of the cross-fitted losses; once, where a study has more folds and repeats
# cases of a label that occurs, below which the threshold competes instead of the expected cost
FEW = 10
DEFAULT = 40.0  # confidence from which the default policy answers
STRENGTHS = (0.1, 1.0)  # of the penalty; half of those of a fit
LABEL_OF_CLASS = np.array([Status.ok, Status.ok, Status.refuse, Status.ambiguous], dtype=np.int64)
COSTS = metrics.cost_matrix()
OPTIONS_RIGHT = 0.85  # chance that the options of an ambiguous case hold what it expects


# Worlds
# ----------------------------------------------------------------------------------------------


class World(NamedTuple):
    """Where cases come from: rows of what may be measured.

    signals: in the order of `signals.NAMES`, [S, R]. can_ask: whether there are two options, [R].
    chance: how likely each row is, [R]. classes: chance of each class there, [4, R].
    """

    signals: Floats
    can_ask: NDArray[np.bool_]
    chance: Floats
    classes: Floats


def world(
    right: Callable[..., Floats], refuse: Callable[..., Floats], ambiguous: Callable[..., Floats]
) -> World:
    """World by the chance that a case is right, and odds of refusing and asking among the others.

    Args:
      right, refuse, ambiguous: of confidence and cosine, in [0, 1], gaps, 0 to 3, and words, 3 to
        15; [R].
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
    likely *= np.array([0.5, 0.25, 0.15, 0.1])[gaps.astype(np.int64)] * np.where(
        can_ask > 0.0, 0.8, 0.2
    )
    signals = np.full((len(NAMES), rows.shape[1]), np.nan)
    signals[[NAMES.index(name) for name in grids]] = rows[:4]
    known = (confidence, cosine, gaps, words)
    p, to_refuse, to_ask = right(*known), refuse(*known), ambiguous(*known)
    odds = np.stack([np.ones(len(p)), to_refuse, to_ask])
    classes = np.concatenate([p[None], (1.0 - p) * odds / odds.sum(axis=0)])
    return World(signals, can_ask > 0.0, likely / likely.sum(), classes)


def _strong(confidence: Floats, cosine: Floats, gaps: Floats, words: Floats) -> Floats:
    """Both scores count, one only where nothing is left out: no logistic has that product."""
    return expit(
        6.0 * (confidence - 0.3)
        + 3.0 * (cosine - 0.5) * (gaps == 0)
        - 2.0 * gaps
        + 0.05 * (words - 9.0)
    )


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
    strong, faint = world(_strong, *odds), world(_faint, *odds)
    return {
        "30 %, 150 + 150": Setting(strong, 0.30, 150),
        "20 %, 300 + 300": Setting(strong, 0.20, 300),
        "faint signals: 40 %, 150 + 150": Setting(faint, 0.40, 150),
        "flat risk of 31 %: 30 %, 150 + 150": Setting(
            world(partial(_constant, 0.69), *odds), 0.30, 150
        ),
    }


def drawn(of: World, n: int, rng: np.random.Generator) -> DecisionCases:
    """Cases of a world."""
    row = rng.choice(of.chance.size, n, p=of.chance)
    classes = (rng.random(n) > of.classes[:, row].cumsum(axis=0)).sum(axis=0)
    classes = np.minimum(classes, len(OUTCOME_CLASSES) - 1)  # a sum of chances may end just below 1
    return DecisionCases(
        of.signals[:, row], classes, of.can_ask[row], rng.random(n) < OPTIONS_RIGHT
    )


def true_risk(of: World, status: NDArray[np.int8]) -> tuple[float, float]:
    """Hallucination rate and coverage of what is decided so on each row, exactly."""
    answered = np.where(status == Status.ok, of.chance, 0.0)
    coverage = float(answered.sum())
    return (float(answered @ (1.0 - of.classes[0])) / coverage if coverage else 0.0), coverage


# Recipes
# ----------------------------------------------------------------------------------------------


class Family(NamedTuple):
    """Policies that differ in one number, made on some cases.

    values: that number, [C]. tuned: the one that the recipe takes. decide: status of cases, [C, Q],
    of their signals, of whether there are two options, and of the numbers. actions: that its
    policies can take.
    """

    values: Floats
    tuned: float
    decide: Callable[[Floats, NDArray[np.bool_], Floats], NDArray[np.int8]]
    actions: tuple[Status, ...]


Recipe = Callable[[DecisionCases], Family]


def counted(cases: DecisionCases, status: NDArray[np.int8]) -> NDArray[np.int64]:
    """Cell of every case, [C, Q], where it is decided so, [C, Q]."""
    is_right = np.where(
        status == Status.ok, cases.classes == OUTCOME_CLASSES.index("right"), cases.options_right
    )
    return DISTINCT_CELL[
        status.astype(np.int64) * metrics.CELLS + LABEL_OF_CLASS[cases.classes] * 2 + is_right
    ]


def losses(cell: NDArray[np.int64]) -> RateCounts:
    """Answers, wrong ones and costs of policies, as certificates count them.

    Cell: of every case, [C, Q].
    """
    return counted_losses(
        np.stack([np.bincount(row, minlength=metrics.N_CELLS) for row in cell]), [RISK], None
    )


def rates(cases: DecisionCases, family: Family, values: Floats) -> RateCounts:
    """Losses of a family's policies."""
    return losses(counted(cases, family.decide(cases.signals, cases.can_ask, values)))


def fixed(status: Status, _: DecisionCases) -> Family:
    """One action whatever is measured."""

    def decide(signals: Floats, _: NDArray[np.bool_], values: Floats) -> NDArray[np.int8]:
        return np.full((len(values), signals.shape[1]), status, dtype=np.int8)

    return Family(np.zeros(1), 0.0, decide, (status,))


def gate(name: str, signals: Floats, values: Floats) -> NDArray[np.int8]:
    """Answer where a signal is sure enough, [C, Q]."""
    sign = 1.0 if signal(name).direction == "surer" else -1.0
    return np.where(
        sign * signals[NAMES.index(name)] >= values[:, None], Status.ok, Status.refuse
    ).astype(np.int8)


def default_policy(_: DecisionCases) -> Family:
    """One threshold that nobody tuned."""
    return Family(
        np.array([DEFAULT]),
        DEFAULT,
        lambda signals, _, values: gate("confidence", signals, values),
        ANSWER_OR_REFUSE,
    )


def threshold(name: str, cases: DecisionCases) -> Family:
    """Answer where one signal is sure enough, tuned for the least cost on these cases."""
    sign = 1.0 if signal(name).direction == "surer" else -1.0
    values = np.unique(sign * cases.signals[NAMES.index(name)])
    cost = metrics.cell_costs()[counted(cases, gate(name, cases.signals, values))].mean(axis=1)
    decide = partial(_gated, name)
    return Family(values, float(values[np.argmin(cost)]), decide, ANSWER_OR_REFUSE)


def _gated(name: str, signals: Floats, _: NDArray[np.bool_], values: Floats) -> NDArray[np.int8]:
    return gate(name, signals, values)


def best_threshold(cases: DecisionCases) -> Family:
    """The threshold, signal and value, of least cost on these cases."""
    families = [threshold(name, cases) for name in GATED]
    cost = [rates(cases, family, np.array([family.tuned])).cost[0] for family in families]
    return families[int(np.argmin(cost))]


def by_expected_cost(cases: DecisionCases) -> Family:
    """Least expected cost by a model fitted on these cases.

    The ratio at which each of them is no longer answered.
    """
    model = fit_model(cases, strengths=STRENGTHS)

    def actions(signals: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
        probability = model.probabilities(signals)
        costs = expected_costs(probability, model.asked_right, action_costs(COSTS, values[:, None]))
        return (
            costs[0],
            np.broadcast_to(costs[1], costs[0].shape),
            np.broadcast_to(costs[2], costs[0].shape),
        )

    def decide(signals: Floats, can_ask: NDArray[np.bool_], values: Floats) -> NDArray[np.int8]:
        return least_cost(*actions(signals, values), can_ask)

    answer, refused, ask_cost = (part[0] for part in actions(cases.signals, np.ones(1)))
    # The cost of a right answer is 0, so that of answering is proportional to the ratio. Just below
    # the breakpoint: the last bits of a quotient are not those of the product.
    dearest = np.where(cases.can_ask, np.minimum(refused, ask_cost), refused) / np.maximum(
        answer, 1e-12
    )
    values = np.unique(np.append(dearest * (1.0 - 1e-9), 1.0))
    return Family(values, 1.0, decide, tuple(Status))


GATED = ("confidence", "top1_cosine", "gaps")
ANSWER_OR_REFUSE = (Status.ok, Status.refuse)
FREE: Mapping[str, Recipe] = {
    "always-answer": partial(fixed, Status.ok),
    "always-refuse": partial(fixed, Status.refuse),
    "defaults": default_policy,
}
COMPETES: Mapping[str, Recipe] = {
    "expected cost": by_expected_cost,
    "one threshold": best_threshold,
}


class CrossFitted(NamedTuple):
    """A recipe carried out without each fold.

    Its family by fold, and the fold of every case, [Q].
    """

    families: tuple[Family, ...]
    fold: NDArray[np.int64]

    def cells(self, cases: DecisionCases, values: Floats | None = None) -> NDArray[np.int64]:
        """Cell of every case, [C, Q], decided by the family that never saw it.

        At its own tuned number without any.
        """
        out = np.empty((1 if values is None else len(values), len(self.fold)), dtype=np.int64)
        for held, family in enumerate(self.families):
            part = cases.rows(self.fold == held)
            tried = np.array([family.tuned]) if values is None else values
            out[:, self.fold == held] = counted(
                part, family.decide(part.signals, part.can_ask, tried)
            )
        return out


def cross_fitted(recipe: Recipe, cases: DecisionCases, rng: np.random.Generator) -> CrossFitted:
    """A recipe without each of `FOLDS` folds, stratified by class."""
    fold = stratified_folds(cases.classes, FOLDS, rng)
    return CrossFitted(tuple(recipe(cases.rows(fold != held)) for held in range(FOLDS)), fold)


def dearest(actions: tuple[Status, ...]) -> float:
    """Largest cost over labels and outcomes of some actions."""
    named = {Status.ok: "answered", Status.refuse: "refused", Status.ambiguous: "asked"}
    columns = [
        metrics.OUTCOMES.index(of)
        for action in actions
        for of in metrics.OUTCOMES
        if of.startswith(named[action])
    ]
    return float(COSTS[:, columns].max())


def selected(cases: DecisionCases, name: str, learned: CrossFitted) -> str:
    """The candidate if its mean saving over the best free policy is enough (rule S6.8).

    Enough is half a standard error above 0.

    One pseudo-case stands for the dearest case that may not have been drawn.

    Args:
      name: of the candidate.
      learned: it, cross-fitted.
    """
    cost = metrics.cell_costs()
    free = {free_name: recipe(cases) for free_name, recipe in FREE.items()}
    loss = {
        free_name: cost[
            counted(cases, family.decide(cases.signals, cases.can_ask, np.array([family.tuned])))[0]
        ]
        for free_name, family in free.items()
    }
    incumbent = min(loss, key=lambda free_name: loss[free_name].mean())
    pseudo = dearest(free[incumbent].actions) - dearest(learned.families[0].actions)
    saving = np.append(loss[incumbent] - cost[learned.cells(cases)[0]], pseudo)
    error = saving.std(ddof=1) / sqrt(len(saving))
    return name if saving.mean() > error / 2.0 else incumbent


# Promises
# ----------------------------------------------------------------------------------------------


def certified(
    family: Family, pilot: RateCounts, held_out: DecisionCases, size: float, alpha: float
) -> float | None:
    """Number that `certify_best` takes.

    Ordered on the pilot, tested in that order, of what passed the cheapest there.

    Args:
      pilot: losses of the family's values there.
      size: cases to certify on, over those of the pilot.
    """
    alphas = np.array([alpha])
    order = pilot_order(pilot, alphas, DELTA, size)
    if not len(order):  # none can certify anything at its expected number of answers
        return None
    passed = fixed_sequence(rates(held_out, family, family.values[order]).p(alphas)[:, 0], DELTA)
    return (
        float(family.values[order][passed][np.argmin(pilot.cost[order][passed])])
        if passed.any()
        else None
    )


def single(family: Family, held_out: DecisionCases, alpha: float) -> float | None:
    """The tuned number where `certify_policy` certifies it alone."""
    p = rates(held_out, family, np.array([family.tuned])).p(np.array([alpha]))[0, 0]
    return family.tuned if p <= DELTA else None


def observed(family: Family, cases: DecisionCases, alpha: float) -> float | None:
    """Number with the most right answers whose observed risk is at most alpha."""
    counts = rates(cases, family, family.values)
    n, k = counts.n[:, 0], counts.k[:, 0]
    keeps = (n > 0) & (k <= alpha * n)
    return float(family.values[keeps][np.argmax((n - k)[keeps])]) if keeps.any() else None


def promises(
    tune: DecisionCases, certify: DecisionCases, alpha: float, chosen: str, learned: CrossFitted
) -> Iterator[tuple[Family, float | None]]:
    """What each way promises: its family, and the number it takes.

    Args:
      chosen: name of the policy selected.
      learned: the expected cost, cross-fitted on the cases tuned on.
    """
    ratio, size = by_expected_cost(tune), len(certify.classes) / len(tune.classes)
    own = ratio if chosen == "expected cost" else ({**FREE, **COMPETES})[chosen](tune)
    in_sample, unseen = rates(tune, ratio, ratio.values), losses(learned.cells(tune, ratio.values))
    yield ratio, observed(ratio, tune, alpha)
    yield ratio, certified(ratio, in_sample, tune, 1.0, alpha)
    yield own, single(own, certify, alpha)
    yield ratio, certified(ratio, in_sample, certify, size, alpha)
    yield ratio, certified(ratio, unseen, certify, size, alpha)


WAYS = (
    "one ratio, observed risk on tune at most alpha",
    "one ratio, certified on the cases it was fitted on (refused by raglab)",
    "**selected policy, `certify_policy`**",
    "one ratio, order and costs in sample",
    "**one ratio, `certify_best`: order and costs cross-fitted**",
)


class Simulated(NamedTuple):
    """Shares of the repeats by way: with a promise, with a broken one; mean true coverage.

    Won: repeats by policy.
    """

    promised: Floats
    broken: Floats
    coverage: Floats
    won: Mapping[str, int]


def simulated(setting: Setting, repeats: int, seed: int) -> Simulated:
    """Repeats of one setting, each with cases of its own."""
    totals, won = np.zeros((3, len(WAYS))), dict.fromkeys([*FREE, *COMPETES], 0)
    for rng in np.random.default_rng(seed).spawn(repeats):
        tune, certify = (drawn(setting.of, setting.n, rng) for _ in range(2))
        learned = cross_fitted(by_expected_cost, tune, rng)
        labels = np.bincount(LABEL_OF_CLASS[tune.classes])
        few = bool((labels[labels > 0] < FEW).any())
        name = "one threshold" if few else "expected cost"
        chosen = selected(tune, name, cross_fitted(best_threshold, tune, rng) if few else learned)
        won[chosen] += 1
        for way, (family, value) in enumerate(
            promises(tune, certify, setting.alpha, chosen, learned)
        ):
            if value is not None:
                status = family.decide(setting.of.signals, setting.of.can_ask, np.array([value]))[0]
                risk, coverage = true_risk(setting.of, status)
                totals[:, way] += coverage > 0.0, risk > setting.alpha, coverage
    return Simulated(*(totals / repeats), won)


def main() -> None:
    """Simulate and print, setting by setting."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--repeats", type=int, default=1_000)
    options.add_argument(
        "--setting", type=int, action="append", help="number from 0; repeat; all where not given"
    )
    args = options.parse_args()
    most = DELTA + 3.0 * sqrt(DELTA * (1.0 - DELTA) / args.repeats)
    print(
        f"| {args.repeats:,} repeats | promise | given | broken; ✗: above {most:.3f} | mean true "
        "coverage |"
    )
    print("|---|---|---|---|---|")
    for seed, (title, setting) in enumerate(settings().items()):
        if args.setting and seed not in args.setting:
            continue
        start = process_time()
        simulation = simulated(setting, args.repeats, seed)
        for way, name in enumerate(WAYS):
            broken = f"{simulation.broken[way]:.3f}{' ✗' * int(simulation.broken[way] > most)}"
            promised, coverage = simulation.promised[way], simulation.coverage[way]
            row = (title * (way == 0), name, f"{promised:.3f}", broken, f"{coverage:.3f}")
            print("| " + " | ".join(row) + " |")
        won = ", ".join(f"{name} {times}" for name, times in simulation.won.items() if times)
        took = (process_time() - start) / args.repeats
        print(f"| | selected: {won}; {took:.2f} s a repeat | | | |", flush=True)


if __name__ == "__main__":
    main()
