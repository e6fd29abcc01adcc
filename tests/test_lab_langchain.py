"""Hits of LangChain's sources as traces: by hand first, then what a source cannot say."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from refusals import refused

pytest.importorskip("langchain_core")

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore

from fuzz.scored_store import CASES, DOCUMENTS, Scored
from raglab.lab.langchain import STORE_SCORE, hits_frame, trace_from_langchain
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.values import Case

AXES = ("excess", "flood", "theft", "tea")
NEAR = PolicyData.from_mapping({"confidence": {"enabled": False}, "gap": {"enabled": False}})
HALF = float(np.sqrt(0.5))
RELEVANCE: dict[str, Any] = {
    "relevance": {"column": "score", "higher": "surer", "unit": "probability"}
}


class Words(Embeddings):
    """One axis a word; what has none of the words points nowhere else."""

    def embed_query(self, text):
        """Counts of the words, not of length 1."""
        return [3.0 * text.split().count(axis) for axis in AXES] + [
            0.0 if set(text.split()) & set(AXES) else 1.0
        ]

    def embed_documents(self, texts):
        """As queries."""
        return [self.embed_query(text) for text in texts]


class Listed(BaseRetriever):
    """A retriever that gives the same documents to everything."""

    documents: list[Document]

    def _get_relevant_documents(self, query, **more):
        del query, more
        return self.documents


@pytest.fixture
def store():
    """Return a store of three passages."""
    passages = InMemoryVectorStore(Words())
    passages.add_documents(list(DOCUMENTS))
    return passages


class TestVectorStore:
    """Scores of a store."""

    def test_cosines(self, store):
        """`excess` is its first passage, at 45 degrees from the second, and square to the third."""
        frame = hits_frame(store, CASES[:1], distance="cosine")
        assert frame["hit_id"].tolist() == ["home#1", "home#2", "motor#1"]
        assert frame["score"].tolist() == pytest.approx([1.0, HALF, 0.0])
        assert frame["page"].tolist() == [1, 2, 1]

    def test_a_trace(self, store):
        """Cases, passages with source, page and tags, hits by distance, decided like any trace."""
        trace = trace_from_langchain(store, CASES, distance="cosine", k=2)
        assert trace.cases == CASES
        assert trace.arms == ("langchain",)
        assert trace.hits.chunk.shape == (3, 1, 1, 2)
        first, *_ = sorted(trace.chunks, key=lambda chunk: chunk.chunk_id)
        assert (first.chunk_id, first.shown, first.text) == ("home#1", "docs/home.md#1", "excess")
        assert first.tags == {"doc_type": "wording", "version": "2025"}
        assert trace.hits.l2[0, 0, 0] == pytest.approx([0.0, 2.0 - 2.0 * HALF])
        assert np.isnan(trace.hits.s_rerank).all()
        decisions = decide(trace, NEAR).frame()
        assert decisions["status"].tolist() == ["ok", "ok", "refuse"]
        assert decisions["sources"][0] == ["docs/home.md#1", "docs/home.md#2"]

    @pytest.mark.parametrize(
        ("distance", "scores", "l2"),
        [
            ("cosine", [1.0, 0.5, -0.5], [0.0, 1.0, 3.0]),
            ("cosine_distance", [0.0, 0.5, 1.5], [0.0, 1.0, 3.0]),
            ("l2", [0.0, 1.0, 3.0], [0.0, 1.0, 3.0]),
            ("euclidean", [0.0, 1.0, 1.5], [0.0, 1.0, 2.25]),
        ],
    )
    def test_what_scores_are(self, distance, scores, l2):
        """The same squared distances, whatever the store calls them."""
        trace = trace_from_langchain(Scored(scores), CASES[:1], distance=distance)
        assert trace.hits.l2[0, 0, 0].tolist() == l2
        assert trace.hits.cosine[0, 0, 0].tolist() == [1.0 - value / 2.0 for value in l2]

    @pytest.mark.parametrize(("distance", "scores"), [("l2", [0.9, 0.5]), ("cosine", [0.1, 0.4])])
    def test_a_distance_that_the_order_contradicts(self, distance, scores):
        """A similarity that is called a distance stops, for the best comes first."""
        refused(
            rf"langchain, id a: .*distance='{distance}' a nearer one follows, got",
            hits_frame,
            Scored(scores),
            CASES[:1],
            distance=distance,
        )

    def test_distances_of_vectors_that_are_not_unit(self):
        """A squared distance beyond 4 stops in the trace, with the remedy."""
        refused("unit vectors", trace_from_langchain, Scored([2.0, 9.0]), CASES[:1], distance="l2")

    def test_measured_instead(self, store):
        """With embeddings the store's scores are not read; the order of the hits is the store's."""
        frame = hits_frame(Scored([7.0, 8.0, 9.0]), CASES[:1], embeddings=Words())
        known = hits_frame(store, CASES[:1], distance="cosine")
        assert frame["score"].tolist() == pytest.approx(known["score"].tolist())
        assert frame["hit_id"].tolist() == known["hit_id"].tolist()

    def test_rounding_is_cut_off(self):
        """A cosine of 1.0000001 is 1; one of 1.1 is none."""
        assert hits_frame(Scored([1.0000001]), CASES[:1], distance="cosine")["score"].tolist() == [
            1.0
        ]
        refused(
            r"score must be a number from -1 to 1, got 1\.1",
            trace_from_langchain,
            Scored([1.1]),
            CASES[:1],
            distance="cosine",
        )

    def test_nothing_found(self):
        """The case keeps its row, and its refusal."""
        trace = trace_from_langchain(Scored([]), CASES, distance="cosine")
        assert [*decide(trace, NEAR).frame()["decided_by"]] == ["no_hits"] * 3


class TestRetriever:
    """Documents without scores."""

    def test_cosines_are_measured(self):
        """The retriever's order is the rank, whatever the cosines are."""
        trace = trace_from_langchain(
            Listed(documents=list(DOCUMENTS[::-1])), CASES[:1], embeddings=Words()
        )
        ids = [trace.chunks[n].chunk_id for n in trace.hits.chunk[0, 0, 0]]
        assert ids == ["home#1", "home#2", "motor#1"]
        assert trace.hits.rank[0, 0, 0].tolist() == [2, 1, 0]
        assert trace.hits.cosine[0, 0, 0] == pytest.approx([1.0, HALF, 0.0])

    def test_behind_a_store(self, store):
        """A retriever over a store finds what the store does, as many as it gives, at most k."""
        retriever = store.as_retriever(search_kwargs={"k": 2})
        assert hits_frame(retriever, CASES[:1], embeddings=Words())["hit_id"].tolist() == [
            "home#1",
            "home#2",
        ]
        assert len(hits_frame(retriever, CASES[:1], embeddings=Words(), k=1)) == 1

    def test_a_rerankers_probability(self):
        """What a reranker left in the metadata is the confidence, 75 of 100."""
        trace = trace_from_langchain(
            Listed(documents=list(DOCUMENTS)), CASES[:1], embeddings=Words(), probability="score"
        )
        assert decide(trace, PolicyData.from_mapping()).confidence()[0] == 75.0
        assert trace.hits.n_reranked[0, 0, 0] == 2

    def test_a_passage_that_comes_twice(self):
        """It counts where it came first, with or without an id."""
        bare = [Document(page_content="excess", metadata={"source": "a.md"}) for _ in range(2)]
        frame = hits_frame(
            Listed(documents=[*bare, DOCUMENTS[0], DOCUMENTS[0], bare[0]]),
            CASES[:1],
            embeddings=Words(),
        )
        assert len(frame) == 2
        assert frame["rank"].tolist() == [0, 1]
        assert frame["hit_id"].tolist()[1] == "home#1"


