"""Intervals (algebra): Clopper-Pearson, draws from strata, bounds of a rate.

Those of rates hold for finite samples; no normal approximation is made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.plain_arrays import check_present, float_array
from raglab.loops.parallel import by_threads
from raglab.values import Floats, Ints

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
PAIRS = 2**14  # of counts whose interval one thread makes at a time
AT_MOST = 2**26  # of two counts up to it, one number holds both exactly


class Interval(NamedTuple):
    """Ends of a confidence interval, each with the shape of its rate.

    Attributes:
      low: lower end.
      high: upper end.
    """

    low: Floats
    high: Floats


def check_level(level: float) -> float:
    """A confidence level as it came.

    Raises:
      ValueError: outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        msg = f"level must be in (0, 1), got {level}; 0.95 is usual."
        raise ValueError(msg)
    return level


def clopper_pearson(k: Ints, n: Ints, level: float = 0.95) -> Interval:
    """Exact binomial confidence interval of a rate of k in n; NaN where n is 0.

    Args:
      k: count, [...].
      n: cases, [...].
      level: in (0, 1).

    Inside `raglab.lab.parallel_workers("threads")` many are made by the threads, to the same bits.

    Raises:
      ValueError: level outside (0, 1), or k outside 0 … n.

    Source: Clopper and Pearson 1934.

    Example:
      >>> low, high = clopper_pearson(0, 10)
      >>> float(low), round(float(high), 4)
      (0.0, 0.3085)
    """
    check_level(level)
    hit, size = np.broadcast_arrays(float_array(k, "k"), float_array(n, "n"))
    _check_counts(hit, size)
    # Counts of a sweep repeat, and an inverse costs a hundred times a look-up: each pair is
    # computed once.
    if (distinct := _distinct_pairs(hit, size)) is not None:
        hits, sizes, place = distinct
        once = clopper_pearson(hits, sizes, level)
        return Interval(np.take(once.low, place), np.take(once.high, place))
    if hit.ndim == 1 and hit.size > PAIRS:
        parts = [slice(start, start + PAIRS) for start in range(0, hit.size, PAIRS)]
        ends = by_threads(lambda part: _exact_interval(hit[part], size[part], level), parts)
        return Interval(*map(np.concatenate, zip(*ends, strict=True)))
    return _exact_interval(hit, size, level)


def _exact_interval(hit: FloatArray, size: FloatArray, level: float) -> Interval:
    """Interval of `clopper_pearson` of counts that were checked."""
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    missed = size - hit  # counts are fractions where cases have weights
    low = np.where(hit > 0, betaincinv(np.where(hit > 0, hit, 1.0), missed + 1, tail), 0.0)
    high = np.where(
        missed > 0, betaincinv(hit + 1, np.where(missed > 0, missed, 1.0), 1.0 - tail), 1.0
    )
    return Interval(np.where(size > 0, low, np.nan), np.where(size > 0, high, np.nan))


def _distinct_pairs(
    hit: FloatArray, size: FloatArray
) -> tuple[IntArray, IntArray, NDArray[np.intp]] | None:
    """Counts and sizes of pairs that differ, and which of them each pair is, [...].

    None where none repeats.
    """
    most = size.max(initial=0.0)
    key = hit * (AT_MOST + 1) + size
    if hit.size < 2 or not most <= AT_MOST or (key != np.trunc(key)).any():
        return None
    # of one size, a mark at each count costs less than sorting them
    if size.min() == most and most < 4 * hit.size:
        at = hit.astype(np.intp)
        marks = np.zeros(int(most) + 1, dtype=bool)
        marks[at] = True
        counts, place = np.flatnonzero(marks), (marks.cumsum() - 1)[at]
        sizes = np.full(len(counts), int(most))
    else:
        keys, place = np.unique(key, return_inverse=True)
        counts, sizes = np.divmod(keys.astype(np.int64), AT_MOST + 1)
    return (counts, sizes, place) if len(counts) < hit.size else None


class Stratum(NamedTuple):
    """Requests of one kind of which some were drawn without replacement and labelled.

    size: of the population. drawn: of it. hits: drawn ones that have what is counted. unknown:
    drawn ones of which nobody said. 0 <= hits + unknown <= drawn <= size.
    """

    size: int
    drawn: int
    hits: int
    unknown: int = 0


