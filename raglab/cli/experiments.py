"""Command line (shore): simulate, certify, check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    TraceOrFolder,
    json_records,
    keep_inputs,
    load_policy,
    load_trace,
    open_trace,
    parse_costs,
    parse_mix,
    parse_targets,
    say,
    say_json,
    show,
    table_text,
    write_csv,
)
from raglab.store.files import make_folder, read_json

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certificate_checks import Retest
    from raglab.lab.learner_comparison import LearnerComparison
    from raglab.reward import RewardWeights
    from raglab.store.policies import Policy
    from raglab.store.traces import StudyTrace

BUDGET_MS = 8000.0
MOST_COLUMNS = ("right", "reward", "regret", "difference")


def simulate(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="Trace of several arms, made by `raglab trace --arm …`. Leave it out with --means."
        ),
    ] = None,
    policy: PolicyPath = None,
    bandit: Annotated[
        list[str] | None,
        typer.Option(
            "--bandit",
            "-b",
            help=f"{', '.join(LEARNERS)}. Repeatable. Default: thompson_beta and ucb1.",
        ),
    ] = None,
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
            help="w1,w2,w3,w4,w5 of margin, diversity, latency, cache, consistency. Or a JSON "
            "file, by name."
        ),
    ] = None,
    always_answer: Annotated[
        bool,
        typer.Option(
            "--always-answer", help="Switch every gate off, so that arms are judged by their hits."
        ),
    ] = False,
    budget_ms: Annotated[
        float,
        typer.Option(
            min=0.001, max=1e12, help="Milliseconds per question that the reward compares with."
        ),
    ] = BUDGET_MS,
    split: Split = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write a CSV with one row per learner and replication."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate bandits on questions whose right arm is known: months of traffic in seconds."""
    if (path is None) == (means is None):
        msg = (
            "simulate takes either a trace or --means, got both or none; such as --means "
            "0.7,0.6,0.5."
        )
        raise ValueError(msg)
    keep_inputs(out, path, policy)
    # A bandit named twice is one learner, and one row of the table.
    names = tuple(dict.fromkeys(bandit or ("thompson_beta", "ucb1")))
    # Arms of --means have no cases: these options would change nothing, so they are refused, not
    # ignored.
    of_traces = {
        "--policy": policy is not None,
        "--weights": weights is not None,
        "--always-answer": always_answer,
        "--budget-ms": budget_ms != BUDGET_MS,
        "--split": split is not None,
    }
    if means is not None and any(of_traces.values()):
        idle = ", ".join(option for option, is_stated in of_traces.items() if is_stated)
        msg = (
            f"--means must stand without what is of questions and latencies, got {idle}; leave it "
            "out or give a trace."
        )
        raise ValueError(msg)
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed}
    if path is None:
        comparison, lines = _simulated_means(means or "", names, sizes)
    else:
        options = (policy, weights, split)
        comparison, lines = _simulated_trace(
            path, options, names, sizes, budget_ms, always_answer=always_answer
        )
    # The file has a row per replication; the printed table has their means and intervals.
    write_csv(_replication_rows(comparison), out)
    if as_json:
        say_json({"told": lines, "policies": json_records(comparison.table)})
        return
    say("\n".join(lines) + "\n")
    say(table_text(_readable_estimates(comparison.table), na_rep="–"))


def _simulated_means(
    means: str, names: tuple[str, ...], sizes: dict[str, Any]
) -> tuple[LearnerComparison, list[str]]:
    import numpy as np

    from raglab.bandit import Bandit
    from raglab.displays.bandits import lai_robbins
    from raglab.lab.learner_comparison import compare_on_arms

    if linear := [name for name in names if name.startswith("lin_")]:
        msg = (
            f"arms of --means have no context to learn from, got {linear[0]}; choose another, or "
            "give a trace."
        )
        raise ValueError(msg)
    known = np.array(_parse_numbers(means, "--means"))
    comparison = compare_on_arms(known, {name: Bandit(name) for name in names}, **sizes)
    simulated = f"{sizes['rounds']} rounds, {sizes['replications']} replications"
    lines = [
        (
            f"{len(known)} Bernoulli arms of means {means}, {simulated}; every policy meets the "
            "same "
            "chance."
        ),
        (
            "regret: expected reward lost in all rounds against the best arm, mean over "
            "replications "
            "(95 % interval)."
        ),
        "reward: expected, a round. pulls: share of the rounds.",
    ]
    if ((known > 0.0) & (known < 1.0)).all() and len(set(known)) > 1:
        slope = lai_robbins(known)
        lines.append(
            f"In the long run no good learner loses less than {slope:.4g} · ln(rounds) (Lai and "
            "Robbins)."
        )
    return comparison, lines


