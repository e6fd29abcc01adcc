"""Scores that rank against their declared direction: where labels say it, and where they do not."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raglab
from raglab import metrics
from raglab.decision.score_directions import MIN_RANKED_CASES, ScoredCases
from raglab.lab.threshold_rescaling import rescale_thresholds

TURNED = "ranks against its direction"
GRID = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), min_size=1, max_size=80)


def said(function, *arguments, **named):
    """Warnings of a call that speak of directions."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments, **named)
    return [str(item.message) for item in caught if TURNED in str(item.message)]


def hits(n=40, split=None):
    """Questions over two passages each; those labelled ok have nearly always the higher scores."""
    rng = np.random.default_rng(3)
    rows = []
    for place in range(n):
        is_ok = place % 2 == 0
        best = (0.55 if is_ok else 0.35) + rng.uniform(0.0, 0.25)
        for rank, score in enumerate((best, best - 0.2)):
            row = {"query": f"question {place}", "hit_id": f"d{place % 7}-{rank}", "score": score}
            rows.append(row | {"label": "ok" if is_ok else "refuse", "split": split})
    frame = pd.DataFrame(rows)
    return frame if split else frame.drop(columns="split")


def turned(frame):
    """The same with 1 - score."""
    return frame.assign(score=1.0 - frame["score"])


@given(GRID)
def test_a_score_and_its_mirror_are_never_both_contradicted(rows):
    """And each only where the interval of its AUROC lies below one half as a whole."""
    score, right, ambiguous = (np.array(column) for column in zip(*rows, strict=True))
    score, right = score / 4.0, right & ~ambiguous
    cases, mirror = (ScoredCases(part, right, ambiguous) for part in (score, 1.0 - score))
    texts = [part.contradiction("near") for part in (cases, mirror)]
    assert not all(texts)
    for part, text in zip((cases, mirror), texts, strict=True):
        kept = ~ambiguous
        fewer = min(int(right[kept].sum()), int((~right[kept]).sum()))
        _, *figures = part.ranking()
        if fewer:
            low, high = metrics.auroc_interval(right[kept], part.score[kept])
            area = metrics.auroc(right[kept], part.score[kept])
            assert figures == [fewer, area, float(low), float(high)]
        assert bool(text) == (fewer >= MIN_RANKED_CASES and figures[-1] < 0.5)
    # a rising map changes nothing, and a score that says `ask` is read backwards
    assert bool(cases._replace(score=score**3 + 2.0).contradiction("near")) == bool(texts[0])
    np.testing.assert_equal(cases.ranking("ask"), mirror.ranking())
    assert not cases.contradiction("near", "either")


def test_more_of_a_score_that_asks_may_mark_ambiguous_cases_alone():
    """As a number of options does: few for what is to be refused, many for what is to be asked."""
    score = np.repeat([1.0, 0.0, 5.0], 20) + np.tile([0.0, 0.5], 30)
    right, ambiguous = np.repeat([True, False, False], 20), np.repeat([False, False, True], 20)
    assert ScoredCases(score, right, ambiguous & False).rows(~ambiguous).contradiction("n", "ask")
    assert not ScoredCases(score, right, ambiguous).contradiction("n", "ask")
    assert ScoredCases(6.0 - score, right, ambiguous).contradiction("n", "surer")


@pytest.mark.parametrize("score", ["cosine", "l2", "probability"])
def test_hits_of_a_score_the_wrong_way_round(score):
    """A warning with the figure; none the right way round."""
    near = hits()
    far = turned(near)
    right, wrong = (far, near) if score == "l2" else (near, far)
    assert said(raglab.trace_from_frame, right, score=score) == []
    texts = said(raglab.trace_from_frame, wrong, score=score)
    field = "s_rerank" if score == "probability" else "cosine"
    (text,) = texts
    assert text.startswith(f"{field} {TURNED}: AUROC 0.0")
    assert "of 40 labelled cases" in text


@pytest.mark.parametrize(
    "frame",
    [
        turned(hits(18)),
        turned(hits(40, "certify")),
        turned(hits()).drop(columns="label"),
        turned(hits()).assign(label="ok"),
        hits().assign(score=[0.4, 0.3] * 40),
    ],
)
def test_labels_that_say_nothing(frame):
    """Fewer than 10 of a kind, cases held back, no label, one label, a constant."""
    assert said(raglab.trace_from_frame, frame, score="cosine") == []


@pytest.mark.parametrize(("higher", "sign"), [("surer", 1.0), ("ask", -1.0)])
def test_signals_of_the_user(higher, sign):
    """From a frame, and added to a trace."""
    frame = hits().assign(own=lambda rows: sign * rows["score"])
    for declared in ("surer", "ask"):
        own = {"own": {"higher": declared, "unit": "marks"}}
        texts = said(raglab.trace_from_frame, frame, score="cosine", signals=own)
        assert len(texts) == (declared != higher)
        trace = raglab.trace_from_frame(hits(), score="cosine")
        values = frame.groupby("query", sort=False)["own"].first().to_numpy()
        how = {"higher": declared, "unit": "marks"}
        assert len(said(trace.with_signal, "own", values, **how)) == (declared != higher)


def test_thresholds_for_a_score_of_the_other_direction():
    """A warning with the path and the figure; none for another scale of the same direction."""
    policy = raglab.Policy.load().replace("similarity.min_similarity", 0.5)
    old = raglab.trace_from_frame(hits(), score="cosine")
    same = raglab.trace_from_frame(hits().assign(score=hits()["score"] / 2.0), score="cosine")
    other = raglab.trace_from_frame(turned(hits()), score="cosine")
    assert said(rescale_thresholds, old, policy, to=same) == []
    texts = said(rescale_thresholds, old, policy, to=other)
    assert any("similarity.min_similarity" in text for text in texts)


def test_slices_in_which_a_score_turns_round():
    """AUROC by group with its interval, and a warning of the group."""
    frame = hits(120)
    number = frame["query"].str.split().str[1].astype(int)
    group = np.where(number < 90, "en", "fr")
    mixed = frame.assign(score=np.where(group == "fr", 1.0 - frame["score"], frame["score"]))
    by = {"tongue": ["en"] * 90 + ["fr"] * 30}
    decisions = [
        raglab.decide(raglab.trace_from_frame(part, score="cosine"), raglab.Policy.load())
        for part in (frame, mixed)
    ]
    assert said(raglab.lab.slices, decisions[0], by=by) == []
    (text,) = said(raglab.lab.slices, decisions[1], by=by)
    assert text.startswith(f"the score of the policy in tongue fr {TURNED}")
    table = raglab.lab.slices(decisions[1], by=by).query("column == 'tongue'").set_index("value")
    assert table.loc["en", "auroc_low"] > 0.5 > table.loc["fr", "auroc_high"]
