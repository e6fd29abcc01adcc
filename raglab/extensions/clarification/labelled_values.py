"""Labelled values (shore): a value beside the words by which documents name it, or nothing.

A place is a `Label: value` line, a row or a column of a table, a sentence in which nothing but small words parts label
and value, or a section under a heading. Where the places that name the field best state different values, the words of
the question may tell them apart by the other words of row, column, heading or sentence; else none is taken.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from typing import NamedTuple

from raglab.characters import unaccented
from raglab.extensions.clarification.field_rules import (
    ChunkReading,
    Opening,
    column_in_question,
    is_old_and_new,
    opening_of,
)
from raglab.extensions.clarification.typed_values import TypedValue, fold, same_values, typed_values
from raglab.languages import LANGUAGES
from raglab.packs import FieldReading, ValueKind, compile_expression
from raglab.text import STOP_WORDS, Piece, sentence_ends, split_words

_WORDS = LANGUAGES.values
_STEM = 5  # letters by which two words are the same word
PAIR, QUALIFIED, SENTENCE, HEADING = range(4)  # how surely a place names the field, the surest first
_LABEL_WORDS = 9  # words of a label at most, and of a heading
_LOOSE = frozenset({"phone", "email", "url"})  # kinds that nothing else looks like: words may stand before them
_NAMES = frozenset({"person", "organisation"})
_ARTICLES = frozenset({"the", "le", "la", "les"})
_LABEL_CHARS = 40  # characters before a value that are looked at
_MOST_CELLS = 32  # of a row; wider tables are data and no statement of a field
_PAIRED = 2  # cells of a row that holds a label and its value
_LONGEST_TEXT = 160  # characters of a value of kind text


class Place(NamedTuple):
    """A value beside a label.

    rank: `PAIR`, `QUALIFIED`, `SENTENCE` or `HEADING`. value: as printed. sentence: line, row or sentence, without
    marks. chunk: position among those given. words: stems of the further words of label, row, head and section. timed:
    whether it says that it is an old figure or a new one; former: that it is an old one. pair: label and value alone,
    of a line that may hold several such pairs; "" where the whole sentence states the value.
    """

    rank: int
    value: TypedValue
    sentence: str
    chunk: int
    words: frozenset[str]
    timed: bool
    former: bool = False
    pair: str = ""


def labelled_value(
    reading: FieldReading, pages: Sequence[ChunkReading], about: str = "", own_words: frozenset[str] = frozenset()
) -> Place | None:
    """The value of a field by the labels of its reading; None where there is none, or where several are open.

    Args:
      reading: with `kind` and `labels`. pages: best first. about: words of the question, which may tell several values
        apart. own_words: stems of those that name the field and tell nothing apart.
    """
    chosen = _choice(labelled_values(reading, pages, about), telling_stems(reading, about, own_words))
    if chosen is not None and chosen.former and not _timing(False).search(fold(about)):
        return None  # an old figure is no answer but to who asks for one
    return chosen


def telling_stems(reading: FieldReading, about: str, own_words: frozenset[str]) -> frozenset[str]:
    """Stems of a question that may tell one value of a field from another; arguments as in `labelled_value`."""
    return _stems(about) - own_words - _label_stems(reading)


def timing(text: str) -> str:
    """`former` where a text tells an old figure, `newer` where a new one alone, '' where neither."""
    plain = fold(text)
    if _timing(False).search(plain):
        return "former"
    return "newer" if _timing(True).search(plain) else ""


def labelled_values(reading: FieldReading, pages: Sequence[ChunkReading], about: str | None = None) -> list[Place]:
    """Every place of some pages that states a value beside a label of the field, in the order of the pages.

    Args:
      reading, pages: as in `labelled_value`. about: words of the question, which tell whether of an old and a new
        column the old one is meant; None for the values of both.
    """
    label = label_expression(reading.labels)
    found: list[Place] = []
    for page in pages:
        if reading.under is not None and not compile_expression(reading.under).search(page.section):
            continue
        reader = _Reader(reading, label, page, about)
        kept = (place for place in reader.places() if not _left_out(reading, place))
        found.extend(place for place in kept)
    return found


def _left_out(reading: FieldReading, place: Place) -> bool:
    stated = place.pair or place.sentence  # the pairs beside it on its line say nothing about it
    return reading.without is not None and compile_expression(reading.without).search(stated) is not None


def _choice(places: Sequence[Place], wanted: frozenset[str]) -> Place | None:
    """The place whose value is the field's; None where different values are open."""
    if not places:
        return None
    telling = wanted & frozenset().union(*(place.words for place in places))
    shared = max(len(telling & place.words) for place in places)
    # a word of the question that only some places have chooses among them; else the surest kind of place does
    best = [place for place in places if len(telling & place.words) == shared] if shared else list(places)
    best = [place for place in best if place.rank == min(one.rank for one in best)]
    if not all(place.value.whole for place in best) or not same_values(place.value for place in best):
        return None
    if shared and best[0].rank >= SENTENCE:  # a sentence has many words: against a line or row they decide nothing
        surer = [place for place in places if place.rank < best[0].rank]
        return best[0] if same_values(place.value for place in (best[0], *surer)) else None
    rivals = [place for place in places if place.timed != best[0].timed and place.rank <= QUALIFIED and not shared]
    if not same_values(place.value for place in (best[0], *rivals)):
        return None  # an old figure and a new one
    return best[0]


