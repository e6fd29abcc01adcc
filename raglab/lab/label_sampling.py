"""Label sampling (shore): requests drawn by decision and margin, labels brought back (S6.4).

The requests are those of a trace.

A stratum is a decision, the gate that made it, and whether a small move of one threshold would
change it. Within one, requests are drawn without replacement, each with the same probability, as
from an audit log (`raglab.audit.label_samples`), so that what the labels say of the drawn ones
holds for all of the traffic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.audit.label_samples import (
    LABEL_SAMPLE_COLUMNS,
    SampleRow,
    draw_strata,
    drawn_id,
    even_shares,
    sample_rows,
    stratum_name,
)
from raglab.decision.case_verdicts import STATUS_NAMES
from raglab.decision.inclusion import PROBABILITY_KEY
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import Measured, TraceView, answered_traces
from raglab.policy import PolicyData
from raglab.replay import decide_policies, each_shard
from raglab.replaying.breakpoints import acting_paths, swept_threshold
from raglab.replaying.step_functions import nearest_flips, piece_status
from raglab.store.files import Where, input_error, shown_value
from raglab.store.traces import StudyTrace
from raglab.values import Status, TraceData, refuse
from raglab.words.canonical import canonical_json, digest

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_COLUMNS = (*LABEL_SAMPLE_COLUMNS, "policy_id", "margin")
# keys of `extra`
STRATUM = "stratum"
SAMPLE_LABEL = "sample_label"
NEAR_SHARE = 0.25  # share of a decision and gate
TraceKind = TypeVar("TraceKind", bound=StudyTrace)


def shard_requests(
    trace: TraceData | Measured, policy: PolicyData, arm: str | None
) -> pd.DataFrame:
    """Requests of one trace in memory: `id`, what `decided`, and by path the change that flips it.

    Pure, so that any worker may decide a shard.
    """
    import pandas as pd

    (decisions,) = decide_policies(Measured.of(trace), [policy], arm)
    evidence = decisions.tables.evidence
    thresholds = policy_thresholds([policy])
    decided_strata = [
        stratum_name(
            str(STATUS_NAMES[status_code]), "" if status_code == Status.ok else str(gate_name)
        )
        for status_code, gate_name in zip(
            decisions.status.tolist(), decisions.decided_by, strict=True
        )
    ]
    request_columns: dict[str, Any] = {
        "id": [str(request_id) for request_id in decisions.ids()],
        "decided": decided_strata,
    }
    for threshold_path, (piece_points, piece_statuses) in piece_status(
        evidence, policy, acting_paths(evidence, policy)
    ).items():
        swept_gate = swept_threshold(evidence.known, thresholds, threshold_path)
        policy_value = float(policy.value(threshold_path))
        request_columns[threshold_path] = nearest_flips(
            policy_value, piece_points, piece_statuses, decisions.status, swept_gate
        ).distance
    return pd.DataFrame(request_columns)


class LabelStrata(NamedTuple):
    """Ids and strata of all requests, [Q] each, and request counts by stratum name in its order."""

    ids: list[str]
    names: list[str]
    sizes: dict[str, int]


def label_strata(
    trace: TraceView, policy: PolicyData, arm: str | None, margin: float
) -> LabelStrata:
    """Strata of the requests of a trace: decision, deciding gate, and near or far of a threshold.

    How near a request is: how many requests change with it or before it as the nearest threshold
    moves. That is a count, so that scores of any unit and range compare. Near are the `margin`
    nearest of each decision and gate, and those that tie with them; a request that no single
    threshold changes is far.
    """
    import pandas as pd

    if not 0.0 < margin < 1.0:
        refuse("margin must be in (0, 1)", margin, "0.25 counts the nearest quarter as near")
    requests = pd.concat(
        each_shard(shard_requests, trace, policy, arm, what="sample"), ignore_index=True
    )
    flip_distances = (
        requests.drop(columns=["id", "decided"]).astype(np.float64).replace(np.inf, np.nan)
    )
    flip_ranks = flip_distances.rank(method="max").min(axis=1).fillna(np.inf)
    # Within each decision and gate, so that a gate with few requests has near ones too.
    nearest_rank = flip_ranks.groupby(requests["decided"]).transform(
        lambda gate_ranks: gate_ranks.sort_values().iloc[ceil(margin * len(gate_ranks)) - 1]
    )
    margin_sides = np.where(
        (flip_ranks <= nearest_rank) & np.isfinite(flip_ranks), ", near", ", far"
    )
    strata_names = (requests["decided"] + margin_sides).tolist()
    return LabelStrata(
        requests["id"].tolist(), strata_names, dict(sorted(Counter(strata_names).items()))
    )


@answered_traces("trace")
def sample_for_labels(
    trace: StudyTrace,
    policy: PolicyData,
    n: int,
    *,
    seed: int,
    arm: str | None = None,
    margin: float = NEAR_SHARE,
) -> pd.DataFrame:
    """Draw requests of a trace to label, evenly over decision, gate and margin if possible.

    Args:
      trace: in memory, or of shards.
      policy: that decided, or would decide, the requests.
      n: number of requests; fewer where there are fewer.
      seed: of the draw; the same seed, trace and policy give the same draw.
      arm: of the trace; the first where not given.
      margin: share of the requests of each decision and gate that counts as near a threshold, in
        (0, 1).

    Returns:
      A row a request: sample, request_id, stratum, inclusion_probability, sample_size (drawn in
        all), question, decision, answer, reason, an empty label and question_label, policy_id and
        margin. `raglab.live.write_sample` writes it as a file that people fill in. label: what the
        request should have got, `refuse` where the answer is wrong or must not be given.
        question_label: what the question should get, whatever the answer; `raglab.traffic_mix`
        reads it.

    Raises:
      ValueError: n below 1, a margin outside (0, 1), or no request.

    Warns:
      UserWarning: n is below the number of strata, so that nobody is drawn of some.

    Source: rule S6.4; Cochran 1977, chapter 5.

    Example: `write_sample(sample_for_labels(trace, policy, 200, seed=1), Path("labels.csv"))`
    """
    import pandas as pd

    if n < 1 or not len(trace):
        refuse(
            "n must be at least 1, of a trace with requests",
            f"{n} of {len(trace)}",
            "check the split",
        )
    request_strata = label_strata(trace, policy, arm, margin)
    # As from an audit log: even shares, and within a stratum every request as likely.
    stratum_members: dict[str, list[int]] = {stratum: [] for stratum in request_strata.sizes}
    for request_index, stratum in enumerate(request_strata.names):
        stratum_members[stratum].append(request_index)
    stratum_shares = even_shares(request_strata.sizes, n)
    if empty_strata := [
        stratum for stratum, stratum_share in stratum_shares.items() if not stratum_share
    ]:
        strata_phrase = f"Of {len(empty_strata)} of {len(stratum_shares)} strata nobody is drawn"
        warn_user(f"{strata_phrase}: {'; '.join(empty_strata)}; draw {len(stratum_shares)}.")
    drawn_requests = sorted(
        draw_strata(stratum_members, stratum_shares, np.random.default_rng(seed))
    )
    # What people read to label a request: of the drawn ones alone, for reasons are slow.
    request_ids = [request_strata.ids[request_index] for request_index in drawn_requests]
    (decisions,) = decide_policies(trace.subset(drawn_requests), [policy], arm)
    decision_table = decisions.frame(reasons=True)
    drawn_strata = [request_strata.names[request_index] for request_index in drawn_requests]
    sample_columns = {
        "sample": digest(canonical_json([seed, n, margin, policy.policy_id, request_ids]), 12),
        "request_id": request_ids,
        "stratum": drawn_strata,
        "inclusion_probability": [
            stratum_shares[stratum] / request_strata.sizes[stratum] for stratum in drawn_strata
        ],
        "sample_size": len(drawn_requests),
        "question": decision_table["query"].tolist(),
        "decision": decision_table["status"].tolist(),
        "answer": decision_table["answer"].fillna("").tolist(),
        "reason": decision_table["reason"].tolist(),
        "label": "",
        "question_label": "",
        "policy_id": policy.policy_id,
        "margin": margin,
    }
    return pd.DataFrame(sample_columns, columns=list(SAMPLE_COLUMNS))


@answered_traces("trace")
def with_sample_labels(
    trace: TraceKind,
    policy: PolicyData,
    labels: pd.DataFrame | str | Path,
    *,
    arm: str | None = None,
) -> TraceKind:
    """Trace with the labels of a sample.

    Each case's `extra` states its stratum, of drawn ones the probability too.

    Args:
      trace: that the sample was drawn from, in memory or of shards.
      policy: that it was drawn by.
      labels: file of the labelled sample, CSV or JSON lines, or its frame, with every drawn row; an
        empty label says that nobody labelled the request.
      arm: that it was drawn by; the first where not given.

    Returns:
      The trace: drawn cases have their label as `expect_status`. `extra` has `stratum`, and of
        drawn cases `inclusion_probability` and `sample_label`, '' where the label is empty.

    Raises:
      InputError: an unknown label, a request that is not of the trace or twice in the file, rows of
        several samples, of another policy or strata, or drawn rows that are missing; with their
        number.

    Warns:
      UserWarning: empty labels, and labels that take the place of another one, with their number.

    Source: rule S6.4.
    """
    source_name = str(labels) if isinstance(labels, str | Path) else "labels"
    # Strata are measured again, for the review needs those of all requests, and the file has the
    # drawn ones alone.
    sheet_rows = list(sample_rows(labels))
    request_strata = label_strata(
        trace, policy, arm, _stated_margin(sheet_rows, source_name, policy)
    )
    drawn_labels = _drawn_rows(sheet_rows, request_strata, source_name)
    drawn_counts = Counter(request_strata.names[case_index] for case_index in drawn_labels)
    case_labels, extra_fields, n_empty, n_changed = list[str | None](), list[dict[str, Any]](), 0, 0
    for case_index, (stratum, case) in enumerate(
        zip(request_strata.names, trace.cases, strict=True)
    ):
        stratum_fields: dict[str, Any] = {STRATUM: stratum}
        drawn_label = drawn_labels.get(case_index)
        if drawn_label is not None:
            stratum_fields |= {
                PROBABILITY_KEY: drawn_counts[stratum] / request_strata.sizes[stratum],
                SAMPLE_LABEL: drawn_label,
            }
        elif (
            PROBABILITY_KEY in case.extra
        ):  # of an earlier sample, which this one takes the place of
            stratum_fields |= {PROBABILITY_KEY: None, SAMPLE_LABEL: None}
        case_labels.append(drawn_label or None)
        extra_fields.append(stratum_fields)
        n_empty += drawn_label == ""
        n_changed += bool(drawn_label) and case.expect_status not in {None, drawn_label}
    # Nothing is silent: what has no label, and what is written over.
    label_notes = [f"{n_empty:,} of {len(drawn_labels):,} drawn requests have no label"] * bool(
        n_empty
    )
    label_notes += [f"{n_changed:,} labels take the place of another"] * bool(n_changed)
    if label_notes:
        warn_user(f"{source_name}: {'; '.join(label_notes)}.")
    return trace.with_labels(case_labels, extra_fields)


def _stated_margin(sheet_rows: Sequence[SampleRow], source_name: str, policy: PolicyData) -> float:
    """Margin that all rows state, once they are of one sample and of this policy."""
    for column_name in ("sample", "policy_id", "margin"):
        column_values = {str(sheet_row.record.get(column_name)) for sheet_row in sheet_rows}
        if len(column_values) != 1:
            sample_rule = "a labelled sample must be of one draw"
            sample_remedy = "keep it as it was written"
            wrong_value = f"{len(column_values)} values of {column_name} in {len(sheet_rows)} rows"
            raise input_error(Where(source_name), sample_rule, sample_remedy, wrong_value)
    first_record = sheet_rows[0].record
    if first_record["policy_id"] != policy.policy_id:
        sample_rule = "a labelled sample must be of the policy"
        sample_remedy = "give the one that drew it"
        raise input_error(
            Where(source_name), sample_rule, sample_remedy, str(first_record["policy_id"])
        )
    return sheet_number(first_record, "margin", source_name)


def sheet_number(row_record: Mapping[str, Any], column_name: str, source_name: str) -> float:
    """Number in a column of a row of a sheet."""
    try:
        return float(row_record[column_name])
    except (KeyError, ValueError):
        raise input_error(
            Where(source_name),
            f"column {column_name} must be a number",
            "keep it as it was written",
            shown_value(row_record.get(column_name)),
        ) from None


def _drawn_rows(
    sheet_rows: Sequence[SampleRow], request_strata: LabelStrata, source_name: str
) -> dict[int, str]:
    """Labels of drawn rows by position in the trace, once they are just those that were drawn."""
    index_of_request = {stratum: sheet_row for sheet_row, stratum in enumerate(request_strata.ids)}
    drawn_indices = [
        index_of_request.get(str(drawn_id(sheet_row.request_id, index_of_request)))
        for sheet_row in sheet_rows
    ]
    stratum_counts = Counter(sheet_row.record.get(STRATUM) for sheet_row in sheet_rows)
    # Who deletes rows without a label would make those that stay look like all that were drawn.
    n_drawn = sum(
        round(
            sheet_number(row_record, PROBABILITY_KEY, source_name)
            * request_strata.sizes.get(stratum, 0)
        )
        for stratum, row_record in {
            sheet_row.record.get(STRATUM): sheet_row.record for sheet_row in sheet_rows
        }.items()
        if stratum
    )
    lacking_strata = [
        stratum
        for stratum, n_drawn in even_shares(request_strata.sizes, n_drawn).items()
        if stratum_counts[stratum] != n_drawn
    ]
    draw_counts = Counter(drawn_indices)
    wrong_requests = [
        sheet_row.request_id
        for sheet_row, request_index in zip(sheet_rows, drawn_indices, strict=True)
        if request_index is None
        or draw_counts[request_index] > 1
        or request_strata.names[request_index] != sheet_row.record.get(STRATUM)
    ]
    for faulty_names, sample_rule, sample_remedy in (
        (
            wrong_requests,
            "name each drawn request once, with its stratum",
            "give its trace, policy and arm",
        ),
        (
            lacking_strata,
            "hold every drawn row of each stratum",
            "put deleted rows back, without a label",
        ),
    ):
        if faulty_names:
            wrong_value = (
                f"{len(faulty_names)} that do not in {len(sheet_rows)} rows, "
                f"such as {shown_value(faulty_names[0])}"
            )
            raise input_error(
                Where(source_name),
                f"a labelled sample must {sample_rule}",
                sample_remedy,
                wrong_value,
            )
    return {
        request_index: sheet_row.label
        for request_index, sheet_row in zip(drawn_indices, sheet_rows, strict=True)
        if request_index is not None
    }
