"""Decisions of many policies over measured cases (algebra), by block, counted or by case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

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
from raglab.values import AnyArray, Case, CodeArray, FloatArray, SlotArray

# cases of a part, whose measurements stay in the cache of one core while all policies pass
CASES_AT_ONCE = 4_096
DECISIONS_AT_ONCE = 65_536  # decisions of a part that are made at once


def vectorised_codes(
    evidence: Evidence,
    thresholds: Thresholds,
    n_policies: int,
    weight: FloatArray | None = None,
) -> AnyArray:
    """Cases by code of `outcome_codes`, [P, codes], of many policies.

    Args:
      evidence: measurements of the cases.
      thresholds: of the policies, [P, 1].
      n_policies: P.
      weight: of each case, [Q]; 1 where not given.
    """
    n_codes = codes_wide(evidence)
    code_counts = np.zeros((n_policies, n_codes), dtype=np.int64 if weight is None else np.float64)
    check_own_gates(evidence, thresholds)
    evidence, thresholds = narrow_evidence(evidence, thresholds)
    for case_block in progress(list(spans(len(evidence.label), CASES_AT_ONCE)), "replay", "part"):
        block_evidence = case_rows(evidence, case_block)
        block_weights = None if weight is None else weight[case_block]
        for policy_block, block_codes in code_blocks(block_evidence, thresholds, n_policies):
            code_counts[policy_block] += [
                np.bincount(policy_codes, block_weights, minlength=n_codes)
                for policy_codes in block_codes
            ]
    return code_counts


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
    policy_blocks = list(spans(n_policies, max(1, DECISIONS_AT_ONCE // max(1, n_cases))))
    for policy_block in progress(policy_blocks, "replay", "part"):
        block_thresholds = policy_slice(thresholds, policy_block)
        block_outcome = decide_cases(
            evidence, block_thresholds, (policy_block.stop - policy_block.start, n_cases)
        )
        yield policy_block, outcome_codes(evidence, block_outcome)


def spans(n: int, size: int) -> Iterator[slice]:
    """Equal parts of n, none over a size.

    Example:
      >>> [(part.start, part.stop) for part in spans(5, 2)]
      [(0, 1), (1, 3), (3, 5)]
    """
    n_parts = -(-n // size)
    for part_index in range(n_parts):
        yield slice(part_index * n // n_parts, (part_index + 1) * n // n_parts)


# evidence or a part of it, a slice or positions
def case_rows(evidence: Any, selected_cases: Any) -> Any:  # noqa: ANN401
    """Measurements of some cases.

    Args:
      evidence: measurements, or a part of them, [..., Q].
      selected_cases: a slice, or positions of cases.
    """

    def part(measurement: Any) -> Any:  # noqa: ANN401 - an array, a tuple of arrays, or a number
        if isinstance(measurement, tuple):
            return case_rows(measurement, selected_cases)
        return (
            np.ascontiguousarray(measurement[..., selected_cases])
            if isinstance(measurement, np.ndarray)
            else measurement
        )

    return type(evidence)(*map(part, evidence))


# thresholds, a part of them, or an array
def policy_slice(thresholds: Any, policy_block: slice) -> Any:  # noqa: ANN401
    """Thresholds of some policies."""
    if thresholds is None or isinstance(thresholds, Order):
        return thresholds
    if isinstance(thresholds, OwnThresholds):
        return thresholds.rows(policy_block)
    if isinstance(thresholds, dict):
        return {
            name: policy_slice(section_thresholds, policy_block)
            for name, section_thresholds in thresholds.items()
        }
    return (
        type(thresholds)(*map(partial(policy_slice, policy_block=policy_block), thresholds))
        if isinstance(thresholds, tuple)
        else thresholds[policy_block]
    )


def policy_cells(
    evidence: Evidence,
    policies: Sequence[PolicyData],
    weight: FloatArray | None = None,
) -> AnyArray:
    """Cells of policies of one structure, [P, 20], over cases that are measured already.

    Args:
      evidence: measurements of the cases.
      policies: of one structure.
      weight: of each case, [Q]; 1 where not given.
    """
    counts = vectorised_codes(evidence, policy_thresholds(policies), len(policies), weight)
    return count_codes(counts).cells


def case_cells(evidence: Evidence, policies: Sequence[PolicyData]) -> CodeArray:
    """Cell of every case under one structure's policies, [P, Q], over already measured cases.

    Args:
      evidence: measurements of the cases.
      policies: of one structure.
    """
    cells_by_policy = np.empty((len(policies), len(evidence.label)), dtype=np.int8)
    thresholds = policy_thresholds(policies)
    check_own_gates(evidence, thresholds)
    for policy_block, block_codes in code_blocks(evidence, thresholds, len(policies)):
        cells_by_policy[policy_block] = CELL_OF_CODE[block_codes]
    return cells_by_policy


def evidence_with_model(evidence: Evidence, policy: PolicyData, cases: Sequence[Case]) -> Evidence:
    """Evidence with the probabilities of the policy's model, even if fitted on other hits.

    Args:
      evidence: measurements of the cases.
      cases: that were measured, of whose groups the model may hold a bias, [Q].
      policy: the policy whose decision model is applied; without one the evidence stays as it is.
    """
    decision_model = policy.structure.decision
    if decision_model is None:
        return evidence
    return evidence._replace(
        probability=class_probabilities(
            evidence.signals,
            decision_model,
            evidence.known.names,
            decision_model.group_values(cases),
        ),
        asked_right=np.full(len(evidence.label_code), decision_model.asked_right),
    )
