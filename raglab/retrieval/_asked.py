"""What a question asks of tables: its words, its quantities and dates, and what is to be done with the cells."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

from raglab.evidence import STOP_WORDS, words
from raglab.retrieval._quantities import UNIT_OF, Found, Quantity, period_of, quantities_in
from raglab.retrieval._units import CURRENCIES

Operation = Literal[
    "value",
    "change",
    "difference",
    "highest",
    "lowest",
    "above",
    "below",
    "at least",
    "at most",
    "sum",
    "total",
    "average",
    "count",
]

BOUNDS = ("at least", "at most", "above", "below")
STEM = 5  # letters of a longer word that stand for its inflections, as in keyword search
LONGEST = 1000  # characters of a question that are read
TYPED = "#"  # begins a term that is no word
CHANGE = f"{TYPED}change"  # the term of tables with columns for two times, and of questions for a change
MOST_TERMS = 64  # distinct terms of a question that are looked up

# Words of a question that name no matter: they ask, or place one thing before another.
_ASKING = frozenset(
    """much many any combien please tell us per get just only also still exactly before after between out off whats soon
    est-ce chaque cela ca aussi encore svp avant apres entre etait""".split()  # noqa: SIM905
)
_WHICH = r"\b(?:which|what|who|list|quels?|quelles?|how many|combien)\b"
_MOVED = (
    r"(?:mov\w*|chang\w*|r[io]ses?|risen|f[ae]ll(?:en|s)?|gr[eo]wn?|increas\w*|decreas\w*|drop\w*"
    r"|(?:go|gone|went) (?:up|down)|augment\w*|diminu\w*|évolu\w*|baiss\w*|hausse)"
)
_DEGREE = r"(?:more|less|fewer|higher|lower|longer|shorter|larger|dearer|cheaper)"
_TALL = r"(?:élevée?s?|hauts?|hautes?|grande?s?|longs?|longues?|chère?s?|forte?s?)"
_SMALL = r"(?:bas|basses?|faibles?|petite?s?|courte?s?)"
_SUPERLATIVE = r"(?:highest|largest|biggest|greatest|longest|dearest|heaviest|most expensive)"
_DIMINUTIVE = r"(?:lowest|smallest|least|shortest|cheapest|fewest)"
# What each operation is asked with, in English and French; the first that occurs is taken.
_PATTERNS: tuple[tuple[Operation, str], ...] = (
    ("average", r"(?<!general )\baverage\b(?! adjuster)|\bmean (?:of|value)\b|\bmoyenne\b"),
    (
        "difference",
        rf"\bdifference\b|\bhow (?:much|many) (?:\w+ )?{_DEGREE}\b|\bby how (?:much|many)\b.*\b(?:than|exceed)",
    ),
    (
        "difference",
        r"\bas against\b|\bcompared? (?:to|with)\b|\bversus\b|\bvs\b|\bécart\b|\bdifférence\b|\bpar rapport\b",
    ),
    ("difference", r"\bcombien de (?:plus|moins)\b"),
    ("change", r"\bby how (?:much|many)\b|\bde combien\b|\bévolution\b"),
    ("change", rf"\b(?:how|what|comment) (?:did|has|have|does|do|is|was|were|a|ont)\b.*\b{_MOVED}\b"),
    ("at least", rf"{_WHICH}.*\b(?:at least|au moins)\s"),
    ("at most", rf"{_WHICH}.*\b(?:at most|au plus|no more than|up to|jusqu['’]à)\s"),
    ("above", rf"{_WHICH}.*\b(?:more than|over|above|exceed\w*|plus de|supérieure?s? à|au-dessus de|dépass\w+)\s"),
    ("below", rf"{_WHICH}.*\b(?:less than|under|below|moins de|inférieure?s? à|au-dessous de)\s"),
    ("highest", rf"\b{_SUPERLATIVE}\b|\b(?:costs?|pays?|(?:has|have|carr\w+|costs?|takes?) the) most\b"),
    ("highest", rf"\bl(?:e|a|es) plus {_TALL}\b"),
    ("lowest", rf"\b{_DIMINUTIVE}\b|\bl(?:e|a|es) (?:plus {_SMALL}|moins {_TALL})\b"),
    ("sum", r"\b(?:sum of|add(?:ed|s|ing)? (?:up|together)|combined|altogether|somme des?|additionn\w+)\b"),
    ("total", r"\b(?:totals?|in all|au total|en tout)\b"),
    ("count", r"\b(?:how many|number of|combien (?:de (?!temps)|d['’]|y a)|nombre de)"),
)
_OPERATIONS = tuple((operation, re.compile(pattern, re.IGNORECASE)) for operation, pattern in _PATTERNS)
# Words that ask for an operation and name no row of a table; `total` and `number` do.
_OPERATING = re.compile(
    rf"\b(?:average|mean|moyenne|difference|différence|écart|{_DEGREE}|{_SUPERLATIVE}|{_DIMINUTIVE}|{_MOVED}|most|exceeds?"
    rf"|as against|compared?|versus|vs|par rapport|(?:de|l[ae]|les) (?:plus|moins)(?: {_TALL}| {_SMALL})?|supérieure?s?"
    r"|inférieure?s?|sum of|add(?:ed|s|ing)? (?:up|together)|combined|altogether|somme des?|additionn\w+)\b",
    re.IGNORECASE,
)
_LATER = re.compile(
    r"\b(?:now|current\w*|new|newly|renew(?:al|ed)|latest|today|raised|actuel\w*|maintenant|désormais|nouve\w+"
    r"|renouvel\w+|avenant|endorsement)\b",
    re.IGNORECASE,
)
_EARLIER = re.compile(
    r"\b(?:old|previous\w*|former\w*|expiring|used to|before the (?:renewal|change)|originally|ancien\w*|précédent\w*"
    r"|auparavant|avant le (?:renouvellement|changement))\b",
    re.IGNORECASE,
)
_UNIT_ASKED = re.compile(
    r"\b(?:how many|combien (?:de |d['’])|number of|nombre de)\s*(?P<unit>working days|jours ouvrés|\w+)", re.IGNORECASE
)
_TIME_ASKED = re.compile(r"\bhow (?:long|soon|fast|quickly)\b|\bcombien de temps\b|\bquel délai\b", re.IGNORECASE)
_SHARE_ASKED = re.compile(r"\b(?:what|which) (?:percentage|rate|share)\b|\bquel (?:taux|pourcentage)\b", re.IGNORECASE)
_MONEY_ASKED = re.compile(r"\bhow much\b|\bc['’]est combien\b|\bquel(?:le)? (?:montant|somme|plafond)\b", re.IGNORECASE)
_TIMES = ("working days", "days", "nights", "weeks", "months", "years", "hours", "minutes")


class Asked(NamedTuple):
    """A question, as far as tables can answer it.

    terms: distinct words and beginnings of longer ones. operation: what to do with the cells. quantities: money, shares
    and numbers with units that it states. days: the days, months or years it speaks of. side: 1 where it asks for the
    newer of two columns, -1 for the older. kinds: units that an answer may have; empty where any may.
    """

    terms: tuple[str, ...]
    operation: Operation
    quantities: tuple[Quantity, ...]
    days: tuple[Quantity, ...]
    side: int
    kinds: tuple[str, ...]


def asked(question: str) -> Asked:
    """Return what a question asks of tables.

    Example:
      >>> asked("Which excess is the highest under Core?")[:2]
      (('excess', '^exces', 'core'), 'highest')
    """
    text = question[:LONGEST]
    found = quantities_in(text)
    stated = tuple(f for f in found if f.quantity.unit and f.quantity.kind != "date")
    operation = _operation(text, stated=bool(stated))
    terms = terms_of(_untyped(text, found, operation), _ASKING)[:MOST_TERMS]
    terms = (*terms, CHANGE) if operation == "change" else terms
    days = tuple(f.quantity for f in found if f.quantity.kind == "date") or tuple(d for d in (period_of(text),) if d)
    return Asked(terms, operation, tuple(f.quantity for f in stated), days, _side(text), _kinds(text))


def terms_of(text: str, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Distinct content words of a text without accents, and of each longer one its first letters, in order.

    Args:
      text: any.
      without: words that are left out beside the function words.

    Example:
      >>> terms_of("La résiliation du contrat")
      ('resiliation', '^resil', 'contrat', '^contr')
    """
    kept = (folded(word) for word in words(text) if word not in STOP_WORDS)
    return tuple(dict.fromkeys(term for word in kept if word not in without for term in _with_beginning(word)))


