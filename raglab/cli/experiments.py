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
    is_stated_by_option = {
        "--policy": policy is not None,
        "--weights": weights is not None,
        "--always-answer": always_answer,
        "--budget-ms": budget_ms != BUDGET_MS,
        "--split": split is not None,
    }
    stated_options = ", ".join(
        option_name for option_name, is_stated in is_stated_by_option.items() if is_stated
    )
    if (path is None) == (means is None) or (means is not None and stated_options):
        stated_text = stated_options if path is None and stated_options else "both or none"
        message = (
            f"simulate must have a trace, or --means without options of traces, got {stated_text}."
        )
        raise ValueError(message)
    keep_inputs(out, path, policy)
    simulation_sizes: dict[str, Any] = {
        "rounds": rounds,
        "replications": replications,
        "seed": seed,
    }
    if path is None:
        learner_comparison, simulation_facts = _simulated_means(
            means or "", bandit, simulation_sizes
        )
    else:
        trace = load_trace(path, split)
        chosen_policy = load_policy(policy)
        learner_comparison, simulation_facts = _simulated_trace(
            trace,
            chosen_policy,
            bandit,
            simulation_sizes,
            _weights(weights),
            budget_ms,
            always_answer=always_answer,
        )
    # The file has a row per replication; the printed table has their means and intervals.
    write_csv(_replication_rows(learner_comparison), out)
    tables = {"policies": learner_comparison.table}
    show_result(simulation_facts, tables, learner_comparison.notes, as_json=as_json)


def _simulated_means(
    means: str, bandit_names: Sequence[str], simulation_sizes: dict[str, Any]
) -> tuple[LearnerComparison, dict[str, Any]]:
    """Learners on Bernoulli arms, and the facts of the simulation."""
    import numpy as np

    from raglab.bandit import Bandit
    from raglab.displays.bandits import lai_robbins
    from raglab.lab.learner_comparison import compare_on_arms

    if linear_names := [
        bandit_name for bandit_name in bandit_names if bandit_name.startswith("lin_")
    ]:
        message = (
            f"arms of --means have no context to learn from, got {linear_names[0]}; choose another."
        )
        raise ValueError(message)
    arm_means = np.array(parse_numbers(means, "--means", "0.7,0.6,0.5"))
    learner_comparison = compare_on_arms(
        arm_means,
        {bandit_name: Bandit(bandit_name) for bandit_name in bandit_names},
        **simulation_sizes,
    )
    simulation_facts = {"arms": means, **simulation_sizes}
    if ((arm_means > 0.0) & (arm_means < 1.0)).all() and len(set(arm_means)) > 1:
        # what no good learner loses less than in the long run (Lai and Robbins)
        simulation_facts["least regret"] = f"{lai_robbins(arm_means):.4g} · ln(rounds)"
    return learner_comparison, simulation_facts


