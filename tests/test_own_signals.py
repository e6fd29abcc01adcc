"""Signals of one's own.

A column of a trace from its values to the decision (rules S2.15 to S2.17).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decided import random_costs, random_model
from labelled import labelled
from laws_of_cost import check_case, check_flip, check_steps
from raglab.audit.explanation import check_differences, decide_by_checks
from raglab.decision.recorded_answers import keep_used_chunks
from raglab.decision.signal_values import trace_signals, used_signals
from raglab.lab.certification import certify_best
from raglab.lab.certification_families import grid
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.gate_fitting import fit_fused_gate
from raglab.lab.search_space import full_space
from raglab.lab.study import tune
from raglab.lab.untuned_policies import always_answer
from raglab.replay import decide, steps, sweep, tally
from raglab.signals import declaration, own_signal
from raglab.store.files import InputError
from raglab.store.policies import Policy
from raglab.store.trace_files import content_hash, trace_head, trace_table, write
from raglab.store.traces import Trace, TraceError
from raglab.values import Status
from refusals import refused
from stored_traces import stored
from worlds import Hit, ask, measured, policy, random_policies, random_trace, trace_of, with_signals

LAWFUL = settings(deadline=None, derandomize=True, max_examples=4)
SEEDS = st.integers(0, 100_000)
SURE: dict[str, Any] = {"higher": "surer", "unit": "probability"}
CONFIDENT: dict[str, Any] = {"gap": {"enabled": False}, "sufficiency": {"enabled": False}}
GRID = (0.0, 0.25, 0.5, 0.75, 1.0)


def three():
    """Three cases, q0 to q2, one hit each."""
    return stored(trace_of(*[(ask(), [[Hit(0.5)]])] * 3))


VALUES = [0.1, 0.2, 0.3]


def judged_three(**more):
    """The three cases with a signal."""
    return three().with_signal("judge", VALUES, **SURE | more)


def with_own(trace, seed):
    """The trace with three signals of its own on a coarse grid, a tenth missing.

    Of every axis and both ways.
    """
    rng = np.random.default_rng([seed, 21])
    shape = trace.hits.n_reranked.shape

    def drawn(*dims):
        return np.where(rng.random(dims) < 0.1, np.nan, rng.choice(GRID, dims))

    signalled = stored(trace).with_signal("judge", drawn(*shape), **SURE)
    signalled = signalled.with_signal(
        "clicks", drawn(shape[0]), higher="ask", unit="clicks a day", missing="passes"
    )
    return signalled.with_signal("reader", drawn(*shape[:2]), **SURE, stage="query")


BOUNDS = dict.fromkeys(("judge", "clicks", "reader", "confidence"), GRID)


# values


def test_values_of_every_shape_are_laid_out_by_case_arm_and_depth():
    """[Q] and [Q, A] hold for every arm and depth that they do not name."""
    bare = stored(random_trace(1, n_cases=3, arms=2, depths=2))
    whole = np.arange(12.0).reshape(3, 2, 2) / 12.0
    for values in (
        np.array([0.1, 0.2, 0.3]),
        np.array([[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]]),
        whole,
    ):
        column = bare.with_signal("judge", values, **SURE).columns["judge"]
        padded = values.reshape(*values.shape, *[1] * (3 - values.ndim))
        assert (column == np.broadcast_to(padded, (3, 2, 2))).all()
    trace = bare.with_signal("judge", whole, **SURE)
    assert trace.signal("judge", "iterative", 1).tolist() == whole[:, 1, 1].tolist()


def test_a_series_is_read_by_case_id_whatever_its_order():
    """A case that it lacks has no value, which fires its gate."""
    trace = three().with_signal("judge", pd.Series({"q2": 0.9, "q0": 0.2}), **SURE)
    assert trace.signal("judge").to_dict() == pytest.approx(
        {"q0": 0.2, "q1": np.nan, "q2": 0.9}, nan_ok=True
    )
    decisions = decide(trace, policy(**CONFIDENT, signals={"judge": {"min": 0.5}}))
    assert decisions.frame()["status"].tolist() == ["refuse", "refuse", "ok"]
    assert decisions.decided_by[0] == "signals.judge"


@pytest.mark.parametrize("name", ["values.parquet", "values.csv"])
@pytest.mark.parametrize("column", ["judge", "value"])
def test_a_file_gives_its_column(tmp_path, name, column):
    """Parquet and CSV, with the signal's column or one named value."""
    frame = pd.DataFrame({"case_id": ["q1", "q0"], column: [0.25, 0.75]})
    place = tmp_path / name
    frame.to_parquet(place) if place.suffix == ".parquet" else frame.to_csv(place, index=False)
    values = three().with_signal("judge", str(place), **SURE).signal("judge")
    assert values.tolist()[:2] == [0.75, 0.25]


