"""Writing: whole or not at all on a full disk, a read-only one, no folder, a device.

Logs of lines under a lock.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import raglab
from file_writers import WRITERS, contents
from hostile import no_file_longer, small_disk
from look_files import take_look
from raglab.lab.looks import recorded_looks
from raglab.lab.tracking import track_run
from raglab.store.files import (
    InputError,
    locked_lines,
    logged_lines,
    make_folder,
    replacing,
    write_text,
)
from raglab.store.loaders import load_cases, load_corpus

ROOT = Path(raglab.__file__).parent
OPENING = '{"cases_hash": "'


# Every writer
# ----------------------------------------------------------------------------------------------


def check_refusal(writer, path, before, most=None):
    """One write that fails, where a file may be so long at most.

    Told with the path, every file that was there stays to the byte, no part of one is left.
    """
    full = nullcontext() if most is None else no_file_longer(most)
    with full, pytest.raises(InputError) as caught:
        writer.write(2, path)
    message = str(caught.value)
    assert message.startswith(str(path.parent)), message
    assert "must be writable, got " in message
    assert "\n" not in message
    after = contents(path.parent)
    assert after.pop(path.name) == before.pop(path.name)
    assert not [name for name in after if name.endswith(".tmp")]
    # A writer of several files may have brought some of them whole before the one that failed.
    if writer.name in {"report", "tables of an audit log"}:
        assert set(after) <= set(before) | {name for name in after if len(after[name]) > 0}
    else:
        assert after == before


@pytest.mark.parametrize("writer", WRITERS, ids=lambda one: one.name)
def test_a_file_that_cannot_grow_is_as_it_was(writer, tmp_path):
    """The system ends the write at its first byte, in the middle, and at its last."""
    path = tmp_path / "new" / writer.file
    make_folder(path.parent)
    writer.write(1, path)
    before = contents(path.parent)
    other = tmp_path / "other" / "new" / writer.file
    make_folder(other.parent)
    writer.write(2, other)
    size = other.stat().st_size
    assert size > 4096
    for most in (0, 1, size // 2, size - 1):
        check_refusal(writer, path, dict(before), most)
    writer.write(2, path)
    assert path.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("writer", WRITERS, ids=lambda one: one.name)
def test_a_full_disk_leaves_the_old_file(writer, tmp_path):
    """A disk with no page left, with one, and with two."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        path = disk / "new" / writer.file
        make_folder(path.parent)
        writer.write(1, path)
        before = contents(path.parent)
        for pages in (0, 1, 2):
            room = os.statvfs(disk)
            filler = disk / "filler"
            filler.write_bytes(bytes((room.f_bavail - pages) * room.f_bsize))
            check_refusal(writer, path, dict(before))
            filler.unlink()
        writer.write(2, path)
        assert contents(path.parent)[writer.file] != before[writer.file]


