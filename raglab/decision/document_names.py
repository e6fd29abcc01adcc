"""Documents (algebra): which document the source of a label means (S6.1).

A document is its path relative to the corpus. A label gives the path, or any end of it that begins
at a folder and that one document alone has, such as its file name; `#page` may follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from raglab.values import Case, Chunk, TraceData, document_path, refuse

EXACT_NAMES = "exact_names"  # key of a trace's meta: see `exact_names`
_SHOWN_CANDIDATES = 5  # candidates that a message lists
_FILE_EXTENSION = re.compile(r"(?<=[^/])\.[a-z][a-z0-9]{0,4}$")
_SHOWN_SOURCE = 80  # characters of a source that a message shows


class Meaning(NamedTuple):
    """What a source means among some documents.

    documents: one where it is clear, none where no document has the name, several where it is
    ambiguous. page: as sources name it, '' for the whole document.
    """

    documents: tuple[str, ...]
    page: str


def source_meanings(sources: Iterable[str], documents: Iterable[str]) -> dict[str, Meaning]:
    """What each source means.

    Args:
      sources: of labels, `path`, `path#page`, `file` or `file#page`.
      documents: paths of all documents that may be meant.

    Source: rule S6.1.

    Example:
      >>> source_meanings(["readme.md#2", "home/readme.md"], ["home/readme.md", "guide/readme.md"])[
      ...     "readme.md#2"
      ... ]
      Meaning(documents=('guide/readme.md', 'home/readme.md'), page='2')
    """
    document_paths = frozenset(documents)
    name_and_page = {source: _name_and_page(source) for source in sources}
    source_names = {
        source_name
        for source, (source_name, _) in name_and_page.items()
        for source_name in (_plain(source), source_name)
    }
    unknown_names = source_names - document_paths
    paths_of_ending: dict[str, list[str]] = {}
    for document_path_text in (
        (document_path_text for document_path_text in document_paths if "/" in document_path_text)
        if unknown_names
        else ()
    ):
        for ending in unknown_names.intersection(_endings(document_path_text)):
            paths_of_ending.setdefault(ending, []).append(document_path_text)

    def candidates(source_name: str) -> tuple[str, ...]:
        return (
            (source_name,)
            if source_name in document_paths
            else tuple(sorted(paths_of_ending.get(source_name, ())))
        )

    meaning_of_source = {}
    for source, (source_name, page_label) in name_and_page.items():
        whole_matches = candidates(_plain(source))  # a document's own name may hold a #
        meaning_of_source[source] = (
            Meaning(whole_matches, "")
            if whole_matches
            else Meaning(candidates(source_name), page_label)
        )
    return meaning_of_source


def chunk_sources(chunks: Sequence[Chunk], meanings: Mapping[str, Meaning]) -> list[list[str]]:
    """Sources of labels that each chunk fulfils, [C]; an ambiguous source is fulfilled by none."""
    sources_of_page: dict[tuple[str, str], list[str]] = {}
    for source, meaning in meanings.items():
        if len(meaning.documents) == 1:
            sources_of_page.setdefault((meaning.documents[0], meaning.page), []).append(source)
    known_names = {document for document, _ in sources_of_page}
    return [
        [
            *sources_of_page.get((chunk.document, ""), ()),
            *sources_of_page.get((chunk.document, chunk.page_shown), ()),
        ]
        if chunk.document in known_names
        else []
        for chunk in chunks
    ]


def exact_names(documents: Iterable[str]) -> list[str]:
    """Documents whose path is also the end of another's, sorted: a label with that text means them.

    A trace holds the documents of its hits alone, so it keeps these of the corpus in its meta.
    Without them `readme.md` would mean `home/readme.md` wherever the document of that path was not
    hit.

    Example:
      >>> exact_names(["readme.md", "home/readme.md", "faq.md"])
      ['readme.md']
    """
    document_paths = frozenset(documents)
    return sorted(
        {
            path_ending
            for full_path in document_paths
            if "/" in full_path
            for path_ending in _endings(full_path)
        }
        & document_paths
    )


def stated_exact_names(chunks: Iterable[Chunk]) -> dict[str, list[str]]:
    """Part of a trace's meta that keeps the exact names of a corpus; empty where there are none."""
    ambiguous_names = exact_names(chunk_documents(chunks))
    return {EXACT_NAMES: ambiguous_names} if ambiguous_names else {}


def chunk_documents(chunks: Iterable[Chunk]) -> set[str]:
    """Documents that chunks are of."""
    return set(map(document_path, {chunk.source for chunk in chunks}))


def known_documents(trace: TraceData) -> set[str]:
    """Documents that the labels of a trace's cases may mean."""
    return chunk_documents(trace.chunks).union(map(str, trace.meta.get(EXACT_NAMES, ())))


def case_sources(case: Case) -> tuple[str, ...]:
    """Sources that a case names in any field, each once."""
    return tuple(
        dict.fromkeys((*case.expect_sources, *case.expect_sources_any, *case.selected_sources))
    )


