"""What a question leaves out (shore): five kinds of gap, and what the documents offer (S5.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.extensions.clarification.contents import contents
from raglab.extensions.clarification.question_readings import (
    Readings,
    Wanted,
    asking_sentence,
    readings,
    sorted_versions,
    stated_of,
    wanted,
)
from raglab.extensions.clarification.question_vocabulary import (
    HOLDERS,
    KINDS,
    LEAST,
    MEASURES,
    NUMBERED,
    READ,
    TELLING,
    VALUE_NOUNS,
    WHY,
    WITHOUT_SUM,
    Failure,
    Figure,
    Name,
    ParsedQuestion,
    Vocabulary,
    about,
    asks_all,
    corpus_names,
    figures,
    first_entry,
    first_match,
    is_quoted,
    names_in_question,
    parties,
    plain_terms,
    section,
    spans,
    topic_stems,
    without,
    without_opening,
)
from raglab.extensions.clarification.question_wording import question_wording
from raglab.extensions.clarification.stated_values import (
    CONTACT,
    SHAPES,
    Statement,
    heading_of,
    shape_of,
    statements,
    stems,
)
from raglab.packs import GENERIC, Family, Pack
from raglab.text import split_words
from raglab.values import Chunk

SPOKEN_OF = 0.6  # share of what a question is about that a passage must name to speak of it
NEARLY = 0.75  # of the best share, with which another product speaks of a question as well
HARDLY = 0.3  # share below which none does
SHORT = 4  # letters of a word that is met by its longer forms: `gust` by `gusting`


class ScopedQuestion(NamedTuple):
    """A question beside its documents.

    chunks: of the documents of the products it may mean. field, family: what it asks for, '' where it names none.
    about: stems of what it is about beside that. products: that its names leave open, in the order of the documents.
    names: products, clients and vendors that it names. pack: of the trade.
    """

    chunks: tuple[Chunk, ...]
    field: str
    family: str
    about: tuple[str, ...]
    products: tuple[str, ...]
    names: tuple[Name, ...]
    pack: Pack


def scope_question(question: str, chunks: Sequence[Chunk], field: str | None, pack: Pack) -> ScopedQuestion:
    """A question beside the documents that it is asked of, its names taken for what they leave of them."""
    met = names_in_question(question, corpus_names(chunks, pack=pack))
    products = _products(chunks, met)
    kept = tuple(chunk for chunk in chunks if chunk.tags.get("product", "") in products) or tuple(chunks)
    asked = about(question, [name.words for name in met], field=field, pack=pack)
    known = frozenset[str]().union(*(_figure_word_stems(chunk.text, pack) for chunk in kept))
    left = tuple(stem for stem in asked if stem in known)  # a word that stands nowhere tells no passage from another
    return ScopedQuestion(kept, field or "", pack.family(field), left, products, met, pack)


def _products(chunks: Sequence[Chunk], met: Sequence[Name]) -> tuple[str, ...]:
    """Products that the documents are of, those left that the names of a question allow."""
    products = tuple(dict.fromkeys(chunk.tags.get("product", "") for chunk in chunks))
    for kind in ("product", "client", "vendor"):
        whose = [name for name in met if name.kind == kind]
        if not whose:
            continue
        own = {
            chunk.tags.get("product", "")
            for chunk in chunks
            for name in whose
            if (kind == "client" and name.alias in plain_terms(chunk.text)) or name.name == chunk.tags.get(kind, "")
        }
        products = tuple(product for product in products if product in own) or products
    return products


def speaks(chunk: Chunk, scoped: ScopedQuestion) -> float:
    """Share of the stems of a question that a passage has, in [0, 1]; 1 where it has none to ask for."""
    if not scoped.about:
        return 1.0
    own = _figure_word_stems(chunk.text, scoped.pack)
    return sum(stem in own for stem in scoped.about) / len(scoped.about)


@lru_cache(maxsize=READ)
def _figure_word_stems(text: str, pack: Pack) -> frozenset[str]:
    own = topic_stems(text)
    return frozenset((*own, *(stem[:SHORT] for stem in own), *(pack.same[stem] for stem in own if stem in pack.same)))


def speaking(scoped: ScopedQuestion) -> tuple[str, ...]:
    """Products whose documents speak of a question about as much as those that speak of it most."""
    shares = {
        product: topic_share([c for c in scoped.chunks if c.tags.get("product", "") == product], scoped)
        for product in scoped.products
    }
    bar = max(HARDLY, NEARLY * max(shares.values(), default=0.0))
    return tuple(product for product, share in shares.items() if share >= bar)


def topic_share(chunks: Sequence[Chunk], scoped: ScopedQuestion) -> float:
    """How much of what a question is about the best of some passages names, in [0, 1]; 0 where there is none."""
    return max((speaks(chunk, scoped) for chunk in chunks), default=0.0)


def candidate_figures(scoped: ScopedQuestion) -> tuple[Figure, ...]:
    """Figures of the family that the question may mean: those that have most of what it is about, at least half of it.

    Where it is about nothing further, all of them. Rows of tables are preferred to sentences.
    """
    pack, family = scoped.pack, scoped.pack.families.get(scoped.family)
    rows = figures(scoped.chunks, scoped.family, pack=pack)
    if not scoped.about:
        without_sum = family is not None and family.stated
        return rows + (figures(scoped.chunks, WITHOUT_SUM, pack=pack) if without_sum else ())
    asked = set(scoped.about)
    tabled = [figure for figure in rows if figure.table]
    for listed in (tabled, rows):
        met = [len(asked & _figure_word_stems(figure.context, pack)) for figure in listed]
        best = max(met, default=0)
        if 2 * best >= len(asked):
            return tuple(figure for figure, n in zip(listed, met, strict=True) if n == best)
    return ()


def choices(listed: Sequence[Figure], family: Family, *, rows: bool = False) -> tuple[str, ...]:
    """Kinds of figure among which one would have to choose; () where all have one value.

    Args:
      listed: figures of the family. rows: whether rows of one kind and several values are told apart by their labels.
    """
    current = [figure for figure in listed if figure.version != "old"]
    kinds = dict.fromkeys(kind for figure in current for kind in kinds_of(figure, family))
    if len({plain_terms(figure.value).strip() for figure in current}) < 2:
        return ()
    if rows and len(kinds) == 1:
        tabled = [figure for figure in current if figure.table and not figure.version]
        own = [figure for figure in tabled if figure.section == tabled[0].section]
        kinds = dict.fromkeys(plain_terms(figure.label) for figure in own)
        if len(kinds) == 1:
            kinds = dict.fromkeys(plain_terms(figure.head) for figure in own)
    return tuple(kinds)


def kinds_of(figure: Figure, family: Family) -> tuple[str, ...]:
    """Kinds that a figure is of: those that its sentence names, or the one of its row; () where none is told."""
    if not figure.table and family.several:
        kinds = tuple(kind for kind, expressions in family.kinds.items() if first_match(expressions, figure.label))
    elif not figure.table:
        kinds = tuple(filter(None, [first_entry(family.kinds, figure.label)]))
    elif family.by_columns:
        column = first_entry(family.kinds, f"{figure.head} {figure.basis}")
        kinds = tuple(filter(None, [column or first_entry(family.kinds, figure.label)]))
    else:
        row = first_entry(family.kinds, f"{figure.label} {figure.head}")
        kinds = tuple(filter(None, [row or (plain_terms(figure.label) if family.own_rows else "")]))
    return kinds or ((family.otherwise,) if family.otherwise else ())


def several(scoped: ScopedQuestion) -> tuple[str, ...]:
    """Kinds of figure of the family among which one would have to choose within one document."""
    family, column = scoped.pack.families[scoped.family], is_column(scoped)
    listed = candidate_figures(scoped)
    if column:
        terms = scoped.pack.fields[scoped.field].asked
        listed = tuple(figure for figure in listed if first_match(terms, figure.head))
    rows = len(scoped.products) < 2 and (bool(scoped.about) or column)
    files = dict.fromkeys(scoped.chunks[figure.at].document for figure in listed)
    kinds: dict[str, None] = {}
    for file in files:
        own = [figure for figure in listed if scoped.chunks[figure.at].document == file]
        offered = choices(own, family, rows=rows)
        kinds |= dict.fromkeys(offered if len(offered) > 1 else ())
    order = family.first
    return tuple(sorted(kinds, key=lambda kind: order.index(kind) if kind in order else len(order)))


def is_column(scoped: ScopedQuestion) -> bool:
    """Whether the field asked for is a column of its own."""
    field = scoped.pack.fields.get(scoped.field)
    return field is not None and field.column


def version_passages(scoped: ScopedQuestion) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """Passages of the older and of the newer sums of one product; both () where there is one version alone."""
    dated = scoped.pack.documents.dated
    for product in scoped.products:
        own = [c for c in scoped.chunks if c.tags.get("product", "") == product]
        own = [c for c in own if (c.tags.get("doc_type") in dated if dated else any(document_date(c)))]
        stamps = sorted({document_date(chunk) for chunk in own})
        if len(stamps) > 1:
            old = tuple(chunk for chunk in own if document_date(chunk) == stamps[0])
            return old, tuple(chunk for chunk in own if document_date(chunk) == stamps[-1])
    return (), ()


def document_date(chunk: Chunk) -> tuple[str, str]:
    """When the document of a passage was made: its version, then its date."""
    return chunk.tags.get("version", ""), chunk.tags.get("date", "")


def changed_figures(scoped: ScopedQuestion) -> tuple[Figure, ...]:
    """Figures a question means that one document, none that amends, states as they were and as they became."""
    asked, pack = set(scoped.about), scoped.pack
    return tuple(
        figure
        for figure in figures(scoped.chunks, pack=pack)
        if figure.version and scoped.chunks[figure.at].tags.get("doc_type", "") != (pack.documents.amends or None)
        if asked and asked <= _figure_word_stems(f"{figure.label} {figure.head}", pack)
        if _may_be_of(figure, scoped)
    )


def _may_be_of(figure: Figure, scoped: ScopedQuestion) -> bool:
    """Whether a figure is of the kind of value that the field asked for has: a price is no weight."""
    field = scoped.pack.fields.get(scoped.field)
    kind = "" if field is None or field.reading is None or field.family else field.reading.kind
    return kind not in SHAPES or shape_of(figure.value) in (kind, "number")


def section_kinds(chunks: Sequence[Chunk], pack: Pack) -> tuple[str, ...]:
    """Kinds of section that passages are of, in the order of the pack; else their headings, else their pages."""
    told = {kind for chunk in chunks if (kind := section_kind(chunk, pack))}
    kinds = tuple(kind for kind in pack.sections if kind in told)
    if len(kinds) > 1:
        return kinds
    headings = tuple(dict.fromkeys(filter(None, map(heading_of, chunks))))
    return headings if len(headings) > 1 else tuple(dict.fromkeys(str(chunk.page) for chunk in chunks if chunk.page))


def section_kind(chunk: Chunk, pack: Pack) -> str | None:
    """Kind of section that a passage stands in, by its heading."""
    return first_entry(pack.sections, section(chunk.text))


PAGES = ("1", "toc", "document")  # where a field that documents name once may stand
TASKS = ("cite", "summarise", "extract_conditions")
MOST = 6  # candidates of a failure
_BARE = 4  # words of a question that names a thing and asks nothing
_SHORT = 12  # words of a question that names a part of a document and hardly more


def failures(
    parsed: ParsedQuestion,
    question: str,
    chunks: Sequence[Chunk],
    *,
    least: float = LEAST,
    tried: Sequence[str] = (),
    pack: Pack = GENERIC,
) -> tuple[Failure, ...]:
    """What a question leaves out of the documents it is asked of, in the order of `KINDS`; () where nothing is missing.

    At most the first is to be asked.

    Args:
      parsed: the question as it was read. question: as it was asked.
      chunks: of the documents it is asked of. least: confidence below which a slot is missing, in [0, 1].
      tried: values that were tried and gave nothing: no candidates any more. pack: by which it was read.

    Source: rule S5.1; the clarification article, section 1.

    Example:
      >>> from raglab.extensions.clarification.question_parsing import Vocabulary, parse
      >>> asks = "What is the phone number?"
      >>> failures(parse(asks, Vocabulary()), asks, [Chunk("a", "Ring 01632 960 999.", "a.md", 1)])[0].candidates
      ('1', 'toc', 'document')
    """
    if not chunks:
        return ()
    scoped = scope_question(question, chunks, parsed.said("target_field", least), pack)
    # What a model quotes from the documents they have, whatever the words of the question.
    foreign = is_foreign(parsed, question, scoped)
    quoted = _quoted_gap(parsed, question, scoped)
    made = filter(None, (quoted,)) if foreign else _gaps(parsed, question, scoped, least, quoted)
    left = (
        failure._replace(candidates=tuple(value for value in failure.candidates if value not in tried)[:MOST])
        for failure in made
    )
    # Where a field usually stands the pack says of its own types of document, and of those that the user named.
    types = {chunk.tags.get("doc_type", "") for chunk in scoped.chunks}
    doctype = types.pop() if parsed.documents and len(types) == 1 else None
    last = tried[-1] if tried else None
    return tuple(
        failure._replace(
            question_to_user=question_wording(
                failure,
                failure.candidates[0],
                failed=last,
                language=parsed.language,
                doctype=doctype or "any",
                pack=pack,
            )
        )
        for failure in left
        if failure.candidates
    )


def is_foreign(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion) -> bool:
    """Whether a question is about something that the documents do not speak of, so that nothing is left out.

    Of several words one that they do not have may be a slip, or another word for one of theirs.
    """
    pack = scoped.pack
    if scoped.names or first_match(
        (pack.part, *NUMBERED), question
    ):  # a part that is named is asked about as it is called
        return False
    if bare_topic(question, scoped):
        return False
    wide = parsed.said("intent") == "summarise" or asks_all(question, pack)
    known, unknown = subject_words(question, scoped, wide=wide)
    if wide:
        return bool(unknown) and not known
    field = pack.fields.get(scoped.field)
    if field is None:
        return len(unknown) > 2 * len(known)
    # What documents state once is theirs, whatever word stands beside it; a limit or period is of something.
    return len(unknown) > max(int(field.on_a_page), len(known))


def subject_words(question: str, scoped: ScopedQuestion, *, wide: bool) -> tuple[frozenset[str], frozenset[str]]:
    """Stems of a question's subject, beside its field, that the documents have, and those that they have not."""
    pack = scoped.pack
    form = (*TELLING, *pack.wide, *pack.broad) if wide else pack.own_words(scoped.field)
    asked = question_stems(question, scoped)
    own = asked.fielded if asked.measure else frozenset[str]()  # a measure is known by its unit
    subject = frozenset(asked.core) - own - stems(" ".join(spans(form, question) if form else ()))
    known = subject & frozenset[str]().union(*(stems(chunk.text) for chunk in scoped.chunks))
    return known, subject - known


