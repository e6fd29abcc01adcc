"""Stored reward tables of DataFrames (algebra): rewards, costs, delays, masks, features (S4.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import ROUNDING_TOLERANCE, rounding_note
from raglab.arguments.user_warnings import warn_user
from raglab.values import AnyArray, BoolArray, FloatArray, refuse
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

Costs: TypeAlias = "Mapping[str, float | str] | pd.Series[float] | pd.DataFrame | ArrayLike"
INTERCEPT_FEATURE = "intercept"
_NUMBER_TYPES = (int, float, np.integer, np.floating)
LARGEST_NUMBER = 1e9  # of a feature or a cost; far more leaves the floats


class FrameParts(NamedTuple):
    """What a frame says of its rounds; NaN where a reward or a cost is missing."""

    arms: tuple[str, ...]
    reward: FloatArray  # [Q, A]
    mask: BoolArray  # [Q, A] arms available
    features: FloatArray  # [Q, F]
    feature_names: tuple[str, ...]
    cost: FloatArray | None  # [Q, A]; none stated
    delay: AnyArray | None  # [Q] or [Q, A], not checked


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
    delay_columns = [delay] if isinstance(delay, str) else []
    frame, arms, costs_by_arm = _named_columns(frame, costs, features, delay_columns)
    rewards = _column_numbers(
        frame, arms, "a reward", (0.0, 1.0), "normalise it (rule S4.4), or name it in features"
    )
    # A context without a number has no linear score, and nothing may stand in for it.
    any_number = (-np.inf, np.inf)
    contexts = _column_numbers(
        frame, features, "a feature", any_number, "fill or drop it", is_needed=True
    )
    feature_names = tuple(features)
    # A linear learner has its intercept in a feature that is the same number, not 0, in every row.
    is_constant = (contexts == contexts[:1]).all(axis=0) & (contexts[0] != 0.0)
    if intercept and not is_constant.any():
        if INTERCEPT_FEATURE in feature_names:
            _refuse_frame(
                f"a feature called {INTERCEPT_FEATURE} must be the same in every row",
                "one that varies",
                "rename it, or say intercept=False",
            )
        contexts = np.column_stack([np.ones(len(frame)), contexts])
        feature_names = (INTERCEPT_FEATURE, *feature_names)
    available = _available_arms(frame, rewards, mask, arms)
    arm_costs = None if costs is None else _costs(frame, costs_by_arm or costs, arms, available)
    delays: AnyArray | None = None
    if delay_columns:
        delays = _column_numbers(
            frame, delay_columns, "a delay", (0.0, LARGEST_NUMBER), "fill it", is_needed=True
        )[:, 0]
    elif delay is not None and np.ndim(delay) == 2:  # [Q, A]
        delays = _arm_matrix(frame, delay, arms, "delay")
    elif delay is not None:
        delays = np.full(len(frame), delay) if np.ndim(delay) == 0 else np.asarray(delay)
    return FrameParts(arms, rewards, available, contexts, feature_names, arm_costs, delays)


def _named_columns(
    frame: pd.DataFrame,
    costs: Costs | None,
    features: Sequence[str],
    delay_columns: Sequence[str],
) -> tuple[pd.DataFrame, tuple[str, ...], dict[str, Any]]:
    """Frame with names that are texts, its arms, and what is stated of the cost of each.

    Raises:
      ValueError: no frame, a name twice or a column that is not there.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        column_rule = "rewards must be a pandas DataFrame"
        _refuse_frame(column_rule, type(frame).__name__, "make a column an arm")
    # What is not named as a feature, a cost or a delay counts as an arm, so a stray column is
    # refused and never played.
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    column_names = frame.columns
    if not column_names.is_unique:
        repeated_name = column_names[column_names.duplicated()][0]
        _refuse_frame(
            "arms must have different names", f"{repeated_name!r} twice", "rename or drop one"
        )
    if not isinstance(features, str) and len({*features}) < len(features):
        column_rule = "features must be a list of different columns"
        _refuse_frame(column_rule, str([*features])[:80], "name each once")
    costs_by_arm: dict[str, Any] = {}
    if isinstance(costs, Mapping | pd.Series):
        costs_by_arm = {str(arm): arm_cost for arm, arm_cost in costs.items()}
    cost_columns = [arm_cost for arm_cost in costs_by_arm.values() if isinstance(arm_cost, str)]
    column_uses: dict[str, Sequence[str]] = {
        "features must be a list of columns": features,
        "a cost must be a number, or a column": cost_columns,
        "delay must be a column": delay_columns,
    }
    for column_rule, used_names in column_uses.items():
        missing_names = [
            str(used_name) for used_name in used_names if used_name not in column_names
        ]
        if missing_names or isinstance(features, str):
            wrong_name = ", ".join(missing_names)[:80] or features
            _refuse_frame(
                f"{column_rule} among {', '.join(column_names)[:300]}",
                wrong_name,
                "correct the name",
            )
    arms = tuple(column_names.difference([*features, *cost_columns, *delay_columns], sort=False))
    if not arms or not len(frame):
        _refuse_frame("a frame must have a row and an arm", frame.shape, "add the rewards")
    return frame, arms, costs_by_arm


