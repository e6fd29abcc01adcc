"""Reward audit against the learner itself.

Its verdict in 300 worlds and on AdaRAGUE, and what a long simulation says; and how often it finds
a small harm.

    # part 0 of 1; parts share the work
    python experiments/reward_audit_worlds.py [--worlds 300] [--part 0/1]
    # a learner that a reward costs 3 to 5 points, tables of 300 questions
    python experiments/reward_audit_worlds.py --margins --worlds 120
    python experiments/reward_audit_worlds.py --adarague ../shared/data/league/adarague

A world gives questions with a value and a reward for each of three arms. The audit sees a table of
300, 1,000 or 3,000 of them; the truth is the same learner over 100,000 fresh questions of the
world, with other seeds, 200 replications of 5,000 rounds, judged by the value of the arms it plays
in the last fifth.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raglab import audit_rewards
from raglab.bandit import Bandit, Table, run
from raglab.metrics import token_f1
from raglab.reward import RewardWeights, reward, threshold
from raglab.words.answer_terms import normalise_answer

Array = NDArray[np.float64]
ADARAGUE = Path("../shared/data/league/adarague")
SIZES = (300, 1000, 3000)
FRESH, ROUNDS, REPLICATIONS = 100_000, 5000, 200
MARGIN, MARGIN_SIZE = (0.03, 0.05), 300  # of the harm that is to be found, in so many questions
RATIOS = (0.0, 0.5, 0.75, 1.0, 1.5, np.inf)  # of the true harm to what the audit says it can find
ARMS = ("nor", "oner", "ircot")
SETS = ("nq", "squad", "trivia", "hotpotqa")
SCALES = (0.0, 0.1, 0.4, 1.0, 2.0, 4.0)  # seconds a step
# latency and consistency alone, as published
WEIGHTS = RewardWeights(margin=0.0, diversity=0.0, cache=0.0)

UNIFORM, BEST = "uniform", "best fixed arm"
HELPS, HARMS, LEVEL = "helps", "harms", "not told apart"
END = 0.2  # share of the rounds, the last ones, in which the audit judges a learner
LEAST = 0.005  # of the range of the values: the audit takes a smaller difference for none


class World(NamedTuple):
    """Draws of questions: (rng, n) to values and rewards, [n, 3] each."""

    kind: str
    draw: Callable[[np.random.Generator, int], tuple[Array, Array]]


def spread_means(rng: np.random.Generator) -> Array:
    """Shares of right answers of three arms that are 4 to 25 points apart."""
    gap = rng.uniform(0.04, 0.25)
    return rng.uniform(0.2, 0.75 - gap / 2) + gap * rng.permutation([0.0, rng.uniform(), 1.0])


def noisy(value: Array, rng: np.random.Generator, scale: float, pull: float) -> Array:
    """Rewards around 0.5 that rise with the value where pull is positive."""
    return np.clip(0.5 + pull * (value - 0.5) + scale * rng.standard_normal(value.shape), 0.0, 1.0)


def aligned_world(rng: np.random.Generator, sign: float) -> World:
    """Rewards that rise with the value of a question and arm, or fall (sign -1)."""
    means, pull, scale = spread_means(rng), sign * rng.uniform(0.2, 0.5), rng.uniform(0.05, 0.2)

    def draw(chance: np.random.Generator, n: int) -> tuple[Array, Array]:
        value = (chance.random((n, 3)) < means).astype(np.float64)
        return value, noisy(value, chance, scale, pull)

    return World("aligned" if sign > 0.0 else "anti-aligned", draw)


def chance_world(rng: np.random.Generator) -> World:
    """Arms of different value and rewards alike, or of equal value and different rewards."""
    same_rewards = rng.random() < 0.5
    means = spread_means(rng) if same_rewards else np.full(3, rng.uniform(0.2, 0.8))
    middle = np.full(3, 0.5) if same_rewards else rng.uniform(0.4, 0.6, 3)

    def draw(chance: np.random.Generator, n: int) -> tuple[Array, Array]:
        value = (chance.random((n, 3)) < means).astype(np.float64)
        return value, np.clip(middle + 0.15 * chance.standard_normal((n, 3)), 0.0, 1.0)

    return World("chance", draw)


def crafted_world(rng: np.random.Generator) -> World:
    """The better arm of every question has the higher reward, and successes point to the worst arm.

    The worst arm earns a little above 0.5 nearly always. Each other arm earns much, but little in
    some questions, in which it is as right as the worst one.
    """
    worst, low_share = int(rng.integers(3)), rng.uniform(0.02, 0.15, 3)
    gain, right, miss = rng.uniform(0.1, 0.6), rng.uniform(0.1, 0.4), rng.uniform(0.0, 0.005)
    low_share[worst] = miss

    def draw(chance: np.random.Generator, n: int) -> tuple[Array, Array]:
        low = chance.random((n, 3)) < low_share
        value = np.repeat((chance.random(n) < right).astype(np.float64)[:, None], 3, axis=1)
        # Where the others earn much they are right more often than the worst; equal to each other,
        # so that no pair of theirs disagrees.
        more = (chance.random(n) < gain) & ~low.any(axis=1)
        better = np.arange(3) != worst
        value[np.ix_(more, better)] = 1.0
        rewards = np.where(low, 0.3, np.where(better, 0.9, 0.55)) + chance.uniform(
            0.0, 0.04, (n, 3)
        )
        return value, rewards

    return World("crafted", draw)


def margin_world(rng: np.random.Generator) -> World:
    """Arms some points apart, and rewards by arm alone that lead to the worst.

    In a share of the questions all arms are alike in value, so that some worlds are harder to tell
    apart than others.
    """
    middle, step, alike = rng.uniform(0.25, 0.75), rng.uniform(*MARGIN), rng.uniform(0.0, 0.8)
    order = rng.permutation([-1.0, 0.0, 1.0])
    means, pay = middle + step / (1.0 - alike) * order, 0.5 - 0.15 * order

    def draw(chance: np.random.Generator, n: int) -> tuple[Array, Array]:
        same = chance.random((n, 1)) < alike
        value = np.where(same, chance.random((n, 1)) < middle, chance.random((n, 3)) < means)
        return value.astype(np.float64), np.clip(
            pay + 0.15 * chance.standard_normal((n, 3)), 0.0, 1.0
        )

    return World("margin", draw)


def world_of(number: int) -> World:
    """World of a number: four kinds in turn."""
    rng = np.random.default_rng([30, number])
    makers: tuple[Callable[[], World], ...] = (
        lambda: aligned_world(rng, 1.0),
        lambda: aligned_world(rng, -1.0),
        lambda: chance_world(rng),
        lambda: crafted_world(rng),
    )
    return makers[number % 4]()


def table_of(value: Array, rewards: Array, arms: tuple[str, ...] = ARMS) -> Table:
    """Table without a context."""
    n = len(value)
    return Table(
        arms,
        value,
        rewards,
        np.ones(value.shape, bool),
        np.zeros((n, 0)),
        (),
        np.full(value.shape, np.nan),
    )


class Truth(NamedTuple):
    """Value of the learner at the end of a long simulation, of uniform choice and the best arm."""

    learner: float
    uniform: float
    best: float
    error: float  # standard error of the learner's, over its replications

    def gain(self, policy: str) -> float:
        """Learner minus the policy."""
        return self.learner - (self.uniform if policy == UNIFORM else self.best)

    def verdict(self, policy: str) -> str:
        """Verdict of a difference that is known, but for the chance of the simulation."""
        gain = self.gain(policy)
        if abs(gain) < LEAST or abs(gain) < 2.0 * self.error:
            return LEVEL
        return HELPS if gain > 0.0 else HARMS


def long_simulation(world: Table, bandit: Bandit, seed: int) -> Truth:
    """The learner on a table, without a resample.

    The mean value of the arms that it plays at the end.
    """
    played = run(bandit, world, rounds=ROUNDS, replications=REPLICATIONS, seed=seed)
    ends = played.arm[:, ROUNDS - round(END * ROUNDS) :]
    shares = np.stack([(ends == arm).mean(axis=1) for arm in range(world.n_arms)], axis=1)
    means = world.value.mean(axis=0)
    each = shares @ means
    error = float(each.std(ddof=1) / np.sqrt(REPLICATIONS))
    return Truth(float(each.mean()), float(means.mean()), float(means.max()), error)


def concordance(correlations: pd.DataFrame) -> float:
    """Concordance of the reward with the value."""
    return float(correlations["concordance"].iloc[-1])


def compared(simulation: pd.DataFrame, truth: Truth) -> dict[str, Any]:
    """What the audit says and what is true, against a uniform choice and the best fixed arm."""
    rows = {str(row["policy"]): row for row in simulation.to_dict("records")}
    cells: dict[str, Any] = {}
    for policy, name in ((UNIFORM, "uniform"), (BEST, "best")):
        row, gain = rows[policy], truth.gain(policy)
        holds = row["difference_low"] <= gain <= row["difference_high"]
        stated, known = str(row["verdict"]), truth.verdict(policy)
        cells |= {
            f"{name}_audit": row["difference"],
            f"{name}_low": row["difference_low"],
            f"{name}_high": row["difference_high"],
            f"{name}_truth": gain,
            f"{name}_verdict": stated,
            f"{name}_same": stated == known,
            f"{name}_holds": holds,
            # Not told apart claims nothing but the interval; with it the truth must lie inside.
            f"{name}_agrees": stated == known or (stated == LEVEL and holds),
            f"{name}_opposite": {stated, known} == {HELPS, HARMS},
        }
    return cells


def world_row(number: int) -> dict[str, Any]:
    """Audit of a table of a world beside the truth."""
    world, n, bandit = world_of(number), SIZES[number % len(SIZES)], Bandit()
    table = table_of(*world.draw(np.random.default_rng([31, number]), n))
    audit = audit_rewards(table, bandit=bandit, n_boot=50)
    fresh = table_of(*world.draw(np.random.default_rng([32, number]), FRESH))
    truth = long_simulation(fresh, bandit, 1000 + number)
    row = {
        "world": number,
        "kind": world.kind,
        "n": n,
        "concordance": concordance(audit.correlations),
    }
    return row | compared(audit.simulation, truth)


def margin_row(number: int) -> dict[str, Any]:
    """Audit of a table of 300 questions of a world that misleads by a little, beside the truth."""
    world, bandit = margin_world(np.random.default_rng([33, number])), Bandit()
    table = table_of(*world.draw(np.random.default_rng([34, number]), MARGIN_SIZE))
    audit = audit_rewards(table, bandit=bandit, n_boot=50)
    fresh = table_of(*world.draw(np.random.default_rng([35, number]), FRESH))
    row = compared(audit.simulation, long_simulation(fresh, bandit, 1000 + number))
    stated = audit.simulation.set_index("policy")["detectable"]
    return row | {"uniform_detectable": stated[UNIFORM], "best_detectable": stated[BEST]}


def margin_summary(rows: pd.DataFrame) -> None:
    """Share of the small harms that the audit finds, all and by what it says it can find."""
    print("\n| against | true harm, mean | detectable, median | by ratio | worlds | found |")
    print("|---|---|---|---|---|---|")
    for name in ("uniform", "best"):
        harm, is_shown = -rows[f"{name}_truth"], rows[f"{name}_verdict"] == HARMS
        stated = rows[f"{name}_detectable"]
        parts = {"all": pd.Series(data=True, index=rows.index)}
        ratio = harm / stated
        parts |= {
            f"{low:g} to {high:g}": (ratio > low) & (ratio <= high)
            for low, high in pairwise(RATIOS)
        }
        for label, part in parts.items():
            if part.any():
                print(
                    f"| {name} | {harm[part].mean():.3f} | {stated[part].median():.3f} | {label} | "
                    f"{int(part.sum())} | {is_shown[part].mean():.3f} |"
                )


def summary(rows: pd.DataFrame) -> None:
    """Shares of the worlds in which audit and truth agree."""
    print(
        "\n| worlds | n | against | agrees | same verdict | not told apart | opposite | interval "
        "holds the truth |"
    )
    print("|---|---|---|---|---|---|---|---|")
    groups = [*rows.groupby("kind"), ("all", rows)]
    for kind, part in groups:
        for name in ("uniform", "best"):
            shares = [part[f"{name}_{column}"].mean() for column in ("agrees", "same", "holds")]
            level, opposite = (
                (part[f"{name}_verdict"] == LEVEL).mean(),
                int(part[f"{name}_opposite"].sum()),
            )
            print(
                f"| {kind} | {len(part)} | {name} | {shares[0]:.3f} | {shares[1]:.3f} | "
                f"{level:.3f} | {opposite} |"
                f" {shares[2]:.3f} |"
            )


def load(path: Path) -> Any:  # noqa: ANN401 - JSON
    """JSON of a packed file."""
    return json.loads(gzip.decompress(path.read_bytes()))


class AdaRague(NamedTuple):
    """Questions of AdaRAGUE: right answers, agreement and steps of each arm, [Q, 3]."""

    value: Array
    agreement: Array
    steps: Array


def adarague(folder: Path) -> AdaRague:
    """Four question sets of 500, an answer of each arm.

    An answer is right where a gold answer is in it, as the published accuracy counts. The agreement
    of an arm is the mean overlap of its answer's words with those of the two others. No retrieval
    takes no step, one retrieval one.
    """
    value, agreement, steps = [], [], []
    for name in SETS:
        answers: dict[str, Any] = {}
        for arm in ARMS:
            (place,) = (folder / "test").glob(f"{arm}_qa_llama_8b_it_{name}____*")
            (path,) = place.glob("prediction__*.json.gz")
            answers[arm] = load(path)
            if arm == "ircot":
                n_steps = load(place / "stepNum.json.gz")
                (path,) = place.glob("ground_truth__*.json.gz")
                gold = load(path)
        for question, truths in gold.items():
            texts = [normalise_answer(_text(answers[arm][question])) for arm in ARMS]
            golds = [normalise_answer(right) for right in truths]
            value.append([float(any(right in text for right in golds)) for text in texts])
            shared = np.array([[token_f1(left, [right]) for right in texts] for left in texts])
            agreement.append(shared[~np.eye(3, dtype=bool)].reshape(3, 2).mean(axis=1))
            steps.append([0.0, 1.0, float(n_steps[question])])
    return AdaRague(np.array(value), np.array(agreement), np.array(steps))


def _text(answer: object) -> str:
    return " ".join(map(str, answer)) if isinstance(answer, list) else str(answer)


def latency_scales(folder: Path) -> None:
    """Audit of AdaRAGUE at six latencies a step, beside a long simulation.

    The simulation runs on the same questions and on others.
    """
    data = adarague(folder)
    n = len(data.value)
    print(
        f"\nAdaRAGUE, {n} questions; right: "
        + ", ".join(map("{} {:.4f}".format, ARMS, data.value.mean(axis=0)))
    )
    head = (
        "seconds a step",
        "threshold",
        "audit",
        "concordance",
        "successes",
        "long simulation",
        "agrees",
        "halves",
    )
    print("\n| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    halves = np.random.default_rng(0).permutation(n).reshape(2, -1)
    for seconds in SCALES:
        measured = {
            "margin": 0.0,
            "diversity": 0.0,
            "cache_hit": 0.0,
            "consistency": data.agreement,
        }
        rewards = np.asarray(
            reward(measured | {"latency_ratio": data.steps * seconds / 8.0}, WEIGHTS)
        )
        for bandit in (Bandit(), Bandit(threshold=threshold(rewards, "median"))):
            table = table_of(data.value, rewards)
            audit = audit_rewards(table, bandit=bandit)
            truth = long_simulation(table, bandit, 1000)
            cells = compared(audit.simulation, truth)
            learner = audit.simulation.iloc[0]
            successes = " / ".join(f"{share:.2f}" for share in audit.arms["success_share"])
            # On one half of the questions the audit, on the other half the truth.
            crossed = []
            for audited, fresh in (halves, halves[::-1]):
                part, rest = (
                    table_of(data.value[rows], rewards[rows]) for rows in (audited, fresh)
                )
                held = long_simulation(rest, bandit, 2000)
                audited_part = audit_rewards(part, bandit=bandit, n_boot=200)
                crossed.append(compared(audited_part.simulation, held)["uniform_agrees"])
            ends = (
                f"{learner['value']:.3f} ({learner['value_low']:.3f} to "
                f"{learner['value_high']:.3f})"
            )
            known = f"{truth.learner:.3f}; uniform {truth.uniform:.3f}, best {truth.best:.3f}"
            verdicts = ", ".join(cells[f"{name}_verdict"] for name in ("uniform", "best"))
            row = (
                f"{seconds:g}",
                f"{bandit.threshold:.3f}",
                f"{ends} {verdicts}",
                f"{concordance(audit.correlations):.3f}",
                successes,
                known,
                f"{cells['uniform_agrees']}, {cells['best_agrees']}",
                ", ".join(map(str, crossed)),
            )
            print("| " + " | ".join(row) + " |", flush=True)
            if bandit == Bandit():
                print(f"    {audit.notes[0]}", flush=True)


def main() -> None:
    """Both parts, or AdaRAGUE alone where its folder is stated."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=300)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--adarague", type=Path)
    parser.add_argument("--margins", action="store_true", help="small harms at 300 questions")
    parser.add_argument(
        "--out", type=Path, help="folder for the rows of a part, which are joined with those there"
    )
    options = parser.parse_args()
    if options.margins:
        margin_summary(pd.DataFrame([margin_row(number) for number in range(options.worlds)]))
        return
    if options.adarague is None:
        part, parts = map(int, options.part.split("/"))
        rows = pd.DataFrame([world_row(number) for number in range(part, options.worlds, parts)])
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            rows.to_csv(options.out / f"worlds_{part}_{parts}.csv", index=False)
            rows = pd.concat(
                [pd.read_csv(path) for path in sorted(options.out.glob(f"worlds_*_{parts}.csv"))]
            )
        summary(rows)
    folder = options.adarague or ADARAGUE
    if not folder.is_dir():
        print(f"AdaRAGUE is left out: no folder {folder}; state it by --adarague.")
        return
    if options.adarague is not None or options.part == "0/1":
        latency_scales(folder)


if __name__ == "__main__":
    main()
