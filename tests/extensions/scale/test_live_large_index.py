"""Indexes on disk: hits of the exact index, whole after a kill, refused where changed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from fuzz.resigned import array_changes, walk
from generators import Fixed
from live_worlds import CORPUS, SMALL, WordEncoder
from raglab.extensions.scale import large_index
from raglab.extensions.scale.large_index import (
    FAISS_FILE,
    INDEX_FILES,
    LOCK,
    MANIFEST,
    _manifest,
    drop_older,
    stored_index,
)
from raglab.live.ask import ask
from raglab.live.index_folder import INDEX, _digest
from raglab.live.retriever import check_settings
from raglab.live.system import System, build_index
from raglab.live.trace_building import build_trace
from raglab.retrieval import index_kinds, indexes
from raglab.retrieval.dense import EmbeddingCache, cache_key, dense_index
from raglab.retrieval.index_kinds import sized_kind
from raglab.retrieval.indexes import (
    Bm25Index,
    Signatures,
    StoredTokens,
    build_indexes,
    write_bm25,
)
from raglab.store.files import InputError, locked, make_folder, replacing
from raglab.store.policies import Policy
from raglab.values import Case

N, CHUNKS, DIM = 600, 550, 16
WORDS = ("fence", "garden", "theft", "résiliation", "policy", "flood", "roofing", "of", "the")


def units(n, seed, *, grid=False):
    """Unit vectors; of a coarse grid many are alike."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 4, (n, 3)) @ np.eye(3, DIM) if grid else rng.normal(size=(n, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def some_texts(n, seed=0):
    """Texts of a few words, some of them empty."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(0, 12))) for _ in range(n)]


VECTORS, ASKED = units(N, 0), units(20, 1)
TEXTS = [f"{number} {text}" for number, text in enumerate(some_texts(N))]


class Numbered:
    """An encoder of texts that begin with the number of their vector."""

    name, dim = "numbered", DIM

    def __init__(self, vectors=VECTORS):
        self.vectors, self.seen = vectors, list[str]()

    def sentences(self, texts):
        """Vectors of texts."""
        self.seen += texts
        return self.vectors[[int(text.split()[0]) for text in texts]]


def made(place, vectors=VECTORS, n_chunks=CHUNKS):
    """Index of the texts, made or opened."""
    encoder: Any = vectors if isinstance(vectors, Numbered) else Numbered(vectors)
    return stored_index(TEXTS, n_chunks, encoder, EmbeddingCache(place / "e.sqlite"))


def answers(index):
    """Hits of questions by vectors and by words."""
    hits = (*index.dense.search(ASKED[:1], 5), *index.bm25.search(["fence flood", "of the"], 5))
    return [array.tolist() for array in hits]


def contents(folder):
    """Files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def outcome(call):
    """What a call comes to in a process of its own, which a signal may end."""
    process = os.fork()
    if process == 0:  # pragma: no cover - of another process
        code = 3
        faiss.omp_set_num_threads(1)  # a process has the threads of its parent no more
        try:
            call()
            code = 0
        except InputError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return {0: "answered", 1: "InputError", -signal.SIGKILL: "killed"}.get(code, f"ended by {code}")


def kill(*_):
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


