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
    COLUMNS,
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

SAMPLE_COLUMNS = (*COLUMNS, "policy_id", "margin")
# keys of `extra`
STRATUM, SAMPLE_LABEL = "stratum", "sample_label"
NEAR = 0.25  # share of a decision and gate
TraceKind = TypeVar("TraceKind", bound=StudyTrace)


def shard_requests(
    trace: TraceData | Measured, policy: PolicyData, arm: str | None
) -> pd.DataFrame:
    """Requests of one trace in memory: `id`, what `decided`, and by path the change that flips it.

    Pure, so that any worker may decide a shard.
    """
    import pandas as pd

    (decisions,) = decide_policies(Measured.of(trace), [policy], arm)
    evidence, thresholds = decisions.tables.evidence, policy_thresholds([policy])
    decided = [
        stratum_name(str(STATUS_NAMES[code]), "" if code == Status.ok else str(gate))
        for code, gate in zip(decisions.status.tolist(), decisions.decided_by, strict=True)
    ]
    columns: dict[str, Any] = {"id": [str(name) for name in decisions.ids()], "decided": decided}
    for path, (points, status) in piece_status(
        evidence, policy, acting_paths(evidence, policy)
    ).items():
        swept, value = swept_threshold(evidence.known, thresholds, path), float(policy.value(path))
        columns[path] = nearest_flips(value, points, status, decisions.status, swept).distance
    return pd.DataFrame(columns)


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
    distances = requests.drop(columns=["id", "decided"]).astype(np.float64).replace(np.inf, np.nan)
    rank = distances.rank(method="max").min(axis=1).fillna(np.inf)
    # Within each decision and gate, so that a gate with few requests has near ones too.
    nearest = rank.groupby(requests["decided"]).transform(
        lambda group: group.sort_values().iloc[ceil(margin * len(group)) - 1]
    )
    sides = np.where((rank <= nearest) & np.isfinite(rank), ", near", ", far")
    strata = (requests["decided"] + sides).tolist()
    return LabelStrata(requests["id"].tolist(), strata, dict(sorted(Counter(strata).items())))


