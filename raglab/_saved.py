"""A learner as one canonical JSON document: version, settings, statistics, the generator's position, and their hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._learner import Bandit, State, Stats, check_bandit

KEY = "raglab_bandit"
VERSION = 1
PARTS = ("bandit", "rng", "sha256", "state", KEY)
GENERATORS = ("PCG64", "PCG64DXSM")  # those of default_rng; the others hold arrays
WHOLE = ("t", "pulls", "recent_arm")


class Saved(NamedTuple):
    """What `loads` reads. rng: a generator that goes on with the draws of the one that was saved, or None."""

    state: State
    bandit: Bandit
    rng: np.random.Generator | None


def dumps(state: State, bandit: Bandit, rng: np.random.Generator | None = None) -> str:
    """State, settings and the generator's position as one line of canonical JSON.

    Keys are sorted, there is no white space, every float is written so that each bit comes back, and `sha256` stands
    for all the rest: equal learners have equal bytes. A generator's children (`spawn`) are not part of its position.

    Raises:
      ValueError: a state that does not fit the settings, a number that is not finite, or a generator other than
        NumPy's default.

    Example:
      >>> from raglab._choosing import init
      >>> text = dumps(init(2), Bandit())
      >>> loads(text).bandit == Bandit(), dumps(*loads(text)) == text
      (True, True)
    """
    check_bandit(bandit, state.n.shape[-1])
    _check_state(state, bandit)
    if rng is not None and rng.bit_generator.state["bit_generator"] not in GENERATORS:
        name = rng.bit_generator.state["bit_generator"]
        msg = (
            f"the generator must be one of {', '.join(GENERATORS)}, got {name}; make it with numpy.random.default_rng."
        )
        raise ValueError(msg)
    document = {
        KEY: VERSION,
        "bandit": _settings(bandit),
        "state": {
            name: {"shape": list(array.shape), "values": array.ravel().tolist()}
            for name, array in ((name, _typed(name, value)) for name, value in state._asdict().items())
        },
        "rng": None if rng is None else rng.bit_generator.state,
    }
    return _canonical(document | {"sha256": _digest(document)})


def loads(text: str) -> Saved:
    """Learner that `dumps` wrote, bit for bit.

    Raises:
      ValueError: broken JSON, another version, content that its hash does not stand for, settings outside their
        ranges, or shapes that do not fit; nothing is restored in part.
    """
    document = _parsed(text)
    if document.get(KEY) != VERSION or type(document[KEY]) is not int:
        msg = (
            f"a saved learner must have {KEY} {VERSION}, got {document.get(KEY, 'none')!r}; "
            "rebuild the state from the log with this version of raglab."
        )
        raise ValueError(msg)
    if sorted(document) != sorted(PARTS):
        msg = f"a saved learner must hold {', '.join(PARTS)}, got {', '.join(sorted(document))}; take the file whole."
        raise ValueError(msg)
    stated = document.pop("sha256")
    if stated != _digest(document):
        msg = (
            f"sha256 must stand for the rest, got {str(stated)[:12]} where it is {_digest(document)[:12]}; "
            "the file was altered or cut: restore a copy, or rebuild the state from the log."
        )
        raise ValueError(msg)
    bandit = _bandit(document["bandit"])
    state = _state(document["state"])
    check_bandit(bandit, state.n.shape[-1] if state.n.ndim else None)
    _check_state(state, bandit)
    return Saved(state, bandit, _generator(document["rng"]))


def merge(states: Sequence[State], bandit: Bandit) -> State:
    """State of one learner that saw what several workers saw; in whatever order they are given.

    Rounds, pulls and statistics add. Every worker must have started from `init`, else what it started from counts as
    often as there are workers; pseudo-counts of a history are part of the settings and count once.

    Raises:
      ValueError: no state, states of different shapes, or a bandit that forgets, by discount or window.

    Example:
      >>> from raglab._choosing import init, update
      >>> bandit = Bandit("ucb1")
      >>> one, two = update(init(2), 0, 0.5, bandit), update(init(2), 1, 1.0, bandit)
      >>> merge([one, two], bandit).total
      array([0.5, 1. ])
    """
    if bandit.window or bandit.discount < 1.0:
        came = f"window {bandit.window}" if bandit.window else f"discount {bandit.discount:g}"
        msg = (
            f"states merge only where nothing is forgotten, got {came}: which worker's rewards are the older ones is "
            "not known; replay the joint log in the order of time."
        )
        raise ValueError(msg)
    if len(states) == 0:
        msg = "merge needs a state at least, got none; init makes an empty one."
        raise ValueError(msg)
    check_bandit(bandit, states[0].n.shape[-1])
    for state in states:
        _check_state(state, bandit)
        shapes = [(field.shape, first.shape) for field, first in zip(state, states[0], strict=True)]
        if any(here != there for here, there in shapes):
            here, there = next((here, there) for here, there in shapes if here != there)
            msg = f"states must have one shape, got {there} and {here}; merge workers with the same arms and features."
            raise ValueError(msg)
    return State(*(_added([np.asarray(state[place]) for state in states]) for place in range(len(State._fields))))


def _added(fields: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Sum in the order of the values, so that the order of the workers does not reach the last digit."""
    return np.asarray(np.sort(np.stack(fields), axis=0).sum(axis=0))


def _canonical(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(document).encode()).hexdigest()


def _settings(bandit: Bandit) -> dict[str, Any]:
    """Settings as JSON has them; every number with the type of its default, so that 1 and 1.0 are the same bytes."""
    plain = {
        name: type(Bandit._field_defaults[name])(value) for name, value in bandit._asdict().items() if name != "history"
    }
    history = bandit.history
    seen = None if history is None else {k: _typed(k, v).tolist() for k, v in history._asdict().items()}
    return plain | {"history": seen}


