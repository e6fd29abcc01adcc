"""The store of values by key.

What comes back was stored under the key, whatever has become of the file.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import numpy as np
import pytest

from hostile import diskcache_rows, forge_journal, pickles, remount, small_disk
from raglab.store.blobs import KEY_BYTES, Blobs, own_secret
from raglab.store.database import Database
from raglab.store.files import InputError
from raglab.store.log_tables import REQUEST_TABLES


@pytest.fixture
def file(tmp_path):
    """Return the place of a store that does not exist yet."""
    return tmp_path / "deep" / "store.sqlite"


class TestValues:
    """Storing and finding."""

    def test_what_was_stored_comes_back(self, file):
        """By key, in another opening of the file as well.

        What is not there is left out, and makes no file.
        """
        assert Blobs(file).get(["a"]) == {}
        assert not file.parent.exists()
        Blobs(file).put({"a": b"1", "é": b""})
        assert Blobs(file).get(["a", "b", "é"]) == {"a": b"1", "é": b""}

    def test_the_least_recently_stored_go_first(self, file):
        """The file stays about within its size, and the last value is there."""
        store = Blobs(file, most_bytes=200_000)
        for number in range(100):
            store.put({str(number): os.urandom(10_000)})
        stored = store.get([str(number) for number in range(100)])
        assert 5 <= len(stored) <= 20
        assert min(map(int, stored)) == 100 - len(stored)
        assert file.stat().st_size < 400_000

    def test_a_value_larger_than_all(self, file):
        """Leaves nothing, and is no error."""
        store = Blobs(file, most_bytes=50_000)
        store.put({"a": b"x" * 100_000})
        store.put({"b": b"1"})
        assert store.get(["a", "b"]) == {"b": b"1"}


class TestTrust:
    """What is not believed."""

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE blobs SET value = x'00' WHERE key = 'a'",
            "UPDATE blobs SET value = 'text' WHERE key = 'a'",
            "UPDATE blobs SET digest = 7 WHERE key = 'a'",
            (
                "UPDATE blobs SET (digest, value) = (SELECT digest, value FROM blobs WHERE key = "
                "'b') "
                "WHERE key = 'a'"
            ),
        ],
    )
    def test_a_changed_row_is_dropped(self, file, change):
        """Another value, type or digest, and the value of another key; the rest stays."""
        Blobs(file).put({"a": b"1", "b": b"2"})
        with sqlite3.connect(file) as link:
            link.execute(change)
        store = Blobs(file)
        assert store.get(["a", "b"]) == {"b": b"2"}
        store.put({"a": b"3"})
        assert store.get(["a"]) == {"a": b"3"}

    def test_another_secret_finds_nothing(self, file):
        """What one wrote, the other takes for damaged; a digest without a secret is none either."""
        Blobs(file, secret=b"one").put({"a": b"1"})
        assert Blobs(file, secret=b"one").get(["a"]) == {"a": b"1"}
        assert Blobs(file, secret=b"two").get(["a"]) == {}
        Blobs(file).put({"a": b"1"})
        assert Blobs(file, secret=b"one").get(["a"]) == {}

    @pytest.mark.parametrize("protocol", range(6))
    def test_a_pickle_is_bytes(self, tmp_path, file, protocol):
        """As rows of another library's in place of the file, and as a value of our own."""
        bomb = pickles(tmp_path / "marker")[protocol]
        file.parent.mkdir()
        diskcache_rows(file, bomb)
        with pytest.warns(UserWarning, match="damaged or none of raglab's"):
            assert Blobs(file).get(["a"]) == {}
        store = Blobs(file)
        store.put({"a": bomb})
        assert store.get(["a"]) == {"a": bomb}
        assert not (tmp_path / "marker").exists()

    @pytest.mark.parametrize(
        "hostile",
        [
            "CREATE TRIGGER t AFTER INSERT ON blobs BEGIN DELETE FROM blobs; END",
            "CREATE VIEW v AS SELECT * FROM blobs",
            "ALTER TABLE blobs ADD COLUMN mode INTEGER",
            "DROP TABLE blobs",
        ],
    )
    def test_another_schema_is_put_aside(self, file, hostile):
        """Triggers, views, columns and tables that are not ours.

        One warning, and the store is begun anew.
        """
        Blobs(file).put({"a": b"1"})
        with sqlite3.connect(file) as link:
            link.execute(hostile)
        store = Blobs(file)
        with pytest.warns(UserWarning, match="damaged or none of raglab's") as caught:
            store.put({"b": b"2"})
        assert len(caught) == 1
        assert store.get(["a", "b"]) == {"b": b"2"}
        assert file.with_name("store.sqlite.damaged").is_file()

    @pytest.mark.parametrize("place", ["", "-wal", "-shm", "-journal"])
    @pytest.mark.parametrize("kind", ["pipe", "link", "broken link", "text", "/dev/zero"])
    def test_what_is_no_file_of_ours(self, tmp_path, file, place, kind):
        """Nothing hangs, nothing elsewhere changes, and a new store takes the place."""
        with closing(Blobs(file)) as first:
            first.put({"a": b"1"})
        spot, victim = file.with_name(file.name + place), tmp_path / "victim"
        victim.write_bytes(b"precious")
        spot.unlink(missing_ok=True)
        makers = {
            "pipe": lambda: os.mkfifo(spot),
            "link": lambda: spot.symlink_to(victim),
            "broken link": lambda: spot.symlink_to(tmp_path / "no" / "such"),
            "text": lambda: spot.write_bytes(b"no database at all" * 100),
            "/dev/zero": lambda: spot.symlink_to("/dev/zero"),
        }
        makers[kind]()
        store = Blobs(file)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            store.get(["a"])
            store.put({"b": b"2"})
        assert store.get(["b"]) == {"b": b"2"}
        assert victim.read_bytes() == b"precious"
        assert not (tmp_path / "no").exists()

    @pytest.mark.parametrize("place", ["", "-wal", "-shm", "-journal"])
    def test_a_folder_is_refused_and_stays(self, tmp_path, file, place):
        """It may hold a user's work.

        Whoever uses the cache goes without, is told once, and nothing is renamed.
        """
        spot = file.with_name(file.name + place)
        if place:
            with closing(Blobs(file)) as first:
                first.put({"a": b"1"})
            spot.unlink(missing_ok=True)
        spot.mkdir(parents=True)
        (spot / "notes.txt").write_text("mine", encoding="utf-8")
        before = sorted(path.name for path in tmp_path.rglob("*"))
        store = Blobs(file)
        with pytest.warns(
            UserWarning, match=f"must be a file, got a folder as {spot.name}: it stays"
        ):
            store.put({"b": b"2"})
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            store.drop(["b"])
            assert store.get(["a", "b"]) == {}
        assert sorted(path.name for path in tmp_path.rglob("*")) == before
        assert (spot / "notes.txt").read_text(encoding="utf-8") == "mine"

    def test_a_forged_journal_deletes_nothing(self, tmp_path, file):
        """A rollback journal may name a file that SQLite deletes after it.

        It is never played back.
        """
        with closing(Blobs(file)) as first:
            first.put({"a": b"1"})
        victim = forge_journal(file, tmp_path / "victim")
        with pytest.warns(
            UserWarning, match="a journal that names another file as store.sqlite-journal"
        ):
            Blobs(file).get(["a"])
        assert victim.exists()

    def test_nor_one_beside_a_log(self, tmp_path):
        """The audit log refuses it, but SQLite plays back one that names no file.

        A killed process may leave such a one.
        """
        log = tmp_path / "audit.sqlite"
        database = Database(log, REQUEST_TABLES)
        with database.writing():
            pass
        database.close()
        with closing(sqlite3.connect(log)) as link:
            link.execute("PRAGMA journal_mode=DELETE")
        victim = forge_journal(log, tmp_path / "victim")
        with pytest.raises(
            InputError, match=r"got a journal that names another file as audit.sqlite-journal"
        ):
            database.writing().__enter__()
        assert victim.exists()
        journal = log.with_name("audit.sqlite-journal")
        journal.write_bytes(journal.read_bytes()[:512])
        with database.writing():
            pass
        database.close()

    @pytest.mark.parametrize("seed", range(4))
    def test_a_damaged_file_gives_what_was_stored_or_nothing(self, file, seed):
        """Bytes flipped at seeded places, or the end cut off.

        Never another value, never an error.
        """
        rng = np.random.default_rng(seed)
        values = {str(number): rng.bytes(300) for number in range(60)}
        Blobs(file).put(values)
        sound = file.read_bytes()
        for _ in range(15):
            spoilt = bytearray(sound)
            for at in rng.integers(len(spoilt), size=4):
                spoilt[at] ^= int(rng.integers(1, 256))
            end = rng.choice([len(spoilt), rng.integers(1, len(spoilt))])
            file.write_bytes(spoilt[:end])
            store = Blobs(file)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stored = store.get(list(values))
                assert all(values[key] == value for key, value in stored.items())
            store.close()
            for ending in ("-wal", "-shm"):
                file.with_name(file.name + ending).unlink(missing_ok=True)


