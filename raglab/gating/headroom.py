"""Headroom (algebra): the one place where a threshold meets a number (S2.1 to S2.18, S3.3).

A primitive of `raglab.gates` or of the resolver's rules forms its margins by `headroom`, and what a
user calls is what decides. Sweep, chain, explanation and audit read the margins of the primitives.
`gates.n_relevant`, which counts hits within a cut, and `raglab.decision.kernel`, the compiled twin
of all of them, are the only other comparisons; tests hold both equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raglab.arguments.plain_arrays import measured_values
from raglab.values import Bools, Floats, Ints


def headroom(value: Floats | Ints, threshold: Floats | Ints, on: Bools = True) -> Floats:
    """Distance of a value above its threshold; +inf where the gate is off.

    A ceiling lies above what it bounds, so it stands first: `headroom(ceiling, value)`.

    Args:
      value: measurement, [...].
      threshold: in the unit of the value, [...].
      on: whether the gate is on, [...].
    """
    return switched(np.subtract(measured_values(value), threshold), on)


def switched(margin: Any, on: Bools) -> Any:  # noqa: ANN401 - scalar or array
    """A margin where its gate is on, +inf where it is off.

    Args:
      margin: headroom, [...].
      on: whether the gate is on, [...].
    """
    # the method of an array, since the function of the same name costs ten times as much on one
    # switch
    return margin if on is True or np.asarray(on).all() else np.where(on, margin, np.inf)


def meets_threshold(margin: Any) -> Any:  # noqa: ANN401 - bool or array
    """Whether a margin is 0 or more, bool [...]; a missing one is not.

    Args:
      margin: headroom, [...].
    """
    return np.greater_equal(margin, 0.0)
