"""Errors of stores (shore): what is wrong with a store of studies or runs, and what helps.

Libraries say it in theirs.

A store that is locked, away, full or closed is whole: nobody is to be told to take it away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from errno import errorcode
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from raglab.store.blobs import unsafe_neighbour
from raglab.store.files import InputError, Where, input_error, locked, shown_value
from raglab.words.characters import masked_passwords


class Fault(NamedTuple):
    """What is wrong with a store.

    rule: that is broken. remedy: what helps. words: of an error and its causes that tell it, as a
    pattern in lower case: codes and types first.
    """

    rule: str
    remedy: str
    words: str = ""


LOCKED_STORE = Fault(
    "the store must be free to be written",
    "another process holds its lock: wait or end it, then run this again; nothing is damaged",
    "eagain|sqlite_busy|sqlite_locked|is locked|temporarily unavailable|locknotavailable|deadlock"
    "|serialization|querycanceled",
)
FULL_DISK = Fault(
    "the disk of the store must have room",
    "make room, then run this again; what is stored stays",
    "enospc|edquot|efbig|sqlite_full|disk is full|diskfull|no space left|quota exceeded"
    "|file too large",
)
CLOSED_STORE = Fault(
    "the store must be there and writable",
    "give the right to write, or choose another; nothing is damaged",
    "eacces|eperm|erofs|enoent|enotdir|eisdir|sqlite_(readonly|perm|cantopen)|read-?only"
    "|permission|not permitted|unable to open|insufficientprivilege|no such file|not a directory"
    "|is a directory",
)
DELETED_EXPERIMENT = Fault(
    "the experiment must not be deleted",
    "restore it (`mlflow experiments restore --experiment-id ID`), or choose another folder; "
    "nothing is damaged",
    "must be in the 'active' state",
)
OLD_STORE = Fault(
    "the store must be of the installed library's version",
    "copy it, then run `mlflow db upgrade` or `optuna storage upgrade`; nothing is damaged",
    "out-of-date database schema|no longer compatible with the table schema",
)
HALF_MADE_STORE = Fault(
    "a store must have all its tables",
    "run this again; if that says the same, move the file away",
    "already exists|duplicate column|online migration",
)
DAMAGED_STORE = Fault(
    "the store must be whole",
    "restore a copy, or keep the damaged file elsewhere and choose another",
    "sqlite_corrupt|sqlite_notadb|malformed|not a database",
)
ABSENT_SERVER = Fault(
    "the server of the store must answer",
    "check that it runs, its address and rights, then run this again; nothing is damaged",
    r"api request to|connection\w*error|(connect|read)timeout|timeouterror|maxretry"
    r"|psycopg\S*(operational|interface)error|adminshutdown",
)
OTHER_FAULT = Fault(
    "the store must take what is written",
    "choose another; nothing was taken away",
)
FAULTS = (
    LOCKED_STORE,
    FULL_DISK,
    CLOSED_STORE,
    DELETED_EXPERIMENT,
    OLD_STORE,
    HALF_MADE_STORE,
    DAMAGED_STORE,
    ABSENT_SERVER,
)  # the first that fits


def sqlite_files(url: str) -> Iterator[Path]:
    """The file of a URL of SQLite; none of another."""
    parts = urlsplit(url)
    if parts.scheme.partition("+")[0] == "sqlite" and parts.path.removeprefix("/"):
        yield Path(unquote(parts.path.removeprefix("/")))


def check_beside(url: str) -> None:
    """Refuse a file of SQLite beside which lies what SQLite would follow to other files.

    Raises:
      InputError: names it.
    """
    for store_file in sqlite_files(url):
        neighbour = unsafe_neighbour(store_file)
        if neighbour is not None:
            raise input_error(
                Where(str(store_file)),
                "a store must be a file with nothing but SQLite's own beside it",
                "it was not made by raglab: take it away",
                neighbour,
            )


@contextmanager
def opening_lock(*files: Path) -> Iterator[None]:
    """A block in which one process at a time opens the stores of some files.

    MLflow and Optuna make their tables at the first opening: two that do so at once break them.

    Raises:
      InputError: a place that cannot be written, or that another process opens for too long.
    """
    with ExitStack() as held_locks:
        for store_file in files:
            if store_file.name != ":memory:":
                try:
                    held_locks.enter_context(
                        locked(store_file.with_name(f"{store_file.name}.opening"))
                    )
                except InputError as error:
                    raise store_error(str(store_file), error) from error
        yield


_LONGEST_CAUSE = 500  # characters of what a library says
# seconds that a server may take to be reached, and to begin an answer
CONNECT_S = 10.0
ANSWER_S = 30.0
_LIBRARIES = {"optuna", "mlflow", "sqlalchemy", "alembic", "sqlite3", "psycopg"}


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, the last first."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        context = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or context  # type: ignore[assignment]


def fault_of(error: BaseException) -> Fault:
    """What is wrong with a store by what its library says.

    Example:
      >>> fault_of(OSError(28, "No space left on device")) is FULL_DISK
      True
    """
    error_codes = []
    error_texts = []
    for cause in causes(error):
        error_codes.append(errorcode.get(getattr(cause, "errno", None) or 0, ""))
        error_codes.append(getattr(cause, "sqlite_errorname", ""))
        # what a driver says, without the statement and its parameters
        driver_error = getattr(cause, "orig", None) or cause
        error_texts.append(f"{type(cause).__module__}.{type(cause).__name__}: {driver_error}")
    # codes first: texts may hold words of the user's own, as names of studies
    faults = (
        fault
        for error_text in (" ".join(error_codes).lower(), " ".join(error_texts).lower())
        for fault in FAULTS
        if re.search(fault.words, error_text)
    )
    return next(faults, OTHER_FAULT)


def store_error(
    place: str, error: BaseException, fault: Fault | None = None, *, note: str = ""
) -> InputError:
    """Error of a store as one line: its rule, what was said, what helps.

    Args:
      fault: what is wrong, where that is known; else `fault_of` the error.
      note: what is not lost.
    """
    fault = fault or fault_of(error)
    root_cause = list(causes(error))[-1]
    words = " ".join(f"{type(root_cause).__name__}: {root_cause}".split())
    remedy = f"{fault.remedy}; {note}" if note else fault.remedy
    text = shown_value(masked_passwords(words), _LONGEST_CAUSE)
    return input_error(Where(place), fault.rule, remedy, text)


@contextmanager
def as_store_errors(place: str, note: str) -> Iterator[None]:
    """What the libraries of a store raise in a block, each in types of its own, as one line.

    Args:
      note: what is not lost.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if not isinstance(error, OSError) and package not in _LIBRARIES:
            raise
        raise store_error(place, error, note=note) from error


def check_server(uri: str) -> None:
    """Refuse a server that does not answer, or fails, at once.

    MLflow would ask it for four minutes.

    Any other answer is left to MLflow, and so is a certificate that does not hold.

    Raises:
      InputError: it cannot be reached, or answers with a status of 500 or more.
    """
    import requests

    time_limits = (CONNECT_S, ANSWER_S)
    url = f"{uri.rstrip('/')}/health"
    try:
        with requests.get(url, timeout=time_limits, allow_redirects=False, stream=True) as response:
            status = response.status_code
    except requests.exceptions.SSLError:
        return
    except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
        raise store_error(uri, error) from error
    if status >= 500:
        raise input_error(Where(uri), ABSENT_SERVER.rule, ABSENT_SERVER.remedy, f"status {status}")