# -- labels ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def label_expression(labels: tuple[str, ...]) -> re.Pattern[str]:
    """Labels as whole words of a folded text."""
    whole = "|".join(f"(?:{_plain_expression(label)})" for label in sorted(labels, key=lambda label: -len(label)))
    return re.compile(rf"(?<![^\W_])(?:{whole})(?![^\W_])", re.IGNORECASE)


def _plain_expression(expression: str) -> str:
    """An expression without accents; letters behind a backslash are left alone."""
    return re.sub(
        r"\\.|[^\\]+",
        lambda match: match[0] if match[0][0] == "\\" else unaccented(match[0]),
        expression.replace("’", "'"),
    )


@lru_cache(maxsize=512)
def _label_stems(reading: FieldReading) -> frozenset[str]:
    return _stems(" ".join(re.sub(r"\\.|[^\w\s'-]", " ", label) for label in reading.labels))


@lru_cache(maxsize=8192)
def _stems(text: str) -> frozenset[str]:
    """First letters of the words that tell one place from another, and letters that stand alone (`Grade C`)."""
    plain = unaccented(text)
    kept = {word[:_STEM] for word in split_words(plain) if (len(word) > 1 or word.isdigit()) and word not in STOP_WORDS}
    return frozenset(kept | {f"={letter}" for letter in re.findall(r"(?<![\w'’])[A-Z](?![\w'’])", plain)})


@cache
def _forms_of_firms() -> frozenset[str]:
    return frozenset(map(fold, _WORDS.firms))


@cache
def _linking() -> frozenset[str]:
    return frozenset(fold(word) for word in _WORDS.link) | frozenset(map(fold, LANGUAGES.numerals.endings))


@cache
def _doubting() -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, map(fold, _WORDS.doubt)))})(?![^\W_])|n't(?![^\W_])")


@cache
def _timing(newer: bool) -> re.Pattern[str]:  # noqa: FBT001
    """Words that tell an old figure, or an old or a new one."""
    patterns = "|".join(fold(pattern) for pattern in (*_WORDS.former, *(_WORDS.newer if newer else ())))
    return re.compile(rf"(?<![^\W_])(?:{patterns})(?![^\W_])")


@cache
def _clauses() -> re.Pattern[str]:
    return re.compile("|".join(fold(pattern) for pattern in _WORDS.clause))


def _is_link(text: str) -> bool:
    """Whether a folded text holds nothing but small words that may part a label and its value."""
    words = re.findall(r"[a-z][a-z'-]*|\d+|[^\s\w]", _short_or_bound().sub(" ", text))
    return all(word in _linking() or word in {",", ":", "'", "-", "(", '"', "*"} or _elided(word) for word in words)


@cache
def _short_or_bound() -> re.Pattern[str]:
    """What tells that a value is rounded or a bound, and is no word of its label: `approx.`, `not above`."""
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(map(fold, _WORDS.bounds))})(?![^\W_])")


def _elided(word: str) -> bool:
    """Whether a word is made of small ones: `d'un`, `s'eleve`, `weeks'`."""
    parts = [part for part in re.split(r"['-]", word) if part]
    return "'" in word and all(part in _linking() or len(part) == 1 for part in parts)


# -- lines -------------------------------------------------------------------------------------------------------------

