"""Question vocabulary (shore): terms, names, figures and slots that a question fills."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, field_validator

from raglab.languages import LANGUAGES, expression
from raglab.live.clarifier import MIN_FIELD_CONFIDENCE
from raglab.numerals import any_of
from raglab.packs import GENERIC, Pack, TermTable
from raglab.text import STOP_WORDS, Piece, fold_case, pieces, split_words
from raglab.values import Chunk

READ = (
    1 << 14
)  # texts whose reading is kept: passages of a corpus of ordinary size, so that no question reads them anew
STEM = 5  # letters of a word that are compared: `valued` is met by `values`, `voitures` by `voiture`


@lru_cache(maxsize=1 << 14)
def plain_terms(text: str) -> str:
    """A text without accents, in lower case, with straight apostrophes, as a pack's expressions are written.

    Example:
      >>> plain_terms("L’adhérent Été")
      "l'adherent ete"
    """
    return fold_case(text.replace("’", "'").replace("\u2011", "-"))


@lru_cache(maxsize=1024)
def _alternatives(expressions: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(expressions)})(?!\w)")


def first_match(expressions: Sequence[str], text: str) -> re.Match[str] | None:
    """First place in a text, as it came, at which one of the expressions stands as whole words."""
    return _alternatives(tuple(expressions)).search(plain_terms(text)) if expressions else None


def spans(expressions: Sequence[str], text: str) -> tuple[str, ...]:
    """What the expressions match in a text, in order."""
    return tuple(match[0] for match in _alternatives(tuple(expressions)).finditer(plain_terms(text)))


def first_entry(table: TermTable, text: str) -> str | None:
    """Name of the first entry of a table that a text names, None where none."""
    return next((name for name, expressions in table.items() if first_match(expressions, text)), None)


_QUESTIONS = LANGUAGES.questions
TELLING = (
    expression(_QUESTIONS.telling, {"HOLDER": f"(?:{any_of(_QUESTIONS.holders)})"}),
)  # what something says, no more
HOLDERS = frozenset(_QUESTIONS.holders)  # it is a document or a part of it that says something
MEASURES: TermTable = _QUESTIONS.measures
VALUE_NOUNS, NUMBERED, THIS_PART = _QUESTIONS.values, _QUESTIONS.numbered, _QUESTIONS.this_part
_OPENING = re.compile(rf"^(?:{'|'.join(_QUESTIONS.opening)})(?!\w)[ ,:]*")


def without_opening(question: str) -> str:
    """A question in plain letters without words that lead up to its subject.

    Example:
      >>> [without_opening(asks) for asks in ("And what about the filter?", "Et les avances ?", "The filter?")]
      ['the filter?', 'les avances ?', 'the filter?']
    """
    return _OPENING.sub("", plain_terms(question).strip())


def asks_all(question: str, pack: Pack) -> bool:
    """Whether a question asks what is said, or for a whole subject.

    Example:
      >>> [asks_all(asks, GENERIC) for asks in ("So what is in it?", "What do they write?", "What is the price?")]
      [True, True, False]
    """
    return first_match((*TELLING, *pack.wide, *pack.broad), question) is not None


WHY = (r"why|how come|pourquoi",)  # asks for a reason, which no figure states


@lru_cache(maxsize=READ)
def topic_stems(text: str, *, filler: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Beginnings of the words of a text that say what it is about, in order, each once; filler: words that do not.

    Example:
      >>> topic_stems("What is the limit for escapes of water?")
      ('limit', 'escap', 'water')
    """
    kept = (
        word
        for word in split_words(plain_terms(text))
        if word not in STOP_WORDS and word not in filler and len(word) > 1
    )
    return tuple(dict.fromkeys(word[:STEM] for word in kept))


def without(text: str, gone: Iterable[str]) -> str:
    """A plain text without given words."""
    left = plain_terms(text)
    for phrase in sorted(set(gone), key=len, reverse=True):
        left = re.sub(rf"(?<!\w){re.escape(plain_terms(phrase))}(?!\w)", " ", left)
    return left


