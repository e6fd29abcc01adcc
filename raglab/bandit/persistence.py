"""Saved bandits (algebra): state as text and back, merges, warm start from history (S4.5, S4.6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.learner import (
    Bandit,
    State,
    Stats,
    bandit_of,
    check_bandit,
    check_reward,
    reward_outcome,
    stored_settings,
)
from raglab.values import refuse
from raglab.words.canonical import canonical_json, digest

if TYPE_CHECKING:
    from pandas import DataFrame

KEY = "raglab_bandit"
VERSION = 1
PARTS = ("bandit", "rng", "sha256", "state", KEY)
# mark of a linear learner whose sums are of rewards less prior_mean; those of before have none
CENTRED = "centred"
GENERATORS = ("PCG64", "PCG64DXSM")  # those of default_rng; the others hold arrays
WHOLE = ("t", "pulls", "recent_arm")
WROTE, REBUILD = "give what dumps wrote", "rebuild the state from the log"


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
    check_bandit(bandit, state.n.shape[-1])
    check_state(state, bandit)
    if rng is not None and rng.bit_generator.state["bit_generator"] not in GENERATORS:
        name = rng.bit_generator.state["bit_generator"]
        refuse(
            f"the generator must be one of {', '.join(GENERATORS)}",
            name,
            "make it with numpy.random.default_rng",
        )
    document = {
        KEY: VERSION,
        "bandit": _settings(bandit),
        "state": {
            name: {"shape": list(array.shape), "values": array.ravel().tolist()}
            for name, array in (
                (name, _typed_array(name, value)) for name, value in state._asdict().items()
            )
        },
        "rng": None if rng is None else rng.bit_generator.state,
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
    if document.get(KEY) != VERSION or type(document[KEY]) is not int:
        refuse(
            f"a saved learner must have {KEY} {VERSION}", _shown(document.get(KEY, "none")), REBUILD
        )
    if (
        sorted(document.keys() - {CENTRED}) != sorted(PARTS)
        or document.get(CENTRED, True) is not True
    ):
        refuse(
            f"a saved learner must hold {', '.join(PARTS)}", _shown(document), "take the file whole"
        )
    stated = document.pop("sha256")
    if stated != _document_digest(document):
        refuse(
            "sha256 must stand for the rest",
            f"{ascii(stated)[:14]} where it is {_document_digest(document)[:12]}",
            "the file was altered or cut: restore a copy",
        )
    bandit = _bandit(document["bandit"])
    if bandit.linear != (CENTRED in document):
        if not bandit.linear:
            refuse(f"{CENTRED} must mark a linear learner", f"one of {bandit.algorithm}", WROTE)
        bandit = bandit._replace(prior_mean=0.0)
    state = _state(document["state"])
    check_bandit(bandit, state.n.shape[-1] if state.n.ndim else None)
    check_state(state, bandit)
    return Saved(state, bandit, _generator(document["rng"]))


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
    check_bandit(bandit, states[0].n.shape[-1])
    for state in states:
        check_state(state, bandit)
        shapes = [(field.shape, first.shape) for field, first in zip(state, states[0], strict=True)]
        if any(here != there for here, there in shapes):
            here, there = next((here, there) for here, there in shapes if here != there)
            refuse(
                "states must have one shape",
                f"{there} and {here}",
                "merge the same arms and features",
            )
    return State(
        *(
            _ordered_sum([np.asarray(state[place]) for state in states])
            for place in range(len(State._fields))
        )
    )


def _ordered_sum(fields: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Sum in the order of the values, so that worker order does not reach the last digit."""
    return np.asarray(np.sort(np.stack(fields), axis=0).sum(axis=0))


def _canonical(document: dict[str, Any]) -> str:
    return canonical_json(document, ensure_ascii=True, allow_nan=False)


def _document_digest(document: dict[str, Any]) -> str:
    return digest(_canonical(document))


_DEFAULTS = stored_settings(Bandit())  # by the keys of files


def _settings(bandit: Bandit) -> dict[str, Any]:
    """Settings as JSON has them.

    Every number with the type of its default, so that 1 and 1.0 are the same bytes.
    """
    plain = {
        name: type(_DEFAULTS[name])(value)
        for name, value in stored_settings(bandit).items()
        if name != "history"
    }
    history = bandit.history
    history_lists = (
        None
        if history is None
        else {k: _typed_array(k, v).tolist() for k, v in history._asdict().items()}
    )
    return plain | {"history": history_lists}


def _typed_array(name: str, value: object) -> NDArray[Any]:
    return np.asarray(value, dtype=np.int64 if name in WHOLE else np.float64)


