"""Budgets on ParetoBandit's files: chosen on val_k4, judged once on test_k4.

    python experiments/paretobandit.py [--data ../shared/data] [--replications 20]

Four language models as arms; a row has the prompt, its source, and every model's reward and cost in
dollars.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raglab.bandit import (
    Bandit,
    Budget,
    Ledger,
    Table,
    compare_plans,
    fit_priced_policy,
    frontier,
    learned_ledger,
    play_paced,
    ridge_strength,
    run,
    text_features,
)

MIXTURE = "best fixed mixture"  # row of `compare_plans`
BUDGETS = (1e-4, 2.3e-4, 4e-4, 6.6e-4)  # dollars a question
SHUFFLES, LOGS = 100, 5
COLD, UNIFORM = "cold", "from a uniform log of validation"
SMALL, BUDGET_EXPLORATIONS = 0.1, (0.0, 0.05, 0.2)  # of learners under a budget


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a gzipped file, a JSON object a line."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def reward_table(rows: Sequence[Mapping[str, Any]], features: pd.DataFrame) -> Table:
    """Rewards and costs of all models; costs are counted and not charged."""
    arms = list(rows[0]["arms"])
    reward, cost = (
        pd.DataFrame([[row["arms"][arm][part] for arm in arms] for row in rows], columns=arms)
        for part in ("reward", "cost")
    )
    frame = pd.concat([reward, features], axis=1)
    return Table.from_frame(frame, costs=cost, price=0.0, features=list(features), order="shuffled")


def featured(
    rows: Mapping[str, list[dict[str, Any]]], components: int, spread: float = 1.0
) -> dict[str, Table]:
    """Tables with features fitted on the texts of validation."""
    texts = {name: [row["prompt"] for row in part] for name, part in rows.items()}
    sources = {name: [row["source"] for row in part] for name, part in rows.items()}
    fitted = text_features(texts["val"], sources["val"], components=components, spread=spread)
    return {
        name: reward_table(part, fitted.frame(texts[name], sources[name]))
        for name, part in rows.items()
    }


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def interval(row: pd.Series, name: str, form: str) -> str:
    """Value with its interval."""
    return " ".join(
        (f"{row[name]:{form}}", f"({row[f'{name}_low']:{form}} to {row[f'{name}_high']:{form}})")
    )


def several(table: Table, plans: Sequence[np.ndarray], amount: float) -> list[str]:
    """Mean and worst reward, and spend of the budget, of several plans."""
    rewards = [float((plan * table.value).sum(axis=1).mean()) for plan in plans]
    spends = [float((plan * table.cost).sum(axis=1).mean()) / amount for plan in plans]
    reward = f"{np.mean(rewards):.4f} (least {min(rewards):.4f})"
    return [reward, f"{np.mean(spends):.3f} (at most {max(spends):.3f})", "–"]


def budgets(rows: Mapping[str, list[dict[str, Any]]]) -> None:
    """Reward and spend at each budget, beside the best fixed mixture of validation."""
    tables = featured(rows, 32)
    val, test = tables["val"], tables["test"]
    print("\n## Frontier of fixed mixtures\n\non validation\n")
    print(frontier(val).frame().round(6).to_string(index=False))
    lines = []
    for amount in BUDGETS:
        budget = Budget(amount, "$")
        policy = fit_priced_policy(val, budget)
        played = play_paced(policy, test, order="given")
        plans = {"ridge, price held": policy.plan(test), "ridge, paced, file's order": played.plan}
        shown = compare_plans(test, plans, budget=budget, validation=val)
        for _, row in shown.iterrows():
            gain = "–" if row["policy"] == MIXTURE else interval(row, "difference", "+.4f")
            lines.append(
                [
                    f"{amount:g}",
                    row["policy"],
                    interval(row, "reward", ".4f"),
                    f"{row['of_budget']:.3f}",
                    gain,
                ]
            )
        orders = [
            play_paced(policy, test, order="shuffled", seed=seed).plan for seed in range(SHUFFLES)
        ]
        lines.append(
            [
                f"{amount:g}",
                f"ridge, paced, mean of {SHUFFLES} shuffles",
                *several(test, orders, amount),
            ]
        )
        # What a log of one model a prompt teaches.
        arms = [
            np.random.default_rng(seed).integers(val.n_arms, size=len(val.mask))
            for seed in range(LOGS)
        ]
        logs = [play_paced(fit_priced_policy(val, budget, logged=arm), test).plan for arm in arms]
        lines.append(
            [
                f"{amount:g}",
                f"ridge of a uniform log, paced, mean of {LOGS} logs",
                *several(test, logs, amount),
            ]
        )
    print("\n## Budgets: chosen on validation, judged on test\n")
    markdown(
        ("$ a question", "policy", "reward", "spend of budget", "minus the mixture, paired"), lines
    )


def uniform_ledger(table: Table, bandit: Bandit, budget: Budget, seed: int) -> Ledger:
    """Ledger of a uniform log of a table."""
    rows, arm = (
        np.arange(len(table.mask)),
        np.random.default_rng(seed).integers(table.n_arms, size=len(table.mask)),
    )
    reward, cost = table.gross[rows, arm], table.cost[rows, arm]
    return learned_ledger(
        arm, reward, cost, bandit, budget, n_arms=table.n_arms, context=table.features
    )


def learners_under_budgets(rows: Mapping[str, list[dict[str, Any]]], replications: int) -> None:
    """LinUCB learning rewards and costs within the budget, each row once in random order.

    On lengths and sources; its exploration is that of the best cold play on validation.
    """
    tables = featured(rows, 0, SMALL)
    val, test = tables["val"], tables["test"]
    strength = ridge_strength(val, prior_mean=1.0)
    sizes: dict[str, Any] = {"rounds": len(val.mask), "replications": replications, "seed": 0}
    lines = []
    for amount in BUDGETS:
        budget = Budget(amount, "$")
        bandits = [
            Bandit("lin_ucb", exploration=e, prior_mean=1.0, prior_strength=strength)
            for e in BUDGET_EXPLORATIONS
        ]
        bandit = max(
            bandits,
            key=lambda bandit: float(run(bandit, val, budget=budget, **sizes).gross[:, -1].mean()),
        )
        for start in (COLD, UNIFORM):
            first = uniform_ledger(val, bandit, budget, 0) if start == UNIFORM else None
            done = run(
                bandit,
                test,
                budget=budget,
                initial=first,
                **sizes | {"rounds": len(test.mask), "seed": 1},
            )
            reward, spend = (
                done.gross[:, -1] / len(test.mask),
                np.asarray(done.spend)[:, -1] / len(test.mask) / amount,
            )
            line = [f"{amount:g}", f"lin_ucb, {start}", f"{reward.mean():.4f}"]
            lines.append(
                [
                    *line,
                    f"{spend.mean():.3f} (at most {spend.max():.3f})",
                    f"{bandit.exploration:g}",
                ]
            )
    print("\n## Learners that keep a budget online, each prompt of test once\n")
    markdown(("$ a question", "policy", "reward", "spend of budget", "exploration"), lines)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--replications", type=int, default=20)
    options = parser.parse_args()
    folder = options.data / "league" / "paretobandit"
    if not folder.is_dir():
        print(
            f"{folder} is not there: nothing to measure. See the README of ../shared/data/league."
        )
        return
    begun = time.perf_counter()
    rows = {name: read_rows(folder / f"{name}_k4.jsonl.gz") for name in ("val", "test")}
    print(f"ParetoBandit: {len(rows['val'])} prompts of validation, {len(rows['test'])} of test")
    budgets(rows)
    learners_under_budgets(rows, options.replications)
    print(f"\n{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
