"""Support (shore): how far the chosen hits bear out each claim of an answer (S2.11).

The constants were set by what they mean and checked on SciFact, SQuAD, Natural Questions, PubMedQA,
MT-RAG and the bundled set, where a wide range about each ranks alike; none was chosen by its score
on WiCE or BEGIN.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import nan
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from raglab.models.loaders import Nli
from raglab.words.claim_words import (
    BREAK,
    KEY_LETTERS,
    LITTLE,
    NAME,
    NEGATION,
    NUMBER,
    UNIT,
    WORD,
    Word,
    claim_words,
)
from raglab.words.languages import LANGUAGES
from raglab.words.text import pieces, sentences, split_code
from raglab.words.tokeniser import word_count

SUBSTANCE = frozenset({WORD, NAME, NUMBER, UNIT})
# Keys of words that begin a clause, and of those that do so after a number.
PARTING = frozenset(word[:KEY_LETTERS] for word in LANGUAGES.words.parting)
PARTING_NUMBERS = frozenset(word[:KEY_LETTERS] for word in LANGUAGES.words.parting_numbers)
# Keys of pronouns and auxiliaries: a clause that begins with one leaves what it is about to the
# clause before.
LEANING = frozenset(word[:KEY_LETTERS] for word in LANGUAGES.words.leaning)


class WordPosition(NamedTuple):
    """Where a word stands.

    at: its number in the sentence. sign, negated: see `Word`. clause: counted over all evidence.
    leads: no word of substance is before it in its clause, or the clause begins with a pronoun or
    an auxiliary. counts: a word of substance comes right after it.
    """

    at: int
    sign: int
    negated: bool
    clause: int
    leads: bool
    counts: bool


class EvidenceWords(NamedTuple):
    """Where every word of the evidence stands.

    places: by key and sentence. passage: of each sentence. substance: how many words of substance
    each sentence has. numbered: whether each clause has a number.
    """

    places: dict[str, dict[int, list[WordPosition]]]
    passage: list[int]
    substance: list[int]
    numbered: list[bool]


def evidence_words(texts: Sequence[str], keys: Collection[str] | None = None) -> EvidenceWords:
    """Places of the words of texts, each a passage or a sentence.

    Args:
      keys: of the words that are wanted; None wants all.

    Example:
      >>> evidence_words(["Fire costs £250. Hail costs £400."]).places["400"]
      {1: [WordPosition(at=3, sign=1, negated=False, clause=2, leads=False, counts=False)]}
    """
    places: dict[str, dict[int, list[WordPosition]]] = {}
    passage: list[int] = []
    substance: list[int] = []
    numbered: list[bool] = []
    for number, text in enumerate(texts):
        for words, clauses in _sentence_words(text):
            sentence, first = len(passage), len(numbered)  # clauses are counted over all evidence
            passage.append(number)
            substance.append(sum(word.kind in SUBSTANCE for word in words))
            numbered += [False] * (clauses[-1] + 1 if clauses else 0)
            # the clause of the last word of substance, and the one that was entered last
            led = begun = -1
            leaning = False
            for at, (word, clause) in enumerate(zip(words, clauses, strict=True)):
                key, kind, sign, negated = word
                # The first word that is neither punctuation nor `and` says how its clause begins.
                if clause != begun and kind != BREAK and key not in PARTING:
                    begun, leaning = clause, key in LEANING or kind == NEGATION
                if keys is None or key in keys:
                    counts = at + 1 < len(words) and words[at + 1].kind in SUBSTANCE
                    place = WordPosition(
                        at, sign, negated, first + clause, leaning or led != clause, counts
                    )
                    places.setdefault(key, {}).setdefault(sentence, []).append(place)
                if kind in SUBSTANCE:  # after its own place is noted: a word does not lead itself
                    led = clause
                    if kind == NUMBER:
                        numbered[first + clause] = True
    return EvidenceWords(places, passage, substance, numbered)


def clause_numbers(words: Sequence[Word]) -> list[int]:
    """Number of the clause that each word stands in, from 0.

    Punctuation and `and` or `but` part clauses.

    Example:
      >>> clause_numbers(claim_words("2 vans and 3 cars"))
      [0, 0, 1, 1, 1]
    """
    numbers: list[int] = []
    clause, numbered = 0, False
    for at, (key, kind, _, _) in enumerate(words):
        if kind == BREAK or key in PARTING:
            clause, numbered = clause + 1, False
        elif kind == NUMBER:
            numbered = True
        elif (
            numbered
            and key in PARTING_NUMBERS
            and any(word.kind == NUMBER for word in words[at + 1 : at + 3])
        ):
            clause, numbered = clause + 1, False
        numbers.append(clause)
    return numbers


@lru_cache(maxsize=4096)
def _sentence_words(text: str) -> tuple[tuple[tuple[Word, ...], tuple[int, ...]], ...]:
    """Words of each sentence of a text, and their clauses."""
    return tuple(
        (tuple(words), tuple(clause_numbers(words))) for words in map(claim_words, sentences(text))
    )


# What a word counts: a number or a name that is not there is worse than a verb that is not.
WEIGHTS = {BREAK: 0.0, LITTLE: 0.2, NEGATION: 0.2, UNIT: 0.5, WORD: 1.0, NAME: 1.5, NUMBER: 2.0}
# of its weight a word earns by being in the evidence at all; the rest is for the company it keeps
# there
PRESENT = 0.5
ALONE = 1.0 / 3.0  # of a score that is for the best single sentence
# words of substance; in a longer claim, one sentence, and one word in doubt, count for less
LONG = 8

# What a word's company counts, by where it stands from the word.
SPAN = 4  # words of substance on either side that are a word's company
SLACK = 2  # places by which company may have moved to be as far off as in the claim
CLAUSE = 0.9  # in its clause, but further off than in the claim
BESIDE = 0.85  # in another clause, but no further off, as in a list
# in an earlier clause, where the word's own begins with it: what a sentence is about is often said
# once
HEAD = 0.9
EARLIER = 0.8  # in an earlier clause
# in a later clause: what was said before holds on more often than what comes after held before
LATER = 0.7
# a number's company, in an earlier clause with a number of its own: `covers 2 vans and 3 cars`
SHARED = 0.8
TAKEN = 0.0  # a number's company, in a later clause with a number of its own
OPPOSITE = 0.5  # times that, for company of the opposite meaning: `after` for `before`
NEARBY = 0.3  # in another sentence of the passage, such as its heading, or in one close by
MEANT = 0.6  # in the sentence before, where the word's own clause begins with it or a pronoun
CLOSE = (-2, -1, 1, 2)  # sentences that are close by

# What a word in doubt leaves of a score.
TURNED = 0.4  # a word that the evidence turns the other way
MOST_TURNED = 2  # such words that are counted
MARGIN = 0.1  # share of company by which the other way must be ahead to count fully
TOGETHER = 3  # words of substance within which two turned words may be one negation put differently
UNPROVEN = 0.7  # a number that is not there, or is in other company
PROVEN = 0.3  # share of its company at which a number is proven
TWICE = 0.8  # of its share, a number that the claim says more often than the evidence
UNNAMED = 0.75  # a name that is not there


# What no text for people comes near: a hostile one repeats a word until each is held against each,
# for hours.
MOST_COMPARISONS = 200_000  # of places with places, for one claim
LONGEST_CLAIM = 1_000  # words
MOST_CLAIMS = 500  # of an answer


class _Mate(NamedTuple):
    """A word of another's company.

    pole: its sign, negations apart. offset: places after that word in the claim. apart: it stands
    in another clause of the claim. counted: one of the two is a number, and the claim puts them
    together.
    """

    key: str
    pole: int
    offset: int
    weight: float
    apart: bool
    counted: bool


class _WordMatch(NamedTuple):
    """The place where a word has most of its company.

    share: of its company, in [0, 1]. alike: it is turned there as in the claim. negated: by a
    negation. ahead: of the best place where it is turned as in the claim, in shares. place:
    sentence and number in it.
    """

    share: float
    alike: bool
    negated: bool
    ahead: float
    place: tuple[int, int]


def claim_support(words: Sequence[Word], evidence: EvidenceWords) -> float:
    """Support of a claim, in [0, 1]; 0 for a claim without a word and for no evidence.

    Two thirds are the weighted share of its words that the evidence has, half of it for being there
    and half for the company they keep; a third is the weighted share in the best single sentence,
    less in a long claim, which is often put together from several. That is multiplied down for
    words turned the other way, numbers in other company, and missing names. A claim beyond all
    measure is not read, and one that a text repeats without end is read in part: either counts as
    less supported.

    Args:
      words: of the claim.

    Source: rule S2.11.
    """
    total = sum(WEIGHTS[word.kind] for word in words)
    if not total or len(words) > LONGEST_CLAIM:
        return 0.0
    matches = _word_matches(words, evidence)
    earned = 0.0
    by_sentence: defaultdict[int, float] = defaultdict(float)
    for at, word in enumerate(words):
        weight = WEIGHTS[word.kind]
        if at in matches:
            earned += weight * (PRESENT + (1.0 - PRESENT) * matches[at].share)
        elif word.kind == LITTLE and word.key in evidence.places:
            earned += weight
        if weight:
            for sentence in evidence.places.get(word.key, ()):
                by_sentence[sentence] += weight
    brief = min(1.0, LONG / max(1, sum(word.kind in SUBSTANCE for word in words)))
    alone = ALONE * brief
    held = (1.0 - alone) * earned + alone * max(by_sentence.values(), default=0.0)
    return min(1.0, held / total) * _score_left(words, matches, brief)


def _word_matches(words: Sequence[Word], evidence: EvidenceWords) -> dict[int, _WordMatch]:
    """Best place of each content word and negation the evidence has, by place in the claim."""
    substance = [at for at, word in enumerate(words) if word.kind in SUBSTANCE]
    clauses = clause_numbers(words)
    numbered = {clauses[at] for at in substance if words[at].kind == NUMBER}
    matches: dict[int, _WordMatch] = {}
    used: set[tuple[int, int]] = set()
    n_before = spent = 0  # words of substance before this one; comparisons so far
    for at, word in enumerate(words):
        is_substance = word.kind in SUBSTANCE
        if word.key in evidence.places and (is_substance or word.kind == NEGATION):
            # The words of substance on either side, without the word itself where it is one.
            after = n_before + is_substance
            neighbours = (
                substance[max(0, n_before - SPAN) : n_before] + substance[after : after + SPAN]
            )
            mates = [
                _Mate(
                    key=words[i].key,
                    pole=_pole(words[i]),
                    offset=i - at,
                    weight=WEIGHTS[words[i].kind],
                    apart=clauses[i] != clauses[at],
                    # A number counts the words of its own clause, and those of a clause that has
                    # no number of its own.
                    counted=NUMBER in {word.kind, words[i].kind}
                    and not (clauses[i] != clauses[at] and clauses[i] in numbered),
                )
                for i in neighbours
            ]
            best, spent = _best_place(word, mates, evidence, used, spent)
            if best.share >= 0.0:
                matches[at] = best
                if word.kind == NUMBER:  # said twice by the claim, it should be there twice
                    used.add(best.place)
        n_before += is_substance
    return matches


def _best_place(  # noqa: C901 (one loop, with a way out of it)
    word: Word,
    mates: Sequence[_Mate],
    evidence: EvidenceWords,
    used: set[tuple[int, int]],
    spent: int,
) -> tuple[_WordMatch, int]:
    """The place where a word has most of its company, turned as in the claim if there are several.

    Comparisons spent.

    Args:
      used: places of numbers that an earlier word of the claim has taken.
      spent: comparisons for the words before; past the most of them no further sentence is looked
        at, and a word that none was looked at for has a share of -1.
    """
    whole = sum(mate.weight for mate in mates)
    # The best place where the word is turned the other way, and where as in the claim; offsets of
    # words after it that stand in a clause with the one, and in a sentence with the other.
    best = [_WordMatch(-1.0, bool(way), False, 0.0, (-1, -1)) for way in range(2)]
    denied, stated = set[int](), set[int]()
    # Company that the evidence has at all, with its places by sentence and its passages.
    known = [
        (mate, there, {evidence.passage[sentence] for sentence in there})
        for mate in mates
        if (there := evidence.places.get(mate.key))
    ]
    for sentence, places in evidence.places[word.key].items():
        # Company outside the sentence counts the same for every place in it; `meant` where the
        # place leads its clause.
        beside: list[tuple[_Mate, list[WordPosition]]] = []
        elsewhere = meant = 0.0
        for mate, there, passages in known:
            if sentence in there:
                beside.append((mate, there[sentence]))
            elif evidence.passage[sentence] in passages or any(
                sentence + step in there for step in CLOSE
            ):
                elsewhere += mate.weight * NEARBY
                meant += mate.weight * (MEANT if sentence - 1 in there else NEARBY)
        spent += 1 + len(known) + len(places) * sum(len(mate_places) for _, mate_places in beside)
        if spent > MOST_COMPARISONS:
            break
        for place in places:
            # a negation turns others, and has no sign
            alike = place.sign == word.sign or word.kind == NEGATION
            got = meant if place.leads else elsewhere
            for mate, mate_places in beside:
                worths = [
                    _worth(place, mate_place, mate, word, evidence)
                    * (1.0 if _pole(mate_place) == mate.pole else OPPOSITE)
                    for mate_place in mate_places
                ]
                got += mate.weight * max(worths)  # of several places the one that counts most
                near = any(place.clause == mate_place.clause for mate_place in mate_places)
                if mate.offset > 0 and (alike or (near and not mate.apart)):
                    (stated if alike else denied).add(mate.offset)
            share = got / whole if whole else 1.0
            if (sentence, place.at) in used:
                share *= TWICE
            if share > best[alike].share:
                best[alike] = _WordMatch(share, alike, place.negated, 0.0, (sentence, place.at))
    turned, straight = best
    company = [evidence.places[word.key], *(there for _, there, _ in known)]
    is_next = straight.share >= 0.0 and _is_beside(turned, straight, company, evidence)
    if is_next and min(denied | stated, default=0) in denied - stated:
        # `The waiver covers damage. It does not cover theft.`
        return turned._replace(share=1.0, ahead=MARGIN), spent
    if straight.share >= turned.share:
        return straight, spent
    return turned._replace(ahead=turned.share - max(0.0, straight.share)), spent


def _is_beside(
    turned: _WordMatch,
    straight: _WordMatch,
    company: Sequence[Mapping[int, Sequence[WordPosition]]],
    evidence: EvidenceWords,
) -> bool:
    """Whether a denial stands beside a sentence of its passage, and is of no other matter.

    It has no word of substance but those of the claim.

    Args:
      company: places by sentence of the word and of its company.
    """
    denying, saying = turned.place[0], straight.place[0]
    if abs(denying - saying) != 1 or evidence.passage[denying] != evidence.passage[saying]:
        return False
    return evidence.substance[denying] <= sum(len(there.get(denying, ())) for there in company)


def _worth(
    place: WordPosition, mate_place: WordPosition, mate: _Mate, word: Word, evidence: EvidenceWords
) -> float:
    """What one word of a word's company counts, by where both stand in one sentence, in [0, 1]."""
    near = abs(mate_place.at - place.at - mate.offset) <= SLACK
    if mate_place.clause == place.clause:
        return 1.0 if near else CLAUSE
    if mate.counted:
        number, thing, offset = (
            (place, mate_place, mate.offset)
            if word.kind == NUMBER
            else (mate_place, place, -mate.offset)
        )
        if evidence.numbered[thing.clause]:
            replaced = number.counts and offset == 1  # `3 vans` by `2 vans and 3 cars`
            return SHARED if thing.clause < number.clause and not replaced else TAKEN
    if near:
        return 1.0 if mate.apart else BESIDE
    if mate_place.clause > place.clause:
        return LATER
    return HEAD if place.leads else EARLIER


