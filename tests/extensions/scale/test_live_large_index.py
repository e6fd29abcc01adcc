"""Indexes on disk.

The same hits as the exact index where everything is searched, resumed, damage told, sized.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from extensions.scale.test_mapped_files import (
    empty,
    exchange,
    make_anew,
    outcome,
    shorten,
    take_away,
    write_over,
)
from generators import Fixed
from raglab.extensions.scale import large_index
from raglab.extensions.scale.large_index import (
    DONE,
    FAISS,
    LOCK,
    MANIFEST,
    TOKENS_KEPT,
    LargeIndex,
    LargeSize,
    StoredTokens,
    build_large,
    drop_older,
    index_key,
    large_indexes,
    manifest_digest,
    open_large,
    sampled_questions,
)
from raglab.extensions.scale.shard_building import build_shards
from raglab.extensions.scale.vector_shards import Remapped, VectorShards
from raglab.live import trace_building
from raglab.live.ask import ask
from raglab.live.index_folder import read_index
from raglab.live.system import System, build_index
from raglab.live.trace_building import RetrievalSettings, build_trace, check_settings
from raglab.retrieval import dense, index_kinds, indexes
from raglab.retrieval.dense import (
    SENTENCE,
    TOKENS,
    DenseIndex,
    EmbeddingCache,
    StoredKind,
    StoredSearch,
    cache_key,
    cosines,
    dense_index,
    index_bytes,
    stored_kind,
    tuned_search,
    with_search,
    write_faiss,
)
from raglab.retrieval.index_kinds import sized_kind
from raglab.retrieval.indexes import Bm25Index, Signatures
from raglab.store.files import InputError, locked, make_folder
from raglab.store.policies import Policy
from raglab.values import Case

# a fixture
from test_live_trace_building import CORPUS, SMALL, WordEncoder, chunk, encoder  # noqa: F401

N, DIM, ROWS = 600, 16, 256
WORDS = (
    "fence",
    "garden",
    "theft",
    "résiliation",
    "12",
    "policy",
    "flood",
    "roofing",
    "excess",
    "of",
    "the",
)


def units(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Unit vectors around forty centres."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(40, DIM))
    rows = centres[rng.integers(40, size=n)] + 0.3 * rng.normal(size=(n, DIM))
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(
        np.float32
    )
    return unit


def some_texts(n: int, seed: int = 0) -> list[str]:
    """Texts of a few words, some of them empty."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(0, 12))) for _ in range(n)]


VECTORS, ASKED = units(N), units(30, seed=1)


def make(
    folder: Path, kind: StoredKind, encoded: Callable[[slice], NDArray[np.float32]] | None = None
) -> LargeIndex:
    """Large index over the vectors, with some texts."""
    size = LargeSize(N, N, DIM, ROWS)
    build_large(
        folder,
        some_texts(N),
        size,
        encoded or VECTORS.__getitem__,
        lambda: ASKED,
        kind=kind,
        key="0123456789abcdef",
    )
    return open_large(folder, "0123456789abcdef")


def stops(some: slice) -> NDArray[np.float32]:
    """Embeddings of the first two shards; the third ends the build."""
    if some.start >= 2 * ROWS:
        raise KeyboardInterrupt
    return VECTORS[some]


