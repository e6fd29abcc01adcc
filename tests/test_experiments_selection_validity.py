"""Worlds, families and promises of `experiments/selection_validity.py`."""

from __future__ import annotations

import importlib
import sys
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

import raglab
from raglab.values import Status

FOLDER = Path(raglab.__file__).parents[1] / "experiments"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        # at the end: tests have modules of other scripts' names
        patch.setattr(sys, "path", [*sys.path, str(FOLDER)])
        module = importlib.import_module("selection_validity")
    yield module
    del sys.modules[module.__name__]


def test_the_true_risk_is_that_of_many_cases(script):
    """Exact over the rows of a world: what 100,000 drawn cases come near to."""
    setting = next(iter(script.settings().values()))
    family = script.threshold("confidence", script.drawn(setting.of, 100, np.random.default_rng(0)))
    value = np.array([60.0])
    status = family.decide(setting.of.signals, setting.of.can_ask, value)[0]
    risk, coverage = script.true_risk(setting.of, status)
    many = script.drawn(setting.of, 100_000, np.random.default_rng(1))
    answered = family.decide(many.signals, many.can_ask, value)[0] == Status.ok
    assert answered.mean() == pytest.approx(coverage, abs=0.006)
    assert (many.classes[answered] != 0).mean() == pytest.approx(risk, abs=0.01)


def test_each_case_is_answered_up_to_its_ratio(script):
    """The family holds the breakpoints of its cases.

    One case more, or some that are alike, at each lower ratio.
    """
    setting = next(iter(script.settings().values()))
    cases = script.drawn(setting.of, 150, np.random.default_rng(2))
    family = script.by_expected_cost(cases)
    answered = (family.decide(cases.signals, cases.can_ask, family.values) == Status.ok).sum(axis=1)
    assert answered[0] == 150
    assert (np.diff(answered[family.values != 1.0]) < 0).all()
    above = family.decide(cases.signals, cases.can_ask, family.values * (1.0 + 1e-6))
    assert ((above == Status.ok).sum(axis=1) <= answered).all()
    assert not (above[-1] == Status.ok).any()


def test_a_candidate_replaces_the_incumbent_only_by_saving(script):
    """One that decides as the incumbent saves nothing.

    One that knows the classes saves much (rule S6.8).
    """
    setting = next(iter(script.settings().values()))
    cases = script.drawn(setting.of, 150, np.random.default_rng(3))
    rng = np.random.default_rng(0)
    same = {name: script.cross_fitted(recipe, cases, rng) for name, recipe in script.FREE.items()}
    incumbent = script.selected(cases, "mine", same["always-answer"])
    assert incumbent in script.FREE
    assert script.selected(cases, "mine", same[incumbent]) == incumbent

    def known(of):
        return script.Family(
            np.zeros(1), 0.0, lambda *_: script.LABEL_OF_CLASS[of.classes][None], tuple(Status)
        )

    fold = same[incumbent].fold
    learned = script.CrossFitted(
        tuple(known(cases.rows(fold == held)) for held in range(script.FOLDS)), fold
    )
    assert script.selected(cases, "mine", learned) == "mine"
    assert script.dearest((Status.ok,)) == script.dearest(tuple(Status)) == 1.0


def test_promises_hold_with_fit_and_choice_inside_each_repeat(script):
    """In 12 repeats no more are broken than delta and three standard errors.

    Something is certified in most.
    """
    found = script.simulated(next(iter(script.settings().values())), 12, 7)
    most = script.DELTA + 3.0 * sqrt(script.DELTA * (1.0 - script.DELTA) / 12)
    assert (found.broken[2:] <= most).all()
    assert (found.promised[3:] > 0.5).all()
    assert found.broken[0] > most  # what is read off the cases that it was fitted on does not hold
    assert sum(found.won.values()) == 12
