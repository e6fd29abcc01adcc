"""Traces from DataFrames: worked examples first, then what each wrong cell is told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.store.files import InputError
from raglab.store.frames import trace_from_frame
from raglab.store.traces import Trace
from raglab.values import FLOAT_FIELDS, Case, Chunk
from refusals import told
from worlds import ENTITIES, random_trace

NAN = float("nan")
EXCESS, CUP = "the excess?", "who won the cup?"
UNSURE = PolicyData.from_mapping({"confidence": {"enabled": False}})


def frame_of(*rows, columns="query hit_id score label", **more):
    """Frame of rows, with further columns."""
    return pd.DataFrame(rows, columns=columns.split()).assign(
        **{key: list(more[key]) for key in more}
    )


def three(**more):
    """Frame of two questions: the first has hits a and b, the second b."""
    return frame_of(
        (EXCESS, "a", 0.9, "ok"), (EXCESS, "b", 0.6, "ok"), (CUP, "b", 0.1, "refuse"), **more
    )


def refusal(frame, score="cosine", columns=None):
    """Message with which a frame is refused."""
    with pytest.raises(InputError) as caught:
        trace_from_frame(frame, score=score, columns=columns)
    return str(caught.value)


def row_of(trace, name, case=0, arm=0, depth=0):
    """Values of one field of the hits of a case."""
    return getattr(trace.hits, name)[case, arm, depth].tolist()


class TestByHead:
    """Frames that can be followed by head."""

    def test_two_questions(self):
        """Cosines 0.9 and 0.6 are squared distances 0.2 and 0.8.

        The second question has one hit and is padded.
        """
        trace = trace_from_frame(three())
        assert trace.cases == (Case("q1", EXCESS, "ok"), Case("q2", CUP, "refuse"))
        assert trace.chunks == (Chunk("a", "", "a"), Chunk("b", "", "b"))
        assert trace.arms == ("frame",)
        assert trace.hits.chunk.tolist() == [[[[0, 1]]], [[[1, -1]]]]
        assert trace.hits.rank.tolist() == [[[[0, 1]]], [[[0, -1]]]]
        assert row_of(trace, "l2") == [2 - 2 * 0.9, 2 - 2 * 0.6]
        assert trace.hits.n_reranked.tolist() == [[[0]], [[0]]]
        assert np.isnan([getattr(trace.hits, name)[1, 0, 0, 1] for name in FLOAT_FIELDS]).all()

    def test_two_decisions(self):
        """Without the confidence gate, thresholds answer the first, refuse the second by l2 1.8.

        The thresholds are the published ones.
        """
        decisions = decide(trace_from_frame(three()), UNSURE).frame()
        assert decisions["decided_by"].tolist() == ["answered", "l2"]
        assert decisions["sources"].tolist() == [["a#n/a", "b#n/a"], []]
        assert decisions["correct"].tolist() == [True, True]

    def test_without_a_probability_confidence_is_zero(self):
        """A frame of cosines alone says nothing about confidence, and missing never passes."""
        for more, confidence in (({}, [0.0, 0.0]), ({"s_rerank": [0.8, 0.2, 0.1]}, [80.0, 10.0])):
            decisions = decide(trace_from_frame(three(**more)), PolicyData.from_mapping())
            assert decisions.frame()["confidence"].tolist() == confidence

    def test_distances(self):
        """With score l2, 0.2 is cosine 0.9, and the smallest distance ranks first."""
        trace = trace_from_frame(
            frame_of((EXCESS, "a", 0.5, "ok"), (EXCESS, "b", 0.25, "ok")), score="l2"
        )
        assert row_of(trace, "l2") == [0.25, 0.5]
        assert row_of(trace, "cosine") == [0.875, 0.75]
        assert row_of(trace, "chunk") == [1, 0]
        assert row_of(trace, "rank") == [0, 1]

    def test_probabilities(self):
        """With score probability hits are reranked, ranked by it, laid out by cosine beside it."""
        rows = ((EXCESS, "a", 0.2, "ok"), (EXCESS, "b", 0.7, "ok"), (EXCESS, "c", 0.5, "ok"))
        trace = trace_from_frame(frame_of(*rows, cosine=[0.75, 0.5, 0.625]), score="probability")
        assert row_of(trace, "chunk") == [0, 2, 1]
        assert row_of(trace, "s_rerank") == [0.2, 0.5, 0.7]
        assert row_of(trace, "rank") == [2, 1, 0]
        assert row_of(trace, "l2") == [0.5, 0.75, 1.0]
        assert trace.hits.n_reranked.tolist() == [[[3]]]

    def test_probabilities_alone(self):
        """Without distances their gates are off, a warning says so, and the confidence decides."""
        rows = ((EXCESS, "a", 0.25, "ok"), (EXCESS, "b", 0.75, "ok"), (CUP, "a", 0.125, "refuse"))
        with pytest.warns(
            UserWarning,
            match=r"distances the gates l2, density, gap, similarity are off; gate",
        ):
            trace = trace_from_frame(frame_of(*rows), score="probability")
        assert np.isnan([row_of(trace, "l2"), row_of(trace, "cosine")]).all()
        assert trace.meta["gates_off"] == ["l2", "density", "gap", "similarity"]
        decisions = decide(trace, PolicyData.from_mapping()).frame(reasons=True)
        assert decisions["decided_by"].tolist() == ["answered", "confidence"]
        assert decisions["sources"].tolist() == [["b#n/a", "a#n/a"], []]
        assert decisions["reason"].tolist() == [
            "every gate that the trace can judge passes",
            "confidence 12.5 is below tau_default 40",
        ]
        assert decisions["warnings"][0][-1].endswith(
            "measured nothing for them: l2, density, gap, similarity"
        )

    def test_a_case_without_hits(self):
        """A row without hit_id is a case that found nothing, and is refused as such."""
        frame = frame_of((EXCESS, "a", 0.9, "ok"), (CUP, None, None, "refuse"))
        trace = trace_from_frame(frame)
        assert trace.hits.chunk.tolist() == [[[[0]]], [[[-1]]]]
        assert decide(trace, UNSURE).frame()["decided_by"].tolist() == ["answered", "no_hits"]

    def test_ties(self):
        """Equal scores rank in row order and are laid out in the order of the chunks."""
        rows = [("p", name, 0.75, "ok") for name in "xyz"]
        rows += [("q", name, 0.5, "ok") for name in "zyx"]
        trace = trace_from_frame(frame_of(*rows))
        assert row_of(trace, "chunk", 1) == [0, 1, 2]
        assert row_of(trace, "rank", 1) == [2, 1, 0]

    def test_a_reranked_head(self):
        """Hits with s_rerank come first by it, the rest follows by score."""
        rows = [
            ("q", name, score, "ok")
            for name, score in zip("abcd", (0.9, 0.8, 0.7, 0.95), strict=True)
        ]
        trace = trace_from_frame(
            frame_of(*rows, s_rerank=[0.25, 0.5, NAN, NAN], s_raw=[-1.0, 0.0, NAN, NAN])
        )
        assert row_of(trace, "chunk") == [3, 0, 1, 2]
        assert row_of(trace, "rank") == [2, 1, 0, 3]
        assert trace.hits.n_reranked.tolist() == [[[2]]]

    def test_a_given_rank(self):
        """A rank of its own is kept, and the chosen hits follow it."""
        rows = [("q", name, 0.9 - n / 10, "ok") for n, name in enumerate("abc")]
        trace = trace_from_frame(frame_of(*rows, rank=[2, 0, 1]))
        assert row_of(trace, "rank") == [2, 0, 1]
        policy = UNSURE.replace("chosen.final_k", 1)
        assert decide(trace, policy).frame()["sources"].tolist() == [["b#n/a"]]

    def test_passages_and_cases_in_full(self):
        """Every column lands in its field; tags that are missing are left out."""
        frame = frame_of(
            (
                "k7",
                EXCESS,
                12,
                0.75,
                "ambiguous",
                "The excess is 5.",
                "docs/a.md",
                3,
                "iii",
                "motor",
                None,
                ["fleet"],
            ),
            (
                "k7",
                EXCESS,
                34,
                0.5,
                "ambiguous",
                "Nothing.",
                "docs/b.md",
                None,
                None,
                None,
                "2",
                None,
            ),
            columns="case_id query hit_id score expect_status text source page page_label domain "
            "version entities",
            expect_sources=[["a.md#3"]] * 2,
            expect_sources_any=[("b.md",)] * 2,
            selected_sources=[np.array(["a.md"])] * 2,
            s_hybrid=[1.0, 0.5],
            s_raw=[2.0, NAN],
            s_rerank=[0.875, NAN],
            anchor_similarity=[0.25, -0.25],
            signature_similarity=[0.375, NAN],
        )
        stated = {"answer": "5", "intent": "lookup", "doctype": "contract", "split": "tune"}
        frame = frame.assign(min_sources=1, expect_option=2, notes="n", **stated)
        trace = trace_from_frame(frame)
        assert trace.chunks == (
            Chunk("12", "The excess is 5.", "docs/a.md", 3, "iii", {"domain": "motor"}, ("fleet",)),
            Chunk("34", "Nothing.", "docs/b.md", None, None, {"version": "2"}, ()),
        )
        assert trace.cases == (
            Case(
                "k7",
                EXCESS,
                "ambiguous",
                ("a.md#3",),
                ("b.md",),
                1,
                ("a.md",),
                2,
                "5",
                "lookup",
                "contract",
                "tune",
                "n",
            ),
        )
        assert row_of(trace, "s_hybrid") == [1.0, 0.5]
        assert row_of(trace, "anchor_sim") == [0.25, -0.25]
        assert row_of(trace, "sig_sim")[0] == row_of(trace, "sig_sim_strict")[0] == 0.375
        assert np.isnan(
            [row_of(trace, name)[1] for name in ("s_raw", "s_rerank", "sig_sim", "sig_sim_strict")]
        ).all()

    def test_cells_are_read_as_those_of_a_table(self):
        """Entities as one text, version as number, page as digits, as `load_corpus` reads them."""
        entities, page = ["Acme;Leeds", "x", "x"], pd.Series(["4", "5.0", 5], dtype="object")
        trace = trace_from_frame(three(entities=entities, version=[2, 3.0, 3], page=page))
        assert trace.chunks == (
            Chunk("a", "", "a", 4, None, {"version": "2"}, ("Acme", "Leeds")),
            Chunk("b", "", "b", 5, None, {"version": "3"}, ("x",)),
        )

    def test_arms_and_depths(self):
        """Rows of two arms and two depths land on their axes.

        A depth that found nothing has its row.
        """
        rows = [
            (EXCESS, "a", 0.5, "ok", "mine", 0),
            (EXCESS, "b", 0.75, "ok", "mine", 1),
            (EXCESS, None, None, "ok", "yours", 0),
            (EXCESS, "a", 0.25, "ok", "yours", 1),
        ]
        trace = trace_from_frame(frame_of(*rows, columns="query hit_id score label arm depth"))
        assert trace.arms == ("mine", "yours")
        assert trace.hits.chunk.tolist() == [[[[0], [1]], [[-1], [0]]]]

    def test_a_hit_id_with_a_slash_is_its_own_file(self):
        """Passages without a source are their own documents, even if ids share their last part."""
        trace = trace_from_frame(frame_of((EXCESS, "x/1", 0.9, "ok"), (EXCESS, "y/1", 0.6, "ok")))
        assert [chunk.file_name for chunk in trace.chunks] == ["x%2F1", "y%2F1"]

    def test_patterns_of_a_policy(self):
        """The given policy's patterns are measured at once.

        Others are measured on replay, to the same decisions.
        """
        policy = UNSURE.replace(
            "patterns.deny", ("cup",), "patterns.entities", {"fleet": ("fleet",)}
        )
        frame = three(text=["the fleet", "the hull", "the hull"])
        eager, late = trace_from_frame(frame, policy=policy), trace_from_frame(frame)
        assert eager.pattern_hits.chunk_entities == (("fleet",), ())
        assert (
            decide(eager, policy)
            .frame(reasons=True)
            .equals(decide(late, policy).frame(reasons=True))
        )


class TestValues:
    """Numbers and kinds of cells as pandas holds them."""

    def test_float64_as_given(self, tmp_path):
        """0.1 + 0.2 comes back to the bit, through the file too.

        A float32 column keeps what it holds.
        """
        frame = frame_of((EXCESS, "a", 0.1 + 0.2, "ok"), (EXCESS, "b", 0.1, "ok"))
        trace_from_frame(frame).save(tmp_path / "t.parquet")
        assert row_of(Trace.load(tmp_path / "t.parquet"), "cosine") == [0.1 + 0.2, 0.1]
        narrow = trace_from_frame(frame.astype({"score": "float32"}))
        assert row_of(narrow, "cosine") == [float(np.float32(0.1 + 0.2)), float(np.float32(0.1))]

    @pytest.mark.parametrize("kind", ["object", "category", "string[pyarrow]"])
    def test_kinds_of_text(self, kind):
        """Columns of any kind of string give the same trace."""
        frame = three(text=["x", "y", "y"])
        changed = frame.astype({"query": kind, "hit_id": kind, "label": kind, "text": kind})
        assert trace_from_frame(changed).fingerprint == trace_from_frame(frame).fingerprint

    @pytest.mark.parametrize("kind", ["float64", "Int64", "int64[pyarrow]", "object"])
    def test_kinds_of_integers(self, kind):
        """Integers beside missing ones, as floats or nullable, are integers."""
        frame = frame_of((EXCESS, 1, 0.9, "ok"), (CUP, None, None, "refuse"), page=[2, None])
        frame = frame.astype({"hit_id": kind, "page": kind})
        assert trace_from_frame(frame).chunks == (Chunk("1", "", "1", 2),)

    def test_fingerprint(self):
        """A score, a text or a name changes it, a policy and the rows' index do not."""
        known = trace_from_frame(three()).fingerprint
        policy = UNSURE.replace("patterns.deny", ("x",))
        renumbered = three().set_axis([7, 7, 3])
        assert trace_from_frame(renumbered, policy=policy).fingerprint == known
        traces = (
            trace_from_frame(three().replace({"score": {0.6: 0.61}})),
            trace_from_frame(three(text=["x", "y", "y"])),
            trace_from_frame(three(), name="mine"),
        )
        assert len({known} | {trace.fingerprint for trace in traces}) == 4


