"""A store of LangChain whose scores are stated."""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from raglab.values import Case

DOCUMENTS = (
    Document(
        id="home#1",
        page_content="excess",
        metadata={
            "source": "docs/home.md",
            "page": 1,
            "doc_type": "wording",
            "version": 2025,
            "score": 0.75,
        },
    ),
    Document(
        id="home#2",
        page_content="excess flood",
        metadata={"source": "docs/home.md", "page": 2, "score": 0.5},
    ),
    Document(
        id="motor#1",
        page_content="theft",
        metadata={"source": "docs/motor.md", "page": 1, "domain": "motor"},
    ),
)
CASES = (
    Case("a", "excess", "ok", ("home.md#1",), answer="£250", split="tune", min_sources=1),
    Case("b", "theft flood", "ambiguous", expect_option=2),
    Case("c", "tea", "refuse"),
)


class Scored(VectorStore):
    """A store whose scores are stated by the test."""

    def __init__(self, scores, documents=DOCUMENTS):
        self.pairs = list(zip(documents, scores, strict=False))
        self.asked: list[dict[str, Any]] = []

    def similarity_search(self, query, k=4, **kwargs):
        """Documents alone."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(
        self,
        query,
        k=4,
        **kwargs,
    ):
        """Documents and scores, those of one source where a filter names it."""
        self.asked.append({"query": query, "k": k, **kwargs})
        wanted = kwargs.get("filter")
        return [
            pair for pair in self.pairs if not wanted or pair[0].metadata["source"].endswith(wanted)
        ][:k]

    @classmethod
    def from_texts(cls, *args, **kwargs):  # type: ignore[override]
        """Not used."""
        raise NotImplementedError(args, kwargs)
