"""Extractive generator (shore): verbatim sentences, rows and code, with calibrated confidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from math import exp, log
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from raglab.answering.hygiene import clean
from raglab.calibration import apply, fit
from raglab.values import Chunk, Generation, Knots, unanswered
from raglab.words.answer_terms import content_terms
from raglab.words.languages import LANGUAGES, Reason, expression
from raglab.words.numerals import CURRENCY_CODES, any_of, currencies, tables
from raglab.words.packs import GENERIC, Pack
from raglab.words.text import Piece, fold_case, pieces

Kind = Literal["date", "money", "number", "name"]

_ANSWER_WORDS = LANGUAGES.answers
NEVER_MATCHES = "(?!)"  # an expression that matches nothing
AMOUNT_CLASSES = tuple(
    sorted(
        set(
            re.findall(
                r"AMOUNTS_[A-Z]+", " ".join(chain.from_iterable(_ANSWER_WORDS.asked.values()))
            )
        )
    )
)
_CODE_QUESTION = re.compile(
    expression(_ANSWER_WORDS.asked.get("code", [NEVER_MATCHES]))
)  # of a folded question
_NUMERALS = tables()


def _folded_alternatives(pattern_words: Iterable[str]) -> str:
    return f"(?:{any_of(dict.fromkeys(map(fold_case, pattern_words)))})"


# Whole names of months alone: `mar` and `dec` stand for other words without a number next to them.
_MONTH_PATTERN = _folded_alternatives(word for words in LANGUAGES.months for word in words)
_ORDINAL_ENDINGS = _folded_alternatives(_NUMERALS.endings)  # 1st, 1er
_DATE_JOINT = f"(?:{'|'.join(LANGUAGES.quantities.of_dates) or NEVER_MATCHES})"
_COUNT_PATTERN = _folded_alternatives(
    [*_NUMERALS.numbers, *_NUMERALS.scales, *LANGUAGES.numerals.counts]
)
_SCALE_PATTERN = _folded_alternatives(
    word for word, scale in _NUMERALS.scales.items() if scale > 1000
)
_SUFFIX_PATTERN = _folded_alternatives([*_NUMERALS.suffixes, *_NUMERALS.money_suffixes])
_MONEY_JOINT = (
    f"(?:{'|'.join(LANGUAGES.quantities.of_money) or NEVER_MATCHES})"  # deux millions d'euros
)
_CURRENCY_CODE = _folded_alternatives(CURRENCY_CODES)
_MONEY_UNIT = _folded_alternatives(
    [*(name for name in currencies() if name.isalpha()), *LANGUAGES.quantities.percent]
)
# in bounds, so that a run of digits takes no hours
_FIGURE_PATTERN = r"(?:\d[\d.,'’ \u00a0\u202f]{0,30}\d|\d)"
_PHRASE_PATTERNS: dict[
    Kind, re.Pattern[str]
] = {  # of a folded text, but a name of the text as it stands
    "date": re.compile(
        rf"\b\d{{1,2}}{_ORDINAL_ENDINGS}? {_DATE_JOINT}?{_MONTH_PATTERN}\b(?:,? \d{{4}}\b)?"
        rf"|\b{_MONTH_PATTERN}\b(?: \d{{1,2}}{_ORDINAL_ENDINGS}?\b(?! ?%))?(?:,? \d{{4}}\b)?"
        rf"|{expression(_ANSWER_WORDS.dates)}"
    ),
    "money": re.compile(
        rf"(?:[£$€¥]|\b{_CURRENCY_CODE}) ?{_FIGURE_PATTERN}(?: "
        rf"{_SCALE_PATTERN}\b|{_SUFFIX_PATTERN}\b)?"
        rf"|{_FIGURE_PATTERN}\s?(?:[£$€¥%]|(?:{_SCALE_PATTERN} {_MONEY_JOINT}?)?{_MONEY_UNIT}\b)"
    ),
    "number": re.compile(rf"{_FIGURE_PATTERN}|\b{_COUNT_PATTERN}\b"),
    "name": re.compile(
        r"(?<=[^.!?…] )\b[^\W\d_a-z][\w'’-]*(?: [^\W\d_a-z][\w'’-]*)*|^[^\W\d_a-z][\w'’-]*(?: "
        r"[^\W\d_a-z][\w'’-]*)+"
    ),
}


@lru_cache(maxsize=8)
def _expected_kinds(pack: Pack) -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    """Expressions of a folded question for each kind of answer, the first that matches counts.

    The nouns of amounts of a trade stand for `AMOUNTS_EN`, `AMOUNTS_FR` and so on in a language's
    expressions.
    """
    amount_nouns = {
        f"AMOUNTS_{language_code.upper()}": "|".join(class_words) or NEVER_MATCHES
        for language_code, class_words in pack.amounts.items()
    }
    class_words = (
        dict.fromkeys(AMOUNT_CLASSES, NEVER_MATCHES) | amount_nouns | dict(_ANSWER_WORDS.words)
    )
    kind_patterns = (
        (
            answer_kind,
            expression(_ANSWER_WORDS.asked.get(answer_kind, [NEVER_MATCHES]), class_words),
        )
        for answer_kind in get_args(Kind)
    )
    return tuple(
        (answer_kind, re.compile(pattern_text)) for answer_kind, pattern_text in kind_patterns
    )


@lru_cache(maxsize=4096)
def expected_kind(question: str, pack: Pack = GENERIC) -> Kind | None:
    """Kind of answer that the question's words ask for; None where they leave it open.

    Example:
      >>> (
      ...     expected_kind("When was it founded?"),
      ...     expected_kind("À qui la somme est-elle due ?"),
      ...     expected_kind("Why?"),
      ... )
      ('date', 'name', None)
    """
    folded_question = fold_case(question).strip()
    return next(
        (
            answer_kind
            for answer_kind, pattern in _expected_kinds(pack)
            if pattern.search(folded_question)
        ),
        None,
    )


def phrases(answer_kind: Kind, searched_text: str) -> list[tuple[int, int]]:
    """Where the phrases of a kind stand in the text, in order.

    Example:
      >>> [
      ...     ("Due on 1 May 2025.")[start:end]
      ...     for start, end in phrases("date", "Due on 1 May 2025.")
      ... ]
      ['1 May 2025']
    """
    folded_text = searched_text if answer_kind == "name" else fold_case(searched_text)
    if len(folded_text) != len(
        searched_text
    ):  # a letter of the text is two when folded: places would not agree
        folded_text = searched_text.lower()
    return [
        phrase_match.span() for phrase_match in _PHRASE_PATTERNS[answer_kind].finditer(folded_text)
    ]


@lru_cache(maxsize=16384)
def kind_phrases(answer_kind: Kind, searched_text: str) -> tuple[frozenset[str], ...]:
    """Content words and numbers of each phrase of a kind in the text."""
    return tuple(
        frozenset(content_terms(searched_text[phrase_start:phrase_end]))
        for phrase_start, phrase_end in phrases(answer_kind, searched_text)
    )


# letters of a word that count: they join claim, claims and claimed, durer, durée and durable
STEM_LETTERS = 5
MAX_QUESTION_STEMS = 64  # different words of a question that count
_CLOSING_MARKS = "\"'”»)"
_LEADING_MARKS = ("?", ":")  # a line that ends so is answered by the next one


def introduces_next(line_text: str) -> bool:
    """Whether a line is answered or listed out by what follows it.

    Example:
      >>> (
      ...     introduces_next("Not covered:"),
      ...     introduces_next("Is hail covered?"),
      ...     introduces_next("No."),
      ... )
      (True, True, False)
    """
    return line_text.rstrip(_CLOSING_MARKS).endswith(_LEADING_MARKS)


class Question(NamedTuple):
    """A question's distinct stems in order, their neighbouring pairs, its terms and answer kind."""

    stems: tuple[str, ...]
    pairs: frozenset[tuple[str, str]]
    terms: frozenset[str]
    kind: Kind | None


