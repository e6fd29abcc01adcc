"""Evidence features: worked examples by hand with one vector a word, then laws."""

from __future__ import annotations

import re

import numpy as np
import pytest

from raglab.extensions.learned_signals.evidence_features import (
    FEATURES,
    GROUPS,
    NAME,
    NUMBER,
    WORD,
    WordVectors,
    evidence_features,
    retrieval_features,
    word_vectors,
)

VOCABULARY: dict[str, int] = {}
DIM = 64
NEAR = {"paris": "rome", "crowned": "anointed"}  # two words that share most of their vector


def vector(word: str) -> np.ndarray:
    """A vector of its own for each word; two of `NEAR` have cosine 0.8."""
    base = VOCABULARY.setdefault(NEAR.get(word, word), len(VOCABULARY))
    found = np.zeros(DIM)
    found[base] = 1.0
    if word in NEAR:
        found[base], found[VOCABULARY.setdefault(word, len(VOCABULARY))] = 0.8, 0.6
    return found


def words(text: str) -> WordVectors:
    """A text with one token a word."""
    matches = list(re.finditer(r"\w+", text))
    spans = np.array([match.span() for match in matches], dtype=np.int64).reshape(-1, 2)
    tokens = np.array([vector(match[0].casefold()) for match in matches]).reshape(-1, DIM)
    return word_vectors(text, spans, tokens)


def features(question: str, *passages: str) -> dict[str, float]:
    """Features of texts."""
    return evidence_features(words(question), [words(passage) for passage in passages])


def test_kinds_of_words() -> None:
    """A name has a capital inside a sentence, a number a digit; function words have no key."""
    found = words("In 1066 the Duke sailed. Harold fell.")
    assert found.keys.tolist() == ["", "1066", "", "duke", "saile", "harol", "fell"]
    assert found.kinds.tolist() == [0, NUMBER, 0, NAME, WORD, WORD, WORD]
    assert found.sentence.tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_a_word_is_the_mean_of_its_tokens() -> None:
    """Two tokens of a word make one vector of length 1; a token of punctuation makes none."""
    tokens = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = word_vectors("storms!", np.array([[0, 5], [5, 6], [6, 7]]), tokens)
    assert np.allclose(found.vectors, [[0.5**0.5, 0.5**0.5]])


def test_everything_is_there() -> None:
    """A sentence that says all of the question, and a year that it does not say."""
    found = features("When was Rollo crowned?", "Rollo was crowned in 912. Hail is rare.")
    assert found["mean"] == pytest.approx(1.0)
    assert (found["share"], found["missing"], found["least"]) == (
        pytest.approx(1.0),
        0.0,
        pytest.approx(1.0),
    )
    assert (found["kind_sentence"], found["kind_hit"], found["new_numbers"]) == (1.0, 1.0, 1.0)
    assert (found["hit"], found["words"], found["new_words"], found["asked_words"]) == (
        0.0,
        5.0,
        1.0,
        2.0,
    )
    assert np.isnan(found["swap_most"])  # no word is missing


def test_another_name_in_the_place_of_a_name() -> None:
    """The missing name is near a new name of the sentence: cosine 0.8, as declared above."""
    found = features("Did the duke visit Paris?", "Once the duke went to visit Rome.")
    assert (found["names_missing"], found["names_held"]) == (1.0, 0.0)
    assert found["swap_name"] == pytest.approx(0.8)
    assert found["names_least"] == pytest.approx(0.8)
    assert found["swap_word"] == 0.0
    assert found["missing_most"] == pytest.approx(0.8)


def test_weights_are_of_the_passages() -> None:
    """Of three sentences two say storm, none says hail: ln(4 / 2.5) against ln(4 / 0.5)."""
    found = features("storm hail", "A storm came. A storm went. Rain fell.")
    storm, hail = np.log(4 / 2.5), np.log(4 / 0.5)
    assert found["share"] == pytest.approx(storm / (storm + hail))
    assert found["missing_weight"] == pytest.approx(hail / (storm + hail))


def test_the_sentence_that_holds_most() -> None:
    """The second passage holds two words, the first one.

    The second is looked at, and its lead is told.
    """
    found = features("storm damage", "A storm came.", "Storm damage is paid.")
    assert found["hit"] == 1.0
    assert found["margin"] == found["margin_hits"] > 0.0


def test_opposites_are_seen() -> None:
    """A negated word, and the other pole of an idea."""
    same = features("Is hail covered after May?", "Hail is covered after May.")
    turned = features("Is hail not covered before May?", "Hail is covered after May.")
    assert (
        same["negations"],
        same["turned_sentence"],
        same["poles_turned"],
        same["poles_missing"],
    ) == (0, 0, 0, 0)
    assert (turned["negations"], turned["negations_differ"]) == (1.0, 1.0)
    # covered and before
    assert turned["turned_sentence"] == turned["turned_hits"] == turned["poles_turned"] == 2.0
    assert turned["poles_both"] == 2.0


def test_french_is_read_alike() -> None:
    """A French question for a date, and its negation."""
    found = features(
        "Quand la grêle n'est-elle pas couverte ?", "La grêle est couverte depuis le 1 mai 2025."
    )
    assert found["negations"] == 1.0
    assert found["kind_sentence"] == 1.0


def test_no_word_no_features() -> None:
    """Nothing to compare gives nothing; a question of function words is compared by these."""
    assert features("?!", "Hail is covered.") == {}
    assert features("hail", "") == {}
    assert evidence_features(words("hail"), []) == {}
    assert features("what is it", "It is hail.")["mean"] == pytest.approx(2 / 3, abs=0.34)


def test_all_groups_are_filled() -> None:
    """The functions together give every feature of the table, and no other."""
    found = features("Who paid?", "Ann paid.") | retrieval_features([0.5], [1.0], [float("nan")])
    assert sorted(found) == sorted(FEATURES)
    assert len(FEATURES) == len({*FEATURES}) == sum(map(len, GROUPS.values()))
    assert np.isnan(found["rerank_first"])
    assert np.isnan(found["cosine_lead"])
    assert all(np.isnan(value) or np.isfinite(value) for value in found.values())


@pytest.mark.parametrize("seed", range(8))
def test_a_passage_that_says_nothing_of_it_changes_no_word_found(seed: int) -> None:
    """A last passage of other words moves no coverage of the sentence, bar weights and lead."""
    rng = np.random.default_rng(seed)
    pool = ["storm", "hail", "excess", "roof", "paid", "May", "1200", "not"]
    question = " ".join(rng.choice(pool, size=4))
    passage = ". ".join(" ".join(rng.choice(pool, size=3)).capitalize() for _ in range(3))
    alone, beside = features(question, passage), features(question, passage, "Bees sleep.")
    assert beside["hit"] == 0.0
    assert {
        name: beside[name] for name in ("poles_both", "kind_hit_count", "asked_words")
    } == pytest.approx(
        {name: alone[name] for name in ("poles_both", "kind_hit_count", "asked_words")}, nan_ok=True
    )
