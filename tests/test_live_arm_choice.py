"""Reward components of a trace, and the table of full information that bandits are simulated on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raglab.lab.slice_rates import ndcg_by_case, ranking
from raglab.live.arm_choice import (
    ROUTER_FEATURES,
    available,
    case_features,
    components,
    context,
    router,
    table,
)
from raglab.policy import PolicyData
from raglab.reward import RewardWeights, reward
from raglab.values import Latency
from worlds import Hit, ask, policy, trace_of

ANY = PolicyData.from_mapping({})
EAST, NORTH = (1.0, 0.0), (0.0, 1.0)


def hits(*scores):
    """Hits in l2 order with their fused and reranked scores; rank follows the reranked ones."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place][1])
    return [
        Hit(0.25 * (place + 1), rank=order.index(place), s_hybrid=fused, s_rerank=score)
        for place, (fused, score) in enumerate(scores)
    ]


def measured(*rows, vectors=(EAST, NORTH), ms=100.0):
    """Trace of one arm with embeddings, and 100 ms in each of two stages."""
    bare = trace_of(*((ask(), [row]) for row in rows))
    units = np.array(
        [vectors[number % len(vectors)] for number in range(len(bare.chunks))], dtype=np.float32
    )
    latency = Latency(("dense", "rerank"), np.full((len(bare), 1, 1, 2), ms))
    return replace(bare, vectors=units.reshape(len(bare.chunks), -1), latency=latency)


class TestComponents:
    """What an unsupervised reward sees."""

    def test_by_head(self):
        """Scores 0.9 and 0.4, at right angles, in reverse order to the fused, 200 ms of 8 s."""
        row = components(measured(hits((0.2, 0.9), (0.6, 0.4))), policy()).iloc[0]
        assert row["margin"] == pytest.approx(0.5)
        assert row["diversity"] == 1.0
        assert row["consistency"] == 0.0
        assert row["latency_ratio"] == 0.025
        assert (row["cache_hit"], row["ms"], row["arm"]) == (0.0, 200.0, "hybrid")

    def test_the_first_final_k_of_the_arms_order_count(self):
        """The third by rank is not among two chosen, though nearest and only other direction."""
        row = [
            Hit(0.25, rank=2, s_rerank=0.1),
            Hit(0.5, rank=0, s_rerank=0.5),
            Hit(0.75, rank=1, s_rerank=0.5),
        ]
        seen = components(measured(row, vectors=(NORTH, EAST, EAST)), policy()).iloc[0]
        assert (seen["margin"], seen["diversity"]) == (0.0, 0.0)

    def test_nothing_found_is_no_margin(self):
        """A question without hits has margin and diversity 0 and no order to agree on."""
        seen = components(measured(hits((0.5, 0.5)), []), policy()).iloc[1]
        assert (seen["margin"], seen["diversity"], seen["consistency"]) == (0.0, 0.0, 0.5)

    def test_without_a_reranker_it_is_missing(self):
        """No reranked score, no margin and no second pass: NaN, not 0, and so is the reward."""
        trace = measured([Hit(0.25), Hit(0.5, rank=1)])
        seen = components(trace, policy())
        assert np.isnan(seen[["margin", "consistency"]].to_numpy()).all()
        assert seen["diversity"].iloc[0] == 1.0
        assert np.isnan(np.asarray(reward(seen))).all()

    def test_a_latency_that_was_not_measured_is_missing(self):
        """NaN, not 0: an arm without a clock would be the fastest.

        A stage that did not run costs nothing.
        """
        trace = measured(hits((0.5, 0.5)), hits((0.5, 0.5)))
        ms = np.array([[np.nan, np.nan], [100.0, np.nan]]).reshape(2, 1, 1, 2)
        seen = components(replace(trace, latency=Latency(("dense", "rerank"), ms)), policy())
        np.testing.assert_array_equal(seen["ms"], [np.nan, 100.0])
        np.testing.assert_array_equal(seen["latency_ratio"], [np.nan, 0.0125])

    def test_missing_parts_are_named(self):
        """Embeddings, latencies and a budget are asked for by name."""
        trace = measured(hits((0.5, 0.5)))
        for bare, more, rule in (
            (replace(trace, vectors=None), {}, "embeddings of the chunks"),
            (replace(trace, latency=None), {}, "latencies"),
            (trace, {"budget_ms": 0.0}, "budget_ms must be above 0, got 0"),
        ):
            with pytest.raises(ValueError, match=rule):
                components(bare, policy(), **more)

    def test_the_gates_change_what_is_right_not_what_is_measured(self):
        """A policy that refuses has the components of one that answers."""
        trace = measured(hits((0.2, 0.9), (0.6, 0.4)))
        open_, shut = (
            components(trace, policy(l2={"max_l2": cut, "soft_max_l2": None})) for cut in (1.0, 0.1)
        )
        assert [open_["status"][0], shut["status"][0]] == ["ok", "refuse"]
        first, second = (each.drop(columns=["status", "right"]) for each in (open_, shut))
        assert first.equals(second)


