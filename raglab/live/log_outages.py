"""Log outages (shore): logs of a system that cannot be written now, each outage one warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from raglab.arguments.user_warnings import warn_user
from raglab.store.blobs import pause_after
from raglab.store.database import UnwritableLogError

AUDIT, BANDIT = "audit", "bandit"
AUDIT_UNWRITABLE = "the audit log cannot be written: questions are answered without a row in it"
BANDIT_UNWRITABLE = (
    "the bandit's log cannot be written: the router chooses the arm, and nothing is learned"
)
_UNWRITABLE: Mapping[str, str] = {AUDIT: AUDIT_UNWRITABLE, BANDIT: BANDIT_UNWRITABLE}
# A question waits so long for its turn in a log, where a batch of writers waits for
# `raglab.store.blobs.BUSY_S`; then the log is left alone for a while, see `pause_after`.
PATIENCE_S = 3.0


class LogOutages:
    """Outages of the logs of one system, shared by its threads."""

    __slots__ = ("_outages",)

    def __init__(self) -> None:
        # by log: time of the monotonic clock before which it is not tried again, last message
        self._outages: dict[str, tuple[float, str]] = {}

    @contextmanager
    def writing(self, log: str, *, required: bool = False, ends: bool = True) -> Iterator[None]:
        """A block that writes rows of a question; the first failure of an outage is a warning.

        Args:
          log: `audit` or `bandit`.
          required: whether the question is refused without its rows; then each one tries.
          ends: whether the block writes the last row of a question, whose success ends an outage:
            on a full disk there may be room for the first.

        Raises:
          UnwritableLogError: the log cannot be written; nothing was tried where that was so a
            moment ago.
        """
        until, message = self._outages.get(log, (0.0, ""))
        if not required and monotonic() < until:
            raise UnwritableLogError(message)
        try:
            yield
        except UnwritableLogError as error:
            if not required:
                outage = monotonic() + pause_after(error.seconds), str(error)
                is_first = self._outages.setdefault(log, outage) is outage
                self._outages[log] = outage
                if is_first:
                    warn_user(f"{_UNWRITABLE[log]} ({error})")
            raise
        if ends:
            self._outages.pop(log, None)
