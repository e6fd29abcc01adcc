"""Field values (shore): a field read from passages, whole and with the words that state it (S5.10).

A value is a field's where its label is all that its row, line or clause says of it, and all that
names the field states the same. What is stated of another time, or under words that say more than
the label, is not this field's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial

from raglab.extensions.clarification.gap_candidates import meeting
from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    plain,
    shared_stems,
    stems,
    whole_words,
)
from raglab.extensions.clarification.question_parsing import wanted_kinds
from raglab.extensions.clarification.statements import Statement, heading_of, statements, value_key
from raglab.extensions.clarification.value_kinds import NAME, RANGE, TypedValue, values_in
from raglab.live.clarifier import FieldValue
from raglab.values import Chunk
from raglab.words.packs import GENERIC, FieldPattern, FieldReading, Pack, compile_expression
from raglab.words.text import fold_case, sentences

# kinds whose values change in time
_CHANGING = frozenset({"amount", "percentage", "duration", "quantity", "number"})
_NUMBERLESS = frozenset({"phone", "date", "email", "url"})  # kinds that no bare number is of
_NAMES = frozenset({"person", "organisation"})  # kinds of a pack that are names


def read_value(
    field: str, chunks: Sequence[Chunk], /, *, pack: Pack = GENERIC, about: str = ""
) -> FieldValue | None:
    r"""Value of a field with the sentence or row that states it.

    None where none is stated, or several are.

    A field of the pack is read by its labels, roles and patterns; another by its own words, as the
    documents' labels have them.

    Args:
      field: name of a field of the pack, or words.
      chunks: chunks of the pages to read.
      pack: its labels, roles and patterns of fields.
      about: words of the question, by which patterns of the pack tell whose value is asked for.

    Source: rule S5.10.

    Example:
      >>> read_value("notice period", [Chunk("a", "Terms\nNotice period: 28 days", "a.md", 1)])
      FieldValue(value='28 days', quote='Notice period: 28 days')
    """
    known, about = pack.fields.get(field), plain(about)
    if known is None:
        return _only(_by_words(field, chunks, about))
    reading = known.reading
    if reading is None:
        return None
    is_name = known.names or reading.kind in _NAMES or (reading.role and reading.kind is None)
    whole = partial(_whole_name, chunks=chunks) if is_name else partial(_whole, kind=reading.kind)
    stated = [
        value
        for pattern in reading.prose
        if _is_asked(pattern, about)
        for value in _by_pattern(pattern, whole, chunks)
    ]
    return _only((*stated, *_by_label(reading, chunks, is_name=bool(is_name))))


def _has(expression: str | None, text: str) -> bool:
    """Whether an expression of a pack occurs in a text; none does not."""
    return expression is not None and compile_expression(expression).search(text) is not None


def _only(stated: Iterable[FieldValue]) -> FieldValue | None:
    """The first of some values where all are the same; None where they differ, or there is none."""
    values = list(stated)
    return values[0] if len({value_key(value.value) for value in values}) == 1 else None


# --- patterns of a pack


def _is_asked(pattern: FieldPattern, about: str) -> bool:
    """Whether the words of a question are those that a pattern is for."""
    return not any(
        words is not None and bool(whole_words([words]).search(about)) != is_wanted
        for words, is_wanted in ((pattern.asked, True), (pattern.unasked, False))
    )


def _by_pattern(
    pattern: FieldPattern, whole: Callable[[str, int, int], str | None], chunks: Sequence[Chunk]
) -> Iterator[FieldValue]:
    """Whole values that a pack's pattern matches, in the sentences and sections where it holds."""
    form = compile_expression(pattern.match, case=True)
    for chunk in chunks:
        if pattern.under is not None and not _has(pattern.under, heading_of(chunk)):
            continue
        for sentence in sentences(chunk.full_text):
            match = form.search(sentence)
            if (
                match is None
                or not match["value"]
                or _has(pattern.without, sentence)
                or expression("void").search(plain(sentence))
            ):
                continue
            value = whole(sentence, *match.span("value"))
            # The year of a period is printed with its end: `from 1 January to 31 December 2025`.
            year = match.groupdict().get("year")
            if value is not None and year and not _YEAR.search(value):
                value = f"{value} {year}"
            if value is not None:
                yield FieldValue(value, sentence)


# --- labels of a pack