def test_missing_passes_only_where_it_is_declared():
    """NaN fires by default; a value outside the bounds fires either way.

    A bound that is met passes.
    """
    gated = policy(**CONFIDENT, signals={"judge": {"min": 0.5}})
    for missing, status in (("fires", "refuse"), ("passes", "ok")):
        trace = three().with_signal(
            "judge", [np.nan, 0.5, np.nextafter(0.5, 0.0)], **SURE, missing=missing
        )
        assert decide(trace, gated).frame()["status"].tolist() == [status, "ok", "refuse"]


def test_without_hits_only_what_the_query_tells_counts():
    """A number for hits that are not there says nothing; one of the query does."""
    trace = stored(trace_of((ask(), [[]]), (ask(), [[Hit(0.5)]])))
    trace = trace.with_signal("judge", [0.9, 0.9], **SURE).with_signal(
        "asker", [0.9, 0.9], **SURE, stage="query"
    )
    rows, known = decide(trace, policy()).tables.evidence.signals[:, 0], trace_signals(trace)
    assert np.isnan(rows[known.place("judge")]).tolist() == [True, False]
    assert rows[known.place("asker")].tolist() == [0.9, 0.9]


def test_the_name_replaces_and_the_fingerprint_tells_name_value_and_declaration():
    """Each changes it; the same again is the same trace."""
    first = judged_three()
    traces = [
        three(),
        three().with_signal("judges", VALUES, **SURE),
        three().with_signal("judge", [0.1, 0.2, np.nan], **SURE),
        *(
            judged_three(**more)
            for more in (
                {"higher": "ask"},
                {"unit": "share"},
                {"stage": "query"},
                {"missing": "passes"},
                {"source": "a model"},
                {"version": "2"},
            )
        ),
    ]
    assert len({trace.fingerprint for trace in (first, *traces)}) == len(traces) + 1
    assert first.fingerprint == judged_three().fingerprint
    again = first.with_signal("judge", [0.9, 0.2, 0.3], **SURE)
    assert (again.signals, again.signal("judge").iloc[0]) == (("judge",), 0.9)
    assert first.signal("judge").iloc[0] == 0.1


# stored, parted, merged, exported


def test_a_stored_trace_decides_as_before_and_has_the_same_bytes(tmp_path):
    """Saved, loaded and saved again: same bytes, same declarations, same decisions."""
    trace = with_own(measured(random_trace(7, n_cases=5, arms=2)), 7)
    trace.save(tmp_path / "a.parquet")
    loaded = Trace.load(tmp_path / "a.parquet")
    loaded.save(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert loaded.signals == ("clicks", "judge", "reader")
    chosen = with_signals(random_policies(7, 5), 7, BOUNDS)
    assert sweep(loaded, chosen).equals(sweep(trace, chosen))


# refused


@pytest.mark.parametrize("name", ["my.judge", "Judge", "", "j" * 10_240, "judge\n", "top1_cosine"])
def test_what_is_no_name_is_refused(name):
    """Whatever makes it none."""
    refused("rename it", three().with_signal, name, VALUES, **SURE)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ([0.1, np.inf, 0.2], "must be finite .*inf at case 'q1'"),
        ([0.1, 0.2], r"values must be \[Q\], .* got shape \(2,\)"),
        (["a", "b", "c"], "values must be numbers"),
        ([0.1, 1.5, 0.2], r"in \[0, 1\], got 1.5 at case 'q1'"),
        (pd.Series({"q0": 0.1, "q9": 0.2}), "the trace's cases, got 'q9'"),
        (pd.Series([0.1, 0.2], index=["q1", "q1"]), "each case once, got 'q1'"),
        # without an order no case could be told from another
        ({"q1": 0.1}, "numbers by case, or a Series, got {'q1'"),
    ],
)
def test_values_that_are_none_are_refused(values, rule):
    """With the signal, the rule and the case."""
    with pytest.raises(InputError, match=f"signal judge: .*{rule}"):
        three().with_signal("judge", values, **SURE)


