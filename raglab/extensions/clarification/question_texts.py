"""Question texts (algebra): what a user is asked and offered, in the question's language (S5.2).

A text lists exactly what is offered, as the documents print it, and a proposal gives its reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from raglab.audit.default_table import DefaultUse
from raglab.default_learner import OTHER, ClarificationDefault
from raglab.extensions.clarification.language_words import language_parts, plain
from raglab.extensions.clarification.replies import CONTENTS_PAGES, DOCUMENT, LAST_PAGE, PAGE_SCOPE
from raglab.live.clarifier import GapReading, QuestionGap
from raglab.words.canonical import decimals
from raglab.words.languages import Reason, say
from raglab.words.packs import GENERIC, Pack

YEAR_DIGITS = 4  # digits that are no page
WORDED_KINDS = frozenset({PAGE_SCOPE, "intent", "date_scope", ""})  # kinds whose values have words
PERSON_FIELD = "person"  # field of a question whom to turn to, which names nobody


def value_text(value: str, language: str, kind: str = "", text: str = "") -> str:
    """A value as a user reads it: the documents' own words, a page by its number, a task in words.

    Example:
      >>> (
      ...     value_text("3", "fr", "page_scope"),
      ...     value_text("toc", "en", "page_scope"),
      ...     value_text("Pet deposit", "en"),
      ... )
      ('page 3', 'the table of contents', 'Pet deposit')
    """
    language_words = language_parts()[language]
    if value == OTHER:
        return str(language_words["say_other_page" if kind == PAGE_SCOPE else "say_other"])
    if value.isdecimal() and len(value) < YEAR_DIGITS and kind in {PAGE_SCOPE, ""}:
        return str(language_words["say_page"]).format(page=value)
    value_phrase = str(language_words.get(f"say_{value}", "{"))
    if kind not in WORDED_KINDS or "{" in value_phrase:
        return text or value
    return f"{value_phrase} ({text})" if text and kind == "date_scope" else value_phrase


def field_text(field: str, language: str, pack: Pack = GENERIC, question: str | None = None) -> str:
    """A field as a user reads it: in the words of the pack, else its own.

    Without what it is split by.

    Args:
      question: a field without words in the pack is quoted as this writes them; None quotes none.
    """
    field_name = field.partition(":")[0]
    if language in pack.wording and field_name in pack.wording[language].fields:
        return pack.wording[language].fields[field_name].the
    field_phrase = language_parts()[language].get(f"field_{field_name}")
    field_words = field_name.replace("_", " ")
    if question is None or field_phrase is not None:
        return str(field_phrase or field_words)
    printed_words = {
        plain(printed_word): printed_word for printed_word in re.findall(r"\w+", question)
    }
    field_words = " ".join(
        printed_words.get(printed_word, printed_word) for printed_word in field_words.split()
    )
    return f"« {field_words} »" if language == "fr" else f"“{field_words}”"


def question_text(
    gap: QuestionGap,
    language: str,
    *,
    proposed: str,
    learned: bool = False,
    failed: str = "",
    pack: Pack = GENERIC,
    question: str = "",
) -> str:
    """The question put to the user.

    Args:
      gap: the gap, with the readings on offer.
      language: of the user.
      proposed: value that a yes takes.
      learned: whether earlier replies name it.
      failed: value that was tried before and gave nothing.
      pack: names of fields.
      question: the user's question, whose own words a field without a name in the pack is shown in.

    Source: the clarification article, cases 1 and 12.

    Example:
      >>> gap = QuestionGap(
      ...     "field_type",
      ...     "deposit",
      ...     (GapReading("Pet deposit"), GapReading("Key deposit")),
      ...     "first",
      ... )
      >>> question_text(gap, "en", proposed="Pet deposit")[:64]
      'Several answers fit “deposit”: Pet deposit, Key deposit. I will '
    """
    language_words = language_parts()[language]
    field_phrase = field_text(gap.field, language, pack, question)
    texts_by_value = {
        reading.value: reading_text(reading, gap.kind, language).rstrip(".")
        for reading in gap.readings
    }
    text_key: str = gap.kind
    if gap.field.partition(":")[0] == PERSON_FIELD:
        text_key = PERSON_FIELD
    elif gap.reason == "usual" and _are_pages(gap.readings):
        text_key = "page_failed" if failed else "page"
    reason_key = "votes" if learned else proposed if proposed == "cite" else gap.reason
    sentence = str(language_words[f"text_{text_key}"]).format(
        field=field_phrase,
        options=("; " if "," in "".join(texts_by_value.values()) else ", ").join(
            texts_by_value.values()
        ),
        proposed=texts_by_value.get(proposed, proposed),
        reason=language_words.get(f"reason_{reason_key}", "").format(field=field_phrase),
        failed=value_text(failed, language, gap.kind),
    )
    return sentence[0].upper() + sentence[1:]


def _are_pages(readings: Sequence[GapReading]) -> bool:
    """Whether readings are pages by their number, or scopes of pages."""
    values = {reading.value for reading in readings} - {CONTENTS_PAGES, DOCUMENT, LAST_PAGE}
    return all(map(str.isdecimal, values))


def reading_text(reading: GapReading, kind: str, language: str) -> str:
    """A reading as it is offered."""
    return value_text(reading.value, language, kind, reading.text)


def option_rows(readings: Sequence[GapReading], kind: str, language: str) -> list[dict[str, Any]]:
    """Options of a clarification, from 1: what is offered, and `other` (rule S0.2)."""
    texts_by_value = {
        reading.value: reading_text(reading, kind, language)
        for reading in readings
        if reading.value != OTHER
    }
    # Parts are not pages: `another page` is offered beside pages alone.
    texts_by_value[OTHER] = value_text(OTHER, language, kind if _are_pages(readings) else "")
    return [
        {"id": option_number, "value": option_value, "text": option_text}
        for option_number, (option_value, option_text) in enumerate(texts_by_value.items(), 1)
    ]


def applied_default(use: DefaultUse) -> dict[str, Any]:
    """The response's `default_applied`."""
    row = use.row
    return {
        "field": row.target_field,
        "value": use.value,
        "row_id": row.row_id,
        "version": row.version,
        "confidence": row.confidence,
        "gate": use.gate,
    }


def default_sentence(
    row: ClarificationDefault, shown: str, language: str, pack: Pack = GENERIC
) -> str:
    """A default that was applied, in words."""
    condition_text = ", ".join(
        f"{name} {condition_value}" for name, condition_value in row.sub_conditions.items()
    )
    doctype_under = Reason("doctype_under", {"doctype": row.doctype, "under": condition_text})
    sentence_values = {
        "field": field_text(row.target_field, language, pack),
        "value": shown,
        "where": doctype_under if condition_text else row.doctype,
        "before": Reason("n_requests", {"n": row.sample_size}),
        "confidence": decimals(row.confidence),
    }
    return say(language, Reason("learned_default", sentence_values))
