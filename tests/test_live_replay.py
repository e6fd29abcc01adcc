"""Live equals replay.

What is asked live is decided as the trace with recorded answers says (S2.12, S2.13).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import raglab
from code_documents import DOCUMENTS, QUESTIONS
from generators import Fixed
from raglab.answering.extractive import Extractive
from raglab.answering.hygiene import clean
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.replay import decide
from raglab.values import Case, Chunk, Corpus
from raglab.words.text import split_code

HITS = ("l2", "similarity", "gap", "coverage", "confidence")
POLICIES = {
    "published": {},
    "answers": {name: {"enabled": False} for name in HITS},
    "hygiene": {name: {"enabled": False} for name in (*HITS, "generation", "support")},
    "strict": {name: {"enabled": False} for name in HITS}
    | {"generation": {"min_generation_confidence": 0.9}},
}
CASES = tuple(
    Case(
        f"q{number}",
        question,
        "ok" if source else "refuse",
        expect_sources=(source,) if source else (),
    )
    for number, (question, source) in enumerate(QUESTIONS)
)


class Docs(NamedTuple):
    """The corpus, its index, and the trace of its cases without answers."""

    corpus: Corpus
    index: Path
    trace: raglab.Trace


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """Documents on disk, loaded, indexed and asked once."""
    folder = tmp_path_factory.mktemp("docs")
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    corpus = raglab.load_corpus(folder)
    index = tmp_path_factory.mktemp("index")
    raglab.build_index(corpus, index, arms=("hybrid",), cache=None)
    return Docs(corpus, index, raglab.build_trace(corpus, CASES, arms=("hybrid",), cache=None))


def open_system(docs, stated, **more):
    """The system of the index under a policy."""
    policy = raglab.Policy.from_mapping(stated)
    return raglab.System.open(docs.index, policy=policy, cache=False, audit=False, **more)


@pytest.mark.parametrize(
    ("name", "heading"), [("published", False), ("strict", False), ("answers", True)]
)
def test_every_question_is_decided_live_as_in_the_replay(docs, name, heading):
    """Status, reason (naming gate and numbers) and text, also where hygiene leaves nothing."""
    more = {"generator": Fixed("# Heading", confidence=0.95)} if heading else {}
    system = open_system(docs, POLICIES[name], **more)
    recorded = raglab.record_answers(docs.trace, system.policy, system.generator, system.scorer)
    replayed = decide(recorded, system.policy, arm="hybrid")
    texts = {
        (row, tuple(n for n in chunks if n >= 0)): text for row, chunks, text in _answers(recorded)
    }
    gates = set()
    for row, case in list(enumerate(CASES))[::2]:
        live = raglab.ask(case.query, system=system, request_id=case.id)
        assert live["status"] == raglab.values.Status(int(replayed.status[row])).name, case.query
        if live["refused"]:
            assert live["refusal_reason"] == replayed.reason(row), case.query
            gates.add(live["refusal_reason"])
        elif live["status"] == "ok":
            assert live["answer"] == texts[row, replayed.chunks_of_decision(row)], case.query
    if heading:
        assert gates
        assert all("nothing is left of the answer without: heading" in reason for reason in gates)


def _answers(trace):
    answers = trace.answers
    return list(zip(answers.row.tolist(), answers.chunks.tolist(), answers.text, strict=True))


def test_hygiene_refuses_no_answerable_question(docs):
    """With every other gate off each is answered, many with code, kept as the documents have it."""
    system = open_system(docs, POLICIES["hygiene"])
    with_code = 0
    for case in CASES:
        if case.expect_status != "ok":
            continue
        live = raglab.ask(case.query, system=system)
        assert live["status"] == "ok", (case.query, live["refusal_reason"])
        for part in split_code(str(live["answer"]).split("\n")):
            if not isinstance(part, str):
                with_code += 1
                text = DOCUMENTS[str(live["sources"][0]).partition("#")[0]]
                assert "\n".join(part.lines) in text
    assert with_code >= 15


@pytest.mark.usefixtures("quick_study")
def test_what_was_not_measured_is_named_once(docs, tmp_path):
    """In the notes of study, certificate and report; with recorded answers it is not."""
    system = open_system(docs, {})
    trace = docs.trace
    (note,) = unmeasured_note(trace, system.policy)
    assert (
        unmeasured_note(
            raglab.record_answers(trace, system.policy, system.generator, system.scorer),
            system.policy,
        )
        == ()
    )
    found = raglab.tune(trace, trials=2, seed=0)
    assert sum("No answers are recorded" in text for text in found.notes) == 1
    certified = raglab.certify_policy(trace, system.policy, targets={"hallucination_rate": 0.1})
    assert note in certified.notes
    page = raglab.write_report(
        trace, {"defaults": system.policy}, out=tmp_path / "report.html"
    ).read_text(encoding="utf-8")
    assert page.count("No answers are recorded") == 1


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *(
                "Install it",
                "Installation",
                "nest",
                "egg",
                ":",
                ".",
                "?",
                " ",
                "\n",
                "\n\n",
                "x  = 1",
                "`nest`",
            ),
            *(
                "```\n",
                "```python\n",
                "~~~\n",
                "# ",
                "## Title\n",
                "===\n",
                "---\n",
                "- ",
                "1. ",
                "> ",
                "**egg**",
            ),
            *(
                "| a | b |\n",
                "|---|---|\n",
                "<!-- x -->",
                "<!--",
                "<b>",
                "</b>",
                "`<b>`",
                "None",
                "Answer:",
            ),
            *("Sources:", "a.md", "I cannot answer."),
        ]
    ),
    max_size=25,
).map("".join)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(FRAGMENTS, FRAGMENTS)
@example("", "nest\n\n===\n```\nInstall it")
def test_what_is_confident_is_what_is_shown(first, second):
    """Hygiene leaves an extractive answer as it is.

    Confidence, citation and support are of the text that is shown.
    """
    passages = [Chunk("a#1", f"{first}", "a.md", 1), Chunk("b#1", f"{second}", "b.md", 1)]
    answer = Extractive().answer("How do I install an egg into the nest?", passages)
    if answer.text:
        cleaned = clean(answer.text)
        assert (cleaned.text, cleaned.refused) == (answer.text, None)
