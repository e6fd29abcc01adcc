"""Processes (algebra): bets on promises broken or held, carried step to step, and bars (S6.13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from raglab.extensions.monitoring.betting import FRACTIONS, Wealth, bet, log_bar, opening_wealth
from raglab.extensions.monitoring.promises import Promises
from raglab.extensions.monitoring.states import AlarmProcess, MonitorState
from raglab.extensions.monitoring.steps import StreamSteps
from raglab.metrics import N_CELLS, PLAIN_CELLS, RIGHT_CELL, STATUS_OF_CELL
from raglab.values import FloatArray, IntArray, Status

# Windows that a restart lives for: rows of a break within its last window are then a quarter of it
# or more, and no more than five processes bet at a time.
WINDOWS_PER_RESTART = 4
NO_WEALTH = (0.0,) * len(FRACTIONS)


class Margins(NamedTuple):
    """Processes that bet on a broken promise, over some steps.

    start: log wealth since the start, [S, T]. best: largest distance above the own bar, [S, T].
    leader: process that has it, [S, T], of those that `bettors` holds as they began. processes:
    that live after the last step.
    """

    start: FloatArray
    best: FloatArray
    leader: IntArray
    bettors: tuple[AlarmProcess, ...]
    processes: tuple[AlarmProcess, ...]
    restarts: int
    since_restart: int


def alarm_bar(delta: float, size: int, restart: int, *, windowed: bool) -> float:
    """Log wealth from which on a process raises the alarm of one of some promises.

    Half of delta is the alarm's, shared by the promises. With a window half of that is kept for the
    process since the start, and restart r has a share of 1 / (r (r + 1)) of the rest; these shares
    sum to 1.

    Example:
      >>> shares = [np.exp(-alarm_bar(0.1, 1, restart, windowed=True)) for restart in range(10_000)]
      >>> bool(0.0499 < sum(shares) <= 0.05)
      True
    """
    error_share = delta / (2.0 * size)
    if not windowed:
        return log_bar(error_share)
    return log_bar(
        error_share / 2.0 if restart == 0 else error_share / (2.0 * restart * (restart + 1))
    )


def held_bar(promises: Promises) -> float:
    """Log wealth from which on a promise is held: delta / 2, shared by the promises."""
    return log_bar(promises.delta / (2.0 * len(promises.names)))


# each cell, and that of a right answer for the undecided ones
RIGHT_CELLS = np.where(np.arange(N_CELLS) < PLAIN_CELLS, np.arange(N_CELLS), RIGHT_CELL)


def row_excess(promises: Promises, stream_rows: StreamSteps) -> tuple[FloatArray, FloatArray]:
    """Weighted k - alpha * n of the rows, [T, N].

    At its least, and at its largest where the label is not known.
    """
    by_cell = promises.excess
    by_decision = [by_cell[status == STATUS_OF_CELL] for status in Status]
    row_weights = 1.0 / stream_rows.probability[:, None]
    is_labelled = (stream_rows.cell >= 0)[:, None]
    # an undecided answer is right at its least and wrong at its largest
    least_excess, largest_excess = (
        np.where(
            is_labelled,
            by_cell[settled_cells[stream_rows.cell]],
            decision_bounds[stream_rows.decision],
        )
        * row_weights
        for settled_cells, decision_bounds in (
            (
                RIGHT_CELLS,
                np.array([decision_excess.min(axis=0) for decision_excess in by_decision]),
            ),
            (
                np.arange(N_CELLS),
                np.array([decision_excess.max(axis=0) for decision_excess in by_decision]),
            ),
        )
    )
    return least_excess.T, largest_excess.T


def opening_bets(promises: Promises, state: MonitorState, *, below: bool) -> list[Wealth]:
    """Bets of each promise, without any wealth yet."""
    highest_weight = 1.0 / state.min_probability
    return [
        opening_wealth(-level * highest_weight, (1.0 - level) * highest_weight, below=below)
        for level in promises.levels.tolist()
    ]


def wealth_paths(
    bets: Sequence[Wealth],
    logs: Sequence[Sequence[float]],
    steps: FloatArray,
    ends: IntArray,
) -> tuple[FloatArray, tuple[tuple[float, ...], ...]]:
    """Log wealth at the ends of steps, [S, T], and that of each bet after the last row, [T][J]."""
    path_columns = []
    later_logs = []
    for wealth, earlier_logs, bet_steps in zip(bets, logs, steps, strict=True):
        wealth_path, last_wealth = bet(wealth._replace(logs=np.array(earlier_logs)), bet_steps)
        path_columns.append(wealth_path[ends])
        later_logs.append(tuple(last_wealth.logs.tolist()))
    return np.stack(path_columns, axis=-1), tuple(later_logs)


def alarm_margins(
    promises: Promises,
    rows: StreamSteps,
    state: MonitorState,
    steps: FloatArray,
    labelled: IntArray,
    sums: FloatArray,
) -> Margins:
    """Wealth of every process that bets on a broken promise.

    Args:
      steps: excess at its least, [T, N].
      labelled: labelled rows until the end of each step, since the start, [S].
      sums: of the state at the end of each step, [S, T, 3].
    """
    n_promises, n_steps, window = len(promises.names), len(rows.ends), state.window or 0
    promise_bets = opening_bets(promises, state, below=False)
    # Each process with the step of this call that it goes on at. Restarts follow from the numbers
    # of labelled rows alone, so they are known before any wealth is.
    queue = [(process, 0) for process in state.processes]
    restarts = state.restarts
    rows_since_restart = state.since_restart
    labelled_by_step = np.diff(labelled, prepend=state.labelled).tolist()
    for step, n_labelled in enumerate(labelled_by_step if window else ()):
        rows_since_restart += n_labelled
        if rows_since_restart >= window:
            restarts = restarts + 1
            rows_since_restart = 0
            sums_before = tuple(map(tuple, sums[step].tolist()))
            step_number = state.steps + step + 1
            no_wealth = (NO_WEALTH,) * n_promises
            restarted = AlarmProcess(
                restarts, int(labelled[step]), no_wealth, step_number, "", sums_before
            )
            queue.append((restarted, step + 1))
    first_rows = [0, *(rows.ends + 1).tolist()]  # first row of each step
    n_labelled_so_far = int(labelled[-1]) if n_steps else state.labelled
    best_margins = np.full((n_steps, n_promises), -np.inf)
    leaders = np.zeros((n_steps, n_promises), dtype=np.int64)
    start_path, bettors, living = np.zeros((n_steps, n_promises)), [], []
    for queue_index, (queued_process, first_step) in enumerate(queue):
        is_beginning = first_step < n_steps and queued_process.step == state.steps + first_step
        process = (
            queued_process._replace(at=rows.times[first_step]) if is_beginning else queued_process
        )
        bettors.append(process)
        # a restart ends at the step at which it has read its rows
        end_of_life = process.first + WINDOWS_PER_RESTART * window if process.restart else np.inf
        last_step = min(n_steps, int(np.searchsorted(labelled, end_of_life)) + 1)
        step_range = slice(first_step, last_step)
        first_row = first_rows[first_step]
        wealth_path, last_logs = wealth_paths(
            promise_bets,
            process.logs,
            steps[:, first_row : first_rows[last_step]],
            rows.ends[step_range] - first_row,
        )
        process_bar = alarm_bar(
            promises.delta, n_promises, process.restart, windowed=state.window is not None
        )
        leaders[step_range][wealth_path - process_bar > best_margins[step_range]] = queue_index
        best_margins[step_range] = np.maximum(best_margins[step_range], wealth_path - process_bar)
        if not process.restart:
            start_path = wealth_path
        if n_labelled_so_far < end_of_life:
            living.append(process._replace(logs=last_logs))
    return Margins(
        start_path,
        best_margins,
        leaders,
        tuple(bettors),
        tuple(living),
        restarts,
        rows_since_restart,
    )