def misspelt_sources(
    cases: Iterable[Case], documents: Iterable[str], meanings: Mapping[str, Meaning]
) -> list[tuple[Case, str, str]]:
    """Cases whose answer may be wrong for a slip in a source.

    The case, its first such source and the document meant.

    A source that no document among the hits is may just not be retrieved. One that differs from a
    document in upper case or file extension alone is taken for a slip.

    Args:
      documents: paths of those of the hits.
      meanings: of the sources of the cases among them.

    Example:
      >>> case, documents = Case("q1", "How?", "ok", ("Laundry",)), ["laundry.html"]
      >>> misspelt_sources([case], documents, source_meanings(["Laundry"], documents))[0][1:]
      ('Laundry', 'laundry.html')
    """
    if all(meaning.documents for meaning in meanings.values()):
        return []
    document_of_name: dict[str, str] = {}
    for document in sorted(documents):
        for document_name in (document, document.rpartition("/")[2]):
            document_of_name.setdefault(_loose_name(document_name), document)
    similar_documents = {
        source: document_of_name[loose_name]
        for source, meaning in meanings.items()
        if not meaning.documents
        and (loose_name := _loose_name(document_path(source).removesuffix(f"#{meaning.page}")))
        in document_of_name
    }
    misspelt_of_case = (
        (case, [source for source in case_sources(case) if source in similar_documents])
        for case in cases
    )
    return [
        (case, misspelt_names[0], similar_documents[misspelt_names[0]])
        for case, misspelt_names in misspelt_of_case
        if misspelt_names
    ]


def check_clear(cases: Iterable[Case], meanings: Mapping[str, Meaning]) -> None:
    """Stop where a case names a source that several documents have.

    Raises:
      ValueError: names the first source, its case and its candidates, and counts all.

    Source: rule S6.1.
    """
    unclear_sources = [
        (case.id, source)
        for case in cases
        for source in case_sources(case)
        if source in meanings and len(meanings[source].documents) > 1
    ]
    if unclear_sources:
        case_id, source = unclear_sources[0]
        text = f", one of {len(unclear_sources)} such sources" if len(unclear_sources) > 1 else ""
        refuse_unclear(source, meanings[source], f" in case {case_id!r}{text}")


def refuse_unclear(source: str, meaning: Meaning, place_text: str = "") -> NoReturn:
    """Stop at a source that several documents have.

    Args:
      place_text: where it is named, for the message.
    """
    shown_names = ", ".join(meaning.documents[:_SHOWN_CANDIDATES])
    further_text = (
        f" and {len(meaning.documents) - _SHOWN_CANDIDATES} more"
        if len(meaning.documents) > _SHOWN_CANDIDATES
        else ""
    )
    refuse(
        "a source must name one document",
        f"{source[:_SHOWN_SOURCE]!r}{place_text}, which {len(meaning.documents)} documents have: "
        f"{shown_names}{further_text}",
        f"give the path, as {meaning.documents[0]}",
    )


def full_source(meaning: Meaning) -> str:
    """Clear source with the whole path, as chunks name themselves.

    Example:
      >>> full_source(Meaning(("guide/readme.md",), "2"))
      'guide/readme.md#2'
    """
    return f"{meaning.documents[0]}#{meaning.page}" if meaning.page else meaning.documents[0]


def full_sources(sources: Iterable[str], documents: Iterable[str]) -> tuple[str, ...]:
    """Sources with the whole path of their document; one that no document has stays as it is.

    Args:
      documents: paths of all that may be meant.

    Raises:
      ValueError: several documents have one.

    Example:
      >>> full_sources(["readme.md#2", "x.md"], ["guide/readme.md"])
      ('guide/readme.md#2', 'x.md')
    """
    given_sources = tuple(sources)
    meaning_of_source = source_meanings(given_sources, documents) if given_sources else {}
    for source, meaning in meaning_of_source.items():
        if len(meaning.documents) > 1:
            refuse_unclear(source, meaning)
    return tuple(
        full_source(meaning_of_source[source]) if meaning_of_source[source].documents else source
        for source in given_sources
    )


def _loose_name(document_name: str) -> str:
    """Path in lower case without its file extension, which begins with a letter.

    `v1.2` has none.
    """
    return _FILE_EXTENSION.sub("", document_name.casefold())


def _plain(source: str) -> str:
    return document_path(source).rstrip("/")


def _name_and_page(source: str) -> tuple[str, str]:
    """Document and page of a source; what follows a # in a folder's name is no page."""
    document_name, page_mark, page_label = _plain(source).rpartition("#")
    return (
        (document_name, page_label)
        if page_mark and document_name and page_label and "/" not in page_label
        else (_plain(source), "")
    )


def _endings(document_name: str) -> Iterator[str]:
    """Ends of a path that begin at a folder, the longest first, without the path itself."""
    path_ending = document_name.rstrip("/")
    if path_ending != document_name:
        yield path_ending
    while "/" in path_ending:
        path_ending = path_ending.partition("/")[2]
        if path_ending:
            yield path_ending
