"""Gates on signals (algebra): headroom of any signal within its bounds, and what fires of all of them together (S2.15).

One row of `gates.GATES`, `signals`, stands for the gates on all signals and for those of the user (S2.18): it says
where in the order they are judged. They share two outcomes, one that refuses and one that asks back, so that outcomes
do not grow with the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from raglab.signals import SignalSet
from raglab.values import Bools, Floats

SIGNALS, SIGNALS_ASK = "signals", "signals_ask"  # what decides where a gate on a signal refuses, or asks back
OWN = "gates"  # section of a policy that holds the gates of the user
LEAST_OPTIONS = 2  # to ask back at all (rule S3.5)


class SignalThresholds(NamedTuple):
    """Of the gate on one signal (rule S2.15), scalars or [P, 1]: NaN where a bound is not set; what it does on fire."""

    min: Floats = np.nan
    max: Floats = np.nan
    refuses: Bools = True
    asks: Bools = False
    on: Bools = True


@dataclass(frozen=True)
class OwnLimits:
    """Of a gate of the user (rule S2.18): what it does on fire, its margin function, thresholds by key and switch.

    values: a named tuple of scalars or [P, 1]. on: scalar or [P, 1].
    """

    name: str
    firing: str
    margins: Callable[[Callable[[str], Any], Any], Any]
    values: Any
    on: Any = True

    def rows(self, keep: slice) -> OwnLimits:
        """The same of some policies."""
        return replace(self, values=type(self.values)(*(one[keep] for one in self.values)), on=self.on[keep])

    def headroom(self, read: Callable[[str], Any]) -> Any:  # noqa: ANN401 - scalar or array
        """Headroom of the cases, +inf where the gate is off."""
        margin = self.margins(read, self.values)
        return margin if np.all(self.on) else np.where(self.on, margin, np.inf)


class UserLimits(NamedTuple):
    """Thresholds of the gates on signals and of those of the user, by name."""

    signals: Mapping[str, SignalThresholds]
    own: Mapping[str, OwnLimits]

    def only(self, names: Sequence[str] | None) -> UserLimits:
        """Those named `signals.<name>` and `gates.<name>`; all where not given."""
        if names is None:
            return self
        return UserLimits(
            {name: one for name, one in self.signals.items() if f"{SIGNALS}.{name}" in names},
            {name: one for name, one in self.own.items() if f"{OWN}.{name}" in names},
        )


class SignalMargins(NamedTuple):
    """Headroom of rule S2.15, in the signal's unit: the lesser of those of its two bounds."""

    signal: Floats


def signal_path(name: str) -> str:
    """Section of a policy that gates a signal; also the name of its measurement, since gates measure by other names."""
    return f"{SIGNALS}.{name}"


def acts_by(limits: SignalThresholds) -> str:
    """What the gate of one policy does on fire: `refuse`, `ask` or `warn`."""
    return "refuse" if np.all(limits.refuses) else "ask" if np.all(limits.asks) else "warn"


def is_gated(limits: SignalThresholds) -> bool:
    """Whether the gate is on with a bound in any policy; what is not gated need not be there."""
    return bool(np.any(limits.on & ~(np.isnan(limits.min) & np.isnan(limits.max))))


def signal_margins(value: Floats, limits: SignalThresholds, *, missing_passes: bool = False) -> SignalMargins:
    """Headroom of a signal within its bounds; +inf where neither is set or the gate is off.

    Args:
      value: in the signal's unit, [...]; NaN where it is missing. missing_passes: whether a missing one passes.

    Source: rule S2.15.

    Example:
      >>> signal_margins(3.0, SignalThresholds(max=1.0))
      SignalMargins(signal=np.float64(-2.0))
    """
    margin: Any = np.inf
    for bound, least in ((limits.min, True), (limits.max, False)):
        unset = np.isnan(bound)
        if not np.all(unset):  # most gates set one bound: no pass over the cases for the other
            found = np.subtract(value, bound) if least else np.subtract(bound, value)
            margin = np.minimum(margin, np.where(unset, np.inf, found) if np.any(unset) else found)
    if missing_passes:
        margin = np.where(np.isnan(value), np.inf, margin)
    return SignalMargins(signal=margin if np.asarray(limits.on).all() else np.where(limits.on, margin, np.inf))


class SignalsMargins(NamedTuple):
    """Least headroom of the gates on signals that refuse, and of those that ask back; each in its signal's unit."""

    signals: Floats
    signals_ask: Floats


def signals_margins(read: Callable[[str], Any], limits: UserLimits) -> SignalsMargins:
    """Least headroom of all gates on signals and of the user together, by what they do; one that asks in vain refuses.

    Args:
      read: measurement by its name; `known` are the signals that there are. limits: of each gate that some policy has.

    Source: rules S2.15, S2.16, S2.18.
    """
    refuses: Any = np.inf
    asks: Any = np.inf
    known: SignalSet = read("known")
    for name, bounds in limits.signals.items():
        if not is_gated(bounds):
            continue
        passes = known.signal(name).missing == "passes"
        (margin,) = signal_margins(read(signal_path(name)), bounds, missing_passes=passes)
        refuses = np.minimum(refuses, _margin_where(bounds.refuses, margin))
        asks = np.minimum(asks, _margin_where(bounds.asks, margin))
    for own in limits.own.values():
        if own.firing == "refuse":
            refuses = np.minimum(refuses, own.headroom(read))
        elif own.firing == "ask":
            asks = np.minimum(asks, own.headroom(read))
    if np.ndim(asks) == 0 and asks == np.inf:  # nobody asks
        return SignalsMargins(refuses, asks)
    can_ask = np.greater_equal(read("n_options_all"), LEAST_OPTIONS)
    return SignalsMargins(np.minimum(refuses, np.where(can_ask, np.inf, asks)), np.where(can_ask, asks, np.inf))


def _margin_where(acts: Any, margin: Any) -> Any:  # noqa: ANN401 - bool or array, scalar or array
    """A margin where a gate acts so, +inf elsewhere; without a pass over the cases where all do, or none."""
    if np.all(acts):
        return margin
    return np.where(acts, margin, np.inf) if np.any(acts) else np.inf
