r"""How much `certify_best` answers beside a plain learn-then-test on one probability.

Markdown tables.

    python experiments/certified_coverage.py
        broker=out/broker/trace.parquet:datasets/broker/policy.yaml \ mtrag=out/mtrag.parquet
        squad=out/squad.parquet --most 1500

A set is name=trace or name=trace:policy; of more than --most cases so many are drawn, once, label
by label. Deal number n is drawn with seed n, label by label: two fifths of the cases to tune on
(the pilot), two fifths to certify on, one fifth to report on. Both ways share the deal and the
decision by expected cost that is fitted on its pilot:

- learn-then-test: answer where the model's P(right) is at least one threshold, refuse else. The
  levels of the cases to certify on are tested from the safest that could pass down
  (`raglab.certify.certify`), or from the level of the pilot's least cross-fitted p-value down
  (`pilot start`); exact binomial; the last that passes answers most.
- `certify_best` over the family of the fitted decision, its one cost ratio: of those that pass the
  cheapest on the pilot. Its costs are the default ones (1 - pass rate), or `coverage`: not to
  answer costs 1, all else nothing.

Coverage and errors are those of the report part, 0 where nothing is certified. Deals share cases,
so the standard error over deals is too small for what another set of questions would give.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tuners import limit_depth

from raglab import Policy, Trace, certify_best, decide, fit_decision, metrics, sweep
from raglab.certify import certify
from raglab.lab.decision_fitting import (
    FOLDS,
    DecisionCases,
    decision_cases,
    fit_model,
    stratified_folds,
)
from raglab.metrics import binomial_p
from raglab.values import label_codes

DELTA = 0.1
TARGETS = (0.1, 0.2, 0.3, 0.4)
PARTS = ("tune", "tune", "certify", "certify", "report")  # fifths of the cases
NO_ANSWER: metrics.Costs = {
    label: {"answered_right": 0.0, "answered_wrong": 0.0, "refused": 1.0, "asked": 1.0}
    for label in metrics.LABELS
}
WAYS = (
    "learn-then-test",
    "learn-then-test, pilot start",
    "certify_best",
    "certify_best, costs of coverage",
)


class Outcome(NamedTuple):
    """What a way answers of the report part: cases, wrong ones, coverage.

    Whether anything was certified.
    """

    answered: int
    wrong: int
    coverage: float
    certified: bool


def dealt(trace: Trace, seed: int) -> Trace:
    """Cases with splits, dealt label by label."""
    fold = stratified_folds(
        label_codes(trace.cases).astype(np.int64), len(PARTS), np.random.default_rng(seed)
    )
    cases = tuple(
        case._replace(split=PARTS[at]) for case, at in zip(trace.cases, fold, strict=True)
    )
    return dataclasses.replace(trace, cases=cases)


class Scored(NamedTuple):
    """P(right) of the cases of a part, [Q], and whether an answer would be right, [Q]."""

    p: NDArray[np.float64]
    right: NDArray[np.bool_]


def scored(trace: Trace, fitted: Policy) -> Scored:
    """Cases by the fitted model."""
    evidence = decide(trace, fitted).tables.evidence
    return Scored(evidence.probability[0, 0], decision_cases(evidence).classes == 0)


def cross_fitted(trace: Trace, fitted: Policy) -> Scored:
    """Cases of the pilot by models of the same signals that never saw them."""
    cases: DecisionCases = decision_cases(decide(trace, fitted).tables.evidence)
    names = tuple(fitted.decision.model.parts) if fitted.decision.model else ()
    fold = stratified_folds(cases.classes, FOLDS, np.random.default_rng(0))
    p = np.empty(len(fold))
    for held in range(FOLDS):
        model = fit_model(cases.rows(fold != held), names=names)
        p[fold == held] = model.probabilities(cases.rows(fold == held).signals)[0]
    return Scored(p, cases.classes == 0)


def pilot_start(pilot: Scored, alpha: float) -> float:
    """Level of the least p-value on the pilot, the lowest of equals."""
    curve = metrics.risk_coverage(pilot.right, pilot.p)
    p = np.asarray(binomial_p(curve.k, curve.n, alpha))
    return float(curve.at[np.flatnonzero(p == p.min())[-1]])


def learn_then_test(parts: dict[str, Scored], alpha: float, start: float | None) -> Outcome:
    """One threshold on P(right)."""
    certificate = certify(
        parts["certify"].right, parts["certify"].p, alpha=alpha, delta=DELTA, start=start
    )
    report = parts["report"]
    answers = report.p >= (np.inf if certificate.threshold is None else certificate.threshold)
    wrong = int((answers & ~report.right).sum())
    return Outcome(
        int(answers.sum()), wrong, float(answers.mean()), certificate.threshold is not None
    )


def by_ratio(trace: Trace, fitted: Policy, alpha: float, costs: metrics.Costs | None) -> Outcome:
    """The cheapest ratio that passes."""
    certification = certify_best(
        trace, fitted, targets={"hallucination_rate": alpha}, costs=costs, delta=DELTA
    )
    if certification.policy is None:
        return Outcome(0, 0, 0.0, certified=False)
    rates = sweep(trace.split("report"), [certification.policy]).iloc[0]
    answered, wrong = (int(rates[f"hallucination_rate_{part}"]) for part in ("n", "k"))
    return Outcome(answered, wrong, float(rates["coverage"]), certified=True)


def outcomes(
    trace: Trace, policy: Policy, seed: int, targets: Sequence[float]
) -> Iterator[list[Outcome]]:
    """What each way gives for each target on one deal."""
    deal = dealt(trace, seed)
    fitted = fit_decision(deal, policy)
    parts = {name: scored(deal.split(name), fitted) for name in ("certify", "report")}
    pilot = cross_fitted(deal.split("tune"), fitted)
    for alpha in targets:
        yield [
            learn_then_test(parts, alpha, None),
            learn_then_test(parts, alpha, pilot_start(pilot, alpha)),
            by_ratio(deal, fitted, alpha, None),
            by_ratio(deal, fitted, alpha, NO_ANSWER),
        ]


def difference(coverage: NDArray[np.float64], way: int, beside: int) -> str:
    """Mean difference of coverage over deals with its standard error.

    ✗ where it is below −.02 by two of them.
    """
    apart = coverage[:, way] - coverage[:, beside]
    error = float(apart.std(ddof=1)) / sqrt(len(apart))
    return f"{apart.mean():+.3f} ± {error:.3f}{' ✗' * int(apart.mean() + 2.0 * error < -0.02)}"


def measure(name: str, trace: Trace, policy: Policy, deals: int, targets: Sequence[float]) -> None:
    """Print the rows of a set."""
    start = process_time()
    outcomes_by_deal = [list(outcomes(trace, policy, seed, targets)) for seed in range(deals)]
    took = (process_time() - start) / deals
    for place, alpha in enumerate(targets):
        rows = [deal[place] for deal in outcomes_by_deal]
        coverage = np.array([[way.coverage for way in row] for row in rows])
        cells = []
        for way in range(len(WAYS)):
            wrong, answered = (
                sum(getattr(row[way], of) for row in rows) for of in ("wrong", "answered")
            )
            risk = f", errs {wrong / answered:.3f}" if answered else ""
            n_certified = sum(row[way].certified for row in rows)
            cells.append(f"{coverage[:, way].mean():.3f} ({n_certified}/{deals}{risk})")
        cells += [difference(coverage, way, beside) for way in (2, 3) for beside in (0, 1)]
        head = f"{name}, {len(trace)} cases, {took:.1f} s a deal" if not place else ""
        print(f"| {head} | {alpha:g} | {' | '.join(cells)} |", flush=True)


def drawn(trace: Trace, most: int) -> Trace:
    """At most so many cases, label by label, the same each time."""
    if len(trace) <= most:
        return trace
    parts = -(-len(trace) // most)
    fold = stratified_folds(
        label_codes(trace.cases).astype(np.int64), parts, np.random.default_rng(0)
    )
    return trace.subset(np.flatnonzero(fold == 0))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets", nargs="+", help="name=trace.parquet or name=trace.parquet:policy.yaml"
    )
    parser.add_argument("--deals", type=int, default=20)
    parser.add_argument("--most", type=int, default=1_500, help="cases of a set")
    parser.add_argument("--targets", type=float, nargs="+", default=TARGETS)
    options = parser.parse_args()
    print(
        f"| set | hallucination rate ≤ | {' | '.join(WAYS)} | certify_best − learn-then-test | − "
        "pilot start | "
        "costs of coverage − learn-then-test | − pilot start |"
    )
    print("|---" * (len(WAYS) + 6) + "|")
    for text in options.sets:
        name, _, rest = text.partition("=")
        path, _, policy = rest.partition(":")
        trace = drawn(Trace.load(Path(path)), options.most)
        measure(
            name,
            trace,
            limit_depth(Policy.load(policy or None), trace),
            options.deals,
            options.targets,
        )


if __name__ == "__main__":
    main()
