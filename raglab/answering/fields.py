"""Fields read from the pages: who insures, from when, for how much (rule S5.10).

Only what the pages print is read: sentences, headings of sections and table rows. Tags and the document's title, which
stand before each chunk's text as its heading path, fill nothing. Where no rule matches the value is None, which is the
signal `failure` of the learned defaults; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.answering._field_asides import aside_value
from raglab.answering._field_figures import figure
from raglab.answering._field_rules import RULES, Pattern, Rule
from raglab.answering._field_tables import Page, role_value, total_value
from raglab.sentences import Piece, pieces
from raglab.values import Chunk

FIELDS: Mapping[str, Rule] = RULES
_PATH_JOINT = " > "
_ARTICLE = re.compile(r"^(?:The|Le|La|Les)\s+")
_NO_NAME = frozenset(
    """A An And Any As At By Each For If In It No Not Of On Our The This To We You Your Ce Cette Il Elle Nous Un
    Une""".split()  # noqa: SIM905
)
_NO_INSURER = re.compile(r"\b(?:brokers?|broking|courtier|courtage|policyholder|assuré)\b", re.IGNORECASE)


class Extracted(NamedTuple):
    """What was read of a field.

    value: as printed, None where no rule matched. sentence: the sentence or table row that states it, as `sentences`
    gives it, "" with None. chunk: position in what was given, -1 with None. page: of that chunk. confidence: share of
    the field's values that were right on labelled documents, in [0, 1]; 0 with None.
    """

    value: str | None
    sentence: str
    chunk: int
    page: int | None
    confidence: float


NOTHING = Extracted(None, "", -1, None, 0.0)


def extract(field: str, chunks: Sequence[Chunk], *, about: str = "") -> Extracted:
    """Value of a field, with the sentence that states it; a value of None where no rule matches.

    The strongest pattern wins, then the first chunk, then the first sentence. Several limits or deductibles are told
    apart by `about`; where it names none, only a general one or the single one is taken. Where `about` turns to
    another matter (the tax on a premium, the night line) only what stands beside that word is taken.

    Args:
      field: one of `FIELDS`. chunks: of the scoped pages, best first. about: words of the question that narrow the
        field, such as a peril or a cover.

    Raises:
      ValueError: a field without a rule.

    Source: rule S5.10.

    Example:
      >>> extract("insurer_name", [Chunk("a#1", "The insurer is Acme Assurance plc.", "a.md", 1)]).value
      'Acme Assurance plc'
    """
    rule = FIELDS.get(field)
    if rule is None:
        msg = f"a field must have a rule, got {field!r}; name one of {', '.join(FIELDS)}."
        raise ValueError(msg)
    pages = [_page(n, chunk) for n, chunk in enumerate(chunks)]
    found = next(_found(field, rule, pages, about), None)
    if found is None:
        return NOTHING
    value, sentence, place = found
    return Extracted(value, sentence, place, chunks[place].page, rule.confidence)


def _found(field: str, rule: Rule, pages: Sequence[Page], about: str) -> Iterator[tuple[str, str, int]]:
    """Values in the order in which they are preferred."""
    if rule.aside is not None:
        turned = aside_value(rule.aside, pages, about)
        if turned is not None:
            yield from turned
            return
    if rule.figures:
        yield from figure(field, pages, about)
    if rule.role is not None:
        yield from role_value(rule.role, pages)
    if rule.total is not None:
        yield from total_value(rule.total, pages, about)
    for pattern in rule.prose:
        if _silent(pattern, about):
            continue
        yield from _matched(field, pattern, ((page, piece.text) for page in pages for piece in page.stated))
    for pattern in rule.headings:
        yield from _matched(field, pattern, ((page, page.printed) for page in pages))


def _matched(field: str, pattern: Pattern, texts: Iterator[tuple[Page, str]]) -> Iterator[tuple[str, str, int]]:
    for page, text in texts:
        if pattern.under is not None and not pattern.under.search(page.section):
            continue
        if pattern.without is not None and pattern.without.search(text):
            continue
        for match in pattern.match.finditer(text):
            value = _clean(field, match)
            if value:
                yield value, text, page.place


def _silent(pattern: Pattern, about: str) -> bool:
    """Whether the question rules a pattern out."""
    lacks = pattern.asked is not None and not pattern.asked.search(about)
    return lacks or (pattern.unasked is not None and bool(pattern.unasked.search(about)))


def _clean(field: str, match: re.Match[str]) -> str:
    """The value without an article; "" for what is no value of the field."""
    value = _ARTICLE.sub("", match["value"]).strip()
    year = match.groupdict().get("year")
    if year and not re.search(r"\d{4}$", value):
        return f"{value} {year}"
    if field.endswith(("_name", "_insured", "_payee")):
        value = re.sub(r"(?:\s(?:of|de|des|du|&))+$", "", value)
        if value.split(" ", 1)[0] in _NO_NAME or (field == "insurer_name" and _NO_INSURER.search(value)):
            return ""
    return value


@lru_cache(maxsize=4096)
def _pieces(text: str) -> tuple[Piece, ...]:
    return tuple(pieces(text))


def _page(place: int, chunk: Chunk) -> Page:
    """A chunk's pieces apart from its heading path, and the section's own heading."""
    parts = _pieces(chunk.text)
    head = parts[0].text if parts and parts[0].kind == "heading" else ""
    printed = head.partition(_PATH_JOINT)[2]
    stated: tuple[Piece, ...] = tuple(piece for piece in parts if piece.kind != "heading")
    return Page(place, printed or head, printed, stated)
