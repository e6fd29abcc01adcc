"""Stored reward tables of DataFrames (algebra): rewards, costs, delays, masks, features (S4.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import ROUNDING_TOLERANCE, rounding_note
from raglab.arguments.user_warnings import warn_user
from raglab.values import refuse
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Costs: TypeAlias = "Mapping[str, float | str] | pd.Series[float] | pd.DataFrame | ArrayLike"
INTERCEPT = "intercept"
_NUMBERS = (int, float, np.integer, np.floating)
MOST = 1e9  # of a feature or a cost; far more leaves the floats


class FrameParts(NamedTuple):
    """What a frame says of its rounds; NaN where a reward or a cost is missing."""

    arms: tuple[str, ...]
    reward: Array  # [Q, A]
    mask: NDArray[np.bool_]  # [Q, A] arms available
    features: Array  # [Q, F]
    feature_names: tuple[str, ...]
    cost: Array | None  # [Q, A]; none stated
    delay: NDArray[Any] | None  # [Q] or [Q, A], not checked


def read_frame(
    frame: pd.DataFrame,
    *,
    costs: Costs | None,
    features: Sequence[str],
    intercept: bool,
    delay: int | str | ArrayLike | None,
    mask: ArrayLike | pd.DataFrame | None,
) -> FrameParts:
    """Parts of a table; see `Table.from_frame` for the arguments.

    Raises:
      ValueError: a column or cell breaks a rule; the message names row and column, and counts the
        bad cells.
    """
    late = [delay] if isinstance(delay, str) else []
    frame, arms, by_arm = _named_columns(frame, costs, features, late)
    remedy = "normalise it (rule S4.4), or name it in features"
    reward = _numbers(frame, arms, "a reward", (0.0, 1.0), remedy)
    # A context without a number has no linear score, and nothing may stand in for it.
    whole = (-np.inf, np.inf)
    context = _numbers(frame, features, "a feature", whole, "fill or drop it", is_needed=True)
    names = tuple(features)
    # A linear learner has its intercept in a feature that is the same number, not 0, in every row.
    is_constant = (context == context[:1]).all(axis=0) & (context[0] != 0.0)
    if intercept and not is_constant.any():
        if INTERCEPT in names:
            rule = f"a feature called {INTERCEPT} must be the same in every row"
            _refuse_frame(rule, "one that varies", "rename it, or say intercept=False")
        context, names = np.column_stack([np.ones(len(frame)), context]), (INTERCEPT, *names)
    available = _available(frame, reward, mask, arms)
    cost = None if costs is None else _costs(frame, by_arm or costs, arms, available)
    rounds: NDArray[Any] | None = None
    if late:
        rounds = _numbers(frame, late, "a delay", (0.0, MOST), "fill it", is_needed=True)[:, 0]
    elif delay is not None and np.ndim(delay) == 2:  # [Q, A]
        rounds = _matrix(frame, delay, arms, "delay")
    elif delay is not None:
        rounds = np.full(len(frame), delay) if np.ndim(delay) == 0 else np.asarray(delay)
    return FrameParts(arms, reward, available, context, names, cost, rounds)


def _named_columns(
    frame: pd.DataFrame,
    costs: Costs | None,
    features: Sequence[str],
    late: Sequence[str],
) -> tuple[pd.DataFrame, tuple[str, ...], dict[str, Any]]:
    """Frame with names that are texts, its arms, and what is stated of the cost of each.

    Raises:
      ValueError: no frame, a name twice or a column that is not there.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        rule = "rewards must be a pandas DataFrame"
        _refuse_frame(rule, type(frame).__name__, "make a column an arm")
    # What is not named as a feature, a cost or a delay counts as an arm, so a stray column is
    # refused and never played.
    frame = frame.set_axis([str(head) for head in frame.columns], axis=1)
    heads = frame.columns
    if not heads.is_unique:
        twice = heads[heads.duplicated()][0]
        _refuse_frame("arms must have different names", f"{twice!r} twice", "rename or drop one")
    if not isinstance(features, str) and len({*features}) < len(features):
        rule = "features must be a list of different columns"
        _refuse_frame(rule, str([*features])[:80], "name each once")
    by_arm: dict[str, Any] = {}
    if isinstance(costs, Mapping | pd.Series):
        by_arm = {str(arm): cost for arm, cost in costs.items()}
    paid = [cost for cost in by_arm.values() if isinstance(cost, str)]
    read: dict[str, Sequence[str]] = {
        "features must be a list of columns": features,
        "a cost must be a number, or a column": paid,
        "delay must be a column": late,
    }
    for rule, names in read.items():
        missing = [str(name) for name in names if name not in heads]
        if missing or isinstance(features, str):
            value = ", ".join(missing)[:80] or features
            _refuse_frame(f"{rule} among {', '.join(heads)[:300]}", value, "correct the name")
    arms = tuple(heads.difference([*features, *paid, *late], sort=False))
    if not arms or not len(frame):
        _refuse_frame("a frame must have a row and an arm", frame.shape, "add the rewards")
    return frame, arms, by_arm


