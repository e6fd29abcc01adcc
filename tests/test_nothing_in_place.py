"""Nothing is written in place.

Arrays of traces, evidence and decisions, and the arguments of the algebra.
"""

from __future__ import annotations

import doctest
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from decided import by_cost
from parts import in_parts
from raglab import certify, gates, metrics, replay
from raglab.bandit import learner, learners
from raglab.bandit.learner import Bandit
from raglab.decision import chain, inclusion, learned_cases, outcome_codes
from raglab.decision.measurement import measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.default_learner import DefaultLearner, votes
from raglab.gating import expected_cost
from raglab.metrics import crossings, mixes
from raglab.metrics.costs import LABEL_OF_CELL
from raglab.policy import PolicyData
from raglab.replay import decide, steps, sweep, tally
from raglab.replaying import breakpoints, step_functions
from raglab.store.traces import Trace
from read_only_arguments import (
    assert_closed,
    functions,
    guard_algebra,
    guarded,
    modules,
    takes_arrays,
)
from sample_traces import sample_trace
from worlds import policy, random_policies, random_trace, with_signals


class TestArrays:
    """What leaves a trace, its evidence and decisions."""

    @pytest.fixture
    def traces(self, tmp_path):
        """Traces by how they are made."""
        whole = sample_trace().with_signal(
            "judge", np.linspace(0.0, 1.0, 6), higher="surer", unit="probability"
        )
        whole = replace(whole, vectors=np.zeros((len(whole.chunks), 4), np.float32))
        whole.save(tmp_path / "trace.parquet")
        frame = pd.DataFrame(
            {"query": ["x", "x", "y"], "hit_id": ["s", "t", "s"], "score": [0.9, 0.5, 0.7]}
        )
        frame = frame.assign(label="ok", text=["storm", "theft", "storm"])
        return {
            "built": whole,
            "loaded": Trace.load(tmp_path / "trace.parquet"),
            "subset": whole.subset([1, 0]),
            "merged": whole.subset([0]).merge(whole.subset([1])),
            "frame": raglab.trace_from_frame(frame),
            "pickled": replace(pickle.loads(pickle.dumps(whole))),
        }

    def test_of_traces(self, traces):
        """However a trace is made."""
        for trace in traces.values():
            assert_closed(trace)

    @pytest.mark.parametrize("depths", [1, 2])
    def test_of_evidence(self, depths):
        """Of either depth, with a model, and of answers."""
        trace = random_trace(3, n_cases=6, depths=depths)
        for chosen in (policy(), by_cost(policy()), PolicyData.from_mapping()):
            tables = measured_tables(trace, chosen)
            assert_closed(tables.evidence)
            assert_closed(tables.chosen)
        assert_closed(measured_tables(sample_trace(), PolicyData.from_mapping()).evidence)

    def test_of_decisions(self):
        """In memory and over parts."""
        trace = sample_trace()
        parts: Any = in_parts(trace, 2)
        for decided in (decide(trace, policy()), decide(parts, policy())):
            named = ("status", "passes", "decided_by", "label_code", "correct", "contract_codes")
            assert_closed(
                {name: getattr(decided, name) for name in named}
                | {"confidence": decided.confidence()}
            )
        assert_closed(decide(trace, policy()).outcome)

    def test_of_its_caller_stay_writable(self):
        """What a caller gave is the caller's.

        Its flag stays, and its changes do not reach a trace's signals.
        """
        trace, shape = sample_trace(), (6, 1, 1)
        for scores_of_user in (np.linspace(0.0, 1.0, 6), np.linspace(0.0, 1.0, 6).reshape(shape)):
            held = trace.with_signal("judge", scores_of_user, higher="surer", unit="probability")
            before = held.signal("judge").tolist()
            scores_of_user[...] = 0.5
            assert held.signal("judge").tolist() == before
        mine = np.array(trace.hits.l2)
        assert not trace.hits._replace(l2=mine).l2.flags.writeable
        assert mine.flags.writeable

    def test_a_signal_handed_out_is_a_copy(self):
        """A Series of the user's own."""
        trace = sample_trace().with_signal("judge", np.zeros(6), higher="surer", unit="probability")
        handed_out = trace.signal("judge")
        handed_out.iloc[0] = 1.0
        assert trace.signal("judge").tolist() == [0.0] * 6


def test_thresholds_of_a_gate_leave_their_values_alone():
    """A missing nullable threshold turns its gate off in what is returned, not what was given."""
    gate = gates.gate_by_name("gap")
    values = {"gap.min_gap": np.array([np.nan, 0.5]), "gap.enabled": np.array([True, True])}
    assert gates.gate_thresholds(gate, values.__getitem__).on.tolist() == [False, True]
    assert values["gap.enabled"].tolist() == [True, True]


# the algebra writes into no argument