@pytest.mark.parametrize("writer", WRITERS, ids=lambda one: one.name)
def test_a_disk_that_is_read_only_and_a_path_that_is_none(writer, tmp_path):
    """Are told in one line that names the path, and nothing is changed."""
    (tmp_path / "taken" / writer.file).mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    for taken in (tmp_path / "taken", tmp_path / "file"):
        with pytest.raises(InputError, match="must be writable, got ") as caught:
            writer.write(1, taken / writer.file)
        assert str(caught.value).startswith(str(taken))
    assert (tmp_path / "file").read_text() == "x"
    assert not [name for name in contents(tmp_path) if name.endswith(".tmp")]
    with small_disk(tmp_path / "disk", "1m") as disk:
        writer.write(1, disk / writer.file)
        before = contents(disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(InputError, match="must be writable, got Read-only file system"):
            writer.write(2, disk / writer.file)
        assert contents(disk) == before


def _refused_to(user, paths):
    if os.geteuid() == 0:
        os.setuid(user)
    rule = "must be writable, got Permission denied"
    for path in paths:
        with pytest.raises(InputError, match=f"{re.escape(str(path))}.*{rule}"):
            write_text("new", path)
        with pytest.raises(InputError, match=rule):
            look(path)


def test_who_has_no_right_is_told():
    """Someone else's folder, and a file made read-only that the folder's right would replace.

    Its owner made it so.
    """
    nobody = 65_534
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        closed, kept = folder / "closed", folder / "own" / "kept"
        folder.chmod(0o755)
        closed.mkdir()
        kept.parent.mkdir()
        kept.write_text("old")
        if os.geteuid() == 0:
            for path in (kept.parent, kept):
                os.chown(path, nobody, nobody)
        kept.chmod(0o444)
        closed.chmod(0o555)
        before = contents(folder)
        _processes(_refused_to, [(nobody, [closed / "new", kept])])
        assert contents(folder) == before == {"own/kept": b"old"}


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_device_is_not_replaced(device):
    """A file in its place would take it from the whole machine."""
    with pytest.raises(
        InputError, match="must be writable, got a device or pipe; give the path of a file"
    ):
        write_text("x", Path(device))
    assert Path(device).is_char_device()


def test_what_may_not_be_written_is_refused_without_waiting(tmp_path):
    """A pipe without a reader, a NUL, a name that is too long, no name at all."""
    os.mkfifo(tmp_path / "pipe")
    for path, rule in (
        (tmp_path / "pipe", "a device or pipe"),
        (tmp_path / "a\0b", "NUL"),
        (tmp_path / ("x" * 300), "name too long"),
        (Path(), "a folder"),
    ):
        with pytest.raises(InputError, match=f"(?i){rule}"):
            write_text("x", path)
        with pytest.raises(InputError), locked_lines(path, OPENING):
            pass


def test_a_link_stays_and_a_file_keeps_its_rights(tmp_path):
    """What only its owner may read is not opened to others by being written again."""
    file = tmp_path / "a.txt"
    file.write_text("old")
    file.chmod(0o600)
    (tmp_path / "link").symlink_to(file)
    write_text("new", tmp_path / "link")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o600)
    assert (tmp_path / "link").is_symlink()


def test_an_error_inside_the_block_is_the_writers_own(tmp_path):
    """It passes as it is; the file stays, and nothing is left beside it."""
    (tmp_path / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "a") as partial:  # noqa: PT012
        partial.write_text("half")
        raise ZeroDivisionError
    assert contents(tmp_path) == {"a": b"old"}


def test_what_a_kill_leaves_is_read_by_nothing(tmp_path):
    """A folder of documents, of parts and of a study holds the half of a file under a hidden name.

    Nothing changes.
    """
    (tmp_path / "a.md").write_text("# A\n\nText of a.\n")
    (tmp_path / "cases.jsonl").write_text('{"id": "1", "query": "what", "expect_status": "ok"}\n')
    before = load_corpus(tmp_path), load_cases(tmp_path)
    for path in (tmp_path / "a.md", tmp_path / "cases.jsonl"):
        with replacing(path) as partial:
            partial.write_text(path.read_text())
        assert (partial.name[0], partial.suffix) == (".", ".tmp")
        partial.write_text('# B\n\nHalf of {"id": "2"')
    assert (load_corpus(tmp_path), load_cases(tmp_path)) == before


# Logs of lines
# ----------------------------------------------------------------------------------------------


def look(path, key="a", *, again=True):
    """A look that is noted."""
    return take_look(path, None, "cases", key, 0.1, again=again)


def _note_some(path, writer, count):
    for number in range(count):
        look(path, f"{writer}-{number}")


def _processes(target, arguments):
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=target, args=some) for some in arguments]
    for one in started:
        one.start()
    for one in started:
        one.join(60)
        assert one.exitcode == 0


def _take(path, key, out):
    noted = look(path, key)
    (out / f"{key}.json").write_text(json.dumps([noted.number, noted.spent]))


def test_each_of_several_looks_at_once_counts_the_others(tmp_path):
    """Three certifications at once: look one to three, the error spent is the sum up to each."""
    (tmp_path / "out").mkdir()
    _processes(
        _take, [(tmp_path / "looks.jsonl", str(number), tmp_path / "out") for number in range(3)]
    )
    found = sorted(json.loads(file.read_text()) for file in (tmp_path / "out").iterdir())
    assert found == [[number, pytest.approx(0.1 * number)] for number in range(1, 4)]


