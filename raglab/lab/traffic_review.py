"""Traffic review (shore): a policy and other thresholds on logged requests, and what labels say.

Without labels: decisions, what decided them, and exact curves of every threshold. With labels of a
drawn sample (`raglab.lab.label_sampling`): rates of all traffic with intervals of the design.
Labels that nobody drew, such as feedback, speak for the labelled requests alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from raglab import gates
from raglab.arguments.plain_arrays import read_only
from raglab.decision.inclusion import PROBABILITY_KEY
from raglab.decision.learned_cases import in_sample_note, trace_learned
from raglab.decision.measurement import Evidence
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import Measured, TraceView, answered_traces, failed_note
from raglab.gates import Threshold
from raglab.gating.case_groups import UNKNOWN_GROUP, group_values
from raglab.gating.own_margins import USER_GATES_SECTION
from raglab.lab.label_sampling import SAMPLE_LABEL, STRATUM
from raglab.lab.review_rates import NAN, RATE_COLUMNS, N, ReviewColumns, label_rates, traffic_rates
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.metrics.intervals import check_level
from raglab.policy import PolicyData
from raglab.policy_parts.acting import acting_gates
from raglab.replay import decide_policies, each_shard, join_columns
from raglab.replaying.breakpoints import (
    Moves,
    acting_paths,
    sum_moves,
    swept_threshold,
    threshold_values,
)
from raglab.replaying.step_functions import cell_moves, piece_status
from raglab.values import Case, FloatArray, IntArray, Status, TextArray, TraceData
from raglab.words.html_display import Cell, Fold
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

NO_DAY = ""
NO_STRATUM = ""
STATUSES = [status.name for status in Status]


class PathMoves(NamedTuple):
    """A threshold, where a part's requests go as it rises, and how many lack the compared value."""

    threshold: Threshold
    moves: Moves
    missing: float


class ShardReview(NamedTuple):
    """Review of a part: its columns, moves by path, and gates that nobody measured anything for."""

    columns: ReviewColumns
    moves: dict[str, PathMoves]
    off: frozenset[str]


def shard_review(
    trace: TraceData | Measured,
    policy: PolicyData,
    after: PolicyData,
    arm: str | None,
    by: tuple[str, ...],
) -> ShardReview:
    """Review of one trace in memory; pure, so that any worker may make it."""
    decisions, decisions_after = decide_policies(Measured.of(trace), [policy, after], arm)
    evidence = decisions.tables.evidence
    thresholds = policy_thresholds([policy])
    cases = decisions.trace.cases
    current_status = decisions.status
    moves = {}
    for path, (points, piece_statuses) in piece_status(
        evidence, policy, acting_paths(evidence, policy)
    ).items():
        acting_threshold = swept_threshold(evidence.known, thresholds, path)
        # now and there: steps then tell who changes
        status_pairs = (current_status * np.int8(N) + piece_statuses).astype(np.int8)
        moves[path] = PathMoves(
            acting_threshold,
            cell_moves(points, status_pairs),
            missing_values(evidence, policy, path),
        )
    # A request that was drawn is known by what its label in the sample says, not by what somebody
    # else said.
    is_labelled = [
        case.expect_status is not None and case.extra.get(SAMPLE_LABEL) != "" for case in cases
    ]
    review_columns = ReviewColumns(
        current_status,
        decisions_after.status,
        decisions.decided_by,
        decisions.label_code,
        decisions.passes,
        np.array(is_labelled, dtype=bool),
        np.array([case.extra.get(PROBABILITY_KEY) for case in cases], dtype=np.float64),
        np.array([str(case.extra.get(STRATUM) or NO_STRATUM) for case in cases], dtype=object),
        np.array([request_day(case) for case in cases], dtype=object),
        np.array([group_values(cases, attribute) for attribute in by], dtype=object).reshape(
            len(by), len(cases)
        ),
    )
    return ShardReview(review_columns, moves, evidence.off)


def missing_values(evidence: Evidence, policy: PolicyData, path: str) -> float:
    """Requests with hits lacking the measurement a threshold compares, at the first search.

    NaN of a cost, of the resolver and of a gate of the user, which compare no single measurement.
    """
    if path.partition(".")[0] in {"decision", "resolver", USER_GATES_SECTION}:
        return NAN
    compared_values = threshold_values(evidence, policy_thresholds([policy]), path, 0)
    return float(
        np.count_nonzero(~np.isfinite(compared_values).any(axis=0) & (evidence.n_hits[0] > 0))
    )


