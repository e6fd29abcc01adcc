"""Command line (shore): the app, and the commands of traces, decisions, sweeps and studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from raglab.cli import audit, experiments, imports, live, logs, monitoring
from raglab.cli.common import (
    TUNED,
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
    parse_goal,
    parse_mix,
    parse_shares,
    parse_targets,
    policy_for,
    say,
    say_headline,
    say_json,
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


def _show_version(*, value: bool) -> None:
    """Print the version, and end."""
    from importlib.metadata import version

    if value:
        say(f"raglab {version('raglab-toolkit')}")
        raise typer.Exit


@app.callback()
def shared_options(
    debug: Annotated[
        bool,
        typer.Option(
            DEBUG,
            help=f"Show the stack of an error; before or after the command, or {DEBUG_VARIABLE}=1.",
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
            help="Folder of Markdown, text, HTML, CSV, PDF or pictures; JSONL; CSV; SQuAD 2.0; "
            "BEIR or MT-RAG folder."
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
        typer.Option(
            help="field=column, such as expect_status=label, for a CSV or TSV of --cases. "
            "Repeatable."
        ),
    ] = None,
    corpus_columns: CorpusColumns = None,
    encoding: TextEncoding = None,
    cases_encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of a CSV or TSV of --cases, such as cp1252. Default: UTF-8."),
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
            help="flat (exact), hnsw, ivf or sqfp16 (on disk). auto is flat up to 100,000 chunks."
        ),
    ] = "auto",
    fetch_k: Annotated[int, typer.Option(min=1, max=10_000, help="Hits per question.")] = 50,
    rerank_k: Annotated[int, typer.Option(min=0, max=10_000, help="Hits to rerank.")] = 20,
    max_depth: Annotated[
        int, typer.Option(help="Refinements to measure after the first search.")
    ] = 0,
    dense_weight: DenseWeight = 1.0,
    precision: Precision = "float32",
    turns: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of earlier turns of a conversation whose words are added to its last "
            "question.",
        ),
    ] = 0,
    follow_links: FollowLinks = False,
    shares: Annotated[
        str | None,
        typer.Option(
            "--split",
            help="Deal questions without splits: shares of tune, certify and report, such as "
            "0.4,0.3,0.3.",
        ),
    ] = None,
    quiet: Quiet = False,  # noqa: ARG001 - read by its callback
    as_json: AsJson = False,
) -> None:
    """Retrieve once for every question and store every measurement."""
    from raglab.lab.slice_rates import ranking
    from raglab.live.trace_building import build_trace
    from raglab.models.files import find_model
    from raglab.store.case_splits import split
    from raglab.store.loaders import load_cases, load_corpus

    # Retrieval may take hours, so a wrong --out or --split is refused before it.
    keep_inputs(out, corpus, cases, policy)
    dealt = parse_shares(shares)
    if encoder is not None:
        find_model(encoder, download=download)  # documents are cut by its tokens
    documents = load_corpus(
        corpus,
        columns=parse_columns(corpus_columns, "--corpus-columns"),
        encoder=encoder,
        follow_links=follow_links,
        encoding=encoding,
    )
    # SQuAD, BEIR and MT-RAG hold documents and questions in one place.
    questions = load_cases(
        cases or corpus,
        columns=parse_columns(columns),
        follow_links=follow_links,
        turns=turns,
        encoding=cases_encoding,
    )
    result = build_trace(
        documents,
        questions if dealt is None else split(questions, **dealt),
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
    where = {"trace": str(out), "cases": len(result), "fingerprint": result.fingerprint}
    table = ranking(result)
    # JSON has the ranking in the same object, so that stdout is one document.
    show(where | {"ranking": json_records(table)} if as_json else where, as_json=as_json)
    if not as_json:
        say_headline(result)
        n_stated = len(result) - table.attrs["without_source"]
        of_all = (
            f" of the {n_stated} of {len(result)} cases that state some"
            if n_stated < len(result)
            else ""
        )
        say(f"\nwhere the expected sources{of_all} stand:\n" + table_text(table.round(4)))


@app.command(
    epilog="Example: raglab decide out/broker.parquet -p datasets/broker/policy.yaml --case w1-001"
)
def decide(
    path: TracePath,
    policy: PolicyPath = None,
    case: Annotated[
        str | None,
        typer.Option(help="Explain this case: every gate, and the smallest change that flips it."),
    ] = None,
    arm: Arm = None,
    split: Split = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Print how many contracts pass (rule S6.3); exit 1 if any fails."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the decisions as CSV.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decide every case with one policy, or explain one."""
    from raglab.replay import decide as decided

    keep_inputs(out, path, policy)
    cases = load_trace(path, split)
    if case is not None:
        _check_case(case, [trace_case.id for trace_case in cases.cases])
    chosen = policy_for(policy, cases, arm)
    decisions = decided(cases, chosen, arm=arm)
    say_headline(cases)
    if case is not None:
        # The exit code of --strict is of a set of contracts; of one case it would pass for all of
        # them.
        if strict:
            msg = "--strict must judge all cases, got --case with it; leave one of the two out."
            raise ValueError(msg)
        _explain_case(cases, chosen, decisions, case, arm, as_json=as_json)
        return
    table = decisions.frame(reasons=True)
    write_csv(table, out)
    # The file and JSON have every column, the screen those that fit a line.
    show(
        table
        if as_json
        else table[["case_id", "expect_status", "status", "decided_by", "confidence", "reason"]],
        as_json=as_json,
    )
    if not as_json:  # a page of rows has no total
        say(f"\n{decisions!r}")
    if strict:
        _exit_on_failed_contracts(decisions, as_json=as_json)


