"""Retrieval: worked examples first, then what holds for every arm."""

from __future__ import annotations

import multiprocessing
import zlib
from contextlib import closing
from typing import cast

import numpy as np
import pytest

from raglab.models.loaders import CrossEncoder, Encoding
from raglab.retrieval.arms import Sizes, Strategy, walk
from raglab.retrieval.dense import (
    EmbeddingCache,
    cache_key,
    dense_index,
    distances,
    embed,
)
from raglab.retrieval.indexes import (
    Bm25Index,
    Queries,
    Signatures,
    build_indexes,
    embed_queries,
    index_words,
)
from raglab.retrieval.rank_fusion import reciprocal_rank_fusion
from raglab.retrieval.reranking import CrossEncoderReranker, MaxSim
from raglab.store.blobs import Blobs
from raglab.values import FLOAT_FIELDS, Hits

DIM = 8


def _unit(rows):
    """Rows of length 1."""
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def _some_units(n, dim=DIM, seed=0):
    """Draw n unit vectors."""
    return _unit(np.random.default_rng(seed).normal(size=(n, dim)))


def _equal(first, second):
    """Whether arrays are equal pair by pair, missing values among them."""
    pairs = zip(first, second, strict=True)
    return all(np.array_equal(*pair, equal_nan=True) for pair in pairs)


def _tokens(name, sizes, dim, seed=0):
    """Draw so many token embeddings for each of some texts."""
    return {
        f"{name}{i}": _some_units(int(size), dim, seed=seed + i).astype(np.float16)
        for i, size in enumerate(sizes)
    }


class WordEncoder:
    """Each word has a fixed direction, a text the mean of its words'.

    Counts what it was asked for.
    """

    name = "words"
    dim = DIM

    def __init__(self, stop_after=None):
        """Break with an error after so many texts, where asked."""
        self.seen = []
        self.stop_after = stop_after

    def both(self, texts, *, query=False):
        """Sentence and token embeddings; no prompt goes before either kind."""
        del query
        if self.stop_after is not None and len(self.seen) + len(texts) > self.stop_after:
            raise KeyboardInterrupt
        self.seen.extend(texts)
        words = [
            np.array(
                [_some_units(1, seed=zlib.crc32(word.encode()))[0] for word in text.lower().split()]
            )
            for text in texts
        ]
        return Encoding(
            _unit(np.stack([rows.mean(axis=0) for rows in words])),
            [rows.astype(np.float16) for rows in words],
        )

    def sentences(self, texts, *, query=False):
        """Sentence embeddings."""
        return self.both(texts, query=query).sentences


class TestFusion:
    """Reciprocal rank fusion."""

    def test_by_head(self):
        """First in both lists is 1; second in one of two lists is (1/62) / (2/61) = 61/124.

        Ties fall by id.
        """
        score, ids = reciprocal_rank_fusion([np.array([[7, 5]]), np.array([[7, 3]])], n_kept=4)
        assert ids.tolist() == [[7, 3, 5, -1]]
        assert score[0, 0] == 1.0
        assert score[0, 1] == score[0, 2] == np.float32(61 / 124)
        assert np.isnan(score[0, 3])

    def test_a_list_of_twice_the_weight_counts_twice(self):
        """5 first in the heavy list and nowhere else: 2/61 of 3/61.

        7 second there and first in the light one.
        """
        lists = [np.array([[7, 3, -1]]), np.array([[5, 7, -1]])]
        score, ids = reciprocal_rank_fusion(lists, n_kept=3, weights=(1.0, 2.0))
        assert ids.tolist() == [[7, 5, 3]]
        assert score[0].tolist() == pytest.approx([(1 + 2 * 61 / 62) / 3, 2 / 3, 61 / 62 / 3])
        with pytest.raises(ValueError, match="zip"):
            reciprocal_rank_fusion(lists, 3, weights=(1.0,))
        with pytest.raises(ValueError, match="once in a ranked list"):
            reciprocal_rank_fusion([np.array([[1, 1]])], 2)