class TestTable:
    """Every arm of every case."""

    def test_by_head(self):
        """One case, one arm.

        What was right, what the reward says, and the context that was known before.
        """
        trace = measured(hits((0.2, 0.9), (0.6, 0.4)))
        made = table(trace, policy())
        assert made.arms == ("hybrid",)
        assert made.value.tolist() == [[1.0]]
        # raw = 0.4 · 0.5 + 0.1 · 1 − 0.2 · 2 · 0.025 = 0.29, between −0.4 and 0.8
        assert made.reward[0, 0] == pytest.approx(0.69 / 1.2)
        assert made.features.shape == (1, len(ROUTER_FEATURES))
        assert made.feature_names == ROUTER_FEATURES

    def test_other_weights_score_the_same_measurements(self):
        """Components measured once and scored again equal components measured anew."""
        trace, weights = (
            measured(hits((0.2, 0.9), (0.6, 0.4)), hits((0.5, 0.5))),
            RewardWeights(margin=1.0),
        )
        seen = components(trace, policy())
        assert np.array_equal(
            table(trace, policy(), weights, measured=seen).reward,
            table(trace, policy(), weights).reward,
        )

    def test_measurements_of_another_trace_are_refused(self):
        """Components of other questions do not slip in, though there are as many."""
        trace = measured(hits((0.2, 0.9), (0.6, 0.4)), hits((0.5, 0.5)))
        other = components(trace, policy()).assign(case_id=["x", "y"])
        with pytest.raises(ValueError, match="measured must be 2 components of this trace"):
            table(trace, policy(), measured=other)

    def test_arms_of_an_intent_need_it(self):
        """Hybrid and iterative are always there.

        Graph and table where the question asks for what they have.
        """
        arms = ("hybrid", "iterative", "graph", "table")
        assert available("Good morning", ANY, arms).tolist() == [True, True, False, False]
        assert available("How much is the premium?", ANY, arms).tolist() == [
            True,
            True,
            False,
            True,
        ]
        assert available("Who is the loss payee?", ANY, arms).tolist() == [True, True, True, False]

    def test_context_by_head(self):
        """One content word, one entity, one document named, no file in the text."""
        seen = dict(
            zip(ROUTER_FEATURES, context("What is the excess?", 1, ["guide.md"], ANY), strict=True)
        )
        assert (seen["intercept"], seen["words"], seen["entities"]) == (1.0, 0.05, 0.25)
        assert (seen["documents"], seen["path"]) == (1.0, 0.0)
        assert context("See guide.md", 0, [], ANY)[ROUTER_FEATURES.index("path")] == 1.0

    def test_the_router_puts_all_on_one_arm(self):
        """A trace of one arm is routed to it."""
        trace = measured(hits((0.5, 0.5)))
        assert router(trace, policy()).tolist() == [[1.0]]
        assert case_features(trace, policy())[0, 0] == 1.0


def test_ndcg_by_case_averages_to_the_ranking():
    """A case whose source comes first has 1, second 0.63, and one expecting none is missing."""
    first = (ask(expect_sources=("guide.md",)), [hits((0.5, 0.9), (0.5, 0.4))])
    second = (
        ask(expect_sources=("other.md",)),
        [[Hit(0.25, rank=0), Hit(0.5, source="other.md", rank=1)]],
    )
    trace = trace_of(first, second, (ask(), [hits((0.5, 0.5))]))
    values = ndcg_by_case(trace)[:, 0]
    assert values[:2].tolist() == pytest.approx([1.0, 0.6309297535714575])
    assert np.isnan(values[2])
    assert ranking(trace)["nDCG@10"].iloc[0] == pytest.approx(np.nanmean(values))
