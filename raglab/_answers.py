"""How near an answer comes to a gold answer: the measures of SQuAD, and the share of the gold's content."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from raglab.evidence import STOP_WORDS

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TERM = re.compile(
    r"(?P<word>[^\W\d_]+)"
    r"|(?P<grouped>(?<![\w.,])\d{1,3}(?P<mark>[,'’ \u00a0\u2009\u202f])\d{3}(?:(?P=mark)\d{3})*(?:[.,]\d{1,2})?(?!\d))"
    r"|(?P<number>\d+(?:[.,]\d+)*)"
)
_ORDINAL = ("st", "nd", "rd", "th", "er", "re", "e", "eme")
_NUMBERS = {  # not un and une, which are articles
    0: "zero", 1: "one", 2: "two deux", 3: "three trois", 4: "four quatre", 5: "five cinq", 6: "six", 7: "seven sept",
    8: "eight huit", 9: "nine neuf", 10: "ten dix", 11: "eleven onze", 12: "twelve douze", 13: "thirteen treize",
    14: "fourteen quatorze", 15: "fifteen quinze", 16: "sixteen seize", 17: "seventeen", 18: "eighteen", 19: "nineteen",
    20: "twenty vingt", 30: "thirty trente", 40: "forty quarante", 50: "fifty cinquante", 60: "sixty soixante",
    70: "seventy", 80: "eighty", 90: "ninety", 100: "hundred cent", 1000: "thousand mille",
}  # fmt: skip
_NAMED = {name: str(number) for number, names in _NUMBERS.items() for name in names.split()}


def folded(text: str) -> str:
    """Text without case and accents.

    Example:
      >>> folded("Élément")
      'element'
    """
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in apart if not unicodedata.combining(c)) if not apart.isascii() else apart


_IDLE = frozenset(map(folded, STOP_WORDS))


def normalised(text: str) -> str:
    """Text as SQuAD compares it: lower case, without ASCII punctuation, English articles and spare blanks.

    Source: Rajpurkar et al. 2016, the published evaluation script.

    Example:
      >>> normalised("The  Norman's dukes, a few.")
      'normans dukes few'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    """Whether an answer is, normalised, one of the gold answers; with no golds, whether it is empty.

    Example:
      >>> exact_match("The 10th century.", ["in the 10th", "10th century"])
      True
    """
    return normalised(answer) in {normalised(gold) for gold in golds or ("",)}


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """F1 of the tokens shared with a gold answer, counted with repeats, in [0, 1]; the best over the golds.

    An empty answer has 1 where the gold is empty (or there are no golds), else 0.

    Example:
      >>> token_f1("the dukes of Normandy", ["Normandy"])
      0.5
    """
    return max(_f1(normalised(answer).split(), normalised(gold).split()) for gold in golds or ("",))


def answer_recall(answer: str, gold: str) -> float:
    """Share of the gold's distinct content words and numbers found in the answer, in [0, 1]; NaN if it has none.

    Example:
      >>> answer_recall("Storm - Excess: GBP 1,200", "The excess is 1200 euros.")
      0.6666666666666666
    """
    wanted = set(content_terms(gold))
    return len(wanted & set(content_terms(answer))) / len(wanted) if wanted else float("nan")


def content_terms(text: str) -> tuple[str, ...]:
    """Words without case, accents and function words, and numbers in one spelling, in order, with repeats.

    A number loses the marks of its thousands and the noughts at the end of its decimals, has a point before them, and
    is in digits: `1,200`, `1 200,00` and `1200` are one, `ten` and `10` too. Of ordinals the number is left.

    Example:
      >>> content_terms("L'excédent est de 1 200,50 € dès le 1er mars, over ten days")
      ('excedent', '1200.5', '1', 'mars', '10', 'days')
    """
    found: list[str] = []
    figure_end = -1
    for match in _TERM.finditer(folded(text)):
        term = match[0]
        if match.lastgroup != "word":
            found.append(_number(term, grouped=match.lastgroup == "grouped"))
            figure_end = match.end()
        elif match.start() == figure_end and term == "k" and found[-1].isdigit():
            found[-1] += "000"
        elif not (term in _IDLE or (match.start() == figure_end and term in _ORDINAL)):
            found.append(_NAMED.get(term, term))
    return tuple(found)


def _number(digits: str, *, grouped: bool) -> str:
    """One spelling of a number: no marks of thousands, a point before the decimals, no noughts after them."""
    if grouped and not digits.startswith("0"):
        digits = re.sub(r"[^\d.,]|,(?=\d{3})", "", digits)
    elif digits.count(".") + digits.count(",") != 1:
        return digits
    whole, point, part = digits.replace(",", ".").partition(".")
    part = part.rstrip("0")
    return f"{whole}{point}{part}" if part else whole


def _f1(found: Sequence[str], wanted: Sequence[str]) -> float:
    if not found or not wanted:
        return float(found == wanted)
    shared = sum((Counter(found) & Counter(wanted)).values())
    return 2.0 * shared / (len(found) + len(wanted))
