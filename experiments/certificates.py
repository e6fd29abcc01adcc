r"""What labelled sets certify, how much each way to decide then answers, whether fusing helps; Markdown tables.

    python experiments/certificates.py \
        broker=out/broker/trace.parquet:datasets/broker/policy.yaml squad=out/squad.parquet

Each set is given as name=trace or name=trace:policy, its cases with splits tune, certify and report. On tune the fused
gate and the decision by expected cost are fitted and the candidates are ordered; certify is looked at twice, first for
the published targets, then for the lowest hallucination rate that tune lets one hope for; report judges. The table of
ways to decide looks at certify once more for each way and target.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from raglab.lab.certificate_checks import check_policy
from raglab.lab.certification import Certification, certify_best, grid
from raglab.lab.certified_losses import count_rates, nearest_target
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.gate_fitting import CHAIN, FUSED, compare_gates, fuse
from raglab.lab.search_space import always_answer, published_policy
from raglab.metrics import TARGETS, upper_bound
from raglab.replay import sweep
from raglab.store.policies import Policy
from raglab.store.traces import Trace

DELTA = 0.1
ALONE = ("hallucination_rate",)
LEVELS = (0.4, 0.3, 0.2, 0.1)  # hallucination rates that each way to decide is certified for


class Given(NamedTuple):
    """One set: its name, trace and the policy whose patterns it takes."""

    name: str
    trace: Trace
    policy: Policy


def given(text: str) -> Given:
    """Set of an argument."""
    name, _, rest = text.partition("=")
    path, _, policy = rest.partition(":")
    return Given(name, Trace.load(path), Policy.load(policy or None))


def share(row: Mapping[str, object], rate: str) -> str:
    """Rate of a sweep with its counts and exact one-sided upper bound."""
    k, n = int(str(row[f"{rate}_k"])), int(str(row[f"{rate}_n"]))
    return f"{k}/{n}, ≤ {float(upper_bound(k, n, DELTA)):.3f}" if n else "–"


def outcome(found: Certification, trace: Trace) -> str:
    """Certificate or reason, and what the report split says of it."""
    made = found.certificate
    told = ", ".join(f"{one.name.removesuffix('_rate')} {one.k:g}/{one.n} ≤ {one.bound:.3f}" for one in made.promises)
    if found.policy is None:
        return f"no: the safest candidate has {told}"
    again = check_policy(found.policy, trace.split("report"))
    seen = ", ".join(f"{row.k}/{row.n}" for row in again.table.itertuples())
    return f"**yes**, coverage {made.coverage:.3f}: {told}; on report {again.verdict} ({seen})"


def certificates(sets: list[Given], fused: Mapping[str, Policy]) -> None:
    """Print what each set certifies."""
    print("\n| set, certify cases | published defaults | 10 % / 1 % together | nearest by tune | certificate for it |")
    print("|---|---|---|---|---|")
    for one in sets:
        row = sweep(one.trace.split("certify"), [published_policy(one.policy)]).to_dict("records")[0]
        defaults = (
            f"false refusals {share(row, 'false_refusal_rate')}; hallucinations {share(row, 'hallucination_rate')}"
        )
        with tempfile.TemporaryDirectory() as folder:
            looks = Path(folder) / "looks.jsonl"
            first = certify_best(one.trace, fused[one.name], TARGETS, delta=DELTA, looks=looks)
            targets, near, chance = dict(TARGETS), first.nearest, first.chance
            if near != near:  # noqa: PLR0124 - NaN: out of reach beside the other target
                targets = {name: TARGETS[name] for name in ALONE}
                tune, policy = one.trace.split("tune"), fused[one.name]
                free = count_rates(tune, [always_answer(policy)], ALONE)
                near, chance = nearest_target(
                    count_rates(tune, grid(tune, policy), ALONE),
                    targets,
                    DELTA,
                    size=first.certificate.cases / len(tune),
                    free_rate=float(free.k[0, 0] / free.n[0, 0]),
                )
            second = "–"
            if near == near:  # noqa: PLR0124
                targets["hallucination_rate"] = near
                found = certify_best(one.trace, fused[one.name], targets, delta=DELTA, looks=looks, again=True)
                second = f"{outcome(found, one.trace)} (look {found.certificate.looks})"
        beside = ", false refusals ≤ 0.1" if len(targets) > 1 else " alone"
        hoped = f"hallucinations ≤ {near:g} (probability {chance:.2f}){beside}" if near == near else "none is likely"  # noqa: PLR0124
        cells = (f"{one.name}, {first.certificate.cases}", defaults, outcome(first, one.trace), hoped, second)
        print("| " + " | ".join(cells) + " |")


def families(one: Given, fused: Policy) -> dict[str, list[Policy]]:
    """Candidates of each way to decide: one family of policies each, declared before split certify is looked at."""
    tune, bare = one.trace.split("tune"), always_answer(one.policy)
    gate = always_answer(fused).replace("fused.enabled", True)
    confidence = bare.replace("signals", {"confidence": {"min": 0.0}})
    return {
        "chain": grid(tune, one.policy),
        "confidence alone": grid(tune, confidence),
        "fused gate alone": grid(tune, gate, paths=["fused.min_fused"]),
        "expected cost": grid(tune, fit_decision(one.trace, one.policy)),
    }


def level(candidates: list[Policy], trace: Trace, alpha: float, looks: Path) -> str:
    """What one family certifies at one target: coverage, over-ask, errors; and what the report split says."""
    targets = {ALONE[0]: alpha}
    found = certify_best(trace, candidates, targets, delta=DELTA, looks=looks, again=True)
    made, first = found.certificate, found.certificate.promises[0]
    if found.policy is None:
        return f"no ({first.k:g}/{first.n})"
    again = check_policy(found.policy, trace.split("report"))
    k, n = (int(again.table[column].iloc[0]) for column in ("k", "n"))
    asks = f", asks {made.over_ask:.3f}" if made.over_ask else ""
    return f"**{made.coverage:.3f}**{asks}, {first.k:g}/{first.n}; {again.verdict} {again.coverage:.3f}, {k}/{n}"


def coverages(sets: list[Given], fused: Mapping[str, Policy]) -> None:
    """Print the coverage that each way to decide certifies at each hallucination rate."""
    heads = " | ".join(f"≤ {100 * alpha:.0f} %" for alpha in LEVELS)
    print(f"\n| set, cases (tune, certify, report); always answering errs | decides | {heads} |")
    print("|---|---" + "|---" * len(LEVELS) + "|")
    for one in sets:
        sizes = ", ".join(str(len(one.trace.split(name))) for name in ("tune", "certify", "report"))
        free = count_rates(one.trace.split("certify"), [always_answer(one.policy)], ALONE)
        said = f"{one.name}, {sizes}; {free.k[0, 0]:g}/{free.n[0, 0]}"
        with tempfile.TemporaryDirectory() as folder:
            for place, (name, candidates) in enumerate(families(one, fused[one.name]).items()):
                cells = [level(candidates, one.trace, alpha, Path(folder) / "looks.jsonl") for alpha in LEVELS]
                print(f"| {'' if place else said} | {name} | {' | '.join(cells)} |", flush=True)


def gates(one: Given, policy: Policy, method: str) -> None:
    """Print the fused gate beside the best single one and the published chain."""
    table = compare_gates(one.trace.split("report"), policy)
    rows = table.set_index("gate")
    best = next(name for name in rows.index if name not in {FUSED, CHAIN})
    low, high = (float(rows.loc[best, end]) for end in ("low", "high"))
    chain = rows.loc[CHAIN]
    cells = (
        f"{one.name}, {len(one.trace.split('report'))}",
        method,
        f"{rows.loc[FUSED, 'AURC']:.3f}",
        f"{best} {rows.loc[best, 'AURC']:.3f}",
        f"{rows.loc[best, 'difference']:+.3f} [{low:+.3f}, {high:+.3f}]",
        f"{chain['coverage']:.3f} at risk {chain['risk']:.3f}",
        f"{rows.loc[FUSED, 'coverage']:.3f}; {rows.loc[best, 'coverage']:.3f}",
        f"{rows.loc[FUSED, 'risk']:.3f}; {rows.loc[best, 'risk']:.3f}",
    )
    print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=given, help="name=trace.parquet or name=trace.parquet:policy.yaml")
    sets: list[Given] = parser.parse_args().sets
    fused = {one.name: fuse(one.trace, one.policy).policy for one in sets}
    print("| set, report cases | fused by | AURC fused | best single | difference [95 %] | published chain | "
          "coverage at its risk: fused; single | risk at its coverage: fused; single |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for one in sets:
        gates(one, fused[one.name], "logistic")
        gates(one, fuse(one.trace, one.policy, method="boosting").policy, "boosting")
    certificates(sets, fused)
    coverages(sets, fused)


if __name__ == "__main__":
    main()
