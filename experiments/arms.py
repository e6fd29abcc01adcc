"""The four arms on a set, by intent.

And what each further depth of the refine loop gains and costs.

    python experiments/arms.py [folder for the two traces, out where not given] [--data FOLDER]

FOLDER is what `raglab trace` takes, with its own `policy.yaml` or under the published one; the
bundled set where not given.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

import raglab
from raglab.values import Status, map_fields

ARMS = ("hybrid", "iterative", "graph", "table")
DEPTHS = 3
# the rate at which arms are compared: about half of what answering everything gives
HALLUCINATION = 0.40
LEVEL = "confidence.tau_default", "confidence.tau_explicit"


def policy_of(data: Path) -> raglab.Policy:
    """The set's own policy, or the published one."""
    path = data / "policy.yaml"
    return raglab.Policy.load(path) if path.is_file() else raglab.Policy.from_mapping({})


def trace_of(data: Path, out: Path, arms: tuple[str, ...], max_depth: int) -> raglab.Trace:
    """Arms and depths of the set's questions."""
    policy = policy_of(data)
    corpus, cases = raglab.load_corpus(data), raglab.load_cases(data)
    return raglab.build_trace(corpus, cases, out=out, policy=policy, arms=arms, max_depth=max_depth)


def at_rate(trace: raglab.Trace, policy: raglab.Policy, arm: str) -> tuple[raglab.Policy, float]:
    """Policy with no gate but the confidence, at the lowest tau that keeps the hallucination rate.

    And that tau.
    """
    base = raglab.lab.always_answer(policy).replace(
        "confidence.enabled", True, "refine.max_depth", 0
    )
    taus = np.unique(raglab.decide(trace, base, arm=arm).confidence())
    policies = [base.replace(LEVEL[0], float(tau), LEVEL[1], float(tau)) for tau in taus]
    rates = raglab.sweep(trace, policies, arm=arm)["hallucination_rate"].to_numpy()
    first = int(np.flatnonzero(rates <= HALLUCINATION)[0])
    return policies[first], float(taus[first])


def by_intent(trace: raglab.Trace, policy: raglab.Policy) -> None:
    """Table of arms by intent."""
    intents = sorted(
        {
            case.intent
            for case in trace.cases
            if case.expect_status == "ok" and case.intent is not None
        }
    )
    levels = {arm: at_rate(trace, policy, arm) for arm in ARMS}
    decisions_by_arm = {
        arm: raglab.decide(trace, level, arm=arm) for arm, (level, _) in levels.items()
    }
    print(
        "\n## Arms by intent, answerable cases; ok rate at hallucination rate "
        f"{HALLUCINATION:.0%} over all cases\n"
    )
    print(
        "| intent | n | "
        + " | ".join(f"{arm}: hit@5, nDCG@10, ok" for arm in ARMS)
        + " | best nDCG@10 | best ok |"
    )
    print("|---" * (len(ARMS) + 4) + "|")
    for intent in [*intents, None]:
        rows = [
            row
            for row, case in enumerate(trace.cases)
            if case.expect_status == "ok" and (intent is None or case.intent == intent)
        ]
        table = raglab.lab.ranking(trace.subset(rows)).query("order == 'final'").set_index("arm")
        cells, ok = [], {}
        for arm in ARMS:
            decided = decisions_by_arm[arm]
            good = int((decided.right[rows] & (decided.status[rows] == Status.ok)).sum())
            ok[arm] = good
            cells.append(
                f"{table.loc[arm, 'hit@5']:.3f}, {ndcg_of(table)[arm]:.3f}, {good}/{len(rows)}"
            )
        best = [arm for arm in ARMS if ndcg_of(table)[arm] == ndcg_of(table).max()]
        most = [arm for arm in ARMS if ok[arm] == max(ok.values())]
        print(
            f"| {intent or 'all'} | {len(rows)} | {' | '.join(cells)} | {', '.join(best)} | "
            f"{', '.join(most)} |"
        )
    print(
        "\n| arm | tau | hallucinations | coverage | mean ms | P95 ms | dearest stages (mean ms) |"
    )
    print("|---" * 7 + "|")
    for arm in ARMS:
        decided, tau = decisions_by_arm[arm], levels[arm][1]
        answered = decided.status == Status.ok
        wrong = int((answered & ~decided.right).sum())
        print(
            f"| {arm} | {tau:.1f} | {wrong}/{int(answered.sum())} | {answered.mean():.3f} | "
            f"{latency(trace, arm, 1)} |"
        )


