"""When failures of a default gather under one condition, its row splits (rule S5.6).

For every value of every condition column: are the failures of the leading value more frequent there than elsewhere?
One-sided Fisher test, exact for any number. The chance `alpha` that a row of noise ever splits is spent over looks,
alpha / 2 at the first, alpha / 4 at the second, and so on, and in each look shared by all column values tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab._defaults import ClarificationDefault, Counts, arrays, instant, place
from raglab._learner import refuse
from raglab._votes import N_COUNTS, Learner, Votes, checked, confidence, top, votes_of


class Split(NamedTuple):
    """Condition that a row is to be split by.

    value: of the column, where failures gather. p: of the exact test. bar: what p had to be below or at. look: from 1.
    """

    column: str
    value: str
    p: float
    bar: float
    look: int


def due(default: ClarificationDefault, learner: Learner) -> bool:
    """Whether failures reached the next look: `first_look`, then twice as many each time."""
    failures = sum(each.failed for each in default.counts.values())
    return checked(learner).stratify and failures >= learner.first_look * 2**default.looks


def stratify(default: ClarificationDefault, learner: Learner) -> Split | None:
    """Condition under which the leading value fails more often than elsewhere; None without evidence or before a look.

    Requests without a value of a column say nothing about it; a column of which one value was seen is not tried. Of
    several that are significant the smallest p is taken, ties by name.

    Raises:
      ValueError: settings out of range.

    Source: rule S5.6; Fisher 1935; Bonferroni over column values and looks.
    """
    if not due(default, learner) or not default.candidate_votes:
        return None
    lead = place(default)[int(top(arrays(default), learner))]
    names: list[tuple[str, str]] = []
    tables: list[tuple[int, int, int, int]] = []  # failures and signals there, and in the whole column
    for column, seen in sorted(default.strata.items()):
        found = _outcomes(seen, lead)
        whole = (sum(failed for _, failed, _ in found), sum(of for *_, of in found))
        names += [(column, value) for value, *_ in found]
        tables += [(failed, of, *whole) for _, failed, of in found]
    if not tables:
        return None
    p = gathers(*np.transpose(tables))
    look = default.looks + 1
    bar = learner.alpha / 2**look / len(tables)
    best = min(range(len(tables)), key=lambda at: (p[at], names[at]))
    return Split(*names[best], float(p[best]), bar, look) if p[best] <= bar else None


def _outcomes(seen: Mapping[str, Mapping[str, Counts]], lead: str) -> list[tuple[str, int, int]]:
    """Value, failures and signals of the leading value under each value of a column, in order of their names."""
    found = {value: by[lead] for value, by in sorted(seen.items()) if lead in by}
    if len(found) < 2:
        return []
    return [(value, round(counts.failed), round(signals(counts))) for value, counts in found.items()]


def signals(counts: Counts) -> float:
    """Signals about a value itself."""
    return counts.yes + counts.silent + counts.no + counts.failed


def gathers(failed: ArrayLike, of: ArrayLike, all_failed: ArrayLike, all_of: ArrayLike) -> NDArray[np.float64]:
    """One-sided p-value that failures are as frequent in one part as elsewhere: P(X ≥ failed), hypergeometric, [...].

    Args:
      failed, of: failures and signals in the part, int [...]. all_failed, all_of: in all parts together.

    Source: Fisher 1935.

    Example:
      >>> round(float(gathers(8, 8, 8, 38)) * 48_903_492, 6)
      1.0
    """
    from scipy.special import gammaln

    k, m, failures, n = np.broadcast_arrays(
        *(np.asarray(each, np.float64) for each in (failed, of, all_failed, all_of))
    )
    most = np.minimum(m, failures)
    more = k[..., None] + np.arange(int((most - k).max(initial=0.0)) + 1, dtype=np.float64)

    def chosen(from_n: NDArray[np.float64], take: NDArray[np.float64]) -> NDArray[np.float64]:
        rest = from_n - take
        within = (take >= 0.0) & (rest >= 0.0)
        some, left = np.where(within, take, 0.0), np.where(within, rest, from_n)
        return np.where(within, gammaln(from_n + 1.0) - gammaln(some + 1.0) - gammaln(left + 1.0), -np.inf)

    inside = chosen(np.broadcast_to(m[..., None], more.shape), more)
    outside = chosen(np.broadcast_to((n - m)[..., None], more.shape), failures[..., None] - more)
    each = inside + outside - chosen(n, failures)[..., None]
    return np.asarray(np.minimum(np.exp(each).sum(axis=-1), 1.0))


def looked(default: ClarificationDefault, found: Split | None = None) -> ClarificationDefault:
    """The row after a test for a split; of the column that it was split by it keeps no counts."""
    left = {column: seen for column, seen in default.strata.items() if found is None or column != found.column}
    after = {"looks": default.looks + 1, "strata": left, "version": default.version + 1}
    return default.model_copy(update=after)


def split(
    default: ClarificationDefault, found: Split, *, now: datetime, learner: Learner | None = None
) -> tuple[ClarificationDefault, ...]:
    """New rows, one for each value of the column, with the votes that were cast under it; the old row stays as it is.

    The failures that led to the split are spent: a new row starts without. Of votes that age it gets what is left.

    Args:
      learner: whose rule gives the confidence of the new rows.

    Raises:
      ValueError: `now` is no datetime, or a column that the row has no counts of.
    """
    rule = checked(Learner() if learner is None else learner)
    if found.column not in default.strata:
        refuse("a row splits by a column that it counts", repr(found.column), "take one that `stratify` found")
    instant(now)
    left = default.remembered / default.sample_size if default.sample_size else 1.0
    return tuple(
        _part(default, found.column, value, by, left, now, rule) for value, by in default.strata[found.column].items()
    )


def _part(
    default: ClarificationDefault,
    column: str,
    value: str,
    by: Mapping[str, Counts],
    left: float,
    now: datetime,
    learner: Learner,
) -> ClarificationDefault:
    """Row of one value of a column."""
    kept = {
        name: counts for name in place(default) if (counts := by.get(name, Counts())._replace(failed=0.0)) != Counts()
    }
    size = sum(signals(counts) for counts in kept.values())
    matrix = np.array(list(kept.values()), dtype=np.float64).reshape(len(kept), N_COUNTS) * left
    votes = Votes(matrix, np.array(size * left))
    return ClarificationDefault(
        target_field=default.target_field,
        doctype=default.doctype,
        sub_conditions={**default.sub_conditions, column: value},
        candidate_votes=dict(zip(kept, votes_of(votes).tolist(), strict=True)),
        confidence=float(confidence(votes, learner)),
        sample_size=round(size),
        last_refreshed=now,
        counts={name: Counts(*row) for name, row in zip(kept, matrix.tolist(), strict=True)},
        remembered=float(votes.n),
    )
