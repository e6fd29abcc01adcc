"""Pinned documents (shore): those a question is asked of, named by the user or its words (S5.7)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from raglab.extensions.clarification.contents import page_kind
from raglab.extensions.clarification.language_words import plain
from raglab.live.retriever import Retriever, question_scopes
from raglab.retrieval.indexes import embed_queries
from raglab.values import Chunk
from raglab.words.packs import Pack

ANY = "any"  # doctype of documents of several kinds, or of none
HITS = 8  # passages nearest to a question
AROUND = 200  # passages that are read of documents that no question names
LEAST_NAME = 4  # letters of a word that names a document


class PinnedDocuments(NamedTuple):
    """Documents of a question.

    Their passages, their kind, and the conditions that they are under, by which a default may be
    split (rule S5.6).
    """

    chunks: tuple[Chunk, ...]
    doctype: str
    conditions: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class DocumentIndex:
    """The documents of an index, as questions name them and as they lie near to them.

    Attributes:
      chunks: chunks of the corpus, without the rows of its tables.
      ready: the index, with its encoder.
      pack: the classifier of `page_1_kind`.
    """

    chunks: tuple[Chunk, ...] = field(repr=False)
    ready: Retriever = field(repr=False)
    pack: Pack = field(repr=False)
    _kinds: dict[str, str] = field(default_factory=dict, repr=False)

    def pinned(self, documents: Sequence[str]) -> PinnedDocuments:
        """Documents that a request names, `path` or `path#page`.

        A condition on which they differ says nothing of them and is left out.

        Raises:
          ValueError: a name of which the corpus has no document.
        """
        places = question_scopes(self.chunks, [documents])[0]
        chunks = () if places is None else tuple(self.chunks[int(place)] for place in places)

        def values(tag: str) -> set[str]:
            return {chunk.tags.get(tag, "") for chunk in chunks}

        columns = {
            "page_1_kind": {self._kind(name) for name in {chunk.document for chunk in chunks}},
            "language": values("lang"),
            "vendor": values("vendor"),
        }
        conditions = {
            name: column.pop()
            for name, column in columns.items()
            if len(column) == 1 and "" not in column
        }
        doctypes = values("doc_type") - {""}
        return PinnedDocuments(chunks, doctypes.pop() if len(doctypes) == 1 else ANY, conditions)

    def _kind(self, name: str) -> str:
        """The learned column `page_1_kind` of a document; '' where it has no page 1."""
        if name not in self._kinds:
            first = [chunk for chunk in self.chunks if chunk.page == 1 and chunk.document == name]
            self._kinds[name] = page_kind(first, pack=self.pack) if first else ""
        return self._kinds[name]

    def named(self, question: str, most: int, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Documents whose product, vendor, client or file a question names, at most so many.

        () where it names none, or all of them.

        Args:
          among: the documents that may be named; all where none is given.
        """
        text = plain(question)
        letters = {
            name: sum(
                len(own)
                for own in owned
                if re.search(rf"(?<!\w){re.escape(own)}(?:'?s)?(?!\w)", text)
            )
            for name, owned in self._names.items()
            if not among or name in among
        }
        best = max(letters.values(), default=0)
        documents = tuple(name for name, length in letters.items() if length == best > 0)
        return documents if len(documents) <= most and len(documents) < len(letters) else ()

    @cached_property
    def _names(self) -> dict[str, set[str]]:
        """Words and whole names that few documents are called by, by document."""
        terms = {chunk.document: _called(chunk) for chunk in self.chunks}
        count = Counter(word for called in terms.values() for word in called)
        small = {
            plain(word)
            for chunk in self.chunks
            for word in re.findall(r"(?<!\w)[a-zà-ÿ]{4,}", chunk.text)
        }
        common = small.union(word for word in count if count[word] > max(2, len(terms) // 4))
        return {name: called - common for name, called in terms.items()}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {chunk.chunk_id: at for at, chunk in enumerate(self.ready.chunks)}

    def around(self, question: str) -> PinnedDocuments:
        """Documents of the passages nearest to a question, of which none is named."""
        nearest = self.nearest(question, self.chunks)
        pinned = self.pinned(tuple(dict.fromkeys(chunk.document for chunk in nearest)))
        near = {chunk.chunk_id for chunk in self.nearest(question, pinned.chunks, AROUND)}
        return pinned._replace(
            chunks=tuple(chunk for chunk in pinned.chunks if chunk.chunk_id in near)
        )

    def nearest(
        self, question: str, chunks: Sequence[Chunk], most: int = HITS
    ) -> tuple[Chunk, ...]:
        """Of some passages those nearest to a question by the index's encoder, nearest first."""
        indexed = [chunk for chunk in chunks if chunk.chunk_id in self._places]
        places = np.array([self._places[chunk.chunk_id] for chunk in indexed], dtype=np.intp)
        cosines = (
            self.ready.indexes.vectors[places]
            @ embed_queries([question], self.ready.encoder, tokens=False).vectors[0]
        )
        order = np.argsort(-cosines, kind="stable")[:most]
        return tuple(indexed[int(at)] for at in order)


def _called(chunk: Chunk) -> set[str]:
    """What the document of a passage is called by its product, vendor, title and file."""
    names = [name for tag in ("product", "vendor") if (name := chunk.tags.get(tag, ""))]
    title = re.findall(r"(?<!^)(?<![.:—–-] )\b[A-ZÀ-Ý][\w'’-]{3,}", chunk.tags.get("title", ""))
    words = [*" ".join(names).split(), *title, *re.split(r"[-_. ]", chunk.file_name)]
    long = (word for word in words if len(word) >= LEAST_NAME and not word.isdigit())
    return set(map(plain, (*names, *long)))
