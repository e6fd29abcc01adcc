"""Command line (shore): options and printing that commands share."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from os.path import realpath
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from raglab.progress import silence
from raglab.store.files import Where, csv_text, input_error, map_texts, write_bytes
from raglab.words.characters import visible
from raglab.words.results import DASH, LINE, value_text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.study_result import TuneResult
    from raglab.metrics.mixes import Mix
    from raglab.store.policies import Policy
    from raglab.store.traces import StudyTrace, Trace
    from raglab.values import Corpus

V = TypeVar("V")  # value of an option
TracePath = Annotated[Path, typer.Argument(help="Trace made by `raglab trace`.")]
TraceOrFolder = Annotated[Path, typer.Argument(help="Trace: Parquet file or folder of shards.")]
PolicyPath = Annotated[
    Path | None, typer.Option("--policy", "-p", help="Policy YAML. Default: the published one.")
]
Arm = Annotated[str | None, typer.Option(help="Arm of the trace. Default: the first.")]
Split = Annotated[
    str | None, typer.Option(help="Only cases of this split: tune, certify or report.")
]
Sampler = Literal["nsga2", "tpe", "random"]
Encoder = Annotated[
    str | None,
    typer.Option(help="Encoder: folder, NAME or NAME@REVISION. Default: the bundled model."),
]
Reranker = Annotated[
    str | None,
    typer.Option(help="Cross-encoder: folder, NAME or NAME@REVISION. Default: late interaction."),
]
DenseWeight = Annotated[
    float, typer.Option(help="Weight of embeddings in the fusion; keywords have 1.")
]
Precision = Annotated[
    Literal["float32", "bfloat16"],
    typer.Option(help="Precision of the encoder. bfloat16 suits processors that multiply in it."),
]
CostOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--cost",
        help="label.outcome=cost, outcome: answered_right, answered_wrong, refused, asked. "
        "Repeatable. Default: a failed contract costs 1.",
    ),
]
MixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mix",
        help="Shares of labels in traffic: ok=0.9,refuse=0.1 or ok=0.8:0.95. Default: as sampled.",
    ),
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", help="rate=limit, such as over_ask_rate=0.1. Repeatable."),
]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch models that are not on this machine.")
]
Runs = Annotated[
    Path | None, typer.Option(help="MLflow folder. Default: MLFLOW_TRACKING_URI, else mlruns.")
]
TableOut = Annotated[Path | None, typer.Option("--out", "-o", help="Write all columns as CSV.")]
TUNED = "tuned.yaml"  # of a study, in its folder
MOST_COST = 1e9  # of a case; sums of far more leave the floats
Seed = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, help="Seed: the same gives the same result.")
]
Trials = Annotated[
    int,
    typer.Option(min=1, max=1_000_000, help="Configurations to try before the exact line search."),
]
FollowLinks = Annotated[
    bool, typer.Option("--follow-links", help="Follow links inside folders that are read.")
]
CorpusColumns = Annotated[
    list[str] | None,
    typer.Option("--corpus-columns", help="field=column of a CORPUS in CSV or TSV. Repeatable."),
]
TextEncoding = Annotated[
    str | None,
    typer.Option("--encoding", help="Encoding of texts that are not UTF-8, such as cp1252."),
]
RequestId = Annotated[str, typer.Argument(help="Id of the request, as its response names it.")]


def _no_bars(ctx: typer.Context, *, value: bool) -> bool:
    """No progress bar in the rest of a command where this option is given."""
    if value:
        ctx.with_resource(silence())
    return value


AsJson = Annotated[bool, typer.Option("--json", callback=_no_bars, help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_no_bars, help="No progress bars.")]


def parse_pairs(
    texts: Iterable[str] | None, option: str, form: str, convert: Callable[[str], V]
) -> dict[str, V]:
    """Names and values of `--option name=value`, each name once.

    Args:
      texts: of the option.
      option: its name, in messages.
      form: of a text, in messages.
      convert: function of a value; it raises ValueError where a value is none.

    Raises:
      ValueError: a text of another form, or a name twice.

    Example:
      >>> parse_pairs(["coverage=0.5"], "--target", "rate=limit", float)
      {'coverage': 0.5}
    """
    pairs: dict[str, V] = {}
    for text in texts or ():
        name, _, value = (part.strip() for part in text.partition("="))
        with suppress(ValueError):
            if name and value and name not in pairs:
                pairs[name] = convert(value)
                continue
        msg = f"{option} must be {form}, each once, got {text!r:.200}."
        raise ValueError(msg)
    return pairs


def parse_numbers(
    text: str, option: str, example: str, *, exactly: bool = False
) -> tuple[float, ...]:
    """Numbers of an option, with commas between them.

    Args:
      example: of the option.
      exactly: whether there must be as many as in the example.

    Raises:
      ValueError: a part is no number, or there are too many or too few.

    Example:
      >>> parse_numbers("0.7,0.6", "--means", "0.7,0.6,0.5")
      (0.7, 0.6)
    """
    parts = text.split(",")
    numbers: tuple[float, ...] = ()
    with suppress(ValueError):
        numbers = tuple(map(float, parts))
    if not numbers or (exactly and len(parts) != len(example.split(","))):
        msg = f"{option} must be numbers such as {example}, got {text!r:.80}."
        raise ValueError(msg)
    return numbers


def parse_costs(texts: Sequence[str] | None) -> dict[str, dict[str, float]] | None:
    """Costs of `--cost label.outcome=cost`, each once; None where none is stated.

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
    for path, cost in parse_pairs(texts, "--cost", "label.outcome=cost", float).items():
        label, _, outcome = path.partition(".")
        if not outcome or cost > MOST_COST:
            form = f"label.outcome=cost, at most {MOST_COST:g}"
            msg = f"--cost must be {form}, got '{path}={cost:g}'."
            raise ValueError(msg)
        costs.setdefault(label, {})[outcome] = cost
    cost_matrix(costs)  # refuses names and numbers that mean nothing
    return costs or None


