"""Support (shore): how far the chosen hits support each claim of an answer (S2.11).

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

SUBSTANCE_KINDS = frozenset({WORD, NAME, NUMBER, UNIT})
# Keys of words that begin a clause, and of those that do so after a number.
PARTING_KEYS = frozenset(word[:KEY_LETTERS] for word in LANGUAGES.words.parting)
PARTING_AFTER_NUMBERS = frozenset(word[:KEY_LETTERS] for word in LANGUAGES.words.parting_numbers)
# Keys of pronouns and auxiliaries: a clause that begins with one leaves what it is about to the
# clause before.
LEANING_KEYS = frozenset(word[:KEY_LETTERS] for word in LANGUAGES.words.leaning)


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


def evidence_words(
    passage_texts: Sequence[str], selected_keys: Collection[str] | None = None
) -> EvidenceWords:
    """Places of the words of texts, each a passage or a sentence.

    Args:
      selected_keys: of the words that are wanted; None wants all.

    Example:
      >>> evidence_words(["Fire costs £250. Hail costs £400."]).places["400"]
      {1: [WordPosition(at=3, sign=1, negated=False, clause=2, leads=False, counts=False)]}
    """
    places_by_key: dict[str, dict[int, list[WordPosition]]] = {}
    sentence_passages: list[int] = []
    substance_counts: list[int] = []
    has_number: list[bool] = []
    for passage_number, passage_text in enumerate(passage_texts):
        for sentence_words, word_clauses in _sentence_words(passage_text):
            sentence_index, first_clause = (
                len(sentence_passages),
                len(has_number),
            )  # clauses are counted over all evidence
            sentence_passages.append(passage_number)
            substance_counts.append(
                sum(claim_word.kind in SUBSTANCE_KINDS for claim_word in sentence_words)
            )
            has_number += [False] * (word_clauses[-1] + 1 if word_clauses else 0)
            # the clause of the last word of substance, and the one that was entered last
            led_clause = begun_clause = -1
            is_leaning = False
            for word_index, (claim_word, clause) in enumerate(
                zip(sentence_words, word_clauses, strict=True)
            ):
                word_key, word_kind, sign, is_negated = claim_word
                # The first word that is neither punctuation nor `and` says how its clause begins.
                if clause != begun_clause and word_kind != BREAK and word_key not in PARTING_KEYS:
                    begun_clause, is_leaning = (
                        clause,
                        word_key in LEANING_KEYS or word_kind == NEGATION,
                    )
                if selected_keys is None or word_key in selected_keys:
                    precedes_substance = (
                        word_index + 1 < len(sentence_words)
                        and sentence_words[word_index + 1].kind in SUBSTANCE_KINDS
                    )
                    position = WordPosition(
                        word_index,
                        sign,
                        is_negated,
                        first_clause + clause,
                        is_leaning or led_clause != clause,
                        precedes_substance,
                    )
                    places_by_key.setdefault(word_key, {}).setdefault(sentence_index, []).append(
                        position
                    )
                if (
                    word_kind in SUBSTANCE_KINDS
                ):  # after its own place is noted: a word does not lead itself
                    led_clause = clause
                    if word_kind == NUMBER:
                        has_number[first_clause + clause] = True
    return EvidenceWords(places_by_key, sentence_passages, substance_counts, has_number)


def clause_numbers(words: Sequence[Word]) -> list[int]:
    """Number of the clause that each word stands in, from 0.

    Punctuation and words such as `but` part clauses. `and` does so between two numbers alone.

    Example:
      >>> clause_numbers(claim_words("2 vans and 3 cars"))
      [0, 0, 1, 1, 1]
    """
    clause_indices: list[int] = []
    current_clause, has_number = 0, False
    for word_index, (word_key, word_kind, _, _) in enumerate(words):
        if word_kind == BREAK or word_key in PARTING_KEYS:
            current_clause, has_number = current_clause + 1, False
        elif word_kind == NUMBER:
            has_number = True
        elif (
            has_number
            and word_key in PARTING_AFTER_NUMBERS
            and any(
                claim_word.kind == NUMBER for claim_word in words[word_index + 1 : word_index + 3]
            )
        ):
            current_clause, has_number = current_clause + 1, False
        clause_indices.append(current_clause)
    return clause_indices


@lru_cache(maxsize=4096)
def _sentence_words(passage_text: str) -> tuple[tuple[tuple[Word, ...], tuple[int, ...]], ...]:
    """Words of each sentence of a text, and their clauses."""
    return tuple(
        (tuple(sentence_words), tuple(clause_numbers(sentence_words)))
        for sentence_words in map(claim_words, sentences(passage_text))
    )


# What a word counts: a number or a name that is not there is worse than a verb that is not.
KIND_WEIGHTS = {
    BREAK: 0.0,
    LITTLE: 0.2,
    NEGATION: 0.2,
    UNIT: 0.5,
    WORD: 1.0,
    NAME: 1.5,
    NUMBER: 2.0,
}
# of its weight a word earns by being in the evidence at all; the rest is for the company it keeps
# there
PRESENCE_SHARE = 0.5
SINGLE_SENTENCE_SHARE = 1.0 / 3.0  # of a score that is for the best single sentence
# words of substance; in a longer claim, one sentence, and one word in doubt, count for less
LONG_CLAIM_WORDS = 8

# What a word's company counts, by where it stands from the word.
COMPANY_SPAN = 4  # words of substance on either side that are a word's company
PLACE_SLACK = 2  # places by which company may have moved to be as far off as in the claim
SAME_CLAUSE_FAR = 0.9  # in its clause, but further off than in the claim
OTHER_CLAUSE_NEAR = 0.85  # in another clause, but no further off, as in a list
# in an earlier clause, where the word's own begins with it: what a sentence is about is often said
# once
EARLIER_CLAUSE_LED = 0.9
EARLIER_CLAUSE = 0.8  # in an earlier clause
# in a later clause: what was said before holds on more often than what comes after held before
LATER_CLAUSE = 0.7
# a number's company, in an earlier clause with a number of its own: `covers 2 vans and 3 cars`
SHARED_NUMBER = 0.8
TAKEN_NUMBER = 0.0  # a number's company, in a later clause with a number of its own
OPPOSITE_FACTOR = 0.5  # times that, for company of the opposite meaning: `after` for `before`
OTHER_SENTENCE = 0.3  # in another sentence of the passage, such as its heading, or in one close by
SENTENCE_BEFORE = (
    0.6  # in the sentence before, where the word's own clause begins with it or a pronoun
)
CLOSE_SENTENCES = (-2, -1, 1, 2)  # sentences that are close by

# What a word in doubt leaves of a score.
TURNED_FACTOR = 0.4  # a word that the evidence turns the other way
MAX_TURNED_WORDS = 2  # such words that are counted
FULL_TURN_LEAD = 0.1  # share of company by which the other way must be ahead to count fully
SAME_NEGATION_SPAN = (
    3  # words of substance within which two turned words may be one negation put differently
)
UNPROVEN_FACTOR = 0.7  # a number that is not there, or is in other company
PROVEN_SHARE = 0.3  # share of its company at which a number is proven
REPEATED_NUMBER_FACTOR = (
    0.8  # of its share, a number that the claim says more often than the evidence
)
UNNAMED_FACTOR = 0.75  # a name that is not there


# What no text for people comes near: a hostile one repeats a word until each is held against each,
# for hours.
MAX_COMPARISONS = 200_000  # of places with places, for one claim
MAX_CLAIM_WORDS = 1_000  # words
MAX_CLAIMS = 500  # of an answer


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
    total_weight = sum(KIND_WEIGHTS[claim_word.kind] for claim_word in words)
    if not total_weight or len(words) > MAX_CLAIM_WORDS:
        return 0.0
    matches = _word_matches(words, evidence)
    earned_weight = 0.0
    weight_by_sentence: defaultdict[int, float] = defaultdict(float)
    for word_index, claim_word in enumerate(words):
        weight = KIND_WEIGHTS[claim_word.kind]
        if word_index in matches:
            earned_weight += weight * (
                PRESENCE_SHARE + (1.0 - PRESENCE_SHARE) * matches[word_index].share
            )
        elif claim_word.kind == LITTLE and claim_word.key in evidence.places:
            earned_weight += weight
        if weight:
            for sentence_index in evidence.places.get(claim_word.key, ()):
                weight_by_sentence[sentence_index] += weight
    length_factor = min(
        1.0,
        LONG_CLAIM_WORDS / max(1, sum(claim_word.kind in SUBSTANCE_KINDS for claim_word in words)),
    )
    single_share = SINGLE_SENTENCE_SHARE * length_factor
    mixed_weight = (1.0 - single_share) * earned_weight + single_share * max(
        weight_by_sentence.values(), default=0.0
    )
    return min(1.0, mixed_weight / total_weight) * _score_left(words, matches, length_factor)


def _word_matches(words: Sequence[Word], evidence: EvidenceWords) -> dict[int, _WordMatch]:
    """Best place of each content word and negation the evidence has, by place in the claim."""
    substance_indices = [
        word_index
        for word_index, claim_word in enumerate(words)
        if claim_word.kind in SUBSTANCE_KINDS
    ]
    word_clauses = clause_numbers(words)
    numbered_clauses = {
        word_clauses[word_index]
        for word_index in substance_indices
        if words[word_index].kind == NUMBER
    }
    matches: dict[int, _WordMatch] = {}
    used_places: set[tuple[int, int]] = set()
    n_before = n_comparisons = 0  # words of substance before this one; comparisons so far
    for word_index, claim_word in enumerate(words):
        is_substance = claim_word.kind in SUBSTANCE_KINDS
        if claim_word.key in evidence.places and (is_substance or claim_word.kind == NEGATION):
            # The words of substance on either side, without the word itself where it is one.
            n_through = n_before + is_substance
            neighbours = (
                substance_indices[max(0, n_before - COMPANY_SPAN) : n_before]
                + substance_indices[n_through : n_through + COMPANY_SPAN]
            )
            company = [
                _Mate(
                    key=words[mate_index].key,
                    pole=_pole(words[mate_index]),
                    offset=mate_index - word_index,
                    weight=KIND_WEIGHTS[words[mate_index].kind],
                    apart=word_clauses[mate_index] != word_clauses[word_index],
                    # A number counts the words of its own clause, and those of a clause that has
                    # no number of its own.
                    counted=NUMBER in {claim_word.kind, words[mate_index].kind}
                    and not (
                        word_clauses[mate_index] != word_clauses[word_index]
                        and word_clauses[mate_index] in numbered_clauses
                    ),
                )
                for mate_index in neighbours
            ]
            best_match, n_comparisons = _best_place(
                claim_word, company, evidence, used_places, n_comparisons
            )
            if best_match.share >= 0.0:
                matches[word_index] = best_match
                if claim_word.kind == NUMBER:  # said twice by the claim, it should be there twice
                    used_places.add(best_match.place)
        n_before += is_substance
    return matches


def _best_place(  # noqa: C901 (one loop, with a way out of it)
    claim_word: Word,
    company_words: Sequence[_Mate],
    evidence: EvidenceWords,
    used_places: set[tuple[int, int]],
    n_comparisons: int,
) -> tuple[_WordMatch, int]:
    """The place where a word has most of its company, turned as in the claim if there are several.

    Comparisons spent.

    Args:
      used_places: places of numbers that an earlier word of the claim has taken.
      n_comparisons: comparisons for the words before; past the most of them no further sentence is
        read, and a word without any has a share of -1.
    """
    company_weight = sum(company_word.weight for company_word in company_words)
    # The best place where the word is turned the other way, and where as in the claim; offsets of
    # words after it that stand in a clause with the one, and in a sentence with the other.
    best_matches = [
        _WordMatch(-1.0, bool(is_same_way), False, 0.0, (-1, -1)) for is_same_way in range(2)
    ]
    denied_offsets, stated_offsets = set[int](), set[int]()
    # Company that the evidence has at all, with its places by sentence and its passages.
    company_places = [
        (
            company_word,
            sentence_places,
            {evidence.passage[sentence_index] for sentence_index in sentence_places},
        )
        for company_word in company_words
        if (sentence_places := evidence.places.get(company_word.key))
    ]
    for sentence_index, word_places in evidence.places[claim_word.key].items():
        # Company outside the sentence counts the same for every place in it; `meant` where the
        # place leads its clause.
        same_sentence: list[tuple[_Mate, list[WordPosition]]] = []
        other_sentence_weight = led_weight = 0.0
        for company_word, sentence_places, mate_passages in company_places:
            if sentence_index in sentence_places:
                same_sentence.append((company_word, sentence_places[sentence_index]))
            elif evidence.passage[sentence_index] in mate_passages or any(
                sentence_index + sentence_step in sentence_places
                for sentence_step in CLOSE_SENTENCES
            ):
                other_sentence_weight += company_word.weight * OTHER_SENTENCE
                led_weight += company_word.weight * (
                    SENTENCE_BEFORE if sentence_index - 1 in sentence_places else OTHER_SENTENCE
                )
        n_comparisons += (
            1
            + len(company_places)
            + len(word_places) * sum(len(mate_places) for _, mate_places in same_sentence)
        )
        if n_comparisons > MAX_COMPARISONS:
            break
        for word_place in word_places:
            # a negation turns others, and has no sign
            is_alike = word_place.sign == claim_word.sign or claim_word.kind == NEGATION
            found_weight = led_weight if word_place.leads else other_sentence_weight
            for company_word, mate_places in same_sentence:
                place_weights = [
                    _worth(word_place, mate_place, company_word, claim_word, evidence)
                    * (1.0 if _pole(mate_place) == company_word.pole else OPPOSITE_FACTOR)
                    for mate_place in mate_places
                ]
                found_weight += company_word.weight * max(
                    place_weights
                )  # of several places the one that counts most
                is_near = any(word_place.clause == mate_place.clause for mate_place in mate_places)
                if company_word.offset > 0 and (is_alike or (is_near and not company_word.apart)):
                    (stated_offsets if is_alike else denied_offsets).add(company_word.offset)
            company_share = found_weight / company_weight if company_weight else 1.0
            if (sentence_index, word_place.at) in used_places:
                company_share *= REPEATED_NUMBER_FACTOR
            if company_share > best_matches[is_alike].share:
                best_matches[is_alike] = _WordMatch(
                    company_share,
                    is_alike,
                    word_place.negated,
                    0.0,
                    (sentence_index, word_place.at),
                )
    turned_match, straight_match = best_matches
    place_tables = [
        evidence.places[claim_word.key],
        *(sentence_places for _, sentence_places, _ in company_places),
    ]
    is_beside = straight_match.share >= 0.0 and _is_beside(
        turned_match, straight_match, place_tables, evidence
    )
    if (
        is_beside
        and min(denied_offsets | stated_offsets, default=0) in denied_offsets - stated_offsets
    ):
        # `The waiver covers damage. It does not cover theft.`
        return turned_match._replace(share=1.0, ahead=FULL_TURN_LEAD), n_comparisons
    if straight_match.share >= turned_match.share:
        return straight_match, n_comparisons
    return turned_match._replace(
        ahead=turned_match.share - max(0.0, straight_match.share)
    ), n_comparisons


def _is_beside(
    turned_match: _WordMatch,
    straight_match: _WordMatch,
    place_tables: Sequence[Mapping[int, Sequence[WordPosition]]],
    evidence: EvidenceWords,
) -> bool:
    """Whether a denial is next to a sentence of its passage and about the same matter.

    It has no word of substance but those of the claim.

    Args:
      place_tables: places by sentence of the word and of its company.
    """
    denying_sentence, stating_sentence = turned_match.place[0], straight_match.place[0]
    if (
        abs(denying_sentence - stating_sentence) != 1
        or evidence.passage[denying_sentence] != evidence.passage[stating_sentence]
    ):
        return False
    return evidence.substance[denying_sentence] <= sum(
        len(sentence_places.get(denying_sentence, ())) for sentence_places in place_tables
    )


def _worth(
    word_place: WordPosition,
    mate_place: WordPosition,
    company_word: _Mate,
    claim_word: Word,
    evidence: EvidenceWords,
) -> float:
    """What one word of a word's company counts, by where both stand in one sentence, in [0, 1]."""
    is_near = abs(mate_place.at - word_place.at - company_word.offset) <= PLACE_SLACK
    if mate_place.clause == word_place.clause:
        return 1.0 if is_near else SAME_CLAUSE_FAR
    if company_word.counted:
        number_place, counted_place, offset = (
            (word_place, mate_place, company_word.offset)
            if claim_word.kind == NUMBER
            else (mate_place, word_place, -company_word.offset)
        )
        if evidence.numbered[counted_place.clause]:
            is_replaced = number_place.counts and offset == 1  # `3 vans` by `2 vans and 3 cars`
            return (
                SHARED_NUMBER
                if counted_place.clause < number_place.clause and not is_replaced
                else TAKEN_NUMBER
            )
    if is_near:
        return 1.0 if company_word.apart else OTHER_CLAUSE_NEAR
    if mate_place.clause > word_place.clause:
        return LATER_CLAUSE
    return EARLIER_CLAUSE_LED if word_place.leads else EARLIER_CLAUSE


