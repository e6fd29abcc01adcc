"""Command line (shore): the app, and the commands of traces, decisions, sweeps and studies."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raglab.cli import audit, experiments, imports, live, logs, monitoring
from raglab.cli.common import (
    TUNED_FILE,
    Arm,
    AsJson,
    CorpusColumns,
    CostOptions,
    DenseWeight,
    Download,
    Encoder,
    FollowLinks,
    MixOption,
    PolicyPath,
    Precision,
    Quiet,
    Reranker,
    Runs,
    Sampler,
    Seed,
    Split,
    TableOut,
    TargetOptions,
    TextEncoding,
    TraceOrFolder,
    TracePath,
    Trials,
    json_records,
    keep_inputs,
    load_policy,
    load_trace,
    open_trace,
    parse_columns,
    parse_costs,
    parse_mix,
    parse_shares,
    parse_targets,
    policy_for,
    read_corpus,
    say,
    say_headline,
    say_json,
    say_notes,
    short_heads,
    show,
    table_text,
    write_csv,
    write_study,
)
from raglab.cli.door import (
    DEBUG,
    DEBUG_VARIABLE,
    EXIT_CODES,
    Door,
    standard_streams,
)
from raglab.policy_parts.arms import ARMS
from raglab.store.files import make_folder

if TYPE_CHECKING:
    from raglab.decision.decisions import Decisions
    from raglab.store.policies import Policy
    from raglab.store.traces import Trace

app = typer.Typer(
    name="raglab",
    cls=Door,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(*, is_given: bool) -> None:
    """Print the version, and end."""
    from importlib.metadata import version

    if is_given:
        say(f"raglab {version('raglab-toolkit')}")
        raise typer.Exit


@app.callback()
def shared_options(
    debug: Annotated[
        bool,
        typer.Option(
            DEBUG,
            help=f"Show the stack of an error; also {DEBUG_VARIABLE}=1.",
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Tune when a RAG system answers, refuses or asks back.

    Retrieval once, every threshold replayed.
    """


def main() -> None:
    """Run the command line; print errors as one line and return the exit code."""
    with standard_streams():
        app()