_EMPHASIS = re.compile(r"\*{1,3}|`|(?<![^\W_])(_{1,3})(?=[^\s_])([^_\n]{1,200})(?<=\S)\1(?![^\W_])")
_IMAGE_OR_LINK = re.compile(
    r"!?\[([^\[\]]{0,200})\]\([^()\s]{0,300}\)|<((?:https?://|mailto:)?[^<>\s]{3,200}[@.][^<>\s]{1,99})>"
)
_FOOTNOTE = re.compile(r"\[\^[^\[\]]{1,9}\]|(?<=\S)[¹²³⁴⁵⁶⁷⁸⁹⁰†‡]{1,3}(?=[\s).,;:|]|$)")
_TAG = re.compile(r"</?[a-z][a-z0-9]{0,9}\s?/?>", re.IGNORECASE)
_TITLED = r"(?=[*_]{0,3}(?:[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ]{2}|[A-ZÀ-ÖØ-Þ]{4}))"  # `4.1 Paid leave`, and no `2.5 GHz`
_MARK = re.compile(
    r"^\s*(?:>\s?)*(?:[-*+•▪‣–—]\s+|\d{1,2}[.)]\s+(?=[^\d\s])|\((?:[a-z]{1,3}|[A-Z]|\d{1,2})\)\s+"
    rf"|(?:§\s?)?(?:\d{{1,2}}|[IVX]{{1,4}}|[A-Z])(?:\.\d{{1,2}}){{1,3}}\.?\s+{_TITLED}"
    r"|(?:§|[Aa]rt(?:icle|\.)|[Cc]lause|[Ss]ection)\s?\d{1,3}(?:\.\d{1,2}){0,3}"
    rf"(?:\.|\s[–—-])\s+{_TITLED})?(?:\[[ x]\]\s)?"
)
_UNITS_BEHIND = frozenset("²³")
_SEGMENT = re.compile(
    r"(?:^|(?<=[;|·•(/,])\s{0,3}|(?<=[.!?])\s{1,3}|\s[–—-]\s|\s{2,9})"
    r"(?P<label>[^\W\d_][^:;|·•,()\n]{0,70}?)\s?(?:(?<!\d):(?!//)(?=\S)|:\s)"
)
_PARTED = re.compile(
    r"^(?P<label>[^:|]{2,90}?)"
    r"(?:\s?(?:\.\s?){3,200}\s?|\s?…{1,40}\s?|\s?_{3,200}\s?|\t+|\s{3,200}|(?<!\d)\s[–—-]\s|\s(?:[|=→]|=>)\s)"
    r"(?P<value>\S.*)$"
)


class _Segment(NamedTuple):
    """A label of a line that is followed by its value, and where that begins; lead: its sentence up to the label."""

    start: int
    end: int
    label: str
    lead: str


def _segments(line: str, *, loose: bool) -> Iterator[_Segment]:
    """Labels of a line with their values behind; none runs over the end of a sentence.

    What stands before a comma belongs to the first label of its sentence, for `dinner` alone is not what `Lunch,
    dinner: £12` states; loose: but not for values that nothing else looks like, which often follow a name.
    """
    ended = 0
    # one word alone is short for a longer one: `Max. Temp.: 5 °C`
    begins = [0, *(last for first, last in sentence_ends(line) if line[last].isupper() and 0 < line.find(" ") < first)]
    for match in _SEGMENT.finditer(line):
        start = match.start("label")
        label = match["label"]
        begun = max(ended, begins[bisect_right(begins, match.end("label")) - 1])
        before = line[begun:start].rstrip()
        if begun > start or (not loose and not ended and before.endswith(",") and not re.search(r"[\d:;|(]", before)):
            start, label = begun, line[begun : match.end("label")]
        lead = line[begun:start] if begun > ended or not ended else ""
        yield _Segment(match.start() if start == match.start("label") else start, match.end(), label, lead)
        ended = match.end()


def begins_with_label(line: str) -> bool:
    """Whether a line is a label with its value behind, and goes on with no other line's text."""
    return _SEGMENT.match(plain_line(line)) is not None


def _of_one_sentence(values: list[TypedValue], said: str) -> list[TypedValue]:
    """Values up to the end of the first one's sentence; all, where what follows it may narrow or change that one."""
    ends = [(first, last) for first, last in sentence_ends(said) if values and first >= values[0].end]
    if not ends or not said[ends[0][1]].isupper():
        return values
    behind = fold(said[ends[0][1] :])
    opening = re.split(r"[\s,]", behind, maxsplit=1)[0]
    if opening in _opening_words() or _timing(True).search(behind):
        return values
    return [value for value in values if value.start < ends[0][0]]


