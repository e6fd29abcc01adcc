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
from raglab.extensions.clarification.value_kinds import (
    NAME_PATTERN,
    RANGE_JOINT,
    TypedValue,
    values_in,
)
from raglab.live.clarifier import FieldValue
from raglab.values import Chunk
from raglab.words.packs import GENERIC, FieldPattern, FieldReading, Pack, compile_expression
from raglab.words.text import fold_case, sentences

# kinds whose values change in time
_CHANGING_KINDS = frozenset({"amount", "percentage", "duration", "quantity", "number"})
_NUMBERLESS_KINDS = frozenset({"phone", "date", "email", "url"})  # kinds that no bare number is of
_NAME_KINDS = frozenset({"person", "organisation"})  # kinds of a pack that are names


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
    pack_field, about = pack.fields.get(field), plain(about)
    if pack_field is None:
        return _only(_by_words(field, chunks, about))
    field_reading = pack_field.reading
    if field_reading is None:
        return None
    is_name = (
        pack_field.names
        or field_reading.kind in _NAME_KINDS
        or (field_reading.role and field_reading.kind is None)
    )
    whole_value = (
        partial(_whole_name, chunks=chunks)
        if is_name
        else partial(_whole, value_kind=field_reading.kind)
    )
    pattern_values = [
        pattern_value
        for field_pattern in field_reading.prose
        if _is_asked(field_pattern, about)
        for pattern_value in _by_pattern(field_pattern, whole_value, chunks)
    ]
    return _only((*pattern_values, *_by_label(field_reading, chunks, is_name=bool(is_name))))


def _has(expression: str | None, text: str) -> bool:
    """Whether an expression of a pack occurs in a text; none does not."""
    return expression is not None and compile_expression(expression).search(text) is not None


def _only(field_values: Iterable[FieldValue]) -> FieldValue | None:
    """The first of some values where all are the same; None where they differ, or there is none."""
    value_list = list(field_values)
    return (
        value_list[0]
        if len({value_key(field_value.value) for field_value in value_list}) == 1
        else None
    )


# --- patterns of a pack


def _is_asked(field_pattern: FieldPattern, question_text: str) -> bool:
    """Whether the words of a question are those that a pattern is for."""
    return not any(
        pattern_words is not None
        and bool(whole_words([pattern_words]).search(question_text)) != is_required
        for pattern_words, is_required in (
            (field_pattern.asked, True),
            (field_pattern.unasked, False),
        )
    )


def _by_pattern(
    field_pattern: FieldPattern,
    whole_value: Callable[[str, int, int], str | None],
    chunks: Sequence[Chunk],
) -> Iterator[FieldValue]:
    """Whole values that a pack's pattern matches, in the sentences and sections where it holds."""
    value_pattern = compile_expression(field_pattern.match, case=True)
    for chunk in chunks:
        if field_pattern.under is not None and not _has(field_pattern.under, heading_of(chunk)):
            continue
        for sentence in sentences(chunk.full_text):
            value_match = value_pattern.search(sentence)
            if (
                value_match is None
                or not value_match["value"]
                or _has(field_pattern.without, sentence)
                or expression("void").search(plain(sentence))
            ):
                continue
            matched_value = whole_value(sentence, *value_match.span("value"))
            # The year of a period is printed with its end: `from 1 January to 31 December 2025`.
            matched_year = value_match.groupdict().get("year")
            if (
                matched_value is not None
                and matched_year
                and not _YEAR_DIGITS.search(matched_value)
            ):
                matched_value = f"{matched_value} {matched_year}"
            if matched_value is not None:
                yield FieldValue(matched_value, sentence)


# --- labels of a pack


def _by_label(
    reading: FieldReading, chunks: Sequence[Chunk], *, is_name: bool
) -> Iterator[FieldValue]:
    """Values beside the labels or the role of a field."""
    label_pattern = compile_expression(whole_words(map(_bare_expression, reading.labels)).pattern)
    role_pattern = reading.role and _bare_expression(reading.role)
    for statement in statements(chunks):
        is_role = statement.form == "role" and _has(role_pattern, plain(statement.label))
        is_of_field = is_role or _is_field_alone(
            statement.label, label_pattern, in_sentence=statement.form == "sentence"
        )
        if not is_of_field or _has(reading.without, statement.text) or _is_former(statement):
            continue
        # a value that changes over time, with a day from or until which it holds
        if statement.kind in _CHANGING_KINDS and "date" in {
            label_value.kind for label_value in values_in(statement.text)
        }:
            continue
        label_value = _name_of(statement) if is_name else _typed_value(statement, reading.kind)
        if label_value is not None:
            yield FieldValue(label_value, statement.text)


