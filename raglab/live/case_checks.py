"""Checks of cases (shore): faults are told before retrieval, not hours later (S6.1, S6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from raglab.arguments.user_warnings import warn_user
from raglab.decision.document_names import (
    Meaning,
    case_sources,
    check_clear,
    chunk_documents,
    chunk_sources,
    source_meanings,
)
from raglab.store.case_labels import check_split_names
from raglab.values import Case, Chunk, Corpus, document_path, refuse, source_grades

_MAX_COMPARED_NAMES = 100_000  # documents with whose names a wrong one is compared


def check_cases(corpus: Corpus, cases: Sequence[Case], batch_size: int) -> None:
    """Refuse what no trace can be built of.

    Raises:
      ValueError: no cases or no chunks, batches of less than one, a case twice, a split that no
        study reads, or grades that are none.
    """
    if not cases or not corpus.chunks:
        refuse(
            "a trace needs cases and chunks",
            f"{len(cases)} and {len(corpus.chunks)}",
            "check the files",
        )
    if batch_size < 1:
        refuse("batch_size must be at least 1", batch_size, "give 256")
    check_split_names(case.split for case in cases)
    first_positions: dict[str, int] = {}
    for case_index, case in enumerate(cases):
        first_position = first_positions.setdefault(case.id, case_index)
        if first_position != case_index:
            refuse(
                "cases must have different ids",
                f"{case.id!r} at positions {first_position} and {case_index}",
                "rename or remove one",
            )
        # what is wrong with grades is told before retrieval, not by the ranking after it
        source_grades(case)


def check_expected_sources(chunks: Sequence[Chunk], cases: Sequence[Case]) -> None:
    """Report cases no hits can make right: the corpus lacks what they expect (rules S6.1, S6.3).

    Of a part of a corpus that is so of some, which a warning counts; where it is so of all, the
    corpus is another one. A case labelled `refuse` has no sources to be right about.

    Raises:
      ValueError: a source that several documents have; or of every case that expects any the corpus
        has not one that must be there, or none of those of which one is enough.
    """
    meaning_of_source = source_meanings(
        {source for case in cases for source in case_sources(case)}, chunk_documents(chunks)
    )
    # A name of several documents first: it would be counted as present, whichever of them was
    # meant.
    check_clear(cases, meaning_of_source)
    found_sources = {
        source for sources in chunk_sources(chunks, meaning_of_source) for source in sources
    }
    wrong_cases: list[tuple[Case, str]] = []
    partial_cases: list[tuple[Case, str]] = []
    n_expecting = 0
    for case in cases:
        if case.expect_status == "refuse":
            continue
        n_expecting += bool(case.expect_sources or case.expect_sources_any)
        missing_sources = [source for source in case.expect_sources if source not in found_sources]
        absent_sources = [
            source for source in case.expect_sources_any if source not in found_sources
        ]
        # Every one of `expect_sources` is needed; of `expect_sources_any` a single one that is
        # there is enough.
        if missing_sources or (
            absent_sources and len(absent_sources) == len(case.expect_sources_any)
        ):
            wrong_cases.append((case, [*missing_sources, *absent_sources][0]))
        elif absent_sources:
            partial_cases.append((case, absent_sources[0]))
    for faulty_cases, effect in (
        (wrong_cases, "no hits can make them right"),
        (partial_cases, "counted as not found"),
    ):
        if not faulty_cases:
            continue
        case, source = faulty_cases[0]
        remedy = source_remedy(source, meaning_of_source[source], chunks)
        message = (
            "expected sources must be in the corpus, as path, path#page or unique file name, got "
            f"{source[:80]!r} in case {case.id!r}, one of {len(faulty_cases)} such cases: "
            f"{effect}; "
            f"{remedy}, or load their corpus."
        )
        # Compared with the cases that expect a source: the others could not show that the corpus is
        # another one.
        if faulty_cases is wrong_cases and len(wrong_cases) == n_expecting:
            raise ValueError(message)
        warn_user(message)


def source_remedy(source: str, meaning: Meaning, chunks: Sequence[Chunk]) -> str:
    """What to correct in a source that the corpus lacks.

    Its page, or its name with the nearest document.
    """
    if meaning.documents:
        (document,) = meaning.documents
        document_pages = {chunk.page_shown for chunk in chunks if chunk.document == document}
        return f"correct the page, of {len(document_pages):,} in {document[:80]!r}"
    documents = sorted(chunk_documents(chunks))
    if len(documents) > _MAX_COMPARED_NAMES:  # seconds, for a proposal
        return "correct the name"
    # A label may leave folders or the page out.
    path_of_name = {document.rpartition("/")[2]: document for document in reversed(documents)}
    path_of_name |= {document: document for document in documents}
    source_path = document_path(source)
    for tried_name in (source_path, source_path.rpartition("#")[0], source_path.rpartition("/")[2]):
        if close_names := get_close_matches(tried_name, path_of_name, 1):
            return f"correct the name, near {path_of_name[close_names[0]][:80]!r}"
    return "correct the name"
