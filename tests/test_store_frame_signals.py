"""Frames of scores that are no distances, and frames without labels.

By hand first, then laws, then hostile ones.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from raglab import metrics
from raglab.lab.certification import certify_policy
from raglab.lab.certification_families import declared_family
from raglab.lab.gate_fitting import answer_outcomes
from raglab.lab.study import tune
from raglab.replay import decide, flips, steps, sweep, tally
from raglab.store.csv_tables import MAX_TABLE_ROWS as MAX_ROWS
from raglab.store.files import InputError
from raglab.store.frames import trace_from_frame
from raglab.store.loaders import save_cases
from raglab.store.policies import Policy
from raglab.store.trace_files import answers_from_rows
from raglab.store.traces import Trace
from raglab.values import LONGEST_QUESTION, Case

SCORE: dict[str, Any] = {"higher": "surer", "unit": "probability"}
NODE = {"node_score": SCORE}
ALL_OFF = ["l2", "density", "gap", "similarity", "confidence"]
HALF = Policy.from_mapping({"signals": {"node_score": {"min": 0.5}}})
NO_ANSWERS = answers_from_rows([[]] * 40, "generator", "scorer")

pytestmark = pytest.mark.filterwarnings("ignore:.*so the gates.*are off:UserWarning")


def hits(*rows, columns="query hit_id node_score label"):
    """Frame of rows."""
    return pd.DataFrame(rows, columns=columns.split())


def scored(frame, signals=NODE, **how):
    """Trace of a frame without distances."""
    return trace_from_frame(frame, score=None, signals=signals, **how)


def refusal(frame, signals=NODE, **how):
    """Message with which a frame is refused."""
    with pytest.raises(ValueError, match=r".") as caught:
        trace_from_frame(frame, **{"score": None, "signals": signals, **how})
    return str(caught.value)


def drawn(seed, n_cases=40, *, labels=True):
    """Frame of one to six hits a case, scores on a coarse grid that tie and meet thresholds."""
    rng = np.random.default_rng(seed)
    rows = []
    for case in range(n_cases):
        row: dict[str, Any] = {"query": f"question {case}"}
        if labels:
            wanted = f"h{rng.integers(8)}"
            row["label"] = str(rng.choice(["ok", "refuse", "ambiguous"]))
            row |= {} if row["label"] == "refuse" else {"expect_sources_any": [wanted]}
        hit_numbers = rng.permutation(8)[: rng.integers(0, 7)]
        score = [None if rng.random() < 0.1 else rng.integers(9) / 8 for _ in hit_numbers]
        rows += [
            row | {"hit_id": f"h{hit}", "node_score": s}
            for hit, s in zip(hit_numbers, score, strict=True)
        ] or [row]
    return pd.DataFrame(rows)


class TestByHand:
    """Frames that can be followed by head."""

    def test_a_probability_decides(self):
        """0.75 and exactly 0.5 pass, 0.25 is refused; what found nothing is refused as such."""
        rows = [
            ("a?", "x", 0.75, "ok"),
            ("b?", "x", 0.5, "refuse"),
            ("c?", "y", 0.25, "ok"),
            ("d?", None, None, "ok"),
        ]
        trace = scored(hits(*rows))
        assert trace.signals == ("node_score",)
        np.testing.assert_array_equal(trace.signal("node_score"), [0.75, 0.5, 0.25, np.nan])
        table = decide(trace, HALF).frame()
        assert table["status"].tolist() == ["ok", "ok", "refuse", "refuse"]
        assert table["decided_by"].tolist() == [
            "answered",
            "answered",
            "signals.node_score",
            "no_hits",
        ]
        assert table["sources"].tolist() == [["x#n/a"], ["x#n/a"], [], []]
        assert table["correct"].tolist() == [True, False, False, False]
        assert table["confidence"].isna().all()
        row = sweep(trace, [HALF]).iloc[0]
        assert [(row[f"{name}_k"], row[f"{name}_n"]) for name in metrics.RATES] == [
            (2, 3),
            (1, 2),
            (0, 0),
            (0, 4),
            (2, 4),
            (1, 4),
        ]

    def test_the_warning_names_gates_and_remedy(self):
        """It says which gates are off and how to gate the score; with distances there is none."""
        frame = hits(("a?", "x", 0.75, "ok"))
        wanted = rf"mine: .* the gates {', '.join(ALL_OFF)} are off; gate "
        with pytest.warns(UserWarning, match=wanted) as caught:
            trace = scored(frame, name="mine")
        assert caught[0].filename == __file__
        assert trace.meta["gates_off"] == ALL_OFF
        assert "gates_off" not in trace_from_frame(frame.assign(score=0.5), signals=NODE).meta

    @pytest.mark.parametrize("order", ["rank", "l2"])
    def test_the_first_hits_are_chosen(self, order):
        """Without distances the answer uses the first `final_k` hits in the system's order."""
        rows = [
            ("a?", name, score, "ok")
            for name, score in zip("edcba", (0.9, 0.1, 0.2, 0.3, 0.4), strict=True)
        ]
        trace = scored(hits(*rows))
        policy = HALF.replace("chosen.order", order, "chosen.final_k", 3)
        assert decide(trace, policy).frame()["sources"].tolist() == [["e#n/a", "d#n/a", "c#n/a"]]
        ranked = scored(hits(*rows).assign(rank=[4, 3, 2, 1, 0]))
        assert ranked.signal("node_score").tolist() == [0.4]
        low = policy.replace("signals.node_score.min", 0.25)
        assert decide(ranked, low).frame()["sources"].tolist() == [["a#n/a", "b#n/a", "c#n/a"]]

    def test_a_policy_that_switches_its_gates_off_itself(self):
        """A hit without a distance is relevant where none is asked for: never `ok` on no source."""
        rows = [("a?", "x", 0.75, "ok"), ("b?", "y", 0.25, "ok")]
        frame = hits(*rows).rename(columns={"node_score": "score"}).assign(cosine=[None, 0.9])
        # one has a distance, so that no gate is off by the trace
        trace = trace_from_frame(frame, score="probability")
        assert "gates_off" not in trace.meta
        table = decide(trace, Policy.from_mapping({"confidence": {"enabled": False}})).frame()
        assert table["decided_by"].tolist() == ["l2", "answered"]
        off = {name: {"enabled": False} for name in ("l2", "gap", "similarity", "confidence")}
        assert decide(trace, Policy.from_mapping(off)).frame()["sources"].tolist() == [
            ["x#n/a"],
            ["y#n/a"],
        ]

    def test_a_signal_of_the_question(self):
        """One of the stage query is the same in each row, and counts without hits too.

        Else its row is told.
        """
        frame = hits(
            ("a?", "x", 0.75), ("a?", "y", 0.75), ("b?", None, 0.25), columns="query hit_id clarity"
        )
        query = {"clarity": {**SCORE, "stage": "query"}}
        assert scored(frame, query).signal("clarity").tolist() == [0.75, 0.25]
        message = refusal(frame.assign(clarity=[0.75, 0.5, 0.25]), query)
        assert (
            "row 1, column clarity: a case must have one clarity, got 0.5 after 0.75 in row 0"
            in message
        )
        assert "must have no clarity, got 0.25" in refusal(frame, {"clarity": SCORE})

    def test_further_scores_beside_distances(self):
        """A signal stands beside a cosine, under another name than its column."""
        frame = hits(("a?", "x", 0.75, "ok"), ("b?", "x", 0.25, "ok")).assign(score=[0.9, 0.8])
        trace = trace_from_frame(
            frame, signals={"judge": {**SCORE, "column": "node_score", "version": "2"}}
        )
        assert trace.signal("judge").tolist() == [0.75, 0.25]
        assert trace.meta["signals"]["judge"]["version"] == "2"
        policy = Policy.from_mapping(
            {"confidence": {"enabled": False}, "signals": {"judge": {"min": 0.5}}}
        )
        assert decide(trace, policy).frame()["decided_by"].tolist() == ["answered", "signals.judge"]

    def test_arms_and_depths(self):
        """Each arm and depth has the score of its own first hit."""
        rows = [
            ("a?", "x", 0.75, "one", 0),
            ("a?", "y", 0.5, "one", 1),
            ("a?", "x", 0.25, "two", 0),
            ("a?", None, None, "two", 1),
        ]
        trace = scored(hits(*rows, columns="query hit_id node_score arm depth"))
        np.testing.assert_array_equal(trace.columns["node_score"], [[[0.75, 0.5], [0.25, np.nan]]])