class TestSearch:
    """Exact, over vectors in float16."""

    @pytest.mark.parametrize("grid", [True, False])
    def test_hits_are_those_of_the_exact_index(self, tmp_path, *, grid):
        """To the bit and with every tie, for any number of hits, and within any scope.

        The rows behind the chunks are never found.
        """
        vectors, queries = units(N, 0, grid=grid), units(9, 10, grid=grid)
        index, rounded = made(tmp_path, vectors), vectors.astype("<f2").astype(np.float32)
        flat = dense_index(rounded[:CHUNKS])
        rng = np.random.default_rng(0)
        scopes = [None, *(rng.integers(CHUNKS, size=rng.integers(90)) for _ in queries[1:])]
        for k in (1, 7, 200, CHUNKS, CHUNKS + 9):
            for allowed in (None, scopes):
                for hits in zip(
                    index.dense.search(queries, k, allowed),
                    flat.search(queries, k, allowed),
                    strict=True,
                ):
                    assert np.array_equal(*hits, equal_nan=True)
        places = rng.integers(N, size=(4, 5))
        assert np.array_equal(index.vectors[places], rounded[places])
        assert index.vectors.shape == (N, DIM)

    def test_anchors_of_long_texts(self, tmp_path):
        """All vectors that the index in memory has, within the rounding."""
        texts = [f"{word} {'long ' * 300 * (i % 2)}end{i}" for i, word in enumerate(WORDS)]
        of_none = Signatures(np.full(len(texts), -1), np.empty((0, 16), np.float32))
        both = [
            build_indexes(
                texts, WordEncoder(), EmbeddingCache(tmp_path / "e"), of_none, of_none, kind=kind
            )
            for kind in ("flat", "sqfp16")
        ]
        assert np.array_equal(both[0].anchors, both[1].anchors)
        assert (both[0].anchors != np.arange(len(texts))).sum() == 4
        for at in (both[0].anchors, np.arange(len(texts))):
            assert np.abs(both[0].vectors[at] - both[1].vectors[at]).max() < 1e-3

    def test_keywords_are_the_same_to_the_bit(self, tmp_path):
        """Over texts of every length, and words that nobody has."""
        texts = [*some_texts(500, seed=3), "", "unique wording of one text", "the the the"]
        write_bm25(texts, lambda name: replacing(tmp_path / name))
        stored, held = Bm25Index.open(tmp_path, len(texts), check=lambda: None), Bm25Index(texts)
        queries = [*some_texts(40, seed=4), "zebra", "", "the of the", "uniquely"]
        scopes = [np.array([3, 400, 17])] * len(queries)
        for k, allowed in ((1, None), (7, scopes), (600, None)):
            for hits in zip(
                stored.search(queries, k, allowed), held.search(queries, k, allowed), strict=True
            ):
                assert np.array_equal(*hits, equal_nan=True)


