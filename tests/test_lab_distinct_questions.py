"""A certificate counts distinct questions: one with several cases is wrong where one of them is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from labelled import free_policy, labelled
from raglab.decision.outcome_codes import CELL_OF_CODE
from raglab.lab.certificate_checks import retest
from raglab.lab.certification import certify_best, certify_policy
from raglab.lab.certification_counts import (
    COST,
    certified_tally,
    question_losses,
    repeated_cases,
    tally_losses,
)
from raglab.metrics import RATES, cell_costs, cost_matrix, denominators, label_counts
from raglab.metrics import rate_counts as counts_of
from raglab.replay import trace_codes
from raglab.store.case_labels import question_numbers

POLICIES = [free_policy(), free_policy(similarity={"min_similarity": 0.6})]
NAMES = ["hallucination_rate", "false_refusal_rate", "over_ask_rate", COST]
TARGETS = {"hallucination_rate": 0.4}


def asking(trace, numbers):
    """The cases with the questions of these numbers, in various writing."""
    forms = ("What of {}?", "what of  {}", "WHAT OF {} ")
    return replace(
        trace,
        cases=tuple(
            case._replace(query=forms[row % 3].format(number))
            for row, (case, number) in enumerate(zip(trace.cases, numbers, strict=True))
        ),
    )


def by_hand(trace):
    """Losses and cases of each policy and target, question by question."""
    numbers = question_numbers(trace.cases)
    k, n = np.zeros((2, len(POLICIES), len(NAMES)))
    for row, cells in enumerate(CELL_OF_CODE[trace_codes(trace, POLICIES)]):
        for number in set(numbers.tolist()):
            worst = np.zeros((2, len(NAMES)))
            for cell in cells[numbers == number]:
                one = np.eye(18, dtype=np.int64)[cell]
                every = counts_of(one)
                sizes = denominators(every, label_counts(one))
                costs = cell_costs(cost_matrix(None))
                for place, name in enumerate(NAMES):
                    at = -1 if name == COST else RATES.index(name)
                    pair = (
                        (costs[cell] / costs.max(), 1) if name == COST else (every[at], sizes[at])
                    )
                    worst[:, place] = np.maximum(worst[:, place], pair)
            k[row] += worst[0]
            n[row] += worst[1]
    return k, n


@pytest.mark.parametrize("n_questions", [1, 30, 60])
def test_counts_are_those_of_each_question(n_questions):
    """Against a count by hand, for questions of one case, of some and of all cases."""
    numbers = np.random.default_rng(n_questions).permutation(np.arange(60) % n_questions)
    trace = asking(labelled(3, {"": 60}), numbers)
    losses = question_losses(
        tally_losses(certified_tally(trace, POLICIES, None), NAMES, None),
        repeated_cases(trace, POLICIES, question_numbers(trace.cases), None),
    )
    k, n = by_hand(trace)
    np.testing.assert_allclose(losses.k, k)
    np.testing.assert_array_equal(losses.n, n)
    assert losses.n[0, NAMES.index(COST)] == n_questions


@pytest.mark.parametrize("times", [2, 5])
def test_a_repetition_proves_nothing(times):
    """Each case several times gives the certificate of each case once."""
    trace = labelled(1, {"": 80})
    rows = np.tile(np.arange(80), times)
    many = asking(trace.subset(rows), rows)
    many = replace(
        many, cases=tuple(case._replace(id=f"c{row}") for row, case in enumerate(many.cases))
    )
    single = asking(trace, range(80))
    for certify in (certify_policy, certify_best):
        tried: Any = POLICIES[1] if certify is certify_policy else POLICIES
        once = certify(single, tried, targets=TARGETS)
        with pytest.warns(UserWarning, match="ask 80 questions") as said:
            again = certify(many, tried, targets=TARGETS)
        assert again.certificate.promises == once.certificate.promises
        assert again.certificate.cases == once.certificate.cases == 80
        assert sum("ask 80" in str(warning.message) for warning in said) == 1
    with pytest.warns(UserWarning, match="ask 80 questions"):
        checked = retest(POLICIES[1], many, TARGETS).table
    assert checked.equals(retest(POLICIES[1], single, TARGETS).table)


def test_two_questions_certify_nothing():
    """A hundred right cases of two questions are two."""
    trace = asking(labelled(0, {"certify": 100}, wrong=0.0), np.arange(100) % 2)
    with pytest.warns(UserWarning, match="ask 2 questions"):
        result = certify_best(trace, POLICIES[:1], targets=TARGETS)
    assert (result.policy, result.certificate.cases) == (None, 2)
