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
_SHOWN = 5  # candidates that a message lists
_EXTENSION = re.compile(r"(?<=[^/])\.[a-z][a-z0-9]{0,4}$")
_LENGTH = 80  # characters of a source that a message shows


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
    paths = frozenset(documents)
    parts = {source: _name_and_page(source) for source in sources}
    names = {name for source, (name, _) in parts.items() for name in (_plain(source), name)}
    ends = names - paths
    endings: dict[str, list[str]] = {}
    for path in (path for path in paths if "/" in path) if ends else ():
        for ending in ends.intersection(_endings(path)):
            endings.setdefault(ending, []).append(path)

    def candidates(name: str) -> tuple[str, ...]:
        return (name,) if name in paths else tuple(sorted(endings.get(name, ())))

    meanings = {}
    for source, (name, page) in parts.items():
        whole = candidates(_plain(source))  # a document's own name may hold a #
        meanings[source] = Meaning(whole, "") if whole else Meaning(candidates(name), page)
    return meanings


def chunk_sources(chunks: Sequence[Chunk], meanings: Mapping[str, Meaning]) -> list[list[str]]:
    """Sources of labels that each chunk fulfils, [C]; an ambiguous source is fulfilled by none."""
    sources: dict[tuple[str, str], list[str]] = {}
    for source, meaning in meanings.items():
        if len(meaning.documents) == 1:
            sources.setdefault((meaning.documents[0], meaning.page), []).append(source)
    known = {document for document, _ in sources}
    return [
        [
            *sources.get((chunk.document, ""), ()),
            *sources.get((chunk.document, chunk.page_shown), ()),
        ]
        if chunk.document in known
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
    paths = frozenset(documents)
    return sorted({ending for path in paths if "/" in path for ending in _endings(path)} & paths)


def stated_exact_names(chunks: Iterable[Chunk]) -> dict[str, list[str]]:
    """Part of a trace's meta that keeps the exact names of a corpus; empty where there are none."""
    exact = exact_names(chunk_documents(chunks))
    return {EXACT_NAMES: exact} if exact else {}


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
    by_name: dict[str, str] = {}
    for document in sorted(documents):
        for name in (document, document.rpartition("/")[2]):
            by_name.setdefault(_loose_name(name), document)
    near = {
        source: by_name[loose]
        for source, meaning in meanings.items()
        if not meaning.documents
        and (loose := _loose_name(document_path(source).removesuffix(f"#{meaning.page}")))
        in by_name
    }
    slips = ((case, [source for source in case_sources(case) if source in near]) for case in cases)
    return [(case, of[0], near[of[0]]) for case, of in slips if of]


def check_clear(cases: Iterable[Case], meanings: Mapping[str, Meaning]) -> None:
    """Stop where a case names a source that several documents have.

    Raises:
      ValueError: names the first source, its case and its candidates, and counts all.

    Source: rule S6.1.
    """
    unclear = [
        (case.id, source)
        for case in cases
        for source in case_sources(case)
        if source in meanings and len(meanings[source].documents) > 1
    ]
    if unclear:
        name, source = unclear[0]
        count = f", one of {len(unclear)} such sources" if len(unclear) > 1 else ""
        refuse_unclear(source, meanings[source], f" in case {name!r}{count}")


def refuse_unclear(source: str, meaning: Meaning, place: str = "") -> NoReturn:
    """Stop at a source that several documents have.

    Args:
      place: where it is named, for the message.
    """
    names = ", ".join(meaning.documents[:_SHOWN])
    more = f" and {len(meaning.documents) - _SHOWN} more" if len(meaning.documents) > _SHOWN else ""
    refuse(
        "a source must name one document",
        f"{source[:_LENGTH]!r}{place}, which {len(meaning.documents)} documents have: "
        f"{names}{more}",
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
    named = tuple(sources)
    meanings = source_meanings(named, documents) if named else {}
    for source, meaning in meanings.items():
        if len(meaning.documents) > 1:
            refuse_unclear(source, meaning)
    return tuple(
        full_source(meanings[source]) if meanings[source].documents else source for source in named
    )


def _loose_name(path: str) -> str:
    """Path in lower case without its file extension, which begins with a letter.

    `v1.2` has none.
    """
    return _EXTENSION.sub("", path.casefold())


def _plain(source: str) -> str:
    return document_path(source).rstrip("/")


def _name_and_page(source: str) -> tuple[str, str]:
    """Document and page of a source; what follows a # in a folder's name is no page."""
    name, mark, page = _plain(source).rpartition("#")
    return (name, page) if mark and name and page and "/" not in page else (_plain(source), "")


def _endings(path: str) -> Iterator[str]:
    """Ends of a path that begin at a folder, the longest first, without the path itself."""
    rest = path.rstrip("/")
    if rest != path:
        yield rest
    while "/" in rest:
        rest = rest.partition("/")[2]
        if rest:
            yield rest
