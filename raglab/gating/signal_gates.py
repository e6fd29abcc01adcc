"""Gates on signals (algebra): headroom of any signal in its bounds, which of all fire (S2.15).

One row of `gates.GATES`, `signals`, stands for the gates on all signals and for those of the user
(S2.18): it says where in the order they are judged. They share two outcomes, one that refuses and
one that asks back, so that outcomes do not grow with the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import measured_values
from raglab.gating.headroom import headroom, switched
from raglab.gating.own_margins import USER_GATES_SECTION, OwnThresholds
from raglab.signals import SignalSet
from raglab.values import Bools, Floats

# what decides where a gate on a signal refuses, or asks back
SIGNALS = "signals"
SIGNALS_ASK = "signals_ask"
MIN_OPTIONS = 2  # to ask back at all (rule S3.5)


class SignalThresholds(NamedTuple):
    """Of the gate on one signal (rule S2.15), scalars or [P, 1]: NaN where a bound is not set.

    What it does on fire.
    """

    min: Floats = np.nan
    max: Floats = np.nan
    refuses: Bools = True
    asks: Bools = False
    on: Bools = True


class UserThresholds(NamedTuple):
    """Thresholds of the gates on signals and of those of the user, by name."""

    signals: Mapping[str, SignalThresholds]
    own: Mapping[str, OwnThresholds]


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
    signal_margin: Any = np.inf
    for bound_values, is_floor in ((thresholds.min, True), (thresholds.max, False)):
        is_set = ~np.isnan(bound_values)
        if np.any(is_set):  # most gates set one bound: no pass over the cases for the other
            operands = (value, bound_values) if is_floor else (bound_values, value)
            signal_margin = np.minimum(signal_margin, headroom(*operands, is_set))
    if missing_passes:
        signal_margin = np.where(np.isnan(value), np.inf, signal_margin)
    return SignalMargins(signal=switched(signal_margin, thresholds.on))


class UserMargin(NamedTuple):
    """Headroom of a gate on a signal or of the user, by its name, and what it does on fire."""

    name: str
    refuses: Bools
    asks: Bools
    margin: Floats


def user_margins(read: Callable[[str], Any], thresholds: UserThresholds) -> Iterator[UserMargin]:
    """Headroom of each gate on a signal, then of the user, that does more than warn.

    Args:
      read: measurement by its name; `known` are the signals that there are.
      thresholds: of each gate that some policy has.

    Source: rules S2.15, S2.18.
    """
    signal_set: SignalSet = read("known")
    for signal_name, signal_thresholds in thresholds.signals.items():
        if is_gated(signal_thresholds) and np.any(
            signal_thresholds.refuses | signal_thresholds.asks
        ):
            missing_passes = signal_set.signal(signal_name).missing == "passes"
            section_path = signal_path(signal_name)
            (signal_margin,) = signal_margins(
                read(section_path), signal_thresholds, missing_passes=missing_passes
            )
            yield UserMargin(
                section_path, signal_thresholds.refuses, signal_thresholds.asks, signal_margin
            )
    for user_gate in thresholds.own.values():
        if user_gate.firing != "warn":
            gate_refuses = user_gate.firing == "refuse"
            yield UserMargin(
                f"{USER_GATES_SECTION}.{user_gate.name}",
                gate_refuses,
                not gate_refuses,
                user_gate.headroom(read),
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
    refusing_margin: Any = np.inf
    asking_margin: Any = np.inf
    for gate_margin in user_margins(read, thresholds):
        # no pass over the cases where none refuses, or none asks
        if np.any(gate_margin.refuses):
            refusing_margin = np.minimum(
                refusing_margin, switched(gate_margin.margin, gate_margin.refuses)
            )
        if np.any(gate_margin.asks):
            asking_margin = np.minimum(
                asking_margin, switched(gate_margin.margin, gate_margin.asks)
            )
    if np.ndim(asking_margin) == 0 and asking_margin == np.inf:  # nobody asks
        return SignalsMargins(refusing_margin, asking_margin)
    can_ask = np.greater_equal(read("n_options_all"), MIN_OPTIONS)
    return SignalsMargins(
        np.minimum(refusing_margin, switched(asking_margin, ~can_ask)),
        switched(asking_margin, can_ask),
    )
