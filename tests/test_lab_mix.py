"""A traffic mix in studies, sweeps, comparisons and reports (S6.15)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from labelled import free_policy, labelled
from parts import in_parts, same
from raglab import Goal, metrics
from raglab.cli.common import parse_mix
from raglab.decision.inclusion import PROBABILITY_KEY, inclusion_weights
from raglab.decision.measurement import measured_tables
from raglab.lab.comparison import compare
from raglab.lab.decision_fitting import _fit_weights
from raglab.lab.report.page import write_report
from raglab.lab.untuned_policies import always_answer, always_refuse
from raglab.replay import decide, policy_cells, step_cells, steps, sweep
from raglab.store.policies import Policy
from raglab.values import Status

MIX = {"ok": 0.9, "refuse": 0.1}
POLICY = free_policy(similarity={"min_similarity": 0.5})
TRACE = labelled(7, {"tune": 90, "report": 60}, steps=10)


def _tuned(trace, **goal):
    settings = {"policy": free_policy(), "trials": 4, "folds": 3, "repeats": 1}
    return raglab.tune(trace, **settings, goal=Goal(**goal))


@pytest.fixture(scope="module")
def plain():
    """Return a study in the sample's own mix."""
    return _tuned(TRACE)


@pytest.fixture(scope="module")
def mixed():
    """Return a study in a mix."""
    return _tuned(TRACE, mix=MIX)


def _weighed(trace, probability):
    cases = (
        case._replace(extra={**case.extra, PROBABILITY_KEY: p})
        for case, p in zip(trace.cases, probability, strict=True)
    )
    return dataclasses.replace(trace, cases=tuple(cases))


def _by_label(paid, label, share):
    return sum(
        part * float(paid[label == Status[name]].mean()) for name, part in share.items() if part
    )


class TestStudies:
    """What `tune` makes of a mix."""

    def test_the_sample_s_mix_is_the_default(self, plain):
        """To the bit, and neither settings nor policies state any mix."""
        named = _tuned(TRACE, mix="sample")
        assert plain.policy.policy_id == named.policy.policy_id
        assert plain.costs.equals(named.costs)
        assert plain.judged.equals(named.judged)
        assert plain.held_out_estimate == named.held_out_estimate
        assert "mix" not in named.settings
        assert "mix" not in str(named.policies["expected cost"].model_dump_json())

    def test_costs_and_rates_are_those_of_the_traffic(self, mixed):
        """Judged costs, those of the table and rates, by hand from the decisions."""
        result, price, judged = mixed, metrics.cell_costs(), mixed.judged.set_index("policy")
        for name, policy in result.policies.items():
            decisions = decide(result.judged_on, policy)
            paid, label = price[decisions.cells], decisions.label_code
            expected = _by_label(paid, label, MIX)
            assert judged.loc[name, "expected_cost"] == pytest.approx(expected)
            answered = decisions.status == Status.ok
            assert judged.loc[name, "coverage"] == pytest.approx(_by_label(answered, label, MIX))
            assert judged.loc[name, "coverage_k"] == answered.sum()
            assert judged.loc[name, "expected_cost_low"] <= expected
        assert result.settings["mix"] == [[0.9, 0.1, 0.0]]

    def test_the_model_is_corrected_and_the_fit_is_not(self, plain, mixed):
        """Weights, biases as fitted and signals are the same; shares of both are in the policy."""
        plain, mixed = (study.policies["expected cost"] for study in (plain, mixed))
        models = [policy.decision.model for policy in (plain, mixed)]
        assert models[0].bias == models[1].bias
        assert models[0].parts == models[1].parts
        assert models[0].mix is None
        assert models[1].mix.traffic == (0.9, 0.1, 0.0)
        labels = [case.expect_status for case in TRACE.split("tune").cases]
        assert models[1].mix.fitted[0] == pytest.approx(labels.count("ok") / len(labels), abs=1e-5)
        assert plain.policy_id != mixed.policy_id
        again = Policy.from_mapping(mixed.model_dump(mode="json"))
        assert again.policy_id == mixed.policy_id

    def test_a_choice_follows_the_traffic(self):
        """Where nearly all is answerable, answering everything is not replaced by a refuser."""
        trace = labelled(3, {"": 120}, steps=10, refusable=1.0, wrong=0.5)
        most = _tuned(trace, mix={"ok": 0.99, "refuse": 0.01})
        few = _tuned(trace, mix={"ok": 0.01, "refuse": 0.99})
        coverage = [sweep(trace, [r.policy], level=None)["coverage"][0] for r in (most, few)]
        assert coverage[0] > 0.95
        assert coverage[1] < 0.05

    def test_targets_hold_at_every_corner(self):
        """A target that is met at one end of an interval alone is not met."""
        cells = np.zeros(metrics.N_CELLS, dtype=np.int64)
        cells[[1, 6, 2, 8]] = 40, 10, 10, 40
        target = {"hallucination_rate": 0.1}
        met = {
            share: bool(Goal(targets=target, mix={"ok": share, "refuse": remainder}).meets(cells))
            for share, remainder in ((0.9, 0.1), (0.5, 0.5), ((0.5, 0.9), (0.1, 0.5)))
        }
        assert list(met.values()) == [True, False, False]

    def test_a_label_with_a_share_needs_a_case_in_every_split(self):
        """An error with the counts, also where the judged cases alone lack it."""
        for split in ("tune", "report"):
            rows = [
                row
                for row, case in enumerate(TRACE.cases)
                if case.split != split or case.expect_status == "ok"
            ]
            with pytest.raises(ValueError, match="0 refuse"):
                _tuned(TRACE.subset(rows), mix=MIX)
        _tuned(TRACE, mix={"ok": 1.0, "refuse": 0.0})

    def test_the_whole_is_the_sum_of_its_shards(self):
        """Sweep, steps and comparison in a mix, to the bit."""
        parts = in_parts(TRACE, 40)
        policies = [always_answer(POLICY), always_refuse(POLICY), POLICY]
        for mix in (MIX, {"ok": (0.6, 0.9)}):
            same(sweep(parts, policies, mix=mix), sweep(TRACE, policies, mix=mix))
            path = "similarity.min_similarity"
            same(steps(parts, POLICY, path=path, mix=mix), steps(TRACE, POLICY, path=path, mix=mix))
            whole, cut = (compare(of, policies[0], POLICY, mix=mix) for of in (TRACE, parts))
            assert cut.table.equals(whole.table)