class TestWithoutLabels:
    """Cases that nobody labelled."""

    def test_they_decide(self, tmp_path):
        """Status, reasons, flips and the file work; what would count them says `None`."""
        trace = scored(drawn(1, labels=False))
        table = decide(trace, HALF).frame()
        assert set(table["status"]) == {"ok", "refuse"}
        assert table["correct"].isna().all()
        assert table["expect_status"].isna().all()
        trace.save(tmp_path / "t.parquet")
        again = Trace.load(tmp_path / "t.parquet")
        assert again.fingerprint == trace.fingerprint
        assert decide(again, HALF).frame().equals(table)
        row = int(np.flatnonzero(table["decided_by"] == "signals.node_score")[0])
        near = flips(trace, HALF, table["case_id"][row]).set_index("path")
        assert near.loc["signals.node_score.min", "becomes"] == "ok"

    @pytest.mark.parametrize(
        "count",
        [
            lambda trace: sweep(trace, [HALF]),
            lambda trace: steps(trace, HALF, path="signals.node_score.min"),
            lambda trace: decide(trace, HALF).right,
            lambda trace: certify_policy(trace, HALF, targets={"hallucination_rate": 0.1}),
            tune,
            lambda trace: answer_outcomes(dataclasses.replace(trace, answers=NO_ANSWERS), HALF),
            raglab.fit_decision,
            raglab.fit_fused_gate,
        ],
    )
    def test_nothing_counts_them(self, count):
        """Whatever counts by label stops, also where one label of many is missing."""
        some = [
            case if row else case._replace(expect_status=None)
            for row, case in enumerate(scored(drawn(1)).cases)
        ]
        for trace in (
            scored(drawn(1, labels=False)),
            dataclasses.replace(scored(drawn(1)), cases=tuple(some)),
        ):
            with pytest.raises(
                ValueError, match=r"must have a label where decisions are counted, got \d+ of 40"
            ):
                count(trace)

    def test_a_set_of_cases_has_labels(self, tmp_path):
        """A file of cases is labelled: one without is not written."""
        with pytest.raises(InputError, match="expect_status must not be missing"):
            save_cases([Case("a", "who?")], tmp_path / "cases.jsonl")


