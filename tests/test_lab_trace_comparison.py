"""Two traces of the same questions.

By hand on tiny frames, then laws, then what reranking changes on a bundled set.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answered_traces import PLAIN, questions, recorded, without
from labelled import noted
from raglab.decision.learned_cases import with_tuned_cases
from raglab.lab.comparison import compare
from raglab.lab.threshold_rescaling import rescale_thresholds
from raglab.lab.trace_comparison import CasePairs, compare_traces, pair_cases
from raglab.lab.untuned_policies import always_answer
from raglab.store.policies import Policy
from raglab.values import Case
from stored_traces import stored
from study_worlds import COSINE, FOUR, NEXT, cosine_trace, tables
from worlds import Hit, ask, random_policies, random_trace, trace_of

OLD, NEW = cosine_trace(*FOUR), cosine_trace(*NEXT)


def check_equal(left, right):
    """All of two comparisons agree."""
    for name, table in tables(left).items():
        pd.testing.assert_frame_equal(table, getattr(right, name))
    assert (left.judged, left.left_out) == (right.judged, right.left_out)


def test_four_questions_by_hand():
    """Of 4, one loses its document, one is now right, one is answered but must not be."""
    result = compare_traces(OLD, NEW, policy=COSINE)
    rows = result.table.set_index("measure")
    counts = "old_k old_n new_k new_n"
    for measure, names, values in (
        ("expected_cost", "old new difference", [0.25, 0.5, 0.25]),
        ("pass_rate", "old_k new_k only_old only_new", [3, 2, 2, 1]),
        ("coverage", counts, [2, 4, 4, 4]),
        ("hallucination_rate", counts, [0, 2, 2, 4]),
    ):
        assert rows.loc[measure, names.split()].tolist() == values
    flow = result.decisions.set_index(["before", "after"])
    assert flow.loc[("ok", "ok")].tolist() == [2, 2, 0, 1]
    assert flow.loc[("refuse", "ok")].tolist() == [2, 2, 1, 1]
    assert flow["n"].sum() == 4
    changed = result.changed.set_index("case_id")
    assert changed.index.tolist() == ["2", "3", "4"]
    for case, column, values in (
        ("2", "status", ["ok", "ok"]),
        ("2", "source", ["a.md#n/a", "b.md#n/a"]),
        ("4", "decided_by", ["similarity", "answered"]),
        ("4", "correct", [True, False]),
    ):
        assert changed.loc[case, [f"{column}_before", f"{column}_after"]].tolist() == values
    hits = result.hits.set_index("measure")
    assert hits.loc["same_first_document", ["value", "n"]].tolist() == [0.75, 4]
    assert hits.loc["overlap_of_first_5", "value"] == 1.0
    assert hits.loc["hit@1", ["old", "new", "value", "n"]].tolist() == pytest.approx(
        [1.0, 2 / 3, -1 / 3, 3]
    )
    signal = result.signals.set_index("path").loc["similarity.min_similarity"]
    names = ["threshold_old", "passes_old", "passes_new", "q50_old", "q50_new", "missing_old"]
    assert signal[names].tolist() == pytest.approx([0.5, 0.5, 1.0, 0.625, 0.675, 0])
    assert signal["rank_correlation"] == pytest.approx(1.0)  # 4 3 1 2 on both
    cost = rows.loc["expected_cost", ["low", "high"]].tolist()
    assert cost == pytest.approx([-1.273, 1.773], abs=1e-3)


def test_a_source_that_no_hit_has_is_no_hit_at_any_depth():
    """A trace of two passages is no deeper than they are."""
    lost = cosine_trace(("1", "who pays?", "ok", "c.md", (0.9, 0.1)), *FOUR[1:])
    rows = compare_traces(OLD, lost, policy=COSINE).hits.set_index("measure")
    assert rows.loc["hit@5", ["old", "new", "n"]].tolist() == [1.0, 1.0, 2]


def test_without_a_policy_all_is_answered():
    """Only retrieval changes then; the signals are those of the default policy."""
    result = compare_traces(OLD, NEW)
    assert result.table.set_index("measure").loc["coverage", ["old_k", "new_k"]].tolist() == [4, 4]
    assert {"l2.max_l2", "similarity.min_similarity"} <= set(result.signals["path"])
    free = compare_traces(OLD, NEW, policy=always_answer(Policy.load()))
    pd.testing.assert_frame_equal(result.table, free.table)


def test_gates_that_a_trace_declares_off_are_named():
    """They judge nothing there, so that decisions differ by them."""
    off = replace(NEW, meta={**NEW.meta, "gates_off": ["similarity"]})
    notes = compare_traces(OLD, off, policy=COSINE).notes
    assert noted(notes, COSINE.policy_id, "off in the new trace: similarity")
    assert not noted(compare_traces(OLD, NEW, policy=COSINE).notes, "off in")


def test_another_policy_for_the_new_trace():
    """A threshold that is moved to the new scores undoes what the old one does there."""
    moved = rescale_thresholds(OLD, COSINE, to=NEW).policy
    result = compare_traces(OLD, NEW, policy=COSINE, after=moved)
    assert result.table.set_index("measure").loc["coverage", "difference"] == 0.0
    signal = result.signals.set_index("path").loc["similarity.min_similarity"]
    assert signal["threshold_new"] == moved.similarity.min_similarity
    with pytest.raises(ValueError, match="after must stand beside a policy"):
        compare_traces(OLD, NEW, after=moved)


def test_cases_pair_by_question_then_id():
    """Repeats of a question pair by id first, the rest in their order.

    Another question of the same id does not.
    """
    old = zip("abcde", ["why?", "why?", "why?", "who?", "old"], strict=True)
    new = zip("xbdyz", ["why?", "why?", "where?", "why?", "why?"], strict=True)
    pairs = pair_cases([Case(*row) for row in old], [Case(*row) for row in new])
    assert (pairs.old, pairs.new) == ([0, 1, 2], [0, 1, 3])
    named = [Case("a", "why?", selected_sources=("guide.md",))]
    assert pair_cases(named, [Case("a", "why?")]) == CasePairs([], [], pytest.approx(np.zeros(0)))


def test_what_is_left_out_is_counted():
    """Cases of one trace alone, with another label and without one.

    The last two are decided, and in no rate.
    """
    old = [
        *FOUR,
        ("5", "gone?", "ok", "a.md", (0.9, 0.1)),
        ("6", "no label?", None, "", (0.9, 0.1)),
    ]
    new = [
        *NEXT[:3],
        ("4", "weather?", "ok", "a.md", (0.65, 0.4)),
        ("6", "no label?", None, "", (0.1, 0.2)),
    ]
    result = compare_traces(
        cosine_trace(*old),
        cosine_trace(*new, ("7", "new?", "ok", "a.md", (0.9, 0.1))),
        policy=COSINE,
    )
    assert result.left_out == {
        "of the old trace alone": 1,
        "of the new trace alone": 1,
        "with other labels": 1,
        "without a label": 1,
    }
    assert (result.cases, result.judged) == (5, 3)
    assert result.decisions[["n", "judged"]].sum().tolist() == [5, 3]
    rows = result.changed.set_index("case_id")
    assert rows.loc[["4", "6"], ["label", "correct_before", "correct_after"]].isna().all(axis=None)
    assert rows.loc["6", ["status_before", "status_after"]].tolist() == ["ok", "refuse"]
    assert result.table["old_n"].max() == 3
    assert result.hits["n"].tolist() == [5, 5, 3, 3]


def test_no_label_and_no_question_in_common():
    """Without labels there are decisions and scores, and no rate.

    Without a common question nothing.
    """
    old, new = ([(*row[:2], None, "", row[4]) for row in rows] for rows in (FOUR, NEXT))
    result = compare_traces(cosine_trace(*old), cosine_trace(*new), policy=COSINE)
    assert (len(result.table), result.judged, result.basis) == (0, 0, "none")
    assert result.hits["n"].tolist() == [4, 4, 0, 0]
    with pytest.raises(ValueError, match="must share questions, got none of 1 and 1"):
        compare_traces(cosine_trace(FOUR[0]), cosine_trace(FOUR[1]))


def test_a_policy_that_learned_from_the_cases_has_no_interval():
    """Its figures are in sample, on either trace."""
    tuned = Policy.model_validate(with_tuned_cases(COSINE, [row[1] for row in FOUR]))
    with pytest.warns(UserWarning, match="in sample"):
        result = compare_traces(OLD, NEW, policy=tuned)
    assert result.table[["low", "high", "p"]].isna().all(axis=None)
    assert "of old" in result.in_sample
    assert "of new" in result.in_sample


def test_a_signal_without_a_value_is_counted():
    """NaN meets no threshold, and is in no quantile and no rank."""
    rows = [Hit(0.25, s_rerank=score, s_raw=score) for score in (0.2, 0.4, 0.9)]
    old = trace_of(*((ask(query=f"q{n}"), [[hit]]) for n, hit in enumerate(rows)))
    new = trace_of(*((ask(query=f"q{n}"), [[hit] if n else []]) for n, hit in enumerate(rows)))
    signal = (
        compare_traces(stored(old), stored(new), policy=Policy.load())
        .signals.set_index("path")
        .loc["l2.max_l2"]
    )
    assert signal[["missing_old", "missing_new", "passes_new"]].tolist() == [0, 1, 1.0]
    assert np.isnan(signal["rank_correlation"])  # all are as near as the others


def test_settings_that_differ_are_listed():
    """By their own names, with the arm; what all traces differ in is none."""
    old, new = (
        replace(trace, meta={**trace.meta, "command": command, "parameters": parameters})
        for trace, command, parameters in (
            (OLD, "x", {"encoder": "a", "fetch_k": 50}),
            (NEW, "y", {"encoder": "b", "fetch_k": 50, "precision": "int8"}),
        )
    )
    rows = compare_traces(old, new, policy=COSINE).settings.set_index("setting")
    assert rows.loc["encoder"].tolist() == ["a", "b"]
    assert rows.loc["precision"].tolist() == [None, "int8"]
    assert not {"fetch_k", "command", "fingerprint", "policy", "arm"} & set(rows.index)


def test_an_arm_is_not_guessed():
    """The new trace may have one arm of another name; of several the caller chooses."""
    trace = stored(random_trace(0, arms=1))
    single, several = replace(trace, arms=("next",)), stored(random_trace(0, arms=2))
    assert " next " in compare_traces(trace, single).new
    several = replace(several, arms=("x", "y"))
    with pytest.raises(ValueError, match="new_arm must be one of"):
        compare_traces(trace, several)
    assert " y " in compare_traces(trace, several, new_arm="y").new


def pair(seed):
    """The same cases with drawn hits in two traces, and two drawn policies."""
    old, new = random_trace(seed, n_cases=7), random_trace(seed + 1_000, n_cases=7)
    cases = tuple(case._replace(query=f"{case.query} {row}") for row, case in enumerate(old.cases))
    traces = (stored(replace(trace, cases=cases)) for trace in (old, new))
    policies = (Policy.from_mapping(policy.model_dump()) for policy in random_policies(seed, 2))
    return (*traces, *policies)


@settings(max_examples=5)
@given(st.integers(0, 500))
def test_a_trace_beside_itself_changes_nothing(seed):
    """No case changes, every difference is 0, and every interval of a difference holds 0."""
    trace, _, policy, _ = pair(seed)
    result = compare_traces(trace, trace, policy=policy)
    assert len(result.changed) == 0
    known = result.table.dropna(subset="difference")
    assert (known["difference"] == 0.0).all()
    assert ((known["low"] <= 0.0) & (known["high"] >= 0.0)).all()
    assert result.decisions.query("before != after")["n"].sum() == 0
    shares, differences = result.hits.iloc[:2].dropna(), result.hits.iloc[2:].dropna()
    assert (shares["value"] == 1.0).all()
    assert ((differences["low"] <= 0.0) & (differences["high"] >= 0.0)).all()
    assert len(result.settings) == 0


@settings(max_examples=5)
@given(st.integers(0, 500), st.permutations(range(7)))
def test_the_order_of_the_new_cases_is_of_no_account(seed, order):
    """Cases are known by their question and id."""
    old, new, policy, _ = pair(seed)
    check_equal(
        compare_traces(old, new, policy=policy),
        compare_traces(old, new.subset(order), policy=policy),
    )


@settings(max_examples=5)
@given(st.integers(0, 500))
def test_two_policies_on_one_trace_are_as_compared(seed):
    """The same table as `compare` gives."""
    trace, _, before, after = pair(seed)
    costs = {"refuse": {"answered_wrong": 5.0}}
    result, plain = (
        compare_traces(trace, trace, policy=before, after=after, costs=costs),
        compare(trace, before, after, costs=costs),
    )
    columns = plain.table.columns
    pd.testing.assert_frame_equal(result.table.set_axis(columns, axis=1), plain.table)


def test_answers_of_one_trace_alone_are_not_read():
    """Judged by text on both where both record answers, else by sources on both, with a note."""
    bare = questions(8, refuse=2)
    right, wrong = recorded(bare, range(8)), recorded(bare, range(4))
    both = compare_traces(right, wrong, policy=PLAIN)
    last = both.table.iloc[-1]
    assert (both.basis, last["new_k"] < last["old_k"]) == ("text", True)
    for old, new in ((right, bare), (bare, wrong)):
        result = compare_traces(old, new, policy=PLAIN)
        assert result.basis == "sources"
        assert noted(result.notes, "Answers are recorded in one trace alone")
        assert len(result.changed) == 0
    with pytest.raises(ValueError, match=r"on the new trace"):
        compare_traces(right, without(right, range(2, 5)), policy=PLAIN)
