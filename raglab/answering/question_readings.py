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
from itertools import pairwise
from typing import NamedTuple

from raglab.answering.question_vocabulary import READ, first_entry, first_match, plain_terms, section, spans
from raglab.languages import LANGUAGES
from raglab.numerals import CURRENCY_CODES, CURRENCY_SIGNS, any_of, tables
from raglab.packs import Pack
from raglab.text import STOP_WORDS, Piece, content_terms, pieces, split_words
from raglab.values import Chunk

STEM, SHORT = 5, 4  # letters of a word that are compared, and of one that is met by its longer forms
ALIKE = 0.4  # least share of words of the shorter sentence that a parallel one has
UNMET, FOREIGN = 1 / 2, 1 / 3  # most of the words of a question that its readings, and the documents, may lack
_LONGEST_LABEL = 60  # characters
_LONGEST_VALUE = 160
_SHORT_VALUE = 6  # words of a value that is one
_TELLING = 6  # words by which a sentence is told apart
_HEADED, _IDLE = (
    0.5,
    0.2,
)  # what a word of the heading, and a small word of the question, count beside one of the statement


class Statement(NamedTuple):
    """Something that a passage states, with the words that say what it is.

    form: `cell` of a table, `line` with a label, or `clause` of a sentence. block: number of its table, run of lines or
    paragraph within the passage. row: label of its row or line. head: of its column. value: as printed. figures: what
    it states, to compare. shape: kind of value, such as `amount`, `duration`, `person`, `text`. own: stems of row, head
    and clause. shared: stems that its whole block shares. heading: stems of the heading. at: position of its passage.
    """

    form: str
    block: int
    row: str
    head: str
    value: str
    figures: str
    shape: str
    own: frozenset[str]
    shared: frozenset[str]
    heading: frozenset[str]
    at: int = -1

    @property
    def words(self) -> frozenset[str]:
        """All stems that say what it is."""
        return self.own | self.shared | self.heading


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


def _shapes() -> dict[str, re.Pattern[str]]:
    """How each kind of value is printed, the surest first."""
    known, quantities = tables(), LANGUAGES.quantities
    words = any_of({*known.numbers, *known.inside, "a", "an"})
    months = any_of(known.months)
    times = ("working days", "days", "nights", "weeks", "months", "years", "hours", "minutes")
    periods = any_of(name for unit in times for name in quantities.units.get(unit, ()))
    signs, codes = any_of(CURRENCY_SIGNS), any_of(CURRENCY_CODES)
    currencies = any_of(name for names in quantities.currencies.values() for name in names)
    percent = any_of(quantities.percent)
    units = any_of(name for unit, names in quantities.units.items() if unit not in times for name in names)
    small = any_of(sorted(word for word in (*STOP_WORDS, "st", "nd", "rd", "th", "er") if 1 < len(word) <= 3))
    figure = r"(?:\d[\d.,]{0,12} ?[-–] ?)?\d[\d.,]{0,12}(?:[ \u00a0\u202f]\d{3}){0,4}(?:[.,]\d{1,2})?"
    expressions = {
        "email": r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,32}){1,4}",
        "phone": r"(?<![\w./-])(?:\+|\(?0)\d[\d \u00a0\u202f().-]{6,20}\d(?![\w/])|(?<![\w./-])\d{3}-\d{4}(?![\w/-])",
        "date": rf"\b(?:\d{{1,2}}(?:er|st|nd|rd|th)? (?:of )?(?:{months})\b|(?:{months}) \d{{1,2}}\b"
        r"|\d{4}-\d\d-\d\d\b|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b)",
        "amount": rf"(?:{signs}|\b(?:{codes}))\s?{figure}|{figure}\s?(?:{signs}|(?:{codes}|{currencies}|p|pence)\b)",
        "percentage": rf"{figure}\s?(?:%|\b(?:{percent})\b)",
        "duration": rf"\b(?:{figure}|(?:{words}))(?:[ \u00a0-][a-zà-ÿ]{{3,12}})?[ \u00a0-](?:{periods})\b",
        "quantity": rf"{figure}[ \u00a0\u202f]?(?:°\s?[a-z]|(?!(?:{small})\b)[a-zµω]{{1,3}}\b(?:[²³]|/\w{{1,4}})?"
        rf"|(?:{units})\b)",
    }
    return {kind: re.compile(expression, re.IGNORECASE) for kind, expression in expressions.items()}