def request_day(case: Case) -> str:
    """Day of a request, of the ISO time in `extra["at"]`, in UTC where that has an offset.

    '' where it states none.

    Example:
      >>> request_day(Case("1", "who?", extra={"at": "2026-03-02T23:30:00-02:00"}))
      '2026-03-03'
    """
    text = case.extra.get("at")
    try:
        request_time = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    except ValueError:
        return NO_DAY
    return (
        (request_time if request_time.tzinfo is None else request_time.astimezone(UTC))
        .date()
        .isoformat()
    )


class TrafficCurve(NamedTuple):
    """Exact curve of one threshold.

    low, high: ends of its steps, [N]. pairs: requests by decision of the policy and decision on the
    step, [N, 3, 3]. current: place of the step that holds the policy's own value. missing: see
    `missing_values`.
    """

    threshold: Threshold
    low: FloatArray
    high: FloatArray
    pairs: IntArray
    current: int
    missing: float

    @property
    def counts(self) -> IntArray:
        """Requests by decision on each step, [N, 3]."""
        return np.asarray(self.pairs.sum(axis=1))

    @property
    def changed(self) -> IntArray:
        """Requests that each step decides otherwise than the policy, [N]."""
        return np.asarray((self.pairs * (1 - np.eye(N, dtype=np.int64))).sum(axis=(1, 2)))

    def nearest(self, aside: int) -> tuple[float, float]:
        """Nearest value on a side, -1 or 1, at which decisions change, and how many.

        NaN and 0 where none do.
        """
        step_index = self.current + aside
        if not 0 <= step_index < len(self.low):
            return NAN, 0.0
        edge = self.low[self.current] if aside < 0 else self.high[self.current]
        # whether the step holds that edge
        holds_edge = aside > 0 if self.threshold.side == "ceiling" else aside < 0
        next_value = edge + aside if self.threshold.whole else np.nextafter(edge, aside * np.inf)
        return float(edge if holds_edge else next_value), float(self.changed[step_index])


def threshold_curve(
    threshold: Threshold, moves: Sequence[Moves], policy_value: float, missing: float
) -> TrafficCurve:
    """Curve of a threshold from the moves of all parts; value: the policy's own."""
    lower_ends, upper_ends, move_cells = sum_moves(moves, threshold)
    step_index = np.searchsorted(upper_ends, policy_value, side="left")
    if threshold.side == "ceiling":
        step_index = np.searchsorted(lower_ends, policy_value, side="right") - 1
    current = int(np.clip(step_index, 0, len(lower_ends) - 1))
    status_pairs = np.ascontiguousarray(move_cells[:, : N * N]).reshape(-1, N, N)
    return TrafficCurve(
        threshold, *read_only((lower_ends, upper_ends, status_pairs)), current, missing
    )