def _by_label(
    reading: FieldReading, chunks: Sequence[Chunk], *, is_name: bool
) -> Iterator[FieldValue]:
    """Values beside the labels or the role of a field."""
    form = compile_expression(whole_words(map(_bare_expression, reading.labels)).pattern)
    role = reading.role and _bare_expression(reading.role)
    for statement in statements(chunks):
        is_role = statement.form == "role" and _has(role, plain(statement.label))
        is_beside = is_role or _is_beside(
            statement.label, form, in_sentence=statement.form == "sentence"
        )
        if not is_beside or _has(reading.without, statement.text) or _is_former(statement):
            continue
        # a value that changes over time, with a day from or until which it holds
        if statement.kind in _CHANGING and "date" in {
            value.kind for value in values_in(statement.text)
        }:
            continue
        value = _name_of(statement) if is_name else _typed_value(statement, reading.kind)
        if value is not None:
            yield FieldValue(value, statement.text)


@lru_cache(maxsize=1 << 12)
def _bare_expression(expression: str) -> str:
    """An expression without accents, as the texts that it is searched in are."""
    return "".join(char if char.isascii() else fold_case(char) for char in expression)


@lru_cache(maxsize=1 << 12)
def _is_beside(label: str, form: re.Pattern[str], *, in_sentence: bool) -> bool:
    """Whether a field's name is all that a label says, but for small words.

    In a sentence, what stands before the name is not of it where an article parts them.
    """
    text = plain(label)
    for match in form.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        is_parted = in_sentence and {*before.split()[-1:]} & {*entries("determiners")}
        if not _content(after) and (is_parted or not _content(before)):
            return True
    return False


def _content(text: str) -> bool:
    """Whether a text says anything."""
    return not _fillers().issuperset(stems(re.sub(r"\([^()]*\)", " ", text)))


@lru_cache(maxsize=1)
def _fillers() -> frozenset[str]:
    """Stems of words that say nothing of what a value is."""
    return frozenset(stem for entry in entries("stating") for stem in stems(entry))


def _is_former(statement: Statement) -> bool:
    """Whether a statement says that its value held once."""
    text = plain(statement.text)
    return any(expression(key).search(text) for key in ("lapsed", "older"))


def _typed_value(statement: Statement, kind: str | None) -> str | None:
    """The only value of a kind that a row, line or clause states, whole."""
    if kind in {None, "text"}:
        return statement.value
    typed = [value for value in values_in(statement.value) if value.kind == kind]
    if len({value.text for value in typed}) != 1:
        return None
    start = statement.text.find(statement.value)
    if start < 0:
        return typed[0].text
    return _whole(statement.text, start + typed[0].start, start + typed[0].end, kind)


def _name_of(statement: Statement) -> str | None:
    """The only name that a row, line or clause states."""
    names = {match[0] for match in re.finditer(NAME, statement.value)}
    return next((name for name in names if len(names) == 1 and not _is_post(name)), None)


def _is_post(name: str) -> bool:
    """Whether what is printed as a name is of a post, or a heading in capitals."""
    return expression("posts").match(plain(name)) is not None


def _whole_name(text: str, start: int, end: int, chunks: Sequence[Chunk]) -> str | None:
    """A name of a text with an article that is part of it.

    None where it is of a post.

    At the beginning of a sentence an article is part of a name where the tags of the document print
    both, and none where its text has the name without.
    """
    name = re.sub(r"\s(?:Le|La|Les|The|Au|Du)$", "", text[start:end].strip())
    if _is_post(name):
        return None
    tags = {value for chunk in chunks for value in chunk.tags.values() if isinstance(value, str)}
    whole = text[:start] + name
    if whole != name and whole in tags and _ARTICLE.match(whole):
        return whole
    article = _ARTICLE.match(name)
    if article and start == 0 and name not in tags:
        bare = name[article.end() :]
        alone = re.compile(rf"(?<!{re.escape(name[: article.end()])}){re.escape(bare)}")
        return bare if any(alone.search(chunk.full_text) for chunk in chunks) else name
    return name


# --- whole values


