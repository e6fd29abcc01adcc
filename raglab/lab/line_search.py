"""Line search (shore): exact search of one threshold at a time, and flat ranges (S6.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from raglab.decision.measurement import Evidence, measured_tables
from raglab.decision.trace_view import Measured
from raglab.gates import Threshold
from raglab.lab.arrays import AnyArray, BoolArray, FloatArray
from raglab.lab.search_space import KEEP_AT_MOST, SWITCHES
from raglab.replay import policy_cells, step_cells
from raglab.replaying.breakpoints import StepCells, threshold_at
from raglab.store.policies import Policy
from raglab.values import TraceData

Score = Callable[[AnyArray], FloatArray]
LEAST_GAIN = 1e-9
ROUNDS = 20


class FlatRange(NamedTuple):
    """Interval of a threshold on which the score does not get worse."""

    path: str
    value: float
    low: float
    high: float


def line_search(
    trace: TraceData | Measured,
    starts: Sequence[Policy],
    paths: Sequence[str],
    score: Score,
    published: Policy,
    arm: str | None = None,
    weight: FloatArray | None = None,
) -> Policy:
    """Best policy that exact coordinate-wise search reaches from any start.

    Every threshold ends on its published value where that is no worse, else on a round number in
    the middle of its flat range, so that nothing hangs on the last digit and nothing differs
    without a gain.

    Args:
      starts: policies, best first.
      paths: thresholds and switches it may move.
      score: cells → lower is better.
      weight: of each case, [Q]; 1 where not given.
    """
    evidence = measured_tables(trace, starts[0], arm).evidence
    value, policy = min(
        (coordinate_search(evidence, start, paths, score, weight=weight) for start in starts),
        key=itemgetter(0),
    )
    for path in paths:
        if path in SWITCHES and policy.value(path) != published.value(path):
            candidate = policy.replace(path, published.value(path))
            tried = float(score(policy_cells(evidence, [candidate], weight))[0])
            if tried <= value + LEAST_GAIN:
                policy = candidate
    for path in paths:
        if path not in SWITCHES and policy.value(path) is not None:
            run = flat_range(evidence, policy, path, score, published.value(path), weight)
            policy = policy.replace(path, _typed_value(path, run.value))
    return policy


def coordinate_search(
    evidence: Evidence,
    policy: Policy,
    paths: Sequence[str],
    score: Score,
    rounds: int = ROUNDS,
    weight: FloatArray | None = None,
) -> tuple[float, Policy]:
    """Run the exact coordinate-wise search from one start; return its score and policy."""

    def score_of(tried: Policy) -> float:
        return float(score(policy_cells(evidence, [tried], weight))[0])

    value = score_of(policy)
    for _ in range(rounds):
        before = value
        for path in paths:
            if path in SWITCHES:
                candidate = policy.replace(path, not policy.value(path))
                tried = score_of(candidate)
                if tried < value - LEAST_GAIN:
                    value, policy = tried, candidate
            elif policy.value(path) is not None:
                steps = step_cells(evidence, policy, path, weight)
                scores = score(steps.cells)
                if _swept(path).whole:
                    scores = np.where(steps.low < KEEP_AT_MOST, scores, np.inf)
                if scores.min() < value - LEAST_GAIN:
                    low, high = _observed_flat_range(
                        steps, *_widest(steps.low, steps.high, scores <= scores.min() + LEAST_GAIN)
                    )
                    policy = policy.replace(path, _typed_value(path, _inside(path, low, high)))
                    value = score_of(policy)
        if value >= before - LEAST_GAIN:
            break
    return value, policy


def flat_range(
    evidence: Evidence,
    policy: Policy,
    path: str,
    score: Score,
    published: float | None = None,
    weight: FloatArray | None = None,
) -> FlatRange:
    """Interval around a threshold's value where the score is no worse, with the value to take."""
    steps = step_cells(evidence, policy, path, weight)
    scores = score(steps.cells)
    side = _swept(path).side
    here = step_index(steps.low, steps.high, float(policy.value(path)), side)
    worse = np.flatnonzero(~(scores <= scores[here] + LEAST_GAIN))
    first = worse[worse < here].max(initial=-1) + 1
    last = worse[worse > here].min(initial=len(scores)) - 1
    low, high = float(steps.low[first]), float(steps.high[last])
    if (
        published is not None
        and first <= step_index(steps.low, steps.high, float(published), side) <= last
    ):
        return FlatRange(path, float(published), low, high)
    return FlatRange(path, _inside(path, *_observed_flat_range(steps, low, high)), low, high)


