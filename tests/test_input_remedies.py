"""Remedies of the doors that a newcomer met.

Columns, units, bounds and labels given as signals (S2.15, S2.19).
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import raglab

CONF = {"higher": "surer", "unit": "percent"}


def _frame():
    """Forty questions of three hits, two thirds to answer.

    `conf` lies from 40 to 95, `right` is of the hits.
    """
    rng, rows = np.random.default_rng(0), []
    for number in range(40):
        label = "ok" if number % 3 else "refuse"
        for hit in range(3):
            right = int(label == "ok" and hit == number % 2)
            source = f"d{number}-{number % 2}.md" if label == "ok" else None
            row = (
                f"question {number}?",
                f"d{number}-{hit}.md",
                float(rng.integers(40, 95)),
                label,
                right,
                source,
            )
            rows.append(row)
    return pd.DataFrame(
        rows, columns=["query", "hit_id", "conf", "label", "right", "expect_sources_any"]
    )


def _refusal(frame, **how):
    with pytest.raises((ValueError, TypeError)) as refused:
        raglab.trace_from_frame(frame, **how)
    return str(refused.value)


def _warned(frame, signals):
    """A trace, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = raglab.trace_from_frame(frame, score=None, signals=signals)
    return trace, [str(warning.message) for warning in caught]


class TestColumns:
    """A refusal states value and remedy."""

    @pytest.mark.parametrize("unit", ["probability", "share"])
    def test_a_percentage_is_no_share(self, unit):
        """The hint stays; of another unit there is none."""
        declared = {"conf": {"higher": "surer", "unit": unit}}
        frame = _frame().drop(columns="right")
        assert "percentage?" in _refusal(frame, score=None, signals=declared)
        frame.loc[0, "conf"] = float("inf")
        assert "percentage?" not in _refusal(frame, score=None, signals={"conf": CONF})


class TestLabels:
    """A column that repeats a label, given as a signal."""

    @pytest.mark.parametrize("unit", ["number", "probability", "flag"])
    def test_right_hits_are_told(self, unit):
        """In all rows of cases with sources; one question that differs in both ways is silent."""
        signals = {"conf": CONF, "right": {"higher": "surer", "unit": unit}}
        _, messages = _warned(_frame(), signals)
        assert any("says of all 78 hits whether they are expected" in text for text in messages)
        frame = _frame()
        frame.loc[frame["query"] == "question 1?", "right"] = 0
        assert not any("must not know" in text for text in _warned(frame, signals)[1])

    def test_the_label_is_told_either_way(self):
        """Whether 1 is to answer or to refuse; a column without a label to agree with is silent."""
        plain = _frame().drop(columns=["right", "expect_sources_any"])
        for label in ("ok", "refuse"):
            signals = {
                "known": {"higher": "surer" if label == "ok" else "ask", "unit": "number"},
                "conf": CONF,
            }
            frame = plain.assign(known=(plain["label"] == label).astype(int))
            assert any(
                "says of all 40 cases the label" in text for text in _warned(frame, signals)[1]
            )
            unlabelled = _warned(frame.drop(columns="label"), signals)[1]
            assert not any("must not know" in text for text in unlabelled)


class TestScale:
    """Percentages beside shares."""

    @pytest.mark.usefixtures("quick_study")
    def test_a_bound_of_another_scale_is_told(self):
        """By `decide` and by `tune`, with the range.

        Not the start, nor a bound just below the least value.
        """
        trace, _ = _warned(_frame().drop(columns="right"), {"conf": CONF})
        start = raglab.lab.starting_policy(trace)
        typed = start.replace("signals.conf.min", 0.55)
        message = (
            r"gate signals\.conf fires on none of 40 cases, .*: min is 0\.55, signal conf is 4\d "
            r"to \d\d;"
        )
        with pytest.warns(UserWarning, match=message):
            raglab.decide(trace, typed)
        result = raglab.tune(trace, candidates={"typed": typed}, trials=2)
        texts = " ".join(result.findings["text"])
        assert re.search(message.removesuffix(";"), texts)
        assert "typed" in texts
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            raglab.decide(trace, start)
            raglab.decide(trace, start.replace("signals.conf.min", 38.0))
