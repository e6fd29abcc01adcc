"""Rules S2.4, S3.1, S3.4, S3.5, S6.1.

A document is its path, in labels, scoring, resolver and folders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from document_samples import ANSWERS, FIRST_HIT, TEXTS, same_names
from live_worlds import SMALL
from raglab.decision.document_names import EXACT_NAMES, exact_names, full_sources, source_meanings
from raglab.decision.measurement import structure_hash
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.store.frames import trace_from_frame
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.traces import Trace
from raglab.values import Case, Chunk, document_path
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of

LAWFUL = settings(deadline=None, derandomize=True, max_examples=6)
PATHS = ("home/readme.md", "motor/readme.md", "readme.md", "guides/c#/intro.md", "docs/faq.md")


@pytest.mark.parametrize(
    ("source", "documents", "page"),
    [
        ("motor/readme.md", ("motor/readme.md",), ""),
        ("motor/readme.md#2", ("motor/readme.md",), "2"),
        (r".\motor\readme.md", ("motor/readme.md",), ""),
        ("faq.md#n/a", (), ""),
        ("faq.md#3", ("docs/faq.md",), "3"),
        ("guides/c#/intro.md", ("guides/c#/intro.md",), ""),
        ("boat.md", (), ""),
    ],
)
def test_what_a_source_means(source, documents, page):
    """A path means itself, also where it is the end of others; an end begins at a folder."""
    meaning = source_meanings([source], PATHS)[source]
    assert meaning.documents == documents
    if documents:
        assert meaning.page == page


def test_an_end_that_several_have_is_ambiguous():
    """The candidates are all of them, sorted; where it has to be clear it is refused with them."""
    paths = ("motor/readme.md", "home/readme.md")
    assert source_meanings(["readme.md#1"], paths)["readme.md#1"].documents == (
        "home/readme.md",
        "motor/readme.md",
    )
    rule = (
        r"must name one document, got 'readme.md', which 2 documents have: home/readme.md, "
        r"motor/readme.md; give the"
    )
    with pytest.raises(ValueError, match=rule):
        full_sources(["readme.md"], paths)
    assert exact_names(PATHS) == ["readme.md"]
    assert exact_names(paths) == []


@given(
    st.lists(
        st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join),
        min_size=1,
        max_size=6,
    )
)
@LAWFUL
def test_every_path_means_itself(paths):
    """Whatever others there are.

    And an end means a document where it is the end of that one alone.
    """
    known = set(paths)
    assert full_sources(paths, known) == tuple(paths)
    for end in ("a", "b", "a/b"):
        ending = sorted(path for path in known if path.endswith(f"/{end}"))
        expected = (end,) if end in known else tuple(ending)
        assert source_meanings([end], known)[end].documents == expected


def test_one_way_to_write_a_path():
    """Backslashes and `./` are no part of a document's identity."""
    assert [document_path(path) for path in (r".\a\b.md", "././a/b.md", ".//a/b.md", "a/b.md")] == [
        "a/b.md"
    ] * 4
    chunk = Chunk("1", "text", r".\motor\readme.md", 3)
    assert (chunk.document, chunk.shown, chunk.file_name) == (
        "motor/readme.md",
        "motor/readme.md#3",
        "readme.md",
    )


def frame(*rows):
    """Frame of hits: question, source, score and what the question expects."""
    named = [
        (query, source, source, score, "ok", expected) for query, source, score, expected in rows
    ]
    return pd.DataFrame(
        named, columns=["query", "hit_id", "source", "score", "label", "expect_sources"]
    )


def right(trace):
    """Verdict on the sources of each case, under a policy that answers."""
    decisions = decide(trace, ANSWERS)
    assert decisions.frame()["status"].tolist() == ["ok"] * len(trace)
    return right_sources(decisions)


def right_sources(decisions):
    """Whether the hits that each decision rests on hold what the case expects."""
    evidence, outcome = decisions.tables.evidence, decisions.outcome
    return [
        bool(evidence.right[outcome.depth[row], outcome.slot[row], row])
        for row in range(len(decisions))
    ]


