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
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raglab.gates import Firing, Side, Threshold, meets_threshold
from raglab.gating.own_margins import USER_GATES_SECTION, OwnThresholds, own_margin
from raglab.signals import BUILT_IN, MAX_TEXT_CHARACTERS, SIGNAL_NAME_RULE, Unit, is_name, unit_of
from raglab.values import BoolArray, FloatArray, Floats, IntArray, PlaceArray, refuse

# Measurements that a gate of the user may read beside signals: of the question, of all hits, and of
# the chosen ones.
OF_QUESTION = ("words", "denied", "allowed", "explicit")
OF_HITS = ("n_hits", "best_l2", "top1", "n_groups", "n_options_all", "fused")
OF_CHOSEN = ("missing", "share")
MOST_NUMBER = 1e300  # that a threshold may be, so that no difference of two overflows
_Finite = Annotated[float, Field(strict=True, ge=-MOST_NUMBER, le=MOST_NUMBER, allow_inf_nan=False)]
# share by which headroom at two values of a threshold may differ and count as equal
_ROUNDING = 1e-9
Margin = Callable[[Callable[[str], Any], Any], Floats]


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
    margins: Margin
    version: str

    @property
    def path(self) -> str:
        """Its section of a policy."""
        return f"{USER_GATES_SECTION}.{self.name}"

    @property
    def signals(self) -> tuple[str, ...]:
        """Signals that it reads, built-in ones as well."""
        known = {signal.name for signal in BUILT_IN}
        named = (
            measurement.removeprefix("signals.")
            for measurement in self.reads
            if measurement.startswith("signals.") or measurement in known
        )
        return tuple(dict.fromkeys(named))


REGISTERED: dict[str, OwnGate] = {}  # gates of this process, by name


def register_gate(
    name: str | None = None,
    *,
    thresholds: Mapping[str, Mapping[str, Any]],
    reads: Sequence[str],
    on_fire: str = "refuse",
    version: str = "1",
) -> Callable[[Margin], Margin]:
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
      >>> del REGISTERED["fresh"]
    """

    def register(function: Margin) -> Margin:
        # The name becomes a section of policy files and a value of columns, so it must be plain.
        own = name if name is not None else getattr(function, "__name__", "")
        if not is_name(own):
            refuse(f"a gate's name must be {SIGNAL_NAME_RULE}", repr(str(own)[:80]), "rename it")
        if on_fire not in get_args(Firing):
            rule = f"on_fire of gate {own} must be one of {', '.join(get_args(Firing))}"
            refuse(rule, repr(str(on_fire)[:80]), "correct it")
        # A misspelt name would read as missing in every case, and missing never passes.
        listed = isinstance(reads, Sequence) and not isinstance(reads, str)
        wrong = [name for name in reads if not _is_measurement(name)] if listed else [reads]
        if wrong or not reads:
            known = ", ".join((*OF_QUESTION, *OF_HITS, *OF_CHOSEN))
            rule = f"gate {own} must read signals in a list, signals.<name> or one of {known}"
            refuse(rule, repr(str([*wrong, reads][0])[:80]), "correct reads")
        if not isinstance(thresholds, Mapping):
            rule = f"thresholds of gate {own} must be a mapping of key to side, default and unit"
            refuse(rule, repr(str(thresholds)[:80]), "write {} for none")
        if not callable(function):
            kind = type(function).__name__
            msg = f"gate {own} must be a function of read and thresholds, got a {kind}."
            raise TypeError(msg)
        firing: Any = on_fire
        rows = tuple(_threshold(own, key, stated) for key, stated in thresholds.items())
        # last, so that a gate that is refused leaves nothing behind
        REGISTERED[own] = OwnGate(
            own, rows, tuple(reads), firing, function, str(version)[:MAX_TEXT_CHARACTERS]
        )
        return function

    return register


def _is_measurement(name: object) -> bool:
    """Whether a gate may read it."""
    if not isinstance(name, str):
        return False
    section, _, own = name.partition(".")
    return (section == "signals" and is_name(own)) or name in (*OF_QUESTION, *OF_HITS, *OF_CHOSEN)


class _Declared(BaseModel):
    """A threshold as it is declared; a number of 64 bits, of which no difference overflows."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    side: Side
    default: _Finite
    unit: Any = "number"  # checked by `unit_of`
    low: _Finite | None = None
    high: _Finite | None = None