def _gaps(
    parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float, quoted: Failure | None
) -> Iterator[Failure]:
    """Gaps by kind; by the words of the pack where it knows the field, else by what the documents tell apart.

    quoted: what a model saw, which counts where neither finds anything of its kind.
    """
    # Where the user named no documents, those at hand are what retrieval found: that they differ says nothing yet.
    by_documents = _reading_gap(parsed, question, scoped, least) if parsed.documents else None
    if by_documents is not None and is_known(scoped) and by_documents.kind != "date_scope":
        by_documents = None  # what the pack says of a field leaves open since when its figure holds
    by_documents = by_documents or quoted
    for kind in KINDS:
        by_pack = list(_RULES[kind](parsed, question, scoped, least))
        yield from by_pack
        if not by_pack and by_documents is not None and by_documents.kind == kind:
            yield by_documents


def is_known(scoped: ScopedQuestion) -> bool:
    """Whether the pack tells what the field asked for may be: documents have figures of its family, or state it once.

    Where it does, its rules decide whether something is missing; elsewhere the documents do, whatever a rule reads.
    """
    family, field = scoped.pack.families.get(scoped.family), scoped.pack.fields.get(scoped.field)
    measured = field is not None and field.reading is not None and field.reading.filled > 0
    if field is not None and measured and (field.on_a_page or field.one_kind):
        return True
    return family is not None and family.is_chosen and bool(figures(scoped.chunks, scoped.family, pack=scoped.pack))