def _available(
    frame: pd.DataFrame, reward: Array, mask: ArrayLike | pd.DataFrame | None, arms: Sequence[str]
) -> NDArray[np.bool_]:
    """Arms that each round offers, [Q, A].

    Those with a reward that the mask, if there is one, does not take out.
    """
    available = ~np.isnan(reward)
    if mask is not None:
        stated = _matrix(frame, mask, arms, "mask")
        if stated.dtype != np.bool_:
            _refuse_frame("mask must be of booleans", stated.dtype, "True where available")
        if n_missing := int((stated & ~available).sum()):
            warn_user(
                f"{n_missing} arms of rounds have no reward and stay unavailable, whatever the "
                "mask says (S4.7)."
            )
        available = available & stated
    # a round without any arm leaves nothing to choose
    if not available.any(axis=1).all():
        row = _place(frame, int(np.flatnonzero(~available.any(axis=1))[0]))
        _refuse_frame("a round must have a reward of some arm", f"none in {row}", "drop the row")
    return available


def _place(frame: pd.DataFrame, row: int) -> str:
    """Position of a row, and its label where that is another."""
    label = frame.index[row]
    same = isinstance(label, int | np.integer) and int(label) == row
    return f"row {row}" if same else f"row {row} (index {_shown(label)})"


def _numbers(
    frame: pd.DataFrame,
    columns: Sequence[str],
    what: str,
    allowed: tuple[float, float],
    remedy: str,
    *,
    is_needed: bool = False,
) -> Array:
    """Numbers of some columns, float64 [rows, columns]; NaN where missing, if none is needed."""
    low, high = allowed
    cells = frame[list(columns)]
    plain = cells.to_numpy(object)

    def number(cell: Any) -> float:  # noqa: ANN401 - of a user; infinity and texts are no numbers
        return float(cell) if isinstance(cell, _NUMBERS) and -MOST <= cell <= MOST else np.nan

    with np.errstate(invalid="ignore"):  # comparing what is missing
        numbers = np.frompyfunc(number, 1, 1)(plain).astype(np.float64, order="C")
    inside = (numbers >= low) & (numbers <= high)
    # of single precision
    rounded = (
        ~inside & (numbers >= low - ROUNDING_TOLERANCE) & (numbers <= high + ROUNDING_TOLERANCE)
    )
    wrong = ~inside & ~rounded & (is_needed | cells.notna().to_numpy(np.bool_))
    if rounded.any():
        note = rounding_note(f"cells of {what}", int(rounded.sum()), numbers.size, *allowed)
        warn_user(f"{note}.")
    if wrong.any():
        row, number_of = (int(place[0]) for place in np.nonzero(wrong))
        value = (
            f"{_shown(plain[row, number_of])} in {_place(frame, row)}, column "
            f"{columns[number_of]}, one of {int(wrong.sum())} such cells"
        )
        ends = f" from {low:g}" * (low == 0.0) + f" to {high:g}" * (high == 1.0)
        _refuse_frame(f"{what} must be a number{ends}", value, remedy)
    return np.where(inside | rounded, np.clip(numbers, low, high), np.nan)


