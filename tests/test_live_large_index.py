"""Indexes on disk: the same hits as the exact index where everything is searched, resumed, damage told, sized."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from generators import Fixed
from raglab.live import large_index
from raglab.live.ask import ask
from raglab.live.index_folder import read_index
from raglab.live.index_growth import add_documents, remove_documents
from raglab.live.large_index import (
    DONE,
    LOCK,
    MANIFEST,
    LargeIndex,
    LargeSize,
    StoredTokens,
    build_large,
    index_key,
    open_large,
    sized_kind,
)
from raglab.live.system import Lab, build_index
from raglab.live.trace_building import RetrievalSettings, build_trace, check_settings
from raglab.retrieval.dense import (
    EmbeddingCache,
    StoredKind,
    StoredSearch,
    cosines,
    dense_index,
    index_bytes,
    stored_kind,
    tuned_search,
    with_search,
)
from raglab.retrieval.indexes import Bm25Index
from raglab.retrieval.vector_shards import Remapped, VectorShards
from raglab.store.files import InputError, locked, make_folder
from raglab.store.policies import Policy
from raglab.values import Case
from test_live_trace_building import CORPUS, SMALL, WordEncoder, encoder  # noqa: F401 - a fixture

N, DIM, ROWS = 600, 16, 256
WORDS = ("fence", "garden", "theft", "résiliation", "12", "policy", "flood", "roofing", "excess", "of", "the")


def units(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Unit vectors around forty centres."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(40, DIM))
    rows = centres[rng.integers(40, size=n)] + 0.3 * rng.normal(size=(n, DIM))
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def some_texts(n: int, seed: int = 0) -> list[str]:
    """Texts of a few words, some of them empty."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(0, 12))) for _ in range(n)]


VECTORS, ASKED = units(N), units(30, seed=1)


def make(folder: Path, kind: StoredKind, encoded: Callable[[slice], NDArray[np.float32]] | None = None) -> LargeIndex:
    """Large index over the vectors, with some texts."""
    size = LargeSize(N, N, DIM, ROWS)
    build_large(
        folder, some_texts(N), size, encoded or VECTORS.__getitem__, lambda: ASKED, kind=kind, key="0123456789abcdef"
    )
    return open_large(folder, "0123456789abcdef")


class TestSize:
    """Which index a corpus gets."""

    def test_by_head(self) -> None:
        """A million vectors of 384: a graph of 384 + 256 + 24 bytes each, or 96 + 8 bytes each and the centres."""
        assert index_bytes("hnsw-sq8", 1_000_000, 384) == 664_000_000
        assert index_bytes("ivfpq", 1_000_000, 384) == 104_000_000 + 4 * 384 * (2_000 + 256)

    def test_the_budget_chooses(self) -> None:
        """The graph where it fits, then the cells, then a message with the least that does."""
        assert stored_kind(1_000_000, 384, 664) == "hnsw-sq8"
        assert stored_kind(1_000_000, 384, 663) == "ivfpq"
        with pytest.raises(ValueError, match="index_mb must be at least 107 for 1000000 vectors of 384 dimensions"):
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

    def test_the_fingerprint_names_the_kind_alone(self) -> None:
        """Auto over few chunks has the fingerprint of flat, whatever the budget."""
        auto = check_settings({"index": "auto", "index_mb": 5.0}).sized(100)
        assert auto == RetrievalSettings()
        assert "index_mb" not in auto.stated

    @pytest.mark.parametrize(
        ("given", "told"), [({"index": "tree"}, "index must be one of auto"), ({"index_mb": 0.0}, "index_mb must be")]
    )
    def test_wrong_settings_are_refused(self, given: dict[str, Any], told: str) -> None:
        """An unknown kind, a budget of nothing."""
        with pytest.raises(ValueError, match=told):
            check_settings(given)