def test_a_second_look_is_refused_unless_it_is_the_same(tmp_path):
    """A refused one is not noted; the same one again is the same look, noted once."""
    path = tmp_path / "looks.jsonl"
    assert look(path, again=False) == (1, 0.1)
    with pytest.raises(ValueError, match="got 1 before"):
        look(path, "b", again=False)
    assert look(path, again=False) == (1, 0.1)
    assert len(logged_lines(path)) == 1


@pytest.mark.parametrize("cut", [1, 10, 30, -1])
def test_a_line_that_was_cut_off_goes_and_no_whole_one_with_it(tmp_path, cut):
    """After a kill at any byte; a line that lacks only its end is whole, and stays."""
    path = tmp_path / "looks.jsonl"
    for key in "012":
        look(path, key)
    whole = path.read_bytes()
    line = whole.splitlines(keepends=True)[-1]
    path.write_bytes(whole + line[:cut])
    assert list(recorded_looks(path, "cases")) == [*"012"]
    assert path.read_bytes() == whole + line[:cut]  # reading changes nothing
    look(path, "3")
    assert list(recorded_looks(path, "cases")) == [*"0123"]
    stays = line if cut == -1 else b""
    assert path.read_bytes().startswith(whole + stays + b'{"cases_hash": "cases", "key": "3"')


@pytest.mark.parametrize("text", ["a: 1", '[{"a": 1}]', "x" * 70_000, '{"cases": 1'])
def test_a_file_of_another_kind_is_not_cut(tmp_path, text):
    """Its last line has no end either; it is refused and stays as it is."""
    (tmp_path / "notes").write_text(text)
    with pytest.raises(InputError, match=r"the last line must begin with"):
        look(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == text


def test_a_log_on_a_full_disk_stays_whole(tmp_path):
    """The line that finds no room is taken back to its first byte.

    With room again the next is kept.
    """
    path = tmp_path / "looks.jsonl"
    look(path)
    before = path.read_bytes()
    for room in (0, 1, 20):
        with (
            no_file_longer(len(before) + room),
            pytest.raises(InputError, match="must be writable, got File too large"),
        ):
            look(path, "b")
        assert path.read_bytes() == before
    with small_disk(tmp_path / "disk", "64k") as disk:
        path, filler = disk / "looks.jsonl", disk / "filler"
        look(path)
        filler.write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
        with pytest.raises(InputError, match="must be writable, got No space left on device"):
            _note_some(path, 0, 100_000)
        kept = len(recorded_looks(path, "cases"))
        assert kept > 10  # the first page had room
        filler.unlink()
        look(path, "z")
        assert len(recorded_looks(path, "cases")) == kept + 1


def test_writers_that_are_killed_lose_nothing(tmp_path):
    """Three writers are killed at any moment, twice.

    Every line is whole, and none is missing between.
    """
    path = tmp_path / "looks.jsonl"
    for turn in range(2):
        context = multiprocessing.get_context("fork")
        started = [
            context.Process(target=_note_some, args=(path, 10 * turn + writer, 100_000))
            for writer in range(3)
        ]
        for one in started:
            one.start()
        time.sleep(0.05 + 0.02 * turn)
        for one in started:
            os.kill(one.pid or 0, signal.SIGKILL)
            one.join()
    look(path, "last")
    kept = [line.record["key"] for line in logged_lines(path)]
    assert path.read_bytes().endswith(b"\n")
    for writer in {key.partition("-")[0] for key in kept} - {"last"}:
        own = [key for key in kept if key.partition("-")[0] == writer]
        assert own == [f"{writer}-{number}" for number in range(len(own))]


def test_a_log_that_is_held_is_not_waited_for_for_ever(tmp_path):
    """A second one, of this process too, is told after its time; the first goes on."""
    path = tmp_path / "a.jsonl"
    with locked_lines(path, OPENING) as append:
        with (
            pytest.raises(InputError, match=r"must be free within 0\.05 s"),
            locked_lines(path, OPENING, wait_s=0.05),
        ):
            pass
        append({"cases_hash": "a"})
    assert [line.record for line in logged_lines(path)] == [{"cases_hash": "a"}]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ('{"cases_hash": "c", "key": "k"}', "delta is required"),
        ('{"cases_hash": "c", "key": "k", "delta": -0.5}', "delta must be greater than 0"),
        ('{"cases_hash": "c", "key": "k", "delta": NaN}', "JSON"),
        ("[]", "JSON object"),
    ],
)
def test_a_damaged_line_is_told_with_its_place(tmp_path, line, rule):
    """A look that cannot be counted stops the next one."""
    path = tmp_path / "looks.jsonl"
    path.write_text(f'{{"cases_hash": "c", "key": "a", "delta": 0.1}}\n{line}\n')
    for reads in (recorded_looks, lambda *of: take_look(of[0], None, of[1], "b", 0.1, again=True)):
        with pytest.raises(InputError, match=rf"looks\.jsonl, line 2.*{rule}"):
            reads(path, "c")