def _threshold(gate: str, key: str, stated: object) -> Threshold:
    """A threshold as it is registered."""
    # The function reads it as `thresholds.<key>`, which a word of Python's grammar cannot be.
    if not is_name(key) or key in {"enabled", "on"} or keyword.iskeyword(key):
        rule = f"a threshold of gate {gate} must be named by {SIGNAL_NAME_RULE}"
        refuse(f"{rule}, no keyword of Python", repr(str(key)[:80]), "rename it")
    try:
        row = _Declared.model_validate(stated)
    except ValidationError as error:
        problem = error.errors()[0]
        path = ".".join(map(str, (gate, key, *problem["loc"][:1])))
        rule = "a threshold states side and default, and may state unit, low and high"
        refuse(f"{path}: {problem['msg']}", repr(problem["input"])[:80], rule)
    unit = unit_of(row.unit)
    low, high = (
        (unit.low if row.low is None else row.low),
        (unit.high if row.high is None else row.high),
    )
    if not low <= row.default <= high or not np.isfinite([low, high]).all():
        rule = f"default of {gate}.{key} must lie in [{low:g}, {high:g}]"
        refuse(rule, f"{row.default:g}", "state low and high")
    path = f"{USER_GATES_SECTION}.{gate}.{key}"
    ranged = Unit(unit.name, low, high, note=unit.note)
    return Threshold(path, row.side, ranged, path, default=row.default)


def own_gate(name: str) -> OwnGate:
    """A gate of the user by its name.

    Raises:
      ValueError: this process has registered none of that name; says how to get it.
    """
    if name not in REGISTERED:
        there = ", ".join(sorted(REGISTERED)) or "none"
        rule = f"gate gates.{name} of a policy must be registered in this process"
        refuse(rule, there, "import the module that registers it")
    return REGISTERED[name]


def section_error(name: str, stated: Mapping[str, Any]) -> str:
    """Error in a gate's section of a policy.

    Empty where there is none, or where no such gate is registered.

    Args:
      stated: `enabled`, and thresholds by key.
    """
    if name not in REGISTERED:
        return ""
    rows = {threshold.key: threshold for threshold in REGISTERED[name].thresholds}
    for key in [key for key in stated if key != "enabled"]:
        if key not in rows:
            known = ", ".join(rows) or "none"
            return f"gate {name} must state thresholds among {known}, got {str(key)[:80]!r}"
        low, high = rows[key].low, rows[key].high
        if not low <= stated[key] <= high:
            return f"{name}.{key} must lie in [{low:g}, {high:g}], {stated[key]:g} does not"
    return ""


def own_thresholds(name: str, sections: Sequence[Mapping[str, Any] | None]) -> OwnThresholds:
    """Thresholds of a gate in many policies, [P, 1] each; off in a policy that does not state it.

    Raises:
      ValueError: it is not registered.
    """
    gate = own_gate(name)

    values = [
        np.array([(row or {}).get(each.key, each.default) for row in sections], np.float64)[:, None]
        for each in gate.thresholds
    ]
    on = np.array([row is not None and row.get("enabled", True) for row in sections], np.bool_)
    keys = tuple(threshold.key for threshold in gate.thresholds)
    form: Any = namedtuple("OwnValues", keys)  # type: ignore[misc]  # noqa: PYI024
    return OwnThresholds(name, gate.firing, gate.margins, gate.reads, form(*values), on[:, None])


def check_direction(thresholds: OwnThresholds, read: Callable[[str], Any]) -> None:
    """Stop at a gate whose headroom moves against the side of one of its thresholds.

    Headroom is compared at both ends of each threshold's range and at the least and greatest value
    in force, all other thresholds as in the first policy whose gate is on. A gate that is off in
    all policies, or decides nothing, is not called.

    Args:
      thresholds: of many policies, [P, 1] each.
      read: measurement by its name, of the cases at hand.

    Raises:
      ValueError: headroom of a case rises with a floor or falls with a ceiling; or see
        `own_margin`.

    Source: rule S2.18.
    """
    on = np.flatnonzero(thresholds.on)
    if thresholds.firing == "warn" or not len(on):
        return
    first = thresholds.rows(slice(int(on[0]), int(on[0]) + 1))
    for row in own_gate(thresholds.name).thresholds:
        stated = getattr(thresholds.values, row.key)[on]
        points = sorted({row.low, float(stated.min()), float(stated.max()), row.high})
        with np.errstate(all="ignore"):  # a logarithm of the low end is no concern of the caller
            margins = [
                np.asarray(
                    own_margin(
                        replace(
                            first, values=first.values._replace(**{row.key: np.full((1, 1), at)})
                        ),
                        read,
                    )
                )
                for at in points
            ]
        _check_side(thresholds.name, row, points, np.broadcast_arrays(*margins))


