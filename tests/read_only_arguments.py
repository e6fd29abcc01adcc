"""A guard around the algebra.

Every public function gets read-only arrays, whose bytes are the same afterwards.

As a plugin of pytest it holds for all tests: `PYTHONPATH=.:tests pytest -p read_only_arguments
tests/test_gates.py`.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from raglab.arguments.plain_arrays import read_only
from raglab.values import TraceData

ALGEBRA = (
    "gates",
    "gating",
    "policy_parts.own_gates",
    "policy_parts.gate_order",
    "resolver",
    "certify",
    "reward",
    "signals",
    "replaying",
    "replay",
    "decision",
    "metrics",
    "calibration",
    "bandit",
    "off_policy",
    "default_learner",
)
ARRAYS = (
    "NDArray",
    "ArrayLike",
    "Array",
    "Floats",
    "Ints",
    "Bools",
    "Evidence",
    "Margins",
    "Hits",
    "Contest",
    "Groups",
)


def modules():
    """Modules of the algebra."""
    listed = []
    for name in ALGEBRA:
        room = import_module(f"raglab.{name}")
        inside = pkgutil.iter_modules(getattr(room, "__path__", []))
        listed += [room, *(import_module(f"raglab.{name}.{module.name}") for module in inside)]
    return listed


def functions():
    """Public functions of the algebra by module and name."""
    return {
        f"{module.__name__.removeprefix('raglab.')}.{name}": function
        for module in modules()
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
    }


def takes_arrays(function):
    """Whether a parameter is declared as an array, or as something that holds arrays."""
    stated = (
        str(parameter.annotation) for parameter in inspect.signature(function).parameters.values()
    )
    return any(kind in annotation for annotation in stated for kind in ARRAYS)


def closed(value, views):
    """The value with read-only arrays; each is added to `views` with its bytes."""
    if isinstance(value, np.ndarray) and type(value) is np.ndarray and value.dtype.kind != "O":
        view = read_only(value)
        views.append((view, view.tobytes()))
        return view
    if isinstance(value, tuple) and hasattr(value, "_make"):
        parts = [closed(part, views) for part in value]
        return value if all(map(_is, parts, value)) else value._make(parts)
    if type(value) in {list, tuple} and len(value) < 100:
        parts = [closed(part, views) for part in value]
        return value if all(map(_is, parts, value)) else type(value)(parts)
    return value


def _is(left, right):
    return left is right


def guarded(name, function, called):
    """The function over read-only arrays."""

    @wraps(function)
    def guard(*values, **named):
        views: list[tuple[Any, bytes]] = []
        closed_values = [closed(value, views) for value in values]
        closed_named = {key: closed(value, views) for key, value in named.items()}
        try:
            return function(*closed_values, **closed_named)
        finally:
            called.add(name)
            for view, before in views:
                assert view.tobytes() == before, f"{name} wrote into an argument"

    return guard


@contextmanager
def guard_algebra():
    """Guard the public functions of the algebra wherever a module of raglab names them.

    Names of those called.
    """
    called: set[str] = set()
    guards = {
        id(function): guarded(name, function, called) for name, function in functions().items()
    }
    rooms = [
        module
        for name, module in sys.modules.items()
        if name == "raglab" or name.startswith("raglab.")
    ]
    places = [
        (room, name, value)
        for room in rooms
        for name, value in vars(room).items()
        if inspect.isfunction(value) and id(value) in guards
    ]
    for room, name, value in places:
        setattr(room, name, guards[id(value)])
    try:
        yield called
    finally:
        for room, name, value in places:
            setattr(room, name, value)


def pytest_configure():
    """Guard all that runs."""
    guard_algebra().__enter__()


def arrays(value, path=""):
    """Arrays inside named tuples, mappings and traces, by their path."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, TraceData):
        for name in ("hits", "pattern_hits", "answers", "latency", "vectors", "columns"):
            yield from arrays(getattr(value, name), f"{path}.{name}")
    elif hasattr(value, "_asdict"):
        for name, part in value._asdict().items():
            yield from arrays(part, f"{path}.{name}")
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from arrays(part, f"{path}.{name}")


def assert_closed(value):
    """No array of a value can be written, nor made writable, nor can a view of it."""
    listed = list(arrays(value))
    assert listed
    for path, array in listed:
        assert not array.flags.writeable, path
        for view in (array, array.view(), array[...]):
            with pytest.raises(ValueError, match="WRITEABLE"):
                view.flags.writeable = True