def as_frame(trace):
    """Rows of a drawn trace's hits, each hit its own chunk if a case hits a chunk twice."""
    rows = []
    for q, arm, depth in np.ndindex(trace.hits.n_reranked.shape):
        case, chunks = trace.cases[q], set()
        for place, chunk in enumerate(trace.hits.chunk[q, arm, depth].tolist()):
            l2 = trace.hits.l2[q, arm, depth, place]
            if chunk >= 0 and chunk not in chunks and not np.isnan(l2):
                chunks.add(chunk)
                row = _row(case, trace.chunks[chunk], trace.arms[arm], depth)
                rows.append(row | {"score": float(l2)})
        if not chunks:
            rows.append(_row(case, None, trace.arms[arm], depth))
    return pd.DataFrame(rows)


def _row(case, chunk, arm, depth):
    if case.expect_status == "refuse":  # it has no sources (rule S6.1)
        case = case._replace(expect_sources=(), expect_sources_any=(), min_sources=0)
    row = {
        "case_id": case.id,
        "query": case.query,
        "label": case.expect_status,
        "arm": arm,
        "depth": depth,
        "expect_sources": list(case.expect_sources),
        "selected_sources": list(case.selected_sources),
        "hit_id": None,
        "score": None,
    }
    if chunk is None:
        return row
    names = ("text", "source", "page", "page_label", "entities")
    return row | chunk.tags | {"hit_id": chunk.chunk_id} | {n: getattr(chunk, n) for n in names}