def finite_interval(stratum: Stratum, level: float = 0.95) -> tuple[int, int]:
    """Least and greatest hit count in a stratum's population that the draw does not contradict.

    Exact for draws without replacement, by the tails of the hypergeometric distribution. What is
    unknown counts as no hit below and as a hit above, so that it holds whichever requests nobody
    labelled.

    Raises:
      ValueError: level outside (0, 1), or counts that no draw can give.

    Source: Buonaccorsi 1987; Clopper and Pearson 1934 for a population without end.

    Example:
      >>> (
      ...     finite_interval(Stratum(size=100, drawn=10, hits=0)),
      ...     finite_interval(Stratum(size=10, drawn=10, hits=3)),
      ... )
      ((0, 29), (3, 3))
    """
    size, drawn, hits, unknown = stratum
    if not (hits >= 0 and unknown >= 0 and hits + unknown <= drawn <= size):
        msg = (
            f"a stratum must have 0 <= hits + unknown <= drawn <= size, got {stratum}; count each "
            "request once."
        )
        raise ValueError(msg)
    # rounding must not shorten the interval
    tail = (1.0 - check_level(level)) / 2.0 * (1.0 - 1e-9)

    def fewest(hits: int) -> int:
        """Least count of a population that draws so many hits with a chance above the tail."""
        most = size - (drawn - hits)  # the truth is in here for certain, and the chance grows

        def is_likely(count: int) -> bool:
            return _chance_of_hits(hits, drawn, size, count) > tail

        return bisect_left(range(size), True, hits, most, key=is_likely)

    # The most hits are the fewest of all others.
    return fewest(hits), size - fewest(drawn - hits - unknown)


def _chance_of_hits(hits: int, drawn: int, size: int, count: int) -> float:
    """Probability of at least so many hits among those drawn where the population has `count`."""
    from scipy.special import gammaln

    possible_hits = np.arange(max(hits, drawn - (size - count)), min(drawn, count) + 1)
    if not len(possible_hits):
        return 0.0

    def ways(total: int, chosen: Ints) -> Any:  # noqa: ANN401 - a number or an array
        return gammaln(total + 1.0) - gammaln(chosen + 1.0) - gammaln(total - chosen + 1.0)

    logs = (
        ways(count, possible_hits) + ways(size - count, drawn - possible_hits) - ways(size, drawn)
    )
    return float(min(1.0, np.exp(logs).sum()))


def _hit_totals(groups: Sequence[Sequence[Stratum]], level: float) -> list[tuple[int, int, float]]:
    """Least and greatest count of hits of each group of strata, all at once, and the estimate.

    Strata without a label are left out of the estimate.
    """
    open_strata = sum(0 < stratum.drawn < stratum.size for strata in groups for stratum in strata)
    each = 1.0 - (1.0 - check_level(level)) / max(1, open_strata)
    totals = []
    for strata in groups:
        bounds = [finite_interval(stratum, each) for stratum in strata]
        known = (stratum for stratum in strata if stratum.drawn > stratum.unknown)
        hits = sum(
            stratum.size * stratum.hits / (stratum.drawn - stratum.unknown) for stratum in known
        )
        totals.append((sum(low for low, _ in bounds), sum(high for _, high in bounds), hits))
    return totals


def stratified_share(
    top: Sequence[Stratum], rest: Sequence[Stratum], level: float = 0.95
) -> tuple[float, Interval]:
    """Share of the hits of all strata that lie in those of `top`: estimate and interval.

    NaN where there is no hit.

    Such is a rate whose denominator is itself counted, as refusals among what should have been
    answered. Each stratum that was drawn in part gives bounds at its share of the error, so that
    all hold at once; the share is at its least where the top has the fewest and the rest the most,
    and at its greatest the other way round.

    Returns: the estimate weighs each labelled request by how many it stands for; strata without a
      label are left out of it, and count from none to all in the interval.

    Source: Bonferroni over `finite_interval`; Cochran 1977, chapter 5, for the weights.

    Example:
      >>> share, (low, high) = stratified_share([Stratum(40, 20, 5)], [Stratum(400, 40, 40)])
      >>> round(share, 4), round(float(low), 3), round(float(high), 3)
      (0.0244, 0.012, 0.045)
    """
    (top_low, top_high, top_hits), (low, high, hits) = _hit_totals((top, rest), level)
    share = top_hits / (top_hits + hits) if top_hits + hits else nan
    if not top_high + high:
        return share, Interval(nan, nan)
    return share, Interval(
        top_low / (top_low + high) if top_low else 0.0,
        top_high / (top_high + low) if top_high else 0.0,
    )


def stratified_rate(strata: Sequence[Stratum], level: float = 0.95) -> tuple[float, Interval]:
    """Rate of hits in a population of known size: estimate and interval; NaN where it is empty.

    Each labelled request counts for as many as its stratum has for each labelled one, so that the
    estimate is unbiased where each stratum has a label; strata without one are left out of it, and
    count from none to all in the interval.

    Source: Cochran 1977, chapter 5, for the weights; Bonferroni over `finite_interval`.

    Example:
      >>> rate, (low, high) = stratified_rate([Stratum(40, 20, 5), Stratum(400, 40, 40)])
      >>> round(rate, 4), round(float(low), 3), round(float(high), 3)
      (0.9318, 0.832, 0.948)
    """
    ((low, high, hits),) = _hit_totals((strata,), level)
    size = sum(stratum.size for stratum in strata)
    if not size:
        return nan, Interval(nan, nan)
    covered = sum(stratum.size for stratum in strata if stratum.drawn > stratum.unknown)
    return hits / covered if covered else nan, Interval(low / size, high / size)