@app.command(
    epilog="Example: raglab trace datasets/broker --out out/broker.parquet -p "
    "datasets/broker/policy.yaml"
)
def trace(
    ctx: typer.Context,
    corpus: Annotated[
        Path,
        typer.Argument(
            help="Folder of documents or pictures; JSONL; CSV; SQuAD; BEIR or MT-RAG folder."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Trace to write. An interrupted run continues.")
    ],
    cases: Annotated[
        Path | None, typer.Option("--cases", "-c", help="Labelled questions. Default: CORPUS.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(help="field=column of --cases in CSV or TSV. Repeatable."),
    ] = None,
    corpus_columns: CorpusColumns = None,
    encoding: TextEncoding = None,
    cases_encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of --cases in CSV or TSV, such as cp1252."),
    ] = None,
    policy: PolicyPath = None,
    arm: Annotated[
        list[str] | None, typer.Option(help=f"Arm: {', '.join(ARMS)}. Repeatable.")
    ] = None,
    encoder: Encoder = None,
    reranker: Reranker = None,
    download: Download = False,
    index: Annotated[
        str,
        typer.Option(
            help="flat (exact), hnsw, ivf or sqfp16 (on disk). auto: flat up to 100,000 chunks."
        ),
    ] = "auto",
    fetch_k: Annotated[int, typer.Option(min=1, max=10_000, help="Hits per question.")] = 50,
    rerank_k: Annotated[int, typer.Option(min=0, max=10_000, help="Hits to rerank.")] = 20,
    max_depth: Annotated[int, typer.Option(help="Refinements to measure.")] = 0,
    dense_weight: DenseWeight = 1.0,
    precision: Precision = "float32",
    turns: Annotated[
        int,
        typer.Option(
            min=0,
            help="Earlier turns of a conversation that are added to its last question.",
        ),
    ] = 0,
    follow_links: FollowLinks = False,
    shares: Annotated[
        str | None,
        typer.Option(
            "--split",
            help="Deal questions into tune, certify and report, such as 0.4,0.3,0.3.",
        ),
    ] = None,
    quiet: Quiet = False,  # noqa: ARG001 - read by its callback
    as_json: AsJson = False,
) -> None:
    """Retrieve once for every question and store every measurement."""
    from raglab.lab.slice_rates import ranking
    from raglab.live.trace_building import build_trace
    from raglab.store.case_splits import split
    from raglab.store.loaders import load_cases

    # Retrieval may take hours, so a wrong --out or --split is refused before it.
    keep_inputs(out, corpus, cases, policy)
    split_shares = parse_shares(shares)
    documents = read_corpus(
        corpus, corpus_columns, encoder, encoding, download=download, follow_links=follow_links
    )
    # SQuAD, BEIR and MT-RAG hold documents and questions in one place.
    questions = load_cases(
        cases or corpus,
        columns=parse_columns(columns),
        follow_links=follow_links,
        turns=turns,
        encoding=cases_encoding,
    )
    built_trace = build_trace(
        documents,
        questions if split_shares is None else split(questions, **split_shares),
        out=out,
        policy=load_policy(policy),
        command=ctx.obj,
        arms=tuple(arm or ["hybrid"]),
        encoder=encoder,
        reranker=reranker,
        download=download,
        index=index,
        fetch_k=fetch_k,
        rerank_k=rerank_k,
        max_depth=max_depth,
        dense_weight=dense_weight,
        precision=precision,
    )
    trace_facts = {
        "trace": str(out),
        "cases": len(built_trace),
        "fingerprint": built_trace.fingerprint,
    }
    ranking_table = ranking(built_trace)
    # JSON has the ranking in the same object, so that stdout is one document.
    show(
        trace_facts | {"ranking": json_records(ranking_table)} if as_json else trace_facts,
        as_json=as_json,
    )
    if not as_json:
        say_headline(built_trace)
        n_with_sources = len(built_trace) - ranking_table.attrs["without_source"]
        say(f"\nwhere expected sources stand ({n_with_sources} of {len(built_trace)} cases):")
        say(table_text(ranking_table))


@app.command(
    epilog="Example: raglab decide out/broker.parquet -p datasets/broker/policy.yaml --case w1-001"
)
def decide(
    path: TracePath,
    policy: PolicyPath = None,
    case: Annotated[
        str | None,
        typer.Option(help="Explain this case: every gate, and what flips it."),
    ] = None,
    arm: Arm = None,
    split: Split = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit 1 if a contract fails (S6.3)."),
    ] = False,
    out: TableOut = None,
    as_json: AsJson = False,
) -> None:
    """Decide every case with one policy, or explain one."""
    from raglab.replay import decide as decided

    keep_inputs(out, path, policy)
    cases = load_trace(path, split)
    if case is not None and strict:
        # The exit code is of a set of contracts; of one case it would pass for all of them.
        message = "--strict must judge all cases, got --case with it; leave one out."
        raise ValueError(message)
    case_ids = [trace_case.id for trace_case in cases.cases]
    if case is not None and case not in case_ids:
        close_ids = (
            get_close_matches(case, case_ids, 3)
            or [case_id for case_id in case_ids if case in case_id][:3]
        )
        suggestion = f"; did you mean {' or '.join(close_ids)}?" if close_ids else "."
        message = (
            f"--case must be the id of one of {len(case_ids):,} cases, got {case!r:.80}{suggestion}"
        )
        raise ValueError(message)
    chosen_policy = policy_for(policy, cases, arm)
    decisions = decided(cases, chosen_policy, arm=arm)
    say_headline(cases)
    if case is not None:
        _explain_case(cases, chosen_policy, decisions, case, arm, as_json=as_json)
        return
    decision_table = decisions.frame(reasons=True)
    write_csv(decision_table, out)
    # The file and JSON have every column, the screen those that fit a line.
    if as_json:
        say_json(json_records(decision_table))
    else:
        decision_table = decision_table[
            ["case_id", "expect_status", "status", "decided_by", "confidence", "reason"]
        ]
        say(table_text(decision_table, width=34))
        say("")
        say_notes([repr(decisions)])  # a page of rows has no total
    if not strict:
        return
    # beside JSON on stderr, so that stdout stays JSON
    from raglab.metrics.costs import LABELS

    cases_by_label = Counter(trace_case.expect_status for trace_case in cases.cases)
    judged_cases = zip(cases.cases, decisions.right, strict=True)
    passed_by_label = Counter(
        trace_case.expect_status for trace_case, is_right in judged_cases if is_right
    )
    label_counts = ", ".join(
        f"{label} {passed_by_label[label]} of {cases_by_label[label]}" for label in LABELS
    )
    say(
        f"\npassed {passed_by_label.total()} of {len(case_ids)} contracts (S6.3): {label_counts}",
        err=as_json,
    )
    if passed_by_label.total() < len(case_ids):
        raise typer.Exit(1)


