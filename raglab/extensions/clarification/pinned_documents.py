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

ANY_DOCTYPE = "any"  # doctype of documents of several kinds, or of none
NEAREST_HITS = 8  # passages nearest to a question
MAX_AROUND = 200  # passages that are read of documents that no question names
MIN_NAME_LETTERS = 4  # letters of a word that names a document


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
        chunk_positions = question_scopes(self.chunks, [documents])[0]
        chunks = (
            ()
            if chunk_positions is None
            else tuple(self.chunks[int(chunk_position)] for chunk_position in chunk_positions)
        )

        def values(tag: str) -> set[str]:
            return {chunk.tags.get(tag, "") for chunk in chunks}

        condition_values = {
            "page_1_kind": {
                self._kind(condition_name)
                for condition_name in {chunk.document for chunk in chunks}
            },
            "language": values("lang"),
            "vendor": values("vendor"),
        }
        conditions = {
            condition_name: distinct_values.pop()
            for condition_name, distinct_values in condition_values.items()
            if len(distinct_values) == 1 and "" not in distinct_values
        }
        doctypes = values("doc_type") - {""}
        return PinnedDocuments(
            chunks, doctypes.pop() if len(doctypes) == 1 else ANY_DOCTYPE, conditions
        )

    def _kind(self, name: str) -> str:
        """The learned column `page_1_kind` of a document; '' where it has no page 1."""
        if name not in self._kinds:
            first_page = [
                chunk for chunk in self.chunks if chunk.page == 1 and chunk.document == name
            ]
            self._kinds[name] = page_kind(first_page, pack=self.pack) if first_page else ""
        return self._kinds[name]

    def named(self, question: str, most: int, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Documents whose product, vendor, client or file a question names, at most so many.

        () where it names none, or all of them.

        Args:
          among: the documents that may be named; all where none is given.
        """
        plain_question = plain(question)
        letters_by_document = {
            document_name: sum(
                len(document_word)
                for document_word in document_words
                if re.search(rf"(?<!\w){re.escape(document_word)}(?:'?s)?(?!\w)", plain_question)
            )
            for document_name, document_words in self._names.items()
            if not among or document_name in among
        }
        most_letters = max(letters_by_document.values(), default=0)
        documents = tuple(
            document_name
            for document_name, n_letters in letters_by_document.items()
            if n_letters == most_letters > 0
        )
        return (
            documents
            if len(documents) <= most and len(documents) < len(letters_by_document)
            else ()
        )

    @cached_property
    def _names(self) -> dict[str, set[str]]:
        """Words and whole names that few documents are called by, by document."""
        terms_by_document = {chunk.document: _called(chunk) for chunk in self.chunks}
        document_counts = Counter(
            document_word
            for document_terms in terms_by_document.values()
            for document_word in document_terms
        )
        small_words = {
            plain(document_word)
            for chunk in self.chunks
            for document_word in re.findall(r"(?<!\w)[a-zà-ÿ]{4,}", chunk.text)
        }
        common_words = small_words.union(
            document_word
            for document_word in document_counts
            if document_counts[document_word] > max(2, len(terms_by_document) // 4)
        )
        return {
            document_name: document_terms - common_words
            for document_name, document_terms in terms_by_document.items()
        }

    @cached_property
    def _places(self) -> dict[str, int]:
        return {
            chunk.chunk_id: chunk_position for chunk_position, chunk in enumerate(self.ready.chunks)
        }

    def around(self, question: str) -> PinnedDocuments:
        """Documents of the passages nearest to a question, of which none is named."""
        nearest = self.nearest(question, self.chunks)
        pinned = self.pinned(tuple(dict.fromkeys(chunk.document for chunk in nearest)))
        near_ids = {chunk.chunk_id for chunk in self.nearest(question, pinned.chunks, MAX_AROUND)}
        return pinned._replace(
            chunks=tuple(chunk for chunk in pinned.chunks if chunk.chunk_id in near_ids)
        )

    def nearest(
        self, question: str, chunks: Sequence[Chunk], most: int = NEAREST_HITS
    ) -> tuple[Chunk, ...]:
        """Of some passages those nearest to a question by the index's encoder, nearest first."""
        indexed_chunks = [chunk for chunk in chunks if chunk.chunk_id in self._places]
        vector_positions = np.array(
            [self._places[chunk.chunk_id] for chunk in indexed_chunks], dtype=np.intp
        )
        cosines = (
            self.ready.indexes.vectors[vector_positions]
            @ embed_queries([question], self.ready.encoder, tokens=False).vectors[0]
        )
        nearest_first = np.argsort(-cosines, kind="stable")[:most]
        return tuple(indexed_chunks[int(chunk_position)] for chunk_position in nearest_first)


def _called(chunk: Chunk) -> set[str]:
    """What the document of a passage is called by its product, vendor, title and file."""
    tag_names = [
        value for tag_name in ("product", "vendor") if (value := chunk.tags.get(tag_name, ""))
    ]
    title_words = re.findall(
        r"(?<!^)(?<![.:—–-] )\b[A-ZÀ-Ý][\w'’-]{3,}", chunk.tags.get("title", "")
    )
    name_words = [*" ".join(tag_names).split(), *title_words, *re.split(r"[-_. ]", chunk.file_name)]
    long_words = (
        name_word
        for name_word in name_words
        if len(name_word) >= MIN_NAME_LETTERS and not name_word.isdigit()
    )
    return set(map(plain, (*tag_names, *long_words)))