class TestChanged:
    """Files that are not as raglab wrote them."""

    def test_damage_is_refused(self, tmp_path):
        """A byte of any file, a file that is cut, or gone; the files of another index."""
        folder = made(tmp_path).folder
        for path in (folder / name for name in (*INDEX_FILES, MANIFEST)):
            content = path.read_bytes()
            spoilt = bytearray(content)
            spoilt[len(content) // 2] ^= 1
            for other in (bytes(spoilt), content[:-7], None)[: 2 + (path.name != MANIFEST)]:
                path.unlink()
                if other is not None:
                    path.write_bytes(other)
                with pytest.raises(InputError, match="delete its folder"):
                    made(tmp_path)
            path.write_bytes(content)
        shutil.copytree(folder, made(tmp_path, n_chunks=CHUNKS - 1).folder, dirs_exist_ok=True)
        with pytest.raises(InputError, match="others than its manifest names"):
            made(tmp_path, n_chunks=CHUNKS - 1)

    def test_vectors_under_a_hash_that_fits(self, tmp_path):
        """No byte of the form, no length and no number but that of a unit vector gets to FAISS."""
        folder = made(tmp_path).folder
        content = (folder / FAISS_FILE).read_bytes()
        head, rows = content[: -2 * N * DIM], content[-2 * N * DIM :]
        changed = [head[:at] + bytes([head[at] ^ 0xFF]) + head[at + 1 :] for at in range(len(head))]
        others = [whole + rows for whole in changed] + [content[:-2], head, b""]
        for place, value in ((0, np.nan), (N * DIM - 1, 2.0), (N * DIM // 2, -np.inf)):
            numbers = np.frombuffer(rows, "<f2").copy()
            numbers[place] = value
            others.append(head + numbers.tobytes())
        for other in others:
            (folder / FAISS_FILE).write_bytes(other)
            (folder / MANIFEST).write_text(_manifest(folder))
            with pytest.raises(InputError, match="delete its folder"):
                made(tmp_path)

    def test_keywords_under_a_hash_that_fits(self, tmp_path):
        """Each array with each change: refused, or a search that ends."""
        folder = made(tmp_path).folder

        def changes():
            for path in sorted(folder.glob("*.npy")):
                content = path.read_bytes()
                for change in array_changes(np.load(path)):
                    np.save(path, change.content)
                    (folder / MANIFEST).write_text(_manifest(folder))
                    yield change
                path.write_bytes(content)

        assert walk(changes(), lambda _: made(tmp_path), answers)["refused"] > 40

    @pytest.mark.parametrize(
        ("name", "size"), [(FAISS_FILE, 0), (INDEX_FILES[3], 64), (INDEX_FILES[3], None)]
    )
    def test_a_file_that_changes_while_it_is_searched(self, tmp_path, name, size):
        """Cut or written over: an error before the search, and never the end of the process."""
        index = made(tmp_path)
        answers(index)
        if size is None:
            os.utime(index.folder / name)
        else:
            os.truncate(index.folder / name, size)
        searches: list[Callable[[], object]] = [
            lambda: index.dense.search(ASKED[:1], 5),
            lambda: index.dense.search(ASKED[:1], 5, [np.arange(9)]),
            lambda: index.vectors[np.arange(N)],
            lambda: index.bm25.search(["fence"], 3),
        ]

        def refused():
            for search in searches:
                with pytest.raises(InputError):
                    search()

        assert outcome(refused) == "answered"

    def test_a_file_that_changes_while_it_is_opened(self, tmp_path, monkeypatch):
        """What is mapped is what was hashed."""
        folder, read = made(tmp_path).folder, large_index._mapped_index

        def slow(path, shape):
            os.utime(path, (1.0, 1.0))
            return read(path, shape)

        monkeypatch.setattr(large_index, "_mapped_index", slow)
        with pytest.raises(InputError, match="written since"):
            made(tmp_path)
        assert (folder / FAISS_FILE).stat().st_mtime == 1.0

    def test_an_index_that_is_deleted_answers_on(self, tmp_path):
        """From what it has mapped."""
        index = made(tmp_path)
        before = answers(index)
        shutil.rmtree(index.folder)
        assert answers(index) == before


class TestBuild:
    """Killed, at once, on a full disk."""

    def test_the_same_bytes_again(self, tmp_path, monkeypatch):
        """Whatever the blocks; another encoder or number of chunks has another name."""
        first = made(tmp_path / "a").folder
        monkeypatch.setattr(large_index, "VECTORS_PER_BLOCK", 100)
        second = made(tmp_path / "b").folder
        assert (first.name, contents(first)) == (second.name, contents(second))
        other = Numbered()
        other.name = "other"
        changed = {made(tmp_path / "b", n_chunks=9).folder, made(tmp_path / "b", other).folder}
        assert len({first.name, *(folder.name for folder in changed)}) == 3

    @pytest.mark.parametrize("step", ["embed", "write_bm25", "_manifest"])
    def test_a_killed_build_leaves_no_index(self, tmp_path, step, monkeypatch):
        """The next one ends it: what was encoded is not encoded again, and nothing is left over."""
        monkeypatch.setattr(large_index, "VECTORS_PER_BLOCK", 300)
        work, calls = getattr(large_index, step), list[object]()

        def at_second(*given, **named):
            calls.append(given)
            return kill() if len(calls) == 1 + (step == "embed") else work(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(large_index, step, at_second)
            assert outcome(lambda: made(tmp_path)) == "killed"
        (folder,) = tmp_path.glob("large-*")
        assert not (folder / MANIFEST).exists()
        encoder = Numbered()
        made(tmp_path, encoder)
        assert len(encoder.seen) == (300 if step == "embed" else 0)
        assert contents(folder) == contents(made(tmp_path / "other").folder)

    def test_two_builders_at_once(self, tmp_path):
        """One builds, the other waits and takes what stands: each text is encoded once."""
        encoder, folders = Numbered(), list[Path]()
        threads = [
            threading.Thread(target=lambda: folders.append(made(tmp_path, encoder).folder))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert folders[0] == folders[1]
        assert len(encoder.seen) == N

    def test_a_folder_that_is_dropped_while_a_build_waits_for_it(self, tmp_path):
        """The build makes it again."""
        folder = made(tmp_path).folder
        (folder / MANIFEST).unlink()
        thread = threading.Thread(target=lambda: made(tmp_path))
        with locked(folder / LOCK):
            thread.start()
            time.sleep(0.2)
            shutil.rmtree(folder)
        thread.join()
        assert answers(made(tmp_path)) == answers(made(tmp_path / "other"))

    def test_a_full_disk(self, tmp_path, monkeypatch):
        """An error and no signal: no index, and nothing left over."""

        def refuse(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(indexes.np, "save", refuse)
        with pytest.raises(InputError, match="space"):
            made(tmp_path)
        (folder,) = tmp_path.glob("large-*")
        assert not (folder / MANIFEST).exists()
        assert not list(folder.glob(".*"))


class TestDropped:
    """What goes when a folder is indexed anew."""

    def test_indexes_go_and_one_stays(self, tmp_path):
        """The current one, the one before it, one that is built, and all that others made stay."""
        names = [f"large-{digit * 16}" for digit in "01234"]
        for at, name in enumerate((*names, "large-print", f"large-{'F' * 16}")):
            (make_folder(tmp_path / name) / LOCK).touch()
            os.utime(tmp_path / name / LOCK, (at, at))
        (make_folder(tmp_path / f"large-{'e' * 16}") / MANIFEST).write_text("mine")
        (tmp_path / f"large-{'d' * 16}").symlink_to(tmp_path / "large-print")
        before = {path.name for path in tmp_path.iterdir()}
        with locked(tmp_path / names[1] / LOCK):
            drop_older(tmp_path, tmp_path / names[4])
        assert before - {path.name for path in tmp_path.iterdir()} == {names[0], names[2]}
        assert (tmp_path / "large-print" / LOCK).exists()


class TestKind:
    """Which index a corpus gets."""

    def test_auto_is_on_disk_above_a_hundred_thousand(self):
        """With a cache, and without pictures; a named kind is refused there."""
        assert [sized_kind("auto", n) for n in (100_000, 100_001)] == ["flat", "sqfp16"]
        assert sized_kind("auto", 10**6, cached=False) == "flat"
        assert sized_kind("auto", 10**6, lambda: 2) == "flat"
        with pytest.raises(ValueError, match=r"texts alone, .* got 2 pictures"):
            sized_kind("sqfp16", 10**6, lambda: 2)
        with pytest.raises(ValueError, match="index must be one of auto"):
            check_settings({"index": "ivfpq"})

    def test_refused_before_anything_is_encoded(self, encoder, monkeypatch):
        """No cache; `auto` without a cache is in memory."""
        monkeypatch.setattr(index_kinds, "FLAT_UP_TO", 3)
        cases, small = [Case("c", "motor", "ok")], {**SMALL, "cache": None, "index": "auto"}
        assert build_trace(CORPUS, cases, **small).meta["parameters"]["index"] == "flat"
        encoder.seen.clear()
        with pytest.raises(ValueError, match="beside a cache"):
            build_trace(CORPUS, cases, **{**small, "index": "sqfp16"})
        assert encoder.seen == []


POLICY = Policy.from_mapping({"l2": {"enabled": False}, "similarity": {"min_similarity": 0.2}})
QUESTION = "What is the motor excess?"


def opened(place):
    """A system over an index."""
    return System.open(place, policy=POLICY, generator=Fixed(), audit=False, cache=False)


@pytest.mark.usefixtures("encoder")
class TestEndToEnd:
    """A system over an index on disk."""

    def test_answers_as_the_exact_index(self, tmp_path):
        """The same chunks with distances within a thousandth; opened again nothing is built."""
        replies = {}
        for kind in ("flat", "sqfp16"):
            build_index(CORPUS, tmp_path / kind, cache=None, **{**SMALL, "index": kind})
            replies[kind] = ask(QUESTION, system=opened(tmp_path / kind), request_id="r")
        assert replies["flat"]["sources"] == replies["sqfp16"]["sources"]
        (folder,) = (tmp_path / "sqfp16").glob("large-*")
        stamp = (folder / MANIFEST).stat().st_mtime_ns
        cache = EmbeddingCache(tmp_path / "sqfp16" / "embeddings.sqlite")
        traces = [
            build_trace(CORPUS, [Case("c", QUESTION, "ok")], cache=cache, **SMALL, index=kind)
            for kind in ("flat", "sqfp16")
        ]
        assert (folder / MANIFEST).stat().st_mtime_ns == stamp
        assert np.array_equal(traces[0].hits.chunk, traces[1].hits.chunk)
        assert np.nanmax(np.abs(traces[0].hits.l2 - traces[1].hits.l2)) < 1e-3

    def test_an_index_of_an_earlier_kind(self, tmp_path):
        """It is refused, with the command that makes it again."""
        build_index(CORPUS, tmp_path, cache=None, **{**SMALL, "index": "sqfp16"})
        head = json.loads((tmp_path / INDEX).read_text())
        head["settings"]["index"] = "hnsw-sq8"
        (tmp_path / INDEX).write_text(json.dumps(head | {"digest": _digest(head)}))
        with pytest.raises(InputError, match=r"settings\.index must be .* make it again with `rag"):
            opened(tmp_path)


class TestTokens:
    """Token embeddings of passages that are reranked."""

    def test_they_are_encoded_where_they_are_asked_for(self, tmp_path):
        """Once, then read from the cache, and where that has them no more from memory."""
        encoder, cache = WordEncoder(), EmbeddingCache(tmp_path / "e.sqlite")
        first = StoredTokens(encoder, cache)["motor excess"]
        again = StoredTokens(encoder, cache)
        assert np.array_equal(first, again["motor excess"])
        cache.drop([cache_key("words", "tokens", "motor excess")])
        again["motor excess"]
        assert encoder.seen == ["motor excess"]
