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

YEAR = 4  # digits that are no page
WORDED = frozenset({PAGE_SCOPE, "intent", "date_scope", ""})  # kinds whose values have words
PERSON = "person"  # field of a question whom to turn to, which names nobody


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
    words = language_parts()[language]
    if value == OTHER:
        return str(words["say_other_page" if kind == PAGE_SCOPE else "say_other"])
    if value.isdecimal() and len(value) < YEAR and kind in {PAGE_SCOPE, ""}:
        return str(words["say_page"]).format(page=value)
    phrase = str(words.get(f"say_{value}", "{"))
    if kind not in WORDED or "{" in phrase:
        return text or value
    return f"{phrase} ({text})" if text and kind == "date_scope" else phrase


def field_text(field: str, language: str, pack: Pack = GENERIC, question: str | None = None) -> str:
    """A field as a user reads it: in the words of the pack, else its own.

    Without what it is split by.

    Args:
      question: a field without words in the pack is quoted as this writes them; None quotes none.
    """
    name = field.partition(":")[0]
    if language in pack.wording and name in pack.wording[language].fields:
        return pack.wording[language].fields[name].the
    text, words = language_parts()[language].get(f"field_{name}"), name.replace("_", " ")
    if question is None or text is not None:
        return str(text or words)
    printed = {plain(word): word for word in re.findall(r"\w+", question)}
    words = " ".join(printed.get(word, word) for word in words.split())
    return f"« {words} »" if language == "fr" else f"“{words}”"


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
    words, field = language_parts()[language], field_text(gap.field, language, pack, question)
    texts = {
        reading.value: reading_text(reading, gap.kind, language).rstrip(".")
        for reading in gap.readings
    }
    key: str = gap.kind
    if gap.field.partition(":")[0] == PERSON:
        key = PERSON
    elif gap.reason == "usual" and _are_pages(gap.readings):
        key = "page_failed" if failed else "page"
    why = "votes" if learned else proposed if proposed == "cite" else gap.reason
    text = str(words[f"text_{key}"]).format(
        field=field,
        options=("; " if "," in "".join(texts.values()) else ", ").join(texts.values()),
        proposed=texts.get(proposed, proposed),
        reason=words.get(f"reason_{why}", "").format(field=field),
        failed=value_text(failed, language, gap.kind),
    )
    return text[0].upper() + text[1:]


def _are_pages(readings: Sequence[GapReading]) -> bool:
    """Whether readings are pages by their number, or scopes of pages."""
    values = {reading.value for reading in readings} - {CONTENTS_PAGES, DOCUMENT, LAST_PAGE}
    return all(map(str.isdecimal, values))


def reading_text(reading: GapReading, kind: str, language: str) -> str:
    """A reading as it is offered."""
    return value_text(reading.value, language, kind, reading.text)


def option_rows(readings: Sequence[GapReading], kind: str, language: str) -> list[dict[str, Any]]:
    """Options of a clarification, from 1: what is offered, and `other` (rule S0.2)."""
    rows = {
        reading.value: reading_text(reading, kind, language)
        for reading in readings
        if reading.value != OTHER
    }
    # Parts are not pages: `another page` is offered beside pages alone.
    rows[OTHER] = value_text(OTHER, language, kind if _are_pages(readings) else "")
    return [
        {"id": number, "value": value, "text": text}
        for number, (value, text) in enumerate(rows.items(), 1)
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
    under = ", ".join(f"{name} {value}" for name, value in row.sub_conditions.items())
    doctype_under = Reason("doctype_under", {"doctype": row.doctype, "under": under})
    values = {
        "field": field_text(row.target_field, language, pack),
        "value": shown,
        "where": doctype_under if under else row.doctype,
        "before": Reason("n_requests", {"n": row.sample_size}),
        "confidence": decimals(row.confidence),
    }
    return say(language, Reason("learned_default", values))
