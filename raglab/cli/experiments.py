"""Command line (shore): simulate, certify, check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raglab.bandit import LEARNERS
from raglab.cli.baselines import (
    BaselineOptions,
    BaselinePath,
    MinEffect,
    SavedBaseline,
    TestedRates,
    run_baseline,
    stated_retrieval,
)
from raglab.cli.common import (
    Arm,
    AsJson,
    CostOptions,
    Encoder,
    FollowLinks,
    MixOption,
    PolicyPath,
    Reranker,
    Seed,
    Split,
    TargetOptions,
    TraceOrFolder,
    json_records,
    keep_inputs,
    load_policy,
    load_trace,
    open_trace,
    parse_costs,
    parse_mix,
    parse_numbers,
    parse_targets,
    say,
    say_json,
    say_notes,
    show_result,
    table_text,
    write_csv,
)
from raglab.store.files import make_folder, read_json

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.learner_comparison import LearnerComparison
    from raglab.reward import RewardWeights
    from raglab.store.policies import Policy
    from raglab.store.traces import StudyTrace, Trace

BUDGET_MS = 8000.0


def simulate(
    path: Annotated[
        Path | None,
        typer.Argument(help="Trace of several arms (`raglab trace --arm …`); none with --means."),
    ] = None,
    policy: PolicyPath = None,
    bandit: Annotated[
        list[str],
        typer.Option("--bandit", "-b", help=f"{', '.join(LEARNERS)}. Repeatable."),
    ] = ["thompson_beta", "ucb1"],  # noqa: B006 - typer reads it, nothing changes it
    means: Annotated[
        str | None, typer.Option(help="Bernoulli arms instead of a trace, such as 0.7,0.6,0.5.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Questions per replication.")
    ] = 2000,
    replications: Annotated[
        int, typer.Option(min=1, max=100_000, help="Independent simulations.")
    ] = 100,
    seed: Seed = 0,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Of the reward: five numbers such as 0.4,0.1,0.2,0.1,0.2, or a JSON file by name."
        ),
    ] = None,
    always_answer: Annotated[
        bool, typer.Option("--always-answer", help="Switch every gate off.")
    ] = False,
    budget_ms: Annotated[
        float, typer.Option(min=0.001, max=1e12, help="Milliseconds that a question may take.")
    ] = BUDGET_MS,
    split: Split = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV, a row a learner and replication.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate bandits on questions whose right arm is known: months of traffic in seconds.

    `right`: share of right decisions. `regret`: right decisions (of --means: expected reward) lost
    in all rounds against the best arm. `difference`: right minus that of the best fixed arm. `ms`:
    mean retrieval. `pulls`: shares of the rounds. Brackets are 95 % intervals. Learners see
    rewards, never labels; the best fixed arm and the oracle know the labels.
    """
    # Arms of --means have no cases: these options would change nothing, so they are refused, not
    # ignored.
    of_traces = {
        "--policy": policy is not None,
        "--weights": weights is not None,
        "--always-answer": always_answer,
        "--budget-ms": budget_ms != BUDGET_MS,
        "--split": split is not None,
    }
    stated = ", ".join(option for option, is_stated in of_traces.items() if is_stated)
    if (path is None) == (means is None) or (means is not None and stated):
        value = stated if path is None and stated else "both or none"
        msg = f"simulate must have a trace, or --means without options of traces, got {value}."
        raise ValueError(msg)
    keep_inputs(out, path, policy)
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed}
    if path is None:
        comparison, facts = _simulated_means(means or "", bandit, sizes)
    else:
        trace, chosen = load_trace(path, split), load_policy(policy)
        comparison, facts = _simulated_trace(
            trace, chosen, bandit, sizes, _weights(weights), budget_ms, always_answer=always_answer
        )
    # The file has a row per replication; the printed table has their means and intervals.
    write_csv(_replication_rows(comparison), out)
    tables = {"policies": comparison.table}
    show_result(facts, tables, comparison.notes, as_json=as_json)


