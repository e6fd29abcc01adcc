"""Certificates under a traffic mix: how often they are broken at the boundary, and certified below.

A Markdown table. Labelled cases are drawn a label, as many as a size says; a policy answers them
wrong or right with chances that are scaled so that the hallucination rate under the true mix is
just above the target (a certificate is then broken) or two thirds of it. The mix is stated, or
estimated from a simple random sample of 300 requests or from 150 of each of two strata of 2,000.
Beside it: the product of exact bounds, a share each, and the exact binomial test of the labelled
cases as they are, which promises nothing of the mix.

    python experiments/mix_certificates.py --draws 1000
"""

from __future__ import annotations

import argparse
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.metrics import TrafficMix, binomial_p, clopper_pearson, upper_bound
from raglab.metrics.intervals import Stratum
from raglab.metrics.mix_tests import MixTest
from raglab.metrics.mixes import checked_mix, estimated_mix

Floats = NDArray[np.float64]
DELTA = 0.1
SIZES = ((55, 27, 28), (200, 100, 100), (400, 200, 200))
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95)
ALPHAS = (0.05, 0.1, 0.2)
# chance of a wrong and of a right answer by label, before the wrong ones are scaled
WRONG, RIGHT = np.array([0.05, 0.15, 0.30]), np.array([0.70, 0.0, 0.0])
CELLS = np.array([[0, 1], [2, 3], [4, 5]])  # answered wrong, answered right, by label
REFUSED = np.array([6, 8, 10])
COUNTED = np.isin(np.arange(metrics.N_CELLS), CELLS).astype(np.float64)
LOSS = COUNTED - (np.arange(metrics.N_CELLS) == CELLS[0, 1])


def chances(shares: Floats, rate: float) -> Floats:
    """Chances of a wrong answer by label at which the rate under the mix is so high."""
    right = float(shares @ RIGHT)
    wrong = rate / (1.0 - rate) * right
    return WRONG * (wrong / float(shares @ WRONG))


def drawn(size: tuple[int, ...], wrong: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Labelled cases by cell, [20]."""
    cells = np.zeros(metrics.N_CELLS, dtype=np.int64)
    for label, n in enumerate(size):
        of = wrong[label], RIGHT[label]
        bad, good, idle = rng.multinomial(n, [*of, 1.0 - sum(of)])
        cells[CELLS[label]] = bad, good
        cells[REFUSED[label]] = idle
    return cells


def simple(shares: Floats, rng: np.random.Generator) -> TrafficMix:
    """Mix estimated from a simple random sample of 300 requests."""
    counts = rng.multinomial(300, shares)
    return estimated_mix(
        (tuple(Stratum(300, 300, int(k)) for k in counts),),  # type: ignore[arg-type]
        DELTA / 2.0,
        is_finite=False,
    )


def stratified(shares: Floats, rng: np.random.Generator) -> TrafficMix:
    """Mix estimated from 150 requests of each of two strata, the second mostly not ok."""
    total = np.round(2_000 * shares).astype(np.int64)
    second = np.round(total * np.array([0.15, 0.7, 0.7])).astype(np.int64)
    strata = []
    for counts in (total - second, second):
        n, size = min(150, int(counts.sum())), int(counts.sum())
        hits = rng.multivariate_hypergeometric(counts, n)
        strata.append(tuple(Stratum(size, n, int(k)) for k in hits))
    return estimated_mix(tuple(strata), DELTA / 2.0, is_finite=True)  # type: ignore[arg-type]


def certified(cells: NDArray[np.int64], mix: TrafficMix, alpha: float) -> bool:
    """Whether the test of a certificate passes."""
    level = DELTA - mix.delta
    corners = mix.vertices(metrics.label_counts(cells))
    every = cells[None, None].astype(np.float64)
    return bool(MixTest(every, LOSS[None], COUNTED[None], corners, level).p(0, alpha)[0] <= level)


def by_bounds(cells: NDArray[np.int64], shares: Floats, alpha: float) -> bool:
    """Whether exact bounds of each share that matters keep the target together."""
    n, bad = metrics.label_counts(cells), cells[CELLS[:, 0]]
    each = DELTA / 4.0
    answered = int(cells[CELLS[0]].sum())
    least = shares[0] * float(clopper_pearson(answered, n[0], 1.0 - 2.0 * each).low)
    most = sum(shares[at] * float(upper_bound(bad[at], n[at], each)) for at in (1, 2))
    error = float(upper_bound(bad[0], answered, each)) if answered else 1.0
    return bool(least * error + most <= alpha * (least + most))


def main() -> None:
    """Simulate and print, cell by cell."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--draws", type=int, default=1_000)
    n = options.parse_args().draws
    most = DELTA + 3.0 * sqrt(DELTA * (1.0 - DELTA) / n)
    head = f"| {n:,} draws | alpha | ok | broken (allowed {most:.3f}): stated, sample, strata | "
    print(head + "certified: stated, sample, strata | product of exact bounds | test as sampled |")
    print("|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for size in SIZES:
        for alpha in ALPHAS:
            for ok in SHARES:
                shares = np.array([ok, (1.0 - ok) / 2.0, (1.0 - ok) / 2.0])
                passed = np.zeros((2, 5))
                for row, rate in enumerate((alpha * 1.001, alpha * 2.0 / 3.0)):
                    wrong = chances(shares, rate)
                    for _ in range(n):
                        cells = drawn(size, wrong, rng)
                        mixes = (
                            checked_mix(dict(zip(metrics.LABELS, shares.tolist(), strict=True))),
                            simple(shares, rng),
                            stratified(shares, rng),
                        )
                        k, of = int(cells @ LOSS), int(cells @ COUNTED)
                        passed[row] += (
                            *(certified(cells, mix, alpha) for mix in mixes if mix is not None),
                            by_bounds(cells, shares, alpha),
                            bool(binomial_p(k, of, alpha) <= DELTA),
                        )
                broken, below = passed / n
                mark = " ✗" if broken[:3].max() > most else ""
                row_text = (
                    "/".join(map(str, size)),
                    f"{alpha:g}",
                    f"{ok:g}",
                    ", ".join(f"{share:.3f}" for share in broken[:3]) + mark,
                    ", ".join(f"{share:.2f}" for share in below[:3]),
                    f"{below[3]:.2f}",
                    f"{below[4]:.2f}",
                )
                print("| " + " | ".join(row_text) + " |", flush=True)


if __name__ == "__main__":
    main()
