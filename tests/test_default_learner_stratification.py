"""Splitting a default by the condition under which it is wrong.

The evidence, when it is enough, what a split makes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import exp, lgamma
from typing import Any

import numpy as np
import pytest

from raglab.default_learner import (
    Counts,
    DefaultLearner,
    Split,
    gate,
    init,
    looked,
    lookup,
    split,
    stored_split,
    stratify,
    update,
)
from raglab.default_learner.stratification import evidence
from raglab.default_learner.votes import PRIOR_WEIGHT
from refusals import refused

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
POSTERIOR = DefaultLearner(rule="posterior", split="evidence")
EVIDENCE = DefaultLearner(split="evidence")
Seen = list[tuple[str, str, dict[str, str]]]  # value, signal, conditions


def learned(seen, learner=None):
    """Row of the insurer after these signals under these conditions."""
    made = init("insurer_name", "broker_contract", now=NOW)
    for value, signal, conditions in seen:
        made = update(made, value, signal, now=NOW, conditions=conditions, learner=learner)
    return made


def parted(row, learner=EVIDENCE):
    """Split that is due after these signals."""
    due = stratify(learned(row) if isinstance(row, list) else row, learner)
    assert due is not None
    return due


def case_12(bodies=30, covers=8, **more):
    """Page 1 is right on bodies, empty on coversheets, where users take the table of contents."""
    body, cover = {"page_1_kind": "body", **more}, {"page_1_kind": "coversheet", **more}
    signals: Seen = [("1", "explicit_yes", body)] + [("1", "implicit_ok", body)] * (bodies - 1)
    return signals + [("1", "failure", cover), ("toc", "explicit_yes", cover)] * covers


def beta(right, wrong):
    """Likelihood of so many outcomes in a given order, averaged over the prior.

    A ratio of Beta functions.
    """
    log = (
        lgamma(right + PRIOR_WEIGHT)
        + lgamma(wrong + PRIOR_WEIGHT)
        - lgamma(right + wrong + 2 * PRIOR_WEIGHT)
    )
    return exp(log - 2 * lgamma(PRIOR_WEIGHT) + lgamma(2 * PRIOR_WEIGHT))


def test_the_evidence_by_hand():
    """12 right here and 2 wrong there: averaged over rates it is as likely as so many halves.

    One rate fits worse.
    """
    one_rate = (12 / 14) ** 12 * (2 / 14) ** 2
    expected = beta(12, 0) * beta(0, 2) / one_rate
    assert evidence([0, 2], [12, 2]) == pytest.approx([expected, expected], rel=1e-9)
    assert beta(0, 1) == pytest.approx(0.5)  # the first outcome is open
    assert beta(0, 2) == pytest.approx(0.5 * 1.1 / 1.2)  # and the next is likely the same
    assert (evidence([0, 0], [12, 2]) < 1.0).all()


def test_the_evidence_is_valid_for_every_rate():
    """Its expectation under one rate is at most 1, whatever the rate.

    All outcomes of 4 and 3 trials, weighed.
    """
    for rate in (0.01, 0.2, 0.5, 0.9):
        total = 0.0
        for outcome in range(2**7):
            drawn = np.array([outcome >> bit & 1 for bit in range(7)])
            weight = rate ** drawn.sum() * (1.0 - rate) ** (7 - drawn.sum())
            total += weight * float(evidence([drawn[:4].sum(), drawn[4:].sum()], [4, 3])[0])
        assert total <= 1.0


def test_many_tables_at_once_are_each():
    """One = a cell of many, and a large count takes a larger table."""
    tables = np.array(
        [[[8, 0], [8, 30]], [[2, 1], [5, 4]], [[40, 50], [70, 230]], [[4, 300], [900, 400]]]
    )
    many = evidence(tables[:, 0], tables[:, 1])
    np.testing.assert_allclose(many, [evidence(wrong, of) for wrong, of in tables], rtol=1e-12)
    assert evidence([0, 10**6], [10**6, 10**6]).tolist() == [exp(700.0)] * 2


def test_case_12_is_found_at_the_second_cover_sheet():
    """12 cases before on bodies, and two cover sheets on which page 1 fails.

    54 against 20, not yet at the first.
    """
    # the second failure, before the user says what is right
    due = parted(case_12(bodies=12, covers=2)[:-1])
    assert due[:3] == ("page_1_kind", "coversheet", "1")
    assert (round(due.evidence, 1), due.bar) == (53.9, 20.0)
    assert stratify(learned(case_12(bodies=12, covers=1)), EVIDENCE) is None


def test_rejections_are_evidence_as_failures_are():
    """Who says no to page 1 on a cover sheet tells the same."""
    signals = [
        *case_12(bodies=12, covers=0),
        *[("1", "explicit_no", {"page_1_kind": "coversheet"})] * 2,
    ]
    assert parted(signals) == parted(case_12(bodies=12, covers=2)[:-1])


def test_what_came_first_does_not_matter():
    """Cover sheets first, bodies later: found as soon as enough bodies are right."""
    signals = case_12(bodies=12, covers=3)
    assert parted(signals[12:] + signals[:12]) == parted(signals)
    assert stratify(learned(signals[12:] + signals[:3]), EVIDENCE) is None


def test_what_is_tried_has_its_price():
    """Each further column or value tried under two conditions raises the bar by 20."""
    plain = parted(case_12(bodies=12, covers=3))
    more = [
        (value, signal, about | {"language": "fed"[at % 3]})
        for at, (value, signal, about) in enumerate(case_12(bodies=12, covers=3))
    ]
    due = parted(more)
    # toc was tried in both languages as well
    assert (plain.bar, due.bar, due[:3]) == (20.0, 60.0, plain[:3])
    assert due.evidence == plain.evidence


def test_a_learner_that_does_not_stratify():
    """It neither counts by condition nor looks."""
    learner = DefaultLearner(stratify=False)
    made = learned(case_12(), learner)
    assert made.strata == {}
    assert stratify(learned(case_12()), learner) is None


def test_the_split_learns_apart_and_the_old_row_stays():
    """Bodies keep page 1, coversheets the table of contents, both silently.

    A kind never seen falls back.
    """
    made = learned(case_12(), POSTERIOR)
    due = parted(made, POSTERIOR)
    before = made.model_dump_json()
    rows = split(made, due, now=NOW + timedelta(days=1), learner=POSTERIOR)
    parent = looked(made, due)
    assert made.model_dump_json() == before
    body, cover = rows
    assert (body.candidate_votes, body.sample_size) == ({"1": 15.5}, 30)
    assert (cover.candidate_votes, cover.counts) == ({"toc": 8.0}, {"toc": Counts(yes=8.0)})
    assert (body.requests, body.looks, body.strata, body.version) == (0, 0, {}, 0)
    failed = update(body, "1", "failure", now=NOW, learner=POSTERIOR)
    assert body.confidence == failed.confidence > 0.85
    assert parent.candidate_votes == made.candidate_votes
    for kind, row in (("body", body), ("coversheet", cover), ("scan", parent)):
        about = {"page_1_kind": kind}
        assert lookup([parent, *rows], "insurer_name", "broker_contract", about) is row


def test_the_published_rule_takes_the_split_as_well():
    """Eight yeses of eight.

    The failures that led to the split are spent, and coversheets are silent at once.
    """
    made = learned(case_12())
    due = parted(made)
    body, cover = split(made, due, now=NOW)
    assert (cover.confidence, gate(cover)) == (1.0, "apply")
    assert body.confidence == 15.5 / 30


def test_a_row_does_not_split_twice_by_one_column():
    """Of the column that it was split by the old row keeps nothing; the other columns stay."""
    made = learned(case_12(language="fr"))
    due = parted(made)
    assert list(looked(made, due).strata) == ["language"]
    assert list(looked(made).strata) == ["page_1_kind", "language"]


def test_a_column_of_one_value_is_not_tried():
    """It neither splits nor costs anything."""
    alone = learned([("1", "explicit_yes", {})] * 8 + [("1", "failure", {"language": "fr"})] * 8)
    assert stratify(alone, EVIDENCE) is None
    assert parted(case_12(language="fr")) == parted(case_12())


def test_requests_without_a_value_say_nothing_of_a_column():
    """Blank and missing are the same, and change no p-value but by what the others count."""
    blank: Seen = [
        ("1", "implicit_ok", {"page_1_kind": ""}),
        ("1", "failure", {}),
        ("1", "implicit_ok", {}),
    ] * 2
    assert parted([*case_12(), *blank]) == parted(case_12())


def test_of_two_columns_the_larger_evidence_is_taken():
    """And the first by name where they are equal."""
    signals = [
        (value, signal, about | {"a_copy": about["page_1_kind"]})
        for value, signal, about in case_12()
    ]
    due = parted(signals)
    assert (due.column, due.bar) == ("a_copy", 2 / 0.05)
    signals[0] = (*signals[0][:2], {"page_1_kind": "body", "a_copy": "coversheet"})
    assert parted(signals).column == "page_1_kind"


def test_failures_that_do_not_gather():
    """Half of bodies and half of coversheets fail: no split, however many."""
    kinds = ("body", "coversheet")
    signals: Seen = [
        ("1", signal, {"page_1_kind": kind})
        for signal in ("implicit_ok", "failure")
        for kind in kinds
    ] * 20
    assert [stratify(learned(signals[:count]), EVIDENCE) for count in range(1, 81)] == [None] * 80


def test_every_value_is_looked_at():
    """Page 1 leads and is always right.

    That the table of contents fails on cover sheets alone splits the row.
    """
    signals: Seen = [
        ("1", "explicit_yes", {"page_1_kind": kind}) for kind in ("body", "coversheet")
    ] * 10
    signals += [("toc", "implicit_ok", {"page_1_kind": "body"})] * 12
    due = parted(signals + [("toc", "failure", {"page_1_kind": "coversheet"})] * 3)
    assert (due[:3], due.bar) == (("page_1_kind", "coversheet", "toc"), 40.0)


def test_a_split_of_a_version_before():
    """It has the p-value of an exact test; the rows that it makes are the same."""
    made = learned(case_12())
    old = stored_split(
        {"column": "page_1_kind", "value": "coversheet", "p": 0.0, "bar": 0.0125, "look": 1}
    )
    assert (old.candidate, old.bar) == ("", 80.0)
    assert np.isfinite(old.evidence)
    due = parted(made)
    assert split(made, old, now=NOW) == split(made, due, now=NOW)
    assert looked(made, old) == looked(made, due)


def test_a_split_that_cannot_be_is_refused():
    """By a column that the row never counted, or at what is no time."""
    made = learned(case_12())
    refused(
        "a row splits by a column that it counts, got 'language'",
        split,
        made,
        Split("language", "fr", "1", 99.0, 20.0),
        now=NOW,
    )
    refused(
        "now must be a datetime",
        split,
        made,
        Split("page_1_kind", "body", "1", 99.0, 20.0),
        now="today",
    )


def test_a_split_keeps_what_is_remembered():
    """Half of the votes are forgotten.

    The new rows have half of theirs, and what they had is their sample.
    """
    learner = DefaultLearner(half_life_days=30.0, split="evidence")
    made = learned(case_12(), learner)
    made = update(
        made, "1", "failure", now=NOW + timedelta(days=30), conditions={}, learner=learner
    )
    due = parted(made, learner)
    rows: Any = split(made, due, now=made.last_refreshed, learner=learner)
    left = made.remembered / made.sample_size
    assert left == pytest.approx(24.0 / 47.0)
    assert rows[1].candidate_votes == {"toc": pytest.approx(8.0 * left)}
    assert (rows[1].sample_size, rows[1].remembered) == (8, pytest.approx(8.0 * left))