def _observed_flat_range(steps: StepCells, low: float, high: float) -> tuple[float, float]:
    """FlatRange cut to just beyond the values at which any case changes.

    The rest of the range was never seen.
    """
    if len(steps.low) == 1:
        return low, high
    first, last = float(steps.low[1]), float(steps.low[-1])
    margin = 0.1 * ((last - first) or abs(last))
    return max(low, min(first, high) - margin), min(high, max(last, low) + margin)


def step_index(low: FloatArray, high: FloatArray, value: float, side: str) -> int:
    """Step that holds a value.

    Closed below for an upper threshold (`ceiling`), above for a lower one (`floor`).
    """
    if side == "ceiling":
        return int(np.clip(np.searchsorted(low, value, side="right") - 1, 0, len(low) - 1))
    return int(np.clip(np.searchsorted(high, value, side="left"), 0, len(high) - 1))


def _widest(low: FloatArray, high: FloatArray, good: BoolArray) -> tuple[float, float]:
    """Widest run of good steps, first of equals."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], good.astype(np.int8), [0]])))
    starts, ends = edges[::2], edges[1::2] - 1
    run = int(np.argmax(high[ends] - low[starts]))
    return float(low[starts[run]]), float(high[ends[run]])


def _inside(path: str, low: float, high: float) -> float:
    """Round value nearest the middle of a step.

    The end that belongs to it where nothing lies between.
    """
    swept = _swept(path)
    if swept.whole:
        return float(min(np.floor(high), max(KEEP_AT_MOST, np.floor(low) + 1)))
    return float(round_between(np.array([low]), np.array([high]), swept)[0])


def round_between(low: FloatArray, high: FloatArray, swept: Threshold) -> FloatArray:
    """The middle of each step in the fewest digits that stay inside, [N].

    Where nothing lies between, it is the end that belongs to the step: the lower of a ceiling, the
    upper of a floor. The outermost steps reach no further than twice what lies between all others;
    of integers the nearest is taken.

    Args:
      low, high: ends of the steps, ascending, [N] each.

    Example:
      >>> from raglab.replaying.breakpoints import SWEPT
      >>> round_between(
      ...     np.array([0.1, 0.25]), np.array([0.25, 0.2501]), SWEPT["l2.max_l2"]
      ... ).tolist()
      [0.2, 0.25005]
    """
    first, last, inner = low.copy(), high.copy(), low[1:]
    if len(inner):
        reach = 2.0 * (float(np.ptp(inner)) or max(float(abs(inner[0])), 1.0))
        first[0], last[-1] = max(first[0], inner[0] - reach), min(last[-1], inner[-1] + reach)
    ceiling = swept.side == "ceiling"
    # the ends are integers: of a ceiling the lower one belongs to the step, of a floor the upper
    # one
    if swept.whole:
        whole = np.round((first + last) / 2.0)
        least, most = (
            (first, np.maximum(first, last - 1.0))
            if ceiling
            else (np.minimum(last, first + 1.0), last)
        )
        least = np.where(low <= swept.low, first, least)
        return np.clip(whole, least, most)
    middle = (first + last) / 2.0
    points = np.where(ceiling, first, last)
    rest = np.arange(len(middle))
    for digits in range(1, 17):
        if not len(rest):
            break
        # np.round errs in the last digit
        value = np.array([round(number, digits) for number in middle[rest].tolist()])
        inside = (first[rest] < value) & (value < last[rest])
        points[rest[inside]] = value[inside]
        rest = rest[~inside]
    return points


def _typed_value(path: str, value: float) -> float | int:
    return int(value) if _swept(path).whole else value


def _swept(path: str) -> Threshold:
    """Threshold of a path that the search space holds."""
    swept = threshold_at(path)
    assert swept is not None  # noqa: S101 - ranges are checked where they are stated
    return swept
