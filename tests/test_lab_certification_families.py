"""Declared families of a certificate: one cost ratio, bounds on signals.

What a model was fitted on is refused.
"""

from __future__ import annotations

import numpy as np
import pytest

from labelled import free_policy, labelled, noted, relabelled
from raglab.decision.learned_cases import queries_hash
from raglab.decision.measurement import measured_tables, structure_hash
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.lab.certification import certify_best, certify_policy
from raglab.lab.certification_counts import (
    RISK,
    CertificationSettings,
    certified_tally,
    counted_losses,
    pilot_counts,
    tally_losses,
)
from raglab.lab.certification_families import CANDIDATE_PATHS, declared_family, grid
from raglab.lab.decision_fitting import fit_decision, held_out_cells
from raglab.lab.untuned_policies import always_answer
from raglab.replay import decide
from raglab.replaying.breakpoints import breakpoints
from raglab.store.policies import Policy
from raglab.values import Status

POLICY = free_policy()
ONE = ["similarity.min_similarity"]
TARGET = {RISK: 0.15}


@pytest.fixture(scope="module")
def trace():
    """Three splits of one traffic."""
    return labelled(0, {"tune": 150, "certify": 250, "report": 60})


def _by_cost(**changes):
    """Policy whose model reads the top-1 cosine alone: the surer, the likelier right."""
    weights = {"center": 0.5, "scale": 0.1, "missing": 0.5, "weights": [1.0, 0.0, 0.0, 0.0]}
    structure = structure_hash(POLICY.structure, "hybrid")
    model = {"parts": {"top1_cosine": weights}, "bias": [0.0, 0.0, 0.0, -30.0], "asked_right": 0.0}
    decision = {"rule": "expected_cost", "model": model | {"structure": structure} | changes}
    return Policy.from_mapping(POLICY.model_dump(exclude={"decision"}) | {"decision": decision})


BY_COST = _by_cost()


def test_a_ratio_over_one_signal_is_a_threshold_on_it(trace):
    """Certificate counts, order, choice and coverage are those of cosine and labels, by hand."""
    result = certify_best(trace, BY_COST, targets=TARGET)
    parts = {name: trace.split(name) for name in ("tune", "certify")}
    cosine = {name: part.hits.cosine[:, 0, 0, 0] for name, part in parts.items()}
    wrong = np.array([case.expect_sources != ("guide.md",) for case in parts["certify"].cases])
    above = cosine["certify"] >= np.unique(cosine["tune"])[:, None]
    counts = np.stack([(above & wrong).sum(axis=1), above.sum(axis=1)], axis=1).tolist()
    tested = result.table[["hallucination_rate_k", "hallucination_rate_n"]]
    assert all(row in counts for row in tested.to_numpy().tolist())
    passed = result.table[result.table["certified"]]
    stop = result.table.iloc[len(passed)]
    assert (passed["hallucination_rate_bound"] <= 0.15).all()
    assert stop["hallucination_rate_bound"] > 0.15
    assert result.certificate.coverage == passed["hallucination_rate_n"].iloc[-1] / 250
    assert result.certificate.coverage > 0.2
    answered = decide(parts["certify"], result.policy).status == Status.ok
    lowest = cosine["certify"][answered].min()
    assert np.array_equal(answered, cosine["certify"] >= lowest)


def test_the_grid_is_of_observed_values_and_holds_the_policy_itself(trace):
    """Lowest and own value of each threshold, gates on, tau_explicit moved along.

    No label is read.
    """
    pilot = trace.split("tune")
    start = POLICY.replace("similarity.enabled", False)
    family = grid(pilot, start)
    assert family[0] == start
    cosines = np.unique(pilot.hits.cosine[:, 0, 0, 0])
    tried = {candidate.similarity.min_similarity for candidate in family}
    assert tried <= {*cosines.tolist(), start.similarity.min_similarity}
    assert {cosines[0], start.similarity.min_similarity} <= tried
    assert all(
        candidate.similarity.enabled and candidate.confidence.enabled for candidate in family[1:]
    )
    spread = POLICY.confidence.tau_default - POLICY.confidence.tau_explicit
    assert all(
        candidate.confidence.tau_explicit == max(0.0, candidate.confidence.tau_default - spread)
        for candidate in family[1:]
    )
    assert grid(relabelled(pilot, "tune"), start) == family


