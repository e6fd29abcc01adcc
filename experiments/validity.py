"""How often a threshold that is promised to keep the risk at alpha does not, and what it answers.

Markdown tables.

In every repeat n cases are drawn, each method chooses a threshold on them (answer where the score
is at least it), and the true risk of that threshold is summed exactly over all scores. At delta =
0.1 one promise in ten may be broken. Coverage is the true share that is answered, 0 where no
threshold is chosen. Needs the extra `bench`.

    python experiments/validity.py --repeats 1000
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import NamedTuple

import numpy as np
from mapie.risk_control import BinaryClassificationController, precision
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from raglab.certify import START_FACTOR, Method, cases_needed, certify
from raglab.metrics import risk_coverage, upper_bound

Floats = NDArray[np.float64]
Rights = NDArray[np.bool_]
DELTA = 0.1


class World(NamedTuple):
    """Where cases come from: scores, ascending, how likely each is, and its chance to be wrong.

    All [L].
    """

    at: Floats
    chance: Floats
    wrong: Floats


def world(middle: float, step: float, wrong: Callable[[Floats], Floats]) -> World:
    """Scores clip(round(N(middle, 22) / step) · step, 0, 100) with their exact chances."""
    at = np.arange(0.0, 100.0 + step / 2.0, step)
    below = ndtr((at[:-1] + step / 2.0 - middle) / 22.0)
    return World(at, np.diff(below, prepend=0.0, append=1.0), wrong(at))


def truth(of: World) -> tuple[Floats, Floats]:
    """True risk and coverage of answering from each score up, [L] each."""
    answered, lost = (part[::-1].cumsum()[::-1] for part in (of.chance, of.chance * of.wrong))
    return lost / answered, answered


def naive(score: Floats, right: Rights, alpha: float) -> float | None:
    """Lowest threshold whose observed risk is at most alpha."""
    curve = risk_coverage(right, score)
    return min(curve.at[curve.y <= alpha].tolist(), default=None)


def cross_validated(score: Floats, right: Rights, alpha: float) -> float | None:
    """Highest of five naive picks, each on four fifths of the cases."""
    fold = np.arange(score.size) % 5
    picks = [naive(score[fold != held], right[fold != held], alpha) for held in range(5)]
    return None if None in picks else max(pick for pick in picks if pick is not None)


def pointwise(score: Floats, right: Rights, alpha: float) -> float | None:
    """Lowest threshold whose own exact bound is at most alpha."""
    curve = risk_coverage(right, score)
    return min(
        curve.at[np.asarray(upper_bound(curve.k, curve.n, DELTA)) <= alpha].tolist(), default=None
    )


def certified(method: Method, score: Floats, right: Rights, alpha: float) -> float | None:
    """Threshold of a certificate."""
    return certify(right, score, alpha=alpha, delta=DELTA, method=method).threshold


def our_grid(score: Floats, alpha: float) -> Floats:
    """The candidates of the fixed sequence of `certify`: observed levels from its start down."""
    at, n = np.unique(score, return_counts=True)
    enough = n[::-1].cumsum()[::-1] >= START_FACTOR * cases_needed(alpha, DELTA)
    return at[enough if enough.any() else slice(1)] / 100.0


def mapie(
    method: str,
    has_own_grid: bool,  # noqa: FBT001
    score: Floats,
    right: Rights,
    alpha: float,
) -> float | None:
    """Threshold MAPIE calls best for this precision, among 0, 0.01 … 0.99 or our candidates."""
    grid = our_grid(score, alpha) if has_own_grid else np.arange(100) / 100.0
    control = BinaryClassificationController(
        lambda p: np.stack([1.0 - p, p], axis=1),
        precision,
        1.0 - alpha,
        confidence_level=1.0 - DELTA,
        list_predict_params=grid,
        fwer_method=method,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = control.calibrate(score / 100.0, right).best_predict_param
    return None if best is None else float(round(float(best) * 100.0))


METHODS: dict[str, Callable[[Floats, Rights, float], float | None]] = {
    "naive: observed risk at most alpha": naive,
    "cross-validated: highest of five naive picks": cross_validated,
    "best of many pointwise bounds": pointwise,
    "**certify, fixed sequence**": partial(certified, "fixed_sequence"),
    "**certify, Holm**": partial(certified, "holm"),
    "MAPIE, fixed sequence": partial(mapie, "fixed_sequence", False),
    "MAPIE, Holm": partial(mapie, "bonferroni_holm", False),
    "MAPIE, fixed sequence on our candidates": partial(mapie, "fixed_sequence", True),
    "MAPIE, Holm on our candidates": partial(mapie, "bonferroni_holm", True),
}


def simulated(of: World, alpha: float, n: int, repeats: int, seed: int) -> Floats:
    """Share of broken promises and mean coverage of each method on the same draws, [methods, 2]."""
    risk, coverage = truth(of)
    totals = np.zeros((len(METHODS), 2))
    for rng in np.random.default_rng(seed).spawn(repeats):
        drawn = rng.choice(of.at.size, n, p=of.chance)
        score, right = of.at[drawn], rng.random(n) >= of.wrong[drawn]
        for i, method in enumerate(METHODS.values()):
            threshold = method(score, right, alpha)
            if threshold is not None:
                at = np.searchsorted(of.at, threshold)
                totals[i] += risk[at] > alpha, coverage[at]
    return totals / repeats


def main() -> None:
    """Simulate and print."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--repeats", type=int, default=1_000)
    repeats = options.parse_args().repeats
    fine = world(55.0, 1.0, lambda at: expit((40.0 - at) / 9.0))
    settings = {
        "10 %, n 200": (fine, 0.10, 200),
        "5 %, n 400": (fine, 0.05, 400),
        "20 %, n 100": (fine, 0.20, 100),
        "power: 10 %, n 200": (world(65.0, 5.0, lambda at: expit((40.0 - at) / 9.0)), 0.10, 200),
        "flat risk: 10 %, n 400": (
            world(55.0, 1.0, lambda at: np.full(at.shape, 0.105)),
            0.10,
            400,
        ),
    }
    measures = np.stack(
        [simulated(*each, repeats, seed) for seed, each in enumerate(settings.values())]
    )
    most = DELTA + 3.0 * sqrt(DELTA * (1.0 - DELTA) / repeats)
    for i, title in enumerate(
        (f"broken promises of {repeats:,}; ✗: above {most:.3f}", "mean coverage")
    ):
        print(f"\n| {title} | {' | '.join(settings)} |\n{'|---' * (len(settings) + 1)}|")
        for name, row in zip(METHODS, measures[..., i].T.tolist(), strict=True):
            print(
                f"| {name} |"
                + "".join(f" {share:.3f}{' ✗' * (i == 0 and share > most)} |" for share in row)
            )
    best = [((truth(of)[0] <= alpha) * truth(of)[1]).max() for of, alpha, _ in settings.values()]
    print("| the most that keeps the promise |" + "".join(f" {share:.3f} |" for share in best))


if __name__ == "__main__":
    main()
