"""Field values (shore): a field read from passages, whole and with the words that state it (S5.10).

A value is a field's where its label is all that its row, line or clause says of it, and all that
names the field states the same. What is stated of another time, or under words that say more than
the label, is not this field's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from raglab.extensions.clarification.gap_candidates import meeting
from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    meets,
    plain,
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
    known = pack.fields.get(field)
    if known is None:
        return _only(_by_words(field, chunks, plain(about)))
    if known.reading is None:
        return None
    reading = known.reading
    is_name = (
        known.names or reading.kind in _NAMES or (reading.role is not None and reading.kind is None)
    )
    patterns = [pattern for pattern in reading.prose if _is_asked(pattern, plain(about))]
    stated = [
        value
        for pattern in patterns
        for value in _by_pattern(pattern, reading.kind, chunks, is_name=is_name)
    ]
    return _only([*stated, *_by_label(reading, chunks, is_name=is_name)])


def _only(stated: Iterable[FieldValue]) -> FieldValue | None:
    """The first of some values where all are the same; None where they differ, or there is none."""
    values = list(stated)
    return values[0] if len({value_key(value.value) for value in values}) == 1 else None


# --- patterns of a pack


def _is_asked(pattern: FieldPattern, about: str) -> bool:
    """Whether the words of a question are those that a pattern is for."""
    if pattern.asked is not None and not whole_words([pattern.asked]).search(about):
        return False
    return pattern.unasked is None or not whole_words([pattern.unasked]).search(about)


def _by_pattern(
    pattern: FieldPattern, kind: str | None, chunks: Sequence[Chunk], *, is_name: bool
) -> list[FieldValue]:
    """Whole values that a pack's pattern matches, in the sentences and sections where it holds."""
    without = None if pattern.without is None else compile_expression(pattern.without)
    under = None if pattern.under is None else compile_expression(pattern.under)
    form = compile_expression(pattern.match, case=True)
    stated = []
    for chunk in chunks:
        if under is not None and not under.search(heading_of(chunk)):
            continue
        for sentence in sentences(chunk.full_text):
            match = form.search(sentence)
            if (
                match is None
                or not match["value"]
                or (without is not None and without.search(sentence))
            ):
                continue
            if expression("void").search(plain(sentence)):
                continue
            if is_name:
                value = _whole_name(sentence, *match.span("value"), chunks)
            else:
                value = _whole(sentence, *match.span("value"), kind)
            # The year of a period is printed with its end: `from 1 January to 31 December 2025`.
            year = match.groupdict().get("year")
            if value is not None:
                stated.append(
                    FieldValue(
                        f"{value} {year}" if year and not _YEAR.search(value) else value, sentence
                    )
                )
    return stated


# --- labels of a pack


def _by_label(
    reading: FieldReading, chunks: Sequence[Chunk], *, is_name: bool
) -> Iterator[FieldValue]:
    """Values beside the labels or the role of a field."""
    form = compile_expression(whole_words(map(_bare_expression, reading.labels)).pattern)
    role = None if reading.role is None else compile_expression(_bare_expression(reading.role))
    outside = None if reading.without is None else compile_expression(reading.without)
    for statement in statements(chunks):
        is_named = (
            role is not None
            and statement.form == "role"
            and role.search(plain(statement.label)) is not None
        )
        if not is_named and not _is_beside(
            statement.label, form, in_sentence=statement.form == "sentence"
        ):
            continue
        if (
            (outside is not None and outside.search(statement.text))
            or _is_former(statement)
            or _is_dated(statement)
        ):
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
        is_parted = (
            in_sentence
            and before.split()[-1:] != []
            and before.split()[-1] in entries("determiners")
        )
        if not _content(after) and (is_parted or not _content(before)):
            return True
    return False


def _content(text: str) -> bool:
    """Whether a text says anything."""
    return any(word not in _fillers() for word in stems(re.sub(r"\([^()]*\)", " ", text)))


@lru_cache(maxsize=1)
def _fillers() -> frozenset[str]:
    """Stems of words that say nothing of what a value is."""
    return frozenset(stem for entry in entries("stating") for stem in stems(entry))


def _is_former(statement: Statement) -> bool:
    """Whether a statement says that its value held once."""
    text = plain(statement.text)
    return (
        expression("lapsed").search(text) is not None
        or expression("older").search(text) is not None
    )


