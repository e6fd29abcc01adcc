"""Gates of the user (algebra): a margin function, registered with thresholds and units (S2.18).

A gate of one's own is a function of measurements and thresholds that returns headroom, >= 0 where
it passes. A policy holds its thresholds, `gates.<name>.<threshold>`; no code travels in it, so that
a policy with a gate that this process has not registered is refused.
"""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Annotated, Any, NamedTuple, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raglab.gates import Side, Threshold, meets_threshold
from raglab.gating.own_margins import USER_GATES_SECTION, OwnThresholds, own_margin
from raglab.signals import (
    BUILT_IN,
    MAX_TEXT_CHARACTERS,
    SIGNAL_NAME_RULE,
    Firing,
    Unit,
    is_name,
    unit_of,
)
from raglab.values import AnyArray, BoolArray, FloatArray, Floats, IntArray, PlaceArray, refuse

# Measurements that a gate of the user may read besides signals: of the question, of all hits, and
# of the chosen ones.
QUESTION_MEASUREMENTS = ("words", "denied", "allowed", "explicit")
HIT_MEASUREMENTS = ("n_hits", "best_l2", "top1", "n_groups", "n_options_all", "fused")
CHOSEN_MEASUREMENTS = ("missing", "share")
MAX_THRESHOLD = 1e300  # that a threshold may be, so that no difference of two overflows
_FiniteNumber = Annotated[
    float, Field(strict=True, ge=-MAX_THRESHOLD, le=MAX_THRESHOLD, allow_inf_nan=False)
]
# share by which headroom at two values of a threshold may differ and count as equal
_HEADROOM_TOLERANCE = 1e-9
MarginFunction = Callable[[Callable[[str], Any], Any], Floats]


class OwnGate(NamedTuple):
    """A gate of the user.

    name: `gates.<name>` in a policy. thresholds: paths `gates.<name>.<key>`, the default of each in
    `default`. reads: measurements and signals. firing: what it does where it fires. margins: from
    measurements by name and its thresholds by key to headroom, >= 0 where the gate passes. version:
    of the function.
    """

    name: str
    thresholds: tuple[Threshold, ...]
    reads: tuple[str, ...]
    firing: Firing
    margins: MarginFunction
    version: str

    @property
    def path(self) -> str:
        """Its section of a policy."""
        return f"{USER_GATES_SECTION}.{self.name}"

    @property
    def signals(self) -> tuple[str, ...]:
        """Signals that it reads, built-in ones as well."""
        built_in_names = {signal.name for signal in BUILT_IN}
        signal_names = (
            measurement.removeprefix("signals.")
            for measurement in self.reads
            if measurement.startswith("signals.") or measurement in built_in_names
        )
        return tuple(dict.fromkeys(signal_names))


REGISTERED_GATES: dict[str, OwnGate] = {}  # gates of this process, by name