@pytest.mark.parametrize(
    "path", ["density.min_keep", "resolver.min_group_gap", "l2.soft_max_l2", "gap.min_gap"]
)
def test_the_grid_takes_any_threshold(trace, path):
    """Whole numbers stay whole, a resolver rule has no switch, one that is not set is not tried."""
    base = POLICY if path == "density.min_keep" else POLICY.replace(path, None)
    assert len(grid(trace, base, paths=[path])) > 1


def test_the_candidates_of_an_expected_cost_are_its_ratio_alone(trace, monkeypatch):
    """One number moves, over its breakpoints, whatever the labels.

    No gate of the chain is switched on for it.
    """
    pilot = trace.split("tune")
    assert declared_family(BY_COST) == ("decision.ratio",)
    off = always_answer(BY_COST).replace("decision.rule", "expected_cost")
    family = grid(pilot, off)
    at = breakpoints(
        measured_tables(pilot, off).evidence, policy_thresholds([off]), "decision.ratio"
    )
    assert {candidate.decision.ratio for candidate in family} == {
        *np.unique(at[~np.isnan(at)]).tolist(),
        1.0,
    }
    assert {candidate.replace("decision.ratio", 1.0).policy_id for candidate in family} == {
        off.policy_id
    }
    assert grid(relabelled(pilot, "tune"), off) == family
    monkeypatch.setattr("raglab.lab.certification_families.MAX_GRID_POLICIES", 5)
    few = {candidate.decision.ratio for candidate in grid(pilot, off)}
    assert (len(few), 1.0 in few) == (5, True)


def test_stated_bounds_on_signals_are_varied_where_they_alone_decide(trace, monkeypatch):
    """Not where a gate of the chain decides too, nor a bound that is off."""
    monkeypatch.setattr("raglab.lab.certification_families.MAX_GRID_POLICIES", 50)
    alone = always_answer(POLICY).replace(
        "signals", {"top1_cosine": {"min": 0.4}, "gap": {"max": 1.2}}
    )
    stated = ("signals.gap.max", "signals.top1_cosine.min")
    assert declared_family(alone) == stated
    family = grid(trace.split("tune"), alone)
    for path in stated:
        assert any(policy.value(path) != alone.value(path) for policy in family)
    assert not any(candidate.similarity.enabled for candidate in family)
    chain = tuple(path for path in CANDIDATE_PATHS if not path.startswith("fused"))
    assert declared_family(alone.replace("similarity.enabled", True)) == chain
    assert declared_family(alone.replace("signals.gap.enabled", False)) == stated[1:]


def test_a_model_is_not_certified_on_what_it_was_fitted_on(trace):
    """Nor on a part of it; fitted on split tune, as `fit_decision` does by itself, it is."""
    settings, held_out = {"targets": TARGET}, trace.split("certify")
    refused = fit_decision(held_out, POLICY, signals=["top1_cosine"])
    for fit in (refused, _by_cost(fitted_on=queries_hash(trace.cases))):
        with pytest.raises(ValueError, match="the model of the decision was fitted on"):
            certify_best(trace, fit, **settings)
    fitted = fit_decision(trace, POLICY, signals=["top1_cosine"])
    assert fitted.decision.model.fitted_on == queries_hash(trace.split("tune").cases)
    assert certify_best(trace, fitted, **settings).policy is not None
    idle = refused.replace("decision.rule", "chain")
    assert certify_best(trace, idle, paths=ONE, **settings).policy is not None
    with pytest.raises(ValueError, match="the model of the decision was fitted on"):
        certify_policy(trace, refused, **settings)


