"""Ranking measures of graded and ungraded relevance, against hand values and `ir_measures`."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.lab.slice_rates import ndcg_by_case, ranking
from raglab.values import TraceData
from refusals import refused
from worlds import Hit, ask, trace_of

SECOND = 1 / np.log2(3)
LAWFUL = settings(deadline=None, derandomize=True, max_examples=60)


def graded(*, a, b, more=None):
    """A case that grades a.md and b.md, and c.md where it has more."""
    grades = {"a.md": a, "b.md": b} | ({} if more is None else {"c.md": more})
    return ask(expect_sources_any=tuple(grades), extra={"source_grades": grades})


def found(*names):
    """Hits of documents in this order."""
    return [[Hit(0.25 + 0.25 * place, name) for place, name in enumerate(names)]]


class TestByHand:
    """Worked examples."""

    def test_a_better_document_second(self):
        """Grades 1, 2 in this order against 2, 1: (1 + 2 / log2 3) / (2 + 1 / log2 3).

        Binary it is perfect.
        """
        trace = trace_of((graded(a=1, b=2), found("a.md", "b.md")))
        row = ranking(trace).iloc[0]
        assert row["nDCG@10 (graded)"] == pytest.approx((1 + 2 * SECOND) / (2 + SECOND), abs=1e-15)
        assert row["nDCG@10 (binary)"] == 1.0
        assert ndcg_by_case(trace)[0, 0] == row["nDCG@10 (graded)"]
        assert ndcg_by_case(trace, "binary")[0, 0] == 1.0

    def test_cases_that_expect_nothing_are_counted(self):
        """Two of three expect no source: n is 1, and the two are reported."""
        trace = trace_of(
            *((case, found("a.md")) for case in (ask(expect_sources=("a.md",)), ask(), ask()))
        )
        table = ranking(trace)
        assert (table["n"].tolist(), table.attrs["without_source"]) == ([1], 2)
        none = ranking(trace_of((ask(), found("a.md"))))
        assert (none["n"].tolist(), none.attrs["without_source"]) == ([0], 1)
        assert none.iloc[0, 3:].isna().all()

    def test_the_arm_s_order_and_the_fused_one(self):
        """Expected first and second: half; with the ranks turned round the fused order stays."""

        def both(*ranks):
            return [
                [
                    Hit(0.25, "a.md", s_hybrid=0.5, s_rerank=0.5, rank=ranks[0]),
                    Hit(0.5, "b.md", s_hybrid=0.25, s_rerank=0.5, rank=ranks[1]),
                ]
            ]

        first, second = ask(expect_sources=("a.md",)), ask(expect_sources_any=("b.md",))
        table = ranking(trace_of((first, both(0, 1)), (second, both(0, 1))))
        assert table["order"].tolist() == ["final", "fused (s_hybrid)"]
        assert table["hit@1"].tolist() == [0.5, 0.5]
        assert table["nDCG@10"].tolist() == pytest.approx([(1 + SECOND) / 2] * 2)
        assert ranking(trace_of((first, both(1, 0))))["hit@1"].tolist() == [0.0, 1.0]

    @pytest.mark.parametrize(
        ("pages", "gained", "number"),
        [
            # the page is the first of both
            ((2, 1), 3, 2),
            ((1, 2), 1 + 2 * SECOND, 1 + SECOND),  # page 1 meets the document, page 2 itself
            ((1,), 1, 1),
        ],
    )
    def test_a_page_that_is_first_of_itself_and_its_document_gains_both(
        self, pages, gained, number
    ):
        """a.md has grade 1, its page 2 has 2; the best order has the page first."""
        grades = {"a.md": 1, "a.md#2": 2}
        case = ask(expect_sources_any=tuple(grades), extra={"source_grades": grades})
        trace = trace_of(
            (case, [[Hit(0.25 + 0.25 * n, "a.md", page) for n, page in enumerate(pages)]])
        )
        assert ndcg_by_case(trace)[0, 0] == pytest.approx(gained / 3, abs=1e-15)
        assert ndcg_by_case(trace, "binary")[0, 0] == pytest.approx(number / 2, abs=1e-15)

    @pytest.mark.parametrize(
        ("stated", "told"),
        [
            ("high", "case 'q' .*numbers above 0, got 'high'"),
            ({"a.md": float("nan")}, r"got .\{'a.md': nan"),
            ({"z.md": 1}, r"case 'q' .*'z.md': 1\}"),
        ],
    )
    def test_grades_that_are_none(self, stated, told):
        """They are refused with rule, value and case."""
        case = ask(expect_sources=("a.md",), extra={"source_grades": stated})
        refused(told, ranking, trace_of((case, found("a.md"))))


GRADES = st.lists(st.integers(0, 3), min_size=1, max_size=14)


PLACES = [("a.md", 1), ("a.md", 2), ("b.md", 1), ("b.md", 2), ("c.md", 1)]
NAMES = ["a.md", "a.md#1", "a.md#2", "b.md", "b.md#2", "c.md", "c.md#1"]


@settings(LAWFUL, max_examples=12)
@given(grades=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3), min_size=1))
def test_the_ideal_is_the_best_order_that_there_is(grades):
    """Of all page orders, whatever is expected, the best has 1 by grades and by number.

    What is expected may be documents and pages.
    """
    case = ask(expect_sources_any=tuple(grades), extra={"source_grades": grades})
    orders = [
        [[Hit(0.25 + 0.25 * n, *place) for n, place in enumerate(order)]]
        for order in permutations(PLACES)
    ]
    trace = trace_of(*((case, order) for order in orders))
    for gains in ("graded", "binary"):
        values = ndcg_by_case(trace, gains)[:, 0]
        assert values.max() == pytest.approx(1.0, abs=1e-12)
        assert values.min() > 0.0


@LAWFUL
@given(cases=st.lists(st.tuples(GRADES, st.randoms(use_true_random=False)), min_size=1, max_size=4))
def test_grades_are_counted_as_ir_measures_counts(cases):
    """nDCG@10 of drawn grades and orders, graded and binary, query by query, to 1e-9."""
    ir = pytest.importorskip("ir_measures")
    rows, qrels, run = [], [], []
    for number, (grades, rng) in enumerate(cases):
        judged = {f"{place}.md": grade for place, grade in enumerate(grades)}
        order = [*judged]
        rng.shuffle(order)
        relevant = {name: grade for name, grade in judged.items() if grade > 0}
        case = ask(
            id=str(number), expect_sources_any=tuple(relevant), extra={"source_grades": relevant}
        )
        rows.append((case, found(*order)))
        qrels += [ir.Qrel(str(number), name, grade) for name, grade in judged.items()]
        run += [ir.ScoredDoc(str(number), name, -float(place)) for place, name in enumerate(order)]
    trace: TraceData = trace_of(*rows)
    for gains, judgements in (
        ("graded", qrels),
        ("binary", [one._replace(relevance=one.relevance > 0) for one in qrels]),
    ):
        theirs = {one.query_id: one.value for one in ir.iter_calc([ir.nDCG @ 10], judgements, run)}
        for number, ours in enumerate(ndcg_by_case(trace, gains)[:, 0]):  # type: ignore[arg-type]
            assert np.nan_to_num(ours) == pytest.approx(theirs[str(number)], abs=1e-9)