def parse_columns(texts: Sequence[str] | None, option: str = "--columns") -> dict[str, str] | None:
    """Columns of `field=column`, each field once; None where none is stated."""
    return parse_pairs(texts, option, "field=column", str) or None


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
    return dict(
        zip(
            ("tune", "certify", "report"),
            parse_numbers(text, "--split", "0.4,0.3,0.3", exactly=True),
            strict=True,
        )
    )


def parse_mix(texts: Sequence[str] | None) -> Mix:
    """Traffic mix of `--mix`; the sample's where it is not stated.

    Raises:
      ValueError: a part that is no label=share, or as for `checked_mix`.

    Example:
      >>> parse_mix(["ok=0.8:0.95"])
      {'ok': (0.8, 0.95)}
    """
    from raglab.metrics.mixes import SAMPLE, checked_mix

    parts = ",".join(texts).split(",") if texts else ()
    form = "label=share or label=low:high"
    ends = parse_pairs(parts, "--mix", form, lambda text: tuple(map(float, text.split(":"))))
    shares: Any = {name: share if share[1:] else share[0] for name, share in ends.items()}
    checked_mix(shares or SAMPLE)
    return shares or SAMPLE


def parse_targets(texts: Sequence[str] | None) -> dict[str, float]:
    """Targets of `--target rate=limit`, each rate once; none where none is stated."""
    return parse_pairs(texts, "--target", "rate=limit", float)


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


def read_corpus(
    corpus: Path,
    columns: Sequence[str] | None,
    encoder: str | None,
    encoding: str | None,
    *,
    download: bool,
    follow_links: bool,
) -> Corpus:
    """Documents of a corpus, cut by the tokens of the encoder."""
    from raglab.models.files import find_model
    from raglab.store.loaders import load_corpus

    if encoder is not None:
        find_model(encoder, download=download)
    return load_corpus(
        corpus,
        columns=parse_columns(columns, "--corpus-columns"),
        encoder=encoder,
        follow_links=follow_links,
        encoding=encoding,
    )


def load_policy(path: Path | None) -> Policy:
    """Policy of a file, or the published one."""
    from raglab.store.policies import Policy

    return Policy.load(path)


def policy_for(path: Path | None, trace: StudyTrace, arm: str | None = None) -> Policy:
    """Policy of a file, or that which the scores of a trace begin with.

    Says where that is not the published one.
    """
    from raglab.lab.untuned_policies import starting_note, starting_policy

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
    """Print JSON in ASCII, so that no character moves a terminal's cursor or is lost on the way."""
    typer.echo(json.dumps(value, indent=indent, default=str))