def _check_side(
    gate: str, row: Threshold, points: Sequence[float], margins: Sequence[NDArray[Any]]
) -> None:
    """Stop where headroom at rising threshold values, an array a value, moves against its side."""
    must, opposite = ("fall", "ceiling") if row.side == "floor" else ("rise", "floor")
    sign = -1.0 if row.side == "floor" else 1.0
    right = False  # whether it moves as its side says anywhere
    wrong: list[tuple[int, int, BoolArray]] = []
    for first, second in combinations(range(len(points)), 2):
        before, after = sign * margins[first], sign * margins[second]
        # where it is missing it neither rises nor falls
        moves = ~np.isclose(before, after, rtol=_ROUNDING, atol=0.0, equal_nan=True)
        right |= bool((moves & (after > before)).any())
        wrong.append((first, second, moves & (after < before)))
    first, second, against = max(wrong, key=lambda pair: bool(pair[2].any()))
    if not against.any():
        return
    at = np.unravel_index(int(np.argmax(against)), against.shape)
    remedy = f"state side: {opposite}, or swap the subtraction"
    if right:
        remedy = f"it moves both ways: return headroom that can only {must} as {row.key} rises"
    refuse(
        f"headroom of gate {gate} must {must} as {row.path} rises, which is a {row.side}",
        f"{margins[first][at]:g} at {points[first]:g} and {margins[second][at]:g} at "
        f"{points[second]:g} ({int(against.sum()):,} of {against.size:,} measurements)",
        remedy,
    )


def critical_values(
    gate: OwnGate,
    key: str,
    thresholds: OwnThresholds,
    read: Callable[[str], Any],
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
    row = next(threshold for threshold in gate.thresholds if threshold.key == key)
    near, far = (row.low, row.high) if row.side == "floor" else (row.high, row.low)

    def margin(value: Any, measured: Callable[[str], Any]) -> Any:  # noqa: ANN401 - floats
        return own_margin(
            replace(thresholds, values=thresholds.values._replace(**{key: value})), measured
        )

    passing, failing = (
        np.broadcast_to(margin(np.full(shape, end), read), shape) for end in (near, far)
    )
    changing = np.nonzero(meets_threshold(passing) & ~meets_threshold(failing))

    def passes(value: FloatArray, cases: PlaceArray) -> BoolArray:
        places = tuple(axis[cases] for axis in changing)

        def measured(name: str) -> Any:  # noqa: ANN401 - an array or a bool
            every = read(name)
            return np.broadcast_to(every, shape)[places] if np.ndim(every) else every

        still: BoolArray = np.broadcast_to(
            meets_threshold(margin(value, measured)), (1, len(value))
        )[0]
        return still

    critical = np.full(shape, np.nan)
    critical[changing] = last_passing(passes, near, far, len(changing[0]))
    return critical


def last_passing(
    passes: Callable[[FloatArray, PlaceArray], BoolArray],
    near: float,
    far: float,
    size: int,
) -> FloatArray:
    """Last value on the way from one range end to the other where each case still passes, [N].

    All pass at `near`, none at `far`, and once each in between changes. The ordered bit patterns of
    floats are halved, so that the value is exact after at most 64 calls; a case that is found is
    asked no more.

    Args:
      passes: of values [M] at positions of cases [M], whether each passes.
      size: cases, N.

    Example:
      >>> last_passing(lambda value, _: value * 3.0 <= 1.0, 0.0, 1.0, 1).item() * 3.0
      1.0
    """
    toward = 1 if far > near else -1
    first, last = (_ordered(np.full(size, end)) for end in (near, far))
    while len(cases := np.flatnonzero(first + toward != last)):
        middle = _middle(first[cases], last[cases])
        still = passes(_float(middle), cases)
        first[cases] = np.where(still, middle, first[cases])
        last[cases] = np.where(still, last[cases], middle)
    return _float(first)


def _middle(low: IntArray, high: IntArray) -> IntArray:
    """Mean of two integers, rounded down; no sum overflows."""
    return (low >> 1) + (high >> 1) + (low & high & 1)


def _ordered(values: FloatArray) -> IntArray:
    """Bits of floats as integers that order as the floats do."""
    bits = values.view(np.int64)
    return np.where(bits >= 0, bits, -(bits & np.int64(2**63 - 1)))


def _float(ordered: IntArray) -> FloatArray:
    """Floats of such integers."""
    bits = np.where(ordered >= 0, ordered, np.bitwise_or(-ordered, np.int64(-(2**63))))
    return bits.astype(np.int64).view(np.float64)