@pytest.mark.parametrize("seed", range(6))
def test_a_round_trip_decides_alike(tmp_path, seed):
    """Drawn frames with ties, arms and depths decide alike after save and load, under every arm."""
    frame = as_frame(random_trace(seed, n_cases=8, arms=2, depths=2))
    trace = trace_from_frame(frame, score="l2")
    trace.save(tmp_path / "t.parquet")
    again = Trace.load(tmp_path / "t.parquet")
    assert again.fingerprint == trace.fingerprint
    policy = UNSURE.replace("patterns.entities", ENTITIES, "similarity.min_similarity", 0.5)
    for arm in trace.arms:
        assert (
            decide(again, policy, arm=arm)
            .frame(reasons=True)
            .equals(decide(trace, policy, arm=arm).frame(reasons=True))
        )


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_the_cases_is_irrelevant(seed):
    """Cases in another order get the same decisions if no hits tie, which chunk order settles."""
    frame = as_frame(random_trace(seed, n_cases=8))
    frame["score"] += pd.to_numeric(frame["hit_id"]) / 1000
    changed = frame.sort_values("case_id", ascending=False, kind="stable")
    first, second = (
        decide(trace_from_frame(rows, score="l2"), UNSURE).frame().set_index("case_id")["status"]
        for rows in (frame, changed)
    )
    assert first.to_dict() == second.to_dict()