class TestMetadata:
    """What documents say of themselves."""

    @staticmethod
    def of(metadata, **more):
        """The one passage of a trace."""
        documents = [Document(id="x", page_content="excess", metadata=metadata)]
        return trace_from_langchain(
            Listed(documents=documents), CASES[:1], embeddings=Words(), **more
        ).chunks[0]

    def test_other_names(self):
        """Keys are renamed on the way."""
        found = self.of(
            {
                "file_path": "docs/a.pdf",
                "category": "guide",
                "names": ["fleet"],
                "page_label": "iv",
            },
            columns={"source": "file_path", "doc_type": "category", "entities": "names"},
        )
        assert (found.shown, found.tags, found.entities) == (
            "docs/a.pdf#iv",
            {"doc_type": "guide"},
            ("fleet",),
        )

    def test_pages_from_zero(self):
        """LangChain's PDF loaders count from 0, we from 1; a page 0 that is not announced stops."""
        assert self.of({"source": "a.pdf", "page": 0}, first_page=0).shown == "a.pdf#1"
        refused(
            r"page must be an integer from 1, got 0; pass first_page=0",
            self.of,
            {"source": "a.pdf", "page": 0},
        )

    def test_without_metadata(self):
        """Each passage is a document of its own."""
        assert self.of({}).page is None

    @pytest.mark.parametrize(
        ("metadata", "rule"),
        [
            ({"page": "iv"}, "page must be an integer from 1, got 'iv'"),
            ({"entities": 3}, "entities must be .*got 3"),
        ],
    )
    def test_what_is_something_else(self, metadata, rule):
        """Stops, and names the key."""
        refused(rule, self.of, metadata)


