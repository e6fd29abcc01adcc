"""The compiled kernel beside the chain."""

from __future__ import annotations

import numpy as np
import pytest

from raglab.decision.chain import decide_cases
from raglab.decision.outcome_codes import CELL_OF_CODE, outcome_codes
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.metrics import CELLS


def case_of(part, row):
    """Evidence of one case, or a part of it."""
    if isinstance(part, tuple):
        return type(part)(*(case_of(field, row) for field in part))
    return part[..., row : row + 1] if isinstance(part, np.ndarray) else part


def check_twins(evidence, policies):
    """The compiled twin says of each case alone what the chain says of all at once.

    Its stage, and its cell, which holds whether the chosen hits are right.
    """
    kernel = pytest.importorskip("raglab.decision.kernel", reason="numba is not installed")
    limits, size = policy_thresholds(policies), len(evidence.label_code)
    plain = outcome_codes(evidence, decide_cases(evidence, limits, (len(policies), size)))
    alone = [kernel.tallied(case_of(evidence, row), limits, len(policies)) for row in range(size)]
    compiled = np.stack([counts.argmax(axis=1) for counts in alone], axis=1)
    np.testing.assert_array_equal(compiled // CELLS, plain // CELLS)
    np.testing.assert_array_equal(CELL_OF_CODE[compiled], CELL_OF_CODE[plain])
    together = kernel.tallied(evidence, limits, len(policies))
    np.testing.assert_array_equal(together, np.sum(alone, axis=0))
