"""Saved bandits (algebra): state as text and back, and merges of workers (S4.5, S4.6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from raglab.bandit.learner import (
    CENTRED_MARK,
    STORED_KEYS,
    WHOLE_NUMBER_FIELDS,
    Bandit,
    State,
    Stats,
    check_bandit,
    state_shapes,
    stored_settings,
)
from raglab.values import AnyArray, refuse
from raglab.words.canonical import canonical_json, digest

GENERATOR_NAMES = ("PCG64", "PCG64DXSM")  # those of default_rng; the others hold arrays
RESTORE_REMEDY = "restore a copy, or rebuild the state from the log"


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
    rng_position = None if rng is None else rng.bit_generator.state
    if rng_position is not None and rng_position["bit_generator"] not in GENERATOR_NAMES:
        refuse(
            f"the generator must be one of {', '.join(GENERATOR_NAMES)}",
            rng_position["bit_generator"],
            "make it with numpy.random.default_rng",
        )
    history = bandit.history
    history_lists = (
        None
        if history is None
        else {
            field_name: _lists(field_name, field_values)
            for field_name, field_values in history._asdict().items()
        }
    )
    # every number with the type of its default, so that 1 and 1.0 are the same bytes
    settings = {
        setting_name: type(default)(setting_value)
        for (setting_name, default), setting_value in zip(
            stored_settings(Bandit()).items(), stored_settings(bandit).values(), strict=True
        )
        if setting_name != "history"
    }
    document: dict[str, Any] = {
        "raglab_bandit": 1,
        "bandit": settings | {"history": history_lists},
        "state": {
            setting_name: {
                "shape": list(np.shape(setting_value)),
                "values": _lists(setting_name, setting_value),
            }
            for setting_name, setting_value in state._asdict().items()
        },
        "rng": rng_position,
    }
    if bandit.linear and centred:
        document[CENTRED_MARK] = True
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
        first_error = error.errors(include_url=False, include_context=False)[0]
        field_path = ".".join(map(str, first_error["loc"]))
        field_problem = f"{ascii(field_path)[:80]}: {first_error['msg'][:200]}"
        if first_error["type"] != "missing":
            stated_value = first_error["input"]
            # the text of a container may be as long as the file
            is_container = isinstance(stated_value, dict | list)
            stated_text = (
                f"{type(stated_value).__name__} of {len(stated_value)}"
                if is_container
                else ascii(stated_value)
            )
            field_problem += (
                f", stated as {stated_text if len(stated_text) <= 80 else stated_text[:77] + '...'}"
            )
        refuse("a saved learner must be as dumps wrote it", field_problem, RESTORE_REMEDY)
    # Files keep the keys of older versions, so that old logs can still be read.
    field_names = {file_key: field_name for field_name, file_key in STORED_KEYS.items()}
    settings = {field_names.get(file_key, file_key): setting for file_key, setting in saved.bandit}
    saved_history = saved.bandit.history
    history = (
        None
        if saved_history is None
        else Stats(*(np.array(statistics) for _, statistics in saved_history))
    )
    bandit = Bandit(**settings | {"history": history})
    state_arrays = {}
    for field_name, saved_field in saved.state:
        if prod(saved_field.shape) != len(saved_field.values):
            field_problem = f"{len(saved_field.values)} for {ascii(saved_field.shape)[:80]}"
            refuse(
                f"state.{field_name} must have as many values as its shape says",
                field_problem,
                RESTORE_REMEDY,
            )
        state_arrays[field_name] = _typed_array(field_name, saved_field.values).reshape(
            saved_field.shape
        )
    state = State(**state_arrays)
    rng = _generator(saved.rng)
    is_centred = CENTRED_MARK in document
    # What is written again is what was read, to the last digit and with its hash.
    if dumps(state, bandit, rng, centred=is_centred) != _canonical(document):
        refuse(
            "sha256 must stand for the rest, and that be as dumps wrote it",
            ascii(saved.sha256[:12]),
            RESTORE_REMEDY,
        )
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
        forgetting = f"window {bandit.window}" if bandit.window else f"discount {bandit.discount:g}"
        refuse(
            "states merge only where nothing is forgotten",
            f"{forgetting}: which worker's rewards are the older ones is not known",
            "replay the joint log by time",
        )
    if len(states) == 0:
        refuse("merge needs a state at least", "none", "init makes an empty one")
    for state in states:
        check_state(state, bandit)
        moment_shapes = states[0].moment.shape, state.moment.shape
        if moment_shapes[0] != moment_shapes[1]:
            refuse(
                "states must have one shape",
                f"{moment_shapes[0]} and {moment_shapes[1]}",
                "merge the same arms and features",
            )
    # Sums in the order of the values, so that the order of workers does not reach the last digit.
    return State._make(
        np.asarray(np.sort(np.stack(field_arrays), axis=0).sum(axis=0))
        for field_arrays in zip(*states, strict=True)
    )


def _canonical(document: dict[str, Any]) -> str:
    return canonical_json(document, ensure_ascii=True, allow_nan=False)


def _document_digest(document: dict[str, Any]) -> str:
    return digest(_canonical(document))


def _typed_array(field_name: str, field_values: object) -> AnyArray:
    return np.asarray(
        field_values, dtype=np.int64 if field_name in WHOLE_NUMBER_FIELDS else np.float64
    )


def _lists(field_name: str, field_values: object) -> list[Any]:
    return list(_typed_array(field_name, field_values).ravel().tolist())


def _parse_document(text: str) -> dict[str, Any]:
    def constant(constant_name: str) -> float:
        refuse("a saved learner must hold finite numbers", constant_name, RESTORE_REMEDY)

    try:
        document = json.loads(text, parse_constant=constant)
    except (json.JSONDecodeError, RecursionError) as error:
        refuse("a saved learner must be JSON", f"{text[:20]!r}… ({error})", RESTORE_REMEDY)
    if not isinstance(document, dict):
        refuse("a saved learner must be an object", type(document).__name__, RESTORE_REMEDY)
    return document


def check_state(state: State, bandit: Bandit) -> None:
    """Refuse a state whose parts do not fit each other or the settings.

    Raises:
      ValueError: settings outside their ranges, another shape than `init` gives, or a number that
        is not finite.
    """
    arm_axis = state.n.shape[-1:]
    feature_axis = state.moment.shape[-1:]
    if 0 in (arm_axis or (0,)) or bandit.linear != any(feature_axis):
        refuse(
            "a state must have arms, and features where the policy is linear",
            f"{arm_axis} arms, {feature_axis} features",
            RESTORE_REMEDY,
        )
    check_bandit(bandit, arm_axis[0])
    # shapes alone: a foreign file may state a window that no memory holds
    field_shapes = state_shapes(state.t.shape, arm_axis[0], sum(feature_axis), bandit.window)
    for field_name, field_values, field_shape in zip(
        State._fields, state, field_shapes, strict=True
    ):
        if field_values.shape != field_shape:
            refuse(
                f"state.{field_name} must have shape {field_shape}",
                field_values.shape,
                "give init the same arms",
            )
        if not np.isfinite(field_values).all():
            refuse(
                f"state.{field_name} must be finite",
                field_values[~np.isfinite(field_values)][0],
                RESTORE_REMEDY,
            )
    smallest_count = min(
        field_values.min(initial=0) for field_values in (state.t, state.pulls, state.n)
    )
    recent_arms = state.recent_arm
    if (
        smallest_count < 0
        or recent_arms.min(initial=-1) < -1
        or recent_arms.max(initial=-1) >= arm_axis[0]
    ):
        refuse(
            f"counts must be at least 0 and arms below {arm_axis[0]}",
            "a state where they are not",
            RESTORE_REMEDY,
        )


def _generator(saved_position: dict[str, Any] | None) -> np.random.Generator | None:
    """Generator at the saved position."""
    if saved_position is None:
        return None
    name = saved_position.get("bit_generator")
    bit_generator = np.random.PCG64DXSM(0) if name == GENERATOR_NAMES[1] else np.random.PCG64(0)
    try:
        bit_generator.state = saved_position  # type: ignore[assignment] # NumPy checks what a file holds
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        refuse(
            f"rng must be a position of {', '.join(GENERATOR_NAMES)}",
            repr(error)[:200],
            RESTORE_REMEDY,
        )
    return np.random.Generator(bit_generator)
