"""Ask once, learn the default.

The published arithmetic, the posterior beside it, gate, lookup and what is refused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from raglab.default_learner import (
    RULES,
    SIGNALS,
    ClarificationDefault,
    Counts,
    DefaultLearner,
    asks,
    fills_in,
    gate,
    lookup,
    met,
    suggest,
    update,
    worth_asking,
)
from raglab.default_learner.votes import (
    add_signal,
    decay_votes,
    no_votes,
    vote_confidence,
    vote_counts,
)

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
NAMES = ("1", "toc", "document", "7")
POSTERIOR = DefaultLearner(rule="posterior")
FLAT = POSTERIOR._replace(prior_yes=1.0, prior_no=1.0)

Event = tuple[str, str, str | None]


def row(**fields):
    """Row of the insurer, fresh but for what is given."""
    fresh = {"candidate_votes": {}, "confidence": 0.0, "sample_size": 0, "last_refreshed": NOW}
    return ClarificationDefault(
        target_field="insurer_name", doctype="broker_contract", **(fresh | fields)
    )


def learned(events, **fields):
    """Fresh row after these signals."""
    learned_row = row()
    for value, signal, corrected_to in events:
        learned_row = update(learned_row, value, signal, corrected_to, now=NOW, **fields)  # type: ignore[arg-type]
    return learned_row


def published(events):
    """Votes, confidence and sample size as the article's code has, +1 for the user-named value."""
    votes: dict[str, float] = {}
    confidence_new, n_new = 0.0, 0
    for value, signal, corrected_to in events:
        if signal == "explicit_yes":
            votes[value] = votes.get(value, 0) + 1.0
        elif signal == "explicit_no":
            votes[value] = votes.get(value, 0) - 1.0
            if corrected_to is not None:
                votes[corrected_to] = votes.get(corrected_to, 0) + 1.0
        elif signal == "implicit_ok":
            votes[value] = votes.get(value, 0) + 0.5
        n_new += 1
        top_vote = max(votes.values()) if votes else 0.0
        confidence_new = max(0.0, top_vote) / n_new
    return votes, confidence_new, n_new


def an_event(value, signal, named):
    """A signal on a value; a rejection may name another."""
    return value, signal, named if signal == "explicit_no" and named != value else None


