"""Entity names (shore): names and identifiers of a text, and known names among its words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import NamedTuple

from raglab.words.characters import composed
from raglab.words.languages import LANGUAGES
from raglab.words.text import STOP_WORDS, sentences
from raglab.words.tokeniser import folded, whole_words

STEM = 5  # letters of a word's beginning, in place of its stem, as the keyword index has them
LONGEST = 6  # words of the longest name; longer runs of capitals are headlines
# digits that make an identifier of digits alone; fewer are clauses, ages and counts
SHORTEST_NUMBER = 4
_HEAD = 3  # letters that a name is looked up by first, since most words begin none

# words that stand inside names, never at their ends
PARTICLES = frozenset(LANGUAGES.words.particles)
JOINING = frozenset(LANGUAGES.words.joining)  # what they join may be two names as well as one
TITLES = frozenset(LANGUAGES.words.titles)

_GROUPED = re.compile(r"(?<=\d)[.,\u00a0\u202f ](?=\d{3}(?!\d))")
_LINK = re.compile(r" (?:& )?|-|['’]|\. ")
_OPENS = re.compile(r"[.:;>|!?…»”\"—–(]\s|[*_“«\"(]")
_CODE = re.compile(r"(?<![^\W_])(?:[^\W_]+(?:[-/][^\W_]+)+|[A-Z]{1,4}\d{1,9}\b)")
_PARTS = re.compile(r"[-/]")


class Lexicon(NamedTuple):
    """Known names. places: number of a name by its letters without blanks.

    Heads: the first letters of those.
    """

    places: Mapping[str, int]
    heads: frozenset[str]


class Spot(NamedTuple):
    """A known name among the words of a text.

    Place of its first word, how many it has, its number.
    """

    at: int
    length: int
    number: int


class _SentenceWord(NamedTuple):
    """A word of a sentence.

    As written, folded, the text before it, whether a sentence or a cell begins with it.
    """

    written: str
    folded: str
    gap: str
    opens: bool

    @property
    def capital(self) -> bool:
        return self.written[0].isupper()


def plain_words(text: str) -> list[str]:
    """Words in their plainest form.

    NFC, case folded, thousands ungrouped, without the English genitive.

    Example:
      >>> plain_words("Mrs Whitcombe's No. 7714-0263: £7,500")
      ['mrs', 'whitcombe', 'no', '7714', '0263', '7500']
    """
    plain = _GROUPED.sub("", folded(text))
    return [word[0] for word in whole_words(plain) if word[0] != "s"]


def beginning(word: str) -> str:
    """First letters of a longer word, in place of its stem.

    Example:
      >>> beginning("covered") == beginning("coverage"), beginning("van")
      (True, 'van')
    """
    return word[:STEM]


def codes_in(text: str) -> list[str]:
    """Identifiers in order: numbers of policies and accounts, forms, files.

    Amounts, dates and spans of years are none.

    Example:
      >>> codes_in("account 7714-0263 of APH-2207-4418, form PL/25, a 24-hour line in 2024/25")
      ['7714-0263', 'APH-2207-4418', 'PL/25']
    """
    return [match.group() for match in _CODE.finditer(text) if _is_code(match.group())]


def names_in(texts: Sequence[str]) -> list[list[str]]:
    """Names of each text in order, folded.

    Runs of capitalised words, with the particles between them.

    A name of one word counts where the texts write it with a capital, inside of sentences, more
    often than not; a word that begins a sentence and a longer name too where they never write it in
    small letters.

    Example:
      >>> names_in(["The trustee is Crédit des Alpes.", "Mr Perrin pays Alpes."])
      [['crédit des alpes'], ['perrin', 'alpes']]
    """
    placed = [[_sentence_positions(sentence) for sentence in sentences(text)] for text in texts]
    # How often a word stands in small letters, and with a capital where no sentence begins.
    cased = Counter(
        (word.folded, word.capital)
        for text in placed
        for sentence in text
        for word in sentence
        if not (word.capital and word.opens)
    )
    return [
        [name for sentence in text for name in _candidate_names(sentence, cased)] for text in placed
    ]


def lexicon(names: Iterable[str]) -> Lexicon:
    """Known names, numbered in their order.

    Of two that differ in blanks alone, the later number holds.
    """
    places = {name.replace(" ", ""): number for number, name in enumerate(names)}
    return Lexicon(places, frozenset(key[:_HEAD] for key in places))


def spot_names(words: Sequence[str], known: Lexicon) -> list[Spot]:
    """Known names in folded words: at each word the longest first, and shorter ones inside it too.

    Example:
      >>> spot_names(["home", "plus", "excess"], lexicon(["homeplus", "excess"]))
      [Spot(at=0, length=2, number=0), Spot(at=2, length=1, number=1)]
    """
    spots = []
    for at, word in enumerate(words):
        head = word[:_HEAD] if len(word) >= _HEAD else "".join(words[at : at + _HEAD])[:_HEAD]
        if head not in known.heads and head[:-1] not in known.heads:
            continue
        for length in range(min(LONGEST, len(words) - at), 0, -1):
            number = known.places.get("".join(words[at : at + length]))
            if number is not None:
                spots.append(Spot(at, length, number))
    return spots


def longest(spots: Sequence[Spot]) -> list[Spot]:
    """Spots without overlaps: the longer wins, then the earlier; in order of position.

    Example:
      >>> longest([Spot(0, 2, 7), Spot(0, 1, 8), Spot(1, 1, 9)])
      [Spot(at=0, length=2, number=7)]
    """
    taken: set[int] = set()
    disjoint_spots = []
    for spot in sorted(spots, key=lambda spot: (-spot.length, spot.at)):
        covers = range(spot.at, spot.at + spot.length)
        if taken.isdisjoint(covers):
            taken.update(covers)
            disjoint_spots.append(spot)
    return sorted(disjoint_spots)


def _is_code(text: str) -> bool:
    digits = sum(char.isdigit() for char in text)
    parts = _PARTS.split(text)
    if all(part.isdigit() for part in parts):
        # dates and spans of years are none: 2024/25, 01/04/2025, 2025-04-01
        years = [part for part in parts if len(part) == 4 and part[:2] in {"19", "20"}]
        is_calendar = years and all(len(part) <= 2 or part in years for part in parts)
        return digits >= SHORTEST_NUMBER and not is_calendar
    return (
        digits > 0
        and any(char.isupper() for char in text)
        and any(part.isdigit() or part.isupper() for part in parts)
    )


def _sentence_positions(sentence: str) -> list[_SentenceWord]:
    text = composed(sentence)
    words: list[_SentenceWord] = []
    end = 0
    for match in whole_words(text):
        written, gap = match.group(), text[end : match.start()]
        # The stop after an initial or a title ends no sentence.
        is_short = (
            words and gap == ". " and (len(words[-1].written) == 1 or words[-1].folded in TITLES)
        )
        opens = not words or (_OPENS.search(gap) is not None and not is_short)
        words.append(_SentenceWord(written, folded(written), gap, opens))
        end = match.end()
    return words


def _candidate_names(
    words: Sequence[_SentenceWord], cased: Counter[tuple[str, bool]]
) -> Iterator[str]:
    for run in _capitalised_runs(words, cased):
        sides = _sides(run)
        for part in [run, *sides] if len(sides) > 1 else [run]:
            name = [*dropwhile(_is_prelude, part)]
            if len(name) <= LONGEST and (len(name) > 1 or (name and _is_name(name[0], cased))):
                yield " ".join(word.folded for word in name)


def _sides(run: Sequence[_SentenceWord]) -> list[list[_SentenceWord]]:
    """What an `and` joins: it may be two names as well as the words of one."""
    sides: list[list[_SentenceWord]] = [[]]
    for word in run:
        if word.folded in JOINING:
            sides.append([])
        else:
            sides[-1].append(word)
    return sides


def _is_prelude(word: _SentenceWord) -> bool:
    """Whether a word is an article, title or initial that stands before a name."""
    return word.folded in TITLES or word.folded in STOP_WORDS or len(word.written) == 1


def _is_name(word: _SentenceWord, cased: Counter[tuple[str, bool]]) -> bool:
    """Whether one word is a name by itself: with a capital more often than not."""
    return cased[word.folded, True] > cased[word.folded, False]


def _capitalised_runs(
    words: Sequence[_SentenceWord], cased: Counter[tuple[str, bool]]
) -> Iterator[list[_SentenceWord]]:
    """Capitalised words that follow one another, with particles between but not at the end."""
    run: list[_SentenceWord] = []
    bridge: list[_SentenceWord] = []
    for word in words:
        if run and (word.opens or _LINK.fullmatch(word.gap) is None):
            yield run
            run, bridge = [], []
        # The first word of a sentence may be a name by itself, or never stands in small letters.
        is_named = word.folded not in STOP_WORDS and (
            _is_name(word, cased) or not cased[word.folded, False]
        )
        if word.capital and (is_named or not word.opens):
            run += [*bridge, word]
            bridge = []
        elif run and word.folded in PARTICLES:
            bridge.append(word)
        elif run:
            yield run
            run, bridge = [], []
    if run:
        yield run