def _pole(word: Word | WordPosition) -> int:
    """Sign of a word by itself, negations apart."""
    return -word.sign if word.negated else word.sign


def _score_left(
    words: Sequence[Word], matches: dict[int, _WordMatch], length_factor: float
) -> float:
    """What turned words, unproven numbers and missing names leave of a score, in (0, 1].

    Args:
      length_factor: share of their effect that they have in a claim of this length.
    """
    remaining_share = 1.0
    for turned_share in _negation_shares(words, matches)[:MAX_TURNED_WORDS]:
        remaining_share *= 1.0 - (1.0 - TURNED_FACTOR) * length_factor * turned_share
    number_shares = [
        matches[word_index].share if word_index in matches else 0.0
        for word_index, claim_word in enumerate(words)
        if claim_word.kind == NUMBER
    ]
    if number_shares:
        remaining_share *= 1.0 - (1.0 - UNPROVEN_FACTOR) * length_factor * max(
            0.0, 1.0 - min(number_shares) / PROVEN_SHARE
        )
    if any(
        claim_word.kind == NAME and word_index not in matches
        for word_index, claim_word in enumerate(words)
    ):
        remaining_share *= 1.0 - (1.0 - UNNAMED_FACTOR) * length_factor
    return remaining_share


def _negation_shares(words: Sequence[Word], matches: dict[int, _WordMatch]) -> list[float]:
    """Company shares of words that the evidence turns the other way, as far as they are ahead.

    `No hail cover` and `hail is not covered` negate different words: two such words close together,
    one negated by the claim and one by the evidence, are one negation put differently, and are left
    out.
    """
    turned_words: list[tuple[int, int]] = []
    substance_rank = 0
    for word_index, claim_word in enumerate(words):
        substance_rank += claim_word.kind in SUBSTANCE_KINDS
        if word_index not in matches or matches[word_index].alike:
            continue
        if turned_words:
            earlier_index, earlier_rank = turned_words[-1]
            negation_differences = {
                words[turned_index].negated - matches[turned_index].negated
                for turned_index in (earlier_index, word_index)
            }
            if (
                negation_differences == {1, -1}
                and words[earlier_index].key != claim_word.key
                and substance_rank - earlier_rank <= SAME_NEGATION_SPAN
            ):
                turned_words.pop()
                continue
        turned_words.append((word_index, substance_rank))
    return [
        matches[word_index].share * min(1.0, matches[word_index].ahead / FULL_TURN_LEAD)
        for word_index, _ in turned_words
    ]


