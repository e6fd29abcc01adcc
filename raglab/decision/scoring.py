"""Scoring (algebra): cases scored by status alone, and the sentence that says so (S6.1, S6.3)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import Basis, judged_cases, may_be_judged
from raglab.decision.document_names import (
    chunk_sources,
    known_documents,
    misspelt_sources,
    source_meanings,
)
from raglab.decision.trace_view import (
    TracePart,
    TraceView,
    failed_note,
    failed_sentence,
    once,
    trace_parts,
)
from raglab.values import BoolArray, Case, TraceData

if TYPE_CHECKING:
    import pandas as pd

_LENGTH = 80  # characters of a source that a note shows


def status_only(cases: Iterable[Case]) -> BoolArray:
    """Whether each case is labelled ok and states no sources, so any answer is correct, [Q].

    A case states sources by `expect_sources`, `expect_sources_any` or `min_sources`.
    """
    return np.array(
        [case.expect_status == "ok" and not (_expects(case) or case.min_sources) for case in cases],
        dtype=bool,
    )


def trace_status_only(trace: TraceView) -> BoolArray:
    """Which cases of a trace are scored by status alone, [Q].

    `status_only`, and no recorded answer is judged by text.

    The hits of a part on disk are loaded only where some case may be judged by text.
    """
    parts = [
        once(part, "status only", partial(_part_status_only, part)) for part in trace_parts(trace)
    ]
    return np.concatenate(parts)


def _part_status_only(part: TracePart) -> BoolArray:
    cases = part.cases
    alone = status_only(cases)
    return alone & ~judged_cases(part.loaded()) if (alone & may_be_judged(cases)).any() else alone


def trace_basis(trace: TraceView) -> Basis:
    """Basis on which the cases of a trace are judged.

    Hits of a part are loaded only where an answer may be judged.
    """
    return Basis.joined(
        once(part, "basis", partial(_part_basis, part)) for part in trace_parts(trace)
    )


def _part_basis(part: TracePart) -> Basis:
    if may_be_judged(part.cases).any():
        return Basis.of(part.loaded())
    return Basis(0, sum(case.expect_status == "ok" for case in part.cases))


def status_only_sentence(count: int, cases: int) -> str:
    """Headline of a result some of whose cases are scored by status alone; '' where there are none.

    Example:
      >>> status_only_sentence(41, 60)
      '41 of 60 cases are scored by status alone'
    """
    return (
        f"{count:,} of {cases:,} cases {'is' if count == 1 else 'are'} scored by status alone"
        if count
        else ""
    )


def status_only_note(alone: BoolArray) -> str:
    """The sentence about cases, [Q], with the reason.

    '' where every case labelled ok states sources.
    """
    sentence = status_only_sentence(int(alone.sum()), len(alone))
    return (
        f"{sentence}: labelled ok without sources, they count any answer as correct (S6.3)."
        if sentence
        else ""
    )


def headline_sentence(alone: int, cases: int, failed: int = 0) -> str:
    """Headline of a result: cases that are left out, and those scored by status alone.

    Args:
      alone: cases scored by status alone.
      cases: those that the result is of.
      failed: cases left out, since a call failed.
    """
    sentences = (failed_sentence(failed, cases), status_only_sentence(alone, cases))
    return "; ".join(filter(None, sentences))


def headline_note(trace: TraceView, alone: BoolArray | None = None) -> str:
    """The same as a note on the cases of a trace, with the reason.

    Args:
      alone: whether each case is scored by status alone, [Q]; asked of the trace where not given.
    """
    note = status_only_note(trace_status_only(trace) if alone is None else alone)
    return " ".join(filter(None, (failed_note(trace), note)))


class UnretrievedCases(NamedTuple):
    """Cases labelled ok of which no hit of an arm, at any depth, has the sources that they expect.

    lacking: each with the first source that it lacks. n_sourced: cases labelled ok that are judged
    by sources. documents: those of the hits, where a case lacks any.
    """

    lacking: tuple[tuple[Case, str], ...] = ()
    n_sourced: int = 0
    documents: frozenset[str] = frozenset()


def unretrieved_count(trace: TraceView, arm: str | None = None) -> int:
    """How many cases labelled ok expect sources that no hit of an arm has."""
    return sum(len(part.lacking) for part in _unretrieved_parts(trace, arm))


def _unretrieved_parts(trace: TraceView, arm: str | None) -> list[UnretrievedCases]:
    return [
        once(part, f"unretrieved {arm}", partial(_part_unretrieved, part, arm))
        for part in trace_parts(trace)
    ]


def unretrieved_note(trace: TraceView, arm: str | None = None) -> str:
    """How many cases labelled ok no policy can answer right, since no hit has their sources.

    '' where there are none.

    A trace knows the documents of its hits alone, so nothing is claimed of the corpus.

    Source: rules S6.1, S6.3.
    """
    parts = _unretrieved_parts(trace, arm)
    lacking = [pair for part in parts for pair in part.lacking]
    if not lacking:
        return ""
    # By id, so that the note names the same cases in whatever order they stand.
    lacking.sort(key=lambda pair: (pair[0].id, pair[0].query, pair[1]))
    (first, source), n_sourced = lacking[0], sum(part.n_sourced for part in parts)
    # Slips are looked for among the documents of all parts, so that the note is the same however a
    # trace is cut.
    documents = frozenset[str]().union(*(part.documents for part in parts))
    meanings = source_meanings(
        {source for case, _ in lacking for source in _expects(case)}, documents
    )
    slips = misspelt_sources((case for case, _ in lacking), documents, meanings)
    near = ""
    if slips:
        _, slip, document = slips[0]
        near = (
            f" {len(slips):,} of them name a source that is a document of the hits up to case or "
            f"file extension, as {slip[:_LENGTH]!r} beside {document[:_LENGTH]!r}: correct those "
            "first."
        )
    return (
        f"{len(lacking):,} of {n_sourced:,} cases labelled ok with sources expect what none of "
        "their hits has, at any "
        f"depth, such as {source[:_LENGTH]!r} in case {first.id[:_LENGTH]!r}: no policy can "
        f"answer them right.{near}"
    )


def _part_unretrieved(part: TracePart, arm: str | None) -> UnretrievedCases:
    if not any(case.expect_status == "ok" and _expects(case) for case in part.cases):
        return UnretrievedCases()
    trace: TraceData = part.loaded()
    documents, by_text = known_documents(trace), judged_cases(trace)
    rows = [
        row
        for row, case in enumerate(trace.cases)
        if case.expect_status == "ok" and not by_text[row] and _expects(case)
    ]
    expected = {source for row in rows for source in _expects(trace.cases[row])}
    named = chunk_sources(trace.chunks, source_meanings(expected, documents))
    lacking = []
    hit = trace.hits.chunk[:, trace.arm(arm or trace.arms[0])].reshape(len(trace), -1)
    for row in rows:
        case, chunks = trace.cases[row], set(hit[row].tolist()) - {-1}
        there = {source for place in chunks for source in named[place]}
        missing = [source for source in case.expect_sources if source not in there]
        if not missing and there.isdisjoint(case.expect_sources_any):
            missing = [*case.expect_sources_any]
        if missing:
            lacking.append((case, missing[0]))
    return UnretrievedCases(tuple(lacking), len(rows), frozenset(documents if lacking else ()))


def _expects(case: Case) -> tuple[str, ...]:
    return (*case.expect_sources, *case.expect_sources_any)


def with_headline(table: pd.DataFrame, trace: TraceView) -> pd.DataFrame:
    """Table of a public function, `headline_note` in `attrs["headline"]` and in a warning.

    The warning points at the function's caller.
    """
    table.attrs["headline"] = headline_note(trace)
    if table.attrs["headline"]:
        warn_user(table.attrs["headline"])
    return table
