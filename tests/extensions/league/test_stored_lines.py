"""JSON lines of repositories."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from league_files import write_records
from raglab.extensions.league.stored_lines import first_record, line_files, stored_lines, walked
from raglab.store.files import InputError


def test_what_is_no_record_is_counted(tmp_path: Path) -> None:
    """Broken lines, lists, repeated keys; blank lines are none."""
    path = tmp_path / "a.jsonl"
    write_records(path, ['{"a": 1\n', "[1]\n", "\n", '{"a": 1, "a": 2}\n', {"b": 2}, {"c": 3}])
    lines = stored_lines(path)
    assert [dict(record) for record in lines.records] == [{"b": 2}, {"c": 3}]
    assert lines.unread == 3
    assert first_record(path) == {"b": 2}


def test_gzip_is_told_by_the_bytes(tmp_path: Path) -> None:
    """Whatever the name says."""
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(b'{"a": 1}\n'))
    (tmp_path / "b.jsonl.gz").write_bytes(b'{"a": 1}\n')
    assert [
        dict(record)
        for name in ("a.jsonl", "b.jsonl.gz")
        for record in stored_lines(tmp_path / name).records
    ] == [
        {"a": 1},
        {"a": 1},
    ]


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    """A half of a table must not be judged as the whole."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 1000)[:-10])
    with pytest.raises(
        InputError, match=r"a\.jsonl\.gz: a stored file must be readable, got EOFError"
    ):
        stored_lines(path)


def test_a_file_and_its_copy_are_one(tmp_path: Path) -> None:
    """The plain one is read; other files are not."""
    for name in ("b.jsonl", "b.jsonl.gz", "a.jsonl.gz", "c.json", "d.jsonlx"):
        write_records(tmp_path / name, [{"a": 1}])
    assert [path.name for path in line_files(tmp_path)] == ["a.jsonl.gz", "b.jsonl"]
    assert line_files(tmp_path / "nothing") == []


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    """A folder named like one is none.

    A link to nothing is listed, and what cannot be read has no first record.
    """
    (tmp_path / "a.jsonl").mkdir()
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "nothing")
    (tmp_path / "c.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    (tmp_path / "d.jsonl").touch()
    assert [path.name for path in line_files(tmp_path)] == ["b.jsonl", "c.jsonl.gz", "d.jsonl"]
    assert [first_record(path) for path in line_files(tmp_path)] == [{}, {}, {}]
    with pytest.raises(InputError, match="FileNotFoundError"):
        stored_lines(tmp_path / "b.jsonl")


def test_loops_of_links_end(tmp_path: Path) -> None:
    """A second path to a folder is not walked; nor what is deeper than asked."""
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "z").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "x").touch()
    places = {
        path.relative_to(tmp_path).as_posix(): names for path, _, names in walked(tmp_path, 2)
    }
    assert places == {".": [], "a": ["x"], "a/b": []}
