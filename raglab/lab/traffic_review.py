"""Traffic review (shore): a policy and other thresholds on logged requests, and what labels say.

Without labels: decisions, what decided them, and exact curves of every threshold. With labels of a
drawn sample (`raglab.lab.label_sampling`): rates of all traffic with intervals of the design.
Labels that nobody drew, such as feedback, speak for the labelled requests alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates
from raglab.arguments.plain_arrays import read_only
from raglab.decision.inclusion import PROBABILITY
from raglab.decision.learned_cases import in_sample_note, trace_learned
from raglab.decision.measurement import Evidence
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import Measured, TraceView, answered_traces, failed_note
from raglab.gates import Threshold
from raglab.gating.case_groups import UNKNOWN, group_values
from raglab.gating.own_margins import OWN
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
from raglab.values import Case, Status, TraceData
from raglab.words.html_display import MOST_ROWS, Fold, display

if TYPE_CHECKING:
    import pandas as pd

NO_DAY, NO_STRATUM = "", ""


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
    evidence, thresholds = decisions.tables.evidence, policy_thresholds([policy])
    cases, current = decisions.trace.cases, decisions.status
    moves = {}
    for path, (points, status) in piece_status(
        evidence, policy, acting_paths(evidence, policy)
    ).items():
        swept = swept_threshold(evidence.known, thresholds, path)
        # now and there: steps then tell who changes
        pairs = (current * np.int8(N) + status).astype(np.int8)
        moves[path] = PathMoves(
            swept, cell_moves(points, pairs), missing_values(evidence, policy, path)
        )
    # A request that was drawn is known by what its label in the sample says, not by what somebody
    # else said.
    is_known = [
        case.expect_status is not None and case.extra.get(SAMPLE_LABEL) != "" for case in cases
    ]
    columns = ReviewColumns(
        current,
        decisions_after.status,
        decisions.decided_by,
        decisions.label_code,
        decisions.passes,
        np.array(is_known, dtype=bool),
        np.array([case.extra.get(PROBABILITY) for case in cases], dtype=np.float64),
        _objects(str(case.extra.get(STRATUM) or NO_STRATUM) for case in cases),
        _objects(map(request_day, cases)),
        np.array([group_values(cases, name) for name in by], dtype=object).reshape(
            len(by), len(cases)
        ),
    )
    return ShardReview(columns, moves, evidence.off)


def _objects(values: Iterable[str]) -> NDArray[np.object_]:
    return np.array(list(values), dtype=object)


def missing_values(evidence: Evidence, policy: PolicyData, path: str) -> float:
    """Requests with hits lacking the measurement a threshold compares, at the first search.

    NaN of a cost, of the resolver and of a gate of the user, which compare no single measurement.
    """
    if path.partition(".")[0] in {"decision", "resolver", OWN}:
        return NAN
    values = threshold_values(evidence, policy_thresholds([policy]), path, 0)
    return float(np.count_nonzero(~np.isfinite(values).any(axis=0) & (evidence.n_hits[0] > 0)))


def request_day(case: Case) -> str:
    """Day of a request, of the ISO time in `extra["at"]`, in UTC where that has an offset.

    '' where it states none.

    Example:
      >>> request_day(Case("1", "who?", extra={"at": "2026-03-02T23:30:00-02:00"}))
      '2026-03-03'
    """
    stated = case.extra.get("at")
    try:
        moment = stated if isinstance(stated, datetime) else datetime.fromisoformat(str(stated))
    except ValueError:
        return NO_DAY
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date().isoformat()


class TrafficCurve(NamedTuple):
    """Exact curve of one threshold.

    low, high: ends of its steps, [N]. pairs: requests by decision of the policy and decision on the
    step, [N, 3, 3]. current: place of the step that holds the policy's own value. missing: see
    `missing_values`.
    """

    threshold: Threshold
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    pairs: NDArray[np.int64]
    current: int
    missing: float

    @property
    def counts(self) -> NDArray[np.int64]:
        """Requests by decision on each step, [N, 3]."""
        counts: NDArray[np.int64] = self.pairs.sum(axis=1)
        return counts

    @property
    def changed(self) -> NDArray[np.int64]:
        """Requests that each step decides otherwise than the policy, [N]."""
        changed: NDArray[np.int64] = self.pairs.sum(axis=(1, 2)) - np.trace(
            self.pairs, axis1=1, axis2=2
        )
        return changed

    def nearest(self, aside: int) -> tuple[float, float]:
        """Nearest value on a side, -1 or 1, at which decisions change, and how many.

        NaN and 0 where none do.
        """
        place = self.current + aside
        if not 0 <= place < len(self.low):
            return NAN, 0.0
        edge = self.low[self.current] if aside < 0 else self.high[self.current]
        # whether the step holds that edge
        closed = aside > 0 if self.threshold.side == "ceiling" else aside < 0
        beyond = edge + aside if self.threshold.whole else np.nextafter(edge, aside * np.inf)
        return float(edge if closed else beyond), float(self.changed[place])


def threshold_curve(
    threshold: Threshold, moves: Sequence[Moves], value: float, missing: float
) -> TrafficCurve:
    """Curve of a threshold from the moves of all parts; value: the policy's own."""
    low, high, cells = sum_moves(moves, threshold)
    above = threshold.side == "ceiling"
    place = (
        np.searchsorted(low, value, side="right") - 1
        if above
        else np.searchsorted(high, value, side="left")
    )
    current = int(np.clip(place, 0, len(low) - 1))
    pairs = np.ascontiguousarray(cells[:, : N * N]).reshape(-1, N, N)
    return TrafficCurve(threshold, *read_only((low, high, pairs)), current, missing)


