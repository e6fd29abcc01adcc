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
from raglab.decision.document_names import case_sources, known_documents, source_meanings
from raglab.decision.trace_view import TraceView
from raglab.replay import cases_by_shard, each_shard
from raglab.values import Case, Hits, TraceData, document_path
from raglab.words.canonical import digest
from raglab.words.characters import plain_question
from raglab.words.results import Result, Summary

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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LabelValidity(Result):
    """Which labels of cases stay valid with other hits.

    Attributes:
      table: a row a kind of label: `kind`, `cases` that have such a label, `valid`, `uncertain` (it
        cannot be told from the trace, which holds only chunks that some question hit), `lost` (its
        name means another text or several documents, or its document has no pages now).
      doubtful: whether some label of a case is uncertain or lost, by the order of the new trace's
        cases, [Q].
      lost: whether some label of a case is lost, [Q].
    """

    table: pd.DataFrame
    doubtful: NDArray[np.bool_]
    lost: NDArray[np.bool_]

    def _summary(self) -> Summary:
        facts = [("cases", f"{len(self.lost):,}")]
        facts += [(name, f"{getattr(self, name).sum():,}") for name in ("doubtful", "lost")]
        return Summary(facts, {"labels": self.table})


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
    verdicts = _source_verdicts(sources, before, after, is_same_corpus=is_same_corpus)
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
    kinds = [kind for labels in by_case for kind in labels]
    levels = [level for labels in by_case for level in labels.values()]
    counts = pd.crosstab(np.array(kinds, dtype=object), np.array(levels, dtype=np.int64))
    counts = counts.reindex(columns=list(Validity), fill_value=0)
    counts.columns = pd.Index([level.name for level in Validity])
    shown = [kind for kind in KINDS if kind == "status" or kind in counts.index]
    counts = counts.reindex(index=shown, fill_value=0)
    counts.insert(0, "cases", counts.sum(axis=1))
    table = counts.rename_axis("kind").reset_index()
    doubtful = np.array([any(labels.values()) for labels in by_case], dtype=bool)
    lost = np.array([Validity.lost in labels.values() for labels in by_case], dtype=bool)
    return LabelValidity(table, doubtful, lost)


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
    sources: Sequence[str], before: KnownChunks, after: KnownChunks, *, is_same_corpus: bool
) -> dict[str, tuple[str, Validity]]:
    """Kind of each source of a label, and whether it means the same."""
    meanings = [source_meanings(sources, known.documents) for known in (before, after)]
    verdicts = {}
    for source in sources:
        name, old, new = document_path(source), *(of[source] for of in meanings)
        # each chunk is a document of its own
        if name in before.texts and old.documents == (name,):
            kind, text = "chunk", after.texts.get(name)
            changed = Validity.valid if text == before.texts[name] else Validity.lost
            level = Validity.uncertain if text is None else changed
        else:
            kind = "page" if old.page or new.page else "document"
            moved = old.documents and old.documents != new.documents
            level = Validity.uncertain if moved else Validity.valid
            if len(new.documents) > 1:
                level = Validity.lost
            elif level == Validity.valid and kind == "page":
                if not new.documents:
                    level = Validity.uncertain
                elif new.documents[0] not in after.paged:
                    level = Validity.lost
        verdicts[source] = (kind, Validity.valid if is_same_corpus else level)
    return verdicts


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
