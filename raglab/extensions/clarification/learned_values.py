"""Learned values (shore): which value of a kind is a field's, by the words around it and by the rules, or nothing.

Documents word one thing in a hundred ways, and rules know some of them. A logistic regression weighs, all at once, the
words beside a value - of its clause, its row, the head of its column, the heading of its section, its own unit - and
what the pack's rules say of it: whose labels stand beside it, whose rules read it. It is fitted to labelled documents
of the trade (`raglab.fit_field_model`) and stands in the pack. A value is taken where it leads every other value of its
kind by the model's margin, which was chosen on documents left out of the fit, and where a second regression, which sees
the words alone, has it ahead too: on documents of new writers the rules err together with a model that trusts them.
Else none is.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from raglab.extensions.clarification.field_rules import ChunkReading, openings
from raglab.extensions.clarification.labelled_values import label_expression, plain_line, stems, timing
from raglab.extensions.clarification.typed_values import TypedValue, fold, typed_values
from raglab.numerals import dates_in
from raglab.packs import KindModel, Pack, ValueKind, compile_expression

_STEM = 5  # letters of a word that count
_BEFORE, _AFTER = 16, 12  # words beside a value that count
_HEADING = 0.7  # what a word of the heading counts beside one of the sentence
_NEAR = 5.0  # words in which the weight of a neighbour falls to a half
_WORD = re.compile(r"[a-z]+|[%£€$°]")
_CLAUSE = re.compile(r"; |(?<=[a-z)])\. ")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")
RULE_FEATURES = ("rule ", "other rule ", "label ", "heading ", "without ")  # beginnings of what rules say of a value


class ValueCandidate(NamedTuple):
    """A value of some documents with what stands around it.

    value: as printed. sentence: sentence or row that states it. chunk: position among those given. before, after: of
    its clause or cell. row: the other cells of its row; head: of its column. section: heading. first: on page 1.
    newest: whether the date beside it is the latest beside any value of its section, None where there is none.
    """

    value: TypedValue
    sentence: str
    chunk: int
    before: str
    after: str
    row: str
    head: str
    section: str
    first: bool
    newest: bool | None = None

    @property
    def around(self) -> str:
        """All that stands around it but for its section."""
        return f"{self.before} | {self.after} | {self.row} | {self.head}"


class RuleValue(NamedTuple):
    """What the rules of a pack read of a field: the value, the sentence that states it, the chunk."""

    text: str
    sentence: str
    chunk: int


class ValueChoice(NamedTuple):
    """The value that a model takes for a field's, and its lead over the chance of the next other value, in [0, 1]."""

    candidate: ValueCandidate
    lead: float


def candidates(
    kind: ValueKind, pages: Sequence[ChunkReading], read: Mapping[str, RuleValue] = MappingProxyType({})
) -> list[ValueCandidate]:
    """Every value of a kind that pages state, and those that rules read and are no value of the kind by themselves."""
    found = [one for page in pages for one in _of_page(kind, page)]
    known = {fold(one.value.text) for one in found}
    for value in read.values():
        if fold(value.text) not in known:
            page = pages[value.chunk]
            before, _, after = plain_line(value.sentence).partition(value.text)
            typed = TypedValue(len(before), len(before) + len(value.text), value.text, fold(value.text))
            around = _last_clause(before), _first_clause(after), "", ""
            found.append(ValueCandidate(typed, value.sentence, value.chunk, *around, page.section, page.first))
    return _with_newest(found)


def _with_newest(found: Sequence[ValueCandidate]) -> list[ValueCandidate]:
    """Candidates that know whether the date beside them is the latest of their section."""
    dates = [max(((day.year, day.month, day.day) for day in dates_in(one.around)), default=None) for one in found]
    latest: dict[tuple[int, str], tuple[int, int, int]] = {}
    for one, day in zip(found, dates, strict=True):
        if day is not None:
            latest[one.chunk, one.section] = max(day, latest.get((one.chunk, one.section), day))
    return [
        one if day is None else one._replace(newest=day == latest[one.chunk, one.section])
        for one, day in zip(found, dates, strict=True)
    ]


def _of_page(kind: ValueKind, page: ChunkReading) -> Iterator[ValueCandidate]:
    opened = openings(page.text)
    for piece in page.stated:
        if piece.kind == "prose":
            text = plain_line(piece.text)
            opening = opened.get(piece.text)
            section = f"{page.section} > {opening.label}" if opening is not None else page.section
            for value in typed_values(kind, text, page.language):
                around = _last_clause(text[: value.start]), _first_clause(text[value.end :]), "", ""
                yield ValueCandidate(value, piece.text, page.place, *around, section, page.first)
        elif piece.kind in {"row", "head"}:
            heads = piece.heads if piece.kind == "row" and len(piece.heads) == len(piece.cells) else ()
            for n, cell in enumerate(map(plain_line, piece.cells)):
                row = " ".join(other for m, other in enumerate(piece.cells) if m != n)
                for value in typed_values(kind, cell, page.language):
                    around = cell[: value.start], cell[value.end :], row, heads[n] if heads else ""
                    yield ValueCandidate(value, piece.text, page.place, *around, page.section, page.first)


def _last_clause(text: str) -> str:
    return _CLAUSE.split(text)[-1]


def _first_clause(text: str) -> str:
    return _CLAUSE.split(text)[0]


@lru_cache(maxsize=8192)
def _words(text: str) -> tuple[str, ...]:
    return tuple(word[:_STEM] for word in _WORD.findall(fold(text)))