VERSIONS = ("old", "new")
_IS_YEAR = re.compile(r"(?:19|20)\d\d")
_PLACE = (r"where|ou (?:est|sont|se|va|vont|mettre|placer|faut|dois|puis)",)  # asks for a place, which no figure states
ENTITIES: Mapping[str, str] = {"person": "role", "model": "model", "document": "document"}  # axis -> part of the key
READ_FOR = ("lookup", None)  # intents of a question that one value answers
NAMED_FOR = (*READ_FOR, "summarise")  # and of one that may name a subject alone


def _reading_gap(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float) -> Failure | None:
    """What tells the readings of a question apart in the documents, None where nothing is left open."""
    pack = scoped.pack
    contact = first_entry(pack.value_words, question) in CONTACT  # `whom do I ring?` asks for a number, not for steps
    one_value = contact or parsed.said("intent", least) in READ_FOR
    other = first_match((*WHY, *TELLING, *pack.wide, *pack.broad, *pack.change), question)
    named = bool(named_heading(question, scoped) or bare_topic(question, scoped))
    place = not contact and first_match(_PLACE, question) is not None
    found = question_readings(question, scoped) if one_value and not (other or named or place) else None
    if found is None:
        return None
    reason = f"{len(found.names)} readings state different values"
    about = scoped.field or " ".join(sorted(found.words)) or "answer"
    if found.axis == "version":
        said = parsed.said("date_scope", least)
        if said is not None and not _IS_YEAR.fullmatch(said):  # whether a year tells them apart was seen already
            return None
        paired = len(found.names) == len(VERSIONS)
        values = (pack.versions.new.value, pack.versions.old.value) if paired else found.names
        # Who wants the figure in force of one thing wants that of another: what is learned holds for all of them.
        return Failure("date_scope", "figure:date", values, "", reason)
    if found.axis in ENTITIES:
        return Failure("implicit_entity", f"{about}:{ENTITIES[found.axis]}", found.names, "", reason)
    return Failure("field_type", about, found.names, "", reason)


