"""Answers against gold answers (algebra): right, wrong or undecided by their text (rule S6.3).

What decides is the values of the gold answer: numbers with their units, amounts, dates, times,
codes, names, yes or no, and what is negated. Where it has none, token F1 decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from raglab.words.characters import unaccented, usual_forms
from raglab.words.claim_words import (
    BREAK,
    LITTLE,
    NAME,
    NEGATION,
    NUMBER,
    SPEAKER_WORDS,
    UNIT,
    WORD,
    Word,
    canonical_value,
    claim_words,
)
from raglab.words.languages import LANGUAGES, expression
from raglab.words.numerals import any_of, currencies, dates_in, tables
from raglab.words.text import STOP_WORDS, sentences

# F1 of a gold answer without values: wrong up to, right from, and from for one that is no sentence
LOWER_F1, UPPER_F1, TERM_F1 = 0.0, 0.4, 0.6
LARGEST_COMPARED_NUMBER = 1e15  # of a number that is compared by its value, else as it is written
LONGEST_TERM_ANSWER = (
    5  # words of a gold answer that is no sentence: a right answer holds all of them
)


class AnswerMatch(IntEnum):
    """What an answer is against a gold answer; `undecided` where its text does not tell."""

    wrong = 0
    right = 1
    undecided = 2


class Value(NamedTuple):
    """A value that a text states: its kind, in which another one replaces it, and its key."""

    kind: str
    key: str


class Facts(NamedTuple):
    """What a text states.

    values: numbers with units, amounts, dates, times, codes and names. keys: of its words of
    substance, numbers among them, with their signs, -1 where a word is negated. words: all of them
    as written, without case and accents. yes: 1 or -1 where it begins with yes or no, else 0.
    restricts: whether it holds a word such as `unless`. doubts: whether it calls a value past or
    none. bounds: 1 where numbers are stated to be least ones, -1 where largest ones.
    negations: words that negate.
    """

    values: frozenset[Value]
    keys: frozenset[tuple[str, int]]
    words: frozenset[str]
    yes: int
    restricts: bool
    doubts: bool
    bounds: frozenset[int]
    negations: int

    @property
    def content(self) -> frozenset[str]:
        """Words of substance."""
        return frozenset(key for key, _ in self.keys)

    @property
    def negates(self) -> bool:
        """Whether anything is negated, forbidden, refused or left out."""
        return self.negations > 0 or any((key, -1) in self.keys for key in _REFUSALS)


_COMPARISON_WORDS = LANGUAGES.comparison
# Kind of a unit's word and its factor, by the key of the word: minutes, months, metres and so on
_MEASURE_UNITS = {
    claim_words(word)[0].key: (kind, float(factor))
    for measure, words in _COMPARISON_WORDS.measures.items()
    for kind, factor in [measure.split()]
    for word in words
}
# signs of currencies by the key of their hundredths
_HUNDREDTH_SIGNS = {
    claim_words(word)[0].key: sign
    for sign, some in _COMPARISON_WORDS.hundredths.items()
    for word in some
}
_YES_NO_WORDS = dict.fromkeys(_COMPARISON_WORDS.affirming, 1) | dict.fromkeys(
    _COMPARISON_WORDS.denying, -1
)
_UNIT_WORDS = {
    *(
        word
        for table in (_COMPARISON_WORDS.measures, _COMPARISON_WORDS.hundredths)
        for words in table.values()
        for word in words
    ),
    *tables().endings,
    *tables().suffixes,
    *tables().money_suffixes,
    "am",
    "pm",
}
_MINUS_KEY = claim_words("minus")[0].key
# kinds: names that begin a sentence; what is counted for
SENTENCE_START_NAME, PER_KIND, EACH_KIND = (
    "first",
    "per",
    "each",
)
_WEEKDAYS = {day[:3]: day for day in _COMPARISON_WORDS.days[:7]}
_RATE_UNITS = {word: unit for unit, some in _COMPARISON_WORDS.rates.items() for word in some}
_REPLY_ENDS = r"(?:\s*[,.;:!]|$)"


def _any_expression(
    word_patterns: Iterable[str], surrounding_frame: str = r"\b{}\b"
) -> re.Pattern[str]:
    """Any of a language's expressions, in a frame."""
    return re.compile(surrounding_frame.replace("{}", expression(word_patterns)), re.IGNORECASE)


