"""Words of questions and replies (algebra): expressions of all languages of `words.yaml`; stems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import yaml

from raglab.words.text import STOP_WORDS, fold_case
from raglab.words.tokeniser import split_words

STEM = 7  # letters of a word that are compared
SHORTEST = 4  # letters by which a shorter word meets its longer forms


@cache
def language_parts() -> Mapping[str, Mapping[str, Any]]:
    """Parts of `words.yaml` by language."""
    text = files(__package__ or "").joinpath("words.yaml").read_text(encoding="utf-8")
    parts: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)
    return parts


@cache
def entries(key: str) -> tuple[str, ...]:
    """Entries of a list in every language, in their order."""
    texts = (part.get(key, "") for part in language_parts().values())
    return tuple(dict.fromkeys(entry for text in texts for entry in text.split(" / ") if entry))


def whole_words(expressions: Iterable[str]) -> re.Pattern[str]:
    """Any of some expressions as whole words; one that never matches where there is none."""
    return re.compile(rf"(?<![\w'])(?:{'|'.join(expressions) or '(?!)'})(?!\w)")


@cache
def expression(key: str) -> re.Pattern[str]:
    """The entries of a list as one expression of whole words."""
    return whole_words(entries(key))


@lru_cache(maxsize=1 << 14)
def plain(text: str) -> str:
    """A text in small letters without accents, with straight apostrophes and single blanks.

    Example:
      >>> plain("L’adhérent   Été")
      "l'adherent ete"
    """
    straight = text.replace("’", "'").replace("\u2011", "-").replace("_", " ")
    return re.sub(r"(?<!\w)e-(?=[a-z]{3})", "e", " ".join(fold_case(straight).split()))


def stem(word: str) -> str:
    """Beginning of a word without the mark of a plural.

    Example:
      >>> stem("deposits"), stem("glass"), stem("receipts")
      ('deposit', 'glass', 'receipt')
    """
    bare = (
        word[:-1]
        if len(word) >= SHORTEST and word.endswith(("s", "x")) and not word.endswith("ss")
        else word
    )
    return bare[:STEM]


@lru_cache(maxsize=1 << 14)
def stems(text: str) -> tuple[str, ...]:
    """Stems of the words of a text that say what it is about, in order, each once.

    Numbers are whole.

    Example:
      >>> stems("What are the deposits for pets?")
      ('deposit', 'pet')
    """
    words = (word for word in split_words(plain(text)) if word not in STOP_WORDS)
    return tuple(dict.fromkeys(stem(word) for word in words if len(word) > 1 or word.isdigit()))


def meets(left: str, right: str) -> bool:
    """Whether two stems are of one word: the same, or one that begins the other by four letters."""
    if left == right:
        return True
    short, long = (left, right) if len(left) <= len(right) else (right, left)
    return long.startswith(short) and len(short) >= SHORTEST and short.isalpha()


def shared_stems(left: Iterable[str], right: Sequence[str] | frozenset[str]) -> frozenset[str]:
    """Stems of the left that meet one of the right."""
    known = frozenset(right)
    return frozenset(
        word for word in left if word in known or any(meets(word, name) for name in known)
    )
