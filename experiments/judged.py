"""A judge and a few people: coverage of the intervals and labels saved.

Markdown tables.

    python -m experiments.judged --repeats 2000            the tables, in about an hour on one core
    python -m experiments.judged --repeats 20              the same path in a minute

5,000 requests, of which 30 % are hard: their error rate is five times that of the others. The judge
sees a share of the errors (sensitivity) and clears a share of the rest (specificity). People label
n requests, drawn evenly, or half of them from the hard ones. The truth is the rate of the 5,000.
Every row is of draws from the same requests, so a standard error of a coverage near 95 % is .5
points at 2,000 repeats.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.monitoring.judge_intervals import difference_row, human_interval
from raglab.extensions.monitoring.judged_requests import JudgedRequests, rate_parts
from raglab.values import Status

REQUESTS, HARD, ANSWERED, ANSWERABLE = 5_000, 0.3, 0.9, 0.8
ERRORS, LABELS = (0.01, 0.05, 0.2), (30, 100, 300)


class Judge(NamedTuple):
    """Sensitivity and specificity of a judge, of easy and of hard requests."""

    name: str
    sensitivity: tuple[float, float]
    specificity: tuple[float, float]


JUDGES = (
    Judge("good, .95/.98", (0.95, 0.95), (0.98, 0.98)),
    Judge("fair, .8/.9", (0.8, 0.8), (0.9, 0.9)),
    Judge("useless, .5/.5", (0.5, 0.5), (0.5, 0.5)),
    Judge("lenient, .3/.99", (0.3, 0.3), (0.99, 0.99)),
    Judge("strict, 1/.8", (1.0, 1.0), (0.8, 0.8)),
    Judge("poor where hard, .95/.99 and .5/.8", (0.95, 0.5), (0.99, 0.8)),
)


def hard_requests(rng: np.random.Generator, size: int) -> NDArray[np.bool_]:
    """Whether each request is hard."""
    return rng.random(size) < HARD


def errors(rng: np.random.Generator, hard: NDArray[np.bool_], rate: float) -> NDArray[np.bool_]:
    """Errors at a rate, five times as frequent among hard requests."""
    easy = rate / (1.0 + 4.0 * HARD)
    return rng.random(len(hard)) < np.where(hard, np.minimum(5.0 * easy, 1.0), easy)


def stated(
    rng: np.random.Generator, truth: NDArray[np.bool_], hard: NDArray[np.bool_], judge: Judge
) -> NDArray[np.bool_]:
    """What a judge states of a truth."""
    sensitivity, specificity = (
        np.where(hard, *of[::-1]) for of in (judge.sensitivity, judge.specificity)
    )
    return np.where(truth, rng.random(len(hard)) < sensitivity, rng.random(len(hard)) > specificity)


def requests(rng: np.random.Generator, rate: str, error: float, judge: Judge) -> JudgedRequests:
    """Requests that people have labelled all of."""
    hard = hard_requests(rng, REQUESTS)
    if rate == "hallucination_rate":
        status = np.where(rng.random(REQUESTS) < ANSWERED, Status.ok, Status.refuse)
        wrong = errors(rng, hard, error)
    else:  # what is not answerable is refused in four of five
        wrong = rng.random(REQUESTS) > ANSWERABLE
        refused = np.where(wrong, rng.random(REQUESTS) < ANSWERABLE, errors(rng, hard, error))
        status = np.where(refused, Status.refuse, Status.ok)
    human, machine = (
        2 * np.where(of, Status.refuse, Status.ok) + 1
        for of in (wrong, stated(rng, wrong, hard, judge))
    )
    every = np.ones(REQUESTS, dtype=bool)
    return JudgedRequests(
        status, machine, human, every, np.full(REQUESTS, np.nan), hard.astype(np.int64)
    )


def drawn(
    rng: np.random.Generator, hard: NDArray[np.int64], n: int, *, is_even: bool
) -> NDArray[np.bool_]:
    """Who is drawn for people: n of all, or half of them from the hard ones."""
    parts = ((np.arange(REQUESTS), n),)
    if not is_even:
        parts = ((np.flatnonzero(hard == 0), n - n // 2), (np.flatnonzero(hard == 1), n // 2))
    chosen = np.zeros(REQUESTS, dtype=bool)
    for rows, size in parts:
        chosen[rng.choice(rows, size, replace=False)] = True
    return chosen


class Coverage(NamedTuple):
    """Shares of the draws: refused, missed of all, covered of the shown, people alone covered.

    Width; labels saved.
    """

    refused: float
    missed: float
    covered: float
    alone: float
    width: float
    saved: float


def coverages(rate: str, error: float, n: int, *, is_even: bool, repeats: int) -> list[Coverage]:
    """Coverage of a rate's interval with each judge, over the same draws from the same requests."""
    everything = [
        requests(np.random.default_rng([n, int(1000 * error)]), rate, error, judge)
        for judge in JUDGES
    ]
    every_part = [rate_parts(each, rate) for each in everything]
    truth = every_part[0].k.sum() / every_part[0].n.sum()
    rng = np.random.default_rng([n, int(1000 * error), is_even])
    strata = everything[0].stratum * (not is_even)
    rows: list[list[tuple[float, ...]]] = [[] for _ in JUDGES]
    for _ in range(repeats):
        chosen = drawn(rng, everything[0].stratum, n, is_even=is_even)
        alone: tuple[float, float] | None = None
        for place, (each, part) in enumerate(zip(everything, every_part, strict=True)):
            known = each._replace(
                human=np.where(chosen, each.human, -1), drawn=chosen, stratum=strata
            )
            parts = part._replace(k=part.k * chosen, n=part.n * chosen)
            alone = human_interval(known, parts, 0.95)[1] if alone is None else alone
            row = difference_row(known, parts, "", 0.95)
            width = (row["high"] - row["low"]) / (alone[1] - alone[0])
            is_covered, is_alone = row["low"] <= truth <= row["high"], alone[0] <= truth <= alone[1]
            rows[place].append(
                (np.isnan(row["low"]), is_covered, is_alone, width, row["labels_saved"])
            )
    return [judge_coverage(np.array(of, dtype=np.float64)) for of in rows]


