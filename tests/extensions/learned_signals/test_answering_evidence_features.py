"""Evidence features: worked examples by hand with one vector a word, then laws."""

from __future__ import annotations

import re

import numpy as np
import pytest

from raglab.extensions.learned_signals.evidence_features import (
    FEATURES,
    GROUPS,
    NAME_KIND,
    NUMBER_KIND,
    WORD_KIND,
    evidence_features,
    retrieval_features,
    word_vectors,
)

VOCABULARY: dict[str, int] = {}
DIM = 64
NEAR = {"paris": "rome", "crowned": "anointed"}  # two words that share most of their vector


def vector(word):
    """A vector of its own for each word; two of `NEAR` have cosine 0.8."""
    base = VOCABULARY.setdefault(NEAR.get(word, word), len(VOCABULARY))
    found = np.zeros(DIM)
    found[base] = 1.0
    if word in NEAR:
        found[base], found[VOCABULARY.setdefault(word, len(VOCABULARY))] = 0.8, 0.6
    return found


def words(text):
    """A text with one token a word."""
    matches = list(re.finditer(r"\w+", text))
    spans = np.array([match.span() for match in matches], dtype=np.int64).reshape(-1, 2)
    tokens = np.array([vector(match[0].casefold()) for match in matches]).reshape(-1, DIM)
    return word_vectors(text, spans, tokens)


def features(question, *passages):
    """Features of texts."""
    return evidence_features(words(question), [words(passage) for passage in passages])


def test_kinds_of_words():
    """A name has a capital inside a sentence, a number a digit; function words have no key."""
    found = words("In 1066 the Duke sailed. Harold fell.")
    assert found.keys.tolist() == ["", "1066", "", "duke", "saile", "harol", "fell"]
    assert found.kinds.tolist() == [0, NUMBER_KIND, 0, NAME_KIND, WORD_KIND, WORD_KIND, WORD_KIND]
    assert found.sentence.tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_a_word_is_the_mean_of_its_tokens():
    """Two tokens of a word make one vector of length 1; a token of punctuation makes none."""
    tokens = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = word_vectors("storms!", np.array([[0, 5], [5, 6], [6, 7]]), tokens)
    assert np.allclose(found.vectors, [[0.5**0.5, 0.5**0.5]])


def holds(found, **expected):
    """Check some features by name."""
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)


def test_everything_is_there():
    """A sentence that says all of the question, and a year that it does not say."""
    found = features("When was Rollo crowned?", "Rollo was crowned in 912. Hail is rare.")
    holds(found, mean=1.0, share=1.0, missing=0.0, least=1.0, hit=0.0, words=5.0, new_words=1.0)
    holds(found, asked_words=2.0, kind_sentence=1.0, kind_hit=1.0, new_numbers=1.0)
    holds(found, swap_most=np.nan)  # no word is missing


def test_another_name_in_the_place_of_a_name():
    """The missing name is near a new name of the sentence: cosine 0.8, as declared above."""
    found = features("Did the duke visit Paris?", "Once the duke went to visit Rome.")
    holds(found, names_missing=1.0, names_held=0.0, swap_word=0.0)
    holds(found, swap_name=0.8, names_least=0.8, missing_most=0.8)


def test_weights_are_of_the_passages():
    """Of three sentences two say storm, none says hail: ln(4 / 2.5) against ln(4 / 0.5)."""
    storm, hail = np.log(4 / 2.5), np.log(4 / 0.5)
    found = features("storm hail", "A storm came. A storm went. Rain fell.")
    holds(found, share=storm / (storm + hail), missing_weight=hail / (storm + hail))


def test_the_sentence_that_holds_most():
    """The second passage holds two words, the first one.

    The second is looked at, and its lead is told.
    """
    found = features("storm damage", "A storm came.", "Storm damage is paid.")
    assert (found["hit"], found["margin"] > 0.0) == (1.0, True)
    holds(found, margin_hits=found["margin"])


def test_opposites_are_seen():
    """A negated word, and the other pole of an idea; a French question for a date negated."""
    same = features("Is hail covered after May?", "Hail is covered after May.")
    holds(same, negations=0.0, turned_sentence=0.0, poles_turned=0.0, poles_missing=0.0)
    turned = features("Is hail not covered before May?", "Hail is covered after May.")
    holds(turned, negations=1.0, negations_differ=1.0)
    # covered and before
    holds(turned, turned_sentence=2.0, turned_hits=2.0, poles_turned=2.0, poles_both=2.0)
    asked, text = "Quand la grêle n'est-elle pas couverte ?", "La grêle est couverte depuis le "
    holds(features(asked, f"{text}1 mai 2025."), negations=1.0, kind_sentence=1.0)


def test_no_word_no_features():
    """Nothing to compare gives nothing; a question of function words is compared by these."""
    assert features("?!", "Hail is covered.") == {}
    assert features("hail", "") == {}
    assert evidence_features(words("hail"), []) == {}
    assert features("what is it", "It is hail.")["mean"] == pytest.approx(2 / 3, abs=0.34)


def test_all_groups_are_filled():
    """The functions together give every feature of the table, and no other."""
    found = features("Who paid?", "Ann paid.") | retrieval_features([0.5], [1.0], [float("nan")])
    assert sorted(found) == sorted(FEATURES)
    assert len(FEATURES) == len({*FEATURES}) == sum(map(len, GROUPS.values()))
    assert np.isnan(found["rerank_first"])
    assert np.isnan(found["cosine_lead"])
    assert all(np.isnan(value) or np.isfinite(value) for value in found.values())


@pytest.mark.parametrize("seed", range(8))
def test_a_passage_that_says_nothing_of_it_changes_no_word_found(seed):
    """A last passage of other words moves no coverage of the sentence, bar weights and lead."""
    rng = np.random.default_rng(seed)
    pool = ["storm", "hail", "excess", "roof", "paid", "May", "1200", "not"]
    question = " ".join(rng.choice(pool, size=4))
    passage = ". ".join(" ".join(rng.choice(pool, size=3)).capitalize() for _ in range(3))
    alone, beside = features(question, passage), features(question, passage, "Bees sleep.")
    names = ("poles_both", "kind_hit_count", "asked_words")
    holds(beside, hit=0.0, **{name: alone[name] for name in names})
