"""Budgets on ParetoBandit's files: chosen on val_k4, judged once on test_k4.

Online play without a budget; GSM8K.

    python experiments/paretobandit.py [--data ../shared/data] [--replications 120]
      [--no-budgets] [--no-online]
    # studies of learners on validation
    python experiments/paretobandit.py --no-budgets --no-online --trials 15

Four language models as arms; a row has the prompt, its source, and every model's reward and cost in
dollars.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raglab import tune_bandit
from raglab.bandit import (
    Bandit,
    Budget,
    Ledger,
    State,
    Table,
    compare_plans,
    fit_priced_policy,
    frontier,
    learned_ledger,
    learned_state,
    play_paced,
    ridge_strength,
    run,
    text_features,
)

MIXTURE = "best fixed mixture"  # row of `compare_plans`
BUDGETS = (1e-4, 2.3e-4, 4e-4, 6.6e-4)  # dollars a question
SHUFFLES, LOGS = 100, 5
COLD, UNIFORM, MEASURED = "cold", "from a uniform log of validation", "from all arms of validation"
SMALL, BUDGET_EXPLORATIONS = 0.1, (0.0, 0.05, 0.2)  # of learners under a budget
ENGINE = "numba" if find_spec("numba") else "numpy"  # the same bits
# What the online search tries on validation; the ridge follows from the data.
COMPONENTS, SPREADS, EXPLORATIONS, PRIOR_MEANS = (
    (0, 32),
    (1.0, 0.1),
    (0.0, 0.02, 0.05, 0.1, 0.2, 0.5),
    (0.5, 1.0),
)


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


def mean_reward(
    bandit: Bandit,
    world: Table,
    replications: int,
    **more: Any,  # noqa: ANN401
) -> tuple[float, float]:
    """A learner's mean reward a round, each row met once, and its error over replications.

    The error is the standard error.
    """
    rounds = len(world.value)
    done = (
        run(bandit, world, rounds=rounds, replications=replications, engine=ENGINE, **more).gross[
            :, -1
        ]
        / rounds
    )
    return float(done.mean()), float(done.std(ddof=1) / np.sqrt(replications))


def rows_of(table: Table, rows: slice) -> Table:
    """Some rows of a table."""
    by_row = ("value", "reward", "mask", "features", "ms")
    cost = table.cost[rows] if table.has_costs else table.cost
    return table._replace(cost=cost, **{name: getattr(table, name)[rows] for name in by_row})


def measured_log(table: Table) -> pd.DataFrame:
    """Log in which every question was put to every arm."""
    rows, arm = np.divmod(np.arange(table.mask.size), table.n_arms)
    log = pd.DataFrame(table.features[rows], columns=table.feature_names)
    return log.assign(action=arm, reward=table.reward.ravel())


def first_state(start: str, table: Table, bandit: Bandit, seed: int) -> State | None:
    """State that a learner begins with.

    None, a uniform log's, or one of every arm's reward on every row.
    """
    if start == COLD:
        return None
    if start == UNIFORM:
        return learned_state(table, bandit, seed=seed)
    return learned_state(measured_log(table), bandit, arms=table.arms, features=table.feature_names)


def played(
    start: str, history: Table, world: Table, bandit: Bandit, replications: int
) -> tuple[float, float]:
    """Mean reward and standard error of plays; with a uniform log, over five of them."""
    if start != UNIFORM:
        return mean_reward(
            bandit, world, replications, seed=1, initial=first_state(start, history, bandit, 0)
        )
    each = replications // LOGS
    means = [
        mean_reward(
            bandit, world, each, seed=seed, initial=first_state(start, history, bandit, seed)
        )[0]
        for seed in range(LOGS)
    ]
    return float(np.mean(means)), float(np.std(means, ddof=1) / np.sqrt(LOGS))


def online(
    tables: Mapping[tuple[int, float], Mapping[str, Table]], title: str, replications: int
) -> None:
    """LinUCB, each row once in random order.

    Settings of each start are those of its best play on validation.

    A start from history is chosen on halves of validation: one is the history, the other is played.
    """
    tried: dict[str, list[tuple[float, tuple[int, float], Bandit]]] = {
        COLD: [],
        UNIFORM: [],
        MEASURED: [],
    }
    for (setting, parts), mean in itertools.product(tables.items(), PRIOR_MEANS):
        val = parts["val"]
        halves = [rows_of(val, slice(first, None, 2)) for first in (0, 1)]
        strength = ridge_strength(val, prior_mean=mean)
        for exploration, start in itertools.product(EXPLORATIONS, tried):
            bandit = Bandit(
                "lin_ucb", exploration=exploration, prior_mean=mean, prior_strength=strength
            )
            pairs = (
                [(val, val)] if start == COLD else [(halves[0], halves[1]), (halves[1], halves[0])]
            )
            plays = [
                played(start, history, world, bandit, replications // 4)[0]
                for history, world in pairs
            ]
            tried[start].append((float(np.mean(plays)), setting, bandit))
    val, test = (tables[next(iter(tables))][name] for name in ("val", "test"))
    fixed = int(np.argmax(val.value.mean(axis=0)))
    print(f"\n## Online, {title}: {len(tried[COLD])} settings tried on validation\n")
    rows = [["best fixed arm of validation", "–", f"{test.value[:, fixed].mean():.4f}", "–", "–"]]
    for start, trials in tried.items():
        best, setting, bandit = max(trials, key=lambda trial: trial[0])
        parts = tables[setting]
        mean_test, error = played(start, parts["val"], parts["test"], bandit, replications)
        settings = (
            f"{setting[0]} components, spread {setting[1]:g}, exploration {bandit.exploration:g}, "
        )
        settings += f"prior_mean {bandit.prior_mean:g}, ridge {bandit.prior_strength:g}"
        rows.append(
            [f"lin_ucb, {start}", f"{best:.4f}", f"{mean_test:.4f}", f"{error:.4f}", settings]
        )
    for name in ("thompson_nig", "ucb1"):
        mean_test, error = mean_reward(Bandit(name), test, replications, seed=1)
        rows.append([f"{name}, cold", "–", f"{mean_test:.4f}", f"{error:.4f}", "default"])
    markdown(("policy", "validation", "test", "standard error over replications", "settings"), rows)


def gsm8k(path: Path) -> dict[tuple[int, float], dict[str, Table]]:
    """Two models on GSM8K: even rows as validation, odd ones as test."""
    rows = pd.read_csv(path)
    models = [name for name in rows if rows[name].dtype == bool]
    tables: dict[tuple[int, float], dict[str, Table]] = {}
    for components, spread in itertools.product(COMPONENTS, SPREADS):
        parts = {"val": rows[::2].reset_index(drop=True), "test": rows[1::2].reset_index(drop=True)}
        fitted = text_features(
            parts["val"]["prompt"].tolist(), components=components, spread=spread
        )
        tables[components, spread] = {}
        for name, part in parts.items():
            features = fitted.frame(part["prompt"].tolist())
            frame = pd.concat([part[models].astype(float), features], axis=1)
            tables[components, spread][name] = Table.from_frame(
                frame, features=list(features), order="shuffled"
            )
    return tables


def studies(rows: Mapping[str, list[dict[str, Any]]], trials: int) -> None:
    """Settings and price of learners, searched on validation by `tune_bandit`, judged on test."""
    tables = featured(rows, 0, SMALL)
    sizes: dict[str, Any] = {"trials": trials, "replications": 5, "rounds": len(rows["val"])}
    lines = []
    for budget, policy in itertools.product(
        (None, Budget(2.3e-4, "$"), Budget(6.6e-4, "$")), ("thompson_nig", "lin_ucb")
    ):
        engine = ENGINE if budget is None else "auto"  # no compiled loop keeps a budget
        study = tune_bandit(
            tables["val"],
            bandit=policy,
            judge=tables["test"],
            budget=budget,
            engine=engine,
            **sizes,
        )
        value = "value" if budget is None else "reward"
        for _, row in study.comparison.iterrows():
            spend = "–" if budget is None else f"{row['of_budget']:.3f}"
            gap = interval(row, "difference", "+.4f")
            amount = "none" if budget is None else f"{budget.per_question:g}"
            lines.append([amount, policy, row["policy"], interval(row, value, ".4f"), spend, gap])
        print(f"\n{policy}, budget {budget}\n", *study.notes, sep="\n- ")
    print("\n## tune_bandit: searched on validation, judged on test\n")
    markdown(
        ("$ a question", "learner", "policy", "reward", "spend of budget", "minus tuned"), lines
    )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--replications", type=int, default=120)
    parser.add_argument("--no-budgets", action="store_true")
    parser.add_argument("--no-online", action="store_true")
    parser.add_argument(
        "--trials", type=int, default=0, help="of each study of a learner; 0 leaves them out"
    )
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
    if not options.no_budgets:
        budgets(rows)
        learners_under_budgets(rows, max(2, options.replications // 6))
    if options.trials:
        studies(rows, options.trials)
    if not options.no_online:
        settings = itertools.product(COMPONENTS, SPREADS)
        online(
            {setting: featured(rows, *setting) for setting in settings},
            "ParetoBandit",
            options.replications,
        )
        path = options.data / "routellm-gsm8k" / "gsm8k_responses.csv"
        if path.is_file():
            online(gsm8k(path), "GSM8K of RouteLLM, two models", options.replications)
    print(f"\n{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
