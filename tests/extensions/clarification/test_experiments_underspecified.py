"""What `experiments/underspecified.py` counts, by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def experiment():
    """The module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        sys.modules.pop("experiments.underspecified", None)
        yield importlib.import_module("experiments.underspecified")


def test_the_threshold_keeps_to_five_percent(experiment):
    """Two of 40 others lie above it, and none where they are all alike."""
    scores, vague = np.arange(60.0), np.arange(60) >= 40
    assert (scores[~vague] > experiment.threshold(scores, vague)).sum() == 2
    assert experiment.threshold(np.ones(60), vague) == 1.0


def test_a_score_is_made_of_the_rest_alone(experiment):
    """It gets the turns that are not held out."""
    vague, domain = np.tile(np.arange(40) >= 20, 2), np.repeat(["a", "b"], 40)
    scored_domains: list[set[str]] = []

    def score(rows):
        scored_domains.append({*domain[rows]})
        return np.zeros(80)

    experiment.ask_rates(score, vague, domain)
    assert scored_domains == [{"b"}, {"a"}]
