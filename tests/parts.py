"""A trace in memory that is cut into parts, as a trace of shards is.

What a replay reads of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from raglab.decision.recorded_answers import keep_used_chunks
from raglab.values import TraceData


class Parts(NamedTuple):
    """Traces that stand for the parts of one."""

    traces: tuple[TraceData, ...]
    meta: Mapping[str, Any] = MappingProxyType({})

    @property
    def parts(self):
        """Each of them, fresh, so that nothing that was measured before is used."""
        return list(map(keep_used_chunks, self.traces))

    @property
    def arms(self):
        """Arms of all of them."""
        return self.traces[0].arms

    @property
    def has_answers(self):
        """Whether any of them records answers."""
        return any(trace.has_answers for trace in self.traces)


def cut(trace, cuts):
    """Trace in parts at some positions."""
    edges = [0, *sorted(set(cuts)), len(trace)]
    spans = pairwise(edges)
    return Parts(tuple(trace.subset(list(range(*span))) for span in spans if span[0] < span[1]))


def in_parts(trace, size):
    """Trace in parts of so many cases."""
    return cut(trace, list(range(0, len(trace), size)))


def same(one, two):
    """Check that two tables are the same to the bit."""
    assert list(one.columns) == list(two.columns)
    assert len(one) == len(two)
    for name in one:
        assert one[name].to_numpy().tobytes() == two[name].to_numpy().tobytes() or list(
            one[name]
        ) == list(two[name])
    assert one.attrs == two.attrs


def alike(one, two, but=()):
    """Check that two values are the same to the bit, field by field; NaN equals itself.

    Args:
      one: any value: a result, a table, an array, a text.
      two: the other.
      but: names of fields that may differ.
    """
    assert type(one) is type(two)
    if isinstance(one, pd.DataFrame):
        same(one, two)
    elif isinstance(one, np.ndarray) and one.dtype != object:
        assert (one.shape, one.dtype, one.tobytes()) == (two.shape, two.dtype, two.tobytes())
    elif isinstance(one, Mapping):
        assert list(one) == list(two)
        for name in one:
            alike(one[name], two[name], but)
    elif is_dataclass(one) or hasattr(one, "_fields"):
        names = getattr(one, "_fields", None) or [field.name for field in fields(one)]
        for name in {*names} - {*but}:
            alike(getattr(one, name), getattr(two, name), but)
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            alike(first, second, but)
    else:
        assert one == two or repr(one) == repr(two)


def outcome(call):
    """What a call gives, or why it is refused."""
    try:
        return call()
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
