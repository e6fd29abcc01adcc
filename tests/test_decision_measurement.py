"""Evidence: what is measured of a trace for all thresholds at once."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from raglab.decision import chain
from raglab.decision.measurement import Evidence, measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.values import map_fields
from worlds import random_policies, random_trace


@pytest.fixture(scope="module")
def trace():
    """Return forty drawn cases."""
    return random_trace(3, 40, depths=2)


def test_every_field_is_said_with_its_meaning():
    """The docstring names each field of the evidence.

    A field that nobody explains does not get in.
    """
    words = set(re.findall(r"[a-z_0-9]+(?=[,:]| \[)", str(Evidence.__doc__)))
    assert set(Evidence._fields) <= words


@pytest.mark.parametrize("seed", range(4))
def test_known_passes_change_no_decision(seed):
    """Depths that were judged before are taken as they are.

    Outcome and whether the loop goes on stay the same.
    """
    trace, reached = random_trace(seed, 12, depths=3, width=8), 0
    for given, row in product(random_policies(seed, 6), range(len(trace))):
        limits = policy_thresholds([given])
        passes: list[chain.Pass] = []
        for depths in (1, 2, 3):
            hits = map_fields(
                trace.hits, lambda field, row=row, upto=depths: field[row : row + 1, :, :upto]
            )
            question = replace(trace, cases=(trace.cases[row],), hits=hits)
            found = measured_tables(question, given).evidence
            said, going = chain.decide_and_refine(found, limits, (1, 1), passes)
            afresh, goes = chain.decide_and_refine(found, limits, (1, 1))
            np.testing.assert_array_equal(said, afresh)
            assert going == goes == chain.needs_refinement(found, limits)
        reached = max(reached, len(passes))
    assert reached == 3, "every depth was judged"
