"""Question readings (shore): what a question may mean in the documents at hand, told apart by their own words (S5.1).

A reading is a figure, name or short text that a document states, with the words that tell it from its neighbours: the
label of a row, the head of a column, a label before a colon, a heading, the version of a document, the words of a
sentence that the sentences beside it do not share. A question is underspecified where the statements that have most of
its words state different values, and it has none of the words that tell them apart. No word of a trade is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.characters import unaccented
from raglab.extensions.clarification.question_vocabulary import (
    MEASURES,
    READ,
    first_entry,
    first_match,
    plain_terms,
    section,
    spans,
    without,
)
from raglab.extensions.clarification.stated_values import (
    CONTACT,
    NUMBERING,
    SHAPES,
    SHORT,
    SMALL,
    YEAR,
    Statement,
    is_dated,
    statements,
    stem_of,
    stems,
    word_stems,
)
from raglab.languages import LANGUAGES
from raglab.numerals import any_of, tables
from raglab.packs import Expressions, Pack
from raglab.text import STOP_WORDS, content_terms, split_words
from raglab.values import Chunk

ALIKE = 0.4  # least share of words of the shorter sentence that a parallel one has
UNMET, FOREIGN = 1 / 2, 1 / 3  # most of the words of a question that its readings, and the documents, may lack
_TELLING = 8  # words by which a sentence is told apart
_HEADED, _IDLE = (
    0.5,
    0.2,
)  # what a word of the heading, and a small word of the question, count beside one of the statement
_CAPITAL = re.compile(r"(?<=[\w,] )[A-ZÀ-Þ][\w'’-]+")  # a name, but for the first word
_PLACES = {  # how something lies to an event
    place: re.compile(
        rf"(?<![\w-])(?:{'|'.join(map(plain_terms, expressions))})(?![\w-])(?P<rest>[^.,;:|?!()]{{1,60}})"
    )
    for place, expressions in (
        ("before", LANGUAGES.words.before),
        ("during", LANGUAGES.words.during),
        ("after", LANGUAGES.words.after),
    )
}
_JOINS_NOUNS = frozenset({"of", "de", "du", "des", "d"})  # `the period of trial`
_MODEL = re.compile(r"\b(?=[\w-]{0,13}\d)(?=[\w-]{0,13}[^\W\d_])[\w-]{2,14}\b|\b[A-ZÀ-Þ][\w-]{1,30} \d{1,4}\b")


class Readings(NamedTuple):
    """What a question may mean, told apart along one axis.

    axis: `row`, `column`, `person`, `model`, `version`, `document` or `clause`. names: words that tell the readings
    apart, in the order of the documents. statements: of each, the first that has its name. words: stems of the question
    that they share.
    """

    axis: str
    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    words: tuple[str, ...]


class Wanted(NamedTuple):
    """What a question asks for, in stems.

    core: those that say what it is about. rest: others that may tell statements apart. shape: kind of value, '' where
    none is told. numbers: figures that it names. places: how what it asks for lies to the events that it names.
    measure: of `MEASURES`, '' where none is asked for. fielded: stems that every statement has which `forms` name.
    """

    core: tuple[str, ...]
    rest: frozenset[str]
    shape: str
    numbers: frozenset[str]
    places: Mapping[str, frozenset[str]] = {}
    measure: str = ""
    fielded: frozenset[str] = frozenset()
    forms: Expressions = ()


_UNIT_STEMS = frozenset(
    stem_of(word) for names in LANGUAGES.quantities.units.values() for name in names for word in split_words(name)
) - {stem_of("working")}
_MONTHS = frozenset(stem_of(plain_terms(name)) for names in LANGUAGES.months for name in names)
_MONTHS_OR_WORDS = frozenset(stem_of(plain_terms(name)) for name in LANGUAGES.months_or_words)
IDLE = frozenset(map(plain_terms, LANGUAGES.questions.idle))
_PRINTED = (  # a figure or a range of two, and no part of a code such as `M7-150W`
    r"(?<![\w-])[-−+]?(?:\d[\d.,]{0,8}\s?(?:°\s?[cf]?\s?)?(?:[-–—…]|to|and|à|et)\s?[-−+]?)?\d[\d.,\u00a0\u202f]{0,9}\s?"
)
_UNITS = {
    name: re.compile(rf"{_PRINTED}(?:{'|'.join(printed)})(?!\w)", re.IGNORECASE)
    for name, printed in LANGUAGES.questions.units.items()
}


def wanted(
    question: str, names: Iterable[str], pack: Pack, chunks: Sequence[Chunk] = (), field: str | None = None
) -> Wanted:
    """What a question asks for, its names and the words for the kind of value aside.

    Of several sentences the one with the question mark asks; the others may tell what is meant. Words of the title of
    the only document at hand tell nothing in it. A word that the documents have in a shorter form is taken for it.
    """
    places = event_places(question)
    question, story = asking_sentence(question)
    measure = first_entry(MEASURES, question) or ""
    shape = MEASURE_SHAPES.get(measure, "quantity") if measure else first_entry(pack.value_words, question) or ""
    known_field = pack.fields.get(field or "")
    kind = None if known_field is None or known_field.reading is None else known_field.reading.kind
    if kind is not None and kind in SHAPES and not measure:  # `how much` asks for a share of a field that is one
        shape = kind
    expressions = (*pack.value_words.get(shape, ()), *pack.form_words)
    told = stems(" ".join(spans(expressions, question)))
    named, idle = stems(" ".join(names)), pack.filler | SMALL | IDLE
    known = frozenset[str]().union(*(word_stems(chunk.text) for chunk in chunks))
    # A name that the documents have tells statements apart, and need not be repeated in each of them.
    titled = _title_stems(chunks) | (known & stems(" ".join(_CAPITAL.findall(question))))
    same = {stem_of(word): stem_of(other) for word, other in pack.same.items()}
    fielded = (
        stems(" ".join(spans(pack.own_words(field), question))) if field and pack.own_words(field) else frozenset()
    )
    fielded |= word_stems(" ".join(spans(MEASURES[measure], question))) if measure else frozenset()
    core: dict[str, None] = {}
    rest: set[str] = set()
    asked = content_terms(plain_terms(question))
    if (
        story and not field and all(word in idle or stem_of(word) in told | named for word in asked)
    ):  # `ill: how many days?`
        question, story = f"{story} {question}", ""
    for word in content_terms(plain_terms(question)):
        stem = stem_of(word)
        if stem in named:
            continue
        if word in idle or stem in told or stem in titled or len(word) < 2 or word.isdigit():
            rest |= {stem} - _UNIT_STEMS  # the unit of a value tells no figure of it from another
            continue
        if same.get(stem) in known or stem not in known:  # another word for it is of use where documents have that one
            stem = same.get(stem, stem)
        core[stem if stem in known or stem[:SHORT] not in known else stem[:SHORT]] = None
    if (
        not core and shape not in CONTACT and not _forms(field, pack)
    ):  # `what is the limit?` names the kind of value alone
        nouns = (word for word in content_terms(" ".join(spans(pack.value_words.get(shape, ()), question))))
        core = {stem_of(word): None for word in nouns if word not in idle and stem_of(word) in known}
    rest |= word_stems(story) - frozenset(core)
    # `one` is mostly no number
    models = word_stems(YEAR.sub(" ", " ".join(_MODEL.findall(question))))  # `the Tandem 9` is no figure
    numbers = frozenset(stem for stem in rest - models if stem.isdigit() and (stem != "1" or "1" in question))
    numbers |= rest & (_MONTHS - _MONTHS_OR_WORDS)
    numbers |= {stem_of(match["month"]) for match in _MONTH_OF_YEAR.finditer(plain_terms(f"{story} {question}"))}
    fielded |= {same[stem] for stem in fielded if stem in same}
    own = frozenset(fielded & frozenset(core))
    return Wanted(tuple(core), frozenset(rest), shape, numbers, places, measure, own, _forms(field, pack))


MEASURE_SHAPES = {"humidity": "percentage"}


@lru_cache(maxsize=256)
def _forms(field: str | None, pack: Pack) -> Expressions:
    """How documents name a field, without accents."""
    known = pack.fields.get(field or "")
    labels = () if known is None or known.reading is None else known.reading.labels
    return tuple(unaccented(one) for one in labels)


@lru_cache(maxsize=READ)
def event_places(text: str) -> Mapping[str, frozenset[str]]:
    """How a text places something beside the events that it names: stem of each -> `before`, `during`, `after`.

    Example:
      >>> {stem: sorted(places) for stem, places in event_places("Notice once the trial is over").items()}
      {'trial': ['after']}
    """
    plain = plain_terms(text)
    places: dict[str, frozenset[str]] = {}
    for place, form in _PLACES.items():
        for match in form.finditer(plain):
            for stem in word_stems(_first_noun(match["rest"])):
                places[stem] = places.get(stem, frozenset()) | {place}
    return places


def _first_noun(text: str) -> str:
    """The first words of a text that have a meaning of their own, and those that a particle joins to them."""
    found: list[str] = []
    for word in split_words(text):
        if word not in STOP_WORDS:
            found.append(word)
        elif found and word not in _JOINS_NOUNS:
            break
    return " ".join(found)


def _is_elsewhere(one: Statement, chunk: Chunk, asked: Wanted) -> bool:
    """Whether a statement holds at another time beside an event than the question asks for: `on trial`, not `after`.

    Its own words tell, else the heading above it.
    """
    if not asked.places:
        return False
    own, heading = event_places(f"{one.row} | {one.head} | {one.value}"), event_places(section(chunk.text))
    return any(
        held.isdisjoint(places)
        for stem, places in asked.places.items()
        if (held := own.get(stem) or heading.get(stem) or frozenset())
    )


_CIRCUMSTANCE = re.compile("|".join(LANGUAGES.questions.circumstances))
_PARTED = re.compile(r" ?(?::| [-–—]|,) ")


@lru_cache(maxsize=READ)
def asking_sentence(question: str) -> tuple[str, str]:
    """What asks in a question, and what stands around it.

    The last sentence with a question mark asks, of it what begins with a word that asks behind a colon, dash or comma,
    without clauses on who asks.

    Example:
      >>> asking_sentence("Leaving after the trial - what notice do I give for the job I have?")
      ('what notice do I give?', 'Leaving after the trial')
    """
    parts = [part for part in re.split(r"(?<=[.?!…]) +", question.strip()) if part]
    asks = [part for part in parts if part.rstrip().endswith("?")]
    asked, around = question, ""
    if len(parts) > 1 and asks:
        asked, around = asks[-1], " ".join(part for part in parts if part is not asks[-1])
    for cut in _PARTED.finditer(asked):
        if re.match(rf"(?:{'|'.join(LANGUAGES.questions.asking)})", plain_terms(asked[cut.end() :])):
            asked, around = asked[cut.end() :], f"{around} {asked[: cut.start()]}".strip()
            break
    plain = plain_terms(asked)
    clause = _CIRCUMSTANCE.search(plain) if len(plain) == len(asked) else None
    if clause is not None:
        asked = f"{asked[: clause.start()].rstrip()}{asked[clause.end() :]}"
    return asked, around


def _title_stems(chunks: Sequence[Chunk]) -> frozenset[str]:
    """Words by which every document at hand is called, so that they tell nothing apart."""
    titles = {
        chunk.source: " ".join(chunk.tags.get(name, "") for name in ("title", "product", "vendor")) for chunk in chunks
    }
    return frozenset.intersection(*map(word_stems, titles.values())) if titles else frozenset()


def readings(chunks: Sequence[Chunk], asked: Wanted, pack: Pack) -> Readings | None:
    """Readings of a question that lead to different values, where it tells none of them; None where it is clear.

    The statements that have most of the question's words are what it may mean. One of them alone, or several that state
    the same, leave nothing open; so does a question whose words no statement has.

    Args:
      chunks: of the documents it is asked of. asked: see `wanted`.
    """
    stated, asked = _of_field(list(statements(chunks)), asked, chunks)
    if asked.shape == "phone" and not any(one.shape == "phone" and {*asked.core} <= one.own for one in stated):
        asked = asked._replace(shape="code" if asked.core else "phone")  # `which filter number?` is none to ring
    best = _best(stated, asked, chunks)
    # What states one measure, or whom to turn to, speaks of one thing, whatever its words.
    tied = best if asked.measure or (asked.shape in CONTACT and not asked.core) else _parallel(best)
    if len({one.figures for one in tied}) < 2:
        return None
    if _is_told_by_numbers(asked.numbers, tied):
        return None
    words = tuple(stem for stem in asked.core if stem != _FIELD and all(stem in one.words for one in tied))
    strange = _is_strange(stated, asked)
    for axis, parts in _axes(tied, chunks, pack):
        if strange and axis != "version":  # an unknown word may be another subject: only of one do two versions differ
            continue
        if axis == "clause" and not asked.shape:  # what no kind of value answers no clause answers otherwise
            return None
        values = {name: frozenset(one.figures for one in some) for name, some in parts.items() if name}
        if len(set(values.values())) > 1:
            names = tuple(values)
            return Readings(axis, names, tuple(parts[name][0] for name in names), words)
    return None


_FIELD = "*"  # stands among stems for the field that is asked for, as the pack's labels name it


def _of_field(
    stated: Sequence[Statement], asked: Wanted, chunks: Sequence[Chunk]
) -> tuple[Sequence[Statement], Wanted]:
    """Statements with the question's words for its field, where they name the field otherwise, or state its measure.

    A question that names the field alone asks for what the labels of the pack name, where documents have them.
    """
    if asked.measure in _UNITS:
        return _of_measure(stated, asked), asked
    if not asked.forms:
        return stated, asked
    made, labelled = [], False
    for one in stated:
        own = first_match(asked.forms, f"{one.row} | {one.head} | {one.lead} | {one.value}")
        headed = first_match(asked.forms, section(chunks[one.at].text))
        labelled = labelled or (bool(own) and one.shape == asked.shape)
        more = asked.fielded | {_FIELD}
        made.append(
            one._replace(
                own=one.own | more if own else one.own,
                heading=one.heading | more if headed else one.heading,
            )
        )
    alone = labelled and frozenset(asked.core) <= asked.fielded and (asked.core or asked.shape not in CONTACT)
    return made, asked._replace(core=(*asked.core, _FIELD)) if alone else asked


def stated_of(chunks: Sequence[Chunk], asked: Wanted) -> list[Statement]:
    """What passages state of what a question asks for; () where they lack too many of its words."""
    stated, asked = _of_field(list(statements(chunks)), asked, chunks)
    return [] if _is_strange(stated, asked) else _best(stated, asked, chunks)


def _of_measure(stated: Sequence[Statement], asked: Wanted) -> list[Statement]:
    """Statements of a measure: those that the pack's labels of the field name, else that name the measure, else all."""
    unit = _UNITS[asked.measure]
    printed = [one for one in stated if one.shape in (asked.shape, "quantity", "percentage") and unit.search(one.value)]
    named = [one for one in printed if asked.fielded & one.words]
    labelled = [
        one for one in printed if asked.forms and first_match(asked.forms, f"{one.row} | {one.head} | {one.value}")
    ]
    kept = labelled or (named if len({one.figures for one in named}) > 1 else printed)
    return [one._replace(shape=asked.shape, own=one.own | asked.fielded) for one in kept]


