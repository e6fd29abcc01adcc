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

BEGINNING_LETTERS = (
    5  # letters of a word's beginning, in place of its stem, as the keyword index has them
)
LONGEST_NAME_WORDS = 6  # words of the longest name; longer runs of capitals are headlines
# digits that make an identifier of digits alone; fewer are clauses, ages and counts
SHORTEST_DIGIT_CODE = 4
_LOOKUP_LETTERS = 3  # letters that a name is looked up by first, since most words begin none

# words that stand inside names, never at their ends
PARTICLES = frozenset(LANGUAGES.words.particles)
JOINING = frozenset(LANGUAGES.words.joining)  # what they join may be two names as well as one
TITLES = frozenset(LANGUAGES.words.titles)

_GROUPED_DIGITS = re.compile(r"(?<=\d)[.,\u00a0\u202f ](?=\d{3}(?!\d))")
_NAME_LINK = re.compile(r" (?:& )?|-|['’]|\. ")
_SENTENCE_OPENING = re.compile(r"[.:;>|!?…»”\"—–(]\s|[*_“«\"(]")
_CODE_PATTERN = re.compile(r"(?<![^\W_])(?:[^\W_]+(?:[-/][^\W_]+)+|[A-Z]{1,4}\d{1,9}\b)")
_CODE_SEPARATOR = re.compile(r"[-/]")


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
    ungrouped_text = _GROUPED_DIGITS.sub("", folded(text))
    return [word_match[0] for word_match in whole_words(ungrouped_text) if word_match[0] != "s"]


def beginning(word: str) -> str:
    """First letters of a longer word, in place of its stem.

    Example:
      >>> beginning("covered") == beginning("coverage"), beginning("van")
      (True, 'van')
    """
    return word[:BEGINNING_LETTERS]


def codes_in(passage: str) -> list[str]:
    """Identifiers in order: numbers of policies and accounts, forms, files.

    Amounts, dates and spans of years are none.

    Example:
      >>> codes_in("account 7714-0263 of APH-2207-4418, form PL/25, a 24-hour line in 2024/25")
      ['7714-0263', 'APH-2207-4418', 'PL/25']
    """
    return [
        code_match.group()
        for code_match in _CODE_PATTERN.finditer(passage)
        if _is_code(code_match.group())
    ]


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
    positioned_texts = [
        [_sentence_positions(sentence) for sentence in sentences(positioned_text)]
        for positioned_text in texts
    ]
    # How often a word stands in small letters, and with a capital where no sentence begins.
    counts = Counter(
        (word.folded, word.capital)
        for positioned_text in positioned_texts
        for sentence in positioned_text
        for word in sentence
        if not (word.capital and word.opens)
    )
    return [
        [
            candidate_name
            for sentence in positioned_text
            for candidate_name in _candidate_names(sentence, counts)
        ]
        for positioned_text in positioned_texts
    ]


def lexicon(names: Iterable[str]) -> Lexicon:
    """Known names, numbered in their order.

    Of two that differ in blanks alone, the later number holds.
    """
    number_by_letters = {
        known_name.replace(" ", ""): name_number for name_number, known_name in enumerate(names)
    }
    return Lexicon(
        number_by_letters,
        frozenset(name_letters[:_LOOKUP_LETTERS] for name_letters in number_by_letters),
    )


def spot_names(folded_words: Sequence[str], known_names: Lexicon) -> list[Spot]:
    """Known names in folded words: at each word the longest first, and shorter ones inside it too.

    Example:
      >>> spot_names(["home", "plus", "excess"], lexicon(["homeplus", "excess"]))
      [Spot(at=0, length=2, number=0), Spot(at=2, length=1, number=1)]
    """
    name_spots = []
    for position, first_word in enumerate(folded_words):
        first_letters = (
            first_word[:_LOOKUP_LETTERS]
            if len(first_word) >= _LOOKUP_LETTERS
            else "".join(folded_words[position : position + _LOOKUP_LETTERS])[:_LOOKUP_LETTERS]
        )
        if first_letters not in known_names.heads and first_letters[:-1] not in known_names.heads:
            continue
        for n_words in range(min(LONGEST_NAME_WORDS, len(folded_words) - position), 0, -1):
            name_number = known_names.places.get(
                "".join(folded_words[position : position + n_words])
            )
            if name_number is not None:
                name_spots.append(Spot(position, n_words, name_number))
    return name_spots


