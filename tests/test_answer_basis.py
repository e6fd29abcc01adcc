"""Recorded answers count.

Text makes a case correct, a missing answer never does, results state their basis (S6.3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from answered_traces import (
    GOLD,
    PLAIN,
    WRONG,
    Knows,
    castle,
    many,
    questions,
    recorded,
    recorded_of_failing,
    without,
)
from generators import Drawn, Fixed, Weighed
from parts import in_parts
from raglab import metrics
from raglab.decision.answer_text import (
    AnswerCheck,
    Basis,
    MissingAnswers,
    judged_cases,
)
from raglab.decision.scoring import trace_basis
from raglab.lab.certificate_checks import check_policy
from raglab.lab.certification import certify_best, certify_policy
from raglab.lab.comparison import compare, contests
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.gate_fitting import answer_outcomes, fit_fused_gate
from raglab.lab.goals import Goal
from raglab.lab.slice_rates import slices
from raglab.lab.study import tune
from raglab.lab.untuned_policies import always_answer
from raglab.live.answer_recording import record_answers
from raglab.metrics import clopper_pearson
from raglab.replay import decide, shard_cells, steps, sweep
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Generation
from worlds import Hit, ask, policy, random_trace, trace_of

OPEN = "Ask at the desk."  # says nothing of an excess, so nobody can tell


FREE_OF_GATES = always_answer(PLAIN)


# of eighty cases, those labelled ok whose number is no multiple of 3 either
TWO_THIRDS = [row for row in range(80) if row % 4 and row % 3]


class TestDecide:
    """Decisions on a trace with answers."""

    def test_why(self):
        """Each verdict has its reason."""
        trace = recorded(questions(5, refuse=1), right=[1])
        moved = trace.cases[2]._replace(expect_sources=("other.md",))
        trace = without(replace(trace, cases=(*trace.cases[:2], moved, *trace.cases[3:])), [4])
        frame = decide(trace, FREE_OF_GATES).frame()
        assert frame["why"].tolist() == [
            "ok where the label is refuse",
            "ok as labelled, expected sources and answer",
            "ok as labelled, but the answer rests on other sources than expected",
            "ok as labelled, but the recorded answer is not the expected one",
            "ok as labelled, but no answer is recorded for these hits",
        ]

    def test_missing_is_counted_and_never_correct(self):
        """The count stands in the representation and in the sweep."""
        trace = without(recorded(questions(10), right=range(10)), [0, 1])
        decisions = decide(trace, FREE_OF_GATES)
        assert decisions.missing_answers == MissingAnswers(2, 10)
        assert decisions.passes.tolist() == [False, False] + [True] * 8
        assert "no answer is recorded for 2 of 10" in repr(decisions)
        counts = ["missing_answers_k", "missing_answers_n", "pass_rate_k"]
        assert sweep(trace, [FREE_OF_GATES]).loc[0, counts].tolist() == [2, 10, 8]

    def test_option_slots_are_judged_by_their_sources(self):
        """A case that is asked back answers nothing, so that no text of it is missing."""
        hits = [
            Hit(0.25, "guide.md", tags={"product": "motor"}),
            Hit(0.26, "home.md", page=9, tags={"product": "home"}),
        ]
        asks = PLAIN.replace("resolver.overview", False)
        bare = trace_of(
            (ask("excess number 1", "ambiguous", answer=GOLD, expect_sources=("home.md",)), [hits])
        )
        trace = record_answers(bare, asks, Knows(frozenset()), Weighed(), decided_only=True)
        decisions = decide(trace, asks)
        assert decisions.status.tolist() == [2]
        assert decisions.passes.all()
        assert decisions.basis == Basis(0, 0)


class TestBasis:
    """Results and certificates state on which basis cases are judged."""

    def test_in_words(self):
        """Sources without answers, text with all, both where only some cases have a gold answer."""
        bare = questions(6, refuse=2)
        cases = list(bare.cases)
        cases[3] = cases[3]._replace(answer=None)
        full, part = recorded(bare, []), recorded(replace(bare, cases=tuple(cases)), [])
        assert [str(decide(trace, PLAIN).basis) for trace in (bare, full, part)] == [
            "sources",
            "text",
            "text for 3 of 4 cases labelled ok, sources for the rest",
        ]
        assert judged_cases(part).tolist() == [False, False, True, False, True, True]
        assert sweep(full, [PLAIN]).attrs["basis"] == "text"

    def test_decisions_of_another_basis_are_not_compared(self):
        """The same cases, once with answers and once without."""
        bare = questions(6)
        with pytest.raises(ValueError, match="judged on one basis"):
            decide(bare, PLAIN).changed(decide(recorded(bare, []), PLAIN))

    def test_a_certificate_is_not_judged_on_the_other_basis(self):
        """Made on text, it is refused by sources, and the other way about.

        One that states none is refused.
        """
        right = [row for row in range(240) if row % 4]
        trace = many(right, 240, ("tune", "certify", "report"))
        bare = replace(trace, answers=None)
        targets = {"hallucination_rate": 0.2}
        results = [
            certify_best(cases, PLAIN, targets=targets, paths=["similarity.min_similarity"])
            for cases in (trace, bare)
        ]
        on_text, on_sources = (result.policy for result in results)
        assert [result.certificate.basis for result in results] == ["text", "sources"]
        assert on_text.certificate["basis"] == "text"
        assert "judged by text" in results[0].certificate.reason
        assert check_policy(trace.split("report"), on_text).basis == "text"
        assert check_policy(bare.split("report"), on_sources).verdict in {"upheld", "open"}
        for certified, cases in ((on_text, bare), (on_sources, trace)):
            with pytest.raises(ValueError, match="its own basis"):
                check_policy(cases.split("report"), certified)
        facts = dict(on_sources.certificate)
        del facts["basis"]
        old = on_sources.replace("certificate", facts)
        with pytest.raises(ValueError, match="without basis; certify"):
            check_policy(bare.split("report"), old)


class TestComparisons:
    """A policy that lacks more than 5 % of its answers is not compared."""

    def test_up_to_five_percent_may_be_missing(self):
        """1 of 20 may, 2 of 20 may not."""
        trace = recorded(questions(20), right=range(20))
        free, near = FREE_OF_GATES, FREE_OF_GATES.replace("l2.enabled", True)
        assert compare(without(trace, [0]), free, near).missing[0] == MissingAnswers(1, 20)
        with pytest.raises(ValueError, match="not compared: no answer is recorded for 2 of 20"):
            compare(without(trace, [0, 1]), free, near)

    def test_answers_of_one_policy_do_not_serve_another(self):
        """Recorded for one policy's sets, another that chooses other hits leaves the contest."""
        first, two = (FREE_OF_GATES.replace("chosen.final_k", k) for k in (1, 2))
        trace = recorded(questions(20), range(20), first, decided_only=True)
        results = contests(
            trace,
            {"tuned": first, "two": two, "always": first},
            {"two": "other", "always": "free policy"},
        )
        assert [contest.reference for contest in results] == ["always"]

    def test_a_study_leaves_them_out(self):
        """The note names the policies and how many answers they lack; always-refuse needs none."""
        trace = many(TWO_THIRDS)
        result = tune(
            without(trace, [1, 2, 3, 5, 6, 7]),
            policy=PLAIN,
            trials=4,
            folds=3,
            repeats=1,
            goal=Goal(targets={}),
        )
        answers = result.findings.set_index("key").loc["answers", "text"]
        assert "always-answer (6 of 60 missing)" in answers
        names = ["always-answer", "always-refuse", result.selected]
        assert result.costs.loc[names, "compared"].tolist() == [False, True, True]

    def test_a_study_judges_by_what_is_at_hand_or_chosen(self):
        """A column, the text where `basis=` says so, or the sources."""
        trace = many(TWO_THIRDS)
        columns = tuple(case._replace(extra={"answer_right": 1}) for case in trace.cases)
        judged = replace(trace, cases=columns)
        for each, basis, expected, rate in (
            (judged, None, "answer_right", 0.75),
            (judged, "text", "text", 0.5),
            (replace(trace, answers=None), None, "sources", 0.75),
        ):
            settings = {"trials": 2, "folds": 2, "repeats": 1, "goal": Goal(targets={})}
            result = tune(each, policy=PLAIN, basis=basis, **settings)
            assert result.basis == expected
            rates = result.comparison.set_index("policy")["pass_rate"]
            assert rates["always-answer"] == rate

    def test_a_certificate_is_not_given(self):
        """The policy answers from hits without an answer."""
        trace = many([row for row in range(120) if row % 4], 120)
        answers, targets = FREE_OF_GATES, {"hallucination_rate": 0.9}
        result = certify_policy(without(trace, range(0, 120, 7)), answers, targets=targets)
        assert result.policy is None
        assert certify_policy(trace, answers, targets=targets).policy is not None

    @pytest.mark.parametrize("fit", [fit_decision, fit_fused_gate])
    def test_nothing_is_fitted_on_missing_answers(self, fit):
        """What is right cannot be learned from answers that nobody recorded."""
        trace = many(TWO_THIRDS)
        fit(trace, PLAIN)
        with pytest.raises(ValueError, match=r"fitted on recorded answers.*record_answers"):
            fit(without(trace, range(0, 80, 5)), PLAIN)

    def test_a_model_learns_by_text(self):
        """The class "right" of a decision by expected cost is that of the text."""
        trace = many(TWO_THIRDS)
        by_text, by_sources = (
            fit_decision(cases, PLAIN) for cases in (trace, replace(trace, answers=None))
        )
        assert decide(trace, by_text).passes.sum() > decide(trace, by_sources).passes.sum()