def _simulated_trace(
    path: Path,
    options: tuple[Path | None, str | None, str | None],
    names: tuple[str, ...],
    sizes: dict[str, Any],
    budget_ms: float,
    *,
    always_answer: bool,
) -> tuple[LearnerComparison, list[str]]:
    import numpy as np

    from raglab.bandit import Bandit
    from raglab.bandit.fixed_plans import FIXED, ORACLE, baselines, best_fixed_arm
    from raglab.lab.learner_comparison import compare_learners
    from raglab.lab.search_space import always_answer as opened
    from raglab.live.arm_choice import router, table

    policy, weights, split = options
    trace, chosen = load_trace(path, split), load_policy(policy)
    # With the gates off every question is answered, so that the arms differ by what they find
    # alone.
    chosen = opened(chosen) if always_answer else chosen
    world = table(trace, chosen, _weights(weights), budget_ms=budget_ms)
    # The router decides by the policy that is simulated, so that its row is what runs without a
    # bandit.
    plans = baselines(world, router(trace, chosen))
    comparison = compare_learners(world, {name: Bandit(name) for name in names}, plans, **sizes)
    right = dict(
        zip(comparison.table["policy"], comparison.table["right"].to_numpy(np.float64), strict=True)
    )
    simulation = f"{sizes['rounds']} rounds, {sizes['replications']} replications"
    # None where no arm is available in every case: then the table has no row of a fixed arm.
    best = best_fixed_arm(world)
    knows = ORACLE if best is None else f"{FIXED} ({best}) and {ORACLE}"
    lines = [
        (
            f"{len(world.mask)} cases, arms {', '.join(world.arms)}, {simulation}; every policy "
            "meets "
            "the same cases."
        ),
        (
            "right: share of right decisions. regret: right decisions lost in all rounds against "
            "each "
            "case's best arm."
        ),
        (
            f"difference: right minus that of {comparison.reference}. ms: mean retrieval. pulls: "
            "share of the rounds."
        ),
        (
            "Brackets: 95 % intervals over fresh tables of so many cases and fresh chance, paired "
            "where two are compared."
        ),
        (
            f"Learners see rewards, never labels; {knows} {'knows' if best is None else 'know'} "
            "the "
            "labels."
        ),
    ]
    if best is not None:
        room = 100.0 * (right[ORACLE] - right[FIXED])
        lines.append(
            f"All that choosing could gain over the best fixed arm is {room:.2f} points of right "
            "decisions."
        )
    return comparison, [*lines, *comparison.notes]


