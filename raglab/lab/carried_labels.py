"""Labels across an upgrade (shore): which case labels mean the same in a new trace (S6.1, S6.3)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.decision.answer_text import gold_answers
from raglab.decision.document_names import Meaning, case_sources, known_documents, source_meanings
from raglab.decision.trace_view import TraceView
from raglab.replay import cases_by_shard, each_shard
from raglab.values import Case, Hits, TraceData, document_path
from raglab.words.canonical import digest
from raglab.words.characters import plain_question

if TYPE_CHECKING:
    import pandas as pd

KINDS = (
    "status",
    "answer",
    "document",
    "page",
    "chunk",
    "selected document",
    "number of sources",
    "option",
)
NO_PAGE = "n/a"  # page of a chunk that has none


class Validity(IntEnum):
    """Whether a label means the same in the new trace."""

    valid = 0
    uncertain = 1
    lost = 2


REASONS: Mapping[tuple[str, Validity], str] = {
    (
        "status",
        Validity.valid,
    ): "what to do with a question does not depend on how its hits are retrieved",
    ("answer", Validity.valid): "a gold answer is a text of its own",
    ("document", Validity.valid): "the new trace knows the path, or neither trace does",
    (
        "document",
        Validity.uncertain,
    ): "no question hits the path now, or it is gone, or the name means another path",
    ("document", Validity.lost): "several documents have the name",
    ("page", Validity.valid): "the new trace knows pages of the document",
    (
        "page",
        Validity.uncertain,
    ): "the new trace holds no chunk of the document, or the name means another path",
    (
        "page",
        Validity.lost,
    ): "the chunks of the document have no pages any more, or several documents have the name",
    ("chunk", Validity.valid): "the new trace holds the chunk, with the same text",
    ("chunk", Validity.uncertain): "no question hits the chunk now, or it is gone",
    ("chunk", Validity.lost): "the chunk of this name has another text",
    ("selected document", Validity.valid): "the new trace knows the path, or neither trace does",
    (
        "selected document",
        Validity.uncertain,
    ): "no question hits the path now, or it is gone, or it moved",
    ("selected document", Validity.lost): "several documents have the name",
    ("number of sources", Validity.valid): "the corpus is the same",
    (
        "number of sources",
        Validity.uncertain,
    ): "it counts different pages, which other chunks may have",
    ("option", Validity.valid): "the hits of the question are the same",
    (
        "option",
        Validity.uncertain,
    ): "it is a position among the options shown, which other hits may change",
}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LabelValidity:
    """Which labels of cases stay valid with other hits.

    Attributes:
      table: a row a kind of label: `kind`, `cases` that have such a label, `valid`, `uncertain` (it
        cannot be told from the trace, which holds only chunks that some question hit), `lost`,
        `why`.
      doubtful: whether some label of a case is uncertain or lost, by the order of the new trace's
        cases, [Q].
      lost: whether some label of a case is lost, [Q].
    """

    table: pd.DataFrame
    doubtful: NDArray[np.bool_]
    lost: NDArray[np.bool_]

    def __repr__(self) -> str:
        return (
            f"LabelValidity({int(self.doubtful.sum()):,} of {len(self.doubtful):,} cases with a "
            "doubtful label)"
        )

    def frame(self) -> pd.DataFrame:
        """The table, a row a kind of label."""
        return self.table.copy()


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
    chunks that some label names, by their id. hits: question and digest of the hits of each case
    whose label is a position among options, by its id.
    """

    documents: set[str]
    paged: set[str]
    texts: dict[str, str]
    hits: dict[str, tuple[str, str]]


def label_validity(trace: TraceView, to: TraceView) -> LabelValidity:
    """Which labels of the cases of `to` mean the same as in `trace`.

    A status stays valid, and so does a gold answer. A document stays valid where the new trace
    knows its path, or neither trace does; a page where the new trace knows pages of its document; a
    chunk (where each chunk is a document of its own) where the new trace holds its id with the same
    text. `expect_option` is a position among the options shown, so it is uncertain unless the hits
    of the question are the same. Where both traces state the same corpus, everything about
    documents, pages and chunks is valid.

    Args:
      trace: the questions with the hits that they were labelled for; in memory, or of shards.
      to: the same questions with other hits; in memory, or of shards.

    Source: rules S6.1, S6.3.
    """
    import pandas as pd

    cases = list(chain.from_iterable(cases_by_shard(to)))
    sources = sorted({source for case in cases for source in case_sources(case)})
    before, after = (_known_chunks(view, sources) for view in (trace, to))
    is_same_corpus = trace.meta.get("corpus_hash") is not None and (
        trace.meta.get("corpus_hash") == to.meta.get("corpus_hash")
    )
    verdicts = _source_verdicts(sources, before, after)
    if is_same_corpus:
        verdicts = {source: (kind, Validity.valid) for source, (kind, _) in verdicts.items()}
    # A case is known by its id, else by its question.
    by_question = dict(before.hits.values())
    kept_hits = {
        case_id
        for case_id, (question, hashed) in after.hits.items()
        if before.hits.get(case_id) == (question, hashed)
        or (before.hits.get(case_id, ("",))[0] != question and by_question.get(question) == hashed)
    }
    by_case = [
        _case_labels(case, verdicts, kept_hits, is_same_corpus=is_same_corpus) for case in cases
    ]
    rows = []
    for kind in KINDS:
        levels = [labels[kind] for labels in by_case if kind in labels]
        if not levels and kind != "status":
            continue
        counts = [levels.count(level) for level in Validity]
        reasons = [REASONS[kind, level] for level in reversed(Validity) if level in levels]
        rows.append((kind, len(levels), *counts, "; ".join(reasons)))
    columns = ["kind", "cases", "valid", "uncertain", "lost", "why"]
    doubtful = np.array([any(labels.values()) for labels in by_case], dtype=bool)
    lost = np.array([Validity.lost in labels.values() for labels in by_case], dtype=bool)
    return LabelValidity(pd.DataFrame(rows, columns=columns), doubtful, lost)