def _available_arms(
    frame: pd.DataFrame,
    rewards: FloatArray,
    mask: ArrayLike | pd.DataFrame | None,
    arms: Sequence[str],
) -> BoolArray:
    """Arms that each round offers, [Q, A].

    Those with a reward that the mask, if there is one, does not take out.
    """
    is_available = ~np.isnan(rewards)
    if mask is not None:
        stated_mask = _arm_matrix(frame, mask, arms, "mask")
        if stated_mask.dtype != np.bool_:
            _refuse_frame("mask must be of booleans", stated_mask.dtype, "True where available")
        if n_missing := int((stated_mask & ~is_available).sum()):
            warn_user(
                f"{n_missing} arms of rounds have no reward and stay unavailable, whatever the "
                "mask says (S4.7)."
            )
        is_available = is_available & stated_mask
    # a round without any arm leaves nothing to choose
    if not is_available.any(axis=1).all():
        row_text = _row_text(frame, int(np.flatnonzero(~is_available.any(axis=1))[0]))
        _refuse_frame(
            "a round must have a reward of some arm", f"none in {row_text}", "drop the row"
        )
    return is_available


def _row_text(frame: pd.DataFrame, row_number: int) -> str:
    """Position of a row, and its label where that is another."""
    row_label = frame.index[row_number]
    is_position = isinstance(row_label, int | np.integer) and int(row_label) == row_number
    return (
        f"row {row_number}" if is_position else f"row {row_number} (index {_cell_text(row_label)})"
    )


def _column_numbers(
    frame: pd.DataFrame,
    columns: Sequence[str],
    cell_meaning: str,
    allowed_range: tuple[float, float],
    remedy: str,
    *,
    is_needed: bool = False,
) -> FloatArray:
    """Numbers of some columns, float64 [rows, columns]; NaN where missing, if none is needed."""
    lower_bound, upper_bound = allowed_range
    cells = frame[list(columns)]
    raw_cells = cells.to_numpy(object)

    def number(cell: Any) -> float:  # noqa: ANN401 - of a user; infinity and texts are no numbers
        return (
            float(cell)
            if isinstance(cell, _NUMBER_TYPES) and -LARGEST_NUMBER <= cell <= LARGEST_NUMBER
            else np.nan
        )

    with np.errstate(invalid="ignore"):  # comparing what is missing
        numbers = np.frompyfunc(number, 1, 1)(raw_cells).astype(np.float64, order="C")
    is_inside = (numbers >= lower_bound) & (numbers <= upper_bound)
    # of single precision
    is_rounded = (
        ~is_inside
        & (numbers >= lower_bound - ROUNDING_TOLERANCE)
        & (numbers <= upper_bound + ROUNDING_TOLERANCE)
    )
    is_wrong = ~is_inside & ~is_rounded & (is_needed | cells.notna().to_numpy(np.bool_))
    if is_rounded.any():
        rounding_text = rounding_note(
            f"cells of {cell_meaning}", int(is_rounded.sum()), numbers.size, *allowed_range
        )
        warn_user(f"{rounding_text}.")
    if is_wrong.any():
        row_number, column_number = (int(indices[0]) for indices in np.nonzero(is_wrong))
        cell_problem = (
            f"{_cell_text(raw_cells[row_number, column_number])} in "
            f"{_row_text(frame, row_number)}, column "
            f"{columns[column_number]}, one of {int(is_wrong.sum())} such cells"
        )
        range_text = f" from {lower_bound:g}" * (lower_bound == 0.0) + f" to {upper_bound:g}" * (
            upper_bound == 1.0
        )
        _refuse_frame(f"{cell_meaning} must be a number{range_text}", cell_problem, remedy)
    return np.where(is_inside | is_rounded, np.clip(numbers, lower_bound, upper_bound), np.nan)