def _weights(text: str | None) -> RewardWeights:
    """Reward weights of five numbers, or of a JSON file with names."""
    from raglab.reward import COMPONENT_TABLE, COMPONENTS, PUBLISHED, RewardWeights

    if text is None:
        return PUBLISHED
    if not Path(text).is_file():
        parts, known = text.split(","), [COMPONENT_TABLE[name] for name in COMPONENTS]
        form = ",".join(part.variable.lower() for part in known)
        such = ",".join(f"{getattr(PUBLISHED, part.weight):g}" for part in known)
        msg = f"--weights must be {form} or a JSON file, got {text!r}; such as {such}."
        if len(parts) != len(known):
            raise ValueError(msg)
        try:
            return RewardWeights(
                **{part.weight: float(value) for part, value in zip(known, parts, strict=True)}
            )
        except ValueError:
            raise ValueError(msg) from None
    rows = read_json(Path(text), 2**20)
    try:
        named = {
            "lambda_" if name == "lambda" else name: float(value) for name, value in rows.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        msg = f"{text} must hold one JSON object of numbers by name, got {error}."
        raise ValueError(msg) from None
    odd = sorted(set(named) - set(RewardWeights._fields))
    if odd:
        msg = (
            f"weights must be of {', '.join(RewardWeights._fields)}, got {odd[0]!r} in {text}; "
            "correct its name."
        )
        raise ValueError(msg)
    return RewardWeights(**named)


def _parse_numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        msg = (
            f"{option} must be numbers with commas between them, got {text!r}; such as 0.7,0.6,0.5."
        )
        raise ValueError(msg) from None


def _readable_estimates(table: pd.DataFrame) -> pd.DataFrame:
    """Table with each number and its interval in one column."""
    import pandas as pd

    columns: dict[str, Any] = {"policy": table["policy"]}
    for name in MOST_COLUMNS:
        if name not in table:
            continue
        digits = 1 if name == "regret" else 3
        sign = "+" if name == "difference" else ""
        if f"{name}_low" in table:
            ends = zip(*(table[f"{name}{end}"] for end in ("", "_low", "_high")), strict=True)
            columns[name] = [
                f"{estimate:{sign}.{digits}f} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})"
                for estimate, low, high in ends
            ]
        else:
            columns[name] = [f"{estimate:.{digits}f}" for estimate in table[name]]
    if "ms" in table:
        columns["ms"] = [f"{ms:.1f}" for ms in table["ms"]]
    pulls = [name for name in table if str(name).startswith("pulls_")]
    columns |= {str(name).replace("pulls_", "% "): (100 * table[name]).round(1) for name in pulls}
    return pd.DataFrame(columns).replace("nan", "–")


def _replication_rows(comparison: LearnerComparison) -> pd.DataFrame:
    """One row a learner and replication."""
    import pandas as pd

    names = [str(name) for name in comparison.table if str(name).startswith("pulls_")]
    parts = []
    for name, runs in comparison.runs.items():
        values = {
            "policy": name,
            "replication": range(len(runs.regret)),
            "value": runs.value[:, -1],
        }
        pulls = {column: runs.pulls[:, arm] for arm, column in enumerate(names)}
        parts.append(pd.DataFrame(values | {"regret": runs.regret[:, -1]} | pulls))
    return pd.concat(parts, ignore_index=True)


NOT_KEPT, OPEN = 3, 4
RISK = "hallucination_rate"
Looks = Annotated[
    Path | None,
    typer.Option(
        help="File that records certifications. Default: `looks.jsonl` next to the trace."
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again", help="Certify although these cases were used for a certificate before."
    ),
]


def certify(
    path: TraceOrFolder,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy", "-p", help="Policy YAML to certify. With --best it is repeatable."
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            help="rate=highest to promise, such as hallucination_rate=0.1. Repeatable.",
        ),
    ] = None,
    cost: CostOptions = None,
    mix: MixOption = None,
    best: Annotated[
        bool,
        typer.Option(
            "--best",
            help="Certify the cheapest policy that passes, of several or of the family of one.",
        ),
    ] = False,
    delta: Annotated[
        float,
        typer.Option(help="Error probability of the promise. 0.1 certifies at 90 % confidence."),
    ] = 0.1,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the certified policy here.")
    ] = None,
    arm: Arm = None,
    again: Again = False,
    looks: Looks = None,
    as_json: AsJson = False,
) -> None:
    """Test on split certify whether a policy keeps its targets, with a finite-sample guarantee."""
    from raglab.lab.certification import certificate_lines, certify_best, certify_policy

    targets, costs, files = parse_targets(target), parse_costs(cost), policy or []
    # Before the cases are looked at: a look counts, even where its policy could not be written.
    keep_inputs(out, path, *files, looks)
    keep_inputs(looks, path, *files, option="--looks")
    _check_certify_options(files, targets, best=best)
    trace = open_trace(path)
    offered = [load_policy(file) for file in files]
    # A link has looks of its own beside it; a folder that has no name of its own, such as `.`, is
    # looked up.
    beside = path if path.name not in {"", ".."} else path.resolve()
    terms: dict[str, Any] = {"costs": costs, "delta": delta, "arm": arm, "again": again}
    terms["mix"] = parse_mix(mix)
    terms["looks"] = looks if looks is not None else beside.with_name("looks.jsonl")
    # One policy, not a list of one, stands for the family of its thresholds.
    if best:
        result = certify_best(
            trace, offered if len(offered) > 1 else offered[0], targets=targets, **terms
        )
    else:
        result = certify_policy(trace, offered[0], targets=targets, **terms)
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
        say("\n".join(certificate_lines(result)))
        if result.policy is not None and out is not None:
            say(f"policy:      {out}  (policy_id {result.policy.policy_id})")
        # The diagnosis is of signals against wrong answers: it explains this target alone.
        if result.policy is None and RISK in targets:
            _say_why(trace, offered[0], targets[RISK], delta, arm)
    # Last, so that a failed certificate prints what was tested.
    if result.policy is None:
        raise typer.Exit(NOT_KEPT)


