"""Command line (shore): options and printing that commands share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.search_space import Goal
    from raglab.lab.study import TuneResult
    from raglab.store.loaders import Policy
    from raglab.store.traces import Trace

TracePath = Annotated[Path, typer.Argument(help="Trace, a Parquet file made by `raglab trace`.")]
PolicyPath = Annotated[
    Path | None, typer.Option("--policy", "-p", help="Policy YAML; the published defaults where not given.")
]
Arm = Annotated[str | None, typer.Option(help="Retrieval strategy of the trace to replay; its first where not given.")]
Split = Annotated[str | None, typer.Option(help="Only cases of this split: tune, certify or report.")]
Sampler = Literal["nsga2", "tpe", "random"]
Encoder = Annotated[
    str | None, typer.Option(help="sentence-transformers model by name or path; bundled where not given.")
]
Reranker = Annotated[str | None, typer.Option(help="CrossEncoder by name or path; late interaction where not given.")]
CostOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--cost",
        help="label.outcome=cost, such as refuse.answered_wrong=10; outcomes: answered_right, answered_wrong, refused, "
        "asked (or asked_right, asked_wrong). Repeat; a failed contract costs 1 where nothing is said.",
    ),
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        help="rate=highest, such as over_ask_rate=0.1 (of coverage and pass_rate the lowest); repeat for several; the "
        "published two if none.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@contextmanager
def refusals() -> Iterator[None]:
    """Print what an input broke as one line, without a stack."""
    try:
        yield
    except (ValueError, KeyError, OSError, ImportError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        typer.echo(f"raglab: {text}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def parse_target(text: str) -> tuple[str, float]:
    """Name and limit of `--target rate=limit`."""
    name, given, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        came = value if given else "nothing"
        msg = f"--target must be rate=highest, such as hallucination_rate=0.05, got {came!r} after {name!r}."
        raise ValueError(msg) from None


def parse_costs(texts: Sequence[str] | None) -> dict[str, dict[str, float]] | None:
    """Costs of `--cost label.outcome=cost`, each once; None where none is given.

    Raises:
      ValueError: a text of another form, an unknown label or outcome, a cost out of range, or one outcome twice.

    Source: rule S6.7.

    Example:
      >>> parse_costs(["ok.refused=0.5", "refuse.answered_wrong=10"])
      {'ok': {'refused': 0.5}, 'refuse': {'answered_wrong': 10.0}}
    """
    from raglab.metrics import cost_matrix

    costs: dict[str, dict[str, float]] = {}
    for text in texts or ():
        path, _, value = text.partition("=")
        label, dot, outcome = (part.strip() for part in path.partition("."))
        try:
            cost = float(value)
        except ValueError:
            dot = ""
        if not (dot and label and outcome):
            msg = f"--cost must be label.outcome=cost, such as refuse.answered_wrong=10, got {text!r}."
            raise ValueError(msg)
        if outcome in costs.get(label, {}):
            msg = f"--cost must state an outcome once, got {label}.{outcome} twice; leave one out."
            raise ValueError(msg)
        costs.setdefault(label, {})[outcome] = cost
    cost_matrix(costs)  # refuses names and numbers that mean nothing
    return costs or None


def parse_goal(costs: Sequence[str] | None, targets: Sequence[str] | None) -> Goal:
    """Goal of `--cost` and `--target`; the published targets where none is given.

    Raises:
      ValueError: as for `parse_costs` and `Goal`, or a rate twice.
    """
    from raglab.lab.search_space import Goal

    stated = parse_costs(costs)
    return Goal(costs=stated, targets=parse_targets(targets)) if targets else Goal(costs=stated)


def parse_targets(texts: Sequence[str] | None) -> dict[str, float]:
    """Targets of `--target rate=limit`, each rate once; the published ones where none is given."""
    from raglab.metrics import TARGETS

    pairs = [parse_target(text) for text in texts or ()]
    repeated = [name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place])]
    if repeated:
        msg = f"--target must name a rate once, got {repeated[0]} twice; leave one out."
        raise ValueError(msg)
    return dict(pairs) or dict(TARGETS)


def load_trace(path: Path, split: str | None = None) -> Trace:
    """Trace of a file, or of one of its splits."""
    from raglab.store.traces import Trace

    trace = Trace.load(path)
    return trace if split is None else trace.split(split)


def load_policy(path: Path | None) -> Policy:
    """Policy of a file, or the published one."""
    from raglab.store.loaders import Policy

    return Policy.load(path)


def json_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as JSON can hold them: every digit kept, null where a number is not finite."""
    return [
        {str(key): None if isinstance(item, float) and not math.isfinite(item) else item for key, item in row.items()}
        for row in table.to_dict("records")
    ]


def show(value: Any, *, as_json: bool) -> None:  # noqa: ANN401 - a table or a mapping
    """Print a table or a mapping, for people or as JSON."""
    if hasattr(value, "to_dict"):
        if as_json:
            typer.echo(json.dumps(json_records(value), ensure_ascii=False))
        else:
            typer.echo(value.to_string(index=False))
    else:
        typer.echo(
            json.dumps(value, ensure_ascii=False, indent=2)
            if as_json
            else "\n".join(f"{key}: {item}" for key, item in value.items())
        )


def write_csv(table: pd.DataFrame, out: Path | None) -> None:
    """Write a table as CSV where a path is given."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(out, index=False)
        typer.echo(f"wrote {out}", err=True)


def write_study(result: TuneResult, out: Path, mlruns: Path | None, *, as_json: bool) -> None:
    """Write policy, report and run of a study; print what was selected, what it beats, and where everything is."""
    from raglab.lab.comparison import (
        contest_record,
        contest_sentence,
        contests,
        reference_roles,
        standings,
        standings_text,
        worse_sentence,
    )
    from raglab.lab.tracking import track

    out.mkdir(parents=True, exist_ok=True)
    result.policy.save(out / "tuned.yaml")
    page = result.report(out / "report.html")
    judged = (result.judged_on, result.policies)
    by = (result.settings["arm"], result.goal.costs)
    found = contests(*judged, reference_roles(result.costs), *by)
    if as_json:
        parts = {
            "selected": result.selected,
            "policy_id": result.policy.policy_id,
            "policy": str(out / "tuned.yaml"),
            "report": str(page),
            "notes": result.notes,
            "costs": json_records(result.costs.reset_index()),
            "advantage": result.advantage._asdict(),
            "against": [contest_record(one) for one in found],
            "comparison": json_records(result.comparison),
        }
        typer.echo(json.dumps(parts, ensure_ascii=False, indent=2))
        if mlruns is not None:
            track(result, mlruns, report=page)
        return
    typer.echo(result.notes[0])
    if worse := worse_sentence(found, len(result.judged_on)):
        typer.echo(f"WARNING: {worse}")
    seen = "it was tuned on" if result.judged_on is result.tuned_on else "that the study did not see"
    typer.echo(f"\nJudged on {len(result.judged_on)} cases {seen} (rate [95 % interval] k/n; expected cost a case):\n")
    typer.echo(standings_text(standings(*judged, *by)).to_string(index=False) + "\n")
    for one in found:
        typer.echo(contest_sentence(one))
    for note in result.notes[1:]:
        typer.echo(f"note: {note}")
    typer.echo(f"\nreport:      {page}\npolicy:      {out / 'tuned.yaml'}  (policy_id {result.policy.policy_id})")
    if mlruns is not None:  # last: what a tracker cannot write costs nothing of the study
        run = track(result, mlruns, report=page)
        typer.echo(f"MLflow:      {run.command}\n             then open {run.link}")