class PassageLine(NamedTuple):
    """A sentence, list item, table row or code block of a passage.

    text: as an answer shows it, after hygiene; code and the sentence right above it are shown
    together, for either. stems: what it says. pairs: its neighbouring stems. heading: stems of the
    headings above it. before: stems of the line before it, of a row or code those of the last
    sentence before. is_answer: whether it can be one: hygiene leaves something to give, and what
    ends in a question mark or a colon is answered by what follows. is_code: whether it is code, or
    what only leads on to code.
    """

    text: str
    stems: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    heading: frozenset[str]
    before: frozenset[str]
    is_answer: bool
    is_code: bool = False


def line_stems(line_text: str) -> tuple[str, ...]:
    """Beginnings of a text's content words, and its numbers, in order.

    Example:
      >>> line_stems("The claims of 1,200 claimants")
      ('claim', '1200', 'claim')
    """
    return tuple(
        content_term[:STEM_LETTERS] if content_term.isalpha() else content_term
        for content_term in content_terms(line_text)
    )


@lru_cache(maxsize=4096)
def parse_question(text: str, pack: Pack = GENERIC) -> Question:
    """Read what a question asks."""
    question_stems = tuple(dict.fromkeys(line_stems(text)))[:MAX_QUESTION_STEMS]
    return Question(
        question_stems,
        frozenset(pairwise(question_stems)),
        frozenset(content_terms(text)),
        expected_kind(text, pack),
    )


