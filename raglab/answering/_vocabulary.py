"""The corpus's own words for its fields: terms of headings, tables and definitions, and the names that it knows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.answering._asked_scopes import DOCTYPES, ROLES
from raglab.answering._asked_words import FAMILY, FIELDS
from raglab.answering._figures import figures, section
from raglab.answering._phrases import first, found, plain, stems
from raglab.evidence import words
from raglab.sentences import pieces
from raglab.values import Chunk

Encode = Callable[[Sequence[str]], NDArray[Any]]

_NUMBERING = re.compile(
    r"^(?:(?:section|clause|article|part|module|condition|conditions)\s+)?(?:[A-Z]?\d+(?:\.\d+)*[A-Z]?|[A-Z])\b[.:)]?\s*[—–:-]*\s*",
    re.IGNORECASE,
)
_DEFINED = re.compile(r"(?<![\w*])\*{1,2}([A-Z][^*\n]{2,40})\*{1,2}")
_PERSON = re.compile(r"^(?:(?:mrs?|ms|mme|m|dr|societe)\.? )+")
_LEGAL = frozenset(
    {"ltd", "llp", "plc", "sa", "sas", "sarl", "gmbh", "inc", "&", "and", "et", "the", "of", "des", "du"}
)
BY_WORDS, BY_COSINE = 0.85, 0.75  # most that nearness to a term is trusted: on the labelled tune split, half were right
_LONGEST = 8  # words of a term
_SHORTEST = 4  # letters of a word that stands for a whole name


class Term(NamedTuple):
    """A term by which the corpus names something: its words, and the field or family it belongs to, '' for none."""

    text: str
    field: str


class Name(NamedTuple):
    """A name that the corpus knows.

    alias: plain words that stand for it. name: as the corpus writes it. kind: `product`, `client` or `vendor`. words:
    of a question that were met by it, '' before one was read.
    """

    alias: str
    name: str
    kind: str
    words: str = ""


class Vocabulary(NamedTuple):
    """What a corpus calls things.

    terms: of its headings, heads of rows and columns, and definitions. names: (words of it, name, kind) of products,
    clients and vendors, longest first. doctypes: file name -> doc_type. weights: stem -> how rare it is, in [0, 1].
    vectors: of the terms, unit length, [terms, dim]; None without `encode`. encode: texts -> vectors.
    """

    terms: tuple[Term, ...] = ()
    names: tuple[Name, ...] = ()
    doctypes: tuple[tuple[str, str], ...] = ()
    vectors: NDArray[np.float64] | None = None
    encode: Encode | None = None


def vocabulary_of(chunks: Sequence[Chunk], encode: Encode | None = None) -> Vocabulary:
    r"""The field vocabulary of a corpus: no list of it stands in the code.

    Args:
      chunks: of the corpus.
      encode: texts to vectors [N, dim]; without it terms are compared by their words alone.

    Raises:
      ValueError: `encode` gives something else than one finite vector a term.

    Example:
      >>> chunk = Chunk("a", "Home > Excesses\n| Cause | Excess |\n|---|---|\n| Storm | £250 |", "home.md")
      >>> [(term.text, term.field) for term in vocabulary_of([chunk]).terms]
      [('Excesses', 'excess'), ('Storm', 'deductible'), ('Excess', 'excess')]
    """
    terms = tuple(dict.fromkeys(_terms(chunks)))
    return Vocabulary(
        terms=terms,
        names=names_of(chunks),
        doctypes=tuple(dict.fromkeys((chunk.file_name, chunk.tags.get("doc_type", "")) for chunk in chunks)),
        vectors=None if encode is None or not terms else unit(encode([term.text for term in terms]), len(terms)),
        encode=encode,
    )


def unit(vectors: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Vectors of unit length as float64 [n, dim]; zero stays zero."""
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != n or not np.isfinite(rows).all():
        msg = f"encode must give one finite vector a text, got shape {rows.shape} for {n}; see models.load_encoder."
        raise ValueError(msg)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0.0, length, 1.0)


def named(question: str, names: Sequence[Name]) -> tuple[Name, ...]:
    """Names that a question names, the longest first and none within another."""
    left, met = plain(question), []
    for name in names:
        match = re.search(rf"(?<!\w){re.escape(name.alias)}(?:'?s)?(?!\w)", left)
        if match:
            met.append(name._replace(words=match[0]))
            left = f"{left[: match.start()]}{'#' * len(match[0])}{left[match.end() :]}"
    return tuple(met)


def nearest(question: str, vocabulary: Vocabulary) -> tuple[Term, float] | None:
    """The term of a field that a question comes closest to, and how sure it is that the field is meant, in [0, 1].

    By words: all of a term of two or more stand in the question. Else by cosine, where there is an encoder. Most terms
    of a corpus say what a figure is of and not which figure, so both are trusted little: two words are not enough.
    """
    fielded = [at for at, term in enumerate(vocabulary.terms) if term.field]
    if not fielded:
        return None
    asked = set(stems(question))
    best: tuple[Term, float] | None = None
    for at in fielded:
        term = vocabulary.terms[at]
        own = stems(term.text)
        if len(own) > 1 and set(own) <= asked:
            score = BY_WORDS * len(own) / (len(own) + 1.0)
            best = (term, score) if best is None or score > best[1] else best
    if best is None and vocabulary.encode is not None and vocabulary.vectors is not None:
        cosines = vocabulary.vectors[fielded] @ unit(vocabulary.encode([question]), 1)[0]
        top = int(np.argmax(cosines))
        best = (vocabulary.terms[fielded[top]], BY_COSINE * float(np.clip(cosines[top], 0.0, 1.0)))
    return best