def _is_told_by_numbers(numbers: frozenset[str], tied: Sequence[Statement]) -> bool:
    """Whether a number of a question tells which statement is meant, by itself or by a range that it falls into.

    A year tells nothing where all of them speak of it, or none.
    """
    years, months = frozenset(filter(YEAR.fullmatch, numbers)), numbers & _MONTHS
    texts = [f"{one.row} {one.head} {one.value}" for one in tied]
    if months and any(SHAPES["date"].search(text) or _MONTH_OF_YEAR.search(plain_terms(text)) for text in texts):
        return not any(_changes_within(month, text) for month in months for text in texts)
    if any(_changes_within(year, text) for year in years for text in texts):
        return False
    of_year = [bool(years & word_stems(text)) for text in texts]
    counted = bool(numbers - years - months) and any(stem.isdigit() for one in tied for stem in one.own)
    return counted or (bool(years) and any(of_year) and not all(of_year))


def _is_strange(stated: Sequence[Statement], asked: Wanted) -> bool:
    """Whether more words of a question than may be a slip stand nowhere in the documents."""
    core = frozenset(asked.core)
    return len(core.difference(*(one.words for one in stated))) > FOREIGN * len(core)


_MONTH_OF_YEAR = re.compile(rf"\b(?P<month>{any_of(tables().months)}) (?:19|20)\d\d\b")
_TURN = re.compile(  # the first or last day of a year
    r"\b(?:1(?:er|st)? (?:of )?jan\w*|jan\w* 1(?:st)?\b|31(?:st)? (?:of )?dec\w*|dec\w* 31(?:st)?\b)"
    r"|\b0?1[./]0?1[./]|31[./]12[./]|-01-01|-12-31"
)
_MONTH_END = re.compile(r"\b(?:0?1(?:er|st)?|2[89](?:th)?|30(?:th)?|31(?:st)?)\b")


