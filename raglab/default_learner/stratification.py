"""Stratification (algebra): when a row's failures part it under a condition, and its split (S5.6).

Two rules are provided. `source` is the source document's: a value that failed under a condition,
and a success with another candidate under that condition, split the row at that request. It is
quick and takes noise for a condition. `evidence` waits until failures gather beyond chance. For
every candidate value and every condition column: is the value wrong (its field came back empty, or
a user rejected it) more often under one value of the column than elsewhere? Against "one rate"
stand "two rates", by a likelihood ratio that is an e-value: the two rates are averaged over a
prior, the one rate is the best that any could be. Under one rate, whatever it is, such a ratio ever
reaches 1 / alpha with a probability of at most alpha (Ville's inequality). So a row may be tested
after every signal, from the first failure on, and no level is spent on looks.

Source: Ville 1939; Wasserman, Ramdas and Balakrishnan 2020, Universal inference; Vovk and Wang
  2021, E-values.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.default_learner.confidence import (
    DOUBTED,
    N_COUNTS,
    NAMED,
    NO,
    PRIOR,
    YES,
    ClarificationDefault,
    Counts,
    DefaultLearner,
    Votes,
    check_learner,
    place,
    vote_confidence,
    vote_counts,
)
from raglab.values import refuse
from raglab.words.canonical import instant

Array = NDArray[np.float64]
MOST = 700.0  # log of the largest e-value that is told; a float ends at 709


class Split(NamedTuple):
    """Condition that a row is to be split by.

    Attributes:
      column: the column that tells the conditions apart.
      value: of the column, under which the candidate is wrong most often.
      candidate: value that is right elsewhere; '' in logs of older versions.
      evidence: e-value of two rates against one; of the rule `source`, failures of the candidate
        under that value.
      bar: value that the evidence had to reach.
    """

    column: str
    value: str
    candidate: str
    evidence: float
    bar: float


def stored_split(body: Mapping[str, Any]) -> Split:
    """Split as a log stores it.

    Logs of older versions have an exact test's p-value and its bar, of which this takes 1 / p.

    Args:
      body: split as the log stores it, by field.

    Example:
      >>> stored_split(
      ...     {"column": "page_1_kind", "value": "coversheet", "p": 0.001, "bar": 0.0125, "look": 1}
      ... ).bar
      80.0
    """
    if "p" not in body:
        return Split(**body)
    evidence, bar = (1.0 / max(float(body[name]), np.exp(-MOST)) for name in ("p", "bar"))
    return Split(body["column"], body["value"], "", evidence, bar)


def stratify(
    default: ClarificationDefault,
    learner: DefaultLearner,
    *,
    success: str | None = None,
    conditions: Mapping[str, str] | None = None,
) -> Split | None:
    """Condition that a row is to be split by; None where there is none. Call it after any signal.

    With the rule `evidence`: a condition under which a value is wrong more often than elsewhere. A
    candidate value and a column are tried where the value was right or wrong under two values of
    the column; their e-value is the mean over these of the one against the rest. `tried / alpha` is
    what the largest must reach, ties by name. Requests without a value of a column do not count for
    it.

    Args:
      default: the row.
      learner: settings.
      success: value that the last signal accepted, named, or confirmed by silence; the rule
        `source` splits at one.
      conditions: of its request, by column.

    Raises:
      ValueError: settings out of range.

    Source: rule S5.6; see the module. Bonferroni over what was tried.
    """
    if not check_learner(learner).stratify:
        return None
    if learner.split == "source":
        return None if success is None else source_split(default, success, conditions or {})
    return _evidence_split(default, learner)


def source_split(
    default: ClarificationDefault, success: str, conditions: Mapping[str, str]
) -> Split | None:
    """Split at a success with a candidate other than one failing under the same column value.

    Of several such columns the one is taken under whose value the failed candidate was never right
    and that saw it right elsewhere most often; ties go to the first column.

    Args:
      default: the row.
      success: value that was accepted, named, or confirmed by silence.
      conditions: of its request, by column.

    Example:
      >>> from datetime import UTC, datetime
      >>> from raglab.default_learner import init, update
      >>> now = datetime(2026, 1, 5, tzinfo=UTC)
      >>> row = init("vendor_name", "contract", now=now)
      >>> signals = (
      ...     ("1", "explicit_yes", "body"),
      ...     ("1", "failure", "cover"),
      ...     ("toc", "explicit_yes", "cover"),
      ... )
      >>> for value, signal, kind in signals:
      ...     row = update(row, value, signal, now=now, conditions={"page_1_kind": kind})
      >>> source_split(row, "toc", {"page_1_kind": "cover"})
      Split(column='page_1_kind', value='cover', candidate='1', evidence=1.0, bar=1.0)
    """
    best: tuple[bool, float, Split] | None = None
    for column, levels in default.strata.items():
        level = conditions.get(column)
        here = levels.get(level, {}) if level is not None else {}
        for candidate, counts in here.items():
            if candidate == success or counts.failed <= 0.0 or level is None:
                continue
            elsewhere = sum(
                successes(by[candidate])
                for name, by in levels.items()
                if name != level and candidate in by
            )
            option = (
                successes(counts) == 0.0,
                elsewhere,
                Split(column, level, candidate, counts.failed, 1.0),
            )
            best = option if best is None or option[:2] > best[:2] else best
    return None if best is None else best[2]


def successes(counts: Counts) -> float:
    """How often a value was accepted, named, or confirmed by silence."""
    return counts.yes + counts.named + counts.silent


def _evidence_split(default: ClarificationDefault, learner: DefaultLearner) -> Split | None:
    """Condition under which a value is wrong more often than elsewhere; None without evidence."""
    wrong_at_all = any(each.failed + each.no > 0.0 for each in default.counts.values())
    if not wrong_at_all:
        return None
    tried: list[tuple[float, str, str, str]] = []  # less evidence comes later
    for column, levels in default.strata.items():
        for candidate in default.counts:
            cells = [
                (level, *outcomes(by[candidate])) for level, by in levels.items() if candidate in by
            ]
            wrong, of = (
                np.array([cell[at] for cell in cells if cell[2]], dtype=np.int64) for at in (1, 2)
            )
            if len(of) < 2:
                continue
            where = [cell[0] for cell in cells if cell[2]][int((wrong / of).argmax())]
            tried.append((-float(evidence(wrong, of).mean()), column, candidate, where))
    if not tried:
        return None
    score, column, candidate, value = min(tried)
    bar = len(tried) / learner.alpha
    return Split(column, value, candidate, -score, bar) if -score >= bar else None


def outcomes(counts: Counts) -> tuple[int, int]:
    """How often a value was wrong, and wrong or right.

    That another's user named it is no trial of it.
    """
    wrong = counts.failed + counts.no
    return round(wrong), round(wrong + counts.yes + counts.silent)


def evidence(wrong: ArrayLike, of: ArrayLike) -> Array:
    """E-value of each part against the rest: two rates rather than one, [..., L].

    The rates are averaged over Beta(0.1, 0.1), near 0 and near 1 as those of defaults are; the one
    rate is the best that there is. Parts without a trial have that of no rest.

    Args:
      wrong, of: wrong outcomes and trials of each part, int [..., L].

    Source: Wasserman, Ramdas and Balakrishnan 2020.

    Example:
      >>> evidence([0, 2], [12, 2]).round(1).tolist()  # 12 right on bodies, 2 wrong on coversheets
      [53.9, 53.9]
    """
    k, n = np.asarray(wrong, np.int64), np.asarray(of, np.int64)
    all_k, all_n = k.sum(axis=-1, keepdims=True), n.sum(axis=-1, keepdims=True)
    gamma, gammas, powers = _tables(int(all_n.max(initial=0)) + 1)
    two_rates = _averaged(k, n, gamma, gammas) + _averaged(all_k - k, all_n - n, gamma, gammas)
    one_rate = powers[all_k] + powers[all_n - all_k] - powers[all_n]
    return np.exp(np.minimum(two_rates - one_rate, MOST))


def _averaged(
    wrong: NDArray[np.int64], of: NDArray[np.int64], gamma: Array, gammas: Array
) -> Array:
    """Log of the likelihood averaged over the prior."""
    return np.asarray(gamma[wrong] + gamma[of - wrong] - gammas[of])


def _tables(size: int) -> tuple[Array, Array, Array]:
    """Logs of what a likelihood of so many outcomes is made of, [size] each.

    Gamma functions, and k to the power k.
    """
    from scipy.special import gammaln, xlogy

    count = np.arange(size, dtype=np.float64)
    gamma, gammas = gammaln(count + PRIOR), gammaln(count + 2.0 * PRIOR)
    return gamma - gamma[0], gammas - gammas[0], np.asarray(xlogy(count, count), dtype=np.float64)


def looked(default: ClarificationDefault, condition: Split | None = None) -> ClarificationDefault:
    """The row after a split; it keeps no counts of the column that it was split by.

    Args:
      default: the row before the split.
      condition: the split; None as in logs of older versions, where a test that found nothing was
        noted as well.
    """
    strata = {
        column: levels
        for column, levels in default.strata.items()
        if condition is None or column != condition.column
    }
    after = {"looks": default.looks + 1, "strata": strata, "version": default.version + 1}
    return default.model_copy(update=after)


def split(
    default: ClarificationDefault,
    condition: Split,
    *,
    now: datetime,
    learner: DefaultLearner | None = None,
) -> tuple[ClarificationDefault, ...]:
    """New rows, one for each value of the column, with the votes that were cast under it.

    The old row stays as it is.

    The failures that led to the split are spent: a new row starts without. Of votes that age it
    gets what is left.

    Args:
      default: the row.
      condition: the split.
      now: time of the split.
      learner: the learner whose rule gives the confidence of the new rows.

    Raises:
      ValueError: `now` is no datetime, or a column that the row has no counts of.
    """
    rule = check_learner(DefaultLearner() if learner is None else learner)
    if condition.column not in default.strata:
        refuse(
            "a row splits by a column that it counts",
            repr(condition.column),
            "take one that `stratify` found",
        )
    instant(now)
    remainder = default.remembered / default.sample_size if default.sample_size else 1.0
    return tuple(
        _split_row(default, condition.column, value, by, remainder, now, rule)
        for value, by in default.strata[condition.column].items()
    )


def _split_row(
    default: ClarificationDefault,
    column: str,
    value: str,
    by: Mapping[str, Counts],
    remainder: float,
    now: datetime,
    learner: DefaultLearner,
) -> ClarificationDefault:
    """Row of one value of a column."""
    own_counts = {
        name: counts
        for name in place(default)
        if (counts := by.get(name, Counts())._replace(failed=0.0)) != Counts()
    }
    size = sum(counts.yes + counts.silent + counts.no for counts in own_counts.values())
    matrix = (
        np.array(list(own_counts.values()), dtype=np.float64).reshape(len(own_counts), N_COUNTS)
        * remainder
    )
    votes = doubts(Votes(matrix, np.array(size * remainder)), learner)
    return ClarificationDefault(
        target_field=default.target_field,
        doctype=default.doctype,
        sub_conditions={**default.sub_conditions, column: value},
        candidate_votes=dict(zip(own_counts, vote_counts(votes).tolist(), strict=True)),
        confidence=float(vote_confidence(votes, learner)),
        sample_size=round(size),
        last_refreshed=now,
        counts={
            name: Counts(*row) for name, row in zip(own_counts, votes.counts.tolist(), strict=True)
        },
        remembered=float(votes.n),
    )


def doubts(votes: Votes, learner: DefaultLearner) -> Votes:
    """Votes of a new row.

    Which word was the last under its condition is not kept, so most of the words count.
    """
    if learner.rule != "posterior" or not learner.on_word:
        return votes
    counts = votes.counts.copy()
    counts[..., DOUBTED] = (counts[..., NO] > 0.0) & (
        counts[..., NO] >= counts[..., YES] + counts[..., NAMED]
    )
    return votes._replace(counts=counts)
