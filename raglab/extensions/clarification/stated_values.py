"""Stated values (shore): what passages state, with the words of their own that say what it is (S5.1).

A statement is a figure, name or short text: a cell of a table with the label of its row and the head of its column, a
line with a label, or a clause of a sentence. No word of a trade is needed to find them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from raglab.extensions.clarification.contents import contents
from raglab.extensions.clarification.contents_layouts import bare_title
from raglab.extensions.clarification.question_vocabulary import READ, plain_terms, section
from raglab.languages import LANGUAGES
from raglab.numerals import CURRENCY_CODES, CURRENCY_SIGNS, any_of, tables
from raglab.text import STOP_WORDS, Piece, content_terms, pieces
from raglab.values import Chunk

STEM, SHORT = 5, 4  # letters of a word that are compared, and of one that is met by its longer forms
_LONGEST_LABEL = 60  # characters
_LONGEST_VALUE = 160
_SHORT_VALUE = 6  # words of a value that is one


class Statement(NamedTuple):
    """Something that a passage states, with the words that say what it is.

    form: `cell` of a table, `line` with a label, or `clause` of a sentence. block: number of its table, run of lines or
    paragraph within the passage. row: label of its row or line. head: of its column. value: as printed. figures: what
    it states, to compare. shape: kind of value, such as `amount`, `duration`, `person`, `text`. own: stems of row, head
    and clause. shared: stems that its whole block shares. heading: stems of the heading. at: position of its passage.
    lead: of a clause, the sentence up to its first value, and the sentence before it whose subject it goes on with.
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
    lead: str = ""

    @property
    def words(self) -> frozenset[str]:
        """All stems that say what it is."""
        return self.own | self.shared | self.heading


def _shapes() -> dict[str, re.Pattern[str]]:
    """How each kind of value is printed, the surest first."""
    known, quantities = tables(), LANGUAGES.quantities
    words = any_of({*known.numbers, *known.inside, "a", "an"})
    months = any_of(known.months)
    times = ("working days", "days", "nights", "weeks", "months", "years", "hours", "minutes")
    periods = any_of(name for unit in times for name in quantities.units.get(unit, ()))
    signs, codes = any_of(CURRENCY_SIGNS), any_of(CURRENCY_CODES)
    codes_named = any_of(map(plain_terms, LANGUAGES.questions.codes))
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
        "code": rf"\b(?:{codes_named})\b[.:]{{0,2}} ?(?:(?:{codes_named})\b[.:]{{0,2}} ?)?"
        r"(?-i:(?=[\w/-]{0,14}\d)[A-Z\d][\w/-]{2,15})(?!\w)",
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
NUMBERING = re.compile(
    r"^(?:(?:section|chapter|part|chapitre|partie|article)\s+)?(?:\d{1,3}(?:\.\d{1,3}){0,3}|[IVX]{1,4}(?:\.\d{1,2}){1,2}|[A-H])[.:)]?\s*[—–:-]*\s+",
    re.IGNORECASE,
)
YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_DIGITS = re.compile(r"\d\S*")
_INLINE = re.compile(r"(?<=[.;]) +(?=[A-ZÀ-Þ][^:.;]{1,50} ?: )")  # labels within a line
_UNSPLIT = re.compile(r"(?<=[\d°][A-Z%])\. +(?=[A-ZÀ-Þ])|(?<=\d)\. +(?=[A-ZÀ-Þ])")  # behind `104 °F.` a sentence ends
_PRONOUN = re.compile(
    r"^(?:[^:]{0,60}[, ] ?)?(?:it|they|il|elle|ils|elles"
    r"|(?:this|that|the|ce|le) (?:figure|amount|rate|montant|taux))\b",
    re.IGNORECASE,
)
_PAGE_HEAD = re.compile(r"(?:printed )?(?:pages?|p\.)$", re.IGNORECASE)  # a table of contents states nothing


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
    return frozenset(map(stem_of, content_terms(plain_terms(text))))


SMALL = frozenset(plain_terms(word) for word in (*LANGUAGES.words.small, *LANGUAGES.words.asking))  # as questions have


_UNIT_NAMES = {
    plain_terms(name): plain_terms(unit) for unit, names in LANGUAGES.quantities.units.items() for name in names
}


def stem_of(word: str) -> str:
    """Beginning of a word, without the ending of a plural."""
    word = _UNIT_NAMES.get(word, word) if word.startswith("kilom") else word
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
    heading = NUMBERING.sub("", section(chunk.text)).strip()
    title = chunk.tags.get("title", "")
    return "" if plain_terms(heading) == plain_terms(title) else heading


def statements(chunks: Sequence[Chunk]) -> Iterator[Statement]:
    """What passages state, in their order."""
    for at, chunk in enumerate(chunks):
        listed = _contents_titles(chunk.text)
        for one in _statements(chunk.text):
            if not listed or bare_title(one.row or one.value) not in listed:  # where something stands is no answer
                yield one._replace(at=at)


@lru_cache(maxsize=READ)
def _contents_titles(text: str) -> frozenset[str]:
    return frozenset(bare_title(entry.title) for entry in contents([Chunk("contents", text, "contents", 1)]))


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
    before, lead, title = "", frozenset(), heading
    for sentence in (part for piece in found[1:] if piece.kind == "prose" for part in _parted(piece.text)):
        if sentence.rstrip(" *_").endswith("?"):  # what follows is its answer, as under a heading
            heading = title | stems(sentence)
        labelled = _LABELLED.match(sentence)
        # `From 1 May it is £45` says again what the sentence before it speaks of.
        again = _PRONOUN.search(sentence) and is_dated(sentence) and _states_one_kind(before, sentence)
        subject = stems(before) if again else frozenset()
        if labelled is None:
            made += _clauses(sentence, heading, subject, previous=before if again else "")
            lead = stems(sentence)
        else:
            made += _with_lead(_line(labelled, heading, block + 1), lead)
        before = sentence
    return tuple(made)


def _parted(sentence: str) -> Iterator[str]:
    for part in _INLINE.split(sentence):
        yield from _UNSPLIT.split(part)


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


def is_dated(text: str) -> bool:
    """Whether a text has a year or a date."""
    return bool(YEAR.search(text) or SHAPES["date"].search(text))


def _states_one_kind(before: str, after: str) -> bool:
    """Whether two sentences state a value of one kind, dates aside."""
    return any(form.search(before) and form.search(after) for kind, form in SHAPES.items() if kind != "date")


def _clauses(
    sentence: str,
    heading: frozenset[str],
    subject: frozenset[str] = frozenset(),
    *,
    label: str = "",
    previous: str = "",
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
        begin = f"{previous} {sentence[: values[0].start()]}"
        lead = stems(sentence[: values[0].start()]) | subject
        for part in parts:
            held = [match[0] for match in form.finditer(part)]
            if held:
                own = stems(form.sub(" ", part)) | lead
                shown = " ".join(part.split()).strip(" ,;.")
                row = label if len(parts) == 1 else ""
                figures = _plain(" ".join(held))
                made = Statement("clause", -1, row, "", shown, figures, shape, own, frozenset(), heading)
                yield made._replace(lead=begin)
    if not any(form.search(sentence) for form in SHAPES.values()):
        own = stems(sentence) | subject
        yield Statement("clause", -1, label, "", sentence, _plain(sentence), "text", own, frozenset(), heading)