def _is_dated(statement: Statement) -> bool:
    """Whether a value that changes over time is stated with a day from or until which it holds."""
    return statement.kind in _CHANGING and any(
        value.kind == "date" for value in values_in(statement.text)
    )


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
    names = list(dict.fromkeys(match[0] for match in re.finditer(NAME, statement.value)))
    return names[0] if len(names) == 1 and not _is_post(names[0]) else None


def _is_post(name: str) -> bool:
    """Whether what is printed as a name is of a post, or a heading in capitals."""
    return expression("posts").match(plain(name)) is not None


def _whole_name(text: str, start: int, end: int, chunks: Sequence[Chunk]) -> str | None:
    """A name of a text with its abbreviation's stop, and an article that is part of it.

    None where it is of a post.

    At the beginning of a sentence an article is part of a name where the tags of the document print
    both, and none where its text has the name without.
    """
    name = re.sub(r"\s(?:Le|La|Les|The|Au|Du)$", "", text[start:end].strip())
    if _is_post(name):
        return None
    if _ABBREVIATED.search(name) and text[end : end + 1] == ".":
        name = f"{name}."
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
_ABBREVIATED = re.compile(r"\b(?:Inc|Corp|Co|Bros)$")
_SUFFIX = {"amount": _RATE, "duration": _MORE, "phone": _EXTENSION}


def _whole(text: str, start: int, end: int, kind: str | None) -> str | None:
    """A value of a text with what belongs to it.

    None where its bounds cut a number or word, or a number is all.
    """
    cut_before = (start > 0 and _is_cut(text[start - 1], text[start])) or re.search(
        r"\d[.,]$", text[:start][-2:]
    )
    cut_after = (end < len(text) and _is_cut(text[end - 1], text[end])) or re.match(
        r"[.,]\d", text[end:]
    )
    if cut_before or cut_after:
        return None
    values = values_in(text)
    own = next((value for value in values if value.start <= start and end <= value.end), None)
    if own is None:
        return text[start:end].strip()
    return None if own.kind == "number" and kind in _NUMBERLESS else _joined(text, own, values)


def _is_cut(left: str, right: str) -> bool:
    """Whether a bound between two characters cuts a number or a word."""
    return left.isalnum() and right.isalnum()


def _joined(text: str, own: TypedValue, values: Sequence[TypedValue]) -> str | None:
    """A value with its rate's unit, its range's other end, or the numbers around a telephone's.

    A percentage that ends a range is no value by itself.
    """
    start, end = own.start, own.end
    suffix = _SUFFIX.get(own.kind)
    more = suffix.match(text, end) if suffix else None
    end = more.end() if more else end
    if own.kind == "phone" and (country := _COUNTRY.search(text[:start])):
        start = country.start()
    if own.kind in {"quantity", "percentage"}:
        for value in values:  # `5 °C to 40 °C`
            if (
                value.kind == own.kind
                and value.start >= end
                and RANGE.fullmatch(text[end : value.start])
            ):
                end = value.end
            elif (
                value.end <= start
                and value.kind in {own.kind, "number"}
                and RANGE.fullmatch(text[value.end : start])
            ):
                start = value.start
        if own.kind == "percentage" and (start, end) != (own.start, own.end):
            return None
        start -= (start, end) != (own.start, own.end) and text[max(0, start - 1) : start] == "+"
    return text[start:end].strip()


# --- words of the documents
def _by_words(field: str, chunks: Sequence[Chunk], about: str) -> Iterator[FieldValue]:
    """Values of the kinds that a question asks for whose label is the field's words.

    Rows before sentences.
    """
    words = stems(field.partition(":")[0].replace("_", " "))
    if not words:
        return
    stated = [
        statement
        for statement in statements(chunks)
        if _is_named(statement, words) and not _is_former(statement)
    ]
    kinds = wanted_kinds(about)
    stated = [statement for statement in stated if not kinds or statement.kind in kinds]
    stated = meeting(about, stated, chunks) or stated
    printed = [
        statement
        for statement in stated
        if statement.form != "sentence" and statement.kind not in {"text", "number"}
    ]
    clauses = [
        statement
        for statement in stated
        if statement.form == "sentence" and statement.kind != "number"
    ]
    yield from (FieldValue(statement.value, statement.text) for statement in printed or clauses)


def _is_named(statement: Statement, words: Sequence[str]) -> bool:
    """Whether the name of a statement is that of the field.

    All its words, and no others but small ones.
    """
    own = stems(statement.name)
    if not all(any(meets(word, name) for name in own) for word in words):
        return False
    return not any(
        name not in _fillers() and not any(meets(name, word) for word in words) for name in own
    )


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