def test_a_comparison_in_a_mix_by_hand():
    """Difference of cost and rates; the sample's own shares give the plain ones."""
    first, second = decide(TRACE, always_answer(POLICY)), decide(TRACE, POLICY)
    table = compare(TRACE, always_answer(POLICY), POLICY, mix=MIX).table.set_index("measure")
    price, label = metrics.cell_costs(), first.label_code
    costs = [_by_label(price[side.cells], label, MIX) for side in (first, second)]
    assert table.loc["expected_cost", "difference"] == pytest.approx(costs[1] - costs[0])
    assert table.loc["coverage", "b"] == pytest.approx(
        _by_label(second.status == Status.ok, label, MIX)
    )
    shares = {status.name: float((label == status).mean()) for status in Status}
    mixed, plain = (
        compare(TRACE, always_answer(POLICY), POLICY, **mix).table for mix in ({"mix": shares}, {})
    )
    same(
        mixed.drop(columns="measure").astype(float).round(9),
        plain.drop(columns="measure").astype(float).round(9),
    )


def test_a_frame_has_the_weight_of_each_case():
    """Weighted means are those of the traffic; no column without a mix."""
    decisions = decide(TRACE, POLICY)
    frame = decisions.frame(mix=MIX)
    assert "weight" not in decisions.frame()
    assert frame["weight"].mean() == pytest.approx(1.0)
    coverage = np.average(frame["status"] == "ok", weights=frame["weight"])
    assert coverage == pytest.approx(sweep(TRACE, [POLICY], mix=MIX)["coverage"][0])


class TestInclusion:
    """Cases that were drawn with several probabilities."""

    def test_half_a_probability_counts_as_two_cases(self):
        """Rates and costs of a sweep; counts stay those of the cases."""
        trace = TRACE.split("tune")
        rare = np.arange(len(trace)) % 3 == 0
        drawn = _weighed(trace, np.where(rare, 0.25, 0.5).tolist())
        twice = trace.subset([*range(len(trace)), *np.flatnonzero(rare).tolist()])
        policies = [POLICY, always_answer(POLICY)]
        weighted, copies = sweep(drawn, policies), sweep(twice, policies)
        for name in (*metrics.RATES, "expected_cost"):
            assert weighted[name].to_numpy() == pytest.approx(copies[name].to_numpy(), nan_ok=True)
        assert weighted["coverage_n"].tolist() == [len(trace)] * 2
        assert weighted.attrs["mix"] == PROBABILITY_KEY
        weight = inclusion_weights(drawn)
        assert weight is not None
        evidence = measured_tables(trace, POLICY).evidence
        for counts, of in (
            (policy_cells(evidence, [POLICY], weight), twice),
            (step_cells(evidence, POLICY, "similarity.min_similarity", weight).cells, twice),
        ):
            other = measured_tables(of, POLICY).evidence
            plain = (
                policy_cells(other, [POLICY])
                if len(counts) == 1
                else step_cells(other, POLICY, "similarity.min_similarity").cells
            )
            assert counts / counts.sum() == pytest.approx(plain / plain.sum(), abs=1e-6)

    def test_a_study_of_a_drawn_sample(self):
        """Costs by the weights; equal probabilities are none; a mix beside them is refused."""
        trace = labelled(11, {"": 80}, steps=10)
        even = _tuned(_weighed(trace, [0.2] * 80))
        assert even.costs.equals(_tuned(trace).costs)
        refused = np.array([case.expect_status == "refuse" for case in trace.cases])
        drawn = _weighed(trace, np.where(refused, 0.8, 0.1).tolist())
        result = _tuned(drawn)
        share = 8.0 * (~refused).sum() / (8.0 * (~refused).sum() + refused.sum())
        always_refuses = result.costs.loc["always-refuse", "cross_validated"]
        assert always_refuses == pytest.approx(share, abs=1e-6)
        assert result.crossing is None
        with pytest.raises(ValueError, match="mix"):
            _tuned(drawn, mix=MIX)
        with pytest.raises(ValueError, match=PROBABILITY_KEY):
            _tuned(_weighed(trace, [None, *[0.5] * 79]))
        with pytest.raises(ValueError, match="group must be"):
            raglab.fit_decision(drawn, POLICY, group="intent")

    def test_a_weighted_fit_is_that_of_copies(self):
        """A weight of two is the case twice."""
        rng = np.random.default_rng(2)
        x, classes = rng.normal(size=(60, 3)), np.tile([0, 1, 2], 20)
        weight = np.where(np.arange(60) % 4 == 0, 2.0, 1.0)
        rows = np.repeat(np.arange(60), weight.astype(int))
        directions: Any = ("either",) * 3
        weighted = _fit_weights(x, classes, directions, 0.3, case_weights=weight)
        copies = _fit_weights(x[rows], classes[rows], directions, 0.3)
        for ours, theirs in zip(weighted, copies, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)


