"""Columns of signals (shore): user values, checked and laid out as a trace holds them (S2.15)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from raglab.arguments.plain_arrays import float_array, shown_number, within_range
from raglab.signals import Signal
from raglab.store.files import input_error, shown_value
from raglab.values import AnyArray, FloatArray


# array or Series
def signal_column(
    signal: Signal,
    source: Any,  # noqa: ANN401
    shape: tuple[int, ...],
    ids: Sequence[str],
) -> FloatArray:
    """Values of a user's signal, [Q, A, D]: those of [Q] and [Q, A] hold for every arm and depth.

    Args:
      signal: its declaration.
      source: array or Series, see `Trace.with_signal`.
      shape: (Q, A, D).
      ids: of the cases.

    Raises:
      InputError: values that are not one number or NaN a case, or outside the unit's range.
    """
    subject = f"signal {signal.name}"
    signal_unit = signal.unit
    # A Series has an order of its own: it is read by case id, an array by position.
    if hasattr(source, "index") and hasattr(source, "to_numpy"):
        # what is no text comes before what is there twice: a list has no place in a set
        case_ids = set(ids)
        series_index = source.index
        strange_keys = [
            index_key
            for index_key in series_index
            if not isinstance(index_key, str) or index_key not in case_ids
        ]
        repeated_keys = [] if strange_keys else series_index[series_index.duplicated()].tolist()
        if wrong_keys := strange_keys or repeated_keys:
            index_rule = (
                "be indexed by ids of the trace's cases" if strange_keys else "name each case once"
            )
            raise input_error(
                subject,
                f"a Series must {index_rule}",
                "index it by case id, once each",
                f"{shown_value(str(wrong_keys[0]))} ({len(wrong_keys):,} such)",
            )
        source = source.reindex(list(ids)).to_numpy()  # NaN for a case that it does not hold
    try:
        numbers = float_array(source, "values")
    except ValueError as error:
        raise input_error(
            subject,
            "values must be numbers by case, or a Series",
            "convert them, with NaN where there is none",
            str(error).partition("got ")[2].partition(";")[0],
        ) from error
    if numbers.ndim not in (1, 2, 3) or numbers.shape != shape[: numbers.ndim]:
        raise input_error(
            subject,
            f"values must be [Q], [Q, A] or [Q, A, D] of the trace, {shape}",
            "give a number a case",
            f"shape {numbers.shape}",
        )
    numbers = within_range(
        numbers, signal_unit.low, signal_unit.high, f"values of signal {signal.name}"
    )
    # NaN is neither below nor above, so that a missing value passes
    is_out_of_range = np.isinf(numbers) | (numbers < signal_unit.low) | (numbers > signal_unit.high)
    if is_out_of_range.any():
        broken_cell = tuple(np.argwhere(is_out_of_range)[0].tolist())
        value = shown_number(float(numbers[broken_cell]), signal_unit.low, signal_unit.high)
        raise input_error(
            subject,
            f"values of unit {signal_unit.name!r} must be finite and in "
            f"[{signal_unit.low:g}, {signal_unit.high:g}]",
            "scale it, or state another unit",
            f"{value} at case {ids[broken_cell[0]]!r}",
        )
    full_values = np.broadcast_to(numbers.reshape(numbers.shape + (1,) * (3 - numbers.ndim)), shape)
    # a copy: what its caller writes afterwards must not change the trace
    return np.array(full_values, order="C")


def array_hash(column: FloatArray) -> str:
    """SHA-256 of numbers with their shape, with one NaN for all."""
    return hashlib.sha256(f"{list(column.shape)}".encode() + array_bytes(column)).hexdigest()


def array_bytes(array: AnyArray, number_type: type[np.generic] = np.float64) -> bytes:
    """Bytes of numbers as a kind of them, with one NaN for all."""
    return np.where(np.isnan(array), np.nan, array).astype(number_type, order="C").tobytes()
