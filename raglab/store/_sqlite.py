"""What SQLite needs to be told on every connection to an audit log."""

from __future__ import annotations

from sqlite3 import OperationalError
from time import monotonic, sleep
from typing import Any

BUSY_S = 60.0  # a writer waits so long for its turn


def prepared(link: Any, _: object = None) -> None:  # noqa: ANN401 - of the driver
    """Begin nothing by itself, keep a write-ahead log, and overwrite with zeros what is blanked."""
    link.isolation_level = None
    _in_wal(link)
    link.execute("PRAGMA secure_delete=ON")


def erased(link: Any, *, anew: bool) -> bool:  # noqa: ANN401 - of the driver
    """Take out of file and write-ahead log what was blanked; whether no other reader kept it there."""
    if anew:
        link.execute("VACUUM")
    return not link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def _in_wal(link: Any) -> None:  # noqa: ANN401 - of the driver
    """WAL mode; a fresh file that several switch to it at once answers `locked` without waiting, so ask again."""
    until = monotonic() + BUSY_S
    while True:
        try:
            link.execute("PRAGMA journal_mode=WAL")
        except OperationalError as error:
            if "locked" not in str(error) or monotonic() > until:
                raise
            sleep(0.01)
        else:
            return
