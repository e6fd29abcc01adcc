"""A signal as a probability: what is fitted, what is held out, what is left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import raglab
from raglab.lab.signal_calibration import calibrate_signal
from raglab.live.signal_functions import SignalFunction
from raglab.store.frames import trace_from_frame
from refusals import refused


def trace_of_labels(labels, values):
    """A case a label, one hit each, with a signal `yes_no`."""
    rows = [
        {
            "case_id": f"q{n}",
            "query": f"What is {n}?",
            "hit_id": f"p{n}",
            "score": 0.9,
            "text": "Text.",
            "label": label,
        }
        for n, label in enumerate(labels)
    ]
    return trace_from_frame(pd.DataFrame(rows)).with_signal(
        "yes_no", values, higher="surer", unit="probability"
    )


def low_scores(n=1000, seed=0):
    """A signal that never passes .42, as a small model's P(yes).

    Right in half of the cases at .3, in few at .1.
    """
    rng = np.random.default_rng(seed)
    values = rng.choice([0.05, 0.1, 0.2, 0.3, 0.4], size=n)
    labels = np.where(rng.random(n) < 2.0 * values, "ok", "refuse")
    return trace_of_labels(labels.tolist(), values.tolist())


def test_a_probability_is_near_the_share_of_right_cases():
    """Held out, the error falls from about .2 to a third of it."""
    made = calibrate_signal(low_scores(), "yes_no")
    frame = made.frame()
    assert frame.index.tolist() == ["before", "in sample", "cross-fitted"]
    assert frame.loc["before", "ece"] > 0.15
    assert frame.loc["cross-fitted", "ece"] < frame.loc["before", "ece"] / 2
    assert made.auroc_low < made.auroc < made.auroc_high
    assert made.probability(0.4) > 0.6
    assert np.isnan(made.probability(np.nan))
    assert "AUROC" in repr(made)


def test_the_trace_holds_the_held_out_probability():
    """Under a name of its own, so that a threshold may be tuned on the same cases.

    Another name is taken.
    """
    trace = low_scores()
    made = raglab.lab.calibrate_signal(trace, "yes_no")
    column = made.trace.signal("yes_no_probability")
    assert column.to_numpy() == pytest.approx(made.calibrated.p)
    assert trace.signal("yes_no").equals(made.trace.signal("yes_no"))
    assert calibrate_signal(trace, "yes_no", name="sure").trace.signal("sure").notna().all()


def test_what_has_no_label_or_value_is_left_out_of_the_fit():
    """An ambiguous case gets the probability of the calibrator, one without a value none."""
    trace = low_scores()
    labels = [case.expect_status for case in trace.cases]
    values = trace.signal("yes_no").tolist()
    more = trace_of_labels([*map(str, labels), "ambiguous", "ok"], [*values, 0.4, float("nan")])
    made, alone = calibrate_signal(more, "yes_no"), calibrate_signal(trace, "yes_no")
    assert made.calibrated.in_sample.n == len(trace)
    column = made.trace.signal("yes_no_probability").to_numpy()
    assert column[-2] == pytest.approx(float(alone.probability(0.4)))
    assert np.isnan(column[-1])


def test_cases_of_a_group_stay_together():
    """One value a case; where a group has one outcome alone it is in one fold."""
    trace = low_scores()
    groups = np.arange(len(trace)) // 10
    made = calibrate_signal(trace, "yes_no", groups=groups)
    assert not np.array_equal(made.calibrated.p, calibrate_signal(trace, "yes_no").calibrated.p)
    refused("one value a case", calibrate_signal, trace, "yes_no", groups=groups[1:])


def test_a_signal_outside_the_unit_interval_has_no_error_before():
    """A logit is no probability: it is calibrated all the same."""
    trace = low_scores()
    logits = trace.signal("yes_no").to_numpy()
    wide = trace.with_signal("logit", np.log(logits / (1 - logits)), higher="surer", unit="logit")
    made = calibrate_signal(wide, "logit", method="platt")
    assert made.before is None
    assert made.frame().index.tolist() == ["in sample", "cross-fitted"]


@pytest.mark.parametrize("n", [0, 9])
def test_too_few_cases_of_a_kind_are_refused(n):
    """With both counts."""
    trace = trace_of_labels(["ok"] * 40 + ["refuse"] * n, [0.5] * (40 + n))
    refused(rf"got 40 and {n}", calibrate_signal, trace, "yes_no")


def test_groups_must_be_known():
    """A case without a group is in no group with others that have none."""
    trace = low_scores(100)
    for missing in (None, float("nan")):
        groups = [*(f"d{n}" for n in range(99)), missing]
        refused(
            "got 99 for 100 cases",
            calibrate_signal,
            trace,
            "yes_no",
            groups=np.array(groups, dtype=object),
        )


def test_what_is_made_of_labels_is_not_calibrated():
    """Nor does a probability take the signal's own place."""
    made = calibrate_signal(low_scores(), "yes_no", name="sure").trace
    refused("must not be made of the labels", calibrate_signal, made, "sure")
    refused(
        "name must be another than the signal's", calibrate_signal, made, "yes_no", name="yes_no"
    )
    assert calibrate_signal(made, "yes_no", name="sure").trace is made