@answered_traces("trace")
def sample_for_labels(
    trace: StudyTrace,
    policy: PolicyData,
    n: int,
    *,
    seed: int,
    arm: str | None = None,
    margin: float = NEAR,
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
        value = f"{n} of {len(trace)}"
        refuse("n must be at least 1, of a trace with requests", value, "check the split")
    strata = label_strata(trace, policy, arm, margin)
    # As from an audit log: even shares, and within a stratum every request as likely.
    members: dict[str, list[int]] = {name: [] for name in strata.sizes}
    for row, name in enumerate(strata.names):
        members[name].append(row)
    shares = even_shares(strata.sizes, n)
    if empty := [name for name, share in shares.items() if not share]:
        of_what = f"Of {len(empty)} of {len(shares)} strata nobody is drawn"
        warn_user(f"{of_what}: {'; '.join(empty)}; draw {len(shares)}.")
    rows = sorted(draw_strata(members, shares, np.random.default_rng(seed)))
    # What people read to label a request: of the drawn ones alone, for reasons are slow.
    ids = [strata.ids[row] for row in rows]
    (decisions,) = decide_policies(trace.subset(rows), [policy], arm)
    frame = decisions.frame(reasons=True)
    drawn = [strata.names[row] for row in rows]
    columns = {
        "sample": digest(canonical_json([seed, n, margin, policy.policy_id, ids]), 12),
        "request_id": ids,
        "stratum": drawn,
        "inclusion_probability": [shares[name] / strata.sizes[name] for name in drawn],
        "sample_size": len(rows),
        "question": frame["query"].tolist(),
        "decision": frame["status"].tolist(),
        "answer": frame["answer"].fillna("").tolist(),
        "reason": frame["reason"].tolist(),
        "label": "",
        "question_label": "",
        "policy_id": policy.policy_id,
        "margin": margin,
    }
    return pd.DataFrame(columns, columns=list(SAMPLE_COLUMNS))


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
    source = str(labels) if isinstance(labels, str | Path) else "labels"
    # Strata are measured again, for the review needs those of all requests, and the file has the
    # drawn ones alone.
    rows = list(sample_rows(labels))
    strata = label_strata(trace, policy, arm, _stated_margin(rows, source, policy))
    drawn = _drawn_rows(rows, strata, source)
    counts = Counter(strata.names[row] for row in drawn)
    by_row, extra, empty, changed = list[str | None](), list[dict[str, Any]](), 0, 0
    for row, (name, case) in enumerate(zip(strata.names, trace.cases, strict=True)):
        stated: dict[str, Any] = {STRATUM: name}
        label = drawn.get(row)
        if label is not None:
            stated |= {PROBABILITY_KEY: counts[name] / strata.sizes[name], SAMPLE_LABEL: label}
        elif (
            PROBABILITY_KEY in case.extra
        ):  # of an earlier sample, which this one takes the place of
            stated |= {PROBABILITY_KEY: None, SAMPLE_LABEL: None}
        by_row.append(label or None)
        extra.append(stated)
        empty += label == ""
        changed += bool(label) and case.expect_status not in {None, label}
    # Nothing is silent: what has no label, and what is written over.
    notes = [f"{empty:,} of {len(drawn):,} drawn requests have no label"] * bool(empty)
    notes += [f"{changed:,} labels take the place of another"] * bool(changed)
    if notes:
        warn_user(f"{source}: {'; '.join(notes)}.")
    return trace.with_labels(by_row, extra)


def _stated_margin(rows: Sequence[SampleRow], source: str, policy: PolicyData) -> float:
    """Margin that all rows state, once they are of one sample and of this policy."""
    for column in ("sample", "policy_id", "margin"):
        values = {str(row.record.get(column)) for row in rows}
        if len(values) != 1:
            rule, remedy = "a labelled sample must be of one draw", "keep it as it was written"
            value = f"{len(values)} values of {column} in {len(rows)} rows"
            raise input_error(Where(source), rule, remedy, value)
    record = rows[0].record
    if record["policy_id"] != policy.policy_id:
        rule, remedy = "a labelled sample must be of the policy", "give the one that drew it"
        raise input_error(Where(source), rule, remedy, str(record["policy_id"]))
    return sheet_number(record, "margin", source)


def sheet_number(record: Mapping[str, Any], name: str, source: str) -> float:
    """Number in a column of a row of a sheet."""
    try:
        return float(record[name])
    except (KeyError, ValueError):
        rule, remedy = f"column {name} must be a number", "keep it as it was written"
        raise input_error(Where(source), rule, remedy, shown_value(record.get(name))) from None


def _drawn_rows(rows: Sequence[SampleRow], strata: LabelStrata, source: str) -> dict[int, str]:
    """Labels of drawn rows by position in the trace, once they are just those that were drawn."""
    place = {name: row for row, name in enumerate(strata.ids)}
    drawn = [place.get(str(drawn_id(row.request_id, place))) for row in rows]
    counts = Counter(row.record.get(STRATUM) for row in rows)
    # Who deletes rows without a label would make those that stay look like all that were drawn.
    n = sum(
        round(sheet_number(record, PROBABILITY_KEY, source) * strata.sizes.get(name, 0))
        for name, record in {row.record.get(STRATUM): row.record for row in rows}.items()
        if name
    )
    lacking = [name for name, n in even_shares(strata.sizes, n).items() if counts[name] != n]
    times = Counter(drawn)
    wrong = [
        row.request_id
        for row, at in zip(rows, drawn, strict=True)
        if at is None or times[at] > 1 or strata.names[at] != row.record.get(STRATUM)
    ]
    for names, rule, remedy in (
        (wrong, "name each drawn request once, with its stratum", "give its trace, policy and arm"),
        (lacking, "hold every drawn row of each stratum", "put deleted rows back, without a label"),
    ):
        if names:
            value = f"{len(names)} that do not in {len(rows)} rows, such as {shown_value(names[0])}"
            raise input_error(Where(source), f"a labelled sample must {rule}", remedy, value)
    return {at: row.label for at, row in zip(drawn, rows, strict=True) if at is not None}
