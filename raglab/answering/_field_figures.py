"""Limits and deductibles: several stand in a document, and the words of the question choose among them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raglab.answering._field_dates import chosen_column, is_old_and_new
from raglab.answering._field_tables import MONEY, PREMIUM, Page
from raglab.evidence import STOP_WORDS, words
from raglab.sentences import Piece

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
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    letters = set(re.findall(r"(?<![\w'’])[A-Z](?![\w'’])", plain))
    kept = {word[:_STEM] for word in words(plain) if len(word) > 1 and word not in STOP_WORDS | _OWN}
    return frozenset(kept | letters)