class TestSharing:
    """Threads, processes, and those that end too soon."""

    def test_threads(self, file):
        """Eight threads on one store lose nothing."""
        store = Blobs(file)

        def work(number):
            store.put({str(number): str(number).encode()})
            assert store.get([str(number)]) == {str(number): str(number).encode()}

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(100)))
        assert len(store.get([str(number) for number in range(100)])) == 100

    def test_processes_that_begin_at_once(self, file):
        """Six forks of one process, whose connection stays its own, lose nothing."""
        store = Blobs(file)
        context = multiprocessing.get_context("fork")
        workers = [
            context.Process(target=_write, args=(store, start)) for start in range(0, 180, 30)
        ]
        for worker in workers:
            worker.start()
        store.put({"own": b"1"})
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0] * 6
        assert len(store.get(["own", *map(str, range(180))])) == 181

    def test_a_killed_process_loses_at_most_its_last_write(self, file):
        """Whatever it wrote stands without a gap, and the file is sound."""
        context = multiprocessing.get_context("fork")
        for wait in (0.02, 0.05):
            worker = context.Process(target=_write, args=(Blobs(file), 0, 10_000))
            worker.start()
            while not file.exists():
                time.sleep(0.001)
            time.sleep(wait)
            os.kill(worker.pid or 0, signal.SIGKILL)
            worker.join()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                numbers = sorted(map(int, Blobs(file).get(list(map(str, range(10_000))))))
            assert numbers == list(range(len(numbers)))