# how a reply says yes or no in other words
_REPLIES = {
    sign: _any_expression(some, rf"\W*{{}}{_REPLY_ENDS}")
    for sign, some in ((-1, _COMPARISON_WORDS.denies), (1, _COMPARISON_WORDS.affirms))
}
_YES_QUESTION = _any_expression(_COMPARISON_WORDS.asks, r"\W*{}\b")
_RESTRICTS = _any_expression(_COMPARISON_WORDS.restricts)
# a value that is stated to be none, or not any more
_DOUBT_WORDS = _any_expression(_COMPARISON_WORDS.past, r"\b{}")
_ASKED_BOUNDS = {
    -1: _any_expression(_COMPARISON_WORDS.until, r"\W*{}\b"),
    1: _any_expression(_COMPARISON_WORDS.since, r"\W*{}\b"),
}
_COUNTED_FOR = {
    kind: _any_expression(some, r"\b{}\s+([^\W\d_]+)")
    for kind, some in ((PER_KIND, _COMPARISON_WORDS.per), (EACH_KIND, _COMPARISON_WORDS.each))
}
_BOUND_PHRASE = re.compile(
    rf"\b(?P<no>no |not )?(?:(?P<below>{any_of(LANGUAGES.quantities.below)})"
    rf"|(?P<above>{any_of(LANGUAGES.quantities.above)}))(?:\s+\w+)?\s+[£€$]?\d",
    re.IGNORECASE,
)
_MONTH_NAMES = any_of(tables().months)
_DAY_ENDINGS = any_of(tables().endings)
_CODE_SHAPES = re.compile(
    r"(?P<mail>(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<web>(?<![\w.-])(?:https?://)?(?:www\.)?(?:[a-z][\w-]*\.)+[a-z]{2,}\b(?:/[\w./?=&%#-]*)?)"
    r"|(?P<phone>(?<![\w.,-])(?:\+|\(0|0)[\d ()./-]{5,}\d(?!\w))"
    r"|(?P<version>\bv?\d+(?:\.\d+){2,}\b|\bv\d+(?:\.\d+)*\b)"
    r"|(?P<code>(?<![\w./-])(?=[\w./-]*\d)(?=[\d./-]*[a-z])[a-z\d]+(?:[-./][a-z\d]+)*\b"
    r"|\b\d+(?:[/-]\d+)+\b|\b\d{7,}\b)",
    re.IGNORECASE,
)
# a number with what is written to it is no code: `20kg`, `1st`, `2m`, `45-minute`
_NUMBER_NOT_CODE = re.compile(
    rf"\d[\d.,]*[-/]?(?:[a-z]{{3,}}|{any_of(_UNIT_WORDS)})?", re.IGNORECASE
)
_DAY_OF_MONTH = re.compile(
    rf"\b(?P<d1>\d{{1,2}})(?:{_DAY_ENDINGS})?\s+(?:of\s+)?(?P<m1>{_MONTH_NAMES})\b"
    rf"|\b(?P<m2>{_MONTH_NAMES})\.?\s+(?P<d2>\d{{1,2}})(?:{_DAY_ENDINGS})?\b(?![:.]\d)",
    re.IGNORECASE,
)
_NOON_MINUTES = dict.fromkeys(_COMPARISON_WORDS.noon, 720) | dict.fromkeys(
    _COMPARISON_WORDS.midnight, 0
)
_TIME_OF_DAY = re.compile(
    r"\b(?P<hour>\d{1,2})(?:[:.h](?P<minute>[0-5]\d))?\s?(?P<half>[ap])\.?m\b\.?"
    r"|\b(?P<hour24>\d{1,2})(?::|h\s?)(?P<minute24>[0-5]\d)\b"
    rf"|\b(?P<noon>{any_of(_NOON_MINUTES)})\b",
    re.IGNORECASE,
)
# other ways to write a value
_SPELLINGS = [
    (re.compile(pattern.replace("MONTHS", _MONTH_NAMES), re.IGNORECASE), value)
    for pattern, value in (
        *(
            (rf"\b{ordinal}(?= of (?:MONTHS)\b)", str(day))
            for day, ordinal in enumerate(_COMPARISON_WORDS.ordinals, 1)
        ),
        *_COMPARISON_WORDS.spellings.items(),
    )
]
_HALF_DAY = re.compile(
    r"\b(\d{1,2})((?:[:.]\d\d)?)(?=\s?(?:-|–|to|until|and)\s?\d{1,2}(?:[:.]\d\d)?\s?([ap])\.?m\b)",
    re.IGNORECASE,
)
_CAPITAL_WORD = re.compile(r"[^\W\d_](?:[^\W_]|['’](?=\w))*")
# before a sentence begins
_OPENING_MARKS = " \t\"'“”«»([*_-–"
_SENTENCE_STOPS = (".", "!", "?", ":", ";", "\n")
SENTENCE_START_DISTANCE = 8  # characters before a word in which they are looked for
_NAME_JOINT = re.compile(rf"\s(?:& |(?:{any_of(LANGUAGES.words.joining)}) )?|, | ?[-–/+] ?")
_NO_NAMES = STOP_WORDS.union(
    _YES_NO_WORDS,
    _NOON_MINUTES,
    tables().months,
    LANGUAGES.words.titles,
    (code.lower() for code in currencies().values()),
    _COMPARISON_WORDS.firms,
)
_NO_KEYS = SPEAKER_WORDS | {"?"}
_IDLE_KINDS = frozenset({LITTLE, NEGATION, BREAK, UNIT})
_REFUSALS = [f"~{name}" for name in ("allow", "cover", "accept", "mandatory", "possible", "able")]
# poles that bounds of numbers speak of, which `bounds` compares
_BOUND_POLES = {f"~{name}" for name in ("more", "early", "maximum")}
_BRACKETS = re.compile(r"\([^()]*\)")
_CLAUSE_PARTS = re.compile(
    rf"[,;]|\b(?:{any_of([*LANGUAGES.words.joining, *LANGUAGES.words.parting])})\b"
)