class TestFrame:
    """Kind A of ../shared/cases/outside.md, with hits of a frame."""

    def test_a_name_that_several_have_is_refused_with_the_candidates(self):
        """`readme.md` would count as found whichever readme.md was found."""
        rows = [
            ("q1", "motor/readme.md", 0.9, ["readme.md"]),
            ("q2", "home/readme.md", 0.9, ["motor/readme.md"]),
        ]
        with pytest.raises(
            ValueError,
            match=r"'readme.md' in case 'q1', which 2 .*: home/readme.md, motor/readme.md",
        ):
            trace_from_frame(frame(*rows))

    def test_a_name_that_one_has_is_told_with_a_count(self):
        """A frame does not know the corpus behind it, so what is taken for granted is said."""
        rows = [
            ("q1", "motor/readme.md", 0.9, ["readme.md"]),
            ("q2", "home/faq.md", 0.9, ["home/faq.md"]),
        ]
        with pytest.warns(
            UserWarning, match=r"1 of 2 sources .* first 'readme.md' beside 'motor/readme.md'"
        ):
            assert right(trace_from_frame(frame(*rows))) == [True, True]

    def test_a_document_that_was_not_hit_is_not_found(self):
        """No error; where that is so of all sources a warning names them."""
        with pytest.warns(
            UserWarning,
            match=r"1 of 1 sources .* no documents .* 'boat.md' beside 'motor/readme.md'",
        ):
            assert right(trace_from_frame(frame(("q1", "motor/readme.md", 0.9, ["boat.md"])))) == [
                False
            ]

    def test_a_path_stays_itself_where_its_document_is_left_out(self, tmp_path):
        """`readme.md` of the top folder, in a trace part without hits, on disk and in memory."""
        rows = [
            ("q1", "home/readme.md", 0.9, ["readme.md"]),
            ("q2", "readme.md", 0.9, ["readme.md"]),
        ]
        trace = trace_from_frame(frame(*rows))
        assert trace.meta[EXACT_NAMES] == ["readme.md"]
        assert right(trace) == [False, True]
        trace.subset([0]).save(tmp_path / "t.parquet")
        assert right(Trace.load(tmp_path / "t.parquet")) == [False]
        assert right(trace.subset([1]).merge(trace.subset([0]))) == [True, False]

    def test_pages_are_those_of_the_document(self):
        """`min_sources` counts paths, whatever the resolver takes for one document."""
        hits = [Hit(0.25, "a/policy.pdf", 1), Hit(0.25, "b/policy.pdf", 1)]
        for least, expected in ((2, True), (3, False)):
            trace = trace_of((ask(min_sources=least), [hits]))
            for identity in ("path", "file_name"):
                chosen = policy(resolver={"document_identity": identity}, gap={"min_gap": 0.0})
                assert right_sources(decide(trace, chosen)) == [expected], (least, identity)


THREE = [Hit(0.5, f"{folder}/policy.pdf", 1) for folder in ("fleet", "home", "motor")]
UNDECIDED: dict[str, Any] = {"signature": False, "anchor": False, "min_group_gap": 0.25}


class TestIdentity:
    """`resolver.document_identity`."""

    def test_three_files_of_one_name(self):
        """Three groups and three options by path.

        One group by file name, as in the source documents.
        """
        trace = trace_of((ask(), [THREE]))
        policies = [
            policy(
                chosen={"final_k": 3, "order": "l2"},
                gap={"min_gap": 0.015},
                resolver=UNDECIDED | {"document_identity": identity},
            )
            for identity in ("path", "file_name")
        ]
        by_path, by_name = (decide(trace, chosen) for chosen in policies)
        groups = [said.tables.evidence.n_groups.tolist() for said in (by_path, by_name)]
        assert groups == [[[3]], [[1]]]
        # in one sweep each is measured apart
        assert raglab.sweep(trace, policies)["coverage"].tolist() == [0.0, 1.0]
        assert by_path.frame()["options"][0] == [
            ["fleet/policy.pdf#1"],
            ["home/policy.pdf#1"],
            ["motor/policy.pdf#1"],
        ]
        assert by_name.frame()["decided_by"][0] == "resolver.single_group"

    def test_the_default_changes_no_id_and_no_hash(self):
        """Rule S0.8: the ids and hashes of the version before; another identity has others."""
        published = PolicyData.from_mapping()
        assert published.resolver.document_identity == "path"
        assert published.policy_id == "8cebf1eedb13"
        assert structure_hash(published.structure, "hybrid") == "c12a64484f5c"
        by_name = published.replace("resolver.document_identity", "file_name")
        assert by_name.policy_id != published.policy_id
        assert structure_hash(by_name.structure, "hybrid") != "c12a64484f5c"

    @given(st.integers(0, 10_000))
    @LAWFUL
    def test_renamed_folders_change_no_decision_by_path(self, seed):
        """Consistently in chunks and labels: same statuses, hits, options and verdicts."""
        trace = random_trace(seed, n_cases=8, depths=2)
        renamed = moved(
            trace,
            lambda path: (
                path.replace("a/", "zoo/deep/", 1) if path.startswith("a/") else f"m/{path}"
            ),
        )
        for chosen in random_policies(seed, 4, resolver__document_identity="path"):
            one, other = decide(trace, chosen), decide(renamed, chosen)
            assert told(one) == told(other)

    @given(st.integers(0, 10_000))
    @LAWFUL
    def test_on_a_flat_corpus_both_identities_decide_alike(self, seed):
        """All columns are the same but the policy's id."""
        trace = moved(random_trace(seed, n_cases=8, depths=2), lambda path: path.replace("/", "-"))
        for chosen in random_policies(seed, 4, resolver__document_identity="path"):
            by_name = chosen.replace("resolver.document_identity", "file_name")
            one, other = (decide(trace, each).frame(reasons=True) for each in (chosen, by_name))
            pd.testing.assert_frame_equal(
                one.drop(columns="policy_id", errors="ignore"),
                other.drop(columns="policy_id", errors="ignore"),
            )


