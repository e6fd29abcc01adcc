"""Hits of one's own: where a study starts, the warning that a gate refuses nearly all, sources as one text (S2.19)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import raglab
from decided import by_cost
from raglab.cli import app
from raglab.decision.refusal_warnings import LEAST_OK
from raglab.store.policies import Policy
from tfidf import hits
from worlds import Hit, ask, policy, trace_of

PUBLISHED = Policy.load()


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Sixty questions, all labelled ok; the best score of each lies between 0.16 and 0.59."""
    return hits()


def _silent(function: Any, *args: Any, **how: Any) -> Any:
    """What a function returns, which must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function(*args, **how)


class TestStart:
    """A frame of scores whose scale is not stated starts from always-answer with a gate on the score."""

    def test_the_published_thresholds_refuse_all_of_them_and_say_so(self, frame: pd.DataFrame) -> None:
        """60 of 60 are refused, 56 of them by l2, with its threshold and the range of these cases."""
        trace = raglab.trace_from_frame(frame)
        told = r"gate l2 refuses 56 of 60 .* max_l2 is 0.8 and soft_max_l2 is 1.05, .* of these is 1.05\d* to 1.67\d*;"
        with pytest.warns(UserWarning, match=told) as seen:
            decisions = raglab.decide(trace, PUBLISHED)
        assert seen[0].filename == __file__
        assert (decisions.frame()["status"] == "refuse").all()

    def test_the_starting_policy_answers_and_gates_the_score(self, frame: pd.DataFrame) -> None:
        """Nothing is refused; the bound of the gate is one that a study moves."""
        trace = raglab.trace_from_frame(frame)
        start = raglab.lab.starting_policy(trace)
        assert start.policy_id == raglab.lab.always_answer(PUBLISHED).replace("signals.top1_cosine.min", -1.0).policy_id
        decided = _silent(raglab.decide, trace, start).frame()
        assert (decided["decided_by"] == "answered").all()
        assert "signals.top1_cosine.min" in raglab.lab.full_space(trace, start)

    def test_a_study_starts_there(self, frame: pd.DataFrame) -> None:
        """It warns of nothing, answers, and a note names the gate; of a stated cosine it starts as published."""
        result = _silent(raglab.tune, raglab.trace_from_frame(frame), trials=20, seed=0)
        row = result.comparison.set_index("policy").loc["tuned"]
        assert row["coverage"] > 0.9
        assert "signals.top1_cosine" in result.notes[1]
        with pytest.warns(UserWarning, match="study starts from: gate l2 refuses 56 of 60"):
            stated = raglab.tune(raglab.trace_from_frame(frame, score="cosine"), trials=20, seed=0)
        assert any("gate l2 refuses 56 of 60" in note for note in stated.notes)

    def test_scores_of_no_scale_are_gated_in_their_direction(self, frame: pd.DataFrame) -> None:
        """Without any distance the user's signals are gated: `surer` from its least value, `ask` to its greatest."""
        bm25 = frame.assign(score=None).drop(columns="score").assign(bm25=40.0 * frame["score"])
        bm25["spread"] = bm25.groupby("query")["bm25"].transform(np.ptp)
        declared = {
            "bm25": {"higher": "surer", "unit": "number"},
            "spread": {"higher": "ask", "unit": "number", "stage": "query"},
        }
        with pytest.warns(UserWarning, match="gates l2, density, gap, similarity, confidence are off"):
            trace = raglab.trace_from_frame(bm25, score=None, signals=declared)
        start = raglab.lab.starting_policy(trace)
        assert start.signals["bm25"].min == trace.signal("bm25").min()
        assert start.signals["spread"].max == trace.signal("spread").max()
        assert start.signals["bm25"].max is None
        assert (raglab.decide(trace, start).frame()["status"] == "ok").all()

    def test_where_a_scale_is_stated_it_is_the_published_policy(self, frame: pd.DataFrame) -> None:
        """Of cosines, and of a reranker's probabilities without distances."""
        by_cosine = raglab.lab.starting_policy(raglab.trace_from_frame(frame, score="cosine"))
        assert by_cosine == PUBLISHED.replace("confidence.enabled", False), "nobody scored what confidence is made of"
        scored = raglab.trace_from_frame(frame.assign(s_hybrid=0.5), score="cosine")
        assert raglab.lab.starting_policy(scored) == PUBLISHED
        with pytest.warns(UserWarning, match="gates l2, density, gap, similarity are off"):
            probable = raglab.trace_from_frame(frame, score="probability")
        assert raglab.lab.starting_policy(probable) == PUBLISHED

    def test_the_command_line_starts_there_too(self, frame: pd.DataFrame, tmp_path: Path) -> None:
        """`decide` without a policy says which one it takes; with the published one it warns."""
        path = tmp_path / "own.parquet"
        raglab.trace_from_frame(frame).save(path)
        plain = CliRunner().invoke(app, ["decide", str(path)])
        assert "scale of the scores is not stated: every case is answered but for a gate on signals.top1_cosine" in (
            plain.stderr
        )
        PUBLISHED.save(tmp_path / "published.yaml")
        refused = CliRunner().invoke(app, ["decide", str(path), "-p", str(tmp_path / "published.yaml")])
        assert "gate l2 refuses 56 of 60 cases labelled ok" in refused.stderr