def single_statement(
    parsed: ParsedQuestion, question: str, chunks: Sequence[Chunk], least: float, pack: Pack
) -> tuple[Statement, Chunk] | None:
    """The only statement, and its passage, of a measure or of whom to turn to, that a complete question asks for.

    Such a value is known by its form, so that the words of the question need not stand beside it. None elsewhere, and
    where what stands around the question says more of what is meant.
    """
    reads = parsed.documents and parsed.said("intent", least) in (*READ_FOR, "procedure")
    scoped = scope_question(question, chunks, parsed.said("target_field", least), pack)
    asked = question_stems(question, scoped)
    formed = asked.measure or asked.shape in CONTACT
    if not (reads and formed) or asking_sentence(question)[1] or asks_all(question, pack):
        return None
    if is_foreign(parsed, question, scoped):
        return None
    found = stated_of(scoped.chunks, asked)
    met = [one for one in found if one.shape == asked.shape and {*asked.core} <= one.words]
    return (met[0], scoped.chunks[met[0].at]) if len({one.figures for one in met}) == 1 else None


def _quoted_gap(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion) -> Failure | None:
    """The readings that a model saw and the documents at hand have; None where fewer than two are left."""
    stated = [one for one in parsed.readings if any(is_quoted(one, chunk.text) for chunk in scoped.chunks)]
    quotes = {plain_terms(one.quote): one for one in stated}
    names = tuple(dict.fromkeys(one.name for one in quotes.values()))
    if len(names) < 2 or any(stems(name) <= stems(question) for name in names):
        return None
    about = " ".join(sorted(question_stems(question, scoped).core)) or "answer"
    return Failure("field_type", about, names, "", f"a model sees {len(names)} readings that the documents state")