# The tracker
# ----------------------------------------------------------------------------------------------


def test_runs_that_cannot_be_written_are_told_in_one_line(tmp_path, capfd):
    """A damaged database, a folder that is a file; no library prints a stack of its own."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mlflow.db").write_text("no database at all, but text")
    (tmp_path / "file").write_text("x")
    for folder, rule in (
        (tmp_path / "runs", "the tracking database must be one of SQLite's"),
        (tmp_path / "file", "the folder must be writable, got File exists"),
    ):
        with pytest.raises(InputError, match=rule):
            track_run("a", "b", {"c": 1}, [("d", 1.0, 0)], {}, folder)
    assert "Traceback" not in capfd.readouterr().err


def test_a_full_disk_costs_the_runs_only(tmp_path, capfd):
    """It is told in one line, at the making of the database and at the files of a run."""
    table = {"t": pd.DataFrame({"a": np.random.default_rng(0).random(200_000)})}
    for size in ("64k", "1400k"):
        with (
            small_disk(tmp_path / size, size) as disk,
            pytest.raises(
                InputError, match=r"(disk is full|No space left).*the result itself is not lost"
            ),
        ):
            track_run("a", "b", {"c": 1}, [("d", 1.0, 0)], table, disk)
    assert "Traceback" not in capfd.readouterr().err


# The door
# ----------------------------------------------------------------------------------------------

# In a path of `replacing`, of `_first`, of a folder of this process alone, or in memory.
WRITING = re.compile(
    r"\.(?:write_(?:text|bytes|table|index)|to_(?:csv|parquet|excel|pickle|feather|hdf|file)|tofile"
    r"|savefig|imsave|savez\w*|savetxt|memmap|save_model|copyfile|copy2|copytree|move|truncate|touch"
    r"|ParquetWriter|mkstemp|NamedTemporaryFile)\("
    r"|\bopen\([^()]*[\"'][wax]\+?b?[\"']|\.(?:replace|rename)\([a-z_.]+\)"
)
WRITERS_ELSEWHERE = {
    "audit/log_export.py": 1,
    "displays/canvas.py": 1,
    "extensions/scale/measured_shards.py": 2,
    "lab/tracked_model.py": 1,
    "lab/tracking.py": 4,
    "live/trace_building.py": 2,
    "retrieval/indexes.py": 2,
    "store/blobs.py": 4,
    "store/trace_files.py": 2,
}


def test_there_is_one_door_to_write_by():
    """No module writes a file but `store/files.py`; a call that is added elsewhere is counted."""
    found = {
        path.relative_to(ROOT).as_posix(): len(WRITING.findall(path.read_text(encoding="utf-8")))
        for path in ROOT.rglob("*.py")
        if path != ROOT / "store" / "files.py"
    }
    known = {path: n for path, n in WRITERS_ELSEWHERE.items() if (ROOT / path).is_file()}
    assert {path: n for path, n in found.items() if n} == known
