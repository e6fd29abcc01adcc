"""Gates on signals (algebra): headroom of any signal in its bounds, which of all fire (S2.15).

One row of `gates.GATES`, `signals`, stands for the gates on all signals and for those of the user
(S2.18): it says where in the order they are judged. They share two outcomes, one that refuses and
one that asks back, so that outcomes do not grow with the gates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from traceback import format_exception_only
from typing import Any, NamedTuple

import numpy as np

from raglab.arguments.field_rules import read_only
from raglab.arguments.plain_arrays import measured_values
from raglab.signals import LONGEST_TEXT, SignalSet
from raglab.values import Bools, Floats
from raglab.words.characters import visible

# what decides where a gate on a signal refuses, or asks back
SIGNALS, SIGNALS_ASK = "signals", "signals_ask"
OWN = "gates"  # section of a policy that holds the gates of the user
LEAST_OPTIONS = 2  # to ask back at all (rule S3.5)


class SignalThresholds(NamedTuple):
    """Of the gate on one signal (rule S2.15), scalars or [P, 1]: NaN where a bound is not set.

    What it does on fire.
    """

    min: Floats = np.nan
    max: Floats = np.nan
    refuses: Bools = True
    asks: Bools = False
    on: Bools = True


@dataclass(frozen=True)
class OwnThresholds:
    """Of a gate of the user (rule S2.18).

    What it does on fire, its margin function, thresholds by key and switch.

    reads: names of the measurements that it declares. values: a named tuple of scalars or [P, 1].
    on: scalar or [P, 1].
    """

    name: str
    firing: str
    margins: Callable[[Callable[[str], Any], Any], Any]
    reads: tuple[str, ...]
    values: Any
    on: Any = True

    def rows(self, keep: slice) -> OwnThresholds:
        """Thresholds of some of the policies."""
        return replace(
            self,
            values=type(self.values)(*(column[keep] for column in self.values)),
            on=self.on[keep],
        )

    def headroom(self, read: Callable[[str], Any]) -> Any:  # noqa: ANN401 - scalar or array
        """Headroom of the cases, +inf where the gate is off.

        A function that is off in all policies is not called.

        Raises:
          ValueError: see `own_margin`.
        """
        if not np.any(self.on):
            return np.inf
        margin = own_margin(self, read)
        return margin if np.all(self.on) else np.where(self.on, margin, np.inf)


REMEDY = "correct the function, or take the gate out of the policy"
COPY = "what a gate reads is read-only: take a copy first, as in numpy.array(read(name))"
# in what NumPy says of a write to an array that is read-only
_WRITES = re.compile("read-?only|WRITEABLE")


# scalar or array
def own_margin(thresholds: OwnThresholds, read: Callable[[str], Any]) -> Any:  # noqa: ANN401
    """Headroom that the function of a gate of the user returns, whether the gate is on or off.

    The function gets measurements and thresholds as read-only views of their own.

    Args:
      read: measurement by its name, scalar or [...].

    Raises:
      ValueError: the function raised, which is the cause; it read what it does not declare; or it
        returned what is no headroom. Names the gate.

    Source: rule S2.18.
    """
    shapes = [np.shape(value) for value in thresholds.values]

    def measured(name: str) -> Any:  # noqa: ANN401 - scalar or array
        if name not in thresholds.reads:
            msg = (
                f"it must read only what its `reads` lists, {', '.join(thresholds.reads)}, got "
                f"{str(name)[:80]!r}"
            )
            raise ValueError(msg)
        value = read(name)
        shapes.append(np.shape(value))
        return _own_view(value)

    try:
        with np.errstate():  # what the function sets of NumPy holds within it alone
            margin = thresholds.margins(
                measured, type(thresholds.values)(*map(_own_view, thresholds.values))
            )
    except Exception as error:
        raised = visible(format_exception_only(error)[0].strip())[:LONGEST_TEXT]
        raise _no_headroom(
            thresholds.name, raised, COPY if _WRITES.search(raised) else REMEDY
        ) from error
    return _checked_margin(thresholds.name, margin, np.broadcast_shapes(*shapes))


def _own_view(value: Any) -> Any:  # noqa: ANN401 - scalar or array
    """A read-only view of its own, whose shape may be changed; a scalar as it is."""
    return read_only(value).view() if isinstance(value, np.ndarray) else value


# whatever was returned
def _checked_margin(gate: str, margin: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
    """What the function of a gate returned, where it is headroom.

    Args:
      shape: of what it read and of its thresholds, broadcast together.

    Raises:
      ValueError: it is no number or array of real numbers, or of another shape.
    """
    as_numbers = "return an array of floats or a number"
    if type(margin) is not np.ndarray and not isinstance(margin, int | float | np.number):
        raise _no_headroom(gate, f"a value of type {type(margin).__name__}", as_numbers)
    numbers = np.asarray(margin)
    if numbers.dtype.kind not in "iuf":
        raise _no_headroom(gate, f"numbers of type {numbers.dtype}", as_numbers)
    if numbers.dtype.kind == "u":
        raise _no_headroom(
            gate, f"numbers of type {numbers.dtype}, never below 0", "convert them to float first"
        )
    try:
        fits = np.broadcast_shapes(shape, numbers.shape) == shape
    except ValueError:
        fits = False
    if not fits:
        of = f"shape {numbers.shape} where what it read has {shape}"
        raise _no_headroom(
            gate, of, "compute with what it reads and its thresholds, element by element"
        )
    return margin


def _no_headroom(gate: str, got: str, remedy: str) -> ValueError:
    return ValueError(
        f"gate {gate} must return headroom, a real number a case, got {got}; {remedy}."
    )


class UserThresholds(NamedTuple):
    """Thresholds of the gates on signals and of those of the user, by name."""

    signals: Mapping[str, SignalThresholds]
    own: Mapping[str, OwnThresholds]

    def only(self, names: Sequence[str] | None) -> UserThresholds:
        """Those named `signals.<name>` and `gates.<name>`; all where not given."""
        if names is None:
            return self
        return UserThresholds(
            {
                name: signal_thresholds
                for name, signal_thresholds in self.signals.items()
                if f"{SIGNALS}.{name}" in names
            },
            {name: own for name, own in self.own.items() if f"{OWN}.{name}" in names},
        )


class SignalMargins(NamedTuple):
    """Headroom of rule S2.15, in the signal's unit: the lesser of those of its two bounds."""

    signal: Floats