class TestWarning:
    """One gate that refuses more than nine in ten of the cases labelled ok."""

    def test_everything_that_judges_a_policy_says_so(self, frame: pd.DataFrame, tmp_path: Path) -> None:
        """Certificate and report, with the same numbers."""
        trace = raglab.trace_from_frame(frame, score="cosine")
        told = "gate l2 refuses 56 of 60 cases labelled ok"
        with pytest.warns(UserWarning, match=told):
            certified = raglab.certify_policy(trace, PUBLISHED, targets={"hallucination_rate": 0.1})
        assert told in certified.notes[-1]
        page = _silent(raglab.write_report, trace, {"defaults": PUBLISHED}, out=tmp_path / "report.html")
        assert told in page.read_text()

    @pytest.mark.parametrize(
        ("sections", "told"),
        [
            ({"similarity": {"enabled": True, "min_similarity": 0.9}}, "gate similarity .* min_similarity is 0.9, "),
            ({"confidence": {"enabled": True}}, "gate confidence .* tau_default is 40, .* is 30 to 30;"),
            ({"signals": {"top1_cosine": {"min": 0.95}}}, r"gate signals.top1_cosine .* min is 0.95, .* 0.875;"),
            ({"l2": {"max_l2": 0.1, "soft_max_l2": None}}, "gate l2 .*: max_l2 is 0.1, l2 of the nearest hit"),
            ({"density": {"min_keep": 2}}, "gate density .* min_keep is 2, relevant hits of these is 1 to 1;"),
            ({"patterns": {"deny": ["excess"]}}, "gate domain refuses 12 of 12 .*reason"),
        ],
    )  # fmt: skip
    def test_it_names_gate_threshold_and_range(self, sections: dict[str, Any], told: str) -> None:
        """Of each kind of gate; one that has no threshold is named alone."""
        trace = trace_of(*[(ask(), [[Hit(0.25, s_hybrid=0.3)]])] * 12)
        with pytest.warns(UserWarning, match=told):
            raglab.decide(trace, policy(**sections))

    def test_nine_in_ten_and_ten_cases(self) -> None:
        """Nine of ten refused is not more than 90 %; ten of ten is; nine cases say nothing."""
        near, far = (ask(), [[Hit(0.25)]]), (ask(), [[Hit(1.5)]])
        chosen = policy()
        _silent(raglab.decide, trace_of(near, *[far] * 9), chosen)
        _silent(raglab.decide, trace_of(*[far] * (LEAST_OK - 1)), chosen)
        with pytest.warns(UserWarning, match="gate l2 refuses 10 of 10"):
            raglab.decide(trace_of(*[far] * 10), chosen)

    def test_what_is_meant_to_refuse_or_no_gate_is_silent(self) -> None:
        """Always-refuse, a decision by expected cost, cases without hits, labels of refusal, and a sweep."""
        far = trace_of(*[(ask(), [[Hit(1.5)]])] * 12)
        _silent(raglab.decide, far, raglab.lab.always_refuse(Policy.load()))
        _silent(raglab.decide, far, by_cost(policy(), (0.0, 0.0, 9.0, 0.0)))
        _silent(raglab.decide, trace_of(*[(ask(), [[]])] * 12), policy())
        _silent(raglab.decide, trace_of(*[(ask(expect_status="refuse"), [[Hit(1.5)]])] * 12), policy())
        sourced = trace_of(*[(ask(expect_sources=("a.md",)), [[Hit(1.5)]])] * 12)
        _silent(raglab.sweep, sourced, [policy()])


