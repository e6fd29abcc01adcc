"""Labels across an upgrade (shore): which case labels mean the same in a new trace (S6.1, S6.3)."""

from __future__ import annotations

from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from raglab.decision.answer_text import gold_answers
from raglab.decision.document_names import (
    Meaning,
    case_sources,
    known_documents,
    source_meanings,
)
from raglab.decision.trace_view import TraceView
from raglab.replay import cases_by_shard, each_shard
from raglab.values import Case, CodeArray, TraceData, document_path
from raglab.words.canonical import digest

NO_PAGE = "n/a"  # page of a chunk that has none


class Validity(IntEnum):
    """Whether a label means the same in the new trace."""

    valid = 0
    uncertain = 1
    lost = 2


def label_key(case: Case) -> tuple[Any, ...]:
    """What a case is judged by (rule S6.3).

    Equal where no order or repeat of sources and answers differs.
    """
    source_sets = (
        tuple(sorted({*names}))
        for names in (case.expect_sources, case.expect_sources_any, gold_answers(case))
    )
    return (case.expect_status, case.expect_option, case.min_sources, *source_sets)


class KnownChunks(NamedTuple):
    """What one trace knows of its corpus, or of one part of it.

    documents: paths. paged: those of which some chunk has a page. texts: digest of the text of
    chunks that some label names, by their id.
    """

    documents: set[str]
    paged: set[str]
    texts: dict[str, str]


def label_validity(trace: TraceView, new_trace: TraceView) -> CodeArray:
    """Whether the labels of each case of `new_trace` mean the same as in `trace`: `Validity`, [Q].

    The worst of a case's labels counts. A status stays valid, and so does a gold answer. A document
    stays valid where the new trace knows its path, or neither trace does, and is lost where several
    documents have its name; a page where the new trace knows pages of its document, and is lost
    where that has none; a chunk (where each chunk is a document of its own) where the new trace
    holds its id with the same text, and is lost where it has another. `min_sources` is uncertain,
    and so is `expect_option`, a position among the options shown. Where both traces state the same
    corpus, all but the option is valid.

    Args:
      trace: the questions with the hits that they were labelled for; in memory, or of shards.
      new_trace: the same questions with other hits; in memory, or of shards.

    Source: rules S6.1, S6.3.
    """
    cases = list(chain.from_iterable(cases_by_shard(new_trace)))
    corpus_hashes = [trace_view.meta.get("corpus_hash") for trace_view in (trace, new_trace)]
    is_same_corpus = corpus_hashes[0] is not None and corpus_hashes[0] == corpus_hashes[1]
    label_sources = frozenset() if is_same_corpus else frozenset(chain(*map(case_sources, cases)))
    old_chunks, new_chunks = (
        _known_chunks(trace_view, label_sources) for trace_view in (trace, new_trace)
    )
    meanings_by_trace = [
        source_meanings(label_sources, known_chunks.documents)
        for known_chunks in (old_chunks, new_chunks)
    ]
    validity_of_source = {
        label_source: _source_validity(
            label_source,
            [trace_meanings[label_source] for trace_meanings in meanings_by_trace],
            old_chunks,
            new_chunks,
        )
        for label_source in label_sources
    }
    validity_codes = []
    for case in cases:
        is_counted = bool(case.min_sources) and not is_same_corpus
        is_unsure = is_counted or case.expect_option is not None
        source_levels = (
            validity_of_source.get(label_source, Validity.valid)
            for label_source in case_sources(case)
        )
        validity_codes.append(
            max([Validity.uncertain if is_unsure else Validity.valid, *source_levels])
        )
    return np.array(validity_codes, dtype=np.int8)


def _source_validity(
    label_source: str,
    trace_meanings: list[Meaning],
    old_chunks: KnownChunks,
    new_chunks: KnownChunks,
) -> Validity:
    """Whether a source of a label means the same."""
    document_name, (old_meaning, new_meaning) = document_path(label_source), trace_meanings
    # each chunk is a document of its own
    if document_name in old_chunks.texts and old_meaning.documents == (document_name,):
        if document_name not in new_chunks.texts:
            return Validity.uncertain
        return (
            Validity.valid
            if new_chunks.texts[document_name] == old_chunks.texts[document_name]
            else Validity.lost
        )
    if len(new_meaning.documents) > 1:
        return Validity.lost
    if old_meaning.documents and old_meaning.documents != new_meaning.documents:
        return Validity.uncertain
    if (old_meaning.page or new_meaning.page) and not new_chunks.paged.issuperset(
        new_meaning.documents[:1] or [""]
    ):
        return Validity.lost if new_meaning.documents else Validity.uncertain
    return Validity.valid


def _known_chunks(trace: TraceView, label_sources: frozenset[str]) -> KnownChunks:
    """What a trace knows; of shards one is in memory at a time."""
    named_documents = frozenset(map(document_path, label_sources))
    shard_parts = list(each_shard(shard_chunks, trace, named_documents, what="read"))
    return KnownChunks(
        documents=set().union(*(shard_part.documents for shard_part in shard_parts)),
        paged=set().union(*(shard_part.paged for shard_part in shard_parts)),
        texts={
            chunk_id: text_digest
            for shard_part in shard_parts
            for chunk_id, text_digest in shard_part.texts.items()
        },
    )


def shard_chunks(trace: TraceData, named_documents: frozenset[str]) -> KnownChunks:
    """What one trace in memory knows; pure, so that any worker may read a shard.

    Args:
      named_documents: by the labels of the cases.
    """
    return KnownChunks(
        documents=known_documents(trace),
        paged={chunk.document for chunk in trace.chunks if chunk.page_shown != NO_PAGE},
        texts={
            chunk.chunk_id: digest(chunk.text, 16)
            for chunk in trace.chunks
            if chunk.chunk_id in named_documents
        },
    )
