"""Decisions of many policies over cases that are measured already (algebra), block by block, counted or by case."""

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
from raglab.expected_cost import class_probabilities
from raglab.gate_order import Order
from raglab.policy import PolicyData
from raglab.progress import progress
from raglab.signal_gates import OwnLimits
from raglab.thresholds import Thresholds, policy_thresholds

CASES = 4_096  # cases of a part, whose measurements stay in the cache of one core while all policies pass
BLOCK = 65_536  # decisions of a part that are made at once


def vectorised_codes(found: Evidence, limits: Thresholds, n_policies: int) -> NDArray[np.int64]:
    """Cases by code of `outcome_codes`, [P, codes], of many policies."""
    width = codes_wide(found)
    seen = np.zeros((n_policies, width), dtype=np.int64)
    check_own_gates(found, limits)
    found, limits = narrow_evidence(found, limits)
    for cases in progress(list(spans(len(found.label), CASES)), "replay", "part"):
        part = case_rows(found, cases)
        n_cases = len(part.label)
        for rows in progress(list(spans(n_policies, max(1, BLOCK // n_cases))), "replay", "part"):
            some = policy_slice(limits, rows)
            codes = outcome_codes(part, decide_cases(part, some, (rows.stop - rows.start, n_cases)))
            seen[rows] += [np.bincount(of_policy, minlength=width) for of_policy in codes]
    return seen


def spans(n: int, size: int) -> Iterator[slice]:
    """Equal parts of n, none over a size."""
    n_parts = -(-n // size)
    for part in range(n_parts):
        yield slice(part * n // n_parts, (part + 1) * n // n_parts)


def case_rows(found: Any, rows: Any) -> Any:  # noqa: ANN401 - evidence or a part of it, a slice or positions
    """Measurements of some cases."""

    def part(field: Any) -> Any:  # noqa: ANN401 - an array, a tuple of arrays, or a number
        if isinstance(field, tuple):
            return case_rows(field, rows)
        return np.ascontiguousarray(field[..., rows]) if isinstance(field, np.ndarray) else field

    return type(found)(*map(part, found))


def policy_slice(limits: Any, rows: slice) -> Any:  # noqa: ANN401 - thresholds, a part of them, or an array
    """Thresholds of some policies."""
    if limits is None or isinstance(limits, Order):
        return limits
    if isinstance(limits, OwnLimits):
        return limits.rows(rows)
    if isinstance(limits, dict):
        return {name: policy_slice(field, rows) for name, field in limits.items()}
    return type(limits)(*map(partial(policy_slice, rows=rows), limits)) if isinstance(limits, tuple) else limits[rows]


def policy_cells(found: Evidence, policies: Sequence[PolicyData]) -> NDArray[np.int64]:
    """Cells of policies of one structure, [P, 18], over cases that are measured already."""
    return count_codes(vectorised_codes(found, policy_thresholds(policies), len(policies))).cells


def case_cells(found: Evidence, policies: Sequence[PolicyData]) -> NDArray[np.int8]:
    """Cell of every case under policies of one structure, [P, Q], over cases that are measured already."""
    cells = np.empty((len(policies), len(found.label)), dtype=np.int8)
    limits = policy_thresholds(policies)
    check_own_gates(found, limits)
    for rows in progress(list(spans(len(policies), max(1, BLOCK // max(1, len(found.label))))), "replay", "part"):
        shape = (rows.stop - rows.start, len(found.label))
        cells[rows] = CELL_OF_CODE[outcome_codes(found, decide_cases(found, policy_slice(limits, rows), shape))]
    return cells


def evidence_with_model(found: Evidence, policy: PolicyData) -> Evidence:
    """Measured cases with the probabilities of the policy's model, whatever hits that was fitted on."""
    model = policy.structure.decision
    if model is None:
        return found
    return found._replace(
        probability=class_probabilities(found.signals, model, found.known.names),
        asked_right=np.full(len(found.label_code), model.asked_right),
    )
