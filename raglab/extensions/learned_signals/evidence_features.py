"""Evidence features (shore): how far the first passages hold what a question says.

It is measured by words and by token embeddings.

A question that its passages cannot answer mostly looks like one that they can: what differs is a
word that is not there, another name or number in its place, or the opposite of what is said. So the
features compare word with word. Each content word of the question has its best cosine among the
words of a sentence, and is there or is not; the sentence that holds most of the question is looked
at closely. Nothing here is learned, and no feature reads a label.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import log, nan
from typing import Any, NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray

from raglab.answering.extractive import expected_kind, line_stems, phrases
from raglab.words.claim_words import BREAK, LITTLE, NEGATION, Word, claim_words
from raglab.words.text import sentences

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

WORD, NAME, NUMBER = 1, 2, 3  # kinds of content words; 0 is a function word
EXACT = 0.5  # what a word that is there counts, beside its cosine, in the choice of the sentence
FIRST = 20  # letters by which a sentence is found in its passage
_WORD = regex.compile(r"\d+(?:[.,]\d+)*|[\p{L}\p{M}\p{Nl}\p{No}]+")
_ENDS = re.compile(r"[.!?…]['\"”’»)\]]*\s+$")
_LOOK_BACK = 6  # characters before a word in which the end of a sentence is looked for
_SOFT = (0.1, 0.25, 0.5)  # quantiles

GROUPS: Mapping[str, tuple[str, ...]] = {
    "coverage": (
        "mean",
        "least",
        "q10",
        "q25",
        "q50",
        "share",
        "missing",
        "missing_weight",
        "missing_mean",
        "missing_least",
        "missing_most",
        "held_mean",
        "held_least",
        "names_missing",
        "names_held",
        "names_least",
        "numbers_missing",
        "numbers_held",
        "numbers_least",
        "hit",
        "margin",
        "margin_hits",
        "cosine",
        "words",
        "new_words",
        "new_names",
        "new_numbers",
        "asked_words",
    ),
    "focus": (
        "focus",
        "focus_held",
        "focus_place",
        "rest_least",
        "rest_missing",
        "last",
        "last_held",
    ),
    "substitution": (
        "swap_word",
        "swap_name",
        "swap_number",
        "swap_word_weight",
        "swap_name_weight",
        "swap_number_weight",
        "swap_most",
        "swap_least",
        "swap_mean",
    ),
    "order": ("shift_mean", "shift_most", "shift_held"),
    "kind": ("kind_sentence", "kind_sentence_count", "kind_hit", "kind_hit_count"),
    "opposition": (
        "negations",
        "negations_sentence",
        "negations_differ",
        "negations_hit",
        "turned_sentence",
        "turned_hit",
        "turned_hits",
        "poles_turned",
        "poles_missing",
        "poles_both",
        "poles_missing_hits",
    ),
    "retrieval": (
        "cosine_first",
        "cosine_most",
        "cosine_mean",
        "cosine_spread",
        "cosine_lead",
        "l2_lead",
        "rerank_first",
        "rerank_lead",
        "rerank_mean",
        "hits",
    ),
}
FEATURES = tuple(name for names in GROUPS.values() for name in names)


class WordVectors(NamedTuple):
    """Words of a text with their embeddings.

    text: as it stands. keys: what each word is known by, '' of function words. kinds: `WORD`,
    `NAME`, `NUMBER`, or 0. starts, ends: characters. sentence: number of the sentence that each
    stands in. vectors: unit rows, [n, dim].
    """

    text: str
    keys: NDArray[np.str_]
    kinds: IntArray
    starts: IntArray
    ends: IntArray
    sentence: IntArray
    vectors: NDArray[np.float32]

    def part(self, at: IntArray) -> str:
        """Text from the first to the last of some words."""
        return self.text[self.starts[at[0]] : self.ends[at[-1]]]


def word_vectors(text: str, spans: IntArray, tokens: NDArray[np.floating]) -> WordVectors:
    """Words of a text with the mean of the embeddings of their tokens.

    A word without a token is left out.

    Args:
      spans: characters of each token, [n, 2].
      tokens: unit embeddings, [n, dim].

    Example:
      >>> words = word_vectors("Rollo ruled.", np.array([[0, 5], [6, 11], [11, 12]]), np.eye(3))
      >>> words.keys.tolist(), words.kinds.tolist(), words.vectors.tolist()
      (['rollo', 'ruled'], [1, 1], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    """
    matches = list(_WORD.finditer(text))
    starts = np.array([match.start() for match in matches], dtype=np.int64)
    ends = np.array([match.end() for match in matches], dtype=np.int64)
    sums = np.zeros((len(matches), tokens.shape[1]), np.float32)
    if matches and len(spans):
        word = np.searchsorted(starts, spans[:, 0], "right") - 1
        inside = (word >= 0) & (spans[:, 0] < ends[word.clip(0)])
        np.add.at(sums, word[inside], tokens[inside].astype(np.float32))
    norms = np.linalg.norm(sums, axis=1)
    keep = np.flatnonzero(norms > 0.0)
    keys = [next(iter(line_stems(match[0])), "") for match in matches]
    kinds = [_word_kind(key, match, text) for key, match in zip(keys, matches, strict=True)]
    return WordVectors(
        text,
        np.array(keys, dtype=np.str_)[keep],
        np.array(kinds, dtype=np.int64)[keep],
        starts[keep],
        ends[keep],
        (np.searchsorted(_sentence_starts(text), starts[keep], "right") - 1).clip(0),
        sums[keep] / norms[keep, None],
    )


def _word_kind(key: str, match: regex.Match[str], text: str) -> int:
    """Kind of a word; a capital at the beginning of a sentence makes no name."""
    if not key:
        return 0
    if key[0].isdigit():
        return NUMBER
    before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
    begins = not text[: match.start()].strip() or bool(_ENDS.search(before))
    return NAME if match[0][0].isupper() and not begins else WORD


def _sentence_starts(text: str) -> IntArray:
    """First characters of the sentences of a text, in order.

    Of what cannot be found, those of the one before.
    """
    starts, at = [0], 0
    for sentence in sentences(text):
        place = text.find(sentence[:FIRST], at)
        if place >= 0:
            starts.append(place)
            at = place + 1
    return np.unique(starts)


class SentenceMatch(NamedTuple):
    """Match of the question's content words with one sentence.

    hit: position of the passage. at: words of the sentence. best: best cosine of each content word,
    [C]. held: whether its key is there, [C].
    """

    hit: int
    at: IntArray
    best: FloatArray
    held: NDArray[np.bool_]


class QuestionTerms(NamedTuple):
    """Content words of a question: places, keys, kinds, weights that sum to 1, and vectors."""

    at: IntArray
    keys: NDArray[np.str_]
    kinds: IntArray
    weights: FloatArray
    vectors: NDArray[np.float32]


def evidence_features(question: WordVectors, passages: Sequence[WordVectors]) -> dict[str, float]:
    """Features of a question and its first passages by name, all of `GROUPS` but `retrieval`.

    {} without a word.

    Cosines are of word vectors, shares are of the question's weight: a word counts the more, the
    fewer sentences of the passages hold it. What cannot be measured is NaN.

    Args:
      passages: the first hits, the best first.
    """
    terms = _question_terms(question, passages)
    matches = [
        match for hit, passage in enumerate(passages) for match in _matches(terms, passage, hit)
    ]
    if not matches or not len(terms.keys):
        return {}
    scores = np.array(
        [float(terms.weights @ (match.best + EXACT * match.held)) for match in matches]
    )
    first = int(scores.round(6).argmax())  # ties in the last bits go to the earlier sentence
    match, passage = matches[first], passages[matches[first].hit]
    sentence = passage.part(match.at)
    features = {
        **_coverage(question, terms, match, passage),
        **_margins(scores, first, np.array([candidate.hit for candidate in matches])),
        **_focus(terms, match),
        **_substitution(terms, match, passage),
        **_order(terms, match, passage),
        **_kind(question.text, terms, sentence, passage.text),
        **_opposition(question.text, sentence, passage.text, [hit.text for hit in passages]),
    }
    return {name: float(value) for name, value in features.items()}


def _question_terms(question: WordVectors, passages: Sequence[WordVectors]) -> QuestionTerms:
    """Content words of a question, all its words where it has none, with their weights."""
    content = np.flatnonzero(question.keys != "")
    at = content if len(content) else np.arange(len(question.keys))
    lines = [
        set(passage.keys[passage.sentence == n])
        for passage in passages
        for n in np.unique(passage.sentence)
    ]
    held = Counter(key for line in lines for key in line)
    raw = np.array([log((len(lines) + 1) / (held[key] + 0.5)) for key in question.keys[at]])
    return QuestionTerms(
        at, question.keys[at], question.kinds[at], raw / max(raw.sum(), 1e-9), question.vectors[at]
    )


def _matches(terms: QuestionTerms, passage: WordVectors, hit: int) -> list[SentenceMatch]:
    """What every sentence of a passage holds of a question."""
    cosines = (terms.vectors @ passage.vectors.T).astype(np.float64)
    same = terms.keys[:, None] == passage.keys[None, :]
    matches = []
    for number in np.unique(passage.sentence):
        at = np.flatnonzero(passage.sentence == number)
        matches.append(SentenceMatch(hit, at, cosines[:, at].max(axis=1), same[:, at].any(axis=1)))
    return matches


def _quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    """Least value with at least that share of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    place = np.searchsorted(weights[order].cumsum(), share * weights.sum())
    return float(values[order][min(int(place), len(values) - 1)])


def _coverage(
    question: WordVectors, terms: QuestionTerms, match: SentenceMatch, passage: WordVectors
) -> dict[str, Any]:
    """Features of coverage.

    The question's words, names and numbers in the sentence, and its new words.
    """
    best, held, weights = match.best, match.held, terms.weights
    missing, known = best[~held], best[held]
    some_missing = missing if len(missing) else np.ones(1)
    some_known = known if len(known) else np.zeros(1)
    new = _new_words(terms, match, passage)
    features = {
        "mean": weights @ best,
        "least": best.min(),
        "share": weights @ held,
        **{f"q{round(100 * share)}": _quantile(best, weights, share) for share in _SOFT},
        "missing": len(missing),
        "missing_weight": weights[~held].max(initial=0.0),
        "missing_mean": some_missing.mean(),
        "missing_least": missing.min(initial=1.0),
        "missing_most": some_missing.max(),
        "held_mean": some_known.mean(),
        "held_least": some_known.min(),
        "cosine": _mean_vector(question.vectors) @ _mean_vector(passage.vectors[match.at]),
        "words": len(match.at),
        "new_words": new.sum(),
        "asked_words": len(terms.keys),
        "hit": match.hit,
    }
    for name, kind in (("names", NAME), ("numbers", NUMBER)):
        of_kind = terms.kinds == kind
        features |= {
            f"{name}_missing": (of_kind & ~held).sum(),
            f"{name}_held": (of_kind & held).sum(),
            f"{name}_least": best[of_kind & ~held].min(initial=1.0),
            f"new_{name}": (passage.kinds[match.at][new] == kind).sum(),
        }
    return features


def _mean_vector(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    mean: NDArray[np.float32] = vectors.mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-9)


def _new_words(
    terms: QuestionTerms, match: SentenceMatch, passage: WordVectors
) -> NDArray[np.bool_]:
    """Which words of the sentence are content that the question does not say, one for each word."""
    keys = passage.keys[match.at]
    return (keys != "") & ~np.isin(keys, terms.keys)


def _margins(scores: FloatArray, first: int, hits: IntArray) -> dict[str, Any]:
    """Lead of the sentence over the next one, and over the best of other passages.

    1 where there is none.
    """
    rivals = {"margin": np.delete(scores, first), "margin_hits": scores[hits != hits[first]]}
    return {name: scores[first] - of.max() if len(of) else 1.0 for name, of in rivals.items()}


def _focus(terms: QuestionTerms, match: SentenceMatch) -> dict[str, Any]:
    """The first content word, mostly what is asked for, apart from the rest, and the last one."""
    rest_weight = terms.weights[1:].sum()
    return {
        "focus": match.best[0],
        "focus_held": match.held[0],
        "focus_place": terms.at[0],
        "rest_least": match.best[1:].min(initial=1.0),
        "rest_missing": terms.weights[1:] @ ~match.held[1:] / rest_weight
        if rest_weight > 0.0
        else 0.0,
        "last": match.best[-1],
        "last_held": match.held[-1],
    }


def _substitution(
    terms: QuestionTerms, match: SentenceMatch, passage: WordVectors
) -> dict[str, Any]:
    """How near the question's missing words are to new words of the sentence.

    Another name in the place of a name.
    """
    new = _new_words(terms, match, passage)
    cosines = (terms.vectors @ passage.vectors[match.at].T).astype(np.float64)
    kinds = passage.kinds[match.at]
    features = {}
    for name, kind in (("word", WORD), ("name", NAME), ("number", NUMBER)):
        rows, columns = (terms.kinds == kind) & ~match.held, new & (kinds == kind)
        pairs = cosines[np.ix_(rows, columns)]
        best = pairs.max(axis=1) if pairs.size else np.zeros(0)
        features[f"swap_{name}"] = best.max(initial=0.0)
        features[f"swap_{name}_weight"] = terms.weights[rows] @ best if len(best) else 0.0
    pairs = cosines[np.ix_(~match.held, new)]
    best = pairs.max(axis=1) if pairs.size else np.full(1, np.nan)
    weights = terms.weights[~match.held] if pairs.size else np.ones(1)
    mean = weights @ best / max(weights.sum(), 1e-9)
    return features | {"swap_most": best.max(), "swap_least": best.min(), "swap_mean": mean}


def _order(terms: QuestionTerms, match: SentenceMatch, passage: WordVectors) -> dict[str, Any]:
    """How much further apart neighbour words are in sentence than in question, log(1 + words)."""
    if len(terms.at) < 2:
        return {"shift_mean": 0.0, "shift_most": 0.0, "shift_held": nan}
    places = (terms.vectors @ passage.vectors[match.at].T).round(5).argmax(axis=1)
    shift = np.log1p(np.abs(np.abs(np.diff(places)) - np.diff(terms.at)))
    both = match.held[1:] & match.held[:-1]
    held = shift[both].mean() if both.any() else nan
    return {"shift_mean": shift.mean(), "shift_most": shift.max(), "shift_held": held}


def _kind(question: str, terms: QuestionTerms, sentence: str, passage: str) -> dict[str, Any]:
    """Whether there is a phrase of the kind that the question asks for and does not say.

    NaN where it is open.
    """
    kind, known = expected_kind(question), frozenset(terms.keys.tolist())
    features = {}
    for name, text in (("sentence", sentence), ("hit", passage)):
        count = nan
        if kind is not None:
            stems = (line_stems(text[start:end]) for start, end in phrases(kind, text))
            count = sum(not known.issuperset(some) for some in stems)
        features[f"kind_{name}_count"] = count
        features[f"kind_{name}"] = np.minimum(count, 1.0)
    return features


@lru_cache(maxsize=8192)
def _claim_words(text: str) -> tuple[Word, ...]:
    return tuple(claim_words(text))


def _carries_sign(word: Word) -> bool:
    return bool(word.key) and word.kind not in {BREAK, LITTLE, NEGATION}


def _opposition(
    question: str, sentence: str, passage: str, passages: Sequence[str]
) -> dict[str, Any]:
    """Features of contradiction.

    Negations and antonyms of the question in sentence, passage or all passages.
    """
    words = claim_words(question)
    texts = {"sentence": [sentence], "hit": [passage], "hits": passages}
    read = {name: [w for text in of for w in _claim_words(text)] for name, of in texts.items()}
    # signs that each word stands with, by key
    signs: dict[str, dict[str, set[int]]] = {name: {} for name in read}
    for name, some in read.items():
        for word in filter(_carries_sign, some):
            signs[name].setdefault(word.key, set()).add(word.sign)

    def turned(name: str, wanted: Mapping[str, int]) -> int:
        return sum(sign not in signs[name].get(key, {sign}) for key, sign in wanted.items())

    poles = {word.key: word.sign for word in words if word.key.startswith("~")}
    wanted = {word.key: word.sign for word in filter(_carries_sign, words)}
    negations, there = (
        sum(word.kind == NEGATION for word in some) for some in (words, read["sentence"])
    )
    return {
        "negations": negations,
        "negations_sentence": there,
        "negations_differ": abs(negations - there),
        "negations_hit": any(word.kind == NEGATION for word in read["hit"]),
        "poles_turned": turned("sentence", poles),
        "poles_missing": len(poles.keys() - signs["sentence"].keys()),
        "poles_both": sum(-sign in signs["hit"].get(key, ()) for key, sign in poles.items()),
        "poles_missing_hits": len(poles.keys() - signs["hits"].keys()),
        **{f"turned_{name}": turned(name, wanted) for name in signs},
    }


def retrieval_features(
    cosine: Sequence[float], l2: Sequence[float], s_rerank: Sequence[float]
) -> dict[str, float]:
    """What the scores of the first hits say, the group `retrieval`; NaN where a score is missing.

    Args:
      cosine, l2, s_rerank: of the first hits in the arm's order, [k] each.

    Example:
      >>> features = retrieval_features([0.5, 0.75], [1.0, 0.5], [0.75, 0.25])
      >>> (
      ...     features["cosine_most"],
      ...     features["cosine_lead"],
      ...     features["l2_lead"],
      ...     features["rerank_lead"],
      ... )
      (0.75, 0.25, 0.5, 0.5)
    """
    scores = [np.array(some or (nan,), dtype=np.float64) for some in (cosine, l2, s_rerank)]
    by_cosine, near, reranked = np.sort(scores[0])[::-1], np.sort(scores[1]), scores[2]
    features = {
        "cosine_first": scores[0][0],
        "cosine_most": by_cosine[0],
        "cosine_mean": by_cosine.mean(),
        "cosine_spread": by_cosine.std(),
        "cosine_lead": by_cosine[0] - [*by_cosine, nan][1],
        "l2_lead": [*near, nan][1] - near[0],
        "rerank_first": reranked[0],
        "rerank_lead": reranked[0] - [*reranked, nan][1],
        "rerank_mean": reranked.mean(),
        "hits": len(cosine),
    }
    return {name: float(value) for name, value in features.items()}