@lru_cache(maxsize=8192)
def passage_lines(passage_text: str, section: tuple[str, ...] = ()) -> tuple[PassageLine, ...]:
    r"""Sentences, list items, table rows and code of a passage in order.

    Words of headings go to what they head.

    Args:
      section: headings above the passage, which head every line of it.

    Example:
      >>> passage_lines("Policy > Excess\nStorm is dearer.")[0].heading == {"polic", "exces"}
      True
      >>> [line.text for line in passage_lines("Run it:\n```\nls\n```")]
      ['Run it:\n```\nls\n```', 'Run it:\n```\nls\n```']
    """
    parsed_lines: list[PassageLine] = []
    section_stems = frozenset(
        stem for section_heading in section for stem in line_stems(section_heading)
    )
    heading_stems = section_stems
    previous_stems: frozenset[str] = frozenset()
    last_sentence = previous_kind = ""  # the last sentence, and the kind of the piece before
    for text_piece in pieces(passage_text, titled=not section):
        if text_piece.kind == "heading":
            heading_stems = frozenset(line_stems(text_piece.text)) | (
                heading_stems if previous_kind == "heading" or not parsed_lines else section_stems
            )
            previous_stems = frozenset()
        elif text_piece.kind != "head":
            shown_text = piece_text(text_piece)
            cleaned_answer = clean(shown_text)
            own_stems = line_stems(cleaned_answer.text)
            is_answer = (
                bool(own_stems) and not cleaned_answer.refused and not introduces_next(shown_text)
            )
            passage_line = PassageLine(
                cleaned_answer.text,
                frozenset(own_stems),
                frozenset(pairwise(own_stems)),
                heading_stems,
                previous_stems,
                is_answer,
                text_piece.kind == "code",
            )
            if (
                text_piece.kind == "code" and previous_kind == "prose"
            ):  # the sentence right above introduces it
                joined_answer = clean(f"{last_sentence}\n{shown_text}")
                passage_line = passage_line._replace(
                    text=joined_answer.text, is_answer=bool(own_stems) and not joined_answer.refused
                )
                parsed_lines[-1] = parsed_lines[-1]._replace(
                    text=joined_answer.text,
                    is_answer=bool(parsed_lines[-1].stems) and not joined_answer.refused,
                    is_code=not parsed_lines[-1].is_answer,
                )
            parsed_lines.append(passage_line)
            if text_piece.kind == "prose":
                previous_stems = passage_line.stems
                last_sentence = shown_text
        previous_kind = text_piece.kind
    return tuple(parsed_lines)