_SUM = re.compile(
    r"(?:[£€$]|\b(?:gbp|eur|usd) ?)\d|\d[\d .,\u00a0\u202f]{0,30}(?:[£€$%]|\b(?:gbp|eur|euros?|per cent|mph)\b)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d{1,3}(?:[.,  \u00a0\u202f]\d{3})+|\d+(?:[.,]\d+)?|\bnil\b|\bnone\b|\bnot\b")
_SPAN = re.compile(
    r"(?:\d{1,9}|two|three|four|five|six|seven|ten|twelve|fourteen|twenty|thirty|sixty|ninety|deux|trois|cinq|dix|quinze|trente)"
    r"(?: (?:consecutive|working|calendar|clear|further))?[ -](?:hours?|days?|nights?|weeks?|months?|years?|"
    r"heures?|jours?|mois|ans?)"
)
_YEAR = re.compile(r"(20\d\d)")
_INDEX = frozenset({"no", "no.", "ref", "n°", "#"})
WITHOUT_SUM = "kind"  # family of a sentence that names a kind of figure and states none
SPAN = "period"  # family of a sentence that states a span of time


class Figure(NamedTuple):
    """A figure of a document.

    family: of the pack, or ''. label: of its row, or its sentence. head: of its column. basis:
    the other words of the row. value: as it stands. version: `old`, `new` or ''. section: heading it stands under.
    at: position of its chunk in what was given. table: whether it stands in one.
    """

    family: str
    label: str
    head: str
    basis: str
    value: str
    version: str
    section: str
    at: int
    table: bool

    @property
    def context(self) -> str:
        """All words that say what the figure is."""
        return f"{self.label} {self.head} {self.basis}"


def figures(chunks: Sequence[Chunk], family: str | None = None, *, pack: Pack = GENERIC) -> tuple[Figure, ...]:
    """Figures of a family, or of any, in the order in which they stand."""
    return tuple(
        figure._replace(at=at)
        for at, chunk in enumerate(chunks)
        for figure in _chunk_figures(chunk.text, pack)
        if family is None or figure.family == family
    )


@lru_cache(maxsize=READ)
def section(text: str) -> str:
    r"""Heading that a chunk stands under, without the title of its document.

    Example:
      >>> section("Bicycles > C. Charges\nA day costs £12.")
      'C. Charges'
    """
    return text.partition("\n")[0].rpartition(" > ")[2].strip()


@lru_cache(maxsize=READ)
def _chunk_figures(text: str, pack: Pack) -> tuple[Figure, ...]:
    heading = section(text)
    made: list[Figure] = []
    for piece in pieces(text)[1:]:
        if piece.kind == "row":
            made += _row_figures_by_family(piece, heading, pack)
        elif piece.kind == "prose":
            made += _sentence_figures(piece.text, heading, pack)
    return tuple(made)


def _row_figures_by_family(piece: Piece, heading: str, pack: Pack) -> list[Figure]:
    """Figures of a table's row: its cells of sums, each with the row's label, its column's head and its version."""
    heads = piece.heads or ("",) * len(piece.cells)
    sums = [
        at
        for at, cell in enumerate(piece.cells)
        if at and _NUMBER.search(plain_terms(cell)) and _sum_like(cell, heads[at], pack)
    ]
    names = [at for at in range(len(piece.cells)) if at not in sums and plain_terms(heads[at]).strip() not in _INDEX]
    if not sums or not names:
        return []
    label = piece.cells[names[0]]
    basis = " ".join(piece.cells[at] for at in names[1:])
    versions = _versions([heads[at] for at in sums], pack)
    return [
        Figure(
            _family(heads[at], label, heading, pack),
            label,
            heads[at],
            basis,
            piece.cells[at],
            version,
            heading,
            -1,
            table=True,
        )
        for at, version in zip(sums, versions, strict=True)
    ]


def _sum_like(cell: str, head: str, pack: Pack) -> bool:
    """Whether a cell is a figure rather than words with a number in them."""
    letters = sum(char.isalpha() for char in cell)
    return bool(_SUM.search(cell)) or letters <= 8 or bool(first_entry(pack.heads, head))