def _pole(word: Word | WordPosition) -> int:
    """Sign of a word by itself, negations apart."""
    return -word.sign if word.negated else word.sign


def _score_left(words: Sequence[Word], matches: dict[int, _WordMatch], brief: float) -> float:
    """What turned words, unproven numbers and missing names leave of a score, in (0, 1].

    Args:
      brief: share of their effect that they have in a claim of this length.
    """
    factor = 1.0
    for share in _negation_shares(words, matches)[:MOST_TURNED]:
        factor *= 1.0 - (1.0 - TURNED) * brief * share
    shares = [
        matches[at].share if at in matches else 0.0
        for at, word in enumerate(words)
        if word.kind == NUMBER
    ]
    if shares:
        factor *= 1.0 - (1.0 - UNPROVEN) * brief * max(0.0, 1.0 - min(shares) / PROVEN)
    if any(word.kind == NAME and at not in matches for at, word in enumerate(words)):
        factor *= 1.0 - (1.0 - UNNAMED) * brief
    return factor


def _negation_shares(words: Sequence[Word], matches: dict[int, _WordMatch]) -> list[float]:
    """Company shares of words that the evidence turns the other way, as far as they are ahead.

    `No hail cover` and `hail is not covered` negate different words: two such words close together,
    one negated by the claim and one by the evidence, are one negation put differently, and are left
    out.
    """
    turned: list[tuple[int, int]] = []
    rank = 0
    for at, word in enumerate(words):
        rank += word.kind in SUBSTANCE
        if at not in matches or matches[at].alike:
            continue
        if turned:
            last, before = turned[-1]
            ways = {words[i].negated - matches[i].negated for i in (last, at)}
            if ways == {1, -1} and words[last].key != word.key and rank - before <= TOGETHER:
                turned.pop()
                continue
        turned.append((at, rank))
    return [matches[at].share * min(1.0, matches[at].ahead / MARGIN) for at, _ in turned]


