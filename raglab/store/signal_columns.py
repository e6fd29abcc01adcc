"""Columns of signals (shore): user values, checked and laid out as a trace holds them (S2.15)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.plain_arrays import float_array, shown_number, within_range
from raglab.signals import Signal
from raglab.store.files import input_error, shown_value


# array or Series
def signal_column(
    signal: Signal,
    source: Any,  # noqa: ANN401
    shape: tuple[int, ...],
    ids: Sequence[str],
) -> NDArray[np.float64]:
    """Values of a user's signal, [Q, A, D]: those of [Q] and [Q, A] hold for every arm and depth.

    Args:
      signal: its declaration.
      source: array or Series, see `Trace.with_signal`.
      shape: (Q, A, D).
      ids: of the cases.

    Raises:
      InputError: values that are not one number or NaN a case, or outside the unit's range.
    """
    where, unit = f"signal {signal.name}", signal.unit
    # A Series has an order of its own: it is read by case id, an array by position.
    if hasattr(source, "index") and hasattr(source, "to_numpy"):
        # what is no text comes before what is there twice: a list has no place in a set
        known, keys = set(ids), source.index
        strange = [key for key in keys if not isinstance(key, str) or key not in known]
        twice = [] if strange else keys[keys.duplicated()].tolist()
        if wrong := strange or twice:
            rule = "be indexed by ids of the trace's cases" if strange else "name each case once"
            raise input_error(
                where,
                f"a Series must {rule}",
                "index it by case id, once each",
                f"{shown_value(str(wrong[0]))} ({len(wrong):,} such)",
            )
        source = source.reindex(list(ids)).to_numpy()  # NaN for a case that it does not hold
    try:
        values = float_array(source, "values")
    except ValueError as error:
        raise input_error(
            where,
            "values must be numbers by case, or a Series",
            "convert them, with NaN where there is none",
            str(error).partition("got ")[2].partition(";")[0],
        ) from error
    if values.ndim not in (1, 2, 3) or values.shape != shape[: values.ndim]:
        raise input_error(
            where,
            f"values must be [Q], [Q, A] or [Q, A, D] of the trace, {shape}",
            "give a number a case",
            f"shape {values.shape}",
        )
    values = within_range(values, unit.low, unit.high, f"values of signal {signal.name}")
    # NaN is neither below nor above, so that a missing value passes
    broken = np.isinf(values) | (values < unit.low) | (values > unit.high)
    if broken.any():
        place = tuple(np.argwhere(broken)[0].tolist())
        value = shown_number(float(values[place]), unit.low, unit.high)
        raise input_error(
            where,
            f"values of unit {unit.name!r} must be finite and in [{unit.low:g}, {unit.high:g}]",
            "scale it, or state another unit",
            f"{value} at case {ids[place[0]]!r}",
        )
    whole = np.broadcast_to(values.reshape(values.shape + (1,) * (3 - values.ndim)), shape)
    # a copy: what its caller writes afterwards must not change the trace
    return np.array(whole, order="C")


def array_hash(column: NDArray[np.float64]) -> str:
    """SHA-256 of numbers with their shape, with one NaN for all."""
    return hashlib.sha256(f"{list(column.shape)}".encode() + array_bytes(column)).hexdigest()


def array_bytes(array: NDArray[Any], kind: type[np.generic] = np.float64) -> bytes:
    """Bytes of numbers as a kind of them, with one NaN for all."""
    return np.where(np.isnan(array), np.nan, array).astype(kind, order="C").tobytes()