def piece_text(text_piece: Piece) -> str:
    r"""A piece as an answer shows it.

    Of a row its first cell, then the others under the heads of their columns.

    Example:
      >>> piece_text(pieces("| Peril | Excess |\n|---|---|\n| Storm excess | £400 |")[1])
      'Storm excess - Excess: £400'
    """
    if text_piece.kind != "row":
        return text_piece.text
    column_heads = text_piece.heads or ("",) * len(text_piece.cells)
    headed_cells = zip(column_heads[1:], text_piece.cells[1:], strict=True)
    remaining_cells = "; ".join(
        f"{column_head}: {text}" if column_head else text
        for column_head, text in headed_cells
        if text
    )
    return " - ".join(part for part in (text_piece.cells[0], remaining_cells) if part)


# What a line's support is the sum of, in units of the share of the question's content that the line
# itself holds. Fitted (conditional logit on which line holds the answer) to the tune splits of
# SQuAD 2.0 and of the bundled set, and rounded: a fifth more or less of any one moves the share of
# right lines on SQuAD by 0.7 points at most.
LINE_BEFORE_SHARE = (
    0.5  # share of the question that the line before adds: whom `he` and `this` mean
)
HEADING_SHARE = 0.25  # share that the headings add
LINE_AFTER_SHARE = 0.25  # share that the line after adds
PAIR_SHARE = (
    0.25  # share of the question's pairs of neighbouring words that stand together in the line
)
KIND_SHARE = (
    0.25  # whether the line has a date, sum, number or name where the question asks for one
)
RANK_SHARE = 0.35  # one over the passage's place: retrieval's own opinion

SUPPORT_TEMPERATURE = 0.09  # support that makes a line e times as likely, by the same fit
SECOND_LINE_TRAIL = 0.09  # a second line trails the first by at most this support
SECOND_LINE_SHARE = 0.1  # share of the question that a second line adds at least
CERTAIN_SHARE = 1e-4  # no share counts as nearer to 0 or 1 than this
SUPPORT_DIGITS = 9  # of support and confidence, so that a tie is a tie on every machine


class ScoredLine(NamedTuple):
    """A line of a passage with its support.

    passage: position of the passage. place: of the line among all. own: stems of the question that
    the line holds. near: those that it, its neighbours or its headings hold. kind: 1 where it
    has a phrase of the kind that the question asks for, 0 where it has none, ½ where the question
    leaves it open.
    """

    line: PassageLine
    passage: int
    place: int
    own: frozenset[str]
    near: frozenset[str]
    kind: float
    support: float


def weights(question: Question, passages: Sequence[Sequence[PassageLine]]) -> dict[str, float]:
    """Weight of each of the question's stems, together 1: the more, the fewer lines have it.

    ln((N + 1) / (n + ½)) over N lines, n of which have it, as inverse document frequencies are.
    """
    lines_by_stem = Counter(
        stem
        for passage in passages
        for passage_line in passage
        for stem in question.stems
        if stem in passage_line.stems
    )
    n_lines = sum(map(len, passages))
    raw_weights = {
        stem: log((n_lines + 1) / (lines_by_stem[stem] + 0.5)) for stem in question.stems
    }
    total_weight = sum(raw_weights.values())
    return {stem: raw_weight / total_weight for stem, raw_weight in raw_weights.items()}


def share(weight: Mapping[str, float], stems: Collection[str]) -> float:
    """Share of the question's content that stems hold, in [0, 1]."""
    return sum(stem_weight for stem, stem_weight in weight.items() if stem in stems)