def _terms(chunks: Sequence[Chunk]) -> Iterator[Term]:
    for chunk in chunks:
        heading = _NUMBERING.sub("", section(chunk.text)).strip()
        yield from _term(heading, "")
        for figure in figures([chunk]):
            if figure.table:
                yield from _term(figure.label, "deductible" if figure.family == "excess" else figure.family)
                yield from _term(figure.head, figure.family)
        for term in _DEFINED.findall(chunk.text):
            yield from _term(term.rstrip(".: "), "")


def _term(text: str, family: str) -> Iterator[Term]:
    if 1 <= len(words(text)) <= _LONGEST and any(char.isalpha() for char in text):
        own = first(FIELDS, text)
        yield Term(text, own if own and (not family or FAMILY.get(own) == FAMILY.get(family)) else family or own or "")


def parties(chunks: Sequence[Chunk]) -> tuple[tuple[str, str, int], ...]:
    """Persons in tables of roles: (role, name, position of the chunk)."""
    return tuple((role, name, at) for at, chunk in enumerate(chunks) for role, name in _parties(chunk.text))


@lru_cache(maxsize=4096)
def _parties(text: str) -> tuple[tuple[str, str], ...]:
    met: list[tuple[str, str]] = []
    for piece in pieces(text):
        cells = piece.cells[:2] if piece.kind == "row" else ()
        roles = [first(ROLES, cell) for cell in cells]
        place = next((place for place, role in enumerate(roles) if role), None)
        if place is not None and len(cells) > 1:
            met.append((roles[place] or "", cells[1 - place].partition(",")[0].strip()))
    return tuple(met)


@lru_cache(maxsize=4096)
def _small_words(text: str) -> frozenset[str]:
    """Words that a text writes with a small letter: they are no names."""
    return frozenset(plain(word) for word in re.findall(r"(?<!\w)[a-zà-ÿ]{2,}", text))


def names_of(chunks: Sequence[Chunk]) -> tuple[Name, ...]:
    """Names of products, clients and vendors by their aliases, longest first.

    An alias is a whole name, two words of one, or a word of one that no text writes small. One that several names share
    is the vendor's, or that of the client who is named first: a surname is the policyholder's.
    """
    kinds = _kinds(chunks)
    common = frozenset[str]().union(*(_small_words(chunk.text) for chunk in chunks))
    owners: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        short = (_bare(name).split()[0],) if kind == "vendor" else ()  # an insurer goes by its first word
        for alias in dict.fromkeys((*_aliases(name, common), *short)):
            owners.setdefault(alias, []).append(name)
    owned = ((alias, _owner(alias, names, kinds)) for alias, names in owners.items())
    listed = [Name(alias, whose, kinds[whose]) for alias, whose in owned if whose]
    rank = {"product": 0, "client": 1, "vendor": 2}
    return tuple(sorted(listed, key=lambda one: (-len(one.alias.split()), rank[one.kind], -len(one.alias), one.alias)))


def _kinds(chunks: Sequence[Chunk]) -> dict[str, str]:
    """Names and what they are of: products and vendors by the tags, clients by tables of roles and by titles."""
    kinds: dict[str, str] = {}
    for kind in ("product", "vendor"):
        for chunk in chunks:
            if " and " not in chunk.tags.get(kind, ""):  # a document on two products is none of its own
                kinds.setdefault(chunk.tags.get(kind, ""), kind)
    kinds.pop("", None)
    whole = {_bare(name) for name in kinds}
    for name in (*(name for _, name, _ in parties(chunks)), *_titled(chunks)):
        if len(words(name)) <= _LONGEST and _bare(name) and _bare(name) not in whole:
            kinds.setdefault(name, "client")
    return kinds


def _owner(alias: str, names: Sequence[str], kinds: Mapping[str, str]) -> str | None:
    """Whose an alias is, None where that is open."""
    whose = [name for name in names if _bare(name) == alias and kinds[name] != "client"] or names
    if len(whose) == 1 or {kinds[name] for name in whose} == {"client"}:
        return whose[0]
    return next((name for name in whose if kinds[name] == "vendor"), None)


def _titled(chunks: Sequence[Chunk]) -> Iterator[str]:
    """Names at the end of a title, behind a comma or in brackets: whose document it is."""
    own = (chunk.tags for chunk in chunks if chunk.tags.get("doc_type") in {"schedule", "endorsement"})
    for title in dict.fromkeys(tags.get("title", "") for tags in own):
        match = re.search(r"(?:, | — | for |\()([^\d,()—]{4,}?)\)?$", title)
        if match and match[1][:1].isupper() and not found(DOCTYPES["schedule"] + DOCTYPES["endorsement"], match[1]):
            yield match[1].strip()


def _bare(name: str) -> str:
    return " ".join(re.findall(r"[\w&'-]+", _PERSON.sub("", plain(name))))


def _aliases(name: str, common: frozenset[str]) -> Iterator[str]:
    parts = _bare(name).split()
    yield " ".join(parts)
    own = [part for part in parts if part not in _LEGAL and not part.isdigit()]
    pairs = [pair for pair in itertools.pairwise(own) if not set(pair) <= common or name.istitle()]
    yield from (" ".join(pair) for pair in pairs)
    yield from (part for part in own if len(part) >= _SHORTEST and part not in common and part.isalpha())
