"""Counting decisions: blocks of policies × cases that fit the cache of one core, summed into a few counts a policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab._tables import Evidence
from raglab.chain import STAGES, STATUS_OF, Outcome, at_slot, narrowed, outcome
from raglab.policy import Thresholds

CASES = 4_096  # cases of a part, whose measurements stay in the cache of one core while all policies pass
BLOCK = 65_536  # decisions of a part that are made at once


class Tally(NamedTuple):
    """Counted decisions of many policies.

    counts: [P, 6], see `metrics.COUNTS`. stages: by what decided, [P, stages]. labels: cases by label, [3].
    """

    counts: NDArray[np.int64]
    stages: NDArray[np.int64]
    labels: NDArray[np.int64]


_CONTRIBUTIONS = metrics.contributions(STATUS_OF).reshape(-1, len(metrics.COUNTS))


def outcome_codes(found: Evidence, said: Outcome) -> NDArray[np.int64]:
    """Number of (what decided, label, expected sources found), [P, Q]."""
    if found.right.shape[0] == 1:
        right = at_slot(found.right[0], said.slot)
    else:
        depth, slot = said.depth.astype(np.int64), said.slot.astype(np.int64)
        right = found.right[depth, slot, np.arange(slot.shape[1])]
    return said.stage.astype(np.int64) * 6 + found.label * 2 + right


def counted(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Contributions of codes to `metrics.COUNTS`, [..., 6]."""
    counts: NDArray[np.int64] = _CONTRIBUTIONS[codes]
    return counts


def tallied(found: Evidence, limits: Thresholds, n_policies: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    width = len(STAGES) * 6
    seen = np.zeros((n_policies, width), dtype=np.int64)
    found, limits = narrowed(found, limits)
    for cases in _spans(len(found.label), CASES):
        part = _cases(found, cases)
        n_cases = len(part.label)
        for rows in _spans(n_policies, max(1, BLOCK // n_cases)):
            some = _rows(limits, rows)
            codes = outcome_codes(part, outcome(part, some, (rows.stop - rows.start, n_cases)))
            seen[rows] += [np.bincount(of_policy, minlength=width) for of_policy in codes]
    return seen @ _CONTRIBUTIONS, seen.reshape(n_policies, len(STAGES), 6).sum(axis=2)


def _spans(n: int, size: int) -> Iterator[slice]:
    """Equal parts of n, none over a size."""
    n_parts = -(-n // size)
    for part in range(n_parts):
        yield slice(part * n // n_parts, (part + 1) * n // n_parts)


def _cases(found: Any, cases: slice) -> Any:  # noqa: ANN401 - evidence or a part of it
    def part(field: Any) -> Any:  # noqa: ANN401 - an array, a tuple of arrays, or a number
        if isinstance(field, tuple):
            return _cases(field, cases)
        return np.ascontiguousarray(field[..., cases]) if isinstance(field, np.ndarray) else field

    return type(found)(*map(part, found))


def _rows(limits: Any, rows: slice) -> Any:  # noqa: ANN401 - a tuple of thresholds
    return type(limits)(*(_rows(field, rows) if isinstance(field, tuple) else field[rows] for field in limits))
