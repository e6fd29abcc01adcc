"""Hits of one's own.

Where a study starts, the warning that a gate refuses nearly all, sources as one text (S2.19).
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import raglab
from decided import by_cost
from raglab.cli import app
from raglab.decision.refusal_warnings import MIN_OK_CASES
from raglab.decision.scoring import unretrieved_note
from raglab.gating.expected_cost import OUTCOME_CLASSES
from raglab.lab.decision_fitting import DecisionCases, direction_notes
from raglab.lab.search_space import SWITCHES
from raglab.replay import shard_codes
from raglab.signals import BUILT_IN, SignalSet, own_signal
from raglab.store.policies import Policy
from tfidf import hits
from worlds import Hit, ask, policy, trace_of

PUBLISHED = Policy.load()
QUICK = {"trials": 2, "folds": 3, "repeats": 1, "seed": 0}


@pytest.fixture(scope="module")
def frame():
    """Sixty questions, all labelled ok; the best score of each lies between 0.16 and 0.59."""
    return hits()


def _silent(function, *args, **how):
    """What a function returns, which must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function(*args, **how)


class TestStart:
    """A frame of scores of unstated scale starts from always-answer with a gate on the score."""

    def test_the_published_thresholds_refuse_all_of_them_and_say_so(self, frame):
        """60 of 60 are refused, 56 by l2, with its threshold and the range of these cases."""
        trace = raglab.trace_from_frame(frame)
        rule = r"gate l2 refuses 56 of 60 .* max_l2 is 0.8 .* of these is 1.05\d* to 1.67\d*;"
        with pytest.warns(UserWarning, match=rule) as caught:
            decisions = raglab.decide(trace, PUBLISHED)
        assert caught[0].filename == __file__
        assert (decisions.frame()["status"] == "refuse").all()

    def test_the_starting_policy_answers_and_gates_the_score(self, frame):
        """Nothing is refused; the bound of the gate is one that a study moves."""
        trace = raglab.trace_from_frame(frame)
        start = raglab.lab.starting_policy(trace)
        free = raglab.lab.always_answer(PUBLISHED)
        assert start.policy_id == free.replace("signals.top1_cosine.min", -1.0).policy_id
        decided = _silent(raglab.decide, trace, start).frame()
        assert (decided["decided_by"] == "answered").all()
        assert "signals.top1_cosine.min" in raglab.lab.full_space(trace, start)

    def test_a_study_starts_there(self, frame):
        """It warns of nothing, answers, and a note names the gate."""
        result = _silent(raglab.tune, raglab.trace_from_frame(frame), **QUICK)
        row = result.comparison.set_index("policy").loc["tuned"]
        assert row["coverage"] > 0.9
        start = result.findings.set_index("key")["text"]["start"]
        assert "signals.top1_cosine" in start

    def test_a_study_searches_what_decides_on_hits_without_distances(self, frame):
        """What is left out moves no decision of any configuration, and the result names it.

        A gate that asks keeps it.
        """
        signals = {"mine": {"column": "p", "higher": "surer", "unit": "probability"}}
        with pytest.warns(
            UserWarning, match="the gates l2, density, gap, similarity, confidence are off"
        ):
            trace = raglab.trace_from_frame(
                frame.rename(columns={"score": "p"}), score=None, signals=signals
            )
        start = raglab.lab.starting_policy(trace)
        assert list(raglab.lab.full_space(trace, start)) == ["signals.mine.min"]
        result = _silent(raglab.tune, trace, **QUICK)
        assert "resolver.signature" in result.left_out
        for low in (0.3, 0.6):
            base = start.replace("signals.mine.min", low)
            moved = [base.replace(path, not base.value(path)) for path in SWITCHES]
            moved.append(base.replace("density.min_keep", 3))
            codes = shard_codes(trace, [base, *moved], None)
            assert (codes == codes[:1]).all()
        asks = start.replace("signals.mine.on_fire", "ask")
        assert "resolver.signature" in raglab.lab.full_space(trace, asks)

    def test_scores_of_no_scale_are_gated_in_their_direction(self, frame):
        """Without any distance the user's signals are gated.

        `surer` from its least value, `ask` to its greatest.
        """
        bm25 = frame.assign(score=None).drop(columns="score").assign(bm25=40.0 * frame["score"])
        bm25["spread"] = bm25.groupby("query")["bm25"].transform(np.ptp)
        declared = {
            "bm25": {"higher": "surer", "unit": "number"},
            "spread": {"higher": "ask", "unit": "number", "stage": "query"},
        }
        with pytest.warns(
            UserWarning, match="gates l2, density, gap, similarity, confidence are off"
        ):
            trace = raglab.trace_from_frame(bm25, score=None, signals=declared)
        start = raglab.lab.starting_policy(trace)
        assert start.signals["bm25"].min == trace.signal("bm25").min()
        assert start.signals["spread"].max == trace.signal("spread").max()
        assert (raglab.decide(trace, start).frame()["status"] == "ok").all()

    def test_where_a_scale_is_stated_it_is_the_published_policy(self, frame):
        """Of cosines, alone and with a confidence."""
        by_cosine = raglab.lab.starting_policy(raglab.trace_from_frame(frame, score="cosine"))
        assert by_cosine == PUBLISHED.replace("confidence.enabled", False)
        scored = raglab.trace_from_frame(frame.assign(s_hybrid=0.5), score="cosine")
        assert raglab.lab.starting_policy(scored) == PUBLISHED

    def test_the_command_line_starts_there_too(self, frame, tmp_path):
        """`decide` without a policy says which one it takes; with the published one it warns."""
        path = tmp_path / "own.parquet"
        raglab.trace_from_frame(frame).save(path)
        plain = CliRunner().invoke(app, ["decide", str(path)])
        assert (
            "scale of the scores is not stated: every case is answered but for a gate on "
            "signals.top1_cosine" in (plain.stderr)
        )
        PUBLISHED.save(tmp_path / "published.yaml")
        refused = CliRunner().invoke(
            app, ["decide", str(path), "-p", str(tmp_path / "published.yaml")]
        )
        assert "gate l2 refuses 56 of 60 cases labelled ok" in refused.stderr