@dataclass(frozen=True, eq=False, repr=False)
class Review(Result):
    """What a policy does to the requests of a trace; made by `review`.

    Attributes:
      policy: that was reviewed.
      n: requests.
      level: of the intervals.
      rates: a row a rate: `rate`, `of` (the requests it is a share of), `basis`, `estimate`, `low`,
        `high`, `k`, `n`. Basis `traffic` is a count of all requests; `sample` an estimate for all
        of them from k of n drawn and labelled ones, with an interval of the design; `labelled
        requests` speaks for those alone, and has no interval.
      curves: exact curve of each threshold that acts, by path.
      changes: a row a pair of decisions, `before` of the policy and `after` of the second one, with
        `n`.
      days: a row a day: `day`, `n`, `ok`, `refuse`, `ambiguous`, `labelled`, and `changed` by the
        second policy.
      groups: a row a group, the largest first: `by`, `group`, and the columns of a day.
      off: gates that judge nothing here, and by what: `policy` or, without measurements, `trace`.
      counts: requests that were `drawn`, have a label (`labelled`, of the drawn ones and of others
        alone), or state no stratum, day or group; those without a stratum are represented by no
        drawn one.
      notes: what a reader must know.
    """

    TABLE: ClassVar[str] = "rates"

    policy: PolicyData
    n: int
    level: float
    rates: pd.DataFrame
    curves: Mapping[str, TrafficCurve]
    changes: pd.DataFrame
    days: pd.DataFrame
    groups: pd.DataFrame
    off: Mapping[str, str]
    counts: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def gates(self) -> pd.DataFrame:
        """Exact curves, a row a threshold and step.

        Columns: `path`, `low`, `high`, `ok`, `refuse`, `ambiguous` (requests), `changed` (that the
        step decides otherwise than the policy), `is_current` (the policy's own step). A step of an
        upper threshold holds on [low, high), of a lower one on (low, high]; the outermost end at
        the threshold's range.
        """
        import pandas as pd

        names = ["path", "low", "high", *STATUSES, "changed", "is_current"]
        step_rows = [
            step_row
            for path, curve in self.curves.items()
            for step_row in zip(
                [path] * len(curve.low),
                curve.low,
                curve.high,
                *curve.counts.T,
                curve.changed,
                np.arange(len(curve.low)) == curve.current,
                strict=True,
            )
        ]
        return pd.DataFrame(step_rows, columns=names)

    @property
    def thresholds(self) -> pd.DataFrame:
        """A row a threshold.

        Its value, missing measurements, and the nearest change on either side.

        Columns: `path`, `current`, `missing` (requests with hits, NaN where it compares no single
        measurement), `steps`, `lower` and `higher` (nearest value at which any decision changes,
        NaN where none does), and `lower_changed` and `higher_changed` (how many).
        """
        import pandas as pd

        rows = []
        for path, curve in self.curves.items():
            cells = (path, float(self.policy.value(path)), curve.missing, len(curve.low))
            rows.append((*cells, *curve.nearest(-1), *curve.nearest(1)))
        columns = [f"{side}{suffix}" for side in ("lower", "higher") for suffix in ("", "_changed")]
        return pd.DataFrame(rows, columns=["path", "current", "missing", "steps", *columns])

    def _summary(self) -> Summary:
        decided_rates = self.rates.head(N)[["rate", "k", "estimate"]].itertuples(index=False)
        facts: list[tuple[str, Cell | str]] = [
            ("policy", self.policy.policy_id),
            *(
                (str(name), Cell(f"{n_decided:,}", f"({share:.1%})"))
                for name, n_decided, share in decided_rates
            ),
            *((name, f"{n_requests:,}") for name, n_requests in self.counts.items() if n_requests),
        ]
        facts += [
            (
                str(sampled_rate.rate),
                Cell(
                    f"{sampled_rate.estimate:.1%}",
                    f"[{sampled_rate.low:.1%}, {sampled_rate.high:.1%}]",
                ),
            )
            for sampled_rate in self.rates[self.rates["basis"] == "sample"].head(1).itertuples()
        ]
        tables = {
            "rates": self.rates[self.rates["n"] > 0],
            "next change of each threshold": self.thresholds,
            "decisions of the second policy": self.changes,
            "days": self.days,
            "groups": self.groups,
        }
        shown_tables = {title: table for title, table in tables.items() if len(table)}
        idle_gates = Fold(
            "gates that judge nothing here", list(self.off.items()), None, ("gate", "by")
        )
        title = f"Review of {self.n:,} requests"
        return Summary(facts, {**shown_tables, idle_gates.title: idle_gates}, self.notes, title)


