"""Signed headroom: the form of every gate's answer, and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from raglab.values import Bools, Floats, Ints

Margins: TypeAlias = tuple[Floats, ...]


class Verdict(NamedTuple):
    """What a gate says of one case: whether it fires, which check is tightest, with what headroom."""

    fired: bool
    check: str
    margin: float


def headroom(value: Floats | Ints, threshold: Floats | Ints, on: Bools = True) -> Floats:
    """How far a value lies above its threshold; +inf where the gate is off."""
    margin = np.subtract(value, threshold)
    return margin if np.all(on) else np.where(on, margin, np.inf)


def fires(margins: Margins) -> Bools:
    """Whether a gate fires, bool [...]. A missing measurement (NaN) fires it."""
    return np.logical_not(np.greater_equal(reduce(np.minimum, margins), 0.0))


def explain(margins: Margins) -> Verdict:
    """Verdict of one case, from the margins of scalars: the tightest check and its headroom."""
    named: Mapping[str, Any] = margins._asdict()  # type: ignore[attr-defined]
    values = {name: float(np.squeeze(margin)) for name, margin in named.items()}
    check = min(values, key=lambda name: (not np.isnan(values[name]), values[name]))
    return Verdict(bool(fires(tuple(values.values()))), check, values[check])