def test_labels_of_the_certified_split_touch_no_candidate_of_an_expected_cost(trace):
    """Neither fit, family nor order.

    With other labels there, the same ratios stand in the same order.
    """
    relabelled_trace = relabelled(trace, "certify")
    first, second = (
        certify_best(each, fit_decision(each, POLICY), targets=TARGET)
        for each in (trace, relabelled_trace)
    )
    assert first.table["policy_id"].tolist() == second.table["policy_id"].tolist()
    assert (first.policy is not None, second.policy) == (True, None)


def test_pilot_figures_come_from_models_that_never_saw_the_case(trace):
    """Fitted on the pilot, a model errs and costs less there than where the case is left out."""
    pilot = trace.split("tune")
    fitted = fit_decision(trace, POLICY, signals=["top1_cosine", "confidence", "gap", "hybrid"])
    family = grid(pilot, fitted)
    in_sample = tally_losses(certified_tally(pilot, family, None), [RISK], None)
    held_out = pilot_counts(pilot, family, CertificationSettings({RISK: 0.1})).losses
    few = in_sample.n[:, 0] < 100  # where all are answered nothing can differ
    assert (
        held_out.k[few].sum() / held_out.n[few].sum()
        > in_sample.k[few].sum() / in_sample.n[few].sum()
    )
    assert held_out.cost[few].mean() > in_sample.cost[few].mean()


def test_lists_of_several_models_and_none_are_cross_fitted_by_model(trace):
    """Two models of the pilot by their own folds, whatever stands between.

    What was fitted elsewhere as it decides.
    """
    pilot = trace.split("tune")
    two = [
        fit_decision(trace, POLICY, signals=names)
        for names in (["top1_cosine", "gap"], ["confidence", "hybrid"])
    ]
    ratios = [
        [policy_of_it.replace("decision.ratio", ratio) for ratio in (0.5, 1.0, 2.0)]
        for policy_of_it in two
    ]
    free = [POLICY, BY_COST, always_answer(POLICY)]
    losses, costs = [RISK, "expected_cost"], {"refuse": {"answered_wrong": 3}}
    mixed = [policy for row in zip(free, *ratios, strict=True) for policy in row]
    terms = CertificationSettings(dict.fromkeys(losses, 0.1), costs)
    counts = pilot_counts(pilot, mixed, terms)
    plain = tally_losses(certified_tally(pilot, mixed, None), losses, costs)
    for place, group in enumerate(ratios, 1):
        alone = counted_losses(held_out_cells(pilot, group), losses, costs)
        assert np.array_equal(counts.losses.k[place::3], alone.k)
        assert np.array_equal(counts.losses.cost[place::3], alone.cost)
        assert not np.array_equal(alone.k, plain.k[place::3])
    for field in ("k", "n", "cost", "coverage"):
        assert np.array_equal(getattr(counts.losses, field)[::3], getattr(plain, field)[::3])


def test_what_cannot_be_cross_fitted_is_noted(trace):
    """Too few cases of a kind for a fit without a fold, and a fused gate.

    Counted in the notes of the certificate.
    """
    right = np.array([case.expect_sources == ("guide.md",) for case in trace.cases])
    tune = np.array([case.split == "tune" for case in trace.cases])
    rows = [
        np.flatnonzero(tune & right)[:10],
        np.flatnonzero(tune & ~right)[:10],
        np.flatnonzero(~tune),
    ]
    few = trace.subset(np.concatenate(rows))
    fitted = fit_decision(few, POLICY, signals=["top1_cosine"])
    section = {"enabled": True, "parts": {"confidence": {"x": [0.0, 100.0], "y": [-1.0, 1.0]}}}
    section["fitted_on"] = queries_hash(few.split("tune").cases)
    fused = POLICY.replace("fused", POLICY.fused.model_dump() | section)
    notes = certify_best(few, [fitted, fused, POLICY], targets=TARGET).notes
    assert noted(notes, "2 of 3 candidates are in sample")
    assert not noted(certify_best(trace, [BY_COST, POLICY], targets=TARGET).notes, "in sample")
