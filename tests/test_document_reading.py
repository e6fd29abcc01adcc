"""Reading documents: by one process for a folder, each file once, and from no altered cache."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from raglab.progress import progress
from raglab.store import document_reading, loaders, workers
from raglab.store.blobs import Blobs
from raglab.store.document_reading import is_light
from raglab.store.files import InputError
from raglab.store.loaders import load_corpus


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Five documents, three of which a process of their own reads, and a cache of the test."""
    pytest.importorskip("docutils")
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "documents"
    place.mkdir()
    for name in ("a.rst", "b.rst", "c.rst", "d.md", "e.html"):
        (place / name).write_text(f"Hail is covered in {name}.")
    return place


def test_a_folder_is_read_by_one_process_and_once(folder, monkeypatch):
    """With progress; a second load reads no file anew, and a file with other bytes is read."""
    starts, bars = [], []
    start = workers._started
    monkeypatch.setattr(workers, "_started", lambda: starts.append(1) or start())
    monkeypatch.setattr(
        loaders, "progress", lambda items, *more, **kw: bars.append(kw) or progress(items, *more)
    )
    first = load_corpus(folder)
    assert (len(starts), bars) == (1, [{"total": 5}])

    def unread(*_):
        pytest.fail("a document was read again")

    with monkeypatch.context() as patch:
        patch.setattr(document_reading, "answered", unread)
        patch.setattr(workers.DocumentWorker, "answer", unread)
        assert load_corpus(folder) == first
    (folder / "a.rst").write_text("Wind is not.")
    assert load_corpus(folder).chunks[0].text == "Wind is not."
    assert len(starts) == 2
    assert load_corpus(folder, cache=None).chunks[0].text == "Wind is not."


def test_a_cache_that_another_wrote_or_altered_is_not_believed(folder, tmp_path):
    """Who may write the file, but does not know the secret, puts no word into a corpus."""
    first = load_corpus(folder)
    file = tmp_path / "cache" / "documents" / "blocks.sqlite"
    assert file.parent.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(file)) as link:
        rows = dict(link.execute("SELECT key, value FROM blobs").fetchall())
    assert len(rows) == 5
    altered = {key: value.replace(b"Hail", b"SECRET") for key, value in rows.items()}
    with closing(Blobs(file)) as forger:
        forger.put(altered)
    assert load_corpus(folder) == first
    with closing(sqlite3.connect(file)) as link, link:
        link.executemany(
            "UPDATE blobs SET value = ? WHERE key = ?",
            [*zip(altered.values(), altered, strict=True)],
        )
    assert load_corpus(folder) == first


def test_pages_heads_and_keys_that_cost_much_are_bounded(tmp_path):
    """A million pages of a text; heads that each 25 rows repeat; a key of TOML of many parts."""
    pages, table, keys = (tmp_path / name for name in ("a.txt", "b.csv", "c.md"))
    pages.write_text("a\f" * 20_000, encoding="utf-8")
    table.write_text(f"a,{'h' * 19_000}\n" + "1,2\n" * 30_000, encoding="utf-8")
    for path, word in ((pages, "pages"), (table, "heads")):
        with pytest.raises(InputError, match=word):
            load_corpus(path, cache=None)
    keys.write_text(f"+++\n{'.'.join(['a'] * 32_700)}=1\n+++\nx", encoding="utf-8")
    assert not is_light(keys.read_text(encoding="utf-8"))