class TestLaws:
    """What holds for any frame."""

    @pytest.mark.parametrize("seed", range(3))
    def test_case_sweep_and_kernel_agree(self, seed):
        """One case of a trace, all of them, NumPy and the compiled kernel say the same."""
        pytest.importorskip("numba")
        trace = scored(drawn(seed, 12))
        policies = [
            HALF.replace("signals.node_score.min", at, "chosen.order", order, "l2.max_l2", 0.1 + at)
            for at, order in ((0.0, "l2"), (0.5, "rank"), (0.625, "l2"), (1.0, "rank"))
        ]
        plain, compiled = (tally(trace, policies, engine=engine) for engine in ("numpy", "numba"))
        np.testing.assert_array_equal(plain.cells, compiled.cells)
        np.testing.assert_array_equal(plain.stages, compiled.stages)
        for place, policy in enumerate(policies):
            decisions = decide(trace, policy)
            of_one = [
                decide(trace.subset([row]), policy).frame().iloc[0] for row in range(len(trace))
            ]
            assert pd.DataFrame(of_one).reset_index(drop=True).equals(decisions.frame())
            assert (
                decisions.right.sum()
                == metrics.rate_counts(plain.cells)[place, list(metrics.RATES).index("pass_rate")]
            )
            answered = [row for row in decisions.frame().itertuples() if row.status == "ok"]
            assert all(row.sources for row in answered)

    def test_a_trace_declares_off_only_what_can_be(self):
        """A trace of somebody else cannot open the gate on patterns or on signals."""
        trace = scored(drawn(1))
        for name in ("domain", "signals", "coverage", "no such"):
            changed = dataclasses.replace(trace, meta={**trace.meta, "gates_off": ["l2", name]})
            with pytest.raises(ValueError, match=f"may declare off only l2, .* got '{name}'"):
                decide(changed, HALF)

    def test_a_certificate_varies_the_bound_that_decides(self):
        """If the trace leaves no chain gate, a policy's stated bounds are the candidate family."""
        assert declared_family(HALF, ALL_OFF) == ("signals.node_score.min",)
        assert declared_family(HALF) == declared_family(HALF, ["l2", "density", "gap"])
        assert declared_family(HALF, ALL_OFF[:4]) == ("confidence.tau_default",)


