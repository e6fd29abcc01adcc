"""Where a tracking store may have files written.

Below its own folder, or by its own server, and nowhere else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from types import SimpleNamespace

import pytest

from fuzz.outcomes import is_clear
from hostile import forge_journal
from raglab.lab.artifact_places import ALLOWED_VARIABLE, artifact_places, check_database
from raglab.lab.tracking import serve, show_page, track_run
from raglab.lab.trial_search import open_study
from raglab.store.files import InputError

SERVER = "https://ann:word@runs.example/mlflow"


@pytest.fixture
def root(tmp_path):
    """Return a folder of runs, beside one of somebody else; a link leads from one to the other."""
    for name in ("mlruns", "else", "mlruns-2"):
        (tmp_path / name).mkdir()
    (tmp_path / "mlruns" / "link").symlink_to(tmp_path / "else")
    return tmp_path / "mlruns"


class TestPlaces:
    """The check of one place."""

    @pytest.mark.parametrize(
        "place", ["", "artifacts/tune", "artifacts/../artifacts/a%20b", "a b/c"]
    )
    def test_below_the_folder(self, root, place):
        """As path or URL, whether it is there or not."""
        places = artifact_places("sqlite:///x", root)
        places.check(str(root / place))
        places.check(f"file://{root}/{place}".replace(" ", "%20"))
        places.check(f"file://localhost{root}/{place}".replace(" ", "%20"))

    @pytest.mark.parametrize(
        "place",
        [
            "{else}",
            "file://{else}",
            "file://{root}/../else",
            "file://{root}/%2e%2e/else",
            "{root}/%2e%2e/else",
            "{root}/../else",
            "{root}-2",
            "file://{root}/link",
            "{root}/link/../x",
            "file://host{root}",
            "file://{root}?x=1",
            "file://{root}#../else",
            "file:relative",
            "relative",
            "../relative",
            "",
            "/",
            "s3://bucket/x",
            "gs://bucket/x",
            "http://127.0.0.1/x",
            "mlflow-artifacts:/x",
            "mlflow-artifacts://host/x",
            "dbfs:/x",
            "ftp://host/x",
            "runs:/x",
            "FILE://{else}",
        ],
    )
    def test_elsewhere(self, root, place, monkeypatch, tmp_path):
        """Refused with the place and how to allow it."""
        monkeypatch.chdir(tmp_path)
        named = place.replace("{else}", str(tmp_path / "else")).replace("{root}", str(root))
        if place == "{root}/link/../x":  # behind the link: beside the folder that it leads to
            assert (root / "link" / "..").resolve() == tmp_path
        with pytest.raises(
            InputError,
            match=rf"must be written below .*mlruns, got .*; .*name it in {ALLOWED_VARIABLE}",
        ):
            artifact_places("sqlite:///x", root).check(named)

    @pytest.mark.parametrize(
        ("place", "fits"),
        [
            ("mlflow-artifacts:/1", True),
            ("mlflow-artifacts:/1/../2", True),
            ("https://runs.example/api/2.0/mlflow-artifacts/artifacts/1", True),
            ("https://runs.example:443/x", True),
            ("https://ann:word@runs.example/x", True),
            ("https://runs.example:8443/x", False),
            ("http://runs.example/x", False),
            ("https://runs.example.evil/x", False),
            ("https://runs.example@evil/x", False),
            ("https://evil/runs.example", False),
            ("mlflow-artifacts://evil/1", False),
            ("s3://bucket/1", False),
            ("/etc", False),
            ("file:///etc", False),
            ("relative", False),
            ("https://runs.example:x/", False),
        ],
    )
    def test_by_the_server(self, place, fits):
        """Its own host alone; a server must not have files written on this machine."""
        places = artifact_places(SERVER, None)
        if fits:
            places.check(place)
            return
        with pytest.raises(
            InputError, match=r"written by the server runs\.example:443, got"
        ) as caught:
            places.check(place)
        assert "word" not in str(caught.value)

    @pytest.mark.parametrize(
        ("place", "fits"),
        [
            ("s3://bucket/runs", True),
            ("s3://bucket/runs/1", True),
            ("s3://bucket/runs-2", False),
            ("s3://bucket/runs/../x", False),
            ("s3://bucket/runs/%2e%2e/x", False),
            ("s3://bucket", False),
            ("{else}/x", True),
            ("file://{else}", True),
            ("{else}/../x", False),
        ],
    )
    def test_what_the_user_allows(
        self,
        root,
        monkeypatch,
        place,
        fits,
    ):
        """By the variable: folders, and what URLs begin with."""
        other = root.parent / "else"
        monkeypatch.setenv(ALLOWED_VARIABLE, f"s3://bucket/runs/ {other}")
        for places in (artifact_places("sqlite:///x", root), artifact_places(SERVER, None)):
            if fits:
                places.check(place.replace("{else}", str(other)))
            else:
                with pytest.raises(InputError, match="artifacts must be written"):
                    places.check(place.replace("{else}", str(other)))


class TestRuns:
    """A database from elsewhere."""

    def placed(self, mlruns, location):
        """Let the database name another place for the files of an experiment."""
        track_run("first", "tune", {}, [], {}, mlruns)
        with closing(sqlite3.connect(mlruns / "mlflow.db")) as link, link:
            link.execute(
                "UPDATE experiments SET artifact_location = ? WHERE name = 'tune'", (location,)
            )

    @pytest.mark.parametrize(
        "location",
        [
            lambda path: path.as_uri(),
            str,
            lambda _: "else",
            lambda path: f"file://{path}/x/..",
            lambda path: f"//[{path}",
            lambda _: "file://[::1",
        ],
    )
    def test_nothing_is_written_elsewhere(
        self,
        mlruns,
        tmp_path,
        monkeypatch,
        location,
    ):
        """No file there, and no run in the database."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "else").mkdir()
        self.placed(mlruns, location(tmp_path / "else"))
        with pytest.raises(InputError, match="artifacts must be written below"):
            track_run("second", "tune", {}, [], {}, mlruns, texts={"a.txt": "a"})
        assert not list((tmp_path / "else").iterdir())
        with closing(sqlite3.connect(mlruns / "mlflow.db")) as link:
            assert link.execute("SELECT count(*) FROM runs").fetchone() == (1,)

    @pytest.mark.parametrize(
        "event", ["INSERT ON runs", "INSERT ON params", "INSERT ON latest_metrics"]
    )
    def test_a_trigger_chooses_no_place(self, mlruns, tmp_path, event):
        """The place that is written is the one that was checked."""
        track_run("first", "tune", {}, [], {}, mlruns)
        with closing(sqlite3.connect(mlruns / "mlflow.db")) as link, link:
            place = (tmp_path / "else").as_uri()
            change = f"UPDATE runs SET artifact_uri = '{place}'"
            link.execute(f"CREATE TRIGGER t AFTER {event} BEGIN {change}; END")
        with pytest.raises(InputError, match="must be as MLflow makes it, got 'the trigger t on "):
            track_run("second", "tune", {"a": 1}, [("m", 1.0, 0)], {}, mlruns, texts={"a.txt": "a"})
        assert not (tmp_path / "else").exists()

    def test_a_view_takes_no_table_s_place(self, tmp_path):
        """It could say another place each time that it is read."""
        with closing(sqlite3.connect(tmp_path / "mlflow.db")) as link, link:
            link.execute("CREATE VIEW runs AS SELECT random() AS artifact_uri")
        with pytest.raises(InputError, match="got 'the view runs on runs'"):
            check_database(f"sqlite:///{tmp_path / 'mlflow.db'}")
        check_database("postgresql://u@h/d")
        check_database(f"sqlite:///{tmp_path / 'none.db'}")

    def test_a_link_leads_nowhere_else(self, mlruns, tmp_path):
        """The message says where it leads."""
        (tmp_path / "else").mkdir()
        (mlruns / "artifacts").symlink_to(tmp_path / "else")
        with pytest.raises(InputError, match=r"which leads to '.*else"):
            track_run("first", "tune", {}, [], {}, mlruns, texts={"a.txt": "a"})
        assert not list((tmp_path / "else").iterdir())

    def test_a_database_that_is_locked(self, mlruns, monkeypatch):
        """It says so, and nothing of damage."""
        track_run("first", "tune", {}, [], {}, mlruns)
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.2))
        with closing(sqlite3.connect(mlruns / "mlflow.db", isolation_level=None)) as link:
            link.execute("BEGIN EXCLUSIVE")
            with pytest.raises(
                InputError, match=r"must be free to be written, got .*locked.*nothing is damaged"
            ):
                track_run("second", "tune", {}, [], {}, mlruns)
        track_run("second", "tune", {}, [], {}, mlruns)


