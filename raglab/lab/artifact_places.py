"""Artifact places (shore): where a tracking store may have the files of runs written.

The database of a store names the place of each experiment's files, as path or URL, and MLflow
writes there. A database from elsewhere would choose any folder of this machine, or a bucket, so
each place is checked before anything is written.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlparse, urlsplit
from urllib.request import url2pathname

from raglab.lab.store_errors import check_beside, sqlite_files
from raglab.store.files import Where, input_error, shown_value
from raglab.words.characters import masked_passwords

# more places, separated by blanks: folders, and what other URLs begin with
ALLOWED = "RAGLAB_ARTIFACTS"
# Where a database of MLflow names places for files.
STORED_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)
OWN_FOLDER = "track into a folder of your own"
_PROXIED = "mlflow-artifacts"  # by the server itself
_SERVER = ("http", "https")
# Tables that a run is written to: what a trigger on one of them or a view in its place would change
# is not what was checked.
_WRITTEN = frozenset(
    """experiments experiment_tags runs tags params metrics latest_metrics datasets inputs
    input_tags""".split()  # noqa: SIM905
)


class ArtifactPlaces(NamedTuple):
    """Where artifacts may be written.

    store: the tracking store, as a message names it. roots: folders, resolved. host: of the server
    that is the store, '' where it is none. more: what other places may begin with.
    """

    store: str
    roots: tuple[Path, ...]
    host: str
    more: tuple[str, ...]

    def check(self, place: str) -> None:
        """Refuse the place of an experiment or run where a store may not have artifacts written.

        Raises:
          InputError: names the place, what is allowed, and how to allow it.
        """
        try:
            parts = urlsplit(place)
        except ValueError:  # no URL, whatever else it is
            parts = SplitResult("", "", "", "", place)
        if self._is_inside(parts, place) or any(
            _begins_with(place, allowed) for allowed in self.more
        ):
            return
        allowed = [f"by the server {self.host}"] * bool(self.host) + [
            f"below {root}" for root in self.roots
        ]
        rule = f"artifacts must be written {' or '.join(allowed)}"
        remedy = f"{OWN_FOLDER}, or, if the place is meant, name it in {ALLOWED}"
        value = shown_value(masked_passwords(place))
        if ends := [str(path) for path in _local_paths(parts, place) if str(path) not in place]:
            value += f", which leads to {shown_value(ends[0])}"
        raise input_error(Where(self.store), rule, remedy, value)

    def _is_inside(self, parts: SplitResult, place: str) -> bool:
        if parts.scheme in (_PROXIED, *_SERVER):
            by_itself = parts.scheme == _PROXIED and not parts.netloc
            return bool(self.host) and (by_itself or _host(parts) == self.host)
        paths = _local_paths(parts, place)
        return bool(paths) and all(
            any(path.is_relative_to(root) for root in self.roots) for path in paths
        )


def _local_paths(parts: SplitResult, place: str) -> set[Path]:
    """Where a place on this machine leads, links and `..` followed.

    As MLflow reads it, and as it is written.
    """
    local = parts.scheme in ("", "file") and parts.netloc in ("", "localhost")
    if not local or parts.query or parts.fragment:
        return set()
    read = urlparse(place).path if parts.scheme else place
    return {
        Path(path).resolve() for path in (url2pathname(read), *([] if parts.scheme else [place]))
    }


def artifact_places(uri: str, root: Path | None) -> ArtifactPlaces:
    """Where the store of a URI may have artifacts written.

    Args:
      uri: of the tracking store.
      root: its folder, where it is one of ours; else a server writes by itself, and any other store
        into `mlruns` here, as MLflow does, or beside its file.
    """
    stated = os.environ.get(ALLOWED, "").split()
    folders = [path for name in stated for path in _local_paths(urlsplit(name), name)]
    more = tuple(name for name in stated if not _local_paths(urlsplit(name), name))
    parts = urlsplit(uri)
    if parts.scheme in _SERVER:
        return ArtifactPlaces(uri, tuple(folders), _host(parts), more)
    own = (
        [root]
        if root is not None
        else [Path("mlruns"), *(file.parent for file in sqlite_files(uri))]
    )
    roots = tuple(folder.resolve() for folder in (*own, *folders))
    return ArtifactPlaces(uri if root is None else str(root), roots, "", more)


def check_database(uri: str) -> None:
    """Refuse an SQLite file whose triggers or views change writes, or that SQLite must not open.

    Raises:
      InputError: names the first of them.
    """
    check_beside(uri)
    for file, connection in _opened(uri):
        query = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY name"
        for kind, name, table in connection.execute(query):
            if kind in {"trigger", "view"} and table in _WRITTEN:
                value = shown_value(f"the {kind} {name} on {table}")
                rule = "the tracking database must be as MLflow makes it"
                raise input_error(Where(str(file)), rule, OWN_FOLDER, value)


def _opened(uri: str) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """The SQLite file of a URI where it is there, with a connection that is closed afterwards."""
    for file in sqlite_files(uri):
        if file.is_file():
            with closing(sqlite3.connect(file)) as connection:
                yield file, connection


def check_stored_places(uri: str, places: ArtifactPlaces) -> None:
    """Refuse an SQLite file naming a place for experiment, run or model files it may not have.

    MLflow's page shows and takes files there. What it keeps by itself, below `mlartifacts` here, is
    allowed.

    Raises:
      InputError: names the first of them.
    """
    for _, connection in _opened(uri):
        tables = table_names(connection)
        queries = [
            f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"  # noqa: S608
            for table, column in STORED_PLACES
            if table in tables
        ]
        for (place,) in chain.from_iterable(map(connection.execute, queries)):
            if not isinstance(place, str):
                rule, value = "places for files must be texts", shown_value(repr(place))
                raise input_error(Where(places.store), rule, OWN_FOLDER, value)
            if not place.startswith(f"{_PROXIED}:/") or place.startswith(f"{_PROXIED}://"):
                places.check(place)


def table_names(connection: sqlite3.Connection) -> set[str]:
    """Names of the tables of a database."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return {name for (name,) in connection.execute(query)}


def _host(parts: SplitResult) -> str:
    """Host and port of a URL, without who asks."""
    default = {"http": 80, "https": 443}.get(parts.scheme)
    try:
        port = parts.port or default or ""
    except ValueError:  # no number: the same as no other
        return parts.netloc
    return f"{parts.hostname or ''}:{port}"


def _begins_with(place: str, allowed: str) -> bool:
    """Whether a place is one that is allowed, or below it."""
    if _has_dots(place):
        return False
    return place == allowed.rstrip("/") or place.startswith(allowed.rstrip("/") + "/")


def _has_dots(place: str) -> bool:
    """Whether a place climbs by `..`, in whatever writing."""
    return ".." in unquote(unquote(place)).replace("\\", "/").split("/")