def of_replay(seed, depths):
    """Decisions, sweeps by both engines, steps and flips, by rule chain and by expected cost."""
    trace = random_trace(seed, n_cases=6, depths=depths, arms=2)
    policies = with_signals(random_policies(seed, 2), seed)
    policies = [*policies, by_cost(policies[0])]
    for chosen in policies:
        decide(trace, chosen).frame(reasons=True)
        evidence = measured_tables(trace, chosen).evidence
        replay.all_step_cells(evidence, chosen)
        step_functions.idle_thresholds(evidence, chosen, ["l2.max_l2"])
        replay.policy_cells(evidence, [chosen])
        replay.case_cells(evidence, [chosen])
        step_functions.piece_status(evidence, chosen, breakpoints.acting_paths(evidence, chosen))
    for engine in ("numpy", "auto"):
        sweep(trace, policies, engine=engine)
        tally(trace, policies, engine=engine)
    evidence, limits = measured_tables(trace, policies[0]).evidence, policy_thresholds(policies[:1])
    breakpoints.breakpoints(evidence, limits, "confidence.tau_default")
    chain.needs_refinement(evidence, limits)
    chain.read_by_slot(evidence, 0)("best_l2")
    replay.step_cells(evidence, policies[0], "confidence.tau_default")
    replay.evidence_with_model(evidence, policies[0], trace.cases)
    outcome_codes.codes_missing(replay.shard_codes(trace, policies[:1]))
    steps(trace, policies[0], path="confidence.tau_default")
    decide(sample_trace(), PolicyData.from_mapping()).frame(reasons=True)


def of_counts():
    """Margins, rates, costs and the test of a certificate."""
    share = np.array([0.25, 0.5, np.nan])
    gates.intent_margins(share, share, share, gates.IntentThresholds(share, share, share))
    metrics.decision_rates.hit_rate(np.array([[True, False]]), 1)
    expected_cost.action_costs(metrics.cost_matrix(), np.array([1.0, 2.0]))
    total, n = np.array([0.0, 1.0]), np.array([10, 20])
    codes = learned_cases.question_codes(["who?", "where?"])
    learned_cases.is_repeated_set(codes, learned_cases.code_text(["Who"]))
    certify.hoeffding_bentkus(total, n, 0.1)


def of_bandits():
    """Rounds of every learner, by its loops and step by step, and probabilities of its choices."""
    rng, on = np.random.default_rng(0), np.array([[True, True, False]] * 2)
    for name in learner.LEARNERS:
        bandit = Bandit(name)
        state = learner.init(3, bandit=bandit, n_features=2 if bandit.linear else 0, batch=(2,))
        context = np.array([[1.0, 0.5]] * 2) if bandit.linear else np.zeros((2, 0))
        for arm, reward in ((0, 0.25), (1, 0.75), (2, 0.5)):
            state = learner.record_pull(state, np.array([arm, arm]), bandit)
            arms, ages = np.array([arm, arm]), np.zeros(2, int)
            rewards = learner.Rewards(np.arange(2), arms, np.full(2, reward), ages, context)
            state = learner.record_rewards(state, rewards, bandit)
        entry = learner.LEARNERS[name]
        for function, chance in ((entry.index, on), (entry.draw, rng), (entry.largest, on)):
            if function is not None:
                # guarded, unlike the table's
                getattr(learners, function.__name__)(state, bandit, chance, context)
        learner.pick_arm(state, bandit, rng, on, context)


def of_votes():
    """Votes on the values of a default."""
    counts = votes.no_votes(2, (3,))
    value, signal = np.array([0, 1, 0]), np.array([votes.SIGNALS.index("explicit_yes")] * 3)
    counts = votes.add_signal(counts, value, signal, learner=DefaultLearner("posterior"))
    votes.decay_votes(counts, np.array([0.5, 1.0, 0.0]))


def of_mixes():
    """Counts of cases in another mix, and of cases with weights."""
    mix = mixes.checked_mix({"ok": (0.8, 0.9), "refuse": (0.05, 0.2)})
    assert mix is not None
    cells = np.arange(len(LABEL_OF_CELL), step=4)
    counts = np.bincount(cells, minlength=len(LABEL_OF_CELL))[None]
    mixes.mix_column(LABEL_OF_CELL[cells], mix)
    mixes.cost_columns(counts, weighed=mixes.mix_weighings(counts, mix))
    weight = np.full(len(cells), 0.5)
    crossings.cost_table({"policy": weight}, LABEL_OF_CELL[cells])
    metrics.weighed_cases(cells, weight)
    inclusion.check_alone(mix, None)


def test_no_function_writes_into_an_argument():
    """Every public function of the algebra that takes an array is called with read-only ones.

    This is done by examples or here.
    """
    with guard_algebra() as called:
        for module in modules():
            assert not doctest.testmod(module).failed, module.__name__
        for flow in (of_counts, of_bandits, of_votes, of_mixes):
            flow()
        of_replay(3, 1)
        of_replay(8, 2)
    assert [
        name
        for name, function in functions().items()
        if takes_arrays(function) and name not in called
    ] == []


def test_the_guard_finds_a_write():
    """One that sorts."""
    with pytest.raises(ValueError, match="read-only"):
        guarded("write", lambda x: x.sort(), set())(np.array([2.0, 1.0]))
