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

from raglab.default_learner.votes import (
    DOUBTED_PLACE,
    N_COUNTS,
    NAMED_PLACE,
    NO_PLACE,
    PRIOR_WEIGHT,
    YES_PLACE,
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
MAX_LOG_E_VALUE = 700.0  # log of the largest e-value that is told; a float ends at 709


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
    e_value, e_value_bar = (
        1.0 / max(float(body[field_name]), np.exp(-MAX_LOG_E_VALUE)) for field_name in ("p", "bar")
    )
    return Split(body["column"], body["value"], "", e_value, e_value_bar)


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
    best_split: tuple[bool, float, Split] | None = None
    for column_name, level_counts in default.strata.items():
        request_level = conditions.get(column_name)
        counts_here = level_counts.get(request_level, {}) if request_level is not None else {}
        for candidate, candidate_counts in counts_here.items():
            if candidate == success or candidate_counts.failed <= 0.0 or request_level is None:
                continue
            successes_elsewhere = sum(
                successes(counts_by_candidate[candidate])
                for other_level, counts_by_candidate in level_counts.items()
                if other_level != request_level and candidate in counts_by_candidate
            )
            split_option = (
                successes(candidate_counts) == 0.0,
                successes_elsewhere,
                Split(column_name, request_level, candidate, candidate_counts.failed, 1.0),
            )
            best_split = (
                split_option
                if best_split is None or split_option[:2] > best_split[:2]
                else best_split
            )
    return None if best_split is None else best_split[2]


def successes(counts: Counts) -> float:
    """How often a value was accepted, named, or confirmed by silence."""
    return counts.yes + counts.named + counts.silent


def _evidence_split(default: ClarificationDefault, learner: DefaultLearner) -> Split | None:
    """Condition under which a value is wrong more often than elsewhere; None without evidence."""
    has_failures = any(
        value_counts.failed + value_counts.no > 0.0 for value_counts in default.counts.values()
    )
    if not has_failures:
        return None
    tried_splits: list[tuple[float, str, str, str]] = []  # less evidence comes later
    for column_name, level_counts in default.strata.items():
        for candidate in default.counts:
            outcome_cells = [
                (column_level, *outcomes(counts_by_candidate[candidate]))
                for column_level, counts_by_candidate in level_counts.items()
                if candidate in counts_by_candidate
            ]
            wrong_counts, trial_counts = (
                np.array(
                    [outcome_cell[cell_place] for outcome_cell in outcome_cells if outcome_cell[2]],
                    dtype=np.int64,
                )
                for cell_place in (1, 2)
            )
            if len(trial_counts) < 2:
                continue
            worst_level = [outcome_cell[0] for outcome_cell in outcome_cells if outcome_cell[2]][
                int((wrong_counts / trial_counts).argmax())
            ]
            tried_splits.append(
                (
                    -float(evidence(wrong_counts, trial_counts).mean()),
                    column_name,
                    candidate,
                    worst_level,
                )
            )
    if not tried_splits:
        return None
    negative_evidence, column_name, candidate, split_level = min(tried_splits)
    evidence_bar = len(tried_splits) / learner.alpha
    return (
        Split(column_name, split_level, candidate, -negative_evidence, evidence_bar)
        if -negative_evidence >= evidence_bar
        else None
    )


def outcomes(counts: Counts) -> tuple[int, int]:
    """How often a value was wrong, and wrong or right.

    That another's user named it is no trial of it.
    """
    wrong_count = counts.failed + counts.no
    return round(wrong_count), round(wrong_count + counts.yes + counts.silent)


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
    wrong_counts, trial_counts = np.asarray(wrong, np.int64), np.asarray(of, np.int64)
    wrong_total, trial_total = (
        wrong_counts.sum(axis=-1, keepdims=True),
        trial_counts.sum(axis=-1, keepdims=True),
    )
    log_gamma, log_gamma_sums, log_powers = _likelihood_tables(int(trial_total.max(initial=0)) + 1)
    two_rates_likelihood = _averaged_likelihood(
        wrong_counts, trial_counts, log_gamma, log_gamma_sums
    ) + _averaged_likelihood(
        wrong_total - wrong_counts, trial_total - trial_counts, log_gamma, log_gamma_sums
    )
    one_rate_likelihood = (
        log_powers[wrong_total] + log_powers[trial_total - wrong_total] - log_powers[trial_total]
    )
    return np.exp(np.minimum(two_rates_likelihood - one_rate_likelihood, MAX_LOG_E_VALUE))


def _averaged_likelihood(
    wrong_counts: NDArray[np.int64],
    trial_counts: NDArray[np.int64],
    log_gamma: Array,
    log_gamma_sums: Array,
) -> Array:
    """Log of the likelihood averaged over the prior."""
    return np.asarray(
        log_gamma[wrong_counts]
        + log_gamma[trial_counts - wrong_counts]
        - log_gamma_sums[trial_counts]
    )


def _likelihood_tables(n_outcomes: int) -> tuple[Array, Array, Array]:
    """Logs of what a likelihood of so many outcomes is made of, [size] each.

    Gamma functions, and k to the power k.
    """
    from scipy.special import gammaln, xlogy

    outcome_numbers = np.arange(n_outcomes, dtype=np.float64)
    log_gamma, log_gamma_sums = (
        gammaln(outcome_numbers + PRIOR_WEIGHT),
        gammaln(outcome_numbers + 2.0 * PRIOR_WEIGHT),
    )
    return (
        log_gamma - log_gamma[0],
        log_gamma_sums - log_gamma_sums[0],
        np.asarray(xlogy(outcome_numbers, outcome_numbers), dtype=np.float64),
    )


def looked(default: ClarificationDefault, condition: Split | None = None) -> ClarificationDefault:
    """The row after a split; it keeps no counts of the column that it was split by.

    Args:
      default: the row before the split.
      condition: the split; None as in logs of older versions, where a test that found nothing was
        noted as well.
    """
    remaining_strata = {
        column: level_counts
        for column, level_counts in default.strata.items()
        if condition is None or column != condition.column
    }
    changed_fields = {
        "looks": default.looks + 1,
        "strata": remaining_strata,
        "version": default.version + 1,
    }
    return default.model_copy(update=changed_fields)


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
    split_learner = check_learner(DefaultLearner() if learner is None else learner)
    if condition.column not in default.strata:
        refuse(
            "a row splits by a column that it counts",
            repr(condition.column),
            "take one that `stratify` found",
        )
    instant(now)
    share_remembered = default.remembered / default.sample_size if default.sample_size else 1.0
    return tuple(
        _split_row(
            default,
            condition.column,
            column_value,
            value_counts,
            share_remembered,
            now,
            split_learner,
        )
        for column_value, value_counts in default.strata[condition.column].items()
    )


def _split_row(
    default: ClarificationDefault,
    column: str,
    value: str,
    value_counts: Mapping[str, Counts],
    share_remembered: float,
    now: datetime,
    learner: DefaultLearner,
) -> ClarificationDefault:
    """Row of one value of a column."""
    kept_counts = {
        value_name: candidate_counts
        for value_name in place(default)
        if (candidate_counts := value_counts.get(value_name, Counts())._replace(failed=0.0))
        != Counts()
    }
    n_signals = sum(
        candidate_counts.yes + candidate_counts.silent + candidate_counts.no
        for candidate_counts in kept_counts.values()
    )
    count_matrix = (
        np.array(list(kept_counts.values()), dtype=np.float64).reshape(len(kept_counts), N_COUNTS)
        * share_remembered
    )
    votes = doubts(Votes(count_matrix, np.array(n_signals * share_remembered)), learner)
    return ClarificationDefault(
        target_field=default.target_field,
        doctype=default.doctype,
        sub_conditions={**default.sub_conditions, column: value},
        candidate_votes=dict(zip(kept_counts, vote_counts(votes).tolist(), strict=True)),
        confidence=float(vote_confidence(votes, learner)),
        sample_size=round(n_signals),
        last_refreshed=now,
        counts={
            value_name: Counts(*count_row)
            for value_name, count_row in zip(kept_counts, votes.counts.tolist(), strict=True)
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
    counts[..., DOUBTED_PLACE] = (counts[..., NO_PLACE] > 0.0) & (
        counts[..., NO_PLACE] >= counts[..., YES_PLACE] + counts[..., NAMED_PLACE]
    )
    return votes._replace(counts=counts)