HALF_SURE = Policy.from_mapping(policy(generation={"min_generation_confidence": 0.5}).model_dump())


def gold(trace, text):
    """The trace with a gold answer in every case."""
    return replace(trace, cases=tuple(case._replace(answer=text) for case in trace.cases))


def drawn(seed, depths=1):
    """A trace on coarse grids, whose cases may be saved."""
    bare = random_trace(seed, n_cases=8, depths=depths)
    return Trace(
        bare.cases, bare.chunks, bare.arms, bare.hits, bare.pattern_hits, {"fingerprint": "drawn"}
    )


class TestLaws:
    """Over random traces, chains and answers."""

    @settings(deadline=None, max_examples=8)
    @given(st.integers(0, 200), st.integers(1, 2))
    def test_right_answers_change_nothing_and_wrong_ones_leave_nothing_correct(self, seed, depths):
        """Of the same decisions."""
        trace = drawn(seed, depths)
        chosen = FREE_OF_GATES
        bare = decide(trace, chosen)
        right, wrong = (
            decide(record_answers(gold(trace, text), chosen, Fixed(GOLD), Weighed()), chosen)
            for text in (GOLD, WRONG)
        )
        assert right.status.tolist() == bare.status.tolist() == wrong.status.tolist()
        assert right.passes.tolist() == bare.passes.tolist()
        assert not (wrong.passes & (wrong.status == 0)).any()

    @settings(deadline=None, max_examples=8)
    @given(st.integers(0, 200))
    def test_outcomes_are_what_decide_calls_correct(self, seed):
        """Exactly, case by case, also of answers without a confidence."""
        chosen = FREE_OF_GATES.replace("refine.max_depth", 0)
        trace = record_answers(gold(drawn(seed), GOLD), chosen, Drawn(), Weighed())
        decisions, table = decide(trace, chosen), answer_outcomes(trace, chosen)
        correct = decisions.passes & (decisions.status == 0)
        assert [decisions.ids()[row] for row in np.flatnonzero(correct)] == table.loc[
            table["right"], "case_id"
        ].tolist()

    @settings(deadline=None, max_examples=8)
    @given(st.integers(0, 200), st.integers(1, 2))
    def test_sweep_steps_and_decisions_count_alike(self, seed, depths):
        """Also where answers are missing, over depths."""
        trace = record_answers(gold(drawn(seed, depths), GOLD), HALF_SURE, Drawn(), Weighed())
        trace = without(trace, [seed % 8, (seed + 3) % 8])
        decisions, row = decide(trace, HALF_SURE), sweep(trace, [HALF_SURE]).iloc[0]
        passed = decisions.passes.sum()
        assert row["pass_rate_k"] == passed
        counts = tuple(row.get(f"missing_answers_{part}", 0) for part in "kn")
        assert decisions.missing_answers == counts
        assert ("missing_answers_k" in row) == bool(decisions.basis.text)
        assert not decisions.passes[decisions.answer_checks == AnswerCheck.unrecorded].any()
        for path, value, closed in (
            ("l2.max_l2", HALF_SURE.l2.max_l2, "left"),
            ("generation.min_generation_confidence", 0.5, "right"),
        ):
            table = steps(trace, HALF_SURE, path=path)
            inside = pd.IntervalIndex.from_arrays(table["low"], table["high"], closed)
            assert table["pass_rate_k"][inside.contains(value)].iloc[0] == passed

    @settings(deadline=None, max_examples=8)
    @given(st.integers(0, 100), st.integers(1, 3))
    def test_shards_count_as_one_piece(self, seed, size):
        """Decisions, reasons, sweeps and the basis, also of shards, some with no gold answer."""
        chosen, bare = HALF_SURE, drawn(seed)
        some = replace(bare, cases=(*gold(bare, GOLD).cases[:5], *bare.cases[5:]))
        whole = without(record_answers(some, chosen, Drawn(), Weighed()), [seed % 5])
        parts = in_parts(whole, size)
        first, two = decide(whole, chosen), decide(parts, chosen)
        assert two.answer_checks.tolist() == first.answer_checks.tolist()
        assert two.basis_text() == first.basis_text()
        assert trace_basis(parts) == trace_basis(whole) == first.basis
        policies = [chosen, always_answer(chosen)]
        tables = [sweep(trace, policies, engine="numpy") for trace in (whole, parts)]
        assert tables[0].equals(tables[1])


