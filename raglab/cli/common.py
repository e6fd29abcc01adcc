"""Command line (shore): options and printing that commands share."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raglab.progress import silence
from raglab.store.files import Where, csv_text, input_error, map_texts, write_bytes
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.comparison import PolicyContest
    from raglab.lab.search_space import Goal
    from raglab.lab.study import TuneResult
    from raglab.metrics.mixes import Mix
    from raglab.store.policies import Policy
    from raglab.store.traces import StudyTrace, Trace

TracePath = Annotated[Path, typer.Argument(help="Trace, a Parquet file made by `raglab trace`.")]
TraceOrFolder = Annotated[Path, typer.Argument(help="Trace, a Parquet file or a folder of shards.")]
PolicyPath = Annotated[
    Path | None, typer.Option("--policy", "-p", help="Policy YAML. Default: the published policy.")
]
Arm = Annotated[
    str | None, typer.Option(help="Retrieval strategy of the trace to replay. Default: the first.")
]
Split = Annotated[
    str | None, typer.Option(help="Only cases of this split: tune, certify or report.")
]
Sampler = Literal["nsga2", "tpe", "random"]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="sentence-transformers model: folder or NAME[@REVISION]. Default: the bundled model."
    ),
]
Reranker = Annotated[
    str | None,
    typer.Option(help="CrossEncoder: folder, NAME or NAME@REVISION. Default: late interaction."),
]
DenseWeight = Annotated[
    float,
    typer.Option(help="Weight of the embeddings in the fusion. 1 is the weight of the keywords."),
]
Precision = Annotated[
    Literal["float32", "bfloat16"],
    typer.Option(
        help="Precision of the encoder. bfloat16 is faster on processors that multiply in it "
        "(avx512_bf16, amx_bf16)."
    ),
]
CostOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--cost",
        help="label.outcome=cost, such as refuse.answered_wrong=10; outcomes: answered_right, "
        "answered_wrong, refused, "
        "asked (or asked_right, asked_wrong). Repeatable. By default a failed contract costs 1.",
    ),
]
MixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mix",
        help="Shares of the labels in traffic, such as ok=0.9,refuse=0.07,ambiguous=0.03, or "
        "ok=0.8:0.95. Repeatable. Default: those of the cases.",
    ),
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        help="rate=highest, such as over_ask_rate=0.1; rate=lowest of coverage and pass_rate. "
        "Repeatable. "
        "Default: none.",
    ),
]
Download = Annotated[
    bool,
    typer.Option("--download", help="Fetch models from the hub if they are not on this machine."),
]
Runs = Annotated[
    Path | None, typer.Option(help="MLflow folder. Default: MLFLOW_TRACKING_URI, else mlruns.")
]
TUNED = "tuned.yaml"  # of a study, in its folder
MOST_COST = 1e9  # of a case; sums of far more leave the floats
Seed = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, help="Seed. The same seed gives the same result.")
]
Trials = Annotated[
    int,
    typer.Option(min=1, max=1_000_000, help="Configurations to try before the exact line search."),
]
FollowLinks = Annotated[
    bool,
    typer.Option(
        "--follow-links", help="Follow links inside the folders of documents and questions."
    ),
]
CorpusColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus-columns",
        help="field=column, such as text=body, for a CORPUS in CSV or TSV, one row per chunk. "
        "Repeatable.",
    ),
]


TextEncoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        help="Encoding of texts, pages and CSV or TSV tables, such as cp1252. In a folder: of "
        "files not in UTF-8.",
    ),
]


def _no_bars(ctx: typer.Context, *, value: bool) -> bool:
    """No progress bar in the rest of a command where this option is given."""
    if value:
        ctx.with_resource(silence())
    return value


AsJson = Annotated[bool, typer.Option("--json", callback=_no_bars, help="Print JSON for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_no_bars, help="No progress bars.")]


def parse_target(text: str) -> tuple[str, float]:
    """Name and limit of `--target rate=limit`."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        msg = (
            f"--target must be rate=highest, such as {name.strip() or 'over_ask_rate'}=0.05, got "
            f"{text!r:.80}."
        )
        raise ValueError(msg) from None