def _changes_within(period: str, text: str) -> bool:
    """Whether a text dates something within a year or month, which alone does not tell what held then: `from 4 May`."""
    plain = plain_terms(text)
    spans_of = (plain[match.start() : match.end() + 6] for match in SHAPES["date"].finditer(plain))
    turn = _TURN if period.isdigit() else _MONTH_END
    return any(period in map(stem_of, split_words(span)) and not turn.search(span) for span in spans_of)


def _best(stated: Sequence[Statement], asked: Wanted, chunks: Sequence[Chunk]) -> list[Statement]:
    """Statements that have most of the words of a question; () where they lack too many of them."""
    core, rest = frozenset(asked.core), asked.rest
    foreign = core.difference(*(one.words for one in stated))
    if (not core and asked.shape not in CONTACT) or len(foreign) > max(FOREIGN * len(core), len(core) > 1):
        return []
    stated = [one for one in stated if not _is_elsewhere(one, chunks[one.at], asked)]
    fit = [one for one in stated if one.shape == asked.shape]
    told = [one for one in stated if one.shape != "text" or _is_told_by_heads(one, core)]
    # A sentence below a heading that names the subject may be about anything: its own words must speak of it.
    fit, told = ([one for one in some if one.form != "clause" or not core or core & one.own] for some in (fit, told))
    for pool in (fit,) if asked.shape in (*CONTACT, "date") else (fit, told):  # when is no amount
        scores = [len(core & one.words) for one in pool]
        most = max(scores, default=0)
        if (most or not core) and len(core) - most <= UNMET * len(core):
            met = [one for one, score in zip(pool, scores, strict=True) if score == most]
            # A sentence without a figure that has more of the question's words, or rarer ones, is what it asks for.
            said = [one for one in stated if one.shape == "text" and len(one.words & core) >= most]
            if any(len(one.words & core) > most for one in said):
                return []
            if asked.shape and pool is fit:  # a figure was asked for: no sentence without one answers as well
                said = []
            rarest = _rarest([*met, *said], core, stated)
            return _closest([one for one in rarest if one in met], core, rest)
    return []


