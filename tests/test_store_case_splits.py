"""Splits dealt to cases: worked examples, laws, and what is refused (S6.5)."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from raglab.store.case_labels import SPLIT_NAMES
from raglab.store.case_splits import NEAR_JACCARD, near_duplicates
from raglab.values import Case
from raglab.words.characters import plain_question
from raglab.words.text import jaccard
from raglab.words.tokeniser import split_words

# few words, so that questions overlap often
WORDS = ["glass", "theft", "fire", "storm", "boat", "train"]
SHARES = [(0.4, 0.3, 0.3), (0.5, 0.0, 0.5), (1.0, 0.0, 0.0), (0.2, 0.2, 0.6), (0.0, 0.7, 0.3)]
LABELS = ("ok", "refuse", "ambiguous")
questions = st.lists(st.sampled_from(WORDS), min_size=0, max_size=4).map(" ".join)
labelled = st.lists(st.tuples(questions, st.sampled_from([*LABELS, None])), min_size=1, max_size=30)


def cases_of(rows):
    """A case a row."""
    return [Case(f"q{number}", query, label) for number, (query, label) in enumerate(rows)]


def distinct(labels):
    """Cases no two of which are near-duplicates."""
    return [Case(f"q{n}", f"word{n} term{n} name{n}?", label) for n, label in enumerate(labels)]


def dealt(cases, shares, **how):
    """Splits of the cases in their order; warnings are of other tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        split_cases = raglab.split(cases, **dict(zip(SPLIT_NAMES, shares, strict=True)), **how)
    assert [case._replace(split=None) for case in split_cases] == list(cases)
    return [case.split for case in split_cases]


def test_shares_of_each_label():
    """60 ok, 20 refuse and 10 ambiguous in 0.4, 0.3, 0.3: 24, 18, 18; 8, 6, 6; 4, 3, 3."""
    cases = distinct(["ok"] * 60 + ["refuse"] * 20 + ["ambiguous"] * 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split_cases = raglab.split(cases)
    counts = Counter((case.expect_status, case.split) for case in split_cases)
    assert [[counts[label, split] for split in SPLIT_NAMES] for label in LABELS] == [
        [24, 18, 18],
        [8, 6, 6],
        [4, 3, 3],
    ]


def test_near_duplicates_stay_together():
    """In one step or in several, whatever their labels; case and white space are irrelevant."""
    texts = [
        "How long is the notice period?",
        "What is the notice period?",  # shares 4 of 7 words with the first
        "what  IS the notice period?",
        "Who pays for broken glass?",
    ]
    assert near_duplicates(texts) == [[0, 1, 2], [3]]
    for seed in range(20):
        cases = [Case(f"q{n}", query, "ok" if n % 2 else "refuse") for n, query in enumerate(texts)]
        assert len(set(dealt(cases, (0.4, 0.3, 0.3), seed=seed)[:3])) == 1
    assert near_duplicates(texts, near=1.0) == [[0], [1, 2], [3]]
    # without a word only the same text is the same
    assert near_duplicates(["?", "!", "? "], near=0.1) == [[0, 2], [1]]


@settings(max_examples=40, deadline=None)
@given(st.lists(questions, max_size=25), st.sampled_from([0.1, 0.25, 0.5, 0.7, 1.0]))
def test_groups_are_the_components_of_the_plain_definition(texts, near):
    """The search by rarest words finds the pairs that comparing all pairs finds."""
    bags = [frozenset(split_words(text)) for text in texts]
    group = list(range(len(texts)))
    for first, second in combinations(range(len(texts)), 2):
        same = plain_question(texts[first]) == plain_question(texts[second])
        if same or jaccard(bags[first], bags[second]) >= near:
            group = [group[first] if of == group[second] else of for of in group]
    plain = {}
    for place, of in enumerate(group):
        plain.setdefault(of, []).append(place)
    assert near_duplicates(texts, near) == sorted(plain.values())


@settings(max_examples=40, deadline=None)
@given(labelled, st.sampled_from(SHARES), st.integers(0, 3))
def test_a_partition_that_parts_no_near_duplicates(rows, shares, seed):
    """Every case has one split, none of share 0.

    Of two splits no two questions are near-duplicates.
    """
    cases = cases_of(rows)
    splits = dealt(cases, shares, seed=seed)
    assert set(splits) <= {name for name, share in zip(SPLIT_NAMES, shares, strict=True) if share}
    for (case, split), (second, split_of_other) in combinations(zip(cases, splits, strict=True), 2):
        words = (frozenset(split_words(pair_case.query)) for pair_case in (case, second))
        assert split == split_of_other or (
            jaccard(*words) < NEAR_JACCARD and case.query != second.query
        )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=40),
    st.sampled_from(SHARES),
    st.integers(0, 3),
)
def test_shares_are_within_one_case_of_each_label(labels, shares, seed):
    """Where no two questions are near-duplicates."""
    cases = distinct(labels)
    counts = Counter(zip(labels, dealt(cases, shares, seed=seed), strict=True))
    for label, n in Counter(labels).items():
        for name, share in zip(SPLIT_NAMES, shares, strict=True):
            assert abs(counts[label, name] - share * n) < 1.0 + 1e-9


