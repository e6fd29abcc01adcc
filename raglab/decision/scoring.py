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

_SHOWN_LENGTH = 80  # characters of a source that a note shows


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
    part_masks = [
        once(trace_part, "status only", partial(_part_status_only, trace_part))
        for trace_part in trace_parts(trace)
    ]
    return np.concatenate(part_masks)


def _part_status_only(trace_part: TracePart) -> BoolArray:
    part_cases = trace_part.cases
    by_status_only = status_only(part_cases)
    return (
        by_status_only & ~judged_cases(trace_part.loaded())
        if (by_status_only & may_be_judged(part_cases)).any()
        else by_status_only
    )


def trace_basis(trace: TraceView) -> Basis:
    """Basis on which the cases of a trace are judged.

    Hits of a part are loaded only where an answer may be judged.
    """
    return Basis.joined(
        once(trace_part, "basis", partial(_part_basis, trace_part))
        for trace_part in trace_parts(trace)
    )


def _part_basis(trace_part: TracePart) -> Basis:
    if may_be_judged(trace_part.cases).any():
        return Basis.of(trace_part.loaded())
    return Basis(0, sum(part_case.expect_status == "ok" for part_case in trace_part.cases))


def status_only_sentence(n_status_only: int, n_cases: int) -> str:
    """Headline of a result some of whose cases are scored by status alone; '' where there are none.

    Example:
      >>> status_only_sentence(41, 60)
      '41 of 60 cases are scored by status alone'
    """
    return (
        f"{n_status_only:,} of {n_cases:,} cases {'is' if n_status_only == 1 else 'are'} scored "
        "by status alone"
        if n_status_only
        else ""
    )


def status_only_note(by_status_only: BoolArray) -> str:
    """The sentence about cases, [Q], with the reason.

    '' where every case labelled ok states sources.
    """
    sentence = status_only_sentence(int(by_status_only.sum()), len(by_status_only))
    return (
        f"{sentence}: labelled ok without sources, they count any answer as correct (S6.3)."
        if sentence
        else ""
    )


def headline_sentence(n_status_only: int, n_cases: int, n_failed: int = 0) -> str:
    """Headline of a result: cases that are left out, and those scored by status alone.

    Args:
      n_status_only: cases scored by status alone.
      n_cases: those that the result is of.
      n_failed: cases left out, since a call failed.
    """
    sentences = (failed_sentence(n_failed, n_cases), status_only_sentence(n_status_only, n_cases))
    return "; ".join(filter(None, sentences))


def headline_note(trace: TraceView, by_status_only: BoolArray | None = None) -> str:
    """The same as a note on the cases of a trace, with the reason.

    Args:
      by_status_only: whether each case is scored by status alone, [Q]; asked of the trace where not
        given.
    """
    status_note = status_only_note(
        trace_status_only(trace) if by_status_only is None else by_status_only
    )
    return " ".join(filter(None, (failed_note(trace), status_note)))


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
    return sum(len(unretrieved_part.lacking) for unretrieved_part in _unretrieved_parts(trace, arm))


def _unretrieved_parts(trace: TraceView, arm: str | None) -> list[UnretrievedCases]:
    return [
        once(trace_part, f"unretrieved {arm}", partial(_part_unretrieved, trace_part, arm))
        for trace_part in trace_parts(trace)
    ]


def unretrieved_note(trace: TraceView, arm: str | None = None) -> str:
    """How many cases labelled ok no policy can answer right, since no hit has their sources.

    '' where there are none.

    A trace knows the documents of its hits alone, so nothing is claimed of the corpus.

    Source: rules S6.1, S6.3.
    """
    unretrieved_parts = _unretrieved_parts(trace, arm)
    lacking_cases = [
        case_source
        for unretrieved_part in unretrieved_parts
        for case_source in unretrieved_part.lacking
    ]
    if not lacking_cases:
        return ""
    # By id, so that the note names the same cases in whatever order they stand.
    lacking_cases.sort(
        key=lambda case_source: (case_source[0].id, case_source[0].query, case_source[1])
    )
    (first_case, source), n_sourced = (
        lacking_cases[0],
        sum(unretrieved_part.n_sourced for unretrieved_part in unretrieved_parts),
    )
    # Slips are looked for among the documents of all parts, so that the note is the same however a
    # trace is cut.
    documents = frozenset[str]().union(
        *(unretrieved_part.documents for unretrieved_part in unretrieved_parts)
    )
    meanings = source_meanings(
        {source for case, _ in lacking_cases for source in _expects(case)}, documents
    )
    misspelt_cases = misspelt_sources((case for case, _ in lacking_cases), documents, meanings)
    slip_text = ""
    if misspelt_cases:
        _, misspelt_source, document = misspelt_cases[0]
        slip_text = (
            f" {len(misspelt_cases):,} of them name a source that is a document of the hits up "
            "to case or "
            f"file extension, as {misspelt_source[:_SHOWN_LENGTH]!r} beside "
            f"{document[:_SHOWN_LENGTH]!r}: correct those "
            "first."
        )
    return (
        f"{len(lacking_cases):,} of {n_sourced:,} cases labelled ok with sources expect what "
        "none of "
        "their hits has, at any "
        f"depth, such as {source[:_SHOWN_LENGTH]!r} in case {first_case.id[:_SHOWN_LENGTH]!r}: "
        "no policy can "
        f"answer them right.{slip_text}"
    )


def _part_unretrieved(trace_part: TracePart, arm: str | None) -> UnretrievedCases:
    if not any(case.expect_status == "ok" and _expects(case) for case in trace_part.cases):
        return UnretrievedCases()
    trace: TraceData = trace_part.loaded()
    documents = known_documents(trace)
    by_text = judged_cases(trace)
    sourced_rows = [
        case_index
        for case_index, case in enumerate(trace.cases)
        if case.expect_status == "ok" and not by_text[case_index] and _expects(case)
    ]
    expected_sources = {
        source for case_index in sourced_rows for source in _expects(trace.cases[case_index])
    }
    chunk_source_names = chunk_sources(trace.chunks, source_meanings(expected_sources, documents))
    lacking_cases = []
    hit_chunks = trace.hits.chunk[:, trace.arm(arm or trace.arms[0])].reshape(len(trace), -1)
    for case_index in sourced_rows:
        case = trace.cases[case_index]
        chunks = set(hit_chunks[case_index].tolist()) - {-1}
        found_sources = {
            source for chunk_number in chunks for source in chunk_source_names[chunk_number]
        }
        missing_sources = [source for source in case.expect_sources if source not in found_sources]
        if not missing_sources and found_sources.isdisjoint(case.expect_sources_any):
            missing_sources = [*case.expect_sources_any]
        if missing_sources:
            lacking_cases.append((case, missing_sources[0]))
    return UnretrievedCases(
        tuple(lacking_cases), len(sourced_rows), frozenset(documents if lacking_cases else ())
    )


def _expects(labelled_case: Case) -> tuple[str, ...]:
    return (*labelled_case.expect_sources, *labelled_case.expect_sources_any)


def with_headline(table: pd.DataFrame, trace: TraceView) -> pd.DataFrame:
    """Table of a public function, `headline_note` in `attrs["headline"]` and in a warning.

    The warning points at the function's caller.
    """
    table.attrs["headline"] = headline_note(trace)
    if table.attrs["headline"]:
        warn_user(table.attrs["headline"])
    return table