def answer_match(
    answer: str, golds: Sequence[str], question: str = "", headings: str = ""
) -> AnswerMatch:
    """Whether an answer says what one of the gold answers says.

    A gold answer has values: numbers with units, amounts, dates, times, codes, names, yes or no,
    and what it negates; those that the question states too are not asked for. The answer is wrong
    if one of them is replaced by another of its kind, or it only repeats question and headings. It
    is right if it has all of them and no further one of the same kind, and nothing speaks against
    it: a negation, another bound, another name in their clause. Without values it is right if the
    F1 of the words that the question does not hold is at least `UPPER_F1`, and wrong up to
    `LOWER_F1`. All else is undecided.

    Args:
      answer: text as it leaves the system.
      golds: gold answers, any of which will do.
      question: to which both are answers.
      headings: above the passages that the answer rests on.

    Source: rule S6.3; F1 as in Rajpurkar et al. 2016.

    Example:
      >>> golds = ["The excess of a storm is £1,200."]
      >>> texts = ("1200 pounds", "It is GBP 1,250.", "It depends.")
      >>> [answer_match(text, golds, "What is the excess of a storm?").name for text in texts]
      ['right', 'wrong', 'undecided']
    """
    gold_matches = {_gold_match(answer, gold_answer, question, headings) for gold_answer in golds}
    if AnswerMatch.right in gold_matches:
        return AnswerMatch.right
    return AnswerMatch.wrong if gold_matches == {AnswerMatch.wrong} else AnswerMatch.undecided


