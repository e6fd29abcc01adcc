"""Bandits over the arms of the bundled set: reward audit, study, regret beside what learns nothing.

And GSM8K.

    # a trace of several arms, out/arms.parquet where not given
    python experiments/bandits.py [TRACE] [--policy POLICY.yaml]
    python experiments/bandits.py --gsm8k DATA/routellm-gsm8k/gsm8k_responses.csv
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import raglab
from raglab.bandit import LEARNERS, Bandit, Table, baselines
from raglab.lab import ndcg_by_case

BUNDLED = Path("datasets/broker/policy.yaml")
TUNED = Path("out/broker/tuned.yaml")
GSM_FEATURES = ("intercept", "words", "figures", "sentences", "dollars", "percent")


def cell(row: pd.Series, name: str, digits: int = 3, sign: str = "") -> str:
    """Value with its interval, or a dash."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if np.isnan(value):
        return "–"
    shown = f"{value + 0.0:{sign}.{digits}f}"
    if np.isnan(low):
        return f"{shown} (too few)"
    return f"{shown} ({low + 0.0:{sign}.{digits}f} to {high + 0.0:{sign}.{digits}f})"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def audit(
    trace: raglab.Trace, policy: raglab.Policy, title: str, value: np.ndarray | None = None
) -> None:
    """Tables and findings of a reward audit."""
    reward_audit = raglab.audit_rewards(trace, policy, value=value)
    what = "right" if value is None else "nDCG@10 (sum)"
    print(f"\n## Reward audit: {title}\n")
    rows = [
        [row["policy"], cell(row, "value"), cell(row, "difference", 3, "+"), row["verdict"] or "–"]
        for _, row in reward_audit.simulation.iterrows()
    ]
    markdown(("policy", "value at the end", "the learner minus it", "the learner is"), rows)
    print()
    rows = [
        [
            row["arm"],
            f"{row['n']}",
            cell(row, "mean_reward"),
            cell(row, "success_share"),
            cell(row, "mean_value"),
        ]
        for _, row in reward_audit.arms.iterrows()
    ]
    markdown(("arm", "cases", "mean reward", "successes", "mean value"), rows)
    print()
    rows = [
        [
            row["signal"],
            cell(row, "pearson"),
            cell(row, "spearman"),
            cell(row, "concordance"),
            f"{row['pairs']}",
        ]
        for _, row in reward_audit.correlations.iterrows()
    ]
    markdown(("signal", "Pearson", "Spearman", "concordance within a question", "pairs"), rows)
    print()
    rows = [
        [
            row["policy"],
            f"{row['right']:.1f} of {row['n']}",
            cell(row, "regret", 1),
            cell(row, "behind", 1, "+"),
        ]
        for _, row in reward_audit.policies.iterrows()
    ]
    markdown(
        (
            "policy",
            what,
            "lost against the best arm of each case",
            "lost against the best fixed arm",
        ),
        rows,
    )
    print("\n" + "\n".join(f"- {note}" for note in reward_audit.notes))


def gains(trace: raglab.Trace) -> tuple[raglab.Trace, np.ndarray]:
    """Cases that expect a source, and nDCG@10 of each of them under every arm, [Q, A]."""
    rows = [
        row
        for row, case in enumerate(trace.cases)
        if case.expect_sources or case.expect_sources_any
    ]
    return trace.subset(rows), ndcg_by_case(trace)[rows]


def compared(
    world: Table, plans: dict[str, np.ndarray], title: str, rounds: int, replications: int
) -> None:
    """Table of all learners and baselines."""
    names = [
        name for name, entry in LEARNERS.items() if world.features.shape[1] or not entry.linear
    ]
    begun = time.perf_counter()
    comparison = raglab.compare_learners(
        world,
        {name: Bandit(name) for name in names},
        plans,
        rounds=rounds,
        replications=replications,
    ).table
    took = time.perf_counter() - begun
    print(f"\n## {title}; {rounds} rounds, {replications} replications, {took:.1f} s\n")
    rows = [
        [
            row["policy"],
            cell(row, "right"),
            cell(row, "regret", 0),
            cell(row, "difference", 3, "+"),
            "–" if np.isnan(row["ms"]) else f"{row['ms']:.1f}",
            ", ".join(f"{arm} {100 * row[f'pulls_{arm}']:.0f}" for arm in world.arms),
        ]
        for _, row in comparison.iterrows()
    ]
    head = (
        "policy",
        "right",
        "regret in all rounds",
        "right minus the best fixed arm",
        "ms",
        "pulls (%)",
    )
    markdown(head, rows)


