"""Judge intervals (shore): rates of all requests by a judge, corrected by few people (S6.14).

The judge labels every request, people a random part. The estimate is c times the judge's count,
plus the weighted difference between people and c times the judge on that part. It is right on
average where the judge's label of a request is fixed without knowing who is drawn. c in [0, 1] is
what makes it vary least: near 1 with a good judge, 0 with a useless one, whose labels then count
for nothing. The population is the requests given.

Intervals are of Student's t, with one more label at either end: the one that the request which
weighs most could have got at worst. Labels that agree with the judge throughout do not show that
the next one would (rule of three).

Source: Särndal, Swensson and Wretman 1992, chapter 6 (difference and regression estimator);
  Angelopoulos and others 2023 (prediction-powered inference); Angelopoulos, Duchi and Zrnic 2023
  (c, "PPI++").
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.monitoring.betting import FloatArray, IntArray
from raglab.extensions.monitoring.judged_requests import (
    JudgedRequests,
    RateParts,
    checked_rates,
    draw_dependence,
    judged_requests,
    rate_parts,
)
from raglab.metrics.decision_rates import OBJECTIVES, RATE_TABLE
from raglab.metrics.intervals import (
    Interval,
    Stratum,
    check_level,
    clopper_pearson,
    stratified_rate,
    stratified_share,
    t_quantile,
)
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

LEAST_LABELS, LEAST_EVENTS = 50, 10
METHOD = "difference, asymptotic"
COLUMNS = (
    "rate",
    "estimate",
    "low",
    "high",
    "method",
    "judge_only",
    "human_only",
    "human_low",
    "human_high",
    "k",
    "n",
    "requests",
    "unlabelled",
    "coefficient",
    "labels_saved",
    "level",
    "reason",
)


class Draw(NamedTuple):
    """Who was drawn for people.

    Attributes:
      groups: within which each request was as likely, [Q].
      size: requests of each group, [G].
      labelled: labelled ones, [G].
      rest: share of a group that was not drawn, [G].
      rows: positions of the drawn ones, [D].
      known: whether each of them has a label, [D].
    """

    groups: IntArray
    size: FloatArray
    labelled: FloatArray
    rest: FloatArray
    rows: IntArray
    known: NDArray[np.bool_]


class Moments(NamedTuple):
    """Number n, mean and variance of the values of each group, 0 where it has too few, [G] each."""

    n: FloatArray
    mean: FloatArray
    variance: FloatArray


class DifferenceEstimate(NamedTuple):
    """Estimate of a rate by difference.

    Attributes:
      estimate: of the rate; NaN where it is a share of nothing.
      low: lower end, which may lie below 0.
      high: upper end, which may lie above 1.
      variance: that the interval stands for.
      finite: what of the variance of an endless population is missing, since the population is
        finite.
      coefficient: of the judge.
    """

    estimate: float
    low: float
    high: float
    variance: float
    finite: float
    coefficient: float


_UNKNOWN = DifferenceEstimate(*(float("nan"),) * 6)


def judged_rates(
    frame: pd.DataFrame, *, rates: Sequence[str] = OBJECTIVES, level: float = 0.95
) -> pd.DataFrame:
    """Rates of all requests of a frame from labels of a judge and few people, with intervals.

    The intervals are asymptotic.

    People must have labelled requests drawn at random: each as likely as any other of its
    `stratum`, or of its `inclusion_probability` where there is no stratum. The judge's label of a
    request must be fixed without knowing who is drawn: all requests are labelled alike, and the
    judge has not learned from people's labels. A judge that was run on the drawn ones alone gives
    false intervals. The estimate is refused where what it says differs between drawn and other
    requests beyond chance; a judge that knows the draw and hides it so far is not found. The
    intervals say nothing of requests that are not in the frame.

    Args:
      frame: a row a request, all of them: `decision` and `judge` (ok, refuse, ambiguous); `label`,
        empty where people gave none. Optional: `correct`, `judge_correct` (whether an answer to a
        request labelled ok is right, else it is), `stratum`, `inclusion_probability`, `drawn`
        (drawn ones without a label may be anything), `request_id` (each once).
      rates: names of errors, some of `raglab.metrics.OBJECTIVES`.
      level: of the intervals, in (0, 1).

    Returns:
      A row a rate: estimate, low, high; method; judge_only (no interval: its errors are unknown);
        human_only, human_low, human_high (people's labels alone, exact); k of n, labelled errors
        and labelled cases; requests, unlabelled (drawn without a label); coefficient (c of the
        judge); labels_saved (how many more labels people alone would need for such an interval, by
        the estimated variances); level; reason, why the estimate is refused and NaN, or that no
        labels are saved, or that the estimate lies outside people's own interval, which a sound one
        seldom does.

    Raises:
      InputError: a column is missing, there twice or has another value, a `request_id` is there
        twice, or only drawn requests are given.
      ValueError: no such rate, or a level outside (0, 1).
      TypeError: a single text as rates, or a level that is no number.

    Warns:
      UserWarning: the judge says nothing of some requests, or drawn ones have no label.

    Source: rule S6.14; see the module.

    Example: 1,000 answers, of which people labelled 100; the judge agrees with all of these.
      >>> import pandas as pd
      >>> wrong = ["refuse"] * 20 + ["ok"] * 80
      >>> rows = pd.DataFrame({"decision": "ok", "judge": wrong * 10, "label": wrong + [""] * 900})
      >>> row = judged_rates(rows, rates=["hallucination_rate"]).iloc[0]
      >>> [round(float(row[name]), 3) for name in ("low", "high", "human_low", "human_high")]
      [0.171, 0.229, 0.127, 0.292]
    """
    import pandas as pd

    if not isinstance(level, Real):
        msg = f"level must be a number in (0, 1), got {level!r}."
        raise TypeError(msg)
    check_level(float(level))
    names, requests = checked_rates(rates), judged_requests(frame)
    rows = [{"rate": name, **rate_row(requests, name, level)} for name in names]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def rate_row(requests: JudgedRequests, rate: str, level: float) -> dict[str, Any]:
    """Row of a rate in `judged_rates`."""
    parts = rate_parts(requests, rate)
    human, (human_low, human_high) = human_interval(requests, parts, level)
    judge_n = float(parts.judge_n.sum())
    row = difference_row(requests, parts, RATE_TABLE[rate].share_of, level)
    if row["estimate"] < human_low - 1e-9 or row["estimate"] > human_high + 1e-9:
        doubt = "the estimate lies outside people's own interval: does the judge know who is drawn?"
        row["reason"] = f"{row['reason']}; {doubt}" if row["reason"] else doubt
    return {
        "judge_only": float(parts.judge_k.sum()) / judge_n if judge_n else float("nan"),
        "human_only": human,
        "human_low": float(human_low),
        "human_high": float(human_high),
        "k": int(parts.k.sum()),
        "n": int(parts.n.sum()),
        "requests": len(requests.status),
        "unlabelled": int((requests.drawn & (requests.human < 0)).sum()),
        "level": level,
        **row,
    }


def difference_row(
    requests: JudgedRequests, parts: RateParts, share_of: str, level: float
) -> dict[str, Any]:
    """Columns of `judged_rates` that rest on both, the judge and people."""
    draw = human_draw(requests)
    estimated, alone = (
        difference(requests, parts, draw, level, judged=judged) for judged in (True, False)
    )
    labelled = int(draw.known.sum())
    if reason := _refusal(parts, draw, requests, estimated, share_of):
        estimated, saved = _UNKNOWN, 0
    else:
        # The variance of n labels of people alone is (alone.variance + alone.finite) * labelled / n
        # - alone.finite.
        endless = (alone.variance + alone.finite) * labelled
        saved = max(0, floor(endless / (estimated.variance + alone.finite) - labelled + 1e-9))
        reason = "" if saved else "no labels are saved"
    rate, low, high = np.clip(estimated[:3], 0.0, 1.0).tolist()
    return {
        "estimate": rate,
        "low": low,
        "high": high,
        "method": METHOD,
        "coefficient": estimated.coefficient,
        "labels_saved": saved,
        "reason": reason,
    }


def _refusal(
    parts: RateParts, draw: Draw, requests: JudgedRequests, estimated: DifferenceEstimate, of: str
) -> str:
    """Why an interval is refused, '' where it is not."""
    k, n = int(parts.k.sum()), int(parts.n.sum())
    drawn, size = np.bincount(requests.stratum, requests.drawn), np.bincount(requests.stratum)
    if dependence := draw_dependence(requests, (drawn / np.maximum(size, 1))[requests.stratum]):
        return dependence
    if n < LEAST_LABELS:
        return f"people labelled {n} {of}, an interval needs {LEAST_LABELS}"
    if min(k, n - k) < LEAST_EVENTS:
        return (
            f"people labelled {k} errors of {n} {of}, an interval needs {LEAST_EVENTS} with and "
            "without"
        )
    counted = parts.tables[1].any(axis=1)[requests.status]
    thin = (draw.labelled < np.minimum(2, draw.size)) & (
        np.bincount(draw.groups, counted, len(draw.size)) > 0
    )
    if thin.any():
        return (
            f"{int(thin.sum())} strata of {int(draw.size[thin].sum())} requests have fewer than 2 "
            "labels"
        )
    return "" if np.isfinite(estimated.estimate) else f"an estimated number of 0 {of}"


def human_draw(requests: JudgedRequests) -> Draw:
    """Draw of requests for people, within strata, by decision too if each has two labels or all."""
    cells = _decision_cells(requests)
    known = requests.drawn & (requests.human >= 0)
    size, count = np.bincount(cells), np.bincount(cells[known], minlength=cells.max() + 1)
    # Which strata are split depends on how many have a label, not on what it is.
    thin = np.unique(np.flatnonzero(count < np.minimum(2, size)) // len(Status))
    groups = np.where(np.isin(requests.stratum, thin), requests.stratum * len(Status), cells)
    total, labelled, drawn = (
        np.bincount(groups[rows], minlength=groups.max() + 1).astype(np.float64)
        for rows in (slice(None), known, requests.drawn)
    )
    rows = np.flatnonzero(requests.drawn)
    return Draw(groups, total, labelled, 1.0 - drawn / np.maximum(total, 1.0), rows, known[rows])


def _decision_cells(requests: JudgedRequests) -> IntArray:
    """Number of each request's stratum and decision, [Q]."""
    return requests.stratum * len(Status) + requests.status


def difference(
    requests: JudgedRequests, parts: RateParts, draw: Draw, level: float, *, judged: bool = True
) -> DifferenceEstimate:
    """Estimate by difference of a rate k / n, and its interval from the linear part of the ratio.

    Args:
      requests: all of them.
      parts: of the rate.
      draw: of those that people label.
      level: of the interval.
      judged: use the judge; otherwise people's labels alone.
    """
    rows, at, known = draw.rows, draw.groups[draw.rows], draw.known
    weights = draw.size / np.maximum(draw.labelled, 1.0)
    k, n, weight = parts.k[rows], parts.n[rows], weights[at] * known
    if not (weight * n).sum() > 0.0:
        return _UNKNOWN
    alone = (weight * k).sum() / (weight * n).sum()
    human, judge = k - alone * n, (parts.judge_k - alone * parts.judge_n)[rows]
    c = judge_coefficient(human[known], judge[known], at[known], draw) if judged else 0.0
    totals = [
        float(c * f.sum() + (weight * (x - c * f[rows])).sum())
        for x, f in ((k, parts.judge_k), (n, parts.judge_n))
    ]
    if not totals[1] > 0.0:
        return _UNKNOWN
    rate = totals[0] / totals[1]
    control = c * (parts.judge_k - rate * parts.judge_n)
    residual = k - rate * n - control[rows]
    outcomes = parts.tables[0] - rate * parts.tables[1]
    reach = t_quantile(max(1.0, known.sum() - (draw.labelled > 0).sum()), level)
    # What people may say of a request at the least and the most, less what the judge says of it.
    worst = [
        extreme[requests.status] - control
        for extreme in (outcomes.min(axis=1), outcomes.max(axis=1))
    ]
    filled = [_moments(np.where(known, residual, end[rows]), at, len(draw.size)) for end in worst]
    variance = np.maximum(*(moments.variance for moments in filled))
    is_open = np.ones(len(control), dtype=bool)
    is_open[rows] = False
    ends = []
    for sign, moments, end, pick in zip(
        (-1.0, 1.0), filled, worst, (np.minimum, np.maximum), strict=True
    ):
        extra = np.full(len(draw.size), -sign * np.inf)
        pick.at(extra, draw.groups[is_open], end[is_open])
        end_of_total = _outer_end(
            sign * reach, moments._replace(variance=variance), extra, draw, float(control.sum())
        )
        ends.append(rate + end_of_total / totals[1])
    finite = (
        float((draw.size * _moments(residual[known], at[known], len(draw.size)).variance).sum())
        / totals[1] ** 2
    )
    return DifferenceEstimate(
        rate, ends[0], ends[1], ((ends[1] - ends[0]) / 2.0 / reach) ** 2, finite, c
    )


def _outer_end(
    reach: float, moments: Moments, extra: FloatArray, draw: Draw, center: float
) -> float:
    """End of the interval of a total with one more label in the group that moves it most out.

    Args:
      reach: standard errors from the middle, below 0 for the lower end.
      moments: of the residuals of each group.
      extra: the residual of one more label of each group, infinite where there is none to be drawn.
      draw: of the requests.
      center: what is added to the residuals.
    """
    count, mean, variance = moments
    spread = draw.size**2 * draw.rest * variance / np.maximum(count, 1.0)
    middle = float((draw.size * mean).sum()) + center
    is_open = np.isfinite(extra) & (draw.rest > 0.0)
    if not is_open.any():
        return middle + reach * float(spread.sum()) ** 0.5
    gap = np.where(is_open, extra, 0.0) - mean
    squares = variance * np.maximum(count - 1.0, 0.0) + gap**2 * count / (count + 1.0)
    wider = draw.size**2 * draw.rest * squares / np.maximum(count, 1.0) / (count + 1.0)
    ends = (
        middle
        + draw.size * gap / (count + 1.0)
        + reach * np.sqrt(np.maximum(spread.sum() - spread + wider, 0.0))
    )
    return float((ends[is_open].max if reach > 0.0 else ends[is_open].min)())


def judge_coefficient(human: FloatArray, judge: FloatArray, groups: IntArray, draw: Draw) -> float:
    """Judge coefficient in [0, 1] under which the estimate varies least, by labelled requests.

    Args:
      human: part of each labelled request in the rate by people, [D].
      judge: by the judge, [D].
      groups: [D].
      draw: of the requests.

    Source: Angelopoulos, Duchi and Zrnic 2023, section 6.
    """
    parts = (human + judge, human, judge)
    both, people, machine = (_moments(values, groups, len(draw.size)).variance for values in parts)
    weight = draw.size**2 * draw.rest / np.maximum(draw.labelled, 1.0)
    spread = float((weight * machine).sum())
    # A judge that says the same within each group varies by rounding alone, and counts for nothing.
    if not spread > 1e-12 * weight.sum():
        return 0.0
    return float(np.clip((weight * (both - people - machine)).sum() / 2.0 / spread, 0.0, 1.0))


def _moments(values: FloatArray, groups: IntArray, n_groups: int) -> Moments:
    """Moments of the values of each group."""
    count = np.bincount(groups, minlength=n_groups).astype(np.float64)
    mean = np.bincount(groups, values, n_groups) / np.maximum(count, 1.0)
    squares = np.bincount(groups, (values - mean[groups]) ** 2, n_groups)
    return Moments(count, mean, squares / np.maximum(count - 1.0, 1.0))


def human_interval(
    requests: JudgedRequests, parts: RateParts, level: float
) -> tuple[float, Interval]:
    """Rate by people's labels alone, with an exact interval.

    Of k in n where all were as likely, else by strata.

    Source: Clopper and Pearson 1934; `raglab.metrics.intervals.stratified_share`.
    """
    k_of, n_of = parts.tables
    blank = requests.drawn & (requests.human < 0)
    if requests.stratum.max() == requests.stratum.min():
        k, n = int(parts.k.sum()), int(parts.n.sum())
        # any of them may be an error, or none
        more = int((blank & n_of.any(axis=1)[requests.status]).sum())
        ends = Interval(
            clopper_pearson(k, n + more, level).low, clopper_pearson(k + more, n + more, level).high
        )
        return k / n if n else float("nan"), ends
    # whether decisions alone tell n
    cells, is_known = _decision_cells(requests), bool((n_of == n_of[:, :1]).all())
    size, drawn, hits, unknown = (
        np.bincount(cells, weights).astype(np.int64)
        for weights in (None, requests.drawn, parts.k if is_known else parts.n, blank)
    )
    top: list[Stratum] = []
    rest: list[Stratum] = []
    for place in np.flatnonzero(size):
        k_row, n_row = k_of[place % len(Status)], n_of[place % len(Status)]
        if n_row.any():
            strata = top if is_known or (k_row == n_row).all() else rest
            strata.append(
                Stratum(int(size[place]), int(drawn[place]), int(hits[place]), int(unknown[place]))
            )
    return stratified_rate(top, level) if is_known else stratified_share(top, rest, level)
