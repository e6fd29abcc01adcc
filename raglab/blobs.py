"""Blobs (shore): values by key in one SQLite file, checked when they are read; what is damaged is made again.

Everything that raglab keeps only to spare itself work stands here: embeddings, answers, retrievals. Such a file travels
with its folder and may come from anyone, so nothing of it is believed: a value is bytes with a digest over key and
bytes, the schema must be ours to the letter, and what is no such file is put aside.
"""

from __future__ import annotations

import hmac
import os
import secrets
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from raglab.characters import visible
from raglab.user_warnings import warn_user

BUSY_S = 60.0  # a writer waits so long for its turn
LOOKUP = 500  # keys of one question to the file
MOST_BYTES = 2**28  # of one value
KEY_BYTES = 32
ASIDE = ".damaged"

_SCHEMA = "CREATE TABLE blobs (key TEXT PRIMARY KEY, digest BLOB NOT NULL, value BLOB NOT NULL)"
_OBJECTS = {(b"table", b"blobs", _SCHEMA.encode()), (b"index", b"sqlite_autoindex_blobs_1", None)}
_MAGIC = b"SQLite format 3\x00"
_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # how a rollback journal begins, and ends where it names another file
# What keeps a sound file from being used now, and says nothing against what stands in it.
_PASSING = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN}
_ABANDONED: list[object] = []  # of the process before a fork: closed there, since closing here would drop its locks

T = TypeVar("T")


