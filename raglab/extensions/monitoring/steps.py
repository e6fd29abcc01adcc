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
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import is_missing
from raglab.audit.label_samples import LABEL_NAMES, check_whole_samples, placed_rows
from raglab.decision.inclusion import PROBABILITY_KEY
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.scoring import trace_basis
from raglab.decision.trace_view import answered_cases, failed_count
from raglab.extensions.monitoring.betting import FloatArray, IntArray
from raglab.lab.answer_basis import check_compared, missing_notes
from raglab.lab.certificate_checks import check_new_cases, check_notes
from raglab.lab.label_sampling import SAMPLE_LABEL, STRATUM
from raglab.lab.looks import stated_certificate
from raglab.metrics import CELLS, STATUS_OF_CELL
from raglab.replay import cases_by_shard, decide_policies, each_shard, join_columns, shard_codes
from raglab.store.files import Where, input_error, plain_cell, shown_value
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.values import Status, refuse
from raglab.words.canonical import canonical_json, digest, utc_text

if TYPE_CHECKING:
    import pandas as pd

ERROR = "error"  # decision of a request whose model failed, which counts in no rate (rule S0.1)
DECISIONS = (*LABEL_NAMES, ERROR)
NEAR_PROBABILITY = frozenset({"probability", "prob", "pi", "weight", "propensity", "p_inclusion"})
TRUTHS = {"1": "true", "1.0": "true", "0": "false", "0.0": "false"}
# columns that are read, beside that of the probability
_READ = frozenset(
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

    decision: NDArray[np.int8]
    cell: NDArray[np.int8]
    probability: FloatArray
    ids: tuple[str, ...]
    ends: IntArray
    samples: tuple[str, ...]
    times: tuple[str, ...]
    errors: int
    notes: tuple[str, ...]


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
        value = f"{blank:,} of {len(names):,}"
        refuse("request_ids must not be missing", value, "they would all draw alike")
    chances = np.asarray(probability, dtype=np.float64)
    if chances.shape not in {(), (len(names),)}:
        rule = f"probability must be one number, or {len(names):,} as request_ids"
        refuse(rule, f"{chances.size:,}", "give one of each")
    if not ((chances > 0.0) & (chances <= 1.0)).all():
        refuse("probability must be in (0, 1]", repr(probability), "state the true one")
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
        refuse("a trace must be replayed by its policy", "a Certificate", "give the policy")
    return _trace_steps(stream, policy, arm)


def _row_steps(rows: pd.DataFrame | str | Path, policy_id: str) -> StreamSteps:
    source = str(rows) if isinstance(rows, str | Path) else "stream"
    texts, names = _checked_texts(rows, source)
    texts["correct"] = texts["correct"].str.lower().replace(to_replace=TRUTHS)
    rules = {
        "decision": (DECISIONS, "say what the request got"),
        "label": ((*LABEL_NAMES, ""), "say what the request should have got"),
        "correct": (("true", "false", ""), "say whether an answer is right"),
        "policy_id": ((policy_id, ""), "give rows of the certified policy"),
    }
    for name, (known, remedy) in rules.items():
        wrong = texts.loc[~texts[name].isin(known), name]
        if len(wrong):
            value = f"{len(wrong):,} of {len(texts):,} that are not, such as "
            rule = f"column {name} must be {', '.join(filter(None, known))}"
            rule = f"{rule} or empty" if "" in known else rule
            raise input_error(Where(source), rule, remedy, value + shown_value(wrong.iloc[0]))
    decision = texts["decision"].map(DECISIONS.index).to_numpy(np.int8)
    label = texts["label"].map([*LABEL_NAMES, ""].index).to_numpy(np.int8)
    correct = texts["correct"].to_numpy()
    right = (decision == label) & ((label != Status.ok) | (correct != "false"))
    notes = []
    if PROBABILITY_KEY not in names:
        notes.append(f"No column {PROBABILITY_KEY}: every request has weight 1.")
    # An answer that nobody graded, where others are graded, counts as a label that is missing.
    is_ok = (decision == Status.ok) & (label == Status.ok)
    ungraded = is_ok & (correct == "") & ("correct" in names)
    if ungraded.any():
        count = f"{int(ungraded.sum()):,} answers"
        notes.append(f"{count} without a value of correct count as not labelled.")
    is_labelled = (label < len(LABEL_NAMES)) & ~ungraded
    chances = (
        map(_number, texts[PROBABILITY_KEY]) if PROBABILITY_KEY in names else [1.0] * len(texts)
    )
    columns = texts.assign(
        decision=decision,
        cell=np.where(is_labelled, decision * CELLS + label * 2 + right, -1).astype(np.int8),
        probability=np.array(list(chances), dtype=np.float64),
        id=texts["request_id"].map(plain_cell),
    )
    steps = ordered_steps(columns, source)
    drawn = columns[["sample", STRATUM, "probability", "sample_size"]]
    check_whole_samples(list(drawn.itertuples(index=False, name=None)), source)
    return steps._replace(notes=(*steps.notes, *notes))


def _checked_texts(rows: pd.DataFrame | str | Path, source: str) -> tuple[pd.DataFrame, set[str]]:
    """Rows as texts with every column that is read, and the names of the columns that they have.

    No needed one is missing.
    """
    import pandas as pd

    if isinstance(rows, str | Path):
        cells = pd.DataFrame([row for _, row in placed_rows(rows, source)], dtype=object)
    else:
        cells = rows.rename(columns=str).astype(object).reset_index(drop=True)
    names = set(map(str, cells))
    cells = cells.where(cells.notna(), "")
    if "request_id" in names and not isinstance(rows, str | Path):
        cells["request_id"] = cells["request_id"].map(_id_text)
    texts = cells.astype(str).apply(lambda column: column.str.strip())
    texts = texts.reindex(columns=[*names, *(_READ - names)], fill_value="")
    near = sorted(NEAR_PROBABILITY & names)
    near += [name for name in (STRATUM, "sample_size") if texts[name].any()]
    if PROBABILITY_KEY not in names and near:
        rule = f"the column of inclusion probabilities must be named {PROBABILITY_KEY}"
        raise input_error(Where(source), rule, "rename it", near[0])
    for name in ("decision", "label"):
        if name not in names:
            rule = f"labelled rows must have the column {name}"
            raise input_error(Where(source), rule, "keep the columns of the sample", "none")
    return texts, names


def _number(text: str) -> float:
    """Number of a text; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _trace_steps(trace: StudyTrace, policy: Policy, arm: str | None) -> StreamSteps:
    """Steps of a trace: its cases with a probability are drawn; where none has one, all are."""
    import pandas as pd

    certificate, failed = stated_certificate(policy), failed_count(trace)
    trace = answered_cases(trace)
    doubt = check_new_cases(trace, policy, certificate)
    cases = [case for part in cases_by_shard(trace) for case in part]
    stated = np.array([case.extra.get(PROBABILITY_KEY) for case in cases], dtype=np.float64)
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
        decision[rows] = decide_policies(trace.subset(rows), [policy], own_arm)[0].status
    columns = pd.DataFrame(
        {
            "decision": decision,
            "cell": cell,
            "probability": stated if is_sampled else 1.0,
            "id": [case.id for case in cases],
            "at": [str(case.extra.get("at") or "") for case in cases],
            "sample": "",
            STRATUM: [str(case.extra.get(STRATUM) or "") if is_sampled else "" for case in cases],
        }
    )[is_in]
    notes = [*notes, *doubt, *check_notes(certificate, trace, str(trace_basis(trace)))]
    steps = ordered_steps(columns, "trace", notes)
    return steps._replace(errors=steps.errors + failed)


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
    wrong = int((~((columns["probability"] > 0.0) & (columns["probability"] <= 1.0))).sum())
    if wrong:
        value = f"{wrong:,} of {len(columns):,} rows that are not"
        remedy = "state with which each request was drawn"
        raise input_error(Where(source), f"{PROBABILITY_KEY} must be in (0, 1]", remedy, value)
    check_ids(columns["id"], source)
    rows = columns.assign(at=_moments(columns["at"].tolist(), source))
    _check_strata(rows, source)
    # Rows of one time are one step, so that no order which may rest on the label counts; samples
    # follow by name.
    drawn_together, has_times = bool((rows["sample"] != "").any()), bool((rows["at"] != "").any())
    moved = sum(later < earlier for earlier, later in pairwise(rows["at"]))
    sorting = [f"{moved:,} rows were earlier than the one before: sorted by time."] if moved else []
    if has_times:
        rows = rows.sort_values(["at", "sample"], kind="stable")
    # A request whose model failed counts in no rate; its row is counted and left out.
    failed = rows["decision"] == DECISIONS.index(ERROR)
    rows = rows[~failed].reset_index(drop=True)
    own = rows["sample"] if drawn_together else rows[STRATUM].where(rows[STRATUM] == "", "sample")
    apart = rows["at"].where(rows["at"] != "", rows.index.astype(str))
    step = apart.where(own == "", "/" + own)  # no time or number begins so
    # a step stands at the place of its last row
    last = rows.index.to_series().groupby(step).transform("max")
    rows = rows.assign(own=own, last=last).sort_values(["last", "id"], kind="stable")
    ends = np.flatnonzero(np.diff(rows["last"], append=-1))
    if len(ends) > 1 and not has_times:
        sorting.append("No `at` is stated: the order of rows must be that of time.")
    return StreamSteps(
        decision=rows["decision"].to_numpy(np.int8),
        cell=rows["cell"].to_numpy(np.int8),
        probability=rows["probability"].to_numpy(np.float64),
        ids=tuple(rows["id"]),
        ends=ends,
        samples=tuple(rows["own"].iloc[ends]) if drawn_together else ("",) * len(ends),
        times=tuple(rows.groupby("last")["at"].max()),
        errors=int(failed.sum()),
        notes=(*notes, *sorting),
    )


def check_ids(ids: Iterable[str], source: str) -> None:
    """Refuse a request that is named twice; an empty name is none."""
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
        rule = "column at must be ISO 8601 in every row or in none"
        raise input_error(Where(source), rule, "complete it, or leave it out", value)
    return moments


def _check_strata(rows: pd.DataFrame, source: str) -> None:
    """Require requests of a sample's stratum to be equally likely drawn, as the step assumes."""
    drawn = rows[(rows["sample"] != "") | (rows[STRATUM] != "")]
    chances = drawn.groupby(["sample", STRATUM], sort=False)["probability"].nunique()
    uneven = chances[chances > 1]
    if len(uneven):
        value = f"{len(uneven):,} of {len(chances):,} strata with several, such as "
        value += shown_value(" ".join(uneven.index[0]))
        rule = f"{PROBABILITY_KEY} must be the same within a stratum of a sample"
        remedy = "keep column stratum, or leave it and sample out where each was drawn by itself"
        raise input_error(Where(source), rule, remedy, value)