class TestSize:
    """Which index a corpus gets."""

    def test_by_head(self) -> None:
        """A million vectors of 384.

        A graph of 384 + 256 + 24 bytes each, or 96 + 8 bytes each and the centres.
        """
        assert index_bytes("hnsw-sq8", 1_000_000, 384) == 664_000_000
        assert index_bytes("ivfpq", 1_000_000, 384) == 104_000_000 + 4 * 384 * (2_000 + 256)

    def test_the_budget_chooses(self) -> None:
        """The graph where it fits, then the cells, then a message with the least that does."""
        assert stored_kind(1_000_000, 384, 664) == "hnsw-sq8"
        assert stored_kind(1_000_000, 384, 663) == "ivfpq"
        with pytest.raises(
            ValueError, match="index_mb must be at least 107 for 1000000 vectors of 384 dimensions"
        ):
            stored_kind(1_000_000, 384, 100)

    def test_auto_is_exact_up_to_a_hundred_thousand(self) -> None:
        """No encoder is asked for its dimensions before; what is named stays."""

        def unasked() -> int:
            raise AssertionError

        assert sized_kind("auto", 100_000, unasked, 1.0) == "flat"
        assert sized_kind("auto", 100_001, lambda: 384, 1_000.0) == "hnsw-sq8"
        assert [sized_kind(kind, 10**9, unasked, 1.0) for kind in ("flat", "hnsw", "ivfpq")] == [
            "flat",
            "hnsw",
            "ivfpq",
        ]

    def test_auto_is_exact_where_none_can_be_stored(self) -> None:
        """Without a cache, or with pictures; a named kind is refused there."""

        def unasked() -> int:
            raise AssertionError

        assert sized_kind("auto", 10**6, unasked, 1_000.0, cached=False) == "flat"
        assert sized_kind("auto", 10**6, unasked, 1_000.0, lambda: 2) == "flat"
        assert sized_kind("auto", 10**6, lambda: 384, 1_000.0, lambda: 0) == "hnsw-sq8"
        with pytest.raises(
            ValueError,
            match=r"ivfpq holds texts alone, got 2 pictures; take index='flat' or 'auto'",
        ):
            sized_kind("ivfpq", 10**6, unasked, 1_000.0, lambda: 2)
        with pytest.raises(
            ValueError,
            match=r"kept beside the cache of embeddings, got none; give a cache, or take",
        ):
            sized_kind("ivfpq", 10**6, unasked, 1_000.0, cached=False)

    def test_pictures_of_an_encoder_that_reads_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are counted where the index would be on disk.

        Those that are found by their words do not count.
        """
        picture = chunk(13, "map.png", None, "A map.", kind="image", sha256="0" * 64)
        corpus = CORPUS._replace(chunks=(*CORPUS.chunks, picture))
        monkeypatch.setattr(trace_building, "find_model", lambda name: SimpleNamespace(folder=name))
        monkeypatch.setattr(trace_building, "reads_pictures", lambda folder: folder == "clip")
        monkeypatch.setattr(
            trace_building, "load_encoder", lambda name: SimpleNamespace(dim=DIM, name=name)
        )
        monkeypatch.setattr(index_kinds, "FLAT_UP_TO", 3)
        for named, encoder_name, kind in (
            ("auto", "clip", "flat"),
            ("auto", "words", "hnsw-sq8"),
            ("auto", None, "hnsw-sq8"),
            ("ivfpq", "words", "ivfpq"),
        ):
            wanted = check_settings({"index": named, "encoder": encoder_name})
            assert wanted.sized(corpus).index == kind
        with pytest.raises(
            ValueError, match="an index of kind ivfpq holds texts alone, got 1 pictures"
        ):
            check_settings({"index": "ivfpq", "encoder": "clip"}).sized(corpus)

    def test_the_fingerprint_names_the_kind_alone(self) -> None:
        """Auto over few chunks has the fingerprint of flat, whatever the budget."""
        auto = check_settings({"index": "auto", "index_mb": 5.0}).sized(CORPUS)
        assert auto == RetrievalSettings()
        assert "index_mb" not in auto.stated

    @pytest.mark.parametrize(
        ("given", "told"),
        [({"index": "tree"}, "index must be one of auto"), ({"index_mb": 0.0}, "index_mb must be")],
    )
    def test_wrong_settings_are_refused(self, given: dict[str, Any], told: str) -> None:
        """An unknown kind, a budget of nothing."""
        with pytest.raises(ValueError, match=told):
            check_settings(given)


class TestShards:
    """Float16 rows in files."""

    def test_reads_as_an_array(self, tmp_path: Path) -> None:
        """Rows by position, in any shape and order, by slice and as a whole.

        A table of positions over them.
        """
        index = make(tmp_path / "i", "hnsw-sq8")
        rounded = VECTORS.astype(np.float16).astype(np.float32)
        at = np.array([[599, 0, 256], [255, 5, 599]])
        assert np.array_equal(index.vectors[at], rounded[at])
        assert np.array_equal(index.vectors[10:300], rounded[10:300])
        assert np.array_equal(np.asarray(index.vectors), rounded)
        assert (len(index.vectors), index.vectors.shape) == (N, (N, DIM))
        assert np.concatenate(list(index.vectors.blocks(257))).shape == (257, DIM)
        view = Remapped(index.vectors, np.array([3, 599, 3]))
        assert np.array_equal(view[np.array([[1, 2]])], rounded[[[599, 3]]])
        ids = np.array([[2, -1]])
        assert np.array_equal(
            cosines(ASKED[:1], view, ids),
            cosines(ASKED[:1], rounded[[3, 599, 3]], ids),
            equal_nan=True,
        )

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        """Float32, another width, a short shard in the middle."""
        for name, rows in (
            ("a", VECTORS),
            ("b", VECTORS[:, :4].astype("<f2")),
            ("c", VECTORS[:3].astype("<f2")),
        ):
            np.save(tmp_path / f"{name}.npy", rows)
        for names, told in (
            (("a",), "must be float16 with 16"),
            (("b",), "must be float16"),
            (("c", "c"), "256 rows"),
        ):
            with pytest.raises(ValueError, match=told):
                VectorShards([tmp_path / f"{name}.npy" for name in names], ROWS, DIM)


class TestKeywords:
    """BM25 on disk."""

    def test_scores_are_the_same_to_the_bit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Over texts of every length, blocks that cut them anywhere, and words that nobody has."""
        monkeypatch.setattr(indexes, "_TEXTS_AT_ONCE", 37)
        texts = [*some_texts(500, seed=3), "", "unique wording of one text", "the the the"]
        indexes.write_bm25(texts, lambda name: large_index.replacing(tmp_path / name))
        stored, held = Bm25Index.open(tmp_path, len(texts), check=lambda: None), Bm25Index(texts)
        queries = [*some_texts(40, seed=4), "zebra", "", "the of the", "uniquely"]
        for k in (1, 7, 600):
            for one, other in zip(stored.search(queries, k), held.search(queries, k), strict=True):
                assert np.array_equal(one, other, equal_nan=True)
        scope = [np.array([3, 400, 17])] * len(queries)
        assert np.array_equal(
            stored.search(queries, 2, scope)[1], held.search(queries, 2, scope)[1]
        )

    def test_no_words_are_refused(self, tmp_path: Path) -> None:
        """As where the index is held in memory, and nothing is written."""
        with pytest.raises(ValueError, match="a word in it, got 2 texts"):
            large_index.write_bm25(["", " ? "], lambda name: large_index.replacing(tmp_path / name))
        assert not list(tmp_path.iterdir())