def test_a_fitted_decision_is_that_of_a_study(mixed):
    """The same correction; without a mix none, and a drawn sample is weighed."""
    fitted = raglab.fit_decision(TRACE, free_policy(), mix=MIX)
    model = fitted.decision.model
    assert model.mix.traffic == (0.9, 0.1, 0.0)
    studied = mixed.policies["expected cost"].decision.model
    assert studied.mix == model.mix
    plain = raglab.fit_decision(TRACE, free_policy())
    odds = [np.array(of.structure.decision.bias) for of in (plain, fitted)]
    shift = (odds[1] - odds[0])[:3]
    assert shift[0] == pytest.approx(shift[1])
    assert np.exp(shift[2] - shift[0]) == pytest.approx(
        (0.1 / model.mix.fitted[1]) / (0.9 / model.mix.fitted[0]), rel=1e-3
    )
    tuned = TRACE.split("tune")
    drawn = _weighed(tuned, [0.2 if row % 2 else 0.9 for row in range(len(tuned))])
    weighed = raglab.fit_decision(drawn, free_policy()).decision.model
    assert weighed.bias != plain.decision.model.bias
    with pytest.raises(ValueError, match="mix"):
        raglab.fit_decision(drawn, free_policy(), mix=MIX)


def test_costs_of_an_estimated_mix_are_taken_at_the_estimate():
    """Not at the mean of the corners; a label that cannot occur needs no case."""
    sheet = pd.DataFrame({"question_label": ["ok"] * 88 + ["refuse"] * 12})
    every = raglab.traffic_mix(sheet)
    with pytest.raises(ValueError, match="0 ambiguous"):
        sweep(TRACE, [POLICY], mix=every)
    mix = raglab.traffic_mix(sheet, labels=["ok", "refuse"])
    assert mix.high[2] == 0.0
    assert mix.high[0] < every.high[0]  # Bonferroni over fewer labels
    table = sweep(TRACE, [POLICY], mix=mix)
    stated = sweep(TRACE, [POLICY], mix={"ok": 0.88, "refuse": 0.12})
    assert table["expected_cost"][0] == pytest.approx(stated["expected_cost"][0])
    assert table["expected_cost_low"][0] < stated["expected_cost_low"][0]
    result = _tuned(TRACE, mix=mix)
    model = result.policies["expected cost"].decision.model
    assert model.mix.traffic == (0.88, 0.12, 0.0)


def test_a_mix_of_the_command_line_may_come_in_parts():
    """Several options are one mix; a label twice, or a part that is none, is refused."""
    assert parse_mix(["ok=0.8:0.9", "refuse=0.05"]) == {"ok": (0.8, 0.9), "refuse": 0.05}
    assert parse_mix(["ok=0.9,refuse=0.1"]) == {"ok": 0.9, "refuse": 0.1}
    assert parse_mix(None) == "sample"
    for wrong in (["ok=0.9", "ok=0.8"], ["ok"], ["ok=90%"], ["ok=1.2"], ["answer=0.5"], [""]):
        with pytest.raises(ValueError, match="mix"):
            parse_mix(wrong)


def test_a_report_says_of_which_traffic_it_is(tmp_path, monkeypatch):
    """The mix stands on its page."""
    monkeypatch.setattr("raglab.lab.report.blocks.png", lambda *_: b"")
    policies = {"defaults": always_answer(POLICY), "tuned": POLICY}
    page = write_report(TRACE.split("report"), policies, out=tmp_path / "mix.html", mix=MIX)
    assert "ok 0.9, refuse 0.1" in page.read_text(encoding="utf-8")