@cache
def _opening_words() -> frozenset[str]:
    return frozenset(map(fold, (*_WORDS.qualify, *_WORDS.start, *_WORDS.conditions)))


def plain_line(line: str) -> str:
    """A line without Markdown's marks, links and footnote marks, which are no part of a value.

    Example:
      >>> plain_line("- **Phone:** [0800 123 4567](tel:08001234567)[^1]")
      'Phone: 0800 123 4567'
    """
    text = _MARK.sub("", line, count=1)
    text = _IMAGE_OR_LINK.sub(
        lambda match: match[1] if match[1] is not None else match[2].removeprefix("mailto:"), text
    )
    text = _EMPHASIS.sub(lambda match: match[2] or "", text.replace("\\*", "").replace("&nbsp;", "\u00a0"))
    text = _TAG.sub(" ", text)
    return _FOOTNOTE.sub(
        lambda match: match[0] if match[0] in _UNITS_BEHIND and match.string[match.start() - 1].isalpha() else "", text
    ).strip()


class _Line(NamedTuple):
    """A line of prose as it stands: without marks, and what the lines of its paragraph go on with."""

    text: str
    rest: str
    follows: tuple[str, bool]  # the next line, and whether a blank line parts it
    opening: Opening | None = None


def _lines(text: str, skip: bool) -> Iterator[tuple[str, _Line]]:  # noqa: FBT001
    """Lines of prose with the heading inside the passage that they stand under; tables are read by rows."""
    raw = text.splitlines()[1:] if skip else text.splitlines()
    head = ""
    for n, line in enumerate(raw):
        bare = line.strip()
        if not bare or bare.startswith("|"):
            continue
        if re.match(r"#{1,6}\s", bare):
            head = plain_line(bare.lstrip("# "))
            continue
        rest = []
        for later in raw[n + 1 : n + 4]:
            if (
                not later.strip()
                or re.match(r"\s*(?:[-*+•]\s|\d{1,2}[.)]\s|#{1,6}\s|\|)", later)
                or _SEGMENT.match(plain_line(later))
                or opening_of(later)
            ):
                break
            rest.append(plain_line(later))
        behind = raw[n + 1 : n + 3]
        gap = len(behind) > 1 and not behind[0].strip()
        following = behind[1] if gap else behind[0] if behind else ""
        yield head, _Line(plain_line(line), " ".join(rest), (following, gap), opening_of(line))


# -- places ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _folded_parts(page: ChunkReading) -> tuple[str, ...]:
    """Lines, cells and sentences of a page by themselves: a label that must stand alone is seen in them only."""
    cells = (cell for piece in page.stated for cell in (piece.text, *piece.cells, *piece.heads))
    segments = (match["label"] for line in page.text.splitlines() for match in _SEGMENT.finditer(plain_line(line)))
    heads = page.printed.split(" > ")
    parts = (*map(plain_line, page.text.splitlines()), *cells, *segments, *heads)
    return tuple(dict.fromkeys(fold(part) for part in parts if part))