def question_stems(question: str, scoped: ScopedQuestion) -> Wanted:
    """What a question asks for beside its names; see `question_readings.wanted`."""
    return wanted(question, [name.words for name in scoped.names], scoped.pack, scoped.chunks, scoped.field)


def question_readings(question: str, scoped: ScopedQuestion) -> Readings | None:
    """Readings of a question in the documents that its names leave; see `question_readings.readings`."""
    return readings(scoped.chunks, question_stems(question, scoped), scoped.pack)


def reading_statements(failure: Failure, value: str, question: str, scoped: ScopedQuestion) -> tuple[Statement, ...]:
    """What the documents state under a reading that `failures` found in them; () for a value of another kind.

    Args:
      failure: what was missing. value: one of its candidates. question: as it was asked, beside its documents.
    """
    if failure.kind not in ("field_type", "implicit_entity", "date_scope"):
        return ()
    if is_known(scoped) and failure.kind != "date_scope":
        return ()
    found = question_readings(question, scoped)
    if found is None:
        return ()
    names = dict(zip(found.names, found.statements, strict=True))
    if found.axis == "version" and len(found.names) == len(VERSIONS):
        older, newer = sorted_versions(found.names, found.statements, scoped.pack)
        names |= {scoped.pack.versions.old.value: older, scoped.pack.versions.new.value: newer}
    return (names[value],) if value in names else ()


def named_heading(question: str, scoped: ScopedQuestion) -> str:
    """Heading that a question names, and nothing beside it; '' where it asks for something.

    A heading that is itself a question, as in lists of them, is asked and not named.
    """
    pack = scoped.pack
    if question.rstrip().endswith("?") and first_match((*pack.verb, *pack.intents.get("lookup", ())), question):
        return ""
    exact = [
        one for one in dict.fromkeys(map(heading_of, scoped.chunks)) if one and _letters(one) == _letters(question)
    ]
    if exact or first_match(pack.verb, question) or len(split_words(question)) > _SHORT:
        return exact[0] if exact else ""
    part = first_match((pack.part,), question)
    bare = plain_terms(question)
    asked = wanted(bare if part is None else f"{bare[: part.start()]} {bare[part.end() :]}", (), pack)
    core = frozenset(asked.core)
    if not core or asked.shape:
        return ""
    for heading in dict.fromkeys(map(heading_of, scoped.chunks)):
        own = frozenset(wanted(heading, (), pack).core)
        if own and (core == own or (part is not None and core <= own)):
            return heading
    return ""


_TOPIC = 4  # words of a question that names a subject and no more
_NAMED_BY_NOUN = frozenset({"reference", "phone", "email", "person", "organisation", "url", "date"})  # kinds of value