def parse_costs(texts: Sequence[str] | None) -> dict[str, dict[str, float]] | None:
    """Costs of `--cost label.outcome=cost`, each once; None where none is given.

    Raises:
      ValueError: a text of another form, an unknown label or outcome, a cost out of range, or one
        outcome twice.

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
            msg = (
                "--cost must be label.outcome=cost, such as refuse.answered_wrong=10, got "
                f"{text!r}."
            )
            raise ValueError(msg)
        if outcome in costs.get(label, {}):
            msg = f"--cost must state an outcome once, got {label}.{outcome} twice; leave one out."
            raise ValueError(msg)
        if cost > MOST_COST:
            msg = (
                f"--cost must be at most {MOST_COST:g}, got {text!r}; state costs in a larger unit."
            )
            raise ValueError(msg)
        costs.setdefault(label, {})[outcome] = cost
    cost_matrix(costs)  # refuses names and numbers that mean nothing
    return costs or None


def parse_columns(texts: Sequence[str] | None, option: str = "--columns") -> dict[str, str] | None:
    """Columns of `field=column`, each field once; None where none is given.

    Args:
      texts: of the option.
      option: its name, in messages.

    Raises:
      ValueError: a text of another form, or a field twice.

    Example:
      >>> parse_columns(["query=question", "expect_status=label"])
      {'query': 'question', 'expect_status': 'label'}
    """
    columns: dict[str, str] = {}
    for text in texts or ():
        field, _, column = (part.strip() for part in text.partition("="))
        pairs = re.split(r",\s*(?=\w+\s*=)", text)
        if len(pairs) > 1:
            remedy = f"repeat the option: {' '.join(f'{option} {pair.strip()}' for pair in pairs)}"
            msg = (
                f"{option} must be one pair field=column each time, got {len(pairs)} in "
                f"{text!r:.200}; {remedy}."
            )
            raise ValueError(msg)
        if not field or not column or field in columns:
            msg = (
                f"{option} must be field=column, such as query=question, each field once, got "
                f"{text!r}; correct it."
            )
            raise ValueError(msg)
        columns[field] = column
    return columns or None


def parse_shares(text: str | None) -> dict[str, Any] | None:
    """Shares of `--split`, by split; None where it is not stated.

    `raglab.split` checks their range and sum.

    Raises:
      ValueError: no three numbers.

    Example:
      >>> parse_shares("0.4,0.3,0.3")
      {'tune': 0.4, 'certify': 0.3, 'report': 0.3}
    """
    if text is None:
        return None
    try:
        return dict(zip(("tune", "certify", "report"), map(float, text.split(",")), strict=True))
    except ValueError:
        msg = (
            f"--split must be the shares of tune, certify and report, got {text!r:.80}; write "
            "--split 0.4,0.3,0.3."
        )
        raise ValueError(msg) from None


def parse_mix(texts: Sequence[str] | None) -> Mix:
    """Traffic mix of `--mix`; the sample's where it is not given.

    Raises:
      ValueError: a part that is no label=share, or as for `checked_mix`.

    Example:
      >>> parse_mix(["ok=0.8:0.95"])
      {'ok': (0.8, 0.95)}
    """
    from raglab.metrics.mixes import SAMPLE, checked_mix

    if not texts:
        return SAMPLE
    shares: dict[str, Any] = {}
    for part in ",".join(texts).split(","):
        label, _, ends = part.strip().partition("=")
        try:
            numbers = tuple(map(float, ends.split(":")))
        except ValueError:
            numbers = ()
        if not numbers or label in shares:
            msg = f"--mix must be label=share or label=least:largest, got {part!r:.80}; correct it."
            raise ValueError(msg)
        shares[label] = numbers[0] if len(numbers) == 1 else numbers
    checked_mix(shares)
    return shares


def parse_goal(
    costs: Sequence[str] | None,
    targets: Sequence[str] | None,
    mix: Sequence[str] | None = None,
) -> Goal:
    """Goal of `--cost`, `--target` and `--mix`; without targets where none is given.

    Raises:
      ValueError: as for `parse_costs` and `Goal`, or a rate twice.
    """
    from raglab.lab.search_space import Goal

    return Goal(costs=parse_costs(costs), targets=parse_targets(targets), mix=parse_mix(mix))


def parse_targets(texts: Sequence[str] | None) -> dict[str, float]:
    """Targets of `--target rate=limit`, each rate once; none where none is given."""
    pairs = [parse_target(text) for text in texts or ()]
    repeated = [name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place])]
    if repeated:
        msg = f"--target must name a rate once, got {repeated[0]} twice; leave one out."
        raise ValueError(msg)
    return dict(pairs)


def load_trace(path: Path, split: str | None = None) -> Trace:
    """Trace of a file, or of one of its splits."""
    from raglab.store.traces import Trace

    trace = Trace.load(path)
    return trace if split is None else trace.split(split)


def open_trace(path: Path, split: str | None = None) -> StudyTrace:
    """Trace of a file, or of a folder of shards, which are loaded one at a time.

    Or one of its splits.
    """
    from raglab.store.traces import load_view

    trace = load_view(path)
    return trace if split is None else trace.split(split)


def load_policy(path: Path | None) -> Policy:
    """Policy of a file, or the published one."""
    from raglab.store.policies import Policy

    return Policy.load(path)


def policy_for(path: Path | None, trace: StudyTrace, arm: str | None = None) -> Policy:
    """Policy of a file, or that which the scores of a trace begin with.

    Says where that is not the published one.
    """
    from raglab.lab.search_space import starting_note, starting_policy

    if path is not None:
        return load_policy(path)
    chosen = starting_policy(trace, arm=arm)
    if note := starting_note(chosen):
        say(f"No --policy is given. {note}", err=True)
    return chosen


def say_headline(trace: StudyTrace) -> None:
    """Say on stderr how many cases are left out or scored by status alone (rules S0.1, S6.3)."""
    from raglab.decision.scoring import headline_note

    if note := headline_note(trace):
        say(note, err=True)


def json_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as JSON can hold them.

    Every digit kept, null where a number is not finite.
    """
    return [json_record(row) for row in table.to_dict("records")]