Scores = NDArray[np.float64]

WORD_SCORER = (
    "words-2"  # counts up with every change of the formula, so that no stored answer mixes two
)
NLI_WINDOW = 3  # sentences of a passage that a model of entailment reads at once
MIN_CLAUSE_WORDS = (
    3  # words that a part between semicolons has at least where it is a claim of its own
)

_CITATION = re.compile(r"(?<!\s)\s*\[(?:\d+(?:\s*[,;–-]\s*\d+)*|[^\[\]]*#[^\[\]]*)\]")
_HEADING = re.compile(r"^[^\S\n]*#{1,6}\s.*$", re.MULTILINE)
_QUESTION_END = re.compile(r"\?[\"'”»)\]\s]*$")


class Support(NamedTuple):
    """How well the claims of an answer are supported.

    score: of the least supported, in [0, 1]; NaN where the answer claims nothing. claim: that
    claim, '' for none. by_claim: every claim with its score, in the order of the answer.
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

    name: str = field(default=WORD_SCORER, init=False)

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
        index_by_pair: dict[tuple[str, str], int] = {}
        pair_indices: list[list[int]] = []
        for claim, claim_evidence in zip(claims, evidence, strict=True):
            windows = [
                " ".join(text_sentences[window_start : window_start + NLI_WINDOW])
                for text_sentences in map(sentences, claim_evidence if claim.strip() else ())
                for window_start in range(
                    max(len(text_sentences) > 0, len(text_sentences) - NLI_WINDOW + 1)
                )
            ]
            pair_indices.append(
                [
                    index_by_pair.setdefault((window, claim), len(index_by_pair))
                    for window in windows
                ]
            )
        entailment = self.model.entailment(list(index_by_pair))
        return np.array(
            [
                max((float(entailment[pair_index]) for pair_index in claim_pairs), default=0.0)
                for claim_pairs in pair_indices
            ],
            np.float64,
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
    words_by_claim = [claim_words(claim) for claim in claims]
    claims_by_evidence: dict[tuple[str, ...], list[int]] = {}
    for claim_index, claim_evidence in enumerate(evidence):
        claims_by_evidence.setdefault(tuple(claim_evidence), []).append(claim_index)
    claim_scores = np.zeros(len(claims), np.float64)
    for evidence_texts, claim_indices in claims_by_evidence.items():
        positions = evidence_words(
            evidence_texts,
            {
                claim_word.key
                for claim_index in claim_indices
                for claim_word in words_by_claim[claim_index]
            },
        )
        claim_scores[claim_indices] = [
            claim_support(words_by_claim[claim_index], positions) for claim_index in claim_indices
        ]
    return claim_scores


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
    prose_lines: list[str] = []
    for answer_part in [*split_code(answer.split("\n")), None]:
        if isinstance(answer_part, str):
            prose_lines.append(answer_part)
            continue
        for text_piece in pieces(_CITATION.sub("", _HEADING.sub("", "\n".join(prose_lines)))):
            piece_clauses = [clause.strip() for clause in text_piece.text.split(";")]
            keeps_whole = any(word_count(clause) < MIN_CLAUSE_WORDS for clause in piece_clauses)
            if text_piece.kind != "head":
                statements += (
                    [text_piece.text] if text_piece.kind == "row" or keeps_whole else piece_clauses
                )
        statements += [code_line.strip() for code_line in answer_part.lines] if answer_part else []
        prose_lines = []
    return [
        claim
        for claim in statements
        if not _QUESTION_END.search(claim)
        and any(claim_word.kind in SUBSTANCE_KINDS for claim_word in claim_words(claim))
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
    if len(claims) > MAX_CLAIMS:
        return Support(0.0, claims[MAX_CLAIMS], ())
    claim_scores = (scorer or WordSupport()).scores(claims, [passages] * len(claims)).tolist()
    weakest_index = min(range(len(claims)), key=claim_scores.__getitem__)
    return Support(
        claim_scores[weakest_index],
        claims[weakest_index],
        tuple(zip(claims, claim_scores, strict=True)),
    )


def _check_claims(claims: Sequence[str], evidence: Sequence[Sequence[str]]) -> None:
    """Stop if claims and evidence are not one to one, or evidence is text, not a list of texts.

    Raises:
      ValueError: they differ in number, or evidence of a claim is a text.
    """
    evidence_lists = [
        claim_evidence for claim_evidence in evidence if not isinstance(claim_evidence, str)
    ]
    if not len(claims) == len(evidence) == len(evidence_lists):
        message = (
            f"evidence must be a list of texts for each of {len(claims)} "
            f"claims, got {len(evidence_lists)}."
        )
        raise ValueError(message)