def _simulated_means(
    means: str, names: Sequence[str], sizes: dict[str, Any]
) -> tuple[LearnerComparison, dict[str, Any]]:
    """Learners on Bernoulli arms, and the facts of the simulation."""
    import numpy as np

    from raglab.bandit import Bandit
    from raglab.displays.bandits import lai_robbins
    from raglab.lab.learner_comparison import compare_on_arms

    if linear := [name for name in names if name.startswith("lin_")]:
        msg = f"arms of --means have no context to learn from, got {linear[0]}; choose another."
        raise ValueError(msg)
    known = np.array(parse_numbers(means, "--means", "0.7,0.6,0.5"))
    comparison = compare_on_arms(known, {name: Bandit(name) for name in names}, **sizes)
    facts = {"arms": means, **sizes}
    if ((known > 0.0) & (known < 1.0)).all() and len(set(known)) > 1:
        # what no good learner loses less than in the long run (Lai and Robbins)
        facts["least regret"] = f"{lai_robbins(known):.4g} · ln(rounds)"
    return comparison, facts


def _simulated_trace(
    trace: Trace,
    policy: Policy,
    names: Sequence[str],
    sizes: dict[str, Any],
    weights: RewardWeights,
    budget_ms: float,
    *,
    always_answer: bool,
) -> tuple[LearnerComparison, dict[str, Any]]:
    """Learners on the cases of a trace, and the facts of the simulation."""
    from raglab.bandit import Bandit
    from raglab.bandit.fixed_plans import FIXED_PLAN, ORACLE_PLAN, baselines, best_fixed_arm
    from raglab.lab.learner_comparison import compare_learners
    from raglab.lab.untuned_policies import always_answer as opened
    from raglab.live.arm_choice import router, table

    # With the gates off every question is answered, so that the arms differ by what they find
    # alone.
    policy = opened(policy) if always_answer else policy
    world = table(trace, policy, weights, budget_ms=budget_ms)
    # The router decides by the policy that is simulated, so that its row is what runs without a
    # bandit.
    plans = baselines(world, router(trace, policy))
    comparison = compare_learners(world, {name: Bandit(name) for name in names}, plans, **sizes)
    facts = {"cases": len(world.mask), "arms": ", ".join(world.arms), **sizes}
    # None where no arm is available in every case: then the table has no row of a fixed arm.
    best = best_fixed_arm(world)
    if best is not None:
        right = comparison.table.set_index("policy")["right"]
        most = f"{right[ORACLE_PLAN] - right[FIXED_PLAN]:.2%} more right decisions"
        facts |= {FIXED_PLAN: best, "choosing could gain": most}
    return comparison, facts


def _weights(text: str | None) -> RewardWeights:
    """Reward weights of five numbers, or of a JSON file with names."""
    from raglab.reward import COMPONENT_TABLE, COMPONENTS, PUBLISHED, RewardWeights

    if text is None:
        return PUBLISHED
    names = [COMPONENT_TABLE[name].weight for name in COMPONENTS]
    if Path(text).is_file():
        rows = read_json(Path(text), 2**20)
        if not isinstance(rows, dict):
            msg = f"{text} must hold one JSON object of numbers by name."
            raise ValueError(msg)
        stated = {"lambda_" if name == "lambda" else name: rows[name] for name in rows}
    else:
        values = parse_numbers(text, "--weights", "0.4,0.1,0.2,0.1,0.2", exactly=True)
        stated = dict(zip(names, values, strict=True))
    if unknown := stated.keys() - {*RewardWeights._fields}:
        fields = ", ".join(RewardWeights._fields)
        msg = f"weights must be of {fields}, got {min(unknown)!r} in {text}."
        raise ValueError(msg)
    return RewardWeights(**{name: float(value) for name, value in stated.items()})