def _simulated_trace(
    trace: Trace,
    policy: Policy,
    bandit_names: Sequence[str],
    simulation_sizes: dict[str, Any],
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
    arm_table = table(trace, policy, weights, budget_ms=budget_ms)
    # The router decides by the policy that is simulated, so that its row is what runs without a
    # bandit.
    fixed_plans = baselines(arm_table, router(trace, policy))
    learner_comparison = compare_learners(
        arm_table,
        {bandit_name: Bandit(bandit_name) for bandit_name in bandit_names},
        fixed_plans,
        **simulation_sizes,
    )
    simulation_facts = {
        "cases": len(arm_table.mask),
        "arms": ", ".join(arm_table.arms),
        **simulation_sizes,
    }
    # None where no arm is available in every case: then the table has no row of a fixed arm.
    best_arm = best_fixed_arm(arm_table)
    if best_arm is not None:
        right_shares = learner_comparison.table.set_index("policy")["right"]
        gain_text = (
            f"{right_shares[ORACLE_PLAN] - right_shares[FIXED_PLAN]:.2%} more right decisions"
        )
        simulation_facts |= {FIXED_PLAN: best_arm, "choosing could gain": gain_text}
    return learner_comparison, simulation_facts


def _weights(weights_text: str | None) -> RewardWeights:
    """Reward weights of five numbers, or of a JSON file with names."""
    from raglab.reward import COMPONENT_BY_NAME, COMPONENTS, PUBLISHED_REWARD_WEIGHTS, RewardWeights

    if weights_text is None:
        return PUBLISHED_REWARD_WEIGHTS
    weight_names = [COMPONENT_BY_NAME[weight_name].weight for weight_name in COMPONENTS]
    if Path(weights_text).is_file():
        weight_rows = read_json(Path(weights_text), 2**20)
        if not isinstance(weight_rows, dict):
            message = f"{weights_text} must hold one JSON object of numbers by name."
            raise ValueError(message)
        stated_weights = {
            "lambda_" if weight_name == "lambda" else weight_name: weight_rows[weight_name]
            for weight_name in weight_rows
        }
    else:
        weight_values = parse_numbers(
            weights_text, "--weights", "0.4,0.1,0.2,0.1,0.2", exactly=True
        )
        stated_weights = dict(zip(weight_names, weight_values, strict=True))
    if unknown_names := stated_weights.keys() - {*RewardWeights._fields}:
        known_fields = ", ".join(RewardWeights._fields)
        message = (
            f"weights must be of {known_fields}, got {min(unknown_names)!r} in {weights_text}."
        )
        raise ValueError(message)
    return RewardWeights(
        **{weight_name: float(weight_value) for weight_name, weight_value in stated_weights.items()}
    )


def _replication_rows(comparison: LearnerComparison) -> pd.DataFrame:
    """One row a learner and replication."""
    import pandas as pd

    columns = [str(name) for name in comparison.table if str(name).startswith("pulls_")]
    tables = [
        pd.DataFrame(learner_runs.pulls, columns=columns).assign(
            policy=name,
            replication=range(len(learner_runs.regret)),
            value=learner_runs.value[:, -1],
            regret=learner_runs.regret[:, -1],
        )
        for name, learner_runs in comparison.runs.items()
    ]
    return pd.concat(tables, ignore_index=True)[
        ["policy", "replication", "value", "regret", *columns]
    ]


EXIT_NOT_KEPT = 3
EXIT_OPEN = 4
DIAGNOSED_RATE = "hallucination_rate"
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

    target_rates, case_costs, policy_files = parse_targets(target), parse_costs(cost), policy or []
    # Before the cases are looked at: a look counts, even where its policy could not be written.
    keep_inputs(out, path, *policy_files, looks)
    keep_inputs(looks, path, *policy_files, option="--looks")
    if not target_rates or not policy_files or (len(policy_files) > 1 and not best):
        message = (
            "certify must have a --target and one --policy (several with --best), got "
            f"{len(target_rates)} and {len(policy_files)}; such as -p "
            "policy.yaml -t hallucination_rate=0.1."
        )
        raise ValueError(message)
    trace = open_trace(path)
    offered_policies = [load_policy(policy_file) for policy_file in policy_files]
    # A link has looks of its own beside it; a folder that has no name of its own, such as `.`, is
    # looked up.
    record_neighbour = path if path.name not in {"", ".."} else path.resolve()
    certificate_terms: dict[str, Any] = {
        "targets": target_rates,
        "costs": case_costs,
        "delta": delta,
        "arm": arm,
        "again": again,
        "mix": parse_mix(mix),
        "looks": looks if looks is not None else record_neighbour.with_name("looks.jsonl"),
    }
    # One policy, not a list of one, stands for the family of its thresholds.
    policy_family = offered_policies if len(offered_policies) > 1 else offered_policies[0]
    certification = (
        certify_best(trace, policy_family, **certificate_terms)
        if best
        else certify_policy(trace, offered_policies[0], **certificate_terms)
    )
    if certification.policy is not None and out is not None:
        make_folder(out.parent)
        certification.policy.save(out)
    if as_json:
        certificate_record = {
            "certificate": certification.certificate.rows,
            "notes": certification.notes,
            "tested": json_records(certification.table),
        }
        say_json(certificate_record, indent=2)
    else:
        say_notes(certificate_lines(certification))
        if certification.policy is not None and out is not None:
            say(f"policy:  {out} (policy_id {certification.policy.policy_id})")
        # The diagnosis is of signals against wrong answers: it explains this target alone.
        if certification.policy is None and DIAGNOSED_RATE in target_rates:
            _say_why(trace, offered_policies[0], target_rates[DIAGNOSED_RATE], delta, arm)
    # Last, so that a failed certificate prints what was tested.
    if certification.policy is None:
        raise typer.Exit(EXIT_NOT_KEPT)


def _say_why(
    trace: StudyTrace, policy: Policy, alpha: float, delta: float, arm: str | None
) -> None:
    """Print what each signal could carry, on cases that the certificate does not need.

    Of very many on a sample.
    """
    from raglab.lab.gate_fitting import case_signals
    from raglab.lab.study_cases import candidate_cases
    from raglab.lab.targets import diagnosis

    counts_by_split = trace.counted()
    has_tune = "tune" in counts_by_split
    has_certify = "certify" in counts_by_split
    pilot_cases = trace.split("tune") if has_tune else trace
    pilot_signals = case_signals(
        candidate_cases(pilot_cases, 0), policy, arm, directions=("surer", "ask")
    )
    # The chance is that of all the cases that there are for a certificate, not of those that are
    # looked at here.
    size_ratio = (sum(counts_by_split["certify"].values()) if has_certify else len(trace)) / len(
        pilot_signals.right
    )
    diagnosis_table = diagnosis(
        pilot_signals.right,
        dict(zip(pilot_signals.names, pilot_signals.score, strict=True)),
        alpha,
        delta,
        size=size_ratio,
    )
    cases_text = (
        f"{'split tune' if has_tune else 'these cases'}, "
        f"{len(pilot_signals.right):,} of {len(pilot_cases):,}"
    )
    say(f"\nsignals at a risk of {alpha:g}, on {cases_text} (-name: less is surer):")
    shown_columns = ["signal", "AUROC", "AUROC_low", "AUROC_high", "coverage", "verdict"]
    say(table_text(diagnosis_table[shown_columns]))


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
    from raglab.store.traces import MANIFEST_NAME

    baseline_options = BaselineOptions(
        baseline, save_baseline, rate or (), min_effect, parse_costs(cost), again
    )
    has_baseline = baseline_options.has_baseline
    certified_policy = load_policy(policy)
    stored_baseline = None if baseline is None else Baseline.load(baseline)
    # Retrieved as the baseline was, so that a difference is one of the policy; a certificate states
    # its own settings.
    retrieval_settings = (
        stated_retrieval(certified_policy, stored_baseline) if has_baseline else None
    )
    # A stored trace is used as it is: its retrieval needs no models.
    checked_trace = (
        open_trace(cases, split)
        if cases.suffix == ".parquet" or (cases / MANIFEST_NAME).is_file()
        else retrieve_trace(
            certified_policy,
            corpus or cases.parent,
            cases,
            split=split,
            encoder=encoder,
            reranker=reranker,
            follow_links=follow_links,
            stated_settings=retrieval_settings,
        )
    )
    if has_baseline:
        if run_baseline(
            certified_policy, checked_trace, stored_baseline, baseline_options, as_json=as_json
        ):
            raise typer.Exit(EXIT_NOT_KEPT)
        return
    retest = check_policy(checked_trace, certified_policy, again=again)
    check_facts = {
        "verdict": retest.verdict,
        "coverage": retest.coverage,
        "over_ask_rate": retest.over_ask,
        "basis": retest.basis,
    }
    show_result(check_facts, {"targets": retest.table}, retest.notes, as_json=as_json)
    if retest.verdict != "upheld":
        raise typer.Exit(EXIT_NOT_KEPT if retest.verdict == "broken" else EXIT_OPEN)


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
