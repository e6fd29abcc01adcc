"""Step functions (algebra): breakpoints of each case, decisions between, and the nearest flip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.chain import (
    STATUS_OF,
    check_own_gates,
    decide_cases,
)
from raglab.decision.measurement import Evidence
from raglab.decision.outcome_codes import (
    CELL_OF_CODE,
    CODES_PER_BLOCK,
    outcome_codes,
)
from raglab.decision.threshold_arrays import Thresholds, policy_thresholds, stacked
from raglab.gates import Threshold
from raglab.policy import PolicyData
from raglab.replaying.breakpoints import (
    Moves,
    StepCells,
    acting_paths,
    live_breakpoints,
    sum_moves,
    swept_threshold,
)
from raglab.replaying.case_codes import case_rows, spans
from raglab.values import CodeArray, FloatArray, SlotArray, Status

MANY_PIECES = 0.05  # share of the cases, those with most pieces, that are decided apart
# decisions made at once where parts of the cases would cost more than they save
ROWS_AT_ONCE = 1 << 19
# breakpoints [B, Q] and codes [B + 1, Q] between them
Pieces = tuple[FloatArray, SlotArray]


def piece_codes(
    evidence: Evidence, thresholds: Thresholds, paths: Sequence[str]
) -> dict[str, Pieces]:
    """Breakpoints [B, Q] of each case and its codes on the pieces between, [B + 1, Q].

    They are those of some thresholds.

    Piece i of a ceiling is [b(i-1), b(i)), of a floor (b(i-1), b(i)]; the first begins at the low
    end of the range, the last ends at its high end.

    Args:
      evidence: measurements of the cases.
      thresholds: of one policy.
      paths: of the thresholds.
    """
    check_own_gates(evidence, thresholds)
    swept = {path: swept_threshold(evidence.known, thresholds, path) for path in paths}
    points = {path: live_breakpoints(evidence, thresholds, path) for path in paths}
    # A case that changes once is one thing at the low end and another at the high one, so that the
    # ends of many thresholds are as many policies, which are decided together.
    ends = _end_codes(
        evidence, thresholds, [swept[path] for path in paths if len(points[path]) < 2]
    )
    return {
        path: (
            points[path],
            ends[path]
            if path in ends
            else _between_codes(evidence, thresholds, swept[path], points[path]),
        )
        for path in paths
    }


def piece_status(
    evidence: Evidence, policy: PolicyData, paths: Sequence[str]
) -> dict[str, tuple[FloatArray, CodeArray]]:
    """Breakpoints [B, Q] of each case and its status on the pieces between them, [B + 1, Q].

    No case needs a label.
    """
    # A label has no say in a status; of none of them it would only be refused.
    any_label = evidence._replace(label_code=np.full_like(evidence.label_code, Status.ambiguous))
    pieces = piece_codes(any_label, policy_thresholds([policy]), paths)
    return {
        path: (points, STATUS_OF[codes % CODES_PER_BLOCK // metrics.CELLS])
        for path, (points, codes) in pieces.items()
    }


def idle_thresholds(
    evidence: Evidence, policy: PolicyData, paths: Sequence[str]
) -> tuple[str, ...]:
    """Those of some thresholds of which no value changes a decision of any case.

    All other thresholds stay as in the policy. Exact; a decision is a case's status and, where it
    has a label, whether it is right.
    """
    code = evidence.label_code
    judged = evidence._replace(label_code=np.where(code < 0, np.int8(Status.ambiguous), code))
    unset = [path for path in paths if policy.value(path) is None]
    groups = [(policy, [path for path in paths if path not in unset])]
    groups += [(with_threshold(evidence, policy, path), [path]) for path in unset]
    cells = {
        path: CELL_OF_CODE[codes]
        for chosen, group in groups
        for path, (_, codes) in piece_codes(judged, policy_thresholds([chosen]), group).items()
    }
    return tuple(path for path in paths if (cells[path] == cells[path][:1]).all())


def with_threshold(evidence: Evidence, policy: PolicyData, path: str) -> PolicyData:
    """Policy that sets a threshold, at an end of its range where it did not.

    One that is not set may switch its gate off: steps of it are those of a policy that sets it.
    """
    swept = swept_threshold(evidence.known, policy_thresholds([policy]), path)
    if policy.value(path) is not None:
        return policy
    ends = [end for end in (swept.low, swept.high) if np.isfinite(end)]
    value = ends[0] if ends else 0.0
    return policy.replace(path, int(value) if swept.whole else value)


def _end_codes(
    evidence: Evidence, thresholds: Thresholds, swept: Sequence[Threshold]
) -> dict[str, SlotArray]:
    """Codes at the low and the high end of the range of each threshold, [2, Q], by path."""
    size = len(evidence.label)
    codes: dict[str, SlotArray] = {}
    for some in spans(len(swept), max(1, ROWS_AT_ONCE // max(1, 2 * size))):
        moved = [
            thresholds.with_value(threshold.path, np.array([[threshold.low], [threshold.high]]))
            for threshold in swept[some]
        ]
        shape = (2 * len(moved), size)
        both = outcome_codes(evidence, decide_cases(evidence, stacked(moved, 2), shape))
        codes |= {
            threshold.path: both[2 * place : 2 * place + 2]
            for place, threshold in enumerate(swept[some])
        }
    return codes


def _between_codes(
    evidence: Evidence, thresholds: Thresholds, swept: Threshold, values: FloatArray
) -> SlotArray:
    """Codes on the pieces between several breakpoints of each case, [B + 1, Q]."""
    # Most cases have far fewer pieces than the one that has most: the few that have many are
    # decided apart.
    n_points = np.count_nonzero(~np.isnan(values), axis=0)
    enough = int(
        np.searchsorted(np.bincount(n_points).cumsum(), (1.0 - MANY_PIECES) * len(n_points))
    )
    if enough == len(values):
        return _piecewise_codes(evidence, thresholds, swept, values)
    few = _piecewise_codes(evidence, thresholds, swept, values[:enough])
    codes = np.concatenate([few, np.broadcast_to(few[-1], (len(values) - enough, len(n_points)))])
    many = np.flatnonzero(n_points > enough)
    codes[:, many] = _piecewise_codes(case_rows(evidence, many), thresholds, swept, values[:, many])
    return codes


def _piecewise_codes(
    evidence: Evidence, thresholds: Thresholds, swept: Threshold, values: FloatArray
) -> SlotArray:
    """Codes at one value within each piece, [B + 1, Q]: at its closed end, where it has one."""
    low, high = np.full((1, values.shape[1]), swept.low), np.full((1, values.shape[1]), swept.high)
    if swept.side == "ceiling":
        below = np.nextafter(values[:1], -np.inf) if len(values) else low
        first = np.where(np.isnan(below), low, np.maximum(below, swept.low))
        trial = np.concatenate([first, np.where(np.isnan(values), high, values)])
    else:
        trial = np.concatenate([np.where(np.isnan(values), high, values), high])
    return outcome_codes(
        evidence, decide_cases(evidence, thresholds.with_value(swept.path, trial), trial.shape)
    )


def cell_moves(
    values: FloatArray,
    cell: CodeArray,
    weight: FloatArray | None = None,
) -> Moves:
    """Where cases go, from the cell of each on each of its pieces.

    Args:
      values: [B, Q] breakpoints.
      cell: [B + 1, Q].
      weight: of each case, [Q]; 1 where not given.
    """
    moved = (cell[1:] != cell[:-1]) & ~np.isnan(values)
    first = np.bincount(cell[0], weight, minlength=metrics.N_CELLS)
    weights = None if weight is None else np.broadcast_to(weight, moved.shape)[moved]
    return Moves(first, values[moved], cell[:-1][moved], cell[1:][moved], weights)


def step_cells(
    evidence: Evidence,
    policy: PolicyData,
    path: str,
    weight: FloatArray | None = None,
) -> StepCells:
    """Cells behind `steps` of one threshold, of cases that are measured already.

    Args:
      evidence: measurements of the cases.
      policy: the policy that gives all other thresholds.
      path: of the threshold.
      weight: of each case, [Q]; 1 where not given.
    """
    swept, moved = path_moves(evidence, policy, path, weight)
    return sum_moves([moved], swept)


def path_moves(
    evidence: Evidence,
    policy: PolicyData,
    path: str,
    weight: FloatArray | None = None,
) -> tuple[Threshold, Moves]:
    """A threshold and the values at which cases change cell, of already measured cases.

    Args:
      evidence: measurements of the cases.
      policy: the policy that gives all other thresholds.
      path: of the threshold.
      weight: of each case, [Q]; 1 where not given.
    """
    return moves_of_paths(evidence, policy, [path], weight)[path]


def all_step_cells(evidence: Evidence, policy: PolicyData) -> dict[str, StepCells]:
    """Cells behind `steps` of all thresholds, by path in order, of cases already measured.

    Left out are thresholds that the policy does not set and those that decide nothing, such as of a
    gate that is off.

    Args:
      evidence: measurements of the cases.
      policy: the policy that gives all thresholds.
    """
    moves = moves_of_paths(evidence, policy, acting_paths(evidence, policy))
    return {path: sum_moves([moved], swept) for path, (swept, moved) in moves.items()}


def moves_of_paths(
    evidence: Evidence,
    policy: PolicyData,
    paths: Sequence[str],
    weight: FloatArray | None = None,
) -> dict[str, tuple[Threshold, Moves]]:
    """Some thresholds, and the values at which cases change their cell, by path."""
    thresholds = policy_thresholds([policy])
    return {
        path: (
            swept_threshold(evidence.known, thresholds, path),
            cell_moves(points, CELL_OF_CODE.take(codes), weight),
        )
        for path, (points, codes) in piece_codes(evidence, thresholds, paths).items()
    }


class Flips(NamedTuple):
    """Nearest value of a threshold at which each case has another status, [Q].

    value: of the threshold. becomes: the status there. distance: how far it lies; infinite where
    no value flips the case.
    """

    value: FloatArray
    becomes: CodeArray
    distance: FloatArray


def nearest_flips(
    value: float,
    points: FloatArray,
    status: CodeArray,
    current: CodeArray,
    swept: Threshold,
) -> Flips:
    """Smallest change of a threshold that flips each case.

    Args:
      value: of the threshold.
      points: breakpoints of each case, [B, Q].
      status: between them, [B + 1, Q].
      current: status of each case, [Q].
      swept: the threshold.

    Example: a floor at 0.5; the first case is answered up to 0.7, the second only up to 0.2.
      >>> from raglab.replaying.breakpoints import SWEPT
      >>> points, status = np.array([[0.7, 0.2]]), np.array([[0, 0], [1, 1]], dtype=np.int8)
      >>> floor = SWEPT["similarity.min_similarity"]
      >>> now = np.array([0, 1], dtype=np.int8)
      >>> nearest_flips(0.5, points, status, now, floor).distance.round(6)
      array([0.2, 0.3])
    """
    inward = np.inf if swept.side == "floor" else -np.inf
    ends = np.full((1, points.shape[1]), swept.low), np.full((1, points.shape[1]), swept.high)
    first, last = np.concatenate([ends[0], points]), np.concatenate([points, ends[1]])
    beyond = np.isnan(last)
    last = np.where(beyond, swept.high, last)
    if swept.side == "floor":
        first[1:] = first[1:] + 1.0 if swept.whole else np.nextafter(first[1:], inward)
    else:
        inner = ~beyond
        inner[-1] = False
        last = np.where(inner, np.nextafter(last, inward), last)
    flips = (status != current) & (first <= last)  # a piece behind the last point begins at NaN
    at = np.minimum(np.maximum(value, first), last)
    distance = np.where(flips, np.abs(at - value), np.inf)
    nearest = (distance.argmin(axis=0), np.arange(points.shape[1]))
    return Flips(at[nearest], status[nearest], distance[nearest])