FREE = policy(support={"enabled": False})


class TestMissingIsNoRefusal:
    """Rules S0.1, S6.3.

    A case that is refused only since no answer is recorded is not refused rightly.
    """

    @staticmethod
    def half_recorded(*, gold):
        """Eight cases, q3 and q7 to be refused; no answer is recorded for q2, q5 and q7."""
        return without(recorded_of_failing(castle(8, gold=gold)), [2, 5, 7])

    @pytest.mark.parametrize("gold", [True, False])
    def test_it_is_refused_and_not_correct(self, *, gold):
        """The reason says that no answer is recorded; rates count it as answered wrongly."""
        trace = self.half_recorded(gold=gold)
        decisions = decide(trace, FREE)
        assert decisions.status.tolist() == [0, 0, 1, 0, 0, 1, 0, 1]
        assert np.flatnonzero(decisions.passes).tolist() == [0, 1, 4, 6]
        assert "no answer is recorded for these hits" in decisions.reason(7)
        rates = sweep(trace, [FREE]).loc[0, ["pass_rate", "hallucination_rate"]]
        assert rates.tolist() == pytest.approx([4 / 8, 2 / 6])
        assert case_cells_of(trace, FREE) == decisions.cells.tolist()

    def test_an_earned_refusal_stays_right(self):
        """A gate before the answer refuses; so does one that judges an answer that is there."""
        trace = self.half_recorded(gold=True)
        early = FREE.replace("similarity.enabled", True).replace("similarity.min_similarity", 0.99)
        strict = policy(support={"enabled": False}, generation={"min_generation_confidence": 0.95})
        for refuses, right in ((early, [3, 7]), (strict, [3])):
            assert np.flatnonzero(decide(trace, refuses).passes).tolist() == right