class _Reader:
    """What reads one page for one field."""

    def __init__(self, reading: FieldReading, label: re.Pattern[str], page: ChunkReading, about: str | None) -> None:
        self.reading, self.label, self.page, self.about = reading, label, page, about
        self.kind: ValueKind = reading.kind or "text"

    def places(self) -> Iterator[Place]:
        """Every place of the page, surest first within each way to write one."""
        if not (self.label.search(fold(self.page.text)) or any(map(self.label.search, _folded_parts(self.page)))):
            return
        yield from self._pairs()
        for piece in self.page.stated:
            if piece.kind in {"row", "head"}:
                yield from self._row(piece)
        for piece, after in zip_longest(self.page.stated, self.page.stated[1:]):
            if piece.kind == "prose":
                yield from self._sentence(piece.text, after.text if after is not None else "")
        yield from self._under_heading()

    def _place(self, rank: int, value: TypedValue, sentence: str, said: str, *, narrowed: bool = False) -> Place:
        """A place; said: words of label, row or head. narrowed: whether they narrow the field to a part of it."""
        words = _stems(f"{self.page.section} {said}")
        plain = fold(said) if self.kind != "date" else ""
        timed, former = (_timing(both).search(plain) is not None for both in (True, False))
        rank = QUALIFIED if narrowed and rank == PAIR else rank
        return Place(rank, value, sentence, self.page.place, words, timed, former)

    def _named(self, text: str) -> str | None:
        """What a label says beyond the field's name, '' for nothing; None where it does not name the field."""
        plain = fold(text)
        match = self.label.search(plain)
        if match is None or len(plain.split()) > _LABEL_WORDS:
            return None
        if re.search(r",\s?\Z", plain[: match.start()]) and plain[match.end() :].lstrip().startswith(","):
            return None  # one of a list of things, which is no name of any: `laptop, phone, passwords`
        before = re.sub(r"\d+", " ", text[: match.start()])  # the number of a section
        words = re.findall(r"[\w'’-]+", f"{before} {text[match.end() :]}")
        return " ".join(word for word in words if fold(word) not in _linking())

    def _values(self, text: str) -> list[TypedValue]:
        """Values with which the text behind a label begins; several where it states several."""
        if self.kind == "text":
            return [value for value in typed_values("text", text) if len(value.text) <= _LONGEST_TEXT]
        values = list(typed_values(self.kind, text, self.page.language))
        if not values:
            return []
        if self.kind not in _LOOSE and not _is_link(fold(text[: values[0].start])):
            return []
        if self.kind in _NAMES:
            return self._names(text, values)
        if self.kind == "reference":
            return values[:1] if len(values) == 1 or re.match(r"\s?[,;(.–—-]", text[values[0].end :]) else values
        return values

    def _names(self, text: str, values: list[TypedValue]) -> list[TypedValue]:
        """Names that stand side by side; what follows a comma or a bracket is an address or a role."""
        article = text[: values[0].start].strip()
        if self.kind == "organisation" and article[:1].isupper() and fold(article) in _ARTICLES:
            # it begins no sentence here, so that its capital is the name's
            values = [values[0]._replace(start=0, text=text[: values[0].end].strip()), *values[1:]]
        kept = values[:1]
        for value in values[1:]:
            joint = fold(text[kept[-1].end : value.start]).strip()
            if joint not in {"and", "et", "or", "ou", "&", "/", ";"}:
                break
            kept.append(value)
        return kept

    def _pairs(self) -> Iterator[Place]:
        """`Label: value`, `Label ..... value`, `Label — value`, and a label above its value."""
        for head, line in _lines(self.page.text, self.page.headed):
            opened = list(self._opened(line, head))
            if opened:
                yield from opened
                continue
            segments = list(_segments(line.text, loose=self.kind in _LOOSE))
            for one, after in zip_longest(segments, segments[1:]):
                said = line.text[one.end : after.start if after else len(line.text)]
                for place in self._pair(one.label, said, line, head, last=after is None):
                    yield place._replace(pair=f"{one.lead}{one.label}: {said}") if len(segments) > 1 else place
            if not segments:
                parted = _PARTED.match(line.text)
                direct = self.label.match(fold(line.text)) if self.kind != "text" else None
                if parted:
                    yield from self._pair(parted["label"], parted["value"], line, head, last=True)
                elif (
                    direct and re.match(r"\.?\s", line.text[direct.end() :]) and self._follows(line.text, direct.end())
                ):
                    yield from self._pair(direct[0], line.text[direct.end() :].lstrip(". "), line, head, last=True)
                else:
                    yield from self._label_above(line, head)

    def _opened(self, line: _Line, head: str) -> Iterator[Place]:
        """`**Label** value` and `Question? Value`, where no colon parts the two."""
        opening = line.opening
        if opening is None or not opening.said or _SEGMENT.match(line.text) or self.kind == "text":
            return
        said = plain_line(opening.said)
        first = next(sentence_ends(said), None)
        clause = re.split(r";\s", said[: first[0]] if first else said, maxsplit=1)[0]
        if self.kind in _LOOSE and typed_values(self.kind, said) and not typed_values(self.kind, clause):
            return  # what a later sentence says is of another matter
        for place in self._pair(opening.label.rstrip(" ?"), said, line, head, last=True):
            article, _, name = place.value.text.partition(" ")  # it begins the sentence here, and is not the name's
            bare = (
                place.value._replace(text=name) if self.kind in _NAMES and fold(article) in _ARTICLES else place.value
            )
            yield place._replace(value=bare)

    def _pair(self, label: str, said: str, line: _Line, head: str, *, last: bool) -> Iterator[Place]:
        further = self._named(label)
        if further is None:
            return
        if last and not said.strip():
            yield from self._label_above(line._replace(text=label), head)
            return
        values = _of_one_sentence(self._cell(_bare(said), label), _bare(said))
        if last and line.rest:  # a value may go on in the next line: both readings must agree
            longer = self._values(f"{_bare(said)} {line.rest}")
            if self.kind == "text":
                values = [] if not re.search(r"[.!?]$", said.strip()) and line.rest[:1].islower() else values
            elif self.kind == "reference" and values:
                pass  # no reference runs over the end of a line
            elif not values:
                values = longer[:1]
            elif not longer or longer[0].text != values[0].text or not longer[0].whole:
                values = [value._replace(whole=False) for value in values]
        if self.kind == "date" and len(values) > 1 and fold(label).split()[-1] in _WORDS.start:
            values = values[:1]  # `Valid from 1 May to 30 June` says which of the two is meant
        for value in values:
            yield self._place(PAIR, value, line.text, f"{further} {head}", narrowed=bool(further))

    def _follows(self, text: str, at: int) -> bool:
        """Whether a value follows at once: `Tel. 0800 123 4567`, `Notice period 4 weeks`, `Valid from the 1 May`."""
        said = text[at:].lstrip(". ")
        values = typed_values(self.kind, said, self.page.language)
        return bool(values) and (values[0].start == 0 or _is_link(fold(said[: values[0].start])))

    def _label_above(self, line: _Line, head: str) -> Iterator[Place]:
        """A label on a line of its own, and the value on the next, as definition lists have them."""
        following, parted = line.follows
        if not following or len(line.text.split()) > _LABEL_WORDS // 2 + 1 or line.text.endswith((".", "!", "?")):
            return
        below = plain_line(following.strip().removeprefix(":").strip())
        further = self._named(line.text.rstrip(": "))
        if further is None or following.lstrip().startswith(("|", "#")) or _SEGMENT.match(below):
            return
        if parted and not (self.kind in _LOOSE or len(below.split()) <= _LABEL_WORDS):
            return
        for value in self._values(below):
            yield self._place(PAIR, value, below, f"{further} {head}", narrowed=bool(further))

    def _row(self, piece: Piece) -> Iterator[Place]:
        """Values of a row that a cell of it names, and of the column whose head names the field."""
        if len(piece.cells) > _MOST_CELLS:
            return
        cells = [plain_line(cell) for cell in piece.cells]
        heads = [plain_line(cell) for cell in piece.heads] or [""] * len(cells)
        if piece.kind == "head" and not self._is_first_pair(cells):
            return
        by_column = [n for n, head in enumerate(heads) if head and self._named(head) is not None]
        for n, cell in enumerate(cells):
            further = self._named(cell) if cell else None
            if further is None:
                continue
            others = [m for m in range(len(cells)) if m != n and (self.kind != "text" or m == n + 1)]
            others = [m for m in others if m in by_column] or others
            others = self._in_force(others, heads)
            values = [(m, value) for m in others for value in self._cell(cells[m], f"{heads[m]} {cell}")]
            at = self._timed_column([heads[m] for m, _ in values], cell)
            timed = at is not None
            values = values if at is None else [values[at]]
            for m, value in values:
                said = " ".join([further, "" if timed else heads[m], *(cells[k] for k in others if k != m)])
                yield self._place(PAIR, value, piece.text, said, narrowed=bool(further))
        if piece.kind == "head":
            return
        if self._is_first_pair(heads) or (self.kind in _NAMES and len(cells) == _PAIRED):
            by_column = [n for n in by_column if n > 0]  # the head is the first pair, and no head of a column
        for n in self._in_force(by_column, heads):
            said = " ".join([self._named(heads[n]) or "", *(cell for m, cell in enumerate(cells) if m != n)])
            for value in self._cell(cells[n], heads[n]):
                yield self._place(QUALIFIED, value, piece.text, said)

    def _in_force(self, columns: Sequence[int], heads: Sequence[str]) -> list[int]:
        """Columns but for those whose head tells another matter, or an old model beside the one in force."""
        without = self.reading.without
        kept = [n for n in columns if without is None or not compile_expression(without).search(heads[n])]
        if self.about is None or _timing(False).search(fold(self.about)) or is_old_and_new([heads[n] for n in kept]):
            return kept
        return [n for n in kept if not _timing(False).search(fold(heads[n]))] or kept

    def _timed_column(self, over: Sequence[str], label: str) -> int | None:
        """Which of an old and a new column is meant, `Until 14 March | From 15 March`; None where they are no such."""
        if self.about is None or not is_old_and_new(over):
            return None
        return column_in_question(over, self.about, label=label)

    def _is_first_pair(self, cells: Sequence[str]) -> bool:
        """Whether the head of a table is its first pair: of two cells the second is a value, and nothing else."""
        if len(cells) != _PAIRED or self.kind == "text" or self._named(cells[0]) is None:
            return False
        values = self._values(cells[1])
        if self.kind == "organisation":  # the head of a column has capitals too
            return any(set(value.key.replace(".", "").split()) & _forms_of_firms() for value in values)
        return bool(values)

    def _cell(self, cell: str, said: str) -> list[TypedValue]:
        """Values of a cell; a bare figure where the head or the label holds the unit."""
        values = self._values(cell)
        if values or self.kind not in {"amount", "percentage", "duration", "quantity"}:
            return values
        bare = re.fullmatch(r"[-−]?\d{1,3}(?:[ ,.\u00a0\u202f]\d{3}){0,4}(?:[.,]\d{1,2})?", cell)
        unit = re.search(r"\(([^()]{1,20})\)|,\s([^,]{1,12})$|\b(?:in|en)\s(\w{1,12})$", said)
        if not bare or not unit:
            return []
        joined = f"{cell} {unit[1] or unit[2] or unit[3]}"
        measured = typed_values(self.kind, joined) or typed_values(self.kind, joined.replace(cell, "2", 1))
        return [TypedValue(0, len(cell), cell, joined)] if measured else []

    def _sentence(self, stated: str, after: str) -> Iterator[Place]:
        """The value of a clause that small words part from the label, before it or behind.

        Args:
          after: what stands behind the sentence, which may go on after an abbreviation: `1 Mar. 2025`.
        """
        if self.kind == "text":
            return
        text = plain_line(stated)
        for start, end in _clause_spans(text):
            clause = text[start:end]
            plain = fold(clause)
            for match in self.label.finditer(plain):
                found = self._clause_value(clause, plain, match)
                if found is None:
                    continue
                value, said = found
                if start + value.end >= len(text) - 1 and not self._ends_there(text, start + value.start, value, after):
                    value = value._replace(whole=False)
                timed = f"{said} {text}" if self.kind != "date" else said
                place = self._place(SENTENCE, value, stated, timed)
                yield place._replace(words=_stems(f"{self.page.section} {text}"))

    def _ends_there(self, text: str, start: int, value: TypedValue, after: str) -> bool:
        """Whether a value at the end of a sentence is the same with what stands behind the sentence."""
        if self.kind in _NAMES:
            return True
        longer = typed_values(self.kind, f"{text} {after[:_LABEL_CHARS]}", self.page.language)
        return any(one.start == start and one.text == value.text for one in longer)

    def _clause_value(self, clause: str, plain: str, label: re.Match[str]) -> tuple[TypedValue, str] | None:
        """The value that a label of a clause names, and what narrows it; None where there is none, or several."""
        values = [one for one in typed_values(self.kind, clause, self.page.language) if not _overlaps(one, label)]
        behind = [value for value in values if value.start >= label.end()]
        before = [value for value in values if value.end <= label.start()]
        found = None
        if behind:
            gap = plain[label.end() : behind[0].start]
            if re.match(r"s?'s?\s", gap):  # the supplier's director is not the supplier
                return None
            if self.kind in _LOOSE:  # `to report a claim ring us on`
                gap = " ".join(word for word in gap.split() if word.strip(".,:") not in _WORDS.reaching)
            narrowing = _parting(gap)
            if narrowing is not None and not (self.kind == "date" and self._opens_a_span(plain, label, behind)):
                found = behind[0], narrowing
        bounded = before and _BOUND.search(plain[max(0, before[-1].start - _LABEL_CHARS) : before[-1].start])
        if (
            found is None
            and before
            and not bounded
            and _leads_to_label(plain[before[-1].end : label.start()], self.kind)
        ):
            found = before[-1], ""
        if found is None:
            return None
        led = f"{plain[: label.end()]} {_passed_over(plain[label.end() : found[0].start])}"
        if any(self.kind not in _LOOSE or word[0] not in _WORDS.conditions for word in _doubting().finditer(led)):
            return None  # `if it breaks, ring us on` still states the number
        rivals = [value for value in values if value.start > found[0].end or value.end < found[0].start]
        if self.kind in _NAMES:
            rivals = [
                value
                for value in rivals
                if fold(clause[found[0].end : value.start]).strip() in {"and", "et", "or", "ou", "&"}
            ]
        elif self.kind in {"date", "reference"}:
            rivals = [
                value
                for value in rivals
                if re.fullmatch(r"\s?(?:,|or|ou|/|and|et)\s", plain[found[0].end : value.start])
            ]
        return found if same_values([found[0], *rivals]) else None

    def _opens_a_span(self, plain: str, label: re.Match[str], behind: Sequence[TypedValue]) -> bool:
        """Whether a date is the first of two, and the label does not say which is meant: `the year: 1 to 31 May`."""
        if len(behind) == 1 or not re.fullmatch(
            r"\s?[-–—]\s?|,?\s(?:to|until|and|au|jusqu'au|et le|and)\s(?:the\s|le\s)?",
            plain[behind[0].end : behind[1].start],
        ):
            return False
        words = re.findall(r"[a-z']+", plain[: label.end()])
        return not words or words[-1] not in _WORDS.start

    def _under_heading(self) -> Iterator[Place]:
        """The value with which a section begins whose heading is the label, if it is the section's only one."""
        head = self.page.printed.rpartition(" > ")[2] or self.page.printed
        further = self._named(head) if head else None
        prose = [piece.text for piece in self.page.stated if piece.kind != "heading"]
        if further is None or further or not prose or any(piece.kind == "row" for piece in self.page.stated):
            return
        values = [value for text in prose for value in typed_values(self.kind, text, self.page.language)]
        if self.kind == "text" and (len(prose) > 1 or len(prose[0]) > _LONGEST_TEXT):
            return
        first = self._values(prose[0])
        if first and same_values(values) and (self.kind not in _LOOSE or values):
            yield self._place(HEADING, first[0], prose[0], "")