def _check_certify_options(
    policies: Sequence[Path], targets: Mapping[str, float], *, best: bool
) -> None:
    """What is certified, and for what, must be stated.

    Raises:
      ValueError: no target, no policy, or several without --best.
    """
    if not targets:
        msg = "--target must say what is promised, got none; write -t hallucination_rate=0.1."
        raise ValueError(msg)
    if not policies:
        msg = (
            "--policy must name the policy to certify, got none; write -p policy.yaml (`raglab "
            "policy` prints one)."
        )
        raise ValueError(msg)
    if len(policies) > 1 and not best:
        msg = (
            f"--policy must name one policy to certify, got {len(policies)}; say --best to choose "
            "among them."
        )
        raise ValueError(msg)


def _say_why(
    trace: StudyTrace, policy: Policy, alpha: float, delta: float, arm: str | None
) -> None:
    """Print what each signal could carry, on cases that the certificate does not need.

    Of very many on a sample.
    """
    from raglab.lab.certification_texts import diagnosis
    from raglab.lab.gate_fitting import case_signals
    from raglab.lab.study_cases import candidate_cases

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
    where = "split tune" if pilot else "these cases"
    if len(signals.right) < len(cases):
        where += f" ({len(signals.right):,} of {len(cases):,}, drawn by label)"
    where += ", for as many cases as split certify holds" if split else ""
    say(
        f"\nwhat each signal could carry for a risk of {alpha:g}, on {where} (chance: of a "
        "certificate; "
        "-name: less of it is surer):"
    )
    say(table_text(table.round(3), na_rep="–"))


def check(
    policy: Annotated[
        Path, typer.Argument(help="Policy YAML. Without a baseline it must hold a certificate.")
    ],
    cases: Annotated[
        Path,
        typer.Option(
            "--cases", "-c", help="New labelled questions, or a trace of them (.parquet)."
        ),
    ],
    corpus: Annotated[
        Path | None,
        typer.Option(help="Documents to retrieve from. Default: the folder of the cases."),
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
    where = corpus or cases.parent
    # A stored trace is used as it is: its retrieval needs no models.
    trace = (
        open_trace(cases, split)
        if cases.suffix == ".parquet" or (cases / MANIFEST).is_file()
        else retrieve_trace(
            certified,
            where,
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
    _print_retest(retest, as_json=as_json)
    if retest.verdict != "upheld":
        raise typer.Exit(NOT_KEPT if retest.verdict == "broken" else OPEN)


def _print_retest(retest: Retest, *, as_json: bool) -> None:
    """Print the verdict on a certificate with its targets and notes."""
    if as_json:
        parts: dict[str, Any] = {
            "verdict": retest.verdict,
            "notes": retest.notes,
            "targets": json_records(retest.table),
        }
        parts |= {
            "coverage": retest.coverage,
            "over_ask_rate": retest.over_ask,
            "basis": retest.basis,
        }
        say_json(parts, indent=2)
        return
    show(retest.table, as_json=False)
    rates = (
        f"coverage {retest.coverage:.3f}, over_ask_rate {retest.over_ask:.3f}, basis {retest.basis}"
    )
    lines = [f"\nverdict: {retest.verdict} ({rates})", *(f"note: {note}" for note in retest.notes)]
    say("\n".join(lines))


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