def study(
    trace: raglab.Trace, policy: raglab.Policy, title: str, trials: int, mlruns: Path
) -> None:
    """Table of what the study found, on the cases that it did not see.

    The study is logged to MLflow.
    """
    begun = time.perf_counter()
    bandit_study = raglab.tune_bandit(trace, policy, trials=trials)
    took = time.perf_counter() - begun
    print(f"\n## Study of thompson_beta, {trials} trials: {title}; {took:.0f} s\n")
    rows = [
        [row["policy"], cell(row, "right"), cell(row, "difference", 3, "+"), f"{row['ms']:.1f}"]
        for _, row in bandit_study.comparison.iterrows()
    ]
    markdown(("policy", "right", "right minus tuned", "ms"), rows)
    print("\n" + "\n".join(f"- {note}" for note in bandit_study.notes))
    print("- found: " + ", ".join(bandit_study.env().split()))
    print(f"- MLflow run {bandit_study.track(mlruns).run_id} in {mlruns}")


def gsm8k(path: Path) -> Table:
    """Two language models as arms.

    The learner sees whether the answer was right, and the prompt before it chooses.
    """
    rows = pd.read_csv(path)
    models = [name for name in rows if rows[name].dtype == bool]
    value = rows[models].to_numpy(dtype=np.float64)
    features = []
    for prompt in rows["prompt"]:
        words, figures = len(prompt.split()), len(re.findall(r"\d+(?:[.,]\d+)*", prompt))
        sentences = len(re.findall(r"[.?!](?:\s|$)", prompt))
        features.append(
            (
                1.0,
                words / 50,
                figures / 5,
                sentences / 4,
                float("$" in prompt),
                float("%" in prompt),
            )
        )
    unknown = np.full(value.shape, np.nan)
    arms = tuple(name.rpartition("/")[2] for name in models)
    return Table(
        arms,
        value,
        value,
        np.ones(value.shape, dtype=bool),
        np.array(features),
        GSM_FEATURES,
        unknown,
    )


def bundled(path: Path, policy_path: Path | None, trials: int, mlruns: Path) -> None:
    """Everything about a trace."""
    trace, base = raglab.Trace.load(path), raglab.Policy.load(BUNDLED)
    policies = {"every gate off": raglab.lab.always_answer(base)}
    for place in (policy_path, TUNED):
        if place is not None and place.is_file():
            policies[str(place)] = raglab.Policy.load(place)
    for title, policy in policies.items():
        audit(trace, policy, f"{title}, {len(trace)} cases")
    part, value = gains(trace)
    audit(
        part,
        policies["every gate off"],
        f"nDCG@10 as the value, {len(part)} cases that expect a source",
        value,
    )
    for title, policy in policies.items():
        tables = raglab.lab.arm_tables(trace, policy)
        compared(
            tables.world, baselines(tables.world, tables.router), f"Bundled set, {title}", 5000, 100
        )
    tables = raglab.lab.arm_tables(part, policies["every gate off"])
    world = tables.world._replace(value=value)
    plans = baselines(world, tables.router)
    compared(world, plans, f"Bundled set, nDCG@10 as the value, {len(part)} cases", 5000, 100)
    for title, policy in policies.items():
        study(trace, policy, title, trials, mlruns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", nargs="?", type=Path, default=Path("out/arms.parquet"))
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--mlruns", type=Path, default=Path("mlruns"))
    parser.add_argument("--gsm8k", type=Path)
    options = parser.parse_args()
    if options.gsm8k is None:
        bundled(options.trace, options.policy, options.trials, options.mlruns)
    else:
        maths = gsm8k(options.gsm8k)
        heading = (
            f"RouteLLM's GSM8K table, {len(maths.value)} questions, {' and '.join(maths.arms)}"
        )
        compared(maths, baselines(maths), heading, 5000, 100)