def features(one: ValueCandidate, kind: ValueKind, pack: Pack, read: Mapping[str, RuleValue]) -> dict[str, float]:
    """What a model sees of a candidate: name of a feature -> its value, in [0, 1].

    Words near the value count more. A word is told by where it stands - before it, behind it, in its row - and once
    more wherever it stands, since documents put one thing before a figure or behind it. Beside the words stand the
    pack's own rules: whose labels hold around the value, what rules it out, and whose rules read it.
    """
    found: dict[str, float] = {"first": float(one.first)}
    for name, value in chain(_beside(one), _stated(one), ((mark, 1.0) for mark in _marks(one, kind, pack, read))):
        found[name] = max(found.get(name, 0.0), value)
    return found


def _beside(one: ValueCandidate) -> Iterator[tuple[str, float]]:
    """The words around a candidate."""
    for side, beside in (("before", _words(one.before)[::-1][:_BEFORE]), ("after", _words(one.after)[:_AFTER])):
        for n, word in enumerate(beside):
            yield f"{side} {word}", _NEAR / (_NEAR + n)
            yield f"beside {word}", 1.0
        if beside:
            yield f"next {side} {beside[0]}", 1.0
    for word in _words(one.row):
        yield from ((f"row {word}", 1.0), (f"before {word}", 1.0), (f"beside {word}", 1.0))
    for word in _words(one.head):
        yield from ((f"head {word}", 1.0), (f"beside {word}", 1.0))
    for word in _words(one.section):
        yield f"section {word}", _HEADING


def _stated(one: ValueCandidate) -> Iterator[tuple[str, float]]:
    """When a candidate holds, of what order it is, and in which unit."""
    when = timing(one.around)
    if when:
        yield f"when {when}", 1.0
    if one.newest is not None:
        yield ("date newest" if one.newest else "date older"), 1.0
    size = _size(one.value.text)
    yield f"size {size}", 1.0
    for word in _words(one.value.text):
        yield f"unit {word}", 1.0
        yield f"unit {word} {size}", 1.0


def _marks(one: ValueCandidate, kind: ValueKind, pack: Pack, read: Mapping[str, RuleValue]) -> Iterator[str]:
    """What the rules of the fields of a kind say of a candidate."""
    around, section = fold(one.around), fold(one.section)
    for field, reading in pack.readings.items():
        if reading.kind != kind:
            continue
        rule = read.get(field)
        if rule is not None:
            same = rule.text == one.value.text or fold(rule.text) == one.value.key or one.value.text in rule.text
            yield f"rule {field}" if same else f"other rule {field}"
        if reading.labels:
            label = label_expression(reading.labels)
            if label.search(around):
                yield f"label {field}"
            if label.search(section):
                yield f"heading {field}"
        if reading.without is not None and compile_expression(reading.without).search(one.sentence):
            yield f"without {field}"


def _size(text: str) -> str:
    """Order of a figure, in halves of a power of ten; '' where it is written in words."""
    match = _NUMBER.search(text.replace(" ", ""))
    return "" if match is None else str(round(2 * math.log10(max(float(match[0].replace(",", ".")), 0.01))))


def chances(model: KindModel, seen: Mapping[str, float]) -> dict[str, float]:
    """Chance that a value is each field's, by a softmax over the classes of its kind."""
    scores = list(model.intercepts)
    for name, value in seen.items():
        for n, weight in enumerate(model.weights.get(name, ())):
            scores[n] += value * weight
    most = max(scores)
    parts = [math.exp(score - most) for score in scores]
    return {name: part / sum(parts) for name, part in zip(model.classes, parts, strict=True)}


def learned_value(
    model: KindModel,
    field: str,
    found: Sequence[tuple[ValueCandidate, Mapping[str, float]]],
    wanted: frozenset[str] = frozenset(),
) -> ValueChoice | None:
    """The likeliest value of a field, with its lead over the next other value.

    None where there is none, the likeliest is cut, or the question has words of another value's surroundings that the
    likeliest lacks: `for managers` asks for theirs, which the model does not know.

    Args:
      model: of the field's kind. found: candidates with what the model sees of them. wanted: stems of the question that
        may tell one value from another.
    """
    told: dict[str, frozenset[str]] = defaultdict(frozenset)
    for one, _ in found if wanted else ():
        told[one.value.key] |= wanted & stems((one.around, one.section))
    best = _best_places(model, field, found)
    ranked = sorted(best.values(), key=lambda pair: -pair[0])
    if not ranked or not ranked[0][1].value.whole:
        return None
    chosen = ranked[0][1]
    if any(words - told[chosen.value.key] for words in told.values()):
        return None
    return ValueChoice(chosen, ranked[0][0] - (ranked[1][0] if len(ranked) > 1 else 0.0))


def lead_of(
    model: KindModel, field: str, found: Sequence[tuple[ValueCandidate, Mapping[str, float]]], key: str
) -> float:
    """By how much the chance of a value that is among the candidates leads that of every other, in [-1, 1].

    Args:
      model, field, found: as in `learned_value`. key: of the value.
    """
    best = _best_places(model, field, found)
    return best[key][0] - max((chance for other, (chance, _) in best.items() if other != key), default=0.0)


def _best_places(
    model: KindModel, field: str, found: Sequence[tuple[ValueCandidate, Mapping[str, float]]]
) -> dict[str, tuple[float, ValueCandidate]]:
    """Of each value the place where it is likeliest the field's, with that chance."""
    best: dict[str, tuple[float, ValueCandidate]] = {}
    for one, seen in found:
        chance = chances(model, seen)[field]
        if chance > best.get(one.value.key, (-1.0,))[0]:
            best[one.value.key] = chance, one
    return best