class TestShards:
    """Float16 rows in files."""

    def test_reads_as_an_array(self, tmp_path: Path) -> None:
        """Rows by position, in any shape and order, by slice and as a whole; a table of positions over them."""
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
            cosines(ASKED[:1], view, ids), cosines(ASKED[:1], rounded[[3, 599, 3]], ids), equal_nan=True
        )

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        """Float32, another width, a short shard in the middle."""
        for name, rows in (("a", VECTORS), ("b", VECTORS[:, :4].astype("<f2")), ("c", VECTORS[:3].astype("<f2"))):
            np.save(tmp_path / f"{name}.npy", rows)
        for names, told in ((("a",), "must be float16 with 16"), (("b",), "must be float16"), (("c", "c"), "256 rows")):
            with pytest.raises(ValueError, match=told):
                VectorShards([tmp_path / f"{name}.npy" for name in names], ROWS, DIM)


class TestKeywords:
    """BM25 on disk."""

    def test_scores_are_the_same_to_the_bit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Over texts of every length, blocks that cut them anywhere, and words that nobody has."""
        from raglab.retrieval import indexes

        monkeypatch.setattr(indexes, "_TEXTS_AT_ONCE", 37)
        texts = [*some_texts(500, seed=3), "", "unique wording of one text", "the the the"]
        indexes.write_bm25(texts, lambda name: large_index.replacing(tmp_path / name))
        stored, held = Bm25Index.open(tmp_path, len(texts)), Bm25Index(texts)
        queries = [*some_texts(40, seed=4), "zebra", "", "the of the", "uniquely"]
        for k in (1, 7, 600):
            for one, other in zip(stored.search(queries, k), held.search(queries, k), strict=True):
                assert np.array_equal(one, other, equal_nan=True)
        scope = [np.array([3, 400, 17])] * len(queries)
        assert np.array_equal(stored.search(queries, 2, scope)[1], held.search(queries, 2, scope)[1])

    def test_no_words_are_refused(self, tmp_path: Path) -> None:
        """As where the index is held in memory, and nothing is written."""
        with pytest.raises(ValueError, match="a word in it, got 2 texts"):
            large_index.write_bm25(["", " ? "], lambda name: large_index.replacing(tmp_path / name))
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["hnsw-sq8", "ivfpq"])
class TestStored:
    """Both kinds of a stored index."""

    def test_recall_stands_in_the_manifest(self, tmp_path: Path, kind: StoredKind) -> None:
        """It is what a count of the exact neighbours gives, at least what is asked for, with all parameters."""
        index = make(tmp_path / "i", kind)
        told = json.loads((tmp_path / "i" / MANIFEST).read_text(encoding="utf-8"))
        l2, _ = index.dense.search(ASKED, 50)
        exact, _ = dense_index(np.asarray(index.vectors)).search(ASKED, 50)
        assert told["recall_at_50"] == pytest.approx(np.mean(l2 <= exact[:, -1:] + 1e-5), abs=1e-6)
        assert told["recall_at_50"] >= told["parameters"]["least_recall"] == 0.95
        assert (told["kind"], told["asked"], told["n_chunks"]) == (kind, 30, N)
        assert {one["name"] for one in told["files"]} == {path.name for path in (tmp_path / "i").iterdir()} - {
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
        assert np.array_equal(index.dense.search(ASKED, 3, scopes)[1], flat.search(ASKED, 3, scopes)[1])

    def test_the_same_bytes_again(self, tmp_path: Path, kind: StoredKind) -> None:
        """Two builds agree in every file."""
        for name in ("a", "b"):
            make(tmp_path / name, kind)
        for path in (tmp_path / "a").iterdir():
            assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()

    def test_a_recall_that_no_search_reaches_is_refused(self, tmp_path: Path, kind: StoredKind) -> None:
        """With what to do; nothing stands as an index."""
        index = make(tmp_path / "i", kind)
        with pytest.raises(
            ValueError,
            match=r"must find 1.1 of the 50 nearest by two standard errors, got .*index='hnsw-sq8' or 'flat'",
        ):
            tuned_search(index.dense, ASKED, least=1.1)

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
        open_large(folder, "0123456789abcdef", verify=False)


class TestResume:
    """What a killed build leaves."""

    def test_shards_that_stand_are_kept(self, tmp_path: Path) -> None:
        """A build stopped in the third shard encodes that one alone; the files are those of a build in one go."""

        def stops(some: slice) -> NDArray[np.float32]:
            if some.start >= 2 * ROWS:
                raise KeyboardInterrupt
            return VECTORS[some]

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

        def stops(some: slice) -> NDArray[np.float32]:
            if some.start >= 2 * ROWS:
                raise KeyboardInterrupt
            return VECTORS[some]

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


@pytest.mark.slow
class TestEndToEnd:
    """A system over an index on disk."""

    def test_answers_as_the_exact_index(self, tmp_path: Path, encoder: WordEncoder) -> None:  # noqa: F811 - the fixture
        """The same chunks with distances within a thousandth; opened again nothing is built; a trace is the same."""
        del encoder
        policy = Policy.from_mapping({"l2": {"enabled": False}, "similarity": {"min_similarity": 0.2}})
        question = "What is the motor excess?"
        said = {}
        for kind in ("flat", "hnsw-sq8"):
            place = tmp_path / kind
            build_index(CORPUS, place, cache=None, **{**SMALL, "index": kind})
            lab = Lab.open(place, policy=policy, generator=Fixed(), audit=False, cache=False)
            said[kind] = ask(question, lab=lab, request_id="r")
        assert said["flat"]["sources"] == said["hnsw-sq8"]["sources"]
        assert said["flat"]["confidence"] == pytest.approx(said["hnsw-sq8"]["confidence"], abs=0.2)
        (folder,) = (tmp_path / "hnsw-sq8").glob("large-*")
        stamp = (folder / MANIFEST).stat().st_mtime_ns
        ready = lab.retriever
        assert isinstance(ready.indexes.vectors, VectorShards)
        Lab.open(tmp_path / "hnsw-sq8", policy=policy, audit=False, cache=False)
        assert (folder / MANIFEST).stat().st_mtime_ns == stamp
        case = Case("c", question, "ok")
        cache = EmbeddingCache(tmp_path / "hnsw-sq8" / "embeddings.sqlite")
        trace = build_trace(CORPUS, [case], cache=cache, **{**SMALL, "index": "hnsw-sq8"}, arms=("hybrid",))
        exact = build_trace(CORPUS, [case], cache=cache, **SMALL, arms=("hybrid",))
        names = [[one.chunks[i].chunk_id for i in one.hits.chunk.ravel() if i >= 0] for one in (trace, exact)]
        assert names[0] == names[1]
        assert np.nanmax(np.abs(trace.hits.l2 - exact.hits.l2)) < 1e-3
        folder.joinpath("dense.faiss").write_bytes(b"")
        with pytest.raises(InputError, match=r"dense.faiss must be as raglab wrote it.*delete the folder"):
            Lab.open(tmp_path / "hnsw-sq8", policy=policy, audit=False, cache=False)

    def test_one_earlier_index_is_kept(self, tmp_path: Path, encoder: WordEncoder) -> None:  # noqa: F811
        """Whoever is about to open it may; older ones and unfinished ones go, but not while another builds them.

        A system that has a deleted one open answers from it as before.
        """
        del encoder
        place, question = tmp_path / "i", "What is the motor excess?"
        policy = Policy.from_mapping({"l2": {"enabled": False}, "similarity": {"min_similarity": 0.2}})
        (place / "large-killed").mkdir(parents=True)
        held = make_folder(place / "large-held")
        folders, answers = [], []
        with locked(held / LOCK):
            for count in (9, 10, 11, 12):
                some = CORPUS._replace(chunks=CORPUS.chunks[:count])
                build_index(some, place, cache=None, **{**SMALL, "index": "hnsw-sq8"})
                if not answers:
                    lab = Lab.open(place, policy=policy, generator=Fixed(), audit=False, cache=False)
                    answers.append(ask(question, lab=lab, request_id="r"))
                folders.append(lab.retriever.indexes.vectors.folder)
                there = {path.name: _chunks_of(path) for path in place.glob("large-*")}
                assert there.pop("large-held") == 0
                assert sorted(there.values()) == [one for one in (count - 1, count) if one >= 9]
        assert not folders[0].exists()
        answers.append(ask(question, lab=lab, request_id="r"))
        assert answers[0]["sources"] == answers[1]["sources"]
        assert answers[0]["confidence"] == answers[1]["confidence"]

    def test_documents_are_added_and_removed(self, tmp_path: Path, encoder: WordEncoder) -> None:  # noqa: F811
        """The large index of all stands before they are asked; none is made of the new ones alone."""
        del encoder
        place = tmp_path / "i"
        old, new = (CORPUS._replace(chunks=part) for part in (CORPUS.chunks[:9], CORPUS.chunks[9:]))
        build_index(old, place, cache=None, **{**SMALL, "index": "hnsw-sq8"})
        added = add_documents(place, new, cache=None)
        assert sorted(map(_chunks_of, place.glob("large-*"))) == [9, 12]
        assert added.fingerprint == build_index(CORPUS, tmp_path / "j", cache=None, **{**SMALL, "index": "hnsw-sq8"})
        remove_documents(place, "faq.txt")
        assert sorted(map(_chunks_of, place.glob("large-*"))) == [9, 12]
        assert isinstance(Lab.open(place, audit=False, cache=False).retriever.indexes.vectors, VectorShards)

    def test_few_chunks_are_indexed_as_before(self, tmp_path: Path, encoder: WordEncoder) -> None:  # noqa: F811
        """Nothing named, auto and flat are one index, and no folder of a large one stands beside it."""
        del encoder
        named = ({}, {"index": "auto"}, {"index": "flat"}, {"index": "auto", "index_mb": 1.0})
        made = {build_index(CORPUS, tmp_path / "i", cache=None, **SMALL, **more) for more in named}
        assert len(made) == 1
        assert read_index(tmp_path / "i").settings.index == "flat"
        assert not list((tmp_path / "i").glob("large-*"))

    def test_past_the_size_auto_is_stored(
        self,
        tmp_path: Path,
        encoder: WordEncoder,  # noqa: F811 - the fixture
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The index names the kind; a budget that nothing fits stops before anything is written."""
        del encoder
        monkeypatch.setattr(large_index, "FLAT_UP_TO", 3)
        build_index(CORPUS, tmp_path / "i", cache=None, **SMALL)
        assert read_index(tmp_path / "i").settings.index == "hnsw-sq8"
        with pytest.raises(ValueError, match="index_mb must be at least"):
            build_index(CORPUS, tmp_path / "j", cache=None, index_mb=0.001, **SMALL)
        assert not (tmp_path / "j").exists()

    def test_tokens_are_encoded_where_they_are_asked_for(self, tmp_path: Path, encoder: WordEncoder) -> None:  # noqa: F811
        """Once, and then read from the cache."""
        texts = ["motor excess", "garden fences"]
        tokens = StoredTokens(encoder, EmbeddingCache(tmp_path / "e.sqlite"), texts)
        assert (list(tokens), len(tokens)) == (texts, 2)
        first = tokens["motor excess"]
        assert np.array_equal(
            first, StoredTokens(encoder, EmbeddingCache(tmp_path / "e.sqlite"), texts)["motor excess"]
        )
        with pytest.raises(ValueError, match="kept beside the cache"):
            build_trace(CORPUS, [Case("c", "motor", "ok")], cache=None, **{**SMALL, "index": "hnsw-sq8"})


def _chunks_of(folder: Path) -> int:
    """Chunks of a large index; 0 where it is not finished."""
    manifest = folder / MANIFEST
    return json.loads(manifest.read_text(encoding="utf-8"))["n_chunks"] if manifest.is_file() else 0