def register_gate(
    name: str | None = None,
    *,
    thresholds: Mapping[str, Mapping[str, Any]],
    reads: Sequence[str],
    on_fire: str = "refuse",
    version: str = "1",
) -> Callable[[MarginFunction], MarginFunction]:
    """Register a gate of your own; decorates its margin function.

    The function gets `read`, which gives a measurement by its name as a scalar or array [Q], and
    its thresholds by key, scalars or [P, 1]. Both are read-only. It returns headroom, a real number
    or an array of the shape of both, >= 0 where the gate passes; NaN fires. Anything else is an
    error that names the gate, and so is what it raises. Headroom must fall as a `floor` rises and
    rise with a `ceiling`, so that steps and flips of it are exact; where a policy is replayed,
    `check_direction` stops at a gate of another direction.

    Args:
      name: the function's where not given; a small letter, then small letters, digits and
        underscores.
      thresholds: key -> `side` (`floor` passes at or above, `ceiling` at or below), `default`,
        `unit` (as of a signal) and, where the unit has no range, `low` and `high`.
      reads: names of what it reads: any signal as `signals.<name>`, or one of `OF_QUESTION`,
        `OF_HITS`, `OF_CHOSEN`.
      on_fire: `refuse`, `ask` or `warn`.
      version: to be raised with every change of the function.

    Raises:
      ValueError: an argument that is none of those.

    Source: rule S2.18.

    Example:
      >>> @register_gate(
      ...     thresholds={"max_age": {"side": "ceiling", "default": 365.0, "unit": "days"}},
      ...     reads=["signals.age"],
      ... )
      ... def fresh(read, thresholds):
      ...     return thresholds.max_age - read("signals.age")
      >>> own_gate("fresh").thresholds[0].path
      'gates.fresh.max_age'
      >>> del REGISTERED_GATES["fresh"]
    """

    def register_margin(function: MarginFunction) -> MarginFunction:
        # The name becomes a section of policy files and a value of columns, so it must be plain.
        gate_name = name if name is not None else getattr(function, "__name__", "")
        if not is_name(gate_name):
            refuse(
                f"a gate's name must be {SIGNAL_NAME_RULE}", repr(str(gate_name)[:80]), "rename it"
            )
        if on_fire not in get_args(Firing):
            refuse(
                f"on_fire of gate {gate_name} must be one of {', '.join(get_args(Firing))}",
                repr(str(on_fire)[:80]),
                "correct it",
            )
        # A misspelt name would read as missing in every case, and missing never passes.
        is_listed = isinstance(reads, Sequence) and not isinstance(reads, str)
        unknown_reads = (
            [name for name in reads if not _is_measurement(name)] if is_listed else [reads]
        )
        if unknown_reads or not reads:
            known_names = ", ".join(
                (*QUESTION_MEASUREMENTS, *HIT_MEASUREMENTS, *CHOSEN_MEASUREMENTS)
            )
            refuse(
                (
                    f"gate {gate_name} must read signals in a list, signals.<name> or one of "
                    f"{known_names}"
                ),
                repr(str([*unknown_reads, reads][0])[:80]),
                "correct reads",
            )
        if not isinstance(thresholds, Mapping):
            refuse(
                f"thresholds of gate {gate_name} must be a mapping "
                "of key to side, default and unit",
                repr(str(thresholds)[:80]),
                "write {} for none",
            )
        if not callable(function):
            type_name = type(function).__name__
            message = (
                f"gate {gate_name} must be a function of read and thresholds, got a {type_name}."
            )
            raise TypeError(message)
        firing: Any = on_fire
        gate_thresholds = tuple(
            _threshold(gate_name, threshold_key, declaration)
            for threshold_key, declaration in thresholds.items()
        )
        # last, so that a gate that is refused leaves nothing behind
        REGISTERED_GATES[gate_name] = OwnGate(
            gate_name,
            gate_thresholds,
            tuple(reads),
            firing,
            function,
            str(version)[:MAX_TEXT_CHARACTERS],
        )
        return function

    return register_margin


def _is_measurement(read_name: object) -> bool:
    """Whether a gate may read it."""
    if not isinstance(read_name, str):
        return False
    section_name, _, signal_name = read_name.partition(".")
    return (section_name == "signals" and is_name(signal_name)) or read_name in (
        *QUESTION_MEASUREMENTS,
        *HIT_MEASUREMENTS,
        *CHOSEN_MEASUREMENTS,
    )