@pytest.mark.parametrize("field", [{"higher": "better"}, {"unit": "x" * 300}, {"version": "1\n2"}])
def test_a_declaration_that_is_none_is_refused(field):
    """By the name of its field."""
    refused(f"{next(iter(field))} .*must be", judged_three, **field)


UNIT = {"name": "marks", "low": 0.0, "high": 1.0, "whole": False}
GOOD = declaration(own_signal("judge", higher="surer", unit="probability"))


@pytest.mark.parametrize(
    "forged",
    [
        None,
        [],
        {"judge": None},
        {"judge": GOOD | {"higher": "either"}},
        {"judge": GOOD | {"more": 1}},
        {"judge": GOOD | {"unit": 7}},
        {"judge": GOOD | {"unit": UNIT | {"high": -1.0}}},
        {"judge": GOOD | {"unit": UNIT | {"high": "1"}}},
        {"judge": GOOD | {"unit": {"name": "marks"}}},
        {"judge": GOOD | {"unit": UNIT | {"high": 0.25}}},
        {"judge": GOOD | {"version": "\x1b[2J"}},
        {"judge": GOOD | {"stage": ["hits"]}},
    ],
)
def test_a_forged_declaration_in_a_file_is_refused(tmp_path, forged):
    """Of a file whose hashes are right, before anything is decided."""
    trace = judged_three()
    bad = replace(trace, meta={**trace.meta, "signals": forged})
    write(trace_table(bad, trace_head(bad, content_hash(bad))), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"meta.signals must be|must be as they are declared"):
        Trace.load(tmp_path / "t.parquet")


def test_a_policy_with_a_signal_that_the_trace_lacks_is_refused():
    """By name, with what there is and how to get it; off, it asks for nothing."""
    trace = judged_three()
    gated = policy(signals={"judges": {"min": 0.5}})
    refused(r"signal judges .*holds judge\)", decide, trace, gated)
    refused(r"signal judge .*none", sweep, three(), [policy(signals={"judge": {"min": 0.5}})])
    off = gated.replace("signals.judges.enabled", False)
    _agree(trace, [off, policy(signals={"judges": {}}), off.replace("signals.judge.min", 0.25)])


# laws on random traces: sweep = decide = explain, of both engines


def _agree(trace, policies):
    """Both engines, the decision and the checks of every case."""
    counted, plain = tally(trace, policies), tally(trace, policies, engine="numpy")
    assert np.array_equal(counted.stages, plain.stages)
    assert np.array_equal(counted.cells, plain.cells)
    for row, chosen in enumerate(policies):
        decisions = decide(trace, chosen)
        assert (
            counted.stages[row].tolist()
            == np.bincount(decisions.outcome.stage, minlength=27).tolist()
        )
        for place, case in enumerate(trace.cases):
            if chosen.decision.rule != "chain":
                check_case(decisions, place)
                continue
            explanation = decisions.explain(case.id)
            assert decide_by_checks(explanation).status == Status(int(decisions.status[place])).name
            assert not check_differences(explanation, decisions.thresholds)


def _cost_policies(count, seed):
    """Policies that decide by expected cost over signals of the trace, its own among them."""
    rng = np.random.default_rng([seed, 22])
    names = ("judge", "clicks", "reader", "confidence", "words")
    return [random_costs(rng, random_model(rng, policy(), names)) for _ in range(count)]


@LAWFUL
@given(seed=SEEDS)
def test_sweep_decides_as_decide_and_explain_do(seed):
    """Of random policies with bounds on own signals, and decisions by cost over them."""
    trace = with_own(random_trace(seed, n_cases=6, depths=1 + seed % 2), seed)
    _agree(trace, with_signals(random_policies(seed, 4), seed, BOUNDS))
    _agree(trace, _cost_policies(2, seed))


