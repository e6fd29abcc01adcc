"""Live rates (shore): rolling estimates of false refusals and needless questions (S6.4).

They come from labels and from feedback.

The rates are those of S6.2, with what is known of live requests in place of a label on each.
`labels`: of a sample drawn by stratum, see `raglab.audit.label_samples`; their interval holds for
the requests that could be drawn, whatever nobody labelled. `feedback`: what users did next; it
holds for those whose users did something. Silence is no feedback: a request that its user neither
confirmed, corrected, replied to nor rephrased is unknown, and is counted as that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.audit.label_samples import FirstDecision, first_decisions, first_within
from raglab.metrics.intervals import (
    Interval,
    Stratum,
    check_level,
    clopper_pearson,
    stratified_share,
)
from raglab.store.log_rows import Entries, as_written
from raglab.store.log_tables import CHANGES, CLARIFICATIONS, LABELS, REPLIES, REQUESTS, SAMPLES
from raglab.values import refuse

if TYPE_CHECKING:
    import pandas as pd

    from raglab.audit.log import AuditLog

WINDOW = 1_000  # requests
COLUMNS = (
    "until",
    "rate",
    "source",
    "estimate",
    "low",
    "high",
    "level",
    "known",
    "covered",
    "unknown",
    "requests",
    "errors",
    "since",
)


class LiveRate(NamedTuple):
    """A rate of S6.2: the status that it counts, among requests with one of these labels."""

    name: str
    status: str
    labels: frozenset[str]


LIVE_RATES = (
    LiveRate("false_refusal_rate", "refuse", frozenset({"ok"})),
    LiveRate("over_ask_rate", "ambiguous", frozenset({"ok", "refuse"})),  # a needless question
)
# answers that were corrected or rephrased, among those with feedback
CORRECTIONS = "correction_rate"


class RateRow(NamedTuple):
    """A rate of a window by one source; see `live_rates`."""

    rate: str
    source: str
    estimate: float
    low: float
    high: float
    known: int
    covered: int
    unknown: int


CORRECTED = "corrected"  # feedback: an answer was corrected or asked again in other words


class KnownRequest(NamedTuple):
    """A request with what is known of it.

    sample: latest draw with labels that could have taken it, '' where none could. drawn: whether
    that did. label: what a person says, '' where nobody did. feedback: the label that its user's
    next steps tell, or `CORRECTED`; '' where there were none.
    """

    first: FirstDecision
    sample: str
    drawn: bool
    label: str
    feedback: str


def live_rates(
    log: AuditLog,
    *,
    last: int | None = WINDOW,
    days: float | None = None,
    every: int | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """False refusals, needless questions and corrections, from labels and from feedback.

    They are counted among the latest requests.

    Args:
      log: audit log whose requests are counted.
      last: number of requests in a window; None where `days` is given.
      days: length of a window in days before its last request.
      every: requests from the end of one window to the end of the next, for a course over time;
        only the newest window where not given.
      level: of the intervals, in (0, 1).

    Returns:
      A row a window, rate and source: until and since (moments of its last and first request),
        estimate, low, high, level, known (requests with a label or feedback that the estimate rests
        on), covered (requests it covers), unknown (requests without a label, or without feedback;
        of the correction rate, answers without feedback), requests (of the window, without those
        whose model failed) and errors (those). NaN where nothing is known, and where 0 of 0 is.

    Raises:
      ValueError: no window, one below a request, or a level outside (0, 1).

    Source: rules S0.1, S6.2, S6.4.
    """
    import pandas as pd

    check_level(level)
    rules = (
        ((last is None) != (days is None), "a window must be either of last requests or of days"),
        (last is None or last >= 1, "last must be at least 1"),
        (days is None or days >= 0, "days must be at least 0"),
        (every is None or every >= 1, "every must be at least 1"),
    )
    for holds, rule in rules:
        if not holds:
            refuse(rule, f"last {last}, days {days}, every {every}", "correct it")
    with log.log.reading() as entries, as_written():
        # For one window the requests before it need not be read; feedback on a request comes after
        # it.
        newest = every is None
        requests = known_requests(
            entries, last=last if newest else None, days=days if newest else None
        )
    rows = []
    for part in _windows(requests, last, days, every):
        # a model that fails has decided nothing (rule S0.1)
        decided = [request for request in part if not request.first.failed]
        window = {
            "requests": len(decided),
            "errors": len(part) - len(decided),
            "level": level,
            "until": part[-1].first.at,
            "since": part[0].first.at,
        }
        rows += [row._asdict() | window for row in window_rates(decided, level)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    moments = {
        name: pd.to_datetime(frame[name], utc=True, format="ISO8601") for name in ("until", "since")
    }
    return frame.assign(**moments)


def _windows(
    requests: Sequence[KnownRequest], last: int | None, days: float | None, every: int | None
) -> Iterator[Sequence[KnownRequest]]:
    """Windows of requests, the oldest first; the newest ends at the last request."""
    count, times = len(requests), [request.first.at for request in requests]
    for end in reversed(range(count, 0, -(every or count or 1))):
        start = first_within(times[:end], days or 0.0) if last is None else max(0, end - last)
        yield requests[start:end]


def window_rates(requests: Sequence[KnownRequest], level: float) -> Iterator[RateRow]:
    """Estimate and interval of each rate over some requests, from labels and from feedback."""
    covered = [request for request in requests if request.sample]
    labelled = sum(request.drawn and bool(request.label) for request in covered)
    feedback = [
        (request.first.status, request.feedback) for request in requests if request.feedback
    ]
    silent = len(requests) - len(feedback)
    for rate in LIVE_RATES:
        share, bounds = _from_labels(covered, rate, level) if labelled else (nan, _NOTHING)
        counts = (labelled, len(covered), len(requests) - labelled)
        yield RateRow(rate.name, "labels", share, float(bounds.low), float(bounds.high), *counts)
        wanted = [status for status, label in feedback if label in rate.labels]
        yield _feedback_row(rate.name, wanted.count(rate.status), len(wanted), silent, level)
    answers = [label == CORRECTED for status, label in feedback if status == "ok"]
    silent = sum(request.first.status == "ok" for request in requests) - len(answers)
    yield _feedback_row(CORRECTIONS, sum(answers), len(answers), silent, level)


_NOTHING = Interval(nan, nan)


def _feedback_row(name: str, hits: int, known: int, unknown: int, level: float) -> RateRow:
    """Row of a rate of k in n requests with feedback; unknown: requests without any."""
    low, high = map(float, clopper_pearson(hits, known, level))
    share = hits / known if known else nan
    return RateRow(name, "feedback", share, low, high, known, known, unknown)


def _from_labels(
    covered: Sequence[KnownRequest], rate: LiveRate, level: float
) -> tuple[float, Interval]:
    """Estimate and interval from the labels of what was drawn.

    The part of a sample that falls into the window is itself a random sample of the window's
    requests, so each stratum of each sample is a stratum by itself.
    """
    parts: dict[tuple[str, str], list[KnownRequest]] = {}
    for request in covered:
        parts.setdefault((request.sample, request.first.stratum), []).append(request)
    counted: list[Stratum] = []  # of requests whose first decision is the rate's status
    remaining: list[Stratum] = []
    for members in parts.values():
        drawn = [request for request in members if request.drawn]
        hits = sum(request.label in rate.labels for request in drawn)
        stratum = Stratum(
            len(members), len(drawn), hits, sum(not request.label for request in drawn)
        )
        (counted if members[0].first.status == rate.status else remaining).append(stratum)
    share, bounds = stratified_share(counted, remaining, level)
    return share, _NOTHING if isnan(share) else bounds  # 0 of 0, or of nothing that is known


def known_requests(
    log: Entries, *, last: int | None = None, days: float | None = None
) -> list[KnownRequest]:
    """Requests with their first decision and what is known of it, in order."""
    first = first_decisions(log, last=last, days=days)
    after = first[0].request - 1 if first else 0
    feedback = _feedback(log, first, after)
    labels = {(row["sample"], row["request_id"]): row["label"] for row in log.rows(LABELS)}
    # a draw that nobody labels yet takes the place of none
    begun = {sample for sample, _ in labels}
    samples = [
        row | {"drawn": frozenset(row["drawn"])}
        for row in log.rows(SAMPLES)
        if row["sample"] in begun
    ]
    known = []
    for entry in first:
        # It could be drawn where it was decided by then; of several draws the latest speaks for it.
        could = [
            row
            for row in samples
            if row["first"] <= entry.request <= row["last"] and entry.decision < row["seq"]
        ]
        draw: Mapping[str, Any] = could[-1] if could else {"sample": "", "drawn": ()}
        sample, name = draw["sample"], entry.request_id
        drawn = name in draw["drawn"]
        label = labels.get((sample, name), "") if drawn else ""
        known.append(KnownRequest(entry, sample, drawn, label, feedback.get(name, "")))
    return known


def _feedback(log: Entries, first: Sequence[FirstDecision], after: int) -> dict[str, str]:
    """What users' next steps say of a request, by its id.

    Silence says nothing, so such a request has no entry.

    A refusal that a rephrasing turned into an answer should have been one. A question whose reply
    took what was proposed was needless; any other reply says that it was not. An answer that was
    confirmed was right; one that was corrected or asked again in other words was not.
    """
    requests = log.rows(REQUESTS, columns=("request_id", "rephrases"), after=after)
    rephrased = {row["rephrases"]: row["request_id"] for row in requests if row["rephrases"]}
    status = {entry.request_id: entry.status for entry in first}
    proposed = {row["request_id"]: row["proposed"] for row in log.rows(CLARIFICATIONS, after=after)}
    columns = ("request_id", "signal", "value")
    signals = [
        (row["request_id"], row["signal"], row["value"])
        for row in log.rows(CHANGES, columns=columns, after=after)
    ]
    accepted = {(name, value) for name, signal, value in signals if signal == "explicit_yes"}
    confirmed = {name for name, _ in accepted}
    corrected = {name for name, signal, _ in signals if signal == "explicit_no"}
    # A reply that names nothing leaves no signal, and says nothing of the question.
    replied = {
        row["request_id"] for row in log.rows(REPLIES, columns=("request_id",), after=after)
    } & (confirmed | corrected)
    feedback = {}
    for entry in first:
        name = entry.request_id
        if entry.status == "refuse" and status.get(rephrased.get(name, "")) == "ok":
            feedback[name] = "ok"
        elif name in proposed and name in replied:
            feedback[name] = "ok" if (name, proposed[name]) in accepted else "ambiguous"
        elif entry.status == "ok" and (name in corrected or name in rephrased):
            feedback[name] = CORRECTED
        elif entry.status == "ok" and name in confirmed:
            feedback[name] = "ok"
    return feedback