def signal_path(name: str) -> str:
    """Section of a policy that gates a signal.

    Also the name of its measurement, since gates measure by other names.
    """
    return f"{SIGNALS}.{name}"


def firing_of(thresholds: SignalThresholds) -> str:
    """What the gate of one policy does on fire: `refuse`, `ask` or `warn`."""
    return "refuse" if np.all(thresholds.refuses) else "ask" if np.all(thresholds.asks) else "warn"


def is_gated(thresholds: SignalThresholds) -> bool:
    """Whether the gate is on with a bound in any policy; what is not gated need not be there."""
    return bool(np.any(thresholds.on & ~(np.isnan(thresholds.min) & np.isnan(thresholds.max))))


def signal_margins(
    value: Floats, thresholds: SignalThresholds, *, missing_passes: bool = False
) -> SignalMargins:
    """Headroom of a signal within its bounds; +inf where neither is set or the gate is off.

    Args:
      value: in the signal's unit, [...]; NaN where it is missing.
      missing_passes: whether a missing one passes.

    Source: rule S2.15.

    Example:
      >>> signal_margins(3.0, SignalThresholds(max=1.0))
      SignalMargins(signal=np.float64(-2.0))
    """
    value = measured_values(value)
    margin: Any = np.inf
    for bound, least in ((thresholds.min, True), (thresholds.max, False)):
        unset = np.isnan(bound)
        if not np.all(unset):  # most gates set one bound: no pass over the cases for the other
            bound_margin = np.subtract(value, bound) if least else np.subtract(bound, value)
            margin = np.minimum(
                margin, np.where(unset, np.inf, bound_margin) if np.any(unset) else bound_margin
            )
    if missing_passes:
        margin = np.where(np.isnan(value), np.inf, margin)
    return SignalMargins(
        signal=margin
        if np.asarray(thresholds.on).all()
        else np.where(thresholds.on, margin, np.inf)
    )


class SignalsMargins(NamedTuple):
    """Least headroom of the gates on signals that refuse, and of those that ask back.

    Each in its signal's unit.
    """

    signals: Floats
    signals_ask: Floats


def all_signal_margins(read: Callable[[str], Any], thresholds: UserThresholds) -> SignalsMargins:
    """Least headroom of all gates on signals and of the user together, by what they do.

    One that asks in vain refuses.

    Args:
      read: measurement by its name; `known` are the signals that there are.
      thresholds: of each gate that some policy has.

    Source: rules S2.15, S2.16, S2.18.
    """
    refuses: Any = np.inf
    asks: Any = np.inf
    known: SignalSet = read("known")
    for name, signal_thresholds in thresholds.signals.items():
        if not is_gated(signal_thresholds):
            continue
        passes = known.signal(name).missing == "passes"
        (margin,) = signal_margins(
            read(signal_path(name)), signal_thresholds, missing_passes=passes
        )
        refuses = np.minimum(refuses, _margin_where(signal_thresholds.refuses, margin))
        asks = np.minimum(asks, _margin_where(signal_thresholds.asks, margin))
    for own in thresholds.own.values():
        if own.firing == "refuse":
            refuses = np.minimum(refuses, own.headroom(read))
        elif own.firing == "ask":
            asks = np.minimum(asks, own.headroom(read))
    if np.ndim(asks) == 0 and asks == np.inf:  # nobody asks
        return SignalsMargins(refuses, asks)
    can_ask = np.greater_equal(read("n_options_all"), LEAST_OPTIONS)
    return SignalsMargins(
        np.minimum(refuses, np.where(can_ask, np.inf, asks)), np.where(can_ask, asks, np.inf)
    )


def _margin_where(acts: Any, margin: Any) -> Any:  # noqa: ANN401 - bool or array, scalar or array
    """A margin where a gate acts so, +inf elsewhere.

    Without a pass over the cases where all do, or none.
    """
    if np.all(acts):
        return margin
    return np.where(acts, margin, np.inf) if np.any(acts) else np.inf