class TestWarning:
    """One gate that refuses more than nine in ten of the cases labelled ok."""

    def test_a_report_says_so(self, frame, tmp_path, monkeypatch):
        """With the same numbers, and in silence."""
        monkeypatch.setattr("raglab.lab.report.blocks.png", lambda *_: b"")
        trace = raglab.trace_from_frame(frame, score="cosine")
        page = _silent(
            raglab.write_report, trace, {"defaults": PUBLISHED}, out=tmp_path / "report.html"
        )
        assert "gate l2 refuses 56 of 60 cases labelled ok" in page.read_text()

    @pytest.mark.parametrize(
        ("sections", "rule"),
        [
            (
                {"similarity": {"enabled": True, "min_similarity": 0.9}},
                "gate similarity .* min_similarity is 0.9, ",
            ),
            (
                {"signals": {"top1_cosine": {"min": 0.95}}},
                r"gate signals.top1_cosine .* min is 0.95, .* 0.875;",
            ),
            (
                {"density": {"min_keep": 2}},
                "gate density .* min_keep is 2, relevant hits of these is 1 to 1;",
            ),
            ({"patterns": {"deny": ["excess"]}}, "gate domain refuses 12 of 12"),
        ],
    )
    def test_it_names_gate_threshold_and_range(self, sections, rule):
        """Of each kind of gate; one that has no threshold is named alone."""
        trace = trace_of(*[(ask(), [[Hit(0.25, s_hybrid=0.3)]])] * 12)
        with pytest.warns(UserWarning, match=rule):
            raglab.decide(trace, policy(**sections))

    def test_nine_in_ten_and_ten_cases(self):
        """Nine of ten refused is not more than 90 %; ten of ten is; nine cases say nothing."""
        near, far = (ask(), [[Hit(0.25)]]), (ask(), [[Hit(1.5)]])
        chosen = policy()
        _silent(raglab.decide, trace_of(near, *[far] * 9), chosen)
        _silent(raglab.decide, trace_of(*[far] * (MIN_OK_CASES - 1)), chosen)
        with pytest.warns(UserWarning, match="gate l2 refuses 10 of 10"):
            raglab.decide(trace_of(*[far] * 10), chosen)

    def test_what_is_meant_to_refuse_or_no_gate_is_silent(self):
        """Always-refuse, an expected-cost decision, cases without hits, refusal labels, a sweep."""
        far = trace_of(*[(ask(), [[Hit(1.5)]])] * 12)
        _silent(raglab.decide, far, raglab.lab.always_refuse(Policy.load()))
        _silent(raglab.decide, far, by_cost(policy(), (0.0, 0.0, 9.0, 0.0)))
        _silent(raglab.decide, trace_of(*[(ask(), [[]])] * 12), policy())
        refusals = trace_of(*[(ask(expect_status="refuse"), [[Hit(1.5)]])] * 12)
        _silent(raglab.decide, refusals, policy())
        sourced = trace_of(*[(ask(expect_sources=("a.md",)), [[Hit(1.5)]])] * 12)
        _silent(raglab.sweep, sourced, [policy()])


