"""Log outages (shore): logs of a system that cannot be written now.

Said once, counted, and said again when over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.store.blobs import pause_after
from raglab.store.database import UnwritableLogError

AUDIT, BANDIT = "audit", "bandit"
AUDIT_UNWRITABLE = "the audit log cannot be written: questions are answered without a row in it"
BANDIT_UNWRITABLE = (
    "the bandit's log cannot be written: the router chooses the arm, and nothing is learned"
)
_UNWRITABLE: Mapping[str, str] = {AUDIT: AUDIT_UNWRITABLE, BANDIT: BANDIT_UNWRITABLE}
_WRITTEN: Mapping[str, str] = {
    AUDIT: "the audit log is written again: {n} it",
    BANDIT: "the bandit's log is written again: {n} it, and nothing was learned of them",
}
# A question waits so long for its turn in a log, where a batch of writers waits for
# `raglab.store.blobs.BUSY_S`; then the log is left alone for a while, see `pause_after`.
PATIENCE_S = 3.0


class LogOutage(NamedTuple):
    """A log that cannot be written.

    log: `audit` or `bandit`. questions: that were answered and are not in it. error: the last
    message. until: time of the monotonic clock before which it is not tried again.
    """

    log: str
    questions: int
    error: str
    until: float


class LogOutages:
    """Outages of the logs of one system, shared by its threads."""

    __slots__ = ("_lock", "_outages")

    def __init__(self) -> None:
        self._lock = Lock()
        self._outages: dict[str, LogOutage] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._outages) or 'none'})"

    @property
    def now(self) -> tuple[LogOutage, ...]:
        """Outages that are not over."""
        return tuple(self._outages.values())

    @contextmanager
    def writing(
        self, log: str, *, required: bool = False, ends: bool = True, questions: int = 1
    ) -> Iterator[None]:
        """A block that writes rows of a question, which count as missing where it fails.

        The first failure is said, and so is the first success after it, with the number of
        questions that are missing.

        Args:
          log: `audit` or `bandit`.
          required: whether the question is refused without its rows; then each one tries, and
            nothing is counted.
          ends: whether the block writes the last row of a question, whose success ends an outage:
            on a full disk there may be room for the first.
          questions: that are missing where it fails.

        Raises:
          UnwritableLogError: the log cannot be written; nothing was tried where that was so a
            moment ago.
        """
        before = None if required else self._outages.get(log)
        if before is not None and monotonic() < before.until:
            self._add(before._replace(questions=questions))
            raise UnwritableLogError(before.error)
        try:
            yield
        except UnwritableLogError as error:
            if not required:
                self._add(
                    LogOutage(log, questions, str(error), monotonic() + pause_after(error.seconds))
                )
            raise
        if ends:
            self._end(log)

    def _add(self, outage: LogOutage) -> None:
        """Count the questions that a log lacks; warn at the first outage."""
        with self._lock:
            before = self._outages.get(outage.log)
            missing = outage.questions + (0 if before is None else before.questions)
            self._outages[outage.log] = outage._replace(questions=missing)
        if before is None:
            warn_user(f"{_UNWRITABLE[outage.log]} ({outage.error})")

    def _end(self, log: str) -> None:
        with self._lock:
            before = self._outages.pop(log, None)
        if before is not None:
            missing = (
                f"{before.questions:,} question{' is' if before.questions == 1 else 's are'} not in"
            )
            warn_user(_WRITTEN[log].format(n=missing))