def _rarest(met: Sequence[Statement], core: frozenset[str], stated: Sequence[Statement]) -> list[Statement]:
    """Of statements with as many words of a question, those that have the same ones: the rarest in the documents."""
    held = {one.words & core for one in met}
    if len(held) < 2:
        return list(met)
    times = {stem: sum(stem in one.words for one in stated) for stem in core}
    best = min(held, key=lambda some: (sorted(times[stem] for stem in some), sorted(some)))
    return [one for one in met if one.words & core == best]


def _parallel(tied: Sequence[Statement]) -> list[Statement]:
    """Statements of one form: cells and lines with labels, else sentences that say much the same of two things.

    Two sentences that share a word are not yet two readings of it.
    """
    labelled = [one for one in tied if one.row]
    if len({one.figures for one in labelled}) > 1:
        return labelled
    return [one for one in tied if any(_alike(one, other) for other in tied if other is not one)] if tied else []


def _alike(one: Statement, other: Statement) -> bool:
    shared, least = len(one.own & other.own), min(len(one.own), len(other.own))
    return one.figures != other.figures and shared >= ALIKE * least


def _is_told_by_heads(one: Statement, core: frozenset[str]) -> bool:
    """Whether a text of a table is asked for by the heads of its columns alone, so that any row may be meant."""
    return (
        one.form == "cell"
        and bool(core)
        and core <= stems(one.head) | one.shared | one.heading
        and bool(core & (stems(one.head) | one.shared))
    )