class TestDense:
    """Dense search and distances."""

    def test_by_head(self):
        """Same direction: l2 0, cosine 1; right angle: 2 and 0; opposite: 4 and -1."""
        vectors = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
        l2, cosine = distances(vectors[:1], vectors, np.array([[0, 1, 2, -1]]))
        assert l2[0, :3].tolist() == [0.0, 2.0, 4.0]
        assert cosine[0, :3].tolist() == [1.0, 0.0, -1.0]
        assert np.isnan([l2[0, 3], cosine[0, 3]]).all()

    def test_equals_faiss(self):
        """Distances are those of IndexFlatL2 to 1e-6, and cosine is 1 - l2 / 2 to 1e-6."""
        vectors, queries = _some_units(1000, 384), _some_units(40, 384, seed=1)
        index = dense_index(vectors)
        l2, ids = index.search(queries, 30)
        expected, _ = index.index.search(queries, 30)
        assert np.abs(l2 - expected).max() <= 1e-6
        again, cosine = distances(queries, vectors, ids)
        assert np.array_equal(l2, again)
        assert np.abs(cosine - (1 - l2 / 2)).max() <= 1e-6

    def test_ties_fall_by_position(self):
        """Of a hundred equal vectors the first three are found."""
        vectors = np.concatenate([np.repeat(_some_units(1), 100, axis=0), -_some_units(1)])
        l2, ids = dense_index(vectors).search(vectors[:1], 3)
        assert ids.tolist() == [[0, 1, 2]]
        assert l2.tolist() == [[0.0, 0.0, 0.0]]

    def test_a_scope_is_searched_exactly(self):
        """Within a scope only its positions are found, in (l2, id) order.

        An empty scope finds nothing.
        """
        vectors, queries = _some_units(50), _some_units(3, seed=1)
        l2, ids = dense_index(vectors).search(
            queries, 4, [np.array([40, 3]), None, np.array([], int)]
        )
        expected, _ = distances(queries[:1], vectors, np.array([[3, 40]]))
        assert sorted(ids[0, :2].tolist()) == [3, 40]
        assert l2[0, :2].tolist() == sorted(expected[0].tolist())
        assert np.array_equal(ids[1], dense_index(vectors).search(queries[1:2], 4)[1][0])
        assert (ids[2] == -1).all()

    @pytest.mark.parametrize("kind", ["hnsw", "ivf"])
    def test_approximate_kinds_find_most_and_repeat_themselves(self, kind):
        """Graph and cells find over nine in ten exact neighbours, the same when built again."""
        vectors, queries = _some_units(2000), _some_units(50, seed=1)
        near, again = (dense_index(vectors, kind).search(queries, 10)[1] for _ in range(2))
        exact = dense_index(vectors).search(queries, 10)[1]
        assert (near[:, :, None] == exact[:, None]).any(-1).mean() > 0.9
        assert np.array_equal(near, again)


class TestBm25:
    """Keyword search."""

    def test_words_keep_accents_and_longer_ones_a_beginning(self):
        """Case goes, accents stay however encoded; a form shares its beginning with sisters."""
        assert index_words("É(e\u0301) 14") == ["é", "é", "14"]
        assert set(index_words("résiliation")) & set(index_words("résilier")) == {"^résil"}
        assert index_words("") == []

    def test_by_head(self):
        """One of two texts of equal length holds the word: idf ln 2, term part 1 / (1 + 1.2).

        A text without a word of the query is no hit; ties fall by position.
        """
        score, ids = Bm25Index(["fire", "water"]).search(["fire", "zebra", "?!"], 2)
        assert ids.tolist() == [[0, -1], [-1, -1], [-1, -1]]
        assert score[0, 0] == pytest.approx(np.log(2) / 2.2, abs=1e-6)
        assert np.isnan(score[0, 1])
        _, ids = Bm25Index(["fire", *["water damage"] * 50]).search(["water"], 4)
        assert ids.tolist() == [[1, 2, 3, 4]]

    def test_a_scope_keeps_the_scores(self):
        """Within a scope the scores are those of the whole corpus."""
        texts = ["fire a", "fire b b", "fire c c c", "water"]
        index = Bm25Index(texts)
        scores, ids = index.search(["fire"], 3)
        within, positions = index.search(["fire"] * 2, 3, [np.array([2, 3, 1]), np.array([], int)])
        assert positions.tolist() == [[1, 2, -1], [-1, -1, -1]]
        assert within[0, :2].tolist() == scores[0, 1:].tolist()
        assert ids.tolist() == [[0, 1, 2]]