def _gold_match(answer: str, gold_answer: str, question: str, headings: str) -> AnswerMatch:
    """Whether an answer says what a gold answer says."""
    answer_facts, gold_facts, question_facts = (
        text_facts(answer),
        text_facts(gold_answer),
        text_facts(question),
    )
    if answer_facts.values == gold_facts.values and _plain_words(answer) == _plain_words(
        gold_answer
    ):
        return AnswerMatch.right
    agreement = 0
    if _YES_QUESTION.match(question):
        agreement = _says_yes(answer_facts, question_facts) * _says_yes(gold_facts, question_facts)
    if agreement < 0 or not (answer_facts.keys or answer_facts.yes):
        return AnswerMatch.wrong
    asked_values = frozenset(
        value
        for value in gold_facts.values - question_facts.values
        if not _is_named(value, question_facts)
    )
    if not asked_values and not gold_facts.content - question_facts.content:
        asked_values = gold_facts.values
    is_echo = answer_facts.content <= question_facts.content | text_facts(headings).content
    if asked_values:
        return _match_values(answer, gold_answer, question, asked_values, is_echo=is_echo)
    opposes = _opposes(answer_facts, gold_facts) or answer_facts.restricts != gold_facts.restricts
    if agreement:
        return AnswerMatch.undecided if opposes else AnswerMatch.right
    is_sentence = gold_answer.strip()[-1:] in ".!"
    is_echo &= not gold_facts.content <= answer_facts.content
    if is_echo and not gold_facts.content <= question_facts.content:
        return AnswerMatch.wrong
    words_match = _match_words(
        answer_facts, gold_facts, question_facts, opposes=opposes, is_sentence=is_sentence
    )
    # yes and no may be said in words that share nothing
    may_differ_in_words = (
        words_match == AnswerMatch.wrong and not opposes and _YES_QUESTION.match(question)
    )
    return AnswerMatch.undecided if may_differ_in_words else words_match


def _match_words(
    answer_facts: Facts,
    gold_facts: Facts,
    question_facts: Facts,
    *,
    opposes: bool,
    is_sentence: bool,
) -> AnswerMatch:
    """Whether an answer holds the words of a gold answer without values."""
    new_words = answer_facts.content - question_facts.content
    new_gold_words = gold_facts.content - question_facts.content
    if not new_gold_words:  # all words of the gold answer are the question's
        new_words = answer_facts.content
        new_gold_words = gold_facts.content
    n_shared = len(new_words & new_gold_words)
    words_f1 = 2.0 * n_shared / max(1, len(new_words) + len(new_gold_words))
    is_term = len(new_gold_words) <= LONGEST_TERM_ANSWER and not is_sentence
    if words_f1 < (TERM_F1 if is_term else UPPER_F1):
        is_wrong = words_f1 <= LOWER_F1 and not gold_facts.content <= question_facts.content
        return AnswerMatch.wrong if is_wrong else AnswerMatch.undecided
    if opposes:
        return (
            AnswerMatch.undecided
            if answer_facts.restricts or gold_facts.restricts
            else AnswerMatch.wrong
        )
    is_right = (
        new_gold_words <= new_words if is_term else answer_facts.negates == gold_facts.negates
    )
    return AnswerMatch.right if is_right else AnswerMatch.undecided