@LAWFUL
@given(seed=SEEDS)
def test_an_own_copy_of_a_built_in_signal_is_that_signal(seed):
    """The same values under another name: the same decisions and steps of every bound."""
    bare = stored(random_trace(seed, n_cases=5))
    chosen = [
        chosen_policy
        for chosen_policy in with_signals(random_policies(seed, 4), seed, {"top1_cosine": GRID})
        if chosen_policy.signals
    ]
    evidence = decide(bare, policy()).tables.evidence
    values = evidence.signals[evidence.known.place("top1_cosine"), 0]
    trace = bare.with_signal("near", values, higher="surer", unit="cosine")
    for chosen_policy in chosen:
        section = chosen_policy.model_dump()["signals"]
        copied = chosen_policy.replace("signals", {"near": section["top1_cosine"]})
        assert np.array_equal(
            decide(trace, chosen_policy).outcome.stage, decide(trace, copied).outcome.stage
        )
        for end in ("min", "max"):
            first, second = (
                steps(trace, p, path=f"signals.{n}.{end}")
                for p, n in ((chosen_policy, "top1_cosine"), (copied, "near"))
            )
            assert first.equals(second)


@LAWFUL
@given(seed=SEEDS)
def test_steps_and_flips_of_costs_over_own_signals_are_exact(seed):
    """At every breakpoint and beside it."""
    trace = with_own(random_trace(seed, n_cases=4), seed)
    for chosen in _cost_policies(1, seed):
        check_steps(trace, chosen, "decision.ratio")
        check_flip(trace, chosen, trace.cases[0].id)


@LAWFUL
@given(seed=SEEDS)
def test_merged_parts_decide_as_the_whole(seed):
    """Any two parts of a trace, in any order, with chunks that no hit of theirs needs left out."""
    rng = np.random.default_rng([seed, 23])
    whole = with_own(random_trace(seed, n_cases=6, arms=2), seed)
    rows = rng.permutation(6)
    parts = [keep_used_chunks(whole.subset(sorted(part.tolist()))) for part in (rows[:3], rows[3:])]
    merged = parts[0].merge(parts[1])
    assert [case.id for case in merged.cases] == [case.id for part in parts for case in part.cases]
    chosen = with_signals(random_policies(seed, 4), seed, BOUNDS)
    for policy_of_it in chosen:
        before, after = (
            decide(trace, policy_of_it).frame(reasons=True).set_index("case_id")
            for trace in (whole, merged)
        )
        assert after.loc[before.index].equals(before)
    assert merged.signal("judge").loc[whole.signal("judge").index].equals(whole.signal("judge"))


# every consumer on a trace with one good signal of its own


@pytest.fixture(scope="module")
def judged():
    """Labelled cases in three splits with a signal that tells right-if-answered from wrong."""
    trace = labelled(4, {"tune": 90, "certify": 90, "report": 60})
    right = decide(trace, always_answer(Policy.load())).right
    values = np.random.default_rng(4).uniform(0.0, 0.6, len(trace)) + 0.4 * right
    return stored(trace).with_signal("judge", values, **SURE)


def test_a_search_moves_its_bound_and_a_certificate_varies_it(judged):
    """Space and grid know the path."""
    gated = Policy.load().replace("signals.judge.min", 0.5)
    assert "signals.judge.min" in full_space(judged, gated)
    offered = grid(judged.split("tune"), always_answer(gated).replace("signals.judge.min", 0.5))
    assert len({candidate.value("signals.judge.min") for candidate in offered}) > 10
    certified = certify_best(judged, offered, targets={"hallucination_rate": 0.2}, again=True)
    assert certified.policy.value("signals.judge.min") > 0.3


def test_a_fit_and_a_fusion_use_it(judged):
    """Both give it weight, decide with it, and are refused where it is missing."""
    fitted = fit_decision(judged, Policy.load())
    assert any(fitted.decision.model.parts["judge"].weights)
    fused = fit_fused_gate(judged, Policy.load()).policy
    assert "judge" in fused.fused.parts
    bare = replace(judged, columns={})
    for tuned in (fitted, fused):
        assert len(decide(judged, tuned).frame()) == len(judged)
        refused(r"with_signal\('judge'", decide, bare, tuned)


@pytest.mark.usefixtures("quick_study")
def test_a_study_selects_by_it(judged):
    """Its threshold is a candidate, the cost decision weighs it, and what is selected reads it."""
    study = tune(judged, trials=5, space={"signals.confidence.min": (0.0, 100.0)})
    assert {"one threshold", "expected cost"} <= set(study.costs.index)
    assert used_signals(study.policies["one threshold"]) == ("judge",)
    assert "judge" in used_signals(study.policies["expected cost"])