Scores = NDArray[np.float64]

WORDS = "words-2"  # counts up with every change of the formula, so that no stored answer mixes two
WINDOW = 3  # sentences of a passage that a model of entailment reads at once
CLAUSE_WORDS = 3  # words that a part between semicolons has at least where it is a claim of its own

_CITED = re.compile(r"(?<!\s)\s*\[(?:\d+(?:\s*[,;–-]\s*\d+)*|[^\[\]]*#[^\[\]]*)\]")
_HEADING = re.compile(r"^[^\S\n]*#{1,6}\s.*$", re.MULTILINE)
_ASKED = re.compile(r"\?[\"'”»)\]\s]*$")


class Support(NamedTuple):
    """How well the claims of an answer are supported.

    score: of the least supported, in [0, 1]; NaN where the answer claims nothing. claim: that
    claim, '' where there is none. by_claim: every claim with its score, in the order of the answer.
    """

    score: float
    claim: str
    by_claim: tuple[tuple[str, float], ...]


class ClaimScorer(Protocol):
    """What scores claims against evidence."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints and cache keys."""

    def scores(self, claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
        """Support of each claim by its list of evidence texts, in [0, 1], float64 [N]."""

    def support(self, answer: str, passages: Sequence[str]) -> Support:
        """`answer_support` by this scorer."""
        return answer_support(answer, passages, self)


@dataclass(frozen=True, slots=True)
class WordSupport(ClaimScorer):
    """The embedded scorer: weighted words in their company, numbers, names, negations.

    No model, no network.
    """

    name: str = field(default=WORDS, init=False)

    def scores(self, claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
        """`support_scores`."""
        return support_scores(claims, evidence)


@dataclass(frozen=True, slots=True)
class NliScorer(ClaimScorer):
    """Entailment by a cross-encoder.

    The probability that the best few adjacent sentences of a text entail the claim.

    model: of `raglab.models.loaders.load_nli`.
    """

    model: Nli

    @property
    def name(self) -> str:
        """Name of the model."""
        return f"nli:{self.model.name}"

    def scores(self, claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
        """Highest probability of entailment over the windows of each claim's evidence, float64 [N].

        0 without any.

        Raises:
          ValueError: claims and evidence differ in number.
        """
        _check_claims(claims, evidence)
        pairs: dict[tuple[str, str], int] = {}
        pair_indices: list[list[int]] = []
        for claim, texts in zip(claims, evidence, strict=True):
            windows = [
                " ".join(parts[start : start + WINDOW])
                for parts in map(sentences, texts if claim.strip() else ())
                for start in range(max(len(parts) > 0, len(parts) - WINDOW + 1))
            ]
            pair_indices.append(
                [pairs.setdefault((window, claim), len(pairs)) for window in windows]
            )
        entailed = self.model.entailment(list(pairs))
        return np.array(
            [max((float(entailed[i]) for i in at), default=0.0) for at in pair_indices], np.float64
        )


def support_scores(claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> Scores:
    """Support of each claim by its evidence, in [0, 1], float64 [N]; 0 where either has no word.

    What counts is the weighted share of the claim's words that the evidence has, and whether each
    stands there in the company it has in the claim; less where the evidence negates what the claim
    states or the reverse, where a number stands in other company, and where a name is missing.
    English and French. A claim's score depends on nothing but the claim and its evidence. It is a
    ranking with a useful middle, not a probability.

    Args:
      claims: a statement each.
      evidence: of each claim, its texts, each a sentence or a passage.

    Raises:
      ValueError: claims and evidence differ in number.

    Source: rule S2.11.

    Example:
      >>> evidence = ["The storm excess is £400. The frost excess is £250. Hail is not covered."]
      >>> claims = [
      ...     "The storm excess is £400.",
      ...     "The storm excess is £250.",
      ...     "Hail is covered.",
      ...     "Bees are covered.",
      ... ]
      >>> support_scores(claims, [evidence] * 4).round(2).tolist()
      [1.0, 0.85, 0.4, 0.3]
    """
    _check_claims(claims, evidence)
    words = [claim_words(claim) for claim in claims]
    of: dict[tuple[str, ...], list[int]] = {}
    for number, texts in enumerate(evidence):
        of.setdefault(tuple(texts), []).append(number)
    scores = np.zeros(len(claims), np.float64)
    for known, numbers in of.items():
        places = evidence_words(known, {word.key for number in numbers for word in words[number]})
        scores[numbers] = [claim_support(words[number], places) for number in numbers]
    return scores


def split_claims(answer: str) -> list[str]:
    """What an answer states, in order.

    Sentences, list items, table rows and lines of code, parts at semicolons apart.

    Citations such as `[2]` are left out; so are headings, questions, and what has no word of
    substance, such as `Yes.`; an answer may so have no claim.

    Example:
      >>> split_claims("Yes. Storm carries £400 [1]; frost carries £250 [2, 3]. Anything else?")
      ['Storm carries £400', 'frost carries £250.']
    """
    statements: list[str] = []
    prose: list[str] = []
    for part in [*split_code(answer.split("\n")), None]:
        if isinstance(part, str):
            prose.append(part)
            continue
        for piece in pieces(_CITED.sub("", _HEADING.sub("", "\n".join(prose)))):
            parts = [clause.strip() for clause in piece.text.split(";")]
            is_whole = any(word_count(clause) < CLAUSE_WORDS for clause in parts)
            if piece.kind != "head":
                statements += [piece.text] if piece.kind == "row" or is_whole else parts
        statements += [line.strip() for line in part.lines] if part else []
        prose = []
    return [
        claim
        for claim in statements
        if not _ASKED.search(claim) and any(w.kind in SUBSTANCE for w in claim_words(claim))
    ]


def answer_support(
    answer: str, passages: Sequence[str], scorer: ClaimScorer | None = None
) -> Support:
    """Support of an answer by passages: that of its least supported claim, the first of several.

    0 past 500 claims.

    Args:
      scorer: None is the embedded one.

    Example:
      >>> answer_support(
      ...     "Storm is covered. Frost is excluded.", ["Storm is covered. Frost is covered."]
      ... ).claim
      'Frost is excluded.'
    """
    claims = split_claims(answer)
    if not claims:
        return Support(nan, "", ())
    if len(claims) > MOST_CLAIMS:
        return Support(0.0, claims[MOST_CLAIMS], ())
    scores = (scorer or WordSupport()).scores(claims, [passages] * len(claims)).tolist()
    weakest = min(range(len(claims)), key=scores.__getitem__)
    return Support(scores[weakest], claims[weakest], tuple(zip(claims, scores, strict=True)))


def _check_claims(claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> None:
    """Stop if claims and evidence are not one to one, or evidence is text, not a list of texts.

    Raises:
      ValueError: they differ in number, or evidence of a claim is a text.
    """
    lists = [texts for texts in evidence if not isinstance(texts, str)]
    if not len(claims) == len(evidence) == len(lists):
        msg = (
            f"evidence must be a list of texts for each of {len(claims)} claims, got {len(lists)}."
        )
        raise ValueError(msg)
