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

FORMAT = 2
MOST_IDS = 10_000  # latest requests and samples that are known again
MOST_BYTES = 64 * 2**20
MOST_ROWS = 2**53


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
      latest: digests of the latest requests and samples, at most `MOST_IDS`.
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
        logs = (self.held_logs, *(process.logs for process in self.processes))
        sums = (self.sums, *(process.sums for process in self.processes))
        columns = {*map(len, (*logs, *sums, self.alarms, self.held_since))}
        bets, totals = ({len(row) for table in of for row in table} for of in (logs, sums))
        counts = [self.steps, self.labelled, self.unlabelled, self.errors, self.restarts]
        counts += [number for of in self.processes for number in (of.restart, of.first, of.step)]
        return (
            (columns, bets, totals) == ({len(self.promises)}, {len(FRACTIONS)}, {3})
            and bool(self.processes)
            and 0.0 < self.min_probability <= 1.0
            and 0 <= min(counts) <= max(counts) < MOST_ROWS
        )

    def save(self, path: str | Path) -> None:
        """Write the state as JSON, whole or not at all; numbers keep every bit.

        Args:
          path: of the file.
        """
        content = asdict(self)
        rows = {"format": FORMAT, "state": content, "digest": digest(canonical_json(content), 16)}
        write_text(canonical_json(rows) + "\n", Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """State of a file.

        Args:
          path: of the file.

        Raises:
          InputError: no file of JSON, or not as `save` wrote it.
        """
        rows = read_json(Path(path), MOST_BYTES)
        content = rows.get("state") if isinstance(rows, Mapping) else None
        names = {field.name for field in fields(cls)}
        is_own = isinstance(content, Mapping) and set(content) == names
        if not is_own or rows.get("format") != FORMAT:
            rule, remedy = "a state must be of a monitor of this raglab", "begin without a state"
            raise input_error(Where(str(path)), rule, remedy, shown_value(rows))
        fault = "another content than its digest says"
        if rows.get("digest") == digest(canonical_json(content), 16):
            try:
                state: Self = TypeAdapter(cls).validate_json(canonical_json(content), strict=True)
                if state.is_whole:
                    return state
                fault = "numbers that disagree"
            except ValidationError as error:
                first = error.errors()[0]
                fault = f"{shown_value(first['input'])} at {'.'.join(map(str, first['loc']))}"
        remedy = "take a copy that nobody changed, or begin without one"
        raise input_error(Where(str(path)), "a state must be as it was written", remedy, fault)