def _check_case(case: str, ids: Sequence[str]) -> None:
    """Refuse an id that no case has.

    Raises:
      ValueError: names the nearest ids.
    """
    if case not in ids:
        near = (
            get_close_matches(case, ids, 3, 0.5)
            or [case_id for case_id in ids if case in case_id][:3]
        )
        meant = f"did you mean {' or '.join(near)}? All" if near else "all"
        remedy = f"{meant} are in the column case_id of `raglab decide TRACE`"
        msg = (
            f"--case must be the id of one of the trace's {len(ids):,} cases, got {case!r:.80}; "
            f"{remedy}."
        )
        raise ValueError(msg)


def _explain_case(
    cases: Trace, policy: Policy, decisions: Decisions, case: str, arm: str | None, *, as_json: bool
) -> None:
    """Print how a case was decided: its label, every check, and what would flip it."""
    import pandas as pd

    from raglab.replay import flips

    place = decisions.row_of(case)
    table = decisions.frame().iloc[[place]].assign(reason=decisions.reason(place))
    row = table.iloc[0]
    checks = pd.DataFrame(decisions.explain(case))
    near = flips(cases, policy, case, arm=arm)
    if as_json:
        parts = {
            "decision": json_records(table)[0] | {"warnings": decisions.warnings(place)},
            "checks": json_records(checks),
            "flips": json_records(near),
        }
        say_json(parts, indent=2)
        return
    label = row["expect_status"] or "none"
    say(
        f"{row['query']}\nlabel {label}, decided {row['status']} ({row['decided_by']}): "
        f"{row['reason']}"
    )
    # None without a label: the case is neither correct nor wrong.
    if row["correct"] is not None:
        say(f"{'correct' if row['correct'] else 'not correct'}: {row['why']}")
    say("")
    say(table_text(checks[["gate", "rule", "margin", "passes", "text"]]))
    say("\nthe smallest change of one threshold that flips it:\n" + table_text(near))


