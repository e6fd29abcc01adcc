"""Chunks are cut by encoder tokens along a document's structure (issue 31, kinds C and P)."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import lines_run
from raglab.models.tokens import encoder_tokens
from raglab.store.blocks import Block, DocumentBlocks, plain_paragraphs
from raglab.store.chunking import TokenLimit, chunk_blocks
from raglab.store.loaders import load_corpus
from raglab.values import Chunk
from raglab.words.text import CodeBlock, split_code


def words(texts):
    """Words of each text and two tokens around it, as a plain tokenizer counts."""
    return [len(text.split()) + 2 for text in texts]


def bytes_of(texts):
    """Tokens of a tokenizer whose counts do not add up: bytes by four, white space among them."""
    return [-(-len(text.encode()) // 4) + 2 for text in texts]


def chunks_of(*blocks, title="", most=32, overlap=0):
    """Chunks of a document by words."""
    return chunk_blocks(
        DocumentBlocks(title, blocks), "a.md", limit=TokenLimit(words, most, overlap)
    )


def text(n, mark="w", sentence=5):
    """A paragraph of `n` numbered words in sentences of five."""
    named = [f"{mark}{i}" for i in range(n)]
    runs = [
        " ".join(named[start : start + sentence]).capitalize() for start in range(0, n, sentence)
    ]
    return ". ".join(runs) + "."


# Examples.


def test_headings_of_three_levels_are_the_section_and_deeper_ones_are_text():
    """Title first, no chunk of a bare heading, a page starts one below the same headings."""
    chunks = chunks_of(
        Block("heading", "Home", 1),
        Block("heading", "Empty", 2),
        Block("heading", "Excess", 2),
        Block("text", "It is £250."),
        Block("heading", "Deep", 4),
        Block("text", "Below."),
        Block("text", "Next page.", page=2, label="ii"),
    )
    assert [(c.chunk_id, c.section, c.page_label, c.text) for c in chunks] == [
        ("a.md#1-1", ("Home", "Excess"), None, "It is £250.\n\nDeep\n\nBelow."),
        ("a.md#2-2", ("Home", "Excess"), "ii", "Next page."),
    ]
    assert chunks[0].full_text == "Home > Excess\nIt is £250.\n\nDeep\n\nBelow."


def test_the_only_first_heading_is_the_title_where_it_begins_the_document():
    """A late one is of an appendix; a heading below it with the title's words stays in the path."""
    storm = (Block("heading", "Storm", 2), Block("text", "It is £250."))
    late = chunks_of(*storm, Block("heading", "Cats", 1), Block("text", "They sleep."))
    assert [chunk.section for chunk in late] == [("Storm",), ("Cats",)]
    first = chunks_of(
        Block("heading", "Home", 1), *storm, Block("heading", "Home", 3), Block("text", "Mine.")
    )
    assert [chunk.section for chunk in first] == [("Home", "Storm"), ("Home", "Storm", "Home")]


def test_sentences_are_repeated_inside_a_section_only():
    """The last sentence of five words begins the next chunk; the next section begins anew.

    A table repeats nothing.
    """
    long = Block("text", text(40))
    chunks = chunks_of(
        Block("heading", "A", 1), long, Block("heading", "B", 1), Block("text", "Other."), overlap=6
    )
    assert [c.text for c in chunks] == [
        (
            "W0 w1 w2 w3 w4. W5 w6 w7 w8 w9. W10 w11 w12 w13 w14. W15 w16 w17 w18 w19. W20 w21 w22 "
            "w23 w24."
        ),
        "W20 w21 w22 w23 w24. W25 w26 w27 w28 w29. W30 w31 w32 w33 w34. W35 w36 w37 w38 w39.",
        "Other.",
    ]
    rows = "\n".join(f"| r{n} | v{n} |" for n in range(9))
    table = Block("table", f"| a | b |\n|---|---|\n{rows}")
    chunks = chunks_of(table, overlap=6)
    assert all(c.text.startswith("| a | b |\n|---|---|\n| r") for c in chunks)
    assert [line for c in chunks for line in c.text.split("\n")[2:]] == rows.split("\n")


def test_the_sentence_that_introduces_code_stands_with_it():
    """`Run it:` would else end the chunk before, and the code would say nothing of itself."""
    code = Block("code", "```sh\n" + "\n".join(f"step {n}" for n in range(10)) + "\n```")
    chunks = chunks_of(Block("text", text(10) + " Run it:"), code, overlap=4)
    assert chunks[-1].text.startswith("Run it:\n\n```sh\nstep 0")