@dataclass(frozen=True, eq=False, repr=False)
class Review:
    """What a policy does to the requests of a trace; made by `review`.

    Attributes:
      policy: that was reviewed.
      n: requests.
      level: of the intervals.
      rates: see `frame`.
      curves: exact curve of each threshold that acts, by path.
      changes: a row a pair of decisions, `before` of the policy and `after` of the second one, with
        `n`.
      days: a row a day: `day`, `n`, `ok`, `refuse`, `ambiguous`, `labelled`, and `changed` by the
        second policy.
      groups: a row a group, the largest first: `by`, `group`, and the columns of a day.
      off: gates that judge nothing here, and why.
      notes: what a reader must know.
    """

    policy: PolicyData
    n: int
    level: float
    rates: pd.DataFrame
    curves: Mapping[str, TrafficCurve]
    changes: pd.DataFrame
    days: pd.DataFrame
    groups: pd.DataFrame
    off: Mapping[str, str]
    notes: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """Rates, a row each.

        Columns: `rate`, `of` (the requests it is a share of), `basis`, `estimate`, `low`, `high`,
        `k`, `n`. Basis `traffic` is a count of all requests; `sample` an estimate for all of them
        from k of n drawn and labelled ones, with an interval of the design; `labelled requests`
        speaks for those alone, and has no interval.
        """
        return self.rates.copy()

    @property
    def gates(self) -> pd.DataFrame:
        """Exact curves, a row a threshold and step.

        Columns: `path`, `low`, `high`, `ok`, `refuse`, `ambiguous` (requests), `changed` (that the
        step decides otherwise than the policy), `is_current` (the policy's own step). A step of an
        upper threshold holds on [low, high), of a lower one on (low, high]; the outermost end at
        the threshold's range.
        """
        import pandas as pd

        names = [
            "path",
            "low",
            "high",
            *(status.name for status in Status),
            "changed",
            "is_current",
        ]
        frames = [
            pd.DataFrame(
                dict(
                    zip(
                        names,
                        (
                            path,
                            curve.low,
                            curve.high,
                            *curve.counts.T,
                            curve.changed,
                            is_current(curve),
                        ),
                        strict=True,
                    )
                )
            )
            for path, curve in self.curves.items()
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=names)

    @property
    def thresholds(self) -> pd.DataFrame:
        """A row a threshold.

        Its value, missing measurements, and the nearest change on either side.

        Columns: `path`, `current`, `missing` (requests with hits, NaN where it compares no single
        measurement), `steps`, `lower` and `higher` (nearest value at which any decision changes,
        NaN where none does), and `lower_changed` and `higher_changed` (how many).
        """
        import pandas as pd

        names = [
            "path",
            "current",
            "missing",
            "steps",
            "lower",
            "lower_changed",
            "higher",
            "higher_changed",
        ]
        rows = [
            (
                path,
                float(self.policy.value(path)),
                curve.missing,
                len(curve.low),
                *curve.nearest(-1),
                *curve.nearest(1),
            )
            for path, curve in self.curves.items()
        ]
        return pd.DataFrame(rows, columns=names)

    def __repr__(self) -> str:
        traffic = [row for row in self.rates.itertuples() if row.basis == "traffic"][:N]
        decided = ", ".join(f"{row.k:,} {row.rate} ({row.estimate:.1%})" for row in traffic)
        weighed = [row for row in self._labelled if row.basis == "sample"][:2]
        labels = "".join(f"; {row.rate} {_estimate_text(row)}" for row in weighed)
        return f"Review({self.n:,} requests: {decided}{labels}; policy {self.policy.policy_id})"

    @property
    def _labelled(self) -> list[Any]:
        return [row for row in self.rates.itertuples() if row.basis != "traffic" and row.n]

    def _repr_html_(self) -> str:
        """Display for a notebook.

        Decisions, rates from labels, the next change of each threshold, days and groups.
        """
        facts = [("policy", self.policy.policy_id), *(("note", note) for note in self.notes)]
        decided = [
            (str(row.rate), f"{row.k:,}", f"{row.estimate:.1%}")
            for row in self.rates.itertuples()
            if row.basis == "traffic"
        ]
        labelled = [
            (row.rate, row.of, _estimate_text(row), f"{row.k:,} of {row.n:,}", row.basis)
            for row in self._labelled
        ]
        heads = {
            "rates from labels": (
                "rate",
                "of",
                f"estimate, {self.level:.0%} interval",
                "labels",
                "basis",
            ),
            "decisions": ("decision", "requests", "share"),
        }
        folds = [
            Fold("decisions", decided, None, heads["decisions"], open=True),
            Fold("rates from labels", labelled, None, heads["rates from labels"]),
            *(
                Fold(title, _texts(frame), len(frame), tuple(map(str, frame.columns)))
                for title, frame in (
                    ("next change of each threshold", self.thresholds),
                    ("decisions of the second policy", self.changes),
                    ("days", self.days),
                    ("groups", self.groups),
                )
            ),
            Fold("gates that judge nothing here", list(self.off.items()), None, ("gate", "why")),
        ]
        return display(
            f"Review of {self.n:,} requests",
            facts,
            [fold for fold in folds if fold.total or fold.rows],
        )