SHAPES: Mapping[str, re.Pattern[str]] = _shapes()
CONTACT = frozenset({"person", "phone", "email"})  # values that a question may ask for without a further word
_LABELLED = re.compile(
    rf"^\s*(?:[-*+•]\s+|\d{{1,2}}[.)]\s+)?\*{{0,2}}(?P<label>[^\W\d_][^:|*]{{1,{_LONGEST_LABEL}}}?)\*{{0,2}}\s?:\*{{0,2}}"
    rf"\s+(?P<value>\S.{{0,{_LONGEST_VALUE}}})$"
)
_SENTENCE_END = re.compile(r"[.;!?] +[A-ZÀ-Þ]")  # a line of several sentences
_TITLED = re.compile(rf"^(?i:{any_of(LANGUAGES.words.titles)})\.? [A-ZÀ-Þ]\w")
_CAPITALS = re.compile(r"^[A-ZÀ-Þ][\w'’-]*\.?(?: (?:d[eu]|van|von))?(?: [A-ZÀ-Þ][\w'’-]*\.?){1,3}$")
_JOINT = re.compile(rf"[;,]|\b(?i:{any_of((*LANGUAGES.words.parting, *LANGUAGES.words.joining))})\b")
_NUMBERING = re.compile(
    r"^(?:(?:section|chapter|part|chapitre|partie|article)\s+)?(?:\d{1,3}(?:\.\d{1,3}){0,3}|[A-H])[.:)]?\s*[—–:-]*\s+",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_DIGITS = re.compile(r"\d\S*")
_INLINE = re.compile(r"(?<=[.;]) +(?=[A-ZÀ-Þ][^:.;]{1,50} ?: )")  # labels within a line
_PRONOUN = re.compile(
    r"^(?:[^,:]{0,60}[, ] ?)?(?:it|they|il|elle|ils|elles"
    r"|(?:this|that|the|ce|le) (?:figure|amount|rate|montant|taux))\b",
    re.IGNORECASE,
)
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
_PAGE_HEAD = re.compile(r"(?:printed )?(?:pages?|p\.)$", re.IGNORECASE)  # a table of contents states nothing
_MODEL = re.compile(r"\b(?=[\w-]{0,13}\d)(?=[\w-]{0,13}[^\W\d_])[\w-]{2,14}\b|\b[A-ZÀ-Þ][\w-]{1,30} \d{1,4}\b")


@lru_cache(maxsize=READ)
def stems(text: str) -> frozenset[str]:
    """Beginnings of the content words of a text, numbers in one spelling; a short word is met by its longer forms.

    Example:
      >>> sorted(stems("Claims of two years"))
      ['2', 'clai', 'claim', 'year']
    """
    own = word_stems(text)
    return own | {stem[:SHORT] for stem in own}


@lru_cache(maxsize=READ)
def word_stems(text: str) -> frozenset[str]:
    """Beginnings of the content words of a text, and nothing beside them."""
    return frozenset(map(_stem, content_terms(plain_terms(text))))


SMALL = frozenset(plain_terms(word) for word in (*LANGUAGES.words.small, *LANGUAGES.words.asking))  # as questions have


def _stem(word: str) -> str:
    bare = word[:-1] if len(word) > 3 and word.endswith(("s", "x")) and not word.endswith("ss") else word
    return f"{bare[:-1]}i"[:STEM] if len(bare) > 3 and bare.endswith("y") else bare[:STEM]


def shape_of(text: str) -> str:
    """Kind of value that a short text is.

    Example:
      >>> [shape_of(text) for text in ("£1,250", "two weeks", "9 W", "Dr Anne Lorrain", "Battery empty")]
      ['amount', 'duration', 'quantity', 'person', 'text']
    """
    bare = text.strip(" .*")
    held = next((kind for kind, form in SHAPES.items() if form.search(bare)), None)
    if held is not None:
        return held
    if any(char.isdigit() for char in bare):
        return "number" if sum(char.isalpha() for char in bare) <= 12 else "text"
    name = bare.partition(",")[0].strip()
    return "person" if _TITLED.match(name) or _CAPITALS.match(name) else "text"


def heading_of(chunk: Chunk) -> str:
    """Heading that a passage stands under, without its number; '' where it is the title of the document."""
    heading = _NUMBERING.sub("", section(chunk.text)).strip()
    title = chunk.tags.get("title", "")
    return "" if plain_terms(heading) == plain_terms(title) else heading


def statements(chunks: Sequence[Chunk]) -> Iterator[Statement]:
    """What passages state, in their order."""
    for at, chunk in enumerate(chunks):
        for one in _statements(chunk.text):
            yield one._replace(at=at)


@lru_cache(maxsize=READ)
def _statements(text: str) -> tuple[Statement, ...]:
    heading = stems(section(text))
    kept: list[str] = []
    made: list[Statement] = []
    block, lead, above = 0, frozenset[str](), ""
    for line in text.splitlines()[1:]:
        labelled = None if line.lstrip().startswith("|") else _LABELLED.match(line.replace("**", ""))
        if labelled is None or _SENTENCE_END.search(labelled["value"]):
            kept.append(line)
            block += bool(line.strip())
            above, lead = line.strip() or (above if above.endswith(":") else ""), frozenset()
        else:  # lines with labels that follow one another are one block, of which the line above them speaks
            kept.append("")
            lead = stems(above) if above else lead
            above = ""
            made += _with_lead(_line(labelled, heading, block), lead)
    found = pieces("\n".join((text.partition("\n")[0], "", *kept)))
    made += _cells(found, heading, block)
    before, lead = "", frozenset()
    for sentence in (part for piece in found[1:] if piece.kind == "prose" for part in _INLINE.split(piece.text)):
        labelled = _LABELLED.match(sentence)
        # `From 1 May it is £45` says again what the sentence before it speaks of.
        again = _PRONOUN.search(sentence) and _is_dated(sentence) and _states_one_kind(before, sentence)
        subject = stems(before) if again else frozenset()
        if labelled is None:
            made += _clauses(sentence, heading, subject)
            lead = stems(sentence)
        else:
            made += _with_lead(_line(labelled, heading, block + 1), lead)
        before = sentence
    return tuple(made)


def _line(match: re.Match[str], heading: frozenset[str], block: int) -> Iterator[Statement]:
    """What a line with a label states: its value, or one for each figure of a longer one."""
    label, value = match["label"].strip(), match["value"].strip()
    clauses = list(_clauses(match[0].strip(), heading, label=label)) if len(value.split()) > _SHORT_VALUE else []
    if clauses:
        yield from clauses
    else:
        own = stems(label)
        yield Statement("line", block, label, "", value, _plain(value), shape_of(value), own, frozenset(), heading)


def _with_lead(made: Iterable[Statement], lead: frozenset[str]) -> Iterator[Statement]:
    """Statements of a list beside the sentence that leads up to it."""
    return (one._replace(shared=one.shared | lead) for one in made)


def _plain(value: str) -> str:
    return " ".join(content_terms(plain_terms(value))) or plain_terms(value).strip()


def _cells(found: Sequence[Piece], heading: frozenset[str], block: int) -> Iterator[Statement]:
    """Cells of the tables of a passage beside the label of their row, under the head of their column."""
    lead: frozenset[str] = frozenset()
    heads: tuple[str, ...] = ()
    for piece in found:
        if piece.kind == "prose":
            lead = stems(piece.text) if piece.text.rstrip().endswith(":") else frozenset()
        elif piece.kind == "head":
            heads, block = piece.cells, block + 1
        elif piece.kind == "row" and len(piece.cells) > 1:
            own_heads = piece.heads or ("",) * len(piece.cells)
            shapes = [shape_of(cell) if cell else "" for cell in piece.cells]
            label = piece.cells[0]
            texts = [cell for cell, shape in zip(piece.cells, shapes, strict=True) if shape in ("text", "person")]
            basis = stems(" ".join((label, *texts)))
            shared = lead | (stems(heads[0]) if heads and piece.heads else frozenset())
            for at, (cell, shape) in enumerate(zip(piece.cells, shapes, strict=True)):
                if at and shape and not _PAGE_HEAD.match(own_heads[at].strip()):
                    head = own_heads[at]
                    unit = frozenset() if shape in ("text", "person") else stems(_DIGITS.sub(" ", cell))
                    own = (stems(label) if shape == "text" else basis) | stems(head) | unit
                    yield Statement("cell", block, label, head, cell, _plain(cell), shape, own, shared, heading)


def _is_dated(text: str) -> bool:
    return bool(_YEAR.search(text) or SHAPES["date"].search(text))


def _states_one_kind(before: str, after: str) -> bool:
    """Whether two sentences state a value of one kind, dates aside."""
    return any(form.search(before) and form.search(after) for kind, form in SHAPES.items() if kind != "date")


def _clauses(
    sentence: str, heading: frozenset[str], subject: frozenset[str] = frozenset(), *, label: str = ""
) -> Iterator[Statement]:
    """What a sentence states: once for each value of a kind that stands in a clause of its own.

    subject: stems of the sentence whose subject it goes on with. label: that stands before it.
    """
    for shape, form in SHAPES.items():
        values = list(form.finditer(sentence))
        cuts = [0]
        for before, after in pairwise(values):
            joint = _JOINT.search(sentence, before.end(), after.start())
            if joint:
                cuts.append(joint.start())
        if not values:
            continue
        parts = [sentence[a:b] for a, b in zip(cuts, [*cuts[1:], len(sentence)], strict=True)]
        lead = stems(sentence[: values[0].start()]) | subject
        for part in parts:
            held = [match[0] for match in form.finditer(part)]
            if held:
                own = stems(form.sub(" ", part)) | lead
                shown = " ".join(part.split()).strip(" ,;.")
                row = label if len(parts) == 1 else ""
                yield Statement("clause", -1, row, "", shown, _plain(" ".join(held)), shape, own, frozenset(), heading)
    if not any(form.search(sentence) for form in SHAPES.values()):
        own = stems(sentence) | subject
        yield Statement("clause", -1, label, "", sentence, _plain(sentence), "text", own, frozenset(), heading)


class Wanted(NamedTuple):
    """What a question asks for, in stems.

    core: those that say what it is about. rest: others that may tell statements apart. shape: kind of value, '' where
    none is told. numbers: figures that it names. places: how what it asks for lies to the events that it names.
    """

    core: tuple[str, ...]
    rest: frozenset[str]
    shape: str
    numbers: frozenset[str]
    places: Mapping[str, frozenset[str]] = {}


def wanted(question: str, names: Iterable[str], pack: Pack, chunks: Sequence[Chunk] = ()) -> Wanted:
    """What a question asks for, its names and the words for the kind of value aside.

    Of several sentences the one with the question mark asks; the others may tell what is meant. Words of the title of
    the only document at hand tell nothing in it. A word that the documents have in a shorter form is taken for it.
    """
    question, story = _asking_sentence(question)
    shape = first_entry(pack.value_words, question) or ""
    expressions = (*(pack.value_words[shape] if shape else ()), *pack.form_words)
    told = stems(" ".join(spans(expressions, question)))
    named, idle = stems(" ".join(names)), pack.filler | SMALL
    known = frozenset[str]().union(*(word_stems(chunk.text) for chunk in chunks))
    # A name that the documents have tells statements apart, and need not be repeated in each of them.
    titled = _title_stems(chunks) | (known & stems(" ".join(_CAPITAL.findall(question))))
    same = {_stem(word): _stem(other) for word, other in pack.same.items()}
    core: dict[str, None] = {}
    rest: set[str] = set()
    for word in content_terms(plain_terms(question)):
        stem = _stem(word)
        if stem in named:
            continue
        if word in idle or stem in told or stem in titled or len(word) < 2 or word.isdigit():
            rest.add(stem)
            continue
        stem = same.get(stem, stem)
        core[stem if stem in known or stem[:SHORT] not in known else stem[:SHORT]] = None
    if not core and shape not in CONTACT:  # `what is the limit?` names the kind of value alone
        nouns = (word for word in content_terms(" ".join(spans(pack.value_words.get(shape, ()), question))))
        core = {_stem(word): None for word in nouns if word not in idle and _stem(word) in known}
    rest |= word_stems(story) - frozenset(core)
    # `one` is mostly no number
    numbers = frozenset(stem for stem in rest if stem.isdigit() and (stem != "1" or "1" in question))
    return Wanted(tuple(core), frozenset(rest), shape, numbers, event_places(question))


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


def _asking_sentence(question: str) -> tuple[str, str]:
    """The last sentence with a question mark, and what stands around it."""
    parts = [part for part in re.split(r"(?<=[.?!…]) +", question.strip()) if part]
    asks = [part for part in parts if part.rstrip().endswith("?")]
    if len(parts) < 2 or not asks:
        return question, ""
    return asks[-1], " ".join(part for part in parts if part is not asks[-1])


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
    tied = _parallel(_best(list(statements(chunks)), asked, chunks))
    if len({one.figures for one in tied}) < 2:
        return None
    if _is_told_by_numbers(asked.numbers, tied):
        return None
    words = tuple(stem for stem in asked.core if all(stem in one.words for one in tied))
    for axis, parts in _axes(tied, chunks, pack):
        if axis == "clause" and not asked.shape:  # what no kind of value answers no clause answers otherwise
            return None
        stated = {name: frozenset(one.figures for one in some) for name, some in parts.items() if name}
        if len(set(stated.values())) > 1:
            names = tuple(stated)
            return Readings(axis, names, tuple(parts[name][0] for name in names), words)
    return None


def _is_told_by_numbers(numbers: frozenset[str], tied: Sequence[Statement]) -> bool:
    """Whether a number of a question tells which statement is meant, by itself or by a range that it falls into.

    A year tells nothing where all of them speak of it, or none.
    """
    years = frozenset(number for number in numbers if _YEAR.fullmatch(number))
    of_year = [bool(years & word_stems(f"{one.row} {one.head} {one.value}")) for one in tied]
    counted = bool(numbers - years) and any(stem.isdigit() for one in tied for stem in one.own)
    return counted or (bool(years) and any(of_year) and not all(of_year))


def _best(stated: Sequence[Statement], asked: Wanted, chunks: Sequence[Chunk]) -> list[Statement]:
    """Statements that have most of the words of a question; () where they lack too many of them."""
    core, rest = frozenset(asked.core), asked.rest
    foreign = core.difference(*(one.words for one in stated))
    if (not core and asked.shape not in CONTACT) or len(foreign) > FOREIGN * len(core):
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
            yield "document", _parts(tied, lambda one: chunks[one.at].tags.get("title", "") or chunks[one.at].file_name)
        return
    cells = [one for one in tied if one.form == "cell"]
    if cells and len(cells) == len(tied):
        rows, heads = _parts(tied, lambda one: one.row), _parts(tied, lambda one: one.head)
        if len(heads) > 1 and len(rows) == 1:
            yield column_axis(tuple(heads), pack), heads
        dated = {row: some for row, some in rows.items() if _is_dated(row)}
        if len(dated) > 1 and are_versions(tuple(dated), pack):
            yield "version", dated
        yield ("person" if tied[0].shape == "person" else "row"), rows
        if len(heads) > 1:
            yield column_axis(tuple(heads), pack), heads
    lines = [one for one in tied if one.form == "line"]
    if lines and len(lines) == len(tied):
        yield ("person" if tied[0].shape == "person" else "row"), _parts(tied, lambda one: one.row)
    if len(tied) == 2 and tied[0].shape != "date" and are_versions([one.value for one in tied], pack):
        yield "version", _parts(tied, lambda one: one.value)
    common = frozenset.intersection(*(one.own for one in tied))
    yield "clause", _parts(tied, lambda one: telling_words(one, common))


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
    told = [[bool(first_match(v.heads, one)) for one in clauses] for v in (pack.versions.old, pack.versions.new)]
    dated = any(_YEAR.search(one) or SHAPES["date"].search(one) for one in clauses)
    return dated and any(one != other for one, other in told)


def sorted_versions(names: Sequence[str], stated: Sequence[Statement], pack: Pack) -> tuple[Statement, Statement]:
    """The older and the newer of two statements: by the pack's words for both, by their years, or as they come."""
    old, new = ([bool(first_match(v.heads, name)) for name in names] for v in (pack.versions.old, pack.versions.new))
    years = [max(_YEAR.findall(name), default="") for name in names]
    turned = (new[0] and not new[1]) or (old[1] and not old[0]) or (old[0] == old[1] and years[0] > years[1])
    return (stated[1], stated[0]) if turned else (stated[0], stated[1])


def column_axis(heads: Sequence[str], pack: Pack) -> str:
    """What the heads of some columns tell apart: versions, models, or something else."""
    olds, news = (
        [bool(first_match(version.heads, head)) for head in heads] for version in (pack.versions.old, pack.versions.new)
    )
    dated = [bool(_YEAR.search(head) or SHAPES["date"].search(head)) for head in heads]
    if (any(olds) and any(news)) or all(dated):
        return "version"
    return "model" if all(_MODEL.search(head) for head in heads) else "column"


def telling_words(one: Statement, common: frozenset[str]) -> str:
    """Words that tell a statement from those that share `common`: of a cell or line its label, else of its sentence."""
    if one.form != "clause" or one.row:
        return one.row or one.head
    form = SHAPES.get(one.shape)
    bare = form.sub(" | ", one.value) if form is not None else one.value
    words = re.findall(r"[^\W\d_][\w'’-]*|\||\d\S*", bare)
    content = [stems(word) for word in words]
    marks = [bool(own - common) for own in content]
    breaks = [not word[0].isalpha() or bool(own & common) for word, own in zip(words, content, strict=True)]
    best = (0, 0)  # the longest run of telling words, with small words between them
    start = None
    for at in range(len(words) + 1):
        joins = at < len(words) and not breaks[at] and (marks[at] or start is not None)
        if joins and start is None:
            start = at
        elif not joins and start is not None:
            best = max(best, (sum(marks[start:at]), -start), key=lambda run: run)
            start = None
    if not best[0]:
        return ""
    first = -best[1]
    last = first
    while last < len(words) and last - first < _TELLING and not breaks[last]:
        last += 1
    while not marks[last - 1]:
        last -= 1
    first -= (
        first > 0 and not content[first - 1] and not breaks[first - 1]
    )  # `during probation`: the small word before it belongs to it
    return " ".join(words[first:last])
