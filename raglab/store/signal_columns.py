"""Columns of signals (shore): user values, checked and laid out as a trace holds them (S2.15)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.plain_arrays import float_array, shown_number, within_range
from raglab.arguments.user_warnings import warn_user
from raglab.signals import NAMES, Signal, declared_signal
from raglab.store.files import Where, input_error, shown_value
from raglab.values import TraceData

if TYPE_CHECKING:
    import pandas as pd


def warn_of_percent(signal: Signal, values: NDArray[np.float64]) -> None:
    """Warn where values of the unit percent are none: outside 0 to 100, or shares from 0 to 1."""
    known = values[~np.isnan(values)]
    if signal.unit.name != "percent" or not known.size:
        return
    outside = int(((known < 0.0) | (known > 100.0)).sum())
    ends = f"{known.min():.6g} to {known.max():.6g}"
    if outside:
        remedy = "correct them, or state another unit"
        warn_user(
            f"signal {signal.name}: {outside:,} of {known.size:,} values of unit 'percent' lie "
            "outside 0 to 100, "
            f"got {ends}; {remedy}."
        )
    elif 0.0 < known.max() <= 1.0:
        remedy = "state unit='share', or multiply them by 100"
        warn_user(
            f"signal {signal.name}: all {known.size:,} values of unit 'percent' lie from 0 to 1, "
            f"got {ends}; {remedy}."
        )


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
    where = Where(f"signal {signal.name}")
    # A Series has an order of its own: it is read by case id, an array by position.
    if hasattr(source, "index") and hasattr(source, "to_numpy"):
        source = _by_case(where, source, ids)
    if isinstance(source, Mapping):
        remedy = "make a Series of it: pandas.Series(values)"
        raise input_error(
            where, "values must be an array or a Series", remedy, f"a {type(source).__name__}"
        )
    if source is None or isinstance(source, AbstractSet | Iterator):
        remedy = "give a list or an array in the order of trace.cases"
        shown = "nothing" if source is None else f"a {type(source).__name__}"
        raise input_error(where, "values must be an array or a Series", remedy, shown)
    try:
        values = float_array(source, "values")
    except ValueError as error:
        reason = str(error).partition(", got ")[2].partition(";")[0]
        raise input_error(
            where, "values must be numbers, NaN where there is none", "convert them", reason
        ) from error
    if values.ndim not in (1, 2, 3) or values.shape != shape[: values.ndim]:
        rule = f"values must be [Q], [Q, A] or [Q, A, D] of the trace, {shape}"
        remedy = "give a number a case in the order of trace.cases, or a Series indexed by case id"
        raise input_error(where, rule, remedy, f"shape {values.shape}")
    # Infinity before the range: no scaling mends it, a missing value is meant.
    if np.isinf(values).any():
        case_id = ids[int(np.argwhere(np.isinf(values))[0][0])]
        remedy = "give NaN where there is no value"
        raise input_error(
            where,
            "values must be finite, or NaN where there is none",
            remedy,
            f"infinity at case {case_id!r}",
        )
    unit = signal.unit
    # NaN is neither below nor above, so that a missing value passes.
    values = within_range(values, unit.low, unit.high, f"values of signal {signal.name}")
    outside = np.argwhere((values < unit.low) | (values > unit.high))
    if len(outside):
        place = tuple(outside[0].tolist())
        remedy = "scale it, or state another unit, in any words"
        shown = shown_number(float(values[place]), unit.low, unit.high)
        rule = f"values of unit {unit.name!r} must lie in [{unit.low:g}, {unit.high:g}]"
        raise input_error(where, rule, remedy, f"{shown} at case {ids[place[0]]!r}")
    whole = np.broadcast_to(values.reshape(values.shape + (1,) * (3 - values.ndim)), shape)
    # a copy: what its caller writes afterwards must not change the trace
    return np.array(whole, order="C")


def _by_case(where: Where, series: Any, ids: Sequence[str]) -> Any:  # noqa: ANN401 - a Series
    """Values of a Series in the order of the cases; NaN for a case that it does not hold."""
    if getattr(series, "ndim", 1) != 1:
        raise input_error(
            where, "values must be one column", "take a column: frame[name]", "a DataFrame"
        )
    known = set(ids)
    # What is no text comes before what is there twice: a list has no place in a set.
    strange = [key for key in series.index if not isinstance(key, str) or key not in known]
    twice = series.index[:0] if strange else series.index[series.index.duplicated()]
    if len(twice):
        value = f"{shown_value(str(twice[0]))} {int((series.index == twice[0]).sum())} times"
        raise input_error(
            where, "a Series must name each case once", "drop the others, or take their mean", value
        )
    if strange:
        value = f"{len(strange)} others, such as {shown_value(str(strange[0]))}"
        remedy = "index it by case id, as in frame.set_index('case_id')['judge']"
        raise input_error(
            where, "a Series must be indexed by ids of the trace's cases", remedy, value
        )
    return series.reindex(list(ids)).to_numpy()


def check_columns(trace: TraceData) -> None:
    """Stop if a user signal's column is undeclared, or holds what its declaration forbids.

    Raises:
      ValueError: names the signal.
    """
    stated = trace.meta.get("signals", {})
    for name in sorted(set(trace.columns).difference(NAMES)):
        signal = declared_signal(name, stated.get(name) if isinstance(stated, Mapping) else None)
        signal_column(
            signal,
            trace.columns[name],
            trace.hits.chunk.shape[:3],
            [case.id for case in trace.cases],
        )


def frame_series(frame: pd.DataFrame, name: str, path: Path) -> pd.Series[Any]:
    """Column of a table of values as a Series by case id.

    Raises:
      InputError: it has no column `case_id`, or neither the signal's nor `value`.
    """
    column = name if name in frame else "value"
    if "case_id" not in frame or column not in frame:
        value = f"columns {', '.join(map(str, frame.columns[:8]))}"
        rule = f"a file of values must have columns case_id and {name}"
        raise input_error(Where(str(path)), rule, "name them so", value)
    return frame.set_index("case_id")[column]


def array_hash(column: NDArray[np.float64]) -> str:
    """SHA-256 of numbers with their shape, with one NaN for all."""
    plain = np.where(np.isnan(column), np.nan, column).astype(np.float64, order="C")
    return hashlib.sha256(f"{list(column.shape)}".encode() + plain.tobytes()).hexdigest()
