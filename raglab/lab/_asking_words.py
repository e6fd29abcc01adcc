"""What is said to the user of values and defaults, and what a user's reply means; English and French."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from raglab.answering._asking_words import SECTIONS_SAID, VALUES
from raglab.answering._phrases import plain
from raglab.default_learner import OTHER, ClarificationDefault

LONGEST = 200  # characters of a reply
YEAR = 4  # digits that are no page
PAGE_SCOPE = "page_scope"
YES = frozenset(
    {
        "yes",
        "y",
        "yeah",
        "yep",
        "ok",
        "okay",
        "sure",
        "right",
        "correct",
        "oui",
        "ouais",
        "o",
        "si",
        "d'accord",
        "exact",
    }
)
NO = frozenset({"no", "n", "nope", "wrong", "incorrect", "non", "faux"})
_PAGE = re.compile(r"^(?:pages? |p\.? ?)?0*([1-9]\d{0,3})$")
_LEADING = re.compile(r"^(?:no|non|yes|oui)[,;:]? (?=\S)")
_THANKS = re.compile(r"[,;]? (?:please|thanks|thank you|merci|svp|s'il (?:vous|te) plait)$")
_TRY = re.compile(
    r"^(?:please )?(?:(?:try|read|look|search|check|cherchez?|essaie|essayez|regardez?|lisez|lis) )?"
    r"(?:(?:in|on|at|dans|sur|a) )?"
)
_ARTICLE = re.compile(r"^(?:the|le|la|les) |^l'")
_SCOPES: Mapping[str, Sequence[str]] = {
    "toc": (
        "toc",
        "contents",
        "table of contents",
        "sommaire",
        "table des matieres",
    ),
    "document": ("document", "whole document", "everywhere", "all pages", "tout le document", "partout"),
}
_OTHER = {"en": "something else", "fr": "autre chose"}
_OTHER_PAGE = {"en": "another page, by its number", "fr": "une autre page, par son numéro"}


class Meant(NamedTuple):
    """What a reply means: the value, None for a no that names none; and whether it can be learned as a candidate."""

    value: str | None
    learned: bool


def meant(reply: str, candidates: Sequence[str], proposed: str | None, kind: str) -> Meant:
    """What a reply means, given what was offered.

    Args:
      candidates: values that were offered. proposed: what a yes agrees to. kind: of the failure; a page may be named
        where it is `page_scope`.

    Raises:
      ValueError: an empty reply or one that is too long, a yes where nothing was proposed, `other` without saying what.

    Example:
      >>> meant("Oui", ("1", "toc"), "1", "page_scope")
      Meant(value='1', learned=True)
    """
    said = _THANKS.sub("", plain(" ".join(reply.split())).strip(" .!"))
    if not said or len(reply) > LONGEST:
        msg = f"a reply must have 1 to {LONGEST} characters, got {len(reply)}; say yes, no or one of the values."
        raise ValueError(msg)
    if said in NO:
        return Meant(None, learned=True)
    if said in YES:
        if proposed is None:
            msg = f"yes must agree to something proposed, got {reply!r}; name one of {', '.join(candidates)}."
            raise ValueError(msg)
        return Meant(proposed, learned=True)
    bare = _bare(_TRY.sub("", _LEADING.sub("", said)))
    value = next((one for one in candidates if bare in _names(one)), None) or _scope(bare, kind)
    if value is not None:
        return Meant(value, learned=True)
    if kind == PAGE_SCOPE or bare in _names(OTHER):
        what = "a page's number" if kind == PAGE_SCOPE else "what is meant, in words,"
        msg = f"a reply must be yes, no, {what} or one of {', '.join(candidates)}, got {reply!r}; say which."
        raise ValueError(msg)
    return Meant(" ".join(reply.split()), learned=False)


def _names(value: str) -> set[str]:
    """Texts that name a value, in plain letters, without an article."""
    texts = (value, value.replace("_", " "), value.removesuffix(".md"), shown(value, "en"), shown(value, "fr"))
    return {_bare(plain(text)) for text in texts}


def _bare(said: str) -> str:
    return _ARTICLE.sub("", said)


def _scope(bare: str, kind: str) -> str | None:
    """Scope of pages that a plain text names, None where it names none."""
    if kind != PAGE_SCOPE:
        return None
    page = _PAGE.match(bare)
    return page[1] if page else next((value for value, names in _SCOPES.items() if bare in names), None)


def shown(value: str, language: Literal["en", "fr"], kind: str = "") -> str:
    """A value in words."""
    if value == OTHER:
        return (_OTHER_PAGE if kind == PAGE_SCOPE else _OTHER)[language]
    words = (SECTIONS_SAID.get(value) if kind == PAGE_SCOPE else None) or VALUES.get(value)
    if words:
        return words[language == "fr"]
    return f"page {value}" if value.isdecimal() and len(value) < YEAR else value.replace("_", " ")


def options_of(candidates: Sequence[str], language: Literal["en", "fr"], kind: str) -> list[dict[str, Any]]:
    """Options of a clarification, from 1: the candidate values, and `other` (rule S0.2)."""
    values = [*(one for one in candidates if one != OTHER), OTHER]
    return [{"id": n, "value": one, "text": shown(one, language, kind)} for n, one in enumerate(values, 1)]


def default_of(row: ClarificationDefault, value: str, verdict: str) -> dict[str, Any]:
    """The response's `default_applied`."""
    return {
        "field": row.target_field,
        "value": value,
        "row_id": row.row_id,
        "version": row.version,
        "confidence": row.confidence,
        "gate": verdict,
    }


def told_default(row: ClarificationDefault, value: str) -> str:
    """A default that was applied, as a warning says it."""
    under = ", ".join(f"{name} {one}" for name, one in row.sub_conditions.items())
    where = f"{row.doctype}{f' with {under}' if under else ''}"
    learned = f"confidence {row.confidence:.2f} of {counted(row.sample_size, 'earlier request')}"
    return (
        f"{row.target_field}: {shown(value, 'en')} by the learned default for {where} ({learned}); reply to correct it"
    )


def told_tried(field: str, tried: Sequence[str], kind: str = PAGE_SCOPE) -> str:
    """What was read in vain, as a warning says it."""
    values = " or ".join(shown(value, "en") for value in dict.fromkeys(tried))
    return f"{field} was not found in {values}" if kind == PAGE_SCOPE else f"{field} could not be read as {values}"


def counted(number: int, what: str) -> str:
    """A number and its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
