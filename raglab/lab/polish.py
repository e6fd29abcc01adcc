"""Exact line search: one threshold after the other goes to the best step of its step function, until none moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._steps import Steps
from raglab.lab.space import KEEP_AT_MOST
from raglab.replay import SWEPT, stepped, tally
from raglab.store.policies import Policy
from raglab.values import Trace

if TYPE_CHECKING:
    import pandas as pd

Score = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
LEAST_GAIN = 1e-9
ROUNDS = 20


class Plateau(NamedTuple):
    """Interval of a threshold on which the score does not get worse."""

    path: str
    value: float
    low: float
    high: float


def polish(
    trace: Trace,
    starts: Sequence[Policy],
    paths: Sequence[str],
    score: Score,
    published: Policy,
    arm: str | None = None,
) -> tuple[Policy, pd.DataFrame]:
    """Best policy that coordinate-wise exact search reaches from any of the starts, and its plateaus.

    Every threshold ends on its published value where that is no worse, else on a round number in the middle of its
    plateau, so that nothing hangs on the last digit and nothing differs without a gain.

    Args:
      starts: policies, best first. paths: thresholds and switches it may move. score: counts, labels → lower is better.

    Returns: the policy, and a row a threshold: `path`, `value`, `low`, `high`, `width`.
    """
    import pandas as pd

    labels = tally(trace, starts[:1], arm).labels
    best: tuple[float, Policy] | None = None
    for start in starts:
        value, policy = _descend(trace, start, paths, score, labels, arm)
        if best is None or value < best[0] - LEAST_GAIN:
            best = value, policy
    assert best is not None  # noqa: S101 - starts is never empty
    policy = best[1]
    for path in paths:
        if path not in SWEPT and policy.value(path) != published.value(path):
            other = policy.replace(path, published.value(path))
            if float(score(tally(trace, [other], arm).counts, labels)[0]) <= best[0] + LEAST_GAIN:
                policy = other
    plateaus = []
    for path in paths:
        if path in SWEPT and policy.value(path) is not None:
            found = plateau(trace, policy, path, score, labels, arm, published.value(path))
            policy = policy.replace(path, _typed(path, found.value))
            plateaus.append((*found, found.high - found.low))
    return policy, pd.DataFrame(plateaus, columns=["path", "value", "low", "high", "width"])


def _descend(
    trace: Trace, policy: Policy, paths: Sequence[str], score: Score, labels: NDArray[np.int64], arm: str | None
) -> tuple[float, Policy]:
    value = float(score(tally(trace, [policy], arm).counts, labels)[0])
    for _ in range(ROUNDS):
        before = value
        for path in paths:
            if path not in SWEPT:
                other = policy.replace(path, not policy.value(path))
                tried = float(score(tally(trace, [other], arm).counts, labels)[0])
                if tried < value - LEAST_GAIN:
                    value, policy = tried, other
            elif policy.value(path) is not None:
                found = stepped(trace, policy, path, arm)
                scores = score(found.counts, labels)
                if SWEPT[path].whole:
                    scores = np.where(found.low < KEEP_AT_MOST, scores, np.inf)
                if scores.min() < value - LEAST_GAIN:
                    low, high = _observed(found, *_widest(found.low, found.high, scores <= scores.min() + LEAST_GAIN))
                    policy = policy.replace(path, _typed(path, _inside(path, low, high)))
                    value = float(score(tally(trace, [policy], arm).counts, labels)[0])
        if value >= before - LEAST_GAIN:
            break
    return value, policy


def plateau(
    trace: Trace,
    policy: Policy,
    path: str,
    score: Score,
    labels: NDArray[np.int64],
    arm: str | None = None,
    published: float | None = None,
) -> Plateau:
    """Interval around a threshold's value on which the score is no worse, with the value to take in it."""
    found = stepped(trace, policy, path, arm)
    scores = score(found.counts, labels)
    here = _step_of(found.low, found.high, float(policy.value(path)), path)
    good = scores <= scores[here] + LEAST_GAIN
    first = last = here
    while first > 0 and good[first - 1]:
        first -= 1
    while last < len(good) - 1 and good[last + 1]:
        last += 1
    low, high = float(found.low[first]), float(found.high[last])
    if published is not None and first <= _step_of(found.low, found.high, float(published), path) <= last:
        return Plateau(path, float(published), low, high)
    return Plateau(path, _inside(path, *_observed(found, low, high)), low, high)


def _observed(found: Steps, low: float, high: float) -> tuple[float, float]:
    """Plateau cut to just beyond the values at which any case changes: the rest of the range was never seen."""
    if len(found.low) == 1:
        return low, high
    first, last = float(found.low[1]), float(found.low[-1])
    margin = 0.1 * ((last - first) or abs(last))
    return max(low, min(first, high) - margin), min(high, max(last, low) + margin)


def _step_of(low: NDArray[np.float64], high: NDArray[np.float64], value: float, path: str) -> int:
    """Step that holds a value: closed below for an upper threshold, above for a lower one."""
    if SWEPT[path].side == "ceiling":
        return int(np.clip(np.searchsorted(low, value, side="right") - 1, 0, len(low) - 1))
    return int(np.clip(np.searchsorted(high, value, side="left"), 0, len(high) - 1))


def _widest(low: NDArray[np.float64], high: NDArray[np.float64], good: NDArray[np.bool_]) -> tuple[float, float]:
    """Widest run of good steps, first of equals."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], good.astype(np.int8), [0]])))
    starts, ends = edges[::2], edges[1::2] - 1
    run = int(np.argmax(high[ends] - low[starts]))
    return float(low[starts[run]]), float(high[ends[run]])


def _inside(path: str, low: float, high: float) -> float:
    """Round value nearest the middle of a step; the end that belongs to it where nothing lies between."""
    swept = SWEPT[path]
    if swept.whole:
        return float(min(np.floor(high), max(KEEP_AT_MOST, np.floor(low) + 1)))
    middle = (low + high) / 2.0
    for digits in range(1, 17):
        value = round(middle, digits)
        if low < value < high:
            return value
    return low if swept.side == "ceiling" else high


def _typed(path: str, value: float) -> float | int:
    return int(value) if SWEPT[path].whole else value
