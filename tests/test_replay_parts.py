"""Replay over the parts of a trace.

Counts and steps are those of the trace in one piece, to the bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decided import random_costs, random_model, with_columns
from generators import Drawn, Weighed
from parts import cut, same
from raglab.gates import Threshold
from raglab.live.answer_recording import record_answers
from raglab.loops.parallel import parallel_workers
from raglab.metrics import N_CELLS, RATES
from raglab.policy import PolicyData
from raglab.replay import decide, decide_policies, flips, steps, sweep
from raglab.replaying.breakpoints import SWEPT, Moves, sum_moves
from stored_traces import stored
from worlds import random_policies, random_trace, with_signals

REPLAYED = settings(deadline=None, derandomize=True, max_examples=4)


PATHS = (
    "l2.max_l2",
    "density.min_keep",
    "gap.min_gap",
    "resolver.min_group_gap",
    "signals.gap.max",
    "l2.soft_max_l2",
)


@REPLAYED
@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(0, 12), max_size=12),
    engine=st.sampled_from(["numpy", "auto"]),
)
def test_a_sweep_of_the_parts_is_that_of_the_whole(seed, cuts, engine):
    """Policies of several structures, two depths, gates on signals.

    Parts of one case among them.
    """
    trace = stored(random_trace(seed, n_cases=12, depths=1 + seed % 2, arms=2))
    policies = [
        *random_policies(seed, 3),
        *random_policies(seed + 1, 3),
        *with_signals(random_policies(seed, 3), seed),
    ]
    for arm in (None, "iterative"):
        same(
            sweep(cut(trace, cuts), policies, arm=arm, engine=engine),
            sweep(trace, policies, arm=arm, engine=engine),
        )


@REPLAYED
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(0, 12), max_size=12))
def test_steps_of_the_parts_are_those_of_the_whole(seed, cuts):
    """Of every threshold at once and of each alone, on coarse grids where ties are the rule."""
    trace = stored(random_trace(seed, n_cases=12, depths=1 + seed % 2))
    policy = with_signals(random_policies(seed, 1), seed)[0]
    parts = cut(trace, cuts)
    whole = steps(trace, policy)
    same(steps(parts, policy), whole)
    for path in (PATHS[seed % len(PATHS)], *whole["path"][:1]):
        same(steps(parts, policy, path=path), steps(trace, policy, path=path))


@pytest.mark.parametrize("seed", range(2))
def test_steps_of_costs_are_those_of_the_whole(seed):
    """A decision by expected cost with probabilities measured by shard, each cost a threshold."""
    rng = np.random.default_rng(seed)
    chosen = random_costs(rng, random_model(rng, random_policies(seed, 1)[0]))
    trace = with_columns(stored(random_trace(seed, n_cases=9)), seed)
    parts = cut(trace, [1, 2, 6])
    same(sweep(parts, [chosen]), sweep(trace, [chosen]))
    same(steps(parts, chosen), steps(trace, chosen))
    same(decide(parts, chosen).frame(reasons=True), decide(trace, chosen).frame(reasons=True))


@pytest.mark.parametrize("seed", range(2))
def test_recorded_answers_and_own_signals_go_with_the_parts(seed):
    """Gates on answers and on a signal of the user count alike in parts of one case."""
    base = random_policies(seed, 1, support__enabled=True, generation__enabled=True)[0]
    made = record_answers(
        stored(random_trace(seed, n_cases=6, depths=1 + seed % 2)), base, Drawn(), Weighed()
    )
    values = np.random.default_rng(seed).choice([0.0, 0.25, 0.5], 6)
    trace = made.with_signal("judge", values, higher="surer", unit="probability")
    parts = cut(trace, list(range(6)))
    policies = [base, PolicyData.from_mapping({"signals": {"judge": {"min": 0.25}}})]
    same(sweep(parts, policies), sweep(trace, policies))
    for policy in policies:
        same(steps(parts, policy), steps(trace, policy))
        same(decide(parts, policy).frame(reasons=True), decide(trace, policy).frame(reasons=True))


class TestResolution:
    """Steps of at most so many rows."""

    @pytest.mark.parametrize("path", ["l2.max_l2", "similarity.min_similarity", "density.min_keep"])
    @pytest.mark.parametrize("resolution", [2, 5, 100])
    def test_the_closed_end_of_a_step_is_exact(self, path, resolution):
        """At most as many rows.

        The counts at the closed end of each are those of the exact steps there.
        """
        rng = np.random.default_rng(1)
        trace = stored(random_trace(5, n_cases=40))
        shape = trace.hits.l2.shape
        hits = trace.hits._replace(cosine=rng.random(shape), l2=np.sort(rng.random(shape)))
        trace = replace(trace, hits=hits)
        gates = ("density", "gap", "coverage", "similarity", "confidence")
        alone = {gate: {"enabled": gate == path.partition(".")[0]} for gate in gates}
        policy = PolicyData.from_mapping({**alone, "l2": {"soft_max_l2": None}})
        side = SWEPT[path].side
        exact, coarse = (
            steps(trace, policy, path=path),
            steps(trace, policy, path=path, resolution=resolution),
        )
        assert len(coarse) <= resolution
        assert (coarse["low"].iloc[0], coarse["high"].iloc[-1]) == (
            exact["low"].iloc[0],
            exact["high"].iloc[-1],
        )
        for row in coarse.itertuples():
            at = float(row.low if side == "ceiling" else row.high)
            value = int(at) if SWEPT[path].whole else at
            assert sweep(trace, [policy.replace(path, value)])["pass_rate_k"][0] == row.pass_rate_k
        same(steps(cut(trace, [3, 4]), policy, path=path, resolution=resolution), coarse)

    @pytest.mark.parametrize("resolution", [1, 2.5])
    def test_a_resolution_is_a_whole_number_of_two_or_more(self, resolution):
        """The outermost two are the least."""
        with pytest.raises(ValueError, match="resolution must be a whole number of at least 2"):
            steps(random_trace(0), random_policies(0, 1)[0], resolution=resolution)


@pytest.mark.parametrize("door", [decide, lambda it, policy: sweep(it, [policy]), steps])
def test_what_is_no_trace_is_refused(door):
    """A path instead of the trace that stands there, with what to do."""
    with pytest.raises(ValueError, match=r"trace must be .*, got str; .*raglab\.Trace\.open"):
        door("out/trace.parquet", random_policies(0, 1)[0])


@pytest.mark.parametrize("path", [None, "l2.max_l2"])
def test_intervals_may_be_left_out(path):
    """Without a level the table is the same but for the two columns of each interval."""
    trace = stored(random_trace(2, n_cases=30))
    policy = random_policies(2, 1)[0]
    ends = [f"{name}{end}" for name in (*RATES, "expected_cost") for end in ("_low", "_high")]
    whole = steps(trace, policy, path=path).drop(columns=ends)
    same(whole, steps(cut(trace, [7, 20]), policy, path=path, level=None))
    bare = sweep(trace, [policy], level=None)
    same(sweep(trace, [policy]).drop(columns=ends), bare)


def test_a_zero_has_no_sign():
    """Whichever part comes first, a breakpoint at -0.0 and at 0.0 is one at 0.0."""
    first, cell = np.eye(1, N_CELLS, dtype=np.int64)[0], np.zeros(1, dtype=np.int8)
    parts = [Moves(first, np.array([zero]), cell, cell + 1) for zero in (0.0, -0.0)]
    swept: Threshold = SWEPT["similarity.min_similarity"]
    one, two = (sum_moves(order, swept) for order in (parts, parts[::-1]))
    assert one.low.tobytes() == two.low.tobytes()
    assert one.low.tolist() == [-1.0, 0.0]


def test_what_cannot_be_counted_by_shard_says_so():
    """A case that no shard holds is refused as in memory."""
    trace, policy = stored(random_trace(0)), random_policies(0, 1)[0]
    parts = cut(trace, [1])
    for call in (lambda: decide(parts, policy).explain("q9"), lambda: flips(parts, policy, "q9")):
        with pytest.raises(KeyError, match="case must be one of the trace's 4 cases, got 'q9'"):
            call()


def unlabelled(trace):
    """The same, with every second case without a label."""
    cases = list(trace.cases)
    cases[1::2] = [case._replace(expect_status=None) for case in cases[1::2]]
    return replace(trace, cases=tuple(cases))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("seed", range(2))
class TestDecisions:
    """Decisions over shards: columns whole, hits of one shard at a time."""

    @staticmethod
    def drawn(seed, size):
        """A trace, some of it unlabelled, its shards, and two policies with gates on signals."""
        trace = stored(random_trace(seed, n_cases=7, depths=1 + seed % 2))
        trace = unlabelled(trace) if seed % 2 else trace
        return (
            trace,
            cut(trace, list(range(0, 7, size))),
            with_signals(random_policies(seed, 2), seed),
        )

    def test_columns_and_frames(self, seed, size):
        """Everything that is told of a case, and of all in words; workers change nothing."""
        trace, parts, policies = self.drawn(seed, size)
        one, two = decide(trace, policies[0]), decide(parts, policies[0])
        for name in ("label_code", "correct", "contract_codes"):
            assert list(getattr(one, name)) == list(getattr(two, name)), name
        assert one.confidence().tobytes() == two.confidence().tobytes()
        whole = one.frame(reasons=True)
        same(two.frame(reasons=True), whole)
        with parallel_workers("threads", 2):
            same(decide(parts, policies[0]).frame(reasons=True), whole)

    def test_changed_cases(self, seed, size):
        """Beside another policy, on the shards or in memory."""
        trace, parts, policies = self.drawn(seed, size)
        whole = decide(trace, policies[0]).changed(decide(trace, policies[1]))
        first, second = decide_policies(parts, policies)
        same(first.changed(second), whole)
        same(first.changed(decide(trace, policies[1])), whole)

    def test_one_case(self, seed, size):
        """Its gates, options and flips are those of the shard that holds it."""
        trace, parts, policies = self.drawn(seed, size)
        one, two = decide(trace, policies[0]), decide(parts, policies[0])
        for case in trace.cases:
            assert repr(two.explain(case.id)) == repr(one.explain(case.id))
            assert [option.sources for option in two.options(case.id)] == [
                option.sources for option in one.options(case.id)
            ]
            same(flips(parts, policies[0], case.id), flips(trace, policies[0], case.id))
