"""Quoted replies (shore): what documents state in the words of a question and of the reply to it (S5.10).

Once the user has said what is meant, in documents that are named, the statement is there or it is not: it is looked for
among all sentences and rows of these documents, by the words of question and reply, by nearness of meaning, and by the
kind of value that is asked for. What is found is quoted, with a calibrated confidence that the gates judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.answering.extractive import piece_text
from raglab.extensions.clarification.contents import contents
from raglab.extensions.clarification.question_vocabulary import READ, first_entry, plain_terms
from raglab.extensions.clarification.reply_words import (
    NEGATIVE,
    ReplyTopic,
    named_pages,
    reply_topic,
    small_stems,
    whole_words,
)
from raglab.extensions.clarification.stated_values import SHAPES, YEAR, stems, word_stems
from raglab.languages import LANGUAGES
from raglab.numerals import any_of
from raglab.packs import GENERIC, Pack, compile_expression
from raglab.text import pieces
from raglab.values import Chunk

Encode = Callable[[Sequence[str]], NDArray[Any]]
Table = dict[str, NDArray[np.float64]]
MOST = 3  # lines that are quoted
NEARLY = 0.25  # of the likelihood of the best line, with which another is quoted beside it
NONE, NONE_BY_WORDS = 7.0, 2.0  # score of the chance that no line answers, with an encoder and without
MOST_COMPARED = 400  # lines that are compared by meaning, those first that have most of the words
MOST_OF_PART, NEARLY_OF_PART = 8, 0.02  # the same where a part of a document is asked about
_LONGEST = 400  # characters of a line that are compared by meaning

# What a line's likelihood is the exponential of, by feature. Fitted (conditional logit on which line holds the answer,
# with a ridge of 0.1) to the situations of six open sets of two trades, and rounded; left out one set after the other,
# the first line is right in 72 % of them, one of the first three in 90 %.
WEIGHTS: Mapping[str, float] = {
    "question": 3.0,
    "question near": 2.0,
    "reply": 3.2,
    "reply near": 0.8,
    "denied": -0.4,
    "part": 0.4,
    "rare shape": 4.7,
    "shape": 1.7,
    "unit": 3.1,
    "stated": 0.9,
    "dated": 3.2,
    "other time": -1.7,
    "both times": 0.8,
    "forbids": 2.9,
    "long": 1.8,
    "near both": 3.5,
    "near reply": 2.6,
    "near question": 1.0,
    "line near both": 1.8,
    "line near reply": 2.1,
    "heading near both": 2.4,
}


class Quotation(NamedTuple):
    """Lines of documents that answer a question and its reply.

    lines: verbatim, the best first. passages: of each, the position of its passage. confidence: that one of them is
    right, in [0, 1].
    """

    lines: tuple[str, ...]
    passages: tuple[int, ...]
    confidence: float


class _QuotedLine(NamedTuple):
    """A sentence or row.

    section, lead: its heading, and what leads up to it. own, near: stems of itself, and of those. at: position of its
    passage.
    """

    text: str
    section: str
    lead: str
    own: frozenset[str]
    near: frozenset[str]
    at: int


_LABELLED = re.compile(r"^\s*(?:[-*+•]\s+)?\*{0,2}[^\W\d_][^:|*]{1,60}\*{0,2}\s?:\*{0,2}\s+\S.{0,160}$")
_MARK = re.compile(r"\W*\w{0,2}\W*")  # a number or letter alone
_LEADERS = re.compile(r"\.{3,}|(?:\. ){3,}|_{3,}|(?:- ){3,}")
_CODE = re.compile(
    r"(?<![\w@./-])(?=[\w/.-]{0,20}\d)(?=[\w/.-]{0,20}[A-Z])"
    r"[A-Z0-9](?:\w{0,12}(?:[/.-]\w{1,12}){1,5}|\w{5,14})(?![\w@])"
)
_NAME = re.compile(r"\b[A-ZÀ-Þ][\w'’-]{1,30} (?:[A-ZÀ-Þ]\. )?(?:d[eu] |van |von )?[A-ZÀ-Þ][\w'’-]{1,30}")
_FIRM = re.compile(rf"\b(?i:{any_of(LANGUAGES.values.firms)})\b")
_UNITS = {  # what measures a value of a kind that questions name
    "°": re.compile(r"\d ?°"),
    "W": re.compile(r"\d ?(?:k?W|watts?)\b"),
    "kg": re.compile(r"\d ?(?:k?g|lbs?|oz|grams?|grammes?|kilos?|pounds)\b"),
    "dB": re.compile(r"\d ?dB"),
    "h": SHAPES["duration"],
}
_REPLIES = LANGUAGES.replies


_MEASURES = {unit: whole_words(patterns) for unit, patterns in _REPLIES.measures.items()}
_CODES, _WRITING = whole_words(_REPLIES.codes), whole_words(_REPLIES.writing)
_HELD, _HOLDS = whole_words(_REPLIES.held), whole_words(_REPLIES.holds)
_RARE = ("code", "firm", "email", "phone", "person", "date", "percentage")  # shapes that few lines have
_OF_KIND = {"reference": "code", "organisation": "firm"}  # kinds of value of a pack -> shapes
_LABEL = 6  # words of a sentence that may head those behind it
_BARE = 3  # words of one that states nothing


def quote_reply(
    question: str,
    reply: str,
    chunks: Sequence[Chunk],
    *,
    field: str = "",
    pack: Pack = GENERIC,
    encode: Encode | None = None,
    part: bool = False,
    heading: str = "",
) -> Quotation | None:
    r"""The lines of documents that a question and the reply to it mean; None where there are none.

    Args:
      chunks: of the documents that the question is asked of. field: that it asks for, '' where the pack has none.
      encode: texts -> vectors of unit length, by which lines are compared beside their words. part: whether a part of
        a document is asked about and no value: more of its lines are quoted. heading: of that part, where it is known.

    Example:
      >>> rows = "Hire\n| Kind | Price |\n|---|---|\n| Tandem | £25 |\n| Child's bicycle | £9 |"
      >>> quote_reply("What does a day cost?", "the tandem", [Chunk("a", rows, "a.md")]).lines[0]
      'Tandem - Price: £25'
    """
    topic, said = reply_topic(reply), plain_terms(reply)
    lines, topic = _of_document(_scoped(said, chunks, pack), topic, chunks)
    lines = _under(heading, lines) if part else lines
    if not lines:
        return None
    titles = frozenset.intersection(*(_title_stems(chunks[one.at]) for one in lines))
    asked = word_stems(question) - small_stems() - titles
    topic = topic._replace(meant=topic.meant - titles)
    shape, is_read = _shape(question, reply, field, pack)
    lines = [one for one in lines if not is_read or _has_shape(shape, one.text)]
    if not lines:  # what the field has stands nowhere
        return None
    table = _features(question, asked, topic, lines, shape)
    scores = _scores(table)
    if encode is not None:
        kept = sorted(sorted(range(len(lines)), key=lambda at: -float(scores[at]))[:MOST_COMPARED])
        lines = [lines[at] for at in kept]
        scores = scores[kept] + _scores(_nearness(question, topic, lines, encode))
    likely = np.exp(scores)
    none = exp(NONE if encode is not None else NONE_BY_WORDS)
    most, nearly = (MOST_OF_PART, NEARLY_OF_PART) if part else (MOST, NEARLY)
    among = _likeliest_part(lines, likely) if part else range(len(lines))
    order = sorted(among, key=lambda at: (-round(float(scores[at]), 6), at))[:most]
    chosen = [at for at in order if likely[at] >= nearly * likely[order[0]]]
    chosen = sorted(chosen) if part else chosen  # what is done in steps is told in their order
    confidence = float(likely[chosen].sum() / (likely.sum() + none))
    told = [lines[at] for at in chosen]
    return Quotation(tuple(one.text for one in told), tuple(one.at for one in told), round(confidence, 6))


def _scores(table: Table) -> NDArray[np.float64]:
    """What features say of lines in all, [lines]."""
    return np.sum([WEIGHTS[name] * values for name, values in table.items()], axis=0)


def _scoped(said: str, chunks: Sequence[Chunk], pack: Pack) -> list[_QuotedLine]:
    """Lines of the pages that a reply leaves, without tables of contents."""
    pages = named_pages(said, sorted({chunk.page for chunk in chunks if chunk.page}))
    entries = _entries(tuple(chunks), pack)
    title = compile_expression(rf"^\W*(?:{pack.contents_title})\b.{{0,20}}$")
    return [
        one._replace(at=at)
        for at, chunk in enumerate(chunks)
        if chunk.page not in pages.denied and (not pages.named or chunk.page in pages.named)
        for one in _lines(chunk.text)
        if not _is_listed(one.text, entries, title)
    ]


def _entries(chunks: tuple[Chunk, ...], pack: Pack) -> frozenset[tuple[str, str]]:
    """Titles and labels of the tables of contents."""
    sources = dict.fromkeys(chunk.source for chunk in chunks)
    each = (contents([chunk for chunk in chunks if chunk.source == source], pack=pack) for source in sources)
    return frozenset((plain_terms(entry.title).strip(), entry.label.lower()) for some in each for entry in some)


def _is_listed(line: str, entries: frozenset[tuple[str, str]], title: re.Pattern[str]) -> bool:
    """Whether a line is of a table of contents, or is a place to sign."""
    plain = plain_terms(line)
    listed = any(name in plain and plain.rstrip(" .").endswith(label) for name, label in entries)
    return listed or bool(_LEADERS.search(line) or title.search(plain) or _MARK.fullmatch(plain))


@lru_cache(maxsize=READ)
def _lines(text: str) -> tuple[_QuotedLine, ...]:
    """Sentences and rows of a passage under what heads them, a line with a label apart from those around it."""
    path, _, body = text.partition("\n")
    heading = path.split(" > ")[-1].strip() if " > " in path and not path.lstrip().startswith("|") else ""
    kept = [""] if heading else []  # the first line of what is left is no title
    for line in (body if heading else text).splitlines():
        apart = kept and not line.lstrip().startswith("|") and _LABELLED.match(line.replace("**", ""))
        kept += [*([""] if len(kept) > 1 else []), line, ""] if apart else [line]
    made: list[_QuotedLine] = []
    lead, before = "", ""
    for piece in pieces("\n".join(kept)):
        if piece.kind == "heading":
            heading, lead, before = piece.text.split(" > ")[-1], "", ""
            continue
        if piece.kind == "head":
            lead = f"{before} {piece.text}" if before.rstrip().endswith(":") else piece.text
            continue
        states = any(form.search(piece.text) for form in SHAPES.values())
        short = piece.kind == "prose" and not states and len(piece.text.split()) <= _LABEL
        if piece.kind == "prose" and piece.text.rstrip(" \"'”»)*").endswith(("?", ":")):
            lead = before = piece.text
            continue
        if short and len(piece.text.split()) <= _BARE and piece.text.endswith("."):
            lead = piece.text
            continue
        shown = piece_text(piece)
        told = " ".join(dict.fromkeys((heading, lead) if piece.kind == "row" else (heading, lead, before)))
        made.append(_QuotedLine(shown, heading, lead, stems(shown), stems(told), -1))
        before = piece.text if piece.kind != "row" else before
        lead = piece.text if short else lead  # `Jury service.` heads what follows it
    return tuple(made)


def _title_stems(chunk: Chunk) -> frozenset[str]:
    return stems(" ".join(chunk.tags.get(name, "") for name in ("title", "product", "vendor")))


def _of_document(
    lines: list[_QuotedLine], topic: ReplyTopic, chunks: Sequence[Chunk]
) -> tuple[list[_QuotedLine], ReplyTopic]:
    """Lines of the only document whose title has most words of a reply, which tell nothing further in it."""
    titles = {chunks[one.at].source: _title_stems(chunks[one.at]) for one in lines}
    met = {source: len(topic.meant & stems) for source, stems in titles.items()}
    best = [source for source, count in met.items() if count and count == max(met.values())]
    if len(titles) < 2 or len(best) != 1:
        return lines, topic
    kept = [one for one in lines if chunks[one.at].source == best[0]]
    return kept, topic._replace(meant=topic.meant - titles[best[0]], text="")


def _under(heading: str, lines: list[_QuotedLine]) -> list[_QuotedLine]:
    """Lines under a heading, all where it heads none."""
    wanted = plain_terms(heading).strip()
    return [one for one in lines if wanted and plain_terms(one.section).strip() == wanted] or lines


def _likeliest_part(lines: Sequence[_QuotedLine], likely: NDArray[np.float64]) -> list[int]:
    """Positions of the lines of the part that holds most of what is likely."""
    parts = [(one.at, one.section) for one in lines]
    mass: dict[tuple[int, str], float] = {}
    for part, weight in zip(parts, likely, strict=True):
        mass[part] = mass.get(part, 0.0) + float(weight)
    best = max(mass, key=lambda part: round(mass[part], 6))
    return [at for at, part in enumerate(parts) if part == best]


def _shape(question: str, reply: str, field: str, pack: Pack) -> tuple[str, bool]:
    """Kind of value that is asked for, '' where none is told, and whether it is that of a field and hardly mistaken."""
    known = pack.fields.get(field)
    kind = "" if known is None or known.reading is None else known.reading.kind or ""
    if kind in SHAPES or kind == "person" or kind in _OF_KIND:
        shape = _OF_KIND.get(kind, kind)
        return shape, shape in _RARE and shape != "person"
    if _CODES.search(plain_terms(question)):
        return "code", False
    if _WRITING.search(plain_terms(question)):
        return "email", False
    return first_entry(pack.value_words, reply) or first_entry(pack.value_words, question) or "", False


def _has_shape(shape: str, text: str) -> bool:
    own = {"person": _NAME, "code": _CODE, "firm": _FIRM}
    form = own.get(shape) or SHAPES.get(shape)
    return form is not None and bool(form.search(text))


def _features(
    question: str, asked: frozenset[str], topic: ReplyTopic, lines: Sequence[_QuotedLine], shape: str
) -> Table:
    """Features of lines by their words, each [lines]."""
    said = topic.meant - asked
    rare = _rarity(asked | said, lines)
    units = [_UNITS[unit] for unit, form in _MEASURES.items() if form.search(plain_terms(f"{question} {topic.text}"))]
    shapes = [_has_shape(shape, one.text) for one in lines]
    stated = [any(form.search(one.text) for form in SHAPES.values()) for one in lines]
    dated = [_times(one.text) if states and topic.time else ("", "") for one, states in zip(lines, stated, strict=True)]
    columns: dict[str, list[float]] = {
        "question": [_share(asked, one.own, rare) for one in lines],
        "question near": [_share(asked, one.near - one.own, rare) for one in lines],
        "reply": [_share(said, one.own, rare) for one in lines],
        "reply near": [_share(said, one.near - one.own, rare) for one in lines],
        "denied": [float(bool(topic.denied & one.own)) for one in lines],
        "part": [_share(topic.part, stems(one.section), dict.fromkeys(topic.part, 1.0)) for one in lines],
        "rare shape": [float(has and shape in _RARE) for has in shapes],
        "shape": [float(has and shape not in _RARE) for has in shapes],
        "unit": [float(any(form.search(one.text) for form in units)) for one in lines],
        "stated": [float(one) for one in stated],
        "dated": [float(any(pair)) for pair in dated],
        "other time": [float(bool(pair[0] or pair[1]) and topic.time not in pair) for pair in dated],
        "both times": [float(pair == ("old", "new")) for pair in dated],
        "forbids": [float(topic.forbids and bool(NEGATIVE.search(plain_terms(one.text)))) for one in lines],
        "long": [min(len(one.text.split()), 30) / 30 for one in lines],
    }
    return {name: np.asarray(values) for name, values in columns.items()}


def _times(text: str) -> tuple[str, str]:
    """Whether a line speaks of what held and of what holds; a year alone may be of either."""
    plain = plain_terms(text)
    old, new = bool(_HELD.search(plain)), bool(_HOLDS.search(plain))
    if not old and not new and YEAR.search(text):
        return ("old", "new")
    return ("old" if old else "", "new" if new else "")


def _rarity(stems: frozenset[str], lines: Sequence[_QuotedLine]) -> dict[str, float]:
    """How much a stem tells of lines: the more, the fewer have it; nothing where none has."""
    rare: dict[str, float] = {}
    for stem in stems:
        held = sum(stem in one.own for one in lines) or float(any(stem in one.near for one in lines))
        rare[stem] = log((len(lines) + 1) / (held + 0.5)) if held else 0.0
    return rare


def _share(stems: frozenset[str], held: frozenset[str], rare: Mapping[str, float]) -> float:
    """Share of what stems tell that is held, in [0, 1]."""
    total = sum(rare[stem] for stem in sorted(stems))
    return sum(rare[stem] for stem in sorted(stems & held)) / total if total else 0.0


def _nearness(question: str, topic: ReplyTopic, lines: Sequence[_QuotedLine], encode: Encode) -> Table:
    """Features of lines by nearness of meaning, each [lines]."""
    heads = [f"{one.section} | {one.lead}" if one.lead else one.section for one in lines]
    whole = [f"{head}: {one.text}"[:_LONGEST] for head, one in zip(heads, lines, strict=True)]
    texts = [*whole, *(one.text[:_LONGEST] for one in lines), *(head[:_LONGEST] or "-" for head in heads)]
    known = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    vectors = np.asarray(encode(list(known)), dtype=np.float64)
    full, alone, headed = (
        vectors[[known[text] for text in texts[at : at + len(lines)]]] for at in range(0, len(texts), len(lines))
    )
    both, reply, asks = np.asarray(
        encode([f"{question} {topic.text}".strip(), topic.text or question, question]), dtype=np.float64
    )
    return {
        "near both": full @ both,
        "near reply": full @ reply,
        "near question": full @ asks,
        "line near both": alone @ both,
        "line near reply": alone @ reply,
        "heading near both": headed @ both,
    }
