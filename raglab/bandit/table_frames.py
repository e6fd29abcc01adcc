"""Stored reward tables of DataFrames (algebra): rewards, costs, delays, masks, features (S4.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import ROUNDING, rounding_note
from raglab.arguments.user_warnings import warn_user
from raglab.values import refuse
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Costs: TypeAlias = "Mapping[str, float | str] | pd.Series[float] | pd.DataFrame | ArrayLike"
INTERCEPT = "intercept"
BLOCKS, LEAST_ROWS = 10, 20  # of rows that the test for drift compares; rows of a block at least
DRIFT_LEVEL = 0.001  # of the test for drift, over all arms together
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
    delay: NDArray[np.int64] | None  # [Q] or [Q, A]


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
    # What is not named as a feature, a cost or a delay counts as an arm, so a stray column is
    # refused and never played.
    heads = _frame_heads(frame, features)
    if isinstance(delay, str) and delay not in heads:
        _refuse_frame(
            f"delay must be a column among {', '.join(heads)[:300]}", delay, "correct the name"
        )
    named = (*_cost_columns(costs, heads), *([delay] if isinstance(delay, str) else []))
    arms = tuple(head for head in heads if head not in {*features, *named})
    if not arms:
        _refuse_frame(
            "a frame must have a row and an arm",
            "columns of features and costs alone",
            "add the rewards",
        )
    remedy = "normalise it (rule S4.4), or name it in features"
    reward = _frame_numbers(frame, arms, heads, "a reward", (0.0, 1.0), remedy)
    context = _frame_numbers(
        frame, features, heads, "a feature", (-np.inf, np.inf), "fill or drop it"
    )
    available = _available(frame, reward, mask, arms)
    # A context without a number has no linear score, and nothing may stand in for it.
    if np.isnan(context).any():
        row, number = (int(place[0]) for place in np.nonzero(np.isnan(context)))
        value = f"none in {_frame_place(frame, row)}, column {features[number]}"
        _refuse_frame("a feature must not be missing", value, "fill or drop it")
    names = tuple(features)
    if intercept and not _has_constant(context):
        if INTERCEPT in names:
            rule = f"a feature called {INTERCEPT} must be the same in every row"
            _refuse_frame(rule, "one that varies", "rename it, or say intercept=False")
        context, names = np.column_stack([np.ones(len(frame)), context]), (INTERCEPT, *names)
    cost = None if costs is None else _frame_costs(frame, costs, arms, heads, available)
    return FrameParts(
        arms, reward, available, context, names, cost, _frame_delay(frame, delay, arms, heads)
    )


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
        row = _frame_place(frame, int(np.flatnonzero(~available.any(axis=1))[0]))
        _refuse_frame("a round must have a reward of some arm", f"none in {row}", "drop the row")
    return available


def _has_constant(context: Array) -> bool:
    """Whether a feature is the same number, not 0, in every row.

    A linear learner has its intercept there.
    """
    return bool(((context == context[:1]).all(axis=0) & (context[0] != 0.0)).any())


def _frame_heads(frame: pd.DataFrame, features: Sequence[str]) -> list[str]:
    """Names of the columns of a frame of rewards."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        _refuse_frame(
            "rewards must be a pandas DataFrame",
            type(frame).__name__,
            "make a column an arm",
        )
    heads = [str(head) for head in frame.columns]
    if len(set(heads)) < len(heads):
        twice = next(head for place, head in enumerate(heads) if head in heads[:place])
        _refuse_frame(
            "arms must have different names", f"{twice!r} twice", "rename or drop a column"
        )
    missing = (
        [str(name) for name in features if name not in heads]
        if not isinstance(features, str)
        else [features]
    )
    if missing:
        rule = f"features must be a list of columns among {', '.join(heads)[:300]}"
        _refuse_frame(rule, ", ".join(missing)[:80], "correct the name")
    if len(set(features)) < len(features):
        twice = next(name for place, name in enumerate(features) if name in features[:place])
        _refuse_frame("features must be different columns", f"{twice} twice", "name it once")
    if not len(frame) or len(heads) == len(features):
        _refuse_frame(
            "a frame must have a row and an arm",
            frame.shape,
            "write a column an arm",
        )
    return heads


def _frame_place(frame: pd.DataFrame, row: int) -> str:
    """Position of a row, and its label where that is another."""
    label = frame.index[row]
    same = isinstance(label, int | np.integer) and int(label) == row
    return f"row {row}" if same else f"row {row} (index {_shown(label)})"