class _Declared(BaseModel):
    """A threshold as it is declared; a number of 64 bits, of which no difference overflows."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    side: Side
    default: _FiniteNumber
    unit: Any = "number"  # checked by `unit_of`
    low: _FiniteNumber | None = None
    high: _FiniteNumber | None = None


def _threshold(gate_name: str, threshold_key: str, declaration: object) -> Threshold:
    """A threshold as it is registered."""
    # The function reads it as `thresholds.<key>`, which a word of Python's grammar cannot be.
    if (
        not is_name(threshold_key)
        or threshold_key in {"enabled", "on"}
        or keyword.iskeyword(threshold_key)
    ):
        requirement = f"a threshold of gate {gate_name} must be named by {SIGNAL_NAME_RULE}"
        refuse(f"{requirement}, no keyword of Python", repr(str(threshold_key)[:80]), "rename it")
    try:
        declared_threshold = _Declared.model_validate(declaration)
    except ValidationError as error:
        first_error = error.errors()[0]
        threshold_path = ".".join(map(str, (gate_name, threshold_key, *first_error["loc"][:1])))
        refuse(
            f"{threshold_path}: {first_error['msg']}",
            repr(first_error["input"])[:80],
            "a threshold states side and default, and may state unit, low and high",
        )
    declared_unit = unit_of(declared_threshold.unit)
    lower_bound = declared_unit.low if declared_threshold.low is None else declared_threshold.low
    upper_bound = declared_unit.high if declared_threshold.high is None else declared_threshold.high
    if (
        not lower_bound <= declared_threshold.default <= upper_bound
        or not np.isfinite([lower_bound, upper_bound]).all()
    ):
        refuse(
            f"default of {gate_name}.{threshold_key} must lie "
            f"in [{lower_bound:g}, {upper_bound:g}]",
            f"{declared_threshold.default:g}",
            "state low and high",
        )
    threshold_path = f"{USER_GATES_SECTION}.{gate_name}.{threshold_key}"
    bounded_unit = Unit(declared_unit.name, lower_bound, upper_bound, note=declared_unit.note)
    return Threshold(
        threshold_path,
        declared_threshold.side,
        bounded_unit,
        threshold_path,
        default=declared_threshold.default,
    )


def own_gate(name: str) -> OwnGate:
    """A gate of the user by its name.

    Raises:
      ValueError: this process has registered none of that name; says how to get it.
    """
    if name not in REGISTERED_GATES:
        registered_names = ", ".join(sorted(REGISTERED_GATES)) or "none"
        refuse(
            f"gate gates.{name} of a policy must be registered in this process",
            registered_names,
            "import the module that registers it",
        )
    return REGISTERED_GATES[name]


def section_error(gate_name: str, gate_section: Mapping[str, Any]) -> str:
    """Error in a gate's section of a policy.

    Empty where there is none, or where no such gate is registered.

    Args:
      gate_section: `enabled`, and thresholds by key.
    """
    if gate_name not in REGISTERED_GATES:
        return ""
    threshold_by_key = {
        threshold.key: threshold for threshold in REGISTERED_GATES[gate_name].thresholds
    }
    for threshold_key in [
        threshold_key for threshold_key in gate_section if threshold_key != "enabled"
    ]:
        if threshold_key not in threshold_by_key:
            known_keys = ", ".join(threshold_by_key) or "none"
            return (
                f"gate {gate_name} must state thresholds among {known_keys}, got "
                f"{str(threshold_key)[:80]!r}"
            )
        lower_bound = threshold_by_key[threshold_key].low
        upper_bound = threshold_by_key[threshold_key].high
        if not lower_bound <= gate_section[threshold_key] <= upper_bound:
            return (
                f"{gate_name}.{threshold_key} must lie in [{lower_bound:g}, {upper_bound:g}], "
                f"{gate_section[threshold_key]:g} does not"
            )
    return ""


def own_thresholds(
    gate_name: str, policy_sections: Sequence[Mapping[str, Any] | None]
) -> OwnThresholds:
    """Thresholds of a gate in many policies, [P, 1] each; off in a policy that does not state it.

    Raises:
      ValueError: it is not registered.
    """
    registered_gate = own_gate(gate_name)

    threshold_columns = [
        np.array(
            [
                (policy_section or {}).get(gate_threshold.key, gate_threshold.default)
                for policy_section in policy_sections
            ],
            np.float64,
        )[:, None]
        for gate_threshold in registered_gate.thresholds
    ]
    is_on = np.array(
        [
            policy_section is not None and policy_section.get("enabled", True)
            for policy_section in policy_sections
        ],
        np.bool_,
    )
    threshold_keys = tuple(threshold.key for threshold in registered_gate.thresholds)
    values_type: Any = namedtuple("OwnValues", threshold_keys)  # type: ignore[misc]  # noqa: PYI024
    return OwnThresholds(
        gate_name,
        registered_gate.firing,
        registered_gate.margins,
        registered_gate.reads,
        values_type(*threshold_columns),
        is_on[:, None],
    )


def check_direction(thresholds: OwnThresholds, read_measurement: Callable[[str], Any]) -> None:
    """Stop at a gate whose headroom moves against the side of one of its thresholds.

    Headroom is compared at both ends of each threshold's range and at the least and greatest value
    in force, all other thresholds as in the first policy whose gate is on. A gate that is off in
    all policies, or decides nothing, is not called.

    Args:
      thresholds: of many policies, [P, 1] each.
      read_measurement: measurement by its name, of the cases.

    Raises:
      ValueError: headroom of a case rises with a floor or falls with a ceiling; or see
        `own_margin`.

    Source: rule S2.18.
    """
    active_policies = np.flatnonzero(thresholds.on)
    if thresholds.firing == "warn" or not len(active_policies):
        return
    first_thresholds = thresholds.rows(slice(int(active_policies[0]), int(active_policies[0]) + 1))
    for gate_threshold in own_gate(thresholds.name).thresholds:
        policy_values = getattr(thresholds.values, gate_threshold.key)[active_policies]
        tested_values = sorted(
            {
                gate_threshold.low,
                float(policy_values.min()),
                float(policy_values.max()),
                gate_threshold.high,
            }
        )
        with np.errstate(all="ignore"):  # a logarithm of the low end is no concern of the caller
            point_margins = [
                np.asarray(
                    own_margin(
                        replace(
                            first_thresholds,
                            values=first_thresholds.values._replace(
                                **{gate_threshold.key: np.full((1, 1), tested_value)}
                            ),
                        ),
                        read_measurement,
                    )
                )
                for tested_value in tested_values
            ]
        _check_side(
            thresholds.name, gate_threshold, tested_values, np.broadcast_arrays(*point_margins)
        )


def _check_side(
    gate_name: str,
    gate_threshold: Threshold,
    tested_values: Sequence[float],
    point_margins: Sequence[AnyArray],
) -> None:
    """Stop where headroom at rising threshold values, an array a value, moves against its side."""
    required_move, opposite_side = (
        ("fall", "ceiling") if gate_threshold.side == "floor" else ("rise", "floor")
    )
    sign = -1.0 if gate_threshold.side == "floor" else 1.0
    moves_right = False  # whether it moves as its side says anywhere
    wrong_moves: list[tuple[int, int, BoolArray]] = []
    for first_index, second_index in combinations(range(len(tested_values)), 2):
        earlier_margin = sign * point_margins[first_index]
        later_margin = sign * point_margins[second_index]
        # where it is missing it neither rises nor falls
        is_moving = ~np.isclose(
            earlier_margin, later_margin, rtol=_HEADROOM_TOLERANCE, atol=0.0, equal_nan=True
        )
        moves_right |= bool((is_moving & (later_margin > earlier_margin)).any())
        wrong_moves.append((first_index, second_index, is_moving & (later_margin < earlier_margin)))
    first_index, second_index, moves_against = max(
        wrong_moves, key=lambda wrong_pair: bool(wrong_pair[2].any())
    )
    if not moves_against.any():
        return
    worst_index = np.unravel_index(int(np.argmax(moves_against)), moves_against.shape)
    remedy = f"state side: {opposite_side}, or swap the subtraction"
    if moves_right:
        remedy = (
            f"it moves both ways: return headroom that can only {required_move} as "
            f"{gate_threshold.key} rises"
        )
    refuse(
        f"headroom of gate {gate_name} must {required_move} as {gate_threshold.path} rises, "
        f"which is a {gate_threshold.side}",
        f"{point_margins[first_index][worst_index]:g} at {tested_values[first_index]:g} and "
        f"{point_margins[second_index][worst_index]:g} at "
        f"{tested_values[second_index]:g} ({int(moves_against.sum()):,} of "
        f"{moves_against.size:,} measurements)",
        remedy,
    )


def critical_values(
    gate: OwnGate,
    threshold_key: str,
    thresholds: OwnThresholds,
    read_measurement: Callable[[str], Any],
    shape: tuple[int, ...],
) -> FloatArray:
    """Value of a threshold up to which a floor passes, or from which a ceiling does, [...].

    NaN where none decides.

    Headroom falls as a floor rises, so there is one such number, found by `last_passing` between
    the ends of the range.

    Args:
      thresholds: the other thresholds, of one policy.
      shape: of the cases.

    Source: rule S2.18.
    """
    varied_threshold = next(
        threshold for threshold in gate.thresholds if threshold.key == threshold_key
    )
    passing_end, failing_end = (
        (varied_threshold.low, varied_threshold.high)
        if varied_threshold.side == "floor"
        else (varied_threshold.high, varied_threshold.low)
    )

    def margin_at(threshold_values: Any, read_values: Callable[[str], Any]) -> Any:  # noqa: ANN401 - floats
        return own_margin(
            replace(
                thresholds, values=thresholds.values._replace(**{threshold_key: threshold_values})
            ),
            read_values,
        )

    passing, failing = (
        np.broadcast_to(margin_at(np.full(shape, range_end), read_measurement), shape)
        for range_end in (passing_end, failing_end)
    )
    changing_cases = np.nonzero(meets_threshold(passing) & ~meets_threshold(failing))

    def passes(threshold_values: FloatArray, case_indices: PlaceArray) -> BoolArray:
        case_positions = tuple(axis_indices[case_indices] for axis_indices in changing_cases)

        def read_changing(measurement_name: str) -> Any:  # noqa: ANN401 - an array or a bool
            all_values = read_measurement(measurement_name)
            return (
                np.broadcast_to(all_values, shape)[case_positions]
                if np.ndim(all_values)
                else all_values
            )

        still_passes: BoolArray = np.broadcast_to(
            meets_threshold(margin_at(threshold_values, read_changing)), (1, len(threshold_values))
        )[0]
        return still_passes

    critical_points = np.full(shape, np.nan)
    critical_points[changing_cases] = last_passing(
        passes, passing_end, failing_end, len(changing_cases[0])
    )
    return critical_points


def last_passing(
    passes: Callable[[FloatArray, PlaceArray], BoolArray],
    passing_end: float,
    failing_end: float,
    n_cases: int,
) -> FloatArray:
    """Last value on the way from one range end to the other where each case still passes, [N].

    All pass at `passing_end`, none at `failing_end`, and once each in between changes. The ordered
    bit patterns of floats are halved, so that the value is exact after at most 64 calls; a case
    that is found is asked no more.

    Args:
      passes: of values [M] at positions of cases [M], whether each passes.
      n_cases: cases, N.

    Example:
      >>> last_passing(lambda value, _: value * 3.0 <= 1.0, 0.0, 1.0, 1).item() * 3.0
      1.0
    """
    step_sign = 1 if failing_end > passing_end else -1
    last_passing_bits, first_failing_bits = (
        _ordered(np.full(n_cases, range_end)) for range_end in (passing_end, failing_end)
    )
    while len(open_cases := np.flatnonzero(last_passing_bits + step_sign != first_failing_bits)):
        middle_bits = _middle(last_passing_bits[open_cases], first_failing_bits[open_cases])
        still_passes = passes(_float(middle_bits), open_cases)
        last_passing_bits[open_cases] = np.where(
            still_passes, middle_bits, last_passing_bits[open_cases]
        )
        first_failing_bits[open_cases] = np.where(
            still_passes, first_failing_bits[open_cases], middle_bits
        )
    return _float(last_passing_bits)


def _middle(lower_bits: IntArray, upper_bits: IntArray) -> IntArray:
    """Mean of two integers, rounded down; no sum overflows."""
    return (lower_bits >> 1) + (upper_bits >> 1) + (lower_bits & upper_bits & 1)


def _ordered(float_values: FloatArray) -> IntArray:
    """Bits of floats as integers that order as the floats do."""
    float_bits = float_values.view(np.int64)
    return np.where(float_bits >= 0, float_bits, -(float_bits & np.int64(2**63 - 1)))


def _float(ordered_bits: IntArray) -> FloatArray:
    """Floats of such integers."""
    float_bits = np.where(
        ordered_bits >= 0, ordered_bits, np.bitwise_or(-ordered_bits, np.int64(-(2**63)))
    )
    return float_bits.astype(np.int64).view(np.float64)