def _explain_case(
    case_trace: Trace,
    policy: Policy,
    decisions: Decisions,
    case: str,
    arm: str | None,
    *,
    as_json: bool,
) -> None:
    """Print how a case was decided: its label, every check, and what would flip it."""
    import pandas as pd

    from raglab.replay import flips

    case_row = decisions.row_of(case)
    decision_table = decisions.frame().iloc[[case_row]].assign(reason=decisions.reason(case_row))
    case_decision = decision_table.iloc[0]
    check_table = pd.DataFrame(decisions.explain(case))
    flip_table = flips(case_trace, policy, case, arm=arm)
    if as_json:
        case_record = {
            "decision": json_records(decision_table)[0]
            | {"warnings": decisions.warnings(case_row)},
            "checks": json_records(check_table),
            "flips": json_records(flip_table),
        }
        say_json(case_record, indent=2)
        return
    case_facts = {
        "question": case_decision["query"],
        "label": case_decision["expect_status"] or "none",
        "decision": f"{case_decision['status']} ({case_decision['decided_by']})",
        "because": case_decision["reason"],
    }
    # None without a label: the case is neither correct nor wrong.
    if case_decision["correct"] is not None:
        case_facts["correct" if case_decision["correct"] else "not correct"] = case_decision["why"]
    show(case_facts, as_json=False)
    say("\n" + table_text(check_table[["gate", "margin", "passes", "text"]]))
    flip_table = flip_table.drop(columns=["change", "share"])
    flip_table["flips_at"] = flip_table["flips_at"].map(
        "{:.6g}".format
    )  # as `--path` and YAML take it
    say(f"\nthe smallest change of one threshold that flips it:\n{table_text(flip_table)}")