def moved(trace, to):
    """Trace whose documents have other paths, in chunks and labels."""

    def sources(named):
        return tuple(
            f"{to(path)}{mark}{page}"
            for path, mark, page in (name.partition("#") for name in named)
        )

    fields = ("expect_sources", "expect_sources_any", "selected_sources")
    cases = tuple(
        case._replace(**{name: sources(getattr(case, name)) for name in fields})
        for case in trace.cases
    )
    chunks = tuple(chunk._replace(source=to(chunk.source)) for chunk in trace.chunks)
    return replace(trace, cases=cases, chunks=chunks)


def told(decisions):
    """Status, stage, chosen chunks, options' chunks and verdict of every case, without names."""
    frame, cells = decisions.frame(), decisions.cells.tolist()
    options = [
        [option.chunks for option in decisions.options(case.id)] for case in decisions.trace.cases
    ]
    chosen = [list(decisions.chosen(row)) for row in range(len(decisions))]
    return [frame["status"].tolist(), frame["decided_by"].tolist(), chosen, options, cells]


@pytest.fixture
def folder(tmp_path):
    """Return a folder of four documents, three of the same name, with cases beside them."""
    return same_names(tmp_path)


class TestFolder:
    """Documents of a folder from the files to the verdict."""

    def test_from_files_to_the_verdict(
        self,
        folder,
        encoder,
    ):
        """The source of a chunk is its path below the folder; each label means one document."""
        del encoder
        corpus, cases = load_corpus(folder), load_cases(folder)
        assert [chunk.source for chunk in corpus.chunks] == sorted(TEXTS)
        assert [case.expect_sources for case in cases][2:4] == [("faq.md",), ("readme.md",)]
        trace = raglab.build_trace(corpus, cases, out=folder / "t.parquet", cache=None, **SMALL)
        for stored in (trace, Trace.load(folder / "t.parquet")):
            decisions = decide(stored, FIRST_HIT)
            sources = decisions.frame().set_index("case_id")["sources"]
            assert (sources["home"], sources["fleet"]) == (
                ["home/readme.md#1"],
                ["motor/fleet/faq.md#1"],
            )
            assert right_sources(decisions) == [True] * 4 + [False]

    @pytest.mark.parametrize("field", ["expect_sources", "expect_sources_any", "selected_sources"])
    def test_an_ambiguous_name_stops_before_anything_is_encoded(
        self,
        folder,
        encoder,
        field,
    ):
        """With the first case, the candidates and the count.

        The file on top of the folder is taken away.
        """
        (folder / "documents" / "readme.md").unlink()
        corpus = load_corpus(folder)
        cases = [Case(name, "Why?", "ok", **{field: ("readme.md",)}) for name in "xy"]
        rule = (
            r"'readme.md' in case 'x', one of 2 such sources, which 2 documents have: "
            r"home/readme.md, motor/readme.md"
        )
        with pytest.raises(ValueError, match=rule):
            raglab.build_trace(corpus, cases, cache=None, **SMALL)
        assert encoder.seen == []

    def test_asking_about_a_document(
        self,
        folder,
        encoder,
    ):
        """`ask` takes a path or a clear name, and refuses one that several have."""
        del encoder
        from raglab.live.ask import ask as live_ask
        from raglab.live.system import System, build_index

        (folder / "documents" / "readme.md").unlink()
        build_index(load_corpus(folder), folder / "index", cache=None, **SMALL)
        system = System.open(
            folder / "index", policy=raglab.Policy.from_mapping(FIRST_HIT.model_dump()), cache=False
        )
        response = live_ask("What is the excess?", system=system, documents=["motor/readme.md"])
        assert response["sources"] == ["motor/readme.md#1"]
        with pytest.raises(
            ValueError, match=r"which 2 documents have: home/readme.md, motor/readme.md"
        ):
            live_ask("What is the excess?", system=system, documents=["readme.md"])
