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
from raglab.values import Chunk, Generation, unanswered
from raglab.words.answer_terms import content_terms
from raglab.words.languages import LANGUAGES, Reason, expression
from raglab.words.numerals import CURRENCY_CODES, any_of, currencies, tables
from raglab.words.packs import GENERIC, Pack
from raglab.words.text import Piece, fold_case, pieces

Kind = Literal["date", "money", "number", "name"]

_ASKS = LANGUAGES.answers
NEVER = "(?!)"  # an expression that matches nothing
AMOUNTS = tuple(
    sorted(set(re.findall(r"AMOUNTS_[A-Z]+", " ".join(chain.from_iterable(_ASKS.asked.values())))))
)
_ASKS_CODE = re.compile(expression(_ASKS.asked.get("code", [NEVER])))  # of a folded question
_NUMERALS = tables()


def _folded_alternatives(words: Iterable[str]) -> str:
    return f"(?:{any_of(dict.fromkeys(map(fold_case, words)))})"


# Whole names of months alone: `mar` and `dec` stand for other words where no number is beside them.
_MONTH = _folded_alternatives(word for words in LANGUAGES.months for word in words)
_ENDINGS = _folded_alternatives(_NUMERALS.endings)  # 1st, 1er
_OF = f"(?:{'|'.join(LANGUAGES.quantities.of_dates) or NEVER})"
_COUNT = _folded_alternatives([*_NUMERALS.numbers, *_NUMERALS.scales, *LANGUAGES.numerals.counts])
_SCALE = _folded_alternatives(word for word, scale in _NUMERALS.scales.items() if scale > 1000)
_SUFFIX = _folded_alternatives([*_NUMERALS.suffixes, *_NUMERALS.money_suffixes])
_OF_MONEY = f"(?:{'|'.join(LANGUAGES.quantities.of_money) or NEVER})"  # deux millions d'euros
_CODE = _folded_alternatives(CURRENCY_CODES)
_UNIT = _folded_alternatives(
    [*(name for name in currencies() if name.isalpha()), *LANGUAGES.quantities.percent]
)
# in bounds, so that a run of digits takes no hours
_FIGURE = r"(?:\d[\d.,'’ \u00a0\u202f]{0,30}\d|\d)"
_PHRASE: dict[Kind, re.Pattern[str]] = {  # of a folded text, but a name of the text as it stands
    "date": re.compile(
        rf"\b\d{{1,2}}{_ENDINGS}? {_OF}?{_MONTH}\b(?:,? \d{{4}}\b)?"
        rf"|\b{_MONTH}\b(?: \d{{1,2}}{_ENDINGS}?\b(?! ?%))?(?:,? \d{{4}}\b)?"
        rf"|{expression(_ASKS.dates)}"
    ),
    "money": re.compile(
        rf"(?:[£$€¥]|\b{_CODE}) ?{_FIGURE}(?: {_SCALE}\b|{_SUFFIX}\b)?"
        rf"|{_FIGURE}\s?(?:[£$€¥%]|(?:{_SCALE} {_OF_MONEY}?)?{_UNIT}\b)"
    ),
    "number": re.compile(rf"{_FIGURE}|\b{_COUNT}\b"),
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
    nouns = {
        f"AMOUNTS_{code.upper()}": "|".join(words) or NEVER for code, words in pack.amounts.items()
    }
    words = dict.fromkeys(AMOUNTS, NEVER) | nouns | dict(_ASKS.words)
    patterns = (
        (kind, expression(_ASKS.asked.get(kind, [NEVER]), words)) for kind in get_args(Kind)
    )
    return tuple((kind, re.compile(text)) for kind, text in patterns)


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
    plain = fold_case(question).strip()
    return next((kind for kind, pattern in _expected_kinds(pack) if pattern.search(plain)), None)


def phrases(kind: Kind, text: str) -> list[tuple[int, int]]:
    """Where the phrases of a kind stand in the text, in order.

    Example:
      >>> [
      ...     ("Due on 1 May 2025.")[start:end]
      ...     for start, end in phrases("date", "Due on 1 May 2025.")
      ... ]
      ['1 May 2025']
    """
    plain = text if kind == "name" else fold_case(text)
    if len(plain) != len(text):  # a letter of the text is two when folded: places would not agree
        plain = text.lower()
    return [match.span() for match in _PHRASE[kind].finditer(plain)]


@lru_cache(maxsize=16384)
def kind_phrases(kind: Kind, text: str) -> tuple[frozenset[str], ...]:
    """Content words and numbers of each phrase of a kind in the text."""
    return tuple(frozenset(content_terms(text[start:end])) for start, end in phrases(kind, text))


# letters of a word that count: they join claim, claims and claimed, durer, durée and durable
BEGINNING = 5
LONGEST = 64  # different words of a question that count
_CLOSING = "\"'”»)"
_LEADS_ON = ("?", ":")  # a line that ends so is answered by the next one


def introduces_next(text: str) -> bool:
    """Whether a line is answered or listed out by what follows it.

    Example:
      >>> (
      ...     introduces_next("Not covered:"),
      ...     introduces_next("Is hail covered?"),
      ...     introduces_next("No."),
      ... )
      (True, True, False)
    """
    return text.rstrip(_CLOSING).endswith(_LEADS_ON)


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


def line_stems(text: str) -> tuple[str, ...]:
    """Beginnings of a text's content words, and its numbers, in order.

    Example:
      >>> line_stems("The claims of 1,200 claimants")
      ('claim', '1200', 'claim')
    """
    return tuple(term[:BEGINNING] if term.isalpha() else term for term in content_terms(text))


@lru_cache(maxsize=4096)
def parse_question(text: str, pack: Pack = GENERIC) -> Question:
    """Read what a question asks."""
    stems = tuple(dict.fromkeys(line_stems(text)))[:LONGEST]
    return Question(
        stems, frozenset(pairwise(stems)), frozenset(content_terms(text)), expected_kind(text, pack)
    )


@lru_cache(maxsize=8192)
def passage_lines(text: str, section: tuple[str, ...] = ()) -> tuple[PassageLine, ...]:
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
    lines: list[PassageLine] = []
    above = frozenset(stem for head in section for stem in line_stems(head))
    heading = above
    before: frozenset[str] = frozenset()
    lead = last = ""  # the last sentence, and the kind of the piece before
    for piece in pieces(text, titled=not section):
        if piece.kind == "heading":
            heading = frozenset(line_stems(piece.text)) | (
                heading if last == "heading" or not lines else above
            )
            before = frozenset()
        elif piece.kind != "head":
            shown = piece_text(piece)
            cleaned = clean(shown)
            own = line_stems(cleaned.text)
            is_answer = bool(own) and not cleaned.refused and not introduces_next(shown)
            line = PassageLine(
                cleaned.text,
                frozenset(own),
                frozenset(pairwise(own)),
                heading,
                before,
                is_answer,
                piece.kind == "code",
            )
            if piece.kind == "code" and last == "prose":  # the sentence right above introduces it
                both = clean(f"{lead}\n{shown}")
                line = line._replace(text=both.text, is_answer=bool(own) and not both.refused)
                lines[-1] = lines[-1]._replace(
                    text=both.text,
                    is_answer=bool(lines[-1].stems) and not both.refused,
                    is_code=not lines[-1].is_answer,
                )
            lines.append(line)
            if piece.kind == "prose":
                before, lead = line.stems, shown
        last = piece.kind
    return tuple(lines)


def piece_text(piece: Piece) -> str:
    r"""A piece as an answer shows it.

    Of a row its first cell, then the others under the heads of their columns.

    Example:
      >>> piece_text(pieces("| Peril | Excess |\n|---|---|\n| Storm excess | £400 |")[1])
      'Storm excess - Excess: £400'
    """
    if piece.kind != "row":
        return piece.text
    heads = piece.heads or ("",) * len(piece.cells)
    cells = zip(heads[1:], piece.cells[1:], strict=True)
    named = "; ".join(f"{head}: {cell}" if head else cell for head, cell in cells if cell)
    return " - ".join(part for part in (piece.cells[0], named) if part)


# What a line's support is the sum of, in units of the share of the question's content that the line
# itself holds. Fitted (conditional logit on which line holds the answer) to the tune splits of
# SQuAD 2.0 and of the bundled set, and rounded: a fifth more or less of any one moves the share of
# right lines on SQuAD by 0.7 points at most.
BEFORE = 0.5  # share of the question that the line before adds: whom `he` and `this` mean
HEADING = 0.25  # share that the headings add
AFTER = 0.25  # share that the line after adds
PAIRS = 0.25  # share of the question's pairs of neighbouring words that stand together in the line
KIND = 0.25  # whether the line has a date, sum, number or name where the question asks for one
RANK = 0.35  # one over the passage's place: retrieval's own opinion

TEMPERATURE = 0.09  # support that makes a line e times as likely, by the same fit
CLOSE = 0.09  # a second line trails the first by at most this support
ADDED = 0.1  # share of the question that a second line adds at least
CERTAIN = 1e-4  # no share counts as nearer to 0 or 1 than this
DIGITS = 9  # of support and confidence, so that a tie is a tie on every machine


class ScoredLine(NamedTuple):
    """A line of a passage with its support.

    passage: position of the passage. place: of the line among all. own: stems of the question that
    the line holds. near: those that it, the lines beside it or its headings hold. kind: 1 where it
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
    held = Counter(
        stem
        for passage in passages
        for line in passage
        for stem in question.stems
        if stem in line.stems
    )
    n_lines = sum(map(len, passages))
    raw = {stem: log((n_lines + 1) / (held[stem] + 0.5)) for stem in question.stems}
    total = sum(raw.values())
    return {stem: weight / total for stem, weight in raw.items()}


def share(weight: Mapping[str, float], stems: Collection[str]) -> float:
    """Share of the question's content that stems hold, in [0, 1]."""
    return sum(part for stem, part in weight.items() if stem in stems)


def score_lines(
    question: Question, weight: Mapping[str, float], passages: Sequence[Sequence[PassageLine]]
) -> Iterator[ScoredLine]:
    """Every line that can be an answer, with its support, in the order of the passages."""
    start = 0
    for rank, passage in enumerate(passages):
        for at, line in enumerate(passage):
            if not line.is_answer:
                continue
            follows = passage[at + 1].stems if at + 1 < len(passage) else frozenset[str]()
            places = (
                (1.0, line.stems),
                (HEADING, line.heading),
                (BEFORE, line.before),
                (AFTER, follows),
            )
            worth = {
                stem: next((worth for worth, stems in places if stem in stems), 0.0)
                for stem in weight
            }
            kind = 0.5  # of a question that leaves the kind of its answer open
            if question.kind is not None:  # else whether a phrase says something that it lacks
                expected = kind_phrases(question.kind, line.text)
                kind = float(any(not phrase <= question.terms for phrase in expected))
            support = (
                sum(weight[stem] * worth[stem] for stem in weight)
                + PAIRS * len(question.pairs & line.pairs) / max(1, len(question.pairs))
                + (KIND * kind if question.kind else 0.0)
                + RANK / (1 + rank)
            )
            near = frozenset(stem for stem in weight if worth[stem] > 0.0)
            yield ScoredLine(
                line, rank, start + at, near & line.stems, near, kind, round(support, DIGITS)
            )
        start += len(passage)


def answer_confidence(
    chosen: Sequence[ScoredLine], lines: Sequence[ScoredLine], weight: Mapping[str, float]
) -> float:
    """How far an answer can be trusted, in (0, 1); the first of the chosen lines is the best.

    Formula: `Extractive`.
    """
    best = chosen[0]
    texts = {candidate.line.text for candidate in chosen}

    def mass(some: Iterable[ScoredLine]) -> float:
        return sum(exp((candidate.support - best.support) / TEMPERATURE) for candidate in some)

    rest = mass(candidate for candidate in lines if candidate.line.text not in texts)
    lead = min(max(mass(chosen) / (mass(chosen) + rest), CERTAIN), 1.0 - CERTAIN)
    covered = share(weight, frozenset.union(best.near, *(candidate.own for candidate in chosen)))
    return round(
        1.0 / (1.0 + exp(-(log(lead / (1.0 - lead)) + 4.0 * covered + best.kind - 4.0) / 2.0)),
        DIGITS,
    )


KNOTS = 17
FITTED_DIGITS = 10


def fit_answer_confidence(
    raw: ArrayLike, right: ArrayLike
) -> tuple[tuple[float, ...], tuple[float, ...]]:
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
        np.quantile(np.asarray(raw, dtype=np.float64), np.linspace(0.0, 1.0, KNOTS)).round(
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
    a passage is an instruction: whatever it says is one more sentence.

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

        '' and a reason where no line speaks of it.

        Example:
          >>> passage = Chunk("a#1", "The storm excess is £400. Claims are paid in May.", "a.md")
          >>> Extractive().answer("How much is the storm excess?", [passage]).text
          'The storm excess is £400.'
        """
        parsed_question = parse_question(question, self.pack)
        if not parsed_question.stems:
            return unanswered(Reason("no_content_word"))
        read = [passage_lines(passage.text, passage.section) for passage in passages]
        weight = weights(parsed_question, read)
        candidates = tuple(score_lines(parsed_question, weight, read))
        if not candidates:
            return unanswered(Reason("no_sentence"))
        prose = tuple(line for line in candidates if line.own and not line.line.is_code)
        if prose and not _ASKS_CODE.search(fold_case(question)):
            candidates = prose
        best = max(candidates, key=lambda candidate: candidate.support)
        if not best.near:
            return unanswered(Reason("no_shared_word"))
        # A second line is close behind the best and adds words of the question.
        runner_up = max(
            (
                candidate
                for candidate in candidates
                if candidate.line.text != best.line.text
                and best.support - candidate.support <= CLOSE
                and share(weight, candidate.own - best.own) >= ADDED
            ),
            key=lambda candidate: candidate.support,
            default=best,
        )
        chosen = sorted({best, runner_up}, key=lambda candidate: candidate.place)
        # Prose goes on in the line, a table row or code stands on its own.
        text = "".join(
            line.text
            + (" " if line.text.rstrip("\"'”»)]").endswith((".", "!", "?", "…")) else "\n")
            for line, *_ in chosen
        ).strip()
        if clean(text).text != text:  # a line of marks may change what stands above it
            chosen, text = [best], best.line.text
        best_first = sorted(chosen, key=lambda candidate: candidate is not best)
        trust = answer_confidence(best_first, candidates, weight)
        cited = tuple(dict.fromkeys(candidate.passage for candidate in chosen))
        return Generation(text, trust, cited)
