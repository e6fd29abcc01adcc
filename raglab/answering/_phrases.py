"""Terms found in a text: tables of expressions, plain letters, words that say which passage is meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from raglab.answering._asked_scopes import FILLER
from raglab.answering._asked_words import Table
from raglab.evidence import STOP_WORDS, words

STEM = 5  # letters of a word that are compared: `valued` is met by `values`, `franchises` by `franchise`


@lru_cache(maxsize=1 << 14)
def plain(text: str) -> str:
    """A text without accents, in lower case, with straight apostrophes, as the tables of terms are written.

    Example:
      >>> plain("L’assuré Été")
      "l'assure ete"
    """
    letters = unicodedata.normalize("NFD", text.replace("’", "'").replace("\u2011", "-"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


@lru_cache(maxsize=1024)
def _expression(expressions: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(expressions)})(?!\w)")


def found(expressions: Sequence[str], text: str) -> re.Match[str] | None:
    """First place in a text, as it came, at which one of the expressions stands as whole words."""
    return _expression(tuple(expressions)).search(plain(text))


def spans(expressions: Sequence[str], text: str) -> tuple[str, ...]:
    """What the expressions match in a text, in order."""
    return tuple(match[0] for match in _expression(tuple(expressions)).finditer(plain(text)))


def first(table: Table, text: str) -> str | None:
    """Name of the first entry of a table that a text names, None where none."""
    return next((name for name, expressions in table.items() if found(expressions, text)), None)


def stems(text: str, *, filler: frozenset[str] = FILLER) -> tuple[str, ...]:
    """Beginnings of the words of a text that say what it is about, in order, each once.

    Example:
      >>> stems("What is the excess for escapes of water?")
      ('exces', 'escap', 'water')
    """
    kept = (word for word in words(plain(text)) if word not in STOP_WORDS and word not in filler and len(word) > 1)
    return tuple(dict.fromkeys(word[:STEM] for word in kept))


def without(text: str, gone: Iterable[str]) -> str:
    """A plain text without given words."""
    left = plain(text)
    for phrase in sorted(set(gone), key=len, reverse=True):
        left = re.sub(rf"(?<!\w){re.escape(plain(phrase))}(?!\w)", " ", left)
    return left