def _closest(met: Sequence[Statement], core: frozenset[str], rest: frozenset[str]) -> list[Statement]:
    """Of statements with the same words of a question, those that its other words, and their headings, speak for."""
    rest = frozenset(stem for stem in rest - _MONTHS if not YEAR.fullmatch(stem))  # dates tell by themselves
    scores = [_IDLE * len(rest & one.own) + _HEADED * len(core & one.heading) + len(core & one.own) for one in met]
    most = max(scores, default=0.0)
    kept = [one for one, score in zip(met, scores, strict=True) if score == most]
    # A label that the question names whole says which is meant: `full charge` is no other charge.
    named = [one for one in kept if one.row and word_stems(one.row) <= core | rest]
    kept = named or kept
    # A date stands beside many figures and says since when they hold; it is meant where nothing else is stated.
    shapes = [one.shape for one in kept if one.shape != "date"] or [one.shape for one in kept]
    shape = max(dict.fromkeys(shapes), key=shapes.count, default="")
    return [one for one in kept if one.shape == shape]


Parts = dict[str, list[Statement]]


def _axes(tied: Sequence[Statement], chunks: Sequence[Chunk], pack: Pack) -> Iterator[tuple[str, Parts]]:
    """Ways to tell statements apart, the likeliest first."""
    if len({chunks[one.at].source for one in tied}) > 1:
        if len({chunks[one.at].tags.get("doc_type", "") for one in tied}) == 1:  # a guide is no version of a contract
            yield "version", _parts(tied, lambda one: version_of(chunks[one.at]))
            yield "document", _parts(tied, lambda one: chunks[one.at].tags.get("title", "") or chunks[one.at].document)
        return
    cells = [one for one in tied if one.form == "cell"]
    if cells and len(cells) == len(tied):
        rows, heads = _parts(tied, lambda one: one.row), _parts(tied, lambda one: one.head)
        one_thing = frozenset.intersection(*map(word_stems, rows))  # such as the first miles and the further ones
        if len(heads) > 1 and (len(rows) == 1 or (one_thing and column_axis(tuple(heads), pack) == "version")):
            yield column_axis(tuple(heads), pack), heads
        dated = {row: some for row, some in rows.items() if is_dated(row)}
        if len(dated) > 1 and are_versions(tuple(dated), pack):
            yield "version", dated
        yield ("person" if tied[0].shape == "person" else "row"), rows
        if len(heads) > 1:
            yield column_axis(tuple(heads), pack), heads
    labels = tuple(dict.fromkeys(one.row for one in tied if one.row and one.form != "cell"))
    versions = [label for label in labels if _holds_when(label, pack)]
    if len(versions) == 2 and are_versions(versions, pack):
        yield "version", _parts([one for one in tied if one.row in versions], lambda one: one.row)
    lines = [one for one in tied if one.form == "line"]
    if lines and len(lines) == len(tied):
        yield ("person" if tied[0].shape == "person" else "row"), _parts(tied, lambda one: one.row)
    if len(tied) == 2 and tied[0].shape != "date" and are_versions([one.value for one in tied], pack):
        yield "version", _parts(tied, lambda one: one.value)
    common = frozenset.intersection(*(one.own for one in tied))
    yield "clause", _parts(tied, lambda one: telling_words(one, common))


