"""Commands about promises: `certify`, `check` and `fuse`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from raglab._cli import (
    Arm,
    AsJson,
    Encoder,
    PolicyPath,
    Reranker,
    Split,
    TracePath,
    load_policy,
    load_trace,
    records,
    refusals,
    show,
)

if TYPE_CHECKING:
    from raglab.store.policies import Policy
    from raglab.store.traces import Trace

NOT_KEPT, OPEN = 3, 4
RISK = "hallucination_rate"
Looks = Annotated[
    Path | None,
    typer.Option(help="File that remembers certifications; `looks.jsonl` beside the trace where not given."),
]
Again = Annotated[bool, typer.Option("--again", help="These cases were certified on before, and that is known.")]


def certify(
    path: TracePath,
    policy: PolicyPath = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            help="rate=highest, such as hallucination_rate=0.05; repeat for several; the published two if none.",
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Error of the promise: 0.1 certifies at 90 % confidence.")] = 0.1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the certified policy here.")] = None,
    arm: Arm = None,
    again: Again = False,
    looks: Looks = None,
    as_json: AsJson = False,
) -> None:
    """Thresholds with a finite-sample guarantee: learned on split tune, tested on split certify."""
    from raglab.lab.certificate import certify_policy
    from raglab.lab.promises import certificate_lines
    from raglab.metrics import TARGETS

    with refusals():
        targets = dict(map(_target, target)) if target else dict(TARGETS)
        chosen, trace = load_policy(policy), load_trace(path)
        remembered = looks if looks is not None else path.with_name("looks.jsonl")
        found = certify_policy(trace, chosen, targets=targets, delta=delta, arm=arm, again=again, looks=remembered)
        if found.policy is not None and out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            found.policy.save(out)
        if as_json:
            parts = {"certificate": found.certificate.rows, "notes": found.notes, "tested": records(found.table)}
            typer.echo(json.dumps(parts, ensure_ascii=False, indent=2, default=str))
        else:
            typer.echo("\n".join(certificate_lines(found)))
            if found.policy is not None and out is not None:
                typer.echo(f"policy:      {out}  (policy_id {found.policy.policy_id})")
            if found.policy is None and RISK in targets:
                _say_why(trace, chosen, targets[RISK], delta, arm)
    if found.policy is None:
        raise typer.Exit(NOT_KEPT)


def _say_why(trace: Trace, policy: Policy, alpha: float, delta: float, arm: str | None) -> None:
    """Print what each signal could carry, on cases that the certificate does not need."""
    from raglab.fusion import SIGNALS
    from raglab.lab.fuse import signals_of
    from raglab.lab.promises import diagnosis

    pilot = any(case.split == "tune" for case in trace.cases)
    seen = signals_of(trace.split("tune") if pilot else trace, policy, arm)
    table = diagnosis(seen.right, dict(zip(SIGNALS, seen.score, strict=True)), alpha, delta)
    typer.echo(
        f"\nwhat each signal could carry for a risk of {alpha:g}, on {'split tune' if pilot else 'these cases'}:"
    )
    typer.echo(table.round(3).to_string(index=False, na_rep="–"))


def check(
    policy: Annotated[Path, typer.Argument(help="Policy YAML that holds a certificate.")],
    cases: Annotated[
        Path, typer.Option("--cases", "-c", help="New labelled questions, or a trace of them (.parquet).")
    ],
    corpus: Annotated[
        Path | None, typer.Option(help="Documents to retrieve from; the folder of the cases where not given.")
    ] = None,
    split: Split = None,
    encoder: Encoder = None,
    reranker: Reranker = None,
    again: Again = False,
    as_json: AsJson = False,
) -> None:
    """Re-test a policy's certificate on new cases."""
    from raglab.lab.check import check_policy, retrieved

    with refusals():
        certified = load_policy(policy)
        where = corpus or cases.parent
        trace = (
            load_trace(cases, split)
            if cases.suffix == ".parquet"
            else retrieved(certified, where, cases, split=split, encoder=encoder, reranker=reranker)
        )
        found = check_policy(certified, trace, again=again)
        if as_json:
            parts = {"verdict": found.verdict, "notes": found.notes, "targets": records(found.table)}
            typer.echo(json.dumps(parts, ensure_ascii=False, indent=2))
        else:
            show(found.table, as_json=False)
            typer.echo("\n".join([f"\nverdict: {found.verdict}", *(f"note: {note}" for note in found.notes)]))
    if found.verdict != "upheld":
        raise typer.Exit(NOT_KEPT if found.verdict == "broken" else OPEN)


def _target(text: str) -> tuple[str, float]:
    name, given, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        came = value if given else "nothing"
        msg = f"--target must be rate=highest, such as hallucination_rate=0.05, got {came!r} after {name!r}."
        raise ValueError(msg) from None


def fuse(
    path: TracePath,
    policy: PolicyPath = None,
    method: Annotated[Literal["logistic", "boosting"], typer.Option(help="How the signals are combined.")] = "logistic",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the policy with its fused gate here.")] = None,
    seed: Annotated[int, typer.Option(help="Of the folds and of the intervals.")] = 0,
    arm: Arm = None,
    as_json: AsJson = False,
) -> None:
    """One gate from all signals: fitted on split tune, held against every single gate on split report."""
    from raglab.lab.fuse import compare_gates
    from raglab.lab.fuse import fuse as fused

    with refusals():
        trace, chosen = load_trace(path), load_policy(policy)
        found = fused(trace, chosen, arm=arm, method=method, seed=seed)
        splits = {case.split for case in trace.cases}
        judged = trace.split("report") if "report" in splits else trace
        table = compare_gates(judged, found.policy, arm=arm, seed=seed)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            found.policy.save(out)
        if as_json:
            parts = {
                "policy_id": found.policy.policy_id,
                "parts": {part.signal: part.y[-1] - part.y[0] for part in found.model.parts},
                "quality": records(found.quality),
                "gates": records(table),
            }
            typer.echo(json.dumps(parts, ensure_ascii=False, indent=2))
            return
        typer.echo(f"fitted on {len(found.fitted_on)} cases; reach of each part in logits:")
        for part in sorted(found.model.parts, key=lambda one: one.y[0] - one.y[-1]):
            typer.echo(f"  {part.signal:<22}{part.y[-1] - part.y[0]:6.2f}")
        typer.echo("\n" + found.quality.round(4).to_string(index=False))
        where = "split report" if "report" in splits else "the cases it was fitted on: this flatters"
        typer.echo(f"\non {len(judged)} cases of {where} (difference of AURC to fused, paired 95 % interval):")
        typer.echo(table.round(4).to_string(index=False, na_rep="–"))
        if out is not None:
            typer.echo(f"\npolicy:      {out}  (policy_id {found.policy.policy_id})")


COMMANDS = (
    (fuse, "raglab fuse out/broker/trace.parquet -p out/broker/tuned.yaml -o out/broker/fused.yaml"),
    (certify, "raglab certify out/trace.parquet -p out/fused.yaml -t hallucination_rate=0.5 -o out/c.yaml"),
    (check, "raglab check out/c.yaml --cases datasets/broker/cases.jsonl --split report"),
)