def changed(mlruns, *statements):
    """Change the database of a store that has a run, as whoever sends it may have."""
    track_run("first", "tune", {}, [], {}, mlruns, texts={"a.txt": "a"})
    with closing(sqlite3.connect(mlruns / "mlflow.db")) as link, link:
        for statement in statements:
            link.execute(statement)


class TestPage:
    """MLflow's own page on a database from elsewhere.

    It would show and write files where the database says.
    """

    @pytest.fixture
    def commands(self, monkeypatch):
        """Return the commands that are started, none of them in truth."""
        started: list[list[str]] = []

        def run(command, **_):
            started.append(command)
            return SimpleNamespace(returncode=0)

        monkeypatch.setattr("raglab.lab.tracking.subprocess", SimpleNamespace(run=run))
        return started

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE experiments SET artifact_location = '{else}' WHERE name = 'tune'",
            "UPDATE runs SET artifact_uri = '{else}'",
            "UPDATE runs SET artifact_uri = 'file://{else}'",
            "UPDATE runs SET artifact_uri = artifact_uri || '/../../../../../else'",
            "UPDATE runs SET artifact_uri = 's3://bucket/a'",
            "UPDATE runs SET artifact_uri = 'mlflow-artifacts://host/a'",
            (
                "UPDATE experiments SET artifact_location = '{else}', lifecycle_stage = 'deleted' "
                "WHERE name = 'tune'"
            ),
        ],
    )
    def test_a_place_elsewhere(
        self,
        mlruns,
        tmp_path,
        monkeypatch,
        capsys,
        commands,
        statement,
    ):
        """Of an experiment or a run: no page, and a line that says why.

        No file of ours is written there either.
        """
        (tmp_path / "else").mkdir()
        changed(mlruns, statement.replace("{else}", str(tmp_path / "else")))
        with pytest.raises(InputError, match="artifacts must be written below"):
            serve(mlruns)
        monkeypatch.chdir(mlruns.parent)
        monkeypatch.setattr("raglab.lab.tracking.DEFAULT_FOLDER", mlruns.name)
        assert show_page() == 1
        assert capsys.readouterr().err.count("artifacts must be written below") == 1
        assert not commands
        with suppress(InputError):
            track_run("second", "tune", {}, [], {}, mlruns, texts={"b.txt": "b"})
        assert not list((tmp_path / "else").iterdir())

    @pytest.mark.parametrize(
        "statement", ["", "UPDATE runs SET artifact_uri = 'mlflow-artifacts:/1/a/artifacts'"]
    )
    def test_a_store_of_its_own(self, mlruns, commands, statement):
        """Even if another's folder is in MLflow's own experiment, and for what its page keeps."""
        changed(
            mlruns,
            "UPDATE experiments SET artifact_location = '/home/ann/mlruns/0' WHERE experiment_id "
            "= 0",
        )
        if statement:
            changed(mlruns, statement)
        assert serve(mlruns) == 0
        assert [command[3:6] for command in commands] == [["ui", "--host", "127.0.0.1"]]

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE runs SET artifact_uri = x'2f746d70'",
            "UPDATE experiments SET artifact_location = x'00ff' WHERE name = 'tune'",
            "UPDATE runs SET artifact_uri = 'file://[::1'",
            "UPDATE runs SET artifact_uri = ''",
            "ALTER TABLE experiments RENAME COLUMN artifact_location TO other",
            "ALTER TABLE runs RENAME COLUMN artifact_uri TO other",
            "UPDATE experiments SET name = x'ff00', artifact_location = 7 WHERE name = 'tune'",
        ],
    )
    def test_a_database_of_another_form(self, mlruns, commands, statement):
        """One line says so, and no page is shown."""
        changed(mlruns, statement)
        with pytest.raises(InputError) as refused:
            serve(mlruns)
        assert is_clear(refused.value), str(refused.value)
        assert not commands

    def test_a_trigger_is_not_run(self, mlruns, commands):
        """Places are taken home in a database without any alone."""
        changed(
            mlruns,
            "UPDATE experiments SET artifact_location = '/home/ann/mlruns/0' WHERE experiment_id "
            "= 0",
            "CREATE TRIGGER t AFTER UPDATE ON experiments BEGIN DELETE FROM runs; END",
        )
        with pytest.raises(InputError, match="got 'the trigger t on experiments'"):
            serve(mlruns)
        with closing(sqlite3.connect(mlruns / "mlflow.db")) as link:
            assert link.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        assert not commands

    @pytest.mark.parametrize("door", ["serve", "track", "study"])
    def test_a_forged_journal_deletes_nothing(self, mlruns, tmp_path, commands, door):
        """Beside a database of runs, or of a study of Optuna."""
        changed(mlruns)
        file = tmp_path / "study.db" if door == "study" else mlruns / "mlflow.db"
        with closing(sqlite3.connect(file)) as link:
            link.execute("PRAGMA journal_mode=DELETE")
            link.execute("CREATE TABLE IF NOT EXISTS other (a)")
        victim = forge_journal(file, tmp_path / "victim")
        doors: dict[str, Callable[[], object]] = {
            "serve": lambda: serve(mlruns),
            "track": lambda: track_run("second", "tune", {}, [], {}, mlruns),
            "study": lambda: open_study(f"sqlite:///{file}", "mine", {}),
        }
        with pytest.raises(
            InputError, match=f"got a journal that names another file as {file.name}-journal"
        ):
            doors[door]()
        assert victim.exists()
        assert not commands