def _parse_document(text: str) -> dict[str, Any]:
    def constant(name: str) -> float:
        refuse("a saved learner must hold finite numbers", name, REBUILD)

    try:
        document = json.loads(text, parse_constant=constant)
    except (json.JSONDecodeError, RecursionError) as error:
        msg = (
            f"a saved learner must be JSON, got {text[:20]!r}… ({error}); restore a copy, or "
            "rebuild it from the log."
        )
        raise ValueError(msg) from None
    if not isinstance(document, dict):
        refuse("a saved learner must be an object", type(document).__name__, WROTE)
    return document


def _bandit(saved: Any) -> Bandit:  # noqa: ANN401 - what a file holds
    if not isinstance(saved, dict) or sorted(saved) != sorted(_DEFAULTS):
        refuse(f"bandit must hold {', '.join(_DEFAULTS)}", _shown(saved), WROTE)
    for name, default in _DEFAULTS.items():
        if name != "history" and type(saved[name]) is not type(default):
            refuse(f"bandit.{name} must be {type(default).__name__}", _shown(saved[name]), WROTE)
    history = saved["history"]
    if history is not None:
        if not isinstance(history, dict) or sorted(history) != sorted(Stats._fields):
            refuse(f"bandit.history must hold {', '.join(Stats._fields)}", _shown(history), WROTE)
        history = Stats(*(_parse_array(f"history.{name}", history[name]) for name in Stats._fields))
    return bandit_of({**saved, "history": history})


def _shown(value: Any) -> str:  # noqa: ANN401 - what a file holds
    """A value as a message shows it.

    Of an object its keys, of a number that is too long to write its kind.
    """
    if isinstance(value, dict):
        return ascii(sorted(value))[:200]
    short = isinstance(value, str | float | bool | None) or (
        isinstance(value, int) and value.bit_length() <= 64
    )
    return ascii(value)[:40] if short else type(value).__name__


def _state(saved: Any) -> State:  # noqa: ANN401 - what a file holds
    if not isinstance(saved, dict) or sorted(saved) != sorted(State._fields):
        refuse(f"state must hold {', '.join(State._fields)}", _shown(saved), WROTE)
    fields = {}
    for name in State._fields:
        part = saved[name]
        if not isinstance(part, dict) or sorted(part) != ["shape", "values"]:
            refuse(f"state.{name} must hold shape and values", _shown(part), WROTE)
        shape, values = part["shape"], _parse_array(name, part["values"])
        whole = isinstance(shape, list) and all(
            type(size) is int and 0 <= size < 2**31 for size in shape
        )
        if not whole or prod(shape) != len(values):
            msg = (
                f"state.{name} must have as many values as its shape says, got {len(values)} for "
                f"{ascii(shape)[:80]}."
            )
            raise ValueError(msg)
        fields[name] = values.reshape(shape)
    return State(**fields)


def _parse_array(name: str, values: Any) -> NDArray[Any]:  # noqa: ANN401 - what a file holds
    kinds = (int,) if name in WHOLE else (float,)
    if not isinstance(values, list) or not all(type(value) in kinds for value in values):
        refuse(f"{name} must be a list of {kinds[0].__name__}", _shown(values), WROTE)
    try:
        return _typed_array(name, values)
    except OverflowError:
        msg = (
            f"{name} must fit into 64 bits, got one of {max(values, key=abs).bit_length()} bits; "
            "give what dumps wrote."
        )
        raise ValueError(msg) from None


def check_state(state: State, bandit: Bandit) -> None:
    """Refuse a state whose parts do not fit each other or the settings."""
    batch, arms = state.t.shape, state.n.shape[-1:]
    d, window = state.moment.shape[-1:], (int(bandit.window),)
    ends = ((), arms, arms, arms, arms, arms + d + d, arms + d, window, window, window + d)
    for name, value, end in zip(State._fields, state, ends, strict=True):
        shape = batch + end
        if value.shape != shape:
            refuse(f"state.{name} must have shape {shape}", value.shape, "give init the same arms")
        if not np.isfinite(value).all():
            refuse(f"state.{name} must be finite", value[~np.isfinite(value)][0], REBUILD)
    if not arms or arms[0] == 0 or bandit.linear != bool(d[0]):
        msg = (
            f"a state must have arms, and features where the policy is linear, got {arms} arms, "
            f"{d} features."
        )
        raise ValueError(msg)
    least = min(value.min(initial=0) for value in (state.t, state.pulls, state.n))
    places = state.recent_arm
    if least < 0 or places.min(initial=-1) < -1 or places.max(initial=-1) >= arms[0]:
        refuse(
            f"counts must be at least 0 and arms below {arms[0]}",
            "a state where they are not",
            "rebuild it",
        )


