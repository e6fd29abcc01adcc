"""Whether intervals of a comparison of learners hold.

Tables drawn from a population, the truth from fresh ones.

    python experiments/bandit_inference.py [--tables 300] [--cases 200] [--rounds 500]
      [--replications 20]
    python experiments/bandit_inference.py --part arms     # regret on arms of known means
    python experiments/bandit_inference.py --part logs     # the direct method by status, learners
                                                           # as targets

For each of three populations a table is drawn so many times, and `compare_learners` is called on
it. The truth is the mean over fresh tables of the same size and fresh chance, of which there are
many more. The same holds for estimates of logs: the direct method by status, and learners as
targets.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

from raglab import compare_learners
from raglab.bandit import Bandit, Bernoulli, Table, baselines, run
from raglab.bandit.environments import POLICY, feed, stream
from raglab.bandit.fixed_plans import FIXED, UNIFORM
from raglab.bandit.simulation import is_plain, kernel, stepwise_arms
from raglab.lab.learner_comparison import compare_on_arms
from raglab.off_policy import OverlapWarning, estimate
from raglab.off_policy.targets import learner_probabilities

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
            chance = stream(sizes.seed, block, POLICY)
            twin = kernel(bandit, 1e9, "auto") if is_plain(bandit, met) else None
            arm = (
                stepwise_arms(met, bandit, chance)
                if twin is None
                else twin.played(met, bandit, chance)
            )
            right = world.value[case, arm].mean(axis=0)
            for reference, value in ((FIXED, fixed), (UNIFORM, uniform)):
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
        for reference in (FIXED, UNIFORM):
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


def on_arms(sizes: argparse.Namespace) -> list[dict[str, object]]:
    """Share of calls of `compare_on_arms` whose interval of the regret holds the expected one."""
    means, rows = np.array([0.5, 0.5, 0.6]), []
    learners = {name: LEARNERS[name] for name in ("thompson_beta", "ucb1")}
    for replications in (20, 100):
        held = dict.fromkeys(learners, 0)
        truth = {
            name: run(
                bandit, Bernoulli(means), rounds=sizes.rounds, replications=20_000, seed=10**6
            )
            .regret[:, -1]
            .mean()
            for name, bandit in learners.items()
        }
        for seed in range(sizes.tables):
            table = compare_on_arms(
                means, learners, rounds=sizes.rounds, replications=replications, seed=seed
            ).table
            for row in table.to_dict("records")[:-1]:
                held[row["policy"]] += (
                    row["regret_low"] <= truth[row["policy"]] <= row["regret_high"]
                )
        rows += [
            {
                "learner": name,
                "replications": replications,
                "held %": 100 * held[name] / sizes.tables,
            }
            for name in held
        ]
    return rows


# whether the context moves choice and reward; how far a model is off
LOGS: dict[str, tuple[bool, float | None]] = {
    "uniform choice": (False, None),
    "choice follows the context": (True, None),
    "model from outside, right": (True, 0.0),
    "model from outside, 0.05 too high": (True, 0.05),
}


def direct(sizes: argparse.Namespace) -> list[dict[str, object]]:
    """Status of the direct method, and how often its interval holds the truth, by status.

    Doubly robust beside it.
    """
    rows = []
    for name, (confounded, off) in LOGS.items():
        held_by_status: dict[tuple[str, str], list[bool]] = {}
        for number in range(sizes.tables):
            rng = np.random.default_rng([sizes.seed, number])
            x = rng.random(2000)
            # Arm 1 is chosen where it pays least; a model from outside knows the chances, but for
            # what it is off.
            chosen = np.where(x < 0.5, 0.7, 0.3) if confounded else np.full(2000, 0.5)
            p = np.column_stack([np.full(2000, 0.5), 0.3 + 0.4 * (x > 0.5)])
            action = (rng.random(2000) < chosen).astype(int)
            reward = (rng.random(2000) < p[np.arange(2000), action]).astype(float)
            log = pd.DataFrame(
                {
                    "action": action,
                    "reward": reward,
                    "propensity": np.where(action, chosen, 1 - chosen),
                }
            )
            if off is not None:
                log[["q_0", "q_1"]] = p + off
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OverlapWarning)
                table = estimate(log, [0.3, 0.7], ("dm", "dr"))
            for row in table.to_dict("records"):
                held_by_status.setdefault((row["estimator"], row["status"]), []).append(
                    row["low"] <= 0.5 <= row["high"]
                )
        for (estimator, status), held in sorted(held_by_status.items()):
            rows.append(
                {
                    "log": name,
                    "estimator": estimator,
                    "status": status,
                    "logs": len(held),
                    "held %": 100 * np.mean(held),
                }
            )
    return rows


def learners_as_targets(sizes: argparse.Namespace) -> list[dict[str, object]]:
    """How often intervals hold what the learner's own probabilities should earn in those rounds.

    What they should earn is their expected reward.
    """
    means, rows = np.array([0.3, 0.5, 0.6]), []
    for name, bandit in {
        "epsilon_greedy": Bandit("epsilon_greedy"),
        "ucb1": Bandit("ucb1"),
        "thompson_beta": Bandit(),
    }.items():
        held = []
        for number in range(sizes.tables):
            rng = np.random.default_rng([sizes.seed, number])
            action = rng.integers(3, size=500)
            reward = (rng.random(500) < means[action]).astype(float)
            log = pd.DataFrame({"action": action, "reward": reward, "propensity": 1 / 3})
            target = learner_probabilities(bandit, log, range(3), None, ())
            table = estimate(log, target, ("ips", "snips", "dr"))
            truth = (target @ means).mean()
            held.append(((table["low"] <= truth) & (truth <= table["high"])).to_numpy())
        share = 100 * np.mean(held, axis=0)
        rows.append({"target": name, "ips": share[0], "snips": share[1], "dr": share[2]})
    return rows


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
    parser.add_argument("--part", choices=("tables", "arms", "logs"), default="tables")
    sizes = parser.parse_args()
    if sizes.part == "tables":
        for name in WORLDS:
            print(pd.DataFrame(coverage(name, sizes)).round(4).to_string(index=False), flush=True)
    elif sizes.part == "arms":
        print(pd.DataFrame(on_arms(sizes)).round(1).to_string(index=False))
    else:
        print(pd.DataFrame(direct(sizes)).round(1).to_string(index=False), flush=True)
        print(pd.DataFrame(learners_as_targets(sizes)).round(1).to_string(index=False))


if __name__ == "__main__":
    main()