def _holds_when(label: str, pack: Pack) -> bool:
    """Whether a label says when its figure holds and no more: `until 1 May 2025`, `now`."""
    older, newer = LANGUAGES.questions.older, LANGUAGES.questions.newer
    told = (*pack.versions.old.heads, *pack.versions.new.heads, *older, *newer)
    left = word_stems(without(label, spans(told, label)))
    return first_match(told, label) is not None and not any(stem.isalpha() and stem not in _MONTHS for stem in left)


def _parts(tied: Sequence[Statement], name: Callable[[Statement], str]) -> Parts:
    parts: Parts = {}
    for one in tied:
        parts.setdefault(" ".join(name(one).split()), []).append(one)
    return parts


def version_of(chunk: Chunk) -> str:
    """Version of the document of a passage, else its date; '' where it has neither."""
    return chunk.tags.get("version", "") or chunk.tags.get("date", "")


def are_versions(clauses: Sequence[str], pack: Pack) -> bool:
    """Whether one of two clauses states what held before a date or what holds since, and the other does not."""
    if len(clauses) != 2:
        return False
    told = [
        [bool(first_match((*v.heads, *words), one)) for one in clauses]
        for v, words in ((pack.versions.old, LANGUAGES.questions.older), (pack.versions.new, LANGUAGES.questions.newer))
    ]
    dated = any(YEAR.search(one) or SHAPES["date"].search(one) for one in clauses)
    return dated and any(one != other for one, other in told)


