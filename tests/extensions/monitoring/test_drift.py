"""Hints of drift: ranks by hand, a shift is noticed, none is none, and no word of a promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labelled import labelled
from raglab.extensions.monitoring.drift import (
    EXPONENTS,
    conformal_ranks,
    log_wealth_of_ranks,
    signal_drift,
)
from raglab.store.traces import Trace
from test_lab_traffic_review import unlabelled


def shifted(trace: Trace, by: float) -> Trace:
    """Trace whose cosines are lower."""
    return replace(trace, hits=trace.hits._replace(cosine=trace.hits.cosine - np.float32(by)))


def test_ranks_by_hand() -> None:
    """From the top, among all so far; ties by chance; NaN is the lowest and ties with NaN."""
    rng = np.random.default_rng(2)
    ties = np.random.default_rng(2).random(3)
    ranks = conformal_ranks(np.array([1.0, 2.0, np.nan]), np.array([2.0, 5.0, np.nan]), rng)
    assert ranks.tolist() == pytest.approx([ties[0] * 2 / 4, ties[1] / 5, (4 + ties[2] * 2) / 6])


def test_each_bet_is_fair() -> None:
    """Its mean over uniform ranks is 1."""
    ranks = (np.arange(1_000_000) + 0.5) / 1_000_000
    for exponent in EXPONENTS[EXPONENTS >= 0.5]:
        assert (exponent * ranks ** (exponent - 1.0)).mean() == pytest.approx(1.0, abs=0.01)
    both = np.exp(log_wealth_of_ranks(np.array([0.2])))[0]
    grid = np.concatenate(
        [EXPONENTS * 0.2 ** (EXPONENTS - 1.0), EXPONENTS * 0.8 ** (EXPONENTS - 1.0)]
    )
    assert both == pytest.approx(grid.mean())


def test_a_shift_is_a_hint() -> None:
    """Of the signals that moved alone; the same seed gives the same."""
    reference, stream = labelled(1, {"": 300}), unlabelled(labelled(2, {"": 300}))
    calm = signal_drift(reference, stream, seed=1)
    assert not calm.frame()["hint"].any()
    moved = signal_drift(reference, shifted(stream, 0.4), seed=1)
    hints = moved.frame().set_index("signal")
    assert hints.loc["top1_cosine", "hint"]
    assert 1 <= hints.loc["top1_cosine", "first"] <= 300
    assert not hints.loc["words", "hint"]
    assert moved.frame().equals(signal_drift(reference, shifted(stream, 0.4), seed=1).frame())
    assert "verdict" not in repr(moved) + " ".join(moved.notes)
    assert "it may stay whole while signals drift" in repr(moved)


def test_what_is_no_stream() -> None:
    """An empty trace."""
    trace = labelled(1, {"": 20})
    with pytest.raises(ValueError, match="delta must be in"):
        signal_drift(trace, trace, seed=1, delta=0.9)


def test_false_hints_are_rare() -> None:
    """Of 300 pairs of one world, every request looked at, all signals together."""
    hints = [
        signal_drift(
            labelled(2 * seed, {"": 60}), labelled(2 * seed + 1, {"": 120}), seed=seed, delta=0.2
        )
        .frame()["hint"]
        .any()
        for seed in range(300)
    ]
    assert np.mean(hints) <= 0.2 + 3 * 0.023