def _exit_on_failed_contracts(decisions: Decisions, *, as_json: bool) -> None:
    """Print pass counts by label; beside JSON on stderr, so that stdout stays JSON."""
    from raglab.values import Status

    labels = [case.expect_status for case in decisions.trace.cases]
    passed = Counter(label for label, right in zip(labels, decisions.right, strict=True) if right)
    parts = ", ".join(
        f"{status.name} {passed[status.name]} of {labels.count(status.name)}"
        for status in Status
        if status.name in labels
    )
    say(f"\npassed {passed.total()} of {len(labels)} contracts (S6.3): {parts}", err=as_json)
    if decisions.basis.text:
        say(f"basis: {decisions.basis_text()}", err=as_json)
    if passed.total() < len(labels):
        raise typer.Exit(1)


@app.command(epilog="Example: raglab sweep out/broker.parquet --path similarity.min_similarity")
def sweep(
    path: TraceOrFolder,
    policies: Annotated[
        list[Path] | None, typer.Argument(help="Policies to compare, one row each.")
    ] = None,
    threshold: Annotated[
        str | None, typer.Option("--path", help="Sweep this threshold exactly, such as l2.max_l2.")
    ] = None,
    policy: PolicyPath = None,
    arm: Arm = None,
    split: Split = None,
    cost: CostOptions = None,
    mix: MixOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write all columns as CSV.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rates and expected cost of several policies, or of one threshold at every breakpoint."""
    from raglab.metrics import RATES
    from raglab.replay import SWEPT, steps
    from raglab.replay import sweep as swept

    if (threshold is None) == (not policies):
        msg = "sweep takes either policies or --path with one threshold, got both or none."
        raise ValueError(msg)
    paths = [str(file) for file in policies or () if str(file) in SWEPT and not file.exists()]
    if paths:
        msg = (
            f"a policy must be a file, got {paths[0]}, which is a threshold; sweep it by --path "
            f"{paths[0]}."
        )
        raise ValueError(msg)
    keep_inputs(out, path, policy, *(policies or ()))
    traffic = parse_mix(mix)
    of, costs = open_trace(path, split), parse_costs(cost)
    if threshold is not None:
        table, lead = (
            steps(of, load_policy(policy), path=threshold, arm=arm, costs=costs, mix=traffic),
            ["low", "high"],
        )
    else:
        every = [load_policy(file) for file in policies or ()]
        table = swept(of, every, arm=arm, costs=costs, mix=traffic)
        table.insert(0, "policy", [str(file) for file in policies or ()])
        lead = ["policy"]
    write_csv(table, out)
    # of a policy that is judged on what it learned from
    lead += ["note"] if "note" in table else []
    show(table if as_json else table[[*lead, *RATES, "expected_cost"]], as_json=as_json)


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
            help="Folder for policy, report and study. A study that is there continues.",
        ),
    ] = Path("out/tune"),
    rule: Annotated[
        Literal["expected_cost", "chain"],
        typer.Option(
            help="What competes with the simple policies: a fitted decision, or the published "
            "chain, tuned."
        ),
    ] = "expected_cost",
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            help="A further candidate: 'one threshold', chain, 'expected cost', or a policy file. "
            "Repeatable."
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(min=2, help="Folds in which every candidate is cross-fitted.")
    ] = 5,
    repeats: Annotated[
        int, typer.Option(min=1, help="How often the cases are dealt into folds.")
    ] = 4,
    trials: Trials = 1000,
    cost: CostOptions = None,
    target: TargetOptions = None,
    mix: MixOption = None,
    sampler: Annotated[Sampler, typer.Option(help="Sampler of Optuna.")] = "nsga2",
    seed: Seed = 0,
    arm: Arm = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Place of the trials: a folder, or the URL of a database. Default: in --out."
        ),
    ] = None,
    study_name: Annotated[
        str | None,
        typer.Option(
            help="Name of the study in the storage. Default: made from corpus and settings."
        ),
    ] = None,
    mlruns: Runs = None,
    track: Annotated[bool, typer.Option(help="Log the study to MLflow.")] = True,
    quiet: Quiet = False,  # noqa: ARG001 - read by its callback
    as_json: AsJson = False,
) -> None:
    """Select the decision of least expected cost on split tune, judge it on split report."""
    from raglab.lab.candidates import RECIPES
    from raglab.lab.study import tune as tuned

    keep_inputs(out / TUNED, path, policy)
    goal = parse_goal(cost, target, mix)  # before anything is read that takes time
    # without one, that of the trace's scores
    start = None if policy is None else load_policy(policy)
    unknown = [name for name in candidate or () if name not in RECIPES and not Path(name).exists()]
    if unknown:
        msg = (
            f"a candidate must be one of {', '.join(RECIPES)}, or a policy file, got "
            f"{unknown[0]!r}; correct it."
        )
        raise ValueError(msg)
    candidates = [
        name if name.replace("_", " ") in RECIPES else load_policy(Path(name))
        for name in candidate or ()
    ]
    of = open_trace(path)
    result = tuned(
        of,
        policy=start,
        goal=goal,
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
    write_study(result, out, mlruns, track=track, as_json=as_json)


@app.command(
    epilog="Example: raglab report out/broker.parquet -p out/broker/tuned.yaml --split report -o "
    "out/report.html"
)
def report(
    path: TraceOrFolder,
    policy: PolicyPath = None,
    incumbent: Annotated[
        Path | None,
        typer.Option(
            help="Policy to compare with. Default: the published thresholds with the policy's "
            "patterns."
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="HTML page to write. PNG figures are written next to it."),
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
    from raglab.lab.search_space import always_answer, always_refuse, published_policy

    keep_inputs(out, path, policy, incumbent)
    chosen, costs, targets = load_policy(policy), parse_costs(cost), parse_targets(target)
    traffic = parse_mix(mix)
    policies = {
        "defaults": (
            base := load_policy(incumbent) if incumbent is not None else published_policy(chosen)
        )
    }
    if chosen.policy_id != base.policy_id:
        policies["tuned"] = chosen
    policies |= {"always-answer": always_answer(chosen), "always-refuse": always_refuse(chosen)}
    make_folder(out.parent)
    trace = open_trace(path, split)
    page = write_report(
        trace, policies, out=out, arm=arm, costs=costs, targets=targets, mix=traffic
    )
    say_headline(trace)
    show({"report": str(page)}, as_json=as_json)


@app.command(epilog="Example: raglab policy -p datasets/broker/policy.yaml")
def policy(path: PolicyPath = None, as_json: AsJson = False) -> None:
    """Print a whole policy with its id. What it does not state has the published defaults."""
    import yaml

    shown = load_policy(path)
    rows = shown.model_dump(mode="json")
    if as_json:
        say_json({"policy_id": shown.policy_id, **rows}, indent=2)
    else:
        say(
            f"# policy_id {shown.policy_id}\n"
            + yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=120)
        )


@app.command(epilog="Run it in a clone of the project. It needs datasets/broker.")
def demo(
    data: Annotated[Path, typer.Option(help="The bundled set.")] = Path("datasets/broker"),
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for trace, policy and report.")
    ] = Path("out/broker"),
    trials: Trials = 1000,
    mlruns: Runs = None,
) -> None:
    """Documents and questions to tuned policy and report, on the bundled set."""
    from raglab.lab.study import tune as tuned
    from raglab.live.trace_building import build_trace
    from raglab.store.loaders import load_cases, load_corpus

    start = load_policy(data / "policy.yaml")
    say(f"1/3 trace: retrieve once for the questions of {data}")
    demo_trace = build_trace(
        load_corpus(data),
        load_cases(data),
        out=out / "trace.parquet",
        policy=start,
        command="raglab demo",
    )
    say(
        f"2/3 study: {trials} configurations replayed over {len(demo_trace)} cases, then an exact "
        "line search"
    )
    result = tuned(demo_trace, policy=start, trials=trials)
    say("3/3 report")
    write_study(result, out, mlruns, track=True, as_json=False)
    say("JupyterLab:  make lab")


for group in (live, imports, experiments, monitoring, audit, logs):
    for command, example in group.COMMANDS:
        app.command(epilog=f"Example: {example}")(command)
app.add_typer(audit.AUDIT, name="audit")