@app.command(epilog="Example: raglab sweep out/broker.parquet --path similarity.min_similarity")
def sweep(
    path: TraceOrFolder,
    policies: Annotated[list[Path] | None, typer.Argument(help="Policies to compare.")] = None,
    threshold: Annotated[
        str | None, typer.Option("--path", help="Threshold to sweep, such as l2.max_l2.")
    ] = None,
    policy: PolicyPath = None,
    arm: Arm = None,
    split: Split = None,
    cost: CostOptions = None,
    mix: MixOption = None,
    out: TableOut = None,
    as_json: AsJson = False,
) -> None:
    """Rates and expected cost of several policies, or of one threshold at every breakpoint."""
    from raglab.metrics import RATES
    from raglab.replay import SWEPT, steps
    from raglab.replay import sweep as swept

    threshold_paths = [
        str(policy_file)
        for policy_file in policies or ()
        if str(policy_file) in SWEPT and not policy_file.exists()
    ]
    if (threshold is None) == (not policies) or threshold_paths:
        remedy = f"; write --path {threshold_paths[0]}." if threshold_paths else "."
        message = (
            f"sweep must have policies, or --path with one threshold, got both or none{remedy}"
        )
        raise ValueError(message)
    keep_inputs(out, path, policy, *(policies or ()))
    traffic_mix = parse_mix(mix)
    swept_trace = open_trace(path, split)
    costs = parse_costs(cost)
    sweep_terms: dict[str, Any] = {"arm": arm, "costs": costs, "mix": traffic_mix}
    if threshold is not None:
        rate_table = steps(swept_trace, load_policy(policy), path=threshold, **sweep_terms)
        lead_columns = ["low", "high"]
    else:
        policy_files = policies or []
        rate_table = swept(
            swept_trace,
            [load_policy(policy_file) for policy_file in policy_files],
            **sweep_terms,
        )
        lead_columns = ["policy"]
        rate_table.insert(0, "policy", [str(policy_file) for policy_file in policy_files])
    write_csv(rate_table, out)
    if as_json:
        say_json(json_records(rate_table))
        return
    shown_table = short_heads(rate_table[[*lead_columns, *RATES, "expected_cost"]])
    if policies:  # a column each, since a path is long
        shown_table = shown_table.set_index("policy").T.rename_axis("rate").reset_index()
    say(table_text(shown_table))
    # of a policy that is judged on what it learned from
    learned_notes: Any = rate_table.get("note", [])
    say_notes(
        f"{row_name}: {learned_note}"
        for row_name, learned_note in zip(rate_table[lead_columns[0]], learned_notes, strict=False)
        if learned_note
    )


@app.command(
    epilog="Example: raglab tune out/broker.parquet -p datasets/broker/policy.yaml --trials 1000 "
    "--out out/broker"
)
def tune(
    path: TraceOrFolder,
    policy: PolicyPath = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder of policy, report and study, which continues.",
        ),
    ] = Path("out/tune"),
    rule: Annotated[
        Literal["expected_cost", "chain"],
        typer.Option(help="What competes: a fitted decision, or the published chain, tuned."),
    ] = "expected_cost",
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            help="Further: 'one threshold', chain, 'expected cost' or a policy file. Repeatable."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-fitting.")] = 5,
    repeats: Annotated[int, typer.Option(min=1, help="How often folds are dealt.")] = 4,
    trials: Trials = 1000,
    cost: CostOptions = None,
    target: TargetOptions = None,
    mix: MixOption = None,
    sampler: Annotated[Sampler, typer.Option(help="Sampler of Optuna.")] = "nsga2",
    seed: Seed = 0,
    arm: Arm = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Place of the trials: folder or URL of a database. Default: in --out."),
    ] = None,
    study_name: Annotated[
        str | None,
        typer.Option(help="Name in the storage. Default: made from corpus and settings."),
    ] = None,
    mlruns: Runs = None,
    track: Annotated[bool, typer.Option(help="Log to MLflow.")] = True,
    quiet: Quiet = False,  # noqa: ARG001 - read by its callback
    as_json: AsJson = False,
) -> None:
    """Select the decision of least expected cost on split tune, judge it on split report."""
    from raglab.lab.candidates import RECIPE_NAMES
    from raglab.lab.goals import Goal
    from raglab.lab.study import tune as tuned

    keep_inputs(out / TUNED_FILE, path, policy)
    costs, targets, traffic_mix = parse_costs(cost), parse_targets(target), parse_mix(mix)
    study_goal = Goal(
        costs=costs, targets=targets, mix=traffic_mix
    )  # before anything is read that takes time
    # without one, that of the trace's scores
    start_policy = None if policy is None else load_policy(policy)
    candidates = [
        candidate_name
        if candidate_name.replace("_", " ") in RECIPE_NAMES
        else load_policy(Path(candidate_name))
        for candidate_name in candidate or ()
    ]
    study_trace = open_trace(path)
    tuning_result = tuned(
        study_trace,
        policy=start_policy,
        goal=study_goal,
        arm=arm,
        rule=rule,
        candidates=candidates,
        folds=folds,
        repeats=repeats,
        trials=trials,
        sampler=sampler,
        seed=seed,
        storage=out / "study" if storage is None else storage,
        study_name=study_name,
    )
    write_study(tuning_result, out, mlruns, track=track, as_json=as_json)


