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
from raglab.audit.log import NOW, check_from_json
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
COLUMNS = (
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
MOST_BYTES = 64 * 2**20  # of a labelled file
_NEAR = 1e-6  # of a whole number, relative: probabilities are rounded in files
Member = TypeVar("Member")
_CHECKED = ("sample", "request_id", "label")  # columns that are read back


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
    log: Entries, *, last: int | None = None, days: float | None = None
) -> list[FirstDecision]:
    """First decisions of the requests, in order of the requests; those without one are left out.

    Args:
      last: only so many of the latest requests.
      days: only of so many days before the latest request.
    """
    columns = ("seq", "at", "request_id")
    rows = log.rows(REQUESTS, columns=columns, most=last)
    requests = sorted(rows, key=itemgetter("seq"))
    if days is not None and requests:
        requests = requests[first_within([row["at"] for row in requests], days) :]
    by_id = {row["request_id"]: row for row in requests}
    decisions = []
    wanted = ("seq", "request_id", "status", "clarified", "checks")
    for row in log.rows(DECISIONS, columns=wanted, after=requests[0]["seq"] if requests else 0):
        request = by_id.pop(row["request_id"], None)
        if request is not None:
            about = (request["seq"], row["seq"], request["at"], row["request_id"], row["status"])
            decisions.append(FirstDecision(*about, _deciding_gate(row)))
    return sorted(decisions)


def first_within(moments: Sequence[str], days: float) -> int:
    """Position of the first of some ordered moments that is within so many days before the last."""
    since = utc_text(datetime.fromisoformat(moments[-1]) - timedelta(days=days))
    return next(position for position, moment in enumerate(moments) if moment >= since)