def _frame_numbers(
    frame: pd.DataFrame,
    columns: Sequence[str],
    heads: Sequence[str],
    what: str,
    allowed: tuple[float, float],
    remedy: str,
) -> Array:
    """Numbers of some columns, float64 [rows, columns], NaN where missing; infinity is none."""
    out = np.full((len(frame), len(columns)), np.nan)
    n_rounded = 0
    wrong: list[tuple[int, str, Any]] = []
    for place, column in enumerate(columns):
        cells = frame.iloc[:, heads.index(column)]
        for row, (cell, gone) in enumerate(zip(cells.tolist(), cells.isna().tolist(), strict=True)):
            if gone:
                continue
            number: float = (
                float(cell) if isinstance(cell, _NUMBERS) and -MOST <= cell <= MOST else np.nan
            )
            if allowed[0] <= number <= allowed[1]:
                out[row, place] = number
            elif allowed[0] - ROUNDING <= number <= allowed[1] + ROUNDING:  # of single precision
                out[row, place] = min(max(number, allowed[0]), allowed[1])
                n_rounded += 1
            else:
                wrong.append((row, column, cell))
    if n_rounded:
        warn_user(f"{rounding_note(f'cells of {what}', n_rounded, out.size, *allowed)}.")
    if wrong:
        row, column, cell = min(wrong, key=lambda place: place[0])
        value = (
            f"{_shown(cell)} in {_frame_place(frame, row)}, column {column}, one of {len(wrong)} "
            "such cells"
        )
        span = f" from {allowed[0]:g}" * (allowed[0] == 0.0) + f" to {allowed[1]:g}" * (
            allowed[1] == 1.0
        )
        _refuse_frame(f"{what} must be a number{span}", value, remedy)
    return out