class TestSources:
    """Sources that stand as one text, as `load_cases` takes them from a table."""

    def test_of_a_frame(self, frame: pd.DataFrame) -> None:
        """One name, several with semicolons, a JSON list; each is the tuple of a case."""
        rows = frame.head(3).assign(query=["a?", "b?", "c?"])
        rows["expect_sources"] = ["bread.md", " bread.md ; tent.md#2", '["bread.md", "tent.md"]']
        cases = raglab.trace_from_frame(rows).cases
        wanted = [("bread.md",), ("bread.md", "tent.md#2"), ("bread.md", "tent.md")]
        assert [case.expect_sources for case in cases] == wanted

    def test_a_text_counts_as_the_list(self, frame: pd.DataFrame) -> None:
        """A frame with texts has the very cases of one with tuples."""
        texts = frame.assign(expect_sources=frame["expect_sources"].str[0])
        assert raglab.trace_from_frame(texts).cases == raglab.trace_from_frame(frame).cases


USER_HITS = pd.DataFrame(
    [("the excess?", "a", 0.9, "ok"), ("the excess?", "b", 0.6, "ok"), ("Who won?", "b", 0.1, "refuse")],
    columns=["frage", "chunk", "sim", "gold"],
)
MAP = {"query": "frage", "hit_id": "chunk", "score": "sim", "label": "gold"}


def test_columns_maps_our_names_to_those_of_the_frame(tmp_path: Path) -> None:
    """The trace is that of the renamed frame, says what was mapped, and joins traces of frames with our names."""
    mapped = raglab.trace_from_frame(USER_HITS, columns=MAP, score="cosine")
    ours = raglab.trace_from_frame(
        USER_HITS.rename(columns={name: field for field, name in MAP.items()}), score="cosine"
    )
    assert mapped.meta["fingerprint"] == ours.meta["fingerprint"]
    assert mapped.meta["columns"] == MAP
    assert "columns={'query': 'frage'" in mapped.meta["command"]
    mapped.save(tmp_path / "trace.parquet")
    assert raglab.Trace.load(tmp_path / "trace.parquet").meta["columns"] == MAP
    first, second = mapped.subset([0]), ours.subset([1])
    assert [case.id for case in first.merge(second).cases] == [case.id for case in ours.cases]
    policy = raglab.Policy.from_mapping({"confidence": {"enabled": False}})
    unlabelled = {field: name for field, name in MAP.items() if field != "label"}
    decided = raglab.decide_frame(USER_HITS.drop(columns="gold"), policy, columns=unlabelled, score="cosine")
    assert decided["status"].tolist() == ["ok", "refuse"]


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({**MAP, "query": "fragen"}, ("fragen", "3 of 4", "only")),
        ({name: field for field, name in MAP.items()}, ("swap them", "'query': 'frage'")),
        ({**MAP, "vraag": "frage"}, ("vraag", "ours first")),
        (["frage"], ("columns", '{"query": "question"}')),
        ({"query": "frage", "score": "sim"}, ("hit_id", '"query": "frage"', '"hit_id": "chunk"')),
    ],
)
def test_a_map_that_does_not_fit_the_frame_is_answered(columns: Any, parts: tuple[str, ...]) -> None:
    """With the count of names that are there, and the map that would fit."""
    with pytest.raises(raglab.InputError) as error:
        raglab.trace_from_frame(USER_HITS, columns=columns, score="cosine")
    assert all(part in str(error.value) for part in parts)


def test_a_mapped_column_beside_one_of_our_name_is_refused() -> None:
    """Nothing is passed over in silence."""
    with pytest.raises(raglab.InputError, match="query must be one column, got frage and query"):
        raglab.trace_from_frame(USER_HITS.assign(query="q"), columns=MAP, score="cosine")