events_of = st.lists(
    st.builds(
        an_event,
        st.sampled_from(NAMES),
        st.sampled_from(SIGNALS),
        st.sampled_from([None, *NAMES]),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(events_of)
def test_the_published_arithmetic_to_the_bit(events):
    """Any signals give the article's votes, their order, confidence and sample size."""
    learned_row, (votes, *expected) = learned(events), published(events)
    assert list(learned_row.candidate_votes.items()) == list(votes.items())
    assert [learned_row.confidence, learned_row.sample_size] == expected


def test_a_failure_is_no_vote_but_a_signal():
    """It lowers the published confidence by its place, adds no value, keeps the posterior.

    The place is that in the sample.
    """
    events: list[Event] = [("1", "explicit_yes", None)]
    both = [learned([*events, ("2", "failure", None)], rule=rule) for rule in RULES]
    assert [learned_row.candidate_votes for learned_row in both] == [{"1": 1.0}, {"1": 1.0}]
    assert both[0].confidence == 0.5
    assert both[1].confidence == learned(events, rule="posterior").confidence
    assert both[0].counts["2"] == Counts(failed=1.0)


def test_case_2_of_the_article():
    """9.5 votes of 12 are 0.79, between the thresholds.

    Applied silently but on every fifth request of the row.
    """
    learned_row = learned([("1", "explicit_yes", None)] * 7 + [("1", "implicit_ok", None)] * 5)
    assert learned_row.candidate_votes == {"1": 9.5}
    assert learned_row.confidence == 9.5 / 12
    assert gate(learned_row) == "ask_occasionally"
    questions = []
    for number in range(1, 13):
        if asks(learned_row, DefaultLearner()):
            questions.append(number)
        learned_row = met(learned_row, now=NOW)
    assert (questions, learned_row.requests) == ([5, 10], 12)


def silent(learner, successes):
    """Confidence after one yes and 0, 1, … silent successes."""
    learned_row = learned([("1", "explicit_yes", None)], learner=learner)
    confidences = [learned_row.confidence]
    for _ in range(successes):
        learned_row = update(learned_row, "1", "implicit_ok", learner=learner, now=NOW)
        confidences.append(learned_row.confidence)
    return confidences


def test_the_posterior_rises_while_it_is_right_and_silent():
    """One yes is 0.91, above 0.85, and silence only adds.

    From a flat prior it takes 16 silent successes.
    """
    confidences = silent(POSTERIOR, 200)
    assert confidences[0] == pytest.approx(0.9062, abs=1e-4)
    assert (np.diff(confidences) > 0.0).all()
    flat = silent(FLAT, 200)
    np.testing.assert_allclose(flat, 0.2 ** (1 / (2 + 0.5 * np.arange(201))), rtol=1e-12)
    assert np.searchsorted(flat, [0.60, 0.85]).tolist() == [3, 16]


@pytest.mark.parametrize("yes", [1, 5, 40])
@pytest.mark.parametrize("silences", [0, 100])
def test_one_no_asks_again(yes, silences):
    """However often a value was right, one no brings it below.

    The next yes gives back what it had, less the no.
    """
    right: list[Event] = [("1", "explicit_yes", None)] * yes + [
        ("1", "implicit_ok", None)
    ] * silences
    before = learned(right, learner=POSTERIOR)
    assert gate(before) == "apply"
    no = update(before, "1", "explicit_no", now=NOW, learner=POSTERIOR)
    assert gate(no) == "ask"
    # silence does not take it back
    assert gate(update(no, "1", "implicit_ok", now=NOW, learner=POSTERIOR)) == "ask"
    again, spared = (
        update(row, "1", "explicit_yes", now=NOW, learner=POSTERIOR) for row in (no, before)
    )
    assert 0.0 < again.confidence < spared.confidence
    assert (gate(again) == "apply") == (yes + silences >= 40)


def test_a_row_without_a_yes_always_asks():
    """Silence alone, however long, is nobody's word; who names a value when asked has said it."""
    assert learned([("1", "implicit_ok", None)] * 500, learner=POSTERIOR).confidence == 0.0
    named = learned([("1", "explicit_no", "toc")], learner=POSTERIOR)
    assert (gate(named), suggest(named, ("1", "toc"), POSTERIOR).value) == ("apply", "toc")


def test_outcomes_are_one_for_each_share():
    """A list of another length is refused."""
    with pytest.raises(ValueError, match=r"outcomes.*1 for 2"):
        worth_asking([0.5, 0.5], question_cost=1.0, error_cost=1.0, outcomes=["a"])


def test_the_gate_holds_whatever_a_question_is_worth():
    """Below 0.60 nothing is filled in silently.

    A question that is not worth it is spared between the thresholds.
    """
    cheap = worth_asking([1.0], question_cost=1.0, error_cost=10.0)
    dear = worth_asking([0.5, 0.5], question_cost=1.0, error_cost=10.0)
    learned_row = learned([("1", "explicit_yes", None)] + [("1", "implicit_ok", None)] * 5)
    assert gate(learned_row) == "ask"
    fifth = row(candidate_votes={"1": 9.5}, confidence=0.79, sample_size=12, requests=4)
    sure = row(candidate_votes={"1": 9.0}, confidence=0.9, sample_size=10, requests=4)
    for worth in (None, cheap, dear):
        assert not fills_in(None, "1", DefaultLearner(), worth)
        assert not fills_in(row(), "1", DefaultLearner(), worth)
        assert not fills_in(learned_row, "1", DefaultLearner(), worth)
        assert not fills_in(sure, "toc", DefaultLearner(), worth)
        assert fills_in(sure, "1", DefaultLearner(), worth)
        assert fills_in(fifth.model_copy(update={"requests": 5}), "1", DefaultLearner(), worth)
    assert [fills_in(fifth, "1", DefaultLearner(), worth) for worth in (None, cheap, dear)] == [
        False,
        True,
        False,
    ]


def test_one_correction_counts_once_against_a_value():
    """Rejected with another named: one event against it, as a rejection without a name is."""
    start: list[Event] = [("1", "explicit_yes", None)] * 6
    again: Event = ("1", "explicit_yes", None)
    named, plain = (
        learned([*start, ("1", "explicit_no", other), again], learner=FLAT)
        for other in ("toc", None)
    )
    assert named.confidence == plain.confidence < learned(start, learner=FLAT).confidence
    twice = learned(
        [*start, ("1", "explicit_no", None), ("toc", "explicit_yes", None), again], learner=FLAT
    )
    assert twice.confidence < named.confidence


@settings(deadline=None, derandomize=True, max_examples=60)
@given(events_of, st.sampled_from(RULES), st.sampled_from([0.0, 3.0]))
def test_rows_and_arrays_are_one(events, rule, half_life):
    """A batch's arrays give counts, votes and confidence of the rows, forgetting or not."""
    learner = DefaultLearner(rule=rule, half_life_days=half_life)
    learned_row = row()
    order = list(
        dict.fromkeys(name for value, _, named in events for name in (value, named) if name)
    )
    votes = no_votes(len(order), (2,))
    for day, (value, signal, named) in enumerate(events):
        learned_row = update(
            learned_row, value, signal, named, now=NOW + timedelta(days=day), learner=learner
        )
        if half_life and day:
            votes = decay_votes(votes, 0.5 ** (1 / half_life))
        to = -1 if named is None else order.index(named)
        signals = [SIGNALS.index(signal), -1]
        votes = add_signal(votes, order.index(value), signals, [to, -1], learner)
    order_kept = list(learned_row.candidate_votes) == [
        name for name in order if name in learned_row.candidate_votes
    ]
    counts = {
        name: Counts(*each)
        for name, each in zip(order, votes.counts[0].tolist(), strict=True)
        if any(each)
    }
    assert learned_row.counts == counts
    by_name = dict(zip(order, vote_counts(votes)[0].tolist(), strict=True))
    assert learned_row.candidate_votes == {
        name: by_name[name] for name in learned_row.candidate_votes
    }
    if order_kept or rule == "vote_share":  # else ties may fall to another value
        assert learned_row.confidence == pytest.approx(
            float(vote_confidence(votes, learner)[0]), rel=1e-12
        )
    assert not votes.counts[1].any()


@settings(deadline=None, derandomize=True, max_examples=40)
@given(events_of, st.randoms(use_true_random=False))
def test_the_order_of_signals_does_not_matter(events, chance):
    """Counts, votes and the published confidence are the same after any order."""
    before = learned(events)
    chance.shuffle(events)
    after = learned(events)
    for field in ("counts", "candidate_votes", "confidence"):
        assert getattr(before, field) == getattr(after, field)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(events_of, st.sampled_from(RULES), st.sampled_from([0.0, 2.5]))
def test_a_row_survives_json_and_its_update(events, rule, half_life):
    """It reads back equal, order of votes included, and a further update changes nothing of it."""
    learner = DefaultLearner(rule=rule, half_life_days=half_life)
    learned_row = learned(events, learner=learner, conditions={"page_1_kind": "body"})
    text = learned_row.model_dump_json()
    back = ClarificationDefault.model_validate_json(text)
    assert back == learned_row
    assert list(back.candidate_votes) == list(learned_row.candidate_votes)
    later = NOW + timedelta(days=9)
    update(learned_row, "1", "explicit_no", "9", now=later, learner=learner)
    met(learned_row, now=later)
    assert learned_row.model_dump_json() == text


def test_forgetting_halves():
    """A yes of a half-life ago is half a yes beside a new rejection; the sample keeps its size."""
    learner = DefaultLearner(half_life_days=30.0)
    learned_row = update(row(), "1", "explicit_yes", now=NOW, learner=learner)
    learned_row = update(
        learned_row, "toc", "explicit_yes", now=NOW + timedelta(days=30), learner=learner
    )
    assert learned_row.candidate_votes == {"1": 0.5, "toc": 1.0}
    assert (learned_row.confidence, learned_row.sample_size, learned_row.remembered) == (
        1.0 / 1.5,
        2,
        1.5,
    )


def test_a_clock_that_goes_backwards():
    """Nothing ages, the signal counts whole, and the row keeps the later time."""
    learner = DefaultLearner(half_life_days=30.0)
    learned_row = update(row(), "1", "explicit_yes", now=NOW, learner=learner)
    learned_row = update(
        learned_row, "1", "explicit_yes", now=NOW - timedelta(days=400), learner=learner
    )
    assert (learned_row.candidate_votes, learned_row.last_refreshed) == ({"1": 2.0}, NOW)


def test_a_request_that_meets_a_row_is_no_signal():
    """Counter and version go on; votes and time stay."""
    learned_row = met(row(), now=NOW + timedelta(days=1))
    assert (
        learned_row.requests,
        learned_row.version,
        learned_row.sample_size,
        learned_row.last_refreshed,
    ) == (1, 1, 0, NOW)


@pytest.mark.parametrize(
    ("given_", "rule"),
    [
        ({"value": " "}, "value must be a text of 1 to 200"),
        ({"value": "x" * 201}, "got 201 characters"),
        ({"signal": "maybe"}, "signal must be one of explicit_yes"),
        (
            {"signal": "explicit_yes", "corrected_to": "toc"},
            "corrected_to must come with explicit_no",
        ),
        ({"signal": "explicit_no", "corrected_to": "1"}, "corrected_to must be another value"),
        ({"rule": "majority"}, "rule must be one of vote_share, posterior"),
        ({"learner": DefaultLearner(every=0)}, "every must be a whole number >= 1"),
        ({"learner": DefaultLearner(half_life_days=float("nan"))}, "half_life_days must be >= 0"),
        ({"learner": DefaultLearner(level=1.0)}, "level must be in"),
        ({"now": "2026-01-05"}, "now must be a datetime, got '2026-01-05'"),
        ({"conditions": {"page_1_kind": "x" * 201}}, "the value of page_1_kind must be"),
    ],
)
def test_what_is_no_vote_is_refused(given_, rule):
    """With the rule, what came, and what to do."""
    call = {"value": "1", "signal": "explicit_yes", "now": NOW} | given_
    with pytest.raises(ValueError, match=rule):
        update(row(), **call)


def test_the_gate_on_its_thresholds():
    """Both thresholds themselves ask occasionally; a confidence that is missing passes nothing."""
    verdicts = [gate(row(confidence=at)) for at in (0.5999, 0.60, 0.85, 0.8501)]
    assert verdicts == ["ask", "ask_occasionally", "ask_occasionally", "apply"]
    assert gate(row().model_copy(update={"confidence": float("nan")})) == "ask"
    with pytest.raises(ValueError, match="ask_below and apply_above"):
        gate(row(), ask_below=0.9)


def test_rows_are_checked_at_the_door():
    """What is no time, unknown keys, and votes that are not those of the counts are refused.

    Votes alone are enough.
    """
    learned_row = row(candidate_votes={"1": 9.5, "2": -1.0}, confidence=0.79, sample_size=12)
    assert learned_row.counts == {"1": Counts(yes=9.5), "2": Counts(no=1.0)}
    assert update(learned_row, "1", "implicit_ok", now=NOW).confidence == 10.0 / 13
    for wrong in (
        {"last_refreshed": "yesterday"},
        {"confidence": float("nan")},
        {"votes": {}},
        {"candidate_votes": {"1": 2.0}, "counts": {"1": (1.0, 0, 0, 0, 0, 0)}},
        {"candidate_votes": {"1": float("inf")}},
        {"remembered": 2.0},
    ):
        with pytest.raises(ValidationError):
            row(**wrong)


def test_the_most_specific_row_is_found():
    """Most conditions first, then the text of them; none of another field, doctype or condition."""
    rows = [
        row(),
        row(sub_conditions={"page_1_kind": "coversheet"}),
        row(sub_conditions={"language": "fr"}),
        row(sub_conditions={"language": "fr", "page_1_kind": "coversheet"}),
        row(sub_conditions={"language": "fr"}, version=3),
    ]

    def found(**conditions):
        one = lookup(rows, "insurer_name", "broker_contract", conditions)
        return None if one is None else next(at for at, other in enumerate(rows) if other is one)

    assert (found(), found(page_1_kind="body"), found(page_1_kind="coversheet")) == (0, 0, 1)
    assert (
        found(language="fr", page_1_kind="body"),
        found(language="fr", page_1_kind="coversheet"),
    ) == (4, 3)
    assert (
        lookup(
            rows[1:3],
            "insurer_name",
            "broker_contract",
            {"language": "fr", "page_1_kind": "coversheet"},
        )
        is rows[2]
    )
    assert lookup(rows, "insurer_name", "invoice", {}) is None
    assert lookup(rows[1:], "insurer_name", "broker_contract", {}) is None
    assert lookup([], "insurer_name", "broker_contract", {}) is None


def test_what_is_proposed():
    """The first candidate without a vote above 0, else the one that leads.

    Ties by the order of the candidates.
    """
    assert suggest(None, ("1", "toc")).value == "1"
    assert suggest(row(), ("toc", "1")).value == "toc"
    learned_row = learned(
        [("toc", "explicit_yes", None), ("1", "explicit_yes", None), ("7", "explicit_no", None)]
    )
    assert suggest(learned_row, ("1", "toc")).value == "1"
    assert suggest(learned_row, ("document", "7")).value == "document"


def test_the_posterior_proposes_what_its_confidence_is_about():
    """Five for and three against a value, three for another.

    Fewer votes, yet the more probable one.
    """
    events: list[Event] = [("1", "explicit_yes", None)] * 5 + [("1", "explicit_no", None)] * 3
    learned_row = learned(events + [("toc", "explicit_yes", None)] * 3, rule="posterior")
    assert learned_row.candidate_votes == {"1": 2.0, "toc": 3.0}
    assert suggest(learned_row, ("1", "toc")).value == "toc"
    assert suggest(learned_row, ("1", "toc"), POSTERIOR).value == "1"


def test_when_a_question_is_worth_it():
    """A gain of 10 · (1 − 0.75) = 2.5 against its cost.

    Values of one outcome need no question between them.
    """
    parts = {"1": 0.5, "2": 0.25, "toc": 0.25}
    assert worth_asking(parts, question_cost=1.0, error_cost=10.0) == (5.0, 1.0, True)
    assert worth_asking(parts, question_cost=2.5, error_cost=10.0, outcomes=["a", "a", "b"]) == (
        2.5,
        2.5,
        False,
    )
    assert worth_asking(parts, question_cost=0.0, error_cost=10.0, outcomes="aaa").asks is False
    assert worth_asking([0.5], question_cost=1.0, error_cost=10.0).gain == 5.0
