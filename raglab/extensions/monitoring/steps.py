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
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import is_missing
from raglab.audit.label_samples import LABEL_NAMES, check_whole_samples, placed_rows
from raglab.decision.inclusion import PROBABILITY_KEY
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.scoring import trace_basis
from raglab.decision.trace_view import answered_cases, failed_count
from raglab.lab.answer_basis import check_compared, missing_notes
from raglab.lab.certificate_checks import check_new_cases, check_notes
from raglab.lab.label_sampling import SAMPLE_LABEL, STRATUM
from raglab.lab.looks import stated_certificate
from raglab.metrics import CELLS, STATUS_OF_CELL
from raglab.replay import cases_by_shard, decide_policies, each_shard, join_columns, shard_codes
from raglab.store.files import Where, input_error, plain_cell, shown_value
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.values import BoolArray, CodeArray, FloatArray, IntArray, Status, refuse
from raglab.words.canonical import canonical_json, digest, utc_text

if TYPE_CHECKING:
    import pandas as pd

ERROR_DECISION = (
    "error"  # decision of a request whose model failed, which counts in no rate (rule S0.1)
)
STREAM_DECISIONS = (*LABEL_NAMES, ERROR_DECISION)
PROBABILITY_LIKE_NAMES = frozenset(
    {"probability", "prob", "pi", "weight", "propensity", "p_inclusion"}
)
TRUTH_WORDS = {"1": "true", "1.0": "true", "0": "false", "0.0": "false"}
# columns that are read, beside that of the probability
_READ_COLUMNS = frozenset(
    {"decision", "label", "correct", "policy_id", "request_id", "at", "sample", STRATUM}
    | {"sample_size"}
)


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

    decision: CodeArray
    cell: CodeArray
    probability: FloatArray
    ids: tuple[str, ...]
    ends: IntArray
    samples: tuple[str, ...]
    times: tuple[str, ...]
    errors: int
    notes: tuple[str, ...]


def is_drawn(request_ids: Sequence[object], probability: ArrayLike, *, seed: int) -> BoolArray:
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
    id_texts = [
        "" if is_missing(request_id) else _id_text(request_id) for request_id in request_ids
    ]
    if n_blank := id_texts.count(""):
        refuse(
            "request_ids must not be missing",
            f"{n_blank:,} of {len(id_texts):,}",
            "they would all draw alike",
        )
    probabilities = np.asarray(probability, dtype=np.float64)
    if probabilities.shape not in {(), (len(id_texts),)}:
        refuse(
            f"probability must be one number, or {len(id_texts):,} as request_ids",
            f"{probabilities.size:,}",
            "give one of each",
        )
    if not ((probabilities > 0.0) & (probabilities <= 1.0)).all():
        refuse("probability must be in (0, 1]", repr(probability), "state the true one")
    hash_fractions = [
        int(digest(canonical_json([int(seed), id_text]), 13), 16) / 16.0**13 for id_text in id_texts
    ]
    return np.array(hash_fractions) < probabilities


def _id_text(request_id: object) -> str:
    """Text of an id.

    Whole floats as integers, since pandas keeps integers beside missing ones as floats.
    """
    is_whole = isinstance(request_id, float | np.floating) and float(request_id).is_integer()
    return (str(int(cast("float", request_id))) if is_whole else str(request_id)).strip()


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
        refuse("a trace must be replayed by its policy", "a Certificate", "give the policy")
    return _trace_steps(stream, policy, arm)