def latency(trace: raglab.Trace, arm: str, depths: int) -> str:
    """Mean and P95 of what the first depths of an arm took, and its dearest stages."""
    timing = trace.latency
    if timing is None:
        return "– | – | –"
    ms = timing.ms[:, trace.arm(arm), :depths]
    total = np.nansum(ms, axis=(1, 2))
    stages = {
        name: float(np.nanmean(ms[..., at]))
        for at, name in enumerate(timing.stages)
        if not np.isnan(ms[..., at]).all()
    }
    dearest = sorted(stages.items(), key=lambda pair: -pair[1])[:3]
    named = ", ".join(f"{name} {mean:.1f}" for name, mean in dearest)
    return f"{total.mean():.1f} | {np.quantile(total, 0.95):.1f} | {named}"


def ndcg_of(table: pd.DataFrame) -> pd.Series:
    """nDCG@10 of every arm, by grades where a set has them."""
    return table[next(name for name in table.columns if name.startswith("nDCG"))]


def refinement(trace: raglab.Trace, published: raglab.Policy) -> None:
    """Table of depths: what each further one gains and costs."""
    rows = [row for row, case in enumerate(trace.cases) if case.expect_status == "ok"]
    part = trace.subset(rows)
    print("\n## Refine loop: what a depth finds by itself, answerable cases\n")
    print("| arm | depth | hit@5 | nDCG@10 | mean confidence |\n|---|---|---|---|---|")
    for arm, depth in product(trace.arms, range(DEPTHS + 1)):
        hits = map_fields(part.hits, lambda field, depth=depth: field[:, :, [depth]])
        only = raglab.Trace(part.cases, part.chunks, part.arms, hits, part.pattern_hits, part.meta)
        table = raglab.lab.ranking(only).query("order == 'final'").set_index("arm")
        base = raglab.lab.always_answer(published)
        confidence = raglab.decide(only, base, arm=arm).confidence().mean()
        print(
            f"| {arm} | {depth} | {table.loc[arm, 'hit@5']:.3f} | {ndcg_of(table)[arm]:.3f} | "
            f"{confidence:.1f} |"
        )
    print("\n## Refine loop: what the loop decides, all cases, every gate but confidence off\n")
    head = (
        "arm",
        "tau",
        "max_depth",
        "false refusals",
        "hallucinations",
        "answered",
        "retrievals a question",
        "mean ms",
    )
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for arm, tau in product(("hybrid", "iterative"), (65.0, 75.0)):
        for depth in range(DEPTHS + 1):
            policy = raglab.lab.always_answer(published).replace(
                *(
                    "confidence.enabled",
                    True,
                    LEVEL[0],
                    tau,
                    LEVEL[1],
                    tau,
                    "refine.max_depth",
                    depth,
                )
            )
            rates = raglab.sweep(trace, [policy], arm=arm).iloc[0]
            decided = raglab.decide(trace, policy, arm=arm)
            tries = decided.outcome.depth.astype(int) + 1
            ms = 0.0 if trace.latency is None else np.nanmean(spent(trace, arm, tries))
            print(
                f"| {arm} | {tau:g} | {depth} | {rates.false_refusal_rate_k:.0f}/"
                f"{rates.false_refusal_rate_n:.0f} "
                f"| {rates.hallucination_rate_k:.0f}/{rates.hallucination_rate_n:.0f} "
                f"| {rates.coverage_k:.0f}/{rates.coverage_n:.0f} | {tries.mean():.2f} | {ms:.1f} |"
            )


def spent(trace: raglab.Trace, arm: str, tries: np.ndarray) -> list[float]:
    """Milliseconds that each question took for so many tries."""
    ms = trace.latency.ms[:, trace.arm(arm)]
    return [float(np.nansum(ms[row, : int(n)])) for row, n in enumerate(tries)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", default=Path("out"))
    parser.add_argument("--data", type=Path, default=Path("datasets/broker"))
    args = parser.parse_args()
    stated = policy_of(args.data)
    by_intent(trace_of(args.data, args.out / "arms.parquet", ARMS, 0), stated)
    refinement(
        trace_of(args.data, args.out / "depths.parquet", ("hybrid", "iterative"), DEPTHS), stated
    )