def test_code_is_cut_between_lines_inside_its_fence():
    """Each piece is a whole code block of the same language."""
    lines = [f"call {n} now" for n in range(30)]
    chunks = chunks_of(Block("code", "\n".join(["~~~python", *lines, "~~~"])))
    parsed = [split_code(c.text.split("\n")) for c in chunks]
    assert len(chunks) > 2
    assert all(
        len(parts) == 1 and isinstance(parts[0], CodeBlock) and parts[0].language == "python"
        for parts in parsed
    )
    assert [
        line
        for parts in parsed
        for block in parts
        if isinstance(block, CodeBlock)
        for line in block.lines
    ] == lines


def test_headings_that_leave_no_room_stand_in_the_text_once():
    """The outer ones go first, and none of their words is lost."""
    long = " ".join(f"outer{n}" for n in range(40))
    chunks = chunks_of(
        Block("heading", long, 1), Block("heading", "Short", 2), Block("text", "Text."), title="T"
    )
    assert {c.section for c in chunks} == {("Short",)}
    assert " ".join(c.text for c in chunks).split() == ["T", *long.split(), "Text."]


@pytest.mark.parametrize("count", [words, bytes_of, encoder_tokens().count])
@pytest.mark.parametrize(
    "piece",
    ["a b. " * 400, "word " * 900, "x" * 50_000, "東京は首都です。" * 300, "- - -\n" * 300 + "end"],
)
def test_whatever_the_text_a_chunk_fits(count, piece):
    """Words without end, scripts without spaces, marks alone: all are cut, and nothing is lost."""
    limit = TokenLimit(count, 48, 0)  # type: ignore[arg-type]
    chunks = chunk_blocks(DocumentBlocks("", (Block("text", piece),)), "a.txt", limit=limit)
    assert max(limit.count([c.full_text for c in chunks])) <= 48
    assert max(len(c.text) for c in chunks) <= 48 * 20
    assert re.sub(r"\s", "", "".join(c.text for c in chunks)).replace("-", "") == re.sub(
        r"[\s-]", "", piece
    )


# Laws.

WORDS = st.text("abcdé東.!?:", min_size=1, max_size=9)
SENTENCES = st.lists(WORDS, min_size=1, max_size=40).map(" ".join)
CELLS = st.text("abc 1", max_size=8)
ROWS = st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=12)
TABLES = ROWS.map(
    lambda rows: "\n".join(["| h1 | h2 |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])
)
CODE = st.lists(st.text("ab =()", max_size=30), min_size=1, max_size=12).map(
    lambda lines: "\n".join(["```py", *lines, "```"])
)
BLOCKS = st.one_of(
    st.builds(Block, st.just("heading"), WORDS, st.integers(1, 6)),
    st.builds(Block, st.just("text"), SENTENCES),
    st.builds(lambda words: Block("item", f"- {words}", 1), SENTENCES),
    st.builds(Block, st.just("table"), TABLES),
    st.builds(Block, st.just("code"), CODE),
)
COUNTS = st.sampled_from([words, bytes_of])


def pages(blocks, cuts):
    """Blocks on pages that begin where it is cut."""
    return tuple(
        block._replace(page=1 + sum(cut <= at for cut in cuts)) for at, block in enumerate(blocks)
    )


DOCUMENTS = st.builds(pages, st.lists(BLOCKS, max_size=8), st.lists(st.integers(1, 8), max_size=2))


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS, st.sampled_from([32, 48, 100]), COUNTS, st.sampled_from([0, 8, 16]))
def test_laws_of_cutting(blocks, most, count, overlap):
    """Every chunk fits, no word is lost, fences balance, ids are unique, the same comes twice."""
    limit = TokenLimit(count, most, overlap)  # type: ignore[arg-type]
    document = DocumentBlocks("", blocks)
    chunks = chunk_blocks(document, "a.md", limit=limit)
    assert chunks == chunk_blocks(document, "a.md", limit=limit)
    assert all(size <= most for size in limit.count([c.full_text for c in chunks]))
    assert len({c.chunk_id for c in chunks}) == len(chunks)
    assert [c.page for c in chunks] == sorted(c.page or 0 for c in chunks)
    of_text = Counter(
        word for block in blocks if block.kind != "heading" for word in letters(block.text)
    )
    assert of_text <= Counter(word for c in chunks for word in letters(c.full_text))
    for chunk in chunks:
        assert sum(line.startswith("```") for line in chunk.text.split("\n")) % 2 == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(SENTENCES.map("x {}".format), min_size=1, max_size=6),
    st.sampled_from([32, 48]),
    st.sampled_from([8, 16]),
)
@example(["x" + " :" * n for n in (10, 9, 9, 10)], 32, 16)
def test_overlap_repeats_an_end_and_keeps_the_order(texts, most, overlap):
    """Without its overlap, what begins a chunk again, the text is what it was.

    The overlap has at most its tokens.
    """
    chunks = chunk_blocks(
        DocumentBlocks("", tuple(Block("text", piece) for piece in texts)),
        "a.md",
        limit=TokenLimit(words, most, overlap),
    )
    whole = " ".join(texts).split()
    # words that the chunks so far may hold: equal words leave open how many an overlap repeats
    ends = {0}
    for chunk in chunks:
        parts = chunk.text.split()
        ends = {
            end - n + len(parts)
            for end in ends
            for n in range(min(overlap, len(parts), end) + 1)
            if whole[end - n : end - n + len(parts)] == parts
        }
    assert len(whole) in ends