def longest(spots: Sequence[Spot]) -> list[Spot]:
    """Spots without overlaps: the longer wins, then the earlier; in order of position.

    Example:
      >>> longest([Spot(0, 2, 7), Spot(0, 1, 8), Spot(1, 1, 9)])
      [Spot(at=0, length=2, number=7)]
    """
    covered_words: set[int] = set()
    disjoint_spots = []
    for spot in sorted(spots, key=lambda spot: (-spot.length, spot.at)):
        spot_words = range(spot.at, spot.at + spot.length)
        if covered_words.isdisjoint(spot_words):
            covered_words.update(spot_words)
            disjoint_spots.append(spot)
    return sorted(disjoint_spots)


def _is_code(code_text: str) -> bool:
    n_digits = sum(character.isdigit() for character in code_text)
    code_parts = _CODE_SEPARATOR.split(code_text)
    if all(code_part.isdigit() for code_part in code_parts):
        # dates and spans of years are none: 2024/25, 01/04/2025, 2025-04-01
        year_parts = [
            code_part
            for code_part in code_parts
            if len(code_part) == 4 and code_part[:2] in {"19", "20"}
        ]
        is_calendar = year_parts and all(
            len(code_part) <= 2 or code_part in year_parts for code_part in code_parts
        )
        return n_digits >= SHORTEST_DIGIT_CODE and not is_calendar
    return (
        n_digits > 0
        and any(character.isupper() for character in code_text)
        and any(code_part.isdigit() or code_part.isupper() for code_part in code_parts)
    )


def _sentence_positions(sentence: str) -> list[_SentenceWord]:
    composed_text = composed(sentence)
    sentence_words: list[_SentenceWord] = []
    previous_end = 0
    for word_match in whole_words(composed_text):
        written_word = word_match.group()
        text_before = composed_text[previous_end : word_match.start()]
        # The stop after an initial or a title ends no sentence.
        is_short = (
            sentence_words
            and text_before == ". "
            and (len(sentence_words[-1].written) == 1 or sentence_words[-1].folded in TITLES)
        )
        opens_sentence = not sentence_words or (
            _SENTENCE_OPENING.search(text_before) is not None and not is_short
        )
        sentence_words.append(
            _SentenceWord(written_word, folded(written_word), text_before, opens_sentence)
        )
        previous_end = word_match.end()
    return sentence_words


def _candidate_names(
    sentence_words: Sequence[_SentenceWord], case_counts: Counter[tuple[str, bool]]
) -> Iterator[str]:
    for capitalised_run in _capitalised_runs(sentence_words, case_counts):
        joined_sides = _sides(capitalised_run)
        for name_words in (
            [capitalised_run, *joined_sides] if len(joined_sides) > 1 else [capitalised_run]
        ):
            bare_name = [*dropwhile(_is_prelude, name_words)]
            if len(bare_name) <= LONGEST_NAME_WORDS and (
                len(bare_name) > 1 or (bare_name and _is_name(bare_name[0], case_counts))
            ):
                yield " ".join(word.folded for word in bare_name)


def _sides(capitalised_run: Sequence[_SentenceWord]) -> list[list[_SentenceWord]]:
    """What an `and` joins: it may be two names as well as the words of one."""
    joined_sides: list[list[_SentenceWord]] = [[]]
    for word in capitalised_run:
        if word.folded in JOINING:
            joined_sides.append([])
        else:
            joined_sides[-1].append(word)
    return joined_sides


def _is_prelude(word: _SentenceWord) -> bool:
    """Whether a word is an article, title or initial that stands before a name."""
    return word.folded in TITLES or word.folded in STOP_WORDS or len(word.written) == 1


def _is_name(word: _SentenceWord, case_counts: Counter[tuple[str, bool]]) -> bool:
    """Whether one word is a name by itself: with a capital more often than not."""
    return case_counts[word.folded, True] > case_counts[word.folded, False]


def _capitalised_runs(
    sentence_words: Sequence[_SentenceWord], case_counts: Counter[tuple[str, bool]]
) -> Iterator[list[_SentenceWord]]:
    """Capitalised words that follow one another, with particles between but not at the end."""
    current_run: list[_SentenceWord] = []
    bridging_words: list[_SentenceWord] = []
    for word in sentence_words:
        if current_run and (word.opens or _NAME_LINK.fullmatch(word.gap) is None):
            yield current_run
            current_run = []
            bridging_words = []
        # The first word of a sentence may be a name by itself, or never stands in small letters.
        is_named = word.folded not in STOP_WORDS and (
            _is_name(word, case_counts) or not case_counts[word.folded, False]
        )
        if word.capital and (is_named or not word.opens):
            current_run += [*bridging_words, word]
            bridging_words = []
        elif current_run and word.folded in PARTICLES:
            bridging_words.append(word)
        elif current_run:
            yield current_run
            current_run = []
            bridging_words = []
    if current_run:
        yield current_run