@lru_cache(maxsize=1 << 12)
def _bare_expression(expression: str) -> str:
    """An expression without accents, as the texts that it is searched in are."""
    return "".join(
        character if character.isascii() else fold_case(character) for character in expression
    )


@lru_cache(maxsize=1 << 12)
def _is_field_alone(label: str, label_pattern: re.Pattern[str], *, in_sentence: bool) -> bool:
    """Whether a field's name is all that a label says, but for small words.

    In a sentence, what stands before the name is not of it where an article parts them.
    """
    plain_label = plain(label)
    for label_match in label_pattern.finditer(plain_label):
        text_before, text_after = (
            plain_label[: label_match.start()],
            plain_label[label_match.end() :],
        )
        is_parted = in_sentence and {*text_before.split()[-1:]} & {*entries("determiners")}
        if not _content(text_after) and (is_parted or not _content(text_before)):
            return True
    return False


def _content(text: str) -> bool:
    """Whether a text says anything."""
    return not _fillers().issuperset(stems(re.sub(r"\([^()]*\)", " ", text)))


@lru_cache(maxsize=1)
def _fillers() -> frozenset[str]:
    """Stems of words that say nothing of what a value is."""
    return frozenset(
        entry_stem for list_entry in entries("stating") for entry_stem in stems(list_entry)
    )


def _is_former(statement: Statement) -> bool:
    """Whether a statement says that its value held once."""
    plain_text = plain(statement.text)
    return any(expression(list_name).search(plain_text) for list_name in ("lapsed", "older"))


def _typed_value(statement: Statement, value_kind: str | None) -> str | None:
    """The only value of a kind that a row, line or clause states, whole."""
    if value_kind in {None, "text"}:
        return statement.value
    typed_values = [value for value in values_in(statement.value) if value.kind == value_kind]
    if len({value.text for value in typed_values}) != 1:
        return None
    value_start = statement.text.find(statement.value)
    if value_start < 0:
        return typed_values[0].text
    return _whole(
        statement.text,
        value_start + typed_values[0].start,
        value_start + typed_values[0].end,
        value_kind,
    )


def _name_of(statement: Statement) -> str | None:
    """The only name that a row, line or clause states."""
    name_set = {name_match[0] for name_match in re.finditer(NAME_PATTERN, statement.value)}
    return next(
        (
            stated_name
            for stated_name in name_set
            if len(name_set) == 1 and not _is_post(stated_name)
        ),
        None,
    )


def _is_post(name: str) -> bool:
    """Whether what is printed as a name is of a post, or a heading in capitals."""
    return expression("posts").match(plain(name)) is not None


def _whole_name(text: str, name_start: int, name_end: int, chunks: Sequence[Chunk]) -> str | None:
    """A name of a text with an article that is part of it.

    None where it is of a post.

    At the beginning of a sentence an article is part of a name where the tags of the document print
    both, and none where its text has the name without.
    """
    bare_name = re.sub(r"\s(?:Le|La|Les|The|Au|Du)$", "", text[name_start:name_end].strip())
    if _is_post(bare_name):
        return None
    tag_values = {
        tag_value
        for chunk in chunks
        for tag_value in chunk.tags.values()
        if isinstance(tag_value, str)
    }
    name_with_article = text[:name_start] + bare_name
    if (
        name_with_article != bare_name
        and name_with_article in tag_values
        and _NAME_ARTICLE.match(name_with_article)
    ):
        return name_with_article
    article_match = _NAME_ARTICLE.match(bare_name)
    if article_match and name_start == 0 and bare_name not in tag_values:
        name_alone = bare_name[article_match.end() :]
        alone_pattern = re.compile(
            rf"(?<!{re.escape(bare_name[: article_match.end()])}){re.escape(name_alone)}"
        )
        return (
            name_alone
            if any(alone_pattern.search(chunk.full_text) for chunk in chunks)
            else bare_name
        )
    return bare_name


# --- whole values


