"""Blobs (shore): values by key in one SQLite file, checked when they are read.

What is damaged is made again.

Everything that raglab keeps only to spare itself work is here: embeddings, answers, retrievals.
Such a file travels with its folder and may come from anyone, so nothing of it is believed: a value
is bytes with a digest over key and bytes, and the schema must be ours to the letter. No cache
library holds these two: diskcache unpickles rows.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from errno import EACCES, EPERM, EROFS
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import TypeVar
from urllib.parse import quote

from raglab.arguments.user_warnings import warn_user
from raglab.words.characters import visible

# a writer waits so long for its turn in a file of SQLite, unless it states another patience
BUSY_S = 60.0
CACHE_PATIENCE_S = 1.0  # a question waits so long for a cache, whose value is seldom worth more
# What fails at once is tried every time. What is silent, or locked, is left alone for a multiple of
# the time that it took, so that a tenth of the time at most is spent on waiting for it.
AT_ONCE_S, PAUSE, LONGEST_PAUSE_S = 0.5, 10.0, 60.0
MAX_VALUE_BYTES = 2**28  # of one value
KEY_BYTES = 32
DAMAGED_SUFFIX = ".damaged"

_BLOBS_SCHEMA = (
    "CREATE TABLE blobs (key TEXT PRIMARY KEY, digest BLOB NOT NULL, value BLOB NOT NULL)"
)
_SCHEMA_OBJECTS = {
    (b"table", b"blobs", _BLOBS_SCHEMA.encode()),
    (b"index", b"sqlite_autoindex_blobs_1", None),
}
# how a rollback journal begins, and ends where it names another file
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
UNWRITABLE_CODES = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
LOCKED_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
# connections of the process before a fork: closing them here would drop its locks
_ABANDONED: list[object] = []

T = TypeVar("T")


def cache_folder() -> Path:
    """The user's own folder: RAGLAB_CACHE, else ~/.cache/raglab."""
    folder = os.environ.get("RAGLAB_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "raglab"


def cache_file(path: str | Path) -> Path:
    """File of a cache that a user names.

    Raises:
      ValueError: it is a folder.
    """
    if Path(path).is_dir():
        message = visible(
            f"cache must be a file, got the folder {path}; name a file in it, such as "
            f"{path}/cache.sqlite."
        )
        raise ValueError(message)
    return Path(path)


def pause_after(failure_s: float) -> float:
    """Seconds for which a file or server is left alone that took so many to fail."""
    return min(PAUSE * failure_s, LONGEST_PAUSE_S) if failure_s > AT_ONCE_S else 0.0


_PROCESS_SECRET = secrets.token_bytes(KEY_BYTES)


def own_secret(folder: Path | None = None) -> bytes:
    """Secret of this user, made on its first use: what was written under it, this user wrote.

    Args:
      folder: where it is kept, in the file `cache.key`; the user's own. Where it can be neither
        read nor written, the secret is of this process alone.
    """
    secret_path = (cache_folder() if folder is None else folder) / "cache.key"
    for _ in range(2):
        with suppress(OSError):
            if secret_path.is_file() and secret_path.stat().st_size == KEY_BYTES:
                return secret_path.read_bytes()
        with (
            suppress(OSError),
            _first(secret_path, KEY_BYTES) as new_path,
            open(new_path, "xb", opener=partial(os.open, mode=0o600)) as secret_file,
        ):
            secret_file.write(secrets.token_bytes(KEY_BYTES))
    return _PROCESS_SECRET


@contextmanager
def _first(path: Path, expected_bytes: int | None = None) -> Iterator[Path]:
    """New path next to a file, which gets its name at the end unless another was faster.

    That one stays, and both threads or processes go on with it.

    Args:
      expected_bytes: bytes that a file in the place must have, else it is replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new_path = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield new_path
        try:
            os.link(new_path, path)
        except FileExistsError:
            if expected_bytes is not None and path.stat().st_size != expected_bytes:
                new_path.replace(path)
        except OSError:  # a file system without links
            new_path.replace(path)
    finally:
        for leftover in (new_path, *_beside(new_path)):
            with suppress(OSError):
                leftover.unlink()


class Blobs:
    """Values by key in a file that processes and threads share.

    A lookup returns only what was stored under the key.

    Every write is one transaction: a process that is killed loses at most its last one. Whatever
    goes wrong costs the cache and never the caller: a file that is none of ours, or damaged, is put
    aside under the ending `.damaged` and made again; a folder in its place stays as it is, since it
    may hold a user's work, and there is no cache; without a place to write, what is there is read.
    One warning says what failed; a place that is read-only needs none. A file that another process
    holds longer than the patience is done without for a while.
    """

    def __init__(
        self,
        path: Path,
        *,
        most_bytes: int | None = None,
        secret: bytes | None = None,
        patience_s: float = BUSY_S,
    ) -> None:
        """Name the file; it is opened on first use, and made by the first write.

        Args:
          most_bytes: of the file, about; the least recently stored go first. None is without end.
          secret: binds the digests to who knows it, so that a file from elsewhere holds nothing;
            None takes what anyone wrote.
          patience_s: seconds to wait for a turn.
        """
        self.path, self._most, self._secret = path, most_bytes, secret
        self._patience_s, self._alone_until = patience_s, 0.0
        self._process, self._lock = os.getpid(), threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._warned = False

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Values of those keys that are there and whole."""

        def read(connection: sqlite3.Connection) -> dict[str, bytes]:
            return {
                stored_key.decode(): value
                for stored_key, value_digest, value in connection.execute(
                    "SELECT key, digest, value FROM blobs "
                    "WHERE key IN (SELECT value FROM json_each(?))",
                    (json.dumps(list(keys)),),
                )
                if isinstance(value_digest, bytes)
                and isinstance(value, bytes)
                and hmac.compare_digest(value_digest, self._digest(stored_key.decode(), value))
            }

        return self._run(read, make=False) or {}

    def put(self, values: Mapping[str, bytes]) -> None:
        """Store values in one transaction, over what has their keys."""
        rows = [(key, self._digest(key, blob), blob) for key, blob in values.items()]
        if rows:
            self._write("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?)", rows, make=True)

    def drop(self, keys: Sequence[str]) -> None:
        """Take out the values of keys."""
        if keys:
            self._write("DELETE FROM blobs WHERE key = ?", [(blob_key,) for blob_key in keys])

    def clear(self) -> None:
        """Take out all values; one warning says where they cannot be."""
        # Whoever empties a cache counts on it: it is tried even where it was locked a moment ago.
        self._alone_until = 0.0
        if not self._write("DELETE FROM blobs", [()]) and self.path.is_file():
            warn_user(visible(f"the cache {self.path} is not emptied; try again later."))

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        self._leave_fork()
        with self._lock:
            self._disconnect()

    def _digest(self, blob_key: str, blob: bytes) -> bytes:
        text = len(blob_key).to_bytes(8, "big") + blob_key.encode("utf-8", "surrogatepass") + blob
        return (
            sha256(text).digest()
            if self._secret is None
            else hmac.digest(self._secret, text, "sha256")
        )

    def _write(
        self, statement: str, statement_rows: Sequence[Sequence[object]], *, make: bool = False
    ) -> bool:
        """Whether a statement was run with each of some rows, in one transaction."""

        def write(connection: sqlite3.Connection) -> bool:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(statement, statement_rows)
                self._make_room(connection)
            return True

        return self._run(write, make=make) is not None

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Delete the least recently stored, a tenth at a time, until the rest fits the size."""

        def number(number_query: str) -> int:
            return int(connection.execute(number_query).fetchone()[0])

        while self._most is not None:
            used_pages = number("PRAGMA page_count") - number("PRAGMA freelist_count")
            used_bytes = used_pages * number("PRAGMA page_size")
            n_blobs = 0 if used_bytes <= self._most else number("SELECT count(*) FROM blobs")
            if not n_blobs:
                return
            oldest_query = "SELECT rowid FROM blobs ORDER BY rowid LIMIT ?"
            statement = f"DELETE FROM blobs WHERE rowid IN ({oldest_query})"  # noqa: S608
            connection.execute(statement, (max(1, n_blobs // 10),))

    def _run(self, run_work: Callable[[sqlite3.Connection], T], *, make: bool) -> T | None:
        """Result of some work on the file; None without a file.

        Of a damaged file, on a new one.
        """
        self._leave_fork()
        with self._lock:
            start_time = monotonic()
            for attempt in range(2 if start_time >= self._alone_until else 0):
                try:
                    if self._connection is None:
                        if not (make or os.path.lexists(self.path)):
                            return None
                        self._connection = _open(self.path, self._patience_s)
                    return run_work(self._connection)
                except (
                    sqlite3.Error,
                    OSError,
                    UnicodeError,
                    OverflowError,
                    MemoryError,
                    _ForeignError,
                ) as error:
                    # another process has it; a later use may find it free
                    if sqlite_code(error) in LOCKED_CODES:
                        self._alone_until = monotonic() + pause_after(monotonic() - start_time)
                        return None
                    if attempt or not self._recover(error):
                        return None
        return None

    def _recover(self, error: Exception) -> bool:
        """Whether the place is free for a new file, since the old one is damaged.

        The failure is said.
        """
        shown_reason = str(error) or type(error).__name__
        error_code = sqlite_code(error)
        folder_path = next(
            (blob_path for blob_path in (self.path, *_beside(self.path)) if blob_path.is_dir()),
            None,
        )
        if folder_path is not None:
            self._warn(
                f"must be a file, got a folder as {folder_path.name}: it stays, with no cache"
            )
            return False
        is_closed = getattr(error, "errno", None) in {EROFS, EACCES, EPERM}
        if is_closed or error_code == sqlite3.SQLITE_READONLY:
            return False
        # These say nothing against the content of the file. SQLite's own "error" is a statement
        # that does not fit it.
        is_passing = isinstance(error, sqlite3.OperationalError | OSError | MemoryError)
        if is_passing and error_code != sqlite3.SQLITE_ERROR:
            self._warn(f"failed ({shown_reason}): raglab works without it")
            return False
        self._disconnect()
        outcome = "put aside and made again"
        try:
            for blob_path in (*_beside(self.path), self.path):
                with suppress(FileNotFoundError):
                    blob_path.replace(blob_path.with_name(blob_path.name + DAMAGED_SUFFIX))
        except OSError as failure:
            outcome = f"not put aside ({failure})"
        self._warn(f"is damaged or none of raglab's ({shown_reason}): it is {outcome}")
        return outcome.startswith("put")

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def _leave_fork(self) -> None:
        """A process of its own has a connection of its own."""
        if self._process != os.getpid():
            _ABANDONED.append(self._connection)
            self._process, self._lock, self._connection = os.getpid(), threading.Lock(), None

    def _warn(self, warning: str) -> None:
        if not self._warned:
            self._warned = True
            warn_user(visible(f"the cache {self.path} {warning}."))


class _ForeignError(Exception):
    """A file that raglab did not write."""


def sqlite_code(error: object) -> int:
    """Primary result code of SQLite; 0 where the error is another."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _open(path: Path, patience_s: float) -> sqlite3.Connection:
    """Connection to a file of ours, which is made where it is not there."""
    if not os.path.lexists(path):
        _make(path)
    reason = "a link" if path.is_symlink() else unsafe_neighbour(path)
    if reason:
        raise _ForeignError(reason)
    try:
        return _connect(path, "mode=rw", patience_s)
    except sqlite3.OperationalError as error:
        # On a full disk or in a closed folder SQLite cannot write its own files, not even to read.
        if sqlite_code(error) not in UNWRITABLE_CODES:
            raise
        return _connect(path, "mode=ro&immutable=1", patience_s)


def _make(path: Path) -> None:
    """Make an empty file whole and put it in its place, unless another process was faster.

    It is in WAL mode before it has its name: processes that switch at once would lock each other
    out.
    """
    with _first(path) as new_path:
        new_path.touch(mode=0o644)  # says why it cannot be made, which SQLite does not
        with closing(sqlite3.connect(new_path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(_BLOBS_SCHEMA)


def _connect(path: Path, open_mode: str, patience_s: float) -> sqlite3.Connection:
    """Connection to a file of ours, which runs nothing that it holds.

    Args:
      open_mode: as in a URI of SQLite.
      patience_s: seconds to wait for a lock.

    Raises:
      sqlite3.Error: the file cannot be opened, or is damaged.
      _ForeignError: its schema is not ours.
    """
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{open_mode}",
        uri=True,
        timeout=patience_s,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.text_factory = bytes
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for pragma in (
            "trusted_schema=OFF",
            "cell_size_check=ON",
            "mmap_size=0",
            "synchronous=NORMAL",
        ):
            connection.execute(f"PRAGMA {pragma}")
        if {
            tuple(schema_row)
            for schema_row in connection.execute(
                "SELECT type, name, sql FROM sqlite_master LIMIT 10"
            )
        } != _SCHEMA_OBJECTS:
            message = "other tables"
            raise _ForeignError(message)  # noqa: TRY301 - the connection is closed on the way out
    except BaseException:
        connection.close()
        raise
    return connection


def unsafe_neighbour(path: Path) -> str | None:
    """Unsafe file at or next to a file of SQLite, in words; None if all are safe.

    A pipe never ends; and a rollback journal may name a second file, which SQLite deletes once it
    was played back. A journal of ours names none, since no transaction of ours spans two files.
    """
    if path.exists() and not path.is_file():
        return f"a folder, pipe or device as {path.name}"
    for neighbour in _beside(path):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(neighbour.lstat().st_mode):
                return f"a link, folder, pipe or device as {neighbour.name}"
            if neighbour.name.endswith("-journal"):
                with neighbour.open("rb") as journal_file:
                    journal_file.seek(max(0, neighbour.stat().st_size - len(_JOURNAL_MAGIC)))
                    if journal_file.read() == _JOURNAL_MAGIC:
                        return f"a journal that names another file as {neighbour.name}"
    return None


def _beside(path: Path) -> Iterator[Path]:
    """What SQLite keeps beside a file."""
    return (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))