def score_lines(
    question: Question, weight: Mapping[str, float], passages: Sequence[Sequence[PassageLine]]
) -> Iterator[ScoredLine]:
    """Every line that can be an answer, with its support, in the order of the passages."""
    first_line = 0
    for passage_rank, passage in enumerate(passages):
        for line_index, passage_line in enumerate(passage):
            if not passage_line.is_answer:
                continue
            next_stems = (
                passage[line_index + 1].stems if line_index + 1 < len(passage) else frozenset[str]()
            )
            stem_places = (
                (1.0, passage_line.stems),
                (HEADING_SHARE, passage_line.heading),
                (LINE_BEFORE_SHARE, passage_line.before),
                (LINE_AFTER_SHARE, next_stems),
            )
            stem_worth = {
                stem: next(
                    (stem_worth for stem_worth, place_stems in stem_places if stem in place_stems),
                    0.0,
                )
                for stem in weight
            }
            kind_match = 0.5  # of a question that leaves the kind of its answer open
            if question.kind is not None:  # else whether a phrase says something that it lacks
                expected_phrases = kind_phrases(question.kind, passage_line.text)
                kind_match = float(any(not phrase <= question.terms for phrase in expected_phrases))
            support = (
                sum(weight[stem] * stem_worth[stem] for stem in weight)
                + PAIR_SHARE
                * len(question.pairs & passage_line.pairs)
                / max(1, len(question.pairs))
                + (KIND_SHARE * kind_match if question.kind else 0.0)
                + RANK_SHARE / (1 + passage_rank)
            )
            near_stems = frozenset(stem for stem in weight if stem_worth[stem] > 0.0)
            yield ScoredLine(
                passage_line,
                passage_rank,
                first_line + line_index,
                near_stems & passage_line.stems,
                near_stems,
                kind_match,
                round(support, SUPPORT_DIGITS),
            )
        first_line += len(passage)


def answer_confidence(
    chosen: Sequence[ScoredLine], lines: Sequence[ScoredLine], weight: Mapping[str, float]
) -> float:
    """How far an answer can be trusted, in (0, 1); the first of the chosen lines is the best.

    Formula: `Extractive`.
    """
    best_line = chosen[0]
    chosen_texts = {scored_line.line.text for scored_line in chosen}

    def mass(scored_lines: Iterable[ScoredLine]) -> float:
        return sum(
            exp((scored_line.support - best_line.support) / SUPPORT_TEMPERATURE)
            for scored_line in scored_lines
        )

    other_mass = mass(
        scored_line for scored_line in lines if scored_line.line.text not in chosen_texts
    )
    answer_lead = min(
        max(mass(chosen) / (mass(chosen) + other_mass), CERTAIN_SHARE), 1.0 - CERTAIN_SHARE
    )
    covered_share = share(
        weight, frozenset.union(best_line.near, *(scored_line.own for scored_line in chosen))
    )
    return round(
        1.0
        / (
            1.0
            + exp(
                -(
                    log(answer_lead / (1.0 - answer_lead))
                    + 4.0 * covered_share
                    + best_line.kind
                    - 4.0
                )
                / 2.0
            )
        ),
        SUPPORT_DIGITS,
    )


MAX_KNOTS = 17
FITTED_DIGITS = 10


def fit_answer_confidence(raw: ArrayLike, right: ArrayLike) -> Knots:
    """Rising line from raw confidence to the probability that an answer is right.

    X and y of its knots, at most 17.

    Beta calibration, read off at quantiles of the raw confidence. `np.interp(raw, x, y)` applies
    it, flat beyond the ends, so that no confidence is promised more than any that was seen. Held
    out (SQuAD 2.0, articles apart) it came out ahead of isotonic regression.

    Args:
      raw: confidences as the generator gives them, in [0, 1], [Q].
      right: whether each answer was right, [Q].

    Raises:
      ValueError: all right or all wrong; a confidence that is NaN or outside [0, 1].

    Example:
      >>> right = [0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1]
      >>> x, y = fit_answer_confidence([0.1, 0.2, 0.8, 0.9] * 5, right)
      >>> x[0], x[-1], y[0] < 0.3, y[-1] > 0.7
      (0.1, 0.9, True, True)
    """
    calibrator = fit(right, raw, method="beta")
    x = np.unique(
        np.quantile(np.asarray(raw, dtype=np.float64), np.linspace(0.0, 1.0, MAX_KNOTS)).round(
            FITTED_DIGITS
        )
    )
    y = apply(calibrator, x).round(FITTED_DIGITS)
    return tuple(x.tolist()), tuple(y.tolist())