def folded(text: str) -> str:
    """Text without accents."""
    return "".join(mark for mark in unicodedata.normalize("NFD", text) if not unicodedata.combining(mark))


def _with_beginning(word: str) -> tuple[str, ...]:
    return (word, f"^{word[:STEM]}") if len(word) > STEM and not word.isdigit() else (word,)


def _operation(text: str, *, stated: bool) -> Operation:
    """First operation that the text asks for; a bound needs a quantity to compare with."""
    fitting = (name for name, pattern in _OPERATIONS if (stated or name not in BOUNDS) and pattern.search(text))
    return next(fitting, "value")


def _untyped(text: str, found: list[Found], operation: Operation) -> str:
    """Text without its typed quantities and the operation's words; of a date the year stays, of a month both."""
    rest = text
    for quantity, start, end in found:
        if quantity.unit:
            months = r"[^\W\d_]{3,}|" if quantity.high > quantity.low else ""
            kept = re.findall(rf"{months}(?:19|20)\d\d", text[start:end]) if quantity.kind == "date" else []
            rest = rest[:start] + " ".join(kept).ljust(end - start)[: end - start] + rest[end:]
    return rest if operation in {"value", "count", "total"} else _OPERATING.sub(" ", rest)


def _side(text: str) -> int:
    """1 for the newer, -1 for the older, 0 where both or neither are asked for."""
    return (_LATER.search(text) is not None) - (_EARLIER.search(text) is not None)


def _kinds(text: str) -> tuple[str, ...]:
    """Units that an answer may have, as far as the question says."""
    counted = _UNIT_ASKED.search(text)
    unit = UNIT_OF.get(counted["unit"].casefold(), "") if counted else ""
    if unit:
        return (unit,)
    if _TIME_ASKED.search(text):
        return _TIMES
    if _SHARE_ASKED.search(text):
        return ("%",)
    return tuple(CURRENCIES) if _MONEY_ASKED.search(text) else ()