def bare_topic(question: str, scoped: ScopedQuestion) -> tuple[Chunk, ...]:
    """Passages on what a question names without a task, `and the filter?`; () where it asks for something.

    Those under a heading with its words, else those that have them; what has a value asks for it by its name alone.
    """
    pack = scoped.pack
    subject = without(without_opening(question), [name.words for name in scoped.names]).strip()
    field = pack.fields.get(scoped.field)
    kind = field.reading.kind if field is not None and field.reading is not None else None
    nouns = (*VALUE_NOUNS, *(one for some in (pack.value_words, MEASURES) for of in some.values() for one in of))
    if first_match(nouns, subject) or kind in _NAMED_BY_NOUN or first_match(pack.verb, subject):
        return ()
    core = frozenset(question_stems(subject, scoped).core) or frozenset(topic_stems(subject))
    words = len(core) + len(scoped.names)  # what is asked of a thing by name is no topic
    if not core or words > _TOPIC or any(char.isdigit() for char in subject):
        return ()
    text = [chunk for chunk in scoped.chunks if not is_contents(chunk, pack)]
    headed = tuple(chunk for chunk in text if core <= stems(heading_of(chunk)))
    spoken = tuple(chunk for chunk in text if core <= stems(chunk.text))
    opened = len(subject) + 4 < len(without(question, [name.words for name in scoped.names]).strip())
    if opened and not spoken and len(core) == 1:  # of two words one may be of another matter
        spoken = tuple(chunk for chunk in text if scoped.about and speaks(chunk, scoped) >= SPOKEN_OF)
    of_kind = () if headed or spoken else _of_section_kind(subject, text, pack)
    return headed or (spoken if field is None or opened else ()) or of_kind


def _of_section_kind(subject: str, text: Sequence[Chunk], pack: Pack) -> tuple[Chunk, ...]:
    """Passages on the kind of section that a subject is, in other words: `being ill` in those on sickness."""
    kind = first_entry(pack.sections, subject)
    if kind is None:
        return ()
    headed = tuple(chunk for chunk in text if section_kind(chunk, pack) == kind)
    return headed or tuple(chunk for chunk in text if _has_words(chunk.text, pack.sections[kind]))


@lru_cache(maxsize=READ)
def _is_contents(text: str, source: str, pack: Pack) -> bool:
    return bool(contents([Chunk("contents", text, source, 1)], pack=pack))


def is_contents(chunk: Chunk, pack: Pack) -> bool:
    """Whether a passage holds a table of contents: it names parts and states nothing of them."""
    return _is_contents(chunk.text, chunk.file_name, pack)


def _letters(text: str) -> list[str]:
    return split_words(plain_terms(text))


def _field_type(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float) -> Iterator[Failure]:
    """A family is asked for, and the documents state several of it that the question does not tell apart."""
    family, field = scoped.pack.families.get(scoped.family), scoped.pack.fields.get(scoped.field)
    if parsed.said("intent", least) == "compare" or family is None or not family.is_chosen:
        return
    if field is None or not is_stated(scoped) or field.one_kind or (scoped.about and (family.bare or field.column)):
        return
    kinds = several(scoped)
    named = first_entry(family.kinds, question) if family.settled else None
    if named in kinds and not scoped.about:
        return
    if len(kinds) > 1:
        key = scoped.field if field.column else scoped.family
        yield Failure("field_type", key, kinds, "", f"one document states {len(kinds)} kinds of it")


def _implicit_entity(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float) -> Iterator[Failure]:
    """Several products are left open, or a word that may mean any of several roles."""
    compared = parsed.said("intent", least) == "compare" or sum(name.kind == "product" for name in scoped.names) > 1
    if len(scoped.products) > 1 and not compared:
        products = speaking(scoped)
        asked = question_stems(question, scoped)
        if len(products) < 2 and asked.shape in CONTACT:  # whom to turn to each of them says in words of its own
            products = tuple(
                name for name in scoped.products if stated_of(_of_product(name, scoped), asked._replace(core=()))
            )
        known, unknown = subject_words(question, scoped, wide=bool(first_match(scoped.pack.broad, question)))
        if len(products) > 1 and len(unknown) <= 2 * len(known) + 1:
            key = f"{scoped.field or 'answer'}:product"
            yield Failure(
                "implicit_entity", key, products, "", f"{len(products)} products are in scope and none is named"
            )
            return
    pack, unclear = scoped.pack, scoped.pack.vague_role
    held = {role for role, _, _ in parties(scoped.chunks, pack=pack)}
    roles = tuple(role for role in pack.roles if role in held)
    if unclear is None or len(roles) < 2:
        return
    bare = len(split_words(question)) <= _BARE and not first_match(pack.verb, question)
    vague = scoped.field == unclear.field and first_match(unclear.asked, question)
    asked_for = vague and (bare or not first_match(unclear.unless, question)) and not scoped.about
    somebody = parsed.said("intent", least) == "check" and first_match(pack.somebody, question)
    told = any(first_match(role.asked, question) for role in pack.roles.values())
    nobody = not any(name.kind == "client" for name in scoped.names)
    if asked_for or (somebody and not told and nobody):
        yield Failure("implicit_entity", f"{unclear.key}:role", roles, "", f"the documents name {len(roles)} roles")


def _of_product(name: str, scoped: ScopedQuestion) -> tuple[Chunk, ...]:
    return tuple(chunk for chunk in scoped.chunks if chunk.tags.get("product", "") == name)


