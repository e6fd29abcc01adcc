"""Processes (algebra): bets on promises broken or held, carried step to step, and bars (S6.13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from raglab.extensions.monitoring.betting import (
    FRACTIONS,
    FloatArray,
    IntArray,
    Wealth,
    bet,
    log_bar,
    opening_wealth,
)
from raglab.extensions.monitoring.promises import Promises
from raglab.extensions.monitoring.states import AlarmProcess, MonitorState
from raglab.extensions.monitoring.steps import StreamSteps
from raglab.metrics import N_CELLS, PLAIN_CELLS, RIGHT_CELL, STATUS_OF_CELL
from raglab.values import Status

# Windows that a restart lives for: rows of a break within its last window are then a quarter of it
# or more, and no more than five processes bet at a time.
LIVES = 4
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
    share = delta / (2.0 * size)
    if not windowed:
        return log_bar(share)
    return log_bar(share / 2.0 if restart == 0 else share / (2.0 * restart * (restart + 1)))


def held_bar(promises: Promises) -> float:
    """Log wealth from which on a promise is held: delta / 2, shared by the promises."""
    return log_bar(promises.delta / (2.0 * len(promises.names)))


# each cell, and that of a right answer for the undecided ones
RIGHT_CELLS = np.where(np.arange(N_CELLS) < PLAIN_CELLS, np.arange(N_CELLS), RIGHT_CELL)


def row_excess(promises: Promises, rows: StreamSteps) -> tuple[FloatArray, FloatArray]:
    """Weighted k - alpha * n of the rows, [T, N].

    At its least, and at its largest where the label is not known.
    """
    by_cell = promises.excess
    by_decision = [by_cell[status == STATUS_OF_CELL] for status in Status]
    weight = 1.0 / rows.probability[:, None]
    is_labelled = (rows.cell >= 0)[:, None]
    # an undecided answer is right at its least and wrong at its largest
    low, high = (
        np.where(is_labelled, by_cell[settled[rows.cell]], bound[rows.decision]) * weight
        for settled, bound in (
            (RIGHT_CELLS, np.array([cells.min(axis=0) for cells in by_decision])),
            (np.arange(N_CELLS), np.array([cells.max(axis=0) for cells in by_decision])),
        )
    )
    return low.T, high.T


def opening_bets(promises: Promises, state: MonitorState, *, below: bool) -> list[Wealth]:
    """Bets of each promise, without any wealth yet."""
    weight = 1.0 / state.min_probability
    return [
        opening_wealth(-level * weight, (1.0 - level) * weight, below=below)
        for level in promises.levels.tolist()
    ]


def wealth_paths(
    bets: Sequence[Wealth],
    logs: Sequence[Sequence[float]],
    steps: FloatArray,
    ends: IntArray,
) -> tuple[FloatArray, tuple[tuple[float, ...], ...]]:
    """Log wealth at the ends of steps, [S, T], and that of each bet after the last row, [T][J]."""
    columns, after = [], []
    for wealth, before, row in zip(bets, logs, steps, strict=True):
        path, last = bet(wealth._replace(logs=np.array(before)), row)
        columns.append(path[ends])
        after.append(tuple(last.logs.tolist()))
    return np.stack(columns, axis=-1), tuple(after)


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
    size, n_steps, window = len(promises.names), len(rows.ends), state.window or 0
    bets = opening_bets(promises, state, below=False)
    # Each process with the step of this call that it goes on at. Restarts follow from the numbers
    # of labelled rows alone, so they are known before any wealth is.
    queue = [(process, 0) for process in state.processes]
    restarts, since = state.restarts, state.since_restart
    counts = np.diff(labelled, prepend=state.labelled).tolist()
    for step, count in enumerate(counts if window else ()):
        since += count
        if since >= window:
            restarts, since = restarts + 1, 0
            before, n = tuple(map(tuple, sums[step].tolist())), state.steps + step + 1
            empty = (NO_WEALTH,) * size
            began = AlarmProcess(restarts, int(labelled[step]), empty, n, "", before)
            queue.append((began, step + 1))
    bounds = [0, *(rows.ends + 1).tolist()]  # first row of each step
    so_far = int(labelled[-1]) if n_steps else state.labelled
    best, leader = np.full((n_steps, size), -np.inf), np.zeros((n_steps, size), dtype=np.int64)
    start, bettors, alive = np.zeros((n_steps, size)), [], []
    for place, (queued, first) in enumerate(queue):
        begins = first < n_steps and queued.step == state.steps + first
        process = queued._replace(at=rows.times[first]) if begins else queued
        bettors.append(process)
        # a restart ends at the step at which it has read its rows
        end = process.first + LIVES * window if process.restart else np.inf
        last = min(n_steps, int(np.searchsorted(labelled, end)) + 1)
        span, begin = slice(first, last), bounds[first]
        path, logs = wealth_paths(
            bets, process.logs, steps[:, begin : bounds[last]], rows.ends[span] - begin
        )
        bar = alarm_bar(promises.delta, size, process.restart, windowed=state.window is not None)
        leader[span][path - bar > best[span]] = place
        best[span] = np.maximum(best[span], path - bar)
        if not process.restart:
            start = path
        if so_far < end:
            alive.append(process._replace(logs=logs))
    return Margins(start, best, leader, tuple(bettors), tuple(alive), restarts, since)