_ARTICLE = re.compile(r"(?:The|Le|La|Les)\s")
_YEAR = re.compile(r"\d{4}")
_RATE = re.compile(
    r"\s?(?:/|per\b|an?\b|par\b|du\b|le\b)\s?(?:miles?|km|kilom[eè]tres?|kilometers?)\b",
    re.IGNORECASE,
)
_MORE = re.compile(r"\s(?:and\sa\s(?:half|quarter)|et\s(?:demie?|un\squart))\b", re.IGNORECASE)
_EXTENSION = re.compile(r",?\s\(?(?:ext(?:ension)?|poste)\b\.?\s?\d{1,5}\)?", re.IGNORECASE)
_COUNTRY = re.compile(r"(?<![\w-])\+?\d{1,3}[\s-](?=$)")
# what no number or word goes on beyond
_BEGINNING = re.compile(r"(?<!\d[.,])(?:\b|(?=\W))")
_END = re.compile(r"(?:\b|(?<=\W))(?![.,]\d)")
_SUFFIX = {"amount": _RATE, "duration": _MORE, "phone": _EXTENSION}


def _whole(text: str, start: int, end: int, kind: str | None) -> str | None:
    """A value of a text with what belongs to it.

    None where its bounds cut a number or word, or a number is all.
    """
    if not (_BEGINNING.match(text, start) and _END.match(text, end)):
        return None
    values = values_in(text)
    own = next((value for value in values if value.start <= start and end <= value.end), None)
    if own is None:
        return text[start:end].strip()
    return None if own.kind == "number" and kind in _NUMBERLESS else _joined(text, own, values)


def _joined(text: str, own: TypedValue, values: Sequence[TypedValue]) -> str | None:
    """A value with its rate's unit, its range's other end, or the numbers around a telephone's."""
    start, end = own.start, own.end
    suffix = _SUFFIX.get(own.kind)
    more = suffix and suffix.match(text, end)
    end = more.end() if more else end
    if own.kind == "phone" and (country := _COUNTRY.search(text[:start])):
        start = country.start()
    if own.kind in {"quantity", "percentage"}:  # `5 °C to 40 °C`
        start = next(
            (
                value.start
                for value in values
                if value.kind in {own.kind, "number"} and RANGE.fullmatch(text[value.end : start])
            ),
            start,
        )
        end = next(
            (
                value.end
                for value in values
                if value.kind == own.kind and RANGE.fullmatch(text[end : value.start])
            ),
            end,
        )
    return text[start:end].strip()


# --- words of the documents
def _by_words(field: str, chunks: Sequence[Chunk], about: str) -> list[FieldValue]:
    """Values of the kinds that a question asks for whose label is the field's words.

    Rows before sentences.
    """
    words, kinds = stems(field.partition(":")[0].replace("_", " ")), wanted_kinds(about)
    named = [
        statement
        for statement in statements(chunks)
        if words and _is_named(statement, words) and not _is_former(statement)
        if not kinds or statement.kind in kinds
    ]
    stated = meeting(about, named, chunks) or named
    valued = [each for each in stated if each.kind != "number"]
    rows = [each for each in valued if each.form != "sentence" and each.kind != "text"]
    clauses = [each for each in valued if each.form == "sentence"]
    return [FieldValue(statement.value, statement.text) for statement in rows or clauses]


def _is_named(statement: Statement, words: Sequence[str]) -> bool:
    """Whether the name of a statement is that of the field.

    All its words, and no others but small ones.
    """
    own = stems(statement.name)
    more = {*own} - shared_stems(own, words)
    return {*words} == shared_stems(words, own) and _fillers().issuperset(more)


def is_quoted(quote: str, chunks: Sequence[Chunk]) -> Chunk | None:
    """The first passage that holds a quote, whole, whatever the blanks; None where none does.

    Example:
      >>> text = "| Pet deposit | £250 |"
      >>> row = [Chunk("a", text, "a.md")]
      >>> is_quoted("Pet deposit; £250", row) is not None, is_quoted("£25", row)
      (True, None)
    """
    bare_quote = _bare(quote)
    if not bare_quote:
        return None
    form = re.compile(rf"(?<![\w.,]){re.escape(bare_quote)}(?!\w|[.,]\d)")
    return next((chunk for chunk in chunks if form.search(_bare(chunk.full_text))), None)


def _bare(text: str) -> str:
    """A text as a quote of it is compared: without marks of tables and emphasis, in single blanks.

    French sets a blank before a colon, English none.
    """
    return " ".join(re.sub(r"[|;*#>]+", " ", plain(text)).split()).replace(" :", ":")
