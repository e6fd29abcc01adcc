"""Margins of a gate of the user (algebra): its function, called with read-only views (S2.18)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from traceback import format_exception_only
from typing import Any

import numpy as np

from raglab.arguments.plain_arrays import read_only
from raglab.gating.headroom import switched
from raglab.signals import LONGEST_TEXT
from raglab.words.characters import visible

OWN = "gates"  # section of a policy that holds the gates of the user


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
        return switched(own_margin(self, read), self.on)


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
    got, remedy = "", "return an array of floats or a number"
    numbers = np.asarray(margin)
    if type(margin) is not np.ndarray and not isinstance(margin, int | float | np.number):
        got = f"a value of type {type(margin).__name__}"
    elif numbers.dtype.kind not in "if":
        got = f"numbers of type {numbers.dtype}"
        if numbers.dtype.kind == "u":
            got, remedy = f"{got}, never below 0", "convert them to float first"
    elif not _fits(numbers.shape, shape):
        got = f"shape {numbers.shape} where what it read has {shape}"
        remedy = "compute with what it reads and its thresholds, element by element"
    if got:
        raise _no_headroom(gate, got, remedy)
    return margin


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether an array of a shape broadcasts to a whole."""
    try:
        return np.broadcast_shapes(whole, shape) == whole
    except ValueError:
        return False


def _no_headroom(gate: str, got: str, remedy: str) -> ValueError:
    return ValueError(
        f"gate {gate} must return headroom, a real number a case, got {got}; {remedy}."
    )