def table_text(table: pd.DataFrame, width: int | None = None) -> str:
    """Table for people, in lines of at most 100 characters, whatever its texts hold.

    Numbers have four digits; an interval, of columns `<name>_low` and `<name>_high`, stands behind
    its number.

    Args:
      width: characters of a text, which is cut there; None for all.
    """
    shown = table.copy()
    for name in [name for name in table if f"{name}_low" in table and f"{name}_high" in table]:
        ends = (shown.pop(f"{name}_low"), shown.pop(f"{name}_high"))
        shown[name] = list(map(interval_text, shown[name], *ends))
    how: dict[str, Any] = {"max_colwidth": width, "float_format": value_text, "na_rep": DASH}
    shown = map_texts(shown, visible)
    text = shown.to_string(index=False, **how)
    if max(map(len, text.split("\n"))) <= LINE:
        return text
    # rows of a wide table go on below, each with its first cell
    return shown.set_index(shown.columns[0]).rename_axis(None).to_string(line_width=LINE, **how)


def interval_text(value: float, low: float, high: float) -> str:
    """Number to three digits with its interval, if there is one.

    Example:
      >>> interval_text(0.3587, 0.2611, 0.4653), interval_text(0.5, float("nan"), float("nan"))
      ('0.359 [0.261, 0.465]', '0.5')
    """
    if math.isnan(value):
        return DASH
    return f"{value:.3g}" + ("" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]")


def say_notes(notes: Iterable[str], *, err: bool = False) -> None:
    """Print sentences in lines of at most 100 characters."""
    for note in notes:
        say(fill(visible(note), LINE, break_long_words=False, break_on_hyphens=False), err=err)


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


def show_result(
    facts: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    notes: Sequence[str] = (),
    *,
    as_json: bool,
    columns: list[str] | None = None,
) -> None:
    """Print a result: tables, facts and notes; for people only some columns, where stated."""
    if as_json:
        records = {name: json_records(table) for name, table in tables.items()}
        say_json({**facts, "notes": notes, **records}, indent=2)
        return
    for table in tables.values():
        say(table_text(table if columns is None else table[columns]) + "\n")
    show(facts, as_json=False)
    say_notes(f"note: {note}" for note in notes)


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
    """
    from raglab.lab.comparison import contest_record
    from raglab.lab.tracking import track as track_study

    out.mkdir(parents=True, exist_ok=True)
    result.policy.save(out / TUNED)
    page = result.report(out / "report.html")
    against = [contest_record(contest) for contest in result.contests]
    if as_json:
        parts = {
            "selected": result.selected,
            "incumbent": result.incumbent,
            "policy_id": result.policy.policy_id,
            "policy": str(out / TUNED),
            "report": str(page),
            "notes": result.notes,
            "held_out_estimate": result.held_out_estimate,
            "unseen": result.unseen,
            "costs": json_records(result.costs.reset_index()),
            "advantage": None if result.advantage is None else result.advantage._asdict(),
            "against": against,
            "comparison": json_records(result.rates()),
        }
        say_json(parts, indent=2)
    else:
        _say_study(result, against)
        say(f"\nreport:  {page}\npolicy:  {out / TUNED} (policy_id {result.policy.policy_id})")
    if track:  # last: what a tracker cannot write costs nothing of the study
        run = track_study(result, mlruns, report=page)
        # a shell reads on behind a backslash, but not inside quotes
        width = 10_000 if "'" in run.command else 90
        lines = wrap(run.command, width, break_on_hyphens=False)
        if not as_json:
            say("MLflow:  " + " \\\n  ".join(lines) + f"\n{run.link}")


def _say_study(result: TuneResult, against: Sequence[Mapping[str, Any]]) -> None:
    """Print the findings of a study, its policies and the comparisons (rules S6.5, S6.11)."""
    import pandas as pd

    from raglab.decision.learned_cases import IN_SAMPLE
    from raglab.decision.scoring import headline_note

    say_notes(result.notes)
    table = result.comparison[result.comparison["policy"] != result.selected].copy()
    if result.unseen:
        del table["judged_by"]
    else:  # an interval around a cost in sample would lend certainty to a number that flatters
        in_sample = table["judged_by"] == IN_SAMPLE
        table.loc[in_sample, ["expected_cost_low", "expected_cost_high"]] = math.nan
        table["judged_by"] = table["judged_by"].str.partition(",")[0]
    say(f"\n{len(result.judged_on):,} {'unseen' if result.unseen else 'tuned'} cases:")
    say_notes(filter(None, [headline_note(result.judged_on)]))
    say(table_text(short_heads(table)))
    if against:
        heads = {
            "other": "against",
            "only_tuned_right": "tuned_only",
            "only_other_right": "other_only",
        }
        contests = pd.DataFrame(against).drop(columns="detectable").rename(columns=heads)
        say(f"\nwhat tuned saves, a case:\n{table_text(contests)}")


def short_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Table with its rates and its cost by one word."""
    return table.rename(
        columns=lambda name: str(name).replace("_rate", "").replace("expected_", "")
    )
