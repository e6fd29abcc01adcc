"""Field extraction, figures.

Only what the pages print is read: sentences, headings of sections and table rows. Tags and the document's title, which
stand before each chunk's text as its heading path, fill nothing. Where no rule matches the value is None, which is the
signal `failure` of the learned defaults; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.answering.field_rules import (
    MONEY,
    PREMIUM,
    RULES,
    Page,
    Pattern,
    Rule,
    aside_value,
    chosen_column,
    is_old_and_new,
    role_value,
    total_value,
)
from raglab.text import STOP_WORDS, Piece, pieces, unaccented, words
from raglab.values import Chunk

_DEDUCTIBLE = re.compile(r"\b(?:excess|deductible|franchise|retention)", re.IGNORECASE)
_LIMIT = re.compile(
    r"\b(?:limit|sub-limit|plafond|capitaux|sums? insured|standard sums|indemnity|maxima)", re.IGNORECASE
)
_AGGREGATE = re.compile(
    r"\b(?:aggregate|annual|yearly|per year|a year|in the year|all claims|par an|par année|annuelle?)\b", re.IGNORECASE
)
_OCCURRENCE = re.compile(
    r"\b(?:(?:per|each|any one|for one|one) (?:occurrence|event|claim|accident|loss)"
    r"|(?:par|même) (?:événement|sinistre))",
    re.IGNORECASE,
)
_INNER = re.compile(
    r"\b(?:sub-limits?|inner limits?|of which|dont|within|plafonds internes|sous-limites?)\b", re.IGNORECASE
)
_GENERAL = re.compile(
    r"\b(?:standard|générale|(?:all|any) other|where no other|each claim,? unless|overall|unless listed)\b",
    re.IGNORECASE,
)
_SHARE = re.compile(r"^\d+(?:[.,]\d+)?\s?%")
_SAID = {
    "deductible": re.compile(
        rf"(?i:\b(?:excess|deductible|franchise))(?: \w+)?,? (?:of|is|becomes|est de|de) (?P<value>{MONEY.pattern})"
    ),
    "limit_per_occurrence": re.compile(
        rf"(?P<value>{MONEY.pattern})[^.;£€]{{0,24}}{_OCCURRENCE.pattern}", re.IGNORECASE
    ),
    "aggregate_limit": re.compile(
        rf"(?P<value>{MONEY.pattern})[^.;£€]{{0,24}}\b(?:in the aggregate|in a year|a year in total|par an|par année)",
        re.IGNORECASE,
    ),
}
_OWN = frozenset(  # words of the fields themselves: they tell no row from another
    """excess excesses deductible deductibles franchise franchises limit limits sublimit plafond plafonds aggregate
    annual yearly occurrence per policy contract contrat much amount amounts montant combien garantie garanties apply
    applies cover covered insured insurance assurance any one year sub police quelle pay paid most""".split()  # noqa: SIM905
)
_STEM = 5


class _Figure(NamedTuple):
    """A figure with the words of its row, those of its table, and whether it is general, or one of an old and a new."""

    value: str
    sentence: str
    place: int
    label: frozenset[str]
    context: frozenset[str]
    general: bool
    timed: bool = False


def figure(field: str, pages: Sequence[Page], about: str) -> Iterator[tuple[str, str, int]]:
    """The figure that `about` names, from a table's row, else from a sentence.

    A figure is named if its label and its table's heads have at least half of those words of `about` that occur in any
    of them. The most shared words win, and of two labels the one that says no more than the other; different figures
    that are left are open, and none is taken. Without `about` the general figure is taken, or the only one.
    """
    stages = [_rows(field, pages, about), _sentences(field, pages)]
    if field == "sub_limit":  # what one peril's limit is called differs from paper to paper
        stages.append(_rows("limit_per_occurrence", pages, about))
    for found in stages:
        left = _left(found, _stems(about))
        if left:
            if len({one.value for one in left}) == 1:
                yield left[0].value, left[0].sentence, left[0].place
            return


def _left(found: Sequence[_Figure], wanted: frozenset[str]) -> list[_Figure]:
    """Figures that the wanted words leave; none where they name none."""
    if not wanted:
        return [one for one in found if one.general][:1] or list(found)
    known = wanted & frozenset().union(*(one.label | one.context for one in found))
    ranks = [(len(known & one.label), len(known & one.context), one.timed) for one in found]
    best = [one for one, rank in zip(found, ranks, strict=True) if rank == max(ranks)]
    plain = [one for one in best if not any(other.label < one.label for other in best)]
    return [one for one in plain if known & one.label and 2 * len(known & (one.label | one.context)) >= len(known)]


def _rows(field: str, pages: Sequence[Page], about: str) -> list[_Figure]:
    """Figures of table rows, in order."""
    found = []
    for page in pages:
        said = " ".join(piece.text for piece in page.stated if piece.kind == "prose")
        for piece in page.stated:
            if piece.kind != "row":
                continue
            amounts = [(n, _amount(cell)) for n, cell in enumerate(piece.cells) if n and _is_figure(cell)]
            fit = [(n, value) for n, value in amounts if _fits(field, piece, n, page.section, said)]
            label = " ".join(cell for cell in piece.cells if not _is_figure(cell))
            value, timed = _of_columns(fit, piece.heads, about, label, said)
            if value:
                context = _stems(f"{page.section} {' '.join(piece.heads)}")
                general = bool(_GENERAL.search(label))
                found.append(_Figure(value, piece.text, page.place, _stems(label), context, general, timed))
    return found


def _fits(field: str, piece: Piece, n: int, section: str, said: str) -> bool:
    """Whether the n-th cell of a row is a figure of the field."""
    cell = piece.cells[n]
    head = piece.heads[n] if piece.heads else ""
    row = " ".join(part for part in piece.cells if not _is_figure(part))
    deductible = bool(_DEDUCTIBLE.search(head) or _DEDUCTIBLE.search(row) or _DEDUCTIBLE.search(cell))
    if not (deductible or _LIMIT.search(head) or _LIMIT.search(row)):
        deductible = bool(_DEDUCTIBLE.search(section)) and not _LIMIT.search(section)
    if field == "deductible":
        return deductible
    context = f"{section} {head} {row}"
    is_limit = _LIMIT.search(context) or _LIMIT.search(said) or is_old_and_new(piece.heads[1:])
    if deductible or PREMIUM.search(section) or not is_limit:
        return False
    if field == "sub_limit":
        return bool(_INNER.search(context) or (_INNER.search(said) and not _INNER.search(head)))
    yearly = [bool(_AGGREGATE.search(each)) for each in piece.heads]
    if field == "aggregate_limit":
        return bool(_AGGREGATE.search(cell) or (yearly[n] if any(yearly) else _AGGREGATE.search(row)))
    if _AGGREGATE.search(cell) or _AGGREGATE.search(head) or (_AGGREGATE.search(row) and not any(yearly)):
        return False
    single = [bool(_OCCURRENCE.search(each)) for each in piece.heads]
    return single[n] if any(single) else True


def _of_columns(
    amounts: Sequence[tuple[int, str]], heads: Sequence[str], about: str, label: str, said: str
) -> tuple[str, bool]:
    """The amount of the column that `about` names, "" where it is open, and whether there is an old and a new one."""
    if not amounts:
        return "", False
    over = [heads[n] if heads else "" for n, _ in amounts]
    if is_old_and_new(over):
        return amounts[chosen_column(over, about, label=label, said=said)][1], True
    if len({value for _, value in amounts}) == 1:
        return amounts[0][1], False
    wanted = _stems(about)
    shared = [len(wanted & _stems(head)) for head in over]
    return (amounts[shared.index(max(shared))][1] if shared.count(max(shared)) == 1 else ""), False


def _sentences(field: str, pages: Sequence[Page]) -> list[_Figure]:
    """Figures of sentences, in order."""
    said = _SAID.get(field)
    if said is None:
        return []
    return [
        _Figure(
            match["value"],
            piece.text,
            page.place,
            _stems(f"{page.section} {piece.text}"),
            frozenset(),
            bool(_GENERAL.search(piece.text)),
        )
        for page in pages
        for piece in page.stated
        if piece.kind == "prose"
        for match in [said.search(piece.text)]
        if match
    ]


def _is_figure(cell: str) -> bool:
    """Whether a cell holds a sum of money or begins with a share."""
    return bool(MONEY.search(cell) or _SHARE.search(cell))


def _amount(cell: str) -> str:
    """The sum that a cell states; the whole cell where it is a share or a time with a sum."""
    match = MONEY.search(cell)
    if match is None or (match.start() and cell[0].isdigit()):
        return cell
    return match[0]


def _stems(text: str) -> frozenset[str]:
    """First letters of the words that say what a figure is of; capital letters alone (`Class C`) count as words."""
    plain = unaccented(text)
    letters = set(re.findall(r"(?<![\w'’])[A-Z](?![\w'’])", plain))
    kept = {word[:_STEM] for word in words(plain) if len(word) > 1 and word not in STOP_WORDS | _OWN}
    return frozenset(kept | letters)


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