@settings(max_examples=40, deadline=None)
@given(labelled, st.sampled_from(SHARES), st.randoms(use_true_random=False))
def test_the_same_in_any_order(rows, shares, random):
    """Neither the order of the cases nor their ids matter, and a second time gives the same."""
    cases = cases_of(rows)
    splits = dealt(cases, shares)
    assert dealt(cases, shares) == splits
    order = list(range(len(cases)))
    random.shuffle(order)
    moved = [cases[place]._replace(id=f"m{number}") for number, place in enumerate(order)]
    assert dealt(moved, shares) == [splits[place] for place in order]


def test_another_seed_deals_otherwise():
    """The seed is an argument, and matters."""
    cases = distinct(["ok"] * 40)
    assert len({tuple(dealt(cases, (0.4, 0.3, 0.3), seed=seed)) for seed in range(5)}) == 5


def test_what_a_reader_must_know():
    """Templates that move the shares, with the size of the largest group.

    Labels that a split lacks.
    """
    things = [f"thing{n}" for n in range(30)]
    cases = [Case(f"q{n}", f"How do I set the {thing}?", "ok") for n, thing in enumerate(things)]
    with pytest.warns(
        UserWarning, match=r"tune 30 for 12, .*; 30 of 30 questions are near-duplicates"
    ) as caught:
        raglab.split(cases)
    assert caught[0].filename == __file__
    assert Counter(dealt(cases, (0.4, 0.3, 0.3), near=0.8)) == {
        "tune": 12,
        "certify": 9,
        "report": 9,
    }
    with pytest.warns(UserWarning, match=r"certify has no case labelled refuse \(1 in all\)"):
        raglab.split(distinct(["ok"] * 9 + ["refuse"]))