def judge_coverage(rows: NDArray[np.float64]) -> Coverage:
    """Coverage of the draws of a judge.

    Refused, covered, people alone covered, width, labels saved, [R, 5].
    """
    refused, covered, alone, width, saved = rows.T
    is_shown = refused == 0.0
    if not is_shown.any():
        return Coverage(1.0, 0.0, float("nan"), alone.mean(), float("nan"), float("nan"))
    shown = (
        covered[is_shown].mean(),
        alone.mean(),
        width[is_shown].mean(),
        float(np.median(saved[is_shown])),
    )
    return Coverage(refused.mean(), float((is_shown & (covered == 0.0)).mean()), *shown)


def coverage_rows(rate: str, repeats: int) -> Iterator[str]:
    """Table of the coverage."""
    yield f"\n{rate}, {repeats:,} draws\n"
    yield (
        "| rate | n | draw | judge | refused | missed, of all | covered, of shown | people alone "
        "| width | saved |"
    )
    yield "|---:|---:|---|---|---:|---:|---:|---:|---:|---:|"
    for error in ERRORS:
        for n in LABELS:
            for is_even in (True, False):
                results = coverages(rate, error, n, is_even=is_even, repeats=repeats)
                for judge, of in zip(JUDGES, results, strict=True):
                    shown = [f"{value:.3f}" for value in of[:4]] + [
                        f"{of.width:.2f}",
                        f"{of.saved:.0f}",
                    ]
                    cells = [
                        f"{error:.0%}",
                        str(n),
                        "even" if is_even else "half hard",
                        judge.name,
                        *shown,
                    ]
                    yield "| " + " | ".join(cells).replace("nan", "–") + " |"


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2_000)
    parser.add_argument("--only", choices=["hallucination", "false_refusal"])
    arguments = parser.parse_args()
    tables = {
        "hallucination": lambda: coverage_rows("hallucination_rate", arguments.repeats),
        "false_refusal": lambda: coverage_rows("false_refusal_rate", arguments.repeats),
    }
    for name, rows in tables.items():
        if arguments.only in {None, name}:
            for row in rows():
                print(row, flush=True)


if __name__ == "__main__":
    main()
