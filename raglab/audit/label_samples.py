"""Label samples (shore): requests drawn by stratum, the file people label, labels back (S6.4).

A stratum is what a request got: its first decision, with the gate that made it. Within one,
requests are drawn without replacement, each with the same probability; the log keeps who was drawn
out of how many, so that what the labels say of the drawn ones holds for all of them (see
`raglab.audit.live_rates`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from raglab.audit.explanation import decide_by_checks
from raglab.audit.log import UTC_NOW, check_from_json
from raglab.decision.checks import ERROR_GATE
from raglab.store.csv_tables import check_heads, csv_records, table_text
from raglab.store.files import (
    Where,
    csv_text,
    input_error,
    json_lines,
    shown_value,
    write_lines,
    write_text,
)
from raglab.store.log_rows import Entries, as_written
from raglab.store.log_tables import CLARIFICATIONS, DECISIONS, LABELS, REQUESTS, SAMPLES
from raglab.values import Status, refuse
from raglab.words.canonical import canonical_json, digest, utc_text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.audit.log import AuditLog

LABEL_NAMES = tuple(status.name for status in Status)
LABEL_SAMPLE_COLUMNS = (
    "sample",
    "request_id",
    "stratum",
    "inclusion_probability",
    "sample_size",
    "question",
    "decision",
    "answer",
    "reason",
    "label",
    "question_label",
)
MAX_LABEL_BYTES = 64 * 2**20  # of a labelled file
_WHOLE_TOLERANCE = 1e-6  # of a whole number, relative: probabilities are rounded in files
Member = TypeVar("Member")
_REQUIRED_COLUMNS = ("sample", "request_id", "label")  # columns that are read back


def stratum_name(status: str, gate: str) -> str:
    """Name of what a request got: its decision, and the gate that made it where it does not answer.

    Example:
      >>> stratum_name("refuse", "similarity"), stratum_name("ok", "")
      ('refuse by similarity', 'ok')
    """
    return f"{status} by {gate}" if gate else status


class FirstDecision(NamedTuple):
    """What a request got at first: what the system did by itself, before any reply.

    request: number of the request's event; decision: of the decision's. gate: that decided, '' of
    an answer, `ERROR_GATE` where the model failed and nothing was decided (rule S0.1).
    """

    request: int
    decision: int
    at: str
    request_id: str
    status: str
    gate: str

    @property
    def stratum(self) -> str:
        """Stratum, such as `ok` or `refuse by similarity`."""
        return stratum_name(self.status, self.gate)

    @property
    def failed(self) -> bool:
        """Whether the model failed, so that the request counts in no rate."""
        return self.gate == ERROR_GATE


def first_decisions(
    entries: Entries, *, last: int | None = None, days: float | None = None
) -> list[FirstDecision]:
    """First decisions of the requests, in order of the requests; those without one are left out.

    Args:
      last: only so many of the latest requests.
      days: only of so many days before the latest request.
    """
    request_columns = ("seq", "at", "request_id")
    request_rows = entries.rows(REQUESTS, columns=request_columns, most=last)
    requests = sorted(request_rows, key=itemgetter("seq"))
    if days is not None and requests:
        requests = requests[first_within([log_row["at"] for log_row in requests], days) :]
    request_by_id = {log_row["request_id"]: log_row for log_row in requests}
    decided_requests = []
    decision_columns = ("seq", "request_id", "status", "clarified", "checks")
    for log_row in entries.rows(
        DECISIONS, columns=decision_columns, after=requests[0]["seq"] if requests else 0
    ):
        request = request_by_id.pop(log_row["request_id"], None)
        if request is not None:
            decision_fields = (
                request["seq"],
                log_row["seq"],
                request["at"],
                log_row["request_id"],
                log_row["status"],
            )
            decided_requests.append(FirstDecision(*decision_fields, _deciding_gate(log_row)))
    return sorted(decided_requests)


def first_within(log_moments: Sequence[str], days: float) -> int:
    """Position of the first of some ordered moments that is within so many days before the last."""
    window_start = utc_text(datetime.fromisoformat(log_moments[-1]) - timedelta(days=days))
    return next(
        position for position, log_moment in enumerate(log_moments) if log_moment >= window_start
    )


def _deciding_gate(decision_row: Mapping[str, Any]) -> str:
    """Gate by which a decision was made, '' where it answers."""
    if decision_row["clarified"]:
        return "clarification"
    if decision_row["status"] == "ok":
        return ""
    derived_decision = decide_by_checks(tuple(map(check_from_json, decision_row["checks"])))
    return (derived_decision and derived_decision.gate) or "selection"


def draw_sample(
    log: AuditLog,
    n: int,
    *,
    seed: int,
    last: int | None = None,
    days: float | None = None,
    now: datetime | None = None,
) -> pd.DataFrame:
    """Draw requests to be labelled, evenly over the strata as far as these go.

    The draw becomes an event of the log.

    Args:
      log: audit log that is drawn from.
      n: number of requests; fewer if the log has fewer.
      seed: of the draw; the same seed and the same log give the same draw.
      last: only of so many of the latest requests.
      days: only of so many days before the latest request.
      now: time of the draw; the clock's where None.

    Returns:
      A row a request: sample, request_id, stratum, inclusion_probability, sample_size (drawn in
        all), question, decision, answer, reason (as far as the log keeps them), and an empty label
        and question_label: see `raglab.sample_for_labels`.

    Raises:
      ValueError: n below 1, or no request with a decision.

    Source: rule S6.4; Cochran 1977, chapter 5.
    """
    import pandas as pd

    if n < 1:
        refuse("n must be at least 1", n, "draw more")
    drawn_at = utc_text(UTC_NOW() if now is None else now)
    # One turn of a writer, so that no request is decided between the draw and its event.
    with log.log.writing() as entries, as_written():
        # A request whose model failed counts in no rate, so its label would be work for nothing.
        decisions = first_decisions(entries, last=last, days=days)
        population = [decision for decision in decisions if not decision.failed]
        if not population:
            refuse(
                "a sample must be drawn from requests with a decision",
                "none",
                "ask first, or take a longer window",
            )
        strata: dict[str, list[FirstDecision]] = {}
        for decision in population:
            strata.setdefault(decision.stratum, []).append(decision)
        # In the order of the alphabet: the seed must give the same draw whichever stratum the log
        # begins with.
        stratum_sizes = {stratum: len(strata[stratum]) for stratum in sorted(strata)}
        drawn_counts = even_shares(stratum_sizes, n)
        drawn_decisions = sorted(draw_strata(strata, drawn_counts, np.random.default_rng(seed)))
        window_ends = {"first": population[0].request, "last": population[-1].request}
        request_ids = sorted(decision.request_id for decision in drawn_decisions)
        # The id is made of the draw, so that the same draw again is the same sample and adds no
        # second event.
        sample_id = digest(canonical_json([seed, *window_ends.values(), request_ids]), 12)
        if entries.row(SAMPLES, sample=sample_id) is None:
            entries.add(
                SAMPLES,
                {
                    "at": drawn_at,
                    "sample": sample_id,
                    "seed": seed,
                    **window_ends,
                    "sizes": stratum_sizes,
                    "drawn": request_ids,
                },
            )
        sample_lines = [
            {
                "sample": sample_id,
                "request_id": decision.request_id,
                "stratum": decision.stratum,
                "inclusion_probability": drawn_counts[decision.stratum]
                / stratum_sizes[decision.stratum],
                "sample_size": len(drawn_decisions),
                **_request_texts(entries, decision),
                "label": "",
                "question_label": "",
            }
            for decision in drawn_decisions
        ]
    return pd.DataFrame(sample_lines, columns=list(LABEL_SAMPLE_COLUMNS))


def even_shares(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """How many to draw of each stratum.

    As evenly as their sizes allow, the first in the alphabet before the last.

    Example:
      >>> even_shares({"ok": 100, "refuse": 2}, 10)
      {'ok': 8, 'refuse': 2}
    """
    drawn_counts = dict.fromkeys(sizes, 0)
    for _ in range(min(n, sum(sizes.values()))):
        open_strata = [
            stratum for stratum, n_drawn in drawn_counts.items() if n_drawn < sizes[stratum]
        ]
        drawn_counts[min(open_strata, key=drawn_counts.__getitem__)] += 1
    return drawn_counts


def draw_strata(
    strata: Mapping[str, Sequence[Member]],
    drawn_counts: Mapping[str, int],
    rng: np.random.Generator,
) -> list[Member]:
    """So many members of each stratum, drawn without replacement, all equally likely within it."""
    chosen_members: list[Member] = []
    for stratum, n_drawn in drawn_counts.items():
        member_indices = rng.choice(len(strata[stratum]), size=n_drawn, replace=False)
        chosen_members += [strata[stratum][int(member_index)] for member_index in member_indices]
    return chosen_members


def _request_texts(entries: Entries, first_decision: FirstDecision) -> dict[str, Any]:
    """Texts of a request as far as the log keeps them.

    What was put to the user stands for the answer.
    """
    request_row = entries.row(REQUESTS, seq=first_decision.request) or {}
    decision_row = entries.row(DECISIONS, seq=first_decision.decision) or {}
    text = decision_row["answer"]
    if decision_row["clarified"]:
        clarification_row = entries.row(CLARIFICATIONS, request_id=first_decision.request_id)
        text = text if clarification_row is None else clarification_row["question_to_user"]
    return {
        "question": request_row["question"] or "",
        "decision": first_decision.status,
        "answer": text or "",
        "reason": decision_row["reason"] or "",
    }


def write_sample(sample: pd.DataFrame, path: Path) -> None:
    """Write a drawn sample to be labelled.

    As JSON lines where the name ends in `.jsonl`, else as CSV.

    Args:
      sample: as `draw_sample` gives it.
      path: of the file.
    """
    if path.suffix == ".jsonl":
        rows: Any = sample.to_dict("records")
        write_lines(rows, path)
    else:
        write_text(csv_text(sample), path)


class SampleRow(NamedTuple):
    """Row of a labelled sample.

    Its place, the columns that are read back, and all of them as texts.

    label: '' where nobody labelled the request.
    """

    where: Where
    sample: str
    request_id: str
    label: str
    record: Mapping[str, Any]


def read_labels(path: Path) -> list[SampleRow]:
    """Rows of a labelled file that have a label.

    Raises:
      InputError: a file that is neither CSV nor JSON lines, a missing column, a label that is none,
        a request twice in one sample; names file, line, column, rule and remedy.
    """
    rows_by_request: dict[tuple[str, str], SampleRow] = {}
    for sample_row in sample_rows(path):
        if sample_row.label:
            earlier_row = rows_by_request.setdefault(
                (sample_row.sample, sample_row.request_id), sample_row
            )
            if earlier_row is not sample_row:
                raise input_error(
                    sample_row.where,
                    "column request_id must name a request once in a sample",
                    "keep one of the two rows",
                    f"{shown_value(sample_row.request_id)} as in line {earlier_row.where.line}",
                )
    return list(rows_by_request.values())


def sample_rows(labels: pd.DataFrame | str | Path) -> Iterator[SampleRow]:
    """Rows of a labelled file, or of its frame, whose labels may be empty.

    Raises:
      InputError: a file that is neither CSV nor JSON lines, a missing column, or a label that is
        none.
    """
    for row_place, label_row in placed_rows(labels, "labels"):
        for column_name in _REQUIRED_COLUMNS:
            if not isinstance(label_row.get(column_name), str):
                cell_text = (
                    "no such column"
                    if column_name not in label_row
                    else shown_value(label_row[column_name])
                )
                raise input_error(
                    row_place,
                    f"column {column_name} must be a text",
                    "keep the columns of the sample",
                    cell_text,
                )
        sample_id, request_id, label_text = (
            label_row[column_name].strip() for column_name in _REQUIRED_COLUMNS
        )
        if label_text not in {*LABEL_NAMES, ""}:
            raise input_error(
                row_place,
                f"column label must be {', '.join(LABEL_NAMES)} or empty",
                "say what the request should have got",
                shown_value(label_row["label"]),
            )
        yield SampleRow(row_place, sample_id, request_id, label_text, label_row)


def placed_rows(
    rows: pd.DataFrame | str | Path, source: str
) -> Iterator[tuple[Where, Mapping[str, Any]]]:
    """Rows of a file, CSV or JSON lines, or of a frame as texts, each with its place.

    Args:
      rows: file or frame.
      source: what messages call a frame.
    """
    if not isinstance(rows, str | Path):
        text_frame = rows.astype(object).where(rows.notna(), "").astype(str)
        for row_number, row_record in enumerate(text_frame.to_dict("records"), 1):
            yield (
                Where(source, row_number),
                {str(column_name): value for column_name, value in row_record.items()},
            )
    elif (path := Path(rows)).suffix == ".jsonl":
        for json_line in json_lines(path, MAX_LABEL_BYTES):
            yield json_line.where, json_line.record
    else:
        header_line, *csv_lines = csv_records(table_text(path, MAX_LABEL_BYTES), path)
        column_names = [head_cell.strip() for head_cell in header_line.cells]
        check_heads(column_names, Where(str(path), header_line.line))
        for csv_line in csv_lines:
            yield (
                Where(str(path), csv_line.line),
                dict(zip(column_names, csv_line.cells, strict=True)),
            )


def check_whole_samples(rows: Sequence[tuple[str, str, float, str]], source: str) -> None:
    """Require rows of samples to be all that were drawn, by what they state of themselves.

    A sample has as many rows as its `sample_size`; and n rows of a stratum that were drawn with
    probability p are of n / p requests, which is a whole number.

    Args:
      rows: of a labelled file: sample, stratum, probability in (0, 1] and sample_size, texts ''
        where not stated. The probability is the same within a stratum of a sample.
      source: of the rows, for messages.

    Raises:
      InputError: a sample with fewer rows than were drawn, or with more.
    """
    sample_sizes = Counter(sample for sample, *_ in rows)
    for (sample, stratum, draw_probability, stated_size), n_rows in Counter(rows).items():
        n_requests = n_rows / draw_probability if sample or stratum else 1.0
        is_whole = abs(n_requests - round(n_requests)) <= _WHOLE_TOLERANCE * n_requests
        if not is_whole or stated_size not in {
            "",
            str(sample_sizes[sample]),
            f"{sample_sizes[sample]}.0",
        }:
            raise input_error(
                Where(source),
                "a sample must have all drawn rows",
                "give the file as it was written",
                f"{sample_sizes[sample]} of {stated_size or 'more'}",
            )


def drawn_id(request_id: str, drawn: Container[str]) -> str | None:
    """Id of a labelled row as the sample wrote it, None where it drew no such request.

    A spreadsheet's CSV has an apostrophe before an id that it would run as a formula.
    """
    written_ids = (request_id, request_id.removeprefix("'"))
    return next((written_id for written_id in written_ids if written_id in drawn), None)


class LabelCounts(NamedTuple):
    """What came of a labelled file.

    Labels that are new, that changed another, that were known already.
    """

    new: int
    changed: int
    known: int


def record_labels(log: AuditLog, path: Path, *, now: datetime | None = None) -> LabelCounts:
    """Read a labelled file back into the log: an event a label, all of them or none.

    A label that is there adds none.

    Args:
      log: audit log that the sample was drawn from.
      path: of the labelled file.
      now: time of the labels; the clock's where None.

    Returns:
      Numbers of labels that were added, and that were there.

    Raises:
      InputError: a file that `read_labels` refuses; a sample that the log did not draw, a request
        that is not of it.

    Source: rule S6.4.
    """
    label_rows = read_labels(path)
    recorded_at = utc_text(UTC_NOW() if now is None else now)
    label_counts: Counter[str] = Counter()
    with log.log.writing() as entries, as_written():
        drawn_by_sample = {
            label_row["sample"]: frozenset(label_row["drawn"])
            for label_row in entries.rows(SAMPLES, columns=("sample", "drawn"))
        }
        for label_row in label_rows:
            drawn_request = drawn_id(
                label_row.request_id, drawn_by_sample.get(label_row.sample, ())
            )
            if drawn_request is None:
                label_rule = "column sample must name a draw of this log"
                wrong_text = label_row.sample
                if label_row.sample in drawn_by_sample:
                    label_rule = (
                        f"column request_id must be one that sample {label_row.sample} drew"
                    )
                    wrong_text = label_row.request_id
                raise input_error(
                    label_row.where,
                    label_rule,
                    "give the log and the ids that the sample was written with",
                    shown_value(wrong_text),
                )
            earlier_label = entries.row(LABELS, sample=label_row.sample, request_id=drawn_request)
            if earlier_label is not None and earlier_label["label"] == label_row.label:
                label_counts["known"] += 1
                continue
            label_counts["new" if earlier_label is None else "changed"] += 1
            label_event = {
                "request_id": drawn_request,
                "sample": label_row.sample,
                "label": label_row.label,
            }
            entries.add(LABELS, {"at": recorded_at, **label_event})
    return LabelCounts(label_counts["new"], label_counts["changed"], label_counts["known"])