_NAME_ARTICLE = re.compile(r"(?:The|Le|La|Les)\s")
_YEAR_DIGITS = re.compile(r"\d{4}")
_RATE_SUFFIX = re.compile(
    r"\s?(?:/|per\b|an?\b|par\b|du\b|le\b)\s?(?:miles?|km|kilom[eè]tres?|kilometers?)\b",
    re.IGNORECASE,
)
_FRACTION_SUFFIX = re.compile(
    r"\s(?:and\sa\s(?:half|quarter)|et\s(?:demie?|un\squart))\b", re.IGNORECASE
)
_PHONE_EXTENSION = re.compile(r",?\s\(?(?:ext(?:ension)?|poste)\b\.?\s?\d{1,5}\)?", re.IGNORECASE)
_COUNTRY_CODE = re.compile(r"(?<![\w-])\+?\d{1,3}[\s-](?=$)")
# what no number or word goes on beyond
_VALUE_START = re.compile(r"(?<!\d[.,])(?:\b|(?=\W))")
_VALUE_END = re.compile(r"(?:\b|(?<=\W))(?![.,]\d)")
_SUFFIX_BY_KIND = {"amount": _RATE_SUFFIX, "duration": _FRACTION_SUFFIX, "phone": _PHONE_EXTENSION}


def _whole(text: str, value_start: int, value_end: int, value_kind: str | None) -> str | None:
    """A value of a text with what belongs to it.

    None where its bounds cut a number or word, or a number is all.
    """
    if not (_VALUE_START.match(text, value_start) and _VALUE_END.match(text, value_end)):
        return None
    text_values = values_in(text)
    enclosing_value = next(
        (
            text_value
            for text_value in text_values
            if text_value.start <= value_start and value_end <= text_value.end
        ),
        None,
    )
    if enclosing_value is None:
        return text[value_start:value_end].strip()
    return (
        None
        if enclosing_value.kind == "number" and value_kind in _NUMBERLESS_KINDS
        else _joined(text, enclosing_value, text_values)
    )


def _joined(text: str, typed_value: TypedValue, text_values: Sequence[TypedValue]) -> str | None:
    """A value with its rate's unit, its range's other end, or the numbers around a telephone's."""
    value_start, value_end = typed_value.start, typed_value.end
    suffix_pattern = _SUFFIX_BY_KIND.get(typed_value.kind)
    suffix_match = suffix_pattern and suffix_pattern.match(text, value_end)
    value_end = suffix_match.end() if suffix_match else value_end
    if typed_value.kind == "phone" and (country_match := _COUNTRY_CODE.search(text[:value_start])):
        value_start = country_match.start()
    if typed_value.kind in {"quantity", "percentage"}:  # `5 °C to 40 °C`
        value_start = next(
            (
                text_value.start
                for text_value in text_values
                if text_value.kind in {typed_value.kind, "number"}
                and RANGE_JOINT.fullmatch(text[text_value.end : value_start])
            ),
            value_start,
        )
        value_end = next(
            (
                text_value.end
                for text_value in text_values
                if text_value.kind == typed_value.kind
                and RANGE_JOINT.fullmatch(text[value_end : text_value.start])
            ),
            value_end,
        )
    return text[value_start:value_end].strip()


# --- words of the documents
def _by_words(field: str, chunks: Sequence[Chunk], question_text: str) -> list[FieldValue]:
    """Values of the kinds that a question asks for whose label is the field's words.

    Rows before sentences.
    """
    field_stems, asked_kinds = (
        stems(field.partition(":")[0].replace("_", " ")),
        wanted_kinds(question_text),
    )
    named_statements = [
        statement
        for statement in statements(chunks)
        if field_stems and _is_named(statement, field_stems) and not _is_former(statement)
        if not asked_kinds or statement.kind in asked_kinds
    ]
    met_statements = meeting(question_text, named_statements, chunks) or named_statements
    valued_statements = [each for each in met_statements if each.kind != "number"]
    row_statements = [
        each for each in valued_statements if each.form != "sentence" and each.kind != "text"
    ]
    sentence_statements = [each for each in valued_statements if each.form == "sentence"]
    return [
        FieldValue(statement.value, statement.text)
        for statement in row_statements or sentence_statements
    ]


def _is_named(statement: Statement, field_stems: Sequence[str]) -> bool:
    """Whether the name of a statement is that of the field.

    All its words, and no others but small ones.
    """
    name_stems = stems(statement.name)
    further_stems = {*name_stems} - shared_stems(name_stems, field_stems)
    return {*field_stems} == shared_stems(field_stems, name_stems) and _fillers().issuperset(
        further_stems
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
    quote_pattern = re.compile(rf"(?<![\w.,]){re.escape(bare_quote)}(?!\w|[.,]\d)")
    return next((chunk for chunk in chunks if quote_pattern.search(_bare(chunk.full_text))), None)


def _bare(text: str) -> str:
    """A text as a quote of it is compared: without marks of tables and emphasis, in single blanks.

    French sets a blank before a colon, English none.
    """
    return " ".join(re.sub(r"[|;*#>]+", " ", plain(text)).split()).replace(" :", ":")