def _replication_rows(comparison: LearnerComparison) -> pd.DataFrame:
    """One row a learner and replication."""
    import pandas as pd

    names = [str(name) for name in comparison.table if str(name).startswith("pulls_")]
    parts = [
        pd.DataFrame(runs.pulls, columns=names).assign(
            policy=name,
            replication=range(len(runs.regret)),
            value=runs.value[:, -1],
            regret=runs.regret[:, -1],
        )
        for name, runs in comparison.runs.items()
    ]
    return pd.concat(parts, ignore_index=True)[["policy", "replication", "value", "regret", *names]]


NOT_KEPT, OPEN = 3, 4
RISK = "hallucination_rate"
Looks = Annotated[
    Path | None,
    typer.Option(help="Record of certifications. Default: `looks.jsonl` beside the trace."),
]
Again = Annotated[bool, typer.Option("--again", help="Allow cases that a certificate used before.")]


def certify(
    path: TraceOrFolder,
    policy: Annotated[
        list[Path] | None,
        typer.Option("--policy", "-p", help="Policy YAML. Repeatable with --best."),
    ] = None,
    target: TargetOptions = None,
    cost: CostOptions = None,
    mix: MixOption = None,
    best: Annotated[
        bool,
        typer.Option("--best", help="The cheapest that passes, of several or of one's family."),
    ] = False,
    delta: Annotated[
        float,
        typer.Option(help="Error probability: 0.1 certifies at 90 % confidence."),
    ] = 0.1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Policy to write.")] = None,
    arm: Arm = None,
    again: Again = False,
    looks: Looks = None,
    as_json: AsJson = False,
) -> None:
    """Test on split certify whether a policy keeps its targets, with a finite-sample guarantee."""
    from raglab.lab.certification import certify_best, certify_policy
    from raglab.lab.certification_words import certificate_lines

    targets, costs, files = parse_targets(target), parse_costs(cost), policy or []
    # Before the cases are looked at: a look counts, even where its policy could not be written.
    keep_inputs(out, path, *files, looks)
    keep_inputs(looks, path, *files, option="--looks")
    if not targets or not files or (len(files) > 1 and not best):
        msg = (
            "certify must have a --target and one --policy (several with --best), got "
            f"{len(targets)} and {len(files)}; such as -p policy.yaml -t hallucination_rate=0.1."
        )
        raise ValueError(msg)
    trace = open_trace(path)
    offered = [load_policy(file) for file in files]
    # A link has looks of its own beside it; a folder that has no name of its own, such as `.`, is
    # looked up.
    beside = path if path.name not in {"", ".."} else path.resolve()
    terms: dict[str, Any] = {
        "targets": targets,
        "costs": costs,
        "delta": delta,
        "arm": arm,
        "again": again,
        "mix": parse_mix(mix),
        "looks": looks if looks is not None else beside.with_name("looks.jsonl"),
    }
    # One policy, not a list of one, stands for the family of its thresholds.
    family = offered if len(offered) > 1 else offered[0]
    result = (
        certify_best(trace, family, **terms) if best else certify_policy(trace, offered[0], **terms)
    )
    if result.policy is not None and out is not None:
        make_folder(out.parent)
        result.policy.save(out)
    if as_json:
        parts = {
            "certificate": result.certificate.rows,
            "notes": result.notes,
            "tested": json_records(result.table),
        }
        say_json(parts, indent=2)
    else:
        say_notes(certificate_lines(result))
        if result.policy is not None and out is not None:
            say(f"policy:  {out} (policy_id {result.policy.policy_id})")
        # The diagnosis is of signals against wrong answers: it explains this target alone.
        if result.policy is None and RISK in targets:
            _say_why(trace, offered[0], targets[RISK], delta, arm)
    # Last, so that a failed certificate prints what was tested.
    if result.policy is None:
        raise typer.Exit(NOT_KEPT)


