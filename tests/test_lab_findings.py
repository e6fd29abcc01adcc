"""What a study says: rows of findings, each true of the frames of its result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelled import labelled
from raglab import Goal, trace_from_frame
from raglab.decision.answer_text import MissingAnswers
from raglab.lab.comparison import PolicyContest
from raglab.lab.findings import (
    ADVICE,
    Standing,
    findings_frame,
    notes_of,
    study_findings,
    unasked,
)
from raglab.lab.paired_differences import paired_advantage
from raglab.lab.study import tune
from raglab.store.policies import Policy

FIRST = ("use", "shown", "missing")
ROLES = {"always-answer": "incumbent", "always-refuse": "free policy", "chain": "candidate"}


def standing(refused, **more):
    """Of 40 questions to refuse the policy refuses so many, always-refuse all, the others none."""
    cells = np.array([8] * refused + [2] * (40 - refused))
    rivals = {"always-answer": [2] * 40, "always-refuse": [8] * 40}
    rivals |= more.pop("rivals", {})
    contests = []
    for name, row in rivals.items():
        gain = paired_advantage(cells, np.array(row), None, name)
        contests.append(PolicyContest(name, ROLES[name], gain, 0, 0, gain.verdict))
    costs = dict.fromkeys(("tuned", *rivals), 0.5)
    return Standing("mine", contests, costs, **more)


@pytest.mark.parametrize(
    ("refused", "more", "advice", "names"),
    [
        (39, {}, "open", {"always-refuse"}),
        (20, {}, "worse", {"always-refuse"}),
        (39, {"in_sample": "they chose it"}, "in sample", set()),
        (39, {"lacking": MissingAnswers(9, 20)}, "missing", set()),
        (39, {"is_valid": False}, "invalid certificate", set()),
        (20, {"rivals": {"always-refuse": [2] * 40}, "gaps": ("defaults",)}, "uncompared", set()),
        (20, {"rivals": {"always-refuse": [2] * 40}, "is_known": False}, "unknown", set()),
        (20, {"rivals": {"always-refuse": [2] * 40}, "misses": True}, "misses", set()),
        (39, {"same": "always-answer"}, "same", set()),
        (20, {"rivals": {"always-refuse": [2] * 40}}, "use", {"always-answer", "always-refuse"}),
        (20, {"rivals": {"always-refuse": [2] * 40, "chain": [8] * 40}}, "worse", {"chain"}),
    ],
)
def test_what_to_use(refused, more, advice, names):
    """The first advice that holds names the policies that decide; use and shown agree."""
    here = standing(refused, **more)
    assert here.advice == advice
    use, shown = here.texts
    assert ("mine" in use) == (advice != "same")
    assert all(name in use for name in names)
    assert use.startswith("Use") == (advice in {"use", "misses", "same"})
    assert shown.startswith("Shown") == (advice in {"use", "misses", "worse"})
    assert set(ADVICE) >= {advice}


def test_notes_are_the_first_that_apply():
    """Use, shown and missing where there is any, and two more."""
    keys = (*FIRST, "targets", "cases", "gates", "nested")
    texts = {key: "" if key in {"missing", "cases"} else key for key in keys}
    assert notes_of(findings_frame(texts)) == ("use", "shown", "targets", "gates")
    assert len(notes_of(findings_frame(dict(zip(keys, keys, strict=True))))) == 5


@pytest.fixture(scope="module")
def studies():
    """Studies that end in several ways."""
    settings: dict[str, Any] = {"trials": 4, "batch_size": 4, "folds": 3, "repeats": 1}
    parts = {"tune": 50, "report": 50}
    noise = labelled(0, parts, wrong=0.35)
    few = labelled(1, parts, refusable=0.2)
    alone = labelled(2, {"": 60})
    strict = Goal(targets={"hallucination_rate": 0.0, "coverage": 1.0})
    mix = Goal(mix={"ok": (0.7, 0.9), "refuse": (0.1, 0.3), "ambiguous": 0.0})
    return {
        "noise": tune(noise, **settings),
        "few": tune(few, policy=Policy.load(), **settings),
        "alone": tune(alone, **settings),
        "strict": tune(few, goal=strict, **settings),
        "mix": tune(alone, goal=mix, **settings),
    }


@pytest.mark.parametrize("name", ["noise", "few", "alone", "strict", "mix"])
def test_a_study_says_little_and_what_its_frames_show(studies, name):
    """At most five sentences of at most 300 characters, none twice; figures are of the frames."""
    result = studies[name]
    findings = result.findings.set_index("key")
    assert tuple(findings.index[:3]) == FIRST
    assert len(set(result.notes)) == len(result.notes) <= 5
    assert max(map(len, result.notes)) <= 300
    assert all(note in str(result).replace("\n", " ") for note in result.notes)
    judged = result.judged.set_index("policy")
    use, shown, missing = findings["text"][:3]
    assert ("Shown" in shown) <= result.unseen
    assert not use.startswith("Use") or result.selected in use
    if result.contests and result.selected not in ("always-answer", "always-refuse", "defaults"):
        assert f"{judged.loc['tuned', 'expected_cost']:.3f}" in shown
        better = [
            contest.gain.low > 0.0 for contest in result.contests if contest.role != "shown beside"
        ]
        assert all(better) or not use.startswith("Use")
    assert ("No split" in missing) == (not result.unseen or result.n_certify is None)


def test_targets_missed_come_first_among_further_notes(studies):
    """With the rates of the judged cases and what is lacking when cross-fitted."""
    result = studies["strict"]
    tuned = result.judged.set_index("policy").loc["tuned"]
    assert not tuned["met"]
    assert result.target_excess > 0.0
    assert f"hallucination_rate {tuned['hallucination_rate']:.3f}" in result.notes[3]
    assert f"{result.target_excess:.3f}" in result.notes[3]


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"rate": 11 / 12}, ""),
        ({"n": 0, "rate": np.nan}, ""),
        ({}, "options"),
        ({"options": 3}, "gaps"),
        ({"options": 3, "signals": ("gaps",)}, "thresholds"),
    ],
)
def test_why_no_policy_asks_back_is_said(studies, changed, cause):
    """The first cause that holds, with the counts of judged and tuned cases; once at most."""
    result, n = studies["noise"], changed.get("n", 12)
    columns = dict.fromkeys(changed.get("signals", ()), np.zeros((60, 1, 1)))
    trace = replace(result.tuned_on, columns=columns)
    judged = result.judged.assign(
        missed_ambiguity_rate_n=n, missed_ambiguity_rate=changed.get("rate", 1.0)
    )
    counts = {**result.counts, "ambiguous": 9, "with_options": changed.get("options", 0)}
    study = replace(result, tuned_on=trace, judged=judged, counts=counts)
    assert unasked(study, judged.set_index("policy")) == cause
    row = study_findings(study, {}).set_index("key").loc["asking"]
    assert row["applies"] == bool(cause)


def test_policies_without_tuning_that_decide_alike_are_no_rivals():
    """Refusing all is compared with answering, not with defaults that refuse all as well."""
    # no confidence is measured, so the published defaults refuse every question
    rows = [
        (f"question {i}?", ("ok", "refuse")[i % 2], ("tune", "report")[i // 2 % 2], f"hit {i}", 0.6)
        for i in range(40)
    ]
    names = ["query", "label", "split", "hit_id", "score"]
    trace = trace_from_frame(pd.DataFrame(rows, columns=names), score="cosine")
    costs = {label: {"answered_wrong": 40.0} for label in ("ok", "refuse")}
    result = tune(trace, goal=Goal(costs=costs), trials=8, batch_size=8)
    alike = {"defaults", "always-refuse"}
    assert result.selected in alike
    assert result.costs["report"]["defaults"] == result.costs["report"]["always-refuse"]
    assert result.crossing is not None
    assert not alike & {result.crossing.below, result.crossing.above}
