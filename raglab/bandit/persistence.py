"""Saved bandits (algebra): state as text and back, and merges of workers (S4.5, S4.6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from raglab.bandit.learner import (
    CENTRED,
    STORED_KEYS,
    WHOLE,
    Bandit,
    State,
    Stats,
    check_bandit,
    state_shapes,
    stored_settings,
)
from raglab.values import refuse
from raglab.words.canonical import canonical_json, digest

GENERATORS = ("PCG64", "PCG64DXSM")  # those of default_rng; the others hold arrays
RESTORE = "restore a copy, or rebuild the state from the log"


class _Whole(BaseModel, extra="forbid", strict=True):
    """Whole numbers of a state as a file has them."""

    shape: list[Annotated[int, Field(ge=0, lt=2**31)]]
    values: list[Annotated[int, Field(ge=-(2**63), lt=2**63)]]


class _Real(BaseModel, extra="forbid", strict=True):
    """Numbers of a state as a file has them."""

    shape: list[Annotated[int, Field(ge=0, lt=2**31)]]
    values: list[FiniteFloat]


class _State(BaseModel, extra="forbid", strict=True):
    t: _Whole
    pulls: _Whole
    n: _Real
    total: _Real
    square: _Real
    gram: _Real
    moment: _Real
    recent_arm: _Whole
    recent_reward: _Real
    recent_context: _Real


class _History(BaseModel, extra="forbid", strict=True):
    n: list[FiniteFloat]
    total: list[FiniteFloat]
    square: list[FiniteFloat]


class _Settings(BaseModel, extra="forbid", strict=True):
    """Settings of a bandit, by the keys of files."""

    policy: str
    epsilon: float
    exploration: float
    threshold: float
    prior_mean: float
    prior_strength: float
    prior_variance: float
    discount: float
    window: int
    floor: float
    ties: str
    history: _History | None


class _Document(BaseModel, extra="forbid", strict=True):
    """A saved learner."""

    raglab_bandit: Literal[1]
    bandit: _Settings
    state: _State
    rng: dict[str, Any] | None
    sha256: str
    centred: Literal[True] | None = None


class Saved(NamedTuple):
    """Learner that `loads` reads.

    Attributes:
      state: of the learner.
      bandit: its settings.
      rng: a generator that continues the draws of the one that was saved, or None.
    """

    state: State
    bandit: Bandit
    rng: np.random.Generator | None


def dumps(
    state: State, bandit: Bandit, rng: np.random.Generator | None = None, *, centred: bool = True
) -> str:
    """State, settings and the generator's position as one line of canonical JSON.

    Keys are sorted, there is no white space, every float is written to the last bit, and `sha256`
    is the hash of all the rest: equal learners have equal bytes. A generator's children (`spawn`)
    are not part of its position.

    Args:
      state: of one learner, or of a batch.
      bandit: its settings.
      rng: the generator whose position is saved with it; None saves none.
      centred: whether a linear learner's sums are of rewards less prior_mean, as all are now; False
        writes the bytes of older versions, which did not read prior_mean, for their logs.

    Raises:
      ValueError: a state that does not fit the settings, a number that is not finite, or a
        generator other than NumPy's default.

    Example:
      >>> from raglab.bandit.learner import init
      >>> text = dumps(init(2), Bandit())
      >>> loads(text).bandit == Bandit(), dumps(*loads(text)) == text
      (True, True)
    """
    check_state(state, bandit)
    position = None if rng is None else rng.bit_generator.state
    if position is not None and position["bit_generator"] not in GENERATORS:
        rule = f"the generator must be one of {', '.join(GENERATORS)}"
        refuse(rule, position["bit_generator"], "make it with numpy.random.default_rng")
    history = bandit.history
    stated = None if history is None else {k: _lists(k, v) for k, v in history._asdict().items()}
    # every number with the type of its default, so that 1 and 1.0 are the same bytes
    settings = {
        name: type(default)(value)
        for (name, default), value in zip(
            stored_settings(Bandit()).items(), stored_settings(bandit).values(), strict=True
        )
        if name != "history"
    }
    document: dict[str, Any] = {
        "raglab_bandit": 1,
        "bandit": settings | {"history": stated},
        "state": {
            name: {"shape": list(np.shape(value)), "values": _lists(name, value)}
            for name, value in state._asdict().items()
        },
        "rng": position,
    }
    if bandit.linear and centred:
        document[CENTRED] = True
    return _canonical(document | {"sha256": _document_digest(document)})


def loads(text: str) -> Saved:
    """Learner that `dumps` wrote, bit for bit.

    A linear learner of an older version, which has no mark, did not read its prior_mean: it is
    loaded with a prior_mean of 0, under which it continues unchanged.

    Args:
      text: the text that `dumps` gave.

    Raises:
      ValueError: broken JSON, another version, content that does not match its hash, settings
        outside their ranges, or shapes that do not fit; nothing is restored in part.
    """
    document = _parse_document(text)
    try:
        saved = _Document.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        shown = f"{ascii(place)[:80]}: {first['msg'][:200]}"
        if first["type"] != "missing":
            stated = first["input"]
            is_nested = isinstance(stated, dict | list)  # its text may be as long as the file
            value = f"{type(stated).__name__} of {len(stated)}" if is_nested else ascii(stated)
            shown += f", stated as {value if len(value) <= 80 else value[:77] + '...'}"
        refuse("a saved learner must be as dumps wrote it", shown, RESTORE)
    field_names = {key: name for name, key in STORED_KEYS.items()}
    settings = {field_names.get(key, key): value for key, value in saved.bandit}
    past = saved.bandit.history
    history = None if past is None else Stats(*(np.array(values) for _, values in past))
    bandit = Bandit(**settings | {"history": history})
    parts = {}
    for name, part in saved.state:
        if prod(part.shape) != len(part.values):
            shown = f"{len(part.values)} for {ascii(part.shape)[:80]}"
            refuse(f"state.{name} must have as many values as its shape says", shown, RESTORE)
        parts[name] = _typed_array(name, part.values).reshape(part.shape)
    state, rng = State(**parts), _generator(saved.rng)
    is_centred = CENTRED in document
    # What is written again is what was read, to the last digit and with its hash.
    if dumps(state, bandit, rng, centred=is_centred) != _canonical(document):
        rule = "sha256 must stand for the rest, and that be as dumps wrote it"
        refuse(rule, ascii(saved.sha256[:12]), RESTORE)
    is_older = bandit.linear and not is_centred
    return Saved(state, bandit._replace(prior_mean=0.0) if is_older else bandit, rng)


def merge(states: Sequence[State], bandit: Bandit) -> State:
    """State of one learner that counts the rounds of several workers.

    The order of the workers does not matter.

    Rounds, pulls and statistics add. Every worker must have started from `init`, else its starting
    state counts as often as there are workers; pseudo-counts of a history are part of the settings
    and count once.

    Args:
      states: of the workers, of one shape.
      bandit: settings of all of them.

    Raises:
      ValueError: no state, states of different shapes, or a bandit that forgets, by discount or
        window.

    Example:
      >>> from raglab.bandit.learner import init, update
      >>> bandit = Bandit("ucb1")
      >>> one, two = update(init(2), 0, 0.5, bandit), update(init(2), 1, 1.0, bandit)
      >>> merge([one, two], bandit).total
      array([0.5, 1. ])
    """
    if bandit.window or bandit.discount < 1.0:
        decay = f"window {bandit.window}" if bandit.window else f"discount {bandit.discount:g}"
        refuse(
            "states merge only where nothing is forgotten",
            f"{decay}: which worker's rewards are the older ones is not known",
            "replay the joint log by time",
        )
    if len(states) == 0:
        refuse("merge needs a state at least", "none", "init makes an empty one")
    for state in states:
        check_state(state, bandit)
        shapes = states[0].moment.shape, state.moment.shape
        if shapes[0] != shapes[1]:
            shown = f"{shapes[0]} and {shapes[1]}"
            refuse("states must have one shape", shown, "merge the same arms and features")
    # Sums in the order of the values, so that the order of workers does not reach the last digit.
    return State._make(
        np.asarray(np.sort(np.stack(parts), axis=0).sum(axis=0))
        for parts in zip(*states, strict=True)
    )


def _canonical(document: dict[str, Any]) -> str:
    return canonical_json(document, ensure_ascii=True, allow_nan=False)


def _document_digest(document: dict[str, Any]) -> str:
    return digest(_canonical(document))


def _typed_array(name: str, values: object) -> NDArray[Any]:
    return np.asarray(values, dtype=np.int64 if name in WHOLE else np.float64)


def _lists(name: str, values: object) -> list[Any]:
    return list(_typed_array(name, values).ravel().tolist())


def _parse_document(text: str) -> dict[str, Any]:
    def constant(name: str) -> float:
        refuse("a saved learner must hold finite numbers", name, RESTORE)

    try:
        document = json.loads(text, parse_constant=constant)
    except (json.JSONDecodeError, RecursionError) as error:
        refuse("a saved learner must be JSON", f"{text[:20]!r}… ({error})", RESTORE)
    if not isinstance(document, dict):
        refuse("a saved learner must be an object", type(document).__name__, RESTORE)
    return document


def check_state(state: State, bandit: Bandit) -> None:
    """Refuse a state whose parts do not fit each other or the settings.

    Raises:
      ValueError: settings outside their ranges, another shape than `init` gives, or a number that
        is not finite.
    """
    arms, width = state.n.shape[-1:], state.moment.shape[-1:]
    if 0 in (arms or (0,)) or bandit.linear != any(width):
        rule = "a state must have arms, and features where the policy is linear"
        refuse(rule, f"{arms} arms, {width} features", RESTORE)
    check_bandit(bandit, arms[0])
    # shapes alone: a foreign file may state a window that no memory holds
    shapes = state_shapes(state.t.shape, arms[0], sum(width), bandit.window)
    for name, value, shape in zip(State._fields, state, shapes, strict=True):
        if value.shape != shape:
            refuse(f"state.{name} must have shape {shape}", value.shape, "give init the same arms")
        if not np.isfinite(value).all():
            refuse(f"state.{name} must be finite", value[~np.isfinite(value)][0], RESTORE)
    least = min(value.min(initial=0) for value in (state.t, state.pulls, state.n))
    places = state.recent_arm
    if least < 0 or places.min(initial=-1) < -1 or places.max(initial=-1) >= arms[0]:
        rule = f"counts must be at least 0 and arms below {arms[0]}"
        refuse(rule, "a state where they are not", RESTORE)


def _generator(saved: dict[str, Any] | None) -> np.random.Generator | None:
    """Generator at the saved position."""
    if saved is None:
        return None
    kind = saved.get("bit_generator")
    bits = np.random.PCG64DXSM(0) if kind == GENERATORS[1] else np.random.PCG64(0)
    try:
        bits.state = saved  # type: ignore[assignment] # NumPy checks what a file holds
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        refuse(f"rng must be a position of {', '.join(GENERATORS)}", repr(error)[:200], RESTORE)
    return np.random.Generator(bits)
