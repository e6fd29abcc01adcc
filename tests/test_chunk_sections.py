"""Headings are metadata of a chunk and no text glued to it (issue 31, kind C of outside.md)."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

import raglab
from raglab.answering.compression import compress
from raglab.answering.extractive import Extractive, passage_lines
from raglab.answering.hygiene import clean
from raglab.lab.slice_rates import FINAL_ORDER, ndcg_by_case, ranked_cases, ranking
from raglab.live.cut_chunks import cut_chunks
from raglab.policy_parts.patterns import entities_of
from raglab.store.loaders import hash_corpus, load_corpus, save_corpus
from raglab.store.trace_files import load, save
from raglab.values import Chunk, Corpus, TraceData
from worlds import Hit, ask, trace_of


def glued(chunk):
    """The chunk as it was before: its headings are the first line of its text."""
    return chunk._replace(text=chunk.full_text, section=())


def answer(question, *passages):
    """Answer of the extractive generator."""
    return Extractive().answer(question, passages).text


SECTION = ("Home", "What do we pay after a storm, and how much of it is yours?")
EXCESS = Chunk("a#1", "It is £250 for each claim.", "a.md", 1, section=SECTION)


# Kind C: what is confident is what is shown.


@pytest.mark.parametrize(
    ("heading", "body", "question", "wanted"),
    [
        # A heading longer than the lines below it was read as the beginning of the sentence.
        (
            "Storm damage and what we pay for it in winter",
            "It is £250.",
            "How much do we pay for storm?",
            "It is £250.",
        ),
        # One that ends in a colon led on to it.
        ("Storm excess:", "The sum is £250.", "How much is the storm excess?", "The sum is £250."),
        # One that ends in a question mark was a sentence of the text, and so a line before the
        # answer.
        ("Storm excess?", "The sum is £250.", "How much is the storm excess?", "The sum is £250."),
        # One with a full stop was a sentence that could be answered.
        (
            "Storm excess is a sum.",
            "We take £250 off.",
            "How much is the storm excess?",
            "We take £250 off.",
        ),
    ],
)
def test_a_heading_is_never_answered(tmp_path, heading, body, question, wanted):
    """It heads the sentence, and lends it its words."""
    (tmp_path / "a.md").write_text(f"# {heading}\n\n{body}\n", encoding="utf-8")
    (chunk,) = load_corpus(tmp_path / "a.md").chunks
    assert (chunk.section, chunk.text) == ((heading,), body)
    generation = Extractive().answer(question, [chunk])
    assert generation.text == wanted
    assert generation.cited == (0,)
    (line,) = passage_lines(chunk.text, chunk.section)
    assert {"storm"} <= line.heading
    assert heading in glued(chunk).text


@pytest.mark.parametrize(
    "text",
    [
        "To install the hail sensor:\n\n```sh\npip install hail\n```",
        "```sh\npip install hail\n```",
        "- Buy a hail sensor.\n- Mount the hail sensor.",
        "<!-- hail: internal -->\nHail is covered.",
    ],
)
def test_what_is_shown_is_what_was_scored(text):
    """Code is quoted with its lead sentence, lists stay, nothing hygiene removes is the best."""
    chunk = Chunk("a#1", text, "a.md", 1, section=("Hail sensor",))
    generation = Extractive().answer("How do I install the hail sensor?", [chunk])
    assert generation.text
    assert clean(generation.text).text == generation.text
    assert "internal" not in generation.text
    assert generation.text != "Hail sensor"


def test_words_of_the_section_head_every_line():
    """Also below a heading of the text, which does not take their place."""
    lines = passage_lines("First.\n\n#### Deep\n\nSecond.", ("Storm", "Excess"))
    assert [line.text for line in lines] == ["First.", "Second."]
    assert lines[0].heading == {"storm", "exces"}
    assert lines[1].heading == {"storm", "exces", "deep"}


def test_the_first_line_below_a_section_is_no_guessed_heading():
    """Without a section a short line above longer ones is one, as in texts from elsewhere."""
    text = (
        "Hail damage\nThe sum that we pay after a storm with hail is £250 for each claim that you "
        "make."
    )
    assert len(passage_lines(text)) == 1
    assert passage_lines(text, ("Home",))[0].text.startswith("Hail damage The sum")


def test_a_chunk_without_section_is_as_it_was():
    """The text is all of it, a path on its first line still heads it (traces from before)."""
    old = glued(Chunk("a#1", "It is £250.", "a.md", section=("Home", "Storm")))
    assert old.full_text == old.text == "Home > Storm\nIt is £250."
    assert passage_lines(old.text) == passage_lines("It is £250.", ("Home", "Storm"))


# Whoever looks at words reads the headings too.


def test_consumers_of_words_read_the_section():
    """Retrieval, patterns and compression as with the headings in the text.

    What is quoted is the text.
    """
    assert EXCESS.full_text == f"Home > {SECTION[1]}\nIt is £250 for each claim."
    assert entities_of([EXCESS.full_text], {"storm": ("storm",)}) == (("storm",),)
    compressed = compress(
        "How much is the storm excess?",
        [EXCESS, Chunk("b", "Ask us. It is late.", "b.md")],
        budget=40,
    )
    assert compressed.passages[0] == EXCESS
    assert compressed.tokens >= len(EXCESS.full_text.split())


# Files.


def test_every_form_keeps_the_section(tmp_path):
    """JSON lines, frames and traces give it back.

    One without sections is written and hashed as before them.
    """
    plain = Corpus("c", (Chunk("a", "x", "a.md"),))
    corpus = Corpus("c", (EXCESS, Chunk("b", "y", "b.md")))
    save_corpus(corpus, tmp_path / "c.jsonl")
    assert load_corpus(tmp_path / "c.jsonl") == corpus
    assert hash_corpus(corpus) != hash_corpus(
        corpus._replace(chunks=tuple(map(glued, corpus.chunks)))
    )
    assert hash_corpus(plain) == "c2f94de7cccda6ae3b9be0844477c3838327d865b1d880a365c0a3b9af4221c3"
    frame = pd.DataFrame(
        {"id": ["a", "b"], "text": ["x", "y"], "section": [["Home", "Excess"], None]}
    )
    assert [chunk.section for chunk in load_corpus(frame).chunks] == [("Home", "Excess"), ()]
    hits = pd.DataFrame(
        {
            "query": ["q?"],
            "hit_id": ["a"],
            "score": [0.5],
            "text": ["x"],
            "section": [["Home"]],
            "label": ["ok"],
        }
    )
    trace = raglab.trace_from_frame(hits)
    assert trace.chunks[0].section == ("Home",)
    save(trace, tmp_path / "t.parquet")
    assert load(tmp_path / "t.parquet", TraceData).chunks == trace.chunks
    assert raglab.Trace.load(tmp_path / "t.parquet").hits_of("q1")["section"].tolist() == ["Home"]


def test_a_trace_without_sections_is_written_as_before(tmp_path):
    """No column is added, so that the file is that of an earlier raglab byte for byte."""
    import pyarrow.parquet as pq

    trace = trace_of((ask(), [[Hit(0.5, "a.md", 1, text="the excess")]]))
    save(trace, tmp_path / "t.parquet")
    kind = pq.read_schema(tmp_path / "t.parquet").field("chunks").type.value_type
    assert kind.get_field_index("section") == -1
    below = dataclasses.replace(
        trace, chunks=tuple(chunk._replace(section=("Home",)) for chunk in trace.chunks)
    )
    save(below, tmp_path / "s.parquet")
    assert [chunk.section for chunk in load(tmp_path / "s.parquet", TraceData).chunks] == [
        ("Home",)
    ] * len(trace.chunks)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("Home", "section must be a valid list"),
        ([""], "section.0 must not be blank"),
        (["x" * 1001], "section.0 must have at most 1000 characters"),
    ],
)
def test_a_wrong_section_is_refused(tmp_path, section, message):
    """With file and line."""
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"id": "a", "text": "x", "section": section}) + "\n"
    )
    with pytest.raises(raglab.InputError, match=message):
        load_corpus(tmp_path / "c.jsonl")


# A document's rank is that of its best chunk.


def test_a_document_stands_in_the_ranking_once():
    """Three chunks of a.md stand before the one of b.md.

    It is the second document, at a gain of 1/log2(3).
    """
    hits = [Hit(0.1 * n, "a.md", n, rank=n - 1) for n in (1, 2, 3)]
    trace = trace_of((ask(expect_sources=("b.md",)), [[*hits, Hit(0.9, "b.md", 1, rank=3)]]))
    assert ndcg_by_case(trace)[0, 0] == pytest.approx(1 / np.log2(3))
    assert ranking(trace)["hit@5"].tolist() == [1.0]
    ((first, *_),) = ranked_cases(trace, (FINAL_ORDER,)).measures.values()
    assert first.tolist() == [1]


def test_of_a_case_that_names_a_page_pages_are_ranked():
    """Pages of a.md are told apart, and two chunks of one page are one place."""
    hits = [Hit(0.1, "a.md", 1, rank=0), Hit(0.2, "a.md", 1, rank=1), Hit(0.3, "a.md", 2, rank=2)]
    trace = trace_of((ask(expect_sources=("a.md#2",)), [[*hits, Hit(0.9, "b.md", 1, rank=3)]]))
    assert ndcg_by_case(trace)[0, 0] == pytest.approx(1 / np.log2(3))


# What is in no embedding.


class Reads:
    """An encoder of four words, each a token."""

    max_tokens = 4
    name = "four"

    def lengths(self, texts):
        """Words of each text."""
        return np.array([len(text.split()) for text in texts])

    def spans(self, texts):
        """Places of the first four words."""
        spans = []
        for text in texts:
            ends = np.cumsum([len(word) + 1 for word in text.split()]) - 1
            spans.append(np.array([[0, end] for end in ends[:4]]))
        return spans


def test_words_in_no_embedding_are_counted():
    """Six words and three: two of nine are behind the fourth, in one of two chunks."""
    assert cut_chunks(Reads(), ["a b c d e f", "a b c"]) == (2, 1, 9, 2)  # type: ignore[arg-type]