def case_cells_of(trace, chosen):
    """Cells of the vectorised replay."""
    return shard_cells(trace, [chosen])[0].tolist()


class Says(NamedTuple):
    """Says to each question, by the number in it, one of some texts."""

    texts: tuple[str, ...]
    name: str = "says"

    def answer(self, question, passages):
        """The text at that number."""
        del passages
        return Generation(self.texts[int(question.rsplit(maxsplit=1)[-1])], 0.9, (0,))


def answered(texts, **more):
    """Questions labelled ok to which these texts are recorded, with columns of the cases."""
    bare = questions(len(texts))
    extra = [
        {name: values[row] for name, values in more.items() if values[row] is not ...}
        for row in range(len(texts))
    ]
    cases = tuple(
        case._replace(extra=columns) for case, columns in zip(bare.cases, extra, strict=True)
    )
    return record_answers(replace(bare, cases=cases), PLAIN, Says(tuple(texts)), Weighed())


def anew(trace):
    """The same cases as new questions."""
    cases = tuple(case._replace(query=f"new {case.query}") for case in trace.cases)
    return replace(trace, cases=cases)


class TestUndecided:
    """What nobody can tell counts as wrong, with its count; rates and claims leave it open."""

    TEXTS = (GOLD,) * 5 + (WRONG,) * 2 + (OPEN,) * 3

    def test_it_counts_as_wrong_and_opens_the_interval(self):
        """5 of 10 right, between 5 and 8."""
        trace = answered(self.TEXTS)
        decisions = decide(trace, FREE_OF_GATES)
        assert decisions.passes.tolist() == [True] * 5 + [False] * 5
        assert decisions.undecided == 3
        row = sweep(trace, [FREE_OF_GATES]).iloc[0]
        assert (row["pass_rate_k"], row["undecided"], row["hallucination_rate_k"]) == (5, 3, 5)
        worst, best = (clopper_pearson(k, 10) for k in (5, 8))
        assert (row["pass_rate_low"], row["pass_rate_high"]) == (worst.low, best.high)
        assert case_cells_of(trace, FREE_OF_GATES) == decisions.cells.tolist()

    def test_a_promise_counts_it_as_wrong_and_states_it(self):
        """Certificate and check hold the count; a check breaks nothing by what is undecided."""
        trace = answered([GOLD] * 90 + [OPEN] * 30)
        result = certify_policy(trace, FREE_OF_GATES, targets={"hallucination_rate": 0.4})
        assert result.certificate.promises[0].k == 30
        assert result.policy.certificate["undecided"] == 30
        tight = certify_policy(trace, FREE_OF_GATES, targets={"hallucination_rate": 0.2})
        assert tight.policy is None
        later = answered([GOLD] * 40 + [OPEN] * 80)
        assert check_policy(anew(later), result.policy).verdict == "open"

    def test_a_claim_holds_whatever_the_truth(self):
        """An answer that both policies give is no difference; one that one gives counts against."""
        trace, free = answered(self.TEXTS), FREE_OF_GATES
        same = compare(trace, free, free.replace("l2.enabled", True))
        assert not same.table["difference"].any()
        assert (same.table["low"].fillna(0.0) <= 0.0).all()
        refuses = free.replace("similarity.enabled", True, "similarity.min_similarity", 1.0)
        row = compare(trace, free, refuses).table.set_index("measure").loc["expected_cost"]
        refused = decide(trace, refuses).cells
        sided = [
            metrics.paired_cost(
                decide(answered([*self.TEXTS[:7], *[truth] * 3]), free).cells, refused
            )
            for truth in (WRONG, GOLD)
        ]
        assert row["low"] == pytest.approx(min(side.low for side in sided))
        assert row["high"] == pytest.approx(max(side.high for side in sided))


