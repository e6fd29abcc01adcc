"""Certificates over traces of shards: in every field those of the same cases in one piece."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelled import free_policy, labelled
from parts import alike, outcome
from raglab.decision.learned_cases import queries_hash, trace_queries
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.lab.certificate_checks import check_policy
from raglab.lab.certification import certify_best, certify_policy
from raglab.lab.certification_counts import RISK
from raglab.lab.certification_families import grid
from raglab.lab.decision_fitting import fit_decision, held_out_cells
from raglab.lab.looks import trace_hash
from raglab.store.traces import Trace

POLICY = free_policy()
ONE = ["similarity.min_similarity"]
TARGET = {RISK: 0.3}
SPLITS = {"tune": 40, "certify": 60, "report": 9}
COSTS = {"refuse": {"answered_wrong": 4}, "ok": {"refused": 0.5}}


def mixed(trace, seed):
    """The same cases in another order, so that a shard holds cases of several splits."""
    return trace.subset(np.random.default_rng(seed).permutation(len(trace)))


def same(parts, whole, of):
    """What a function gives of shards, once it gives the same of the whole; None where it refuses.

    Both are refused alike.
    """
    first, second = outcome(partial(of, parts)), outcome(partial(of, whole))
    alike(first, second)
    if isinstance(first, str):
        return None
    assert first.certificate.certified == second.certificate.certified
    assert first.policy is None or first.policy.certificate == second.policy.certificate
    return first


def test_three_splits_in_shards_of_seven(tmp_path):
    """By head: 109 cases in 16 shards.

    The order learned on 40, certified on 60, the same hash of their questions.
    """
    trace = labelled(0, SPLITS)
    parts = save_shards([trace], tmp_path, shard=7)
    assert len(parts.parts) == 16
    result = same(parts, trace, lambda t: certify_best(t, POLICY, targets=TARGET))
    assert result.policy is not None
    certificate = result.certificate
    alone = same(parts, trace, lambda t: certify_policy(t, POLICY, targets=TARGET))
    assert alone.certificate.pilot_hash is None
    assert certificate.pilot_hash == queries_hash(trace.split("tune").cases)
    assert (certificate.pilot, certificate.cases, certificate.method) == (40, 60, "fixed_sequence")
    assert (
        certificate.cases_hash
        == queries_hash(trace.split("certify").cases)
        == trace_hash(parts.split("certify"))
    )
    assert trace_hash(parts) == queries_hash(trace.cases) == trace_hash(trace)
    assert {name: len(queries) for name, queries in trace_queries(parts).items()} == SPLITS


@settings(deadline=None, derandomize=True, max_examples=3)
@given(
    seed=st.integers(0, 1_000),
    shard=st.integers(5, 60),
    splits=st.sampled_from([SPLITS, {"certify": 50}, {"": 60}, {"certify": 40, "report": 5}]),
    targets=st.sampled_from([TARGET, {RISK: 0.02}, {RISK: 0.4, "expected_cost": 0.9}]),
    costs=st.sampled_from([None, COSTS]),
    paths=st.sampled_from([None, ONE, ["l2.max_l2", *ONE]]),
)
def test_a_certificate_of_the_shards_is_that_of_the_whole(
    tmp_path_factory,
    seed,
    shard,
    splits,
    targets,
    costs,
    paths,
):
    """With a pilot and without, certified or not, over one threshold and several."""
    trace = mixed(labelled(seed, splits, missing=0.1), seed)
    parts = save_shards([trace], tmp_path_factory.mktemp("t"), shard=shard)
    policy = POLICY.replace("l2.enabled", True)
    result = same(
        parts,
        trace,
        lambda t: certify_best(t, policy, targets=targets, costs=costs, paths=paths),
    )
    if result is not None and result.policy is not None:
        new = labelled(seed + 1, {"": 40, "report": 20})
        shards = save_shards([new], tmp_path_factory.mktemp("n"), shard=shard)
        alike(*(check_policy(checked_trace, result.policy) for checked_trace in (shards, new)))
        with pytest.raises(ValueError, match="a check must see new cases"):
            check_policy(parts, result.policy)


def test_a_question_in_several_shards_is_one(tmp_path):
    """Its cases count once, wherever they lie."""
    base = labelled(2, {"": 60})
    numbers = np.arange(60) % 25
    cases = (
        case._replace(query=f"What of {number}")
        for case, number in zip(base.cases, numbers, strict=True)
    )
    trace = replace(base, cases=tuple(cases))
    shards = save_shards([trace], tmp_path / "shards", shard=16)
    result = same(shards, trace, lambda t: certify_policy(t, POLICY, targets=TARGET))
    assert result.certificate.cases == 25


def test_a_look_in_shards_is_a_look(tmp_path):
    """What was certified in one piece is refused in shards and the other way round.

    The same one again is the same.
    """
    trace, looks = labelled(0, SPLITS), tmp_path / "looks.jsonl"
    parts = save_shards([trace], tmp_path / "t", shard=13)
    first = certify_best(trace, POLICY, targets=TARGET, paths=ONE, looks=looks)
    alike(certify_best(parts, POLICY, targets=TARGET, paths=ONE, looks=looks), first)
    assert len(looks.read_text().splitlines()) == 1
    for again in (parts, trace):
        with pytest.raises(ValueError, match="certified on once"):
            certify_best(again, POLICY, targets={RISK: 0.35}, paths=ONE, looks=looks)
    assert (
        certify_best(
            parts, POLICY, targets={RISK: 0.35}, paths=ONE, looks=looks, again=True
        ).certificate.looks
        == 2
    )
    with pytest.raises(ValueError, match="certified on once"):
        certify_best(trace, POLICY, targets={RISK: 0.31}, paths=ONE, looks=looks)


def test_what_cannot_be_certified_is_refused_alike(tmp_path):
    """No split certify, and a gate that was fitted on these cases."""
    trace = labelled(0, {"tune": 20, "report": 10})
    parts = save_shards([trace], tmp_path / "a", shard=9)
    for verb in (certify_best, certify_policy):
        assert same(parts, trace, lambda t, verb=verb: verb(t, POLICY, targets=TARGET)) is None
    plain = labelled(0, {"": 20})
    shards = save_shards([plain], tmp_path / "b", shard=9)
    line = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    fused = {
        "enabled": True,
        "parts": {"top1_cosine": line},
        "fitted_on": queries_hash(plain.cases),
    }
    with pytest.raises(ValueError, match="those that the fused gate was fitted on"):
        certify_best(shards, free_policy(fused=fused), targets=TARGET)


def test_a_decision_by_expected_cost_is_certified_by_shard(tmp_path):
    """Fitted on the pilot, whose cases the hint counts by models that never saw them.

    Families and counts alike.
    """
    trace = mixed(labelled(0, {"tune": 60, "certify": 40}), 3)
    fitted = fit_decision(trace, POLICY, signals=["top1_cosine", "gap"])
    parts = save_shards([trace], tmp_path, shard=37)
    pilot, of_parts = trace.split("tune"), parts.split("tune")
    family = grid(pilot, fitted)
    assert grid(of_parts, fitted) == family
    assert np.array_equal(held_out_cells(of_parts, family), held_out_cells(pilot, family))
    result = same(parts, trace, lambda t: certify_best(t, fitted, targets={RISK: 0.05}))
    assert result is not None


def test_each_case_is_measured_once(tmp_path, monkeypatch):
    """A certificate over a grid loads pilot and held-out shards once each, and no report shards."""
    trace = labelled(0, {"tune": 20, "certify": 30, "report": 10})
    parts = save_shards([trace], tmp_path, shard=10)
    loaded: list[str] = []
    load = Trace.load

    def counted(path):
        loaded.append(Path(path).name)
        return load(path)

    monkeypatch.setattr(Trace, "load", staticmethod(counted))
    certify_best(parts, POLICY, targets=TARGET, paths=ONE)
    assert sorted(loaded) == [f"v1-{number:05d}.parquet" for number in range(5)]
