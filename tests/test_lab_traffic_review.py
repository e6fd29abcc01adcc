"""What a policy does to logged requests.

Counts by hand, exact curves against replay, rates from labels.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decided import drawn_policies
from generators import Drawn, Weighed
from labelled import free_policy, labelled, unlabelled
from parts import in_parts, same
from raglab.lab.traffic_review import request_day, review
from raglab.live.answer_recording import record_answers
from raglab.metrics import RATES
from raglab.replay import decide_policies, sweep
from raglab.store.policies import Policy
from raglab.values import Case, Status
from stored_traces import stored
from worlds import Hit, policy, random_trace, trace_of

LAW = settings(deadline=None, derandomize=True, max_examples=10)
STATUSES = [status.name for status in Status]
AT = ("2026-03-02T09:00:00+00:00", "2026-03-02T23:30:00-02:00", "2026-03-03T12:00:00", None)


def with_extra(trace, rows):
    """The same with keys of `extra` a case."""
    return replace(
        trace,
        cases=tuple(
            case._replace(extra=extra) for case, extra in zip(trace.cases, rows, strict=True)
        ),
    )


def counts_of(trace, decided):
    """Requests by decision, as `decide` has them."""
    (decisions,) = decide_policies(trace, [decided])
    return np.bincount(decisions.status, minlength=len(Status)).tolist()


class TestByHand:
    """Four requests with a nearest hit of 0.2, 0.4, 0.6 and none."""

    def traffic(self):
        """Requests of two tenants over two days."""
        hits = [[[Hit(0.2)]], [[Hit(0.4)]], [[Hit(0.6)]], [[]]]
        cases = [
            Case(
                f"q{row}",
                "what is the excess",
                extra={"at": AT[row], "groups": {"tenant": "ab"[row % 2]}},
            )
            for row in range(4)
        ]
        return trace_of(*zip(cases, hits, strict=True))  # type: ignore[arg-type]

    def test_counts_without_a_label(self):
        """Two are answered at 0.5; what decided the others is named; no label is needed."""
        result = review(
            self.traffic(), policy(l2={"max_l2": 0.5, "soft_max_l2": None}), by=("tenant",)
        )
        rows = result.frame().set_index("rate")
        assert rows.loc[STATUSES, "k"].tolist() == [2, 2, 0]
        assert rows.loc[
            ["decided_by.no_hits", "decided_by.l2", "decided_by.answered"], "k"
        ].tolist() == [1, 1, 2]
        assert set(rows["basis"]) == {"traffic"}
        assert result.days.to_numpy().tolist() == [
            ["", 1, 0, 1, 0, 0],
            ["2026-03-02", 1, 1, 0, 0, 0],
            ["2026-03-03", 2, 1, 1, 0, 0],
        ]
        assert result.groups[["by", "group", "n", "ok"]].to_numpy().tolist() == [
            ["tenant", "a", 2, 1],
            ["tenant", "b", 2, 1],
        ]
        assert result.counts["without day"] == 1

    def test_a_second_policy(self):
        """How many requests it decides otherwise, by pair of decisions, and by day."""
        before = policy(l2={"max_l2": 0.5, "soft_max_l2": None})
        result = review(self.traffic(), before, after=before.replace("l2.max_l2", 0.7))
        pairs = result.changes.set_index(["before", "after"])["n"]
        assert (
            pairs["refuse", "ok"],
            pairs["ok", "ok"],
            pairs["refuse", "refuse"],
            pairs.sum(),
        ) == (1, 2, 1, 4)
        assert result.days["changed"].tolist() == [0, 0, 1]

    def test_missing_values_are_counted(self):
        """Two hits of which one has no cosine; the request without a hit is no missing value."""
        cosine = np.array(self.traffic().hits.cosine)
        cosine[0] = np.nan
        traffic = replace(self.traffic(), hits=self.traffic().hits._replace(cosine=cosine))
        result = review(traffic, policy(similarity={"enabled": True, "min_similarity": 0.1}))
        assert result.thresholds.set_index("path").loc["similarity.min_similarity", "missing"] == 1


@pytest.mark.parametrize(
    ("stated", "day"),
    [
        ("2026-03-02T23:30:00-02:00", "2026-03-03"),
        ("yesterday", ""),
        (7, ""),
    ],
)
def test_day_of_a_request(stated, day):
    """ISO times, in UTC where they have an offset; anything else is of no day."""
    assert request_day(Case("q", "who?", extra={"at": stated})) == day


def step_values(result, path):
    """Values within each step of a curve: its closed end, and one just inside of the open one."""
    curve, values = result.curves[path], []
    for place, (low, high) in enumerate(zip(curve.low, curve.high, strict=True)):
        if curve.threshold.side == "ceiling":
            ends = (low, high if place == len(curve.low) - 1 else np.nextafter(high, -np.inf))
        else:
            ends = (low if place == 0 else np.nextafter(low, np.inf), high)
        if curve.threshold.whole:
            ends = (np.ceil(ends[0]), np.floor(ends[1]))
        values += [(place, float(end)) for end in ends if np.isfinite(end)]
    return values


@settings(LAW, max_examples=3)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 2), st.booleans())
def test_each_step_is_replay(
    seed,
    n_cases,
    depths,
    is_answered,
):
    """At each step of each curve the answered, refused, asked and changed counts match `decide`."""
    traffic = unlabelled(stored(random_trace(seed, n_cases=n_cases, depths=depths)))
    for drawn in drawn_policies(seed):
        if is_answered:
            traffic = record_answers(
                traffic, Policy.from_mapping(drawn.model_dump()), Drawn(), Weighed()
            )
        result = review(traffic, drawn)
        (now,) = decide_policies(traffic, [drawn])
        for path, curve in result.curves.items():
            assert curve.counts[curve.current].tolist() == counts_of(traffic, drawn), path
            assert curve.changed[curve.current] == 0
            for place, value in step_values(result, path):
                moved = drawn.replace(path, int(value) if curve.threshold.whole else value)
                (decisions,) = decide_policies(traffic, [moved])
                assert curve.counts[place].tolist() == counts_of(traffic, moved), (path, value)
                assert curve.changed[place] == int((now.status != decisions.status).sum()), (
                    path,
                    value,
                )


@settings(LAW, max_examples=2)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_shards_say_the_same(seed, size):
    """Every frame of a trace in parts is that of the whole, to the bit.

    A label changes no curve.
    """
    trace = stored(random_trace(seed, n_cases=7))
    extra = [
        {"at": AT[row % 4], "tenant": "ab"[row % 2], "stratum": "xy"[row % 2]} for row in range(7)
    ]
    for row in (0, 1, 4):
        extra[row] |= {"inclusion_probability": 0.5 if row % 2 == 0 else 0.25}
    mixed = with_extra(trace, extra)
    for drawn in drawn_policies(seed):
        arguments: dict[str, Any] = {
            "after": drawn.replace("similarity.min_similarity", 0.5),
            "by": ("tenant",),
        }
        whole, parts = (
            review(mixed, drawn, **arguments),
            review(in_parts(mixed, size), drawn, **arguments),
        )
        for name in ("rates", "gates", "thresholds", "changes", "days", "groups"):
            same(getattr(whole, name), getattr(parts, name))
        assert whole.notes == parts.notes
        same(whole.gates, review(unlabelled(mixed), drawn).gates)


def sampled(trace):
    """Rates of a sample by name."""
    rows = review(trace, free_policy()).frame()
    return rows.query("basis == 'sample'").set_index("rate")


class TestLabels:
    """Rates from labels."""

    def test_labels_that_nobody_drew(self):
        """They speak for the labelled requests alone: no interval."""
        trace = labelled(1, {"": 60})
        result = review(trace, free_policy())
        rows = result.frame().query("basis == 'labelled requests'").set_index("rate")
        rates = sweep(trace, [free_policy()]).iloc[0]
        for name in set(RATES) & set(rows.index):
            assert (rows.loc[name, "k"], rows.loc[name, "n"]) == (
                rates[f"{name}_k"],
                rates[f"{name}_n"],
            ), name
        assert rows["low"].isna().all()
        assert result.counts["labelled, not drawn"] == 60

    def test_a_census_tells_the_truth(self):
        """Where all requests are drawn, each rate is that of `sweep`, and its interval a point."""
        trace = labelled(2, {"": 60})
        drawn = with_extra(trace, [{"stratum": "all", "inclusion_probability": 1.0}] * 60)
        rows = sampled(drawn)
        rates = sweep(trace, [free_policy()]).iloc[0]
        for name in set(RATES) & set(rows.index):
            assert rows.loc[name, "estimate"] == pytest.approx(rates[name], nan_ok=True), name
            assert rows.loc[name, "low"] == pytest.approx(rates[name], nan_ok=True)
            assert rows.loc[name, "high"] == pytest.approx(rates[name], nan_ok=True)

    def test_the_estimate_is_unbiased(self):
        """Over 18 equally likely samples of 2 of 3 and 2 of 4, mean rates by decision are true."""
        trace = labelled(3, {"": 40}, missing=0.0)
        (decisions,) = decide_policies(trace, [free_policy()])
        answered, refused = (
            np.flatnonzero(decisions.status == status) for status in (Status.ok, Status.refuse)
        )
        tiny = trace.subset([*answered[:3], *refused[:4]])
        truth = sweep(tiny, [free_policy()]).iloc[0]
        estimates = []
        for pair, others_drawn in product(combinations(range(3), 2), combinations(range(3, 7), 2)):
            rows: list[dict[str, Any]] = [
                {"stratum": "ok" if row < 3 else "refuse"} for row in range(7)
            ]
            for row in (*pair, *others_drawn):
                rows[row]["inclusion_probability"] = 2 / 3 if row < 3 else 2 / 4
            drawn = with_extra(tiny, rows)
            estimates.append(sampled(drawn)["estimate"])
        assert len(estimates) == 18
        for name in ("pass_rate", "hallucination_rate"):
            assert np.mean([row[name] for row in estimates]) == pytest.approx(truth[name])
        # they do differ from sample to sample
        assert len({row["pass_rate"] for row in estimates}) > 1

    def test_several_probabilities_in_a_stratum(self):
        """No estimate by stratum knows them: an error."""
        trace = labelled(2, {"": 4})
        rows = [{"stratum": "all", "inclusion_probability": p} for p in (0.5, 0.5, 0.25, 0.5)]
        with pytest.raises(
            ValueError, match=r"the same within a stratum, got 0\.25 to 0\.5 in 'all'"
        ):
            review(with_extra(trace, rows), free_policy())

    def test_an_empty_label_is_unknown(self):
        """An unlabelled drawn request widens the interval, and no feedback replaces its label."""
        trace = labelled(2, {"": 20})
        known = [
            {"stratum": "all", "inclusion_probability": 1.0, "sample_label": "ok"}
            for _ in range(20)
        ]
        unknown = [*known[:-1], {**known[-1], "sample_label": ""}]
        sure, unsure = (sampled(with_extra(trace, rows)) for rows in (known, unknown))
        assert (sure.loc["pass_rate", "n"], unsure.loc["pass_rate", "n"]) == (20, 19)
        assert unsure.loc["pass_rate", "high"] - unsure.loc["pass_rate", "low"] == pytest.approx(
            1 / 20
        )
