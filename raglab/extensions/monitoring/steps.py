"""Steps (shore): a stream of labelled requests, checked and in time order, to bet on (S6.13).

A request that is drawn by itself is a step. A sample that is drawn together is one step of several
rows. Let a stratum of N requests have n drawn without replacement, x = N / n * (k - alpha * n) of
each, and a bet b with 1 + b * x > 0. The mean of prod(1 + b * x) over the draws is at most (1 + b *
mean(x)) ** n (Maclaurin's inequality), and that is at most exp(b * sum(k - alpha * n)) over all N.
So betting row by row is right at the end of the sample, and nowhere inside it. It rests on this:
the label of a request does not depend on which others of its stratum were drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import is_missing
from raglab.audit.label_samples import LABEL_NAMES, check_whole_samples, placed_rows
from raglab.decision.inclusion import PROBABILITY
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.scoring import trace_basis
from raglab.decision.trace_view import Measured, answered_cases, failed_count
from raglab.lab.answer_basis import check_compared, missing_notes
from raglab.lab.certification import check_new_cases, check_notes
from raglab.lab.label_sampling import SAMPLE_LABEL, STRATUM
from raglab.lab.looks import stated_certificate
from raglab.metrics import CELLS, STATUS_OF_CELL
from raglab.replay import cases_by_shard, decide_policies, each_shard, join_columns, shard_codes
from raglab.store.files import Where, input_error, plain_cell, shown_value
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.values import Status, TraceData
from raglab.words.canonical import canonical_json, digest, utc_text

if TYPE_CHECKING:
    import pandas as pd

ERROR = "error"  # decision of a request whose model failed, which counts in no rate (rule S0.1)
DECISIONS = (*LABEL_NAMES, ERROR)
NEAR_PROBABILITY = frozenset({"probability", "prob", "pi", "weight", "propensity", "p_inclusion"})
TRUTHS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": True}


class StreamSteps(NamedTuple):
    """Rows of a labelled stream in the order of its steps, N rows of S steps.

    Attributes:
      decision: codes of `Status`, [N].
      cell: decision, label and whether it is right, [N]; -1 where nobody labelled the row.
      probability: of inclusion, [N].
      ids: of the requests, '' where none is stated, [N].
      ends: last row of each step, [S].
      samples: sample that a step is of, '' for a request drawn by itself, [S].
      times: of the last row of each step, '' where none is stated, [S].
      errors: rows that were left out, since the model failed.
      notes: what a reader must know of the rows.
    """

    decision: NDArray[np.int8]
    cell: NDArray[np.int8]
    probability: NDArray[np.float64]
    ids: tuple[str, ...]
    ends: NDArray[np.int64]
    samples: tuple[str, ...]
    times: tuple[str, ...]
    errors: int
    notes: tuple[str, ...]


class StreamColumns(NamedTuple):
    """Columns of a stream before it is put in order, [N] each.

    Stratum and sample are '' where there is none.
    """

    decision: NDArray[np.int8]
    cell: NDArray[np.int8]
    probability: NDArray[np.float64]
    ids: Sequence[str]
    at: Sequence[str]
    sample: Sequence[str]
    stratum: Sequence[str]


def is_drawn(
    request_ids: Sequence[object], probability: ArrayLike, *, seed: int
) -> NDArray[np.bool_]:
    """Whether requests are drawn to be labelled, each by itself.

    By a hash, so that every worker draws alike, [N].

    Args:
      request_ids: [N]; read as text without white space around it: 1, 1.0 and "1" draw alike, and a
        UUID as its text.
      probability: in (0, 1], one or [N]; it may follow from anything that is known before the
        label.
      seed: of the draw; without it nobody can say who will be drawn.

    Raises:
      ValueError: a probability outside (0, 1], another number of them, or ids that are missing or
        empty.
      TypeError: a single text as ids, or a seed that is no integer.

    Source: rule S6.13.

    Example:
      >>> is_drawn(["a", "b", "c", "d"], 0.5, seed=1).tolist()
      [True, True, False, True]
    """
    if isinstance(request_ids, str | bytes):
        msg = f"request_ids must be several ids, got the text {request_ids!r:.80}; give a list."
        raise TypeError(msg)
    if not isinstance(seed, int | np.integer):
        msg = f"seed must be an integer, got {seed!r}."
        raise TypeError(msg)
    names = ["" if is_missing(each) else _id_text(each) for each in request_ids]
    if blank := names.count(""):
        msg = (
            f"request_ids must not be missing, got {blank:,} of {len(names):,}; they would all "
            "draw alike."
        )
        raise ValueError(msg)
    chances = np.asarray(probability, dtype=np.float64)
    if chances.shape not in {(), (len(names),)}:
        msg = (
            f"probability must be one number, or {len(names):,} as request_ids, got "
            f"{chances.size:,}."
        )
        raise ValueError(msg)
    if not ((chances > 0.0) & (chances <= 1.0)).all():
        msg = f"probability must be in (0, 1], got {probability!r}."
        raise ValueError(msg)
    places = [int(digest(canonical_json([int(seed), name]), 13), 16) / 16.0**13 for name in names]
    return np.array(places) < chances


def _id_text(value: object) -> str:
    """Text of an id.

    Whole floats as integers, since pandas keeps integers beside missing ones as floats.
    """
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return (str(int(cast("float", value))) if is_whole else str(value)).strip()


def stream_steps(
    stream: StudyTrace | pd.DataFrame | str | Path,
    policy: Policy | None,
    policy_id: str,
    arm: str | None = None,
) -> StreamSteps:
    """Steps of a labelled stream.

    Args:
      stream: labelled trace, on which the policy is replayed; or rows, a frame or the path of CSV
        or JSON lines.
      policy: that holds the certificate; None where it is not at hand, so that no trace can be
        replayed.
      policy_id: that rows must be decided by, where they state one.
      arm: of a trace; the certificate's where None.

    Raises:
      InputError: a missing column, an unknown value, a probability outside (0, 1], a request twice,
        or a time that is none; with counts.
      ValueError: a trace without a policy, or one that `raglab.check_policy` refuses.
    """
    import pandas as pd

    if isinstance(stream, str | Path | pd.DataFrame):
        return _row_steps(stream, policy_id)
    if not hasattr(stream, "parts"):
        msg = (
            "stream must be a labelled trace, a DataFrame or the path of a file, got "
            f"{type(stream).__name__}."
        )
        raise TypeError(msg)
    if policy is None:
        msg = "a trace must be replayed by its policy, got a Certificate; give the policy."
        raise ValueError(msg)
    return _trace_steps(stream, policy, arm)


def _row_steps(rows: pd.DataFrame | str | Path, policy_id: str) -> StreamSteps:
    source = str(rows) if isinstance(rows, str | Path) else "stream"
    records, names = _checked_records(rows, source)

    def column(name: str, known: Sequence[str], what: str, remedy: str) -> list[str]:
        cells = [row.get(name, "") for row in records]
        wrong = [cell for cell in cells if cell not in known]
        if wrong:
            value = (
                f"{len(wrong):,} of {len(cells):,} that are not, such as {shown_value(wrong[0])}"
            )
            raise input_error(Where(source), f"column {name} must be {what}", remedy, value)
        return cells

    decisions = column("decision", DECISIONS, ", ".join(DECISIONS), "say what the request got")
    labels = column(
        "label",
        (*LABEL_NAMES, ""),
        f"{', '.join(LABEL_NAMES)} or empty",
        "say what the request should have got",
    )
    for row in records:
        row["correct"] = row.get("correct", "").lower()
    corrects = column(
        "correct", tuple(TRUTHS), "true, false or empty", "say whether an answer is right"
    )
    if "policy_id" in names:
        column(
            "policy_id",
            (policy_id, ""),
            policy_id,
            "give rows of the certified policy",
        )
    is_right = np.array([TRUTHS[cell] for cell in corrects], dtype=bool)
    codes = np.array([DECISIONS.index(name) for name in decisions], dtype=np.int8)
    label = np.array([LABEL_NAMES.index(name) if name else -1 for name in labels], dtype=np.int8)
    right = (codes == label) & ((label != Status.ok) | is_right)
    # An answer that nobody graded, where others are graded, counts as a label that is missing.
    is_ungraded = np.array([cell == "" and "correct" in names for cell in corrects], dtype=bool)
    is_ungraded &= (codes == Status.ok) & (label == Status.ok)
    label = np.where(is_ungraded, -1, label).astype(np.int8)
    notes = (
        [] if PROBABILITY in names else [f"No column {PROBABILITY}: every request has weight 1."]
    )
    if is_ungraded.any():
        notes.append(
            f"{int(is_ungraded.sum()):,} answers without a value of correct count as not labelled."
        )
    columns = StreamColumns(
        decision=codes,
        cell=np.where(label >= 0, codes * CELLS + label * 2 + right, -1).astype(np.int8),
        probability=np.array(
            [_number(row[PROBABILITY]) if PROBABILITY in names else 1.0 for row in records]
        ),
        ids=[plain_cell(row.get("request_id", "")) for row in records],
        at=[row.get("at", "") for row in records],
        sample=[row.get("sample", "") for row in records],
        stratum=[row.get("stratum", "") for row in records],
    )
    steps = ordered_steps(columns, source)
    sizes = [row.get("sample_size", "") for row in records]
    drawn = zip(columns.sample, columns.stratum, columns.probability.tolist(), sizes, strict=True)
    check_whole_samples(list(drawn), source)
    return steps._replace(notes=(*steps.notes, *notes))


def _checked_records(
    rows: pd.DataFrame | str | Path, source: str
) -> tuple[list[dict[str, str]], set[str]]:
    """Rows as texts by column, and the names of the columns, of which no needed one is missing."""
    if isinstance(rows, str | Path):
        records = [
            {name: "" if cell is None else str(cell).strip() for name, cell in row.items()}
            for _, row in placed_rows(rows, source)
        ]
        names = set().union(*records) if records else set()
    else:
        cells = rows.astype(object).where(rows.notna(), "")
        texts = cells.astype(str).assign(
            **{name: cells[name].map(_id_text) for name in cells if name == "request_id"}
        )
        records = [
            {str(name): cell.strip() for name, cell in row.items()}
            for row in texts.to_dict("records")
        ]
        names = set(map(str, rows.columns))
    drawn = [name for name in (STRATUM, "sample_size") if any(row.get(name) for row in records)]
    if PROBABILITY not in names and (near := sorted(NEAR_PROBABILITY & names) + drawn):
        rule = f"the column of inclusion probabilities must be named {PROBABILITY}"
        raise input_error(Where(source), rule, "rename it", near[0])
    for name in ("decision", "label"):
        if name not in names:
            rule = f"labelled rows must have the column {name}"
            raise input_error(Where(source), rule, "keep the columns of the sample", "none")
    return records, names


def _number(text: str) -> float:
    """Number of a text; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def shard_status(trace: TraceData | Measured, policy: Policy, arm: str | None) -> NDArray[np.int8]:
    """Decision of each case of a trace in memory; pure, so that any worker may decide a shard."""
    return decide_policies(Measured.of(trace), [policy], arm)[0].status