class TestMaxSim:
    """Late interaction."""

    def test_by_head(self):
        """Best cosines 1 and 0.5: 0.75; -1 and 0: -0.5, clipped to 0; no tokens, no score."""
        tokens = {
            "q": np.array([[1, 0], [0, 1]], np.float16),
            "a": np.array([[1, 0], [-1, 0.5]], np.float16),
            "b": np.array([[-1, 0]], np.float16),
            "empty": np.empty((0, 2), np.float16),
        }
        scores = MaxSim(tokens, tokens).scores(
            ["q", "empty"], ["a", "b", "empty"], np.array([[0, 1, 2, -1], [0] * 4])
        )
        assert scores.raw[0, :2].tolist() == [0.75, -0.5]
        assert scores.s_rerank[0, :2].tolist() == [0.75, 0.0]
        assert np.isnan(scores.raw[0, 2:]).all()
        assert np.isnan(scores.s_rerank[1]).all()

    def test_known_scores_change_no_bit(self):
        """Whatever was scored before; a pair is scored once, by the definition."""
        rng = np.random.default_rng(5)
        docs = _tokens("d", rng.integers(0, 30, 20), 48)
        queries = _tokens("q", rng.integers(0, 9, 5), 48, seed=99)
        texts = [*docs, "d3", "d4"]  # of which two stand twice
        keeping, plain = MaxSim(queries, docs, known={}), MaxSim(queries, docs)
        for _ in range(6):
            names = rng.permutation(list(queries)).tolist()
            candidates = rng.integers(-1, len(texts), (5, 7))
            scores = keeping.scores(names, texts, candidates)
            assert _equal(scores, plain.scores(names, texts, candidates))
        for (query, text), score in keeping.known.items():
            products = docs[text].astype(float) @ queries[query].astype(float).T
            if products.size:
                assert score == pytest.approx(products.max(axis=0).mean(), abs=1e-6)
        # No passage is read where the pair is known.
        known = MaxSim(queries, {}, known={("q0", "d0"): 0.25}).scores(
            ["q0"], ["d0"], np.array([[0]])
        )
        assert known.raw == 0.25


class LengthModel:
    """Stands for a cross-encoder: the logit is the difference of the lengths."""

    name = "length"

    def logits(self, pairs):
        """Length of the passage minus length of the question."""
        return np.array([float(len(b) - len(a)) for a, b in pairs])


def test_a_cross_encoder_is_the_sigmoid_of_its_logit():
    """Logits 0, ln 3 apart and -1000 give 0.5 and 0, without a warning; -1 has none."""
    reranker = CrossEncoderReranker(cast("CrossEncoder", LengthModel()))
    scores = reranker.scores(["abc"], ["xyz", "x" * 1003, ""], np.array([[0, -1, 1, 2]]))
    assert reranker.name == "length"
    assert scores.raw[0, [0, 2, 3]].tolist() == [0.0, 1000.0, -3.0]
    assert scores.s_rerank[0, [0, 2]].tolist() == [0.5, 1.0]
    assert scores.s_rerank[0, 3] == pytest.approx(1 / (1 + np.exp(3)))
    assert np.isnan(scores.s_rerank[0, 1])


def _write_many(path, texts):
    """Embed texts into a cache; a process's work."""
    embed(WordEncoder(), texts, EmbeddingCache(path), tokens=True)