def _match_values(
    answer: str, gold_answer: str, question: str, asked_values: frozenset[Value], *, is_echo: bool
) -> AnswerMatch:
    """Whether an answer holds the values of a gold answer and no others in their place."""
    answer_facts, gold_facts, question_facts = (
        text_facts(answer),
        text_facts(gold_answer),
        text_facts(question),
    )
    has_codes = any(value.kind == "code" for value in answer_facts.values | gold_facts.values)
    answer_letters = _joined_letters(answer) if has_codes else ""
    missing_values = {
        value
        for value in asked_values - answer_facts.values
        if value.kind not in {PER_KIND, EACH_KIND}
        and not _is_named(value, answer_facts)
        and not (value.key in answer_letters and value.key)
    }
    value_kinds = {_PLAIN_KIND.get(value.kind, value.kind) for value in missing_values}
    if missing_values and (
        is_echo
        or not value_kinds.isdisjoint(
            _further_kinds(answer_facts, gold_facts, question_facts, gold_answer, counts_names=True)
        )
    ):
        return AnswerMatch.wrong
    facts_without_brackets = text_facts(_BRACKETS.sub(" ", answer))
    value_kinds = {
        PER_KIND,
        *(_PLAIN_KIND.get(value.kind, value.kind) for value in gold_facts.values),
    }
    asked_bounds = gold_facts.bounds or question_facts.bounds
    has_doubts = (
        missing_values
        or not value_kinds.isdisjoint(
            _further_kinds(facts_without_brackets, gold_facts, question_facts, gold_answer)
        )
        or (asked_bounds and answer_facts.bounds and asked_bounds.isdisjoint(answer_facts.bounds))
        or (answer_facts.doubts and not gold_facts.doubts)
        or _opposes(answer_facts, gold_facts, _BOUND_POLES)
        or _swaps(answer, gold_answer)
        or _stands_elsewhere(answer, asked_values, gold_facts, question_facts)
    )
    return AnswerMatch.undecided if has_doubts else AnswerMatch.right


def _further_kinds(
    answer_facts: Facts,
    gold_facts: Facts,
    question_facts: Facts,
    gold_answer: str,
    *,
    counts_names: bool = False,
) -> set[str]:
    """Kinds of the values that a text states and neither gold answer nor question.

    counts_names: whether names that begin a sentence count.
    """
    gold_letters = (
        _joined_letters(gold_answer)
        if any(value.kind == "code" for value in answer_facts.values)
        else ""
    )
    return {
        _PLAIN_KIND[value.kind]
        if counts_names and value.kind == SENTENCE_START_NAME
        else value.kind
        for value in answer_facts.values - gold_facts.values - question_facts.values
        if value.key not in gold_letters
        and not (_is_named(value, gold_facts) or _is_named(value, question_facts))
    }


def _joined_letters(text: str) -> str:
    return "".join(re.findall(r"[^\W_]+", text)).casefold()


def _stands_elsewhere(
    answer: str, asked_values: frozenset[Value], gold_facts: Facts, question_facts: Facts
) -> bool:
    """Whether the values stand in a clause of another matter than the question's."""
    clauses = (clause for sentence in sentences(answer) for clause in sentence.split(";"))
    clause_facts = [
        (facts_of_clause, len(facts_of_clause.content & question_facts.content))
        for facts_of_clause in map(text_facts, clauses)
    ]
    clauses_with_values = [
        (facts_of_clause, n_shared)
        for facts_of_clause, n_shared in clause_facts
        if asked_values & facts_of_clause.values
        or any(_is_named(value, facts_of_clause) for value in asked_values)
    ]
    if not clauses_with_values or max(
        shared_count for _, shared_count in clauses_with_values
    ) < max(shared_count for _, shared_count in clause_facts):
        return bool(clauses_with_values)
    asked_names = {value.key for value in question_facts.values if value.kind == "name"}
    return bool(asked_names) and any(
        asked_names.isdisjoint(facts_of_clause.words)
        and {value.key for value in facts_of_clause.values if value.kind == "name"}
        - gold_facts.words
        - question_facts.words
        for facts_of_clause, _ in clauses_with_values
    )


_PLAIN_KIND = {SENTENCE_START_NAME: "name"}


def _is_named(value: Value, facts: Facts) -> bool:
    """Whether a value is a name, or what is counted for, that a text holds in any place."""
    return (
        value.kind in {"name", SENTENCE_START_NAME, PER_KIND, EACH_KIND}
        and value.key in facts.words
    )