def is_current(curve: TrafficCurve) -> NDArray[np.bool_]:
    """Whether each step of a curve holds the policy's own value, [N]."""
    return np.arange(len(curve.low)) == curve.current


def _texts(frame: pd.DataFrame) -> list[list[str]]:
    return [
        [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row]
        for row in frame.head(MOST_ROWS).itertuples(index=False)
    ]


def _estimate_text(row: Any) -> str:  # noqa: ANN401 - a row of `Review.rates`
    interval = "" if np.isnan(row.low) else f" [{row.low:.1%}, {row.high:.1%}]"
    return "unknown" + interval if np.isnan(row.estimate) else f"{row.estimate:.1%}{interval}"


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
    names = (by,) if isinstance(by, str) else tuple(by)
    second = policy if after is None else after
    parts = list(each_shard(shard_review, trace, policy, second, arm, names, what="review"))
    columns: ReviewColumns = join_columns([part.columns for part in parts])
    curves = {}
    for path in dict.fromkeys(path for part in parts for path in part.moves):
        paths = [part.moves[path] for part in parts if path in part.moves]
        missing = sum(path_moves.missing for path_moves in paths)
        moves = [path_moves.moves for path_moves in paths]
        curves[path] = threshold_curve(
            paths[0].threshold, moves, float(policy.value(path)), missing
        )
    has_after = after is not None
    days = request_counts(columns, columns.day, "day", has_after=has_after)
    groups = [
        request_counts(columns, values, "group", has_after=has_after).assign(by=name)
        for name, values in zip(names, columns.groups, strict=True)
    ]
    ordered = [frame.sort_values("n", ascending=False, kind="stable") for frame in groups]
    columns_of_groups = ["by", "group", *days.columns[1:]]
    pairs = np.bincount(columns.status.astype(np.int64) * N + columns.after, minlength=N * N)
    statuses = [status.name for status in Status]
    changes = pd.DataFrame({"before": np.repeat(statuses, N), "after": statuses * N, "n": pairs})
    return Review(
        policy,
        len(columns.status),
        level,
        pd.DataFrame(
            [*traffic_rates(columns), *label_rates(columns, level)], columns=list(RATE_COLUMNS)
        ),
        curves,
        changes if has_after else changes[:0],
        days if (columns.day != NO_DAY).any() else days[:0],
        pd.concat([days[:0], *ordered], ignore_index=True).reindex(columns=columns_of_groups),
        gates_off(policy, parts[0].off),
        (*review_notes(columns, names), *_policy_notes(trace, policy, columns)),
    )


