"""Answer terms (algebra): exact match, F1, recall of answers, as in SQuAD; content words."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import regex

from raglab.words.numerals import comma_thousands, plain_number, tables
from raglab.words.text import STOP_WORDS, fold_case
from raglab.words.tokeniser import is_plain, spaced

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TERM_EXPRESSION = (
    r"(?P<word>[^\W\d_]+)"
    r"|(?P<grouped>(?<![\w.,])\d{1,3}(?P<mark>[,'’ "
    r"\u00a0\u2009\u202f])\d{3}(?:(?P=mark)\d{3})*(?:[.,]\d{1,2})?(?!\d))"
    r"|(?P<number>\d+(?:[.,]\d+)*)"
)
_TERM = re.compile(_TERM_EXPRESSION)
_MARKED_TERM = regex.compile(_TERM_EXPRESSION)  # for other scripts: its letters include their marks
_NUMERALS = tables()
_ENDINGS = frozenset(map(fold_case, _NUMERALS.endings))
_NAMED = {  # single words alone: hundred and thousand too, which are numbers by themselves
    fold_case(word): str(value)
    for word, value in (*_NUMERALS.numbers.items(), *_NUMERALS.scales.items())
    if value <= 1000
}
_IDLE = frozenset(map(fold_case, STOP_WORDS))


def normalise_answer(text: str) -> str:
    """Text as SQuAD compares it.

    Lower case, without ASCII punctuation, English articles and spare blanks.

    Source: Rajpurkar et al. 2016, the published evaluation script.

    Example:
      >>> normalise_answer("The  Norman's dukes, a few.")
      'normans dukes few'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    """Whether an answer is, normalised, one of the gold answers.

    With no golds, whether it is empty.

    Args:
      answer: text to judge.
      golds: expected answers.

    Example:
      >>> exact_match("The 10th century.", ["in the 10th", "10th century"])
      True
    """
    return normalise_answer(answer) in {normalise_answer(gold) for gold in golds or ("",)}


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """F1 of the tokens shared with a gold answer, counted with repeats, in [0, 1].

    The best over the golds.

    An empty answer has 1 where the gold is empty (or there are no golds), else 0.

    Args:
      answer: text to judge.
      golds: expected answers.

    Example:
      >>> token_f1("the dukes of Normandy", ["Normandy"])
      0.5
    """
    return max(
        _f1(normalise_answer(answer).split(), normalise_answer(gold).split())
        for gold in golds or ("",)
    )


def answer_recall(answer: str, gold: str) -> float:
    """Share of the gold's distinct content words and numbers found in the answer, in [0, 1].

    NaN if it has none.

    Args:
      answer: text to judge.
      gold: expected answer.

    Example:
      >>> answer_recall("Storm - Excess: GBP 1,200", "The excess is 1200 euros.")
      0.6666666666666666
    """
    wanted = set(content_terms(gold))
    return len(wanted & set(content_terms(answer))) / len(wanted) if wanted else float("nan")


def content_terms(text: str) -> tuple[str, ...]:
    """Words without case, accents and function words, and numbers in one spelling, in order.

    Repeats are kept.

    A number loses the marks of its thousands and the noughts at the end of its decimals, has a
    point before them, and is in digits: `1,200`, `1 200,00` and `1200` are one, `ten` and `10` too.
    Of ordinals the number is left.

    Example:
      >>> content_terms("L'excédent est de 1 200,50 € dès le 1er mars, over ten days")
      ('excedent', '1200.5', '1', 'mars', '10', 'days')
    """
    terms: list[str] = []
    figure_end = -1  # where the last number in digits ended: what is written to it may belong to it
    term_pattern = _TERM if is_plain(text) else _MARKED_TERM
    for match in term_pattern.finditer(fold_case(comma_thousands(spaced(text)))):
        term = match[0]
        glued = match.start() == figure_end
        if match.lastgroup != "word":
            terms.append(plain_number(term) or term)
            figure_end = match.end()
        elif glued and term in _NUMERALS.suffixes and terms[-1].isdigit():
            terms[-1] = str(int(terms[-1]) * _NUMERALS.suffixes[term])
        elif not (term in _IDLE or (glued and term in _ENDINGS)):
            terms.append(_NAMED.get(term, term))
    return tuple(terms)


def _f1(tokens: Sequence[str], wanted: Sequence[str]) -> float:
    if not tokens or not wanted:
        return float(tokens == wanted)
    shared = sum((Counter(tokens) & Counter(wanted)).values())
    return 2.0 * shared / (len(tokens) + len(wanted))
