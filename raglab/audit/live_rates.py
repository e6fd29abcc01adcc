"""Live rates (shore): rolling estimates of false refusals and needless questions (S6.4).

They come from labels and from feedback.

The rates are those of S6.2, with what is known of live requests in place of a label on each.
`labels`: of a sample drawn by stratum, see `raglab.audit.label_samples`; their interval holds for
the requests that could be drawn, labelled or not. `feedback`: what users did next; it
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

DEFAULT_WINDOW = 1_000  # requests
LIVE_RATE_COLUMNS = (
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
CORRECTION_RATE = "correction_rate"


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


CORRECTED_FEEDBACK = "corrected"  # feedback: an answer was corrected or asked again in other words


class KnownRequest(NamedTuple):
    """A request with what is known of it.

    sample: latest draw with labels that could have taken it, '' where none could. drawn: whether
    that did. label: what a person says, '' where nobody did. feedback: the label that its user's
    next steps tell, or `CORRECTED_FEEDBACK`; '' where there were none.
    """

    first: FirstDecision
    sample: str
    drawn: bool
    label: str
    feedback: str


def live_rates(
    log: AuditLog,
    *,
    last: int | None = DEFAULT_WINDOW,
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
    window_rules = (
        ((last is None) != (days is None), "a window must be either of last requests or of days"),
        (last is None or last >= 1, "last must be at least 1"),
        (days is None or days >= 0, "days must be at least 0"),
        (every is None or every >= 1, "every must be at least 1"),
    )
    for is_valid, window_rule in window_rules:
        if not is_valid:
            refuse(window_rule, f"last {last}, days {days}, every {every}", "correct it")
    with log.log.reading() as entries, as_written():
        # For one window the requests before it need not be read; feedback on a request comes after
        # it.
        only_newest = every is None
        requests = known_requests(
            entries, last=last if only_newest else None, days=days if only_newest else None
        )
    rate_rows = []
    for window_requests in _windows(requests, last, days, every):
        # a model that fails has decided nothing (rule S0.1)
        decided_requests = [request for request in window_requests if not request.first.failed]
        window_columns = {
            "requests": len(decided_requests),
            "errors": len(window_requests) - len(decided_requests),
            "level": level,
            "until": window_requests[-1].first.at,
            "since": window_requests[0].first.at,
        }
        rate_rows += [
            rate_row._asdict() | window_columns
            for rate_row in window_rates(decided_requests, level)
        ]
    rate_frame = pd.DataFrame(rate_rows, columns=list(LIVE_RATE_COLUMNS))
    moment_columns = {
        moment_name: pd.to_datetime(rate_frame[moment_name], utc=True, format="ISO8601")
        for moment_name in ("until", "since")
    }
    return rate_frame.assign(**moment_columns)


def _windows(
    requests: Sequence[KnownRequest], last: int | None, days: float | None, every: int | None
) -> Iterator[Sequence[KnownRequest]]:
    """Windows of requests, the oldest first; the newest ends at the last request."""
    n_requests = len(requests)
    request_times = [request.first.at for request in requests]
    for window_end in reversed(range(n_requests, 0, -(every or n_requests or 1))):
        window_start = (
            first_within(request_times[:window_end], days or 0.0)
            if last is None
            else max(0, window_end - last)
        )
        yield requests[window_start:window_end]


def window_rates(requests: Sequence[KnownRequest], level: float) -> Iterator[RateRow]:
    """Estimate and interval of each rate over some requests, from labels and from feedback."""
    covered_requests = [request for request in requests if request.sample]
    n_labelled = sum(request.drawn and bool(request.label) for request in covered_requests)
    status_feedback = [
        (request.first.status, request.feedback) for request in requests if request.feedback
    ]
    n_silent = len(requests) - len(status_feedback)
    for live_rate in LIVE_RATES:
        rate_share, rate_interval = (
            _from_labels(covered_requests, live_rate, level) if n_labelled else (nan, _NO_INTERVAL)
        )
        request_counts = (n_labelled, len(covered_requests), len(requests) - n_labelled)
        yield RateRow(
            live_rate.name,
            "labels",
            rate_share,
            float(rate_interval.low),
            float(rate_interval.high),
            *request_counts,
        )
        wanted_statuses = [
            decided_status
            for decided_status, feedback_label in status_feedback
            if feedback_label in live_rate.labels
        ]
        yield _feedback_row(
            live_rate.name,
            wanted_statuses.count(live_rate.status),
            len(wanted_statuses),
            n_silent,
            level,
        )
    corrected_answers = [
        feedback_label == CORRECTED_FEEDBACK
        for decided_status, feedback_label in status_feedback
        if decided_status == "ok"
    ]
    n_silent = sum(request.first.status == "ok" for request in requests) - len(corrected_answers)
    yield _feedback_row(
        CORRECTION_RATE, sum(corrected_answers), len(corrected_answers), n_silent, level
    )


_NO_INTERVAL = Interval(nan, nan)


def _feedback_row(
    rate_name: str, n_hits: int, n_known: int, n_unknown: int, level: float
) -> RateRow:
    """Row of a rate of k in n requests with feedback; unknown: requests without any."""
    lower_bound, upper_bound = map(float, clopper_pearson(n_hits, n_known, level))
    rate_share = n_hits / n_known if n_known else nan
    return RateRow(
        rate_name, "feedback", rate_share, lower_bound, upper_bound, n_known, n_known, n_unknown
    )


def _from_labels(
    covered_requests: Sequence[KnownRequest], live_rate: LiveRate, level: float
) -> tuple[float, Interval]:
    """Estimate and interval from the labels of what was drawn.

    The part of a sample that falls into the window is itself a random sample of the window's
    requests, so each stratum of each sample is a stratum by itself.
    """
    requests_by_stratum: dict[tuple[str, str], list[KnownRequest]] = {}
    for request in covered_requests:
        requests_by_stratum.setdefault((request.sample, request.first.stratum), []).append(request)
    counted_strata: list[Stratum] = []  # of requests whose first decision is the rate's status
    other_strata: list[Stratum] = []
    for stratum_requests in requests_by_stratum.values():
        drawn_requests = [request for request in stratum_requests if request.drawn]
        n_hits = sum(request.label in live_rate.labels for request in drawn_requests)
        stratum = Stratum(
            len(stratum_requests),
            len(drawn_requests),
            n_hits,
            sum(not request.label for request in drawn_requests),
        )
        (
            counted_strata if stratum_requests[0].first.status == live_rate.status else other_strata
        ).append(stratum)
    rate_share, rate_interval = stratified_share(counted_strata, other_strata, level)
    return rate_share, _NO_INTERVAL if isnan(
        rate_share
    ) else rate_interval  # 0 of 0, or of nothing that is known


def known_requests(
    entries: Entries, *, last: int | None = None, days: float | None = None
) -> list[KnownRequest]:
    """Requests with their first decision and what is known of it, in order."""
    first_entries = first_decisions(entries, last=last, days=days)
    start_event = first_entries[0].request - 1 if first_entries else 0
    feedback_by_id = _feedback(entries, first_entries, start_event)
    label_by_request = {
        (log_row["sample"], log_row["request_id"]): log_row["label"]
        for log_row in entries.rows(LABELS)
    }
    # a draw that nobody labels yet takes the place of none
    labelled_samples = {sample_id for sample_id, _ in label_by_request}
    sample_rows = [
        log_row | {"drawn": frozenset(log_row["drawn"])}
        for log_row in entries.rows(SAMPLES)
        if log_row["sample"] in labelled_samples
    ]
    requests_known = []
    for first_decision in first_entries:
        # It could be drawn where it was decided by then; of several draws the latest speaks for it.
        possible_samples = [
            log_row
            for log_row in sample_rows
            if log_row["first"] <= first_decision.request <= log_row["last"]
            and first_decision.decision < log_row["seq"]
        ]
        latest_sample: Mapping[str, Any] = (
            possible_samples[-1] if possible_samples else {"sample": "", "drawn": ()}
        )
        sample_id = latest_sample["sample"]
        request_id = first_decision.request_id
        is_drawn = request_id in latest_sample["drawn"]
        request_label = label_by_request.get((sample_id, request_id), "") if is_drawn else ""
        requests_known.append(
            KnownRequest(
                first_decision,
                sample_id,
                is_drawn,
                request_label,
                feedback_by_id.get(request_id, ""),
            )
        )
    return requests_known


def _feedback(
    entries: Entries, first_entries: Sequence[FirstDecision], start_event: int
) -> dict[str, str]:
    """What users' next steps say of a request, by its id.

    Silence says nothing, so such a request has no entry.

    A refusal that a rephrasing turned into an answer should have been one. A question whose reply
    took what was proposed was needless; any other reply says that it was not. An answer that was
    confirmed was right; one that was corrected or asked again in other words was not.
    """
    request_rows = entries.rows(REQUESTS, columns=("request_id", "rephrases"), after=start_event)
    rephrased_by = {
        log_row["rephrases"]: log_row["request_id"]
        for log_row in request_rows
        if log_row["rephrases"]
    }
    status_by_id = {
        first_decision.request_id: first_decision.status for first_decision in first_entries
    }
    proposed_by_id = {
        log_row["request_id"]: log_row["proposed"]
        for log_row in entries.rows(CLARIFICATIONS, after=start_event)
    }
    change_columns = ("request_id", "signal", "value")
    change_signals = [
        (log_row["request_id"], log_row["signal"], log_row["value"])
        for log_row in entries.rows(CHANGES, columns=change_columns, after=start_event)
    ]
    accepted_values = {
        (request_id, signal_value)
        for request_id, signal_name, signal_value in change_signals
        if signal_name == "explicit_yes"
    }
    confirmed_ids = {request_id for request_id, _ in accepted_values}
    corrected_ids = {
        request_id for request_id, signal_name, _ in change_signals if signal_name == "explicit_no"
    }
    # A reply that names nothing leaves no signal, and says nothing of the question.
    replied_ids = {
        log_row["request_id"]
        for log_row in entries.rows(REPLIES, columns=("request_id",), after=start_event)
    } & (confirmed_ids | corrected_ids)
    feedback_by_id = {}
    for first_decision in first_entries:
        request_id = first_decision.request_id
        if (
            first_decision.status == "refuse"
            and status_by_id.get(rephrased_by.get(request_id, "")) == "ok"
        ):
            feedback_by_id[request_id] = "ok"
        elif request_id in proposed_by_id and request_id in replied_ids:
            feedback_by_id[request_id] = (
                "ok" if (request_id, proposed_by_id[request_id]) in accepted_values else "ambiguous"
            )
        elif first_decision.status == "ok" and (
            request_id in corrected_ids or request_id in rephrased_by
        ):
            feedback_by_id[request_id] = CORRECTED_FEEDBACK
        elif first_decision.status == "ok" and request_id in confirmed_ids:
            feedback_by_id[request_id] = "ok"
    return feedback_by_id
