"""Files that are changed while they are mapped.

An error before a search, never the end of the process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from raglab.extensions.scale.mapped_files import check_mapped, mapped_file, mapping_check
from raglab.retrieval.indexes import BM25_FILES, BM25_MAPPED, Bm25Index, write_bm25
from raglab.store.files import InputError, replacing

TEXTS = ["fence and theft", "storm damage to a fence", "", "theft of a bicycle"] * 3000


def shorten(path: Path) -> None:
    """Cut a file, as `> file` or a copy that ran out of room does."""
    os.truncate(path, 64)


def empty(path: Path) -> None:
    """Leave nothing of a file."""
    path.open("wb").close()


def write_over(path: Path) -> None:
    """Write into a file in its place, as `cp` and `rsync --inplace` do."""
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content[:128] + bytes(len(content) - 128))


def lengthen(path: Path) -> None:
    """Add to a file."""
    with path.open("ab") as file:
        file.write(b"x")


def exchange(path: Path) -> None:
    """Put another file of the same length in its place."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def take_away(path: Path) -> None:
    """Delete a file."""
    path.unlink()


def make_anew(path: Path) -> None:
    """Put another folder in the place of that of the file, as a new version of an index does."""
    folder = path.parent
    older = folder.rename(folder.with_name("older"))
    shutil.copytree(older, folder)
    shutil.rmtree(older)


CHANGES = [shorten, empty, write_over, lengthen, exchange]


def outcome(search: Callable[[], object]) -> str:
    """What a search comes to in a process of its own, which a signal may end."""
    process = os.fork()
    if process == 0:  # pragma: no cover - of another process
        code = 3
        try:
            search()
            code = 0
        except InputError:
            code = 1
        finally:
            os._exit(code)
    status = os.waitpid(process, 0)[1]
    return {0: "answered", 1: "InputError"}.get(
        os.waitstatus_to_exitcode(status), f"ended by {status}"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a keyword index."""

    def target(name: str) -> AbstractContextManager[Path]:
        return replacing(tmp_path / "index" / name)

    (tmp_path / "index").mkdir()
    write_bm25(TEXTS, target)
    return tmp_path / "index"


def opened(folder: Path) -> Bm25Index:
    """The index of a folder."""
    return Bm25Index.open(
        folder, len(TEXTS), check=mapping_check([folder / name for name in BM25_MAPPED])
    )


class TestKeywords:
    """A keyword index on disk."""

    @pytest.mark.parametrize("name", BM25_MAPPED)
    @pytest.mark.parametrize("change", CHANGES)
    def test_a_file_that_is_changed_is_named(
        self, folder: Path, name: str, change: Callable[[Path], None]
    ) -> None:
        """Before the search, with what to do; what was found before stays."""
        index = opened(folder)
        scores, ids = index.search(["fence"], 3)
        assert ids.tolist() == [[0, 4, 8]]
        change(folder / name)
        assert outcome(partial(index.search, ["fence"], 3)) == "InputError"
        with pytest.raises(
            InputError, match=f"{name}: a file must stay as it was opened .*; end what changes it"
        ):
            index.search(["fence"], 3)
        assert scores.shape == (1, 3)

    @pytest.mark.parametrize("change", [take_away, make_anew])
    def test_a_new_version_takes_its_place(
        self, folder: Path, change: Callable[[Path], None]
    ) -> None:
        """The one that is open answers on, from the files that it mapped."""
        index = opened(folder)
        change(folder / BM25_FILES[0])
        assert (
            outcome(lambda: index.search(["fence"], 3)[1].tolist() == [[0, 4, 8]] or 1 / 0)
            == "answered"
        )

    def test_nothing_is_checked_in_memory(self) -> None:
        """An index that was made of texts has no files."""
        assert Bm25Index(TEXTS).search(["theft"], 1)[1].tolist() == [[0]]


class TestFiles:
    """The check itself."""

    def test_what_changed_is_told(self, tmp_path: Path) -> None:
        """The length, the time, or another file."""
        messages = []
        for change in CHANGES:
            path = tmp_path / "a"
            path.write_bytes(bytes(200))
            before = mapped_file(path)
            check_mapped([before])
            change(path)
            with pytest.raises(InputError) as caught:
                check_mapped([before])
            messages.append(str(caught.value).split(", got ")[1].split(";")[0])
        assert messages == [
            "64 bytes of 200",
            "0 bytes of 200",
            "one that was written since",
            "201 bytes of 200",
            "another file in its place",
        ]

    def test_a_link_is_followed(self, tmp_path: Path) -> None:
        """The file that it names is what is mapped."""
        (tmp_path / "file").write_bytes(bytes(200))
        (tmp_path / "link").symlink_to(tmp_path / "file")
        before = mapped_file(tmp_path / "link")
        check_mapped([before])
        os.truncate(tmp_path / "file", 100)
        with pytest.raises(InputError, match="100 bytes of 200"):
            check_mapped([before])

    def test_a_folder_that_cannot_be_entered(self, tmp_path: Path) -> None:
        """A file stands where the folder was."""
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "a").write_bytes(b"1")
        before = mapped_file(folder / "a")
        shutil.rmtree(folder)
        folder.write_text("no folder", encoding="utf-8")
        with pytest.raises(InputError, match="Not a directory"):
            check_mapped([before])