@app.command(
    epilog="Example: raglab report out/broker.parquet -p out/broker/tuned.yaml --split report -o "
    "out/report.html"
)
def report(
    path: TraceOrFolder,
    policy: PolicyPath = None,
    incumbent: Annotated[
        Path | None,
        typer.Option(help="Policy to compare with. Default: the published thresholds."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="HTML page; figures are written beside it."),
    ] = Path("out/report.html"),
    arm: Arm = None,
    split: Split = None,
    cost: CostOptions = None,
    target: TargetOptions = None,
    mix: MixOption = None,
    as_json: AsJson = False,
) -> None:
    """One self-contained page.

    Rates, reliability, risk and coverage, every threshold, every flipped case.
    """
    from raglab.lab.report.page import write_report
    from raglab.lab.untuned_policies import always_answer, always_refuse, published_policy

    keep_inputs(out, path, policy, incumbent)
    chosen_policy, costs, targets = load_policy(policy), parse_costs(cost), parse_targets(target)
    traffic_mix = parse_mix(mix)
    baseline_policy = (
        published_policy(chosen_policy) if incumbent is None else load_policy(incumbent)
    )
    policy_by_name = {"defaults": baseline_policy}
    if chosen_policy.policy_id != baseline_policy.policy_id:
        policy_by_name["tuned"] = chosen_policy
    policy_by_name |= {
        "always-answer": always_answer(chosen_policy),
        "always-refuse": always_refuse(chosen_policy),
    }
    make_folder(out.parent)
    trace = open_trace(path, split)
    page_path = write_report(
        trace, policy_by_name, out=out, arm=arm, costs=costs, targets=targets, mix=traffic_mix
    )
    say_headline(trace)
    show({"report": str(page_path)}, as_json=as_json)


@app.command(epilog="Example: raglab policy -p datasets/broker/policy.yaml")
def policy(path: PolicyPath = None, as_json: AsJson = False) -> None:
    """Print a whole policy with its id. What it does not state has the published defaults."""
    import yaml

    shown_policy = load_policy(path)
    policy_sections = shown_policy.model_dump(mode="json")
    if as_json:
        say_json({"policy_id": shown_policy.policy_id, **policy_sections}, indent=2)
    else:
        say(
            f"# policy_id {shown_policy.policy_id}\n"
            + yaml.safe_dump(policy_sections, sort_keys=False, allow_unicode=True, width=100)
        )


@app.command(epilog="In a clone of the project: it needs datasets/broker.")
def demo(
    data: Annotated[Path, typer.Option(help="The bundled set.")] = Path("datasets/broker"),
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of trace, policy and report.")
    ] = Path("out/broker"),
    trials: Trials = 1000,
    mlruns: Runs = None,
) -> None:
    """Documents and questions to tuned policy and report, on the bundled set."""
    from raglab.lab.study import tune as tuned
    from raglab.live.trace_building import build_trace
    from raglab.store.loaders import load_cases, load_corpus

    start_policy = load_policy(data / "policy.yaml")
    say(f"1/2 trace: retrieve once for the questions of {data}")
    demo_trace = build_trace(
        load_corpus(data),
        load_cases(data),
        out=out / "trace.parquet",
        policy=start_policy,
        command="raglab demo",
    )
    say(f"2/2 study: {trials} configurations over {len(demo_trace)} cases, then a line search")
    tuning_result = tuned(demo_trace, policy=start_policy, trials=trials)
    write_study(tuning_result, out, mlruns, track=True, as_json=False)


for group in (live, imports, experiments, monitoring, audit, logs):
    for command, example in group.COMMANDS:
        app.command(epilog=f"Example: {example}")(command)
app.add_typer(audit.AUDIT_APP, name="audit")