def letters(piece):
    """Letters and figures, which no cut may lose; a long word may be cut in two."""
    return [sign for sign in piece if sign.isalnum()]


# End to end.


def test_a_published_document_is_cut_only_where_it_is_too_long(tmp_path):
    """Its chunks keep its source; the title heads each of them."""
    records = [
        {"_id": "7", "title": "T", "text": text(500)},
        {"_id": "8", "title": "", "text": "Short."},
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    chunks = load_corpus(tmp_path).chunks
    assert {c.source for c in chunks} == {"7", "8"}
    assert [c.chunk_id for c in chunks][:2] == ["7#1-1", "7#1-2"]
    assert chunks[-1] == Chunk("8", "Short.", "8")
    assert {c.section for c in chunks if c.source == "7"} == {("T",)}
    assert max(encoder_tokens().count([c.full_text for c in chunks])) <= 256


def test_pieces_of_a_squad_paragraph_stay_on_its_page(tmp_path):
    """The label `Article#2` means all of them."""
    paragraphs = [{"context": "One.", "qas": []}, {"context": text(400), "qas": []}]
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"data": [{"title": "A", "paragraphs": paragraphs}]}))
    chunks = load_corpus(path).chunks
    assert [c.chunk_id for c in chunks][:3] == ["A#1-1", "A#2-2-1", "A#2-2-2"]
    assert {c.shown for c in chunks[1:]} == {"A#2"}


def test_a_user_s_own_chunks_stay_as_they_are(tmp_path):
    """However long: whoever cut them knows why; building a trace says what is in no embedding."""
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps({"id": "a", "text": text(900)}) + "\n")
    assert [c.text for c in load_corpus(path).chunks] == [text(900)]


def test_the_limit_is_that_of_the_encoder():
    """256 tokens of the bundled one, framed by two.

    The counts are those of its tokenizer, whatever the white space.
    """
    tokens = encoder_tokens()
    assert tokens.max_tokens == 256
    samples = [
        "",
        "It is covered.",
        "a\u00a0b\x85c\x1cd",
        "[SEP] x\ty",
        "東京",
        "e\u0301" * 3,
        "un" * 80,
        "a  b\n\n c",
    ]
    tokenizer = tokens.count.args[0]  # type: ignore[attr-defined]
    assert tokens.count(samples) == [len(tokenizer.encode(text).ids) for text in samples]


def test_reading_is_linear_in_the_length():
    """Four times the text takes about four times the work: a square would take 16 times."""
    limit = TokenLimit(encoder_tokens().count, 256, 32)

    def work(n):
        paragraphs = "\n\n".join(text(200, f"w{i % 50}x") for i in range(n))
        blocks = tuple(Block("text", piece) for piece in plain_paragraphs(paragraphs))
        return lines_run(lambda: chunk_blocks(DocumentBlocks("", blocks), "a.txt", limit=limit))

    work(25)  # words are remembered
    assert work(100) < 6 * work(25)
