"""Labels across an upgrade (shore): which case labels mean the same in a new trace (S6.1, S6.3)."""

from __future__ import annotations

from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.decision.answer_text import gold_answers
from raglab.decision.document_names import (
    Meaning,
    case_sources,
    known_documents,
    source_meanings,
)
from raglab.decision.trace_view import TraceView
from raglab.replay import cases_by_shard, each_shard
from raglab.values import Case, TraceData, document_path
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
    sources = (
        tuple(sorted({*some}))
        for some in (case.expect_sources, case.expect_sources_any, gold_answers(case))
    )
    return (case.expect_status, case.expect_option, case.min_sources, *sources)


class KnownChunks(NamedTuple):
    """What one trace knows of its corpus, or of one part of it.

    documents: paths. paged: those of which some chunk has a page. texts: digest of the text of
    chunks that some label names, by their id.
    """

    documents: set[str]
    paged: set[str]
    texts: dict[str, str]


def label_validity(trace: TraceView, to: TraceView) -> NDArray[np.int8]:
    """Whether the labels of each case of `to` mean the same as in `trace`: `Validity`, [Q].

    The worst of a case's labels counts. A status stays valid, and so does a gold answer. A document
    stays valid where the new trace knows its path, or neither trace does, and is lost where several
    documents have its name; a page where the new trace knows pages of its document, and is lost
    where that has none; a chunk (where each chunk is a document of its own) where the new trace
    holds its id with the same text, and is lost where it has another. `min_sources` is uncertain,
    and so is `expect_option`, a position among the options shown. Where both traces state the same
    corpus, all but the option is valid.

    Args:
      trace: the questions with the hits that they were labelled for; in memory, or of shards.
      to: the same questions with other hits; in memory, or of shards.

    Source: rules S6.1, S6.3.
    """
    cases = list(chain.from_iterable(cases_by_shard(to)))
    corpora = [view.meta.get("corpus_hash") for view in (trace, to)]
    is_same_corpus = corpora[0] is not None and corpora[0] == corpora[1]
    sources = frozenset() if is_same_corpus else frozenset(chain(*map(case_sources, cases)))
    before, after = (_known_chunks(view, sources) for view in (trace, to))
    meanings = [source_meanings(sources, known.documents) for known in (before, after)]
    verdicts = {
        source: _source_validity(source, [of[source] for of in meanings], before, after)
        for source in sources
    }
    codes = []
    for case in cases:
        counted = bool(case.min_sources) and not is_same_corpus
        unsure = counted or case.expect_option is not None
        levels = (verdicts.get(source, Validity.valid) for source in case_sources(case))
        codes.append(max([Validity.uncertain if unsure else Validity.valid, *levels]))
    return np.array(codes, dtype=np.int8)


def _source_validity(
    source: str, meanings: list[Meaning], before: KnownChunks, after: KnownChunks
) -> Validity:
    """Whether a source of a label means the same."""
    name, (old, new) = document_path(source), meanings
    # each chunk is a document of its own
    if name in before.texts and old.documents == (name,):
        if name not in after.texts:
            return Validity.uncertain
        return Validity.valid if after.texts[name] == before.texts[name] else Validity.lost
    if len(new.documents) > 1:
        return Validity.lost
    if old.documents and old.documents != new.documents:
        return Validity.uncertain
    if (old.page or new.page) and not after.paged.issuperset(new.documents[:1] or [""]):
        return Validity.lost if new.documents else Validity.uncertain
    return Validity.valid


def _known_chunks(trace: TraceView, sources: frozenset[str]) -> KnownChunks:
    """What a trace knows; of shards one is in memory at a time."""
    named = frozenset(map(document_path, sources))
    parts = list(each_shard(shard_chunks, trace, named, what="read"))
    return KnownChunks(
        documents=set().union(*(part.documents for part in parts)),
        paged=set().union(*(part.paged for part in parts)),
        texts={name: text for part in parts for name, text in part.texts.items()},
    )


def shard_chunks(trace: TraceData, named: frozenset[str]) -> KnownChunks:
    """What one trace in memory knows; pure, so that any worker may read a shard.

    Args:
      named: by the labels of the cases.
    """
    return KnownChunks(
        documents=known_documents(trace),
        paged={chunk.document for chunk in trace.chunks if chunk.page_shown != NO_PAGE},
        texts={
            chunk.chunk_id: digest(chunk.text, 16)
            for chunk in trace.chunks
            if chunk.chunk_id in named
        },
    )
