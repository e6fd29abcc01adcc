"""Line search (shore): exact search of one threshold at a time, and flat ranges (S6.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from raglab.decision.measurement import Evidence, measured_tables
from raglab.decision.trace_view import Measured
from raglab.gates import Threshold
from raglab.lab.search_space import KEEP_AT_MOST, SWITCHES
from raglab.replay import policy_cells, step_cells
from raglab.replaying.breakpoints import StepCells, threshold_at
from raglab.store.policies import Policy
from raglab.values import AnyArray, BoolArray, FloatArray, TraceData

Score = Callable[[AnyArray], FloatArray]
MIN_SCORE_GAIN = 1e-9
LINE_SEARCH_ROUNDS = 20


class FlatRange(NamedTuple):
    """Interval of a threshold on which the score does not get worse."""

    path: str
    value: float
    low: float
    high: float


def line_search(
    trace: TraceData | Measured,
    start_policies: Sequence[Policy],
    paths: Sequence[str],
    score: Score,
    published_policy: Policy,
    arm: str | None = None,
    case_weights: FloatArray | None = None,
) -> Policy:
    """Best policy that exact coordinate-wise search reaches from any start.

    Every threshold ends on its published value where that is no worse, else on a round number in
    the middle of its flat range, so that nothing depends on the last digit and nothing differs
    without a gain.

    Args:
      start_policies: policies, best first.
      paths: thresholds and switches it may move.
      score: cells → lower is better.
      case_weights: of each case, [Q]; 1 where not given.
    """
    evidence = measured_tables(trace, start_policies[0], arm).evidence
    best_score, policy = min(
        (
            coordinate_search(evidence, start_policy, paths, score, case_weights=case_weights)
            for start_policy in start_policies
        ),
        key=itemgetter(0),
    )
    for threshold_path in paths:
        if threshold_path in SWITCHES and policy.value(threshold_path) != published_policy.value(
            threshold_path
        ):
            candidate = policy.replace(threshold_path, published_policy.value(threshold_path))
            candidate_score = float(score(policy_cells(evidence, [candidate], case_weights))[0])
            if candidate_score <= best_score + MIN_SCORE_GAIN:
                policy = candidate
    for threshold_path in paths:
        if threshold_path not in SWITCHES and policy.value(threshold_path) is not None:
            path_range = flat_range(
                evidence,
                policy,
                threshold_path,
                score,
                published_policy.value(threshold_path),
                case_weights,
            )
            policy = policy.replace(threshold_path, _typed_value(threshold_path, path_range.value))
    return policy


def coordinate_search(
    evidence: Evidence,
    policy: Policy,
    paths: Sequence[str],
    score: Score,
    rounds: int = LINE_SEARCH_ROUNDS,
    case_weights: FloatArray | None = None,
) -> tuple[float, Policy]:
    """Run the exact coordinate-wise search from one start; return its score and policy."""

    def score_of(candidate_score: Policy) -> float:
        return float(score(policy_cells(evidence, [candidate_score], case_weights))[0])

    best_score = score_of(policy)
    for _ in range(rounds):
        round_score = best_score
        for threshold_path in paths:
            if threshold_path in SWITCHES:
                candidate = policy.replace(threshold_path, not policy.value(threshold_path))
                candidate_score = score_of(candidate)
                if candidate_score < best_score - MIN_SCORE_GAIN:
                    best_score = candidate_score
                    policy = candidate
            elif policy.value(threshold_path) is not None:
                path_steps = step_cells(evidence, policy, threshold_path, case_weights)
                step_scores = score(path_steps.cells)
                if _swept(threshold_path).whole:
                    step_scores = np.where(path_steps.low < KEEP_AT_MOST, step_scores, np.inf)
                if step_scores.min() < best_score - MIN_SCORE_GAIN:
                    lower_bound, upper_bound = _observed_flat_range(
                        path_steps,
                        *_widest(
                            path_steps.low,
                            path_steps.high,
                            step_scores <= step_scores.min() + MIN_SCORE_GAIN,
                        ),
                    )
                    policy = policy.replace(
                        threshold_path,
                        _typed_value(
                            threshold_path, _inside(threshold_path, lower_bound, upper_bound)
                        ),
                    )
                    best_score = score_of(policy)
        if best_score >= round_score - MIN_SCORE_GAIN:
            break
    return best_score, policy


def flat_range(
    evidence: Evidence,
    policy: Policy,
    threshold_path: str,
    score: Score,
    published_value: float | None = None,
    case_weights: FloatArray | None = None,
) -> FlatRange:
    """Interval around a threshold's value where the score is no worse, with the value to take."""
    path_steps = step_cells(evidence, policy, threshold_path, case_weights)
    step_scores = score(path_steps.cells)
    closed_side = _swept(threshold_path).side
    current_step = step_index(
        path_steps.low, path_steps.high, float(policy.value(threshold_path)), closed_side
    )
    worse_steps = np.flatnonzero(~(step_scores <= step_scores[current_step] + MIN_SCORE_GAIN))
    first_step = worse_steps[worse_steps < current_step].max(initial=-1) + 1
    last_step = worse_steps[worse_steps > current_step].min(initial=len(step_scores)) - 1
    lower_bound = float(path_steps.low[first_step])
    upper_bound = float(path_steps.high[last_step])
    if (
        published_value is not None
        and first_step
        <= step_index(path_steps.low, path_steps.high, float(published_value), closed_side)
        <= last_step
    ):
        return FlatRange(threshold_path, float(published_value), lower_bound, upper_bound)
    return FlatRange(
        threshold_path,
        _inside(threshold_path, *_observed_flat_range(path_steps, lower_bound, upper_bound)),
        lower_bound,
        upper_bound,
    )