def _date_scope(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float) -> Iterator[Failure]:
    """Old and new sums are in scope, both speak of what is asked, and no date tells which applies."""
    dated = parsed.said("date_scope", least) is not None or parsed.said("intent", least) == "compare"
    pack = scoped.pack
    if dated or first_match(pack.change, question) or is_on_a_page(scoped) or asks_all(question, pack):
        return
    old, new = version_passages(scoped)
    others = [c for c in scoped.chunks if c not in old and c not in new]
    both = min(topic_share(old, scoped), topic_share(new, scoped))
    # When is no figure, nor who.
    changed = () if first_entry(pack.value_words, question) in (*CONTACT, "date") else changed_figures(scoped)
    if (both >= SPOKEN_OF and both >= topic_share(others, scoped)) or changed:
        key = f"{(scoped.family or scoped.field if is_known(scoped) else '') or 'figure'}:date"
        values = (pack.versions.new.value, pack.versions.old.value)
        yield Failure("date_scope", key, values, "", "an old version and its renewal both speak of it")


def _missing_intent(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float) -> Iterator[Failure]:
    """A part of a document is named, and nothing said of what to do with it."""
    short, pack = not scoped.field and len(split_words(question)) <= _SHORT, scoped.pack
    part = (
        short
        and parsed.said("intent", least) is None
        and first_match((pack.part,), question)
        and not first_match(pack.verb, question)
    )
    headed = bool(parsed.documents) and parsed.said("intent", least) in READ_FOR and named_heading(question, scoped)
    topic = parsed.documents and parsed.said("intent", least) in NAMED_FOR and bare_topic(question, scoped)
    if part or headed or (topic and len({(chunk.source, heading_of(chunk)) for chunk in topic}) == 1):
        yield Failure("intent", "section:intent", TASKS, "", "a part of the document is named without a task")


def _page_scope(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float) -> Iterator[Failure]:
    """A field without a page to look on, or a question what is said without what for."""
    pack = scoped.pack
    numbered = _numbered_parts(question, scoped) if asks_all(question, pack) else ()
    if len(numbered) > 1:
        yield Failure("page_scope", "section", numbered, "", f"{len(numbered)} parts have the number that is named")
        return
    if parsed.said("page_scope", least) is not None:
        return
    if is_on_a_page(scoped) and not scoped.about:
        if len(subject_words(question, scoped, wide=False)[1]) > 1:  # it is of something that the documents do not name
            return
        yield Failure("page_scope", scoped.field, PAGES, "", "no page is named")
        return
    vague = _vague_value(parsed, question, scoped, least)
    if len(vague) > 1:
        yield Failure("page_scope", "section", vague, "", f"{len(vague)} parts state such a value of something")
    elif not scoped.field or first_match(pack.broad, question):
        yield from _told_in_parts(parsed, question, scoped, least)


def _told_in_parts(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float) -> Iterator[Failure]:
    """It is asked what is said, and several pages say something."""
    topic = bare_topic(question, scoped) if parsed.documents and parsed.said("intent", least) in NAMED_FOR else ()
    if not asks_all(question, scoped.pack) and not topic:
        return
    passages = topic or _passages_told(question, scoped)
    if len({(chunk.source, chunk.page) for chunk in passages}) > 1:
        kinds = section_kinds(passages, scoped.pack)
        values = (*kinds[: MOST - 1], "document")
        yield Failure("page_scope", "section", values, "", f"{len(passages)} passages speak of it")


def _passages_told(question: str, scoped: ScopedQuestion) -> list[Chunk]:
    """Passages that may say what a question asks for, contents aside: all of them where it names no subject."""
    text = [chunk for chunk in scoped.chunks if not is_contents(chunk, scoped.pack)] or list(scoped.chunks)
    if first_match(TELLING, question) and not frozenset(question_stems(question, scoped).core) - _HOLDERS:
        return text
    return [chunk for chunk in text if speaks(chunk, scoped) >= SPOKEN_OF]


def _vague_value(parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float) -> tuple[str, ...]:
    """Headings of the parts that state a value of the kind that a question asks for without saying of what."""
    field = scoped.pack.fields.get(scoped.field)
    asked = question_stems(question, scoped)
    nouns = stems(" ".join(spans((*VALUE_NOUNS, *scoped.pack.value_words.get(asked.shape, ())), question)))
    said = parsed.said("intent", least) in (*READ_FOR, "procedure") and bool(parsed.documents)
    if not said or asked.shape not in _OPEN_KINDS or frozenset(asked.core) - nouns:
        return ()
    fielded = field is not None and field.reading is not None
    if asked.measure or fielded or first_match((*WHY, *_PLACE, *_SPEED), question):
        return ()
    stated = [one for one in statements(scoped.chunks) if one.shape == asked.shape]
    headings = tuple(filter(None, dict.fromkeys(heading_of(scoped.chunks[one.at]) for one in stated)))
    return () if any(nouns & stems(heading) for heading in headings) else headings  # a part on prices has the price


