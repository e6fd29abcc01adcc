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
ALLOWED_VARIABLE = "RAGLAB_ARTIFACTS"
# Where a database of MLflow names places for files.
STORED_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)
OWN_FOLDER_REMEDY = "track into a folder of your own"
_PROXIED_SCHEME = "mlflow-artifacts"  # by the server itself
_SERVER_SCHEMES = ("http", "https")
# Tables that a run is written to: what a trigger on one of them or a view in its place would change
# is not what was checked.
_WRITTEN_TABLES = frozenset(
    """experiments experiment_tags runs tags params metrics latest_metrics datasets inputs
    input_tags""".split()  # noqa: SIM905
)


class ArtifactPlaces(NamedTuple):
    """Where artifacts may be written.

    store: the tracking store, as a message names it. roots: folders, resolved. host: of the server
    that is the store, '' without one. more: what other places may begin with.
    """

    store: str
    roots: tuple[Path, ...]
    host: str
    more: tuple[str, ...]

    def check(self, artifact_place: str) -> None:
        """Refuse the place of an experiment or run where a store may not have artifacts written.

        Raises:
          InputError: names the place, what is allowed, and how to allow it.
        """
        try:
            url_parts = urlsplit(artifact_place)
        except ValueError:  # not a URL
            url_parts = SplitResult("", "", "", "", artifact_place)
        if self._is_inside(url_parts, artifact_place) or any(
            _begins_with(artifact_place, allowed_place) for allowed_place in self.more
        ):
            return
        allowed_place = [f"by the server {self.host}"] * bool(self.host) + [
            f"below {root_folder}" for root_folder in self.roots
        ]
        place_rule = f"artifacts must be written {' or '.join(allowed_place)}"
        place_remedy = (
            f"{OWN_FOLDER_REMEDY}, or, if the place is meant, name it in {ALLOWED_VARIABLE}"
        )
        place_text = shown_value(masked_passwords(artifact_place))
        if resolved_ends := [
            str(local_path)
            for local_path in _local_paths(url_parts, artifact_place)
            if str(local_path) not in artifact_place
        ]:
            place_text += f", which leads to {shown_value(resolved_ends[0])}"
        raise input_error(Where(self.store), place_rule, place_remedy, place_text)

    def _is_inside(self, url_parts: SplitResult, artifact_place: str) -> bool:
        if url_parts.scheme in (_PROXIED_SCHEME, *_SERVER_SCHEMES):
            is_by_itself = url_parts.scheme == _PROXIED_SCHEME and not url_parts.netloc
            return bool(self.host) and (is_by_itself or _host(url_parts) == self.host)
        local_paths = _local_paths(url_parts, artifact_place)
        return bool(local_paths) and all(
            any(local_path.is_relative_to(root_folder) for root_folder in self.roots)
            for local_path in local_paths
        )


def _local_paths(url_parts: SplitResult, artifact_place: str) -> set[Path]:
    """Where a place on this machine leads, links and `..` followed.

    As MLflow reads it, and as it is written.
    """
    is_local = url_parts.scheme in ("", "file") and url_parts.netloc in ("", "localhost")
    if not is_local or url_parts.query or url_parts.fragment:
        return set()
    read_path = urlparse(artifact_place).path if url_parts.scheme else artifact_place
    return {
        Path(written_path).resolve()
        for written_path in (
            url2pathname(read_path),
            *([] if url_parts.scheme else [artifact_place]),
        )
    }


