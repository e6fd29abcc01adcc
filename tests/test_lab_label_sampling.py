"""Requests drawn by decision and margin, and labels brought back.

Strata by hand, laws, coverage, the file.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decided import drawn_policies
from labelled import LENIENT, filled, traffic, unlabelled
from parts import in_parts
from raglab.audit.label_samples import write_sample
from raglab.lab.certification import certify_policy
from raglab.lab.label_sampling import (
    PROBABILITY_KEY,
    label_strata,
    sample_for_labels,
    shard_requests,
    with_sample_labels,
)
from raglab.lab.traffic_review import review
from raglab.replay import flips, sweep
from raglab.store.files import InputError
from worlds import random_trace


def drawn_labels(trace, labels, n=30, seed=1):
    """A drawn sample with its labels."""
    return filled(sample_for_labels(trace, LENIENT, n, seed=seed), labels)


@settings(deadline=None, derandomize=True, max_examples=3)
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 2))
def test_distances_are_those_of_flips(seed, n_cases, depths):
    """Of each request and threshold the smallest change that flips it is the one that `flips` has.

    None where none.
    """
    trace = random_trace(seed, n_cases=n_cases, depths=depths)
    for drawn in drawn_policies(seed):
        requests = shard_requests(unlabelled(trace), drawn, None)
        for row, case in enumerate(trace.cases):
            rows = flips(trace, drawn, case.id)
            plain = dict(zip(rows["path"], rows["change"].abs(), strict=True))
            many = {
                path: change[row]
                for path, change in requests.drop(columns=["id", "decided"]).items()
                if np.isfinite(change[row])
            }
            assert many == plain


class TestStrata:
    """`label_strata`."""

    def test_names_and_sizes(self):
        """Decision, gate and margin; all requests are of one."""
        trace, _ = traffic()
        strata = label_strata(trace, LENIENT, None, 0.25)
        assert strata.sizes == dict(sorted(Counter(strata.names).items()))
        decided = {name.rpartition(",")[0] for name in strata.sizes}
        assert decided == {
            "ok",
            "refuse by confidence",
            "refuse by no_hits",
            "refuse by similarity",
        }
        assert "refuse by no_hits, near" not in strata.sizes  # no threshold changes them

    def test_near_is_nearer(self):
        """Of answers, each near one changes before any far one does, as similarity alone moves."""
        trace, _ = traffic()
        alone = LENIENT.replace("confidence.enabled", False)
        strata = label_strata(trace, alone, None, 0.25)
        top = np.asarray(trace.hits.cosine[:, 0, 0, 0])
        near, far = (
            top[[name == f"ok, {side}" for name in strata.names]] for side in ("near", "far")
        )
        assert near.max() < far.min()


class TestSample:
    """`sample_for_labels`."""

    @pytest.mark.parametrize("n", [7, 40, 199])
    def test_weights_sum_to_the_strata(self, n):
        """In each stratum the drawn requests stand for just as many as there are."""
        trace, _ = traffic()
        sample, sizes = (
            sample_for_labels(trace, LENIENT, n, seed=1),
            label_strata(trace, LENIENT, None, 0.25).sizes,
        )
        weights = (1 / sample["inclusion_probability"]).groupby(sample["stratum"]).sum()
        assert weights.to_dict() == pytest.approx(sizes)
        assert (len(sample), sample["request_id"].is_unique) == (n, True)

    def test_same_seed_same_draw(self):
        """Whole or in parts; another seed draws others."""
        trace, _ = traffic()
        first, again, second = (
            sample_for_labels(trace, LENIENT, 30, seed=seed) for seed in (1, 1, 2)
        )
        pd.testing.assert_frame_equal(first, again)
        assert set(first["request_id"]) != set(second["request_id"])
        assert label_strata(in_parts(trace, 33), LENIENT, None, 0.25) == label_strata(
            trace, LENIENT, None, 0.25
        )


class TestLabelsBack:
    """`with_sample_labels`."""

    @pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl"])
    def test_by_a_file(self, tmp_path, name):
        """What people fill in comes back into the cases; all others state their stratum alone."""
        trace, labels = traffic()
        sample = drawn_labels(trace, labels)
        write_sample(sample, tmp_path / name)
        back = with_sample_labels(trace, LENIENT, tmp_path / name)
        by_id = {case.id: case for case in back.cases}
        for row in sample.itertuples():
            case = by_id[str(row.request_id)]
            assert case.expect_status == case.extra["sample_label"] == row.label
            assert case.extra["inclusion_probability"] == row.inclusion_probability
            assert case.extra["stratum"] == row.stratum
        rest = [case for case in back.cases if case.id not in set(sample["request_id"])]
        assert all(case.expect_status is None and set(case.extra) == {"stratum"} for case in rest)
        assert back.fingerprint != trace.fingerprint

    def test_by_a_frame_of_a_spreadsheet(self, tmp_path):
        """Read back by pandas: an empty label is NaN, and counts as unknown.

        The warning has the count.
        """
        trace, labels = traffic()
        sample = drawn_labels(trace, labels)
        sample.loc[[2, 5], "label"] = ""
        sample.to_csv(tmp_path / "labels.csv", index=False)
        with pytest.warns(UserWarning, match="2 of 30 drawn requests have no label"):
            back = with_sample_labels(trace, LENIENT, pd.read_csv(tmp_path / "labels.csv"))
        assert sum(case.expect_status is not None for case in back.cases) == 28

    def test_a_label_takes_the_place_of_feedback(self):
        """With the count; a second sample takes the place of the first."""
        trace, labels = traffic()
        thumbs = replace(
            trace, cases=tuple(case._replace(expect_status="ambiguous") for case in trace.cases)
        )
        first = drawn_labels(trace, labels)
        with pytest.warns(UserWarning, match="30 labels take the place of another"):
            with_sample_labels(thumbs, LENIENT, first)
        both = with_sample_labels(
            with_sample_labels(trace, LENIENT, first),
            LENIENT,
            drawn_labels(trace, labels, 20, 2),
        )
        rows = review(both, LENIENT).frame()
        known = rows[rows["rate"] == "pass_rate"].set_index("basis")["n"]
        assert known["sample"] == 20

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda frame: frame.assign(label="yes"),
                "label must be ok, refuse, ambiguous or empty",
            ),
            (
                lambda frame: frame.assign(request_id=["x", *frame["request_id"][1:]]),
                "1 that do not in 30 rows, such as 'x'",
            ),
            (lambda frame: frame[1:], "hold every drawn row"),
            (lambda frame: frame.assign(stratum="ok, far"), "with its stratum"),
            (lambda frame: frame.assign(policy_id="x"), "of the policy"),
            (lambda frame: frame.drop(columns="label"), "column label must be a text"),
        ],
    )
    def test_what_is_not_the_sample(self, change, message):
        """Is named with its number, and nothing is taken over."""
        trace, labels = traffic()
        sample = drawn_labels(trace, labels)
        with pytest.raises(InputError, match=message):
            with_sample_labels(trace, LENIENT, change(sample))


def test_intervals_hold_the_truth():
    """Over 40 draws of 40 of 200 requests 80 % intervals hold each rate at least as often.

    This also holds for another policy.

    They are built from exact bounds, so that they are wider than they must be: the count says no
    more than that.
    """
    trace, labels = traffic()
    policies = (LENIENT, LENIENT.replace("similarity.min_similarity", 0.6))
    every = trace.with_labels([labels[case.id] for case in trace.cases], [{}] * len(trace))
    truth, held, draws = sweep(every, policies), Counter[tuple[str, int]](), 40
    for seed in range(draws):
        drawn = with_sample_labels(trace, LENIENT, drawn_labels(trace, labels, 40, seed))
        for place, reviewed in enumerate(policies):
            rows = (
                review(drawn, reviewed, level=0.8)
                .frame()
                .query("basis == 'sample'")
                .set_index("rate")
            )
            for name in ("pass_rate", "false_refusal_rate", "hallucination_rate"):
                low, high = rows.loc[name, ["low", "high"]]
                held[name, place] += low - 1e-9 <= truth[name].iloc[place] <= high + 1e-9
    assert len(held) == 6
    assert all(count >= 0.8 * draws for count in held.values()), held


def test_no_certificate_on_cases_that_were_drawn_unevenly():
    """It would count each of them once.

    Cases of one probability, or of none, are certified as before.
    """
    trace, labels = traffic(n=400)
    sample = sample_for_labels(trace, LENIENT, 80, seed=0)
    drawn = with_sample_labels(trace, LENIENT, filled(sample, labels))
    rows = [
        row for row, case in enumerate(drawn.cases) if case.extra.get(PROBABILITY_KEY) is not None
    ]
    with pytest.raises(
        ValueError,
        match=r"one inclusion probability, got 7",
    ):
        certify_policy(drawn.subset(rows), LENIENT, targets={"hallucination_rate": 0.9})
    alike = drawn.with_labels(
        [case.expect_status for case in drawn.cases],
        [{**case.extra, PROBABILITY_KEY: 0.2} for case in drawn.cases],
    ).subset(rows)
    assert certify_policy(alike, LENIENT, targets={"hallucination_rate": 0.999}) is not None
