"""Tables of others.

Columns that vanish, labels, paths, corpora of tables (kinds A, M, O, P of `outside.md`).
"""

from __future__ import annotations

import pickle
import warnings

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from raglab.store.files import InputError
from raglab.values import Chunk, Corpus

ASKED = pd.DataFrame(
    {"question": ["Who pays?", "What is covered?", "When?"], "label": ["ok", "ok", "refuse"]}
)
HITS = pd.DataFrame(
    [
        ("q1", "Who pays?", "a", 0.9, "ok"),
        ("q2", "What is covered?", "b", 0.8, "ok"),
        ("q3", "When?", "b", 0.2, "refuse"),
    ],
    columns=["case_id", "query", "hit_id", "score", "label"],
)
POLICY = raglab.Policy.from_mapping({"confidence": {"enabled": False}, "l2": {"enabled": False}})


def heard(function, *arguments, **more):
    """What a function returns, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*arguments, **more)
    return result, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", ["ID", "Id", None])
def test_an_index_that_is_not_read_is_named(name):
    """Of texts, or under another spelling; one of numbers without a name says nothing."""
    frame = ASKED.set_index(pd.Index(["x", "y", "z"], name=name))
    cases, texts = heard(raglab.load_cases, frame)
    assert [case.id for case in cases] == ["q1", "q2", "q3"]
    assert any("left out: the index" in text for text in texts)
    assert heard(raglab.load_cases, ASKED.iloc[::-1])[1] == []
    with_ids = frame.assign(id=["a", "b", "c"])
    assert heard(raglab.load_cases, with_ids)[1] == []


def test_columns_without_a_value_are_named():
    """Of cases, of chunks and of hits."""
    texts = heard(raglab.load_cases, ASKED.assign(expect_sources=None, team=" "))[1]
    assert texts == ["frame: without a value: 'expect_sources', 'team'."]
    corpus = pd.DataFrame({"id": ["a", "b"], "text": ["x y", "z"], "source": [None, None]})
    assert heard(raglab.load_corpus, corpus)[1] == ["frame: without a value: 'source'."]
    texts = heard(raglab.trace_from_frame, HITS.assign(s_rerank=float("nan"), source=None))[1]
    assert any("without a value: 's_rerank', 'source'" in text for text in texts)


@pytest.mark.parametrize("door", ["cases", "chunks", "hits", "rounds"])
def test_two_columns_of_one_name_are_refused(tmp_path, door):
    """No pandas name such as `reward.1` stands for the second."""
    path = tmp_path / "t.csv"
    path.write_text("question,label,label,text,action,reward\na b,ok,ok,t,0,1\n")
    doors = {
        "cases": lambda: raglab.load_cases(path),
        "chunks": lambda: raglab.load_corpus(path),
        "hits": lambda: raglab.trace_from_frame(pd.concat([HITS, HITS[["label"]]], axis=1)),
        "rounds": lambda: raglab.off_policy.estimate(
            pd.concat([HITS, HITS[["label"]]], axis=1).assign(action=0, reward=1, propensity=1),
            [1.0],
        ),
    }
    with pytest.raises(
        ValueError, match=r"columns.* must have different names, got 'label' (2 times|twice)"
    ):
        doors[door]()


# A corpus as a table of chunks, and back.
NAMES = st.text(alphabet="aé1 ;[", min_size=1, max_size=5).filter(str.strip)
CHUNKS = st.builds(
    Chunk,
    chunk_id=st.just(""),
    text=NAMES,
    source=st.sampled_from(["a.md", "b/ü.pdf", "c.md#2"]),
    page=st.none() | st.integers(1, 9),
    page_label=st.none() | st.sampled_from(["iv", "7"]),
    tags=st.dictionaries(st.sampled_from(["domain", "id", "text"]), NAMES, max_size=2),
    entities=st.lists(st.sampled_from(["Acme", "[x"]), max_size=2, unique=True).map(tuple),
    section=st.lists(st.sampled_from(["Home", "A;B"]), max_size=2).map(tuple),
)


@settings(max_examples=25)
@given(st.lists(CHUNKS, min_size=1, max_size=4))
def test_a_frame_of_a_corpus_loads_as_the_same_chunks(chunks):
    """Every field of every chunk, with missing pages and tags named like columns."""
    corpus = Corpus(
        "home", tuple(chunk._replace(chunk_id=f"c{place}") for place, chunk in enumerate(chunks))
    )
    frame = corpus.frame()
    assert [*frame.columns] == ["id", *Chunk._fields[1:]]
    assert len(frame) == len(chunks)
    assert heard(raglab.load_corpus, frame)[0].chunks == corpus.chunks


def test_a_frame_of_a_folder_loads_as_its_chunks(tmp_path):
    """With the headings and tags of its documents."""
    (tmp_path / "a.md").write_text(
        "---\ndomain: home\nentities: [Acme]\n---\n# Excess\n\nIt is 50.\n\n## Hail\n\nNone.\n"
    )
    corpus = raglab.load_corpus(tmp_path)
    assert raglab.load_corpus(corpus.frame()).chunks == corpus.chunks
    assert corpus.frame()["section"].tolist() == [("Excess",), ("Excess", "Hail")]
    assert corpus._replace(chunks=()).frame().empty


@pytest.mark.parametrize(
    "column",
    [
        "text",
        "prompt",
        "Utterance",
    ],
)
def test_a_near_name_of_the_question_is_proposed(column):
    """As public sets of labels call it."""
    with pytest.raises(InputError, match=r'looks like query; pass columns=\{"query":'):
        raglab.load_cases(ASKED.rename(columns={"question": column}))


def test_many_labels_are_intents():
    """A table of topics is told where they go."""
    frame = pd.DataFrame(
        {"question": [f"query {n}" for n in range(12)], "label": [f"topic_{n}" for n in range(12)]}
    )
    with pytest.raises(InputError, match=r"\(12 rows\); write ok, .*; topics go into intent"):
        raglab.load_cases(frame)


def test_cases_without_sources_are_counted_in_every_headline():
    """Of decisions, of rates and of comparisons."""
    trace = raglab.trace_from_frame(HITS)
    sentence = "2 of 3 cases are scored by status alone"
    decisions = raglab.decide(trace, POLICY)
    assert sentence in repr(decisions)
    assert sentence in raglab.lab.slices(decisions).attrs["headline"]
    assert sentence in heard(raglab.sweep, trace, [POLICY])[0].attrs["headline"]
    rows = [
        (f"q{n}", f"query {n}", "a", 0.1 + n / 100, "ok" if n % 3 else "refuse") for n in range(90)
    ]
    audit, _ = heard(
        raglab.audit_signals,
        raglab.trace_from_frame(pd.DataFrame(rows, columns=HITS.columns)),
        repeats=0,
    )
    assert "60 of 90 cases are scored by status alone" in str(audit)


# Kind P: small things.
def test_a_corpus_is_counted_and_looped_over_by_chunks():
    """And copied, compared and stored as before."""
    chunks = tuple(Chunk(name, f"text {name}", f"{name}.md") for name in "abcd")
    corpus = Corpus("letters", chunks)
    assert (len(corpus), list(corpus), bool(corpus)) == (4, list(chunks), True)
    shorter = corpus._replace(chunks=chunks[:1])
    assert (len(shorter), shorter.name, len(corpus)) == (1, "letters", 4)
    assert Corpus("letters", chunks) == corpus != shorter
    assert pickle.loads(pickle.dumps(corpus)) == corpus
    with pytest.raises(AttributeError):
        corpus.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("ending", [".csv", ".tsv", "frame"])
def test_chunks_without_ids_are_numbered(tmp_path, ending):
    """As cases are."""
    frame = pd.DataFrame(
        {"text": ["Glass.", "Hail."], "source": ["a.md", "b.md"], "team": ["home", "motor"]}
    )
    path = tmp_path / f"corpus{ending}"
    if ending != "frame":
        frame.to_csv(path, index=False, sep="\t" if ending == ".tsv" else ",")
    corpus = raglab.load_corpus(frame if ending == "frame" else path).chunks
    assert [(chunk.chunk_id, chunk.source, dict(chunk.tags)) for chunk in corpus] == [
        ("c1", "a.md", {"team": "home"}),
        ("c2", "b.md", {"team": "motor"}),
    ]
    with_ids = raglab.load_corpus(frame.assign(chunk_id=["x", "y"]))
    assert [chunk.chunk_id for chunk in with_ids] == ["x", "y"]
