"""Inclusion probabilities (algebra): weights of cases that were drawn unevenly (S6.4, S6.15)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from raglab.decision.trace_view import TraceView, trace_parts
from raglab.metrics import TrafficMix
from raglab.values import Case, FloatArray, refuse

PROBABILITY_KEY = "inclusion_probability"  # key of `Case.extra`
_WEIGHT_GRID = 2.0**20  # parts of a weight: sums of such numbers are exact in any order


def inclusion_weights(trace: TraceView) -> FloatArray | None:
    """Weight of each case, 1 / its inclusion probability, mean 1, [Q]; None where all are alike.

    Raises:
      ValueError: a probability outside (0, 1], or drawn and undrawn cases together.

    Source: rule S6.15; Horvitz and Thompson 1952.
    """
    return case_weights(list(chain.from_iterable(part.cases for part in trace_parts(trace))))


def case_weights(cases: Sequence[Case]) -> FloatArray | None:
    """`inclusion_weights` of cases."""
    stated_chances = [case.extra.get(PROBABILITY_KEY) for case in cases]
    if all(chance is None for chance in stated_chances):
        return None
    try:
        probabilities = np.array(
            [
                np.nan if stated_chance is None else stated_chance
                for stated_chance in stated_chances
            ],
            dtype=np.float64,
        )
    except (TypeError, ValueError):
        probabilities = np.full(len(cases), np.nan)
    is_out_of_range = ~((probabilities > 0.0) & (probabilities <= 1.0))
    if is_out_of_range.any():
        refuse(
            f"{PROBABILITY_KEY} must be in (0, 1] for each case or none",
            f"{stated_chances[int(is_out_of_range.argmax())]!r} in "
            f"{int(is_out_of_range.sum()):,} of {len(cases):,}",
            "take the drawn cases alone (trace.subset)",
        )
    raw_weights = 1.0 / probabilities
    rounded_weights: FloatArray = (
        np.round(raw_weights * (len(raw_weights) / raw_weights.sum()) * _WEIGHT_GRID) / _WEIGHT_GRID
    )
    return rounded_weights if np.ptp(rounded_weights) > 2.0 / _WEIGHT_GRID else None


def check_alone(mix: TrafficMix, weight: FloatArray | None) -> None:
    """Stop at a mix that is stated for cases whose inclusion probabilities state another.

    Raises:
      ValueError: the cases have weights.
    """
    if weight is not None:
        refuse(
            "mix must be 'sample' for cases drawn with several probabilities", mix, "leave mix out"
        )
