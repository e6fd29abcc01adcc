"""Gates of the user that misbehave.

Each error names the gate, no other policy decides otherwise (rule S2.18).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from fuzz.odd_gates import N_CASES, NEAR, neighbours, register, state
from generators import Fixed
from live_worlds import CORPUS, OPEN, SMALL
from raglab.decision.measurement import measured_tables
from raglab.live.ask import ask as live_ask
from raglab.live.system import System, build_index
from raglab.policy_parts import own_gates
from raglab.policy_parts.own_gates import register_gate
from raglab.replay import case_cells, decide, flips, shard_codes, steps, sweep
from raglab.store.policies import Policy
from raglab.values import Status
from worlds import policy, random_trace

Gate = Callable[[Callable[[str], Any], Any], Any]


class UnprintableError(Exception):
    """An error without a text."""

    def __str__(self):
        raise RuntimeError


def statements(code):
    """Gate that runs some statements on `x`, a signal [Q], before it returns headroom."""
    body = "\n".join(f"    {line}" for line in code.splitlines())
    source = f"def gate(read, limits):\n    x = read('{NEAR}')\n{body}\n    return x - limits.least"
    names: dict[str, Any] = {"np": np, "UnprintableError": UnprintableError}
    exec(source, names)  # noqa: S102 - the statements stand below
    gate: Gate = names["gate"]
    return gate


def value(of):
    """Gate that returns a function of the signal, [Q]."""
    return lambda read, limits: of(read(NEAR) - limits.least[0])


def recursion(read, limits):
    """Never end."""
    return recursion(read, limits)


async def coroutine(read, limits):
    """Return what must be awaited."""
    return read(NEAR) - limits.least


READ_ONLY = "read-only.*numpy.array"
WRITES = {
    "assigns": "x[:] = 1.0",
    "writes a view": "x[::-1][0] = 1.0",
    "writes by a memoryview": "memoryview(x)[0] = 1.0",
    "sets the flag": "x.flags.writeable = True",
    "sets the flag of its base": "x.base.setflags(write=True)",
    "writes a measurement of the question": "words = read('words')\nwords[:] = 0",
    "writes a measurement of the hits": "read('best_l2')[:] = 0.0",
    "writes chosen hits": "read('missing')[:] = 0",
    "writes a threshold": "limits.least[...] = -1.0",
}
RAISES = {
    "raises": ("raise ValueError('no judge')", "ValueError: no judge"),
    "raises without a text": ("raise UnprintableError", "UnprintableError"),
    "raises text that a terminal would run": (
        "raise ValueError('\\x1b[2J')",
        re.escape("\\x1b[2J"),
    ),
    "divides by zero": ("1 / 0", "ZeroDivisionError"),
    "raises on floating-point errors": (
        "np.seterr(all='raise')\n1.0 / np.zeros(2)",
        "FloatingPointError",
    ),
    "replaces a threshold": ("limits.least = 0.0", "AttributeError"),
    "knows another threshold": ("limits.most", "AttributeError.*most"),
    "reads what it does not declare": (
        "read('top1')",
        "must read only what its `reads` lists, .*got 'top1'",
    ),
    "reads all evidence": ("read.evidence.signals", "AttributeError"),
}
RETURNS: dict[str, tuple[Gate, str]] = {
    "nothing": (value(lambda _: None), "NoneType"),
    "booleans": (value(lambda x: x >= 0.0), "bool"),
    "complex numbers": (value(lambda x: x.astype(complex)), "complex128"),
    "a list": (value(lambda x: x.tolist()), "type list"),
    "unsigned numbers": (
        value(lambda x: np.zeros(len(x), np.uint8)),
        "never below 0",
    ),
    "masked numbers": (value(lambda x: np.ma.masked_less(x, 0.0)), "MaskedArray"),
    "a Series": (value(pd.Series), "Series"),
    "too many numbers": (value(lambda x: np.append(x, 0.0)), r"shape \(25,\)"),
    # which is what is wrong with it
    "what must be awaited": (coroutine, "type coroutine"),  # type: ignore[dict-item]
    "never": (recursion, "RecursionError"),
    "of one argument": (lambda read: read(NEAR), "TypeError"),  # type: ignore[dict-item,misc]
}


class Kind(NamedTuple):
    """A kind of misbehaviour, and what the message says of it."""

    gate: Gate
    says: str


KINDS = {
    **{name: Kind(statements(code), READ_ONLY) for name, code in WRITES.items()},
    **{name: Kind(statements(code), says) for name, (code, says) in RAISES.items()},
    **{f"returns {name}": Kind(*pair) for name, pair in RETURNS.items()},
}
# Unusual, and no error: none of these changes another policy either.
HARMLESS = {
    "reshapes what it read": statements("x = x.view()\nread('words').shape = (-1, 1)"),
    "takes another type of what it read": statements("read('words').dtype = np.float64"),
    "writes and goes on": statements("try:\n    x += 1.0\nexcept ValueError:\n    pass"),
    "sets how NumPy reports errors": statements("np.seterr(all='raise')"),
    "returns a number": value(lambda _: 1.0),
    "returns what it read": lambda read, _: read(NEAR),
    "returns infinities": value(lambda x: np.where(x < 0.0, -np.inf, np.inf)),
    "returns nothing but missing": value(lambda x: np.full_like(x, np.nan)),
}


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """A registry of its own."""
    monkeypatch.setattr(own_gates, "REGISTERED_GATES", {})


# a gate whose headroom moves against a side, and the side
DIRECTIONS: dict[str, tuple[Gate, str]] = {
    "a floor subtracts the measurement": (lambda read, limits: limits.m - read(NEAR), "floor"),
    "a ceiling subtracts the threshold": (lambda read, limits: read(NEAR) - limits.m, "ceiling"),
    "of the chosen hits": (lambda read, limits: limits.m - read("missing"), "floor"),
    "only where the question is short": (
        lambda read, limits: np.where(read("words") < 6, limits.m, 0.5) - read(NEAR),
        "floor",
    ),
    "a parabola": (lambda read, limits: read(NEAR) - (limits.m - 0.5) ** 2, "ceiling"),
}
RIGHT = {
    "a floor": (lambda read, limits: read(NEAR) - limits.m, "floor"),
    "a ceiling": (lambda read, limits: limits.m - read(NEAR), "ceiling"),
    "missing at one end": (
        lambda read, limits: read(NEAR) - np.where(limits.m == 1.0, np.nan, limits.m),
        "floor",
    ),
    "a logarithm": (lambda read, limits: read(NEAR) - np.log(limits.m), "floor"),
    "infinite": (lambda read, limits: np.where(read(NEAR) < limits.m, -np.inf, np.inf), "floor"),
    "rounding": (
        lambda read, limits: (read(NEAR) * (0.3 + limits.m)) / (0.3 + limits.m) - 0.1,
        "floor",
    ),
}


def register_share(function, side, on_fire="refuse"):
    """Policies that gate by a share with that side, at 0.3, 0.6 and 0.9."""
    share = {"m": {"side": side, "default": 0.3, "unit": "share"}}
    register_gate("odd", thresholds=share, reads=[NEAR, "words", "missing"], on_fire=on_fire)(
        function
    )
    return [policy(gates={"odd": {"m": value}}) for value in (0.3, 0.6, 0.9)]


@pytest.mark.parametrize("kind", DIRECTIONS)
def test_a_wrong_direction_is_an_error_everywhere(kind):
    """Gate, threshold and side are named; two other policies decide as before."""
    trace = random_trace(11, n_cases=N_CASES)
    before = state(trace)
    function, side = DIRECTIONS[kind]
    gated = register_share(function, side)
    message = rf"gate odd must (fall|rise) as gates\.odd\.m rises, which is a {side}"
    doors: list[Callable[[], Any]] = [
        lambda: decide(trace, gated[0]),
        lambda: sweep(trace, gated),
        lambda: steps(trace, gated[0]),
        lambda: steps(trace, gated[0], path="l2.max_l2"),
        lambda: flips(trace, gated[0], "q1"),
        lambda: shard_codes(trace, gated),
        lambda: case_cells(measured_tables(trace, gated[0]).evidence, gated),
    ]
    for door in doors:
        with pytest.raises(ValueError, match=message):
            door()
    assert state(trace) == before


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_direction_decides(kind):
    """Equal headroom is allowed, missing headroom ignored, and NumPy warns of no range end."""
    trace = random_trace(11, n_cases=N_CASES)
    function, side = RIGHT[kind]
    gated = register_share(function, side)
    refused = [int((decide(trace, chosen).status == Status.refuse).sum()) for chosen in gated]
    assert sweep(trace, gated, engine="numpy")["decided_by.signals"].tolist() == [
        int((decide(trace, chosen).decided_by == "gates.odd").sum()) for chosen in gated
    ]
    assert sorted(refused) == (refused if side == "floor" else refused[::-1])


@pytest.mark.filterwarnings(
    "ignore:coroutine:RuntimeWarning", "ignore:divide by zero:RuntimeWarning"
)
def test_an_error_names_the_gate():
    """By each door; two other policies decide to the bit as before."""
    trace = random_trace(11, n_cases=N_CASES)
    before = state(trace)
    for name, kind in KINDS.items():
        gated = register(kind.gate)
        says = rf"(?s)gate odd must return headroom.*{kind.says}"
        with pytest.raises(ValueError, match=says):
            decide(trace, gated)
        if name in {"assigns", "raises", "returns nothing"}:
            for call in (
                lambda: sweep(trace, [*neighbours(), gated]),  # noqa: B023
                lambda: steps(trace, gated, path="gates.odd.least"),  # noqa: B023
                lambda: flips(trace, gated, "q1"),  # noqa: B023
            ):
                with pytest.raises(ValueError, match=says):
                    call()
    assert state(trace) == before


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_is_no_error(kind):
    """The gate decides; others decide as before; NumPy reports as before."""
    trace = random_trace(11, n_cases=N_CASES)
    before, errors = state(trace), np.geterr()
    decided = decide(trace, register(HARMLESS[kind]))
    again = decide(trace, register(HARMLESS[kind]))
    assert np.array_equal(decided.outcome.stage, again.outcome.stage)
    assert np.geterr() == errors
    assert state(trace) == before
    if kind == "returns nothing but missing":
        assert (decided.status != Status.ok).all()


def test_a_gate_that_warns_is_named_where_it_is_called():
    """It decides nothing, so it is called for explanations alone."""
    trace = random_trace(11, n_cases=N_CASES)
    gated = register(KINDS["raises"].gate, "warn")
    decided = decide(trace, gated)
    assert decided.status.tolist() == decide(trace, policy()).status.tolist()
    with pytest.raises(ValueError, match=r"gate odd must return headroom.*no judge"):
        decided.frame(reasons=True)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_stops_the_process_is_left_alone(stop):
    """An interrupt is not an error of the gate."""

    def gate(*_):
        raise stop

    with pytest.raises(stop):
        decide(random_trace(11), register(gate))


class TestLive:
    """A question asked live goes through the same gates."""

    @pytest.fixture
    def opened(self, tmp_path, encoder):
        """Return a system over the small corpus."""
        del encoder
        build_index(CORPUS, tmp_path / "index", cache=None, **SMALL)
        stated = Policy.from_mapping(OPEN)
        return System.open(tmp_path / "index", policy=stated, cache=False, generator=Fixed())

    def test_each_error_names_the_gate(self, opened):
        """And the system answers as before under its own policy."""
        question = "What is the motor excess?"
        before = live_ask(question, system=opened, request_id="r")
        for kind in ("assigns", "raises", "returns booleans"):
            register(KINDS[kind].gate)
            gated = opened.replace(Policy.from_mapping(OPEN | {"gates": {"odd": {}}}))
            with pytest.raises(ValueError, match="gate odd must return headroom"):
                live_ask(question, system=gated, request_id="r")
            after = live_ask(question, system=opened, request_id="r")
            assert dict(after) == dict(before)