class Blind:
    """An index of FAISS that finds three vectors, however wide it is searched."""

    def __init__(self, index: Any) -> None:
        self.ntotal, self.hnsw = index.ntotal, None

    def search(
        self, queries: NDArray[np.float32], k: int, params: object = None
    ) -> tuple[Any, Any]:
        """Numbers 0 to 2."""
        del params
        ids = np.full((len(queries), k), -1, np.int64)
        ids[:, :3] = range(3)
        return ids.astype(np.float32), ids


@pytest.mark.parametrize("kind", ["hnsw-sq8", "ivfpq"])
class TestStored:
    """Both kinds of a stored index."""

    def test_recall_stands_in_the_manifest(self, tmp_path: Path, kind: StoredKind) -> None:
        """It is what a count of the exact neighbours gives, and at least what is asked for.

        All parameters stand there too.
        """
        index = make(tmp_path / "i", kind)
        told = json.loads((tmp_path / "i" / MANIFEST).read_text(encoding="utf-8"))
        l2, _ = index.dense.search(ASKED, 50)
        exact, _ = dense_index(np.asarray(index.vectors)).search(ASKED, 50)
        assert told["recall_at_50"] == pytest.approx(np.mean(l2 <= exact[:, -1:] + 1e-5), abs=1e-6)
        assert told["recall_at_50"] >= told["parameters"]["least_recall"] == 0.95
        assert (told["kind"], told["asked"], told["n_chunks"]) == (kind, 30, N)
        assert {one["name"] for one in told["files"]} == {
            path.name for path in (tmp_path / "i").iterdir()
        } - {
            MANIFEST,
            "lock",
        }

    def test_everything_searched_is_the_exact_index(self, tmp_path: Path, kind: StoredKind) -> None:
        """Distances and places are those of a flat index over the same float16 rows, to the bit."""
        index = make(tmp_path / "i", kind)
        wide = with_search(index.dense, StoredSearch(4 * N, N, 1.0, 0))
        flat = dense_index(np.asarray(index.vectors))
        for one, other in zip(wide.search(ASKED, 20), flat.search(ASKED, 20), strict=True):
            assert np.array_equal(one, other)
        scopes = [np.array([5, 77, 500])] * len(ASKED)
        assert np.array_equal(
            index.dense.search(ASKED, 3, scopes)[1], flat.search(ASKED, 3, scopes)[1]
        )

    def test_the_same_bytes_again(self, tmp_path: Path, kind: StoredKind) -> None:
        """Two builds agree in every file."""
        for name in ("a", "b"):
            make(tmp_path / name, kind)
        for path in (tmp_path / "a").iterdir():
            assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()

    def test_a_recall_that_no_search_reaches_is_refused(
        self, tmp_path: Path, kind: StoredKind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With another kind to take.

        Nothing stands as an index, and the shards stay for the next build.
        """
        monkeypatch.setattr(large_index, "tuned_search", partial(tuned_search, least=1.1))
        remedy = {
            "hnsw-sq8": "take index='flat'",
            "ivfpq": r"take index='hnsw-sq8' \(auto does .*\) or 'flat'",
        }[kind]
        rule = r"must find 1.1 of the 50 nearest by two standard errors, got [01].\d+ at its widest"
        with pytest.raises(ValueError, match=f"{rule}; {remedy}.$"):
            make(tmp_path / "i", kind)
        names = {path.name for path in (tmp_path / "i").iterdir()}
        assert names == {LOCK, DONE, FAISS, *(f"vectors-0000{number}.npy" for number in range(3))}
        with pytest.raises(InputError):
            open_large(tmp_path / "i", "0123456789abcdef")

    def test_as_many_hits_as_it_holds(self, tmp_path: Path, kind: StoredKind) -> None:
        """Any number of hits up to all vectors.

        Where all are asked for they are those of the exact index.
        """
        stored = make(tmp_path / "i", kind).dense
        exact = dense_index(np.asarray(stored.vectors))
        for k in (51, 200, N, N + 9):
            l2, ids = stored.search(ASKED, k)
            assert (np.count_nonzero(ids >= 0, axis=1) == min(k, N)).all()
            assert all(len(set(row[row >= 0].tolist())) == min(k, N) for row in ids)
            assert np.array_equal(l2 >= 0.0, ids >= 0)
        for one, other in zip(stored.search(ASKED, N), exact.search(ASKED, N), strict=True):
            assert np.array_equal(one, other)

    def test_parts_of_a_graph_that_no_link_leads_to_are_found(
        self, tmp_path: Path, kind: StoredKind
    ) -> None:
        """Where no search is wide enough, vectors are measured one by one, to exact-index hits."""
        stored = make(tmp_path / "i", kind).dense
        exact = dense_index(np.asarray(stored.vectors)).search(ASKED, 70)
        found = DenseIndex(stored.vectors, Blind(stored.index), 1, stored.most).search(ASKED, 70)
        for one, other in zip(found, exact, strict=True):
            assert np.array_equal(one, other)

    @pytest.mark.parametrize("limit", ["ASKED_AT_ONCE", "PAIRS"])
    def test_blocks_of_any_size_give_the_same(
        self, tmp_path: Path, kind: StoredKind, limit: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Hits are those of all questions at once, one question after the other too."""
        stored = make(tmp_path / "i", kind).dense
        whole = stored.search(ASKED, 60)
        for size in (1, 5_000):
            monkeypatch.setattr(dense, limit, size)
            for one, other in zip(stored.search(ASKED, 60), whole, strict=True):
                assert np.array_equal(one, other)

    def test_damage_is_told(self, tmp_path: Path, kind: StoredKind) -> None:
        """A byte of any file, a file cut or gone, another manifest: refused, with what to do."""
        folder = tmp_path / "i"
        make(folder, kind)
        for path in sorted(folder.iterdir()):
            content = path.read_bytes()
            if path.name == "lock":
                continue
            spoilt = bytearray(content)
            spoilt[len(content) // 2] ^= 1
            for other in (bytes(spoilt), content[:-7], None):
                path.unlink()
                if other is not None:
                    path.write_bytes(other)
                with pytest.raises(InputError):
                    open_large(folder, "0123456789abcdef")
                path.write_bytes(content)
        with pytest.raises(InputError, match=r"must be the index 0000.*delete the folder"):
            open_large(folder, "0" * 16)

    def test_no_field_of_the_manifest_can_be_altered(
        self, tmp_path: Path, kind: StoredKind
    ) -> None:
        """Each is refused by the digest; what cannot be, under a digest that fits too."""
        folder = tmp_path / "i"
        make(folder, kind)
        path = folder / MANIFEST
        stated = json.loads(path.read_text(encoding="utf-8"))
        other = "ivfpq" if kind == "hnsw-sq8" else "hnsw-sq8"
        altered: dict[str, list[Any]] = {
            "version": [1, None],
            "key": ["f" * 16],
            "kind": [other, "flat", 7],
            "n_chunks": [N - 1, 0, 10**9],
            "n_rows": [N - 1, N + 1, 0, 10**18],
            "dim": [8, 0],
            "rows": [ROWS - 1, 0, 1],
            "parameters": [{}, {**stated["parameters"], "seed": 1}],
            "width": [0, -1],
            "widen": [0],
            "recall_at_50": [-0.1, 1.5, "1"],
            "asked": [0],
            "files": [
                [],
                stated["files"][1:],
                stated["files"][::-1],
                [*stated["files"], stated["files"][0]],
            ],
        }
        # of which only the digest tells
        quiet = {"width": 999, "widen": 9, "recall_at_50": 0.5, "asked": 31}
        assert altered.keys() == stated.keys() - {"digest"}
        for name, values in altered.items():
            for value in values:
                changed = stated | {name: value}
                for one in (changed, changed | {"digest": manifest_digest(changed)}):
                    path.write_text(json.dumps(one), encoding="utf-8")
                    with pytest.raises(InputError, match="delete the folder"):
                        open_large(folder, "0123456789abcdef")
        for name, value in (*quiet.items(), ("digest", "0" * 64), ("more", 1)):
            path.write_text(json.dumps(stated | {name: value}), encoding="utf-8")
            with pytest.raises(InputError, match="delete the folder"):
                open_large(folder, "0123456789abcdef")
        path.write_text("[]", encoding="utf-8")
        with pytest.raises(InputError, match="must be an object"):
            open_large(folder, "0123456789abcdef")


class TestChangedWhileOpen:
    """Files of an index that is open; see `test_mapped_files`."""

    @pytest.mark.parametrize("kind", ["hnsw-sq8", "ivfpq"])
    @pytest.mark.parametrize("change", [shorten, empty, write_over, exchange])
    def test_no_search_reads_them(
        self, tmp_path: Path, kind: StoredKind, change: Callable[[Path], None]
    ) -> None:
        """Nearest of all, nearest of some, rows by position, all rows: each names the file."""
        searches: list[tuple[str, Callable[[LargeIndex], object]]] = [
            (FAISS, lambda index: index.dense.search(ASKED[:1], 5)),
            ("vectors-00000.npy", lambda index: index.dense.search(ASKED[:1], 5, [np.arange(9)])),
            ("vectors-00001.npy", lambda index: index.vectors[np.arange(N)]),
            ("vectors-00002.npy", lambda index: list(index.vectors.blocks())),
        ]
        for number, (name, search) in enumerate(searches):
            folder = tmp_path / f"{number}"
            index = make(folder, kind)
            search(index)
            change(folder / name)
            assert outcome(partial(search, index)) == "InputError"
            with pytest.raises(InputError, match=name):
                search(index)

    def test_one_that_changes_while_it_is_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is mapped is what was hashed."""
        make(tmp_path / "i", "hnsw-sq8")
        opened = Bm25Index.open

        def slow(folder: Path, n: int, **more: Any) -> Bm25Index:
            write_over(folder / FAISS)
            return opened(folder, n, **more)

        monkeypatch.setattr(large_index.Bm25Index, "open", slow)
        with pytest.raises(InputError, match=r"dense\.faiss: a file must stay as it was opened"):
            open_large(tmp_path / "i", "0123456789abcdef")

    @pytest.mark.parametrize("change", [take_away, make_anew])
    def test_a_new_version_takes_its_place(
        self, tmp_path: Path, change: Callable[[Path], None]
    ) -> None:
        """The one that is open answers on."""
        index = make(tmp_path / "i", "hnsw-sq8")
        before = index.dense.search(ASKED, 5)[1]
        change(tmp_path / "i" / FAISS)
        assert (index.dense.search(ASKED, 5)[1] == before).all()


class TestDisk:
    """A disk that is full, a file that cannot be read."""

    def test_no_room_for_the_keywords(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Room is taken before a mapped file is written: an error with a message and no signal.

        Nothing is left.
        """

        def full(descriptor: int, start: int, length: int) -> None:
            assert (start, length > 128, os.fstat(descriptor).st_size) == (0, True, length)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(InputError, match="must be writable, got No space left on device"):
            make(tmp_path / "i", "hnsw-sq8")
        assert not (tmp_path / "i" / MANIFEST).exists()
        assert not list((tmp_path / "i").glob(".*"))

    def test_a_file_system_that_takes_no_room_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or a system without the call: the index is made as elsewhere."""

        def unknown(*_: int) -> None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

        monkeypatch.setattr(os, "posix_fallocate", unknown)
        make(tmp_path / "i", "hnsw-sq8")
        monkeypatch.delattr(os, "posix_fallocate")
        make(tmp_path / "j", "hnsw-sq8")
        for path in (tmp_path / "i").iterdir():
            assert path.read_bytes() == (tmp_path / "j" / path.name).read_bytes()

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
    @pytest.mark.parametrize("n", [3, N])
    def test_no_room_for_the_vectors(
        self, tmp_path: Path, n: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What FAISS writes to a full disk is an error, to the last bytes of a small file."""
        flat = dense_index(VECTORS[:n]).index
        with pytest.raises(OSError, match="No space left on device"):
            write_faiss(flat, Path("/dev/full"))

        def fails(*_: object) -> None:
            raise RuntimeError("Error in faiss: write error")  # noqa: EM101, TRY003 - as FAISS does

        monkeypatch.setattr("faiss.write_index", fails)
        with pytest.raises(
            InputError, match="must be writable, got FAISS could not write it: Error in faiss"
        ):
            make(tmp_path / "i", "hnsw-sq8")

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        """Is told of as every file is."""
        with pytest.raises(
            InputError,
            match=r"the file must be readable, got Is a directory; check path and rights",
        ):
            large_index._file(tmp_path)


class TestResume:
    """What a killed build leaves."""

    def test_shards_that_stand_are_kept(self, tmp_path: Path) -> None:
        """A build stopped in the third shard encodes that one alone.

        The files are those of a build in one go.
        """
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "i", "hnsw-sq8", stops)
        assert not (tmp_path / "i" / MANIFEST).exists()
        starts = []

        def counts(some: slice) -> NDArray[np.float32]:
            starts.append(some.start)
            return VECTORS[some]

        make(tmp_path / "i", "hnsw-sq8", counts)
        assert starts == [2 * ROWS]
        make(tmp_path / "other", "hnsw-sq8")
        for path in (tmp_path / "other").iterdir():
            assert path.read_bytes() == (tmp_path / "i" / path.name).read_bytes()

    def test_a_shard_that_was_damaged_meanwhile_is_made_again(self, tmp_path: Path) -> None:
        """And a list of shards that cannot be read keeps none."""
        for spoil, again in (("vectors-00001.npy", [ROWS, 2 * ROWS]), (DONE, [0, ROWS, 2 * ROWS])):
            folder = tmp_path / spoil
            with pytest.raises(KeyboardInterrupt):
                make(folder, "hnsw-sq8", stops)
            (folder / spoil).write_bytes(b"[1")
            starts = []

            def counts(some: slice, starts: list[int] = starts) -> NDArray[np.float32]:
                starts.append(some.start)
                return VECTORS[some]

            make(folder, "hnsw-sq8", counts)
            assert starts == again

    def test_shards_of_another_length_are_made_again(self, tmp_path: Path) -> None:
        """A build resumed with more or fewer rows a shard ends with the files of one run."""
        for rows in (100, 500):
            folder, other = tmp_path / f"{rows}", tmp_path / f"{rows}-other"
            with pytest.raises(KeyboardInterrupt):
                make(folder, "hnsw-sq8", stops)
            about = (some_texts(N), LargeSize(N, N, DIM, rows), VECTORS.__getitem__, lambda: ASKED)
            for one in (folder, other):
                build_large(one, *about, kind="hnsw-sq8", key="0123456789abcdef")
            assert {path.name for path in folder.iterdir()} == {
                path.name for path in other.iterdir()
            }
            for path in other.iterdir():
                assert path.read_bytes() == (folder / path.name).read_bytes()
            assert len(open_large(folder, "0123456789abcdef").vectors) == N

    def test_what_a_kill_left_of_a_file_goes(self, tmp_path: Path) -> None:
        """By its hidden name; a file of another name, a folder and a link stay."""
        folder = make_folder(tmp_path / "i")
        (tmp_path / "own").write_text("mine", encoding="utf-8")
        (folder / ".0123456789abcdef.tmp").write_bytes(b"half")
        (folder / ".mine.tmp").write_bytes(b"mine")
        (folder / f".{'a' * 16}.tmp").mkdir()
        (folder / f".{'b' * 16}.tmp").symlink_to(tmp_path / "own")
        make(folder, "hnsw-sq8")
        assert {path.name for path in folder.glob(".*")} == {
            ".mine.tmp",
            f".{'a' * 16}.tmp",
            f".{'b' * 16}.tmp",
        }

    def test_a_killed_build_goes_on(self, tmp_path: Path) -> None:
        """A process that is killed in the middle of the keywords leaves no index and no lock.

        The next one ends it.
        """
        code = (
            "import os, sys, pathlib; from raglab.extensions.scale import large_index as made; "
            "made.write_bm25 = lambda texts, target: target('x').__enter__().write_bytes(b'half') "
            "and os.kill(os.getpid(), 9); "
            "from test_live_large_index import make; make(pathlib.Path(sys.argv[1]), 'hnsw-sq8')"
        )
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        ended = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "i")],
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
        assert ended.returncode == -signal.SIGKILL
        assert not (tmp_path / "i" / MANIFEST).exists()
        assert len(list((tmp_path / "i").glob(".*.tmp"))) == 1

        def unasked(some: slice) -> NDArray[np.float32]:
            raise AssertionError(some)

        make(tmp_path / "i", "hnsw-sq8", unasked)
        make(tmp_path / "other", "hnsw-sq8")
        assert {path.name for path in (tmp_path / "i").iterdir()} == {
            path.name for path in (tmp_path / "other").iterdir()
        }

    def test_two_builders_at_once(self, tmp_path: Path) -> None:
        """One builds, the other waits and takes what stands; each shard is encoded once."""
        starts: list[int] = []

        def counts(some: slice) -> NDArray[np.float32]:
            starts.append(some.start)
            time.sleep(0.02)
            return VECTORS[some]

        made: list[LargeIndex] = []
        threads = [
            threading.Thread(target=lambda: made.append(make(tmp_path / "i", "hnsw-sq8", counts)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert starts == [0, ROWS, 2 * ROWS]
        assert made[0].manifest == made[1].manifest

    def test_the_key_names_what_it_is_made_of(self) -> None:
        """Another text, encoder, kind or number of chunks is another index."""
        keys = {
            index_key(["a", "b"], "words", "ivfpq", 2),
            index_key(["a", "c"], "words", "ivfpq", 2),
            index_key(["ab"], "words", "ivfpq", 2),
            index_key(["a", "b"], "letters", "ivfpq", 2),
            index_key(["a", "b"], "words", "hnsw-sq8", 2),
            index_key(["a", "b"], "words", "ivfpq", 1),
        }
        assert len(keys) == 6

    def test_rows_that_are_split_otherwise_than_once_have_another_key(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """English and French rows keep their index.

        Of others the keyword index is made again, with today's words.
        """
        rows = ("fence", "résilié", "水漏れ", "हिन्दी", "12 µm")
        now = {text: index_key(["a", text], "words", "ivfpq", 2) for text in rows}
        # As before words of other scripts were read: nothing is added to what the key is made of.
        monkeypatch.setattr(large_index, "has_new_words", lambda _: False)
        earlier = {text: index_key(["a", text], "words", "ivfpq", 2) for text in rows}
        assert [text for text in rows if now[text] != earlier[text]] == ["水漏れ", "हिन्दी", "12 µm"]

    def test_the_questions_are_of_passages_with_words(self) -> None:
        """So many of them as there are; of empty ones none."""
        texts = [
            "",
            " ",
            "a b",
            *[""] * 5_000,
            "\t",
            "one two three four five six seven eight nine ten 11 12 13",
        ]
        assert sampled_questions(texts) == [
            "a b",
            "one two three four five six seven eight nine ten 11 12",
        ]
        many = [f"passage {number}" for number in range(500)]
        assert len(sampled_questions(many)) == 200

    def test_a_corpus_without_a_word_is_refused(self, tmp_path: Path) -> None:
        """Before anything is encoded, as where the index is held in memory.

        So are signatures of other texts.
        """

        class Unasked:
            name, dim = "unasked", DIM

        of_none = Signatures(np.full(2, -1), np.empty((0, DIM), np.float32))
        cache, about = EmbeddingCache(tmp_path / "e.sqlite"), {"kind": "hnsw-sq8", "tokens": False}
        for texts, told in (
            (["", " ? "], "a word in it, got 2 texts"),
            (["a"], r"of_chunk must have shape \[1\]"),
        ):
            with pytest.raises(ValueError, match=told):
                large_indexes(texts, Unasked(), cache, of_none, of_none, **about)
        assert not list(tmp_path.iterdir())


class TestDropped:
    """What goes when a folder is indexed anew."""

    def test_folders_of_others_stay(self, tmp_path: Path) -> None:
        """Another name, no file of an index in it, a link, a file: nothing of it is touched."""
        (tmp_path / "far").mkdir()
        (tmp_path / "far" / MANIFEST).write_text("{}", encoding="utf-8")
        for name in (
            "large-print",
            "large-0123456789ABCDEF",
            "large-0123456789abcdef0",
            f"large-{'e' * 16}",
        ):
            (tmp_path / name).mkdir()
            (tmp_path / name / "letters.txt").write_text("mine", encoding="utf-8")
            if "e" * 16 not in name:
                (tmp_path / name / MANIFEST).write_text("{}", encoding="utf-8")
        (tmp_path / f"large-{'f' * 16}").symlink_to(tmp_path / "far")
        (tmp_path / f"large-{'d' * 16}").write_text("mine", encoding="utf-8")
        (tmp_path / f".{'c' * 16}.tmp").mkdir()
        before = sorted(tmp_path.rglob("*"))
        drop_older(tmp_path, None)
        assert sorted(tmp_path.rglob("*")) == before

    def test_indexes_go_and_one_stays(self, tmp_path: Path) -> None:
        """A finished one, a stopped one, and what a kill left of one that was to go.

        The kept one and the earlier.
        """
        names = [f"large-{digit * 16}" for digit in "0123"]
        for at, name in enumerate(names):
            make_folder(tmp_path / name)
            (tmp_path / name / (DONE if at == 0 else MANIFEST)).write_text("{}", encoding="utf-8")
            os.utime(next((tmp_path / name).iterdir()), (at, at))
        make_folder(tmp_path / f".{'a' * 16}.tmp")
        (tmp_path / f".{'a' * 16}.tmp" / LOCK).touch()
        drop_older(tmp_path, tmp_path / names[3])
        assert sorted(path.name for path in tmp_path.iterdir()) == names[2:]

    def test_a_build_that_waited_for_a_folder_that_went(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Builds in a folder of its own.

        The lock that it got stands at the path no more, and is taken again.
        """
        folder = make_folder(tmp_path / "large-0123456789abcdef")
        (folder / DONE).write_text("[]", encoding="utf-8")
        waits, made = threading.Event(), []
        take = large_index.locked

        def tells(path: Path, wait_s: float) -> Any:
            waits.set()
            return take(path, wait_s)

        monkeypatch.setattr(large_index, "locked", tells)
        thread = threading.Thread(target=lambda: made.append(make(folder, "hnsw-sq8")))
        with take(folder / LOCK):
            thread.start()
            waits.wait(10.0)
            time.sleep(0.05)
            folder.rename(tmp_path / ".0123456789abcdef.tmp")  # as `drop_older` does under the lock
        thread.join(60.0)
        assert len(made) == 1
        assert open_large(folder, "0123456789abcdef").manifest == made[0].manifest
        assert not (tmp_path / ".0123456789abcdef.tmp" / MANIFEST).exists()


class TestEndToEnd:
    """A system over an index on disk."""

    # the fixture
    def test_answers_as_the_exact_index(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
    ) -> None:
        """The same chunks with distances within a thousandth; opened again nothing is built.

        A trace is the same.
        """
        del encoder
        policy = Policy.from_mapping(
            {"l2": {"enabled": False}, "similarity": {"min_similarity": 0.2}}
        )
        question = "What is the motor excess?"
        said = {}
        for kind in ("flat", "hnsw-sq8"):
            place = tmp_path / kind
            build_index(CORPUS, place, cache=None, **{**SMALL, "index": kind})
            system = System.open(place, policy=policy, generator=Fixed(), audit=False, cache=False)
            said[kind] = ask(question, system=system, request_id="r")
        assert said["flat"]["sources"] == said["hnsw-sq8"]["sources"]
        assert said["flat"]["confidence"] == pytest.approx(said["hnsw-sq8"]["confidence"], abs=0.2)
        (folder,) = (tmp_path / "hnsw-sq8").glob("large-*")
        stamp = (folder / MANIFEST).stat().st_mtime_ns
        ready = system.retriever
        assert isinstance(ready.indexes.vectors, VectorShards)
        System.open(tmp_path / "hnsw-sq8", policy=policy, audit=False, cache=False)
        assert (folder / MANIFEST).stat().st_mtime_ns == stamp
        case = Case("c", question, "ok")
        cache = EmbeddingCache(tmp_path / "hnsw-sq8" / "embeddings.sqlite")
        trace = build_trace(
            CORPUS, [case], cache=cache, **{**SMALL, "index": "hnsw-sq8"}, arms=("hybrid",)
        )
        exact = build_trace(CORPUS, [case], cache=cache, **SMALL, arms=("hybrid",))
        names = [
            [one.chunks[i].chunk_id for i in one.hits.chunk.ravel() if i >= 0]
            for one in (trace, exact)
        ]
        assert names[0] == names[1]
        assert np.nanmax(np.abs(trace.hits.l2 - exact.hits.l2)) < 1e-3
        folder.joinpath("dense.faiss").write_bytes(b"")
        with pytest.raises(
            InputError, match=r"dense.faiss must be as raglab wrote it.*delete the folder"
        ):
            System.open(tmp_path / "hnsw-sq8", policy=policy, audit=False, cache=False)

    def test_one_earlier_index_is_kept(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
    ) -> None:
        """Whoever is about to open it may.

        Older ones and unfinished ones go, but not while another builds them.

        A system that has a deleted one open answers from it as before.
        """
        del encoder
        place, question = tmp_path / "i", "What is the motor excess?"
        policy = Policy.from_mapping(
            {"l2": {"enabled": False}, "similarity": {"min_similarity": 0.2}}
        )
        killed, held = f"large-{'a' * 16}", f"large-{'b' * 16}"
        (make_folder(place / killed) / DONE).touch()
        make_folder(place / held)
        folders, answers = [], []
        with locked(place / held / LOCK):
            for count in (9, 10, 11, 12):
                some = CORPUS._replace(chunks=CORPUS.chunks[:count])
                build_index(some, place, cache=None, **{**SMALL, "index": "hnsw-sq8"})
                if not answers:
                    system = System.open(
                        place, policy=policy, generator=Fixed(), audit=False, cache=False
                    )
                    answers.append(ask(question, system=system, request_id="r"))
                folders.append(system.retriever.indexes.folder)
                there = {path.name: _chunks_of(path) for path in place.glob("large-*")}
                assert there.pop(held) == 0
                assert sorted(there.values()) == [one for one in (count - 1, count) if one >= 9]
        assert not folders[0].exists()
        answers.append(ask(question, system=system, request_id="r"))
        assert answers[0]["sources"] == answers[1]["sources"]
        assert answers[0]["confidence"] == answers[1]["confidence"]

    def test_no_tokens_of_passages_that_nobody_asked_for(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
    ) -> None:
        """A build does not keep them, and what is not read is said once."""
        place = tmp_path / "i"
        encoder.max_tokens = 3  # type: ignore[assignment]
        encoder.lengths = lambda texts: np.array([len(text.split()) for text in texts])

        def spans(texts: Sequence[str]) -> list[Any]:
            """Characters of the first three words of each text."""
            return [
                np.array([word.span() for word in list(re.finditer(r"\S+", text))[:3]])
                for text in texts
            ]

        encoder.spans = spans  # type: ignore[attr-defined]
        with pytest.warns(UserWarning, match="chunks are longer") as told:
            build_index(CORPUS, place, cache=None, **{**SMALL, "index": "hnsw-sq8"})
        assert len(told) == 1
        cache = EmbeddingCache(place / "embeddings.sqlite")
        keys = {
            kind: [cache_key("words", kind, one.text) for one in CORPUS.chunks]
            for kind in (SENTENCE, TOKENS)
        }
        assert len(cache.get(keys[SENTENCE])) == len(CORPUS.chunks)
        assert cache.get(keys[TOKENS]) == {}

    def test_few_chunks_are_indexed_as_before(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
    ) -> None:
        """No name, auto and flat are one index, and no folder of a large one is beside it."""
        del encoder
        named = ({}, {"index": "auto"}, {"index": "flat"}, {"index": "auto", "index_mb": 1.0})
        made = {build_index(CORPUS, tmp_path / "i", cache=None, **SMALL, **more) for more in named}
        assert len(made) == 1
        assert read_index(tmp_path / "i").settings.index == "flat"
        assert not list((tmp_path / "i").glob("large-*"))

    def test_past_the_size_auto_is_stored(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The index names the kind; a budget that nothing fits stops before anything is written."""
        del encoder
        monkeypatch.setattr(index_kinds, "FLAT_UP_TO", 3)
        build_index(CORPUS, tmp_path / "i", cache=None, **SMALL)
        assert read_index(tmp_path / "i").settings.index == "hnsw-sq8"
        with pytest.raises(ValueError, match="index_mb must be at least"):
            build_index(CORPUS, tmp_path / "j", cache=None, index_mb=0.001, **SMALL)
        assert not (tmp_path / "j").exists()

    def test_without_a_cache_auto_is_exact(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Of any number of chunks, in one file and in shards.

        A named kind is refused before anything is encoded.
        """
        monkeypatch.setattr(index_kinds, "FLAT_UP_TO", 3)
        cases = [Case("c", "motor", "ok")]
        small = {name: value for name, value in SMALL.items() if name != "index"}
        assert build_trace(CORPUS, cases, cache=None, **small).meta["parameters"]["index"] == "flat"
        assert len(build_shards(CORPUS, cases, tmp_path / "t", cache=None, **small)) == 1
        encoder.seen.clear()
        with pytest.raises(ValueError, match="kept beside the cache"):
            build_trace(CORPUS, cases, cache=None, **{**small, "index": "hnsw-sq8"})
        assert encoder.seen == []

    def test_tokens_are_encoded_where_they_are_asked_for(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
    ) -> None:
        """Once, then read from the cache.

        In a folder that keeps nothing the last ones are read from memory.
        """
        first = StoredTokens(encoder, EmbeddingCache(tmp_path / "e.sqlite"))["motor excess"]
        encoder.seen.clear()
        again = StoredTokens(encoder, EmbeddingCache(tmp_path / "e.sqlite"))
        assert np.array_equal(first, again["motor excess"])
        assert encoder.seen == []
        nowhere = StoredTokens(encoder, None)
        for _ in range(2):
            assert np.array_equal(nowhere["motor excess"], first)
        assert encoder.seen == ["motor excess"]
        for number in range(TOKENS_KEPT):
            nowhere[f"passage {number}"]
        nowhere["motor excess"]
        assert encoder.seen.count("motor excess") == 2

    def test_a_locked_cache_of_tokens_costs_one_wait(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """And not one for each passage that is reranked; they are encoded all the same."""
        monkeypatch.setattr(large_index, "CACHE_PATIENCE_S", 3.0)
        path = tmp_path / "e.sqlite"
        truth = StoredTokens(encoder, EmbeddingCache(path))["motor excess"]
        tokens = StoredTokens(encoder, EmbeddingCache(path))
        with closing(sqlite3.connect(path, isolation_level=None)) as link:
            link.execute("BEGIN IMMEDIATE")
            start = time.monotonic()
            for number in range(5):
                assert len(tokens[f"passage {number}"])
            assert 3.0 < time.monotonic() - start < 12.0  # five waits take 15 s
        assert np.array_equal(tokens["motor excess"], truth)


def _chunks_of(folder: Path) -> int:
    """Chunks of a large index; 0 where it is not finished."""
    manifest = folder / MANIFEST
    return json.loads(manifest.read_text(encoding="utf-8"))["n_chunks"] if manifest.is_file() else 0