def sorted_versions(names: Sequence[str], stated: Sequence[Statement], pack: Pack) -> tuple[Statement, Statement]:
    """The older and the newer of two statements: by the pack's words for both, by their years, or as they come."""
    old, new = (
        [bool(first_match((*v.heads, *words), name)) for name in names]
        for v, words in ((pack.versions.old, LANGUAGES.questions.older), (pack.versions.new, LANGUAGES.questions.newer))
    )
    years = [max(YEAR.findall(name), default="") for name in names]
    turned = (new[0] and not new[1]) or (old[1] and not old[0]) or (old[0] == old[1] and years[0] > years[1])
    return (stated[1], stated[0]) if turned else (stated[0], stated[1])


def column_axis(heads: Sequence[str], pack: Pack) -> str:
    """What the heads of some columns tell apart: versions, models, or something else."""
    olds, news = (
        [bool(first_match(version.heads, head)) for head in heads] for version in (pack.versions.old, pack.versions.new)
    )
    dated = [bool(YEAR.search(head) or SHAPES["date"].search(head)) for head in heads]
    if (any(olds) and any(news)) or all(dated):
        return "version"
    return "model" if all(_MODEL.search(head) for head in heads) else "column"


def telling_words(one: Statement, common: frozenset[str]) -> str:
    """Words that tell a statement from those that share `common`: of a cell or line its label, else of its sentence.

    Of a sentence it is the first stretch before, between or behind values that has words of its own, without small
    words at its ends but for those that lead up to it: `for the periods that follow`, `during probation`.
    """
    if one.form != "clause" or one.row:
        return one.row or one.head
    form = SHAPES.get(one.shape)
    bare = form.sub(" | ", one.value) if form is not None else one.value
    for stretch in re.split(r" ?[|;:()] ?", NUMBERING.sub("", bare)):
        words = stretch.split()
        marks = [bool(stems(word) - common) and plain_terms(word) not in _EMPTY for word in words]
        if any(marks):
            return _stretch(words, marks)
    return ""


_EMPTY = SMALL | IDLE
_FIGURE = re.compile(r"[-+−]?\d[\d.,]{0,12}")


def _stretch(words: Sequence[str], marks: Sequence[bool]) -> str:
    """Some words from the first that tells, with the small word before it, to the last, at most `_TELLING` of them."""
    first = marks.index(True)
    last = max(at for at, mark in enumerate(marks) if mark)
    while first > 0 and not word_stems(words[first - 1]) and last - first < _TELLING:
        first -= 1
    last = min(last, first + _TELLING - 1)
    while last > first and (
        not word_stems(words[last]) or (_FIGURE.fullmatch(words[last]) and not YEAR.fullmatch(words[last]))
    ):
        last -= 1
    return " ".join(words[first : last + 1]).strip(" ,.;-–")