# of a user
def _matrix(
    frame: pd.DataFrame,
    values: Any,  # noqa: ANN401
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
        values = values.iloc[:, [columns.index(arm) for arm in arms]].to_numpy()
    array = np.asarray(values)
    if array.shape != (len(frame), len(arms)):
        rule = (
            f"{name} must be [Q, A], a row a round and a column an arm, {(len(frame), len(arms))}"
        )
        _refuse_frame(rule, array.shape, "give a number a cell")
    return array


def _cost_columns(costs: Costs | None, heads: Sequence[str]) -> tuple[str, ...]:
    """Columns that hold costs, by the mapping from arms to them."""
    import pandas as pd

    if not isinstance(costs, Mapping | pd.Series):
        return ()
    columns = tuple(
        dict.fromkeys(cell for cell in dict(costs.items()).values() if isinstance(cell, str))
    )
    missing = [column for column in columns if column not in heads]
    if missing:
        rule = f"a cost must be a number, or a column among {', '.join(heads)[:300]}"
        _refuse_frame(rule, ", ".join(missing)[:80], "correct the name")
    return columns


def _frame_costs(
    frame: pd.DataFrame,
    costs: Costs,
    arms: Sequence[str],
    heads: Sequence[str],
    mask: NDArray[np.bool_],
) -> Array:
    """Costs [Q, A], NaN where an arm that was not available states none.

    Raises:
      ValueError: an arm without its cost, a cost below 0, or none where the arm was available.
    """
    import pandas as pd

    if isinstance(costs, pd.DataFrame) or (
        not isinstance(costs, Mapping | pd.Series) and np.ndim(costs) > 0
    ):
        stated = _matrix(frame, costs, arms, "costs")
        try:
            cost = stated.astype(np.float64)
        except (TypeError, ValueError):
            _refuse_frame(
                "costs must be numbers from 0", f"cells of type {stated.dtype}", "give numbers"
            )
    elif isinstance(costs, Mapping | pd.Series):
        cost = _costs_of_arms(frame, costs, arms, heads)
    else:
        _refuse_frame(
            "costs must be a mapping or a Series by arm, or [Q, A]",
            type(costs).__name__,
            'write {"bm25": 0.0, "hybrid": "usd_hybrid"}',
        )
    wrong = mask & ~((cost >= 0.0) & (cost <= MOST))
    if wrong.any():
        row, number = (int(place[0]) for place in np.nonzero(wrong))
        value = (
            f"{cost[row, number]:g} in {_frame_place(frame, row)}, arm {arms[number]}, one of "
            f"{int(wrong.sum())}"
        )
        _refuse_frame(
            "the cost of an available arm must be a number from 0",
            value,
            "mask the arm",
        )
    return np.where((cost >= 0.0) & (cost <= MOST), cost, np.nan)


def _costs_of_arms(
    frame: pd.DataFrame,
    costs: Mapping[str, Any] | pd.Series[Any],
    arms: Sequence[str],
    heads: Sequence[str],
) -> Array:
    """Costs [Q, A] of a number or a column for each arm."""
    by_arm: dict[str, Any] = {str(arm): cost for arm, cost in costs.items()}
    if set(by_arm) != set(arms):
        value = ", ".join(sorted(set(by_arm) ^ set(arms)))[:200]
        _refuse_frame(
            f"costs must name each arm once, {', '.join(arms)[:300]}",
            f"{value} in one of the two alone",
            "complete them",
        )
    out = np.empty((len(frame), len(arms)))
    for number, arm in enumerate(arms):
        cost = by_arm[arm]
        if isinstance(cost, str):
            out[:, number] = _frame_numbers(
                frame, [cost], heads, "a cost", (0.0, MOST), "measure it"
            )[:, 0]
            continue
        if not isinstance(cost, _NUMBERS) or not 0.0 <= cost <= MOST:
            _refuse_frame(
                f"the cost of {arm} must be a number from 0", _shown(cost), "state it in your unit"
            )
        out[:, number] = float(cost)
    return out


def _frame_delay(
    frame: pd.DataFrame,
    delay: int | str | ArrayLike | None,
    arms: Sequence[str],
    heads: Sequence[str],
) -> NDArray[np.int64] | None:
    """Rounds until a reward is there, [Q] or [Q, A].

    Raises:
      ValueError: they are no whole numbers from 0, or of another shape.
    """
    import pandas as pd

    if delay is None:
        return None
    if isinstance(delay, str):
        rounds: NDArray[Any] = _frame_numbers(
            frame, [delay], heads, "a delay", (0.0, MOST), "fill it"
        )[:, 0]
    elif isinstance(delay, pd.DataFrame) or np.ndim(delay) == 2:  # [Q, A]
        rounds = _matrix(frame, delay, arms, "delay")
    else:
        rounds = np.asarray(delay)
        rounds = np.full(len(frame), rounds) if rounds.ndim == 0 else rounds
    if rounds.shape not in {(len(frame),), (len(frame), len(arms))} or not is_whole(rounds):
        value = f"{rounds.dtype} of {rounds.shape}"
        _refuse_frame(
            "delay must be whole numbers of rounds from 0, one a row or [Q, A]",
            value,
            "0 is at once",
        )
    return rounds.astype(np.int64)


def is_whole(rounds: NDArray[Any]) -> bool:
    """Whether all are whole numbers from 0.

    Example:
      >>> is_whole(np.array([0.0, 2.0])), is_whole(np.array([0.5, 2.0]))
      (True, False)
    """
    if not any(np.issubdtype(rounds.dtype, kind) for kind in (np.integer, np.floating)):
        return False
    return bool(((rounds >= 0) & (rounds <= MOST) & (rounds == np.floor(rounds))).all())


def drifting_arms(reward: Array, mask: NDArray[np.bool_], arms: Sequence[str]) -> list[str]:
    """Arms whose mean reward changes along the rows.

    The rows are cut into ten blocks in their order, of 20 rewards at least, and the arm's means in
    them are compared by the F test of one-way analysis of variance, at level .001 over all arms
    together.

    Example:
      >>> reward = np.column_stack([np.tile([0.0, 1.0], 50), np.repeat([0.0, 1.0], 50)])
      >>> drifting_arms(reward, np.ones((100, 2), np.bool_), ["still", "drifting"])
      ['drifting']
    """
    from scipy.special import fdtrc

    drifting = []
    for arm, name in enumerate(arms):
        rewards = reward[mask[:, arm], arm]
        n_blocks = min(BLOCKS, len(rewards) // LEAST_ROWS)
        if n_blocks < 2:
            continue
        blocks = np.array_split(rewards, n_blocks)
        within = sum(float(((block - block.mean()) ** 2).sum()) for block in blocks)
        between = sum(len(block) * float((block.mean() - rewards.mean()) ** 2) for block in blocks)
        free = len(rewards) - n_blocks
        # blocks that agree to the last digits have no difference to test
        if between <= 1e-12 * len(rewards):
            continue
        ratio = between / (n_blocks - 1) / max(within / free, 1e-300)
        if fdtrc(n_blocks - 1, free, ratio) < DRIFT_LEVEL / len(arms):
            drifting.append(name)
    return drifting


def warn_order_ignored(parts: FrameParts) -> None:
    """Say that rows will be drawn with replacement, and which arms drift along them."""
    drifting = drifting_arms(parts.reward, parts.mask, parts.arms)
    text = (
        f"The order of the {len(parts.reward)} rows is not stated: they are drawn with "
        'replacement. State order="given", "shuffled" or "replacement" (rule S4.7).'
    )
    if drifting:
        shown = ", ".join(drifting)[:200]
        text += f" Mean rewards of {len(drifting)} of {len(parts.arms)} arms drift ({shown})."
    warn_user(visible(text))


def _refuse_frame(rule: str, value: object, remedy: str) -> NoReturn:
    """Refuse what a frame holds, in one line whatever its columns and cells are called."""
    refuse(visible(rule), visible(str(value)), remedy)


def _shown(cell: object) -> str:
    """A cell as a message shows it; Python writes no whole number of more than 4,300 digits."""
    try:
        return repr(cell)[:80]
    except ValueError:
        return f"a {type(cell).__name__} too long to show"