def _row_steps(stream_rows: pd.DataFrame | str | Path, policy_id: str) -> StreamSteps:
    source_name = str(stream_rows) if isinstance(stream_rows, str | Path) else "stream"
    text_columns, column_names = _checked_texts(stream_rows, source_name)
    text_columns["correct"] = text_columns["correct"].str.lower().replace(to_replace=TRUTH_WORDS)
    # A misspelt value would count as a request without a label, so it stops here.
    column_rules = {
        "decision": (STREAM_DECISIONS, "say what the request got"),
        "label": ((*LABEL_NAMES, ""), "say what the request should have got"),
        "correct": (("true", "false", ""), "say whether an answer is right"),
        "policy_id": ((policy_id, ""), "give rows of the certified policy"),
    }
    for column_name, (known_values, remedy) in column_rules.items():
        wrong_values = text_columns.loc[~text_columns[column_name].isin(known_values), column_name]
        if len(wrong_values):
            fault_text = f"{len(wrong_values):,} of {len(text_columns):,} that are not, such as "
            requirement = f"column {column_name} must be {', '.join(filter(None, known_values))}"
            requirement = f"{requirement} or empty" if "" in known_values else requirement
            raise input_error(
                Where(source_name),
                requirement,
                remedy,
                fault_text + shown_value(wrong_values.iloc[0]),
            )
    decision_codes = text_columns["decision"].map(STREAM_DECISIONS.index).to_numpy(np.int8)
    label_codes = text_columns["label"].map([*LABEL_NAMES, ""].index).to_numpy(np.int8)
    correct_texts = text_columns["correct"].to_numpy()
    # An answer to an answerable request is right unless somebody said that it is not.
    is_right = (decision_codes == label_codes) & (
        (label_codes != Status.ok) | (correct_texts != "false")
    )
    row_notes = []
    if PROBABILITY_KEY not in column_names:
        row_notes.append(f"No column {PROBABILITY_KEY}: every request has weight 1.")
    # An answer that nobody graded, where others are graded, counts as a label that is missing.
    is_ok = (decision_codes == Status.ok) & (label_codes == Status.ok)
    is_ungraded = is_ok & (correct_texts == "") & ("correct" in column_names)
    if is_ungraded.any():
        count_text = f"{int(is_ungraded.sum()):,} answers"
        row_notes.append(f"{count_text} without a value of correct count as not labelled.")
    is_labelled = (label_codes < len(LABEL_NAMES)) & ~is_ungraded
    probabilities = (
        map(_number, text_columns[PROBABILITY_KEY])
        if PROBABILITY_KEY in column_names
        else [1.0] * len(text_columns)
    )
    step_columns = text_columns.assign(
        decision=decision_codes,
        cell=np.where(is_labelled, decision_codes * CELLS + label_codes * 2 + is_right, -1).astype(
            np.int8
        ),
        probability=np.array(list(probabilities), dtype=np.float64),
        id=text_columns["request_id"].map(plain_cell),
    )
    # Of a sample that lost rows the chances are not known, so it must be whole.
    row_steps = ordered_steps(step_columns, source_name)
    sample_columns = step_columns[["sample", STRATUM, "probability", "sample_size"]]
    check_whole_samples(list(sample_columns.itertuples(index=False, name=None)), source_name)
    return row_steps._replace(notes=(*row_steps.notes, *row_notes))


def _checked_texts(
    stream_rows: pd.DataFrame | str | Path, source: str
) -> tuple[pd.DataFrame, set[str]]:
    """Rows as texts with every column that is read, and the names of the columns that they have.

    No needed one is missing.
    """
    import pandas as pd

    if isinstance(stream_rows, str | Path):
        raw_cells = pd.DataFrame(
            [file_row for _, file_row in placed_rows(stream_rows, source)], dtype=object
        )
    else:
        raw_cells = stream_rows.rename(columns=str).astype(object).reset_index(drop=True)
    column_names = set(map(str, raw_cells))
    raw_cells = raw_cells.where(raw_cells.notna(), "")
    if "request_id" in column_names and not isinstance(stream_rows, str | Path):
        raw_cells["request_id"] = raw_cells["request_id"].map(_id_text)
    text_columns = raw_cells.astype(str).apply(lambda text_column: text_column.str.strip())
    text_columns = text_columns.reindex(
        columns=[*column_names, *(_READ_COLUMNS - column_names)], fill_value=""
    )
    similar_names = sorted(PROBABILITY_LIKE_NAMES & column_names)
    similar_names += [
        column_name for column_name in (STRATUM, "sample_size") if text_columns[column_name].any()
    ]
    if PROBABILITY_KEY not in column_names and similar_names:
        raise input_error(
            Where(source),
            f"the column of inclusion probabilities must be named {PROBABILITY_KEY}",
            "rename it",
            similar_names[0],
        )
    for column_name in ("decision", "label"):
        if column_name not in column_names:
            raise input_error(
                Where(source),
                f"labelled rows must have the column {column_name}",
                "keep the columns of the sample",
                "none",
            )
    return text_columns, column_names


def _number(number_text: str) -> float:
    """Number of a text; NaN where it is none."""
    try:
        return float(number_text)
    except ValueError:
        return float("nan")