_OPEN_KINDS = frozenset({"duration", "amount", "date", "percentage"})
_SPEED = (r"how (?:fast|quickly)|a quelle vitesse",)
_AT_HAND = 20  # documents among which one may be meant that nobody names
_NAME = re.compile(r"(?<=[\w,;:] )(?!I\b)[A-ZÀ-Þ][\w'’-]+|\b(?=[\w-]{0,13}\d)(?=[\w-]{0,13}[^\W\d_])[\w-]{2,14}\b")


def open_documents(question: str, vocabulary: Vocabulary, parsed: ParsedQuestion, least: float) -> tuple[str, ...]:
    """Documents that all answer a question which names none of them, so that any may be meant; () where one is named.

    Only among few documents, none of which replaces another, and where they have all of its words: elsewhere it may be
    about something else.
    """
    pack = vocabulary.pack
    files: dict[str, list[Chunk]] = {}
    for chunk in vocabulary.chunks:
        files.setdefault(chunk.document, []).append(chunk)
    named = names_in_question(question, vocabulary.names) or _NAME.search(question) or pack.documents.dated
    reads = parsed.said("intent", least) in (*READ_FOR, "procedure")
    other = asks_all(question, pack) or first_match((*WHY, *_PLACE), question)
    if named or other or not reads or not 1 < len(files) <= _AT_HAND:
        return ()
    asked = wanted(question, (), pack, vocabulary.chunks, parsed.said("target_field", least))
    if not asked.shape or not asked.core:
        return ()
    stated = {name: found for name, own in files.items() if (found := stated_of(own, asked))}
    if stated and asked.shape in CONTACT:  # who has one number to ring for everything names no matter beside it
        anything = asked._replace(core=())
        stated = {name: found for name, own in files.items() if (found := stated_of(own, anything))}
    return tuple(stated) if len({one.figures for found in stated.values() for one in found}) > 1 else ()


def _numbered_parts(question: str, scoped: ScopedQuestion) -> tuple[str, ...]:
    """Headings of the parts that a number may mean: a page by its print or its place, a step of several lists."""
    page, step = first_match(scoped.pack.page, question), first_match(NUMBERED, question)
    if page and page[1] and page[1].isdecimal():
        printed = [chunk for chunk in scoped.chunks if chunk.page_label == page[1]]
        found = [*printed, *(chunk for chunk in scoped.chunks if chunk.page == int(page[1]))] if printed else []
        if len({chunk.page for chunk in found}) < 2:
            return ()
    elif step:
        listed = re.compile(rf"^\s*(?:[A-Za-zÀ-ÿ]{{4,9}} )?{step[step.lastindex or 1]}[.):]?\s", re.MULTILINE)
        found = [chunk for chunk in scoped.chunks if listed.search(chunk.text.partition("\n")[2])]
    else:
        return ()
    return tuple(dict.fromkeys(filter(None, map(heading_of, found))))


_HOLDERS = stems(" ".join(HOLDERS))


def is_on_a_page(scoped: ScopedQuestion) -> bool:
    """Whether the field asked for is one that documents of this type state once, as far as the pack knows the type."""
    field = scoped.pack.fields.get(scoped.field)
    return field is not None and field.on_a_page and (is_of_trade(scoped) or not _types(scoped)) and is_stated(scoped)


def _types(scoped: ScopedQuestion) -> set[str]:
    return {chunk.tags.get("doc_type", "") for chunk in scoped.chunks} - {""}


def is_of_trade(scoped: ScopedQuestion) -> bool:
    """Whether the pack knows a type of the documents at hand."""
    return not _types(scoped).isdisjoint(scoped.pack.documents.kinds)


def is_stated(scoped: ScopedQuestion) -> bool:
    """Whether the documents at hand have words of the field asked for, or are of a type that the pack knows."""
    pack, field = scoped.pack, scoped.pack.fields.get(scoped.field)
    if field is None or is_of_trade(scoped):
        return True
    words = (*pack.own_words(scoped.field), *field.asked)
    return any(_has_words(chunk.text, words) for chunk in scoped.chunks)


@lru_cache(maxsize=READ)
def _has_words(text: str, words: tuple[str, ...]) -> bool:
    return first_match(words, text) is not None


Rule = Callable[[ParsedQuestion, str, ScopedQuestion, float], Iterator[Failure]]
_RULES: Mapping[str, Rule] = {
    "field_type": _field_type,
    "implicit_entity": _implicit_entity,
    "date_scope": _date_scope,
    "intent": _missing_intent,
    "page_scope": _page_scope,
}