def _deciding_gate(row: Mapping[str, Any]) -> str:
    """Gate by which a decision was made, '' where it answers."""
    if row["clarified"]:
        return "clarification"
    if row["status"] == "ok":
        return ""
    derived = decide_by_checks(tuple(map(check_from_json, row["checks"])))
    return (derived and derived.gate) or "selection"


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
      n: number of requests; fewer where there are fewer.
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
    at = utc_text(NOW() if now is None else now)
    # One turn of a writer, so that no request is decided between the draw and its event.
    with log.log.writing() as entries, as_written():
        # A request whose model failed counts in no rate, so its label would be work for nothing.
        decisions = first_decisions(entries, last=last, days=days)
        population = [decision for decision in decisions if not decision.failed]
        if not population:
            rule = "a sample must be drawn from requests with a decision"
            refuse(rule, "none", "ask first, or take a longer window")
        strata: dict[str, list[FirstDecision]] = {}
        for decision in population:
            strata.setdefault(decision.stratum, []).append(decision)
        # In the order of the alphabet: the seed must give the same draw whichever stratum the log
        # begins with.
        sizes = {name: len(strata[name]) for name in sorted(strata)}
        shares = even_shares(sizes, n)
        drawn = sorted(draw_strata(strata, shares, np.random.default_rng(seed)))
        ends = {"first": population[0].request, "last": population[-1].request}
        ids = sorted(decision.request_id for decision in drawn)
        # The id is made of the draw, so that the same draw again is the same sample and adds no
        # second event.
        sample = digest(canonical_json([seed, *ends.values(), ids]), 12)
        if entries.row(SAMPLES, sample=sample) is None:
            entries.add(
                SAMPLES,
                {"at": at, "sample": sample, "seed": seed, **ends, "sizes": sizes, "drawn": ids},
            )
        rows = [
            {
                "sample": sample,
                "request_id": decision.request_id,
                "stratum": decision.stratum,
                "inclusion_probability": shares[decision.stratum] / sizes[decision.stratum],
                "sample_size": len(drawn),
                **_request_texts(entries, decision),
                "label": "",
                "question_label": "",
            }
            for decision in drawn
        ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def even_shares(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """How many to draw of each stratum.

    As evenly as their sizes allow, the first in the alphabet before the last.

    Example:
      >>> even_shares({"ok": 100, "refuse": 2}, 10)
      {'ok': 8, 'refuse': 2}
    """
    shares = dict.fromkeys(sizes, 0)
    for _ in range(min(n, sum(sizes.values()))):
        open_strata = [name for name, share in shares.items() if share < sizes[name]]
        shares[min(open_strata, key=shares.__getitem__)] += 1
    return shares


def draw_strata(
    strata: Mapping[str, Sequence[Member]], shares: Mapping[str, int], rng: np.random.Generator
) -> list[Member]:
    """So many members of each stratum, drawn without replacement, all equally likely within it."""
    chosen: list[Member] = []
    for name, share in shares.items():
        places = rng.choice(len(strata[name]), size=share, replace=False)
        chosen += [strata[name][int(place)] for place in places]
    return chosen


def _request_texts(log: Entries, first_decision: FirstDecision) -> dict[str, Any]:
    """Texts of a request as far as the log keeps them.

    What was put to the user stands for the answer.
    """
    request = log.row(REQUESTS, seq=first_decision.request) or {}
    decided = log.row(DECISIONS, seq=first_decision.decision) or {}
    answer = decided["answer"]
    if decided["clarified"]:
        asked_back = log.row(CLARIFICATIONS, request_id=first_decision.request_id)
        answer = answer if asked_back is None else asked_back["question_to_user"]
    return {
        "question": request["question"] or "",
        "decision": first_decision.status,
        "answer": answer or "",
        "reason": decided["reason"] or "",
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
    rows: dict[tuple[str, str], SampleRow] = {}
    for row in sample_rows(path):
        if row.label:
            before = rows.setdefault((row.sample, row.request_id), row)
            if before is not row:
                rule = "column request_id must name a request once in a sample"
                value = f"{shown_value(row.request_id)} as in line {before.where.line}"
                raise input_error(row.where, rule, "keep one of the two rows", value)
    return list(rows.values())


def sample_rows(labels: pd.DataFrame | str | Path) -> Iterator[SampleRow]:
    """Rows of a labelled file, or of its frame, whose labels may be empty.

    Raises:
      InputError: a file that is neither CSV nor JSON lines, a missing column, or a label that is
        none.
    """
    for where, row in placed_rows(labels, "labels"):
        for name in _CHECKED:
            if not isinstance(row.get(name), str):
                value = "no such column" if name not in row else shown_value(row[name])
                rule, remedy = f"column {name} must be a text", "keep the columns of the sample"
                raise input_error(where, rule, remedy, value)
        sample, request_id, label = (row[name].strip() for name in _CHECKED)
        if label not in {*LABEL_NAMES, ""}:
            rule = f"column label must be {', '.join(LABEL_NAMES)} or empty"
            remedy = "say what the request should have got"
            raise input_error(where, rule, remedy, shown_value(row["label"]))
        yield SampleRow(where, sample, request_id, label, row)


def placed_rows(
    rows: pd.DataFrame | str | Path, source: str
) -> Iterator[tuple[Where, Mapping[str, Any]]]:
    """Rows of a file, CSV or JSON lines, or of a frame as texts, each with its place.

    Args:
      rows: file or frame.
      source: what messages call a frame.
    """
    if not isinstance(rows, str | Path):
        texts = rows.astype(object).where(rows.notna(), "").astype(str)
        for place, record in enumerate(texts.to_dict("records"), 1):
            yield Where(source, place), {str(name): cell for name, cell in record.items()}
    elif (path := Path(rows)).suffix == ".jsonl":
        for line in json_lines(path, MOST_BYTES):
            yield line.where, line.record
    else:
        heads, *lines = csv_records(table_text(path, MOST_BYTES), path)
        names = [head.strip() for head in heads.cells]
        check_heads(names, Where(str(path), heads.line))
        for row in lines:
            yield Where(str(path), row.line), dict(zip(names, row.cells, strict=True))


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
    sizes = Counter(sample for sample, *_ in rows)
    for (sample, stratum, chance, size), n in Counter(rows).items():
        requests = n / chance if sample or stratum else 1.0
        is_whole = abs(requests - round(requests)) <= _NEAR * requests
        if not is_whole or size not in {"", str(sizes[sample]), f"{sizes[sample]}.0"}:
            rule, remedy = "a sample must have all drawn rows", "give the file as it was written"
            value = f"{sizes[sample]} of {size or 'more'}"
            raise input_error(Where(source), rule, remedy, value)


def drawn_id(request_id: str, drawn: Container[str]) -> str | None:
    """Id of a labelled row as the sample wrote it, None where it drew no such request.

    A spreadsheet's CSV has an apostrophe before an id that it would run as a formula.
    """
    names = (request_id, request_id.removeprefix("'"))
    return next((name for name in names if name in drawn), None)


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
    rows, at = read_labels(path), utc_text(NOW() if now is None else now)
    counts: Counter[str] = Counter()
    with log.log.writing() as entries, as_written():
        known = {
            row["sample"]: frozenset(row["drawn"])
            for row in entries.rows(SAMPLES, columns=("sample", "drawn"))
        }
        for row in rows:
            request = drawn_id(row.request_id, known.get(row.sample, ()))
            if request is None:
                rule, value = "column sample must name a draw of this log", row.sample
                if row.sample in known:
                    rule = f"column request_id must be one that sample {row.sample} drew"
                    value = row.request_id
                remedy = "give the log and the ids that the sample was written with"
                raise input_error(row.where, rule, remedy, shown_value(value))
            before = entries.row(LABELS, sample=row.sample, request_id=request)
            if before is not None and before["label"] == row.label:
                counts["known"] += 1
                continue
            counts["new" if before is None else "changed"] += 1
            about = {"request_id": request, "sample": row.sample, "label": row.label}
            entries.add(LABELS, {"at": at, **about})
    return LabelCounts(counts["new"], counts["changed"], counts["known"])
