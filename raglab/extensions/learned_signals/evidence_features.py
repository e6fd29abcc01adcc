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
from raglab.values import BoolArray, FloatArray, IntArray, VectorArray
from raglab.words.claim_words import BREAK, LITTLE, NEGATION, Word, claim_words
from raglab.words.text import sentences

WORD_KIND, NAME_KIND, NUMBER_KIND = 1, 2, 3  # kinds of content words; 0 is a function word
EXACT_BONUS = (
    0.5  # what a word that is there counts, beside its cosine, in the choice of the sentence
)
SENTENCE_PREFIX = 20  # letters by which a sentence is found in its passage
_WORD_PATTERN = regex.compile(r"\d+(?:[.,]\d+)*|[\p{L}\p{M}\p{Nl}\p{No}]+")
_SENTENCE_END = re.compile(r"[.!?…]['\"”’»)\]]*\s+$")
_LOOK_BACK = 6  # characters before a word in which the end of a sentence is looked for
_COVERAGE_QUANTILES = (0.1, 0.25, 0.5)  # quantiles

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

    text: as it stands. keys: what each word is known by, '' of function words. kinds: `WORD_KIND`,
    `NAME_KIND`, `NUMBER_KIND`, or 0. starts, ends: characters. sentence: number of the sentence
    that each stands in. vectors: unit rows, [n, dim].
    """

    text: str
    keys: NDArray[np.str_]
    kinds: IntArray
    starts: IntArray
    ends: IntArray
    sentence: IntArray
    vectors: VectorArray

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
    word_matches = list(_WORD_PATTERN.finditer(text))
    word_starts = np.array([word_match.start() for word_match in word_matches], dtype=np.int64)
    word_ends = np.array([word_match.end() for word_match in word_matches], dtype=np.int64)
    vector_sums = np.zeros((len(word_matches), tokens.shape[1]), np.float32)
    if word_matches and len(spans):
        token_words = np.searchsorted(word_starts, spans[:, 0], "right") - 1
        is_inside = (token_words >= 0) & (spans[:, 0] < word_ends[token_words.clip(0)])
        np.add.at(vector_sums, token_words[is_inside], tokens[is_inside].astype(np.float32))
    vector_norms = np.linalg.norm(vector_sums, axis=1)
    kept_words = np.flatnonzero(vector_norms > 0.0)
    word_keys = [next(iter(line_stems(word_match[0])), "") for word_match in word_matches]
    word_kinds = [
        _word_kind(word_key, word_match, text)
        for word_key, word_match in zip(word_keys, word_matches, strict=True)
    ]
    return WordVectors(
        text,
        np.array(word_keys, dtype=np.str_)[kept_words],
        np.array(word_kinds, dtype=np.int64)[kept_words],
        word_starts[kept_words],
        word_ends[kept_words],
        (np.searchsorted(_sentence_starts(text), word_starts[kept_words], "right") - 1).clip(0),
        vector_sums[kept_words] / vector_norms[kept_words, None],
    )


def _word_kind(key: str, match: regex.Match[str], text: str) -> int:
    """Kind of a word; a capital at the beginning of a sentence makes no name."""
    if not key:
        return 0
    if key[0].isdigit():
        return NUMBER_KIND
    text_before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
    is_beginning = not text[: match.start()].strip() or bool(_SENTENCE_END.search(text_before))
    return NAME_KIND if match[0][0].isupper() and not is_beginning else WORD_KIND


def _sentence_starts(text: str) -> IntArray:
    """First characters of the sentences of a text, in order.

    Of what cannot be found, those of the one before.
    """
    sentence_starts = [0]
    search_start = 0
    for sentence in sentences(text):
        sentence_start = text.find(sentence[:SENTENCE_PREFIX], search_start)
        if sentence_start >= 0:
            sentence_starts.append(sentence_start)
            search_start = sentence_start + 1
    return np.unique(sentence_starts)


class SentenceMatch(NamedTuple):
    """Match of the question's content words with one sentence.

    hit: position of the passage. at: words of the sentence. best: best cosine of each content word,
    [C]. held: whether its key is there, [C].
    """

    hit: int
    at: IntArray
    best: FloatArray
    held: BoolArray


class QuestionTerms(NamedTuple):
    """Content words of a question: places, keys, kinds, weights that sum to 1, and vectors."""

    at: IntArray
    keys: NDArray[np.str_]
    kinds: IntArray
    weights: FloatArray
    vectors: VectorArray


def evidence_features(question: WordVectors, passages: Sequence[WordVectors]) -> dict[str, float]:
    """Features of a question and its first passages by name, all of `GROUPS` but `retrieval`.

    {} without a word.

    Cosines are of word vectors, shares are of the question's weight: a word counts the more, the
    fewer sentences of the passages hold it. What cannot be measured is NaN.

    Args:
      passages: the first hits, the best first.
    """
    question_terms = _question_terms(question, passages)
    sentence_matches = [
        best_match
        for hit_number, best_passage in enumerate(passages)
        for best_match in _matches(question_terms, best_passage, hit_number)
    ]
    if not sentence_matches or not len(question_terms.keys):
        return {}
    match_scores = np.array(
        [
            float(question_terms.weights @ (best_match.best + EXACT_BONUS * best_match.held))
            for best_match in sentence_matches
        ]
    )
    best_index = int(
        match_scores.round(6).argmax()
    )  # ties in the last bits go to the earlier sentence
    best_match = sentence_matches[best_index]
    best_passage = passages[sentence_matches[best_index].hit]
    sentence_text = best_passage.part(best_match.at)
    feature_values = {
        **_coverage(question, question_terms, best_match, best_passage),
        **_margins(
            match_scores, best_index, np.array([candidate.hit for candidate in sentence_matches])
        ),
        **_focus(question_terms, best_match),
        **_substitution(question_terms, best_match, best_passage),
        **_order(question_terms, best_match, best_passage),
        **_kind(question.text, question_terms, sentence_text, best_passage.text),
        **_opposition(
            question.text,
            sentence_text,
            best_passage.text,
            [hit_number.text for hit_number in passages],
        ),
    }
    return {
        feature_name: float(feature_value) for feature_name, feature_value in feature_values.items()
    }


def _question_terms(question: WordVectors, passages: Sequence[WordVectors]) -> QuestionTerms:
    """Content words of a question, all its words where it has none, with their weights."""
    content_words = np.flatnonzero(question.keys != "")
    term_positions = content_words if len(content_words) else np.arange(len(question.keys))
    sentence_keys = [
        set(passage.keys[passage.sentence == sentence_number])
        for passage in passages
        for sentence_number in np.unique(passage.sentence)
    ]
    sentence_counts = Counter(
        word_key for keys_of_sentence in sentence_keys for word_key in keys_of_sentence
    )
    raw_weights = np.array(
        [
            log((len(sentence_keys) + 1) / (sentence_counts[word_key] + 0.5))
            for word_key in question.keys[term_positions]
        ]
    )
    return QuestionTerms(
        term_positions,
        question.keys[term_positions],
        question.kinds[term_positions],
        raw_weights / max(raw_weights.sum(), 1e-9),
        question.vectors[term_positions],
    )


def _matches(terms: QuestionTerms, passage: WordVectors, hit_number: int) -> list[SentenceMatch]:
    """What every sentence of a passage holds of a question."""
    cosines = (terms.vectors @ passage.vectors.T).astype(np.float64)
    is_same_key = terms.keys[:, None] == passage.keys[None, :]
    sentence_matches = []
    for sentence_number in np.unique(passage.sentence):
        words = np.flatnonzero(passage.sentence == sentence_number)
        sentence_matches.append(
            SentenceMatch(
                hit_number,
                words,
                cosines[:, words].max(axis=1),
                is_same_key[:, words].any(axis=1),
            )
        )
    return sentence_matches


def _quantile(values: FloatArray, weights: FloatArray, weight_share: float) -> float:
    """Least value with at least that share of the weight at or below it."""
    value_order = np.argsort(values, kind="stable")
    quantile_index = np.searchsorted(weights[value_order].cumsum(), weight_share * weights.sum())
    return float(values[value_order][min(int(quantile_index), len(values) - 1)])


def _coverage(
    question: WordVectors, terms: QuestionTerms, match: SentenceMatch, passage: WordVectors
) -> dict[str, Any]:
    """Features of coverage.

    The question's words, names and numbers in the sentence, and its new words.
    """
    best_cosines, is_held, term_weights = match.best, match.held, terms.weights
    missing_cosines = best_cosines[~is_held]
    held_cosines = best_cosines[is_held]
    missing_or_one = missing_cosines if len(missing_cosines) else np.ones(1)
    held_or_zero = held_cosines if len(held_cosines) else np.zeros(1)
    is_new = _new_words(terms, match, passage)
    feature_values = {
        "mean": term_weights @ best_cosines,
        "least": best_cosines.min(),
        "share": term_weights @ is_held,
        **{
            f"q{round(100 * quantile)}": _quantile(best_cosines, term_weights, quantile)
            for quantile in _COVERAGE_QUANTILES
        },
        "missing": len(missing_cosines),
        "missing_weight": term_weights[~is_held].max(initial=0.0),
        "missing_mean": missing_or_one.mean(),
        "missing_least": missing_cosines.min(initial=1.0),
        "missing_most": missing_or_one.max(),
        "held_mean": held_or_zero.mean(),
        "held_least": held_or_zero.min(),
        "cosine": _mean_vector(question.vectors) @ _mean_vector(passage.vectors[match.at]),
        "words": len(match.at),
        "new_words": is_new.sum(),
        "asked_words": len(terms.keys),
        "hit": match.hit,
    }
    for kind_name, word_kind in (("names", NAME_KIND), ("numbers", NUMBER_KIND)):
        is_of_kind = terms.kinds == word_kind
        feature_values |= {
            f"{kind_name}_missing": (is_of_kind & ~is_held).sum(),
            f"{kind_name}_held": (is_of_kind & is_held).sum(),
            f"{kind_name}_least": best_cosines[is_of_kind & ~is_held].min(initial=1.0),
            f"new_{kind_name}": (passage.kinds[match.at][is_new] == word_kind).sum(),
        }
    return feature_values


def _mean_vector(vectors: VectorArray) -> VectorArray:
    mean_vector: VectorArray = vectors.mean(axis=0)
    return mean_vector / max(float(np.linalg.norm(mean_vector)), 1e-9)


def _new_words(terms: QuestionTerms, match: SentenceMatch, passage: WordVectors) -> BoolArray:
    """Which words of the sentence are content that the question does not say, one for each word."""
    keys = passage.keys[match.at]
    return (keys != "") & ~np.isin(keys, terms.keys)


def _margins(match_scores: FloatArray, best_index: int, hit_numbers: IntArray) -> dict[str, Any]:
    """Lead of the sentence over the next one, and over the best of other passages.

    1 where there is none.
    """
    rival_scores = {
        "margin": np.delete(match_scores, best_index),
        "margin_hits": match_scores[hit_numbers != hit_numbers[best_index]],
    }
    return {
        margin_name: match_scores[best_index] - scores_of_rivals.max()
        if len(scores_of_rivals)
        else 1.0
        for margin_name, scores_of_rivals in rival_scores.items()
    }


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
    is_new = _new_words(terms, match, passage)
    cosines = (terms.vectors @ passage.vectors[match.at].T).astype(np.float64)
    word_kinds = passage.kinds[match.at]
    feature_values = {}
    for kind_name, word_kind in (("word", WORD_KIND), ("name", NAME_KIND), ("number", NUMBER_KIND)):
        is_missing = (terms.kinds == word_kind) & ~match.held
        is_new_of_kind = is_new & (word_kinds == word_kind)
        paired_cosines = cosines[np.ix_(is_missing, is_new_of_kind)]
        best_cosines = paired_cosines.max(axis=1) if paired_cosines.size else np.zeros(0)
        feature_values[f"swap_{kind_name}"] = best_cosines.max(initial=0.0)
        feature_values[f"swap_{kind_name}_weight"] = (
            terms.weights[is_missing] @ best_cosines if len(best_cosines) else 0.0
        )
    paired_cosines = cosines[np.ix_(~match.held, is_new)]
    best_cosines = paired_cosines.max(axis=1) if paired_cosines.size else np.full(1, np.nan)
    missing_weights = terms.weights[~match.held] if paired_cosines.size else np.ones(1)
    weighted_mean = missing_weights @ best_cosines / max(missing_weights.sum(), 1e-9)
    return feature_values | {
        "swap_most": best_cosines.max(),
        "swap_least": best_cosines.min(),
        "swap_mean": weighted_mean,
    }


def _order(terms: QuestionTerms, match: SentenceMatch, passage: WordVectors) -> dict[str, Any]:
    """How much further apart neighbour words are in sentence than in question, log(1 + words)."""
    if len(terms.at) < 2:
        return {"shift_mean": 0.0, "shift_most": 0.0, "shift_held": nan}
    nearest_words = (terms.vectors @ passage.vectors[match.at].T).round(5).argmax(axis=1)
    word_shifts = np.log1p(np.abs(np.abs(np.diff(nearest_words)) - np.diff(terms.at)))
    is_held_pair = match.held[1:] & match.held[:-1]
    held_shift = word_shifts[is_held_pair].mean() if is_held_pair.any() else nan
    return {
        "shift_mean": word_shifts.mean(),
        "shift_most": word_shifts.max(),
        "shift_held": held_shift,
    }


def _kind(question: str, terms: QuestionTerms, sentence: str, passage: str) -> dict[str, Any]:
    """Whether there is a phrase of the kind that the question asks for and does not say.

    NaN where it is open.
    """
    asked_kind = expected_kind(question)
    question_keys = frozenset(terms.keys.tolist())
    feature_values = {}
    for text_name, searched_text in (("sentence", sentence), ("hit", passage)):
        phrase_count = nan
        if asked_kind is not None:
            phrase_stems = (
                line_stems(searched_text[phrase_start:phrase_end])
                for phrase_start, phrase_end in phrases(asked_kind, searched_text)
            )
            phrase_count = sum(
                not question_keys.issuperset(stems_of_phrase) for stems_of_phrase in phrase_stems
            )
        feature_values[f"kind_{text_name}_count"] = phrase_count
        feature_values[f"kind_{text_name}"] = np.minimum(phrase_count, 1.0)
    return feature_values


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
    question_words = claim_words(question)
    texts_by_name = {"sentence": [sentence], "hit": [passage], "hits": passages}
    words_by_name = {
        part_name: [w for part_text in part_texts for w in _claim_words(part_text)]
        for part_name, part_texts in texts_by_name.items()
    }
    # signs that each word stands with, by key
    signs_by_name: dict[str, dict[str, set[int]]] = {part_name: {} for part_name in words_by_name}
    for part_name, words_of_part in words_by_name.items():
        for claim_word in filter(_carries_sign, words_of_part):
            signs_by_name[part_name].setdefault(claim_word.key, set()).add(claim_word.sign)

    def turned(part_name: str, question_signs: Mapping[str, int]) -> int:
        return sum(
            question_sign not in signs_by_name[part_name].get(word_key, {question_sign})
            for word_key, question_sign in question_signs.items()
        )

    question_poles = {
        claim_word.key: claim_word.sign
        for claim_word in question_words
        if claim_word.key.startswith("~")
    }
    question_signs = {
        claim_word.key: claim_word.sign for claim_word in filter(_carries_sign, question_words)
    }
    question_negations, sentence_negations = (
        sum(claim_word.kind == NEGATION for claim_word in words_of_part)
        for words_of_part in (question_words, words_by_name["sentence"])
    )
    return {
        "negations": question_negations,
        "negations_sentence": sentence_negations,
        "negations_differ": abs(question_negations - sentence_negations),
        "negations_hit": any(claim_word.kind == NEGATION for claim_word in words_by_name["hit"]),
        "poles_turned": turned("sentence", question_poles),
        "poles_missing": len(question_poles.keys() - signs_by_name["sentence"].keys()),
        "poles_both": sum(
            -question_sign in signs_by_name["hit"].get(word_key, ())
            for word_key, question_sign in question_poles.items()
        ),
        "poles_missing_hits": len(question_poles.keys() - signs_by_name["hits"].keys()),
        **{f"turned_{part_name}": turned(part_name, question_signs) for part_name in signs_by_name},
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
    score_arrays = [
        np.array(hit_scores or (nan,), dtype=np.float64) for hit_scores in (cosine, l2, s_rerank)
    ]
    sorted_cosines, sorted_distances, rerank_scores = (
        np.sort(score_arrays[0])[::-1],
        np.sort(score_arrays[1]),
        score_arrays[2],
    )
    feature_values = {
        "cosine_first": score_arrays[0][0],
        "cosine_most": sorted_cosines[0],
        "cosine_mean": sorted_cosines.mean(),
        "cosine_spread": sorted_cosines.std(),
        "cosine_lead": sorted_cosines[0] - [*sorted_cosines, nan][1],
        "l2_lead": [*sorted_distances, nan][1] - sorted_distances[0],
        "rerank_first": rerank_scores[0],
        "rerank_lead": rerank_scores[0] - [*rerank_scores, nan][1],
        "rerank_mean": rerank_scores.mean(),
        "hits": len(cosine),
    }
    return {
        feature_name: float(feature_value) for feature_name, feature_value in feature_values.items()
    }