def json_record(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row as JSON can hold it: null where a number is not finite."""
    return {
        str(key): None if isinstance(item, float) and not math.isfinite(item) else item
        for key, item in row.items()
    }


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a text of any origin.

    What would move a cursor or turn the reading direction is shown as an escape.
    """
    typer.echo(visible(text, lines=True) + end, err=err, nl=False)


def say_json(value: Any, *, indent: int | None = None) -> None:  # noqa: ANN401 - any JSON value
    """Print JSON for programs."""
    say_json_text(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def say_json_text(text: str) -> None:
    """Print a text of JSON for programs."""
    typer.echo(shown_json(text))


def shown_json(text: str) -> str:
    r"""JSON of the same value, in which a character that a terminal would obey is escaped.

    Example:
      >>> shown_json('"a\u202eb é"')
      '"a\\u202eb é"'
    """
    if all(line.isprintable() for line in text.split("\n")):
        return text
    return "".join(
        character
        if character == "\n" or visible(character) == character
        else json.dumps(character)[1:-1]
        for character in text
    )


def table_text(table: pd.DataFrame, **how: Any) -> str:  # noqa: ANN401 - of `DataFrame.to_string`
    """Table for people, a row a line, whatever its texts hold."""
    return map_texts(table, visible).to_string(index=False, **how)


def show(value: Any, *, as_json: bool) -> None:  # noqa: ANN401 - a table or a mapping
    """Print a table or a mapping, for people or as JSON."""
    if hasattr(value, "to_dict"):
        if as_json:
            say_json(json_records(value))
        else:
            say(table_text(value))
    elif as_json:
        say_json(value, indent=2)
    else:
        for key, item in value.items():
            say(f"{key}: {visible(str(item))}")


def keep_inputs(
    out: Path | None, *inputs: Path | str | None, option: str = "--out", folder: bool = False
) -> None:
    """Refuse to write over what is read, or where no file can be, before any work is done.

    Args:
      inputs: files and folders that the command reads; in a folder no file may be written over but
        a trace.
      folder: whether it is a folder that is written.

    Raises:
      InputError: the path to write is one of them; or a folder or a device where a file is to be.
    """
    if out is None:
        return
    if not folder and out.exists() and not out.is_file():
        value = "a folder" if out.is_dir() else "a device or pipe"
        raise input_error(Where(str(out)), f"{option} must be a file", "choose another path", value)
    for input_path in inputs:
        if input_path is None:
            continue
        read, written = Path(realpath(input_path)), Path(realpath(out))
        inside = (
            read.is_dir()
            and written.is_file()
            and read in written.parents
            and written.suffix != ".parquet"
        )
        if (
            written == read
            or inside
            or (written.exists() and read.exists() and written.samefile(read))
        ):
            rule = f"{option} must be another file than those that are read"
            raise input_error(
                Where(str(out)),
                rule,
                "choose another path",
                f"what {input_path} holds" if inside else str(input_path),
            )


def write_csv(table: pd.DataFrame, out: Path | None) -> None:
    """Write a table as CSV where a path is given, compressed where it ends in `.gz`.

    Whole or not at all.
    """
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        content = csv_text(table).encode()
        write_bytes(gzip.compress(content, mtime=0) if out.suffix == ".gz" else content, out)
        say(f"wrote {out}", err=True)


def write_study(
    result: TuneResult, out: Path, mlruns: Path | None, *, track: bool, as_json: bool
) -> None:
    """Write policy, report and run of a study.

    Print what was selected, what it is shown to beat, where everything is.

    On the cases that it was tuned on nothing is compared (rules S6.5, S6.11).
    """
    from raglab.lab.comparison import contests, reference_roles
    from raglab.lab.tracking import track as track_study

    out.mkdir(parents=True, exist_ok=True)
    result.policy.save(out / TUNED)
    page = result.report(out / "report.html")
    by = (result.settings["arm"], result.goal.costs)
    policy_contests = (
        contests(
            result.judged_on,
            result.policies,
            reference_roles(result.outcome),
            *by,
            mix=result.goal.mix,
        )
        if result.unseen
        else []
    )
    if as_json:
        _say_study_json(result, policy_contests, {"policy": str(out / TUNED), "report": str(page)})
        if track:
            track_study(result, mlruns, report=page)
        return
    _say_study(result, policy_contests)
    say(f"\nreport:      {page}\npolicy:      {out / TUNED}  (policy_id {result.policy.policy_id})")
    if track:  # last: what a tracker cannot write costs nothing of the study
        run = track_study(result, mlruns, report=page)
        say(
            f"MLflow:      {run.command}\n             then open {run.link}"
            if run.command
            else f"MLflow:      {run.link}"
        )


def _say_study(result: TuneResult, policy_contests: Sequence[PolicyContest]) -> None:
    """Print a study for people."""
    from raglab.lab.comparison import contest_sentence, standings, standings_text, worse_sentence

    say(result.notes[0])
    if worse := worse_sentence(policy_contests, len(result.judged_on)):
        say(f"WARNING: {worse}")
    if result.unseen:
        lead = f"Judged on {len(result.judged_on)} cases that the study did not see"
    else:
        say(
            f"nested estimate of its expected cost on new cases: {result.held_out_estimate:.3f} a "
            "case"
        )
        lead = (
            f"In sample, on the {len(result.judged_on)} cases of the tuning: fitted policies are "
            "not comparable"
        )
    say(f"\n{lead} (rate [95 % interval] k/n; expected cost a case):\n")
    if result.headline:
        say(f"{result.headline}.\n")
    by = (result.settings["arm"], result.goal.costs)
    learned = result.outcome.in_sample
    table = standings(result.judged_on, result.policies, *by, learned, result.goal.mix)
    say(table_text(standings_text(table)) + "\n")
    for contest in policy_contests:
        say(contest_sentence(contest))
    sizes = [contest.size_note for contest in policy_contests if contest.size_note]
    for note in sizes[:1]:  # that of the incumbent, else of the first that shows no difference
        if note not in result.notes[0]:
            say(note)
    for note in result.notes[1:]:
        say(f"note: {note}")


def _say_study_json(
    result: TuneResult, policy_contests: Sequence[PolicyContest], files: Mapping[str, str]
) -> None:
    """Print a study for programs."""
    from raglab.lab.comparison import contest_record

    parts = {
        "selected": result.selected,
        "incumbent": result.incumbent,
        "policy_id": result.policy.policy_id,
        **files,
        "notes": result.notes,
        "held_out_estimate": result.held_out_estimate,
        "unseen": result.unseen,
        "costs": json_records(result.costs.reset_index()),
        "advantage": None if result.advantage is None else result.advantage._asdict(),
        "against": [contest_record(contest) for contest in policy_contests],
        "comparison": json_records(result.rates()),
    }
    say_json(parts, indent=2)