def _trace_steps(trace: StudyTrace, policy: Policy, arm: str | None) -> StreamSteps:
    """Steps of a trace: its cases with a probability are drawn; where none has one, all are."""
    certificate, failed = stated_certificate(policy), failed_count(trace)
    trace = answered_cases(trace)
    doubt = check_new_cases(trace, policy, certificate)
    cases = [case for part in cases_by_shard(trace) for case in part]
    stated = np.array([case.extra.get(PROBABILITY) for case in cases], dtype=np.float64)
    is_sampled = not np.isnan(stated).all()
    is_in = ~np.isnan(stated) if is_sampled else np.ones(len(cases), dtype=bool)
    # A label that nobody drew says nothing of the rest, and a drawn request has that of its sample
    # alone.
    has_label = np.array(
        [case.expect_status is not None and case.extra.get(SAMPLE_LABEL) != "" for case in cases]
    )
    aside = int((has_label & ~is_in).sum())
    notes = [f"{aside:,} labels of requests that were not drawn are left out."] if aside else []
    decision, cell = np.zeros(len(cases), dtype=np.int8), np.full(len(cases), -1, dtype=np.int8)
    own_arm = arm or certificate.get("arm")
    if len(rows := np.flatnonzero(is_in & has_label)):
        codes = join_columns(
            each_shard(shard_codes, trace.subset(rows), [policy], own_arm, what="decide")
        )
        missing = {policy.policy_id: codes_missing(codes)[0]}
        check_compared(missing)
        notes += missing_notes(missing, "these cases")
        cell[rows] = CELL_OF_CODE[codes[0]]
        decision[rows] = STATUS_OF_CELL[cell[rows]]
    if len(rows := np.flatnonzero(is_in & ~has_label)):
        decision[rows] = np.concatenate(
            list(each_shard(shard_status, trace.subset(rows), policy, own_arm, what="decide"))
        )
    rows = np.flatnonzero(is_in)
    columns = StreamColumns(
        decision=decision[rows],
        cell=cell[rows],
        probability=stated[rows] if is_sampled else np.ones(len(rows)),
        ids=[cases[row].id for row in rows],
        at=[str(cases[row].extra.get("at") or "") for row in rows],
        sample=[""] * len(rows),
        stratum=[str(cases[row].extra.get(STRATUM) or "") if is_sampled else "" for row in rows],
    )
    notes = [*notes, *doubt, *check_notes(certificate, trace, str(trace_basis(trace)))]
    steps = ordered_steps(columns, "trace", notes)
    return steps._replace(errors=steps.errors + failed)