def _arm_matrix(
    frame: pd.DataFrame,
    arm_values: Any,  # noqa: ANN401 - of a user
    arms: Sequence[str],
    argument_name: str,
) -> AnyArray:
    """Values [Q, A] of an array, or of a frame with a column an arm, in the arms' order."""
    import pandas as pd

    if isinstance(arm_values, pd.DataFrame):
        column_names = [str(column) for column in arm_values.columns]
        if sorted(column_names) != sorted(arms):
            _refuse_frame(
                f"{argument_name} must have a column for each arm, {', '.join(arms)[:300]}",
                ", ".join(column_names)[:200],
                "rename its columns",
            )
        arm_values = arm_values.set_axis(column_names, axis=1)[list(arms)].to_numpy()
    arm_array = np.asarray(arm_values)
    frame_shape = (len(frame), len(arms))
    if arm_array.shape != frame_shape:
        _refuse_frame(
            f"{argument_name} must be [Q, A], a row a round and a column an arm, {frame_shape}",
            arm_array.shape,
            "give a number a cell",
        )
    return arm_array


def _costs(
    frame: pd.DataFrame,
    costs: Any,  # noqa: ANN401 - a number or a column by arm, or [Q, A]
    arms: Sequence[str],
    mask: BoolArray,
) -> FloatArray:
    """Costs [Q, A], NaN where an arm that was not available states none.

    Raises:
      ValueError: an arm without its cost, a cost below 0, or none where the arm was available.
    """
    if isinstance(costs, dict):
        if set(costs) != set(arms):
            unmatched_arms = ", ".join(sorted(set(costs) ^ set(arms)))[:200]
            _refuse_frame(
                f"costs must name each arm once, {', '.join(arms)[:300]}",
                f"{unmatched_arms} in one of the two alone",
                "complete them",
            )
        for arm, arm_costs in costs.items():
            is_number = isinstance(arm_costs, _NUMBER_TYPES) and 0.0 <= arm_costs <= LARGEST_NUMBER
            if not isinstance(arm_costs, str) and not is_number:
                _refuse_frame(
                    f"the cost of {arm} must be a number from 0",
                    f"{arm_costs!r:.80}",
                    "state it in your unit",
                )
        cost_range = (0.0, LARGEST_NUMBER)
        cost_columns = [
            _column_numbers(frame, [arm_costs], "a cost", cost_range, "measure it")[:, 0]
            if isinstance(arm_costs, str)
            else np.full(len(frame), arm_costs, np.float64)
            for arm_costs in (costs[arm] for arm in arms)
        ]
        arm_costs = np.column_stack(cost_columns)
    else:
        cost_cells = _arm_matrix(frame, costs, arms, "costs")
        if cost_cells.dtype.kind not in "fiub":
            _refuse_frame(
                "costs must be numbers from 0", f"cells of type {cost_cells.dtype}", "give numbers"
            )
        arm_costs = cost_cells.astype(np.float64)
    is_cost = (arm_costs >= 0.0) & (arm_costs <= LARGEST_NUMBER)
    is_wrong = mask & ~is_cost
    if is_wrong.any():
        row_number, arm_number = (int(cell_place[0]) for cell_place in np.nonzero(is_wrong))
        cell_place = (
            f"{_row_text(frame, row_number)}, arm {arms[arm_number]}, one of {int(is_wrong.sum())}"
        )
        _refuse_frame(
            "the cost of an available arm must be a number from 0",
            f"{arm_costs[row_number, arm_number]:g} in {cell_place}",
            "mask the arm",
        )
    return np.where(is_cost, arm_costs, np.nan)


def is_whole(numbers: AnyArray) -> bool:
    """Whether all are whole numbers from 0.

    Example:
      >>> is_whole(np.array([0.0, 2.0])), is_whole(np.array([0.5, 2.0]))
      (True, False)
    """
    if not any(
        np.issubdtype(numbers.dtype, number_type) for number_type in (np.integer, np.floating)
    ):
        return False
    return bool(
        ((numbers >= 0) & (numbers <= LARGEST_NUMBER) & (numbers == np.floor(numbers))).all()
    )


def _refuse_frame(rule: str, problem: object, remedy: str) -> NoReturn:
    """Refuse what a frame holds, in one line whatever its columns and cells are called."""
    refuse(visible(rule), visible(str(problem)), remedy)


def _cell_text(cell: object) -> str:
    """A cell as a message shows it; Python writes no whole number of more than 4,300 digits."""
    try:
        return repr(cell)[:80]
    except ValueError:
        return f"a {type(cell).__name__} too long to show"
