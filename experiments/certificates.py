r"""What labelled sets certify, how much each way to decide then answers, whether fusing helps.

Markdown tables.

    python experiments/certificates.py \
        broker=out/broker/trace.parquet:datasets/broker/policy.yaml squad=out/squad.parquet

Each set is given as name=trace or name=trace:policy, its cases with splits tune, certify and
report. On tune the fused gate and the decision by expected cost are fitted and the candidates are
ordered; certify is looked at twice, first for the published targets, then for the lowest
hallucination rate that tune lets one hope for; report judges. The table of ways to decide looks at
certify once more for each way and target.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from raglab import Policy, Trace, certify_best, check_policy, fit_decision, fit_fused_gate, sweep
from raglab.lab import always_answer, compare_gates
from raglab.lab.certification import Certification
from raglab.lab.certification_families import grid
from raglab.lab.certified_losses import count_rates, nearest_target
from raglab.lab.search_space import published_policy
from raglab.metrics import TARGETS, upper_bound

DELTA = 0.1
CHAIN, FUSED = "published chain", "fused"  # gates of `compare_gates`
ALONE = ("hallucination_rate",)
LEVELS = (0.4, 0.3, 0.2, 0.1)  # hallucination rates that each way to decide is certified for


class CaseSet(NamedTuple):
    """One set: its name, trace and the policy whose patterns it takes."""

    name: str
    trace: Trace
    policy: Policy


def read_set(text: str) -> CaseSet:
    """Set of an argument."""
    name, _, rest = text.partition("=")
    path, _, policy = rest.partition(":")
    return CaseSet(name, Trace.load(path), Policy.load(policy or None))


def share(row: Mapping[str, object], rate: str) -> str:
    """Rate of a sweep with its counts and exact one-sided upper bound."""
    k, n = int(str(row[f"{rate}_k"])), int(str(row[f"{rate}_n"]))
    return f"{k}/{n}, ≤ {float(upper_bound(k, n, DELTA)):.3f}" if n else "–"


def outcome(certification: Certification, trace: Trace) -> str:
    """Certificate or reason, and what the report split says of it."""
    certificate = certification.certificate
    promise_text = ", ".join(
        f"{promise.name.removesuffix('_rate')} {promise.k:g}/{promise.n} ≤ {promise.bound:.3f}"
        for promise in certificate.promises
    )
    if certification.policy is None:
        return f"no: the safest candidate has {promise_text}"
    again = check_policy(trace.split("report"), certification.policy)
    report_rates = ", ".join(f"{row.k}/{row.n}" for row in again.table.itertuples())
    return (
        f"**yes**, coverage {certificate.coverage:.3f}: {promise_text}; on report {again.verdict} "
        f"({report_rates})"
    )


def certificates(sets: list[CaseSet], fused: Mapping[str, Policy]) -> None:
    """Print what each set certifies."""
    print(
        "\n| set, certify cases | published defaults | 10 % / 1 % together | nearest by tune | "
        "certificate for it |"
    )
    print("|---|---|---|---|---|")
    for case_set in sets:
        row = sweep(case_set.trace.split("certify"), [published_policy(case_set.policy)]).to_dict(
            "records"
        )[0]
        defaults = (
            f"false refusals {share(row, 'false_refusal_rate')}; hallucinations "
            f"{share(row, 'hallucination_rate')}"
        )
        with tempfile.TemporaryDirectory() as folder:
            looks = Path(folder) / "looks.jsonl"
            first = certify_best(
                case_set.trace, fused[case_set.name], targets=TARGETS, delta=DELTA, looks=looks
            )
            targets, near, chance = dict(TARGETS), first.nearest, first.chance
            if near != near:  # noqa: PLR0124 - NaN: out of reach beside the other target
                targets = {name: TARGETS[name] for name in ALONE}
                tune, policy = case_set.trace.split("tune"), fused[case_set.name]
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
                certification = certify_best(
                    case_set.trace,
                    fused[case_set.name],
                    targets=targets,
                    delta=DELTA,
                    looks=looks,
                    again=True,
                )
                second = (
                    f"{outcome(certification, case_set.trace)} (look "
                    f"{certification.certificate.looks})"
                )
        beside = ", false refusals ≤ 0.1" if len(targets) > 1 else " alone"
        hoped = (
            f"hallucinations ≤ {near:g} (probability {chance:.2f}){beside}"
            if near == near  # noqa: PLR0124
            else "none is likely"
        )
        cells = (
            f"{case_set.name}, {first.certificate.cases}",
            defaults,
            outcome(first, case_set.trace),
            hoped,
            second,
        )
        print("| " + " | ".join(cells) + " |")


def families(case_set: CaseSet, fused: Policy) -> dict[str, list[Policy]]:
    """Candidates of each way to decide.

    One family of policies each, declared before split certify is looked at.
    """
    tune, bare = case_set.trace.split("tune"), always_answer(case_set.policy)
    gate = always_answer(fused).replace("fused.enabled", True)
    confidence = bare.replace("signals", {"confidence": {"min": 0.0}})
    return {
        "chain": grid(tune, case_set.policy),
        "confidence alone": grid(tune, confidence),
        "fused gate alone": grid(tune, gate, paths=["fused.min_fused"]),
        "expected cost": grid(tune, fit_decision(case_set.trace, case_set.policy)),
    }


def level(candidates: list[Policy], trace: Trace, alpha: float, looks: Path) -> str:
    """What one family certifies at one target: coverage, over-ask, errors.

    And what the report split says.
    """
    targets = {ALONE[0]: alpha}
    certification = certify_best(
        trace, candidates, targets=targets, delta=DELTA, looks=looks, again=True
    )
    certificate, first = certification.certificate, certification.certificate.promises[0]
    if certification.policy is None:
        return f"no ({first.k:g}/{first.n})"
    again = check_policy(trace.split("report"), certification.policy)
    k, n = (int(again.table[column].iloc[0]) for column in ("k", "n"))
    asks = f", asks {certificate.over_ask:.3f}" if certificate.over_ask else ""
    return (
        f"**{certificate.coverage:.3f}**{asks}, {first.k:g}/{first.n}; {again.verdict} "
        f"{again.coverage:.3f}, {k}/{n}"
    )


def coverages(sets: list[CaseSet], fused: Mapping[str, Policy]) -> None:
    """Print the coverage that each way to decide certifies at each hallucination rate."""
    heads = " | ".join(f"≤ {100 * alpha:.0f} %" for alpha in LEVELS)
    print(f"\n| set, cases (tune, certify, report); always answering errs | decides | {heads} |")
    print("|---|---" + "|---" * len(LEVELS) + "|")
    for case_set in sets:
        sizes = ", ".join(
            str(len(case_set.trace.split(name))) for name in ("tune", "certify", "report")
        )
        free = sweep(case_set.trace.split("certify"), [always_answer(case_set.policy)]).iloc[0]
        errs = f"{free['hallucination_rate_k']:g}/{free['hallucination_rate_n']:g}"
        set_cell = f"{case_set.name}, {sizes}; {errs}"
        with tempfile.TemporaryDirectory() as folder:
            for place, (name, candidates) in enumerate(
                families(case_set, fused[case_set.name]).items()
            ):
                cells = [
                    level(candidates, case_set.trace, alpha, Path(folder) / "looks.jsonl")
                    for alpha in LEVELS
                ]
                print(f"| {'' if place else set_cell} | {name} | {' | '.join(cells)} |", flush=True)


def print_gates(case_set: CaseSet, policy: Policy, method: str) -> None:
    """Print the fused gate beside the best single one and the published chain."""
    table = compare_gates(case_set.trace.split("report"), policy)
    rows = table.set_index("gate")
    best = next(name for name in rows.index if name not in {FUSED, CHAIN})
    low, high = (float(rows.loc[best, end]) for end in ("low", "high"))
    chain = rows.loc[CHAIN]
    cells = (
        f"{case_set.name}, {len(case_set.trace.split('report'))}",
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets",
        nargs="+",
        type=read_set,
        help="name=trace.parquet or name=trace.parquet:policy.yaml",
    )
    sets: list[CaseSet] = parser.parse_args().sets
    fused = {
        case_set.name: fit_fused_gate(case_set.trace, case_set.policy).policy for case_set in sets
    }
    print(
        "| set, report cases | fused by | AURC fused | best single | difference [95 %] | "
        "published chain | "
        "coverage at its risk: fused; single | risk at its coverage: fused; single |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case_set in sets:
        print_gates(case_set, fused[case_set.name], "logistic")
        print_gates(
            case_set,
            fit_fused_gate(case_set.trace, case_set.policy, method="boosting").policy,
            "boosting",
        )
    certificates(sets, fused)
    coverages(sets, fused)


if __name__ == "__main__":
    main()