@answered_traces("trace", measured=True)
def review(
    trace: TraceView,
    policy: PolicyData,
    *,
    after: PolicyData | None = None,
    arm: str | None = None,
    by: Sequence[str] = (),
    level: float = 0.95,
) -> Review:
    """Review of a policy on production traffic, with labels or without.

    Args:
      trace: requests, in memory or of shards, one of which is in memory at a time. A case may state
        its time in `extra["at"]`.
      policy: that decided them, or would.
      after: a second policy; how many requests it decides otherwise is counted by pair of
        decisions.
      arm: of the trace; the first where not given.
      by: attributes that group the requests, such as `("tenant",)`; see
        `raglab.gating.case_groups.group_value`.
      level: of the intervals, in (0, 1).

    Raises:
      ValueError: a level outside (0, 1), or drawn cases of one stratum with several probabilities.

    Source: rules S3.6, S6.2, S6.4; Cochran 1977, chapter 5.

    Example: `review(trace, policy, by=("tenant",)).gates` has each threshold at which a decision
      changes.
    """
    import pandas as pd

    check_level(level)
    attributes = (by,) if isinstance(by, str) else tuple(by)
    second_policy = policy if after is None else after
    parts = list(
        each_shard(shard_review, trace, policy, second_policy, arm, attributes, what="review")
    )
    review_columns: ReviewColumns = join_columns([part.columns for part in parts])
    # A part may lack a path whose signal nobody measured there.
    curves = {}
    for path in dict.fromkeys(path for part in parts for path in part.moves):
        path_moves = [part.moves[path] for part in parts if path in part.moves]
        part_moves = [path_move.moves for path_move in path_moves]
        n_missing = sum(path_move.missing for path_move in path_moves)
        policy_value = float(policy.value(path))
        curves[path] = threshold_curve(path_moves[0].threshold, part_moves, policy_value, n_missing)
    has_after = after is not None
    day_table = request_counts(review_columns, review_columns.day, "day", has_after=has_after)
    group_tables = [
        request_counts(review_columns, attribute_values, "group", has_after=has_after)
        .assign(by=name)
        .sort_values("n", ascending=False, kind="stable")
        for name, attribute_values in zip(attributes, review_columns.groups, strict=True)
    ]
    group_columns = ["by", "group", *day_table.columns[1:]]
    # Both decisions in one number, so that one count gives the whole table.
    pair_counts = np.bincount(
        review_columns.status.astype(np.int64) * N + review_columns.after, minlength=N * N
    )
    change_table = pd.DataFrame(
        {"before": np.repeat(STATUSES, N), "after": STATUSES * N, "n": pair_counts}
    )
    rate_rows = [*traffic_rates(review_columns), *label_rates(review_columns, level)]
    acting_names = acting_gates(policy)
    unmeasured_gates = parts[0].off
    # A gate that is off by the policy and one without measurements need different remedies.
    switchable_gates = [gate.name for gate in gates.GATES if gate.switch and gate.decides]
    idle_gates = {name: "policy" for name in switchable_gates if name not in acting_names}
    return Review(
        policy=policy,
        n=len(review_columns.status),
        level=level,
        rates=pd.DataFrame(rate_rows, columns=list(RATE_COLUMNS)),
        curves=curves,
        changes=change_table if has_after else change_table[:0],
        days=day_table if (review_columns.day != NO_DAY).any() else day_table[:0],
        groups=pd.concat([day_table[:0], *group_tables], ignore_index=True).reindex(
            columns=group_columns
        ),
        off=idle_gates | {name: "trace" for name in switchable_gates if name in unmeasured_gates},
        counts=_counts(review_columns, attributes),
        notes=tuple(_review_notes(trace, policy, review_columns)),
    )


def request_counts(
    review_columns: ReviewColumns,
    attribute_values: TextArray,
    name: str,
    *,
    has_after: bool,
) -> pd.DataFrame:
    """Requests by value of an attribute.

    `n`, by decision, `labelled`, and `changed` by the second policy.
    """
    import pandas as pd

    count_columns = {name: attribute_values.astype(str).astype(object), "n": 1}
    count_columns |= {status.name: review_columns.status == status for status in Status}
    count_columns |= {"labelled": review_columns.is_known}
    count_columns |= {"changed": review_columns.status != review_columns.after} if has_after else {}
    return pd.DataFrame(count_columns).groupby(name, as_index=False).sum()


def _counts(review_columns: ReviewColumns, attributes: Sequence[str]) -> dict[str, int]:
    """See `Review.counts`."""
    is_drawn = ~np.isnan(review_columns.probability)
    count_masks = {
        "drawn": is_drawn,
        "labelled": is_drawn & review_columns.is_known,
        "labelled, not drawn": review_columns.is_known & ~is_drawn,
        "without stratum": is_drawn.any() & (review_columns.stratum == NO_STRATUM),
        "without day": review_columns.day == NO_DAY,
    }
    group_columns = zip(attributes, review_columns.groups, strict=True)
    count_masks |= {
        f"without {count_name}": attribute_values == UNKNOWN_GROUP
        for count_name, attribute_values in group_columns
    }
    return {count_name: int(np.count_nonzero(mask)) for count_name, mask in count_masks.items()}


def _review_notes(
    trace: TraceView, policy: PolicyData, review_columns: ReviewColumns
) -> Iterator[str]:
    """What labels do not say, what a trace lacks, and if the policy learned from what judges it."""
    if not review_columns.is_known.any():
        yield "No request has a label that counts: nothing here says whether a decision is right."
    if (review_columns.is_known & np.isnan(review_columns.probability)).any():
        yield "Labels of requests that were not drawn are no sample: they speak for those alone."
    yield from filter(None, [failed_note(trace)])
    yield from unmeasured_note(trace, policy)
    learned_note = (
        in_sample_note(trace_learned([policy], trace)[0]) if review_columns.is_known.any() else ""
    )
    if learned_note:
        yield f"{learned_note}."