@dataclass(frozen=True, slots=True)
class Extractive:
    """Answers with the passages' best supported sentence, table row or code, or two, verbatim.

    Support of a line is the sum of its own share of the question's content, of what the lines
    beside it and the headings add, of neighbouring words kept together, of the expected kind of
    answer, and of its passage's rank. A word weighs the more, the fewer lines have it. A second
    line comes along where it is nearly as well supported and adds words of the question. Fenced
    code answers where the question asks for it, or no prose has a word of the question. Nothing in
    a passage is an instruction: it is one more sentence.

    confidence = 1 / (1 + exp(−(ln(s / (1 − s)) + 4 c + k − 4) / 2)), which rises with each of
      s: share of the answer among all lines, each counted as exp(support / 0.09): its lead over
      what else is there; c: share of the question covered by the answer, the lines beside it and
      its headings; k: 1 where it has a phrase of the expected kind, 0 where it has none, ½ where
      the question leaves the kind open.
    It ranks answers; `fit_answer_confidence` makes a probability of it.

    name: stable identifier for fingerprints and cache keys; it changes when answers may.
    pack: whose nouns name amounts.
    """

    gives_confidence: ClassVar[bool] = True
    name: str = "extractive-3"
    pack: Pack = field(default=GENERIC, repr=False)

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer to a question from passages, the best first.

        '' and a reason if no line is about it.

        Example:
          >>> passage = Chunk("a#1", "The storm excess is £400. Claims are paid in May.", "a.md")
          >>> Extractive().answer("How much is the storm excess?", [passage]).text
          'The storm excess is £400.'
        """
        parsed_question = parse_question(question, self.pack)
        if not parsed_question.stems:
            return unanswered(Reason("no_content_word"))
        passages_lines = [passage_lines(passage.text, passage.section) for passage in passages]
        stem_weights = weights(parsed_question, passages_lines)
        candidates = tuple(score_lines(parsed_question, stem_weights, passages_lines))
        if not candidates:
            return unanswered(Reason("no_sentence"))
        prose_lines = tuple(
            scored_line
            for scored_line in candidates
            if scored_line.own and not scored_line.line.is_code
        )
        if prose_lines and not _CODE_QUESTION.search(fold_case(question)):
            candidates = prose_lines
        best_line = max(candidates, key=lambda candidate: candidate.support)
        if not best_line.near:
            return unanswered(Reason("no_shared_word"))
        # A second line is close behind the best and adds words of the question.
        runner_up = max(
            (
                candidate
                for candidate in candidates
                if candidate.line.text != best_line.line.text
                and best_line.support - candidate.support <= SECOND_LINE_TRAIL
                and share(stem_weights, candidate.own - best_line.own) >= SECOND_LINE_SHARE
            ),
            key=lambda candidate: candidate.support,
            default=best_line,
        )
        chosen_lines = sorted({best_line, runner_up}, key=lambda candidate: candidate.place)
        # Prose goes on in the line, a table row or code stands on its own.
        answer_text = "".join(
            scored_line.text
            + (" " if scored_line.text.rstrip("\"'”»)]").endswith((".", "!", "?", "…")) else "\n")
            for scored_line, *_ in chosen_lines
        ).strip()
        if (
            clean(answer_text).text != answer_text
        ):  # a line of marks may change what stands above it
            chosen_lines = [best_line]
            answer_text = best_line.line.text
        best_first = sorted(chosen_lines, key=lambda candidate: candidate is not best_line)
        answer_trust = answer_confidence(best_first, candidates, stem_weights)
        cited_passages = tuple(dict.fromkeys(candidate.passage for candidate in chosen_lines))
        return Generation(answer_text, answer_trust, cited_passages)