class TestRefused:
    """What breaks a rule stops with row, column, rule, what came and remedy."""

    @pytest.mark.parametrize("column", ["query", "hit_id", "score"])
    def test_a_missing_column(self, column):
        """A required column is named, with those there are."""
        message = refusal(three().drop(columns=column))
        told(
            message,
            f"frame: a table must have columns {column}",
            f'only … label … columns={{"{column}": "…"}}',
        )

    def test_labels(self):
        """A frame has label or expect_status or neither, not both.

        A case without one has a missing cell.
        """
        assert trace_from_frame(three().drop(columns="label")).cases == (
            Case("q1", EXCESS),
            Case("q2", CUP),
        )
        told(
            refusal(three(expect_status=["ok", "ok", "refuse"])),
            "expect_status must be one column … label",
        )
        frame = three().drop(columns="label").assign(expect_status=["ok", "ok", None])
        assert [case.expect_status for case in trace_from_frame(frame).cases] == ["ok", None]

    def test_further_columns_stay_with_the_case(self):
        """B12: a column more was refused; one that looks like ours is, and two of one name."""
        frame = three(bm25=[3.0, None, 1], team=["x", "x", "y"], gone=[None] * 3)
        with pytest.warns(UserWarning, match="extra of the cases, .*'bm25, team, gone'"):
            trace = trace_from_frame(frame)
        assert [case.extra for case in trace.cases] == [
            {"bm25": [3.0, None], "team": "x"},
            {"bm25": 1, "team": "y"},
        ]
        told(refusal(three(sourse=["x", "y", "y"])), "'sourse', which looks like source")
        told(refusal(three(team=[{1}, "y", "y"])), "row 0, column team … JSON")
        stated = trace_from_frame(three(sourse=["x", "y", "y"]), columns={"sourse": "sourse"})
        assert stated.cases[0].extra == {"sourse": ["x", "y"]}

    def test_a_repeated_hit_is_named_with_the_column_of_the_user(self):
        """Of the newcomer: with mapped columns it got None."""
        hits = pd.DataFrame({"query": ["x", "x"], "dok": ["a.md", "a.md"], "score": [0.9, 0.8]})
        told(
            refusal(hits, columns={"hit_id": "dok"}),
            "row 1, column dok … a hit must stand once … got 'a.md'",
        )

    @pytest.mark.parametrize(("name", "meant"), [("qid", "case_id"), ("distance", "l2")])
    def test_other_names(self, name, meant):
        """A misnamed column is refused with its name here."""
        told(refusal(three().assign(**{name: "x"})), f"'{name}', which looks like {meant}")

    def test_question(self):
        """Of the newcomer: `load_cases` takes it, so does this.

        Errors name the column, and both are one too many.
        """
        renamed = three().rename(columns={"query": "question"})
        assert trace_from_frame(renamed).fingerprint == trace_from_frame(three()).fingerprint
        told(
            refusal(renamed.assign(question=["a", None, "b"])),
            "row 1, column question: query must not be missing",
        )

    def test_no_frame(self):
        """An empty frame is refused."""
        with pytest.raises(InputError, match=r"^mine: .*at least one row"):
            trace_from_frame(three().iloc[:0], name="mine")

    def test_an_unknown_score(self):
        """The argument score is one of three."""
        told(
            refusal(three(), "similarity"),
            "score must be one of cosine, l2, probability, or None, got 'similarity'",
        )

    @pytest.mark.parametrize(
        ("score", "column"), [("cosine", "cosine"), ("l2", "l2"), ("probability", "s_rerank")]
    )
    def test_a_measurement_twice(self, score, column):
        """The score and a column of what it is are not both read."""
        told(
            refusal(three(**{column: [0.5, 0.5, 0.5]}), score),
            f"is the {column}, which must be given once",
        )

    @pytest.mark.parametrize(
        ("score", "value", "parts"),
        [
            (
                "cosine",
                1.3,
                'row 1, column score … from -1 to 1 … got 1.3 … score="l2"',
            ),
            ("cosine", np.inf, "from -1 to 1 … got inf"),
            ("l2", 4.5, "row 1, column score … from 0 to 4 … got 4.5 … unit vectors"),
            (
                "probability",
                3.2,
                "row 1, column score … from 0 to 1 … got 3.2 … percentage … logit",
            ),
            ("l2", NAN, "row 1, column score … a hit must have a score"),
            ("cosine", "0.6", "row 1, column score … got '0.6' … number"),
            ("cosine", True, "row 1, column score … got True"),
        ],
    )
    def test_scores(self, score, value, parts):
        """A score out of range, missing or no number is told with row, unit and what it may be."""
        rows = frame_of((EXCESS, "a", 0.5, "ok"), (EXCESS, "b", value, "ok")).astype(
            {"score": "object"}
        )
        told(refusal(rows, score), parts)

    @pytest.mark.parametrize(
        ("column", "values", "parts"),
        [
            (
                "label",
                ["ok", "yes", "refuse"],
                "row 1 … one label, got 'yes' after 'ok'",
            ),
            (
                "label",
                ["ok", None, "refuse"],
                "row 1, column label … a case must have one label",
            ),
            ("hit_id", ["a", "a", "b"], "row 1, column hit_id … once … got 'a'"),
            ("hit_id", ["a", " ", "b"], "row 1 … must have no score … fill hit_id"),
            ("hit_id", [1.5, 2.0, 3.0], "row 0, column hit_id … got 1.5"),
            (
                "case_id",
                ["x", "x", "x"],
                "row 2, column query … a case must have one query … who won the cup?",
            ),
            ("case_id", ["x", None, "y"], "row 1, column case_id … must not be missing"),
            (
                "text",
                ["x", "y", "z"],
                "row 2, column text … a hit_id must have one text … 'z' … 'y' in row 1",
            ),
            ("domain", ["x", "y", "z"], "row 2, column domain … a hit_id must have one domain"),
            ("page", [1, 0, 0], "row 1, column page … got 0 … page_label"),
            (
                "expect_sources",
                [["a"], ["b"], None],
                "row 1, column expect_sources … one expect_sources",
            ),
            ("rank", [0, 0, 0], "row 1, column rank … count 0, 1, 2"),
            ("rank", [1, 2, 1], "row 0, column rank … number the hits from 0"),
            ("rank", [0, None, 0], "column rank … count 0, 1, 2 … None"),
            ("s_rerank", [0.5, 1.5, 0.5], "row 1, column s_rerank … from 0 to 1 … s_raw"),
            ("s_hybrid", [0.5, 30, 0.5], "row 1, column s_hybrid … maximum"),
            ("s_raw", [0.5, np.inf, 0.5], "row 1, column s_raw … got inf"),
            (
                "signature_similarity",
                [0.5, -2, 0.5],
                "row 1, column signature_similarity … from -1 to 1",
            ),
            (
                "l2",
                [0.2, 0.9, 1.8],
                "row 1, column l2 … 2 - 2 * cosine … 0.9 … square it",
            ),
            ("arm", ["x", None, "x"], "row 1, column arm … must not be missing"),
            (
                "arm",
                ["x", "x", "y"],
                "rows in every arm and depth … none for case 'q1', arm 'y', depth 0",
            ),
            ("depth", [0, 2, 0], "rows in every arm and depth … arm 'frame', depth 1"),
            ("depth", [0, -1, 0], "row 1, column depth … from 0 … got -1"),
        ],
    )
    def test_cells(self, column, values, parts):
        """Each rule of a cell is told with row, column, what came and the remedy."""
        told(refusal(three().assign(**{column: pd.Series(values, dtype="object")})), "frame", parts)

    def test_rank_against_the_reranker(self):
        """A given rank that puts a hit without s_rerank before one with it is refused."""
        frame = frame_of(
            (EXCESS, "a", 0.9, "ok"), (EXCESS, "b", 0.6, "ok"), rank=[0, 1], s_rerank=[NAN, 0.5]
        )
        told(
            refusal(frame),
            ("row 1, column rank … hits with s_rerank must come before those without, got 1"),
        )

    @pytest.mark.parametrize(
        ("score", "value", "end"), [("cosine", 1.0000001, 1.0), ("l2", -1e-8, 0.0)]
    )
    def test_rounding_is_clipped_and_said_once(self, score, value, end):
        """A score in single precision leaves its range by up to 1e-6."""
        frame = frame_of((EXCESS, "a", 0.5, "ok"), (EXCESS, "b", value, "ok"))
        with pytest.warns(UserWarning, match="1 of 2 score of frame lie beyond .* at most 1e-06"):
            trace = trace_from_frame(frame, score=score)
        assert end in row_of(trace, score)

    def test_nothing_beside_hits(self):
        """A row without hit_id beside hits of its case, or twice, is refused."""
        frame = frame_of((EXCESS, "a", 0.9, "ok"), (EXCESS, None, None, "ok"))
        told(refusal(frame), "row 1, column hit_id … must stand alone")
        told(
            refusal(frame_of((EXCESS, None, None, "ok"), text=["x"])),
            "row 0, column text … must have no text",
        )
