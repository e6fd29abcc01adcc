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
TUNED_FILE = "tuned.yaml"  # of a study, in its folder
MAX_CASE_COST = 1e9  # of a case; sums of far more leave the floats
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


def _no_bars(ctx: typer.Context, *, is_given: bool) -> bool:
    """No progress bar in the rest of a command where this option is given."""
    if is_given:
        ctx.with_resource(silence())
    return is_given


AsJson = Annotated[bool, typer.Option("--json", callback=_no_bars, help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_no_bars, help="No progress bars.")]


def parse_pairs(
    option_texts: Iterable[str] | None, option: str, expected_form: str, convert: Callable[[str], V]
) -> dict[str, V]:
    """Names and values of `--option name=value`, each name once.

    Args:
      option_texts: of the option.
      option: its name, in messages.
      expected_form: of a text, in messages.
      convert: function of a value; it raises ValueError for a wrong value.

    Raises:
      ValueError: a text of another form, or a name twice.

    Example:
      >>> parse_pairs(["coverage=0.5"], "--target", "rate=limit", float)
      {'coverage': 0.5}
    """
    value_by_name: dict[str, V] = {}
    for pair_text in option_texts or ():
        option_name, _, raw_value = (pair_part.strip() for pair_part in pair_text.partition("="))
        with suppress(ValueError):
            if option_name and raw_value and option_name not in value_by_name:
                value_by_name[option_name] = convert(raw_value)
                continue
        message = f"{option} must be {expected_form}, each once, got {pair_text!r:.200}."
        raise ValueError(message)
    return value_by_name


