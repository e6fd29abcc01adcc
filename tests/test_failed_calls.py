"""A case whose model, judge or retriever failed is missing everywhere, and counted (rule S0.1).

The law: a trace with failed calls decides as the trace without their cases, which was never asked.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from answered_traces import GATED, castle, recorded_of_failing
from raglab.decision.answer_text import MissingAnswers
from raglab.decision.trace_view import (
    FAILED_CALLS,
    Measured,
    answered_cases,
    failed_count,
    failed_sentence,
)
from raglab.lab.certification_counts import certified_tally, tally_losses
from raglab.lab.rates_by_group import group_rates
from raglab.lab.slice_rates import slices
from raglab.lab.trace_comparison import compare_traces
from raglab.live.measured_signals import add_signals
from raglab.live.signal_functions import SignalFunction
from raglab.replay import decide, flips, steps, sweep, tally
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from worlds import policy

OPEN = Policy.from_mapping(policy(generation={"enabled": False}).model_dump())


def failing_sets(n):
    """Some of n questions, but not all."""
    return st.lists(st.integers(0, n - 1), unique=True, max_size=n - 1)


def results(trace, chosen):
    """What public functions say of a trace under a policy, as plain values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = trace.trace if isinstance(trace, Measured) else trace
        decisions = decide(trace, chosen)
        return [
            decisions.frame().astype(str).to_numpy().tolist(),
            sweep(trace, [chosen, OPEN]).astype(str).to_numpy().tolist(),
            steps(trace, chosen).astype(str).to_numpy().tolist(),
            tally(trace, [chosen]).cells.tolist(),
            raglab.compare(trace, chosen, OPEN).table.astype(str).to_numpy().tolist(),
            raglab.review(trace, chosen).frame().astype(str).to_numpy().tolist(),
            slices(decisions).astype(str).to_numpy().tolist(),
            group_rates(plain, chosen, "intent", targets={"hallucination_rate": 0.5})
            .astype(str)
            .to_numpy()
            .tolist(),
        ]


class TestLeftOut:
    """Every reader decides the trace as if the cases had not been there."""

    @settings(deadline=None, max_examples=2)
    @given(failing_sets(8), st.booleans(), st.sampled_from([GATED, OPEN]))
    def test_it_decides_as_the_rest(self, failing, gold, chosen):
        """In memory and measured; no case becomes a refusal, and none a hallucination."""
        trace = castle(8, gold=gold)
        failed = recorded_of_failing(trace, failing)
        rest = recorded_of_failing(trace.subset([row for row in range(8) if row not in failing]))
        assert results(failed, chosen) == results(rest, chosen) == results(Measured(failed), chosen)
        row = sweep(failed, [OPEN]).iloc[0]
        assert row["decided_by.generation"] == 0
        assert int(row["false_refusal_rate_k"]) == 0

    def test_every_headline_states_the_count(self):
        """Of decisions, tables, comparisons and reviews."""
        trace = recorded_of_failing(castle(20), [1, 4, 7, 10, 13, 16])
        sentence = failed_sentence(6, 14)
        assert sentence in repr(decide(trace, GATED))
        with pytest.warns(UserWarning, match="6 of 20 cases left out"):
            table = sweep(trace, [GATED])
        assert sentence in table.attrs["headline"]
        assert "failed 6" in repr(raglab.compare(trace, GATED, OPEN))
        assert any(sentence in note for note in raglab.review(trace, GATED).notes)

    def test_a_case_that_is_left_out_cannot_be_looked_up(self):
        """`flips` knows the others."""
        trace = recorded_of_failing(castle(4), [2])
        flips(trace, GATED, "q1")
        with pytest.raises(KeyError):
            flips(trace, GATED, "q2")

    def test_all_failed(self):
        """There is nothing to decide."""
        with pytest.raises(ValueError, match="failed call"):
            decide(recorded_of_failing(castle(3), [0, 1, 2]), GATED)

    def test_two_traces(self):
        """Each is compared without its own failures."""
        before, after = recorded_of_failing(castle(6), [1]), recorded_of_failing(castle(6), [2])
        result = compare_traces(before, after, policy=GATED)
        assert not {"q1", "q2"} & set(map(str, result.changed["case_id"]))