def _observed_flat_range(
    path_steps: StepCells, lower_bound: float, upper_bound: float
) -> tuple[float, float]:
    """FlatRange cut to just beyond the values at which any case changes.

    The rest of the range was never seen.
    """
    if len(path_steps.low) == 1:
        return lower_bound, upper_bound
    first_change = float(path_steps.low[1])
    last_change = float(path_steps.low[-1])
    margin = 0.1 * ((last_change - first_change) or abs(last_change))
    return max(lower_bound, min(first_change, upper_bound) - margin), min(
        upper_bound, max(last_change, lower_bound) + margin
    )


def step_index(
    lower_bounds: FloatArray, upper_bounds: FloatArray, threshold: float, closed_side: str
) -> int:
    """Step that holds a value.

    Closed below for an upper threshold (`ceiling`), above for a lower one (`floor`).

    Example: of the steps 0 to 1 and 1 to 2 both touch 1.
      >>> low, high = np.array([0.0, 1.0]), np.array([1.0, 2.0])
      >>> step_index(low, high, 1.0, "ceiling"), step_index(low, high, 1.0, "floor")
      (1, 0)
    """
    if closed_side == "ceiling":
        return int(
            np.clip(
                np.searchsorted(lower_bounds, threshold, side="right") - 1, 0, len(lower_bounds) - 1
            )
        )
    return int(
        np.clip(np.searchsorted(upper_bounds, threshold, side="left"), 0, len(upper_bounds) - 1)
    )


def _widest(
    lower_bounds: FloatArray, upper_bounds: FloatArray, is_good: BoolArray
) -> tuple[float, float]:
    """Widest run of good steps, first of equals.

    Example: the steps 0 to 1, 1 to 2 and 2 to 5, of which the second is bad.
      >>> low, high = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 5.0])
      >>> _widest(low, high, np.array([True, False, True]))
      (2.0, 5.0)
    """
    run_edges = np.flatnonzero(np.diff(np.concatenate([[0], is_good.astype(np.int8), [0]])))
    run_starts = run_edges[::2]
    run_ends = run_edges[1::2] - 1
    widest_run = int(np.argmax(upper_bounds[run_ends] - lower_bounds[run_starts]))
    return float(lower_bounds[run_starts[widest_run]]), float(upper_bounds[run_ends[widest_run]])


def _inside(threshold_path: str, lower_bound: float, upper_bound: float) -> float:
    """Round value nearest the middle of a step.

    The end that belongs to it where nothing lies between.
    """
    swept_threshold = _swept(threshold_path)
    if swept_threshold.whole:
        return float(min(np.floor(upper_bound), max(KEEP_AT_MOST, np.floor(lower_bound) + 1)))
    return float(
        round_between(np.array([lower_bound]), np.array([upper_bound]), swept_threshold)[0]
    )


def round_between(low: FloatArray, high: FloatArray, swept_threshold: Threshold) -> FloatArray:
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
    lower_ends, upper_ends, inner_ends = low.copy(), high.copy(), low[1:]
    if len(inner_ends):
        outer_reach = 2.0 * (float(np.ptp(inner_ends)) or max(float(abs(inner_ends[0])), 1.0))
        lower_ends[0], upper_ends[-1] = (
            max(lower_ends[0], inner_ends[0] - outer_reach),
            min(upper_ends[-1], inner_ends[-1] + outer_reach),
        )
    is_ceiling = swept_threshold.side == "ceiling"
    # the ends are integers: of a ceiling the lower one belongs to the step, of a floor the upper
    # one
    if swept_threshold.whole:
        whole_points = np.round((lower_ends + upper_ends) / 2.0)
        least_whole, most_whole = (
            (lower_ends, np.maximum(lower_ends, upper_ends - 1.0))
            if is_ceiling
            else (np.minimum(upper_ends, lower_ends + 1.0), upper_ends)
        )
        least_whole = np.where(low <= swept_threshold.low, lower_ends, least_whole)
        return np.clip(whole_points, least_whole, most_whole)
    middle_points = (lower_ends + upper_ends) / 2.0
    rounded_points = np.where(is_ceiling, lower_ends, upper_ends)
    unrounded_steps = np.arange(len(middle_points))
    for n_digits in range(1, 17):
        if not len(unrounded_steps):
            break
        # np.round errs in the last digit
        rounded_values = np.array(
            [
                round(middle_value, n_digits)
                for middle_value in middle_points[unrounded_steps].tolist()
            ]
        )
        is_inside = (lower_ends[unrounded_steps] < rounded_values) & (
            rounded_values < upper_ends[unrounded_steps]
        )
        rounded_points[unrounded_steps[is_inside]] = rounded_values[is_inside]
        unrounded_steps = unrounded_steps[~is_inside]
    return rounded_points


def _typed_value(threshold_path: str, threshold: float) -> float | int:
    return int(threshold) if _swept(threshold_path).whole else threshold


def _swept(threshold_path: str) -> Threshold:
    """Threshold of a path that the search space holds."""
    swept_threshold = threshold_at(threshold_path)
    assert swept_threshold is not None  # noqa: S101 - ranges are checked where they are stated
    return swept_threshold