def cache_folder() -> Path:
    """The user's own folder: RAGLAB_CACHE, else ~/.cache/raglab."""
    folder = os.environ.get("RAGLAB_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "raglab"


def own_secret(folder: Path | None = None) -> bytes:
    """Secret of this user, made on its first use: what was written under it, this user wrote.

    Args:
      folder: where it is kept, in the file `cache.key`; the user's own. Where it can be neither read nor written, the
        secret is of this process alone.
    """
    place = (cache_folder() if folder is None else folder) / "cache.key"
    with suppress(OSError):
        known = _small_file(place)
        if known is not None:
            return known
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            with suppress(FileExistsError):  # another process was first
                if place.is_symlink() or place.exists():
                    partial.replace(place)  # one of another length is no key
                else:
                    os.link(partial, place)
        finally:
            with suppress(OSError):
                partial.unlink()
        known = _small_file(place)
        if known is not None:
            return known
    return _PROCESS_SECRET


_PROCESS_SECRET = secrets.token_bytes(KEY_BYTES)


def _small_file(path: Path) -> bytes | None:
    """Content of a regular file of the length of a secret."""
    with suppress(FileNotFoundError):
        about = path.stat()
        if stat.S_ISREG(about.st_mode) and about.st_size == KEY_BYTES:
            return path.read_bytes()
    return None


class Blobs:
    """Values by key in a file that processes and threads share; a lookup returns only what was stored under the key.

    Every write is one transaction: a process that is killed loses at most its last one. Whatever goes wrong is said in
    one warning, and costs the cache and never the caller: a file that is none of ours, or damaged, is put aside under
    the ending `.damaged` and begun anew; one that cannot be written is read; one that cannot be read holds nothing.
    """

    def __init__(self, path: Path, *, most_bytes: int | None = None, secret: bytes | None = None) -> None:
        """Name the file; it is opened on first use, and made by the first write.

        Args:
          most_bytes: of the file, about; the least recently stored go first. None is without end. secret: binds the
            digests to who knows it, so that a file from elsewhere holds nothing; None takes what anyone wrote.
        """
        self.path, self._most, self._secret = path, most_bytes, secret
        self._link = _Link()

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Values of those keys that are there and whole."""

        def read(link: sqlite3.Connection) -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            damaged: list[str] = []
            for start in range(0, len(keys), LOOKUP):
                some = keys[start : start + LOOKUP]
                marks = ",".join("?" * len(some))
                rows = link.execute(f"SELECT key, digest, value FROM blobs WHERE key IN ({marks})", some)  # noqa: S608
                for key, digest, value in rows:
                    name = key.decode()
                    whole = isinstance(digest, bytes) and isinstance(value, bytes)
                    if whole and hmac.compare_digest(digest, self._digest(name, value)):
                        found[name] = value
                    else:
                        damaged.append(name)
            if damaged and not self._link.read_only:
                _delete(link, damaged)
            return found

        return self._run(read, write=False) or {}

    def has(self, key: str) -> bool:
        """Whether a value of the key is there and whole."""
        return bool(self.get([key]))

    def put(self, values: Mapping[str, bytes], *, over: bool = True) -> None:
        """Store values in one transaction.

        Args:
          over: whether a value takes the place of one of the same key, or that stays.
        """
        if not values:
            return
        rows = [(key, self._digest(key, value), value) for key, value in values.items()]

        def write(link: sqlite3.Connection) -> None:
            with link:
                link.execute("BEGIN IMMEDIATE")
                link.executemany(f"INSERT OR {'REPLACE' if over else 'IGNORE'} INTO blobs VALUES (?, ?, ?)", rows)  # noqa: S608
                self._make_room(link)

        self._run(write, write=True)

    def drop(self, keys: Sequence[str]) -> None:
        """Take out the values of keys."""
        if keys and os.path.lexists(self.path):
            self._run(lambda link: _delete(link, keys), write=True)

    def clear(self) -> None:
        """Take out all values."""

        def write(link: sqlite3.Connection) -> None:
            with link:
                link.execute("DELETE FROM blobs")

        if os.path.lexists(self.path):
            self._run(write, write=True)

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        link = self._own_link()
        with link.lock:
            link.close()

    def _digest(self, key: str, value: bytes) -> bytes:
        text = len(key).to_bytes(8, "big") + key.encode("utf-8", "surrogatepass") + value
        return sha256(text).digest() if self._secret is None else hmac.digest(self._secret, text, "sha256")

    def _make_room(self, link: sqlite3.Connection) -> None:
        """Delete the least recently stored, a tenth at a time, until the rest is within the size."""
        if self._most is None:
            return
        (page,), (count,) = link.execute("PRAGMA page_size").fetchone(), link.execute("SELECT 1").fetchone()
        while count:
            (pages,), (free,) = (link.execute(f"PRAGMA {of}").fetchone() for of in ("page_count", "freelist_count"))
            if page * (pages - free) <= self._most:
                return
            (count,) = link.execute("SELECT count(*) FROM blobs").fetchone()
            oldest = "SELECT rowid FROM blobs ORDER BY rowid LIMIT ?"
            link.execute(f"DELETE FROM blobs WHERE rowid IN ({oldest})", (max(1, count // 10),))  # noqa: S608

    def _run(self, work: Callable[[sqlite3.Connection], T], *, write: bool) -> T | None:
        """Result of some work on the file; None where there is none to work on. Of a damaged file, on a new one."""
        link = self._own_link()
        with link.lock:
            for last in (False, True):
                try:
                    if link.connection is None and not self._open(link, make=write):
                        return None
                    if link.connection is None or (write and link.read_only):
                        return None
                    return work(link.connection)
                except (sqlite3.Error, OSError, UnicodeError, OverflowError, MemoryError, _ForeignError) as error:
                    # A file that cannot be used now is left as it is; a damaged one makes way, once.
                    if not self._recovered(link, error) or last:
                        return None
        return None

    def _recovered(self, link: _Link, error: Exception) -> bool:
        """Say what failed and go on with less; whether the place is free for a new file."""
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        came = str(error) or type(error).__name__
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return False  # another process has it; the next use may find it free
        if code in _UNWRITABLE and link.connection is not None and not link.read_only:
            link.read_only = True
            self._say(f"cannot be written ({came}): it is only read from now on")
            return False
        link.close()
        if not (link.read_only or code in _PASSING or isinstance(error, OSError | MemoryError)):
            with suppress(OSError):
                _put_aside(self.path)
                self._say(f"is damaged or none of raglab's ({came}): it is put aside and made again")
                return True
        self._say(f"cannot be used ({came}): raglab works without it")
        link.off = True
        return False

    def _open(self, link: _Link, *, make: bool) -> bool:
        """Connect to the file; whether there is one. It is made where it is wanted and can be."""
        there = os.path.lexists(self.path)
        if link.off or not (there or make):
            return False
        # Root passes every permission, so what is asked is whether the system would let it write.
        link.read_only = not _writable(self.path)
        if not there:
            if link.read_only:
                return False
            _make(self.path)
        _check_files(self.path)
        try:
            link.connection = _connect(self.path, "mode=ro" if link.read_only else "mode=rw")
        except sqlite3.OperationalError as error:
            # A full disk, or a closed folder, has no room for what SQLite keeps beside a file, not even to read it.
            if (error.sqlite_errorcode & 0xFF) not in _UNWRITABLE:
                raise
            link.connection, link.read_only = _connect(self.path, "mode=ro&immutable=1"), True
        return True

    def _own_link(self) -> _Link:
        """Connection of this process."""
        if self._link.process != os.getpid():
            _ABANDONED.append(self._link)
            self._link = _Link()
        return self._link

    def _say(self, what: str) -> None:
        warn_user(visible(f"the cache {self.path} {what}."))


class _ForeignError(Exception):
    """A file that is none of ours."""


class _Link:
    """Connection of one process, which its threads take turns with.

    read_only: the file cannot be written. off: it cannot be used at all.
    """

    def __init__(self) -> None:
        self.process, self.lock = os.getpid(), threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self.read_only = self.off = False

    def close(self) -> None:
        """Let go of the connection."""
        if self.connection is not None:
            with suppress(sqlite3.Error):
                self.connection.close()
        self.connection = None


def _delete(link: sqlite3.Connection, keys: Iterable[str]) -> None:
    with link:
        link.execute("BEGIN IMMEDIATE")
        link.executemany("DELETE FROM blobs WHERE key = ?", ((key,) for key in keys))


def _make(path: Path) -> None:
    """Make an empty file whole and put it in its place, unless another process was faster.

    It is in WAL mode before it has its name, so that no rollback journal is ever ours: SQLite would play back one that
    lies beside a file, and a forged one may name files to delete.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with closing(sqlite3.connect(partial)) as link:
            link.execute("PRAGMA journal_mode=WAL")
            link.execute(_SCHEMA)
        try:
            os.link(partial, path)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            partial.replace(path)
    finally:
        for left in (partial, *_beside(partial)):
            with suppress(OSError):
                left.unlink()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Connection to a file of ours, which runs nothing that stands in it.

    Args:
      mode: as in a URI of SQLite.

    Raises:
      sqlite3.Error: the file cannot be opened, or is damaged.
      _ForeignError: its schema is not ours.
    """
    address = f"file:{quote(str(path.absolute()))}?{mode}"
    link = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        link.text_factory = bytes
        link.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
        link.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "synchronous=NORMAL"):
            link.execute(f"PRAGMA {pragma}")
        objects = {tuple(row) for row in link.execute("SELECT type, name, sql FROM sqlite_master LIMIT 10")}
        if objects != _OBJECTS:
            msg = "its tables are not those of this version"
            raise _ForeignError(msg)  # noqa: TRY301 - the connection is closed on the way out
        link.execute("SELECT key FROM blobs LIMIT 1").fetchone()
    except BaseException:
        link.close()
        raise
    return link


def _check_files(path: Path) -> None:
    """Stop at what is no file of SQLite's, before SQLite or the system follows it anywhere.

    Raises:
      _ForeignError: a link, folder, pipe or device; a journal beside the file; another kind of file.
    """
    for one in (path, *_beside(path)):
        with suppress(FileNotFoundError):
            kind = one.lstat().st_mode
            if not stat.S_ISREG(kind):
                msg = "a link" if stat.S_ISLNK(kind) else "a folder, pipe or device"
                raise _ForeignError(msg)
            if one.name.endswith("-journal"):
                msg = "a rollback journal lies beside it"
                raise _ForeignError(msg)
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if head != _MAGIC:
        msg = "no database"
        raise _ForeignError(msg)


def forged_beside(path: Path) -> str | None:
    """What lies at or beside a file of SQLite that it must not open, in words; None where nothing does.

    A pipe never ends; and a rollback journal may name a second file, which SQLite deletes once it was played back. A
    journal of ours names none, since no transaction of ours spans two files.
    """
    if path.exists() and not path.is_file():
        return f"a folder, pipe or device as {path.name}"
    for one in _beside(path):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(one.lstat().st_mode):
                return f"a link, folder, pipe or device as {one.name}"
            if one.name.endswith("-journal"):
                with one.open("rb") as file:
                    file.seek(max(0, one.stat().st_size - len(_JOURNAL)))
                    if file.read() == _JOURNAL:
                        return f"a journal that names another file as {one.name}"
    return None


def _writable(path: Path) -> bool:
    """Whether the system lets this process write a file, or make it."""
    folder = next(one for one in path.absolute().parents if one.exists())
    there = path.is_file() and not path.is_symlink()
    return os.access(folder, os.W_OK) and (not there or os.access(path, os.W_OK))


def _beside(path: Path) -> Iterator[Path]:
    """What SQLite keeps beside a file."""
    return (path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))


def _put_aside(path: Path) -> None:
    """Free a name: what stands there takes the ending `.damaged`, over what had it before; what lies beside it goes."""
    aside = path.with_name(path.name + ASIDE)
    for rest in _beside(path):  # first: once the name is free, another process may begin anew under it
        _take_away(rest)
    with suppress(FileNotFoundError):
        kind = path.lstat().st_mode
        if stat.S_ISDIR(kind) and os.path.lexists(aside):
            aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}{ASIDE}")
        path.replace(aside)


def _take_away(path: Path) -> None:
    """Remove a file or link; a folder gets another name."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            path.replace(path.with_name(f"{path.name}.{secrets.token_hex(4)}{ASIDE}"))
        else:
            path.unlink()
