"""False promises of `certify_cascade` where a claim is just wrong, by simulation.

    .venv/bin/python -m experiments.cascade_levels [--repetitions 5000]

Six populations: the margin or the share is missed exactly, on questions drawn alike, drawn with two
inclusion probabilities, or decided by chance. The other claim holds, so that a false promise is one
of the claim that fails. The proof is in the docstrings of
`raglab.extensions.budgets.cascade_tests`.
"""

from __future__ import annotations

import argparse
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raglab.bandit import Table, certify_cascade

SIZE, MARGIN, MAX_SHARE, DELTA = 200, 0.05, 0.3, 0.1
KINDS = ALIKE, WEIGHTED, CHANCES = ("alike", "two weights", "chances")  # of questions
RARE = 1.0 / 3.0  # inclusion probability of half of the weighted questions; of the others 1


def false_promises(missed: str, kind: str, *, repetitions: int, seed: int) -> int:
    """Certificates among so many repetitions, all of them false.

    Args:
      missed: `margin` or `share`, the claim that is just wrong.
      kind: one of `KINDS`: of questions that are drawn alike, of which half are drawn with
        probability 1/3 of the others', or of which some call the dear arm with chance 1/2.
      repetitions: tables of 200 questions.
      seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    loss, gain, call = (0.08, 0.03, 0.15) if missed == "margin" else (0.02, 0.02, MAX_SHARE)
    shape, chance = (repetitions, SIZE), 0.5 if kind == CHANCES else 1.0
    is_rare = (rng.random(shape) < RARE / (1.0 + RARE)) & (kind == WEIGHTED)
    # both halves of the population together have the rates above
    tilt = np.where(is_rare, 1.5, 0.5) if kind == WEIGHTED else np.ones(shape)
    calls = chance * (rng.random(shape) < call * tilt / chance)
    place, share, is_open = rng.random(shape), 1.0 - call * tilt, calls < 1.0
    is_loss = is_open & (place < loss * tilt / share)
    is_gain = is_open & (place > 1.0 - gain * tilt / share)
    rows = zip(is_gain, is_loss, calls, strict=True)
    if kind == ALIKE:
        counts = [tuple(int(part.sum()) for part in row) for row in rows]
        return sum(
            _paired_bound(*row[:2]) <= MARGIN and _call_bound(row[2]) <= MAX_SHARE for row in counts
        )
    weights = np.where(is_rare, 1.0 / RARE, 1.0)
    return sum(
        bool((_bounds(*row, weight) <= (MARGIN, MAX_SHARE)).all())
        for row, weight in zip(
            rows, weights if kind == WEIGHTED else [None] * repetitions, strict=True
        )
    )


def _bounds(
    is_gain: NDArray[np.bool_],
    is_loss: NDArray[np.bool_],
    calls: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Bounds of both claims, [2]."""
    frame = pd.DataFrame({"cheap": 1.0 - is_loss, "dear": 1.0 - is_gain})
    certificate = certify_cascade(
        Table.from_frame(frame, order="given"),
        np.stack([1.0 - calls, calls], axis=1),
        reference="dear",
        margin=MARGIN,
        max_share=MAX_SHARE,
        delta=DELTA,
        weights=weights,
        max_weight=None if weights is None else 1.0 / RARE,
    )
    return certificate.claims["bound"].to_numpy()


@cache
def _paired_bound(gains: int, losses: int) -> float:
    """Bound of the shortfall, which reads these counts alone."""
    place, nothing = np.arange(SIZE), np.zeros(SIZE)
    is_loss = (place >= gains) & (place < gains + losses)
    return float(_bounds(place < gains, is_loss, nothing)[0])


@cache
def _call_bound(calls: int) -> float:
    """Bound of the calls, which reads their number alone."""
    nothing = np.zeros(SIZE, np.bool_)
    return float(_bounds(nothing, nothing, 1.0 * (np.arange(SIZE) < calls))[1])


def main() -> None:
    """Print a row a population."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5000)
    repetitions = parser.parse_args().repetitions
    error = np.sqrt(DELTA * (1.0 - DELTA) / repetitions)
    print(f"| missed | questions | false promises of {repetitions} | share | delta + 3 s.e. |")
    print("|---|---|---:|---:|---:|")
    for kind in KINDS:
        for seed, missed in enumerate(("margin", "share")):
            k = false_promises(missed, kind, repetitions=repetitions, seed=seed)
            share = f"{k / repetitions:.4f} | {DELTA + 3.0 * error:.4f}"
            print(f"| {missed} | {kind} | {k} | {share} |", flush=True)


if __name__ == "__main__":
    main()