def upper_bound(k: Ints, n: Ints, delta: float = 0.1) -> Floats:
    """Exact one-sided upper bound of a rate of k in n at confidence 1 − delta; NaN where n is 0.

    Args:
      k: count, [...].
      n: cases, [...].
      delta: error of the bound, in (0, 0.5).

    Source: Clopper and Pearson 1934.

    Example:
      >>> round(float(upper_bound(0, 22)), 3)
      0.099
    """
    return clopper_pearson(k, n, 1.0 - 2.0 * check_delta(delta)).high


def t_quantile(df: Floats, level: float) -> float:
    """Standard errors that a two-sided t interval reaches to each side of its mean.

    Args:
      df: degrees of freedom, above 0.
      level: in (0, 1).

    Source: Student 1908; what `scipy.stats.t.ppf` calls, without loading all of `scipy.stats`.

    Example:
      >>> round(t_quantile(9, 0.95), 3)
      2.262
    """
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + level / 2.0))


def mean_interval(values: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Ends of the t interval of the mean over the first axis, [...].

    NaN where one row says nothing of others.

    Args:
      values: independent replications, [R, ...].
      level: in (0, 1).

    Example:
      >>> low, high = mean_interval(np.array([[1.0], [2.0], [3.0]]), 0.95)
      >>> low.round(3), high.round(3)
      (array([-0.484]), array([4.484]))
    """
    count = len(values)
    if count < 2:
        none = np.full(values.shape[1:], np.nan)
        return none, none
    mean = values.mean(axis=0)
    reach = t_quantile(count - 1, level) * values.std(axis=0, ddof=1) / np.sqrt(count)
    return mean - reach, mean + reach


def percentile_interval(draws: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Percentile interval over the first axis, [...].

    Resamples without a number are left out, NaN where all are.

    Args:
      draws: a statistic of each resample, [N, ...].
      level: in (0, 1).

    Source: Efron and Tibshirani 1993.

    Example:
      >>> low, high = percentile_interval(np.array([1.0, 2.0, np.nan, 3.0]), 0.5)
      >>> float(low), float(high)
      (1.5, 2.5)
    """
    known = np.where(np.isfinite(draws), draws, np.nan)
    low, high = np.full(draws.shape[1:], np.nan), np.full(draws.shape[1:], np.nan)
    some = ~np.isnan(known).all(axis=0)  # nanquantile warns of columns without a number
    if some.any():
        low[some], high[some] = np.nanquantile(
            known[:, some], [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0
        )
    return low, high


def binomial_p(k: Ints, n: Ints, alpha: Floats) -> Floats:
    """p-value that a rate exceeds alpha when k of n were seen: P(Bin(n, alpha) ≤ k).

    1 where n is 0.

    It is at most delta exactly where `upper_bound(k, n, delta)` is at most alpha.

    Args:
      k: errors, [...].
      n: cases, [...].
      alpha: highest rate allowed, in (0, 1), broadcast against them.

    Example:
      >>> round(float(binomial_p(0, 22, 0.1)), 4)
      0.0985
    """
    from scipy.special import betainc

    rate = float_array(alpha, "alpha")
    if not ((rate > 0.0) & (rate < 1.0)).all():
        msg = f"alpha must be in (0, 1), got {alpha}; 0.1 allows errors in 10 %."
        raise ValueError(msg)
    hit, size, rate = np.broadcast_arrays(float_array(k, "k"), float_array(n, "n"), rate)
    _check_counts(hit, size)
    return np.where(hit < size, betainc(np.maximum(size - hit, 1.0), hit + 1.0, 1.0 - rate), 1.0)


def _check_counts(hit: FloatArray, size: FloatArray) -> None:
    """Refuse counts that are missing or more than their cases."""
    for name, counts in (("k", hit), ("n", size)):
        check_present(counts, name, "count the cases, 0 where there is none")
    if np.any((hit < 0) | (hit > size)):
        msg = "k must be between 0 and n; count both on the same cases."
        raise ValueError(msg)


def check_delta(delta: float) -> float:
    """Return the error of a one-sided bound, or refuse one outside its range.

    Args:
      delta: in (0, 0.5).
    """
    if not 0.0 < delta < 0.5:
        msg = f"delta must be in (0, 0.5), got {delta}; 0.1 gives a bound at 90 % confidence."
        raise ValueError(msg)
    return delta