def test_what_is_refused():
    """Rule, value, remedy."""
    cases = distinct(["ok"] * 60)
    frame = pd.DataFrame({"query": ["Who?"], "label": ["ok"]})
    for wrong, came in (
        (frame, "a DataFrame"),
        ("c.csv", "a str"),
        ([*cases, "x"], "a list"),
    ):
        with pytest.raises(TypeError, match=rf"cases must be .*, got {came}; .*load_cases"):
            raglab.split(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one, got none"):
        raglab.split([])
    with pytest.raises(ValueError, match=r"no split yet.*got 1 of 60"):
        raglab.split([cases[0]._replace(split="tune"), *cases[1:]])
    for shares, rule in (
        ({"tune": 24, "certify": 18, "report": 18}, r"in \[0, 1\] and sum to 1, got \[24.0, 18"),
        ({"tune": -0.1, "certify": 0.6, "report": 0.5}, r"in \[0, 1\] and sum to 1"),
        *(
            ({"near": near}, rf"near, .* in \(0, 1\], got {near!r}")
            for near in (0.0, 70.0, float("nan"))
        ),
        ({"seed": -1}, "seed must be a whole number from 0, got -1"),
    ):
        with pytest.raises(ValueError, match=rule):
            raglab.split(cases, **shares)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integer"):
        raglab.split(cases, seed=0.5)  # type: ignore[call-overload]


def own_trace(queries, labels):
    """Trace of two hits a case; a question that is repeated is a case each time."""
    rows = [
        (f"c{place}", query, hit, score, label)
        for place, (query, label) in enumerate(zip(queries, labels, strict=True))
        for hit, score in (("a", 0.9), ("b", 0.4))
    ]
    frame = pd.DataFrame(rows, columns=["case_id", "query", "hit_id", "score", "label"])
    return raglab.trace_from_frame(frame, score="cosine")


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=20),
    st.sampled_from(SHARES),
    st.integers(0, 3),
)
@settings(max_examples=25, deadline=None)
def test_a_trace_is_dealt_as_its_cases_are(queries, shares, seed):
    """Same seed, same splits; equal questions in one split.

    Hits and decisions stay, the fingerprint is its own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = own_trace(queries, [LABELS[len(query) % 2] for query in queries])
        split = raglab.split(trace, **dict(zip(SPLIT_NAMES, shares, strict=True)), seed=seed)
    assert isinstance(split, raglab.Trace)
    assert [case.split for case in split.cases] == dealt(list(trace.cases), shares, seed=seed)
    assert all(
        len({case.split for case in split.cases if case.query == query}) == 1 for query in queries
    )
    assert all(
        np.array_equal(before, after, equal_nan=True)
        for before, after in zip(trace.hits, split.hits, strict=True)
    )
    policy = raglab.Policy.load()
    assert list(raglab.decide(split, policy).frame()["status"]) == list(
        raglab.decide(trace, policy).frame()["status"]
    )
    assert split.fingerprint != trace.fingerprint
    assert all(case.split is None for case in trace.cases)


def test_a_trace_of_own_hits_is_dealt_saved_tuned_and_certified(tmp_path):
    """End to end: the splits are saved.

    Without them certify_policy names the call that deals them.
    """
    rng = np.random.default_rng(3)
    score = rng.uniform(0, 1, 120).round(2)
    label = np.where(score + rng.normal(0, 0.1, 120) > 0.4, "ok", "refuse")
    frame = pd.DataFrame(
        {"query": [f"word{n} term{n} name{n}" for n in range(120)], "hit_id": "p", "score": score}
    )
    trace = raglab.trace_from_frame(frame.assign(label=label))
    split = raglab.split(trace, tune=0.5, certify=0.5, report=0)
    split.save(tmp_path / "own.parquet")
    again = raglab.Trace.load(tmp_path / "own.parquet")
    assert [case.split for case in again.cases] == [case.split for case in split.cases]
    fitted = raglab.fit_decision(again.split("tune"), seed=0)
    assert (
        raglab.certify_policy(again, fitted, targets={"hallucination_rate": 0.4}).certificate.cases
        == 60
    )
    with pytest.raises(ValueError, match=r"was fitted on, got .*: trace = raglab.split\(trace\)\."):
        raglab.certify_policy(
            trace, raglab.fit_decision(trace, seed=0), targets={"hallucination_rate": 0.4}
        )
    with pytest.raises(
        ValueError, match=r"cases without splits; deal them by trace = raglab.split\(trace\)"
    ):
        trace.split("tune")


def test_again_deals_what_has_a_split():
    """As if it had none."""
    cases = [Case(f"q{n}", f"question number {n}", "ok") for n in range(60)]
    dealt = raglab.split(cases, near=1.0)
    assert raglab.split(dealt, near=1.0, again=True) == dealt
    other_seed = raglab.split(cases, near=1.0, seed=1)
    assert raglab.split(other_seed, near=1.0, again=True) == dealt
