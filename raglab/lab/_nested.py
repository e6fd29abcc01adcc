"""Nested selection: in every fold the winner elsewhere is judged here, once or on resampled cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.lab.goal import Goal
from raglab.metrics import COUNTS, Interval
from raglab.values import Status

CODES = 18  # 6 · status + 2 · label + whether the expected sources were found
COUNTS_OF = metrics.contributions(np.arange(3, dtype=np.int8)).reshape(CODES, len(COUNTS))
SAME = 1e-12  # scores nearer than this are a tie: they differ by rounding only
HELD = 16_000_000  # numbers held at once


class HeldOut(NamedTuple):
    """Winners without each fold, [B, repeats, folds], and what they count on that fold's cases, [B, repeats, 6]."""

    winners: NDArray[np.int64]
    counts: NDArray[np.int64]


class Gain(NamedTuple):
    """Difference to the incumbent on the same cases, cases resampled.

    difference, low, high: of the score and of each of `metrics.RATES`, [7]; of score and error rates a negative one
    is a gain. better: probability that the score is lower than the incumbent's.
    """

    difference: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    better: float


def label_of(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Labels that outcome codes hold."""
    return codes // 2 % 3


def dealt(label: NDArray[np.int8], folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Fold of every case: each label shuffled and dealt out in turn, the next label going on where the last ended."""
    turn = np.concatenate([rng.permutation(np.flatnonzero(label == status)) for status in Status])
    fold = np.empty(len(label), dtype=np.int64)
    fold[turn] = np.arange(len(label)) % folds
    return fold


def resampled(
    label: NDArray[np.int8], resamples: int, block: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """How often every case is drawn, [block, Q] at a time; as many cases of each label as there are."""
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        weights = np.zeros((size, len(label)), dtype=np.int64)
        for status in Status:
            rows = np.flatnonzero(label == status)
            if len(rows):
                weights[:, rows] = rng.multinomial(len(rows), np.full(len(rows), 1.0 / len(rows)), size=size)
        yield weights


def held_out(codes: NDArray[np.int8], fold_of: NDArray[np.int64], weights: NDArray[np.int64], goal: Goal) -> HeldOut:
    """Winner of each fold by the score on all other folds, and its counts on this one.

    Args:
      codes: [P, Q]. fold_of: of every case, [repeats, Q]. weights: how often every case counts, [B, Q].
    """
    label, folds = label_of(codes[0]), int(fold_of.max()) + 1
    winners = np.zeros((len(weights), len(fold_of), folds), dtype=np.int64)
    counts = np.zeros((len(weights), len(fold_of), len(COUNTS)), dtype=np.int64)
    for repeat, fold in enumerate(fold_of):
        parts = [_counted(codes[:, rows], weights[:, rows]) for rows in (fold == one for one in range(folds))]
        labels = np.stack(
            [weights[:, fold == one] @ np.eye(3, dtype=np.int64)[label[fold == one]] for one in range(folds)]
        )
        total, total_labels = sum(parts), labels.sum(axis=0)
        for one, part in enumerate(parts):
            rest, rest_labels = total - part, total_labels - labels[one]
            scores = (goal.score(row, of) for row, of in zip(rest.astype(np.int64), rest_labels, strict=True))
            best = np.array([int(np.argmin(score)) for score in scores])
            winners[:, repeat, one] = best
            counts[:, repeat] += part[np.arange(len(part)), best].astype(np.int64)
    return HeldOut(winners, counts)


def _counted(codes: NDArray[np.int8], weights: NDArray[np.int64]) -> NDArray[np.float32]:
    """Counts of every resample and policy, [B, P, 6]; whole numbers that float32 holds exactly, for speed."""
    table, drawn = COUNTS_OF.astype(np.float32), weights.astype(np.float32)
    n_policies, n_cases = codes.shape
    out = np.empty((len(weights), n_policies, len(COUNTS)), dtype=np.float32)
    size = max(1, HELD // max(1, n_cases * len(COUNTS)))
    for start in range(0, n_policies, size):
        each = table[codes[start : start + size].T].reshape(n_cases, -1)
        out[:, start : start + size] = (drawn @ each).reshape(len(weights), -1, len(COUNTS))
    return out


def gains(
    codes: NDArray[np.int8],
    fold_of: NDArray[np.int64],
    single: NDArray[np.int8],
    against: NDArray[np.int8],
    *,
    goal: Goal,
    resamples: int,
    level: float,
    rng: np.random.Generator,
) -> tuple[Gain, Gain, Interval]:
    """Gain of nested selection, and of one policy, over an incumbent, by a paired bootstrap of the cases.

    In every resample each case keeps its fold and the winners are chosen anew: with the winners kept, the intervals
    would be too short, since folds that share a lucky winner err together. What is resampled of the selection is
    centred at what was observed, for in a resample chance differences between policies count as real.

    Args:
      codes: [P, Q]. fold_of: [repeats, Q]. single: of the one policy, [Q]. against: of the incumbent, [Q].

    Returns: gain of the selection, gain of the one policy, and the interval of the selection's own rates, [6].
    """
    label = label_of(against)
    labels = np.bincount(label, minlength=len(Status))

    def told(counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score and rates of counts of several repeats, [B, 7]."""
        rates = metrics.rates(counts.sum(axis=1), labels * counts.shape[1])
        return np.column_stack([goal.score(counts, labels).mean(axis=1), rates])

    def sides(weights: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score and rates of the selection, the one policy and the incumbent, [3, B, 7]."""
        fixed = [told((weights @ COUNTS_OF[one])[:, None]) for one in (single, against)]
        return np.stack([told(held_out(codes, fold_of, weights, goal).counts), *fixed])

    seen = sides(np.ones((1, len(label)), dtype=np.int64))[:, 0]
    block = max(1, HELD // (len(codes) * len(COUNTS) * (int(fold_of.max()) + 1) + len(label)))
    drawn = np.concatenate([sides(weights) for weights in resampled(label, resamples, block, rng)], axis=1)
    away, seen_away = drawn[:2] - drawn[2], seen[:2] - seen[2]
    own = _ends(_centred(drawn[0], seen[0], 0.0)[:, 1:], level)
    nested = _gain(seen_away[0], _centred(away[0], seen_away[0], -1.0), level)
    return nested, _gain(seen_away[1], away[1], level), own


def _centred(drawn: NDArray[np.float64], seen: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """What was resampled, moved so that its mean is what was seen; rates stay within [least, 1]."""
    known = ~np.isnan(drawn)
    mean = np.where(known, drawn, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    moved = drawn + np.where(np.isnan(seen), 0.0, seen - mean)
    return np.column_stack([moved[:, 0], np.clip(moved[:, 1:], least, 1.0)])


def _gain(seen: NDArray[np.float64], drawn: NDArray[np.float64], level: float) -> Gain:
    better = (drawn[:, 0] < -SAME).mean() + (np.abs(drawn[:, 0]) <= SAME).mean() / 2.0
    low, high = (np.where(np.isnan(seen), np.nan, end) for end in _ends(drawn, level))
    return Gain(seen, low, high, float(better))


def _ends(drawn: NDArray[np.float64], level: float) -> Interval:
    """Percentiles of the resamples in which a number exists; NaN where it never does."""
    tails = ((1.0 - level) / 2.0, (1.0 + level) / 2.0)
    known = [column[~np.isnan(column)] for column in drawn.T]
    low, high = np.array([np.quantile(column, tails) if len(column) else (np.nan, np.nan) for column in known]).T
    return Interval(low, high)
