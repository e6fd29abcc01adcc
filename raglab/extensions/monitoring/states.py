"""States (shore): all that a monitor goes on from, as a value and as a file of JSON (S6.13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import TypeAdapter, ValidationError

from raglab.extensions.monitoring.betting import FRACTIONS
from raglab.store.files import Where, input_error, read_json, shown_value, write_text
from raglab.words.canonical import canonical_json, digest

STATE_FORMAT = 2
MAX_KNOWN_IDS = 10_000  # latest requests and samples that are known again
MAX_STATE_BYTES = 64 * 2**20
MAX_COUNTED_ROWS = 2**53


class AlarmProcess(NamedTuple):
    """A process that bets on each promise being broken.

    Attributes:
      restart: 0 since the start, else the number of the restart.
      first: labelled rows before it.
      logs: log wealth of each bet, [T][J].
      step: steps before it.
      at: time of its first step; '' before that, or where none is stated.
      sums: those of the state when it began, [T][3].
    """

    restart: int
    first: int
    logs: tuple[tuple[float, ...], ...]
    step: int
    at: str
    sums: tuple[tuple[float, ...], ...]

    @property
    def name(self) -> str:
        """As tables name it."""
        return f"restart {self.restart}, after {self.first:,} rows" if self.restart else "the start"


class RaisedAlarm(NamedTuple):
    """First alarm of a promise, which speaks of the rows of the process that raised it.

    step, at: of the alarm. process, restart: that raised it. from_step, from_at: its first step.
    labelled, rate: rows from there to the alarm, and their weighted rate as a loss, None of no
    case. log_wealth, bar: its own.
    """

    step: int
    at: str
    process: str
    restart: int
    from_step: int
    from_at: str
    labelled: int
    rate: float | None
    log_wealth: float
    bar: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorState:
    """What a monitor has read, and what it goes on from.

    Plain numbers and texts, of a size that does not grow.

    Attributes:
      policy_id: of the certified policy.
      promises: name and highest value of each, [T].
      key: digest of the promises with their costs and delta.
      delta: error of all that is said.
      min_probability: least inclusion probability of the design.
      window: labelled rows from one restart to the next; None for none.
      steps, labelled, unlabelled, errors: numbers read so far; an error is a row whose model
        failed.
      at: time of the last step.
      restarts: number of restarts so far.
      since_restart: labelled rows since the last one, or since the start.
      sums: by promise: cases n, weighted losses k and weighted n of the labelled rows, [T][3].
      processes: that bet on a broken promise: since the start, and the restarts that live.
      held_logs: log wealth of each bet on a promise being held, since the start, [T][J].
      alarms: first alarm of each promise, [T]; None where there was none.
      held_since: step since which a promise is held without a break, [T]; None where it is not.
      latest: digests of the latest requests and samples, at most `MAX_KNOWN_IDS`.
    """

    policy_id: str
    promises: tuple[tuple[str, float], ...]
    key: str
    delta: float
    min_probability: float
    window: int | None
    steps: int = 0
    labelled: int = 0
    unlabelled: int = 0
    errors: int = 0
    at: str = ""
    restarts: int = 0
    since_restart: int = 0
    sums: tuple[tuple[float, ...], ...] = ()
    processes: tuple[AlarmProcess, ...] = ()
    held_logs: tuple[tuple[float, ...], ...] = ()
    alarms: tuple[RaisedAlarm | None, ...] = ()
    held_since: tuple[int | None, ...] = ()
    latest: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every column has a row a promise, and its numbers could have been counted."""
        log_tables = (self.held_logs, *(process.logs for process in self.processes))
        sum_tables = (self.sums, *(process.sums for process in self.processes))
        column_lengths = {*map(len, (*log_tables, *sum_tables, self.alarms, self.held_since))}
        bet_lengths, sum_lengths = (
            {len(row) for promise_table in tables for row in promise_table}
            for tables in (log_tables, sum_tables)
        )
        row_counts = [self.steps, self.labelled, self.unlabelled, self.errors, self.restarts]
        row_counts += [
            process_number
            for tables in self.processes
            for process_number in (tables.restart, tables.first, tables.step)
        ]
        return (
            (column_lengths, bet_lengths, sum_lengths)
            == ({len(self.promises)}, {len(FRACTIONS)}, {3})
            and bool(self.processes)
            and 0.0 < self.min_probability <= 1.0
            and 0 <= min(row_counts) <= max(row_counts) < MAX_COUNTED_ROWS
        )

    def save(self, path: str | Path) -> None:
        """Write the state as JSON, whole or not at all; numbers keep every bit.

        Args:
          path: of the file.
        """
        content = asdict(self)
        state_record = {
            "format": STATE_FORMAT,
            "state": content,
            "digest": digest(canonical_json(content), 16),
        }
        write_text(canonical_json(state_record) + "\n", Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """State of a file.

        Args:
          path: of the file.

        Raises:
          InputError: no file of JSON, or not as `save` wrote it.
        """
        state_record = read_json(Path(path), MAX_STATE_BYTES)
        content = state_record.get("state") if isinstance(state_record, Mapping) else None
        field_names = {field.name for field in fields(cls)}
        is_own = isinstance(content, Mapping) and set(content) == field_names
        if not is_own or state_record.get("format") != STATE_FORMAT:
            raise input_error(
                Where(str(path)),
                "a state must be of a monitor of this raglab",
                "begin without a state",
                shown_value(state_record),
            )
        fault = "another content than its digest says"
        if state_record.get("digest") == digest(canonical_json(content), 16):
            try:
                state: Self = TypeAdapter(cls).validate_json(canonical_json(content), strict=True)
                if state.is_whole:
                    return state
                fault = "numbers that disagree"
            except ValidationError as error:
                first_error = error.errors()[0]
                fault_place = ".".join(map(str, first_error["loc"]))
                fault = f"{shown_value(first_error['input'])} at {fault_place}"
        raise input_error(
            Where(str(path)),
            "a state must be as it was written",
            "take a copy that nobody changed, or begin without one",
            fault,
        )