def _trace_steps(trace: StudyTrace, policy: Policy, arm: str | None) -> StreamSteps:
    """Steps of a trace: its cases with a probability are drawn; where none has one, all are."""
    import pandas as pd

    certificate = stated_certificate(policy)
    n_failed = failed_count(trace)
    trace = answered_cases(trace)
    case_notes = check_new_cases(trace, policy, certificate)
    all_cases = [
        stream_case for shard_cases in cases_by_shard(trace) for stream_case in shard_cases
    ]
    declared_probabilities = np.array(
        [stream_case.extra.get(PROBABILITY_KEY) for stream_case in all_cases], dtype=np.float64
    )
    is_sampled = not np.isnan(declared_probabilities).all()
    is_included = (
        ~np.isnan(declared_probabilities) if is_sampled else np.ones(len(all_cases), dtype=bool)
    )

    # A label that nobody drew says nothing of the rest, and a drawn request has that of its sample

    # alone.
    has_label = np.array(
        [
            stream_case.expect_status is not None and stream_case.extra.get(SAMPLE_LABEL) != ""
            for stream_case in all_cases
        ]
    )
    n_undrawn = int((has_label & ~is_included).sum())
    step_notes = (
        [f"{n_undrawn:,} labels of requests that were not drawn are left out."] if n_undrawn else []
    )
    decisions = np.zeros(len(all_cases), dtype=np.int8)
    cells = np.full(len(all_cases), -1, dtype=np.int8)
    replayed_arm = arm or certificate.get("arm")
    if len(case_indices := np.flatnonzero(is_included & has_label)):
        outcome_codes = join_columns(
            each_shard(
                shard_codes, trace.subset(case_indices), [policy], replayed_arm, what="decide"
            )
        )
        missing_by_policy = {policy.policy_id: codes_missing(outcome_codes)[0]}
        check_compared(missing_by_policy)
        step_notes += missing_notes(missing_by_policy, "these cases")
        cells[case_indices] = CELL_OF_CODE[outcome_codes[0]]
        decisions[case_indices] = STATUS_OF_CELL[cells[case_indices]]
    if len(case_indices := np.flatnonzero(is_included & ~has_label)):
        decisions[case_indices] = decide_policies(
            trace.subset(case_indices), [policy], replayed_arm
        )[0].status
    step_columns = pd.DataFrame(
        {
            "decision": decisions,
            "cell": cells,
            "probability": declared_probabilities if is_sampled else 1.0,
            "id": [stream_case.id for stream_case in all_cases],
            "at": [str(stream_case.extra.get("at") or "") for stream_case in all_cases],
            "sample": "",
            STRATUM: [
                str(stream_case.extra.get(STRATUM) or "") if is_sampled else ""
                for stream_case in all_cases
            ],
        }
    )[is_included]
    step_notes = [
        *step_notes,
        *case_notes,
        *check_notes(certificate, trace, str(trace_basis(trace))),
    ]
    trace_steps = ordered_steps(step_columns, "trace", step_notes)
    return trace_steps._replace(errors=trace_steps.errors + n_failed)


