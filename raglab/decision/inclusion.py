"""Inclusion probabilities (algebra): weights of cases that were drawn unevenly (S6.4, S6.15)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from raglab.decision.trace_view import TraceView, trace_parts
from raglab.metrics import TrafficMix
from raglab.values import Case, FloatArray, refuse

PROBABILITY = "inclusion_probability"  # key of `Case.extra`
_GRID = 2.0**20  # parts of a weight: sums of such numbers are exact in any order


def inclusion_weights(trace: TraceView) -> FloatArray | None:
    """Weight of each case, 1 / its inclusion probability, mean 1, [Q]; None where all are alike.

    Raises:
      ValueError: a probability outside (0, 1], or cases that nobody drew beside drawn ones.

    Source: rule S6.15; Horvitz and Thompson 1952.
    """
    return case_weights(list(chain.from_iterable(part.cases for part in trace_parts(trace))))


def case_weights(cases: Sequence[Case]) -> FloatArray | None:
    """`inclusion_weights` of cases."""
    stated = [case.extra.get(PROBABILITY) for case in cases]
    if all(chance is None for chance in stated):
        return None
    try:
        probability = np.array([np.nan if p is None else p for p in stated], dtype=np.float64)
    except (TypeError, ValueError):
        probability = np.full(len(cases), np.nan)
    wrong = ~((probability > 0.0) & (probability <= 1.0))
    if wrong.any():
        refuse(
            f"{PROBABILITY} must be in (0, 1] for each case or none",
            f"{stated[int(wrong.argmax())]!r} in {int(wrong.sum()):,} of {len(cases):,}",
            "take the drawn cases alone (trace.subset)",
        )
    weight = 1.0 / probability
    rounded: FloatArray = np.round(weight * (len(weight) / weight.sum()) * _GRID) / _GRID
    return rounded if np.ptp(rounded) > 2.0 / _GRID else None


def check_alone(mix: TrafficMix, weight: FloatArray | None) -> None:
    """Stop at a mix that is stated for cases whose inclusion probabilities state another.

    Raises:
      ValueError: the cases have weights.
    """
    if weight is not None:
        refuse(
            "mix must be 'sample' for cases drawn with several probabilities", mix, "leave mix out"
        )
