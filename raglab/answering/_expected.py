"""What kind of answer a question asks for, in English and French, and the phrases of a text that are of that kind."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from raglab._answers import content_terms, folded

Kind = Literal["date", "money", "number", "name"]

_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|janvier|fevrier|mars|avril|mai|juin|juillet|aout|septembre|octobre|novembre|decembre)"
)
_COUNT = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    r"|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion|dozen"
    r"|half|deux|trois|quatre|cinq|sept|huit|neuf|dix|onze|douze|quinze|vingt|trente|quarante|cinquante|soixante|cent"
    r"|mille)"
)
_MEASURED = (
    r"(?:amount|price|cost|fee|rate|percentage|share|number|population|height|length|area|age|temperature|speed|distance"
    r"|budget|maximum|minimum|cap|total|sum|limit|excess|deductible|premium|weight|size|width|depth|mass|ratio|period)"
)
_MESURE = (
    r"(?:montant|prix|cout|taux|pourcentage|part|nombre|plafond|franchise|prime|delai|duree|taille|poids|total|somme)s?"
)
_ASKED: dict[Kind, re.Pattern[str]] = {  # of a folded question; the first that matches
    "date": re.compile(
        r"^(?:and |since |until |by |from |till )?when\b|\bquand\b"
        r"|\b(?:what|which) (?:calendar )?(?:year|date|day|month|decade|century|time)\b"
        r"|\bquel(?:le)? (?:date|annee|jour|mois|siecle|heure)\b"
    ),
    "money": re.compile(
        r"\bhow much (?:money|does|do|did|is|was|will|would|per|can|extra|of)\b|\bcombien (?:coute|paie|paye|verse)"
    ),
    "number": re.compile(
        r"\bhow (?:much|many|long|old|far|often|large|big|tall|high|fast|wide|deep|heavy|soon|quickly|late)\b"
        r"|\bcombien\b"
        rf"|\b(?:what|which) (?:(?:is|was|are|were) )?(?:(?:the|an?) )?(?:\w+ ){{0,3}}{_MEASURED}\b"
        rf"|\bquel(?:le)?s? (?:(?:est|sont|etait) )?(?:(?:le |la |les |l'))?(?:\w+ ){{0,2}}{_MESURE}\b"
    ),
    "name": re.compile(
        r"^(?:and |to |by |with |for |from )?(?:who(?:m|se)?|where)\b|\bwho(?:m|se)?\?*$"
        r"|^(?:a |par |pour |avec |chez )?qui\b"
        r"|\b(?:what|which) (?:country|city|state|town|river|continent|region|province|island|county)\b"
        r"|\bou (?:est|sont|se|faut|dois|puis|peut|envoyer)\b"
    ),
}
_FIGURE = r"(?:\d[\d.,'’ \u00a0\u202f]*\d|\d)"
_UNIT = r"(?:gbp|eur|usd|chf|euros?|pounds?|dollars?|per cent|percent|pour cent)"
_PHRASE: dict[Kind, re.Pattern[str]] = {  # of a folded text, but a name of the text as it stands
    "date": re.compile(
        rf"\b\d{{1,2}}(?:st|nd|rd|th|er)? (?:of )?{_MONTH}\b(?:,? \d{{4}}\b)?"
        rf"|\b{_MONTH}\b(?: \d{{1,2}}(?:st|nd|rd|th)?\b(?! ?%))?(?:,? \d{{4}}\b)?"
        r"|\b(?:early-?|mid-?|late-?)?(?:1\d{3}|20\d\d)s?\b|\b\d{1,4} (?:ad|bc|bce|ce)\b|(?<=\b[ie]n )\d{3}\b"
        r"|\b\d{1,2}(?:st|nd|rd|th) centur(?:y|ies)\b|\b[ivx]+e siecle\b"
    ),
    "money": re.compile(
        rf"(?:[£$€¥]|\b(?:gbp|eur|usd|chf)) ?{_FIGURE}(?: (?:million|billion)\b|[km]\b)?"
        rf"|{_FIGURE}\s?(?:[£$€¥%]|(?:(?:million|billion) )?{_UNIT}\b)"
    ),
    "number": re.compile(rf"{_FIGURE}|\b{_COUNT}\b"),
    "name": re.compile(
        r"(?<=[^.!?…] )\b[^\W\d_a-z][\w'’-]*(?: [^\W\d_a-z][\w'’-]*)*|^[^\W\d_a-z][\w'’-]*(?: [^\W\d_a-z][\w'’-]*)+"
    ),
}


@lru_cache(maxsize=4096)
def expected(question: str) -> Kind | None:
    """Kind of answer that the question's words ask for; None where they leave it open.

    Example:
      >>> expected("When was it founded?"), expected("À qui la prime est-elle due ?"), expected("Why?")
      ('date', 'name', None)
    """
    plain = folded(question).strip()
    return next((kind for kind, pattern in _ASKED.items() if pattern.search(plain)), None)


def phrases(kind: Kind, text: str) -> list[tuple[int, int]]:
    """Where the phrases of a kind stand in the text, in order.

    Example:
      >>> [("Due on 1 May 2025.")[start:end] for start, end in phrases("date", "Due on 1 May 2025.")]
      ['1 May 2025']
    """
    plain = text if kind == "name" else folded(text)
    if len(plain) != len(text):  # a letter of the text is two when folded: places would not agree
        plain = text.lower()
    return [match.span() for match in _PHRASE[kind].finditer(plain)]


@lru_cache(maxsize=16384)
def named(kind: Kind, text: str) -> tuple[frozenset[str], ...]:
    """Content words and numbers of each phrase of a kind in the text."""
    return tuple(frozenset(content_terms(text[start:end])) for start, end in phrases(kind, text))