@lru_cache(maxsize=1 << 14)
def text_facts(text: str) -> Facts:
    """What a text states: values, words of substance with their signs, yes or no."""
    plain_text = usual_forms(re.sub("[°²³]", " ", text))
    plain_text = re.sub(r"(?<![^\s(])[-−](?=\d)", "minus ", plain_text)
    for pattern, spelt_value in _SPELLINGS:
        plain_text = pattern.sub(spelt_value, plain_text)
    text_values: set[Value] = set()
    remaining_text = _take_days(
        _take_codes(_take_times(_take_dates(plain_text, text_values), text_values), text_values),
        text_values,
    )
    text_values |= {
        Value(value_kind, _plain_name(value_match[1]))
        for value_kind, pattern in _COUNTED_FOR.items()
        for value_match in pattern.finditer(remaining_text)
        if value_match[1].lower() not in tables().numbers
    }
    text_values |= {*_quantities(claim_words(remaining_text)), *_name_values(remaining_text)}
    plain_words = _plain_words(text)
    # `No interest is paid` negates a sentence and answers nothing by itself
    is_reply = re.match(r"\W*\w+\s*(?:[,.;:!–—-]|$)", plain_text) or plain_words[:1] != ["no"]
    is_question = plain_text.rstrip().endswith("?")
    return Facts(
        frozenset(text_values),
        frozenset(
            (word.key, 1 if word.kind == NUMBER else word.sign)
            for word in claim_words(plain_text)
            if word.kind not in _IDLE_KINDS and word.key not in _NO_KEYS
        ),
        frozenset(plain_words),
        _YES_NO_WORDS.get(plain_words[0], 0)
        if plain_words and is_reply and plain_words[0] in _YES_NO_WORDS
        else _reply_sign(plain_text),
        _RESTRICTS.search(plain_text) is not None,
        _DOUBT_WORDS.search(plain_text) is not None,
        frozenset(
            (1 if bound_match["above"] else -1) * (-1 if bound_match["no"] else 1)
            for bound_match in _BOUND_PHRASE.finditer(plain_text)
        )
        | {
            bound_sign
            for bound_sign, bound_opening in _ASKED_BOUNDS.items()
            if is_question and bound_opening.match(plain_text)
        },
        sum(word.kind == NEGATION for word in claim_words(plain_text)),
    )


def _take_dates(text: str, text_values: set[Value]) -> str:
    """The text without its dates, whose days, months and years go to the values."""
    for written_date in reversed([*dates_in(text)]):
        day_or_month = (
            ("day", f"{written_date.month}-{written_date.day}")
            if written_date.day
            else ("month", str(written_date.month))
        )
        text_values |= {Value("year", str(written_date.year)), Value(*day_or_month)}
        text = f"{text[: written_date.start]} , {text[written_date.end :]}"
    return text


def _take_times(text: str, text_values: set[Value]) -> str:
    """The text without its times of day, which go to the values in minutes."""

    def taken(time_match: re.Match[str]) -> str:
        if time_match["noon"]:
            minutes = _NOON_MINUTES[time_match["noon"].lower()]
        else:
            hour, minute = (
                int(time_match[group_name] or time_match[f"{group_name}24"] or 0)
                for group_name in ("hour", "minute")
            )
            half_day = (time_match["half"] or "").lower()
            minutes = (hour % 12 + 12 * (half_day == "p") if half_day else hour) * 60 + minute
        text_values.add(Value("time", str(minutes)))
        return " , "

    return _TIME_OF_DAY.sub(taken, _HALF_DAY.sub(r"\1\2 \3m", text))


def _take_codes(text: str, text_values: set[Value]) -> str:
    """The text without its codes, addresses and telephone numbers, which go to the values."""

    def taken(code_match: re.Match[str]) -> str:
        code_kind = code_match.lastgroup or ""
        code_text = code_match[0].casefold()
        if (
            code_kind == "code"
            and _NUMBER_NOT_CODE.fullmatch(code_text)
            and not code_text.isdigit()
        ):
            return re.sub("[-/]", " ", code_match[0])
        if code_kind == "phone":
            if len(phone_digits := re.sub(r"\D", "", code_text)) < 7:
                return code_match[0]
            code_text = phone_digits[-9:]  # without the code of a country or its nought
        elif code_kind == "version":
            code_text = code_text.removeprefix("v")
        elif code_kind == "web":
            code_text = re.sub(r"\A(?:https?://)?(?:www\.)?", "", code_text).rstrip("/.")
        if code_kind not in {"mail", "web"}:
            code_kind = "code"
            code_text = re.sub(r"[\W_]", "", code_text)
        text_values.add(Value(code_kind, code_text))
        return " , "

    return _CODE_SHAPES.sub(taken, text)