def _write(store, start, count=30):
    for number in range(start, start + count):
        store.put({str(number): b"x" * 500})


class TestPlaces:
    """Folders and disks that take nothing."""

    def test_a_read_only_disk(self, tmp_path):
        """What is there is read, nothing is written, nothing is said; an absent file stays so."""
        with small_disk(tmp_path / "disk") as disk:
            with closing(Blobs(disk / "a.sqlite")) as first:
                first.put({"a": b"1"})
            remount(disk, "ro")
            before = sorted(path.name for path in disk.iterdir())
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for name in ("a.sqlite", "b.sqlite", "deep/c.sqlite"):
                    store = Blobs(disk / name)
                    store.put({"b": b"2"})
                    assert store.get(["a", "b"]) == ({"a": b"1"} if name == "a.sqlite" else {})
                    store.drop(["a"])
                    store.close()
            assert sorted(path.name for path in disk.iterdir()) == before

    def test_a_full_disk(self, tmp_path):
        """One warning; what was there before is found, by whoever opens the file as well."""
        with small_disk(tmp_path / "disk") as disk:
            store = Blobs(disk / "a.sqlite")
            store.put({"a": b"1"})
            with pytest.warns(UserWarning, match="full") as caught:
                [store.put({str(number): b"x" * 500_000}) for number in range(5)]
            assert len(caught) == 1
            assert store.get(["a"]) == {"a": b"1"}
            (disk / "rest").write_bytes(
                b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize)
            )
            store.close()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert Blobs(disk / "a.sqlite").get(["a"]) in ({"a": b"1"}, {})


class TestSecret:
    """The secret of a user."""

    def test_it_is_made_once_for_this_user_alone(self, tmp_path):
        """The same for every process, readable by nobody else; one that is none is made again."""
        first = own_secret(tmp_path / "deep")
        assert own_secret(tmp_path / "deep") == first
        assert len(first) == KEY_BYTES
        key = tmp_path / "deep" / "cache.key"
        assert key.stat().st_mode & 0o777 == 0o600
        for bomb in pickles(tmp_path / "marker"):
            key.write_bytes(bomb)
            assert len(own_secret(tmp_path / "deep")) == KEY_BYTES
        assert own_secret(tmp_path / "deep") != first
        assert not (tmp_path / "marker").exists()

    def test_those_that_begin_at_once_have_the_same(self, tmp_path):
        """Whoever makes it first; else the rest of a process is lost with it."""
        for attempt in range(20):
            together = Barrier(4)

            def secret(_, together=together, folder=tmp_path / str(attempt)):
                together.wait()
                return own_secret(folder)

            with ThreadPoolExecutor(4) as pool:
                assert len(set(pool.map(secret, range(4)))) == 1
            assert [path.name for path in (tmp_path / str(attempt)).iterdir()] == ["cache.key"]