def ordered_steps(columns: pd.DataFrame, source: str, notes: Sequence[str] = ()) -> StreamSteps:
    """Rows in the order of their steps.

    By time, the rows of a sample together at its last one, by id inside.

    Args:
      columns: codes `decision` and `cell`, `probability`, and texts `id`, `at`, `sample` and
        `stratum`, '' where there is none.
      source: of the rows, for messages.
      notes: of the rows so far.

    Raises:
      InputError: a request twice, times of some rows alone or of none, strata of unequal
        probabilities.
    """
    n_wrong = int((~((columns["probability"] > 0.0) & (columns["probability"] <= 1.0))).sum())
    if n_wrong:
        fault_text = f"{n_wrong:,} of {len(columns):,} rows that are not"
        raise input_error(
            Where(source),
            f"{PROBABILITY_KEY} must be in (0, 1]",
            "state with which each request was drawn",
            fault_text,
        )
    check_ids(columns["id"], source)
    step_rows = columns.assign(at=_moments(columns["at"].tolist(), source))
    _check_strata(step_rows, source)

    # Rows of one time are one step, so that no order which may rest on the label counts; samples

    # follow by name.
    is_sampled = bool((step_rows["sample"] != "").any())
    has_times = bool((step_rows["at"] != "").any())
    n_moved = sum(
        later_time < earlier_time for earlier_time, later_time in pairwise(step_rows["at"])
    )
    sorting_notes = (
        [f"{n_moved:,} rows were earlier than the one before: sorted by time."] if n_moved else []
    )
    if has_times:
        step_rows = step_rows.sort_values(["at", "sample"], kind="stable")

    # A request whose model failed counts in no rate; its row is counted and left out.
    is_failed = step_rows["decision"] == STREAM_DECISIONS.index(ERROR_DECISION)
    step_rows = step_rows[~is_failed].reset_index(drop=True)
    sample_names = (
        step_rows["sample"]
        if is_sampled
        else step_rows[STRATUM].where(step_rows[STRATUM] == "", "sample")
    )
    row_times = step_rows["at"].where(step_rows["at"] != "", step_rows.index.astype(str))
    step_names = row_times.where(
        sample_names == "", "/" + sample_names
    )  # no time or number begins so

    # a step stands at the place of its last row
    last_positions = step_rows.index.to_series().groupby(step_names).transform("max")
    step_rows = step_rows.assign(own=sample_names, last=last_positions).sort_values(
        ["last", "id"], kind="stable"
    )
    step_ends = np.flatnonzero(np.diff(step_rows["last"], append=-1))
    if len(step_ends) > 1 and not has_times:
        sorting_notes.append("No `at` is stated: the order of rows must be that of time.")
    return StreamSteps(
        decision=step_rows["decision"].to_numpy(np.int8),
        cell=step_rows["cell"].to_numpy(np.int8),
        probability=step_rows["probability"].to_numpy(np.float64),
        ids=tuple(step_rows["id"]),
        ends=step_ends,
        samples=tuple(step_rows["own"].iloc[step_ends]) if is_sampled else ("",) * len(step_ends),
        times=tuple(step_rows.groupby("last")["at"].max()),
        errors=int(is_failed.sum()),
        notes=(*notes, *sorting_notes),
    )


def check_ids(request_ids: Iterable[str], source: str) -> None:
    """Refuse a request that is named twice; an empty name is none."""
    repeated_ids = [
        request_id
        for request_id, id_count in Counter(filter(None, request_ids)).items()
        if id_count > 1
    ]
    if repeated_ids:
        fault_text = (
            f"{len(repeated_ids):,} that are there twice, such as {shown_value(repeated_ids[0])}"
        )
        raise input_error(
            Where(source),
            "column request_id must name a request once",
            "keep one of its rows",
            fault_text,
        )


def _moments(declared_times: Sequence[str], source: str) -> list[str]:
    """Times as texts that sort as time does; '' where no row states one."""
    if not any(declared_times):
        return [""] * len(declared_times)
    utc_times = []
    wrong_times = []
    for time_text in declared_times:
        try:
            utc_times.append(utc_text(datetime.fromisoformat(time_text)))
        except ValueError:
            wrong_times.append(time_text)
    if wrong_times:
        fault_text = (
            f"{len(wrong_times):,} of {len(declared_times):,} that are not, "
            f"such as {shown_value(wrong_times[0])}"
        )
        raise input_error(
            Where(source),
            "column at must be ISO 8601 in every row or in none",
            "complete it, or leave it out",
            fault_text,
        )
    return utc_times


def _check_strata(stream_rows: pd.DataFrame, source: str) -> None:
    """Require requests of a sample's stratum to be equally likely drawn, as the step assumes."""
    sampled_rows = stream_rows[(stream_rows["sample"] != "") | (stream_rows[STRATUM] != "")]
    distinct_chances = sampled_rows.groupby(["sample", STRATUM], sort=False)[
        "probability"
    ].nunique()
    uneven_strata = distinct_chances[distinct_chances > 1]
    if len(uneven_strata):
        fault_text = (
            f"{len(uneven_strata):,} of {len(distinct_chances):,} strata with several, such as "
        )
        fault_text += shown_value(" ".join(uneven_strata.index[0]))
        raise input_error(
            Where(source),
            f"{PROBABILITY_KEY} must be the same within a stratum of a sample",
            "keep column stratum, or leave it and sample out where each was drawn by itself",
            fault_text,
        )