def request_counts(
    columns: ReviewColumns, values: NDArray[np.object_], name: str, *, has_after: bool
) -> pd.DataFrame:
    """Requests by value of an attribute.

    `n`, by decision, `labelled`, and `changed` by the second policy.
    """
    import pandas as pd

    kinds, place = np.unique(values.astype(str), return_inverse=True)

    def count(rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(place[rows], minlength=len(kinds))

    counts = {"n": count(np.ones(len(place), dtype=bool))}
    counts |= {status.name: count(columns.status == status) for status in Status}
    counts |= {"labelled": count(columns.is_known)}
    counts |= {"changed": count(columns.status != columns.after)} if has_after else {}
    return pd.DataFrame({name: kinds.astype(object), **counts})


def gates_off(policy: PolicyData, off: frozenset[str]) -> dict[str, str]:
    """Gates that refuse or ask nothing on this traffic, and why."""
    acting = acting_gates(policy)
    switched = [gate.name for gate in gates.GATES if gate.switch and gate.decides]
    reasons = {name: "off in the policy" for name in switched if name not in acting}
    return reasons | {name: "the trace measured nothing for it" for name in switched if name in off}


def review_notes(columns: ReviewColumns, by: Sequence[str]) -> Iterator[str]:
    """What a reader must know of labels, days and groups, with counts."""
    n, is_drawn = len(columns.status), ~np.isnan(columns.probability)
    drawn, known, aside = (
        int(rows.sum())
        for rows in (is_drawn, is_drawn & columns.is_known, columns.is_known & ~is_drawn)
    )
    if not known and not aside:
        yield (
            "No request has a label that counts: nothing here says whether a decision is right; "
            "draw some to label."
        )
    if drawn:
        yield (
            f"{known:,} of {drawn:,} drawn requests are labelled; rates of basis `sample` are "
            "estimates for all."
        )
        if uncovered := int((columns.stratum == NO_STRATUM).sum()):
            yield f"{uncovered:,} requests state no stratum: no drawn request stands for them."
    if aside:
        verb = f"{aside:,} labelled requests were not drawn (labels such as feedback)"
        yield f"{verb}: their rates hold for them alone, they are not a sample of the traffic."
    if undated := int((columns.day == NO_DAY).sum()):
        yield f"{undated:,} of {n:,} requests state no time (`at`), so they are of no day."
    for name, values in zip(by, columns.groups, strict=True):
        if ungrouped := int((values == UNKNOWN).sum()):
            yield f"{ungrouped:,} of {n:,} requests state no {name}."


def _policy_notes(trace: TraceView, policy: PolicyData, columns: ReviewColumns) -> Iterator[str]:
    """What a trace lacks to judge a policy, and if the policy learned from labels that judge it."""
    yield from filter(None, [failed_note(trace)])
    yield from unmeasured_note(trace, policy)
    note = in_sample_note(trace_learned([policy], trace)[0]) if columns.is_known.any() else ""
    if note:
        yield f"{note}."