class TestSources:
    """Sources that stand as one text, as `load_cases` takes them from a table."""

    def test_of_a_frame(self, frame):
        """One name, several with semicolons, a JSON list; each is the tuple of a case."""
        rows = frame.head(3).assign(query=["a?", "b?", "c?"])
        rows["expect_sources"] = ["bread.md", " bread.md ; tent.md#2", '["bread.md", "tent.md"]']
        cases = raglab.trace_from_frame(rows).cases
        wanted = [("bread.md",), ("bread.md", "tent.md#2"), ("bread.md", "tent.md")]
        assert [case.expect_sources for case in cases] == wanted


USER_HITS = pd.DataFrame(
    [
        ("the excess?", "a", 0.9, "ok"),
        ("the excess?", "b", 0.6, "ok"),
        ("Who won?", "b", 0.1, "refuse"),
    ],
    columns=["frage", "chunk", "sim", "gold"],
)
MAP = {"query": "frage", "hit_id": "chunk", "score": "sim", "label": "gold"}


def test_columns_maps_our_names_to_those_of_the_frame():
    """The trace is the renamed frame's, says what was mapped, and joins traces with our names."""
    mapped = raglab.trace_from_frame(USER_HITS, columns=MAP, score="cosine")
    ours = raglab.trace_from_frame(
        USER_HITS.rename(columns={name: field for field, name in MAP.items()}), score="cosine"
    )
    assert mapped.meta["fingerprint"] == ours.meta["fingerprint"]
    assert mapped.meta["columns"] == MAP
    merged = mapped.subset([0]).merge(ours.subset([1]))
    assert [case.id for case in merged.cases] == [case.id for case in ours.cases]
    policy = raglab.Policy.from_mapping({"confidence": {"enabled": False}})
    decided = raglab.decide_frame(USER_HITS, policy, columns=MAP, score="cosine")
    assert decided["status"].tolist() == ["ok", "refuse"]


def test_a_mapped_column_beside_one_of_our_name_is_named():
    """Nothing is passed over in silence."""
    with pytest.warns(UserWarning, match="left out: 'query'"):
        raglab.trace_from_frame(USER_HITS.assign(query="q"), columns=MAP, score="cosine")


