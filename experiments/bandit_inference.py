"""Whether intervals of a comparison of learners hold.

Tables drawn from a population, the truth from fresh ones.

    python experiments/bandit_inference.py [--tables 300] [--cases 200] [--rounds 500]
      [--replications 20]

For each of three populations a table is drawn so many times, and `compare_learners` is called on
it. The truth is the mean over fresh tables of the same size and fresh chance, of which there are
many more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from raglab import compare_learners
from raglab.bandit import Bandit, Table, baselines
from raglab.bandit.environments import POLICY_STREAM, feed, stream
from raglab.bandit.fixed_plans import FIXED_PLAN, UNIFORM_PLAN
from raglab.bandit.simulation import is_plain, kernel, stepwise_arms

LEARNERS = {name: Bandit(name) for name in ("thompson_beta", "ucb1", "lin_ucb")}
ARMS, FEATURES = 3, 3
SLOPES = np.array([[0.0, 0.2, 0.0], [0.0, 0.0, 0.2], [0.0, -0.1, -0.1]])
FIRST = 1000  # number of the first table; the interval was chosen on tables 0 to 499
MEASURES = ("right", "regret", "difference")


def equal(rng: np.random.Generator, n: int) -> Table:
    """Three arms that are right in half of the cases."""
    return table(rng, np.full((n, ARMS), 0.5))


def one_better(rng: np.random.Generator, n: int) -> Table:
    """The third arm is right in 60 %, the others in half."""
    return table(rng, np.tile([0.5, 0.5, 0.6], (n, 1)))


def contextual(rng: np.random.Generator, n: int) -> Table:
    """Which arm is right depends on two features."""
    return table(rng, None, n)


WORLDS: dict[str, Callable[[np.random.Generator, int], Table]] = {
    "equal arms": equal,
    "one better": one_better,
    "contextual": contextual,
}


def table(rng: np.random.Generator, p: np.ndarray | None, n: int = 0) -> Table:
    """Table of so many cases with 0/1 values, which the learner sees."""
    size = n if p is None else len(p)
    x = np.column_stack([np.ones(size), rng.standard_normal((size, FEATURES - 1))])
    chance = np.clip(0.5 + x @ SLOPES.T, 0.0, 1.0) if p is None else p
    value = (rng.random((size, ARMS)) < chance).astype(np.float64)
    names = tuple(f"x{number}" for number in range(FEATURES))
    return Table(
        ("a", "b", "c"), value, value, np.ones(value.shape, np.bool_), x, names, value * np.nan
    )


def truths(
    population: Callable[[np.random.Generator, int], Table], sizes: argparse.Namespace
) -> pd.DataFrame:
    """Expected measures of each learner over fresh tables, a row a learner and reference."""
    totals = {}
    for block in range(-(-sizes.fresh // 200)):
        rng = np.random.default_rng([sizes.seed, 999, block])
        world = population(rng, 200 * sizes.cases)
        own = np.arange(200) * sizes.cases
        case = (own + rng.integers(sizes.cases, size=(sizes.rounds, 200))).astype(np.int32)
        means = world.value.reshape(200, sizes.cases, ARMS).mean(axis=1)
        best = world.value[case].max(axis=2).mean(axis=0)
        fixed = np.take_along_axis(
            world.value[case].mean(axis=0), means.argmax(axis=1)[:, None], axis=1
        )[:, 0]
        uniform = world.value[case].mean(axis=(0, 2))
        for name, bandit in LEARNERS.items():
            met = feed(world, sizes.rounds, 200, sizes.seed, block)._replace(case=case)
            chance = stream(sizes.seed, block, POLICY_STREAM)
            twin = kernel(bandit, 1e9, "auto") if is_plain(bandit, met) else None
            arm = (
                stepwise_arms(met, bandit, chance)
                if twin is None
                else twin.played(met, bandit, chance)
            )
            right = world.value[case, arm].mean(axis=0)
            for reference, value in ((FIXED_PLAN, fixed), (UNIFORM_PLAN, uniform)):
                row = np.stack([right, sizes.rounds * (best - right), right - value])
                totals.setdefault((name, reference), []).append(row)
    rows = {key: np.concatenate(parts, axis=1).mean(axis=1) for key, parts in totals.items()}
    return pd.DataFrame(rows, index=MEASURES).T


def coverage(name: str, sizes: argparse.Namespace) -> list[dict[str, object]]:
    """Share of the tables whose intervals hold the truth, a row a learner and reference."""
    population = WORLDS[name]
    truth = truths(population, sizes)
    inside: dict[tuple[str, str], list[np.ndarray]] = {}
    begun = time.perf_counter()
    for number in range(FIRST, FIRST + sizes.tables):
        world = population(np.random.default_rng([sizes.seed, number]), sizes.cases)
        plans = baselines(world)
        for reference in (FIXED_PLAN, UNIFORM_PLAN):
            rows = compare_learners(
                world,
                LEARNERS,
                plans,
                rounds=sizes.rounds,
                replications=sizes.replications,
                seed=1000 * sizes.seed + number,
                reference=reference,
                engine="numba",
            ).table.set_index("policy")
            for learner in LEARNERS:
                row, known = rows.loc[learner], truth.loc[(learner, reference)]
                held = [
                    row[f"{part}_low"] <= known[part] <= row[f"{part}_high"] for part in MEASURES
                ]
                held += [row["difference_high"] - row["difference_low"], row["difference"]]
                inside.setdefault((learner, reference), []).append(np.array(held, dtype=np.float64))
    took = (time.perf_counter() - begun) / sizes.tables / 2
    rows_out = []
    for (learner, reference), parts in inside.items():
        held = np.mean(parts, axis=0)
        spread = np.std(parts, axis=0, ddof=1)[-1]
        row = {"world": name, "learner": learner, "reference": reference}
        row |= dict(zip(MEASURES, (100 * held[:3]).round(1), strict=True))
        row |= {
            "truth": truth.loc[(learner, reference), "difference"],
            "mean": held[-1],
            "sd": spread,
        }
        rows_out.append(row | {"width/sd": held[3] / spread, "s": round(took, 3)})
    return rows_out


def main() -> None:
    """Tables of coverage."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("tables", 300),
        ("cases", 200),
        ("rounds", 500),
        ("replications", 20),
        ("fresh", 4000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0)
    sizes = parser.parse_args()
    for name in WORLDS:
        print(pd.DataFrame(coverage(name, sizes)).round(4).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