def _bare(said: str) -> str:
    """What stands behind a label, without the marks that part it from what follows."""
    text = said.strip(" |·•/,;")
    return text.rstrip("( |·•/,;") if text.count("(") > text.count(")") else text


def _overlaps(value: TypedValue, label: re.Match[str]) -> bool:
    return value.start < label.end() and label.start() < value.end


def _clause_spans(text: str) -> Iterator[tuple[int, int]]:
    """Clauses of a sentence: one ends where another subject begins."""
    start = 0
    for match in _clauses().finditer(fold(text)):
        yield start, match.start()
        start = match.start()
    yield start, len(text)


def _passed_over(gap: str) -> str:
    """What parts a label and its value, without a bracket and what stands between two commas."""
    return re.sub(r",[^,]{1,80},", " , ", re.sub(r"\([^()]{0,80}\)", " ", gap), count=1)


def _parting(gap: str) -> str | None:
    """What narrows a label between it and its value, '' for nothing; None where more than small words part them.

    A bracket, or what stands between two commas, is passed over: `the fee (see page 3) is £5`.
    """
    gap = _passed_over(gap)
    gap = re.sub(r"^\.(?=\s)", "", gap)  # `Tel. 0800 123 4567`
    if _is_link(gap):
        return ""
    words = gap.split()
    # `for new customers is`: a preposition, up to five words, a verb that links
    for n in range(min(len(words), 7), 1, -1):
        tail = " ".join(words[n:])
        narrowing = words[:n]
        if tail and narrowing[0].strip("'") in _WORDS.qualify and _is_link(tail) and tail.split()[0] in _WORDS.copulas:
            return " ".join(narrowing)
    return None


_BOUND = re.compile(
    r"\b(?:more|less|fewer|other|greater|earlier|later) than (?:the )?\Z"
    r"|\b(?:over|under|above|below|exceed(?:s|ing)?|plus de|moins de|au-dela de)\s\Z"
)


def _leads_to_label(gap: str, kind: ValueKind) -> bool:
    """Whether a label follows a value: `four weeks' notice`, `a £50 deposit`, `Dana Whitlock is the manager`."""
    if kind in _NAMES:
        return bool(
            re.fullmatch(
                r"(?:\s?[,(–—-]\s?|\s)(?:(?:is|est|as|comme|acts as|who is|qui est)\s)?"
                r"(?:the |our |your |l'|le |la |votre |notre )?",
                gap,
            )
        ) and bool(gap.strip())
    if kind in _LOOSE:
        return bool(re.fullmatch(r"\s?\(?(?:for |pour )?(?:the |la |le |our )?", gap))
    return bool(
        re.fullmatch(r"'?s?\s(?:of |de |d'|is the |est le |est la |written )?(?:the |le |la |l')?|\s?\(|-", gap)
    )


def stems(texts: Iterable[str]) -> frozenset[str]:
    """Stems of the words of some texts."""
    return _stems(" ".join(texts))
