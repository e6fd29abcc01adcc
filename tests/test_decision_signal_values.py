"""Signals of a case.

Each by head, NaN where there is nothing to measure, and refused where a trace lacks one.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decided import with_constant_columns
from generators import Drawn, Weighed
from raglab.decision.measurement import measured_tables
from raglab.decision.signal_values import (
    COMPARED_ARMS,
    arm_agreement,
    check_stored,
    score_statistics,
)
from raglab.live.answer_recording import record_answers
from raglab.signals import BUILT_IN, NAMES
from raglab.store.policies import Policy
from raglab.values import Hits, TraceData
from worlds import PATTERNS, Hit, ask, policy, random_trace, trace_of


def values(trace, chosen=None, row=0, depth=0):
    """Signals of a case by name."""
    signals = measured_tables(trace, chosen or policy()).evidence.signals
    return dict(zip(NAMES, signals[:, depth, row].tolist(), strict=True))


class TestByHead:
    """Worked examples."""

    def test_the_hits(self):
        """Three hits of two groups: the nearest groups lie 0.2 apart, both could be offered."""
        hits = [
            Hit(0.2, "a.md", 1, {"product": "a"}),
            Hit(0.3, "a.md", 2, {"product": "a"}),
            Hit(0.4, "b.md", 1, {"product": "b"}),
        ]
        seen = values(trace_of((ask(), [hits])))
        assert (seen["groups"], seen["options"]) == (2.0, 2.0)
        assert seen["group_gap"] == pytest.approx(0.2)
        cosines = np.array([0.9, 0.85, 0.8])
        assert seen["score_scale"] == pytest.approx(0.85)
        assert seen["score_spread"] == pytest.approx(cosines.std())
        assert seen["nqc"] == pytest.approx(cosines.std() / 0.85)

    def test_the_question(self):
        """Words, entities of the patterns, documents, and what the intent rules say."""
        case = ask("compare fleet versus hull excess, and why", selected_sources=("guide.md",))
        seen = values(trace_of((case, [[Hit(0.2)]])), policy(patterns=PATTERNS))
        assert (seen["words"], seen["entities"], seen["documents"]) == (7.0, 2.0, 1.0)
        assert seen["complexity"] > 0.5
        assert seen["intent_graph"] == 0.0

    def test_only_the_ten_best_hits_spread(self):
        """An eleventh hit changes the scale and nothing of the spread."""
        ten = np.linspace(0.9, 0.45, 10)[None]
        more = np.append(ten, [[0.0]], axis=1)
        alone, with_it = score_statistics(ten), score_statistics(more)
        assert with_it["score_spread"] == pytest.approx(alone["score_spread"])
        assert with_it["score_scale"] == pytest.approx(ten.sum() / 11)

    def test_columns_of_the_trace(self):
        """A stored signal is read at the arm and the depth of the decision."""
        trace = random_trace(0, n_cases=3, depths=2, arms=2)
        column = np.arange(12.0).reshape(3, 2, 2)
        trace = replace(trace, columns={"empty_slots": column})
        signals = measured_tables(trace, policy(), "iterative").evidence.signals
        assert signals[NAMES.index("empty_slots")].tolist() == column[:, 1].T.tolist()
        assert np.isnan(signals[NAMES.index("gaps")]).all()

    def test_the_answer_to_all_hits(self):
        """Confidence and support are those of the answer whose hits are chosen if all fit.

        All hits are relevant then.
        """
        chosen = Policy.from_mapping({"chosen": {"final_k": 2}})
        bare = random_trace(4, n_cases=8, depths=2)
        assert np.isnan(
            measured_tables(bare, chosen).evidence.signals[NAMES.index("support")]
        ).all()
        answered = record_answers(bare, chosen, Drawn(), Weighed())
        found = measured_tables(answered, chosen).evidence
        slot = found.l2.shape[1]
        for name, table in (("generation", found.generation), ("support", found.support)):
            row = found.signals[NAMES.index(name)]
            assert np.array_equal(row, table[:, slot], equal_nan=True)
            assert not np.isnan(row).all()


class TestArms:
    """Agreement of dense, BM25 and hybrid."""

    @staticmethod
    def world(*orders, names=COMPARED_ARMS):
        """One case whose arms found these chunks in this final order.

        l2 has them the other way round.
        """
        plain = random_trace(0, n_cases=1, width=6)
        shape = (1, len(orders), 1, 6)
        chunk, rank = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
        for arm, order in enumerate(orders):
            chunk[0, arm, 0, : len(order)] = order[::-1]
            rank[0, arm, 0, : len(order)] = np.arange(len(order))[::-1]
        blank: Any = np.where(chunk >= 0, 0.5, np.nan)
        fields = dict.fromkeys(Hits._fields, blank)
        hits = Hits(
            **(fields | {"chunk": chunk, "rank": rank, "n_reranked": np.zeros(shape[:3], np.int32)})
        )
        return TraceData(plain.cases, plain.chunks, names, hits)

    def test_by_head(self):
        """One pair of three has the same first hit; of the first five, pairs share 5, 4 and 4."""
        trace = self.world((0, 1, 2, 3, 4, 9), (0, 4, 3, 2, 1), (1, 0, 2, 3, 5))
        seen = arm_agreement(trace)
        assert seen["arms_first"].tolist() == [[1 / 3]]
        assert seen["arms_overlap"] == pytest.approx(np.array([[(5 + 4 + 4) / 15]]))
        assert all(
            values(trace, row=0)[name] == seen[name].item() for name in seen
        )  # whichever arm decides, it is the same

    @pytest.mark.parametrize(
        ("orders", "names"),
        [
            (((0, 1),), ("hybrid",)),
            (((0, 1), (0, 1)), ("hybrid", "graph")),
            (((0,), ()), ("dense", "bm25")),
        ],
    )
    def test_nothing_to_compare(self, orders, names):
        """One arm, an arm of another kind, or one that found nothing: missing."""
        seen = arm_agreement(self.world(*orders, names=names))
        assert all(np.isnan(column).all() for column in seen.values())


class TestMissing:
    """Nothing is said of nothing."""

    def test_without_hits_only_the_question_speaks(self):
        """A case that found nothing has the signals of its query, and no other.

        No warning is given.
        """
        trace = with_constant_columns(trace_of((ask(), [[]]), (ask("why?"), [[Hit(0.5)]])))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            seen = values(trace)
        for signal in BUILT_IN:
            assert np.isnan(seen[signal.name]) == (signal.stage != "query"), signal.name

    def test_every_signal_is_measured(self):
        """With two arms, answers and columns, no built-in signal is missing everywhere."""
        chosen = Policy.from_mapping({"chosen": {"final_k": 2}})
        trace = random_trace(1, n_cases=12, arms=2)
        trace = with_constant_columns(replace(trace, arms=("dense", "hybrid")))
        signals = measured_tables(
            record_answers(trace, chosen, Drawn(), Weighed()), chosen
        ).evidence.signals
        assert [name for name, row in zip(NAMES, signals, strict=True) if np.isnan(row).all()] == []

    def test_a_case_alone_has_the_values_of_the_batch(self):
        """One is many of length one."""
        trace = with_constant_columns(random_trace(5, n_cases=6), 1.0)
        whole = measured_tables(trace, policy()).evidence.signals
        for row in range(len(trace)):
            part = TraceData(
                (trace.cases[row],),
                trace.chunks,
                trace.arms,
                Hits._make(field[[row]] for field in trace.hits),
                columns={name: column[[row]] for name, column in trace.columns.items()},
            )
            assert np.array_equal(
                measured_tables(part, policy()).evidence.signals[:, :, 0],
                whole[:, :, row],
                equal_nan=True,
            )


@pytest.mark.parametrize(
    "section", [{"gaps": {"max": 0, "enabled": False}}, {"gaps": {}}, {"words": {"min": 2}}]
)
def test_what_is_off_or_always_there(section):
    """A gate that is off or has no bound needs nothing.

    Nor does a signal that is measured on the hits.
    """
    check_stored(random_trace(0), [policy(signals=section)])