def _take_days(text: str, text_values: set[Value]) -> str:
    """The text without its days of a month, which go to the values."""

    def taken(day_match: re.Match[str]) -> str:
        month_number = tables().months[(day_match["m1"] or day_match["m2"]).lower()]
        text_values.add(Value("day", f"{month_number}-{int(day_match['d1'] or day_match['d2'])}"))
        return " , "

    return _DAY_OF_MONTH.sub(taken, text)


def _quantities(words: Sequence[Word]) -> Iterator[Value]:
    """Numbers of a text with the unit beside them, by kind."""
    text_end = Word("", BREAK)
    padded_words = [text_end, text_end, *words, text_end, text_end, text_end, text_end]
    for word_index, word in enumerate(padded_words[:-3]):
        word_before = padded_words[word_index - 1]
        word_after = padded_words[word_index + 1]
        is_one = word.key == "1" and word.kind == LITTLE and word_after.key in _MEASURE_UNITS
        if word.kind != NUMBER and not is_one and word.key != "dozen":
            continue
        quantity = _key_number("12" if word.key == "dozen" else word.key)
        if word.key.startswith("m") and word.key[1:].isdigit():
            yield Value("month", word.key[1:])
        elif quantity is None:
            yield Value("code", word.key)
        elif (
            word_before.kind == UNIT != word_after.kind
            and padded_words[word_index - 2].kind == NUMBER
        ):
            continue  # the pence of two pounds fifty
        else:
            if [
                following_word.key
                for following_word in padded_words[word_index + 1 : word_index + 4]
            ] == ["and", "a", "half"]:
                quantity = quantity + 0.5
                word_after = padded_words[word_index + 4]
            quantity = -quantity if word_before.key == _MINUS_KEY else quantity
            yield _quantity(quantity, word_before, word_after, padded_words[word_index + 2])


def _quantity(quantity: float, word_before: Word, word_after: Word, last_word: Word) -> Value:
    """A number with the words beside it."""
    unit_sign = next(
        (unit_word.key for unit_word in (word_after, word_before) if unit_word.kind == UNIT), ""
    )
    if word_after.key in _HUNDREDTH_SIGNS:
        return Value(
            "amount", f"{_HUNDREDTH_SIGNS[word_after.key]}{canonical_value(quantity / 100)}"
        )
    if unit_sign:
        pence = _key_number(last_word.key) if word_after.kind == UNIT and unit_sign != "%" else None
        quantity += 0.0 if pence is None or last_word.kind != NUMBER else pence / 100
        return Value(
            "percent" if unit_sign == "%" else "amount", f"{unit_sign}{canonical_value(quantity)}"
        )
    if word_after.key in _MEASURE_UNITS:
        unit_kind, unit_factor = _MEASURE_UNITS[word_after.key]
        return Value(unit_kind, canonical_value(quantity * unit_factor))
    is_year = quantity.is_integer() and 1500 <= quantity < 2100
    return Value("year" if is_year else "count", canonical_value(quantity))


def _key_number(word_key: str) -> float | None:
    """The value of a number's key, None of what is no number."""
    try:
        number = float(word_key)
    except ValueError:
        return None
    return number if abs(number) < LARGEST_COMPARED_NUMBER else None


