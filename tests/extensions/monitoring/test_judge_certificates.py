"""Certificates by a judge and a few people.

The range of the steps, the mean of a step, the certificate, its error.
"""

from __future__ import annotations

import itertools
import warnings
from math import log
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.extensions.monitoring.betting import bet, opening_wealth
from raglab.extensions.monitoring.judge_certificates import (
    COEFFICIENTS,
    certify_judged,
    judged_steps,
    judged_wealth,
    people_and_judge,
    step_range,
)
from raglab.extensions.monitoring.judged_requests import judged_requests, rate_parts
from raglab.metrics.decision_rates import OBJECTIVES
from raglab.store.files import InputError

HALLUCINATION = {"hallucination_rate": 0.1}
LABELS = ("ok", "refuse", "ambiguous")


def requests(
    seed: int, size: int = 2000, wrong: float = 0.02, probability: float = 0.2, sees: float = 0.9
) -> pd.DataFrame:
    """Answers of which each is drawn by itself, and a judge that is right in so many."""
    rng = np.random.default_rng(seed)
    is_wrong = rng.random(size) < wrong
    judge = np.where(rng.random(size) < sees, is_wrong, ~is_wrong)
    label = np.where(rng.random(size) < probability, np.where(is_wrong, "refuse", "ok"), "")
    columns = {"decision": "ok", "judge": np.where(judge, "refuse", "ok"), "label": label}
    return pd.DataFrame({**columns, "inclusion_probability": probability})


