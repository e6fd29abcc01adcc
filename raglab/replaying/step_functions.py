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

MANY_PIECES_SHARE = 0.05  # share of the cases, those with most pieces, that are decided apart
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
    threshold_by_path = {path: swept_threshold(evidence.known, thresholds, path) for path in paths}
    breakpoints_by_path = {path: live_breakpoints(evidence, thresholds, path) for path in paths}
    # A case that changes once is one thing at the low end and another at the high one, so that the
    # ends of many thresholds are as many policies, which are decided together.
    codes_at_ends = _end_codes(
        evidence,
        thresholds,
        [threshold_by_path[path] for path in paths if len(breakpoints_by_path[path]) < 2],
    )
    return {
        path: (
            breakpoints_by_path[path],
            codes_at_ends[path]
            if path in codes_at_ends
            else _between_codes(
                evidence, thresholds, threshold_by_path[path], breakpoints_by_path[path]
            ),
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
    labelled_evidence = evidence._replace(
        label_code=np.full_like(evidence.label_code, Status.ambiguous)
    )
    pieces_by_path = piece_codes(labelled_evidence, policy_thresholds([policy]), paths)
    return {
        path: (breakpoints, STATUS_OF[piece_outcomes % CODES_PER_BLOCK // metrics.CELLS])
        for path, (breakpoints, piece_outcomes) in pieces_by_path.items()
    }


def idle_thresholds(
    evidence: Evidence, policy: PolicyData, paths: Sequence[str]
) -> tuple[str, ...]:
    """Those of some thresholds of which no value changes a decision of any case.

    All other thresholds stay as in the policy. Exact; a decision is a case's status and, where it
    has a label, whether it is right.
    """
    label_codes = evidence.label_code
    judged_evidence = evidence._replace(
        label_code=np.where(label_codes < 0, np.int8(Status.ambiguous), label_codes)
    )
    unset_paths = [path for path in paths if policy.value(path) is None]
    policy_paths = [(policy, [path for path in paths if path not in unset_paths])]
    policy_paths += [(with_threshold(evidence, policy, path), [path]) for path in unset_paths]
    cells_by_path = {
        path: CELL_OF_CODE[piece_outcomes]
        for group_policy, group_paths in policy_paths
        for path, (_, piece_outcomes) in piece_codes(
            judged_evidence, policy_thresholds([group_policy]), group_paths
        ).items()
    }
    return tuple(path for path in paths if (cells_by_path[path] == cells_by_path[path][:1]).all())


def with_threshold(evidence: Evidence, policy: PolicyData, path: str) -> PolicyData:
    """Policy that sets a threshold, at an end of its range where it did not.

    One that is not set may switch its gate off: steps of it are those of a policy that sets it.
    """
    swept_range = swept_threshold(evidence.known, policy_thresholds([policy]), path)
    if policy.value(path) is not None:
        return policy
    finite_ends = [
        range_end for range_end in (swept_range.low, swept_range.high) if np.isfinite(range_end)
    ]
    value = finite_ends[0] if finite_ends else 0.0
    return policy.replace(path, int(value) if swept_range.whole else value)


def _end_codes(
    evidence: Evidence, thresholds: Thresholds, swept_ranges: Sequence[Threshold]
) -> dict[str, SlotArray]:
    """Codes at the low and the high end of the range of each threshold, [2, Q], by path."""
    n_cases = len(evidence.label)
    codes_by_path: dict[str, SlotArray] = {}
    for range_block in spans(len(swept_ranges), max(1, ROWS_AT_ONCE // max(1, 2 * n_cases))):
        end_thresholds = [
            thresholds.with_value(threshold.path, np.array([[threshold.low], [threshold.high]]))
            for threshold in swept_ranges[range_block]
        ]
        batch_shape = (2 * len(end_thresholds), n_cases)
        end_codes = outcome_codes(
            evidence, decide_cases(evidence, stacked(end_thresholds, 2), batch_shape)
        )
        codes_by_path |= {
            threshold.path: end_codes[2 * block_index : 2 * block_index + 2]
            for block_index, threshold in enumerate(swept_ranges[range_block])
        }
    return codes_by_path


def _between_codes(
    evidence: Evidence, thresholds: Thresholds, swept_range: Threshold, breakpoints: FloatArray
) -> SlotArray:
    """Codes on the pieces between several breakpoints of each case, [B + 1, Q]."""
    # Most cases have far fewer pieces than the one that has most: the few that have many are
    # decided apart.
    n_points = np.count_nonzero(~np.isnan(breakpoints), axis=0)
    n_common = int(
        np.searchsorted(np.bincount(n_points).cumsum(), (1.0 - MANY_PIECES_SHARE) * len(n_points))
    )
    if n_common == len(breakpoints):
        return _piecewise_codes(evidence, thresholds, swept_range, breakpoints)
    common_codes = _piecewise_codes(evidence, thresholds, swept_range, breakpoints[:n_common])
    piece_outcomes = np.concatenate(
        [
            common_codes,
            np.broadcast_to(common_codes[-1], (len(breakpoints) - n_common, len(n_points))),
        ]
    )
    many_pieces = np.flatnonzero(n_points > n_common)
    piece_outcomes[:, many_pieces] = _piecewise_codes(
        case_rows(evidence, many_pieces), thresholds, swept_range, breakpoints[:, many_pieces]
    )
    return piece_outcomes


def _piecewise_codes(
    evidence: Evidence, thresholds: Thresholds, swept_range: Threshold, breakpoints: FloatArray
) -> SlotArray:
    """Codes at one value within each piece, [B + 1, Q]: at its closed end, where it has one."""
    range_low = np.full((1, breakpoints.shape[1]), swept_range.low)
    range_high = np.full((1, breakpoints.shape[1]), swept_range.high)
    if swept_range.side == "ceiling":
        below_first = np.nextafter(breakpoints[:1], -np.inf) if len(breakpoints) else range_low
        first_trial = np.where(
            np.isnan(below_first), range_low, np.maximum(below_first, swept_range.low)
        )
        trial_values = np.concatenate(
            [first_trial, np.where(np.isnan(breakpoints), range_high, breakpoints)]
        )
    else:
        trial_values = np.concatenate(
            [np.where(np.isnan(breakpoints), range_high, breakpoints), range_high]
        )
    return outcome_codes(
        evidence,
        decide_cases(
            evidence, thresholds.with_value(swept_range.path, trial_values), trial_values.shape
        ),
    )


def cell_moves(
    breakpoints: FloatArray,
    cell_codes: CodeArray,
    weight: FloatArray | None = None,
) -> Moves:
    """Where cases go, from the cell of each on each of its pieces.

    Args:
      breakpoints: [B, Q] breakpoints.
      cell_codes: [B + 1, Q].
      weight: of each case, [Q]; 1 where not given.
    """
    is_move = (cell_codes[1:] != cell_codes[:-1]) & ~np.isnan(breakpoints)
    first_cells = np.bincount(cell_codes[0], weight, minlength=metrics.N_CELLS)
    move_weights = None if weight is None else np.broadcast_to(weight, is_move.shape)[is_move]
    return Moves(
        first_cells,
        breakpoints[is_move],
        cell_codes[:-1][is_move],
        cell_codes[1:][is_move],
        move_weights,
    )


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
    swept_range, case_moves = path_moves(evidence, policy, path, weight)
    return sum_moves([case_moves], swept_range)


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
    moves_by_path = moves_of_paths(evidence, policy, acting_paths(evidence, policy))
    return {
        path: sum_moves([case_moves], swept_range)
        for path, (swept_range, case_moves) in moves_by_path.items()
    }


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
            cell_moves(breakpoints, CELL_OF_CODE.take(piece_outcomes), weight),
        )
        for path, (breakpoints, piece_outcomes) in piece_codes(evidence, thresholds, paths).items()
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
    inward_limit = np.inf if swept.side == "floor" else -np.inf
    range_ends = np.full((1, points.shape[1]), swept.low), np.full((1, points.shape[1]), swept.high)
    piece_starts = np.concatenate([range_ends[0], points])
    piece_ends = np.concatenate([points, range_ends[1]])
    is_beyond = np.isnan(piece_ends)
    piece_ends = np.where(is_beyond, swept.high, piece_ends)
    if swept.side == "floor":
        piece_starts[1:] = (
            piece_starts[1:] + 1.0 if swept.whole else np.nextafter(piece_starts[1:], inward_limit)
        )
    else:
        is_inner = ~is_beyond
        is_inner[-1] = False
        piece_ends = np.where(is_inner, np.nextafter(piece_ends, inward_limit), piece_ends)
    is_flip = (status != current) & (
        piece_starts <= piece_ends
    )  # a piece behind the last point begins at NaN
    nearest_values = np.minimum(np.maximum(value, piece_starts), piece_ends)
    distance = np.where(is_flip, np.abs(nearest_values - value), np.inf)
    nearest_piece = (distance.argmin(axis=0), np.arange(points.shape[1]))
    return Flips(nearest_values[nearest_piece], status[nearest_piece], distance[nearest_piece])