def artifact_places(store_uri: str, store_folder: Path | None) -> ArtifactPlaces:
    """Where the store of a URI may have artifacts written.

    Args:
      store_uri: of the tracking store.
      store_folder: its folder, where it is one of ours; else a server writes by itself, and any
        other store into `mlruns` here, as MLflow does, or next to its file.
    """
    stated_places = os.environ.get(ALLOWED_VARIABLE, "").split()
    allowed_folders = [
        local_path
        for allowed_place in stated_places
        for local_path in _local_paths(urlsplit(allowed_place), allowed_place)
    ]
    allowed_urls = tuple(
        allowed_place
        for allowed_place in stated_places
        if not _local_paths(urlsplit(allowed_place), allowed_place)
    )
    url_parts = urlsplit(store_uri)
    if url_parts.scheme in _SERVER_SCHEMES:
        return ArtifactPlaces(store_uri, tuple(allowed_folders), _host(url_parts), allowed_urls)
    own_folders = (
        [store_folder]
        if store_folder is not None
        else [Path("mlruns"), *(database_file.parent for database_file in sqlite_files(store_uri))]
    )
    root_folders = tuple(root_folder.resolve() for root_folder in (*own_folders, *allowed_folders))
    return ArtifactPlaces(
        store_uri if store_folder is None else str(store_folder), root_folders, "", allowed_urls
    )


def check_database(store_uri: str) -> None:
    """Refuse an SQLite file whose triggers or views change writes, or that SQLite must not open.

    Raises:
      InputError: names the first of them.
    """
    check_beside(store_uri)
    for database_file, connection in _opened(store_uri):
        for entry_kind, entry_name, table_name in connection.execute(
            "SELECT type, name, tbl_name FROM sqlite_master ORDER BY name"
        ):
            if entry_kind in {"trigger", "view"} and table_name in _WRITTEN_TABLES:
                text = shown_value(f"the {entry_kind} {entry_name} on {table_name}")
                raise input_error(
                    Where(str(database_file)),
                    "the tracking database must be as MLflow makes it",
                    OWN_FOLDER_REMEDY,
                    text,
                )


def _opened(store_uri: str) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """The SQLite file of a URI where it is there, with a connection that is closed afterwards."""
    for database_file in sqlite_files(store_uri):
        if database_file.is_file():
            with closing(sqlite3.connect(database_file)) as connection:
                yield database_file, connection


def check_stored_places(store_uri: str, allowed_places: ArtifactPlaces) -> None:
    """Refuse an SQLite file naming a place for experiment, run or model files it may not have.

    MLflow's page shows and takes files there. What it keeps by itself, below `mlartifacts` here, is
    allowed.

    Raises:
      InputError: names the first of them.
    """
    for _, connection in _opened(store_uri):
        present_tables = table_names(connection)
        place_queries = [
            f"SELECT DISTINCT {place_column} FROM {table_name} WHERE {place_column} IS NOT NULL"  # noqa: S608
            for table_name, place_column in STORED_PLACES
            if table_name in present_tables
        ]
        for (stored_place,) in chain.from_iterable(map(connection.execute, place_queries)):
            if not isinstance(stored_place, str):
                place_text = shown_value(repr(stored_place))
                raise input_error(
                    Where(allowed_places.store),
                    "places for files must be texts",
                    OWN_FOLDER_REMEDY,
                    place_text,
                )
            if not stored_place.startswith(f"{_PROXIED_SCHEME}:/") or stored_place.startswith(
                f"{_PROXIED_SCHEME}://"
            ):
                allowed_places.check(stored_place)


def table_names(connection: sqlite3.Connection) -> set[str]:
    """Names of the tables of a database."""
    return {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }


def _host(url_parts: SplitResult) -> str:
    """Host and port of a URL, without who asks."""
    default_port = {"http": 80, "https": 443}.get(url_parts.scheme)
    try:
        url_port = url_parts.port or default_port or ""
    except ValueError:  # no number: the same as no other
        return url_parts.netloc
    return f"{url_parts.hostname or ''}:{url_port}"


def _begins_with(artifact_place: str, allowed_place: str) -> bool:
    """Whether a place is one that is allowed, or below it."""
    # a place climbs by `..`, however it is written
    if ".." in unquote(unquote(artifact_place)).replace("\\", "/").split("/"):
        return False
    return artifact_place == allowed_place.rstrip("/") or artifact_place.startswith(
        allowed_place.rstrip("/") + "/"
    )