class TestScope:
    """Documents that a case names."""

    NAMED = Case("z", "excess", "ok", selected_sources=("home.md",))

    def test_hits_from_elsewhere(self):
        """Stop, since the trace would say that the search was scoped."""
        refused(
            r"langchain, id z: hits must be of the .*, got 'docs/motor.md#1'",
            hits_frame,
            Scored([0.9, 0.8, 0.7]),
            [self.NAMED],
            distance="cosine",
        )

    def test_a_filter_for_each_case(self):
        """The source gets it, and k and the query beside it."""
        source = Scored([0.9, 0.8, 0.7])

        def filtered(case):
            return {"filter": case.selected_sources[0]} if case.selected_sources else {}

        frame = hits_frame(source, [self.NAMED, CASES[0]], distance="cosine", k=9, search=filtered)
        assert frame["hit_id"].tolist() == ["home#1", "home#2", "home#1", "home#2", "motor#1"]
        assert source.asked == [
            {"query": "excess", "k": 9, "filter": "home.md"},
            {"query": "excess", "k": 9},
        ]


class TestDoor:
    """What comes in."""

    @pytest.mark.parametrize(
        ("source", "how", "rule"),
        [
            (Scored([]), {}, "must be stated; pass distance, one of cosine"),
            (Listed(documents=[]), {}, "a retriever gives none; pass embeddings"),
            (Listed(documents=[]), {"distance": "l2"}, "gives documents without scores"),
            ([], {"distance": "l2"}, "VectorStore or a BaseRetriever of langchain_core, got list"),
            (
                Scored([]),
                {"distance": "cosine", "embeddings": Words()},
                "leave out distance or embeddings",
            ),
        ],
    )
    def test_what_is_no_source_of_a_distance(self, source, how, rule):
        """Says what it must be; nothing is guessed or made up from a rank."""
        refused(rule, hits_frame, source, CASES, **how)

    def test_without_the_extra(self, store, monkeypatch):
        """Says what to install."""
        monkeypatch.setitem(sys.modules, "langchain_core.retrievers", None)
        with pytest.raises(ImportError, match=r'pip install "raglab-toolkit\[langgraph\]"'):
            hits_frame(store, CASES, distance="cosine")


@pytest.mark.filterwarnings("ignore:.*so the gates.*are off:UserWarning")
class TestScoresAlone:
    """Sources without a distance, whose scores become signals."""

    def test_of_the_metadata(self):
        """A retriever's documents carry 0.75, 0.5 and nothing.

        The case has that of the first, and a gate reads it.
        """
        listed = Listed(documents=list(DOCUMENTS))
        with pytest.warns(UserWarning, match=r"langchain: .* the gates l2, .* are off; gate"):
            trace = trace_from_langchain(listed, CASES, signals=RELEVANCE)
        assert trace.signal("relevance").tolist() == [0.75] * 3
        assert trace.meta["gates_off"] == ["l2", "density", "gap", "similarity", "confidence"]
        for bound, status in ((0.75, "ok"), (0.8, "refuse")):
            policy = PolicyData.from_mapping({"signals": {"relevance": {"min": bound}}})
            assert set(decide(trace, policy).frame()["status"]) == {status}
        other = trace_from_langchain(Listed(documents=[DOCUMENTS[2]]), CASES[:1], signals=RELEVANCE)
        assert np.isnan(other.signal("relevance")).all()

    def test_of_the_store(self):
        """What a store says beside a document is taken as it is, in the order of the store."""
        signals = {"store": {"column": STORE_SCORE, "higher": "surer", "unit": "points"}}
        trace = trace_from_langchain(Scored([9.0, 5.0, 7.0]), CASES[:1], signals=signals)
        assert trace.signal("store").tolist() == [9.0]
        assert [trace.chunks[n].chunk_id for n in trace.hits.chunk[0, 0, 0]] == [
            "home#1",
            "home#2",
            "motor#1",
        ]

    def test_beside_a_distance(self, store):
        """A score of the metadata stands beside the cosines, and no gate is off."""
        trace = trace_from_langchain(store, CASES[:1], distance="cosine", signals=RELEVANCE)
        assert trace.signal("relevance").tolist() == [0.75]
        assert "gates_off" not in trace.meta

    def test_without_labels(self, store):
        """Questions that nobody labelled are decided."""
        cases = [Case("a", "excess"), Case("b", "tea")]
        trace = trace_from_langchain(store, cases, distance="cosine")
        assert decide(trace, NEAR).frame()["status"].tolist() == ["ok", "refuse"]

    @pytest.mark.parametrize(
        ("score", "rule"),
        [
            ("high", "a store's score must be a number, got 'high'"),
            (float("inf"), "row 0, column relevance: relevance must be a number from 0 to 1"),
        ],
    )
    def test_what_is_no_score(self, score, rule):
        """A text and infinity stop, and are named."""
        document = Document(id="x", page_content="x", metadata={"score": score})
        listed = Listed(documents=[document])
        refused(rule, trace_from_langchain, listed, CASES[:1], signals=RELEVANCE)

    def test_a_store_s_score_beside_a_distance(self, store):
        """It is the distance itself."""
        rule = "store_score must be .* is not stated, got distance='cosine'"
        scores = {"mine": STORE_SCORE}
        refused(rule, hits_frame, store, CASES, distance="cosine", scores=scores)