def ordered_steps(columns: StreamColumns, source: str, notes: Sequence[str] = ()) -> StreamSteps:
    """Rows in the order of their steps.

    By time, the rows of a sample together at its last one, by id inside.

    Raises:
      InputError: a request twice, times of some rows alone or of none, strata of unequal
        probabilities.
    """
    wrong = int((~((columns.probability > 0.0) & (columns.probability <= 1.0))).sum())
    if wrong:
        rule, remedy = f"{PROBABILITY} must be in (0, 1]", "state with which each request was drawn"
        raise input_error(
            Where(source), rule, remedy, f"{wrong:,} of {len(columns.ids):,} rows that are not"
        )
    _check_ids(columns.ids, source)
    moments = _moments(columns.at, source)
    _check_strata(columns, source)
    # Rows of one time are one step, so that no order which may rest on the label counts; samples
    # follow by name.
    order = np.array(
        sorted(
            range(len(moments)),
            key=lambda row: (moments[row], columns.sample[row] if moments[row] else ""),
        ),
        dtype=np.int64,
    )
    moved = sum(later < earlier for earlier, later in pairwise(moments))
    sorting = [f"{moved:,} rows were earlier than the one before: sorted by time."] if moved else []
    # A request whose model failed counts in no rate; its row is counted and left out.
    failed = columns.decision == DECISIONS.index(ERROR)
    order = order[~failed[order]]
    groups: dict[Any, list[int]] = {}
    drawn_together = any(columns.sample)
    for row in order.tolist():
        name = columns.sample[row] if drawn_together else columns.stratum[row] and "sample"
        key: Any = name or ((moments[row],) if moments[row] else row)
        groups[key] = groups.pop(key, [])  # at the place of its last row
        groups[key].append(row)
    steps = [sorted(rows, key=columns.ids.__getitem__) for rows in groups.values()]
    rows = np.array([row for step in steps for row in step], dtype=np.int64)
    if len(groups) > 1 and not any(moments):
        sorting.append("No `at` is stated: the order of rows must be that of time.")
    names = [key if isinstance(key, str) else "" for key in groups]
    return StreamSteps(
        decision=columns.decision[rows],
        cell=columns.cell[rows],
        probability=columns.probability[rows],
        ids=tuple(columns.ids[row] for row in rows),
        ends=np.cumsum([len(step) for step in steps], dtype=np.int64) - 1,
        samples=tuple(name if drawn_together else "" for name in names),
        times=tuple(max(moments[row] for row in step) for step in steps),
        errors=int(failed.sum()),
        notes=(*notes, *sorting),
    )


