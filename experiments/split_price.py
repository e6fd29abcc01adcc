"""What the two rules of splitting a default cost.

Questions, silent errors and rows of noise that split.

    .venv/bin/python -m experiments.split_price [--seeds 5] [--users 500] [--jobs 1]

Case 12 in simulation: 85 of 100 contracts begin with their body, where page 1 is right, 15 with a
cover sheet, where the table of contents is. The column `page_1_kind` tells the other kind with a
given probability; two columns of noise stand beside it, which alone may split a row wrongly. In the
rows of noise there are these two alone, and users who in some requests want the other value, so
that whatever splits is noise. Every user has one row and 200 requests; a question is asked back, a
silent error is a wrong page applied without one. Brackets: 95 % interval of the mean over the
seeds. A minute where a core is free.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from raglab.default_learner import DefaultLearner, World, request_outcomes, world

BODY, COVER = {"1": 1.0, "toc": 0.0}, {"1": 0.0, "toc": 1.0}
MISTAKES = (0.0, 0.05, 0.2)
STRAYS = (0.01, 0.05, 0.2)  # of the requests of a row of noise
REQUESTS = 200
SOON = 50  # requests after which few rows should have split by noise
COLUMNS = (
    "questions /100",
    "silent errors /100",
    "rows split",
    f"within {SOON} requests",
    "split by noise",
)


def contracts(mistaken: float) -> World:
    """World of bodies and cover sheets, some of which the column takes for the other kind."""
    mix = {"body": 0.85 * (1 - mistaken), "body?": 0.85 * mistaken, "cover": 0.15 * (1 - mistaken)}
    mix["cover?"] = 0.15 * mistaken
    shares = {"insurer": {"body": BODY, "body?": BODY, "cover": COVER, "cover?": COVER}}
    mix = {name: share for name, share in mix.items() if share > 0.0}
    shares = {"insurer": {name: shares["insurer"][name] for name in mix}}
    cover_world = world(
        shares, column="page_1_kind", mix=mix, at_once=1, noise_columns=2, detects=0.99
    )
    is_cover = [name in ("cover", "body?") for name in mix]
    return cover_world._replace(levels=np.array(is_cover, np.int16)[None, :, None])


def noise_alone(stray: float) -> World:
    """World whose failures gather nowhere."""
    return world({"insurer": BODY}, noise=stray, at_once=1, noise_columns=2, detects=0.99)


def prices(
    price_world: World, learner: DefaultLearner, *, seeds: int, users: int, jobs: int
) -> NDArray[np.float64]:
    """Each of `COLUMNS` by seed, [seeds, 5].

    The last is of the rows that split, NaN where all columns are noise.
    """
    first_noise, rows = len(price_world.columns), []
    for seed in range(seeds):
        result = request_outcomes(
            price_world, learner, users=users, requests=REQUESTS, seed=seed, n_jobs=jobs
        )
        is_split, by_noise = result.split >= 0, result.column >= first_noise
        rows.append(
            [
                100 * result.question.mean(),
                100 * result.error.mean(),
                is_split.mean(),
                (is_split & (result.split < SOON)).mean(),
                by_noise.sum() / is_split.sum() if first_noise else np.nan,
            ]
        )
    return np.array(rows)


def lines(*, seeds: int, users: int, jobs: int) -> Iterator[str]:
    """Lines of the table."""
    yield "| rows | confidence | rule | " + " | ".join(COLUMNS) + " |"
    yield "|---" * (3 + len(COLUMNS)) + "|"
    worlds = {f"{mistaken:.0%} misclassified": contracts(mistaken) for mistaken in MISTAKES}
    worlds |= {f"noise, {stray:.0%} want the other": noise_alone(stray) for stray in STRAYS}
    for name, price_world in worlds.items():
        for confidence in ("vote_share", "posterior"):
            for rule in ("source", "evidence"):
                learner = DefaultLearner(confidence, split=rule)  # type: ignore[arg-type]
                values = prices(price_world, learner, seeds=seeds, users=users, jobs=jobs)
                means = values.mean(axis=0)
                reach = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values, axis=0)
                low, high = np.maximum(means - reach, 0.0), means + reach
                cells = [
                    "–"
                    if np.isnan(mean)
                    else f"{mean:.{digits}f} ({bottom:.{digits}f} to {top:.{digits}f})"
                    for mean, bottom, top, digits in zip(
                        means, low, high, (1, 2, 3, 3, 3), strict=True
                    )
                ]
                yield f"| {name} | {confidence} | {rule} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--users", type=int, default=500, help="of a seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    for line in lines(seeds=options.seeds, users=options.users, jobs=options.jobs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