class TestSlipsOfSources:
    """A source that differs from a document only in case or extension counts as not retrieved.

    It is a slip.
    """

    HITS = pd.DataFrame(
        {
            "query": [
                "How do I wash?",
                "Where is the bin?",
                "Who won the cup?",
                "May I keep a dog?",
            ],
            "hit_id": ["a", "b", "c", "d"],
            "source": [
                "house/Laundry_Room.html",
                "house/bins.html",
                "house/bins.html",
                "house/v1.3",
            ],
            "score": [0.9, 0.8, 0.1, 0.7],
            "label": ["ok", "ok", "refuse", "ok"],
        }
    )

    def warnings_of(self, *sources):
        """What is warned of with these sources of the questions."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            raglab.trace_from_frame(self.HITS.assign(expect_sources=list(sources)), score="cosine")
        return "\n".join(str(warning.message) for warning in caught)

    @pytest.mark.parametrize(
        "slip", ["house/Laundry_Room", "laundry_room.md", "HOUSE/LAUNDRY_ROOM.HTML#2"]
    )
    def test_a_slip_among_right_ones(self, slip):
        """One of three cases with sources."""
        text = self.warnings_of(slip, "house/bins.html", None, "house/v1.3")
        assert "1 of 3 sources of cases" in text
        assert f"first {slip!r} beside 'house/Laundry_Room.html'" in text

    def test_a_source_that_is_never_retrieved(self):
        """It is normal of hits, and of another version of a page too: no warning."""
        assert (
            self.warnings_of("house/Laundry_Room.html", "house/keys.html", None, "house/v1.2") == ""
        )

    def test_what_no_policy_can_answer_right(self, tmp_path):
        """Stored, the loss is still said by tune; a retrieved source is not."""
        rows = pd.DataFrame({"query": [f"Question {n}?" for n in range(60)], "hit_id": "a"})
        rows = rows.assign(source="home.md", score=np.linspace(0.9, 0.1, 60))
        rows["label"] = ["ok"] * 40 + ["refuse"] * 20
        sources = ["home.md"] * 30 + ["Home.html"] * 4 + ["keys.md"] * 6 + [None] * 20
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raglab.trace_from_frame(rows.assign(expect_sources=sources), score="cosine").save(
                tmp_path / "t.parquet"
            )
            trace = raglab.Trace.load(tmp_path / "t.parquet")
            note = unretrieved_note(trace)
            result = raglab.tune(trace, **QUICK)
            whole = raglab.trace_from_frame(
                rows.assign(expect_sources=["home.md"] * 40 + [None] * 20), score="cosine"
            )
        assert note.startswith("10 of 40 cases labelled ok with sources expect")
        assert "4 of them name a source" in note
        # whatever the order of the cases
        assert unretrieved_note(trace.subset(range(59, -1, -1))) == note
        assert result.counts["judged_unretrieved"] == 10
        assert any("10 expect sources" in text for text in result.notes)
        assert unretrieved_note(whole) == ""


class TestScoresOfNoStatedScale:
    """A score that nobody states is read as a cosine.

    Where it looks like a distance, a warning says so.
    """

    @staticmethod
    def ranked(*, down, name="score"):
        """Three questions of two hits; the score falls or rises with the rank."""
        scores = [0.9, 0.4] if down else [0.4, 0.9]
        rows = [(f"Question {n}?", hit, scores[hit], hit) for n in range(3) for hit in range(2)]
        return pd.DataFrame(rows, columns=["query", "hit_id", name, "rank"])

    def test_a_score_that_rises_with_the_rank(self):
        """In most cases the later hit has more of it."""
        with pytest.warns(UserWarning, match='distance.* 3 cells(.|\n)*score="l2"'):
            raglab.trace_from_frame(self.ranked(down=False))

    def test_a_name_of_a_distance(self):
        """The column that stands for the score."""
        frame = self.ranked(down=True, name="tfidf_distance")
        with pytest.warns(
            UserWarning, match="column tfidf_distance, read as a cosine, looks like a distance"
        ):
            raglab.trace_from_frame(frame, columns={"score": "tfidf_distance"})

    def test_rows_that_come_best_first(self):
        """A stated cosine that rises in nine of ten questions; no order tells of fewer."""
        rows = [(f"Question {n}?", hit, 0.4 + 0.1 * hit, "a") for n in range(10) for hit in (0, 1)]
        frame = pd.DataFrame(rows, columns=["query", "hit_id", "score", "text"])
        with pytest.warns(UserWarning, match="distance.* 10 cells"):
            raglab.trace_from_frame(frame, score="cosine")
        _silent(raglab.trace_from_frame, frame[:18], score="cosine")
        _silent(raglab.trace_from_frame, frame, score="l2")
        turned = frame.assign(score=1.0 - frame["score"])
        with pytest.warns(UserWarning, match="cosine.* 10 cells"):
            raglab.trace_from_frame(turned, score="l2")
        arms = pd.concat([frame.assign(arm="a"), turned.assign(arm="b")])  # one arm of two
        with pytest.warns(UserWarning, match="distance.* 10 cells"):
            raglab.trace_from_frame(arms, score="cosine")
        mixed = pd.concat([frame[4:], frame[:4].iloc[::-1]])
        _silent(raglab.trace_from_frame, mixed, score="cosine")

    @pytest.mark.parametrize("score", ["cosine", "unstated"])
    def test_what_is_silent(self, score):
        """A score that falls with the rank, and any that is stated."""
        _silent(raglab.trace_from_frame, self.ranked(down=True).assign(text="a"), score=score)
        _silent(raglab.trace_from_frame, self.ranked(down=False).assign(text="a"), score="cosine")

    def test_a_score_beyond_its_range_names_the_column(self):
        """And how to declare it."""
        frame = self.ranked(down=True, name="bm25_score").assign(bm25_score=200.0)
        with pytest.raises(raglab.InputError, match=r"column bm25_score.*score=None and signals="):
            raglab.trace_from_frame(frame, columns={"score": "bm25_score"})


def test_a_signal_declared_the_wrong_way_round():
    """A note where its AUROC lies below 0.5 with the whole interval.

    None the right way round, nor of noise.
    """
    right = np.arange(60) < 30
    values = np.where(right, 0.2, 0.8) + np.arange(60) % 7 / 10

    def notes(higher, values=values):
        known = SignalSet((*BUILT_IN, own_signal("far", higher=higher, unit="number")))
        signals = np.full((len(known.names), 60), np.nan)
        signals[known.place("far")] = values
        classes = np.where(right, OUTCOME_CLASSES.index("right"), OUTCOME_CLASSES.index("refuse"))
        cases = DecisionCases(signals, classes, np.zeros(60, bool), np.zeros(60, bool), known)
        return direction_notes(cases)

    assert notes("surer")[0].startswith("far ranks against its direction: AUROC 0.")
    assert notes("ask") == notes("surer", np.arange(60) % 2) == notes("surer", np.nan) == []


def test_costs_of_what_is_right():
    """A price of a right refusal is warned of; the default, and a price of an error, are not."""
    with pytest.warns(UserWarning, match=r"refuse.refused=1, ambiguous.asked_right=0.5"):
        raglab.Goal(costs={"refuse": {"refused": 1}, "ambiguous": {"asked": 0.5}})
    _silent(
        raglab.Goal, costs={"ok": {"refused": 1, "answered_wrong": 5}, "refuse": {"refused": 0}}
    )