def _versions(heads: Sequence[str], pack: Pack) -> list[str]:
    """Which columns are the old figures and which the new ones."""
    if len(heads) < 2:
        return [""] * len(heads)
    olds, news = (
        [bool(first_match(version.heads, head)) for head in heads] for version in (pack.versions.old, pack.versions.new)
    )
    if any(olds) and any(news):
        return ["old" if old else "new" if new else "" for old, new in zip(olds, news, strict=True)]
    years = [_YEAR.search(head) for head in heads]
    if all(years) and len({year[1] for year in years if year}) == len(heads):
        order = sorted(year[1] for year in years if year)
        return ["old" if year and year[1] == order[0] else "new" for year in years]
    return [""] * len(heads)


def _family(head: str, label: str, heading: str, pack: Pack) -> str:
    return first_entry(pack.heads, head) or first_entry(pack.heads, label) or first_entry(pack.heads, heading) or ""


def _sentence_figures(sentence: str, heading: str, pack: Pack) -> list[Figure]:
    """A figure of each family that a sentence states: a sum in words of the family, a span of time, a kind alone."""
    made = []
    if _SUM.search(sentence):
        family = first_entry(pack.mentions, sentence)
        made += [family] if family else []
    elif any(
        first_match(one.heads, sentence) and first_entry(one.kinds, sentence)
        for one in pack.families.values()
        if one.stated
    ):
        made.append(WITHOUT_SUM)
    if _SPAN.search(plain_terms(sentence)):
        made.append(SPAN)
    return [Figure(family, sentence, "", "", sentence, "", heading, -1, table=False) for family in made]


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
    """What a corpus calls things, in the words of a pack.

    terms: of its headings, heads of rows and columns, and definitions. names: (words of it, name, kind) of products,
    clients and vendors, longest first. doctypes: path -> doc_type. weights: stem -> how rare it is, in [0, 1].
    vectors: of the terms, unit length, [terms, dim]; None without `encode`. encode: texts -> vectors. pack: of the
    trade that the corpus is of. chunks: of the corpus, which a model may quote.
    """

    terms: tuple[Term, ...] = ()
    names: tuple[Name, ...] = ()
    doctypes: tuple[tuple[str, str], ...] = ()
    vectors: NDArray[np.float64] | None = None
    encode: Encode | None = None
    pack: Pack = GENERIC
    chunks: tuple[Chunk, ...] = ()


def build_vocabulary(chunks: Sequence[Chunk], encode: Encode | None = None, *, pack: Pack = GENERIC) -> Vocabulary:
    r"""The field vocabulary of a corpus: no list of it stands in code or pack.

    Args:
      chunks: of the corpus. pack: of its trade.
      encode: texts to vectors [N, dim]; without it terms are compared by their words alone.

    Raises:
      ValueError: `encode` gives something else than one finite vector a term.

    Example:
      >>> chunk = Chunk("a", "Bicycles > Prices\n| Kind | Price |\n|---|---|\n| Tandem | £25 |", "hire.md")
      >>> [(term.text, term.field) for term in build_vocabulary([chunk]).terms]
      [('Prices', 'price'), ('Tandem', 'price'), ('Price', 'price')]
    """
    terms = tuple(dict.fromkeys(_corpus_terms(chunks, pack)))
    return Vocabulary(
        terms=terms,
        names=corpus_names(chunks, pack=pack),
        doctypes=tuple(dict.fromkeys((chunk.document, chunk.tags.get("doc_type", "")) for chunk in chunks)),
        vectors=None if encode is None or not terms else unit(encode([term.text for term in terms]), len(terms)),
        encode=encode,
        pack=pack,
        chunks=tuple(chunks),
    )