def _say_why(
    trace: StudyTrace, policy: Policy, alpha: float, delta: float, arm: str | None
) -> None:
    """Print what each signal could carry, on cases that the certificate does not need.

    Of very many on a sample.
    """
    from raglab.lab.gate_fitting import case_signals
    from raglab.lab.study_cases import candidate_cases
    from raglab.lab.targets import diagnosis

    counts = trace.counted()
    pilot, split = "tune" in counts, "certify" in counts
    cases = trace.split("tune") if pilot else trace
    signals = case_signals(candidate_cases(cases, 0), policy, arm, directions=("surer", "ask"))
    # The chance is that of all the cases that there are for a certificate, not of those that are
    # looked at here.
    size = (sum(counts["certify"].values()) if split else len(trace)) / len(signals.right)
    table = diagnosis(
        signals.right, dict(zip(signals.names, signals.score, strict=True)), alpha, delta, size=size
    )
    where = f"{'split tune' if pilot else 'these cases'}, {len(signals.right):,} of {len(cases):,}"
    say(f"\nsignals at a risk of {alpha:g}, on {where} (-name: less is surer):")
    columns = ["signal", "AUROC", "AUROC_low", "AUROC_high", "coverage", "verdict"]
    say(table_text(table[columns]))


def check(
    policy: Annotated[
        Path, typer.Argument(help="Policy YAML; without a baseline it holds a certificate.")
    ],
    cases: Annotated[
        Path,
        typer.Option("--cases", "-c", help="New labelled questions, or a trace (.parquet)."),
    ],
    corpus: Annotated[
        Path | None,
        typer.Option(help="Documents. Default: the folder of the cases."),
    ] = None,
    split: Split = None,
    encoder: Encoder = None,
    reranker: Reranker = None,
    again: Again = False,
    baseline: BaselinePath = None,
    save_baseline: SavedBaseline = None,
    rate: TestedRates = None,
    min_effect: MinEffect = None,
    cost: CostOptions = None,
    follow_links: FollowLinks = False,
    as_json: AsJson = False,
) -> None:
    """Re-test a policy's certificate on new cases, or compare the policy with a stored baseline."""
    from raglab.lab.certificate_checks import check_policy, retrieve_trace
    from raglab.store.baselines import Baseline
    from raglab.store.traces import MANIFEST

    options = BaselineOptions(
        baseline, save_baseline, rate or (), min_effect, parse_costs(cost), again
    )
    by_baseline, certified = options.has_baseline, load_policy(policy)
    before = None if baseline is None else Baseline.load(baseline)
    # Retrieved as the baseline was, so that a difference is one of the policy; a certificate states
    # its own settings.
    stated = stated_retrieval(certified, before) if by_baseline else None
    # A stored trace is used as it is: its retrieval needs no models.
    trace = (
        open_trace(cases, split)
        if cases.suffix == ".parquet" or (cases / MANIFEST).is_file()
        else retrieve_trace(
            certified,
            corpus or cases.parent,
            cases,
            split=split,
            encoder=encoder,
            reranker=reranker,
            follow_links=follow_links,
            stated=stated,
        )
    )
    if by_baseline:
        if run_baseline(certified, trace, before, options, as_json=as_json):
            raise typer.Exit(NOT_KEPT)
        return
    retest = check_policy(trace, certified, again=again)
    facts = {
        "verdict": retest.verdict,
        "coverage": retest.coverage,
        "over_ask_rate": retest.over_ask,
        "basis": retest.basis,
    }
    show_result(facts, {"targets": retest.table}, retest.notes, as_json=as_json)
    if retest.verdict != "upheld":
        raise typer.Exit(NOT_KEPT if retest.verdict == "broken" else OPEN)


COMMANDS = (
    (
        simulate,
        "raglab simulate out/arms.parquet -p datasets/broker/policy.yaml --bandit thompson_beta",
    ),
    (
        certify,
        (
            "raglab certify out/trace.parquet -p out/fused.yaml -t hallucination_rate=0.5 -o "
            "out/c.yaml"
        ),
    ),
    (check, "raglab check out/c.yaml --cases datasets/broker/cases.jsonl --split report"),
)