@pytest.mark.parametrize("rate", OBJECTIVES)
@pytest.mark.parametrize("alpha", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("least", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_no_step_leaves_the_range(
    rate: str, alpha: float, least: float, coefficient: float
) -> None:
    """Every decision, label, judge's label, drawn or not, at several probabilities.

    An end is reached for an answer.
    """
    rows = pd.DataFrame(
        [*itertools.product(LABELS, LABELS, LABELS)], columns=["decision", "label", "judge"]
    )
    steps: list[Any] = []
    for probability in np.linspace(least, 1.0, 4):
        judged = judged_requests(rows.assign(inclusion_probability=1.0))
        human, judge, drawn, _ = people_and_judge(judged, rate_parts(judged, rate), alpha)
        chances = np.full(len(rows), probability)
        steps += [
            judged_steps(human, judge, is_drawn, chances, coefficient)
            for is_drawn in (drawn, ~drawn)
        ]
    low, high = step_range(alpha, least, coefficient)
    assert np.min(steps) >= low - 1e-9
    assert np.max(steps) <= high + 1e-9
    if rate == "hallucination_rate":
        assert np.min(steps) == pytest.approx(low)
        assert np.max(steps) == pytest.approx(high)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("probability", [0.1, 0.5, 1.0])
def test_the_mean_of_a_step_is_what_people_say(coefficient: float, probability: float) -> None:
    """Over the draw, whatever the judge says."""
    for human, judge in itertools.product((-0.1, 0.0, 0.9), repeat=2):
        steps = judged_steps(
            np.full(2, human),
            np.full(2, judge),
            np.array([True, False]),
            np.full(2, probability),
            coefficient,
        )
        assert probability * steps[0] + (1.0 - probability) * steps[1] == pytest.approx(human)


def test_wealth_by_hand() -> None:
    """The mean over the three coefficients; that without a judge is at least a third of it."""
    human, judge = np.array([-0.1, 0.0, 0.9]), np.array([-0.1, 0.9, 0.9])
    parts = (human, judge, np.array([True, False, True]), np.full(3, 0.5))
    path = judged_wealth(parts, 0.1, 0.5, below=True)
    paths = [
        bet(opening_wealth(*step_range(0.1, 0.5, c), below=True), judged_steps(*parts, c))[0]
        for c in COEFFICIENTS
    ]
    assert np.exp(path) == pytest.approx(np.exp(paths).mean(axis=0))
    assert (path >= paths[0] - log(3.0) - 1e-12).all()


class TestCertificate:
    """`certify_judged`."""

    def test_certified(self) -> None:
        """2 % wrong against 10 %."""
        certificate = certify_judged(requests(1).assign(policy_id="p1"), targets=HALLUCINATION)
        assert (certificate.chosen, certificate.certified, certificate.method) == (
            "p1",
            ("p1",),
            "betting",
        )
        assert certificate.coverage == 1.0
        assert certificate.cases == 2000
        assert certificate.delta == 0.1
        (promise,) = certificate.promises
        labels = requests(1)["label"]
        assert (promise.k, promise.n, promise.bound) == (
            (labels == "refuse").sum(),
            (labels != "").sum(),
            0.1,
        )
        assert "hallucination_rate at most 0.1 with confidence 0.9" in certificate.reason

    def test_not_certified(self) -> None:
        """20 % wrong: no bound is claimed, and the wealth is stated."""
        certificate = certify_judged(requests(2, wrong=0.2), targets=HALLUCINATION)
        assert certificate.chosen is None
        assert certificate.certified == ()
        assert certificate.coverage == 0.0
        assert certificate.promises[0].bound == 1.0
        assert "of the 10 that it needs" in certificate.reason

    def test_all_targets_must_pass(self) -> None:
        """A second target that nothing is known of stops it; the whole delta is each one's."""
        targets = {**HALLUCINATION, "missed_ambiguity_rate": 0.1}
        certificate = certify_judged(requests(1), targets=targets)
        assert certificate.chosen is None
        assert certificate.binding == "missed_ambiguity_rate"
        assert [promise.bound for promise in certificate.promises] == [0.1, 1.0]

    def test_the_order_is_nothing(self) -> None:
        """It is read at the end."""
        rows = requests(3)
        first, second = (
            certify_judged(each, targets=HALLUCINATION)
            for each in (rows, rows.sample(frac=1.0, random_state=0))
        )
        assert first == second

    def test_a_judge_alone_certifies_nothing(self) -> None:
        """If nobody of 400 due was drawn, the probabilities are not those of the draw."""
        rows = requests(4, wrong=0.0, sees=1.0).assign(label="")
        with pytest.raises(
            InputError, match=r"about 400 requests in all must be drawn.*got 0 of 2000"
        ):
            certify_judged(rows, targets=HALLUCINATION)
        rare = rows.assign(inclusion_probability=0.005)
        assert certify_judged(rare, targets=HALLUCINATION).chosen is None

    @pytest.mark.parametrize("elsewhere", ["", "ok"])
    def test_a_judge_that_knows_who_is_drawn(self, elsewhere: str) -> None:
        """15 % are wrong, of at most 10 %: the wealth would be enough, and nothing is certified."""
        rows = requests(6, wrong=0.15)
        rows["judge"] = np.where(rows["label"] != "", "refuse", elsewhere)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            certificate = certify_judged(rows, targets=HALLUCINATION)
            judged = judged_requests(rows)
        steps = people_and_judge(judged, rate_parts(judged, "hallucination_rate"), 0.1)
        assert judged_wealth(steps, 0.1, 0.2, below=True)[-1] > log(10.0)
        assert certificate.chosen is None
        assert certificate.promises[0].bound == 1.0
        assert "without knowing who is drawn" in certificate.reason

    def test_unlabelled_drawn_ones_count_as_errors(self) -> None:
        """300 of them leave nothing to certify."""
        rows = requests(1)
        drawn = rows["label"] != ""
        blank = rows.assign(drawn=drawn, label=rows["label"].where(drawn.cumsum() > 300, ""))
        with pytest.warns(UserWarning, match="300 drawn ones have no full label"):
            assert certify_judged(blank, targets=HALLUCINATION).chosen is None

    def test_what_is_refused(self) -> None:
        """A request without a probability; an alpha, delta or rate that is none."""
        with pytest.raises(
            InputError,
            match="inclusion_probability must be known of every request, got 2000 without",
        ):
            certify_judged(requests(1).drop(columns="inclusion_probability"), targets=HALLUCINATION)
        cases: list[tuple[dict[str, float], float, str]] = [
            ({"hallucination_rate": 1.0}, 0.1, "alpha must be in"),
            (HALLUCINATION, 0.5, "delta must be in"),
            ({"coverage": 0.5}, 0.1, "rates must be some of"),
            ({}, 0.1, "rates must be some of"),
        ]
        for targets, delta, message in cases:
            with pytest.raises(ValueError, match=message):
                certify_judged(requests(1), targets=targets, delta=delta)

    @pytest.mark.parametrize("column", ["stratum", "inclusion_probability"])
    def test_swapped_probabilities(self, column: str) -> None:
        """Of two halves: the number in all is right, that of each half is not."""
        rows, half = requests(5), np.arange(2000) < 1000
        drawn = np.random.default_rng(5).random(2000) < np.where(half, 0.1, 0.3)
        rows = rows.assign(
            label=np.where(drawn, "ok", ""), inclusion_probability=np.where(half, 0.3, 0.1)
        )
        rows = rows.assign(stratum=half) if column == "stratum" else rows
        with pytest.raises(
            InputError, match=r"about (300|100) requests of a stratum must be drawn"
        ):
            certify_judged(rows, targets=HALLUCINATION)
        rows["inclusion_probability"] += np.arange(2000) / 1e6
        with pytest.raises(InputError, match="requests of a like probability must be drawn"):
            certify_judged(rows.drop(columns="stratum", errors="ignore"), targets=HALLUCINATION)

    def test_types(self) -> None:
        """Targets that are no mapping of numbers, and a delta that is a text."""
        cases: list[tuple[Any, Any]] = [
            (["hallucination_rate"], 0.1),
            ({"hallucination_rate": "x"}, 0.1),
            (HALLUCINATION, "x"),
        ]
        for targets, delta in cases:
            with pytest.raises(
                TypeError, match=r"targets and delta must be numbers, got .*; write"
            ):
                certify_judged(requests(5), targets=targets, delta=delta)


@pytest.mark.parametrize("sees", [0.5, 0.95])
def test_false_certificates(sees: float) -> None:
    """At the bound itself at most delta of 400 draws certify, beyond chance."""
    count = sum(
        certify_judged(
            requests(seed, size=1000, wrong=0.1, sees=sees), targets=HALLUCINATION
        ).chosen
        is not None
        for seed in range(400)
    )
    assert count <= 40 + 2.6 * 6