def _case_labels(
    case: Case,
    verdicts: Mapping[str, tuple[str, Validity]],
    kept_hits: set[str],
    *,
    is_same_corpus: bool,
) -> dict[str, Validity]:
    """Worst validity of each kind of label that a case has."""
    labels: dict[str, Validity] = {}
    if case.expect_status is not None:
        labels["status"] = Validity.valid
    if gold_answers(case):
        labels["answer"] = Validity.valid
    for source in (*case.expect_sources, *case.expect_sources_any):
        kind, validity = verdicts[source]
        labels[kind] = max(validity, labels.get(kind, Validity.valid))
    if case.selected_sources:
        labels["selected document"] = max(verdicts[source][1] for source in case.selected_sources)
    if case.min_sources:
        labels["number of sources"] = Validity.valid if is_same_corpus else Validity.uncertain
    if case.expect_option is not None:
        labels["option"] = Validity.valid if case.id in kept_hits else Validity.uncertain
    return labels


def _source_verdicts(
    sources: Sequence[str], before: KnownChunks, after: KnownChunks
) -> dict[str, tuple[str, Validity]]:
    """Kind of each source of a label, and whether it means the same."""
    old, new = (source_meanings(sources, known.documents) for known in (before, after))
    verdicts = {}
    for source in sources:
        name = document_path(source)
        # each chunk is a document of its own
        if name in before.texts and old[source].documents == (name,):
            text = after.texts.get(name)
            level = (
                Validity.uncertain if text is None else Validity(2 * (text != before.texts[name]))
            )
            verdicts[source] = ("chunk", level)
            continue
        level = _document_validity(old[source], new[source])
        if old[source].page or new[source].page:
            kind, document = "page", new[source].documents
            if level == Validity.valid:
                unpaged = Validity.lost if document else Validity.uncertain
                level = Validity.valid if document and document[0] in after.paged else unpaged
        else:
            kind = "document"
        verdicts[source] = (kind, level)
    return verdicts


def _document_validity(old: Meaning, new: Meaning) -> Validity:
    """Whether the name of a document means the same document."""
    if len(new.documents) > 1:
        return Validity.lost
    return (
        Validity.uncertain if old.documents and old.documents != new.documents else Validity.valid
    )


def _known_chunks(trace: TraceView, names: Iterable[str]) -> KnownChunks:
    """What a trace knows; of shards one is in memory at a time."""
    named = frozenset(map(document_path, names))
    parts = list(each_shard(shard_chunks, trace, named, what="read"))
    return KnownChunks(
        documents=set().union(*(part.documents for part in parts)),
        paged=set().union(*(part.paged for part in parts)),
        texts={name: text for part in parts for name, text in part.texts.items()},
        hits={name: known for part in parts for name, known in part.hits.items()},
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
        hits={
            case.id: (plain_question(case.query), _hits_digest(trace, row))
            for row, case in enumerate(trace.cases)
            if case.expect_option is not None
        },
    )


def _hits_digest(trace: TraceData, row: int) -> str:
    """Digest of the hits of a case.

    Which chunks, by their ids, in which order and with which scores.
    """
    places = trace.hits.chunk[row].ravel().tolist()
    ids = [trace.chunks[place].chunk_id if place >= 0 else None for place in places]
    fields: Iterable[Any] = (
        field for name, field in zip(Hits._fields, trace.hits, strict=True) if name != "chunk"
    )
    numbers = [
        np.nan_to_num(np.asarray(field[row], dtype=np.float64), nan=-1e9).ravel().tolist()
        for field in fields
    ]
    return digest(json.dumps([ids, numbers]), 16)
