"""Thresholds by tenant: what common, separate and partially pooled decisions cost on fresh cases.

A Markdown table.

A world has twelve tenants. Two signals give the logits of the four classes, alike for all; each
tenant adds an intercept to every class, drawn from a normal distribution with the standard
deviation of the row. In every replication each tenant has n labelled cases. Three decisions by
expected cost are fitted on them: `common` knows no tenant, `separate` is fitted on the cases of one
tenant alone (and is the common one where that holds too few cases of a kind), `pooled` is the
common one with a bias for each tenant (rule S2.20). Each is judged on 1,000 fresh cases of every
tenant by its true expected cost, which the world knows, so that no label is drawn.

    python experiments/groups.py --repeats 200
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.gating.expected_cost import CLASSES, action_costs, expected_costs, least_cost
from raglab.lab.decision_fitting import LEAST, DecisionCases, FittedModel, fit_model
from raglab.lab.group_fitting import CaseGroups, log_softmax
from raglab.metrics.intervals import mean_interval
from raglab.signals import NAMES

Floats = NDArray[np.float64]
TENANTS = 12
SIZES = (30, 100, 300)
SPREADS = (0.0, 0.5, 1.5)
FRESH = 1_000  # cases of a tenant that a decision is judged on
SIGNALS = ("confidence", "words")
# Logit of each class by signal: an answer is right where confidence is high; long questions are
# ambiguous.
WEIGHTS = np.array([[1.2, 0.0], [0.0, 0.2], [-1.0, 0.0], [-0.4, 0.8]])
BIAS = np.array([0.8, -0.7, 0.0, -1.0])
ASKED_RIGHT = 0.85  # chance that the options of an ambiguous case hold what it expects
STRENGTH = (0.3,)  # of the penalty, one for all, so that 200 replications end
COSTS = action_costs(
    metrics.cost_matrix({"refuse": {"answered_wrong": 2.0}, "ok": {"answered_wrong": 2.0}})
)


class Tenants(NamedTuple):
    """Cases of tenants. signals: standard normal, [T, n, 2].

    Chances: true ones of the classes, [T, n, 4].
    """

    signals: Floats
    chances: Floats


def draw(intercepts: Floats, n: int, rng: np.random.Generator) -> Tenants:
    """Cases of tenants with these intercepts, [T, 4]."""
    signals = rng.normal(size=(len(intercepts), n, len(SIGNALS)))
    return Tenants(signals, np.exp(log_softmax(signals @ WEIGHTS.T + BIAS + intercepts[:, None])))


def labelled(tenants: Tenants, rng: np.random.Generator) -> DecisionCases:
    """The cases with a class each, drawn by their chances, and their tenants."""
    x = tenants.signals.reshape(-1, len(SIGNALS))
    cumulated = tenants.chances.reshape(-1, len(CLASSES)).cumsum(axis=1)
    classes = (rng.random(len(x))[:, None] > cumulated[:, :-1]).sum(axis=1)
    signals = np.full((len(NAMES), len(x)), np.nan)
    signals[[NAMES.index(name) for name in SIGNALS]] = x.T
    names = np.repeat([f"t{number:02d}" for number in range(TENANTS)], tenants.signals.shape[1])
    can_ask, right = np.ones(len(x), dtype=bool), rng.random(len(x)) < ASKED_RIGHT
    return DecisionCases(signals, classes, can_ask, right, groups=CaseGroups("tenant", names))


def true_cost(chances: Floats, fitted: Floats) -> float:
    """Mean true cost of the actions that fitted chances choose, [..., 4] each."""
    chosen = least_cost(
        *expected_costs(np.moveaxis(fitted, -1, 0), ASKED_RIGHT, COSTS), can_ask=True
    )
    # answer, refuse, ask
    costs = np.stack(expected_costs(np.moveaxis(chances, -1, 0), ASKED_RIGHT, COSTS))
    return float(np.take_along_axis(costs, chosen[None].astype(np.int64), axis=0).mean())


def chances_by(model: FittedModel, signals: Floats, bias: Floats | float = 0.0) -> Floats:
    """Chances of the classes by a model with a bias on top, [n, 4]."""
    rows = np.full((len(NAMES), len(signals)), np.nan)
    rows[[NAMES.index(name) for name in SIGNALS]] = signals.T
    return np.exp(log_softmax(np.log(model.probabilities(rows).T) + bias))


class Replication(NamedTuple):
    """Costs of the three decisions and of the true chances; own fits of tenants.

    Whether pooling found a difference.
    """

    common: float
    separate: float
    pooled: float
    best: float
    own: int
    differs: bool


def replicate(n: int, spread: float, seed: int) -> Replication:
    """One replication of a world."""
    rng = np.random.default_rng([n, round(10 * spread), seed])
    intercepts = (
        rng.normal(0.0, spread, (TENANTS, len(CLASSES)))
        if spread
        else np.zeros((TENANTS, len(CLASSES)))
    )
    cases = labelled(draw(intercepts, n, rng), rng)
    fresh = draw(intercepts, FRESH, rng)
    common = fit_model(cases, seed=seed, strengths=STRENGTH)
    fitted: dict[str, list[Floats]] = {"common": [], "separate": [], "pooled": []}
    own_fits = 0
    biases = {} if common.groups is None else common.groups.bias
    for tenant, signals in enumerate(fresh.signals):
        alone = cases.rows(np.arange(n * tenant, n * (tenant + 1)))._replace(groups=None)
        right = int((alone.classes == 0).sum())
        is_fitted = min(right, n - right) >= LEAST
        own_fits += is_fitted
        separate = fit_model(alone, seed=seed, strengths=STRENGTH) if is_fitted else common
        fitted["common"].append(chances_by(common, signals))
        fitted["separate"].append(chances_by(separate, signals))
        fitted["pooled"].append(chances_by(common, signals, biases.get(f"t{tenant:02d}", 0.0)))
    costs = {name: true_cost(fresh.chances, np.stack(rows)) for name, rows in fitted.items()}
    best = true_cost(fresh.chances, fresh.chances)
    return Replication(**costs, best=best, own=own_fits, differs=bool(biases))


def interval(differences: Floats) -> str:
    """Mean of paired differences with its 95 % interval."""
    low, high = mean_interval(differences, 0.95)
    return f"{differences.mean():+.4f} [{float(low):+.4f}, {float(high):+.4f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    heads = (
        "labels a tenant",
        "sd of intercepts",
        "common",
        "separate",
        "pooled",
        "best possible",
        "pooled − common",
    )
    print(f"| {' | '.join((*heads, 'pooled − separate', 'pooling differs', 'own fits'))} |")
    print("|---:|---:|---:|---:|---:|---:|---|---|---:|---:|")
    for n in SIZES:
        for spread in SPREADS:
            rows = np.array(
                [replicate(n, spread, seed) for seed in range(repeats)], dtype=np.float64
            )
            common, separate, pooled, best, own, differs = rows.T
            means = " | ".join(f"{cost.mean():.4f}" for cost in (common, separate, pooled, best))
            paired = f"{interval(pooled - common)} | {interval(pooled - separate)}"
            print(
                f"| {n} | {spread:g} | {means} | {paired} | {differs.mean():.0%} | "
                f"{own.mean():.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
