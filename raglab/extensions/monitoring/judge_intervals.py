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
from raglab.values import BoolArray, FloatArray, IntArray, Status

if TYPE_CHECKING:
    import pandas as pd

MIN_LABELS = 50
MIN_EVENTS = 10
JUDGE_METHOD = "difference, asymptotic"
JUDGED_COLUMNS = (
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
    known: BoolArray


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
    rate_names = checked_rates(rates)
    requests = judged_requests(frame)
    rate_rows = [
        {"rate": rate_name, **rate_row(requests, rate_name, level)} for rate_name in rate_names
    ]
    return pd.DataFrame(rate_rows, columns=list(JUDGED_COLUMNS))


def rate_row(requests: JudgedRequests, rate: str, level: float) -> dict[str, Any]:
    """Row of a rate in `judged_rates`."""
    parts = rate_parts(requests, rate)
    human_rate, (human_low, human_high) = human_interval(requests, parts, level)
    judge_cases = float(parts.judge_n.sum())
    estimate_row = difference_row(requests, parts, RATE_TABLE[rate].share_of, level)
    if estimate_row["estimate"] < human_low - 1e-9 or estimate_row["estimate"] > human_high + 1e-9:
        doubt = "the estimate lies outside people's own interval: does the judge know who is drawn?"
        estimate_row["reason"] = (
            f"{estimate_row['reason']}; {doubt}" if estimate_row["reason"] else doubt
        )
    return {
        "judge_only": float(parts.judge_k.sum()) / judge_cases if judge_cases else float("nan"),
        "human_only": human_rate,
        "human_low": float(human_low),
        "human_high": float(human_high),
        "k": int(parts.k.sum()),
        "n": int(parts.n.sum()),
        "requests": len(requests.status),
        "unlabelled": int((requests.drawn & (requests.human < 0)).sum()),
        "level": level,
        **estimate_row,
    }


def difference_row(
    requests: JudgedRequests, parts: RateParts, share_of: str, level: float
) -> dict[str, Any]:
    """Columns of `judged_rates` that rest on both, the judge and people."""
    draw = human_draw(requests)
    estimate, human_estimate = (
        difference(requests, parts, draw, level, judged=use_judge) for use_judge in (True, False)
    )
    n_labelled = int(draw.known.sum())
    if refusal_reason := _refusal(parts, draw, requests, estimate, share_of):
        estimate = _UNKNOWN
        labels_saved = 0
    else:
        # The variance of n labels of people alone is (alone.variance + alone.finite) * labelled / n
        # - alone.finite.
        endless_variance = (human_estimate.variance + human_estimate.finite) * n_labelled
        labels_saved = max(
            0,
            floor(
                endless_variance / (estimate.variance + human_estimate.finite) - n_labelled + 1e-9
            ),
        )
        refusal_reason = "" if labels_saved else "no labels are saved"
    clipped_rate, lower_bound, upper_bound = np.clip(estimate[:3], 0.0, 1.0).tolist()
    return {
        "estimate": clipped_rate,
        "low": lower_bound,
        "high": upper_bound,
        "method": JUDGE_METHOD,
        "coefficient": estimate.coefficient,
        "labels_saved": labels_saved,
        "reason": refusal_reason,
    }


def _refusal(
    parts: RateParts,
    draw: Draw,
    requests: JudgedRequests,
    estimated: DifferenceEstimate,
    case_words: str,
) -> str:
    """Why an interval is refused, '' where it is not."""
    n_errors = int(parts.k.sum())
    n_cases = int(parts.n.sum())
    drawn_by_stratum = np.bincount(requests.stratum, requests.drawn)
    stratum_sizes = np.bincount(requests.stratum)
    if dependence := draw_dependence(
        requests, (drawn_by_stratum / np.maximum(stratum_sizes, 1))[requests.stratum]
    ):
        return dependence
    if n_cases < MIN_LABELS:
        return f"people labelled {n_cases} {case_words}, an interval needs {MIN_LABELS}"
    if min(n_errors, n_cases - n_errors) < MIN_EVENTS:
        return (
            f"people labelled {n_errors} errors of {n_cases} {case_words}, "
            f"an interval needs {MIN_EVENTS} with and without"
        )
    is_counted = parts.tables[1].any(axis=1)[requests.status]
    is_thin = (draw.labelled < np.minimum(2, draw.size)) & (
        np.bincount(draw.groups, is_counted, len(draw.size)) > 0
    )
    if is_thin.any():
        return (
            f"{int(is_thin.sum())} strata of {int(draw.size[is_thin].sum())} requests "
            "have fewer than 2 labels"
        )
    return "" if np.isfinite(estimated.estimate) else f"an estimated number of 0 {case_words}"


def human_draw(requests: JudgedRequests) -> Draw:
    """Draw of requests for people, within strata, by decision too if each has two labels or all."""
    decision_cells = _decision_cells(requests)
    is_known = requests.drawn & (requests.human >= 0)
    cell_sizes = np.bincount(decision_cells)
    label_counts = np.bincount(decision_cells[is_known], minlength=decision_cells.max() + 1)
    # Which strata are split depends on how many have a label, not on what it is.
    thin_strata = np.unique(np.flatnonzero(label_counts < np.minimum(2, cell_sizes)) // len(Status))
    group_numbers = np.where(
        np.isin(requests.stratum, thin_strata), requests.stratum * len(Status), decision_cells
    )
    group_sizes, labelled_counts, drawn_counts = (
        np.bincount(group_numbers[row_selection], minlength=group_numbers.max() + 1).astype(
            np.float64
        )
        for row_selection in (slice(None), is_known, requests.drawn)
    )
    row_selection = np.flatnonzero(requests.drawn)
    return Draw(
        group_numbers,
        group_sizes,
        labelled_counts,
        1.0 - drawn_counts / np.maximum(group_sizes, 1.0),
        row_selection,
        is_known[row_selection],
    )


def _decision_cells(requests: JudgedRequests) -> IntArray:
    """Number of each request's stratum and decision, [Q]."""
    return requests.stratum * len(Status) + requests.status


def difference(
    requests: JudgedRequests,
    parts: RateParts,
    draw: Draw,
    level: float,
    *,
    judged: bool = True,
) -> DifferenceEstimate:
    """Estimate by difference of a rate k / n, and its interval from the linear part of the ratio.

    Args:
      requests: all of them.
      parts: of the rate.
      draw: of those that people label.
      level: of the interval.
      judged: use the judge; otherwise people's labels alone.
    """
    drawn_rows, drawn_groups, is_known = draw.rows, draw.groups[draw.rows], draw.known
    # Each labelled request stands for all of its group, labelled or not.
    weights = draw.size / np.maximum(draw.labelled, 1.0)
    errors = parts.k[drawn_rows]
    case_parts = parts.n[drawn_rows]
    weight = weights[drawn_groups] * is_known
    if not (weight * case_parts).sum() > 0.0:
        return _UNKNOWN
    # The judge is used as far as it varies with people, around their own rate.
    human_rate = (weight * errors).sum() / (weight * case_parts).sum()
    human_parts = errors - human_rate * case_parts
    judge_parts = (parts.judge_k - human_rate * parts.judge_n)[drawn_rows]
    coefficient = (
        judge_coefficient(
            human_parts[is_known], judge_parts[is_known], drawn_groups[is_known], draw
        )
        if judged
        else 0.0
    )
    estimated_totals = [
        float(
            coefficient * judge_values.sum()
            + (weight * (human_values - coefficient * judge_values[drawn_rows])).sum()
        )
        for human_values, judge_values in ((errors, parts.judge_k), (case_parts, parts.judge_n))
    ]
    if not estimated_totals[1] > 0.0:
        return _UNKNOWN
    estimated_rate = estimated_totals[0] / estimated_totals[1]
    # A ratio varies as its numerator less the rate times its denominator.
    judge_control = coefficient * (parts.judge_k - estimated_rate * parts.judge_n)
    residuals = errors - estimated_rate * case_parts - judge_control[drawn_rows]
    possible_parts = parts.tables[0] - estimated_rate * parts.tables[1]
    interval_reach = t_quantile(max(1.0, is_known.sum() - (draw.labelled > 0).sum()), level)
    # What people may say of a request at the least and the most, less what the judge says of it.
    worst_residuals = [
        extreme_parts[requests.status] - judge_control
        for extreme_parts in (possible_parts.min(axis=1), possible_parts.max(axis=1))
    ]
    filled_moments = [
        _moments(
            np.where(is_known, residuals, worst_case[drawn_rows]),
            drawn_groups,
            len(draw.size),
        )
        for worst_case in worst_residuals
    ]
    # Both ends take the larger variance: labels that are missing may fall either way.
    larger_variance = np.maximum(*(group_moments.variance for group_moments in filled_moments))
    is_undrawn = np.ones(len(judge_control), dtype=bool)
    is_undrawn[drawn_rows] = False
    interval_ends = []
    for end_sign, group_moments, worst_case, pick_extreme in zip(
        (-1.0, 1.0), filled_moments, worst_residuals, (np.minimum, np.maximum), strict=True
    ):
        extra_residuals = np.full(len(draw.size), -end_sign * np.inf)
        pick_extreme.at(extra_residuals, draw.groups[is_undrawn], worst_case[is_undrawn])
        end_of_total = _outer_end(
            end_sign * interval_reach,
            group_moments._replace(variance=larger_variance),
            extra_residuals,
            draw,
            float(judge_control.sum()),
        )
        interval_ends.append(estimated_rate + end_of_total / estimated_totals[1])
    # What the sample alone says of the variance, without the worst cases.
    finite_variance = (
        float(
            (
                draw.size
                * _moments(residuals[is_known], drawn_groups[is_known], len(draw.size)).variance
            ).sum()
        )
        / estimated_totals[1] ** 2
    )
    return DifferenceEstimate(
        estimated_rate,
        interval_ends[0],
        interval_ends[1],
        ((interval_ends[1] - interval_ends[0]) / 2.0 / interval_reach) ** 2,
        finite_variance,
        coefficient,
    )


def _outer_end(
    reach: float, moments: Moments, extra_residuals: FloatArray, draw: Draw, center: float
) -> float:
    """End of the interval of a total with one more label in the group that moves it most out.

    Args:
      reach: standard errors from the middle, below 0 for the lower end.
      moments: of the residuals of each group.
      extra_residuals: the residual of one more label of each group, infinite where none can be
        drawn.
      draw: of the requests.
      center: what is added to the residuals.
    """
    n_labelled, group_means, group_variances = moments
    total_variances = draw.size**2 * draw.rest * group_variances / np.maximum(n_labelled, 1.0)
    interval_middle = float((draw.size * group_means).sum()) + center
    is_open = np.isfinite(extra_residuals) & (draw.rest > 0.0)
    if not is_open.any():
        return interval_middle + reach * float(total_variances.sum()) ** 0.5
    label_gap = np.where(is_open, extra_residuals, 0.0) - group_means
    wider_squares = group_variances * np.maximum(
        n_labelled - 1.0, 0.0
    ) + label_gap**2 * n_labelled / (n_labelled + 1.0)
    wider_variances = (
        draw.size**2 * draw.rest * wider_squares / np.maximum(n_labelled, 1.0) / (n_labelled + 1.0)
    )
    possible_ends = (
        interval_middle
        + draw.size * label_gap / (n_labelled + 1.0)
        + reach
        * np.sqrt(np.maximum(total_variances.sum() - total_variances + wider_variances, 0.0))
    )
    return float((possible_ends[is_open].max if reach > 0.0 else possible_ends[is_open].min)())


def judge_coefficient(human: FloatArray, judge: FloatArray, groups: IntArray, draw: Draw) -> float:
    """Judge coefficient in [0, 1] under which the estimate varies least, by labelled requests.

    Args:
      human: part of each labelled request in the rate by people, [D].
      judge: by the judge, [D].
      groups: [D].
      draw: of the requests.

    Source: Angelopoulos, Duchi and Zrnic 2023, section 6.
    """
    label_parts = (human + judge, human, judge)
    sum_variance, human_variance, judge_variance = (
        _moments(label_values, groups, len(draw.size)).variance for label_values in label_parts
    )
    group_weights = draw.size**2 * draw.rest / np.maximum(draw.labelled, 1.0)
    judge_spread = float((group_weights * judge_variance).sum())
    # A judge that says the same within each group varies by rounding alone, and counts for nothing.
    if not judge_spread > 1e-12 * group_weights.sum():
        return 0.0
    return float(
        np.clip(
            (group_weights * (sum_variance - human_variance - judge_variance)).sum()
            / 2.0
            / judge_spread,
            0.0,
            1.0,
        )
    )


def _moments(values: FloatArray, group_numbers: IntArray, n_groups: int) -> Moments:
    """Moments of the values of each group."""
    counts = np.bincount(group_numbers, minlength=n_groups).astype(np.float64)
    group_means = np.bincount(group_numbers, values, n_groups) / np.maximum(counts, 1.0)
    squared_deviations = np.bincount(
        group_numbers, (values - group_means[group_numbers]) ** 2, n_groups
    )
    return Moments(counts, group_means, squared_deviations / np.maximum(counts - 1.0, 1.0))


def human_interval(
    requests: JudgedRequests, parts: RateParts, level: float
) -> tuple[float, Interval]:
    """Rate by people's labels alone, with an exact interval.

    Of k in n where all were as likely, else by strata.

    Source: Clopper and Pearson 1934; `raglab.metrics.intervals.stratified_share`.
    """
    error_table, case_table = parts.tables
    is_unlabelled = requests.drawn & (requests.human < 0)
    if requests.stratum.max() == requests.stratum.min():
        n_errors = int(parts.k.sum())
        n_cases = int(parts.n.sum())
        # any of them may be an error, or none
        n_unknown = int((is_unlabelled & case_table.any(axis=1)[requests.status]).sum())
        exact_interval = Interval(
            clopper_pearson(n_errors, n_cases + n_unknown, level).low,
            clopper_pearson(n_errors + n_unknown, n_cases + n_unknown, level).high,
        )
        return n_errors / n_cases if n_cases else float("nan"), exact_interval
    # whether decisions alone tell n
    decision_cells = _decision_cells(requests)
    is_known = bool((case_table == case_table[:, :1]).all())
    cell_sizes, drawn_counts, cell_counts, unknown_counts = (
        np.bincount(decision_cells, cell_weights).astype(np.int64)
        for cell_weights in (
            None,
            requests.drawn,
            parts.k if is_known else parts.n,
            is_unlabelled,
        )
    )
    certain_strata: list[Stratum] = []
    other_strata: list[Stratum] = []
    for cell_number in np.flatnonzero(cell_sizes):
        error_row = error_table[cell_number % len(Status)]
        case_row = case_table[cell_number % len(Status)]
        if case_row.any():
            stratum_list = (
                certain_strata if is_known or (error_row == case_row).all() else other_strata
            )
            stratum_list.append(
                Stratum(
                    int(cell_sizes[cell_number]),
                    int(drawn_counts[cell_number]),
                    int(cell_counts[cell_number]),
                    int(unknown_counts[cell_number]),
                )
            )
    return (
        stratified_rate(certain_strata, level)
        if is_known
        else stratified_share(certain_strata, other_strata, level)
    )
