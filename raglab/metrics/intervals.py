"""Intervals (algebra): Clopper-Pearson, draws from strata, bounds of a rate.

Those of rates hold for finite samples; no normal approximation is made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import check_present, float_array
from raglab.loops.parallel import by_threads
from raglab.values import FloatArray, Floats, IntArray, Ints, PlaceArray

PAIRS_PER_THREAD = 2**14  # of counts whose interval one thread makes at a time
MAX_EXACT_COUNT = 2**26  # of two counts up to it, one number holds both exactly


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
    hit_counts, sample_sizes = np.broadcast_arrays(float_array(k, "k"), float_array(n, "n"))
    _check_counts(hit_counts, sample_sizes)
    # Counts of a sweep repeat, and an inverse costs a hundred times a look-up: each pair is
    # computed once.
    if (distinct_pairs := _distinct_pairs(hit_counts, sample_sizes)) is not None:
        distinct_hits, distinct_sizes, pair_indices = distinct_pairs
        distinct_interval = clopper_pearson(distinct_hits, distinct_sizes, level)
        return Interval(
            np.take(distinct_interval.low, pair_indices),
            np.take(distinct_interval.high, pair_indices),
        )
    if hit_counts.ndim == 1 and hit_counts.size > PAIRS_PER_THREAD:
        pair_slices = [
            slice(slice_start, slice_start + PAIRS_PER_THREAD)
            for slice_start in range(0, hit_counts.size, PAIRS_PER_THREAD)
        ]
        slice_intervals = by_threads(
            lambda pair_slice: _exact_interval(
                hit_counts[pair_slice], sample_sizes[pair_slice], level
            ),
            pair_slices,
        )
        return Interval(*map(np.concatenate, zip(*slice_intervals, strict=True)))
    return _exact_interval(hit_counts, sample_sizes, level)


def _exact_interval(hit_counts: FloatArray, sample_sizes: FloatArray, level: float) -> Interval:
    """Interval of `clopper_pearson` of counts that were checked."""
    from scipy.special import betaincinv

    tail_mass = (1.0 - level) / 2.0
    miss_counts = sample_sizes - hit_counts  # counts are fractions where cases have weights
    lower_bound = np.where(
        hit_counts > 0,
        betaincinv(np.where(hit_counts > 0, hit_counts, 1.0), miss_counts + 1, tail_mass),
        0.0,
    )
    upper_bound = np.where(
        miss_counts > 0,
        betaincinv(hit_counts + 1, np.where(miss_counts > 0, miss_counts, 1.0), 1.0 - tail_mass),
        1.0,
    )
    return Interval(
        np.where(sample_sizes > 0, lower_bound, np.nan),
        np.where(sample_sizes > 0, upper_bound, np.nan),
    )


def _distinct_pairs(
    hit_counts: FloatArray, sample_sizes: FloatArray
) -> tuple[IntArray, IntArray, PlaceArray] | None:
    """Counts and sizes of pairs that differ, and which of them each pair is, [...].

    None where none repeats.
    """
    largest_size = sample_sizes.max(initial=0.0)
    pair_keys = hit_counts * (MAX_EXACT_COUNT + 1) + sample_sizes
    if (
        hit_counts.size < 2
        or not largest_size <= MAX_EXACT_COUNT
        or (pair_keys != np.trunc(pair_keys)).any()
    ):
        return None
    # of one size, a mark at each count costs less than sorting them
    if sample_sizes.min() == largest_size and largest_size < 4 * hit_counts.size:
        hit_indices = hit_counts.astype(np.intp)
        is_present = np.zeros(int(largest_size) + 1, dtype=bool)
        is_present[hit_indices] = True
        distinct_counts = np.flatnonzero(is_present)
        pair_indices = (is_present.cumsum() - 1)[hit_indices]
        distinct_sizes = np.full(len(distinct_counts), int(largest_size))
    else:
        distinct_keys, pair_indices = np.unique(pair_keys, return_inverse=True)
        distinct_counts, distinct_sizes = np.divmod(
            distinct_keys.astype(np.int64), MAX_EXACT_COUNT + 1
        )
    return (
        (distinct_counts, distinct_sizes, pair_indices)
        if len(distinct_counts) < hit_counts.size
        else None
    )


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
    stratum_size, n_drawn, n_hits, n_unknown = stratum
    if not (n_hits >= 0 and n_unknown >= 0 and n_hits + n_unknown <= n_drawn <= stratum_size):
        msg = (
            f"a stratum must have 0 <= hits + unknown <= drawn <= size, got {stratum}; count each "
            "request once."
        )
        raise ValueError(msg)
    # rounding must not shorten the interval
    tail_mass = (1.0 - check_level(level)) / 2.0 * (1.0 - 1e-9)

    def fewest(n_hits: int) -> int:
        """Least count of a population that draws so many hits with a chance above the tail."""
        # the truth is in here for certain, and the chance grows
        certain_count = stratum_size - (n_drawn - n_hits)

        def is_likely(count: int) -> bool:
            return _chance_of_hits(n_hits, n_drawn, stratum_size, count) > tail_mass

        return bisect_left(range(stratum_size), True, n_hits, certain_count, key=is_likely)

    # The most hits are the fewest of all others.
    return fewest(n_hits), stratum_size - fewest(n_drawn - n_hits - n_unknown)


def _chance_of_hits(least_hits: int, n_drawn: int, stratum_size: int, true_hits: int) -> float:
    """Probability that a draw from a population with `true_hits` hits has at least `least_hits`."""
    from scipy.special import gammaln

    possible_hits = np.arange(
        max(least_hits, n_drawn - (stratum_size - true_hits)), min(n_drawn, true_hits) + 1
    )
    if not len(possible_hits):
        return 0.0

    def ways(n_items: int, n_chosen: Ints) -> Any:  # noqa: ANN401 - a number or an array
        return gammaln(n_items + 1.0) - gammaln(n_chosen + 1.0) - gammaln(n_items - n_chosen + 1.0)

    log_chances = (
        ways(true_hits, possible_hits)
        + ways(stratum_size - true_hits, n_drawn - possible_hits)
        - ways(stratum_size, n_drawn)
    )
    return float(min(1.0, np.exp(log_chances).sum()))


def _hit_totals(
    stratum_groups: Sequence[Sequence[Stratum]], level: float
) -> list[tuple[int, int, float]]:
    """Least and greatest count of hits of each group of strata, all at once, and the estimate.

    Strata without a label are left out of the estimate.
    """
    n_open_strata = sum(
        0 < stratum.drawn < stratum.size for strata in stratum_groups for stratum in strata
    )
    stratum_level = 1.0 - (1.0 - check_level(level)) / max(1, n_open_strata)
    group_totals = []
    for strata in stratum_groups:
        bounds = [finite_interval(stratum, stratum_level) for stratum in strata]
        labelled_strata = (stratum for stratum in strata if stratum.drawn > stratum.unknown)
        estimated_hits = sum(
            stratum.size * stratum.hits / (stratum.drawn - stratum.unknown)
            for stratum in labelled_strata
        )
        group_totals.append(
            (
                sum(lower_count for lower_count, _ in bounds),
                sum(upper_count for _, upper_count in bounds),
                estimated_hits,
            )
        )
    return group_totals


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
    (top_low, top_high, top_hits), (rest_low, rest_high, rest_hits) = _hit_totals(
        (top, rest), level
    )
    share = top_hits / (top_hits + rest_hits) if top_hits + rest_hits else nan
    if not top_high + rest_high:
        return share, Interval(nan, nan)
    return share, Interval(
        top_low / (top_low + rest_high) if top_low else 0.0,
        top_high / (top_high + rest_low) if top_high else 0.0,
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
    ((lower_count, upper_count, estimated_hits),) = _hit_totals((strata,), level)
    population = sum(stratum.size for stratum in strata)
    if not population:
        return nan, Interval(nan, nan)
    labelled_population = sum(stratum.size for stratum in strata if stratum.drawn > stratum.unknown)
    return estimated_hits / labelled_population if labelled_population else nan, Interval(
        lower_count / population, upper_count / population
    )


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
    n_replications = len(values)
    if n_replications < 2:
        no_bounds = np.full(values.shape[1:], np.nan)
        return no_bounds, no_bounds
    means = values.mean(axis=0)
    half_width = (
        t_quantile(n_replications - 1, level) * values.std(axis=0, ddof=1) / np.sqrt(n_replications)
    )
    return means - half_width, means + half_width


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
    known_draws = np.where(np.isfinite(draws), draws, np.nan)
    lower_bound = np.full(draws.shape[1:], np.nan)
    upper_bound = np.full(draws.shape[1:], np.nan)
    has_draws = ~np.isnan(known_draws).all(axis=0)  # nanquantile warns of columns without a number
    if has_draws.any():
        lower_bound[has_draws], upper_bound[has_draws] = np.nanquantile(
            known_draws[:, has_draws], [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0
        )
    return lower_bound, upper_bound


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

    allowed_rate = float_array(alpha, "alpha")
    if not ((allowed_rate > 0.0) & (allowed_rate < 1.0)).all():
        msg = f"alpha must be in (0, 1), got {alpha}; 0.1 allows errors in 10 %."
        raise ValueError(msg)
    hit_counts, sample_sizes, allowed_rate = np.broadcast_arrays(
        float_array(k, "k"), float_array(n, "n"), allowed_rate
    )
    _check_counts(hit_counts, sample_sizes)
    return np.where(
        hit_counts < sample_sizes,
        betainc(np.maximum(sample_sizes - hit_counts, 1.0), hit_counts + 1.0, 1.0 - allowed_rate),
        1.0,
    )


def _check_counts(hit_counts: FloatArray, sample_sizes: FloatArray) -> None:
    """Refuse counts that are missing or more than their cases."""
    for name, argument_counts in (("k", hit_counts), ("n", sample_sizes)):
        check_present(argument_counts, name, "count the cases, 0 where there is none")
    if np.any((hit_counts < 0) | (hit_counts > sample_sizes)):
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
