"""Hits of another arm or retrieval than those that a certificate speaks of.

Said where a system opens and decides.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache

import pandas as pd
import pytest

from raglab.decision.learned_cases import with_scores_of
from raglab.lab.certification import certify_policy
from raglab.lab.study import tune
from raglab.live.certified_retrieval import retrieval_differences
from raglab.live.decided_frames import decide_frame
from raglab.live.system import System, build_index
from raglab.live.trace_building import build_trace
from raglab.store.frames import trace_from_frame
from raglab.store.policies import Policy
from raglab.values import Case, Chunk, Corpus

GATES = ("l2", "density", "gap", "similarity", "confidence")
POLICY = Policy.from_mapping({gate: {"enabled": False} for gate in GATES})
CORPUS = Corpus(
    "desk",
    tuple(
        Chunk(f"{n}.md#1", f"The excess of item {n} is {n} pounds.", f"{n}.md", 1) for n in range(4)
    ),
)
CASES = tuple(
    Case(
        f"q{n}",
        f"What is the excess of item {n % 4}, case {n}?",
        expect_status="ok",
        expect_sources=(f"{n % 4}.md#1",),
    )
    for n in range(40)
)


@cache
def certified(arm=None, *, frame=False):
    """Policy with a certificate on hits of our own retrieval, or of a frame."""
    if frame:
        rows = [(case.query, case.expect_sources[0], 0.9, "ok") for case in CASES]
        trace = trace_from_frame(
            pd.DataFrame(rows, columns=["query", "hit_id", "score", "label"]), score="cosine"
        )
    else:
        trace = build_trace(CORPUS, CASES, policy=POLICY, arms=("hybrid", "bm25"))
    policy = certify_policy(trace, POLICY, targets={"false_refusal_rate": 0.5}, arm=arm).policy
    assert policy is not None
    return policy


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Folder of an index with one arm."""
    place = tmp_path_factory.mktemp("certified") / "index"
    build_index(CORPUS, place, arms=("hybrid",))
    return place


def test_differences_by_hand():
    """Other arms beside the certified one, and settings that it did not use, change no hit."""
    own = {"retrieval": {"fetch_k": 50, "arms": ["a"], "rewriter": None}}
    assert retrieval_differences(own, {"fetch_k": 50, "arms": ["a", "b"], "rewriter": "rm3"}) == []
    assert retrieval_differences(own, {"fetch_k": 20}) == ["fetch_k 20 instead of 50"]
    assert retrieval_differences({}, {"fetch_k": 20}) == []


def test_the_certified_arm_is_served_without_a_word(index):
    """Of the same retrieval; a policy without a certificate promises nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        System.open(index, policy=certified("hybrid"), cache=False, audit=False)
        System.open(index, policy=POLICY, cache=False, audit=False)


def test_another_arm_or_retrieval_is_said(index):
    """With what differs; the promise is not about these hits."""
    with pytest.warns(UserWarning, match=r"arm hybrid instead of bm25.*S6\.10"):
        System.open(index, policy=certified("bm25"), cache=False, audit=False)
    with pytest.warns(UserWarning, match="score None instead of cosine"):
        System.open(index, policy=certified(frame=True), cache=False, audit=False)


def test_a_frame_of_another_score_is_said():
    """Nothing is said of the same kind of score."""
    rows = pd.DataFrame([("a?", "0.md#1", 0.9)], columns=["query", "hit_id", "score"])
    policy = certified(frame=True)
    with pytest.warns(UserWarning, match="score l2 instead of cosine"):
        decide_frame(rows, policy, score="l2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decide_frame(rows, policy, score="cosine")


def test_an_arm_that_the_index_lacks_is_refused_at_the_door(index):
    """Before the first question, with the call that makes it."""
    with pytest.raises(
        ValueError,
        match=r"got bm25; make it by build_index\(…, arms=\('hybrid', 'bm25'\)",
    ):
        System.open(index, policy=POLICY.replace("strategy.arm", "bm25"), cache=False, audit=False)


class TestOtherScores:
    """A policy whose values were chosen on scores of another system than raglab."""

    @pytest.fixture
    def frame(self):
        """Trace of a user's own cosines."""
        rows = [
            (case.query, case.expect_sources[0], *((0.8, "ok") if n % 3 else (0.3, "refuse")))
            for n, case in enumerate(CASES)
        ]
        columns = ["query", "hit_id", "score", "label"]
        return trace_from_frame(pd.DataFrame(rows, columns=columns), score="cosine")

    @pytest.mark.usefixtures("quick_study")
    def test_a_tuned_one_is_refused(self, frame, index, tmp_path):
        """By a system that opens, and by an open one."""
        policy = tune(frame, trials=4, batch_size=4).policy
        policy.save(tmp_path / "policy.yaml")
        rule = "must be tuned on scores of raglab's retrieval, got one of cosine scores"
        with pytest.raises(ValueError, match=rf"{rule} .* raglab\.rescale_thresholds"):
            System.open(index, policy=tmp_path / "policy.yaml", cache=False, audit=False)
        opened = System.open(index, policy=POLICY, cache=False, audit=False)
        with pytest.raises(ValueError, match=rule):
            opened.replace(policy)
        with pytest.raises(ValueError, match=rule):
            replace(opened, policy=policy)

    def test_what_opens(self, frame, index):
        """Values for raglab's hits, no gate on hits, or none that a study chose."""
        policy = with_scores_of(POLICY.replace("similarity.enabled", True), frame.meta)
        assert policy.policy_id == POLICY.replace("similarity.enabled", True).policy_id
        own = build_trace(CORPUS, CASES, policy=POLICY, arms=("hybrid",))
        for sound in (
            with_scores_of(policy, own.meta),
            with_scores_of(POLICY, frame.meta),
            policy.without_gates(),
            policy.replace("tuned_scores", None),
        ):
            System.open(index, policy=sound, cache=False, audit=False)
        with pytest.raises(ValueError, match="scores of another system"):
            System.open(index, policy=policy, cache=False, audit=False)