class TestCertificates:
    """They count as answers that were never recorded: wrong, and 5 % at most."""

    @pytest.mark.parametrize(("failed", "is_compared"), [(1, True), (2, True), (3, False)])
    def test_bound(self, failed, *, is_compared):
        """Of 40 answers."""
        trace = recorded_of_failing(castle(40), range(failed))
        counts = tally_losses(certified_tally(trace, [OPEN], None), ["hallucination_rate"], None)
        rest = tally_losses(
            certified_tally(
                answered_cases(recorded_of_failing(castle(40))).subset(range(failed, 40)),
                [OPEN],
                None,
            ),
            ["hallucination_rate"],
            None,
        )
        assert counts.k[0, 0] == rest.k[0, 0] + failed
        assert counts.n[0, 0] == rest.n[0, 0] + failed
        assert counts.missing_answers == [MissingAnswers(failed, 40)]
        assert counts.missing_answers[0].is_compared is is_compared

    def test_count_by_split(self):
        """A failure of the cases that are tuned on is none of those certified on."""
        some = castle(6, split="tune")
        cases = tuple(
            case._replace(split="certify" if row > 2 else "tune")
            for row, case in enumerate(some.cases)
        )
        trace = recorded_of_failing(replace(some, cases=cases), [0, 1, 5])
        assert failed_count(answered_cases(trace).split("tune")) == 2
        assert failed_count(answered_cases(trace).split("certify")) == 1


class TestTraces:
    """The mark goes with the trace."""

    def test_save_merge_and_shards(self, tmp_path):
        """And the count of all parts is that of the whole."""
        one = recorded_of_failing(castle(6), [1])
        other = recorded_of_failing(castle(12).subset(range(6, 12)), [7, 9])
        one.save(tmp_path / "one.parquet")
        assert failed_count(Trace.load(tmp_path / "one.parquet")) == 1
        whole = one.merge(other)
        shards = raglab.io.save_shards([one, other], tmp_path / "shards")
        rest = [0, 2, 3, 4, 5, 6, 8, 10, 11]
        for trace in (whole, shards):
            assert failed_count(trace) == 3
            assert list(decide(trace, GATED).ids()) == [f"q{row}" for row in rest]
        alone = raglab.io.save_shards([one], tmp_path / "alone")
        assert failed_count(alone.append(other)) == 3

    def test_another_run_asks_again(self):
        """What is recorded then is decided; a run for nothing of a case leaves its mark."""
        trace = castle(6)
        failed = recorded_of_failing(trace, [1, 2])
        assert recorded_of_failing(failed, [2]).meta[FAILED_CALLS] == [
            ["recorded answers", "q2", None]
        ]
        whole = recorded_of_failing(failed)
        assert not failed_count(whole)
        assert decide(whole, GATED).ids() == [case.id for case in trace.cases]


class Judge:
    """A judge that fails for some questions, and counts them."""

    def __init__(self, failing):
        from raglab.extensions.learned_signals.judging import JudgeCounts

        self.failing, self.counts = failing, JudgeCounts()

    def __call__(self, rows):
        """Half sure of all others."""
        values = []
        for query in rows["query"]:
            has_failed = query in self.failing
            self.counts.missing.update(["HTTP 503"] if has_failed else [])
            values.append(float("nan") if has_failed else 0.5)
        return values


def test_a_judge_that_failed(tmp_path):
    """Its cases are left out, and no gate takes the missing verdict for a low one."""
    trace, judge = castle(6), Judge(["how wide is moat 2"])

    def judged(judge):
        return SignalFunction(
            "judge", judge, needs=("query",), higher="surer", unit="probability", version="1"
        )

    chosen = policy(signals={"judge": {"min": 0.4}})
    with pytest.warns(UserWarning, match="1 of 6 values"):
        failed = add_signals(trace, judged(judge), cache=tmp_path / "a.sqlite")
    assert decide(failed, chosen).ids() == ["q0", "q1", "q3", "q4", "q5"]
    assert not (decide(failed, chosen).decided_by == "signals.judge").any()
    whole = add_signals(failed, judged(Judge([])), cache=tmp_path / "a.sqlite")
    assert len(decide(whole, chosen)) == 6