def test_a_signal_of_answers_stays_one():
    """Its probability is there no earlier than it, and as missing as it."""
    trace = low_scores()
    values = trace.signal("yes_no").to_numpy()
    trace = trace.with_signal(
        "grade", values, higher="surer", unit="probability", stage="answer", missing="passes"
    )
    stated = calibrate_signal(trace, "grade").trace.meta["signals"]["grade_probability"]
    assert (stated["stage"], stated["missing"]) == ("answer", "passes")


def test_the_stored_column_has_an_auroc_of_its_own():
    """Cross-fitted maps change ranks between folds.

    A signal that tells nothing ranks worse as stored.
    """
    rng = np.random.default_rng(3)
    labels = np.where(rng.random(80) < 0.5, "ok", "refuse").tolist()
    made = calibrate_signal(trace_of_labels(labels, rng.random(80).tolist()), "yes_no")
    y = np.array(labels) == "ok"
    assert made.auroc == pytest.approx(
        raglab.metrics.auroc(y, made.trace.signal("yes_no").to_numpy())
    )
    assert made.auroc_stored == pytest.approx(
        raglab.metrics.auroc(y, made.trace.signal(made.name).to_numpy())
    )
    assert made.auroc_stored < made.auroc


class TestLive:
    """The probability as a function of rows."""

    @staticmethod
    def measured(version="1", name="yes_no"):
        """The numbers of `low_scores`, by the number in the question; the last has none."""
        values = low_scores().signal("yes_no").tolist()

        def numbers(rows):
            return [values[int(text.split()[-1].strip("?"))] for text in rows["query"]]

        return SignalFunction(name, numbers, ("query",), stage="query", version=version)

    def test_it_applies_the_map_of_all_labelled_cases(self):
        """Under the new name; another map is another identity."""
        function = self.measured()
        made = calibrate_signal(raglab.add_signals(low_scores(), function), "yes_no")
        live = made.signal_function(function)
        assert (live.name, live.unit, live.needs, live.stage) == (
            "yes_no_probability",
            "probability",
            ("query",),
            "query",
        )
        found = live(pd.DataFrame({"query": ["What is 0?", "What is 7?"]}))
        raw = low_scores().signal("yes_no").to_numpy()[[0, 7]]
        assert found == pytest.approx(made.probability(raw))
        other = calibrate_signal(made.trace, "yes_no", method="platt", name="yes_no_probability")
        assert other.signal_function(function).identity != live.identity
        assert made.signal_function(function).identity == live.identity

    def test_a_missing_value_stays_missing(self):
        """Also where the function returns None."""
        function = SignalFunction("yes_no", lambda rows: [None] * len(rows), ("query",))
        live = calibrate_signal(low_scores(), "yes_no").signal_function(function)
        assert np.isnan(live(pd.DataFrame({"query": ["q"]}))).all()