def parse_numbers(
    number_list: str, option: str, example: str, *, exactly: bool = False
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
    texts = number_list.split(",")
    numbers: tuple[float, ...] = ()
    with suppress(ValueError):
        numbers = tuple(map(float, texts))
    if not numbers or (exactly and len(texts) != len(example.split(","))):
        message = f"{option} must be numbers such as {example}, got {number_list!r:.80}."
        raise ValueError(message)
    return numbers


def parse_costs(option_texts: Sequence[str] | None) -> dict[str, dict[str, float]] | None:
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
    for cost_path, cost in parse_pairs(option_texts, "--cost", "label.outcome=cost", float).items():
        case_label, _, outcome = cost_path.partition(".")
        if not outcome or cost > MAX_CASE_COST:
            cost_form = f"label.outcome=cost, at most {MAX_CASE_COST:g}"
            message = f"--cost must be {cost_form}, got '{cost_path}={cost:g}'."
            raise ValueError(message)
        costs.setdefault(case_label, {})[outcome] = cost
    cost_matrix(costs)  # refuses names and numbers that mean nothing
    return costs or None


def parse_columns(
    option_texts: Sequence[str] | None, option: str = "--columns"
) -> dict[str, str] | None:
    """Columns of `field=column`, each field once; None where none is stated."""
    return parse_pairs(option_texts, option, "field=column", str) or None


def parse_shares(share_list: str | None) -> dict[str, Any] | None:
    """Shares of `--split`, by split; None where it is not stated.

    `raglab.split` checks their range and sum.

    Raises:
      ValueError: no three numbers.

    Example:
      >>> parse_shares("0.4,0.3,0.3")
      {'tune': 0.4, 'certify': 0.3, 'report': 0.3}
    """
    if share_list is None:
        return None
    return dict(
        zip(
            ("tune", "certify", "report"),
            parse_numbers(share_list, "--split", "0.4,0.3,0.3", exactly=True),
            strict=True,
        )
    )


def parse_mix(option_texts: Sequence[str] | None) -> Mix:
    """Traffic mix of `--mix`; the sample's where it is not stated.

    Raises:
      ValueError: a part that is no label=share, or as for `checked_mix`.

    Example:
      >>> parse_mix(["ok=0.8:0.95"])
      {'ok': (0.8, 0.95)}
    """
    from raglab.metrics.mixes import SAMPLE, checked_mix

    share_texts = ",".join(option_texts).split(",") if option_texts else ()
    share_ends = parse_pairs(
        share_texts,
        "--mix",
        "label=share or label=low:high",
        lambda share_text: tuple(map(float, share_text.split(":"))),
    )
    shares: Any = {
        label_name: label_share if label_share[1:] else label_share[0]
        for label_name, label_share in share_ends.items()
    }
    checked_mix(shares or SAMPLE)
    return shares or SAMPLE


def parse_targets(option_texts: Sequence[str] | None) -> dict[str, float]:
    """Targets of `--target rate=limit`, each rate once; none where none is stated."""
    return parse_pairs(option_texts, "--target", "rate=limit", float)


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
    starting_point = starting_policy(trace, arm=arm)
    if start_note := starting_note(starting_point):
        say(f"No --policy is given. {start_note}", err=True)
    return starting_point


def say_headline(trace: StudyTrace) -> None:
    """Say on stderr how many cases are left out or scored by status alone (rules S0.1, S6.3)."""
    from raglab.decision.scoring import headline_note

    if headline := headline_note(trace):
        say(headline, err=True)


def json_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as JSON can hold them.

    Every digit kept, null where a number is not finite.
    """
    return [json_record(row) for row in table.to_dict("records")]


def json_record(table_row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row as JSON can hold it: null where a number is not finite."""
    return {
        str(name): None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in table_row.items()
    }


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a text of any origin.

    What would move a cursor or turn the reading direction is shown as an escape.
    """
    typer.echo(visible(text, lines=True) + end, err=err, nl=False)


def say_json(json_value: Any, *, indent: int | None = None) -> None:  # noqa: ANN401 - any JSON value
    """Print JSON in ASCII, so that no character moves a terminal's cursor or is lost on the way."""
    typer.echo(json.dumps(json_value, indent=indent, default=str))


def table_text(table: pd.DataFrame, width: int | None = None) -> str:
    """Table for people, in lines of at most 100 characters, whatever its texts hold.

    Numbers have four digits; an interval, of columns `<name>_low` and `<name>_high`, stands behind
    its number.

    Args:
      width: characters of a text, which is cut there; None for all.
    """
    shown_table = table.copy()
    for column_name in [
        column_name
        for column_name in table
        if f"{column_name}_low" in table and f"{column_name}_high" in table
    ]:
        interval_columns = (
            shown_table.pop(f"{column_name}_low"),
            shown_table.pop(f"{column_name}_high"),
        )
        shown_table[column_name] = list(
            map(interval_text, shown_table[column_name], *interval_columns)
        )
    format_options: dict[str, Any] = {
        "max_colwidth": width,
        "float_format": value_text,
        "na_rep": DASH,
    }
    shown_table = map_texts(shown_table, visible)
    shown_text = shown_table.to_string(index=False, **format_options)
    if max(map(len, shown_text.split("\n"))) <= LINE:
        return shown_text
    # rows of a wide table go on below, each with its first cell
    return (
        shown_table.set_index(shown_table.columns[0])
        .rename_axis(None)
        .to_string(line_width=LINE, **format_options)
    )


def interval_text(estimate: float, lower_bound: float, upper_bound: float) -> str:
    """Number to three digits with its interval, if there is one.

    Example:
      >>> interval_text(0.3587, 0.2611, 0.4653), interval_text(0.5, float("nan"), float("nan"))
      ('0.359 [0.261, 0.465]', '0.5')
    """
    if math.isnan(estimate):
        return DASH
    return f"{estimate:.3g}" + (
        "" if math.isnan(lower_bound) else f" [{lower_bound:.3g}, {upper_bound:.3g}]"
    )


def say_notes(notes: Iterable[str], *, err: bool = False) -> None:
    """Print sentences in lines of at most 100 characters."""
    for sentence in notes:
        say(fill(visible(sentence), LINE, break_long_words=False, break_on_hyphens=False), err=err)


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
        for name, fact_value in value.items():
            say(f"{name}: {visible(str(fact_value))}")


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
        records_by_table = {table_name: json_records(table) for table_name, table in tables.items()}
        say_json({**facts, "notes": notes, **records_by_table}, indent=2)
        return
    for table in tables.values():
        say(table_text(table if columns is None else table[columns]) + "\n")
    show(facts, as_json=False)
    say_notes(f"note: {sentence}" for sentence in notes)


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
        path_kind = "a folder" if out.is_dir() else "a device or pipe"
        raise input_error(
            Where(str(out)), f"{option} must be a file", "choose another path", path_kind
        )
    for input_path in inputs:
        if input_path is None:
            continue
        input_file = Path(realpath(input_path))
        output_file = Path(realpath(out))
        is_inside = (
            input_file.is_dir()
            and output_file.is_file()
            and input_file in output_file.parents
            and output_file.suffix != ".parquet"
        )
        if (
            output_file == input_file
            or is_inside
            or (output_file.exists() and input_file.exists() and output_file.samefile(input_file))
        ):
            raise input_error(
                Where(str(out)),
                f"{option} must be another file than those that are read",
                "choose another path",
                f"what {input_path} holds" if is_inside else str(input_path),
            )


def write_csv(table: pd.DataFrame, out: Path | None) -> None:
    """Write a table as CSV where a path is given, compressed where it ends in `.gz`.

    Whole or not at all.
    """
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        csv_bytes = csv_text(table).encode()
        write_bytes(gzip.compress(csv_bytes, mtime=0) if out.suffix == ".gz" else csv_bytes, out)
        say(f"wrote {out}", err=True)


def write_study(
    tuning_result: TuneResult, out: Path, mlruns: Path | None, *, track: bool, as_json: bool
) -> None:
    """Write policy, report and run of a study.

    Print what was selected, what it is shown to beat, where everything is.
    """
    from raglab.lab.comparison import contest_record
    from raglab.lab.tracking import track as track_study

    out.mkdir(parents=True, exist_ok=True)
    tuning_result.policy.save(out / TUNED_FILE)
    report_path = tuning_result.report(out / "report.html")
    contest_records = [contest_record(contest) for contest in tuning_result.contests]
    if as_json:
        study_record = {
            "selected": tuning_result.selected,
            "incumbent": tuning_result.incumbent,
            "policy_id": tuning_result.policy.policy_id,
            "policy": str(out / TUNED_FILE),
            "report": str(report_path),
            "notes": tuning_result.notes,
            "held_out_estimate": tuning_result.held_out_estimate,
            "unseen": tuning_result.unseen,
            "costs": json_records(tuning_result.costs.reset_index()),
            "advantage": None
            if tuning_result.advantage is None
            else tuning_result.advantage._asdict(),
            "against": contest_records,
            "comparison": json_records(tuning_result.rates()),
        }
        say_json(study_record, indent=2)
    else:
        _say_study(tuning_result, contest_records)
        say(
            f"\nreport:  {report_path}\npolicy:  {out / TUNED_FILE} "
            f"(policy_id {tuning_result.policy.policy_id})"
        )
    if track:  # last: what a tracker cannot write costs nothing of the study
        tracked_run = track_study(tuning_result, mlruns, report=report_path)
        # a shell reads on behind a backslash, but not inside quotes
        line_width = 10_000 if "'" in tracked_run.command else 90
        command_lines = wrap(tracked_run.command, line_width, break_on_hyphens=False)
        if not as_json:
            say("MLflow:  " + " \\\n  ".join(command_lines) + f"\n{tracked_run.link}")


def _say_study(tuning_result: TuneResult, contest_records: Sequence[Mapping[str, Any]]) -> None:
    """Print the findings of a study, its policies and the comparisons (rules S6.5, S6.11)."""
    import pandas as pd

    from raglab.decision.learned_cases import IN_SAMPLE
    from raglab.decision.scoring import headline_note

    say_notes(tuning_result.notes)
    other_policies = tuning_result.comparison[
        tuning_result.comparison["policy"] != tuning_result.selected
    ].copy()
    if tuning_result.unseen:
        del other_policies["judged_by"]
    else:  # an interval around a cost in sample would lend certainty to a number that flatters
        is_in_sample = other_policies["judged_by"] == IN_SAMPLE
        other_policies.loc[is_in_sample, ["expected_cost_low", "expected_cost_high"]] = math.nan
        other_policies["judged_by"] = other_policies["judged_by"].str.partition(",")[0]
    say(
        f"\n{len(tuning_result.judged_on):,} {'unseen' if tuning_result.unseen else 'tuned'} cases:"
    )
    say_notes(filter(None, [headline_note(tuning_result.judged_on)]))
    say(table_text(short_heads(other_policies)))
    if contest_records:
        contest_heads = {
            "other": "against",
            "only_tuned_right": "tuned_only",
            "only_other_right": "other_only",
        }
        contest_table = (
            pd.DataFrame(contest_records).drop(columns="detectable").rename(columns=contest_heads)
        )
        say(f"\nwhat tuned saves, a case:\n{table_text(contest_table)}")


def short_heads(rate_table: pd.DataFrame) -> pd.DataFrame:
    """Table with its rates and its cost by one word."""
    return rate_table.rename(
        columns=lambda column_name: str(column_name).replace("_rate", "").replace("expected_", "")
    )