def _check_ids(ids: Sequence[str], source: str) -> None:
    repeated = [name for name, count in Counter(filter(None, ids)).items() if count > 1]
    if repeated:
        value = f"{len(repeated):,} that are there twice, such as {shown_value(repeated[0])}"
        rule = "column request_id must name a request once"
        raise input_error(Where(source), rule, "keep one of its rows", value)


def _moments(stated: Sequence[str], source: str) -> list[str]:
    """Times as texts that sort as time does; '' where no row states one."""
    if not any(stated):
        return [""] * len(stated)
    moments, wrong = [], []
    for text in stated:
        try:
            moments.append(utc_text(datetime.fromisoformat(text)))
        except ValueError:
            wrong.append(text)
    if wrong:
        value = f"{len(wrong):,} of {len(stated):,} that are not, such as {shown_value(wrong[0])}"
        rule, remedy = (
            "column at must be ISO 8601 in every row or in none",
            "complete it, or leave it out",
        )
        raise input_error(Where(source), rule, remedy, value)
    return moments


def _check_strata(columns: StreamColumns, source: str) -> None:
    """Require requests of a sample's stratum to be equally likely drawn, as the step assumes."""
    together = any(columns.sample) or any(columns.stratum)
    chances: dict[tuple[str, str], set[float]] = {}
    for sample, stratum, chance in zip(
        columns.sample, columns.stratum, columns.probability.tolist(), strict=True
    ):
        if together and (sample or stratum):
            chances.setdefault((sample, stratum), set()).add(chance)
    if uneven := [name for name, values in chances.items() if len(values) > 1]:
        value = (
            f"{len(uneven):,} of {len(chances):,} strata with several, such as "
            f"{shown_value(' '.join(uneven[0]))}"
        )
        rule = f"{PROBABILITY} must be the same within a stratum of a sample"
        remedy = "keep column stratum, or leave it and sample out where each was drawn by itself"
        raise input_error(Where(source), rule, remedy, value)