def _name_values(text: str) -> Iterator[Value]:
    """Words of the names of a text: capitalised, and not only since a sentence begins."""
    capital_words = [*_CAPITAL_WORD.finditer(text)]
    for word_index, word_match in enumerate(capital_words):
        plain_name = _plain_name(word_match[0])
        text_before = text[
            max(0, word_match.start() - SENTENCE_START_DISTANCE) : word_match.start()
        ].rstrip(_OPENING_MARKS)
        begins_sentence = text_before.endswith(_SENTENCE_STOPS) or (
            not text_before and word_match.start() <= SENTENCE_START_DISTANCE
        )
        is_no_name = plain_name in _MEASURE_UNITS or (
            plain_name in _NO_NAMES and (len(plain_name) > 1 or begins_sentence)
        )
        if not word_match[0][0].isupper() or is_no_name or plain_name == "i":
            continue
        name_kind = "name"
        if begins_sentence and not word_match[0][1:].isupper():
            following_name = next(
                (
                    next_word
                    for next_word in capital_words[word_index + 1 : word_index + 3]
                    if next_word[0][0].isupper()
                ),
                None,
            )
            text_between = text[word_match.end() : following_name.start()] if following_name else ""
            if len(capital_words) > 1 and not (
                following_name and _NAME_JOINT.fullmatch(text_between)
            ):
                continue
            name_kind = SENTENCE_START_NAME
        yield Value(name_kind, plain_name)


def _plain_words(text: str) -> list[str]:
    """Words and numbers of a text as names are compared."""
    return [_plain_name(word) for word in re.findall(r"\w+", usual_forms(text))]


def _plain_name(word: str) -> str:
    """A word without case, accents and the ending of a genitive or plural; days in full."""
    plain_word = unaccented(word).casefold().removesuffix("'s").removesuffix("’s")
    plain_word = plain_word.removesuffix("s") if len(plain_word) > 4 else plain_word
    plain_word = _RATE_UNITS.get(plain_word, plain_word)
    weekday = _WEEKDAYS.get(plain_word[:3], "")
    return (
        weekday if weekday.startswith(plain_word) or plain_word in {"tues", "thurs"} else plain_word
    )


def _reply_sign(text: str) -> int:
    """1 or -1 where a text begins with a short yes or no in other words, else 0."""
    return next(
        (
            answer_sign
            for answer_sign, reply_opening in _REPLIES.items()
            if reply_opening.match(text)
        ),
        0,
    )


def _says_yes(facts: Facts, query: Facts) -> int:
    """1 or -1 where a text says yes or no to what is asked, 0 where neither is clear."""
    if facts.yes or facts.restricts:
        return facts.yes
    query_signs = dict(query.keys)
    shared_signs = [
        word_sign * query_signs[word_key]
        for word_key, word_sign in facts.keys
        if word_key in query_signs
    ]
    if len(shared_signs) * 2 < len(query_signs) or not shared_signs:
        return 0
    if min(shared_signs) < 0 or (facts.negates and not query.negates):
        return -1
    return int(len(shared_signs) * 3 >= len(query_signs) * 2 and facts.negates == query.negates)


def _opposes(answer_facts: Facts, gold_facts: Facts, ignored_keys: Iterable[str] = ()) -> bool:
    """Whether a word of both is negated, or stands for its opposite, in one of them."""
    return any(
        (word_key, -word_sign) in answer_facts.keys
        for word_key, word_sign in gold_facts.keys
        if word_key not in ignored_keys
    )


def _swaps(answer: str, gold_answer: str) -> bool:
    """Whether values stand with the words of others: `front 3.2, rear 3.8` and the reverse."""
    answer_companions = _companions(answer)
    gold_companions = _companions(gold_answer)
    gold_values = frozenset().union(*gold_companions.values())
    return any(
        answer_companions[companion_word] & gold_values
        and not answer_companions[companion_word] & companion_values
        for companion_word, companion_values in gold_companions.items()
        if companion_word in answer_companions and companion_word not in gold_values
    )


def _companions(text: str) -> dict[str, frozenset[str]]:
    """Numbers, without any the names, that stand in one part of a text with each word."""
    part_words = [claim_words(part) for part in _CLAUSE_PARTS.split(text)]
    companion_kind = (
        NUMBER if any(word.kind == NUMBER for part in part_words for word in part) else NAME
    )
    values_by_word: dict[str, frozenset[str]] = {}
    for part in part_words:
        part_values = frozenset(word.key for word in part if word.kind == companion_kind)
        for word in part:
            if word.kind in {WORD, NAME} and part_values and word.key not in part_values:
                values_by_word[word.key] = values_by_word.get(word.key, frozenset()) | part_values
    return values_by_word
