"""How far the words of a claim are carried by evidence: there, in their company, and turned the same way.

The constants were set by what they mean and checked on SciFact, SQuAD, Natural Questions, PubMedQA, MT-RAG and the
broker set, where a wide range about each ranks alike; none was chosen by its score on WiCE or BEGIN.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from raglab.answering._evidence import SUBSTANCE, Evidence, Place, clauses_of
from raglab.answering._wording import BREAK, LITTLE, NAME, NEGATION, NUMBER, UNIT, WORD, Word

# What a word counts: a number or a name that is not there is worse than a verb that is not.
WEIGHTS = {BREAK: 0.0, LITTLE: 0.2, NEGATION: 0.2, UNIT: 0.5, WORD: 1.0, NAME: 1.5, NUMBER: 2.0}
PRESENT = 0.5  # of its weight a word earns by being in the evidence at all; the rest is for the company it keeps there
ALONE = 1.0 / 3.0  # of a score that is for the best single sentence
LONG = 8  # words of substance; in a longer claim, one sentence, and one word in doubt, count for less

# What a word's company counts, by where it stands from the word.
SPAN = 4  # words of substance on either side that are a word's company
SLACK = 2  # places by which company may have moved to be as far off as in the claim
CLAUSE = 0.9  # in its clause, but further off than in the claim
BESIDE = 0.85  # in another clause, but no further off, as in a list
HEAD = 0.9  # in an earlier clause, where the word's own begins with it: what a sentence is about is often said once
EARLIER = 0.8  # in an earlier clause
LATER = 0.7  # in a later clause: what was said before holds on more often than what comes after held before
SHARED = 0.8  # a number's company, in an earlier clause with a number of its own: `covers 2 vans and 3 cars`
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


class _Mate(NamedTuple):
    """A word of another's company.

    pole: its sign, negations apart. offset: places after that word in the claim. apart: it stands in another clause of
    the claim. counted: one of the two is a number, and the claim puts them together.
    """

    key: str
    pole: int
    offset: int
    weight: float
    apart: bool
    counted: bool


class _Found(NamedTuple):
    """The place where a word has most of its company.

    share: of its company, in [0, 1]. alike: it is turned there as in the claim. negated: by a negation. ahead: of the
    best place where it is turned as in the claim, in shares. place: sentence and number in it.
    """

    share: float
    alike: bool
    negated: bool
    ahead: float
    place: tuple[int, int]


def carried(words: Sequence[Word], evidence: Evidence) -> float:
    """Support of a claim, in [0, 1]; 0 for a claim without a word and for no evidence.

    Two thirds are the weighted share of its words that the evidence has, half of it for being there and half for the
    company they keep; a third is the weighted share in the best single sentence, less in a long claim, which is often
    put together from several. That is multiplied down for words turned the other way, numbers in other company, and
    missing names.

    Args:
      words: of the claim.

    Source: rule S2.11.
    """
    total = sum(WEIGHTS[word.kind] for word in words)
    if not total:
        return 0.0
    found = _found(words, evidence)
    earned = 0.0
    by_sentence: defaultdict[int, float] = defaultdict(float)
    for at, word in enumerate(words):
        weight = WEIGHTS[word.kind]
        if at in found:
            earned += weight * (PRESENT + (1.0 - PRESENT) * found[at].share)
        elif word.kind == LITTLE and word.key in evidence.places:
            earned += weight
        if weight:
            for sentence in evidence.places.get(word.key, ()):
                by_sentence[sentence] += weight
    brief = min(1.0, LONG / max(1, sum(word.kind in SUBSTANCE for word in words)))
    alone = ALONE * brief
    held = (1.0 - alone) * earned + alone * max(by_sentence.values(), default=0.0)
    return min(1.0, held / total) * _left(words, found, brief)


def _found(words: Sequence[Word], evidence: Evidence) -> dict[int, _Found]:
    """Best place of each word of substance and each negation that the evidence has, by place in the claim."""
    substance = [at for at, word in enumerate(words) if word.kind in SUBSTANCE]
    clauses = clauses_of(words)
    numbered = {clauses[at] for at in substance if words[at].kind == NUMBER}
    found: dict[int, _Found] = {}
    used: set[tuple[int, int]] = set()
    rank = 0
    for at, word in enumerate(words):
        own = int(word.kind in SUBSTANCE)
        if word.key in evidence.places and (own or word.kind == NEGATION):
            company = substance[max(0, rank - SPAN) : rank] + substance[rank + own : rank + own + SPAN]
            mates = [
                _Mate(
                    words[i].key,
                    _pole(words[i]),
                    i - at,
                    WEIGHTS[words[i].kind],
                    clauses[i] != clauses[at],
                    NUMBER in {word.kind, words[i].kind} and (clauses[i] == clauses[at] or clauses[i] not in numbered),
                )
                for i in company
            ]
            found[at] = _best(word, mates, evidence, used)
            if word.kind == NUMBER:
                used.add(found[at].place)
        rank += own
    return found


def _best(word: Word, mates: Sequence[_Mate], evidence: Evidence, used: set[tuple[int, int]]) -> _Found:
    """The place where a word has most of its company, turned as in the claim if there are several.

    Args:
      used: places of numbers that an earlier word of the claim has taken.
    """
    whole = sum(mate.weight for mate in mates)
    best, straight = _Found(-1.0, False, False, 0.0, (-1, -1)), 0.0
    known = [
        (mate, there, {evidence.passage[sentence] for sentence in there})
        for mate in mates
        if (there := evidence.places.get(mate.key))
    ]
    for sentence, places in evidence.places[word.key].items():
        beside: list[tuple[_Mate, list[Place]]] = []
        elsewhere = meant = 0.0
        for mate, there, passages in known:
            if sentence in there:
                beside.append((mate, there[sentence]))
            elif evidence.passage[sentence] in passages or any(sentence + step in there for step in CLOSE):
                elsewhere += mate.weight * NEARBY
                meant += mate.weight * (MEANT if sentence - 1 in there else NEARBY)
        for place in places:
            got = meant if place.leads else elsewhere
            for mate, others in beside:
                got += mate.weight * max(
                    [
                        _worth(place, other, mate, word, evidence) * (1.0 if _pole(other) == mate.pole else OPPOSITE)
                        for other in others
                    ]
                )
            share = got / whole if whole else 1.0
            if (sentence, place.at) in used:
                share *= TWICE
            alike = place.sign == word.sign or word.kind == NEGATION
            if alike:
                straight = max(straight, share)
            if (share, alike) > (best.share, best.alike):
                best = _Found(share, alike, place.negated, 0.0, (sentence, place.at))
    return best._replace(ahead=best.share - straight)


def _worth(place: Place, other: Place, mate: _Mate, word: Word, evidence: Evidence) -> float:
    """What a word of its company counts for a word, by where both stand in one sentence, in [0, 1]."""
    near = abs(other.at - place.at - mate.offset) <= SLACK
    if other.clause == place.clause:
        return 1.0 if near else CLAUSE
    if mate.counted:
        number, thing, offset = (place, other, mate.offset) if word.kind == NUMBER else (other, place, -mate.offset)
        if evidence.numbered[thing.clause]:
            replaced = number.counts and offset == 1  # `3 vans` by `2 vans and 3 cars`
            return SHARED if thing.clause < number.clause and not replaced else TAKEN
    if near:
        return 1.0 if mate.apart else BESIDE
    if other.clause > place.clause:
        return LATER
    return HEAD if place.leads else EARLIER


def _pole(word: Word | Place) -> int:
    """Sign of a word by itself, negations apart."""
    return -word.sign if word.negated else word.sign


def _left(words: Sequence[Word], found: dict[int, _Found], brief: float) -> float:
    """What turned words, unproven numbers and missing names leave of a score, in (0, 1].

    Args:
      brief: share of their effect that they have in a claim of this length.
    """
    left = 1.0
    for share in _turned(words, found)[:MOST_TURNED]:
        left *= 1.0 - (1.0 - TURNED) * brief * share
    shares = [found[at].share if at in found else 0.0 for at, word in enumerate(words) if word.kind == NUMBER]
    if shares:
        left *= 1.0 - (1.0 - UNPROVEN) * brief * max(0.0, 1.0 - min(shares) / PROVEN)
    if any(word.kind == NAME and at not in found for at, word in enumerate(words)):
        left *= 1.0 - (1.0 - UNNAMED) * brief
    return left


def _turned(words: Sequence[Word], found: dict[int, _Found]) -> list[float]:
    """Shares of company of the words that the evidence turns the other way, as far as they are ahead.

    `No flood cover` and `flood is not covered` negate different words: two such words close together, one negated by
    the claim and one by the evidence, are one negation put differently, and are left out.
    """
    turned: list[tuple[int, int]] = []
    rank = 0
    for at, word in enumerate(words):
        rank += word.kind in SUBSTANCE
        if at not in found or found[at].alike:
            continue
        if turned:
            last, before = turned[-1]
            ways = {words[i].negated - found[i].negated for i in (last, at)}
            if ways == {1, -1} and words[last].key != word.key and rank - before <= TOGETHER:
                turned.pop()
                continue
        turned.append((at, rank))
    return [found[at].share * min(1.0, found[at].ahead / MARGIN) for at, _ in turned]