def _matrix(
    frame: pd.DataFrame,
    values: Any,  # noqa: ANN401 - of a user
    arms: Sequence[str],
    name: str,
) -> NDArray[Any]:
    """Values [Q, A] of an array, or of a frame with a column an arm, in the arms' order."""
    import pandas as pd

    if isinstance(values, pd.DataFrame):
        columns = [str(column) for column in values.columns]
        if sorted(columns) != sorted(arms):
            rule = f"{name} must have a column for each arm, {', '.join(arms)[:300]}"
            _refuse_frame(rule, ", ".join(columns)[:200], "rename its columns")
        values = values.set_axis(columns, axis=1)[list(arms)].to_numpy()
    array, shape = np.asarray(values), (len(frame), len(arms))
    if array.shape != shape:
        rule = f"{name} must be [Q, A], a row a round and a column an arm, {shape}"
        _refuse_frame(rule, array.shape, "give a number a cell")
    return array


def _costs(
    frame: pd.DataFrame,
    costs: Any,  # noqa: ANN401 - a number or a column by arm, or [Q, A]
    arms: Sequence[str],
    mask: NDArray[np.bool_],
) -> Array:
    """Costs [Q, A], NaN where an arm that was not available states none.

    Raises:
      ValueError: an arm without its cost, a cost below 0, or none where the arm was available.
    """
    if isinstance(costs, dict):
        if set(costs) != set(arms):
            value = ", ".join(sorted(set(costs) ^ set(arms)))[:200]
            rule = f"costs must name each arm once, {', '.join(arms)[:300]}"
            _refuse_frame(rule, f"{value} in one of the two alone", "complete them")
        for arm, cost in costs.items():
            is_number = isinstance(cost, _NUMBERS) and 0.0 <= cost <= MOST
            if not isinstance(cost, str) and not is_number:
                rule = f"the cost of {arm} must be a number from 0"
                _refuse_frame(rule, f"{cost!r:.80}", "state it in your unit")
        span = (0.0, MOST)
        columns = [
            _numbers(frame, [cost], "a cost", span, "measure it")[:, 0]
            if isinstance(cost, str)
            else np.full(len(frame), cost, np.float64)
            for cost in (costs[arm] for arm in arms)
        ]
        cost = np.column_stack(columns)
    else:
        cells = _matrix(frame, costs, arms, "costs")
        if cells.dtype.kind not in "fiub":
            value = f"cells of type {cells.dtype}"
            _refuse_frame("costs must be numbers from 0", value, "give numbers")
        cost = cells.astype(np.float64)
    is_cost = (cost >= 0.0) & (cost <= MOST)
    wrong = mask & ~is_cost
    if wrong.any():
        row, number = (int(place[0]) for place in np.nonzero(wrong))
        place = f"{_place(frame, row)}, arm {arms[number]}, one of {int(wrong.sum())}"
        rule = "the cost of an available arm must be a number from 0"
        _refuse_frame(rule, f"{cost[row, number]:g} in {place}", "mask the arm")
    return np.where(is_cost, cost, np.nan)


def is_whole(rounds: NDArray[Any]) -> bool:
    """Whether all are whole numbers from 0.

    Example:
      >>> is_whole(np.array([0.0, 2.0])), is_whole(np.array([0.5, 2.0]))
      (True, False)
    """
    if not any(np.issubdtype(rounds.dtype, kind) for kind in (np.integer, np.floating)):
        return False
    return bool(((rounds >= 0) & (rounds <= MOST) & (rounds == np.floor(rounds))).all())


def _refuse_frame(rule: str, value: object, remedy: str) -> NoReturn:
    """Refuse what a frame holds, in one line whatever its columns and cells are called."""
    refuse(visible(rule), visible(str(value)), remedy)


def _shown(cell: object) -> str:
    """A cell as a message shows it; Python writes no whole number of more than 4,300 digits."""
    try:
        return repr(cell)[:80]
    except ValueError:
        return f"a {type(cell).__name__} too long to show"
