"""Pinned documents (shore): those a question is asked of, named by the user or its words (S5.7)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from raglab.extensions.clarification.contents import page_kind
from raglab.extensions.clarification.language_words import plain
from raglab.live.retriever import Retriever, question_scopes
from raglab.retrieval.indexes import embed_queries
from raglab.values import Chunk
from raglab.words.packs import Pack

# conditions that a default may be split by (rule S5.6)
COLUMNS = ("page_1_kind", "language", "vendor")
ANY = "any"  # doctype of documents of several kinds, or of none
HITS = 8  # passages nearest to a question
AROUND = 200  # passages that are read of documents that no question names
LEAST_NAME = 4  # letters of a word that names a document


class PinnedDocuments(NamedTuple):
    """Documents of a question.

    Their passages, their kind, and the conditions that they are under.
    """

    chunks: tuple[Chunk, ...]
    doctype: str
    conditions: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
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
    _names: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    _places: dict[str, int] = field(default_factory=dict, repr=False)

    def pinned(self, documents: Sequence[str]) -> PinnedDocuments:
        """Documents that a request names, `path` or `path#page`.

        A condition on which they differ says nothing of them and is left out.

        Raises:
          ValueError: a name of which the corpus has no document.
        """
        places = question_scopes(self.chunks, [documents])[0]
        chunks = () if places is None else tuple(self.chunks[int(place)] for place in places)
        files = list(dict.fromkeys(chunk.document for chunk in chunks))
        columns = {
            "page_1_kind": {self._kind(name) for name in files},
            "language": {chunk.tags.get("lang", "") for chunk in chunks},
            "vendor": {chunk.tags.get("vendor", "") for chunk in chunks},
        }
        conditions = {
            name: next(iter(values))
            for name in COLUMNS
            if len(values := columns[name]) == 1 and "" not in values
        }
        doctypes = {chunk.tags.get("doc_type", "") for chunk in chunks} - {""}
        return PinnedDocuments(chunks, doctypes.pop() if len(doctypes) == 1 else ANY, conditions)

    def _kind(self, name: str) -> str:
        """The learned column `page_1_kind` of a document; '' where it has no page 1."""
        if name not in self._kinds:
            first = [chunk for chunk in self.chunks if chunk.page == 1 and chunk.document == name]
            self._kinds[name] = page_kind(first, pack=self.pack).kind if first else ""
        return self._kinds[name]

    def named(self, question: str, most: int, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Documents whose product, vendor, client or file a question names, at most so many.

        () where it names none.

        Args:
          among: the documents that may be named; all where none is given.
        """
        text = plain(question)
        names = {
            name: owned
            for name, owned in self._document_names().items()
            if not among or name in among
        }
        matches = {
            name: {
                own for own in owned if re.search(rf"(?<!\w){re.escape(own)}(?:'?s)?(?!\w)", text)
            }
            for name, owned in names.items()
        }
        best = max((sum(map(len, words)) for words in matches.values()), default=0)
        documents = tuple(
            name for name, words in matches.items() if best and sum(map(len, words)) == best
        )
        return documents if 0 < len(documents) <= most and len(documents) < len(names) else ()

    def _document_names(self) -> Mapping[str, frozenset[str]]:
        """Words and whole names that few documents are called by, by document."""
        if not self._names:
            own: dict[str, set[str]] = {}
            for chunk in self.chunks:
                terms = own.setdefault(chunk.document, set())
                if not terms:
                    names = [chunk.tags.get(tag, "") for tag in ("product", "vendor")]
                    title = re.findall(
                        r"(?<!^)(?<![.:—–-] )\b[A-ZÀ-Ý][\w'’-]{3,}", chunk.tags.get("title", "")
                    )
                    words = (
                        [word for name in names for word in name.split()]
                        + title
                        + re.split(r"[-_. ]", chunk.file_name)
                    )
                    terms.update(plain(name) for name in names if name)
                    terms.update(
                        plain(word)
                        for word in words
                        if len(word) >= LEAST_NAME and not word.isdigit()
                    )
            count: dict[str, int] = {}
            for terms in own.values():
                for word in terms:
                    count[word] = count.get(word, 0) + 1
            rare = max(2, len(own) // 4)
            small = {
                plain(word)
                for chunk in self.chunks
                for word in re.findall(r"(?<!\w)[a-zà-ÿ]{4,}", chunk.text)
            }
            self._names.update(
                {
                    name: frozenset(
                        word for word in terms if count[word] <= rare and word not in small
                    )
                    for name, terms in own.items()
                }
            )
        return self._names

    def around(self, question: str) -> PinnedDocuments:
        """Documents of the passages nearest to a question, of which none is named."""
        nearest = self.nearest(question, self.chunks)
        pinned = self.pinned(tuple(dict.fromkeys(chunk.document for chunk in nearest)))
        if len(pinned.chunks) <= AROUND:
            return pinned
        near = {chunk.chunk_id for chunk in self.nearest(question, pinned.chunks, AROUND)}
        return pinned._replace(
            chunks=tuple(chunk for chunk in pinned.chunks if chunk.chunk_id in near)
        )

    def nearest(
        self, question: str, chunks: Sequence[Chunk], most: int = HITS
    ) -> tuple[Chunk, ...]:
        """Of some passages those nearest to a question by the index's encoder, nearest first."""
        vectors, place = self.ready.indexes.vectors, self._places
        if not place:
            place.update((chunk.chunk_id, at) for at, chunk in enumerate(self.ready.chunks))
        there = [(chunk, place[chunk.chunk_id]) for chunk in chunks if chunk.chunk_id in place]
        if not there:
            return ()
        own = vectors[np.array([at for _, at in there])]
        question_vector = embed_queries([question], self.ready.encoder, tokens=False).vectors[0]
        order = np.argsort(-(own @ question_vector), kind="stable")[:most]
        return tuple(there[int(at)][0] for at in order)
