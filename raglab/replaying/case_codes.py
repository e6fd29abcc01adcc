"""Decisions of many policies over measured cases (algebra), by block, counted or by case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab.decision.chain import (
    check_own_gates,
    decide_cases,
    narrow_evidence,
)
from raglab.decision.measurement import Evidence
from raglab.decision.outcome_codes import (
    CELL_OF_CODE,
    codes_wide,
    count_codes,
    outcome_codes,
)
from raglab.decision.threshold_arrays import Thresholds, policy_thresholds
from raglab.gating.expected_cost import class_probabilities
from raglab.gating.own_margins import OwnThresholds
from raglab.policy import PolicyData
from raglab.policy_parts.gate_order import Order
from raglab.progress import progress
from raglab.values import Case, CodeArray, FloatArray, SlotArray

# cases of a part, whose measurements stay in the cache of one core while all policies pass
CASES = 4_096
BLOCK = 65_536  # decisions of a part that are made at once


def vectorised_codes(
    evidence: Evidence,
    thresholds: Thresholds,
    n_policies: int,
    weight: FloatArray | None = None,
) -> NDArray[Any]:
    """Cases by code of `outcome_codes`, [P, codes], of many policies.

    Args:
      evidence: measurements of the cases.
      thresholds: of the policies, [P, 1].
      n_policies: P.
      weight: of each case, [Q]; 1 where not given.
    """
    width = codes_wide(evidence)
    counts = np.zeros((n_policies, width), dtype=np.int64 if weight is None else np.float64)
    check_own_gates(evidence, thresholds)
    evidence, thresholds = narrow_evidence(evidence, thresholds)
    for cases in progress(list(spans(len(evidence.label), CASES)), "replay", "part"):
        part = case_rows(evidence, cases)
        by = None if weight is None else weight[cases]
        for rows, codes in code_blocks(part, thresholds, n_policies):
            counts[rows] += [np.bincount(of_policy, by, minlength=width) for of_policy in codes]
    return counts


def code_blocks(
    evidence: Evidence, thresholds: Thresholds, n_policies: int
) -> Iterator[tuple[slice, SlotArray]]:
    """Codes of `outcome_codes` of some policies at a time, and which those are.

    Args:
      evidence: measurements of the cases.
      thresholds: of the policies, [P, 1].
      n_policies: P.
    """
    n_cases = len(evidence.label)
    blocks = list(spans(n_policies, max(1, BLOCK // max(1, n_cases))))
    for rows in progress(blocks, "replay", "part"):
        some = policy_slice(thresholds, rows)
        outcome = decide_cases(evidence, some, (rows.stop - rows.start, n_cases))
        yield rows, outcome_codes(evidence, outcome)


def spans(n: int, size: int) -> Iterator[slice]:
    """Equal parts of n, none over a size."""
    n_parts = -(-n // size)
    for part in range(n_parts):
        yield slice(part * n // n_parts, (part + 1) * n // n_parts)


# evidence or a part of it, a slice or positions
def case_rows(evidence: Any, rows: Any) -> Any:  # noqa: ANN401
    """Measurements of some cases.

    Args:
      evidence: measurements, or a part of them, [..., Q].
      rows: a slice, or positions of cases.
    """

    def part(field: Any) -> Any:  # noqa: ANN401 - an array, a tuple of arrays, or a number
        if isinstance(field, tuple):
            return case_rows(field, rows)
        return np.ascontiguousarray(field[..., rows]) if isinstance(field, np.ndarray) else field

    return type(evidence)(*map(part, evidence))


# thresholds, a part of them, or an array
def policy_slice(thresholds: Any, rows: slice) -> Any:  # noqa: ANN401
    """Thresholds of some policies."""
    if thresholds is None or isinstance(thresholds, Order):
        return thresholds
    if isinstance(thresholds, OwnThresholds):
        return thresholds.rows(rows)
    if isinstance(thresholds, dict):
        return {name: policy_slice(field, rows) for name, field in thresholds.items()}
    return (
        type(thresholds)(*map(partial(policy_slice, rows=rows), thresholds))
        if isinstance(thresholds, tuple)
        else thresholds[rows]
    )


def policy_cells(
    evidence: Evidence,
    policies: Sequence[PolicyData],
    weight: FloatArray | None = None,
) -> NDArray[Any]:
    """Cells of policies of one structure, [P, 20], over cases that are measured already.

    Args:
      evidence: measurements of the cases.
      policies: of one structure.
      weight: of each case, [Q]; 1 where not given.
    """
    codes = vectorised_codes(evidence, policy_thresholds(policies), len(policies), weight)
    return count_codes(codes).cells


def case_cells(evidence: Evidence, policies: Sequence[PolicyData]) -> CodeArray:
    """Cell of every case under one structure's policies, [P, Q], over already measured cases.

    Args:
      evidence: measurements of the cases.
      policies: of one structure.
    """
    cells = np.empty((len(policies), len(evidence.label)), dtype=np.int8)
    thresholds = policy_thresholds(policies)
    check_own_gates(evidence, thresholds)
    for rows, codes in code_blocks(evidence, thresholds, len(policies)):
        cells[rows] = CELL_OF_CODE[codes]
    return cells


def evidence_with_model(evidence: Evidence, policy: PolicyData, cases: Sequence[Case]) -> Evidence:
    """Evidence with the probabilities of the policy's model, even if fitted on other hits.

    Args:
      evidence: measurements of the cases.
      cases: that were measured, of whose groups the model may hold a bias, [Q].
      policy: the policy whose decision model is applied; without one the evidence stays as it is.
    """
    model = policy.structure.decision
    if model is None:
        return evidence
    return evidence._replace(
        probability=class_probabilities(
            evidence.signals, model, evidence.known.names, model.group_values(cases)
        ),
        asked_right=np.full(len(evidence.label_code), model.asked_right),
    )