def unit(vectors: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Vectors of unit length as float64 [n, dim]; zero stays zero."""
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != n or not np.isfinite(rows).all():
        msg = f"encode must give one finite vector a text, got shape {rows.shape} for {n}; see models.load_encoder."
        raise ValueError(msg)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0.0, length, 1.0)


def names_in_question(question: str, names: Sequence[Name]) -> tuple[Name, ...]:
    """Names that a question names, the longest first and none within another."""
    left, met = plain_terms(question), []
    for name in names:
        match = re.search(rf"(?<!\w){re.escape(name.alias)}(?:'?s)?(?!\w)", left)
        if match:
            met.append(name._replace(words=match[0]))
            left = f"{left[: match.start()]}{'#' * len(match[0])}{left[match.end() :]}"
    return tuple(met)


def named_document(question: str, vocabulary: Vocabulary) -> str | None:
    r"""The only document of the products and firms that a question names, None where they leave several or none.

    Example:
      >>> chunk = Chunk("a", "Bicycles\nA day costs £12.", "hire.md", 1, tags={"product": "Wheel Two"})
      >>> named_document("What is on page 1 of the Wheel Two?", build_vocabulary([chunk]))
      'hire.md'
    """
    names = {name.name for name in names_in_question(question, vocabulary.names) if name.kind != "client"}
    files = [
        {one.document for one in vocabulary.chunks if name in (one.tags.get("product"), one.tags.get("vendor"))}
        for name in names
    ]
    left = set.intersection(*files) if files else set()
    return left.pop() if len(left) == 1 else None


def closest_term(question: str, vocabulary: Vocabulary) -> tuple[Term, float] | None:
    """The term of a field that a question comes closest to, and how sure it is that the field is meant, in [0, 1].

    By words: all of a term of two or more stand in the question. Else by cosine, where there is an encoder. Most terms
    of a corpus say what a figure is of and not which figure, so both are trusted little: two words are not enough.
    """
    fielded = [at for at, term in enumerate(vocabulary.terms) if term.field]
    if not fielded:
        return None
    filler = vocabulary.pack.filler
    asked = set(topic_stems(question, filler=filler))
    best: tuple[Term, float] | None = None
    for at in fielded:
        term = vocabulary.terms[at]
        own = topic_stems(term.text, filler=filler)
        if len(own) > 1 and set(own) <= asked:
            score = BY_WORDS * len(own) / (len(own) + 1.0)
            best = (term, score) if best is None or score > best[1] else best
    if best is None and vocabulary.encode is not None and vocabulary.vectors is not None:
        cosines = vocabulary.vectors[fielded] @ unit(vocabulary.encode([question]), 1)[0]
        top = int(np.argmax(cosines))
        best = (vocabulary.terms[fielded[top]], BY_COSINE * float(np.clip(cosines[top], 0.0, 1.0)))
    return best


def _corpus_terms(chunks: Sequence[Chunk], pack: Pack) -> Iterator[Term]:
    for chunk in chunks:
        heading = _NUMBERING.sub("", section(chunk.text)).strip()
        yield from _term(heading, "", pack)
        for figure in figures([chunk], pack=pack):
            if figure.table:
                family = pack.families.get(figure.family)
                yield from _term(figure.label, (family.row_field if family else "") or figure.family, pack)
                yield from _term(figure.head, figure.family, pack)
        for term in _DEFINED.findall(chunk.text):
            yield from _term(term.rstrip(".: "), "", pack)


def _term(text: str, family: str, pack: Pack) -> Iterator[Term]:
    if 1 <= len(split_words(text)) <= _LONGEST and any(char.isalpha() for char in text):
        own = first_entry(pack.asked, text)
        yield Term(
            text, own if own and (not family or pack.family(own) == pack.family(family)) else family or own or ""
        )


def parties(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> tuple[tuple[str, str, int], ...]:
    """Persons in tables of roles: (role, name, position of the chunk)."""
    return tuple((role, name, at) for at, chunk in enumerate(chunks) for role, name in _parties(chunk.text, pack))


@lru_cache(maxsize=READ)
def _parties(text: str, pack: Pack) -> tuple[tuple[str, str], ...]:
    met: list[tuple[str, str]] = []
    for piece in pieces(text):
        cells = piece.cells[:2] if piece.kind == "row" else ()
        roles = [first_entry(pack.role_terms, cell) for cell in cells]
        place = next((place for place, role in enumerate(roles) if role), None)
        if place is not None and len(cells) > 1:
            met.append((roles[place] or "", cells[1 - place].partition(",")[0].strip()))
    return tuple(met)


@lru_cache(maxsize=READ)
def _small_words(text: str) -> frozenset[str]:
    """Words that a text writes with a small letter: they are no names."""
    return frozenset(plain_terms(word) for word in re.findall(r"(?<!\w)[a-zà-ÿ]{2,}", text))


def corpus_names(chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> tuple[Name, ...]:
    """Names of products, clients and vendors by their aliases, longest first.

    An alias is a whole name, two words of one, or a word of one that no text writes small. One that several names share
    is the vendor's, or that of the client who is named first: a surname is that of the first role.
    """
    kinds = _name_kinds(chunks, pack)
    common = frozenset[str]().union(*(_small_words(chunk.text) for chunk in chunks))
    owners: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        own = [word for word in _plain_name(name).split() if word not in STOP_WORDS]
        short = own[:1] if kind == "vendor" else ()  # a firm goes by its first word
        for alias in dict.fromkeys((*_aliases(name, common), *short)):
            owners.setdefault(alias, []).append(name)
    owned = ((alias, _owner(alias, names, kinds)) for alias, names in owners.items())
    listed = [Name(alias, whose, kinds[whose]) for alias, whose in owned if whose]
    rank = {"product": 0, "client": 1, "vendor": 2}
    return tuple(sorted(listed, key=lambda one: (-len(one.alias.split()), rank[one.kind], -len(one.alias), one.alias)))


def _name_kinds(chunks: Sequence[Chunk], pack: Pack) -> dict[str, str]:
    """Names and what they are of: products and vendors by the tags, clients by tables of roles and by titles."""
    kinds: dict[str, str] = {}
    for kind in ("product", "vendor"):
        for chunk in chunks:
            if " and " not in chunk.tags.get(kind, ""):  # a document on two products is none of its own
                kinds.setdefault(chunk.tags.get(kind, ""), kind)
    kinds.pop("", None)
    whole = {_plain_name(name) for name in kinds}
    for name in (*(name for _, name, _ in parties(chunks, pack=pack)), *_title_names(chunks, pack)):
        if len(split_words(name)) <= _LONGEST and _plain_name(name) and _plain_name(name) not in whole:
            kinds.setdefault(name, "client")
    return kinds


def _owner(alias: str, names: Sequence[str], kinds: Mapping[str, str]) -> str | None:
    """Whose an alias is, None where that is open."""
    whose = [name for name in names if _plain_name(name) == alias and kinds[name] != "client"] or names
    if len(whose) == 1 or {kinds[name] for name in whose} == {"client"}:
        return whose[0]
    return next((name for name in whose if kinds[name] == "vendor"), None)


def _title_names(chunks: Sequence[Chunk], pack: Pack) -> Iterator[str]:
    """Names at the end of a title, behind a comma or in brackets: whose document it is."""
    dated = pack.documents.dated
    types = tuple(one for name in dated for one in pack.documents.kinds.get(name, ()))
    own = (chunk.tags for chunk in chunks if chunk.tags.get("doc_type") in dated)
    for title in dict.fromkeys(tags.get("title", "") for tags in own):
        match = re.search(r"(?:, | — | for |\()([^\d,()—]{4,}?)\)?$", title)
        if match and match[1][:1].isupper() and not (types and first_match(types, match[1])):
            yield match[1].strip()


def _plain_name(name: str) -> str:
    return " ".join(re.findall(r"[\w&'-]+", _PERSON.sub("", plain_terms(name))))


def _aliases(name: str, common: frozenset[str]) -> Iterator[str]:
    parts = _plain_name(name).split()
    yield " ".join(parts)
    own = [part for part in parts if part not in _LEGAL and not part.isdigit()]
    pairs = [pair for pair in itertools.pairwise(own) if not set(pair) <= common or name.istitle()]
    yield from (" ".join(pair) for pair in pairs)
    yield from (part for part in own if len(part) >= _SHORTEST and part not in common and part.isalpha())


def about(
    question: str, names: Sequence[str] = (), *, field: str | None = None, pack: Pack = GENERIC
) -> tuple[str, ...]:
    """Stems of what a question is about, beside its target field.

    Args:
      question: as it was asked. names: words of it that name products, clients or vendors.
      field: its target field, whose own words say nothing further.

    Example:
      >>> about("What is the luggage limit on Acme Premier from April 2025?", ["acme premier"], field="limit")
      ('lugga',)
    """
    own = pack.own_words(field)
    gone = [*names, *(spans(own, question) if own else ()), *spans(pack.form_words, question)]
    left = topic_stems(without(question, gone), filler=pack.filler)
    return tuple(dict.fromkeys(pack.same.get(stem, stem) for stem in left))


KINDS = ("field_type", "implicit_entity", "date_scope", "intent", "page_scope")  # in the order in which one is asked
LEAST = MIN_FIELD_CONFIDENCE  # of a slot that is not missing
SLOTS = ("entity", "intent", "target_field", "page_scope", "date_scope", "doctype")


class Slot(NamedTuple):
    """One thing that a question says, and how sure it is that it says so.

    value: None where it is not said. confidence: chance, in [0, 1], that a careful reader of the question alone would
    put down the same value; 0 where there is none.
    """

    value: str | None = None
    confidence: float = 0.0


class Failure(NamedTuple):
    """Something a question leaves out.

    kind: of `KINDS`. target_field: key of the default's row, such as `limit`, `limit:date`, `phone`.
    candidates: values that can fill it, the first being the likeliest. question_to_user: in the question's language,
    naming the first candidate. reason: what was found, in one sentence.
    """

    kind: str
    target_field: str
    candidates: tuple[str, ...]
    question_to_user: str
    reason: str


class QuotedReading(NamedTuple):
    """A reading that a model sees. name: words of the documents that tell it apart. quote: those that state it."""

    name: str
    quote: str


def is_quoted(reading: QuotedReading, text: str) -> bool:
    r"""Whether name and quote of a reading stand in a text, whole, whatever the blanks and capitals.

    Example:
      >>> [is_quoted(QuotedReading("Tandem", quote), "| Tandem | £25 |") for quote in ("£25", "£2", "£26")]
      [True, False, False]
    """
    inside = " ".join(plain_terms(text).split())
    parts = (" ".join(plain_terms(part).split()) for part in reading)
    return all(part and re.search(rf"(?<!\w){re.escape(part)}(?!\w)", inside) for part in parts)


class ParsedQuestion(BaseModel):
    """A question as typed slots (rule S5.1).

    entity: who or what it is about: a product, a client or a role, as the documents write it. intent: what is to be
    done, such as `lookup`, `cite`, `summarise`, `extract_conditions`. target_field: the field to fill, or a family
    of the pack such as `limit`. page_scope: a page number, `toc`, `document`, or a kind of section such as
    `definitions`. date_scope: a year, a date, or a version of the pack such as `new version`.
    doctype: of the document asked about. documents: sources that the user named. readings: that a model sees in them,
    none by the rules.

    Raises:
      ValueError: a confidence is outside [0, 1], or a slot has confidence without a value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    entity: Slot = Slot()
    intent: Slot = Slot()
    target_field: Slot = Slot()
    page_scope: Slot = Slot()
    date_scope: Slot = Slot()
    doctype: Slot = Slot()
    documents: tuple[str, ...] = ()
    language: Literal["en", "fr"] = "en"
    readings: tuple[QuotedReading, ...] = ()

    @field_validator(*SLOTS)
    @classmethod
    def _in_range(cls, slot: Slot) -> Slot:
        if not 0.0 <= slot.confidence <= 1.0:
            msg = f"a confidence must be in [0, 1], got {slot.confidence}; it is the chance that the value is right."
            raise ValueError(msg)
        if slot.value is None and slot.confidence > 0.0:
            msg = f"a slot without a value must have confidence 0, got {slot.confidence}; give the value or 0."
            raise ValueError(msg)
        return slot

    def missing(self, least: float = LEAST) -> tuple[str, ...]:
        """Names of the slots whose confidence is below `least`, in the order of the fields.

        Example:
          >>> ParsedQuestion(intent=Slot("lookup", 0.9), entity=Slot("Acme Premier", 0.95)).missing()
          ('target_field', 'page_scope', 'date_scope', 'doctype')
        """
        return tuple(name for name in SLOTS if getattr(self, name).confidence < least)

    def said(self, name: str, least: float = LEAST) -> str | None:
        """Value of a slot, None where it is missing."""
        slot: Slot = getattr(self, name)
        return slot.value if slot.confidence >= least else None


BY_RULES = "rules"


class QuestionReading(NamedTuple):
    """A question as it was read, and by what.

    by: name of a model's parser, or `rules`. reason: why the rules stood in for a model, None where they did not.
    """

    parsed: ParsedQuestion
    by: str
    reason: str | None = None