class TestColumns:
    """The user's column, then a judge's, then the text, or what is chosen."""

    def test_the_first_at_hand_decides(self):
        """An empty cell is undecided; disagreement with the text is counted."""
        columns = [1, 0, "1", True, 0.0, "", None, " ", ..., 1]
        trace = answered(TestUndecided.TEXTS, answer_right=columns, judge_right=[0] * 10)
        decisions = decide(trace, FREE_OF_GATES)
        assert decisions.basis.kind == "answer_right"
        assert decisions.passes.tolist() == [True, False, True, True] + [False] * 5 + [True]
        assert decisions.undecided == 4
        assert (decisions.basis.differ, decisions.basis.compared) == (2, 5)
        judged = decide(raglab.lab.with_basis(trace, "judge_right"), FREE_OF_GATES)
        assert not judged.passes.any()
        text = decide(raglab.lab.with_basis(trace, "text"), FREE_OF_GATES)
        assert text.passes.tolist() == [True] * 5 + [False] * 5

    def test_no_verdict_is_refused(self):
        """Nor is a basis of another name, or a column that the cases lack."""
        with pytest.raises(ValueError, match="answer_right must be 0, 1 or empty"):
            decide(answered([GOLD], answer_right=[2]), FREE_OF_GATES)
        for basis, rule in (("mood", "one of"), ("judge_right", "a column of the cases")):
            with pytest.raises(ValueError, match=f"a basis must be {rule}"):
                raglab.lab.with_basis(answered([GOLD]), basis)

    def test_a_column_speaks_of_one_answer(self):
        """Where two texts are recorded for a case, nobody knows which one it means."""
        trace = answered([GOLD, GOLD], answer_right=[1, 1])
        row, text = trace.answers.row, list(trace.answers.text)
        text[row.tolist().index(0)] += " Or not."
        retold = replace(trace, answers=trace.answers._replace(text=tuple(text)))
        assert decide(retold, FREE_OF_GATES).passes.tolist() == [False, True]

    def test_without_recorded_answers_it_is_named(self):
        """A column that judges nothing is counted."""
        trace = replace(answered([GOLD, GOLD], answer_right=[1, 0]), answers=None)
        basis = decide(trace, FREE_OF_GATES).basis
        assert (basis.kind, basis.unused) == ("sources", 2)

    def test_shards_have_one_basis(self):
        """Parts that hold other columns are refused."""
        trace = answered([GOLD, GOLD], answer_right=[1, ...])
        with pytest.raises(ValueError, match="shards must have one basis"):
            trace_basis(in_parts(trace, 1))


class TestDoors:
    """What reads decisions leaves undecided answers open, and names its basis."""

    def test_a_slice_of_undecided_answers_is_not_flagged(self):
        """Its interval reaches from all right to all wrong."""
        trace = answered([GOLD] * 60 + [OPEN] * 30)
        decisions = decide(trace, FREE_OF_GATES)
        table = slices(decisions, by={"half": ["a"] * 60 + ["b"] * 30})
        row = table.set_index(["column", "value"]).loc["half", "b"]
        assert (row["rate"], row["flag"], row["high"]) == (0.0, False, 1.0)