def _typed(name: str, value: object) -> NDArray[Any]:
    return np.asarray(value, dtype=np.int64 if name in WHOLE else np.float64)


def _parsed(text: str) -> dict[str, Any]:
    def constant(name: str) -> float:
        msg = f"a saved learner must hold finite numbers, got {name}; rebuild the state from the log."
        raise ValueError(msg)

    try:
        document = json.loads(text, parse_constant=constant)
    except (json.JSONDecodeError, RecursionError) as error:
        msg = f"a saved learner must be JSON, got {text[:20]!r}… ({error}); restore a copy, or rebuild it from the log."
        raise ValueError(msg) from None
    if not isinstance(document, dict):
        msg = f"a saved learner must be a JSON object, got {type(document).__name__}; give what dumps wrote."
        raise ValueError(msg)  # noqa: TRY004 - whatever is wrong with a file is a ValueError
    return document


def _bandit(saved: Any) -> Bandit:  # noqa: ANN401 - what a file holds
    if not isinstance(saved, dict) or sorted(saved) != sorted(Bandit._fields):
        msg = f"bandit must hold {', '.join(Bandit._fields)}, got {list(saved)}; give what dumps wrote."
        raise ValueError(msg)
    for name, default in Bandit._field_defaults.items():
        if name != "history" and type(saved[name]) is not type(default):
            msg = f"bandit.{name} must be {type(default).__name__}, got {saved[name]!r}; give what dumps wrote."
            raise ValueError(msg)
    history = saved["history"]
    if history is not None:
        if not isinstance(history, dict) or sorted(history) != sorted(Stats._fields):
            msg = f"bandit.history must hold {', '.join(Stats._fields)}, got {history!r}; give what dumps wrote."
            raise ValueError(msg)
        history = Stats(*(_array(f"history.{name}", history[name]) for name in Stats._fields))
    return Bandit(**{**saved, "history": history})


def _state(saved: Any) -> State:  # noqa: ANN401 - what a file holds
    if not isinstance(saved, dict) or sorted(saved) != sorted(State._fields):
        msg = f"state must hold {', '.join(State._fields)}, got {list(saved)}; give what dumps wrote."
        raise ValueError(msg)
    fields = {}
    for name in State._fields:
        part = saved[name]
        if not isinstance(part, dict) or sorted(part) != ["shape", "values"]:
            msg = f"state.{name} must hold shape and values, got {part!r}; give what dumps wrote."
            raise ValueError(msg)
        shape, values = part["shape"], _array(name, part["values"])
        whole = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
        if not whole or prod(shape) != len(values):
            msg = f"state.{name} must have as many values as its shape says, got {len(values)} for {shape}."
            raise ValueError(msg)
        fields[name] = values.reshape(shape)
    return State(**fields)


def _array(name: str, values: Any) -> NDArray[Any]:  # noqa: ANN401 - what a file holds
    kinds = (int,) if name in WHOLE else (float,)
    if not isinstance(values, list) or not all(type(value) in kinds for value in values):
        msg = f"{name} must be a list of {kinds[0].__name__}, got {str(values)[:40]}; give what dumps wrote."
        raise ValueError(msg)
    try:
        return _typed(name, values)
    except OverflowError:
        msg = f"{name} must fit into 64 bits, got {max(values, key=abs)}; give what dumps wrote."
        raise ValueError(msg) from None


def _check_state(state: State, bandit: Bandit) -> None:
    """Refuse a state whose parts do not fit each other or the settings."""
    batch, arms = state.t.shape, state.n.shape[-1:]
    d, window = state.moment.shape[-1:], (int(bandit.window),)
    ends = ((), arms, arms, arms, arms, arms + d + d, arms + d, window, window, window + d)
    for name, value, end in zip(State._fields, state, ends, strict=True):
        shape = batch + end
        if value.shape != shape:
            msg = f"state.{name} must have shape {shape}, got {value.shape}; give init the same bandit and arms."
            raise ValueError(msg)
        if not np.isfinite(value).all():
            msg = f"state.{name} must be finite, got {value[~np.isfinite(value)][0]}; rebuild the state from the log."
            raise ValueError(msg)
    if not arms or arms[0] == 0 or bandit.linear != bool(d[0]):
        msg = f"a state must have arms, and features where the policy is linear, got {arms} arms, {d} features."
        raise ValueError(msg)
    least = min(value.min(initial=0) for value in (state.t, state.pulls, state.n))
    places = state.recent_arm
    if least < 0 or places.min(initial=-1) < -1 or places.max(initial=-1) >= arms[0]:
        msg = f"counts must be at least 0 and arms below {arms[0]}, got a state where they are not; rebuild it."
        raise ValueError(msg)


def _generator(saved: Any) -> np.random.Generator | None:  # noqa: ANN401 - what a file holds
    """Generator at the saved position."""
    if saved is None:
        return None
    kind = saved.get("bit_generator") if isinstance(saved, dict) else None
    if kind not in GENERATORS:
        msg = f"rng must be of {', '.join(GENERATORS)}, got {kind!r}; give what dumps wrote."
        raise ValueError(msg)
    bits = np.random.PCG64(0) if kind == "PCG64" else np.random.PCG64DXSM(0)
    try:
        bits.state = saved
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        msg = f"rng must be a position of {kind}, got {error!r}; give what dumps wrote."
        raise ValueError(msg) from None
    return np.random.Generator(bits)