def _same(*pair):
    """Whether two embeddings are, vectors and tokens."""
    return _equal(*([each.vectors, *each.tokens] for each in pair))


UNIT = np.eye(2, DIM, dtype=np.float32)


class TestEmbed:
    """Embedding and its cache."""

    def test_each_text_is_encoded_once(self, tmp_path):
        """Repeats cost nothing, in a call or the next one, and rows come in the order asked for."""
        cache, encoder = EmbeddingCache(tmp_path / "deep" / "cache.sqlite"), WordEncoder()
        first = embed(encoder, ["fire", "water", "fire"], cache, tokens=True)
        again = embed(encoder, ["water", "fire", "soil"], cache, tokens=True)
        assert sorted(encoder.seen) == ["fire", "soil", "water"]
        assert np.array_equal(first.vectors[[1, 0]], again.vectors[:2])
        assert np.array_equal(first.tokens[0], again.tokens[1])
        assert (first.vectors.dtype, first.tokens[0].dtype) == (np.float32, np.float16)

    def test_the_cache_changes_nothing(self, tmp_path):
        """With and without a cache, empty, full, or with tokens still to come, all is the same."""
        texts = [f"text {i} of many" for i in range(600)]
        cache = EmbeddingCache(tmp_path / "cache.sqlite")
        plain = embed(WordEncoder(), texts, None, tokens=True)
        before = embed(WordEncoder(), texts, cache)
        assert (before.tokens, len(plain.tokens[0])) == (None, 4)
        assert np.array_equal(plain.vectors, before.vectors)
        for _ in range(2):
            assert _same(plain, embed(WordEncoder(), texts, cache, tokens=True))

    def test_a_killed_run_goes_on_where_it_stopped(self, tmp_path):
        """What was encoded before the break is not encoded again."""
        texts = [f"text {i}" for i in range(1000)]
        cache = EmbeddingCache(tmp_path / "cache.sqlite")
        first, second = WordEncoder(stop_after=600), WordEncoder()
        with pytest.raises(KeyboardInterrupt):
            embed(first, texts, cache)
        embed(second, texts, cache)
        assert len(first.seen) == 512
        assert not set(first.seen) & set(second.seen)
        assert len(second.seen) == 488

    def test_two_processes_share_a_file(self, tmp_path):
        """Four processes that write overlapping texts at once lose nothing and break nothing."""
        texts = [f"text {i}" for i in range(900)]
        context = multiprocessing.get_context("fork")
        path = tmp_path / "cache.sqlite"
        starts = (0, 100, 200, 300)
        workers = [
            context.Process(target=_write_many, args=(path, texts[start : start + 600]))
            for start in starts
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        silent = WordEncoder(stop_after=0)
        assert np.array_equal(
            embed(silent, texts, EmbeddingCache(path), tokens=True).vectors,
            embed(WordEncoder(), texts, None).vectors,
        )

    @pytest.mark.parametrize(
        ("head", "rows"),
        [
            ("<f4 1 8", UNIT[:1] * np.nan),
            ("<f4 1 8", UNIT[:1] * 0.9),
            ("<f4 2 8", UNIT),
            ("<f8 1 8", UNIT[:1].astype(float)),
            ("", UNIT[:1]),
            ("|O 1 8", UNIT[:1]),
            ("<f4 -1 8", UNIT[:1]),
            ("<f4 1 99999999999", UNIT[:1]),
            ("<f4 1 8", UNIT[:1, 1:]),
            ("<f4 1 8", UNIT),
        ],
    )
    def test_what_is_no_embedding_is_encoded_again(self, tmp_path, head, rows):
        """A cached row not finite, of length 1, or of the encoder's form; bytes of no array."""
        path, encoder = tmp_path / "cache.sqlite", WordEncoder()
        plain = embed(WordEncoder(), ["fire"], None, tokens=True)
        content = f"{head}\n".encode() + rows.tobytes()
        with closing(Blobs(path)) as blobs:
            blobs.put(
                {cache_key("words", kind, "fire"): content for kind in ("sentence", "tokens")}
            )
        assert _same(embed(encoder, ["fire"], EmbeddingCache(path), tokens=True), plain)
        assert encoder.seen == ["fire"]
        again = embed(WordEncoder(stop_after=0), ["fire"], EmbeddingCache(path), tokens=True)
        assert _same(again, plain)


PLAIN = ("hybrid", "dense", "bm25")  # arms that need no more than the two lists
WORDS = ["fire", "water", "theft", "storm", "notice", "period", "premium", "claim"]


def _texts(n, seed):
    """Draw n texts of three to eight words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, int(rng.integers(3, 9)))) for _ in range(n)]


@pytest.fixture(scope="module")
def indexes():
    """Eighty texts, two of them longer than an anchor, three equal; a third has no signature."""
    texts = _texts(80, seed=4)
    texts[10] = "fire " * 200 + "water " * 200
    texts[11] = "notice " * 300
    texts[20] = texts[21] = texts[22]
    of_chunk = np.arange(80) % 3 - 1
    loose, strict = (
        Signatures(of_chunk, _some_units(2, seed=8)),
        Signatures(np.arange(80), _some_units(80, seed=9)),
    )
    return build_indexes(texts, WordEncoder(), None, loose, strict)


@pytest.fixture(scope="module")
def queries():
    """Twenty-five questions, one without a word of the corpus."""
    return embed_queries([*_texts(24, seed=5), "zebra"], WordEncoder())


def _row(queries, i):
    """One question of many."""
    tokens = None if queries.tokens is None else queries.tokens[i : i + 1]
    return Queries(queries.texts[i : i + 1], queries.vectors[i : i + 1], tokens)


def retrieve(
    indexes,
    queries,
    arm,
    *,
    sizes=Sizes(),  # noqa: B008 - a tuple
    reranker=None,
    allowed=None,
):
    """Hits of every question at depth 0, [Q, 1, 1, fetch_k], each question walked alone."""
    strategy = Strategy(arm, indexes, sizes, reranker=reranker)
    scopes = [None] * len(queries.texts) if allowed is None else allowed
    rows = [
        next(walk(strategy, _row(queries, row), scope)).hits for row, scope in enumerate(scopes)
    ]
    return Hits._make(np.concatenate(fields) for fields in zip(*rows, strict=True))


class TestRetrieve:
    """The arms."""

    @pytest.mark.parametrize("arm", PLAIN)
    def test_one_is_a_cell_of_many(self, indexes, queries, arm):
        """A question alone has the hits, to the bit, that it has among others."""
        many = retrieve(indexes, queries, arm, sizes=Sizes(30, 10))
        for i, text in enumerate(queries.texts):
            alone = embed_queries([text], WordEncoder())
            hits = retrieve(indexes, alone, arm, sizes=Sizes(30, 10))
            assert _equal((field[i : i + 1] for field in many), hits)

    @pytest.mark.parametrize("arm", PLAIN)
    def test_hits_are_sorted_measured_and_padded(self, indexes, queries, arm):
        """Hits go by (l2, position), each once; ranks are 0 … n - 1.

        Every number is a float32's.
        """
        hits = retrieve(indexes, queries, arm, sizes=Sizes(30))
        for name, values in hits._asdict().items():
            floats = name in FLOAT_FIELDS
            assert values.dtype == (np.float64 if floats else np.int32), name
            assert values.shape == (25, 1, 1, 30)[: 3 if name == "n_reranked" else 4], name
            if floats:
                assert np.array_equal(values, values.astype(np.float32), equal_nan=True), name
        for row in zip(*hits[:-1], strict=True):
            hit = Hits(*(field[0, 0] for field in row), None)
            n = int((hit.chunk >= 0).sum())
            placed = list(zip(hit.l2[:n].tolist(), hit.chunk[:n].tolist(), strict=True))
            assert placed == sorted(placed)
            assert len(set(hit.chunk[:n])) == n
            assert sorted(hit.rank[:n]) == list(range(n))
            assert (np.array([hit.chunk, hit.rank])[:, n:] == -1).all()
            assert np.isnan([getattr(hit, name)[n:] for name in FLOAT_FIELDS]).all()
            assert not np.isnan([hit.l2[:n], hit.cosine[:n], hit.s_hybrid[:n]]).any()

    def test_single_lists_keep_their_order(self, indexes, queries):
        """`dense` and `bm25` rank like their list, score 61 / (60 + place), and rerank nothing."""
        lists = {
            "dense": indexes.dense.search(queries.vectors, 10)[1],
            "bm25": indexes.bm25.search(queries.texts, 10)[1],
        }
        for arm, ids in lists.items():
            hits = retrieve(indexes, queries, arm, sizes=Sizes(10))
            by_rank = np.argsort(hits.rank.view(np.uint32), axis=-1, kind="stable")
            chunk, score = (
                np.take_along_axis(field, by_rank, -1)[:, 0, 0]
                for field in (hits.chunk, hits.s_hybrid)
            )
            shares = (61 / (61 + np.arange(10))).astype(np.float32)
            assert _equal((chunk, score), (ids, np.where(ids >= 0, shares, np.nan)))
            assert not hits.n_reranked.any()
            assert np.isnan([hits.s_rerank, hits.s_raw]).all()

    def test_the_reranked_go_first(self, indexes, queries):
        """Ranks below n_reranked go by s_rerank down, then by s_hybrid, then position.

        Behind them fused order.
        """
        hits = retrieve(indexes, queries, "hybrid", sizes=Sizes(30, 12))
        assert (hits.n_reranked == 12).all()
        columns = (hits.rank, hits.s_rerank, hits.s_hybrid, hits.chunk)
        for rank, *scores in zip(*(column[:, 0, 0] for column in columns), strict=True):
            order = np.argsort(rank)[(rank < 0).sum() :]
            score, fused, chunk = (column[order] for column in scores)
            head = list(zip(-score[:12], -fused[:12], chunk[:12], strict=True))
            assert head == sorted(head)
            assert np.isnan(score[12:]).all()
            tail = list(zip(-fused[12:], chunk[12:], strict=True))
            assert tail == sorted(tail)
            assert fused[:12].min() >= fused[12:].max()

    def test_anchors_and_signatures(self, indexes, queries):
        """A short chunk is its own anchor, a long one's is its beginning.

        No signature, no similarity.
        """
        hits = retrieve(indexes, queries, "dense", sizes=Sizes(80))
        chunk, cosine, anchor = (a[:, 0, 0] for a in (hits.chunk, hits.cosine, hits.anchor_sim))
        short = ~np.isin(chunk, [10, 11])
        assert np.array_equal(cosine[short], anchor[short])
        fire = WordEncoder().sentences(["fire"])[0]
        assert anchor[chunk == 10] == pytest.approx(queries.vectors @ fire, abs=1e-6)
        assert np.array_equal(np.isnan(hits.sig_sim[:, 0, 0]), chunk % 3 == 0)
        row, column = 3, 7
        expected = queries.vectors[row] @ indexes.strict_signatures.vectors[chunk[row, column]]
        assert hits.sig_sim_strict[row, 0, 0, column] == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("arm", PLAIN)
    def test_a_scope_is_kept(self, indexes, queries, arm):
        """Where the user named documents only their chunks are hits; elsewhere nothing changes."""
        scope = np.array([70, 5, 6])
        allowed = [scope, np.array([], int), *[None] * 23]
        hits = retrieve(indexes, queries, arm, allowed=allowed)
        everywhere = retrieve(indexes, queries, arm)
        assert {-1} < set(hits.chunk[0].ravel().tolist()) <= {70, 5, 6, -1}
        assert (hits.chunk[1] == -1).all()
        assert _equal((field[2:] for field in hits), (field[2:] for field in everywhere))
        if arm != "bm25":
            assert (hits.chunk[0] >= 0).sum() == 3
