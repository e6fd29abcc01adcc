"""Rates by a judge and a few people: by hand, laws, refusals, then coverage."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.extensions.monitoring.judge_intervals import (
    difference,
    human_draw,
    judged_rates,
    rate_row,
)
from raglab.extensions.monitoring.judged_requests import JudgedRequests, judged_requests, rate_parts
from raglab.metrics.decision_rates import OBJECTIVES
from raglab.metrics.intervals import clopper_pearson

LABELS = ("ok", "refuse", "ambiguous")
HALLUCINATION = "hallucination_rate"


def answers(judge, human, **columns):
    """Answers, of each whether the judge and a person call it wrong."""
    texts = {True: "refuse", False: "ok", None: ""}
    of = {
        "decision": "ok",
        "judge": [texts[wrong] for wrong in judge],
        "label": [texts[wrong] for wrong in human],
    }
    return pd.DataFrame({**of, **columns})


def estimate(frame, rate=HALLUCINATION, *, judged=True):
    """Difference estimate, without a refusal."""
    requests = judged_requests(frame)
    return difference(
        requests, rate_parts(requests, rate), human_draw(requests), 0.95, judged=judged
    )


def row_of(frame, rate=HALLUCINATION):
    """Row of one rate."""
    (row,) = judged_rates(frame, rates=[rate]).itertuples()
    return row


def crowd(seed, size=600, labelled=300):
    """Requests of all decisions and labels, half labelled, drawn evenly from each of two strata."""
    rng = np.random.default_rng(seed)
    decision, label = (rng.choice(LABELS, size, p=[0.6, 0.25, 0.15]) for _ in range(2))
    judge = np.where(rng.random(size) < 0.8, label, rng.choice(LABELS, size))
    stratum = np.where(np.arange(size) < size // 3, "a", "b")
    drawn = np.zeros(size, dtype=bool)
    for name in ("a", "b"):
        drawn[rng.choice(np.flatnonzero(stratum == name), labelled // 2, replace=False)] = True
    columns = {
        "decision": decision,
        "judge": judge,
        "label": np.where(drawn, label, ""),
        "truth": label,
    }
    return pd.DataFrame({**columns, "stratum": stratum})


def test_by_hand():
    """Ten answers, four labelled.

    People: 1 of 4 wrong, of which the judge sees it and calls another wrong too.

    The variance of the labels is 1/4 and so is their covariance with the judge's, 1/6; the judge's
    is 1/3. So c is 1/2. The judge calls 4 of 10 wrong: 1/2 · 4 + 10/4 · (1 − 1/2 · 2) = 2, of 10.
    """
    judge = [True, True, False, False, True, True, False, False, False, False]
    found = estimate(answers(judge, [True, False, False, False] + [None] * 6))
    assert found.coefficient == pytest.approx(0.5)
    assert found.estimate == pytest.approx(0.2)
    assert found.low < 0.2 < found.high


def test_a_census_is_the_plain_rate():
    """All labelled: the rate, without an interval around it, whatever the judge says."""
    rows = crowd(1)
    table = judged_rates(rows.assign(label=rows["truth"]))
    for row in table.itertuples():
        each = (row.estimate, row.low, row.high, row.human_only)
        assert each == pytest.approx([row.k / row.n] * 4)


def test_a_perfect_judge():
    """The estimate is the judge's rate where c is 1.

    The interval still allows an error that nobody has met.
    """
    rng = np.random.default_rng(2)
    wrong = (rng.random(1000) < 0.2).tolist()
    found = estimate(answers(wrong, wrong[:200] + [None] * 800))
    assert found.coefficient == 1.0
    assert found.estimate == pytest.approx(np.mean(wrong))
    assert 0.005 < found.high - found.estimate < 0.03


def test_the_stratified_estimate_of_people_alone():
    """By hand: stratum a has 2 wrong of 10 labelled of 20, b 5 of 10 of 80.

    That is (4 + 40) / 100.
    """
    human: list[bool | None] = (
        [True] * 2 + [False] * 8 + [None] * 10 + [True] * 5 + [False] * 5 + [None] * 70
    )
    rows = answers([False] * 100, human, stratum=["a"] * 20 + ["b"] * 80)
    assert estimate(rows, judged=False).estimate == pytest.approx(0.44)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(LABELS),
            st.sampled_from(LABELS),
            st.sampled_from((*LABELS, "")),
            st.sampled_from("ab"),
        ),
        min_size=8,
        max_size=40,
    ),
    st.randoms(use_true_random=False),
    st.sampled_from(OBJECTIVES),
)
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_rows_is_nothing(rows, random, rate):
    """Any order of the rows gives the same, and the ends enclose the estimate."""
    frame = pd.DataFrame(rows, columns=["decision", "judge", "label", "stratum"])
    shuffled = frame.sample(frac=1.0, random_state=random.randrange(1000))
    first, second = estimate(frame, rate), estimate(shuffled, rate)
    assert first == pytest.approx(second, nan_ok=True, abs=1e-9)
    assert np.isnan(first.estimate) or first.low <= first.estimate + 1e-9 <= first.high + 2e-9


class TestRefusal:
    """What gives no interval."""

    @pytest.mark.parametrize(
        ("wrong", "right", "reason"),
        [
            (10, 39, "49 answered, an interval needs 50"),
            (9, 50, "9 errors of 59 answered, an interval needs 10"),
            (50, 9, "50 errors of 59 answered, an interval needs 10"),
            (10, 40, ""),
        ],
    )
    def test_few_labels(self, wrong, right, reason):
        """Fewer than 50 labels, 10 errors or 10 others; what people alone tell stays."""
        human = [True] * wrong + [False] * right + [None] * (wrong + right)
        judge = ([True] * wrong + [False] * right) * 2
        row = row_of(answers(judge, human))
        assert np.isnan(row.estimate) == np.isnan(row.low) == bool(reason)
        assert (reason in row.reason, bool(row.reason)) == (True, bool(reason))
        assert (row.human_low, row.human_high) == clopper_pearson(wrong, wrong + right)[:2]

    def test_labels_of_the_denominator_and_of_each_stratum(self):
        """60 labels of which 40 are answerable give no rate of false refusals.

        Of a stratum without labels nothing is known but what the judge says.
        """
        rows = pd.DataFrame({"decision": (["refuse"] * 30 + ["ok"] * 30) * 2, "judge": "ok"})
        rows["label"] = (["ok"] * 20 + ["refuse"] * 10) * 2 + [""] * 60
        reason = row_of(rows, "false_refusal_rate").reason
        assert "40 answerable, an interval needs 50" in reason
        human: list[bool | None] = [True] * 30 + [False] * 30 + [None] * 60
        strata = ["a"] * 90 + ["b"] * 30
        reason = row_of(answers([False] * 120, human, stratum=strata)).reason
        assert "1 strata of 30 requests" in reason

    def test_a_useless_judge_saves_nothing(self):
        """It is said."""
        human: list[bool | None] = [True, False] * 50 + [None] * 900
        judge = [False, False, True, True] * 250
        row = row_of(answers(judge, human))
        said = (row.coefficient, row.labels_saved, row.reason)
        assert said == (0.0, 0, "no labels are saved")

    @pytest.mark.parametrize("is_silent", [True, False])
    def test_a_judge_that_knows_who_is_drawn(self, *, is_silent):
        """Run on the drawn ones alone, or calling errors there alone.

        The estimate would be far below 10 %.
        """
        rng = np.random.default_rng(8)
        wrong, drawn = rng.random(4000) < 0.1, rng.random(4000) < 0.15
        human = [bool(each) if is_in else None for each, is_in in zip(wrong, drawn, strict=True)]
        rows = answers((wrong & drawn).tolist(), human)
        rows.loc[~drawn & is_silent, "judge"] = ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row = row_of(rows)
        assert np.isnan(row.estimate)
        assert "must not know who is drawn" in row.reason
        assert row.human_low < wrong.mean() < row.human_high

    def test_an_estimate_outside_of_peoples_interval(self):
        """It is shown with both, and said.

        A judge that calls fewer errors among the rest, not beyond chance.
        """
        human: list[bool | None] = [True] * 60 + [False] * 240 + [None] * 1200
        judge = [True] * 60 + [False] * 240 + [True] * 150 + [False] * 1050
        row = row_of(answers(judge, human))
        assert 0.0 < row.estimate < row.human_low
        assert "outside people's own interval" in row.reason

    def test_level(self):
        """Is in (0, 1)."""
        with pytest.raises(ValueError, match="level must be in"):
            judged_rates(answers([True], [True]), level=1.0)


def test_labels_saved_by_hand():
    """Without a judge nothing is saved.

    Of the estimate's own variance the formula gives back its own labels.
    """
    rows = crowd(5)
    requests = judged_requests(rows)
    parts, draw = rate_parts(requests, HALLUCINATION), human_draw(requests)
    alone, judged = (
        difference(requests, parts, draw, 0.95, judged=judged) for judged in (False, True)
    )
    row = rate_row(requests, HALLUCINATION, 0.95)
    needed = 300 * (alone.variance + alone.finite) / (judged.variance + alone.finite)
    assert 0 < row["labels_saved"] == int(needed) - 300


def test_drawn_ones_without_a_label_make_it_wider():
    """They may be errors or none."""
    human: list[bool | None] = [True] * 20 + [False] * 80 + [None] * 200
    judge = ([True] * 20 + [False] * 80) * 3
    drawn = answers(judge, human, drawn=[True] * 110 + [False] * 190)
    with pytest.warns(UserWarning, match="10 drawn ones have no full label"):
        row = row_of(drawn)
    full = row_of(answers(judge, human))
    assert (row.unlabelled, row.estimate) == (10, pytest.approx(full.estimate))
    assert row.low < full.low < full.high < row.high


@pytest.mark.parametrize("rate", OBJECTIVES)
@pytest.mark.parametrize("judge_is_right", [0.5, 0.9])
def test_coverage(rate, judge_is_right):
    """400 draws of 300 from 2,000 requests in two strata.

    A nominal 95 % holds in 92 % at least, beyond chance.
    """
    rng = np.random.default_rng(6)
    size = 2000
    label, status = (rng.choice(3, size, p=[0.5, 0.2, 0.3]) for _ in range(2))
    judge = np.where(rng.random(size) < judge_is_right, label, rng.choice(3, size))
    stratum = (np.arange(size) < 400).astype(np.int64)
    nothing = np.full(size, np.nan)
    whole = JudgedRequests(
        status, 2 * judge + 1, 2 * label + 1, np.ones(size, dtype=bool), nothing, stratum
    )
    everything = rate_parts(whole, rate)
    truth = everything.k.sum() / everything.n.sum()
    covered = []
    for _ in range(400):
        drawn = np.zeros(size, dtype=bool)
        for number in (0, 1):
            drawn[rng.choice(np.flatnonzero(stratum == number), 150, replace=False)] = True
        row = rate_row(
            whole._replace(human=np.where(drawn, whole.human, -1), drawn=drawn), rate, 0.95
        )
        covered.append(row["low"] <= truth <= row["high"])
    assert np.mean(covered) >= 0.92