def _generator(saved: Any) -> np.random.Generator | None:  # noqa: ANN401 - what a file holds
    """Generator at the saved position."""
    if saved is None:
        return None
    kind = saved.get("bit_generator") if isinstance(saved, dict) else None
    if kind not in GENERATORS:
        refuse(f"rng must be of {', '.join(GENERATORS)}", _shown(kind), WROTE)
    bits = np.random.PCG64(0) if kind == "PCG64" else np.random.PCG64DXSM(0)
    try:
        bits.state = saved
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        msg = f"rng must be a position of {kind}, got {error!r}; give what dumps wrote."
        raise ValueError(msg) from None
    return np.random.Generator(bits)


Array = NDArray[np.float64]


def history_of(log: DataFrame, arms: Sequence[Any], bandit: Bandit) -> Stats:
    """Statistics of a log as the learner itself would hold them at its end, [A].

    Args:
      log: a row a round, with arm and reward, and time where the rows are not in order. A bandit
        that discounts or has a window forgets the older of them.
      arms: as the column names them, in the order of the learner's.
      bandit: settings of the learner.

    Raises:
      ValueError: a column is missing, an arm is unknown, a reward is NaN or outside [0, 1], or the
        policy is linear, whose statistics need contexts.

    Example:
      >>> import pandas as pd
      >>> log = pd.DataFrame({"arm": ["graph", "hybrid", "graph"], "reward": [0.9, 0.4, 0.2]})
      >>> history_of(log, ["hybrid", "graph"], Bandit("thompson_beta"))
      Stats(n=array([1., 2.]), total=array([0., 1.]), square=array([0., 1.]))
    """
    arm, reward = _arm_rewards(log, arms, bandit)
    outcome = reward_outcome(reward, bandit)
    age = np.arange(len(arm))[::-1]
    weight = np.where(age < bandit.window, 1.0, 0.0) if bandit.window else bandit.discount**age
    n, total, square = (
        np.bincount(arm, weight * value, len(arms))
        for value in (np.ones(len(arm)), outcome, outcome * outcome)
    )
    return Stats(
        np.asarray(n, np.float64), np.asarray(total, np.float64), np.asarray(square, np.float64)
    )


def warm_start(history: Stats, *, discount: float, most: float) -> Stats:
    """History scaled by discount, with arms above `most` pseudo-observations cut to these; [A].

    Put it into `Bandit.history`. It does not fade: under a bandit that discounts, `most` should
    stay well below the 1 / (1 − discount) rounds that such a bandit remembers.

    Args:
      history: statistics of a log, such as `history_of` gives.
      discount: factor of all statistics, in [0, 1].
      most: pseudo-observations of an arm at most, at least 0.

    Raises:
      ValueError: discount outside [0, 1], or most negative or NaN.

    Source: rule S4.5.

    Example:
      >>> history = Stats(np.array([10.0, 100.0]), np.array([5.0, 80.0]), np.array([5.0, 80.0]))
      >>> warm_start(history, discount=0.5, most=20)
      Stats(n=array([ 5., 20.]), total=array([ 2.5, 16. ]), square=array([ 2.5, 16. ]))
    """
    if not 0.0 <= discount <= 1.0:
        refuse("discount must be in [0, 1]", f"{discount:g}", "it is the weight of an old reward")
    if not most >= 0.0:
        refuse("most must be at least 0", f"{most:g}", "it caps pseudo-observations")
    n = np.asarray(history.n, dtype=np.float64)
    pseudo_n = np.minimum(discount * n, most)
    scale = pseudo_n / np.where(n > 0.0, n, 1.0)
    return Stats(pseudo_n, history.total * scale, history.square * scale)


def _arm_rewards(
    log: DataFrame, arms: Sequence[Any], bandit: Bandit
) -> tuple[NDArray[np.int64], Array]:
    """Arm's place and reward of each round, [N], in the order of time."""
    check_bandit(bandit)
    if bandit.linear:
        refuse(
            "a history has no contexts",
            f"the policy {bandit.algorithm}",
            "leave it out",
        )
    absent = [name for name in ("arm", "reward") if name not in log.columns]
    if absent:
        refuse(
            "a log must have the columns arm and reward",
            ", ".join(map(str, log.columns)),
            "rename them",
        )
    ordered = log.sort_values("time", kind="stable") if "time" in log.columns else log
    places = {arm: place for place, arm in enumerate(arms)}
    unknown = [arm for arm in ordered["arm"].unique().tolist() if arm not in places]
    if unknown:
        refuse(
            f"arm must be one of {', '.join(map(str, arms))}", f"{unknown[0]!r}", "name all arms"
        )
    reward = check_reward(ordered["reward"].to_numpy(dtype=np.float64, na_value=np.nan))
    return np.array([places[arm] for arm in ordered["arm"]], dtype=np.int64), reward
