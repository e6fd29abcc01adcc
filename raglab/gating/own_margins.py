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
from raglab.signals import MAX_TEXT_CHARACTERS
from raglab.words.characters import visible

USER_GATES_SECTION = "gates"  # section of a policy that holds the gates of the user


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


GATE_REMEDY = "correct the function, or take the gate out of the policy"
COPY_REMEDY = "what a gate reads is read-only: take a copy first, as in numpy.array(read(name))"
# in what NumPy says of a write to an array that is read-only
_WRITE_ERROR = re.compile("read-?only|WRITEABLE")


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
    read_shapes = [np.shape(threshold_values) for threshold_values in thresholds.values]

    def measured(name: str) -> Any:  # noqa: ANN401 - scalar or array
        if name not in thresholds.reads:
            message = (
                f"it must read only what its `reads` lists, {', '.join(thresholds.reads)}, got "
                f"{str(name)[:80]!r}"
            )
            raise ValueError(message)
        threshold_values = read(name)
        read_shapes.append(np.shape(threshold_values))
        return _own_view(threshold_values)

    try:
        with np.errstate():  # what the function sets of NumPy holds within it alone
            returned_margin = thresholds.margins(
                measured, type(thresholds.values)(*map(_own_view, thresholds.values))
            )
    except Exception as error:
        raised_text = visible(format_exception_only(error)[0].strip())[:MAX_TEXT_CHARACTERS]
        raise _no_headroom(
            thresholds.name,
            raised_text,
            COPY_REMEDY if _WRITE_ERROR.search(raised_text) else GATE_REMEDY,
        ) from error
    return _checked_margin(thresholds.name, returned_margin, np.broadcast_shapes(*read_shapes))


def _own_view(array_or_scalar: Any) -> Any:  # noqa: ANN401 - scalar or array
    """A read-only view of its own, whose shape may be changed; a scalar as it is."""
    return (
        read_only(array_or_scalar).view()
        if isinstance(array_or_scalar, np.ndarray)
        else array_or_scalar
    )


# any returned value
def _checked_margin(gate_name: str, returned_margin: Any, expected_shape: tuple[int, ...]) -> Any:  # noqa: ANN401
    """What the function of a gate returned, where it is headroom.

    Args:
      expected_shape: of what it read and of its thresholds, broadcast together.

    Raises:
      ValueError: it is no number or array of real numbers, or of another shape.
    """
    problem_text = ""
    remedy = "return an array of floats or a number"
    margin_array = np.asarray(returned_margin)
    if type(returned_margin) is not np.ndarray and not isinstance(
        returned_margin, int | float | np.number
    ):
        problem_text = f"a value of type {type(returned_margin).__name__}"
    elif margin_array.dtype.kind not in "if":
        problem_text = f"numbers of type {margin_array.dtype}"
        if margin_array.dtype.kind == "u":
            problem_text = f"{problem_text}, never below 0"
            remedy = "convert them to float first"
    elif not _fits(margin_array.shape, expected_shape):
        problem_text = f"shape {margin_array.shape} where what it read has {expected_shape}"
        remedy = "compute with what it reads and its thresholds, element by element"
    if problem_text:
        raise _no_headroom(gate_name, problem_text, remedy)
    return returned_margin


def _fits(array_shape: tuple[int, ...], whole_shape: tuple[int, ...]) -> bool:
    """Whether an array of a shape broadcasts to a whole."""
    try:
        return np.broadcast_shapes(whole_shape, array_shape) == whole_shape
    except ValueError:
        return False


def _no_headroom(gate_name: str, problem_text: str, remedy: str) -> ValueError:
    return ValueError(
        f"gate {gate_name} must return headroom, a real number "
        f"a case, got {problem_text}; {remedy}."
    )
