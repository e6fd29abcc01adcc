"""Gates of the user that return anything: they decide as the numbers say, or are named.

No other policy is touched.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fuzz.mutation import WORDS, hostile_value, pick
from fuzz.odd_gates import N_CASES, NEAR, register, state
from fuzz.outcomes import CASES, Trial, fuzz, report
from raglab.policy_parts import own_gates
from raglab.replay import decide, sweep
from raglab.values import Status
from worlds import policy, random_trace

NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.nan,
    np.inf,
    -np.inf,
    1e308,
    -1e308,
    5e-324,
    2.0**63,
    -(2.0**63),
    1e-20,
)
TYPES = (
    "f2",
    "f4",
    "f8",
    "g",
    "i1",
    "i4",
    "i8",
    "u1",
    "u8",
    "?",
    "c16",
    "O",
    "U8",
    "S8",
    "M8[s]",
    "m8[s]",
    ">f8",
    "V8",
)
Change = Callable[[np.random.Generator, Any], Any]


def with_numbers(rng, x):
    """Other numbers at some places."""
    out = np.array(x)
    out[rng.integers(len(out), size=3)] = pick(rng, NUMBERS)
    return out


def of_type(rng, x):
    """Another type."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(x).astype(str(pick(rng, TYPES)))


def of_shape(rng, x):
    """Another shape, length or order of memory."""
    x = np.asarray(x)
    shapes: tuple[Callable[[], Any], ...] = (
        lambda: x[:, None],
        lambda: x[None],
        lambda: x[:-1],
        lambda: x[:0],
        lambda: np.append(x, x),
        lambda: x[0],
        lambda: x[::-1],
        lambda: np.repeat(x, 2)[::2],
        lambda: np.broadcast_to(x[:1], x.shape),
        lambda: x.reshape(2, -1),
        lambda: np.zeros((0, len(x))),
        lambda: np.stack([x] * 3),
        lambda: np.broadcast_to(x, (4, len(x))),
    )
    return pick(rng, shapes)()


def as_other(rng, x):
    """What is no array."""
    return pick(
        rng,
        (list, tuple, np.ma.masked_invalid, np.matrix, memoryview, lambda y: {"a": y}, iter, repr),
    )(x)


def as_value(rng, _):
    """A value of anything."""
    return hostile_value(rng)


def raising(rng, _):
    """An error with any text."""
    error = pick(
        rng,
        (
            ValueError,
            KeyError,
            OSError,
            IndexError,
            RuntimeError,
            StopIteration,
            MemoryError,
            Warning,
        ),
    )
    raise error(pick(rng, WORDS))


CHANGES: tuple[Change, ...] = (
    with_numbers,
    with_numbers,
    of_type,
    of_type,
    of_shape,
    of_shape,
    as_other,
    as_value,
    raising,
)


class OddGate:
    """A gate whose headroom is changed, the same at each call; returned: what it gave."""

    def __init__(self, rng):
        self.seed = int(rng.integers(2**32))
        self.changes = [pick(rng, CHANGES) for _ in range(int(rng.integers(1, 3)))]
        self.returned: list[Any] = []

    def __call__(self, read, limits):
        """Headroom, or whatever it is now."""
        rng, value = np.random.default_rng(self.seed), read(NEAR) - limits.least[0]
        for change in self.changes:
            value = change(rng, value)
        self.returned.append(value)
        return value

    def expected(self, ungated):
        """Statuses that its numbers make of those without it.

        None where they are no numbers of the cases.

        It stands behind the resolver, since it reads the chosen hits: what is asked back stays so.
        """
        whole = [value for value in self.returned if np.size(value) in {1, N_CASES}]
        if not whole or np.asarray(whole[0]).dtype.kind not in "fi":
            return None
        passed = np.broadcast_to(np.asarray(whole[0], dtype=np.float64).reshape(-1), N_CASES) >= 0.0
        statuses: list[int] = np.where(
            passed | (ungated == Status.ambiguous), ungated, Status.refuse
        ).tolist()
        return statuses


def test_whatever_a_gate_returns(monkeypatch):
    """By decide and by sweep."""
    monkeypatch.setattr(own_gates, "REGISTERED_GATES", {})
    trace = random_trace(11, n_cases=N_CASES)
    before, ungated = state(trace), decide(trace, policy()).status

    def statuses(gate):
        own_gates.REGISTERED_GATES.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                gated = register(gate)
                sweep(trace, [gated], engine="numpy")
                return decide(trace, gated).status.tolist()
            finally:
                if state(trace) != before:
                    pytest.fail("another policy decides otherwise")

    def draw(rng):
        gate = OddGate(rng)

        def wrong(statuses_of_gate):
            expected = gate.expected(ungated)
            return (
                ""
                if statuses_of_gate == expected
                else f"decisions {statuses_of_gate}, expected {expected}"
            )

        names = [change.__name__ for change in gate.changes]
        return Trial(f"{names} seed {gate.seed}", partial(statuses, gate), wrong)

    failures = fuzz("gates", draw, None, -(-CASES // 5))
    assert not failures, report(failures)