class TestHostile:
    """Frames that are too large, contradict themselves or hold no numbers."""

    def test_too_many_rows(self):
        """Ten million rows are refused before any column is read."""
        frame = pd.DataFrame(
            {"query": pd.Categorical.from_codes(np.zeros(10_000_000, np.int8), ["a?"])}
        )
        assert f"at most {MAX_ROWS:,}, got 10,000,000" in refusal(frame)

    def test_arrays_far_larger_than_the_frame(self):
        """Arms and depths, or one long case, that lay out far more than the rows are refused."""
        n = 3_000
        names = [f"n{row}" for row in range(n)]
        wide = pd.DataFrame(
            {
                "query": names,
                "hit_id": "x",
                "node_score": 0.5,
                "arm": names,
                "depth": np.arange(n) % 100,
            }
        )
        assert "rows in every arm and depth" in refusal(wide)
        long = pd.DataFrame(
            {"query": ["a?"] * 8_000 + names, "hit_id": range(8_000 + n), "node_score": 0.5}
        )
        message = refusal(long)
        assert "hits of the longest case must be at most 20,000,000, got 24,008,000" in message
        assert "8,000 of case 'q1', arm 'frame', depth 0" in message
        assert "pairs of hits of the longest case must be at most 2,000,000,000" in refusal(
            long.iloc[:8_100]
        )

    @pytest.mark.parametrize(
        ("column", "value", "parts"),
        [
            (
                "node_score",
                float("inf"),
                "row 1, column node_score: node_score must be a number from 0 to 1",
            ),
            ("node_score", 1.5, "got 1.5"),
            ("query", "x" * (LONGEST_QUESTION + 1), f"at most {LONGEST_QUESTION} characters"),
            ("case_id", "1", "a case must have one query, got 'b?' after 'a?'"),
        ],
    )
    def test_cells(self, column, value, parts):
        """A score out of range or missing, a question too long, a case_id of two: row and rule.

        The last is a case_id of two questions.
        """
        frame = hits(
            ("1", "a?", "x", 0.5), ("2", "b?", "x", 0.5), columns="case_id query hit_id node_score"
        )
        changed = frame.astype(object)
        changed.loc[1, column] = value
        assert parts in refusal(changed)

    def test_a_missing_score_fires(self):
        """NaN is a missing value.

        Its gate refuses and says so, unless the signal states that it passes.
        """
        frame = hits(("a?", "x", float("nan"), "ok"))
        table = decide(scored(frame), HALF).frame(reasons=True)
        assert table["reason"].tolist() == ["signal node_score is missing, min 0.5"]
        passes = scored(frame, {"node_score": {**SCORE, "missing": "passes"}})
        assert decide(passes, HALF).frame()["status"].tolist() == ["ok"]

    @pytest.mark.parametrize(
        ("signals", "parts"),
        [
            ({"node_score": {}}, "must state higher and unit"),
            (
                {"node_score": {**SCORE, "higher": "better"}},
                "higher of signal node_score must be one of surer, ask",
            ),
            (
                {"node.score": {**SCORE, "column": "node_score"}},
                "a signal's name must be a small letter",
            ),
            ({"x" * 10_000: {**SCORE, "column": "node_score"}}, "(10,002 characters)"),
            (
                {"gap": {**SCORE, "column": "node_score"}},
                "must not have the name of a built-in one",
            ),
            ({"judge": SCORE, **NODE}, "the column judge is required"),
        ],
    )
    def test_declarations(self, signals, parts):
        """A signal states what it is, under a name that a policy can gate."""
        message = refusal(hits(("a?", "x", 0.5, "ok")), signals)
        assert parts in message
        assert len(message) < 1_500

    def test_score_says_what_there_is(self):
        """A column `score` that nobody explains, and one that is not there, are both told."""
        frame = hits(("a?", "x", 0.5, "ok")).assign(score=0.5)
        with pytest.warns(UserWarning, match="read by no gate: 'score'"):
            assert scored(frame).cases[0].extra["score"] == 0.5
        message = refusal(frame.drop(columns="score"), score="cosine")
        assert "columns score" in message
        assert scored(frame, {**NODE, "mine": {**SCORE, "column": "score"}}).signals == (
            "mine",
            "node_score",
        )
